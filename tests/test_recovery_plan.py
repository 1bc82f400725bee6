"""The recovery plan of a member: upstream's tests, and what the archive is asked for."""

from __future__ import annotations

import pytest

from container.consensus.recovery_plan import Log, RecoveryPlan, Snapshot, create_recovery_plan, needed_recording_id
from container.errors import ClusterError, RecordingError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import LOG_ENTRY, RecordingLog
from container.storage.storage_seam import CREATE
from container.testing.simulation.disk import SimulatedDisk

CM = -1


def new_log() -> RecordingLog:
    storage = SimulatedDisk().process()
    storage.make_directory("/member")
    return RecordingLog.open(storage, "/member", create=True, file_sync_level=1)


def extent(recording_id: int, *, start: int = 0, stop: int = 50_000) -> RecordingDescriptor:
    return RecordingDescriptor(
        1,
        2,
        recording_id,
        0,
        0,
        start,
        stop,
        7,
        128 << 20,
        256 << 10,
        1408,
        -9,
        100,
        "aeron:udp",
        "aeron:udp",
        "source",
    )


def recordings_of(plan: RecoveryPlan) -> list[tuple[int, int]]:
    return [(each.service_id, each.recording_id) for each in plan.snapshots]


# Upstream: RecordingLogTest.java.


def test_a_snapshot_of_a_service_alone_does_not_count() -> None:
    log = new_log()
    log.append_snapshot(1, 1, 0, 777, 0, 0)
    log.append_snapshot(2, 1, 0, 777, 0, CM)
    log.append_snapshot(3, 1, 0, 888, 0, 0)
    assert recordings_of(create_recovery_plan(log, 1)) == [(CM, 2), (0, 1)]


def test_an_invalid_snapshot_in_the_middle_does_not_count() -> None:
    log = new_log()
    for recording_id, position in ((1, 777), (3, 888), (5, 999)):
        log.append_snapshot(recording_id, 1, 0, position, 0, 0)
        log.append_snapshot(recording_id + 1, 1, 0, position, 0, CM)
    log.invalidate_entry(2)
    log.invalidate_entry(3)
    assert recordings_of(create_recovery_plan(log, 1)) == [(CM, 6), (0, 5)]


def test_an_invalid_term_does_not_count() -> None:
    log = new_log()
    log.append_term(0, 9, 444, 0)
    log.append_term(0, 10, 666, 0)
    for recording_id, position in ((1, 777), (3, 888)):
        log.append_snapshot(recording_id, 10, 666, position, 5, 0)
        log.append_snapshot(recording_id + 1, 10, 666, position, 5, CM)
    log.append_term(0, 11, 999, 0)
    log.invalidate_entry(6)
    assert needed_recording_id(log) == 0
    assert create_recovery_plan(log, 1, None, extent(0)) == RecoveryPlan(
        last_leadership_term_id=10,
        last_term_base_log_position=666,
        appended_log_position=50_000,
        committed_log_position=999,
        snapshots=(Snapshot(4, 10, 666, 888, 5, CM), Snapshot(3, 10, 666, 888, 5, 0)),
        log=Log(0, 10, 666, 999, 888, 50_000, 7, 256 << 10, 1408, -9),
    )


def test_snapshots_are_in_the_order_of_the_services() -> None:
    log = new_log()
    for recording_id, service_id in ((7, CM), (6, 0), (4, 2), (5, 1)):
        log.append_snapshot(recording_id, 1, 1440, 2880, 0, service_id)
    assert recordings_of(create_recovery_plan(log, 3)) == [(CM, 7), (0, 6), (1, 5), (2, 4)]


def test_a_standby_snapshot_does_not_count() -> None:
    log = new_log()
    for recording_id, service_id in ((1, CM), (2, 0)):
        log.append_snapshot(recording_id, 1, 0, 1000, 5, service_id)
        log.append_standby_snapshot(recording_id + 2, 2, 1000, 2000, 5, service_id, "remotehost.aeron.io:20002")
    assert recordings_of(create_recovery_plan(log, 1)) == [(CM, 1), (0, 2)]


# What the archive is asked for, and what its answer does.


def test_an_empty_log_begins_with_nothing() -> None:
    for replicated in (None, -1):
        assert needed_recording_id(new_log(), replicated) is None
        assert create_recovery_plan(new_log(), 1, replicated) == RecoveryPlan(-1, 0, 0, 0, (), None)


def test_a_replicated_recording_counts_while_the_log_is_empty() -> None:
    log = new_log()
    assert needed_recording_id(log, 4) == 4
    expected = Log(4, -1, 0, 0, 0, 50_000, 7, 256 << 10, 1408, -9)
    assert create_recovery_plan(log, 1, 4, extent(4)) == RecoveryPlan(-1, 0, 50_000, 0, (), expected)
    log.append_term(6, 0, 0, 5)
    assert needed_recording_id(log, 4) == 6


def test_without_a_snapshot_the_log_begins_at_its_begin() -> None:
    log = new_log()
    log.append_term(6, 0, 0, 5)
    log.append_term(6, 1, 640, 5)
    plan = create_recovery_plan(log, 1, None, extent(6))
    assert plan == RecoveryPlan(1, 640, 50_000, 0, (), Log(6, 1, 640, -1, 0, 50_000, 7, 256 << 10, 1408, -9))


@pytest.mark.parametrize("replicated", [None, 6])
def test_without_a_snapshot_the_begin_of_the_log_must_be_there(replicated: int | None) -> None:
    """Services would begin empty in the middle of it."""
    log = new_log()
    if replicated is None:
        log.append_term(6, 0, 0, 5)
        log.append_snapshot(8, 0, 0, 704, 5, CM)
        log.invalidate_entry(1)
    with pytest.raises(ClusterError, match="the log begins at 640, and there is no snapshot to begin with"):
        create_recovery_plan(log, 0, replicated, extent(6, start=640))


def test_the_log_must_not_begin_behind_the_snapshot() -> None:
    """What lies between is gone: a replay from the snapshot on is refused."""
    log = new_log()
    log.append_term(6, 0, 0, 5)
    log.append_snapshot(8, 0, 0, 704, 5, CM)
    plan = create_recovery_plan(log, 0, None, extent(6, start=704))
    assert plan.log is not None
    assert plan.log.start_position == 704
    with pytest.raises(ClusterError, match="the log begins at 736, behind the latest snapshot that counts, at 704"):
        create_recovery_plan(log, 0, None, extent(6, start=736))


def test_of_an_open_term_the_snapshot_s_position_is_committed() -> None:
    log = new_log()
    log.append_term(6, 0, 0, 5)
    log.append_snapshot(8, 0, 0, 704, 5, CM)
    plan = create_recovery_plan(log, 0, None, extent(6))
    assert (plan.committed_log_position, plan.appended_log_position) == (704, 50_000)
    assert plan.log is not None
    assert plan.log.start_position == 704


def test_snapshots_alone_say_where_the_log_is() -> None:
    log = new_log()
    log.append_snapshot(8, 3, 640, 704, 5, CM)
    assert needed_recording_id(log, 9) is None
    assert create_recovery_plan(log, 0, 9) == RecoveryPlan(3, 640, 704, 704, (Snapshot(8, 3, 640, 704, 5, CM),), None)


def test_a_recording_that_the_archive_does_not_know_is_an_error() -> None:
    log = new_log()
    log.append_term(6, 0, 0, 5)
    with pytest.raises(ClusterError, match="unknown recording id: 6 is the member's log .* start it with the archive"):
        create_recovery_plan(log, 1)
    with pytest.raises(ClusterError, match="the extent is of recording 7, needed is that of 6"):
        create_recovery_plan(log, 1, None, extent(7))


@pytest.mark.parametrize(
    ("services", "invalid", "text"),
    [
        ((), None, "service 0 at log position 704 of term 3: found entry 0 of service -1; start with as many services"),
        ((0,), None, "service 1 at log position 704 of term 3: found entry 0 of service 0, entry 1 of service -1;"),
        ((1,), None, "service 0 at log position 704 of term 3: found entry 0 of service 1, entry 1 of service -1;"),
        (
            (1, 0),
            0,
            "service 1 at log position 704 of term 3: found entry 0 of service 1 (invalid), entry 1 of service 0",
        ),
    ],
)
def test_a_service_without_a_snapshot_is_an_error_that_names_it(
    services: tuple[int, ...], invalid: int | None, text: str
) -> None:
    log = new_log()
    for service_id in (*services, CM):
        log.append_snapshot(8, 3, 640, 704, 5, service_id)
    if invalid is not None:
        log.invalidate_entry(invalid)
    with pytest.raises(RecordingError) as caught:
        create_recovery_plan(log, 2)
    assert f"/member/recording.log: snapshot missing for {text}" in str(caught.value)


def test_of_services_that_are_there_twice_the_last_ones_count() -> None:
    """Upstream leaves them so when a crash cuts a snapshot short and the log is replayed."""
    storage = SimulatedDisk().process()
    storage.make_directory("/member")
    entries = [(recording_id, service_id) for recording_id, service_id in ((1, 1), (2, 0), (3, 1), (4, 0), (5, CM))]
    file = storage.open_file("/member/recording.log", CREATE)
    file.write(b"".join(LOG_ENTRY.pack(each, 3, 640, 704, 5, of, 1).ljust(64, b"\0") for each, of in entries), 0)
    log = RecordingLog.open(storage, "/member", create=False, file_sync_level=1)
    plan = create_recovery_plan(log, 2)
    assert recordings_of(plan) == [(CM, 5), (0, 4), (1, 3)]


def test_snapshots_of_an_earlier_position_do_not_stand_in() -> None:
    log = new_log()
    log.append_snapshot(8, 3, 640, 640, 5, 0)
    log.append_snapshot(9, 3, 640, 704, 5, CM)
    with pytest.raises(RecordingError, match="snapshot missing for service 0 at log position 704 of term 3"):
        create_recovery_plan(log, 1)
