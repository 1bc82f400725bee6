# What all messages share: the 8-byte header, var data, null values and error codes of Simple Binary Encoding.
#
# Everything is little-endian, inline, and works on borrowed bytes: no allocation, no GIL, no copy. A reader
# is given the number of bytes that it may read and never reads further; a writer likewise.
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the codecs copy integers as they lie in memory and need a little-endian machine"
    #endif
    """

cdef extern from "<stdint.h>":
    const int32_t SBE_NULL_INT32 "INT32_MIN"  # null of an int32 and of every enum
    const int64_t SBE_NULL_INT64 "INT64_MIN"  # null of an int64 and of a timestamp

cdef enum:
    SBE_NULL_VERSION = 0         # null of a semantic version (major << 16 | minor << 8 | patch)
    SBE_NULL_CAPACITY = 0        # null of a capacity in bytes
    SBE_NULL_UINT8 = 255

    SBE_HEADER_LENGTH = 8        # of the message header in front of each block
    SBE_VAR_LENGTH_LENGTH = 4    # of the u32 in front of var data
    SBE_VAR_LENGTH_MAX = 1 << 30  # the longest var data that encoders of the protocol accept
    SBE_GROUP_HEADER_LENGTH = 4  # of the block length and the count in front of a repeating group
    SBE_GROUP_COUNT_MAX = 65534  # the most elements that encoders of the protocol accept

    SBE_OK = 0
    SBE_TRUNCATED = -1  # the bytes end before the header, the var data or the payload does
    SBE_SCHEMA = -2     # another schema id
    SBE_TEMPLATE = -3   # another message of the schema
    SBE_BLOCK = -4      # the block length of the header reaches beyond the bytes
    SBE_SHORT_BLOCK = -6  # the block length of the header is less than the oldest version's
    SBE_CAPACITY = -5   # the message does not fit the buffer that it is to be written to

ctypedef struct MessageHeader:
    uint16_t block_length  # of the fixed fields as the sender knows them: var data begins behind it
    uint16_t template_id
    uint16_t schema_id
    uint16_t version       # the sender's version of the schema

ctypedef struct VarData:
    const uint8_t* data  # borrowed from the wrapped bytes; NULL if the sender's version has no such field
    uint32_t length

ctypedef struct GroupData:
    const uint8_t* data     # borrowed: the first element
    size_t length           # of all elements
    uint16_t block_length   # of an element's fixed fields as the sender knows them
    uint16_t count          # of elements


cdef inline const char* sbe_error_text(int error) noexcept nogil:
    """What one of the negative results means, for use in an error message."""
    if error == SBE_OK:
        return "no error"
    if error == SBE_TRUNCATED:
        return "message is truncated"
    if error == SBE_SCHEMA:
        return "message is of another schema"
    if error == SBE_TEMPLATE:
        return "message has another template id"
    if error == SBE_BLOCK:
        return "block length reaches beyond the message"
    if error == SBE_SHORT_BLOCK:
        return "block is shorter than in any version"
    if error == SBE_CAPACITY:
        return "message does not fit the buffer"
    return "unknown codec error"


cdef inline uint8_t sbe_get_uint8(const uint8_t* source) noexcept nogil:
    return source[0]


cdef inline uint16_t sbe_get_uint16(const uint8_t* source) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, source, sizeof(value))
    return value


cdef inline uint32_t sbe_get_uint32(const uint8_t* source) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, source, sizeof(value))
    return value


cdef inline int32_t sbe_get_int32(const uint8_t* source) noexcept nogil:
    cdef int32_t value
    memcpy(&value, source, sizeof(value))
    return value


cdef inline int64_t sbe_get_int64(const uint8_t* source) noexcept nogil:
    cdef int64_t value
    memcpy(&value, source, sizeof(value))
    return value


cdef inline void sbe_put_uint8(uint8_t* target, uint8_t value) noexcept nogil:
    target[0] = value


cdef inline void sbe_put_uint16(uint8_t* target, uint16_t value) noexcept nogil:
    memcpy(target, &value, sizeof(value))


cdef inline void sbe_put_uint32(uint8_t* target, uint32_t value) noexcept nogil:
    memcpy(target, &value, sizeof(value))


cdef inline void sbe_put_int32(uint8_t* target, int32_t value) noexcept nogil:
    memcpy(target, &value, sizeof(value))


cdef inline void sbe_put_int64(uint8_t* target, int64_t value) noexcept nogil:
    memcpy(target, &value, sizeof(value))


cdef inline int sbe_read_header(const uint8_t* buffer, size_t length, MessageHeader* out) noexcept nogil:
    """The message header at `buffer`: SBE_OK, or SBE_TRUNCATED when there are fewer than 8 bytes."""
    if length < SBE_HEADER_LENGTH:
        return SBE_TRUNCATED
    out.block_length = sbe_get_uint16(buffer)
    out.template_id = sbe_get_uint16(buffer + 2)
    out.schema_id = sbe_get_uint16(buffer + 4)
    out.version = sbe_get_uint16(buffer + 6)
    return SBE_OK


cdef inline void sbe_put_header(
    uint8_t* buffer, uint16_t block_length, uint16_t template_id, uint16_t schema_id, uint16_t version
) noexcept nogil:
    """Write the 8 bytes of a message header; the caller has made sure of the room."""
    sbe_put_uint16(buffer, block_length)
    sbe_put_uint16(buffer + 2, template_id)
    sbe_put_uint16(buffer + 4, schema_id)
    sbe_put_uint16(buffer + 6, version)


cdef inline int sbe_wrap_block(
    const uint8_t* buffer, size_t length, uint16_t schema_id, uint16_t template_id,
    uint16_t min_block_length, MessageHeader* header, size_t* encoded_length
) noexcept nogil:
    """Read the header and check that the message is the expected one, that its block fits, and that it is a block.

    `encoded_length` becomes the end of the block, where var data begins; on an error, the bytes needed. A block shorter
    than the oldest version's is no message of anybody: fields would be missing that every version has, and var data
    would be taken from the block's own bytes.
    """
    cdef int result = sbe_read_header(buffer, length, header)
    encoded_length[0] = SBE_HEADER_LENGTH
    if result < 0:
        return result
    if header.schema_id != schema_id:
        return SBE_SCHEMA
    if header.template_id != template_id:
        return SBE_TEMPLATE
    if header.block_length < min_block_length:
        encoded_length[0] += min_block_length
        return SBE_SHORT_BLOCK
    encoded_length[0] += header.block_length
    return SBE_BLOCK if encoded_length[0] > length else SBE_OK


cdef inline int sbe_take_var_data(
    const uint8_t* buffer, size_t length, size_t* position, VarData* out
) noexcept nogil:
    """The var data at `position`, at most `length`, which moves behind it; on an error to the bytes needed.

    Compares by subtraction: a length of 2^32-1 must not wrap around.
    """
    cdef uint32_t data_length
    if length - position[0] < SBE_VAR_LENGTH_LENGTH:
        position[0] += SBE_VAR_LENGTH_LENGTH
        return SBE_TRUNCATED
    data_length = sbe_get_uint32(buffer + position[0])
    position[0] += SBE_VAR_LENGTH_LENGTH
    if data_length > length - position[0]:
        position[0] += data_length
        return SBE_TRUNCATED
    out.data = buffer + position[0]
    out.length = data_length
    position[0] += data_length
    return SBE_OK


cdef inline int64_t sbe_put_var_data(
    uint8_t* buffer, size_t capacity, size_t position, const uint8_t* data, uint32_t data_length
) noexcept nogil:
    """Write a length and its bytes at `position`: the position behind them, or SBE_CAPACITY.

    `data` may be NULL when `data_length` is 0.
    """
    if position > capacity or capacity - position < SBE_VAR_LENGTH_LENGTH:
        return SBE_CAPACITY
    if data_length > capacity - position - SBE_VAR_LENGTH_LENGTH:
        return SBE_CAPACITY
    sbe_put_uint32(buffer + position, data_length)
    position += SBE_VAR_LENGTH_LENGTH
    if data_length > 0:
        memcpy(buffer + position, data, data_length)
    return <int64_t>(position + data_length)


cdef inline int sbe_take_group(
    const uint8_t* buffer, size_t length, uint16_t min_block_length, int var_count, size_t* position, GroupData* out
) noexcept nogil:
    """The repeating group at `position`, which moves behind it; on an error to the bytes needed.

    Each element, and each of its `var_count` var data, is within the bytes then.
    """
    cdef VarData var
    cdef size_t begin
    cdef int result, index, element
    if length - position[0] < SBE_GROUP_HEADER_LENGTH:
        position[0] += SBE_GROUP_HEADER_LENGTH
        return SBE_TRUNCATED
    out.block_length = sbe_get_uint16(buffer + position[0])
    out.count = sbe_get_uint16(buffer + position[0] + 2)
    position[0] += SBE_GROUP_HEADER_LENGTH
    if out.count > 0 and out.block_length < min_block_length:
        position[0] += min_block_length
        return SBE_SHORT_BLOCK
    begin = position[0]
    for element in range(out.count):
        if out.block_length > length - position[0]:
            position[0] += out.block_length
            return SBE_TRUNCATED
        position[0] += out.block_length
        for index in range(var_count):
            result = sbe_take_var_data(buffer, length, position, &var)
            if result < 0:
                return result
    out.data = buffer + begin
    out.length = position[0] - begin
    return SBE_OK


cdef inline int64_t sbe_put_group(
    uint8_t* buffer, size_t capacity, int64_t position, uint16_t block_length, uint16_t count
) noexcept nogil:
    """Write the header of a repeating group: the position behind it, or SBE_CAPACITY, also where it is given that."""
    if position < 0 or <size_t>position + SBE_GROUP_HEADER_LENGTH > capacity:
        return SBE_CAPACITY
    sbe_put_uint16(buffer + position, block_length)
    sbe_put_uint16(buffer + position + 2, count)
    return position + SBE_GROUP_HEADER_LENGTH
