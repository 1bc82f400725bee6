"""Many sessions of which some come and go all the time, native node beside Java's: connects, round trips, a snapshot.

Each session has streams of its own over IPC, as those of clients in processes of their own have: whatever comes and
goes is an event of the driver for all its clients. Meanwhile another session exchanges messages, one at a time, and a
snapshot is taken. The result is the longest wait of any client. The load is a client in Python; the container and its
service are ours in all nodes.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from benchmarks._harness import Report, RoundFailed, run_rounds
from benchmarks._verdicts import Goal, Result
from benchmarks.node import DEDICATED, JAVA, PEERS, SHARED, running
from container.aeron import AeronClient
from container.client import AeronCluster
from container.client.aeron_cluster import AsyncConnect
from container.client.round_trips import percentile_us
from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.operate.cluster_control import ClusterControl
from container.operate.driver_counters import TOGGLES
from container.testing.processes.node import Node
from tests.client_world import Counting

METRICS = {
    "snapshot_ms": "9,.1f",
    "snapshot_connects": "5,.0f",
    "connect_p50_ms": "8,.1f",
    "connect_max_ms": "9,.1f",
    "trip_p50_us": "9,.1f",
    "trip_max_ms": "9,.1f",
    "unanswered": "4,.0f",
    "per_second": "6.1f",
}
IPC = "aeron:ipc?term-length=64k"
LIMIT_S = 120.0
RESEND_NS = 5_000_000_000
MAX_CONNECTING = 32
_FIRST_STREAM_ID = 10_000
_MESSAGE = bytes(32)


class Session:
    """One that connects, or has connected."""

    client: AeronCluster

    def __init__(self, aeron: AeronClient, stream_id: int) -> None:
        self.answers = Counting()
        self.sent_ns = self.resent = 0
        self.begin_ns = time.perf_counter_ns()
        self.connecting: AsyncConnect | None = AeronCluster.async_connect(
            client=aeron,
            owns_client=False,
            ingress_channel=IPC,
            egress_channel=IPC,
            egress_stream_id=stream_id,
            message_timeout=LIMIT_S,
            listener=self.answers,
        )

    def has_answer(self) -> bool:
        """Connect, then send a message; whether its answer is there."""
        if self.connecting is not None:
            connected = self.connecting.poll()
            if connected is None:
                return False
            self.client, self.connecting = connected, None
            self._send()
        self.client.poll_egress()
        if not self.answers.count and time.perf_counter_ns() > self.sent_ns + RESEND_NS:
            self.resent += 1
            self._send()
        return self.answers.count > 0

    def _send(self) -> None:
        self.sent_ns = time.perf_counter_ns()
        self.client.send(_MESSAGE)


class Churn:
    """Sessions of one Aeron client, which a service that echoes answers. Use it as a context manager.

    Args:
        node: one that leads.
    """

    def __init__(self, node: Node) -> None:
        # Its conductor is a thread of the library's own: what is measured is what the node does.
        self._aeron = AeronClient(node.aeron_dir, "churn", use_invoker=False)
        self._control = ClusterControl(str(node.aeron_dir))
        counter = node.counter(CounterType.CONTROL_TOGGLE)
        assert counter is not None, "the node does not lead"
        self._toggle_id = counter.counter_id
        self._stream_id = _FIRST_STREAM_ID
        self._connecting: list[Session] = []
        self._sessions: deque[Session] = deque()
        self._connects_ns: list[int] = []
        self._unanswered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._control.close()
        self._aeron.close()

    def _begin(self) -> None:
        self._stream_id += 1
        self._connecting.append(Session(self._aeron, self._stream_id))

    def _turn(self) -> int:
        """Take each connect a step further, and look for answers; how many have connected."""
        waiting, connected = [], 0
        now_ns = time.perf_counter_ns()
        for session in self._connecting:
            if session.has_answer():
                connected += 1
                self._unanswered += session.resent
                self._connects_ns.append(time.perf_counter_ns() - session.begin_ns)
                self._sessions.append(session)
            elif now_ns - session.begin_ns > LIMIT_S * 1e9:
                raise RoundFailed(f"a session had no answer to its first message within {LIMIT_S:g} s")
            else:
                waiting.append(session)
        self._connecting = waiting
        for session in self._sessions:
            session.client.poll_egress()
        return connected

    def open(self, count: int) -> None:
        """Connect until there are so many sessions.

        Raises:
            RoundFailed: one took longer than the limit.
        """
        while len(self._sessions) < count:
            while len(self._connecting) < min(MAX_CONNECTING, count - len(self._sessions)):
                self._begin()
            self._turn()

    def run(self, connects: int, rate: float) -> Result:
        """Connect so many sessions, so many a second at most, and close another for each; ask for a snapshot half way.

        Raises:
            RoundFailed: the snapshot, or an answer, did not come within the limit.
        """
        self._connects_ns.clear()
        self._unanswered = 0
        trips_ns: list[int] = []
        stays = self._sessions.popleft()
        begin_s = time.monotonic()
        begun = connected = asked_at = done_at = 0
        asked_s = done_s = 0.0
        trip_ns = 0
        try:
            while connected < connects or not done_s:
                now_s = time.monotonic()
                if begun < connects and len(self._connecting) < MAX_CONNECTING and begun < (now_s - begin_s) * rate:
                    begun += 1
                    self._begin()
                for _ in range(new := self._turn()):
                    self._sessions.popleft().client.close()
                connected += new
                stays.client.poll_egress()
                now_ns = time.perf_counter_ns()
                if stays.answers.count > len(trips_ns) + 1:
                    trips_ns.append(now_ns - trip_ns)
                    trip_ns = 0
                if not trip_ns:
                    trip_ns = now_ns
                    stays.client.send(_MESSAGE)
                if not asked_s and connected >= connects // 2:
                    asked_s, asked_at = now_s, connected
                    self._ask_for_snapshot()
                elif asked_s and not done_s:
                    if self._control.value(self._toggle_id) == TOGGLES.index("NEUTRAL"):
                        done_s, done_at = time.monotonic(), connected
                    elif now_s - asked_s > LIMIT_S:
                        raise RoundFailed(f"no snapshot was taken within {LIMIT_S:g} s")
        finally:
            self._sessions.appendleft(stays)
        durations, trips = sorted(self._connects_ns), sorted(trips_ns)
        return {
            "snapshot_ms": (done_s - asked_s) * 1e3,
            "snapshot_connects": done_at - asked_at,
            "connect_p50_ms": percentile_us(durations, 50) / 1e3,
            "connect_max_ms": durations[-1] / 1e6,
            "trip_p50_us": percentile_us(trips, 50),
            "trip_max_ms": trips[-1] / 1e6,
            "unanswered": self._unanswered,
            "per_second": connects / (time.monotonic() - begin_s),
        }

    def _ask_for_snapshot(self) -> None:
        if not self._control.compare_and_set(
            self._toggle_id, CounterType.CONTROL_TOGGLE, TOGGLES.index("NEUTRAL"), TOGGLES.index("SNAPSHOT")
        ):
            raise RoundFailed("the node does not take a snapshot now")


def measure(peer: str, service: str, sessions: int, connects: int, rate: float) -> Result:
    """One round of one peer, on a fresh node."""
    try:
        with running(peer, service) as node, Churn(node) as churn:
            churn.open(sessions)
            return churn.run(connects, rate)
    except (ContainerError, TimeoutError) as error:
        raise RoundFailed(str(error)) from error


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench churn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", default="1000,3000", help="numbers of sessions, separated by commas")
    parser.add_argument("--connects", type=int, default=1_000, help="in a round, and as many closes")
    parser.add_argument("--rate", type=float, default=200.0, help="connects a second, at most")
    parser.add_argument("--service", default="python", help="language of the service: python or cython")
    parser.add_argument("--peers", default=";".join(PEERS), help="names, separated by semicolons")
    parser.add_argument("--seed", type=int, default=1, help="of the order of peers")
    options = parser.parse_args(arguments)
    report = Report("churn", METRICS)
    for sessions in map(int, options.sessions.split(",")):
        results, failures = run_rounds(
            {
                peer: partial(measure, peer, options.service, sessions, options.connects, options.rate)
                for peer in options.peers.split(";")
            },
            options.rounds,
            options.seed,
        )
        for peer, texts in failures.items():
            report.failures.setdefault(peer, []).extend(texts)
        goals = [
            Goal(ours, metric, (JAVA,), at_most=1.0)
            for ours in (SHARED, DEDICATED)
            for metric in ("snapshot_ms", "connect_max_ms", "trip_max_ms")
        ]
        report.add(f"{sessions:,} sessions, {options.rate:g} connects a second", results, goals)
    return report.finish()


if __name__ == "__main__":
    main()
