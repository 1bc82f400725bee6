# The seam: the client that adds streams and counters, snapshot store and mark file. Streams, counters and clocks have a
# file each.
#
# Each class here is abstract. `aeron/` implements them over a media driver, `testing/memory/memory_transport.pyx` over
# memory.
from libc.stdint cimport int32_t, int64_t

from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter, Counters
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.streams cimport Image, PendingAdd, Publication, Subscription


cdef class ClientListener:
    # Called by the thread that does the client's conducting, possibly with no GIL: set flags, nothing else.
    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil
    cdef void on_close(self) noexcept nogil


cdef class Client:
    cdef readonly Clock clock
    cdef readonly str client_name
    cdef int64_t client_id(self) noexcept
    cdef int64_t next_correlation_id(self) except? -1
    cdef int32_t next_session_id(self, int32_t stream_id) except? -1
    # These block, for at most the driver timeout, until the driver has answered.
    cdef Publication add_publication(self, str channel, int32_t stream_id)
    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id)
    cdef Subscription add_subscription(self, str channel, int32_t stream_id)
    cdef Counter add_counter(self, int32_t type_id, bytes key, str label)
    cdef Counters counters(self)
    # Whether the driver has a publication or an image of that stream and session, of any client and on any channel.
    cdef bint has_stream(self, int32_t stream_id, int32_t session_id) except -1
    cdef int add_listener(self, ClientListener listener) except -1
    cdef int remove_listener(self, ClientListener listener) except -1
    cdef bint is_invoker(self) noexcept nogil               # True: invoke() conducts, on the caller's thread
    cdef int invoke(self) except -1                         # work done; 0 when another thread conducts
    cpdef bint is_closed(self) noexcept
    cpdef int close(self) except -1                         # closes what it added; may be called twice
    # These ask the driver and return immediately.
    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive)
    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images)
    cdef PendingAdd begin_add_counter(self, int32_t type_id, bytes key, str label)


cdef class SnapshotWriter:                                  # a snapshot being recorded
    cdef readonly Publication publication
    cdef readonly int64_t recording_id
    cdef int check(self) except -1                          # raises when the store reported an error
    # Up to where the snapshot is recorded, and whether that is all that was published. Both raise if it stopped.
    cdef int64_t recorded_position(self) except? -1
    cdef bint is_complete(self) except -1
    cpdef int close(self) except -1


cdef class SnapshotReader:                                  # a snapshot being replayed
    cdef readonly Image image
    cdef readonly int64_t stop_position                     # where the recording ends, by the store
    cdef int check(self) except -1
    cpdef int close(self) except -1


cdef class SnapshotStore:
    # Both block, idling with `idle`, until the recording or the replay has begun; the store's own time limits apply.
    cdef SnapshotWriter create(self, IdleStrategy idle)
    cdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle)
    # The member's own recording of the log from position up to end_position; blocks as the others do. session_id is
    # that of the log which begins at end_position, or near it.
    cdef SnapshotReader open_log(
        self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle)


cdef class MarkFile:
    cdef int update_activity_timestamp(self, int64_t now_ms) except -1
    cdef int set_member_id(self, int32_t member_id) except -1
    cdef int signal_terminated(self) except -1
    cpdef int close(self) except -1
