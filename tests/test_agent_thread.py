"""The agent's thread: bound to a processor, with a timer slack of its own; and what happens where that is refused."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from container.agent.agent_thread import pin_to_cpu, set_timer_slack, timer_slack
from container.errors import ConfigurationError
from container.testing.memory.recording_service import RecordingService
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.node import TICK_NS, Node

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has these settings")
ABSENT_CPU = 1023


def in_a_thread[T](action: Callable[[], T]) -> T:
    """What a new thread comes to."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LIMIT_S)
    if errors:
        raise errors[0]
    return results[0]


@ON_LINUX
def test_a_thread_has_a_timer_slack_of_its_own() -> None:
    def change() -> int | None:
        set_timer_slack(2_000)
        return timer_slack()

    before = timer_slack()
    assert in_a_thread(change) == 2_000
    assert timer_slack() == before != 2_000


@ON_LINUX
def test_a_thread_is_bound_to_a_processor() -> None:
    cpu = max(os.sched_getaffinity(0))

    def pin() -> set[int]:
        pin_to_cpu(cpu)
        return os.sched_getaffinity(0)

    before = os.sched_getaffinity(0)
    assert in_a_thread(pin) == {cpu}
    assert os.sched_getaffinity(0) == before


@ON_LINUX
def test_a_processor_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=rf"cpu_affinity={ABSENT_CPU}: .*; this process may use: \d"):
        in_a_thread(lambda: pin_to_cpu(ABSENT_CPU))


class ThreadService(RecordingService):
    """Notes how its thread is scheduled."""

    def on_start(self, *args: Any) -> None:
        self.scheduling = (os.sched_getaffinity(0), timer_slack())
        super().on_start(*args)


def run(node: Node, **settings: Any) -> None:
    """Run a container until its service has started."""
    node.cm.start()
    container = node.launch(**settings)
    try:
        wait_until(lambda: "on_start" in node.service.names() or None, LIMIT_S, "the start of the service")
    finally:
        container.close()


@ON_LINUX
def test_the_settings_reach_the_agents_thread(tmp_path: Path) -> None:
    node = Node(tmp_path, auto_advance_ns=TICK_NS)
    service = node.service = ThreadService()
    cpu = max(os.sched_getaffinity(0))
    run(node, cpu_affinity=cpu, timer_slack_ns="3us")
    assert service.scheduling == ({cpu}, 3_000)


@ON_LINUX
def test_a_service_runs_where_its_processor_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path, auto_advance_ns=TICK_NS)
    service = node.service = ThreadService()
    allowed = os.sched_getaffinity(0)
    errors: list[BaseException] = []
    run(node, cpu_affinity=ABSENT_CPU, error_handler=errors.append)
    assert service.scheduling[0] == allowed
    assert [type(error) for error in errors] == [ConfigurationError]
