"""Three members on one machine, native beside Java's: rate, round trips, processor time, memory, time without a leader.

Java's members have Java's driver, archive, consensus module and container with an echo service in Java; ours have the
C driver, and the native archive, consensus module and container with the echo service in Python, and in Cython. Idle
strategies, buffers and time-outs are equal, and the load is the same, a client in Java on the leader's driver
(benchmarks/java/EchoLoad.java). Processor time and memory are those of all processes of the three members. Then the
leader is killed (SIGKILL), all its processes at once, and the time until another one leads is taken. Three members on
two cores measure the scheduler as well: p99 is reported, and has no goal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks._harness import CACHE, ROOT, Report, RoundFailed, run_rounds
from benchmarks._peers import IDLES, LIMIT_S, STANDARD_IDLE, TERMS, java_classes
from benchmarks._verdicts import Goal, Result
from benchmarks.echo import Load, LoadClient, middle_of
from benchmarks.node import run_once
from container.errors import ContainerError
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import JavaService, LocalCluster, LocalMember, Service
from container.testing.processes.process import Process
from tests.cython_module import compile_cython

METRICS = {
    "leaderless_s": "6.2f",
    "per_second": "9,.0f",
    "p50_us": "8,.1f",
    "p99_us": "9,.1f",
    "cpu_s_per_million": "7.3f",
    "resident_mib": "7.1f",
}
JAVA, PYTHON, CYTHON = "java", "python", "cython"
PEERS = (JAVA, PYTHON, CYTHON)
PROPERTIES = {
    **TERMS,
    "aeron.cluster.session.timeout": "600s",
    "aeron.client.liveness.timeout": "20s",
    "aeron.publication.unblock.timeout": "30s",
    "aeron.driver.timeout": "20000",
}


def loads(messages: int) -> list[Load]:
    """One in flight shows durations, a window throughput."""
    return [
        Load(STANDARD_IDLE, "udp", window, length, 1, max(int(messages * share), 100))
        for window, length, share in ((1, 32, 1 / 40), (256, 32, 1.0), (4096, 32, 2.0), (256, 1024, 1 / 4))
    ]


def services(peer: str) -> list[Service | JavaService]:
    """The echo service of a peer."""
    idle = IDLES[STANDARD_IDLE]
    if peer == JAVA:
        return [JavaService("container.tests.EchoService", {"aeron.cluster.idle.strategy": idle.java})]
    name = "examples.echo_service:EchoService"
    if peer == CYTHON:
        name = f"{compile_cython(ROOT / 'examples' / 'cython_echo.pyx', CACHE).name.partition('.')[0]}:EchoHandler"
    environment = {
        "AERON_CLUSTER_IDLE_STRATEGY": idle.python,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{CACHE}",
    }
    return [Service([sys.executable, "-m", "container", "run", name], environment)]


@contextmanager
def running(peer: str) -> Iterator[tuple[LocalCluster, LocalMember]]:
    """Three members of a kind, and the one that leads."""
    kind: ArchiveKind | None = None if peer == JAVA else "native"
    cluster = LocalCluster(
        services(peer),
        properties=PROPERTIES,
        class_path=[java_classes()],
        idle_strategy=IDLES[STANDARD_IDLE].java,
        drivers=kind,
        archives=kind,
        consensus_modules=kind,
    )
    with cluster:
        try:
            yield cluster, cluster.start().await_ready(LIMIT_S)
        except (ContainerError, TimeoutError) as error:
            raise RoundFailed(str(error)) from error


def processes(cluster: LocalCluster) -> list[Process]:
    """All of the members, each once."""
    found: dict[int, Process] = {}
    for member in cluster.members:
        for process in (*member.node.processes, *member.services):
            found[process.pid] = process
    return list(found.values())


def measure(peer: str, group: Sequence[Load], options: argparse.Namespace, found: dict[Load, list[Result]]) -> Result:
    """One round of one peer: fresh members, every load some times, appended to ``found``, and then a kill."""
    with running(peer) as (cluster, leader):
        pids = [process.pid for process in processes(cluster)]
        client = LoadClient(leader.node, "udp")
        client.run(Load(STANDARD_IDLE, "udp", 256, 32, 1, options.warm_up))
        for load in group:
            result = middle_of([run_once(client, load, leader.node, pids) for _ in range(options.repeats)])
            result.pop("histogram")
            found.setdefault(load, []).append(result)
        client.close()
        begin = time.monotonic()
        leader.kill()
        cluster.await_leader(LIMIT_S, other_than=leader)
        return {"leaderless_s": time.monotonic() - begin}


def goals(load: Load) -> list[Goal]:
    """Beside Java's members."""
    found = []
    for ours in (PYTHON, CYTHON):
        found += [Goal(ours, "resident_mib", (JAVA,), at_most=0.4)]
        if load.window == 1:
            found += [Goal(ours, "p50_us", (JAVA,), at_most=1.0)]
        else:
            found += [
                Goal(ours, "per_second", (JAVA,), at_least=1.0),
                Goal(ours, "cpu_s_per_million", (JAVA,), at_most=0.6),
            ]
    return found


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=100_000, help="at window 256; others in proportion")
    parser.add_argument("--repeats", type=int, default=3, help="of a load in a round, which has their median")
    parser.add_argument("--warm-up", type=int, default=200_000, help="messages before the first load")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="of the order of peers")
    options = parser.parse_args(arguments)
    peers = [peer for peer in PEERS if peer in options.peers.split(",")]
    group = loads(options.messages)
    found: Mapping[str, dict[Load, list[Result]]] = {peer: {} for peer in peers}
    kills, failures = run_rounds(
        {peer: partial(measure, peer, group, options, found[peer]) for peer in peers}, options.rounds, options.seed
    )
    report = Report("cluster", METRICS, failures=failures)
    for load in group:
        results: dict[str, Any] = {peer: found[peer].get(load, []) for peer in peers}
        report.add(f"three members: {load}", results, goals(load))
    report.add(
        "the leader is killed", kills, [Goal(ours, "leaderless_s", (JAVA,), at_most=1.0) for ours in (PYTHON, CYTHON)]
    )
    return report.finish()


if __name__ == "__main__":
    main()
