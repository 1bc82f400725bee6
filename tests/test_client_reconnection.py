"""When to connect again, and what waits to be sent: the state machines of a client that survives, without I/O."""

from __future__ import annotations

import random

import pytest

from container.client.reconnection import (
    ConnectionState,
    Outbox,
    OutboxEntry,
    OutboxPolicy,
    Reconnection,
    ReconnectPolicy,
)
from container.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    ContainerError,
    MessageTooLongError,
    OutboxFullError,
    Outcome,
    RegistrationError,
    SessionLimitError,
    TimedOutError,
)

S = 1_000_000_000
MS = 1_000_000


def reconnection(*, jitter: float = 0.0, number: float = 1.0, **settings: object) -> Reconnection:
    policy = ReconnectPolicy(jitter=jitter, **settings)  # type: ignore[arg-type]
    return Reconnection(policy, random=lambda: number, now_ns=0)


def failed(machine: Reconnection, now_ns: int, error: ContainerError | None = None) -> int:
    """An attempt fails now; returns how long to wait for the next."""
    machine.on_failed(error or TimedOutError("nobody is there"), now_ns)
    return machine.wait_ns(now_ns)


def state_of(machine: Reconnection) -> ConnectionState:
    """Its state now; a type checker takes the attribute's for what it last was."""
    return machine.state


def test_the_first_attempt_is_due_at_once_and_delays_double_up_to_their_limit() -> None:
    machine = reconnection(first_delay=0.1, max_delay=1.0)
    assert state_of(machine) is ConnectionState.CONNECTING
    now_ns = 0
    delays = []
    for _ in range(6):
        delay_ns = failed(machine, now_ns)
        delays.append(delay_ns // MS)
        assert state_of(machine) is ConnectionState.WAITING
        assert not machine.poll(now_ns + delay_ns - 1)
        now_ns += delay_ns
        assert machine.poll(now_ns)
        assert not machine.poll(now_ns)
        assert state_of(machine) is ConnectionState.CONNECTING
    assert delays == [200, 400, 800, 1000, 1000, 1000]


def test_a_lost_session_is_followed_by_an_attempt_after_the_first_delay() -> None:
    machine = reconnection(first_delay=0.1)
    machine.on_failed(TimedOutError("x"), 0)
    assert machine.poll(5 * S)
    machine.on_connected()
    assert (machine.state, machine.failures, machine.sessions, machine.error) == (ConnectionState.CONNECTED, 0, 1, None)
    lost = ClosedError("the driver is gone")
    machine.on_lost(lost, 9 * S)
    assert (machine.state, machine.error) == (ConnectionState.WAITING, lost)
    assert machine.wait_ns(9 * S) == 100 * MS
    assert machine.poll(9 * S + 100 * MS)
    machine.on_connected()
    assert machine.sessions == 2


def test_who_has_waited_in_an_attempt_does_not_wait_again_after_it() -> None:
    machine = reconnection(first_delay=1.0, max_delay=4.0)
    assert failed(machine, 500 * MS) == 1_500 * MS
    assert machine.poll(2 * S)
    assert failed(machine, 7 * S) == 0
    assert machine.poll(7 * S)


def test_an_attempt_that_is_under_way_is_not_waited_for() -> None:
    machine = reconnection()
    machine.on_connected()
    assert not machine.hasten(S)
    machine.on_lost(ClosedError("gone"), S)
    assert machine.hasten(S)
    assert state_of(machine) is ConnectionState.CONNECTING
    machine.on_connected()
    assert machine.sessions == 2


def test_a_probe_that_fails_as_an_attempt_is_followed_by_a_delay() -> None:
    machine = reconnection(first_delay=1.0, max_delay=4.0)
    machine.on_connected()
    machine.on_lost(ClosedError("gone"), 100 * S)
    assert machine.hasten(100 * S)
    assert failed(machine, 100 * S + 500 * MS) >= 500 * MS


def test_jitter_shortens_delays_by_chance() -> None:
    assert [failed(reconnection(jitter=0.5, number=number), 0) // MS for number in (0.0, 0.5, 1.0)] == [200, 150, 100]
    assert failed(reconnection(jitter=1.0, number=1.0), 0) == 0


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("no", code=3, detail="no"),
        ConfigurationError("egress_channel must be set"),
        RegistrationError("INVALID_CHANNEL", code=1),
    ],
)
def test_what_no_retry_can_help_ends_it_at_once(error: ContainerError) -> None:
    machine = reconnection()
    failed(machine, 0, error)
    assert (machine.state, machine.error) == (ConnectionState.CLOSED, error)
    assert not machine.poll(3600 * S)


@pytest.mark.parametrize(
    "error",
    [
        SessionLimitError("concurrent session limit", code=1, detail="concurrent session limit"),
        RegistrationError("UNKNOWN_HOST", code=RegistrationError.UNKNOWN_HOST),
        TimedOutError("no answer"),
        ClosedError("the driver is gone"),
    ],
)
def test_what_may_pass_is_tried_again(error: ContainerError) -> None:
    machine = reconnection()
    failed(machine, 0, error)
    assert machine.state is ConnectionState.WAITING


def test_attempts_and_time_have_limits() -> None:
    machine = reconnection(max_attempts=3)
    for now_ns in range(0, 30 * S, 10 * S):
        machine.poll(now_ns)
        failed(machine, now_ns)
    assert machine.state is ConnectionState.CLOSED
    assert isinstance(machine.error, ClosedError)
    assert str(machine.error) == "no session after 3 attempts: nobody is there"
    machine = reconnection(max_seconds=2.0)
    machine.on_connected()
    machine.on_lost(TimedOutError("gone"), 100 * S)
    assert machine.poll(101 * S)
    failed(machine, 101 * S)
    assert machine.poll(int(101.9 * S))
    failed(machine, int(101.9 * S))
    assert str(machine.error) == "no session within 2 s: nobody is there"


def test_a_close_is_final() -> None:
    machine = reconnection()
    machine.close(ClosedError("closed by this client"))
    machine.close(ClosedError("again"))
    machine.on_connected()
    machine.on_failed(TimedOutError("late"), 0)
    machine.on_lost(TimedOutError("late"), 0)
    assert (machine.state, str(machine.error)) == (ConnectionState.CLOSED, "closed by this client")
    assert machine.wait_ns(0) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"first_delay": 0},
        {"first_delay": 9.0},
        {"jitter": 1.5},
        {"jitter": -1},
        {"max_attempts": 0},
        {"probe_after": 0},
        {"probe_after": float("nan")},
        {"max_seconds": 0},
    ],
)
def test_bad_policies_are_refused_by_name(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(settings))} must"):
        ReconnectPolicy(**settings)  # type: ignore[arg-type]


# Outbox


def outbox(policy: OutboxPolicy = OutboxPolicy.REFUSE, *, max_messages: int = 3, max_bytes: int = 100) -> Outbox:
    return Outbox(max_messages=max_messages, max_bytes=max_bytes, policy=policy)


def take_all(box: Outbox) -> list[OutboxEntry]:
    taken = []
    while (entry := box.first()) is not None:
        assert box.remove(entry)
        taken.append(entry)
    return taken


def test_messages_leave_in_their_order_and_are_counted() -> None:
    box = outbox()
    entries = [box.put(10, item)[0] for item in "abc"]
    assert (len(box), box.bytes) == (3, 30)
    assert [entry.item for entry in take_all(box)] == ["a", "b", "c"]
    assert (len(box), box.bytes, box.first()) == (0, 0, None)
    assert not box.remove(entries[0])


@pytest.mark.parametrize("policy", [OutboxPolicy.REFUSE, OutboxPolicy.BLOCK])
def test_without_room_a_message_is_refused(policy: OutboxPolicy) -> None:
    box = outbox(policy)
    for _ in range(3):
        box.put(1, None)
    assert not box.has_room(1)
    with pytest.raises(OutboxFullError, match="3 messages of 3 bytes to send: at most 3 of 100 bytes") as full:
        box.put(1, None)
    assert (full.value.is_retryable, full.value.outcome) == (True, Outcome.NOT_DONE)
    box = outbox(policy)
    box.put(60, None)
    assert (box.has_room(40), box.has_room(41)) == (True, False)
    with pytest.raises(OutboxFullError):
        box.put(41, None)


def test_the_oldest_make_room_as_many_as_it_takes() -> None:
    box = outbox(OutboxPolicy.DROP_OLDEST)
    for item in "abc":
        box.put(30, item)
    _, gone = box.put(50, "d")
    assert [entry.item for entry in gone] == ["a", "b"]
    assert [entry.item for entry in take_all(box)] == ["c", "d"]
    assert box.dropped == 2
    with pytest.raises(MessageTooLongError, match="a message of 101 bytes: the outbox takes 100 bytes in all"):
        box.put(101, "e")


def test_what_was_not_sent_after_all_goes_back_to_its_place() -> None:
    box = outbox(max_messages=100, max_bytes=10_000)
    entries = [box.put(1, number)[0] for number in range(50)]
    chance = random.Random(7)
    taken = chance.sample(entries, 20)
    for entry in taken:
        box.remove(entry)
    box.put(1, 50)
    for entry in taken:
        box.put_back(entry)
        box.put_back(entry)
    assert (len(box), box.bytes) == (51, 51)
    assert [entry.item for entry in take_all(box)] == list(range(51))


def test_an_outbox_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="outbox_messages must be a whole number from 1 to .*, not 0"):
        outbox(max_messages=0)
    with pytest.raises(ConfigurationError, match="outbox_bytes must be a whole number from 1 to .*, not 0"):
        outbox(max_bytes=0)
