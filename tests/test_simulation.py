"""The simulator: services that are wrong in each way are found, good ones are not blamed, and a seed repeats itself."""

from __future__ import annotations

import functools
import gc
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter as Counts
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    Role,
    SnapshotPublication,
)
from container.errors import ConfigurationError, ContainerError
from container.testing import simulation
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.processes.process import wait_until
from container.testing.simulation import (
    LEADER,
    Checks,
    CloseSession,
    Crash,
    CutMessage,
    CutOff,
    Elect,
    FailOffers,
    FailRequests,
    FailSnapshot,
    Fault,
    Finding,
    LoseImages,
    OpenSession,
    Operation,
    Pause,
    Plan,
    Send,
    SendFromService,
    SimulationFailure,
    SlowModule,
    SnapshotFault,
    Start,
    Stop,
    TakeSnapshot,
    expand,
    simulate,
)
from container.testing.simulation.fibers import Fiber, SimulatedCrash
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.shrink import shrink
from container.testing.simulation.virtual_time import Draws, NodeClock, Trace, VirtualTime
from examples.auction_service import AuctionService
from tests.limits import LIMIT_S
from tests.seeds import drawn
from tests.services import Adding, Clocked, Forgetful, Impatient, Shared, Trusting
from tests.sim.__main__ import run_seed
from tests.sim.exam import ROOT
from tests.sim.services import SUBJECTS, Workload

PAYLOADS = [b"1", b"22", b"333"]
INFINITY: Any = float("inf")


class Lucky(Adding):
    """Draws lots."""

    draws = random.Random(1)

    def add(self, payload: bytes) -> None:
        self.state.total += self.draws.randrange(1_000)


class Proud(Adding):
    """Counts otherwise where it leads."""

    def add(self, payload: bytes) -> None:
        self.state.total += 2 if self.cluster.role is Role.LEADER else 1


class Hurt(Adding):
    """Remembers which of its answers did not reach the client."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None and session.offer(b"answer") <= 0:
            self.state.total += 1


class Local(Adding):
    """Counts the terms in which its own member led."""

    def on_new_leadership_term_event(
        self, leadership_term_id: int, log_position: int, timestamp: int, *others: Any
    ) -> None:
        self.state.total += others[1] == self.cluster.member_id


class Selective(Adding):
    """Schedules timers only where it leads."""

    def add(self, payload: bytes) -> None:
        if self.cluster.role is Role.LEADER:
            self.schedule(1, 5)


class Stuck(Adding):
    """Waits for something that only another event could bring."""

    def add(self, payload: bytes) -> None:
        while len(payload) == 3:
            self.cluster.idle()


class HalfSnapshot(Adding):
    """Cannot write its snapshot in one state."""

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        if self.state.total % 7 == 6:
            raise ValueError("six")
        super().on_take_snapshot(snapshot_publication)


def findings(service: Callable[[], ClusteredService], seeds: int = 100) -> Finding:
    """The first finding within so many seeds."""
    checks = Checks(service=service)
    for seed in range(1, seeds + 1):
        finding = checks.run(expand(seed, payloads=PAYLOADS)).finding
        if finding is not None:
            return finding
    raise AssertionError(f"nothing was found in {seeds} seeds")


@pytest.mark.parametrize(
    ("service", "oracles", "text"),
    [
        (Forgetful, {"state", "snapshot", "answers"}, "Totals.total: "),
        (Clocked, {"state", "snapshot"}, "differs from that of"),
        (Lucky, {"state", "snapshot"}, "differs from that of"),
        (Shared, {"state", "snapshot"}, "differs from that of"),
        (Proud, {"state", "snapshot"}, "differs from that of"),
        (Hurt, {"state", "snapshot"}, "differs from that of"),
        (Local, {"state", "snapshot"}, "differs from that of"),
        (Impatient, {"errors", "requests"}, "schedule_timer of 1 returned False"),
        (Selective, {"requests", "progress", "delivery"}, "request"),
        (Trusting, {"end"}, "ValueError: invalid literal for int()"),
        (Stuck, {"progress"}, "no progress within"),
        (HalfSnapshot, {"state", "errors", "snapshot"}, "ValueError: six"),
    ],
)
def test_a_service_that_is_wrong_is_found(
    service: Callable[[], ClusteredService], oracles: set[str], text: str
) -> None:
    finding = findings(service)
    assert finding.oracle in oracles
    assert text in finding.text


FIXED = 250


def test_good_services_are_not_blamed() -> None:
    reached: Counts[str] = Counts()
    delivered = 0
    begin = time.monotonic()
    for seed in range(1, FIXED + 1):
        result = run_seed(seed)
        assert result.finding is None, f"seed {seed}: {result.finding}"
        reached.update(result.reached)
        delivered += result.delivered
    print(f"{delivered:,} messages delivered in {FIXED} seeds, {delivered / (time.monotonic() - begin):,.0f}/s")
    assert delivered > 100 * FIXED
    for name in NAMES:
        assert reached[name] > 0, f"no run of these came to: {name}"


def test_good_services_are_not_blamed_by_seeds_of_this_commit() -> None:
    for seed in drawn("clusters", 100):
        result = run_seed(seed)
        assert result.finding is None, f"seed {seed}: {result.finding}"


@pytest.mark.slow
def test_good_services_are_not_blamed_by_more_seeds() -> None:
    for seed in range(FIXED + 1, 1_001):
        result = run_seed(seed)
        assert result.finding is None, f"seed {seed}: {result.finding}"


# What the fixed seeds come to at least once; a fault that no longer happens finds nothing.
NAMES = (
    *("AskForAck", "Crash", "CutMessage", "CutOff", "Elect", "FailOffers", "FailRequests", "FailSnapshot"),
    *("LoseImages", "Pause", "SlowModule", "Stop", "ack asked for again", "answer", "commit inside a message"),
    *("cut snapshot refused", "election", "image lost", "image lost before it was read"),
    *("live log joined from behind", "log cut", "log cut inside a message", "message of the service"),
    *("replay at a start", "replay before a term", "session closed: client_action", "session closed: service_action"),
    *(
        "session closed: timeout",
        "session closed after an outage",
        "snapshot failed",
        "snapshot taken",
        "start from a snapshot",
    ),
    *("start from an older snapshot", "stopped in order", "timer"),
)


def test_a_seed_does_the_same_in_this_process_and_in_another() -> None:
    program = "from tests.sim.__main__ import run_seed; print([run_seed(seed).digest for seed in range(1, 9)])"
    here = [run_seed(seed).digest for seed in range(1, 9)]
    assert here == [run_seed(seed).digest for seed in range(1, 9)]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.strip() == str(here), done.stderr
    assert len(set(here)) == len(here)


# --- failures


def failure_of(service: Callable[[], ClusteredService]) -> SimulationFailure:
    for seed in range(1, 100):
        try:
            simulate(service, seed=seed, payloads=PAYLOADS)
        except SimulationFailure as failure:
            return failure
    raise AssertionError("nothing was found")


def test_a_failure_is_a_report_with_a_short_test_that_repeats_it(tmp_path: Path) -> None:
    failure = failure_of(Forgetful)
    report = str(failure)
    assert report.startswith(f"{failure.finding.oracle} on member {failure.finding.member} at log position")
    assert failure.script in report
    (summary,) = (line for line in report.splitlines() if line.startswith("Seed "))
    assert re.search(r"shrunk to \d+ members?, \d+ operations? and 1 fault in \d+ runs", summary)
    assert "The last events:" in report
    assert "leader " in report.splitlines()[-1]
    assert isinstance(failure.plan, Plan)
    assert len(failure.plan.events) < 20
    path = tmp_path / "test_found.py"
    path.write_text(failure.script)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{failure.finding.oracle} on member" in done.stdout


def only_length(service: Adding) -> int:
    """A state of the user, which differs from one object to the next."""
    return id(service)


def expects_nothing(error: BaseException) -> bool:
    return False


def script_of(service: Callable[[], ClusteredService], **options: Any) -> str:
    with pytest.raises(SimulationFailure) as caught:
        simulate(service, seed=1, payloads=PAYLOADS, **options)
    compile(caught.value.script, "script", "exec")
    return caught.value.script


def test_the_script_has_the_arguments_that_the_finding_depends_on() -> None:
    script = script_of(Adding, state=only_length, tolerates=expects_nothing, callback_error_policy="skip")
    assert "from tests.services import Adding\n" in script
    assert f"from {__name__} import expects_nothing, only_length\n" in script
    assert (
        "    simulate(Adding, plan=plan, state=only_length, tolerates=expects_nothing, callback_error_policy='skip')\n"
        in script
    )


def test_the_script_says_what_a_test_cannot_import() -> None:
    class Inner(Clocked):
        """Is in no module."""

    for service in (Inner, lambda: Clocked(), functools.partial(Clocked)):
        script = script_of(service)
        assert "    # MyService is " in script
        assert "    simulate(MyService, plan=plan)\n" in script
    assert "    # state is " in script_of(Adding, state=lambda service: id(service))


@pytest.mark.parametrize("name", ["ledger_run.py", "my-ledger.py"])
def test_the_script_of_a_programs_own_class_can_be_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(_PROGRAM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    ran = subprocess.run(
        [sys.executable, str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
        check=False,
    )
    if not Path(name).stem.isidentifier():
        assert (
            "# MyService is <class '__main__.Ledger'>, which a test cannot import: put it into a module." in ran.stdout
        )
        return
    assert "from ledger_run import Ledger\n" in ran.stdout, ran.stderr
    assert (
        '# ledger_run is the program that ran: put its simulate(...) behind `if __name__ == "__main__":`' in ran.stdout
    )
    (tmp_path / "test_saved.py").write_text(ran.stdout)
    saved = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_saved.py")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert "1 failed" in saved.stdout
    assert "SimulationFailure" in saved.stdout


_PROGRAM = """
from container.api import ClusteredService
from container.errors import ContainerError
from container.testing.simulation import SimulationFailure, simulate


class Ledger(ClusteredService):
    def on_session_message(self, session, timestamp, buffer, header):
        raise ZeroDivisionError("of every message")


if __name__ == "__main__":
    try:
        simulate(Ledger, seed=1, payloads=[b"x"])
    except SimulationFailure as failure:
        print(failure.script)
"""


def test_the_first_position_that_differs_is_reported() -> None:
    class Late(Adding):
        """Diverges at the tenth message on one of its members alone."""

        made = 0

        def __init__(self) -> None:
            super().__init__()
            Late.made += 1
            self.number = Late.made
            self.messages = 0

        def add(self, payload: bytes) -> None:
            self.messages += 1
            self.state.total += 2 if self.messages == 10 and self.number % 4 == 2 else 1

    events: tuple[Operation | Fault, ...] = (
        OpenSession(at=0, client=0),
        *(Send(at=1 + number, client=0, payload=b"1") for number in range(30)),
    )
    finding = Checks(service=Late).run(Plan(events=events), probe_every=1).finding
    assert finding is not None
    assert finding.oracle == "state"
    # a term, an open session, and messages of 96 bytes each
    assert finding.log_position == 96 + 160 + 10 * 96


def test_a_plan_is_shrunk_to_what_makes_it_fail() -> None:
    plan = expand(3, payloads=PAYLOADS)
    wanted = {Send, TakeSnapshot}

    def fails(shorter: Plan) -> bool:
        return wanted <= {type(event) for event in shorter.events}

    short = shrink(plan, fails)
    assert sorted(type(event).__name__ for event in short.events) == ["Send", "TakeSnapshot"]
    assert short.members == 1
    assert len(shrink(plan, fails, runs=1).events) < len(plan.events)
    assert shrink(plan, fails, runs=0) == plan


def test_a_plan_is_data() -> None:
    plan = expand(5, payloads=PAYLOADS)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert plan == expand(5, payloads=PAYLOADS)
    assert plan != expand(6, payloads=PAYLOADS)
    assert {type(event) for event in (*plan.operations, *plan.faults)} == {type(event) for event in plan.events}


def test_plans_have_all_kinds_of_faults_and_some_have_none() -> None:
    plans = [expand(seed) for seed in range(300)]
    kinds = Counts(type(fault).__name__ for plan in plans for fault in plan.faults)
    assert len(kinds) == 12
    assert min(kinds.values()) > 100
    assert 10 < sum(not plan.faults for plan in plans) < 60
    assert {plan.members for plan in plans} == {1, 3, 5}


# --- plans by hand


def sends(count: int, first_ms: int = 1, payload: bytes = b"22") -> tuple[Send, ...]:
    return tuple(Send(at=first_ms + number, client=0, payload=payload) for number in range(count))


@pytest.mark.parametrize("start", list(Start))
def test_a_member_starts_from_what_the_plan_says(start: Start) -> None:
    plan = Plan(
        events=(
            OpenSession(at=0, client=0),
            *sends(5),
            TakeSnapshot(at=10),
            *sends(5, 20),
            TakeSnapshot(at=30),
            *sends(5, 40),
            Crash(at=60, member=1, down=20, start=start),
            *sends(5, 100),
        )
    )
    result = simulate(Adding, plan=plan)
    reached = result.reached
    assert reached["replay at a start"] >= 1
    assert reached.get("start from an older snapshot", 0) == (start in (Start.OLDER_SNAPSHOT, Start.CUT_SNAPSHOT))
    assert reached.get("start from a snapshot", 0) == (start in (Start.SNAPSHOT, Start.CUT_SNAPSHOT))
    assert reached.get("cut snapshot refused", 0) == (start is Start.CUT_SNAPSHOT)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (Elect(at=20), "election"),
        (Crash(at=20, member=LEADER, down=30), "replay at a start"),
        (Stop(at=20, member=LEADER, down=30), "stopped in order"),
        (CutOff(at=20, member=LEADER, duration=200), "election"),
        (Pause(at=20, member=0, duration=100), "Pause"),
        (LoseImages(at=20, member=0), "LoseImages"),
        (FailOffers(at=20, member=LEADER, results=(-2, -2, -3)), "FailOffers"),
        (FailRequests(at=20, member=LEADER, results=(-2, -2)), "FailRequests"),
        (FailSnapshot(at=20, member=2, fault=SnapshotFault.FAILED), "snapshot failed"),
    ],
)
def test_a_fault_alone_happens_and_harms_no_good_service(fault: Any, name: str) -> None:
    events: tuple[Operation | Fault, ...] = (
        OpenSession(at=0, client=0),
        *sends(60),
        TakeSnapshot(at=40),
        SendFromService(at=50, payload=b"1"),
    )
    plan = Plan(events=tuple(sorted((*events, fault), key=lambda event: event.at)))
    result = simulate(Adding, plan=plan)
    assert result.reached[name] >= 1
    assert result.logged >= 60


def test_a_leader_that_dies_in_a_long_message_leaves_its_first_frames() -> None:
    plan = Plan(
        events=(
            OpenSession(at=0, client=0),
            *sends(5),
            CutMessage(at=20, down=50),
            Send(at=21, client=0, payload=b"x" * 5_000),
            *sends(5, 100),
        )
    )
    result = simulate(Adding, plan=plan)
    assert result.reached["CutMessage"] == 1
    assert result.reached["log cut inside a message"] == 1


def test_without_faults_all_answers_come() -> None:
    plan = Plan(events=(OpenSession(at=0, client=0), *sends(20), CloseSession(at=30, client=0)))
    result = simulate(Adding, plan=plan)
    assert result.reached["answer"] == 20


def test_one_member_and_five_members() -> None:
    for members in (1, 5):
        events: tuple[Operation | Fault, ...] = (
            OpenSession(at=0, client=0),
            *sends(10),
            Crash(at=20, member=0, down=10),
            *sends(10, 60),
        )
        result = simulate(Adding, plan=Plan(members=members, events=events))
        assert result.plan.members == members
        assert result.reached["replay at a start"] == 1


def test_a_state_of_the_user_is_compared_in_place_of_snapshots() -> None:
    with pytest.raises(SimulationFailure, match="^state "):
        simulate(Adding, seed=2, payloads=PAYLOADS, state=id)
    assert simulate(Adding, seed=2, payloads=PAYLOADS, state=lambda service: service.state.total).finding is None
    with pytest.raises(SimulationFailure, match=r"differs from that of .* in .* in the reference\."):
        simulate(Adding, seed=2, payloads=PAYLOADS, state=lambda service: (id(service), 1))


def test_errors_that_are_expected_are_no_finding() -> None:
    with pytest.raises(SimulationFailure, match="errors on member .*BackgroundError: work 50"):
        simulate(Workload, seed=1, payloads=[b"a"])
    assert SUBJECTS["workload"].checks().run(expand(1, payloads=[b"a"])).finding is None


@pytest.mark.parametrize("service", [Adding(), None, 3])
def test_what_makes_no_service_is_refused(service: Any) -> None:
    with pytest.raises(ConfigurationError, match="service="):
        simulate(service, seed=1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "seed="),
        ({"seed": "x"}, "seed='x'"),
        ({"members": 0}, "members=0"),
        ({"operations": -1}, "operations=-1"),
        ({"operations": 1.5}, "operations=1.5"),
        ({"payloads": ["text"]}, "payloads: 'text' must be bytes"),
        ({"payloads": b"bytes"}, "must be bytes"),
        ({"payloads": lambda draws: 3}, "payloads: 3 must be bytes"),
        ({"plan": 3}, "plan=3"),
        ({"plan": Plan(members=0)}, "members=0"),
        ({"plan": Plan(seed=-1)}, "seed=-1"),
        ({"plan": Plan(events=(Send(at=1, client=0, payload="x"),))}, "payload='x'"),  # type: ignore[arg-type]
        ({"plan": Plan(events=(Send(at=1, client=0, payload=bytes(9_000)),))}, "must be bytes, 8160 at most"),
    ],
)
def test_what_makes_no_plan_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        simulate(Adding, **options)


class Generous(Adding):
    """Gives long answers."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.state.total += len(buffer)
        if session is not None:
            session.send(bytes(100_000))


def test_messages_and_answers_may_be_long() -> None:
    for seed in range(1, 6):
        assert simulate(Generous, seed=seed, payloads=[bytes(20_000)], operations=20).finding is None


def test_a_service_that_cannot_be_made_says_so() -> None:
    def broken() -> ClusteredService:
        raise ValueError("no file")

    with pytest.raises(ValueError, match="no file"):
        simulate(broken, seed=1)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"seed": -1}, "seed=-1: must be a whole number from 0"),
        ({"seed": 2**64}, "seed=18446744073709551616: must be"),
        ({"members": 0}, "members=0: must be a whole number from 1 to 100"),
        ({"log_fragment_limit": 0}, "log_fragment_limit=0: must be"),
        ({"latency_us": (10**9, 10**9)}, "latency_us=1000000000: must be"),
        ({"events": (None,)}, r"events\[0\]=None: must be an operation or a fault"),
        ({"events": (Elect(at=10**12),)}, r"events\[0\] Elect.at=1000000000000: must be"),
        ({"events": (Elect(at=-1),)}, "Elect.at=-1: must be"),
        ({"events": (OpenSession(at=INFINITY, client=0),)}, "OpenSession.at=inf: must be"),
        ({"events": (Crash(at=0, member=0, down=2**70),)}, "Crash.down=1180591620717411303424: must be"),
        ({"events": (Pause(at=0, member=-2, duration=1),)}, "Pause.member=-2: must be"),
        ({"events": (Crash(at=0, member=0, down=1, start="x"),)}, "Crash.start='x': must be"),  # type: ignore[arg-type]
        ({"events": (Send(at=0, client=0, payload=bytes(10_000)),)}, "bytes, 8160 at most in a log"),
        ({"events": (Send(at=0, client=0, payload="x"),)}, "Send.payload='x': must be bytes"),  # type: ignore[arg-type]
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        simulate(Adding, plan=Plan(**wrong))


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"members": 0}, {"members": 1.5}])
def test_a_seed_that_has_no_plan_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be a whole number"):
        simulate(Adding, **wrong)


def test_a_log_that_is_cut_inside_what_an_earlier_cut_has_left() -> None:
    assert simulate(AuctionService, seed=75).reached["log cut inside a message"] > 1


def test_an_interrupt_of_the_user_is_not_blamed_on_the_service() -> None:
    class Interrupted(Adding):
        def on_session_message(
            self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
        ) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(Interrupted, seed=1)
    assert gc.isenabled()


def test_a_child_that_goes_on_with_the_simulation_does_not_fork_again_and_again() -> None:
    program = (
        "import os\n"
        "from container.errors import ForkedError\n"
        "from container.testing.simulation import OpenSession, Plan, Send, simulate\n"
        "from examples.auction_service import AuctionService\n"
        "class Forks(AuctionService):\n"
        "    def on_session_message(self, *arguments):\n"
        "        os.fork()\n"
        "plan = Plan(members=1, events=(OpenSession(at=0, client=0), Send(at=9, client=0, payload=b'x')))\n"
        "try:\n"
        "    simulate(Forks, plan=plan)\n"
        "except ForkedError as error:\n"
        "    print(error, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    assert "a callback forked, and the child continued" in done.stdout


def test_the_package_that_is_missing_is_named() -> None:
    program = "import sys; sys.modules['greenlet'] = None; import container.testing.simulation"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    assert 'pip install "aeron-cluster-container[testing]"' in done.stderr


def test_everything_that_is_public_is_there() -> None:
    assert [name for name in simulation.__all__ if not hasattr(simulation, name)] == []


class Keeping(Adding):
    """Has a state that can change."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[str, int] = {}

    def add(self, payload: bytes) -> None:
        self.lengths["all"] = self.lengths.get("all", 0) + len(payload)


def test_a_state_that_changes_later_is_compared_as_it_was() -> None:
    plan = Plan(events=(OpenSession(at=0, client=0), *sends(30)))
    assert simulate(Keeping, plan=plan, state=lambda service: service.lengths).finding is None


class Busy(Adding):
    """Always has more to do."""

    def do_background_work(self, now_ns: int) -> int:
        return 1


class Waiting(Adding):
    """Idles many times at each message."""

    ended = 0

    def add(self, payload: bytes) -> None:
        for _ in range(50):
            self.cluster.idle()
        self.state.total += 1

    def on_terminate(self, cluster: Cluster) -> None:
        Waiting.ended += 1


class Ticking(Adding):
    """Schedules its timer again each time."""

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.schedule(1, 10)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.schedule(1, 10)


@pytest.mark.parametrize("service", [Busy, Waiting, Ticking])
def test_a_service_may_always_have_work_wait_often_and_schedule_timers_for_ever(
    service: Callable[[], ClusteredService],
) -> None:
    plan = Plan(
        events=(OpenSession(at=0, client=0), *sends(30), Crash(at=15, member=0, down=5)), latency_us=(1_000, 40_000)
    )
    begin = time.process_time()
    assert simulate(service, plan=plan).finding is None
    assert time.process_time() - begin < 20


def test_a_member_that_is_killed_while_its_callback_waits_does_not_end_in_order() -> None:
    Waiting.ended = 0
    simulate(Waiting, plan=Plan(events=(OpenSession(at=0, client=0), *sends(30), Crash(at=15, member=0, down=5))))
    assert Waiting.ended == 0


def test_a_leader_that_starts_again_quickly_leads_a_term_of_its_own() -> None:
    for seed in range(10):
        events: tuple[Operation | Fault, ...] = (
            OpenSession(at=0, client=0),
            *sends(20),
            Crash(at=60, member=LEADER, down=1),
            *sends(20, 100),
        )
        assert simulate(Adding, plan=Plan(seed=seed, events=events)).reached["election"] == 2


# --- time, chance, fibers


def test_draws_depend_on_seed_stream_and_key_alone() -> None:
    draws = Draws(7)
    first = draws.draw(1, 2)
    draws.draw(1, 3)
    assert first == draws.draw(1, 2) == Draws(7).draw(1, 2)
    assert len({Draws(seed).draw(stream, key) for seed in range(5) for stream in range(5) for key in range(5)}) == 125
    assert all(0 <= draws.below(1, key, 3) < 3 for key in range(100))
    with pytest.raises(ValueError, match="limit=0"):
        draws.below(1, 1, 0)
    assert 350 < sum(draws.happens(2, key, 0.4) for key in range(1_000)) < 450
    delays = [draws.delay_ns(3, key, 100, 1_000) for key in range(2_000)]
    assert min(delays) >= 100
    assert 900 < sum(delays) / len(delays) < 1_100


def test_a_trace_depends_on_the_order() -> None:
    one, other = Trace(), Trace()
    one.note(1, 2, 3, 4)
    one.note(5, 6, 7, 8)
    other.note(5, 6, 7, 8)
    other.note(1, 2, 3, 4)
    assert one.count == other.count == 2
    assert one.digest != other.digest


def test_a_clock_that_is_read_too_often_in_one_turn_moves_and_says_so() -> None:
    clock = NodeClock(VirtualTime())
    client = MemoryDriver(clock).connect()
    clock.begin_turn()
    for _ in range(100_000):
        assert seam.nano_time(client) == 0
    assert not clock.is_spinning
    assert seam.nano_time(client) == 1_000_000
    assert clock.is_spinning


def scheduler() -> Scheduler:
    return Scheduler(VirtualTime(), Draws(1))


def test_fibers_take_turns_in_virtual_time() -> None:
    world = scheduler()
    seen: list[tuple[str, int]] = []

    def live(name: str, period_ns: int) -> None:
        for _ in range(3):
            seen.append((name, world.time.now_ns))
            fibers[name].park(world.time.now_ns + period_ns)

    ended: list[BaseException | None] = []
    fibers = {
        name: Fiber(world, lambda name=name, period=period: live(name, period), ended.append)  # type: ignore[misc]
        for name, period in (("a", 10), ("b", 25))
    }
    while world.step():
        pass
    assert sorted(seen) == [("a", 0), ("a", 10), ("a", 20), ("b", 0), ("b", 25), ("b", 50)]
    assert ended == [None, None]


def test_a_fiber_that_is_killed_unwinds_and_reports_nothing() -> None:
    world = scheduler()
    seen: list[str] = []

    def live() -> None:
        try:
            fiber.park()
        except SimulatedCrash:
            seen.append("crash")
            raise
        finally:
            seen.append("finally")

    fiber = Fiber(world, live, lambda error: seen.append("end"))
    world.step()
    fiber.kill()
    while world.step():
        pass
    assert seen == ["crash", "finally"]
    assert not fiber.is_alive


def test_a_fiber_that_refuses_to_die_is_reported() -> None:
    world = scheduler()

    def live() -> None:
        while True:
            try:
                fiber.park()
            except SimulatedCrash:
                continue

    fiber = Fiber(world, live, lambda error: None)
    world.step()
    with pytest.raises(ContainerError, match="code that catches BaseException"):
        fiber.kill()


def test_what_a_fiber_raises_goes_to_its_owner() -> None:
    world = scheduler()
    ended: list[BaseException | None] = []

    def live() -> None:
        raise ValueError("x")

    Fiber(world, live, ended.append)
    while world.step():
        pass
    assert repr(ended) == "[ValueError('x')]"


def test_a_wake_ends_a_long_park_and_not_a_pause() -> None:
    world = scheduler()
    turns: list[int] = []

    def live() -> None:
        while len(turns) < 12:
            turns.append(world.time.now_ns)
            fiber.park()

    fiber = Fiber(world, live, lambda error: None)
    world.at(500_000_000, fiber.wake)
    while world.step():
        pass
    assert any(500_000_000 < turn <= 502_000_000 for turn in turns)
    paused = Fiber(world, lambda: turns.append(-world.time.now_ns), lambda error: None)
    paused.paused_until_ns = world.time.now_ns + 1_000_000
    begin = world.time.now_ns
    while world.step():
        pass
    assert turns[-1] == -(begin + 1_000_000)


def test_close_reasons_are_those_of_the_plan() -> None:
    seen: list[CloseReason] = []

    class Watching(Adding):
        def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
            seen.append(close_reason)

    plan = Plan(
        members=1,
        events=(
            OpenSession(at=0, client=0),
            OpenSession(at=0, client=1),
            CloseSession(at=5, client=0),
            CloseSession(at=6, client=1, times_out=True),
        ),
    )
    simulate(Watching, plan=plan)
    assert seen[:2] == [CloseReason.CLIENT_ACTION, CloseReason.TIMEOUT]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")
def test_an_interrupt_ends_the_command_and_its_processes() -> None:
    command = [sys.executable, "-m", "tests.sim", "--seeds", "5000", "--jobs", "2", "workload"]
    restored = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    workers: list[int] = []

    def have_started() -> bool:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        workers[:] = [int(pid) for task in tasks for pid in task.read_text().split()]
        return len(workers) == 2

    with subprocess.Popen(
        [sys.executable, "-c", restored, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        try:
            wait_until(have_started, LIMIT_S, "two processes that run seeds")
            os.kill(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()  # its workers end at their next line: nobody reads it
    assert process.returncode == 130
    assert "interrupted" in output
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_a_failure_that_does_not_repeat_says_so() -> None:
    failure = failure_of(Clocked)
    assert "This failure does not repeat" in str(failure)
    assert "Save this as a test" not in str(failure)
    assert "This test runs the same plan, and passes or fails by chance" in str(failure)
    assert "Save this as a test" in str(failure_of(Forgetful))
    assert "This failure does not repeat" not in str(failure_of(Forgetful))


def test_a_request_that_a_member_does_not_send_is_named() -> None:
    finding = findings(Selective)
    assert finding.oracle == "requests"
    assert "ScheduleTimer(correlation_id=1, deadline=" in finding.text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (FailRequests(at=1, member=0, results=(-4,)), r"results=\(-4,\): must be of \(-2, -3\)"),
        (FailOffers(at=1, member=0, results=(5,)), r"results=\(5,\): must be of \(-1, -2, -3\)"),
        (Crash(at=1, member=3, down=1), "member=3: must be a whole number from -1 to 2"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        simulate(Adding, plan=Plan(events=(fault,)))


def test_a_former_leader_never_goes_on_in_its_own_end_of_the_log() -> None:
    plan = Plan(
        seed=10171,
        latency_us=(50, 50),
        turn_us=(2, 2),
        module_us=(5, 5),
        clock_offsets_ms=(),
        events=(
            OpenSession(at=0, client=1),
            Crash(at=19, member=2, down=12, start=Start.LOG),
            CutOff(at=55, member=LEADER, duration=100),
            Send(at=72, client=1, payload=b"22"),
            SlowModule(at=155, member=0, duration=200),
            Crash(at=231, member=LEADER, down=1, start=Start.OLDER_SNAPSHOT),
            CutOff(at=285, member=0, duration=100),
        ),
    )
    assert simulate(Adding, plan=plan).reached["log cut"] == 1
