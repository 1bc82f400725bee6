"""Helpers of asyncio tests: a limit on their time, pauses, and waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tests.limits import LIMIT_S


async def pause(seconds: float = 0.0) -> None:
    """Let the loop run for so long; without a duration for one turn."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    handle = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        handle.cancel()


async def until(predicate: Callable[[], object], what: str) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + LIMIT_S
    while not predicate():
        assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s for {what}"
        await pause(0.002)


def run(
    test: Coroutine[Any, Any, None],
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    """Run a coroutine to its end in a loop of its own."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test

    asyncio.run(limited(), loop_factory=new_event_loop)
