"""The calls of a member's parts with events and requests: implemented by the agent, out of a service's sight."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.errors import Category, ClusterEvent
from container.service.cluster cimport Cluster, FailedSend
from container.transport.message_buffer cimport BufferClaim
from container.transport.clocks cimport Clock
from container.transport.frames cimport NOT_CONNECTED, BufferVector, FrameHeader
from container.transport.streams cimport Publication
from container.transport.wait_reporter cimport WaitReporter


cdef class EventHandler(Cluster):
    """Base of the agent. An event without a handler is ignored."""

    cdef int on_session_message(
            self, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
            const uint8_t* payload, size_t length, const FrameHeader* header) except -1:
        return 0

    cdef int on_timer_event(self, int64_t log_position, int64_t correlation_id, int64_t timestamp) except -1:
        return 0

    cdef int on_session_open(
            self, int64_t leadership_term_id, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
            int32_t response_stream_id, str response_channel, bytes encoded_principal) except -1:
        return 0

    cdef int on_session_close(
            self, int64_t leadership_term_id, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
            int32_t close_reason) except -1:
        return 0

    cdef int on_service_action(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t action,
            int32_t flags) except -1:
        return 0

    cdef int on_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except -1:
        return 0

    cdef int on_join_log(
            self, int64_t log_position, int64_t max_log_position, int32_t member_id, int32_t log_session_id,
            int32_t log_stream_id, bint is_startup, int32_t role, bint is_standby, str log_channel) except -1:
        return 0

    cdef int on_service_termination_position(self, int64_t log_position, bint ack_required) except -1:
        return 0

    cdef int on_request_service_ack(self, int64_t log_position) except -1:
        return 0

    cdef int on_snapshot_session(
            self, int64_t cluster_session_id, int32_t response_stream_id, str response_channel,
            bytes encoded_principal) except -1:
        return 0

    cdef int64_t session_offer(self, object session, BufferVector* vectors, size_t count) except? -6:
        return NOT_CONNECTED

    cdef int64_t session_try_claim(
            self, object session, Publication publication, Py_ssize_t length, BufferClaim buffer_claim) except? -6:
        return NOT_CONNECTED

    cdef int close_session(self, object session) except -1:
        return 0

    cdef int await_egress(self, object session) except -1:
        return 0

    cdef Clock clock(self):
        return None

    cdef WaitReporter _wait_for(self, str what):
        return WaitReporter(self.clock(), "", what)

    cdef int check_interrupted(self) except -1:
        return 0

    cdef int report(self, object error) except -1:
        return 0

    cdef int skip_message(self, str name, int64_t cluster_session_id, size_t length, object error) except -1:
        raise error

    cdef int64_t now_ns(self) noexcept:
        return 0

    cdef void set_event(self, int64_t log_position, int64_t timestamp) noexcept:
        pass

    cdef bint request_failed(self, str name, int64_t request_id) except -1:
        self._keep((name.endswith("timer"), request_id), -1,
                   f"{name} of {request_id} returned False at logPosition={self.get_log_position()} and was not "
                   "repeated until it returned True: the request is lost on this member and the members may "
                   "diverge; idle with Cluster.idle, and try again")
        return False

    cdef int request_sent(self, str name, int64_t request_id) except -1:
        # The last request for a timer counts, whichever it is.
        return self._sent((name.endswith("timer"), request_id), -1)

    cdef int keep_claim(self, BufferClaim claim, int64_t cluster_session_id) except -1:
        if self._loose_ends is None:
            self._loose_ends = []
        claim._cluster_session_id = cluster_session_id
        claim._log_position = self.get_log_position()
        if not claim._is_kept:
            claim._is_kept = True
            claim._next = self._claims
            self._claims = claim
        return 0

    cdef list take_loose_ends(self):
        cdef FailedSend failed
        cdef BufferClaim claim = self._claims
        cdef BufferClaim following
        cdef Py_ssize_t length
        cdef list texts
        if self._loose_ends is None:
            return []
        texts = [failed.text for failed in self._loose_ends]
        self._loose_ends = None
        self._claims = None
        while claim is not None:
            following = claim._next
            claim._next = None
            claim._is_kept = False
            length = <Py_ssize_t> claim._length
            if claim._abort_forgotten():
                call = (f"try_claim of session {claim._cluster_session_id}" if claim._cluster_session_id >= 0
                        else "Cluster.try_claim")
                texts.append(
                    f"{call}: a claim of {length} bytes at logPosition={claim._log_position} was neither committed nor "
                    "aborted when its event ended: it is aborted and nothing is sent; commit it while the message, or "
                    "other event, that made it is handled, best with 'with BufferClaim() as claim'")
            claim = following
        return texts

    cdef int report_loose_ends(self) except -1:
        for text in self.take_loose_ends():
            self.report(ClusterEvent(text, category=Category.ERROR))
        return 0
