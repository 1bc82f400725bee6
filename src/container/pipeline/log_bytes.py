"""Compares the bytes of members' logs: a hash for each block on the executors, then the first byte that differs.

Only bytes that must be equal are compared: :mod:`container.recordings.frame_mask` says which.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.common.regular_files import open_regular, read_at
from container.errors import RecordingError, RecordingUnavailableError
from container.files.directories import path_in
from container.files.open_errors import PERMISSION_ADVICE, PERMISSION_ERRORS
from container.files.segments import segment_file_name, segment_position
from container.pipeline.findings import FINDING_LIMIT
from container.pipeline.rows import distributed, task_count, total_of
from container.recordings import LogRange, Member, RecordingDescriptor
from container.recordings.frame_mask import mask_frames
from container.recordings.member import AUDIT
from container.recordings.remote import StoredDirectory
from container.spark.source import spark_schema

BLOCK_LENGTH = 1024 * 1024
_FRAME_HEADER_LENGTH = 32
_FIELDS = (
    (0, "frame_length"),
    (4, "version"),
    (5, "flags"),
    (6, "type"),
    (8, "term_offset"),
    (12, "session_id"),
    (16, "stream_id"),
    (20, "term_id"),
    (24, "reserved_value"),
)
_NO_FRAME = -1
_ROWS_AT_ONCE = 1_000

_BLOCK_SCHEMA = pa.schema(
    [
        ("member_index", pa.int32()),
        ("begin_position", pa.int64()),
        ("end_position", pa.int64()),
        ("digest", pa.binary()),
        ("next_frame", pa.int64()),
        ("content_end", pa.int64()),
        ("last_frame", pa.int64()),
        ("error", pa.string()),
    ]
)
_DIFFERENCE_SCHEMA = pa.schema(
    [
        ("begin_position", pa.int64()),
        ("end_position", pa.int64()),
        ("member_index", pa.int32()),
        ("other_index", pa.int32()),
        ("log_position", pa.int64()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("byte", pa.int32()),
        ("other_byte", pa.int32()),
        ("place", pa.string()),
        ("byte_count", pa.int64()),
    ]
)


@dataclass(frozen=True)
class AuditedMember:
    """A member, what its catalog says of the log, and how far its log went when the audit began."""

    index: int
    member: Member
    descriptor: RecordingDescriptor
    log_range: LogRange
    loss: str | None = None
    """The text of the error that stands for the missing end of its log."""
    is_running: bool = False
    is_backup: bool = False
    """Whether it is the directory of a backup, which has its log and its entries later than a member, and not all."""
    has_recording_log: bool = True
    """Whether it has a cluster directory, and nothing kept its recording log from being read."""

    @property
    def name(self) -> str:
        """Its name in a report."""
        return member_name(self.member)

    def begin_now(self) -> int:
        """Where its log begins by now: a running member may have purged more of it since the audit began."""
        try:
            return max(self.log_range.start_position, self.member.log_descriptor(AUDIT).start_position)
        except RecordingError:
            return self.log_range.start_position

    def read(self, begin: int, end: int) -> bytes:
        """The recorded bytes between two log positions of one segment.

        Raises:
            RecordingUnavailableError: the segment file is missing, or cannot be opened or read.
            RecordingError: it is too short.
        """
        path, offset = self.place(begin)
        archive = self.member.archive
        try:
            if isinstance(archive, StoredDirectory):
                recording_id = self.descriptor.recording_id
                content = archive.read_segment(recording_id, begin - offset, offset, end - begin, is_checked=True)
            else:
                file = open_regular(path)
                try:
                    content = read_at(file, offset, end - begin)
                finally:
                    os.close(file)
        except OSError as error:
            advice = f"; {PERMISSION_ADVICE}" if error.errno in PERMISSION_ERRORS else ""
            raise RecordingUnavailableError(
                f"the segment file cannot be read: {error.strerror}{advice}",
                file=path,
                offset=offset,
                log_position=begin,
            ) from error
        if len(content) != end - begin:
            raise RecordingError(
                f"the file ends {end - begin - len(content)} bytes before log position {end}",
                file=path,
                offset=offset + len(content),
                log_position=begin + len(content),
            )
        return content

    def place(self, position: int) -> tuple[str, int]:
        """The segment file that has a log position, and the offset in it."""
        found = self.descriptor
        base = segment_position(found.start_position, position, found.term_buffer_length, found.segment_file_length)
        return path_in(self.member.archive, segment_file_name(found.recording_id, base)), position - base


def member_name(member: Member) -> str:
    """The name of a member in a report."""
    return member.path if member.member_id is None else f"member {member.member_id}"


class Frames(NamedTuple):
    """Where frames lie at the start of a block, as :func:`~container.recordings.frame_mask.mask_frames` takes it."""

    next_frame: int
    content_end: int
    last_frame: int


class Difference(NamedTuple):
    """A block that two members have with different bytes that must be equal, and the first of these."""

    begin_position: int
    end_position: int
    member_index: int
    other_index: int
    log_position: int
    file: str
    offset: int
    byte: int
    other_byte: int
    place: str
    byte_count: int
    """How many such bytes the block has."""


class BlockFailure(NamedTuple):
    """A block that could not be read."""

    member_index: int
    begin_position: int
    error: str


class Comparison(NamedTuple):
    """The result of the comparison of all blocks."""

    block_count: int
    byte_count: int
    compared_count: int
    """Blocks that more than one member has."""
    differing_count: int
    """Pairs of a block and a member that has it in another way than most."""
    differences: list[Difference]
    """The first :data:`~container.pipeline.findings.FINDING_LIMIT` differences, in the order of the log."""
    failure_count: int
    failures: list[BlockFailure]
    """The first :data:`~container.pipeline.findings.FINDING_LIMIT`."""


def compare_bytes(
    spark: SparkSession, members: Sequence[AuditedMember], block_length: int = BLOCK_LENGTH
) -> Comparison:
    """Compare what the members recorded, block by block.

    Every block that differs is searched for its first byte, on the executors. Only counts and the first differences
    come to the driver, however many blocks differ.
    """
    blocks = _hash_blocks(spark, members, block_length).cache()
    found = None
    try:
        of_member = f.struct("member_index", "digest", "next_frame", "content_end", "last_frame")
        by_block = blocks.groupBy("begin_position", "end_position").agg(
            f.count("digest").alias("copies"),
            f.countDistinct("digest").alias("kinds"),
            f.collect_list(f.when(f.col("digest").isNotNull(), of_member)).alias("members"),
        )
        totals = by_block.agg(
            f.count("*"),
            f.sum((f.col("end_position") - f.col("begin_position")) * f.col("copies")),
            f.count_if(f.col("copies") > 1),
            f.count_if(f.col("kinds") > 1),
        ).collect()[0]
        block_count, byte_count, compared_count, unequal_count = (int(value or 0) for value in totals)
        failures = _not_purged(blocks.where("error is not null"), members)
        failed = failures.orderBy("begin_position", "member_index").limit(FINDING_LIMIT).collect()
        failure_count = total_of(failures, failed, FINDING_LIMIT)
        differing_count, differences = 0, []
        if unequal_count:
            found = _search(spark, members, by_block.where("kinds > 1"), unequal_count).cache()
            differing_count = found.count()
            differences = found.orderBy("log_position", "member_index").limit(FINDING_LIMIT).collect()
    finally:
        blocks.unpersist()
        if found is not None:
            found.unpersist()
    return Comparison(
        block_count,
        byte_count,
        compared_count,
        differing_count,
        [Difference(*row) for row in differences],
        failure_count,
        [BlockFailure(row.member_index, row.begin_position, row.error) for row in failed],
    )


def _not_purged(failures: DataFrame, members: Sequence[AuditedMember]) -> DataFrame:
    """Those blocks that could not be read and that their member should still have."""
    for member in members:
        is_purged = (f.col("member_index") == member.index) & (f.col("begin_position") < member.begin_now())
        failures = failures.where(~is_purged)
    return failures


def _hash_blocks(spark: SparkSession, members: Sequence[AuditedMember], block_length: int) -> DataFrame:
    # A position that was given as committed may be any, and a block has whole headers.
    edges = sorted(
        {
            position & -FRAME_ALIGNMENT
            for member in members
            for position in (
                member.log_range.start_position,
                member.log_range.committed_position,
                member.log_range.recorded_position,
            )
        }
    )
    # Segments of one member need not begin where those of another do, and all begin with a term.
    term_length = min((member.descriptor.term_buffer_length for member in members), default=block_length)
    tasks = [(member.index, begin, end) for member in members for begin, end in _segments(member)]
    by_index = {member.index: member for member in members}

    def hash_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                cuts = _cut(task["begin_position"], task["end_position"], (block_length, term_length), edges)
                yield from _hash_task(by_index[task["member_index"]], cuts)

    return distributed(spark, tasks, "member_index int, begin_position bigint, end_position bigint").mapInArrow(
        hash_tasks, spark_schema(_BLOCK_SCHEMA)
    )


def _segments(member: AuditedMember) -> Iterator[tuple[int, int]]:
    """The parts of a member's log that lie in one segment file each."""
    found = member.descriptor
    position, end = member.log_range.start_position, member.log_range.recorded_position
    while position < end:
        base = segment_position(found.start_position, position, found.term_buffer_length, found.segment_file_length)
        until = min(end, base + found.segment_file_length)
        yield position, until
        position = until


def _cut(begin: int, end: int, lengths: Iterable[int], edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Blocks between two positions: cut at multiples of the lengths and where the log of a member begins or ends."""
    cuts = {begin, end, *(edge for edge in edges if begin < edge < end)}
    for length in lengths:
        cuts.update(range(begin - begin % length + length, end, length))
    return pairwise(sorted(cuts))


def _hash_task(member: AuditedMember, blocks: Iterable[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """A row for each block, in batches; the blocks follow each other, and the first one begins with a frame."""
    rows: list[dict[str, Any]] = []
    frames = None
    for begin, end in blocks:
        if frames is None:
            frames = Frames(begin, begin, _NO_FRAME)
        row, frames = _hash(member, begin, end, frames)
        rows.append(row)
        if len(rows) == _ROWS_AT_ONCE:
            yield pa.RecordBatch.from_pylist(rows, schema=_BLOCK_SCHEMA)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=_BLOCK_SCHEMA)


def _hash(member: AuditedMember, begin: int, end: int, frames: Frames) -> tuple[dict[str, Any], Frames]:
    """The row of a block, and where frames lie behind it."""
    row = {"member_index": member.index, "begin_position": begin, "end_position": end}
    term_length = member.descriptor.term_buffer_length
    try:
        block = member.read(begin, end)
    except RecordingError as error:
        # The next term is the next place where a frame is known to begin.
        term = (end + term_length - 1) & -term_length
        return {**row, "error": str(error)}, Frames(term, term, _NO_FRAME)
    masked = bytearray(block)
    *following, _lost = mask_frames(block, masked, begin, *frames, term_length)
    return {**row, **frames._asdict(), "digest": hashlib.sha256(masked).digest()}, Frames(*following)


def _search(spark: SparkSession, members: Sequence[AuditedMember], blocks: DataFrame, count: int) -> DataFrame:
    """Search each block that differs, in each member that has other bytes than most."""
    by_index = {member.index: member for member in members}

    def search(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                found = [
                    difference
                    for one, other in _pairs(row["members"])
                    if (difference := _search_pair(by_index, row, one, other)) is not None
                ]
                yield pa.RecordBatch.from_pylist(
                    [difference._asdict() for difference in found], schema=_DIFFERENCE_SCHEMA
                )

    tasks = blocks.select("begin_position", "end_position", "members").repartition(min(count, task_count(spark)))
    return tasks.mapInArrow(search, spark_schema(_DIFFERENCE_SCHEMA))


def _pairs(members: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The members that differ, each with the first of those who agree most."""
    groups: dict[bytes, list[dict[str, Any]]] = {}
    for member in sorted(members, key=lambda one: int(one["member_index"])):
        groups.setdefault(bytes(member["digest"]), []).append(member)
    agreeing = max(groups.values(), key=len)
    for group in groups.values():
        if group is not agreeing:
            yield from ((member, agreeing[0]) for member in group)


def _search_pair(
    members: dict[int, AuditedMember], block: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> Difference | None:
    (member, frames), (reference, other_frames) = (
        (members[row["member_index"]], Frames(row["next_frame"], row["content_end"], row["last_frame"]))
        for row in (one, other)
    )
    return search_block(
        member, reference, block["begin_position"], block["end_position"], frames=frames, other_frames=other_frames
    )


def search_block(
    member: AuditedMember, other: AuditedMember, begin: int, end: int, *, frames: Frames, other_frames: Frames
) -> Difference | None:
    """Find the first byte that must be equal and is not, of a block of two members; None when there is none.

    The frames are those of the member whose headers can be followed further: a flipped length hides those behind it.

    Raises:
        RecordingError: a file that could be read before cannot any more.
    """
    ours, theirs = member.read(begin, end), other.read(begin, end)
    term_length = member.descriptor.term_buffer_length
    counting = bytearray(b"\1" * len(ours))
    *_, lost = mask_frames(ours, counting, begin, *frames, term_length)
    their_counting = bytearray(b"\1" * len(ours))
    *_, their_lost = mask_frames(theirs, their_counting, begin, *other_frames, term_length)
    if their_lost <= lost:
        counting, frames = their_counting, other_frames
    is_different = np.frombuffer(ours, np.uint8) != np.frombuffer(theirs, np.uint8)
    offsets = np.flatnonzero(is_different & (np.frombuffer(counting, np.uint8) != 0))
    if not len(offsets):
        return None
    first = int(offsets[0])
    path, offset = member.place(begin + first)
    before = (theirs if their_lost <= lost else ours)[
        : first // _FRAME_HEADER_LENGTH * _FRAME_HEADER_LENGTH + _FRAME_HEADER_LENGTH
    ]
    _, _, frame, _ = mask_frames(before, bytearray(len(before)), begin, *frames, term_length)
    return Difference(
        begin,
        end,
        member.index,
        other.index,
        begin + first,
        str(path),
        offset,
        ours[first],
        theirs[first],
        "no frame" if frame == _NO_FRAME else f"{_place(begin + first - frame)} of the frame at {frame}",
        len(offsets),
    )


def _place(within: int) -> str:
    if within >= _FRAME_HEADER_LENGTH:
        return f"byte {within - _FRAME_HEADER_LENGTH} of the payload"
    name = next(name for offset, name in reversed(_FIELDS) if within >= offset)
    return f"{name} in the header"
