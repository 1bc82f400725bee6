"""All kinds of clients behind one interface, for tests of what they have in common, and what members do to them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvloop

from container.client import (
    AeronCluster,
    AsyncAeronCluster,
    AsyncReconnectingClient,
    AsyncSessionPool,
    ConnectionListener,
    ReconnectingClient,
    ReconnectPolicy,
    RequestCounts,
    SessionPool,
    async_reconnecting,
    reconnecting_client,
)
from container.errors import ContainerError
from tests import ingress_member, pauses, test_session_pool
from tests.client_world import Collecting
from tests.ingress_member import Request
from tests.limits import LIMIT_S
from tests.threaded_members import PatientMember, ThreadedMembers, key_of

QUICK = ReconnectPolicy(first_delay=0.02, max_delay=0.1)


def probe_soon(**policy: Any) -> ReconnectPolicy:
    """A policy whose clients probe after a tenth of a second."""
    return ReconnectPolicy(**{"first_delay": 0.02, "max_delay": 0.1, "probe_after": 0.1} | policy)


FULL = (ingress_member.ERROR, "concurrent session limit")


class Gateway(test_session_pool.Gateway, PatientMember):
    """Gives each session an id of its own, from 100, and publishes to all on one stream; answers to its sender."""

    def refuse(self, code: int, detail: str) -> None:
        def hook(request: Request) -> None:
            if self.egress is None:
                self.connect_egress(request)
            self.session_event(request["correlation_id"], code, detail, session_id=-1)

        self.hooks["SessionConnectRequest"] = hook

    def session_ids(self) -> range:
        return range(100, self.cluster_session_id + 1)


class AnyClient:
    """A client, or a session of a pool: ``session`` sends, ``owner`` has what there is once for all sessions.

    One with a ``listener`` is blocking: its caller polls it. Others are asyncio's.
    """

    def __init__(self, kind: Kind, owner: Any, session: Any, listener: Any) -> None:
        self.kind = kind
        self.owner = owner
        self.session = session
        self.listener = listener

    @property
    def connection(self) -> Any:
        """The present connection."""
        return getattr(self.session, self.kind.connection) if self.kind.connection else self.session

    @property
    def counts(self) -> RequestCounts:
        counts: RequestCounts = self.owner.request_counts
        return counts

    @property
    def is_connected(self) -> bool:
        return bool(self.session.state.name == "CONNECTED")

    async def send(self, *buffers: bytes, **more: Any) -> Any:
        return await _result(self.session.send(*buffers, **more))

    async def request(self, *buffers: bytes, **more: Any) -> Any:
        return await _result(self.session.request(*buffers, **more))

    def ask(self, *buffers: bytes, **more: Any) -> asyncio.Task[Any]:
        """A request that the test does not wait for."""
        return asyncio.create_task((self._poll_for if self.listener else self.request)(*buffers, **more))

    async def ask_all(self, keys: range, **more: Any) -> list[asyncio.Task[Any]]:
        """As :meth:`ask`, one for each key; all have been sent, or wait to be."""
        tasks = [self.ask(b"%d:" % key, key=key, **more) for key in keys]
        await pauses.pause()
        return tasks

    async def _poll_for(self, *buffers: bytes, **more: Any) -> Any:
        request = self.session.begin_request(*buffers, **more)
        await self.until(lambda: request.is_done, "the end of a request")
        return request.wait()

    async def receive(self) -> Any:
        if self.listener is None:
            return (await self.session.receive()).payload
        await self.until(lambda: self.listener.messages, "a message")
        return self.listener.messages.pop(0)

    async def until(self, predicate: Callable[[], object], what: str) -> None:
        """Wait for it; a client that its caller polls is polled meanwhile."""
        deadline = time.monotonic() + LIMIT_S
        while not predicate():
            assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s for {what}"
            if self.listener is not None and not self.owner.is_closed:
                self.owner.poll_egress() if isinstance(self.owner, AeronCluster) else self.owner.poll()
            await pauses.pause(0.001)

    async def in_flight(self, member: PatientMember, count: int) -> None:
        """So many requests have reached the member."""
        await self.until(lambda: len(member.sent()) == count, "all to be in flight")

    async def lose_session(self, member: PatientMember) -> None:
        """The session ends, and the cluster has no room for another."""
        member.end_session(refuse=FULL)
        await self.until(lambda: not self.is_connected, "the end of the session")

    async def close(self) -> None:
        await _result(self.owner.close() if self.listener else self.owner.aclose())


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@dataclass(frozen=True)
class Kind:
    """A kind of client."""

    name: str
    connect: Callable[..., Any]
    member: type[PatientMember] = PatientMember
    is_awaited: bool = False
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    connection: str = ""
    """The attribute that has what is connected now, of a reconnecting client."""
    attempt: tuple[Any, str] | None = None
    """The function that begins an attempt to connect again: the module that uses it, and its name there."""

    @asynccontextmanager
    async def connecting(self, members: ThreadedMembers | None, **more: Any) -> AsyncIterator[AnyClient]:
        settings = more if members is None else members.settings(**{"correlate": key_of} | more)
        if self.attempt is not None:
            settings.setdefault("policy", QUICK)
        if not self.is_awaited:
            settings.setdefault("listener", Collecting())
        async with AsyncExitStack() as stack:
            made = self.connect(**settings)
            owner = await stack.enter_async_context(made) if self.is_awaited else stack.enter_context(made)
            session = (await _result(owner.open_all(1)))[0] if self.member is Gateway else owner
            yield AnyClient(self, owner, session, None if self.is_awaited else settings["listener"])

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        pauses.run(test, self.new_event_loop)

    def __str__(self) -> str:
        return self.name


RECONNECTING = [
    Kind(
        "reconnecting", ReconnectingClient.connect, connection="cluster", attempt=(reconnecting_client, "AsyncConnect")
    ),
    Kind(
        "async-reconnecting",
        AsyncReconnectingClient.connect,
        is_awaited=True,
        connection="client",
        attempt=(async_reconnecting, "connect_session"),
    ),
]
AWAITED_ONCE = [
    Kind("asyncio", AsyncAeronCluster.connect, is_awaited=True),
    Kind("uvloop", AsyncAeronCluster.connect, is_awaited=True, new_event_loop=uvloop.new_event_loop),
    Kind("asyncio-pool", AsyncSessionPool.connect, Gateway, is_awaited=True),
]
CONNECTING_ONCE = [Kind("blocking", AeronCluster.connect), Kind("pool", SessionPool.connect, Gateway), *AWAITED_ONCE]
AWAITED = [*AWAITED_ONCE, RECONNECTING[1]]
KINDS = [*CONNECTING_ONCE, *RECONNECTING]


class Told(ConnectionListener):
    """Keeps the events that it receives."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_disconnected(self, error: ContainerError) -> None:
        self.calls.append(("disconnected", str(error)))

    def on_reconnected(self, attempts: int) -> None:
        self.calls.append(("reconnected", attempts))

    def on_leader_changed(self, leader_member_id: int, leadership_term_id: int) -> None:
        self.calls.append(("leader", leader_member_id, leadership_term_id))

    def on_closed(self, error: ContainerError) -> None:
        self.calls.append(("closed", str(error)))


class TwoMembers:
    """Member 0, which answers nothing, and member 1, which may take over and echoes."""

    def __init__(self, members: ThreadedMembers, kind: type[PatientMember] = PatientMember) -> None:
        self.members = members
        self.kind = kind
        self.endpoints = [members.take_endpoint(), members.take_endpoint()]
        self.old = members.member(0, f"aeron:udp?endpoint={self.endpoints[0]}", kind=kind)
        self.old.be_silent()
        self.channels: list[str] = []
        members.do(lambda: self.old.hooks.update(SessionConnectRequest=self._connect))
        self.settings: dict[str, Any] = {
            "ingress_channel": "aeron:udp",
            "egress_channel": "aeron:udp?endpoint=localhost:0",
            "ingress_endpoints": ",".join(f"{number}={endpoint}" for number, endpoint in enumerate(self.endpoints)),
        }

    def _connect(self, request: Request) -> None:
        self.channels.append(request["response_channel"].decode())
        self.old.on_SessionConnectRequest(request)

    async def elect(self) -> PatientMember:
        def take_over(leader: PatientMember) -> None:
            leader.leadership_term_id = 4
            leader.cluster_session_id = self.old.cluster_session_id
            leader.echo()
            leader.open_egress(self.channels[0])  # a probe may have asked for another
            self.old.stop()
            for session_id in leader.session_ids():
                leader.new_leader(self.settings["ingress_endpoints"], session_id=session_id)

        endpoint = f"aeron:udp?endpoint={self.endpoints[1]}"
        return await asyncio.to_thread(self.members.member, 1, endpoint, take_over, self.kind)


def await_threads() -> None:
    """The threads of clients that are closed or forgotten end."""
    gc.collect()
    deadline = time.monotonic() + LIMIT_S
    prefixes = ("cluster-client-", "cluster-pool")
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith(prefixes)]:
        assert time.monotonic() < deadline, left
        os.sched_yield()
