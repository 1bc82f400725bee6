"""The archive's side of a control session, played by a test over the memory transport.

It answers requests as upstream's archive does, records and replays, and can be told to misbehave.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from container.api import ADMIN_ACTION
from container.codecs import messages as codecs
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.counters import Counter
from container.transport.fragment_assembler import FragmentAssembler
from container.transport.streams import Publication, Subscription
from tests.limits import LIMIT_S

OK, ERROR, RECORDING_UNKNOWN = range(3)
RECORDING_POSITION_TYPE_ID = 100
UNKNOWN_RECORDING = 5
ARCHIVE_VERSION = 1 << 16 | 12 << 8

Request = dict[str, Any]


@dataclass
class Session:
    """A control session: the archive's publication to one client."""

    id: int
    publication: Publication


@dataclass
class Recording:
    """A recording that is written while its publication is there, and replayed afterwards."""

    id: int
    stream_id: int
    subscription: Subscription
    counter: Counter | None = None
    position: int = 0
    messages: list[bytes] = field(default_factory=list)


class ScriptedArchive:
    """An archive with ``archive_id`` on a driver; it works each time that the driver conducts.

    ``requests`` are the names and fields of what came in. ``hooks`` replace the answer to a request by name:
    a callable that gets the archive, the session (None for a connect) and the request, and answers or does
    not.
    """

    def __init__(
        self,
        driver: MemoryDriver,
        *,
        archive_id: int = 42,
        version: int = ARCHIVE_VERSION,
        control_channel: str = "aeron:ipc",
        control_stream_id: int = 10,
    ) -> None:
        self.driver = driver
        self.client: MemoryClient = driver.connect("archive")
        self.archive_id = archive_id
        self.version = version
        self.requests: list[tuple[str, Request]] = []
        self.hooks: dict[str, Callable[[ScriptedArchive, Session | None, Request], None]] = {}
        self.sessions: dict[int, Session] = {}
        self.recordings: dict[int, Recording] = {}
        self.stop_positions: dict[int, int] = {}  # answers in place of the recordings' own
        self.damaged_at: int | None = None  # the message before which each replay ends, with an error
        self.stalls = False  # each replay stays open there, and there is no error
        self._pending_replays: list[tuple[Publication, Recording, Session, int]] = []
        self._control = seam.add_subscription(self.client, control_channel, control_stream_id)
        driver.add_task(self.work)

    def request_names(self) -> list[str]:
        """Names of the requests in order, without the keep alive that ends each connect."""
        return [name for name, _ in self.requests if name != "KeepAliveRequest"]

    def request(self, name: str) -> Request:
        """The only request of that name."""
        (found,) = [request for known, request in self.requests if known == name]
        return found

    def work(self) -> None:
        """One turn: answers requests, records, replays."""
        for data, _ in seam.poll(self._control, 10):
            name, request = codecs.decode("archive", data)
            assert codecs.encode("archive", name, **request) == data, f"{name} and something behind it: {data!r}"
            self.requests.append((name, request))
            session = self.sessions.get(request.get("control_session_id", 0))
            hook = self.hooks.get(name)
            if hook is not None:
                hook(self, session, request)
            else:
                getattr(self, f"on_{name}")(session, request)
        for recording in self.recordings.values():
            self._record(recording)
        self._replay()

    # Answers

    def open_session(self, request: Request) -> Session:
        """The session of a connect request, without an answer to it."""
        publication = seam.add_publication(
            self.client, request["response_channel"].decode(), request["response_stream_id"], exclusive=True
        )
        session = Session(700 + len(self.sessions), publication)
        self.sessions[session.id] = session
        return session

    def respond(
        self,
        session: Session,
        correlation_id: int,
        relevant_id: int = 0,
        *,
        code: int = OK,
        error_message: str = "",
        control_session_id: int | None = None,
    ) -> None:
        """Send a ControlResponse."""
        self.send(
            session,
            "ControlResponse",
            control_session_id=session.id if control_session_id is None else control_session_id,
            correlation_id=correlation_id,
            relevant_id=relevant_id,
            code=code,
            version=self.version,
            error_message=error_message,
        )

    def send(self, session: Session, name: str, **fields: Any) -> None:
        """Send any message; over a driver it may take a moment until it is taken."""
        data = codecs.encode("archive", name, **fields)
        deadline = time.monotonic() + LIMIT_S
        while (result := seam.offer(session.publication, data)) <= 0:
            assert time.monotonic() < deadline, f"nobody took the archive's {name} within {LIMIT_S:g} s: {result}"
            seam.invoke(self.client)

    def refuse(self, name: str, code: int, text: str) -> None:
        """Answer each request of that name with an error."""

        def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
            answered = archive.open_session(request) if session is None else session
            archive.respond(answered, request["correlation_id"], code, code=ERROR, error_message=text)

        self.hooks[name] = hook

    def ignore(self, name: str) -> None:
        """Never answer requests of that name."""
        self.hooks[name] = lambda archive, session, request: None

    # What an archive does

    def on_AuthConnectRequest(self, session: Session | None, request: Request) -> None:  # noqa: N802
        opened = self.open_session(request)
        self.respond(opened, request["correlation_id"], opened.id)

    def on_ArchiveIdRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        self.respond(session, request["correlation_id"], self.archive_id)

    def on_KeepAliveRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        pass

    def on_CloseSessionRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        del self.sessions[session.id]
        session.publication.close()

    def on_StartRecordingRequest2(self, session: Session, request: Request) -> None:  # noqa: N802
        recording = Recording(
            len(self.recordings),
            request["stream_id"],
            seam.add_subscription(self.client, request["channel"].decode(), request["stream_id"]),
        )
        self.recordings[recording.id] = recording
        self.respond(session, request["correlation_id"], 9000 + recording.id)

    def on_StopPositionRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        recording_id = request["recording_id"]
        recording = self.recordings.get(recording_id)
        if recording_id in self.stop_positions:
            self.respond(session, request["correlation_id"], self.stop_positions[recording_id])
        elif recording is None:
            self._refuse_unknown(session, request)
        else:
            position = -1 if recording.counter is not None else recording.position
            self.respond(session, request["correlation_id"], position)

    def _refuse_unknown(self, session: Session, request: Request) -> None:
        text = f"unknown recording id: {request['recording_id']}"
        self.respond(session, request["correlation_id"], UNKNOWN_RECORDING, code=ERROR, error_message=text)

    def on_ReplayRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        recording = self.recordings.get(request["recording_id"])
        if recording is None:
            self._refuse_unknown(session, request)
            return
        publication = seam.add_publication(
            self.client, request["replay_channel"].decode(), request["replay_stream_id"], exclusive=True
        )
        self._pending_replays.append((publication, recording, session, request["correlation_id"]))
        replay_session_id = 3 << 32 | publication.session_id & 0xFFFF_FFFF
        self.respond(session, request["correlation_id"], replay_session_id)

    def recording_position_key(self, recording_id: int, session_id: int, archive_id: int) -> bytes:
        """Key of a recording position counter, whose last field is unaligned."""
        source = b"aeron:ipc"
        return struct.pack(f"<qii{len(source)}sq", recording_id, session_id, len(source), source, archive_id)

    def _record(self, recording: Recording) -> None:
        image = seam.image(recording.subscription)
        if image is None:
            if recording.counter is not None:
                self.stop(recording)
            return
        if recording.counter is None:
            key = self.recording_position_key(recording.id, image.session_id, self.archive_id)
            recording.counter = seam.add_counter(self.client, RECORDING_POSITION_TYPE_ID, key, "rec-pos")
            self.signal_start(recording)
        collecting = seam.CollectingHandler()
        seam.poll_with(image, FragmentAssembler(collecting), 1000)
        recording.messages += [data for data, _ in collecting.messages]
        recording.position = seam.position(image)
        seam.set_counter(recording.counter, recording.position)

    def signal_start(self, recording: Recording) -> None:
        """Tell every session that a recording began."""
        for session in self.sessions.values():
            self.send(
                session,
                "RecordingSignalEvent",
                control_session_id=session.id,
                correlation_id=-1,
                recording_id=recording.id,
                subscription_id=9000 + recording.id,
                position=0,
                signal=0,
            )

    def stop(self, recording: Recording) -> None:
        """End a recording, as at the end of its publication or at a fault."""
        if recording.counter is not None:
            recording.counter.close()
            recording.subscription.close()
            recording.counter = None

    def _replay(self) -> None:
        for replay in list(self._pending_replays):
            publication, recording, session, correlation_id = replay
            if seam.is_connected(publication):
                self._pending_replays.remove(replay)
                for message in recording.messages[: self.damaged_at]:
                    while seam.offer(publication, message) == ADMIN_ACTION:
                        pass  # the end of a term; the next offer begins another
                if not self.stalls:
                    publication.close()
                if self.damaged_at is not None and not self.stalls:
                    text = f"unexpected end of recording {recording.id}"
                    self.respond(session, correlation_id, 0, code=ERROR, error_message=text)
