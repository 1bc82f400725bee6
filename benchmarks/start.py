"""Start: what it takes to import the package, and from a container's process start until it has joined and leads.

The node is started first and waits for its service: so the time is the service's alone, except for the node's handling
of its answers. Java's container with the same echo service is the other peer. One service in Python logs, as most do.
A whole node, `aeron-cluster dev`, is measured until it says that it is ready.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from benchmarks._harness import ROOT, Report, RoundFailed, cpu_seconds, resident_mib, run_rounds
from benchmarks._peers import (
    IDLES,
    LIMIT_S,
    STANDARD_IDLE,
    TERMS,
    Start,
    add_peer_options,
    java_classes,
    java_service,
    other_peers,
    python_service,
)
from benchmarks._verdicts import Goal, Result
from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.node import Node
from container.testing.processes.process import Process

PEERS: dict[str, Start] = {
    "java": java_service("container.tests.EchoService"),
    "python": python_service("examples.echo_service:EchoService"),
    "python, logs": python_service("benchmarks._logging_service:LoggingEchoService"),
}
IMPORTS = {
    "nothing": "",
    "container": "import container",
    "container.run": "import container; container.run",
    "container.client": "import container.client",
}
_MEMBER_PORTS = 5
_POLL_S = 0.002
_LAUNCH_POLL_S = 0.0002


def start_and_join(start: Start) -> Result:
    """Seconds from the start of the service's process until the node leads."""
    idle = IDLES[STANDARD_IDLE]
    with Node(class_path=[java_classes()], idle_strategy=idle.java, properties=TERMS) as node:
        try:
            node.start().await_started(LIMIT_S)
            node.wait_until(lambda: node.counter(CounterType.RECOVERY_STATE), LIMIT_S, "the recovery state counter")
            service = start(node, idle)
            launched_s = await_program(service)
            begin = time.perf_counter()
            while node.counter(CounterType.RECOVERY_STATE) is not None:
                _check(begin, "the service to acknowledge its start")
            acknowledged = time.perf_counter()
            node.await_leader(LIMIT_S)
            return {
                "acknowledged_s": acknowledged - begin,
                "leads_s": time.perf_counter() - begin,
                "cpu_s": cpu_seconds(service.pid) - launched_s,
                "resident_mib": resident_mib(service.pid),
            }
        except (ContainerError, TimeoutError) as error:
            raise RoundFailed(str(error)) from error


def start_dev() -> Result:
    """Seconds from the start of `aeron-cluster dev`, in a new directory, until it says that it is ready."""
    with tempfile.TemporaryDirectory(prefix="bench-start-") as name, closing(PortReservation()) as ports:
        command = [
            sys.executable,
            "-m",
            "container",
            "dev",
            "examples.echo_service:EchoService",
            "--dir",
            f"{name}/node",
            "--port",
            str(ports.take_row(_MEMBER_PORTS)),
        ]
        begin = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:
            try:
                await_line(node, "ready", LIMIT_S)
                return {
                    "leads_s": time.perf_counter() - begin,
                    "cpu_s": cpu_seconds(node.pid),
                    "resident_mib": resident_mib(node.pid),
                }
            finally:
                _end(node, LIMIT_S)


def await_line(node: subprocess.Popen[str], word: str, limit_s: float) -> None:
    """Wait until a node has printed its first line, which is to have that word; one that is late is killed."""
    assert node.stdout is not None
    is_late = threading.Event()

    def end_late() -> None:
        is_late.set()
        node.kill()

    timer = threading.Timer(limit_s, end_late)
    timer.start()
    try:
        line = node.stdout.readline()
    finally:
        timer.cancel()
        timer.join()
    if is_late.is_set():
        raise RoundFailed(f"waited {limit_s:g} s for aeron-cluster dev to say that it is {word}")
    if word not in line:
        raise RoundFailed(f"aeron-cluster dev ended before it was {word}")


def _end(node: subprocess.Popen[str], limit_s: float) -> None:
    node.terminate()
    try:
        node.wait(limit_s)
    except subprocess.TimeoutExpired as late:
        node.kill()
        raise RoundFailed(f"waited {limit_s:g} s for aeron-cluster dev to end") from late


def await_program(service: Process) -> float:
    """Wait until the launcher, a Python of its own, has become the program; returns the processor time that it took."""
    launched_s = 0.0
    while service.is_launching:
        launched_s = cpu_seconds(service.pid)
        time.sleep(_LAUNCH_POLL_S)
    return launched_s


def _check(begin: float, what: str) -> None:
    if time.perf_counter() - begin > LIMIT_S:
        raise RoundFailed(f"waited {LIMIT_S:g} s for {what}")
    time.sleep(_POLL_S)


def run_python(statement: str) -> Result:
    """Wall time of an interpreter that does no more than this."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, timeout=LIMIT_S)
    return {"import_ms": (time.perf_counter() - begin) * 1e3}


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    add_peer_options(parser)
    options = parser.parse_args(arguments)
    peers = PEERS | other_peers(options)
    report = Report(
        "start",
        {"acknowledged_s": ".3f", "leads_s": ".3f", "cpu_s": ".2f", "resident_mib": ".1f", "import_ms": ".1f"},
    )
    imports, _ = run_rounds(
        {name: partial(run_python, text) for name, text in IMPORTS.items()}, 3 * options.rounds, options.seed
    )
    report.add("import, beside an interpreter that does nothing", imports)
    results, report.failures = run_rounds(
        {name: partial(start_and_join, start) for name, start in peers.items()}, options.rounds, options.seed
    )
    goals = [
        Goal("python, logs", metric, ("java",), at_most=1 / 3) for metric in ("acknowledged_s", "cpu_s", "resident_mib")
    ]
    report.add("process start until joined", results, goals)
    results, failures = run_rounds({"dev": start_dev}, 3 * options.rounds, options.seed)
    report.failures |= failures
    limits = {"leads_s": 0.30, "resident_mib": 31}
    goals = [Goal("dev", metric, at_most=limit) for metric, limit in limits.items()]
    report.add("aeron-cluster dev until it is ready", results, goals)
    return report.finish()


if __name__ == "__main__":
    main()
