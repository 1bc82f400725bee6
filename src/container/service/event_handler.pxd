# What the adapters call with the messages that they decode; the agent implements it, a test can stand in.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.seam cimport FrameHeader


cdef class EventHandler:
    # from the log; log_position is the position after the message
    cdef int on_session_message(
        self, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
        const uint8_t* payload, size_t length, const FrameHeader* header) except -1
    cdef int on_timer_event(self, int64_t log_position, int64_t correlation_id, int64_t timestamp) except -1
    cdef int on_session_open(
        self, int64_t leadership_term_id, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
        int32_t response_stream_id, str response_channel, bytes encoded_principal) except -1
    cdef int on_session_close(
        self, int64_t leadership_term_id, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
        int32_t close_reason) except -1
    cdef int on_service_action(
        self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t action,
        int32_t flags) except -1
    cdef int on_new_leadership_term_event(
        self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
        int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except -1

    # from the control stream
    cdef int on_join_log(
        self, int64_t log_position, int64_t max_log_position, int32_t member_id, int32_t log_session_id,
        int32_t log_stream_id, bint is_startup, int32_t role, bint is_standby, str log_channel) except -1
    cdef int on_service_termination_position(self, int64_t log_position, bint ack_required) except -1
    cdef int on_request_service_ack(self, int64_t log_position) except -1

    # from a snapshot
    cdef int on_snapshot_session(
        self, int64_t cluster_session_id, int32_t response_stream_id, str response_channel,
        bytes encoded_principal) except -1
