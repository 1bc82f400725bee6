"""The mark file, the counters and the name of a Python container on a real node, compared with Java's."""

from __future__ import annotations

import mmap
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from container.files.cnc_file import CounterRecord, MarkFileStatus, read_mark_file
from container.testing.processes.java_tools import java_command
from container.testing.processes.local_cluster import CounterType, Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.harness import (
    COMMAND,
    ECHO_SERVICE,
    JAVA_ECHO_SERVICE,
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    error_texts,
    start,
)

pytestmark = pytest.mark.nodes("native", "java")

CLIENT_HEARTBEAT = 11
VERSION = slice(8, 12)
MEMBER_ID = slice(64, 68)
SERVICE_ID = slice(68, 72)
ACTIVITY_TIMESTAMP = slice(16, 24)
START_TIMESTAMP = slice(24, 32)
PID = slice(32, 40)


def mark_path(member: Node, service_id: int = 0) -> Path:
    return member.cluster_dir / f"cluster-mark-service-{service_id}.dat"


def status(member: Node) -> MarkFileStatus:
    return read_mark_file(mark_path(member))


def member_id(member: Node, service_id: int = 0) -> int:
    return int.from_bytes(mark_path(member, service_id).read_bytes()[MEMBER_ID], "little", signed=True)


def await_member_id(member: Node, service_id: int = 0) -> None:
    """Wait until the member id is written: after the ack of the join, so the node may lead before."""
    what = f"the member id in {mark_path(member, service_id)}"
    member.wait_until(lambda: member_id(member, service_id) == member.member_id, LIMIT_S, what)


def masked(content: bytes, *fields: slice) -> bytes:
    """Bytes with zeros in place of what differs from run to run."""
    masked_content = bytearray(content)
    for field in fields:
        masked_content[field] = bytes(field.stop - field.start)
    return bytes(masked_content)


def test_s3_the_mark_file_is_the_one_that_java_writes(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    service = start(member, ECHO_SERVICE)
    await_member_id(member)
    content = mark_path(member).read_bytes()
    assert len(content) == 1_056_768
    path = tmp_path / "cluster-mark-service-0.dat"
    values = [
        f"now-ms={status(member).start_timestamp_ms}",
        f"pid={service.pid}",
        "member-id=0",
        f"aeron-directory={member.aeron_dir}",
    ]
    command = java_command("container.tests.MarkFileWriter", list(member.class_path), arguments=[str(path), *values])
    subprocess.run(command, check=True, timeout=LIMIT_S)
    assert masked(content, ACTIVITY_TIMESTAMP) == masked(path.read_bytes(), ACTIVITY_TIMESTAMP)


def test_s3_the_mark_files_of_two_containers_differ_in_times_pid_and_service_id(node: NodeFactory) -> None:
    member = node(service_count=2)
    member.start()
    member.start_java_service(JAVA_ECHO_SERVICE, service_id=0)
    environment = {"AERON_CLUSTER_SERVICE_NAME": "clustered-service-0-0"}
    member.start_service(ECHO_SERVICE, service_id=1, environment=environment)
    member.await_leader()
    for service_id in (0, 1):
        await_member_id(member, service_id)
    by_java = mark_path(member, 0).read_bytes()
    by_python = mark_path(member, 1).read_bytes()
    differing = (ACTIVITY_TIMESTAMP, START_TIMESTAMP, PID, SERVICE_ID)
    assert masked(by_python, *differing) == masked(by_java, *differing)


def test_s4_a_reader_never_sees_a_ready_file_without_its_time(node: NodeFactory) -> None:
    member = node()
    member.start().await_started()
    service = member.start_service(ECHO_SERVICE)
    path = mark_path(member)
    service.wait_until(lambda: path.exists() and path.stat().st_size == 1_056_768, LIMIT_S, "a mark file")
    seen = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:

        def is_ready() -> bool:
            # The version first: it is written last.
            version = int.from_bytes(content[VERSION], "little", signed=True)
            activity_timestamp_ms = int.from_bytes(content[ACTIVITY_TIMESTAMP], "little", signed=True)
            seen.append((version, activity_timestamp_ms))
            return version != 0

        service.wait_until(is_ready, LIMIT_S, "a ready mark file")
    assert {version for version, _ in seen[:-1]} <= {0}
    version, activity_timestamp_ms = seen[-1]
    assert version == 768
    assert 0 <= time.time_ns() // 1_000_000 - activity_timestamp_ms < 1_000 * LIMIT_S


def test_s5_a_live_mark_file_is_refused_and_its_owner_goes_on(node: NodeFactory) -> None:
    member = node()
    start(member, REPORTING_SERVICE)
    before = status(member)
    second = member.start_process(
        "second", [*COMMAND, "run", "examples.echo_service:EchoService"], member.service_environment()
    )
    assert second.wait(LIMIT_S) == 1
    (line,) = second.errors().splitlines()
    assert line.startswith("aeron-cluster: error: active mark file detected: ")
    assert str(mark_path(member)) in line
    after = status(member)
    assert (after.pid, after.start_timestamp_ms, after.version) == (before.pid, before.start_timestamp_ms, 768)
    with CommandClient(member) as client:
        assert client.do("echo", text="mine") == "mine"


def test_s5_errors_of_the_last_run_are_saved_beside_the_mark_file(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.send("raise", text="remember me")
        client.poll_until(lambda: error_texts(member), "the error in the mark file")
    service.kill()
    member.kill()
    member.release_mark_files()
    start(member, REPORTING_SERVICE)
    # The log is replayed, and so is the error: it is in the new log as well, counted anew.
    (saved,) = member.cluster_dir.glob("CONTAINER-*-error.log")
    assert "RuntimeError: remember me" in saved.read_text(encoding="ascii")
    assert [record.observation_count for record in status(member).errors] == [1]
    assert status(member).errors[0].first_observation_ms >= status(member).start_timestamp_ms


def test_s6_the_member_id_is_written_when_the_log_is_joined(node: NodeFactory) -> None:
    member = node(service_count=2)
    member.start()
    service = member.start_service(ECHO_SERVICE)
    # Without the other service the consensus module does not go on.
    member.await_started()
    service.wait_until(
        lambda: (mark_path(member), 768) in [(found.path, found.version) for found in member.mark_files()],
        LIMIT_S,
        "a ready mark file",
    )
    assert member_id(member) == -1
    member.start_service(ECHO_SERVICE, service_id=1)
    member.await_leader()
    await_member_id(member)


def test_s7_a_mark_file_elsewhere_is_found_by_its_link(node: NodeFactory, tmp_path: Path) -> None:
    mark_dir = tmp_path / "marks"
    member = node(properties={"aeron.cluster.mark.file.dir": str(mark_dir)})
    service = start(member, ECHO_SERVICE)
    assert read_mark_file(mark_dir / "cluster-mark-service-0.dat").pid == service.pid
    assert not mark_path(member).exists()
    assert mark_path(member).with_suffix(".lnk").read_text() == str(mark_dir)
    described = member.cluster_tool("describe")
    assert described.return_code == 0
    assert f"pid={service.pid}|" in described.output


@pytest.mark.slow  # shown by a container over a driver as well
def test_s8_a_failed_start_frees_the_mark_file(node: NodeFactory) -> None:
    member = node()
    start(member, ECHO_SERVICE)
    # The consensus module has the control stream with another term length, so the driver refuses this one.
    environment = {
        **member.service_environment(service_id=1),
        "AERON_CLUSTER_CONTROL_CHANNEL": "aeron:ipc?term-length=64k",
    }
    refused = member.start_process("service-1", [*COMMAND, "run", "examples.echo_service:EchoService"], environment)
    assert refused.wait(LIMIT_S) == 1
    left = read_mark_file(mark_path(member, 1))
    assert (left.version, left.activity_timestamp_ms) == (-1, -1)


def activity_timestamps(member: Node, service: Process, count: int) -> list[int]:
    """Successive values of the mark file's activity timestamp."""
    seen = [status(member).activity_timestamp_ms]

    def collect() -> bool:
        now = status(member).activity_timestamp_ms
        if now != seen[-1]:
            seen.append(now)
        return len(seen) >= count

    service.wait_until(collect, LIMIT_S, f"{count} activity timestamps")
    return seen


@pytest.mark.slow  # shown by an agent in memory, and by a container's thread
def test_s11_the_activity_timestamp_advances_about_once_per_second(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    idle = activity_timestamps(member, service, 4)
    with CommandClient(member) as client:
        client.send("idle", seconds=3.5)
        during_a_long_callback = activity_timestamps(member, service, 4)
        client.poll_until(lambda: client.messages, "the callback to end")
    for stamps in (idle, during_a_long_callback):
        intervals = [later - earlier for earlier, later in pairwise(stamps)]
        assert all(1_000 <= interval < 2_000 for interval in intervals), intervals
    assert abs(status(member).activity_timestamp_ms - time.time_ns() // 1_000_000) < 2_500


def counters_of(member: Node, owner_id: int) -> dict[int, CounterRecord]:
    """The counters of one client by type."""
    return {counter.type_id: counter for counter in member.counters() if counter.owner_id == owner_id}


def test_s10_the_counters_are_those_of_a_java_container(node: NodeFactory) -> None:
    member = node(cluster_id=3, service_count=2)
    member.start()
    member.start_java_service(JAVA_ECHO_SERVICE, service_id=0)
    member.start_service(ECHO_SERVICE, service_id=1)
    member.await_leader()
    by_java = member.counter(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0)
    by_python = member.counter(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=1)
    assert by_java is not None
    assert by_python is not None
    java_counters = counters_of(member, by_java.owner_id)
    python_counters = counters_of(member, by_python.owner_id)
    for type_id in (215, 218, 219, 236, 237):
        expected, actual = java_counters[type_id], python_counters[type_id]
        assert actual.key == (3).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(104)
        assert expected.key == (3).to_bytes(4, "little") + (0).to_bytes(4, "little") + bytes(104)
        assert label(actual).replace("serviceId=1", "serviceId=0") == label(expected)
        assert (actual.registration_id != 0) == (expected.registration_id != 0)
        assert actual.reference_id == expected.reference_id
    # The version's own suffix is the container's, and only the error counter has one.
    assert " version=" in python_counters[215].label
    assert not any(" version=" in python_counters[type_id].label for type_id in (218, 219, 236, 237))


def label(counter: CounterRecord) -> str:
    return counter.label.partition(" version=")[0]


@pytest.mark.slow  # shown by a container over a driver as well
def test_s2_the_service_name_is_the_name_of_the_aeron_client(node: NodeFactory) -> None:
    member = node(cluster_id=3)
    start(member, ECHO_SERVICE)

    def heartbeats() -> list[CounterRecord]:
        return [
            counter
            for counter in member.counters()
            if counter.type_id == CLIENT_HEARTBEAT and "name=clustered-service-3-0 version=" in counter.label
        ]

    # The client adds its name at its first heartbeat.
    (heartbeat,) = member.wait_until(heartbeats, LIMIT_S, "a heartbeat with the name of the service")
    errors = member.counter(CounterType.CLUSTERED_SERVICE_ERROR_COUNT)
    assert errors is not None
    assert errors.owner_id == heartbeat.owner_id == heartbeat.registration_id == heartbeat.key_int64(0)
    assert f"id={heartbeat.owner_id} " in heartbeat.label
