# An embedded media driver, with threads or in invoker mode.
from container.aeron.conductor_events cimport pthread_mutex_t
from container.aeron.keepalive cimport Keepalive
from container.aeron.libaeron cimport aeron_driver_context_t, aeron_driver_t


cdef class MediaDriver:
    cdef aeron_driver_context_t* _context
    cdef aeron_driver_t* _driver
    cdef object __weakref__
    cdef readonly str aeron_dir
    cdef str _parent                            # the directory of its own that `aeron_dir` is in, or None
    cdef int _lock                              # of that
    cdef pthread_mutex_t _guard                 # around each turn in invoker mode
    cdef Keepalive _keepalive                   # in that mode
    cdef bint _is_kept_alive

    cpdef int invoke(self) except? -1
    cdef int _check(self, int result, str what) except -1
    cdef int _configure(self, bint delete_on_start, bint delete_on_shutdown) except -1
    cdef int _receive_several(self) except -1
    cdef int _configure_threads(self, str threading) except -1
    cdef int _configure_lengths(self, bint is_sparse, length, ipc_length, counters_length) except -1
    cdef int _configure_packets(self, mtu_length, ipc_mtu_length, receiver_capacity, max_messages) except -1
    cdef int _configure_times(
        self, client_liveness_ns, image_liveness_ns, publication_linger_ns, timer_interval_ns) except -1
    cdef int _start(self, bint is_invoked) except -1
    cdef int _stop(self) except -1
    cdef int _unlock(self) except -1


# The driver of this process in that directory which is in invoker mode; None without one.
cdef MediaDriver driver_to_invoke(str aeron_dir)
