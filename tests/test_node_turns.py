"""Turns of a whole node on one thread, which is this one: what they do for a message, and what empty ones cost."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType

import pytest

import container
from container.aeron import MediaDriver
from container.agent.composite_agent import CompositeAgent
from container.api import ClientSession, Cluster, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.node.cluster_node import ClusterNode
from container.node.shared_thread import SharedThread
from container.testing.memory.transport_probe import result_name
from container.testing.processes.endpoints import PortReservation
from tests.cython_module import compile_module
from tests.limits import LIMIT_S
from tests.services import Echo

MESSAGES = 20
TURNS = 200
PAUSE_NS = 20_000
BURST = 400

type Launch = Callable[[container.ClusteredService], HandDriven]


class Answers(EgressListener):
    """Counts what comes back."""

    def __init__(self) -> None:
        self.count = 0

    def on_message(self, *_arguments: object) -> None:
        self.count += 1


class Offering(container.ClusteredService):
    """Tries once to answer each message, and once to send one to the cluster."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()

    def on_start(self, cluster: Cluster, snapshot_image: object) -> None:
        self.cluster = cluster

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: object
    ) -> None:
        if session is not None:
            self._count("session", session.offer(bytes(1024)))
            self._count("cluster", self.cluster.offer(bytes(100)))

    def _count(self, kind: str, result: int) -> None:
        self.results[f"{kind} {'sent' if result > 0 else result_name(result)}"] += 1


class HandDriven:
    """A node whose thread is never started: its turns are the caller's."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.agent: CompositeAgent = next(iter(node._threads)).agent

    def until(self, is_reached: Callable[[], bool], what: str) -> int:
        """Take turns until then, and return how many."""
        deadline = time.monotonic() + LIMIT_S
        turns = 0
        while not is_reached():
            assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
            self.agent.do_work()
            turns += 1
        return turns

    def connect(self, listener: EgressListener) -> AeronCluster:
        """A client over IPC, while the node has its turns."""
        found: list[AeronCluster] = []
        connecting = AeronCluster.async_connect(
            aeron_dir=self.node.aeron_dir, ingress_channel="aeron:ipc", egress_channel="aeron:ipc", listener=listener
        )

        def is_connected() -> bool:
            client = connecting.poll()
            if client is not None:
                found.append(client)
            return client is not None

        self.until(is_connected, "a client that is connected")
        return found[0]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    def start(thread: SharedThread) -> None:
        thread.agent.on_start()

    def await_leader(node: ClusterNode, _timeout: float | None) -> None:
        HandDriven(node).until(lambda: node._module().context.agent.has_leader, "a node that leads")

    monkeypatch.setattr(SharedThread, "start", start)
    monkeypatch.setattr(ClusterNode, "_await_leader", await_leader)
    with ExitStack() as stack:
        ports = stack.enter_context(closing(PortReservation()))

        def launch(service: container.ClusteredService) -> HandDriven:
            launched = container.launch_node(service, host="127.0.0.1", port=ports.take_row(5))
            return HandDriven(stack.enter_context(launched))

        yield launch


@pytest.fixture
def node(launch: Launch) -> HandDriven:
    return launch(Echo())


def test_a_message_over_ipc_is_recorded_committed_and_answered_in_one_turn(node: HandDriven) -> None:
    answers = Answers()
    with node.connect(answers) as client:
        node.until(lambda: client.offer(b"first") > 0, "a message that was sent")
        node.until(lambda: client.poll_egress() > 0, "its answer")
        for _ in range(MESSAGES):
            assert client.offer(b"message") > 0
            node.agent.do_work()
            client.poll_egress()
    assert answers.count == 1 + MESSAGES


def test_a_turn_of_many_messages_refuses_none_of_a_service_that_tries_once(launch: Launch) -> None:
    service = Offering()
    node = launch(service)
    answers = Answers()
    with node.connect(answers) as client:
        offered = 0
        while offered < BURST and client.offer(b"message") > 0:
            offered += 1
        node.until(lambda: client.poll_egress(1_000) >= 0 and answers.count >= BURST, "all answers")
    assert offered == BURST
    assert service.results == {"session sent": BURST, "cluster sent": BURST}


def test_an_empty_turn_calls_nothing_in_python(node: HandDriven) -> None:
    names: list[str] = []
    turns_with_calls = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    for _ in range(TURNS):
        before = len(names)
        sys.setprofile(profile)
        node.agent.do_work()
        sys.setprofile(None)
        turns_with_calls += len(names) > before
    # Mark files are refreshed each second, and the first turns end the start.
    assert turns_with_calls <= TURNS // 20, names


def test_a_driver_without_work_rests_between_two_turns(tmp_path: Path) -> None:
    source = """
from container.aeron.media_driver cimport MediaDriver

def count(MediaDriver driver not None):
    return driver._keepalive.turns
"""
    turns = compile_module("driver_turns", source, tmp_path)
    errors: list[BaseException] = []
    with MediaDriver.launch_embedded(threading="INVOKER") as driver:
        agent = CompositeAgent(driver, errors.append, lambda: None, lambda: None)
        deadline = time.monotonic() + LIMIT_S
        while agent.do_work() > 0:
            assert time.monotonic() < deadline, f"the driver had work for {LIMIT_S} s"
        before, begin = turns.count(driver), time.monotonic_ns()
        for _ in range(TURNS * 50):
            agent.do_work()
        rested = turns.count(driver) - before
        most = (time.monotonic_ns() - begin) // PAUSE_NS
        agent.close()
    assert errors == []
    # Once a second it has work, and then turns until that is done.
    assert 1 <= rested <= most + 10 + most * PAUSE_NS // 100_000_000
