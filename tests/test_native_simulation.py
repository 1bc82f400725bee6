"""A user's service in a simulated cluster of whole nodes: what is found, what is not, and what is refused."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)
from container.errors import ConfigurationError
from container.snapshots import read_snapshot, write_snapshot
from container.testing.simulation import Checks, NativePlan, Plan, SimulationFailure, Step, simulate
from container.testing.simulation.nodes import log as agreed
from container.testing.simulation.nodes.cluster import expand
from container.testing.simulation.nodes.recorded import TERM_LENGTH
from container.testing.simulation.nodes.service_plan import expand_native
from container.testing.simulation.nodes.service_world import LONGEST_PAYLOAD, log_of
from tests.recorded_frames import Frames
from tests.sim.services import SUBJECTS, Subject, ledger_payload

PAYLOADS = (b"abc", b"de")


class Sum(msgspec.Struct):
    """The state of these services."""

    total: int = 0


class Adding(ClusteredService):
    """Adds the lengths of messages."""

    def __init__(self) -> None:
        self.sum, self.seen = Sum(), 0
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.sum = read_snapshot(snapshot_image, Sum)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.sum)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.sum.total += len(buffer)
        self.seen += 1
        self.answer(session)

    def answer(self, session: ClientSession | None) -> None:
        if session is not None:
            session.send(b"%d" % self.sum.total)


class Random(Adding):
    """Has a number in its state that the log does not lead to."""

    def answer(self, session: ClientSession | None) -> None:
        self.sum.total += random.randrange(1 << 30)
        super().answer(session)


class Leading(Adding):
    """Counts only where it leads."""

    def answer(self, session: ClientSession | None) -> None:
        self.sum.total += int(self.cluster.role)


class Forgetful(Adding):
    """Answers with what it has not put into its snapshot."""

    def answer(self, session: ClientSession | None) -> None:
        if session is not None:
            session.send(b"%d" % self.seen)


class Raising(Adding):
    """Does not like the third message."""

    def answer(self, session: ClientSession | None) -> None:
        if self.seen == 3:
            raise LookupError("no third one")


def all_of(service: Forgetful) -> tuple[int, int]:
    return service.sum.total, service.seen


def plan_of(*kinds: str, members: int = 3) -> NativePlan:
    plain = replace(
        expand_native(3, members=members), level=1, latency_us=(50, 200), clock_offsets_ms=(0,) * 7, drifts_ppm=(0,) * 7
    )
    return replace(plain, operations=tuple(Step(number, kind, number) for number, kind in enumerate(kinds)))


RESTARTED = plan_of("connect", "send", "send", "snapshot", "work", "roll", "connect", "send", "work")
"""All start again from a snapshot, and have more messages then."""


def failure_of(service: type[ClusteredService], plan: NativePlan, **options: Any) -> SimulationFailure:
    """Of a run of a plan, which must fail."""
    with pytest.raises(SimulationFailure) as failure:
        simulate(service, consensus="native", plan=plan, payloads=PAYLOADS, **options)
    return failure.value


@pytest.mark.parametrize("name", SUBJECTS)
def test_services_that_are_right_pass(name: str) -> None:
    subject: Subject = SUBJECTS[name]
    checks = msgspec.structs.replace(subject.checks(), payloads=subject.payload)
    for seed in (15, 36):
        result = checks.run(expand_native(seed))
        assert result.finding is None, str(checks.failure(result))


def test_a_run_says_what_it_came_to() -> None:
    result = simulate(SUBJECTS["ledger"].service, consensus="native", plan=RESTARTED, payloads=ledger_payload)
    assert isinstance(result.plan, NativePlan)
    assert result.finding is None
    assert min(result.logged, result.delivered, result.virtual_ms) > 0
    assert result.delivered >= 3 * result.logged
    assert result.reached["snapshots read"] > 0 < result.reached["answers"]


def test_a_seed_does_the_same_again_and_another_one_something_else() -> None:
    first, second, other = (
        simulate(Adding, consensus="native", seed=seed, payloads=PAYLOADS, operations=8) for seed in (5, 5, 6)
    )
    assert first == second
    assert first.digest != other.digest
    assert len(first.plan.operations) <= 9 + 6  # those that are rare come beside


def test_chance_in_a_state_is_found_and_named() -> None:
    failure = failure_of(Random, plan_of("connect", "send", "work"))
    assert failure.finding.oracle == "state"
    assert "Sum.total" in failure.finding.text
    assert "This failure does not repeat" in str(failure)


def test_a_state_that_depends_on_who_leads_is_found_and_repeats(tmp_path: Path) -> None:
    failure = failure_of(Leading, plan_of("connect", "work", "send", "pause", "work"))
    assert failure.finding.oracle == "state"
    assert isinstance(failure.plan, NativePlan)
    assert [each.kind for each in failure.plan.operations] == ["connect", "send"]
    again = failure_of(Leading, failure.plan)
    assert (again.finding, again.plan) == (failure.finding, failure.plan)
    path = tmp_path / "test_found.py"
    path.write_text(failure.script)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert failure.finding.text in done.stdout


def test_what_a_snapshot_has_not_is_found_by_answers() -> None:
    failure = failure_of(Forgetful, RESTARTED)
    assert failure.finding.oracle == "answers"
    assert "a service that has the whole log answers" in failure.finding.text
    assert "consensus='native'" in failure.script


def test_what_a_snapshot_has_not_is_found_by_a_state_that_shows_it() -> None:
    failure = failure_of(Forgetful, plan_of("connect", "send", "snapshot", "work", "roll"), state=all_of)
    assert failure.finding.oracle == "state"
    assert "in its life 2" in failure.finding.text


def test_a_service_that_raises_is_found_with_what_it_raised() -> None:
    failure = failure_of(Raising, plan_of("connect", "send", "send", "send"))
    assert failure.finding.oracle == "end"
    assert "by LookupError: 'no third one'" in failure.finding.text or "LookupError: no third one" in str(failure)


def test_an_event_that_is_not_the_log_s_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = agreed.opened_with
    monkeypatch.setattr(agreed, "opened_with", lambda message: (opened(message)[0], b"somebody"))
    failure = failure_of(Adding, plan_of("connect"))
    assert failure.finding.oracle == "delivery"
    assert "expected session open" in failure.finding.text
    assert failure.finding.member is not None


def test_a_plan_keeps_the_rare_operations_that_come_before_its_last() -> None:
    plan = next(plan for plan in map(expand, range(1_000)) if plan.operations[2].number >= 1_000)
    numbers = [each.number for each in plan.operations]
    assert plan.numbers(numbers[3]) == numbers[:4]
    assert plan.numbers(-1) == []


def test_a_log_is_made_of_its_frames() -> None:
    def padding(length: int) -> bytes:
        return struct.pack("<iBBHiiiiq", length, 0, 0xC0, 0, 0, 77, 100, 0, 0).ljust(length, b"\0")

    content = Frames(stream_id=100).block(0, b"one") + padding(128) + Frames(stream_id=100).block(192, b"two")
    content += padding(TERM_LENGTH - len(content)) + Frames(stream_id=100).block(TERM_LENGTH, b"three")
    log = log_of(content)
    assert log.tail_position == len(content)
    assert [(each.position, each.payload) for each in log.frames() if each.type] == [
        (0, b"one"),
        (192, b"two"),
        (TERM_LENGTH, b"three"),
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"consensus": "raft"}, "consensus='raft': must be 'simulated' or 'native'"),
        ({"consensus": None}, "consensus=None: must be 'simulated' or 'native'"),
        ({"members": 4}, "members=4: must be 3, 5 or 7 with consensus='native'"),
        ({"members": True}, "members=True: must be 3, 5 or 7 with consensus='native'"),
        ({"seed": -1}, "seed=-1: must be a whole number from 0 to "),
        ({"operations": -1}, "operations=-1: must be a whole number from 0 to "),
        ({"time_unit": TimeUnit.NANOS}, "time_unit=.*: cluster time is in milliseconds with 'native'"),
        ({"plan": Plan()}, r"plan=Plan\(\): must be a NativePlan with consensus='native'"),
        ({"plan": replace(plan_of(), members=2)}, "members=2: must be 3, 5 or 7"),
        ({"plan": replace(plan_of(), services=2)}, "services=2: must be a whole number from 1 to 1"),
        (
            {"plan": plan_of("dance")},
            r"operations\[0\]=Step\(.*'dance'.*\): must be a Step of one of the kinds ",
        ),
        ({"service": object}, "object"),
        ({"service": 3}, "service=3: must be a class, or a function that makes one"),
        ({"payloads": [3], "plan": plan_of("connect", "send", "send")}, "payloads: 3 must be bytes"),
        (
            {"payloads": [bytes(LONGEST_PAYLOAD + 1)], "plan": plan_of("connect", "send", "send")},
            "payloads: one has 8161 bytes: 8160 at most with consensus='native'",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        simulate(**{"service": Adding, "consensus": "native", **options})


def test_the_longest_payload_is_delivered() -> None:
    plan = plan_of("connect", "send", "send", "send")
    payloads = [bytes(LONGEST_PAYLOAD)]
    result = Checks(service=Adding, payloads=payloads, state=lambda service: service.seen).run(plan)
    assert result.finding is None
    assert result.reached["answers"] > 0


def test_a_plan_of_whole_nodes_is_for_them() -> None:
    with pytest.raises(ConfigurationError, match=r"plan=NativePlan\(.*: must be a Plan"):
        simulate(Adding, plan=plan_of())
