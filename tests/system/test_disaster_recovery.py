"""docs/operations.md, "Disaster recovery": tried as it stands there. A cluster of three under load is lost for good."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.native_cluster import NativeCluster
from container.testing.processes.process import Process, wait_until
from tests.documents import ROOT, all_blocks
from tests.limits import LIMIT_S
from tests.test_cluster_node import Command

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "container"]
SERVICE = "tests.services:Counter"
PAGE = "docs/operations.md: Disaster recovery"
PATHS = os.pathsep.join((str(ROOT / "src"), str(ROOT)))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NativeCluster]:
    with NativeCluster(SERVICE, base_dir=tmp_path / "cluster", environment={"PYTHONPATH": PATHS}) as made:
        made.start().await_leader()
        yield made


class BackupHost:
    """The machine of the page, with directories of the test in the place of its own.

    Args:
        directory: of the test.
        cluster: that is backed up.
    """

    def __init__(self, directory: Path, cluster: NativeCluster) -> None:
        self.copy, self.node = directory / "aeron-backup", directory / "aeron-node"
        self._config, self._directory = directory / "aeron-backup.toml", directory
        self._places = {
            "/etc/aeron-backup.toml": str(self._config),
            "/var/lib/aeron-backup": str(self.copy),
            "/var/lib/aeron-node": str(self.node),
        }
        settings = tomllib.loads(all_blocks()[f"{PAGE} (toml)"].text)
        ports = PortReservation()
        for name, value in settings.items():
            for given, here in self._places.items():
                value = value.replace(given, here)
            settings[name] = re.sub(r"backup-host:\d+", lambda _: f"{HOST}:{ports.take()}", value)
        ports.close()  # the backup takes them
        settings["cluster_consensus_endpoints"] = ",".join(each.consensus for each in cluster.endpoints)
        settings["aeron_dir"] = str(directory / "backup-driver")
        self._config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        self.backup: Process | None = None

    def lines(self, number: str) -> list[str]:
        """The commands of a block."""
        text = all_blocks()[f"{PAGE} (sh{number})"].text
        for given, here in self._places.items():
            text = text.replace(given, here)
        return text.splitlines()

    def run(self, line: str) -> tuple[int, str]:
        """Run a command; its exit code, and what it prints."""
        program, *arguments = shlex.split(line)
        command = [*COMMAND, *arguments] if program == "aeron-cluster" else [program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def must(self, line: str) -> str:
        code, text = self.run(line)
        assert code == 0, f"{line}: {text}"
        return text

    def start(self) -> None:
        """What the page says of the start."""
        make, backup = self.lines("")
        self.must(make)
        arguments = shlex.split(backup)[1:]
        self.backup = Process("backup", [*COMMAND, *arguments], directory=self._directory).start()

    def status(self) -> dict[str, object]:
        """What `status` says of the backup."""
        code, text = self.run(f"aeron-cluster status {self.copy} --json")
        found = json.loads(text) if code == 0 else {}
        return found.get("backup") or {}


class Load(EgressListener):
    """A client on a thread of its own that adds one again and again, until the cluster is gone."""

    def __init__(self, cluster: NativeCluster) -> None:
        """``cluster`` has a driver for clients."""
        self.answer = 0
        self._is_ending = False
        self._settings = cluster.client_settings()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(ContainerError), AeronCluster.connect(listener=self, **self._settings) as client:
            sent = 0
            while not self._is_ending:
                if sent == self.answer and client.offer(b"1") > 0:
                    sent += 1
                client.poll_egress()

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.answer = int(bytes(buffer))

    def await_more(self, count: int) -> None:
        """Wait until so many more were answered."""
        end = self.answer + count
        wait_until(lambda: self.answer >= end, LIMIT_S, f"answer {end}")

    def close(self) -> None:
        self._is_ending = True
        self._thread.join()


@pytest.fixture
def host(tmp_path: Path, cluster: NativeCluster) -> Iterator[BackupHost]:
    made = BackupHost(tmp_path, cluster)
    yield made
    if made.backup is not None:
        made.backup.close()


@pytest.fixture
def load(cluster: NativeCluster) -> Iterator[Load]:
    cluster.start_client_driver()
    made = Load(cluster)
    yield made
    made.close()


def test_a_node_starts_from_a_backup_as_the_page_says(
    tmp_path: Path, cluster: NativeCluster, host: BackupHost, load: Load
) -> None:
    load.await_more(50)
    cluster.take_snapshot()
    host.start()
    assert host.backup is not None
    health, status, query = host.lines(" 2")
    host.backup.wait_until(lambda: host.run(health)[0] == 0, LIMIT_S, "the backup to follow a member")
    assert "BACKING_UP" in host.must(status)
    load.await_more(50)
    cluster.take_snapshot()
    host.must(query)
    host.backup.wait_until(lambda: host.status().get("snapshot_count") == 2, LIMIT_S, "the second snapshot")
    load.await_more(200)
    answered = load.answer
    leader = cluster.leader
    assert leader is not None
    end = leader.node.counter_value(CounterType.COMMIT_POSITION)
    assert end is not None
    host.backup.wait_until(
        lambda: int(str(host.status().get("live_log_position", 0))) >= end, LIMIT_S, f"the log up to {end}"
    )
    for member in cluster.members:
        member.kill()
        member.wipe()
    assert host.backup.stop() == 0
    plan, verify, copy = host.lines(" 3")
    report = host.must(plan)
    print(report)
    found = json.loads(host.must(f"{plan} --json"))
    assert found["appended_log_position"] >= end
    assert len(found["snapshots"]) == 2
    host.must(verify)
    host.must(copy)
    messages = host.must(f"aeron-cluster log {host.copy} --json --message session-message").count("\n")
    assert messages >= answered
    config = tmp_path / "node.toml"
    ports = PortReservation()
    port = ports.take_row(5)
    ports.close()  # the node takes them
    lines = {"services": [SERVICE], "directory": str(host.node), "host": HOST, "port": port}
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))
    node = Command("node", "--config", str(config))
    try:
        assert node.send("5") == f"{messages + 5}\n"
    finally:
        node.stop()
