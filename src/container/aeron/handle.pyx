"""The C client that an AeronClient and what it added share, and the only place where objects of C are freed.

Nothing is freed under a call that uses it. What the conductor's error handler closes is freed when the
conductor returns, and the client itself when no call that needs it is in progress; until then it answers as
closed. A subscription that is closed while it is polled sees to that itself.
"""
import os
import warnings
import weakref

cimport cython
from libc.stdint cimport uint64_t

from container.aeron.events cimport ConductorEvents, on_close, on_error, on_unavailable_counter
from container.aeron.library cimport encoded, last_error, lib
from container.aeron.libaeron cimport (
    AERON_MAX_CLIENT_NAME_LENGTH, aeron_context_t, aeron_counter_t, aeron_image_t, aeron_subscription_t,
    aeron_t,
)

from container.errors import AeronError, ClosedError
from container.aeron.media_driver import wait_for_driver

cdef enum:
    NS_PER_MS = 1_000_000
    MAX_PATH_LENGTH = 4096
    MAX_FILE_NAME_LENGTH = 128          # of a log buffer within the driver's directory, with room to spare


# Its pointers are needed when it is deallocated, whatever cycle of garbage it is part of.
@cython.no_gc_clear
cdef class ClientHandle:
    """Owns a C client and its context, counts the calls in progress, and frees what was closed."""

    def __init__(self, str aeron_dir, bint use_invoker, error_handler):
        self.aeron_dir = aeron_dir
        self.use_invoker = use_invoker
        self.events = ConductorEvents(error_handler, use_invoker)
        self._deferred = []
        self._resources = weakref.WeakSet()
        self._pid = os.getpid()

    def __dealloc__(self):
        if self._context != NULL and self._pid == os.getpid():
            if not self.closing:
                warnings.warn(f"unclosed Aeron client of {self.aeron_dir}", ResourceWarning)
            self._shut_down()

    cdef int start(self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1:
        cdef int result
        # Waiting here can be interrupted; C's own wait for a driver cannot.
        wait_for_driver(self.aeron_dir, driver_timeout_ms * NS_PER_MS)
        self._configure(client_name, driver_timeout_ms, keepalive_interval_ms)
        with nogil:
            result = lib.init(&self.aeron, self._context)
        if result < 0:
            self.aeron = NULL
        self._check(result)
        self.events.aeron = self.aeron
        return self._check(lib.start(self.aeron))

    cdef int _configure(
            self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1:
        cdef bytes directory = encoded("aeron_dir", self.aeron_dir, MAX_PATH_LENGTH - MAX_FILE_NAME_LENGTH)
        cdef bytes name = encoded("client_name", client_name, AERON_MAX_CLIENT_NAME_LENGTH)
        cdef void* events = <void*> self.events
        self._check(lib.context_init(&self._context))
        self._check(lib.context_set_dir(self._context, directory))
        self._check(lib.context_set_client_name(self._context, name))
        self._check(lib.context_set_driver_timeout_ms(self._context, <uint64_t> driver_timeout_ms))
        self._check(lib.context_set_keepalive_interval_ns(
            self._context, <uint64_t> (keepalive_interval_ms * NS_PER_MS)))
        self._check(lib.context_set_use_conductor_agent_invoker(self._context, self.use_invoker))
        self._check(lib.context_set_error_handler(self._context, on_error, events))
        self._check(lib.context_set_on_unavailable_counter(self._context, on_unavailable_counter, events))
        return self._check(lib.context_set_on_close_client(self._context, on_close, events))

    cdef int _check(self, int result) except -1:
        if result < 0:
            raise last_error(f"cannot start an Aeron client in {self.aeron_dir}")
        return 0

    cdef int register(self, object resource) except -1:
        """What is registered is closed with the client, unless it is garbage by then."""
        self._resources.add(resource)
        return 0

    cdef bint is_closed(self) noexcept:
        return self.closing or self.aeron == NULL or lib.is_closed(self.aeron)

    cdef int check_open(self, str what) except -1:
        """Raises ClosedError once closed, and AeronError in a forked child."""
        if self.is_closed():
            raise ClosedError(f"cannot {what}: the Aeron client of {self.aeron_dir} is closed")
        if self._pid != os.getpid():
            raise AeronError(
                f"cannot {what}: the Aeron client of {self.aeron_dir} belongs to process {self._pid}, of "
                "which this one is a fork; start processes by spawn, or make a client in the child")
        return 0

    # Calls in progress

    cdef void enter(self) noexcept:
        """Until `leave`, the client stays as it is for this call, even when it is closed meanwhile."""
        self._busy += 1

    cdef int leave(self) except -1:
        self._busy -= 1
        if self._busy == 0 and self.closing:
            return self._shut_down()
        return 0

    cdef int conduct(self) except -1:
        """One turn of the conductor of a client in invoker mode: the work done. Raises what its error handler
        raised."""
        cdef ClientHandle this = self           # the error handler may drop the last other reference
        cdef int work_count
        this.enter()
        this._conducting += 1
        work_count = lib.main_do_work(this.aeron)
        this._conducting -= 1
        try:
            if work_count < 0:
                raise last_error("the conductor cannot work")
            if this._conducting == 0 and this._deferred:
                this._dispose_deferred()
            this.events.raise_pending()
        finally:
            this.leave()
        return work_count

    # Freeing

    cdef int dispose(self, int kind, void* pointer) except -1:
        """Frees an object of C, now or when the conductor's turn is over."""
        if self._conducting > 0:
            self._deferred.append((kind, <size_t> pointer))
            return 0
        return self._free(kind, pointer)

    cdef int _dispose_deferred(self) except -1:
        cdef list deferred = self._deferred
        self._deferred = []
        for kind, address in deferred:
            self._free(kind, <void*> <size_t> address)
        return 0

    cdef int _free(self, int kind, void* pointer) except -1:
        cdef int result
        # Without a client its objects are gone. In a forked child the memory is shared with the parent.
        if self.aeron == NULL or self._pid != os.getpid():
            return 0
        if kind == RESOURCE_IMAGE:
            result = lib.image_release(<aeron_image_t*> pointer)
        elif kind == RESOURCE_SUBSCRIPTION:
            result = lib.subscription_close(<aeron_subscription_t*> pointer, NULL, NULL)
        elif kind == RESOURCE_PUBLICATION:
            result = lib.shared.close(pointer, NULL, NULL)
        elif kind == RESOURCE_EXCLUSIVE_PUBLICATION:
            result = lib.exclusive.close(pointer, NULL, NULL)
        else:
            result = lib.counter_close(<aeron_counter_t*> pointer, NULL, NULL)
        if result < 0:
            raise last_error("cannot close what the client added")
        return 0

    cdef int close(self) except -1:
        self.closing = True
        self._close_resources()
        return self._shut_down() if self._busy == 0 else 0

    cdef int _close_resources(self) except -1:
        for resource in list(self._resources):
            resource.close()
        return 0

    cdef int _shut_down(self) except -1:
        cdef aeron_t* aeron
        cdef aeron_context_t* context = self._context
        cdef int result = 0
        if context == NULL or self._pid != os.getpid():
            return 0
        if self.events.is_reporting():
            # From the error handler on the conductor's own thread, which cannot wait for its own end: a later
            # call of close() does.
            return 0
        # Again: an add that was in progress may have succeeded after all.
        self._close_resources()
        aeron = self.aeron
        self.aeron = NULL
        self._context = NULL
        if aeron != NULL:
            # Without the GIL: the conductor's thread may want it to report an error, and this waits for the
            # thread.
            with nogil:
                result = lib.close(aeron)
        if result < 0:
            # The conductor may still use the context, which therefore stays.
            raise last_error(f"cannot close the Aeron client of {self.aeron_dir}")
        with nogil:
            lib.context_close(context)
        return self.events.raise_pending()
