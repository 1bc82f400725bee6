"""Runs a plan, compares what clients received with a reference, and reports what was found."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec

from container.api import TimeUnit
from container.common.differences import NOTHING, shown_apart
from container.common.values import counted, shown
from container.errors import ConfigurationError, ContainerError, ForkedError
from container.service.given_service import made_by
from container.settings.callback_errors import HALT
from container.testing.memory.memory_member import Service, ServiceFactory
from container.testing.simulation.answers import compare_answers
from container.testing.simulation.nodes.cluster import NativePlan, smallest
from container.testing.simulation.nodes.disk_world import Result
from container.testing.simulation.nodes.service_plan import check_native, expand_native
from container.testing.simulation.nodes.service_world import Run, handler_of, run_service
from container.testing.simulation.plan import Plan, check
from container.testing.simulation.reference import reference_answers
from container.testing.simulation.run_report import STORY_LINES, Story, report_of, script_of
from container.testing.simulation.shrink import shrink
from container.testing.simulation.simulated_cluster import Answer, Finding, SimulatedCluster
from container.testing.simulation.swarm import Payloads, expand

SIMULATED, NATIVE = "simulated", "native"
"""The consensus modules of a run: played, or the package's own in whole nodes."""
_OPERATIONS = 80
_PROBE_EVERY = 8
"""Events between two looks at the state, until something is found."""


class Simulation(msgspec.Struct, frozen=True):
    """The result of a run."""

    plan: Plan | NativePlan
    """The plan that was run."""
    finding: Finding | None
    """The first thing that was wrong; ``None`` if nothing was."""
    digest: int
    """A digest of all events, in order: the same plan gives the same digest."""
    delivered: int
    """Callbacks of the log, over all members and lives."""
    logged: int
    """Messages of the agreed log."""
    reached: dict[str, int]
    """How often it came to what runs sometimes come to: faults by kind, elections, replays, answers."""
    virtual_ms: float
    """The duration of the run, in milliseconds of virtual time."""


class SimulationFailure(ContainerError):
    """A simulated cluster did what it must not. The text is the whole report.

    ``seed`` (int), ``plan`` (:class:`Plan` or :class:`NativePlan`, as short as it became), ``finding``
    (:class:`Finding`) and ``script`` (str, a test in Python that repeats it) are there for further work.
    """

    def __init__(self, report: str, *, seed: int, plan: Plan | NativePlan, finding: Finding, script: str) -> None:
        super().__init__(report)
        self.seed = seed
        self.plan = plan
        self.finding = finding
        self.script = script


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is looked at: what stays the same for all plans of a service.

    ``payloads`` is for a :class:`NativePlan`: its clients draw them when they send.
    """

    service: ServiceFactory
    """A maker of the service."""
    payloads: Payloads = ()
    state: Callable[[Any], Any] | None = None
    """A function that returns the state to compare of a service; ``None`` compares snapshots."""
    tolerates: Callable[[BaseException], bool] | None = None
    """A function that returns True for an expected error; ``None`` expects none."""
    callback_error_policy: str = HALT
    """The container's setting, ``halt`` or ``skip``."""

    def run(
        self,
        plan: Plan | NativePlan,
        *,
        probe_every: int = _PROBE_EVERY,
        narrate: Callable[[str], object] | None = None,
    ) -> Simulation:
        """Run a plan once, and return what it did; ``finding`` is None when nothing was wrong.

        ``narrate`` is called with each line of the story of a :class:`Plan`.
        """
        if isinstance(plan, NativePlan):
            return _result_of(self._run_native(plan, probe_every))
        return self._run(plan, probe_every, narrate)[0]

    def _run(
        self, plan: Plan, probe_every: int, narrate: Callable[[str], object] | None
    ) -> tuple[Simulation, SimulatedCluster]:
        is_collecting, process = gc.isenabled(), os.getpid()
        logger, silence = logging.getLogger("container"), logging.NullHandler()
        try:
            gc.disable()  # finalizers must not run at arbitrary moments
            logger.addHandler(silence)
            cluster = SimulatedCluster(
                plan,
                self._made,
                state=self.state,
                tolerates=self.tolerates,
                callback_error_policy=self.callback_error_policy,
                probe_every=probe_every,
                narrate=narrate,
            )
            cluster.run()
            _check_process(process)
            if not cluster.findings:
                _compare_answers(cluster)
            return _result(plan, cluster), cluster
        finally:
            logger.removeHandler(silence)
            if is_collecting:
                gc.enable()

    def _given(self) -> dict[str, Any]:
        given = {field.name: getattr(self, field.name) for field in msgspec.structs.fields(self)}
        return {name: value for name, value in given.items() if name == "service" or value not in (None, HALT, ())}

    def _made(self) -> Service:
        if not callable(self.service):
            raise ConfigurationError(f"service={shown(self.service)}: must be a class, or a function that makes one")
        service: Service = made_by(self.service, f"service={shown(self.service)}")
        return service

    def _run_native(self, plan: NativePlan, probe_every: int) -> Run:
        process = os.getpid()
        run = run_service(
            plan,
            self._made,
            payloads=self.payloads,
            state=self.state,
            tolerates=self.tolerates,
            callback_error_policy=self.callback_error_policy,
            probe_every=probe_every,
        )
        _check_process(process)
        return run

    def failure(self, first: Simulation) -> SimulationFailure:
        """Shrink the plan of a failed run, and report it with the first position at which something is wrong."""
        assert first.finding is not None
        if isinstance(first.plan, NativePlan):
            return self._native_failure(first.plan, first.finding)
        oracle = first.finding.oracle
        runs, probe_every = 0, 1

        def fails(plan: Plan) -> bool:
            nonlocal runs
            runs += 1
            found = self.run(plan, probe_every=probe_every).finding
            return found is not None and found.oracle == oracle

        if not fails(first.plan):  # looking at the state more often shows something else, or nothing
            probe_every = _PROBE_EVERY
        plan = shrink(first.plan, fails, last_ms=first.finding.time_ms)
        story = Story()
        again, cluster = self._run(plan, probe_every, story)
        repeats = again.finding is not None and again.finding == self.run(plan, probe_every=probe_every).finding
        finding = again.finding or first.finding
        given = self._given()
        given.pop("payloads", None)  # they are in the plan
        script = script_of(plan, finding, **given)
        lines = [*story.lines, "", cluster.describe()] if again.finding is not None else []
        members, operations = counted(plan.members, "member"), counted(len(plan.operations), "operation")
        shrunk = f"{members}, {operations} and {counted(len(plan.faults), 'fault')}"
        report = report_of(finding, plan.seed, f"{shrunk} in {counted(runs, 'run')}", lines, script, repeats)
        return SimulationFailure(report, seed=plan.seed, plan=plan, finding=finding, script=script)

    def _native_failure(self, plan: NativePlan, first: Finding) -> SimulationFailure:
        """Shrink a plan of whole nodes, and report it."""
        runs, probe_every = 0, 1

        def run(plan: NativePlan) -> Result[NativePlan]:
            nonlocal runs
            runs += 1
            return self._run_native(plan, probe_every).result

        found = run(plan)
        if found.violation is None or found.violation.oracle != first.oracle:
            probe_every = _PROBE_EVERY  # looking at the state more often shows something else, or nothing
            found = run(plan)
        if found.violation is not None:
            found = smallest(found, run=run)
            plan = found.plan.only(found.plan.numbers(found.last))
        again = self._run_native(plan, probe_every)
        repeats = again.finding is not None and again.finding == self._run_native(plan, probe_every).finding
        finding = again.finding or first
        script = script_of(plan, finding, consensus=NATIVE, **self._given())
        shrunk = (
            f"{counted(plan.members, 'member')} and {counted(len(plan.operations), 'step')} in {counted(runs, 'run')}"
        )
        lines = again.result.log[-STORY_LINES:] if again.finding is not None else []
        report = report_of(finding, plan.seed, shrunk, lines, script, repeats)
        return SimulationFailure(report, seed=plan.seed, plan=plan, finding=finding, script=script)


def _check_process(process: int) -> None:
    """The findings of another process are not those of the run, and to shrink it forks again and again."""
    if os.getpid() != process:
        raise ForkedError("a callback forked, and the child continued the simulation: end it by os._exit()")


def _result_of(run: Run) -> Simulation:
    return Simulation(
        plan=run.result.plan,
        finding=run.finding,
        digest=run.digest,
        delivered=run.delivered,
        logged=run.logged,
        reached=dict(sorted((+run.result.stats).items())),
        virtual_ms=run.virtual_ms,
    )


def _result(plan: Plan, cluster: SimulatedCluster) -> Simulation:
    return Simulation(
        plan=plan,
        finding=cluster.findings[0] if cluster.findings else None,
        digest=cluster.trace.digest,
        delivered=cluster.delivered,
        logged=len(cluster.entries),
        reached=cluster.reached,
        virtual_ms=cluster.elapsed_ms,
    )


def _compare_answers(cluster: SimulatedCluster) -> None:
    """Check that clients received the answers of the reference, in its order, each once; some may be missing."""
    wanted = reference_answers(cluster, cluster.log)
    if cluster.findings:
        return
    received: dict[int, list[Answer]] = {}
    for reign in cluster.reigns:
        for session_id, answer in reign.egress:
            received.setdefault(session_id, []).append(answer)
    compare_answers(received, wanted, cluster.find)
    if cluster.findings:
        return
    if not cluster.plan.faults and (missing := _missing_answer(received, wanted)):
        cluster.find("answers", f"without any fault, {missing} did not come")
    _compare_last_answers(cluster, wanted)


def _compare_last_answers(cluster: SimulatedCluster, wanted: dict[int, list[Answer]]) -> None:
    """The last leader has sent all answers of its term, unless offers of its failed."""
    reign = cluster.reign
    if reign is None or reign.leader.fails_offers:
        return
    begin = next(entry.timestamp for entry in cluster.entries if entry.position > reign.base)
    for session_id, answers in sorted(wanted.items()):
        due = [answer for answer in answers if answer[1] > begin]
        came = [answer for other_id, answer in reign.egress if other_id == session_id and answer[1] > begin]
        for number, (one, other) in enumerate(zip_longest(came, due, fillvalue=NOTHING)):
            if one != other:
                left, right = shown_apart(one, other)
                cluster.find(
                    "answers",
                    f"the leader of the last term, which began at {begin}, sent session {session_id} {left} as answer "
                    f"{number}, and not {right}",
                    reign.leader,
                )
                return


def _missing_answer(received: dict[int, list[Answer]], wanted: dict[int, list[Answer]]) -> str:
    """The first answer that did not come, of those that did in their order; nothing when all came."""
    for session_id, due in sorted(wanted.items()):
        for number, (answer, came) in enumerate(zip_longest(due, received.get(session_id, []))):
            if answer != came:
                return f"answer {number} to session {session_id}, {shown(answer)},"
    return ""


def simulate(
    service: ServiceFactory,
    *,
    seed: int = 1,
    payloads: Payloads = (),
    members: int | None = None,
    operations: int | None = None,
    time_unit: TimeUnit | None = None,
    plan: Plan | NativePlan | None = None,
    consensus: str = SIMULATED,
    state: Callable[[Any], Any] | None = None,
    tolerates: Callable[[BaseException], bool] | None = None,
    callback_error_policy: str = HALT,
) -> Simulation:
    """Run a simulated cluster of ``service`` (a class, or a function that makes one); return what it did.

    ``seed`` decides everything: what clients do, when each part has its turn, and what goes wrong. The same seed gives
    the same run. Clients send ``payloads`` (a sequence of bytes, or a function that draws one from a
    ``random.Random``), and some that are damaged; without any they send random bytes. ``members`` is 1, 3 or 5 by the
    seed, unless given; ``operations`` is about how much clients and operators do, 80 unless given. ``time_unit`` is
    that of cluster time, in most seeds milliseconds unless given. A ``plan`` takes the place of all these.

    With ``consensus="native"`` each member is a whole node: consensus module, archive and container of this package, on
    a simulated disk and network. It has 3, 5 or 7 members, 3 or 5 by the seed, as many operations as the seed draws,
    payloads of 8,160 bytes at most, and milliseconds as its time unit. Its ``plan`` is a :class:`NativePlan`, as a
    report prints it; clients draw ``payloads`` in the run. A seed takes some thirty times as long.

    The members' states are compared after every few events, those of a given plan after each: by the messages that
    ``on_take_snapshot`` writes, or by what ``state(service)`` returns, which must be cheap, change nothing and compare
    with ``==``. ``tolerates(error)`` says of an error that the container reports, such as one of
    ``do_background_work``, whether it is expected. ``callback_error_policy`` is the container's setting, ``"halt"`` or
    ``"skip"``.

    Raises:
        SimulationFailure: a member's state, snapshot, requests or answers differ, something was delivered twice, late
            or not at all, the service raised, or the cluster came to a halt; with native consensus modules, also when
            the cluster breaks a promise of its own. The text is a report: what was found, a short script that repeats
            it, and what happened last.
        ConfigurationError: an argument is wrong.
    """
    __tracebackhide__ = True  # pytest shows the report, and not where it was made
    checks = Checks(
        service=service,
        payloads=payloads,
        state=state,
        tolerates=tolerates,
        callback_error_policy=callback_error_policy,
    )
    is_drawn = plan is None
    if consensus not in (SIMULATED, NATIVE):
        raise ConfigurationError(f"consensus={shown(consensus)}: must be {SIMULATED!r} or {NATIVE!r}")
    if consensus == NATIVE:
        if time_unit is not None:
            raise ConfigurationError(f"time_unit={shown(time_unit)}: cluster time is in milliseconds with {NATIVE!r}")
        handler_of(checks._made())  # anything but a service is refused before a node starts
        if plan is None:
            plan = expand_native(seed, members=members, steps=operations)
        check_native(plan)
    else:
        if plan is None:
            count = _OPERATIONS if operations is None else operations
            plan = expand(seed, payloads=payloads, members=members, operations=count, time_unit=time_unit)
        check(plan)
    result = checks.run(plan, probe_every=_PROBE_EVERY if is_drawn else 1)
    if result.finding is not None:
        raise checks.failure(result)
    return result
