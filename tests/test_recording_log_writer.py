"""The recording log, open for writing: upstream's tests, torn ends, damage, and crashes at every call."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.errors import ClusterError, ConfigurationError, RecordingError
from container.files.names import RECORDING_LOG_NAME
from container.files.recording_log import (
    ENDPOINT_LENGTH_MAX,
    ENTRY_TYPE_SNAPSHOT,
    ENTRY_TYPE_STANDBY_SNAPSHOT,
    ENTRY_TYPE_TERM,
    MOST_MISSING_TERMS,
    RecordingLog,
    RecordingLogEntry,
    read_recording_log,
)
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from tests.crashes import check_power_cuts, kills

DIRECTORY = "/member"
PATH = f"{DIRECTORY}/{RECORDING_LOG_NAME}"
CM = -1
ENDPOINT = "aeron:udp?endpoint=localhost:8080"


def new_storage() -> Storage:
    storage = SimulatedDisk().process()
    prepare(storage)
    return storage


def prepare(storage: Storage) -> None:
    storage.make_directory(DIRECTORY)
    storage.force_directory("/")


def take(storage: Storage, *, create: bool = True, level: int = 1) -> RecordingLog:
    return RecordingLog.open(storage, DIRECTORY, create=create, file_sync_level=level)


def put(storage: Storage, content: bytes) -> None:
    file = storage.open_file(PATH, CREATE)
    file.set_length(0)
    file.write(content, 0)
    file.close()


def content_of(storage: Storage) -> bytes:
    return storage.open_file(PATH, 0).read(1 << 20, 0)


def entry(
    recording_id: int,
    term_id: int,
    base: int,
    position: int,
    timestamp: int,
    service_id: int,
    entry_type: int,
    endpoint: str | None,
    is_valid: bool,
    index: int,
) -> RecordingLogEntry:
    """An entry, with arguments in upstream's order."""
    return RecordingLogEntry(
        index, recording_id, term_id, base, position, timestamp, service_id, entry_type, is_valid, endpoint
    )


def check_both(storage: Storage, log: RecordingLog, expected: Iterable[RecordingLogEntry]) -> None:
    """The entries in memory, and after the file was read again in two ways."""
    expected = tuple(expected)
    assert log.entries == expected
    log.reload()
    assert log.entries == expected
    opened = take(storage, create=False)
    assert opened.entries == expected
    assert opened.next_entry_index == log.next_entry_index


# Upstream: RecordingLogTest.java.


def test_a_new_index_is_empty() -> None:
    storage = new_storage()
    log = take(storage)
    assert (log.entries, log.next_entry_index, log.find_last_term()) == ((), 0, None)
    assert log.find_last_term_recording_id() == -1
    assert (log.get_latest_snapshot(CM), log.get_latest_snapshot(0)) == (None, None)
    assert not log.invalidate_latest_snapshot()
    assert log.find_snapshot_at_or_before_or_lowest(100, 0) is None
    assert log.latest_standby_snapshots(1) == {}
    assert take(storage, create=False).entries == ()


def test_without_a_file_there_is_an_error_unless_one_is_to_be_made() -> None:
    storage = new_storage()
    with pytest.raises(FileNotFoundError):
        take(storage, create=False)
    assert storage.list_directory(DIRECTORY) == []


def test_the_latest_snapshot_is_there_when_the_log_is_opened_again() -> None:
    storage = new_storage()
    take(storage).append_snapshot(1, 3, 2, 777, 4, CM)
    log = take(storage)
    assert log.get_latest_snapshot(CM) == entry(1, 3, 2, 777, 4, CM, ENTRY_TYPE_SNAPSHOT, None, True, 0)
    assert len(log.entries) == 1


def test_an_invalid_term_does_not_count() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(0, 9, 444, 0)
    log.append_term(0, 10, 666, 0)
    log.append_term(0, 11, 999, 0)
    last = log.find_last_term()
    assert last is not None
    assert last.term_base_log_position == 999
    log.invalidate_entry(2)
    for each in (log, take(storage)):
        last = each.find_last_term()
        assert last is not None
        assert (last.leadership_term_id, each.find_last_term_recording_id()) == (10, 0)
        assert each.is_unknown(11)
        assert each.term_timestamp(11) == -1
        assert each.find_term_entry(11) is None
        with pytest.raises(ClusterError, match="unknown leadershipTermId=11: the recording log has terms 9 to 10"):
            each.get_term_entry(11)
        with pytest.raises(ClusterError, match="unknown leadershipTermId=11"):
            each.commit_log_position(11, 99)


def test_the_end_of_a_term_is_stored() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(1, 1111, 2222, 3333)
    log.commit_log_position(1111, 9999)
    assert log.term_timestamp(1111) == 3333
    check_both(storage, log, [entry(1, 1111, 2222, 9999, 3333, -1, ENTRY_TYPE_TERM, None, True, 0)])


def test_a_removed_entry_keeps_its_place() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(1, 3, 2, 4)
    log.append_term(1, 4, 3, 5)
    with pytest.raises(ClusterError, match="unknown entry index: 1 is of leadershipTermId=4"):
        log.remove_entry(3, 1)
    log.remove_entry(4, 1)
    with pytest.raises(ClusterError, match="unknown entry index: 1, the next one is 2"):
        log.remove_entry(4, 1)
    assert [each.leadership_term_id for each in take(storage).entries] == [3]
    assert log.next_entry_index == take(storage).next_entry_index == 2
    log.append_term(1, 4, 7, 5)
    assert [each.entry_index for each in take(storage).entries] == [0, 2]


def test_the_latest_snapshots_are_invalidated_one_set_after_the_other() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(1, 7, 0, 1000)
    for position, recording_id in ((640, 2), (1280, 4)):
        log.append_snapshot(recording_id, 7, 0, position, 1001, 0)
        log.append_snapshot(recording_id + 1, 7, 0, position, 1001, CM)
    log.append_term(1, 8, 1280, 1002)
    assert log.invalidate_latest_snapshot()
    log = take(storage)
    assert [each.is_valid for each in log.entries] == [True, True, True, False, False, True]
    assert log.get_latest_snapshot(0) == log.entries[1]
    assert log.get_latest_snapshot(CM) == log.entries[2]
    assert log.invalidate_latest_snapshot()
    log = take(storage)
    assert [each.is_valid for each in log.entries] == [True, False, False, False, False, True]
    assert not log.invalidate_latest_snapshot()
    assert log.get_term_entry(8) == log.entries[5]


def test_an_invalid_snapshot_in_the_middle_is_restored_in_its_place() -> None:
    storage = new_storage()
    log = take(storage)
    for position in (555, 777, 888):
        log.append_snapshot(position, 1, 10, position, 0, 0)
        log.append_snapshot(position + 1, 1, 10, position, 0, CM)
    log.invalidate_entry(2)
    log.invalidate_entry(3)
    log = take(storage)
    log.append_snapshot(7, 1, 10, 777, 555, 0)
    log.append_snapshot(8, 1, 10, 777, -999, CM)
    assert len(log.entries) == 6
    assert log.entries[2:4] == (
        entry(7, 1, 10, 777, 555, 0, ENTRY_TYPE_SNAPSHOT, None, True, 2),
        entry(8, 1, 10, 777, -999, CM, ENTRY_TYPE_SNAPSHOT, None, True, 3),
    )
    check_both(storage, log, log.entries)


def test_invalid_snapshots_at_the_end_are_restored_in_their_places() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_snapshot(-10, 1, 0, 777, 0, 0)
    log.append_snapshot(-11, 1, 0, 777, 0, CM)
    log.append_term(1, 2, 10, 0)
    log.append_snapshot(-12, 2, 10, 888, 0, 0)
    log.append_snapshot(-13, 2, 10, 888, 0, CM)
    log.append_term(1, 3, 20, 0)
    log.append_snapshot(-14, 3, 20, 999, 0, 0)
    log.append_snapshot(-15, 3, 20, 999, 0, CM)
    assert log.invalidate_latest_snapshot()
    assert log.invalidate_latest_snapshot()
    log = take(storage)
    log.append_snapshot(1, 2, 10, 888, 0, 0)
    log.append_snapshot(2, 2, 10, 888, 0, CM)
    log.append_snapshot(3, 3, 20, 999, 0, 0)
    log.append_snapshot(4, 3, 20, 999, 0, CM)
    assert [each.recording_id for each in log.entries] == [-10, -11, 1, 1, 2, 1, 3, 4]
    assert all(each.is_valid for each in log.entries)
    check_both(storage, log, log.entries)


def test_a_set_that_a_crash_has_cut_short_is_replaced_when_it_is_taken_again() -> None:
    storage = new_storage()
    log = take(storage)
    for service_id in (1, 0):  # and not the consensus module's
        log.append_snapshot(service_id, 1, 10, 555, 0, service_id)
    log = take(storage)
    for service_id in (1, 0, CM):
        log.append_snapshot(10 + service_id, 1, 10, 555, 5, service_id)
    assert [(each.service_id, each.recording_id, each.timestamp) for each in log.entries] == [
        (1, 11, 5),
        (0, 10, 5),
        (CM, 9, 5),
    ]
    check_both(storage, log, log.entries)


def test_a_snapshot_of_an_unknown_term_is_not_invalidated() -> None:
    log = take(new_storage())
    log.append_snapshot(-10, 1, 0, 777, 0, 0)
    log.append_snapshot(-11, 1, 0, 777, 0, CM)
    with pytest.raises(ClusterError, match="no matching term for snapshot: leadershipTermId=1"):
        log.invalidate_latest_snapshot()


def test_an_invalid_snapshot_is_restored_only_if_all_fields_match() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(10, 0, 0, 0)
    log.append_term(10, 1, 500, 0)
    for recording_id, position in ((0, 777), (2, 888), (4, 999)):
        log.append_snapshot(recording_id, 1, 500, position, 0, 0)
        log.append_snapshot(recording_id + 1, 1, 500, position, 0, CM)
    log.append_term(10, 2, 1000, 5)
    assert log.invalidate_latest_snapshot()
    log = take(storage)
    log.append_snapshot(6, 2, 500, 999, 0, CM)
    log.append_snapshot(7, 1, 501, 999, 0, CM)
    log.append_snapshot(8, 1, 500, 998, 0, CM)
    log.append_snapshot(9, 1, 500, 999, 0, 42)
    assert log.entries[6:] == (
        entry(8, 1, 500, 998, 0, CM, ENTRY_TYPE_SNAPSHOT, None, True, 11),
        entry(9, 1, 500, 999, 0, 42, ENTRY_TYPE_SNAPSHOT, None, True, 12),
        entry(4, 1, 500, 999, 0, 0, ENTRY_TYPE_SNAPSHOT, None, False, 6),
        entry(5, 1, 500, 999, 0, CM, ENTRY_TYPE_SNAPSHOT, None, False, 7),
        entry(7, 1, 501, 999, 0, CM, ENTRY_TYPE_SNAPSHOT, None, True, 10),
        entry(6, 2, 500, 999, 0, CM, ENTRY_TYPE_SNAPSHOT, None, True, 9),
        entry(10, 2, 1000, -1, 5, -1, ENTRY_TYPE_TERM, None, True, 8),
    )
    latest = log.get_latest_snapshot(CM)
    assert latest is not None
    assert latest.recording_id == 6


def test_the_snapshot_at_or_before_a_position_or_the_lowest_is_found() -> None:
    log = take(new_storage())
    recordings = iter(range(100))
    for position, services in ((777, (0, 1)), (888, (0, 1)), (890, (0,)), (999, (0, 1))):
        if position in (888, 999):
            for service_id in (0, 1, CM):
                log.append_standby_snapshot(next(recordings), 1, 500, position - 9, 0, service_id, "localhost:8080")
        for service_id in (*services, CM):
            log.append_snapshot(next(recordings), 1, 500, position, 0, service_id)
    for asked, expected in ((777, 777), (888, 888), (999, 999), (890, 888), (990, 888), (750, 777), (1000, 999)):
        found = log.find_snapshot_at_or_before_or_lowest(asked, 2)
        assert found is not None
        assert [(each.service_id, each.log_position) for each in found] == [
            (1, expected),
            (0, expected),
            (CM, expected),
        ]


@pytest.mark.parametrize("invalid", [0, 1])
def test_a_set_with_an_invalid_snapshot_of_a_service_is_passed_over(invalid: int) -> None:
    """The validator finds one recording gone: whoever was sent to the archive for the set would not get it."""
    log = take(new_storage())
    for position in (100, 200):
        for service_id in (1, 0, CM):
            log.append_snapshot(position + service_id, 1, 0, position, 0, service_id)
    [gone] = [each for each in log.entries if (each.service_id, each.log_position) == (invalid, 200)]
    log.invalidate_entry(gone.entry_index)
    found = log.find_snapshot_at_or_before_or_lowest(300, 2)
    assert found is not None
    assert [each.log_position for each in found] == [100, 100, 100]


def test_an_incomplete_set_at_the_head_of_the_log_is_passed_over() -> None:
    log = take(new_storage())
    log.append_snapshot(1, 1, 0, 64, 0, CM)
    assert log.find_snapshot_at_or_before_or_lowest(100, 1) is None


def test_a_term_may_be_appended_behind_later_ones() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(0, 0, 0, 0)
    log.append_term(0, 2, 2048, 0)
    log.append_term(0, 3, 5000, 100)
    log.append_term(0, 1, 700, 0)
    assert log.next_entry_index == 4
    expected = [
        entry(0, 0, 0, 700, 0, -1, ENTRY_TYPE_TERM, None, True, 0),
        entry(0, 1, 700, 2048, 0, -1, ENTRY_TYPE_TERM, None, True, 3),
        entry(0, 2, 2048, 5000, 0, -1, ENTRY_TYPE_TERM, None, True, 1),
        entry(0, 3, 5000, -1, 100, -1, ENTRY_TYPE_TERM, None, True, 2),
    ]
    assert [log.get_term_entry(term_id) for term_id in range(4)] == expected
    check_both(storage, log, expected)


def test_a_snapshot_may_be_appended_behind_later_terms() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(3, 1, 0, 0)
    log.append_snapshot(10, 1, 0, 56, 42, CM)
    log.invalidate_entry(1)
    log.commit_log_position(1, 200)
    log.append_term(3, 2, 200, 555)
    log.commit_log_position(2, 2048)
    log.append_term(3, 3, 2048, 0)
    log.append_snapshot(11, 2, 200, 250, 100, 1)
    log.append_snapshot(10, 1, 0, 56, 42, CM)
    log.append_snapshot(100, 2, 200, 250, 100, 0)
    expected = [
        entry(3, 1, 0, 200, 0, -1, ENTRY_TYPE_TERM, None, True, 0),
        entry(10, 1, 0, 56, 42, CM, ENTRY_TYPE_SNAPSHOT, None, True, 1),
        entry(3, 2, 200, 2048, 555, -1, ENTRY_TYPE_TERM, None, True, 2),
        entry(11, 2, 200, 250, 100, 1, ENTRY_TYPE_SNAPSHOT, None, True, 4),
        entry(100, 2, 200, 250, 100, 0, ENTRY_TYPE_SNAPSHOT, None, True, 5),
        entry(3, 3, 2048, -1, 0, -1, ENTRY_TYPE_TERM, None, True, 3),
    ]
    assert log.find_term_entry(0) is None
    assert [log.get_term_entry(term_id) for term_id in (1, 2, 3)] == [expected[0], expected[2], expected[5]]
    assert log.get_latest_snapshot(CM) == expected[1]
    check_both(storage, log, expected)


@pytest.mark.parametrize(
    "append",
    [
        lambda log: log.append_term(-1, 0, 0, 0),
        lambda log: log.append_snapshot(-1, 0, 0, 0, 0, 0),
        lambda log: log.append_standby_snapshot(-1, 0, 0, 0, 0, 0, ENDPOINT),
    ],
    ids=["term", "snapshot", "standby snapshot"],
)
def test_an_entry_needs_a_recording(append: Callable[[RecordingLog], None]) -> None:
    log = take(new_storage())
    with pytest.raises(ClusterError, match="invalid recordingId=-1: give the id that the archive has given"):
        append(log)
    assert log.entries == ()


def test_all_terms_are_of_one_recording() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(42, 0, 0, 0)
    for each, recording_id in ((log, 21), (take(storage), -5)):
        with pytest.raises(ClusterError, match=f"invalid TERM recordingId={recording_id}, expected recordingId=42"):
            each.append_term(recording_id, 1, 0, 0)
        assert len(each.entries) == 1


def test_a_term_is_valid_once() -> None:
    log = take(new_storage())
    log.append_term(8, 0, 0, 0)
    log.append_term(8, 1, 1, 1)
    log.invalidate_entry(0)
    log.append_term(8, 0, 100, 100)
    with pytest.raises(ClusterError, match="duplicate TERM entry for leadershipTermId=1: .* has terms 0 to 1"):
        log.append_term(8, 1, 5, 5)
    assert len(log.entries) == 3


def test_entries_are_sorted() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(0, 0, 0, 0)
    log.append_term(0, 1, 100, 10)
    log.append_snapshot(0, 1, 111, 222, 12, 1)
    log.append_snapshot(0, 1, 111, 222, 12, CM)
    log.append_snapshot(0, 1, 111, 222, 12, 0)
    log.append_term(0, 3, 500, 30)
    log.append_term(0, 2, 1_000_000, 1_000_000)
    log.invalidate_entry(1)
    log.invalidate_entry(6)  # upstream: 5, its place in the list
    log.append_term(0, 2, 400, 20)
    log.append_term(0, 1, 90, 9)
    assert log.invalidate_latest_snapshot()
    log.append_snapshot(0, 2, 400, 1400, 200, CM)
    log.append_snapshot(0, 2, 400, 1400, 200, 1)
    log.append_snapshot(0, 1, 0, 777, 42, 2)
    log.append_snapshot(0, 2, 400, 1400, 200, 0)
    log.invalidate_entry(10)  # upstream: 8
    for service_id in (CM, 1, 0):
        log.append_standby_snapshot(0, 2, 400, 1400, 200, service_id, ENDPOINT)
    check_both(
        storage,
        log,
        [
            entry(0, 0, 0, 90, 0, -1, ENTRY_TYPE_TERM, None, True, 0),
            entry(0, 1, 0, 777, 42, 2, ENTRY_TYPE_SNAPSHOT, None, True, 11),
            entry(0, 1, 90, 400, 9, -1, ENTRY_TYPE_TERM, None, True, 8),
            entry(0, 1, 100, 1000000, 10, -1, ENTRY_TYPE_TERM, None, False, 1),
            entry(0, 1, 111, 222, 12, 1, ENTRY_TYPE_SNAPSHOT, None, False, 2),
            entry(0, 1, 111, 222, 12, 0, ENTRY_TYPE_SNAPSHOT, None, False, 4),
            entry(0, 1, 111, 222, 12, CM, ENTRY_TYPE_SNAPSHOT, None, False, 3),
            entry(0, 2, 400, 500, 20, -1, ENTRY_TYPE_TERM, None, True, 7),
            entry(0, 2, 400, 1400, 200, 1, ENTRY_TYPE_STANDBY_SNAPSHOT, ENDPOINT, True, 14),
            entry(0, 2, 400, 1400, 200, 0, ENTRY_TYPE_STANDBY_SNAPSHOT, ENDPOINT, True, 15),
            entry(0, 2, 400, 1400, 200, CM, ENTRY_TYPE_STANDBY_SNAPSHOT, ENDPOINT, True, 13),
            entry(0, 2, 400, 1400, 200, 1, ENTRY_TYPE_SNAPSHOT, None, False, 10),
            entry(0, 2, 400, 1400, 200, 0, ENTRY_TYPE_SNAPSHOT, None, True, 12),
            entry(0, 2, 400, 1400, 200, CM, ENTRY_TYPE_SNAPSHOT, None, True, 9),
            entry(0, 2, 1_000_000, 500, 1_000_000, -1, ENTRY_TYPE_TERM, None, False, 6),
            entry(0, 3, 500, -1, 30, -1, ENTRY_TYPE_TERM, None, True, 5),
        ],
    )


def ensure(log: RecordingLog, initial_term_id: int, initial_base: int, term_id: int, base: int, end: int) -> None:
    log.ensure_coherent(
        recording_id=3,
        initial_log_leadership_term_id=initial_term_id,
        initial_term_base_log_position=initial_base,
        leadership_term_id=term_id,
        term_base_log_position=base,
        log_position=end,
        timestamp=17,
    )


def terms(log: RecordingLog) -> list[tuple[int, int, int]]:
    return [(each.leadership_term_id, each.term_base_log_position, each.log_position) for each in log.entries]


@pytest.mark.parametrize(("initial_term_id", "base", "term_id"), [(0, 0, 4), (2, 500, 4), (100, 1_000_000, 200)])
def test_an_empty_log_is_filled_with_empty_terms(initial_term_id: int, base: int, term_id: int) -> None:
    storage = new_storage()
    log = take(storage)
    ensure(log, initial_term_id, base, term_id, base, base + 500)
    empty = [(each, base, base) for each in range(initial_term_id, term_id)]
    assert terms(log) == [*empty, (term_id, base, base + 500)]
    assert {each.timestamp for each in log.entries} == {17}
    check_both(storage, log, log.entries)


def test_there_is_no_term_minus_one() -> None:
    log = take(new_storage())
    ensure(log, -1, 0, 4, 0, 500)
    assert [each.leadership_term_id for each in log.entries] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("initial_term_id", "initial_base", "term_id"), [(0, 0, 4), (2, 500, 4), (100, 10**6, 200)])
def test_the_terms_behind_the_last_one_are_filled(initial_term_id: int, initial_base: int, term_id: int) -> None:
    storage = new_storage()
    log = take(storage)
    base = initial_base + 100
    log.append_term(3, initial_term_id, initial_base, 1)
    ensure(log, initial_term_id, initial_base, term_id, base, initial_base + 500)
    empty = [(each, base, base) for each in range(initial_term_id + 1, term_id)]
    assert terms(log) == [(initial_term_id, initial_base, base), *empty, (term_id, base, initial_base + 500)]
    check_both(storage, log, log.entries)


@pytest.mark.parametrize("far", [MOST_MISSING_TERMS + 6, 100_000, 1 << 31, (1 << 63) - 1])
def test_many_terms_that_were_missed_leave_a_gap(far: int) -> None:
    """One message names such a term, and the file had an entry for each one before it."""
    storage = new_storage()
    log = take(storage)
    log.append_term(3, 4, 0, 1)
    ensure(log, 0, 0, far, 320, -1)
    half = MOST_MISSING_TERMS // 2
    missed = [*range(5, 5 + half), *range(far - half, far)]
    assert terms(log) == [(4, 0, 320), *((each, 320, 320) for each in missed), (far, 320, -1)]
    check_both(storage, log, log.entries)
    for term_id, following in ((4, far), (5 + half, far), (far - 1, far), (-1, 4)):
        entry = log.find_term_after(term_id)
        assert entry is not None
        assert entry.leadership_term_id == following
    assert log.find_term_after(far) is None
    log.commit_log_position(far, 320)
    assert log.find_term_after(4) == log.find_term_after(far - 1) == log.find_last_term()
    log.commit_log_position(far, -1)
    before = log.find_term_before(far - half)
    assert before is not None
    assert before.leadership_term_id == 4 + half
    assert log.find_term_before(4) is None
    assert (log.find_first_empty_term(far), log.find_first_empty_term(4)) == (5, 4)
    for term_id in range(5, far, max(1, far // 97)):
        entry = log.find_empty_term(term_id)
        assert entry is not None
        assert (entry.leadership_term_id, entry.term_base_log_position, entry.log_position) == (term_id, 320, 320)
    assert [log.find_empty_term(each) for each in (-1, 3, 4, far)] == [None] * 4
    assert not log.mend(320)
    assert [log.drop_last_terms(each) for each in (far, far - 3, 5)] == [far - 1, far - 4, 4]
    assert terms(log) == [(4, 0, -1)]


def test_a_term_that_a_backup_has_left_out_is_not_known_to_be_empty() -> None:
    log = take(new_storage())
    for term_id, base in ((4, 0), (9, 320)):
        log.append_term(3, term_id, base, 1)
    log.commit_log_position(4, 320)
    assert log.find_empty_term(7) is None


def test_the_end_of_a_log_is_of_a_term_that_a_backup_has_left_out() -> None:
    log = take(new_storage())
    for term_id, base in ((4, 320), (5, 320), (8, 640), (9, 640), (11, 640), (12, 960)):
        log.append_term(3, term_id, base, 1)
    found = {entry.leadership_term_id for entry in log.entries if log.is_left_out(*_extent(entry))}
    assert found == {4, 5, 8, 9, 11}, "the last one has a term at its side, and 9 and 11 begin where 8 does"


def _extent(entry: RecordingLogEntry) -> tuple[int, int]:
    return entry.leadership_term_id, entry.term_base_log_position


@pytest.mark.parametrize("far", [2, MOST_MISSING_TERMS + 6, 1 << 31])
def test_no_term_is_left_out_where_those_that_were_missed_are_empty(far: int) -> None:
    log = take(new_storage())
    ensure(log, -1, 0, 1, 320, -1)
    ensure(log, -1, 0, far, 640, -1)
    assert not any(log.is_left_out(*_extent(entry)) for entry in log.entries)


def test_a_log_that_was_copied_before_its_first_term_was_known_is_of_the_term_before_it() -> None:
    log = take(new_storage())
    ensure(log, -1, 0, 1 << 31, 10_000, -1)
    half = MOST_MISSING_TERMS // 2
    assert [each[0] for each in terms(log)] == [*range(half), *range((1 << 31) - half, (1 << 31) + 1)]
    assert terms(log)[-2:] == [((1 << 31) - 1, 0, 10_000), (1 << 31, 10_000, -1)]


def test_the_end_of_a_closed_term_counts_where_the_base_that_is_given_is_before_it() -> None:
    log = take(new_storage())
    log.append_term(3, 5, 0, 1)
    log.commit_log_position(5, 640)
    ensure(log, 0, 0, 7, 320, -1)
    assert terms(log) == [(5, 0, 640), (6, 640, 640), (7, 640, -1)]


def test_what_was_copied_behind_the_end_of_a_closed_term_is_of_that_term() -> None:
    """A truncation ended it. A crash cut the copy of more of it short, and then this member led.

    Had the new term begun before that copy, who truncates to its beginning would lose what was copied.
    """
    storage = new_storage()
    log = take(storage)
    log.append_term(3, 5, 0, 1)
    log.end_terms(5, 640)
    ensure(log, 0, 0, 7, 999, -1)
    assert terms(log) == [(5, 0, 999), (6, 999, 999), (7, 999, -1)]
    check_both(storage, log, log.entries)


def test_the_last_filled_term_is_behind_no_gap_and_before_all_empty_ones() -> None:
    log = take(new_storage())
    for term_id, base, end in ((2, 0, 320), (5, 320, 640), (6, 640, 640), (8, 640, 640)):
        log.append_term(3, term_id, base, 1)
        log.commit_log_position(term_id, end)

    def find(term_id: int, position: int) -> int | None:
        entry = log.find_last_filled_term(term_id, position)
        return None if entry is None else entry.leadership_term_id

    assert [find(*each) for each in ((2, 0), (5, 320), (6, 640), (7, 640), (8, 640))] == [None, 2, 5, 5, 5]
    log.commit_log_position(5, 480)  # a backup has left out who led what comes behind that
    assert find(8, 640) is None


def test_a_term_that_is_there_is_completed() -> None:
    log = take(new_storage())
    log.append_term(3, 4, 100, 1)
    ensure(log, 0, 0, 4, 100, 500)
    assert terms(log) == [(4, 100, 500)]
    ensure(log, 0, 0, 4, 100, -1)
    assert terms(log) == [(4, 100, 500)]


def test_the_term_before_the_first_one_is_filled() -> None:
    log = take(new_storage())
    ensure(log, 0, 0, 1, 10_000, -1)
    assert terms(log) == [(0, 0, 10_000), (1, 10_000, -1)]


def test_an_open_term_cannot_be_followed_by_one_of_which_the_base_is_unknown() -> None:
    log = take(new_storage())
    log.append_term(3, 3, 0, 1)
    with pytest.raises(ClusterError, match="the term before 4 is open, and it is unknown where the next one begins"):
        ensure(log, 0, 0, 4, -1, 500)


def three_terms(storage: Storage) -> RecordingLog:
    """A log of the terms 2, 4 and 5, with an empty term 3 between, which ends at 640."""
    log = take(storage)
    log.append_term(3, 2, 0, 1)
    log.append_snapshot(9, 2, 0, 64, 1, CM)
    ensure(log, 0, 0, 4, 320, 640)
    log.append_term(3, 5, 640, 1)
    assert terms(log) == [(2, 0, 320), (2, 0, 64), (3, 320, 320), (4, 320, 640), (5, 640, -1)]
    return log


@pytest.mark.parametrize(
    ("term_id", "position", "expected"),
    [
        (5, 640, [(2, 0, 320), (2, 0, 64), (3, 320, 320), (4, 320, 640), (5, 640, 640)]),
        (5, 480, [(2, 0, 320), (2, 0, 64), (3, 320, 320), (4, 320, 480), (5, 480, 480)]),
        (5, 320, [(2, 0, 320), (2, 0, 64), (3, 320, 320), (4, 320, 320), (5, 320, 320)]),
        (5, 96, [(2, 0, 96), (2, 0, 64), (3, 96, 96), (4, 96, 96), (5, 96, 96)]),
        (7, 480, [(2, 0, 320), (2, 0, 64), (3, 320, 320), (4, 320, 480), (5, 480, -1)]),
    ],
)
def test_no_term_reaches_behind_the_end_of_a_log_that_was_cut_off(
    term_id: int, position: int, expected: list[tuple[int, int, int]]
) -> None:
    storage = new_storage()
    log = three_terms(storage)
    log.end_terms(term_id, position)
    assert terms(log) == expected
    check_both(storage, log, log.entries)


def test_an_empty_last_term_is_dropped() -> None:
    storage = new_storage()
    log = three_terms(storage)
    assert log.drop_last_terms(5) == 4
    assert terms(log)[-2:] == [(3, 320, 320), (4, 320, -1)]
    log.end_terms(4, 480)
    for first_term_id in (4, 3):
        with pytest.raises(ClusterError, match="term 4 is not empty"):
            log.drop_last_terms(first_term_id)
    log.end_terms(4, 320)
    assert log.drop_last_terms(3) == 2, "they are ended at their bases"
    assert terms(log) == [(2, 0, -1), (2, 0, 64)]
    log.append_term(3, 4, 320, 1)
    check_both(storage, log, log.entries)


def test_a_crash_while_many_terms_are_dropped_leaves_some_of_them() -> None:
    left = set()

    def begin(storage: Storage) -> None:
        prepare(storage)
        log = take(storage)
        log.append_term(3, 4, 0, 1)
        ensure(log, 0, 0, 20, 320, -1)

    def check(disk: SimulatedDisk) -> None:
        log = take(disk.process())
        log.mend(320)
        found = [each for each in terms(log) if each[0] > 4]
        left.add(len(found))
        assert [term_id for term_id, _, _ in found] == [*range(5, 5 + len(found))], "the first ones"
        assert all(base == 320 for _, base, _ in found)
        assert log.drop_last_terms(5) == 4
        assert terms(log) == [(4, 0, -1)]

    check_power_cuts(begin, lambda storage: take(storage).drop_last_terms(5), check)
    assert {0, 16} < left


def test_the_only_term_is_dropped() -> None:
    log = take(new_storage())
    assert log.drop_last_terms(5) == -1
    log.append_term(3, 5, 0, 1)
    assert log.drop_last_terms(5) == -1
    assert log.entries == ()


def test_a_log_with_nothing_to_mend_stays() -> None:
    storage = new_storage()
    log = three_terms(storage)
    before = content_of(storage)
    assert not log.mend(640)
    assert not log.mend(10_000)
    assert content_of(storage) == before


@pytest.mark.parametrize("position", [640, 480, 320, 96])
def test_a_crash_while_terms_are_ended_is_mended(position: int) -> None:
    """The recording is cut off before: where it ends is what the next start knows."""
    seen = set()

    def begin(storage: Storage) -> None:
        prepare(storage)
        three_terms(storage).force()

    def check(disk: SimulatedDisk) -> None:
        log = take(disk.process())
        log.mend(position)
        found = [each for each in log.entries if each.is_term]
        seen.add(found[-1].log_position)
        assert all(max(each.term_base_log_position, each.log_position) <= position for each in found)
        assert all(one.log_position == next_one.term_base_log_position for one, next_one in pairwise(found))
        assert [each.leadership_term_id for each in found] == [2, 3, 4, 5]
        assert found[-1].log_position in (-1, position)

    check_power_cuts(begin, lambda storage: take(storage).end_terms(5, position), check)
    assert seen == {-1, position}


def test_a_crash_while_a_term_is_dropped_leaves_it_or_not() -> None:
    seen = set()

    def begin(storage: Storage) -> None:
        prepare(storage)
        three_terms(storage).force()

    def check(disk: SimulatedDisk) -> None:
        log = take(disk.process())
        log.mend(640)
        seen.add(tuple(terms(log)[-2:]))
        last = log.find_last_term()
        assert last is not None
        if last.leadership_term_id == 5:
            assert log.drop_last_terms(5) == 4
        assert terms(log)[-1] == (4, 320, -1)

    check_power_cuts(begin, lambda storage: take(storage).drop_last_terms(5), check)
    assert seen == {((4, 320, 640), (5, 640, -1)), ((3, 320, 320), (4, 320, -1))}


def test_standby_snapshots_are_entries_with_an_endpoint() -> None:
    storage = new_storage()
    log = take(storage)
    for recording_id, service_id in ((1, CM), (2, 0)):
        log.append_snapshot(recording_id, 1, 0, 1000, 5, service_id)
        log.append_standby_snapshot(recording_id + 2, 2, 1000, 2000, 5, service_id, "remotehost.aeron.io:20002")
        log.append_snapshot(recording_id + 4, 3, 2000, 3000, 5, service_id)
    found = {(each.recording_id, each.archive_endpoint) for each in take(storage).entries}
    remote = "remotehost.aeron.io:20002"
    assert found == {(1, None), (2, None), (3, remote), (4, remote), (5, None), (6, None)}


def test_the_latest_snapshots_of_both_kinds_are_invalidated() -> None:
    storage = new_storage()
    log = take(storage)
    for term_id in (1, 2, 3, 4):
        log.append_term(1, term_id, 0, 5)
    for service_id in (0, CM):
        log.append_snapshot(1, 1, 0, 1000, 5, service_id)
        log.append_standby_snapshot(3, 2, 1000, 2000, 5, service_id, ENDPOINT)
        log.append_snapshot(5, 3, 2000, 3000, 5, service_id)
        log.append_standby_snapshot(7, 4, 1000, 4000, 5, service_id, ENDPOINT)
        log.append_snapshot(9, 4, 2000, 4000, 5, service_id)
    latest = []
    log = take(storage)
    for _ in range(4):
        found = [index for index, each in enumerate(log.entries) if each.is_valid and not each.is_term]
        latest.append(found[-1])
        assert log.invalidate_latest_snapshot()
    assert latest == [13, 8, 5, 2]
    assert not log.invalidate_latest_snapshot()
    check_both(storage, log, log.entries)


def test_the_latest_standby_snapshots_are_grouped_by_endpoint() -> None:
    storage = new_storage()
    log = take(storage)
    first, second = "remotehost0.aeron.io:20002", "remotehost1.aeron.io:20002"
    log.append_snapshot(1, 1, 0, 1000, 5, CM)
    log.append_snapshot(2, 1, 0, 1000, 5, 0)
    for recording_id, service_id in ((5, CM), (6, 0)):
        log.append_standby_snapshot(recording_id, 2, 500, 800, 5, service_id, first)
        log.append_standby_snapshot(recording_id - 2, 2, 1000, 2000, 5, service_id, first)
        log.append_standby_snapshot(recording_id - 2, 2, 1000, 2000, 5, service_id, second)
    log.append_standby_snapshot(10, 2, 3000, 4000, 5, 0, first)
    log.append_standby_snapshot(11, 2, 3000, 4000, 5, 0, second)
    found = take(storage).latest_standby_snapshots(1)
    assert {key: [(each.recording_id, each.service_id) for each in entries] for key, entries in found.items()} == {
        first: [(3, CM), (4, 0)],
        second: [(3, CM), (4, 0)],
    }


def test_an_earlier_standby_snapshot_is_not_invalidated_with_a_snapshot() -> None:
    log = take(new_storage())
    log.append_term(1, 0, 0, 5)
    for recording_id, base, position in ((2, 0, 1000), (4, 2, 2000)):
        log.append_snapshot(recording_id, 0, base, position, 5, CM)
        log.append_snapshot(recording_id + 1, 0, base, position, 5, 0)
    log.append_standby_snapshot(15, 0, 500, 800, 5, CM, ENDPOINT)
    log.append_standby_snapshot(16, 0, 500, 800, 5, 0, ENDPOINT)
    before = log.latest_standby_snapshots(1)
    assert len(before[ENDPOINT]) == 2
    assert log.invalidate_latest_snapshot()
    latest = log.get_latest_snapshot(CM)
    assert latest is not None
    assert latest.recording_id == 2
    assert log.latest_standby_snapshots(1) == before


def test_long_entries_are_read_wherever_they_lie() -> None:
    storage = new_storage()
    log = take(storage)
    endpoint = "a" * 3079 + "x"
    for recording_id, service_id in ((1, CM), (2, 0), (3, 1)):
        log.append_standby_snapshot(recording_id, 2, 1000, 2000, 5, service_id, endpoint)
    log.append_term(4, 3, 10_000, 5)
    log.append_snapshot(5, 4, 20_000, 22_222, 5, CM)
    log.append_standby_snapshot(6, 4, 20_000, 22_222, 5, 0, "b" * ENDPOINT_LENGTH_MAX)
    check_both(storage, log, log.entries)
    assert [each.recording_id for each in log.entries] == [3, 2, 1, 4, 6, 5]


def test_an_endpoint_that_is_no_endpoint_is_refused() -> None:
    log = take(new_storage())
    with pytest.raises(ClusterError, match="Endpoint is too long: 5000 vs 4044"):
        log.append_standby_snapshot(1, 2, 1000, 2000, 5, CM, "a" * 5000)
    for endpoint in ("", "hôte:1", "host\0:1", "host\n"):
        with pytest.raises(ClusterError, match="needs an endpoint in printable ASCII, got "):
            log.append_standby_snapshot(1, 2, 1000, 2000, 5, CM, endpoint)
    assert log.entries == ()


# What upstream does wrong.


def test_an_invalid_standby_snapshot_is_restored_with_its_endpoint() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_standby_snapshot(1, 2, 1000, 2000, 5, 0, "host:1")
    log.append_standby_snapshot(2, 2, 1000, 2000, 5, 0, "b" * 1000)
    log.invalidate_entry(0)
    log.invalidate_entry(1)
    log.append_standby_snapshot(3, 2, 1000, 2000, 6, 0, "host:2")
    log.append_standby_snapshot(4, 2, 1000, 2000, 7, 0, "b" * 1000)
    found = [(each.recording_id, each.archive_endpoint, each.is_valid) for each in log.entries]
    assert found == [(1, "host:1", False), (4, "b" * 1000, True), (3, "host:2", True)]
    check_both(storage, log, log.entries)


def test_the_rest_of_an_entry_is_zero() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_standby_snapshot(1, 2, 1000, 2000, 5, 0, "b" * 13)
    log.append_term(1, 2, 1000, 5)
    assert content_of(storage)[128 + 48 :] == bytes(16)


def test_a_long_entry_is_removed_whole() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_term(1, 1, 0, 5)
    log.append_standby_snapshot(1, 2, 1000, 2000, 5, 0, "b" * 300)
    log.append_term(1, 2, 1000, 5)
    log.remove_entry(2, 1)
    assert [each.leadership_term_id for each in log.entries] == [1, 2]
    log.append_term(1, 3, 2000, 5)
    check_both(storage, log, log.entries)
    assert storage.list_directory(DIRECTORY) == [RECORDING_LOG_NAME]


@pytest.mark.parametrize("level", [-1, 3])
def test_a_level_out_of_range_is_refused(level: int) -> None:
    storage = new_storage()
    with pytest.raises(ConfigurationError, match=f"file_sync_level={level} of the recording log: must be 0, 1 or 2"):
        take(storage, level=level)
    with pytest.raises(ConfigurationError, match=f"file_sync_level={level} of the recording log: must be 0, 1 or 2"):
        take(storage).force(level)


def test_a_closed_log_takes_no_entries() -> None:
    log = take(new_storage())
    log.close()
    log.close()
    with pytest.raises(OSError, match="file that is closed"):
        log.append_term(1, 1, 1, 1)
    assert log.entries == ()
    assert repr(log) == f"<RecordingLog {PATH} entries=0>"


def test_files_of_this_machine_are_what_the_reader_reads(tmp_path: Path) -> None:
    log = RecordingLog.open(FileStorage(), str(tmp_path), create=True, file_sync_level=2)
    log.append_term(1, 0, 0, 5)
    log.append_standby_snapshot(2, 0, 0, 64, 5, CM, ENDPOINT)
    log.append_snapshot(3, 0, 0, 64, 5, CM)
    log.force()
    log.close()
    assert tuple(read_recording_log(tmp_path)) == log.entries


# What a crash has left, and damage.


def three_entries(storage: Storage) -> bytes:
    log = take(storage)
    log.append_term(1, 0, 0, 5)
    log.append_snapshot(2, 0, 0, 64, 5, CM)
    log.append_standby_snapshot(3, 0, 0, 64, 5, CM, "h" * 700)
    log.close()
    return content_of(storage)


LONG = 64 * 12  # of an entry with an endpoint of 700 characters


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (lambda content: content[:1], 0),
        (lambda content: content[:63], 0),
        (lambda content: content[:65], 1),
        (lambda content: content[: 128 + 50], 2),
        (lambda content: content[: 128 + 64], 2),
        (lambda content: content[: 128 + 500], 2),
        (lambda content: content[: 128 + LONG - 1], 2),
        (lambda content: content[:64] + bytes(64), 1),
        (lambda content: content[:64] + bytes(3), 1),
        (lambda content: content + bytes(4096), 3),
        (lambda content: bytes(200), 0),
        (lambda content: content[: 128 + 384] + bytes(LONG - 384), 2),
        (lambda content: content[: 128 + 384] + bytes(300) + content[128 + 684 :], 2),
    ],
    ids=[f"torn {number}" for number in range(13)],
)
def test_a_last_entry_that_a_crash_has_torn_is_cut_off_with_a_warning(
    left: Callable[[bytes], bytes], kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = new_storage()
    whole = three_entries(storage)
    put(storage, left(whole))
    log = take(storage)
    end = [0, 64, 128, 128 + LONG][kept]
    assert len(log.entries) == log.next_entry_index == kept
    assert content_of(storage) == whole[:end]
    cut = len(left(whole)) - end
    assert f"{PATH}: cut off the last {cut} bytes from offset {end} on" in caplog.text
    log.append_snapshot(7, 0, 0, 128, 5, CM)
    check_both(storage, log, log.entries)
    assert caplog.text.count("cut off") == 1


@pytest.mark.parametrize(
    ("damage", "offset", "text"),
    [
        (
            lambda content: bytes(64) + content[64:],
            0,
            "entry 0 is empty, and 816 bytes behind it are not: take",
        ),
        (
            lambda content: content[:44] + b"\7" + content[45:],
            0,
            "entry 0 has unknown type 7: take the file from a backup",
        ),
        (lambda content: content[:176] + bytes(4) + content[180:], 128, "an impossible length of 0: take the file"),
        (lambda content: content[:176] + b"\xff" * 4 + content[180:], 128, "an impossible length of -1"),
        (lambda content: content[:200] + b"\xc3" + content[201:], 128, "entry 2 has an impossible endpoint 'hhhh"),
        (
            lambda content: content + content[64:128] + content[:64],
            128 + LONG + 64,
            "duplicate TERM entry for leadersh",
        ),
        (
            lambda content: content + b"\2" + content[1:64],
            128 + LONG,
            "invalid TERM recordingId=2, expected 1: take the",
        ),
        (lambda content: content[:200] + b"\0" + content[201:] + content[:64], 128, "has an impossible endpoint"),
    ],
)
def test_damage_elsewhere_is_refused_and_stays_as_it_is(
    damage: Callable[[bytes], bytes], offset: int, text: str
) -> None:
    storage = new_storage()
    damaged = damage(three_entries(storage))
    put(storage, damaged)
    with pytest.raises(RecordingError) as caught:
        take(storage)
    assert text in str(caught.value)
    assert (caught.value.file, caught.value.offset) == (PATH, offset)
    assert content_of(storage) == damaged


def test_entries_behind_a_damaged_length_of_an_endpoint_are_not_cut_off() -> None:
    storage = new_storage()
    log = take(storage)
    log.append_standby_snapshot(3, 0, 0, 64, 5, CM, "h" * 10)
    for term_id in range(30):
        log.append_term(1, term_id, 64 * term_id, 5)
    whole = content_of(storage)
    for length in (100, 2500, 4044):
        put(storage, whole[:48] + struct.pack("<i", length) + whole[52:])
        with pytest.raises(RecordingError, match="impossible"):
            take(storage)


def test_an_append_that_fails_leaves_nothing_behind() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    prepare(storage)
    log = take(storage)
    log.append_term(1, 0, 0, 5)
    for written in (0, 20, 63):
        disk.fail("write", errno.ENOSPC, written=written)
        with pytest.raises(OSError, match="cannot write"):
            log.append_snapshot(2, 0, 0, 64, 5, CM)
        assert len(log.entries) == log.next_entry_index == 1
    disk.fail("write", errno.ENOSPC, after=1, written=200)
    with pytest.raises(OSError, match="cannot write"):
        log.append_standby_snapshot(3, 0, 0, 64, 5, CM, "h" * 700)
    log.append_snapshot(2, 0, 0, 64, 5, CM)
    check_both(storage, log, log.entries)
    assert len(log.entries) == 2


# Crashes.


class Life:
    """A log of which it is known what may be there after a crash, and what must."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.history: dict[int, list[RecordingLogEntry]] = {}  # of each entry all that it was, by its index
        self.forced: tuple[RecordingLogEntry, ...] = ()
        self.force_count = 0

    def act(self, storage: Storage) -> None:
        log = take(storage, level=self.level)
        steps: list[Callable[[], object]] = [
            lambda: ensure(log, 0, 0, 10, 640, -1),
            lambda: log.append_snapshot(5, 10, 640, 704, 5, 1),
            lambda: log.append_snapshot(6, 10, 640, 704, 5, 0),
            lambda: log.append_snapshot(7, 10, 640, 704, 5, CM),
            log.force,
            lambda: log.append_standby_snapshot(8, 10, 640, 704, 5, CM, "h" * 600),
            log.force,
            log.invalidate_latest_snapshot,
            log.force,
            lambda: log.append_snapshot(15, 10, 640, 704, 6, 1),
            lambda: log.append_snapshot(16, 10, 640, 704, 6, 0),
            lambda: log.append_snapshot(17, 10, 640, 704, 6, CM),
            log.force,
            lambda: log.append_term(3, 11, 1024, 5),
            log.force,
            lambda: log.commit_log_position(11, 2048),
            log.force,
        ]
        for step in steps:
            step()
            for each in log.entries:
                versions = self.history.setdefault(each.entry_index, [])
                if each not in versions:
                    versions.append(each)
            if step == log.force:
                self.forced = log.entries
                self.force_count += 1

    def check(self, disk: SimulatedDisk) -> None:
        log = take(disk.process())
        found = {each.entry_index: each for each in log.entries}
        assert found.keys() == set(range(log.next_entry_index))
        assert all(each in self.history[index] for index, each in found.items())
        for each in self.forced:  # it is there, or what it has become since
            versions = self.history[each.entry_index]
            assert versions.index(found[each.entry_index]) >= versions.index(each)
        known_terms = [each for each in log.entries if each.is_valid_term]
        for one, following in pairwise(known_terms):
            assert one.log_position == following.term_base_log_position
        latest = log.get_latest_snapshot(CM)
        if latest is not None:
            services = [log.get_latest_snapshot(service_id) for service_id in (0, 1)]
            recordings = [latest.recording_id, *[each.recording_id for each in services if each is not None]]
            assert recordings in ([7, 6, 5], [17, 16, 15])
        log.append_term(3, 99, 4096, 5)
        assert take(disk.process()).entries == log.entries


@pytest.mark.parametrize("level", [1, 2])
def test_what_a_force_has_returned_for_survives_a_cut_of_the_power_at_any_call(level: int) -> None:
    life = Life(level)
    life.act(new_storage())
    life.forced, life.force_count = (), 0
    assert check_power_cuts(prepare, life.act, life.check) > 200
    assert life.force_count == 6


def test_a_set_of_snapshots_in_two_sectors_counts_whole_or_not_at_all() -> None:
    def act(storage: Storage) -> None:
        log = take(storage)
        ensure(log, 0, 0, 5, 640, -1)
        for recording_id in (10, 20):
            for service_id in (1, 0, CM):  # of the consensus module the entry is the first one of the second sector
                log.append_snapshot(recording_id, 5, 640, 704, 5, service_id)
            log.force()
            log.invalidate_latest_snapshot()
            log.force()

    seen = set()

    def check(disk: SimulatedDisk) -> None:
        snapshots = {each.service_id: each for each in take(disk.process()).entries if each.is_valid_snapshot}
        if CM in snapshots:
            assert snapshots.keys() == {0, 1, CM}
            assert len({each.recording_id for each in snapshots.values()}) == 1
            seen.add(snapshots[CM].recording_id)

    check_power_cuts(prepare, act, check)
    assert seen == {10, 20}


def test_a_killed_process_leaves_a_log_that_opens() -> None:
    for level in (0, 1):
        for disk in kills(prepare, Life(level).act):
            take(disk.process())


@pytest.mark.parametrize("length", [300, 440, 441, 700, ENDPOINT_LENGTH_MAX])
def test_a_long_entry_is_there_or_not(length: int) -> None:
    def begin(storage: Storage) -> None:
        prepare(storage)
        log = take(storage)
        log.append_term(1, 0, 0, 5)
        log.force()

    def act(storage: Storage) -> None:
        log = take(storage)
        log.append_standby_snapshot(3, 0, 0, 64, 5, CM, "h" * length)
        log.append_term(1, 1, 64, 5)
        log.force()

    counts = set()

    def check(disk: SimulatedDisk) -> None:
        log = take(disk.process())
        counts.add(len(log.entries))
        assert log.entries[0].leadership_term_id == 0

    check_power_cuts(begin, act, check)
    assert counts == {1, 2, 3}


def test_a_long_entry_that_is_removed_is_there_or_not() -> None:
    def begin(storage: Storage) -> None:
        prepare(storage)
        three_entries(storage)
        take(storage)

    def check(disk: SimulatedDisk) -> None:
        assert len(take(disk.process()).entries) in (2, 3)

    assert check_power_cuts(begin, lambda storage: take(storage).remove_entry(0, 2), check) > 5


def test_what_a_killed_process_left_unforced_is_forced_before_it_counts() -> None:
    seen: list[int] = []

    def act(storage: Storage) -> None:
        take(storage, level=0).append_term(1, 0, 0, 5)
        seen.append(len(take(storage, level=1).entries))

    def check(disk: SimulatedDisk) -> None:
        assert len(take(disk.process()).entries) == 1 or not seen

    check_power_cuts(prepare, act, check)
    assert seen == [1]


# Against a model: a list of entries, sorted as upstream compares them.


def compare(one: RecordingLogEntry, other: RecordingLogEntry) -> int:
    """Upstream's comparator."""
    for a, b in (
        (one.leadership_term_id, other.leadership_term_id),
        (one.term_base_log_position, other.term_base_log_position),
    ):
        if a != b:
            return -1 if a < b else 1
    if one.entry_type != other.entry_type:
        if one.entry_type == ENTRY_TYPE_SNAPSHOT:
            return 1
        if other.entry_type == ENTRY_TYPE_SNAPSHOT:
            return -1
        return one.entry_type - other.entry_type
    if one.entry_type == ENTRY_TYPE_TERM:
        return one.entry_index - other.entry_index
    if one.log_position != other.log_position:
        return -1 if one.log_position < other.log_position else 1
    return other.service_id - one.service_id


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_random_use_is_the_same_in_memory_and_in_the_file(seed: int, count: int) -> None:
    draw = random.Random(seed)
    storage = new_storage()
    log = take(storage, level=draw.choice([0, 1]))
    expected: dict[int, tuple[int, bool]] = {}
    for step in range(count):
        kind = draw.randrange(6)
        term_id, base, position = draw.randrange(4), draw.randrange(3), draw.randrange(3)
        service_id, index = draw.randrange(-1, 2), log.next_entry_index
        if kind == 0 and log.is_unknown(term_id):
            log.append_term(1, term_id, base, step)
            expected[index] = (1, True)
        elif kind in (1, 2):
            if kind == 1:
                log.append_snapshot(step, term_id, base, position, step, service_id)
            else:
                endpoint = "e" * draw.choice([5, 12, 13, 600])
                log.append_standby_snapshot(step, term_id, base, position, step, service_id, endpoint)
            place = next(each.entry_index for each in log.entries if each.timestamp == step and not each.is_term)
            assert place == index or place in expected
            expected[place] = (step, True)
        elif kind == 3 and expected:
            place = draw.choice(sorted(expected))
            log.invalidate_entry(place)
            expected[place] = (expected[place][0], False)
        elif kind == 4 and expected and draw.random() < 0.3:
            place = draw.choice(sorted(expected))
            (found,) = [each for each in log.entries if each.entry_index == place]
            log.remove_entry(found.leadership_term_id, place)
            del expected[place]
        elif kind == 5 and not log.is_unknown(term_id):
            log.commit_log_position(term_id, position)
    assert {each.entry_index: (each.recording_id, each.is_valid) for each in log.entries} == expected
    for one, other in pairwise(log.entries):
        assert compare(one, other) <= 0
    snapshots = [replace(each, entry_index=0, recording_id=0, timestamp=0, is_valid=True) for each in log.entries]
    snapshots = [each for each in snapshots if not each.is_term]
    assert len(snapshots) == len(set(snapshots))
    entries = {each.leadership_term_id: each for each in log.entries if each.is_valid_term}
    assert all(log.find_term_entry(term_id) == entries.get(term_id) for term_id in range(4))
    before = {each.entry_index: each for each in log.entries}
    opened = take(storage)
    assert {each.entry_index: each for each in opened.entries} == before


def test_after_a_rewrite_whose_name_could_not_be_forced_the_log_is_the_file_that_is_there() -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    prepare(storage)
    log = take(storage)
    log.append_term(0, 0, 0, 0)
    log.append_standby_snapshot(1, 0, 0, 64, 0, CM, ENDPOINT)
    disk.fail("force_directory", errno.EIO)
    with pytest.raises(OSError, match="cannot force directory"):
        log.remove_entry(0, 1)
    assert log.is_in_place()
    log.append_snapshot(2, 0, 0, 128, 0, CM)
    assert [each.recording_id for each in take(storage, create=False, level=0).entries] == [0, 2]


@pytest.mark.parametrize("kinds", [("force",), ("force", "force", "rename"), ("force", "force_directory")])
def test_after_a_force_that_failed_the_log_goes_into_a_new_file(kinds: tuple[str, ...]) -> None:
    """A later force of the old one would say nothing: the system takes for written what the failed one has lost."""
    disk = SimulatedDisk()
    storage = disk.process()
    prepare(storage)
    log = take(storage)
    ensure(log, 0, 0, 1, 0, -1)
    log.append_standby_snapshot(1, 1, 0, 64, 0, CM, ENDPOINT)
    log.remove_entry(0, 0)
    log.force()
    for term_id, kind in enumerate(kinds, 2):
        disk.fail(kind, errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            ensure(log, 0, 0, term_id, 128, -1)
    ensure(log, 0, 0, 6, 128, -1)
    assert terms(log) == [(1, 0, 128), (1, 0, 64), *((each, 128, 128) for each in range(2, 6)), (6, 128, -1)]
    assert storage.list_directory(DIRECTORY) == [RECORDING_LOG_NAME]
    assert log.is_in_place()
    check_both(storage, log, log.entries)
    ensure(log, 0, 0, 6, 128, 192)
    for state in disk.crash_states():
        assert terms(take(state.process())) == terms(log)


@pytest.mark.parametrize("kind", ["force", "force_directory"])
def test_what_a_force_has_brought_to_the_disk_stays_there_whatever_force_failed_before(kind: str) -> None:
    returned, begun = -1, -1

    def act(storage: Storage) -> None:
        nonlocal returned, begun
        assert isinstance(storage, SimulatedStorage)
        log = take(storage)
        for term_id in range(4):
            begun = term_id
            if term_id == 1:
                storage.disk.fail("force", errno.EIO)
                storage.disk.fail(kind, errno.EIO, after=int(kind == "force"))
            with suppress(OSError):
                ensure(log, 0, 0, term_id, 64 * term_id, -1)
                returned = term_id

    def check(disk: SimulatedDisk) -> None:
        last = take(disk.process()).find_last_term()
        assert returned <= (-1 if last is None else last.leadership_term_id) <= begun

    assert check_power_cuts(prepare, act, check) > 20
    assert returned == 3


def test_an_entry_whose_force_failed_is_on_the_disk_once_another_process_has_read_it() -> None:
    """The system takes for written what the failed force has lost: another force alone would do nothing."""
    disk = SimulatedDisk()
    storage = disk.process()
    prepare(storage)
    log = take(storage)
    ensure(log, 0, 0, 0, 0, -1)
    disk.fail("force", errno.EIO, after=1)
    with pytest.raises(OSError, match="Input/output error"):
        ensure(log, 0, 0, 1, 64, -1)
    next_log = take(disk.process(), create=False)
    assert [term_id for term_id, _, _ in terms(next_log)] == [0, 1]
    for state in disk.crash_states():
        assert terms(take(state.process())) == terms(next_log)
