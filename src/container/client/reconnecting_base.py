"""The base of the two reconnecting clients, the blocking one and asyncio's."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from container.client.client_context import ClientContext, check_context, check_flag, check_instance
from container.client.client_metrics import ClientMetrics
from container.client.own_driver import LastingDriver
from container.client.reconnection import ConnectionState, Outbox, Reconnection, ReconnectPolicy
from container.client.requests import NO_REQUESTS, RequestCounts
from container.client.round_trip_recorder import RoundTripRecorder
from container.common import forks
from container.common.values import shown
from container.errors import ClosedError, ClusterUnavailableError, ConfigurationError, ContainerError
from container.transport.clocks import SystemClock

if TYPE_CHECKING:
    from container.client.aeron_cluster import AeronCluster
    from container.client.async_client import AsyncAeronCluster

CLOSED_BY_US = "closed by this client"

KEYWORDS = (
    "correlate",
    "resend",
    "policy",
    "callbacks",
    "outbox_policy",
    "outbox_messages",
    "outbox_bytes",
    "resolve",
)
"""Arguments of both functions beside the settings."""


_REPORT_INTERVAL_NS = 10_000_000_000

_LOGGER = logging.getLogger("container.client")


class ConnectionListener:
    """Receives events of the connection; override the methods you need.

    With asyncio the methods run on the event loop, and what they raise goes to its exception handler. Else they run in
    polls, and what they raise comes out of the poll.
    """

    def on_disconnected(self, error: ContainerError) -> None:
        """The session ended; attempts to connect begin."""

    def on_reconnected(self, attempts: int) -> None:
        """There is a new session; ``attempts`` counts the attempts it took, from 1."""

    def on_leader_changed(self, leader_member_id: int, leadership_term_id: int) -> None:
        """Within the session another member leads, or the same one in another term."""

    def on_closed(self, error: ContainerError) -> None:
        """The client is closed, and connects no more: by :meth:`AsyncReconnectingClient.aclose`, by an error that no
        retry can help, or by the limits of its policy."""


class FailureLog:
    """Reports attempts to connect that fail to the logger ``container.client``, at level WARNING: the first, and one in
    10 s of those that follow."""

    def __init__(self, context: ClientContext) -> None:
        self._where = context.ingress_endpoints or context.ingress_channel
        self._due_ns: int | None = None

    def failed(self, machine: Reconnection, now_ns: int) -> None:
        """The machine has heard of a failed attempt. Where it gives up there is an error to raise, and no report."""
        if machine.state is not ConnectionState.WAITING or (self._due_ns is not None and now_ns < self._due_ns):
            return
        self._due_ns = now_ns + _REPORT_INTERVAL_NS
        _LOGGER.warning(
            "no session with the cluster at %s after %d attempts to connect, the next in %.1f s: %s",
            self._where,
            machine.failures,
            machine.wait_ns(now_ns) / 1e9,
            machine.error,
        )


class ReconnectingBase:
    """Where a reconnecting client is; for those who derive from it, its state machine and its outbox."""

    _ended = ClientMetrics()  # of the sessions that have ended
    _counted: AeronCluster | AsyncAeronCluster | None = None  # whose counts are not yet among those of all sessions
    _parent_id = 0  # of the process of which this one is a fork

    def __init__(
        self,
        context: ClientContext,
        policy: ReconnectPolicy,
        outbox: Outbox,
        callbacks: ConnectionListener,
        *,
        resend: bool,
        driver: LastingDriver | None,
        now_ns: int,
    ) -> None:
        self._context = context
        self._outbox = outbox
        self._callbacks = callbacks
        self._resend = resend
        self._driver = LastingDriver() if driver is None else driver
        self._machine = Reconnection(policy, random=random.random, now_ns=now_ns)
        self._failure_log = FailureLog(context)
        self._round_trips = RoundTripRecorder(SystemClock())  # over all sessions
        self._sent = self._answered = self._unknown = self._resent = self._unmatched = 0
        forks.own(self)

    def _disown(self, process_id: int) -> None:
        """In a forked child: closed, with nothing sent; what waits in the outbox is the parent's to send."""
        self._parent_id = process_id
        self._machine.close(ClosedError(f"it was made in process {process_id}, of which this one is a forked child"))

    @property
    def request_counts(self) -> RequestCounts:
        """Counts of the requests of all sessions, by outcome; one that waits to be sent again is in flight."""
        now = self._counted.request_counts if self._counted is not None else None
        return RequestCounts(
            self._sent,
            self._answered,
            self._resent + (now.resent if now else 0),
            self._unknown,
            self._unmatched + (now.unmatched if now else 0),
            self._sent - self._answered - self._unknown,
        )

    def metrics(self) -> ClientMetrics:
        """Counts of the client so far, over all sessions. A request's round trip begins when it is sent first."""
        session = self._counted.metrics() if self._counted is not None else ClientMetrics()
        return self._totals(session, self.request_counts)

    def _count_ended(self, session: AeronCluster | AsyncAeronCluster) -> None:
        if (counts := session.request_counts) is not None:
            self._resent += counts.resent
            self._unmatched += counts.unmatched
        self._ended = self._totals(session.metrics(), NO_REQUESTS)
        self._counted = None

    def _totals(self, session: ClientMetrics, counts: RequestCounts) -> ClientMetrics:
        """Counts of the client's ended sessions and of the present one."""
        ended = self._ended
        return ClientMetrics(
            sent=ended.sent + session.sent,
            received=ended.received + session.received,
            back_pressured=ended.back_pressured + session.back_pressured,
            leader_changes=ended.leader_changes + session.leader_changes,
            requests=counts.sent,
            answered=counts.answered,
            resent=counts.resent,
            unknown=counts.unknown,
            unmatched=counts.unmatched,
            reconnects=max(0, self.sessions - 1),
            in_flight=counts.in_flight,
            waiting=len(self._outbox),
            unread=session.unread,
            sessions=session.sessions,
            connecting=int(self.state is ConnectionState.CONNECTING),
            round_trips=self._round_trips.snapshot(),
        )

    @property
    def state(self) -> ConnectionState:
        """Whether there is a session, or one is sought."""
        return self._machine.state

    @property
    def is_closed(self) -> bool:
        """True once closed; :attr:`error` says why."""
        return self.state is ConnectionState.CLOSED

    @property
    def error(self) -> ContainerError | None:
        """The error that ended the last session or attempt, or the client; None while there is a session."""
        return self._machine.error

    @property
    def sessions(self) -> int:
        """How many sessions there have been so far."""
        return self._machine.sessions

    @property
    def waiting(self) -> int:
        """Messages in the outbox."""
        return len(self._outbox)

    def _why_unsent(self, session: AeronCluster | AsyncAeronCluster | None, awaited: str | None = None) -> str:
        """The reason why a message was not accepted in time; ``awaited`` is what a connect waits for."""
        where = self._context.ingress_endpoints or self._context.ingress_channel
        if session is not None and self.error is None:
            return (
                f"session {session.cluster_session_id} is there, in state {session.state.name}, and member "
                f"{session.leader_member_id} ({where}) took nothing: it stands still, is gone or cannot keep up. "
                "Look at that node, or give the message more time (timeout=)"
            )
        why = "there is no session yet" if self.error is None else str(self.error)
        now = "" if awaited is None else f", and waits for {awaited}"
        return f"{self.state.value}, {why}; it connects to {where}{now}"

    def _check_open(self) -> None:
        if self._parent_id:
            raise forks.refusal("use a client", "the reconnecting client", self._parent_id)
        if self.is_closed:
            raise ClosedError(f"the client is closed: {self._machine.error}") from self._machine.error


def check_connection_arguments(
    context: object, policy: object, callbacks: object, resolve: object, *, resend: object
) -> None:
    """Refuse arguments of wrong types, with a ConfigurationError."""
    check_context(context)
    check_instance("policy", policy, ReconnectPolicy, type(None))
    check_instance("callbacks", callbacks, ConnectionListener, type(None))
    if resolve is not None and not callable(resolve):
        raise ConfigurationError(f"resolve must be callable or None, not {shown(resolve)}")
    check_flag("resend", resend)


def check_not_shared(context: ClientContext) -> None:
    """Refuse a context with a client of the transport, with a ConfigurationError: each session makes its own."""
    if context.client is not None:
        raise ConfigurationError("client must be None: a reconnecting client makes one for each session")


def attempt_context(context: ClientContext, resolve: Callable[[], str] | None, driver: LastingDriver) -> ClientContext:
    """The context of one attempt, with the ingress endpoints and the driver of now. It may wait for both.

    Raises ClusterUnavailableError where ``resolve`` raises OSError.
    """
    if resolve is not None:
        try:
            context = replace(context, ingress_endpoints=resolve())
        except OSError as error:  # a name server that does not answer, for one
            raise ClusterUnavailableError(f"resolve() failed: {error}") from error
    return driver.context(context)
