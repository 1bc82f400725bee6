"""The seam between the container and what carries its messages: abstract client, image, publication, counters, clocks,
snapshot store and mark file.

The classes of this module are never used by themselves, but for `Counters`, `Counter`, `SystemClock` and the helpers:
these work on memory that any transport can provide. `container.aeron` implements the rest over a media driver, and
`container.testing.memory_transport` over memory.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from container.errors import AeronError, ClaimLostError
from container.transport.counters_layout cimport (
    KEY_OFFSET, LABEL_LENGTH_OFFSET, LABEL_OFFSET, MAX_KEY_LENGTH, MAX_LABEL_LENGTH, METADATA_LENGTH, OWNER_ID_OFFSET,
    REFERENCE_ID_OFFSET, REGISTRATION_ID_OFFSET, TYPE_ID_OFFSET, VALUE_LENGTH,
)

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    #ifdef CLOCK_MONOTONIC_COARSE
    #define CONTAINER_COARSE_CLOCK CLOCK_MONOTONIC_COARSE
    #else
    #define CONTAINER_COARSE_CLOCK CLOCK_MONOTONIC
    #endif
    static inline int64_t container_get_acquire(const int64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline int32_t container_get32_acquire(const int32_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void container_set_release(int64_t* p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline void container_increment(int64_t* p) { __atomic_add_fetch(p, 1, __ATOMIC_ACQ_REL); }
    """
    int64_t container_get_acquire(const int64_t* p) noexcept nogil
    int32_t container_get32_acquire(const int32_t* p) noexcept nogil
    void container_set_release(int64_t* p, int64_t value) noexcept nogil
    void container_increment(int64_t* p) noexcept nogil
    const int CONTAINER_COARSE_CLOCK


# For readers in Python of a file of counters.
COUNTER_METADATA_LENGTH = <int> METADATA_LENGTH
COUNTER_KEY = slice(<int> KEY_OFFSET, <int> KEY_OFFSET + <int> MAX_KEY_LENGTH)
COUNTER_LABEL_LENGTH_OFFSET = <int> LABEL_LENGTH_OFFSET
COUNTER_LABEL_OFFSET = <int> LABEL_OFFSET
COUNTER_MAX_LABEL_LENGTH = <int> MAX_LABEL_LENGTH
COUNTER_VALUE_LENGTH = <int> VALUE_LENGTH


cdef object lost_claim(Publication publication):
    return ClaimLostError(
        f"a claim of {publication.channel} stream {publication.stream_id} is lost: it was open for "
        "so long that the media driver gave it up and went on (after aeron.publication.unblock.timeout, 15 s by "
        "default); commit sooner, or offer the message")


cdef int check_block(Publication publication, int64_t position, const uint8_t* block, size_t length) except -1:
    cdef int64_t term_length = publication.term_buffer_length
    cdef int32_t begin = <int32_t> (position & (term_length - 1))
    cdef int32_t term_id = <int32_t> (<uint32_t> publication.initial_term_id + <uint32_t> (position // term_length))
    cdef int32_t max_length = FRAME_HEADER_LENGTH + publication.max_payload_length
    cdef size_t offset = 0
    cdef const DataFrame* frame
    if length == 0 or length % FRAME_HEADER_LENGTH != 0 or length > <size_t> (term_length - begin):
        raise AeronError(
            f"a block of {length} bytes cannot follow position {position} of {publication.channel} stream "
            f"{publication.stream_id}: give whole frames, at most the {term_length - begin} bytes to the term's end")
    while offset < length:
        frame = <const DataFrame*> (block + offset)
        if (frame.frame_length < FRAME_HEADER_LENGTH or frame.frame_length > max_length
                or <size_t> align_frame(frame.frame_length) > length - offset
                or frame.type != FRAME_TYPE_DATA or frame.term_offset != begin + <int32_t> offset
                or frame.term_id != term_id or frame.session_id != publication.session_id
                or frame.stream_id != publication.stream_id):
            raise AeronError(
                f"a block for {publication.channel} stream {publication.stream_id} has a wrong frame at {offset} of "
                f"{length} bytes: length {frame.frame_length} (at most {max_length}), type {frame.type} "
                f"({<int> FRAME_TYPE_DATA}), term offset {frame.term_offset} ({begin + <int32_t> offset}), term id "
                f"{frame.term_id} ({term_id}), session id {frame.session_id} ({publication.session_id}), stream id "
                f"{frame.stream_id} ({publication.stream_id}); what it must be is in parentheses")
        offset += <size_t> align_frame(frame.frame_length)
    return 0


cdef int check_padding(Publication publication, int64_t position, size_t length) except -1:
    cdef int64_t term_length = publication.term_buffer_length
    cdef int64_t remaining = term_length - (position & (term_length - 1))       # of the next one, where one is full
    if length > <size_t> (remaining - FRAME_HEADER_LENGTH):
        raise AeronError(
            f"a padding frame of {length} bytes and its header cannot follow position {position} of "
            f"{publication.channel} stream {publication.stream_id}: the rest of the term is {remaining} bytes")
    return 0


cdef str publication_result_name(int64_t result):
    """Aeron's name of a result of an offer that is no position."""
    if result == NOT_CONNECTED:
        return "NOT_CONNECTED"
    if result == BACK_PRESSURED:
        return "BACK_PRESSURED"
    if result == ADMIN_ACTION:
        return "ADMIN_ACTION"
    if result == CLOSED:
        return "CLOSED"
    if result == MAX_POSITION_EXCEEDED:
        return "MAX_POSITION_EXCEEDED"
    return str(result)


cdef object _abstract(object self, str method):
    return TypeError(f"{type(self).__name__} does not implement {method}()")


cdef class FragmentHandler:
    """Receives the payload of frames, or of reassembled messages, from a poll."""

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        raise _abstract(self, "on_fragment")


cdef class BlockHandler:
    """Receives the frames of an image as they lie in its log, with their headers, from a block poll."""

    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
        raise _abstract(self, "on_block")


cdef class Image:
    """One publisher's stream as a subscription sees it, consumed in order by polls."""

    cdef int64_t position(self) noexcept:
        return NULL_VALUE

    cdef int64_t end_of_stream_position(self) noexcept:
        return NULL_VALUE

    cdef bint is_end_of_stream(self) noexcept:
        return True

    cdef bint is_closed(self) noexcept:
        return True

    cdef int active_transport_count(self) noexcept:
        return 0

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        raise _abstract(self, "controlled_poll")

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        raise _abstract(self, "bounded_controlled_poll")

    cdef int block_poll(self, BlockHandler handler, int block_length_limit) except -1:
        raise _abstract(self, "block_poll")

    cpdef int reject(self, str reason) except -1:
        """Have the driver give the publication's image up, for all its subscribers; ``reason`` (str) is for its log.

        Does nothing once the image is closed.
        """
        raise _abstract(self, "reject")

    def __repr__(self):
        return (f"<{type(self).__name__} session_id={self.session_id} join_position={self.join_position} "
                f"position={self.position()} closed={bool(self.is_closed())}>")


cdef class Subscription:
    """Receives the images of one channel and stream id."""

    cdef bint is_connected(self) noexcept:
        return False

    cdef bint is_closed(self) noexcept:
        return True

    cdef int image_count(self) noexcept:
        return 0

    cdef Image image_at_index(self, int index):
        raise _abstract(self, "image_at_index")

    cdef Image image_by_session_id(self, int32_t session_id):
        raise _abstract(self, "image_by_session_id")

    cdef Image take_new_image(self):
        raise _abstract(self, "take_new_image")

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        raise _abstract(self, "controlled_poll")

    cdef str resolved_endpoint(self):
        raise _abstract(self, "resolved_endpoint")

    cdef PendingAdd begin_add_destination(self, str channel):
        raise _abstract(self, "begin_add_destination")

    cdef PendingAdd begin_remove_destination(self, str channel):
        raise _abstract(self, "begin_remove_destination")

    cpdef int close(self) except -1:
        raise _abstract(self, "close")

    def __repr__(self):
        return f"<{type(self).__name__} {self.channel} stream_id={self.stream_id}>"


cdef class Publication:
    """Appends messages to one channel and stream id."""

    cdef bint is_connected(self) noexcept:
        return False

    cdef bint is_closed(self) noexcept:
        return True

    cdef int64_t position(self) noexcept:
        return CLOSED

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        raise _abstract(self, "offer")

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        raise _abstract(self, "offer_vectors")

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        raise _abstract(self, "try_claim")

    cdef int commit(self, Claim* claim) except -1:
        raise _abstract(self, "commit")

    cdef int abort(self, Claim* claim) except -1:
        raise _abstract(self, "abort")

    cdef int64_t available_window(self) noexcept:
        return CLOSED

    cdef PendingAdd begin_add_destination(self, str channel):
        raise _abstract(self, "begin_add_destination")

    cdef PendingAdd begin_remove_destination(self, str channel):
        raise _abstract(self, "begin_remove_destination")

    cdef int64_t offer_block(self, const uint8_t* block, size_t length) except? -6:
        raise _abstract(self, "offer_block")

    cdef int64_t append_padding(self, size_t length) except? -6:
        raise _abstract(self, "append_padding")

    cpdef int revoke(self) except -1:
        """Close an exclusive publication; what subscribers have not read yet they never read."""
        raise _abstract(self, "revoke")

    cpdef int close(self) except -1:
        raise _abstract(self, "close")

    def __repr__(self):
        return (f"<{type(self).__name__} {self.channel} stream_id={self.stream_id} "
                f"session_id={self.session_id}>")


cdef class Counter:
    """A counter that this client allocated in the driver; its value can be read by any process."""

    cdef int64_t get(self) noexcept nogil:
        cdef int64_t* address = self._value
        return container_get_acquire(address) if address != NULL else NULL_VALUE

    cdef void set(self, int64_t value) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL:
            container_set_release(address, value)

    cdef void increment(self) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL:
            container_increment(address)

    cdef void propose_max(self, int64_t value) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL and address[0] < value:
            container_set_release(address, value)

    cdef void set_reference_id(self, int64_t reference_id) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL:
            container_set_release(address + REFERENCE_ID_OFFSET // sizeof(int64_t), reference_id)

    cpdef int close(self) except -1:
        raise _abstract(self, "close")

    @property
    def value(self):
        """The value now (int); -1 once closed."""
        return self.get()

    def __repr__(self):
        return f"<{type(self).__name__} {self.counter_id} {self.label!r} value={self.get()}>"


cdef class Counters:
    """Reads the counters of a driver: metadata records of 512 bytes and value records of 128 bytes.

    A counter id out of range, or any id once the client is closed, reads as an unused record.
    """

    cdef void wrap(self, const uint8_t* metadata, size_t metadata_length,
                   const uint8_t* values, size_t values_length) noexcept nogil:
        self._metadata = metadata
        self._values = values
        self._capacity = 0
        if metadata != NULL and values != NULL:
            self._capacity = <int32_t> min(metadata_length // METADATA_LENGTH, values_length // VALUE_LENGTH)

    cdef int32_t capacity(self) noexcept nogil:
        return self._capacity

    cdef int32_t state(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return COUNTER_UNUSED
        return container_get32_acquire(<const int32_t*> (self._metadata + <size_t> counter_id * METADATA_LENGTH))

    cdef int32_t type_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return (<const int32_t*> (
            self._metadata + <size_t> counter_id * METADATA_LENGTH + TYPE_ID_OFFSET))[0]

    cdef const uint8_t* key(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL
        return self._metadata + <size_t> counter_id * METADATA_LENGTH + KEY_OFFSET

    cdef int64_t value(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return container_get_acquire(<const int64_t*> (self._values + <size_t> counter_id * VALUE_LENGTH))

    cdef int64_t registration_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return container_get_acquire(<const int64_t*> (
            self._values + <size_t> counter_id * VALUE_LENGTH + REGISTRATION_ID_OFFSET))

    cdef int64_t owner_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return (<const int64_t*> (self._values + <size_t> counter_id * VALUE_LENGTH + OWNER_ID_OFFSET))[0]

    cdef int64_t reference_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return container_get_acquire(<const int64_t*> (
            self._values + <size_t> counter_id * VALUE_LENGTH + REFERENCE_ID_OFFSET))

    cdef str label(self, int32_t counter_id):
        cdef const uint8_t* record
        cdef int32_t length
        if not 0 <= counter_id < self._capacity:
            return ""
        record = self._metadata + <size_t> counter_id * METADATA_LENGTH
        length = container_get32_acquire(<const int32_t*> (record + LABEL_LENGTH_OFFSET))
        length = max(0, min(length, MAX_LABEL_LENGTH))
        return (<const char*> record + LABEL_OFFSET)[:length].decode("ascii", "replace")

    def read(self):
        """All allocated counters as a list of ``(counter_id, type_id, label, value)``, in the order of their ids."""
        cdef int32_t counter_id
        cdef int32_t state
        cdef list result = []
        for counter_id in range(self._capacity):
            state = self.state(counter_id)
            if state == COUNTER_UNUSED:
                break
            if state == COUNTER_ALLOCATED:
                result.append((counter_id, self.type_id(counter_id), self.label(counter_id), self.value(counter_id)))
        return result


cdef class Clock:
    """Two clocks: a monotonic one in nanoseconds, and the time since 1970 in milliseconds or nanoseconds."""

    cdef int64_t nano_time(self) noexcept nogil:
        return 0

    cdef int64_t coarse_nano_time(self) noexcept nogil:
        return self.nano_time()

    cdef int64_t epoch_ms(self) noexcept nogil:
        return 0

    cdef int64_t epoch_ns(self) noexcept nogil:
        return self.epoch_ms() * 1_000_000


cdef class SystemClock(Clock):
    """The machine's clocks."""

    cdef int64_t nano_time(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec

    cdef int64_t coarse_nano_time(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CONTAINER_COARSE_CLOCK, &now)
        return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec

    cdef int64_t epoch_ms(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t> now.tv_sec * 1_000 + now.tv_nsec // 1_000_000

    cdef int64_t epoch_ns(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef class ClientListener:
    """The client's conductor reports that a counter or the client itself is gone."""

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        pass

    cdef void on_close(self) noexcept nogil:
        pass


cdef class PendingAdd:
    """What the driver has been asked to add or to remove, until it answers."""

    cdef object poll(self):
        raise _abstract(self, "poll")

    cpdef int close(self) except -1:
        raise _abstract(self, "close")


cdef class Client:
    """Adds and closes publications, subscriptions and counters."""

    cdef int64_t client_id(self) noexcept:
        return NULL_VALUE

    cdef int64_t next_correlation_id(self) except? -1:
        raise _abstract(self, "next_correlation_id")

    cdef int32_t next_session_id(self, int32_t stream_id) except? -1:
        raise _abstract(self, "next_session_id")

    cdef Publication add_publication(self, str channel, int32_t stream_id):
        raise _abstract(self, "add_publication")

    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id):
        raise _abstract(self, "add_exclusive_publication")

    cdef Subscription add_subscription(self, str channel, int32_t stream_id):
        raise _abstract(self, "add_subscription")

    cdef Counter add_counter(self, int32_t type_id, bytes key, str label):
        raise _abstract(self, "add_counter")

    cdef Counters counters(self):
        raise _abstract(self, "counters")

    cdef int add_listener(self, ClientListener listener) except -1:
        raise _abstract(self, "add_listener")

    cdef int remove_listener(self, ClientListener listener) except -1:
        raise _abstract(self, "remove_listener")

    cdef bint is_invoker(self) noexcept nogil:
        return False

    cdef int invoke(self) except -1:
        return 0

    cpdef bint is_closed(self) noexcept:
        return True

    @property
    def close_reason(self):
        """Why it is closed, in the words of what ended it (str); None while it is open."""
        return "closed" if self.is_closed() else None

    cpdef int close(self) except -1:
        raise _abstract(self, "close")

    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive):
        raise _abstract(self, "begin_add_publication")

    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images):
        raise _abstract(self, "begin_add_subscription")

    cdef PendingAdd begin_add_counter(self, int32_t type_id, bytes key, str label):
        raise _abstract(self, "begin_add_counter")


cdef class SnapshotWriter:
    """A snapshot that is being published and recorded at the same time."""

    cdef int check(self) except -1:
        raise _abstract(self, "check")

    cdef int64_t recorded_position(self) except? -1:
        raise _abstract(self, "recorded_position")

    cdef bint is_complete(self) except -1:
        raise _abstract(self, "is_complete")

    cpdef int close(self) except -1:
        raise _abstract(self, "close")


cdef class SnapshotReader:
    """A snapshot that is being replayed: whole once ``image`` was read up to ``stop_position`` (int), never before."""

    cdef int check(self) except -1:
        raise _abstract(self, "check")

    cpdef int close(self) except -1:
        raise _abstract(self, "close")


cdef class SnapshotStore:
    """Where snapshots are recorded and replayed from, and the log is replayed from: an archive, or memory."""

    cdef SnapshotWriter create(self, IdleStrategy idle):
        raise _abstract(self, "create")

    cdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle):
        raise _abstract(self, "open")

    cdef SnapshotReader open_log(
            self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle):
        raise _abstract(self, "open_log")


cdef class MarkFile:
    """What the agent writes to its member's mark file."""

    cdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        raise _abstract(self, "update_activity_timestamp")

    cdef int set_member_id(self, int32_t member_id) except -1:
        raise _abstract(self, "set_member_id")

    cdef int signal_terminated(self) except -1:
        raise _abstract(self, "signal_terminated")

    cpdef int close(self) except -1:
        raise _abstract(self, "close")
