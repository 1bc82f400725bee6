"""Snapshot in: markers and client sessions out of a replayed snapshot, then over to the user's own state.

Rules of upstream's ServiceSnapshotLoader; the end marker breaks the poll, so that the user's first frame is left.

Unlike upstream, a snapshot has been read when it was read up to the position at which its recording stopped, and not
when its image has ended: an archive that finds a damaged frame ends the replay early, and the image of such a replay
looks like that of a whole one.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.codecs.snapshot_types cimport SNAPSHOT_TYPE_SERVICE
from container.common import forks
from container.common.loggers import report
from container.common.sealed cimport seal
from container.errors import ClusterError, SnapshotError
from container.service.event_handler cimport EventHandler
from container.transport.decoding cimport check_codec, check_schema, decode_ascii, decode_time_unit
from container.transport.fragment_assembler cimport BytesAssembler, FragmentAssembler
from container.transport.clocks cimport Clock
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_BREAK, ACTION_CONTINUE, FRAME_FLAG_BEGIN, FRAME_FLAG_END, NULL_VALUE, FrameHeader,
    compute_position,
)
from container.transport.transport_seam cimport SnapshotReader
from container.transport.streams cimport FragmentHandler, Image
from container.transport.wait_reporter cimport WaitReporter

cdef enum:
    FRAGMENT_LIMIT = 10
    STALL_LIMIT_S = 60


cdef class SnapshotStream(FragmentHandler):
    """The frames of a replayed snapshot: each follows the one before, up to the stop position of the recording.

    Between two frames there may be nothing but the padding at the end of a term. Within a message there is none.
    """

    def __init__(self, SnapshotReader reader not None, Clock clock not None):
        self._reader = reader
        self._clock = clock
        self._stalled_since_ns = NULL_VALUE
        self.position = self._next_position = reader.image.position()

    cdef bint has_ended(self) noexcept:
        return self.position == self._reader.stop_position

    cdef int poll(self, FragmentAssembler assembler, int fragment_limit, bint is_single) except -1:
        cdef int fragments
        if self.has_ended():
            return 0
        self._assembler = assembler
        self._is_single = is_single
        self._is_polling = True
        try:
            fragments = self._reader.image.controlled_poll(self, fragment_limit)
        finally:
            self._is_polling = False
        if fragments == 0:
            self._check_progress()
        else:
            self._stalled_since_ns = NULL_VALUE
        return fragments

    cdef bytes peek(self):
        cdef bytes peeked
        if self.has_ended():
            return None
        self._is_polling = self._is_peeking = True
        try:
            self._reader.image.controlled_poll(self, 1)
        finally:
            self._is_polling = self._is_peeking = False
            peeked = self._peeked
            self._peeked = None
        if peeked is None:
            self._check_progress()
        else:
            self._stalled_since_ns = NULL_VALUE
        return peeked

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef int64_t position = self.position
        cdef int64_t next_position = self._next_position
        cdef bint in_message = self._in_message
        cdef int action
        self._check_is_next(header)
        if self._is_peeking:
            self._peeked = (<const char*> buffer)[:length]
            return ACTION_ABORT
        if not header.flags & FRAME_FLAG_END:
            action = self._assembler.on_fragment(buffer, length, header)
            self._in_message = True
            self._next_position = header.position
            return action
        # The frame is consumed when the handler raises. A message that was lost before it is not skipped.
        self._in_message = False
        self._next_position = self.position = header.position
        action = self._assembler.on_fragment(buffer, length, header)
        if action == ACTION_ABORT:
            self._in_message = in_message
            self._next_position = next_position
            self.position = position
        elif self._is_single:
            return ACTION_BREAK
        return action

    cdef int _check_is_next(self, const FrameHeader* header) except -1:
        cdef int64_t begin = compute_position(
            header.term_id, header.term_offset, header.position_bits_to_shift, header.initial_term_id)
        cdef int64_t term_mask = (<int64_t> 1 << header.position_bits_to_shift) - 1
        if begin != self._next_position:
            if self._in_message or begin != (self._next_position + term_mask) & ~term_mask:
                raise SnapshotError(
                    f"a part of the snapshot is missing: expected a frame at position {self._next_position}, the next "
                    f"one is at {begin}; the recording is damaged")
        if self._in_message != (not header.flags & FRAME_FLAG_BEGIN):
            raise SnapshotError(
                f"a part of the snapshot is missing: the frame at position {begin} "
                f"{'begins a message in the middle of another' if self._in_message else 'continues no message'}; "
                "the recording is damaged")
        if header.position > self._reader.stop_position:
            raise SnapshotError(
                f"the frame at position {begin} of the snapshot ends at {header.position}, behind the recording, which "
                f"ends at {self._reader.stop_position}; the recording is damaged")
        return 0

    cdef int _check_progress(self) except -1:
        cdef Image image = self._reader.image
        cdef int64_t now_ns
        # Before the archive is asked: its error may come just after the end that it is about.
        cdef bint is_cut = (image.is_end_of_stream() or image.is_closed()
                            or image.position() >= self._reader.stop_position)
        self._reader.check()
        if is_cut:
            raise SnapshotError(
                f"snapshot ended unexpectedly at position {self._next_position}: its recording ends at "
                f"{self._reader.stop_position}; the archive's error log says why it ended the replay: {image!r}")
        # At some damaged frames the archive neither continues nor gives up.
        now_ns = self._clock.nano_time()
        if self._stalled_since_ns == NULL_VALUE:
            self._stalled_since_ns = now_ns
        elif now_ns - self._stalled_since_ns >= STALL_LIMIT_S * <int64_t> 1_000_000_000:
            raise SnapshotError(
                f"the replay of the snapshot stopped at position {self._next_position}: no frame came for "
                f"{STALL_LIMIT_S} s, and its recording ends at {self._reader.stop_position}; the archive's error log "
                "may say why")
        return 0


cdef int _check_length(size_t length, size_t encoded_length, int version, str message) except -1:
    # A damaged frame length can take in the frames behind it. A newer schema may have more fields.
    if length > encoded_length and version <= codec.CLUSTER_SCHEMA_VERSION:
        raise SnapshotError(f"{message} of {length} bytes in the snapshot, expected {encoded_length}; "
                            "the recording is damaged")
    return 0


cdef class SnapshotLoader(FragmentHandler):
    """Reads the container's part of a snapshot and passes the sessions to ``handler``.

    Raises ClusterError for frames of a foreign schema, another snapshot type, or markers out of order, SnapshotError
    when a part of the snapshot is missing.
    """

    def __init__(self, SnapshotReader reader not None, EventHandler handler not None, Clock clock not None):
        self._stream = SnapshotStream(reader, clock)
        self._handler = handler
        self._assembler = FragmentAssembler(self)
        self._in_snapshot = False
        self.is_done = False

    cdef int poll(self) except -1:
        cdef int fragments = self._stream.poll(self._assembler, FRAGMENT_LIMIT, False)
        if self._stream.has_ended() and not self.is_done:
            raise SnapshotError("snapshot ended unexpectedly: it has no end marker")
        return fragments

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        check_schema(buffer, length, &message)
        if message.template_id == codec.SNAPSHOT_MARKER_TEMPLATE_ID:
            return self._on_marker(buffer, length)
        if message.template_id == codec.CLIENT_SESSION_TEMPLATE_ID:
            return self._on_session(buffer, length)
        return ACTION_CONTINUE

    cdef int _on_marker(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SnapshotMarker marker
        cdef int32_t mark
        check_codec(codec.snapshot_marker_wrap(&marker, buffer, length), "SnapshotMarker")
        _check_length(length, marker.encoded_length, marker.version, "SnapshotMarker")
        if codec.snapshot_marker_type_id(&marker) != SNAPSHOT_TYPE_SERVICE:
            raise ClusterError(f"unexpected snapshot type: {codec.snapshot_marker_type_id(&marker)}")
        mark = codec.snapshot_marker_mark(&marker)
        if mark == codec.SNAPSHOT_MARK_BEGIN:
            if self._in_snapshot:
                raise ClusterError("already in snapshot")
            self._in_snapshot = True
            self.app_version = codec.snapshot_marker_app_version(&marker)
            self.time_unit = decode_time_unit(codec.snapshot_marker_time_unit(&marker))
            return ACTION_CONTINUE
        if mark == codec.SNAPSHOT_MARK_END:
            if not self._in_snapshot:
                raise ClusterError("missing begin snapshot")
            self.is_done = True
            return ACTION_BREAK
        if mark != codec.SNAPSHOT_MARK_SECTION and mark != sbe.SBE_NULL_INT32:
            raise ClusterError(f"unknown SnapshotMark: {mark}")
        return ACTION_CONTINUE

    cdef int _on_session(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ClientSession session
        check_codec(codec.client_session_wrap(&session, buffer, length), "ClientSession")
        _check_length(length, session.encoded_length, session.version, "ClientSession")
        self._handler.on_snapshot_session(
            codec.client_session_cluster_session_id(&session),
            codec.client_session_response_stream_id(&session),
            decode_ascii(session.response_channel.data, session.response_channel.length),
            (<const char*> session.encoded_principal.data)[:session.encoded_principal.length])
        return ACTION_CONTINUE


cdef class SnapshotImage:
    """Where a service reads its state; see :class:`container.api.SnapshotImage`."""

    def __init__(self, SnapshotReader reader not None, EventHandler cluster not None):
        self._reader = reader
        self._stream = SnapshotStream(reader, cluster.clock())
        self._begin_position = self._stream.position
        self._cluster = cluster
        self._assembler = BytesAssembler()
        forks.own(self)

    def _disown(self, long process_id):
        self._parent_id = process_id
        self._stream = None

    cdef void _end(self) noexcept:
        self._stream = None

    cdef int report_unread(self, str service_name) except -1:
        if self._parent_id != 0 or self.has_ended():
            return 0
        if self._stream.position == self._begin_position:
            report(
                "warning", "%s.on_start read no state of the snapshot: this member begins without it, and differs from "
                "the others. Call container.read_snapshot(snapshot_image, ...)", service_name)
        else:
            report(
                "warning", "on_start returned at position %d of the snapshot, which ends at %d: the rest was not read",
                self._stream.position, self._reader.stop_position)
        return 0

    cdef SnapshotStream stream(self):
        if self._parent_id != 0:
            raise forks.refusal("read a snapshot", "its image", self._parent_id)
        if self._stream is None:
            raise ClusterError("the snapshot image is usable only inside on_start")
        return self._stream

    cdef bint has_ended(self) except -1:
        return self.stream().has_ended()

    cdef int _check_not_polling(self) except -1:
        if self.stream()._is_polling:
            raise ClusterError(
                "the snapshot is being read: inside the handler of a poll() it can be neither polled nor looped over; "
                "keep the message, and read on when the poll() has returned")
        return 0

    @property
    def is_end_of_stream(self):
        """True when every message has been read (bool)."""
        return bool(self.has_ended())

    @property
    def position(self):
        """Position in the recording after the last message that was read (int, bytes)."""
        return self.stream().position

    def poll(self, handler, int fragment_limit=10):
        """Hand messages to ``handler`` as bytes; see :meth:`container.api.SnapshotImage.poll`."""
        if fragment_limit < 1:
            raise ValueError(f"fragment_limit must be at least 1, not {fragment_limit}")
        self._check_not_polling()
        self._assembler.callback = handler
        try:
            return self.stream().poll(self._assembler, fragment_limit, False)
        finally:
            self._assembler.callback = None

    def peek(self):
        """The beginning of the next message (bytes), or None; see :meth:`container.api.SnapshotImage.peek`."""
        cdef WaitReporter waiting
        cdef bytes peeked
        self._check_not_polling()
        self._check_between_messages()
        peeked = self.stream().peek()
        if peeked is None and not self.has_ended():
            waiting = self._cluster._wait_for("the next message of the snapshot")
            while peeked is None:
                self._cluster.idle_once(0)
                waiting.tick()
                peeked = self.stream().peek()
        return peeked

    cdef int _check_between_messages(self) except -1:
        if self.stream()._in_message:
            raise ClusterError("poll() has read a part of a message: call poll() until that message is whole")
        return 0

    cdef int _await(self, FragmentAssembler assembler, bint is_single) except -1:
        cdef SnapshotStream stream = self.stream()
        cdef WaitReporter waiting
        if stream.poll(assembler, FRAGMENT_LIMIT, is_single) == 0 and not stream.has_ended():
            waiting = self._cluster._wait_for("the next message of the snapshot")
            while stream.poll(assembler, FRAGMENT_LIMIT, is_single) == 0 and not stream.has_ended():
                self._cluster.idle_once(0)
                waiting.tick()
        return 0

    cdef int read_all(self, FragmentHandler handler) except -1:
        cdef FragmentAssembler assembler = FragmentAssembler(handler)
        self._check_not_polling()
        self._check_between_messages()
        while not self.has_ended():
            self._await(assembler, False)
        return 0

    def __iter__(self):
        # One message a poll: none is read ahead, so that nothing is lost when the loop is left.
        cdef list messages = []
        append = messages.append
        while not self.has_ended():
            self._check_not_polling()
            self._assembler.callback = append
            self._await(self._assembler, True)
            if messages:
                yield messages.pop()


seal((SnapshotStream, SnapshotLoader, SnapshotImage))
