"""A member copies the leader's log: archive to archive, in memory, with a crash of the member at each step."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from container.aeron import MediaDriver
from container.errors import ClusterError, ClusterEvent, TimedOutError
from container.files.names import LOG_REPLICATION_NAME
from tests.log_copy_world import CLUSTER_DIR, TIMEOUT_NS, LogMember, member_of
from tests.replication_world import MS, Archive, DriverWorld, MemoryWorld, NetworkWorld, World, recorded, recording

FRAME = 1024  # of each message that recording() sends
LENGTH = 100 * FRAME
PART = 30 * FRAME


@pytest.fixture
def world() -> World:
    return MemoryWorld()


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        publication_linger_timeout_ns=50_000_000,
        image_liveness_timeout_ns=500_000_000,
        timer_interval_ns=20_000_000,
        term_buffer_length=64 * 1024,
    ) as driver:
        yield driver


WORLDS = ["memory", "network", "driver"]


def has_marker(member: LogMember) -> bool:
    return member.storage.exists(f"{CLUSTER_DIR}/{LOG_REPLICATION_NAME}")


def active(archive: Archive) -> list[int]:
    return [each for each in archive.store.catalog.recording_ids() if archive.store.is_active(each)]


def test_a_member_without_a_log_copies_one_and_goes_on_with_it(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    part, end = PART, stream.position
    member = member_of(target)
    replication = member.begin_copy(source, source_id, part)
    assert (replication.recording_id, replication.position, replication.is_done) == (-1, -1, False)
    world.until(member.work)
    assert (replication.recording_id, replication.is_done) == (0, True)
    assert replication.position == target.range(0)[1] == part < end
    assert target.content(0) == source.content(source_id)[: len(target.content(0))]
    again = member.copy(source, source_id, end)
    assert (again.recording_id, again.position) == (0, end)
    assert target.content(0) == source.content(source_id)
    assert active(target) == []
    assert member.errors == []
    assert world.texts() == []


def test_the_copy_shows_how_far_it_is_while_it_goes_on() -> None:
    world = NetworkWorld()
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    member = member_of(target)
    replication = member.begin_copy(source, source_id, stream.position)
    positions = [replication.position]
    while not member.work():
        if replication.position != positions[-1]:
            positions.append(replication.position)
    assert positions == sorted(positions)
    assert len([each for each in positions if 0 < each < stream.position]) > 1


def test_a_recording_that_has_all_already_is_done(world: World) -> None:
    """The archive says REPLICATE_END, and no STOP: nothing was recorded."""
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, LENGTH)
    end = source.range(source_id)[1]
    member = member_of(target)
    member.copy(source, source_id, end)
    again = member.copy(source, source_id, end)
    assert (again.is_done, again.position) == (True, end)


def test_a_copy_that_has_ended_is_not_stopped(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, LENGTH)
    end = source.range(source_id)[1]
    member = member_of(target)
    under_way = member.begin_copy(source, source_id, end)
    world.until(lambda: member.work() or under_way.recording_id != -1)
    under_way.close()
    assert member.archive.waiting == 1

    def is_answered() -> bool:
        member.turn()
        return member.archive.waiting == 0

    world.until(is_answered)
    member.copy(source, source_id, end)
    assert member.archive.waiting == 0


def test_a_source_that_ends_before_the_position_ends_the_copy_there(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, LENGTH)
    end = source.range(source_id)[1]
    replication = member_of(target).copy(source, source_id, end + 4096)
    assert (replication.is_done, replication.position) == (True, end)


def test_what_the_archive_reports_ends_the_copy_at_once(world: World) -> None:
    member = member_of(world.archive(1))
    member.begin_copy(world.archive(0), 77, 4096)
    with pytest.raises(ClusterError, match="^the log of member 0 cannot be copied: unknown src recording id 77$"):
        world.until(member.work)


def test_a_leader_that_is_gone_ends_the_copy(world: World) -> None:
    member = member_of(world.archive(1), timeout_ns=5_000 * MS)
    member.begin_copy("localhost:9999", 0, 4096)
    with pytest.raises(ClusterError, match="^the log of member 0 cannot be copied: Replication connection failed="):
        world.until(member.work)


def test_a_copy_that_makes_no_progress_ends() -> None:
    world = MemoryWorld()
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    member = member_of(target)
    replication = member.begin_copy(source, source_id, stream.position + 1_000_000)
    world.until(lambda: member.work() or replication.position >= LENGTH)
    source.is_working = False
    before_ns = world.clock.now_ns
    with pytest.raises(
        TimedOutError, match=rf"^waited 0\.5 s for the log of member 0 to be copied .*: it is at {stream.position}$"
    ):
        world.until(member.work)
    assert world.clock.now_ns - before_ns < TIMEOUT_NS + 50 * MS


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 15, 30])
def test_a_copy_that_is_closed_is_stopped(turns: int) -> None:
    """Also where the archive has not answered yet."""
    world = MemoryWorld()
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    member = member_of(target)
    replication = member.begin_copy(source, source_id, stream.position + 1_000_000)
    for _ in range(turns):
        member.work()
    replication.close()
    replication.close()
    for _ in range(200):
        member.turn()
    assert active(target) == []
    assert member.errors == []
    assert member.archive.waiting == 0
    stream.fill(20_000)
    ends = [target.range(each)[1] for each in target.store.catalog.recording_ids()]
    for _ in range(200):
        member.turn()
    assert [target.range(each)[1] for each in target.store.catalog.recording_ids()] == ends
    member.recording_id = ([-1] if not ends else target.store.catalog.recording_ids())[0]
    assert member.copy(source, source_id, stream.position).position == stream.position


def test_a_copy_by_connections_of_the_leader_alone(driver: MediaDriver) -> None:
    """Its archive listens on one port, and answers there."""
    world = DriverWorld(driver)
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, LENGTH)
    end = source.range(source_id)[1]
    member = member_of(target, timeout_ns=10_000 * MS)
    replication = member.copy(source, source_id, end, response_endpoint=f"localhost:{world.port(0)}")
    assert replication.position == end
    assert target.content(0) == source.content(source_id)
    world.close()


def crash_after(turns: int) -> tuple[World, Archive, Archive, LogMember, bool]:
    """A member without a log that was killed after so many turns of its copy; whether that was done."""
    world = MemoryWorld()
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    member = member_of(target)
    member.begin_copy(source, source_id, stream.position)
    is_done = False
    for _ in range(turns):
        is_done = member.work()
        if is_done:
            break
    member.crash()
    return world, source, target, member, is_done


def test_a_copy_that_a_crash_has_cut_short_is_no_log_and_does_not_stay() -> None:
    """The archive goes on with it. Whatever the step: later starts find it, and delete it."""
    turns, is_done = 0, False
    with_orphan = 0
    while not is_done:
        world, source, target, dead, is_done = crash_after(turns)
        turns += 1
        life = member_of(target, disk=dead.disk)
        assert life.start() == -1, "the recording log knows no log"
        for _ in range(100):
            life.turn()
        with_orphan += bool(target.store.catalog.recording_ids())
        life.start()
        for _ in range(20):
            life.turn()
        left = target.store.catalog.recording_ids()
        assert active(target) == []
        assert [target.range(each) for each in left] == [(0, 0)] * len(left), "one that nothing was recorded of"
        assert life.errors == []
        end = source.store.recorded_position(0)
        copy = life.copy(source, 0, end)
        assert target.content(copy.recording_id) == source.content(0)
        life.recording_log.append_term(copy.recording_id, 0, 0, 1)
        life.recording_log.force()
        life.crash()
        after = member_of(target, disk=life.disk)
        assert after.start() == end
        assert not has_marker(after)
        assert target.content(copy.recording_id) == source.content(0), "what the recording log names stays"
        assert world.texts() == []
    assert turns > 10
    assert with_orphan > 0


def test_an_archive_that_keeps_what_a_crash_has_left_is_asked_again() -> None:
    _, source, target, dead, _ = crash_after(1000)
    life = member_of(target, disk=dead.disk)
    assert has_marker(life)
    target.disk.fail("write", errno.EIO)
    life.start()
    [error] = life.errors
    assert isinstance(error, ClusterEvent)
    assert "the recording of a copy of the log that was cut short stays: " in str(error)
    assert has_marker(life)
    life.start()
    assert not has_marker(life)
    assert target.store.catalog.recording_ids() == []
    assert source.store.catalog.recording_ids() == [0]


def test_what_a_crash_has_left_is_deleted_also_where_it_is_replayed() -> None:
    """The process that died may have begun to read a snapshot that it had copied."""
    _, _, target, dead, _ = crash_after(1000)
    life = member_of(target, disk=dead.disk)
    target.requests().ok(
        "ReplayRequest", recording_id=0, position=0, length=-1, replay_stream_id=9, file_io_max_length=-1,
        replay_token=-1, replay_channel=b"aeron:udp?endpoint=localhost:9998",
    )  # fmt: skip
    life.start()
    assert life.errors == []
    assert not has_marker(life)
    assert target.store.catalog.recording_ids() == []


def test_a_marker_that_a_crash_has_torn_is_read_as_far_as_it_goes() -> None:
    world = MemoryWorld()
    member = member_of(world.archive(0))
    member.orphans.note_log(7)
    file = member.storage.open_file(f"{CLUSTER_DIR}/{LOG_REPLICATION_NAME}", 0)
    file.write(b"\1\2", 4)
    file.close()
    member.orphans.note_log(8)
    assert member.storage.length_of(f"{CLUSTER_DIR}/{LOG_REPLICATION_NAME}") == 8
    member.start()
    assert member.errors == []


def test_a_member_notes_no_more_than_its_last_copies() -> None:
    world = MemoryWorld()
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    member = member_of(target)
    for session_id in range(-100, 0):
        member.orphans.note(session_id)
    assert member.storage.length_of(f"{CLUSTER_DIR}/{LOG_REPLICATION_NAME}") == 64
    member.begin_copy(source, source_id, stream.position)
    world.until(lambda: member.work() or target.store.catalog.recording_ids())
    member.crash()
    life = member_of(target, disk=member.disk)
    life.start()
    assert target.store.catalog.recording_ids() == []
    assert has_marker(life), "of the others there is no recording yet"


def test_a_member_that_has_a_log_notes_no_copy() -> None:
    world = MemoryWorld()
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source, LENGTH)
    member = member_of(target)
    member.recording_log.append_term(0, 0, 0, 1)
    member.copy(source, source_id, stream.position)
    assert not has_marker(member)
