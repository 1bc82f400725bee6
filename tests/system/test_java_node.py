"""The harness itself, on Java alone: a node, services, clients and ClusterTool."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from container.errors import ContainerError
from container.files.cnc_file import read_mark_file
from container.testing.processes.java_tools import JavaError, compile_java, find_javac, java_command
from container.testing.processes.local_cluster import CounterType, ModuleState, Node
from container.testing.processes.process import Process, ProcessEndedError, is_alive, wait_until
from tests.limits import LIMIT_S
from tests.system.harness import (
    ECHO_CLIENT,
    JAVA_ECHO_SERVICE,
    JAVA_LEDGER_SERVICE,
    LEDGER_CLIENT,
    QUICK_DRIVER,
    NodeFactory,
    run_echo_client,
    run_ledger_client,
)
from tests.system.ledger_service import ledger_hash

JAVA_SOURCES = Path(__file__).parents[1] / "java"
EMPTY_HASH = "cbf29ce484222325"


def start_with_service(node: Node, service_class: str) -> Process:
    """Start a node and a Java service on it, and wait until they lead."""
    node.start().await_started()
    service = node.start_java_service(service_class)
    node.await_leader()
    return service


def fnv1a(entries: dict[int, int]) -> str:
    """The hash of a ledger's state as the client prints it."""
    return f"{ledger_hash(entries):016x}"


@pytest.mark.smoke
@pytest.mark.parametrize("ipc", [False, True], ids=["udp", "ipc"])
def test_a_java_client_gets_every_message_back_from_a_java_service(node: NodeFactory, ipc: bool) -> None:
    member = node()
    start_with_service(member, JAVA_ECHO_SERVICE)
    result = run_echo_client(member, "messages=1000", ipc=ipc)
    assert (result["sent"], result["received"], result["mismatches"]) == (1000, 1000, 0)
    assert result["bytes"] > 1_000_000
    assert member.counter_value(CounterType.CONSENSUS_MODULE_ERROR_COUNT) == 0
    assert member.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0) == 0


def test_the_echo_client_says_what_did_not_happen(node: NodeFactory) -> None:
    member = node()
    start_with_service(member, JAVA_LEDGER_SERVICE)
    client = member.start_java_client(ECHO_CLIENT, ["messages=3", "limit-s=20"])
    assert client.wait(LIMIT_S) == 1
    # The ledger answers each of them, but not with the same bytes.
    assert json.loads(client.output())["mismatches"] == 3
    assert "echo 0 has 25 bytes and differs from the 0 bytes that were sent" in client.errors()


def test_cluster_tool_describes_the_node_and_its_service(node: NodeFactory) -> None:
    member = node()
    start_with_service(member, JAVA_ECHO_SERVICE)
    return_code, output = member.cluster_tool("describe")
    assert return_code == 0
    assert "componentType=CONSENSUS_MODULE" in output
    assert "componentType=CONTAINER" in output
    assert f"aeronDirectory='{member.aeron_dir}'" in output


def test_cluster_tool_suspends_resumes_and_takes_a_snapshot(node: NodeFactory) -> None:
    member = node()
    start_with_service(member, JAVA_ECHO_SERVICE)
    assert member.cluster_tool("suspend").return_code == 0
    member.await_state(ModuleState.SUSPENDED)
    assert member.cluster_tool("resume").return_code == 0
    member.await_state(ModuleState.ACTIVE)
    assert member.snapshot_count == 0
    assert member.cluster_tool("snapshot").return_code == 0
    assert member.snapshot_count == 1


def test_cluster_tool_shuts_the_node_and_its_service_down(node: NodeFactory) -> None:
    member = node()
    service = start_with_service(member, JAVA_ECHO_SERVICE)
    assert member.cluster_tool("shutdown").return_code == 0
    assert member.process.wait(LIMIT_S) == 0
    assert service.wait(LIMIT_S) == 0
    # Of the archive, the consensus module and the service.
    assert [status.activity_timestamp_ms for status in member.mark_files()] == [-1, -1, -1]


@pytest.mark.slow  # 14 s until the mark files are stale
def test_a_killed_node_restarts_once_its_mark_files_are_stale(node: NodeFactory) -> None:
    member = node()
    service = start_with_service(member, JAVA_LEDGER_SERVICE)
    run_ledger_client(member, "put 1 10", "put -2 20")
    assert member.cluster_tool("snapshot").return_code == 0
    run_ledger_client(member, "add 1 5")
    member.kill()
    service.kill()
    said: list[str] = []
    member.restart(say=said.append)
    assert len(said) == 1
    assert said[0].startswith("waiting ")
    member.start_java_service(JAVA_LEDGER_SERVICE)
    member.await_leader()
    assert run_ledger_client(member, "hash") == [f"HASH 0 2 {fnv1a({-2: 20, 1: 15})}"]


def test_a_killed_node_restarts_at_once_when_its_mark_files_are_released(node: NodeFactory) -> None:
    member = node()
    service = start_with_service(member, JAVA_LEDGER_SERVICE)
    run_ledger_client(member, "put 7 70")
    member.kill()
    with pytest.raises(ContainerError, match=r"cluster-mark-service-0\.dat is held by pid \d+, which lives"):
        member.release_mark_files()
    service.kill()
    member.release_mark_files()
    start_with_service(member, JAVA_LEDGER_SERVICE)
    assert run_ledger_client(member, "get 7") == [f"GET 7 70 {fnv1a({7: 70})}"]


def test_a_node_refuses_to_start_on_mark_files_that_look_alive(node: NodeFactory) -> None:
    member = node()
    member.start().await_started()
    member.kill()
    member.start()
    with pytest.raises(ProcessEndedError, match="active mark file detected"):
        member.await_started()


def test_the_ledger_service_answers_as_described(node: NodeFactory) -> None:
    member = node()
    start_with_service(member, JAVA_LEDGER_SERVICE)
    answers = run_ledger_client(member, "hash", "put 3 30", "add 3 -31", "get 3", "get 4", "add 5 9223372036854775807")
    assert answers == [
        f"HASH 0 0 {EMPTY_HASH}",
        f"PUT 3 30 {fnv1a({3: 30})}",
        f"ADD 3 -1 {fnv1a({3: -1})}",
        f"GET 3 -1 {fnv1a({3: -1})}",
        f"GET 4 0 {fnv1a({3: -1})}",
        f"ADD 5 9223372036854775807 {fnv1a({3: -1, 5: 2**63 - 1})}",
    ]


def test_a_ledger_client_takes_commands_while_it_is_connected(node: NodeFactory) -> None:
    member = node()
    start_with_service(member, JAVA_LEDGER_SERVICE)
    client = member.start_java_client(LEDGER_CLIENT)
    assert client.read_line(LIMIT_S).startswith("CONNECTED ")
    client.write_line("schedule 42 50")
    operation, key, deadline, _hash = client.read_line(LIMIT_S).split()
    assert (operation, key) == ("SCHEDULE", "42")
    assert int(deadline) > 0
    client.write_line("await 42 1")
    assert client.read_line(LIMIT_S) == f"GET 42 1 {fnv1a({42: 1})}"
    client.close_input()
    assert client.wait(LIMIT_S) == 0


def test_a_node_of_two_services_waits_for_both(node: NodeFactory) -> None:
    member = node(service_count=2)
    member.start().await_started()
    member.start_java_service(JAVA_ECHO_SERVICE, service_id=0)
    with pytest.raises(TimeoutError, match="member 0 to lead, with its 2 services"):
        member.await_leader(limit_s=1)
    member.start_java_service(JAVA_ECHO_SERVICE, service_id=1)
    member.await_leader()


def test_a_service_finds_its_place_in_its_environment(node: NodeFactory) -> None:
    member = node(cluster_id=4, properties={"aeron.cluster.control.channel": "aeron:ipc?term-length=256k"})
    code = "import os; [print(name, value) for name, value in os.environ.items() if name.startswith('AERON_')]"
    service = member.start_service([sys.executable, "-c", code], service_id=3, environment={"AERON_EXTRA": "more"})
    assert service.wait(LIMIT_S) == 0
    variables = dict(line.split(" ", 1) for line in service.output().splitlines())
    expected = {
        "AERON_DIR": str(member.aeron_dir),
        "AERON_CLUSTER_DIR": str(member.cluster_dir),
        "AERON_CLUSTER_ID": "4",
        "AERON_CLUSTER_SERVICE_ID": "3",
        "AERON_CLUSTER_CONTROL_CHANNEL": "aeron:ipc?term-length=256k",
        "AERON_EXTRA": "more",
    }
    assert expected.items() <= variables.items()


def test_a_paused_node_goes_on_when_it_is_resumed(node: NodeFactory) -> None:
    member = node()
    start_with_service(member, JAVA_ECHO_SERVICE)
    member.pause()
    client = member.start_java_client(ECHO_CLIENT, ["messages=10"])
    with pytest.raises(TimeoutError, match="did not end in 1 s"):
        client.wait(1)
    member.resume()
    assert client.wait(LIMIT_S) == 0, client.tail()


def test_errors_of_the_node_are_read_from_its_files(node: NodeFactory) -> None:
    # The driver drops a dead client after this time.
    member = node(properties=QUICK_DRIVER)
    service = start_with_service(member, JAVA_ECHO_SERVICE)
    assert member.errors() == {}
    service.kill()
    assert member.process.wait(LIMIT_S) == 0
    records = member.errors()[member.cluster_dir / "cluster-mark.dat"]
    assert any("Aeron client in service closed unexpectedly" in record.text for record in records)
    assert "Aeron client in service closed unexpectedly" in member.report()


def test_nothing_is_left_of_a_closed_node(node: NodeFactory) -> None:
    member = node()
    service = start_with_service(member, JAVA_ECHO_SERVICE)
    pids = [member.pid, service.pid]
    member.close()
    assert not member.base_dir.exists()
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux kills the children of a killed parent")
def test_a_node_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    base_dir = tmp_path / "node"
    script = (
        "import pathlib, sys\n"
        "from container.testing.processes.local_cluster import Node\n"
        "node = Node(base_dir=pathlib.Path(sys.argv[1]))\n"
        "node.start().await_started()\n"
        "print(node.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with Process("parent", [sys.executable, "-c", script, str(base_dir)], directory=tmp_path) as parent:
        node_pid = int(parent.start().read_line(LIMIT_S))
        parent.send_signal(signal.SIGKILL)
        parent.wait(LIMIT_S)
    wait_until(lambda: not is_alive(node_pid), LIMIT_S, f"the node (pid {node_pid}) to be gone")


@pytest.mark.parametrize("compiler", ["javac", pytest.param("ecj", marks=pytest.mark.slow)])
def test_our_java_programs_compile_with(compiler: Literal["javac", "ecj"], jar: Path, tmp_path: Path) -> None:
    if compiler == "javac" and find_javac() is None:
        pytest.skip("there is no javac on this machine; ecj takes its place")
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    compile_java(sources, tmp_path, [jar], compiler=compiler)
    compiled = {path.stem for path in (tmp_path / "container" / "tests").glob("*.class")}
    assert {source.stem for source in sources} <= compiled


def test_sources_that_do_not_compile_are_refused_with_the_compilers_words(jar: Path, tmp_path: Path) -> None:
    source = tmp_path / "Broken.java"
    source.write_text("class Broken { int x = noSuchName; }\n")
    with pytest.raises(JavaError, match=r"(?s)1 Java sources do not compile with .*noSuchName"):
        compile_java([source], tmp_path / "classes", [jar])


def write_mark_file(class_path: list[Path], path: Path, *values: str) -> None:
    """Run the program that writes mark files."""
    command = java_command("container.tests.MarkFileWriter", class_path, arguments=[str(path), *values])
    subprocess.run(command, check=True, timeout=LIMIT_S)


def test_the_mark_file_writer_writes_what_a_java_container_writes(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    service = start_with_service(member, JAVA_ECHO_SERVICE)
    written_by_container = member.cluster_dir / "cluster-mark-service-0.dat"
    status = read_mark_file(written_by_container)
    path = tmp_path / "cluster-mark-service-0.dat"
    values = [f"now-ms={status.start_timestamp_ms}", f"pid={service.pid}", "member-id=0"]
    write_mark_file(list(member.class_path), path, *values, f"aeron-directory={member.aeron_dir}")
    expected, actual = bytearray(written_by_container.read_bytes()), path.read_bytes()
    # The container goes on to say that it is active.
    expected[16:24] = status.start_timestamp_ms.to_bytes(8, "little")
    assert actual == expected


def test_a_java_mark_file_is_read(java_classes: Path, jar: Path, tmp_path: Path) -> None:
    path = tmp_path / "cluster-mark-service-3.dat"
    write_mark_file([jar, java_classes], path, "now-ms=1700000000123", "pid=99", "service-id=3")
    status = read_mark_file(path)
    assert (status.version, status.pid, status.activity_timestamp_ms) == (768, 99, 1700000000123)
    assert status.errors == ()
    assert status.takeable_in_ms(1700000000124) == 9_999
    assert status.takeable_in_ms(1700000010123) == 0
    assert path.stat().st_size == 8192 + 1048576
