"""Connects a client to the cluster step by step; no step waits for anybody.

The state machine is upstream's ``AeronCluster.AsyncConnect``, but a redirect is followed to the leader alone,
and is an error where the ingress channel cannot lead there. Where that leader does not listen, or the member that was
asked is gone, all members are tried again: they may be electing another leader.
"""
import enum

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.client.client_context import (
    ClientContext, check_ingress_address, check_instance, leader_endpoint, parse_ingress_endpoints,
)
from container.client.egress_listener import EventCode
from container.client.egress_poller cimport EgressPoller
from container.client.own_driver import DriverChoice
from container.codecs cimport cluster as codec
from container.common.channel_uri import ChannelUri
from container.common.sealed cimport hide
from container.errors import (
    AuthenticationError, ClosedError, ClusterError, ClusterUnavailableError, ContainerError, RegistrationError,
    SessionError, SessionLimitError, TimedOutError,
)
from container.transport.clocks cimport SystemClock
from container.transport.frames cimport CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED, NULL_VALUE
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication, Subscription, publication_result_name
from container.version import client_info

cdef enum:
    AWAIT_DRIVER = -2                                   # ConnectStep
    CREATE_EGRESS_SUBSCRIPTION = -1
    CREATE_INGRESS_PUBLICATIONS = 0
    AWAIT_PUBLICATION_CONNECTED = 1
    SEND_MESSAGE = 2
    POLL_RESPONSE = 3
    CONCLUDE_CONNECT = 4
    DONE = 5

cdef int64_t LOOK_INTERVAL_NS = 5_000_000               # for a driver: a look opens a file
cdef int64_t NS_PER_S = 1_000_000_000
cdef int64_t LEADER_PATIENCE_NS = 1_000_000_000         # for a leader to listen; doubles each time that it does not
cdef str SESSION_LIMIT_DETAIL = "concurrent session limit"      # the consensus module's own words


class ConnectStep(enum.IntEnum):
    """How far an :class:`AsyncConnect` has come (upstream's ``AeronCluster.AsyncConnect.State``, and AWAIT_DRIVER)."""

    AWAIT_DRIVER = -2
    CREATE_EGRESS_SUBSCRIPTION = -1
    CREATE_INGRESS_PUBLICATIONS = 0
    AWAIT_PUBLICATION_CONNECTED = 1
    SEND_MESSAGE = 2
    POLL_RESPONSE = 3
    CONCLUDE_CONNECT = 4
    DONE = 5


_AWAITED = {
    ConnectStep.CREATE_EGRESS_SUBSCRIPTION: "the driver to add the egress subscription",
    ConnectStep.CREATE_INGRESS_PUBLICATIONS: "the driver to add the ingress publication",
    ConnectStep.AWAIT_PUBLICATION_CONNECTED: "a member that listens on ingress (is the node up there?)",
    ConnectStep.SEND_MESSAGE: "room for the request on ingress",
    ConnectStep.POLL_RESPONSE: "an answer on egress (is there a leader, and can it reach our egress_channel?)",
    ConnectStep.CONCLUDE_CONNECT: "the end of the connect",
    ConnectStep.DONE: "nothing",
}


cdef PendingAdd begin_add_ingress_publication(Client client, object context, str channel):
    return client.begin_add_publication(channel, context.ingress_stream_id, context.is_ingress_exclusive)


cdef inline uint8_t* _data(bytearray request) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(request)


cdef str response_channel_of(Subscription subscription):
    """The channel of a subscription with a wildcard port resolved; None until the port is bound."""
    cdef str endpoint
    uri = ChannelUri.parse(subscription.channel)
    if not uri.is_udp or not uri.get("endpoint", "").endswith(":0"):
        return subscription.channel
    endpoint = subscription.resolved_endpoint()
    if not endpoint:
        return None
    uri.replace_wildcard_port(endpoint)
    return str(uri)


cdef object session_refusal(str what, int code, str detail, str where):
    """The exception for a session that the cluster refuses: SessionError, or what it is of it."""
    kind = SessionError
    if code == codec.EVENT_CODE_AUTHENTICATION_REJECTED:
        kind = AuthenticationError
    elif detail == SESSION_LIMIT_DETAIL:
        kind = SessionLimitError
        where += (
            "; its members take no more clients than their max_concurrent_sessions: close sessions, or start the "
            "members with more, such as by AERON_CLUSTER_MAX_SESSIONS=100 in their environment, also for "
            "`aeron-cluster dev` (Java's members: aeron.cluster.max.sessions)")
    named = EventCode(code) if 0 <= code <= codec.EVENT_CODE_CLOSED else None
    return kind(
        f"{what}: {code if named is None else named.name}: {detail}{where}", code=code if named is None else named,
        detail=detail)


cdef class _MemberIngress:
    """The way to one member while connecting."""

    cdef int32_t member_id
    cdef str endpoint
    cdef PendingAdd adding                              # None before and after
    cdef Publication publication                        # None until added
    cdef object error                                   # why it could not be added, or None

    cdef int add_publication(self, Client client, object context) except -1:
        try:
            if self.adding is None:
                self.adding = begin_add_ingress_publication(
                    client, context, context.member_ingress_channel(self.endpoint))
            self.publication = self.adding.poll()
            if self.publication is not None:
                self.adding = None
        except RegistrationError as error:
            self.adding = None
            self.error = error          # the other members may do
        return 0

    cdef int close(self) except -1:
        if self.adding is not None:
            self.adding.close()
            self.adding = None
        if self.publication is not None:
            self.publication.close()
            self.publication = None
        return 0

    cdef str outcome(self):
        if self.error is not None:
            return f"refused by the driver: {self.error}"
        if self.publication is None:
            return "not yet added by the driver"
        return "connected" if self.publication.is_connected() else "nobody listens there"


cdef _MemberIngress _member_ingress(int32_t member_id, str endpoint):
    cdef _MemberIngress member = _MemberIngress.__new__(_MemberIngress)
    member.member_id = member_id
    member.endpoint = endpoint
    return member


cdef class ConnectSteps:
    """A connect, step by step; :class:`AsyncConnect` makes a client of what they lead to."""

    cdef int _begin(self, object context) except -1:
        check_instance("context", context, ClientContext)
        check_ingress_address(context)
        self.context = context
        self._client = context.client
        self._owns_client = context.owns_client or self._client is None
        self._step = CREATE_EGRESS_SUBSCRIPTION
        self._clock = SystemClock() if self._client is None else self._client.clock
        self._correlation_id = NULL_VALUE
        self._unanswered = {}
        self._begin_ns = self._look_ns = self._step_ns = self._clock.nano_time()
        self._deadline_ns = self._begin_ns + <int64_t> context.message_timeout_ns
        self._tried = {}
        self._leader_patience_ns = LEADER_PATIENCE_NS
        self._set_members()
        if self._client is None:
            self._step = AWAIT_DRIVER
            self._choice = DriverChoice(context)
            self._look_for_driver()
        return 0

    cdef int _set_members(self) except -1:
        self._is_redirected = False
        self._members = {}
        if self.context.ingress_endpoints is not None:
            for member_id, endpoint in parse_ingress_endpoints(self.context.ingress_endpoints).items():
                self._members[member_id] = _member_ingress(member_id, endpoint)
        return 0

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    @property
    def step(self):
        """How far the connect has come (ConnectStep)."""
        return ConnectStep(self._step)

    @property
    def awaited(self):
        """The state that the connect waits for now (str), with the members that it tries."""
        if self._step == AWAIT_DRIVER:
            return f"a media driver: {self._choice.absence() or 'one has just come'}"
        return _AWAITED[ConnectStep(self._step)] + self._members_tried()

    @property
    def client(self):
        """The transport's client (:class:`container.transport.transport_seam.Client`); None in step AWAIT_DRIVER."""
        return self._client

    def _be_impatient(self, int64_t patience_ns):
        """Give up also when a driver or a leader that is asked does not answer for so long: it may have ended since.
        Waits for a driver, and for a member that listens, have the time of the whole."""
        self._patience_ns = patience_ns

    def poll(self):
        """Do what can be done now. Return the connected AeronCluster, or None while there is more to do.

        Raise TimedOutError (the text says what was waited for), DriverTimeoutError, AuthenticationError,
        SessionError when the cluster refuses, ClusterError when the connection is lost, RegistrationError when the
        driver refuses a channel.
        """
        cdef int step = self._step
        if self._step == DONE:
            if self._result is None:
                raise ClosedError("this connect was given up; make another AsyncConnect")
            return self._result
        try:
            PyErr_CheckSignals()
            if self._failure is None:
                try:
                    self._poll_step()
                except Exception as error:
                    self._failure = error
            if self._failure is not None:
                if not self._poll_end():
                    return None
                raise self._failure
        except BaseException:
            self._failure = None
            self.close()
            raise
        if self._step != step:
            self._step_ns = self._clock.nano_time()
        return self._result

    cdef int _poll_step(self) except -1:
        if self._step != AWAIT_DRIVER:
            self._failure = self._timeout()
            if self._failure is not None:
                return 0
            self._client.invoke()
            if self._client.is_closed():
                raise ClosedError(f"cluster connect: its Aeron client is closed: {self._client.close_reason}")
        if self.context.agent_invoker is not None:
            self.context.agent_invoker()
        if self._step == AWAIT_DRIVER:
            return self._look_for_driver()
        if self._step == CREATE_EGRESS_SUBSCRIPTION:
            return self._create_egress_subscription()
        if self._step == CREATE_INGRESS_PUBLICATIONS:
            return self._create_ingress_publication()
        if self._step == AWAIT_PUBLICATION_CONNECTED:
            return self._await_publication_connected()
        if self._step == SEND_MESSAGE:
            return self._send_message()
        if self._step == POLL_RESPONSE:
            return self._poll_response()
        return self._conclude_connect()

    def close(self):
        """Give up: close what was opened. Nothing happens after the connect is done, or the second time.

        While a request to connect is unanswered, wait for the answer, for 1 s and the message timeout at most: a
        session that opens late is closed, and does not stay until the cluster times it out.
        """
        cdef IdleStrategy idle = self.context.idle_strategy
        try:
            while not self._poll_end():
                PyErr_CheckSignals()
                idle.idle(0)
        finally:
            self._close_now()

    def _poll_end(self):
        """Give up in steps that never wait: True when no answer is awaited any more. :meth:`close` does the rest."""
        if self._step == CONCLUDE_CONNECT:
            self._close_session()
            self._step = POLL_RESPONSE
        if self._step == DONE or not self._unanswered:
            return True
        if self._end_ns == 0:
            self._end_ns = self._clock.nano_time() + min(LATE_ANSWER_NS, <int64_t> self.context.message_timeout_ns)
        try:
            self._client.invoke()
            if self.context.agent_invoker is not None:
                self.context.agent_invoker()            # it may be what runs the member that is to answer
            if (self._client.is_closed() or self._clock.nano_time() >= self._end_ns
                    or self._publication is None or not self._publication.is_connected()):
                return True
            if self._read_answer() and self._poller.encoded_challenge is None and (
                    self._poller.code == codec.EVENT_CODE_OK):
                self._close_session()
        except BaseException as error:                  # nothing can be heard any more
            self._unanswered.clear()
            if not isinstance(error, ContainerError):
                raise
        return not self._unanswered

    cdef bint _read_answer(self) except -1:
        # True when one has come, to the last request or to an earlier one.
        self._poller.poll()
        if not self._poller.is_complete or self._poller.correlation_id not in self._unanswered:
            return False
        if self._poller.encoded_challenge is None and self._poller.code not in (
                codec.EVENT_CODE_OK, codec.EVENT_CODE_ERROR, codec.EVENT_CODE_REDIRECT,
                codec.EVENT_CODE_AUTHENTICATION_REJECTED):
            return False
        del self._unanswered[self._poller.correlation_id]
        return True

    cdef int _close_session(self) except -1:
        # That of the last answer. Nobody uses it.
        cdef uint8_t request[codec.SESSION_CLOSE_REQUEST_ENCODED_LENGTH]
        codec.session_close_request_encode(
            request, sizeof(request), self._poller.leadership_term_id, self._poller.cluster_session_id)
        self._publication.offer(request, sizeof(request))
        return 0

    def _close_now(self):
        """As :meth:`close`, without the wait."""
        if self._step == DONE:
            return
        self._step = DONE
        try:
            if self._adding is not None:
                self._adding.close()
            self._close_members(None)
            if self._publication is not None:
                self._publication.close()
        finally:
            if self._owns_client and self._client is not None:
                self._client.close()
            elif self._subscription is not None:
                self._subscription.close()

    cdef int _look_for_driver(self) except -1:
        # The client's own wait for a driver would block, and for the driver's timeout.
        cdef int64_t now_ns = self._clock.nano_time()
        cdef int64_t limit_ns
        if now_ns < self._look_ns:
            return 0
        if self._choice.driver is None:
            absence = self._choice.absence()
            if absence is not None:
                limit_ns = min(<int64_t> (self.context.driver_timeout * NS_PER_S), self.context.message_timeout_ns)
                if now_ns - self._begin_ns >= limit_ns:
                    raise self._choice.timed_out(absence, limit_ns)
                self._look_ns = now_ns + LOOK_INTERVAL_NS
                return 0
        from container.aeron import AeronClient         # loads the Aeron library: only where it is needed
        self._client = AeronClient(
            self._choice.aeron_dir, self.context.client_name or "cluster-client", use_invoker=True,
            driver_timeout_ms=max(1, int(self.context.driver_timeout * 1000)),
            error_handler=self.context.error_handler, driver=self._choice.driver)
        self._step = CREATE_EGRESS_SUBSCRIPTION
        return 0

    cdef object _timeout(self):
        # The error of a connect whose time is up; None before.
        cdef int64_t now_ns = self._clock.nano_time()
        cdef bint is_answered = self._step != AWAIT_PUBLICATION_CONNECTED and self._step != CONCLUDE_CONNECT
        if now_ns < self._deadline_ns and not (
                is_answered and 0 < self._patience_ns < now_ns - self._step_ns):
            return None
        step = ConnectStep(self._step)
        waited_ns = now_ns - (self._begin_ns if now_ns >= self._deadline_ns else self._step_ns)
        waited_s = min(waited_ns / NS_PER_S, self.context.message_timeout)
        return TimedOutError(
            f"cluster connect: waited {waited_s:.6g} s for {_AWAITED[step]}: "
            f"step={step.name} ingress_channel={self.context.ingress_channel} "
            f"ingress_endpoints={self.context.ingress_endpoints} publication={self._publication} "
            f"egress={self._subscription} "
            f"egress_connected={self._subscription is not None and bool(self._subscription.is_connected())}"
            f"{self._members_tried()}")

    cdef str _members_tried(self):
        # For the text of an error: each member that was tried, in order, and what became of it.
        cdef _MemberIngress member
        tried = self._tried | {
            f"{member.member_id}={member.endpoint}": member.outcome() for member in self._members.values()}
        return f"; members tried: {'; '.join([': '.join(item) for item in tried.items()])}" if tried else ""

    cdef int _create_egress_subscription(self) except -1:
        if self._adding is None:
            self._adding = self._client.begin_add_subscription(
                self.context.egress_subscription_channel(), self.context.egress_stream_id, False)
        try:
            self._subscription = self._adding.poll()
        except RegistrationError as error:
            raise RegistrationError(
                f"cannot open egress_channel={self.context.egress_channel!r}: it must have an address of this host and "
                f"a port, such as 'aeron:udp?endpoint=localhost:0', where 0 takes a free one: {error}", code=error.code,
                category=error.category) from error
        if self._subscription is None:
            return 0
        self._adding = None
        self._poller = EgressPoller(self._subscription)
        self._step = CREATE_INGRESS_PUBLICATIONS
        return 0

    cdef int _create_ingress_publication(self) except -1:
        # With endpoints, all members' publications are added in the next step, where some may fail.
        if self.context.ingress_endpoints is None:
            if self._adding is None:
                self._adding = begin_add_ingress_publication(
                    self._client, self.context, self.context.ingress_channel)
            self._publication = self._adding.poll()
            if self._publication is None:
                return 0
            self._adding = None
        self._step = AWAIT_PUBLICATION_CONNECTED
        return 0

    cdef int _await_publication_connected(self) except -1:
        cdef str response_channel = response_channel_of(self._subscription)
        if response_channel is None:
            return 0
        if self._publication is None:
            self._choose_member()
        if self._publication is not None and self._publication.is_connected():
            self._prepare_connect_request(response_channel)
        elif self._is_redirected and self.context.ingress_endpoints is not None and (
                self._clock.nano_time() - self._step_ns >= self._leader_patience_ns):
            self._leader_patience_ns *= 2
            self._try_all_again()
        return 0

    cdef int _try_all_again(self) except -1:
        # The member that was asked, or that others call the leader, is gone.
        cdef _MemberIngress member
        for member in self._members.values():
            if self._is_redirected or (self._publication is not None and member.publication is self._publication):
                self._tried[f"{member.member_id}={member.endpoint}"] = member.outcome()
        if self._publication is not None:
            self._publication.close()
            self._publication = None
        self._close_members(None)
        self._set_members()
        self._step = AWAIT_PUBLICATION_CONNECTED
        return 0

    cdef int _choose_member(self) except -1:
        # Take the first that is connected.
        cdef _MemberIngress member
        cdef int errors = 0
        for member in self._members.values():
            if member.publication is None and member.error is None:
                member.add_publication(self._client, self.context)
            if member.error is not None:
                errors += 1
            elif member.publication is not None and member.publication.is_connected():
                self._publication = member.publication
                return 0
        if errors == len(self._members):
            raise self._no_member()
        return 0

    cdef object _no_member(self):
        cdef _MemberIngress member
        error = ClusterUnavailableError(f"no member's ingress publication could be added{self._members_tried()}")
        error.is_retryable = any([member.error.is_retryable for member in self._members.values()])
        return error

    cdef int _prepare_connect_request(self, str response_channel) except -1:
        cdef bytes channel = response_channel.encode("ascii")
        cdef bytes credentials = bytes(self.context.credentials_supplier.encoded_credentials())
        cdef bytes info = client_info(self.context.client_name).encode("ascii", "replace")
        self._correlation_id = self._client.next_correlation_id()
        self._request = bytearray(codec.session_connect_request_encoded_length(
            <uint32_t> len(channel), <uint32_t> len(credentials), <uint32_t> len(info)))
        codec.session_connect_request_encode(
            _data(self._request), len(self._request), self._correlation_id, self.context.egress_stream_id,
            PROTOCOL_VERSION, channel, <uint32_t> len(channel), credentials, <uint32_t> len(credentials),
            info, <uint32_t> len(info))
        self._step = SEND_MESSAGE
        return 0

    cdef int _prepare_challenge_response(self) except -1:
        cdef bytes credentials = bytes(
            self.context.credentials_supplier.on_challenge(self._poller.encoded_challenge))
        self._correlation_id = self._client.next_correlation_id()
        self._request = bytearray(codec.challenge_response_encoded_length(<uint32_t> len(credentials)))
        codec.challenge_response_encode(
            _data(self._request), len(self._request), self._correlation_id, self._poller.cluster_session_id,
            credentials, <uint32_t> len(credentials))
        self._step = SEND_MESSAGE
        return 0

    cdef int _send_message(self) except -1:
        cdef int64_t result = self._publication.offer(_data(self._request), len(self._request))
        if result > 0:
            self._unanswered[self._correlation_id] = None
            self._step = POLL_RESPONSE
        elif result == NOT_CONNECTED and self.context.ingress_endpoints is not None:
            self._try_all_again()
        elif result in (NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED):
            raise ClusterUnavailableError(
                f"unexpected loss of connection to the cluster: {publication_result_name(result)} on "
                f"{self._publication.channel} stream {self._publication.stream_id}{self._members_tried()}")
        return 0

    cdef int _poll_response(self) except -1:
        cdef bint is_answer = self._read_answer()
        if is_answer and self._poller.correlation_id != self._correlation_id:
            is_answer = False                           # to a request before the last
            if self._poller.encoded_challenge is None and self._poller.code == codec.EVENT_CODE_OK:
                self._close_session()
        if not is_answer:
            if self.context.ingress_endpoints is not None and not self._publication.is_connected():
                self._try_all_again()
            return 0
        if self._poller.encoded_challenge is not None:
            return self._prepare_challenge_response()
        if self._poller.code == codec.EVENT_CODE_OK:
            self._step = CONCLUDE_CONNECT
        elif self._poller.code == codec.EVENT_CODE_REDIRECT:
            self._redirect()
        elif self._poller.code in (codec.EVENT_CODE_ERROR, codec.EVENT_CODE_AUTHENTICATION_REJECTED):
            raise session_refusal(
                "cluster connect", self._poller.code, self._poller.detail, self._members_tried())
        return 0

    cdef int _redirect(self) except -1:
        # Only the leader is tried from here on: a follower that is reached first would only redirect again.
        cdef int32_t leader_member_id = self._poller.leader_member_id
        cdef _MemberIngress leader, member
        cdef _MemberIngress known = self._members.get(leader_member_id)
        cdef Publication kept = None
        if ChannelUri.parse(self.context.ingress_channel).is_ipc:
            raise ClusterError(
                f"the member at {self.context.ingress_channel} is not the leader, member {leader_member_id} "
                f"is; connect there: {self._poller.detail}")
        leader = _member_ingress(leader_member_id, leader_endpoint(self._poller.detail, leader_member_id))
        for member in self._members.values():
            if member.publication is not None and member.publication is self._publication:
                self._tried[f"{member.member_id}={member.endpoint}"] = f"redirected to member {leader_member_id}"
        if known is not None and known.endpoint == leader.endpoint:
            leader.publication = kept = known.publication
        if self._publication is not None and self._publication is not kept:
            self._publication.close()
        self._close_members(kept)
        self._publication = kept
        self._members = {leader_member_id: leader}
        self._is_redirected = True
        self._step = AWAIT_PUBLICATION_CONNECTED
        return 0

    cdef int _conclude_connect(self) except -1:
        self._close_members(self._publication)
        self._result = self._new_client()
        self._step = DONE
        return 0

    cdef object _new_client(self):
        raise TypeError(f"{type(self).__name__} makes no client")

    cdef int _close_members(self, Publication kept) except -1:
        cdef _MemberIngress member
        for member in self._members.values():
            if member.publication is not kept:
                member.close()
        return 0


hide((_MemberIngress, ConnectSteps))
