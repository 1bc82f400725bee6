"""Our backup beside real clusters and archives, ours and Java's: what it copies, and nodes that start from the copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from container.common.aeron_defaults import CounterType
from container.files.catalog import read_catalog
from container.files.cnc_file import read_mark_file
from container.files.directory_lock import NOTE_NAME
from container.files.recording_log import read_recording_log
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.backup_processes import BackupProcess, FalseMember, WholeBackup
from tests.system.conftest import NATIVE
from tests.system.harness import NodeFactory, release, run_ledger_client
from tests.system.test_native_archive import PUTS, messages_in, start_ledger

JAVA = {"driver": "native", "archive": "java", "consensus_module": "java"}


def commit_position(member: Node) -> int:
    """How far the log of a member is committed."""
    position = member.counter_value(CounterType.COMMIT_POSITION)
    assert position is not None
    return position


def test_it_starts_at_once_after_a_kill_and_continues_the_copy(
    node: NodeFactory, tmp_path: Path, ports: PortReservation
) -> None:
    """By its lock on the directory: for 10 s its mark file, its archive's and its driver's files seem to be in use."""
    member = node(**NATIVE)
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:20])
    own = [f"{HOST}:{ports.take()}" for _ in range(3)]
    backup = WholeBackup(tmp_path, [member.endpoints.consensus], own)
    with backup.process:
        backup.process.start()
        backup.await_position(commit_position(member))
        recordings = [each.recording_id for each in backup.entries()]
        for puts in (PUTS[20:30], PUTS[30:40]):
            backup.process.kill()
            marks = [backup.cluster_dir / "cluster-mark.dat", backup.base_dir / "archive" / "archive-mark.dat"]
            assert all(read_mark_file(each).is_active for each in marks)
            run_ledger_client(member, *puts)
            backup.process.start()
            backup.await_position(commit_position(member))
            assert [each.recording_id for each in backup.entries()] == recordings
            assert messages_in(backup.base_dir) == messages_in(member.base_dir)
        second = Process("second", backup.process.command, directory=tmp_path)
        with second:
            assert second.start().wait(LIMIT_S) == 1
            assert f"another backup runs on {backup.cluster_dir}" in second.errors()
        assert backup.process.stop() == 0
        assert not (backup.cluster_dir / NOTE_NAME).exists()


@pytest.mark.parametrize(
    ("source", "archive", "restored"),
    [
        ("native", "native", "native"),
        pytest.param("java", "native", "native", marks=pytest.mark.slow),
        pytest.param("native", "java", "java", marks=pytest.mark.slow),
        pytest.param("java", "java", "java", marks=pytest.mark.slow),
    ],
)
def test_a_node_starts_from_the_copy_with_the_state_of_the_cluster(
    node: NodeFactory, tmp_path: Path, source: ArchiveKind, archive: ArchiveKind, restored: ArchiveKind
) -> None:
    member = node(**(NATIVE if source == "native" else JAVA))
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("snapshot").return_code == 0
    with BackupProcess("native", [member], tmp_path / "backup", archive=archive) as backup:
        backup.await_position(commit_position(member))
        expected = run_ledger_client(member, "put 7 8", "hash")[-1]
        backup.await_position(commit_position(member))
        assert messages_in(backup.base_dir) == messages_in(member.base_dir)
        assert backup.snapshot_position() > 0
        release(member, started)  # kill -9 of all: the cluster is lost for good
        assert backup.stop() == 0
    copy = node(**(NATIVE if restored == "native" else JAVA), base_dir=backup.base_dir, members=member.members)
    start_ledger(copy, "python")
    assert run_ledger_client(copy, "hash")[-1] == expected
    run_ledger_client(copy, "put 1 1")


def test_a_node_that_starts_from_the_copy_does_so_from_its_snapshot(node: NodeFactory, tmp_path: Path) -> None:
    member = node(**NATIVE)
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:10])
    with BackupProcess("native", [member], tmp_path / "backup") as backup:
        backup.await_position(commit_position(member))
        assert backup.snapshot_position() == -1
        assert member.cluster_tool("snapshot").return_code == 0
        run_ledger_client(member, *PUTS[10:20])
        backup.query_now()
        # Counted once the recording log has it.
        backup.process.wait_until(
            lambda: backup.counter(CounterType.BACKUP_SNAPSHOT_COUNTER) == 1, LIMIT_S, "the snapshot"
        )
        assert backup.snapshot_position() > 0
        assert backup.counter(CounterType.BACKUP_ERROR_COUNT) == 0


@pytest.mark.parametrize(
    ("source", "archive"),
    [
        ("native", "native"),
        pytest.param("java", "native", marks=pytest.mark.slow),
        pytest.param("native", "java", marks=pytest.mark.slow),
        pytest.param("java", "java", marks=pytest.mark.slow),
    ],
)
def test_a_recording_that_is_not_the_log_is_not_copied(
    node: NodeFactory, tmp_path: Path, ports: PortReservation, source: ArchiveKind, archive: ArchiveKind
) -> None:
    """An answer names it; what is true is copied then."""
    member = node(**(NATIVE if source == "native" else JAVA))
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("snapshot").return_code == 0
    snapshots = [each for each in read_recording_log(member.cluster_dir) if each.is_valid_snapshot]
    answering = FalseMember(member, f"{HOST}:{ports.take()}")
    settings = {"cluster_consensus_endpoints": answering.endpoint, "progress_timeout_ns": "2s"}
    lies: list[tuple[dict[str, Any], str]] = [
        *(
            (
                {"log_recording_id": each.recording_id, "snapshots": []},
                f"recording {each.recording_id}, which member 0 names as its log, is of stream 10",
            )
            for each in snapshots
        ),
        ({"last_term_base_log_position": 32, "snapshots": []}, "names as its log, is not read from 32 on: "),
        ({"last_leadership_term_id": 7, "snapshots": []}, "and not the begin of term 7 from 0 under leader 0"),
        ({"leader_member_id": 5}, "and not the begin of term 0 from 0 under leader 5"),
    ]
    with BackupProcess("native", [member], tmp_path / "backup", archive=archive, settings=settings) as backup:
        try:
            for answering.fields, text in lies:

                def is_said(text: str = text) -> bool:
                    answering.answer()
                    return any(text in each for each in backup.errors())

                backup.process.wait_until(is_said, LIMIT_S, text)
                assert not list(read_catalog(backup.archive_dir))
            answering.fields = {}
            end = commit_position(member)

            def is_copied() -> bool:
                answering.answer()
                return backup.has(end)

            backup.process.wait_until(is_copied, LIMIT_S, "a copy of the log")
        finally:
            answering.close()
        assert messages_in(backup.base_dir) == messages_in(member.base_dir)
        assert backup.snapshot_position() == snapshots[-1].log_position
