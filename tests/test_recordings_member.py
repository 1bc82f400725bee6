"""Finding a member's files and how far its log goes: catalog, recording log, mark files and counters, good and bad."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from container.recordings import (
    VIEWS,
    Filters,
    LogRange,
    RecordingError,
    RecordingUnavailableError,
    open_member,
    plan,
    read,
    read_partition,
)
from container.recordings import member as member_module
from container.recordings.commit import all_end_texts, end_texts
from container.recordings.message_reader import MessageReader
from container.replay.execution import plan_replay
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog, write_recording_log
from tests.limits import LIMIT_S
from tests.recordings_world import (
    SEGMENT_LENGTH,
    TERM_LENGTH,
    World,
    entry,
    failure_of,
    rows_of,
    session_message,
    write_mark,
)

VALID, INVALID, DELETED = 1, 0, 2


def small(base_dir: Path, *, stop: bool = True, count: int = 5) -> World:
    """A member with one term and a few messages."""
    world = World(base_dir)
    world.begin_term()
    for index in range(count):
        world.log.append(session_message(1, b"%d" % index))
    return world.close(stop=stop)


def range_of(world: World) -> LogRange:
    """The log's range, in which only what is known to be committed counts as that."""
    return open_member(world.base_dir, committed="known").log_range()


# Where the files are.


def test_a_member_is_found_by_its_base_cluster_or_archive_directory(tmp_path: Path) -> None:
    world = small(tmp_path / "node")
    by_base, by_cluster = open_member(tmp_path / "node"), open_member(str(world.cluster_dir))
    assert {by_base.archive_dir, by_cluster.archive_dir} == {str(world.archive_dir)}
    assert {by_base.cluster_dir, by_cluster.cluster_dir} == {str(world.cluster_dir)}
    archive_alone = open_member(world.archive_dir)
    assert (archive_alone.archive_dir, archive_alone.cluster_dir) == (str(world.archive_dir), None)
    assert archive_alone.recording_log() == []
    elsewhere = tmp_path / "elsewhere"
    world.archive_dir.rename(elsewhere)
    moved = open_member(world.cluster_dir, archive_dir=elsewhere)
    assert moved.log_range() == LogRange(0, world.log.position, world.log.position)
    assert open_member(elsewhere).log_range() == archive_alone_range(world)


def archive_alone_range(world: World) -> LogRange:
    """Without a cluster directory nothing says who led, and so whether there are other members."""
    return LogRange(0, world.log.position, 0)


def test_a_last_segment_that_nobody_writes_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.begin_term()
    world.append_some(random.Random(3), 20)
    world.close(stop=False)
    walks = []

    class Counting:
        def __init__(self, *arguments: Any, **layout: Any) -> None:
            self.reader = MessageReader(*arguments, **layout)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.reader, name)

        def find_end(self, begin: int, end: int) -> int:
            walks.append(begin)
            return self.reader.find_end(begin, end)

    monkeypatch.setattr(member_module, "MessageReader", Counting)
    recorded = range_of(world).recorded_position
    assert (recorded, len(walks)) == (world.log.position, 1)
    range_of(world)
    assert len(walks) == 2, "what was written a moment ago may be written again without a new time"

    past = time.time() - 60
    os.utime(world.segment(), (past, past))
    assert [range_of(world).recorded_position for _ in range(3)] == [recorded] * 3
    assert len(walks) == 3
    shorter = world.segment().read_bytes()
    world.segment().write_bytes(shorter[: recorded - 4096] + bytes(len(shorter) - recorded + 4096))
    os.utime(world.segment(), (past, past))  # as rsync and cp do
    assert range_of(world).recorded_position < recorded
    assert len(walks) == 4


def test_a_directory_that_has_no_member_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="is not a directory"):
        open_member(tmp_path / "missing")
    with pytest.raises(RecordingError, match="there is no archive.catalog here, below, or beside: give its directory"):
        open_member(tmp_path)
    world = small(tmp_path / "node")
    with pytest.raises(RecordingError, match="there is no archive.catalog"):
        open_member(tmp_path / "node", archive_dir=world.cluster_dir)
    (tmp_path / "node" / "archive-copy").mkdir()
    (tmp_path / "node" / "archive-copy" / "archive.catalog").touch()
    with pytest.raises(RecordingError, match="several directories look like its archive: .*with archive_dir"):
        open_member(tmp_path / "node")


def test_the_logs_recording_is_that_of_the_terms(tmp_path: Path) -> None:
    world = small(tmp_path)
    other = RecordingWriter(world.archive_dir, recording_id=5)
    other.append_session_messages(3)
    other.flush()
    write_catalog(world.archive_dir, [descriptor_of(world.log), descriptor_of(other)])
    assert open_member(tmp_path).log_recording_id() == 0
    with pytest.raises(RecordingError, match=r"several logs, recordings \[0, 5\]: choose one with recording_id"):
        open_member(world.archive_dir).log_range()
    assert open_member(world.archive_dir, recording_id=5).log_range().recorded_position == other.position
    with pytest.raises(RecordingError, match="the catalog has no recording 6"):
        open_member(tmp_path, recording_id=6).log_range()
    write_recording_log(world.cluster_dir, [entry(0, 0), entry(1, 5, leadership_term_id=1)])
    with pytest.raises(RecordingError, match=r"terms of several recordings \[0, 5\]: choose one with recording_id"):
        open_member(tmp_path).log_range()


def test_an_archive_without_a_log_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, stream_id=33).close()
    with pytest.raises(RecordingError, match="no recording of stream 100, which is a log's"):
        open_member(world.archive_dir).log_range()


# How far it is recorded.


def test_a_crashed_log_ends_where_nothing_is_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin_term()
    positions = [world.close(stop=False).log.position]
    assert range_of(world).recorded_position == positions[0]
    # Over the end of a segment: the archive makes the next file at once.
    while world.log.position < SEGMENT_LENGTH:
        world.log.append(session_message(1, os.urandom(7000)))
        world.log.flush()
        assert range_of(world).recorded_position == world.log.position
    while world.log.position % SEGMENT_LENGTH:
        world.log.append_padding(None)
    world.log.flush()
    assert range_of(world).recorded_position == world.log.position
    with world.segment(world.log.position // SEGMENT_LENGTH).open("wb") as file:
        file.truncate(SEGMENT_LENGTH)
    assert range_of(world).recorded_position == world.log.position


def test_a_log_without_any_file_ends_where_it_starts(tmp_path: Path) -> None:
    world = World(tmp_path, start_position=TERM_LENGTH).close(stop=False)
    assert open_member(tmp_path, recording_id=0).log_range() == LogRange(TERM_LENGTH, TERM_LENGTH, TERM_LENGTH)
    assert rows_of(tmp_path, "messages", recording_id=0) == []
    assert not list(world.archive_dir.glob("*.rec"))


def test_a_last_frame_of_which_a_page_is_missing_is_not_recorded(tmp_path: Path) -> None:
    world = World(tmp_path, mtu_length=8192)
    world.begin_term()
    whole = world.log.append(session_message(1, os.urandom(3500)))
    world.log.append(session_message(1, os.urandom(5000)))
    world.close(stop=False)
    assert range_of(world).recorded_position == world.log.position
    # The frame's first page was written, and then came the power cut.
    page = (whole // 4096 + 1) * 4096
    world.damage(page, bytes(world.log.position - page))
    assert range_of(world).recorded_position == whole
    assert len(rows_of(tmp_path, "messages")) == 2


@pytest.mark.parametrize("length", [1, 96, 4 * 96], ids=["a byte", "a frame", "frames"])
@pytest.mark.parametrize("begin", [0, 2 * 96], ids=["at the beginning", "behind frames"])
def test_zeros_with_something_behind_them_are_no_end(tmp_path: Path, begin: int, length: int) -> None:
    world = small(tmp_path, stop=False, count=20)
    end = world.log.position
    whole = rows_of(tmp_path, "messages")
    world.damage(begin, bytes(length))
    assert range_of(world).recorded_position == end
    error, before = failure_of(tmp_path)
    if begin == 0 or length == 1:
        assert (error.detail, error.log_position) == ("nothing is written here", begin)
    else:
        # The frame before might be longer, as none begins where it says that it ends.
        expected = f"no frame begins at log position {begin}, where this one says that it ends"
        assert (error.detail, error.log_position) == (expected, begin - 96)
    rows = rows_of(tmp_path, "messages", mode="permissive")
    behind = begin + (length + 95) // 96 * 96
    assert [row["log_position"] for row in rows] == [
        *(row["log_position"] for row in before),
        error.log_position,
        *(row["log_position"] for row in whole if row["log_position"] > behind),
    ]


def test_zeros_with_only_bytes_of_no_frame_behind_them_are_no_end(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    world.damage(0, bytes(world.log.position))
    world.damage(SEGMENT_LENGTH - 1, b"\1")
    assert range_of(world).recorded_position == TERM_LENGTH
    error, before = failure_of(tmp_path)
    assert (error.detail, error.log_position, before) == ("nothing is written here", 0, [])


def test_a_frame_that_an_archive_writes_meanwhile_is_read(tmp_path: Path) -> None:
    """Without its counters a log that grows is followed to where nothing is written, wherever that is by then."""
    world = small(tmp_path, stop=False)
    is_ended, found = threading.Event(), list[LogRange]()

    def look() -> None:
        while not is_ended.is_set():
            found.append(range_of(world))

    thread = threading.Thread(target=look)
    thread.start()
    begun = world.log.position
    try:
        for _ in range(200):
            world.log.append(session_message(1, b"more"))
            world.log.flush()
    finally:
        is_ended.set()
        thread.join(LIMIT_S)
    assert found
    assert all(begun <= one.recorded_position <= world.log.position for one in found)


def test_the_end_of_a_log_that_its_recording_log_shows_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = small(tmp_path, stop=False, count=20)
    end = world.log.position
    write_recording_log(world.cluster_dir, [entry(0, 0), entry(1, 8, entry_type=1, log_position=end - 96)])
    whole = rows_of(tmp_path, "messages")
    world.damage(end - 96, bytes(96))
    # What no entry names ends as a log does that was killed there.
    assert rows_of(tmp_path, "messages") == whole[:-1]
    assert end_texts(open_member(tmp_path), open_member(tmp_path).log()).keys() <= {"recorded"}
    world.damage(end - 3 * 96, bytes(2 * 96))
    log = open_member(tmp_path).log()
    assert (log.log_range.recorded_position, log.lost_position) == (end - 3 * 96, end - 96)
    error, before = failure_of(tmp_path)
    assert before == whole[:-3]
    assert str(error) == (
        f"{world.segment()}, offset {end - 3 * 96}, log position {end - 3 * 96}: the log ends at log position "
        f"{end - 3 * 96}, and by its recording log it was recorded and committed to {end - 96}: what lies between is "
        "lost here. Another member of the cluster has it"
    )
    rows = rows_of(tmp_path, "messages", mode="permissive")
    assert rows == [*before, {"error": str(error), "log_position": end - 3 * 96}]
    member = open_member(tmp_path)
    name = f"member {member.member_id} in {tmp_path}" if member.member_id is not None else str(tmp_path)
    with caplog.at_level(logging.WARNING):
        plan_replay(member)
    assert f"the log of {name} is not whole: {error}" in caplog.messages
    # Up to there it can be read, and a member that runs has its end elsewhere still.
    assert rows_of(tmp_path, "messages", filters=Filters(end_position=end - 3 * 96)) == before
    running = RunningMember(world)
    running.recorded = end - 3 * 96
    running.write()
    assert open_member(tmp_path).log().lost_position is None


@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_a_last_segment_that_is_gone_is_missed(tmp_path: Path, is_stopped: bool) -> None:
    world = World(tmp_path)
    world.begin_term()
    while world.log.position < SEGMENT_LENGTH + 20_000:
        world.log.append(session_message(1, os.urandom(7000)))
    world.begin_term()
    world.close(stop=is_stopped)
    world.segment(1).unlink()
    error, _ = failure_of(tmp_path)
    assert (error.file, error.offset, error.log_position) == (str(world.segment(1)), 0, SEGMENT_LENGTH)
    expected = "No such file" if is_stopped else f"it was recorded and committed to {world.bases[1]}"
    assert expected in error.detail
    rows = rows_of(tmp_path, "messages", mode="audit")
    assert expected in rows[-1]["error"]
    assert isinstance(error, RecordingUnavailableError) is is_stopped


def test_a_last_frame_that_is_left_out_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path, mtu_length=8192)
    world.begin_term()
    whole = world.log.append(session_message(1, os.urandom(3500)))
    world.log.append(session_message(1, bytes(5000)))
    end = world.close(stop=False).log.position
    with caplog.at_level(logging.WARNING):
        assert len(rows_of(tmp_path, "messages")) == 2
    (text,) = caplog.messages
    assert text == (
        f"the log of {tmp_path} ends at {whole}, before a last frame up to {end} that is left out: nothing is in its "
        "last page, so perhaps it was not written to its end. The archive's own tool decides: ArchiveTool verify"
    )
    assert text in all_end_texts([open_member(tmp_path)], "strict")
    assert (open_member(tmp_path).log().lost_position, open_member(tmp_path).log().torn_position) == (None, end)
    world.close(stop=True)
    assert open_member(tmp_path).log().torn_position is None
    assert len(rows_of(tmp_path, "messages")) == 3


def test_a_last_frame_that_is_just_being_written_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a member that runs elsewhere there is no counter: between two looks at its files the log may grow."""
    world = small(tmp_path, stop=False)

    class GrowingLog:
        """Reads the log, which grows as soon as its end was found."""

        def __init__(self, *arguments: Any, **layout: Any) -> None:
            self.reader = MessageReader(*arguments, **layout)

        def find_end(self, begin: int, limit: int) -> int:
            end = self.reader.find_end(begin, limit)
            world.log.append(session_message(1, b"written since"))
            world.log.flush()
            return end

        def __getattr__(self, name: str) -> Any:
            return getattr(self.reader, name)

    monkeypatch.setattr(member_module, "MessageReader", GrowingLog)
    end = world.log.position
    log = open_member(tmp_path).log()
    assert (log.log_range.recorded_position, log.torn_position) == (end, None)
    assert world.log.position > end
    monkeypatch.undo()
    torn = World(tmp_path / "torn", mtu_length=8192)
    torn.begin_term()
    torn.log.append(session_message(1, os.urandom(3500)))
    torn.log.append(session_message(1, bytes(5000)))
    torn.close(stop=False)
    for age_ms, expected in ((0, None), (60_000, torn.log.position)):
        write_mark(torn.base_dir, 0, age_ms)
        assert open_member(torn.base_dir).log().torn_position == expected


def test_the_log_of_a_backup_may_be_behind_its_snapshots(tmp_path: Path) -> None:
    """A backup takes over the leader's snapshots and last term, and only then gets the log up to there."""
    world = small(tmp_path)
    ahead = world.log.position + 10_000
    write_recording_log(
        world.cluster_dir,
        [
            entry(0, 0),
            entry(1, 8, entry_type=1, log_position=ahead),
            entry(2, 0, leadership_term_id=1, term_base_log_position=ahead),
        ],
    )
    for component_type, expected in ((1, ahead), (3, None)):
        write_mark(tmp_path, -1, component_type=component_type)
        assert open_member(tmp_path).log().lost_position == expected
    assert len(rows_of(tmp_path, "messages")) == 6
    assert "lost" not in end_texts(open_member(tmp_path), open_member(tmp_path).log())


def test_damage_in_the_last_segment_of_a_crashed_log_is_found_when_it_is_read(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    end = world.log.position
    whole = rows_of(tmp_path, "messages")
    world.damage(96 + 4, b"\7")
    assert range_of(world).recorded_position == end
    intact = [row["log_position"] for row in whole]
    rows = rows_of(tmp_path, "messages", mode="permissive")
    assert [row["log_position"] for row in rows] == [96, 96, *intact[2:]]
    assert "frame version is 7" in rows[1]["error"]
    # Where no frame is left to be found, it is recorded to the end of the Aeron term.
    world.damage(192, b"\7" * (end - 192))
    assert range_of(world).recorded_position == TERM_LENGTH
    _, row = rows_of(tmp_path, "messages", mode="permissive")
    assert row["error"].endswith(f"; {TERM_LENGTH - 96} bytes skipped, up to log position {TERM_LENGTH}")


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 200, "\u0661\u0662", "-64", "00"])
def test_a_segment_file_of_an_impossible_name_is_ignored(tmp_path: Path, number: str) -> None:
    world = World(tmp_path)
    world.begin_term()
    world.close()
    before = rows_of(tmp_path, "messages")
    try:
        (world.archive_dir / f"0-{number}.rec").write_bytes(b"")
    except (OSError, UnicodeEncodeError):
        pytest.skip("no such file can be made here")
    assert rows_of(tmp_path, "messages") == before


def test_segment_files_of_other_names_are_ignored(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    for name in ("0-131072.rec.del", "0-77.rec", "0-x.rec", "00-131072.rec", "0.rec", "10-131072.rec"):
        (world.archive_dir / name).write_bytes(b"\1" * 100)
    assert range_of(world).recorded_position == world.log.position


# How far it is committed.


def test_closed_terms_and_valid_snapshots_are_committed(tmp_path: Path) -> None:
    world = small(tmp_path, count=50)
    terms = [
        entry(0, 0, log_position=192),
        entry(1, 0, leadership_term_id=1, term_base_log_position=192),
    ]
    end = world.log.position
    for extra, expected in (
        ([], 192),
        ([entry(2, 8, entry_type=1, log_position=960)], 960),
        ([entry(2, 8, entry_type=1, log_position=960, is_valid=False)], 192),
        ([entry(2, 8, entry_type=1, log_position=end + 960)], end),
        ([entry(2, 0, leadership_term_id=2, term_base_log_position=480, log_position=1024)], 1024),
    ):
        write_recording_log(world.cluster_dir, [*terms, *extra])
        assert range_of(world) == LogRange(0, end, expected)
        rows = rows_of(tmp_path, "messages", mode="permissive")
        assert {row["log_position"] <= expected for row in rows if row.get("committed")} == {True}


# A running member.


class RunningMember:
    """Mark files and counters as a running archive and consensus module have them."""

    def __init__(self, world: World, *, archive_id: int = 77, cluster_id: int = 3) -> None:
        self.world = world
        self.aeron_dir = world.base_dir / "driver"
        self.aeron_dir.mkdir()
        self.archive_id, self.cluster_id = archive_id, cluster_id
        self.recorded = self.committed = 0
        self.extra: list[tuple[int, bytes, int]] = []
        self.write()

    def write(self, age_ms: int = 0) -> None:
        now_ms = time.time_ns() // 1_000_000 - age_ms
        aeron_dir = str(self.aeron_dir).encode()
        texts = b"".join(struct.pack("<I", len(text)) + text for text in (b"a:1", b"a:2", b"a:3", aeron_dir))
        block = struct.pack("<iiqqqiiiiii", 768, 0, now_ms, 5, 6, 10, 11, 12, 8192, 4096, 0) + struct.pack(
            "<q", self.archive_id
        )
        archive_mark = struct.pack("<HHHH", 128, 200, 100, 2) + block.ljust(128, b"\0") + texts
        (self.world.archive_dir / "archive-mark.dat").write_bytes(archive_mark.ljust(8192 + 4096, b"\0"))
        ids = (-1, 1, 2, 3, 4, 2, -1, 8192, 4096, self.cluster_id)
        block = struct.pack("<iiqqqqiiiiiiiii", 768, 1, now_ms, 5, 6, *ids)
        texts = b"".join(struct.pack("<I", len(text)) + text for text in (aeron_dir, b"", b"", b"", b"", b""))
        cluster_mark = struct.pack("<HHHH", 128, 200, 110, 2) + block.ljust(128, b"\0") + texts
        (self.world.cluster_dir / "cluster-mark.dat").write_bytes(cluster_mark.ljust(8192 + 4096, b"\0"))
        source = b"127.0.0.1:20104"
        key = struct.pack("<qii", 0, 7, len(source)) + source
        counters = [
            (9, b"", 1),
            (100, key + struct.pack("<q", self.archive_id + 1), 11),
            (100, struct.pack("<q", 1) + key[8:] + struct.pack("<q", self.archive_id), 22),
            (100, key + struct.pack("<q", self.archive_id), self.recorded),
            (203, struct.pack("<i", self.cluster_id + 1), 33),
            (203, struct.pack("<i", self.cluster_id), self.committed),
            *self.extra,
        ]
        metadata, values = bytearray(512 * 16), bytearray(128 * 16)
        for index, (type_id, key, value) in enumerate(counters):
            struct.pack_into("<ii", metadata, 512 * index, 1, type_id)
            metadata[512 * index + 16 : 512 * index + 16 + len(key)] = key
            struct.pack_into("<q", values, 128 * index, value)
        header = struct.pack("<6iqqqi", 512, 0, 0, len(metadata), len(values), 0, 10**10, 1, 2, 4096)
        (self.aeron_dir / "cnc.dat").write_bytes(header.ljust(128, b"\0") + bytes(metadata) + bytes(values))


def test_a_running_log_is_read_to_its_counter_and_committed_to_the_other(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    running = RunningMember(world)
    running.recorded = world.log.position
    running.committed = 192
    running.write()
    member = open_member(tmp_path)
    assert member.member_id == 2
    assert member.log_range() == LogRange(0, world.log.position, 192)
    # The archive has written more than its counter says; it is not looked at.
    before = world.log.position
    world.log.append(session_message(1, b"more"))
    world.log.flush()
    parts = plan(member, "session_messages")
    assert parts[-1].end_position == before
    rows = [row for part in parts for batch in read_partition(part) for row in batch.to_pylist()]
    assert [row["committed"] for row in rows] == [row["log_position"] <= 192 for row in rows]
    running.recorded, running.committed = world.log.position, world.log.position
    running.write()
    rows = rows_of(tmp_path, "session_messages", member_column=True)
    assert {row["committed"] for row in rows} == {True}
    assert {row["member_id"] for row in rows} == {2}
    assert rows[-1]["payload"] == b"more"


def test_counters_of_a_member_that_does_not_live_are_not_believed(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    running = RunningMember(world)
    running.recorded, running.committed = 192, 192
    running.write(age_ms=11_000)
    assert range_of(world) == LogRange(0, world.log.position, 0)
    running.write()
    assert range_of(world) == LogRange(0, 192, 192)
    (running.aeron_dir / "cnc.dat").write_bytes(b"cut")
    assert range_of(world) == LogRange(0, world.log.position, 0)
    (world.archive_dir / "archive-mark.dat").write_bytes(b"cut")
    (world.cluster_dir / "cluster-mark.dat").write_bytes(b"cut")
    assert range_of(world) == LogRange(0, world.log.position, 0)


def test_mark_files_are_found_behind_links(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    running = RunningMember(world)
    running.recorded, running.committed = 192, 96
    running.write()
    elsewhere = tmp_path / "marks"
    elsewhere.mkdir()
    for directory, name in ((world.archive_dir, "archive-mark"), (world.cluster_dir, "cluster-mark")):
        (directory / f"{name}.dat").rename(elsewhere / f"{name}.dat")
        (directory / f"{name}.lnk").write_text(f"{elsewhere}\n")
    assert range_of(world) == LogRange(0, 192, 96)


def test_an_archive_alone_has_the_commit_position_of_the_only_cluster_on_its_driver(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    running = RunningMember(world)
    running.recorded, running.committed = 480, 288
    running.write()
    member = open_member(world.archive_dir)
    # Two clusters: which one is it?
    assert member.log_range() == LogRange(0, 480, 0)
    running.cluster_id = 9
    content = bytearray((running.aeron_dir / "cnc.dat").read_bytes())
    struct.pack_into("<i", content, 128 + 512 * 4, -1)
    (running.aeron_dir / "cnc.dat").write_bytes(content)
    assert member.log_range() == LogRange(0, 480, 288)


def test_what_is_committed_is_not_more_than_what_is_recorded(tmp_path: Path) -> None:
    world = small(tmp_path, stop=False)
    running = RunningMember(world)
    running.recorded, running.committed = 192, 960
    running.write()
    assert range_of(world) == LogRange(0, 192, 192)


@pytest.mark.parametrize(
    "value", [-1, -(2**63), 96, 2**17 + 33, 2**18 + 32, 2**61 + 32, 2**63 - 32], ids=lambda value: str(value)
)
def test_a_counter_that_the_recording_can_not_have_is_not_believed(tmp_path: Path, value: int) -> None:
    """Before the start, between frames, or behind the end of the last segment file: the frames say where it ends."""
    world = World(tmp_path, start_position=SEGMENT_LENGTH)
    world.begin_term()
    world.log.append(session_message(1, b"hello"))
    world.close(stop=False)
    running = RunningMember(world)
    running.recorded = value
    running.write()
    assert range_of(world) == LogRange(SEGMENT_LENGTH, world.log.position, SEGMENT_LENGTH)
    assert len(rows_of(tmp_path, "messages")) == 2


@pytest.mark.parametrize("value", [-1, 33, 2**61 + 32, 2**63 - 32])
def test_a_commit_position_that_no_log_can_have_is_not_believed(tmp_path: Path, value: int) -> None:
    world = small(tmp_path, stop=False)
    running = RunningMember(world)
    running.recorded, running.committed = world.log.position, value
    running.write()
    assert range_of(world) == LogRange(0, world.log.position, 0)


def test_a_recording_that_has_stopped_ends_as_the_catalog_says(tmp_path: Path) -> None:
    world = small(tmp_path)
    running = RunningMember(world)
    running.recorded = world.log.position - 96
    running.write()
    assert range_of(world).recorded_position == world.log.position


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("view", VIEWS)
def test_a_plan_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str, stop: bool) -> None:
    member = open_member(small(tmp_path, stop=stop).base_dir)
    reads: Counter[str] = Counter()
    read_bytes = Path.read_bytes

    def counting(path: Path) -> bytes:
        reads[path.name] += 1
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counting)
    plan(member, view)
    assert max(reads["archive.catalog"], reads["recording.log"]) <= 1


# The catalog.


def test_invalid_and_deleted_recordings_are_no_rows(tmp_path: Path) -> None:
    world = small(tmp_path)
    log = descriptor_of(world.log)
    others = [dataclasses.replace(log, recording_id=index) for index in (1, 2, 3)]
    path = write_catalog(world.archive_dir, [log, *others])
    content = bytearray(path.read_bytes())
    length = struct.unpack_from("<i", content, 32)[0] + 32
    struct.pack_into("<i", content, 32 + length + 4, INVALID)
    struct.pack_into("<i", content, 32 + 2 * length + 4, DELETED)
    path.write_bytes(content)
    assert [row["recording_id"] for row in rows_of(tmp_path, "recordings")] == [0, 3]


def test_a_catalog_of_the_old_alignment_is_read(tmp_path: Path) -> None:
    world = small(tmp_path)
    log = descriptor_of(world.log)
    path = write_catalog(world.archive_dir, [log, dataclasses.replace(log, recording_id=1)])
    content = path.read_bytes()
    length = struct.unpack_from("<i", content, 32)[0] + 32
    header = bytearray(content[:32])
    struct.pack_into("<i", header, 16, 0)
    entries = [content[32 + index * length : 32 + (index + 1) * length] for index in range(2)]
    old = [struct.pack("<i", 1024 - 32) + part[4:].ljust(1024 - 4, b"\0") for part in entries]
    path.write_bytes(b"".join([bytes(header).ljust(1024, b"\0"), *old, bytes(1024)]))
    assert [descriptor.recording_id for descriptor in open_member(tmp_path).recordings()] == [0, 1]
    assert open_member(tmp_path).recordings()[0] == log


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({0: struct.pack("<i", 4 << 16)}, r"the catalog has version 4.0.0, only 3.x is known"),
        ({0: struct.pack("<i", 2 << 16 | 5)}, "the catalog has version 2.0.5"),
        ({16: struct.pack("<i", -64)}, "alignment -64 of the catalog is impossible"),
        ({16: struct.pack("<i", 2**30)}, "alignment 1073741824 of the catalog is impossible"),
        ({32: struct.pack("<i", 2**31 - 33)}, "an entry of 2147483647 bytes reaches beyond"),
        ({32: struct.pack("<i", 79)}, "a descriptor has 79 bytes, at least 80 are needed"),
        ({32 + 32 + 80: struct.pack("<I", 2**32 - 1)}, "a text reaches beyond its descriptor"),
    ],
)
def test_a_damaged_catalog_is_an_error_at_its_offset(tmp_path: Path, change: dict[int, bytes], text: str) -> None:
    world = small(tmp_path)
    path = world.archive_dir / "archive.catalog"
    content = bytearray(path.read_bytes())
    for offset, data in change.items():
        content[offset : offset + len(data)] = data
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=text) as caught:
        rows_of(tmp_path, "recordings")
    assert caught.value.file == str(path)
    assert caught.value.offset is not None
    (row,) = rows_of(tmp_path, "recordings", mode="permissive")
    assert row == {"error": str(caught.value)}
    # Without it no log is found, nor a snapshot: that is the row.
    for view in ("messages", "frames", "terms", "snapshots"):
        *_, row = rows_of(tmp_path, view, mode="permissive")
        assert row == {"error": str(caught.value)}
        with pytest.raises(RecordingError, match=text):
            rows_of(tmp_path, view)


def test_a_member_that_is_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    worlds = [small(tmp_path / name) for name in "abc"]
    (worlds[1].archive_dir / "archive.catalog").write_bytes(b"cut")
    paths = [world.base_dir for world in worlds]
    rows = [row for batch in read(paths, "messages", mode="permissive") for row in batch.to_pylist()]
    assert [row["error"] is None for row in rows] == [True] * 6 + [False] + [True] * 6


def test_recordings_before_a_damaged_entry_are_rows(tmp_path: Path) -> None:
    world = small(tmp_path)
    log = descriptor_of(world.log)
    path = write_catalog(world.archive_dir, [log, dataclasses.replace(log, recording_id=1)])
    content = bytearray(path.read_bytes())
    second = 32 + 32 + struct.unpack_from("<i", content, 32)[0]
    struct.pack_into("<i", content, second, 2**30)
    path.write_bytes(content)
    rows = rows_of(tmp_path, "recordings", mode="permissive")
    assert rows[0]["recording_id"] == 0
    assert f"offset {second}" in rows[1]["error"]
    assert len(rows_of(tmp_path, "messages", mode="permissive")) == 6
    with pytest.raises(RecordingError, match="reaches beyond the"):
        rows_of(tmp_path, "messages")


@pytest.mark.parametrize("length", [0, 31])
def test_a_catalog_shorter_than_its_header_is_an_error(tmp_path: Path, length: int) -> None:
    world = small(tmp_path)
    os.truncate(world.archive_dir / "archive.catalog", length)
    with pytest.raises(RecordingError, match=f"the catalog has {length} bytes, fewer than its header"):
        open_member(tmp_path).recordings()


def test_a_catalog_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    world = small(tmp_path)
    (world.archive_dir / "archive.catalog").unlink()
    (world.archive_dir / "archive.catalog").mkdir()
    with pytest.raises(RecordingError, match="the catalog cannot be read: Is a directory"):
        open_member(tmp_path).recordings()


# The recording log.


def test_removed_entries_are_counted_and_passed_over(tmp_path: Path) -> None:
    world = small(tmp_path)
    path = write_recording_log(world.cluster_dir, [entry(0, 0), entry(1, 1, entry_type=1), entry(2, 2, entry_type=1)])
    content = bytearray(path.read_bytes())
    struct.pack_into("<i", content, 64 + 44, -1)
    path.write_bytes(content)
    assert [row["entry_index"] for row in rows_of(tmp_path, "recording_log")] == [0, 2]


def test_what_lies_behind_a_shorter_entry_is_not_looked_at(tmp_path: Path) -> None:
    world = small(tmp_path)
    path = write_recording_log(world.cluster_dir, [entry(0, 0)])
    path.write_bytes(path.read_bytes()[:48] + b"\xff" * 16)
    assert len(rows_of(tmp_path, "recording_log")) == 1


@pytest.mark.parametrize(
    ("damage", "offset", "text"),
    [
        (lambda content: content[: 64 + 47], 64, "the last entry has 47 bytes of 48"),
        (lambda content: content[: 64 + 44] + b"\7\0\0\0", 64, "entry 1 has unknown type 7"),
        (lambda content: content[: 64 + 44] + b"\2\0\0\0", 64, "impossible length of 0"),
        (lambda content: content[: 64 + 44] + b"\2\0\0\0\xff\xff\xff\x7f", 64, "impossible length of 2147483647"),
    ],
)
def test_a_damaged_recording_log_is_an_error_at_its_offset(tmp_path: Path, damage: Any, offset: int, text: str) -> None:
    world = small(tmp_path)
    path = write_recording_log(world.cluster_dir, [entry(0, 0), entry(1, 1, entry_type=1)])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordingError, match=text) as caught:
        rows_of(tmp_path, "recording_log")
    assert (caught.value.file, caught.value.offset) == (str(path), offset)
    rows = rows_of(tmp_path, "recording_log", mode="permissive")
    assert (rows[0]["entry_type"], rows[1]) == ("TERM", {"error": str(caught.value)})
    # What is before the damage is enough to find the log, and that something is missing is a row.
    first, *rest = rows_of(tmp_path, "messages", mode="permissive")
    assert first == {"error": str(caught.value)}
    assert len(rest) == 6
    with pytest.raises(RecordingError, match=text):
        rows_of(tmp_path, "messages")


def test_without_a_readable_recording_log_the_log_is_found_and_the_error_is_a_row(tmp_path: Path) -> None:
    world = small(tmp_path)
    path = world.cluster_dir / "recording.log"
    path.write_bytes(b"\xff" * 40)
    member = open_member(tmp_path)
    with pytest.raises(RecordingError, match="the last entry has 40 bytes of 48"):
        member.log_descriptor()
    assert member.log_descriptor("permissive").recording_id == 0
    assert member.log_range("permissive") == LogRange(0, world.log.position, 0)
    first, *rows = rows_of(tmp_path, "messages", mode="permissive")
    assert first == {"error": f"{path}, offset 0: the last entry has 40 bytes of 48"}
    assert len(rows) == 6


def test_a_cluster_directory_without_a_recording_log_has_no_entries(tmp_path: Path) -> None:
    world = small(tmp_path)
    (world.cluster_dir / "recording.log").rename(world.cluster_dir / "node-state.dat")
    member = open_member(tmp_path)
    assert member.cluster_dir == str(world.cluster_dir)
    assert member.recording_log() == []
    assert rows_of(tmp_path, "recording_log") == []
    assert len(rows_of(tmp_path, "messages")) == 6
