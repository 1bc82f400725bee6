"""The source as a stream: offsets, limits, ends, restarts, what was purged; most of it without a session."""

from __future__ import annotations

import json
import logging
import shutil
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from container.errors import ConfigurationError, RecordingError
from container.recordings import Member, open_member
from container.spark import FORMAT
from container.spark.offsets import end_positions, parse_offset
from container.spark.options import SourceOptions
from container.spark.source import (
    ClusterDataSource,
    ClusterReader,
    ClusterStreamReader,
    arrow_schema,
    named,
    spark_schema,
)
from container.testing.processes.recordings import write_catalog
from tests.recordings_world import SEGMENT_LENGTH, TERM_LENGTH
from tests.spark.written_members import History, WrittenMember

ALL = ReadAllAvailable()


def stream(*members: WrittenMember, **options: Any) -> ClusterStreamReader:
    """A stream of each of several members, unless the options ask for one log."""
    chosen = SourceOptions(
        tuple(member.path for member in members), storage=members[0].storage, **{"member": "all", **options}
    )
    return ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))


def rows_between(reader: ClusterStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def latest(reader: ClusterStreamReader, start: dict[str, int], limit: ReadLimit = ALL) -> dict[str, int]:
    """The log positions of the latest offset behind some others, which are given as those of version 1."""
    return end_positions(reader.latestOffset(start, limit))


def positions(member: WrittenMember) -> list[int]:
    return [message["log_position"] for message in member.messages]


def key_of(member: WrittenMember) -> str:
    """What a single member is called."""
    return member.key


def test_any_offsets_give_each_row_once(member: WrittenMember) -> None:
    reader, key, end = stream(member), key_of(member), member.end_position
    assert end_positions(reader.initialOffset()) == {key: 0}
    assert latest(reader, {key: 0}) == {key: end}
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
        offsets.append(latest(reader, {key: offsets[-1]}, limit)[key])
        assert 0 < offsets[-1] - offsets[-2] <= 100_000
        found += [row["log_position"] for row in rows_between(reader, {key: offsets[-2]}, {key: offsets[-1]})]
    assert all(offset % TERM_LENGTH == 0 for offset in offsets[:-1])
    assert found == positions(member)
    # Less than a message at a time still gets there.
    assert latest(reader, {key: 0}, ReadMaxBytes(10)) == {key: 10}
    assert rows_between(reader, {key: 0}, {key: 10}) == []


def test_small_batches_read_nothing_twice(tmp_path: Path) -> None:
    history = History(tmp_path / "member", term_length=16 * TERM_LENGTH, segment_length=16 * TERM_LENGTH)
    history.begin_term()
    for number in range(3000):
        history.message(1, bytes([number % 251]) * (5000 if number % 50 == 0 else number % 97))
    written = history.finish()
    assert history.position < 16 * TERM_LENGTH, "one Aeron term"
    reader, key = stream(written, max_bytes_per_batch=40_000), key_of(written)
    offset, found = 0, list[int]()
    while offset < history.position:
        end = latest(reader, {key: offset}, ReadMaxBytes(40_000))[key]
        assert 0 < end - offset <= 40_000
        found += [row["log_position"] for row in rows_between(reader, {key: offset}, {key: end})]
        # What was read is gone: who read it again would find damage.
        with written.archive_dir.joinpath("0-0.rec").open("r+b") as file:
            file.seek(offset)
            file.write(bytes(end - offset))
        offset = end
    assert found == positions(written)


def test_bytes_of_a_message_that_look_like_a_frame_are_not_taken_for_one(tmp_path: Path) -> None:
    history = History(tmp_path / "member", mtu_length=8192)
    history.begin_term()
    begin = history.position
    fake = struct.Struct("<iBBHiiiiq")
    # Wherever the 32 bytes of this payload lie at a multiple of 32, they are a frame of this log but for the session
    # id, which no client knows.
    first = begin + 32 + 32
    payload = b"".join(fake.pack(32, 0, 0xC0, 1, place, 8, 100, 0, 0) for place in range(first, first + 4096, 32))
    history.message(1, payload)
    history.message(1, b"behind")
    written = history.finish()
    reader, key = stream(written, max_bytes_per_batch=1024), key_of(written)
    offset, found = begin, list[int]()
    while offset < history.position:
        end = latest(reader, {key: offset}, ReadMaxBytes(1024))[key]
        found += [row["log_position"] for row in rows_between(reader, {key: offset}, {key: end})]
        offset = end
    assert found == positions(written)[1:]


def test_a_stream_stops_at_the_commit_position_and_goes_on_behind_it(tmp_path: Path) -> None:
    history = History(tmp_path / "growing")
    history.begin_term()
    history.message(1, b"first")
    history.begin_term()
    committed = history.member.terms[1][1]
    history.message(1, b"not known to be committed")
    grown = history.finish(is_closed=False)
    reader, key = stream(grown, committed="known"), key_of(grown)
    assert latest(reader, {key: 0}) == end_positions(reader.reportLatestOffset()) == {key: committed}
    assert [row["log_position"] for row in rows_between(reader, {key: 0}, {key: committed})] == positions(grown)[:2]
    reader.prepareForTriggerAvailableNow()
    history.message(1, b"second")
    history.finish()
    assert latest(reader, {key: 0}) == {key: committed}, "a trigger reads what there was when it began"
    fresh = stream(grown)
    rows = rows_between(fresh, {key: committed}, fresh.latestOffset({key: committed}, ALL))
    assert [row["log_position"] for row in rows] == positions(grown)[2:]


def test_what_was_committed_stays_so_when_a_crashed_member_knows_less(tmp_path: Path) -> None:
    history = History(tmp_path / "crashed")
    history.begin_term()
    history.message(1, b"committed while the member lived")
    crashed = history.finish(is_closed=False)
    end = history.position
    assert latest(stream(crashed, committed="known"), {key_of(crashed): end}) == {key_of(crashed): end}


def test_purged_positions_end_a_strict_stream_and_are_a_row_of_a_permissive_one(
    member: WrittenMember, tmp_path: Path
) -> None:
    purged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "purged")))
    (purged.archive_dir / "0-0.rec").unlink()
    descriptor, *others = open_member(purged.base_dir).recordings()
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
    assert end_positions(reader.initialOffset()) == {key: SEGMENT_LENGTH}


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
    one, two = key_of(member), key_of(copy)
    assert end_positions(both.initialOffset()) == {one: 0, two: 0}
    assert latest(both, {one: end}) == {one: end, two: end}
    assert len(rows_between(both, {one: end}, {one: end, two: end})) == len(member.messages)
    with pytest.raises(ConfigurationError, match="the checkpoint has positions of member 7, which path does not name"):
        both.latestOffset({one: 0, "7": 0}, ALL)


def test_members_without_an_id_keep_their_keys_and_ids_in_any_order_and_number(
    member: WrittenMember, tmp_path: Path
) -> None:
    others = [WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / name))) for name in ("b", "a")]
    alone = stream(others[0])
    read = alone.latestOffset(alone.initialOffset(), ReadMaxBytes(TERM_LENGTH))
    ids: dict[str, int | None] = {key_of(others[0]): None}
    for directories in ([others[1], others[0]], [member, others[1], others[0]], [others[0], member, others[1]]):
        reader = stream(*directories)
        after = reader.latestOffset(read, ReadMaxBytes(3 * TERM_LENGTH))
        for key, one in parse_offset(after).items():
            assert ids.setdefault(key, one.member_id) == one.member_id
        rows = rows_between(reader, read, after)
        begun = end_positions(read)
        for key, end in end_positions(after).items():
            expected = [at for at in positions(member) if begun.get(key, 0) < at <= end]
            assert [row["log_position"] for row in rows if row["member_id"] == ids[key]] == expected
        read = after
    assert len(set(ids.values())) == 3


def test_no_two_members_of_a_query_have_one_id() -> None:
    def member(name: str, member_id: int | None = None) -> Member:
        return Member(name, None, name, member_id)

    def ids(*members: Member, **known: int | None) -> list[int | None]:
        return [one.member_id for one in named(members, known)]

    assert ids(member("a")) == [None]
    assert ids(member("a"), member("b")) == [0, 1]
    assert ids(member("a", 1), member("b"), member("c")) == [1, 0, 2]
    assert ids(member("a"), member("b"), b=0) == [1, 0]
    assert ids(member("a"), member("b"), a=None) == [None, 1]
    # A number that a checkpoint gave to a copy is that of a member which came later.
    assert ids(member("a", 1), member("b"), b=1) == [1, 0]


def rewritten(member: WrittenMember, first_payload: bytes = b"of the new cluster") -> WrittenMember:
    """Wipe a member, and let a cluster begin anew under its path."""
    shutil.rmtree(member.base_dir)
    history = History(member.base_dir)
    history.now_ms += 60_000
    history.begin_term()
    for _ in range(50):
        history.message(1, first_payload)
    return history.finish()


def small_history(base_dir: Path) -> WrittenMember:
    history = History(base_dir)
    history.begin_term()
    for number in range(10):
        history.message(1, b"%d" % number)
    return history.finish()


def test_a_checkpoint_of_another_log_under_the_same_path_is_refused(tmp_path: Path) -> None:
    old = small_history(tmp_path / "member")
    reader, key = stream(old), key_of(old)
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    new = rewritten(old)
    text = (
        rf"the checkpoint has read the log of member {key} to {old.end_position}, and that was another log: recording "
        r"0 of 1970-01-01 00:00:00 UTC, which begins with leadership term 0 of member 0 at 1700000000001, session 7. "
        r"Now there is recording 0 .* at 1700000060001, session 7 in .*archive. The cluster was wiped and started again"
    )
    for later in (stream(new), stream(new, mode="permissive"), reader):
        with pytest.raises(ConfigurationError, match=text):
            later.latestOffset(offset, ALL)
        with pytest.raises(ConfigurationError, match=text):
            later.partitions(later.initialOffset(), offset)
    # Of a checkpoint that has read nothing yet nothing can be lost.
    empty = {**offset, "members": {key: {**offset["members"][key], "position": 0}}}
    assert end_positions(stream(new).latestOffset(empty, ALL)) == {key: new.end_position}


def test_a_member_that_got_its_log_again_is_read_on_and_so_is_a_purged_one(
    member: WrittenMember, tmp_path: Path
) -> None:
    again = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "again")))
    reader, key, end = stream(again), key_of(again), member.end_position
    offset = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(3 * TERM_LENGTH))
    log, *others = open_member(again.base_dir).recordings()
    write_catalog(again.archive_dir, [replace(log, start_timestamp=77), *others])
    after = stream(again).latestOffset(offset, ALL)
    assert end_positions(after) == {key: end}
    assert parse_offset(after)[key].recording == "0@77"
    (again.archive_dir / "0-0.rec").unlink()
    write_catalog(again.archive_dir, [replace(log, start_timestamp=77, start_position=SEGMENT_LENGTH), *others])
    purged = stream(again).latestOffset(after, ALL)
    assert parse_offset(purged) == parse_offset(after)
    # Another recording that begins later is known by the leadership term of what was read last.
    write_catalog(again.archive_dir, [replace(log, start_timestamp=78, start_position=SEGMENT_LENGTH), *others])
    assert end_positions(stream(again).latestOffset(after, ALL)) == {key: end}
    without_term = {**after, "members": {key: {**after["members"][key], "term": None}}}
    with pytest.raises(ConfigurationError, match="and that was another log"):
        stream(again).latestOffset(without_term, ALL)


def test_offsets_have_a_version(member: WrittenMember, caplog: pytest.LogCaptureFixture) -> None:
    reader, key, end = stream(member), key_of(member), member.end_position
    term_began = member.of_template(24)[1]["timestamp"]
    with caplog.at_level(logging.WARNING):
        offset = reader.latestOffset({key: 96}, ALL)
    assert caplog.messages == [
        "the checkpoint has offsets of version 1, which do not say of which log they are: the logs that path names are "
        "taken for those that were read"
    ]
    assert offset == {
        "version": 2,
        "members": {
            key: {
                "position": end,
                "recording": "0@1",
                "first_term": "leadership term 0 of member 0 at 1700000000001, session 7",
                "term": {
                    "leadership_term_id": 1,
                    "base_position": member.terms[1][1],
                    "message": f"leadership term 1 of member 1 at {term_began}, session 7",
                },
            }
        },
    }
    assert json.loads(json.dumps(offset)) == offset
    with pytest.raises(ConfigurationError, match=rf"read the log of member {key} to {end + 32}, and .* another one"):
        reader.latestOffset({key: end + 32}, ALL)
    with pytest.raises(ConfigurationError, match="offsets of version 3, versions 1 and 2 are known"):
        reader.latestOffset({**offset, "version": 3}, ALL)
    for broken in ({"version": 2}, {"version": 2, "members": 5}, {key: "x"}, {"version": 2, "members": {key: {}}}):
        with pytest.raises(ConfigurationError, match="the checkpoint has an offset that this source has not written"):
            reader.latestOffset(broken, ALL)


def test_offsets_of_version_1_called_members_without_an_id_by_their_places(
    member: WrittenMember, tmp_path: Path
) -> None:
    copy = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "copy")))
    both = stream(member, copy)
    assert latest(both, {"0": 96, "1": 192}, ReadMaxBytes(2)) == {key_of(member): 97, key_of(copy): 193}


def test_what_is_recorded_and_not_read_is_a_warning_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(tmp_path / "member")
    history.begin_term(leader_member_id=0)
    history.message(1, b"of the first term")
    history.begin_term(leader_member_id=1)
    history.message(1, b"open")
    member = history.finish(is_closed=False)
    committed, end = member.terms[1][1], member.end_position
    reader, key = stream(member), key_of(member)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            offset = reader.latestOffset(reader.initialOffset(), ALL)
    assert end_positions(offset) == {key: committed}
    (text,) = caplog.messages
    assert f"is recorded to {end} and known to be committed to {committed}: what lies between is left out" in text
    everything = stream(member, committed="recorded")
    with caplog.at_level(logging.WARNING):
        assert end_positions(everything.latestOffset(offset, ALL)) == {key: end}
    assert "all that is recorded counts as committed, as committed=recorded says" in caplog.messages[-1]


def test_a_log_that_ends_before_what_was_read_is_a_warning(
    member: WrittenMember, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shorter = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "member")))
    reader, end = stream(shorter), member.end_position
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    log, *others = open_member(shorter.base_dir).recordings()
    write_catalog(shorter.archive_dir, [replace(log, stop_position=end - 96), *others])
    with caplog.at_level(logging.WARNING):
        assert stream(shorter).latestOffset(offset, ALL) == offset
    lost, behind = caplog.messages
    assert f"the log ends at log position {end - 96}, and by its recording log it was recorded and committed to" in lost
    assert behind == (
        f"the log in {shorter.archive_dir} is recorded to {end - 96}, and the query has read it to {end}: nothing is "
        "read of it until it has come so far again"
    )


def test_an_end_that_is_lost_is_a_warning_of_a_stream_and_an_error_of_a_batch(
    member: WrittenMember, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream has read nothing that is wrong, and goes on when the member has its log again; a batch is not whole."""
    shorter = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "member")))
    key, end = key_of(shorter), member.end_position
    log, *others = open_member(shorter.base_dir).recordings()
    last = positions(member)[-2]
    write_catalog(shorter.archive_dir, [replace(log, stop_position=last), *others])
    reader = stream(shorter)
    text = f"the log ends at log position {last}, and by its recording log it was recorded and committed to {end}: "
    with caplog.at_level(logging.WARNING):
        offset = reader.latestOffset(reader.initialOffset(), ALL)
    assert [text in message for message in caplog.messages] == [True]
    found = [row["log_position"] for row in rows_between(reader, reader.initialOffset(), offset)]
    assert (end_positions(offset), found) == ({key: last}, positions(member)[:-1])
    for committed_only in (False, True):
        options = SourceOptions((str(shorter.base_dir),), mode="permissive", committed_only=committed_only)
        batch = ClusterReader(options, spark_schema(arrow_schema(options)))
        rows = [row for part in batch.partitions() for one in batch.read(part) for row in one.to_pylist()]
        assert [row["log_position"] for row in rows if row["error"] is None] == found
        assert text in rows[-1]["error"]
        strict = ClusterReader(replace_mode(options), spark_schema(arrow_schema(options)))
        with pytest.raises(RecordingError, match="what lies between is lost here"):
            list(strict.read(strict.partitions()[-1]))
    write_catalog(shorter.archive_dir, [log, *others])
    assert latest(reader, offset) == {key: end}


def replace_mode(options: SourceOptions) -> SourceOptions:
    return structs.replace(options, mode="strict")


def test_a_stream_has_no_mode_in_which_a_file_that_is_away_is_passed_over(member: WrittenMember) -> None:
    with pytest.raises(ConfigurationError, match="mode=audit is for batches: .* use strict or permissive"):
        stream(member, mode="audit")


@pytest.mark.parametrize("view", ["terms", "snapshots", "recording_log", "recordings"])
def test_views_that_are_not_of_the_log_are_batch_only(member: WrittenMember, view: str) -> None:
    source = ClusterDataSource({"path": str(member.base_dir), "view": view})
    with pytest.raises(ConfigurationError) as caught:
        source.streamReader(source.schema())
    assert str(caught.value) == (
        f"the view {view!r} is not of the log and can only be read as a batch, with spark.read; streams can be made of "
        "frames, messages, sessions, session_messages, timers"
    )


def test_a_stream_is_counted_in_windows_of_event_time(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    options = {"path": member.path, **member.options, "view": "session_messages", "columns": "event_time"}
    rows = spark.readStream.format(FORMAT).options(**options).load()
    windows = rows.withWatermark("event_time", "1 minute").groupBy(f.window("event_time", "1 second")).count()
    query = (
        windows.writeStream.format("memory")
        .queryName("windows_of_event_time")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120), "waited 120 s for the end of the query"
    found = spark.table("windows_of_event_time").select(f.unix_seconds("window.start").alias("s"), "count").collect()
    expected = Counter(message["timestamp"] // 1000 for message in member.of_template(1))
    assert {row.s: row["count"] for row in found} == expected
    assert len(expected) > 1
