# Messages that a service has offered and that are not in the log yet. Upstream: PendingServiceMessageTracker.java.
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    SERVICE_MESSAGE_LIMIT = 20          # messages that one poll appends


cdef class MessageAppender:
    # The position behind the message, or what an offer returns that is not possible now: 0 or less. -6: an exception is
    # set. The payload is borrowed until the call returns.
    cdef int64_t append_message(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except? -6


cdef class PendingMessageSnapshot:
    # message: a SessionMessageHeader and the payload, as a snapshot has it; borrowed until the call returns.
    cdef int on_message(self, const uint8_t* message, size_t length) except -1


cdef class PendingServiceMessageTracker:
    cdef readonly int service_id
    cdef readonly int64_t next_service_session_id       # of the next message that is enqueued
    cdef readonly int64_t log_service_session_id        # of the last message that is in the log for good
    cdef readonly int64_t max_capacity
    # Records lie one behind the other: bytes of the message, the message, and up to 7 bytes that align the next one.
    cdef uint8_t* _records
    cdef int64_t _capacity
    cdef int64_t _head                                  # offset of the first record
    cdef int64_t _unsent                                # of the first one that is not appended
    cdef int64_t _tail                                  # behind the last one
    cdef bint _is_busy                                  # somebody is given messages
    # True: it is pending. False: it is in the log already. An exception: nothing has changed.
    cdef bint enqueue(self, const uint8_t* payload, size_t length) except -1
    cdef int poll(self, MessageAppender appender) except -1     # how many were appended
    cpdef int sweep_leader(self, int64_t commit_position) except -1
    cpdef int sweep_follower(self, int64_t cluster_session_id) except -1
    cpdef int restore_uncommitted(self, int64_t commit_position) except -1
    cpdef int load_state(
        self, int64_t next_service_session_id, int64_t log_service_session_id, int64_t capacity) except -1
    cdef int load_message(self, const uint8_t* message, size_t length) except -1
    cpdef int verify(self) except -1
    cpdef int reset(self) except -1
    cpdef int64_t size(self) noexcept                   # bytes of pending messages, as upstream counts them
    cpdef int64_t next_service_session_id_for_snapshot(self) noexcept
    cdef int for_each(self, PendingMessageSnapshot snapshot) except -1
    cdef int _check_free(self) except -1
    cdef uint8_t* _reserve(self, size_t length) except NULL
    cdef int _sweep(self, int64_t commit_position) noexcept
    cdef int _drop_first(self) noexcept
    cdef int _forget_positions(self, int64_t end) noexcept


cpdef int service_id_from_log_message(int64_t cluster_session_id) noexcept
cpdef int service_id_from_service_message(int64_t cluster_session_id) noexcept
cpdef int64_t service_session_id(int service_id, int64_t session_id) noexcept
