# The seam's client over a media driver.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.aeron.handle cimport ClientHandle
from container.aeron.libaeron cimport AsyncAddFunctions, PublicationFunctions, aeron_async_t
from container.aeron.media_driver cimport MediaDriver
from container.aeron.resources cimport AeronCounters, AeronPublication
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd


cdef struct AddRequest:                         # what the driver is asked to add; borrowed for the call
    const AsyncAddFunctions* adding
    const PublicationFunctions* publication     # NULL unless it is one
    const char* channel
    int32_t stream_id
    bint queues_images                          # of a subscription
    int32_t type_id                             # of a counter, as the rest
    const uint8_t* key
    size_t key_length
    const char* label                           # NULL unless it is one
    size_t label_length


cdef class AeronClient(Client):
    cdef readonly str aeron_dir
    cdef readonly int64_t driver_timeout_ms
    cdef ClientHandle _handle
    cdef AeronCounters _counters
    cdef int64_t _client_id
    cdef object __weakref__

    cdef int _open(self, aeron_dir, str client_name, bint use_invoker, int64_t driver_timeout_ms,
                   int64_t keepalive_interval_ms, error_handler, library, driver) except -1
    cdef AeronPublication _add_publication(
        self, AeronPublication publication, const PublicationFunctions* functions, str channel,
        int32_t stream_id, str what)
    cdef AeronPendingAdd _pending_add(self, object resource, const AsyncAddFunctions* adding, str what)
    cdef AeronPendingAdd _begin_add(
        self, object resource, const AsyncAddFunctions* adding, const PublicationFunctions* functions, str channel,
        int32_t stream_id, bint queues_images, str what)
    cdef bytes _check_counter(self, bytes key, str label, str what)
    cdef void* _add(self, const AddRequest* request, str what) except NULL
    cdef aeron_async_t* _request(self, const AddRequest* request, str what) except NULL
    cdef int _await(self, aeron_async_t* request, const AsyncAddFunctions* adding, void** resource, str what,
                    int64_t deadline_ns) except -1
    cdef int _pause(self, str what, int64_t deadline_ns, MediaDriver driver) except -1
    cdef object _refusal(self, str what)
    cdef int64_t _deadline_ns(self) noexcept


cdef class AeronPendingAdd(PendingAdd):
    cdef AeronClient _client
    cdef object _resource                       # the AeronPublication, AeronSubscription or AeronCounter to be, or None
    cdef AddRequest _request
    cdef bytes _text                            # channel or label, to which the request refers
    cdef bytes _key                             # of a counter, as well
    cdef str _what
    cdef aeron_async_t* _async                  # NULL while the driver has to be asked again
    cdef int64_t _deadline_ns
    cdef int64_t _retry_ns
    cdef object __weakref__

    cdef int begin(self) except -1
    cdef int _ask(self) except -1
    cdef bint _poll(self, object resource) except -1
    cdef int _cancel(self) noexcept
