"""The reconnecting client for asyncio: it opens a new session when the old one ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Buffer, Callable, Coroutine, Hashable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

from container.client.aeron_cluster import ClientState
from container.client.async_client import (
    MAX_WAITING,
    MAX_WAITING_BYTES,
    AsyncAeronCluster,
    Inbox,
    check_async_listener,
    connect_session,
    request_timeout,
)
from container.client.client_context import ClientContext, ClientSettings, check_count, context_of, limit_s
from container.client.client_metrics import ClientMetrics
from container.client.client_poller import EgressMessage
from container.client.egress_listener import AdminRequestType, AdminResponseCode, EgressListener, EventCode
from container.client.own_driver import LastingDriver
from container.client.reconnecting_base import (
    CLOSED_BY_US,
    KEYWORDS,
    ConnectionListener,
    ReconnectingBase,
    attempt_context,
    check_connection_arguments,
    check_not_shared,
)
from container.client.reconnection import (
    ConnectionState,
    Outbox,
    OutboxEntry,
    OutboxPolicy,
    ReconnectPolicy,
    attempt_error,
)
from container.client.requests import (
    Correlate,
    Request,
    check_key,
    check_requests,
    is_idempotent,
    message_length,
)
from container.client.silence import Signs, Silence, Verdict, has_other_members, may_pass, replaced
from container.common.doors import EnteredByAsyncWith, make, not_entered
from container.common.threads import check_threads
from container.errors import (
    ClosedError,
    ContainerError,
    OutboxFullError,
    Outcome,
    RequestClosedError,
    SendTimedOutError,
    TimedOutError,
)

_SETTLE_PAUSE_S = 0.02
"""Seconds between two looks at a session that a probe may replace."""


class _Listener(EgressListener):
    """Reports leaders, and forwards every event to the user's listener."""

    def __init__(self, tell_leader: Callable[[int, int], None], inner: EgressListener | None) -> None:
        self._tell_leader = tell_leader
        self._inner = inner

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, ingress_endpoints: str
    ) -> None:
        self._tell_leader(leader_member_id, leadership_term_id)
        if self._inner is not None:
            self._inner.on_new_leader(cluster_session_id, leadership_term_id, leader_member_id, ingress_endpoints)

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode | int,
        detail: str,
    ) -> None:
        if self._inner is not None:
            self._inner.on_session_event(
                correlation_id, cluster_session_id, leadership_term_id, leader_member_id, code, detail
            )

    def on_admin_response(
        self,
        cluster_session_id: int,
        correlation_id: int,
        request_type: AdminRequestType | int,
        response_code: AdminResponseCode | int,
        message: str,
        payload: bytes,
    ) -> None:
        if self._inner is not None:
            self._inner.on_admin_response(
                cluster_session_id, correlation_id, request_type, response_code, message, payload
            )

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> None:
        if self._inner is not None:
            self._inner.on_extension_message(block_length, template_id, schema_id, version, body)


class AsyncReconnectingClient(ReconnectingBase, EnteredByAsyncWith):
    """A client of the cluster for one event loop that outlives its sessions; made by :meth:`connect`.

    While there is no session, messages wait in an outbox, in their order, and each within its time limit. A message
    that a session has accepted is not sent again, as it may have been processed; a request is, if it is idempotent.
    """

    _counted: AsyncAeronCluster | None

    def __init__(
        self,
        connect: Callable[[EgressListener, int], Coroutine[Any, Any, AsyncAeronCluster]],
        context: ClientContext,
        policy: ReconnectPolicy,
        outbox: Outbox,
        callbacks: ConnectionListener,
        *,
        resend: bool,
        left: Inbox,
        listener: EgressListener | None,
        driver: LastingDriver | None = None,
    ) -> None:
        """Use :meth:`connect`."""
        now_ns = time.monotonic_ns()
        super().__init__(context, policy, outbox, callbacks, resend=resend, driver=driver, now_ns=now_ns)
        self._connect = connect
        self._listener = _Listener(self._on_leader, listener)
        self._client: AsyncAeronCluster | None = None  # the connected one
        self._left = left  # messages of earlier sessions
        self._dropped = 0
        self._sender: OutboxEntry | None = None  # the entry whose turn it is
        # Senders that wait for room in the outbox, and how much each needs. A cancelled one may still be among them.
        self._blocked: OrderedDict[asyncio.Future[OutboxEntry], int] = OrderedDict()
        self._changed = asyncio.Event()  # set, and replaced, when the session or the state has changed
        self._supervisor: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[AsyncAeronCluster] | None = None  # beside the session

    @staticmethod
    def connect(
        context: ClientContext | None = None,
        *,
        correlate: Correlate | None = None,
        resend: bool = False,
        max_waiting: int = MAX_WAITING,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        policy: ReconnectPolicy | None = None,
        callbacks: ConnectionListener | None = None,
        outbox_policy: OutboxPolicy = OutboxPolicy.BLOCK,
        outbox_messages: int = 1_000,
        outbox_bytes: int = 16 * 1024 * 1024,
        resolve: Callable[[], str] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> AsyncReconnectingClient:
        """Return a reconnecting client: ``async with AsyncReconnectingClient.connect(...) as client``.

        Args:
            context: as for :meth:`AsyncAeronCluster.connect`, and so are ``correlate``, ``max_waiting``,
                ``max_waiting_bytes`` and ``settings``. Each attempt may take the message timeout. As many messages of
                earlier sessions are kept: the last. The client of the transport cannot be shared.
            resend: whether requests that do not say so themselves (``idempotent``) are sent again.
            policy: how long to wait between attempts, and how long to try.
            callbacks: is notified of sessions and leaders.
            outbox_policy: what becomes of a message for which the outbox has no room.
            outbox_messages: messages that may wait to be sent.
            outbox_bytes: bytes of them.
            resolve: called before each attempt, returns the ingress endpoints; None for those of the settings, whose
                names the driver resolves again. When it raises OSError the attempt has failed.

        An attempt that fails is followed by another, the first as well: also where the name of a host does not resolve,
        because in a container that name may come later than this client. The logger ``container.client`` gets a
        warning, with the endpoints and the reason, of the first failure and each 10 s. With
        ``ReconnectPolicy(max_attempts=1)`` the first failure is an error.

        Raises ConfigurationError immediately for a bad setting; ``async with`` raises what ended the first attempts.
        """
        check_threads("AsyncReconnectingClient")
        check_count("max_waiting", max_waiting)
        check_count("max_waiting_bytes", max_waiting_bytes)
        check_connection_arguments(context, policy, callbacks, resolve, resend=resend)
        check_requests(correlate, resend)
        base = context_of(context, settings, "max_waiting", "max_waiting_bytes", *KEYWORDS)
        check_not_shared(base)
        given = base.listener if context is not None or "listener" in settings else None
        inner = None if given is None else check_async_listener("AsyncReconnectingClient.connect", given)

        driver = LastingDriver()

        async def attempt(listener: EgressListener, patience_ns: int) -> AsyncAeronCluster:
            renewed = replace(await asyncio.to_thread(attempt_context, base, resolve, driver), listener=listener)
            return await connect_session(
                renewed, listener, correlate, max_waiting, max_waiting_bytes, resend, patience_ns=patience_ns
            )

        return make(
            AsyncReconnectingClient,
            attempt,
            base,
            ReconnectPolicy() if policy is None else policy,
            Outbox(max_messages=outbox_messages, max_bytes=outbox_bytes, policy=outbox_policy),
            ConnectionListener() if callbacks is None else callbacks,
            resend=resend,
            left=Inbox(max_waiting, max_waiting_bytes),
            listener=inner,
            driver=driver,
        )

    def __repr__(self) -> str:
        return f"<AsyncReconnectingClient {self.state.value} outbox={len(self._outbox)} {self._client!r}>"

    def _check_open(self) -> None:
        super()._check_open()
        self._check_entered()

    def _check_entered(self) -> None:
        if self._supervisor is None:
            raise ClosedError(not_entered("AsyncReconnectingClient"))

    @property
    def client(self) -> AsyncAeronCluster | None:
        """The client of the present session; None while there is none."""
        return self._client

    @property
    def dropped_messages(self) -> int:
        """As :attr:`AsyncAeronCluster.dropped_messages`, over all sessions, and messages of earlier sessions for which
        there was no room left."""
        now = self._counted.dropped_messages if self._counted is not None else 0
        return self._dropped + self._left.dropped + now

    def metrics(self) -> ClientMetrics:
        """As for :class:`ReconnectingBase`; messages of earlier sessions are unread as well."""
        totals = super().metrics()
        return replace(totals, unread=totals.unread + len(self._left))

    # Sending

    async def send(self, *buffers: Buffer, timeout: float | None = None) -> None:
        """Send a message as soon as there is a session and its turn has come.

        ``timeout`` is in seconds (None: the message timeout). Leave the buffers as they are until this returns.

        Raises:
            SendTimedOutError: after the timeout; the message was not sent.
            OutboxFullError: the outbox has no room, or gave it to a newer message.
            ClosedError: the client is or gets closed.
            MessageTooLongError: the message is longer than the cluster takes.
        """
        limit = self._limit(timeout)
        entry: OutboxEntry | None = None
        try:
            async with asyncio.timeout(limit):
                entry = await self._put(buffers)
                while True:
                    client = await self._turn(entry)
                    try:
                        await client.send(*buffers, timeout=limit)
                        return
                    except ClosedError:
                        self._give_back(entry, client)
        except TimedOutError:
            raise
        except TimeoutError:
            raise self._not_accepted(limit) from None
        finally:
            self._leave(entry)

    async def request(
        self, *buffers: Buffer, key: Hashable, timeout: float | None = None, idempotent: bool | None = None
    ) -> bytes:
        """Send a message and return the payload of the reply for which ``correlate`` returns ``key``.

        As :meth:`AsyncAeronCluster.request`; and an ``idempotent`` request whose session ends is sent again in the
        next, in its place. Raise as that does, and OutboxFullError as :meth:`send`.
        """
        limit = self._limit(timeout)
        check_key(key)
        asked = _Asked(buffers, key, is_idempotent(idempotent, self._resend), limit)
        try:
            async with asyncio.timeout(limit):
                return await self._ask(asked)
        except TimedOutError:
            raise
        except TimeoutError:
            if asked.payload is not None:  # it came in the same turn of the loop
                return asked.payload
            if asked.sends == 0:
                raise self._not_accepted(limit) from None
            raise request_timeout(key, limit, is_sent=True, hint=asked.hint) from None
        except (ClosedError, OutboxFullError) as error:
            if asked.sends > 0 and error.outcome is Outcome.NOT_DONE:  # of an attempt after the first
                raise RequestClosedError(f"request with key {key!r}: {error}; its outcome is unknown") from error
            raise
        finally:
            self._leave(asked.entry)
            if asked.payload is not None:
                self._answered += 1
                self._round_trips.record(time.monotonic_ns() - asked.sent_ns)
            else:
                self._unknown += asked.sends > 0

    async def _ask(self, asked: _Asked) -> bytes:
        asked.entry = await self._put(asked.buffers)
        while True:
            client = await self._turn(asked.entry)
            request = asked.request = client._open_request(asked.buffers, asked.key, asked.is_idempotent)
            try:
                try:
                    await client._send(asked.buffers, asked.limit, request)
                finally:
                    if request.is_sent:
                        self._count_send(asked)
                self._end_turn(asked.entry)
                payload: bytes = await request.reply
                return payload
            except ClosedError:
                if request.is_sent and not asked.is_idempotent:
                    raise
                self._give_back(asked.entry, client)
            finally:
                client._close_request(request)

    def _not_accepted(self, limit: float) -> SendTimedOutError:
        return SendTimedOutError(f"message was not accepted within {limit:g} s: {self._why_unsent(self._client)}")

    def _count_send(self, asked: _Asked) -> None:
        if asked.sends == 0:
            asked.sent_ns = time.monotonic_ns()
            self._sent += 1
        else:
            self._resent += 1
        asked.sends += 1

    def _limit(self, timeout: float | None) -> float:
        self._check_entered()
        return limit_s(timeout, self._context.message_timeout)

    # One message after the other: the sender that has the turn sends, and the entries of the outbox wait for theirs.

    async def _put(self, buffers: tuple[Buffer, ...]) -> OutboxEntry:
        length = message_length(buffers)
        self._check_open()
        may_wait = self._outbox.policy is OutboxPolicy.BLOCK and length <= self._outbox.max_bytes
        if may_wait and (self._blocked or not self._outbox.has_room(length)):
            return await self._wait_for_room(length)
        entry, gone = self._outbox.put(length, None)
        for dropped in gone:
            _fail(dropped, OutboxFullError("the message gave its room in the outbox to a newer one; it was not sent"))
        return entry

    async def _wait_for_room(self, length: int) -> OutboxEntry:
        """Wait for room in the order of the calls. The one that frees the room puts the entry in, so that no other can
        take it."""
        room: asyncio.Future[OutboxEntry] = asyncio.get_running_loop().create_future()
        self._blocked[room] = length
        try:
            entry = await room
            self._check_open()
        except BaseException:
            self._blocked.pop(room, None)
            if room.done() and not room.cancelled() and room.exception() is None:
                self._outbox.remove(room.result())
            self._pump()
            raise
        return entry

    async def _turn(self, entry: OutboxEntry) -> AsyncAeronCluster:
        self._check_open()
        turn: asyncio.Future[AsyncAeronCluster] = asyncio.get_running_loop().create_future()
        entry.item = turn
        self._pump()
        return await turn

    def _pump(self) -> None:
        """Give the turn to the oldest message, if there is a session, and room to those that wait for it."""
        entry = self._outbox.first()
        if entry is not None and self._client is not None and self._sender is None and _is_waiting(entry):
            self._outbox.remove(entry)
            self._sender = entry
            entry.item.set_result(self._client)
        while (room := next(iter(self._blocked), None)) is not None:
            if room.done():
                del self._blocked[room]
                continue
            if not self._outbox.has_room(self._blocked[room]):
                break
            room.set_result(self._outbox.put(self._blocked.pop(room), None)[0])

    def _end_turn(self, entry: OutboxEntry) -> None:
        if self._sender is entry:
            self._sender = None
            self._pump()

    def _give_back(self, entry: OutboxEntry, client: AsyncAeronCluster) -> None:
        """Put an entry back whose session ended before it was sent or answered: it waits for the next session."""
        self._forget(client)
        self._outbox.put_back(entry)
        self._end_turn(entry)

    def _forget(self, client: AsyncAeronCluster) -> None:
        if self._client is client:
            self._client = None  # the supervisor hears of it in its turn

    def _leave(self, entry: OutboxEntry | None) -> None:
        if entry is not None:
            self._outbox.remove(entry)
            self._end_turn(entry)
            self._pump()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._pump()

    async def _change(self) -> None:
        await self._changed.wait()

    # Receiving

    def __aiter__(self) -> AsyncIterator[EgressMessage]:
        """Iterate over the service's messages, except replies to requests, over all sessions, until the client is
        closed."""
        return self

    async def __anext__(self) -> EgressMessage:
        try:
            return await self.receive()
        except ClosedError:
            if str(self._machine.error) == CLOSED_BY_US:
                raise StopAsyncIteration from None
            raise

    async def receive(self) -> EgressMessage:
        """The next message of the service that is not a reply to a request; waits for a session.

        Raises:
            ClosedError: the client is closed, and all messages have been taken.
        """
        while True:
            if self._left:
                return self._left.take()
            self._check_open()
            client = self._client
            if client is None:
                await self._change()
                continue
            try:
                return await client.receive()
            except ClosedError:
                self._forget(client)

    # The connection

    async def __aenter__(self) -> Self:
        """Wait for the first session; raise why there is none when the policy gives up."""
        self._supervisor = asyncio.create_task(self._supervise(), name="cluster-client")
        try:
            while self._machine.sessions == 0 and not self.is_closed:
                await self._change()
        except BaseException:
            await self.aclose()
            raise
        if self._machine.sessions == 0 and self._machine.error is not None:
            await self.aclose()
            raise self._machine.error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the session and connect no more; what waits gets ClosedError. Nothing happens the second time."""
        if self._parent_id:
            return
        self._close(ClosedError(CLOSED_BY_US))
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])

    async def _supervise(self) -> None:
        try:
            while not self.is_closed:
                await self._have_a_session()
                while self.state is ConnectionState.WAITING and not self._machine.poll(time.monotonic_ns()):
                    await asyncio.sleep(self._machine.wait_ns(time.monotonic_ns()) / 1e9)
        except asyncio.CancelledError:  # for example with all tasks of the loop
            self._close_cancelled()
            raise
        except Exception as error:
            # An error of the user's credentials supplier, for example: a retry can hardly help against the unforeseen.
            self._report("the attempt to connect failed", error)
            self._close(ClosedError(f"the attempt to connect failed: {type(error).__name__}: {error}"))
        finally:
            try:
                await self._end_probe()
            finally:
                self._driver.close()  # no session is left

    async def _have_a_session(self) -> None:
        """Run an attempt, and the session that it leads to, until that ends."""
        attempts = self._machine.failures + 1
        try:
            client = await self._take_probe()
            if client is None:
                client = await self._connect(self._listener, 0)
        except (ContainerError, OSError) as error:
            failed = error if isinstance(error, ContainerError) else attempt_error(error)
            self._machine.on_failed(failed, time.monotonic_ns())
            self._failure_log.failed(self._machine, time.monotonic_ns())
            self._end_if_closed(failed)
            return
        self._client = self._counted = client
        self._machine.on_connected()
        if self._machine.sessions > 1:
            self._tell("on_reconnected", attempts)
        self._notify()
        try:
            await self._watch(client)
        except asyncio.CancelledError:
            self._close_cancelled()  # first: the session does not end by itself
            raise
        finally:
            await self._end_session(client)

    # A probe beside a session that is silent

    async def _watch(self, client: AsyncAeronCluster) -> None:
        """Begin probes until the session has ended, and let one replace it."""
        silence = Silence(
            self._machine.policy,
            has_others=has_other_members(client._cluster.context.ingress_endpoints),
            random=random.random,
            now_ns=time.monotonic_ns(),
        )
        while not client._ended.done():
            waited: set[asyncio.Future[Any]] = {client._ended}
            if self._probe is not None and not self._probe.done():
                waited.add(self._probe)
            pause = None if silence.due_ns is None else max(0, silence.due_ns - time.monotonic_ns()) / 1e9
            if self._probe is not None and self._probe.done():
                pause = _SETTLE_PAUSE_S
            await asyncio.wait(waited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if not client._ended.done():
                await self._look(client, silence, time.monotonic_ns())

    async def _look(self, client: AsyncAeronCluster, silence: Silence, now_ns: int) -> None:
        if silence.due_ns is not None and now_ns >= silence.due_ns:
            is_unsent = self._sender is not None or len(self._outbox) > 0
            if silence.look(Signs(*client._poller.signs()), now_ns, is_unsent=is_unsent) and self._probe is None:
                silence.on_begun(now_ns)
                self._probe = asyncio.create_task(self._connect(self._listener, silence.answer_limit_ns()))
        probe = self._probe
        if probe is None:
            return
        if not probe.done():
            if silence.is_broken and client.state is ClientState.CONNECTED:
                await self._end_probe()
            return
        failure = None if probe.cancelled() else probe.exception()
        if probe.cancelled() or failure is not None:
            self._probe = None
            # An attempt without a session reports what a user's function raised.
            silence.on_failed(is_retryable=failure is not None and may_pass(failure))
            return
        probed = probe.result()
        verdict = silence.judge(
            term=client.leadership_term_id,
            is_connected=client.state is ClientState.CONNECTED,
            probe_term=probed.leadership_term_id,
            now_ns=now_ns,
        )
        if verdict is Verdict.KEEP:
            await self._end_probe()
        elif verdict is Verdict.REPLACE:
            client._end_because(replaced(client.leadership_term_id, probed.leader_member_id, probed.leadership_term_id))

    async def _take_probe(self) -> AsyncAeronCluster | None:
        """Wait for the probe's session, which outlives the one before, and return it; None if there is no probe."""
        if self._probe is None:
            return None
        probe = self._probe
        await asyncio.wait([probe])  # cancelled, the end of the probe follows
        self._probe = None
        return probe.result()

    async def _end_probe(self) -> None:
        if (probe := self._probe) is None:
            return
        if not probe.cancelling():  # a second time would end its wait for a late answer
            probe.cancel()
        await asyncio.wait([probe])  # cancelled, the end of the client waits again
        self._probe = None
        if not probe.cancelled() and probe.exception() is None:
            await probe.result().aclose()

    async def _end_session(self, client: AsyncAeronCluster) -> None:
        self._client = None
        try:
            await client.aclose()
        finally:
            self._count_ended(client)
            self._left.put_all(client._inbox)
            self._dropped += client.dropped_messages
            if not self.is_closed:
                error = ClosedError(f"the session ended: {client.close_reason}")
                now_ns = time.monotonic_ns()
                self._machine.on_lost(error, now_ns)
                if self._probe is not None:
                    self._machine.hasten(now_ns)
                self._tell("on_disconnected", error)
                self._end_if_closed(error)
            self._notify()

    def _end_if_closed(self, error: ContainerError) -> None:
        if self.is_closed:
            self._end(error)

    def _close(self, error: ContainerError) -> None:
        if not self.is_closed:
            self._machine.close(error)
            self._end(error)

    def _close_cancelled(self) -> None:
        self._close(ClosedError("the client's task was cancelled"))

    def _end(self, error: ContainerError) -> None:
        self._tell("on_closed", self._machine.error or error)
        while (entry := self._outbox.first()) is not None:
            self._outbox.remove(entry)
            _fail(entry, ClosedError(f"the client is closed: {self._machine.error}"))
        for room in list(self._blocked):
            if not room.done():
                room.set_exception(ClosedError(f"the client is closed: {self._machine.error}"))
        self._blocked.clear()
        self._notify()

    def _on_leader(self, leader_member_id: int, leadership_term_id: int) -> None:
        self._tell("on_leader_changed", leader_member_id, leadership_term_id)

    def _tell(self, callback: str, *arguments: Any) -> None:
        try:
            getattr(self._callbacks, callback)(*arguments)
        except Exception as error:
            self._report(f"{callback}() of the connection listener failed", error)

    def _report(self, text: str, error: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})


class _Asked:
    """A request of a user, over all sessions in which it is sent."""

    def __init__(self, buffers: tuple[Buffer, ...], key: Hashable, is_idempotent: bool, limit: float) -> None:
        self.buffers = buffers
        self.key = key
        self.is_idempotent = is_idempotent
        self.limit = limit
        self.entry: OutboxEntry | None = None
        self.request: Request | None = None  # of the session that it was sent in last
        self.sends = 0
        self.sent_ns = 0  # the first time

    @property
    def payload(self) -> bytes | None:
        """The reply's, which its session's request has."""
        return None if self.request is None else self.request.payload

    @property
    def hint(self) -> str:
        """Why its last session may have had no reply."""
        return "" if self.request is None else self.request.hint


def _is_waiting(entry: OutboxEntry) -> bool:
    return entry.item is not None and not entry.item.done()


def _fail(entry: OutboxEntry, error: ContainerError) -> None:
    """Give the error to those who wait for the entry's turn."""
    if _is_waiting(entry):
        entry.item.set_exception(error)
