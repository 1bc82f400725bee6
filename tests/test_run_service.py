"""A container as a main program: how it ends on signals, on termination and on failures, and with which code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.aeron.media_driver import MediaDriver
from container.errors import RegistrationError
from container.files.cluster_mark_file import ClusterMarkFile
from container.run_service import run
from container.transport.idle_strategy import NoOpIdleStrategy
from tests.limits import LIMIT_S
from tests.node import TERMINATED, TICK_NS, Node, SecondCall

ROOT = Path(__file__).resolve().parents[1]


def run_node(node: Node, **settings: Any) -> None:
    run(node.service, **node.settings | settings)


@pytest.fixture
def main_node(tmp_path: Path) -> Node:
    """A world that goes on by itself, for a container that is run."""
    node = Node(tmp_path, auto_advance_ns=TICK_NS)
    node.cm.start()
    return node


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_in_order(main_node: Node, number: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    before = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    main_node.service.actions["on_start"] = lambda *_: os.kill(os.getpid(), number)
    with caplog.at_level("INFO", "container"):
        run_node(main_node)
    assert main_node.service.names() == ["on_start", "on_terminate"]
    assert main_node.header()["activity_timestamp"] == TERMINATED
    assert f"{number.name}: closing clustered-service-0-0" in caplog.text
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_the_start_ends_a_run_and_frees_the_mark_file(
    main_node: Node, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    before = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    def strategy() -> Any:
        signal.raise_signal(number)
        return NoOpIdleStrategy()

    with caplog.at_level("INFO", "container"):
        run_node(main_node, idle_strategy=SecondCall(strategy))
    assert "interrupted while starting" in caplog.text
    header = main_node.header()
    assert (header["version"], header["activity_timestamp"]) == (-1, TERMINATED)
    assert main_node.service.names() == []
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == before


SIGNALLED_ELSEWHERE = """
import signal, threading
from types import SimpleNamespace
from container.common.main_program import Ending

def send():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with Ending(SimpleNamespace(is_starting=False)) as end:
    threading.Timer(0.2, send).start()
    print(end.wait().name)
"""


def test_a_signal_that_does_not_wake_the_main_thread_ends_a_program() -> None:
    # As one that comes just before the thread falls asleep: it was lost then.
    command = [sys.executable, "-c", SIGNALLED_ELSEWHERE]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (result.returncode, result.stdout) == (0, "SIGTERM\n"), result.stderr


def test_expected_termination_ends_a_run(main_node: Node) -> None:
    main_node.service.actions["do_background_work"] = TerminateOnce(main_node, None)
    run_node(main_node)
    assert main_node.service.names() == ["on_start", "on_terminate"]
    assert main_node.hooks == 1


class TerminateOnce:
    """Background work in which, for the test's sake, the consensus module says that it is time to end."""

    def __init__(self, node: Node, log_position: int | None) -> None:
        self._node = node
        self._log_position = log_position
        self._is_done = False

    def __call__(self, _now_ns: int) -> int:
        if not self._is_done:
            self._is_done = True
            self._node.cm.termination_position(self._log_position)
        return 0


def test_unexpected_termination_ends_a_run_with_code_1(main_node: Node, caplog: pytest.LogCaptureFixture) -> None:
    main_node.cm.recovery_counter.close()  # type: ignore[union-attr]
    main_node.cm.add_recovery_counter(log_position=64)
    main_node.service.actions["do_background_work"] = TerminateOnce(main_node, 32)
    with pytest.raises(SystemExit) as caught:
        run_node(main_node)
    assert caught.value.code == 1
    assert "ended by ClusterTermination: unexpected termination" in caplog.text


def test_failed_start_of_the_service_ends_a_run_with_code_1(main_node: Node) -> None:
    def fail(*_arguments: Any) -> None:
        raise ValueError("bad state")

    main_node.service.actions["on_start"] = fail
    with pytest.raises(SystemExit) as caught:
        run_node(main_node)
    assert caught.value.code == 1


def test_what_keeps_the_container_from_being_made_ends_a_run_with_one_line(
    main_node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    main_node.driver.fail_next_add("counter", text="no room")
    with pytest.raises(SystemExit) as caught:
        run_node(main_node)
    assert isinstance(caught.value.__cause__, RegistrationError)
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"container.run: error: {caught.value.__cause__}\n"
    assert "no room" in str(caught.value.__cause__)
    assert signal.getsignal(signal.SIGTERM) == before


def test_run_takes_a_context(main_node: Node) -> None:
    main_node.service.actions["on_start"] = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
    run(main_node.context())
    assert main_node.service.names() == ["on_start", "on_terminate"]


def test_run_refuses_to_be_driven(main_node: Node) -> None:
    with pytest.raises(TypeError, match="leave out use_agent_invoker"):
        run_node(main_node, use_agent_invoker=True)


def test_run_on_another_thread_leaves_signals_alone(main_node: Node) -> None:
    before = signal.getsignal(signal.SIGTERM)
    during: list[Any] = []

    def note(*_arguments: Any) -> None:
        during.append(signal.getsignal(signal.SIGTERM))

    main_node.service.actions["on_start"] = note
    main_node.service.actions["do_background_work"] = TerminateOnce(main_node, None)
    thread = threading.Thread(target=run_node, args=(main_node,))
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert during == [before]


def test_settings_beside_a_context_are_refused(main_node: Node) -> None:
    with pytest.raises(TypeError, match="give settings to the Context, not beside it: service_id"):
        run(main_node.context(), service_id=1)
    assert not main_node.mark_path.exists()


# --- starts that fail

SCRIPT = """
import container
from container.testing.memory.recording_service import RecordingService
container.run(RecordingService(), **{settings!r})
"""


def script(settings: dict[str, Any], tmp_path: Path) -> tuple[int, str]:
    """Exit code and standard error of a main program."""
    path = tmp_path / "service.py"
    path.write_text(SCRIPT.format(settings=settings))
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": os.environ["PATH"]}
    command = [sys.executable, str(path)]
    result = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
    return result.returncode, result.stderr


@pytest.fixture(scope="module")
def aeron_dir() -> Iterator[str]:
    with MediaDriver.launch_embedded() as driver:
        yield driver.aeron_dir


def test_a_live_mark_file_is_one_line_with_file_process_and_what_to_do(tmp_path: Path, aeron_dir: str) -> None:
    path = tmp_path / "cluster-mark-service-0.dat"
    with contextlib.closing(ClusterMarkFile(str(path))) as owner:
        owner.signal_ready()
        before = path.read_bytes()
        code, said = script({"cluster_dir": str(tmp_path), "aeron_dir": aeron_dir}, tmp_path)
        assert path.read_bytes() == before
    assert code == 1
    (line,) = said.splitlines()
    assert line.startswith(
        f"container.run: error: active mark file detected: {path}: its owner, pid {os.getpid()}, was"
    )
    assert " ms ago. If this container runs, stop it, or give the new one a cluster_dir or a service_id" in line


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"service_id": 10}, 2, "service_id=10: must be a whole number from 0 to 9"),
        ({"no_such_setting": 1}, 2, "unknown setting 'no_such_setting'"),
        ({"config_file": "/no/such/file"}, 2, "config file /no/such/file can"),
        ({"error_handler": "log"}, 2, "error_handler='log': must be callable"),
        ({"delegating_error_handler": "os:environ"}, 2, "delegating_error_handler='os:environ': must have next()"),
        (
            {"cluster_dir": "/no/such/directory", "driver_timeout_ms": 20},
            1,
            "cluster_dir='/no/such/directory': there is no such directory after 20 ms",
        ),
        ({"cluster_dir": "/dev/null/x"}, 2, "cluster_dir='/dev/null/x': '/dev/null' is a file and no directory"),
        ({"aeron_library": "/no/such/library"}, 1, "/no/such/library"),
        ({"aeron_dir": "/no/such/driver", "driver_timeout_ms": 20}, 1, "no media driver within 20 ms"),
    ],
)
def test_a_start_that_cannot_succeed_is_one_line(
    tmp_path: Path, aeron_dir: str, settings: dict[str, Any], code: int, text: str
) -> None:
    code_of_exit, said = script({"cluster_dir": str(tmp_path), "aeron_dir": aeron_dir} | settings, tmp_path)
    (line,) = said.splitlines()
    assert line.startswith("container.run: error: ")
    assert text in line
    assert code_of_exit == code


def test_a_container_waits_for_the_directory_that_its_node_makes(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    making = threading.Timer(0.5, directory.mkdir)
    making.start()
    settings = {"cluster_dir": str(directory), "aeron_dir": "/no/such/driver", "driver_timeout_ms": 3_000}
    code, said = script(settings, tmp_path)
    making.join()
    assert code == 1
    (line,) = said.splitlines()
    assert "no media driver within 3000 ms" in line  # what is waited for behind the directory


def test_a_service_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for service in (None, Node, object()):
        with pytest.raises(SystemExit) as caught:
            run(service, **Node(tmp_path).settings)  # type: ignore[arg-type]
        assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_thread_that_cannot_be_started_is_one_line(
    main_node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(SystemExit) as caught:
        run_node(main_node)
    monkeypatch.undo()
    assert caught.value.code == 1
    assert capsys.readouterr().err == (
        "container.run: error: the thread of the container cannot be started: can't start new thread\n"
    )
    assert main_node.header()["activity_timestamp"] == TERMINATED


def test_the_traceback_of_a_failed_start_is_logged_for_whoever_asks(
    main_node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    main_node.driver.fail_next_add("counter", text="no room")
    with caplog.at_level("DEBUG", "container"), pytest.raises(SystemExit):
        run_node(main_node)
    assert "Traceback (most recent call last):" in caplog.text
