"""Several members as one log: who is read, who takes over when it fails or lags, each row once."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.files.recording_log import RecordingLogEntry, read_recording_log
from container.pipeline.ingest import ingest, read_table
from container.pipeline.manifest import MemberPositions, PositionRange
from container.pipeline.ship import Shipper
from container.pipeline.ship_place import open_place
from container.recordings import open_member, plan
from container.spark import cluster_log
from container.spark.cluster_log import ClusterPartition, MemberLog
from container.spark.offsets import end_positions
from container.spark.options import Bound, SourceOptions, parse_options
from container.spark.source import (
    ClusterReader,
    ClusterStreamReader,
    arrow_schema,
    open_source_members,
    spark_schema,
)
from container.testing.processes.recordings import write_catalog, write_recording_log
from tests.recordings_world import SEGMENT_LENGTH, write_mark
from tests.spark.written_members import History, WrittenMember, write_history

NOW = ReadAllAvailable()


def copied(member: WrittenMember, base_dir: Path) -> WrittenMember:
    """Another member of the same cluster: the same log in another archive."""
    return WrittenMember(Path(shutil.copytree(member.base_dir, base_dir)), member.messages, member.terms)


def options_of(*members: WrittenMember | Path, **options: Any) -> SourceOptions:
    paths = tuple(str(one.base_dir if isinstance(one, WrittenMember) else one) for one in members)
    return SourceOptions(paths, **options)


def batch(*members: WrittenMember | Path, **options: Any) -> ClusterReader:
    chosen = options_of(*members, **options)
    return ClusterReader(chosen, spark_schema(arrow_schema(chosen)))


def stream(*members: WrittenMember | Path, **options: Any) -> ClusterStreamReader:
    chosen = options_of(*members, **options)
    return ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))


def rows_of(reader: ClusterReader | ClusterStreamReader, partitions: list[Any]) -> list[dict[str, Any]]:
    """The rows of partitions that were sent to an executor."""
    sent = [pickle.loads(pickle.dumps(partition)) for partition in partitions]
    return [row for partition in sent for one in reader.read(partition) for row in one.to_pylist()]


def positions(member: WrittenMember) -> list[int]:
    return [message["log_position"] for message in member.messages]


def places(rows: list[dict[str, Any]]) -> list[int]:
    return [row["log_position"] for row in rows]


@pytest.fixture
def three(member: WrittenMember, tmp_path: Path) -> list[WrittenMember]:
    return [copied(member, tmp_path / f"member-{number}") for number in range(3)]


def damage(member: WrittenMember, position: int) -> None:
    """Overwrite the length of the frame that begins at a position."""
    base = position - position % SEGMENT_LENGTH
    with (member.archive_dir / f"0-{base}.rec").open("r+b") as file:
        file.seek(position - base)
        file.write(b"\5\0\0\0")


def cut(member: WrittenMember, position: int) -> None:
    """Have a member's log end at a position."""
    log, *others = open_member(member.base_dir).recordings()
    write_catalog(member.archive_dir, [replace(log, stop_position=position), *others])


def purge(member: WrittenMember, count: int = 1) -> None:
    """Remove the first segments of a member's log."""
    log, *others = open_member(member.base_dir).recordings()
    for number in range(count):
        (member.archive_dir / f"0-{number * SEGMENT_LENGTH}.rec").unlink()
    write_catalog(member.archive_dir, [replace(log, start_position=count * SEGMENT_LENGTH), *others])


def test_members_are_one_table_unless_all_or_one_is_asked_for(three: list[WrittenMember]) -> None:
    once = positions(three[0])
    one = batch(*three)
    rows = rows_of(one, one.partitions())
    assert (places(rows), {row["member_id"] for row in rows}) == (once, {0})
    each = batch(*three, member="all")
    assert sorted(places(rows_of(each, each.partitions()))) == sorted(3 * once)
    second = batch(*three, member=1)
    rows = rows_of(second, second.partitions())
    assert (places(rows), {row["member_id"] for row in rows}) == (once, {1})
    with pytest.raises(
        ConfigurationError, match="member=5: path names no such member; the ids of its members: 0, 1, 2"
    ):
        batch(*three, member=5).partitions()


@pytest.mark.parametrize("text", ["", "some", "-1", "1.5", "99999999999", "ANY"])
def test_the_option_is_any_all_or_an_id(text: str) -> None:
    with pytest.raises(ConfigurationError, match="member=.*: must be any .*, all .*, or the id of a member"):
        parse_options({"path": "/x", "member": text})


@pytest.mark.parametrize("view", ["messages", "sessions", "session_messages", "timers", "frames", "terms", "snapshots"])
def test_each_view_is_read_from_one_member(three: list[WrittenMember], view: str) -> None:
    one, single = batch(*three, view=view), batch(three[0], view=view)
    rows, expected = rows_of(one, one.partitions()), rows_of(single, single.partitions())
    assert len(rows) > 0
    assert rows == [row | {"member_id": 0} for row in expected]


def test_a_member_that_is_not_there_or_behind_is_passed_over(
    three: list[WrittenMember], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(three[0].base_dir)
    log, *others = open_member(three[1].base_dir).recordings()
    write_catalog(three[1].archive_dir, [replace(log, stop_position=three[1].messages[700]["log_position"]), *others])
    one = batch(*three)
    rows = rows_of(one, one.partitions())
    assert places(rows) == positions(three[2])
    assert {row["member_id"] for row in rows} == {2}
    assert len(open_source_members(options_of(*three))) == 2
    shutil.rmtree(three[2].base_dir)
    shutil.rmtree(three[1].base_dir)
    with pytest.raises(RecordingUnavailableError, match=f"{three[0].base_dir}: is not a directory"):
        batch(*three).partitions()
    with pytest.raises(RecordingUnavailableError, match="is not a directory"):
        stream(*three)


class Counted(list[RecordingLogEntry]):
    """Counts how often someone goes through it."""

    passes = 0

    def __iter__(self) -> Iterator[RecordingLogEntry]:
        self.passes += 1
        return super().__iter__()


def test_the_terms_of_a_log_are_gone_through_once_whatever_the_number_of_partitions(member: WrittenMember) -> None:
    opened = open_member(member.base_dir)
    log = opened.log()
    terms = Counted(log.terms)
    found = MemberLog(opened, replace(log, terms=terms))
    passes = terms.passes
    for position in range(SEGMENT_LENGTH // 64, member.end_position, SEGMENT_LENGTH // 64):
        term = found.term_before(position)
        assert term is not None
        assert term.leadership_term_id == sum(base < position for _, base in member.terms) - 1
    assert found.term_before(0) is None
    assert terms.passes <= passes + 3, "for whether the newest is named, but not for each position"


def test_one_that_is_missing_counts_for_the_majority(tmp_path: Path) -> None:
    """Of five members two are away; of the others two have a tail that the cluster may not have."""
    history = History(tmp_path / "member-0")
    history.begin_term(0)
    history.begin_term(1)
    history.message(1, b"two of five have it" * 10)
    first = history.finish(is_closed=False)
    second, third = (copied(first, tmp_path / f"member-{number}") for number in (1, 2))
    log, *others = open_member(third.base_dir).recordings()
    write_catalog(third.archive_dir, [replace(log, stop_position=positions(first)[1]), *others])
    away = [tmp_path / "away-3", tmp_path / "away-4"]
    reader = stream(first, second, third, *away)
    assert end_positions(reader.latestOffset(reader.initialOffset(), NOW)) == {"any": positions(first)[1]}


def test_members_of_two_clusters_are_no_table(member: WrittenMember, tmp_path: Path) -> None:
    other = History(tmp_path / "other")
    other.now_ms += 7
    other.begin_term()
    two = member, other.finish()
    for make in (lambda: batch(*two).partitions(), lambda: stream(*two).initialOffset()):
        with pytest.raises(ConfigurationError, match=r"members of two clusters: the log in .* Name those of one"):
            make()


def test_members_that_cannot_be_of_one_cluster_are_no_table(three: list[WrittenMember], tmp_path: Path) -> None:
    """One has purged the message by which its cluster would be known."""
    log, *others = open_member(three[0].base_dir).recordings()
    (three[0].archive_dir / "0-0.rec").unlink()
    write_catalog(three[0].archive_dir, [replace(log, start_position=SEGMENT_LENGTH), *others])
    other = write_history(tmp_path / "other", message_count=1600)
    assert batch(three[0], three[1]).partitions()
    with pytest.raises(ConfigurationError, match=r"have different histories: at log position .* leadership term 1"):
        batch(three[0], other).partitions()


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("mode", ["strict", "permissive"])
def test_damage_of_one_member_is_read_from_another(
    three: list[WrittenMember], mode: str, is_timed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of them is damaged, at another place, which a third one has: no row is missing and none is there twice."""
    begin = Bound("startingTimestamp", timestamp_ns=three[0].messages[151]["timestamp"] * 1_000_000)
    options: dict[str, Any] = {"starting": begin} if is_timed else {}
    for number, index in enumerate((200, 300, 900)):
        damage(three[number], positions(three[number])[index])
    once = positions(three[0])
    one = batch(*three, mode=mode, batch_rows=50)
    rows = rows_of(one, one.partitions())
    assert places(rows) == once
    assert [row["payload"] for row in rows] == [message.get("payload") for message in three[0].messages]
    assert {row["error"] for row in rows} == {None}
    assert {row["member_id"] for row in rows} == {0, 1, 2}
    assert "cannot be read from log position" in caplog.text
    for limit in (ReadMaxBytes(50_000), ReadMaxBytes(3_000), ReadMaxRows(70)):
        live = stream(*three, mode=mode, batch_rows=50, **options)
        offset, found = live.initialOffset(), list[int]()
        while (after := live.latestOffset(offset, limit)) != offset:
            found += places(rows_of(live, live.partitions(offset, after)))
            offset = json.loads(json.dumps(after))
        assert found == [at for at in once if at > (once[150] if options else 0)]


def test_what_no_member_has_is_an_error_or_a_row(three: list[WrittenMember]) -> None:
    at = positions(three[0])[400]
    for member in three:
        damage(member, at)
    strict, permissive = batch(*three), batch(*three, mode="permissive")
    with pytest.raises(RecordingError, match=f"log position {at}: frame length 5 is out of range"):
        rows_of(strict, strict.partitions())
    rows = rows_of(permissive, permissive.partitions())
    assert [row["log_position"] for row in rows if row["error"]] == [at]
    single = batch(three[0], mode="permissive")
    expected = rows_of(single, single.partitions())
    assert [row | {"member_id": None} for row in rows] == expected


def test_a_pattern_names_members_of_one_log(three: list[WrittenMember], tmp_path: Path) -> None:
    """However many it matches: each row is there once, and what is damaged everywhere is known to be so."""
    once, pattern = positions(three[0]), tmp_path / "member-[0-2]"
    for make in (batch, stream):
        reader = make(pattern, mode="permissive")
        if isinstance(reader, ClusterReader):
            assert places(rows_of(reader, reader.partitions())) == once
            continue
        begin = reader.initialOffset()
        assert begin["members"].keys() == {"any"}
        assert places(rows_of(reader, reader.partitions(begin, reader.latestOffset(begin, NOW)))) == once
    for member in three:
        damage(member, once[400])
    reader = batch(pattern, mode="permissive")
    rows = rows_of(reader, reader.partitions())
    assert [row["log_position"] for row in rows if row["error"]] == [once[400]]
    each = batch(pattern, mode="permissive", member="all")
    assert len(rows_of(each, each.partitions())) == 3 * len(rows)


def test_a_task_goes_on_with_another_member_when_files_vanish(three: list[WrittenMember]) -> None:
    one = batch(*three, batch_rows=20)
    partitions = one.partitions()
    rows = list[dict[str, Any]]()
    for number, partition in enumerate(partitions):
        batches = one.read(partition)
        rows += next(batches).to_pylist()
        if number == 1:
            for file in three[0].archive_dir.glob("0-*.rec"):
                file.unlink()
        rows += [row for following in batches for row in following.to_pylist()]
    assert places(rows) == positions(three[0])
    assert {row["member_id"] for row in rows} == {0, 1}


def test_a_member_that_was_begun_anew_does_not_take_over(three: list[WrittenMember]) -> None:
    """Its log is another one by now, though it has the same positions."""
    one = batch(*three)
    partitions = one.partitions()
    for member in three[:2]:
        shutil.rmtree(member.base_dir)
    history = write_history(three[1].base_dir, message_count=10)
    assert history.messages
    rows = rows_of(one, partitions)
    assert (places(rows), {row["member_id"] for row in rows}) == (positions(three[2]), {2})
    shutil.rmtree(three[2].base_dir)
    with pytest.raises(RecordingUnavailableError):
        rows_of(one, partitions)


def test_an_old_leader_s_tail_takes_no_part(tmp_path: Path) -> None:
    """It recorded as far as the others, and what it has there was never committed."""
    base = History(tmp_path / "member-0")
    base.begin_term(0)
    base.message(1, b"all have it")
    shorter = base.position
    base.begin_term(1)
    base.message(1, b"new leader's")
    cluster = base.finish(is_closed=False)
    old = History(tmp_path / "old")
    old.begin_term(0)
    for payload in (b"all have it", b"never committed", b"nor this", b"nor that"):
        old.message(1, payload)
    tail = old.finish(is_closed=False)
    assert positions(tail)[1] == shorter
    assert tail.end_position >= cluster.end_position
    other = copied(cluster, tmp_path / "member-1")
    for directories in ([tail, cluster, other], [cluster, tail, other]):
        reader = batch(*directories, committed_only=True)
        partitions = reader.partitions()
        rows = rows_of(reader, partitions)
        assert [row["payload"] for row in rows if row["payload"]] == [b"all have it", b"new leader's"]
        for partition in partitions:
            assert isinstance(partition, ClusterPartition)
            if partition.value.begin_position >= shorter and partition.takeover is not None:
                assert str(tail.base_dir) not in [member.path for member in partition.takeover.members]
        live = stream(*directories)
        offset = live.latestOffset(live.initialOffset(), NOW)
        assert end_positions(offset) == {"any": cluster.end_position}
        for directory in (cluster.base_dir, other.base_dir):
            directory.rename(directory.with_suffix(".away"))
        # Only the old leader is left: what the others had is not read from it, and nothing is taken for read.
        with pytest.raises(RecordingUnavailableError, match="no member has the log that was read up to"):
            live.partitions(live.initialOffset(), offset)
        assert end_positions(live.latestOffset(offset, NOW)) == {"any": cluster.end_position}
        for directory in (cluster.base_dir, other.base_dir):
            directory.with_suffix(".away").rename(directory)


def test_damage_that_hides_the_end_of_a_log_is_no_vote(tmp_path: Path) -> None:
    """The log is taken to go on to the end of the Aeron term, so that the damage is read, and does not count for it."""
    members = []
    for number, count in enumerate((5, 5, 9)):
        history = History(tmp_path / f"member-{number}")
        history.begin_term(2)
        for index in range(count):
            history.message(1, b"%d" % index)
        members.append(history.finish(is_closed=False))
        log, *others = open_member(members[-1].base_dir).recordings()
        write_catalog(members[-1].archive_dir, [replace(log, stop_position=-1), *others])
    damage(members[0], positions(members[0])[4])
    for order in (members, members[::-1]):
        reader = stream(*order)
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, NOW)
        assert end_positions(end) == {"any": members[1].end_position}
        assert places(rows_of(reader, reader.partitions(begin, end))) == positions(members[1])


def test_a_recording_log_that_lost_its_end_agrees_with_no_old_leader(tmp_path: Path) -> None:
    """By what is left of it both were in the old leader's term, and only one of them has what was committed."""
    base, old = History(tmp_path / "member-0"), History(tmp_path / "old")
    for history in (base, old):
        history.begin_term(0)
        history.message(1, b"all have it")
    base.begin_term(1)
    for number in range(6):
        base.message(1, b"new leader's %d" % number)
        old.message(1, b"never committed %d" % number)
    short, tail = base.finish(is_closed=False), old.finish(is_closed=False)
    whole = copied(short, tmp_path / "member-2")
    cluster_dir = short.base_dir / "cluster"
    write_recording_log(cluster_dir, list(read_recording_log(cluster_dir))[:1])
    for two in ([tail, short], [short, tail]):
        reader = batch(*two, tmp_path / "away", committed_only=True)
        rows = rows_of(reader, reader.partitions())
        assert [row["payload"] for row in rows if row["payload"]] == [b"all have it"]
    for directories in ([tail, short, whole], [whole, short, tail]):
        reader = batch(*directories, committed_only=True)
        assert places(rows_of(reader, reader.partitions())) == positions(whole)
        live = stream(*directories)
        end = live.latestOffset(live.initialOffset(), NOW)
        assert end_positions(end) == {"any": whole.end_position}
        assert places(rows_of(live, live.partitions(live.initialOffset(), end))) == positions(whole)


def test_a_stream_goes_on_with_whoever_has_the_log(three: list[WrittenMember]) -> None:
    """At each step another member is away; the checkpoint is of no member."""
    first = stream(*three)
    offset, found, seen = first.initialOffset(), list[int](), set[int]()
    for step in range(60):
        away = three[step % 3].base_dir
        away.rename(away.with_suffix(".away"))
        reader = first if step % 2 else stream(*three)
        after = json.loads(json.dumps(reader.latestOffset(offset, ReadMaxRows(40))))
        rows = rows_of(reader, reader.partitions(offset, after))
        assert len(rows) <= 40
        found, offset = found + places(rows), after
        seen |= {row["member_id"] for row in rows}
        away.with_suffix(".away").rename(away)
    assert found == positions(three[0])
    assert len(seen) > 1
    assert offset["members"].keys() == {"any"}


def test_a_member_that_is_away_is_a_warning_once(three: list[WrittenMember], caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(three[1].base_dir)
    reader = stream(*three)
    for _ in range(5):
        reader.latestOffset(reader.initialOffset(), NOW)
    (text,) = caplog.messages
    assert text.startswith(f"{three[1].base_dir} is not read, and another member is: ")


def test_a_batch_that_was_planned_waits_for_a_log_that_is_shorter_now(three: list[WrittenMember]) -> None:
    """Spark repeats the batch after a crash: with fewer rows these would never be read."""
    for members in (three[:1], three):
        reader = stream(*members)
        offset = reader.latestOffset(reader.initialOffset(), NOW)
        kept = {}
        for member in members:
            log, *others = kept[member.base_dir] = open_member(member.base_dir).recordings()
            write_catalog(member.archive_dir, [replace(log, stop_position=positions(member)[800]), *others])
        with pytest.raises(RecordingUnavailableError, match="the batch from 0 on cannot be read now"):
            reader.partitions(reader.initialOffset(), offset)
        for member in members:
            write_catalog(member.archive_dir, kept[member.base_dir])
        assert places(rows_of(reader, reader.partitions(reader.initialOffset(), offset))) == positions(three[0])


def test_a_stream_of_one_member_becomes_one_of_its_cluster_and_back(three: list[WrittenMember]) -> None:
    alone = stream(three[0])
    begun = alone.latestOffset(alone.initialOffset(), ReadMaxBytes(100_000))
    several = stream(*three)
    then = several.latestOffset(begun, ReadMaxBytes(100_000))
    (first,), (second,) = end_positions(begun).values(), end_positions(then).values()
    assert places(rows_of(several, several.partitions(begun, then))) == [
        at for at in positions(three[0]) if first < at <= second
    ]
    last = stream(three[2])
    end = last.latestOffset(then, NOW)
    assert [*end_positions(end).values()] == [three[0].end_position]
    both = stream(*three[:2], member="all")
    with pytest.raises(ConfigurationError, match="made with member=all"):
        several.latestOffset(both.initialOffset(), NOW)
    with pytest.raises(ConfigurationError, match="positions of member any, which path does not name"):
        both.latestOffset(then, NOW)


def test_the_begin_that_one_member_purged_is_read_from_another(three: list[WrittenMember]) -> None:
    purge(three[0])
    reader = stream(*three)
    begin = reader.initialOffset()
    assert end_positions(begin) == {"any": 0}
    assert places(rows_of(reader, reader.partitions(begin, reader.latestOffset(begin, NOW)))) == positions(three[0])


def test_a_batch_has_what_any_member_has_not_purged(three: list[WrittenMember]) -> None:
    once = positions(three[0])
    purge(three[0], 2)
    reader = batch(*three)
    rows = rows_of(reader, reader.partitions())
    assert (places(rows), {row["member_id"] for row in rows}) == (once, {1})
    purge(three[1])
    cut(three[1], once[1400])
    cut(three[2], once[700])
    for options in ({}, {"committed_only": True}, {"committed": "known"}):
        reader = batch(*three, **options)
        rows = rows_of(reader, reader.partitions())
        assert places(rows) == once
        assert all(row["committed"] for row in rows)
        assert [row["member_id"] for row in rows] == [
            2 if at <= SEGMENT_LENGTH else 1 if at <= 2 * SEGMENT_LENGTH else 0 for at in once
        ]
    reader = batch(*three, view="terms")
    assert len(rows_of(reader, reader.partitions())) > 0
    # What lies between two logs nobody has: the one that goes on begins there.
    cut(three[2], SEGMENT_LENGTH - 32)
    reader = batch(*three)
    assert places(rows_of(reader, reader.partitions())) == [at for at in once if at > SEGMENT_LENGTH]


def test_who_takes_the_place_of_one_that_can_not_be_planned_gives_no_row_twice(
    three: list[WrittenMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other one has purged was planned from it already."""
    once = positions(three[0])
    purge(three[0])
    for behind in three[1:]:
        cut(behind, once[1400])
        entries = list(read_recording_log(behind.base_dir / "cluster"))
        ends = [replace(one, log_position=-1) if one.log_position > once[1400] else one for one in entries]
        write_recording_log(behind.base_dir / "cluster", ends)

    def plan_others(members: Any, *of: Any, **options: Any) -> list[Any]:
        if members[0].path == str(three[0].base_dir):
            raise RecordingUnavailableError("it cannot be fetched")
        return list(plan(members, *of, **options))

    monkeypatch.setattr(cluster_log, "plan", plan_others)
    reader = batch(*three)
    assert places(rows_of(reader, reader.partitions())) == once[:1401]
    purge(three[1], 2)
    purge(three[2], 2)
    reader = batch(*three, view="snapshots")
    assert {row["member_id"] for row in rows_of(reader, reader.partitions())} <= {1, 2}


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_purged_or_gone_between_a_look_and_the_plan_is_not_left_out(
    three: list[WrittenMember], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A stream goes on behind the batch: rows that are not planned would never be read."""
    purge(three[1])
    reader = stream(*three[:count])
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, NOW)
    happens = [lambda: purge(three[0]) if count == 1 else shutil.rmtree(three[0].base_dir)]

    def plan_then(*of: Any, **options: Any) -> list[Any]:
        while happens:
            happens.pop()()
        return list(plan(*of, **options))

    monkeypatch.setattr(cluster_log, "plan", plan_then)
    with pytest.raises(RecordingUnavailableError):
        rows_of(reader, reader.partitions(begin, end))


@pytest.mark.parametrize("mode", ["strict", "permissive"])
def test_a_batch_is_read_from_two_members_where_none_has_all_of_it_any_more(
    three: list[WrittenMember], mode: str
) -> None:
    """It was planned with one that has gone since."""
    reader = stream(*three)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, NOW)
    purge(three[0])
    cut(three[1], positions(three[0])[800])
    shutil.rmtree(three[2].base_dir)
    for members in (three, three[:2]):
        again = stream(*members, mode=mode)
        rows = rows_of(again, again.partitions(begin, end))
        assert places(rows) == positions(three[0])
        assert {(row["member_id"], row["log_position"] <= SEGMENT_LENGTH) for row in rows} == {(1, True), (0, False)}
        assert all(row["committed"] for row in rows)


def test_a_batch_that_ends_before_a_purged_log_begins_is_not_read_beyond_its_end(three: list[WrittenMember]) -> None:
    """It was made without a recording log, so only what is known to be committed is known for the same log."""
    purged, other = three[:2]
    purge(purged, 2)
    log, *others = open_member(other.base_dir).recordings()
    write_catalog(other.archive_dir, [replace(log, start_timestamp=log.start_timestamp + 1), *others])
    entries = [one for one in read_recording_log(other.base_dir / "cluster") if one.is_term]
    write_recording_log(other.base_dir / "cluster", [*entries[:-1], replace(entries[-1], log_position=-1)])
    reader = stream(purged, other, committed="known")
    begin = reader.initialOffset()
    end = {**begin["members"]["any"], "recording": f"0@{log.start_timestamp}"}
    end["position"] = next(at for at in positions(other) if at > other.terms[1][1] + 1000)
    found = places(rows_of(reader, reader.partitions(begin, {"version": 2, "members": {"any": end}})))
    assert found == [at for at in positions(other) if at <= end["position"]]


def test_a_log_that_was_begun_anew_is_not_read_as_the_one_that_was_planned(tmp_path: Path) -> None:
    """Its files have the names of those that were wiped."""

    def begin(name: bytes) -> WrittenMember:
        history = History(tmp_path / "member")
        history.begin_term()
        history.message(1, name)
        return history.finish()

    reader = stream(begin(b"old"))
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, NOW))
    (row,) = (row for row in rows_of(reader, partitions) if row["payload"] is not None)
    assert row["payload"] == b"old"
    shutil.rmtree(tmp_path / "member")
    log, *others = open_member(begin(b"new").base_dir).recordings()
    write_catalog(tmp_path / "member" / "archive", [replace(log, start_timestamp=log.start_timestamp + 1), *others])
    with pytest.raises(RecordingUnavailableError, match="recording 0 is another one than when the query was planned"):
        rows_of(reader, partitions)
    # What is behind the log's own entry in the catalog is not looked at.
    replacement = replace(log, start_timestamp=log.start_timestamp + 1)
    catalog = write_catalog(tmp_path / "member" / "archive", [replacement, replace(log, recording_id=1)])
    catalog.write_bytes(catalog.read_bytes().rstrip(b"\0")[:-64])
    with pytest.raises(RecordingUnavailableError, match="recording 0 is another one than when the query was planned"):
        rows_of(reader, partitions)


def test_what_a_batch_was_to_read_is_committed_also_when_nobody_runs_any_more(tmp_path: Path) -> None:
    """A repeated batch has the same rows, and what is lost of it since the plan is an error and no election's work."""
    history = History(tmp_path / "member")
    for payloads in ([b"a"], [b"b", b"c"]):
        history.begin_term()
        for payload in payloads:
            history.message(1, payload)
    member = history.finish(is_closed=False)
    cut(member, -1)
    reader = stream(member, committed="recorded")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, NOW)
    rows = rows_of(reader, reader.partitions(begin, end))
    assert all(row["committed"] for row in rows)
    again = stream(member, committed="known")
    assert end_positions(again.latestOffset(begin, NOW)) != end_positions(end)
    partitions = again.partitions(begin, end)
    assert rows_of(again, partitions) == rows
    with (member.archive_dir / "0-0.rec").open("r+b") as file:
        file.seek(positions(member)[-2])
        file.write(bytes(SEGMENT_LENGTH - file.tell()))
    with pytest.raises(RecordingError):
        rows_of(again, partitions)


def test_a_member_that_is_behind_and_has_not_purged_does_not_end_the_log(three: list[WrittenMember]) -> None:
    """It is read first. Where the log ends, and what lies behind its own end, another one says."""
    purge(three[0])
    once = positions(three[0])
    cut(three[1], once[800])

    def read(**options: Any) -> list[int]:
        reader, found = stream(*three[:2], committed="recorded", **options), list[int]()
        reader.prepareForTriggerAvailableNow()
        offset = reader.initialOffset()
        while (after := reader.latestOffset(offset, NOW)) != offset:
            found += places(rows_of(reader, reader.partitions(offset, after)))
            offset = after
        assert end_positions(offset) == end_positions(reader.reportLatestOffset()) == {"any": once[-1]}
        return found

    assert read() == once
    assert read(starting=Bound("startingOffsets", word="latest")) == []
    for at in (700, 800, 801, 900):
        assert read(starting=Bound("startingPosition", position=once[at - 1])) == once[at:]
        time_ms = three[0].messages[at]["timestamp"]
        assert read(starting=Bound("startingTimestamp", timestamp_ns=time_ms * 1_000_000)) == once[at:]
    with pytest.raises(ConfigurationError, match=rf"member any, which is committed to {once[-1]}$"):
        read(starting=Bound("startingPosition", position=once[-1] + 32))


def test_a_shipped_place_that_was_changed_gives_no_row_where_another_member_has_it(
    three: list[WrittenMember], tmp_path: Path
) -> None:
    """Rows that were given before the end of the object showed it would stay."""
    place = tmp_path / "place"
    write_mark(three[0].base_dir, 0)
    Shipper(open_member(three[0].base_dir), open_place(str(place), {})).run()
    write_mark(three[1].base_dir, 1)
    segment = place / "archive" / "0-0.rec"
    content = bytearray(segment.read_bytes())
    changed = next(one for one in three[0].of_template(1) if len(one["payload"]) > 1000)
    content[changed["log_position"] - 100] ^= 0xFF
    segment.write_bytes(content)
    reader = batch(place, three[1], batch_rows=1)
    found = rows_of(reader, reader.partitions())
    assert places(found) == positions(three[0])
    payloads = {row["log_position"]: row["payload"] for row in found}
    assert payloads[changed["log_position"]] == changed["payload"]
    assert {row["member_id"] for row in found} == {0, 1}


@pytest.mark.parametrize("count", [1, 3])
def test_a_stream_that_begins_where_the_log_ends_warns_of_nothing(
    three: list[WrittenMember], count: int, caplog: pytest.LogCaptureFixture
) -> None:
    end = three[0].end_position
    for given in (Bound("startingPosition", position=end), Bound("startingOffsets", word="latest")):
        reader = stream(*three[:count], committed="recorded", starting=given)
        begin = reader.initialOffset()
        assert set(end_positions(begin).values()) == {end}
        assert reader.latestOffset(begin, NOW) == begin
    assert caplog.messages == []


def test_positions_of_members_are_no_place_of_one_log(three: list[WrittenMember]) -> None:
    paths = json.dumps([str(member.base_dir) for member in three])
    chosen = parse_options({"path": paths, "startingOffsets": '{"0": 96}'})
    with pytest.raises(ConfigurationError, match="startingOffsets: has positions of members, and with member=any"):
        ClusterReader(chosen, spark_schema(arrow_schema(chosen))).partitions()
    chosen = parse_options({"path": paths, "startingPosition": "96"})
    one = ClusterReader(chosen, spark_schema(arrow_schema(chosen)))
    assert places(rows_of(one, one.partitions())) == positions(three[0])[1:]


def test_an_ingest_of_a_cluster_has_each_message_once(
    spark: SparkSession, three: list[WrittenMember], tmp_path: Path
) -> None:
    """It begins with one member, goes on with three that are damaged, and ends without the one that it began with."""
    table, once = tmp_path / "table", positions(three[0])
    first = copied(three[0], tmp_path / "shorter")
    log, *others = open_member(first.base_dir).recordings()
    write_catalog(first.archive_dir, [replace(log, stop_position=once[300]), *others])
    manifest = ingest(spark, options_of(first), table, cluster="main")
    assert manifest.row_count == 301
    damage(three[0], once[900])
    damage(three[1], once[600])
    one_log = options_of(*three, max_bytes_per_batch=60_000, mode="permissive")
    manifest = ingest(spark, structs.replace(one_log, paths=one_log.paths[:2]), table, cluster="main")
    shutil.rmtree(three[0].base_dir)
    shutil.rmtree(three[1].base_dir)
    manifest = ingest(spark, one_log, table, cluster="main")
    assert manifest.members == {"any": MemberPositions(0, once[-1], [], [PositionRange(0, once[-1])])}
    assert (manifest.row_count, manifest.error_row_count) == (len(once), 0)
    found = read_table(spark, table).select("log_position").orderBy("log_position").collect()
    assert [row.log_position for row in found] == once


def test_a_gap_of_all_members_is_a_gap_of_the_table(
    spark: SparkSession, three: list[WrittenMember], tmp_path: Path
) -> None:
    at = positions(three[0])[400]
    for member in three:
        damage(member, at)
    manifest = ingest(spark, options_of(*three, mode="permissive"), tmp_path / "table", cluster="main")
    (gap,) = manifest.members["any"].gaps
    assert gap.begin_position == at
    assert gap.end_position in positions(three[0])
    assert manifest.error_row_count == 1
