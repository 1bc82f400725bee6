"""The source over Spark Connect: a real server, and a client in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import closing
from pathlib import Path

import pyspark
import pytest

from container.errors import ConfigurationError
from container.spark import open_session
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.java_tools import find_java
from container.testing.processes.process import Process
from tests.spark.written_members import WrittenMember

ROOT = Path(__file__).parents[2]
PYTHON_PATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
LIMIT_S = 180.0


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@pytest.mark.slow
def test_a_client_of_spark_connect_reads_batches_streams_and_tables(member: WrittenMember, tmp_path: Path) -> None:
    with closing(PortReservation()) as ports:
        port = ports.take()
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        "JAVA_HOME": str(find_java(bundled=False).resolve().parents[1]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PYTHON_PATH,
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER, *arguments]
    program = [sys.executable, "-m", "tests.spark.connect_program", f"sc://{HOST}:{port}", str(member.base_dir)]
    with (
        Process("server", [*command, "spark-internal"], directory=tmp_path, environment=environment) as server,
        Process(
            "client", [*program, str(tmp_path / "stream")], directory=tmp_path, environment={"PYTHONPATH": PYTHON_PATH}
        ) as client,
    ):
        server.start().wait_until(lambda: _listens(port), LIMIT_S, f"Spark's Connect server to listen on port {port}")
        assert client.start().wait(LIMIT_S) == 0, client.tail()
        found = json.loads(client.output())
    assert found["session"].startswith("pyspark.sql.connect.")
    assert found["batch"] == found["stream"] == len(member.messages)
    assert found["table"] == len(member.of_template(20))
    assert found["cores"] == 2
    assert found["analytics"] > 0
    assert "an ingest over Spark Connect is not possible" in found["ingest"]


def test_a_package_that_spark_connect_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigurationError, match="Spark Connect needs grpc: pip install"):
        open_session(master="sc://localhost:15002")
