"""Where reading begins and ends: positions, offsets, times and rows of a batch, as options; without a session."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from container.errors import ConfigurationError
from container.recordings import Filters, open_member, partition_plan, plan
from container.recordings.first_message import FirstMessage, first_message
from container.spark.offsets import end_positions, parse_offset
from container.spark.options import parse_options
from container.spark.source import ClusterReader, ClusterStreamReader, arrow_schema, spark_schema
from tests.recordings_world import SEGMENT_LENGTH
from tests.spark.written_members import BEGIN_MS, History, WrittenMember

HOUR_MS = 3_600_000


def reader(member: WrittenMember, **options: str) -> ClusterReader:
    chosen = parse_options({"path": member.path, **member.options, **options})
    return ClusterReader(chosen, spark_schema(arrow_schema(chosen)))


def stream(member: WrittenMember, **options: str) -> ClusterStreamReader:
    chosen = parse_options({"path": member.path, **member.options, **options})
    return ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))


def positions(found: ClusterReader) -> list[int]:
    batches = [batch for partition in found.partitions() for batch in found.read(partition)]
    return [row["log_position"] for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def days(tmp_path: Path) -> WrittenMember:
    """A log of twelve hours; see below."""
    return write_days(tmp_path / "member")


def write_days(base_dir: Path) -> WrittenMember:
    """Write a log of twelve hours, one in each segment file and a little more; a leader's clock is an hour ahead."""
    history = History(base_dir)
    history.begin_term()
    history.open_session(1)
    for hour in range(12):
        if hour == 6:
            history.now_ms += HOUR_MS
            history.begin_term(1)
        if hour == 7:
            history.now_ms -= HOUR_MS
            history.begin_term(0)
        while history.position < (hour + 1) * SEGMENT_LENGTH:
            history.message(1, os.urandom(3_000))
            history.now_ms += 1_000
        history.now_ms = max(history.now_ms, BEGIN_MS + (hour + 1) * HOUR_MS + (HOUR_MS if hour == 6 else 0))
    return history.finish()


@pytest.mark.parametrize(("first", "last"), [(3, 5), (0, 1), (11, 13), (6, 8), (7, 7), (20, 30), (0, 20)])
def test_times_leave_whole_files_unread_and_lose_no_row(days: WrittenMember, first: int, last: int) -> None:
    begin, end = BEGIN_MS + first * HOUR_MS, BEGIN_MS + last * HOUR_MS
    expected = [message["log_position"] for message in days.messages if begin <= message["timestamp"] < end]
    found = reader(days, startingTimestamp=str(begin), endingTimestamp=str(end))
    assert positions(found) == expected
    assert len(found.partitions()) <= last - first + 5
    iso = datetime.datetime.fromtimestamp(begin / 1000, datetime.UTC).isoformat()
    assert positions(reader(days, startingTimestamp=iso, endingTimestamp=str(end))) == expected


def test_a_plan_reads_the_begin_of_each_part_alone(days: WrittenMember, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(archive_dir: Any, descriptor: Any, position: int) -> FirstMessage | None:
        read.append(position)
        return first_message(archive_dir, descriptor, position)

    monkeypatch.setattr(partition_plan, "first_message", counted)
    whole = plan(open_member(days.base_dir), "messages")
    assert read == []
    filters = Filters(begin_timestamp=BEGIN_MS + 11 * HOUR_MS)
    few = plan(open_member(days.base_dir), "messages", filters=filters)
    assert len(read) == len(whole) > 10
    assert len(few) <= 5


def test_a_file_that_cannot_be_read_is_not_left_out(days: WrittenMember) -> None:
    segment = days.archive_dir / f"0-{4 * SEGMENT_LENGTH}.rec"
    with segment.open("r+b") as file:
        file.write(bytes(64))
    filters = Filters(begin_timestamp=BEGIN_MS + 9 * HOUR_MS)
    begins = [part.begin_position for part in plan(open_member(days.base_dir), "messages", filters=filters)]
    assert 4 * SEGMENT_LENGTH in begins


def test_positions_bound_a_batch(member: WrittenMember) -> None:
    every = [message["log_position"] for message in member.messages]
    first, last = every[100], every[900]
    chosen = [position for position in every if first < position <= last]
    assert positions(reader(member, startingPosition=str(first), endingPosition=str(last))) == chosen
    key = member.key
    offsets = {"startingOffsets": json.dumps({key: first}), "endingOffsets": json.dumps({key: last})}
    assert positions(reader(member, **offsets)) == chosen
    assert positions(reader(member, startingoffsets="earliest", ENDINGOFFSETS="latest")) == every
    assert (
        positions(reader(member, startingOffsets=json.dumps({key: -2}), endingOffsets=json.dumps({key: -1}))) == every
    )


def test_a_stream_begins_where_the_options_say(member: WrittenMember) -> None:
    every = [message["log_position"] for message in member.messages]
    at = member.messages[700]
    for options, expected in (
        ({}, every),
        ({"startingOffsets": "earliest"}, every),
        ({"startingOffsets": "latest"}, []),
        ({"startingPosition": "0"}, every),
        ({"startingPosition": str(every[699])}, every[700:]),
        ({"startingPosition": str(every[699] + 64)}, every[700:] if every[700] > every[699] + 64 else every[701:]),
        ({"startingTimestamp": str(at["timestamp"])}, every[700:]),
        ({"startingTimestamp": "2262-01-01"}, []),
    ):
        source = stream(member, **options)
        start = source.initialOffset()
        end = source.latestOffset(start, source.getDefaultReadLimit())
        batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
        found = [row["log_position"] for batch in batches for row in batch.to_pylist()]
        assert found == expected, options


@pytest.mark.parametrize("view", ["messages", "timers", "session_messages", "frames"])
def test_a_batch_of_a_stream_has_at_most_so_many_rows(member: WrittenMember, view: str) -> None:
    source = stream(member, view=view, max_rows_per_batch="37")
    assert source.getDefaultReadLimit() == ReadMaxRows(37)
    whole = reader(member, view=view)
    expected = positions(whole)
    start = source.initialOffset()
    found: list[int] = []
    for _ in range(len(expected) + 1):
        end = source.latestOffset(start, source.getDefaultReadLimit())
        if end_positions(end) == end_positions(start):
            break
        batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
        rows = [row["log_position"] for batch in batches for row in batch.to_pylist()]
        assert len(rows) <= 37
        found += rows
        start = end
    assert found == expected
    assert parse_offset(start)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingPosition": "x"}, "startingPosition='x': must be a log position, which is 0 or more"),
        ({"startingPosition": "-1"}, "startingPosition='-1': must be a log position"),
        (
            {"startingTimestamp": "yesterday"},
            "startingTimestamp='yesterday': must be milliseconds since 1970, or a time",
        ),
        ({"endingTimestamp": "2300-01-01"}, "must lie between 1970 and 2262"),
        ({"startingOffsets": "first"}, "startingOffsets='first': must be earliest, latest, or log positions by member"),
        (
            {"startingOffsets": '{"0": -3}'},
            "startingOffsets: position -3 of member '0' must be -2 (earliest), -1 (latest)",
        ),
        ({"startingOffsets": '{"7": 1}'}, "startingOffsets: names the members 7, and path "),
        ({"startingOffsets": "latest"}, "startingOffsets=latest: a batch would have no rows"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest: a batch would have no rows"),
        (
            {"startingPosition": "1", "startingTimestamp": "1971-01-01"},
            "startingPosition and startingTimestamp contradict each other: give one of them",
        ),
        (
            {"startingTimestamp": "2026-11-30", "endingTimestamp": "2026-11-28"},
            "startingTimestamp=2026-11-30T00:00:00Z is behind endingTimestamp=2026-11-28T00:00:00Z: a batch would have",
        ),
        (
            {"startingPosition": "96", "endingPosition": "64"},
            "startingPosition=96 is behind endingPosition=64: a batch would have no rows",
        ),
        ({"startingPosition": "1", "view": "snapshots"}, "startingPosition: the view 'snapshots' is not of the log"),
        ({"startingTimestamp": "1971-01-01", "view": "frames"}, "startingTimestamp: frames are chosen by positions"),
        ({"max_rows_per_batch": "0"}, "max_rows_per_batch='0': must be a positive number of rows"),
        ({"max_rows_per_batch": "1", "max_bytes_per_batch": "1"}, "are two limits: give one of them"),
        ({"startingTimestmp": "1"}, "option 'startingtimestmp' is unknown; did you mean 'startingTimestamp'?"),
    ],
)
def test_wrong_bounds_are_one_sentence(member: WrittenMember, options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        reader(member, **options).partitions()
    assert text in str(caught.value)


def test_what_a_stream_does_not_take(member: WrittenMember) -> None:
    with pytest.raises(ConfigurationError, match="endingPosition is for batches: a stream has no end"):
        stream(member, endingPosition="5")
    source = stream(member, startingPosition=str(2**40))
    with pytest.raises(ConfigurationError, match=r"startingPosition: position \d+ is behind the end of the log"):
        source.initialOffset()
