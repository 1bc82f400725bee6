"""The consensus module's messages to its services, and its answers to tools, over IPC (stream 104).

Upstream: ServiceProxy.java. Each call is one attempt: whoever needs the message to arrive calls again.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs.cluster cimport (
    BOOLEAN_FALSE, BOOLEAN_TRUE, CLUSTER_SCHEMA_ID, REQUEST_SERVICE_ACK_ENCODED_LENGTH,
    SERVICE_TERMINATION_POSITION_TEMPLATE_ID, cluster_members_response_encode, cluster_members_response_encoded_length,
    join_log_encode, join_log_encoded_length, request_service_ack_encode,
)
from container.codecs.sbe cimport SBE_HEADER_LENGTH, sbe_put_header, sbe_put_int32, sbe_put_int64
from container.codecs.messages import encode
from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.errors import PublicationUnavailableError
from container.transport.frames cimport CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED, NULL_VALUE
from container.transport.streams cimport Publication, publication_result_name

cdef enum:
    # A container of version 17 acks a termination only where the message says that the ack is wanted.
    ACK_REQUIRED_VERSION = 17
    TERMINATION_BLOCK_LENGTH = 12
    TERMINATION_LENGTH = SBE_HEADER_LENGTH + TERMINATION_BLOCK_LENGTH


cdef class ServiceProxy:
    """Sends on the publication of the control channel that it is given (Publication, shared by tools).

    Each call returns whether the message was sent. Raises PublicationUnavailableError when there is nobody to send to:
    no service is connected, or the publication is closed.
    """

    def __init__(self, Publication publication not None):
        self._publication = publication

    cdef bint is_closed(self) noexcept:
        return self._publication.is_closed()

    cdef bint join_log(
            self, int64_t log_position, int64_t max_log_position, int32_t member_id, int32_t log_session_id,
            int32_t log_stream_id, bint is_startup, int32_t role, str log_channel) except -1:
        """JoinLog (40): where to read the log."""
        cdef bytes channel = log_channel.encode("ascii")
        cdef uint32_t channel_length = <uint32_t> len(channel)
        cdef int64_t length = join_log_encoded_length(channel_length)
        cdef bytes message = PyBytes_FromStringAndSize(NULL, length)
        cdef uint8_t* data = <uint8_t*> PyBytes_AS_STRING(message)
        join_log_encode(
            data, length, log_position, max_log_position, member_id, log_session_id, log_stream_id,
            BOOLEAN_TRUE if is_startup else BOOLEAN_FALSE, role, BOOLEAN_FALSE, channel, channel_length)
        return self._offer(data, length)

    cdef bint termination_position(self, int64_t log_position, bint ack_required) except -1:
        """ServiceTerminationPosition (42), as of schema version 17."""
        cdef uint8_t message[TERMINATION_LENGTH]
        sbe_put_header(
            message, TERMINATION_BLOCK_LENGTH, SERVICE_TERMINATION_POSITION_TEMPLATE_ID, CLUSTER_SCHEMA_ID,
            ACK_REQUIRED_VERSION)
        sbe_put_int64(message + SBE_HEADER_LENGTH, log_position)
        sbe_put_int32(message + SBE_HEADER_LENGTH + 8, BOOLEAN_TRUE if ack_required else BOOLEAN_FALSE)
        return self._offer(message, sizeof(message))

    cdef bint request_service_ack(self, int64_t log_position) except -1:
        """RequestServiceAck (108)."""
        cdef uint8_t message[REQUEST_SERVICE_ACK_ENCODED_LENGTH]
        request_service_ack_encode(message, sizeof(message), log_position)
        return self._offer(message, sizeof(message))

    cdef bint cluster_members_response(self, int64_t correlation_id, int32_t leader_member_id, str members) except -1:
        """ClusterMembersResponse (41)."""
        cdef bytes text = members.encode("ascii", "replace")
        cdef int64_t length = cluster_members_response_encoded_length(<uint32_t> len(text), 0)
        cdef bytes message = PyBytes_FromStringAndSize(NULL, length)
        cdef uint8_t* data = <uint8_t*> PyBytes_AS_STRING(message)
        cluster_members_response_encode(
            data, length, correlation_id, leader_member_id, text, <uint32_t> len(text), b"", 0)
        return self._offer(data, length)

    cdef bint cluster_members_extended_response(
            self, int64_t correlation_id, int32_t leader_member_id, ClusterMembers members, int64_t epoch_ns,
            int64_t now_ns) except -1:
        """ClusterMembersExtendedResponse (43), with the time of two clocks: since 1970, and the monotonic one."""
        cdef ClusterMember member
        cdef bytes message = encode(
            "cluster", "ClusterMembersExtendedResponse", correlation_id=correlation_id, current_time_ns=epoch_ns,
            leader_member_id=leader_member_id, member_id=members.this_member.id,
            active_members=[{
                "leadership_term_id": member.leadership_term_id,
                "log_position": member.log_position,
                "time_of_last_append_ns": member.time_of_last_append_position_ns
                if member.time_of_last_append_position_ns == NULL_VALUE
                else epoch_ns - (now_ns - member.time_of_last_append_position_ns),
                "member_id": member.id,
                "ingress_endpoint": member.ingress_endpoint.encode(),
                "consensus_endpoint": member.consensus_endpoint.encode(),
                "log_endpoint": member.log_endpoint.encode(),
                "catchup_endpoint": member.catchup_endpoint.encode(),
                "archive_endpoint": member.archive_endpoint.encode(),
            } for member in members.members],
            passive_members=[])
        return self._offer(<const uint8_t*> PyBytes_AS_STRING(message), len(message))

    cdef bint _offer(self, const uint8_t* message, size_t length) except -1:
        cdef int64_t result = self._publication.offer(message, length)
        if result in (NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED):
            raise PublicationUnavailableError(
                f"control channel to the services: {publication_result_name(result)}: {self._publication!r}")
        return result > 0

    cpdef int close(self) except -1:
        """Close the publication."""
        return self._publication.close()


seal((ServiceProxy,))
