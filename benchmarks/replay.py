"""Replay: how fast a log is fed to a service, from memory, and by an archive to a member that recovers.

From memory it is the agent alone over the in-memory transport, in CPU time of this process: a handler in C, one in
Cython, a callback in Python that counts messages, one that reads them, too, and batches in Python. From the archive it
is a real node that is killed and started again with its log: the seconds from the service's answer to its start until
the node leads. All peers recover the same log.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks._harness import CACHE, ROOT, Report, RoundFailed, cpu_seconds, run_rounds, say
from benchmarks._peers import IDLES, LIMIT_S, STANDARD_IDLE, TERMS, Start, add_peer_options, java_classes, other_peers
from benchmarks._verdicts import Goal, Result
from benchmarks.echo import PEERS, Load, LoadClient
from container.api import ClientSession, ClusteredService, Header, MessageBuffer
from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.service.service_handler import ServiceHandler
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.memory.scripted_messages import encode
from container.testing.processes.node import Node
from tests.cython_module import compile_cython, load_module
from tests.instruction_counts import BatchService
from tests.services import Stateless

_LENGTH = 32
_CHUNK = 100_000


class ReadingService(Stateless):
    """Counts messages, and reads the first number of each and its length."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.total = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.count += 1
        self.length += len(buffer)
        self.total += buffer.get_int64()


def from_memory(make: Callable[[], ClusteredService | ServiceHandler], messages: int) -> Result:
    """CPU nanoseconds of a message; the service's own count is checked."""
    service = make()
    member = ScriptedMember(service, log_term_length=16 * 1024 * 1024).follow()
    agent, payload, spent = member.agent, bytes(_LENGTH), 0.0
    header = encode("SessionMessageHeader", leadership_term_id=0, cluster_session_id=1, timestamp=1_000)
    member.cm.open_session(1)
    for first in range(0, messages, _CHUNK):
        for _ in range(min(_CHUNK, messages - first)):
            member.cm.log_message(header + payload)
        end = member.cm.commit()
        begin = time.process_time()
        while agent.cluster.log_position < end:
            agent.do_work()
        spent += time.process_time() - begin
    counted = getattr(service, "count", messages)
    agent.close()
    gc.collect()  # a gigabyte of log, and it refers to itself
    if counted != messages or member.errors:
        raise RoundFailed(f"{counted} of {messages} messages; errors: {member.errors[:3]}")
    return {"per_second": messages / spent, "ns": spent / messages * 1e9}


def recover(node: Node, start: Start, messages: int) -> Result:
    """Start the killed node with a service; what its recovery of the whole log takes."""
    idle = IDLES[STANDARD_IDLE]
    try:
        node.start().await_started(LIMIT_S)
        node.wait_until(lambda: node.counter(CounterType.RECOVERY_STATE), LIMIT_S, "the recovery state counter")
        service = start(node, idle)
        node.wait_until(
            lambda: node.counter(CounterType.RECOVERY_STATE) is None, LIMIT_S, "the service to acknowledge its start"
        )
        begin, begin_cpu = time.perf_counter(), cpu_seconds(service.pid)
        node.await_leader(max(LIMIT_S, messages / 10_000))
        seconds = time.perf_counter() - begin
        cpu = cpu_seconds(service.pid) - begin_cpu
        if errors := node.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0):
            raise RoundFailed(f"{errors} errors of the service")
        return {"per_second": messages / seconds, "seconds": seconds, "cpu_s_per_million": cpu / messages * 1e6}
    except (ContainerError, TimeoutError) as error:
        raise RoundFailed(str(error)) from error
    finally:
        _kill(node)


def _kill(node: Node) -> None:
    for service in node.services:
        service.kill()
    node.kill()
    node.release_mark_files()
    for path in node.cluster_dir.glob("cluster-mark-service-*"):  # of another container, whose format may be its own
        path.unlink()


def make_log(node: Node, messages: int) -> None:
    """Fill the node's log through Java's own container, and kill the node."""
    idle = IDLES[STANDARD_IDLE]
    node.start().await_started(LIMIT_S)
    PEERS["java"](node, idle)
    node.await_leader(LIMIT_S)
    client = LoadClient(node, "ipc")
    for first in range(0, messages, _CHUNK):
        client.run(Load(STANDARD_IDLE, "ipc", 4096, _LENGTH, 1, min(_CHUNK, messages - first)))
        if sys.stderr.isatty():
            say(f"{first} of {messages} messages are logged")
    client.close()
    _kill(node)


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench replay", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-messages", type=int, default=10_000_000, help="0: not from memory")
    parser.add_argument("--messages", type=int, default=10_000_000, help="in the archive; 0: not from an archive")
    parser.add_argument("--only", default="", help="rows whose name contains this: 'memory' or 'archive'")
    add_peer_options(parser)
    options = parser.parse_args(arguments)
    report = Report("replay", {"per_second": "12,.0f", "ns": "7.1f", "seconds": "8.3f", "cpu_s_per_million": "6.3f"})
    from_memory_name = f"from memory, {options.memory_messages:,} messages of {_LENGTH} B"
    from_archive_name = f"from the archive, {options.messages:,} messages of {_LENGTH} B"
    if options.memory_messages and options.only in from_memory_name:
        counter = load_module(compile_cython(ROOT / "benchmarks" / "counting_handler.pyx", CACHE))
        makers: dict[str, Callable[[], Any]] = {
            "c": ServiceHandler,
            "cython": counter.CountingHandler,
            "python": Stateless,
            "reading": ReadingService,
            "batches": BatchService,
        }
        results, report.failures = run_rounds(
            {name: partial(from_memory, make, options.memory_messages) for name, make in makers.items()},
            options.rounds,
            options.seed,
        )
        goals = [
            Goal("python", "per_second", at_least=7e6),
            Goal("batches", "per_second", at_least=7e6),
            Goal("cython", "per_second", at_least=15e6),
        ]
        report.add(from_memory_name, results, goals)
    if options.messages and options.only in from_archive_name:
        peers = PEERS | other_peers(options)
        with ExitStack() as stack:
            node = stack.enter_context(
                Node(class_path=[java_classes()], idle_strategy=IDLES[STANDARD_IDLE].java, properties=TERMS)
            )
            make_log(node, options.messages)
            results, failures = run_rounds(
                {name: partial(recover, node, start, options.messages) for name, start in peers.items()},
                options.rounds,
                options.seed,
            )
        report.failures |= failures
        others = tuple(name for name in peers if name not in ("python", "cython"))
        goals = [Goal(name, "per_second", others, at_least=1.0) for name in ("python", "cython")]
        report.add(from_archive_name, results, goals)
    return report.finish()


if __name__ == "__main__":
    main()
