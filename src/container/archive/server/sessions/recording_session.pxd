# An active recording: what an image receives goes to segment files, and a counter says how far.
from libc.stdint cimport int64_t, uint8_t

from container.archive.server.store.segment_writer cimport SegmentWriter
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter
from container.transport.streams cimport BlockHandler, Image


cdef class RecordingSession(BlockHandler):
    cdef readonly int64_t recording_id
    cdef readonly int64_t subscription_id   # registration id of the subscription that the image is of
    cdef readonly int64_t correlation_id    # of the request for the recording
    cdef readonly bint is_auto_stop         # the subscription ends with the recording
    cdef readonly object owner              # whoever asked for it; not looked at here
    cdef readonly Image image
    cdef readonly Counter counter           # of the recorded position
    cdef readonly SegmentWriter writer
    cdef readonly object error              # ArchiveError that ended it, for a reply; None without one
    cdef readonly int64_t written_bytes     # padding counts as its header
    cdef readonly int64_t write_time_ns     # of all writes and of the longest; 0 without a clock
    cdef readonly int64_t longest_write_ns
    cdef int64_t announced_position         # up to where the events' subscribers know of it
    cdef Clock _clock
    cdef int _block_length_limit
    cdef int _state

    cpdef int do_work(self) except -1       # bytes recorded, or 1 for another step
    cpdef int abort(self) except -1
    cdef bint has_ended(self) noexcept      # the writer's position is final
    cdef int _record(self) except -1
    cdef int _write(self, const uint8_t* block, size_t length) except -1
    cdef int _fail(self, object error) except -1
