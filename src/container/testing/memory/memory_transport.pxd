# The seam over memory: a driver, its clients and what they add. No C library, no threads, no chance.
from libc.stdint cimport int32_t, int64_t

from container.testing.memory.memory_log cimport MemoryImage, MemoryLog
from container.testing.memory.memory_stream cimport MemoryStream
from container.transport.memory_counters cimport CounterBuffers, MemoryCounters
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication, Subscription


cdef class MemoryPublication(Publication):
    cdef readonly MemoryLog log
    cdef MemoryClient _client
    cdef MemoryStream _stream
    cdef bint _closed
    cdef int _on_append(self) except -1
    cdef int _check_exclusive(self, str method) except -1
    cpdef int add_destination(self, str channel) except -1
    cpdef int remove_destination(self, str channel) except -1


cdef class MemorySubscription(Subscription):
    cdef MemoryClient _client
    cdef object _channel                                    # MemoryChannel
    cdef tuple _images                                      # replaced, never changed: a poll may close images
    cdef list _new_images                                   # not taken yet; None where nobody takes them
    cdef int _round_robin_index
    cdef bint _closed
    cdef object endpoint                                    # where its driver's network receives for it
    cpdef int add_destination(self, str channel) except -1
    cpdef int remove_destination(self, str channel) except -1


cdef class MemoryCounter(Counter):
    cdef MemoryClient _client


cdef class MemoryPendingAdd(PendingAdd):
    cdef MemoryClient _client                               # None once it is over
    cdef str _kind
    cdef str _channel                                       # or a counter's label
    cdef int32_t _stream_id                                 # or a counter's type
    cdef bint _queues_images
    cdef bytes _key                                         # of a counter
    cdef object _owner                                      # of a destination
    cdef bint _is_removal
    cdef int64_t _due                                       # the client's invoke count when the driver answers


cdef class MemoryClient(Client):
    cdef readonly MemoryDriver driver
    cdef readonly int64_t invoke_count
    cdef int64_t _client_id
    cdef bint _is_invoker
    cdef bint _is_severed
    cdef bint _is_expired
    cdef bint _closed
    cdef int _image_delay
    cdef int32_t _heartbeat_counter_id
    cdef MemoryCounters _counters
    cdef dict _resources                                    # registration id -> what is not closed
    cdef list _listeners
    cdef list _unavailable_counters                         # (registration id, counter id) not yet reported
    cdef list _pending_images                               # (invoke count when due, subscription, image)
    cdef MemoryPublication _add_publication(
        self, str kind, str channel, int32_t stream_id, bint is_exclusive, MemoryLog log)
    cdef MemoryNetwork _network(self)
    cdef int _require_open(self) except -1
    cdef int _begin_add(self, str kind) except -1
    cdef int _end_add(self, str kind) except -1
    cdef MemoryPendingAdd _pending_add(self, str kind, str channel, int32_t stream_id)
    cdef MemoryPendingAdd _pending_destination(self, object owner, bint is_closed, str channel, bint is_removal)
    cdef object _add_pending(self, MemoryPendingAdd pending)
    cdef MemorySubscription _add_subscription(self, str channel, int32_t stream_id, bint queues_images)
    cdef MemoryCounter _add_counter(self, int32_t type_id, bytes key, str label)
    cdef int _add_image(self, MemorySubscription subscription, MemoryImage image) except -1
    cdef int _show_image(self, MemorySubscription subscription, MemoryImage image) except -1
    cdef int _remove_image(self, MemorySubscription subscription, MemoryImage image) except -1
    cdef int _on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) except -1
    cdef int _conduct(self) except -1
    cdef int _force_close(self) except -1
    cdef int _invoke(self) except -1
    cdef int _terminate(self) except -1


cdef class MemoryNetwork:                                   # carries UDP streams between drivers; one for each driver
    cdef object bind(self, object channel)                  # the channel with a port that is free
    cdef int add_stream(self, MemoryStream stream) except -1
    cdef int remove_stream(self, MemoryStream stream) except -1
    cdef int add_subscription(self, MemorySubscription subscription) except -1
    cdef int remove_subscription(self, MemorySubscription subscription) except -1
    # For a MemoryStream or a MemorySubscription.
    cdef int add_destination(self, object owner, object channel) except -1
    cdef int remove_destination(self, object owner, object channel) except -1
    cdef str resolved_endpoint(self, MemorySubscription subscription)


cdef class MemoryDriver:
    cdef readonly Clock clock
    cdef MemoryNetwork network                              # None: the driver is the world
    cdef readonly int32_t term_length
    cdef readonly int32_t mtu_length
    cdef readonly int32_t initial_term_id
    cdef readonly int64_t publication_window
    cdef readonly MemoryCounters counters
    cdef readonly bint is_alive
    cdef CounterBuffers _counter_buffers
    cdef int64_t _next_id
    cdef int32_t _next_session_id
    cdef int32_t _next_port
    cdef list _clients
    cdef list _streams
    cdef list _subscriptions
    cdef list _scripts                                      # (MemoryChannel, stream id, results)
    cdef dict _failures                                     # kind -> exceptions of the next adds
    cdef list _invoke_failures                              # exceptions of the next invokes
    cdef dict _delays                                       # kind -> invokes of the next adds
    cdef list _tasks
    cdef int64_t take_id(self) noexcept
    cdef int32_t take_session_id(self) noexcept
    cdef list _of_kind(self, dict scripts, str kind)
    cdef int _delay_of(self, str kind) except -1
    cdef list _script(self, object channel, int32_t stream_id)
    cdef object _bind(self, object channel)
    cdef MemoryStream _open_stream(self, object channel, int32_t stream_id, bint is_exclusive, MemoryLog log)
    cdef MemoryStream _shared_stream(self, object channel, int32_t stream_id)
    cdef MemoryLog _new_log(self, object channel, int32_t stream_id)
    cdef int _add_subscription(self, MemorySubscription subscription) except -1
    cdef int _link(self, MemoryStream stream, MemorySubscription subscription) except -1
    cdef int _release_subscription(self, MemorySubscription subscription) except -1
    cdef int _release_stream(self, MemoryStream stream) except -1
    cdef int _end_stream(self, MemoryStream stream) except -1
    cdef int _reject_stream(self, MemoryStream stream) except -1
    cdef int _admit_subscribers(self, MemoryStream stream) except -1
    cdef int _forget_stream(self, MemoryStream stream) except -1
    cdef int _release_counter(self, int64_t registration_id, int32_t counter_id) except -1
    cdef int _remove_client(self, MemoryClient client) except -1
