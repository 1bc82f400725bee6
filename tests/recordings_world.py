"""Small members for tests of recordings: a log with every kind of message, snapshots, catalog and recording log."""

from __future__ import annotations

import logging
import random
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from container.codecs.messages import encode
from container.recordings import RecordingDescriptor, RecordingError, RecordingLogEntry, read
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog, write_recording_log
from tests.plain_decoder import without_times

CHANNEL = "aeron:udp?endpoint=localhost:9020"
TERM_LENGTH = 64 * 1024
SEGMENT_LENGTH = 2 * TERM_LENGTH


@contextmanager
def without_warnings() -> Iterator[None]:
    """Reading recordings logs no warning meanwhile, where each of very many damages would be one."""
    logger = logging.getLogger("container.recordings.partition_reader")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def entry(index: int, recording_id: int, **fields: Any) -> RecordingLogEntry:
    """An entry of a recording log; by default a term that is open and begins at 0."""
    values = {
        "leadership_term_id": 0,
        "term_base_log_position": 0,
        "log_position": -1,
        "timestamp": 5,
        "service_id": -1,
        "entry_type": 0,
        "is_valid": True,
        **fields,
    }
    return RecordingLogEntry(index, recording_id, **values)


def session_message(session_id: int, payload: bytes, *, term: int = 0, timestamp: int = 0) -> bytes:
    """A message of a client or a service, as the log has it."""
    header = encode(
        "cluster",
        "SessionMessageHeader",
        leadership_term_id=term,
        cluster_session_id=session_id,
        timestamp=timestamp,
    )
    return header + payload


def new_term(term: int, base: int, **fields: Any) -> bytes:
    """The message that opens a leadership term."""
    values = {
        "leadership_term_id": term,
        "log_position": base + 96,
        "timestamp": 1000 * term,
        "term_base_log_position": base,
        "leader_member_id": term % 3,
        "log_session_id": 7,
        "time_unit": 0,
        "app_version": 1,
        **fields,
    }
    return encode("cluster", "NewLeadershipTermEvent", **values)


class World:
    """A member directory with one log, which is written message by message."""

    def __init__(self, base_dir: Path, **layout: Any) -> None:
        self.base_dir = base_dir
        self.archive_dir = base_dir / "archive"
        self.cluster_dir = base_dir / "cluster"
        self.archive_dir.mkdir(parents=True)
        self.cluster_dir.mkdir()
        layout = {"term_length": TERM_LENGTH, "segment_length": SEGMENT_LENGTH, **layout}
        self.log = RecordingWriter(self.archive_dir, **layout)
        self.descriptors: list[RecordingDescriptor] = []
        self.entries: list[RecordingLogEntry] = []
        self.bases: list[int] = []

    def begin_term(self, **fields: Any) -> int:
        """Open the next leadership term in the log and the recording log, with fields of the message; return its id."""
        term, base = len(self.bases), self.log.position
        self.bases.append(base)
        self.log.append(new_term(term, base, **fields))
        return term

    def append_some(self, rng: random.Random, count: int, term: int = 0) -> None:
        """Append messages of all kinds, some of them in several frames."""
        longest = self.log.max_message_length - 200
        for index in range(count):
            timestamp = 1000 * term + index
            common = {"leadership_term_id": term, "timestamp": timestamp}
            match rng.randrange(12):
                case 0:
                    message = encode("cluster", "TimerEvent", correlation_id=rng.randrange(2**40), **common)
                case 1:
                    message = encode(
                        "cluster",
                        "SessionOpenEvent",
                        correlation_id=9,
                        cluster_session_id=index,
                        response_stream_id=102,
                        response_channel=CHANNEL,
                        encoded_principal=rng.randbytes(rng.choice([0, 5, 3000])),
                        **common,
                    )
                case 2:
                    message = encode("cluster", "SessionCloseEvent", cluster_session_id=index, close_reason=2, **common)
                case 3:
                    message = encode(
                        "cluster",
                        "ClusterActionRequest",
                        log_position=self.log.position + 96,
                        action=rng.randrange(3),
                        flags=0,
                        **common,
                    )
                case 4:
                    message = session_message(-(2**63) + 1 + index, b"by a service", term=term, timestamp=timestamp)
                case 5:
                    # Of an extension, and of a newer version.
                    message = rng.choice([b"\0\0\x07\0\x63\0\1\0", b"\0\0\xc8\0\x6f\0\x63\0"]) + rng.randbytes(30)
                case _:
                    length = rng.choice([0, 1, 31, 32, 33, 100, 1344, 1345, 3000, rng.randrange(longest)])
                    message = session_message(1 + index % 5, rng.randbytes(length), term=term, timestamp=timestamp)
            self.log.append(message)
            if rng.random() < 0.02:
                self.log.append_padding(rng.choice([32, 96, None]))

    def close(self, *, stop: bool = True) -> World:
        """Write what is still in memory, the catalog and the recording log."""
        self.log.flush()
        log = descriptor_of(self.log, stop=stop)
        write_catalog(self.archive_dir, sorted([log, *self.descriptors], key=lambda d: d.recording_id))
        ends = [*self.bases[1:], -1][: len(self.bases)]
        terms = [
            entry(
                index,
                self.log.recording_id,
                leadership_term_id=index,
                term_base_log_position=base,
                log_position=end,
                timestamp=1000 * index,
            )
            for index, (base, end) in enumerate(zip(self.bases, ends, strict=True))
        ]
        write_recording_log(self.cluster_dir, [*terms, *self.entries])
        return self

    def segment(self, number: int = 0) -> Path:
        """The path of a segment file of the log."""
        return self.archive_dir / f"{self.log.recording_id}-{number * self.log.segment_length}.rec"

    def damage(self, position: int, data: bytes) -> None:
        """Overwrite bytes of the log at a position."""
        with self.segment(position // self.log.segment_length).open("r+b") as file:
            file.seek(position % self.log.segment_length)
            file.write(data)

    def add_snapshot(
        self, service_id: int, messages: Iterable[bytes], position: int, *, in_log: bool = True, **fields: Any
    ) -> int:
        """Write a recording of a snapshot, of the consensus module with -1, and its entry; return its recording id."""
        recording_id = self.log.recording_id + 1 + len(self.descriptors)
        writer = RecordingWriter(
            self.archive_dir,
            recording_id=recording_id,
            stream_id=107 if service_id == -1 else 106,
            term_length=TERM_LENGTH,
            segment_length=SEGMENT_LENGTH,
        )
        for message in messages:
            writer.append(message)
        writer.flush()
        writer.close()
        self.descriptors.append(descriptor_of(writer, channel="aeron:ipc?alias=snapshot"))
        if in_log:
            index = len(self.bases) + len(self.entries)
            values = {"log_position": position, "service_id": service_id, "entry_type": 1, "timestamp": 6, **fields}
            self.entries.append(entry(index, recording_id, **values))
        return recording_id


def marker(mark: int, *, type_id: int = 2, position: int = 0, **fields: Any) -> bytes:
    """The beginning (0) or the end (2) of a snapshot."""
    values = {"leadership_term_id": 0, "index": 0, "time_unit": 0, "app_version": 1, **fields}
    return encode("cluster", "SnapshotMarker", type_id=type_id, log_position=position, mark=mark, **values)


def rows_of(path: Path, view: str, **options: Any) -> list[dict[str, Any]]:
    """All rows of a view as dicts without their nulls, after a check of every batch.

    Only the known part counts as committed, so that the last term, which is open, has rows that are not.
    """
    rows: list[dict[str, Any]] = []
    for batch in read(path, view, **{"committed": "known", **options}):
        batch.validate(full=True)
        rows += batch.to_pylist()
    if rows and "event_time" in rows[0]:
        rows = without_times(rows)
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def failure_of(path: Path, view: str = "messages", **options: Any) -> tuple[RecordingError, list[dict[str, Any]]]:
    """The error that must end a strict read, and the rows before it, as :func:`rows_of` has them."""
    rows: list[dict[str, Any]] = []
    try:
        for batch in read(path, view, **{"committed": "known", **options}):
            rows += [{name: value for name, value in row.items() if value is not None} for row in batch.to_pylist()]
    except RecordingError as error:
        return error, without_times(rows)
    raise AssertionError(f"view {view!r} of {path} was read without an error")


def table_of(path: Path, view: str, **options: Any) -> pa.Table:
    """All rows of a view as one table; what counts as committed is as in :func:`rows_of`."""
    return pa.Table.from_batches(list(read(path, view, **{"committed": "known", **options})))


def archive_mark() -> bytes:
    """The mark file of an archive that ended in good order, without which ArchiveTool does not start."""
    block = struct.pack("<iiqqqiiiii", 0x030100, 0, -1, 5, 6, 10, 11, 12, 8192, 1024 * 1024).ljust(128, b"\0")
    texts = struct.pack("<I", 0) * 4
    return (struct.pack("<HHHH", 128, 200, 100, 2) + block + texts).ljust(8192 + 1024 * 1024, b"\0")


def write_mark(path: Path, member_id: int, age_ms: int = 60_000, component_type: int = 1) -> None:
    """A consensus module's mark file, or with 3 a backup's: of a member that has ended a minute ago."""
    then_ms = time.time_ns() // 1_000_000 - age_ms
    block = struct.pack(
        "<iiqqqqiiiiiiiii", 768, component_type, then_ms, 5, 6, -1, 1, 2, 3, 4, member_id, -1, 8192, 4096, 0
    )
    texts = struct.pack("<I", 0) * 6
    header = struct.pack("<HHHH", 128, 200, 110, 2) + block.ljust(128, b"\0") + texts
    (path / "cluster" / "cluster-mark.dat").write_bytes(header.ljust(8192 + 4096, b"\0"))
