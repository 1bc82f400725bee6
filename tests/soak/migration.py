"""``./run soak --migration``: a cluster of Java's members becomes native under load, and Java's again.

One member after the other ends in order, as an operator ends it, and starts as the other kind over the same
directories: driver, archive, consensus module and service container. The leader is the last one each time. Clients send
all the while, a timer pends over each step, and services send messages to the cluster. Afterwards journals, snapshots
and answers are compared, as the soak compares them. Exit code 0: nothing was lost, nothing diverged, and no session
ended.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from container.errors import ContainerError
from container.testing.processes.java_tools import compile_java, resolve_jar
from container.testing.processes.local_cluster import LocalMember
from tests.soak.faults import ENDINGS
from tests.soak.ledger import Kind, Op
from tests.soak.scenario import ROOT, Fault, Scenario, Timing
from tests.soak.services import MAX_SERVICE_COUNT

KIND_NAMES = {"N": "native", "J": "Java's"}
PENDING_MS = 30_000
"""How long the timer pends that is scheduled just before each step: longer than a step takes."""
_TIMER_KEYS = 1 << 60


class Step(NamedTuple):
    """One member changed its kind: how much was under way then, and how long it took."""

    member_id: int
    letter: str
    was_leader: bool
    open_count: int
    """Timers and messages of services that were still to come when the member ended."""
    timing: Timing

    @property
    def role(self) -> str:
        """What the member was when it ended."""
        return "leader" if self.was_leader else "follower"

    def row(self, number: int) -> str:
        """A line of the report."""
        end_s, wait_s, whole_s = (f"{seconds:.1f}" for seconds in self.timing)
        cells = (number, self.member_id, KIND_NAMES[self.letter], self.role, self.open_count, end_s, whole_s, wait_s)
        return _line(cells)


_HEADS = ("step", "member", "becomes", "was then", "to come", "ended s", "whole s", "a client waited s")


def _line(cells: Iterable[object]) -> str:
    return "  ".join(f"{cell:>{len(head) + 1}}" for cell, head in zip(cells, _HEADS, strict=True))


class Migration:
    """Changes the members of a scenario, and keeps what was seen."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.steps: list[Step] = []

    def run(self, letters: Sequence[str]) -> None:
        """Have all members become of each of these kinds in turn.

        Raises:
            AssertionError, TimeoutError: something was lost, diverged or hangs.
        """
        for letter in letters:
            for member in self._in_order():
                self._change(member, letter)
            self.scenario.finish()
        assert [client.sessions_opened for client in self.scenario.clients] == [1] * len(self.scenario.clients)

    def _in_order(self) -> Iterator[LocalMember]:
        """The followers one after the other, and the leader last: as many elections as there must be."""
        left = list(self.scenario.cluster.members)
        while left:
            leader = self.scenario.leader()
            member = next((each for each in left if each is not leader), left[0])
            left.remove(member)
            yield member

    def _change(self, member: LocalMember, letter: str) -> None:
        scenario = self.scenario
        was_leader = scenario.leader() is member
        scenario.command(Op.TIMER, _TIMER_KEYS + len(self.steps), PENDING_MS)
        open_count = scenario.clients[0].read().open_count
        name = f"member {member.member_id} becomes {KIND_NAMES[letter]}"
        scenario.inject(
            Fault(name, partial(self._replace, member=member, letter=letter), errors=ENDINGS), random.Random()
        )
        step = Step(member.member_id, letter, was_leader, open_count, scenario.timings[name][-1])
        self.steps.append(step)
        what = f"member {step.member_id}, {step.role}, has become {KIND_NAMES[letter]}"
        scenario.say(f"{what}: a client waited {step.timing.longest_wait_s:.1f} s")

    @staticmethod
    def _replace(scenario: Scenario, _choice: random.Random, *, member: LocalMember, letter: str) -> None:
        member.stop(scenario.end_limit_s(member))
        scenario.note_end()
        scenario.await_progress()
        scenario.change_kind(member, letter)
        scenario.recover(member)

    def report(self) -> str:
        """What was done and found."""
        scenario = self.scenario
        findings, ledger = scenario.check()
        rows: list[tuple[str, int]] = [
            ("messages acknowledged", sum(client.acknowledged for client in scenario.clients)),
            ("messages sent again", sum(client.resent for client in scenario.clients)),
            ("sessions", len(scenario.clients)),
            ("  opened", findings.lived[Kind.SESSION_OPEN]),
            ("  closed", findings.lived[Kind.SESSION_CLOSE]),
            ("timers fired", ledger.totals.timers_fired),
            ("service messages", ledger.totals.relays_back),
            ("events compared", findings.events),
            ("starts of services compared", findings.runs),
            ("losses", len(findings.losses)),
            ("divergences", len(findings.divergences)),
            ("starts that failed and were tried again", scenario.failed_starts),
            ("repairs by hand", scenario.repairs.total()),
            ("unexpected errors of our containers", len(scenario.unexpected_errors())),
        ]
        steps = [step.row(number) for number, step in enumerate(self.steps, start=1)]
        totals = [f"{name:40}{value:>12,}" for name, value in rows]
        return "\n".join([_line(_HEADS), *steps, "", *totals])


def migrate(
    classes: Path,
    *,
    seed: int,
    members: int,
    services: int,
    rate: float,
    say: Callable[[str], None],
) -> str:
    """Run it, from Java's members to native ones and back; the report.

    Raises:
        AssertionError, TimeoutError: something was lost, diverged or hangs.
    """
    with Scenario(classes, seed=seed, rate=rate, kinds="J" * members, service_count=services, say=say) as scenario:
        migration = Migration(scenario)
        migration.run("NJ")
        return migration.report()


def main(arguments: Sequence[str]) -> int:
    """Run it; 0 when nothing was lost."""
    parser = argparse.ArgumentParser(prog="./run soak --migration", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides the clients' commands (default 1)")
    parser.add_argument("--members", type=int, choices=(3, 5), default=3, help="how many (default 3)")
    parser.add_argument("--rate", type=float, default=300.0, help="commands per second of each client (default 300)")
    parser.add_argument(
        "--services", type=int, choices=range(1, MAX_SERVICE_COUNT + 1), default=1, help="of each member (default 1)"
    )
    options = parser.parse_args(arguments)
    begin_s = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin_s:6.1f} s] {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="migration-classes-") as directory:
        sources = sorted((ROOT / "tests" / "java").glob("*.java"))
        classes = compile_java(sources, Path(directory), [resolve_jar()])
        try:
            print("\n" + migrate(classes, **vars(options), say=say), flush=True)
        except (AssertionError, ContainerError, OSError) as error:
            path = ROOT / "build" / "soak" / f"failure-migration-{options.seed}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{error}\n" + "\n".join(getattr(error, "__notes__", ())))
            say(f"FAILED: {type(error).__name__}: " + "\n".join(str(error).splitlines()[:20]))
            say(f"what all members said: {path}")
            return 1
    return 0
