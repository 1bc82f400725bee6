"""One definition of bounds of time: batches, streams, Arrow and pushed-down filters choose the same messages."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import Filter, GreaterThanOrEqual, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from container.codecs.messages import encode
from container.errors import ConfigurationError
from container.recordings import Filters, read
from container.recordings.cluster_time import time_unit
from container.recordings.member import open_member
from container.spark.options import Bound, parse_options
from container.spark.source import ClusterReader, ClusterStreamReader, arrow_schema, spark_schema
from tests.recordings_world import TERM_LENGTH, World, session_message

NOW = ReadAllAvailable()
TICKS_PER_SECOND = {"MILLIS": 10**3, "MICROS": 10**6, "NANOS": 10**9}
BEGIN_S = 1_764_324_000
"""2025-11-28T10:00:00Z"""
type Written = list[tuple[int, int | None]]
"""The log position and the timestamp of each message; None for one that has none."""


def write_log(base_dir: Path, unit: str, rng: random.Random) -> Written:
    """A log of several leaders, whose clocks are hours apart; some messages are of an extension, without a time."""
    ticks = TICKS_PER_SECOND[unit]
    world = World(base_dir, segment_length=TERM_LENGTH)
    written: Written = []
    for term in range(rng.randint(2, 5)):
        now = BEGIN_S * ticks + rng.randrange(-5 * 3600, 5 * 3600) * ticks + rng.randrange(ticks)
        world.bases.append(world.log.position)
        fields = {"leadership_term_id": term, "timestamp": now, "term_base_log_position": world.log.position}
        common = {"leader_member_id": term % 3, "log_session_id": 7, "app_version": 1}
        event = {**fields, **common, "time_unit": list(TICKS_PER_SECOND).index(unit), "log_position": 0}
        event["log_position"] = world.log.position + 96
        written.append((world.log.append(encode("cluster", "NewLeadershipTermEvent", **event)), now))
        for _ in range(rng.randint(1, 60)):
            now += rng.choice([0, 1, 1, rng.randrange(ticks), rng.randrange(1200 * ticks)])
            payload = rng.randbytes(rng.choice([0, 30, 3000, 8000]))
            if rng.random() < 0.1:
                written.append((world.log.append(b"\0\0\x07\0\x63\0\1\0" + payload), None))
            written.append((world.log.append(session_message(1, payload, term=term, timestamp=now)), now))
    world.close()
    return written


def text_of(timestamp_ns: int, rng: random.Random) -> str:
    """A time as an option: a number where that is possible, or a text of some form."""
    if timestamp_ns % 1_000_000 == 0 and rng.random() < 0.5:
        return str(timestamp_ns // 1_000_000)
    seconds, rest = divmod(timestamp_ns, 10**9)
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    digits = f"{rest:09}"
    return f"{time:%Y-%m-%dT%H:%M:%S}.{digits.rstrip('0') or '0'}" + rng.choice(["", "Z", "+00:00"])


def reader(path: Path, **options: str) -> ClusterReader:
    chosen = parse_options({"path": str(path), "committed": "recorded", **options})
    return ClusterReader(chosen, spark_schema(arrow_schema(chosen)))


def stream(path: Path, **options: str) -> ClusterStreamReader:
    chosen = parse_options({"path": str(path), "committed": "recorded", **options})
    return ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))


def batch_of(found: ClusterReader) -> list[int]:
    return [at for part in found.partitions() for rows in found.read(part) for at in rows["log_position"].to_pylist()]


def streamed(found: ClusterStreamReader, offset: dict[str, Any], limit: ReadLimit = NOW) -> tuple[list[int], Any]:
    """What a stream has from an offset on to its end, and the offset there, each as a checkpoint has it."""
    rows = list[int]()
    while (end := found.latestOffset(offset, limit)) != offset:
        for part in found.partitions(offset, end):
            rows += [at for batch in found.read(part) for at in batch["log_position"].to_pylist()]
        offset = json.loads(json.dumps(end))
    return rows, offset


def arrow_of(path: Path, filters: Filters) -> list[int]:
    batches = read(path, "messages", filters=filters, columns=["log_position"])
    return [at for batch in batches for at in batch["log_position"].to_pylist()]


def bounds_of(written: Written, tick_ns: int, rng: random.Random) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of times in nanoseconds: on messages, between them, less than a tick from one, and outside of all."""
    times = [timestamp * tick_ns for _, timestamp in written if timestamp is not None]

    def place() -> int:
        near = [-tick_ns, -tick_ns // 2, -1, 0, 1, tick_ns // 2, tick_ns, rng.randrange(600 * 10**9)]
        return rng.choice(times) + rng.choice(near)

    yield None, None
    yield min(times) - 10**9, max(times) + 10**9
    yield max(times) + 1, None
    yield max(times) + 30 * 86_400 * 10**9, None
    yield None, min(times)
    yield max(times), None
    for _ in range(6):
        yield place(), None
        yield None, place()
        yield place(), place()


@pytest.mark.parametrize("files", ["member", "archive", "lost term"])
@pytest.mark.parametrize("unit", TICKS_PER_SECOND)
@pytest.mark.parametrize("seed", range(2))
def test_all_ways_choose_the_same_messages(tmp_path: Path, unit: str, seed: int, files: str) -> None:
    rng = random.Random(f"{unit} {seed} {files}")
    written = write_log(tmp_path / "member", unit, rng)
    path = tmp_path / "member"
    if files == "archive":
        path /= "archive"
    elif files == "lost term":
        # The recording log has lost its end: its entries have 64 bytes.
        log = path / "cluster" / "recording.log"
        log.write_bytes(log.read_bytes()[:-64])
    assert time_unit(open_member(path)) == unit
    ticks = TICKS_PER_SECOND[unit]
    for first, last in bounds_of(written, 10**9 // ticks, rng):
        expected = [
            position
            for position, timestamp in written
            if (first is None and last is None)
            or (
                timestamp is not None
                and (first is None or timestamp * (10**9 // ticks) >= first)
                and (last is None or timestamp * (10**9 // ticks) < last)
            )
        ]
        start = {} if first is None else {"startingTimestamp": text_of(first, rng)}
        end = {} if last is None else {"endingTimestamp": text_of(last, rng)}
        if first is not None and last is not None and first > last:
            with pytest.raises(ConfigurationError, match="a batch would have no rows"):
                reader(path, **start, **end)
        else:
            assert batch_of(reader(path, **start, **end)) == expected, (first, last)
        begin, behind = (None if at is None else -(-at * ticks // 10**9) for at in (first, last))
        assert arrow_of(path, Filters(begin_timestamp=begin, end_timestamp=behind)) == expected, (first, last)
        filters: list[Filter] = [] if begin is None else [GreaterThanOrEqual(("timestamp",), begin)]
        filters += [] if behind is None else [LessThan(("timestamp",), behind)]
        narrowed = reader(path)
        narrowed.narrow(filters)
        assert batch_of(narrowed) == expected, (first, last)
        if last is None:
            limit = rng.choice([NOW, ReadMaxRows(25), ReadMaxBytes(50_000)])
            source = stream(path, **start)
            assert streamed(source, source.initialOffset(), limit)[0] == expected, (first, limit)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_from_a_time_reports_the_damage_that_a_batch_does(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    written = write_log(tmp_path / "member", "MICROS", rng)
    for position, _ in rng.sample(written[3:-3], 3):
        base = position - position % TERM_LENGTH
        with (tmp_path / "member" / "archive" / f"0-{base}.rec").open("r+b") as file:
            file.seek(position - base + rng.choice([0, 4, 40]))
            file.write(rng.randbytes(rng.choice([4, 40, 3000])))
    for first, _ in bounds_of(written, 1000, rng):
        if first is not None:
            options = {"startingTimestamp": text_of(first, rng), "mode": "permissive"}
            source = stream(tmp_path / "member", **options)
            rows = streamed(source, source.initialOffset())[0]
            assert sorted(rows) == sorted(batch_of(reader(tmp_path / "member", **options)))


def steps_back(base_dir: Path) -> Written:
    """A leader whose clock is a minute ahead, and the next one, whose clock is not."""
    world = World(base_dir)
    written: Written = []
    for term, begin in enumerate((BEGIN_S * 1000 + 60_000, BEGIN_S * 1000)):
        for number in range(8):
            now = begin + number * 10_000
            if number == 0:
                world.begin_term(timestamp=now)
                written.append((world.log.position, now))
            else:
                written.append((world.log.append(session_message(1, b"x", term=term, timestamp=now)), now))
    world.close()
    return written


def test_a_clock_that_steps_back_leaves_its_messages_out_of_batch_and_stream(tmp_path: Path) -> None:
    written = steps_back(tmp_path / "member")
    middle = BEGIN_S * 1000 + 65_000
    expected = [position for position, timestamp in written if timestamp is not None and timestamp >= middle]
    assert len(expected) == 8
    source = stream(tmp_path / "member", startingTimestamp=str(middle))
    assert batch_of(reader(tmp_path / "member", startingTimestamp=str(middle))) == expected
    assert streamed(source, source.initialOffset())[0] == expected


def test_a_stream_waits_for_a_time_that_has_not_come(tmp_path: Path) -> None:
    written = steps_back(tmp_path / "member")
    known = written[3][0]
    wanted = str(BEGIN_S * 1000 + 95_000)
    early = stream(tmp_path / "member", startingTimestamp=wanted, committed=str(known))
    rows, offset = streamed(early, early.initialOffset())
    assert rows == []
    # The query is started again when more is committed; then the checkpoint says where it began, not the option.
    for again in (wanted, "1971-01-01", "2262-01-01"):
        found, _ = streamed(stream(tmp_path / "member", startingTimestamp=again), offset)
        assert found == [position for position, _ in written[4:8]]
    assert streamed(stream(tmp_path / "member"), offset)[0] == found


def test_what_has_no_time_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = write_log(tmp_path / "member", "MILLIS", random.Random(5))
    untimed = sum(timestamp is None for _, timestamp in written)
    assert untimed
    assert batch_of(reader(tmp_path / "member")) == [position for position, _ in written]
    assert "have no time" not in caplog.text
    assert len(batch_of(reader(tmp_path / "member", startingTimestamp="1971-01-01"))) == len(written) - untimed
    counts = [record.args[0] for record in caplog.records if "have no time" in record.message]  # type: ignore[index]
    assert sum(map(int, counts)) == untimed  # type: ignore[arg-type]
    caplog.clear()
    assert batch_of(reader(tmp_path / "member", view="session_messages", startingTimestamp="1971-01-01"))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("1764324000000", BEGIN_S * 10**9),
        ("2025-11-28T10:00:00Z", BEGIN_S * 10**9),
        ("2025-11-28 11:00:00.000500+01:00", BEGIN_S * 10**9 + 500_000),
        ("2025-11-28T10:00:00.0000005", BEGIN_S * 10**9 + 500),
        ("2025-11-28T10:00:00,123456789Z", BEGIN_S * 10**9 + 123_456_789),
        ("1970-01-21T10:05:24Z", 1_764_324 * 10**9),
    ],
)
def test_times_are_taken_to_the_nanosecond(text: str, nanos: int) -> None:
    bound = parse_options({"path": "/a", "startingTimestamp": text}).starting
    assert bound == Bound("startingTimestamp", timestamp_ns=nanos)
    assert parse_options({"path": "/a", "startingTimestamp": bound.text}).starting == bound


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("1764324000", "in seconds it would be 2025-11-28T10:00:00Z: write that, or 1764324000000"),
        ("1764324000000500", "in microseconds it would be 2025-11-28T10:00:00Z: write that, or 1764324000000"),
        ("1764324000000000500", "in nanoseconds it would be 2025-11-28T10:00:00Z: write that, or 1764324000000"),
        ("20251128", "write a time such as 2026-11-28T10:00:00Z"),
        ("2025", "write a time such as"),
        ("-1", "write a time such as"),
        ("9" * 40, "write a time such as"),
    ],
)
@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
def test_a_number_in_another_unit_is_refused_with_what_it_would_be(name: str, value: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"path": "/a", name: value})
    assert str(caught.value).startswith(f"{name}='{value}': ")
    assert str(caught.value).endswith(hint) or hint in str(caught.value)


def test_what_is_finer_than_nanoseconds_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="up to nine digits behind the second: it is finer than nanoseconds"):
        parse_options({"path": "/a", "endingTimestamp": "2025-11-28T10:00:00.1234567891Z"})


@pytest.mark.parametrize("unit", TICKS_PER_SECOND)
def test_a_filter_in_another_unit_is_a_warning(tmp_path: Path, unit: str, caplog: pytest.LogCaptureFixture) -> None:
    write_log(tmp_path / "member", unit, random.Random(6))
    for other, ticks in (("SECONDS", 1), *TICKS_PER_SECOND.items()):
        caplog.clear()
        arrow_of(tmp_path / "member", Filters(begin_timestamp=BEGIN_S * ticks))
        text = f"begin_timestamp={BEGIN_S * ticks} looks like a time in another unit than the log's"
        assert (text in caplog.text) == (other != unit)
        assert (f"did you mean {BEGIN_S * TICKS_PER_SECOND[unit]}?" in caplog.text) == (other != unit)
