"""What a simulated node must have on its disk and in its services, told from the log and read without its own code.

The service's state is a function of the log, :func:`apply`. What the service itself does is in node_world.py.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from container.storage.storage_seam import Storage
from container.testing.simulation.nodes import log as agreed
from container.testing.simulation.nodes.log import Event
from container.testing.simulation.nodes.recorded import (
    ARCHIVE_DIR,
    CLUSTER_DIR,
    LOG_STREAM_ID,
    Entry,
    LogEntry,
    Violation,
    check_retention,
    read_catalog,
    read_file,
    read_recording,
    read_recording_log,
)

TIMERS_PER_NUMBER = 10
CANCEL_LIMIT_MS = 1_000
"""A timer may fire for so long after its end was asked for in the log, as services are behind the log."""


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


@dataclass
class Log(agreed.Log):
    """The log as far as it is final, and the state that it makes of a service."""

    services: int = 1
    state: State = field(default_factory=State)
    digests: list[int] = field(default_factory=lambda: [0])
    """The state's digest after each number of events."""
    index: dict[int, int] = field(default_factory=dict)
    """Which place the message of a number has among the applied."""
    deadlines: dict[int, int] = field(default_factory=dict)
    """The deadline of each timer that was ever scheduled."""
    fired: set[int] = field(default_factory=set)
    cancelled: dict[int, int] = field(default_factory=dict)
    """When the services were told to cancel a timer."""
    at_snapshot: dict[int, tuple[int, int, dict[int, int]]] = field(default_factory=dict)
    """Events, digest and timers of the state where a snapshot is asked for."""
    cancel_limit_ms: int = CANCEL_LIMIT_MS
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

    def _on_snapshot(self, position: int) -> None:
        self.at_snapshot[position] = self.state.events, self.state.digest, dict(self.state.timers)

    def _on_event(self, event: Event, message: bytes) -> None:
        state, timestamp = self.state, self.timestamp
        match event:
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
            case ("message", int(), _, bytes(payload)):
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


def check_disk(storage: Storage, log: Log, *, services: int, retained: int = 0) -> int:
    """Take in the log of a node that has recovered its archive; what lies around it must fit. Return its beginning.

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
