"""Snapshots of standbys that a member starts from: archives in memory, with the member's side of its own."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import pytest

from container.consensus.recovery_plan import create_recovery_plan
from container.consensus.standby_copies import StandbyCopies
from container.files.recording_log import RecordingLogEntry
from tests.log_copy_world import LogMember, member_of
from tests.replication_world import Archive, MemoryWorld, recorded, recorded_messages, snapshot_messages

LOG_END = 1 << 20
LENGTH = 3000
SESSION_IDS = itertools.count(77_001)


class Member:
    """A member with an archive, an own snapshot at position 1024, and a log up to LOG_END."""

    def __init__(self, service_count: int = 1) -> None:
        self.world = MemoryWorld()
        self.service_count = service_count
        self.archive = self.world.archive(0)
        self.side: LogMember = member_of(self.archive, service_count=service_count)
        self.log = self.side.recording_log
        for service_id in range(service_count - 1, -2, -1):
            self.log.append_snapshot(recorded(self.archive, LENGTH), 0, 0, 1024, 5, service_id)
        self.own = self.archive.store.catalog.recording_ids()

    def standby(
        self, position: int, *, services: int | None = None, known: bool = True, taken_at: int | None = None
    ) -> Archive:
        """A standby with an archive of its own, of which the member knows a snapshot, by its true position or not."""
        archive = self.world.archive(1)
        endpoint = f"{archive.host}:{archive.port}"
        for service_id in range((self.service_count if services is None else services) - 1, -2, -1):
            messages = snapshot_messages(service_id, position if taken_at is None else taken_at, 0, LENGTH)
            recording_id = recorded_messages(archive, messages, stream_id=107 if service_id == -1 else 106)
            self.log.append_standby_snapshot(
                recording_id if known else 70 + recording_id, 0, 0, position, 7, service_id, endpoint
            )
        return archive

    def start(self, log_end: int = LOG_END) -> RecordingLogEntry | None:
        """Let a start look at the snapshots, and return the one that it begins from."""
        copies = StandbyCopies(self.side.context, self.side.archive, self._position, SESSION_IDS.__next__)
        found: RecordingLogEntry | None = self.side.run(copies.run(log_end))
        return found

    def _position(self, recording_id: int) -> int | None:
        return self.archive.store.recorded_position(recording_id)

    def positions(self) -> list[int]:
        """Snapshots of the consensus module that count."""
        return [each.log_position for each in self.log.entries if each.is_valid_snapshot and each.service_id == -1]

    def copied(self) -> list[int]:
        """The recordings of the archive that it did not have before."""
        return [each for each in self.archive.store.catalog.recording_ids() if each not in self.own]

    def texts(self) -> list[str]:
        return [str(each) for each in self.side.errors]


@pytest.mark.parametrize("service_count", [1, 3])
def test_the_latest_snapshot_of_all_standbys_is_copied_and_counts(service_count: int) -> None:
    member = Member(service_count)
    member.standby(2048)
    standby = member.standby(4096)
    member.standby(3072)
    former = member.side.archive.on_signal
    copied = member.start()
    assert copied is not None
    assert (copied.log_position, copied.service_id, copied.timestamp) == (4096, -1, 7)
    assert member.side.archive.on_signal is former
    plan = create_recovery_plan(member.log, service_count)
    assert [(each.service_id, each.log_position) for each in plan.snapshots] == [
        (service_id, 4096) for service_id in range(-1, service_count)
    ]
    for each in plan.snapshots:
        assert member.archive.content(each.recording_id) == standby.content(service_count - 1 - each.service_id)
    assert member.start() is None, "it has it now"
    assert len(member.copied()) == service_count + 1
    assert member.texts() == member.world.texts() == []


@pytest.mark.parametrize("position", [512, 1024, LOG_END + 32])
def test_one_that_is_no_later_or_behind_the_log_is_left(position: int) -> None:
    member = Member()
    member.standby(position)
    assert member.start() is None
    assert (member.positions(), member.copied(), member.texts()) == ([1024], [], [])


def test_one_that_is_said_to_be_of_position_0_is_left() -> None:
    """Also by a member that has none: it would apply its whole log to a later state."""
    member = Member()
    member.log.append_term(recorded(member.archive, LENGTH), 0, 0, 5)
    assert member.log.invalidate_latest_snapshot()
    before = member.archive.store.catalog.recording_ids()
    member.standby(0, taken_at=2048)
    assert member.start() is None
    assert member.positions() == []
    assert member.archive.store.catalog.recording_ids() == before


def test_one_at_the_end_of_the_log_counts() -> None:
    member = Member()
    member.standby(LOG_END)
    copied = member.start()
    assert copied is not None
    assert copied.log_position == LOG_END


def test_one_that_lacks_a_service_is_none() -> None:
    member = Member(service_count=2)
    member.standby(2048, services=1)
    assert member.start() is None
    assert (member.positions(), member.texts()) == ([1024], [])


def gone(member: Member) -> Archive:
    archive = member.standby(4096)
    archive.vanish()
    return archive


def without_it(member: Member) -> Archive:
    return member.standby(4096, known=False)


def silent(member: Member) -> Archive:
    archive = member.standby(4096)
    archive.is_working = False
    return archive


def mistaken(member: Member) -> Archive:
    return member.standby(4096, taken_at=3072)


@pytest.mark.parametrize("how", [gone, without_it, silent, mistaken])
@pytest.mark.parametrize("has_another", [True, False])
def test_an_archive_that_does_not_give_it_is_reported_and_the_next_one_is_asked(
    how: Callable[[Member], Archive], *, has_another: bool
) -> None:
    member = Member()
    failing = how(member)
    if has_another:
        member.standby(2048)
    copied = member.start()
    (text,) = member.texts()
    place = f"{failing.host}:{failing.port}"
    assert text.startswith(f"the snapshot at 4096 of the standby with the archive {place} was not copied: ")
    assert (None if copied is None else copied.log_position) == (2048 if has_another else None)
    assert member.positions() == ([1024, 2048] if has_another else [1024])
    named = {each.recording_id for each in member.log.entries if each.archive_endpoint is None}
    assert set(member.archive.store.catalog.recording_ids()) == named, "what the failed one has left is deleted"


def test_a_snapshot_that_is_another_one_is_named() -> None:
    member = Member()
    failing = mistaken(member)
    assert member.start() is None
    assert member.texts() == [
        f"the snapshot at 4096 of the standby with the archive {failing.host}:{failing.port} was not copied: recording "
        "0, which it names as the snapshot of service 0 at 4096, is another one: a marker says it is of a service at "
        "3072 in term 0, and it should be of a service at 4096 in term 0"
    ]


def test_an_archive_that_dies_in_the_middle_leaves_nothing() -> None:
    member = Member(service_count=2)
    standby = member.standby(4096)
    copies = StandbyCopies(member.side.context, member.side.archive, member._position, SESSION_IDS.__next__).run(
        LOG_END
    )
    is_dead = False
    result: list[RecordingLogEntry | None] = []

    def is_done() -> bool:
        nonlocal is_dead
        member.side.turn()
        if not is_dead and len(member.copied()) == 2:
            is_dead = True
            standby.vanish()
        try:
            next(copies)
        except StopIteration as end:
            result.append(end.value)
        return bool(result)

    member.world.until(is_done)
    assert result == [None]
    assert is_dead
    assert member.positions() == [1024]
    left = [member.archive.range(each) for each in member.copied()]
    assert left in ([], [(0, 0)]), "one that nothing was recorded of"
    assert len(member.texts()) == 1


def test_a_disk_that_is_full_ends_the_start_and_nothing_is_entered() -> None:
    member = Member()
    member.standby(4096)
    member.side.disk.fail("rename", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        member.start()
    assert member.positions() == [1024]
