"""Control in: the consensus module's messages to its services (stream 104, upstream's ServiceAdapter).

Other messages share the stream (ClusterTool asks its questions there) and are skipped.
"""
from libc.stdint cimport int32_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.errors import ClusterError
from container.service.event_handler cimport EventHandler
from container.transport.decoding cimport check_codec, check_schema, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription

cdef enum:
    FRAGMENT_LIMIT = 1
    ROLE_FOLLOWER = 0
    ROLE_LEADER = 2


cdef class ServiceAdapter(FragmentHandler):
    """Feeds JoinLog, ServiceTerminationPosition and RequestServiceAck to an :class:`EventHandler`."""

    def __init__(self, Subscription subscription not None, EventHandler handler not None):
        self._subscription = subscription
        self._handler = handler
        self._assembler = SessionFragmentAssembler(self)

    cdef int poll(self) except -1:
        return self._subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cpdef int close(self) except -1:
        """Close the subscription."""
        return self._subscription.close()

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef codec.ServiceTerminationPosition termination
        cdef codec.RequestServiceAck request
        check_schema(buffer, length, &message)
        if message.template_id == codec.JOIN_LOG_TEMPLATE_ID:
            self._on_join_log(buffer, length)
        elif message.template_id == codec.SERVICE_TERMINATION_POSITION_TEMPLATE_ID:
            check_codec(
                codec.service_termination_position_wrap(&termination, buffer, length), "ServiceTerminationPosition")
            # A consensus module before schema version 17 has no such field and waits for the ack: only an explicit
            # FALSE means that none is wanted.
            self._handler.on_service_termination_position(
                codec.service_termination_position_log_position(&termination),
                codec.service_termination_position_ack_required(&termination) != codec.BOOLEAN_FALSE)
        elif message.template_id == codec.REQUEST_SERVICE_ACK_TEMPLATE_ID:
            check_codec(codec.request_service_ack_wrap(&request, buffer, length), "RequestServiceAck")
            self._handler.on_request_service_ack(codec.request_service_ack_log_position(&request))
        return ACTION_CONTINUE

    cdef int _on_join_log(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.JoinLog join_log
        cdef int32_t role
        check_codec(codec.join_log_wrap(&join_log, buffer, length), "JoinLog")
        role = codec.join_log_role(&join_log)
        if not ROLE_FOLLOWER <= role <= ROLE_LEADER:
            raise ClusterError(f"unknown role in JoinLog: {role}; known are 0 follower, 1 candidate, 2 leader")
        return self._handler.on_join_log(
            codec.join_log_log_position(&join_log),
            codec.join_log_max_log_position(&join_log),
            codec.join_log_member_id(&join_log),
            codec.join_log_log_session_id(&join_log),
            codec.join_log_log_stream_id(&join_log),
            codec.join_log_is_startup(&join_log) == codec.BOOLEAN_TRUE,
            role,
            codec.join_log_is_standby(&join_log) == codec.BOOLEAN_TRUE,
            decode_ascii(join_log.log_channel.data, join_log.log_channel.length))


seal((ServiceAdapter,))
