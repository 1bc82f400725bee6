"""Three native members on this machine: launched by a program and by ``aeron-cluster dev``, their leader killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import container
from container.aeron import MediaDriver
from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.errors import ClusterError, MarkFileError
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.process import is_alive, wait_until
from tests.limits import LIMIT_S
from tests.services import Counter

ROOT = Path(__file__).parents[2]


class Answers(EgressListener):
    """The last total that the service has sent."""

    def __init__(self) -> None:
        self.total = 0

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.total = int(bytes(buffer))


def count_to(client: AeronCluster, answers: Answers, total: int) -> None:
    """Send 1 until the service has counted so many."""
    client.send(b"%d" % (total - answers.total))

    def has_come() -> bool:
        client.poll_egress()
        return answers.total >= total

    wait_until(has_come, LIMIT_S, f"a total of {total}")


def await_leader(client: AeronCluster, member_id: int) -> None:
    """Poll until the client knows who leads: what it sends before goes to the one that led."""

    def is_known() -> bool:
        client.poll_egress()
        return client.leader_member_id == member_id

    wait_until(is_known, LIMIT_S, f"the client to know that member {member_id} leads")


def test_a_killed_leader_has_a_successor_and_nothing_is_lost() -> None:
    lines: list[str] = []
    answers = Answers()
    with (
        container.launch_cluster(Counter, members=3, port=0, say=lines.append, timeout=LIMIT_S) as cluster,
        MediaDriver.launch_embedded() as driver,
    ):
        first = cluster.leader
        assert first is not None
        wait_until(lambda: f"member {first.member_id} leads" in lines, LIMIT_S, "the cluster to say who leads")
        settings: dict[str, Any] = {
            "aeron_dir": driver.aeron_dir,
            "ingress_channel": "aeron:udp",
            "ingress_endpoints": cluster.ingress_endpoints,
            "egress_channel": f"aeron:udp?endpoint={HOST}:0",
        }
        with closing(AeronCluster.connect(listener=answers, message_timeout=LIMIT_S, **settings)) as client:
            count_to(client, answers, 5)
            first.kill()
            second = cluster.await_leader(other_than=first)
            await_leader(client, second.member_id)
            count_to(client, answers, 7)
        wait_until(lambda: f"member {second.member_id} leads" in lines, LIMIT_S, "the cluster to say who leads now")
        pids = [member.node.pid for member in cluster.members]
        directory = cluster.directory
    assert not any(map(is_alive, pids))
    assert not directory.exists()
    killed = f"member {first.member_id} (pid "
    assert next(line for line in lines if line.startswith(killed)).endswith("ended with -9")
    assert sorted(member.node.process.return_code or 0 for member in cluster.members) == [-9, 0, 0]


def test_a_service_that_fails_to_start_ends_all_members_with_the_cause() -> None:
    with pytest.raises(ClusterError, match=r"^member \d ended while it started: .*nothing works"):
        container.launch_cluster("tests.system.test_launched_cluster:Failing", port=0, say=lambda line: None)


def test_an_error_of_a_start_says_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "member-0").mkdir()
    (tmp_path / "member-0" / "node.err").write_text("aeron-cluster: error: of yesterday\n" * 50)
    with pytest.raises(ClusterError) as caught:
        container.launch_cluster(
            "tests.system.test_launched_cluster:Failing", directory=tmp_path, port=0, say=lambda line: None
        )
    assert "nothing works" in str(caught.value)
    assert "yesterday" not in str(caught.value)


def test_a_second_cluster_in_the_directory_of_a_running_one_touches_nothing(tmp_path: Path) -> None:
    with container.launch_cluster(Counter, members=3, directory=tmp_path, port=0, say=lambda line: None) as cluster:
        files = [member.node.aeron_dir / "cnc.dat" for member in cluster.members]
        files += [member.node.base_dir / "node.toml" for member in cluster.members]
        before = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files]
        with pytest.raises(MarkFileError, match=f"another cluster runs on {tmp_path}.*: end it first"):
            container.launch_cluster(Counter, members=3, directory=tmp_path, port=0)
        assert [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files] == before
        assert all(member.is_running for member in cluster.members)


class Failing(Counter):
    """A service that cannot start."""

    def __init__(self) -> None:
        raise RuntimeError("nothing works")


def test_dev_prints_who_leads_and_ends_all_members_with_ctrl_c(tmp_path: Path) -> None:
    with closing(PortReservation(HOST)) as ports:
        port = ports.take_row(25)
        command = [sys.executable, "-m", "container", "dev", "tests.services:Counter", "--members", "3"]
        with subprocess.Popen(
            [*command, "--dir", str(tmp_path / "all"), "--host", HOST, "--port", str(port)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                head = "".join(process.stdout.readline() for _line in range(7))
                process.send_signal(signal.SIGINT)
                _out, errors = process.communicate(timeout=LIMIT_S)
            finally:
                process.kill()
    assert head.startswith("A cluster of 3 members is ready. Member "), errors
    assert f"0={HOST}:{port},1={HOST}:{port + 10},2={HOST}:{port + 20}" in head
    assert process.returncode == 0, errors
    for member_id in range(3):
        assert f"member {member_id}: " in errors
        assert f"member {member_id} (pid " in errors
        assert (tmp_path / "all" / f"member-{member_id}" / "cluster" / "recording.log").exists()
