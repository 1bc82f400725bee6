# Fields of cluster messages as columns: nulls, texts and the names of enums, for the decoders of log and snapshots.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.recordings.columns cimport Columns, put_bytes, put_int32, put_int64


cdef inline void put_text(Columns* batch, int index, const char* text) noexcept nogil:
    put_bytes(batch, index, <const uint8_t*> text, <int64_t> strlen(text))


cdef inline void put_field32(Columns* batch, int index, int32_t value) noexcept nogil:
    if value != sbe.SBE_NULL_INT32:
        put_int32(batch, index, value)


cdef inline void put_field64(Columns* batch, int index, int64_t value) noexcept nogil:
    if value != sbe.SBE_NULL_INT64:
        put_int64(batch, index, value)


cdef inline void put_var(Columns* batch, int index, const sbe.VarData* var) noexcept nogil:
    """Var data; that which the sender's version does not have is null."""
    if var.data != NULL:
        put_bytes(batch, index, var.data, var.length)


cdef inline void put_enum(Columns* batch, int index, const char* name, int32_t value) noexcept nogil:
    """The name of an enum's value, or the number of one that has none."""
    cdef char[16] digits
    if name != NULL:
        put_text(batch, index, name)
    elif value != sbe.SBE_NULL_INT32:
        snprintf(digits, sizeof(digits), "%d", <int> value)
        put_text(batch, index, digits)


cdef inline bint is_ascii(const sbe.VarData* var) noexcept nogil:
    cdef uint32_t index
    for index in range(var.length):
        if var.data[index] & 0x80:
            return False
    return True


cdef inline const char* close_reason_name(int32_t value) noexcept nogil:
    if value == codec.CLOSE_REASON_CLIENT_ACTION:
        return "CLIENT_ACTION"
    if value == codec.CLOSE_REASON_SERVICE_ACTION:
        return "SERVICE_ACTION"
    if value == codec.CLOSE_REASON_TIMEOUT:
        return "TIMEOUT"
    return NULL


cdef inline const char* action_name(int32_t value) noexcept nogil:
    if value == codec.CLUSTER_ACTION_SUSPEND:
        return "SUSPEND"
    if value == codec.CLUSTER_ACTION_RESUME:
        return "RESUME"
    if value == codec.CLUSTER_ACTION_SNAPSHOT:
        return "SNAPSHOT"
    return NULL


cdef inline const char* time_unit_name(int32_t value) noexcept nogil:
    if value == codec.CLUSTER_TIME_UNIT_MILLIS or value == sbe.SBE_NULL_INT32:  # absent means milliseconds
        return "MILLIS"
    if value == codec.CLUSTER_TIME_UNIT_MICROS:
        return "MICROS"
    if value == codec.CLUSTER_TIME_UNIT_NANOS:
        return "NANOS"
    return NULL


cdef inline const char* change_type_name(int32_t value) noexcept nogil:
    if value == codec.CHANGE_TYPE_JOIN:
        return "JOIN"
    if value == codec.CHANGE_TYPE_QUIT:
        return "QUIT"
    return NULL
