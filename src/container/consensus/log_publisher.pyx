"""The log out: what a leader appends, each message as upstream's leader writes it. Upstream: LogPublisher.java.

An append tries up to three times and never waits: whoever wants the message in the log keeps it, and calls again.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from container.codecs.cluster cimport (
    CLUSTER_ACTION_REQUEST_ENCODED_LENGTH, CLUSTER_ACTION_REQUEST_LOG_POSITION_OFFSET,
    NEW_LEADERSHIP_TERM_EVENT_ENCODED_LENGTH, NEW_LEADERSHIP_TERM_EVENT_LOG_POSITION_OFFSET,
    SESSION_CLOSE_EVENT_ENCODED_LENGTH, SESSION_MESSAGE_HEADER_ENCODED_LENGTH, TIMER_EVENT_ENCODED_LENGTH,
    cluster_action_request_encode, new_leadership_term_event_encode, session_close_event_encode,
    session_message_header_encode, session_open_event_encode, session_open_event_encoded_length, timer_event_encode,
)
from container.codecs.sbe cimport sbe_put_int64
from container.common.sealed cimport seal
from container.consensus.position_queue cimport PositionQueue
from container.errors import ClusterError
from container.transport.frames cimport (
    CLOSED, FRAME_HEADER_LENGTH, MAX_POSITION_EXCEEDED, BufferVector, Claim, align_frame,
)
from container.transport.streams cimport Publication

cdef enum:
    SEND_ATTEMPTS = 3


cdef class LogPublisher:
    """Appends to the log publication that it is given, while this member leads.

    Each append returns the position after the message, or 0 when the log does not take it now. It raises ClusterError
    when the log takes nothing any more: the publication is closed, or at the end of all positions.
    """

    def __cinit__(self):
        self._long_messages = PositionQueue()

    def set_publication(self, Publication publication):
        """Append to this publication (exclusive) from now on, and close the one before; None: to none."""
        cdef Publication previous = self.release()
        self._publication = publication
        if previous is not None:
            previous.close()

    def release(self):
        """Append to none from now on; return the publication (Publication), which is the caller's to close then."""
        cdef Publication publication = self._publication
        self._publication = None
        self._long_messages.clear()
        return publication

    @property
    def publication(self):
        """The log's publication (Publication), or None while this member does not lead."""
        return self._publication

    cdef int64_t position(self) noexcept:
        return 0 if self._publication is None else self._publication.position()

    cdef int64_t end_of_messages(self, int64_t position) except -1:
        """The last position up to a committed one with no part of a message before it: calls have rising positions."""
        cdef int64_t begin = self._long_messages.first(position)
        return begin if -1 < begin < position else position

    cdef int64_t max_payload_length(self) noexcept:
        return 0 if self._publication is None else (
            self._publication.max_message_length - SESSION_MESSAGE_HEADER_ENCODED_LENGTH)

    cdef int32_t session_id(self) except? -1:
        if self._publication is None:
            raise ClusterError("there is no log publication: this member does not lead")
        return self._publication.session_id

    cdef int64_t append_message(
            self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t timestamp, const uint8_t* payload,
            size_t length) except -1:
        """SessionMessageHeader (1) with a message of a client, or of a service when the session id is negative."""
        cdef uint8_t header[SESSION_MESSAGE_HEADER_ENCODED_LENGTH]
        cdef BufferVector vectors[2]
        cdef int64_t begin, position
        cdef int _attempt
        session_message_header_encode(header, sizeof(header), leadership_term_id, cluster_session_id, timestamp)
        vectors[0].data = header
        vectors[0].length = sizeof(header)
        vectors[1].data = <uint8_t*> payload
        vectors[1].length = length
        for _attempt in range(SEND_ATTEMPTS):
            begin = self._publication.position()
            position = self._publication.offer_vectors(vectors, 2)
            if position > 0:
                self._note_length(begin, position, sizeof(header) + length)
                return position
            self._check(position)
        return 0

    cdef int64_t append_session_open(
            self, int64_t leadership_term_id, int64_t correlation_id, int64_t cluster_session_id, int64_t timestamp,
            int32_t response_stream_id, bytes response_channel, bytes encoded_principal) except -1:
        """SessionOpenEvent (21)."""
        cdef uint32_t channel_length = <uint32_t> len(response_channel)
        cdef uint32_t principal_length = <uint32_t> len(encoded_principal)
        cdef int64_t length = session_open_event_encoded_length(channel_length, principal_length)
        cdef bytes message = PyBytes_FromStringAndSize(NULL, length)
        cdef uint8_t* data = <uint8_t*> PyBytes_AS_STRING(message)
        cdef int64_t begin, position
        cdef int _attempt
        session_open_event_encode(
            data, length, leadership_term_id, correlation_id, cluster_session_id, timestamp, response_stream_id,
            response_channel, channel_length, encoded_principal, principal_length)
        for _attempt in range(SEND_ATTEMPTS):
            begin = self._publication.position()
            position = self._publication.offer(data, length)
            if position > 0:
                self._note_length(begin, position, length)
                return position
            self._check(position)
        return 0

    cdef int64_t append_session_close(
            self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t timestamp, int32_t close_reason
    ) except -1:
        """SessionCloseEvent (22)."""
        cdef uint8_t message[SESSION_CLOSE_EVENT_ENCODED_LENGTH]
        session_close_event_encode(
            message, sizeof(message), leadership_term_id, cluster_session_id, timestamp, close_reason)
        return self._claim_and_write(message, sizeof(message), NULL)

    cdef int64_t append_timer(self, int64_t leadership_term_id, int64_t correlation_id, int64_t timestamp) except -1:
        """TimerEvent (20)."""
        cdef uint8_t message[TIMER_EVENT_ENCODED_LENGTH]
        timer_event_encode(message, sizeof(message), leadership_term_id, correlation_id, timestamp)
        return self._claim_and_write(message, sizeof(message), NULL)

    cdef int64_t append_cluster_action(
            self, int64_t leadership_term_id, int64_t timestamp, int32_t action, int32_t flags) except -1:
        """ClusterActionRequest (23), which holds the position after itself."""
        cdef uint8_t message[CLUSTER_ACTION_REQUEST_ENCODED_LENGTH]
        cluster_action_request_encode(message, sizeof(message), leadership_term_id, 0, timestamp, action, flags)
        return self._claim_and_write(message, sizeof(message), message + CLUSTER_ACTION_REQUEST_LOG_POSITION_OFFSET)

    cdef int64_t append_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t timestamp, int64_t term_base_log_position,
            int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except -1:
        """NewLeadershipTermEvent (24), the first message of a term, which holds the position after itself."""
        cdef uint8_t message[NEW_LEADERSHIP_TERM_EVENT_ENCODED_LENGTH]
        new_leadership_term_event_encode(
            message, sizeof(message), leadership_term_id, 0, timestamp, term_base_log_position, leader_member_id,
            log_session_id, time_unit, app_version)
        return self._claim_and_write(message, sizeof(message), message + NEW_LEADERSHIP_TERM_EVENT_LOG_POSITION_OFFSET)

    cdef int64_t _claim_and_write(self, uint8_t* message, size_t length, uint8_t* position_field) except -1:
        cdef Claim claim
        cdef int64_t position
        cdef int _attempt
        for _attempt in range(SEND_ATTEMPTS):
            if position_field != NULL:      # a failed attempt may have moved the publication to its next term
                sbe_put_int64(
                    position_field,
                    self._publication.position() + align_frame(FRAME_HEADER_LENGTH + <int32_t> length))
            position = self._publication.try_claim(length, &claim)
            if position > 0:
                memcpy(claim.data, message, length)
                self._publication.commit(&claim)
                return position
            self._check(position)
        return 0

    cdef int _note_length(self, int64_t begin, int64_t end, size_t length) except -1:
        if length > <size_t> self._publication.max_payload_length:
            self._long_messages.push(end, begin)
        return 0

    cdef int _check(self, int64_t result) except -1:
        if result == CLOSED:
            raise ClusterError("log publication is closed")
        if result == MAX_POSITION_EXCEEDED:
            raise ClusterError(
                f"log publication at max position: term-length={self._publication.term_buffer_length}")
        return 0

    cpdef int close(self) except -1:
        """Close the publication, if there is one; may be called twice."""
        self.set_publication(None)
        return 0


seal((LogPublisher,))
