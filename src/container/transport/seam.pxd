# The seam: everything that the agent, the archive client and the cluster client ask of what carries their messages.
#
# Each class here is abstract. `aeron/` implements them over a media driver, `testing/memory_transport.pyx` over
# memory. Calls that can be made a million times a second are `noexcept nogil` or have a C error return.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from container.transport.idle_strategy cimport IdleStrategy


cdef enum:
    NULL_VALUE = -1             # Aeron's application null: ids, positions, timestamps
    FRAME_HEADER_LENGTH = 32    # bytes of a data frame's header, and the alignment of frames
    FRAME_FLAG_BEGIN = 0x80
    FRAME_FLAG_END = 0x40
    FRAME_FLAGS_UNFRAGMENTED = 0xC0

# Results of an offer or a claim that are not positions.
cdef enum:
    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5
    PUBLICATION_ERROR = -6      # a Python exception is set

# What a fragment handler asks the poll to do next; the values are Aeron's.
cdef enum Action:
    ACTION_ABORT = 1            # the frame is not consumed, the poll ends
    ACTION_BREAK = 2            # the frame is consumed, the poll ends
    ACTION_COMMIT = 3           # the frame is consumed, the position is published at once
    ACTION_CONTINUE = 4

# State of a counter's record.
cdef enum:
    COUNTER_UNUSED = 0
    COUNTER_ALLOCATED = 1
    COUNTER_RECLAIMED = -1


cdef struct FrameHeader:
    int64_t position            # aligned end of the frame, or of the last frame of a reassembled message
    int64_t reserved_value
    int32_t frame_length        # 32 + payload; of a reassembled message 32 + its whole payload
    int32_t term_offset         # of the frame, or of the first frame of a reassembled message
    int32_t session_id
    int32_t stream_id
    int32_t term_id
    int32_t initial_term_id
    int32_t position_bits_to_shift
    uint8_t flags


cdef struct DataFrame:          # the header of a frame as it lies in a log (upstream: DataHeaderFlyweight.java)
    int32_t frame_length
    uint8_t version
    uint8_t flags
    uint16_t type
    int32_t term_offset
    int32_t session_id
    int32_t stream_id
    int32_t term_id
    int64_t reserved_value


cdef struct BufferVector:       # one part of a gathered offer; the layout is the C client's aeron_iovec_t
    uint8_t* data
    size_t length


cdef struct Claim:              # a claimed range; it begins with the C client's aeron_buffer_claim_t
    uint8_t* frame_header
    uint8_t* data               # first byte that the claimer writes
    size_t length
    int32_t term_id             # the frame's when it was claimed: later frames in this memory differ


cdef class FragmentHandler:
    # buffer: payload after the frame header, borrowed until the call returns. Return an Action. An exception ends the
    # poll with the frame consumed (as if ACTION_BREAK) and is raised by the poll.
    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1


cdef class BlockHandler:
    # block: frames of one term with their headers, aligned to 32 bytes, borrowed until the call returns. They are whole
    # data frames, or one padding frame: its length is all of it, and nothing is behind its header. An exception ends
    # the poll with the block consumed and is raised by the poll.
    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1


cdef class Image:
    cdef readonly int32_t session_id
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t term_buffer_length
    cdef readonly int32_t mtu_length
    cdef readonly int64_t join_position
    cdef readonly int64_t correlation_id                    # another one when the session comes back
    cdef readonly str source_identity                       # a UDP sender's "host:port", else "aeron:ipc": of spies too
    cdef int64_t position(self) noexcept
    cdef int64_t end_of_stream_position(self) noexcept      # INT64_MAX while not known
    cdef bint is_end_of_stream(self) noexcept
    cdef bint is_closed(self) noexcept
    cdef int active_transport_count(self) noexcept          # UDP senders heard lately; 0 for IPC and once closed
    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1
    # Frames that begin below limit_position are delivered whole; a poll never crosses the end of a term.
    cdef int bounded_controlled_poll(
        self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1
    # Bytes consumed: at most one block, which ends at the limit, before a padding frame or with its term. A padding
    # frame comes alone, whatever its length; a data frame longer than the limit never comes.
    cdef int block_poll(self, BlockHandler handler, int block_length_limit) except -1
    # The driver gives the publication's image up, for all its subscribers; nothing once the image is closed.
    cpdef int reject(self, str reason) except -1


cdef class Subscription:
    cdef readonly str channel
    cdef readonly int32_t stream_id
    cdef readonly int64_t registration_id
    cdef bint is_connected(self) noexcept
    cdef bint is_closed(self) noexcept
    cdef int image_count(self) noexcept
    cdef Image image_at_index(self, int index)              # None when there is none
    cdef Image image_by_session_id(self, int32_t session_id)
    # Each image once, in the order in which they came, or None. Only where the add asked for it. One that has gone in
    # the meantime comes too, closed at its join position: so whoever asks in each duty cycle misses none.
    cdef Image take_new_image(self)
    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1
    cdef str resolved_endpoint(self)                        # "host:port" of a UDP endpoint, "" until bound
    # Of a channel with control-mode=manual. poll() returns the subscription when it is done.
    cdef PendingAdd begin_add_destination(self, str channel)
    cdef PendingAdd begin_remove_destination(self, str channel)
    cpdef int close(self) except -1                         # may be called twice


cdef class Publication:
    cdef readonly str channel
    cdef readonly int32_t stream_id
    cdef readonly int32_t session_id
    cdef readonly int64_t registration_id
    cdef readonly int32_t max_payload_length                # of one frame: MTU - 32
    cdef readonly int32_t max_message_length
    cdef readonly int32_t term_buffer_length
    cdef readonly int32_t initial_term_id
    cdef bint is_connected(self) noexcept
    cdef bint is_closed(self) noexcept
    cdef int64_t position(self) noexcept
    # New position, or one of the results above. PUBLICATION_ERROR: the arguments are refused (message too long).
    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6
    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6
    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6
    # ClaimLostError when the driver has given the claim up. An abort of such a claim does nothing.
    cdef int commit(self, Claim* claim) except -1
    cdef int abort(self, Claim* claim) except -1
    cdef int64_t available_window(self) noexcept            # bytes until BACK_PRESSURED: 0 or less when it is; CLOSED
    # As of a subscription. poll() returns the publication.
    cdef PendingAdd begin_add_destination(self, str channel)
    cdef PendingAdd begin_remove_destination(self, str channel)
    # These are of exclusive publications alone. A block is whole data frames, each with the header that it has at its
    # place in the stream: it continues the term, or begins the next one when that is full. It may go beyond the window.
    # AeronError, with nothing sent, when a header is wrong or the term has no room for it.
    cdef int64_t offer_block(self, const uint8_t* block, size_t length) except? -6
    # A padding frame of 32 + length bytes, in place of one that was recorded. ADMIN_ACTION when the term is full: call
    # again. AeronError when the rest of the term is shorter.
    cdef int64_t append_padding(self, size_t length) except? -6
    cpdef int revoke(self) except -1                        # close; what is not read yet is never read
    cpdef int close(self) except -1                         # may be called twice


cdef class Counter:                                         # a counter that we allocated
    cdef readonly int32_t counter_id
    cdef readonly int64_t registration_id
    cdef readonly str label
    cdef int64_t* _value                                    # NULL once closed
    cdef int64_t get(self) noexcept nogil
    cdef void set(self, int64_t value) noexcept nogil
    cdef void increment(self) noexcept nogil                # atomic
    cdef void propose_max(self, int64_t value) noexcept nogil
    cdef void set_reference_id(self, int64_t reference_id) noexcept nogil    # of what the counter belongs to
    cpdef int close(self) except -1


cdef class Counters:                                        # reads the records of all counters of a driver
    cdef const uint8_t* _metadata                           # NULL once the client is closed
    cdef const uint8_t* _values
    cdef int32_t _capacity                                  # records that fit
    cdef void wrap(self, const uint8_t* metadata, size_t metadata_length,
                   const uint8_t* values, size_t values_length) noexcept nogil
    cdef int32_t capacity(self) noexcept nogil              # 0 once the client is closed
    cdef int32_t state(self, int32_t counter_id) noexcept nogil
    cdef int32_t type_id(self, int32_t counter_id) noexcept nogil
    cdef const uint8_t* key(self, int32_t counter_id) noexcept nogil     # 112 bytes; NULL when out of range
    cdef int64_t value(self, int32_t counter_id) noexcept nogil          # acquire; NULL_VALUE when out of range
    cdef int64_t registration_id(self, int32_t counter_id) noexcept nogil
    cdef int64_t owner_id(self, int32_t counter_id) noexcept nogil
    cdef int64_t reference_id(self, int32_t counter_id) noexcept nogil
    cdef str label(self, int32_t counter_id)


cdef class Clock:
    cdef int64_t nano_time(self) noexcept nogil             # monotonic
    cdef int64_t coarse_nano_time(self) noexcept nogil      # the same, milliseconds behind, for a third of the cost
    cdef int64_t epoch_ms(self) noexcept nogil
    cdef int64_t epoch_ns(self) noexcept nogil


cdef class ClientListener:
    # Called by the thread that does the client's conducting, possibly with no GIL: set flags, nothing else.
    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil
    cdef void on_close(self) noexcept nogil


cdef class PendingAdd:                                      # what the driver has been asked to add or to remove
    # What was added, or whose destination it was; None until the driver has answered. Raises when it refuses. Never
    # waits, but where the driver must be asked again. A client in invoker mode has to be invoked meanwhile.
    cdef object poll(self)
    cpdef int close(self) except -1                         # gives it up; nothing once poll() returned it or raised


cdef class Client:
    cdef readonly Clock clock
    cdef readonly str client_name
    cdef int64_t client_id(self) noexcept
    cdef int64_t next_correlation_id(self) except? -1
    cdef int32_t next_session_id(self, int32_t stream_id) except? -1
    # These block, for at most the driver timeout, until the driver has answered.
    cdef Publication add_publication(self, str channel, int32_t stream_id)
    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id)
    cdef Subscription add_subscription(self, str channel, int32_t stream_id)
    cdef Counter add_counter(self, int32_t type_id, bytes key, str label)
    cdef Counters counters(self)
    cdef int add_listener(self, ClientListener listener) except -1
    cdef int remove_listener(self, ClientListener listener) except -1
    cdef bint is_invoker(self) noexcept nogil               # True: invoke() conducts, on the caller's thread
    cdef int invoke(self) except -1                         # work done; 0 when another thread conducts
    cpdef bint is_closed(self) noexcept
    cpdef int close(self) except -1                         # closes what it added; may be called twice
    # These ask the driver and return immediately.
    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive)
    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images)
    cdef PendingAdd begin_add_counter(self, int32_t type_id, bytes key, str label)


cdef class SnapshotWriter:                                  # a snapshot being recorded
    cdef readonly Publication publication
    cdef readonly int64_t recording_id
    cdef int check(self) except -1                          # raises when the store reported an error
    # Up to where the snapshot is recorded, and whether that is all that was published. Both raise if it stopped.
    cdef int64_t recorded_position(self) except? -1
    cdef bint is_complete(self) except -1
    cpdef int close(self) except -1


cdef class SnapshotReader:                                  # a snapshot being replayed
    cdef readonly Image image
    cdef readonly int64_t stop_position                     # where the recording ends, by the store
    cdef int check(self) except -1
    cpdef int close(self) except -1


cdef class SnapshotStore:
    # Both block, idling with `idle`, until the recording or the replay has begun; the store's own time limits apply.
    cdef SnapshotWriter create(self, IdleStrategy idle)
    cdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle)
    # The member's own recording of the log from position up to end_position; blocks as the others do. session_id is
    # that of the log which begins at end_position, or near it.
    cdef SnapshotReader open_log(
        self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle)


cdef class MarkFile:
    cdef int update_activity_timestamp(self, int64_t now_ms) except -1
    cdef int set_member_id(self, int32_t member_id) except -1
    cdef int signal_terminated(self) except -1
    cpdef int close(self) except -1


cdef inline int32_t align_frame(int32_t length) noexcept nogil:
    return (length + (FRAME_HEADER_LENGTH - 1)) & ~(FRAME_HEADER_LENGTH - 1)


cdef inline int64_t compute_position(
        int32_t term_id, int32_t term_offset, int32_t position_bits_to_shift, int32_t initial_term_id) noexcept nogil:
    # Term ids wrap around as 32-bit numbers do.
    cdef int64_t term_count = <int64_t> <int32_t> (<unsigned int> term_id - <unsigned int> initial_term_id)
    return (term_count << position_bits_to_shift) + term_offset


# A claim that holds up its stream for too long is padded over by the media driver. The memory of its frame then belongs
# to nobody, or, terms later, to another frame: it must not be written to. The frame's length is negative while the
# claim is open, and whoever makes it positive, the claimer or the driver, decides what becomes of the frame.
cdef extern from *:
    """
    #include <stdint.h>
    static inline int container_end_frame(int32_t* frame_length, int32_t length)
    {
        int32_t open = -length;
        return __atomic_compare_exchange_n(frame_length, &open, length, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    """
    bint _end_frame "container_end_frame" (int32_t* frame_length, int32_t length) noexcept nogil


cdef enum:
    FRAME_TYPE_OFFSET = 6
    FRAME_TERM_ID_OFFSET = 20
    FRAME_TYPE_PADDING = 0
    FRAME_TYPE_DATA = 1


cdef inline void begin_claim(Claim* claim) noexcept nogil:
    claim.term_id = (<int32_t*> (claim.frame_header + FRAME_TERM_ID_OFFSET))[0]


cdef inline bint is_claim_open(const Claim* claim) noexcept nogil:
    return ((<const int32_t*> claim.frame_header)[0] == -(FRAME_HEADER_LENGTH + <int32_t> claim.length)
            and (<const int32_t*> (claim.frame_header + FRAME_TERM_ID_OFFSET))[0] == claim.term_id)


cdef inline bint end_claim(Claim* claim, bint is_committed) noexcept nogil:
    # False, with nothing written, when the driver has given the claim up.
    if not is_claim_open(claim):
        return False
    if not is_committed:
        claim.frame_header[FRAME_TYPE_OFFSET] = FRAME_TYPE_PADDING
    return _end_frame(<int32_t*> claim.frame_header, FRAME_HEADER_LENGTH + <int32_t> claim.length)


cdef object lost_claim(Publication publication)     # the error for the caller to raise


# What offer_block and append_padding raise for a publication that is at this position.
cdef int check_block(Publication publication, int64_t position, const uint8_t* block, size_t length) except -1
cdef int check_padding(Publication publication, int64_t position, size_t length) except -1


cdef str publication_result_name(int64_t result)


cdef class SystemClock(Clock):
    pass
