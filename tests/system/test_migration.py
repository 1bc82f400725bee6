"""Java's members become native under load, and Java's again, one at a time: no session ends, and nothing is lost."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from container.aeron.media_driver import MediaDriver
from container.operate.status import is_leader
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process, wait_until
from tests.documents import all_blocks
from tests.limits import LIMIT_S
from tests.soak.checks import check_journals, drain, read_journal, read_runs
from tests.soak.ledger import Kind
from tests.soak.load_client import LoadClient
from tests.soak.migration import Migration
from tests.soak.scenario import PROGRESS, ROOT, Scenario
from tests.soak.services import journals
from tests.system.harness import COMMAND
from tests.system.test_native_node import ENVIRONMENT

UNIT = "aeron-node.service"
_SECTION = "docs/deployment.md: From Java's members, and back"
_NODE_DIRECTORY = "/var/lib/aeron-node"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("service_count", [1, 2])
def test_members_change_their_kind_under_load_and_back(service_count: int, java_classes: Path) -> None:
    with Scenario(java_classes, kinds="JJJ", service_count=service_count, say=print) as scenario:
        migration = Migration(scenario)
        migration.run("NJ")
        print(migration.report())
        steps = migration.steps
        assert [step.letter for step in steps] == ["N"] * 3 + ["J"] * 3
        assert [step.was_leader for step in steps] == [False, False, True] * 2
        assert all(step.open_count > 0 for step in steps)
        _findings, ledger = scenario.check()
        assert ledger.totals.timers_fired >= len(steps)
        assert ledger.totals.relays_back > 0
        assert scenario.failed_starts == 0


class Machine:
    """What an operator has of a member: a unit, a file of settings, a directory, and commands."""

    def __init__(self, directory: Path, member_id: int, ports: list[int]) -> None:
        self.directory, self.node_directory, self.unit = directory, directory / "node", directory / UNIT
        self.node_directory.mkdir(mode=0o750, parents=True)
        config = directory / "node.toml"
        members = (f'[[members]]\nid = {each}\nhost = "127.0.0.1"\nport = {port}\n' for each, port in enumerate(ports))
        config.write_text(
            f'services = ["tests.soak.ledger_service:of_member"]\ndirectory = "{self.node_directory}"\n'
            f'member_id = {member_id}\naeron_dir = "{directory / "driver"}"\n{"".join(members)}'
            "[driver]\nterm_buffer_length = 1048576\nipc_term_buffer_length = 1048576\n"
            '[consensus_module]\nlog_channel = "aeron:udp?term-length=1m"\nleader_heartbeat_timeout_ns = "2s"\n'
            'startup_canvass_timeout_ns = "10s"\nsession_timeout_ns = "30s"\n'
            '[container]\ncallback_error_policy = "skip"\n'
        )
        unit = (ROOT / "docs" / "operations" / UNIT).read_text(encoding="utf-8")
        self.unit.write_text(unit.replace("/etc/aeron/node.toml", str(config)))
        self.ingress = f"{member_id}=127.0.0.1:{ports[member_id]}"
        self.process: Process | None = None

    def run(self, block: str) -> None:
        """Do what the lines of a block say, with this member's places for those of the text."""
        for line in block.splitlines():
            words = shlex.split(line.replace(_NODE_DIRECTORY, str(self.node_directory)))
            if words[:2] == ["systemctl", "stop"]:
                assert self.process is not None
                assert self.process.stop(LIMIT_S) == 0, self.tail()
                self.process.close()
            elif words[:2] == ["systemctl", "start"]:
                self.start()
            elif words[0] == "aeron-cluster":
                result = subprocess.run(
                    [*COMMAND, *words[1:]], capture_output=True, text=True, timeout=LIMIT_S, check=False
                )
                assert result.returncode == 0, f"{line}: {result.stdout}{result.stderr}{self.tail()}"
            elif words[0] == "sed":
                before = self.unit.read_text()
                subprocess.run([*words[:-1], str(self.unit)], timeout=LIMIT_S, check=True)
                assert self.unit.read_text() != before, line
            else:
                assert words == ["systemctl", "daemon-reload"], line

    def start(self) -> None:
        """Start what the unit says."""
        [line] = [each for each in self.unit.read_text().splitlines() if each.startswith("ExecStart=")]
        [_program, *arguments] = shlex.split(line.removeprefix("ExecStart="))
        environment = {**ENVIRONMENT, "TEST_MEMBER_DIR": str(self.directory)}
        self.process = Process(
            "node", [*COMMAND, *arguments], directory=self.directory, environment=environment
        ).start()

    def tail(self) -> str:
        """The end of what the process printed."""
        return "" if self.process is None else self.process.tail()

    @property
    def leads(self) -> bool:
        """Whether this member leads."""
        return is_leader(self.node_directory).exit_code == 0

    def await_read(self, position: int) -> int:
        """The digest of the state at a READ at this position."""

        def digest() -> int | None:
            records = reversed(read_journal(journals(self.directory)[-1]))
            found = (record.hash for record in records if (record.kind, record.position) == (Kind.READ, position))
            return next(found, None)

        return wait_until(digest, LIMIT_S, f"{self.directory.name} to come to {position}")


def await_leader(machines: Collection[Machine]) -> None:
    """Wait until one of these leads."""
    wait_until(lambda: any(machine.leads for machine in machines), LIMIT_S, "a member to lead")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    with ExitStack() as stack:
        ports = PortReservation()
        stack.callback(ports.close)
        rows = [ports.take_row(5) for _member in range(3)]
        made = [Machine(tmp_path / f"machine-{member_id}", member_id, rows) for member_id in range(3)]
        yield made
        for machine in made:
            if machine.process is not None:
                machine.process.close()


def test_an_operator_changes_the_kind_of_each_member_by_the_commands_of_the_docs(
    machines: list[Machine], jar: Path
) -> None:
    blocks = all_blocks()
    stop, change, back = (blocks[f"{_SECTION} ({which})"].text for which in ("plain", "plain 2", "plain 3"))
    ready = blocks[f"{_SECTION} (sh)"].text
    for machine in machines:
        machine.run(back + "systemctl start aeron-node")
    for machine in machines:
        machine.run(ready)
    with MediaDriver.launch_embedded(term_buffer_length=1 << 20) as driver, ExitStack() as stack:
        settings = {
            "aeron_dir": driver.aeron_dir,
            "ingress_channel": "aeron:udp?term-length=1m",
            "ingress_endpoints": ",".join(machine.ingress for machine in machines),
            "egress_channel": "aeron:udp?endpoint=127.0.0.1:0",
        }
        clients = [LoadClient(client_id, settings, seed=1, rate=200) for client_id in (1, 2)]
        for client in clients:
            stack.callback(client.close)
            client.resume()
        for text in (change, change.replace(change.splitlines()[0], back.strip())):
            left = list(machines)
            while left:
                for client in clients:
                    client.await_acknowledged(PROGRESS)
                    client.longest_wait_s = 0.0
                machine = next((each for each in left if not each.leads), left[0])
                left.remove(machine)
                role = "leader" if machine.leads else "follower"
                machine.run(stop)
                await_leader(set(machines) - {machine})
                machine.run(text)
                machine.run(ready)
                for client in clients:
                    client.await_acknowledged(PROGRESS)
                waited_s = max(client.longest_wait_s for client in clients)
                print(f"{machine.ingress}, {role}: {text.splitlines()[0]}: a client waited {waited_s:.1f} s")
        state = drain(clients)
        digests = [machine.await_read(state.position) for machine in machines]
        assert digests == [state.digest] * len(machines)
        findings = check_journals([run for each in machines for run in read_runs(each.directory)], clients)
        findings.raise_if_any()
        assert [client.sessions_opened for client in clients] == [1, 1]
        assert findings.lived[Kind.TIMER] > 0
        assert findings.lived[Kind.RELAYED] > 0
        print(f"{sum(client.acknowledged for client in clients)} messages, {findings.events} events: none lost")
