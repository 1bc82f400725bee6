"""Requests of services and tools to the consensus module, over IPC (stream 105). Upstream: ConsensusModuleAdapter.java.

Malformed messages are reported and skipped; so are well-formed ones that the agent refuses. A service's message about
itself cannot end the others.
"""
from libc.stdint cimport uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.errors import CodecError
from container.transport.decoding cimport check_codec
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_BREAK, ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription

cdef enum:
    FRAGMENT_LIMIT = 25         # of a portion


cdef class ConsensusModuleAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with what comes on the control stream.

    A poll takes upstream's 25 frames at most, times ``portions`` (int).
    """

    def __init__(self, Subscription subscription not None, ConsensusEventHandler handler not None, int portions):
        self._subscription = subscription
        self._fragment_limit = portions * FRAGMENT_LIMIT
        self._handler = handler
        self._assembler = SessionFragmentAssembler(self)

    cdef int poll(self) except -1:
        return self._subscription.controlled_poll(self._assembler, self._fragment_limit)

    cpdef int close(self) except -1:
        """Close the subscription."""
        return self._subscription.close()

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        message.template_id = 0
        try:
            check_codec(sbe.sbe_read_header(buffer, length, &message), "message header")
            if message.schema_id != codec.CLUSTER_SCHEMA_ID:
                self._handler.on_foreign_message(message.schema_id)
            else:
                self._dispatch(&message, buffer, length)
        except CodecError as error:
            self._handler.on_malformed_message(
                f"control message of {length} bytes from sessionId={header.session_id}: {error}")
        except Exception as error:
            self._handler.on_failed_message(error)
        # An ack may be what a wait is for: nothing behind it is looked at before.
        return ACTION_BREAK if message.template_id == codec.SERVICE_ACK_TEMPLATE_ID else ACTION_CONTINUE

    cdef int _dispatch(self, const sbe.MessageHeader* message, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SessionMessageHeader session_message
        cdef codec.ScheduleTimer schedule
        cdef codec.CancelTimer cancel
        cdef codec.CloseSession close_session
        cdef codec.ServiceAck ack
        cdef codec.ClusterMembersQuery query
        cdef int template_id = message.template_id
        if template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            check_codec(codec.session_message_header_wrap(&session_message, buffer, length), "SessionMessageHeader")
            self._handler.on_service_message(
                codec.session_message_header_cluster_session_id(&session_message),
                buffer + codec.SESSION_MESSAGE_HEADER_ENCODED_LENGTH,
                length - codec.SESSION_MESSAGE_HEADER_ENCODED_LENGTH)
        elif template_id == codec.SCHEDULE_TIMER_TEMPLATE_ID:
            check_codec(codec.schedule_timer_wrap(&schedule, buffer, length), "ScheduleTimer")
            self._handler.on_schedule_timer(
                codec.schedule_timer_correlation_id(&schedule), codec.schedule_timer_deadline(&schedule))
        elif template_id == codec.CANCEL_TIMER_TEMPLATE_ID:
            check_codec(codec.cancel_timer_wrap(&cancel, buffer, length), "CancelTimer")
            self._handler.on_cancel_timer(codec.cancel_timer_correlation_id(&cancel))
        elif template_id == codec.SERVICE_ACK_TEMPLATE_ID:
            check_codec(codec.service_ack_wrap(&ack, buffer, length), "ServiceAck")
            self._handler.on_service_ack(
                codec.service_ack_log_position(&ack), codec.service_ack_timestamp(&ack), codec.service_ack_ack_id(&ack),
                codec.service_ack_relevant_id(&ack), codec.service_ack_service_id(&ack))
        elif template_id == codec.CLOSE_SESSION_TEMPLATE_ID:
            check_codec(codec.close_session_wrap(&close_session, buffer, length), "CloseSession")
            self._handler.on_service_close_session(codec.close_session_cluster_session_id(&close_session))
        elif template_id == codec.CLUSTER_MEMBERS_QUERY_TEMPLATE_ID:
            check_codec(codec.cluster_members_query_wrap(&query, buffer, length), "ClusterMembersQuery")
            self._handler.on_cluster_members_query(
                codec.cluster_members_query_correlation_id(&query),
                codec.cluster_members_query_extended(&query) == codec.BOOLEAN_TRUE)
        return 0


seal((ConsensusModuleAdapter,))
