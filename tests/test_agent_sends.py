"""What a service sends, over memory: egress, service messages, timers, close requests, and from where it may not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from container.api import Role
from container.codecs import messages as codecs
from container.common.aeron_defaults import CONTROL_CHANNEL
from container.errors import AgentTermination, ClosedError, ClusterError, ClusterEvent, MessageTooLongError
from container.testing.memory import transport_probe as seam
from container.testing.memory.scripted_member import ScriptedMember
from container.transport.message_buffer import BufferClaim
from container.transport.streams import Publication
from tests.limits import LIMIT_S

NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED = -1, -2, -3, -4, -5
MOCKED = 1


def inside(member: ScriptedMember, action: Callable[[], Any]) -> Any:
    """What ``action`` returns inside on_session_message; raises what it raises."""
    outcome: list[Any] = []

    def guarded(*_: Any) -> None:
        try:
            outcome.append((action(), None))
        except BaseException as error:
            outcome.append((None, error))

    member.in_callback(guarded)
    member.deliver(b"go")
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def claim_and_commit(target: Any, data: bytes) -> int:
    """Sends ``data`` by a claim; the result of the claim."""
    with BufferClaim() as claim:
        result = target.try_claim(len(data), claim)
        if result > 0:
            claim.buffer[:] = data
        return int(result)


def test_s31_a_followers_egress_is_a_mocked_success() -> None:
    member = ScriptedMember().follow()
    session: Any = member.open_session()
    assert inside(member, lambda: session.offer(b"x")) == MOCKED
    assert inside(member, lambda: session.send(b"x")) == MOCKED
    assert inside(member, lambda: claim_and_commit(session, b"x" * 60_000)) == MOCKED
    assert member.cm.egress(1) == []
    assert not session.is_connected


def test_s31_a_follower_sends_to_the_cluster_and_schedules_timers_all_the_same() -> None:
    member = ScriptedMember().follow()
    cluster = member.service.cluster
    assert inside(member, lambda: cluster.offer(b"x")) > 0
    assert inside(member, lambda: cluster.schedule_timer(5, 99)) is True
    assert inside(member, lambda: cluster.cancel_timer(5)) is True
    assert [message.payload for message in member.cm.service_messages] == [b"x"]
    assert member.cm.scheduled_timers == [(5, 99)]
    assert member.cm.cancelled_timers == [(5,)]


@pytest.mark.parametrize("length", [-1, 65_441])
def test_a_mocked_claim_out_of_range_is_refused(length: int) -> None:
    member = ScriptedMember().follow()
    session = member.open_session()
    with pytest.raises(ValueError, match=f"a claim of {length} bytes"):
        inside(member, lambda: session.try_claim(length, BufferClaim()))


@pytest.mark.parametrize("send", ["offer", "send", "try_claim"])
def test_s32_a_leaders_egress_is_a_header_and_the_payload(send: str) -> None:
    member = ScriptedMember(leadership_term_id=6).lead()
    session = member.open_session()
    action = {
        "offer": lambda: session.offer(b"answer"),
        "send": lambda: session.send(b"answer"),
        "try_claim": lambda: claim_and_commit(session, b"answer"),
    }[send]
    member.cm.timestamp = 5_555
    assert inside(member, action) > MOCKED
    assert member.cm.egress(1) == [(7, 1, 5_555, b"answer")]


def test_s32_egress_of_several_buffers_is_one_message() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    parts = (b"one", bytearray(b"-two-"), memoryview(b"xthreex")[1:-1], b"")
    inside(member, lambda: session.offer(*parts))
    inside(member, lambda: session.send())
    assert member.answers() == [b"one-two-three", b""]


@pytest.mark.parametrize("length", [1344, 1345, 5_000, 8_000])
def test_long_egress_is_fragmented(length: int) -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    data = bytes(index % 256 for index in range(length))
    assert inside(member, lambda: session.offer(data)) > 0
    assert member.cm.egress(1)[0].payload == data


def test_too_many_buffers_are_refused() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    assert inside(member, lambda: session.offer(*[b"x"] * 15)) > 0
    with pytest.raises(ValueError, match="16 buffers in one call: at most 15"):
        inside(member, lambda: session.offer(*[b"x"] * 16))


@pytest.mark.parametrize("wrong", ["text", 5, None, object()])
def test_what_is_no_buffer_is_refused(wrong: Any) -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    for call in (session.offer, session.send, member.service.cluster.offer, member.service.cluster.send):
        with pytest.raises(TypeError, match="bytes-like"):
            inside(member, partial(call, b"x", wrong))
    held = bytearray(b"x")
    with pytest.raises(TypeError):
        inside(member, lambda: session.offer(held, wrong))
    held.append(1)  # would raise BufferError if a view were still held


def test_s33_without_responding_service_nothing_is_connected() -> None:
    member = ScriptedMember(is_responding_service=False).lead()
    session = member.open_session()
    assert inside(member, lambda: session.offer(b"x")) == NOT_CONNECTED
    assert inside(member, lambda: session.send(b"x")) == NOT_CONNECTED
    assert inside(member, lambda: session.try_claim(1, BufferClaim())) == NOT_CONNECTED


def test_s33_a_failed_registration_is_not_connected() -> None:
    member = ScriptedMember().lead()
    member.driver.fail_next_add("publication", 2, "no such host")
    session = member.open_session()
    assert inside(member, lambda: session.send(b"x")) == NOT_CONNECTED


def test_s34_egress_is_a_shared_publication_on_the_unmodified_channel() -> None:
    member = ScriptedMember().lead()
    channel = "aeron:udp?endpoint=localhost:7777|mtu=1408"
    shared = seam.add_publication(member.cm.client, channel, 102)
    session = member.open_session(1, response_channel=channel)
    inside(member, lambda: session.send(b"x"))
    own = [resource for resource in member.client.open_resources if isinstance(resource, Publication)]
    assert [publication.session_id for publication in own if publication.channel == channel] == [shared.session_id]


def test_s35_sessions_opened_as_follower_are_connected_by_the_next_leader_join() -> None:
    member = ScriptedMember().follow()
    session: Any = member.open_session()
    assert not session.is_connected
    member.cm.join_as_leader()
    member.work()
    assert session.is_connected


def one_session() -> list[bytes]:
    """A snapshot with session 1."""
    member = ScriptedMember().lead()
    member.open_session()
    return member.take_snapshot()


@pytest.mark.parametrize("name", ["on_start", "on_role_change", "do_background_work", "on_terminate"])
@pytest.mark.parametrize(
    "send",
    [
        "offer",
        "send",
        "try_claim",
        "session.offer",
        "session.send",
        "session.try_claim",
        "schedule_timer",
        "cancel_timer",
        "close_client_session",
    ],
)
def test_s36_the_guard_raises_in_the_callbacks_that_must_not_send(name: str, send: str) -> None:
    member = ScriptedMember()
    refused: list[str] = []

    def attempt(*_: Any) -> int:
        cluster = member.service.cluster
        session = cluster.get_client_session(1)
        calls: dict[str, Callable[[], Any]] = {
            "offer": lambda: cluster.offer(b"x"),
            "send": lambda: cluster.send(b"x"),
            "try_claim": lambda: cluster.try_claim(1, BufferClaim()),
            "session.offer": lambda: session.offer(b"x"),
            "session.send": lambda: session.send(b"x"),
            "session.try_claim": lambda: session.try_claim(1, BufferClaim()),
            "schedule_timer": lambda: cluster.schedule_timer(1, 1),
            "cancel_timer": lambda: cluster.cancel_timer(1),
            "close_client_session": lambda: cluster.close_client_session(1),
        }
        with pytest.raises(ClusterError) as raised:
            calls[send]()
        refused.append(str(raised.value))
        return 0

    if name == "on_start":
        member.service.actions[name] = attempt
        member.start(one_session())
    member.follow()
    if name != "on_start":
        member.cm.open_session(1)
    member.commit()
    member.service.actions[name] = attempt
    if name == "on_role_change":
        member.cm.join_as_leader()
        member.work()
    elif name == "on_terminate":
        member.cm.termination_position()
        member.terminated()
    elif name == "do_background_work":
        member.work()
    assert set(refused) == {f"sending messages or scheduling timers is not allowed from {name}"}


def test_s36_the_guard_holds_after_idling_inside_on_role_change() -> None:
    member = ScriptedMember().start()
    member.service.actions["do_background_work"] = lambda _now: 0

    def on_role_change(_role: Role) -> None:
        member.service.cluster.idle()
        with pytest.raises(ClusterError, match="not allowed from on_role_change"):
            member.service.cluster.offer(b"x")

    checked = member.in_callback(on_role_change, "on_role_change")
    member.cm.join_as_leader()
    member.work()
    assert checked == [None]
    assert member.errors == []


@pytest.mark.parametrize(
    "name", ["on_session_open", "on_session_close", "on_timer_event", "on_new_leadership_term_event"]
)
def test_the_other_callbacks_may_send(name: str) -> None:
    member = ScriptedMember().follow()
    results = member.in_callback(lambda *_: member.service.cluster.offer(b"x"), name)
    member.cm.open_session(1)
    member.cm.timer_event(1)
    member.cm.new_leadership_term()
    member.cm.close_session(1)
    member.commit()
    assert len(results) == 1
    assert results[0] > 0


def test_s37_closing_an_unknown_session_raises() -> None:
    member = ScriptedMember().lead()
    with pytest.raises(ClusterError, match="unknown clusterSessionId: 5"):
        inside(member, lambda: member.service.cluster.close_client_session(5))


def test_s37_a_second_close_is_true_without_a_second_message() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    cluster = member.service.cluster
    assert inside(member, lambda: cluster.close_client_session(1)) is True
    assert session.is_closing
    assert inside(member, lambda: cluster.close_client_session(1)) is True
    inside(member, session.close)
    assert member.cm.close_requests == [(1,)]


def test_s37_a_close_under_back_pressure_is_tried_three_times() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    cluster = member.service.cluster
    member.results(BACK_PRESSURED, ADMIN_ACTION, BACK_PRESSURED)
    before = member.idle_strategy.idle_count
    assert inside(member, lambda: cluster.close_client_session(1)) is False
    assert not session.is_closing
    assert member.idle_strategy.idle_count - before == 3
    member.results(BACK_PRESSURED, BACK_PRESSURED)
    assert inside(member, lambda: cluster.close_client_session(1)) is True
    assert member.cm.close_requests == [(1,)]


def test_closing_a_session_that_is_gone_does_nothing() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    member.cm.close_session(1)
    member.commit()
    inside(member, session.close)
    assert member.cm.close_requests == []


@pytest.mark.parametrize("result", [BACK_PRESSURED, ADMIN_ACTION])
def test_s38_timers_return_false_under_back_pressure(result: int) -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    member.results(result, result)
    assert inside(member, lambda: (cluster.schedule_timer(1, 2), cluster.cancel_timer(1))) == (False, False)
    assert member.cm.scheduled_timers == []


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (NOT_CONNECTED, "is not connected"),
        (CLOSED, "is closed"),
        (MAX_POSITION_EXCEEDED, "at max position: term-length=131072"),
    ],
)
def test_s38_what_can_not_be_sent_any_more_raises(result: int, text: str) -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    for call in (
        lambda: cluster.schedule_timer(1, 2),
        lambda: cluster.cancel_timer(1),
        lambda: cluster.offer(b"x"),
        lambda: cluster.send(b"x"),
        lambda: cluster.try_claim(1, BufferClaim()),
    ):
        member.results(result)
        with pytest.raises(ClusterError, match=text):
            inside(member, call)


@pytest.mark.parametrize("arguments", [(2**63 - 1, 1), (1, 2**63 - 1)])
def test_a_timer_with_the_consensus_modules_none_is_refused(arguments: tuple[int, int]) -> None:
    member = ScriptedMember().lead()
    with pytest.raises(ValueError, match="2\\*\\*63 - 1 is not a correlation id"):
        inside(member, lambda: member.service.cluster.schedule_timer(*arguments))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_numbers_beyond_64_bits_are_refused(value: int) -> None:
    member = ScriptedMember().lead()
    with pytest.raises(OverflowError):
        inside(member, lambda: member.service.cluster.schedule_timer(value, 1))


@pytest.mark.parametrize("value", ["7", None, b"bytes", 7.0, Decimal(7), 2**63, -(2**63) - 1])
def test_a_number_that_is_none_is_named(value: Any) -> None:
    member = ScriptedMember().lead()
    cluster: Any = member.service.cluster
    calls: list[tuple[str, Callable[[], object]]] = [
        ("correlation_id", lambda: cluster.schedule_timer(value, 1)),
        ("deadline", lambda: cluster.schedule_timer(1, value)),
        ("correlation_id", lambda: cluster.cancel_timer(value)),
        ("cluster_session_id", lambda: cluster.get_client_session(value)),
        ("cluster_session_id", lambda: cluster.close_client_session(value)),
    ]
    for name, call in calls:
        with pytest.raises((TypeError, OverflowError)) as refused:
            inside(member, call)
        assert str(refused.value).startswith(f"{name}={value!r}: must be a whole number of 64 bits")


def test_s39_a_message_to_the_cluster_may_have_16352_bytes() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    assert inside(member, lambda: cluster.offer(b"x" * 16_352)) > 0
    with pytest.raises(
        MessageTooLongError, match="of 16353 bytes is longer than the max_message_length of 16352 bytes"
    ):
        inside(member, lambda: cluster.offer(b"x" * 16_352, b"x"))
    assert [len(message.payload) for message in member.cm.service_messages] == [16_352]


def test_s39_a_claim_to_the_cluster_may_have_1344_bytes() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    assert inside(member, lambda: claim_and_commit(cluster, b"y" * 1_344)) > 0
    with pytest.raises(MessageTooLongError, match="of 1345 bytes is longer than the max_payload_length of 1344 bytes"):
        inside(member, lambda: cluster.try_claim(1_345, BufferClaim()))
    with pytest.raises(ValueError, match="-1"):
        inside(member, lambda: cluster.try_claim(-1, BufferClaim()))
    assert [message.payload for message in member.cm.service_messages] == [b"y" * 1_344]


def test_s40_a_service_message_comes_back_without_a_session() -> None:
    member = ScriptedMember().follow()
    member.cm.open_session(1)
    member.cm.service_message(0, 1, b"from a service")
    member.commit()
    assert member.service.of("on_session_message")[0][0] is None


def test_s41_outbound_messages_are_the_reference_vectors() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    member.open_session(9)
    member.cm.poll()
    subscription = seam.add_subscription(member.cm.client, CONTROL_CHANNEL, 105)
    inside(member, lambda: cluster.schedule_timer(77, 1000))
    inside(member, lambda: cluster.cancel_timer(77))
    inside(member, lambda: cluster.close_client_session(9))
    raw = [bytes(data) for data, _header in seam.poll(subscription, 10)]
    assert [data.hex() for data in raw] == [
        "10001f006f0010004d00000000000000e803000000000000",
        "080020006f0010004d00000000000000",
        "08001e006f0010000900000000000000",
    ]
    assert codecs.decode("cluster", raw[0])[0] == "ScheduleTimer"


def test_a_message_to_the_cluster_carries_the_service_id_as_session() -> None:
    member = ScriptedMember(service_id=3).lead()
    inside(member, lambda: member.service.cluster.offer(b"x"))
    (message,) = member.cm.service_messages
    assert (message.leadership_term_id, message.cluster_session_id) == (1, 3)


# send: waits out back pressure


def test_cluster_send_keeps_offering_until_sent() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    member.results(*[BACK_PRESSURED, ADMIN_ACTION] * 20)
    marks = len(member.mark_file.activity_timestamps)
    member.idle_ns = 200_000_000
    assert inside(member, lambda: cluster.send(b"x")) > 0
    assert [message.payload for message in member.cm.service_messages] == [b"x"]
    assert len(member.mark_file.activity_timestamps) - marks >= 7, "the mark file is kept alive meanwhile"
    assert member.errors == []


def test_cluster_send_ends_when_the_consensus_module_goes() -> None:
    member = ScriptedMember().lead()
    member.results(*[BACK_PRESSURED] * 1_000)
    member.after_idles(5, member.cm.remove_commit_counter)
    member.in_callback(lambda *_: member.service.cluster.send(b"x"))
    member.cm.session_message(1, b"go")
    member.cm.commit()
    termination = member.terminated()
    assert getattr(termination, "is_expected", False)


def test_session_send_waits_out_back_pressure() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    member.driver.publication_results(session.response_channel, 102, [BACK_PRESSURED, ADMIN_ACTION] * 3)
    assert inside(member, lambda: session.send(b"x")) > 0
    assert member.answers() == [b"x"]


def test_session_send_waits_for_a_new_client_to_connect() -> None:
    member = ScriptedMember().lead()
    channel = "aeron:udp?endpoint=localhost:8888"
    session = member.open_session(1, response_channel=channel, connect_egress=False)
    member.idle_ns = 1_000_000
    member.after_idles(10, lambda: member.cm.connect_egress(1, channel))
    assert inside(member, lambda: session.send(b"hello")) > 0
    assert member.cm.egress(1)[0].payload == b"hello"


def test_session_send_to_a_client_that_is_gone_returns_not_connected_at_once() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    member.clock.advance(2_000_000_000)
    member.cm.disconnect_egress(1)
    before = member.idle_strategy.idle_count
    assert inside(member, lambda: session.send(b"x")) == NOT_CONNECTED
    assert member.idle_strategy.idle_count == before


# a raw offer whose failure nobody cares for


@pytest.mark.parametrize("call", ["offer", "try_claim"])
def test_a_failed_offer_to_the_cluster_that_is_not_retried_is_reported(call: str) -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    member.results(BACK_PRESSURED)
    actions: dict[str, Callable[[], int]] = {
        "offer": lambda: cluster.offer(b"x"),
        "try_claim": lambda: cluster.try_claim(1, BufferClaim()),
    }
    action = actions[call]
    member.in_callback(lambda *_: (action(), None)[1])
    member.deliver(b"go")
    (event,) = member.errors
    assert isinstance(event, ClusterEvent)
    assert f"Cluster.{call} returned BACK_PRESSURED at logPosition={cluster.log_position}" in str(event)
    assert "was not repeated until it was accepted" in str(event)
    member.deliver(b"again")
    assert len(member.errors) == 1


def test_a_failed_offer_that_is_looked_at_and_given_up_is_reported() -> None:
    member = ScriptedMember().lead()
    member.results(ADMIN_ACTION)
    member.in_callback(lambda *_: (member.service.cluster.offer(b"x") < 0, None)[1])
    member.deliver(b"go")
    assert len(member.errors) == 1


@pytest.mark.parametrize("retry", ["offer", "send", "try_claim"])
@pytest.mark.parametrize("first", ["offer", "try_claim"])
def test_a_failed_offer_that_is_retried_is_not_reported(first: str, retry: str) -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    actions: dict[str, Callable[[], int]] = {
        "offer": lambda: cluster.offer(b"x"),
        "send": lambda: cluster.send(b"x"),
        "try_claim": lambda: claimed(cluster),
    }

    def in_turn(*_: Any) -> None:
        actions[first]()
        actions[first]()
        actions[retry]()

    member.results(BACK_PRESSURED, ADMIN_ACTION)
    member.in_callback(in_turn)
    member.deliver(b"go")
    assert member.errors == []


def claimed(cluster: Any) -> int:
    with BufferClaim() as claim:
        return int(cluster.try_claim(1, claim))


def test_a_message_equal_to_one_that_was_accepted_is_to_be_accepted_as_well() -> None:
    member = ScriptedMember().lead()
    member.results(BACK_PRESSURED, None, BACK_PRESSURED)
    member.in_callback(lambda *_: [member.service.cluster.offer(b"x") for _ in range(3)].clear())
    member.deliver(b"go")
    assert len(member.errors) == 1


def test_another_message_is_no_retry() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster

    def blindly(*_: Any) -> None:
        cluster.offer(b"x")
        cluster.offer(b"y")

    member.results(BACK_PRESSURED)
    member.in_callback(blindly)
    member.deliver(b"go")
    assert len(member.errors) == 1


# claims


def test_a_claim_is_sent_by_commit_and_not_by_abort() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()

    def claims() -> None:
        claim = BufferClaim()
        assert session.try_claim(4, claim) > 0
        assert claim.length == 4
        assert bytes(claim.buffer) == bytes(4)
        claim.buffer[:] = b"gone"
        claim.abort()
        claim.abort()
        assert claim.length == 0
        assert session.try_claim(4, claim) > 0
        kept = claim.buffer
        kept[:] = b"sent"
        claim.commit()
        kept[:] = b"late"

    inside(member, claims)
    assert member.answers() == [b"sent"]


def test_a_claim_is_aborted_by_an_exception_and_when_it_is_dropped() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()

    def raises() -> None:
        with BufferClaim() as claim:
            session.try_claim(1, claim)
            raise KeyError("why")

    def drops() -> None:
        session.try_claim(1, BufferClaim())

    with pytest.raises(KeyError):
        inside(member, raises)
    inside(member, drops)
    inside(member, lambda: session.send(b"next"))
    assert member.answers() == [b"next"]


def test_a_claim_that_is_misused_says_so() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    claim = BufferClaim()
    with pytest.raises(ClusterError, match="nothing is claimed"):
        claim.commit()
    with pytest.raises(ClusterError, match="nothing is claimed"):
        _ = claim.buffer
    with pytest.raises(ClusterError, match="holds a claim already"):
        inside(member, lambda: (session.try_claim(1, claim), session.try_claim(1, claim)))
    claim.abort()


def test_a_claim_outlives_its_publication_without_harm() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()

    def claims() -> None:
        claim = BufferClaim()
        session.try_claim(1, claim)
        for resource in member.client.open_resources:
            if isinstance(resource, Publication) and resource.channel == session.response_channel:
                resource.close()
        with pytest.raises(ClosedError, match="closed before the claim was committed"):
            claim.commit()

    inside(member, claims)
    assert member.errors == []


@pytest.mark.parametrize("ending", ["returns", "raises", "of a timer"])
@pytest.mark.parametrize("is_leader", [True, False])
def test_a_claim_that_is_open_when_its_callback_ends_is_aborted_and_reported(ending: str, *, is_leader: bool) -> None:
    member = ScriptedMember().lead() if is_leader else ScriptedMember().follow()
    session = member.open_session()
    cluster = member.service.cluster
    claims = [BufferClaim(), BufferClaim(), BufferClaim()]

    def forgets(*_: Any) -> None:
        session.try_claim(3, claims[0])
        claims[0].commit()
        session.try_claim(5, claims[0])
        cluster.try_claim(7, claims[1])
        session.try_claim(2, claims[2])
        claims[2].commit()
        if ending == "raises":
            raise KeyError("why")

    member.in_callback(forgets, "on_timer_event" if ending == "of a timer" else "on_session_message")
    if ending == "of a timer":
        member.cm.timer_event(1)
    member.deliver(b"go")
    raised, *reports = [str(error) for error in member.errors] if ending == "raises" else [None, *member.errors]
    assert raised == ("'why'" if ending == "raises" else None)
    assert sorted(str(report).partition(" at ")[0].removeprefix("ERROR - ") for report in reports) == [
        "Cluster.try_claim: a claim of 7 bytes",
        "try_claim of session 1: a claim of 5 bytes",
    ]
    assert all("was neither committed nor aborted when its event ended" in str(report) for report in reports)
    for claim in claims[:2]:
        with pytest.raises(ClusterError, match="aborted when the event that made it ended"):
            claim.commit()
        with pytest.raises(ClusterError, match="aborted when the event that made it ended"):
            _ = claim.buffer
    member.errors.clear()
    # Both streams go on, and the claim can be used again.
    assert inside(member, lambda: claim_and_commit(session, b"y")) > 0

    def claims_again() -> None:
        assert session.try_claim(1, claims[0]) > 0
        claims[0].abort()

    inside(member, claims_again)
    assert inside(member, lambda: cluster.send(b"z")) > 0
    assert [message.payload for message in member.cm.service_messages] == [b"z"]
    if is_leader:
        assert member.answers() == [bytes(3), bytes(2), b"y"]
    assert member.errors == []


# lengths: what raises is known to all members, from the log


SHORT_TERM = "aeron:udp?endpoint=localhost:7777|term-length=64k|mtu=1408"


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize(
    ("channel", "longest"),
    [
        (SHORT_TERM, 8_160),
        ("aeron:udp?endpoint=localhost:7777|term-length=131072", 16_352),
        ("aeron:udp?endpoint=localhost:7777", 16 * 1024 * 1024 - 32),
        ("aeron:udp?endpoint=localhost:7777|term-length=many", 16 * 1024 * 1024 - 32),
        ("aeron:udp?endpoint=localhost:7777|term-length=1", 16 * 1024 * 1024 - 32),
        ("term-length=64k", 16 * 1024 * 1024 - 32),
    ],
)
def test_a_message_that_its_channel_cannot_carry_is_refused_on_every_member(
    channel: str, longest: int, *, is_leader: bool
) -> None:
    member = ScriptedMember().lead() if is_leader else ScriptedMember().follow()
    session = member.open_session(1, response_channel=channel, connect_egress=False)
    for call in (session.offer, session.send):
        with pytest.raises(MessageTooLongError, match=f"a message of {longest + 1} bytes to session 1: .* {longest} "):
            inside(member, partial(call, bytes(longest), b"x"))
        inside(member, partial(call, bytes(longest)))


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize(
    ("channel", "longest"),
    [
        (SHORT_TERM, 1_344),
        ("aeron:udp?endpoint=localhost:7777|mtu=8k", 8_128),
        ("aeron:udp?endpoint=localhost:7777", 65_440),
        ("aeron:udp?endpoint=localhost:7777|mtu=1g", 65_440),
    ],
)
def test_a_claim_that_its_channel_cannot_carry_is_refused_on_every_member(
    channel: str, longest: int, *, is_leader: bool
) -> None:
    member = ScriptedMember().lead() if is_leader else ScriptedMember().follow()
    session = member.open_session(1, response_channel=channel, connect_egress=False)
    with pytest.raises(ValueError, match=f"a claim of {longest + 1} bytes: it must be 0 to {longest}"):
        inside(member, lambda: session.try_claim(longest + 1, BufferClaim()))
    inside(member, lambda: claim_and_commit(session, bytes(longest)))


@pytest.mark.parametrize("call", ["offer", "send", "try_claim"])
def test_a_message_that_only_this_members_driver_cannot_carry_is_reported_and_raises_nothing(call: str) -> None:
    leader, follower = ScriptedMember().lead(), ScriptedMember().follow()
    length = {"offer": 8_161, "send": 8_161, "try_claim": 1_345}[call]
    results = []
    for member in (leader, follower):
        session = member.open_session()
        actions: dict[str, Callable[[], int]] = {
            "offer": lambda session=session: session.offer(bytes(length)),  # type: ignore[misc]
            "send": lambda session=session: session.send(bytes(length)),  # type: ignore[misc]
            "try_claim": lambda session=session: claim_and_commit(session, bytes(length)),  # type: ignore[misc]
        }
        results.append(inside(member, actions[call]))
    assert results == [CLOSED, MOCKED]
    (event,) = leader.errors
    assert f"a message of {length} bytes to session 1 at logPosition=" in str(event)
    assert f"{length - 1} bytes fit its channel" in str(event)
    assert follower.errors == []


# threads and idling


def test_the_cluster_is_refused_on_another_thread() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    errors: list[BaseException] = []

    def other() -> None:
        try:
            cluster.offer(b"x")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(LIMIT_S)
    assert [type(error) for error in errors] == [ClusterError]
    assert "another thread" in str(errors[0])


def test_idling_in_a_callback_runs_background_work_and_ticks_but_neither_log_nor_control() -> None:
    member = ScriptedMember().lead()
    background: list[int] = []
    member.service.actions["do_background_work"] = background.append
    member.cm.session_message(1, b"first")
    member.cm.session_message(1, b"next")

    def idles(*_: Any) -> tuple[int, list[bytes], int]:
        begin = len(background)
        member.cm.request_service_ack(member.service.cluster.log_position)
        for _idle in range(5):
            member.service.cluster.idle()
        member.service.cluster.idle(1)
        return len(background) - begin, list(member.service.messages), len(member.cm.acks)

    counted = member.in_callback(idles)
    member.cm.commit()
    acks = len(member.cm.acks)
    member.agent.do_work()
    assert counted == [(5, [b"first"], acks)]
    assert member.service.messages == [b"first", b"next"]
    member.work()
    assert len(member.cm.acks) == acks + 1, "the request was there to be read"


def test_idling_inside_background_work_does_not_run_it_again() -> None:
    member = ScriptedMember().lead()
    depth: list[int] = [0]

    def background(_now: int) -> int:
        depth[0] += 1
        assert depth[0] == 1
        member.service.cluster.idle()
        depth[0] -= 1
        return 0

    member.service.actions["do_background_work"] = background
    member.work()
    assert member.errors == []


@pytest.mark.parametrize(("returned", "work"), [(None, 0), (0, 0), (3, 3), (-5, 0)])
def test_background_work_counts(returned: int | None, work: int) -> None:
    member = ScriptedMember().lead()
    member.service.actions["do_background_work"] = lambda _now: returned
    assert member.work(1) == work


def test_an_interrupt_ends_an_idle_loop_in_a_callback() -> None:
    member = ScriptedMember().lead()

    def waits(*_: Any) -> None:
        while True:
            member.service.cluster.idle()

    member.in_callback(waits)
    member.after_idles(3, member.agent.interrupt)
    member.cm.session_message(1, b"go")
    member.cm.commit()
    with pytest.raises(AgentTermination, match="interrupted"):
        member.work()
    assert member.hooks == 1


def test_sessions_are_told_in_upstreams_order() -> None:
    member = ScriptedMember().lead()
    for session_id in (30, 10, 20):
        member.cm.open_session(session_id)
    member.commit()
    seen: list[int] = []
    cluster = member.service.cluster
    cluster.for_each_client_session(lambda session: seen.append(session.id))
    assert seen == [30, 10, 20], "one below all others comes last, as in Java's container"
    assert [session.id for session in cluster.client_sessions] == seen
    assert cluster.get_client_session(20).id == 20
    assert cluster.context is member.context
    assert cluster.aeron is member.client


def test_a_session_tells_about_itself() -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(
        7, response_channel="aeron:udp?endpoint=localhost:1", response_stream_id=5, encoded_principal=b"me"
    )
    member.commit()
    session = member.service.cluster.get_client_session(7)
    assert (session.response_channel, session.response_stream_id) == ("aeron:udp?endpoint=localhost:1", 5)
    assert (session.encoded_principal, session.is_closing) == (b"me", False)
    assert "id=7" in repr(session)
