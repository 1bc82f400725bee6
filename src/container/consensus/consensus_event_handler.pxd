# Receiver of the adapters' decoded messages; the agent of the consensus module implements it.
#
# Messages of other members, unlike the rest, may be handled in Python as well, as by the members that tests script.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.agent.agent cimport Agent
from container.transport.streams cimport Image


cdef class ConsensusEventHandler(Agent):
    cpdef int report(self, object error) except -1

    # from clients; image: on which the message came
    cdef int on_session_connect(
        self, int64_t correlation_id, int32_t response_stream_id, int32_t version, str response_channel,
        bytes encoded_credentials, str client_info, Image image) except -1
    cdef int on_session_close(self, int64_t leadership_term_id, int64_t cluster_session_id) except -1
    # an Action: ACTION_ABORT when the log does not take the message now, so that it comes again
    cdef int on_ingress_message(
        self, int64_t leadership_term_id, int64_t cluster_session_id, const uint8_t* payload, size_t length) except -1
    cdef int on_session_keep_alive(
        self, int64_t leadership_term_id, int64_t cluster_session_id, Image image) except -1
    cdef int on_challenge_response(
        self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials) except -1
    cdef int on_admin_request(
        self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type
    ) except -1

    # what no other handler is for: each is reported
    cdef int on_foreign_message(self, int schema_id) except -1
    cdef int on_malformed_message(self, str text) except -1
    cdef int on_unexpected_message(self, str text) except -1    # that nobody handles, or of nobody known
    cdef int on_failed_message(self, object error) except -1    # what one of these has raised

    # from other members
    cpdef int on_canvass_position(
        self, int64_t log_leadership_term_id, int64_t log_position, int64_t leadership_term_id,
        int32_t follower_member_id, int32_t protocol_version) except -1
    cpdef int on_request_vote(
        self, int64_t log_leadership_term_id, int64_t log_position, int64_t candidate_term_id,
        int32_t candidate_member_id, int32_t protocol_version) except -1
    cpdef int on_vote(
        self, int64_t candidate_term_id, int64_t log_leadership_term_id, int64_t log_position,
        int32_t candidate_member_id, int32_t follower_member_id, bint vote) except -1
    cpdef int on_new_leadership_term(
        self, int64_t log_leadership_term_id, int64_t next_leadership_term_id, int64_t next_term_base_log_position,
        int64_t next_log_position, int64_t leadership_term_id, int64_t term_base_log_position, int64_t log_position,
        int64_t commit_position, int64_t leader_recording_id, int64_t timestamp, int32_t leader_member_id,
        int32_t log_session_id, int32_t app_version, bint is_startup, int32_t protocol_version) except -1
    cpdef int on_append_position(
        self, int64_t leadership_term_id, int64_t log_position, int32_t follower_member_id, int flags) except -1
    cpdef int on_commit_position(
        self, int64_t leadership_term_id, int64_t log_position, int32_t leader_member_id) except -1
    cpdef int on_catchup_position(
        self, int64_t leadership_term_id, int64_t log_position, int32_t follower_member_id, str catchup_endpoint
    ) except -1
    cpdef int on_stop_catchup(self, int64_t leadership_term_id) except -1
    cpdef int on_termination_position(self, int64_t leadership_term_id, int64_t log_position) except -1
    cpdef int on_termination_ack(
        self, int64_t leadership_term_id, int64_t log_position, int32_t member_id) except -1

    # from backups and standbys
    cdef int on_backup_query(
        self, int64_t correlation_id, int32_t response_stream_id, int32_t version, int64_t log_position,
        str response_channel, bytes encoded_credentials, Image image) except -1
    cdef int on_consensus_challenge_response(
        self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials) except -1
    cdef int on_heartbeat_request(
        self, int64_t correlation_id, int32_t response_stream_id, str response_channel, bytes encoded_credentials,
        Image image) except -1
    # snapshots: the fields of each, in their order, as a tuple
    cdef int on_standby_snapshot(
        self, int64_t correlation_id, int32_t response_stream_id, int32_t version, list snapshots,
        str response_channel, bytes encoded_credentials, Image image) except -1

    # from services and tools
    cdef int on_service_message(self, int64_t service_id, const uint8_t* payload, size_t length) except -1
    cdef int on_service_close_session(self, int64_t cluster_session_id) except -1
    cdef int on_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1
    cdef int on_cancel_timer(self, int64_t correlation_id) except -1
    cdef int on_service_ack(
        self, int64_t log_position, int64_t timestamp, int64_t ack_id, int64_t relevant_id, int32_t service_id
    ) except -1
    cdef int on_cluster_members_query(self, int64_t correlation_id, bint is_extended) except -1

    # from the log
    cdef int on_replay_session_message(self, int64_t cluster_session_id, int64_t timestamp) except -1
    cdef int on_replay_timer_event(self, int64_t correlation_id, int64_t timestamp) except -1
    cdef int on_replay_session_open(
        self, int64_t log_position, int64_t correlation_id, int64_t cluster_session_id, int32_t response_stream_id,
        str response_channel) except -1
    cdef int on_replay_session_close(self, int64_t cluster_session_id, int32_t close_reason) except -1
    cdef int on_replay_cluster_action(
        self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t action, int32_t flags
    ) except -1
    cdef int on_replay_new_leadership_term_event(
        self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
        int32_t time_unit, int32_t app_version) except -1

    # from a snapshot of a consensus module
    cdef int on_failed_log(self, object error) except -1
    cdef int on_load_state(self, int64_t next_session_id, int64_t next_service_session_id,
                           int64_t log_service_session_id, int32_t pending_message_capacity) except -1
    cdef int on_load_session(
        self, int64_t cluster_session_id, int64_t correlation_id, int64_t opened_log_position, int32_t close_reason,
        int32_t response_stream_id, str response_channel) except -1
    cdef int on_load_timer(self, int64_t correlation_id, int64_t deadline) except -1
    cdef int on_load_tracker(
        self, int64_t next_service_session_id, int64_t log_service_session_id, int32_t pending_message_capacity,
        int32_t service_id) except -1
    cdef int on_load_pending_message(self, int64_t cluster_session_id, const uint8_t* message, size_t length) except -1
