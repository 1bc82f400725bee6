"""The end of the process for objects with threads or sessions that nobody has closed: it closes them, in order.

Such an object calls :func:`close_at_end` when it gets hold of these. Its threads are daemons, so that the interpreter
comes to its ``atexit`` functions; there all threads still run. ``with`` is better, as it closes when the block is left.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, Protocol

from container.common.error_texts import message_of
from container.common.loggers import report
from container.errors import ClusterError

_STOP_LIMIT_S = 30.0


class Stage(IntEnum):
    """When an object is closed: before what it uses. Objects of one stage are closed from the newest to the oldest."""

    POOL = 0
    """Pools of cluster clients, asyncio's among them; and exporters."""
    CLIENT = 1
    """Clients of clusters: their sessions end while a member in this process still takes that."""
    NODE = 2
    AGENT = 3
    """Archives, consensus modules and containers without a node that closes them."""
    TRANSPORT = 4
    """Aeron clients, those that the others left open."""
    KEEPALIVE = 5
    """Threads of Aeron clients that a call in progress keeps."""
    DRIVER = 6


class _Closable(Protocol):
    def close(self) -> object: ...


def _close(owner: _Closable) -> None:
    owner.close()


class _Guardable(_Closable, Protocol):
    @property
    def _is_guarded(self) -> bool: ...


class _Stoppable(Protocol):
    def stop(self) -> object: ...
    def join(self, timeout: float, /) -> object: ...


def close_unless_guarded(owner: _Guardable) -> None:
    """Close a client, or a pool of sessions, that no thread of its own closes.

    One that a thread uses which still runs is left: the cluster times its sessions out.
    """
    if not owner._is_guarded:
        with suppress(ClusterError):
            owner.close()


def stop_and_join(owner: _Stoppable) -> None:
    """Have a thread close what it has, and wait for its end: for 30 s at most, then it is left."""
    owner.stop()
    owner.join(_STOP_LIMIT_S)


_open: dict[tuple[Stage, int], tuple[weakref.ref[Any], Callable[[Any], object]]] = {}
_numbers = itertools.count(0, -1)  # the newest first
_hooked_id = 0  # the process that multiprocessing has started and that has called close_at_end


def close_at_end(owner: Any, stage: Stage, close: Callable[[Any], object] = _close) -> None:
    """Have an object closed at the end of this process, for as long as it lives; not in a forked child.

    Args:
        owner: its ``close()`` does nothing when it is closed already.
        stage: when, among others.
        close: is called with it, in place of ``close()``.
    """
    key = stage, next(_numbers)
    _open[key] = weakref.ref(owner, lambda _reference: _open.pop(key, None)), close
    _hook_into_multiprocessing()


def _hook_into_multiprocessing() -> None:
    """A process that multiprocessing has forked ends without ``atexit`` functions, and has others in their place."""
    global _hooked_id
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is None or util is None or process.parent_process() is None or _hooked_id == os.getpid():
        return
    _hooked_id = os.getpid()
    util.Finalize(None, close_all, exitpriority=0)


def close_all() -> None:
    """Close what is open; raise nothing. After Ctrl-C nothing is waited for but what Aeron's library has of its own."""
    is_interrupted = False
    while True:
        try:
            for stage in Stage:
                _close_stage(stage, is_skipped=is_interrupted and stage < Stage.TRANSPORT)
            return
        except KeyboardInterrupt:
            report("warning", "interrupted: what was not closed is left as it is")
            is_interrupted = True


def _close_stage(stage: Stage, *, is_skipped: bool) -> None:
    for key in sorted(each for each in list(_open) if each[0] is stage):
        reference, close = _open.pop(key, (None, _close))
        owner = None if reference is None or is_skipped else reference()
        if owner is None:
            continue
        try:
            close(owner)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            report("error", "%r was not closed cleanly: %s", owner, message_of(error))


def _forget() -> None:
    """In a forked child, whose parent closes them."""
    _open.clear()


atexit.register(close_all)
os.register_at_fork(after_in_child=_forget)
