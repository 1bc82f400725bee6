"""What a consensus module of one member does, over memory: sessions, log, timers, services, snapshots, control, ends.

A number in a name is that of a statement in ``consensus_conformance.md``.
"""

from __future__ import annotations

import dataclasses
import errno
import gc
import logging
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from container.archive.authentication import AllowAll, DenyAll
from container.codecs import messages as codecs
from container.common import log_events
from container.common.aeron_defaults import EGRESS_STREAM_ID, REPLAY_STREAM_ID
from container.consensus.consensus_module_context import BackupRequests, ConsensusModuleContext
from container.consensus.election import Election
from container.consensus.election_host import ElectionState
from container.consensus.timer_service import PriorityHeapTimerService, TimerHandler, WheelTimerService
from container.errors import (
    AgentTermination,
    ArchiveError,
    ClusterError,
    ClusterTermination,
    ConfigurationError,
    RegistrationError,
)
from container.files.cluster_mark_file import MARK_FILE_NAME, ClusterMarkFile
from container.files.names import LOG_REPLICATION_NAME
from container.files.recording_log import RecordingLog
from container.storage.storage_seam import CREATE, NO_FOLLOW
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryPublication
from container.testing.simulation.disk import SimulatedDisk
from container.transport.fragment_assembler import FragmentAssembler
from tests.archive_world import ArchiveWorld
from tests.consensus_world import (
    ABORT,
    ACTION_RESUME,
    ACTION_SNAPSHOT,
    ACTION_SUSPEND,
    AUTHENTICATION_REJECTED,
    CLIENT_ACTION,
    CLOSED,
    CLUSTER_DIR,
    ENDPOINTS,
    ERROR,
    LEADER,
    LOG_RECORDING,
    NEUTRAL,
    OK,
    RECORDING_IDS,
    RECOVERY_STATE,
    RESUME,
    SERVICE_ACTION,
    SESSION,
    SHUTDOWN,
    SNAPSHOT,
    STANDBY_SNAPSHOT,
    SUSPEND,
    TERM_LENGTH,
    TIMEOUT,
    Client,
    ConsensusWorld,
)
from tests.control_world import CONTROL_CHANNEL, MS
from tests.scripted_archive import Request, ScriptedArchive, Session

S = 1_000


@pytest.fixture
def world() -> ConsensusWorld:
    """A cluster of one member that leads, with one service."""
    return ConsensusWorld().lead()


def codes(client: Client) -> list[tuple[int, str]]:
    """Codes and details of the session events that came."""
    return [(fields["code"], fields["detail"].decode()) for name, fields in client.received() if name == "SessionEvent"]


def now_ms(world: ConsensusWorld) -> int:
    return world.clock.now_ms


def take_snapshot(world: ConsensusWorld) -> dict[str, list[dict[str, Any]]]:
    """Take a snapshot, as a tool asks for it; the fields of its messages by name."""
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.toggle != SNAPSHOT)
    assert (world.toggle, world.state) == (NEUTRAL, "ACTIVE")
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, fields in world.snapshot():
        found[name].append(fields)
    return found


def termination(world: ConsensusWorld) -> ClusterTermination:
    """Wait until it has ended; how."""
    world.until(lambda: world.failure)
    assert isinstance(world.failure, ClusterTermination)
    return world.failure


# Sessions


def test_cm2_another_major_version_is_refused_and_takes_an_id(world: ConsensusWorld) -> None:
    client = Client(world)
    client.connect(version=1 << 16)
    event = client.event()
    assert (event["code"], event["detail"]) == (ERROR, b"invalid client version 1.0.0, cluster is 0.3.0")
    assert world.report_of("ERROR invalid client version 1.0.0, cluster is 0.3.0, clusterMemberId=0, id=1")
    assert world.client_of().session_id == 2
    assert [each["cluster_session_id"] for each in world.logged("SessionOpenEvent")] == [2]


def test_cm2_one_session_too_many_is_refused_and_takes_an_id() -> None:
    world = ConsensusWorld(max_concurrent_sessions=1).lead()
    first = world.client_of()
    second = Client(world)
    second.connect()
    event = second.event()
    assert (event["code"], event["detail"]) == (ERROR, b"concurrent session limit")
    assert event["cluster_session_id"] == 2
    first.close()
    world.tick()
    assert world.client_of().session_id == 3


def test_cm3_a_session_opens_in_the_log_before_its_messages_and_where_the_event_ends(world: ConsensusWorld) -> None:
    client = Client(world)
    before = seam.position(world.publication)
    correlation_id = client.connect()
    event = client.event()
    opened = seam.position(world.publication)
    client.session_id, client.leadership_term_id = event["cluster_session_id"], event["leadership_term_id"]
    client.message(b"first")
    world.tick()
    assert [name for name, _ in world.log[1:]] == ["SessionOpenEvent", "SessionMessageHeader"]
    [logged] = world.logged("SessionOpenEvent")
    assert (logged["correlation_id"], logged["cluster_session_id"]) == (correlation_id, 1)
    assert logged["response_channel"] == client.egress_channel.encode()
    assert before < opened
    [session] = take_snapshot(world)["ClusterSession"]
    assert session["opened_log_position"] == opened


def test_cm4_the_ok_has_the_version_and_the_heartbeat_timeout(world: ConsensusWorld) -> None:
    event = Client(world).open()
    assert event["version"] == 3 << 8
    assert event["leader_heartbeat_timeout_ns"] == 10 * S * MS
    assert (event["leader_member_id"], event["detail"]) == (0, b"")


def test_cm4_an_ok_that_does_not_go_out_is_sent_with_a_later_tick(world: ConsensusWorld) -> None:
    client = Client(world)
    world.driver.publication_results(client.egress_channel, 102, [-2] * 6)
    correlation_id = client.connect()
    world.until(lambda: world.logged("SessionOpenEvent"))
    assert client.received() == []
    world.tick(2)
    event = client.event()
    assert (event["code"], event["correlation_id"]) == (OK, correlation_id)


class Careful:
    """An authenticator that asks twice; ``calls`` are its own."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: list[bytes] = []

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.calls.append(("connect", session_id, encoded_credentials))

    def on_connected_session(self, decision: Any, now_ms: int) -> None:
        self.calls.append(("connected", decision.session_id))
        if len(self.calls) > 3:
            decision.challenge(b"who?")

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.calls.append(("response", session_id, encoded_credentials))
        self.answers.append(encoded_credentials)

    def on_challenged_session(self, decision: Any, now_ms: int) -> None:
        if not self.answers:
            return
        self.calls.append(("challenged", decision.session_id, self.answers[-1]))
        if self.answers == [b"me"]:
            decision.challenge(b"really?")
            self.answers.append(b"")
        elif self.answers[-1] == b"yes":
            decision.authenticate(b"a principal")
        elif self.answers[-1] == b"no":
            decision.reject()


def challenged(answer: bytes) -> tuple[Client, Careful, ConsensusWorld]:
    """A client that has answered two challenges, the second one with ``answer`` and the correlation id 77."""
    authenticator = Careful()
    world = ConsensusWorld(authenticator=authenticator).lead()
    client = Client(world)
    client.connect(encoded_credentials=b"name")
    first = client.wait_for("Challenge")
    assert first["encoded_challenge"] == b"who?"
    client.send("ChallengeResponse", correlation_id=55, cluster_session_id=1, encoded_credentials=b"me")
    second = client.wait_for("Challenge")
    assert (second["encoded_challenge"], second["correlation_id"]) == (b"really?", 55)
    client.send("ChallengeResponse", correlation_id=77, cluster_session_id=1, encoded_credentials=answer)
    return client, authenticator, world


def test_cm5_an_authenticator_is_asked_until_it_has_decided() -> None:
    client, authenticator, world = challenged(b"yes")
    event = client.event()
    assert (event["code"], event["correlation_id"]) == (OK, 77)
    kinds = [each[0] for each in authenticator.calls]
    assert authenticator.calls[0] == ("connect", 1, b"name")
    assert kinds.count("connect") == 1
    assert kinds.count("connected") == 3
    assert kinds.index("response") > kinds.index("connected")
    assert authenticator.calls[-2:] == [("response", 1, b"yes"), ("challenged", 1, b"yes")]
    [logged] = world.logged("SessionOpenEvent")
    assert (logged["encoded_principal"], logged["correlation_id"]) == (b"a principal", 77)


def test_cm6_an_answer_to_a_challenge_changes_the_correlation_id_of_what_follows() -> None:
    client, _, world = challenged(b"no")
    event = client.event()
    assert (event["code"], event["correlation_id"]) == (AUTHENTICATION_REJECTED, 77)
    assert event["detail"] == b"session failed authentication"
    assert world.logged("SessionOpenEvent") == []


@pytest.mark.parametrize("change", ["term", "session", "closing", "none"])
def test_cm7_what_is_of_no_open_session_of_the_term_leaves_no_trace(world: ConsensusWorld, change: str) -> None:
    client = world.client_of()
    if change == "closing":
        world.refuse_appends(3)
        client.close()
        world.work(3)
    fields: dict[str, Any] = {"term": {"leadership_term_id": 7}, "session": {"cluster_session_id": 99}}.get(change, {})
    client.message(b"a message", **fields)
    client.send("SessionKeepAlive", **fields)
    world.work(3)
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == (
        [b"a message"] if change == "none" else []
    )
    assert world.errors == []


def test_cm8_messages_that_the_log_does_not_take_come_later_in_order(world: ConsensusWorld) -> None:
    client, other = world.client_of(), world.client_of()
    world.refuse_appends(12)  # two turns of three tries for each client
    for number in range(20):
        client.message(b"%d" % number)
        other.message(b"%d" % number)
    world.work(2)
    assert world.logged("SessionMessageHeader") == []
    world.work(20)
    for session_id in (1, 2):
        assert [
            each["payload"] for each in world.logged("SessionMessageHeader") if each["cluster_session_id"] == session_id
        ] == [b"%d" % number for number in range(20)]


def test_cm9_a_silent_client_times_out_with_an_event_and_a_count(world: ConsensusWorld) -> None:
    client = world.client_of()
    opened = now_ms(world)
    world.wait(9_990)
    assert world.logged("SessionCloseEvent") == []
    world.wait(40)
    [closed] = world.logged("SessionCloseEvent")
    assert closed["close_reason"] == TIMEOUT
    assert 10_000 <= closed["timestamp"] - opened <= 10_020
    assert codes(client) == [(CLOSED, "TIMEOUT")]
    assert world.counter_value(213) == 1
    assert world.counter(SESSION) == []


@pytest.mark.parametrize("kind", ["keep-alive", "message"])
def test_cm9_a_client_that_is_heard_does_not_time_out(world: ConsensusWorld, kind: str) -> None:
    client = world.client_of()
    for _ in range(5):
        world.wait(5_000, 100)
        if kind == "message":
            client.message(b"here")
        else:
            client.keep_alive()
        world.tick()
    assert world.logged("SessionCloseEvent") == []


def test_a_module_that_stood_still_does_not_take_that_for_a_client_s_silence(world: ConsensusWorld) -> None:
    """Such as during a long callback on its thread; upstream closes all sessions then."""
    client = world.client_of()
    world.wait(6_000)
    for _ in range(3):
        world.wait(60_000, 60_000)
        world.tick()
    assert world.logged("SessionCloseEvent") == []
    client.message(b"still here")
    world.tick()
    assert world.logged("SessionMessageHeader")[-1]["payload"] == b"still here"
    world.wait(9_900)
    assert world.logged("SessionCloseEvent") == []
    world.wait(200)
    assert [each["close_reason"] for each in world.logged("SessionCloseEvent")] == [TIMEOUT]


def test_cm9_a_client_that_is_silent_times_out_also_where_each_turn_takes_seconds(world: ConsensusWorld) -> None:
    """A service whose callbacks take long, on the same thread: what clients send is read once a turn."""
    heard, silent = world.client_of(), world.client_of()
    for _ in range(7):
        heard.keep_alive()
        world.wait(2_000, 2_000)
    assert [each["cluster_session_id"] for each in world.logged("SessionCloseEvent")] == [silent.session_id]


def test_cm10_a_client_whose_ingress_is_gone_is_closed_with_the_next_tick(world: ConsensusWorld) -> None:
    client, other = world.client_of(), world.client_of()
    client.vanish()
    world.tick(2)
    [closed] = world.logged("SessionCloseEvent")
    assert (closed["cluster_session_id"], closed["close_reason"]) == (client.session_id, TIMEOUT)
    other.message(b"still here")
    world.tick()
    assert len(world.logged("SessionMessageHeader")) == 1


def test_cm11_a_client_that_closes_hears_nothing_and_is_closed_once(world: ConsensusWorld) -> None:
    client = world.client_of()
    client.close()
    client.close()
    world.tick(2)
    assert [each["close_reason"] for each in world.logged("SessionCloseEvent")] == [CLIENT_ACTION]
    assert client.received() == []
    assert world.counter_value(213) == 0


def test_cm11_a_client_that_the_service_closes_is_told_so(world: ConsensusWorld) -> None:
    client = world.client_of()
    world.services[0].send("CloseSession", cluster_session_id=client.session_id)
    world.services[0].send("CloseSession", cluster_session_id=client.session_id)
    world.tick(2)
    assert [each["close_reason"] for each in world.logged("SessionCloseEvent")] == [SERVICE_ACTION]
    assert codes(client) == [(CLOSED, "SERVICE_ACTION")]


@pytest.mark.parametrize("reason", [CLIENT_ACTION, SERVICE_ACTION, TIMEOUT])
def test_a_close_that_the_log_does_not_take_is_appended_with_a_later_tick(world: ConsensusWorld, reason: int) -> None:
    client = world.client_of()
    if reason == TIMEOUT:
        world.wait(10_000, 100)
    world.refuse_appends(3)
    if reason == CLIENT_ACTION:
        client.close()
    elif reason == SERVICE_ACTION:
        world.services[0].send("CloseSession", cluster_session_id=client.session_id)
    world.clock.advance(2 * MS)
    world.work()
    assert world.logged("SessionCloseEvent") == []
    world.tick(3)
    assert [each["close_reason"] for each in world.logged("SessionCloseEvent")] == [reason]


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_cm12_a_restart_closes_all_sessions_behind_the_new_term(world: ConsensusWorld, has_snapshot: bool) -> None:
    world.client_of()
    world.client_of()
    if has_snapshot:
        take_snapshot(world)
    world.settle()
    world.restart().lead()
    assert [name for name, _ in world.log] == ["NewLeadershipTermEvent", "SessionCloseEvent", "SessionCloseEvent"]
    assert {each["close_reason"] for each in world.logged("SessionCloseEvent")} == {TIMEOUT}
    assert world.client_of().session_id == 3


def assert_told_of_the_end(clients: Iterable[Client], detail: bytes) -> None:
    """Each hears the end of its session, once."""
    for client in clients:
        event = client.event()
        assert (event["code"], event["detail"]) == (CLOSED, detail)
        assert event["cluster_session_id"] == client.session_id
        assert client.received() == []


def test_clients_that_outlive_a_kill_are_told_that_their_sessions_ended(world: ConsensusWorld) -> None:
    clients = [world.client_of(), world.client_of()]
    world.settle()
    world.kill()
    world.lead()
    assert_told_of_the_end(clients, b"TIMEOUT")
    world.settle()
    resources = len(world.client.open_resources)
    world.restart().lead()
    world.settle()
    assert len(world.client.open_resources) == resources, "the egress of those that were told is closed"


def test_an_end_in_order_of_the_only_member_is_told_to_its_sessions(world: ConsensusWorld) -> None:
    clients = [world.client_of(), world.client_of()]
    world.settle()
    world.stop()
    assert_told_of_the_end(clients, b"the only member has ended")
    world.begin()
    world.lead()
    names = [name for name, _ in world.log]
    assert names == ["NewLeadershipTermEvent", "SessionCloseEvent", "SessionCloseEvent"], "of the next start alone"
    closes = [each["cluster_session_id"] for each in world.logged("SessionCloseEvent")]
    assert closes == [client.session_id for client in clients]


@pytest.mark.parametrize(("count", "gone"), [(620, 520), pytest.param(2_000, 700, marks=pytest.mark.slow)])
def test_all_clients_that_outlive_a_kill_are_told_a_few_at_a_time(count: int, gone: int) -> None:
    world = ConsensusWorld(max_concurrent_sessions=count, archive={"counters": 16 * count})
    world.lead()
    clients = [world.client_of() for _ in range(count)]
    for client in clients[:gone]:  # they are ahead of the others, and never take what they are told
        client.vanish()
    world.settle()
    world.kill()
    world.lead()
    waiting = {client.session_id: client for client in clients[gone:]}
    most = 0

    def all_told() -> bool:
        nonlocal most
        most = max(most, sum(each.stream_id == EGRESS_STREAM_ID for each in world.driver.publications()))
        for session_id, client in list(waiting.items()):
            for name, fields in client.received():
                assert (name, fields["code"], fields["detail"]) == ("SessionEvent", CLOSED, b"TIMEOUT")
                assert fields["cluster_session_id"] == session_id
                del waiting[session_id]
        return not waiting

    world.until(all_told)
    assert 0 < most <= 500, f"{most} have egress at a time"


def lose_recording(world: ConsensusWorld) -> None:
    """Stop the recording of the log, and work until the member leads again, in the next term."""
    term_id = world.counter_value(239)
    world.stop_log_recording()
    world.tick(2)
    world.until(lambda: world.is_leading and world.counter_value(239) == term_id + 1)
    world.settle()
    world.tick()


def test_cm13_sessions_outlive_an_election_and_are_told_of_the_leader(world: ConsensusWorld) -> None:
    client = world.client_of()
    client.message(b"before")
    world.settle()
    lose_recording(world)
    event = client.wait_for("NewLeaderEvent")
    assert (event["leadership_term_id"], event["cluster_session_id"], event["leader_member_id"]) == (1, 1, 0)
    assert event["ingress_endpoints"] == ENDPOINTS.encode()
    client.leadership_term_id = 1
    world.until(lambda: seam.is_connected(client.publication))
    client.message(b"behind")
    world.settle()
    world.tick()
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"behind"]
    assert world.services[0].names().count("SessionOpenEvent") == 1
    assert world.client_of().session_id == 2


def test_cm10_after_an_election_an_ingress_that_is_gone_counts_once_a_keep_alive_came_on_it(
    world: ConsensusWorld,
) -> None:
    silent, linked = world.client_of(), world.client_of()
    lose_recording(world)
    for client in (silent, linked):
        client.wait_for("NewLeaderEvent")
        client.leadership_term_id = 1
        world.until(lambda client=client: seam.is_connected(client.publication))  # type: ignore[misc]
    linked.keep_alive()
    silent.message(b"not a keep-alive")
    world.tick()
    for client in (silent, linked):
        client.vanish()
    world.tick(3)
    assert [each["cluster_session_id"] for each in world.logged("SessionCloseEvent")] == [linked.session_id]
    world.wait(10_100, 100)
    assert [each["cluster_session_id"] for each in world.logged("SessionCloseEvent")] == [2, 1]


def test_an_ok_that_an_election_held_up_is_sent_by_the_new_term(world: ConsensusWorld) -> None:
    client = Client(world)
    world.driver.publication_results(client.egress_channel, 102, [-2] * 900)
    correlation_id = client.connect()
    world.until(lambda: world.logged("SessionOpenEvent"))
    world.settle()
    lose_recording(world)
    assert client.received() == []
    event = client.event()
    assert (event["code"], event["correlation_id"], event["leadership_term_id"]) == (OK, correlation_id, 1)
    assert client.wait_for("NewLeaderEvent")["leadership_term_id"] == 1


def test_cm14_clients_that_were_not_read_in_a_long_suspension_stay(world: ConsensusWorld) -> None:
    client = world.client_of()
    world.set_toggle(SUSPEND)
    world.tick()
    for _ in range(30):
        world.wait(1_000, 100)
        client.keep_alive()
    world.set_toggle(RESUME)
    world.tick(3)
    assert world.state == "ACTIVE"
    assert world.logged("SessionCloseEvent") == []


def test_a_client_that_cannot_be_answered_is_forgotten_at_once(world: ConsensusWorld) -> None:
    client = Client(world)
    world.driver.fail_next_add("exclusive_publication", text="no such host")
    client.connect(version=1 << 16)
    world.tick(3)
    assert world.report_of("no such host")
    assert world.counter(SESSION) == []
    world.driver.fail_next_add("publication", text="no such host either")
    client.connect()
    world.tick(3)
    assert world.report_of("no such host either")
    assert world.counter(SESSION) == []
    assert world.counter_value(213) == 0


# Log


def test_cm15_a_term_begins_with_its_event_which_knows_where_it_ends(world: ConsensusWorld) -> None:
    world.client_of()
    world.settle()
    end = seam.position(world.publication)
    for term_id in (1, 2):
        world.restart().lead()
        [event] = world.logged("NewLeadershipTermEvent")
        [entry] = [each for each in world.context.recording_log.entries if each.leadership_term_id == term_id]
        assert world.log[0][0] == "NewLeadershipTermEvent"
        assert event["leadership_term_id"] == term_id
        assert event["term_base_log_position"] == entry.term_base_log_position == world.publication.log.start_position
        assert (entry.term_base_log_position == end) == (term_id == 1)
        assert event["log_position"] == event["term_base_log_position"] + 96
        assert event["log_session_id"] == world.publication.session_id
        world.settle()


@pytest.mark.parametrize("room", [32, 64, 96, 0])
def test_cm15_an_action_knows_where_it_ends_also_where_the_log_begins_a_new_term(
    world: ConsensusWorld, room: int
) -> None:
    client = world.client_of()
    while (left := TERM_LENGTH - seam.position(world.publication)) > 2048 + room:
        client.message(bytes(1024 - 64))
        world.work(2)
    for length in (left // 2 // 32 * 32, left - left // 2 // 32 * 32 - room):
        client.message(bytes(length - 64))
        world.work(2)
    assert TERM_LENGTH - seam.position(world.publication) == room
    world.settle()
    world.set_toggle(SUSPEND)
    world.tick()
    [action] = world.logged("ClusterActionRequest")
    assert action["log_position"] == seam.position(world.publication)
    assert world.services[0].messages[-1][1] == action


def test_cm16_a_new_log_begins_at_term_0_and_an_old_one_goes_on(world: ConsensusWorld) -> None:
    first = world.publication.log
    assert (first.initial_term_id, first.start_position) == (0, 0)
    world.client_of()
    world.settle()
    end = seam.position(world.publication)
    world.restart(log_channel=f"aeron:udp?term-length={4 * TERM_LENGTH}").lead()
    again = world.publication.log
    assert (again.initial_term_id, again.term_length, again.mtu_length) == (0, first.term_length, first.mtu_length)
    assert again.start_position == end
    assert len([each for each in world.context.recording_log.entries if each.recording_id == 0]) == 2


# Timers


def test_cm17_a_timer_fires_once_behind_its_deadline_with_the_clock_s_time(world: ConsensusWorld) -> None:
    deadline = now_ms(world) + 500
    world.services[0].schedule(7, deadline)
    world.wait(490)
    assert world.logged("TimerEvent") == []
    world.wait(500)
    [fired] = world.logged("TimerEvent")
    assert fired["correlation_id"] == 7
    assert deadline <= fired["timestamp"] <= deadline + 20


def test_cm17_a_timer_can_be_moved_and_cancelled(world: ConsensusWorld) -> None:
    [service] = world.services
    service.schedule(7, now_ms(world) + 100)
    service.schedule(7, now_ms(world) + 300)
    service.schedule(8, now_ms(world) + 100)
    service.send("CancelTimer", correlation_id=8)
    service.send("CancelTimer", correlation_id=99)
    world.wait(200)
    assert world.logged("TimerEvent") == []
    world.wait(200)
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [7]
    assert world.errors == []


@pytest.mark.parametrize(
    ("settings", "portions"),
    [
        ({}, 1),
        ({"ingress_fragment_limit": 500}, 1),
        ({"use_agent_invoker": True}, 10),
        ({"use_agent_invoker": True, "ingress_fragment_limit": 100}, 2),
        ({"use_agent_invoker": True, "ingress_fragment_limit": 10}, 1),
    ],
    ids=str,
)
def test_a_turn_that_takes_more_of_ingress_takes_as_much_more_of_all_else(
    settings: dict[str, Any], portions: int
) -> None:
    world = ConsensusWorld(**settings).lead()
    [service] = world.services
    for number in range(300):
        service.schedule(number, now_ms(world) + 500)
    world.work(300)
    world.clock.advance(500 * MS)
    for _ in range(300):
        service.offer(b"of a service")
    world.agent.do_work()
    assert len(world.logged("TimerEvent")) == 20 * portions
    assert world.logged("SessionMessageHeader") == []
    world.agent.do_work()
    assert len(world.logged("TimerEvent")) == min(300, 40 * portions)
    assert len(world.logged("SessionMessageHeader")) == 20 * portions
    world.until(lambda: len(world.logged("TimerEvent")) == len(world.logged("SessionMessageHeader")) == 300)
    assert world.errors == []
    for _ in range(300):
        service.send(
            "SessionMessageHeader", b"of no service", leadership_term_id=-1, cluster_session_id=99, timestamp=0
        )
    world.agent.do_work()
    assert len(world.errors) == 25 * portions


def test_a_timer_whose_event_the_log_does_not_take_fires_later(world: ConsensusWorld) -> None:
    world.services[0].schedule(7, now_ms(world))
    world.services[0].schedule(8, now_ms(world))
    world.refuse_appends(3)
    world.work(2)
    assert world.logged("TimerEvent") == []
    world.tick(2)
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [7, 8]


def test_cm18_a_service_that_is_behind_the_log_does_not_schedule_what_has_fired(world: ConsensusWorld) -> None:
    deadline = now_ms(world) + 100
    world.services[0].schedule(7, deadline)
    world.wait(200)
    world.settle()
    world.restart().lead()
    [service] = world.services
    service.schedule(7, deadline)  # as it did, which it replays only now
    service.schedule(8, now_ms(world) - 1_000)
    world.wait(100)
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [8]
    service.schedule(7, now_ms(world) + 10)
    world.wait(100)
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [8, 7]


def append_uncommitted(world: ConsensusWorld, action: Callable[[], object]) -> None:
    """Have the recording of the log stop just before the member appends what ``action`` leads to."""
    operator = world.connect()
    action()
    operator.send("StopRecordingByIdentityRequest", recording_id=world.log_recording_id)
    for _ in range(5):
        ArchiveWorld.work(world)
    recorded = world.commit_position
    for _ in range(5):  # time stands still, so that there is no slow tick, which would notice
        world.agent.do_work()
    assert seam.position(world.publication) > recorded == world.commit_position


def lead_again(world: ConsensusWorld) -> None:
    """Work until the member leads in its second term."""
    world.until(lambda: world.is_leading and world.counter_value(239) == 1)
    world.tick(2)
    world.settle()


def test_cm19_a_timer_whose_event_an_election_lost_fires_again(world: ConsensusWorld) -> None:
    append_uncommitted(world, lambda: world.services[0].schedule(7, now_ms(world)))
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [7]
    lead_again(world)
    assert [name for name, _ in world.log] == ["NewLeadershipTermEvent", "TimerEvent"]
    assert world.services[0].names().count("TimerEvent") == 1


def test_a_timer_whose_event_an_election_lost_keeps_its_deadline(world: ConsensusWorld) -> None:
    deadline = now_ms(world)
    append_uncommitted(world, lambda: world.services[0].schedule(7, deadline))
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [7]
    world.clock.set_epoch_ms(deadline - 60_000)  # as that of another leader, which is behind
    lead_again(world)
    assert world.logged("TimerEvent") == []
    assert [(each["correlation_id"], each["deadline"]) for each in take_snapshot(world)["Timer"]] == [(7, deadline)]


def test_a_session_whose_open_event_an_election_lost_is_told_so(world: ConsensusWorld) -> None:
    client = Client(world)
    client.connect()
    operator = world.connect()
    for _ in range(5):  # without the archive, so that the event is not recorded
        world.clock.advance(11 * MS)
        world.agent.do_work()
    assert client.event()["code"] == OK
    operator.send("StopRecordingByIdentityRequest", recording_id=world.log_recording_id)
    lead_again(world)
    assert codes(client) == [(CLOSED, "election")]
    assert world.logged("SessionOpenEvent") == []
    assert world.services[0].names() == ["NewLeadershipTermEvent"] * 2
    assert take_snapshot(world)["ConsensusModule"][0]["next_session_id"] == 1
    assert world.counter(SESSION) == []


def test_a_close_that_an_election_lost_is_appended_again(world: ConsensusWorld) -> None:
    client = world.client_of()
    world.settle()
    append_uncommitted(world, client.close)
    assert len(world.logged("SessionCloseEvent")) == 1
    lead_again(world)
    assert [name for name, _ in world.log] == ["NewLeadershipTermEvent", "SessionCloseEvent"]
    assert world.services[0].names().count("SessionCloseEvent") == 1


# Services


def service_session_ids(world: ConsensusWorld) -> list[int]:
    """The ids of the services' messages in the log."""
    return [each["cluster_session_id"] for each in world.logged("SessionMessageHeader")]


def first_id(service_id: int) -> int:
    return (service_id << 56) - 2**63 + 1


def test_cm20_messages_of_services_have_ids_in_sequence_over_a_snapshot_and_restarts() -> None:
    world = ConsensusWorld(services=2).lead()
    for number in range(30):
        world.services[number % 2].offer(b"%d" % number)
    world.tick()
    world.settle()
    assert sorted(service_session_ids(world)) == [first_id(each) + number for each in (0, 1) for number in range(15)]
    take_snapshot(world)
    world.services[1].offer(b"behind the snapshot")
    world.tick()
    world.settle()
    assert service_session_ids(world)[-1] == first_id(1) + 15
    world.restart().lead()
    for service_id, number in ((0, 15), (1, 15), (1, 16)):  # the second is what it offered before
        world.services[service_id].offer(b"%d" % number)
    world.tick()
    world.settle()
    assert service_session_ids(world) == [first_id(0) + 15, first_id(1) + 16]


def test_cm20_messages_that_an_election_lost_are_appended_again_with_their_ids(world: ConsensusWorld) -> None:
    [service] = world.services
    service.offer(b"recorded")
    world.tick()
    world.settle()
    append_uncommitted(world, lambda: service.offer(b"lost"))
    assert service_session_ids(world) == [first_id(0), first_id(0) + 1]
    lead_again(world)
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"lost"]
    assert service_session_ids(world) == [first_id(0) + 1]
    assert service.names().count("SessionMessageHeader") == 2


def test_cm21_what_a_service_offers_again_in_a_replay_is_not_appended_again(world: ConsensusWorld) -> None:
    for number in range(3):
        world.services[0].offer(b"%d" % number)
    world.tick()
    world.settle()
    world.restart()
    for number in range(4):
        world.services[0].offer(b"%d" % number)
    world.lead()
    world.settle()
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"3"]
    assert service_session_ids(world) == [first_id(0) + 3]


def test_messages_of_services_are_appended_in_order_when_the_log_takes_them_again(world: ConsensusWorld) -> None:
    world.refuse_appends(5)
    for number in range(45):
        world.services[0].offer(b"%d" % number)
    world.work(10)
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"%d" % each for each in range(45)]


@pytest.mark.parametrize("ack_id", [1, 5])
def test_cm22_an_ack_out_of_sequence_is_reported(world: ConsensusWorld, ack_id: int) -> None:
    world.services[0].ack(world.commit_position, -1, ack_id=ack_id)
    world.work(2)
    assert world.report_of(f"ack out of sequence: expected [ackId=2, logPosition={world.commit_position}] vs received ")


def test_cm22_a_service_with_the_id_of_another_one_is_reported(world: ConsensusWorld) -> None:
    world.services[0].ack(0, 99, ack_id=0)
    world.work(2)
    assert world.report_of("initial ack already received from service: possible duplicate serviceId=0")
    take_snapshot(world)


def test_cm22_a_service_that_cannot_start_ends_the_start() -> None:
    world = ConsensusWorld(services=2)
    for service in world.services:
        service.is_quiet = True
    world.until(lambda: all(each.recovery_key for each in world.services))
    world.services[0].ack(0, 35)
    world.services[1].ack(0, -1)
    world.until(lambda: world.failure)
    assert "failed to start clustered service(s): 1" in str(world.failure)


def test_a_start_that_fails_has_no_leader_while_that_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the leader on another thread looks at any moment, and logging lets other threads run."""
    world = ConsensusWorld(services=2)
    seen: list[tuple[str, bool]] = []
    monkeypatch.setattr(log_events, "_counts", {})  # other tests have logged all that may be logged
    watcher = logging.Handler()
    watcher.emit = lambda record: seen.append(  # type: ignore[method-assign]
        (getattr(record, "event", "") or "", world.agent.has_leader)
    )
    logger = logging.getLogger("container")
    level = logger.level
    logger.addHandler(watcher)
    logger.setLevel(logging.DEBUG)
    for service in world.services:
        service.is_quiet = True
    try:
        world.until(lambda: all(each.recovery_key for each in world.services))
        world.services[0].ack(0, 35)
        world.services[1].ack(0, -1)
        world.until(lambda: world.failure)
    finally:
        logger.removeHandler(watcher)
        logger.setLevel(level)
    assert ("state_changed", False) in seen
    assert not any(has_leader for _, has_leader in seen)


def test_cm23_services_join_the_leader_s_log_and_before_it_what_is_replayed(world: ConsensusWorld) -> None:
    [join] = world.services[0].joins
    session_id = world.publication.session_id
    assert join | {"log_channel": b""} == {
        "log_position": 0,
        "max_log_position": 2**63 - 1,
        "member_id": 0,
        "log_session_id": session_id,
        "log_stream_id": 100,
        "is_startup": 1,
        "role": LEADER,
        "is_standby": 0,
        "log_channel": b"",
    }
    assert join["log_channel"].startswith(b"aeron-spy:aeron:udp?tags=")
    assert join["log_channel"].endswith(f"|session-id={session_id}|alias=log".encode())
    end = world.commit_position
    world.restart().lead()
    replay, live = world.services[0].joins
    assert (replay["log_position"], replay["max_log_position"]) == (0, end)
    assert (replay["role"], replay["is_startup"], replay["log_stream_id"]) == (0, 1, 103)
    assert replay["log_channel"].startswith(b"aeron:ipc")
    assert (live["log_position"], live["role"], live["log_stream_id"]) == (end, LEADER, 100)
    assert world.services[0].ack_id == 3
    lose_recording(world)
    assert (world.services[0].joins[-1]["is_startup"], world.services[0].ack_id) == (0, 4)


def rot_log(world: ConsensusWorld, offset: int) -> None:
    """Flip a bit of a frame's version in the log, of which no replay gets past; a second time repairs it."""
    world.disk.rot("/archive/0-0.rec", offset + 4)


def begin_with_rot(world: ConsensusWorld, messages: int) -> int:
    """Append messages, of which the last one is damaged, and start again; where that one begins."""
    client = world.client_of()
    for _ in range(messages):
        client.message(bytes(900))
        world.tick()
    world.settle()
    begin = world.commit_position
    client.message(b"last")
    world.tick()
    world.settle()
    world.stop()
    rot_log(world, begin)
    world.begin()
    return begin


def test_cm23_a_join_that_a_failed_replay_leaves_is_acked_before_the_next_one(world: ConsensusWorld) -> None:
    begin = begin_with_rot(world, 1)
    [service] = world.services
    world.until(lambda: service.ack_id == 1)
    service.is_quiet = True
    world.until(lambda: world.report_of("the log cannot be replayed up to"))
    world.wait(2_000, 10)
    assert len(service.joins) == 1
    rot_log(world, begin)
    service.is_quiet = False
    world.lead()
    assert not world.report_of("ack out of sequence")
    assert service.acks[1:3] == [(0, -1), (0, -1)]
    assert service.messages[-3][1]["payload"] == b"last"


def test_cm23_a_snapshot_in_a_replay_that_fails_is_acked_before_the_next_join() -> None:
    world = ConsensusWorld(archive={"window": 8192}).lead()
    [service] = world.services
    client = world.client_of()
    for _ in range(20):
        client.message(bytes(900))
        world.tick()
    service.fails_snapshots = True
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.toggle == NEUTRAL)
    begin = begin_with_rot(world, 1)
    [service] = world.services
    world.until(lambda: service.ack_id == 2)
    service.is_quiet = True
    world.until(lambda: world.report_of("the log cannot be replayed up to"))
    assert world.state == "SNAPSHOT"
    rot_log(world, begin)
    world.wait(1_000, 10)
    service.is_quiet = False
    world.lead()
    assert not world.report_of("ack out of sequence")
    [position] = [
        each.log_position for each in world.entries() if each.is_of_consensus_module and each.is_valid_snapshot
    ]
    assert service.acks[2:4] == [(position, RECORDING_IDS), (position, -1)]


def test_cm23_a_log_stays_until_services_have_joined_it_also_when_an_election_begins(
    world: ConsensusWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that was asked to join waits for that log, and reads no other message meanwhile."""
    [service] = world.services
    with monkeypatch.context() as busy:
        busy.setattr(service, "work", lambda: None)
        world.stop_log_recording()
        world.tick(20)

        def fail(_election: Election, _now_ns: int) -> int:
            raise ClusterError("the election cannot go on")

        with monkeypatch.context() as failing:
            failing.setattr(Election, "do_work", fail)
            world.tick()
        world.tick(20)
    world.lead()
    assert len(service.joins) == 3
    assert not world.report_of("out of sequence")
    client = world.client_of()
    client.message(b"a message")
    world.settle()
    take_snapshot(world)


def test_cm23_a_replay_stays_until_services_have_joined_it_also_when_the_election_begins_again(
    world: ConsensusWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a member that replays its log hears of another leader while a service is busy with what it has read."""
    client = world.client_of()
    client.message(b"a message")
    world.tick()
    world.settle()
    world.stop()
    world.begin()
    [service] = world.services
    world.until(lambda: service.ack_id == 1)
    with monkeypatch.context() as busy:
        busy.setattr(service, "work", lambda: None)
        world.until(lambda: world.counter_value(207) == ElectionState.LEADER_REPLAY)
        world.tick(20)

        def fail(_election: Election, _now_ns: int) -> int:
            raise ClusterError("the election cannot go on")

        with monkeypatch.context() as failing:
            failing.setattr(Election, "do_work", fail)
            world.tick()
        world.tick(20)
    world.lead()
    assert len(service.joins) == 3
    assert not world.report_of("out of sequence")
    assert "SessionMessageHeader" in service.names()
    assert [each for each in world.driver.publications() if each.stream_id == REPLAY_STREAM_ID] == []


def test_an_error_of_the_archive_that_is_nobodys_begins_no_election_again(
    world: ConsensusWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be about a replay for a follower."""
    [service] = world.services
    with monkeypatch.context() as busy:
        busy.setattr(service, "work", lambda: None)
        world.stop_log_recording()
        world.tick(20)
        world.agent._on_archive_error(ArchiveError("a replay has failed"))  # type: ignore[attr-defined]
        world.tick(20)
    world.lead()
    assert len(service.joins) == 2
    assert world.report_of("a replay has failed")


def test_a_start_mends_what_a_crash_in_a_truncation_has_left(world: ConsensusWorld) -> None:
    """The recording was cut off, and the recording log does not say so yet."""
    world.settle()
    world.stop()
    storage = world.cluster_disk.process()
    recording_id = world.log_recording_id
    end = world.store.catalog.stop_position(recording_id)
    log = RecordingLog.open(storage, CLUSTER_DIR, create=False, file_sync_level=0)
    log.append_term(recording_id, 1, end + 4096, 1)
    log.close()
    descriptor = world.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    noted = descriptor.session_id.to_bytes(4, "little", signed=True)  # as if the log itself had been copied
    storage.open_file(f"{CLUSTER_DIR}/{LOG_REPLICATION_NAME}", CREATE).write(noted, 0)
    world.failure = None
    world.begin()
    world.lead()
    assert [
        (each.leadership_term_id, each.term_base_log_position, each.log_position)
        for each in world.entries()
        if each.is_term
    ] == [(0, 0, end), (1, end, end), (2, end, -1)]
    assert not storage.exists(f"{CLUSTER_DIR}/{LOG_REPLICATION_NAME}"), "sessions of copies are looked for"


def test_cm23_a_log_over_ipc_is_joined_over_ipc() -> None:
    world = ConsensusWorld(log_channel=f"aeron:ipc?term-length={TERM_LENGTH}").lead()
    world.client_of().message(b"a message")
    world.tick()
    world.settle()
    [join] = world.services[0].joins
    assert join["log_channel"].startswith(b"aeron:ipc?tags=")
    assert world.services[0].names()[-1] == "SessionMessageHeader"


def test_cm24_a_termination_asks_for_an_ack_as_version_17_does(world: ConsensusWorld) -> None:
    world.set_toggle(ABORT)
    world.tick()
    [(name, fields)] = world.services[0].answers
    [message] = world.services[0].terminations
    assert name == "ServiceTerminationPosition"
    block_length, template_id, schema_id, version = struct.unpack_from("<HHHH", message)
    assert (block_length, template_id, schema_id, version) == (12, 42, 111, 17)
    assert struct.unpack_from("<qi", message, 8) == (fields["log_position"], 1)
    assert len(message) == 8 + 12


# Snapshots and control


def test_cm25_a_snapshot_is_noted_for_each_service_and_then_the_consensus_module() -> None:
    world = ConsensusWorld(services=3).lead()
    world.client_of()
    snapshot = take_snapshot(world)
    position = seam.position(world.publication)
    entries = [each for each in world.context.recording_log.entries if each.is_snapshot]
    assert [each.service_id for each in entries] == [2, 1, 0, -1]
    assert [each.recording_id for each in entries[:3]] == [9002, 9001, 9000]
    assert {(each.log_position, each.leadership_term_id, each.term_base_log_position) for each in entries} == {
        (position, 0, 0)
    }
    for marker in snapshot["SnapshotMarker"]:
        assert (marker["type_id"], marker["log_position"], marker["leadership_term_id"]) == (1, position, 0)
        assert (marker["time_unit"], marker["app_version"]) == (0, 1)
    assert [marker["mark"] for marker in snapshot["SnapshotMarker"]] == [0, 2]
    assert world.counter_value(205) == 1
    [action] = world.logged("ClusterActionRequest")
    assert (action["action"], action["flags"], action["log_position"]) == (ACTION_SNAPSHOT, 0, position)


def test_cm26_a_snapshot_has_sessions_timers_and_pending_messages_and_a_start_has_them_again() -> None:
    world = ConsensusWorld(services=2).lead()
    clients = [world.client_of() for _ in range(3)]
    clients[1].close()
    for number in range(3):
        world.services[1].schedule(number, now_ms(world) + 60_000 - number)
    world.services[1].offer(b"in the log")
    world.tick()
    world.settle()
    world.services[0].is_quiet = True  # so that the snapshot waits, and messages stay pending
    world.set_toggle(SNAPSHOT)
    world.tick()
    world.services[1].offer(b"first")
    world.services[1].offer(b"second")
    world.tick()
    world.services[0].is_quiet = False
    world.until(lambda: world.toggle == NEUTRAL)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, fields in world.snapshot():
        found[name].append(fields)
    assert [name for name, _ in world.snapshot()] == [
        *("SnapshotMarker", "ConsensusModule", "ClusterSession", "ClusterSession", "Timer", "Timer", "Timer"),
        *("PendingMessageTracker", "PendingMessageTracker", "SessionMessageHeader", "SessionMessageHeader"),
        "SnapshotMarker",
    ]
    assert [each["cluster_session_id"] for each in found["ClusterSession"]] == [1, 3]
    assert found["ConsensusModule"][0]["next_session_id"] == 4
    assert sorted(each["correlation_id"] for each in found["Timer"]) == [0, 1, 2]
    assert [each["payload"] for each in found["SessionMessageHeader"]] == [b"first", b"second"]
    assert [each["service_id"] for each in found["PendingMessageTracker"]] == [0, 1]
    before = {each["correlation_id"]: each["deadline"] for each in found["Timer"]}
    world.tick(2)
    world.settle()
    world.restart().lead()
    world.services[1].offer(b"third")
    world.tick(2)
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"third"]
    assert service_session_ids(world) == [first_id(1) + 3]
    assert [each["cluster_session_id"] for each in world.logged("SessionCloseEvent")] == [1, 3]
    world.wait(61_000, 100)
    fired = {each["correlation_id"]: each["timestamp"] for each in world.logged("TimerEvent")}
    assert sorted(fired) == [0, 1, 2]
    assert all(before[each] <= fired[each] <= before[each] + 200 for each in before)


def test_a_snapshot_notes_what_a_service_did_not_offer_again(world: ConsensusWorld) -> None:
    for number in range(3):
        world.services[0].offer(b"%d" % number)
    world.tick()
    world.settle()
    world.restart().lead()
    [tracker] = take_snapshot(world)["PendingMessageTracker"]
    assert (tracker["next_service_session_id"], tracker["log_service_session_id"]) == (first_id(0) + 3, first_id(0) + 2)
    assert world.report_of("follower has missed 3 service message(s): service 0 did not offer all")


def test_cm27_after_a_failed_snapshot_the_cluster_goes_on(world: ConsensusWorld) -> None:
    world.services[0].fails_snapshots = True
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.toggle == NEUTRAL)
    assert world.state == "ACTIVE"
    assert world.report_of("service=0 failed to take snapshot")
    assert [each for each in world.context.recording_log.entries if each.is_snapshot] == []
    assert world.counter_value(205) == 0
    world.services[0].fails_snapshots = False
    take_snapshot(world)
    assert world.counter_value(205) == 1


def test_a_snapshot_that_the_archive_does_not_take_leaves_the_cluster_active(world: ConsensusWorld) -> None:
    world.driver.fail_next_add("exclusive_publication", text="no room")
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.toggle == NEUTRAL)
    assert world.state == "ACTIVE"
    assert world.report_of("failed to take snapshot")
    assert [each for each in world.context.recording_log.entries if each.is_snapshot] == []


@pytest.mark.parametrize("toggle", [SNAPSHOT, SHUTDOWN])
def test_a_snapshot_without_space_for_it_is_refused_and_the_cluster_goes_on(toggle: int) -> None:
    world = ConsensusWorld(archive={"disk": SimulatedDisk(capacity=1 << 30)}).lead()
    world.store._settings = dataclasses.replace(world.store._settings, low_storage_space_threshold=1 << 31)
    position = world.commit_position
    for _ in range(2):
        world.set_toggle(toggle)
        world.until(lambda: world.toggle != toggle)
        assert (world.toggle, world.state, world.failure) == (NEUTRAL, "ACTIVE", None)
        assert world.report_of("no snapshot is taken, and the cluster continues: ")
        assert "low storage threshold=" in str(world.agent.snapshot_failure)
    world.settle()
    assert world.commit_position == position
    assert world.services[0].names() == ["NewLeadershipTermEvent"], "no service takes one"
    client = world.client_of()
    client.message(b"still there")
    world.settle()
    world.store._settings = dataclasses.replace(world.store._settings, low_storage_space_threshold=0)
    take_snapshot(world)
    assert world.counter_value(205) == 1
    world.until(lambda: len(world.conductor.recorder.by_key) == 1)  # the log's alone: no check leaves one


def test_a_snapshot_that_finds_no_space_after_all_leaves_the_cluster_active(world: ConsensusWorld) -> None:
    world.services[0].is_quiet = True
    world.set_toggle(SNAPSHOT)
    world.until(lambda: world.state == "SNAPSHOT")
    world.store._settings = dataclasses.replace(world.store._settings, low_storage_space_threshold=1 << 62)
    world.services[0].is_quiet = False
    world.until(lambda: world.toggle == NEUTRAL)
    assert (world.state, world.failure) == ("ACTIVE", None)
    assert world.report_of("failed to take snapshot: low storage threshold=")


def test_a_space_check_in_progress_ends_with_the_term(world: ConsensusWorld) -> None:
    world.set_toggle(SNAPSHOT)
    world.agent.do_work()
    world.stop_log_recording()
    world.until(lambda: world.is_leading and world.counter_value(201) == LEADER and world.toggle == NEUTRAL)
    assert world.state == "ACTIVE"
    take_snapshot(world)


def test_clients_that_a_long_snapshot_kept_from_being_read_stay(world: ConsensusWorld) -> None:
    world.client_of()
    world.services[0].is_quiet = True
    world.set_toggle(SNAPSHOT)
    world.wait(30_000, 100)
    assert world.state == "SNAPSHOT"
    world.services[0].is_quiet = False
    world.until(lambda: world.toggle == NEUTRAL)
    world.tick(3)
    assert world.logged("SessionCloseEvent") == []


def test_cm28_a_standby_snapshot_is_a_message_in_the_log_and_no_more(world: ConsensusWorld) -> None:
    world.set_toggle(STANDBY_SNAPSHOT)
    world.tick()
    [action] = world.logged("ClusterActionRequest")
    assert (action["action"], action["flags"]) == (ACTION_SNAPSHOT, 1)
    assert (world.toggle, world.state) == (NEUTRAL, "ACTIVE")
    world.settle()
    world.restart().lead()
    assert world.state == "ACTIVE"
    assert [each for each in world.context.recording_log.entries if each.is_snapshot] == []


def test_cm29_a_suspended_cluster_appends_nothing_and_goes_on_where_it_was(world: ConsensusWorld) -> None:
    client = world.client_of()
    world.set_toggle(SUSPEND)
    world.tick()
    assert (world.state, world.toggle) == ("SUSPENDED", SUSPEND)
    client.message(b"held up")
    world.services[0].offer(b"held up as well")
    world.services[0].schedule(7, now_ms(world))
    world.settle()
    world.tick(5)
    assert [name for name, _ in world.log][2:] == ["ClusterActionRequest"]
    world.set_toggle(RESUME)
    world.tick(2)
    assert (world.state, world.toggle) == ("ACTIVE", NEUTRAL)
    world.settle()
    assert [name for name, _ in world.log][2:] == [
        *("ClusterActionRequest", "ClusterActionRequest", "TimerEvent", "SessionMessageHeader", "SessionMessageHeader")
    ]
    assert [each["action"] for each in world.logged("ClusterActionRequest")] == [ACTION_SUSPEND, ACTION_RESUME]


@pytest.mark.parametrize("ending", ["restart", "election"])
def test_a_cluster_that_was_suspended_can_be_resumed_by_whoever_leads_next(world: ConsensusWorld, ending: str) -> None:
    world.set_toggle(SUSPEND)
    world.tick()
    world.settle()
    if ending == "restart":
        world.restart().lead()
    else:
        lose_recording(world)
    assert (world.state, world.toggle) == ("SUSPENDED", SUSPEND)
    world.set_toggle(RESUME)
    world.tick(2)
    assert (world.state, world.toggle) == ("ACTIVE", NEUTRAL)
    assert world.client_of().session_id == 1


def test_an_unknown_wish_is_reported_and_forgotten(world: ConsensusWorld) -> None:
    world.set_toggle(99)
    world.tick()
    assert world.report_of("invalid toggle value: 99")
    assert (world.toggle, world.state) == (NEUTRAL, "ACTIVE")


def test_cm30_a_shutdown_leaves_a_snapshot_and_a_closed_term(world: ConsensusWorld) -> None:
    world.services[0].is_quiet = True
    world.set_toggle(SHUTDOWN)
    world.tick()
    position = seam.position(world.publication)
    assert world.state == "SNAPSHOT"
    world.services[0].is_quiet = False
    world.until(lambda: world.state == "TERMINATING")
    assert termination(world).is_expected
    [term, *snapshots] = world.entries()
    assert (term.log_position, [each.service_id for each in snapshots]) == (position, [0, -1])
    assert {each.log_position for each in snapshots} == {position}
    assert world.services[0].acks[-1] == (position, -1)


def test_cm30_an_abort_leaves_a_closed_term_alone_and_waits_for_services(world: ConsensusWorld) -> None:
    world.services[0].is_quiet = True
    world.set_toggle(ABORT)
    world.tick()
    position = seam.position(world.publication)
    assert world.state == "TERMINATING"
    world.wait(30_000, 100)
    assert world.failure is None
    world.services[0].is_quiet = False
    assert termination(world).is_expected
    [term] = world.entries()
    assert (term.log_position, term.is_term) == (position, True)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_service_that_goes_away_before_it_acknowledges_the_end_ends_the_member(lost: int) -> None:
    world = ConsensusWorld(services=2).lead()
    world.services[lost].is_quiet = True
    world.set_toggle(ABORT)
    world.tick()
    world.wait(1_000, 10)
    assert (world.state, world.failure) == ("TERMINATING", None)
    world.services[1 - lost].client.close()  # it has acknowledged: that is in order
    world.wait(1_000, 10)
    assert (world.state, world.failure) == ("TERMINATING", None)
    world.services[lost].client.close()
    assert not termination(world).is_expected
    assert f"service {lost} is gone" in str(world.failure)


def test_cm30_a_disk_that_fails_at_the_end_does_not_keep_a_member_from_ending() -> None:
    world = ConsensusWorld(file_sync_level=1).lead()
    world.services[0].is_quiet = True
    world.set_toggle(ABORT)
    world.tick()
    world.cluster_disk.fail("force", errno.EIO)
    world.services[0].is_quiet = False
    assert not termination(world).is_expected
    assert world.report_of("Input/output error")


# Elections, starts and ends


def test_cm31_a_single_member_leads_through_six_states_with_the_next_candidate_term() -> None:
    world = ConsensusWorld()
    states: list[int] = []

    def note() -> bool:
        state = world.counter_value(207)
        if not states or states[-1] != state:
            states.append(state)
        return world.is_leading

    world.until(note)
    assert [each for each in states if each] == [5, 6, 7, 8, 17]
    assert world.context.node_state_file.candidate_term_id == 0
    world.settle()
    world.restart().lead()
    assert world.context.node_state_file.candidate_term_id == 1
    assert (world.counter_value(239), world.counter_value(201)) == (1, LEADER)


def test_cm43_services_read_nothing_that_is_not_committed(world: ConsensusWorld) -> None:
    client = world.client_of()
    [service] = world.services
    seen = [world.commit_position]
    for number in range(50):
        client.message(b"%d" % number)
        world.agent.do_work()
        service.work()
        assert service.position <= world.commit_position
        ArchiveWorld.work(world)
        seen.append(world.commit_position)
    assert seen == sorted(seen)
    world.settle()
    assert service.names().count("SessionMessageHeader") == 50


def test_cm47_a_start_from_a_damaged_snapshot_ends_and_names_the_way_out(world: ConsensusWorld) -> None:
    take_snapshot(world)
    entry = world.context.recording_log.get_latest_snapshot(-1)
    assert entry is not None
    end_mark = len(world.recorded(entry.recording_id)) - 96 + 32 + 8 + 28
    world.stop()
    world.disk.rot(f"/archive/{entry.recording_id}-0.rec", end_mark, mask=2)  # it is another begin now
    world.begin()
    world.until(lambda: world.failure)
    text = f"snapshot at logPosition={entry.log_position}, recording {entry.recording_id}: already in snapshot; if the "
    assert text in str(world.failure)
    assert "`aeron-cluster invalidate-latest-snapshot` has the node start from the snapshot before it" in str(
        world.failure
    )


def test_cm47_a_start_beside_the_archive_of_another_cluster_ends_and_says_so(world: ConsensusWorld) -> None:
    world.stop()
    world.close()
    world.disk = SimulatedDisk()
    world.open()
    world.begin()
    world.until(lambda: world.failure)
    assert "start it with the archive directory that belongs to this cluster directory" in str(world.failure)


@pytest.mark.parametrize("begin", ["nothing", "log", "snapshot", "snapshot and log"])
def test_cm47_a_start_goes_on_from_what_there_is(begin: str) -> None:
    world = ConsensusWorld().lead()
    [service] = world.services
    if begin != "nothing":
        world.client_of().message(b"first")
        world.tick()
    if begin.startswith("snapshot"):
        take_snapshot(world)
    base = world.commit_position
    if begin.endswith("log"):
        world.client_of().message(b"second")
        world.tick()
    world.settle()
    read = service.names()
    world.restart().lead()
    joins = world.services[0].joins
    key = struct.unpack_from("<qqqii", world.services[0].recovery_key)
    if begin.startswith("snapshot"):
        assert (key[0], key[1], key[4]) == (0, base, 1)
        assert joins[0]["log_position"] == base
        expected = read[-2:] if begin.endswith("log") else []
    else:
        assert key == (-1, 0, 0, 0, 0)
        expected = read
    assert world.services[0].names()[: len(expected)] == expected
    assert world.services[0].names()[len(expected)] == "NewLeadershipTermEvent"


class SlowToStop(ConsensusWorld):
    """Beside an archive that answers a request to stop a recording long before the recording has stopped."""

    QUESTIONS, END = 4, 96

    def open(self) -> None:
        self.archive = ScriptedArchive(self.driver, control_channel=CONTROL_CHANNEL)
        self.client = self.archive.client
        self.conductor = SimpleNamespace(do_work=lambda: None)  # type: ignore[assignment]
        self.questions = 0
        self.archive.hooks = {
            "StopRecordingByIdentityRequest": lambda *request: self.respond(1, *request),
            "StopPositionRequest": lambda *request: self.respond(self.stop_position(), *request),
            "ListRecordingRequest": self.describe,
            "ExtendRecordingRequest2": lambda *_request: None,
        }

    def stop_position(self) -> int:
        self.questions += 1
        return self.END if self.questions >= self.QUESTIONS else -1

    def respond(self, relevant_id: int, archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], relevant_id)

    def describe(self, archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.send(
            session,
            "RecordingDescriptor",
            control_session_id=session.id,
            correlation_id=request["correlation_id"],
            recording_id=request["recording_id"],
            start_timestamp=0,
            stop_timestamp=0,
            start_position=0,
            stop_position=self.stop_position(),
            initial_term_id=0,
            segment_file_length=TERM_LENGTH,
            term_buffer_length=TERM_LENGTH,
            mtu_length=1408,
            session_id=1,
            stream_id=100,
            stripped_channel=b"aeron:udp",
            original_channel=b"aeron:udp",
            source_identity=b"aeron:ipc",
        )

    def begin(self, **settings: Any) -> None:
        super().begin(**settings)
        self.context.recording_log.append_term(0, 0, 0, 0)


def test_cm47_a_start_waits_until_the_recording_of_the_log_has_stopped() -> None:
    world = SlowToStop()
    world.until(lambda: [each for each in world.driver.publications() if each.stream_id == 100])
    assert "|term-id=0|term-offset=96|" in world.log_channel()
    assert world.errors == []


def test_cm47_a_log_whose_recording_was_cut_off_goes_on_where_it_ended(world: ConsensusWorld) -> None:
    client = world.client_of()
    client.message(b"a message")
    world.tick()
    world.settle()
    end = world.commit_position
    world.kill()
    world.lead()
    assert world.counter_value(239) == 1
    assert world.publication.log.start_position == end
    assert world.services[0].names().count("SessionMessageHeader") == 1


def test_cm48_the_recovery_counter_is_there_until_all_services_have_started() -> None:
    world = ConsensusWorld(services=2)
    for service in world.services:
        service.is_quiet = True
    world.until(lambda: world.counter(RECOVERY_STATE))
    [record] = world.counter(RECOVERY_STATE)
    assert record["key"][:32] == struct.pack("<qqqii", -1, 0, 0, 0, 0)
    assert record["label"].startswith("Cluster recovery: leadershipTermId=-1 logPosition=0")
    world.services[0].is_quiet = False
    world.wait(1_000, 100)
    assert len(world.counter(RECOVERY_STATE)) == 1
    world.services[1].is_quiet = False
    world.lead()
    assert world.counter(RECOVERY_STATE) == []
    take_snapshot(world)
    position, timestamp = world.commit_position, world.entries()[-1].timestamp
    world.restart()
    world.until(lambda: world.counter(RECOVERY_STATE))
    [record] = world.counter(RECOVERY_STATE)
    assert record["key"][:48] == struct.pack("<qqqiiqq", 0, position, timestamp, 0, 2, 9000, 9001)


def test_cm49_all_counters_are_there_with_the_cluster_s_id_as_key() -> None:
    world = ConsensusWorld(cluster_id=7).lead()
    client = world.client_of(client_info="name=me")
    for type_id in (200, 201, 202, 203, 205, 207, 212, 213, 216, 217, 233, 234, 235, 238, 239):
        [record] = world.counter(type_id)
        assert record["key"][:4] == struct.pack("<i", 7)
        assert " - clusterId=7" in record["label"]
    [session] = world.counter(SESSION)
    assert session["key"][:12] == struct.pack("<iq", 7, client.session_id)
    assert session["value"] == client.session_id
    assert session["label"].startswith("cluster-session: name=me sourceIdentity=")
    assert session["label"].endswith(f"sessionId={client.publication.session_id} - clusterId=7")


def test_cm50_a_clean_stop_frees_the_mark_file(world: ConsensusWorld) -> None:
    world.stop()
    assert world.activity_timestamp() == -1
    world.begin()
    world.lead()
    assert 0 <= now_ms(world) - world.activity_timestamp() <= 1_000


@pytest.mark.parametrize("loss", ["archive", "storage", "service"])
def test_cm51_what_it_cannot_do_without_ends_it_and_its_services(world: ConsensusWorld, loss: str) -> None:
    world.client_of()
    if loss == "archive":
        world.close()
    elif loss == "service":
        world.services[0].client.close()
    else:
        world.disk.fail("write", errno.ENOSPC)
        Client(world).connect()
    assert not termination(world).is_expected
    if loss != "service":
        assert world.services[0].answers[-1] == ("ServiceTerminationPosition", {"log_position": 0, "ack_required": 1})
    if loss == "storage":
        assert world.report_of("No space left on device")
        assert "No space left on device" in str(world.failure), "the last line names the cause"


@pytest.mark.parametrize("kind", ["write", "open"])
def test_a_disk_that_fails_under_the_log_ends_it_and_begins_no_election(world: ConsensusWorld, kind: str) -> None:
    client = world.client_of()
    world.disk.fail(kind, errno.EIO)
    elections = world.counter_value(238)
    payload = bytes(1000)
    for _ in range(2 * 128):  # into the next segment
        client.message(payload)
        world.work(3)
        if world.failure is not None:
            break
    assert not termination(world).is_expected
    assert "recording 0 cannot continue at " in str(world.failure)
    assert "Input/output error" in str(world.failure)
    assert world.counter_value(238) == elections


def test_a_log_that_is_lost_again_and_again_pauses_the_member_and_not_the_election(world: ConsensusWorld) -> None:
    pauses = []
    for _ in range(5):
        world.stop_log_recording()
        world.until(lambda: not world.is_leading)
        begin_ms = now_ms(world)
        world.until(lambda: world.is_leading)
        pauses.append(now_ms(world) - begin_ms)
    assert pauses[0] < 100
    assert [each // 100 for each in pauses[1:]] == [1, 2, 4, 8]
    world.wait(10_000, 100)  # the heartbeat timeout, in which all is well
    world.stop_log_recording()
    world.until(lambda: not world.is_leading)
    begin_ms = now_ms(world)
    world.until(lambda: world.is_leading)
    assert now_ms(world) - begin_ms < 100


def test_a_member_that_cannot_lead_ends_after_the_driver_s_timeout_with_the_cause() -> None:
    world = ConsensusWorld(driver_timeout_ms=3_000).lead()
    operator = world.connect()
    for _ in range(100):
        world.driver.fail_next_add("exclusive_publication", text="insufficient usable storage")
    begin_ms = now_ms(world)
    assert operator.ok("StopRecordingByIdentityRequest", recording_id=world.log_recording_id) == 1
    assert not termination(world).is_expected
    assert "it has not led for 3 s: " in str(world.failure)
    assert "insufficient usable storage" in str(world.failure)
    assert 3_000 <= now_ms(world) - begin_ms <= 9_000
    assert len(world.errors) < 15, "it pauses longer each time"


def test_a_directory_that_is_gone_ends_it_within_a_second(world: ConsensusWorld) -> None:
    world.cluster_disk.process().unlink(world.context.recording_log.path)
    begin_ms = now_ms(world)
    assert "recording.log was removed or moved while it was in use" in str(termination(world))
    assert now_ms(world) - begin_ms <= S + 10


def test_cm51_a_mark_file_that_is_another_owner_s_ends_it(world: ConsensusWorld) -> None:
    """The time of day jumped, and whoever started took the member for dead: both would write the same files."""
    world.clock.set_epoch_ms(now_ms(world) + 11_000)
    taker = ClusterMarkFile(
        f"{CLUSTER_DIR}/{MARK_FILE_NAME}",
        is_of_consensus_module=True,
        error_buffer_length=1 << 20,
        page_size=4096,
        clock=world.clock,
        storage=world.cluster_disk.process(),
    )
    before = world.cluster_disk.contents()
    assert not termination(world).is_expected
    assert world.report_of("is not this consensus module's any more")
    assert world.cluster_disk.contents() == before
    taker.close()


@pytest.mark.parametrize("where", ["log", "snapshot"])
def test_cm53_another_major_version_of_the_application_ends_it(world: ConsensusWorld, where: str) -> None:
    if where == "snapshot":
        take_snapshot(world)
    world.settle()
    world.restart(app_version=1 << 16)
    world.until(lambda: world.failure)
    assert isinstance(world.failure, AgentTermination)
    assert world.report_of(f"incompatible version: 1.0.0 {where}=0.0.1") or "1.0.0" in str(world.failure)


def test_a_validator_of_versions_that_raises_ends_it(world: ConsensusWorld) -> None:
    """The event of the term does not come a second time: nobody would have the term."""

    def broken(_own: int, _other: int) -> bool:
        raise ValueError("no such version")

    world.settle()
    world.restart(app_version_validator=broken)
    world.until(lambda: world.failure)
    assert isinstance(world.failure, AgentTermination)
    assert world.report_of("no such version")


def test_cm53_another_time_unit_in_the_log_ends_it(world: ConsensusWorld) -> None:
    world.settle()
    content = bytearray(world.recorded(world.log_recording_id))
    assert content.count(struct.pack("<ii", 0, 1)) == 1
    offset = content.index(struct.pack("<ii", 0, 1))
    world.stop()
    world.close()
    world.disk.rot("/archive/0-0.rec", offset, mask=2)
    world.open()
    world.failure = None
    world.begin()
    world.until(lambda: world.failure)
    assert world.report_of("incompatible time unit: 0 log=2")


# What a tool asks of the node


def test_snapshots_whose_recordings_are_gone_are_invalidated_when_a_tool_asks_for_it(world: ConsensusWorld) -> None:
    for _ in range(2):
        take_snapshot(world)
    operator = world.connect()
    gone = world.entries()[-1].recording_id
    assert operator.ok("PurgeRecordingRequest", recording_id=gone) == 1
    seam.set_counter(world.context.counters.node_control_toggle, 3)
    world.tick(10)
    assert world.counter_value(233) == NEUTRAL
    valid = [(each.service_id, each.is_valid) for each in world.entries() if each.is_snapshot]
    # The ids of the services' snapshots are of no recordings here.
    assert valid == [(0, False), (-1, True), (0, False), (-1, False)]
    assert world.errors == []


def test_a_recording_log_is_validated_beside_a_snapshot_and_not_in_an_election(world: ConsensusWorld) -> None:
    take_snapshot(world)
    for _ in range(2):
        seam.set_counter(world.context.counters.node_control_toggle, 3)
        take_snapshot(world)
    assert world.counter_value(205) == 3
    seam.set_counter(world.context.counters.node_control_toggle, 3)
    world.clock.advance(10 * MS)
    world.agent.do_work()
    lose_recording(world)
    assert world.state == "ACTIVE"
    assert not world.report_of("waiting")


def test_a_wish_that_it_cannot_fulfil_is_reported(world: ConsensusWorld) -> None:
    seam.set_counter(world.context.counters.node_control_toggle, 2)
    world.tick()
    assert world.counter_value(233) == NEUTRAL
    assert world.report_of("node control toggle 2 asks for what this consensus module cannot do")


# The recording of the log is lost


def lose_action(world: ConsensusWorld, toggle: int) -> None:
    """Have the recording of the log stop just before the action that a tool asks for gets into it."""
    operator = world.connect()
    world.set_toggle(toggle)
    world.clock.advance(11 * MS)
    world.agent.do_work()
    for _ in range(10):  # before a snapshot, the archive is asked whether it has space
        if seam.position(world.publication) == world.commit_position:
            ArchiveWorld.work(world)
            world.agent.do_work()
    assert seam.position(world.publication) > world.commit_position
    operator.send("StopRecordingByIdentityRequest", recording_id=world.log_recording_id)
    lead_again(world)


@pytest.mark.parametrize("toggle", [SUSPEND, SNAPSHOT, SHUTDOWN])
def test_an_action_that_an_election_lost_is_as_if_nobody_had_asked_for_it(world: ConsensusWorld, toggle: int) -> None:
    lose_action(world, toggle)
    assert (world.state, world.toggle) == ("ACTIVE", NEUTRAL)
    assert [name for name, _ in world.log] == ["NewLeadershipTermEvent"]
    take_snapshot(world)
    world.wait(1_000, 100)
    assert (world.state, world.failure) == ("ACTIVE", None)


def test_a_cluster_whose_resume_an_election_lost_is_suspended(world: ConsensusWorld) -> None:
    world.set_toggle(SUSPEND)
    world.tick()
    world.settle()
    lose_action(world, RESUME)
    assert (world.state, world.toggle) == ("SUSPENDED", SUSPEND)


def test_a_recording_that_is_lost_in_a_snapshot_leads_to_an_election_behind_it(world: ConsensusWorld) -> None:
    world.services[0].is_quiet = True
    world.set_toggle(SNAPSHOT)
    world.tick()
    world.settle()
    world.stop_log_recording()
    world.tick(2)
    assert (world.state, world.is_leading) == ("SNAPSHOT", True)
    world.services[0].is_quiet = False
    lead_again(world)
    assert world.counter_value(205) == 1
    assert world.client_of().session_id == 1


def test_another_counter_in_the_place_of_the_log_recording_s_commits_nothing(world: ConsensusWorld) -> None:
    """The driver gives an id away after a second; a member that stood still has not heard yet of the counter's end."""
    counters, committed = seam.counters(world.client), world.commit_position
    allocated = range(seam.counter_capacity(counters))
    [place] = [each for each in allocated if seam.counter_record(counters, each)["type_id"] == LOG_RECORDING]
    operator = world.connect()
    operator.send("StopRecordingByIdentityRequest", recording_id=world.log_recording_id)
    world.agent.do_work()
    for _ in range(5):
        ArchiveWorld.work(world)
    world.clock.set_epoch_ms(now_ms(world) + 1_001)
    others = [seam.add_counter(world.client, 1_001)]
    while others[-1].counter_id != place:
        others.append(seam.add_counter(world.client, 1_001))
    seam.set_counter(others[-1], 1 << 40)
    world.agent.do_work()
    assert world.commit_position == committed
    lead_again(world)


# Clients that do not behave


def count_of(kind: type) -> int:
    """How many objects of exactly that type there are."""
    return sum(type(each) is kind for each in gc.get_objects())


def test_what_is_left_of_a_long_message_goes_with_the_client_that_sent_it(world: ConsensusWorld) -> None:
    gc.collect()  # what earlier tests have left must not go meanwhile
    before = count_of(FragmentAssembler)
    client = Client(world)
    world.until(lambda: seam.is_connected(client.publication))
    assert isinstance(client.publication, MemoryPublication)
    client.publication.log.append_frame(bytes(1024), flags=0x80)
    world.tick()
    assert count_of(FragmentAssembler) == before + 1
    client.vanish()
    world.tick(2)
    assert count_of(FragmentAssembler) == before


def test_messages_of_another_schema_are_reported_and_those_of_no_kind_ignored(world: ConsensusWorld) -> None:
    client = world.client_of()
    for schema_id, template_id in ((17, 1), (111, 999)):
        assert seam.offer(client.publication, struct.pack("<HHHH", 24, template_id, schema_id, 16) + bytes(64)) > 0
    client.message(b"behind them")
    world.work(3)
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"behind them"]
    assert world.texts() == ["expected schemaId=111, actual=17"]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_client_may_ask_for_a_snapshot_where_it_is_allowed(allowed: bool) -> None:
    world = ConsensusWorld(authorisation_service=AllowAll() if allowed else DenyAll()).lead()
    client = world.client_of()
    for request_type in (0, 7):
        client.send("AdminRequest", correlation_id=50, request_type=request_type, payload=b"")
        world.work(2)
        answers = [fields for name, fields in client.received() if name == "AdminResponse"]
        assert [each["correlation_id"] for each in answers] == [50]
        if not allowed:
            assert (answers[0]["response_code"], b"was not authorised" in answers[0]["message"]) == (2, True)
        elif request_type == 0:
            assert (answers[0]["response_code"], answers[0]["message"]) == (0, b"")
            world.until(lambda: world.counter_value(205) == 1)
        else:
            assert (answers[0]["response_code"], answers[0]["message"]) == (1, b"Unknown request type: 7")
    client.send("AdminRequest", correlation_id=51, request_type=0, payload=b"", leadership_term_id=9)
    client.send("AdminRequest", correlation_id=51, request_type=0, payload=b"", cluster_session_id=9)
    world.tick()
    assert client.received() == []


def test_who_cannot_be_said_to_be_allowed_is_not() -> None:
    class Broken(DenyAll):
        def is_authorised(self, *_asked: object) -> bool:
            raise ValueError("no such table")

    world = ConsensusWorld(authorisation_service=Broken()).lead()
    client = world.client_of()
    client.send("AdminRequest", correlation_id=50, request_type=0, payload=b"")
    client.message(b"behind it")
    world.work(3)
    [(name, answer)] = client.received()
    assert (name, answer["response_code"]) == ("AdminResponse", 2)
    assert world.texts() == ["no such table"]
    assert len(world.logged("SessionMessageHeader")) == 1


def test_a_driver_that_cannot_add_egress_now_is_asked_again(world: ConsensusWorld) -> None:
    world.driver.fail_next_add("publication", RegistrationError.RESOURCE_TEMPORARILY_UNAVAILABLE)
    assert world.client_of().session_id == 1
    assert world.errors == []


def test_what_fails_in_an_authenticator_refuses_the_client_it_was_asked_about() -> None:
    class Broken(Careful):
        def on_connected_session(self, decision: Any, now_ms: int) -> None:
            if decision.session_id == 1:
                raise ValueError("no such user")
            decision.authenticate(None)

    world = ConsensusWorld(authenticator=Broken()).lead()
    client = Client(world)
    client.connect()
    assert client.event()["code"] == AUTHENTICATION_REJECTED
    assert world.report_of("no such user")
    assert world.client_of().session_id == 2


# More of starts


def test_a_log_that_ends_with_padding_is_replayed(world: ConsensusWorld) -> None:
    client = world.client_of()
    while TERM_LENGTH - seam.position(world.publication) > 1024:
        client.message(bytes(1024 - 64))
        world.work(2)
    client.message(bytes(1024 - 64))
    world.work(2)
    assert seam.position(world.publication) > TERM_LENGTH
    world.settle()
    count = world.services[0].names().count("SessionMessageHeader")
    for _ in range(2):
        world.restart().lead()
        world.settle()
        assert world.services[0].names().count("SessionMessageHeader") == count


def test_timers_of_a_snapshot_and_of_the_log_behind_it_fire_once_after_a_restart(world: ConsensusWorld) -> None:
    deadline = now_ms(world) + 20_000
    world.services[0].schedule(1, deadline)
    world.tick()
    take_snapshot(world)
    world.services[0].schedule(2, now_ms(world) + 10)
    world.services[0].schedule(1, deadline + 1_000)
    world.tick(3)
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [2]
    world.settle()
    world.restart().lead()
    world.services[0].schedule(2, 0)  # what a replay leads to again
    world.services[0].schedule(1, deadline + 1_000)
    world.wait(25_000, 100)
    [fired] = world.logged("TimerEvent")
    assert fired["correlation_id"] == 1
    assert deadline + 1_000 <= fired["timestamp"] <= deadline + 1_200


def test_an_invalid_snapshot_is_passed_over_for_the_one_before(world: ConsensusWorld) -> None:
    client = world.client_of()
    positions = []
    for number in range(3):
        client.message(b"%d" % number)
        world.tick()
        take_snapshot(world)
        positions.append(world.commit_position)
    assert world.counter_value(205) == 3
    for count, position in ((1, positions[1]), (2, positions[0]), (3, 0)):
        world.settle()
        for _ in range(count):
            world.context.recording_log.invalidate_latest_snapshot()
        world.restart().lead()
        assert world.services[0].joins[0]["log_position"] == position
        # The replay takes them again, and they are valid again in their places.
        assert [each.log_position for each in world.entries() if each.is_valid_snapshot] == sorted(positions * 2)


def test_a_cluster_begins_anew_with_a_snapshot_that_its_recording_log_was_seeded_with(world: ConsensusWorld) -> None:
    """As ``ClusterTool seed-recording-log-from-snapshot`` leaves it: the snapshot is of position 0 of an empty log."""
    world.client_of()
    take_snapshot(world)
    snapshots = [each for each in world.entries() if each.is_snapshot]
    log = world.context.recording_log
    for entry in sorted(world.entries(), key=lambda each: -each.entry_index):
        log.remove_entry(entry.leadership_term_id, entry.entry_index)
    for entry in snapshots:
        log.append_snapshot(entry.recording_id, 0, 0, 0, entry.timestamp, entry.service_id)
    world.restart().lead()
    assert [name for name, _ in world.log] == ["NewLeadershipTermEvent", "SessionCloseEvent"]
    assert (world.publication.log.start_position, world.counter_value(239)) == (0, 1)
    assert world.log_recording_id not in (0, snapshots[-1].recording_id)
    world.settle()
    world.restart().lead()
    assert world.services[0].names().count("SessionCloseEvent") == 1


def test_a_long_response_channel_is_in_a_snapshot_of_several_frames(world: ConsensusWorld) -> None:
    client = Client(world)
    channel = f"{client.egress_channel}|alias={'x' * 3_000}"
    client.open(response_channel=channel)
    [session] = take_snapshot(world)["ClusterSession"]
    assert session["response_channel"] == channel.encode()
    world.settle()
    world.restart().lead()
    assert [each["close_reason"] for each in world.logged("SessionCloseEvent")] == [TIMEOUT]


def test_a_single_member_never_counts_as_inactive(world: ConsensusWorld) -> None:
    world.clock.advance(60_000 * MS)
    world.tick(3)
    assert (world.counter_value(238), world.state) == (1, "ACTIVE")
    assert world.errors == []


def test_its_end_leaves_the_client_that_it_was_given_open_and_nothing_added_to_it(world: ConsensusWorld) -> None:
    world.client_of()
    Client(world).connect(version=1 << 16)
    world.agent.close()
    assert world.member.open_resources == []
    assert not seam.is_closed(world.member)


@pytest.mark.parametrize("failing", ["add_publication", "new_archive_client", "new_timer_service"])
def test_a_start_that_fails_leaves_nothing_on_the_client_that_it_was_given(
    world: ConsensusWorld, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    # Nobody would read a subscription to the control channel that stays: services could send no more.
    def fail(*arguments: object) -> None:
        raise MemoryError("no memory")

    world.stop()
    if failing == "add_publication":
        world.driver.fail_next_add("publication", error=MemoryError("no memory"))
    else:
        monkeypatch.setattr(ConsensusModuleContext, failing, fail)
    with pytest.raises(MemoryError, match="no memory") as caught:
        world.begin()
    world.context.abandon()
    assert world.member.open_resources == [], caught
    assert not seam.is_closed(world.member)


def test_it_ends_with_its_driver(world: ConsensusWorld) -> None:
    world.driver.kill()
    world.clock.advance(11 * MS)
    with pytest.raises(AgentTermination, match="unexpected Aeron close"):
        world.agent.do_work()
    world.agent.close()
    assert world.context.is_closed
    assert world.activity_timestamp() == -1


def test_its_streams_to_the_archive_and_its_files_have_upstream_s_names() -> None:
    world = ConsensusWorld(cluster_id=3, mark_file_dir="/marks", authenticator=Careful()).lead()
    aliases = [each.channel for each in world.driver.publications() if each.stream_id == 10]
    assert aliases == ["aeron:ipc?term-length=64k|alias=cm-archive-ctrl-req-cluster-3-member-0|mtu=1408|sparse=true"]
    files = world.cluster_disk.contents()
    assert files["/cluster/cluster-mark.lnk"] == b"/marks"
    mark = codecs.decode("mark", files["/marks/cluster-mark.dat"] or b"")[1]
    assert (mark["authenticator"], mark["member_id"], mark["cluster_id"]) == (b"Careful", 0, 3)


def test_a_candidate_term_of_a_mark_file_counts_where_there_is_no_node_state(world: ConsensusWorld) -> None:
    world.stop()
    storage = world.cluster_disk.process()
    file = storage.open_file("/cluster/cluster-mark.dat", NO_FOLLOW)
    file.write(struct.pack("<q", 41), 8 + 32)
    file.close()
    storage.unlink("/cluster/node-state.dat")
    world.begin()
    world.lead()
    assert world.context.node_state_file.candidate_term_id == 42


@pytest.mark.parametrize(
    ("name", "expected"), [("wheel", WheelTimerService), ("priority_heap", PriorityHeapTimerService)]
)
def test_both_kinds_of_timer_service_can_be_chosen(name: str, expected: type) -> None:
    world = ConsensusWorld(timer_service=name).lead()
    assert type(world.context.new_timer_service(TimerHandler())) is expected
    world.services[0].schedule(7, now_ms(world) + 30)
    world.tick(6)
    assert [each["correlation_id"] for each in world.logged("TimerEvent")] == [7]


@pytest.mark.parametrize(("name", "kind"), [("ALLOW_ALL", AllowAll), ("DENY_ALL", DenyAll), (None, BackupRequests)])
def test_authenticator_and_authorisation_service_may_be_named(name: str | None, kind: type) -> None:
    world = ConsensusWorld(authenticator=f"{__name__}:Careful", authorisation_service=name)
    assert type(world.context.authorisation_service) is kind
    assert type(world.context.authenticator).__name__ == "Careful"


@pytest.mark.parametrize("setting", ["authenticator", "authorisation_service", "timer_service"])
def test_an_empty_name_is_refused(setting: str) -> None:
    given: dict[str, Any] = {setting: ""}
    with pytest.raises(ConfigurationError, match=f"{setting}=''"):
        ConsensusWorld(**given)


def test_a_long_wait_is_logged_with_what_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    world = ConsensusWorld()
    (service,) = world.services

    def waits() -> list[tuple[str, str, int]]:
        found = [vars(record)["fields"] for record in caplog.records if vars(record).get("event") == "waiting"]
        return [(fields["source"], fields["what"], fields["waited_s"]) for fields in found if "source" in fields]

    name = world.context.name
    service.is_quiet = True
    world.until(waits)
    assert waits() == [(name, "the services to start", 5)]
    service.is_quiet = False
    world.lead()
    world.wait(6_000, 500)
    assert len(waits()) == 1
    service.is_quiet = True
    world.set_toggle(SNAPSHOT)
    world.until(lambda: len(waits()) > 1)
    assert waits()[1:] == [(name, "services and archive to take the snapshot", 5)]
    service.is_quiet = False
    world.until(lambda: world.state == "ACTIVE")
    world.stop()
