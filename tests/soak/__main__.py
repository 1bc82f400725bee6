"""The soak, ``./run soak --seed N --minutes M``: a seeded schedule of faults against a mixed cluster under load.

The seed decides the faults, their order, their parameters and the clients' commands; a failure is found again with the
same seed. Faults that this machine cannot make are left out, which is said. Exit code 0: nothing was lost and nothing
diverged. ``./run soak --archive``, ``--node`` and ``--migration`` are others: kills of an archive's process and of a
node's, and members that change their kind.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

from container.errors import ContainerError
from container.testing.processes import network
from container.testing.processes.endpoints import MEMBER_COUNTS
from container.testing.processes.java_tools import compile_java, resolve_jar
from container.testing.processes.local_archive import ArchiveKind
from tests.linearizable.soak_history import SoakHistory
from tests.soak import archive_kills, disk, migration, node_kills, warp
from tests.soak.faults import FAULTS
from tests.soak.ledger import Kind
from tests.soak.resource_watch import KINDS
from tests.soak.scenario import LIMITED_MEMBER_ID, PART_KINDS, ROOT, Fault, Scenario
from tests.soak.services import MAX_SERVICE_COUNT

ARCHIVES: dict[str, Sequence[ArchiveKind]] = {
    "java": ("java",),
    "native": ("native",),
    "mixed": ("java", "native"),
}
"""By the option's word: the kinds, which the members take in turn."""
COUNTS = [count for count in MEMBER_COUNTS if count >= 3]
_CHECK_EVERY = 5
_BEGIN = time.monotonic()


def say(text: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGIN:6.1f} s] {text}", flush=True)


def usable_faults() -> list[Fault]:
    """The faults that this machine can make; says which it cannot."""
    reasons = {
        "network": network.unavailable_reason(),
        "disk": disk.unavailable_reason(),
        "warp": warp.unavailable_reason(),
    }
    faults = []
    for fault in FAULTS.values():
        reason = reasons.get(fault.needs or "")
        if reason is None:
            faults.append(fault)
        else:
            say(f"without {fault.name}: {reason}")
    return faults


def schedule(faults: list[Fault], seed: int) -> Iterator[tuple[Fault, random.Random]]:
    """Rounds of all faults, shuffled: each kind comes early, and each follows on each sooner or later."""
    choice = random.Random(seed)
    while True:
        in_round = list(faults)
        choice.shuffle(in_round)
        for fault in in_round:
            yield fault, random.Random(choice.getrandbits(64))


def members_of(text: str) -> int | str:
    """How many members, all of Java's, or a letter for each: N is native, J is Java's."""
    if text.isdecimal() and int(text) in COUNTS:
        return int(text)
    if len(text) in COUNTS and set(text) <= set(PART_KINDS):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is none of {COUNTS}, nor as many letters N and J, such as NNJ")


def soak(arguments: argparse.Namespace, classes: Path | None) -> int:
    """Run faults until the time is over; returns the exit code."""
    members = arguments.members
    count = members if isinstance(members, int) else len(members)
    faults = usable_faults()
    if arguments.fault:
        faults = [fault for fault in faults if fault.name in arguments.fault]
    needs = {fault.needs for fault in faults}
    scenario = Scenario(
        classes,
        seed=arguments.seed,
        rate=arguments.rate,
        member_count=count,
        kinds=None if isinstance(members, int) else members,
        service_count=arguments.services,
        has_network="network" in needs,
        has_small_disk="disk" in needs,
        has_warps="warp" in needs,
        separate_processes={LIMITED_MEMBER_ID},
        archives=list(islice(cycle(ARCHIVES.get(arguments.archives, ())), count)),
        history=SoakHistory.if_possible(say),
        say=say,
    )
    what = f"{len(faults)} kinds of faults, services of each member: {arguments.services}"
    say(f"seed {arguments.seed}, {arguments.minutes:g} minutes, {what}")
    try:
        return run(scenario, arguments, faults)
    except (AssertionError, ContainerError, OSError) as error:
        return tell_failure(arguments, error)


def run(scenario: Scenario, arguments: argparse.Namespace, faults: list[Fault]) -> int:
    """Run faults until the time is over; returns the exit code."""
    with scenario:
        members = arguments.members
        if isinstance(members, int):
            say(f"member 0 of {members} runs a Java service container, the others run ours; clients send")
        else:
            say(f"members {members}, where all parts of N are ours and all of J are Java's; clients send")
        end = time.monotonic() + 60 * arguments.minutes
        for number, (fault, choice) in enumerate(schedule(faults, arguments.seed), start=1):
            scenario.inject(fault, choice)
            timing = scenario.timings[fault.name][-1]
            ended = f"parts ended after {timing.end_s:.1f} s, " if timing.end_s else ""
            say(
                f"{number:3}. {fault.name}: {ended}a client waited {timing.longest_wait_s:.1f} s, "
                f"whole again after {timing.whole_s:.1f} s"
            )
            if time.monotonic() >= end:
                break
            if number % _CHECK_EVERY == 0:
                scenario.check()
                scenario.resume()
            else:
                scenario.take_stock()
        return report(scenario)


def tell_failure(arguments: argparse.Namespace, error: Exception) -> int:
    """Print what went wrong, and write all that the members said into a file; returns the exit code."""
    path = ROOT / "build" / "soak" / f"failure-seed-{arguments.seed}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(traceback.format_exception(error)))
    first_lines = "\n".join(str(error).splitlines()[:20])
    say(f"FAILED: {type(error).__name__}: {first_lines}")
    again = f"./run soak --seed {arguments.seed} --members {arguments.members} --services {arguments.services}"
    if arguments.archives is not None:
        again += f" --archives {arguments.archives}"
    say(f"what all members said: {path}; the same again: {again}")
    return 1


def report(scenario: Scenario) -> int:
    """Print what was done and found; returns the exit code."""
    findings, ledger = scenario.check()
    errors = Counter((error.file_name, error.text.partition("\n")[0]) for error in scenario.all_errors())
    unexpected = scenario.unexpected_errors()
    resources = scenario.resources
    rows: list[tuple[str, object]] = [
        ("messages acknowledged", sum(client.acknowledged for client in scenario.clients)),
        ("messages sent again", sum(client.resent for client in scenario.clients)),
        ("sessions opened", findings.lived[Kind.SESSION_OPEN]),
        ("sessions closed", findings.lived[Kind.SESSION_CLOSE]),
        ("snapshots", findings.lived[Kind.SNAPSHOT]),
        ("role changes of all services", findings.lived[Kind.ROLE]),
        ("timers fired", ledger.totals.timers_fired),
        ("service messages", ledger.totals.relays_back),
        ("log position", max(member.node.commit_position or 0 for member in scenario.cluster.members)),
        ("journals compared", findings.runs),
        ("events compared", findings.events),
        ("faults injected", sum(map(len, scenario.timings.values()))),
        *((f"  {name}", len(timings)) for name, timings in sorted(scenario.timings.items())),
        ("starts that Java's parts gave up", scenario.failed_starts),
        ("repairs by hand", scenario.repairs.total()),
        *((f"  {what}", count) for what, count in sorted(scenario.repairs.items())),
        ("seconds without an answer beside slow clients", scenario.stalls),
        ("operations in checked histories", scenario.history.checked if scenario.history is not None else 0),
        ("divergences", len(findings.divergences)),
        ("losses", len(findings.losses)),
        ("error log entries", errors.total()),
        ("unexpected ones of our containers", len(unexpected)),
        ("counts of resources compared", resources.comparisons),
        ("  processes of our containers", resources.processes),
        *((f"  {name} in between", count) for name, count in resources.lived.items()),
        ("resource growth", resources.growth.total()),
        *((f"  {kind}", resources.growth[kind]) for kind in KINDS),
    ]
    width = max(len(name) for name, _value in rows)
    print("\n" + "\n".join(f"{name:{width}}  {value:>12}" for name, value in rows), flush=True)
    print_timings(scenario, width)
    print("\nerror log entries by file and first line:", flush=True)
    for (name, text), count in sorted(errors.items()):
        print(f"{count:4}  {name}: {text}", flush=True)
    for text, count in Counter(unexpected).most_common(20):
        print(f"\nunexpected, {count} times: {text}", flush=True)
    for text in resources.findings:
        print(f"\ngrown: {text}", flush=True)
    return 1 if unexpected or resources.findings else 0


def print_timings(scenario: Scenario, width: int) -> None:
    """Print, for each fault, the shortest and the longest times."""
    heads = ("parts ended after s", "a client waited s", "whole again after s")
    print(f"\n{'fault':{width}}  " + "  ".join(f"{head:>19}" for head in heads), flush=True)
    for name, timings in sorted(scenario.timings.items()):
        spans = [f"{min(column):.1f} to {max(column):.1f}" for column in zip(*timings, strict=True)]
        if not any(timing.end_s for timing in timings):
            spans[0] = "none ends"
        print(f"{name:{width}}  " + "  ".join(f"{span:>19}" for span in spans), flush=True)


def main(start: Callable[[argparse.Namespace, Path | None], int] = soak) -> int:
    """Parse arguments, compile the Java service and run."""
    parser = argparse.ArgumentParser(
        prog="./run soak",
        description=__doc__.partition("\n")[0] if __doc__ else None,
        epilog="With --archive, --node or --migration as its first argument it is another one, with arguments of its "
        "own: see ./run soak --archive --help.",
    )
    parser.add_argument("--seed", type=int, default=1, help="decides everything that is chosen (default 1)")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to inject faults (default 10)")
    parser.add_argument("--rate", type=float, default=300.0, help="commands per second of each client (default 300)")
    parser.add_argument(
        "--members",
        type=members_of,
        default=3,
        help="how many, with Java's consensus modules, or a letter for each: N is native, J is Java's (default 3)",
    )
    parser.add_argument(
        "--services", type=int, choices=range(1, MAX_SERVICE_COUNT + 1), default=1, help="of each member (default 1)"
    )
    parser.add_argument(
        "--archives", choices=ARCHIVES, help="whose archives the members have (default: as the rest of each member)"
    )
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only this one; may be given again")
    arguments = parser.parse_args()
    if isinstance(arguments.members, str) and "J" not in arguments.members:
        return start(arguments, None)
    with tempfile.TemporaryDirectory(prefix="soak-classes-") as directory:
        sources = sorted((ROOT / "tests" / "java").glob("*.java"))
        return start(arguments, compile_java(sources, Path(directory), [resolve_jar()]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--archive"]:
        sys.exit(archive_kills.main(sys.argv[2:]))
    if sys.argv[1:2] == ["--node"]:
        sys.exit(node_kills.main(sys.argv[2:]))
    if sys.argv[1:2] == ["--migration"]:
        sys.exit(migration.main(sys.argv[2:]))
    sys.exit(main())
