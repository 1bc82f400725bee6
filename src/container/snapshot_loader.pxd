# Snapshot in: the container's frames, then over to the user's own state.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.cluster cimport Cluster
from container.event_handler cimport EventHandler
from container.fragment_assembler cimport BytesAssembler, FragmentAssembler
from container.transport cimport FragmentHandler, FrameHeader, Image, SnapshotReader


cdef class SnapshotLoader(FragmentHandler):
    cdef EventHandler _handler
    cdef Image _image
    cdef FragmentAssembler _assembler
    cdef bint _in_snapshot
    cdef readonly bint is_done
    cdef readonly int32_t app_version
    cdef readonly int32_t time_unit
    cdef int poll(self) except -1
    cdef int _on_marker(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_session(self, const uint8_t* buffer, size_t length) except -1


cdef class SnapshotImage:                   # what on_start is given
    cdef SnapshotReader _reader             # None once the callback has returned, and in a forked child
    cdef long _parent_id                    # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__
    cdef Cluster _cluster
    cdef BytesAssembler _assembler
    cdef void _end(self) noexcept
    cdef Image image(self)                  # raises once the callback has returned
    cdef bint has_ended(self) except -1     # every message was read
    # For services in Cython: hands all messages that are left, whole, to the handler, waiting for each. Raises what the
    # handler raises, SnapshotError when the replay ended early, ArchiveError.
    cdef int read_all(self, FragmentHandler handler) except -1
    cdef int _poll(self, FragmentAssembler assembler, int fragment_limit) except -1
    cdef int _await(self, FragmentAssembler assembler) except -1
