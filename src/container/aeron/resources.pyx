"""What an AeronClient adds: the seam's publications, subscriptions, images and counters over objects of C.

Rules that keep every call safe, in any order:

- What is closed has its pointer cleared; its methods then answer as Aeron does for closed objects, or raise
  ClosedError.
- Nothing is freed under a call that uses it: a subscription and its images wait for the polls in progress.
- An image is held by a reference of its own, and given up before its subscription is closed, as C would free
  it then.
"""
import weakref

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.aeron.library cimport last_error, lib
from container.aeron.handle cimport (
    RESOURCE_COUNTER, RESOURCE_EXCLUSIVE_PUBLICATION, RESOURCE_IMAGE, RESOURCE_PUBLICATION,
    RESOURCE_SUBSCRIPTION, ClientHandle,
)
from container.aeron.libaeron cimport (
    AERON_MAX_ADDRESS_LENGTH, PublicationFunctions, aeron_counter_constants_t, aeron_counter_t,
    aeron_counters_reader_buffers_t, aeron_header_t, aeron_header_values_t, aeron_image_constants_t,
    aeron_image_t, aeron_publication_constants_t, aeron_subscription_constants_t, aeron_subscription_t,
)
from container.transport cimport (
    ACTION_BREAK, CLOSED, PUBLICATION_ERROR, BufferVector, Claim, Counter, Counters, FragmentHandler,
    FrameHeader, Image, Publication, Subscription, align_frame, compute_position,
)

from container.errors import AeronError, ClosedError, MessageTooLongError

# What an empty message is offered from: C refuses a NULL.
cdef uint8_t NO_BYTES = 0


# Polling

cdef struct PollState:
    PyObject* handler           # borrowed
    PyObject* error             # owned; what the handler raised, which ends the whole poll


cdef int _on_fragment(void* clientd, const uint8_t* buffer, size_t length, aeron_header_t* header) noexcept:
    cdef PollState* state = <PollState*> clientd
    cdef aeron_header_values_t values
    cdef FrameHeader frame
    lib.header_values(header, &values)
    frame.position = compute_position(
        values.term_id, values.term_offset + align_frame(values.frame_length),
        <int32_t> values.position_bits_to_shift, values.initial_term_id)
    frame.reserved_value = values.reserved_value
    frame.frame_length = values.frame_length
    frame.term_offset = values.term_offset
    frame.session_id = values.session_id
    frame.stream_id = values.stream_id
    frame.term_id = values.term_id
    frame.initial_term_id = values.initial_term_id
    frame.position_bits_to_shift = <int32_t> values.position_bits_to_shift
    frame.flags = values.flags
    try:
        return (<FragmentHandler> state.handler).on_fragment(buffer, length, &frame)
    except BaseException as error:
        Py_INCREF(error)
        state.error = <PyObject*> error
        return ACTION_BREAK


cdef int _poll_image(aeron_image_t* image, FragmentHandler handler, bint is_bounded, int64_t limit_position,
                     int fragment_limit) except -1:
    """Raises what the handler raised, once C has moved the position past the frame."""
    cdef FragmentHandler this = handler     # it may drop the last other reference to itself
    cdef PollState state
    cdef int fragments
    state.handler = <PyObject*> this
    state.error = NULL
    if is_bounded:
        fragments = lib.image_bounded_controlled_poll(
            image, _on_fragment, &state, limit_position, <size_t> fragment_limit)
    else:
        fragments = lib.image_controlled_poll(image, _on_fragment, &state, <size_t> fragment_limit)
    if state.error != NULL:
        error = <object> state.error
        Py_DECREF(error)
        raise error
    if fragments < 0:
        raise last_error("cannot poll an image")
    return fragments


@cython.no_gc_clear
cdef class AeronImage(Image):
    """One publisher's stream; got from an AeronSubscription, and closed with it."""

    def __dealloc__(self):
        if self._image != NULL:
            self._subscription.dispose(RESOURCE_IMAGE, self._image)

    cdef int64_t position(self) noexcept:
        return lib.image_position(self._image) if self._image != NULL else self._final_position

    cdef int64_t end_of_stream_position(self) noexcept:
        if self._image == NULL:
            return self._final_end_of_stream_position
        return lib.image_end_of_stream_position(self._image)

    cdef bint is_end_of_stream(self) noexcept:
        if self._image == NULL:
            return self._final_is_end_of_stream
        return lib.image_is_end_of_stream(self._image)

    cdef bint is_closed(self) noexcept:
        return self._image == NULL or lib.image_is_closed(self._image)

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        return self._poll(handler, False, 0, fragment_limit)

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        return self._poll(handler, True, limit_position, fragment_limit)

    cdef int _poll(self, FragmentHandler handler, bint is_bounded, int64_t limit_position,
                   int fragment_limit) except -1:
        # The handler may drop the last reference to the image, but not to this.
        cdef AeronSubscription subscription = self._subscription
        if self._image == NULL or fragment_limit <= 0:
            return 0
        subscription.begin_poll()
        try:
            return _poll_image(self._image, handler, is_bounded, limit_position, fragment_limit)
        finally:
            subscription.end_poll()

    cdef int _detach(self) except -1:
        """Gives the image of C up, and remembers what it said last."""
        cdef aeron_image_t* image = self._image
        if image == NULL:
            return 0
        self._final_position = lib.image_position(image)
        self._final_end_of_stream_position = lib.image_end_of_stream_position(image)
        self._final_is_end_of_stream = lib.image_is_end_of_stream(image)
        self._image = NULL
        return self._subscription.dispose(RESOURCE_IMAGE, image)


@cython.no_gc_clear
cdef class AeronSubscription(Subscription):
    """Receives one channel and stream; made by ``AeronClient.add_subscription``."""

    def __cinit__(self):
        self._images = weakref.WeakValueDictionary()

    def __dealloc__(self):
        if self._subscription != NULL:
            self._client.dispose(RESOURCE_SUBSCRIPTION, self._subscription)

    cdef int open(self, ClientHandle client, aeron_subscription_t* subscription) except -1:
        """Takes the object of C over; channel and stream id are set already."""
        cdef aeron_subscription_constants_t constants
        self._client = client
        self._subscription = subscription
        client.register(self)
        if lib.subscription_constants(subscription, &constants) < 0:
            raise last_error(f"subscription {self.channel} stream {self.stream_id}")
        self.registration_id = constants.registration_id
        return 0

    cdef bint is_connected(self) noexcept:
        return not self.is_closed() and lib.subscription_is_connected(self._subscription)

    cdef bint is_closed(self) noexcept:
        return self._subscription == NULL or lib.subscription_is_closed(self._subscription)

    cdef int image_count(self) noexcept:
        return 0 if self.is_closed() else lib.subscription_image_count(self._subscription)

    cdef Image image_at_index(self, int index):
        if index < 0 or self.is_closed():
            return None
        return self._image(lib.subscription_image_at_index(self._subscription, <size_t> index))

    cdef Image image_by_session_id(self, int32_t session_id):
        if self.is_closed():
            return None
        return self._image(lib.subscription_image_by_session_id(self._subscription, session_id))

    cdef AeronImage _image(self, aeron_image_t* retained):
        """The one AeronImage of an image of C, which holds one reference to it."""
        cdef aeron_image_constants_t constants
        cdef AeronImage image
        if retained == NULL:
            return None
        image = self._images.get(<size_t> retained)
        if image is not None:
            self.dispose(RESOURCE_IMAGE, retained)
            return image
        image = AeronImage.__new__(AeronImage)
        image._subscription = self
        image._image = retained
        if lib.image_constants(retained, &constants) < 0:
            raise last_error(f"image of subscription {self.channel} stream {self.stream_id}")
        image.session_id = constants.session_id
        image.join_position = constants.join_position
        self._images[<size_t> retained] = image
        return image

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        # Not C's own poll of a subscription: that walks a list which the conductor may free when a handler
        # invokes it, and it would hand the next image's frames to a handler that has just raised.
        cdef AeronSubscription this = self      # the handler may drop the last other reference
        cdef aeron_subscription_t* subscription = self._subscription
        cdef aeron_image_t* image
        cdef int count, index, step
        cdef int fragments = 0
        if subscription == NULL or fragment_limit <= 0:
            return 0
        this.begin_poll()
        try:
            count = lib.subscription_image_count(subscription)
            index = this._next_index(count)
            for step in range(count):
                image = lib.subscription_image_at_index(
                    subscription, <size_t> (index + step) % <size_t> count)
                if image == NULL:
                    continue
                try:
                    fragments += _poll_image(image, handler, False, 0, fragment_limit - fragments)
                finally:
                    lib.image_release(image)
                if fragments >= fragment_limit or this._subscription == NULL:
                    break
            return fragments
        finally:
            this.end_poll()

    cdef int _next_index(self, int count) noexcept:
        """Each poll begins with the next image."""
        cdef int index = self._round_robin_index if self._round_robin_index < count else 0
        self._round_robin_index = index + 1
        return index

    cdef void begin_poll(self) noexcept:
        self._client.enter()
        self._polls += 1

    cdef int end_poll(self) except -1:
        cdef list deferred
        self._polls -= 1
        try:
            if self._polls == 0 and self._deferred is not None:
                deferred = self._deferred
                self._deferred = None
                for kind, address in deferred:
                    self._client.dispose(kind, <void*> <size_t> address)
        finally:
            self._client.leave()
        return 0

    cdef int dispose(self, int kind, void* pointer) except -1:
        """Frees an object of C, now or when the polls in progress are over: they use the log."""
        if self._polls == 0:
            return self._client.dispose(kind, pointer)
        if self._deferred is None:
            self._deferred = []
        self._deferred.append((kind, <size_t> pointer))
        return 0

    cdef str resolved_endpoint(self):
        cdef char address[AERON_MAX_ADDRESS_LENGTH]
        cdef int count
        if self.is_closed():
            return ""
        address[0] = 0
        count = lib.subscription_resolved_endpoint(self._subscription, address, AERON_MAX_ADDRESS_LENGTH)
        if count < 0:
            raise last_error(f"cannot resolve the endpoint of {self.channel} stream {self.stream_id}")
        return (<bytes> address).decode("ascii", "replace") if count > 0 else ""

    cpdef int close(self) except -1:
        """Closes the subscription and its images. May be called twice, and by a handler during a poll."""
        cdef aeron_subscription_t* subscription = self._subscription
        cdef AeronImage image
        if subscription == NULL:
            return 0
        for image in list(self._images.values()):
            image._detach()
        self._subscription = NULL
        return self.dispose(RESOURCE_SUBSCRIPTION, subscription)


@cython.no_gc_clear
cdef class AeronPublication(Publication):
    """Appends to a log that other publications of the driver may share; made by
    ``AeronClient.add_publication``."""

    def __dealloc__(self):
        if self._publication != NULL:
            self._client.dispose(self._kind(), self._publication)

    cdef int _kind(self) noexcept:
        return RESOURCE_PUBLICATION if self._functions == &lib.shared else RESOURCE_EXCLUSIVE_PUBLICATION

    cdef int open(
            self, ClientHandle client, const PublicationFunctions* functions, void* publication) except -1:
        """Takes the object of C over; channel and stream id are set already."""
        cdef aeron_publication_constants_t constants
        self._client = client
        self._functions = functions
        self._publication = publication
        client.register(self)
        if functions.constants(publication, &constants) < 0:
            raise last_error(f"publication {self.channel} stream {self.stream_id}")
        self.session_id = constants.session_id
        self.registration_id = constants.registration_id
        self.max_payload_length = <int32_t> constants.max_payload_length
        self.max_message_length = <int32_t> constants.max_message_length
        self.term_buffer_length = <int32_t> constants.term_buffer_length
        return 0

    cdef bint is_connected(self) noexcept:
        return self._publication != NULL and self._functions.is_connected(self._publication)

    cdef bint is_closed(self) noexcept:
        return self._publication == NULL or self._functions.is_closed(self._publication)

    cdef int64_t position(self) noexcept:
        return self._functions.position(self._publication) if self._publication != NULL else CLOSED

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        cdef int64_t result
        if self._publication == NULL:
            return CLOSED
        result = self._functions.offer(
            self._publication, buffer if length > 0 else &NO_BYTES, length, NULL, NULL)
        if result == PUBLICATION_ERROR:
            return self._refused(
                length, self.max_message_length, "max_message_length",
                "publish it in parts, or use longer terms")
        return result

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        cdef int64_t result
        cdef size_t index
        cdef size_t length = 0
        if self._publication == NULL:
            return CLOSED
        if count == 0:
            return self.offer(&NO_BYTES, 0)
        result = self._functions.offerv(self._publication, vectors, count, NULL, NULL)
        if result == PUBLICATION_ERROR:
            for index in range(count):
                length += vectors[index].length
            return self._refused(
                length, self.max_message_length, "max_message_length",
                "publish it in parts, or use longer terms")
        return result

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        cdef int64_t result
        claim.frame_header = NULL
        if self._publication == NULL:
            return CLOSED
        result = self._functions.try_claim(self._publication, length, claim)
        if result == PUBLICATION_ERROR:
            return self._refused(
                length, self.max_payload_length, "max_payload_length",
                "a claim is one frame: offer it instead")
        return result

    cdef int64_t _refused(self, size_t length, size_t max_length, str limit, str fix) except? -6:
        if length > max_length:
            raise MessageTooLongError(
                f"a message of {length} bytes is longer than the {limit} of {max_length} bytes of "
                f"{self.channel} stream {self.stream_id}; {fix}")
        raise last_error(f"publication {self.channel} stream {self.stream_id}")

    cdef int commit(self, Claim* claim) except -1:
        self._take(claim, "commit")
        if lib.buffer_claim_commit(claim) < 0:
            raise last_error("cannot commit a claim")
        claim.frame_header = NULL
        return 0

    cdef int abort(self, Claim* claim) except -1:
        self._take(claim, "abort")
        if lib.buffer_claim_abort(claim) < 0:
            raise last_error("cannot abort a claim")
        claim.frame_header = NULL
        return 0

    cdef int _take(self, const Claim* claim, str what) except -1:
        """The claim's memory is the log's, which is gone once the publication is closed."""
        if self._publication == NULL:
            raise ClosedError(
                f"cannot {what} a claim: publication {self.channel} stream {self.stream_id} is closed")
        if claim.frame_header == NULL:
            raise AeronError(
                f"cannot {what} a claim that was not granted, or is committed or aborted already")
        return 0

    cpdef int close(self) except -1:
        """Closes the publication. May be called twice."""
        cdef void* publication = self._publication
        if publication == NULL:
            return 0
        self._publication = NULL
        return self._client.dispose(self._kind(), publication)


@cython.no_gc_clear
cdef class AeronExclusivePublication(AeronPublication):
    """Appends to a log of its own; made by ``AeronClient.add_exclusive_publication``."""


cdef class AeronCounters(Counters):
    """Reads the counters of the client's driver; made by ``AeronClient.counters``, empty once the client is
    closed."""

    cdef int open(self, ClientHandle client) except -1:
        cdef aeron_counters_reader_buffers_t buffers
        self._client = client
        if lib.counters_reader_get_buffers(lib.counters_reader(client.aeron), &buffers) < 0:
            raise last_error(f"cannot read the counters of {client.aeron_dir}")
        self.wrap(buffers.metadata, buffers.metadata_length, buffers.values, buffers.values_length)
        return 0


@cython.no_gc_clear
cdef class AeronCounter(Counter):
    """A counter of the driver; made by ``AeronClient.add_counter``."""

    def __dealloc__(self):
        if self._counter != NULL:
            self._client.dispose(RESOURCE_COUNTER, self._counter)

    cdef int open(self, ClientHandle client, aeron_counter_t* counter) except -1:
        """Takes the object of C over; the label is set already."""
        cdef aeron_counter_constants_t constants
        self._client = client
        self._counter = counter
        client.register(self)
        if lib.counter_constants(counter, &constants) < 0:
            raise last_error(f"counter {self.label!r}")
        self.counter_id = constants.counter_id
        self.registration_id = constants.registration_id
        self._value = lib.counter_addr(counter)
        return 0

    cpdef int close(self) except -1:
        """Closes the counter: the driver frees its record. May be called twice."""
        cdef aeron_counter_t* counter = self._counter
        if counter == NULL:
            return 0
        self._value = NULL
        self._counter = NULL
        return self._client.dispose(RESOURCE_COUNTER, counter)
