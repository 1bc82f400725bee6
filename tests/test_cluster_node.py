"""A whole cluster in this process: launched, used by clients, continued, refused, and ended by each of its parts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import container
from container.__main__ import main
from container.aeron import AeronClient, MediaDriver
from container.api import ClientSession, Cluster, Header, MessageBuffer, SnapshotImage
from container.archive.authentication import Authenticator
from container.archive.error_codes import UNAUTHORISED_ACTION
from container.client import AeronCluster, EgressListener
from container.common.error_texts import stack_text
from container.errors import ClosedError, ClusterError, ConfigurationError, ContainerError, MarkFileError, TimedOutError
from container.files.directory_lock import DirectoryLock
from container.node.cluster_node import ClusterNode
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from tests.file_rights import for_others
from tests.limits import LIMIT_S
from tests.services import Counter
from tests.soak import disk
from tests.stranger import Stranger

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "container")
SERVICE = "tests.services:Counter"
QUICK = {"client_liveness_timeout_ns": 2_000_000_000, "timer_interval_ns": 100_000_000}
"""A driver that gives a client up after two seconds."""
NEEDS_SMALL_DISK = pytest.mark.skipif(disk.unavailable_reason() is not None, reason=str(disk.unavailable_reason()))


class Answers(EgressListener):
    """The messages that the service sends."""

    def __init__(self) -> None:
        self.found: list[bytes] = []

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.found.append(bytes(buffer))


def ask(node: ClusterNode, *messages: bytes, is_ipc: bool = False, limit_s: float = LIMIT_S) -> bytes:
    """The last answer to messages of a client, over the network or in shared memory."""
    channels: dict[str, Any] = {
        "ingress_channel": "aeron:ipc" if is_ipc else "aeron:udp",
        "ingress_endpoints": None if is_ipc else node.ingress_endpoints,
        "egress_channel": "aeron:ipc" if is_ipc else f"aeron:udp?endpoint={HOST}:0",
    }
    answers = Answers()
    with AeronCluster.connect(
        aeron_dir=node.aeron_dir,
        listener=answers,
        message_timeout=LIMIT_S,
        **channels,
    ) as client:
        for message in messages:
            client.send(message)
        end = time.monotonic() + limit_s
        while len(answers.found) < len(messages):
            client.poll_egress()
            assert time.monotonic() < end, f"{len(answers.found)} answers to {messages!r}"
    return answers.found[-1]


def send_until_it_ends(node: ClusterNode) -> None:
    """Send as much as the node takes while it runs."""
    with (
        contextlib.suppress(ContainerError),
        AeronCluster.connect(
            aeron_dir=node.aeron_dir,
            ingress_channel="aeron:ipc",
            egress_channel="aeron:ipc",
            listener=Answers(),
        ) as client,
    ):
        while node.is_running:
            client.offer(b"1")
            client.poll_egress()


def test_a_service_is_served_and_goes_on_after_a_new_start(tmp_path: Path, port: int) -> None:
    for expected in (b"6", b"12"):
        with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
            assert node.directory == tmp_path
            assert node.ingress_endpoints == f"0={HOST}:{port}"
            assert ask(node, b"1", b"2") == b"%d" % (int(expected) - 3)
            assert ask(node, b"3", is_ipc=True) == expected
        assert not node.is_running
        assert node.failure is None
        assert not Path(node.aeron_dir).exists()
        node.close()


AS_NOBODY = (
    "import os, sys\n"
    "os.setgroups([]), os.setgid(65_534), os.setuid(65_534)\n"
    "os.execv('/bin/ls', ['ls', '-laR', sys.argv[1]])\n"  # no other module: it may not read this Python's
)


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
@pytest.mark.usefixtures("open_umask")
def test_no_other_user_can_look_into_a_node_that_runs(tmp_path: Path, port: int, mode: str) -> None:
    directory = tmp_path / "node"
    with container.launch_node(Counter(), directory=directory, host=HOST, port=port, threading_mode=mode) as node:
        assert ask(node, b"1", is_ipc=True) == b"1"
        node.take_snapshot()
        driver = Path(node.aeron_dir)
        assert len([*driver.rglob("*.logbuffer")]) > 5
        assert for_others(driver, directory) == []
        if os.geteuid() == 0:
            command = [sys.executable, "-I", "-c", AS_NOBODY, str(driver)]
            listed = subprocess.run(command, capture_output=True, text=True, check=False)
            assert listed.stdout == ""
            assert f"cannot open directory '{driver}': Permission denied" in listed.stderr


def test_a_stranger_cannot_stop_the_recording_of_a_node_s_log_nor_delete_its_snapshots(ports: PortReservation) -> None:
    port = ports.take_row(6) + 1
    with (
        container.launch_node(Counter(), host=HOST, port=port) as node,
        MediaDriver.launch_embedded() as driver,
        AeronClient(driver.aeron_dir) as client,
    ):
        assert ask(node, b"1") == b"1"
        node.take_snapshot()
        stranger = Stranger(client, HOST, port)
        assert stranger.connect() == ("ControlResponse", 0, "")
        answers = [stranger.ask("StopRecordingByIdentityRequest", recording_id=0)]
        answers += [stranger.ask("PurgeRecordingRequest", recording_id=each) for each in (1, 2)]
        assert [(code, relevant_id) for code, relevant_id, _ in answers] == [(1, UNAUTHORISED_ACTION)] * 3
        streams = [re.findall(r"recording (\d) is of the cluster's stream (\d+):", text) for *_, text in answers]
        assert [each[0][0] for each in streams] == ["0", "1", "2"]
        assert streams[0][0][1] == "100"
        assert {each[0][1] for each in streams[1:]} == {"106", "107"}
        assert ask(node, b"2") == b"3"


def test_a_client_s_egress_takes_no_more_memory_than_the_setting_says(port: int) -> None:
    driver = {"term_buffer_length": 64 * 1024, "ipc_term_buffer_length": 64 * 1024}
    module = {"log_channel": "aeron:udp?term-length=64k", "egress_term_length_max": 128 * 1024}
    with container.launch_node(Counter(), host=HOST, port=port, driver=driver, consensus_module=module) as node:
        for term_length in ("64k", "64m", "1g"):
            with AeronCluster.connect(
                aeron_dir=node.aeron_dir,
                ingress_channel="aeron:udp",
                ingress_endpoints=node.ingress_endpoints,
                egress_channel=f"aeron:udp?endpoint={HOST}:0|term-length={term_length}",
                message_timeout=LIMIT_S,
            ):
                sizes = [each.stat().st_size for each in Path(node.aeron_dir).rglob("*.logbuffer")]
                assert max(sizes) <= 3 * 128 * 1024 + 4096


def test_a_snapshot_is_taken_and_the_next_start_begins_there(tmp_path: Path, port: int) -> None:
    with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
        assert ask(node, b"4") == b"4"
        node.take_snapshot()
        node.take_snapshot()
        assert ask(node, b"5") == b"9"
    with pytest.raises(ClusterError, match="the node has ended: no snapshot was taken"):
        node.take_snapshot()
    service = Counter()
    with container.launch_node(service, directory=tmp_path, host=HOST, port=port) as node:
        assert service.restored == 4
        assert ask(node, b"6") == b"15"


def test_a_snapshot_is_waited_for_until_the_member_is_active_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter of snapshots comes first, and the operator's tools refuse until the state has followed."""

    class Counted:
        """An agent that has counted its snapshot, and is ACTIVE again after it was looked at three times."""

        snapshot_count = 0
        snapshot_failure = None
        has_leader = False
        looks = 3

        def request_snapshot(self) -> bool:
            self.snapshot_count = 1
            return True

        @property
        def is_taking_snapshot(self) -> bool:
            self.looks -= 1
            return self.looks > 0

    with container.launch_node(Counter(), host=HOST, port=port) as node:
        agent = Counted()
        with monkeypatch.context() as patch:
            patch.setattr(node, "_module", lambda: SimpleNamespace(context=SimpleNamespace(agent=agent)))
            node.take_snapshot()
        assert agent.looks == 0


def test_a_snapshot_that_takes_too_long_is_reported(port: int) -> None:
    go_on = threading.Event()

    class Slow(Counter):
        def on_take_snapshot(self, snapshot_publication: container.SnapshotPublication) -> None:
            assert go_on.wait(LIMIT_S)
            super().on_take_snapshot(snapshot_publication)

    with container.launch_node(Slow(), host=HOST, port=port) as node:
        with pytest.raises(TimedOutError, match=r"a snapshot was asked for and not taken after 0.2 s"):
            node.take_snapshot(timeout=0.2)
        with pytest.raises(TimedOutError, match=r"a snapshot was not asked for: another request is in progress after"):
            node.take_snapshot(timeout=0.2)
        go_on.set()
        node.take_snapshot()


@NEEDS_SMALL_DISK
def test_a_disk_that_runs_low_refuses_snapshots_and_a_full_one_ends_the_node_with_the_cause(
    tmp_path: Path, port: int
) -> None:
    small = disk.SmallDisk(tmp_path / "node", 48)
    try:
        archive = {"low_storage_space_threshold": 32 << 20}
        with container.launch_node(Counter(), directory=small.path, host=HOST, port=port, archive=archive) as node:
            assert ask(node, b"4") == b"4"
            small.fill(leaving=16 << 20)
            with pytest.raises(ClusterError, match="^no snapshot was taken: low storage threshold="):
                node.take_snapshot()
            assert ask(node, b"5") == b"9"
            small.free()
            node.take_snapshot()
            small.fill()
            threading.Thread(target=send_until_it_ends, args=(node,)).start()
            assert node.join(LIMIT_S)
        assert "No space left on device" in str(node.failure)
    finally:
        small.close()


@pytest.mark.parametrize("which", ["", "archive", "cluster"])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_directory_that_is_removed_or_moved_under_a_node_ends_it(
    tmp_path: Path, port: int, which: str, *, is_moved: bool
) -> None:
    directory = tmp_path / "node"
    with container.launch_node(Counter(), directory=directory, host=HOST, port=port) as node:
        lost = directory / which
        if is_moved:
            lost.rename(tmp_path / "elsewhere")
            lost.mkdir()  # somebody begins anew there
        else:
            shutil.rmtree(lost)
        assert node.join(LIMIT_S)
    assert re.search("was removed or moved while it was in use", str(node.failure))


def test_each_service_gets_each_message(port: int) -> None:
    first, second = Counter(), Counter()
    with container.launch_node(first, second, host=HOST, port=port) as node:
        assert ask(node, b"5") == b"5"
        wait_until(lambda: first.total == second.total == 5, LIMIT_S, "both services to have the message")
        directory = node.directory
    assert not directory.exists()  # a temporary one


def test_a_port_that_is_in_use_is_named_and_nothing_is_left(tmp_path: Path, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, port + 2))
        expected = rf"host='{HOST}' port={port}: UDP port {port + 2} cannot be had: .*; end the process that has it, or"
        with pytest.raises(ClusterError, match=expected):  # no wrong setting: a later start may have the port
            container.launch_node(Counter(), directory=tmp_path / "node", host=HOST, port=port)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_there_yet_is_no_wrong_setting(tmp_path: Path, port: int, host: str) -> None:
    """A name server, or a network, may come later than the node: a unit starts again what ends with code 1."""
    with pytest.raises(ClusterError, match=f"host='{host}' port={port}: .*; give a name or an address of this machine"):
        container.launch_node(Counter(), directory=tmp_path, host=host, port=port)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"port": 0}, "port=0: must be a whole number from 1 to 65531"),
        ({"port": "9010"}, "port='9010': must be a whole number"),
        ({"host": "a" * 70}, "host='a.*': is not a name of a host"),
        (
            {"directory": "/dev/null/node"},
            "directory='/dev/null/node': cannot be created: Not a directory: give a path",
        ),
        ({"directory": "a\0b"}, r"directory='a\\x00b': must be a path in UTF-8, not empty and without NUL"),
        ({"directory": 5}, "directory=5: must be a path"),
        ({"aeron_dir": Path("a\0b")}, r"aeron_dir=.*\\x00.*: must be a path in UTF-8, not empty and without NUL"),
        ({"host": ""}, "host='': must be a name or an address of this machine"),
        ({"host": 1}, "host=1: must be a name or an address of this machine"),
        ({"directory": __file__}, "directory='.*': cannot be created: File exists"),
        ({"directory": f"{__file__}/node"}, "directory='.*/node': cannot be created: Not a directory"),
        ({"archive": {"threading_mode": "INVOKER"}}, "archive: leave out threading_mode='INVOKER'"),
        ({"consensus_module": {"use_agent_invoker": True}}, "consensus_module: leave out use_agent_invoker=True"),
        ({"container": {"use_agent_invoker": True}}, "container: leave out use_agent_invoker=True"),
        ({"archive": {"archive_dir": "/a"}}, "archive: leave out archive_dir='/a': the node's directory decides"),
        ({"archive": {"control_channel": "aeron:ipc"}}, "archive: leave out control_channel='aeron:ipc': the node's m"),
        ({"archive": {"aeron_dir": "/a"}}, "archive: leave out aeron_dir='/a': the node's aeron_dir decides"),
        ({"consensus_module": {"cluster_members": "0,a"}}, "leave out cluster_members='0,a': the node's members, or"),
        ({"consensus_module": {"cluster_member_id": 1}}, "consensus_module: leave out cluster_member_id=1: the node's"),
        ({"consensus_module": {"cluster_dir": "/a"}}, "consensus_module: leave out cluster_dir='/a'"),
        (
            {"consensus_module": {"service_count": 2}},
            "consensus_module: leave out service_count=2: the node's services",
        ),
        ({"container": {"cluster_dir": "/a"}}, "container: leave out cluster_dir='/a'"),
        ({"container": {"service_id": 1}}, "container: leave out service_id=1: the node's order of services decides"),
        ({"container": {"cluster_id": 7}}, "container: leave out cluster_id=7, and set it for consensus_module"),
        ({"threading_mode": "shared"}, "threading_mode='shared': must be SHARED or DEDICATED"),
        ({"threading_mode": "DEDICATED", "driver": {"threading": "INVOKER"}}, "driver: threading=.* must have threads"),
        ({"driver": {"term_bufer_length": 1}}, "driver: unknown setting 'term_bufer_length': did you mean 'term_buf"),
        ({"driver": {"term_buffer_length": "1x"}}, "driver: term_buffer_length='1x': must be a power of two"),
        ({"driver": {"term_buffer_sparse_file": "no"}}, "driver: term_buffer_sparse_file='no': must be true or false"),
        ({"archive": {"nonsense": 1}}, "archive: unknown setting 'nonsense'"),
        ({"consensus_module": {"file_sync_level": 7}}, "consensus_module: file_sync_level=7"),
        ({"container": {"cycle_threshold_ns": -1}}, "container: cycle_threshold_ns=-1"),
    ],
)
def test_what_cannot_be_is_refused_and_everything_closed(  # as a wrong setting: exit code 2 of the command
    tmp_path: Path, port: int, given: dict[str, Any], message: str
) -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigurationError, match=message):
        container.launch_node(Counter(), **dict[str, Any](directory=tmp_path, host=HOST, port=port) | given)
    assert threading.active_count() == threads
    with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
        assert ask(node, b"1") == b"1"


def test_containers_are_of_the_consensus_module_s_cluster(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_CLUSTER_MEMBER_ID", "3")  # of another program: a node has the member 0
    settings = {"cluster_id": 7, "control_channel": "aeron:ipc?term-length=128k"}
    with container.launch_node(Counter(), host=HOST, port=port, consensus_module=settings) as node:
        assert ask(node, b"1") == b"1"


@pytest.mark.skipif(not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="no IPv6 on this machine")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_host_may_be_an_ipv6_address(port: int, host: str) -> None:
    with container.launch_node(Counter(), host=host, port=port) as node:
        assert node.ingress_endpoints == f"0=[::1]:{port}"
        assert ask(node, b"1") == b"1"


def test_no_service_and_what_is_none_are_refused(port: int) -> None:
    with pytest.raises(ConfigurationError, match="give at least one service"):
        container.launch_node(host=HOST, port=port)
    with pytest.raises(ConfigurationError, match="that is derived from container.ClusteredService, not 'Counter'"):
        container.launch_node("Counter", host=HOST, port=port)  # type: ignore[arg-type]


def test_a_second_node_on_the_directory_is_refused_and_the_first_goes_on(
    tmp_path: Path, ports: PortReservation, port: int
) -> None:
    with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
        other = ports.take_row(5)
        for aeron_dir in (None, tmp_path / "driver"):
            with pytest.raises(MarkFileError, match="another node runs on"):
                container.launch_node(Counter(), directory=tmp_path, host=HOST, port=other, aeron_dir=aeron_dir)
        assert ask(node, b"1") == b"1"


def test_a_service_that_cannot_start_is_the_cause(port: int) -> None:
    class Failing(Counter):
        def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
            raise RuntimeError("nothing works")

    with pytest.raises(ClusterError, match="the node ended while it started: .*nothing works"):
        container.launch_node(Failing(), host=HOST, port=port)


def test_a_start_that_fails_names_its_cause_alone(tmp_path: Path, port: int) -> None:
    """The other parts end as well: that is not a cause."""
    with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
        node.take_snapshot()
    nanos = {"cluster_clock": "nanos"}
    with pytest.raises(ClusterError, match="a cluster keeps the one that it began with: set cluster_clock .*nanos\\)$"):
        container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port, consensus_module=nanos)


def test_a_service_that_fails_ends_the_node_and_says_why(port: int) -> None:
    ended = threading.Event()
    with container.launch_node(Counter(), host=HOST, port=port, on_end=ended.set) as node:
        assert ask(node, b"1") == b"1"
        with pytest.raises(ClosedError, match="the only member has ended|MediaDriver has been shutdown"):
            ask(node, b"raise")
        assert node.join(LIMIT_S)
        assert ended.is_set()
        assert not node.is_running
    assert "on_session_message raised ValueError" in str(node.failure)


class FailingStart(Counter):
    """Raises when it starts."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        raise ValueError("a secret")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_the_text_of_a_failed_start_has_the_services_message_if_messages_are_recorded(
    port: int, *, is_recorded: bool
) -> None:
    with pytest.raises(ClusterError, match="the node ended while it started: ") as caught:
        container.launch_node(
            FailingStart(), host=HOST, port=port, container={"record_error_messages": is_recorded}
        ).close()
    assert ("a secret" in str(caught.value)) is is_recorded
    assert ("a secret" in stack_text(caught.value)) is is_recorded  # what level DEBUG prints


class Exiting(Authenticator):
    """Raises SystemExit for whoever connects."""

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        raise SystemExit(7)


def test_what_ends_the_program_in_an_authenticator_is_the_failure(port: int) -> None:
    settings = {"authenticator": Exiting()}
    with container.launch_node(Counter(), host=HOST, port=port, consensus_module=settings) as node:
        connecting = AeronCluster.async_connect(
            aeron_dir=node.aeron_dir,
            ingress_channel="aeron:udp",
            ingress_endpoints=node.ingress_endpoints,
            egress_channel=f"aeron:udp?endpoint={HOST}:0",
        )
        end = time.monotonic() + LIMIT_S
        while not node.join(0):
            connecting.poll()
            assert time.monotonic() < end, "the node has not ended"
        connecting.close()
        assert isinstance(node.failure, SystemExit)


class Patient(Counter):
    """Closes the node in the callback of b"0", and idles there and in on_terminate."""

    def __init__(self) -> None:
        super().__init__()
        self.node: ClusterNode | None = None
        self.ends: list[str] = []

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.cluster = cluster

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        if bytes(buffer) == b"0":
            assert self.node is not None
            self.node.close()
            assert Path(self.node.aeron_dir).exists()
            for _ in range(100):
                self.cluster.idle()
            self.ends.append("callback")

    def on_terminate(self, cluster: Cluster) -> None:
        for _ in range(100):
            cluster.idle()
        self.ends.append("on_terminate")


def test_a_callback_may_close_the_node_and_returns_in_order(port: int) -> None:
    """The end is asked for: the callback and what comes after it still have the other parts and the driver."""
    service = Patient()
    with container.launch_node(service, host=HOST, port=port) as node:
        service.node = node
        assert ask(node, b"3", b"0") == b"3"
        assert node.join(LIMIT_S)
    assert service.ends == ["callback", "on_terminate"]
    assert node.failure is None
    assert not Path(node.aeron_dir).exists()


class Idling(Counter):
    """Idles half a second in the callback of b"0" and in on_terminate."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.ends: list[str] = []

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.cluster = cluster

    def idle(self, callback: str) -> None:
        """Idle, and note that nothing ended it."""
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.cluster.idle()
        self.ends.append(callback)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        if bytes(buffer) == b"0":
            self.entered.set()
            self.idle("callback")

    def on_terminate(self, cluster: Cluster) -> None:
        self.idle("on_terminate")


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
def test_close_lets_callbacks_that_idle_return(port: int, mode: str) -> None:
    """They have the other parts, and nobody misses a service that has ended before another one."""
    services = Idling(), Idling()
    errors: list[BaseException] = []
    reporting = {"error_handler": errors.append}
    with container.launch_node(
        *services,
        host=HOST,
        port=port,
        threading_mode=mode,
        driver={"timer_interval_ns": 50_000_000},  # soon after a service has ended, its client's counter is gone
        consensus_module=reporting,
        container=reporting,
    ) as node:
        assert ask(node, b"0") == b"0"
        assert all(each.entered.wait(LIMIT_S) for each in services)
    assert errors == []
    assert [each.ends for each in services] == [["callback", "on_terminate"]] * 2
    assert node.failure is None


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
def test_a_second_thread_that_closes_waits_and_cuts_nothing(port: int, mode: str) -> None:
    service = Idling()
    node = container.launch_node(service, host=HOST, port=port, threading_mode=mode)
    assert ask(node, b"0") == b"0"
    assert service.entered.wait(LIMIT_S)
    other = threading.Thread(target=node.close)
    other.start()
    node.close()
    assert service.ends == ["callback", "on_terminate"]
    assert not Path(node.aeron_dir).exists()
    other.join(LIMIT_S)
    assert not other.is_alive()


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
def test_a_callback_that_idles_for_ever_is_ended(port: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("container.agent.agent_owner._INTERRUPTION_INTERVAL_S", 0.1)

    class Endless(Idling):
        def idle(self, callback: str) -> None:
            while callback == "callback":
                self.cluster.idle()

    service = Endless()
    with container.launch_node(service, host=HOST, port=port, threading_mode=mode) as node:
        assert ask(node, b"0") == b"0"
        assert service.entered.wait(LIMIT_S)
    assert not Path(node.aeron_dir).exists()


def test_a_signal_handler_may_close_while_its_thread_does(port: int) -> None:
    service = Idling()
    node = container.launch_node(service, host=HOST, port=port)
    found: list[bool] = []

    def on_signal(number: int, frame: object) -> None:
        node.close()
        found.append(Path(node.aeron_dir).exists())

    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        assert ask(node, b"0") == b"0"
        assert service.entered.wait(LIMIT_S)
        timer = threading.Timer(0.2, signal.pthread_kill, [threading.get_ident(), signal.SIGUSR1])
        timer.start()
        node.close()
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert service.ends == ["callback", "on_terminate"]
    assert found == [True]  # it did not wait


@pytest.mark.parametrize("mode", ["SHARED", "DEDICATED"])
def test_who_is_interrupted_while_closing_keeps_the_directory_until_the_callback_ends(
    tmp_path: Path, port: int, mode: str
) -> None:
    """As by Ctrl-C while a callback runs: no other node may have the directory before it has ended."""
    entered, go_on = threading.Event(), threading.Event()

    class Busy(Counter):
        def on_terminate(self, cluster: Cluster) -> None:
            entered.set()
            assert go_on.wait(LIMIT_S)

    def on_signal(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    node = container.launch_node(Busy(), directory=tmp_path, host=HOST, port=port, threading_mode=mode)
    before = signal.signal(signal.SIGUSR1, on_signal)
    main_thread = threading.get_ident()

    def interrupt() -> None:
        assert entered.wait(LIMIT_S)
        signal.pthread_kill(main_thread, signal.SIGUSR1)

    other = threading.Thread(target=interrupt)
    try:
        other.start()
        with pytest.raises(KeyboardInterrupt):
            node.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    other.join(LIMIT_S)
    with pytest.raises(MarkFileError, match="another node runs on"):
        DirectoryLock(tmp_path)
    assert Path(node.aeron_dir).exists()
    go_on.set()
    wait_until(lambda: not Path(node.aeron_dir).exists(), LIMIT_S, "the node to close what is left")
    node.close()
    DirectoryLock(tmp_path).close()


@pytest.mark.parametrize(
    ("mode", "word", "seconds", "driver"),
    [
        ("SHARED", b"hold", 5, QUICK),
        ("DEDICATED", b"block", 5, QUICK),
        *(
            pytest.param(mode, word, 60, {}, marks=pytest.mark.slow)
            for mode in ("SHARED", "DEDICATED")
            for word in (b"block", b"hold")
        ),
    ],
)
def test_a_callback_longer_than_the_driver_s_patience_costs_no_part(
    port: int, mode: str, word: bytes, seconds: int, driver: dict[str, Any]
) -> None:
    """Also one that holds the GIL, so that no other thread of Python runs."""
    with container.launch_node(Counter(), host=HOST, port=port, driver=driver, threading_mode=mode) as node:
        assert ask(node, b"4", b"%s %d" % (word, seconds), b"5", limit_s=LIMIT_S + seconds) == b"9"
        assert node.is_running


class Command:
    """The command in a process of its own, from its first lines on."""

    def __init__(self, *arguments: str) -> None:
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline() for _ in range(5)]

    def send(self, text: str) -> str:
        """The output of a client that does as the lines say."""
        found = re.search(r"aeron-cluster (client --ingress \S+ --embedded-driver send) TEXT", self.lines[3])
        assert found is not None, self.lines
        return self.run(*found[1].split(), text)

    def run(self, *arguments: str) -> str:
        """The output of another command."""
        client = subprocess.run(
            [*COMMAND, *arguments], env=self._environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert client.returncode == 0, client.stderr
        return client.stdout

    def stop(self) -> None:
        """End it as an operator does."""
        self.process.send_signal(signal.SIGTERM)
        _out, errors = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, errors
        assert "SIGTERM: closing the node" in errors
        assert "the node: ended: reason=a signal exitCode=0" in errors


@pytest.fixture
def command() -> Iterator[Callable[..., Command]]:
    made: list[Command] = []

    def make(*arguments: str) -> Command:
        made.append(Command(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.communicate()


def test_the_command_prints_how_to_connect_and_ends_in_order(
    tmp_path: Path, port: int, command: Callable[..., Command]
) -> None:
    for expected in ("7", "14"):
        node = command("dev", SERVICE, "--dir", str(tmp_path / "node"), "--host", HOST, "--port", str(port))
        assert node.lines[0] == "A cluster of one member is ready.\n"
        assert f"ingress endpoints 0={HOST}:{port}" in node.lines[1]
        assert node.send("7") == f"{expected}\n"
        node.stop()


def test_all_lines_of_a_node_are_json_where_its_log_is_and_name_a_directory_of_any_characters(
    tmp_path: Path, port: int
) -> None:
    directory = tmp_path / "räume"
    for log_format in ("text", "json"):
        process = subprocess.Popen(
            [*COMMAND, "dev", SERVICE, "--dir", str(directory), "--host", HOST, "--port", str(port)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
                "PYTHONIOENCODING": "ascii",
                "AERON_CLUSTER_LOG_FORMAT": log_format,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stderr is not None
                head = ""
                while " is ready in " not in head:
                    line = process.stderr.readline()
                    assert line, head
                    head += line
                process.terminate()
                out, errors = process.communicate(timeout=LIMIT_S)
            finally:
                process.kill()
        assert process.returncode == 0, errors
        if log_format == "text":
            assert out.splitlines()[-1].endswith(f"{tmp_path}/r\\xe4ume")
            continue
        assert out == ""
        records = [json.loads(line) for line in (head + errors).splitlines()]
        (started,) = [each for each in records if each.get("event") == "started"]
        assert started["directory"] == str(directory)
        assert started["ingress_endpoints"] == f"0={HOST}:{port}"
        assert started["aeron_dir"].startswith("/")


@NEEDS_SMALL_DISK
def test_dev_needs_less_than_the_64_mb_of_a_container_s_shared_memory(
    tmp_path: Path, port: int, command: Callable[..., Command]
) -> None:
    small = disk.SmallDisk(tmp_path / "shm", 64)
    aeron_dir = small.path / "driver"
    try:
        for expected in ("7", "14"):  # the second start replays
            node = command(
                *("dev", SERVICE, "--dir", str(tmp_path / "node"), "--aeron-dir", str(aeron_dir)),
                *("--host", HOST, "--port", str(port)),
            )
            client = ("client", "--aeron-dir", str(aeron_dir), "--ingress-channel", "aeron:ipc", "send", "7")
            assert node.run(*client) == f"{expected}\n"
            # Log buffers, which are sparse, are counted whole: that much they may take.
            lengths = sum(each.stat().st_size for each in aeron_dir.rglob("*") if each.is_file())
            assert lengths < 48 << 20
            node.stop()
    finally:
        small.close()


@NEEDS_SMALL_DISK
def test_a_log_buffer_that_does_not_fit_ends_the_start_with_the_remedy(tmp_path: Path, port: int) -> None:
    small = disk.SmallDisk(tmp_path / "shm", 64)
    try:
        with pytest.raises(ClusterError, match=r"it has not led for 3 s: .*insufficient usable storage.*--shm-size"):
            container.launch_node(
                Counter(),
                aeron_dir=small.path / "driver",
                host=HOST,
                port=port,
                consensus_module={"driver_timeout_ms": 3_000},
                timeout=math.inf,
            )
    finally:
        small.close()


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        (8 << 20, r"cannot start: Failed to allocate file space: .*ulimit -f"),
        (32 << 20, r"recording \d+ cannot continue at 0: .*File too large.*ulimit -f.*segment_file_length"),
    ],
)
def test_a_limit_of_file_sizes_ends_the_start_with_the_remedy(
    tmp_path: Path, port: int, limit: int, error: str
) -> None:
    limited = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); "
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    ended = subprocess.run(
        [
            *(sys.executable, "-c", limited, str(limit), *COMMAND, "dev", SERVICE),
            *("--aeron-dir", str(tmp_path / "driver"), "--host", HOST, "--port", str(port)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert re.search(error, ended.stderr.splitlines()[-1]), ended.stderr


@pytest.mark.parametrize("length", ["5m", "1k", "x", "2g"])
def test_a_term_length_that_is_none_is_refused(length: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["dev", SERVICE, "--term-length", length])
    assert caught.value.code == 2
    assert f"--term-length: '{length}': must be a power of two from 65536 to" in capsys.readouterr().err


def test_the_configuration_file_of_the_document_is_taken(
    tmp_path: Path, port: int, command: Callable[..., Command]
) -> None:
    text = (ROOT / "docs" / "consensus-module.md").read_text(encoding="utf-8")
    text = text.partition("```toml\n")[2].partition("```")[0]
    for given, here in (
        ("my_package.my_module:Counter", SERVICE),
        ("/var/lib/cluster", str(tmp_path / "node")),
        ("node0", HOST),
        ("9010", str(port)),
    ):
        assert given in text
        text = text.replace(given, here)
    file = tmp_path / "node.toml"
    file.write_text(text, encoding="utf-8")
    (tmp_path / "node").mkdir()
    node = command("node", "--config", str(file))
    assert node.send("7") == "7\n"
    node.stop()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "services must be given, such as services = "),
        ('services = ["a:B"]', "directory must be given, such as directory = "),
        ("service = 1", "unknown key 'service': did you mean 'services'?"),
        ("port = true", "port=True: must be a whole number"),
        ('services = "a:B"', "services='a:B': must be a list of package.module:Class"),
        ("archive = 1", "archive=1: must be a table of settings"),
        ("=", "is not TOML"),
        ('services = [1]\ndirectory = "/"', "service=1: must be package.module:Name"),
        ('services = ["a:B"]\ndirectory = "/"\naeron.cluster.session.time = 1', "'aeron.cluster.session.timeout'?"),
        ("[archive]\naeron.cluster.id = 1", "archive: write settings that begin with aeron above the first table"),
    ],
)
def test_a_configuration_file_that_is_wrong_is_named(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["node", "--config", str(file)]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "directory = " in text or str(file) in errors


@pytest.mark.parametrize("more", ["", "service_processes = true\n"])
@pytest.mark.parametrize(
    ("table", "setting", "message"),
    [
        ("driver", "term_buffer_length = 3", "driver: term_buffer_length=3: must be"),
        ("consensus_module", "idle_strategy = 'nap'", "consensus_module: idle_strategy="),
        ("container", "log_fragment_limit = 0", "container: log_fragment_limit=0: must be"),
        ("container", "log_fragment_limits = 1", "container: unknown setting 'log_fragment_limits'"),
    ],
)
def test_a_table_that_is_wrong_is_named_with_its_file_before_a_consensus_module_starts(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str], more: str, table: str, setting: str, message: str
) -> None:
    file = tmp_path / "node.toml"
    (tmp_path / "node").mkdir()
    file.write_text(
        f"services = ['{SERVICE}']\ndirectory = '{tmp_path}/node'\nhost = '{HOST}'\nport = {port}\n{more}"
        f"[{table}]\n{setting}\n",
        encoding="utf-8",
    )
    assert main(["node", "--config", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{file}: {message}" in line
    assert not (tmp_path / "node" / "cluster" / "recording.log").exists()
    assert not (tmp_path / "node" / "cluster" / "cluster-mark.dat").exists()


def test_a_directory_that_is_not_there_is_no_mistake_for_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('services = ["a:B"]\ndirectory = "/mistyped"', encoding="utf-8")
    assert main(["node", "--config", str(file)]) == 1
    assert "directory='/mistyped': there is no such directory: correct" in capsys.readouterr().err


def test_a_properties_file_as_config_is_refused_with_the_option_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--config", "java.properties"]) == 2
    assert "--config must be a TOML file with services and directory; give this file" in capsys.readouterr().err
