"""Plain Python functions over the seam of `container.transport.transport_seam`, for tests: any client, publication,
subscription, image or counter can be driven from Python, whichever transport implements it.

Everything here copies and allocates: it is for tests, not for a hot path.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.common.sealed cimport hide, seal
from container.service.event_handler cimport EventHandler
from container.service.snapshot_loader cimport SnapshotImage
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport (
    ACTION_CONTINUE, FRAME_FLAGS_UNFRAGMENTED, FRAME_HEADER_LENGTH, BufferVector, Claim, FrameHeader,
)
from container.transport.transport_seam cimport (
    Client, ClientListener, MarkFile, SnapshotReader, SnapshotStore, SnapshotWriter,
)
from container.transport.streams cimport (
    BlockHandler, FragmentHandler, Image, PendingAdd, Publication, Subscription, publication_result_name,
)

cdef enum:
    KEY_LENGTH = 112
    MAX_EVENTS = 256


cdef class CollectingHandler(FragmentHandler):
    """Collects what it is given in ``messages``: a list of ``(bytes, dict)`` with the header's fields by
    name.

    ``action`` decides what the poll does next: None or an Action's number for each fragment, or a callable
    that is given the bytes and the header's dict and returns one of these. A fragment for which the callable
    raises is not collected, nor is one that is answered with ACTION_ABORT (1).
    """

    cdef readonly list messages
    cdef readonly object action

    def __init__(self, action=None):
        self.messages = []
        self.action = action

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef bytes data = buffer[:length]
        cdef dict fields = header[0]
        action = self.action(data, fields) if callable(self.action) else self.action
        if action is None:
            action = ACTION_CONTINUE
        if action != 1:
            self.messages.append((data, fields))
        return action


cdef class CountingHandler(FragmentHandler):
    """Counts fragments and bytes, and touches no Python object: what a poll costs by itself."""

    cdef readonly int64_t fragments
    cdef readonly int64_t total_length

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        self.fragments += 1
        self.total_length += length
        return ACTION_CONTINUE


cdef class CollectingBlocks(BlockHandler):
    """Collects the blocks that it is given in ``blocks``: a list of ``(bytes, session_id, term_id)``.

    A padding frame gives all the bytes of its length, with any content behind its header. ``action`` (callable) gets
    the bytes first; an exception of it comes out of the poll, and the block is not collected.
    """

    cdef readonly list blocks
    cdef readonly object action

    def __init__(self, action=None):
        self.blocks = []
        self.action = action

    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
        cdef bytes data = block[:length]
        if self.action is not None:
            self.action(data)
        self.blocks.append((data, session_id, term_id))
        return 0


cdef class RecordingListener(ClientListener):
    """Remembers up to 256 counters that became unavailable, and whether the client was closed."""

    cdef int64_t _registration_ids[MAX_EVENTS]
    cdef int32_t _counter_ids[MAX_EVENTS]
    cdef int _count
    cdef int _close_count

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        if self._count < MAX_EVENTS:
            self._registration_ids[self._count] = registration_id
            self._counter_ids[self._count] = counter_id
            self._count += 1

    cdef void on_close(self) noexcept nogil:
        self._close_count += 1

    @property
    def unavailable(self):
        """``(registration_id, counter_id)`` of each counter that became unavailable, in order."""
        cdef int index
        return [(self._registration_ids[index], self._counter_ids[index]) for index in range(self._count)]

    @property
    def close_count(self):
        """How many times the listener heard that the client is closed (int)."""
        return self._close_count


# Client

def client_id(Client client not None):
    return client.client_id()


def next_correlation_id(Client client not None):
    return client.next_correlation_id()


def next_session_id(Client client not None, int32_t stream_id):
    return client.next_session_id(stream_id)


def add_publication(Client client not None, str channel, int32_t stream_id, exclusive=False):
    if exclusive:
        return client.add_exclusive_publication(channel, stream_id)
    return client.add_publication(channel, stream_id)


def add_subscription(Client client not None, str channel, int32_t stream_id):
    return client.add_subscription(channel, stream_id)


def begin_add_publication(Client client not None, str channel, int32_t stream_id, exclusive=False):
    return client.begin_add_publication(channel, stream_id, exclusive)


def begin_add_subscription(Client client not None, str channel, int32_t stream_id, queues_images=False):
    return client.begin_add_subscription(channel, stream_id, queues_images)


def begin_add_counter(Client client not None, int32_t type_id, bytes key=b"", str label=""):
    return client.begin_add_counter(type_id, key, label)


def begin_add_destination(owner not None, str channel):
    """For a Subscription or a Publication; return a PendingAdd."""
    if isinstance(owner, Subscription):
        return (<Subscription> owner).begin_add_destination(channel)
    return (<Publication?> owner).begin_add_destination(channel)


def begin_remove_destination(owner not None, str channel):
    """For a Subscription or a Publication; return a PendingAdd."""
    if isinstance(owner, Subscription):
        return (<Subscription> owner).begin_remove_destination(channel)
    return (<Publication?> owner).begin_remove_destination(channel)


def poll_add(PendingAdd adding not None):
    return adding.poll()


def add_counter(Client client not None, int32_t type_id, bytes key=b"", str label=""):
    return client.add_counter(type_id, key, label)


def counters(Client client not None):
    """The client's Counters; see :func:`counter_record` and ``Counters.read()``."""
    return client.counters()


def has_stream(Client client not None, int32_t stream_id, int32_t session_id):
    """Whether the driver has a publication or an image of that stream and session (bool)."""
    return bool(client.has_stream(stream_id, session_id))


def add_listener(Client client not None, ClientListener listener not None):
    client.add_listener(listener)


def remove_listener(Client client not None, ClientListener listener not None):
    client.remove_listener(listener)


def is_invoker(Client client not None):
    return bool(client.is_invoker())


def invoke(Client client not None):
    """Work done (int) by one turn of the client's conductor."""
    return client.invoke()


def nano_time(Client client not None):
    return client.clock.nano_time()


def forget_lost(SessionFragmentAssembler assembler not None, Subscription subscription not None):
    """Have it forget messages of publishers that are gone; the session ids of those that are begun (list of int)."""
    assembler.forget_lost(subscription)
    return sorted(assembler._assemblers)


def epoch_ms(Client client not None):
    return client.clock.epoch_ms()


# Publication

def result_name(int64_t result):
    """Aeron's name of a negative result of an offer."""
    return publication_result_name(result)


def offer(Publication publication not None, data):
    """Offer bytes-like ``data``; return the new position or one of the negative results."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    return publication.offer(&view[0] if view.shape[0] else NULL, view.shape[0])


def offer_vectors(Publication publication not None, list parts):
    """Offer the parts (list of bytes) as one message."""
    cdef BufferVector* vectors = <BufferVector*> PyMem_Malloc(max(1, len(parts)) * sizeof(BufferVector))
    cdef size_t count = 0
    cdef bytes part
    if vectors == NULL:
        raise MemoryError()
    try:
        for part in parts:
            vectors[count].data = <uint8_t*> <char*> part
            vectors[count].length = len(part)
            count += 1
        return publication.offer_vectors(vectors, count)
    finally:
        PyMem_Free(vectors)


def try_claim(Publication publication not None, bytes data, abort=False):
    """Claim room for ``data``, copy it there, and commit (or abort); return the position or a negative
    result."""
    cdef Claim claim
    cdef int64_t position = publication.try_claim(len(data), &claim)
    if position < 0:
        return position
    memcpy(claim.data, <const char*> data, len(data))
    if abort:
        publication.abort(&claim)
    else:
        publication.commit(&claim)
    return position


def offer_block(Publication publication not None, bytes block not None):
    """Offers whole frames with their headers; the new position or one of the negative results."""
    return publication.offer_block(<const uint8_t*> <const char*> block, len(block))


def append_padding(Publication publication not None, size_t length):
    return publication.append_padding(length)


def available_window(Publication publication not None):
    return publication.available_window()


cdef class OpenClaim:
    """A claim that is neither committed nor aborted yet; made by :func:`claim`."""

    cdef Publication _publication
    cdef Claim _claim
    cdef readonly int64_t position

    def write(self, bytes data):
        """Copy ``data`` to the start of the claim."""
        if <size_t> len(data) > self._claim.length:
            raise ValueError(f"{len(data)} bytes do not fit a claim of {self._claim.length}")
        memcpy(self._claim.data, <const char*> data, len(data))

    def commit(self):
        self._publication.commit(&self._claim)

    def abort(self):
        self._publication.abort(&self._claim)


def claim(Publication publication not None, size_t length):
    """An OpenClaim, or the negative result (int) when there is no room."""
    cdef OpenClaim result = OpenClaim.__new__(OpenClaim)
    result._publication = publication
    result.position = publication.try_claim(length, &result._claim)
    return result if result.position >= 0 else result.position


# Subscription and image

def image(Subscription subscription not None, session_id=None):
    """The image of a session, or the first one when no session id is given; None when there is none."""
    if session_id is None:
        return subscription.image_at_index(0) if subscription.image_count() > 0 else None
    return subscription.image_by_session_id(session_id)


def image_at_index(Subscription subscription not None, int index):
    return subscription.image_at_index(index)


def image_count(Subscription subscription not None):
    return subscription.image_count()


def take_new_image(Subscription subscription not None):
    return subscription.take_new_image()


def resolved_endpoint(Subscription subscription not None):
    return subscription.resolved_endpoint()


def poll_with(source not None, FragmentHandler handler not None, int limit=10, limit_position=None):
    """Poll a Subscription or Image with any handler; return the number of fragments. Only an Image takes a
    limit position."""
    if isinstance(source, Subscription):
        if limit_position is not None:
            raise TypeError("only an image can be polled up to a position")
        return (<Subscription> source).controlled_poll(handler, limit)
    if not isinstance(source, Image):
        raise TypeError(f"neither Subscription nor Image: {source!r}")
    if limit_position is None:
        return (<Image> source).controlled_poll(handler, limit)
    return (<Image> source).bounded_controlled_poll(handler, limit_position, limit)


def poll(source not None, int limit=10, limit_position=None, action=None):
    """Return the fragments of one poll: a list of ``(bytes, header fields by name)``; see CollectingHandler for
    ``action``."""
    handler = CollectingHandler(action)
    poll_with(source, handler, limit, limit_position)
    return handler.messages


def poll_blocks(Image image not None, int limit=1 << 20, BlockHandler handler=None):
    """The block (bytes) that one block poll delivers, b"" when there is none; with a handler the bytes consumed."""
    if handler is not None:
        return image.block_poll(handler, limit)
    collector = CollectingBlocks()
    length = image.block_poll(collector, limit)
    block = b"".join([data for data, _, _ in collector.blocks])
    if length != len(block):
        raise AssertionError(f"{length} bytes are consumed, {len(block)} delivered")
    return block


def active_transport_count(Image image not None):
    return image.active_transport_count()


def end_of_stream_position(Image image not None):
    return image.end_of_stream_position()


def is_end_of_stream(Image image not None):
    return bool(image.is_end_of_stream())


# Common parts

def position(source not None):
    """Position of an Image or a Publication."""
    if isinstance(source, Image):
        return (<Image> source).position()
    return (<Publication?> source).position()


def is_connected(source not None):
    """Whether a Subscription or a Publication is connected."""
    if isinstance(source, Subscription):
        return bool((<Subscription> source).is_connected())
    return bool((<Publication?> source).is_connected())


def is_closed(source not None):
    """Whether an Image, a Subscription, a Publication or a Client is closed."""
    if isinstance(source, Image):
        return bool((<Image> source).is_closed())
    if isinstance(source, Subscription):
        return bool((<Subscription> source).is_closed())
    if isinstance(source, Publication):
        return bool((<Publication> source).is_closed())
    return bool((<Client?> source).is_closed())


# Counters

def set_counter(Counter counter not None, int64_t value):
    counter.set(value)


def increment_counter(Counter counter not None):
    counter.increment()


def propose_max_counter(Counter counter not None, int64_t value):
    counter.propose_max(value)


def set_reference_id(Counter counter not None, int64_t reference_id):
    counter.set_reference_id(reference_id)


def reference_id(Counters counters not None, int32_t counter_id):
    return counters.reference_id(counter_id)


def counter_capacity(Counters counters not None):
    return counters.capacity()


def counter_value(Counters counters not None, int32_t counter_id):
    return counters.value(counter_id)


def counter_record(Counters counters not None, int32_t counter_id):
    """The record of one counter as a dict; ``key`` is its 112 bytes, or None when the id is out of range."""
    cdef const uint8_t* key = counters.key(counter_id)
    return {
        "state": counters.state(counter_id),
        "type_id": counters.type_id(counter_id),
        "key": key[:KEY_LENGTH] if key != NULL else None,
        "value": counters.value(counter_id),
        "registration_id": counters.registration_id(counter_id),
        "owner_id": counters.owner_id(counter_id),
        "label": counters.label(counter_id),
    }


# Idle strategies and fragment handlers

def idle(IdleStrategy strategy not None, int work_count=0):
    strategy.idle(work_count)


def reset_idle(IdleStrategy strategy not None):
    strategy.reset()


def on_fragment(FragmentHandler handler not None, bytes payload not None, **fields):
    """Hand a fragment to a handler; return the Action (int). ``fields`` are those of the header that are
    not 0."""
    cdef FrameHeader header
    header.position = fields.pop("position", 0)
    header.reserved_value = fields.pop("reserved_value", 0)
    header.frame_length = fields.pop("frame_length", FRAME_HEADER_LENGTH + len(payload))
    header.term_offset = fields.pop("term_offset", 0)
    header.session_id = fields.pop("session_id", 0)
    header.stream_id = fields.pop("stream_id", 0)
    header.term_id = fields.pop("term_id", 0)
    header.initial_term_id = fields.pop("initial_term_id", 0)
    header.position_bits_to_shift = fields.pop("position_bits_to_shift", 16)
    header.flags = fields.pop("flags", FRAME_FLAGS_UNFRAGMENTED)
    if fields:
        raise TypeError(f"a frame header has no {', '.join(sorted(fields))}")
    return handler.on_fragment(<const uint8_t*> <const char*> payload, len(payload), &header)


# Snapshots and mark file

def create_snapshot(SnapshotStore store not None, IdleStrategy idle_strategy not None):
    """A SnapshotWriter."""
    return store.create(idle_strategy)


def open_snapshot(SnapshotStore store not None, int64_t recording_id, IdleStrategy idle_strategy not None):
    """A SnapshotReader."""
    return store.open(recording_id, idle_strategy)


cdef class _IdlingCluster(EventHandler):
    cdef Client _client
    cdef IdleStrategy _idle

    cdef Clock clock(self):
        return self._client.clock

    cdef int idle_once(self, int work_count) except -1:
        self._client.invoke()
        self._idle.idle(work_count)
        return 0


def snapshot_image(SnapshotReader reader not None, Client client not None, IdleStrategy idle_strategy not None):
    """The SnapshotImage of a reader, at the position to which its image was read; it idles with the strategy."""
    cdef _IdlingCluster cluster = _IdlingCluster.__new__(_IdlingCluster)
    cluster._client = client
    cluster._idle = idle_strategy
    return SnapshotImage(reader, cluster)


def check(snapshot not None):
    """Raise what a SnapshotWriter or SnapshotReader has to complain about."""
    if isinstance(snapshot, SnapshotWriter):
        (<SnapshotWriter> snapshot).check()
    else:
        (<SnapshotReader?> snapshot).check()


def recorded_position(SnapshotWriter writer not None):
    return writer.recorded_position()


def is_complete(SnapshotWriter writer not None):
    return bool(writer.is_complete())


def update_activity_timestamp(MarkFile mark_file not None, int64_t now_ms):
    mark_file.update_activity_timestamp(now_ms)


def set_member_id(MarkFile mark_file not None, int32_t member_id):
    mark_file.set_member_id(member_id)


def signal_terminated(MarkFile mark_file not None):
    mark_file.signal_terminated()


hide((OpenClaim, _IdlingCluster))
seal((CollectingHandler, CollectingBlocks, CountingHandler, RecordingListener))
