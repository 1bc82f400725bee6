"""The node whose driver, archive and consensus module are Java's: settings and end, with a script for the JVM."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from container.errors import ClusterError, ClusterTermination, ConfigurationError
from container.node import java_node
from container.node.java_node import JavaNode
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process, is_alive, wait_until
from tests.limits import LIMIT_S
from tests.services import Counter

READY = "import os, signal, sys, time; print('ready', flush=True); "


def launch(
    script: str, directory: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[JavaNode, threading.Event]:
    """A node without services, whose JVM runs a script of Python."""
    monkeypatch.setattr(java_node, "resolve_jar", lambda: Path("aeron.jar"))
    monkeypatch.setattr(java_node, "java_command", lambda *_, **__: [sys.executable, "-c", READY + script])
    monkeypatch.setattr(JavaNode, "_await_leader", lambda _: None)  # a script leads nothing
    ended = threading.Event()
    node = JavaNode.launch(
        directory=str(directory), port=ports.take_row(5), on_ready=lambda: None, on_end=ended.set, **settings
    )
    wait_until(lambda: (directory / "java-node.out").read_bytes() == b"ready\n", LIMIT_S, "the script to run")
    return node, ended


def test_a_jvm_that_ends_while_the_node_starts_is_named_and_the_node_never_ready(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_node, "resolve_jar", lambda: Path("aeron.jar"))
    monkeypatch.setattr(java_node, "java_command", lambda *_, **__: [sys.executable, "-c", "raise SystemExit(7)"])
    ready = threading.Event()
    expected = "the node ended while it started: Java's node ended with 7: see .*java-node.err"
    with pytest.raises(ClusterError, match=expected):
        JavaNode.launch(directory=str(tmp_path), port=ports.take_row(5), on_ready=ready.set, on_end=lambda: None)
    assert not ready.is_set()


def test_a_jvm_that_was_asked_to_end_did_not_fail(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM ends with 143 at SIGTERM."""
    node, _ = launch("signal.signal(15, lambda *_: os._exit(143)); time.sleep(60)", tmp_path, ports, monkeypatch)
    with node:
        assert node.failure is None
    assert node.failure is None


@pytest.mark.parametrize("status", [0, 1, 143])
def test_a_jvm_that_ends_by_itself_is_judged_by_its_status(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    node, ended = launch(f"os._exit({status})", tmp_path, ports, monkeypatch)
    with node:
        assert ended.wait(LIMIT_S)
    if status == 0:
        assert node.failure is None
    else:
        assert isinstance(node.failure, ClusterError)
        assert f"Java's node ended with {status}" in str(node.failure)


def test_an_orderly_end_of_a_container_does_not_hide_what_the_jvm_died_of(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that loses the commit position ends in order."""

    class Ended:
        failure = ClusterTermination(is_expected=True)

    node, ended = launch("os._exit(1)", tmp_path, ports, monkeypatch)
    with node:
        node._containers.append(Ended())  # type: ignore[arg-type]
        assert ended.wait(LIMIT_S)
        assert "Java's node ended with 1" in str(node.failure)


def test_a_jvm_that_does_not_end_is_killed_and_nothing_raised(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(java_node, "_STOP_LIMIT_S", 0.2)
    node, _ = launch("signal.signal(15, signal.SIG_IGN); time.sleep(60)", tmp_path, ports, monkeypatch)
    pid = node.pid
    node.close()
    assert not is_alive(pid)
    assert "did not end in 0.2 s" in caplog.text
    assert node.failure is None
    node.close()


def test_a_second_thread_that_closes_it_waits(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def stop(process: Process, limit_s: float) -> int:
        asked.set()
        assert go_on.wait(LIMIT_S)
        process.send_signal(signal.SIGTERM)
        return process.wait(limit_s)

    monkeypatch.setattr(Process, "stop", stop)
    node, _ = launch("time.sleep(60)", tmp_path, ports, monkeypatch)
    pid = node.pid
    first = threading.Thread(target=node.close)
    first.start()
    assert asked.wait(LIMIT_S)
    threading.Timer(0.1, go_on.set).start()
    node.close()
    assert not is_alive(pid)
    first.join(LIMIT_S)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("container", "use_agent_invoker", True, "leave out use_agent_invoker=True"),
        ("container", "cluster_dir", "/elsewhere", "leave out cluster_dir='/elsewhere': the node's directory decides"),
        ("container", "cluster_id", 7, "leave out cluster_id=7, and set it for consensus_module"),
        ("archive", "archive_dir", "/elsewhere", "leave out archive_dir='/elsewhere'"),
        ("archive", "threading_mode", "INVOKER", 'leave out threading_mode="INVOKER": nobody invokes the parts'),
        ("consensus_module", "use_agent_invoker", True, "leave out use_agent_invoker=True"),
        ("consensus_module", "cluster_members", "0,a,b,c,d,e", "leave out cluster_members='0,a,b,c,d,e'"),
    ],
)
def test_what_the_node_decides_is_refused(
    tmp_path: Path,
    ports: PortReservation,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    name: str,
    value: object,
    message: str,
) -> None:
    with pytest.raises(ConfigurationError, match=f"{part}: {message}"):
        launch("", tmp_path / "node", ports, monkeypatch, **{part: {name: value}})
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("driver", "library", "/lib/libaeron.so"),
        ("archive", "torn_frame", "keep"),
        ("archive", "aeron_library", "/lib/libaeron.so"),
        ("consensus_module", "app_version", "1.2.0"),
    ],
)
def test_a_setting_without_a_property_of_java_s_is_refused(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch, part: str, name: str, value: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{part}: Java's node has no setting '{name}'"):
        launch("", tmp_path / "node", ports, monkeypatch, **{part: {name: value}})


def test_quantities_are_numbers_for_java(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []

    def command(*_: object, properties: dict[str, str], **__: object) -> list[str]:
        given.append(properties)
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(java_node, "resolve_jar", lambda: Path("aeron.jar"))
    monkeypatch.setattr(java_node, "java_command", command)
    settings: dict[str, Any] = {
        "driver": {"term_buffer_length": "64k", "term_buffer_sparse_file": False},
        "consensus_module": {"driver_timeout_ms": "20s", "session_timeout_ns": "30s", "service_stream_id": 7},
    }
    port, directory = ports.take_row(5), str(tmp_path / "node")
    with pytest.raises(ClusterError):  # what stands for Java ends at once
        JavaNode.launch(directory=directory, port=port, on_ready=lambda: None, on_end=lambda: None, **settings)
    wanted = {
        "aeron.driver.timeout": "20000",  # Java reads no unit here, and takes its default for what is not a number
        "aeron.cluster.session.timeout": "30000000000",
        "aeron.cluster.service.stream.id": "7",
        "aeron.term.buffer.length": "65536",
        "aeron.term.buffer.sparse.file": "false",
    }
    assert {name: given[0][name] for name in wanted} == wanted
    with pytest.raises(ConfigurationError, match="consensus_module: session_timeout_ns='soon': must be"):
        launch("", tmp_path / "node", ports, monkeypatch, consensus_module={"session_timeout_ns": "soon"})


def test_containers_take_what_they_share_from_the_consensus_module(
    tmp_path: Path, ports: PortReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = []

    def context(service: object, **settings: object) -> None:
        found.append(settings)
        raise ConfigurationError("enough")

    monkeypatch.setattr(java_node, "Context", context)
    monkeypatch.setattr(java_node, "resolve_jar", lambda: Path("aeron.jar"))
    monkeypatch.setattr(java_node, "java_command", lambda *_, **__: [sys.executable, "-c", "input()"])
    with pytest.raises(ConfigurationError, match="enough"):
        JavaNode.launch(
            Counter(),
            directory=str(tmp_path),
            port=ports.take_row(5),
            on_ready=lambda: None,
            on_end=lambda: None,
            consensus_module={"cluster_id": 7},
        )
    assert found[0]["cluster_id"] == 7
