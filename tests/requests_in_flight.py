"""Many requests in flight when a session ends: what the end costs, in processor time; for a test and a benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable

from container.client import ConnectionListener, ConnectionState, OutboxPolicy, ReconnectPolicy
from container.client.aeron_cluster import AsyncConnect
from container.client.reconnecting_client import ReconnectingClient
from container.client.reconnection import Outbox
from container.client.requests import Request, RequestTable
from container.common.doors import make
from tests import ingress_member
from tests.client_world import MEMBER_0, World
from tests.ingress_member import IngressMember
from tests.threaded_members import key_of


def processor_time_ns(action: Callable[[], object]) -> int:
    """Nanoseconds of this thread's processor time that a call takes."""
    begin_ns = time.thread_time_ns()
    action()
    return time.thread_time_ns() - begin_ns


def client_of(world: World, most: int) -> ReconnectingClient:
    """A reconnecting client, over memory, with an outbox for so many messages."""
    return make(
        ReconnectingClient,
        lambda: AsyncConnect(world.context()),
        world.context(),
        key_of,
        ReconnectPolicy(),
        Outbox(max_messages=most, max_bytes=2**30, policy=OutboxPolicy.REFUSE),
        ConnectionListener(),
        resend=True,
        now_ns=lambda: world.clock.now_ns,
    )


def session_ends(count: int) -> int:
    """A reconnecting client has so many idempotent requests in flight, and its session ends; in nanoseconds."""
    world = World()
    member = IngressMember(world.driver, 0, MEMBER_0)
    client = client_of(world, count)
    with client:
        for key in range(count):
            client.begin_request(b"%d:" % key, key=key)
        member.session_event(5, ingress_member.CLOSED, "TIMEOUT")

        def end() -> None:
            while client.state is ConnectionState.CONNECTED:
                client.poll()

        taken_ns = processor_time_ns(end)
        assert client.waiting == client.request_counts.in_flight == count
        return taken_ns


def times_out(count: int) -> int:
    """So many requests of one client have deadlines of their own, and polls come between them; in nanoseconds."""
    table = RequestTable(key_of)
    for key in range(count):
        table.add(1, Request(key, deadline_ns=key), 1)

    def expire() -> None:
        for now_ns in range(count):
            table.expire(now_ns)

    taken_ns = processor_time_ns(expire)
    assert table.counts.unknown == count
    return taken_ns


def sessions_end(count: int) -> int:
    """The sessions of a pool end one after the other, with two requests each and so many together; in nanoseconds."""
    table = RequestTable(key_of)
    for key in range(count):
        table.add(key // 2, Request(key), 1)

    def end() -> None:
        for session_id in range(count // 2):
            table.on_session_closed(session_id, "TIMEOUT")

    taken_ns = processor_time_ns(end)
    assert table.counts.unknown == count
    return taken_ns


def sent_again(count: int) -> int:
    """A new leader takes one of so many requests that are sent again at a time; in nanoseconds."""
    table = RequestTable(key_of)
    for key in range(count):
        table.add(1, Request(key, b"%d:" % key), 1)
    sent: list[bytes] = []

    def resend() -> None:
        while len(sent) < count:
            table.on_new_leader(2, 0)
            table.resend_next(lambda session_id, message: sent.append(message) or 1)  # type: ignore[func-returns-value]

    taken_ns = processor_time_ns(resend)
    assert sent == [b"%d:" % key for key in range(count)]
    return taken_ns


KINDS: dict[str, Callable[[int], int]] = {
    "the session of a reconnecting client ends": session_ends,
    "requests time out, each at its time": times_out,
    "the sessions of a pool end, two requests each": sessions_end,
    "a new leader takes one request at a time": sent_again,
}
"""The values that a benchmark measures, in its words."""
