"""The messages of a consensus module's snapshot: written, and read back. Upstream: ConsensusModuleSnapshotTaker.java,
ConsensusModuleSnapshotAdapter.java.

In order: SnapshotMarker BEGIN (type 1), ConsensusModule, ClusterSession for each, Timer for each, PendingMessageTracker
for each service with its pending messages, SnapshotMarker END.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.codecs.snapshot_types cimport SNAPSHOT_TYPE_CONSENSUS_MODULE
from container.common.sealed cimport hide, seal
from container.consensus.cluster_session cimport CLOSING, OPEN, ClusterSession
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.consensus.pending_service_messages cimport PendingMessageSnapshot, PendingServiceMessageTracker
from container.consensus.session_manager cimport SessionManager
from container.consensus.timer_service cimport TimerService, TimerSnapshot
from container.errors import ClusterError
from container.transport.decoding cimport check_codec, check_schema, decode_ascii, decode_time_unit
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport ACTION_BREAK, ACTION_CONTINUE, NULL_VALUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image

cdef enum:
    FRAGMENT_LIMIT = 10


cdef inline bytes _new(int64_t length):
    return PyBytes_FromStringAndSize(NULL, length)


cdef inline uint8_t* _data(bytes message) noexcept:
    return <uint8_t*> PyBytes_AS_STRING(message)


cdef class _TimerMessages(TimerSnapshot):
    cdef list messages

    cpdef int on_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef bytes message = _new(codec.TIMER_ENCODED_LENGTH)
        codec.timer_encode(_data(message), len(message), correlation_id, deadline)
        self.messages.append(message)
        return 0


cdef class _PendingMessages(PendingMessageSnapshot):
    cdef list messages

    cdef int on_message(self, const uint8_t* message, size_t length) except -1:
        self.messages.append((<const char*> message)[:length])
        return 0


cdef list snapshot_messages(
        SessionManager sessions, TimerService timers, list trackers, int64_t log_position, int64_t leadership_term_id,
        int32_t time_unit, int32_t app_version):
    """The messages of a snapshot of what these are now, in their order (list of bytes)."""
    cdef list messages = [_marker(
        log_position, leadership_term_id, codec.SNAPSHOT_MARK_BEGIN, time_unit, app_version)]
    cdef PendingServiceMessageTracker tracker
    cdef ClusterSession session
    cdef _TimerMessages timer_messages = _TimerMessages.__new__(_TimerMessages)
    cdef _PendingMessages pending = _PendingMessages.__new__(_PendingMessages)
    timer_messages.messages = pending.messages = messages
    messages.append(_state(sessions, trackers))
    for session in sessions.in_order():
        if session.state in (OPEN, CLOSING):
            messages.append(_session(session))
    timers.snapshot(timer_messages)
    for tracker in trackers:
        messages.append(_tracker(tracker))
        tracker.for_each(pending)
    messages.append(_marker(log_position, leadership_term_id, codec.SNAPSHOT_MARK_END, time_unit, app_version))
    return messages


cdef bytes _marker(int64_t log_position, int64_t leadership_term_id, int32_t mark, int32_t time_unit,
                   int32_t app_version):
    cdef bytes message = _new(codec.SNAPSHOT_MARKER_ENCODED_LENGTH)
    codec.snapshot_marker_encode(
        _data(message), len(message), SNAPSHOT_TYPE_CONSENSUS_MODULE, log_position, leadership_term_id, 0, mark,
        time_unit,
        app_version)
    return message


cdef bytes _state(SessionManager sessions, list trackers):
    cdef bytes message = _new(codec.CONSENSUS_MODULE_ENCODED_LENGTH)
    cdef PendingServiceMessageTracker first = trackers[0] if trackers else None
    if first is None:
        codec.consensus_module_encode(_data(message), len(message), sessions.next_committed_session_id, 0, 0, 0)
    else:
        codec.consensus_module_encode(
            _data(message), len(message), sessions.next_committed_session_id, first.next_service_session_id,
            first.log_service_session_id, <int32_t> first.size())
    return message


cdef bytes _session(ClusterSession session):
    cdef bytes channel = session.response_channel.encode("ascii", "replace")
    cdef bytes message = _new(codec.cluster_session_encoded_length(<uint32_t> len(channel)))
    codec.cluster_session_encode(
        _data(message), len(message), session.id, session.correlation_id, session.opened_log_position, NULL_VALUE,
        session.close_reason, session.response_stream_id, channel, <uint32_t> len(channel))
    return message


cdef bytes _tracker(PendingServiceMessageTracker tracker):
    cdef bytes message = _new(codec.PENDING_MESSAGE_TRACKER_ENCODED_LENGTH)
    codec.pending_message_tracker_encode(
        _data(message), len(message), tracker.next_service_session_id_for_snapshot(), tracker.log_service_session_id,
        <int32_t> tracker.size(), tracker.service_id)
    return message


cdef class SnapshotAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with the snapshot that is replayed on an image.

    Args:
        image: of the replay, from its beginning (Image).
        handler: what is given the state.
    """

    def __init__(self, Image image not None, ConsensusEventHandler handler not None):
        self._image = image
        self._handler = handler
        self._assembler = FragmentAssembler(self)

    cdef int poll(self) except -1:
        """Read some of it. Raises ClusterError when the image ends before the snapshot does."""
        cdef int count
        if self.is_done:
            return 0
        count = self._image.controlled_poll(self._assembler, FRAGMENT_LIMIT)
        if count == 0 and self._image.is_closed() and not self.is_done:
            raise ClusterError(f"snapshot ended unexpectedly at {self._image.position()}")
        return count

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        check_schema(buffer, length, &message)
        if message.template_id == codec.SNAPSHOT_MARKER_TEMPLATE_ID:
            self._on_marker(buffer, length)
            return ACTION_BREAK if self.is_done else ACTION_CONTINUE
        if not self._is_begun:
            raise ClusterError(f"missing begin of the snapshot: it starts with templateId={message.template_id}")
        self._dispatch(&message, buffer, length)
        return ACTION_CONTINUE

    cdef int _on_marker(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SnapshotMarker marker
        cdef int64_t type_id
        check_codec(codec.snapshot_marker_wrap(&marker, buffer, length), "SnapshotMarker")
        type_id = codec.snapshot_marker_type_id(&marker)
        if type_id != SNAPSHOT_TYPE_CONSENSUS_MODULE:
            raise ClusterError(
                f"unexpected snapshot type: {type_id}, a consensus module's is {SNAPSHOT_TYPE_CONSENSUS_MODULE}")
        if codec.snapshot_marker_mark(&marker) == codec.SNAPSHOT_MARK_BEGIN:
            if self._is_begun:
                raise ClusterError("already in snapshot")
            self._is_begun = True
            self.time_unit = decode_time_unit(codec.snapshot_marker_time_unit(&marker))
            self.app_version = codec.snapshot_marker_app_version(&marker)
        elif codec.snapshot_marker_mark(&marker) == codec.SNAPSHOT_MARK_END:
            if not self._is_begun:
                raise ClusterError("missing begin snapshot")
            self.is_done = True
        return 0

    cdef int _dispatch(self, const sbe.MessageHeader* message, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SessionMessageHeader pending
        cdef codec.ClusterSession session
        cdef codec.Timer timer
        cdef codec.ConsensusModule state
        cdef codec.PendingMessageTracker tracker
        cdef int template_id = message.template_id
        if template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            check_codec(codec.session_message_header_wrap(&pending, buffer, length), "SessionMessageHeader")
            self._handler.on_load_pending_message(
                codec.session_message_header_cluster_session_id(&pending), buffer, length)
        elif template_id == codec.CLUSTER_SESSION_TEMPLATE_ID:
            check_codec(codec.cluster_session_wrap(&session, buffer, length), "ClusterSession")
            self._handler.on_load_session(
                codec.cluster_session_cluster_session_id(&session), codec.cluster_session_correlation_id(&session),
                codec.cluster_session_opened_log_position(&session), codec.cluster_session_close_reason(&session),
                codec.cluster_session_response_stream_id(&session),
                decode_ascii(session.response_channel.data, session.response_channel.length))
        elif template_id == codec.TIMER_TEMPLATE_ID:
            check_codec(codec.timer_wrap(&timer, buffer, length), "Timer")
            self._handler.on_load_timer(codec.timer_correlation_id(&timer), codec.timer_deadline(&timer))
        elif template_id == codec.CONSENSUS_MODULE_TEMPLATE_ID:
            check_codec(codec.consensus_module_wrap(&state, buffer, length), "ConsensusModule")
            self._handler.on_load_state(
                codec.consensus_module_next_session_id(&state), codec.consensus_module_next_service_session_id(&state),
                codec.consensus_module_log_service_session_id(&state),
                codec.consensus_module_pending_message_capacity(&state))
        elif template_id == codec.PENDING_MESSAGE_TRACKER_TEMPLATE_ID:
            check_codec(codec.pending_message_tracker_wrap(&tracker, buffer, length), "PendingMessageTracker")
            self._handler.on_load_tracker(
                codec.pending_message_tracker_next_service_session_id(&tracker),
                codec.pending_message_tracker_log_service_session_id(&tracker),
                codec.pending_message_tracker_pending_message_capacity(&tracker),
                codec.pending_message_tracker_service_id(&tracker))
        return 0


hide((_TimerMessages, _PendingMessages))
seal((SnapshotAdapter,))
