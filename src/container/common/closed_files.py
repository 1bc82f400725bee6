"""Files and directories that a library creates, with rights of its own choice, are closed to other users.

Our own code gives each file its mode: 0640, directories 0750. A library such as libaeron leaves that to the umask,
which all threads of a process share. :func:`closed_to_others` sets it while such a library creates files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from container.common import forks

OTHERS_MASK = 0o027
"""The rights that nobody gets: to write for the group, and all for others."""


class _Umask:
    """The umask of this process while somebody wants it strict; the first sets it, the last gives it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._previous = 0
        forks.own(self)

    def tighten(self) -> None:
        with self._lock:
            if self._users == 0:
                self._previous = os.umask(0o077)
                os.umask(self._previous | OTHERS_MASK)
            self._users += 1

    def give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.umask(self._previous)

    def _disown(self, _process_id: int) -> None:
        """In a forked child: the threads that wanted it are the parent's."""
        self._lock = threading.Lock()
        if self._users:
            os.umask(self._previous)
        self._users = 0
        forks.own(self)


_umask = _Umask()


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Have all that this process creates meanwhile be 0640, and 0750 for directories, at most.

    A stricter umask stays. Files that other threads create in that time have these rights as well.
    """
    _umask.tighten()
    try:
        yield
    finally:
        _umask.give_back()
