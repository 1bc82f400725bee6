"""Cases of bad messages at the ingress of a consensus module: a client that sends whatever it likes, beside good ones.

The rules: nothing crashes, hangs or is raised out of the duty cycle. An unreadable message is reported, and each report
is an error of the container's own, of bounded length. The log has exactly what the messages mean that can be read and
are of an open session, and of clients that may connect; so have the service and the egress of the others. The other
clients are answered in every case. When the bad client is gone, nothing of it is left; the member takes a snapshot, and
after a kill it continues from its files with the same sessions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from container.api import CloseReason
from container.errors import ContainerError
from container.testing.memory import transport_probe as seam
from container.transport.streams import Publication
from tests.control_world import MS
from tests.fuzz.archive_request_cases import Assembler, aligned, check, endless
from tests.fuzz.mutations import CHANNELS, MUTATIONS, Frame, Mutation
from tests.fuzz.wire import Refused, fields_of, message_name, text_of
from tests.fuzz.world import encode
from tests.member_world import HEADER_LENGTH, IPC, MemberWorld, WorldClient

INGRESS_EPISODE_LENGTH = 100
MAX_SESSIONS = 6
TEXT_LENGTH_MAX = 16 * 1024
SESSION_TIMEOUT_MS = 10_000
MARGIN_MS = 1_000
"""A session that was silent for so long less than the timeout may be closed while a case runs."""
LOG_PAYLOAD_MAX = 64 * 1024 // 8 - HEADER_LENGTH
TERM_ID = 0
RESOURCES_MAX = 50
"""Most resources of the consensus module while clients connect that nobody hears."""

_MUTATIONS: dict[str, Mutation] = {**MUTATIONS, endless.__name__: endless}

type Event = tuple[Any, ...]


def send_frames(publication: Publication, frames: Iterable[Frame], assembler: Assembler) -> list[bytes]:
    """Send frames as they are; the messages that they are."""
    log = publication.log  # type: ignore[attr-defined]
    sent = []
    for payload, flags in frames:
        log.append_frame(payload, flags=flags)
        begin = log.tail_position - aligned(len(payload))
        message = assembler.message(payload, flags, begin, log.term_length)
        if message is not None:
            sent.append(message)
    return sent


class IngressEpisode:
    """The cases of one episode, all with one member, all drawn from ``seed`` and ``number``."""

    requests: tuple[str, ...] = (
        "SessionMessageHeader",
        "SessionConnectRequest",
        "SessionKeepAlive",
        "SessionCloseRequest",
        "ChallengeResponse",
        "AdminRequest",
    )
    """The part of the stream that was read."""

    def __init__(self, seed: int, number: int, counts: Counter[str]) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.counts = counts
        self.case = "a member that begins"
        """The present action, for the report of a failure."""
        self._next_stream_id = 30_000
        self._connects: list[tuple[int, str]] = []
        """Response stream and channel of clients that may get a session."""
        self._open: dict[int, int] = {}
        """When each session was last active, in ms of the clock."""
        self._lost: set[int] = set()
        """Sessions whose ingress is gone."""
        self._log: list[Event] = []
        """All events that the log must have, in order."""
        self._seen = 0
        self._expected: list[tuple[Event, bool]] = []
        """The next expected message, and whether it may be missing."""
        self._heard: dict[int, int] = {}
        """By session of a good client: of how many events the client has heard."""
        self._reports = 0
        self._reports_max = 10

    def run(self, cases: int) -> None:
        """Runs the cases. Raises Disagreement, or whatever else went wrong."""
        self._begin()
        for _ in range(cases):
            self._run_case()
        self._end()

    def _begin(self) -> None:
        self.world = MemberWorld(max_concurrent_sessions=MAX_SESSIONS)
        self.good = [self._new_good(is_ipc=is_ipc) for is_ipc in (True, False)]
        self.baseline = self._resources()
        self._new_bad()

    def _now_ms(self) -> int:
        return self.world.clock.now_ns // MS

    def _resources(self) -> list[str]:
        return sorted(type(each).__name__ for each in self.world.client.open_resources)

    def _new_good(self, *, is_ipc: bool) -> WorldClient:
        client = WorldClient(self.world, self._stream_id(), is_ipc=is_ipc)
        self._connects.append((client.response_stream_id, client.response_channel))
        client.connect()
        self._settle()
        check(client.session_id in self._open, f"session {client.session_id} is not in the log")
        return client

    def _stream_id(self) -> int:
        self._next_stream_id += 1
        return self._next_stream_id

    def _new_bad(self) -> None:
        self.bad = WorldClient(self.world, self._stream_id(), is_ipc=self.rng.random() < 0.5)
        self._assembler = Assembler()
        self.world.until(lambda: seam.is_connected(self.bad.ingress))
        self.own: set[int] = set()

    def _bad_is_gone(self) -> None:
        self.bad.close()

    def _is_of_bad(self, response_stream_id: int) -> bool:
        return hasattr(self, "bad") and response_stream_id == self.bad.response_stream_id

    # What is sent.

    def _send(self, frames: Iterable[Frame]) -> list[bytes]:
        return send_frames(self.bad.ingress, frames, self._assembler)

    def _session_id(self, template: str) -> int:
        rng = self.rng
        if rng.random() < 0.3 and self.own:
            return rng.choice(sorted(self.own))
        if rng.random() < 0.3 and template != "SessionCloseRequest":
            return rng.choice(sorted(self._open))
        return rng.choice([0, -1, 1 << 56, -(1 << 63), (1 << 63) - 1, 99, max(self._open, default=0) + 1])

    def _message(self, name: str) -> bytes:
        rng = self.rng
        term = {"leadership_term_id": rng.choice([TERM_ID] * 5 + [1, -1, 2**62])}
        session = {"cluster_session_id": self._session_id(name)}
        match name:
            case "SessionMessageHeader":
                payload = rng.randbytes(rng.choice([0, 1, 100, 1376, 5000, LOG_PAYLOAD_MAX, LOG_PAYLOAD_MAX + 1, 9000]))
                return encode(name, timestamp=rng.choice([0, -1, 2**62]), **term, **session) + payload
            case "SessionConnectRequest":
                return self._connect_request()
            case "ChallengeResponse":
                return encode(name, correlation_id=1, encoded_credentials=rng.randbytes(8), **session)
            case "AdminRequest":
                kind = rng.choice([0, 0, 1, -1, 77])
                return encode(name, correlation_id=rng.randrange(9), request_type=kind, payload=b"x", **term, **session)
            case _:
                return encode(name, **term, **session)

    def _connect_request(self) -> bytes:
        rng, client = self.rng, self.bad
        own = client.response_channel.encode()
        channel = rng.choice([own, own, own, IPC.encode(), b"aeron:udp?endpoint=localhost:1", *CHANNELS])
        return client.connect_request(
            rng.choice([0, 7, -1, -(2**62)]),
            response_stream_id=rng.choice([client.response_stream_id] * 5 + [0, -1, 2**31 - 1]),
            version=rng.choice([0x300] * 6 + [0, 0x1FFFF, 0x1_00_00, -(2**31) + 1, 0xFFFFFF]),
            response_channel=channel,
            encoded_credentials=rng.randbytes(rng.choice([0, 0, 8, 5000])),
            client_info=rng.choice([b"", b"name=bad", b"\xff" * 9, b"x" * 3000]),
        )

    def _run_case(self) -> None:
        rng, world = self.rng, self.world
        name = rng.choice([*self.requests, "SessionMessageHeader"])
        mutation = rng.choice([*_MUTATIONS, *["untimely"] * 8])
        frames = _MUTATIONS[mutation](rng, self._message(name))
        self.case = f"{name}, {mutation}: {[(payload.hex(), flags) for payload, flags in frames][:3]}"[:3000]
        self.counts[mutation] += 1
        reports = sum(self._expect(message) for message in self._send(frames))
        self._reports_max += 2 * len(frames)
        self._settle()
        self._check_reports(reports)
        world.wait(rng.choice([0, 0, 0, 1, 10, 10, 100]) // 10 * 10)
        self._work_well()
        check(len(world.client.open_resources) <= RESOURCES_MAX, f"open: {self._resources()}")
        if rng.random() < 0.02:
            self._leave()

    # What must come of it.

    def _expect(self, message: bytes) -> int:
        """Note what must come of a message, and return how many reports it must make at least."""
        try:
            name = message_name(message)
            if name not in self.requests:
                self.counts["other templates"] += 1
                return 0
            return self._expect_request(name, message)
        except Refused as refused:
            self.counts[f"refused: {refused.kind}"] += 1
            return 1

    def _expect_request(self, name: str, message: bytes) -> int:
        fields, payload = fields_of(name, message), message[HEADER_LENGTH:]
        self.counts[name] += 1
        if name == "SessionConnectRequest":
            channel = text_of(fields["response_channel"])
            text_of(fields["client_info"])
            self._connects.append((fields["response_stream_id"], channel))
            return 0
        session_id = fields["cluster_session_id"]
        if name == "ChallengeResponse":
            return 0
        if fields.get("leadership_term_id") != TERM_ID or session_id not in self._open:
            if fields.get("leadership_term_id") == TERM_ID and session_id > max(self._open, default=0):
                self._expect_of_session(name, session_id, payload, may_be_missing=True)
            return 0
        is_old = self._now_ms() - self._open[session_id] >= SESSION_TIMEOUT_MS - MARGIN_MS
        return self._expect_of_session(name, session_id, payload, may_be_missing=is_old or session_id in self._lost)

    def _expect_of_session(self, name: str, session_id: int, payload: bytes, *, may_be_missing: bool) -> int:
        if name == "SessionMessageHeader":
            if len(payload) > LOG_PAYLOAD_MAX:
                return int(not may_be_missing)
            self._expected.append((("message", session_id, payload), may_be_missing))
        elif name == "SessionCloseRequest":
            self._expected.append((("close", session_id, CloseReason.CLIENT_ACTION), may_be_missing))
            if not may_be_missing:
                del self._open[session_id]
        if session_id in self._open and not may_be_missing and name in ("SessionMessageHeader", "SessionKeepAlive"):
            self._open[session_id] = self._now_ms()
        return 0

    def _settle(self) -> None:
        """Work until everything was read, and compare what the service has been called with."""
        world = self.world
        world.work(6)
        position = world.commit_position
        world.work(6)
        while world.commit_position != position or len(world.service.events) > self._seen:
            position = world.commit_position
            self._take_events()
            world.work(3)
        missing = [event for event, may_be_missing in self._expected if not may_be_missing]
        check(not missing, f"not in the log: {str(missing)[:2000]}")
        self._expected = []

    def _take_events(self) -> None:
        events = self.world.service.events
        while self._seen < len(events):
            event = events[self._seen]
            self._seen += 1
            self._log.append(event)
            self._take(event)

    def _take(self, event: Event) -> None:
        kind, session_id = event[0], event[1] if len(event) > 1 else -1
        if kind == "open":
            check(event[2:] in self._connects, f"a session that nobody asked for: {event}")
            if self._is_of_bad(event[2]):
                self.own.add(session_id)
            self._open[session_id] = self._now_ms()
            self.counts["sessions opened"] += 1
            return
        while self._expected:
            expected, may_be_missing = self._expected[0]
            if not may_be_missing or expected == event:
                break
            del self._expected[0]
        if self._expected and self._expected[0][0] == event:
            del self._expected[0]
            if kind == "close":
                self._open.pop(session_id, None)
                self.own.discard(session_id)
            elif session_id in self._open:
                self._open[session_id] = self._now_ms()
            return
        if kind == "close" and event[2] == CloseReason.TIMEOUT and session_id in self._open:
            silent_ms = self._now_ms() - self._open.pop(session_id)
            check(
                silent_ms >= SESSION_TIMEOUT_MS - MARGIN_MS or session_id in self._lost,
                f"session {session_id} was closed after {silent_ms} ms",
            )
            self.own.discard(session_id)
            self.counts["sessions timed out"] += 1
            return
        check(False, f"{str(event)[:1000]} is in the log; expected {str(self._expected[:1])[:1000]}")

    def _replayed(self) -> list[Event]:
        return [event for event in self.world.service.events if not self._may_differ(event)]

    def _may_differ(self, event: Event) -> bool:
        """Whether the log alone does not say that it comes after a start."""
        return False

    def _take_snapshot(self) -> None:
        count = self.world.agent.snapshot_count
        check(self.world.agent.request_snapshot(), "a snapshot cannot be asked for")
        self.world.until(lambda: self.world.agent.snapshot_count == count + 1)
        self._expected.append((("snapshot",), False))
        self._settle()
        self.counts["snapshots"] += 1

    def _check_reports(self, least: int) -> None:
        """Bounded errors of the container's own, and not more of them than messages ask for."""
        errors = self.world.errors
        for error in errors:
            check(isinstance(error, ContainerError), f"reported: {error!r}")
            check(len(str(error)) <= TEXT_LENGTH_MAX, f"an error of {len(str(error))} bytes")
        check(len(errors) >= least, f"{len(errors)} reports, not {least}: {errors}")
        self._reports += len(errors)
        check(self._reports <= self._reports_max, f"{self._reports} reports, at most {self._reports_max}")
        errors.clear()
        check(not self.world.container_errors, f"the container reports {self.world.container_errors}")
        check(not self.world.archive.texts(), "the archive reports something")

    # The good clients.

    def _work_well(self) -> None:
        for index, client in enumerate(self.good):
            if client.session_id not in self._open:
                self.counts["good sessions that the bad client has closed"] += 1
                self.good[index] = client = self._replace(client, is_ipc=index == 0)
            payload = self.rng.randbytes(self.rng.choice([1, 100, 1376, 3000]))
            client.message(payload)
            self._expected.append((("message", client.session_id, payload), False))
            self._settle()
            self._check_egress(client)

    def _replace(self, client: WorldClient, *, is_ipc: bool) -> WorldClient:
        """Another client in place of one whose session was closed, once no bad one takes its place."""
        client.close()
        for _ in range(0, SESSION_TIMEOUT_MS + MARGIN_MS, 1000):
            self.world.wait(1000, step_ms=100)
            for other in self.good:
                if other.session_id in self._open:
                    other.send(encode("SessionKeepAlive", leadership_term_id=0, cluster_session_id=other.session_id))
                    self._open[other.session_id] = self._now_ms()
            self._settle()
        return self._new_good(is_ipc=is_ipc)

    def _check_egress(self, client: WorldClient) -> None:
        """What it hears is what the service has answered it, and no more of others than their answers to requests."""
        found = []
        for name, fields in client.received():
            if name == "SessionMessageHeader":
                found.append(fields["payload"])
            check(name in ("SessionMessageHeader", "AdminResponse", "SessionEvent"), f"a good client hears {name}")
            check(name != "SessionEvent", f"a good client hears {fields}")
        check(found == self._echoes(client.session_id), "a good client hears something else than its echoes")

    def _echoes(self, session_id: int) -> list[bytes]:
        begin = self._heard.get(session_id, 0)
        self._heard[session_id] = len(self._log)
        return [event[2] for event in self._log[begin:] if event[:2] == ("message", session_id)]

    def _leave(self) -> None:
        """The bad client disappears, and another comes."""
        self._lost |= self.own
        self._bad_is_gone()
        self.world.wait(2 * SESSION_TIMEOUT_MS // 100, step_ms=10)
        self._settle()
        check(not self.own, f"sessions of a client that is gone: {self.own}")
        self.counts["bad clients gone"] += 1
        self._new_bad()

    def _end(self) -> None:
        """Nothing is left of the bad client; the member takes a snapshot, and continues from its files after a kill."""
        self.case = "the end of the episode"
        self._leave()
        self._bad_is_gone()
        for _ in range(SESSION_TIMEOUT_MS // 1000 + 2):
            self.world.wait(1000, step_ms=100)
            self._work_well()
        self._check_reports(0)
        check(set(self._open) == {each.session_id for each in self.good}, f"open sessions: {self._open}")
        check(self._resources() == self.baseline, f"resources: {self._resources()}, not {self.baseline}")
        if self.rng.random() < 0.5:
            self._take_snapshot()
        last = max((index for index, event in enumerate(self._log) if event == ("snapshot",)), default=-1)
        self.world.restart()
        expected = [*self._log[last + 1 :], *[("close", each, CloseReason.TIMEOUT) for each in sorted(self._open)]]
        expected = [event for event in expected if not self._may_differ(event)]
        self.world.until(lambda: len(self._replayed()) >= len(expected))
        self.world.work(10)
        check(self._replayed() == expected, "a replay of the log gives something else")
        self._check_reports(0)
        self.counts["logs replayed"] += 1
