"""Sessions of clients: connects, authentication, the open and close events in the log, time-outs, and their roll-back.

Upstream: SessionManager.java, ClusterSessionProxy.java. A client's session is open from its open event in the log to
its close event; every member has the same sessions at the same log position, and only the leader has their egress.

Better than upstream's: the number of clients that wait for an answer other than a session is bounded, and the memory of
their egress, which there must be before anybody is authenticated: the answer goes there. An error of an authenticator
ends only the client that it was asked about. Snapshots have the sessions in the order of their ids.
"""
from collections import deque

from libc.stdint cimport int32_t, int64_t

from container.codecs.cluster cimport (
    CLOSE_REASON_CLIENT_ACTION, CLOSE_REASON_SERVICE_ACTION, CLOSE_REASON_TIMEOUT, CLUSTER_SCHEMA_ID,
    EVENT_CODE_AUTHENTICATION_REJECTED, EVENT_CODE_CLOSED, EVENT_CODE_ERROR, EVENT_CODE_OK, EVENT_CODE_REDIRECT,
)
from container.common.aeron_defaults import IPC_SOURCE_IDENTITY
from container.common.counter_labels import bounded_label
from container.common.sealed cimport hide, seal
from container.common.semantic_version import format_version, major_version
from container.consensus cimport egress_publisher
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_session cimport (
    AUTHENTICATED, CHALLENGED, CLOSED, CLOSING, CONNECTED, CONNECTING, INIT, INVALID, OPEN, REJECTED, ClusterSession,
)
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.session_table cimport SessionTable
from container.errors import ClosedError, ClusterError, ClusterEvent, MessageTooLongError
from container.transport.counters cimport Counter
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image

cdef enum:
    PROTOCOL_MAJOR_VERSION = 0
    PROTOCOL_VERSION = 0 << 16 | 3 << 8
    MAX_PRINCIPAL_LENGTH = 4096
    STILL_SHARE = 2                     # a member that did not look at its sessions for half their time-out stood still
    MAX_WAITING = 1_000                 # clients that wait for a refusal, or for an answer without a session
    MAX_CONNECTING = 32                 # how many egress publications the driver is asked for at a time
    MAX_TOLD = MAX_WAITING // 2         # former sessions that hear of their end at a time: half is for who comes
    REFUSAL_TERM_LENGTH = 64 * 1024
    ANSWER_TERM_LENGTH = 128 * 1024     # a backup's answer has an entry for each service: it fits 16 KiB

cdef int64_t CONNECT_LIMIT_NS = 2_000_000_000       # of a former session's client, while others wait to be told

_CLOSE_REASON_NAMES = {
    CLOSE_REASON_CLIENT_ACTION: "CLIENT_ACTION",
    CLOSE_REASON_SERVICE_ACTION: "SERVICE_ACTION",
    CLOSE_REASON_TIMEOUT: "TIMEOUT",
}
_CODE_NAMES = {EVENT_CODE_ERROR: "ERROR", EVENT_CODE_AUTHENTICATION_REJECTED: "AUTHENTICATION_REJECTED"}

SESSION_LIMIT = "concurrent session limit"
SESSION_REJECTED = "session failed authentication"
MEMBER_ENDED = "the only member has ended"
_SESSION_FAILED = "the cluster failed to serve this request: see the error log of the member"
_SESSION_TOO_LONG = "response channel and principal do not fit a message of the log"


cdef class SessionDecision:
    """An authenticator's decision about one client; valid only during the call (upstream's SessionProxy)."""
    cdef ClusterSession _session

    cdef ClusterSession _open(self):
        if self._session is None:
            raise ClosedError("the authenticator's call is over: decide about a client during the call that asks")
        return self._session

    @property
    def session_id(self):
        """The id of the session (int); -1 of a client that wants an answer and no session."""
        return self._open().id

    @property
    def is_local(self):
        """Whether the client asks in shared memory (bool)."""
        return self._open().is_local

    def challenge(self, encoded_challenge):
        """Ask the client for more, with these bytes; False when they could not be sent now: decide again when asked."""
        cdef ClusterSession session = self._open()
        if not egress_publisher.send_challenge(
                session.publication, session.id, session.correlation_id, bytes(encoded_challenge)):
            return False
        session.state = CHALLENGED
        return True

    def authenticate(self, encoded_principal):
        """Accept the client, as this principal (bytes, at most 4096; None for none). True."""
        cdef bytes principal = b"" if encoded_principal is None else bytes(encoded_principal)
        if len(principal) > MAX_PRINCIPAL_LENGTH:
            raise ClusterError(
                f"encoded principal max length {MAX_PRINCIPAL_LENGTH} exceeded: length={len(principal)}")
        self._open().authenticate(principal)
        return True

    def reject(self):
        """Refuse the client."""
        self._open().refuse(EVENT_CODE_AUTHENTICATION_REJECTED, SESSION_REJECTED)


cdef class SessionManager:
    """The sessions of member ``member_id``; it asks ``client`` for their egress, and appends to ``log_publisher``.

    Args:
        client: what egress publications and counters are added to (Client).
        cluster_clock: for timestamps in the log (ClusterClock).
        log_publisher: the log (LogPublisher).
        authenticator: who may connect (container.archive.authentication.Authenticator).
        authorisation_service: who may do what (container.archive.authentication.AuthorisationService).
        on_error: is given each error and event (Exception); it must not raise.
        timed_out_counter: counts clients that timed out (Counter).
        cluster_id, member_id: of the member (int).
        session_timeout_ns: how long a client may be silent (int).
        leader_heartbeat_timeout_ns: after which clients give a leader up (int).
        max_concurrent_sessions: how many clients there may be (int).
    """

    def __init__(
            self, Client client not None, ClusterClock cluster_clock not None, LogPublisher log_publisher not None, *,
            authenticator, authorisation_service, on_error, Counter timed_out_counter not None, int32_t cluster_id,
            int32_t member_id, int64_t session_timeout_ns, int64_t leader_heartbeat_timeout_ns,
            int max_concurrent_sessions):
        self._client, self._clock = client, client.clock
        self._cluster_clock, self._log_publisher = cluster_clock, log_publisher
        self._authenticator, self.authorisation_service = authenticator, authorisation_service
        self._on_error, self._timed_out_counter = on_error, timed_out_counter
        self._cluster_id, self._member_id = cluster_id, member_id
        self._session_timeout_ns = session_timeout_ns
        self._leader_heartbeat_timeout_ns = leader_heartbeat_timeout_ns
        self._max_concurrent_sessions = max_concurrent_sessions
        self._table = SessionTable()
        self._pending, self._pending_actions, self._refused = [], [], []
        self._unconnected, self._connecting, self._former = deque(), [], deque()
        self._uncommitted_closed, self._uncommitted_ids = deque(), deque()
        self.next_session_id = self.next_committed_session_id = 1

    cdef ClusterSession find(self, int64_t cluster_session_id):
        """A session that is in the log, or None."""
        return self._table.find(cluster_session_id)

    cdef list in_order(self):
        """The sessions that are in the log, by their ids."""
        return self._table.in_order()

    # Requests

    cdef ClusterSession _new(
            self, int64_t session_id, int64_t correlation_id, str response_channel, int32_t response_stream_id,
            str client_info, Image image, object action):
        cdef ClusterSession session
        cdef str source = f"sourceIdentity={image.source_identity} sessionId={image.session_id}"
        cdef str label = bounded_label(
            "cluster-session: ", client_info, f"{' ' if client_info else ''}{source} - clusterId={self._cluster_id}")
        session = ClusterSession(session_id, response_channel, response_stream_id, label, self._on_error, action)
        session.is_local = image.source_identity == IPC_SOURCE_IDENTITY
        session.answer_to(correlation_id, self._clock.nano_time())
        if action is not None:
            session.expect_one_answer(ANSWER_TERM_LENGTH)
        return session

    cdef int _connect(self, ClusterSession session) except -1:
        """Have the egress made, when it is its turn."""
        self._unconnected.append(session)
        return self._begin_connects()

    cdef int _begin_connects(self) except -1:
        cdef ClusterSession session
        if self._connecting:
            self._connecting = [session for session in self._connecting if session.is_connecting()]
        while self._unconnected and len(self._connecting) < MAX_CONNECTING:
            session = self._unconnected.popleft()
            if session.state == CLOSED or session.state == INVALID:
                continue
            try:
                session.begin_connect(self._client, self._cluster_id)
            except Exception as error:
                self._on_error(error)
                session.state = INVALID         # nobody can be told anything
            else:
                self._connecting.append(session)
        return 0

    cdef int on_session_connect(
            self, int64_t correlation_id, int32_t response_stream_id, int32_t version, str response_channel,
            bytes encoded_credentials, str client_info, Image image, bint is_leader, str ingress_endpoints) except -1:
        """A client wants a session (SessionConnectRequest, 3). Each gets an id of its own, also one that is refused."""
        cdef ClusterSession session
        cdef int64_t session_id = NULL_VALUE
        if is_leader:
            session_id = self.next_session_id
            self.next_session_id += 1
        if len(self._refused) >= MAX_WAITING:
            self._on_error(ClusterEvent(
                f"connect request not answered: {MAX_WAITING} clients wait to be refused, "
                f"correlationId={correlation_id} responseChannel={response_channel}"))
            return 0
        session = self._new(
            session_id, correlation_id, response_channel, response_stream_id, client_info, image, None)
        if not is_leader:
            return self._refuse(session, EVENT_CODE_REDIRECT, ingress_endpoints, False)
        if self._check_version(session, version):
            return 0
        if len(self._pending) + len(self._table.sessions) >= self._max_concurrent_sessions:
            return self._refuse(session, EVENT_CODE_ERROR, SESSION_LIMIT, True)
        session.link(image.correlation_id)
        return self._begin_authentication(session, encoded_credentials, self._pending)

    cdef int on_action_request(
            self, object action, int64_t correlation_id, int32_t response_stream_id, int32_t version,
            str response_channel, bytes encoded_credentials, Image image) except -1:
        """Somebody wants an answer, and no session: ``action`` gives it once the client is authenticated."""
        cdef ClusterSession session
        if len(self._pending_actions) + len(self._refused) >= MAX_WAITING:
            self._on_error(ClusterEvent(
                f"request not answered: {MAX_WAITING} wait, correlationId={correlation_id} "
                f"responseChannel={response_channel}"))
            return 0
        session = self._new(
            NULL_VALUE, correlation_id, response_channel, response_stream_id, action.name, image, action)
        if self._check_version(session, version):
            return 0
        return self._begin_authentication(session, encoded_credentials, self._pending_actions)

    cdef int _check_version(self, ClusterSession session, int32_t version) except -1:
        """Refuse a client of another major version; whether it was refused (bool)."""
        if major_version(version) == PROTOCOL_MAJOR_VERSION:
            return False
        self._refuse(
            session, EVENT_CODE_ERROR, f"invalid client version {format_version(version)}, cluster is "
                                       f"{format_version(PROTOCOL_VERSION)}", True)
        return True

    def _begin_authentication(self, ClusterSession session, bytes encoded_credentials, list pending):
        cdef object failure = None
        try:
            self._authenticator.on_connect_request(session.id, encoded_credentials, self._clock.epoch_ms())
        except Exception as error:
            failure = error
        if failure is None:
            pending.append(session)
            self._connect(session)
        else:
            self._on_error(failure)
            self._refuse(session, EVENT_CODE_AUTHENTICATION_REJECTED, SESSION_REJECTED, False)
        return 0

    cdef int _refuse(self, ClusterSession session, int32_t code, str detail, bint is_reported) except -1:
        """Refuse a client that has no egress yet."""
        session.refuse(code, detail)
        session.expect_one_answer(REFUSAL_TERM_LENGTH)
        self._refused.append(session)
        self._connect(session)
        if is_reported:
            self._report_refusal(session, code, detail)
        return 0

    def _report_refusal(self, ClusterSession session, int32_t code, str detail):
        self._on_error(ClusterEvent(
            f"{_CODE_NAMES.get(code, code)} {detail}, clusterMemberId={self._member_id}, id={session.id}"))

    cdef int on_challenge_response(
            self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials, bint is_of_client
    ) except -1:
        """A client that was challenged answers (ChallengeResponse, 8); later answers are to this request."""
        cdef ClusterSession session
        for session in reversed(self._pending if is_of_client else self._pending_actions):
            if session.id == cluster_session_id and session.state == CHALLENGED:
                session.answer_to(correlation_id, self._clock.nano_time())
                try:
                    self._authenticator.on_challenge_response(
                        cluster_session_id, encoded_credentials, self._clock.epoch_ms())
                except Exception as error:
                    self._on_error(error)
                    session.refuse(EVENT_CODE_AUTHENTICATION_REJECTED, SESSION_REJECTED)
                break
        return 0

    cdef int on_session_close(self, int64_t leadership_term_id, int64_t cluster_session_id) except -1:
        """A client closes its session (SessionCloseRequest, 4). An event that the log does not take now is appended
        later."""
        cdef ClusterSession session = self.find(cluster_session_id)
        if session is not None and session.is_open():
            session.closing(CLOSE_REASON_CLIENT_ACTION)
            session.disconnect()
            self._append_close(session, leadership_term_id, False)
        return 0

    cdef int on_service_close_session(
            self, int64_t cluster_session_id, bint is_active_leader, int64_t leadership_term_id) except -1:
        """A service closes a session (CloseSession, 30), on every member; the leader appends it."""
        cdef ClusterSession session = self.find(cluster_session_id)
        if session is not None:
            session.closing(CLOSE_REASON_SERVICE_ACTION)
            if is_active_leader:
                self._append_close(session, leadership_term_id, True)
        return 0

    cdef int on_unavailable_ingress_image(self, int64_t image_correlation_id) except -1:
        """The ingress of clients is gone: sessions that came on it are closed at the next check."""
        cdef ClusterSession session
        for session in self._table.sessions:
            if session.ingress_image_correlation_id == image_correlation_id and session.is_open():
                session.closing(CLOSE_REASON_TIMEOUT)
        return 0

    cdef bint may(self, int32_t template_id, object action_type, ClusterSession session) except -1:
        """Whether its client is allowed what a message asks for; not where that cannot be said."""
        cdef object allowed = False
        try:
            allowed = self.authorisation_service.is_authorised(
                CLUSTER_SCHEMA_ID, template_id, action_type, session.encoded_principal)
        except Exception as error:
            self._on_error(error)
        return allowed is True

    # Events of the log on a follower

    cdef int on_replay_session_open(
            self, int64_t log_position, int64_t correlation_id, int64_t cluster_session_id, int32_t response_stream_id,
            str response_channel) except -1:
        """SessionOpenEvent (21), which ends at a log position."""
        cdef ClusterSession session = ClusterSession(
            cluster_session_id, response_channel, response_stream_id, self._label(response_channel), self._on_error)
        session.answer_to(correlation_id, self._clock.nano_time())
        session.open(log_position)
        session.open_event_sent()
        self._table.add(session)
        self.next_session_id = max(self.next_session_id, cluster_session_id + 1)
        self.next_committed_session_id = max(self.next_committed_session_id, cluster_session_id + 1)
        return 0

    def _label(self, str response_channel):
        return bounded_label("cluster-session: ", response_channel, f" - clusterId={self._cluster_id}")

    cdef int on_replay_session_close(self, int64_t cluster_session_id) except -1:
        """SessionCloseEvent (22)."""
        cdef ClusterSession session = self.find(cluster_session_id)
        if session is not None:
            self._remove(session)
        return 0

    cdef int on_load_session(
            self, int64_t cluster_session_id, int64_t correlation_id, int64_t opened_log_position,
            int32_t close_reason, int32_t response_stream_id, str response_channel) except -1:
        """ClusterSession (103), of a snapshot."""
        cdef ClusterSession session = ClusterSession(
            cluster_session_id, response_channel, response_stream_id, self._label(response_channel), self._on_error)
        session.load(correlation_id, opened_log_position, close_reason)
        self._table.add(session)
        if cluster_session_id >= self.next_session_id:
            self.next_session_id = self.next_committed_session_id = cluster_session_id + 1
        return 0

    cdef int load_next_session_id(self, int64_t next_session_id) except -1:
        """Set the next session id from a snapshot."""
        self.next_session_id = self.next_committed_session_id = next_session_id
        return 0

    # Slow ticks

    cdef int tell_the_refused(self, int64_t leadership_term_id, int32_t leader_member_id) except -1:
        """Tell clients why they have no session; how many ended (int). On every member, also in an election."""
        cdef ClusterSession session
        cdef int64_t now_ns = self._clock.nano_time()
        cdef int32_t code
        cdef str detail
        cdef list waiting
        cdef int64_t limit_ns
        if self._former:
            self._take_former(now_ns)
        if self._unconnected:
            self._begin_connects()
        if not self._refused:
            return 0
        waiting = []
        for session in self._refused:
            code, detail = session.refusal
            limit_ns = self._session_timeout_ns
            if code == EVENT_CODE_CLOSED and self._former:
                limit_ns = min(limit_ns, CONNECT_LIMIT_NS)
            if session.poll_connected(now_ns) and self._send_event(
                    session, leadership_term_id, leader_member_id, code, detail):
                session.close()
            elif now_ns - session.time_of_last_activity_ns > limit_ns or (
                    session.publication is None and session.state == INVALID):
                session.close()
            else:
                waiting.append(session)
        ended = len(self._refused) - len(waiting)
        self._refused = waiting
        return ended

    cdef int process_pending(self, int64_t leadership_term_id) except -1:
        """Take clients that connect one step on, as the leader; how much was done (int)."""
        cdef int work_count = 0
        if self._pending:
            work_count += self._process(self._pending, leadership_term_id)
        return work_count + self.process_pending_actions(leadership_term_id)

    cdef int process_pending_actions(self, int64_t leadership_term_id) except -1:
        """Take those that want an answer one step on; how much was done (int)."""
        return self._process(self._pending_actions, leadership_term_id) if self._pending_actions else 0

    cdef int _process(self, list pending, int64_t leadership_term_id) except -1:
        cdef ClusterSession session
        cdef int64_t now_ns = self._clock.nano_time()
        cdef list left = []
        cdef int count = len(pending)
        for session in pending:
            try:
                if not self._take_on(session, leadership_term_id, now_ns):
                    left.append(session)
            except MemoryError:                 # maybe of what is in the log already
                raise
            except Exception as error:
                self._give_up(session, error)
        pending[:] = left
        return count - len(left)

    cdef bint _take_on(self, ClusterSession session, int64_t leadership_term_id, int64_t now_ns) except -1:
        """Take one client a step on; whether it is pending no more."""
        if session.state == INVALID:
            session.close()
            return True
        if session.has_timed_out(now_ns, self._session_timeout_ns):
            session.close()
            self._timed_out_counter.increment()
            return True
        self._authenticate(session, now_ns)
        if session.state == AUTHENTICATED:
            if session.action is None:
                if self._open(session, leadership_term_id, now_ns):
                    return True
            elif self._respond(session):
                return True
        if session.state == REJECTED:
            self._refused.append(session)
            return True
        return False

    def _give_up(self, ClusterSession session, error):
        """The failure concerns one client: the others are still served."""
        self._on_error(error)
        if session.state != OPEN:               # else it is in the log: its OK is sent later
            session.refuse(EVENT_CODE_ERROR, _SESSION_FAILED)
            self._refused.append(session)

    cdef int _authenticate(self, ClusterSession session, int64_t now_ns) except -1:
        cdef SessionDecision decision
        if session.state not in (INIT, CONNECTING, CONNECTED, CHALLENGED) or not session.poll_connected(now_ns):
            return 0
        if session.state != CHALLENGED:
            session.state = CONNECTED
        decision = SessionDecision.__new__(SessionDecision)
        decision._session = session
        try:
            if session.state == CONNECTED:
                self._authenticator.on_connected_session(decision, self._clock.epoch_ms())
            if session.state == CHALLENGED:
                self._authenticator.on_challenged_session(decision, self._clock.epoch_ms())
        except Exception as error:
            self._on_error(error)
            session.refuse(EVENT_CODE_AUTHENTICATION_REJECTED, SESSION_REJECTED)
        finally:
            decision._session = None
        return 0

    cdef bint _open(self, ClusterSession session, int64_t leadership_term_id, int64_t now_ns) except -1:
        """Append the open event; whether the log took it."""
        cdef int64_t position
        if session.publication.available_window() <= 0:
            return False
        try:
            position = self._log_publisher.append_session_open(
                leadership_term_id, session.correlation_id, session.id, self._cluster_clock.time(),
                session.response_stream_id, session.response_channel.encode("ascii", "replace"),
                session.encoded_principal)
        except MessageTooLongError as error:
            self._on_error(error)
            session.refuse(EVENT_CODE_ERROR, _SESSION_TOO_LONG)
            position = 0
        if position <= 0:
            return False
        session.open(position)
        session.time_of_last_activity_ns = now_ns
        self._table.add(session)
        self._uncommitted_ids.append((position, session.id + 1))
        self._send_open_event(session, leadership_term_id)
        return True

    def _send_open_event(self, ClusterSession session, int64_t leadership_term_id):
        if self._send_event(session, leadership_term_id, self._member_id, EVENT_CODE_OK, ""):
            session.open_event_sent()
            return 1
        return 0

    cdef bint _respond(self, ClusterSession session) except -1:
        """Answer somebody who wants no session; whether that was sent."""
        cdef object action = session.action
        cdef bytes answer
        if not action.is_accepted:
            return self._refuse_action(session, EVENT_CODE_ERROR, f"Not configured to accept {action.title}")
        if not self.may(action.template_id, None, session):
            return self._refuse_action(
                session, EVENT_CODE_AUTHENTICATION_REJECTED, f"Not authorised for {action.title}")
        answer = action.answer(session.correlation_id)
        if answer is None or (answer and not egress_publisher.send(session.publication, answer)):
            return False
        session.close()
        return True

    def _refuse_action(self, ClusterSession session, int32_t code, str detail):
        session.refuse(code, detail)
        self._report_refusal(session, code, detail)
        return False

    cdef int check_sessions(
            self, int64_t leadership_term_id, int32_t leader_member_id, str ingress_endpoints) except -1:
        """Close sessions of silent clients and those that wait to be closed; send events that were not sent yet.

        How much was done (int). As the leader of an active cluster.
        """
        cdef ClusterSession session
        cdef int64_t now_ns = self._clock.nano_time(), unseen_ns = now_ns - self._checked_ns
        cdef int work_count = 0
        cdef list closing = None
        self._checked_ns = now_ns
        for session in self._table.sessions:
            if unseen_ns > self._session_timeout_ns // STILL_SHARE:
                # A callback on this thread, or a member that was suspended: what clients send meanwhile is not read.
                session.time_of_last_activity_ns = min(now_ns, session.time_of_last_activity_ns + unseen_ns)
            if session.state == OPEN:
                if session.has_timed_out(now_ns, self._session_timeout_ns):
                    session.closing(CLOSE_REASON_TIMEOUT)
                elif (session.is_open_event_pending or session.is_new_leader_event_pending) and (
                        session.poll_connected(now_ns)):
                    work_count += self._send_pending_event(
                        session, leadership_term_id, leader_member_id, ingress_endpoints)
            if session.state == CLOSING:
                closing = [] if closing is None else closing
                closing.append(session)
        if closing is not None:
            for session in closing:
                if not self._append_close(session, leadership_term_id, True):
                    break
                work_count += 1
        return work_count

    def _send_pending_event(self, ClusterSession session, int64_t leadership_term_id, int32_t leader_member_id,
                            str ingress_endpoints):
        if session.is_open_event_pending:
            return self._send_open_event(session, leadership_term_id)
        if egress_publisher.send_new_leader(
                session.publication, session.id, leadership_term_id, leader_member_id, ingress_endpoints):
            session.new_leader_event_sent()
            return 1
        return 0

    cdef bint _append_close(self, ClusterSession session, int64_t leadership_term_id, bint is_told) except -1:
        """Append the close event of a session that is closing; whether the log took it. It is removed then."""
        cdef int64_t position = self._log_publisher.append_session_close(
            leadership_term_id, session.id, self._cluster_clock.time(), session.close_reason)
        if position <= 0:
            return False
        if is_told:
            self._send_event(session, leadership_term_id, self._member_id, EVENT_CODE_CLOSED,
                             _CLOSE_REASON_NAMES[session.close_reason])
        session.closed_at(position)
        self._uncommitted_closed.append(session)
        if session.close_reason == CLOSE_REASON_TIMEOUT:
            self._timed_out_counter.increment()
        self._remove(session)
        return True

    cdef bint _send_event(
            self, ClusterSession session, int64_t leadership_term_id, int32_t leader_member_id, int32_t code, str detail
    ) except -1:
        return egress_publisher.send_event(
            session.publication, session.id, session.correlation_id, leadership_term_id, leader_member_id, code,
            self._leader_heartbeat_timeout_ns, detail)

    cdef int _remove(self, ClusterSession session) except -1:
        self._table.remove(session.id)
        return session.close()

    # Elections

    cdef int prepare_for_new_term(self, bint is_startup) except -1:
        """This member leads now. After a start of the cluster all sessions end; else each is to hear who leads.

        The client of a session that ends may be there: it outlives a node that starts again. It gets the event of a
        session that timed out; without one it needs half a minute until it gives the leader up.
        """
        cdef ClusterSession session
        cdef int64_t now_ns = self._clock.nano_time()
        for session in self._table.sessions:
            if session.state != OPEN:
                continue
            if is_startup:
                session.closing(CLOSE_REASON_TIMEOUT)
                self._former.append(session)
            else:
                session.begin_connect(self._client, self._cluster_id)
                session.time_of_last_activity_ns = now_ns
                session.expect_new_leader_event()
        return 0

    cdef int _take_former(self, int64_t now_ns) except -1:
        """Notify clients of former sessions in the way of refusals: a limited number at a time, with few publications.

        A client that comes waits for few of these, and one that is gone holds up the others for a limited time.
        """
        cdef ClusterSession session
        while self._former and len(self._refused) < MAX_TOLD and len(self._unconnected) < MAX_CONNECTING:
            session = self._former.popleft()
            if session.state != OPEN:           # else its close was lost with the term
                self._tell_of_end(session, now_ns)
        return 0

    cdef int _tell_of_end(self, ClusterSession session, int64_t now_ns) except -1:
        # As soon as its client is connected, and for no longer than a session may be silent.
        cdef ClusterSession told = ClusterSession(
            session.id, session.response_channel, session.response_stream_id, session._label, self._on_error)
        told.answer_to(session.correlation_id, now_ns)
        try:
            self._refuse(told, EVENT_CODE_CLOSED, _CLOSE_REASON_NAMES[CLOSE_REASON_TIMEOUT], False)
        except Exception as error:              # of its channel, which the log may have from another node
            self._on_error(error)
        return 0

    cdef int tell_of_the_end(self, int64_t leadership_term_id) except -1:
        """Tell each client that its session has ended, as this leader ends and there is no other member.

        The log is left as it is: the next start closes the sessions in it, and no session outlives that. Each send is
        tried a few times, and nothing waits; a client that misses it hears it from the next start.
        """
        cdef ClusterSession session
        for session in self._table.sessions:
            if session.state == OPEN and session.publication is not None:
                self._send_event(session, leadership_term_id, self._member_id, EVENT_CODE_CLOSED, MEMBER_ENDED)
        return 0

    cdef int clear_after(self, int64_t log_position, int64_t leadership_term_id) except -1:
        """Forget sessions whose open event no majority has, and those that are not in the log."""
        cdef ClusterSession session
        for session in self._table.in_order():
            if session.opened_log_position > log_position:
                self._send_event(session, leadership_term_id, self._member_id, EVENT_CODE_CLOSED, "election")
                self._remove(session)
        for session in self._pending:
            self._send_event(session, leadership_term_id, self._member_id, EVENT_CODE_CLOSED, "election")
            session.close()
        self._pending.clear()
        return 0

    cdef int disconnect(self) except -1:
        """This member leads no more: whoever does sends to the clients."""
        cdef ClusterSession session
        for session in self._table.sessions:
            session.lose_ingress()
        return 0

    cdef int sweep_uncommitted(self, int64_t commit_position) except -1:
        """The log is committed up to a position."""
        while self._uncommitted_closed and (<ClusterSession> self._uncommitted_closed[0]).closed_log_position <= (
                commit_position):
            self._uncommitted_closed.popleft()
        while self._uncommitted_ids and <int64_t> self._uncommitted_ids[0][0] <= commit_position:
            self.next_committed_session_id = max(
                self.next_committed_session_id, <int64_t> self._uncommitted_ids.popleft()[1])
        return 0

    cdef int restore_uncommitted(self, int64_t commit_position) except -1:
        """The log ends at a position: close again the sessions that a client or a service has closed behind it.

        A silent client has another session time-out in the next term, different from upstream: a leader that was cut
        off heard nobody, and the next leader's log has what it missed.
        """
        cdef ClusterSession session
        self.sweep_uncommitted(commit_position)
        for session in self._uncommitted_closed:
            if session.opened_log_position <= commit_position:
                session.restore()
                self._table.add(session)
        self._uncommitted_closed.clear()
        self._uncommitted_ids.clear()
        return self._reopen(CLOSE_REASON_TIMEOUT)

    cdef int follow(self) except -1:
        """Another member leads, whose log decides: what this one was about to close as leader is open there.

        Sessions that a service has closed, each member is about to close. Different from upstream, where a former
        leader that leads again closes sessions that were used meanwhile.
        """
        self._reopen(CLOSE_REASON_CLIENT_ACTION)
        return self._reopen(CLOSE_REASON_TIMEOUT)

    cdef int _reopen(self, int32_t close_reason) except -1:
        cdef ClusterSession session
        for session in self._table.sessions:
            if session.state == CLOSING and session.close_reason == close_reason:
                session.reopen()
        return 0

    cdef int refresh_activity(self) except -1:
        """No client was heard for a reason of ours: none is to time out for it."""
        cdef ClusterSession session
        cdef int64_t now_ns = self._clock.nano_time()
        for session in self._table.sessions:
            session.time_of_last_activity_ns = now_ns
        return 0

    cdef int close(self) except -1:
        """Close all egress."""
        cdef ClusterSession session
        self._former.clear()
        for session in [*self._table.sessions, *self._pending, *self._pending_actions, *self._refused]:
            session.close()
        return 0


hide((SessionDecision,))
seal((SessionManager,))
