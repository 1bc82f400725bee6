# What the adapters call with what they decoded; the agent of the consensus module implements it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.agent.agent cimport Agent
from container.transport.streams cimport Image


cdef class ConsensusEventHandler(Agent):
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
    cdef int on_foreign_message(self, int schema_id) except -1
    cdef int on_malformed_message(self, str text) except -1
    cdef int on_failed_message(self, object error) except -1    # what one of these has raised

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
    cdef int on_replay_timer_event(self, int64_t correlation_id) except -1
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
