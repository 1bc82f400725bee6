"""Cases of bad requests to an archive: a client that sends whatever it likes, beside one that works as it should.

The rules: nothing crashes, hangs or is raised; a request that can be read and that its sender may send is answered; an
unreadable request is reported, and so is one for an unknown session; each report is an error of the container's own, of
bounded length. The other client is answered in every case, what it publishes is recorded, and what is replayed to it is
what it has published. Nothing is written outside the archive's directory. When the bad client is gone nothing of it is
left, and the archive can be closed and opened again.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

from container.archive import error_codes
from container.codecs import messages as codecs
from container.errors import ContainerError
from container.testing.memory import transport_probe as seam
from tests.archive_streams import payloads
from tests.archive_world import (
    ARCHIVE_ID,
    FIRST_SESSION_ID,
    IPC,
    NETWORK_CHANNEL,
    ArchiveRequests,
    ArchiveWorld,
    Stream,
    Subscriber,
)
from tests.control_world import CONTROL_CHANNEL, ERROR, MS, OK, VERSION
from tests.fuzz import mutations as bytewise
from tests.fuzz.archive_wire import CONNECTS, REQUESTS, Request, read_request, width
from tests.fuzz.mutations import BEGIN, CHANNELS, END, UNFRAGMENTED, Frame, Mutation, whole
from tests.fuzz.wire import Refused
from tests.fuzz.world import Disagreement
from tests.golden.vectors import HEADER, load

ARCHIVE_REQUEST_EPISODE_LENGTH = 100
SEGMENT_LENGTH = 64 * 1024
TEXT_LENGTH_MAX = 16 * 1024
CONNECT_TIMEOUT_MS = 5000
SESSIONS_MAX = 10_000
"""More than an episode begins."""
FRAGMENT_LIMIT = 10
"""Fragments that the archive reads in one turn."""
NULL_INT64 = -(2**63)
GOOD_CORRELATION_ID = -(2**62)
CONTROL_SESSIONS = 102
"""Type of the counter of control sessions."""
FILES = re.compile(r"archive\.(catalog|positions|migration)|\d+-\d+\.rec", re.ASCII)

_LONG = "x" * 5000
_CHANNELS = [
    *[b"aeron:ipc"] * 6,
    IPC.encode(),
    CONTROL_CHANNEL.encode(),
    NETWORK_CHANNEL.encode(),
    *CHANNELS,
    b"aeron:ipc?alias=../../../../etc/passwd",
    b"aeron:ipc?alias=/etc/passwd",
    b"aeron:udp?endpoint=../../archive.catalog:1",
    b"aeron:udp?endpoint=localhost:8020|alias=%2e%2e%2f",
    b"aeron:udp?endpoint=localhost:8020|control-mode=response",
    b"aeron:udp?endpoint=localhost:8020|control-mode=manual|session-id=tag:7",
    b"aeron:udp?endpoint=[::1]:8020|interface=[::1]/128|ttl=255",
    b"aeron:ipc?session-id=-2147483648|tags=1,2",
    b"aeron:ipc?session-id=2147483648",
    b"aeron:ipc?term-length=64k|mtu=64|init-term-id=2147483647|term-id=-2147483648|term-offset=65536",
    b"aeron:ipc?term-length=1g",
    b"aeron:ipc?term-length=9999999999999999999g",
    b"aeron:ipc?linger=-1",
    b"aeron:ipc?linger=9223372036854775807s",
    b"aeron:ipc?so-sndbuf=99999999999",
    b"aeron:ipc?eos=maybe|sparse=no|tether=1",
    b"aeron:ipc?x=1|x=2|x=3",
    b"aeron:ipc?alias=a\nb",
    b"aeron:ipc?alias=%s%n%x{0}{}",
    f"aeron:udp?endpoint={_LONG}".encode(),
    f"aeron:ipc?{_LONG}={_LONG}|{_LONG}".encode(),
    f"{_LONG}".encode(),
]
_NUMBERS = [0, 1, -1, -2, 2, 31, 32, 33, 1 << 20, 2**31 - 1, -(2**31)]
_LONG_NUMBERS = [*_NUMBERS, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**63 - 32, -(2**63) + 1, -(2**63)]
_POSITIONS = [0, -1, -2, 32, 64, 1024, 4096, 4128, SEGMENT_LENGTH - 32, SEGMENT_LENGTH, SEGMENT_LENGTH + 32]
_POSITIONS += [2 * SEGMENT_LENGTH, 3 * SEGMENT_LENGTH, 33, *_LONG_NUMBERS]
_FOREIGN = [vector.encoded for golden in [load("cluster"), load("mark")] for vector in golden.vectors]
_OWN = [vector.encoded for vector in load("archive").vectors]
_TEMPLATES = [0, 1, *range(2, 70), *range(100, 108), 32767, 32768, 65535]


def check(condition: object, text: str) -> None:
    """Raises Disagreement when something does not hold."""
    if not condition:
        raise Disagreement(text)


def aligned(length: int) -> int:
    """How much of a log a frame with a payload of that length takes."""
    return (32 + length + 31) // 32 * 32


# How a good request becomes a bad one.


def refielded(rng: random.Random, message: bytes) -> list[Frame]:
    """Fields with values at the edge of their types, or that an enum does not have."""
    layout = next(each for each in REQUESTS.values() if each.template_id == HEADER.unpack_from(message)[1])
    damaged = bytearray(message)
    slots = list(layout.fields.values())
    for slot in rng.sample(slots, min(len(slots), rng.randint(1, 3))):
        begin, length = HEADER.size + slot.offset, width(slot)
        value = rng.choice(bytewise.BOUNDARIES[length])
        damaged[begin : begin + length] = value.to_bytes(length, "little", signed=True)
    return whole(bytes(damaged))


def headed(rng: random.Random, message: bytes) -> list[Frame]:
    """Another block length, template, schema or version."""
    block_length, template_id, schema_id, version = HEADER.unpack_from(message)
    match rng.randrange(4):
        case 0:
            block_length = rng.choice([0, 1, 7, 8, 16, 24, block_length - 1, block_length + 1, 1000, 65535])
        case 1:
            template_id = rng.choice(_TEMPLATES)
        case 2:
            schema_id = rng.choice([0, 100, 102, 111, 65535])
        case _:
            version = rng.choice([0, 1, 4, 7, 9, 11, 12, 14, 99, 65535])
    return whole(HEADER.pack(block_length, template_id, schema_id, version) + message[HEADER.size :])


def foreign(rng: random.Random, _message: bytes) -> list[Frame]:
    """A message of another schema, or one of the archive's that has not been meant for this session."""
    return whole(rng.choice(rng.choice([_FOREIGN, _OWN])))


def endless(rng: random.Random, message: bytes) -> list[Frame]:
    """A message of many pieces without an end, or with one."""
    piece = message[:1000].ljust(1000, b"\1")
    frames = [(message[:1000], BEGIN)] + [(piece, 0)] * rng.randrange(1, 20)
    return [*frames, (b"", END)] if rng.random() < 0.5 else frames


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        bytewise.truncated,
        bytewise.flipped,
        bytewise.noise,
        headed,
        bytewise.versioned,
        bytewise.overgrown,
        refielded,
        bytewise.rechannelled,
        bytewise.fragmented,
        foreign,
        endless,
        bytewise.empty,
        bytewise.extended,
    )
}
STRANGE = "strange values"
"""A request that is well formed, and asks for whatever can be asked for."""
STRANGE_SHARE = 0.5


class Assembler:
    """Puts fragments together, as upstream's assembler does: those of a message follow each other, in one term."""

    def __init__(self) -> None:
        self._parts: list[bytes] | None = None
        self._next = (0, 0)

    def message(self, payload: bytes, flags: int, begin: int, term_length: int) -> bytes | None:
        """The message that the frame at position ``begin`` ends, None when it ends none."""
        term, offset = divmod(begin, term_length)
        if flags & UNFRAGMENTED == UNFRAGMENTED:
            return payload
        if flags & BEGIN:
            self._parts = []
        elif self._parts is None or (term, offset) != self._next:
            self._parts = None
            return None
        self._parts.append(payload)
        if not flags & END:
            self._next = term, offset + aligned(len(payload))
            return None
        message, self._parts = b"".join(self._parts), None
        return message


class BadClient:
    """A client that sends whatever it likes, and knows what must come of it."""

    def __init__(self, world: ArchiveWorld, rng: random.Random) -> None:
        self.rng = rng
        self.requests = ArchiveRequests(world, response_stream_id=rng.choice([20, 21]))
        self.requests.open()
        self.assembler = Assembler()
        self.unanswered: dict[int, str] = {}
        """Requests without an answer yet, by their correlation ids."""
        self.may_end = False
        """Whether the archive may end the session: it was asked to, or another session on the same stream fails."""
        self.is_closed = False
        self.learnt: list[int] = []
        """Ids that were told in answers: of subscriptions, replays, replications."""

    @property
    def session_id(self) -> int:
        return self.requests.control_session_id

    def send(self, frames: list[Frame]) -> list[bytes]:
        """Send frames as they are; the messages that they are."""
        log = self.requests.publication.log  # type: ignore[attr-defined]
        sent = []
        for payload, flags in frames:
            log.append_frame(payload, flags=flags)
            begin = log.tail_position - aligned(len(payload))
            message = self.assembler.message(payload, flags, begin, log.term_length)
            if message is not None:
                sent.append(message)
        return sent

    def ask_for_id(self) -> int:
        """A request that is as good as any; its correlation id."""
        fields = {"control_session_id": self.session_id, "correlation_id": GOOD_CORRELATION_ID}
        message = codecs.encode("archive", "ArchiveIdRequest", **fields)
        if self.requests.offer(message) < 0:  # at the end of a term
            check(self.requests.offer(message) > 0, "a good request cannot be sent")
        self.unanswered[GOOD_CORRELATION_ID] = "ArchiveIdRequest"
        return GOOD_CORRELATION_ID

    def read(self) -> None:
        """Take what has come."""
        for name, fields in self.requests.take():
            if name in ("ControlResponse", "RecordingDescriptor", "RecordingSubscriptionDescriptor"):
                correlation_id = fields["correlation_id"]  # None is how the codecs read the null value
                self.unanswered.pop(NULL_INT64 if correlation_id is None else correlation_id, None)
            if name == "ControlResponse":
                text = fields["error_message"]
                check(len(text) <= TEXT_LENGTH_MAX, f"an error of {len(text)} bytes: {text[:200]!r}")
                if fields["code"] == OK:
                    self.learnt = [*self.learnt, fields["relevant_id"]][-20:]


class ArchiveRequestEpisode:
    """The cases of one episode, all with one archive, all drawn from ``seed`` and ``number``."""

    def __init__(self, seed: int, number: int, counts: Counter[str]) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.counts = counts
        self.case = "an archive that begins"
        """The present action, for the report of a failure."""
        self._next_stream_id = 5000

    def run(self, cases: int) -> None:
        """Runs the cases. Raises Disagreement, or whatever else went wrong."""
        self._begin()
        for _ in range(cases):
            self._run_case()
        self._end()

    def _begin(self) -> None:
        rng = self.rng
        self.world = ArchiveWorld(
            segment_file_length=SEGMENT_LENGTH,
            max_concurrent_recordings=10_000,
            session_liveness_check_interval_ns=100 * MS,
            file_sync_level=rng.choice([0, 1]),
        )
        outside = self.world.storage.open_file("/outside", 2)
        outside.write(b"not the archive's", 0)
        outside.close()
        self.good = self.world.connect()
        self._connects = 0
        for stream_id, length in ((1001, 150_000), (1002, 3000)):
            stream = self.world.stream(stream_id)
            self.good.start_recording(stream_id)
            self.good.signal("START")
            stream.fill(length)
            stream.close()
            self.good.signal("STOP")
        self.streams = [self.world.stream(1003), self.world.stream(1004)]
        self.good.start_recording(1003)
        self._begin_recording()
        self.world.texts()
        self.bad = BadClient(self.world, rng)

    # The good client.

    def _begin_recording(self) -> None:
        """A new stream and its recording, as nobody else is to touch it yet."""
        stream_id = self._next_stream_id
        self._next_stream_id += 1
        channel = f"{IPC}|session-id={stream_id}"
        self.good.signals()
        self.stream: Stream = self.world.stream(stream_id, channel)
        self.good.start_recording(stream_id, channel)
        self.recording_id = self.good.signal("START")
        self.published: list[bytes] = []

    def _work_well(self) -> None:
        """The good client's action after each case."""
        world, good = self.world, self.good
        check(good.ok("ArchiveIdRequest") == ARCHIVE_ID, "the archive's id is another")
        message = self.rng.randbytes(self.rng.choice([0, 1, 100, 1376, 3000]))
        if not world.store.is_active(self.recording_id):
            # The other client has stopped or purged it: it only had to ask.
            self.counts["recordings that the bad client has ended"] += 1
            self.stream.close()
            self._begin_recording()
        self.stream.send(message)
        self.published.append(message)
        world.work(3)
        position = good.ok("RecordingPositionRequest", recording_id=self.recording_id)
        check(position == self.stream.position, f"recorded up to {position}, not {self.stream.position}")

    def _replay(self) -> None:
        """Replay what is recorded of the good client's stream."""
        world, good = self.world, self.good
        world.work(3)
        if not world.store.is_active(self.recording_id):
            return
        start = world.store.catalog.start_position(self.recording_id)
        stream_id = self._next_stream_id
        self._next_stream_id += 1
        length = world.store.recorded_position(self.recording_id) - start
        if length == 0:
            return
        subscriber = Subscriber(world, stream_id)
        answer = good.ask(
            "ReplayRequest", **good.replay_fields(self.recording_id, start, length, replay_stream_id=stream_id)
        )
        if answer["code"] == ERROR and answer["relevant_id"] == error_codes.MAX_REPLAYS:
            return
        check(answer["code"] == OK, f"a replay is refused: {answer}")
        world.until(subscriber.has_ended)
        parts = payloads(subscriber.content)
        replayed = b"".join(part[1:] for part in parts)
        published = b"".join(self.published)
        check(
            published.endswith(replayed) and (start > 0 or published == replayed),
            f"a replay of {len(replayed)} bytes is not what was published, {len(published)} bytes",
        )
        subscriber.client.close()
        self.counts["replays of the good client"] += 1

    # The bad client.

    def _run_case(self) -> None:
        rng, world, bad = self.rng, self.world, self.bad
        name = rng.choice(list(REQUESTS))
        good = self._encoded(name)
        mutation = STRANGE if rng.random() < STRANGE_SHARE else rng.choice(list(MUTATIONS))
        frames = whole(good) if mutation == STRANGE else MUTATIONS[mutation](rng, good)
        self.case = f"{name}, {mutation}: {[(payload.hex(), flags) for payload, flags in frames][:3]}"[:3000]
        self.counts[f"{mutation}"] += 1
        expected_reports = 0
        for message in bad.send(frames):
            expected_reports += self._expect(message)
        world.work(len(frames) // FRAGMENT_LIMIT + rng.choice([2, 3, 3, 10]))
        self._check_reports(expected_reports)
        if rng.random() < 0.1:
            # Nobody may record it at the moment, and then it is not connected.
            seam.offer(rng.choice(self.streams).publication, b"of another stream")
        world.wait(rng.choice([0, 0, 0, 1, 10, 10, 100]), step_ms=10)
        bad.read()
        self._check_session()
        self._work_well()
        if rng.random() < 0.05:
            self._replay()
        self._check_reports(0)
        names = world.storage.list_directory("/")
        check(names == ["archive", "outside"], f"files outside: {names}")

    def _expect(self, message: bytes) -> int:
        """Note what must come of a message, and return how many reports it must make at least."""
        bad = self.bad
        try:
            request = read_request(message)
        except Refused as refused:
            self.counts[f"refused: {refused.kind}"] += 1
            return 1
        if request is None:
            self.counts["unknown templates"] += 1
            return 0
        self.counts[request.name] += 1
        if request.name in CONNECTS:
            bad.may_end = True
            return 0
        session_id = request.fields["control_session_id"]
        if session_id < FIRST_SESSION_ID or session_id > FIRST_SESSION_ID + SESSIONS_MAX:
            return int(request.name != "CloseSessionRequest" and not self._is_token(request))
        if bad.is_closed or session_id != bad.session_id:
            # The bad client may have begun another session, by a connect request that was good enough.
            return 0
        if request.name == "CloseSessionRequest":
            bad.may_end = bad.is_closed = True
        elif request.is_answered:
            bad.unanswered[request.fields["correlation_id"]] = self.case
        return 0

    def _is_token(self, request: Request) -> bool:
        return request.fields.get("replay_token", -1) != -1

    def _check_reports(self, least: int) -> None:
        errors = list(self.world.errors)
        self.world.errors.clear()
        for error in errors:
            check(isinstance(error, ContainerError), f"reported: {error!r}")
            text = str(error)
            check(len(text) <= TEXT_LENGTH_MAX, f"a report of {len(text)} characters: {text[:300]}")
        check(len(errors) >= least, f"{len(errors)} reports, not {least}: {[str(each) for each in errors]}")

    def _check_session(self) -> None:
        """The bad client's session lives, unless it was asked to end, and answers within some time."""
        bad, world = self.bad, self.world
        is_alive = seam.is_connected(bad.requests.publication) and not bad.is_closed
        if is_alive:
            correlation_id = bad.ask_for_id()
            for _ in range(20):
                world.work()
                bad.read()
                if correlation_id not in bad.unanswered:
                    break
            is_alive = correlation_id not in bad.unanswered
        check(is_alive or bad.may_end, "the session has ended")
        if not is_alive or self.rng.random() < 0.01:
            if is_alive:
                self._check_answers()
            self._replace()

    def _check_answers(self) -> None:
        """Each request of the bad client is answered, at the latest when its time is over."""
        bad, world = self.bad, self.world
        for _ in range(2 * CONNECT_TIMEOUT_MS // 100 + 10):
            if not bad.unanswered:
                return
            world.wait(100, step_ms=50)
            bad.read()
            self.good.signals()
        is_alive = seam.is_connected(bad.requests.publication)
        check(not is_alive, f"not answered: {list(bad.unanswered.items())[:3]}")
        check(bad.may_end, "the session has ended")

    def _replace(self) -> None:
        """Another bad client; the one before vanishes, or closes."""
        if self.rng.random() < 0.5:
            self.bad.requests.vanish()
        else:
            self.bad.requests.client.close()
        self.world.work(3)
        self._connects += 1
        self.counts["bad clients"] += 1
        self.bad = BadClient(self.world, self.rng)

    def _encoded(self, name: str) -> bytes:
        layout, fields = REQUESTS[name], {}
        for field in layout.fields:
            fields[field] = self._value(field)
        texts: dict[str, Any] = {field: self._text(field) for field in layout.var}
        if name in CONNECTS and self.rng.random() < 0.5:
            fields["version"] = VERSION
            texts["response_channel"] = self.bad.requests.response_channel.encode()
        try:
            return codecs.encode("archive", name, **fields, **texts)
        except ContainerError:  # a text that is longer than any may be, or an edge that the type does not have
            return codecs.encode("archive", name, **dict.fromkeys(fields, 1), **dict.fromkeys(texts, b"aeron:ipc"))

    def _value(self, field: str) -> int:
        rng, bad = self.rng, self.bad
        match field:
            case "control_session_id":
                others = [-1, 0, self.good.control_session_id, bad.session_id + 1, 2**63 - 1]
                return bad.session_id if rng.random() < 0.9 else rng.choice(others)
            case "correlation_id":
                return rng.randrange(2**61) if rng.random() < 0.95 else rng.choice(_LONG_NUMBERS)
            case "source_location" | "auto_stop" | "apply_stream_id":
                return rng.choice([0, 1])
            case "version":
                return rng.choice([VERSION, 0, -1, 1 << 24, 2**31 - 1])
            case "stream_id" | "replay_stream_id" | "response_stream_id" | "src_control_stream_id":
                return rng.choice([1001, 1002, 1003, 1004, 10, 20, 3000, self.stream.publication.stream_id, *_NUMBERS])
            case "subscription_id" | "replay_session_id" | "replication_id":
                return rng.choice([*bad.learnt, -1]) if rng.random() < 0.8 else rng.choice(_LONG_NUMBERS)
            case "replay_token":
                return rng.choice([-1, -1, -1, *bad.learnt, 9001])
            case "limit_counter_id":
                return int(rng.choice([*range(40), *_NUMBERS]))
            case "file_io_max_length":
                return rng.choice([-1, -1, 0, 1408, 4096, *_NUMBERS])
            case "record_count" | "subscription_count" | "pseudo_index":
                return rng.choice([0, 1, 5, *_NUMBERS])
            case "session_id" | "replication_session_id":
                return rng.choice([-1, self.stream.publication.session_id, *_NUMBERS])
        if field.endswith("recording_id"):
            ids = [0, 0, 1, 1, 2, self.recording_id - 1, self.recording_id + 1, -1]
            if rng.random() < 0.02:
                ids = [self.recording_id]
            return rng.choice(ids if rng.random() < 0.9 else _LONG_NUMBERS)
        if field.endswith("position") or field == "length":
            return rng.choice(_POSITIONS)
        return rng.choice(_LONG_NUMBERS)

    def _text(self, field: str) -> bytes:
        rng = self.rng
        if field == "encoded_credentials":
            return rng.randbytes(rng.choice([0, 1, 100, 5000]))
        if field == "client_info":
            return rng.choice([b"", b"name=bad", b"\xff" * 50, b"%s\n\0", _LONG.encode()])
        if field in ("live_destination", "replication_channel", "src_response_channel") and rng.random() < 0.5:
            return b""
        return rng.choice(_CHANNELS)

    # The end.

    def _end(self) -> None:
        self.case = "the end of an episode"
        world = self.world
        self._check_answers()
        self.bad.requests.vanish()
        world.wait(3 * CONNECT_TIMEOUT_MS, step_ms=500)
        self._read_good()
        for _ in range(100):
            if world.counter_value(CONTROL_SESSIONS) == 1:
                break
            world.wait(1000, step_ms=500)
            self._read_good()
        self._check_reports(0)
        self._work_well()
        self._replay()
        sessions = world.counter_value(CONTROL_SESSIONS)
        check(sessions == 1, f"{sessions} sessions are left")
        position = self.stream.position
        is_active = world.store.is_active(self.recording_id)
        world.close()
        self._check_reports(0)
        world.open()
        self._check_reports(0)
        if is_active:
            found = world.store.recorded_position(self.recording_id)
            check(found == position, f"after a start the recording ends at {found}, not {position}")
        for recording_id in world.store.catalog.recording_ids():
            stop = world.store.catalog.stop_position(recording_id)
            check(stop >= 0, f"recording {recording_id} has stop position {stop}")
        names = world.storage.list_directory("/archive")
        strange = [name for name in names if not FILES.fullmatch(name)]
        check(not strange, f"files that an archive does not have: {strange}")
        [outside] = [content for path, content in world.disk.contents().items() if path == "/outside"]
        check(outside == b"not the archive's", "a file outside was written to")
        world.close()

    def _read_good(self) -> None:
        self.good.signals()
