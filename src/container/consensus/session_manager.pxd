# The sessions of a cluster, as one member knows them.
from libc.stdint cimport int32_t, int64_t

from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_session cimport ClusterSession
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.session_table cimport SessionTable
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image


cdef class SessionManager:
    cdef readonly int64_t next_session_id
    cdef readonly int64_t next_committed_session_id
    cdef Client _client
    cdef Clock _clock
    cdef LogPublisher _log_publisher
    cdef ClusterClock _cluster_clock
    cdef object _authenticator
    cdef readonly object authorisation_service
    cdef object _on_error
    cdef Counter _timed_out_counter
    cdef int32_t _cluster_id
    cdef int32_t _member_id
    cdef int64_t _session_timeout_ns
    cdef int64_t _checked_ns                # when sessions were looked at last
    cdef int64_t _leader_heartbeat_timeout_ns
    cdef int _max_concurrent_sessions
    cdef SessionTable _table                # those that are in the log
    cdef list _pending                      # of clients that want a session
    cdef list _pending_actions              # of those that want an answer, and no session
    cdef list _refused                      # waiting for the refusal to be sent
    cdef object _unconnected                # deque of ClusterSession: their egress is made later
    cdef list _connecting                   # the driver is creating their egress; their number is limited
    cdef object _former                     # deque of ClusterSession whose clients do not know yet that they ended
    cdef object _uncommitted_closed         # deque of ClusterSession
    cdef object _uncommitted_ids            # deque of (log position, next session id)

    cdef ClusterSession find(self, int64_t cluster_session_id)
    cdef int on_session_connect(
        self, int64_t correlation_id, int32_t response_stream_id, int32_t version, str response_channel,
        bytes encoded_credentials, str client_info, Image image, bint is_leader, str ingress_endpoints) except -1
    cdef int on_action_request(
        self, object action, int64_t correlation_id, int32_t response_stream_id, int32_t version,
        str response_channel, bytes encoded_credentials, Image image) except -1
    cdef int on_challenge_response(
        self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials, bint is_of_client
    ) except -1
    cdef int on_session_close(self, int64_t leadership_term_id, int64_t cluster_session_id) except -1
    cdef int on_service_close_session(
        self, int64_t cluster_session_id, bint is_active_leader, int64_t leadership_term_id) except -1
    cdef int on_replay_session_open(
        self, int64_t log_position, int64_t correlation_id, int64_t cluster_session_id, int32_t response_stream_id,
        str response_channel) except -1
    cdef int on_replay_session_close(self, int64_t cluster_session_id) except -1
    cdef int on_load_session(
        self, int64_t cluster_session_id, int64_t correlation_id, int64_t opened_log_position, int32_t close_reason,
        int32_t response_stream_id, str response_channel) except -1
    cdef int load_next_session_id(self, int64_t next_session_id) except -1
    cdef int on_unavailable_ingress_image(self, int64_t image_correlation_id) except -1
    cdef int tell_the_refused(self, int64_t leadership_term_id, int32_t leader_member_id) except -1
    cdef int process_pending(self, int64_t leadership_term_id) except -1
    cdef int process_pending_actions(self, int64_t leadership_term_id) except -1
    cdef int check_sessions(
        self, int64_t leadership_term_id, int32_t leader_member_id, str ingress_endpoints) except -1
    cdef int prepare_for_new_term(self, bint is_startup) except -1
    cdef int _take_former(self, int64_t now_ns) except -1
    cdef int tell_of_the_end(self, int64_t leadership_term_id) except -1
    cdef int _tell_of_end(self, ClusterSession session, int64_t now_ns) except -1
    cdef int clear_after(self, int64_t log_position, int64_t leadership_term_id) except -1
    cdef int disconnect(self) except -1
    cdef int sweep_uncommitted(self, int64_t commit_position) except -1
    cdef int restore_uncommitted(self, int64_t commit_position) except -1
    cdef int follow(self) except -1
    cdef int _reopen(self, int32_t close_reason) except -1
    cdef int refresh_activity(self) except -1
    cdef list in_order(self)
    cdef int close(self) except -1
    cdef ClusterSession _new(
        self, int64_t session_id, int64_t correlation_id, str response_channel, int32_t response_stream_id,
        str client_info, Image image, object action)
    cdef int _connect(self, ClusterSession session) except -1
    cdef int _begin_connects(self) except -1
    cdef int _check_version(self, ClusterSession session, int32_t version) except -1
    cdef int _refuse(self, ClusterSession session, int32_t code, str detail, bint is_reported) except -1
    cdef int _process(self, list pending, int64_t leadership_term_id) except -1
    cdef bint _take_on(self, ClusterSession session, int64_t leadership_term_id, int64_t now_ns) except -1
    cdef int _authenticate(self, ClusterSession session, int64_t now_ns) except -1
    cdef bint _open(self, ClusterSession session, int64_t leadership_term_id, int64_t now_ns) except -1
    cdef bint may(self, int32_t template_id, object action_type, ClusterSession session) except -1
    cdef bint _respond(self, ClusterSession session) except -1
    cdef bint _append_close(self, ClusterSession session, int64_t leadership_term_id, bint is_told) except -1
    cdef bint _send_event(
        self, ClusterSession session, int64_t leadership_term_id, int32_t leader_member_id, int32_t code, str detail
    ) except -1
    cdef int _remove(self, ClusterSession session) except -1
