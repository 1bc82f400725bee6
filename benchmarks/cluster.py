"""Three members on one machine, native beside Java's: rate, round trips, processor time, memory, time without a leader.

Each member is what its users run. Ours is the process of ``aeron-cluster node``: the C driver, the native archive,
consensus module and container, with the echo service in Python, and in Cython. Java's is its ClusteredMediaDriver in
one JVM, with driver and archive of a thread each, and beside it the JVM of its container with an echo service in Java;
both compile with C2. Idle strategies, buffers and time-outs are equal, and the load is the same, a client in Java on
the leader's driver (benchmarks/java/EchoLoad.java). Processor time, memory, threads and context switches are those of
all processes of the three members. Then the leader is killed (SIGKILL), all its processes at once, and the time until
another one leads is taken. Three members on two cores measure the scheduler as well: p99 is reported, and has no goal.

``--parts catch-up`` kills a follower, lets the others commit 2 GiB of log, and takes the time from the follower's start
until it has committed all of that: the start of its processes is part of it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks._harness import CACHE, ROOT, Report, RoundFailed, cpu_seconds, run_rounds
from benchmarks._peers import IDLES, LIMIT_S, STANDARD_IDLE, TERMS, java_classes
from benchmarks._verdicts import Goal, Result
from benchmarks.echo import Load, LoadClient, middle_of
from benchmarks.node import SERVICES, run_once
from benchmarks.profile import switches
from container.errors import ContainerError
from container.testing.processes.java_tools import JVM_FLAGS
from container.testing.processes.local_cluster import JavaService, LocalCluster, LocalMember
from container.testing.processes.native_cluster import NativeCluster
from container.testing.processes.process import Process

METRICS = {
    "leaderless_s": "6.2f",
    "per_second": "9,.0f",
    "p50_us": "8,.1f",
    "p99_us": "9,.1f",
    "cpu_s_per_million": "7.3f",
    "switches": "6.2f",
    "threads": "4.0f",
    "resident_mib": "7.1f",
    "catch_up_s": "7.2f",
    "catch_up_mb_s": "7.1f",
    "catch_up_cpu_s": "7.2f",
}
JAVA, PYTHON, CYTHON = "java", "python", "cython"
PEERS = (JAVA, PYTHON, CYTHON)
LOADS, CATCH_UP = "loads", "catch-up"
PARTS = (LOADS, CATCH_UP)
PROPERTIES = {
    **TERMS,
    "aeron.cluster.session.timeout": "600s",
    "aeron.client.liveness.timeout": "20s",
    "aeron.publication.unblock.timeout": "30s",
    "aeron.driver.timeout": "20000",
}
_MIB = 1024 * 1024
CATCH_UP_LENGTH = 1024
CATCH_UP_FRAME_LENGTH = CATCH_UP_LENGTH + 64
"""In the log: with Aeron's header, and with the session's."""
CATCH_UP_MESSAGES = 200_000
CATCH_UP_LIMIT_S = 600.0
_IDLE = {"idle_strategy": IDLES[STANDARD_IDLE].python}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "driver": {
        "term_buffer_length": 8 * _MIB,
        "ipc_term_buffer_length": 8 * _MIB,
        "client_liveness_timeout_ns": "20s",
        "image_liveness_timeout_ns": "2s",
        "publication_linger_timeout_ns": "1s",
        "timer_interval_ns": "500ms",
    },
    "archive": _IDLE,
    "consensus_module": {
        **_IDLE,
        "log_channel": TERMS["aeron.cluster.log.channel"],
        "max_concurrent_sessions": int(TERMS["aeron.cluster.max.sessions"]),
        "session_timeout_ns": "600s",
    },
    "container": _IDLE,
}
"""Settings of our members, as :data:`PROPERTIES` and the harness's QUICK_FAILOVER are for Java's."""

# A node does not have these settings; the C driver's own idle strategy has longer parks.
DRIVER_VARIABLES = {
    "AERON_PUBLICATION_UNBLOCK_TIMEOUT": PROPERTIES["aeron.publication.unblock.timeout"],
    "AERON_SHARED_IDLE_STRATEGY": "backoff",
    "AERON_SHARED_IDLE_STRATEGY_INIT_ARGS": "10-20-1us-50us",
}


def loads(messages: int) -> list[Load]:
    """One in flight shows durations, a window throughput."""
    return [
        Load(STANDARD_IDLE, "udp", window, length, 1, max(int(messages * share), 100))
        for window, length, share in ((1, 32, 1 / 40), (256, 32, 1.0), (4096, 32, 2.0), (256, 1024, 1 / 4))
    ]


def made(peer: str) -> LocalCluster:
    """Three members of a kind, not yet started."""
    idle = IDLES[STANDARD_IDLE]
    if peer == JAVA:
        service = JavaService("container.tests.EchoService", {"aeron.cluster.idle.strategy": idle.java})
        return LocalCluster(
            [service],
            properties=PROPERTIES,
            class_path=[java_classes()],
            idle_strategy=idle.java,
            jvm_flags=JVM_FLAGS,
        )
    _start, name = SERVICES[peer]()
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(CACHE)])
    return NativeCluster(
        name,
        settings=SETTINGS,
        environment={"PYTHONPATH": paths, **DRIVER_VARIABLES},
        class_path=[java_classes()],
    )


@contextmanager
def running(peer: str) -> Iterator[tuple[LocalCluster, LocalMember]]:
    """Three members of a kind, and the one that leads."""
    with made(peer) as cluster:
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


def switched(pids: Sequence[int]) -> tuple[int, int]:
    """How many threads these processes have, and how often those were switched so far."""
    found = [counts for pid in pids for counts in switches(pid).values()]
    return len(found), sum(voluntary + involuntary for _ran, voluntary, involuntary in found)


def run_counted(client: LoadClient, load: Load, leader: LocalMember, pids: Sequence[int]) -> dict[str, Any]:
    """One load, once, with threads, and switches for each message."""
    _threads, before = switched(pids)
    result = run_once(client, load, leader.node, pids)
    threads, after = switched(pids)
    return {**result, "threads": threads, "switches": (after - before) / load.messages}


def measure(peer: str, group: Sequence[Load], options: argparse.Namespace, found: dict[Load, list[Result]]) -> Result:
    """One round of one peer: fresh members, every load some times, appended to ``found``, and then a kill."""
    with running(peer) as (cluster, leader):
        pids = [process.pid for process in processes(cluster)]
        client = LoadClient(leader.node, "udp")
        client.run(Load(STANDARD_IDLE, "udp", 256, 32, 1, options.warm_up))
        for load in group:
            result = middle_of([run_counted(client, load, leader, pids) for _ in range(options.repeats)])
            result.pop("histogram")
            found.setdefault(load, []).append(result)
        client.close()
        begin = time.monotonic()
        leader.kill()
        cluster.await_leader(LIMIT_S, other_than=leader)
        return {"leaderless_s": time.monotonic() - begin}


def catch_up(peer: str, options: argparse.Namespace) -> Result:
    """One round of one peer: how fast a follower gets what it has missed."""
    with running(peer) as (cluster, leader):
        follower = cluster.followers[0]
        begin_position = leader.node.commit_position or 0
        follower.kill()
        client = LoadClient(leader.node, "udp")
        left = options.catch_up_mib * _MIB // CATCH_UP_FRAME_LENGTH
        while left > 0:
            messages = min(left, CATCH_UP_MESSAGES)
            client.run(Load(STANDARD_IDLE, "udp", 256, CATCH_UP_LENGTH, 1, messages))
            left -= messages
        client.close()
        end_position = leader.node.commit_position or 0
        begin = time.monotonic()
        follower.restart()
        follower.node.await_commit_position(end_position, CATCH_UP_LIMIT_S)
        seconds = time.monotonic() - begin
        return {
            "catch_up_s": seconds,
            "catch_up_mb_s": (end_position - begin_position) / seconds / 1e6,
            "catch_up_cpu_s": sum(
                cpu_seconds(process.pid) for process in {*follower.node.processes, *follower.services}
            ),
        }


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


def note_failures(report: Report, failures: Mapping[str, Sequence[str]]) -> None:
    """Have the report count these as well."""
    for peer, texts in failures.items():
        report.failures.setdefault(peer, []).extend(texts)


def compare_loads(report: Report, peers: Sequence[str], options: argparse.Namespace) -> None:
    """All rounds of the loads, a line for each of them, and one for the kills."""
    group = loads(options.messages)
    found: Mapping[str, dict[Load, list[Result]]] = {peer: {} for peer in peers}
    kills, failures = run_rounds(
        {peer: partial(measure, peer, group, options, found[peer]) for peer in peers}, options.rounds, options.seed
    )
    note_failures(report, failures)
    for load in group:
        results: dict[str, Any] = {peer: found[peer].get(load, []) for peer in peers}
        report.add(f"three members: {load}", results, goals(load))
    report.add(
        "the leader is killed", kills, [Goal(ours, "leaderless_s", (JAVA,), at_most=1.0) for ours in (PYTHON, CYTHON)]
    )


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=100_000, help="at window 256; others in proportion")
    parser.add_argument("--repeats", type=int, default=3, help="of a load in a round, which has their median")
    parser.add_argument("--warm-up", type=int, default=200_000, help="messages before the first load")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, separated by commas")
    parser.add_argument("--parts", default=",".join(PARTS), help="names, separated by commas")
    parser.add_argument("--catch-up-mib", type=int, default=2048, help="length of the log that a follower has missed")
    parser.add_argument("--seed", type=int, default=1, help="of the order of peers")
    options = parser.parse_args(arguments)
    peers = [peer for peer in PEERS if peer in options.peers.split(",")]
    report = Report("cluster", METRICS)
    parts = options.parts.split(",")
    if LOADS in parts:
        compare_loads(report, peers, options)
    if CATCH_UP in parts:
        results, failures = run_rounds(
            {peer: partial(catch_up, peer, options) for peer in peers}, options.rounds, options.seed
        )
        note_failures(report, failures)
        goals_of_row = [Goal(ours, "catch_up_mb_s", (JAVA,), at_least=1.0) for ours in (PYTHON, CYTHON)]
        report.add(f"a follower catches up {options.catch_up_mib} MiB", results, goals_of_row)
    return report.finish()


if __name__ == "__main__":
    main()
