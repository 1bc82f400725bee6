"""What a simulated node must have on its disk and in its services, told from the log and read without its own code.

The service's state is a function of the log, :func:`apply`. What the service itself does is in node_world.py.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from container.storage.storage_seam import READ_ONLY, Storage
from tests.sim.archive_oracle import TERM_LENGTH, Entry, Violation, read_catalog

ARCHIVE_DIR, CLUSTER_DIR = "/node/archive", "/node/cluster"
LOG_STREAM_ID = 100
TIMERS_PER_NUMBER = 10
CANCEL_LIMIT_MS = 1_000
"""A timer may fire for so long after its end was asked for in the log, as services are behind the log."""
SNAPSHOT_ACTION = 2
_FRAME = struct.Struct("<iBBHiiiiq")
_MESSAGE = struct.Struct("<HHHH")
_DATA = 1
_BEGIN, _END = 0x80, 0x40
_ENTRY = struct.Struct("<qqqqqiI12x4x")
_TERM, _SNAPSHOT = 0, 1

type Event = tuple[object, ...]


class State(msgspec.Struct):
    """All that a service knows."""

    events: int = 0
    digest: int = 0
    applied: list[int] = []
    """Numbers of the clients' messages, in the order of the log."""
    sessions: dict[int, int] = {}
    timers: dict[int, int] = {}
    """Deadlines of those that are to come, by correlation id."""
    offered: int = 0
    """Messages that each service has offered."""
    received: list[int] = []
    """Messages of each service that were in the log."""


def apply(state: State, event: Event, services: int) -> list[tuple[str, int, int]]:
    """Take an event of the log into a state; what each service is to do then: (what, number, argument)."""
    state.events += 1
    state.digest = zlib.crc32(repr(event).encode(), state.digest)
    match event:
        case ("open", int(session_id), *_):
            state.sessions[session_id] = 0
        case ("close", int(session_id), *_):
            state.sessions.pop(session_id, None)
        case ("timer", int(timer_id), _):
            state.timers.pop(timer_id, None)
            if timer_id // TIMERS_PER_NUMBER % 3 == 0 and timer_id % TIMERS_PER_NUMBER == 0:
                state.offered += 1
                return [("offer", state.offered, 1)]
        case ("message", None, _, bytes(payload)):
            service = int(payload[1:2])
            state.received[service] += 1
        case ("message", int(session_id), int(timestamp), bytes(payload)):
            state.sessions[session_id] += 1
            return _apply_message(state, timestamp, payload, services)
    return []


def _apply_message(state: State, timestamp: int, payload: bytes, services: int) -> list[tuple[str, int, int]]:
    words = payload.split(b" ")
    number, argument = int(words[1]), int(words[2])
    state.applied.append(number)
    match words[0]:
        case b"t":
            for service in range(services):
                state.timers[number * TIMERS_PER_NUMBER + service] = timestamp + argument
            return [("timer", number * TIMERS_PER_NUMBER, timestamp + argument)]
        case b"c":
            for service in range(services):
                state.timers.pop(argument * TIMERS_PER_NUMBER + service, None)
            return [("cancel", argument * TIMERS_PER_NUMBER, 0)]
        case b"s":
            first = state.offered + 1
            state.offered += argument
            return [("offer", each, argument) for each in range(first, first + argument)]
        case b"x":
            return [("close", 0, 0)]
    return []


# The log, as it is recorded.


def read_file(storage: Storage, path: str) -> bytes:
    """All of a file; nothing when it is not there."""
    if not storage.exists(path):
        return b""
    file = storage.open_file(path, READ_ONLY)
    try:
        return file.read(file.length(), 0)
    finally:
        file.close()


def read_recording(storage: Storage, entry: Entry, known: bytes) -> bytes:
    """The bytes of a recording from 0 up to the end of its last segment; those of segments that are gone are known."""
    prefix, found = f"{entry.recording_id}-", {}
    for name in storage.list_directory(ARCHIVE_DIR):
        if name.startswith(prefix) and name.endswith(".rec"):
            found[int(name[len(prefix) : -4])] = name
    begin = min(found, default=0)
    if begin > len(known):
        raise Violation("retention", f"the log begins at {begin}, and was final up to {len(known)} alone")
    content = known[:begin]
    while len(content) in found:
        content += read_file(storage, f"{ARCHIVE_DIR}/{found[len(content)]}").ljust(entry.segment_length, b"\0")
    return content if entry.stop < 0 else content[: entry.stop]


def messages_of(content: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    """The end and the bytes of each message from a position on, none for padding, up to where no frame is."""
    part = b""
    while position + _FRAME.size <= len(content):
        length, _, flags, kind, *_ = _FRAME.unpack_from(content, position)
        if length <= 0:
            return
        begin, position = position, position + -(-length // 32) * 32
        if position > len(content):
            return
        if kind != _DATA:
            yield position, b""
            continue
        part = (b"" if flags & _BEGIN else part) + content[begin + _FRAME.size : begin + length]
        if flags & _END:
            yield position, part


def event_of(message: bytes) -> Event:
    """What a message of the log says, as a service is told it."""
    block_length, template_id, schema_id, _version = _MESSAGE.unpack_from(message)
    if schema_id != 111:
        raise Violation("log", f"a message of schema {schema_id}")
    numbers = struct.unpack_from("<qqq", message, 8)
    match template_id:
        case 1:
            return ("message", numbers[1] if numbers[1] >= 0 else None, numbers[2], message[32:])
        case 20:
            return ("timer", numbers[1], numbers[2])
        case 21:
            return ("open", numbers[2], struct.unpack_from("<q", message, 32)[0])
        case 22:
            return ("close", numbers[1], numbers[2], struct.unpack_from("<i", message, 32)[0])
        case 23:
            return ("action", numbers[1], numbers[2], struct.unpack_from("<i", message, 32)[0])
        case 24:
            return ("term", numbers[0], numbers[2], struct.unpack_from("<q", message, 32)[0])
    raise Violation("log", f"a message of template {template_id} and {block_length} bytes")


@dataclass
class Log:
    """The log as far as it is final, and the state that it makes of a service."""

    services: int
    content: bytes = b""
    """Up to the end of the last message, or of padding behind it."""
    state: State = field(default_factory=State)
    digests: list[int] = field(default_factory=lambda: [0])
    """The state's digest after each number of events."""
    index: dict[int, int] = field(default_factory=dict)
    """Which place the message of a number has among the applied."""
    opened: dict[int, int] = field(default_factory=dict)
    """The timestamp of the open event by session id."""
    deadlines: dict[int, int] = field(default_factory=dict)
    """The deadline of each timer that was ever scheduled."""
    fired: set[int] = field(default_factory=set)
    cancelled: dict[int, int] = field(default_factory=dict)
    """When the services were told to cancel a timer."""
    terms: list[tuple[int, int]] = field(default_factory=list)
    """Leadership term id and base position."""
    snapshots: set[int] = field(default_factory=set)
    """Where actions end that ask for one."""
    at_snapshot: dict[int, tuple[int, int, tuple[int, ...], dict[int, int]]] = field(default_factory=dict)
    """Events, digest, sessions and timers of the state there."""
    timestamp: int = 0
    cancel_limit_ms: int = CANCEL_LIMIT_MS
    is_time_checked: bool = True
    """Whether it may never go back; the checks of timers compare times, too."""
    service_ids: dict[int, int] = field(default_factory=dict)
    """The last session id of messages of a service."""

    def __post_init__(self) -> None:
        self.state.received = [0] * self.services

    def extend(self, content: bytes) -> None:
        """Take in a log that must begin with what was final, and whose rest is final now.

        Raises Violation where it breaks a promise by itself.
        """
        end = len(self.content)
        if content[:end] != self.content:
            same = next(at for at in range(end) if content[at : at + 1] != self.content[at : at + 1])
            raise Violation("prefix", f"the log is another one at {same} of {end}: {content[same : same + 48].hex()}")
        self.grow(content)

    def grow(self, content: bytes) -> None:
        """Take in what is behind the end of a log that is known to begin with what was final."""
        end = len(self.content)
        for position, message in messages_of(content, end):
            if message:
                self._add(position, message)
            end = position
        self.content = content[:end]

    def _add(self, position: int, message: bytes) -> None:
        event = event_of(message)
        state = self.state
        timestamp = event[3] if event[0] == "session" else event[2]
        assert isinstance(timestamp, int)
        if timestamp < self.timestamp and self.is_time_checked:
            raise Violation("time", f"{event} at {position} after {self.timestamp}")
        self.timestamp = timestamp
        match event:
            case ("action", *_):
                if event[3] == SNAPSHOT_ACTION:
                    self.snapshots.add(position)
                    self.at_snapshot[position] = state.events, state.digest, tuple(state.sessions), dict(state.timers)
                return
            case ("term", int(term_id), _, int(base)):
                if self.terms and (term_id <= self.terms[-1][0] or base < self.terms[-1][1]):
                    raise Violation("terms", f"term {term_id} from {base} on after {self.terms[-1]}")
                self.terms.append((term_id, base))
            case ("open", int(session_id), _):
                # Its number is that of its request, and it opens once its client is reached: a later one may be first.
                if session_id in self.opened:
                    raise Violation("sessions", f"session {session_id} opens again")
                self.opened[session_id] = timestamp
            case ("close", int(session_id), *_):
                if session_id not in state.sessions:
                    raise Violation("sessions", f"session {session_id} closes, and is not open")
            case ("timer", int(timer_id), _):
                if timer_id in self.fired or timer_id not in self.deadlines:
                    raise Violation("timers", f"timer {timer_id} fires: it has fired, or nobody has scheduled it")
                if timestamp < self.deadlines[timer_id] and self.is_time_checked:
                    raise Violation("timers", f"timer {timer_id} fires at {timestamp}: {self.deadlines[timer_id]}")
                if self.is_time_checked and timestamp > self.cancelled.get(timer_id, timestamp) + self.cancel_limit_ms:
                    raise Violation("timers", f"timer {timer_id} fires at {timestamp}, long after its cancel")
                self.fired.add(timer_id)
            case ("message", None, _, bytes(payload)):
                self._check_service_message(payload, struct.unpack_from("<q", message, 16)[0])
            case ("message", int(session_id), _, bytes(payload)):
                if session_id not in state.sessions:
                    raise Violation("sessions", f"a message of session {session_id}, which is not open: {payload!r}")
                number = int(payload.split(b" ")[1])
                if number in self.index:
                    raise Violation("once", f"message {number} is in the log again")
                self.index[number] = len(state.applied)
        for what, number, argument in apply(state, event, self.services):
            if what == "timer":
                for each in range(self.services):
                    self.deadlines[number + each] = argument
                    self.cancelled.pop(number + each, None)  # a client's cancel came before another one's timer
            elif what == "cancel":
                self.cancelled.update({number + each: timestamp for each in range(self.services)})
        self.digests.append(state.digest)

    def _check_service_message(self, payload: bytes, service_session_id: int) -> None:
        service, number = int(payload[1:2]), int(payload.split(b" ")[1])
        if number != self.state.received[service] + 1:
            last = self.state.received[service]
            raise Violation("service messages", f"message {number} of service {service} after {last}")
        if number > self.state.offered:
            raise Violation("service messages", f"message {number} of service {service}, which it has not offered")
        if service_session_id != self.service_ids.get(service, service_session_id - 1) + 1:
            raise Violation("service messages", f"message {number} of service {service} has a wrong id")
        self.service_ids[service] = service_session_id

    @property
    def end(self) -> int:
        """Where the last message ends, or padding behind it."""
        return len(self.content)


@dataclass(frozen=True)
class LogEntry:
    """A term or a snapshot in the recording log."""

    recording_id: int
    term_id: int
    base: int
    position: int
    service_id: int
    is_snapshot: bool


def read_recording_log(content: bytes) -> list[LogEntry]:
    """The valid entries of a recording log without standby snapshots."""
    entries = []
    for offset in range(0, len(content) - 63, 64):
        recording_id, term_id, base, position, _, service_id, kind = _ENTRY.unpack_from(content, offset)
        if not content[offset : offset + 64].strip(b"\0"):
            break
        if kind in (_TERM, _SNAPSHOT):
            entries.append(LogEntry(recording_id, term_id, base, position, service_id, kind == _SNAPSHOT))
    return entries


def check_disk(storage: Storage, log: Log, *, services: int, retained: int = 0) -> int:
    """Take in the log of a node that has recovered its archive; what lies around it must fit. Return its begin.

    Args:
        storage: of the node.
        log: as it was final before.
        services: how many take snapshots.
        retained: how many snapshots the node keeps; 0 for all.
    """
    _, catalog, _ = read_catalog(read_file(storage, f"{ARCHIVE_DIR}/archive.catalog"))
    recordings = {each.recording_id: each for each in catalog}
    entries = read_recording_log(read_file(storage, f"{CLUSTER_DIR}/recording.log"))
    terms = sorted((each for each in entries if not each.is_snapshot), key=lambda each: each.term_id)
    logs = [each for each in catalog if each.stream_id == LOG_STREAM_ID]
    if not terms:
        if log.content:
            raise Violation("recording log", f"it has no term, and the log has {log.end} bytes")
        return 0
    if {each.recording_id for each in terms} - {each.recording_id for each in logs}:
        raise Violation("recording log", f"its terms are of {terms}, and the catalog has {logs}")
    recording = recordings[terms[-1].recording_id]
    log.extend(read_recording(storage, recording, log.content))
    check_terms(terms, log)
    snapshots = [each for each in entries if each.is_snapshot]
    kept_from = check_retention(snapshots, recording.start, services, retained)
    check_snapshots(snapshots, recordings, log, services, kept_from)
    return recording.start


def take_in(storage: Storage, log: Log, position: int) -> None:
    """Take in the log of a node that runs, up to where it is final."""
    _, catalog, _ = read_catalog(read_file(storage, f"{ARCHIVE_DIR}/archive.catalog"))
    entries = read_recording_log(read_file(storage, f"{CLUSTER_DIR}/recording.log"))
    recording_id = max(each.recording_id for each in entries if not each.is_snapshot)
    [recording] = [each for each in catalog if each.recording_id == recording_id]
    log.extend(read_recording(storage, recording, log.content)[:position])


def check_terms(terms: list[LogEntry], log: Log) -> None:
    """Terms follow each other, and are those of the log."""
    for one, other in pairwise(terms):
        if one.term_id == other.term_id or one.recording_id != other.recording_id or one.position != other.base:
            raise Violation("recording log", f"{one} is before {other}")
    known = {each.term_id: each.base for each in terms}
    for term_id, base in log.terms:
        if known.get(term_id) != base:
            raise Violation("recording log", f"term {term_id} begins at {base}, not {known.get(term_id)}")


def check_retention(snapshots: list[LogEntry], start: int, services: int, retained: int) -> int:
    """Nothing in front of the snapshots that are kept is missing of them; from which position on all must be there."""
    sets: dict[int, set[int]] = {}
    for each in snapshots:
        sets.setdefault(each.position, set()).add(each.service_id)
    whole = sorted(position for position, found in sets.items() if len(found) == services + 1)
    kept_from = whole[-retained] if 0 < retained <= len(whole) else 0
    if start > kept_from:
        raise Violation("retention", f"the log begins at {start}, and the snapshots that count are at {whole}")
    return kept_from


def check_snapshots(
    snapshots: list[LogEntry], recordings: dict[int, Entry], log: Log, services: int, kept_from: int
) -> None:
    """Each snapshot is of a place where one was asked for; from a position on its recording is there."""
    sets: dict[int, list[int]] = {}
    for each in snapshots:
        if each.position not in log.snapshots:
            raise Violation("snapshots", f"{each}: the log asks for none there")
        if each.recording_id not in recordings and each.position >= kept_from:
            raise Violation("snapshots", f"{each}: the catalog has no such recording")
        sets.setdefault(each.position, []).append(each.service_id)
    for position, found in sets.items():
        # The consensus module's is the last one. One that a crash has cut short has none, and is taken again.
        expected = [*range(services - 1, -1, -1), -1]
        if -1 in found and (found.count(-1) > 1 or found[-len(expected) :] != expected):
            raise Violation("snapshots", f"at {position} are those of {found}")


__all__ = ["TERM_LENGTH", "Log", "State", "Violation", "apply", "check_disk", "event_of", "take_in"]
