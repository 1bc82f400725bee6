# Parts that all messages share: header, var data, groups, null values and error codes of Simple Binary Encoding.
#
# Everything is little-endian, inline, and works on borrowed bytes: no allocation, no GIL, no copy. A reader
# is given the number of bytes that it may read and never reads further; a writer likewise.
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t


cdef extern from "sbe_codec.h" nogil:
    const int32_t SBE_NULL_INT32    # null of an int32 and of every enum
    const int64_t SBE_NULL_INT64    # null of an int64 and of a timestamp

    enum:
        SBE_NULL_VERSION            # 0, null of a semantic version (major << 16 | minor << 8 | patch)
        SBE_NULL_CAPACITY           # 0, null of a capacity in bytes
        SBE_NULL_UINT8              # 255

        SBE_HEADER_LENGTH           # 8, of the message header in front of each block
        SBE_VAR_LENGTH_LENGTH       # 4, of the u32 in front of var data
        SBE_VAR_LENGTH_MAX          # 1 << 30, the longest var data that encoders of the protocol accept
        SBE_GROUP_HEADER_LENGTH     # 4, of the block length and the count in front of a repeating group
        SBE_GROUP_COUNT_MAX         # 65534, the most elements that encoders of the protocol accept

        SBE_OK                      # 0
        SBE_TRUNCATED               # -1: the bytes end before the header, the var data or the payload does
        SBE_SCHEMA                  # -2: another schema id
        SBE_TEMPLATE                # -3: another message of the schema
        SBE_BLOCK                   # -4: the block length of the header reaches beyond the bytes
        SBE_CAPACITY                # -5: the message does not fit the buffer that it is to be written to
        SBE_SHORT_BLOCK             # -6: the block length of the header is less than the oldest version's

    ctypedef struct MessageHeader "sbe_MessageHeader":
        uint16_t block_length       # of the fixed fields as the sender knows them: var data begins behind it
        uint16_t template_id
        uint16_t schema_id
        uint16_t version            # the sender's version of the schema

    ctypedef struct VarData "sbe_VarData":
        const uint8_t* data         # borrowed from the wrapped bytes; NULL if the sender's version has no such field
        uint32_t length

    ctypedef struct GroupData "sbe_GroupData":
        const uint8_t* data         # borrowed: the first element
        size_t length               # of all elements
        uint16_t block_length       # of an element's fixed fields as the sender knows them
        uint16_t count              # of elements

    # The meaning of one of the negative results, for use in an error message.
    const char* sbe_error_text(int error) noexcept

    uint8_t sbe_get_uint8(const uint8_t* source) noexcept
    uint16_t sbe_get_uint16(const uint8_t* source) noexcept
    uint32_t sbe_get_uint32(const uint8_t* source) noexcept
    int32_t sbe_get_int32(const uint8_t* source) noexcept
    int64_t sbe_get_int64(const uint8_t* source) noexcept
    void sbe_put_uint8(uint8_t* target, uint8_t value) noexcept
    void sbe_put_uint16(uint8_t* target, uint16_t value) noexcept
    void sbe_put_uint32(uint8_t* target, uint32_t value) noexcept
    void sbe_put_int32(uint8_t* target, int32_t value) noexcept
    void sbe_put_int64(uint8_t* target, int64_t value) noexcept

    # The message header at `buffer`: SBE_OK, or SBE_TRUNCATED when there are fewer than 8 bytes.
    int sbe_read_header(const uint8_t* buffer, size_t length, MessageHeader* out) noexcept
    # Writes the 8 bytes of a message header; the caller has made sure of the room.
    void sbe_put_header(
        uint8_t* buffer, uint16_t block_length, uint16_t template_id, uint16_t schema_id, uint16_t version) noexcept

    # Reads the header and checks that the message is the expected one, that its block fits, and that no version's is
    # shorter. `encoded_length` becomes the end of the block, where var data begins; on an error, the bytes needed.
    int sbe_wrap_block(
        const uint8_t* buffer, size_t length, uint16_t schema_id, uint16_t template_id, uint16_t min_block_length,
        MessageHeader* header, size_t* encoded_length) noexcept

    # The var data at `position`, at most `length`, which moves behind it; on an error to the bytes needed.
    int sbe_take_var_data(const uint8_t* buffer, size_t length, size_t* position, VarData* out) noexcept
    # Writes a length and its bytes at `position`: the position behind them, or SBE_CAPACITY. `data` may be NULL when
    # `data_length` is 0.
    int64_t sbe_put_var_data(
        uint8_t* buffer, size_t capacity, size_t position, const uint8_t* data, uint32_t data_length) noexcept

    # The repeating group at `position`, which moves behind it; on an error to the bytes needed. Each element, and each
    # of its `var_count` var data, is within the bytes then.
    int sbe_take_group(
        const uint8_t* buffer, size_t length, uint16_t min_block_length, int var_count, size_t* position,
        GroupData* out) noexcept
    # Writes the header of a repeating group: the position behind it, or SBE_CAPACITY, also where it is given that.
    int64_t sbe_put_group(
        uint8_t* buffer, size_t capacity, int64_t position, uint16_t block_length, uint16_t count) noexcept
