"""The source as a stream: offsets, limits, ends, restarts, what was purged; most of it without a session."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from container.errors import ConfigurationError, RecordingError
from container.spark.options import SourceOptions
from container.spark.source import ClusterDataSource, ClusterStreamReader, arrow_schema, spark_schema
from container.testing.recordings import write_catalog
from tests.recordings_world import SEGMENT_LENGTH, TERM_LENGTH
from tests.spark.written_members import History, WrittenMember

ALL = ReadAllAvailable()


def stream(*members: WrittenMember, **options: Any) -> ClusterStreamReader:
    chosen = SourceOptions(tuple(str(member.base_dir) for member in members), **options)
    return ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))


def rows_between(reader: ClusterStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def positions(member: WrittenMember) -> list[int]:
    return [message["log_position"] for message in member.messages]


def key_of(member: WrittenMember) -> str:
    """What a single member is called whose files have no id."""
    return str(member.archive_dir)


def test_any_offsets_give_each_row_once(member: WrittenMember) -> None:
    reader, key, end = stream(member), key_of(member), member.end_position
    assert reader.initialOffset() == {key: 0}
    assert reader.latestOffset({key: 0}, ALL) == {key: end}
    # Also offsets that are in the middle of a frame, which no limit of ours should give.
    for step in (end, TERM_LENGTH, 10_007, 4_000):
        cuts = [*range(0, end, step), end]
        found = [
            row["log_position"]
            for begin, until in pairwise(cuts)
            for row in rows_between(reader, {key: begin}, {key: until})
        ]
        assert found == positions(member), f"with offsets {step} apart"


def test_limited_batches_end_at_buffer_terms_and_reach_the_end(member: WrittenMember) -> None:
    reader, key, end = stream(member, max_bytes_per_batch=100_000), key_of(member), member.end_position
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(100_000)
    offsets, found = [0], list[int]()
    while offsets[-1] < end:
        offsets.append(reader.latestOffset({key: offsets[-1]}, limit)[key])
        assert 0 < offsets[-1] - offsets[-2] <= 100_000
        found += [row["log_position"] for row in rows_between(reader, {key: offsets[-2]}, {key: offsets[-1]})]
    assert all(offset % TERM_LENGTH == 0 for offset in offsets[:-1])
    assert found == positions(member)
    # Less than a message at a time still gets there.
    assert reader.latestOffset({key: 0}, ReadMaxBytes(10)) == {key: 10}
    assert rows_between(reader, {key: 0}, {key: 10}) == []


def test_a_stream_stops_at_the_commit_position_and_goes_on_behind_it(tmp_path: Path) -> None:
    history = History(tmp_path / "growing")
    history.begin_term()
    history.message(1, b"first")
    history.begin_term()
    committed = history.member.terms[1][1]
    history.message(1, b"not known to be committed")
    grown = history.finish(is_closed=False)
    reader, key = stream(grown), key_of(grown)
    assert reader.latestOffset({key: 0}, ALL) == reader.reportLatestOffset() == {key: committed}
    assert [row["log_position"] for row in rows_between(reader, {key: 0}, {key: committed})] == positions(grown)[:2]
    reader.prepareForTriggerAvailableNow()
    history.message(1, b"second")
    history.finish()
    assert reader.latestOffset({key: 0}, ALL) == {key: committed}, "a trigger reads what there was when it began"
    fresh = stream(grown)
    rows = rows_between(fresh, {key: committed}, fresh.latestOffset({key: committed}, ALL))
    assert [row["log_position"] for row in rows] == positions(grown)[2:]


def test_what_was_committed_stays_so_when_a_crashed_member_knows_less(tmp_path: Path) -> None:
    history = History(tmp_path / "crashed")
    history.begin_term()
    history.message(1, b"committed while the member lived")
    crashed = history.finish(is_closed=False)
    end = history.position
    assert stream(crashed).latestOffset({key_of(crashed): end}, ALL) == {key_of(crashed): end}


def test_purged_positions_end_a_strict_stream_and_are_a_row_of_a_permissive_one(
    member: WrittenMember, tmp_path: Path
) -> None:
    purged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "purged")))
    (purged.archive_dir / "0-0.rec").unlink()
    descriptor, *others = stream(purged)._members[key_of(purged)].recordings()
    begun = {name: getattr(descriptor, name) for name in descriptor.__slots__} | {"start_position": SEGMENT_LENGTH}
    write_catalog(purged.archive_dir, [type(descriptor)(**begun), *others])
    key, end = key_of(purged), member.end_position
    with pytest.raises(RecordingError, match=r"log position 96: the log of member .* begins at 131072: .* purged"):
        stream(purged).partitions({key: 96}, {key: end})
    reader = stream(purged, mode="permissive")
    first, *rest = rows_between(reader, {key: 96}, {key: end})
    assert first["log_position"] == 96
    assert "begins at 131072" in first["error"]
    assert first["payload"] is None
    assert [row["log_position"] for row in rest] == [at for at in positions(member) if at > SEGMENT_LENGTH]
    assert reader.initialOffset() == {key: SEGMENT_LENGTH}


def test_damage_is_one_row_of_a_permissive_stream_whatever_its_offsets(member: WrittenMember, tmp_path: Path) -> None:
    damaged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "damaged")))
    place = next(position for position in positions(member) if position > SEGMENT_LENGTH + 10_000)
    with (damaged.archive_dir / f"0-{SEGMENT_LENGTH}.rec").open("r+b") as file:
        file.seek(place - SEGMENT_LENGTH)
        file.write(b"\5\0\0\0")
    reader, key, end = stream(damaged, mode="permissive"), key_of(damaged), member.end_position
    whole = rows_between(reader, {key: 0}, {key: end})
    assert [row["log_position"] for row in whole if row["error"]] == [place]
    for cut in (place - 32, place - 1, place, place + 1, place + 32):
        parts = [rows_between(reader, {key: begin}, {key: to}) for begin, to in ((0, cut), (cut, end))]
        assert [row for part in parts for row in part] == whole
    # A strict stream gets to the damage, and not behind it.
    strict = stream(damaged)
    assert (
        rows_between(strict, {key: 0}, {key: place}) == [row for row in whole if row["log_position"] < place + 1][:-1]
    )
    with pytest.raises(RecordingError, match=f"log position {place}: frame length 5 is out of range"):
        rows_between(strict, {key: place}, {key: end})


def test_a_checkpoint_of_other_members_is_refused_and_a_new_member_is_read_from_its_beginning(
    member: WrittenMember, tmp_path: Path
) -> None:
    copy = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "copy")))
    both, end = stream(member, copy), member.end_position
    assert both.initialOffset() == {"0": 0, "1": 0}
    assert both.latestOffset({"0": end}, ALL) == {"0": end, "1": end}
    assert len(rows_between(both, {"0": end}, {"0": end, "1": end})) == len(member.messages)
    with pytest.raises(ConfigurationError, match="the checkpoint has positions of member 7, which path does not name"):
        both.latestOffset({"0": 0, "7": 0}, ALL)


@pytest.mark.parametrize("view", ["terms", "snapshots", "recording_log", "recordings"])
def test_views_that_are_not_of_the_log_are_batch_only(member: WrittenMember, view: str) -> None:
    source = ClusterDataSource({"path": str(member.base_dir), "view": view})
    with pytest.raises(ConfigurationError) as caught:
        source.streamReader(source.schema())
    assert str(caught.value) == (
        f"the view {view!r} is not of the log and can only be read as a batch, with spark.read; streams can be made of "
        "frames, messages, sessions, session_messages, timers"
    )
