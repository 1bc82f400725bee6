# Reports of the C client's conductor: errors, new images, counters that are gone, and its end.
from libc.stdint cimport int32_t, int64_t
from cpython.ref cimport PyObject

from container.aeron.libaeron cimport (
    aeron_counters_reader_t, aeron_image_constants_t, aeron_image_t, aeron_subscription_t, aeron_t,
)
from container.transport.transport_seam cimport ClientListener

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept
    int pthread_mutex_destroy(pthread_mutex_t* mutex) noexcept

# Not a plain lock: whoever holds it may need the GIL, or have to stop for the garbage collector.
cdef void lock_mutex(pthread_mutex_t* mutex) noexcept


cdef struct WaitingError:                   # one that waits until the client is invoked
    WaitingError* next
    int code
    char message[1]                         # in fact as long as it is


cdef struct NewImage:                       # one that waits until its subscription is asked for it
    NewImage* next
    int64_t subscription_id
    aeron_image_constants_t constants       # except its two pointers
    char source_identity[1]                 # in fact as long as it is


cdef class ConductorEvents:
    cdef object error_handler               # called with the exception; None logs it
    cdef bint is_invoker                    # errors wait in `_first_error` until the client is invoked
    cdef WaitingError* _first_error         # guarded by the client's lock, as the two below
    cdef WaitingError* _last_error
    cdef int _error_count
    cdef WaitingError* _end_error           # with which the conductor ended the client; NULL if it did not
    cdef NewImage* _first_image             # guarded by the mutex, as the one below
    cdef NewImage* _last_image
    cdef aeron_t* aeron                     # to ask whether it is closed; NULL until it is there
    cdef long parent_id                     # of the process of which this one is a fork; 0 where it was made
    cdef unsigned long _reporting_thread    # that is in the error handler; 0 for none
    cdef list _listeners                    # keeps them alive
    cdef PyObject** _pointers               # the same, for the conductor; guarded by the mutex
    cdef int _count
    cdef bint _is_close_told
    cdef pthread_mutex_t _mutex
    cdef pthread_mutex_t _changing          # one thread at a time

    cdef int add(self, ClientListener listener) except -1
    cdef int remove(self, ClientListener listener) except -1
    cdef int _change(self, ClientListener listener, bint is_added) except -1
    cdef void tell_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil
    cdef void tell_close(self) noexcept nogil
    cdef void keep_image(self, aeron_subscription_t* subscription, aeron_image_t* image) noexcept nogil
    cdef NewImage* take_image(self, int64_t subscription_id) noexcept       # for the caller to free; NULL: none
    cdef void forget_images(self, int64_t subscription_id) noexcept         # of a subscription that is closed
    cdef NewImage* _unlinked(self, int64_t subscription_id) noexcept nogil
    cdef void keep_error(self, int code, const char* message) noexcept nogil
    cdef void keep_end(self, int code, const char* message) noexcept nogil
    cdef str end_text(self)                 # None if no error has ended the client
    cdef WaitingError* take_errors(self) noexcept nogil
    cdef int deliver(self, WaitingError* errors) except -1
    cdef int report(self, int code, const char* message) except -1
    cdef bint is_reporting(self) noexcept   # the calling thread is in the error handler


# Handlers for the C context; each is given a ConductorEvents as its clientd.
cdef void on_error(void* clientd, int code, const char* message) noexcept nogil
cdef void on_available_image(void* clientd, aeron_subscription_t* subscription, aeron_image_t* image) noexcept nogil
cdef void on_unavailable_counter(
    void* clientd, aeron_counters_reader_t* reader, int64_t registration_id,
    int32_t counter_id) noexcept nogil
cdef void on_close(void* clientd) noexcept nogil
