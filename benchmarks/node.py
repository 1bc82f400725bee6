"""A whole node of one member, native beside Java's: throughput, round trips, processor time, memory, start.

The container and the service are ours in both, and so is the load, a client in Java (benchmarks/java/EchoLoad.java).
Java's node is its ClusteredMediaDriver in one JVM with the container beside it; the native one is the process of
``aeron-cluster node``, in each of its forms. All agents idle in the same way. Processor time and memory are those of
driver, archive, consensus module and service together.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._harness import CACHE, ROOT, Report, RoundFailed, cpu_seconds, resident_mib, run_rounds
from benchmarks._peers import (
    IDLES,
    LIMIT_S,
    STANDARD_IDLE,
    TERMS,
    Start,
    cython_service,
    java_classes,
    python_service,
)
from benchmarks._peers import running as running_java
from benchmarks._verdicts import Goal, Result
from benchmarks.echo import Load, LoadClient, middle_of
from container.errors import ContainerError
from container.testing.processes.native_node import NativeNode
from container.testing.processes.node import Node
from tests.cython_module import compile_cython

METRICS = {
    "start_s": "6.3f",
    "recovery_s": "7.2f",
    "cpu_s": "7.2f",
    "per_second": "9,.0f",
    "p50_us": "8,.1f",
    "p99_us": "9,.1f",
    "p999_us": "9,.1f",
    "cpu_s_per_million": "6.3f",
    "resident_mib": "6.1f",
}
JAVA = "java"
SHARED = "native"
DEDICATED = "native, a thread each"
TWO = "native, two threads"
MODES: dict[str, tuple[str, dict[str, str]]] = {
    SHARED: ("SHARED", {}),
    DEDICATED: ("DEDICATED", {}),
    TWO: ("SHARED", {"threading": "SHARED"}),
}
# The load polls all sessions that it has between two attempts to connect others.
LIMITS = {"max_concurrent_sessions": 20_000, "session_timeout_ns": "600s"}
_MIB = 1024 * 1024
COUNTERS_LENGTH = 16 * _MIB
"""Room for the counters of a session, seven of 128 bytes over IPC."""
JAVA_LIMITS = {
    "aeron.cluster.max.sessions": "20000",
    "aeron.cluster.session.timeout": "600s",
    "aeron.counters.buffer.length": str(COUNTERS_LENGTH),
}
MOST_IN_A_LOAD = 1_000_000
SHORT = 32
PEERS = (JAVA, *MODES)


def service_in_python() -> tuple[Start, str]:
    """How Java's node starts it, and its name for the native one."""
    return python_service("examples.echo_service:EchoService"), "examples.echo_service:EchoService"


def service_in_cython() -> tuple[Start, str]:
    """As :func:`service_in_python`."""
    source = ROOT / "examples" / "cython_echo.pyx"
    module = compile_cython(source, CACHE).name.partition(".")[0]
    return cython_service(source, "EchoHandler"), f"{module}:EchoHandler"


SERVICES: dict[str, Callable[[], tuple[Start, str]]] = {"python": service_in_python, "cython": service_in_cython}


def loads(messages: int, sessions: Sequence[int]) -> list[Load]:
    """All lines of the table."""
    found = []
    for medium in ("udp", "ipc"):
        for length in (SHORT, 1024):
            for window, share in ((1, 1 / 20), (256, 1.0)):
                count = max(int(messages * share / (4 if length > 32 and window > 1 else 1)), 100)
                found.append(Load(STANDARD_IDLE, medium, window, length, 1, count))
    # Over UDP the media driver, which has both ends of each session here, serves some 200 of them and not 1,000.
    found += [Load(STANDARD_IDLE, "ipc", 256, SHORT, count, messages // 4) for count in sessions]
    return found


@contextmanager
def running(peer: str, service: str, base_dir: Path | None = None) -> Iterator[Node]:
    """A node that leads, with its service; it continues in ``base_dir``."""
    start, name = SERVICES[service]()
    if peer == JAVA:
        with running_java(start, STANDARD_IDLE, JAVA_LIMITS, base_dir) as (node, _container):
            yield node
        return
    mode, driver = MODES[peer]
    idle = {"idle_strategy": IDLES[STANDARD_IDLE].python}
    settings: dict[str, dict[str, Any]] = {
        "driver": {
            "term_buffer_length": 8 * _MIB,
            "ipc_term_buffer_length": 8 * _MIB,
            "counters_buffer_length": COUNTERS_LENGTH,
            **driver,
        },
        "archive": idle,
        "consensus_module": {
            **idle,
            "log_channel": TERMS["aeron.cluster.log.channel"],
            **LIMITS,
        },
        "container": idle,
    }
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(CACHE)])
    node = NativeNode(
        name,
        base_dir=base_dir,
        threading_mode=mode,
        settings=settings,
        environment={"PYTHONPATH": paths},
        class_path=[java_classes()],
    )
    with node:
        try:
            node.start().await_leader(LIMIT_S)
            yield node
        except (ContainerError, TimeoutError) as error:
            raise RoundFailed(str(error)) from error


class Meter(AbstractContextManager["Meter"]):
    """Processor time of all processes of a node but the load's while its block runs."""

    spent_s: float

    def __init__(self, node: Node, pids: Sequence[int]) -> None:
        self._pids = pids

    def _now(self) -> float:
        return sum(map(cpu_seconds, self._pids))

    def __enter__(self) -> Meter:
        self._before = self._now()
        return self

    def __exit__(self, *error: object) -> None:
        self.spent_s = self._now() - self._before


def run_once(client: LoadClient, load: Load, node: Node, pids: Sequence[int]) -> dict[str, Any]:
    """One load, once."""
    result = client.run(load, meter := Meter(node, pids))
    result["cpu_s_per_million"] = meter.spent_s / load.messages * 1e6
    result["resident_mib"] = sum(map(resident_mib, pids))
    return result


def measure(
    peer: str,
    service: str,
    medium: str,
    group: Sequence[Load],
    options: argparse.Namespace,
    found: dict[Load, list[Result]],
) -> Result:
    """One round of one peer: a fresh node, then every load of the group some times, appended to ``found``."""
    begin = time.perf_counter()
    with running(peer, service) as node:
        start_s = time.perf_counter() - begin
        pids = [process.pid for process in node.processes]
        client = LoadClient(node, medium, max(load.sessions for load in group))
        client.run(Load(STANDARD_IDLE, medium, 256, 32, 1, options.warm_up))
        for load in group:
            result = middle_of([run_once(client, load, node, pids) for _ in range(options.repeats)])
            result.pop("histogram")
            found.setdefault(load, []).append({**result, "start_s": start_s})
    return {"loads": len(group)}


def record(service: str, messages: int, directory: Path) -> None:
    """Leave a log of so many messages and no snapshot."""
    with running(SHARED, service, directory) as node:
        client = LoadClient(node, "ipc")
        for begin in range(0, messages, MOST_IN_A_LOAD):
            client.run(Load(STANDARD_IDLE, "ipc", 4096, 32, 1, min(MOST_IN_A_LOAD, messages - begin)))
        client.close()
        node.stop(LIMIT_S)


def recover(peer: str, service: str, directory: Path) -> Result:
    """One round of one peer: from the start of a node on a log until it leads, its service having seen all."""
    begin = time.perf_counter()
    with running(peer, service, directory) as node:
        found = {
            "recovery_s": time.perf_counter() - begin,
            "cpu_s": sum(cpu_seconds(process.pid) for process in node.processes),
        }
        for process in reversed(node.processes):
            process.stop(LIMIT_S)
        node.release_mark_files()
    return found


def compare_recoveries(report: Report, service: str, options: argparse.Namespace) -> None:
    """All rounds of a recovery, all of one directory, and their line."""
    peers = [peer for peer in PEERS if peer in options.peers.split(";")]
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as name:
        directory = Path(name)
        record(service, options.recovery, directory)
        results, failures = run_rounds(
            {peer: partial(recover, peer, service, directory) for peer in peers}, options.rounds, options.seed
        )
    for peer, texts in failures.items():
        report.failures.setdefault(peer, []).extend(texts)
    wanted = [Goal(SHARED, "recovery_s", (JAVA,), at_most=0.6)]
    report.add(f"{service}: recovery of {options.recovery:,} messages", results, wanted)


def goals(service: str, load: Load) -> list[Goal]:
    """The goals for one thread, the default, beside Java's node. Processor time counts that of all its processes."""
    limits: dict[str, float] = {}
    if load.sessions > 1:
        limits = {"p99_us": 0.8}
    elif load.window == 1:
        limits = {"per_second": 2.0, "p50_us": 0.5, "cpu_s_per_million": 0.35}
    elif load.length > SHORT:
        limits = {"per_second": 1.0, "p99_us": 1.0}
    elif service == "python":
        limits = {"per_second": 1.2, "cpu_s_per_million": 0.6}
    elif load.medium == "ipc":
        limits = {"per_second": 1.5, "p50_us": 0.6, "p99_us": 0.8, "cpu_s_per_million": 0.5}
    else:
        limits = {"per_second": 1.3, "cpu_s_per_million": 0.6}
    return [
        Goal(SHARED, metric, (JAVA,), at_least=limit)
        if metric == "per_second"
        else Goal(SHARED, metric, (JAVA,), at_most=limit)
        for metric, limit in limits.items()
    ]


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench node", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000, help="at window 256; others in proportion")
    parser.add_argument("--repeats", type=int, default=3, help="of a load on one node; the round has their median")
    parser.add_argument("--warm-up", type=int, default=300_000, help="messages before the first load of a node")
    parser.add_argument("--sessions", default="1000,3000", help="numbers of sessions, separated by commas")
    parser.add_argument("--recovery", type=int, default=10_000_000, help="messages of the log to recover from; 0: none")
    parser.add_argument("--only", default="", help="loads whose name contains this, such as 'ipc'")
    parser.add_argument("--services", default="python,cython", help="languages of the service")
    parser.add_argument("--peers", default=";".join(PEERS), help="names, separated by semicolons")
    parser.add_argument("--seed", type=int, default=1, help="of the order of peers")
    options = parser.parse_args(arguments)
    sessions = [int(each) for each in options.sessions.split(",") if each]
    report = Report("node", METRICS)
    for service in options.services.split(","):
        for medium in ("udp", "ipc"):
            chosen = [
                load
                for load in loads(options.messages, sessions)
                if load.medium == medium and options.only in str(load)
            ]
            groups = [[load for load in chosen if load.sessions == 1]]
            groups += [[load] for load in chosen if load.sessions > 1]
            for group in filter(None, groups):
                compare(report, service, medium, group, options)
        if options.recovery:
            compare_recoveries(report, service, options)
    return report.finish()


def compare(report: Report, service: str, medium: str, group: Sequence[Load], options: argparse.Namespace) -> None:
    """All rounds of the loads of a medium, and a line for each load."""
    peers = [peer for peer in PEERS if peer in options.peers.split(";")]
    found: Mapping[str, dict[Load, list[Result]]] = {peer: {} for peer in peers}
    _, failures = run_rounds(
        {peer: partial(measure, peer, service, medium, group, options, found[peer]) for peer in peers},
        options.rounds,
        options.seed,
    )
    for peer, texts in failures.items():
        report.failures.setdefault(peer, []).extend(texts)
    for load in group:
        report.add(f"{service}: {load}", {peer: found[peer].get(load, []) for peer in peers}, goals(service, load))


if __name__ == "__main__":
    main()
