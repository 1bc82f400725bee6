"""Simulated clusters by the thousand, ``./run sim``: in processes that are watched: a hang is seen too.

Seeds take the services of services.py in turn. Each twentieth is run again, in another process with other hashes: both
must do the same. The exit status is 1 when a seed had a finding, hung, or did not repeat itself.

With ``--archive`` a seed is an archive, its clients and its disk, with kills and power cuts; see archive_world.py. With
``--node`` it is a whole node with its clients and its disk; see node_world.py. With ``--cluster`` it is a cluster of
such nodes and its clients, on a network that fails; see cluster_world.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from container.testing.simulation import Simulation, SimulationFailure, expand
from tests.sim import archive_run, cluster_run, exam, node_run
from tests.sim.services import SUBJECTS, Subject

LIMIT_S = 60.0
"""What a seed may take."""
SHRINK_LIMIT_S = 3_600.0
"""Limit of shrinking a finding. Its runs are counted, so only one that hangs takes as long."""
WORLDS: dict[str, Any] = {"archive": archive_run, "node": node_run, "cluster": cluster_run}
MEMBERS = (3, 5, 7)
PAIR_INTERVAL = 20
CHUNK = 500
"""Seeds that one process runs before a fresh one takes over."""


def subject_of(seed: int, names: Sequence[str] = tuple(SUBJECTS)) -> Subject:
    """The service that a seed is run with."""
    return SUBJECTS[names[seed % len(names)]]


def run_seed(seed: int, names: Sequence[str] = tuple(SUBJECTS)) -> Simulation:
    """Run a seed."""
    subject = subject_of(seed, names)
    return subject.checks().run(expand(seed, payloads=subject.payload))


def work(first: int, end: int, step: int, names: Sequence[str]) -> None:
    """Run seeds and print a line for each, before and after it."""
    for seed in range(first, end, step):
        print(seed, flush=True)
        result = run_seed(seed, names)
        failure = ""
        if result.finding is not None:
            print(json.dumps({"found": result.finding.oracle}), flush=True)
            error: SimulationFailure = subject_of(seed, names).checks().failure(result)
            failure = str(error)
        outcome = {
            "digest": result.digest,
            "delivered": result.delivered,
            "virtual_ms": result.virtual_ms,
            "reached": result.reached,
            "failure": failure,
        }
        print(json.dumps(outcome), flush=True)


@dataclass
class Report:
    """What came of all seeds."""

    seeds: int = 0
    pairs: int = 0
    delivered: int = 0
    virtual_ms: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    processes: set[subprocess.Popen[str]] = field(default_factory=set)
    interrupted: threading.Event = field(default_factory=threading.Event)
    world: str = ""
    """What is simulated: "archive", "node", "cluster" of nodes, or members whose consensus module is played."""
    members: int = 0
    """Members of each such cluster; 0 for what each seed draws."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: dict[str, Any], seed: int) -> None:
        """Count a seed."""
        with self.lock:
            self.seeds += 1
            self.delivered += outcome["delivered"]
            self.virtual_ms += outcome["virtual_ms"]
            self.reached.update(outcome["reached"])
            if outcome["failure"]:
                self.fail(f"seed {seed}: {outcome['failure']}")

    def interrupt(self) -> None:
        """End all processes; no others are started."""
        with self.lock:
            self.interrupted.set()
            for process in self.processes:
                process.kill()

    def fail(self, text: str) -> None:
        """Note a failure, and print it."""
        self.failures.append(text)
        print(f"\n{text}\n", flush=True)


def run_process(
    report: Report, first: int, end: int, step: int, names: Sequence[str], hash_seed: str
) -> tuple[dict[int, dict[str, Any]], str]:
    """The outcomes of a process that runs seeds, and what went wrong with it."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.sim", "--work", f"{first}:{end}:{step}", *names]
    command += [f"--{report.world}"] if report.world else []
    command += ["--members", str(report.members)] if report.members else []
    with report.lock:
        if report.interrupted.is_set():
            return {}, ""
        process = subprocess.Popen(  # in a session of its own: an interrupt from the keyboard is for this process alone
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            start_new_session=True,
        )
        report.processes.add(process)
    assert process.stdout is not None
    outcomes: dict[int, dict[str, Any]] = {}
    seed, is_late = first, False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        process.kill()

    watch = threading.Timer(LIMIT_S, stop)
    watch.start()
    for line in process.stdout:
        watch.cancel()
        watch = threading.Timer(LIMIT_S if not line.startswith('{"found') else SHRINK_LIMIT_S, stop)
        watch.daemon = True
        watch.start()
        if not line.startswith("{"):
            seed = int(line)
        elif not line.startswith('{"found'):
            outcomes[seed] = json.loads(line)
    watch.cancel()
    process.stdout.close()
    code = process.wait()
    with report.lock:
        report.processes.discard(process)
    if report.interrupted.is_set():
        return outcomes, ""
    if is_late:
        return outcomes, f"seed {seed} did not end within {LIMIT_S:g} s"
    return outcomes, f"seed {seed}: its process ended with {code}" if code else ""


def run_part(seeds: range, names: Sequence[str], report: Report) -> None:
    """Run some seeds in a process, and each twentieth of them again in another one."""
    outcomes, problem = run_process(report, seeds.start, seeds.stop, 1, names, "0")
    for seed, outcome in outcomes.items():
        report.add(outcome, seed)
    first = -(-seeds.start // PAIR_INTERVAL) * PAIR_INTERVAL
    again, other_problem = run_process(report, first, seeds.stop, PAIR_INTERVAL, names, "random")
    with report.lock:
        for text in filter(None, (problem, other_problem)):
            report.fail(text)
        for seed, outcome in again.items():
            report.pairs += 1
            if seed in outcomes and outcome["digest"] != outcomes[seed]["digest"]:
                report.fail(f"seed {seed} did something else in another process: it depends on more than its seed")


def main() -> int:
    """Run the seeds, or take the exam, and print what came of it; the exit status."""
    if sys.argv[1:2] == ["exam"]:
        return exam.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="./run sim", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SERVICE", help=f"which services (all): {', '.join(SUBJECTS)}")
    parser.add_argument("--seeds", type=int, default=100_000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first one (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (%(default)s)")
    for world in WORLDS:
        parser.add_argument(f"--{world}", action="store_const", const=world, dest="world", help=f"simulate {world}s")
    parser.add_argument("--keep", type=_numbers, help="of one such seed, only the operations with these numbers: 1,2,5")
    parser.add_argument("--members", type=int, default=0, choices=MEMBERS, help="of each cluster (as the seed draws)")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.names or list(SUBJECTS)
    if unknown := [name for name in names if name not in SUBJECTS]:
        parser.error(f"unknown service {unknown[0]!r}: known are {', '.join(SUBJECTS)}")
    if options.work:
        first, end, step = map(int, options.work.split(":"))
        if options.world == "cluster":
            cluster_run.work(first, end, step, members=options.members)
        elif options.world:
            WORLDS[options.world].work(first, end, step)
        else:
            work(first, end, step, names)
        return 0
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: must be at least 1")
    if options.world and options.names:
        parser.error(f"--{options.world} simulates none of these services: leave out {' '.join(options.names)}")
    if options.keep is not None and not options.world:
        parser.error("--keep takes a part of a seed with a disk: give --archive, --node or --cluster as well")
    if options.members and options.world != "cluster":
        parser.error("--members is for clusters of nodes: give --cluster as well")
    if options.keep is not None:
        return show_part(options.world, options.first, options.keep, members=options.members)
    seeds = range(options.first, options.first + options.seeds)
    return simulate_all(seeds, names, options.jobs, world=options.world or "", members=options.members)


def _numbers(text: str) -> list[int]:
    """Take apart what --keep says."""
    try:
        return [int(each) for each in text.split(",") if each]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be numbers with commas, such as 1,2,5") from None


def show_part(world: str, seed: int, keep: Sequence[int], *, members: int = 0) -> int:
    """Run a part of the seed of a world with disks, and print what it finds; the exit status."""
    module = WORLDS[world]
    result = module.run_seed(seed, keep, **({"members": members} if members else {}))
    print("nothing was found" if result.violation is None else module.report(result, seed))
    return 0 if result.violation is None else 1


def simulate_all(seeds: range, names: Sequence[str], jobs: int, *, world: str = "", members: int = 0) -> int:
    """Run seeds in parallel; the exit status."""
    report, begin = Report(world=world, members=members), time.monotonic()
    parts = [range(first, min(first + CHUNK, seeds.stop)) for first in range(seeds.start, seeds.stop, CHUNK)]
    lock = threading.Lock()

    def run_parts() -> None:
        while True:
            with lock:
                if not parts or report.interrupted.is_set():
                    return
                part = parts.pop(0)
            run_part(part, names, report)
            print(_line(report, time.monotonic() - begin), flush=True)

    # A handler and no KeyboardInterrupt, which could leave a thread's start() and let its processes run on. This thread
    # never holds the lock that the handler takes.
    previous = signal.signal(signal.SIGINT, lambda *_: report.interrupt())
    threads = [threading.Thread(target=run_parts) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # with a limit: a signal that comes just before a wait does not end it
    signal.signal(signal.SIGINT, previous)
    if report.interrupted.is_set():
        print("\ninterrupted", flush=True)
    width = max(map(len, report.reached), default=0)
    for name, count in sorted(report.reached.items()):
        print(f"  {name:{width}} {count:>12,}")
    print(_line(report, time.monotonic() - begin))
    return 130 if report.interrupted.is_set() else 1 if report.failures else 0


def _line(report: Report, seconds: float) -> str:
    if report.world:
        names = ("power cuts", "kills", "bytes lost" if report.world == "archive" else "answers")
        counts = ", ".join(f"{report.reached[each]:,} {each}" for each in names)
        return (
            f"{report.seeds:,} seeds, {len(report.failures)} findings; {report.pairs:,} of them run twice; {counts}; "
            f"{report.seeds / seconds:,.1f} seeds/s"
        )
    return (
        f"{report.seeds:,} seeds, {len(report.failures)} findings; {report.pairs:,} of them run twice; "
        f"{report.delivered:,} messages delivered, {report.delivered / seconds:,.0f}/s; "
        f"{report.seeds / seconds * 60:,.0f} seeds/min; {report.virtual_ms / 1000 / seconds:,.0f} virtual s/s"
    )


if __name__ == "__main__":
    sys.exit(main())
