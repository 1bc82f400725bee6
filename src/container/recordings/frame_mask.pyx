"""Which bytes of a log must be equal on all members that have it.

Not so the session id of a frame, which belongs to the stream that an archive recorded (a member that was behind has
recorded a replay) or is a checksum; its reserved value, in which drivers can keep times of their own; what lies between
a frame's end and the next frame; and what lies behind the header of padding, of which nothing else is recorded.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from container.codecs cimport sbe
from container.transport.frames cimport FRAME_HEADER_LENGTH, align_frame

cdef enum:
    FRAME_TYPE_OFFSET = 6
    FRAME_TERM_OFFSET_OFFSET = 8
    FRAME_SESSION_ID_OFFSET = 12
    FRAME_STREAM_ID_OFFSET = 16
    FRAME_RESERVED_VALUE_OFFSET = 24
    FRAME_TYPE_PAD = 0
    FRAME_TYPE_DATA = 1
    NO_FRAME = -1


cdef inline void _zero(uint8_t* target, int64_t length, int64_t begin, int64_t end) noexcept nogil:
    """Zero from an offset to another one, as far as these lie in the target."""
    begin = max(begin, <int64_t> 0)
    end = min(end, length)
    if begin < end:
        memset(target + begin, 0, <size_t> (end - begin))


cdef inline bint _is_frame(const uint8_t* frame, int64_t position, int32_t term_length) noexcept nogil:
    """Whether a header is that of a frame at this log position, as far as its neighbours depend on it."""
    cdef int32_t length = sbe.sbe_get_int32(frame)
    cdef int32_t term_offset = <int32_t> (position & (term_length - 1))
    return (
        FRAME_HEADER_LENGTH <= length <= term_length - term_offset
        and sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET) <= FRAME_TYPE_DATA
        and sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET) == term_offset
    )


def mask_frames(bytes block, bytearray target, int64_t begin, int64_t next_frame, int64_t content_end,
                int64_t last_frame, int32_t term_length):
    """Zero in ``target`` what need not be equal, by the frames in ``block``.

    Where no frame can be found all bytes count, up to the next Aeron term. The result continues in the block behind
    this one.

    Args:
        block: bytes of a log, which begin and end at multiples of 32.
        target: as many bytes (bytearray).
        begin: the log position (int) of the block.
        next_frame: where its first frame begins (int); may be behind the block.
        content_end: up to where what lies before that frame counts (int).
        last_frame: the frame (log position, int) that lies before that, -1 for none.
        term_length: of the recording, in bytes (int).

    Returns:
        (next_frame, content_end, last_frame, lost): the same three for the next block, and how many bytes of this one
        were in no frame that could be found (all int).

    Raises:
        ValueError: the lengths are not equal, or the first frame begins before the block.
    """
    cdef int64_t length = len(block)
    cdef const uint8_t* source = <const uint8_t*> PyBytes_AS_STRING(block)
    cdef uint8_t* zeroed
    cdef int64_t end = begin + length
    cdef int64_t offset, lost = 0
    cdef int32_t frame_length
    if len(target) != length:
        raise ValueError(f"target has {len(target)} bytes, and block {length}")
    if next_frame < begin:
        raise ValueError(f"next_frame {next_frame} lies before the block at {begin}")
    zeroed = <uint8_t*> PyByteArray_AS_STRING(target)
    if last_frame == NO_FRAME:
        lost = max(<int64_t> 0, min(next_frame, end) - begin)
    with nogil:
        _zero(zeroed, length, content_end - begin, next_frame - begin)
        while next_frame + FRAME_HEADER_LENGTH <= end:
            offset = next_frame - begin
            if not _is_frame(source + offset, next_frame, term_length):
                last_frame = NO_FRAME
                next_frame = (next_frame & -<int64_t> term_length) + term_length
                content_end = next_frame
                lost += min(next_frame, end) - begin - offset
                continue
            frame_length = sbe.sbe_get_int32(source + offset)
            _zero(zeroed, length, offset + FRAME_SESSION_ID_OFFSET, offset + FRAME_STREAM_ID_OFFSET)
            _zero(zeroed, length, offset + FRAME_RESERVED_VALUE_OFFSET, offset + FRAME_HEADER_LENGTH)
            last_frame = next_frame
            content_end = next_frame + frame_length
            if sbe.sbe_get_uint16(source + offset + FRAME_TYPE_OFFSET) == FRAME_TYPE_PAD:
                content_end = next_frame + FRAME_HEADER_LENGTH
            next_frame += align_frame(frame_length)
            _zero(zeroed, length, content_end - begin, next_frame - begin)
    return next_frame, content_end, last_frame, lost
