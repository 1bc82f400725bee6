# Frames and what is said about them: constants, headers, claims. Plain C, without a class.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t


cdef enum:
    NULL_VALUE = -1             # Aeron's application null: ids, positions, timestamps
    FRAME_HEADER_LENGTH = 32    # bytes of a data frame's header, and the alignment of frames
    FRAME_FLAG_BEGIN = 0x80
    FRAME_FLAG_END = 0x40
    FRAME_FLAGS_UNFRAGMENTED = 0xC0
    MAX_MESSAGE_LENGTH = 16 * 1024 * 1024   # of any publication (upstream: FrameDescriptor.java)
    MTU_LENGTH_MAX = 65504                  # of any channel
    TERM_LENGTH_MIN = 64 * 1024
    TERM_LENGTH_MAX = 1024 * 1024 * 1024


# Results of an offer or a claim that are not positions.
cdef enum:
    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5
    PUBLICATION_ERROR = -6      # a Python exception is set


# A fragment handler's instruction to the poll; the values are Aeron's.
cdef enum Action:
    ACTION_ABORT = 1            # the frame is not consumed, the poll ends
    ACTION_BREAK = 2            # the frame is consumed, the poll ends
    ACTION_COMMIT = 3           # the frame is consumed, the position is published at once
    ACTION_CONTINUE = 4


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
