"""docs/operations.md: its commands are run as they stand there, and its tables say what the code has."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.cli.failures import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE
from container.common.main_program import _SIGNALS
from container.common.quantities import format_duration
from container.settings.consensus_module_table import consensus_module_settings_table
from container.settings.container_table import settings_table
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.local_cluster import LocalCluster, Service
from tests.documents import ROOT, all_blocks
from tests.limits import LIMIT_S
from tests.soak import disk
from tests.system.harness import LEDGER_SERVICE, Parts
from tests.system.test_node_disk import FULL
from tests.test_cluster_node import HOST, SERVICE, Command

COMMAND = [sys.executable, "-m", "container"]
PAGE = "docs/operations.md"
SMALL_DISK_MIB = 24
UPSTREAM = {"client_liveness_timeout_ns": "10s"}


def rows(heading: str) -> list[list[str]]:
    text = (ROOT / PAGE).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


class Operator:
    """Runs the commands of the page, with a directory in the place of /var/lib and /backup."""

    def __init__(self, backups: Path, machine: Path, port: int) -> None:
        self.directory, self._port = machine / "aeron-node", port
        self._places = {"/var/lib/aeron-node": str(self.directory), "/backup": str(backups)}
        self._config = machine / "node.toml"
        self.node: Command | None = None

    def run(self, heading: str) -> list[str]:
        """Run a block, and return what its commands of ours print."""
        printed = []
        for line in all_blocks()[f"{PAGE}: {heading} (sh)"].text.splitlines():
            for given, here in self._places.items():
                line = line.replace(given, here)
            program, *arguments = shlex.split(line)
            if program == "systemctl":
                self.control(arguments[0])
                continue
            command = [*COMMAND, *arguments] if program == "aeron-cluster" else [program, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            if program == "aeron-cluster":
                printed.append(done.stdout)
        return printed

    def control(self, word: str) -> None:
        """Do what systemd does with the unit of a node."""
        if word in ("stop", "disable"):
            self.stop()
        elif word == "restart":
            self.await_end()
        if word in ("start", "restart"):
            self.start()

    def start(self) -> None:
        lines = {"services": [SERVICE], "directory": str(self.directory), "host": HOST, "port": self._port}
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
        self._config.write_text(text + "[archive]\nlow_storage_space_threshold = 65536\n")
        self.node = Command("node", "--config", str(self._config))

    def await_end(self, exit_code: int = 0) -> str:
        """Wait for the end of the node, which nobody has asked for here; return its standard error."""
        assert self.node is not None
        _out, errors = self.node.process.communicate(timeout=LIMIT_S)
        assert self.node.process.returncode == exit_code, errors
        self.node = None
        return errors

    def stop(self) -> None:
        assert self.node is not None
        self.node.stop()
        self.node = None

    def log(self) -> list[str]:
        """The messages of the log."""
        command = [*COMMAND, "log", str(self.directory), "--json", "--payload", "--message", "session-message"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return done.stdout.splitlines()


def operator_at(backups: Path, machine: Path) -> Iterator[Operator]:
    machine.mkdir(exist_ok=True)
    ports = PortReservation()
    made = Operator(backups, machine, ports.take_row(5))
    ports.close()  # the node takes them
    yield made
    if made.node is not None:
        made.node.process.kill()
        made.node.process.communicate()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    yield from operator_at(tmp_path, tmp_path)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Operator]:
    """Another machine, which the first one's backup reaches."""
    yield from operator_at(tmp_path, tmp_path / "another-machine")


def send(operator: Operator, text: str) -> str:
    assert operator.node is not None
    return operator.node.send(text)


def test_a_backup_is_restored_into_a_fresh_directory_with_all_messages_and_the_state(operator: Operator) -> None:
    operator.directory.mkdir()
    operator.start()
    assert send(operator, "7") == "7\n"
    operator.run("Back up")
    assert send(operator, "5") == "12\n"
    operator.stop()
    after = operator.log()
    assert len(after) == 2
    shutil.rmtree(operator.directory)
    _verified, plan = operator.run("Restore")
    assert "snapshot" in plan.lower()
    assert send(operator, "3") == "10\n"  # what came after the backup is not in it
    operator.stop()
    restored = operator.log()
    assert restored[0] == after[0]
    assert len(restored) == 2


def test_a_member_alone_is_restarted_with_its_state(operator: Operator) -> None:
    operator.directory.mkdir()
    operator.start()
    assert send(operator, "7") == "7\n"
    ended, healthy = operator.run("Rolling restart and upgrade")
    assert re.search("is_done +yes", ended), ended
    assert healthy.startswith("ready: yes")
    assert send(operator, "5") == "12\n"
    operator.stop()


@pytest.mark.slow
def test_a_member_is_moved_to_another_place_and_port(operator: Operator, elsewhere: Operator) -> None:
    operator.directory.mkdir()
    operator.start()
    assert send(operator, "7") == "7\n"
    operator.run("Move a member")
    assert operator.node is None
    elsewhere.run("Restore")
    assert send(elsewhere, "5") == "12\n"
    elsewhere.stop()
    assert len(elsewhere.log()) == 2


@pytest.fixture
def small_disk(operator: Operator) -> Iterator[disk.SmallDisk]:
    reason = disk.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    made = disk.SmallDisk(operator.directory, SMALL_DISK_MIB)
    yield made
    made.close()


@pytest.mark.slow
def test_a_member_whose_disk_was_full_goes_on_when_there_is_space(
    operator: Operator, small_disk: disk.SmallDisk
) -> None:
    operator.start()
    assert send(operator, "7") == "7\n"
    small_disk.fill()
    snapshot = [*COMMAND, "snapshot", str(operator.directory)]
    refused = subprocess.run(snapshot, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert FULL.search(operator.await_end(EXIT_FAILURE))
    operator.start()
    assert FULL.search(operator.await_end(EXIT_FAILURE))
    small_disk.free()
    healthy, taken = operator.run("Disk full")
    assert healthy.startswith("ready: yes")
    assert re.search("is_done +yes", taken), taken
    assert send(operator, "5") == "12\n"
    operator.stop()


@pytest.mark.slow
def test_three_members_are_restarted_one_after_the_other_followers_first(parts: Parts) -> None:
    with LocalCluster([Service(LEDGER_SERVICE)], **parts) as cluster:
        leader = cluster.start().await_ready()
        cluster.take_snapshot()
        for member in [*cluster.followers, leader]:
            for line in all_blocks()[f"{PAGE}: Rolling restart and upgrade (sh 2)"].text.splitlines():
                program, *arguments = shlex.split(line.replace("/var/lib/aeron-node", str(member.node.base_dir)))
                if program == "systemctl":
                    (member.start if arguments[0] == "start" else member.stop)()
                    continue
                done = subprocess.run(
                    [*COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
                )
                assert (done.returncode, done.stdout[:10]) == (0, "ready: yes"), done.stdout + done.stderr
            cluster.await_leader()
        assert cluster.await_ready() is not leader


# --- what the page says


def test_the_signals_are_those_that_the_programs_catch() -> None:
    said = {name for row in rows("Signals")[:2] for name in re.findall(r"SIG\w+", row[0])}
    assert said == {each.name for each in _SIGNALS}


def test_a_hang_up_that_is_ignored_ends_nothing(operator: Operator) -> None:
    operator.directory.mkdir()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a child inherits, as under nohup
    try:
        operator.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert operator.node is not None
    operator.node.process.send_signal(signal.SIGHUP)
    assert send(operator, "7") == "7\n"
    operator.stop()


def test_a_hang_up_ends_a_node_in_order(operator: Operator) -> None:
    operator.directory.mkdir()
    operator.start()
    assert operator.node is not None
    operator.node.process.send_signal(signal.SIGHUP)
    _out, errors = operator.node.process.communicate(timeout=LIMIT_S)
    assert operator.node.process.returncode == 0, errors
    assert "SIGHUP: closing the node" in errors


def test_the_exit_codes_are_those_of_the_code() -> None:
    assert [int(row[0]) for row in rows("Exit codes")] == [0, EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED]


@pytest.mark.parametrize("name", [row[0].strip("`") for row in rows("Timeouts")])
def test_a_timeout_has_the_default_that_the_page_says(name: str) -> None:
    (said,) = [row[1] for row in rows("Timeouts") if row[0] == f"`{name}`"]
    if name in UPSTREAM:
        assert said == UPSTREAM[name]
        return
    setting = {**consensus_module_settings_table(), **settings_table()}[name]
    factor = 1_000_000 if setting.unit == "ms" else 1
    assert said == format_duration(setting.default_value * factor)


def test_each_command_of_the_page_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    from container.__main__ import _parse

    text = (ROOT / PAGE).read_text(encoding="utf-8")
    found = set(re.findall(r"`aeron-cluster ([a-z][^`]*)`", text))
    assert len(found) > 5
    for each in found:
        words = shlex.split(each)
        needs = {"run": ["a:B"], "dev": ["a:B"], "node": ["--config", "node.toml"], "pipeline": ["a"]}.get(words[0], [])
        assert callable(_parse([*words, *needs]).command), each


# --- its files


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Its own paths stand in for those of an installation; the rest is checked as it is."""
    (tmp_path / "aeron-java-node.service").write_text(f"[Service]\nExecStart={sys.executable}\n")
    for unit in (ROOT / "docs" / "operations").glob("*.service"):
        text = unit.read_text(encoding="utf-8")
        arguments = re.findall(r"^ExecStart=/opt/aeron/bin/aeron-cluster (.*)$", text, re.MULTILINE)
        assert len(arguments) == 1
        (tmp_path / unit.name.replace("@", "@0")).write_text(
            text.replace("/opt/aeron/bin/aeron-cluster", sys.executable)
        )
    units = sorted(map(str, tmp_path.glob("*.service")))
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
