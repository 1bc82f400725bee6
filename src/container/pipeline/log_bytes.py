"""Compares the bytes of members' logs: a hash for each block on the executors, then the first byte that differs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from container.errors import RecordingError
from container.recordings import Filters, LogRange, Member, RecordingDescriptor, plan, read_partition
from container.recordings.frame_reader import segment_file_name, segment_position
from container.regular_files import open_regular, read_at
from container.spark.source import spark_schema

BLOCK_LENGTH = 1024 * 1024
DIFFERENCE_LIMIT = 200
"""How many blocks that differ are searched for the byte."""

_FRAME_HEADER_LENGTH = 32
_SESSION_ID_OFFSET, _SESSION_ID_END = 12, 16
_FIELDS = ((0, "frame_length"), (4, "version"), (5, "flags"), (6, "type"), (8, "term_offset"), (12, "session_id"))
_LATER_FIELDS = ((16, "stream_id"), (20, "term_id"), (24, "reserved_value"))

_BLOCK_SCHEMA = pa.schema(
    [
        ("member_index", pa.int32()),
        ("begin_position", pa.int64()),
        ("end_position", pa.int64()),
        ("digest", pa.binary()),
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
        ("session_id_count", pa.int64()),
    ]
)


@dataclass(frozen=True)
class AuditedMember:
    """A member, what its catalog says of the log, and how far its log went when the audit began."""

    index: int
    member: Member
    descriptor: RecordingDescriptor
    log_range: LogRange

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return self.member.path if self.member.member_id is None else f"member {self.member.member_id}"

    def read(self, begin: int, end: int) -> bytes:
        """The recorded bytes between two log positions of one segment.

        Raises:
            RecordingError: the segment file is missing, too short, or can't be read.
        """
        path, offset = self.place(begin)
        try:
            file = open_regular(path)
            try:
                content = read_at(file, offset, end - begin)
            finally:
                os.close(file)
        except OSError as error:
            raise RecordingError(str(error.strerror), file=str(path), offset=offset, log_position=begin) from error
        if len(content) != end - begin:
            raise RecordingError(
                f"the file ends {end - begin - len(content)} bytes before log position {end}",
                file=str(path),
                offset=offset + len(content),
                log_position=begin + len(content),
            )
        return content

    def place(self, position: int) -> tuple[Path, int]:
        """The segment file that has a log position, and the offset in it."""
        found = self.descriptor
        base = segment_position(found.start_position, position, found.term_buffer_length, found.segment_file_length)
        return Path(self.member.archive_dir, segment_file_name(found.recording_id, base)), position - base


class Difference(NamedTuple):
    """A block that two members have with different bytes, and the first of these that matters; None when none does."""

    begin_position: int
    end_position: int
    member_index: int
    other_index: int
    log_position: int | None
    file: str | None
    offset: int | None
    byte: int | None
    other_byte: int | None
    place: str | None
    byte_count: int
    session_id_count: int


class BlockFailure(NamedTuple):
    """A block that could not be read."""

    member_index: int
    begin_position: int
    error: str


class Comparison(NamedTuple):
    """What the comparison of all blocks has shown."""

    block_count: int
    byte_count: int
    compared_count: int
    """Blocks that more than one member has."""
    differing_count: int
    differences: list[Difference]
    """Of the first :data:`DIFFERENCE_LIMIT` blocks that differ."""
    failures: list[BlockFailure]


def compare_bytes(
    spark: SparkSession, members: Sequence[AuditedMember], block_length: int = BLOCK_LENGTH
) -> Comparison:
    """Compare what the members recorded, block by block; only hashes come to the driver, of blocks that differ.

    The session id in frame headers does not count: an archive with checksums writes these there, and a member that was
    behind has recorded another session. Neither does what lies between frames.
    """
    blocks = _hash_blocks(spark, members, block_length).cache()
    try:
        by_block = blocks.groupBy("begin_position", "end_position").agg(
            f.count("digest").alias("copies"),
            f.countDistinct("digest").alias("kinds"),
            f.count("error").alias("failures"),
        )
        totals = by_block.agg(
            f.count("*"),
            f.sum((f.col("end_position") - f.col("begin_position")) * f.col("copies")),
            f.sum(f.when(f.col("copies") > 1, 1).otherwise(0)),
            f.sum(f.when(f.col("kinds") > 1, 1).otherwise(0)),
        ).collect()[0]
        failures = blocks.where("error is not null").orderBy("begin_position", "member_index").limit(DIFFERENCE_LIMIT)
        failed = [BlockFailure(row.member_index, row.begin_position, row.error) for row in failures.collect()]
        differing = (
            blocks.join(
                by_block.where("kinds > 1").orderBy("begin_position").limit(DIFFERENCE_LIMIT).drop("failures"),
                ["begin_position", "end_position"],
            )
            .where("digest is not null")
            .select("begin_position", "end_position", "member_index", "digest")
            .collect()
        )
    finally:
        blocks.unpersist()
    block_count, byte_count, compared_count, differing_count = (int(value or 0) for value in totals)
    differences = _locate(spark, members, differing)
    return Comparison(block_count, byte_count, compared_count, differing_count, differences, failed)


def _hash_blocks(spark: SparkSession, members: Sequence[AuditedMember], block_length: int) -> DataFrame:
    edges = sorted(
        {
            position
            for member in members
            for position in (
                member.log_range.start_position,
                member.log_range.committed_position,
                member.log_range.recorded_position,
            )
        }
    )
    tasks = [(member.index, begin, end) for member in members for begin, end in _segments(member)]
    by_index = {member.index: member for member in members}

    def hash_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                rows = [
                    _hash(by_index[task["member_index"]], begin, end)
                    for begin, end in _cut(task["begin_position"], task["end_position"], block_length, edges)
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=_BLOCK_SCHEMA)

    return _distributed(spark, tasks, "member_index int, begin_position bigint, end_position bigint").mapInArrow(
        hash_tasks, spark_schema(_BLOCK_SCHEMA)
    )


def _distributed(spark: SparkSession, rows: Sequence[Any], schema: str) -> DataFrame:
    """A table of tasks, one for each partition, as far as that makes sense."""
    frame = spark.createDataFrame(rows, schema)
    return frame.repartition(max(1, min(len(rows), 16 * spark.sparkContext.defaultParallelism)))


def _segments(member: AuditedMember) -> Iterator[tuple[int, int]]:
    """The parts of a member's log that lie in one segment file each."""
    found = member.descriptor
    position, end = member.log_range.start_position, member.log_range.recorded_position
    while position < end:
        base = segment_position(found.start_position, position, found.term_buffer_length, found.segment_file_length)
        until = min(end, base + found.segment_file_length)
        yield position, until
        position = until


def _cut(begin: int, end: int, block_length: int, edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Blocks between two positions: cut at multiples of their length and where the log of a member begins or ends."""
    cuts = {begin, end, *range(begin - begin % block_length + block_length, end, block_length)}
    cuts.update(edge for edge in edges if begin < edge < end)
    ordered = sorted(cuts)
    return pairwise(ordered)


def _hash(member: AuditedMember, begin: int, end: int) -> dict[str, Any]:
    row = {"member_index": member.index, "begin_position": begin, "end_position": end}
    try:
        return {**row, "digest": hashlib.sha256(member.read(begin, end)).digest(), "error": None}
    except RecordingError as error:
        return {**row, "digest": None, "error": str(error)}


def _locate(spark: SparkSession, members: Sequence[AuditedMember], differing: Sequence[Row]) -> list[Difference]:
    """Search each block that differs, in each member that has other bytes than most."""
    tasks = list(_pairs(differing))
    if not tasks:
        return []
    by_index = {member.index: member for member in members}

    def search(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                search_block(by_index[task["member_index"]], by_index[task["other_index"]], task)._asdict()
                for task in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_DIFFERENCE_SCHEMA)

    schema = "begin_position bigint, end_position bigint, member_index int, other_index int"
    found = _distributed(spark, tasks, schema).mapInArrow(search, spark_schema(_DIFFERENCE_SCHEMA)).collect()
    return sorted(Difference(*row) for row in found)


def _pairs(differing: Sequence[Row]) -> Iterator[tuple[int, int, int, int]]:
    """For each block the members that differ from the first of those who agree most."""
    blocks: dict[tuple[int, int], dict[bytes, list[int]]] = {}
    for row in differing:
        groups = blocks.setdefault((row.begin_position, row.end_position), {})
        groups.setdefault(bytes(row.digest), []).append(row.member_index)
    for (begin, end), groups in blocks.items():
        agreeing = min(groups.values(), key=lambda group: (-len(group), min(group)))
        for group in groups.values():
            if group is not agreeing:
                yield from ((begin, end, index, min(agreeing)) for index in group)


def search_block(member: AuditedMember, other: AuditedMember, task: dict[str, Any]) -> Difference:
    """Find the first byte that matters of a block in which two members differ; frames are taken from ``other``."""
    begin, end = task["begin_position"], task["end_position"]
    ours = np.frombuffer(member.read(begin, end), np.uint8)
    theirs = np.frombuffer(other.read(begin, end), np.uint8)
    offsets = np.flatnonzero(ours != theirs)
    frames, lengths = _frames(other, begin, end)
    index = np.searchsorted(frames, offsets + begin, side="right") - 1
    inside = index >= 0
    within = np.where(inside, offsets + begin - frames[np.maximum(index, 0)], 0) if len(frames) else offsets * 0
    is_session_id = inside & (within >= _SESSION_ID_OFFSET) & (within < _SESSION_ID_END)
    # Without frames around it, a byte that differs counts: better one finding too many.
    is_between = inside & (within >= lengths[np.maximum(index, 0)]) if len(frames) else inside
    counting = offsets[~is_session_id & ~is_between]
    base = Difference(
        begin,
        end,
        member.index,
        other.index,
        None,
        None,
        None,
        None,
        None,
        None,
        len(counting),
        int(is_session_id.sum()),
    )
    if not len(counting):
        return base
    first = int(counting[0])
    path, offset = member.place(begin + first)
    at = int(np.flatnonzero(offsets == first)[0])
    place = _place(int(within[at])) if inside[at] else "no frame"
    return base._replace(
        log_position=begin + first,
        file=str(path),
        offset=offset,
        byte=int(ours[first]),
        other_byte=int(theirs[first]),
        place=place if not inside[at] else f"{place} of the frame at {int(frames[index[at]])}",
    )


def _place(within: int) -> str:
    if within >= _FRAME_HEADER_LENGTH:
        return f"byte {within - _FRAME_HEADER_LENGTH} of the payload"
    name = next(name for offset, name in reversed(_FIELDS + _LATER_FIELDS) if within >= offset)
    return f"{name} in the header"


def _frames(member: AuditedMember, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the frames of a block begin, with the one that reaches into it, and how many bytes of each are recorded."""
    filters = Filters(begin_position=begin, end_position=_end_of_term(member, end))
    positions: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for partition in plan([member.member], "frames", filters=filters, mode="permissive"):
        columns = ["begin_position", "frame_length", "type", "error"]
        for batch in read_partition(partition, filters=filters, columns=columns):
            good = batch.filter(batch.column("error").is_null())
            recorded = pa.compute.if_else(
                pa.compute.equal(good.column("type"), "PAD"), _FRAME_HEADER_LENGTH, good.column("frame_length")
            )
            positions.append(good.column("begin_position").to_numpy())
            lengths.append(recorded.to_numpy())
    if not positions:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(positions), np.concatenate(lengths).astype(np.int64)


def _end_of_term(member: AuditedMember, position: int) -> int:
    """Up to where the last frame that begins before a position can reach."""
    term_length = member.descriptor.term_buffer_length
    return -(-position // term_length) * term_length
