"""The log in: what a follower reads, and what a start replays, up to a position. Upstream: LogAdapter.java.

A message that cannot be decoded or applied ends the member. Upstream skips it, but then the member's state, and its
next snapshot, would lack what the others have.
"""
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.codecs.sbe cimport SBE_NULL_INT32
from container.common.sealed cimport seal
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.decoding cimport check_codec, check_schema, decode_ascii, decode_time_unit
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport ACTION_BREAK, ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    ACTION_FLAGS_DEFAULT = 0


cdef class LogAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with the messages of a log, ``fragment_limit`` frames at a poll."""

    def __init__(self, ConsensusEventHandler handler not None, int fragment_limit):
        self._handler = handler
        self._fragment_limit = fragment_limit
        self._assembler = FragmentAssembler(self)

    cdef int64_t position(self) noexcept:
        """Up to where the log was read: of an image that was left, too."""
        return self._position if self.image is None else self.image.position()

    cdef int join(self, Image image, Subscription subscription) except -1:
        """Read an image of a subscription from now on.

        Where it continues what was read last, so does a message of which only the first frames were committed then.
        """
        if image.position() != self.position():
            self._assembler.reset()
        self.image, self.subscription = image, subscription
        return 0

    cdef int poll(self, int64_t limit_position) except -1:
        cdef int fragment_count = 0
        if self.image is None:
            return 0
        try:
            fragment_count = self.image.bounded_controlled_poll(self._assembler, limit_position, self._fragment_limit)
        except Exception as error:              # the image is behind that message by now
            self._handler.on_failed_log(error)
        return fragment_count

    cdef bint is_image_closed(self) noexcept:
        return self.image is None or self.image.is_closed()

    cdef bint is_end_of_stream_known(self) noexcept:
        """Whether the leader has closed the log: where that ends is known."""
        return self.image is not None and self.image.end_of_stream_position() != INT64_MAX

    cdef int leave(self) except -1:
        """Read no more; the subscription is its owner's to close. May be called twice."""
        if self.image is not None:
            self._position = self.image.position()
            self.image, self.subscription = None, None
        return 0

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef codec.SessionMessageHeader session_message
        check_schema(buffer, length, &message)
        if message.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            check_codec(codec.session_message_header_wrap(&session_message, buffer, length), "SessionMessageHeader")
            self._handler.on_replay_session_message(
                codec.session_message_header_cluster_session_id(&session_message),
                codec.session_message_header_timestamp(&session_message))
            return ACTION_CONTINUE
        self._dispatch(&message, buffer, length, header)
        return ACTION_BREAK if message.template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID else ACTION_CONTINUE

    cdef int _dispatch(self, const sbe.MessageHeader* message, const uint8_t* buffer, size_t length,
                       const FrameHeader* header) except -1:
        cdef codec.TimerEvent timer
        cdef codec.SessionOpenEvent opened
        cdef codec.SessionCloseEvent closed
        cdef codec.ClusterActionRequest action
        cdef codec.NewLeadershipTermEvent term
        cdef int template_id = message.template_id
        cdef int flags
        if template_id == codec.TIMER_EVENT_TEMPLATE_ID:
            check_codec(codec.timer_event_wrap(&timer, buffer, length), "TimerEvent")
            self._handler.on_replay_timer_event(
                codec.timer_event_correlation_id(&timer), codec.timer_event_timestamp(&timer))
        elif template_id == codec.SESSION_OPEN_EVENT_TEMPLATE_ID:
            check_codec(codec.session_open_event_wrap(&opened, buffer, length), "SessionOpenEvent")
            self._handler.on_replay_session_open(
                header.position, codec.session_open_event_correlation_id(&opened),
                codec.session_open_event_cluster_session_id(&opened),
                codec.session_open_event_response_stream_id(&opened),
                decode_ascii(opened.response_channel.data, opened.response_channel.length))
        elif template_id == codec.SESSION_CLOSE_EVENT_TEMPLATE_ID:
            check_codec(codec.session_close_event_wrap(&closed, buffer, length), "SessionCloseEvent")
            self._handler.on_replay_session_close(
                codec.session_close_event_cluster_session_id(&closed), codec.session_close_event_close_reason(&closed))
        elif template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID:
            check_codec(codec.cluster_action_request_wrap(&action, buffer, length), "ClusterActionRequest")
            flags = codec.cluster_action_request_flags(&action)
            self._handler.on_replay_cluster_action(
                codec.cluster_action_request_leadership_term_id(&action),
                codec.cluster_action_request_log_position(&action), codec.cluster_action_request_timestamp(&action),
                codec.cluster_action_request_action(&action),
                ACTION_FLAGS_DEFAULT if flags == SBE_NULL_INT32 else flags)
        elif template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID:
            check_codec(codec.new_leadership_term_event_wrap(&term, buffer, length), "NewLeadershipTermEvent")
            self._handler.on_replay_new_leadership_term_event(
                codec.new_leadership_term_event_leadership_term_id(&term),
                codec.new_leadership_term_event_log_position(&term), codec.new_leadership_term_event_timestamp(&term),
                codec.new_leadership_term_event_term_base_log_position(&term),
                decode_time_unit(codec.new_leadership_term_event_time_unit(&term)),
                codec.new_leadership_term_event_app_version(&term))
        return 0


seal((LogAdapter,))
