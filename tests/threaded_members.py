"""Scripted members over a media driver in this process, in a thread of their own: for clients that have threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, cast

from container.aeron import AeronClient, MediaDriver
from container.api import NOT_CONNECTED
from container.common.aeron_defaults import EGRESS_STREAM_ID
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.processes.endpoints import PortReservation
from tests.ingress_member import CLOSED, IngressMember, Request
from tests.limits import LIMIT_S

PAUSE_S = 0.0002


class PatientMember(IngressMember):
    """Waits until what it sends is taken."""

    _is_heard = False

    def __init__(self, members: ThreadedMembers, member_id: int, ingress_channel: str) -> None:
        self.members = members
        super().__init__(cast(MemoryDriver, members), member_id, ingress_channel)

    def send_bytes(self, data: bytes) -> None:
        assert self.egress is not None
        deadline = time.monotonic() + LIMIT_S
        while (result := seam.offer(self.egress, data)) <= 0:
            if result == NOT_CONNECTED and self._is_heard:
                return  # the client is gone
            if self.members.is_ending:
                return  # so is everybody
            assert time.monotonic() < deadline, "nobody took what the member sent"
            seam.invoke(self.client)
        self._is_heard = True

    def open_egress(self, channel: str, stream_id: int = EGRESS_STREAM_ID) -> None:
        super().open_egress(channel, stream_id)
        self._is_heard = False

    def echo(self) -> None:
        """Answer each session message with its payload."""

        def hook(request: Request) -> None:
            self.message(request["payload"], session_id=request["cluster_session_id"])

        self.hooks["SessionMessageHeader"] = hook

    def session_ids(self) -> Iterable[int]:
        """All sessions that are led."""
        return [self.cluster_session_id]

    # For tests, in their own thread:

    def sent(self) -> list[bytes]:
        """The session messages that came in, in order."""
        return self.members.do(self.payloads)

    def be_silent(self) -> None:
        """Answer no session message."""
        self.members.do(lambda: self.hooks.update(SessionMessageHeader=lambda request: None))

    def end_session(self, session_id: int | None = None, *, refuse: tuple[int, str] | None = None) -> None:
        """Close the last session, or that one; take a new one, or answer each request with a refusal."""

        def end() -> None:
            if refuse is not None:
                self.refuse(*refuse)
            self.session_event(5, CLOSED, "TIMEOUT", session_id=session_id)

        self.members.do(end)

    def begin_anew(self, *, term_id: int | None = None) -> None:
        """Know no session any more, and tell nobody: new ones are of a term, or of the next one, and get an echo."""
        former = self.cluster_session_id
        kept: list[object] = []

        def connect(request: Request) -> None:
            kept.append(self.egress)  # as that of a host that is gone is for a while
            self.cluster_session_id += 1
            self.on_SessionConnectRequest(request)

        def echo(request: Request) -> None:
            if request["cluster_session_id"] != former:
                self.message(request["payload"])

        def begin() -> None:
            self.leadership_term_id = self.leadership_term_id + 1 if term_id is None else term_id
            self.hooks.update(SessionConnectRequest=connect, SessionMessageHeader=echo)

        self.members.do(begin)

    def accept(self, request: Request) -> None:
        """Give a client the session that it asked for, and an echo, from now on to all."""

        def connect() -> None:
            self.echo()
            self.cluster_session_id += 1
            self.hooks.pop("SessionConnectRequest")
            self.on_SessionConnectRequest(request)

        self.members.do(connect)

    def accept_again(self) -> None:
        """Refuse no session any more."""
        self.members.do(lambda: self.hooks.pop("SessionConnectRequest", None))


class ThreadedMembers:
    """A driver and its members, which one thread keeps going; tests talk to them through :meth:`do`."""

    def __init__(self, *, client_liveness_timeout_ns: int = 10_000_000_000) -> None:
        self.media_driver = MediaDriver.launch_embedded(
            ipc_term_buffer_length=1024 * 1024,
            term_buffer_length=256 * 1024,
            publication_linger_timeout_ns=50_000_000,
            timer_interval_ns=20_000_000,
            image_liveness_timeout_ns=1_000_000_000,
            client_liveness_timeout_ns=client_liveness_timeout_ns,
        )
        self._ports = PortReservation()
        self._tasks: list[Callable[[], object]] = []
        self._clients: list[AeronClient] = []
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._is_ending = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="members")
        self._thread.start()

    @property
    def aeron_dir(self) -> str:
        """Directory of the driver."""
        return self.media_driver.aeron_dir

    @property
    def is_ending(self) -> bool:
        """Has the test ended?"""
        return self._is_ending.is_set()

    def take_endpoint(self) -> str:
        """An address for a member."""
        return f"localhost:{self._ports.take()}"

    def member(
        self,
        member_id: int,
        channel: str,
        script: Callable[[PatientMember], object] | None = None,
        kind: type[PatientMember] = PatientMember,
    ) -> PatientMember:
        """A member that listens on ``channel``; ``script`` is called with it before it hears anything."""

        def make() -> PatientMember:
            made = kind(self, member_id, channel)
            if script is not None:
                script(made)
            return made

        return self.do(make)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of a client over IPC that waits patiently, and ``more`` or others in their place."""
        return {
            "ingress_channel": "aeron:ipc",
            "egress_channel": "aeron:ipc?alias=egress",
            "aeron_dir": self.aeron_dir,
            "message_timeout": LIMIT_S,
        } | more

    def do[T](self, action: Callable[[], T]) -> T:
        """Have the members' thread do it, and return its result."""
        results: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                results.append(action())
            except BaseException as error:
                errors.append(error)
            done.set()

        self._actions.put(run)
        assert done.wait(LIMIT_S), f"the members did not answer within {LIMIT_S:g} s: {self._failures}"
        if errors:
            raise errors[0]
        return results[0]

    def connect(self, client_name: str) -> AeronClient:
        """A client for a member."""
        self._clients.append(AeronClient(self.aeron_dir, client_name))
        return self._clients[-1]

    def add_task(self, task: Callable[[], object]) -> None:
        """Have it called in each turn."""
        self._tasks.append(task)

    def remove_task(self, task: Callable[[], object]) -> None:
        """No longer call it."""
        self._tasks.remove(task)

    def _run(self) -> None:
        try:
            while not self._is_ending.wait(PAUSE_S):
                while not self._actions.empty():
                    self._actions.get()()
                for client in self._clients:
                    seam.invoke(client)
                for task in list(self._tasks):
                    task()
        except BaseException as error:
            self._failures.append(error)
        for client in self._clients:
            client.close()

    def close(self) -> None:
        """End thread, clients and driver."""
        self._is_ending.set()
        self._thread.join(LIMIT_S)
        self.media_driver.close()
        self._ports.close()
        assert not self._failures, self._failures

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def key_of(payload: bytes) -> Any:
    """The key of a reply such as ``b"7:text"``; None when there is none."""
    key, colon, _ = payload.partition(b":")
    return int(key) if colon else None
