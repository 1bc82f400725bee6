"""Events of the C client's conductor: errors, new images, removed counters, and its own end.

The conductor runs on a thread of its own, or in invoker mode on the caller's, or while that is busy on the one of
`keepalive`. Listeners are called without the GIL, so that a conductor never waits for Python before it flags that a
client is closed. In invoker mode errors wait until the client is invoked: no Python runs inside a turn of the
conductor, so whoever waits for the client's lock waits for C alone. Images wait too, until their subscription is asked
for them: as plain values, because C frees the image itself when it ends.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from container.aeron.libaeron cimport (
    aeron_counters_reader_t, aeron_image_constants_t, aeron_image_t, aeron_subscription_constants_t,
    aeron_subscription_t, aeron_t,
)
from container.aeron.library cimport aeron_error, lib
from container.common import forks
from container.common.loggers import report as log_report
from container.common.sealed cimport seal
from container.transport.transport_seam cimport ClientListener

cdef extern from "pthread.h" nogil:
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes) noexcept
    int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept
    int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept

cdef extern from "sched.h" nogil:
    int sched_yield() noexcept

# More may come while nobody invokes the client. The first ones say what went wrong.
cdef enum:
    MAX_WAITING_ERRORS = 100


cdef void lock_mutex(pthread_mutex_t* mutex) noexcept:
    while pthread_mutex_trylock(mutex) != 0:
        with nogil:
            sched_yield()


cdef WaitingError* _copied(int code, const char* message) noexcept nogil:
    cdef size_t length = strlen(message)
    cdef WaitingError* error = <WaitingError*> malloc(sizeof(WaitingError) + length)
    if error != NULL:
        error.next = NULL
        error.code = code
        memcpy(error.message, message, length + 1)
    return error


cdef NewImage* _described(aeron_image_t* image) noexcept nogil:
    cdef aeron_image_constants_t constants
    cdef size_t length
    cdef NewImage* new_image
    if lib.image_constants(image, &constants) < 0:
        return NULL
    length = strlen(constants.source_identity)
    new_image = <NewImage*> malloc(sizeof(NewImage) + length)
    if new_image != NULL:
        new_image.next = NULL
        new_image.constants = constants
        memcpy(new_image.source_identity, constants.source_identity, length + 1)
    return new_image


cdef class ConductorEvents:
    """Hands the conductor's events to one error handler (callable or None) and to any number of listeners."""

    def __cinit__(self):
        pthread_mutex_init(&self._mutex, NULL)
        pthread_mutex_init(&self._changing, NULL)
        self._listeners = []

    def __init__(self, error_handler, bint is_invoker):
        if error_handler is not None and not callable(error_handler):
            raise TypeError(f"error_handler must be callable or None, not {error_handler!r}")
        self.error_handler = error_handler
        self.is_invoker = is_invoker

    def __dealloc__(self):
        cdef WaitingError* error = self._first_error
        cdef WaitingError* waiting
        cdef NewImage* image = self._first_image
        cdef NewImage* known
        while error != NULL:
            waiting = error
            error = error.next
            free(waiting)
        while image != NULL:
            known = image
            image = image.next
            free(known)
        free(self._end_error)
        free(self._pointers)
        pthread_mutex_destroy(&self._mutex)
        pthread_mutex_destroy(&self._changing)

    cdef int add(self, ClientListener listener) except -1:
        return self._change(listener, True)

    cdef int remove(self, ClientListener listener) except -1:
        return self._change(listener, False)

    cdef int _change(self, ClientListener listener, bint is_added) except -1:
        """When this returns, a listener that was removed is not being called any more."""
        cdef list listeners
        cdef PyObject** pointers
        cdef int index, count
        lock_mutex(&self._changing)
        try:
            listeners = [existing for existing in self._listeners if existing is not listener]
            if is_added:
                listeners.append(listener)
            count = <int> len(listeners)
            pointers = <PyObject**> malloc(max(1, count) * sizeof(PyObject*))
            if pointers == NULL:
                raise MemoryError("no memory for a client's listeners")
            for index in range(count):
                pointers[index] = <PyObject*> listeners[index]
            # No Python while it is locked: whoever waits for it may be the conductor.
            lock_mutex(&self._mutex)
            self._pointers, pointers = pointers, self._pointers
            self._count = count
            pthread_mutex_unlock(&self._mutex)
            free(pointers)
            self._listeners = listeners
            return 0
        finally:
            pthread_mutex_unlock(&self._changing)

    cdef void tell_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        cdef int index
        pthread_mutex_lock(&self._mutex)
        for index in range(self._count):
            (<ClientListener> self._pointers[index]).on_unavailable_counter(registration_id, counter_id)
        pthread_mutex_unlock(&self._mutex)

    cdef void tell_close(self) noexcept nogil:
        """Once only, whichever comes first: the end of the driver or that of the client."""
        cdef int index
        pthread_mutex_lock(&self._mutex)
        if not self._is_close_told:
            self._is_close_told = True
            for index in range(self._count):
                (<ClientListener> self._pointers[index]).on_close()
        pthread_mutex_unlock(&self._mutex)

    cdef void keep_image(self, aeron_subscription_t* subscription, aeron_image_t* image) noexcept nogil:
        cdef aeron_subscription_constants_t owner
        cdef NewImage* new_image = _described(image)
        if new_image == NULL or lib.subscription_constants(subscription, &owner) < 0:
            free(new_image)
            return
        new_image.subscription_id = owner.registration_id
        pthread_mutex_lock(&self._mutex)
        if lib.subscription_is_closed(subscription):
            free(new_image)                 # whoever closes it forgets its images afterwards, and only once
        elif self._first_image == NULL:
            self._first_image = self._last_image = new_image
        else:
            self._last_image.next = new_image
            self._last_image = new_image
        pthread_mutex_unlock(&self._mutex)

    cdef NewImage* take_image(self, int64_t subscription_id) noexcept:
        cdef NewImage* image
        if self._first_image == NULL:       # as nearly always; what comes just now is there for the next call
            return NULL
        lock_mutex(&self._mutex)
        image = self._unlinked(subscription_id)
        pthread_mutex_unlock(&self._mutex)
        return image

    cdef void forget_images(self, int64_t subscription_id) noexcept:
        cdef NewImage* image
        lock_mutex(&self._mutex)
        image = self._unlinked(subscription_id)
        while image != NULL:
            free(image)
            image = self._unlinked(subscription_id)
        pthread_mutex_unlock(&self._mutex)

    cdef NewImage* _unlinked(self, int64_t subscription_id) noexcept nogil:
        """The first image of a subscription, no longer in the list. With the mutex."""
        cdef NewImage* before = NULL
        cdef NewImage* image = self._first_image
        while image != NULL and image.subscription_id != subscription_id:
            before = image
            image = image.next
        if image == NULL:
            return NULL
        if before == NULL:
            self._first_image = image.next
        else:
            before.next = image.next
        if self._last_image == image:
            self._last_image = before
        return image

    cdef void keep_error(self, int code, const char* message) noexcept nogil:
        cdef WaitingError* error
        if self._error_count >= MAX_WAITING_ERRORS:
            return
        error = _copied(code, message)
        if error == NULL:
            return
        if self._first_error == NULL:
            self._first_error = error
        else:
            self._last_error.next = error
        self._last_error = error
        self._error_count += 1

    cdef WaitingError* take_errors(self) noexcept nogil:
        cdef WaitingError* errors = self._first_error
        self._first_error = NULL
        self._error_count = 0
        return errors

    cdef void keep_end(self, int code, const char* message) noexcept nogil:
        """The first error after which the client is closed is why it is."""
        if self._end_error == NULL:
            self._end_error = _copied(code, message)

    cdef str end_text(self):
        if self._end_error == NULL:
            return None
        return str(aeron_error(self._end_error.code, self._end_error.message.decode("utf-8", "replace")))

    cdef int deliver(self, WaitingError* errors) except -1:
        """Reports and frees them all; raises the last that the error handler raised."""
        cdef WaitingError* error
        raised = None
        while errors != NULL:
            error = errors
            errors = error.next
            try:
                self.report(error.code, error.message)
            except BaseException as refusal:
                raised = refusal
            free(error)
        if raised is not None:
            raise raised
        return 0

    cdef int report(self, int code, const char* message) except -1:
        error = aeron_error(code, message.decode("utf-8", "replace"))
        if self.error_handler is None:
            log_report("error", "%s", error, name="container.aeron")
            return 0
        self._reporting_thread = PyThread_get_thread_ident()
        raised = None
        try:
            self.error_handler(error)
        except BaseException as refusal:
            raised = refusal
            raise
        finally:
            self._reporting_thread = 0
            if self.parent_id != 0:
                # Its handler has forked, and this is the child: C would keep using the driver in the parent's name.
                forks.end_child(raised or forks.refusal(
                    "return from an error handler", "the Aeron client", self.parent_id))
        return 0

    cdef bint is_reporting(self) noexcept:
        return self._reporting_thread == PyThread_get_thread_ident()


cdef void _report(void* clientd, int code, const char* message) noexcept with gil:
    (<ConductorEvents> clientd).report(code, message)


cdef void on_error(void* clientd, int code, const char* message) noexcept nogil:
    cdef aeron_t* aeron = (<ConductorEvents> clientd).aeron
    if aeron != NULL and lib.is_closed(aeron):
        (<ConductorEvents> clientd).keep_end(code, message)
        (<ConductorEvents> clientd).tell_close()
    if (<ConductorEvents> clientd).is_invoker:
        (<ConductorEvents> clientd).keep_error(code, message)
    else:
        _report(clientd, code, message)


cdef void on_available_image(void* clientd, aeron_subscription_t* subscription, aeron_image_t* image) noexcept nogil:
    (<ConductorEvents> clientd).keep_image(subscription, image)


cdef void on_unavailable_counter(
        void* clientd, aeron_counters_reader_t* reader, int64_t registration_id,
        int32_t counter_id) noexcept nogil:
    (<ConductorEvents> clientd).tell_unavailable_counter(registration_id, counter_id)


cdef void on_close(void* clientd) noexcept nogil:
    (<ConductorEvents> clientd).tell_close()


seal((ConductorEvents,))
