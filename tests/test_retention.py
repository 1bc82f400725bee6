"""Snapshots that are kept, and what goes: which, when, in which order, and what is kept for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from container.consensus.retention import NOTHING_OUTDATED, Outdated, needed_log_position, outdated, remove_snapshots
from container.files.recording_log import (
    ENTRY_TYPE_SNAPSHOT,
    ENTRY_TYPE_STANDBY_SNAPSHOT,
    ENTRY_TYPE_TERM,
    RecordingLogEntry,
)
from tests.archive_world import Subscriber
from tests.consensus_world import NEUTRAL, SNAPSHOT, Client, ConsensusWorld

SEGMENT = 64 * 1024
RETAINED_LOG_POSITION = 1200


def entry(kind: int, recording_id: int, position: int, service_id: int = -1, **fields: Any) -> RecordingLogEntry:
    given: dict[str, Any] = {
        "entry_index": recording_id,
        "recording_id": recording_id,
        "leadership_term_id": 0,
        "term_base_log_position": 0,
        "log_position": position,
        "timestamp": 0,
        "service_id": service_id,
        "entry_type": kind,
        "is_valid": True,
    }
    return RecordingLogEntry(**(given | fields))


def snapshot(position: int, first_id: int, services: int = 1, **fields: Any) -> list[RecordingLogEntry]:
    """A set: of the services, the highest first, and of the consensus module."""
    return [
        entry(ENTRY_TYPE_SNAPSHOT, first_id + services - 1 - each, position, each, **fields)
        for each in range(services - 1, -2, -1)
    ]


TERM = entry(ENTRY_TYPE_TERM, 0, -1)
FOUR = [TERM, *snapshot(100, 10), *snapshot(200, 20), *snapshot(300, 30), *snapshot(400, 40)]


@pytest.mark.parametrize(
    ("entries", "kept", "services", "ids", "position"),
    [
        (FOUR, 4, 1, (), 100),
        (FOUR, 3, 1, (10, 11), 200),
        (FOUR, 1, 1, (10, 11, 20, 21, 30, 31), 400),
        ([TERM, *snapshot(100, 10)], 2, 1, (), -1),
        ([TERM], 1, 1, (), -1),
        # One of the kept must be whole and valid: the service's part of the last one is missing, or invalid.
        ([*FOUR, *snapshot(500, 50)[1:]], 1, 1, (10, 11, 20, 21, 30, 31), 400),
        ([*FOUR[:-2], *snapshot(400, 40, is_valid=False)], 1, 1, (10, 11, 20, 21), 300),
        (FOUR, 1, 2, (), -1),
        ([TERM, *snapshot(100, 10, 2), *snapshot(200, 20, 2)], 1, 2, (10, 11, 12), 200),
        # An invalid one goes as well; a standby's is in another archive.
        ([TERM, *snapshot(100, 10, is_valid=False), *snapshot(200, 20)], 1, 1, (10, 11), 200),
        (
            [TERM, entry(ENTRY_TYPE_STANDBY_SNAPSHOT, 7, 50, archive_endpoint="a:1"), *snapshot(200, 20)],
            1,
            1,
            (),
            200,
        ),
        # Never a recording that anything else names.
        ([TERM, *snapshot(100, 0), *snapshot(200, 1)], 1, 1, (), 200),
        # Two terms may have a snapshot at one position.
        ([TERM, *snapshot(100, 10), *snapshot(100, 20, leadership_term_id=1)], 1, 1, (), 100),
    ],
)
def test_what_is_older_than_the_kept_snapshots_is_outdated(
    entries: list[RecordingLogEntry], kept: int, services: int, ids: tuple[int, ...], position: int
) -> None:
    found = outdated(entries, kept, services)
    assert sorted(found.recording_ids) == sorted(ids)
    assert found.log_position == position
    assert all(each.is_snapshot and each.log_position < position for each in found.entries)
    if position == -1:
        assert found == NOTHING_OUTDATED


def make_world(window: int = 0, **settings: Any) -> ConsensusWorld:
    return ConsensusWorld(archive={"segment_file_length": SEGMENT, "window": window}, **settings).lead()


def fill(world: ConsensusWorld, client: Client, length: int = 3 * SEGMENT) -> None:
    """Have clients' messages of so many bytes in the log."""
    end = world.commit_position + length
    while world.commit_position < end:
        for _ in range(8):
            client.message(bytes(1000))
            world.work(2)
        world.settle()


def take_snapshot(world: ConsensusWorld) -> int:
    """Take one; its log position."""
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.toggle != SNAPSHOT)
    assert world.toggle == NEUTRAL
    world.tick(3)
    return world.entries()[-1].log_position


def valid_positions(world: ConsensusWorld) -> list[int]:
    return sorted({each.log_position for each in world.entries() if each.is_valid_snapshot})


def log_start(world: ConsensusWorld) -> int:
    descriptor = world.store.catalog.descriptor(world.log_recording_id)
    assert descriptor is not None
    return descriptor.start_position


def log_segments(world: ConsensusWorld) -> list[int]:
    prefix = f"{world.log_recording_id}-"
    names = [path.rpartition("/")[2] for path in world.disk.contents()]
    return sorted(int(name[len(prefix) : -4]) for name in names if name.startswith(prefix) and name.endswith(".rec"))


def is_known(world: ConsensusWorld, recording_id: int) -> bool:
    return world.store.catalog.descriptor(recording_id) is not None


def snapshots(world: ConsensusWorld, count: int) -> list[int]:
    """Take some, each behind a part of the log; their positions."""
    client = world.client_of()
    taken = []
    for _ in range(count):
        fill(world, client)
        taken.append(take_snapshot(world))
    return taken


def test_all_is_kept_by_default() -> None:
    world = make_world()
    taken = snapshots(world, 3)
    world.wait(120_000, 500)
    assert valid_positions(world) == taken
    assert log_start(world) == 0
    assert log_segments(world)[0] == 0


def test_older_snapshots_and_the_log_in_front_of_the_oldest_kept_go() -> None:
    world = make_world(snapshots_retained=2)
    taken = snapshots(world, 4)
    own = [each for each in world.entries() if each.is_snapshot and each.is_of_consensus_module]
    world.until(lambda: log_start(world) > taken[1])
    assert valid_positions(world) == taken[2:]
    assert [is_known(world, each.recording_id) for each in own] == [False, False, True, True]
    start = log_start(world)
    assert start == taken[2] // SEGMENT * SEGMENT
    world.until(lambda: log_segments(world)[0] == start)
    world.until(lambda: world.counter_value(RETAINED_LOG_POSITION) == start)
    [counter] = world.counter(RETAINED_LOG_POSITION)
    assert counter["key"][:8] == (0).to_bytes(4, "little") + (2).to_bytes(4, "little")
    assert world.errors == []


def test_a_crash_leaves_no_old_snapshot_that_looks_whole() -> None:
    """The consensus module's parts are invalid, on the disk as well, before any service's is."""
    done: list[object] = []

    class Log:
        def invalidate_entry(self, entry_index: int) -> None:
            done.append(entry_index)

        def force(self) -> None:
            done.append("force")

    old = (*snapshot(100, 10, 2), *snapshot(200, 20, 2))
    removal = remove_snapshots(None, Log(), Outdated(old, (), 300))  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        next(removal)
    assert done == [12, 22, "force", 10, 11, 20, 21, "force"]


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_member_goes_on_from_what_is_left(end: str) -> None:
    world = make_world(snapshots_retained=1)
    taken = snapshots(world, 3)
    world.until(lambda: log_start(world) > taken[1])
    position = world.commit_position
    getattr(world, end)()
    world.lead()
    assert world.commit_position >= position
    assert valid_positions(world) == taken[2:]
    fill(world, world.client_of(), SEGMENT)
    assert take_snapshot(world) > taken[2]


def test_a_start_without_a_snapshot_and_without_the_begin_of_the_log_is_refused() -> None:
    """The service would begin empty in the middle of the log."""
    world = make_world(snapshots_retained=1)
    taken = snapshots(world, 2)
    world.until(lambda: log_start(world) > taken[0])
    world.context.recording_log.invalidate_latest_snapshot()
    assert valid_positions(world) == []
    world.restart()
    world.until(lambda: world.failure is not None)
    start = log_start(world)
    assert f"the log begins at {start}, and there is no snapshot to begin with" in str(world.failure)


def test_what_is_replayed_stays_and_goes_when_the_replay_has_ended() -> None:
    world = make_world(window=16 * 1024, snapshots_retained=1)
    client = world.client_of()
    fill(world, client)
    take_snapshot(world)
    requests = world.connect()
    reader = Subscriber(world)
    begin = log_start(world)
    replay = requests.replay(world.log_recording_id, begin)
    world.until(lambda: reader.read() > 0)
    fill(world, client)
    take_snapshot(world)
    world.wait(1_000)
    assert log_start(world) == begin
    assert world.errors == []
    requests.ok("StopReplayRequest", replay_session_id=replay)
    world.wait(61_000, 500)
    assert log_start(world) > begin


def test_a_backup_that_has_asked_finds_what_it_needs() -> None:
    """It may go on with the newest snapshot that it was told of, until it asks again."""
    world = make_world(snapshots_retained=1)
    taken = snapshots(world, 1)
    world.agent.backups.backup_response(5, (1 << 63) - 1)
    taken += snapshots(world, 2)
    world.wait(1_000)
    assert log_start(world) == taken[0] // SEGMENT * SEGMENT
    world.agent.backups.backup_response(6, (1 << 63) - 1)
    world.wait(61_000, 500)
    assert log_start(world) == taken[2] // SEGMENT * SEGMENT


def test_a_snapshot_that_is_asked_for_meanwhile_is_taken() -> None:
    world = make_world(snapshots_retained=1)
    client = world.client_of()
    for _ in range(3):
        fill(world, client)
        world.set_toggle(SNAPSHOT)
        world.until(lambda: world.toggle != SNAPSHOT)
    assert [each for each in world.entries() if each.is_valid_snapshot and each.is_of_consensus_module]
    world.wait(1_000)
    assert len(valid_positions(world)) == 1
    assert world.errors == []


def test_one_service_s_failed_snapshot_deletes_nothing() -> None:
    world = make_world(snapshots_retained=1)
    taken = snapshots(world, 1)
    fill(world, world.client_of())
    world.services[0].fails_snapshots = True
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.toggle != SNAPSHOT)
    world.wait(1_000)
    assert valid_positions(world) == taken
    assert log_start(world) <= taken[0]


@dataclass
class Other:
    """Another member, as the leader of term 5 knows it."""

    log_position: int
    id: int = 2
    leadership_term_id: int = 5


@pytest.mark.parametrize(
    ("others", "is_leader", "backup", "position", "holder"),
    [
        ([], True, None, 1000, None),
        ([Other(1000), Other(5000)], True, None, 1000, None),
        ([Other(5000), Other(999)], True, None, 999, "member 2 has the log up to 999 alone"),
        ([Other(999), Other(200)], True, None, 200, "member 2 has the log up to 200 alone"),
        ([Other(5000), Other(-1)], True, None, 0, "member 2 has not said how much of the log it has"),
        ([Other(5000, leadership_term_id=4)], True, None, 0, "member 2 has not said how much of the log it has"),
        ([Other(5000)], False, None, 0, "only the leader knows how much of the log the other members have"),
        ([], True, 300, 300, "a backup may need the log from 300 on"),
        ([Other(200)], True, 300, 200, "member 2 has the log up to 200 alone"),
        ([], True, 2000, 1000, None),
    ],
)
def test_the_log_is_kept_for_whoever_needs_it(
    others: list[Other], is_leader: bool, backup: int | None, position: int, holder: str | None
) -> None:
    found = needed_log_position(1000, is_leader=is_leader, leadership_term_id=5, others=others, backup_position=backup)
    assert found == (position, holder)
