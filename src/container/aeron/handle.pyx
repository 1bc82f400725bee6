"""The C client that an AeronClient and what it added share, and the only place where objects of C are freed.

Nothing is freed under a call that uses it: the client itself goes when no call that needs it is in progress; until
then it answers as closed. A subscription that is closed while it is polled sees to that itself.

A lock keeps the calls apart that C allows to one thread at a time: the turns of the conductor, which `keepalive` takes
when nobody else does, and requests to the driver, which C carries out on the caller's thread in invoker mode. No Python
runs while it is held.

Without the GIL any thread may close while others call. Then every call is one in progress, and what is closed
is freed at a moment without any; the lock is also held to look for images.
"""
import os
import warnings
import weakref

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap
from posix.unistd cimport _SC_PAGESIZE, sysconf

from container.aeron.conductor_events cimport (
    ConductorEvents, WaitingError, lock_mutex, on_close, on_error, on_unavailable_counter, pthread_mutex_destroy,
    pthread_mutex_t, pthread_mutex_unlock,
)
from container.aeron.keepalive cimport Turn, begin_wait, end_wait, start_keepalive, stop_keepalive
from container.aeron.libaeron cimport (
    AERON_MAX_CLIENT_NAME_LENGTH, aeron_context_t, aeron_counter_t, aeron_counters_reader_buffers_t, aeron_image_t,
    aeron_subscription_constants_t, aeron_subscription_t, aeron_t,
)
from container.aeron.library cimport encoded, last_error, lib

from container.aeron.media_driver import wait_for_driver
from container.common import forks
from container.common.process_end import Stage, close_at_end
from container.common.sealed cimport seal
from container.errors import AeronError, ClosedError

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutexattr_t:
        pass
    int PTHREAD_MUTEX_RECURSIVE
    int pthread_mutexattr_init(pthread_mutexattr_t* attributes) noexcept
    int pthread_mutexattr_settype(pthread_mutexattr_t* attributes, int kind) noexcept
    int pthread_mutexattr_destroy(pthread_mutexattr_t* attributes) noexcept
    int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes) noexcept
    int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept

# How many of the calls in progress are this thread's own: what its handlers close can be freed immediately.
cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    static _Thread_local struct { void* client; int depth; } container_calls[16];
    static int container_own_calls(void* client, int delta)
    {
        int index, unused = -1;
        for (index = 0; index < 16; index++)
        {
            if (container_calls[index].depth == 0)
            {
                unused = unused < 0 ? index : unused;
            }
            else if (container_calls[index].client == client)
            {
                return container_calls[index].depth += delta;
            }
        }
        if (delta <= 0 || unused < 0)       /* without room it counts as another thread's */
        {
            return 0;
        }
        container_calls[unused].client = client;
        return container_calls[unused].depth = delta;
    }
    #else
    #define container_own_calls(client, delta) 0
    #endif
    """
    int own_calls "container_own_calls" (void* client, int delta) noexcept nogil

cdef extern from "sched.h" nogil:
    int sched_yield() noexcept

cdef enum:
    NS_PER_MS = 1_000_000
    MIN_KEEPALIVE_NS = 10_000_000       # shorter than any liveness timeout
    MAX_PATH_LENGTH = 4096
    MAX_FILE_NAME_LENGTH = 128          # of a log buffer within the driver's directory, with room to spare
    MAX_TURNS = 100                     # of the conductor at a time, so that a flood of events ends


# Its pointers are needed when it is deallocated, whatever cycle of garbage it is part of.
@cython.no_gc_clear
cdef class ClientHandle:
    """Owns a C client and its context, counts the calls in progress, and frees what was closed."""

    def __cinit__(self, *arguments):
        cdef pthread_mutexattr_t attributes
        pthread_mutexattr_init(&attributes)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE)
        pthread_mutex_init(&self._guard, &attributes)
        pthread_mutexattr_destroy(&attributes)

    def __init__(self, str aeron_dir, bint use_invoker, error_handler, driver=None):
        self.aeron_dir = aeron_dir
        self._driver = driver
        self.use_invoker = use_invoker
        self.events = ConductorEvents(error_handler, use_invoker)
        self._deferred = []
        self._resources = weakref.WeakValueDictionary()

    def __dealloc__(self):
        if self._context != NULL:
            if not self._closing:
                self._closing = True
                warnings.warn(f"unclosed Aeron client of {self.aeron_dir}", ResourceWarning)
            # All of them are garbage as well, and the collector may have emptied what knows them.
            self._resources = weakref.WeakValueDictionary()
            self._shut_down()
        pthread_mutex_destroy(&self._guard)

    cdef int start(self, str client_name, object driver_timeout_ms, object keepalive_interval_ms) except -1:
        cdef int result
        # Waiting here can be interrupted; C's own wait for a driver cannot.
        wait_for_driver(self.aeron_dir, driver_timeout_ms * NS_PER_MS)
        self._configure(client_name, driver_timeout_ms, keepalive_interval_ms)
        forks.own(self)
        with nogil:
            result = lib.init(&self.aeron, self._context)
        if result < 0:
            self.aeron = NULL
        self._check(result)
        self.events.aeron = self.aeron
        self._check(lib.start(self.aeron))
        return self._begin_keepalive(keepalive_interval_ms * NS_PER_MS // 2) if self.use_invoker else 0

    cdef int _begin_keepalive(self, int64_t interval_ns) except -1:
        cdef int64_t interval = max(interval_ns, <int64_t> MIN_KEEPALIVE_NS)
        cdef int result = start_keepalive(
            &self._keepalive, <Turn> lib.main_do_work, self.aeron, &self._guard, interval, interval)
        if result != 0:
            raise AeronError(
                f"cannot start an Aeron client in {self.aeron_dir}: no thread to keep it alive: {os.strerror(result)}",
                code=result)
        self._keepalive_state = 1
        close_at_end(self, Stage.KEEPALIVE, _end_keepalive)
        return 0

    cdef int end_keepalive(self) except -1:
        """Wait for the end of the thread, if one runs, or leave that to a call in progress that does so."""
        if atomic_claim(&self._keepalive_state, 1):
            with nogil:
                stop_keepalive(&self._keepalive)
        return 0

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
        """Close ``resource`` with the client, unless it has been garbage-collected by then."""
        self._resources[id(resource)] = resource
        return 0

    cdef bint is_closed(self) noexcept:
        cdef void* aeron = begin(<PyObject*> self, <void**> &self.aeron)
        cdef bint result = self._closing or aeron == NULL or lib.is_closed(<aeron_t*> aeron)
        end(<PyObject*> self)
        return result

    cdef str close_reason(self):
        """Why it is closed, in C's words if an error of the conductor ended it; None while it is open."""
        cdef str text
        if not self.is_closed():
            return None
        if self._parent_id != 0:
            return f"it belongs to process {self._parent_id}, of which this one is a fork"
        # A turn of the conductor that has just closed the client has said why when it is over.
        self.lock()
        self.unlock()
        text = self.events.end_text()
        return "closed by its owner" if text is None else text

    cdef int check_open(self, str what) except -1:
        """Raise ClosedError once closed, and ForkedError in a forked child."""
        self.check_process(what)
        if self.is_closed():
            raise ClosedError(f"cannot {what}: the Aeron client of {self.aeron_dir} is closed: {self.close_reason()}")
        return 0

    # Forks

    cdef int check_process(self, str what) except -1:
        """Raise ForkedError in a forked child, where everything is closed: ask when something is."""
        if self._parent_id != 0:
            raise forks.refusal(what, f"the Aeron client of {self.aeron_dir}", self._parent_id)
        return 0

    cdef bint is_forked(self) noexcept:
        return self._parent_id != 0

    def _disown(self, long process_id):
        """In a forked child: nothing of C is used or freed any more. The child has a copy of what C allocated, and
        shares the rest with its parent."""
        self._parent_id = process_id
        self._closing = True
        self.events.parent_id = process_id
        self._deferred.clear()
        for reference in self._resources.valuerefs():
            resource = reference()
            if resource is not None:
                resource._disown()
        if self.aeron != NULL and self._context != NULL:
            self._make_private()
        self.aeron = NULL
        self._context = NULL

    cdef int _make_private(self) except -1:
        """A poll of C in progress, whose handler has forked, writes the position of its image when the handler returns:
        in the child to memory of its own."""
        cdef aeron_counters_reader_buffers_t buffers
        cdef uintptr_t page = <uintptr_t> sysconf(_SC_PAGESIZE)
        cdef uintptr_t first, end
        if lib.counters_reader_get_buffers(lib.counters_reader(self.aeron), &buffers) < 0:
            raise last_error(f"cannot find the counters of {self.aeron_dir}")
        first = <uintptr_t> buffers.values & ~(page - 1)
        end = (<uintptr_t> buffers.values + buffers.values_length + page - 1) & ~(page - 1)
        if mmap(<void*> first, end - first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == MAP_FAILED:
            raise MemoryError(f"no memory in place of the counters of {self.aeron_dir}")
        return 0

    # Calls in progress

    cdef void enter(self) noexcept:
        """Until `leave`, on the same thread, the client stays as it is for this call, even when it is closed
        meanwhile."""
        own_calls(<void*> self, 1)
        atomic_add(&self._busy, 1)

    cdef int enter_open(self, str what) except -1:
        """Enter, or raise what `check_open` raises."""
        self.enter()
        try:
            return self.check_open(what)
        except BaseException:
            self.leave()
            raise

    cdef int leave(self) except -1:
        own_calls(<void*> self, -1)
        return self._left(atomic_add(&self._busy, -1))

    cdef void leave_quietly(self) noexcept:
        self.leave()

    cdef void hold(self) noexcept:
        """Like `enter`, until any thread calls `release`."""
        if FREE_THREADED:
            atomic_add(&self._busy, 1)

    cdef void release(self) noexcept:
        if FREE_THREADED:
            self._left(atomic_add(&self._busy, -1))

    cdef int _left(self, int remaining) except -1:
        if remaining == 0 and self._closing:
            return self._shut_down()
        if FREE_THREADED and len(self._deferred) > 0:
            return self._free_deferred()
        return 0

    cdef void lock(self) noexcept:
        """Until `unlock`, no other thread conducts or asks the driver. A thread may take it again."""
        begin_wait(&self._keepalive)
        if FREE_THREADED:
            lock_mutex(&self._guard)
        else:
            # With the GIL, so that nothing changes meanwhile: only the keepalive thread can have it, which never
            # wants the GIL.
            pthread_mutex_lock(&self._guard)
        end_wait(&self._keepalive)

    cdef void unlock(self) noexcept:
        pthread_mutex_unlock(&self._guard)

    cdef void lock_images(self) noexcept:
        """Until `unlock_images`, no other thread conducts or looks for images. C allows one thread to look beside a
        conductor, and with the GIL there is one."""
        if FREE_THREADED:
            lock_mutex(&self._guard)

    cdef void unlock_images(self) noexcept:
        if FREE_THREADED:
            pthread_mutex_unlock(&self._guard)

    cdef int conduct(self) except -1:
        """Turns of the conductor of a client in invoker mode while there is work: the work done. Raises what its error
        handler raised.

        A turn hears one event of the driver, which sends to all clients what comes and goes for any of them. With
        one turn at a time a client falls behind, and its answers wait behind all those events.
        """
        cdef ClientHandle this = self           # the error handler may drop the last other reference
        cdef int done = 1, work_count = 0
        cdef WaitingError* errors
        this.enter()
        if this._closing or this.aeron == NULL:
            this.leave()
            this.check_process("invoke a client")
            return 0
        this.lock()
        this._keepalive.turns += 1
        for _ in range(MAX_TURNS):
            done = lib.main_do_work(this.aeron)
            if done <= 0:
                break
            work_count += done
        errors = this.events.take_errors()
        this.unlock()
        try:
            refusal = last_error("the conductor cannot work") if done < 0 else None
            if errors != NULL:
                this.events.deliver(errors)
            if refusal is not None:
                raise refusal
        finally:
            this.leave()
        return work_count

    # Freeing

    cdef int dispose(self, int kind, void* pointer) except -1:
        """Free an object of C whose pointer is cleared: now, or when nobody can be using it."""
        if not FREE_THREADED:
            return self._free(kind, pointer)
        self._deferred.append((kind, <size_t> pointer))
        return self._free_deferred()

    cdef int _free_deferred(self) except -1:
        """Free everything deferred so far, unless another thread's call is in progress: the end of that call does
        it."""
        cdef list deferred
        cdef int own
        while len(self._deferred) > 0 and atomic_claim(&self._freeing, 0):
            deferred = self._take_deferred()
            own = own_calls(<void*> self, 0) if FREE_THREADED else self._busy
            # In this order: a call that begins from here on finds the pointers cleared.
            if not atomic_claim(&self._busy, own):
                self._deferred.extend(deferred)
                atomic_add(&self._freeing, -1)
                if self._busy == own:
                    continue                    # that call has ended before it could see them
                return 0
            own_calls(<void*> self, 1)
            try:
                for kind, address in deferred:
                    self._free(kind, <void*> <size_t> address)
            finally:
                atomic_add(&self._freeing, -1)
                self.leave()
        return 0

    cdef list _take_deferred(self):
        """Out of the one list that others append to meanwhile: images first, which C frees with their
        subscription."""
        cdef list taken = [self._deferred.pop(0) for _ in range(len(self._deferred))]
        taken.sort(key=_is_no_image)
        return taken

    cdef int _free(self, int kind, void* pointer) except -1:
        cdef int result
        cdef aeron_subscription_constants_t subscription
        # Without a client its objects are gone.
        if self.aeron == NULL:
            return 0
        self.lock()
        if kind == RESOURCE_IMAGE:
            result = lib.image_release(<aeron_image_t*> pointer)
        elif kind == RESOURCE_SUBSCRIPTION:
            lib.subscription_constants(<aeron_subscription_t*> pointer, &subscription)
            result = lib.subscription_close(<aeron_subscription_t*> pointer, NULL, NULL)
        elif kind == RESOURCE_PUBLICATION:
            result = lib.shared.close(pointer, NULL, NULL)
        elif kind == RESOURCE_EXCLUSIVE_PUBLICATION:
            result = lib.exclusive.close(pointer, NULL, NULL)
        else:
            result = lib.counter_close(<aeron_counter_t*> pointer, NULL, NULL)
        self.unlock()
        if kind == RESOURCE_SUBSCRIPTION:
            self.events.forget_images(subscription.registration_id)
        if result < 0:
            raise last_error("cannot close what the client added")
        return 0

    cdef int close(self) except -1:
        self.enter()
        self._closing = True
        try:
            close_all(self._resources)
        finally:
            self.leave()
        return 0

    cdef int _shut_down(self) except -1:
        """The end of a client that is closing; nothing while a call is in progress, whose end comes back."""
        if self._context == NULL:
            return 0
        if self.events.is_reporting():
            # From the error handler on the conductor's own thread, which cannot wait for its own end: a later
            # call of close() does.
            return 0
        if not atomic_claim(&self._busy, 0):
            return 0
        own_calls(<void*> self, 1)
        try:
            # Again: an add that was in progress may have succeeded after all.
            close_all(self._resources)
        finally:
            try:
                self._end()             # or leaving would come back here for ever
            finally:
                self.leave()
        return 0

    cdef int _end(self) except -1:
        cdef aeron_context_t* context = <aeron_context_t*> take_pointer(<void**> &self._context)
        cdef aeron_t* aeron
        cdef int result = 0
        if context == NULL:
            return 0
        while not atomic_claim(&self._freeing, 0):
            with nogil:
                sched_yield()                   # a thread that sees this call in progress gives up
        for kind, address in self._take_deferred():
            self._free(kind, <void*> <size_t> address)
        atomic_add(&self._freeing, -1)
        aeron = self.aeron
        self.aeron = NULL
        if aeron != NULL:
            # Without the GIL: the conductor's thread may want it to report an error, and this waits for the
            # thread.
            self.end_keepalive()
            with nogil:
                result = lib.close(aeron)
        if result < 0:
            # The conductor may still use the context, which therefore stays.
            raise last_error(f"cannot close the Aeron client of {self.aeron_dir}")
        with nogil:
            lib.context_close(context)
        if self._driver is not None:
            self._driver.close()                # after its client: to that, a driver that closes is one that died
        return self.events.deliver(self.events.take_errors())


def _end_keepalive(ClientHandle handle not None):
    """At the end of the process, when a daemon thread may be in a call, which keeps its client until it ends."""
    handle.enter()                              # so that C's client stays as it is meanwhile
    try:
        handle.end_keepalive()
    finally:
        handle.leave()


def _is_no_image(deferred):
    return deferred[0] != RESOURCE_IMAGE


cdef int close_all(object resources) except -1:     # of a WeakValueDictionary that threads may change meanwhile
    for reference in resources.valuerefs():
        resource = reference()
        if resource is not None:
            resource.close()
    return 0


seal((ClientHandle,))
