"""A node whose service is a process of its own: it is served, outlives what the service holds, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from container.__main__ import main
from container.client import AeronCluster
from container.operate.status import read_status
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.process import is_alive, wait_until
from tests.limits import LIMIT_S
from tests.system.test_launched_cluster import Answers, count_to

ROOT = Path(__file__).parents[1]
SERVICE = "tests.system.busy_service:Busy"
BUSY_S = 10


@contextmanager
def command(directory: Path, service: str = SERVICE) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """``aeron-cluster node`` with a service in a process of its own, ready, and a client's settings."""
    ports = PortReservation(HOST)
    port = ports.take_row(5)
    file = directory / "node.toml"
    file.write_text(
        f'services = ["{service}"]\nservice_processes = true\ndirectory = "{directory}"\nhost = "{HOST}"\n'
        f'port = {port}\naeron_dir = "{directory}/driver"\n[consensus_module]\nsession_timeout_ns = "120s"\n'
        "[driver]\nterm_buffer_sparse_file = true\n",
        encoding="utf-8",
    )
    with subprocess.Popen(
        [sys.executable, "-m", "container", "node", "--config", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "A cluster of one member is ready.\n"
            yield process, {"aeron_dir": f"{directory}/driver", "ingress_channel": "aeron:ipc"}
        finally:
            process.kill()
            ports.close()


def service_pid(directory: Path) -> int:
    (service,) = read_status(directory / "cluster").services
    return service.pid


def committed(directory: Path) -> int:
    return read_status(directory / "cluster").commit_position or 0


def test_a_service_that_holds_the_gil_keeps_no_part_of_its_node(tmp_path: Path) -> None:
    answers = Answers()
    with command(tmp_path) as (process, settings):
        pid = service_pid(tmp_path)
        assert pid != process.pid
        with AeronCluster.connect(
            listener=answers,
            message_timeout=LIMIT_S,
            egress_channel="aeron:ipc",
            **settings,  # type: ignore[arg-type]
        ) as client:
            count_to(client, answers, 3)
            begin = time.monotonic()
            client.send(b"c %d 0" % BUSY_S)
            before = committed(tmp_path)
            client.send(b"2")
            wait_until(lambda: committed(tmp_path) > before, LIMIT_S, "the log to be committed meanwhile")
            assert time.monotonic() - begin < BUSY_S
            count_to(client, answers, 5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
        assert not is_alive(pid)


def test_a_node_ends_with_the_process_of_its_service(tmp_path: Path) -> None:
    with command(tmp_path) as (process, _settings):
        os.kill(service_pid(tmp_path), signal.SIGKILL)
        _out, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 1
        assert f"the process of service 0, {SERVICE}, ended with -9: the log says why" in errors


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("service_processes = 1", "service_processes=1: must be true or false"),
        ("service_processes = true", "service='tests.system.busy_service:Buzy': tests.system.busy_service has no Buzy"),
    ],
)
def test_a_mistake_is_reported_before_anything_starts(
    tmp_path: Path, more: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'services = ["tests.system.busy_service:Buzy"]\ndirectory = "{tmp_path}"\n{more}\n')
    assert main(["node", "--config", str(file)]) == 2
    assert message in capsys.readouterr().err
