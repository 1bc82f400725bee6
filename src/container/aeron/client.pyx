"""The seam over a media driver: a client of the official Aeron C library, loaded at run time.

The library is loaded by :mod:`container.aeron.library`, what C owns is freed in :mod:`container.aeron.handle`, and a
driver comes from :mod:`container.aeron.media_driver`.
"""
import os

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.time cimport nanosleep, timespec

from container.aeron.conductor_events cimport on_available_image
from container.aeron.handle cimport ClientHandle, take_pointer
from container.aeron.libaeron cimport (
    AERON_ERROR_CODE_RESOURCE_TEMPORARILY_UNAVAILABLE, AERON_MAX_COUNTER_KEY_LENGTH,
    AERON_MAX_COUNTER_LABEL_LENGTH, AsyncAddFunctions, PublicationFunctions, aeron_async_t, aeron_counter_t,
    aeron_on_available_image_t, aeron_subscription_t,
)
from container.aeron.library cimport MAX_CHANNEL_LENGTH, encoded, ensure_client, last_error, lib
from container.aeron.media_driver cimport MediaDriver, driver_to_invoke
from container.aeron.resources cimport (
    AeronCounter, AeronCounters, AeronExclusivePublication, AeronPublication, AeronSubscription,
)
from container.common.sealed cimport hide, seal
from container.transport.clocks cimport SystemClock
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client, ClientListener
from container.transport.streams cimport PendingAdd, Publication, Subscription

from container.aeron.media_driver import default_aeron_dir
from container.common.process_end import Stage, close_at_end
from container.errors import (
    AeronError, ClosedError, ConfigurationError, DriverTimeoutError, RegistrationError,
)

cdef enum:
    NS_PER_MS = 1_000_000
    MAX_TIMEOUT_MS = 24 * 3_600_000
    # While the driver has not answered: too short to add to the time that it takes, long enough to leave it a
    # core.
    AWAIT_PAUSE_NS = 20_000
    RETRY_PAUSE_NS = 1_000_000
    # The conductor notices by itself that the driver timeout has passed, as long as it runs.
    TIMEOUT_GRACE_NS = 1_000_000_000


cdef inline void _sleep_ns(int64_t duration_ns) noexcept nogil:
    cdef timespec duration
    duration.tv_sec = duration_ns // 1_000_000_000
    duration.tv_nsec = duration_ns % 1_000_000_000
    nanosleep(&duration, NULL)


# Its handle is needed until the end, whatever cycle of garbage it is part of.
@cython.no_gc_clear
cdef class AeronClient(Client):
    """A client of the media driver in ``aeron_dir``; it waits for a driver when there is none yet.

    - ``aeron_dir`` (str): None for ``AERON_DIR``, else Aeron's default directory.
    - ``client_name`` (str): at most 100 bytes; shown in the label of the client's heartbeat counter.
    - ``use_invoker`` (bool): True, and the caller's own thread conducts by calling ``invoke()``, and a thread without
      Python does while the caller has not for half a keepalive interval; False, and a thread of the C library does.
    - ``driver_timeout_ms`` (int): how long to wait for a driver's answer, and how old its heartbeat may be.
    - ``keepalive_interval_ms`` (int): how often the client shows that it is alive, and looks whether the
      driver is.
    - ``error_handler`` (callable): given an exception for each error of the conductor, by the next call that invokes
      it, or on the library's own thread; what it raises comes out of that call, or is reported as unraisable. None
      logs errors to the logger ``container.aeron``.
    - ``library`` (str): path of the Aeron C library; see :func:`container.aeron.load_library`.
    - ``driver`` (MediaDriver): an embedded one for this client alone, in place of ``aeron_dir``: it is closed with the
      client, also when this raises.

    Raises DriverTimeoutError when there is no live driver within the driver timeout, AeronError when C
    refuses, ConfigurationError for a bad setting, ImportError without a library. Close it, or use it as a
    context manager.
    """

    def __cinit__(self, *arguments, **settings):
        self._handle = ClientHandle("", True, None)

    def __init__(self, aeron_dir=None, str client_name not None="", *, bint use_invoker=True,
                 int64_t driver_timeout_ms=10_000, int64_t keepalive_interval_ms=500, error_handler=None,
                 library=None, driver=None):
        try:
            self._open(aeron_dir if driver is None else driver.aeron_dir, client_name, use_invoker, driver_timeout_ms,
                       keepalive_interval_ms, error_handler, library, driver)
        except BaseException:
            if driver is not None:
                driver.close()
            raise

    cdef int _open(self, aeron_dir, str client_name, bint use_invoker, int64_t driver_timeout_ms,
                   int64_t keepalive_interval_ms, error_handler, library, driver) except -1:
        for name, value in (("driver_timeout_ms", driver_timeout_ms),
                            ("keepalive_interval_ms", keepalive_interval_ms)):
            if not 1 <= value <= MAX_TIMEOUT_MS:
                raise ConfigurationError(f"{name} must be from 1 to {MAX_TIMEOUT_MS} ms, not {value}")
        ensure_client(library)
        self.aeron_dir = os.fspath(aeron_dir or os.environ.get("AERON_DIR") or default_aeron_dir())
        self.client_name = client_name
        self.driver_timeout_ms = driver_timeout_ms
        self.clock = SystemClock()
        self._client_id = NULL_VALUE
        self._counters = AeronCounters.__new__(AeronCounters)
        self._handle = ClientHandle(self.aeron_dir, use_invoker, error_handler, driver)
        try:
            self._handle.start(client_name, driver_timeout_ms, keepalive_interval_ms)
            self._counters.open(self._handle)
        except BaseException:
            self._handle.close()
            raise
        self._client_id = lib.client_id(self._handle.aeron)
        close_at_end(self, Stage.TRANSPORT)
        return 0

    cpdef int close(self) except -1:
        """Close what the client added and is still open, then the client. May be called twice.

        Called by a handler during a poll, or by another thread while a call is in progress, everything
        answers as closed immediately, and is freed when that call is over.
        """
        if self._counters is None:
            return 0
        self._counters.close()
        return self._handle.close()

    cpdef bint is_closed(self) noexcept:
        """True once closed, or when the conductor found that the driver is gone (bool)."""
        return self._handle.is_closed()

    @property
    def close_reason(self):
        """Why it is closed: the C library's own text if an error ended it (str); None while it is open."""
        return self._handle.close_reason()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return (f"<AeronClient {self._client_id} {self.client_name!r} {self.aeron_dir}"
                f"{' closed' if self.is_closed() else ''}>")

    # Ids, counters, listeners, conducting

    cdef int64_t client_id(self) noexcept:
        return self._client_id

    cdef int64_t next_correlation_id(self) except? -1:
        self._handle.enter()
        try:
            self._handle.check_open("get a correlation id")
            return lib.next_correlation_id(self._handle.aeron)
        finally:
            self._handle.leave()

    cdef int32_t next_session_id(self, int32_t stream_id) except? -1:
        cdef str what = f"get a session id for stream {stream_id}"
        cdef aeron_async_t* request = NULL
        cdef void* answer = NULL
        cdef int result
        self._handle.enter_open(what)
        try:
            self._handle.lock()
            result = lib.async_next_session_id(&request, self._handle.aeron, stream_id)
            self._handle.unlock()
            if result < 0:
                raise last_error(f"cannot {what}")
            self._await(request, &lib.next_session_id, &answer, what, self._deadline_ns())
            return (<int32_t*> &answer)[0]
        finally:
            self._handle.leave()

    cdef Counters counters(self):
        return self._counters

    cdef bint has_stream(self, int32_t stream_id, int32_t session_id) except -1:
        return self._counters.has_stream(stream_id, session_id)

    cdef int add_listener(self, ClientListener listener) except -1:
        self._handle.check_open("add a listener")
        return self._handle.events.add(listener)

    cdef int remove_listener(self, ClientListener listener) except -1:
        # In a forked child another thread of the parent's may hold its lock forever.
        return 0 if self._handle.is_forked() else self._handle.events.remove(listener)

    cdef bint is_invoker(self) noexcept nogil:
        return self._handle.use_invoker

    cdef int invoke(self) except -1:
        return self._handle.conduct() if self._handle.use_invoker else 0

    # Adding

    cdef Publication add_publication(self, str channel, int32_t stream_id):
        cdef AeronPublication publication = AeronPublication.__new__(AeronPublication)
        what = f"add publication {channel} stream {stream_id}"
        return self._add_publication(publication, &lib.shared, channel, stream_id, what)

    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id):
        cdef AeronPublication publication = AeronExclusivePublication.__new__(AeronExclusivePublication)
        what = f"add exclusive publication {channel} stream {stream_id}"
        return self._add_publication(publication, &lib.exclusive, channel, stream_id, what)

    cdef AeronPublication _add_publication(
            self, AeronPublication publication, const PublicationFunctions* functions, str channel,
            int32_t stream_id, str what):
        cdef AddRequest request
        cdef bytes uri = encoded("channel", channel, MAX_CHANNEL_LENGTH)
        request.adding = &functions.adding
        request.publication = functions
        request.queues_images = False
        request.label = NULL
        request.channel = uri
        request.stream_id = stream_id
        publication.channel = channel
        publication.stream_id = stream_id
        self._handle.enter_open(what)
        try:
            publication.open(self._handle, functions, self._add(&request, what))
        finally:
            self._handle.leave()
        return publication

    cdef Subscription add_subscription(self, str channel, int32_t stream_id):
        cdef AeronSubscription subscription = AeronSubscription.__new__(AeronSubscription)
        cdef AddRequest request
        cdef bytes uri = encoded("channel", channel, MAX_CHANNEL_LENGTH)
        cdef str what = f"add subscription {channel} stream {stream_id}"
        request.adding = &lib.adding_subscription
        request.publication = NULL
        request.queues_images = False
        request.label = NULL
        request.channel = uri
        request.stream_id = stream_id
        subscription.channel = channel
        subscription.stream_id = stream_id
        self._handle.enter_open(what)
        try:
            subscription.open(self._handle, <aeron_subscription_t*> self._add(&request, what))
        finally:
            self._handle.leave()
        return subscription

    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive):
        cdef AeronPublication publication = (
            AeronExclusivePublication.__new__(AeronExclusivePublication) if is_exclusive
            else AeronPublication.__new__(AeronPublication))
        cdef const PublicationFunctions* functions = &lib.exclusive if is_exclusive else &lib.shared
        publication.channel = channel
        publication.stream_id = stream_id
        return self._begin_add(publication, &functions.adding, functions, channel, stream_id, False,
                               f"add{' exclusive' if is_exclusive else ''} publication {channel} stream {stream_id}")

    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images):
        cdef AeronSubscription subscription = AeronSubscription.__new__(AeronSubscription)
        subscription.channel = channel
        subscription.stream_id = stream_id
        return self._begin_add(subscription, &lib.adding_subscription, NULL, channel, stream_id, queues_images,
                               f"add subscription {channel} stream {stream_id}")

    cdef AeronPendingAdd _begin_add(
            self, object resource, const AsyncAddFunctions* adding, const PublicationFunctions* functions, str channel,
            int32_t stream_id, bint queues_images, str what):
        cdef AeronPendingAdd pending = self._pending_add(resource, adding, what)
        pending._text = encoded("channel", channel, MAX_CHANNEL_LENGTH)
        pending._request.publication = functions
        pending._request.channel = pending._text
        pending._request.stream_id = stream_id
        pending._request.queues_images = queues_images
        pending.begin()
        return pending

    cdef AeronPendingAdd _pending_add(self, object resource, const AsyncAddFunctions* adding, str what):
        cdef AeronPendingAdd pending = AeronPendingAdd.__new__(AeronPendingAdd)
        pending._client = self
        pending._resource = resource
        pending._what = what
        pending._request.adding = adding
        return pending

    cdef PendingAdd begin_add_counter(self, int32_t type_id, bytes key, str label):
        cdef AeronCounter counter = AeronCounter.__new__(AeronCounter)
        cdef AeronPendingAdd pending = self._pending_add(
            counter, &lib.adding_counter, f"add counter {label!r} of type {type_id}")
        counter.label = label
        pending._text = self._check_counter(key, label, pending._what)
        pending._key = key
        _ask_for_counter(&pending._request, type_id, key, pending._text)
        pending.begin()
        return pending

    cdef Counter add_counter(self, int32_t type_id, bytes key, str label):
        cdef AeronCounter counter = AeronCounter.__new__(AeronCounter)
        cdef AddRequest request
        cdef str what = f"add counter {label!r} of type {type_id}"
        cdef bytes text = self._check_counter(key, label, what)
        request.adding = &lib.adding_counter
        request.publication = NULL
        _ask_for_counter(&request, type_id, key, text)
        counter.label = label
        self._handle.enter_open(what)
        try:
            counter.open(self._handle, self._counters, <aeron_counter_t*> self._add(&request, what))
        finally:
            self._handle.leave()
        return counter

    cdef bytes _check_counter(self, bytes key, str label, str what):
        """The label as the driver keeps it."""
        cdef bytes text = label.encode("ascii", "replace")
        for name, length, limit in (("key", len(key), AERON_MAX_COUNTER_KEY_LENGTH),
                                    ("label", len(text), AERON_MAX_COUNTER_LABEL_LENGTH)):
            if length > limit:
                raise AeronError(
                    f"cannot {what}: its {name} is {length} bytes long; at most {limit} are allowed")
        return text

    cdef void* _add(self, const AddRequest* request, str what) except NULL:
        """Block until the driver has answered. One that is short of something for the moment is asked
        again."""
        cdef int64_t deadline_ns = self._deadline_ns()
        cdef void* resource = NULL
        while True:
            try:
                self._await(self._request(request, what), request.adding, &resource, what, deadline_ns)
                return resource
            except RegistrationError as error:
                if (error.code != AERON_ERROR_CODE_RESOURCE_TEMPORARILY_UNAVAILABLE
                        or self.clock.nano_time() >= deadline_ns):
                    raise
            with nogil:
                _sleep_ns(RETRY_PAUSE_NS)
            PyErr_CheckSignals()
            self._handle.check_process(what)

    cdef aeron_async_t* _request(self, const AddRequest* request, str what) except NULL:
        cdef aeron_async_t* result = NULL
        cdef aeron_on_available_image_t on_image = NULL
        cdef int status
        self._handle.lock()
        if request.publication != NULL:
            status = request.publication.async_add(
                &result, self._handle.aeron, request.channel, request.stream_id)
        elif request.label != NULL:
            status = lib.async_add_counter(&result, self._handle.aeron, request.type_id, request.key,
                                           request.key_length, request.label, request.label_length)
        else:
            if request.queues_images:
                on_image = on_available_image
            status = lib.async_add_subscription(
                &result, self._handle.aeron, request.channel, request.stream_id, on_image,
                <void*> self._handle.events, NULL, NULL)
        self._handle.unlock()
        if status < 0 or result == NULL:
            raise last_error(f"cannot {what}")
        return result

    cdef int _await(self, aeron_async_t* request, const AsyncAddFunctions* adding, void** resource, str what,
                    int64_t deadline_ns) except -1:
        cdef MediaDriver driver = driver_to_invoke(self.aeron_dir)
        cdef int result
        while True:
            self._handle.lock()
            result = adding.poll(resource, request)
            self._handle.unlock()
            if result > 0:
                return 0
            if result < 0:
                # C gives the request up by itself.
                raise self._refusal(what)
            try:
                if self._handle.use_invoker:
                    self._handle.conduct()
                self._pause(what, deadline_ns, driver)
            except BaseException:
                if adding.cancel != NULL and self._handle.aeron != NULL:
                    self._handle.lock()
                    adding.cancel(self._handle.aeron, request)
                    self._handle.unlock()
                raise

    cdef int _pause(self, str what, int64_t deadline_ns, MediaDriver driver) except -1:
        self._handle.check_process(what)
        if self.is_closed():
            raise ClosedError(
                f"cannot {what}: the Aeron client of {self.aeron_dir} was closed meanwhile: {self.close_reason}")
        if self.clock.nano_time() > deadline_ns + TIMEOUT_GRACE_NS:
            raise DriverTimeoutError(
                f"cannot {what}: no answer of the media driver in {self.aeron_dir} within "
                f"{self.driver_timeout_ms} ms")
        PyErr_CheckSignals()
        self._handle.check_process(what)        # a signal's handler may have forked
        if driver is None or driver.invoke() == 0:
            with nogil:
                _sleep_ns(AWAIT_PAUSE_NS)
        return 0

    cdef object _refusal(self, str what):
        """The exception for an add that C answers with an error: the driver's refusal, or that it did not
        answer."""
        cdef object error = last_error(f"cannot {what}")
        if isinstance(error, DriverTimeoutError):
            return DriverTimeoutError(
                f"{error} in {self.aeron_dir} within {self.driver_timeout_ms} ms", code=error.code)
        return RegistrationError(str(error), code=error.code)

    cdef int64_t _deadline_ns(self) noexcept:
        return self.clock.nano_time() + self.driver_timeout_ms * NS_PER_MS


cdef void _ask_for_counter(AddRequest* request, int32_t type_id, bytes key, bytes label) noexcept:
    # Both are borrowed.
    request.type_id = type_id
    request.key = <const uint8_t*> <const char*> key
    request.key_length = <size_t> len(key)
    request.label = label
    request.label_length = <size_t> len(label)


@cython.no_gc_clear
cdef class AeronPendingAdd(PendingAdd):
    """A resource that an :class:`AeronClient` has asked its driver to add; closed with the client."""

    def __dealloc__(self):
        self._cancel()

    def _disown(self):
        self._async = NULL

    cdef int begin(self) except -1:
        cdef ClientHandle handle = self._client._handle
        handle.enter_open(self._what)
        try:
            self._deadline_ns = self._client._deadline_ns()
            self._ask()
            return handle.register(self)
        finally:
            handle.leave()

    cdef int _ask(self) except -1:
        self._async = self._client._request(&self._request, self._what)
        return 0

    cdef object poll(self):
        cdef ClientHandle handle = self._client._handle
        cdef object resource = self._resource
        if resource is None:
            raise ClosedError(f"cannot {self._what}: this add is over")
        handle.enter()
        try:
            handle.check_open(self._what)
            return resource if self._poll(resource) else None
        except BaseException:
            self.close()
            raise
        finally:
            handle.leave()

    cdef bint _poll(self, object resource) except -1:
        cdef void* added = NULL
        cdef int result
        cdef object error
        cdef ClientHandle handle = self._client._handle
        cdef int64_t now_ns = self._client.clock.nano_time()
        cdef aeron_async_t* pending
        if now_ns > self._deadline_ns + TIMEOUT_GRACE_NS:
            raise DriverTimeoutError(
                f"cannot {self._what}: no answer of the media driver in {self._client.aeron_dir} within "
                f"{self._client.driver_timeout_ms} ms")
        pending = <aeron_async_t*> take_pointer(<void**> &self._async)
        if pending == NULL:
            if now_ns >= self._retry_ns:
                self._ask()
            return False
        handle.lock()
        result = self._request.adding.poll(&added, pending)
        handle.unlock()
        if result == 0:
            self._async = pending
            return False
        if result < 0:
            error = self._client._refusal(self._what)
            if error.code != AERON_ERROR_CODE_RESOURCE_TEMPORARILY_UNAVAILABLE or now_ns >= self._deadline_ns:
                raise error
            self._retry_ns = now_ns + RETRY_PAUSE_NS
            return False
        if self._request.publication != NULL:
            (<AeronPublication> resource).open(handle, self._request.publication, added)
        elif self._request.label != NULL:
            (<AeronCounter> resource).open(handle, self._client._counters, <aeron_counter_t*> added)
        else:
            (<AeronSubscription> resource).open(handle, <aeron_subscription_t*> added)
        self._resource = None
        return True

    cpdef int close(self) except -1:
        """Give the add up. May be called twice."""
        self._resource = None
        return self._cancel()

    cdef int _cancel(self) noexcept:
        cdef ClientHandle handle
        cdef aeron_async_t* pending = <aeron_async_t*> take_pointer(<void**> &self._async)
        if pending == NULL:
            return 0
        handle = self._client._handle
        handle.enter()
        if handle.aeron != NULL and self._request.adding.cancel != NULL:
            handle.lock()
            self._request.adding.cancel(handle.aeron, pending)
            handle.unlock()
        handle.leave_quietly()
        return 0


hide((AeronPendingAdd,))
seal((AeronClient,))
