"""A member of a cluster as its clients see it, played by a test over the memory transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.api import ADMIN_ACTION
from container.codecs import messages as codecs
from container.common.aeron_defaults import EGRESS_STREAM_ID, INGRESS_STREAM_ID
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.fragment_assembler import SessionFragmentAssembler
from container.transport.streams import Publication, Subscription

OK, ERROR, REDIRECT, AUTHENTICATION_REJECTED, CLOSED = range(5)
SESSION_HEADER_LENGTH = 32

Request = dict[str, Any]


class IngressMember:
    """Listens on ``ingress_channel`` and works each time that the driver conducts; a leader unless told
    otherwise.

    ``requests`` are the names and fields of what came in; a session message has its payload as ``"payload"``.
    ``hooks`` replace what is done about a request, by name.
    """

    def __init__(self, driver: MemoryDriver, member_id: int = 0, ingress_channel: str = "aeron:ipc") -> None:
        self.driver = driver
        self.member_id = member_id
        self.leadership_term_id = 3
        self.heartbeat_timeout_ns: int | None = 5_000_000_000
        self.cluster_session_id = 8
        self.requests: list[tuple[str, Request]] = []
        self.hooks: dict[str, Callable[[Request], None]] = {}
        self.client: MemoryClient = driver.connect(f"member-{member_id}")
        self.ingress: Subscription = seam.add_subscription(self.client, ingress_channel, INGRESS_STREAM_ID)
        self.egress: Publication | None = None
        self._messages = seam.CollectingHandler()
        self._assembler = SessionFragmentAssembler(self._messages)
        driver.add_task(self.work)

    def work(self) -> None:
        """One turn: receives what came in on ingress."""
        seam.poll_with(self.ingress, self._assembler, 1000)
        messages, self._messages.messages[:] = list(self._messages.messages), []
        for data, _ in messages:
            name, request = codecs.decode("cluster", data)
            if name == "SessionMessageHeader":
                request["payload"] = data[SESSION_HEADER_LENGTH:]
            else:
                assert codecs.encode("cluster", name, **request) == data, f"{name} and something behind it: {data!r}"
            self.requests.append((name, request))
            hook = self.hooks.get(name, getattr(self, f"on_{name}", None))
            if hook is not None:
                hook(request)

    def received(self, name: str) -> list[Request]:
        """All requests of that name, in order."""
        return [request for known, request in self.requests if known == name]

    def payloads(self) -> list[bytes]:
        """The session messages that came in, in order."""
        return [request["payload"] for request in self.received("SessionMessageHeader")]

    def stop(self) -> None:
        """The member dies: its streams end."""
        self.driver.remove_task(self.work)
        self.client.close()

    # What a member says

    def connect_egress(self, request: Request) -> None:
        """Publish to the response channel of a connect request."""
        self.open_egress(request["response_channel"].decode(), request["response_stream_id"])

    def open_egress(self, channel: str, stream_id: int = EGRESS_STREAM_ID) -> None:
        """Publish to a client's egress channel."""
        self.egress = seam.add_publication(self.client, channel, stream_id, exclusive=True)

    def send(self, name: str, **fields: Any) -> None:
        """Send any cluster message on egress."""
        self.send_bytes(codecs.encode("cluster", name, **fields))

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes on egress."""
        assert self.egress is not None
        while True:
            result = seam.offer(self.egress, data)
            if result != ADMIN_ACTION:
                assert result > 0
                return

    def session_event(
        self,
        correlation_id: int,
        code: int,
        detail: str = "",
        *,
        session_id: int | None = None,
        leader: int = 0,
    ) -> None:
        """Send a SessionEvent."""
        self.send(
            "SessionEvent",
            cluster_session_id=self.cluster_session_id if session_id is None else session_id,
            correlation_id=correlation_id,
            leadership_term_id=self.leadership_term_id,
            leader_member_id=leader,
            code=code,
            version=768,
            leader_heartbeat_timeout_ns=self.heartbeat_timeout_ns,
            detail=detail,
        )

    def message(self, payload: bytes, *, timestamp: int = 1000, session_id: int | None = None) -> None:
        """Send a message of the service."""
        header = codecs.encode(
            "cluster",
            "SessionMessageHeader",
            leadership_term_id=self.leadership_term_id,
            cluster_session_id=self.cluster_session_id if session_id is None else session_id,
            timestamp=timestamp,
        )
        self.send_bytes(header + payload)

    def new_leader(self, ingress_endpoints: str, *, session_id: int | None = None) -> None:
        """Say that this member leads now, in its leadership term."""
        self.send(
            "NewLeaderEvent",
            leadership_term_id=self.leadership_term_id,
            cluster_session_id=self.cluster_session_id if session_id is None else session_id,
            leader_member_id=self.member_id,
            ingress_endpoints=ingress_endpoints,
        )

    # What a member does

    def on_SessionConnectRequest(self, request: Request) -> None:  # noqa: N802
        self.connect_egress(request)
        self.session_event(request["correlation_id"], OK, leader=self.member_id)

    def redirect_to(self, leader_member_id: int, ingress_endpoints: str) -> None:
        """Be a follower: redirect each connect request."""

        def hook(request: Request) -> None:
            self.connect_egress(request)
            self.session_event(
                request["correlation_id"], REDIRECT, ingress_endpoints, session_id=-1, leader=leader_member_id
            )
            assert self.egress is not None
            self.egress.close()

        self.hooks["SessionConnectRequest"] = hook

    def refuse(self, code: int, detail: str) -> None:
        """Answer each connect request with an event of that code."""

        def hook(request: Request) -> None:
            self.connect_egress(request)
            self.session_event(request["correlation_id"], code, detail, session_id=-1)

        self.hooks["SessionConnectRequest"] = hook
