"""Thousands of sessions with the cluster over one Aeron client, for gateways: one ingress, one egress, one poll.

One session of its own, an AeronCluster, connects and follows the leader; the pooled sessions use its publication and
its subscription, and differ by the session id in their messages alone. The members publish to all of them on one
stream, because all name the same response channel. A poll costs nothing for a session that is silent; what a session
costs is its keep alives, which a heap orders by when they are due.

A session that is lost is connected again over the same streams, the pool's own too; only when the streams are lost all
are connected again, over new ones. :mod:`container.client.replacement` decides when.
"""
import enum
import random
from collections import OrderedDict, deque
from dataclasses import replace
from heapq import heappop, heappush, heapreplace

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from container.client.aeron_cluster cimport AeronCluster, check_message_length, claim_message
from container.client.aeron_cluster import AeronCluster as _AeronCluster, AsyncConnect
from container.client.connect_steps cimport LATE_ANSWER_NS, PROTOCOL_VERSION, response_channel_of, session_refusal
from container.client.client_context import check_setting, context_of, limit_s
from container.client.egress_handler cimport EgressHandler, MessageCopy, egress_handler
from container.client.client_metrics import ClientMetrics
from container.client.reconnecting_base import FailureLog
from container.client.reconnection import ConnectionState, Reconnection, ReconnectPolicy, attempt_error
from container.client.replacement import PoolListener, Replacements, check_pool_arguments
from container.client.requests import RequestTable, check_requests
from container.codecs cimport cluster as codec
from container.codecs.sbe cimport MessageHeader, sbe_read_header
from container.common.doors import made_by_hand, wrong_with
from container.common.process_end import Stage, close_at_end, close_unless_guarded
from container.common.sealed cimport seal
from container.errors import (
    ClosedError, ClusterError, ClusterUnavailableError, ContainerError, SendTimedOutError, TimedOutError,
)
from container.transport.buffer_vectors cimport BufferVectors, gather_vectors, release_vectors
from container.transport.decoding cimport check_codec, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.message_buffer cimport BufferClaim
from container.transport.frames cimport ACTION_ABORT, ACTION_CONTINUE, CLOSED, NOT_CONNECTED, Claim, FrameHeader
from container.transport.streams cimport FragmentHandler, Publication, publication_result_name
from container.version import client_info

cdef enum:
    FRAGMENT_LIMIT = 64
    MAX_SENDS_OF_A_POLL = 64                    # of each kind of request, so that a poll is short
    MAX_LATE = 65_536                           # requests given up unanswered that are remembered
    HEADER_LENGTH = codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET

    SESSION_CONNECTING = 0                      # PooledSessionState
    SESSION_CONNECTED = 1
    SESSION_CLOSED = 2
    SESSION_WAITING = 3

    NO_DEADLINE = 0                             # it begins when the session's request is sent

cdef int64_t NS_PER_S = 1_000_000_000
cdef int64_t NEVER_NS = 2 ** 63 - 1
cdef str CLOSED_BY_US = "closed by this client"


class PooledSessionState(enum.IntEnum):
    """Whether a pooled session can send."""

    CONNECTING = 0
    CONNECTED = 1
    CLOSED = 2
    WAITING = 3
    """It was lost, and connects again after a while."""


cdef object _credentials_error(object error):
    """Why an attempt failed (ContainerError) whose credentials supplier raised that."""
    if isinstance(error, ContainerError):
        return error
    failed = ClosedError(f"pooled session: its credentials supplier failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


cdef class PooledSession:
    """One session of a :class:`SessionPool`, made by :meth:`SessionPool.open`.

    When it is lost the pool connects it again, with a new :attr:`cluster_session_id`: see :meth:`SessionPool.connect`.

    Attributes:
        pool: the pool that opened it (SessionPool).
        listener: the receiver of its egress: its own, or the one of the pool's context.
        credentials_supplier: the supplier of its credentials, or None.
        cluster_session_id: the session's id (int); -1 while it is not connected.
        sessions: the number of sessions with the cluster it has had so far (int).
        close_reason: the reason why it is closed (str); None before.
        error: the exception that explains why it is not connected; None while it is, and before the first attempt ends.
    """

    cdef readonly SessionPool pool
    cdef readonly object listener
    cdef EgressHandler _handler                 # calls the listener
    cdef readonly object credentials_supplier
    cdef readonly int64_t cluster_session_id    # -1 while it is not connected
    cdef readonly int sessions                  # how many sessions with the cluster it has had so far
    cdef readonly str close_reason              # None before
    cdef readonly object error                  # why it is not connected (an exception); None while it is, or never was
    cdef int _state
    cdef int64_t _deadline_ns                   # of the attempt to connect, or NO_DEADLINE
    cdef int64_t _last_send_ns
    cdef int64_t _keep_alive_number             # of its place in the pool's heap
    cdef int64_t _term                          # the last one whose leader is known to have the session
    cdef int64_t _correlation_id                # of what the cluster was asked last
    cdef bytes _challenge                       # to be answered, or None
    cdef int64_t _challenged_session_id
    cdef bint _is_queued                        # its request waits to be sent, or it did and is no longer to be

    def __init__(self):
        raise TypeError("use SessionPool.open()")

    @property
    def state(self):
        """Whether the session can send (PooledSessionState)."""
        return PooledSessionState(self._state)

    @property
    def is_closed(self):
        """True once the session is closed, or could not be connected: see :attr:`close_reason`."""
        return self._state == SESSION_CLOSED

    @property
    def max_payload_length(self):
        """The longest message that :meth:`try_claim` takes, in bytes; 0 while there is no leader."""
        return self.pool.cluster.max_payload_length

    @property
    def max_message_length(self):
        """The longest message that the cluster takes, in bytes; 0 while there is no leader."""
        return self.pool.cluster.max_message_length

    def offer(self, *buffers):
        """Try once to send a message; as :meth:`AeronCluster.offer`, and NOT_CONNECTED while the session is not."""
        return self.pool._offer(self, buffers)

    def try_claim(self, Py_ssize_t length, BufferClaim buffer_claim not None):
        """Try once to claim ``length`` bytes of the ingress stream for a message, which is written in place; as
        :meth:`AeronCluster.try_claim`, and NOT_CONNECTED while the session is not."""
        return self.pool._try_claim(self, length, buffer_claim)

    def send(self, *buffers, timeout=None):
        """Send a message, poll the pool and idle until it is accepted; as :meth:`AeronCluster.send`.

        A session that is lost meanwhile sends it when it is connected again. ``timeout`` is in seconds, from 0 (None:
        the message timeout). Raise SendTimedOutError after it, ClosedError when the session is or gets closed, and as
        :meth:`offer` and :meth:`SessionPool.poll` do. From a listener's callback the pool is not polled, so there a
        lost leader or session is a ClusterUnavailableError immediately.
        """
        return self.pool._send(self, buffers, timeout, None)

    def request(self, *buffers, key, timeout=None, idempotent=None):
        """Send a message and return its reply's payload (bytes); as :meth:`AeronCluster.request`.

        Keys are of each session. The pool needs ``correlate``: see :meth:`SessionPool.connect`.
        """
        return self.begin_request(*buffers, key=key, timeout=timeout, idempotent=idempotent).wait()

    def begin_request(self, *buffers, key, timeout=None, idempotent=None):
        """Send a message and return a :class:`container.client.Request`; as :meth:`AeronCluster.begin_request`.

        A session that is lost ends its requests, whatever they are, with RequestClosedError: outcome unknown.
        """
        return self.pool._begin_request(self, buffers, key, timeout, idempotent)

    def close(self):
        """End the session, which reaches the cluster if there is a leader. Nothing happens the second time."""
        self.pool._close_session(self)

    def __repr__(self):
        return f"<PooledSession {self.cluster_session_id} {PooledSessionState(self._state).name}>"


cdef class SessionPool(FragmentHandler):
    """Sessions that share one Aeron client; made by :meth:`connect`.

    **One thread uses a pool** and its sessions, as with AeronCluster. **Call :meth:`poll` often.** The listener of the
    context receives for all sessions, by their ids, except those that have a listener of their own.

    Attributes:
        cluster: the client with the streams that all sessions share (AeronCluster).
        policy: the pauses between attempts to connect again (ReconnectPolicy).
        max_connecting: the maximum number of connects under way (int).
        close_reason: the reason why the pool is closed (str); None before.
    """

    cdef readonly AeronCluster cluster          # has the streams, and a session that is nobody's: the first
    cdef readonly object policy                 # ReconnectPolicy
    cdef readonly str close_reason              # None before
    cdef object _context
    cdef object _callbacks                      # PoolListener
    cdef object _news                           # deque of (name of its method, arguments), for the end of the poll
    cdef object _requests                       # RequestTable of all sessions, or None
    cdef object _replacements                   # Replacements: the sessions that were lost
    cdef list _awaited                          # its heap: nothing is due while it is empty
    cdef object _ended                          # ClientMetrics of the streams that were lost
    cdef int64_t _replaced                      # how often a session was connected again
    cdef object _machine                        # Reconnection of the streams, when they were lost; else None
    cdef object _connect                        # begins another
    cdef object _failure_log                    # FailureLog, of the attempts to have other streams
    cdef object _connecting                     # AsyncConnect under way, or None
    cdef bint _is_closed
    cdef PooledSession _first                   # the first session, once it was lost, or None
    cdef int64_t _first_term                    # as PooledSession._term, of the first session
    cdef int64_t _silence_ns                    # when sessions are lost of which a new leader has not spoken
    cdef dict _all                              # PooledSession that are not closed (value: None), in their order
    cdef dict _sessions                         # PooledSession by cluster session id
    cdef dict _by_correlation_id                # those that wait for an answer
    cdef dict _asked_before                     # the same, for requests to an earlier leader
    cdef object _late                           # OrderedDict of ids (None) of requests given up unanswered
    cdef bint _is_closing                       # nothing but late answers is read any more
    cdef int64_t _close_deadline_ns             # of that
    cdef int64_t _answer_deadline_ns            # of the next late answer
    cdef Py_ssize_t _under_way                  # requests that were, when that was set
    cdef object _to_send                        # deque of those whose request is not sent yet
    cdef object _to_close                       # deque of the ids of closed sessions whose request is not sent yet
    cdef list _deadlines                        # heap of (deadline, sequence number, PooledSession) of attempts
    cdef list _keep_alives                      # heap of (when due, sequence number, PooledSession)
    cdef int64_t _sequence
    cdef int64_t _leadership_term_id            # of the leader that the requests were sent to
    cdef readonly int max_connecting
    cdef uint8_t _session_header[32]
    cdef MessageCopy _message                   # of the sessions with listeners of their own
    cdef bytes _client_info
    cdef object __weakref__

    def __init__(self, *arguments, **settings):
        raise made_by_hand("SessionPool")

    @staticmethod
    def connect(context=None, *, max_connecting=64, policy=None, callbacks=None, correlate=None, resend=False,
                **settings):
        """Connect the first session, which follows the leader, and return the pool; block as
        :meth:`AeronCluster.connect`, whose arguments it takes, ``correlate`` and ``resend`` too, which are for all
        sessions. At most ``max_connecting`` connects are under way.

        A session that was connected and is lost is connected again, and so are all when their streams are: ``policy``
        (ReconnectPolicy) says when, ``callbacks`` (PoolListener) is notified. Requests of a lost session end with
        RequestClosedError.
        """
        check_requests(correlate, resend)
        requests = None if correlate is None else RequestTable(correlate, resend=resend)
        check_pool_arguments(max_connecting, policy, callbacks)
        context = context_of(context, settings, "correlate", "resend", "max_connecting", "policy", "callbacks")
        cluster = _AeronCluster.connect(context)
        return SessionPool._over(
            cluster, requests, max_connecting, policy, callbacks, lambda: AsyncConnect(cluster.context))

    @staticmethod
    def _over(AeronCluster cluster not None, requests, int max_connecting, policy, callbacks, connect):
        """A pool that takes over a connected client. ``connect`` begins another connect (AsyncConnect), or returns None
        when the pool should ask again."""
        cdef SessionPool pool = SessionPool.__new__(SessionPool)
        pool.max_connecting = max_connecting
        pool.policy = ReconnectPolicy() if policy is None else policy
        pool._context = cluster.context
        pool._callbacks = PoolListener() if callbacks is None else callbacks
        pool._news = deque()
        pool._connect = connect
        pool._failure_log = FailureLog(cluster.context)
        pool._requests = requests
        pool._replacements = Replacements(pool.policy)
        pool._awaited = pool._replacements.waiting
        pool._ended = ClientMetrics()
        pool._all = {}
        pool._sessions = {}
        pool._by_correlation_id = {}
        pool._asked_before = {}
        pool._late = OrderedDict()
        pool._to_send = deque()
        pool._to_close = deque()
        pool._deadlines = []
        pool._keep_alives = []
        pool._message = MessageCopy()
        pool._client_info = client_info(cluster.context.client_name).encode("ascii", "replace")
        pool._use(cluster)
        close_at_end(pool, Stage.POOL, close_unless_guarded)
        return pool

    cdef int _use(self, AeronCluster cluster) except -1:
        # The streams of that client, from now on.
        cluster._assembler = SessionFragmentAssembler(self)
        cluster._use_requests(self._requests)
        if self.cluster is not None:
            cluster._owner = self.cluster._owner
            cluster._owner_id = self.cluster._owner_id
            cluster._is_guarded = self.cluster._is_guarded
            self._ended = self.metrics()
        self.cluster = cluster
        self._first = None
        self._leadership_term_id = self._first_term = cluster.leadership_term_id
        self._silence_ns = NEVER_NS
        return 0

    def _guard(self):
        """Several threads use the pool from now on, one at a time: their owner sees to that."""
        self.cluster._is_guarded = True

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def __aenter__(self):
        raise wrong_with("SessionPool")

    def __aexit__(self, kind, value, traceback):
        raise wrong_with("SessionPool")

    def __len__(self):
        """How many sessions are not closed."""
        return len(self._all)

    def __repr__(self):
        return f"<SessionPool of {len(self._sessions)} over {self.cluster!r}>"

    @property
    def is_closed(self):
        """True once the pool is closed, by :meth:`close` or by what :attr:`close_reason` says."""
        return self._is_closed or self.cluster._parent_id != 0

    @property
    def _is_guarded(self):
        return self.cluster._is_guarded

    @property
    def lost(self):
        """How many sessions were lost, and are neither connected again nor given up."""
        return len(self._replacements) - (self._first is not None and self._first in self._replacements)

    @property
    def request_counts(self):
        """Counts of the requests of all sessions so far, by outcome (RequestCounts); None without ``correlate``."""
        return None if self._requests is None else self._requests.counts

    def metrics(self):
        """Counts of the pool and all of its sessions so far (:class:`container.client.ClientMetrics`). Call it on the
        pool's thread, also after the close."""
        now, ended = self.cluster.metrics(), self._ended
        return replace(
            now, sent=ended.sent + now.sent, received=ended.received + now.received,
            back_pressured=ended.back_pressured + now.back_pressured,
            leader_changes=ended.leader_changes + now.leader_changes, reconnects=self._replaced,
            sessions=len(self._sessions), connecting=len(self) - len(self._sessions))

    def session(self, int64_t cluster_session_id):
        """The connected session with that id (PooledSession); None when there is none."""
        return self._sessions.get(cluster_session_id)

    # Connecting

    def open(self, listener=None, credentials_supplier=None):
        """Begin to connect a session and return it (PooledSession); polls do the rest, within the message timeout.

        ``listener`` and ``credentials_supplier`` are for this session (None: those of the context).
        :attr:`PooledSession.state` and :attr:`PooledSession.error` have the result. A first connect that fails is not
        tried again.
        """
        cdef PooledSession session
        self._check_open()
        session = self._new_session(listener, credentials_supplier)
        self._all[session] = None
        self._begin_attempt(session, self._now_ns() + <int64_t> self._context.message_timeout_ns)
        return session

    cdef PooledSession _new_session(self, object listener, object credentials_supplier):
        cdef PooledSession session = PooledSession.__new__(PooledSession)
        session.pool = self
        if credentials_supplier is not None:
            check_setting("credentials_supplier", credentials_supplier)
        session.listener = self._context.listener if listener is None else listener
        session._handler = self.cluster._handler if listener is None else egress_handler(listener, self._message)
        session.credentials_supplier = (
            self._context.credentials_supplier if credentials_supplier is None else credentials_supplier)
        session.cluster_session_id = session._correlation_id = session._keep_alive_number = -1
        return session

    def open_all(self, Py_ssize_t count):
        """Connect ``count`` sessions and return them (list); poll and idle meanwhile.

        Each one's message timeout begins when its turn comes. When one fails, close all and raise its error, as soon as
        none can open late: the requests that are under way are answered, or no answer has come for 1 s.
        """
        cdef list sessions = []
        cdef PooledSession session
        try:
            while len(sessions) < count or self._to_send or self._by_correlation_id:
                if len(sessions) < count and len(self._to_send) < self.max_connecting:
                    sessions.append(self.open())
                    continue
                self.cluster._idle.idle(self.poll())
                self._check_open()
                for session in sessions[-2 * self.max_connecting:]:
                    if session._state == SESSION_CLOSED and session.error is not None:
                        raise session.error
        except BaseException as error:
            for session in sessions:
                session.close()
            if sessions and not self.cluster._is_polling:
                try:
                    self._await_late_answers()
                except Exception as other:              # of a listener, for one
                    error.add_note(f"and while late answers were awaited: {type(other).__name__}: {other}")
            raise
        return sessions

    cdef int _await_late_answers(self) except -1:
        # Sessions that were closed while their request was under way may open yet; a poll closes each that does.
        cdef PooledSession session
        cdef int64_t deadline_ns = self._now_ns() + <int64_t> self._context.message_timeout_ns
        self._under_way = 0
        while not self._is_closed and self._awaits_answers() and self._now_ns() < deadline_ns:
            if all([session._state != SESSION_CLOSED for session in self._by_correlation_id.values()]):
                break
            self.cluster._idle.idle(self.poll())
        return 0

    cdef bint _awaits_answers(self) except -1:
        # Whether requests are under way and the leader still answers: one that was silent for so long may never.
        cdef int64_t now_ns = self._now_ns()
        if len(self._by_correlation_id) != self._under_way:
            self._under_way = len(self._by_correlation_id)
            self._answer_deadline_ns = now_ns + min(
                <int64_t> LATE_ANSWER_NS, <int64_t> self._context.message_timeout_ns)
        return self._under_way > 0 and self._can_hear() and now_ns < self._answer_deadline_ns

    cdef bint _can_hear(self) except -1:
        # Whether there is a leader that may answer.
        return (not self.cluster.is_closed and self.cluster._publication is not None
                and self.cluster._publication.is_connected())

    cdef int64_t _now_ns(self) except? -1:
        return self.cluster._client.clock.nano_time()

    cdef int _begin_attempt(self, PooledSession session, int64_t deadline_ns) except -1:
        session._state = SESSION_CONNECTING
        session._challenge = None
        session._deadline_ns = NO_DEADLINE
        if deadline_ns != NO_DEADLINE:
            self._set_deadline(session, deadline_ns)
        return self._queue(session, False)

    cdef int _queue(self, PooledSession session, bint is_first) except -1:
        # Once: an attempt may end before its turn comes, and the next one begin.
        if session._is_queued:
            return 0
        session._is_queued = True
        if is_first:
            self._to_send.appendleft(session)
        else:
            self._to_send.append(session)
        return 0

    cdef int _set_deadline(self, PooledSession session, int64_t deadline_ns) except -1:
        session._deadline_ns = deadline_ns
        self._sequence += 1
        heappush(self._deadlines, (deadline_ns, self._sequence, session))
        return 0

    cdef int _send_requests(self) except -1:
        cdef PooledSession session
        cdef int sent = 0
        cdef int64_t now_ns = self._now_ns()
        if self._awaited:
            for session in self._replacements.due(now_ns):
                self._begin_attempt(session, NO_DEADLINE)
        self._expire(now_ns)
        while (self._to_send and sent < MAX_SENDS_OF_A_POLL and len(self._by_correlation_id) < self.max_connecting
                and self.cluster._publication is not None):
            session = self._to_send[0]
            if session._state == SESSION_CONNECTING and not self._send_request_of(session):
                break
            self._to_send.popleft()
            session._is_queued = False
            if session._state != SESSION_CONNECTING:
                continue
            self._by_correlation_id[session._correlation_id] = session
            if session._deadline_ns == NO_DEADLINE:
                self._set_deadline(session, now_ns + <int64_t> self._context.message_timeout_ns)
            sent += 1
        return sent

    cdef int _expire(self, int64_t now_ns) except -1:
        # One that timed out while it waits to be sent goes from there when its turn comes.
        cdef PooledSession session
        cdef int64_t deadline_ns
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline_ns, _, session = heappop(self._deadlines)
            if session._deadline_ns != deadline_ns:
                continue                                # of an attempt that has ended
            if self._by_correlation_id.pop(session._correlation_id, None) is not None:
                self._expect_late(session._correlation_id)
            if session._state == SESSION_CONNECTING:
                self._fail(session, TimedOutError(
                    f"pooled session: no answer to its connect request within {self._context.message_timeout:g} s from "
                    f"member {self.cluster.leader_member_id}"))
        return 0

    cdef int _expect_late(self, int64_t correlation_id) except -1:
        # Nobody waits for that answer any more. A session that it opens after all is closed.
        self._late[correlation_id] = None
        if len(self._late) > MAX_LATE:
            self._late.popitem(last=False)
        return 0

    cdef int _send_requests_again(self) except -1:
        # The old leader may or may not have logged what it was asked. The new one is asked again. If it knows of the
        # first request, it answers both: then the first answer counts, and the session of the second is closed.
        cdef PooledSession session
        cdef int64_t now_ns = self._now_ns()
        cdef list unanswered = list(self._by_correlation_id.values())
        self._leadership_term_id = self.cluster.leadership_term_id
        self._silence_ns = now_ns + self.cluster.new_leader_timeout_ns
        self._news.append(("on_leader_changed", (self.cluster.leader_member_id, self._leadership_term_id)))
        self._asked_before |= self._by_correlation_id
        for correlation_id, session in list(self._asked_before.items()):
            if session._deadline_ns <= now_ns:
                del self._asked_before[correlation_id]
                self._expect_late(correlation_id)
        self._by_correlation_id.clear()
        for session in reversed(unanswered):
            self._queue(session, True)
        for session in self._to_send:
            session._challenge = None
        return 0

    cdef bint _send_request_of(self, PooledSession session) except -1:
        # True when it was sent, or has failed.
        cdef bytes credentials, channel
        cdef bytearray request
        cdef int64_t result
        failed = None
        try:
            credentials = (
                bytes(session.credentials_supplier.encoded_credentials()) if session._challenge is None
                else bytes(session.credentials_supplier.on_challenge(session._challenge)))
        except Exception as error:                      # it costs this session alone
            failed = _credentials_error(error)
        if failed is not None:
            self._fail(session, failed)
            return True
        session._correlation_id = self.cluster._client.next_correlation_id()
        if session._challenge is not None:
            request = bytearray(codec.challenge_response_encoded_length(<uint32_t> len(credentials)))
            codec.challenge_response_encode(
                <uint8_t*> PyByteArray_AS_STRING(request), len(request), session._correlation_id,
                session._challenged_session_id, credentials, <uint32_t> len(credentials))
        else:
            channel = response_channel_of(self.cluster._subscription).encode("ascii")
            request = bytearray(codec.session_connect_request_encoded_length(
                <uint32_t> len(channel), <uint32_t> len(credentials), <uint32_t> len(self._client_info)))
            codec.session_connect_request_encode(
                <uint8_t*> PyByteArray_AS_STRING(request), len(request), session._correlation_id,
                self.cluster.context.egress_stream_id, PROTOCOL_VERSION, channel, <uint32_t> len(channel),
                credentials, <uint32_t> len(credentials), self._client_info, <uint32_t> len(self._client_info))
        result = self.cluster._publication.offer(<uint8_t*> PyByteArray_AS_STRING(request), len(request))
        self.cluster._track_result(result)
        return result > 0

    # Lost sessions, connected again

    cdef int _fail(self, PooledSession session, object error) except -1:
        # The attempt failed.
        if session not in self._replacements:
            return self._give_up(session, error)
        return self._replace_or_give_up(session, error, self._replacements.failed(session, error, self._now_ns()))

    cdef int _lose(self, PooledSession session, str reason) except -1:
        # It was connected. Its requests may have been processed.
        cdef object error = ClosedError(f"the session ended: {reason}")
        self._forget_id(session, reason)
        session.close_reason = reason
        if session is not self._first:
            self._news.append(("on_session_lost", (session, error)))
        return self._replace_or_give_up(session, error, self._replacements.lost(session, error, self._now_ns()))

    cdef int _replace_or_give_up(self, PooledSession session, object error, object final_error) except -1:
        if final_error is not None:
            return self._give_up(session, final_error)
        session.error = error
        session._state = SESSION_WAITING
        session._deadline_ns = NO_DEADLINE
        return 0

    cdef int _give_up(self, PooledSession session, object error) except -1:
        session.error = error
        if session is self._first:
            session._state = SESSION_CLOSED             # the others continue, and hear of leaders themselves
            return 0
        self._news.append(("on_session_closed", (session, error)))
        return self._end_session(session, str(error))

    cdef int _lose_first(self, str reason) except -1:
        if self._first is None:
            self._first = self._new_session(None, None)
            self._first.cluster_session_id = self.cluster.cluster_session_id
        self.cluster._adopt_session(-1)
        return self._lose(self._first, reason)

    cdef int _forget_id(self, PooledSession session, str reason) except -1:
        self._sessions.pop(session.cluster_session_id, None)
        if self._requests is not None and session.cluster_session_id >= 0:
            self._requests.on_session_closed(session.cluster_session_id, reason)
        session.cluster_session_id = session._keep_alive_number = -1
        return 0

    cdef int _end_session(self, PooledSession session, str reason) except -1:
        self._forget_id(session, reason)
        session._state = SESSION_CLOSED
        session.close_reason = reason
        self._all.pop(session, None)
        self._replacements.forget(session)
        return 0

    cdef int _lose_silent(self) except -1:
        # A new leader sends its event for each session that it knows of.
        cdef PooledSession session
        cdef str reason
        if self._silence_ns == NEVER_NS or self._now_ns() < self._silence_ns:
            return 0
        self._silence_ns = NEVER_NS
        reason = (f"the new leader, member {self.cluster.leader_member_id}, did not send its event for it within "
                  f"{self.cluster.new_leader_timeout_ns / 1e9:g} s")
        for session in [s for s in self._sessions.values() if (<PooledSession> s)._term < self._leadership_term_id]:
            self._lose(session, reason)
        if self.cluster.cluster_session_id >= 0 and self._first_term < self._leadership_term_id:
            self._lose_first(reason)
        return 1

    cdef int _lose_streams(self) except -1:
        # The client is closed: no leader, no driver, or the stream is at its end.
        cdef PooledSession session
        cdef str reason = self.cluster.close_reason
        cdef object error = ClosedError(f"the sessions ended: {reason}")
        if reason == CLOSED_BY_US:
            return self._close_all(ClosedError(CLOSED_BY_US))
        if self._first is not None:
            self._replacements.forget(self._first)
            self._first = None
        self._machine = Reconnection(self.policy, random=random.random, now_ns=self._now_ns())
        self._machine.on_connected()
        if self._context.client is not None and self.cluster._client.is_closed():
            return self._close_all(error)               # it is the caller's, who alone can make another
        self._machine.on_lost(error, self._now_ns())
        if self._machine.state is ConnectionState.CLOSED:
            return self._close_all(self._machine.error)
        for session in list(self._sessions.values()):
            self._lose(session, reason)
        for session in reversed(list(self._by_correlation_id.values())):
            if session._state == SESSION_CONNECTING:
                self._queue(session, True)
        self._by_correlation_id.clear()
        self._asked_before.clear()
        self._late.clear()
        self._keep_alives.clear()
        return 0

    cdef int _poll_attempt(self) except -1:
        # To have streams again.
        cdef AeronCluster cluster = None
        cdef int64_t now_ns = self._now_ns()
        if not self._machine.poll(now_ns) and self._machine.state is not ConnectionState.CONNECTING:
            return 0
        failure = None
        try:
            if self._connecting is None:
                self._connecting = self._connect()
            if self._connecting is not None:
                cluster = self._connecting.poll()
        except ContainerError as error:
            failure = error
        except OSError as error:
            failure = attempt_error(error)
        except BaseException as error:                  # of the credentials supplier, for one
            self._attempt_failed(ClosedError(f"the attempt to connect failed: {type(error).__name__}: {error}"), now_ns)
            raise
        if failure is not None:
            return self._attempt_failed(failure, now_ns)
        if cluster is None:
            return 0
        self._connecting = None
        self._machine = None
        self._use(cluster)
        self._news.append(("on_leader_changed", (cluster.leader_member_id, cluster.leadership_term_id)))
        return 1

    cdef int _attempt_failed(self, object error, int64_t now_ns) except -1:
        self._connecting = None                         # closed
        self._machine.on_failed(error, now_ns)
        self._failure_log.failed(self._machine, now_ns)
        if self._machine.state is ConnectionState.CLOSED:
            self._close_all(self._machine.error)
        return 1

    cdef int _report(self) except -1:
        # One at a time, as each may raise: the next poll continues. A closed pool has no other poll.
        failure = None
        while self._news:
            name, arguments = self._news.popleft()
            try:
                getattr(self._callbacks, name)(*arguments)
            except BaseException as error:
                if not self._is_closed:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure
        return 0

    # Sending

    cdef object _offer(self, PooledSession session, tuple buffers):
        cdef BufferVectors vectors
        cdef Publication publication = self.cluster._publication
        cdef int64_t result = 0
        self.cluster._check_thread()
        if session._state != SESSION_CONNECTED or publication is None or self.cluster._is_settling or self._is_closing:
            return CLOSED if session._state == SESSION_CLOSED else NOT_CONNECTED
        gather_vectors(&vectors, buffers)
        try:
            check_message_length(&vectors, publication)
            memcpy(self._session_header, self.cluster._session_header, HEADER_LENGTH)
            codec.session_message_header_put_cluster_session_id(self._session_header, session.cluster_session_id)
            vectors.vectors[0].data = self._session_header
            vectors.vectors[0].length = HEADER_LENGTH
            result = publication.offer_vectors(vectors.vectors, vectors.count + 1)
        finally:
            release_vectors(&vectors)
        if result > 0:
            self.cluster._sent += 1
            session._last_send_ns = self._now_ns()
        self.cluster._track_result(result)
        return result

    def _try_claim(self, PooledSession session not None, Py_ssize_t length, BufferClaim buffer_claim not None):
        cdef Publication publication = self.cluster._publication
        cdef Claim claim
        cdef int64_t result
        self.cluster._check_thread()
        buffer_claim._check_free()
        if length < 0:
            raise ValueError(f"length must not be negative: {length}")
        if session._state != SESSION_CONNECTED or publication is None or self.cluster._is_settling or self._is_closing:
            return CLOSED if session._state == SESSION_CLOSED else NOT_CONNECTED
        memcpy(self._session_header, self.cluster._session_header, HEADER_LENGTH)
        codec.session_message_header_put_cluster_session_id(self._session_header, session.cluster_session_id)
        result = claim_message(publication, self._session_header, <size_t> length, &claim)
        if result > 0:
            self.cluster._sent += 1
            session._last_send_ns = self._now_ns()
            buffer_claim._wrap(publication, &claim, HEADER_LENGTH, <size_t> length)
        self.cluster._track_result(result)
        return result

    def _send(self, PooledSession session not None, tuple buffers, timeout, request):
        cdef int64_t result
        cdef bint is_polling = self.cluster._is_polling
        self.cluster._check_thread()
        limit = self._context.message_timeout if timeout is None else limit_s(timeout, 0)
        cdef int64_t deadline_ns = self._now_ns() + <int64_t> (limit * NS_PER_S)
        self.cluster._idle.reset()
        while True:
            result = self._offer_request(session, buffers, request)
            if result > 0:
                return result
            if session._state == SESSION_CLOSED:
                raise ClosedError(f"the session is closed: {session.close_reason}")
            if result == NOT_CONNECTED and is_polling:
                raise ClusterUnavailableError(
                    f"send() from a listener's callback: {session!r} has no leader to send to, and none can be heard "
                    "of before the callback has returned")
            if self._now_ns() >= deadline_ns:
                raise SendTimedOutError(
                    f"message was not accepted within {limit:g} s: last result {publication_result_name(result)}, "
                    f"{session!r}")
            PyErr_CheckSignals()
            self.cluster._idle.idle(self.cluster._invoke() if is_polling else self.poll())

    def _wait_once(self):
        self.cluster._idle.idle(self.poll())

    def _begin_request(self, PooledSession session not None, tuple buffers, key, timeout, idempotent):
        request = self.cluster._new_request(
            session.cluster_session_id, buffers, key, timeout, idempotent, self._wait_once)
        self._send(session, buffers, request._timeout, request)
        return request

    cpdef object _offer_request(self, PooledSession session, tuple buffers, object request):
        """As :meth:`PooledSession.offer`; if it is accepted, ``request`` (Request or None) is in flight. Raise
        ClusterError when a reply with its key may still come, TypeError for a key that cannot be hashed."""
        cdef int64_t result
        if request is not None:
            self._requests.check_key(session.cluster_session_id, request.key)
        result = self._offer(session, buffers)
        if request is not None and result > 0:
            self._requests.add(session.cluster_session_id, request, self.cluster.leadership_term_id)
        return result

    cdef int _send_keep_alives(self) except -1:
        cdef int64_t interval_ns = self.cluster._keep_alive_interval_ns
        cdef int64_t now_ns = self.cluster._client.clock.nano_time()
        cdef int64_t due_ns
        cdef PooledSession session
        cdef int sent = 0
        while self._keep_alives and sent < MAX_SENDS_OF_A_POLL and self.cluster._publication is not None:
            if self._keep_alives[0][0] > now_ns:
                break
            session = self._keep_alives[0][2]
            if session._keep_alive_number != self._keep_alives[0][1]:
                heappop(self._keep_alives)              # closed, or connected again since
                continue
            due_ns = session._last_send_ns + interval_ns
            if due_ns <= now_ns:
                if not self._send_keep_alive(session, now_ns):
                    break
                due_ns = now_ns + interval_ns
                sent += 1
            self._sequence += 1
            session._keep_alive_number = self._sequence
            heapreplace(self._keep_alives, (due_ns, self._sequence, session))
        return sent

    cdef bint _send_keep_alive(self, PooledSession session, int64_t now_ns) except -1:
        cdef uint8_t request[codec.SESSION_KEEP_ALIVE_ENCODED_LENGTH]
        cdef int64_t result
        codec.session_keep_alive_encode(
            request, sizeof(request), self.cluster.leadership_term_id, session.cluster_session_id)
        result = self.cluster._publication.offer(request, sizeof(request))
        self.cluster._track_result(result)
        if result > 0:
            session._last_send_ns = now_ns
        return result > 0

    # Polling

    def poll(self, int fragment_limit=FRAGMENT_LIMIT):
        """Receive what the cluster sends to all sessions, follow the leader, connect and keep alive.

        Return the work done (int), 0 for none. Raise what a listener raises, and as :meth:`AeronCluster.poll_egress`.
        Wait only in an attempt to connect again, for a driver that is not there, and for the driver timeout at most.
        """
        cdef int work_count = 0
        self._check_open()
        if self.cluster._is_polling:
            raise ClusterError("poll() must not be called from a listener's callback")
        if self._machine is not None:
            work_count += self._poll_attempt()
        elif not self.cluster.is_closed:
            work_count += self.cluster._poll(fragment_limit)
        if self._machine is None and not self._is_closed:
            if self.cluster.is_closed:
                self._lose_streams()
            elif self.cluster.leadership_term_id != self._leadership_term_id:
                self._send_requests_again()
        if not self._is_closed:
            work_count += self._lose_silent() + self._send_requests() + self._send_keep_alives()
            work_count += self._send_close_requests(MAX_SENDS_OF_A_POLL)
        self._report()
        return work_count

    def idle(self, int work_count=0):
        """Wait once, by the idle strategy, unless there was work: ``work_count`` is what a poll returned."""
        self.cluster.idle(work_count)

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if self._is_closing:                            # late answers count, and no listener hears of anything
            if (sbe_read_header(buffer, length, &message) >= 0 and message.schema_id == codec.CLUSTER_SCHEMA_ID
                    and message.template_id == codec.SESSION_EVENT_TEMPLATE_ID):
                self._on_session_event(buffer, length)
            return ACTION_CONTINUE
        if self.cluster._new_leader is not None:
            return ACTION_ABORT
        if sbe_read_header(buffer, length, &message) >= 0 and message.schema_id == codec.CLUSTER_SCHEMA_ID:
            if message.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
                return self._on_message(buffer, length, header)
            if message.template_id == codec.SESSION_EVENT_TEMPLATE_ID:
                if self._on_session_event(buffer, length):
                    return ACTION_CONTINUE
            elif message.template_id == codec.NEW_LEADER_EVENT_TEMPLATE_ID:
                return self._on_new_leader_event(buffer, length, header)
            elif message.template_id == codec.CHALLENGE_TEMPLATE_ID:
                self._on_challenge(buffer, length)
                return ACTION_CONTINUE
        return self.cluster.on_fragment(buffer, length, header)

    cdef int _on_message(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
        cdef codec.SessionMessageHeader message
        cdef PooledSession session
        cdef int action
        check_codec(codec.session_message_header_wrap(&message, buffer, length), "SessionMessageHeader")
        session = self._sessions.get(codec.session_message_header_cluster_session_id(&message))
        if session is None:
            return self.cluster.on_fragment(buffer, length, header)
        self.cluster._received += 1
        if self.cluster._is_correlating and self.cluster._is_reply(
                session.cluster_session_id, buffer + HEADER_LENGTH, length - HEADER_LENGTH):
            return ACTION_CONTINUE
        action = session._handler.on_message(
            session.cluster_session_id, codec.session_message_header_timestamp(&message), buffer + HEADER_LENGTH,
            length - HEADER_LENGTH, header)
        if action == ACTION_ABORT:
            self.cluster._received -= 1                 # it comes again
        return action

    cdef bint _on_session_event(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SessionEvent event
        cdef PooledSession session
        cdef int code
        cdef str detail
        check_codec(codec.session_event_wrap(&event, buffer, length), "SessionEvent")
        code = codec.session_event_code(&event)
        session = self._asked(codec.session_event_correlation_id(&event))
        detail = decode_ascii(event.detail.data, event.detail.length)
        if session is not None:
            self._on_answer(session, codec.session_event_cluster_session_id(&event),
                            codec.session_event_leadership_term_id(&event), code, detail)
            return True
        if codec.session_event_correlation_id(&event) in self._late:
            del self._late[codec.session_event_correlation_id(&event)]
            if code == codec.EVENT_CODE_OK:
                self._send_close_request(codec.session_event_cluster_session_id(&event))
            return True
        if self._is_closing:
            return True
        session = self._sessions.get(codec.session_event_cluster_session_id(&event))
        if session is None and codec.session_event_cluster_session_id(&event) != self.cluster.cluster_session_id:
            return False
        if code == codec.EVENT_CODE_CLOSED:
            if session is None:
                self._lose_first(f"closed by the cluster: {detail}")
            else:
                self._lose(session, f"closed by the cluster: {detail}")
        (self.cluster._handler if session is None else session._handler).on_session_event(
            codec.session_event_correlation_id(&event), codec.session_event_cluster_session_id(&event),
            codec.session_event_leadership_term_id(&event), codec.session_event_leader_member_id(&event), code, detail)
        return True

    cdef PooledSession _asked(self, int64_t correlation_id):
        """The session for which the cluster was asked that; None when it was not, or has answered before."""
        cdef PooledSession session = self._by_correlation_id.pop(correlation_id, None)
        return self._asked_before.pop(correlation_id, None) if session is None else session

    cdef int _on_answer(
            self, PooledSession session, int64_t cluster_session_id, int64_t term, int code, str detail) except -1:
        if session._state != SESSION_CONNECTING or self._is_closing:    # or connected by another answer
            return self._send_close_request(cluster_session_id) if code == codec.EVENT_CODE_OK else 0
        session._challenge = None
        if code == codec.EVENT_CODE_OK:
            self._on_connected(session, cluster_session_id, term)
        elif code == codec.EVENT_CODE_REDIRECT:
            self._queue(session, False)                 # again, when the pool follows the new leader
        else:
            self._fail(session, session_refusal("pooled session", code, detail, ""))
        return 0

    cdef int _on_connected(self, PooledSession session, int64_t cluster_session_id, int64_t term) except -1:
        cdef int attempts = self._replacements.connected(session)
        session.cluster_session_id = cluster_session_id
        session.sessions += 1
        session.error = session.close_reason = None
        session._state = SESSION_CONNECTED
        session._deadline_ns = NO_DEADLINE
        session._term = term
        session._last_send_ns = self._now_ns()
        if session is self._first:
            self.cluster._adopt_session(cluster_session_id)
            self._first_term = term
            return 0
        self._sessions[cluster_session_id] = session
        self._replaced += attempts > 0
        self._news.append(
            ("on_session_replaced", (session, attempts)) if attempts > 0 else ("on_session_opened", (session,)))
        if self.cluster._keep_alive_interval_ns > 0:
            self._sequence += 1
            session._keep_alive_number = self._sequence
            heappush(self._keep_alives, (
                session._last_send_ns + self.cluster._keep_alive_interval_ns, self._sequence, session))
        return 0

    cdef int _on_new_leader_event(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
        # The pool follows the first that comes. Those of other sessions are news for their listeners, and say that the
        # leader knows of them.
        cdef codec.NewLeaderEvent event
        cdef PooledSession session
        cdef int64_t cluster_session_id, term
        cdef str endpoints
        check_codec(codec.new_leader_event_wrap(&event, buffer, length), "NewLeaderEvent")
        cluster_session_id = codec.new_leader_event_cluster_session_id(&event)
        term = codec.new_leader_event_leadership_term_id(&event)
        session = self._sessions.get(cluster_session_id)
        if session is None and cluster_session_id != self.cluster.cluster_session_id:
            return ACTION_CONTINUE
        endpoints = decode_ascii(event.ingress_endpoints.data, event.ingress_endpoints.length)
        if term > self.cluster.leadership_term_id or (
                term == self.cluster.leadership_term_id and self.cluster._publication is None):
            self.cluster._new_leader = (
                header.session_id, term, codec.new_leader_event_leader_member_id(&event), endpoints)
        if session is None:
            self._first_term = term                     # its listener hears of it when the leader is followed
            return ACTION_CONTINUE
        session._term = term
        session._handler.on_new_leader(
            cluster_session_id, term, codec.new_leader_event_leader_member_id(&event), endpoints)
        return ACTION_CONTINUE

    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.Challenge challenge
        cdef PooledSession session
        check_codec(codec.challenge_wrap(&challenge, buffer, length), "Challenge")
        session = self._asked(codec.challenge_correlation_id(&challenge))
        if session is not None and session._state == SESSION_CONNECTING:
            session._challenge = (<const char*> challenge.encoded_challenge.data)[
                :challenge.encoded_challenge.length] if challenge.encoded_challenge.length > 0 else b""
            session._challenged_session_id = codec.challenge_cluster_session_id(&challenge)
            self._queue(session, True)
        return 0

    # Closing

    cdef int _close_session(self, PooledSession session) except -1:
        if self.cluster._parent_id != 0:
            return 0                                    # a forked child's
        self.cluster._check_thread()
        if session._state == SESSION_CLOSED:
            return 0
        if session._state == SESSION_CONNECTED:
            self._send_close_request(session.cluster_session_id)
        return self._end_session(session, CLOSED_BY_US)

    cdef int _send_close_request(self, int64_t cluster_session_id) except -1:
        # Now if possible, else behind those that wait for a later poll.
        self._to_close.append(cluster_session_id)
        if len(self._to_close) == 1:
            self._send_close_requests(1)
        return 0

    cdef int _send_close_requests(self, Py_ssize_t limit) except -1:
        # How many were sent: until one is not taken.
        cdef uint8_t request[codec.SESSION_CLOSE_REQUEST_ENCODED_LENGTH]
        cdef Py_ssize_t sent = 0
        while self._to_close and sent < limit and not self.cluster.is_closed:
            cluster_session_id = self._to_close.popleft()
            codec.session_close_request_encode(
                request, sizeof(request), self.cluster.leadership_term_id, cluster_session_id)
            if not self.cluster._send_request(request, sizeof(request)):
                self._to_close.appendleft(cluster_session_id)
                break
            sent += 1
        return <int> sent

    cdef int _close_all(self, object error) except -1:
        # error: why (an exception), which each session has from now on if it did not close by itself.
        cdef PooledSession session
        cdef str reason = str(error)
        self._is_closed = True
        self.close_reason = reason
        for session in list(self._all):
            session.error = session.error or (None if reason == CLOSED_BY_US else error)
            self._end_session(session, reason)
        self._by_correlation_id.clear()
        self._asked_before.clear()
        self._late.clear()
        self._to_send.clear()
        self._deadlines.clear()
        self._keep_alives.clear()
        self._news.append(("on_closed", (error,)))
        if self._connecting is not None:
            self._connecting.close()
            self._connecting = None
        if not self.cluster._is_polling:
            self.cluster.close()
        else:
            self.cluster._is_close_requested = True     # when the poll ends
        return 0

    cdef int _check_open(self) except -1:
        self.cluster._check_thread()
        if self._is_closed or self._is_closing:
            raise ClosedError(f"the pool is closed: {self.close_reason or CLOSED_BY_US}")
        return 0

    def close(self):
        """End all sessions, which reaches the cluster if there is a leader, and close what the connect opened.

        While the leader's stream is full wait for it, for the message timeout at most; while sessions are being opened,
        until they are or no answer has come for 1 s: one that opens late is closed as well. Nothing happens the second
        time. Raise ClusterError from a listener's callback, and on another thread.
        """
        self._close_because(ClosedError(CLOSED_BY_US))

    def _close_because(self, error):
        """As :meth:`close`, for another reason (an exception)."""
        if not self._begin_close():
            return
        try:
            while not self._poll_close():
                PyErr_CheckSignals()
                self.cluster._idle.idle(0)
        finally:
            self._close_all(error)
        self._report()

    def _begin_close(self):
        """Begin to end all sessions; False when the pool is closed already. :meth:`_poll_close` does the rest."""
        if self.cluster._parent_id != 0:
            return False                                # a forked child's
        self.cluster._check_thread()
        if self._is_closed:
            return False
        if self.cluster._is_polling:
            raise ClusterError("close() of a pool must not be called from a listener's callback")
        if not self._is_closing:
            self._is_closing = True
            self._under_way = 0
            self._close_deadline_ns = self._now_ns() + <int64_t> self._context.message_timeout_ns
            self._to_close.extend([session.cluster_session_id for session in self._sessions.values()])
        return True

    def _poll_close(self):
        """Send close requests, also for sessions that open now. True when all is done, or cannot be. Never wait."""
        try:
            if self._connecting is not None and not self._connecting._poll_end():
                return False
            if self.cluster.is_closed:
                return True
            self.cluster._invoke()
            if self._by_correlation_id:
                self.cluster._subscription.controlled_poll(self.cluster._assembler, FRAGMENT_LIMIT)
            self._send_close_requests(MAX_SENDS_OF_A_POLL)
        except ContainerError:
            self._close_deadline_ns = NO_DEADLINE       # unsent: the cluster times the sessions out
        return (not (self._to_close or self._awaits_answers()) or not self._can_hear()
                or self._now_ns() >= self._close_deadline_ns)


seal((PooledSession, SessionPool))
