# The C client that an AeronClient and what it added share, and the only place where objects of C are freed.
from container.aeron.events cimport ConductorEvents
from container.aeron.libaeron cimport aeron_context_t, aeron_t


cdef enum ResourceKind:
    RESOURCE_PUBLICATION
    RESOURCE_EXCLUSIVE_PUBLICATION
    RESOURCE_SUBSCRIPTION
    RESOURCE_IMAGE
    RESOURCE_COUNTER


cdef class ClientHandle:
    cdef readonly str aeron_dir
    cdef aeron_t* aeron                     # NULL once closed
    cdef aeron_context_t* _context
    cdef ConductorEvents events             # outlives `aeron`: the conductor holds a pointer to it
    cdef bint use_invoker
    cdef bint closing
    cdef int _busy                          # calls in progress that need the client: polls, adds, the conductor
    cdef int _conducting                    # turns of the conductor in progress
    cdef list _deferred                     # what was closed during such a turn: (ResourceKind, address)
    cdef object _resources                  # WeakSet of what was added and is not garbage yet
    cdef object _pid

    cdef int start(self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1
    cdef int register(self, object resource) except -1
    cdef bint is_closed(self) noexcept
    cdef int check_open(self, str what) except -1
    cdef void enter(self) noexcept
    cdef int leave(self) except -1
    cdef int conduct(self) except -1
    cdef int dispose(self, int kind, void* pointer) except -1
    cdef int close(self) except -1
    cdef int _check(self, int result) except -1
    cdef int _configure(
        self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1
    cdef int _close_resources(self) except -1
    cdef int _dispose_deferred(self) except -1
    cdef int _free(self, int kind, void* pointer) except -1
    cdef int _shut_down(self) except -1
