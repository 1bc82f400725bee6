"""The seam over memory: a driver, its clients and what they add, for tests and simulation.

Nothing here loads the C library, starts a thread, reads a clock of the machine or draws a number: ids are
sequences, and what happens depends on the calls alone. Use a driver and all that hangs on it from one thread
at a time.

A :class:`MemoryDriver` is the world. Each :meth:`MemoryDriver.connect` makes a client as a process of its own
would have; what it publishes reaches the subscriptions of all clients by the rules of
:mod:`container.testing.memory.memory_channel`. Adding is immediate, a published frame can be polled immediately, and
there is no back pressure unless ``publication_window`` is set. Failures, delays and results of offers can be
scripted. Only where a :class:`MemoryNetwork` joins several drivers, UDP streams take time and have windows; see
:mod:`container.testing.simulation.fabric`.
"""
import dataclasses
import errno
from collections import namedtuple

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.common.sealed cimport hide, seal
from container.errors import (
    ClosedError, ConfigurationError, DriverTimeoutError, MessageTooLongError, RegistrationError,
)
from container.testing.memory.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory.memory_channel import MemoryChannel
from container.testing.memory.memory_log cimport MemoryImage, MemoryLog
from container.testing.memory.memory_stream cimport MemoryStream
from container.transport.memory_counters cimport CounterBuffers, MemoryCounters
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport (
    ADMIN_ACTION, BACK_PRESSURED, CLOSED, FRAME_HEADER_LENGTH, MAX_POSITION_EXCEEDED, NOT_CONNECTED, BufferVector,
    Claim, begin_claim, end_claim,
)
from container.transport.transport_seam cimport Client, ClientListener
from container.transport.streams cimport (
    FragmentHandler, Image, PendingAdd, Publication, Subscription, check_block, check_padding, lost_claim,
)

__all__ = ["ManualClock", "MemoryClient", "MemoryCounter", "MemoryDriver", "MemoryPendingAdd", "MemoryPublication",
           "MemorySubscription", "PublicationInfo", "SteppingIdleStrategy"]

cdef enum:
    CLIENT_HEARTBEAT_TYPE_ID = 11
    IMAGE_LIVENESS_MS = 10_000          # for which nobody joins a stream that was rejected

_KINDS = ("publication", "exclusive_publication", "subscription", "counter", "destination")
_UDP_SOURCE = "127.0.0.1:50000"         # of images over UDP, in a driver that is the world
_OFFER_RESULTS = (NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED)
_GENERIC_ERROR = 11  # the driver's error code

PublicationInfo = namedtuple(
    "PublicationInfo", "channel stream_id session_id registration_id is_exclusive position subscriber_count")
PublicationInfo.__doc__ = "A publication as the driver knows it; shared publications are one."


# The log of a claim must be there when the claim is aborted, whatever cycle of garbage both are part of.
@cython.no_gc_clear
cdef class MemoryPublication(Publication):
    """A publication of a :class:`MemoryClient`; ``log`` has its frames (:class:`MemoryLog`)."""

    cdef bint is_connected(self) noexcept:
        return not self._closed and self._stream.is_connected()

    cdef bint is_closed(self) noexcept:
        return self._closed

    cdef int64_t position(self) noexcept:
        return CLOSED if self._closed else self.log.position()

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        cdef BufferVector vector
        vector.data = <uint8_t*> buffer
        vector.length = length
        return self.offer_vectors(&vector, 1)

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        cdef size_t length = 0
        cdef size_t index
        cdef int64_t result
        for index in range(count):
            length += vectors[index].length
        if self._closed:
            return CLOSED
        result = self._stream.admit(length)
        if result < 0:
            return result
        if length > <size_t> self.max_message_length:
            raise MessageTooLongError(
                f"message of {length} bytes: max_message_length is {self.max_message_length}: {self!r}",
                code=errno.EINVAL)
        result = self.log.append_message(vectors, length)
        if result == ADMIN_ACTION:
            self._stream.release_terms()
        self._on_append()
        return result

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        cdef int64_t result
        if length > <size_t> self.max_payload_length:
            raise MessageTooLongError(
                f"claim of {length} bytes: max_payload_length is {self.max_payload_length}: {self!r}",
                code=errno.EINVAL)
        if self._closed:
            return CLOSED
        result = self._stream.admit(length)
        if result < 0:
            return result
        result = self.log.claim(length, &claim.frame_header)
        if result >= 0:
            claim.data = claim.frame_header + FRAME_HEADER_LENGTH
            claim.length = length
            begin_claim(claim)
        elif result == ADMIN_ACTION:
            self._stream.release_terms()
        return result

    cdef int commit(self, Claim* claim) except -1:
        if self._client._is_severed:
            return 0
        if not end_claim(claim, True):
            raise lost_claim(self)
        return self._on_append()

    cdef int abort(self, Claim* claim) except -1:
        if self._client._is_severed:
            return 0
        end_claim(claim, False)
        return self._on_append()

    cdef int _on_append(self) except -1:
        return 0 if self._stream.sender is None else self._stream.sender.on_append()

    cdef int64_t available_window(self) noexcept:
        return CLOSED if self._closed else self._stream._limit() - self.log.position()

    cdef int64_t offer_block(self, const uint8_t* block, size_t length) except? -6:
        cdef int64_t position = self.log.position()
        cdef int64_t result
        self._check_exclusive("offer_block")
        if self._closed:
            return CLOSED
        if position == self.log.max_possible_position:
            return MAX_POSITION_EXCEEDED
        check_block(self, position, block, length)
        result = self._stream.admit(length)
        if result < 0:
            return result
        result = self.log.append_block(block, length)
        if position % self.log.term_length == 0:
            self._stream.release_terms()
        self._on_append()
        return result

    cdef int64_t append_padding(self, size_t length) except? -6:
        cdef int64_t result
        self._check_exclusive("append_padding")
        if self._closed:
            return CLOSED
        check_padding(self, self.log.position(), length)
        result = self._stream.admit(length)
        if result < 0:
            return result
        result = self.log.append_padding(length)
        if result == ADMIN_ACTION:
            self._stream.release_terms()
        self._on_append()
        return result

    cdef int _check_exclusive(self, str method) except -1:
        if not self._stream.is_exclusive:
            raise TypeError(f"a shared publication does not implement {method}(): {self!r}")
        return 0

    cpdef int revoke(self) except -1:
        """Close it, and its images without what they have not read. May be called twice."""
        self._check_exclusive("revoke")
        if not self._closed:
            self._stream.is_revoked = True
        return self.close()

    cdef PendingAdd begin_add_destination(self, str channel):
        return self._client._pending_destination(self, self._closed, channel, False)

    cdef PendingAdd begin_remove_destination(self, str channel):
        return self._client._pending_destination(self, self._closed, channel, True)

    cpdef int add_destination(self, str channel) except -1:
        """Send to this channel as well; the publication's own must have ``control-mode=manual``.

        Raises RegistrationError when it has not, or when the driver has no network.
        """
        return self._client._network().add_destination(self._stream, MemoryChannel.parse(channel))

    cpdef int remove_destination(self, str channel) except -1:
        """Stop sending there; do nothing if it is not a destination."""
        return self._client._network().remove_destination(self._stream, MemoryChannel.parse(channel))

    cpdef int close(self) except -1:
        if not self._closed:
            self._closed = True
            self._client._resources.pop(self.registration_id, None)
            self._client.driver._release_stream(self._stream)
        return 0


cdef class MemorySubscription(Subscription):
    """A subscription of a :class:`MemoryClient`."""

    cdef bint is_connected(self) noexcept:
        cdef MemoryImage image
        for image in self._images:
            if not image.is_closed():
                return True
        return False

    cdef bint is_closed(self) noexcept:
        return self._closed

    cdef int image_count(self) noexcept:
        return <int> len(self._images)

    cdef Image image_at_index(self, int index):
        return <MemoryImage> self._images[index] if 0 <= index < len(self._images) else None

    cdef Image image_by_session_id(self, int32_t session_id):
        cdef MemoryImage image
        for image in self._images:
            if image.session_id == session_id:
                return image
        return None

    cdef Image take_new_image(self):
        return <MemoryImage> self._new_images.pop(0) if self._new_images else None

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        # The order of aeron_subscription_controlled_poll: each poll begins with the next image.
        cdef tuple images = self._images
        cdef int count = <int> len(images)
        cdef int first = self._round_robin_index
        cdef int fragments = 0
        cdef int index
        self._round_robin_index += 1
        if first >= count:
            self._round_robin_index = first = 0
        for index in range(first, first + count):
            if fragments >= fragment_limit:
                break
            fragments += (<MemoryImage> images[index if index < count else index - count]).controlled_poll(
                handler, fragment_limit - fragments)
        return fragments

    cdef str resolved_endpoint(self):
        if self._channel.endpoint is None and self.endpoint is not None and not self._closed:
            return self._client.driver.network.resolved_endpoint(self)
        return self._channel.endpoint or ""

    cdef PendingAdd begin_add_destination(self, str channel):
        return self._client._pending_destination(self, self._closed, channel, False)

    cdef PendingAdd begin_remove_destination(self, str channel):
        return self._client._pending_destination(self, self._closed, channel, True)

    cpdef int add_destination(self, str channel) except -1:
        """Receive on this channel as well; the subscription's own must have ``control-mode=manual``.

        Raises RegistrationError when it has not, or when the driver has no network.
        """
        return self._client._network().add_destination(self, MemoryChannel.parse(channel))

    cpdef int remove_destination(self, str channel) except -1:
        """Stop receiving there; do nothing if it is not a destination."""
        return self._client._network().remove_destination(self, MemoryChannel.parse(channel))

    cpdef int close(self) except -1:
        if not self._closed:
            self._closed = True
            self._new_images = None
            self._client._resources.pop(self.registration_id, None)
            self._client.driver._release_subscription(self)
        return 0


cdef class MemoryCounter(Counter):
    """A counter of a :class:`MemoryClient`."""

    cpdef int close(self) except -1:
        if self._value != NULL:
            self._value = NULL
            self._client._resources.pop(self.registration_id, None)
            self._client.driver._release_counter(self.registration_id, self.counter_id)
        return 0


cdef class MemoryPendingAdd(PendingAdd):
    """An add that a :class:`MemoryClient` has begun; it is done by the first poll after the scripted delay."""

    cdef object poll(self):
        cdef MemoryClient client = self._client
        if client is None:
            raise ClosedError(f"this add of {self._channel} is over")
        try:
            client._require_open()
            if client.invoke_count < self._due:
                return None
            self._client = None
            client._end_add(self._kind)
            return client._add_pending(self)
        except BaseException:
            self._client = None
            raise

    cpdef int close(self) except -1:
        self._client = None
        return 0


cdef class MemoryClient(Client):
    """A client of a :class:`MemoryDriver`, made by :meth:`MemoryDriver.connect`.

    ``invoke_count`` (int) says how often its conductor has been invoked.
    """

    def publish_log(self, MemoryLog log not None, str channel not None):
        """An exclusive publication of what is in ``log`` already and what is appended to it directly.

        Subscribers begin where the log does, so it can be written before anyone subscribes. Closing the
        publication ends the stream.
        """
        self._begin_add("exclusive_publication")
        return self._add_publication("exclusive_publication", channel, log.stream_id, True, log)

    def force_close_resources(self):
        """Close images, publications and counters, as a dying client does before it says it is closed."""
        self._force_close()

    def sever(self):
        """Its process is gone: nothing that it still calls has an effect. The driver keeps what it had.

        Its publications do not end, its images hold up publishers where they are, its counters keep their values,
        until :meth:`expire`.
        """
        cdef MemorySubscription subscription
        if self._closed:
            return
        for resource in self._resources.values():
            if isinstance(resource, MemoryPublication):
                (<MemoryPublication> resource)._closed = True
            elif isinstance(resource, MemorySubscription):
                subscription = resource
                subscription._closed = True
                for image in subscription._images:
                    (<MemoryImage> image).close()
                subscription._images = ()
                subscription._new_images = None
            else:
                (<MemoryCounter> resource)._value = NULL
        self._closed = self._is_severed = True
        self._counters.close()
        self._listeners = []
        self._pending_images = []

    def expire(self):
        """A driver drops a client that was severed when its liveness timeout has passed; nothing, the second time."""
        cdef MemoryStream stream
        if self._is_expired:
            return
        self._is_expired = True
        for resource in list(self._resources.values()):
            if isinstance(resource, MemoryPublication):
                stream = (<MemoryPublication> resource)._stream
                if stream._ref_count == 1:
                    for position in stream.log.open_claims():
                        stream.log.unblock(position)
                self.driver._release_stream(stream)
            elif isinstance(resource, MemorySubscription):
                self.driver._release_subscription(resource)
            else:
                self.driver._release_counter(resource.registration_id, resource.counter_id)
        self._resources.clear()
        self.driver._remove_client(self)

    cdef MemoryNetwork _network(self):
        self._require_open()
        if self.driver.network is None:
            raise RegistrationError("destinations need a driver of a simulated network: this one is the whole world")
        return self.driver.network

    @property
    def open_resources(self):
        """Resources added and not closed, in the order of adding (list)."""
        return list(self._resources.values())

    cdef int64_t client_id(self) noexcept:
        return self._client_id

    cdef int64_t next_correlation_id(self) except? -1:
        self._require_open()
        return self.driver.take_id()

    cdef int32_t next_session_id(self, int32_t stream_id) except? -1:
        self._require_open()
        return self.driver.take_session_id()

    cdef Publication add_publication(self, str channel, int32_t stream_id):
        self._begin_add("publication")
        return self._add_publication("publication", channel, stream_id, False, None)

    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id):
        self._begin_add("exclusive_publication")
        return self._add_publication("exclusive_publication", channel, stream_id, True, None)

    cdef MemoryPublication _add_publication(
            self, str kind, str channel, int32_t stream_id, bint is_exclusive, MemoryLog log):
        cdef MemoryPublication publication = MemoryPublication.__new__(MemoryPublication)
        publication.registration_id = self.driver.take_id()
        publication._client = self
        publication._stream = self.driver._open_stream(
            MemoryChannel.parse(channel), stream_id, is_exclusive, log)
        publication.log = publication._stream.log
        publication.channel = channel
        publication.stream_id = stream_id
        publication.session_id = publication.log.session_id
        publication.max_payload_length = publication.log.max_payload_length
        publication.max_message_length = publication.log.max_message_length
        publication.term_buffer_length = publication.log.term_length
        publication.initial_term_id = publication.log.initial_term_id
        self._resources[publication.registration_id] = publication
        return publication

    cdef Subscription add_subscription(self, str channel, int32_t stream_id):
        self._begin_add("subscription")
        return self._add_subscription(channel, stream_id, False)

    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive):
        return self._pending_add("exclusive_publication" if is_exclusive else "publication", channel, stream_id)

    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images):
        cdef MemoryPendingAdd pending = self._pending_add("subscription", channel, stream_id)
        pending._queues_images = queues_images
        return pending

    cdef PendingAdd begin_add_counter(self, int32_t type_id, bytes key, str label):
        cdef MemoryPendingAdd pending = self._pending_add("counter", label, type_id)
        pending._key = key
        return pending

    cdef MemoryPendingAdd _pending_destination(self, object owner, bint is_closed, str channel, bint is_removal):
        cdef MemoryPendingAdd pending
        if is_closed:
            raise ClosedError(f"cannot {'remove' if is_removal else 'add'} destination {channel}: {owner!r} is closed")
        pending = self._pending_add("destination", channel, 0)
        pending._owner = owner
        pending._is_removal = is_removal
        return pending

    cdef object _add_pending(self, MemoryPendingAdd pending):
        if pending._kind == "subscription":
            return self._add_subscription(pending._channel, pending._stream_id, pending._queues_images)
        if pending._kind == "counter":
            return self._add_counter(pending._stream_id, pending._key, pending._channel)
        if pending._kind != "destination":
            return self._add_publication(
                pending._kind, pending._channel, pending._stream_id, pending._kind == "exclusive_publication", None)
        if pending._owner in self._resources.values():      # else it was closed before the driver had looked
            if pending._is_removal:
                pending._owner.remove_destination(pending._channel)
            else:
                pending._owner.add_destination(pending._channel)
        return pending._owner

    cdef MemoryPendingAdd _pending_add(self, str kind, str channel, int32_t stream_id):
        cdef MemoryPendingAdd pending = MemoryPendingAdd.__new__(MemoryPendingAdd)
        self._require_open()
        pending._client = self
        pending._kind = kind
        pending._channel = channel
        pending._stream_id = stream_id
        pending._due = self.invoke_count + (self.driver._delay_of(kind) if self._is_invoker else 0)
        return pending

    cdef MemorySubscription _add_subscription(self, str channel, int32_t stream_id, bint queues_images):
        cdef MemorySubscription subscription = MemorySubscription.__new__(MemorySubscription)
        subscription.registration_id = self.driver.take_id()
        subscription.channel = channel
        subscription.stream_id = stream_id
        subscription._client = self
        subscription._channel = self.driver._bind(MemoryChannel.parse(channel))
        subscription._images = ()
        subscription._new_images = [] if queues_images else None
        self._resources[subscription.registration_id] = subscription
        self.driver._add_subscription(subscription)
        return subscription

    cdef Counter add_counter(self, int32_t type_id, bytes key, str label):
        self._begin_add("counter")
        return self._add_counter(type_id, key, label)

    cdef MemoryCounter _add_counter(self, int32_t type_id, bytes key, str label):
        cdef MemoryCounter counter = MemoryCounter.__new__(MemoryCounter)
        counter.registration_id = self.driver.take_id()
        counter.counter_id = self.driver._counter_buffers.allocate(
            type_id, key, label, counter.registration_id, self._client_id)
        counter.label = label
        counter._client = self
        counter._value = self.driver._counter_buffers.value(counter.counter_id)
        self._resources[counter.registration_id] = counter
        return counter

    cdef Counters counters(self):
        return self._counters

    cdef bint has_stream(self, int32_t stream_id, int32_t session_id) except -1:
        cdef MemoryStream stream
        for stream in self.driver._streams:
            if stream.log.stream_id == stream_id and stream.log.session_id == session_id:
                return True
        return False

    cdef int add_listener(self, ClientListener listener) except -1:
        self._listeners.append(listener)
        return 0

    cdef int remove_listener(self, ClientListener listener) except -1:
        self._listeners = [known for known in self._listeners if known is not listener]
        return 0

    cdef bint is_invoker(self) noexcept nogil:
        return self._is_invoker

    cdef int invoke(self) except -1:
        cdef int done = self._invoke()
        if self.driver._invoke_failures:
            raise self.driver._invoke_failures.pop(0)
        return done

    cdef int _invoke(self) except -1:
        if self._closed or not self._is_invoker:
            return 0
        self.invoke_count += 1
        if not self.driver.is_alive:
            return self._terminate()
        self.driver._counter_buffers.value(self._heartbeat_counter_id)[0] = self.clock.epoch_ms()
        return self.driver.conduct() + self._conduct()

    cpdef bint is_closed(self) noexcept:
        return self._closed

    @property
    def close_reason(self):
        """Why it is closed (str); None while it is open."""
        if not self._closed:
            return None
        return "closed by its owner" if self.driver.is_alive else "the memory driver has been killed"

    cpdef int close(self) except -1:
        self._terminate()
        return 0

    cdef int _require_open(self) except -1:
        if self._closed:
            raise ClosedError(f"the client {self.client_name!r} is closed")
        if not self.driver.is_alive:
            raise DriverTimeoutError("no answer: the memory driver has been killed")
        return 0

    cdef int _begin_add(self, str kind) except -1:
        cdef int _invoke
        self._require_open()
        for _invoke in range(self.driver._delay_of(kind)):
            self.invoke()
            self._require_open()
        return self._end_add(kind)

    cdef int _end_add(self, str kind) except -1:
        failures = self.driver._failures[kind]
        if failures:
            raise failures.pop(0)
        return 0

    cdef int _add_image(self, MemorySubscription subscription, MemoryImage image) except -1:
        if self._closed:                                    # severed: nobody looks
            return 0
        if self._image_delay > 0:
            self._pending_images.append((self.invoke_count + self._image_delay, subscription, image))
        else:
            self._show_image(subscription, image)
        return 0

    cdef int _show_image(self, MemorySubscription subscription, MemoryImage image) except -1:
        # One that has gone before is seen by those alone who want to miss none.
        if not image.is_closed():
            subscription._images += (image,)
        if subscription._new_images is not None:
            subscription._new_images.append(image)
        return 0

    cdef int _remove_image(self, MemorySubscription subscription, MemoryImage image) except -1:
        image.close()
        subscription._images = tuple([known for known in subscription._images if known is not image])
        if subscription._new_images is None:
            self._pending_images = [pending for pending in self._pending_images if pending[2] is not image]
        return 0

    cdef int _conduct(self) except -1:
        # Handle the driver's news as a conductor does: images that are there, counters that are gone.
        cdef list pending = self._pending_images
        cdef list unavailable = self._unavailable_counters
        cdef MemorySubscription subscription
        cdef ClientListener listener
        cdef int64_t registration_id
        cdef int32_t counter_id
        self._pending_images = []
        self._unavailable_counters = []
        for due, subscription, image in pending:
            if due <= self.invoke_count:
                self._show_image(subscription, image)
            else:
                self._pending_images.append((due, subscription, image))
        for registration_id, counter_id in unavailable:
            for listener in self._listeners:
                listener.on_unavailable_counter(registration_id, counter_id)
        return <int> (len(pending) - len(self._pending_images) + len(unavailable))

    cdef int _on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) except -1:
        self._unavailable_counters.append((registration_id, counter_id))
        if not self._is_invoker:
            self._conduct()
        return 0

    cdef int _force_close(self) except -1:
        for resource in list(self._resources.values()):
            resource.close()
        return 0

    cdef int _terminate(self) except -1:
        # The order of a conductor that ends: resources, then the client, then those who listen.
        cdef ClientListener listener
        if self._closed:
            return 0
        self._force_close()
        self._closed = True
        self._counters.close()
        self.driver._remove_client(self)
        for listener in self._listeners:
            listener.on_close()
        return 1

    def __repr__(self):
        return f"<MemoryClient {self._client_id} {self.client_name!r} closed={bool(self._closed)}>"


cdef class MemoryNetwork:
    """Carries UDP streams between drivers; each has its own. IPC and spies stay inside a driver."""

    cdef object bind(self, object channel):
        return channel

    cdef int add_stream(self, MemoryStream stream) except -1:
        return 0

    cdef int remove_stream(self, MemoryStream stream) except -1:
        return 0

    cdef int add_subscription(self, MemorySubscription subscription) except -1:
        return 0

    cdef int remove_subscription(self, MemorySubscription subscription) except -1:
        return 0

    cdef int add_destination(self, object owner, object channel) except -1:
        return 0

    cdef int remove_destination(self, object owner, object channel) except -1:
        return 0

    cdef str resolved_endpoint(self, MemorySubscription subscription):
        return ""


cdef class MemoryDriver:
    """The world that clients share.

    ``clock`` is a :class:`ManualClock` when not given. ``term_length``, ``mtu_length`` and
    ``initial_term_id`` hold for publications whose channel does not say otherwise. ``publication_window``
    (bytes, 0 for no limit) is how far a publication may run ahead of its slowest subscriber before offers are
    BACK_PRESSURED. Session ids are given out in sequence from ``first_session_id``, negative at first because
    real ones often are.
    """

    def __init__(self, clock=None, *, int32_t term_length=64 * 1024, int32_t mtu_length=1408,
                 int32_t initial_term_id=11, int64_t publication_window=0, int32_t counters_capacity=1024,
                 int32_t first_session_id=-1000):
        self.clock = ManualClock() if clock is None else clock
        MemoryLog(term_length=term_length, mtu_length=mtu_length)  # refuses what a log cannot have
        if publication_window < 0 or counters_capacity < 1:
            raise ConfigurationError(
                f"publication_window must not be negative ({publication_window}) and counters_capacity "
                f"at least 1 ({counters_capacity})")
        self.term_length = term_length
        self.mtu_length = mtu_length
        self.initial_term_id = initial_term_id
        self.publication_window = publication_window
        self.is_alive = True
        self._counter_buffers = CounterBuffers(self.clock, counters_capacity)
        self.counters = MemoryCounters.__new__(MemoryCounters)
        self.counters.open(self._counter_buffers)
        self._next_id = 0
        self._next_session_id = first_session_id
        self._next_port = 40_000
        self._clients = []
        self._streams = []
        self._subscriptions = []
        self._scripts = []
        self._failures = {kind: [] for kind in _KINDS}
        self._invoke_failures = []
        self._delays = {kind: [] for kind in _KINDS}
        self._tasks = []

    def connect(self, str client_name="", *, is_invoker=True, int image_delay=0):
        """A new :class:`MemoryClient`.

        In invoker mode, the default, it learns of gone counters, ended streams and the driver's death when it
        is invoked; otherwise immediately, as if by a thread of its own. ``image_delay`` is the number of invokes,
        of a client in invoker mode, that pass before a new image can be seen.
        """
        cdef MemoryClient client = MemoryClient.__new__(MemoryClient)
        if not self.is_alive:
            raise DriverTimeoutError("no answer: the memory driver has been killed")
        client.driver = self
        client.clock = self.clock
        client.client_name = client_name
        client._client_id = self.take_id()
        client._is_invoker = is_invoker
        client._image_delay = image_delay if is_invoker else 0
        client._counters = MemoryCounters.__new__(MemoryCounters)
        client._counters.open(self._counter_buffers)
        client._resources = {}
        client._listeners = []
        client._unavailable_counters = []
        client._pending_images = []
        client._heartbeat_counter_id = self._counter_buffers.allocate(
            CLIENT_HEARTBEAT_TYPE_ID, client._client_id.to_bytes(8, "little", signed=True),
            f"client-heartbeat: id={client._client_id} name={client_name}", client._client_id,
            client._client_id)
        self._clients.append(client)
        return client

    def kill(self, *, at_next_invoke=False):
        """The driver dies: every client closes all it has, then itself, and calls its listeners.

        With ``at_next_invoke`` clients in invoker mode notice only when they are invoked.
        """
        cdef MemoryClient client
        self.is_alive = False
        for client in list(self._clients):
            if not (at_next_invoke and client._is_invoker):
                client._terminate()

    def publication_results(self, str channel not None, int32_t stream_id, results, *, bint replace=False):
        """Script the next offers and claims of all publications, also later ones, on that channel and stream.

        Each of ``results`` is a negative result of an offer (-1 to -5), an exception to be
        raised, or None for an offer that is carried out. With ``replace`` what is left of earlier ones is forgotten.
        """
        cdef list script
        results = list(results)
        for result in results:
            if not (result is None or isinstance(result, BaseException) or result in _OFFER_RESULTS):
                raise ConfigurationError(
                    f"a scripted result is one of {_OFFER_RESULTS}, an exception or None, not {result!r}")
        script = self._script(MemoryChannel.parse(channel), stream_id)
        if replace:
            script.clear()
        script.extend(results)

    def fail_next_add(
            self, str kind not None, int code=_GENERIC_ERROR, str text="scripted failure", *, error=None):
        """The next add of a ``kind`` raises ``error``, or a RegistrationError with ``code`` and ``text``.

        Kinds are publication, exclusive_publication, subscription, counter and destination, which is removals as well.
        Calls add up.
        """
        self._of_kind(self._failures, kind).append(
            error if error is not None else RegistrationError(text, code=code))

    def fail_next_invoke(self, error not None):
        """The next invoke of a client, closed or not, raises ``error`` when it is done, as error handlers may."""
        self._invoke_failures.append(error)

    def delay_next_add(self, str kind not None, int invokes):
        """The next add of a ``kind`` invokes its client this many times before the driver answers."""
        self._of_kind(self._delays, kind).append(invokes)

    def set_counter_registration_id(self, int32_t counter_id, int64_t registration_id):
        """Write a counter's registration id into its record; 0 is how a driver shows a counter at first."""
        self._counter_buffers.value(counter_id)[1] = registration_id

    def add_task(self, task):
        """``task()`` is called each time that the driver conducts, until :meth:`remove_task`."""
        self._tasks.append(task)

    def remove_task(self, task):
        """No longer call ``task``."""
        self._tasks.remove(task)

    def conduct(self):
        """One turn of the driver's conductor, done by each invoke of a client; how much was done (int).

        It calls the tasks, ends the streams that are revoked, or closed and read by all subscribers, and has the images
        go of those that a subscriber rejects.
        """
        cdef MemoryStream stream
        cdef int ended = 0
        for task in list(self._tasks):
            task()
        for stream in list(self._streams):
            if stream._is_rejected:
                self._reject_stream(stream)
            elif stream._barred_until_ms > 0 and self.clock.epoch_ms() >= stream._barred_until_ms:
                self._admit_subscribers(stream)
            if stream._ref_count == 0 and (stream.is_revoked or stream.is_drained()):
                self._end_stream(stream)
                ended += 1
        return ended

    def give_up_images(self, int32_t session_id):
        """The images of a publication go away, whether they are read to the end or not, and so does it."""
        cdef MemoryStream stream
        for stream in [stream for stream in self._streams if stream.log.session_id == session_id]:
            stream.log.end_stream()
            self._end_stream(stream)

    def publications(self):
        """The publications that have not ended, as a list of :class:`PublicationInfo`."""
        cdef MemoryStream stream
        return [
            PublicationInfo(
                stream.channel.text, stream.log.stream_id, stream.log.session_id, stream.registration_id,
                bool(stream.is_exclusive), stream.log.position(), len(stream._images))
            for stream in self._streams
        ]

    def log(self, str channel not None, int32_t stream_id, session_id=None):
        """The :class:`MemoryLog` of the first publication that a subscription to ``channel`` would receive.

        Raises KeyError when there is none.
        """
        cdef MemoryStream stream
        wanted = MemoryChannel.parse(channel)
        for stream in self._streams:
            if (stream.log.stream_id == stream_id and session_id in (None, stream.log.session_id)
                    and wanted.receives(stream.channel, stream.log.session_id)):
                return stream.log
        raise KeyError(f"no publication on {channel}, stream {stream_id}, session {session_id}")

    def open_resources(self):
        """Resources that clients have added and not closed (list): empty after a test that leaks nothing."""
        cdef MemoryClient client
        return [resource for client in self._clients for resource in client._resources.values()]

    cdef int64_t take_id(self) noexcept:
        self._next_id += 1
        return self._next_id

    cdef int32_t take_session_id(self) noexcept:
        self._next_session_id += 1
        return self._next_session_id - 1

    cdef list _of_kind(self, dict scripts, str kind):
        if kind not in scripts:
            raise ConfigurationError(f"unknown kind {kind!r}: known are {', '.join(_KINDS)}")
        return scripts[kind]

    cdef int _delay_of(self, str kind) except -1:
        cdef list delays = self._delays[kind]
        return delays.pop(0) if delays else 0

    cdef list _script(self, object channel, int32_t stream_id):
        cdef list script
        for known, known_stream_id, script in self._scripts:
            if known_stream_id == stream_id and (known.is_same_as(channel) or known.text == channel.text):
                return script
        script = []
        self._scripts.append((channel, stream_id, script))
        return script

    cdef object _bind(self, object channel):
        # An endpoint with port 0 gets the next free port.
        if self.network is not None and not channel.is_ipc and not channel.is_spy:
            return self.network.bind(channel)
        if channel.endpoint is None or not channel.endpoint.endswith(":0"):
            return channel
        self._next_port += 1
        endpoint = f"{channel.endpoint.removesuffix('0')}{self._next_port - 1}"
        return dataclasses.replace(channel, endpoint=endpoint)

    cdef MemoryStream _open_stream(self, object channel, int32_t stream_id, bint is_exclusive, MemoryLog log):
        cdef MemoryStream stream = None if is_exclusive else self._shared_stream(channel, stream_id)
        cdef MemorySubscription subscription
        if channel.is_spy:
            raise RegistrationError(f"a publication cannot be a spy: {channel.text}")
        if stream is not None:
            _confirm_match(channel, stream)
            stream._ref_count += 1
            return stream
        stream = MemoryStream.__new__(MemoryStream)
        stream.log = self._new_log(channel, stream_id) if log is None else log
        stream.channel = channel
        stream.source_identity = "aeron:ipc" if channel.is_ipc else _UDP_SOURCE
        stream.registration_id = self.take_id()
        stream.is_exclusive = is_exclusive
        stream._ref_count = 1
        stream._window_length = self.publication_window
        stream._consumer_position = stream.log.first_position()
        stream._images = []
        stream._subscriptions = []
        stream._script = self._script(channel, stream_id)
        if self.network is not None and not channel.is_ipc:
            self.network.add_stream(stream)
        self._streams.append(stream)
        for subscription in self._subscriptions:
            self._link(stream, subscription)
        return stream

    cdef MemoryStream _shared_stream(self, object channel, int32_t stream_id):
        cdef MemoryStream stream
        for stream in self._streams:
            if (not stream.is_exclusive and stream._ref_count > 0 and stream.log.stream_id == stream_id
                    and stream.channel.is_same_as(channel)):
                return stream
        return None

    cdef MemoryLog _new_log(self, object channel, int32_t stream_id):
        cdef MemoryStream stream
        session_id = channel.session_id
        for stream in self._streams:
            if (stream.log.stream_id == stream_id and stream.log.session_id == session_id
                    and stream.channel.is_same_as(channel)):
                raise RegistrationError(
                    f"existing publication has clashing sessionId={session_id} for streamId={stream_id} "
                    f"channel={channel.text}")
        term_length = channel.term_length or self.term_length
        try:
            return MemoryLog(
                session_id=self.take_session_id() if session_id is None else session_id,
                stream_id=stream_id,
                initial_term_id=self.initial_term_id if channel.initial_term_id is None
                else channel.initial_term_id,
                term_length=term_length,
                mtu_length=channel.mtu_length or self.mtu_length,
                start_position=channel.start_position(term_length))
        except ConfigurationError as error:
            raise RegistrationError(f"{error}: {channel.text}") from None

    cdef int _add_subscription(self, MemorySubscription subscription) except -1:
        cdef MemoryStream stream
        if self.network is not None and not subscription._channel.is_ipc and not subscription._channel.is_spy:
            self.network.add_subscription(subscription)
        self._subscriptions.append(subscription)
        for stream in self._streams:
            if stream._ref_count > 0 or not stream.is_drained():
                self._link(stream, subscription)
        return 0

    cdef int _link(self, MemoryStream stream, MemorySubscription subscription) except -1:
        cdef MemoryImage image
        cdef bint is_spy = subscription._channel.is_spy
        if not is_spy and (stream.sender is not None or stream._barred_until_ms > 0):
            return 0
        if (stream.log.stream_id == subscription.stream_id
                and subscription._channel.receives(stream.channel, stream.log.session_id)):
            image = MemoryImage(stream.log, stream.join_position())
            image.correlation_id = stream.registration_id
            if not is_spy:
                image.listener = stream
                image.source_identity = stream.source_identity
            stream._images.append(image)
            stream._subscriptions.append(subscription)
            subscription._client._add_image(subscription, image)
        return 0

    cdef int _release_subscription(self, MemorySubscription subscription) except -1:
        cdef MemoryStream stream
        cdef int index
        self._subscriptions.remove(subscription)
        if subscription.endpoint is not None:
            self.network.remove_subscription(subscription)
        for stream in list(self._streams):
            stream.join_position()                          # notes how far the images that go have been
            for index in reversed(range(len(stream._subscriptions))):
                if stream._subscriptions[index] is subscription:
                    subscription._client._remove_image(subscription, stream._images[index])
                    del stream._images[index]
                    del stream._subscriptions[index]
            if stream._ref_count == 0 and not stream._images:
                self._forget_stream(stream)
        return 0

    cdef int _release_stream(self, MemoryStream stream) except -1:
        stream._ref_count -= 1
        if stream._ref_count == 0:
            stream.log.end_stream()
            if stream.sender is not None:
                self.network.remove_stream(stream)
            if not stream._images:
                self._forget_stream(stream)
        return 0

    cdef int _end_stream(self, MemoryStream stream) except -1:
        cdef MemorySubscription subscription
        cdef MemoryImage image
        self._forget_stream(stream)
        for subscription, image in zip(stream._subscriptions, stream._images):
            subscription._client._remove_image(subscription, image)
        return 0

    cdef int _reject_stream(self, MemoryStream stream) except -1:
        cdef MemorySubscription subscription
        cdef MemoryImage image
        stream._is_rejected = False
        stream._barred_until_ms = self.clock.epoch_ms() + IMAGE_LIVENESS_MS
        stream.join_position()                              # notes how far the images that go have been
        for subscription, image in list(zip(stream._subscriptions, stream._images)):
            if image.listener is stream:
                subscription._client._remove_image(subscription, image)
                stream._subscriptions.remove(subscription)
                stream._images.remove(image)
        return 0

    cdef int _admit_subscribers(self, MemoryStream stream) except -1:
        cdef MemorySubscription subscription
        stream._barred_until_ms = 0
        for subscription in self._subscriptions:
            if not subscription._channel.is_spy:
                self._link(stream, subscription)
        return 0

    cdef int _forget_stream(self, MemoryStream stream) except -1:
        # With its script, unless there is something left in it or another stream has the same.
        cdef MemoryStream other
        self._streams.remove(stream)
        for other in self._streams:
            if other._script is stream._script:
                return 0
        if not stream._script:
            self._scripts = [script for script in self._scripts if script[2] is not stream._script]
        return 0

    cdef int _release_counter(self, int64_t registration_id, int32_t counter_id) except -1:
        cdef MemoryClient client
        self._counter_buffers.release(counter_id)
        for client in self._clients:
            client._on_unavailable_counter(registration_id, counter_id)
        return 0

    cdef int _remove_client(self, MemoryClient client) except -1:
        self._clients.remove(client)
        return self._release_counter(client._client_id, client._heartbeat_counter_id)

    def __repr__(self):
        return (f"<MemoryDriver clients={len(self._clients)} publications={len(self._streams)} "
                f"subscriptions={len(self._subscriptions)} alive={bool(self.is_alive)}>")


cdef int _confirm_match(object channel, MemoryStream stream) except -1:
    # Upstream's PublicationParams.confirmMatch: a channel must not say what the shared publication is not.
    cdef MemoryLog log = stream.log
    for name, wanted, existing in (
            ("mtu", channel.mtu_length, log.mtu_length),
            ("term-length", channel.term_length, log.term_length),
            ("session-id", channel.session_id, log.session_id),
            ("init-term-id", channel.initial_term_id, log.initial_term_id)):
        if wanted is not None and wanted != existing:
            raise RegistrationError(
                f"existing publication has different '{name}': existing={existing} requested={wanted} "
                f"existingChannel={stream.channel.text} channel={channel.text}")
    return 0


hide((MemoryPublication, MemorySubscription, MemoryCounter, MemoryPendingAdd, MemoryClient, MemoryNetwork))
seal((MemoryDriver,))
