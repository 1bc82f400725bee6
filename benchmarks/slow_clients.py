"""Round trips of one client beside 100 sessions that never read their answers, and beside as many that do, in turn.

The service echoes. Whenever the client has its answer, it sends its next message, and one of the other sessions sends
one, too. Their egress is full after a few of them, so the service meets back pressure with every answer from then on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._harness import Report, RoundFailed, run_rounds
from benchmarks._verdicts import Goal, Result
from container.client import AeronCluster, SessionPool
from container.client.round_trips import percentile_us
from container.errors import ContainerError
from container.testing.processes.node import Node
from tests.client_world import Counting

ECHO_SERVICE = Path(__file__).resolve().parents[1] / "examples" / "echo_service.py"
LIMIT_S = 60.0
TERM = "|term-length=64k"
_LENGTH = 1_000
# Nobody is to give up who does not read.
PATIENCE = {
    "aeron.client.liveness.timeout": "120s",
    "aeron.publication.unblock.timeout": "130s",
    "aeron.cluster.session.timeout": "120s",
    "aeron.cluster.max.sessions": "10000",
}


def measure(sessions: int, messages: int, *, is_stuck: bool) -> Result:
    """Microseconds of a round trip, and how many of the other sessions' answers came."""
    try:
        with Node(properties=PATIENCE) as node:
            node.start()
            node.start_service([sys.executable, str(ECHO_SERVICE)])
            node.await_leader()
            properties = node.client_properties()
            settings: dict[str, Any] = {
                "aeron_dir": properties["aeron.dir"],
                "ingress_channel": properties["aeron.cluster.ingress.channel"],
                "ingress_endpoints": properties["aeron.cluster.ingress.endpoints"],
                "egress_channel": properties["aeron.cluster.egress.channel"] + TERM,
                "message_timeout": LIMIT_S,
            }
            own, others = Counting(), Counting()
            with (
                SessionPool.connect(listener=others, **settings) as pool,
                AeronCluster.connect(listener=own, **settings) as client,
            ):
                found = _round_trips(client, own, pool, sessions, messages, is_stuck=is_stuck)
                found["others_answered"] = others.count / messages
                return found
    except (ContainerError, TimeoutError) as error:
        raise RoundFailed(str(error)) from error


def _round_trips(
    client: AeronCluster, own: Counting, pool: SessionPool, sessions: int, messages: int, *, is_stuck: bool
) -> Result:
    others = pool.open_all(sessions)
    payload = bytes(_LENGTH)
    durations = []
    for number in range(messages):
        while others[number % sessions].offer(payload) <= 0:
            client.poll_egress()
        begin = time.perf_counter_ns()
        client.send(payload)
        while own.count <= number:
            client.idle(client.poll_egress())
            if time.perf_counter_ns() - begin > LIMIT_S * 1e9:
                raise RoundFailed(f"answer {number} did not come within {LIMIT_S:g} s")
        durations.append(time.perf_counter_ns() - begin)
        if not is_stuck:
            pool.poll()
    durations.sort()
    return {
        "p50_us": percentile_us(durations, 50),
        "p99_us": percentile_us(durations, 99),
        "max_us": durations[-1] / 1e3,
    }


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench slow_clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=100, help="besides the one that is measured")
    parser.add_argument("--messages", type=int, default=10_000)
    options = parser.parse_args(arguments)
    reading, stuck = f"{options.sessions} that read", f"{options.sessions} that do not"
    results, failures = run_rounds(
        {
            name: partial(measure, options.sessions, options.messages, is_stuck=name == stuck)
            for name in (reading, stuck)
        },
        options.rounds,
        options.seed,
    )
    report = Report(
        "slow_clients", {"p50_us": "10,.1f", "p99_us": "10,.1f", "max_us": "12,.1f", "others_answered": "5.2f"}
    )
    report.failures |= failures
    report.add("beside other sessions", results, [Goal(stuck, "p99_us", at_most=50_000.0)])
    return report.finish()


if __name__ == "__main__":
    main()
