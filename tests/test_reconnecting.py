"""The blocking client that connects again, against scripted members over a media driver in this process."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from container.client import (
    ConnectionListener,
    ConnectionState,
    OutboxPolicy,
    ReconnectingClient,
    ReconnectPolicy,
    RequestCounts,
    reconnecting,
    reconnecting_client,
)
from container.client.async_connect import AsyncConnect
from container.errors import (
    AuthenticationError,
    ClosedError,
    ClusterError,
    ConfigurationError,
    ContainerError,
    MessageTooLongError,
    OutboxFullError,
    Outcome,
    RequestClosedError,
    RequestTimedOutError,
    SendTimedOutError,
)
from tests import ingress_member
from tests.client_world import Collecting
from tests.forking import Child, not_refused
from tests.limits import LIMIT_S
from tests.test_async_reconnecting import (
    FULL,
    QUICK,
    WITHOUT_MEMBERS,
    Told,
    accept_again,
    be_silent,
    count_drivers,
    end_session,
)
from tests.threaded_members import PatientMember, ThreadedMembers, key_of


@pytest.fixture
def member(members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo)


def connecting(members: ThreadedMembers, **more: Any) -> ReconnectingClient:
    given: dict[str, Any] = {
        "correlate": key_of,
        "policy": QUICK,
        "listener": Collecting(),
    }
    return reconnecting(**members.settings(**given | more))


def until(client: ReconnectingClient, predicate: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not predicate():
        assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s for {what}"
        client.idle(client.poll())


def has_sessions(client: ReconnectingClient, count: int) -> bool:
    return client.sessions == count


def has_messages(listener: Collecting, count: int) -> bool:
    return len(listener.messages) == count


def lose_session(client: ReconnectingClient, members: ThreadedMembers, member: PatientMember) -> None:
    """The session ends, and the cluster has no room for another."""
    end_session(members, member, refuse=FULL)
    until(client, lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")


def test_it_sends_and_receives_over_sessions_that_end(members: ThreadedMembers, member: PatientMember) -> None:
    told, listener = Told(), Collecting()
    with connecting(members, callbacks=told, listener=listener) as client:
        assert (client.state, client.sessions) == (ConnectionState.CONNECTED, 1)
        for session in range(1, 4):
            client.send(b"of session %d" % session)
            until(client, partial(has_messages, listener, session), "the echo")
            end_session(members, member)
            until(client, partial(has_sessions, client, session + 1), "the next session")
        assert client.request(b"7:", key=7) == b"7:"
    assert client.is_closed
    lost = ("disconnected", "the session ended: closed by the cluster: TIMEOUT")
    assert told.calls == [*[lost, ("reconnected", 1)] * 3, ("closed", "closed by this client")]
    assert listener.messages == [b"of session 1", b"of session 2", b"of session 3"]


def test_requests_in_flight_are_sent_again_in_the_next_session_or_end(
    members: ThreadedMembers, member: PatientMember
) -> None:
    be_silent(members, member)
    with connecting(members, resend=True) as client:
        again = [client.begin_request(b"%d:" % key, key=key) for key in range(100)]
        once = client.begin_request(b"100:", key=100, idempotent=False)
        until(client, lambda: len(members.do(member.payloads)) == 101, "all to be in flight")
        members.do(member.echo)
        end_session(members, member)
        with pytest.raises(RequestClosedError, match="closed by the cluster: TIMEOUT") as ended:
            once.wait()
        assert ended.value.outcome == Outcome.UNKNOWN
        assert [request.wait() for request in again] == [b"%d:" % key for key in range(100)]
        assert members.do(member.payloads)[101:] == [b"%d:" % key for key in range(100)]
        assert client.request_counts == RequestCounts(
            sent=101, answered=100, resent=100, unknown=1, unmatched=0, in_flight=0
        )


def test_requests_wait_for_a_session_in_their_order(members: ThreadedMembers, member: PatientMember) -> None:
    with connecting(members) as client:
        lose_session(client, members, member)
        requests = [client.begin_request(b"%d:" % key, key=key) for key in range(50)]
        assert client.waiting == 50
        accept_again(members, member)
        assert [request.wait() for request in requests] == [b"%d:" % key for key in range(50)]
        assert members.do(member.payloads) == [b"%d:" % key for key in range(50)]


def test_a_password_that_is_no_longer_taken_ends_it_and_all_that_waits(
    members: ThreadedMembers, member: PatientMember
) -> None:
    told = Told()
    be_silent(members, member)
    with connecting(members, callbacks=told) as client:
        request = client.begin_request(b"7:", key=7, idempotent=True)
        until(client, lambda: members.do(member.payloads), "the request to be in flight")
        end_session(members, member, refuse=(ingress_member.AUTHENTICATION_REJECTED, "no"))
        with pytest.raises(RequestClosedError, match="AUTHENTICATION_REJECTED: no"):
            request.wait()
        for call in (client.poll, lambda: client.send(b"x"), lambda: client.request(b"8:", key=8)):
            with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no") as closed:
                call()
            assert closed.value.outcome == Outcome.NOT_DONE
        assert isinstance(client.error, AuthenticationError)
    assert [call[0] for call in told.calls] == ["disconnected", "closed"]


def test_the_first_connect_raises_why_there_is_no_session(members: ThreadedMembers) -> None:
    policy = ReconnectPolicy(first_delay=0.01, max_delay=0.02, max_attempts=3)
    with (
        pytest.raises(ClosedError, match="no session after 3 attempts: cluster connect: waited 0.1 s for"),
        connecting(members, message_timeout=0.1, policy=policy),
    ):
        pass
    member = members.member(0, "aeron:ipc", PatientMember.echo)
    members.do(lambda: member.refuse(ingress_member.AUTHENTICATION_REJECTED, "no"))
    with pytest.raises(AuthenticationError), connecting(members):
        pass


def test_time_is_up_whether_there_is_a_session_or_not(members: ThreadedMembers, member: PatientMember) -> None:
    be_silent(members, member)
    with connecting(members) as client:
        with pytest.raises(RequestTimedOutError, match="no reply with key 7 within 0.05 s"):
            client.request(b"7:", key=7, timeout=0.05)
        patient = client.begin_request(b"8:", key=8, timeout=1.0, idempotent=True)
        lose_session(client, members, member)
        with pytest.raises(SendTimedOutError, match="not accepted within 0.05 s"):
            client.send(b"x", timeout=0.05)
        with pytest.raises(SendTimedOutError):
            client.request(b"9:", key=9, timeout=0.05)
        with pytest.raises(RequestTimedOutError, match="no reply with key 8 within 1 s"):
            patient.wait()
        assert client.waiting == 0
        assert client.request_counts == RequestCounts(2, 0, 0, 2, 0, 0)


@pytest.mark.parametrize("policy", list(OutboxPolicy))
def test_a_full_outbox_does_what_its_policy_says(
    members: ThreadedMembers, member: PatientMember, policy: OutboxPolicy
) -> None:
    with connecting(members, outbox_policy=policy, outbox_messages=2) as client:
        lose_session(client, members, member)
        first, second = (client.begin_request(b"%d:" % key, key=key) for key in range(2))
        if policy is OutboxPolicy.DROP_OLDEST:
            client.begin_request(b"2:", key=2)
            with pytest.raises(OutboxFullError, match="gave its room"):
                first.wait()
        else:
            expected = SendTimedOutError if policy is OutboxPolicy.BLOCK else OutboxFullError
            with pytest.raises(expected, match="2 messages of 4 bytes wait"):
                client.begin_request(b"2:", key=2, timeout=0.05)
        accept_again(members, member)
        assert second.wait() == b"1:"


def test_callers_errors_are_theirs(members: ThreadedMembers, member: PatientMember) -> None:
    be_silent(members, member)
    with connecting(members) as client:
        assert client.cluster is not None
        with pytest.raises(MessageTooLongError, match="max_message_length"):
            client.send(bytes(client.cluster.max_message_length + 1))
        first = client.begin_request(b"7:", key=7)
        with pytest.raises(ClusterError, match="a request with key 7 is already waiting"):
            client.request(b"7:", key=7)
        members.do(lambda: member.message(b"7:done"))
        assert first.wait() == b"7:done"
    with (
        connecting(members, correlate=None) as plain,
        pytest.raises(ConfigurationError, match=r"reconnecting\(correlate=...\)"),
    ):
        plain.request(b"7:", key=7)


def test_a_close_ends_all_that_waits(members: ThreadedMembers, member: PatientMember) -> None:
    be_silent(members, member)
    with connecting(members) as client:
        in_flight = client.begin_request(b"7:", key=7, idempotent=True)
        until(client, lambda: members.do(member.payloads), "the request to be in flight")
        client.close()
        client.close()
        with pytest.raises(RequestClosedError, match="closed by this client"):
            in_flight.wait()
    with connecting(members) as client:
        lose_session(client, members, member)
        waiting = client.begin_request(b"7:", key=7)
        client.close()
        with pytest.raises(ClosedError, match="closed by this client") as closed:
            waiting.wait()
        assert closed.value.outcome == Outcome.NOT_DONE
        assert repr(client) == "<ReconnectingClient closed outbox=0 None>"


def test_a_new_leader_is_told(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    with connecting(members, callbacks=told) as client:

        def elect() -> None:
            member.leadership_term_id = 9
            member.new_leader("")

        members.do(elect)
        until(client, lambda: told.calls, "the new leader")
        assert client.request(b"7:", key=7) == b"7:"
    assert told.calls[0] == ("leader", 0, 9)


def test_a_close_from_a_callback_ends_it_once(members: ThreadedMembers, member: PatientMember) -> None:
    told, listener = Told(), Collecting()
    with connecting(members, callbacks=told, listener=listener, correlate=None) as client:
        listener.on_any = client.close
        client.send(b"last")
        deadline = time.monotonic() + LIMIT_S
        while not client.is_closed:
            assert time.monotonic() < deadline, "the message did not come"
            client.idle(client.poll())
    assert told.calls == [("closed", "closed by this client")]
    assert client.metrics().received == 1

    class Closing(Told):
        def on_disconnected(self, error: ContainerError) -> None:
            super().on_disconnected(error)
            client.close()

    told = Closing()
    be_silent(members, member)
    with connecting(members, callbacks=told) as client:
        waiting = client.begin_request(b"7:", key=7, idempotent=True)
        end_session(members, member)
        until_closed(client)
        with pytest.raises(ClosedError):
            waiting.wait()
    assert [name for name, *_ in told.calls] == ["disconnected", "closed"]


def until_closed(client: ReconnectingClient) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not client.is_closed:
        assert time.monotonic() < deadline, "it did not close"
        client.idle(client.poll())


def test_what_a_callback_raises_leaves_nobody_waiting(members: ThreadedMembers, member: PatientMember) -> None:
    class Failing(Told):
        def on_disconnected(self, error: ContainerError) -> None:
            super().on_disconnected(error)
            raise ZeroDivisionError

    told = Failing()
    be_silent(members, member)
    policy = ReconnectPolicy(max_seconds=0.001, first_delay=0.02)
    with connecting(members, callbacks=told, policy=policy) as client:
        waiting = client.begin_request(b"7:", key=7, idempotent=True)
        until(client, lambda: members.do(member.payloads), "the request to be in flight")
        end_session(members, member)
        with pytest.raises(ZeroDivisionError):
            until_closed(client)
        assert client.is_closed
        with pytest.raises(RequestClosedError, match="its outcome is unknown"):
            waiting.wait()
    assert [name for name, *_ in told.calls] == ["disconnected", "closed"]


@pytest.mark.parametrize("call", ["send", "request"])
def test_what_a_callback_interrupts_is_not_sent_later(
    call: str, members: ThreadedMembers, member: PatientMember
) -> None:
    class Raising(ConnectionListener):
        def on_reconnected(self, attempts: int) -> None:
            raise RuntimeError("of the callback")

    with connecting(members, callbacks=Raising()) as client:
        lose_session(client, members, member)
        accept_again(members, member)
        before = len(members.do(member.payloads))
        with pytest.raises(RuntimeError, match="of the callback"):
            client.request(b"7:", key=7) if call == "request" else client.send(b"7:")
        assert client.waiting == 0
        assert client.request(b"8:", key=8) == b"8:"
        assert members.do(member.payloads)[before:] == [b"8:"]
        assert client.request(b"7:", key=7) == b"7:"
        assert client.request_counts.in_flight == 0


def test_another_thread_cannot_close_it_half(members: ThreadedMembers, member: PatientMember) -> None:
    with connecting(members) as client:
        assert client.request(b"7:", key=7) == b"7:"
        refused: list[str] = []

        def close() -> None:
            try:
                client.close()
            except ClusterError as error:
                refused.append(str(error))

        other = threading.Thread(target=close)
        other.start()
        other.join(LIMIT_S)
        assert ["connect a client for each thread" in text for text in refused] == [True]
        assert not client.is_closed
        assert client.request(b"8:", key=8) == b"8:"
    assert client.cluster is None
    assert client.is_closed


def test_a_forked_child_neither_connects_nor_sends_what_waits(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    with Child() as child, connecting(members, callbacks=told) as client:
        owner_id = os.getpid()
        lose_session(client, members, member)
        waiting = client.begin_request(b"7:", key=7)
        if child.fork():
            uses = {
                "poll": client.poll,
                "send": lambda: client.send(b"x", timeout=0.1),
                "begin_request": lambda: client.begin_request(b"8:", key=8),
                "wait": waiting.wait,
            }
            told.calls.clear()
            wrong = not_refused(uses, owner_id)
            client.close()
            child.end(*wrong, *map(str, told.calls))
        assert child.outcome() == (0, [])
        accept_again(members, member)
        assert waiting.wait() == b"7:"
        assert members.do(member.payloads) == [b"7:"]


# attempts


def fail_first_attempt(monkeypatch: pytest.MonkeyPatch, error: OSError) -> list[int]:
    """The first attempt to connect raises an error; returns a list that grows with each attempt."""
    attempts: list[int] = []
    begin = AsyncConnect

    def attempt(context: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise error
        return begin(context)

    monkeypatch.setattr(reconnecting_client, "AsyncConnect", attempt)
    return attempts


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.ENOMEM, errno.EAGAIN])
@pytest.mark.usefixtures("member")
def test_an_os_error_that_may_pass_is_tried_again(
    members: ThreadedMembers, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    attempts = fail_first_attempt(monkeypatch, OSError(number, os.strerror(number)))
    with connecting(members) as client:
        assert (client.sessions, len(attempts)) == (1, 2)


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), NotADirectoryError(errno.ENOTDIR, "file")])
@pytest.mark.usefixtures("member")
def test_an_os_error_that_needs_a_hand_ends_the_client_at_once(
    members: ThreadedMembers, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    attempts = fail_first_attempt(monkeypatch, error)
    with pytest.raises(ClusterError, match=type(error).__name__) as ended, connecting(members):
        pass
    assert ended.value.__cause__ is error
    assert not ended.value.is_retryable
    assert len(attempts) == 1


def test_the_embedded_driver_is_one_for_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = count_drivers(monkeypatch)
    with pytest.raises(ClosedError, match="no session after 3 attempts"), reconnecting(**WITHOUT_MEMBERS):
        pass
    assert [driver.is_closed for driver in drivers] == [True]
