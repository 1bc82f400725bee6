"""Round trips measured in C: what is sent, what counts as an answer, and what is told of them."""

from __future__ import annotations

import pytest

from container.client.round_trips import RoundTrips, percentile_us
from container.errors import ConfigurationError
from tests.client_world import MEMBER_0, World
from tests.ingress_member import CLOSED, IngressMember, Request


@pytest.fixture
def member(world: World) -> IngressMember:
    return IngressMember(world.driver, 0, MEMBER_0)


def expected(number: int, length: int) -> bytes:
    return number.to_bytes(8, "little") + bytes((number + index) % 256 for index in range(8, length))


def echo(member: IngressMember) -> None:
    def hook(request: Request) -> None:
        member.message(request["payload"])

    member.hooks["SessionMessageHeader"] = hook


@pytest.mark.parametrize(("length", "window"), [(8, 1), (9, 3), (32, 256), (5000, 2)])
def test_all_are_sent_answered_and_timed(world: World, member: IngressMember, length: int, window: int) -> None:
    echo(member)
    trips = RoundTrips(length)
    client = world.connect(listener=trips)
    for messages in (300, 20):
        trips.begin(messages, window)
        assert trips.recent_mean_us() == 0.0
        assert trips.run(client, 30.0)
        assert (trips.sent, trips.received, trips.others) == (messages, messages, 0)
        durations = trips.durations_ns()
        assert len(durations) == messages
        assert min(durations) > 0
        assert min(durations) / 1000 <= trips.recent_mean_us() <= max(durations) / 1000
    assert member.payloads() == [expected(number, length) for number in [*range(300), *range(20)]]


def test_no_more_are_under_way_than_the_window_takes(world: World, member: IngressMember) -> None:
    trips = RoundTrips(8)
    client = world.connect(listener=trips)
    trips.begin(100, 7)
    assert not trips.run(client, 0.0)
    assert not trips.run(client, 0.0)
    assert (trips.sent, trips.received) == (7, 0)
    assert trips.durations_ns() == []


def test_only_the_message_that_is_due_is_an_answer(world: World, member: IngressMember) -> None:
    trips = RoundTrips(16)
    client = world.connect(listener=trips)
    member.message(expected(0, 16))  # of an earlier round: nothing is under way
    trips.begin(3, 3)
    client.poll_egress()
    assert trips.others == 1
    trips.run(client, 0.0)
    assert trips.sent == 3
    for payload in (expected(1, 16), expected(0, 15), expected(0, 17), bytes(16), expected(0, 16)[:-1] + b"x"):
        member.message(payload)
    member.message(expected(0, 16))
    trips.run(client, 0.0)
    assert (trips.received, trips.others) == (1, 6)
    member.message(expected(1, 16))
    member.message(expected(2, 16))
    assert trips.run(client, 30.0)
    assert trips.others == 6


def test_the_rest_goes_to_the_listener(world: World, member: IngressMember) -> None:
    client = world.connect(listener=RoundTrips(8, world.listener))
    member.session_event(1, CLOSED, "enough")
    world.poll(client, 1)
    assert [event[-1] for event in world.listener.events] == ["enough"]


@pytest.mark.parametrize(
    ("length", "messages", "window", "text"),
    [
        (7, 1, 1, "length must be at least 8, not 7"),
        (8, 0, 1, "messages must be at least 1, not 0"),
        (8, 1, -1, "window must be at least 1, not -1"),
    ],
)
def test_numbers_that_are_too_small_are_refused(length: int, messages: int, window: int, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        RoundTrips(length).begin(messages, window)


def test_percentiles_are_of_what_was_measured() -> None:
    assert percentile_us([], 50) == 0.0
    ordered = [number * 1000 for number in range(1, 101)]
    assert [percentile_us(ordered, percent) for percent in (0, 50, 99, 100)] == [1.0, 51.0, 100.0, 100.0]
