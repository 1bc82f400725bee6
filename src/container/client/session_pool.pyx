"""Thousands of sessions with the cluster over one Aeron client, for gateways: one ingress, one egress, one poll.

One session of its own, an AeronCluster, connects and follows the leader; the pooled sessions use its publication and
its subscription, and differ by the session id in their messages alone. The members publish to all of them on one
stream, because all name the same response channel. A poll costs nothing for a session that is silent; what a session
costs is its keep alives, which a heap orders by when they are due.
"""
import enum
from collections import deque
from dataclasses import replace
from heapq import heappop, heappush, heapreplace

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from container.buffer_vectors cimport BufferVectors, gather_vectors, release_vectors
from container.client.aeron_cluster cimport AeronCluster, check_message_length
from container.client.aeron_cluster import AeronCluster as _AeronCluster
from container.client.client_context import check_count, context_of, limit_s
from container.client.async_connect cimport PROTOCOL_VERSION, response_channel_of, session_refusal
from container.client.egress_handler cimport EgressHandler, MessageCopy, egress_handler
from container.codecs cimport cluster as codec
from container.codecs.sbe cimport MessageHeader, sbe_read_header
from container.decoding cimport check_codec, decode_ascii
from container.errors import ClosedError, ClusterError, SendTimedOutError, TimedOutError
from container.fragment_assembler cimport SessionFragmentAssembler
from container.sealed cimport seal
from container.transport cimport (
    ACTION_ABORT, ACTION_CONTINUE, CLOSED, NOT_CONNECTED, FragmentHandler, FrameHeader, Publication,
    publication_result_name,
)
from container.version import client_info

cdef enum:
    FRAGMENT_LIMIT = 64
    MAX_SENDS_OF_A_POLL = 64                    # keep alives and connect requests, so that a poll is short
    HEADER_LENGTH = codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET

    SESSION_CONNECTING = 0                      # PooledSessionState
    SESSION_CONNECTED = 1
    SESSION_CLOSED = 2

cdef int64_t NS_PER_S = 1_000_000_000


class PooledSessionState(enum.IntEnum):
    """Whether a pooled session can send."""

    CONNECTING = 0
    CONNECTED = 1
    CLOSED = 2


cdef class PooledSession:
    """One session of a :class:`SessionPool`, made by :meth:`SessionPool.open`."""

    cdef readonly SessionPool pool
    cdef readonly object listener
    cdef EgressHandler _handler                 # calls the listener
    cdef readonly object credentials_supplier
    cdef readonly int64_t cluster_session_id    # -1 until it is connected
    cdef readonly str close_reason              # None before
    cdef readonly object error                  # why it could not be connected (an exception), or None
    cdef int _state
    cdef int64_t _deadline_ns                   # of the connect
    cdef int64_t _last_send_ns
    cdef int64_t _correlation_id
    cdef bytes _challenge                       # to be answered, or None
    cdef int64_t _challenged_session_id

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

    def offer(self, *buffers):
        """Tries once to send a message; as :meth:`AeronCluster.offer`, and NOT_CONNECTED while connecting."""
        return self.pool._offer(self, buffers)

    def send(self, *buffers, timeout=None):
        """Sends a message, polls the pool and idles until it is accepted; as :meth:`AeronCluster.send`."""
        return self.pool._send(self, buffers, timeout)

    def request(self, *buffers, key, timeout=None, idempotent=None):
        """Sends a message and returns its reply's payload (bytes); as :meth:`AeronCluster.request`.

        Keys are of each session. The pool needs ``correlate``: see :meth:`SessionPool.connect`.
        """
        return self.begin_request(*buffers, key=key, timeout=timeout, idempotent=idempotent).wait()

    def begin_request(self, *buffers, key, timeout=None, idempotent=None):
        """Sends a message and returns a :class:`container.client.Request`; as :meth:`AeronCluster.begin_request`."""
        return self.pool._begin_request(self, buffers, key, timeout, idempotent)

    def close(self):
        """Ends the session; the cluster is told if there is a leader. Nothing happens the second time."""
        self.pool._close_session(self)

    def __repr__(self):
        return f"<PooledSession {self.cluster_session_id} {PooledSessionState(self._state).name}>"


cdef class SessionPool(FragmentHandler):
    """Sessions that share one Aeron client; made by :meth:`connect`.

    **One thread uses a pool** and its sessions, as with AeronCluster. **Call :meth:`poll` often.** The listener of the
    context is told of all sessions, by their ids, but for those that have a listener of their own.
    """

    cdef readonly AeronCluster cluster          # the session that follows the leader
    cdef dict _sessions                         # PooledSession by cluster session id
    cdef dict _by_correlation_id                # those that wait for an answer
    cdef dict _asked_before                     # the same, for requests to an earlier leader
    cdef object _to_send                        # deque of those whose request is not sent yet
    cdef list _keep_alives                      # heap of (when due, sequence number, PooledSession)
    cdef int64_t _sequence
    cdef int64_t _leadership_term_id            # of the leader that the requests were sent to
    cdef readonly int max_connecting
    cdef uint8_t _session_header[32]
    cdef MessageCopy _message                   # of the sessions with listeners of their own
    cdef bytes _client_info

    def __init__(self):
        raise TypeError("use SessionPool.connect(...)")

    @staticmethod
    def connect(context=None, *, correlate=None, resend=False, max_connecting=64, **settings):
        """Connects the first session, which follows the leader, and returns the pool; blocks as
        :meth:`AeronCluster.connect`, whose arguments it takes, ``correlate`` and ``resend`` too, which are for all
        sessions. At most ``max_connecting`` connects are under way."""
        cdef SessionPool pool = SessionPool.__new__(SessionPool)
        check_count("max_connecting", max_connecting)
        context = context_of(context, settings, "correlate", "resend", "max_connecting")
        pool.cluster = _AeronCluster.connect(context, correlate=correlate, resend=resend)
        pool.cluster._assembler = SessionFragmentAssembler(pool)
        pool.max_connecting = max_connecting
        pool._sessions = {}
        pool._by_correlation_id = {}
        pool._asked_before = {}
        pool._to_send = deque()
        pool._keep_alives = []
        pool._leadership_term_id = pool.cluster.leadership_term_id
        pool._message = MessageCopy()
        pool._client_info = client_info(pool.cluster.context.client_name).encode("ascii", "replace")
        return pool

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def __len__(self):
        """How many sessions are connected or connecting."""
        cdef PooledSession session
        return len(self._sessions) + len({
            session for session in [*self._by_correlation_id.values(), *self._to_send]
            if session._state == SESSION_CONNECTING})

    def __repr__(self):
        return f"<SessionPool of {len(self._sessions)} over {self.cluster!r}>"

    @property
    def is_closed(self):
        """True once the pool is closed: by :meth:`close`, or because its first session was."""
        return self.cluster.is_closed

    @property
    def request_counts(self):
        """What became of the requests of all sessions so far (RequestCounts); None without ``correlate``."""
        return self.cluster.request_counts

    def metrics(self):
        """What the pool has done so far, with all of its sessions (:class:`container.client.ClientMetrics`). On the
        pool's thread, also when it is closed."""
        return replace(
            self.cluster.metrics(), sessions=len(self._sessions), connecting=len(self) - len(self._sessions))

    def session(self, int64_t cluster_session_id):
        """The connected session with that id (PooledSession); None when there is none."""
        return self._sessions.get(cluster_session_id)

    # Connecting

    def open(self, listener=None, credentials_supplier=None):
        """Begins to connect a session and returns it (PooledSession); polls do the rest, within the message timeout.

        ``listener`` and ``credentials_supplier`` are for this session (None: those of the context). What became of it
        is told by :attr:`PooledSession.state` and :attr:`PooledSession.error`.
        """
        cdef PooledSession session = PooledSession.__new__(PooledSession)
        self.cluster._check_open()
        session.pool = self
        session.listener = self.cluster.context.listener if listener is None else listener
        session._handler = self.cluster._handler if listener is None else egress_handler(listener, self._message)
        session.credentials_supplier = credentials_supplier or self.cluster.context.credentials_supplier
        session.cluster_session_id = -1
        session._deadline_ns = (
            self.cluster._client.clock.nano_time() + <int64_t> self.cluster.context.message_timeout_ns)
        self._to_send.append(session)
        return session

    def open_all(self, Py_ssize_t count):
        """Connects ``count`` sessions and returns them (list); polls and idles meanwhile.

        Each one's message timeout begins when its turn comes. Raises what made one of them fail, and then closes all.
        """
        cdef list sessions = []
        cdef PooledSession session
        try:
            while len(sessions) < count or self._to_send or self._by_correlation_id:
                if len(sessions) < count and len(self._to_send) < self.max_connecting:
                    sessions.append(self.open())
                    continue
                self.cluster._idle.idle(self.poll())
                if self.cluster.is_closed:
                    raise ClosedError(f"the pool is closed: {self.cluster.close_reason}")
                for session in sessions[-2 * self.max_connecting:]:
                    if session.error is not None:
                        raise session.error
        except BaseException:
            for session in sessions:
                session.close()
            raise
        return sessions

    cdef int _send_requests(self) except -1:
        cdef PooledSession session
        cdef int sent = 0
        cdef int64_t now_ns = self.cluster._client.clock.nano_time()
        # Those that came first are due first, in both.
        while self._to_send and (<PooledSession> self._to_send[0])._deadline_ns <= now_ns:
            self._time_out(self._to_send.popleft())
        while (self._to_send and sent < MAX_SENDS_OF_A_POLL and len(self._by_correlation_id) < self.max_connecting
                and self.cluster._publication is not None):
            session = self._to_send[0]
            if session._state == SESSION_CONNECTING and not self._send_request_of(session):
                break
            self._to_send.popleft()
            if session._state != SESSION_CONNECTING:
                continue
            self._by_correlation_id[session._correlation_id] = session
            sent += 1
        while self._by_correlation_id:
            session = next(iter(self._by_correlation_id.values()))
            if session._deadline_ns > now_ns:
                break
            del self._by_correlation_id[session._correlation_id]
            self._time_out(session)
        return sent

    cdef int _send_requests_again(self) except -1:
        # The old leader may or may not have logged what it was asked. The new one is asked anew; if it knows of the
        # first request, it answers both: then the first answer counts, and the session of the second is closed.
        cdef PooledSession session
        cdef int64_t now_ns = self.cluster._client.clock.nano_time()
        cdef list unanswered = list(self._by_correlation_id.values())
        self._leadership_term_id = self.cluster.leadership_term_id
        self._asked_before |= self._by_correlation_id
        self._asked_before = {
            correlation_id: session for correlation_id, session in self._asked_before.items()
            if session._deadline_ns > now_ns}
        self._by_correlation_id.clear()
        self._to_send.extendleft(reversed(unanswered))
        for session in self._to_send:
            session._challenge = None
        return 0

    cdef int _time_out(self, PooledSession session) except -1:
        if session._state != SESSION_CONNECTING:
            return 0
        return self._fail(session, TimedOutError(
            f"pooled session: no answer to its connect request within {self.cluster.context.message_timeout:g} s from "
            f"member {self.cluster.leader_member_id}"))

    cdef bint _send_request_of(self, PooledSession session) except -1:
        cdef bytes credentials, channel
        cdef bytearray request
        cdef int64_t result
        session._correlation_id = self.cluster._client.next_correlation_id()
        if session._challenge is not None:
            credentials = bytes(session.credentials_supplier.on_challenge(session._challenge))
            request = bytearray(codec.challenge_response_encoded_length(<uint32_t> len(credentials)))
            codec.challenge_response_encode(
                <uint8_t*> PyByteArray_AS_STRING(request), len(request), session._correlation_id,
                session._challenged_session_id, credentials, <uint32_t> len(credentials))
        else:
            credentials = bytes(session.credentials_supplier.encoded_credentials())
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

    cdef int _fail(self, PooledSession session, object error) except -1:
        session.error = error
        return self._end_session(session, str(error))

    cdef int _end_session(self, PooledSession session, str reason) except -1:
        session._state = SESSION_CLOSED
        session.close_reason = reason
        self._sessions.pop(session.cluster_session_id, None)
        if self.cluster._requests is not None:
            self.cluster._requests.on_session_closed(session.cluster_session_id, reason)
        return 0

    # Sending

    cdef object _offer(self, PooledSession session, tuple buffers):
        cdef BufferVectors vectors
        cdef Publication publication = self.cluster._publication
        cdef int64_t result = 0
        self.cluster._check_thread()
        if session._state != SESSION_CONNECTED or publication is None or self.cluster._is_settling:
            return CLOSED if session._state == SESSION_CLOSED or self.cluster.is_closed else NOT_CONNECTED
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
            session._last_send_ns = self.cluster._client.clock.nano_time()
        self.cluster._track_result(result)
        return result

    def _send(self, PooledSession session not None, tuple buffers, timeout):
        cdef int64_t result
        limit = limit_s(timeout, self.cluster.context.message_timeout)
        cdef int64_t deadline_ns = self.cluster._client.clock.nano_time() + <int64_t> (limit * NS_PER_S)
        self.cluster._idle.reset()
        while True:
            result = self._offer(session, buffers)
            if result > 0:
                return result
            if session._state == SESSION_CLOSED or self.cluster.is_closed:
                raise ClosedError(
                    f"the session is closed: {session.close_reason or self.cluster.close_reason}")
            if self.cluster._client.clock.nano_time() >= deadline_ns:
                raise SendTimedOutError(
                    f"message was not accepted within {limit:g} s: last result {publication_result_name(result)}, "
                    f"{session!r}")
            self._wait_once()

    def _wait_once(self):
        self.cluster._idle.idle(self.poll())

    def _begin_request(self, PooledSession session not None, tuple buffers, key, timeout, idempotent):
        request = self.cluster._new_request(
            session.cluster_session_id, buffers, key, timeout, idempotent, self._wait_once)
        self._send(session, buffers, request._timeout)
        self.cluster._requests.add(session.cluster_session_id, request, self.cluster.leadership_term_id)
        return request

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
            if session._state == SESSION_CLOSED:
                heappop(self._keep_alives)
                continue
            due_ns = session._last_send_ns + interval_ns
            if due_ns <= now_ns:
                if not self._send_keep_alive(session, now_ns):
                    break
                due_ns = now_ns + interval_ns
                sent += 1
            self._sequence += 1
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
        """Hears what the cluster sends to all sessions, follows the leader, connects and keeps alive.

        Returns the work done (int), 0 for none. Raises what a listener raises, and as :meth:`AeronCluster.poll_egress`.
        When the pool's first session is closed, all are, with the same reason.
        """
        cdef int work_count
        self.cluster._check_open()
        if self.cluster._is_polling:
            raise ClusterError("poll() must not be called from a listener's callback")
        work_count = self.cluster._poll(fragment_limit)
        if self.cluster.is_closed:
            self._close_all(self.cluster.close_reason)
            return work_count
        if self.cluster.leadership_term_id != self._leadership_term_id:
            self._send_requests_again()
        return work_count + self._send_requests() + self._send_keep_alives()

    def idle(self, int work_count=0):
        """Waits once, by the idle strategy, unless there was work: ``work_count`` is what a poll returned."""
        self.cluster.idle(work_count)

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if self.cluster._new_leader is not None:
            return ACTION_ABORT
        if sbe_read_header(buffer, length, &message) >= 0 and message.schema_id == codec.CLUSTER_SCHEMA_ID:
            if message.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
                return self._on_message(buffer, length, header)
            if message.template_id == codec.SESSION_EVENT_TEMPLATE_ID:
                if self._on_session_event(buffer, length):
                    return ACTION_CONTINUE
            elif message.template_id == codec.NEW_LEADER_EVENT_TEMPLATE_ID:
                if self._on_new_leader_event(buffer, length):
                    return ACTION_CONTINUE
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
            self._on_answer(session, codec.session_event_cluster_session_id(&event), code, detail)
            return True
        session = self._sessions.get(codec.session_event_cluster_session_id(&event))
        if session is None:
            return False
        if code == codec.EVENT_CODE_CLOSED:
            self._end_session(session, f"closed by the cluster: {detail}")
        session._handler.on_session_event(
            codec.session_event_correlation_id(&event), session.cluster_session_id,
            codec.session_event_leadership_term_id(&event), codec.session_event_leader_member_id(&event), code, detail)
        return True

    cdef PooledSession _asked(self, int64_t correlation_id):
        """The session for which the cluster was asked that; None when it was not, or has answered before."""
        cdef PooledSession session = self._by_correlation_id.pop(correlation_id, None)
        return self._asked_before.pop(correlation_id, None) if session is None else session

    cdef int _on_answer(self, PooledSession session, int64_t cluster_session_id, int code, str detail) except -1:
        if session._state != SESSION_CONNECTING:     # closed meanwhile, or connected by another answer
            return self._send_close_request(cluster_session_id) if code == codec.EVENT_CODE_OK else 0
        session._challenge = None
        if code == codec.EVENT_CODE_OK:
            session.cluster_session_id = cluster_session_id
            session._state = SESSION_CONNECTED
            session._last_send_ns = self.cluster._client.clock.nano_time()
            self._sessions[cluster_session_id] = session
            if self.cluster._keep_alive_interval_ns > 0:
                self._sequence += 1
                heappush(self._keep_alives, (
                    session._last_send_ns + self.cluster._keep_alive_interval_ns, self._sequence, session))
        elif code == codec.EVENT_CODE_REDIRECT:
            self._to_send.append(session)               # again, when the pool follows the new leader
        else:
            self._fail(session, session_refusal("pooled session", code, detail, ""))
        return 0

    cdef bint _on_new_leader_event(self, const uint8_t* buffer, size_t length) except -1:
        # The pool follows its first session's event; those of the others are news for their listeners.
        cdef codec.NewLeaderEvent event
        cdef PooledSession session
        check_codec(codec.new_leader_event_wrap(&event, buffer, length), "NewLeaderEvent")
        session = self._sessions.get(codec.new_leader_event_cluster_session_id(&event))
        if session is None:
            return False
        session._handler.on_new_leader(
            session.cluster_session_id, codec.new_leader_event_leadership_term_id(&event),
            codec.new_leader_event_leader_member_id(&event),
            decode_ascii(event.ingress_endpoints.data, event.ingress_endpoints.length))
        return True

    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.Challenge challenge
        cdef PooledSession session
        check_codec(codec.challenge_wrap(&challenge, buffer, length), "Challenge")
        session = self._asked(codec.challenge_correlation_id(&challenge))
        if session is not None and session._state == SESSION_CONNECTING:
            session._challenge = (<const char*> challenge.encoded_challenge.data)[
                :challenge.encoded_challenge.length] if challenge.encoded_challenge.length > 0 else b""
            session._challenged_session_id = codec.challenge_cluster_session_id(&challenge)
            self._to_send.appendleft(session)
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
        return self._end_session(session, "closed by this client")

    cdef int _send_close_request(self, int64_t cluster_session_id) except -1:
        cdef uint8_t request[codec.SESSION_CLOSE_REQUEST_ENCODED_LENGTH]
        codec.session_close_request_encode(
            request, sizeof(request), self.cluster.leadership_term_id, cluster_session_id)
        if not self.cluster.is_closed:
            self.cluster._send_request(request, sizeof(request))
        return 0

    cdef int _close_all(self, str reason) except -1:
        cdef PooledSession session
        for session in [*self._sessions.values(), *self._by_correlation_id.values(), *self._to_send]:
            self._end_session(session, reason)
        self._by_correlation_id.clear()
        self._asked_before.clear()
        self._to_send.clear()
        self._keep_alives.clear()
        return 0

    def close(self):
        """Ends all sessions, the cluster is told of each if there is a leader, and closes what the connect opened.

        Nothing happens the second time. Raises ClusterError from a listener's callback, and on another thread.
        """
        cdef PooledSession session
        if self.cluster._parent_id != 0:
            return                                      # a forked child's
        self.cluster._check_thread()
        if self.cluster.is_closed:
            return
        if self.cluster._is_polling:
            raise ClusterError("close() of a pool must not be called from a listener's callback")
        try:
            for session in list(self._sessions.values()):
                self._close_session(session)
        except ClusterError:
            pass                                        # unsent: the cluster times the sessions out
        finally:
            self._close_all("closed by this client")
            self.cluster.close()


seal((PooledSession, SessionPool))
