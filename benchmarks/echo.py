"""Echo through one Java node: throughput, round trips, CPU time and memory of the service, beside Java's container.

The load is the same for all peers: a client in Java (benchmarks/java/EchoLoad.java) that checks each echo byte by byte.
In each round every peer gets a fresh node, all agents of which idle as the row says; the order of peers is shuffled.
Processor time is that of the messages alone: sessions are open before, and the load's sums are done after.
The peer ``bare`` is not a container but a floor that no service in ours can fall below (benchmarks/bare_echo.pyx).
``busy`` is the share of one core that the service's process took, ``machine`` the share of all cores that were busy,
``others`` what of that neither the node nor the service nor the load took.
aeron-go's container joins by ``--aeron-go latest``, any other by ``--peer NAME=COMMAND``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from benchmarks._harness import (
    ROOT,
    Report,
    RoundFailed,
    busy_seconds,
    cpu_seconds,
    median_of,
    resident_mib,
    run_rounds,
)
from benchmarks._peers import (
    LIMIT_S,
    STANDARD_IDLE,
    Start,
    add_peer_options,
    cython_service,
    java_service,
    other_peers,
    python_service,
    running,
)
from benchmarks._verdicts import Goal, Result
from container.testing.processes.node import Node
from container.testing.processes.process import Process

METRICS = {
    "per_second": "9,.0f",
    "p50_us": "8,.1f",
    "p99_us": "9,.1f",
    "p999_us": "9,.1f",
    "cpu_s_per_million": "6.3f",
    "busy": "4.2f",
    "machine": "4.2f",
    "others": "4.2f",
    "resident_mib": "6.1f",
}
PEERS: dict[str, Start] = {
    "java": java_service("container.tests.EchoService"),
    "python": python_service("examples.echo_service:EchoService"),
    "cython": cython_service(ROOT / "examples" / "cython_echo.pyx", "EchoHandler"),
}
BARE = "bare"
"""The peer whose echoes go from Aeron's C library straight back to it, past the container's code."""
ALL_PEERS = PEERS | {BARE: cython_service(ROOT / "benchmarks" / "bare_echo.pyx", "BareEchoHandler")}


class Load(NamedTuple):
    """One line of the table."""

    idle: str
    medium: str
    window: int
    length: int
    sessions: int
    messages: int

    def __str__(self) -> str:
        sessions = f", {self.sessions} sessions" if self.sessions > 1 else ""
        return f"{self.medium}, {self.idle}, window {self.window}, {self.length} B{sessions}"


def loads(messages: int) -> list[Load]:
    """All lines; one in flight shows durations, a window throughput.

    Each has as many messages as take some tenths of a second, and no more than some 100 MB that fill fresh memory.
    """

    def line(idle: str, medium: str, window: int, length: int, sessions: int, share: float) -> Load:
        return Load(idle, medium, window, length, sessions, max(int(messages * share), 100))

    found = []
    for idle in (STANDARD_IDLE, "backoff 1ms", "yield"):
        found += [line(idle, "udp", 1, 32, 1, 1 / 40), line(idle, "udp", 256, 32, 1, 1)]
        if idle == STANDARD_IDLE:
            found += [
                line(idle, "udp", 4096, 32, 1, 2),
                line(idle, "udp", 256, 1024, 1, 1 / 4),
                line(idle, "udp", 256, 16 * 1024, 1, 1 / 40),
                line(idle, "udp", 256, 32, 100, 1 / 4),
                line(idle, "ipc", 1, 32, 1, 1 / 40),
                line(idle, "ipc", 256, 32, 1, 5 / 2),
                line(idle, "ipc", 4096, 32, 1, 5),
                line(idle, "ipc", 256, 1024, 1, 1 / 4),
                line(idle, "ipc", 256, 16 * 1024, 1, 1 / 40),
                line(idle, "ipc", 256, 32, 100, 3 / 2),
            ]
    return found


def grouped(chosen: Iterable[Load]) -> list[list[Load]]:
    """The loads that one node and one client can run, one after the other."""
    groups: dict[tuple[str, str], list[Load]] = {}
    for load in chosen:
        groups.setdefault((load.idle, load.medium), []).append(load)
    return list(groups.values())


def goals(load: Load, others: Sequence[str]) -> list[Goal]:
    """As fast as the better peer in throughput and durations; less processor time and memory than Java's."""
    found = []
    for ours in ("python", "cython"):
        found.append(Goal(ours, "per_second", tuple(others), at_least=1.0))
        if load.window == 1:
            found += [Goal(ours, metric, tuple(others), at_most=1.0) for metric in ("p50_us", "p99_us")]
        else:
            limit = 0.4 if ours == "cython" else 0.6 if load.window == 256 else 0.8
            found.append(Goal(ours, "cpu_s_per_million", ("java",), at_most=limit))
        found.append(Goal(ours, "resident_mib", ("java",), at_most=1 / 3))
    return found


class Usage(NamedTuple):
    """Seconds of processor time."""

    service: float
    run: float
    """The service, the node and the load together."""
    machine: float
    """Everything that runs on the machine."""
    cores: float
    """The time available."""

    @classmethod
    def now(cls, node: Node, service: Process) -> Usage:
        """The processor time taken so far."""
        return cls(
            cpu_seconds(service.pid), sum(cpu_seconds(process.pid) for process in node.processes), *busy_seconds()
        )


class Meter(AbstractContextManager["Meter"]):
    """Measures the processor time taken while its block runs."""

    spent: Usage

    def __init__(self, node: Node, service: Process) -> None:
        self._node, self._service = node, service

    def __enter__(self) -> Meter:
        self._before = Usage.now(self._node, self._service)
        return self

    def __exit__(self, *error: object) -> None:
        after = Usage.now(self._node, self._service)
        self.spent = Usage(*(now - then for now, then in zip(after, self._before, strict=True)))


MANY = 100
"""Sessions over IPC above which their log buffers are the shortest."""


OPENING_S = 0.2
"""How long each session may take to open: with thousands a round through all of them takes long."""


class LoadClient:
    """Java's client on a node."""

    def __init__(self, node: Node, medium: str, sessions: int = 1) -> None:
        # Each session has streams of its own. Their terms are short: while a driver makes long ones for many sessions,
        # keepalives wait in it until the first of them time out.
        channels = node.client_properties(ipc=medium == "ipc")
        egress = channels["aeron.cluster.egress.channel"]
        properties = {"aeron.cluster.egress.channel": f"{egress}{'|' if '?' in egress else '?'}term-length=1m"}
        if medium == "udp":
            properties["aeron.cluster.ingress.channel"] = "aeron:udp?term-length=1m"
        if sessions > MANY:
            properties = {f"aeron.cluster.{way}.channel": "aeron:ipc?term-length=64k" for way in ("ingress", "egress")}
        self._process: Process = node.start_java_client(
            "container.benchmarks.EchoLoad", ipc=medium == "ipc", properties=properties, name="load"
        )
        self._expect("READY")

    def _expect(self, word: str, limit_s: float = LIMIT_S) -> None:
        if (line := self._process.read_line(limit_s)) != word:
            raise RoundFailed(f"the load said {line!r} in place of {word!r}\n{self._process.tail()}")

    def run(self, load: Load, during: AbstractContextManager[object] | None = None) -> dict[str, Any]:
        """Sends one load and returns what came of it; each echo was checked.

        The messages, and nothing else of the load's, are sent and answered within ``during``.
        """
        self._process.write_line(f"{load.sessions} {load.messages} {load.length} {load.window}")
        self._expect("OPEN", LIMIT_S + OPENING_S * load.sessions)
        with during or nullcontext():
            self._process.write_line("GO")
            self._expect("DONE")
        found: dict[str, Any] = json.loads(self._process.read_line(LIMIT_S))
        if found.pop("mismatches"):
            raise RoundFailed(f"an echo of {load} was not what had been sent")
        return found

    def close(self) -> None:
        """End the client's process; its sessions time out."""
        self._process.close()


def run_once(client: LoadClient, load: Load, node: Node, service: Process) -> dict[str, Any]:
    """One load, once: what the load's client says of it, and what was taken meanwhile."""
    result = client.run(load, meter := Meter(node, service))
    spent = meter.spent
    result["cpu_s_per_million"] = spent.service / load.messages * 1e6
    result["busy"] = spent.service / load.messages * result["per_second"]
    result["machine"] = spent.machine / spent.cores if spent.cores else 0.0
    result["others"] = max(spent.machine - spent.run, 0.0) / spent.cores if spent.cores else 0.0
    result["resident_mib"] = resident_mib(service.pid)
    return result


def middle_of(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of each metric, and all histograms together."""
    histogram = [bucket for result in results for bucket in result["histogram"]]
    numbers = [{metric: value for metric, value in result.items() if metric != "histogram"} for result in results]
    return {**median_of(numbers), "histogram": histogram}


def measure(
    start: Start, group: Sequence[Load], options: argparse.Namespace, found: dict[Load, list[dict[str, Any]]]
) -> Result:
    """One round of one peer: a fresh node, then every load of the group some times, appended to ``found``."""
    idle, medium = group[0].idle, group[0].medium
    with running(start, idle) as (node, service):
        client = LoadClient(node, medium)
        client.run(Load(idle, medium, 256, 32, 1, options.warm_up))
        results = {
            load: middle_of([run_once(client, load, node, service) for _ in range(options.repeats)]) for load in group
        }
    for load, result in results.items():
        found.setdefault(load, []).append(result)
    return {"loads": len(results)}


def compare(
    report: Report,
    peers: Mapping[str, Start],
    group: Sequence[Load],
    options: argparse.Namespace,
    others: Sequence[str],
) -> None:
    """Run all rounds of a group of loads, which share node and client, and add a line for each load."""
    found: dict[str, dict[Load, list[dict[str, Any]]]] = {name: {} for name in peers}
    _, failures = run_rounds(
        {name: partial(measure, start, group, options, found[name]) for name, start in peers.items()},
        options.rounds,
        options.seed,
    )
    for name, texts in failures.items():
        report.failures.setdefault(name, []).extend(texts)
    for load in group:
        add(report, load, {name: of_peer.get(load, []) for name, of_peer in found.items()}, others)


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """How long loads are, how often they run on a node, and in which order peers do."""
    parser.add_argument("--messages", type=int, default=200_000, help="at window 256 over UDP; others in proportion")
    parser.add_argument("--repeats", type=int, default=3, help="of a load on one node; the round has their median")
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="messages before the first load of a node")
    parser.add_argument("--seed", type=int, default=1, help="of the order of peers")


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench echo", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    add_load_options(parser)
    parser.add_argument("--only", default="", help="loads whose name contains this, such as 'ipc'")
    parser.add_argument("--peers", default=",".join(ALL_PEERS), help="names, separated by commas")
    add_peer_options(parser)
    options = parser.parse_args(arguments)
    peers = {name: ALL_PEERS[name] for name in options.peers.split(",") if name} | other_peers(options)
    others = [name for name in peers if name not in ("python", "cython", BARE)]

    report = Report("echo", METRICS)
    for group in grouped(load for load in loads(options.messages) if options.only in str(load)):
        compare(report, peers, group, options, others)
    return report.finish()


def add(report: Report, load: Load, results: dict[str, list[dict[str, Any]]], others: Sequence[str]) -> None:
    """A line of the table, and the histograms of all its rounds together."""
    histograms: dict[str, list[tuple[float, float]]] = {}
    for name, rounds in results.items():
        counts: dict[float, float] = {}
        for result in rounds:
            for at, count in result.pop("histogram"):
                counts[at] = counts.get(at, 0) + count
        if counts:
            histograms[name] = sorted(counts.items())
    if histograms:
        report.histograms[str(load)] = histograms
    report.add(str(load), results, goals(load, others))


if __name__ == "__main__":
    main()
