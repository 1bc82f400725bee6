"""The rule for every history: the package reports what a plain reader finds in the files.

The plain reader (:mod:`tests.plain_decoder`) shares no code with the package. These checks need no session of Spark:
batches, streams by their readers, replays, and damage. The tests of Spark have ingest and audit of a few seeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from container.errors import RecordingError
from container.recordings import Member, plan, read_partition
from container.recordings.commit import end_texts
from container.replay.execution import plan_replay, replay_segment
from container.spark.offsets import end_positions, format_offset, parse_offset
from container.spark.options import SourceOptions
from container.spark.source import ClusterStreamReader, arrow_schema, open_source_members, spark_schema
from tests.histories.world import MemberFiles, WrittenCluster, write_cluster
from tests.plain_decoder import Frame, frames, message_row, messages, without_times
from tests.recordings_world import SEGMENT_LENGTH
from tests.replay_services import NUMBER

type Row = dict[str, Any]

PAGE_LENGTH = 4096
SHOWN = ("committed", "error", "member_id")
"""Columns that the plain reader does not have."""


class Disagreement(AssertionError):
    """A history of which two readers say different things."""


def plain_rows(member: MemberFiles, end: int | None = None) -> list[Row]:
    """The messages of a member's log as a plain reader finds them."""
    last = member.recorded if end is None else end
    found = messages(member.archive_dir, member.recording_id, member.start, last, SEGMENT_LENGTH, member.start)
    return [message_row(*one) for one in found]


def plain_frames(member: MemberFiles) -> list[Frame]:
    """The frames of a member's log."""
    return list(
        frames(member.archive_dir, member.recording_id, member.start, member.recorded, SEGMENT_LENGTH, member.start)
    )


def agree(what: str, found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise Disagreement at the first difference."""
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            raise Disagreement(f"{what}: number {index} is {one}, and should be {other}")
    if len(found) != len(expected):
        beyond = [*found[len(expected) :], *expected[len(found) :]][0]
        raise Disagreement(f"{what}: {len(found)} instead of {len(expected)}; the first that one has alone: {beyond}")


def without_nulls(row: Row, *hidden: str) -> Row:
    return {name: value for name, value in row.items() if value is not None and name not in hidden}


def opened(cluster: WrittenCluster) -> list[Member]:
    """The members, opened together, so that they form a quorum."""
    return open_source_members(options_of(cluster))


def options_of(cluster: WrittenCluster, member: str = "all") -> SourceOptions:
    return SourceOptions(tuple(str(one.base_dir) for one in cluster.members), member=member)


def batch_rows(member: Member, mode: str = "strict", view: str = "messages") -> list[Row]:
    """The rows of a batch."""
    batches = [batch for part in plan(member, view, mode=mode) for batch in read_partition(part)]
    return without_times([row for batch in batches for row in batch.to_pylist()])


def check_batch(cluster: WrittenCluster) -> None:
    """Views have each message once, and know which are committed."""
    for files, member in zip(cluster.members, opened(cluster), strict=True):
        name = f"batch of {files.base_dir.name}"
        found, expected = batch_rows(member), plain_rows(files)
        agree(name, [without_nulls(row, *SHOWN) for row in found], expected)
        agree(
            f"committed, {name}",
            [row["committed"] for row in found],
            [row["log_position"] <= files.committed for row in expected],
        )
        for view, templates in (("timers", {20}), ("sessions", {21, 22}), ("session_messages", {1})):
            agree(
                f"{view}, {name}",
                [row["log_position"] for row in batch_rows(member, view=view)],
                [
                    row["log_position"]
                    for row in expected
                    if row["template_id"] in templates and row["schema_id"] == 111
                ],
            )


def check_stream(cluster: WrittenCluster, rng: random.Random) -> None:
    """A stream gives each committed message once, with any limit and over restarts."""
    agree(
        "stream",
        streamed(options_of(cluster), rng),
        sorted(
            (row["log_position"], files.member_id)
            for files in cluster.members
            for row in plain_rows(files, files.committed)
        ),
    )


def streamed(options: SourceOptions, rng: random.Random) -> list[tuple[int, int]]:
    """Log positions and members of a stream's rows, read in batches of random lengths."""
    reader = stream_reader(options)
    offset, found = reader.initialOffset(), list[tuple[int, int]]()
    while True:
        if rng.random() < 0.2:
            reader, offset = stream_reader(options), format_offset(parse_offset(offset))
        limit = rng.choice(
            [ReadAllAvailable(), *(ReadMaxBytes(rng.choice([500, 5000, 40_000, 200_000])) for _ in range(5))]
        )
        end = reader.latestOffset(offset, limit)
        if end == offset:
            return sorted(found)
        for part in reader.partitions(offset, end):
            for batch in reader.read(part):
                found += zip(
                    batch.column("log_position").to_pylist(), batch.column("member_id").to_pylist(), strict=True
                )
        offset = end


def check_one_log(cluster: WrittenCluster, rng: random.Random) -> None:
    """The members as one log: each committed message once, whoever is away, damaged or behind at each step."""
    expected = {row["log_position"]: row for files in cluster.members for row in plain_rows(files, files.committed)}
    reached = min(files.start for files in cluster.members)
    for files in sorted(cluster.members, key=lambda one: one.start):
        if files.start > reached:
            return  # No member has what lies between.
        reached = max(reached, files.committed)
    options = options_of(cluster, "any")
    reader = stream_reader(options)
    offset, found = reader.initialOffset(), list[Row]()
    while True:
        if rng.random() < 0.3:
            reader = stream_reader(options)
        with _trouble(cluster, rng) as is_quiet:
            try:
                end = reader.latestOffset(offset, ReadMaxBytes(rng.choice([500, 5000, 40_000])))
            except RecordingError:
                continue
        if end == offset and is_quiet:
            break
        while end != offset:
            with _trouble(cluster, rng) as is_quiet:
                try:
                    batches = [batch for part in reader.partitions(offset, end) for batch in reader.read(part)]
                except RecordingError:
                    if is_quiet and [*end_positions(end).values()] > [max(one.recorded for one in cluster.members)]:
                        return  # Planned while the last frame of a log was damaged: it waits for a log that is longer.
                    if is_quiet:
                        raise
                else:
                    found += [row for batch in batches for row in batch.to_pylist()]
                    offset = end
    rows = [without_nulls(row, *SHOWN) for row in without_times(found)]
    agree("one log", rows, [expected[position] for position in sorted(expected)])


@contextmanager
def _trouble(cluster: WrittenCluster, rng: random.Random) -> Iterator[bool]:
    """Members that are away or damaged for a moment, or nothing, which is True."""
    away = [files for files in cluster.members if rng.random() < 0.3]
    damaged = [files for files in cluster.members if files.recorded > files.start and rng.random() < 0.3]
    frames_of = {id(files): rng.choice(plain_frames(files)) for files in damaged}
    for files in damaged:
        _swap_length(files, frames_of[id(files)])
    for files in away:
        files.base_dir.rename(files.base_dir.with_suffix(".away"))
    try:
        yield not away and not damaged
    finally:
        for files in away:
            files.base_dir.with_suffix(".away").rename(files.base_dir)
        for files in damaged:
            _swap_length(files, frames_of[id(files)])


def _swap_length(files: MemberFiles, frame: Frame) -> None:
    """Make the length of a frame one that cannot be, or what it was."""
    segment = frame.position // SEGMENT_LENGTH * SEGMENT_LENGTH
    with (files.archive_dir / f"{files.recording_id}-{segment}.rec").open("r+b") as file:
        file.seek(frame.position - segment)
        length = int.from_bytes(file.read(4), "little", signed=True)
        file.seek(frame.position - segment)
        file.write((length ^ 5 << 24).to_bytes(4, "little", signed=True))


def stream_reader(options: SourceOptions) -> ClusterStreamReader:
    return ClusterStreamReader(options, spark_schema(arrow_schema(options)))


def check_replay(cluster: WrittenCluster) -> None:
    """A replay sends what the service must have sent, and has the states that were recorded."""
    for files, member in zip(cluster.members, opened(cluster), strict=True):
        if files.start > 0 or files.committed == 0:
            continue
        for is_continuous in (True, False):
            segments = plan_replay(member, is_continuous=is_continuous)
            batches = [batch for one in segments for batch in replay_segment(one, "tests.replay_services:TallyService")]
            rows = [row for batch in batches for row in batch.to_pylist()]
            agree(
                f"replay of {files.base_dir.name}",
                [
                    (row["log_position"], row["cluster_session_id"], row["payload"])
                    for row in rows
                    if row["kind"] == "EGRESS"
                ],
                answers(plain_rows(files, files.committed)),
            )
            errors = [row for row in rows if row["kind"] in ("ERROR", "WARNING")]
            agree("errors of a replay", errors, [])
            for row in rows:
                if row["recorded_state_hash"] not in (None, row["state_hash"]):
                    raise Disagreement(f"the state at {row['log_position']} is not the recorded one")


def answers(rows: Sequence[Row]) -> list[tuple[int, int, bytes]]:
    """The service's messages by receiver, from a model of it."""
    sessions: list[int] = []
    count = total = 0
    found = []
    for row in rows:
        position, session_id = row["log_position"], row.get("cluster_session_id", 0)
        match row["template_id"]:
            case 1:
                count, total = count + 1, total + NUMBER.unpack_from(row["payload"])[0]
                found.append((position, session_id, b"%d after %d" % (total, count)))
            case 20:
                text = b"timer %d at %d" % (row["correlation_id"], row["timestamp"])
                found += [(position, one, text) for one in sessions]
            case 21:
                sessions.append(session_id)
            case 22:
                sessions.remove(session_id)
    return found


class Damage:
    """Bytes of one member's log that were changed, by log positions."""

    def __init__(
        self, rng: random.Random, member: MemberFiles, begin: int | None = None, zero_length: int | None = None
    ) -> None:
        """At a random place and of a random length; or of one byte, at a log position; or zeros at the end."""
        self.member = member
        length = rng.choice([1, 1, 1, 4, 8, 32, 500]) if begin is None else 1
        if zero_length is not None:
            segment = (member.recorded - 1) // SEGMENT_LENGTH * SEGMENT_LENGTH
            begin, length = max(member.start, segment, member.recorded - zero_length), zero_length
        self.begin = begin or rng.randrange(member.start, max(member.start + 1, member.recorded - length))
        self.end = min(self.begin + length, (self.begin // SEGMENT_LENGTH + 1) * SEGMENT_LENGTH, member.recorded)
        segment = self.begin // SEGMENT_LENGTH * SEGMENT_LENGTH
        self.is_within_a_header = any(
            frame.position < self.begin < frame.position + 32 for frame in plain_frames(member)
        )
        self._path = member.archive_dir / f"{member.recording_id}-{segment}.rec"
        self._offset = self.begin - segment
        with self._path.open("r+b") as file:
            file.seek(self._offset)
            self.before = file.read(self.end - self.begin)
            flipped = bytes([self.before[0] ^ 1 << rng.randrange(8)]) + self.before[1:]
            self.after = (
                bytes(len(self.before))
                if zero_length is not None
                else flipped
                if begin is not None
                else rng.choice(
                    [
                        bytes(len(self.before)),
                        rng.randbytes(len(self.before)),
                        flipped,
                    ]
                )
            )
        self._write(self.after)

    def _write(self, data: bytes) -> None:
        with self._path.open("r+b") as file:
            file.seek(self._offset)
            file.write(data)

    def undo(self) -> None:
        """Put the bytes back."""
        self._write(self.before)

    def touches(self, row: Row) -> bool:
        """Whether a message has some of the bytes, or lies between its beginning and its end."""
        return bool(row["begin_position"] < self.end and self.begin < row["log_position"])

    def __str__(self) -> str:
        return f"bytes {self.begin} to {self.end} of {self.member.base_dir.name}"


class Ending(NamedTuple):
    """Where a log seems to end that has zeros where its last frames were."""

    position: int
    is_torn: bool
    """Whether a last frame is left out, of which the last page is empty."""


def ending(files: MemberFiles, whole: Sequence[Frame], damage: Damage) -> Ending:
    """Where a log ends as it is now, of which the frames were others before the damage.

    A catalog that says it decides; else a log of zeros behind a frame cannot be told from one that was killed there.
    """
    if files.is_stopped or not whole:
        return Ending(files.recorded, False)
    base = whole[-1].position // SEGMENT_LENGTH * SEGMENT_LENGTH
    content = (files.archive_dir / f"{files.recording_id}-{base}.rec").read_bytes()
    written = base + len(content.rstrip(b"\0"))
    left = [frame for frame in whole if frame.position < written]
    if not left:
        return Ending(files.start, False)
    last = left[-1]
    page = (last.end - 1) // PAGE_LENGTH * PAGE_LENGTH
    is_intact = last.payload is not None and not (damage.begin < last.position + 32 and last.position < damage.end)
    is_torn = is_intact and base <= last.position < page and not content[page - base : last.end - base].strip(b"\0")
    return Ending(last.position if is_torn else last.end, is_torn)


def check_damage(cluster: WrittenCluster, rng: random.Random) -> None:
    """Undamaged parts are read as before or an error reports them missing; nothing else appears."""
    files = rng.choice(cluster.members)
    _check_damage(cluster, files, rng, None)
    # A power cut, or a disk that has lost what was written last.
    files = rng.choice(cluster.members)
    if files.recorded > files.start:
        _check_damage(cluster, files, rng, rng.choice([1, 40, 100, 500, 2000, 6000]))


def _check_damage(cluster: WrittenCluster, files: MemberFiles, rng: random.Random, zero_length: int | None) -> None:
    expected = plain_rows(files)
    whole = plain_frames(files)
    damage = Damage(rng, files, zero_length=zero_length)
    try:
        (member,) = [one for one in opened(cluster) if one.member_id == files.member_id]
        found = batch_rows(member, "permissive")
        end, texts = ending(files, whole, damage), end_texts(member, member.log("permissive"))
    finally:
        damage.undo()
    _check_end(damage, files, end, texts, [row["error"] for row in found if row["error"] is not None])
    rows = {row["log_position"]: without_nulls(row, *SHOWN) for row in found if row["error"] is None}
    errors = [row for row in found if row["error"] is not None]
    known = {row["log_position"]: row for row in expected}
    for position, row in rows.items():
        if position in known and not damage.touches(known[position]) and row != known[position]:
            raise Disagreement(f"{damage}: {row} instead of {known[position]}")
        if position not in known and not damage.touches(row):
            raise Disagreement(f"{damage}: a row that was never written: {row}")
    missing = [row for position, row in known.items() if position not in rows and position <= end.position]
    if missing and not errors and missing == expected[-len(missing) :]:
        raise Disagreement(f"the log ends without a word at {damage}: {len(missing)} messages follow it")
    if missing and not errors:
        raise Disagreement(f"{damage}: {len(missing)} messages are missing without an error, first {missing[0]}")
    if missing and min(row["log_position"] for row in errors) > missing[0]["log_position"]:
        raise Disagreement(
            f"{damage}: the first error is {errors[0]['error']!r}, and {missing[0]} is missing before it"
        )


def _check_end(damage: Damage, files: MemberFiles, end: Ending, texts: dict[str, str], errors: Sequence[str]) -> None:
    """A log that seems to end earlier is named where something shows it: its recording log, or a torn frame."""
    if end.is_torn and "torn" not in texts:
        raise Disagreement(f"{damage}: the frame at {end.position} is left out without a word")
    if files.start == files.recorded or end.position >= files.known:
        return
    if damage.is_within_a_header:
        agree(f"{damage}: whether something is said of the end", [bool(errors)], [True])
        return
    text = f"the log ends at log position {end.position}, and by its recording log it was recorded and committed to"
    agree(f"{damage}: what is said of the end", [any(text in one for one in errors), "lost" in texts], [True, True])


def run(seed: int, directory: Path) -> None:
    """Write the history of a seed below a directory, and check all that needs no session of Spark."""
    cluster = write_cluster(seed, directory)
    rng = random.Random(seed)
    check_batch(cluster)
    check_stream(cluster, rng)
    check_one_log(cluster, random.Random(seed))
    check_replay(cluster)
    check_damage(cluster, rng)
