// Parts that all messages share: header, var data, groups, null values and error codes of Simple Binary Encoding.
// sbe.pxd declares and describes it.
#ifndef CONTAINER_SBE_CODEC_H
#define CONTAINER_SBE_CODEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the codecs copy integers as they lie in memory and need a little-endian machine"
#endif

#define SBE_NULL_INT32 INT32_MIN
#define SBE_NULL_INT64 INT64_MIN

enum {
    SBE_NULL_VERSION = 0,
    SBE_NULL_CAPACITY = 0,
    SBE_NULL_UINT8 = 255,

    SBE_HEADER_LENGTH = 8,
    SBE_VAR_LENGTH_LENGTH = 4,
    SBE_VAR_LENGTH_MAX = 1 << 30,
    SBE_GROUP_HEADER_LENGTH = 4,
    SBE_GROUP_COUNT_MAX = 65534,

    SBE_OK = 0,
    SBE_TRUNCATED = -1,
    SBE_SCHEMA = -2,
    SBE_TEMPLATE = -3,
    SBE_BLOCK = -4,
    SBE_CAPACITY = -5,
    SBE_SHORT_BLOCK = -6
};

typedef struct {
    uint16_t block_length;
    uint16_t template_id;
    uint16_t schema_id;
    uint16_t version;
} sbe_MessageHeader;

typedef struct {
    const uint8_t* data;
    uint32_t length;
} sbe_VarData;

typedef struct {
    const uint8_t* data;
    size_t length;
    uint16_t block_length;
    uint16_t count;
} sbe_GroupData;

static inline const char* sbe_error_text(int error)
{
    switch (error) {
    case SBE_OK: return "no error";
    case SBE_TRUNCATED: return "message is truncated";
    case SBE_SCHEMA: return "message is of another schema";
    case SBE_TEMPLATE: return "message has another template id";
    case SBE_BLOCK: return "block length reaches beyond the message";
    case SBE_SHORT_BLOCK: return "block is shorter than in any version";
    case SBE_CAPACITY: return "message does not fit the buffer";
    default: return "unknown codec error";
    }
}

#define SBE_NUMBER(number, type)                                                                                       \
    static inline type sbe_get_##number(const uint8_t* source)                                                         \
    {                                                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, source, sizeof(value));                                                                         \
        return value;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline void sbe_put_##number(uint8_t* target, type value)                                                   \
    {                                                                                                                  \
        memcpy(target, &value, sizeof(value));                                                                         \
    }

SBE_NUMBER(uint8, uint8_t)
SBE_NUMBER(uint16, uint16_t)
SBE_NUMBER(uint32, uint32_t)
SBE_NUMBER(int32, int32_t)
SBE_NUMBER(int64, int64_t)

#undef SBE_NUMBER

static inline int sbe_read_header(const uint8_t* buffer, size_t length, sbe_MessageHeader* out)
{
    if (length < SBE_HEADER_LENGTH) return SBE_TRUNCATED;
    out->block_length = sbe_get_uint16(buffer);
    out->template_id = sbe_get_uint16(buffer + 2);
    out->schema_id = sbe_get_uint16(buffer + 4);
    out->version = sbe_get_uint16(buffer + 6);
    return SBE_OK;
}

static inline void sbe_put_header(
    uint8_t* buffer, uint16_t block_length, uint16_t template_id, uint16_t schema_id, uint16_t version)
{
    sbe_put_uint16(buffer, block_length);
    sbe_put_uint16(buffer + 2, template_id);
    sbe_put_uint16(buffer + 4, schema_id);
    sbe_put_uint16(buffer + 6, version);
}

static inline int sbe_wrap_block(
    const uint8_t* buffer, size_t length, uint16_t schema_id, uint16_t template_id, uint16_t min_block_length,
    sbe_MessageHeader* header, size_t* encoded_length)
{
    int result = sbe_read_header(buffer, length, header);
    *encoded_length = SBE_HEADER_LENGTH;
    if (result < 0) return result;
    if (header->schema_id != schema_id) return SBE_SCHEMA;
    if (header->template_id != template_id) return SBE_TEMPLATE;
    // No sender has a shorter block: fields would be missing that every version has, and var data would be taken from
    // the block's own bytes.
    if (header->block_length < min_block_length) {
        *encoded_length += min_block_length;
        return SBE_SHORT_BLOCK;
    }
    *encoded_length += header->block_length;
    return *encoded_length > length ? SBE_BLOCK : SBE_OK;
}

static inline int sbe_take_var_data(const uint8_t* buffer, size_t length, size_t* position, sbe_VarData* out)
{
    // Lengths are compared by subtraction: one of 2^32-1 must not wrap around.
    if (length - *position < SBE_VAR_LENGTH_LENGTH) {
        *position += SBE_VAR_LENGTH_LENGTH;
        return SBE_TRUNCATED;
    }
    uint32_t data_length = sbe_get_uint32(buffer + *position);
    *position += SBE_VAR_LENGTH_LENGTH;
    if (data_length > length - *position) {
        *position += data_length;
        return SBE_TRUNCATED;
    }
    out->data = buffer + *position;
    out->length = data_length;
    *position += data_length;
    return SBE_OK;
}

static inline int64_t sbe_put_var_data(
    uint8_t* buffer, size_t capacity, size_t position, const uint8_t* data, uint32_t data_length)
{
    if (position > capacity || capacity - position < SBE_VAR_LENGTH_LENGTH) return SBE_CAPACITY;
    if (data_length > capacity - position - SBE_VAR_LENGTH_LENGTH) return SBE_CAPACITY;
    sbe_put_uint32(buffer + position, data_length);
    position += SBE_VAR_LENGTH_LENGTH;
    if (data_length > 0) memcpy(buffer + position, data, data_length);
    return (int64_t)(position + data_length);
}

static inline int sbe_take_group(
    const uint8_t* buffer, size_t length, uint16_t min_block_length, int var_count, size_t* position,
    sbe_GroupData* out)
{
    if (length - *position < SBE_GROUP_HEADER_LENGTH) {
        *position += SBE_GROUP_HEADER_LENGTH;
        return SBE_TRUNCATED;
    }
    out->block_length = sbe_get_uint16(buffer + *position);
    out->count = sbe_get_uint16(buffer + *position + 2);
    *position += SBE_GROUP_HEADER_LENGTH;
    if (out->count > 0 && out->block_length < min_block_length) {
        *position += min_block_length;
        return SBE_SHORT_BLOCK;
    }
    size_t begin = *position;
    for (int element = 0; element < out->count; element++) {
        if (out->block_length > length - *position) {
            *position += out->block_length;
            return SBE_TRUNCATED;
        }
        *position += out->block_length;
        for (int index = 0; index < var_count; index++) {
            sbe_VarData var;
            int result = sbe_take_var_data(buffer, length, position, &var);
            if (result < 0) return result;
        }
    }
    out->data = buffer + begin;
    out->length = *position - begin;
    return SBE_OK;
}

static inline int64_t sbe_put_group(
    uint8_t* buffer, size_t capacity, int64_t position, uint16_t block_length, uint16_t count)
{
    if (position < 0 || (size_t)position + SBE_GROUP_HEADER_LENGTH > capacity) return SBE_CAPACITY;
    sbe_put_uint16(buffer + position, block_length);
    sbe_put_uint16(buffer + position + 2, count);
    return position + SBE_GROUP_HEADER_LENGTH;
}

#endif  // CONTAINER_SBE_CODEC_H
