# The recordings of an archive: what is subscribed to, what is about to begin, and what is being recorded.
from libc.stdint cimport int32_t, int64_t

from container.archive.server.archive_counters cimport ArchiveCounters
from container.archive.server.recording_events cimport RecordingEvents
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.sessions.recording_subscription cimport RecordingSubscription
from container.archive.server.store.segment_writer cimport SegmentWriter
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image, PendingAdd


cdef void add(Counter counter, int64_t value) noexcept


cdef class PendingRecording:                        # in the catalog, and waiting for its counter
    cdef RecordingSubscription subscription
    cdef Image image
    cdef SegmentWriter writer
    cdef PendingAdd counter
    cdef bint is_aborted                            # stopped before it began


cdef class Recorder:
    cdef readonly dict by_key                       # the subscriptions that no other may resemble
    cdef dict _by_subscription_id                   # of these, those that the driver has added
    cdef Client _client
    cdef Clock _clock
    cdef object _store
    cdef object _on_error
    cdef ArchiveCounters _counters
    cdef RecordingEvents _events                    # None: none are published
    cdef int64_t _archive_id
    cdef int64_t _block_length_limit
    cdef int _max_concurrent_recordings
    cdef list _subscriptions                        # all that are open
    cdef list _pending                              # of PendingRecording
    cdef list _sessions                             # of RecordingSession
    cdef bint _has_ended_subscription               # one at least may have to be closed

    cdef int do_work(self) except -1
    cdef RecordingSession session_of(self, int64_t recording_id)
    cpdef RecordingSubscription start(
        self, ControlSession control_session, int64_t correlation_id, int32_t stream_id, bint is_local,
        bint is_auto_stop, str channel)
    cpdef RecordingSubscription extend(
        self, ControlSession control_session, int64_t correlation_id, int64_t recording_id, int32_t stream_id,
        bint is_local, bint is_auto_stop, str channel)
    cpdef int stop(self, RecordingSubscription subscription) except -1
    cpdef int stop_by_channel(self, int32_t stream_id, str channel) except -1
    cpdef RecordingSubscription subscription_of(self, int64_t subscription_id)
    cpdef int stop_by_subscription_id(self, int64_t subscription_id) except -1
    cpdef bint stop_by_recording_id(self, int64_t recording_id) except -1
    cpdef int close(self) except -1
    cdef RecordingSubscription _subscribe(
        self, ControlSession control_session, int64_t correlation_id, int32_t stream_id, bint is_local,
        bint is_auto_stop, str channel, int64_t extended_recording_id)
    cdef int _check_count(self) except -1
    cdef int _poll_subscription(self, RecordingSubscription subscription) except -1
    cdef int _begin(self, RecordingSubscription subscription, Image image) except -1
    cdef SegmentWriter _writer_of(self, RecordingSubscription subscription, Image image)
    cdef bint _begin_session(self, PendingRecording pending) except -1
    cdef int _begin_recording(self, PendingRecording pending, Counter counter) except -1
    cdef int _give_up(self, PendingRecording pending, object error) except -1
    cdef int _end_released(self, RecordingSubscription subscription) except -1
    cdef int _record(self) except -1
    cdef int _end_sessions(self) except -1
    cdef int _end_session(self, RecordingSession session) except -1
    cdef int _refuse(self, RecordingSubscription subscription, object error) except -1
    cdef int _stop(self, RecordingSubscription subscription, object error) except -1
    cdef bint _release_key(self, RecordingSubscription subscription) except -1
    cdef int _forget(self, RecordingSubscription subscription, object error) except -1
    cdef int _stop_writer(self, SegmentWriter writer) except -1
    cdef int _close_unused(self, bint is_last=*) except -1
