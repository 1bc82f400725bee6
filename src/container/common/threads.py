"""Whether Python's threads are those of the system: what has a thread of its own cannot live on a greenlet."""

from __future__ import annotations

import _thread
import queue
from types import BuiltinFunctionType

from container.errors import ConfigurationError


def check_threads(what: str) -> None:
    """Raise ConfigurationError where a program has replaced Python's threads or queues, as gevent's ``patch_all()``.

    A replaced thread runs only while the caller waits in the library that replaced it, and nothing here waits there.
    A replaced queue belongs to one thread.

    Args:
        what: is called, or made, such as "launch_node()".
    """
    replaced: object = None
    if not isinstance(_thread.start_new_thread, BuiltinFunctionType):
        replaced = _thread.start_new_thread
    elif queue.SimpleQueue.__module__ != "_queue":
        replaced = queue.SimpleQueue
    if replaced is not None:
        library = str(getattr(replaced, "__module__", None)).partition(".")[0]
        raise ConfigurationError(
            f"{what} needs Python's threads and queues, and {library} has replaced them: leave them as they are, with "
            "gevent by gevent.monkey.patch_all(thread=False, queue=False)"
        )
