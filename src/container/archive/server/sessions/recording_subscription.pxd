# The subscription of a recording request, from the driver's answer to the end of its recordings.
from libc.stdint cimport int32_t, int64_t

from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image, PendingAdd, Subscription


cdef class RecordingSubscription:
    cdef readonly str key                       # no other subscription may have it
    cdef readonly int32_t stream_id
    cdef readonly str stripped_channel          # these two go into the catalog
    cdef readonly str original_channel
    cdef readonly bint is_auto_stop             # ends with its first recording
    cdef readonly int64_t extended_recording_id  # the recording that is extended; NULL_VALUE: each image begins one
    cdef readonly ControlSession control_session  # of the request; signals and errors go there
    cdef readonly int64_t correlation_id        # of the request, or the id of the replication
    cdef readonly Subscription subscription     # None until the driver has added it, and once this has ended
    cdef readonly int64_t subscription_id       # its registration id; NULL_VALUE until the driver has added it
    cdef readonly RecordingSession recording    # of the latest image, None before the first
    cdef readonly object error                  # ArchiveError: why nothing is recorded, None if that is not so
    cdef readonly bint is_ended                 # nothing is recorded on it any more
    cdef bint is_released                       # it ends with the last recording that is active now
    cdef readonly int recording_count           # recordings that are active or about to begin
    cdef PendingAdd _pending

    cdef bint poll(self) except -1
    cdef bint is_awaited(self) noexcept
    cdef Image take_new_image(self)
    cdef int begin_recording(self) noexcept
    cdef int end_recording(self) noexcept
    cdef int set_recording(self, RecordingSession recording) noexcept
    cdef int end(self, object error=*) except -1
    cpdef int close(self) except -1
