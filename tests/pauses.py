"""Pauses of asyncio tests: one turn of the loop, or a short time between two looks at a condition that has a limit."""

from __future__ import annotations

import asyncio


async def pause(seconds: float = 0.0) -> None:
    """Let the loop run for so long; without a duration for one turn."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    handle = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        handle.cancel()
