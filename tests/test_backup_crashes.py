"""A backup that ends, or whose member ends, after each turn of its first start and of one that continues a copy."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest

from container.backup.backup_machine import BackupState
from container.testing.simulation.virtual_time import Draws
from tests.backup_world import FRAME, Backup, Member, check_copy
from tests.replication_world import MS, MemoryWorld
from tests.test_cluster_backup import unnamed as all_unnamed

TIMES: dict[str, Any] = {"progress_timeout_ns": 100 * MS, "response_timeout_ns": 100 * MS}


class Start(NamedTuple):
    """A backup that starts, and what it has by then."""

    world: MemoryWorld
    members: tuple[Member, Member]
    backup: Backup
    copied: int
    """Up to where it has a copy already; -1 without one."""


def grow(members: tuple[Member, Member], length: int) -> int:
    """Have the log of both grow in the same way; where it ends."""
    (end,) = {each.grow(length) for each in members}
    return end


def begun(*, is_continued: bool) -> Start:
    """A start beside two members; one that continues finds another term, a later snapshot and more of the log."""
    world = MemoryWorld()
    members = Member(world), Member(world, 1, leader_id=0)
    for each in members:
        each.begin_term()
        each.take_snapshot(services=2)
    grow(members, 2 * FRAME)
    archive = world.archive(1, file_sync_level=1, catalog_file_sync_level=1)
    backup = Backup(world, members[0], archive=archive, **TIMES)
    copied = -1
    if is_continued:
        backup.until_backing_up()
        copied = backup.machine.position
        backup.close()
        world.until(lambda: not archive.store.is_active(backup.log_recording_id()))
        base = grow(members, 3 * FRAME)
        for each in members:
            each.open_term(1, 3 * FRAME)
        for each in members:
            each.take_snapshot(1, base, services=2)
        grow(members, FRAME)
        backup = backup.next_life(members[0], **TIMES)
    return Start(world, members, backup, copied)


def unnamed(backup: Backup) -> list[tuple[int, int]]:
    """What is in the archive and not in the recording log, but for recordings in which nothing is.

    A kill can leave such a one of an archive that has its entry, and has not begun to copy yet.
    """
    return [(begin, end) for begin, end in all_unnamed(backup) if begin != end]


def check_goes_on(start: Start, backup: Backup, *members: Member) -> None:
    """It makes the copy whole, follows, and leaves nothing behind that its recording log does not name."""
    backup.until_backing_up()
    end = grow(start.members, 2 * FRAME)
    backup.until(lambda: backup.machine.position == end)
    assert check_copy(backup, members[0], 2) == end
    if unnamed(backup):  # the archive began it only when this life had looked
        backup.close()
        backup = backup.next_life(*members, **TIMES)
        backup.until_backing_up()
    assert unnamed(backup) == []
    assert start.world.texts() == []


@pytest.mark.parametrize("ends", [("process", "host"), ("power",)], ids=" and ".join)
@pytest.mark.parametrize("is_continued", [False, True], ids=["first", "continued"])
def test_an_end_after_each_turn_leaves_a_copy_and_the_next_life_goes_on(
    is_continued: bool, ends: tuple[str, ...]
) -> None:
    """An end of its process alone, of its archive with it, in turn, and of their machine's power."""
    found = set()
    for turns, end in enumerate(itertools.cycle(ends)):
        start = begun(is_continued=is_continued)
        for _ in range(turns):
            start.world.turn()
        is_done = start.backup.state == BackupState.BACKING_UP
        if end == "process":
            start.backup.crash()
        else:
            start.backup.crash_with_its_host(Draws(turns) if end == "power" else None)
        copied = check_copy(start.backup, start.members[0], 2)
        assert copied >= start.copied, turns
        found.add(copied >= 0)
        check_goes_on(start, start.backup.next_life(start.members[0], **TIMES), start.members[0])
        if is_done:
            break
    assert found == ({True} if is_continued else {False, True})
    assert turns > 30


@pytest.mark.parametrize("is_continued", [False, True], ids=["first", "continued"])
def test_a_member_that_dies_after_each_turn_is_left_for_another_one(is_continued: bool) -> None:
    failures = set()
    for turns in itertools.count():
        start = begun(is_continued=is_continued)
        dead, other = start.members
        for _ in range(turns):
            start.world.turn()
        is_done = start.backup.state == BackupState.BACKING_UP
        dead.archive.vanish()
        start.world.tasks.remove(dead.work)
        dead.client.close()
        start.world.driver.give_up_images(-1)
        start.backup.machine._endpoints.append(other.endpoint)
        end = other.grow(2 * FRAME)
        backup = start.backup
        backup.until_backing_up()
        start.world.until(lambda machine=backup.machine, end=end: machine.position == end)  # type: ignore[misc]
        assert check_copy(backup, other, 2) == end
        assert unnamed(backup) == [], turns
        failures.add(bool(backup.failures()))
        if is_done:
            break
    assert True in failures
    assert turns > 30
