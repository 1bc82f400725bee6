# The C client that an AeronClient and what it added share, and the only place where objects of C are freed.
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from container.aeron.conductor_events cimport ConductorEvents, pthread_mutex_t
from container.aeron.keepalive cimport Keepalive
from container.aeron.libaeron cimport aeron_context_t, aeron_t

# Without the GIL threads may meet anywhere. A user of a C object first counts itself and then looks at the pointer; the
# thread that frees the object first clears the pointer and then looks for users: one of the two sees the other. With
# the GIL both are plain reads and writes.
cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define CONTAINER_FREE_THREADED 1
    static inline int container_add(int* number, int delta)
    {
        return __atomic_add_fetch(number, delta, __ATOMIC_SEQ_CST);
    }
    static inline int container_claim(int* number, int expected)
    {
        return __atomic_compare_exchange_n(
            number, &expected, expected + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    static inline void* container_load(void** pointer) { return __atomic_load_n(pointer, __ATOMIC_SEQ_CST); }
    static inline void* container_take(void** pointer) { return __atomic_exchange_n(pointer, NULL, __ATOMIC_SEQ_CST); }
    #else
    #define CONTAINER_FREE_THREADED 0
    static inline int container_add(int* number, int delta) { return *number += delta; }
    static inline int container_claim(int* number, int expected) { return *number == expected ? ++*number : 0; }
    static inline void* container_load(void** pointer) { return *pointer; }
    static inline void* container_take(void** pointer) { void* taken = *pointer; *pointer = NULL; return taken; }
    #endif
    """
    const bint FREE_THREADED "CONTAINER_FREE_THREADED"
    int atomic_add "container_add" (int* number, int delta) noexcept nogil
    bint atomic_claim "container_claim" (int* number, int expected) noexcept nogil      # one more, if it is as expected
    void* load_pointer "container_load" (void** pointer) noexcept nogil
    void* take_pointer "container_take" (void** pointer) noexcept nogil     # what it was; NULL from now on


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
    cdef int _closing
    cdef Keepalive _keepalive
    cdef int _keepalive_state               # 1 while its thread runs, 2 from when it is to end
    cdef int _busy                          # calls in progress that need the client: polls, adds, the conductor
    cdef int _freeing                       # a thread goes through what is deferred
    cdef list _deferred                     # what was closed while in use: (ResourceKind, address)
    cdef object _driver                     # an embedded MediaDriver that ends with the client, or None
    cdef object _resources                  # by id, weakly: what was added and is not garbage yet
    cdef pthread_mutex_t _guard
    cdef long _parent_id                    # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__

    cdef int start(self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1
    cdef int _begin_keepalive(self, int64_t interval_ns) except -1
    cdef int register(self, object resource) except -1
    cdef bint is_closed(self) noexcept
    cdef str close_reason(self)
    cdef int check_open(self, str what) except -1
    cdef int check_process(self, str what) except -1
    cdef bint is_forked(self) noexcept
    cdef int _make_private(self) except -1
    cdef void enter(self) noexcept
    cdef int enter_open(self, str what) except -1
    cdef int leave(self) except -1
    cdef void leave_quietly(self) noexcept
    cdef void hold(self) noexcept
    cdef void release(self) noexcept
    cdef int _left(self, int remaining) except -1
    cdef void lock(self) noexcept
    cdef void unlock(self) noexcept
    cdef void lock_images(self) noexcept
    cdef void unlock_images(self) noexcept
    cdef int conduct(self) except -1
    cdef int dispose(self, int kind, void* pointer) except -1
    cdef int close(self) except -1
    cdef int end_keepalive(self) except -1
    cdef int _check(self, int result) except -1
    cdef int _configure(
        self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1
    cdef int _free_deferred(self) except -1
    cdef list _take_deferred(self)
    cdef int _free(self, int kind, void* pointer) except -1
    cdef int _shut_down(self) except -1
    cdef int _end(self) except -1


# For a call that neither raises nor calls Python, of an object whose client may be None: one that was never opened.
# With the GIL nothing can come in between. The client is borrowed: counting a reference up and at once down again
# waits for all that was written before.
cdef inline void* begin(PyObject* client, void** pointer) noexcept:
    if FREE_THREADED and client != <PyObject*> None:
        (<ClientHandle> client).enter()
    return load_pointer(pointer)


cdef inline void end(PyObject* client) noexcept:
    if FREE_THREADED and client != <PyObject*> None:
        (<ClientHandle> client).leave_quietly()
