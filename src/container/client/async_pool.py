"""Thousands of sessions with the cluster for one event loop: :class:`AsyncSessionPool`.

It is a :class:`SessionPool` that a thread of its own polls, so that sessions stay while the event loop is busy. A lock
keeps the thread's polls and the loop's sends apart; it is never held while anybody waits. The loop is woken once for
all that has come since it last looked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Buffer, Callable, Hashable
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, Unpack

from container.api import CLOSED, MAX_POSITION_EXCEEDED, Header, MessageBuffer
from container.client.aeron_cluster import AsyncConnect
from container.client.async_client import request_timeout
from container.client.client_context import (
    ClientContext,
    ClientSettings,
    CredentialsSupplier,
    check_context,
    check_count,
    context_of,
    limit_s,
)
from container.client.client_metrics import ClientMetrics
from container.client.client_poller import EgressMessage
from container.client.egress_listener import EgressListener
from container.client.reconnection import ReconnectPolicy, attempt_error
from container.client.replacement import PoolListener, check_pool_arguments
from container.client.requests import Correlate, Request, RequestCounts, RequestTable, check_requests
from container.client.session_pool import PooledSession, PooledSessionState, SessionPool
from container.common import forks
from container.common.doors import EnteredByAsyncWith, make, not_entered
from container.common.process_end import Stage, close_at_end, stop_and_join
from container.common.threads import check_threads
from container.errors import (
    ClosedError,
    ClusterError,
    ClusterUnavailableError,
    ConfigurationError,
    ContainerError,
    SendTimedOutError,
    TimedOutError,
)

_KEYWORDS = ("correlate", "resend", "max_connecting", "max_waiting", "max_waiting_bytes", "policy", "callbacks")
_PAUSE_S = 0.001
_MIN_PARK_S = 0.000_005
_IDLE_PARK_S = 0.005
_POLLS_BEFORE_A_PARK = 10
_MAX_DOUBLINGS = 12
_JOIN_LIMIT_S = 30.0
_SENDS_BEFORE_A_PAUSE = 64
_FRAGMENT_LIMIT = 64
_MAX_ARRIVED = 65_536
_MAX_ARRIVED_BYTES = 64 * 1024 * 1024
_CLOSED_BY_US = "closed by this client"

_LOGGER = logging.getLogger("container.client")


class _FirstListener(EgressListener):
    """Listener of the pool's own session, which is nobody's: skips its messages."""

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        """Ignore it: a service may send to all sessions."""

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> None:
        """Ignore it: there is nobody to raise an error to."""


class _Arrived(list[Any]):
    """Messages that the event loop has not looked at yet: the pool's thread appends, the loop takes from the front."""

    read_bytes = 0  # of all messages so far, which the thread counts
    taken_bytes = 0  # of those, which the loop counts

    @property
    def is_full(self) -> bool:
        """Whether reading pauses until the event loop has run."""
        return len(self) >= _MAX_ARRIVED or self.read_bytes - self.taken_bytes >= _MAX_ARRIVED_BYTES

    def take(self) -> list[Any]:
        """All of it, in order."""
        taken = self[:]
        del self[: len(taken)]
        self.taken_bytes += sum(len(one[1].payload) for one in taken if type(one) is tuple and type(one[0]) is _Feed)
        return taken


class _Feed(_FirstListener):
    """Hands the messages of one session to the event loop."""

    def __init__(self, session: AsyncPooledSession, arrived: _Arrived) -> None:
        self.session = weakref.ref(session)  # the thread does not keep a pool alive that is forgotten
        self._arrived = arrived

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        """On the pool's thread."""
        message = EgressMessage(bytes(buffer), timestamp)
        self._arrived.read_bytes += len(message.payload)
        self._arrived.append((self, message))


class _News(PoolListener):
    """Hands what becomes of sessions to the event loop."""

    def __init__(self, arrived: list[Any]) -> None:
        self._arrived = arrived

    def on_session_opened(self, session: object) -> None:
        """On the pool's thread, as all of these."""
        self._arrived.append(("on_session_opened", (session,)))

    def on_session_lost(self, session: object, error: ContainerError) -> None:
        self._arrived.append(("on_session_lost", (session, error)))

    def on_session_replaced(self, session: object, attempts: int) -> None:
        self._arrived.append(("on_session_replaced", (session, attempts)))

    def on_session_closed(self, session: object, error: ContainerError) -> None:
        self._arrived.append(("on_session_closed", (session, error)))

    def on_leader_changed(self, leader_member_id: int, leadership_term_id: int) -> None:
        self._arrived.append(("on_leader_changed", (leader_member_id, leadership_term_id)))

    def on_closed(self, error: ContainerError) -> None:
        self._arrived.append(("on_closed", (error,)))


class _AwaitedRequest(Request):
    """A request of a pooled session, and the future that gets its reply."""

    __slots__ = ("reply", "session_id")

    def __init__(self, key: Hashable, message: bytes | None, reply: asyncio.Future[bytes], arrived: list[Any]) -> None:
        super().__init__(key, message, on_end=arrived.append)  # on the pool's thread: the loop hears of it in its turn
        self.reply = reply
        self.session_id = -1  # that it was sent in

    def settle(self) -> None:
        """On the loop's thread."""
        if self.reply.done():
            return
        if self.error is not None:
            self.reply.set_exception(self.error)
        elif self.payload is not None:
            self.reply.set_result(self.payload)


class _Table(RequestTable):
    """The requests of all sessions, on the pool's thread."""

    def __init__(self, correlate: Correlate | None, resend: bool, arrived: list[Any]) -> None:
        super().__init__(correlate, resend=resend)
        self._arrived = arrived

    def take(self, session_id: int, payload: bytes) -> bool:
        """An error of correlate(), or of its key, costs that message alone, which is taken for no reply."""
        try:
            return super().take(session_id, payload)
        except Exception as error:  # of a key that cannot be hashed or compared as well
            self._arrived.append(error)
            return False


class _PoolThread:
    """Connects a pool, polls it, and closes it at the end."""

    def __init__(
        self,
        context: ClientContext,
        correlate: Correlate | None,
        *,
        resend: bool,
        max_connecting: int,
        policy: ReconnectPolicy | None,
    ) -> None:
        self.lock = threading.Lock()
        self.arrived = _Arrived()
        self.pool: SessionPool | None = None
        self.error: BaseException | None = None  # what ended it, unless it was stopped
        self.is_ended = False
        self.wake: Callable[[], object] = lambda: None
        self.wake_count = 0
        self.table = _Table(correlate, resend, self.arrived)
        self._context = context
        self._correlate = correlate
        self._max_connecting = max_connecting
        self._policy = policy
        self._nudges: SimpleQueue[None] = SimpleQueue()
        self._is_parked = False
        self._is_stopping = False
        self._is_wake_due = False  # the loop knows, and has not looked yet
        self._is_attempt_wanted = False
        self._attempt: AsyncConnect | ContainerError | None = None
        self._thread = threading.Thread(target=self._run, name="cluster-pool", daemon=True)

    def start(self) -> None:
        self._thread.start()
        close_at_end(self, Stage.POOL, stop_and_join)

    def stop(self) -> None:
        """Ask the thread to close the pool and to end; do not wait."""
        self._is_stopping = True
        self._nudges.put(None)

    def join(self, timeout: float = _JOIN_LIMIT_S) -> None:
        self._thread.join(timeout)

    def nudge(self) -> None:
        """Expect an answer."""
        if self._is_parked:
            self._is_parked = False
            self._nudges.put(None)

    def take(self) -> list[Any]:
        """Messages since the last call, in order."""
        self._is_wake_due = False  # before it looks: what comes later wakes it again
        return self.arrived.take()

    def _run(self) -> None:
        try:
            self._connect()
            if self.pool is not None:
                self._poll_until_closed(self.pool)
        except BaseException as error:
            self.error = error
        finally:
            self._close()
            self.is_ended = True
            self._is_wake_due = False
            self._wake_loop()

    def _connect(self) -> None:
        with AsyncConnect(self._context) as connecting:
            while (cluster := connecting.poll()) is None:
                if self._is_stopping:
                    return
                self._wait(_PAUSE_S)
        pool = SessionPool._over(
            cluster,
            None if self._correlate is None else self.table,
            self._max_connecting,
            self._policy,
            _News(self.arrived),
            self._next_attempt,
        )
        pool._guard()
        self.pool = pool
        self._wake_loop()

    def _poll_until_closed(self, pool: SessionPool) -> None:
        idle_count = 0
        while not (self._is_stopping or pool.is_closed):
            if self._is_attempt_wanted:
                self._make_attempt()
            if self._poll(pool) > 0:
                idle_count = 0
            if self.arrived and not self._wake_loop():
                break
            idle_count += 1
            if idle_count <= _POLLS_BEFORE_A_PARK:
                continue
            limit_s = _PAUSE_S if len(self.table) > 0 else _IDLE_PARK_S
            doublings = min(idle_count - _POLLS_BEFORE_A_PARK, _MAX_DOUBLINGS)
            if self._wait(min(limit_s, _MIN_PARK_S * 2**doublings)):
                idle_count = 0

    def _close(self) -> None:
        """However the thread ends, so that nobody waits for what cannot come."""
        ended = ClosedError(_CLOSED_BY_US if self.error is None else f"the pool's thread ended: {self.error!r}")
        try:
            if self.pool is not None:
                self._close_pool(self.pool, ended)
            if isinstance(self._attempt, AsyncConnect):
                self._attempt.close()
        except BaseException as error:
            self.error = self.error or error

    def _close_pool(self, pool: SessionPool, ended: ClosedError) -> None:
        # Answers that are under way are waited for without the lock.
        try:
            with self.lock:
                is_closing = pool._begin_close()
            while is_closing:
                with self.lock:
                    is_closing = not pool._poll_close()
                if is_closing:
                    self._wait(_PAUSE_S)
        finally:
            with self.lock:
                pool._close_because(ended)

    def _wait(self, duration_s: float) -> bool:
        """True when it was nudged."""
        self._is_parked = True
        try:
            self._nudges.get(timeout=duration_s)
            return True
        except Empty:
            return False
        finally:
            self._is_parked = False

    def _poll(self, pool: SessionPool) -> int:
        # A loop that is behind costs no session its keep alives: nothing more is read.
        limit = 0 if self.arrived.is_full else _FRAGMENT_LIMIT
        try:
            with self.lock:
                return pool.poll(limit)
        except Exception as error:
            self.arrived.append(error)
            return 0

    # An attempt to connect again may have to wait for a driver: not with the lock.

    def _next_attempt(self) -> AsyncConnect | None:
        attempt, self._attempt = self._attempt, None
        if isinstance(attempt, ContainerError):
            raise attempt
        self._is_attempt_wanted = attempt is None
        return attempt

    def _make_attempt(self) -> None:
        self._is_attempt_wanted = False
        try:
            self._attempt = AsyncConnect(self._context)
        except ContainerError as error:
            self._attempt = error
        except OSError as error:
            self._attempt = attempt_error(error)

    def _wake_loop(self) -> bool:
        if self._is_wake_due:
            return True
        self._is_wake_due = True
        self.wake_count += 1
        try:
            self.wake()
        except RuntimeError:  # of a loop that is closed
            return False
        return True


class AsyncPooledSession:
    """One session of an :class:`AsyncSessionPool`, made by :meth:`AsyncSessionPool.open`.

    When it is lost the pool connects it again, with a new :attr:`cluster_session_id`; it continues with later messages.
    """

    def __init__(self, pool: AsyncSessionPool) -> None:
        """Use :meth:`AsyncSessionPool.open`."""
        self.pool = pool
        #: Messages that were not kept, as too many waited to be taken.
        self.dropped = 0
        self._session: PooledSession
        self._inbox: deque[EgressMessage] = deque()
        self._inbox_bytes = 0
        self._sending = asyncio.Lock()
        self._changed: asyncio.Future[None] | None = None  # while anybody waits for a change

    def __repr__(self) -> str:
        return f"<AsyncPooledSession {self._session!r} waiting={len(self._inbox)}>"

    @property
    def cluster_session_id(self) -> int:
        """Id of the present session with the cluster; -1 while there is none."""
        return self._session.cluster_session_id

    @property
    def sessions(self) -> int:
        """How many sessions with the cluster it has had so far."""
        return self._session.sessions

    @property
    def state(self) -> PooledSessionState:
        """Whether the session can send."""
        return self._session.state

    @property
    def is_closed(self) -> bool:
        """True once it is closed, and not connected again: :attr:`close_reason` says why."""
        return self._session.is_closed

    @property
    def close_reason(self) -> str | None:
        """The error that ended it, or its last session; None while it is connected."""
        return self._session.close_reason

    @property
    def error(self) -> Exception | None:
        """Why it is not connected; None while it is."""
        return self._session.error

    @property
    def max_message_length(self) -> int:
        """The longest message that the cluster takes, in bytes; 0 while there is no leader."""
        with self.pool._thread.lock:
            return self._session.max_message_length

    # Sending

    def offer(self, *buffers: Buffer) -> int:
        """Try once to send a message; results as for :meth:`PooledSession.offer`."""
        self.pool._check_loop()
        return self.pool._offer(self, buffers, None)

    async def send(self, *buffers: Buffer, timeout: float | None = None) -> int:
        """Send a message; wait while there is back pressure, no leader or no session. Return the ingress position.

        ``timeout`` is in seconds (None: the message timeout). Tasks that wait send in the order in which they came.
        Leave the buffers as they are until this returns.

        Raises:
            SendTimedOutError: after the timeout; the message was not sent.
            ClosedError: the session or the pool is or gets closed.
            MessageTooLongError: the message is longer than the cluster takes.
        """
        self.pool._check_loop()
        return await self._send(buffers, limit_s(timeout, self.pool._context.message_timeout), None)

    async def _send(self, buffers: tuple[Buffer, ...], limit: float, request: _AwaitedRequest | None) -> int:
        if not self._sending.locked():
            result = self.pool._offer(self, buffers, request)
            if result > 0:
                await self.pool._after_send()
                return result
        try:
            async with asyncio.timeout(limit), self._sending:
                while True:
                    if self.state is not PooledSessionState.CONNECTED:
                        self._check_open()
                        await self._change()
                        continue
                    result = await self.pool._offer_in_turn(self, buffers, request)
                    if result > 0:
                        return result
        except TimeoutError:
            raise SendTimedOutError(f"message was not accepted within {limit:g} s: {self!r}") from None

    async def request(
        self, *buffers: Buffer, key: Hashable, timeout: float | None = None, idempotent: bool | None = None
    ) -> bytes:
        """Send a message and return the payload of the reply for which ``correlate`` returns ``key``.

        As :meth:`AsyncAeronCluster.request`. Keys are of each session.

        Raises:
            RequestClosedError: the session was lost or closed, and the request may have been processed.
            LeaderChangedError: the leader that it was sent to is lost, or leads no longer.
            SendTimedOutError: the request was not accepted in time, and so was not sent.
            RequestTimedOutError: no reply in time; the request may have been processed anyway.
            ClosedError: the session is closed already.
            ConfigurationError: the pool was given no ``correlate``.
            ClusterError: a reply with that key may still come in this session, as there.
        """
        pool = self.pool
        pool._check_loop()
        if pool._correlate is None:
            raise ConfigurationError(
                "request() needs a function that finds a reply's key: AsyncSessionPool.connect(correlate=...)"
            )
        limit = limit_s(timeout, pool._context.message_timeout)
        message = b"".join(buffers) if pool._thread.table.is_resendable(idempotent) else None
        request = _AwaitedRequest(key, message, pool._loop.create_future(), pool._thread.arrived)
        try:
            async with asyncio.timeout(limit):
                await self._send(buffers, limit, request)
                return await request.reply
        except TimedOutError:
            raise
        except TimeoutError:
            pool._forget(request)
            if request.payload is not None:  # it had come, and this loop had not heard of it
                return request.payload
            raise request_timeout(key, limit, is_sent=request.is_sent, hint=request.hint) from None
        finally:
            pool._forget(request)
            if not request.reply.cancel() and not request.reply.cancelled():
                request.reply.exception()  # seen, so that it is not reported as never retrieved

    # Receiving

    def __aiter__(self) -> AsyncIterator[EgressMessage]:
        """Iterate over the service's messages, except replies to requests, until the session is closed."""
        return self

    async def __anext__(self) -> EgressMessage:
        try:
            return await self.receive()
        except ClosedError:
            if self.close_reason == _CLOSED_BY_US:
                raise StopAsyncIteration from None
            raise

    async def receive(self) -> EgressMessage:
        """The next message of the service that is not a reply to a request, whatever session it came in.

        Raises:
            ClosedError: the session is closed, and all messages have been taken.
        """
        self.pool._check_loop()
        while not self._inbox:
            self._check_open()
            await self._change()
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message.payload)
        return message

    def _feed(self, message: EgressMessage) -> None:
        pool = self.pool
        length = len(message.payload)
        if len(self._inbox) >= pool.max_waiting or self._inbox_bytes + length > pool.max_waiting_bytes:
            if self.dropped == 0:
                _LOGGER.warning(
                    "%d messages of %d bytes wait to be taken from session %d: more are dropped until some are",
                    len(self._inbox),
                    self._inbox_bytes,
                    self.cluster_session_id,
                )
            self.dropped += 1
            return
        self._inbox.append(message)
        self._inbox_bytes += length
        self._notify()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = self.pool._loop.create_future()
        await asyncio.shield(self._changed)  # others may wait for it as well

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def close(self) -> None:
        """End the session, which reaches the cluster if there is a leader. Nothing happens the second time.

        A task that waits in :meth:`send` or :meth:`receive` gets ClosedError, a request RequestClosedError.
        """
        if self.pool._parent_id:
            return
        self.pool._check_loop()
        with self.pool._thread.lock:
            self._session.close()
        self.pool._sessions.pop(self, None)
        self._notify()
        self.pool._drain()

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClosedError(f"the session is closed: {self.close_reason}")


class AsyncSessionPool(EnteredByAsyncWith):
    """Sessions for one event loop that share one Aeron client; made by :meth:`connect`.

    One lost session is connected again, and the rest continues; when the streams of all are lost, so are all.
    """

    def __init__(
        self,
        context: ClientContext,
        correlate: Correlate | None,
        *,
        resend: bool,
        max_connecting: int,
        max_waiting: int,
        max_waiting_bytes: int,
        policy: ReconnectPolicy | None,
        callbacks: PoolListener | None,
    ) -> None:
        """Use :meth:`connect`."""
        #: Messages of a session that may wait to be taken.
        self.max_waiting = max_waiting
        #: Bytes of them.
        self.max_waiting_bytes = max_waiting_bytes
        self._context = context
        self._correlate = correlate
        self._callbacks = PoolListener() if callbacks is None else callbacks
        self._max_connecting = max_connecting
        self._sessions: dict[AsyncPooledSession, None] = {}
        self._sends = 0
        self._taken: deque[Any] = deque()  # what the thread has read, and is not handled yet
        self._is_closed = False
        self._parent_id = 0  # of the process of which this one is a fork
        self._thread_id = 0
        self._loop: asyncio.AbstractEventLoop
        self._connected: asyncio.Future[None]
        self._ended: asyncio.Future[None]
        self._opening: asyncio.Semaphore
        self._gate: asyncio.Lock  # one at a time tries again what the stream did not take
        self._thread = _PoolThread(context, correlate, resend=resend, max_connecting=max_connecting, policy=policy)

    @staticmethod
    def connect(
        context: ClientContext | None = None,
        *,
        correlate: Correlate | None = None,
        resend: bool = False,
        max_connecting: int = 64,
        max_waiting: int = 1_024,
        max_waiting_bytes: int = 16 * 1024 * 1024,
        policy: ReconnectPolicy | None = None,
        callbacks: PoolListener | None = None,
        **settings: Unpack[ClientSettings],
    ) -> AsyncSessionPool:
        """A pool: ``async with AsyncSessionPool.connect(...) as pool`` connects it.

        Args:
            context: as for :meth:`AsyncAeronCluster.connect`, and so are ``correlate``, ``resend`` and ``settings``;
                without a listener.
            max_connecting: connects that may be under way.
            max_waiting: messages of each session that may wait to be taken; more are dropped, and counted in
                :attr:`AsyncPooledSession.dropped`. Replies to requests are always taken.
            max_waiting_bytes: bytes of them.
            policy: when a lost session is connected again, and for how long that is tried.
            callbacks: is notified of sessions and leaders, on the event loop.

        Raises ConfigurationError immediately for a bad setting; ``async with`` raises what ended the connect.
        """
        check_threads("AsyncSessionPool")
        check_context(context)
        check_pool_arguments(max_connecting, policy, callbacks)
        check_count("max_waiting", max_waiting)
        check_count("max_waiting_bytes", max_waiting_bytes)
        check_requests(correlate, resend)
        given = settings.get("listener") if context is None or "listener" in settings else context.listener
        if given is not None and type(given) is not EgressListener:
            raise ConfigurationError(
                f"an asyncio pool uses no listener: take messages with receive() of each session, not {given!r}"
            )
        settings["listener"] = _FirstListener()
        context = context_of(context, settings, *_KEYWORDS)
        return make(
            AsyncSessionPool,
            context,
            correlate,
            resend=resend,
            max_connecting=max_connecting,
            max_waiting=max_waiting,
            max_waiting_bytes=max_waiting_bytes,
            policy=policy,
            callbacks=callbacks,
        )

    def _disown(self, process_id: int) -> None:
        self._parent_id = process_id
        self._thread_id = 0  # the check for the thread refuses what uses it
        self._is_closed = True
        self._thread.lock = threading.Lock()  # the thread that may hold the other no longer exists

    def __repr__(self) -> str:
        return f"<AsyncSessionPool of {len(self._sessions)} {self._thread.pool!r}>"

    def __len__(self) -> int:
        """How many sessions are not closed."""
        return len(self._sessions)

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and self._thread_id and not thread.is_ended:
            thread.stop()
            warnings.warn(f"unclosed {self!r}: use 'async with'", ResourceWarning, stacklevel=2)

    @property
    def leader_member_id(self) -> int:
        """Id of the member that leads, as far as this pool knows."""
        return self._pool.cluster.leader_member_id

    @property
    def is_closed(self) -> bool:
        """True once closed, by :meth:`aclose` or by what :attr:`close_reason` says."""
        return self._is_closed

    @property
    def close_reason(self) -> str | None:
        """Why the pool is closed; None before."""
        return self._pool.close_reason if self._is_closed else None

    @property
    def lost(self) -> int:
        """How many sessions were lost, and are neither connected again nor given up."""
        with self._thread.lock:
            return self._pool.lost

    @property
    def request_counts(self) -> RequestCounts | None:
        """Counts of the requests of all sessions so far, by outcome; None without ``correlate``."""
        return None if self._correlate is None else self._thread.table.counts

    def metrics(self) -> ClientMetrics:
        """Counts of the pool so far, with all of its sessions; on the event loop, also when it is closed."""
        with self._thread.lock:
            found = self._pool.metrics()
        return replace(found, unread=sum(len(session._inbox) for session in self._sessions))

    @property
    def _pool(self) -> SessionPool:
        if self._thread.pool is None:
            raise ClosedError(not_entered("AsyncSessionPool"))
        return self._thread.pool

    # Sessions

    async def open(self, credentials_supplier: CredentialsSupplier | None = None) -> AsyncPooledSession:
        """Connect a session and return it, within the message timeout, which begins when its turn comes.

        ``credentials_supplier`` is for this session (None: that of the settings). Its methods are called on the pool's
        thread. Raise as :meth:`AsyncAeronCluster.connect`; a first connect that fails is not tried again.
        """
        self._check_loop()
        async with self._opening:
            self._check_open()
            session = AsyncPooledSession(self)
            feed = _Feed(session, self._thread.arrived)
            with self._thread.lock:
                session._session = self._pool.open(feed, credentials_supplier)
            self._sessions[session] = None
            self._thread.nudge()
            try:
                while session.state is PooledSessionState.CONNECTING:
                    await session._change()
            except BaseException:
                session.close()
                raise
        if session.is_closed:
            self._sessions.pop(session, None)
            raise session.error or ClosedError(f"the session is closed: {session.close_reason}")
        return session

    async def open_all(self, count: int) -> list[AsyncPooledSession]:
        """Connect ``count`` sessions and return them; when one fails, close all and raise its error."""
        opening = [asyncio.create_task(self.open()) for _ in range(count)]
        try:
            return await asyncio.gather(*opening)
        except BaseException:
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
            for task in opening:
                if not task.cancelled() and task.exception() is None:
                    task.result().close()
            raise

    # Sending

    def _offer(self, session: AsyncPooledSession, buffers: tuple[Buffer, ...], request: _AwaitedRequest | None) -> int:
        with self._thread.lock:
            pooled = session._session
            if request is not None:
                self._thread.table.check_key(pooled.cluster_session_id, request.key)
                request.session_id = pooled.cluster_session_id
            result = self._pool._offer_request(pooled, buffers, request)
        self._thread.nudge()
        if result == CLOSED:
            session._check_open()
        if result == MAX_POSITION_EXCEEDED:
            raise ClusterUnavailableError("the ingress publication reached its greatest position")
        return result

    async def _offer_in_turn(
        self, session: AsyncPooledSession, buffers: tuple[Buffer, ...], request: _AwaitedRequest | None
    ) -> int:
        """Until the stream takes it, or the session is no longer connected: then the result is not a position."""
        async with self._gate:
            while True:
                result = self._offer(session, buffers, request)
                if result > 0 or session.state is not PooledSessionState.CONNECTED:
                    return result
                await asyncio.sleep(_PAUSE_S)

    def _forget(self, request: _AwaitedRequest) -> None:
        with self._thread.lock:
            self._thread.table.forget(request.session_id, request)

    async def _after_send(self) -> None:
        self._sends += 1
        if self._sends % _SENDS_BEFORE_A_PAUSE == 0:
            await asyncio.sleep(0)  # a loop that only sends would starve the other tasks

    # News from the thread

    def _drain(self) -> None:
        self._taken.extend(self._thread.take())
        while self._taken:  # a callback may come here as well
            item = self._taken.popleft()
            if isinstance(item, _AwaitedRequest):
                item.settle()
            elif isinstance(item, Exception):
                self._report("the pool met an error and continues", item)
            elif isinstance(item[0], _Feed):
                if (session := item[0].session()) is not None:
                    session._feed(item[1])
            else:
                self._tell(*item)
        if self._thread.pool is not None and not self._connected.done():
            self._connected.set_result(None)
        if self._thread.is_ended and not self._is_closed:
            self._end()

    def _tell(self, callback: str, arguments: tuple[Any, ...]) -> None:
        if isinstance(arguments[0], PooledSession):
            feed = arguments[0].listener
            session = feed.session() if isinstance(feed, _Feed) else None
            if session is None:
                return
            arguments = (session, *arguments[1:])
            if callback == "on_session_closed":
                self._sessions.pop(session, None)
            session._notify()
        try:
            getattr(self._callbacks, callback)(*arguments)
        except Exception as error:
            self._report(f"{callback}() of the pool's listener failed", error)

    def _report(self, text: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": text, "exception": error})

    # The connection

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._connected = self._loop.create_future()
        self._ended = self._loop.create_future()
        self._opening = asyncio.Semaphore(self._max_connecting)
        self._gate = asyncio.Lock()
        self._thread.wake = _waker(self)
        self._thread.start()
        forks.own(self)
        try:
            await asyncio.wait([self._connected, self._ended], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._thread_id = 0  # nobody can use it
            self._thread.stop()
            raise
        if self._thread.error is not None:
            self._is_closed = True
            raise self._thread.error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all sessions and close what the connect opened. Nothing happens the second time.

        A task that waits in a session's ``send`` or ``receive`` gets ClosedError, a request RequestClosedError.
        """
        if self._parent_id:
            return
        self._check_loop()
        self._thread.stop()
        await asyncio.shield(self._ended)
        self._thread.join()

    def _end(self) -> None:
        self._is_closed = True
        if isinstance(self._thread.error, Exception) and self._connected.done():
            self._report("the pool's thread ended", self._thread.error)
        for session in list(self._sessions):
            session._notify()
        self._sessions.clear()
        if not self._ended.done():
            self._ended.set_result(None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the pool is closed: {self.close_reason}")

    def _check_loop(self) -> None:
        if threading.get_ident() != self._thread_id:
            if self._parent_id:
                raise forks.refusal("use a pool", "the pool", self._parent_id)
            if not self._thread_id:
                raise ClusterError(not_entered("AsyncSessionPool"))
            raise ClusterError(
                f"this pool belongs to the event loop of another thread than {threading.current_thread().name!r}: use "
                "asyncio.run_coroutine_threadsafe(...)"
            )


def _waker(pool: AsyncSessionPool) -> Callable[[], object]:
    """Called by the pool's thread; it does not keep the pool alive, so that one that is forgotten ends."""
    loop, reference = asyncio.get_running_loop(), weakref.ref(pool)

    def drain() -> None:
        if (alive := reference()) is not None:
            alive._drain()

    return lambda: loop.call_soon_threadsafe(drain)
