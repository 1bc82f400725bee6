"""The resources an AeronClient adds: the seam's publications, subscriptions, images and counters over objects of C.

Rules that keep every call safe, in any order:

- What is closed has its pointer cleared; its methods then answer as Aeron does for closed objects, or raise
  ClosedError.
- Nothing is freed under a call that uses it: a subscription and its images wait for the polls in progress. Without
  the GIL each call is one in progress, from `begin` or `enter` on until `end` or `leave`.
- An image is held by a reference of its own, and given up before its subscription is closed, as C would free
  it then.
"""
import os
import weakref

cimport cython
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from container.aeron.conductor_events cimport NewImage
from container.aeron.handle cimport (
    RESOURCE_COUNTER, RESOURCE_EXCLUSIVE_PUBLICATION, RESOURCE_IMAGE, RESOURCE_PUBLICATION,
    RESOURCE_SUBSCRIPTION, ClientHandle, FREE_THREADED, atomic_add, begin, end, load_pointer, take_pointer,
)
from container.aeron.libaeron cimport (
    AERON_MAX_ADDRESS_LENGTH, AERON_MAX_REASON_LENGTH, DestinationFunctions, PublicationFunctions, aeron_async_t,
    aeron_counter_constants_t, aeron_counter_t, aeron_counters_reader_buffers_t, aeron_header_t, aeron_header_values_t,
    aeron_image_constants_t, aeron_image_t, aeron_publication_constants_t, aeron_subscription_constants_t,
    aeron_subscription_t,
)
from container.aeron.library cimport MAX_CHANNEL_LENGTH, encoded, last_error, lib
from container.common.sealed cimport hide
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport (
    ACTION_BREAK, BACK_PRESSURED, CLOSED, FRAME_HEADER_LENGTH, MAX_POSITION_EXCEEDED, NOT_CONNECTED, PUBLICATION_ERROR,
    BufferVector, Claim, DataFrame, FrameHeader, align_frame, begin_claim, compute_position, end_claim,
)
from container.transport.streams cimport (
    BlockHandler, FragmentHandler, Image, PendingAdd, Publication, Subscription, check_block, check_padding, lost_claim,
)

from container.common import forks
from container.common.regular_files import open_regular
from container.errors import AeronError, ClosedError, DriverTimeoutError, MessageTooLongError, RegistrationError

# Layout of the driver's cnc.dat (upstream: CncFileDescriptor.java), and of a counter's value (CountersReader.java).
cdef enum:
    CNC_METADATA_LENGTH = 128
    VALUE_LENGTH = 128


cdef struct CncMetadata:
    int32_t version
    int32_t to_driver_buffer_length
    int32_t to_clients_buffer_length
    int32_t counters_metadata_buffer_length
    int32_t counters_values_buffer_length


# An empty message is offered from here: C refuses a NULL.
cdef uint8_t NO_BYTES = 0


# Polling

cdef extern from "Python.h":
    PyObject* PyErr_GetRaisedException() noexcept       # owned; none is set any more

cdef struct PollState:
    PyObject* handler           # borrowed
    PyObject* error             # owned; what the handler raised, which ends the whole poll
    bint is_stream_known        # the two below are the same for all frames of an image
    int32_t initial_term_id
    int32_t position_bits_to_shift


# Called without a `try`, which would save and restore the thread's exception state for each fragment: -1 says that an
# exception is set.
ctypedef int (*Deliver)(
    PollState* state, const uint8_t* buffer, size_t length, const FrameHeader* frame) noexcept


ctypedef int (*DeliverBlock)(
    PollState* state, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) noexcept


cdef int _on_fragment(void* clientd, const uint8_t* buffer, size_t length, aeron_header_t* header) noexcept:
    cdef PollState* state = <PollState*> clientd
    cdef const DataFrame* data = <const DataFrame*> (buffer - FRAME_HEADER_LENGTH)
    cdef aeron_header_values_t values
    cdef FrameHeader frame
    cdef int action
    if not state.is_stream_known:
        state.is_stream_known = True
        lib.header_values(header, &values)
        state.initial_term_id = values.initial_term_id
        state.position_bits_to_shift = <int32_t> values.position_bits_to_shift
    frame.frame_length = data.frame_length
    frame.flags = data.flags
    frame.term_offset = data.term_offset
    frame.session_id = data.session_id
    frame.stream_id = data.stream_id
    frame.term_id = data.term_id
    frame.reserved_value = data.reserved_value
    frame.initial_term_id = state.initial_term_id
    frame.position_bits_to_shift = state.position_bits_to_shift
    frame.position = compute_position(
        frame.term_id, frame.term_offset + align_frame(frame.frame_length), frame.position_bits_to_shift,
        frame.initial_term_id)
    action = (<Deliver> _deliver)(state, buffer, length, &frame)
    if action == -1:
        state.error = PyErr_GetRaisedException()
        return ACTION_BREAK
    return action


cdef int _deliver(PollState* state, const uint8_t* buffer, size_t length, const FrameHeader* frame) except -1:
    return (<FragmentHandler> state.handler).on_fragment(buffer, length, frame)


cdef int _describe(
        AeronImage image, const aeron_image_constants_t* constants, const char* source_identity) except -1:
    image.session_id = constants.session_id
    image.initial_term_id = constants.initial_term_id
    image.term_buffer_length = <int32_t> constants.term_buffer_length
    image.mtu_length = <int32_t> constants.mtu_length
    image.join_position = constants.join_position
    image.correlation_id = constants.correlation_id
    image.source_identity = source_identity.decode("utf-8", "replace")
    return 0


cdef int _poll_image(aeron_image_t* image, FragmentHandler handler, bint is_bounded, int64_t limit_position,
                     int fragment_limit) except -1:
    """Raise what the handler raised, once C has moved the position past the frame."""
    cdef FragmentHandler this = handler     # it may drop the last other reference to itself
    cdef PollState state
    cdef int fragments
    state.handler = <PyObject*> this
    state.error = NULL
    state.is_stream_known = False
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


cdef void _on_block(
        void* clientd, const uint8_t* buffer, size_t length, int32_t session_id, int32_t term_id) noexcept:
    cdef PollState* state = <PollState*> clientd
    if (<DeliverBlock> _deliver_block)(state, buffer, length, session_id, term_id) == -1:
        state.error = PyErr_GetRaisedException()


cdef int _deliver_block(
        PollState* state, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
    return (<BlockHandler> state.handler).on_block(block, length, session_id, term_id)


cdef int _poll_block(aeron_image_t* image, BlockHandler handler, int block_length_limit) except -1:
    """Raise what the handler raised, once C has moved the position past the block."""
    cdef BlockHandler this = handler        # it may drop the last other reference to itself
    cdef PollState state
    cdef int length
    state.handler = <PyObject*> this
    state.error = NULL
    length = lib.image_block_poll(image, _on_block, &state, <size_t> block_length_limit)
    if state.error != NULL:
        error = <object> state.error
        Py_DECREF(error)
        raise error
    if length < 0:
        raise last_error("cannot poll an image")
    return length


@cython.no_gc_clear
cdef class AeronImage(Image):
    """One publisher's stream; got from an AeronSubscription, and closed with it."""

    def __dealloc__(self):
        if self._image != NULL:
            self._subscription.dispose(RESOURCE_IMAGE, self._image)

    cdef int64_t position(self) noexcept:
        cdef void* image = begin(<PyObject*> self._client, <void**> &self._image)
        cdef int64_t result = lib.image_position(<aeron_image_t*> image) if image != NULL else self._final_position
        end(<PyObject*> self._client)
        return result

    cdef int64_t end_of_stream_position(self) noexcept:
        cdef void* image = begin(<PyObject*> self._client, <void**> &self._image)
        cdef int64_t result = self._final_end_of_stream_position
        if image != NULL:
            result = lib.image_end_of_stream_position(<aeron_image_t*> image)
        end(<PyObject*> self._client)
        return result

    cdef bint is_end_of_stream(self) noexcept:
        cdef void* image = begin(<PyObject*> self._client, <void**> &self._image)
        cdef bint result = self._final_is_end_of_stream
        if image != NULL:
            result = lib.image_is_end_of_stream(<aeron_image_t*> image)
        end(<PyObject*> self._client)
        return result

    cdef bint is_closed(self) noexcept:
        cdef void* image = begin(<PyObject*> self._client, <void**> &self._image)
        cdef bint result = image == NULL or lib.image_is_closed(<aeron_image_t*> image)
        end(<PyObject*> self._client)
        return result

    cdef int active_transport_count(self) noexcept:
        cdef void* image = begin(<PyObject*> self._client, <void**> &self._image)
        cdef int result = lib.image_active_transport_count(<aeron_image_t*> image) if image != NULL else 0
        end(<PyObject*> self._client)
        return result

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        return self._poll(handler, False, 0, fragment_limit)

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        return self._poll(handler, True, limit_position, fragment_limit)

    cdef int _poll(self, FragmentHandler handler, bint is_bounded, int64_t limit_position,
                   int fragment_limit) except -1:
        # The handler may drop the last reference to the image, but not to this.
        cdef AeronSubscription subscription = self._subscription
        cdef aeron_image_t* image
        if self._image == NULL or fragment_limit <= 0:
            return subscription._check_process() if subscription is not None else 0
        subscription.begin_poll()
        try:
            image = self._image
            if image == NULL:
                return 0                        # closed since, by another thread
            return _poll_image(image, handler, is_bounded, limit_position, fragment_limit)
        finally:
            subscription.end_poll()

    cdef int block_poll(self, BlockHandler handler, int block_length_limit) except -1:
        # As in _poll.
        cdef AeronSubscription subscription = self._subscription
        cdef aeron_image_t* image
        if self._image == NULL or block_length_limit <= 0:
            return subscription._check_process() if subscription is not None else 0
        subscription.begin_poll()
        try:
            image = self._image
            return _poll_block(image, handler, block_length_limit) if image != NULL else 0
        finally:
            subscription.end_poll()

    cpdef int reject(self, str reason) except -1:
        # A reason that is too long is cut, as the driver would refuse it.
        cdef AeronSubscription subscription = self._subscription
        cdef bytes text = reason.encode("utf-8", "replace")[:AERON_MAX_REASON_LENGTH]
        cdef aeron_image_t* image
        cdef int result = 0
        if self._image == NULL:
            return subscription._check_process() if subscription is not None else 0
        subscription.begin_poll()
        try:
            image = self._image
            # C looks for the subscription of the image, which is there until the image is closed and somebody has then
            # looked for images: nobody does meanwhile.
            self._client.lock()
            if image != NULL and not lib.image_is_closed(image):
                result = lib.image_reject(image, text)
            self._client.unlock()
            if result < 0:
                raise last_error(f"cannot reject an image of {subscription.channel} stream {subscription.stream_id}")
        finally:
            subscription.end_poll()
        return 0

    cdef int _detach(self) except -1:
        """Give the image of C up, and remember what it said last."""
        cdef void* image = begin(<PyObject*> self._client, <void**> &self._image)
        if image != NULL:
            self._final_position = lib.image_position(<aeron_image_t*> image)
            self._final_end_of_stream_position = lib.image_end_of_stream_position(<aeron_image_t*> image)
            self._final_is_end_of_stream = lib.image_is_end_of_stream(<aeron_image_t*> image)
        end(<PyObject*> self._client)
        image = take_pointer(<void**> &self._image)
        return self._subscription.dispose(RESOURCE_IMAGE, image) if image != NULL else 0


@cython.no_gc_clear
cdef class AeronSubscription(Subscription):
    """Receives one channel and stream; made by ``AeronClient.add_subscription``."""

    def __cinit__(self):
        self._images = weakref.WeakValueDictionary()
        self._deferred = []

    def __dealloc__(self):
        if self._subscription != NULL:
            self._client.dispose(RESOURCE_SUBSCRIPTION, self._subscription)

    cdef int open(self, ClientHandle client, aeron_subscription_t* subscription) except -1:
        """Take the object of C over; channel and stream id are set already."""
        cdef aeron_subscription_constants_t constants
        self._client = client
        self._subscription = subscription
        client.register(self)
        if lib.subscription_constants(subscription, &constants) < 0:
            raise last_error(f"subscription {self.channel} stream {self.stream_id}")
        self.registration_id = constants.registration_id
        return 0

    cdef bint is_connected(self) noexcept:
        cdef aeron_subscription_t* subscription = self._begin_open()
        cdef bint result = False
        if subscription != NULL:
            self._client.lock_images()
            result = lib.subscription_is_connected(subscription)
            self._client.unlock_images()
        end(<PyObject*> self._client)
        return result

    cdef bint is_closed(self) noexcept:
        cdef bint result = self._begin_open() == NULL
        end(<PyObject*> self._client)
        return result

    cdef int image_count(self) noexcept:
        cdef aeron_subscription_t* subscription = self._begin_open()
        cdef int result = 0
        if subscription != NULL:
            self._client.lock_images()
            result = lib.subscription_image_count(subscription)
            self._client.unlock_images()
        end(<PyObject*> self._client)
        return result

    cdef aeron_subscription_t* _begin_open(self) noexcept:
        """Until `end`; NULL when it is closed, by whomever."""
        cdef aeron_subscription_t* subscription = <aeron_subscription_t*> begin(
            <PyObject*> self._client, <void**> &self._subscription)
        return NULL if subscription == NULL or lib.subscription_is_closed(subscription) else subscription

    cdef int _check_process(self) except -1:
        """Raise ForkedError in a forked child, else 0."""
        if self._client is not None:
            self._client.check_process(f"poll {self.channel} stream {self.stream_id}")
        return 0

    def _disown(self):
        cdef AeronImage image
        self._subscription = NULL
        self._deferred.clear()
        for reference in self._images.valuerefs():
            image = reference()
            if image is not None:
                image._image = NULL

    cdef Image image_at_index(self, int index):
        return self._find_image(True, index) if index >= 0 else None

    cdef Image image_by_session_id(self, int32_t session_id):
        return self._find_image(False, session_id)

    cdef AeronImage _find_image(self, bint is_index, int32_t wanted):
        cdef aeron_subscription_t* subscription = self._begin_open()
        if subscription == NULL:
            end(<PyObject*> self._client)
            return None
        self._client.lock_images()
        try:
            if is_index:
                return self._image(lib.subscription_image_at_index(subscription, <size_t> wanted))
            return self._image(lib.subscription_image_by_session_id(subscription, wanted))
        finally:
            self._client.unlock_images()
            end(<PyObject*> self._client)

    cdef AeronImage _image(self, aeron_image_t* retained):
        """The one AeronImage of an image of C, which holds one reference to it."""
        cdef aeron_image_constants_t constants
        cdef AeronImage image
        if retained == NULL:
            return None
        # An archive asks in each turn, and the dictionary's own get() is Python.
        reference = self._images.data.get(<size_t> retained)
        image = None if reference is None else reference()
        if image is not None:
            self.dispose(RESOURCE_IMAGE, retained)
            return image
        image = AeronImage.__new__(AeronImage)
        image._client = self._client
        image._subscription = self
        image._image = retained
        if lib.image_constants(retained, &constants) < 0:
            raise last_error(f"image of subscription {self.channel} stream {self.stream_id}")
        _describe(image, &constants, constants.source_identity)
        self._images[<size_t> retained] = image
        if self._subscription == NULL:
            image._detach()                     # closed meanwhile by a thread that has not seen this one
        return image

    cdef Image take_new_image(self):
        cdef aeron_subscription_t* subscription = self._begin_open()
        cdef NewImage* described = NULL
        cdef AeronImage image
        if subscription != NULL:
            described = self._client.events.take_image(self.registration_id)
        end(<PyObject*> self._client)
        if described == NULL:
            self._check_process()
            return None
        try:
            image = self._find_image(False, described.constants.session_id)
            if image is None or image.correlation_id != described.constants.correlation_id:
                image = self._gone_image(described)
            return image
        finally:
            free(described)

    cdef AeronImage _gone_image(self, const NewImage* described):
        """Return an image that was gone before anyone could use it: closed, with the facts of the real one."""
        cdef AeronImage image = AeronImage.__new__(AeronImage)
        image._client = self._client
        image._subscription = self
        _describe(image, &described.constants, described.source_identity)
        image._final_position = image.join_position
        image._final_end_of_stream_position = INT64_MAX
        return image

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        # Not C's own poll of a subscription: that walks a list which the conductor may free when a handler
        # invokes it, and it would hand the next image's frames to a handler that has just raised.
        cdef AeronSubscription this = self      # the handler may drop the last other reference
        cdef aeron_subscription_t* subscription
        cdef aeron_image_t* image
        cdef int count, index, step
        cdef int fragments = 0
        if this._subscription == NULL or fragment_limit <= 0:
            return this._check_process()
        this.begin_poll()
        try:
            subscription = this._subscription
            if subscription == NULL:
                return 0                        # closed since, by another thread
            this._client.lock_images()
            count = lib.subscription_image_count(subscription)
            this._client.unlock_images()
            index = this._next_index(count)
            for step in range(count):
                this._client.lock_images()
                image = lib.subscription_image_at_index(
                    subscription, <size_t> (index + step) % <size_t> count)
                this._client.unlock_images()
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
        atomic_add(&self._polls, 1)

    cdef int end_poll(self) except -1:
        try:
            if atomic_add(&self._polls, -1) == 0 and len(self._deferred) > 0:
                self._dispose_deferred()
        finally:
            self._client.leave()
        return 0

    cdef int dispose(self, int kind, void* pointer) except -1:
        """Free an object of C, now or when the polls in progress are over: they use the log."""
        if self._polls == 0:
            return self._client.dispose(kind, pointer)
        self._deferred.append((kind, <size_t> pointer))
        return self._dispose_deferred() if self._polls == 0 else 0

    cdef int _dispose_deferred(self) except -1:
        while True:
            found = None
            try:
                found = self._deferred.pop(0)
            except IndexError:                  # another thread may have taken the last one
                pass
            if found is None:
                return 0
            kind, address = found
            self._client.dispose(kind, <void*> <size_t> address)

    cdef str resolved_endpoint(self):
        cdef char address[AERON_MAX_ADDRESS_LENGTH]
        cdef int count
        cdef aeron_subscription_t* subscription = self._begin_open()
        address[0] = 0
        count = 0
        if subscription != NULL:
            count = lib.subscription_resolved_endpoint(subscription, address, AERON_MAX_ADDRESS_LENGTH)
        end(<PyObject*> self._client)
        if count < 0:
            raise last_error(f"cannot resolve the endpoint of {self.channel} stream {self.stream_id}")
        return (<bytes> address).decode("ascii", "replace") if count > 0 else ""

    cdef PendingAdd begin_add_destination(self, str channel):
        return self._begin_destination(channel, True)

    cdef PendingAdd begin_remove_destination(self, str channel):
        return self._begin_destination(channel, False)

    cdef AeronPendingDestination _begin_destination(self, str channel, bint is_added):
        cdef AeronPendingDestination pending = AeronPendingDestination.__new__(AeronPendingDestination)
        pending._owner = self
        pending.ask(self._client, <void**> &self._subscription, &lib.subscription_destinations, channel, is_added)
        return pending

    cpdef int close(self) except -1:
        """Close the subscription and its images. May be called twice, and by a handler during a poll."""
        cdef void* subscription = take_pointer(<void**> &self._subscription)
        cdef AeronImage image
        if subscription == NULL:
            return 0
        for reference in self._images.valuerefs():
            image = reference()
            if image is not None:
                image._detach()
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
        """Take the object of C over; channel and stream id are set already."""
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
        self.initial_term_id = constants.initial_term_id
        return 0

    cdef int64_t _closed(self) except? -6:
        """The result of an offer to a closed publication. Raises ForkedError in a forked child."""
        if self._client is not None:
            self._client.check_process(f"send to {self.channel} stream {self.stream_id}")
        return CLOSED

    def _disown(self):
        self._publication = NULL

    cdef bint is_connected(self) noexcept:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef bint result = publication != NULL and self._functions.is_connected(publication)
        end(<PyObject*> self._client)
        return result

    cdef bint is_closed(self) noexcept:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef bint result = publication == NULL or self._functions.is_closed(publication)
        end(<PyObject*> self._client)
        return result

    cdef int64_t position(self) noexcept:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef int64_t result = self._functions.position(publication) if publication != NULL else CLOSED
        end(<PyObject*> self._client)
        return result

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef int64_t result = CLOSED
        if publication != NULL:
            result = self._functions.offer(
                publication, buffer if length > 0 else &NO_BYTES, length, NULL, NULL)
        end(<PyObject*> self._client)
        if publication == NULL:
            return self._closed()
        if result == PUBLICATION_ERROR:
            return self._refused(
                length, self.max_message_length, "max_message_length",
                "publish it in parts, or use longer terms")
        return result

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        cdef void* publication
        cdef int64_t result = CLOSED
        cdef size_t index
        cdef size_t length = 0
        if count == 0:
            return self.offer(&NO_BYTES, 0)
        publication = begin(<PyObject*> self._client, &self._publication)
        if publication != NULL:
            result = self._functions.offerv(publication, vectors, count, NULL, NULL)
        end(<PyObject*> self._client)
        if publication == NULL:
            return self._closed()
        if result == PUBLICATION_ERROR:
            for index in range(count):
                length += vectors[index].length
            return self._refused(
                length, self.max_message_length, "max_message_length",
                "publish it in parts, or use longer terms")
        return result

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef int64_t result = CLOSED
        claim.frame_header = NULL
        if publication != NULL:
            result = self._functions.try_claim(publication, length, claim)
        if result > 0:
            begin_claim(claim)
            self._client.hold()                 # the log's memory, until it is committed or aborted
        end(<PyObject*> self._client)
        if publication == NULL:
            return self._closed()
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
        return self._finish(claim, True, "commit")

    cdef int abort(self, Claim* claim) except -1:
        return self._finish(claim, False, "abort")

    cdef int _finish(self, Claim* claim, bint is_committed, str what) except -1:
        """The claim's memory is the log's, which is gone once the publication is closed."""
        cdef bint is_granted = claim.frame_header != NULL
        cdef bint is_closed = self._publication == NULL
        cdef bint is_lost = False
        if is_granted:
            if not is_closed:
                is_lost = not end_claim(claim, is_committed)
            claim.frame_header = NULL
            self._client.release()
        if is_closed:
            self._closed()
            raise ClosedError(
                f"cannot {what} a claim: publication {self.channel} stream {self.stream_id} is closed")
        if not is_granted:
            raise AeronError(
                f"cannot {what} a claim that was not granted, or is committed or aborted already")
        if is_lost and is_committed:
            raise lost_claim(self)
        return 0

    cdef int64_t available_window(self) noexcept:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef int64_t result = CLOSED
        if publication != NULL and not self._functions.is_closed(publication):
            result = self._functions.position_limit(publication) - self._functions.position(publication)
        end(<PyObject*> self._client)
        return result

    cdef PendingAdd begin_add_destination(self, str channel):
        return self._begin_destination(channel, True)

    cdef PendingAdd begin_remove_destination(self, str channel):
        return self._begin_destination(channel, False)

    cdef AeronPendingDestination _begin_destination(self, str channel, bint is_added):
        cdef AeronPendingDestination pending = AeronPendingDestination.__new__(AeronPendingDestination)
        pending._owner = self
        pending.ask(self._client, &self._publication, &self._functions.destinations, channel, is_added)
        return pending

    cpdef int close(self) except -1:
        """Close the publication. May be called twice."""
        cdef void* publication = take_pointer(&self._publication)
        return self._client.dispose(self._kind(), publication) if publication != NULL else 0


@cython.no_gc_clear
cdef class AeronExclusivePublication(AeronPublication):
    """Appends to a log of its own; made by ``AeronClient.add_exclusive_publication``."""

    cdef int64_t offer_block(self, const uint8_t* block, size_t length) except? -6:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef int64_t position = lib.exclusive.position(publication) if publication != NULL else CLOSED
        cdef int64_t result = position
        try:
            if position == <int64_t> self.term_buffer_length << 31:
                result = MAX_POSITION_EXCEEDED          # C would continue with a term that does not exist
            elif position >= 0:
                check_block(self, position, block, length)
                result = lib.exclusive_publication_offer_block(publication, block, length)
        finally:
            end(<PyObject*> self._client)
        if publication == NULL:
            return self._closed()
        if result == PUBLICATION_ERROR:
            raise last_error(f"publication {self.channel} stream {self.stream_id}")
        return result

    cdef int64_t append_padding(self, size_t length) except? -6:
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        cdef int64_t position = lib.exclusive.position(publication) if publication != NULL else CLOSED
        cdef int64_t result = position
        try:
            if position >= 0:
                check_padding(self, position, length)
                if length <= <size_t> self.max_message_length:
                    result = lib.exclusive_publication_append_padding(publication, length)
                else:
                    result = self._append_long_padding(publication, position, FRAME_HEADER_LENGTH + <int64_t> length)
        finally:
            end(<PyObject*> self._client)
        if publication == NULL:
            return self._closed()
        if result == PUBLICATION_ERROR:
            raise last_error(f"publication {self.channel} stream {self.stream_id}")
        return result

    cdef int64_t _append_long_padding(self, void* publication, int64_t position, int64_t frame_length) noexcept:
        """Several frames of padding in place of one: C takes none that is longer than a message, while what a message
        did not fit may be longer, by the headers of its frames. All of them, or none while the window is too small."""
        cdef int64_t longest = FRAME_HEADER_LENGTH + self.max_message_length
        cdef int64_t aligned = (frame_length + FRAME_HEADER_LENGTH - 1) & ~<int64_t> (FRAME_HEADER_LENGTH - 1)
        cdef int64_t part = aligned % longest or longest
        cdef int64_t result
        if position + aligned - longest >= lib.exclusive.position_limit(publication):
            return BACK_PRESSURED if lib.exclusive.is_connected(publication) else NOT_CONNECTED
        while True:
            result = lib.exclusive_publication_append_padding(publication, <size_t> (part - FRAME_HEADER_LENGTH))
            if result < 0 or result >= position + frame_length:
                return result
            part = min(longest, position + frame_length - result)

    cpdef int revoke(self) except -1:
        """Close the publication, and its images without what they have not read. May be called twice."""
        cdef void* publication = begin(<PyObject*> self._client, &self._publication)
        if publication != NULL:
            lib.exclusive_publication_revoke_on_close(publication)
        end(<PyObject*> self._client)
        return self.close()


@cython.no_gc_clear
cdef class AeronPendingDestination(PendingAdd):
    """A destination that the driver has been asked to add or to remove; closed with the client."""

    def __dealloc__(self):
        self._give_up()

    def _disown(self):
        self._async = NULL

    cdef int ask(self, ClientHandle client, void** owner, const DestinationFunctions* functions, str channel,
                 bint is_added) except -1:
        """The owner is set already."""
        cdef bytes uri = encoded("channel", channel, MAX_CHANNEL_LENGTH)
        cdef void* pointer
        cdef int result
        self._what = (f"{'add' if is_added else 'remove'} destination {channel} of {self._owner.channel} stream "
                      f"{self._owner.stream_id}")
        if client is None:
            raise ClosedError(f"cannot {self._what}: it is closed")
        self._client = client
        self._functions = functions
        client.enter_open(self._what)
        try:
            pointer = load_pointer(owner)
            if pointer == NULL:
                raise ClosedError(f"cannot {self._what}: it is closed")
            client.lock()
            if is_added:
                result = functions.async_add(&self._async, client.aeron, pointer, uri)
            else:
                result = functions.async_remove(&self._async, client.aeron, pointer, uri)
            client.unlock()
            if result < 0:
                raise last_error(f"cannot {self._what}")
            return client.register(self)
        finally:
            client.leave()

    cdef object poll(self):
        cdef object owner = self._owner
        if owner is None:
            raise ClosedError(f"cannot {self._what}: this is over")
        self._client.enter()
        try:
            self._client.check_open(self._what)
            return owner if self._is_answered() else None
        except BaseException:
            self.close()
            raise
        finally:
            self._client.leave()

    cdef bint _is_answered(self) except -1:
        cdef aeron_async_t* pending = <aeron_async_t*> take_pointer(<void**> &self._async)
        cdef int result
        if pending == NULL:
            return False                            # another thread is asking
        self._client.lock()
        result = self._functions.poll(pending)
        self._client.unlock()
        if result == 0:
            self._async = pending
            return False
        self._owner = None
        if result < 0:
            error = last_error(f"cannot {self._what}")
            raise error if isinstance(error, DriverTimeoutError) else RegistrationError(str(error), code=error.code)
        return True

    cpdef int close(self) except -1:
        """No longer waits for the answer; the driver may have done it. May be called twice."""
        self._owner = None
        return self._give_up()

    cdef int _give_up(self) noexcept:
        """C frees a request once it was seen to be answered, else with the client."""
        cdef aeron_async_t* pending = <aeron_async_t*> take_pointer(<void**> &self._async)
        if pending == NULL:
            return 0
        self._client.enter()
        if self._client.aeron != NULL:
            self._client.lock()
            self._functions.poll(pending)
            self._client.unlock()
        self._client.leave_quietly()
        return 0


@cython.no_gc_clear
cdef class AeronCounters(Counters):
    """Reads the counters of the client's driver; made by ``AeronClient.counters``, empty once the client is
    closed.

    The memory is C's, which unmaps it with the client. Without the GIL another thread may be reading then: there
    it is mapped once more, until this object goes.
    """

    def __dealloc__(self):
        if self._mapping != NULL:
            munmap(self._mapping, self._mapping_length)

    cdef int open(self, ClientHandle client) except -1:
        cdef aeron_counters_reader_buffers_t buffers
        if lib.counters_reader_get_buffers(lib.counters_reader(client.aeron), &buffers) < 0:
            raise last_error(f"cannot read the counters of {client.aeron_dir}")
        if FREE_THREADED:
            self._map(client.aeron_dir, &buffers)
        self.wrap(buffers.metadata, buffers.metadata_length, buffers.values, buffers.values_length)
        forks.own(self)
        return 0

    def _disown(self, long process_id):
        self.close()

    cdef int _map(self, str aeron_dir, aeron_counters_reader_buffers_t* buffers) except -1:
        cdef CncMetadata* cnc
        cdef void* mapping
        cdef size_t length
        cdef int descriptor = open_regular(os.path.join(aeron_dir, "cnc.dat"), os.O_RDWR)
        try:
            length = <size_t> os.fstat(descriptor).st_size
            if length < CNC_METADATA_LENGTH:
                raise AeronError(f"the cnc.dat of the media driver in {aeron_dir} was cut short to {length} bytes")
            mapping = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        finally:
            os.close(descriptor)
        if mapping == MAP_FAILED:
            raise AeronError(f"cannot map the counters of {aeron_dir}")
        self._mapping, self._mapping_length = mapping, length
        cnc = <CncMetadata*> mapping
        buffers.metadata = (
            <uint8_t*> mapping + CNC_METADATA_LENGTH + cnc.to_driver_buffer_length + cnc.to_clients_buffer_length)
        buffers.values = buffers.metadata + cnc.counters_metadata_buffer_length
        if (buffers.metadata_length != <size_t> cnc.counters_metadata_buffer_length
                or buffers.values_length != <size_t> cnc.counters_values_buffer_length
                or buffers.values + buffers.values_length > <uint8_t*> mapping + length):
            raise AeronError(f"the media driver in {aeron_dir} was started again meanwhile: its counters have moved")
        return 0

    cdef int64_t* address(self, int32_t counter_id) noexcept:
        return <int64_t*> (self._values + <size_t> counter_id * VALUE_LENGTH)

    cdef void close(self) noexcept:
        if FREE_THREADED:
            self._capacity = 0
        else:
            self.wrap(NULL, 0, NULL, 0)


@cython.no_gc_clear
cdef class AeronCounter(Counter):
    """A counter of the driver; made by ``AeronClient.add_counter``."""

    def __dealloc__(self):
        if self._counter != NULL:
            self._client.dispose(RESOURCE_COUNTER, self._counter)

    cdef int open(self, ClientHandle client, AeronCounters counters, aeron_counter_t* counter) except -1:
        """Take the object of C over; the label is set already."""
        cdef aeron_counter_constants_t constants
        self._client = client
        self._counters = counters
        self._counter = counter
        client.register(self)
        if lib.counter_constants(counter, &constants) < 0:
            raise last_error(f"counter {self.label!r}")
        self.counter_id = constants.counter_id
        self.registration_id = constants.registration_id
        self._value = counters.address(self.counter_id) if FREE_THREADED else lib.counter_addr(counter)
        return 0

    def _disown(self):
        self._value = NULL
        self._counter = NULL

    cpdef int close(self) except -1:
        """Close the counter: the driver frees its record. May be called twice."""
        cdef void* counter
        self._value = NULL
        counter = take_pointer(<void**> &self._counter)
        return self._client.dispose(RESOURCE_COUNTER, counter) if counter != NULL else 0


hide((AeronImage, AeronSubscription, AeronPublication, AeronExclusivePublication, AeronPendingDestination,
      AeronCounters, AeronCounter))
