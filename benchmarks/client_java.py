"""Our clients beside Java's, in one run: fail-over under requests in flight, CPU when idle, round trips, memory.

Three processes hold a session each with the same three members, whose services are in Java: Java's client of the same
version, with the loop that one writes by hand around it (``benchmarks/java/RequestClient.java``: numbered requests,
sent again when a new leader is heard of); our asyncio client, and our blocking one (``benchmarks/_request_peer.py``).

- Fail-over: the leader is stopped, each client sends its requests, the leader is killed (SIGKILL), and each request
  ends: answered by the new leader. The kill is the same for all peers, and so is the election.
- Idle: processor time of the processes, in a window that is the same for all. Java's client polls as often as the
  user's loop: once with Agrona's own backoff, whose parks grow to 1 ms, and once with parks that grow to 40 ms, as our
  asyncio client's do by default. Our blocking client has the same loop.
- Round trips, one at a time, each peer in its turn, in an order that is shuffled in each round; idle strategies are the
  clients' own defaults, which are the same.
- Memory: resident, at the end of each round, without what is shared with the driver.

Goals: not behind Java's client in any, and no request without an outcome.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks._harness import ROOT, Report, cpu_seconds, resident_mib, say
from benchmarks._peers import java_classes
from benchmarks._verdicts import Goal, Result
from container.errors import ContainerError
from container.testing.processes.java_tools import java_command, resolve_jar
from container.testing.processes.local_cluster import JavaService, LocalCluster
from container.testing.processes.process import Process

LIMIT_S = 120.0
SETTLE_S = 4.0  # after which an idle client is at rest
JAVA = "java"
OURS = ("asyncio", "blocking")
PARKS_US = (1_000, 40_000)
PATIENT = {  # seven JVMs may share two cores
    "aeron.client.liveness.timeout": "20s",
    "aeron.publication.unblock.timeout": "30s",
    "aeron.driver.timeout": "20000",
}

type Results = dict[str, list[Result]]


class Clients:
    """The processes of the peers, each with a session."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        settings = cluster.client_settings()
        properties = {
            "aeron.dir": settings["aeron_dir"],
            "aeron.cluster.ingress.channel": settings["ingress_channel"],
            "aeron.cluster.ingress.endpoints": settings["ingress_endpoints"],
            "aeron.cluster.egress.channel": settings["egress_channel"],
        }
        class_path = [java_classes(), resolve_jar()]
        main_class = "container.benchmarks.RequestClient"
        commands = {JAVA: java_command(main_class, class_path, properties=properties)}
        for kind in OURS:
            commands[kind] = [sys.executable, "-m", "benchmarks._request_peer", kind, json.dumps(settings)]
        environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        self.processes: dict[str, Process] = {}
        for name, command in commands.items():
            process = stack.enter_context(cluster.client_process(f"{name}-client", command, environment))
            process.start()
            self.processes[name] = process
        self._await_all("READY")

    def _await_all(self, word: str) -> None:
        for name, process in self.processes.items():
            if (line := process.read_line(LIMIT_S)) != word:
                raise RuntimeError(f"{name} said {line!r} and not {word}\n{process.tail()}")

    def _answers(self) -> dict[str, Result]:
        return {name: json.loads(process.read_line(LIMIT_S)) for name, process in self.processes.items()}

    def _tell_all(self, line: str) -> None:
        for process in self.processes.values():
            process.write_line(line)

    def round_trips(self, trips: int, order: Sequence[str]) -> dict[str, Result]:
        """One after the other, of each peer in its turn."""
        found = {}
        for name in order:
            self.processes[name].write_line(f"trips {trips}")
            found[name] = json.loads(self.processes[name].read_line(LIMIT_S))
        return found

    def idle(self, seconds: float, max_park_us: int) -> dict[str, Result]:
        """Seconds of processor time in a minute, of all in the same window."""
        self._tell_all(f"idle {int(seconds + 2 * SETTLE_S)} {max_park_us}")
        time.sleep(SETTLE_S)
        begin = time.monotonic()
        before = {name: cpu_seconds(process.pid) for name, process in self.processes.items()}
        time.sleep(seconds)
        spent = {name: cpu_seconds(process.pid) - before[name] for name, process in self.processes.items()}
        minutes = (time.monotonic() - begin) / 60
        self._await_all("HELD")
        return {name: {"cpu_s_per_minute": seconds / minutes} for name, seconds in spent.items()}

    def fail_over(self, requests: int) -> dict[str, Result]:
        """Kill the leader under so many requests of each."""
        for member in self.cluster.members:
            if member.has_ended:
                member.restart()
        leader = self.cluster.await_ready(LIMIT_S)
        leader.pause()
        self._tell_all(f"requests {requests}")
        self._await_all("SENT")
        killed_ns = time.monotonic_ns()
        leader.kill()
        found = {}
        for name, answer in self._answers().items():
            found[name] = {
                "leader_s": (answer["leader_ns"] - killed_ns) / 1e9,
                "p50_s": (answer["p50_ns"] - killed_ns) / 1e9,
                "last_s": (answer["last_ns"] - killed_ns) / 1e9,
                "answered": answer["answered"],
                "failed": answer["failed"],
                "without_outcome": requests - answer["answered"] - answer["failed"],
                "resent": answer["resent"],
            }
        return found

    def memory(self) -> dict[str, Result]:
        """Usage of the processes, as they are now."""
        return {name: {"resident_mib": resident_mib(process.pid)} for name, process in self.processes.items()}


@contextmanager
def running() -> Iterator[Clients]:
    """Three members with an echo service in Java, and the clients."""
    services = [JavaService("container.tests.EchoService")]
    with LocalCluster(services, class_path=[java_classes()], properties=PATIENT) as cluster, ExitStack() as stack:
        cluster.start_client_driver()
        cluster.start().await_ready(LIMIT_S)
        yield Clients(cluster, stack)


def collect(results: Results, found: Mapping[str, Result]) -> None:
    """Keep what a round found."""
    for name, result in found.items():
        results.setdefault(name, []).append(result)


def goals(*metrics: str) -> list[Goal]:
    """That ours are not behind Java's."""
    return [Goal(peer, metric, (JAVA,), at_most=1.0) for metric in metrics for peer in OURS]


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench client_java", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_000, help="in flight, of each client, at each kill")
    parser.add_argument("--trips", type=int, default=5_000, help="of each client in each round")
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    shuffler = random.Random(options.seed)
    trips: Results = {}
    idles: dict[int, Results] = {park_us: {} for park_us in PARKS_US}
    kills: Results = {}
    memory: Results = {}
    failures: list[str] = []
    with running() as clients:
        order = list(clients.processes)
        clients.round_trips(options.trips, order)  # warms up
        try:
            for number in range(options.rounds):
                say(f"round {number + 1} of {options.rounds}")
                shuffler.shuffle(order)
                collect(trips, clients.round_trips(options.trips, order))
                for park_us in shuffler.sample(PARKS_US, len(PARKS_US)):
                    collect(idles[park_us], clients.idle(options.idle_s, park_us))
                collect(memory, clients.memory())
            for number in range(options.kills):
                say(f"kill {number + 1} of {options.kills}")
                collect(kills, clients.fail_over(options.requests))
        except (ContainerError, TimeoutError) as error:  # the rounds before it count
            failures.append(str(error))
    report = Report(
        "client_java",
        {
            "leader_s": ".3f",
            "p50_s": ".3f",
            "last_s": ".3f",
            "answered": ".0f",
            "failed": ".0f",
            "without_outcome": ".0f",
            "resent": ".0f",
            "cpu_s_per_minute": ".3f",
            "p50_us": ",.1f",
            "p99_us": ",.1f",
            "resident_mib": ".1f",
        },
        failures={"the run": failures},
    )
    report.add(f"fail-over, {options.requests} requests in flight", kills, goals("p50_s", "last_s"))
    lost = {name: sum(kill["without_outcome"] for kill in of_peer) for name, of_peer in kills.items()}
    print(f"requests without an outcome: {lost}")
    for park_us in PARKS_US:
        title = f"idle, loops of java and blocking park up to {park_us / 1000:g} ms"
        report.add(title, idles[park_us], goals("cpu_s_per_minute"))
    report.add("round trips, one at a time", trips, goals("p50_us", "p99_us"))
    report.add("memory", memory, goals("resident_mib"))
    return report.finish()


if __name__ == "__main__":
    main()
