# Resources of an AeronClient: the seam's publications, subscriptions, images and counters over C objects.
from libc.stdint cimport int32_t, int64_t

from container.aeron.conductor_events cimport NewImage
from container.aeron.handle cimport ClientHandle
from container.aeron.libaeron cimport (
    DestinationFunctions, PublicationFunctions, aeron_async_t, aeron_counter_t, aeron_counters_reader_buffers_t,
    aeron_image_t, aeron_subscription_t,
)
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport Claim
from container.transport.streams cimport FragmentHandler, Image, PendingAdd, Publication, Subscription


cdef class AeronPublication(Publication):       # a shared one
    cdef ClientHandle _client
    cdef void* _publication                     # NULL once closed
    cdef const PublicationFunctions* _functions
    cdef object __weakref__
    cdef int open(
        self, ClientHandle client, const PublicationFunctions* functions, void* publication) except -1
    cdef int _kind(self) noexcept
    cdef int64_t _closed(self) except? -6
    cdef int64_t _refused(self, size_t length, size_t max_length, str limit, str fix) except? -6
    cdef int _finish(self, Claim* claim, bint is_committed, str what) except -1
    cdef AeronPendingDestination _begin_destination(self, str channel, bint is_added)


cdef class AeronExclusivePublication(AeronPublication):
    cdef int64_t _append_long_padding(self, void* publication, int64_t position, int64_t frame_length) noexcept


cdef class AeronSubscription(Subscription):
    cdef ClientHandle _client
    cdef aeron_subscription_t* _subscription    # NULL once closed
    cdef object _images                         # WeakValueDictionary: address -> AeronImage
    cdef int _round_robin_index
    cdef int _polls                             # in progress, of it and of its images
    cdef list _deferred                         # what was closed meanwhile: (ResourceKind, address)
    cdef object __weakref__
    cdef int open(self, ClientHandle client, aeron_subscription_t* subscription) except -1
    cdef aeron_subscription_t* _begin_open(self) noexcept
    cdef AeronImage _find_image(self, bint is_index, int32_t wanted)
    cdef AeronImage _image(self, aeron_image_t* retained)
    cdef AeronImage _gone_image(self, const NewImage* described)
    cdef AeronPendingDestination _begin_destination(self, str channel, bint is_added)
    cdef int _check_process(self) except -1
    cdef int _next_index(self, int count) noexcept
    cdef void begin_poll(self) noexcept
    cdef int end_poll(self) except -1
    cdef int dispose(self, int kind, void* pointer) except -1
    cdef int _dispose_deferred(self) except -1


cdef class AeronImage(Image):
    cdef ClientHandle _client
    cdef AeronSubscription _subscription        # keeps the subscription open
    cdef aeron_image_t* _image                  # retained; NULL once the subscription is closed
    cdef int64_t _final_position                # what it was when the subscription was closed
    cdef int64_t _final_end_of_stream_position
    cdef bint _final_is_end_of_stream
    cdef object __weakref__
    cdef int _poll(self, FragmentHandler handler, bint is_bounded, int64_t limit_position,
                   int fragment_limit) except -1
    cdef int _detach(self) except -1


cdef class AeronPendingDestination(PendingAdd):
    cdef ClientHandle _client
    cdef object _owner                          # the subscription or publication; None once it is over
    cdef const DestinationFunctions* _functions
    cdef aeron_async_t* _async                  # NULL once it is answered
    cdef str _what
    cdef object __weakref__
    cdef int ask(self, ClientHandle client, void** owner, const DestinationFunctions* functions, str channel,
                 bint is_added) except -1
    cdef bint _is_answered(self) except -1
    cdef int _give_up(self) noexcept


cdef class AeronCounters(Counters):
    cdef void* _mapping                         # NULL with the GIL
    cdef size_t _mapping_length
    cdef object __weakref__
    cdef int open(self, ClientHandle client) except -1
    cdef int _map(self, str aeron_dir, aeron_counters_reader_buffers_t* buffers) except -1
    cdef int64_t* address(self, int32_t counter_id) noexcept
    cdef void close(self) noexcept


cdef class AeronCounter(Counter):
    cdef ClientHandle _client
    cdef AeronCounters _counters                # keeps the value's memory
    cdef aeron_counter_t* _counter              # NULL once closed
    cdef object __weakref__
    cdef int open(self, ClientHandle client, AeronCounters counters, aeron_counter_t* counter) except -1
