"""MemoryMember: a service in memory, step by step; sessions, time, timers, terms, snapshots, restarts and failures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import container
from container.api import (
    BACK_PRESSURED,
    NOT_CONNECTED,
    ClientSession,
    CloseReason,
    Cluster,
    Header,
    MessageBuffer,
    Role,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)
from container.errors import ConfigurationError, ContainerError, SnapshotError
from container.testing import MemoryMember, MemorySnapshot
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_consensus_module import ScriptError
from examples.auction_service import AuctionClosed, AuctionService, OpenAuction, PlaceBid
from examples.ledger_service import ANSWER, TRANSFER, LedgerService, Status


class State(msgspec.Struct):
    """What :class:`Obedient` keeps."""

    total: int = 0
    events: list[str] = []


class Obedient(RecordingService):
    """Does what messages say, notes each event of the log, and answers with its total."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.results: list[Any] = []

    @property
    def terms(self) -> list[tuple[int, int, TimeUnit]]:
        """Leadership term, leader and time unit of each term that began."""
        return [(term[0], term[4], term[6]) for term in self.of("on_new_leadership_term_event")]

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.state = container.read_snapshot(snapshot_image, State)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        if self.state.total == 13:
            raise ValueError("no snapshots of 13")
        container.write_snapshot(snapshot_publication, self.state)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.state.events.append(f"open {session.id} {session.encoded_principal!r}")

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.state.events.append(f"close {session.id} {close_reason.name}")

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.state.events.append(f"timer {correlation_id} {timestamp}")
        while correlation_id == 99 and not self.cluster.schedule_timer(99, timestamp):
            self.cluster.idle()

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        word, _, rest = bytes(buffer).decode().partition(" ")
        numbers = [int(number) for number in rest.split()]
        match word:
            case "add":
                self.state.total += numbers[0]
            case "timer":
                self.results.append(self.cluster.schedule_timer(*numbers))
            case "insist":
                while not self.cluster.schedule_timer(*numbers):
                    self.cluster.idle()
            case "cancel":
                self.cluster.cancel_timer(*numbers)
            case "cluster":
                self.cluster.send(b"add %d" % numbers[0])
            case "close" if session is not None:
                session.close()
            case "raise":
                raise ValueError("of the service")
            case "wait":
                while True:
                    self.cluster.idle()
        if session is not None:
            self.results.append(session.offer(b"%d" % self.state.total))


@pytest.fixture
def member() -> Iterator[MemoryMember]:
    with MemoryMember(Obedient) as member:
        yield member


def test_a_message_is_answered(member: MemoryMember) -> None:
    client, other = member.open_session(b"me"), member.open_session()
    assert client.send(b"add 40") == [b"40"]
    assert other.send(b"add 2") == [b"42"]
    assert (client.egress, other.egress) == ([b"40"], [b"42"])
    assert member.service.state.events == ["open 1 b'me'", "open 2 b''"]
    assert member.sessions == [client, other]


def test_the_longest_messages_are_taken_and_answered() -> None:
    class Echo(Obedient):
        def on_session_message(
            self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
        ) -> None:
            assert session is not None
            session.send(buffer)

    payload = random.Random(1).randbytes(128 * 1024 - 64)
    with MemoryMember(Echo) as member:
        assert member.open_session().send(payload) == [payload]


@pytest.mark.parametrize("reason", CloseReason)
def test_a_session_closes(member: MemoryMember, reason: CloseReason) -> None:
    client = member.open_session()
    client.close(reason)
    assert (client.is_open, member.sessions) == (False, [])
    assert member.service.state.events[-1] == f"close 1 {reason.name}"
    with pytest.raises(ScriptError, match="session 1 is closed"):
        client.send(b"add 1")
    with pytest.raises(ScriptError, match="session 1 is closed"):
        client.close()


def test_the_service_closes_a_session(member: MemoryMember) -> None:
    client = member.open_session()
    assert client.send(b"close") == [b"0"]
    assert not client.is_open
    assert member.service.state.events[-1] == "close 1 SERVICE_ACTION"
    assert [entry.decode()[0] for entry in member.log][-2:] == ["SessionMessageHeader", "SessionCloseEvent"]


def test_timers_fire_at_their_deadlines_in_order(member: MemoryMember) -> None:
    client = member.open_session()
    for message in (b"timer 1 1050", b"timer 2 1020", b"timer 3 1020", b"timer 4 1060", b"timer 1 1030", b"cancel 4"):
        client.send(message)
    assert member.timers == {2: 1020, 3: 1020, 1: 1030}
    member.advance(25)
    assert (member.cluster_time, member.timers) == (1025, {1: 1030})
    member.advance(100)
    fired = [event for event in member.service.state.events if event.startswith("timer")]
    assert fired == ["timer 2 1020", "timer 3 1020", "timer 1 1030"]
    assert member.cluster_time == 1125


def test_a_timer_that_is_due_fires_without_more_time(member: MemoryMember) -> None:
    member.open_session().send(b"timer 7 900")
    assert member.service.state.events[-1] == "timer 7 1000"
    assert member.timers == {}


def test_a_timer_can_be_fired_early_and_out_of_nothing(member: MemoryMember) -> None:
    member.open_session().send(b"timer 1 5000")
    member.fire_timer(1)
    member.fire_timer(8)
    assert member.service.state.events[-2:] == ["timer 1 1000", "timer 8 1000"]
    assert member.timers == {}


def test_a_service_that_never_rests_is_an_error(member: MemoryMember) -> None:
    with pytest.raises(ScriptError, match=r"did not come to rest in 10000 rounds: .* last TimerEvent"):
        member.open_session().send(b"timer 99 900")


def test_time_never_goes_back(member: MemoryMember) -> None:
    for duration in (1.5, "1", None):
        with pytest.raises(TypeError, match="duration=.*: must be an int"):
            member.advance(duration)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"duration=\d+: must be a whole number"):
        member.advance(2**70)
    with pytest.raises(ConfigurationError, match=r"duration=-1: must be .* cluster time never goes back"):
        member.advance(-1)
    assert member.cluster_time == 1000


def test_whatever_is_an_index_is_a_number() -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    seven: Any = Seven()
    with MemoryMember(Obedient, time=seven, member_id=seven, service_id=seven) as member:
        assert (member.cluster_time, member.service.cluster.member_id) == (7, 7)
        client = member.open_session()
        member.inject_service_message(b"add 1", service_id=seven)
        member.advance(seven)
        member.fire_timer(seven)
        member.new_term(leader_member_id=seven, app_version=True)
        assert (member.cluster_time, member.service.state.events[-1]) == (14, "timer 7 14")
        assert type(member.cluster_time) is int
        assert (member.service.state.total, member.service.terms[-1][1]) == (1, 7)
        assert client.send(b"add 1") == [b"2"]
        with pytest.raises(ConfigurationError, match=r"results\[0\]=.*: must be from -5 to -1"):
            member.fail_offers(seven)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda member: member.restart(), id="restart"),
        pytest.param(lambda member: member.advance(5), id="advance"),
        pytest.param(lambda member: member.open_session(), id="open_session"),
        pytest.param(lambda member: member.sessions[0].send(b"1"), id="send"),
        pytest.param(lambda member: member.sessions[0].close(), id="close a session"),
        pytest.param(lambda member: member.take_snapshot(), id="take_snapshot"),
        pytest.param(lambda member: member.fire_timer(1), id="fire_timer"),
        pytest.param(lambda member: member.change_role(Role.FOLLOWER), id="change_role"),
    ],
)
def test_a_callback_must_not_call_the_member(call: Callable[[MemoryMember], object]) -> None:
    with MemoryMember(RecordingService) as member:
        client = member.open_session()
        refusals: list[BaseException] = []
        lengths: list[int] = []

        def act(*_: object) -> None:
            with pytest.raises(ScriptError, match="a callback of the service is running") as caught:
                call(member)
            refusals.append(caught.value)
            lengths.append(len(member.log))

        member.service.actions["on_session_message"] = act
        before = len(member.log)
        client.send(b"x")
        assert (len(refusals), lengths) == (1, [before + 1])
        assert (member.cluster_time, member.role, member.sessions) == (1000, Role.LEADER, [client])
        member.service.actions.clear()
        client.send(b"y")
        member.restart()
        assert member.service.messages == [b"x", b"y"]


@pytest.mark.parametrize("service", [4, lambda: 4])
def test_a_restart_with_a_wrong_service_changes_nothing(member: MemoryMember, service: Any) -> None:
    client = member.open_session()
    with pytest.raises(ConfigurationError, match="service="):
        member.restart(service=service)
    assert client.send(b"add 1") == [b"1"]
    member.restart()
    assert member.service.state.total == 1


def test_messages_of_services_come_back(member: MemoryMember) -> None:
    client = member.open_session()
    client.send(b"cluster 5")
    assert member.service.state.total == 5
    member.inject_service_message(b"add 6", service_id=3)
    assert member.service.state.total == 11
    assert client.egress == [b"0"]


@pytest.mark.parametrize(
    ("call", "event"),
    [
        pytest.param(lambda member: member.open_session(b"late"), "on_session_open", id="open_session"),
        pytest.param(lambda member: member.sessions[1].close(), "on_session_close", id="close"),
        pytest.param(lambda member: member.sessions[0].send(b"add 1"), "on_session_message", id="send"),
        pytest.param(lambda member: member.inject_service_message(b"a"), "on_session_message", id="service message"),
        pytest.param(lambda member: member.fire_timer(1), "on_timer_event", id="fire_timer"),
        pytest.param(lambda member: member.advance(500), "on_timer_event", id="advance"),
        pytest.param(lambda member: member.new_term(), "on_new_leadership_term_event", id="new_term"),
        pytest.param(lambda member: member.take_snapshot(), "on_take_snapshot", id="take_snapshot"),
        pytest.param(
            lambda member: member.change_role(Role.FOLLOWER), "on_new_leadership_term_event", id="change_role"
        ),
    ],
)
def test_an_event_behind_the_padding_of_a_log_term_is_delivered_by_its_call(
    call: Callable[[MemoryMember], object], event: str
) -> None:
    end, least, empty = 1024 * 1024, 32, 64  # the term's, the shortest frame, and that of an empty message
    with MemoryMember(RecordingService) as member:
        client = member.open_session()
        member.open_session()
        member.service.actions["on_session_message"] = lambda *_: member.service.cluster.schedule_timer(1, 1500)
        client.send(b"timer")
        del member.service.actions["on_session_message"]
        while member.log_position < end - 40_000:
            client.send(b"x" * 32_000)
        if (end - least - member.log_position) % empty:
            client.send(b"x")
        while member.log_position < end - least:
            client.send(b"")
        before = len(member.service.of(event))
        call(member)
        assert len(member.service.of(event)) == before + 1
        assert member.log_position > end + least
        member.sessions[0].send(b"next")
        assert member.service.messages[-1] == b"next"
        noted = len(member.service.of(event))
        if event != "on_take_snapshot":  # a replay takes none
            member.restart()
            assert len(member.service.of(event)) == noted + (event == "on_new_leadership_term_event")


def test_roles_and_terms(member: MemoryMember) -> None:
    client = member.open_session()
    member.change_role(Role.FOLLOWER)
    assert (member.role, client.send(b"add 1")) == (Role.FOLLOWER, [])
    member.new_term(leader_member_id=2)
    member.change_role(Role.LEADER)
    assert client.send(b"add 1") == [b"2"]
    assert member.service.of("on_role_change") == [(Role.LEADER,), (Role.FOLLOWER,), (Role.LEADER,)]
    assert member.service.terms == [(n, leader, TimeUnit.MILLIS) for n, leader in ((1, 0), (2, 1), (3, 2), (4, 0))]


def test_a_member_may_begin_as_follower_with_another_time_unit() -> None:
    with MemoryMember(Obedient, role=Role.FOLLOWER, time=5, time_unit=TimeUnit.NANOS, member_id=2) as member:
        assert member.open_session().send(b"add 1") == []
        assert member.service.terms == [(1, 1, TimeUnit.NANOS)]
        assert member.service.cluster.member_id == 2
        assert member.service.cluster.time == 5


def test_offers_that_fail(member: MemoryMember) -> None:
    client = member.open_session()
    member.fail_offers(BACK_PRESSURED, NOT_CONNECTED)
    assert [client.send(b"add 1") for _ in range(3)] == [[], [], [b"3"]]
    assert member.service.results[:2] == [BACK_PRESSURED, NOT_CONNECTED]


def test_requests_that_fail(member: MemoryMember) -> None:
    client = member.open_session()
    member.fail_requests(BACK_PRESSURED, BACK_PRESSURED, BACK_PRESSURED, BACK_PRESSURED)
    client.send(b"insist 4 2000")
    assert member.timers == {4: 2000}
    member.fail_requests(*[BACK_PRESSURED] * 3)
    with pytest.raises(ContainerError, match="schedule_timer of 5 returned False"):
        client.send(b"timer 5 2000")  # the container reports what the service did not retry


def test_what_a_callback_raises_comes_out(member: MemoryMember) -> None:
    client = member.open_session()
    with pytest.raises(ValueError, match="of the service") as caught:
        client.send(b"raise")
    assert "on_session_message raised ValueError in the event at logPosition=" in caught.value.__notes__[0]
    assert member.has_ended
    with pytest.raises(ScriptError, match=r"the member has ended: on_session_message .*restart\(\) starts it again"):
        client.send(b"add 1")
    with pytest.raises(ValueError, match="of the service"):
        member.restart()  # the log still has the message

    class Repaired(Obedient):
        def on_session_message(
            self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
        ) -> None:
            if bytes(buffer) != b"raise":
                super().on_session_message(session, timestamp, buffer, header)

    member.restart(service=Repaired)
    assert client.send(b"add 1") == [b"1"]


def test_errors_can_be_collected_as_in_production() -> None:
    with MemoryMember(Obedient, callback_error_policy="skip", raises=False) as member:
        client = member.open_session()
        assert client.send(b"raise") == []
        assert client.send(b"add 1") == [b"1"]
        assert [type(error) for error in member.errors] == [ValueError]
        assert not member.has_ended
    with MemoryMember(Obedient, raises=False) as member:
        member.open_session().send(b"raise")
        assert member.has_ended


def test_a_skipped_exception_comes_out_and_the_member_goes_on() -> None:
    with MemoryMember(Obedient, callback_error_policy="skip") as member:
        client = member.open_session()
        with pytest.raises(ValueError, match="of the service"):
            client.send(b"raise")
        assert client.send(b"add 1") == [b"1"]


def test_a_callback_that_waits_forever_is_an_error(member: MemoryMember) -> None:
    with pytest.raises(Exception, match="10000|10,000"):
        member.open_session().send(b"wait")


def test_an_interrupt_of_the_user_comes_out_as_it_is() -> None:
    class Interrupted(RecordingService):
        def on_session_message(self, *arguments: Any) -> None:
            raise KeyboardInterrupt

    with MemoryMember(Interrupted) as member, pytest.raises(KeyboardInterrupt):
        member.open_session().send(b"x")


def test_what_on_start_raises_comes_out() -> None:
    class Failing(Obedient):
        def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
            raise OSError("no model file")

    with pytest.raises(OSError, match="no model file"):
        MemoryMember(Failing)


def test_a_snapshot_and_the_log_behind_it(member: MemoryMember) -> None:
    client, second = member.open_session(b"me"), member.open_session()
    for message in (b"add 40", b"timer 1 1500", b"cluster 1"):
        client.send(message)
    snapshot = member.take_snapshot()
    assert snapshot.log_position == member.log_position
    assert (snapshot.timers, snapshot.sessions) == ({1: 1500}, {1: b"me", 2: b""})
    second.send(b"cluster 2")
    member.advance(600)
    client.send(b"timer 2 9000")
    second.send(b"close")
    state, before = member.service.state, member.service
    log = member.log
    kept = member.take_snapshot().state
    for start in (snapshot, None):
        member.restart(start)
        assert member.take_snapshot().state == kept
        assert member.service is not before
        assert member.service.state == state
        assert member.timers == {2: 9000}
        assert member.sessions == [client]
        assert member.log[: len(log)] == log
        assert {entry.decode()[0] for entry in member.log[len(log) :]} == {
            "ClusterActionRequest",
            "NewLeadershipTermEvent",
        }
    assert client.egress == [b"40", b"40", b"40", b"43"]  # nothing is answered again
    assert client.send(b"add 0") == [b"43"]


def test_a_snapshot_of_one_member_starts_another(member: MemoryMember) -> None:
    member.open_session(b"me").send(b"add 40")
    kept = msgspec.msgpack.encode(member.take_snapshot())
    with MemoryMember(Obedient, snapshot=msgspec.msgpack.decode(kept, type=MemorySnapshot)) as other:
        (client,) = other.sessions
        assert (client.id, client.principal) == (1, b"me")
        assert client.send(b"add 2") == [b"42"]
        assert other.open_session().id == 2
        assert other.take_snapshot().state != member.take_snapshot().state
        other.restart()
        assert (other.service.state.total, client.send(b"add 1")) == (42, [b"43"])


def test_another_version_of_the_service_starts_from_the_snapshot(member: MemoryMember) -> None:
    class Doubling(Obedient):
        def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
            super().on_start(cluster, snapshot_image)
            self.state.total *= 2

    client = member.open_session()
    client.send(b"add 21")
    member.restart(member.take_snapshot(), service=Doubling)
    assert client.send(b"add 0") == [b"42"]


def test_what_a_new_version_sends_in_a_replay_beyond_the_old_one_is_carried_out_behind_it(member: MemoryMember) -> None:
    class Closing(Obedient):
        def on_session_message(
            self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
        ) -> None:
            super().on_session_message(session, timestamp, buffer, header)
            if session is not None:
                self.cluster.send(b"add 100")
                session.close()

    client = member.open_session()
    client.send(b"cluster 1")
    member.restart(service=Closing)
    assert not client.is_open
    assert member.service.state.total == 101


def test_a_snapshot_that_fails(member: MemoryMember) -> None:
    client = member.open_session()
    client.send(b"add 13")
    with pytest.raises(ValueError, match="no snapshots of 13"):
        member.take_snapshot()
    client.send(b"add 1")
    member.restart(member.take_snapshot())
    assert member.service.state.total == 14


def test_a_snapshot_that_fails_while_errors_are_collected() -> None:
    with MemoryMember(Obedient, raises=False) as member:
        member.open_session().send(b"add 13")
        with pytest.raises(SnapshotError, match=r"took no snapshot at log position \d+: .*no snapshots of 13"):
            member.take_snapshot()


def test_a_service_that_was_given_cannot_be_made_again() -> None:
    with MemoryMember(Obedient()) as member:
        member.open_session().send(b"add 1")
        with pytest.raises(ConfigurationError, match=r"restart\(\) needs a new service"):
            member.restart()
        member.restart(service=Obedient())
        assert member.service.state.total == 1


def test_a_snapshot_from_elsewhere_in_the_log_is_refused(member: MemoryMember) -> None:
    with MemoryMember(Obedient) as other:
        for _ in range(10):
            other.open_session()
        snapshot = other.take_snapshot()
    with pytest.raises(ScriptError, match=rf"log position {snapshot.log_position}: the log goes from 0 to \d+"):
        member.restart(snapshot)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"service": 3}, "service=3: must be a ClusteredService, or a function that makes one"),
        ({"service": dict}, r"service=<class 'dict'>: dict has no callback on_start\(\): derive it from"),
        ({"service": lambda: 3}, r"service=.* made 3: it must make a ClusteredService: return one from"),
        ({"role": Role.CANDIDATE}, "role=.*: must be Role.LEADER or Role.FOLLOWER"),
        ({"callback_error_policy": "ignore"}, "callback_error_policy='ignore': must be halt or skip"),
        ({"service_id": -1}, "service_id=-1: must be a whole number from 0 to 9"),
        ({"service_id": 10}, "service_id=10: must be a whole number from 0 to 9"),
        ({"time": 2**63}, "time=9223372036854775808: must fit into 64 bits"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        MemoryMember(**{"service": Obedient, **arguments})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"role": "LEADER"}, "role='LEADER': must be Role.LEADER or Role.FOLLOWER"),
        ({"role": 0}, "role=0: must be Role.LEADER or Role.FOLLOWER"),
        ({"time_unit": "ms"}, "time_unit='ms': must be a TimeUnit, such as TimeUnit.MILLIS"),
        ({"callback_error_policy": 3}, "callback_error_policy=3: must be halt or skip"),
        ({"time": "soon"}, "time='soon': must be an int"),
        ({"member_id": "0"}, "member_id='0': must be an int"),
        ({"service_id": None}, "service_id=None: must be an int"),
        ({"snapshot": b"a"}, r"snapshot=b'a': must be a MemorySnapshot, as take_snapshot\(\) returns"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        MemoryMember(**{"service": Obedient, **arguments})


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda member: member.open_session("ada"), r"principal='ada': must be .* bytes: encode a string, as in"),
        (lambda member: member.open_session(5), "principal=5: must be a bytes-like object, such as bytes$"),
        (lambda member: member.sessions[0].send("add 1"), r"payload='add 1': must be .* encode a string, as in"),
        (lambda member: member.sessions[0].send(None), "payload=None: must be a bytes-like object, such as bytes$"),
        (lambda member: member.sessions[0].close("TIMEOUT"), "reason='TIMEOUT': must be a CloseReason, such as"),
        (lambda member: member.inject_service_message("add 1"), "payload='add 1': must be .* encode a string"),
        (lambda member: member.inject_service_message(5), "payload=5: must be a bytes-like object"),
        (lambda member: member.inject_service_message(b"add 1", service_id="1"), "service_id='1': must be an int"),
        (lambda member: member.fire_timer("7"), "correlation_id='7': must be an int"),
        (lambda member: member.new_term(leader_member_id="1"), "leader_member_id='1': must be an int"),
        (lambda member: member.new_term(app_version="1"), "app_version='1': must be an int"),
        (lambda member: member.fail_offers(-1, "-2"), r"results\[1\]='-2': must be an int"),
        (lambda member: member.fail_requests([-1]), r"results\[0\]=\[-1\]: must be an int"),
        (lambda member: member.change_role("LEADER"), "role='LEADER': must be Role.LEADER or Role.FOLLOWER"),
        (lambda member: member.restart(b"snapshot"), "snapshot=b'snapshot': must be a MemorySnapshot"),
    ],
)
def test_a_value_of_a_wrong_type_is_named_and_changes_nothing(
    member: MemoryMember, call: Callable[[MemoryMember], object], text: str
) -> None:
    session = member.open_session()
    position = member.log_position
    with pytest.raises(TypeError, match=text):
        call(member)
    assert (member.sessions, member.log_position) == ([session], position)
    assert session.send(b"add 1")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda member: member.fire_timer(2**63), r"correlation_id=9223372036854775808: must fit into 64 bits"),
        (lambda member: member.new_term(app_version=2**31), "app_version=2147483648: must fit into 32 bits"),
        (
            lambda member: member.inject_service_message(b"a", service_id=-1),
            "service_id=-1: must be a whole number from 0 to 9",
        ),
        (lambda member: member.change_role(Role.CANDIDATE), "role=.*: must be Role.LEADER or Role.FOLLOWER"),
        (lambda member: member.fail_offers(-1, 0), r"results\[1\]=0: must be from -5 to -1, such as BACK_PRESSURED"),
        (lambda member: member.fail_requests(-6), r"results\[0\]=-6: must be from -5 to -1"),
    ],
)
def test_a_number_that_does_not_fit_is_named(
    member: MemoryMember, call: Callable[[MemoryMember], object], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        call(member)


def test_a_closed_member_does_nothing(member: MemoryMember) -> None:
    client = member.open_session()
    member.close()
    member.close()
    for action in (member.open_session, member.take_snapshot, member.restart, lambda: client.send(b"add 1")):
        with pytest.raises(ScriptError, match="the member is closed"):
            action()
    assert "closed" in repr(member)


def test_a_random_life_has_the_same_state_after_each_restart() -> None:
    rng = random.Random(7)
    snapshot: MemorySnapshot | None = None
    with MemoryMember(Obedient) as member:
        for step in range(300):
            if not member.sessions or rng.random() < 0.1:
                member.open_session(rng.randbytes(2))
            client = rng.choice(member.sessions)
            words = (b"add %d", b"cluster %d", b"timer %d 1500", b"cancel %d", b"close %d")
            client.send(rng.choice(words) % rng.randrange(20))
            member.advance(rng.randrange(30))
            if step % 20 == 7 and member.service.state.total != 13:
                snapshot = member.take_snapshot()
            if step % 10 == 9:
                state, timers = member.service.state, member.timers
                member.restart(rng.choice((snapshot, None)))
                assert (member.service.state, member.timers) == (state, timers)


# The examples.


def test_the_auction_closes_by_its_timer() -> None:
    with MemoryMember(AuctionService) as member:
        seller, buyer = member.open_session(), member.open_session()
        encode = msgspec.msgpack.encode
        assert seller.send(encode(OpenAuction(request_id=1, item="clock", reserve_price=10, duration_ms=5000))) != []
        assert buyer.send(encode(PlaceBid(request_id=2, auction_id=1, bidder="ada", price=12))) != []
        member.advance(4999)
        assert member.timers != {}
        member.restart(member.take_snapshot())
        member.advance(1)
        assert member.timers == {}
        assert member.service.house.closed == [1]
        closed = msgspec.msgpack.decode(seller.egress[-1], type=AuctionClosed)
        assert (closed.winner, closed.price) == ("ada", 12)


def test_the_ledger_applies_each_number_once_over_restarts() -> None:
    with MemoryMember(LedgerService) as member:
        client = member.open_session()
        for number in (1, 1, 2):
            client.send(TRANSFER.pack(7, number, 1, 100))
            member.restart(member.take_snapshot())
        answers = [ANSWER.unpack(answer) for answer in client.egress]
        assert [balance for _client, _number, balance, _status in answers] == [100, 100, 200]
        assert {status for *_, status in answers} <= set(Status)
