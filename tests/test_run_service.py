"""A container as a main program: how it ends on signals, on termination and on failures, and with which code."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from container.errors import RegistrationError
from container.idle_strategy import NoOpIdleStrategy
from container.run_service import run
from tests.node import TERMINATED, TICK_NS, Node, SecondCall

LIMIT_S = 20.0


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


def test_run_raises_what_keeps_the_container_from_being_made(main_node: Node) -> None:
    before = signal.getsignal(signal.SIGTERM)
    main_node.driver.fail_next_add("counter", text="no room")
    with pytest.raises(RegistrationError, match="no room"):
        run_node(main_node)
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
