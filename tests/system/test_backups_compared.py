"""Our backup and Java's beside each other on one cluster: what both have copied, by files and counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from container.common.aeron_defaults import CounterType
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.names import LOG_REPLICATION_NAME
from container.files.recording_log import RecordingLogEntry, read_recording_log
from container.operate.marks import read_cluster_mark
from container.testing.processes.local_archive import ArchiveKind
from tests.archive_streams import HEADER, HEADER_LENGTH, PADDING, with_ids
from tests.limits import LIMIT_S
from tests.system.backup_processes import BackupProcess
from tests.system.conftest import NATIVE
from tests.system.harness import NodeFactory, run_ledger_client
from tests.system.test_cluster_backup import JAVA, commit_position
from tests.system.test_native_archive import PUTS, start_ledger

pytestmark = pytest.mark.slow

SHOWN = (CounterType.BACKUP_STATE, CounterType.BACKUP_LIVE_LOG_POSITION, CounterType.BACKUP_QUERY_DEADLINE)
INTERVAL_MS = 3600 * 1000


def fields_of(entry: RecordingLogEntry) -> tuple[Any, ...]:
    """An entry without its recording, a number of the archive that has it."""
    return (
        entry.entry_type,
        entry.leadership_term_id,
        entry.term_base_log_position,
        entry.log_position,
        entry.timestamp,
        entry.service_id,
        entry.is_valid,
        entry.archive_endpoint,
    )


def descriptor(backup: BackupProcess, recording_id: int) -> RecordingDescriptor:
    (found,) = read_catalog(backup.archive_dir, [recording_id])
    return found


def content(backup: BackupProcess, recording_id: int) -> bytes:
    """The frames of a recording that has stopped, of padding the headers alone, without the ids of its session."""
    found = descriptor(backup, recording_id)
    files = {int(path.stem.split("-")[1]): path for path in backup.archive_dir.glob(f"{recording_id}-*.rec")}
    frames, position, length = bytearray(), found.start_position, found.segment_file_length
    while position < found.stop_position:
        offset = position % length
        block = files[position - offset].read_bytes()
        while offset < length and position < found.stop_position:
            frame_length, _, _, kind, *_ = HEADER.unpack_from(block, offset)
            assert frame_length > 0
            aligned = (frame_length + 31) // 32 * 32
            frames += block[offset : offset + (HEADER_LENGTH if kind == PADDING else aligned)]
            offset += aligned
            position += aligned
    return with_ids(frames)


def shape(backup: BackupProcess, recording_id: int) -> tuple[int, ...]:
    """The catalog's entry of a recording, without ids, times and the addresses it came from."""
    found = descriptor(backup, recording_id)
    return (
        found.start_position,
        found.stop_position,
        found.initial_term_id,
        found.segment_file_length,
        found.term_buffer_length,
        found.mtu_length,
        found.stream_id,
    )


def counters(backup: BackupProcess) -> dict[int, tuple[str, bytes]]:
    """Label and key of each counter of the backup by its type."""
    return {each.type_id: (each.label, bytes(each.key[:4])) for each in backup.counters()}


def mark(backup: BackupProcess) -> dict[str, Any]:
    """The mark file, without the fields of its own process."""
    found = read_cluster_mark(backup.cluster_dir)
    own = ("path", "pid", "start_timestamp_ms", "activity_timestamp_ms", "aeron_directory")
    return {name: value for name, value in msgspec.structs.asdict(found).items() if name not in own}


@pytest.mark.parametrize("source", ["native", "java"])
def test_both_have_copied_the_same(node: NodeFactory, tmp_path: Path, java_classes: Path, source: ArchiveKind) -> None:
    member = node(**(NATIVE if source == "native" else JAVA))
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:40])
    assert member.cluster_tool("snapshot").return_code == 0
    with (
        BackupProcess("native", [member], tmp_path / "ours") as ours,
        BackupProcess("java", [member], tmp_path / "javas", archive="java", java_classes=java_classes) as javas,
    ):
        both = ours, javas
        run_ledger_client(member, *PUTS[40:])
        for each in both:
            each.await_position(commit_position(member))
        assert member.cluster_tool("snapshot").return_code == 0
        run_ledger_client(member, *PUTS[:20])
        for each in both:
            each.query_now()
            await_snapshots(each, 2)
            each.await_position(commit_position(member))
        compare_counters(ours, javas)
        assert mark(ours) == mark(javas)
        end = commit_position(member)
        for each in both:
            each.await_position(end)
            each.stop()
    entries = [list(read_recording_log(each.cluster_dir)) for each in both]
    assert sorted(map(fields_of, entries[0])) == sorted(map(fields_of, entries[1]))
    assert len(entries[0]) == 1 + 2 * 2
    recordings = [{fields_of(each): each.recording_id for each in of_one} for of_one in entries]
    for key, recording_id in recordings[0].items():
        assert shape(ours, recording_id) == shape(javas, recordings[1][key])
        assert content(ours, recording_id) == content(javas, recordings[1][key])
    catalogs = [[each.recording_id for each in read_catalog(each.archive_dir)] for each in both]
    assert len(catalogs[0]) == 5 <= len(catalogs[1]), "Java's leaves there what a lost round had begun"
    names = [{path.name for path in each.cluster_dir.iterdir()} for each in both]
    assert names[0] - {LOG_REPLICATION_NAME} == names[1], "ours notes there what it is about to copy"


def await_snapshots(backup: BackupProcess, count: int) -> None:
    backup.process.wait_until(
        lambda: backup.counter(CounterType.BACKUP_SNAPSHOT_COUNTER) == count, LIMIT_S, f"snapshot {count}"
    )


def compare_counters(ours: BackupProcess, javas: BackupProcess) -> None:
    """States, positions and deadlines, and how they are labelled; of the error counter the version differs."""
    found, expected = counters(ours), counters(javas)
    assert found.keys() == expected.keys()
    for type_id in SHOWN:
        assert found[type_id] == expected[type_id]
    assert ours.counter(CounterType.BACKUP_STATE) == javas.counter(CounterType.BACKUP_STATE)
    position = ours.counter(CounterType.BACKUP_LIVE_LOG_POSITION)
    assert position == javas.counter(CounterType.BACKUP_LIVE_LOG_POSITION)
    deadlines = [each.counter(CounterType.BACKUP_QUERY_DEADLINE) for each in (ours, javas)]
    assert None not in deadlines
    assert abs(deadlines[0] - deadlines[1]) < INTERVAL_MS / 2  # type: ignore[operator]
