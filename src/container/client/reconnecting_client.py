"""The blocking reconnecting client: it opens a new session when the old one ends."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Buffer, Callable, Hashable
from types import TracebackType
from typing import Self, Unpack

from container.client.aeron_cluster import AeronCluster, AsyncConnect, ClientState
from container.client.client_context import ClientContext, ClientSettings, context_of, limit_s
from container.client.connect_steps import ConnectStep
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
    Deadlines,
    Request,
    as_bytes,
    check_key,
    check_requests,
    is_idempotent,
    no_reply_error,
)
from container.client.silence import Signs, Silence, Verdict, has_other_members, may_pass, replaced
from container.common.doors import EnteredByWith, make
from container.errors import (
    ClosedError,
    ConfigurationError,
    ContainerError,
    OutboxFullError,
    Outcome,
    RequestClosedError,
    RequestTimedOutError,
    SendTimedOutError,
    TimedOutError,
)

_NS_PER_S = 1_000_000_000
_PAUSE_S = 0.001


class _Item:
    """A message that waits to be sent, or for its reply."""

    __slots__ = (
        "deadline_ns",
        "error",
        "in_flight",
        "is_idempotent",
        "is_sent",
        "key",
        "message",
        "request",
        "sends",
        "sent_ns",
        "timeout",
    )

    def __init__(self, message: bytes, timeout: float, deadline_ns: int) -> None:
        self.message = message
        self.timeout = timeout
        self.deadline_ns = deadline_ns
        self.request: Request | None = None  # the user's; None of a message without one
        self.key: Hashable = None
        self.in_flight: Request | None = None  # the session's, while it waits for its reply
        self.is_idempotent = False
        self.is_sent = False
        self.sends = 0
        self.sent_ns = 0  # the first time
        self.error: ContainerError | None = None

    @property
    def is_done(self) -> bool:
        return self.is_sent or self.error is not None or (self.request is not None and self.request.is_done)

    def fail(self, error: ContainerError) -> None:
        """End it, with an outcome that is unknown if it was sent in an earlier session."""
        if self.sends > 0 and error.outcome is Outcome.NOT_DONE:
            error = RequestClosedError(f"request with key {self.key!r}: {error}; its outcome is unknown")
        self.error = error
        if self.request is not None:
            self.request.end(error=error)


class ReconnectingClient(ReconnectingBase, EnteredByWith):
    """A client of the cluster that outlives its sessions; made by :meth:`connect`. One thread uses it.

    **Call** :meth:`poll` **often**: it receives, connects again, and sends what waits in the outbox. A message
    that a session has accepted is not sent again, as it may have been processed; a request is, if it is idempotent.
    """

    def __init__(
        self,
        connect: Callable[[], AsyncConnect],
        context: ClientContext,
        correlate: Correlate | None,
        policy: ReconnectPolicy,
        outbox: Outbox,
        callbacks: ConnectionListener,
        *,
        resend: bool,
        driver: LastingDriver | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Use :meth:`connect`."""
        super().__init__(context, policy, outbox, callbacks, resend=resend, driver=driver, now_ns=now_ns())
        self._connect = connect
        self._correlate = correlate
        self._now_ns = now_ns
        self._connecting: AsyncConnect | None = None
        self._cluster: AeronCluster | None = None  # of the session that there is
        self._silence: Silence | None = None  # of that session
        self._probe: AsyncConnect | None = None  # beside it
        self._needless: list[AsyncConnect] = []  # probes that were given up, which may have a session yet
        self._term = -1
        self._in_flight: dict[Request, OutboxEntry] = {}  # by the session's own request
        self._settled: deque[Request] = deque()  # of these, those that have ended
        self._deadlines: Deadlines[OutboxEntry] = Deadlines(lambda entry: entry.item.is_done)
        self._is_ended = False

    @staticmethod
    def connect(
        context: ClientContext | None = None,
        *,
        correlate: Correlate | None = None,
        resend: bool = False,
        policy: ReconnectPolicy | None = None,
        callbacks: ConnectionListener | None = None,
        outbox_policy: OutboxPolicy = OutboxPolicy.BLOCK,
        outbox_messages: int = 1_000,
        outbox_bytes: int = 16 * 1024 * 1024,
        resolve: Callable[[], str] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> ReconnectingClient:
        """Return a reconnecting client: ``with ReconnectingClient.connect(...) as client``. It does not wait.

        Arguments as for :meth:`AsyncReconnectingClient.connect`, and so are the attempts and their reports. A poll
        calls the callbacks, and raises what they raise. Raises ConfigurationError immediately for a bad setting;
        ``with`` raises what ended the first attempts.
        """
        check_connection_arguments(context, policy, callbacks, resolve, resend=resend)
        check_requests(correlate, resend)
        base = context_of(context, settings, *KEYWORDS)
        check_not_shared(base)

        driver = LastingDriver()

        def attempt() -> AsyncConnect:
            return AsyncConnect(attempt_context(base, resolve, driver))

        return make(
            ReconnectingClient,
            attempt,
            base,
            correlate,
            ReconnectPolicy() if policy is None else policy,
            Outbox(max_messages=outbox_messages, max_bytes=outbox_bytes, policy=outbox_policy),
            ConnectionListener() if callbacks is None else callbacks,
            resend=resend,
            driver=driver,
        )

    def __repr__(self) -> str:
        return f"<ReconnectingClient {self.state.value} outbox={len(self._outbox)} {self._cluster!r}>"

    @property
    def cluster(self) -> AeronCluster | None:
        """The client of the present session; None while there is none."""
        return self._cluster

    # Sending

    def send(self, *buffers: Buffer, timeout: float | None = None) -> None:
        """Send a message: poll and idle until there is a session and its turn has come.

        ``timeout`` is in seconds (None: the message timeout). Not from a listener's callback.

        Raises:
            SendTimedOutError: after the timeout; the message was not sent.
            OutboxFullError: the outbox has no room, or gave it to a newer message.
            ClosedError: the client is or gets closed.
            MessageTooLongError: the message is longer than the cluster takes.
        """
        item = self._item(buffers, timeout)
        entry = self._put(item)
        try:
            while not item.is_done:
                self._wait_once()
        finally:
            self._outbox.remove(entry)
        if item.error is not None:
            raise item.error

    def request(
        self, *buffers: Buffer, key: Hashable, timeout: float | None = None, idempotent: bool | None = None
    ) -> bytes:
        """Send a message and return its reply's payload; as :meth:`AeronCluster.request`.

        An ``idempotent`` request whose session ends is sent again in the next, in its place. Raise as that does, and
        OutboxFullError as :meth:`send`. When a callback raises, that comes out of here, and a request that was not sent
        yet never will be.
        """
        request, entry = self._begin(buffers, key, timeout, idempotent)
        try:
            return request.wait()
        finally:
            if not request.is_done:
                self._abandon(entry)

    def begin_request(
        self, *buffers: Buffer, key: Hashable, timeout: float | None = None, idempotent: bool | None = None
    ) -> Request:
        """Put a request into the outbox, and return a :class:`Request` that polls drive, so that many can be in
        flight. Raise OutboxFullError as :meth:`send`, ClosedError, and ConfigurationError without ``correlate``."""
        return self._begin(buffers, key, timeout, idempotent)[0]

    def _begin(
        self, buffers: tuple[Buffer, ...], key: Hashable, timeout: float | None, idempotent: bool | None
    ) -> tuple[Request, OutboxEntry]:
        if self._correlate is None:
            raise ConfigurationError("request() needs a function that finds a reply's key: connect(correlate=...)")
        check_key(key)
        item = self._item(buffers, timeout)
        item.key = key
        item.is_idempotent = is_idempotent(idempotent, self._resend)
        item.request = Request(key, timeout=item.timeout, deadline_ns=item.deadline_ns, poll=self._wait_once)
        entry = self._put(item)
        self._send_waiting(entry)
        return item.request, entry

    def _abandon(self, entry: OutboxEntry) -> None:
        """Nobody waits for a request any more: it is not sent, or not again in another session."""
        item: _Item = entry.item
        item.is_idempotent = False
        if item.in_flight is None:
            self._fail(entry, RequestClosedError(f"request with key {item.key!r}: its caller was interrupted"))

    def _item(self, buffers: tuple[Buffer, ...], timeout: float | None) -> _Item:
        self._check_open()
        limit = limit_s(timeout, self._context.message_timeout)
        return _Item(as_bytes(buffers), limit, self._now_ns() + int(limit * _NS_PER_S))

    def _put(self, item: _Item) -> OutboxEntry:
        length = len(item.message)
        if self._outbox.policy is OutboxPolicy.BLOCK and length <= self._outbox.max_bytes:
            while not self._outbox.has_room(length):
                if self._now_ns() >= item.deadline_ns:
                    raise SendTimedOutError(f"no room in the outbox within {item.timeout:g} s: {self._outbox.summary}")
                self._wait_once()
                self._check_open()
        entry, gone = self._outbox.put(length, item)
        self._deadlines.add(item.deadline_ns, entry)
        for dropped in gone:
            self._fail(dropped, OutboxFullError("the message gave its room in the outbox to a newer one"))
        return entry

    def _send_waiting(self, new: OutboxEntry | None = None) -> int:
        """Send what has time left; ``new`` is tried once however little it has."""
        sent = 0
        while self._cluster is not None and not self._cluster.is_closed:
            entry = self._outbox.first()
            if entry is None:
                break
            if entry is not new and self._now_ns() >= entry.item.deadline_ns:
                self._fail(entry, self._time_is_up(entry.item))
                continue
            try:
                if not self._send_entry(entry, self._cluster):
                    break
            except ContainerError as error:  # the message's own: too long, or its key is taken
                self._fail(entry, error)
            self._outbox.remove(entry)
            sent += 1
        return sent

    def _send_entry(self, entry: OutboxEntry, cluster: AeronCluster) -> bool:
        item: _Item = entry.item
        if item.request is None:
            item.is_sent = cluster.offer(item.message) > 0
            return item.is_sent
        left = max(0, item.deadline_ns - self._now_ns()) / _NS_PER_S
        request = cluster.try_request(item.message, key=item.key, timeout=left, idempotent=item.is_idempotent)
        if request is None:
            return False
        request._on_end = self._settled.append
        self._in_flight[request] = entry
        item.in_flight = request
        if item.sends == 0:
            self._sent += 1
            item.sent_ns = self._now_ns()
        self._resent += item.sends > 0
        item.sends += 1
        return True

    def _fail(self, entry: OutboxEntry, error: ContainerError) -> None:
        self._outbox.remove(entry)
        self._unknown += entry.item.sends > 0
        entry.item.fail(error)

    # Polling

    def poll(self) -> int:
        """Hear what the cluster sends, connect again, and send what waits. Never wait.

        Return the work done (int). Raise what the listener raises, and ClosedError when the client is closed.
        """
        self._check_open()
        now_ns = self._now_ns()
        work_count = int(self._machine.poll(now_ns))
        if self._needless:
            self._end_needless()
        if self.state is ConnectionState.CONNECTING:
            work_count += self._poll_attempt(now_ns)
        if self.state is ConnectionState.CONNECTED:
            work_count += self._poll_session(now_ns)
        self._expire(now_ns)
        return work_count + self._send_waiting()

    def idle(self, work_count: int = 0) -> None:
        """Wait once, by the idle strategy, unless there was work: ``work_count`` is what a poll returned. Without a
        session, wait for a millisecond."""
        if self._cluster is not None:
            self._cluster.idle(work_count)
        elif work_count == 0:
            time.sleep(_PAUSE_S)

    def _wait_once(self) -> None:
        self.idle(self.poll())

    def _poll_attempt(self, now_ns: int) -> int:
        attempts = self._machine.failures + 1
        try:
            if self._connecting is None:
                self._connecting = self._connect()
            cluster = self._connecting.poll()
        except ContainerError as error:
            return self._attempt_failed(error, now_ns)
        except OSError as error:
            return self._attempt_failed(attempt_error(error), now_ns)
        except BaseException as error:  # of the credentials supplier, for one
            self._attempt_failed(ClosedError(f"the attempt to connect failed: {type(error).__name__}: {error}"), now_ns)
            raise
        if cluster is None:
            return 0
        self._connecting = None
        self._cluster = self._counted = cluster
        self._silence = Silence(
            self._machine.policy,
            has_others=has_other_members(cluster.context.ingress_endpoints),
            random=random.random,
            now_ns=now_ns,
        )
        self._term = cluster.leadership_term_id
        if self._correlate is not None:
            cluster.enable_requests(self._correlate, resend=self._resend)
        self._machine.on_connected()
        if self._machine.sessions > 1:
            self._callbacks.on_reconnected(attempts)
        return 1

    def _attempt_failed(self, error: ContainerError, now_ns: int) -> int:
        self._connecting = None  # closed
        self._machine.on_failed(error, now_ns)
        self._failure_log.failed(self._machine, now_ns)
        self._end_if_closed()
        return 1

    def _poll_session(self, now_ns: int) -> int:
        cluster = self._cluster
        assert cluster is not None
        work_count = 0
        try:
            if not cluster.is_closed:
                work_count = cluster.poll_egress()
        finally:
            self._settle()
        if self._cluster is cluster and cluster.leadership_term_id != self._term:
            self._term = cluster.leadership_term_id
            self._callbacks.on_leader_changed(cluster.leader_member_id, self._term)
        if self._cluster is cluster and not cluster.is_closed:
            work_count += self._watch(cluster, now_ns)
        if self._cluster is cluster and cluster.is_closed:  # and no callback has closed this client
            self._settle()
            self._forget_session(cluster)
            error = ClosedError(f"the session ended: {cluster.close_reason}")
            self._machine.on_lost(error, now_ns)
            if self._probe is not None and self._machine.hasten(now_ns):
                self._connecting, self._probe = self._probe, None
            try:
                self._callbacks.on_disconnected(error)
            finally:
                self._end_if_closed()
        return work_count

    # A probe beside a session that is silent

    def _watch(self, cluster: AeronCluster, now_ns: int) -> int:
        """Begin a probe when it is due, and take it a step on. The session is closed when a probe has replaced it."""
        silence = self._silence
        assert silence is not None
        if silence.due_ns is not None and now_ns >= silence.due_ns:
            is_unsent = len(self._outbox) > 0
            if silence.look(Signs(*cluster._signs()), now_ns, is_unsent=is_unsent) and self._probe is None:
                silence.on_begun(now_ns)
                self._poll_probe(silence, cluster, now_ns, begins=True)
                return 1
        return 0 if self._probe is None else self._poll_probe(silence, cluster, now_ns)

    def _poll_probe(self, silence: Silence, cluster: AeronCluster, now_ns: int, *, begins: bool = False) -> int:
        try:
            if begins:
                self._probe = self._connect()
                self._probe._be_impatient(silence.answer_limit_ns())
            assert self._probe is not None
            probed = self._probe.poll()
        except Exception as error:  # of the user's functions as well: the next attempt without a session raises it
            self._probe = None  # closed
            silence.on_failed(is_retryable=may_pass(error))
            return 1
        if probed is None:
            if silence.is_broken and cluster.state is ClientState.CONNECTED:
                self._needless.append(self._probe)
                self._probe = None
            return 0
        verdict = silence.judge(
            term=cluster.leadership_term_id,
            is_connected=cluster.state is ClientState.CONNECTED,
            probe_term=probed.leadership_term_id,
            now_ns=now_ns,
        )
        if verdict is Verdict.KEEP:
            self._probe = None
            probed.close()
        elif verdict is Verdict.REPLACE:
            cluster._end_because(
                replaced(cluster.leadership_term_id, probed.leader_member_id, probed.leadership_term_id)
            )
        return int(verdict is not Verdict.WAIT)

    def _end_needless(self) -> None:
        for probe in [probe for probe in self._needless if probe._poll_end()]:
            self._needless.remove(probe)
            probe.close()

    def _end_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            close_probe(probe)
        while self._needless:
            self._needless.pop().close()

    def _settle(self) -> None:
        """End the requests whose request to the session has ended, or put them back."""
        while self._settled:
            request = self._settled.popleft()
            entry = self._in_flight.pop(request)
            item: _Item = entry.item
            item.in_flight = None
            if request.error is None:
                self._answered += 1
                self._round_trips.record(self._now_ns() - item.sent_ns)
                assert item.request is not None
                item.request.end(payload=request.payload)
            elif isinstance(request.error, RequestClosedError) and item.is_idempotent and not self.is_closed:
                self._outbox.put_back(entry)
                self._deadlines.add(item.deadline_ns, entry)
            elif isinstance(request.error, RequestTimedOutError):
                self._fail(entry, self._time_is_up(item, request.hint))  # of all sessions, and not of the last alone
            else:
                self._fail(entry, request.error)

    def _forget_session(self, cluster: AeronCluster) -> None:
        self._count_ended(cluster)
        self._cluster = None

    def _expire(self, now_ns: int) -> None:
        for entry in self._deadlines.due(now_ns):
            if entry in self._outbox:  # what is in flight, the session's table ends
                self._fail(entry, self._time_is_up(entry.item))

    def _time_is_up(self, item: _Item, hint: str = "") -> TimedOutError:
        if item.sends > 0:
            return no_reply_error(item.key, item.timeout, hint)
        awaited = None if self._connecting is None else self._connecting.awaited
        return SendTimedOutError(
            f"message was not accepted within {item.timeout:g} s: {self._why_unsent(self._cluster, awaited)}"
        )

    # Closing

    def __enter__(self) -> Self:
        """Wait for the first session; raise why there is none when the policy gives up."""
        try:
            while self._machine.sessions == 0 and not self.is_closed:
                self._wait_once()
        except BaseException:
            self.close()
            raise
        if self._machine.sessions == 0 and self._machine.error is not None:
            raise self._machine.error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session and connect no more; what waits gets ClosedError. Nothing happens the second time.

        From a listener's callback the session ends with the poll. Raise ClusterError on another thread than the
        client's while that is alive, and then nothing has changed.
        """
        if self.is_closed:
            return
        cluster = self._cluster
        if cluster is not None:
            cluster.close()
        self._machine.close(ClosedError(CLOSED_BY_US))
        if self._connecting is not None:
            close_probe(self._connecting)
            self._connecting = None
        self._end_probe()
        if cluster is not None:
            self._settle()
            self._forget_session(cluster)
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        error = self._machine.error
        if not self.is_closed or error is None or self._is_ended:
            return
        self._is_ended = True
        self._end_probe()
        self._driver.close()
        for entry in self._outbox.entries():
            self._fail(entry, ClosedError(f"the client is closed: {error}"))
        self._callbacks.on_closed(error)


def close_probe(probe: AsyncConnect) -> None:
    """Give a connect up, or close the session that it has."""
    if probe.step is ConnectStep.DONE:
        probe.poll().close()  # type: ignore[union-attr]
    else:
        probe.close()
