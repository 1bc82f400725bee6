"""Clients that send commands and read few of their answers, or none, from a thread, until they are closed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from container.client import AeronCluster, EgressListener
from container.errors import ContainerError
from container.testing.processes.process import wait_until
from tests.soak.ledger import COMMAND, Op

_CONNECT_TIMEOUT_S = 60.0
_JOIN_LIMIT_S = 10.0
_ROUND_S = 0.005
_POLL_EVERY = 40
# An answer is 128 bytes in a log buffer, of whose term half is the most that may be unread.
_EGRESS_TERM_LENGTH = "64k"
#: After this many commands of each, the answers of a client that reads none do not fit any more.
MANY = 600


class _Listener(EgressListener):
    """Passes over the answers."""

    def on_message(self, *arguments: object) -> None:
        pass


class SlowClients:
    """Sessions of which every second never reads, and the others a few answers now and then."""

    def __init__(self, settings: Mapping[str, Any], first_client_id: int, count: int) -> None:
        """Connect ``count`` clients and let them send.

        Raises:
            TimeoutError, ContainerError: they cannot connect.
        """
        egress_channel = f"{settings['egress_channel']}|term-length={_EGRESS_TERM_LENGTH}"
        self.failure: BaseException | None = None
        self._sent = [0] * count
        self._first_client_id = first_client_id
        self._sessions: list[AeronCluster | None] = []
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="slow-clients", daemon=True)
        try:
            for _number in range(count):
                self._sessions.append(
                    AeronCluster.connect(
                        listener=_Listener(),
                        client_name="slow",
                        message_timeout=_CONNECT_TIMEOUT_S,
                        **{**settings, "egress_channel": egress_channel},
                    )
                )
        except BaseException as error:
            error.add_note(f"slow client {len(self._sessions) + 1} of {count}")
            self._close_sessions()
            raise
        self._thread.start()

    def await_sent(self, count: int, limit_s: float) -> None:
        """Wait until each client that still has its session has sent so many commands.

        Raises:
            TimeoutError: they have not.
        """

        def have_sent() -> bool:
            if self.failure is not None:
                raise self.failure
            return all(
                sent >= count for sent, session in zip(self._sent, self._sessions, strict=True) if session is not None
            )

        wait_until(have_sent, limit_s, f"slow clients to send {count} commands each, not {self._sent}")

    @property
    def session_count(self) -> int:
        """How many have their session still."""
        return sum(session is not None for session in self._sessions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and close the sessions."""
        self._is_stopping = True
        self._thread.join(_JOIN_LIMIT_S)

    def _run(self) -> None:
        try:
            number_of_round = 0
            while not self._is_stopping:
                number_of_round += 1
                for number, session in enumerate(self._sessions):
                    if session is not None:
                        self._work(number, session, number_of_round)
                threading.Event().wait(_ROUND_S)
        except BaseException as error:
            self.failure = error
        finally:
            self._close_sessions()

    def _work(self, number: int, session: AeronCluster, number_of_round: int) -> None:
        command = COMMAND.pack(Op.ADD, self._first_client_id + number, self._sent[number] + 1, number, 1)
        try:
            if session.offer(command) > 0:
                self._sent[number] += 1
            if number % 2 and number_of_round % _POLL_EVERY == 0:
                session.poll_egress()
        except ContainerError:
            # It has missed that the leader changed, and does not come back.
            session.close()
            self._sessions[number] = None

    def _close_sessions(self) -> None:
        for session in self._sessions:
            if session is not None:
                session.close()
