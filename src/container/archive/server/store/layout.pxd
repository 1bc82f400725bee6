# Where the frames of a recording lie: segment bases, term ids, offsets in a frame's header.
#
# Upstream: AeronArchive.segmentFileBasePosition, LogBufferDescriptor.java, DataHeaderFlyweight.java.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs cimport sbe

cdef enum:
    FRAME_HEADER_LENGTH = 32
    FRAME_ALIGNMENT = 32
    FRAME_TYPE_PAD = 0
    FRAME_TYPE_DATA = 1
    SECTOR_LENGTH = 512             # what a disk writes whole or not at all

# Offsets in a frame's header.
cdef enum:
    FRAME_VERSION_OFFSET = 4
    FRAME_TYPE_OFFSET = 6
    FRAME_TERM_OFFSET_OFFSET = 8
    FRAME_SESSION_ID_OFFSET = 12    # a checksum where the archive records these
    FRAME_STREAM_ID_OFFSET = 16
    FRAME_TERM_ID_OFFSET = 20

# Faults of a frame.
cdef enum:
    FRAME_OK = 0
    WRONG_LENGTH
    WRONG_VERSION
    WRONG_TYPE
    WRONG_TERM_OFFSET
    WRONG_TERM_ID
    WRONG_STREAM_ID
    WRONG_CHECKSUM


# How the frames of one recording lie; lengths are powers of two.
ctypedef struct Layout:
    int64_t first_segment_position      # where the first segment begins: the term in which the recording starts
    int32_t term_length
    int32_t segment_length
    int32_t initial_term_id
    int32_t stream_id
    int position_bits_to_shift          # log2 of the term length


cdef inline int64_t align_frame(int32_t frame_length) noexcept nogil:
    return (<int64_t> frame_length + FRAME_ALIGNMENT - 1) & ~<int64_t> (FRAME_ALIGNMENT - 1)


cdef inline int64_t segment_base(const Layout* layout, int64_t position) noexcept nogil:
    """Where the segment begins that a position lies in."""
    cdef int64_t first = layout.first_segment_position
    return first + ((position - first) & ~(<int64_t> layout.segment_length - 1))


cdef inline int32_t term_offset_at(const Layout* layout, int64_t position) noexcept nogil:
    return <int32_t> (position & (layout.term_length - 1))


cdef inline int32_t term_id_at(const Layout* layout, int64_t position) noexcept nogil:
    # Term ids wrap around at 32 bits.
    return <int32_t> (<uint32_t> (position >> layout.position_bits_to_shift) + <uint32_t> layout.initial_term_id)


cdef inline int wrong_header(const Layout* layout, const uint8_t* frame, int64_t position) noexcept nogil:
    """FRAME_OK when 32 bytes are the header of a frame at a position, which its term has room for."""
    cdef int32_t length = sbe.sbe_get_int32(frame)
    cdef int32_t term_offset = term_offset_at(layout, position)
    if length < FRAME_HEADER_LENGTH or length > layout.term_length - term_offset:
        return WRONG_LENGTH
    if frame[FRAME_VERSION_OFFSET] != 0:
        return WRONG_VERSION
    if sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET) > FRAME_TYPE_DATA:
        return WRONG_TYPE
    if sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET) != term_offset:
        return WRONG_TERM_OFFSET
    if sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET) != term_id_at(layout, position):
        return WRONG_TERM_ID
    if sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET) != layout.stream_id:
        return WRONG_STREAM_ID
    return FRAME_OK


cdef inline bint is_padding(const uint8_t* frame) noexcept nogil:
    return sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET) == FRAME_TYPE_PAD


cdef inline int layout_of(Layout* layout, object descriptor) except -1:
    """Fill in a layout from a RecordingDescriptor; ValueError when no recording can have it."""
    cdef int64_t term_length = descriptor.term_buffer_length, segment_length = descriptor.segment_file_length
    cdef int64_t start_position = descriptor.start_position
    if not (1 << 16) <= term_length <= (1 << 30) or term_length & (term_length - 1):
        raise ValueError(f"term length {term_length} of recording {descriptor.recording_id} must be a power of two "
                         "from 64 KiB to 1 GiB")
    if not term_length <= segment_length <= (1 << 30) or segment_length & (segment_length - 1):
        raise ValueError(f"segment length {segment_length} of recording {descriptor.recording_id} must be a power of "
                         "two, from the term length to 1 GiB")
    if start_position < 0 or start_position & (FRAME_ALIGNMENT - 1):
        raise ValueError(f"start position {start_position} of recording {descriptor.recording_id} must be a multiple "
                         "of 32 and not negative")
    layout.term_length = <int32_t> term_length
    layout.segment_length = <int32_t> segment_length
    layout.initial_term_id = descriptor.initial_term_id
    layout.stream_id = descriptor.stream_id
    layout.first_segment_position = start_position & ~(term_length - 1)
    layout.position_bits_to_shift = int(term_length).bit_length() - 1
    return 0
