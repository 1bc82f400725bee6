# The log out: what a leader appends.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.consensus.position_queue cimport PositionQueue
from container.transport.streams cimport Publication


cdef class LogPublisher:
    cdef Publication _publication                   # None: this member does not lead
    cdef PositionQueue _long_messages               # of several frames: where each begins, by where it ends
    # These return the position after the message, or 0 when it was not appended now.
    cdef int64_t append_message(
        self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t timestamp, const uint8_t* payload,
        size_t length) except -1
    cdef int64_t append_session_open(
        self, int64_t leadership_term_id, int64_t correlation_id, int64_t cluster_session_id, int64_t timestamp,
        int32_t response_stream_id, bytes response_channel, bytes encoded_principal) except -1
    cdef int64_t append_session_close(
        self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t timestamp, int32_t close_reason) except -1
    cdef int64_t append_timer(
        self, int64_t leadership_term_id, int64_t correlation_id, int64_t timestamp) except -1
    cdef int64_t append_cluster_action(
        self, int64_t leadership_term_id, int64_t timestamp, int32_t action, int32_t flags) except -1
    cdef int64_t append_new_leadership_term_event(
        self, int64_t leadership_term_id, int64_t timestamp, int64_t term_base_log_position, int32_t leader_member_id,
        int32_t log_session_id, int32_t time_unit, int32_t app_version) except -1
    cdef int64_t position(self) noexcept            # 0 without a publication
    cdef int64_t end_of_messages(self, int64_t position) except -1
    cdef int64_t max_payload_length(self) noexcept  # of a session message; 0 without a publication
    cdef int32_t session_id(self) except? -1
    cpdef int close(self) except -1
    cdef int _note_length(self, int64_t begin, int64_t end, size_t length) except -1
    cdef int _check(self, int64_t result) except -1
    cdef int64_t _claim_and_write(self, uint8_t* message, size_t length, uint8_t* position_field) except -1
