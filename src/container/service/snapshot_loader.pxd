# Snapshot in: the container's frames, then over to the user's own state.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.service.event_handler cimport EventHandler
from container.transport.fragment_assembler cimport BytesAssembler, FragmentAssembler
from container.transport.clocks cimport Clock
from container.transport.frames cimport FrameHeader
from container.transport.transport_seam cimport SnapshotReader
from container.transport.streams cimport FragmentHandler


cdef class SnapshotStream(FragmentHandler):     # all frames of a replayed snapshot, or an error
    cdef SnapshotReader _reader
    cdef Clock _clock
    cdef int64_t _stalled_since_ns              # the first poll of a row that found nothing; or NULL_VALUE
    cdef FragmentAssembler _assembler           # of the poll in progress
    cdef bint _is_single                        # the poll in progress ends after one message
    cdef bint _is_polling
    cdef bint _is_peeking                       # the poll in progress takes a copy of one frame and leaves it
    cdef bytes _peeked
    cdef bint _in_message
    cdef int64_t _next_position                 # where the next frame begins
    cdef int64_t position                       # after the last whole message
    cdef bint has_ended(self) noexcept          # proven: every message was handed over, up to the stop position
    # Never wait. Raise SnapshotError where frames are missing and when no more can come before the stop position,
    # ArchiveError, and what the handler raises. 0: nothing there yet, or has_ended().
    cdef int poll(self, FragmentAssembler assembler, int fragment_limit, bint is_single) except -1
    cdef bytes peek(self)                       # the next frame, which stays unread; None as poll's 0
    cdef int _check_is_next(self, const FrameHeader* header) except -1
    cdef int _check_progress(self) except -1


cdef class SnapshotLoader(FragmentHandler):
    cdef EventHandler _handler
    cdef SnapshotStream _stream
    cdef FragmentAssembler _assembler
    cdef bint _in_snapshot
    cdef readonly bint is_done
    cdef readonly int32_t app_version
    cdef readonly int32_t time_unit
    cdef int poll(self) except -1
    cdef int _on_marker(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_session(self, const uint8_t* buffer, size_t length) except -1


cdef class SnapshotImage:                   # what on_start is given
    cdef SnapshotReader _reader
    cdef SnapshotStream _stream             # None once the callback has returned, and in a forked child
    cdef long _parent_id                    # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__
    cdef EventHandler _cluster
    cdef BytesAssembler _assembler
    cdef void _end(self) noexcept
    cdef int64_t _begin_position            # of the service's own messages
    cdef int report_unread(self, str service_name) except -1    # upstream allows to leave a part: only say so
    cdef SnapshotStream stream(self)        # raises once the callback has returned
    cdef bint has_ended(self) except -1     # every message was read
    cdef int _check_not_polling(self) except -1
    cdef int _check_between_messages(self) except -1
    # For services in Cython: hand all messages that are left, whole, to the handler, waiting for each. Raise what the
    # handler raises, SnapshotError when a part of the snapshot is missing, ArchiveError.
    cdef int read_all(self, FragmentHandler handler) except -1
    cdef int _await(self, FragmentAssembler assembler, bint is_single) except -1
