"""The blocking reconnecting client, against scripted members over a media driver in this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from container.client import (
    ConnectionListener,
    ConnectionState,
    ReconnectingClient,
    ReconnectPolicy,
)
from container.errors import (
    ClosedError,
    ClusterError,
    ContainerError,
    RequestClosedError,
)
from tests.client_kinds import FULL, QUICK, Told, probe_soon
from tests.client_world import Collecting
from tests.forking import Child, not_refused
from tests.limits import LIMIT_S
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
    return ReconnectingClient.connect(**members.settings(**given | more))


def until(client: ReconnectingClient, predicate: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not predicate():
        assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s for {what}"
        client.idle(client.poll())


def lose_session(client: ReconnectingClient, members: ThreadedMembers, member: PatientMember) -> None:
    """The session ends, and the cluster has no room for another."""
    member.end_session(refuse=FULL)
    until(client, lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")


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
    member.be_silent()
    with connecting(members, callbacks=told) as client:
        waiting = client.begin_request(b"7:", key=7, idempotent=True)
        member.end_session()
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
    member.be_silent()
    policy = ReconnectPolicy(max_seconds=0.001, first_delay=0.02)
    with connecting(members, callbacks=told, policy=policy) as client:
        waiting = client.begin_request(b"7:", key=7, idempotent=True)
        until(client, member.sent, "the request to be in flight")
        member.end_session()
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
        member.accept_again()
        before = len(member.sent())
        with pytest.raises(RuntimeError, match="of the callback"):
            client.request(b"7:", key=7) if call == "request" else client.send(b"7:")
        assert client.waiting == 0
        assert client.request(b"8:", key=8) == b"8:"
        assert member.sent()[before:] == [b"8:"]
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
        member.accept_again()
        assert waiting.wait() == b"7:"
        assert member.sent() == [b"7:"]


def test_a_session_that_is_idle_is_never_probed_for(members: ThreadedMembers, member: PatientMember) -> None:
    with connecting(members, policy=probe_soon(probe_after=0.01), keep_alive_interval=0.02) as client:
        until(client, lambda: len(members.do(lambda: member.received("SessionKeepAlive"))) > 20, "keep alives")
        assert len(members.do(lambda: member.received("SessionConnectRequest"))) == 1
