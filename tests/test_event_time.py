"""The column ``event_time``: each unit of cluster time, what has no date, and where the unit is found."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from container.recordings import VIEWS, open_member, read
from container.recordings.arrow import as_times
from container.recordings.cluster_time import known_time_unit, time_unit
from tests.recordings_world import World, marker, new_term, session_message

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
UNITS = ("MILLIS", "MICROS", "NANOS")
NOW_S = 1_700_000_000


def written(base_dir: Path, unit: int, *, has_terms: bool = True, has_snapshot: bool = False) -> Path:
    """A member whose timestamps have a unit."""
    ticks = 1_000 * 1_000**unit
    world = World(base_dir)
    if has_terms:
        world.bases.append(0)
        world.log.append(new_term(0, 0, timestamp=NOW_S * ticks, time_unit=unit))
    world.log.append(session_message(1, b"x", timestamp=NOW_S * ticks + 1))
    if has_snapshot:
        begin, end = (
            marker(mark, position=world.log.position, leadership_term_id=0, time_unit=unit) for mark in (0, 2)
        )
        world.add_snapshot(0, [begin, end], world.log.position, leadership_term_id=0)
    world.close()
    return base_dir


@pytest.mark.parametrize("unit", UNITS)
def test_timestamps_are_times_rounded_down(unit: str) -> None:
    per_second = {"MILLIS": 1_000, "MICROS": 1_000_000, "NANOS": 1_000_000_000}[unit]
    first, end = -62_135_596_800 * per_second, 253_402_300_800 * per_second
    given = [0, 1, -1, 999, -999, 1_000, -1_000, 1_001, -1_001, NOW_S * per_second + 7, None]
    given += [value for value in (first, first - 1, end, end - 1) if -(2**63) <= value < 2**63]
    given += [-(2**63), 2**63 - 1]
    expected = []
    for value in given:
        is_date = value is not None and first <= value < end
        micros = value * 1_000_000 // per_second if value is not None else 0
        expected.append(EPOCH + datetime.timedelta(microseconds=micros) if is_date else None)
    found = as_times(pa.array(given, pa.int64()), unit)
    found.validate(full=True)
    assert found.type == pa.timestamp("us", tz="UTC")
    assert found.to_pylist() == expected
    assert as_times(pa.array([], pa.int64()), unit).type == found.type
    assert as_times(pa.array([None], pa.int64()), unit).to_pylist() == [None]
    assert as_times(pa.array(given, pa.int64()).slice(3, 2), unit).to_pylist() == expected[3:5]


@pytest.mark.parametrize("unit", range(3))
@pytest.mark.parametrize(("has_terms", "has_snapshot"), [(True, False), (True, True), (False, True)])
def test_the_unit_is_found_in_the_log_and_in_snapshots(
    tmp_path: Path, unit: int, has_terms: bool, has_snapshot: bool
) -> None:
    written(tmp_path, unit, has_terms=has_terms, has_snapshot=has_snapshot)
    assert time_unit(open_member(tmp_path)) == UNITS[unit]
    (batch,) = read(tmp_path, "session_messages", columns=["event_time"], committed="recorded")
    micros = NOW_S * 1_000_000 + (1_000, 1, 0)[unit]
    assert batch.to_pylist() == [{"event_time": EPOCH + datetime.timedelta(microseconds=micros)}]


def test_a_log_that_says_nothing_has_milliseconds(tmp_path: Path) -> None:
    written(tmp_path, 0, has_terms=False)
    assert time_unit(open_member(tmp_path)) == "MILLIS"
    shutil.rmtree(tmp_path / "archive")
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "archive.catalog").write_bytes(b"damaged")
    assert time_unit(open_member(tmp_path)) == "MILLIS"


def test_of_several_members_the_first_that_says_it_counts(tmp_path: Path) -> None:
    pipeline_time = pytest.importorskip("container.pipeline.cluster_time")
    silent = open_member(written(tmp_path / "silent", 2, has_terms=False))
    speaking = open_member(written(tmp_path / "speaking", 2))
    assert (known_time_unit(silent), known_time_unit(speaking)) == (None, "NANOS")
    assert pipeline_time.time_unit([silent, speaking]).name == "NANOS"
    assert pipeline_time.time_unit([silent]).name == pipeline_time.time_unit([]).name == "MILLIS"


def test_another_cluster_under_the_same_path_has_its_own_unit(tmp_path: Path) -> None:
    for number in range(12):
        unit = number % 3
        written(tmp_path / "member", unit)
        assert time_unit(open_member(tmp_path / "member")) == UNITS[unit]
        # Removed files may leave their inodes to the next ones.
        shutil.rmtree(tmp_path / "member")


def test_each_view_has_the_column(tmp_path: Path) -> None:
    written(tmp_path, 1, has_snapshot=True)
    for view in VIEWS:
        rows = [row for batch in read(tmp_path, view, columns=["event_time"]) for row in batch.to_pylist()]
        assert rows or view in ("sessions", "timers"), view
        assert not rows or any(row["event_time"] is not None for row in rows), view
