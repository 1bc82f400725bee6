# A replay: frames of a recording go into a publication, batch by batch.
from libc.stdint cimport int32_t, int64_t

from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.store.segment_reader cimport SegmentReader
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counters
from container.transport.streams cimport Publication


cdef class ReplaySession:
    cdef readonly int64_t replay_session_id
    cdef readonly int64_t correlation_id    # of the request for the replay
    cdef readonly int64_t recording_id
    cdef readonly object owner              # whoever asked for it; not looked at here
    cdef readonly Publication publication
    cdef readonly object error              # ArchiveError that ended it, for a reply; None without one
    cdef readonly int64_t read_bytes        # padding counts as its header
    cdef readonly int64_t read_time_ns      # of all reads and of the longest
    cdef readonly int64_t longest_read_ns
    cdef SegmentReader _reader
    cdef RecordingSession _recording        # while the recording is active; else None
    cdef Counters _counters                 # while there is a counter that bounds the replay; else None
    cdef int32_t _counter_id
    cdef int64_t _counter_registration_id
    cdef Clock _clock
    cdef int64_t _connect_deadline_ns
    cdef int64_t _limit                     # the replay ends with the frame that reaches it
    cdef int64_t _recorded                  # how far the recording is written
    cdef int64_t _bound                     # what the counter said last; no frame that ends behind it is sent
    cdef bint _is_bound_final               # that counter is gone
    cdef size_t _read_length
    cdef int64_t _batch_begin               # in the reader's data: frames that are read and not sent
    cdef int64_t _batch_end
    cdef bint _is_response_due
    cdef int _state

    cpdef int do_work(self) except -1       # bytes sent, or 1 for another step
    cpdef int abort(self) except -1
    cpdef bint take_response(self) except -1
    cdef int _init(self) except -1
    cdef bint _open_segment(self) except -1
    cdef int _check_position(self) except -1
    cdef int _connect(self) except -1
    cdef int _replay(self) except -1
    cdef int64_t _first_frame_end(self) noexcept
    cdef int64_t _follow(self) noexcept     # frames that end here or before may be sent
    cdef int _follow_counter(self) noexcept
    cdef int _read(self, int64_t end) except -1
    cdef int _send(self, int64_t end) except -1
    cdef int _advance(self, int64_t result, int64_t length) except -1
    cdef int _finish(self, bint is_revoked) except -1
    cdef int _fail(self, object error) except -1
    cdef int _note(self, object error) except -1
