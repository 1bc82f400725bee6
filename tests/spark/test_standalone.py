"""The same on a standalone cluster of Spark: one master and two workers, each a process of its own on loopback."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pyspark
import pytest

from container.replay.diff import diff
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.java_tools import find_java
from container.testing.processes.process import Process
from tests.recordings_world import rows_of
from tests.replay_world import GENEROUS, TALLY, egress, of_kind, replayed, rows, write_tally
from tests.spark.conftest import LIMIT_S

ROOT = Path(__file__).parents[2]
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
START_LIMIT_S = 120.0
PYTHON_PATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
"""Where the program and the workers find this tree, installed or not."""


class StandaloneCluster:
    """A master and two workers with one core each; :attr:`url` is what programs take for their master."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self._environment = {
            "JAVA_HOME": str(find_java(bundled=False).resolve().parents[1]),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with closing(PortReservation()) as ports:
            port = ports.take()
        self.url = f"spark://{HOST}:{port}"
        master = self._start("master", "Master", "--port", str(port))
        master.wait_until(lambda: _listens(port), START_LIMIT_S, f"Spark's master to listen on port {port}")
        self.work_dirs = [directory / f"worker-{number}" for number in range(2)]
        for work_dir in self.work_dirs:
            resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(work_dir))
            self._start(work_dir.name, "Worker", *resources, self.url)

    def _start(self, name: str, kind: str, *arguments: str) -> Process:
        command = [SPARK_CLASS, f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", HOST, "--webui-port", "0"]
        process = Process(name, [*command, *arguments], directory=self._directory, environment=self._environment)
        return self._stack.enter_context(process).start()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A cluster of Spark, which ends with the test."""
    with ExitStack() as stack:
        yield StandaloneCluster(stack, tmp_path)


@pytest.mark.slow
def test_reads_ingest_and_replay_run_unchanged_on_a_standalone_cluster(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    tally = write_tally(tmp_path / "member", 1500)
    command = [sys.executable, "-m", "tests.spark.standalone_program", cluster.url, str(tally.base_dir), str(tmp_path)]
    with Process("program", command, directory=tmp_path, environment={"PYTHONPATH": PYTHON_PATH}) as program:
        assert program.start().wait(LIMIT_S / 2) == 0, program.tail()
        found = json.loads(program.output())
    assert found["directories"] == [str(work_dir) for work_dir in cluster.work_dirs], "both workers had a part in it"
    assert found["session_messages"] == tally.count
    assert found["ingested"] == found["manifest"] == len(rows_of(tally.base_dir, "messages"))
    expected = replayed(tally.base_dir)
    assert found["replay"]["compared_count"] == len(tally.snapshots)
    assert (found["replay"]["differing_count"], found["replay"]["first_error"]) == (0, None)
    sent = [
        *egress(expected),
        *((row["log_position"], 0, 0, row["payload"]) for row in of_kind(expected, "SERVICE_MESSAGE")),
    ]
    assert [tuple(row) for row in found["egress"]] == sorted((row[0], row[3].decode()) for row in sent)
    assert found["first_difference"] == rows(diff(tally.base_dir, TALLY, GENEROUS))[0]["log_position"]
