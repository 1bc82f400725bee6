"""Random histories of clusters, as the files that their members leave.

A leader may die within a message, or with a tail that nobody else has; it stays away then, or comes back and has the
log of the others. Members lag behind, caught up from another member's archive (and have its frames under another
session id), or were wiped (and have all of them so, in another recording). Elections begin terms; sessions, messages,
timers, padding and snapshots lie in between. The log's first segments may have been purged.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from container.codecs.messages import encode
from container.recordings import RecordingDescriptor, RecordingLogEntry
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog, write_recording_log
from tests.plain_decoder import frames
from tests.recordings_world import (
    CHANNEL,
    SEGMENT_LENGTH,
    TERM_LENGTH,
    entry,
    marker,
    new_term,
    session_message,
    write_mark,
)
from tests.replay_services import NUMBER, STATE

BEGIN_MS = 1_700_000_000_000
SESSION_ID_OFFSET = 12
"""In a frame's header."""
OTHER_SESSION = 4711
"""The Aeron session of frames that came from another member's archive."""


@dataclass
class Snapshot:
    """One part of a snapshot: its recording, and its entry in the recording log."""

    descriptor: RecordingDescriptor
    entry: RecordingLogEntry


@dataclass
class MemberFiles:
    """The files of a member."""

    base_dir: Path
    member_id: int
    recording_id: int
    start: int
    recorded: int
    agreed: int
    """Up to where its log is the cluster's."""
    known: int
    """Up to where its own recording log shows that the log is committed."""
    is_stopped: bool
    """Whether its archive's catalog says where the log ends."""
    committed: int = 0
    """Up to where the log is committed, as far as all members' files together show it."""

    @property
    def archive_dir(self) -> Path:
        return self.base_dir / "archive"


@dataclass
class WrittenCluster:
    """The members of a history, and what all of them should have."""

    members: list[MemberFiles]
    bases: list[int]
    end: int
    snapshots: list[int] = field(default_factory=list)


class _Log:
    """Writes the log that all members agree on."""

    def __init__(self, rng: random.Random, directory: Path) -> None:
        self.rng = rng
        self.directory = directory
        directory.mkdir()
        self.writer = RecordingWriter(directory, term_length=TERM_LENGTH, segment_length=SEGMENT_LENGTH)
        self.bases: list[int] = []
        self.leaders: list[int] = []
        self.unfinished: set[int] = set()
        """Where messages without an end break off."""
        self.opened: dict[int, int] = {}
        self.snapshots: list[Snapshot] = []
        self.count = self.sum = self.next_session = self.next_timer = 0
        self.now_ms = BEGIN_MS

    def append(self, name: str, **fields: Any) -> int:
        self.now_ms += self.rng.randrange(1, 50)
        fields = {"leadership_term_id": len(self.bases) - 1, "timestamp": self.now_ms, **fields}
        return self.writer.append(encode("cluster", name, **fields))

    def begin_term(self, leader: int) -> None:
        base, term = self.writer.position, len(self.bases)
        self.bases.append(base)
        self.leaders.append(leader)
        self.now_ms += 1
        self.writer.append(new_term(term, base, timestamp=self.now_ms, leader_member_id=leader))

    def die_within_a_message(self) -> None:
        """The leader's last message has no end."""
        message = session_message(1, b"." * 5000, term=len(self.bases) - 1, timestamp=self.now_ms)
        length = self.writer.mtu_length - 32
        self.writer.append_frame(message[:length], 0x80)
        has_room = self.writer.position % TERM_LENGTH + self.writer.mtu_length <= TERM_LENGTH
        if has_room and self.rng.random() < 0.5:
            self.writer.append_frame(message[length : 2 * length], 0)
        self.unfinished.add(self.writer.position)

    def step(self) -> None:
        """Something that the log has."""
        match self.rng.randrange(20):
            case 0:
                self.next_session += 1
                fields = {"correlation_id": 1000 + self.next_session, "encoded_principal": b"somebody"}
                position = self.append(
                    "SessionOpenEvent",
                    cluster_session_id=self.next_session,
                    response_stream_id=102,
                    response_channel=CHANNEL,
                    **fields,
                )
                self.opened[self.next_session] = position
            case 1 if self.opened:
                session_id = self.rng.choice(sorted(self.opened))
                del self.opened[session_id]
                self.append("SessionCloseEvent", cluster_session_id=session_id, close_reason=self.rng.randrange(3))
            case 2:
                self.next_timer += 1
                self.append("TimerEvent", correlation_id=self.next_timer)
            case 3 if self.rng.random() < 0.3:
                self.writer.append_padding(self.rng.choice([32, 96, None]))
            case 4 if self.rng.random() < 0.4:
                self.take_snapshot()
            case _ if self.opened:
                self.number(self.rng.choice(sorted(self.opened)))

    def number(self, session_id: int) -> None:
        number = self.rng.randrange(1000)
        self.count, self.sum = self.count + 1, self.sum + number
        self.now_ms += 1
        # Not of zeros: a last frame with nothing but zeros in its last page was perhaps not written to its end.
        payload = NUMBER.pack(number) + b"." * self.rng.choice([0, 1, 24, 100, 1344, 1345, 3000, 7000])
        self.writer.append(session_message(session_id, payload, term=len(self.bases) - 1, timestamp=self.now_ms))

    def take_snapshot(self) -> None:
        """A request in the log, and the recordings of the consensus module and of service 0."""
        length = 8 + 32 + 32
        position = self.writer.position + (length + 31) // 32 * 32
        if self.append("ClusterActionRequest", log_position=position, action=2, flags=0) != position:
            return  # It did not fit into the Aeron term, and lies behind: a snapshot that failed.
        term = len(self.bases) - 1
        channel: dict[str, Any] = {"response_stream_id": 102, "response_channel": CHANNEL}
        module = [
            encode(
                "cluster",
                "ClusterSession",
                cluster_session_id=session_id,
                correlation_id=1000 + session_id,
                opened_log_position=opened,
                time_of_last_activity=-1,
                close_reason=None,
                **channel,
            )
            for session_id, opened in sorted(self.opened.items())
        ]
        service = [
            encode("cluster", "ClientSession", cluster_session_id=one, encoded_principal=b"somebody", **channel)
            for one in sorted(self.opened)
        ]
        for service_id, items, data in ((-1, module, []), (0, service, [STATE.pack(self.count, self.sum)])):
            begin, end = (
                marker(mark, type_id=2 + min(service_id, 0), position=position, leadership_term_id=term)
                for mark in (0, 2)
            )
            self._record(service_id, [begin, *items, end, *data], position, term)

    def _record(self, service_id: int, messages: Iterable[bytes], position: int, term: int) -> None:
        recording_id = 10 + len(self.snapshots)
        writer = RecordingWriter(
            self.directory,
            recording_id=recording_id,
            stream_id=106 - min(service_id, 0),
            term_length=TERM_LENGTH,
            segment_length=SEGMENT_LENGTH,
        )
        for message in messages:
            writer.append(message)
        writer.flush()
        writer.close()
        fields = {"leadership_term_id": term, "term_base_log_position": self.bases[term], "log_position": position}
        found = entry(0, recording_id, service_id=service_id, entry_type=1, timestamp=self.now_ms, **fields)
        self.snapshots.append(Snapshot(descriptor_of(writer), found))


def write_cluster(seed: int, directory: Path) -> WrittenCluster:
    """The files of a random history's members, below a directory."""
    rng = random.Random(seed)
    count = rng.choice([1, 3, 3])
    log = _Log(rng, directory / "log")
    for term in range(rng.randint(1, 4)):
        if term and rng.random() < 0.4:
            log.die_within_a_message()
        log.begin_term(rng.randrange(count))
        for _ in range(rng.randrange(1, 60)):
            log.step()
    log.writer.flush()
    ends = _ends(log)
    members = [
        _write_member(rng, log, directory, member_id, end, count)
        for member_id, end in enumerate(_places(rng, log, ends, count))
    ]
    log.writer.close()
    agreed = sorted((member.agreed for member in members), reverse=True)
    cluster = max(agreed[len(agreed) // 2], *(member.known for member in members))
    for member in members:
        member.committed = max(member.known, min(member.agreed, cluster))
        if count == 1 and log.bases[-1] < member.start:
            member.committed = member.known  # Whether another member leads now was purged with the term's beginning.
    snapshots = [one.entry.log_position for one in log.snapshots if one.entry.service_id == 0]
    return WrittenCluster(members, log.bases, log.writer.position, snapshots)


def _ends(log: _Log) -> list[int]:
    """Where the frames of the log end."""
    return [frame.end for frame in frames(log.directory, 0, 0, log.writer.position, SEGMENT_LENGTH)]


def _places(rng: random.Random, log: _Log, ends: Sequence[int], count: int) -> list[int]:
    """How far each member has recorded: the leader all, a second one what is known to be committed at least."""
    known = max([log.bases[-1], *(one.entry.log_position for one in log.snapshots)])
    places = [ends[-1]] * count
    if count == 3:
        leader = log.leaders[-1]
        second, third = rng.sample([one for one in range(3) if one != leader], 2)
        places[second] = rng.choice([ends[-1], rng.choice([end for end in ends if end > known] or ends[-1:])])
        places[third] = rng.choice([ends[-1], rng.choice(ends)])
    return places


def _write_member(rng: random.Random, log: _Log, directory: Path, member_id: int, end: int, count: int) -> MemberFiles:
    base_dir = directory / f"member-{member_id}"
    archive_dir, cluster_dir = base_dir / "archive", base_dir / "cluster"
    archive_dir.mkdir(parents=True)
    cluster_dir.mkdir()
    was_wiped = count == 3 and rng.random() < 0.2
    recording_id = 5 if was_wiped else 0
    own_tail = b""
    recorded = agreed = end
    past = [
        term
        for term, leader in enumerate(log.leaders[:-1])
        if leader == member_id and log.bases[term + 1] not in log.unfinished
    ]
    if count == 3 and past and end < log.writer.position and not was_wiped and rng.random() < 0.7:
        # It led once, died with messages that nobody else had, and has stayed away since.
        term = rng.choice(past)
        agreed = log.bases[term + 1]
        own_tail = _tail(rng, directory / f"tail-{member_id}", agreed, term)
        recorded = agreed + len(own_tail)
        bases = log.bases[: term + 1]
    else:
        bases = [base for base in log.bases if base < end]
    start = 0
    content = _content(log, agreed) + own_tail
    if was_wiped or rng.random() < 0.3:
        first = 0 if was_wiped else rng.choice(_ends(log))
        content = _from_another_member(content, first, agreed)
    snapshots = [] if was_wiped else [one for one in log.snapshots if one.entry.log_position <= agreed]
    if snapshots and rng.random() < 0.3:
        start = snapshots[-1].entry.log_position // SEGMENT_LENGTH * SEGMENT_LENGTH
    for segment in range(start, max(len(content), 1), SEGMENT_LENGTH):
        data = content[segment : segment + SEGMENT_LENGTH].ljust(SEGMENT_LENGTH, b"\0")
        (archive_dir / f"{recording_id}-{segment}.rec").write_bytes(data)
    for one in snapshots:
        for path in log.directory.glob(f"{one.descriptor.recording_id}-*.rec"):
            shutil.copy(path, archive_dir)
    is_stopped = rng.random() < 0.5
    descriptor = replace(
        descriptor_of(log.writer),
        recording_id=recording_id,
        start_position=start,
        stop_position=recorded if is_stopped else -1,
    )
    entries = _entries(log, recording_id, bases, snapshots)
    write_catalog(archive_dir, [descriptor, *(one.descriptor for one in snapshots)])
    write_recording_log(cluster_dir, entries)
    write_mark(base_dir, member_id)
    known = max([start, *(max(one.log_position, one.term_base_log_position) for one in entries)])
    return MemberFiles(base_dir, member_id, recording_id, start, recorded, agreed, known, is_stopped)


def _entries(
    log: _Log, recording_id: int, bases: Sequence[int], snapshots: Sequence[Snapshot]
) -> list[RecordingLogEntry]:
    ends = [*bases[1:], -1]
    terms = [
        entry(
            0,
            recording_id,
            leadership_term_id=term,
            term_base_log_position=base,
            log_position=end,
            timestamp=BEGIN_MS + term,
        )
        for term, (base, end) in enumerate(zip(bases, ends, strict=True))
    ]
    found = sorted(
        [*terms, *(one.entry for one in snapshots)], key=lambda one: (one.leadership_term_id, one.entry_type)
    )
    return [replace(one, entry_index=index) for index, one in enumerate(found)]


def _content(log: _Log, end: int) -> bytes:
    paths = sorted(log.directory.glob("0-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))
    return b"".join(path.read_bytes() for path in paths)[:end]


def _tail(rng: random.Random, directory: Path, base: int, term: int) -> bytes:
    """Messages of an old leader behind the place where the next term begins for the others; within one Aeron term."""
    directory.mkdir()
    writer = RecordingWriter(directory, term_length=TERM_LENGTH, segment_length=SEGMENT_LENGTH, start_position=base)
    limit = (base // TERM_LENGTH + 1) * TERM_LENGTH
    while writer.position + 256 < limit and rng.random() < 0.8:
        writer.append(session_message(1, b"never committed", term=term, timestamp=BEGIN_MS))
    writer.flush()
    writer.close()
    first = base // TERM_LENGTH * TERM_LENGTH
    path = directory / f"0-{first}.rec"
    return path.read_bytes()[base - first : writer.position - first] if writer.position > base else b""


def _from_another_member(content: bytes, begin: int, end: int) -> bytes:
    """The same frames as another member's archive replays them: under another Aeron session."""
    changed, position = bytearray(content), begin
    while position < end:
        struct.pack_into("<i", changed, position + SESSION_ID_OFFSET, OTHER_SESSION)
        position += (struct.unpack_from("<i", content, position)[0] + 31) // 32 * 32
    return bytes(changed)
