"""Decides which lost sessions of a pool connect again, and when. No I/O.

Each lost session has a :class:`Reconnection` of its own until it is back, so that one that the cluster refuses does not
hold up the others. The pool that owns this has the clock and makes the attempts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from heapq import heappop, heappush

from container.client.client_context import check_count, check_instance
from container.client.reconnection import ConnectionState, Reconnection, ReconnectPolicy
from container.errors import ContainerError


class PoolListener:
    """Receives events of a pool's sessions; override the methods you need.

    ``session`` is a :class:`PooledSession`, or an :class:`AsyncPooledSession` in an asyncio pool. In a blocking pool
    the methods are called at the end of polls, and what they raise comes out of the poll; in an asyncio pool on the
    event loop, and what they raise goes to its exception handler.
    """

    def on_session_opened(self, session: object) -> None:
        """The session is connected for the first time."""

    def on_session_lost(self, session: object, error: ContainerError) -> None:
        """The session ended; it is connected again, with a new id."""

    def on_session_replaced(self, session: object, attempts: int) -> None:
        """The session is connected again; ``attempts`` counts the attempts it took, from 1."""

    def on_session_closed(self, session: object, error: ContainerError) -> None:
        """The session is not connected any more: its first connect failed, no retry can help, or the policy gave it
        up. Not called when the program closes it."""

    def on_leader_changed(self, leader_member_id: int, leadership_term_id: int) -> None:
        """The pool sends to another member, or to the same one in another term."""

    def on_closed(self, error: ContainerError) -> None:
        """The pool is closed, and connects no more: by its ``close()``, or by the limits of its policy."""


def check_pool_arguments(max_connecting: object, policy: object, callbacks: object) -> None:
    """Refuse arguments of wrong types, with a ConfigurationError."""
    check_count("max_connecting", max_connecting)
    check_instance("policy", policy, ReconnectPolicy, type(None))
    check_instance("callbacks", callbacks, PoolListener, type(None))


class Replacements[Session: Hashable]:
    """The lost sessions of one pool."""

    def __init__(self, policy: ReconnectPolicy, *, random: Callable[[], float] = random.random) -> None:
        self.policy = policy
        self._random = random
        self._machines: dict[Session, Reconnection] = {}
        #: Heap of (when due, number, session); empty: nothing is due.
        self.waiting: list[tuple[int, int, Session]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._machines)

    def __contains__(self, session: Session) -> bool:
        """Whether it was lost, and is neither back nor given up."""
        return session in self._machines

    def lost(self, session: Session, error: ContainerError, now_ns: int) -> ContainerError | None:
        """A connected session ended. Return None when it connects again; else the reason why not."""
        machine = Reconnection(self.policy, random=self._random, now_ns=now_ns)
        machine.on_connected()
        machine.on_lost(error, now_ns)
        self._machines[session] = machine
        return self._await(session, machine, now_ns)

    def failed(self, session: Session, error: ContainerError, now_ns: int) -> ContainerError | None:
        """An attempt failed. Return None when there is another; else the reason why not."""
        machine = self._machines[session]
        machine.on_failed(error, now_ns)
        return self._await(session, machine, now_ns)

    def connected(self, session: Session) -> int:
        """An attempt succeeded; return the attempts that it took, 0 for a session that was not lost."""
        machine = self._machines.pop(session, None)
        return 0 if machine is None else machine.failures + 1

    def forget(self, session: Session) -> None:
        """It is not to be connected any more."""
        self._machines.pop(session, None)

    def due(self, now_ns: int) -> list[Session]:
        """Sessions whose attempt begins now, first due first. The caller reports how each attempt ends."""
        due = []
        while self.waiting and self.waiting[0][0] <= now_ns:
            _, _, session = heappop(self.waiting)
            machine = self._machines.get(session)
            if machine is not None and machine.poll(now_ns):
                due.append(session)
        return due

    def _await(self, session: Session, machine: Reconnection, now_ns: int) -> ContainerError | None:
        if machine.state is ConnectionState.CLOSED:
            del self._machines[session]
            return machine.error
        self._number += 1
        heappush(self.waiting, (now_ns + machine.wait_ns(now_ns), self._number, session))
        return None
