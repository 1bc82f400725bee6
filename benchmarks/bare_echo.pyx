"""The floor of echoes, for benchmarks/echo.py: a session message goes from Aeron's C library straight back to it.

The container starts, joins and idles as always, and takes everything except whole session messages. For these it does
nothing but echo: no session is searched, no position kept, no header made, no callback called. A message of
the log begins with the header that its echo needs.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from container cimport ContainerClientSession, FrameHeader, ServiceHandler
from container.aeron.libaeron cimport aeron_header_t
from container.aeron.library cimport lib
from container.aeron.resources cimport AeronImage, AeronPublication
from container.codecs cimport cluster as codec
from container.service.cluster cimport Cluster
from container.service.clustered_service_agent cimport ClusteredServiceAgent
from container.service.snapshot_loader cimport SnapshotImage
from container.transport.frames cimport ACTION_ABORT, ACTION_CONTINUE, FRAME_FLAGS_UNFRAGMENTED
from container.transport.streams cimport FragmentHandler, Image

cdef enum:
    FLAGS_BEFORE_PAYLOAD = 27       # a frame's flags are in its byte 5 of 32 (upstream: DataHeaderFlyweight.java)
    SLOTS = 1024                    # of sessions by id: ids are given one after the other


cdef struct Echoes:
    void* publications[SLOTS]       # borrowed of the sessions; NULL where there is none
    bint is_other                   # the frame is for the container


cdef int _on_frame(void* clientd, const uint8_t* buffer, size_t length, aeron_header_t* header) noexcept:
    cdef Echoes* echoes = <Echoes*> clientd
    cdef void* publication
    if (buffer - FLAGS_BEFORE_PAYLOAD)[0] == FRAME_FLAGS_UNFRAGMENTED and (
            (<const uint16_t*> (buffer + 2))[0] == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID):
        publication = echoes.publications[(<const int64_t*> (buffer + 16))[0] & (SLOTS - 1)]
        if publication != NULL:
            # Again by the next poll, where the client does not keep up.
            return ACTION_CONTINUE if lib.shared.offer(publication, buffer, length, NULL, NULL) > 0 else ACTION_ABORT
    echoes.is_other = True
    return ACTION_ABORT


cdef class BareImage(Image):
    """The log's image, past the container's handlers."""

    cdef AeronImage image
    cdef Echoes* echoes

    cdef int64_t position(self) noexcept:
        return self.image.position()

    cdef int64_t end_of_stream_position(self) noexcept:
        return self.image.end_of_stream_position()

    cdef bint is_end_of_stream(self) noexcept:
        return self.image.is_end_of_stream()

    cdef bint is_closed(self) noexcept:
        return self.image.is_closed()

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        cdef int fragments
        self.echoes.is_other = False
        fragments = lib.image_bounded_controlled_poll(
            self.image._image, _on_frame, self.echoes, limit_position, <size_t> fragment_limit)
        return self.image.bounded_controlled_poll(handler, limit_position, 1) if self.echoes.is_other else fragments


cdef class BareEchoHandler(ServiceHandler):
    """Puts a BareImage in place of the log's as soon as the member leads."""

    cdef ClusteredServiceAgent _agent
    cdef Echoes _echoes

    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1:
        self._agent = cluster
        return 0

    cdef int on_role_change(self, int32_t new_role) except? -1:
        cdef BareImage image = BareImage.__new__(BareImage)
        image.image = self._agent._log_adapter._image
        image.echoes = &self._echoes
        self._agent._log_adapter._image = image
        return 0

    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1:
        self._echoes.publications[session.id & (SLOTS - 1)] = (<AeronPublication> session._publication)._publication
        return 0

    cdef int on_session_close(
            self, ContainerClientSession session, int64_t timestamp, int32_t close_reason) except? -1:
        self._echoes.publications[session.id & (SLOTS - 1)] = NULL
        return 0

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        session.send_bytes(data, length)
        return 0
