"""The Hypothesis strategies of container.testing.memory.strategies: they find planted faults and blame no other."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from container.api import (
    NOT_CONNECTED,
    ClientSession,
    CloseReason,
    Cluster,
    Header,
    MessageBuffer,
    Role,
    SnapshotImage,
    TimeUnit,
)
from container.errors import ConfigurationError
from container.testing import MemoryMember
from container.testing.memory.checks import (
    DivergenceError,
    check_calls,
    check_environments,
    check_memory,
    check_replays,
    check_restarts,
)
from container.testing.memory.reference_member import ComparedMember
from container.testing.memory.scripted_life import (
    Advance,
    ChangeRole,
    CloseSession,
    FireNextTimer,
    InjectServiceMessage,
    NewTerm,
    OpenSession,
    ScriptedLife,
    Send,
)
from container.testing.memory.strategies import ServiceMachine, lives
from examples.auction_service import AuctionService, OpenAuction, PlaceBid, QueryState
from examples.ledger_service import TRANSFER, LedgerService
from tests.documents import all_blocks
from tests.services import Adding, Forgetful, Impatient, Shared, Sorting

FIXED = settings(derandomize=True, database=None, deadline=None, print_blob=False)
FEW = settings(FIXED, max_examples=15, stateful_step_count=30)
# Hypothesis draws constants of whatever modules are loaded: long enough, so that it does not matter which.
# A fault that shows in two ways, in the state and in answers, is reported in one.
SEARCHING = settings(
    FIXED,
    max_examples=500,
    stateful_step_count=40,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
)
AUCTION_REQUESTS = st.one_of(
    st.builds(OpenAuction, st.integers(0, 9), st.just("lot"), st.integers(0, 9), st.integers(1, 5_000)),
    st.builds(PlaceBid, st.integers(0, 9), st.integers(0, 3), st.just("ada"), st.integers(0, 20)),
    st.builds(QueryState, st.integers(0, 9)),
).map(msgspec.msgpack.encode)
TRANSFERS = st.builds(TRANSFER.pack, st.integers(1, 2), st.integers(1, 4), st.integers(1, 2), st.integers(-5, 5))


def readme_counter() -> Any:
    names: dict[str, Any] = {"__name__": "readme_service"}
    exec(all_blocks()["README.md: A service (python)"].text, names)
    return names["Counter"]


class Odd(Adding):
    """Wrong: raises on some payloads."""

    def add(self, payload: bytes) -> None:
        super().add(payload)
        if len(payload) > 2 and payload[0] >= 7:
            raise ValueError(f"odd payload {payload!r}")


class Reminders(Adding):
    """Wrong: what its timers are for is in no snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, int] = {}

    def add(self, payload: bytes) -> None:
        number = self.state.total = self.state.total + 1
        self.waiting[number] = len(payload)
        self.schedule(number, 10)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.state.total += 1_000 * self.waiting.pop(correlation_id, 0)


class Fresh(Adding):
    """Wrong: schedules no timer once it was made from a snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.is_fresh = True

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.is_fresh = snapshot_image is None

    def add(self, payload: bytes) -> None:
        while self.is_fresh and not self.cluster.schedule_timer(1, 10**6):
            self.cluster.idle()


class ForOneService(Adding):
    """Right, in a cluster that has no other service."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        assert session is not None
        super().on_session_message(session, timestamp, buffer, header)


class Leader(Adding):
    """Wrong: does as a follower what a leader does not do."""

    def add(self, payload: bytes) -> None:
        assert self.cluster.role.name == "LEADER", "it follows"


def machine(service: Any, **attributes: Any) -> type[ServiceMachine]:
    return type(f"{service.__name__}Machine", (ServiceMachine,), {"service": service, **attributes})


def failure_of(
    kind: type[ServiceMachine], error: type[BaseException], *, is_shrunk: bool = True
) -> tuple[BaseException, list[str]]:
    """The error that a machine finds, and the steps of the shortest script, or of the first one."""
    phases = [Phase.generate, *([Phase.shrink] if is_shrunk else [])]
    with pytest.raises(error) as caught:
        run_state_machine_as_test(kind, settings=settings(SEARCHING, phases=phases))
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    steps = [line for line in notes.splitlines() if "state." in line and not re.search("teardown|is_small", line)]
    assert steps, notes
    return caught.value, steps


# The machine


@pytest.mark.parametrize(
    ("service", "payloads"),
    [
        (readme_counter(), st.sampled_from([b"one+1", b"two+40", b"+", b"one"])),
        (readme_counter(), st.binary(max_size=40)),
        (AuctionService, AUCTION_REQUESTS),
        (LedgerService, TRANSFERS),
        (Adding, st.binary(max_size=4)),
    ],
    ids=["counter", "counter-binary", "auction", "ledger", "adding"],
)
def test_a_good_service_passes(service: Any, payloads: st.SearchStrategy[bytes]) -> None:
    run_state_machine_as_test(machine(service, payloads=payloads), settings=FEW)


@pytest.mark.parametrize("is_shrunk", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_state_that_is_in_no_snapshot_is_found(is_shrunk: bool) -> None:
    kind = machine(Forgetful, payloads=st.binary(max_size=4))
    error, steps = failure_of(kind, DivergenceError, is_shrunk=is_shrunk)
    assert "Totals.total: " in str(error) or "after a restart, answer " in str(error)
    # Which script is the shortest that is found depends on the constants of all modules that are loaded.
    assert not is_shrunk or len(steps) <= 10
    assert any("take_snapshot" in step for step in steps)
    assert any("restart_from" in step for step in steps)


def test_state_of_the_class_is_found() -> None:
    Shared.seen.clear()
    _, steps = failure_of(machine(Shared, payloads=st.binary(max_size=4)), DivergenceError)
    assert len(steps) <= 3
    assert any("restart_from_log" in step for step in steps)


def test_a_payload_that_raises_is_found_and_is_as_short_as_can_be() -> None:
    _, steps = failure_of(machine(Odd, payloads=st.binary(max_size=8)), ValueError)
    assert len(steps) == 1
    assert r"payload=b'\x07\x00\x00'" in steps[0]
    payloads = st.one_of(st.binary(max_size=2), st.just(b"\x07long"))
    _, steps = failure_of(machine(Odd, payloads=payloads, service_messages=False), ValueError)
    assert [step.strip() for step in steps] == [
        "sessions_0 = state.open_session(principal=b'')",
        r"state.send(payload=b'\x07long', session=sessions_0)",
    ]


@pytest.mark.parametrize("is_shrunk", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_timer_whose_purpose_is_lost_in_a_restart_is_found(is_shrunk: bool) -> None:
    kind = machine(Reminders, payloads=st.binary(max_size=4))
    error, steps = failure_of(kind, DivergenceError, is_shrunk=is_shrunk)
    assert "Totals.total: " in str(error) or "after a restart, answer " in str(error)
    assert not is_shrunk or len(steps) <= 6
    assert any("restart_from" in step for step in steps)


@pytest.mark.parametrize("is_shrunk", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_timers_that_a_restart_does_not_come_to_are_found(is_shrunk: bool) -> None:
    kind = machine(Fresh, payloads=st.binary(max_size=4))
    error, steps = failure_of(kind, DivergenceError, is_shrunk=is_shrunk)
    assert "the timers are {" in str(error)
    assert not is_shrunk or len(steps) <= 4
    assert any("restart_from" in step for step in steps)


class Greeting(Adding):
    """Wrong: what it does at a message depends on what it did since it was started; its state is right."""

    def __init__(self) -> None:
        super().__init__()
        self.is_new = True

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.is_new = snapshot_image is None

    def greet(self, session: ClientSession) -> None:
        """Do what a service that was started from a snapshot does not do."""
        session.send(b"welcome")

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        if self.is_new and session is not None:
            self.greet(session)


class Numbering(Greeting):
    """Wrong: another answer."""

    def greet(self, session: ClientSession) -> None:
        """A service that is new, and one that is not, answer alike and yet not the same."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(b"x" * 1_000 + b"%d" % self.is_new)


class Offering(Greeting):
    """Wrong: sends the cluster a message, or does not."""

    def greet(self, session: ClientSession) -> None:
        while self.cluster.offer(b"welcome") <= 0:
            self.cluster.idle()


class Closing(Greeting):
    """Wrong: closes the session, or does not."""

    def greet(self, session: ClientSession) -> None:
        session.close()


class Timing(Greeting):
    """Wrong: schedules a timer, or does not, and what that does is nothing."""

    def greet(self, session: ClientSession) -> None:
        self.schedule(session.id, 1)


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (Greeting, r"after a restart, answer \d+ to session \d+ is .*; of a service that is never restarted it is "),
        (
            Numbering,
            r"is b'x{16}0' from byte 984 on; of a service that is never restarted it is b'x{16}1' fr",
        ),
        (Offering, r"sends the cluster message \d+, b'welcome'; the service did not"),
        (Closing, r"a service that is never restarted closes session \d+; the service did not"),
        (Timing, r"after a restart the timers are \{.*; of a service that is never restarted they are \{"),
    ],
)
def test_what_a_service_does_otherwise_after_a_restart_is_found(service: type[Adding], text: str) -> None:
    with ComparedMember(service, 1_000) as member:
        member.open_session().send(b"x")
        member.restart(member.take_snapshot())
        client = member.open_session()
        with pytest.raises(DivergenceError) as caught:
            client.send(b"x")
    assert re.search(text, str(caught.value)), caught.value


def test_a_machine_finds_what_a_service_does_otherwise_after_a_restart() -> None:
    kind = machine(Offering, payloads=st.just(b"x"), offer_faults=False, request_faults=False)
    _, steps = failure_of(kind, DivergenceError, is_shrunk=False)
    assert any("restart_from_snapshot" in step for step in steps)


class Doubled(Adding):
    """Wrong: after a start from the log it repeats what it did for the last message."""

    def __init__(self) -> None:
        super().__init__()
        self.is_started = False

    def on_role_change(self, role: Role) -> None:
        self.is_started = role is Role.LEADER and self.state.total > 0

    def add(self, payload: bytes) -> None:
        super().add(payload)
        if self.is_started:
            self.is_started = False
            self.again(self.cluster.client_sessions[0])

    def again(self, session: ClientSession) -> None:
        """Answer twice."""
        session.send(b"%d" % self.state.total)


class DoubledMessage(Doubled):
    """Wrong: sends a message once more."""

    def again(self, session: ClientSession) -> None:
        self.cluster.offer(b"again")


class DoubledClose(Doubled):
    """Wrong: closes a session."""

    def again(self, session: ClientSession) -> None:
        session.close()


class DoubledTimer(Doubled):
    """Wrong: has a timer that comes immediately."""

    def again(self, session: ClientSession) -> None:
        self.schedule(1, 0)


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (Doubled, "after a restart, answer 2 to session 1 is b'2'; of a service that is never restarted it is nothing"),
        (
            DoubledMessage,
            "the service sent the cluster message 0, b'again'; a service that is never restarted sends ",
        ),
        (DoubledClose, "the service closed session 1; a service that is never restarted does not"),
        (DoubledTimer, "the service scheduled timer 1, which fired; a service that is never restarted does not"),
    ],
)
def test_what_a_service_does_once_more_after_a_restart_is_found(service: type[Adding], text: str) -> None:
    with ComparedMember(service, 1_000) as member:
        client = member.open_session()
        client.send(b"1")
        member.restart()
        with pytest.raises(DivergenceError) as caught:
            client.send(b"2")
    assert text in str(caught.value)


def test_answers_that_are_lost_on_their_way_are_no_difference() -> None:
    with ComparedMember(Adding, 1_000) as member:
        client = member.open_session()
        for number in range(20):
            if number % 3 == 1:
                member.restart(member.take_snapshot() if number % 2 else None)
            if number % 4 == 2:
                member.fail_offers(NOT_CONNECTED)
            if number in (5, 9, 15, 16):
                member.change_role(Role.LEADER if member.role is Role.FOLLOWER else Role.FOLLOWER)
            client.send(b"x")
            member.fire_timer(number)
        assert 5 < len(client.egress) < 20
        member.restart(service=Greeting)  # another release: what it does is not compared
        assert client.send(b"x") == [b"21", b"welcome"]
        member.restart()


@pytest.mark.parametrize("is_shrunk", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_request_that_is_not_repeated_is_found_unless_requests_do_not_fail(is_shrunk: bool) -> None:
    kind = machine(Impatient, payloads=st.binary(max_size=4))
    _, steps = failure_of(kind, Exception, is_shrunk=is_shrunk)
    assert not is_shrunk or len(steps) <= 10
    assert any("fail_requests" in step for step in steps)
    assert "inject_service_message" in steps[-1]
    run_state_machine_as_test(machine(Impatient, payloads=st.binary(max_size=4), request_faults=False), settings=FEW)


def test_messages_of_other_services_can_be_left_out() -> None:
    failure_of(machine(ForOneService), AssertionError)
    run_state_machine_as_test(machine(ForOneService, service_messages=False), settings=FEW)


def test_elections_can_be_left_out() -> None:
    kind = machine(Leader, payloads=st.just(b"x"), restarts=False)
    _, steps = failure_of(kind, AssertionError, is_shrunk=False)
    assert any("state.change_role(role='FOLLOWER')" in step for step in steps)
    run_state_machine_as_test(machine(Leader, elections=False, restarts=False), settings=FEW)


def test_faults_restarts_and_elections_happen_only_when_they_are_wanted() -> None:
    seen: set[str] = set()

    def machine_that_notes(**switches: bool) -> type[ServiceMachine]:
        def noting(name: str) -> Callable[..., Any]:
            def noted(self: Any, *arguments: Any, **keywords: Any) -> Any:
                seen.add(name)
                return getattr(type(self), name)(self, *arguments, **keywords)

            return noted

        class Noting(ServiceMachine):
            service = Adding

            def __init__(self) -> None:
                super().__init__()
                for name in ("fail_offers", "fail_requests", "change_role", "inject_service_message"):
                    setattr(self.member, name, noting(name).__get__(self.member))

            @invariant()
            def counts(self) -> None:
                assert isinstance(self.member.service, Adding)

        for name, value in switches.items():
            setattr(Noting, name, value)
        return Noting

    run_state_machine_as_test(machine_that_notes(), settings=FEW)
    assert seen == {"fail_offers", "fail_requests", "change_role", "inject_service_message"}
    seen.clear()
    run_state_machine_as_test(
        machine_that_notes(
            offer_faults=False, request_faults=False, elections=False, service_messages=False, restarts=False
        ),
        settings=FEW,
    )
    assert seen == set()


def test_a_machine_has_invariants_rules_and_options_of_its_own() -> None:
    class Small(ServiceMachine):
        service = Adding
        payloads = st.binary(min_size=1, max_size=3)
        service_payloads = st.just(b"other")
        durations = st.just(3)
        options: ClassVar[dict[str, Any]] = {"time_unit": TimeUnit.NANOS, "time": 40}

        @rule()
        def poke(self) -> None:
            assert self.member.service.cluster.time_unit in (None, TimeUnit.NANOS)
            assert self.member.cluster_time % 3 == 40 % 3

        @invariant()
        def is_small(self) -> None:
            assert self.member.service.state.total < 7

    _, steps = failure_of(Small, AssertionError)
    assert 2 <= len(steps) <= 4


def test_a_machine_without_a_service_and_wrong_payloads_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"ServiceMachine\.service is None: set the class"):
        ServiceMachine()
    for payloads, text in (
        (b"x", "payloads=b'x': must be a Hypothesis strategy of bytes"),
        (st.text(), "payloads made '': must make bytes; map your encoder: payloads.map"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            run_state_machine_as_test(machine(Adding, payloads=payloads), settings=FEW)


# Lives


@settings(FIXED, max_examples=20)
@given(life=lives(AUCTION_REQUESTS))
def test_good_services_pass_the_checks_with_drawn_lives(life: ScriptedLife) -> None:
    check_replays(AuctionService, life)
    check_restarts(AuctionService, life)
    check_calls(AuctionService, life)


@settings(FIXED, max_examples=3)
@given(life=lives(TRANSFERS, max_events=20))
def test_a_life_leaves_nothing_behind(life: ScriptedLife) -> None:
    check_memory(LedgerService, life)


def shortest(check: Callable[[ScriptedLife], object], error: type[Exception], **options: Any) -> ScriptedLife:
    def fails(life: ScriptedLife) -> bool:
        try:
            check(life)
        except error:
            return True
        return False

    return find(lives(max_events=16, **options), fails, settings=settings(FIXED, max_examples=60))


PAYLOADS = st.binary(max_size=8)


def test_the_life_that_fails_a_check_is_as_short_as_can_be() -> None:
    life = shortest(lambda life: check_replays(Odd, life), ValueError, payloads=PAYLOADS, service_messages=False)
    assert life == ScriptedLife((Send(b"\x07\x00\x00"),))


@pytest.mark.slow
@pytest.mark.parametrize(("service", "most"), [(Forgetful, 3), (Reminders, 4)])
def test_the_life_that_fails_a_check_is_short(service: type[Adding], most: int) -> None:
    life = shortest(lambda life: check_replays(service, life, every=2), DivergenceError, payloads=PAYLOADS)
    assert 1 <= len(life.events) <= most


def test_the_order_of_a_set_is_found_in_other_processes() -> None:
    @settings(FIXED, max_examples=3, phases=[Phase.generate])
    @given(lives(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), max_events=30))
    def run(life: ScriptedLife) -> None:
        check_environments(Sorting, life, environments=[{"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1"}])

    with pytest.raises(DivergenceError, match="look for sets of texts"):
        run()


def test_a_life_prints_as_what_makes_it_again() -> None:
    life = ScriptedLife(
        (
            OpenSession(),
            OpenSession(b"ada"),
            Send(b"\x00one"),
            Send(b"two", 1),
            Advance(10),
            FireNextTimer(),
            InjectServiceMessage(b"x", 2),
            NewTerm(),
            ChangeRole(Role.FOLLOWER),
            CloseSession(),
            CloseSession(1, CloseReason.TIMEOUT),
        )
    )
    text = repr(life)
    assert "        Send(b'two', session=1),\n" in text
    assert "        CloseSession(session=1, reason=CloseReason.TIMEOUT),\n" in text
    assert eval(text) == life
    assert eval(repr(ScriptedLife())) == ScriptedLife()
    assert pickle.loads(pickle.dumps(life)) == life
    with MemoryMember(AuctionService) as member:
        life(member)
        assert member.sessions == []
        names = [entry.decode()[0] for entry in member.log]
        assert names.count("SessionOpenEvent") == names.count("SessionCloseEvent") == 2


@settings(FIXED, max_examples=30)
@given(lives(st.binary(max_size=4)))
def test_every_life_prints_as_what_makes_it_again(life: ScriptedLife) -> None:
    assert eval(repr(life)) == life


@pytest.mark.parametrize("max_events", [0, -1, True, "5", 1.5])
def test_wrong_arguments_are_named(max_events: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"max_events=.*: must be a number from 1 on"):
        lives(max_events=max_events)
    with pytest.raises(ConfigurationError, match=r"payloads=5: must be a Hypothesis strategy"):
        lives(5)  # type: ignore[arg-type]


def test_without_hypothesis_the_error_names_the_extra() -> None:
    program = "import sys\nsys.modules['hypothesis'] = None\nimport container.testing.memory.strategies"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert 'pip install "aeron-cluster-container[testing]"' in ended.stderr.splitlines()[-1]
