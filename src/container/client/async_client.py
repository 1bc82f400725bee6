"""The client of the cluster for asyncio."""

from __future__ import annotations

import asyncio
import threading
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Buffer, Callable, Coroutine, Generator, Hashable
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple, Unpack

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.client.aeron_cluster import AeronCluster, AsyncConnect, ClientState
from container.client.client_context import (
    ClientContext,
    ClientSettings,
    check_context,
    check_count,
    context_of,
    limit_s,
)
from container.client.client_metrics import ClientMetrics
from container.client.client_poller import ClientPoller, EgressMessage
from container.client.egress_listener import AdminRequestType, AdminResponseCode, EgressListener
from container.client.requests import (
    Correlate,
    Request,
    RequestCounts,
    RequestTable,
    Verdict,
    as_bytes,
    check_key,
    check_requests,
    no_reply_error,
    reply_key,
)
from container.common import forks
from container.common.doors import EnteredByAsyncWith, Entering, make, not_entered
from container.common.threads import check_threads
from container.errors import (
    ClosedError,
    ClusterError,
    ClusterUnavailableError,
    ConfigurationError,
    ContainerError,
    RequestClosedError,
    SendTimedOutError,
    TimedOutError,
)

_CONNECT_PAUSE_S = 0.001
_SEND_PAUSE_S = 0.001
_JOIN_LIMIT_S = 30.0
_SENDS_BEFORE_A_PAUSE = 64
_CLOSED_BY_US = "closed by this client"
_RESULT_NAMES = {
    ADMIN_ACTION: "ADMIN_ACTION",
    BACK_PRESSURED: "BACK_PRESSURED",
    CLOSED: "CLOSED",
    NOT_CONNECTED: "NOT_CONNECTED",
}

MAX_WAITING = 65_536
"""Default limit of messages that wait to be taken."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Default limit of their bytes."""


class AdminResponse(NamedTuple):
    """The cluster's answer to an admin request; OK means accepted, not done."""

    correlation_id: int
    """The id of the request."""
    request_type: AdminRequestType | int
    """The type of the request; a plain int for one of a later version."""
    response_code: AdminResponseCode | int
    """The outcome; a plain int for one of a later version."""
    message: str
    """The reason for an outcome other than OK."""
    payload: bytes
    """Further data of the answer."""


class _AdminKey(int):
    """The correlation id of an admin request, among the keys of requests: never equal to a user's key."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AdminKey) and int(self) == int(other)

    def __hash__(self) -> int:
        return int.__hash__(self)


class _AwaitedRequest(Request):
    """A request and the future that gets its reply. It ends on the loop's thread: only that one knows which messages
    have come."""

    __slots__ = ("reply",)

    def __init__(self, key: Hashable, reply: asyncio.Future[Any], message: bytes | None = None) -> None:
        super().__init__(key, message)
        self.reply = reply

    def end(self, *, payload: bytes | None = None, error: ContainerError | None = None) -> None:
        super().end(payload=payload, error=error)
        if self.reply.done():
            return
        if error is not None:
            self.reply.set_exception(error)
        else:
            self.reply.set_result(payload)


class _AsyncListener(EgressListener):
    """Takes the cluster's events, and ignores unrequested messages."""

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> None:
        """Ignore it: nobody would get the error."""


class Inbox:
    """Messages that wait to be taken, within limits of messages and bytes; one message may exceed the bytes."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.dropped = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages: deque[EgressMessage] = deque()
        self._bytes = 0
        self._missed = 0  # since the last message

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: EgressMessage) -> bool:
        """Append a message; return False if it was dropped, as one may be that was read although there was no room."""
        if message.is_over and (len(self) >= self._max_messages or self._bytes >= self._max_bytes):
            self.dropped += 1
            self._missed += 1
            return False
        message.missed += self._missed
        self._missed = 0
        self._bytes += len(message.payload)
        self._messages.append(message)
        return True

    def put_all(self, other: Inbox) -> None:
        """Append all messages of another inbox; drop the oldest where there is no room."""
        self._messages.extend(other._messages)
        self._bytes += other._bytes
        other._messages.clear()
        other._bytes = 0
        while len(self) > self._max_messages or (self._bytes > self._max_bytes and len(self) > 1):
            oldest = self.take()
            self.dropped += 1
            self._messages[0].missed += oldest.missed + 1

    def take(self) -> EgressMessage:
        """Remove and return the oldest message; raise IndexError when there is none."""
        message = self._messages.popleft()
        self._bytes -= len(message.payload)
        return message


class AsyncAeronCluster(EnteredByAsyncWith):
    """A session with the cluster for one event loop; made by :meth:`connect`.

    Call everything here on the event loop's thread; another thread is refused. A thread of its own polls
    the cluster and keeps the session alive, so a loop that is busy for a while does not lose it.

    **A message that is accepted is not yet processed**, and may be lost when the leader changes: only the
    service's answer proves it. :meth:`request` awaits that answer.

    Messages wait in the client until they are taken, by ``async for`` or :meth:`receive`; when several tasks take them,
    each message goes to one of these. When ``max_waiting`` messages or ``max_waiting_bytes`` bytes wait, nothing more
    is read until some are taken. But replies and new leaders are heard anyway: when a request waits for its
    reply, or there is no leader, all is read, and from then on, until some are taken, messages without room are
    dropped: :attr:`dropped_messages` counts them, and ``missed`` of the message that follows.
    """

    def __init__(
        self,
        cluster: AeronCluster,
        listener: EgressListener,
        correlate: Correlate | None,
        max_waiting: int,
        max_waiting_bytes: int,
        *,
        resend: bool = False,
    ) -> None:
        """Take over a connected client; use :meth:`connect`."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._cluster = cluster
        self._listener = listener
        self._correlate = correlate
        self._inbox = Inbox(max_waiting, max_waiting_bytes)
        self._taken: deque[Any] = deque()  # read by the poller, and not handled yet
        self._receivers: set[asyncio.Future[None]] = set()
        self._table = RequestTable(None, resend=resend)  # correlate() is called here, on the loop's thread
        self._requests: dict[Hashable, asyncio.Future[bytes]] = {}  # including those that wait to be sent
        self._admin_requests: dict[int, asyncio.Future[AdminResponse]] = {}
        self._sending = asyncio.Lock()
        self._sends = 0
        self._is_closed = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._parent_id = 0  # of the process of which this one is a fork
        self._poller = ClientPoller(cluster, _waker(self), max_waiting, max_waiting_bytes, self._table)
        self._poller.start()
        forks.own(self)

    @staticmethod
    def connect(
        context: ClientContext | None = None,
        *,
        correlate: Correlate | None = None,
        max_waiting: int = MAX_WAITING,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        resend: bool = False,
        **settings: Unpack[ClientSettings],
    ) -> _Connecting:
        """Connect for asyncio: ``async with AsyncAeronCluster.connect(...) as client``, or ``await`` it.

        It returns a coroutine, which ``asyncio.create_task`` takes, to connect beside other tasks.

        Args:
            context: the settings, and ``settings`` replace some of it; without one ``settings`` come before the
                environment, as for :meth:`AeronCluster.connect`. The listener's methods are called on the event loop's
                thread; ``on_message`` never would be, and one that has it is refused.
            correlate: given a message's payload, returns the key of the request that it answers, which must be
                hashable, or None for a message that is not a reply. :meth:`AsyncAeronCluster.request` needs it.
            max_waiting: messages that may wait to be taken, see :class:`AsyncAeronCluster`.
            max_waiting_bytes: bytes of them; one message more may be there.
            resend: whether requests that do not say so themselves (``idempotent``) are sent again to a new leader.

        Raise as :meth:`AeronCluster.connect`, and close what was opened when the connect is cancelled: also a session
        that opens while that is done, for which it waits for 1 s and the message timeout at most.
        """
        check_threads("AsyncAeronCluster")
        check_context(context)
        check_count("max_waiting", max_waiting)
        check_count("max_waiting_bytes", max_waiting_bytes)
        check_requests(correlate, resend)
        if context is None:
            settings = {"listener": _AsyncListener(), **settings}
        context = context_of(context, settings, "correlate", "max_waiting", "max_waiting_bytes", "resend")
        listener = check_async_listener("AsyncAeronCluster.connect", context.listener)
        return _Connecting(
            lambda: connect_session(context, listener, correlate, max_waiting, max_waiting_bytes, resend)
        )

    def _disown(self, process_id: int) -> None:
        self._parent_id = process_id
        self._thread_id = 0  # the check for the thread refuses what uses it
        self._is_closed = True

    def __repr__(self) -> str:
        return f"<AsyncAeronCluster {self._cluster!r} waiting={len(self._inbox)} requests={len(self._requests)}>"

    def __del__(self) -> None:
        poller = getattr(self, "_poller", None)
        if poller is not None and not poller.is_ended:
            poller.stop()
            warnings.warn(
                f"unclosed {self!r}: use 'async with AsyncAeronCluster.connect(...)'", ResourceWarning, stacklevel=2
            )

    @property
    def cluster_session_id(self) -> int:
        """Id of the session with the cluster."""
        return self._cluster.cluster_session_id

    @property
    def leader_member_id(self) -> int:
        """Id of the member that leads, as far as this client knows."""
        return self._cluster.leader_member_id

    @property
    def leadership_term_id(self) -> int:
        """Id of the term in which it leads."""
        return self._cluster.leadership_term_id

    @property
    def max_message_length(self) -> int:
        """The longest message that the cluster takes, in bytes; 0 while there is no leader."""
        return self._poller.max_message_length

    @property
    def state(self) -> ClientState:
        """Whether there is a leader to send to."""
        return self._cluster.state

    @property
    def is_closed(self) -> bool:
        """True once closed, by :meth:`aclose` or for the reason in :attr:`close_reason`."""
        return self._is_closed

    @property
    def close_reason(self) -> str | None:
        """Why the client is closed; None before."""
        return self._poller.close_reason if self._is_closed else None

    @property
    def request_counts(self) -> RequestCounts:
        """Counts of the requests so far, by outcome, those for snapshots included."""
        return self._table.counts

    def metrics(self) -> ClientMetrics:
        """Counts of this client so far; requests for snapshots count as well. From any thread, also when it is
        closed."""
        return replace(self._cluster.metrics(), unread=len(self._inbox))

    @property
    def unmatched_replies(self) -> int:
        """Replies that came after their request had ended."""
        return self._table.counts.unmatched

    @property
    def dropped_messages(self) -> int:
        """Messages that were dropped, because nobody took those before them while a request waited for its reply."""
        return self._inbox.dropped

    # Sending

    def offer(self, *buffers: Buffer) -> int:
        """Try once to send a message; results as for :meth:`AeronCluster.offer`."""
        self._check_loop()
        return self._poller.offer(buffers)

    async def send(self, *buffers: Buffer, timeout: float | None = None) -> int:
        """Send a message; wait while there is back pressure or no leader. Return the new ingress position.

        ``timeout`` is in seconds (None: the message timeout). Tasks that wait send in the order in which they
        came. Leave the buffers as they are until this returns.

        Raises:
            SendTimedOutError: after the timeout; the message was not sent.
            ClosedError: the client is or gets closed.
            MessageTooLongError: the message is longer than :attr:`max_message_length`.
        """
        self._check_loop()
        return await self._send(buffers, limit_s(timeout, self._cluster.context.message_timeout))

    async def _send(self, buffers: tuple[Buffer, ...], limit: float, request: Request | None = None) -> int:
        if not self._sending.locked():
            result = self._poller.offer(buffers, request)
            if result > 0:
                self._sends += 1
                if self._sends % _SENDS_BEFORE_A_PAUSE == 0:
                    await asyncio.sleep(0)  # a loop that only sends would starve the other tasks
                return result
        result = CLOSED
        try:
            async with asyncio.timeout(limit), self._sending:
                while (result := self._poller.offer(buffers, request)) <= 0:
                    self._check_result(result)
                    await asyncio.sleep(0 if result == ADMIN_ACTION else _SEND_PAUSE_S)
        except TimeoutError:
            raise SendTimedOutError(
                f"message was not accepted within {limit:g} s: last result {_RESULT_NAMES.get(result, result)}, "
                f"state {self.state.name}, leader: member {self.leader_member_id}"
            ) from None
        return result

    def _check_result(self, result: int) -> None:
        if self._is_closed or (result == CLOSED and self._cluster.is_closed):
            raise ClosedError(f"the client is closed: {self._poller.close_reason}")
        if result == MAX_POSITION_EXCEEDED:
            raise ClusterUnavailableError("the ingress publication reached its greatest position: connect again")

    async def request(
        self, *buffers: Buffer, key: Hashable, timeout: float | None = None, idempotent: bool | None = None
    ) -> bytes:
        """Send a message and return the payload of the reply for which ``correlate`` returns ``key``.

        ``timeout`` is in seconds, for both together (None: the message timeout). Replies that come later are
        dropped and counted in :attr:`request_counts`. Use each ``key`` once: a reply says which key it answers, and not
        which request.

        A new leader will not answer what the last one was sent. So with a new leader an ``idempotent`` request is sent
        again, before anything else and in the order in which the requests were sent first, once to each leader; the
        service may carry it out twice. Another one ends with LeaderChangedError as soon as its leader is lost. None
        leaves it to the ``resend`` of :meth:`connect`.

        Raises:
            LeaderChangedError: the leader that it was sent to is lost, or leads no longer.
            SendTimedOutError: the request was not accepted in time, and so was not sent.
            RequestTimedOutError: no reply in time; the request may have been processed anyway.
            RequestClosedError: the client gets closed, and the request may have been processed.
            ClosedError: the client is closed already.
            ConfigurationError: :meth:`connect` was given no ``correlate``.
            ClusterError: a reply with that key may still come: to a request that waits, that ended without its reply
                (the last 65,536 are remembered, until the session ends), or that was sent again.
        """
        self._check_loop()
        limit = limit_s(timeout, self._cluster.context.message_timeout)
        request = self._open_request(buffers, key, idempotent)
        try:
            async with asyncio.timeout(limit):
                await self._send(buffers, limit, request)
                payload: bytes = await request.reply
                return payload
        except TimedOutError:
            raise
        except TimeoutError:
            if request.payload is not None:  # it came in the same turn of the loop
                return request.payload
            hint = self._table.explain(self.cluster_session_id, request)
            raise request_timeout(key, limit, is_sent=request.is_sent, hint=hint) from None
        finally:
            self._close_request(request)

    def _open_request(self, buffers: tuple[Buffer, ...], key: Hashable, idempotent: bool | None) -> _AwaitedRequest:
        if self._correlate is None:
            raise ConfigurationError("request() needs a function that finds a reply's key: connect(correlate=...)")
        check_key(key)
        if key in self._requests:
            raise ClusterError(f"a request with key {key!r} is already waiting for its reply")
        self._table.check_key(self.cluster_session_id, key)
        message = as_bytes(buffers) if self._table.is_resendable(idempotent) else None
        request = _AwaitedRequest(key, self._loop.create_future(), message)
        self._requests[key] = request.reply
        return request

    def _close_request(self, request: _AwaitedRequest) -> None:
        del self._requests[request.key]
        self._table.forget(self.cluster_session_id, request)
        _forget(request.reply)

    async def request_snapshot(self, timeout: float | None = None) -> AdminResponse:
        """Ask the cluster to take a snapshot and return its answer; OK means accepted, not done.

        Raises:
            TimedOutError: no answer within ``timeout`` seconds (None: the message timeout).
            LeaderChangedError: the leader that was asked is lost, or leads no longer.
            ClosedError: the client is or gets closed.
        """
        self._check_loop()
        self._check_open()
        limit = limit_s(timeout, self._cluster.context.message_timeout)
        correlation_id = self._poller.next_correlation_id()
        answer: asyncio.Future[AdminResponse] = self._loop.create_future()
        request = _AwaitedRequest(_AdminKey(correlation_id), answer)
        self._admin_requests[correlation_id] = answer
        try:
            async with asyncio.timeout(limit):
                while not self._poller.request_snapshot(correlation_id, request):
                    await asyncio.sleep(_SEND_PAUSE_S)
                return await answer
        except TimeoutError:
            raise TimedOutError(f"no answer to the request for a snapshot within {limit:g} s") from None
        finally:
            del self._admin_requests[correlation_id]
            self._table.forget(self.cluster_session_id, request)
            _forget(answer)

    # Receiving

    def __aiter__(self) -> AsyncIterator[EgressMessage]:
        """Iterate over the service's messages, except replies to requests, until the client is closed.

        Several tasks may iterate at once: each message goes to one of them, in the order of arrival.
        """
        return self

    async def __anext__(self) -> EgressMessage:
        try:
            return await self.receive()
        except ClosedError:
            if self._poller.close_reason == _CLOSED_BY_US:
                raise StopAsyncIteration from None
            raise

    async def receive(self) -> EgressMessage:
        """The next message of the service that is not a reply to a request, and that no other task takes.

        Raises:
            ClosedError: the client is closed, and all messages have been taken.
        """
        self._check_loop()
        while not self._inbox:
            self._check_open()
            receiver = self._loop.create_future()
            self._receivers.add(receiver)
            try:
                await receiver
            finally:
                self._receivers.discard(receiver)
        message = self._inbox.take()
        self._poller.release(message)
        return message

    def _drain(self) -> None:
        """Called on the event loop when something has come."""
        self._taken.extend(self._poller.take())
        try:
            while self._taken:
                self._handle(self._taken.popleft())
        finally:
            if self._taken:  # an exception that leaves here is meant for the loop, such as KeyboardInterrupt
                self._loop.call_soon(self._drain)
        if self._poller.is_ended and not self._is_closed:
            self._end()
        if self._inbox or self._is_closed:
            for receiver in self._receivers:
                _settle(receiver, None)

    def _handle(self, item: Any) -> None:
        if isinstance(item, EgressMessage):
            if self._is_reply(item) or not self._inbox.put(item):
                self._poller.release(item)
        elif isinstance(item, Verdict):
            self._table.end(*item)
        elif isinstance(item, tuple):
            self._poller.release(item)
            self._tell(*item)
        elif isinstance(item, Exception):
            self._report("the cluster's client met an error and continues", item)

    def _is_reply(self, message: EgressMessage) -> bool:
        if self._correlate is None:
            return False
        try:
            key = reply_key(self._correlate, message.payload)
            if key is None:
                return False
            self._table.answer(self.cluster_session_id, key, message.payload)
        except Exception as error:  # also that of a key that cannot be hashed or compared
            self._report("correlate() failed; the message is taken for no reply", error)
            return False
        return True

    def _tell(self, callback: str, arguments: tuple[Any, ...]) -> None:
        if callback == "on_admin_response" and arguments[1] in self._admin_requests:
            _settle(self._admin_requests[arguments[1]], AdminResponse(*arguments[1:]))
            self._table.answer(self.cluster_session_id, _AdminKey(arguments[1]), b"")
            return
        try:
            getattr(self._listener, callback)(*arguments)
        except Exception as error:
            self._report(f"{callback}() of the listener failed", error)

    def _report(self, text: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": text, "exception": error})

    # Closing

    def _end_because(self, reason: str) -> None:
        """Let the session end for a reason of its owner; do not wait."""
        self._poller.stop(reason)

    async def aclose(self) -> None:
        """End the session and close what the connect opened. Nothing happens the second time.

        A task that waits in :meth:`send`, :meth:`request` or :meth:`receive` gets ClosedError; ``async for`` ends.
        """
        if self._parent_id:
            return
        self._check_loop()
        self._poller.stop()
        await asyncio.shield(self._ended)
        self._poller.join(_JOIN_LIMIT_S)

    def _end(self) -> None:
        self._is_closed = True
        error = RequestClosedError(f"the client is closed: {self._poller.close_reason}")
        waiters: list[asyncio.Future[Any]] = [*self._requests.values(), *self._admin_requests.values()]
        for waiting in waiters:
            if not waiting.done():
                waiting.set_exception(error)
        self._table.on_session_closed(self.cluster_session_id, str(self._poller.close_reason))
        _settle(self._ended, None)

    async def __aenter__(self) -> AsyncAeronCluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the client is closed: {self._poller.close_reason}")

    def _check_loop(self) -> None:
        if threading.get_ident() != self._thread_id:
            if self._parent_id:
                raise forks.refusal("use a client", f"the client of session {self.cluster_session_id}", self._parent_id)
            raise ClusterError(
                f"this client belongs to the event loop of another thread than "
                f"{threading.current_thread().name!r}: use asyncio.run_coroutine_threadsafe(...)"
            )


class _Connecting(Entering, Coroutine[Any, Any, AsyncAeronCluster]):
    """The result of :meth:`AsyncAeronCluster.connect`: a coroutine, for ``await``, tasks and ``async with``."""

    _client_type = AsyncAeronCluster

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, AsyncAeronCluster]]) -> None:
        self._connect = connect
        self._client: AsyncAeronCluster

    @cached_property
    def _connecting(self) -> Coroutine[Any, Any, AsyncAeronCluster]:
        # Made when it is awaited. A connect that never is has opened nothing, and needs no warning.
        return self._connect()

    def __await__(self) -> Generator[Any, Any, AsyncAeronCluster]:
        return self._connecting.__await__()

    def send(self, value: Any) -> Any:
        if value is not None:  # a loop sends None: this is a message, and meant for the client
            raise TypeError(not_entered("AsyncAeronCluster"))
        return self._connecting.send(value)

    def throw(self, *error: Any) -> Any:
        return self._connecting.throw(*error)

    def close(self) -> None:
        self._connecting.close()

    async def __aenter__(self) -> AsyncAeronCluster:
        self._client = await self
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()


def check_async_listener(name: str, listener: object) -> EgressListener:
    """Refuse a listener that would never be called, with a ConfigurationError; ``name`` is the function that refuses
    it."""
    if not isinstance(listener, EgressListener):
        raise ConfigurationError(f"{name}() takes an EgressListener in Python, not {listener!r}")
    if getattr(listener.on_message, "__func__", None) is not EgressListener.on_message:
        raise ConfigurationError(
            f"{name}() never calls on_message of {type(listener).__name__}: take messages with 'async for' or "
            "receive(), and give a listener without on_message"
        )
    return listener


async def connect_session(
    context: ClientContext,
    listener: EgressListener,
    correlate: Correlate | None,
    max_waiting: int,
    max_waiting_bytes: int,
    resend: bool,
    *,
    patience_ns: int = 0,
) -> AsyncAeronCluster:
    """Connect as :meth:`AsyncAeronCluster.connect` does, with arguments that are checked.

    With ``patience_ns`` give up also when a step is unanswered for that long.
    """
    connecting = await _begin(context)
    try:
        if patience_ns > 0:
            connecting._be_impatient(patience_ns)
        while (cluster := connecting.poll()) is None:
            await asyncio.sleep(_CONNECT_PAUSE_S)
    except asyncio.CancelledError:
        try:
            while not connecting._poll_end():
                await asyncio.sleep(_CONNECT_PAUSE_S)
        finally:
            connecting._close_now()
        raise
    except BaseException:
        connecting.close()
        raise
    return make(AsyncAeronCluster, cluster, listener, correlate, max_waiting, max_waiting_bytes, resend=resend)


async def _begin(context: ClientContext) -> AsyncConnect:
    # In a thread: an Aeron client of its own may have to wait for its driver.
    beginning = asyncio.get_running_loop().run_in_executor(None, AsyncConnect, context)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        beginning.add_done_callback(_give_up)
        raise


def _give_up(beginning: asyncio.Future[AsyncConnect]) -> None:
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().close()


def request_timeout(key: Hashable, limit: float, *, is_sent: bool, hint: str) -> TimedOutError:
    """The error of a request that has waited for its whole time limit, in seconds."""
    if is_sent:
        return no_reply_error(key, limit, hint)
    return SendTimedOutError(f"request with key {key!r} was not accepted within {limit:g} s")


def _waker(client: AsyncAeronCluster) -> Callable[[ClientPoller], None]:
    """Return a function for the poller's thread. It does not keep the client alive, so that a forgotten client ends."""
    loop, reference = asyncio.get_running_loop(), weakref.ref(client)

    def drain() -> None:
        if (alive := reference()) is not None:
            alive._drain()

    def wake(poller: ClientPoller) -> None:
        loop.call_soon_threadsafe(drain)

    return wake


def _settle[T](future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _forget(future: asyncio.Future[Any]) -> None:
    """Drop a future that nobody awaits any more, and keep asyncio from reporting its error as never retrieved."""
    if not future.cancel() and not future.cancelled():
        future.exception()
