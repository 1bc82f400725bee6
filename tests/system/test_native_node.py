"""A whole native node as one process: it serves Java's client, lives through a kill, and ends when it is asked to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from container.client import ConnectionListener, ReconnectingClient
from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.files.node_state_file import NodeStateFile
from container.files.recording_log import read_recording_log
from container.operate.status import is_leader
from container.storage.file_storage import FileStorage
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.native_node import NativeNode
from container.testing.processes.process import Process
from tests.file_rights import for_others
from tests.limits import LIMIT_S
from tests.system.harness import COMMAND, ROOT, run_echo_client, run_ledger_client
from tests.system.test_native_archive import PUTS

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
FAR_TERM = 1_000_000
LEDGER = "tests.system.ledger_service:LedgerService"


@pytest.mark.parametrize("ipc", [False, True], ids=["udp", "ipc"])
@pytest.mark.parametrize("mode", ["SHARED", pytest.param("DEDICATED", marks=pytest.mark.slow)])
def test_java_s_client_gets_every_message_back(java_classes: Path, mode: str, ipc: bool) -> None:
    service = "examples.echo_service:EchoService"
    with NativeNode(service, threading_mode=mode, environment=ENVIRONMENT, class_path=[java_classes]) as node:
        node.start().await_leader(LIMIT_S)
        result = run_echo_client(node, "messages=1000", ipc=ipc)
        assert (result["sent"], result["received"], result["mismatches"]) == (1000, 1000, 0)
        assert node.counter_value(CounterType.CONSENSUS_MODULE_ERROR_COUNT) == 0
        assert node.errors() == {}


def test_it_goes_on_after_a_kill_and_ends_with_java_s_tool(java_classes: Path) -> None:
    with NativeNode(LEDGER, environment=ENVIRONMENT, class_path=[java_classes]) as node:
        node.start().await_leader(LIMIT_S)
        before = run_ledger_client(node, *PUTS, "hash")[-1]
        node.take_snapshot()
        node.restart().await_leader(LIMIT_S)
        assert run_ledger_client(node, "hash") == [before]
        assert node.cluster_tool("shutdown").return_code == 0
        assert node.process.wait(LIMIT_S) == 0
        node.start().await_leader(LIMIT_S)
        assert run_ledger_client(node, "hash") == [before]
        assert node.stop() == 0


@pytest.mark.slow
def test_a_client_that_shares_the_driver_of_a_node_that_is_killed_probes_for_the_next() -> None:
    ends: list[str] = []

    class Told(ConnectionListener):
        def on_disconnected(self, error: ContainerError) -> None:
            ends.append(str(error))

    with NativeNode("examples.echo_service:EchoService", environment=ENVIRONMENT) as node:
        node.start().await_leader(LIMIT_S)
        with ReconnectingClient.connect(
            ingress_channel="aeron:ipc",
            egress_channel="aeron:ipc",
            aeron_dir=os.fspath(node.aeron_dir),
            correlate=int,
            callbacks=Told(),
        ) as client:
            assert client.request(b"1", key=1, timeout=LIMIT_S) == b"1"
            request = client.begin_request(b"2", key=2, timeout=LIMIT_S, idempotent=True)
            assert request.wait() == b"2"
            node.kill()
            unanswered = client.begin_request(b"3", key=3, timeout=LIMIT_S, idempotent=True)
            node.start().await_leader(LIMIT_S)
            assert unanswered.wait() == b"3"
            assert client.sessions == 2
            assert ends == [
                "the session ended: member 0 leads in term 1, and has sent nothing to this session, of term 0: a new "
                "connect beside it has taken its place"
            ]


def test_the_command_runs_java_s_node_and_the_native_one_goes_on(jar: Path, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir(0o750)
    ports = PortReservation()
    port = ports.take_row(5)
    config = tmp_path / "node.toml"
    config.write_text(
        f'services = ["tests.services:Counter"]\ndirectory = "{tmp_path / "node"}"\n'
        f'aeron_dir = "{tmp_path / "driver"}"\nhost = "127.0.0.1"\nport = {port}\n'
        "[driver]\nterm_buffer_length = 1048576\nipc_term_buffer_length = 1048576\n"
        '[consensus_module]\nsession_timeout_ns = "20s"\nlog_channel = "aeron:udp?term-length=1m"\n'
    )
    client = [
        *COMMAND,
        "client",
        "--ingress",
        f"0=127.0.0.1:{port}",
        "--embedded-driver",
        "--timeout",
        "30",
        "send",
        "7",
    ]
    cluster_dir = tmp_path / "node" / "cluster"
    for number, arguments in enumerate((["--java"], [], ["--java"], []), start=1):
        if number == 2:  # as after a forged message: the native member's recording log gets a gap
            vote = NodeStateFile.open(FileStorage(), str(cluster_dir), create=False)
            vote.update_candidate_term_id(FAR_TERM, vote.log_position, vote.timestamp)
            vote.close()
        command = [*COMMAND, "node", *arguments, "--config", str(config)]
        with Process("command", command, directory=tmp_path, environment=ENVIRONMENT) as node:
            node.start()
            assert node.read_line(LIMIT_S) == "A cluster of one member is ready."
            assert is_leader(tmp_path / "node").exit_code == 0
            answer = subprocess.run(client, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert answer.stdout == f"{7 * number}\n", answer.stderr + node.tail()
            assert for_others(tmp_path / "driver", tmp_path / "node") == []
            assert node.stop(LIMIT_S) == 0, node.tail()
        assert not (tmp_path / "driver").exists()  # some 50 MB, in memory where nobody gives a place
        terms = [entry.leadership_term_id for entry in read_recording_log(cluster_dir) if entry.is_valid_term]
        gap = [0, *range(1, 65), *range(FAR_TERM - 63, FAR_TERM + number)]
        assert terms == ([0] if number == 1 else gap), number
    ports.close()


def test_the_command_says_what_java_s_node_does_not_take(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    config = tmp_path / "node.toml"
    start = f'services = ["tests.services:Counter"]\ndirectory = "{tmp_path / "node"}"\n'
    for text, message in (
        ("[archive]\nfile_sync_levels = 1\n", "did you mean 'file_sync_level'?"),
        ('threading_mode = "SHARED"\n', "leave out threading_mode"),
        ('[archive]\nidle_strategy = "sleep(1ms)"\n', "Java's node takes noop, busy_spin, yield, backoff"),
    ):
        config.write_text(start + text)
        command = [*COMMAND, "node", "--java", "--config", str(config)]
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
        assert result.returncode == 2
        assert message in result.stderr
