"""Log in: polls up to the commit position, reassembles, dispatches by template id (upstream's BoundedLogAdapter).

Positions are those of the frame header for messages 1, 20, 21 and 22, and the message's own field for 23 and 24. A
poll goes up to the commit position and no further; where the log ends is decided by ``max_log_position``.

Beyond upstream, a poll also ends with the first message after which it has lasted ``POLL_TIME_LIMIT_NS``: callbacks
that are slow one by one would, fifty in a row, keep the agent from its driver and its mark file until both give it up.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.errors import CodecError
from container.service.event_handler cimport EventHandler
from container.transport.decoding cimport check_codec, check_schema, decode_ascii, decode_time_unit
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.clocks cimport Clock
from container.transport.frames cimport ACTION_BREAK, ACTION_CONTINUE, FRAME_FLAGS_UNFRAGMENTED, NULL_VALUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    NO_TEMPLATE_ID = -1

cdef dict _NAMES = {
    codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID: "SessionMessageHeader",
    codec.TIMER_EVENT_TEMPLATE_ID: "TimerEvent",
    codec.SESSION_OPEN_EVENT_TEMPLATE_ID: "SessionOpenEvent",
    codec.SESSION_CLOSE_EVENT_TEMPLATE_ID: "SessionCloseEvent",
    codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID: "ClusterActionRequest",
    codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID: "NewLeadershipTermEvent",
}

cdef dict _CALLBACKS = {
    codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID: "on_session_message",
    codec.TIMER_EVENT_TEMPLATE_ID: "on_timer_event",
    codec.SESSION_OPEN_EVENT_TEMPLATE_ID: "on_session_open",
    codec.SESSION_CLOSE_EVENT_TEMPLATE_ID: "on_session_close",
    codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID: "on_new_leadership_term_event",
}


cdef class BoundedLogAdapter(FragmentHandler):
    """Feeds the events of a log image to an :class:`EventHandler`."""

    def __init__(self, EventHandler handler not None, int fragment_limit, Clock clock not None):
        self._handler = handler
        self._assembler = FragmentAssembler(self)
        self._fragment_limit = fragment_limit
        self._clock = clock
        self.max_log_position = NULL_VALUE
        self._event_template_id = NO_TEMPLATE_ID

    cdef void join(self, Subscription subscription, Image image, int64_t max_log_position) noexcept:
        self._subscription = subscription
        self._image = image
        self.max_log_position = max_log_position

    cdef bint is_joined(self) noexcept:
        return self._image is not None

    cdef bint is_done(self) noexcept:
        return (self._image.position() >= self.max_log_position or self._image.is_end_of_stream()
                or self._image.is_closed())

    cdef int64_t position(self) noexcept:
        return self._image.position()

    cdef str event_name(self):
        if self._event_template_id == NO_TEMPLATE_ID:
            return "unknown"
        return _NAMES.get(self._event_template_id, f"template {self._event_template_id}")

    cdef str slow_callback(self):
        return _CALLBACKS.get(self._slow_template_id, "")

    cdef int poll(self, int64_t limit) except -1:
        self.is_slow = False
        self._event_begin_ns = self._clock.coarse_nano_time()
        self._poll_end_ns = self._event_begin_ns + POLL_TIME_LIMIT_NS
        return self._image.bounded_controlled_poll(self, limit, self._fragment_limit)

    cdef Subscription leave(self):
        cdef Subscription subscription = self._subscription
        self._subscription = None
        self._image = None
        return subscription

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef codec.SessionMessageHeader session_header
        cdef int result
        cdef int64_t now_ns
        if (header.flags & FRAME_FLAGS_UNFRAGMENTED) != FRAME_FLAGS_UNFRAGMENTED:
            return self._assembler.on_fragment(buffer, length, header)      # which comes back with the whole message
        result = codec.session_message_header_wrap(&session_header, buffer, length)
        if result == sbe.SBE_OK:
            self._handler.on_session_message(
                header.position,
                codec.session_message_header_cluster_session_id(&session_header),
                codec.session_message_header_timestamp(&session_header),
                buffer + codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET,
                length - codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET,
                header)
        else:
            self.event_position = header.position
            self._event_template_id = NO_TEMPLATE_ID
            check_schema(buffer, length, &message)
            self._event_template_id = message.template_id
            if message.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
                check_codec(result, "SessionMessageHeader")
            self._on_event(message.template_id, buffer, length, header)
        now_ns = self._clock.coarse_nano_time()
        if now_ns < self._poll_end_ns:
            self._event_begin_ns = now_ns
            return ACTION_CONTINUE
        self.is_slow = True
        self._slow_template_id = (
            codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID if result == sbe.SBE_OK else message.template_id)
        return ACTION_BREAK

    cdef int _on_event(
            self, int template_id, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
        cdef codec.TimerEvent timer
        if template_id == codec.TIMER_EVENT_TEMPLATE_ID:
            check_codec(codec.timer_event_wrap(&timer, buffer, length), "TimerEvent")
            self._handler.on_timer_event(
                header.position, codec.timer_event_correlation_id(&timer), codec.timer_event_timestamp(&timer))
        elif template_id == codec.SESSION_OPEN_EVENT_TEMPLATE_ID:
            self._on_session_open(buffer, length, header.position)
        elif template_id == codec.SESSION_CLOSE_EVENT_TEMPLATE_ID:
            self._on_session_close(buffer, length, header.position)
        elif template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID:
            self._on_action(buffer, length)
        elif template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID:
            self._on_new_term(buffer, length)
        return 0

    cdef int _on_session_open(self, const uint8_t* buffer, size_t length, int64_t log_position) except -1:
        cdef codec.SessionOpenEvent event
        check_codec(codec.session_open_event_wrap(&event, buffer, length), "SessionOpenEvent")
        return self._handler.on_session_open(
            codec.session_open_event_leadership_term_id(&event),
            log_position,
            codec.session_open_event_cluster_session_id(&event),
            codec.session_open_event_timestamp(&event),
            codec.session_open_event_response_stream_id(&event),
            decode_ascii(event.response_channel.data, event.response_channel.length),
            (<const char*> event.encoded_principal.data)[:event.encoded_principal.length])

    cdef int _on_session_close(self, const uint8_t* buffer, size_t length, int64_t log_position) except -1:
        cdef codec.SessionCloseEvent event
        cdef int32_t close_reason
        check_codec(codec.session_close_event_wrap(&event, buffer, length), "SessionCloseEvent")
        close_reason = codec.session_close_event_close_reason(&event)
        if not codec.CLOSE_REASON_CLIENT_ACTION <= close_reason <= codec.CLOSE_REASON_TIMEOUT:
            raise CodecError(f"unknown CloseReason: {close_reason}")
        return self._handler.on_session_close(
            codec.session_close_event_leadership_term_id(&event),
            log_position,
            codec.session_close_event_cluster_session_id(&event),
            codec.session_close_event_timestamp(&event),
            close_reason)

    cdef int _on_action(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ClusterActionRequest request
        cdef int32_t action
        cdef int32_t flags
        check_codec(codec.cluster_action_request_wrap(&request, buffer, length), "ClusterActionRequest")
        action = codec.cluster_action_request_action(&request)
        if not codec.CLUSTER_ACTION_SUSPEND <= action <= codec.CLUSTER_ACTION_SNAPSHOT:
            raise CodecError(f"unknown ClusterAction: {action}")
        flags = codec.cluster_action_request_flags(&request)
        return self._handler.on_service_action(
            codec.cluster_action_request_leadership_term_id(&request),
            codec.cluster_action_request_log_position(&request),
            codec.cluster_action_request_timestamp(&request),
            action,
            0 if flags == sbe.SBE_NULL_INT32 else flags)

    cdef int _on_new_term(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.NewLeadershipTermEvent event
        check_codec(codec.new_leadership_term_event_wrap(&event, buffer, length), "NewLeadershipTermEvent")
        return self._handler.on_new_leadership_term_event(
            codec.new_leadership_term_event_leadership_term_id(&event),
            codec.new_leadership_term_event_log_position(&event),
            codec.new_leadership_term_event_timestamp(&event),
            codec.new_leadership_term_event_term_base_log_position(&event),
            codec.new_leadership_term_event_leader_member_id(&event),
            codec.new_leadership_term_event_log_session_id(&event),
            decode_time_unit(codec.new_leadership_term_event_time_unit(&event)),
            codec.new_leadership_term_event_app_version(&event))


seal((BoundedLogAdapter,))
