# Calls of the parts of a member to its agent: events from adapters; the rest for sessions, batches and snapshots.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.service.cluster cimport Cluster
from container.transport.message_buffer cimport BufferClaim
from container.transport.clocks cimport Clock
from container.transport.frames cimport BufferVector, FrameHeader
from container.transport.streams cimport Publication


cdef class EventHandler(Cluster):
    cdef BufferClaim _claims                # the last one made in the event in progress, then the one before

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

    # from sessions; vectors[0] is overwritten with the session header, results are as of Publication.offer
    cdef int64_t session_offer(self, object session, BufferVector* vectors, size_t count) except? -6
    cdef int64_t session_try_claim(
        self, object session, Publication publication, Py_ssize_t length, BufferClaim buffer_claim) except? -6
    cdef int close_session(self, object session) except -1
    cdef int await_egress(self, object session) except -1   # if it has been asked for, and where a callback may wait

    # from all that waits, or works through a batch
    cdef Clock clock(self)
    cdef int64_t now_ns(self) noexcept
    cdef void set_event(self, int64_t log_position, int64_t timestamp) noexcept     # where a batch is in the log
    cdef int check_interrupted(self) except -1              # raises AgentTermination when the agent is to end
    cdef int report(self, object error) except -1           # counts and logs what goes no further
    # Report the error of a message that is skipped; raise AgentTermination from it when it must not be skipped.
    cdef int skip_message(self, str name, int64_t cluster_session_id, size_t length, object error) except -1

    # A request that was not sent, by name and id. It counts as lost unless one for the same thing is sent after it.
    cdef bint request_failed(self, str name, int64_t request_id) except -1      # always False
    cdef int request_sent(self, str name, int64_t request_id) except -1         # call it while there are loose ends
    # When an event ends: aborts the claims that are open. The texts say what was lost; forgets all. An event is handled
    # by a callback, or by one turn of a batch's iteration.
    cdef list take_loose_ends(self)
    cdef int report_loose_ends(self) except -1
    cdef int keep_claim(self, BufferClaim claim, int64_t cluster_session_id) except -1      # < 0: to the cluster
