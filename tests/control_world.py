"""The control side of an archive over the memory transport, with a conductor of a few lines, and clients that send raw
messages; time passes when a test says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

from container.archive.authentication import AcceptAll, AllowAll, Authenticator, AuthorisationService
from container.archive.channel_texts import parse_channel
from container.archive.channel_texts import response_channel as derived_response_channel
from container.archive.server.sessions.control_adapter import ControlAdapter
from container.archive.server.sessions.control_handler import ControlHandler, ControlRequest
from container.archive.server.sessions.control_session import SESSION_CLOSED, ControlSession
from container.codecs import messages as codecs
from container.errors import ArchiveEvent
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver
from container.transport.streams import Image, Publication
from container.transport.transport_seam import Client

MS = 1_000_000
CONTROL_CHANNEL = "aeron:ipc?term-length=64k"
CONTROL_STREAM_ID, RESPONSE_STREAM_ID = 10, 20
CONNECT_TIMEOUT_MS, LIVENESS_INTERVAL_MS, RESEND_INTERVAL_MS = 5000, 1000, 200
VERSION = 1 << 16 | 12 << 8
ARCHIVE_ID = 42
FIRST_SESSION_ID = 700
OK, ERROR, RECORDING_UNKNOWN, SUBSCRIPTION_UNKNOWN = range(4)

type Message = tuple[str, dict[str, Any]]
type Answer = Callable[..., object]


class ControlWorld:
    """An archive's control sessions, of which each request is answered with OK and its correlation id."""

    def __init__(
        self,
        *,
        authenticator: Authenticator | None = None,
        authorisation_service: AuthorisationService | None = None,
        window: int = 0,
    ) -> None:
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock, publication_window=window)
        self.client: MemoryClient = self.driver.connect("archive")
        self.begin(self.client, authenticator, authorisation_service)

    def begin(
        self,
        client: Client,
        authenticator: Authenticator | None = None,
        authorisation_service: AuthorisationService | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        """Listen, with a client of whatever driver."""
        self.seam_client = client
        self.connect_timeout_ms = connect_timeout_ms
        self.authenticator = AcceptAll() if authenticator is None else authenticator
        self.authorisation_service = AllowAll() if authorisation_service is None else authorisation_service
        self.errors: list[Exception] = []
        self.calls: list[tuple[str, Any]] = []
        """All that the adapter handed over: the method and its first argument."""
        self.answers: dict[str, Answer] = {}
        """Actions for a request in place of OK, by method: called with session, request and the other arguments."""
        self.sessions: dict[int, ControlSession] = {}
        self.ended: list[ControlSession] = []
        self.next_session_id = FIRST_SESSION_ID
        subscription = seam.add_subscription(client, CONTROL_CHANNEL, CONTROL_STREAM_ID)
        self.adapter = ControlAdapter(subscription, cast(ControlHandler, self), self.errors.append)

    def connect(self, **settings: Any) -> RawClient:
        return RawClient(self, **settings)

    def work(self, turns: int = 1) -> None:
        """Turns of the duty cycle."""
        for _ in range(turns):
            seam.invoke(self.seam_client)
            self.adapter.poll()
            for session in list(self.sessions.values()):
                session.do_work()
                if session.is_done:
                    del self.sessions[session.session_id]
                    session.close()
                    self.ended.append(session)

    def wait(self, duration_ms: int, step_ms: int = 10) -> None:
        """Let time pass, with a turn each step."""
        for _ in range(duration_ms // step_ms):
            self.clock.advance(step_ms * MS)
            self.work()

    def texts(self) -> list[str]:
        """The texts of what was reported, which is forgotten."""
        texts = [str(error) for error in self.errors]
        self.errors.clear()
        return texts

    def counters(self) -> list[tuple[int, str]]:
        """Value and label of the counters of sessions."""
        counters = seam.counters(self.seam_client)
        records = (seam.counter_record(counters, each) for each in range(seam.counter_capacity(counters)))
        used = itertools.takewhile(lambda record: record["state"] != 0, records)
        return [(each["value"], each["label"]) for each in used if (each["state"], each["type_id"]) == (1, 113)]

    # The conductor

    def on_connect(
        self,
        image: Image,
        *,
        correlation_id: int,
        response_stream_id: int,
        version: int = 0,
        response_channel: str,
        encoded_credentials: bytes = b"",
        client_info: str = "",
    ) -> None:
        self.calls.append(("on_connect", image))
        session = ControlSession(
            self.seam_client,
            image,
            self.authenticator,
            self.authorisation_service,
            self.errors.append,
            session_id=self.next_session_id,
            archive_id=ARCHIVE_ID,
            correlation_id=correlation_id,
            version=version,
            response_channel=derived_response_channel(
                parse_channel(response_channel),
                term_length=64 * 1024,
                mtu_length=1408,
                is_sparse=True,
                image_correlation_id=image.correlation_id,
            ),
            response_stream_id=response_stream_id,
            encoded_credentials=encoded_credentials,
            client_info=client_info,
            connect_timeout_ns=self.connect_timeout_ms * MS,
            liveness_check_interval_ns=LIVENESS_INTERVAL_MS * MS,
        )
        self.sessions[session.session_id] = session
        self.next_session_id += 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda request, **fields: self._on_request(name, request, fields)

    def _on_request(self, name: str, request: ControlRequest, fields: dict[str, Any]) -> None:
        self.calls.append((name, request))
        session = self.sessions.get(request.control_session_id)
        if session is None:
            self.errors.append(ArchiveEvent(f"control request for unknown session: {request.control_session_id}"))
        elif name == "on_close_session":
            session.abort(SESSION_CLOSED)
        elif name == "on_challenge_response":
            session.on_challenge_response(request, **fields)
        elif session.accept_request(request) and name != "on_keep_alive":
            if name in self.answers:
                self.answers[name](session, request, **fields)
            else:
                session.send_ok(request.correlation_id, ARCHIVE_ID if name == "on_archive_id" else 0)


class RawClient:
    """A client of an archive: a request publication and a response subscription, and no logic."""

    def __init__(
        self,
        world: ControlWorld,
        *,
        session_id: int | None = None,
        response_stream_id: int = RESPONSE_STREAM_ID,
        shares: RawClient | None = None,
        response_query: str = "",
        channel: str = CONTROL_CHANNEL,
        response_channel: str = "",
    ) -> None:
        self.world = world
        self.client: MemoryClient = world.driver.connect("client")
        query = "" if session_id is None else f"|session-id={session_id}"
        self.publication: Publication = (
            seam.add_publication(self.client, f"{channel}{query}", CONTROL_STREAM_ID, exclusive=True)
            if shares is None
            else shares.publication
        )
        own = f"aeron:ipc?session-id={5000 + self.publication.session_id % 100}{response_query}"
        self.response_channel = response_channel or own
        self.response_stream_id = response_stream_id
        self.responses = seam.add_subscription(self.client, self.response_channel, response_stream_id)
        self.control_session_id = -1
        self.next_correlation_id = 1000
        world.work()

    def offer(self, data: bytes) -> int:
        return seam.offer(self.publication, data)

    def send(self, name: str, **fields: Any) -> int:
        """Send a request of the session; its correlation id."""
        fields.setdefault("correlation_id", self.next_correlation_id)
        fields.setdefault("control_session_id", self.control_session_id)
        self.next_correlation_id += 1
        if name == "CloseSessionRequest":
            del fields["correlation_id"]
        if name in ("AuthConnectRequest", "ConnectRequest"):
            del fields["control_session_id"]
        assert self.offer(codecs.encode("archive", name, **fields)) > 0
        return int(fields.get("correlation_id", -1))

    def request_session(self, name: str = "AuthConnectRequest", **fields: Any) -> int:
        """Send a connect request; its correlation id."""
        if name == "AuthConnectRequest":
            fields = {"encoded_credentials": b"", "client_info": "name=raw"} | fields
        return self.send(
            name,
            **{
                "response_stream_id": self.response_stream_id,
                "version": VERSION,
                "response_channel": self.response_channel,
            }
            | fields,
        )

    def open(self, **fields: Any) -> ControlSession:
        """Connect, up to the keep-alive: the archive's side of the session."""
        correlation_id = self.request_session(**fields)
        self.world.work(5)
        [(name, response)] = self.received()
        assert (name, response["code"], response["correlation_id"]) == ("ControlResponse", OK, correlation_id)
        self.control_session_id = response["relevant_id"]
        self.send("KeepAliveRequest", correlation_id=-1)
        self.world.work()
        session = self.world.sessions[self.control_session_id]
        assert session.state == "ACTIVE"
        return session

    def raw(self, limit: int = 10_000) -> list[bytes]:
        """The received messages, as bytes."""
        seam.invoke(self.client)
        return [data for data, _ in seam.poll(self.responses, limit)]

    def received(self, limit: int = 10_000) -> list[Message]:
        """The received messages; at most ``limit``."""
        return [codecs.decode("archive", data) for data in self.raw(limit)]

    def errors(self) -> list[tuple[int, int, str]]:
        """Correlation id, code and text of the errors that came."""
        return [
            (each["correlation_id"], each["relevant_id"], each["error_message"].decode())
            for name, each in self.received()
            if name == "ControlResponse" and each["code"] == ERROR
        ]

    def is_rejected(self) -> bool:
        """Whether the archive has given up the image of its requests."""
        self.world.work()
        return not seam.is_connected(self.publication)

    def vanish(self) -> None:
        """Die, as the driver sees it."""
        self.client.sever()
        self.client.expire()
