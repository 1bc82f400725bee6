"""Snapshot out: begin marker, client sessions in the order of their ids, end marker, then the user's own state.

Messages SnapshotMarker (100) and ClientSession (102), as upstream's ServiceSnapshotTaker writes them.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs cimport cluster as codec
from container.codecs.snapshot_types cimport SNAPSHOT_TYPE_SERVICE
from container.common import forks
from container.common.sealed cimport seal
from container.errors import ClusterError, TimedOutError
from container.service.container_client_session cimport ClientSessions, ContainerClientSession
from container.service.event_handler cimport EventHandler
from container.service.publication_results cimport check_publication_result
from container.transport.buffer_vectors cimport BufferVectors, gather_vectors, release_vectors
from container.transport.frames cimport BufferVector
from container.transport.transport_seam cimport SnapshotWriter
from container.transport.streams cimport Publication

cdef enum:
    STALL_LIMIT_S = 60


cdef class RecordingWait:
    """A wait for an archive that records, turn by turn. An archive that stands still must not hold up its member."""

    def __init__(self, SnapshotWriter writer not None, EventHandler cluster not None, str what not None):
        self._writer = writer
        self._cluster = cluster
        self._what = what
        self._reporter = cluster._wait_for(what)
        self._recorded_position = writer.recorded_position()
        self._deadline_ns = cluster.now_ns() + STALL_LIMIT_S * <int64_t> 1_000_000_000

    cdef int turn(self) except -1:
        cdef int64_t position
        self._cluster.idle_once(0)
        self._writer.check()
        self._reporter.tick()
        position = self._writer.recorded_position()
        if position != self._recorded_position:
            self._recorded_position = position
            self._deadline_ns = self._cluster.now_ns() + STALL_LIMIT_S * <int64_t> 1_000_000_000
            self._is_late = False
        elif self._cluster.now_ns() < self._deadline_ns:
            return 0
        elif not self._is_late:
            self._is_late = True                # this member may have stood still: it looks once more
        else:
            raise TimedOutError(
                f"nothing was recorded for {STALL_LIMIT_S} s while waiting for {self._what}: recording "
                f"{self._writer.recording_id} is at {position} of {self._writer.publication.position()}")
        return 0


cdef int64_t _send_until_taken(
        SnapshotWriter writer, EventHandler cluster, const BufferVector* vectors, size_t count) except? -6:
    cdef int64_t result = writer.publication.offer_vectors(vectors, count)
    cdef RecordingWait waiting = None
    while result <= 0:
        check_publication_result(result, writer.publication)
        if waiting is None:
            waiting = RecordingWait(writer, cluster, "the archive to record the snapshot")
        waiting.turn()
        result = writer.publication.offer_vectors(vectors, count)
    return result


cdef class SnapshotTaker:
    """Writes the container's own frames. Each is offered until sent."""

    def __init__(self, SnapshotWriter writer not None, EventHandler cluster not None):
        self._writer = writer
        self._cluster = cluster

    cdef int _send(self, const uint8_t* data, size_t length) except -1:
        cdef BufferVector vector
        vector.data = <uint8_t*> data
        vector.length = length
        _send_until_taken(self._writer, self._cluster, &vector, 1)
        return 0

    cdef int mark(self, int32_t mark, int64_t log_position, int64_t leadership_term_id, int32_t time_unit,
                  int32_t app_version) except -1:
        cdef uint8_t buffer[codec.SNAPSHOT_MARKER_ENCODED_LENGTH]
        codec.snapshot_marker_encode(
            buffer, sizeof(buffer), SNAPSHOT_TYPE_SERVICE, log_position, leadership_term_id, 0, mark, time_unit,
            app_version)
        return self._send(buffer, sizeof(buffer))

    cdef int write_sessions(self, ClientSessions sessions) except -1:
        cdef ContainerClientSession session
        cdef bytes channel
        cdef bytes scratch
        cdef size_t capacity
        cdef int64_t length
        for session in sessions:
            channel = session.response_channel.encode("ascii")
            capacity = (8 + codec.CLIENT_SESSION_BLOCK_LENGTH + 8 + len(channel)
                        + len(session.encoded_principal))
            scratch = bytes(capacity)
            length = codec.client_session_encode(
                <uint8_t*> PyBytes_AS_STRING(scratch), capacity, session.id, session.response_stream_id,
                <const uint8_t*> PyBytes_AS_STRING(channel), <uint32_t> len(channel),
                <const uint8_t*> PyBytes_AS_STRING(session.encoded_principal),
                <uint32_t> len(session.encoded_principal))
            if length < 0:
                raise ClusterError(f"session {session.id} cannot be written to the snapshot: its channel has "
                                   f"{len(channel)} bytes, its principal {len(session.encoded_principal)}")
            self._send(<const uint8_t*> PyBytes_AS_STRING(scratch), <size_t> length)
        return 0


cdef class SnapshotPublication:
    """Where a service writes its state; see :class:`container.api.SnapshotPublication`."""

    def __init__(self, SnapshotWriter writer not None, EventHandler cluster not None):
        self._writer = writer
        self._cluster = cluster
        forks.own(self)

    def _disown(self, long process_id):
        self._parent_id = process_id
        self._writer = None

    cdef void _end(self) noexcept:
        self._writer = None

    cdef Publication publication(self):
        if self._parent_id != 0:
            raise forks.refusal("write a snapshot", "its publication", self._parent_id)
        if self._writer is None:
            raise ClusterError("the snapshot is finished: its publication is usable only inside on_take_snapshot")
        return self._writer.publication

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        return self.publication().offer_vectors(vectors, count)

    cdef int64_t send_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        self.publication()
        return _send_until_taken(self._writer, self._cluster, vectors, count)

    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6:
        cdef BufferVector vector
        vector.data = <uint8_t*> data
        vector.length = length
        return self.send_vectors(&vector, 1)

    @property
    def max_message_length(self):
        """The longest message that one call takes (int, bytes)."""
        return self.publication().max_message_length

    @property
    def position(self):
        """Position in the recording (int, bytes)."""
        return self.publication().position()

    def offer(self, *buffers):
        """Try once to write one message; see :meth:`container.api.SnapshotPublication.offer`."""
        cdef BufferVectors gathered
        cdef int64_t result
        gather_vectors(&gathered, buffers)
        try:
            result = self.offer_vectors(&gathered.vectors[1], <size_t> gathered.count)
            if result > 0 and self._cluster._loose_ends is None:
                return result
            payload = b"".join(buffers)
            return self._cluster._tracked(
                result, "SnapshotPublication.offer", payload, len(payload),
                "the snapshot lacks a message and is given up; use send, or idle and offer again")
        finally:
            release_vectors(&gathered)

    def send(self, *buffers):
        """Write one message, waiting out back pressure; see :meth:`container.api.SnapshotPublication.send`."""
        cdef BufferVectors gathered
        gather_vectors(&gathered, buffers)
        try:
            position = self.send_vectors(&gathered.vectors[1], <size_t> gathered.count)
            if self._cluster._loose_ends is not None:
                payload = b"".join(buffers)
                self._cluster._sent(payload, len(payload))
            return position
        finally:
            release_vectors(&gathered)

    def idle(self):
        """Idle once, as :meth:`container.api.Cluster.idle`."""
        self._cluster.idle_once(0)


seal((RecordingWait, SnapshotTaker, SnapshotPublication))
