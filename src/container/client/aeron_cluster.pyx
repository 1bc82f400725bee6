"""A client of the cluster: sends to the leader, receives the service's answers and follows the leader.

It follows the rules of upstream's AeronCluster, with messages of schema 111. These differ, to a caller's benefit:

- a poll sends keep alives when nothing else was sent for a while, and as the first message to a new leader;
- while there is no leader an offer returns NOT_CONNECTED, and `send` waits for one;
- a leader is lost when it is not heard on egress any more, and not when it takes nothing on ingress for some seconds;
- requests in flight, if :meth:`AeronCluster.request` is used, are sent again to a new leader or end with an error;
- a new leader is handled after the poll that brought its event, so that nothing is closed under a poll.
"""
import enum
import logging
import threading

from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from container.client.client_context import context_of, integer, leader_endpoint, limit_s
from container.client.connect_steps cimport ConnectSteps, begin_add_ingress_publication
from container.client.egress_handler cimport egress_handler
from container.client.client_metrics import ClientMetrics, RoundTripTimes
from container.client.requests import NO_REQUESTS, Request, RequestTable, as_bytes, check_requests
from container.codecs cimport cluster as codec
from container.codecs.sbe cimport (
    SBE_HEADER_LENGTH, SBE_VAR_LENGTH_LENGTH, MessageHeader, VarData, sbe_read_header,
)
from container.common import forks
from container.common.doors import door, made_by_hand, wrong_with
from container.common.process_end import Stage, close_at_end, close_unless_guarded
from container.common.sealed cimport seal
from container.errors import (
    ClosedError, ClusterError, ClusterUnavailableError, CodecError, ConfigurationError, MessageTooLongError,
    SendTimedOutError,
)
from container.transport.buffer_vectors cimport BufferVectors, gather_vectors, release_vectors
from container.transport.decoding cimport check_codec, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.message_buffer cimport BufferClaim
from container.transport.clocks cimport Clock, SystemClock
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_BREAK, ACTION_CONTINUE, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED,
    BufferVector, Claim, FrameHeader,
)
from container.transport.transport_seam cimport Client
from container.transport.streams cimport FragmentHandler, Publication, publication_result_name

cdef enum:
    SEND_ATTEMPTS = 3
    FRAGMENT_LIMIT = 10
    HEADER_LENGTH = codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET
    ADMIN_REQUEST_LENGTH = SBE_HEADER_LENGTH + codec.ADMIN_REQUEST_BLOCK_LENGTH + SBE_VAR_LENGTH_LENGTH

cdef int64_t NS_PER_S = 1_000_000_000
cdef int64_t PROGRESS_INTERVAL_NS = NS_PER_S
cdef int64_t LEADER_HEARTBEAT_TIMEOUT_DEFAULT_NS = 10 * NS_PER_S
cdef int64_t MAX_SETTLE_NS = NS_PER_S // 10             # for messages of an old leader: egress may never be empty

_LOGGER = logging.getLogger("container.client")

SESSION_HEADER_LENGTH = HEADER_LENGTH
"""Bytes before each message, on ingress and egress."""

cdef enum:                                              # ClientState
    STATE_CONNECTED = 0
    STATE_AWAIT_NEW_LEADER = 1
    STATE_AWAIT_NEW_LEADER_CONNECTION = 2
    STATE_PENDING_CLOSE = 3
    STATE_CLOSED = 4


class ClientState(enum.IntEnum):
    """Whether a client has a leader to send to (upstream's ``AeronCluster.State``)."""

    CONNECTED = 0
    AWAIT_NEW_LEADER = 1
    AWAIT_NEW_LEADER_CONNECTION = 2
    PENDING_CLOSE = 3
    CLOSED = 4


cdef inline bytes _bytes(const VarData* data):
    return (<const char*> data.data)[:data.length] if data.length > 0 else b""


cdef int check_message_length(const BufferVectors* vectors, Publication publication) except -1:
    cdef size_t length = 0
    cdef int index
    for index in range(1, vectors.count + 1):
        length += vectors.vectors[index].length
    if length > <size_t> (publication.max_message_length - HEADER_LENGTH):
        raise MessageTooLongError(
            f"a message of {length} bytes is longer than the max_message_length of "
            f"{publication.max_message_length - HEADER_LENGTH} bytes; send it in parts, or use longer terms")
    return 0


cdef inline int _int(object value, str name) except? -1:
    if type(value) is int and -2147483648 <= value <= 2147483647:
        return value
    return integer(name, value, 32)


cdef int64_t claim_message(
        Publication publication, const uint8_t* session_header, size_t length, Claim* claim) except? -6:
    cdef int64_t result
    if length > <size_t> (publication.max_payload_length - HEADER_LENGTH):
        raise MessageTooLongError(
            f"a claim of {length} bytes is longer than the max_payload_length of "
            f"{publication.max_payload_length - HEADER_LENGTH} bytes; a claim is one frame: offer it instead")
    result = publication.try_claim(HEADER_LENGTH + length, claim)
    if result > 0:
        memcpy(claim.data, session_header, HEADER_LENGTH)
    return result


cdef class AeronCluster(FragmentHandler):
    """A session with the cluster, made by :meth:`connect` or :class:`AsyncConnect`.

    **One thread uses a client**: the first that calls it after the connect. Another one is refused with
    ClusterError until that thread has ended.

    **Call :meth:`poll_egress` often**, at least a few times per second: it receives messages of the service and the
    cluster, follows the leader and keeps the session alive. By default the cluster closes a session that is silent for
    10 s.

    **A message that is accepted is not yet processed**, and may be lost when the leader changes: only the
    service's answer proves it.

    Attributes:
        context: the settings of the connect (ClientContext).
        cluster_session_id: the session's id (int); -1 in a pool whose first session is lost.
        leadership_term_id: the id of the leadership term (int).
        leader_member_id: the id of the leader (int).
        new_leader_timeout_ns: maximum time without a leader before the client closes itself, in nanoseconds (int).
        close_reason: the reason why the session is closed, or about to be (str); None before.
    """

    def __init__(self, *arguments, **settings):
        raise made_by_hand("AeronCluster")

    @staticmethod
    def connect(context=None, *, correlate=None, resend=False, **settings):
        """Connect and return the client; block for at most the message timeout.

        ``correlate`` and ``resend`` are for :meth:`request`, see :meth:`enable_requests`. ``settings`` are fields of
        :class:`ClientContext`: with a ``context`` they replace its own, without one they come before the environment,
        as in :meth:`ClientContext.from_environment`. A connect that waits logs the reason each second, to the logger
        ``container.client`` at level INFO. Raise as :meth:`AsyncConnect.poll`, and ConfigurationError.
        """
        cdef IdleStrategy idle
        cdef int64_t begin_ns, reported_ns, now_ns
        cdef AeronCluster cluster
        check_requests(correlate, resend)
        requests = None if correlate is None else RequestTable(correlate, resend=resend)
        context = context_of(context, settings, "correlate", "resend")
        idle = context.idle_strategy
        cdef Clock clock = SystemClock() if context.client is None else (<Client?> context.client).clock
        begin_ns = reported_ns = clock.nano_time()
        connecting = AsyncConnect(context)
        try:
            while True:
                step = connecting.step
                cluster = connecting.poll()
                if cluster is not None:
                    cluster._use_requests(requests)
                    return cluster
                now_ns = clock.nano_time()
                if now_ns - reported_ns >= PROGRESS_INTERVAL_NS:
                    reported_ns = now_ns
                    _LOGGER.info("cluster connect: still waiting for %s after %d s", connecting.awaited,
                                 (now_ns - begin_ns) // NS_PER_S)
                idle.idle(connecting.step != step)
        except BaseException:
            connecting.close()
            raise

    @staticmethod
    def async_connect(context=None, **settings):
        """Begin to connect, and return an :class:`AsyncConnect`, whose polls do the rest and never wait.

        Arguments as for :meth:`connect`. Raise ConfigurationError.
        """
        return AsyncConnect(context_of(context, settings))

    cdef int _open(self, object context) except -1:
        self.context = context
        if context.new_leader_timeout is not None:
            self.new_leader_timeout_ns = <int64_t> (context.new_leader_timeout * NS_PER_S)
        self._keep_alive_interval_ns = context.keep_alive_interval_ns
        self._idle = context.idle_strategy
        self._handler = egress_handler(context.listener, None)
        self._agent_invoker = context.agent_invoker
        self._assembler = SessionFragmentAssembler(self)
        self._state = STATE_CONNECTED
        self._last_send_ns = self._client.clock.nano_time()
        codec.session_message_header_encode(
            self._session_header, sizeof(self._session_header), self.leadership_term_id, self.cluster_session_id, 0)
        forks.own(self)
        close_at_end(self, Stage.CLIENT, close_unless_guarded)
        return 0

    cdef int _adopt_session(self, int64_t cluster_session_id) except -1:
        # A pool has connected this session over the same streams, in place of a lost one; the id is -1 until then.
        self.cluster_session_id = cluster_session_id
        codec.session_message_header_put_cluster_session_id(self._session_header, cluster_session_id)
        return 0

    def _disown(self, long process_id):
        """In a forked child: closed, with nothing sent. The check for the thread refuses what uses it."""
        self._parent_id = process_id
        self._owner = None
        self._owner_id = 0
        self._is_guarded = False
        self._state = STATE_CLOSED
        self.close_reason = f"it was made in process {process_id}, of which this one is a forked child"
        self._publication = None
        self._egress_image = None
        self._adding = None
        self._new_leader = ()                           # a poll in progress ends with its message

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def __aenter__(self):
        raise wrong_with("AeronCluster")

    def __aexit__(self, kind, value, traceback):
        raise wrong_with("AeronCluster")

    def __repr__(self):
        return (f"<AeronCluster session {self.cluster_session_id} leader {self.leader_member_id} term "
                f"{self.leadership_term_id} {ClientState(self._state).name}>")

    @property
    def state(self):
        """Whether there is a leader to send to (ClientState)."""
        return ClientState(self._state)

    @property
    def is_closed(self):
        """True once the client is closed, by :meth:`close` or for the reason in :attr:`close_reason`."""
        return self._state == STATE_CLOSED

    @property
    def ingress_publication(self):
        """The publication to the leader (:class:`container.transport.streams.Publication`); None while there is none.

        For compiled code with its own way of sending: it reports each result to
        :meth:`track_ingress_publication_result`.
        """
        return self._publication

    @property
    def egress_subscription(self):
        """The subscription to the cluster's messages (:class:`container.transport.streams.Subscription`)."""
        return self._subscription

    @property
    def max_payload_length(self):
        """The longest message that :meth:`try_claim` takes, in bytes; 0 while there is no leader."""
        return self._publication.max_payload_length - HEADER_LENGTH if self._publication is not None else 0

    @property
    def max_message_length(self):
        """The longest message that the cluster takes from this client, in bytes; 0 while there is no
        leader."""
        return self._publication.max_message_length - HEADER_LENGTH if self._publication is not None else 0

    def metrics(self):
        """The client's counts so far (:class:`container.client.ClientMetrics`). Any thread may call it, also after the
        close."""
        counts, round_trips = NO_REQUESTS, None
        if self._requests is not None:
            counts, round_trips = self._requests.counts, self._requests.round_trips.snapshot()
        return ClientMetrics(
            sent=self._sent, received=self._received, back_pressured=self._back_pressured,
            leader_changes=self._leader_changes, requests=counts.sent, answered=counts.answered, resent=counts.resent,
            unknown=counts.unknown, unmatched=counts.unmatched, in_flight=counts.in_flight,
            sessions=int(self._state != STATE_CLOSED), round_trips=round_trips or RoundTripTimes())

    def _signs(self):
        """Return counts of received and sent messages, whether the cluster owes a message, and whether there is a
        leader. For a client that connects again; a thread other than the client's calls it with the lock."""
        is_connected = self._state == STATE_CONNECTED
        is_owed = (not is_connected or self._publication is None or not self._publication.is_connected()
                   or (self._in_flight is not None and len(self._in_flight) > 0))
        return self._received + self._told, self._sent, is_owed, is_connected

    def _end_because(self, str reason not None):
        """Close it as :meth:`close` does, for a reason of its owner."""
        if self._state != STATE_CLOSED:
            try:
                self._send_close_request(self.cluster_session_id)
            except ClusterError:
                pass                                    # unsent: the cluster times the session out
            finally:
                self._close(reason)

    def next_correlation_id(self):
        """A number that no other client of this driver gets (int), to match an answer to its request."""
        self._check_open()
        return self._client.next_correlation_id()

    # Sending

    def offer(self, *buffers):
        """Try once to send a message, made of the buffers in their order.

        Return the new ingress position (> 0), or NOT_CONNECTED (no leader now, or it stands still),
        BACK_PRESSURED, ADMIN_ACTION, CLOSED or MAX_POSITION_EXCEEDED of :mod:`container.api`. The first needs
        polls of egress before it can change, the next two may change at once. Raise when the message is longer than
        :attr:`max_message_length`.
        """
        cdef BufferVectors vectors
        self._check_thread()
        gather_vectors(&vectors, buffers)
        try:
            return self._offer_vectors(&vectors)
        finally:
            release_vectors(&vectors)

    def try_claim(self, length, BufferClaim buffer_claim not None):
        """Try once to claim ``length`` bytes of the ingress stream for a message, which is written in place.

        Return as :meth:`offer`; after a position (> 0) write ``buffer_claim.buffer``, then commit or abort,
        before the next poll: a new leader closes the stream, and with it the claim. Raise ValueError for a
        negative length, MessageTooLongError beyond :attr:`max_payload_length`, ClusterError while
        ``buffer_claim`` holds another claim.
        """
        cdef Claim claim
        cdef int64_t result
        cdef int64_t count = integer("length", length)
        self._check_thread()
        buffer_claim._check_free()
        if count < 0:
            raise ValueError(f"length must not be negative: {length}")
        result = self._claim_message(<size_t> count, &claim)
        if result > 0:
            buffer_claim._wrap(self._publication, &claim, HEADER_LENGTH, <size_t> count)
        return result

    cdef int64_t _claim_message(self, size_t length, Claim* claim) except? -6:
        # The header is written: the claimer writes after it and commits.
        cdef int64_t result
        if self._publication is None or self._is_settling or self.cluster_session_id < 0:
            return CLOSED if self._state == STATE_CLOSED else NOT_CONNECTED
        result = claim_message(self._publication, self._session_header, length, claim)
        if result > 0:
            self._sent += 1
            self._last_send_ns = self._client.clock.nano_time()
        self._track_result(result)
        return result

    def track_ingress_publication_result(self, result):
        """Report to the client the result of an offer or claim on :attr:`ingress_publication` that it did not make."""
        self._check_thread()
        result = integer("result", result)
        if result > 0:
            self._sent += 1
        self._track_result(result)

    def send(self, *buffers, timeout=None):
        """Send a message: keep offering, idling and polling egress in between, until it is accepted.

        Return the new ingress position. ``timeout`` is in seconds, from 0 (None: the message timeout). Raise
        SendTimedOutError after it, ClosedError when the client is or gets closed, and as :meth:`offer` and
        :meth:`poll_egress` do. From a listener's callback egress is not polled, so there a lost leader is a
        ClusterUnavailableError immediately.
        """
        cdef BufferVectors vectors
        self._check_open()
        if timeout is None:
            timeout = self.context.message_timeout
        else:
            timeout = limit_s(timeout, 0)
        gather_vectors(&vectors, buffers)
        try:
            return self._send_vectors(&vectors, timeout, None)
        finally:
            release_vectors(&vectors)

    cdef int64_t offer_message(self, const uint8_t* buffer, size_t length) except? -6:
        cdef BufferVectors vectors
        vectors.count = 1
        vectors.vectors[1].data = <uint8_t*> buffer
        vectors.vectors[1].length = length
        self._check_thread()
        return self._offer_vectors(&vectors)

    cdef int64_t _offer_vectors(self, BufferVectors* vectors) except? -6:
        cdef int64_t result
        if self._publication is None or self._is_settling or self.cluster_session_id < 0:
            return CLOSED if self._state == STATE_CLOSED else NOT_CONNECTED
        check_message_length(vectors, self._publication)
        vectors.vectors[0].data = self._session_header
        vectors.vectors[0].length = HEADER_LENGTH
        result = self._publication.offer_vectors(vectors.vectors, vectors.count + 1)
        if result > 0:
            self._sent += 1
            self._last_send_ns = self._client.clock.nano_time()
        self._track_result(result)
        return result

    cdef int64_t _offer_request_vectors(self, BufferVectors* vectors, object request) except? -6:
        # Nothing may run between the check of the key and the entry in the table.
        cdef int64_t result
        if request is None:
            return self._offer_vectors(vectors)
        self._requests.check_key(self.cluster_session_id, request.key)
        result = self._offer_vectors(vectors)
        if result > 0:
            self._requests.add(self.cluster_session_id, request, self.leadership_term_id)
        return result

    cdef int64_t _send_vectors(self, BufferVectors* vectors, object timeout, object request) except? -6:
        # request: in flight when it is accepted; None of a message that is not a request.
        cdef int64_t result
        cdef int64_t deadline_ns = self._client.clock.nano_time() + <int64_t> (timeout * NS_PER_S)
        self._idle.reset()
        while True:
            result = self._offer_request_vectors(vectors, request)
            if result > 0:
                return result
            self._check_open()
            if result == NOT_CONNECTED and self._is_polling:
                raise ClusterUnavailableError(
                    "send() from a listener's callback: there is no leader, and none can be heard of before "
                    "the callback has returned")
            if self._client.clock.nano_time() >= deadline_ns:
                raise SendTimedOutError(
                    f"message was not accepted within {timeout:g} s: last result "
                    f"{publication_result_name(result)}, state {ClientState(self._state).name}, "
                    f"leader: member {self.leader_member_id}")
            PyErr_CheckSignals()
            self._idle.idle(self._invoke() if self._is_polling else self._poll(FRAGMENT_LIMIT))

    def send_keep_alive(self):
        """Report to the cluster that the session is alive: SessionKeepAlive (5). A poll does so when it is due.

        Return True when it was sent, False when 3 attempts met back pressure or there is no leader now.
        Raise ClusterError when the stream has reached its greatest position.
        """
        cdef uint8_t request[codec.SESSION_KEEP_ALIVE_ENCODED_LENGTH]
        self._check_open()
        codec.session_keep_alive_encode(
            request, sizeof(request), self.leadership_term_id, self.cluster_session_id)
        if not self._send_request(request, sizeof(request)):
            return False
        self._last_send_ns = self._client.clock.nano_time()
        return True

    def send_admin_request_to_take_a_snapshot(self, correlation_id):
        """Ask the cluster to take a snapshot: AdminRequest (26); the answer comes to ``on_admin_response``.

        A cluster refuses by default: its authorisation service must allow it. Return and raise as
        :meth:`send_keep_alive`.
        """
        cdef uint8_t request[ADMIN_REQUEST_LENGTH]
        self._check_open()
        codec.admin_request_encode(
            request, sizeof(request), self.leadership_term_id, self.cluster_session_id,
            <int64_t> integer("correlation_id", correlation_id),
            codec.ADMIN_REQUEST_TYPE_SNAPSHOT, NULL, 0)
        return self._send_request(request, sizeof(request))

    cdef bint _send_request(self, const uint8_t* request, size_t length) except -1:
        cdef int attempt
        cdef int64_t result
        self._idle.reset()
        for attempt in range(SEND_ATTEMPTS):
            if attempt > 0:
                self._idle.idle(0)
            if self._publication is None:
                return False
            result = self._publication.offer(request, length)
            self._track_result(result)
            if result > 0:
                return True
            if result == MAX_POSITION_EXCEEDED:
                raise ClusterUnavailableError(f"the greatest position is reached: {self.close_reason}")
        return False

    cdef int _offer_keep_alive(self) except -1:
        # One attempt: the next poll makes another.
        cdef uint8_t request[codec.SESSION_KEEP_ALIVE_ENCODED_LENGTH]
        cdef int64_t result
        codec.session_keep_alive_encode(
            request, sizeof(request), self.leadership_term_id, self.cluster_session_id)
        result = self._publication.offer(request, sizeof(request))
        if result > 0:
            self._last_send_ns = self._client.clock.nano_time()
        return self._track_result(result)

    cdef int _track_result(self, int64_t result) except -1:
        # Draw conclusions about the connection to the leader from the result of an offer on the ingress publication.
        if result > 0:
            if self._state == STATE_AWAIT_NEW_LEADER_CONNECTION:
                self._state = STATE_CONNECTED
        elif result == BACK_PRESSURED:
            self._back_pressured += 1
        elif self._state == STATE_CONNECTED:
            # A leader that stands still for some seconds is not connected, but continues the session. One that is gone
            # for good is not heard any more either.
            if result == CLOSED or (result == NOT_CONNECTED and not self._is_heard()):
                self._on_disconnected()
            elif result == MAX_POSITION_EXCEEDED:
                self._close_publication()
                self._close_soon("the ingress publication reached its greatest position: connect again")
        return 0

    # Requests

    def enable_requests(self, correlate not None, *, resend=False):
        """Let :meth:`request` be used: messages that are replies go there, and not to the listener.

        ``correlate`` is given a message's payload (bytes), and returns the key of the request that it answers, which
        must be hashable, or None for a message that is not a reply. ``resend`` is whether requests that do not say so
        themselves (``idempotent``) are sent again to a new leader. Raise ConfigurationError when ``correlate`` cannot
        be called, ClusterError while requests are in flight.
        """
        self._check_open()
        if self._requests is not None and len(self._requests) > 0:
            raise ClusterError(f"{len(self._requests)} requests wait for their replies already")
        if self._requests is None:
            self._use_requests(RequestTable(correlate, resend=resend))
        else:
            self._requests.change(correlate, resend)

    cdef int _use_requests(self, object requests) except -1:
        self._requests = requests
        self._in_flight = None if requests is None else requests._waiting
        self._is_correlating = requests is not None
        if requests is not None:
            requests.round_trips.use(self._client.clock)
        return 0

    @property
    def request_counts(self):
        """Counts of the requests so far, by outcome (RequestCounts); None before :meth:`enable_requests`."""
        return None if self._requests is None else self._requests.counts

    def request(self, *buffers, key, timeout=None, idempotent=None):
        """Send a message and return the payload (bytes) of the reply for which ``correlate`` returns ``key``.

        Poll and idle meanwhile. ``timeout`` is in seconds, for both together (None: the message timeout). With a new
        leader the request is sent again if it is ``idempotent``: the service may carry it out twice; None leaves that
        to the ``resend`` of :meth:`enable_requests`. Use each ``key`` once: a reply says which key it answers, and not
        which request. Raise SendTimedOutError when it was not sent in time, and then as
        :meth:`container.client.Request.wait`; ClosedError, ConfigurationError without ``correlate``; ClusterError
        from a listener's callback, and while a reply with that key may still come: to a request that waits, that ended
        without its reply, or that was sent again. The last 65,536 keys are remembered, until the session ends.
        """
        return self.begin_request(*buffers, key=key, timeout=timeout, idempotent=idempotent).wait()

    def begin_request(self, *buffers, key, timeout=None, idempotent=None):
        """Send a message as :meth:`request` does, and return a :class:`container.client.Request` immediately, so that
        many can be in flight. Polls drive it; its ``wait()`` polls until the reply is there."""
        cdef BufferVectors vectors
        self._check_open()
        request = self._new_request(self.cluster_session_id, buffers, key, timeout, idempotent, self._wait_once)
        gather_vectors(&vectors, buffers)
        try:
            self._send_vectors(&vectors, request._timeout, request)
        finally:
            release_vectors(&vectors)
        return request

    def try_request(self, *buffers, key, timeout=None, idempotent=None):
        """As :meth:`begin_request`, but offer the message once; return None when that was not accepted."""
        cdef BufferVectors vectors
        cdef int64_t result = 0
        self._check_open()
        request = self._new_request(self.cluster_session_id, buffers, key, timeout, idempotent, self._wait_once)
        gather_vectors(&vectors, buffers)
        try:
            result = self._offer_request_vectors(&vectors, request)
        finally:
            release_vectors(&vectors)
        return request if result > 0 else None

    cdef object _new_request(self, int64_t cluster_session_id, tuple buffers, object key, object timeout,
                             object idempotent, object poll):
        # Not in the table before it is sent.
        if self._requests is None:
            raise ConfigurationError("request() needs a function that finds a reply's key: connect(correlate=...)")
        self._requests.check_key(cluster_session_id, key)
        limit = limit_s(timeout, self.context.message_timeout)
        return Request(
            key, as_bytes(buffers) if self._requests.is_resendable(idempotent) else None, timeout=limit,
            deadline_ns=self._client.clock.nano_time() + <int64_t> (limit * NS_PER_S), poll=poll)

    def _wait_once(self):
        self._idle.idle(self.poll_egress())

    cdef bint _is_reply(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except -1:
        return self._requests.take(cluster_session_id, (<const char*> payload)[:length])

    cdef int _settle_requests(self) except -1:
        # End the requests that the last leader was asked. Its messages have been read by now, and a reply may have been
        # among them.
        if self._new_leader is not None:
            return 0
        self._requests.on_new_leader(self.leadership_term_id, self.leader_member_id)
        if self._state != STATE_CONNECTED:
            return 0
        resend = self._resend
        while self._requests.resend_next(resend):
            pass
        self._is_settling = not self._requests.is_all_resent
        return not self._is_settling

    def _resend(self, int64_t cluster_session_id, bytes message not None):
        """Offer a request to the new leader again; result as for :meth:`offer`."""
        cdef uint8_t header[HEADER_LENGTH]
        cdef BufferVector vectors[2]
        cdef int64_t result
        memcpy(header, self._session_header, HEADER_LENGTH)
        codec.session_message_header_put_cluster_session_id(header, cluster_session_id)
        vectors[0].data = header
        vectors[0].length = HEADER_LENGTH
        vectors[1].data = <uint8_t*> <const char*> message
        vectors[1].length = <size_t> len(message)
        result = self._publication.offer_vectors(vectors, 2)
        if result > 0:
            self._sent += 1
        self._track_result(result)
        return result

    # Polling

    cpdef int idle(self, work_count=0) except -1:
        """Wait once, by the idle strategy, unless there was work: ``work_count`` is the result of a poll."""
        self._check_thread()
        return self._idle.idle(_int(work_count, "work_count"))

    cpdef int poll_egress(self, fragment_limit=FRAGMENT_LIMIT) except -1:
        """Receive what the cluster sends, up to ``fragment_limit`` frames, follow the leader and keep the session
        alive. Never wait, except for the driver when a new leader's publication is added.

        Return the work done (int), 0 for none. Raise what the listener raises, ClosedError when the client
        is closed, ClusterError from a listener's callback.
        """
        self._check_open()
        if self._is_polling:
            raise ClusterError("poll_egress() must not be called from a listener's callback")
        return self._poll(_int(fragment_limit, "fragment_limit"))

    def poll_state_changes(self):
        """Do what a poll does beside reading egress: follow a new leader, end waits that last too long, keep the
        session alive. For compiled code that polls :attr:`egress_subscription`.

        Return the work done (int). Raise as :meth:`poll_egress`.
        """
        self._check_open()
        if self._is_polling:
            raise ClusterError("poll_state_changes() must not be called from a listener's callback")
        return self._invoke() + self._poll_state(True)

    def on_new_leader(
            self, cluster_session_id, leadership_term_id, leader_member_id, str ingress_endpoints not None,
            session_id):
        """Report to the client a new leader whose event (NewLeaderEvent, 6) other code has read from
        :attr:`egress_subscription`; the next polls follow it. ``session_id`` is that of the event's header.

        Raise ClusterError when the event is for another session of the cluster, ClosedError when the client is closed.
        """
        self._check_open()
        new_leader = (
            integer("session_id", session_id, 32), integer("leadership_term_id", leadership_term_id),
            integer("leader_member_id", leader_member_id, 32), ingress_endpoints)
        if integer("cluster_session_id", cluster_session_id) != self.cluster_session_id:
            raise ClusterError(
                f"a new leader's event for session {cluster_session_id} does not concern this one, "
                f"{self.cluster_session_id}")
        self._forget_new_leader()
        self._new_leader = new_leader

    cdef int _invoke(self) except -1:
        cdef int work_count
        try:
            work_count = self._client.invoke()
        except BaseException:                           # of its error handler
            if not self._is_polling:
                self._check_client()
            raise
        if self._agent_invoker is not None:
            work_count += int(self._agent_invoker() or 0)
        return work_count

    cdef int _poll(self, int fragment_limit) except -1:
        cdef int work_count = self._invoke()
        cdef int fragments
        self._is_polling = True
        try:
            fragments = self._subscription.controlled_poll(self._assembler, fragment_limit)
        finally:
            self._is_polling = False
            if self._is_close_requested:
                self.close()
        return work_count + fragments + self._poll_state(fragments < fragment_limit)

    cdef int _poll_state(self, bint is_drained) except -1:
        # is_drained: everything that was on egress before has been read.
        cdef int work_count = 0
        cdef int64_t now_ns
        if self._is_settling or (self._in_flight is not None and len(self._in_flight) > 0):
            now_ns = self._client.clock.nano_time()
            if self._is_settling and (is_drained or now_ns >= self._settle_ns):
                work_count += self._settle_requests()
            self._requests.expire(now_ns)
        if self._new_leader is not None and self._state != STATE_CLOSED:
            work_count += self._on_new_leader()
        work_count += self._check_egress_image()
        work_count += self._check_state()
        self._check_keep_alive()
        return work_count

    cdef int _check_egress_image(self) except -1:
        if self._state not in (STATE_CONNECTED, STATE_AWAIT_NEW_LEADER_CONNECTION):
            return 0
        if self._is_heard():
            return 0
        self._on_disconnected()
        return 1

    cdef bint _is_heard(self) noexcept:
        return self._egress_image is not None and not self._egress_image.is_closed()

    cdef int _check_state(self) except -1:
        if self._state == STATE_PENDING_CLOSE:
            self._close(self.close_reason)
            return 1
        if self._check_client():
            return 1
        if self._state not in (STATE_AWAIT_NEW_LEADER, STATE_AWAIT_NEW_LEADER_CONNECTION):
            return 0
        if self._client.clock.nano_time() < self._deadline_ns:
            return 0
        if self._state == STATE_AWAIT_NEW_LEADER:
            self._close(f"no new leader within {self.new_leader_timeout_ns / 1e9:g} s after the connection "
                        f"to member {self.leader_member_id} was lost")
        else:
            self._close(f"nothing could be sent to the new leader, member {self.leader_member_id}, within "
                        f"{self.context.message_timeout:g} s: {self._leader_awaited()}")
        return 1

    cdef str _leader_awaited(self):
        if self._adding is not None:
            return "waited for the driver to add its ingress publication"
        if self._publication is not None:
            return f"waited for a connection on {self._publication!r}"
        return f"its ingress publication could not be added: {self._refusal}"

    cdef bint _check_client(self) except -1:
        if self._state == STATE_CLOSED or not self._client.is_closed():
            return False
        self._close(f"its Aeron client is closed: {self._client.close_reason}")
        return True

    cdef int _check_keep_alive(self) except -1:
        # A new leader watches this client's stream only after a keep alive, so that goes first.
        if self._publication is None:
            return 0
        if self._state == STATE_AWAIT_NEW_LEADER_CONNECTION:
            if self._publication.is_connected():
                self._offer_keep_alive()
        elif (self._keep_alive_interval_ns > 0 and self.cluster_session_id >= 0
                and self._client.clock.nano_time() - self._last_send_ns >= self._keep_alive_interval_ns):
            self._offer_keep_alive()
        return 0

    cdef int _on_disconnected(self) except -1:
        self._close_publication()
        self._forget_new_leader()
        self._state = STATE_AWAIT_NEW_LEADER
        self._deadline_ns = self._client.clock.nano_time() + self.new_leader_timeout_ns
        if self._requests is not None:
            self._requests.on_leader_lost(self.leader_member_id)
        return 0

    cdef int _close_publication(self) except -1:
        if self._publication is not None:
            self._publication.close()
            self._publication = None
        return 0

    # Messages of the cluster

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if self._new_leader is not None:
            return ACTION_ABORT                         # first the new leader, handled when this poll ends
        if sbe_read_header(buffer, length, &message) < 0:
            raise CodecError(f"message of {length} bytes on egress: too short for a message header")
        if message.schema_id != codec.CLUSTER_SCHEMA_ID:
            return self._handler.on_extension_message(
                message.block_length, message.template_id, message.schema_id, message.version,
                buffer[SBE_HEADER_LENGTH:length])
        elif message.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            return self._on_message(buffer, length, header)
        elif message.template_id == codec.SESSION_EVENT_TEMPLATE_ID:
            self._on_session_event(buffer, length)
        elif message.template_id == codec.ADMIN_RESPONSE_TEMPLATE_ID:
            self._on_admin_response(buffer, length)
        elif message.template_id == codec.NEW_LEADER_EVENT_TEMPLATE_ID:
            self._on_new_leader_event(buffer, length, header)
            return ACTION_BREAK
        return ACTION_CONTINUE

    cdef int _on_message(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
        cdef codec.SessionMessageHeader message
        cdef int action
        check_codec(codec.session_message_header_wrap(&message, buffer, length), "SessionMessageHeader")
        if codec.session_message_header_cluster_session_id(&message) != self.cluster_session_id:
            return ACTION_CONTINUE
        self._received += 1
        if self._is_correlating and self._is_reply(
                self.cluster_session_id, buffer + HEADER_LENGTH, length - HEADER_LENGTH):
            return ACTION_CONTINUE
        action = self._handler.on_message(
            self.cluster_session_id, codec.session_message_header_timestamp(&message),
            buffer + HEADER_LENGTH, length - HEADER_LENGTH, header)
        if action == ACTION_ABORT:
            self._received -= 1                         # it comes again
        return action

    cdef int _on_session_event(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SessionEvent event
        cdef str detail
        check_codec(codec.session_event_wrap(&event, buffer, length), "SessionEvent")
        if codec.session_event_cluster_session_id(&event) != self.cluster_session_id:
            if (self._unanswered and codec.session_event_code(&event) == codec.EVENT_CODE_OK
                    and codec.session_event_correlation_id(&event) in self._unanswered):
                del self._unanswered[codec.session_event_correlation_id(&event)]
                self._send_close_request(codec.session_event_cluster_session_id(&event))    # nobody uses that one
            return 0
        self._told += 1
        detail = decode_ascii(event.detail.data, event.detail.length)
        if codec.session_event_code(&event) == codec.EVENT_CODE_CLOSED:
            self._close_soon(f"closed by the cluster: {detail}")
        self._handler.on_session_event(
            codec.session_event_correlation_id(&event), self.cluster_session_id,
            codec.session_event_leadership_term_id(&event), codec.session_event_leader_member_id(&event),
            codec.session_event_code(&event), detail)
        return 0

    cdef int _on_admin_response(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.AdminResponse response
        check_codec(codec.admin_response_wrap(&response, buffer, length), "AdminResponse")
        if codec.admin_response_cluster_session_id(&response) != self.cluster_session_id:
            return 0
        self._told += 1
        self._handler.on_admin_response(
            self.cluster_session_id, codec.admin_response_correlation_id(&response),
            codec.admin_response_request_type(&response), codec.admin_response_response_code(&response),
            decode_ascii(response.message.data, response.message.length), _bytes(&response.payload))
        return 0

    cdef int _on_new_leader_event(
            self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
        cdef codec.NewLeaderEvent event
        check_codec(codec.new_leader_event_wrap(&event, buffer, length), "NewLeaderEvent")
        if codec.new_leader_event_cluster_session_id(&event) == self.cluster_session_id:
            self._told += 1
            self._new_leader = (
                header.session_id, codec.new_leader_event_leadership_term_id(&event),
                codec.new_leader_event_leader_member_id(&event),
                decode_ascii(event.ingress_endpoints.data, event.ingress_endpoints.length))
        return 0

    cdef int _on_new_leader(self) except -1:
        # In steps, so that nothing waits: nothing more is read from egress until the last is done.
        cdef str ingress_endpoints
        if self._adding is None:
            self._begin_new_leader()
        try:
            publication = self._adding.poll()
        except BaseException as error:
            self._refusal = str(error)
            self._forget_new_leader()       # the deadline ends what follows
            raise
        if publication is None:
            return 0
        self._publication = publication
        ingress_endpoints = self._new_leader[3]
        self._forget_new_leader()
        self._is_settling = self._requests is not None and len(self._requests) > 0
        self._settle_ns = self._client.clock.nano_time() + MAX_SETTLE_NS
        if self.cluster_session_id >= 0:
            self._handler.on_new_leader(
                self.cluster_session_id, self.leadership_term_id, self.leader_member_id, ingress_endpoints)
        return 1

    cdef int _begin_new_leader(self) except -1:
        cdef str ingress_endpoints
        cdef int64_t last_term_id = self.leadership_term_id
        session_id, self.leadership_term_id, self.leader_member_id, ingress_endpoints = self._new_leader
        if self.leadership_term_id != last_term_id:
            self._leader_changes += 1
        self._state = STATE_AWAIT_NEW_LEADER_CONNECTION
        self._deadline_ns = self._client.clock.nano_time() + <int64_t> self.context.message_timeout_ns
        self._egress_image = self._subscription.image_by_session_id(session_id)
        codec.session_message_header_put_leadership_term_id(self._session_header, self.leadership_term_id)
        self._assembler.reset()
        self._close_publication()
        try:
            self._adding = begin_add_ingress_publication(
                self._client, self.context, self._leader_channel(ingress_endpoints))
        except BaseException as error:
            self._refusal = str(error)
            self._new_leader = None
            raise
        return 0

    cdef int _forget_new_leader(self) except -1:
        self._new_leader = None
        if self._adding is not None:
            self._adding.close()
            self._adding = None
        return 0

    cdef str _leader_channel(self, str ingress_endpoints):
        if self.context.ingress_endpoints is None:
            return self.context.ingress_channel
        return self.context.member_ingress_channel(leader_endpoint(ingress_endpoints, self.leader_member_id))

    # Closing

    def close(self):
        """End the session (SessionCloseRequest, 4, when there is a leader) and close what the connect
        opened.

        Nothing happens the second time. From a listener's callback it takes effect when the poll ends. Raise
        ClusterError on another thread than the client's while that is alive.
        """
        if self._state == STATE_CLOSED:
            return
        self._check_thread()
        if self._is_polling:
            self._is_close_requested = True
            return
        try:
            self._send_close_request(self.cluster_session_id)
        except ClusterError:
            pass                                        # unsent: the cluster times the session out
        finally:
            self._close("closed by this client")

    cdef int _send_close_request(self, int64_t cluster_session_id) except -1:
        cdef uint8_t request[codec.SESSION_CLOSE_REQUEST_ENCODED_LENGTH]
        if self._state != STATE_CONNECTED or not self._publication.is_connected():
            return 0
        codec.session_close_request_encode(
            request, sizeof(request), self.leadership_term_id, cluster_session_id)
        self._send_request(request, sizeof(request))
        return 0

    cdef int _close_soon(self, str reason) except -1:
        self._state = STATE_PENDING_CLOSE
        self.close_reason = reason
        return 0

    cdef int _close(self, str reason) except -1:
        self._state = STATE_CLOSED
        self.close_reason = reason
        self._egress_image = None
        self._forget_new_leader()
        if self._requests is not None:
            self._requests.on_closed(reason)
        try:
            self._close_publication()                   # first: a driver of its own sends what is in it, and then ends
        finally:
            if self._owns_client:
                self._client.close()
            else:
                self._subscription.close()
        return 0

    cdef int _check_open(self) except -1:
        self._check_thread()
        if self._state == STATE_CLOSED:
            raise ClosedError(f"the client is closed: {self.close_reason}")
        return 0

    cdef int _check_thread(self) except -1:
        cdef long thread_id = PyThread_get_thread_ident()
        if thread_id == self._owner_id or self._is_guarded:
            return 0
        if self._parent_id != 0:
            raise forks.refusal("use a client", f"the client of session {self.cluster_session_id}", self._parent_id)
        if self._owner is not None and self._owner.is_alive():
            raise ClusterError(
                f"this client is used by thread {self._owner.name!r} and cannot be used by "
                f"{threading.current_thread().name!r}: connect a client for each thread")
        self._owner = threading.current_thread()
        self._owner_id = thread_id
        return 0


cdef class AsyncConnect(ConnectSteps):
    """Connects step by step: call :meth:`poll` until it returns the client; idle while :attr:`step` does not
    change. Used as ``with``, it gives up at the end unless it is done.

    The whole connect must be done within the context's message timeout, and a media driver be there within its driver
    timeout if that is shorter. When a poll raises, everything that was opened is closed; the error of a connect whose
    time is up comes when no session can open late any more, 1 s and the message timeout later at most. No poll waits;
    :meth:`close` may. To launch an embedded driver, which making this object does where the context asks for it, takes
    some 25 ms.
    """

    def __init__(self, context not None):
        self._begin(context)

    def __await__(self):
        raise TypeError(f"an AsyncConnect is polled, and is not for asyncio: write {door('AsyncAeronCluster')}")

    def __aenter__(self):
        return self.__await__()

    def __aexit__(self, kind, value, traceback):
        return self.__await__()

    def __repr__(self):
        return f"<AsyncConnect {self.step.name}>"

    cdef object _new_client(self):
        cdef AeronCluster cluster = AeronCluster.__new__(AeronCluster)
        cdef int64_t heartbeat_timeout_ns = self._poller.leader_heartbeat_timeout_ns
        if heartbeat_timeout_ns <= 0:                   # null from a cluster that does not report it
            heartbeat_timeout_ns = LEADER_HEARTBEAT_TIMEOUT_DEFAULT_NS
        cluster._client = self._client
        cluster._owns_client = self._owns_client
        cluster._subscription = self._subscription
        cluster._publication = self._publication
        cluster._unanswered = self._unanswered
        cluster._egress_image = self._subscription.image_by_session_id(self._poller.session_id)
        cluster.cluster_session_id = self._poller.cluster_session_id
        cluster.leadership_term_id = self._poller.leadership_term_id
        cluster.leader_member_id = self._poller.leader_member_id
        cluster.new_leader_timeout_ns = 2 * heartbeat_timeout_ns
        cluster._open(self.context)
        return cluster


seal((AeronCluster, AsyncConnect))
