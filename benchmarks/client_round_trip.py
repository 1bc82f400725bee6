"""Round trips of the client beside Java's, against the same node and the same echo service in Java, in one run.

Three peers: Java's client; ours with a listener in Python; ours with the listener and loop in Cython of
``container.client.round_trips``, which ``aeron-cluster client bench`` uses. All have the same loop and idle strategy,
use the node's media driver, so the same term and socket buffers, and check each answer byte for byte. In each round
every peer has its turn, in an order that the seed shuffles; the first round warms up and does not count. Prints medians
of the rounds and their ratios to Java's (above 1 is better for throughput, below 1 for the rest), and one JSON line.
CPU is that of the thread which sends and polls.

Arguments: rounds (default 7), messages of a turn with a window (20000), of a turn one by one (3000), seed (1).
"""

from __future__ import annotations

import json
import random
import statistics
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.client.round_trips import RoundTrips, percentile_us
from container.testing.processes.java_tools import compile_java, resolve_jar
from container.testing.processes.node import Node
from container.testing.processes.process import Process
from container.transport.idle_strategy import BackoffIdleStrategy

JAVA_SOURCES = Path(__file__).resolve().parents[1] / "tests" / "java"
LENGTH = 32
WINDOW = 256
LIMIT_S = 120.0
SLICE_S = 1.0  # after which the peers that rest are polled
REST_S = 0.02
JAVA = "java"

type Result = dict[str, float]
type Rest = Callable[[], None]

_NUMBER = struct.Struct("<q")
_FILLERS = [bytes((number + index) % 256 for index in range(_NUMBER.size, LENGTH)) for number in range(256)]


class Turn:
    """Measures one turn, from now until :meth:`result`."""

    def __init__(self) -> None:
        self.begin_ns = time.perf_counter_ns()
        self._begin_cpu_ns = time.thread_time_ns()

    def result(self, durations_ns: Callable[[], list[int]]) -> Result:
        """Its figures; the durations are read when all is measured."""
        seconds = (time.perf_counter_ns() - self.begin_ns) / 1e9
        cpu_seconds = (time.thread_time_ns() - self._begin_cpu_ns) / 1e9
        ordered = sorted(durations_ns())
        return {
            "per_second": len(ordered) / seconds,
            "p50_us": percentile_us(ordered, 50),
            "p99_us": percentile_us(ordered, 99),
            "cpu_s_per_million": cpu_seconds / len(ordered) * 1e6,
        }

    def check(self, received: int, messages: int) -> None:
        """Raises TimeoutError when the turn lasts too long."""
        if time.perf_counter_ns() - self.begin_ns > LIMIT_S * 1e9:
            raise TimeoutError(f"{received} of {messages} echoes came within {LIMIT_S:g} s")


def connect(node: Node, ipc: bool, egress_stream_id: int, listener: Any) -> AeronCluster:
    """A client of ours, on a stream of its own: over IPC peers would hear, and hold up, each other's answers."""
    properties = node.client_properties(ipc=ipc)
    return AeronCluster.connect(
        aeron_dir=properties["aeron.dir"],
        ingress_channel=properties["aeron.cluster.ingress.channel"],
        ingress_endpoints=properties.get("aeron.cluster.ingress.endpoints"),
        egress_channel=properties["aeron.cluster.egress.channel"],
        egress_stream_id=egress_stream_id,
        message_timeout=LIMIT_S,
        listener=listener,
        idle_strategy=BackoffIdleStrategy(10, 20, 1_000, 50_000),  # as the Java client
    )


class PythonPeer(EgressListener):
    """Our client with loop and listener in Python, as a user writes them."""

    def __init__(self, node: Node, ipc: bool) -> None:
        self._cluster = connect(node, ipc, 302, self)
        self._under_way: deque[bytes] = deque()
        self._times_ns: list[int] = []
        self._received = 0

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        now_ns = time.perf_counter_ns()
        if buffer != self._under_way.popleft():
            raise ValueError(f"{bytes(buffer)!r} is not the echo of message {self._received}")
        self._times_ns[self._received] = now_ns - self._times_ns[self._received]
        self._received += 1

    def run(self, messages: int, window: int, rest: Rest) -> Result:
        """One turn."""
        cluster, under_way = self._cluster, self._under_way
        times_ns = self._times_ns = [0] * messages
        sent = self._received = 0
        turn = Turn()
        next_rest_ns = turn.begin_ns + int(SLICE_S * 1e9)
        while self._received < messages:
            work_count = cluster.poll_egress()
            while sent < messages and len(under_way) < window:
                message = _NUMBER.pack(sent) + _FILLERS[sent & 255]
                times_ns[sent] = time.perf_counter_ns()
                if cluster.offer(message) <= 0:
                    break
                under_way.append(message)
                sent += 1
                work_count += 1
            cluster.idle(work_count)
            if time.perf_counter_ns() > next_rest_ns:
                turn.check(self._received, messages)
                rest()
                next_rest_ns = time.perf_counter_ns() + int(SLICE_S * 1e9)
        return turn.result(times_ns.copy)

    def rest(self) -> None:
        """Another has its turn: hold the session."""
        self._cluster.poll_egress()

    def close(self) -> None:
        """End the session."""
        self._cluster.close()


class CythonPeer:
    """Our client with loop and listener in Cython."""

    def __init__(self, node: Node, ipc: bool) -> None:
        self._trips = RoundTrips(LENGTH)
        self._cluster = connect(node, ipc, 402, self._trips)

    def run(self, messages: int, window: int, rest: Rest) -> Result:
        """One turn."""
        trips = self._trips
        trips.begin(messages, window)
        turn = Turn()
        while not trips.run(self._cluster, SLICE_S):
            turn.check(trips.received, messages)
            rest()
        result = turn.result(trips.durations_ns)
        if trips.others:
            raise ValueError(f"{trips.others} messages came that are not the echo that was due")
        return result

    def rest(self) -> None:
        """Another has its turn: hold the session."""
        self._cluster.poll_egress()

    def close(self) -> None:
        """End the session."""
        self._cluster.close()


class JavaPeer:
    """Java's client, as a process that reads each turn from a file, and holds its session by itself."""

    def __init__(self, node: Node, ipc: bool, orders: Path) -> None:
        self._reader = ThreadPoolExecutor(1)
        self._orders = orders.open("a")
        self._process: Process = node.start_java_client(
            "container.tests.RoundTripClient",
            [str(orders)],
            ipc=ipc,
            properties={"aeron.cluster.egress.stream.id": "202"},
            name="java-client",
        )
        if (line := self._read_line(lambda: None)) != "READY":
            raise RuntimeError(f"the Java client said {line!r}\n{self._process.tail()}")

    def run(self, messages: int, window: int, rest: Rest) -> Result:
        """One turn."""
        self._orders.write(f"{messages} {LENGTH} {window}\n")
        self._orders.flush()
        result: Result = json.loads(self._read_line(rest))
        return result

    def _read_line(self, rest: Rest) -> str:
        reading = self._reader.submit(self._process.read_line, LIMIT_S)
        while True:
            done, _ = wait([reading], timeout=REST_S)
            if done:
                return reading.result()
            rest()

    def rest(self) -> None:
        """Another has its turn."""

    def close(self) -> None:
        """End the process."""
        self._reader.shutdown()
        self._orders.close()
        self._process.close()


type Peer = PythonPeer | CythonPeer | JavaPeer


def measure(
    peers: dict[str, Peer], rounds: int, messages: int, window: int, shuffler: random.Random
) -> dict[str, Result]:
    """The medians over the rounds of each peer."""
    results: dict[str, list[Result]] = {name: [] for name in peers}
    order = list(peers)

    def rest() -> None:
        for peer in peers.values():
            peer.rest()

    for number in range(-1, rounds):
        shuffler.shuffle(order)
        for name in order:
            result = peers[name].run(messages, window, rest)
            if number >= 0:
                results[name].append(result)
    return {
        name: {key: statistics.median(result[key] for result in of_peer) for key in of_peer[0]}
        for name, of_peer in results.items()
    }


def compare(
    node: Node, ipc: bool, rounds: int, sizes: Sequence[tuple[int, int]], shuffler: random.Random, directory: Path
) -> dict[str, Any]:
    """All peers over one medium, with each number of messages and window of ``sizes``: medians and ratios."""
    medium = "ipc" if ipc else "udp"
    peers: dict[str, Peer] = {JAVA: JavaPeer(node, ipc, directory / f"orders-{medium}")}
    try:
        peers["python"] = PythonPeer(node, ipc)
        peers["cython"] = CythonPeer(node, ipc)
        found = {}
        for messages, window in sizes:
            medians = measure(peers, rounds, messages, window, shuffler)
            ratios = {
                name: {key: value / medians[JAVA][key] for key, value in of_peer.items()}
                for name, of_peer in medians.items()
                if name != JAVA
            }
            found[f"{medium}_window_{window}"] = {"medians": medians, "ratios": ratios}
            show(f"{medium}, window {window}", medians, ratios)
        return found
    finally:
        for peer in peers.values():
            peer.close()


def show(title: str, medians: dict[str, Result], ratios: dict[str, Result]) -> None:
    """Print one table."""
    columns = [*medians, *(f"{name}/{JAVA}" for name in ratios)]
    print(f"{title:<20}" + "".join(f"{column:>14}" for column in columns))
    for key in medians[JAVA]:
        values = "".join(f"{of_peer[key]:14,.2f}" for of_peer in medians.values())
        print(f"  {key:<18}" + values + "".join(f"{of_peer[key]:14.2f}" for of_peer in ratios.values()))


def main(rounds: int = 7, messages: int = 20_000, single: int = 3_000, seed: int = 1) -> None:
    """Start node and service, compare over IPC and UDP, print."""
    shuffler = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        classes = compile_java(sorted(JAVA_SOURCES.glob("*.java")), Path(directory, "classes"), [resolve_jar()])
        with Node(class_path=[classes], idle_strategy="container.tests.ShortParkIdleStrategy") as node:
            node.start().await_started()
            node.start_java_service("container.tests.EchoService")
            node.await_leader()
            found: dict[str, Any] = {"rounds": rounds, "seed": seed}
            for ipc in (True, False):
                found |= compare(node, ipc, rounds, [(messages, WINDOW), (single, 1)], shuffler, Path(directory))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
