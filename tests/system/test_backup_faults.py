"""A backup of native members as real processes, under load: kills, a cut network, a wiped cluster, a full disk."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.common.aeron_defaults import CounterType
from container.files.cnc_file import CncFile
from container.files.recording_log import RecordingLogEntry, read_recording_log
from container.operate.marks import read_mark_and_errors
from container.testing.processes import network
from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.native_cluster import NativeCluster
from container.testing.processes.network import Host, Network
from container.testing.processes.process import Process, wait_until
from tests.limits import LIMIT_S
from tests.soak import disk
from tests.system.backup_processes import BACKING_UP, BackupProcess
from tests.system.conftest import NATIVE
from tests.system.harness import NodeFactory, run_ledger_client
from tests.system.test_cluster_backup import commit_position
from tests.system.test_disaster_recovery import PATHS, SERVICE, Load
from tests.system.test_native_archive import PUTS, messages_in, start_ledger

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

BACKUP = "backup"
RESET = 6


class BackupHost:
    """`aeron-cluster backup` with driver and archive in one process, on a host of its own.

    Args:
        directory: of the test.
        cluster: that is backed up.
        host: of the backup.
    """

    def __init__(self, directory: Path, cluster: NativeCluster, host: Host) -> None:
        self.directory, self.base_dir = directory, directory / "copy"
        self.cluster_dir, self.aeron_dir = self.base_dir / "cluster", directory / "driver"
        for name in ("cluster", "archive"):
            (self.base_dir / name).mkdir(parents=True)
        settings = {
            "cluster_consensus_endpoints": ",".join(each.consensus for each in cluster.endpoints),
            "cluster_dir": str(self.cluster_dir),
            "aeron_dir": str(self.aeron_dir),
            "consensus_channel": f"aeron:udp?endpoint={host.address}:9111",
            "catchup_endpoint": f"{host.address}:9112",
            "member_archive_response_channel": f"aeron:udp?endpoint={host.address}:9113",
            "response_timeout_ns": "2s",
            "progress_timeout_ns": "5s",
            "cool_down_interval_ns": "1s",
            "source_type": "LEADER",
        }
        config = directory / "backup.toml"
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "container", "backup", "--config", str(config)]
        self.process = Process(
            BACKUP,
            [*command, "--archive-dir", str(self.base_dir / "archive")],
            directory=directory,
            network_namespace=host.namespace,
        )

    def start_again(self) -> None:
        """As a supervisor does after a kill: until it runs, as the files of the dead seem to be alive for 10 s."""

        def has_begun() -> bool:
            return self.process.has_ended or "is ready" in self.process.errors()

        def runs() -> bool:
            self.process.start()
            wait_until(has_begun, LIMIT_S, "the backup to begin or to end")
            return self.process.is_running

        wait_until(runs, LIMIT_S, "the backup to run")

    def counter(self, type_id: CounterType) -> int | None:
        """The value of its counter, None while there is none."""
        file = CncFile.open_ready(self.aeron_dir)
        if file is None:
            return None
        try:
            return next((each.value for each in file.counters() if each.type_id == type_id), None)
        finally:
            file.close()

    def await_state(self, state: int) -> None:
        self.process.wait_until(
            lambda: self.counter(CounterType.BACKUP_STATE) == state, LIMIT_S, f"state {state} of the backup"
        )

    def await_position(self, position: int) -> None:
        """Wait until it follows a member, and has the log up to a position."""

        def is_there() -> bool:
            live = self.counter(CounterType.BACKUP_LIVE_LOG_POSITION)
            return self.counter(CounterType.BACKUP_STATE) == BACKING_UP and live is not None and live >= position

        self.process.wait_until(is_there, 2 * LIMIT_S, f"a copy up to {position}")

    def errors(self) -> list[str]:
        """The texts in its mark file."""
        return [each.text for each in read_mark_and_errors(self.cluster_dir / "cluster-mark.dat")[1]]

    def entries(self) -> list[RecordingLogEntry]:
        return list(read_recording_log(self.cluster_dir))


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
    backup = BackupHost(tmp_path, cluster, hosts[BACKUP])
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
        backup.start_again()
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
