"""Snapshot in: markers and client sessions out of a replayed snapshot, then over to the user's own state.

Rules of upstream's ServiceSnapshotLoader; the end marker breaks the poll, so that the user's first frame is left.
"""
from collections import deque

from libc.stdint cimport int32_t, uint8_t

from container.cluster cimport Cluster
from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.decoding cimport check_codec, check_schema, decode_ascii, decode_time_unit
from container import forks
from container.errors import ClusterError, SnapshotError
from container.event_handler cimport EventHandler
from container.fragment_assembler cimport BytesAssembler, FragmentAssembler
from container.snapshot_taker cimport SERVICE_SNAPSHOT_TYPE_ID
from container.transport cimport (
    ACTION_BREAK, ACTION_CONTINUE, FragmentHandler, FrameHeader, Image, SnapshotReader,
)
from container.wait_reporter cimport WaitReporter

cdef enum:
    FRAGMENT_LIMIT = 10


cdef class SnapshotLoader(FragmentHandler):
    """Reads the container's part of a snapshot and tells the sessions to ``handler``.

    Raises ClusterError for frames of a foreign schema, another snapshot type, or markers out of order.
    """

    def __init__(self, Image image not None, EventHandler handler not None):
        self._image = image
        self._handler = handler
        self._assembler = FragmentAssembler(self)
        self._in_snapshot = False
        self.is_done = False

    cdef int poll(self) except -1:
        return self._image.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
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
        if codec.snapshot_marker_type_id(&marker) != SERVICE_SNAPSHOT_TYPE_ID:
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
        self._handler.on_snapshot_session(
            codec.client_session_cluster_session_id(&session),
            codec.client_session_response_stream_id(&session),
            decode_ascii(session.response_channel.data, session.response_channel.length),
            (<const char*> session.encoded_principal.data)[:session.encoded_principal.length])
        return ACTION_CONTINUE


cdef class SnapshotImage:
    """Where a service reads its state; see :class:`container.api.SnapshotImage`."""

    def __init__(self, SnapshotReader reader not None, Cluster cluster not None):
        self._reader = reader
        self._cluster = cluster
        self._assembler = BytesAssembler()
        forks.own(self)

    def _disown(self, long process_id):
        self._parent_id = process_id
        self._reader = None

    cdef void _end(self) noexcept:
        self._reader = None

    cdef Image image(self):
        if self._parent_id != 0:
            raise forks.refusal("use it", "a snapshot's image", self._parent_id)
        if self._reader is None:
            raise ClusterError("the snapshot image is usable only inside on_start")
        return self._reader.image

    cdef bint has_ended(self) except -1:
        cdef Image image = self.image()
        return image.position() >= image.end_of_stream_position() or image.is_end_of_stream()

    @property
    def is_end_of_stream(self):
        """True when every message has been read (bool)."""
        return bool(self.has_ended())

    @property
    def position(self):
        """Position in the recording (int, bytes)."""
        return self.image().position()

    def poll(self, handler, int fragment_limit=10):
        """Hands messages to ``handler`` as bytes; see :meth:`container.api.SnapshotImage.poll`."""
        if fragment_limit < 1:
            raise ValueError(f"fragment_limit must be at least 1, not {fragment_limit}")
        self._assembler.callback = handler
        try:
            return self._poll(self._assembler, fragment_limit)
        finally:
            self._assembler.callback = None

    cdef int _poll(self, FragmentAssembler assembler, int fragment_limit) except -1:
        cdef Image image = self.image()
        cdef int fragments = image.controlled_poll(assembler, fragment_limit)
        if fragments == 0 and not self.has_ended() and image.is_closed():
            raise SnapshotError(f"snapshot ended unexpectedly: {image!r}")
        return fragments

    cdef int _await(self, FragmentAssembler assembler) except -1:
        cdef WaitReporter waiting
        if self._poll(assembler, FRAGMENT_LIMIT) == 0 and not self.has_ended():
            waiting = WaitReporter(self._cluster.clock(), "the next message of the snapshot")
            while self._poll(assembler, FRAGMENT_LIMIT) == 0 and not self.has_ended():
                self._reader.check()
                self._cluster.idle_once(0)
                waiting.tick()
        return 0

    cdef int read_all(self, FragmentHandler handler) except -1:
        cdef FragmentAssembler assembler = FragmentAssembler(handler)
        while not self.has_ended():
            self._await(assembler)
        return 0

    def __iter__(self):
        messages = deque()
        while not self.has_ended():
            self._assembler.callback = messages.append
            try:
                self._await(self._assembler)
            finally:
                self._assembler.callback = None
            while messages:
                yield messages.popleft()
