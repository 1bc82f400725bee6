"""A backup of native members as real processes, under load: kills, a cut network, a wiped cluster, a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.common.aeron_defaults import CounterType
from container.testing.processes import network
from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.native_cluster import NativeCluster
from container.testing.processes.network import Network
from tests.limits import LIMIT_S
from tests.soak import disk
from tests.system.backup_processes import BackupProcess, WholeBackup
from tests.system.conftest import NATIVE
from tests.system.harness import NodeFactory, run_ledger_client
from tests.system.test_cluster_backup import commit_position
from tests.system.test_disaster_recovery import PATHS, SERVICE, Load
from tests.system.test_native_archive import PUTS, messages_in, start_ledger

pytestmark = pytest.mark.slow

BACKUP = "backup"
RESET = 6


@pytest.fixture
def hosts() -> Iterator[Network]:
    reason = network.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    with Network([*NativeCluster.network_hosts(), BACKUP]) as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path, hosts: Network) -> Iterator[NativeCluster]:
    with NativeCluster(
        SERVICE, base_dir=tmp_path / "cluster", network=hosts, environment={"PYTHONPATH": PATHS}
    ) as made:
        made.start().await_leader()
        made.start_client_driver()
        yield made


def committed(member: LocalMember) -> int:
    position = member.node.counter_value(CounterType.COMMIT_POSITION)
    assert position is not None
    return position


def under_load(cluster: NativeCluster) -> int:
    """Have clients add to the log; how far it is committed then."""
    load = Load(cluster)
    try:
        load.await_more(100)
    finally:
        load.close()
    return committed(cluster.await_leader())


def test_it_goes_on_after_each_fault_and_keeps_the_copy_of_a_cluster_that_began_again(
    tmp_path: Path, cluster: NativeCluster, hosts: Network
) -> None:
    host = hosts[BACKUP]
    ports = [f"{host.address}:{port}" for port in (9111, 9112, 9113)]
    consensus = [each.consensus for each in cluster.endpoints]
    backup = WholeBackup(tmp_path, consensus, ports, source_type="LEADER", network_namespace=host.namespace)
    with backup.process:
        under_load(cluster)
        backup.process.start()
        backup.await_position(under_load(cluster))

        source = cluster.await_leader()
        source.kill()
        cluster.await_leader(other_than=source)
        backup.await_position(under_load(cluster))

        backup.process.kill()
        end = under_load(cluster)
        backup.process.start()
        backup.await_position(end)

        hosts.cut(BACKUP)
        backup.await_state(RESET)
        end = under_load(cluster)
        hosts.heal(BACKUP)
        backup.await_position(end)
        recordings = {each.recording_id for each in backup.entries() if each.is_term}
        assert len(recordings) == 1, "one log, whatever was killed and cut"

        entries = backup.entries()
        copied = messages_in(backup.base_dir)
        for member in cluster.members:
            member.kill()
            member.wipe()
        cluster.start().await_leader()
        under_load(cluster)
        backup.process.wait_until(
            lambda: any("start the backup with empty ones" in each for each in backup.errors()),
            2 * LIMIT_S,
            "the backup to say what to do",
        )
        assert backup.process.stop() == 0
        assert backup.entries() == entries
        assert messages_in(backup.base_dir) == copied


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[disk.SmallDisk]:
    reason = disk.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    made = disk.SmallDisk(tmp_path / "backup" / "copy", 24)
    yield made
    made.close()


def test_a_full_disk_is_said_and_the_copy_goes_on_once_there_is_room(
    node: NodeFactory, tmp_path: Path, small_disk: disk.SmallDisk
) -> None:
    member = node(**NATIVE)
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:20])
    settings: dict[str, Any] = {"progress_timeout_ns": "5s"}
    with BackupProcess(
        "native",
        [member],
        tmp_path / "backup",
        settings=settings,
        archive_properties={"aeron.archive.low.storage.space.threshold": "64k"},
    ) as backup:
        backup.await_position(commit_position(member))
        small_disk.fill()
        run_ledger_client(member, *PUTS)
        backup.process.wait_until(
            lambda: "No space left on device" in backup.process.errors() or "low storage" in backup.process.errors(),
            2 * LIMIT_S,
            "the backup to report the disk",
        )
        assert backup.process.is_running
        small_disk.free()
        run_ledger_client(member, *PUTS[:10])
        backup.await_position(commit_position(member), 2 * LIMIT_S)
        assert messages_in(backup.base_dir) == messages_in(member.base_dir)
        assert backup.stop() == 0
