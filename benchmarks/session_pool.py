"""The cost of a pooled session: connecting it, its memory here, its keep alives and a message to it, on a real node.

Opens sessions in one pool, polls them while they are silent, then sends one message through each and awaits the echo.
Prints the costs per session and one JSON line. Arguments: sessions (default 2000), seconds of silence (5).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from container.client import SessionPool
from container.testing.processes.node import Node
from tests.client_world import Counting

ECHO_SERVICE = Path(__file__).resolve().parents[1] / "examples" / "echo_service.py"
LIMIT_S = 120.0
KEEP_ALIVE_INTERVAL_S = 1.0


def resident_bytes() -> int:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main(sessions: int = 2_000, silent_s: float = 5.0) -> None:
    """Start node and service, measure, print."""
    properties = {"aeron.cluster.max.sessions": str(sessions + 10), "aeron.cluster.session.timeout": "30s"}
    with Node(properties=properties) as node:
        node.start()
        node.start_service([sys.executable, str(ECHO_SERVICE)])
        node.await_leader()
        listener = Counting()
        client = node.client_properties()
        with SessionPool.connect(
            aeron_dir=client["aeron.dir"],
            ingress_channel=client["aeron.cluster.ingress.channel"],
            ingress_endpoints=client["aeron.cluster.ingress.endpoints"],
            egress_channel=client["aeron.cluster.egress.channel"],
            message_timeout=LIMIT_S,
            keep_alive_interval=KEEP_ALIVE_INTERVAL_S,
            listener=listener,
        ) as pool:
            found = measure(pool, listener, sessions, silent_s)
    for name, value in found.items():
        print(f"{name:>34}: {value:12,.2f}")
    print(json.dumps(found))


def measure(pool: SessionPool, listener: Counting, count: int, silent_s: float) -> dict[str, float]:
    """The costs per session."""
    before_bytes, begin = resident_bytes(), time.perf_counter()
    opened = pool.open_all(count)
    connect_s = time.perf_counter() - begin
    memory = (resident_bytes() - before_bytes) / count

    begin, begin_cpu, polls = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < silent_s:
        pool.idle(pool.poll())
        polls += 1
    silent_cpu_s = time.process_time() - begin_cpu

    begin, begin_cpu = time.perf_counter(), time.process_time()
    message = bytes(32)
    for session in opened:
        while session.offer(message) <= 0:
            pool.poll()
    while listener.count < count:
        pool.poll()
        if time.perf_counter() - begin > LIMIT_S:
            raise TimeoutError(f"{listener.count} of {count} echoes came within {LIMIT_S:g} s")
    echo_cpu_s = time.process_time() - begin_cpu
    return {
        "sessions": count,
        "connect_us_per_session": connect_s / count * 1e6,
        "memory_bytes_per_session": memory,
        "silent_cpu_percent": silent_cpu_s / silent_s * 100,
        "silent_cpu_us_per_session_and_s": silent_cpu_s / silent_s / count * 1e6,
        "echo_us_per_session": (time.perf_counter() - begin) / count * 1e6,
        "echo_cpu_us_per_session": echo_cpu_s / count * 1e6,
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *map(float, sys.argv[2:3]))
