"""Control out: what the service asks of the consensus module (stream 105, upstream's ConsensusModuleProxy).

The publication is a shared one: all services of a node and its ClusterTool write to the same stream.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.codecs cimport cluster as codec
from container.common.sealed cimport seal
from container.errors import MessageTooLongError
from container.service.publication_results cimport check_publication_result
from container.transport.frames cimport BufferVector, Claim
from container.transport.streams cimport Publication


cdef class ConsensusModuleProxy:
    """Encodes requests into claims of the control publication; each call is one attempt."""

    def __init__(self, Publication publication not None):
        self._publication = publication

    cdef Publication publication(self):
        return self._publication

    cpdef int close(self) except -1:
        """Close the publication."""
        return self._publication.close()

    cdef bint schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef uint8_t message[codec.SCHEDULE_TIMER_ENCODED_LENGTH]
        codec.schedule_timer_encode(message, sizeof(message), correlation_id, deadline)
        return self._send(message, sizeof(message))

    cdef bint cancel_timer(self, int64_t correlation_id) except -1:
        cdef uint8_t message[codec.CANCEL_TIMER_ENCODED_LENGTH]
        codec.cancel_timer_encode(message, sizeof(message), correlation_id)
        return self._send(message, sizeof(message))

    cdef bint close_session(self, int64_t cluster_session_id) except -1:
        cdef uint8_t message[codec.CLOSE_SESSION_ENCODED_LENGTH]
        codec.close_session_encode(message, sizeof(message), cluster_session_id)
        return self._send(message, sizeof(message))

    cdef bint ack(self, int64_t log_position, int64_t timestamp, int64_t ack_id, int64_t relevant_id,
                  int32_t service_id) except -1:
        cdef uint8_t message[codec.SERVICE_ACK_ENCODED_LENGTH]
        codec.service_ack_encode(
            message, sizeof(message), log_position, timestamp, ack_id, relevant_id, service_id)
        return self._send(message, sizeof(message))

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        # The first is the session header, which no caller knows of.
        cdef int64_t result
        cdef size_t limit = <size_t> self._publication.max_message_length - vectors[0].length
        cdef size_t length = 0
        cdef size_t index
        for index in range(1, count):
            length += vectors[index].length
        # First, as whether a message fits must not depend on this member's back pressure.
        if length > limit:
            raise MessageTooLongError(
                f"a message of {length} bytes is longer than the max_message_length of {limit} bytes of "
                f"{self._publication!r}; send it in parts")
        result = self._publication.offer_vectors(vectors, count)
        if result <= 0:
            check_publication_result(result, self._publication)
        return result

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        cdef int64_t result = self._publication.try_claim(length, claim)
        if result <= 0:
            check_publication_result(result, self._publication)
        return result

    cdef bint _send(self, const uint8_t* message, size_t length) except -1:
        cdef Claim claim
        if self.try_claim(length, &claim) <= 0:
            return False
        memcpy(claim.data, message, length)
        self._publication.commit(&claim)
        return True


seal((ConsensusModuleProxy,))
