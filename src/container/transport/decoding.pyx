"""Checks that all adapters share: they turn a refusal of a codec into an error with its facts."""
from libc.stdint cimport int32_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.errors import ClusterError, CodecError


cdef int check_codec(int result, str message) except -1:
    """Raise CodecError when a flyweight refused the bytes of ``message``."""
    if result < 0:
        raise CodecError(f"{message}: {sbe.sbe_error_text(result).decode('ascii')}")
    return 0


cdef int check_schema(const uint8_t* buffer, size_t length, sbe.MessageHeader* header) except -1:
    """Read the message header. Raise ClusterError for a foreign schema, CodecError when it is cut off."""
    cdef int result = sbe.sbe_read_header(buffer, length, header)
    if result < 0:
        raise CodecError(
            f"message header: {sbe.sbe_error_text(result).decode('ascii')}: it needs 8 bytes, got {length}")
    if header.schema_id != codec.CLUSTER_SCHEMA_ID:
        raise ClusterError(f"expected schemaId={codec.CLUSTER_SCHEMA_ID}, actual={header.schema_id}")
    return 0


cdef int32_t decode_time_unit(int32_t value) except -1:
    """ClusterTimeUnit as 0 to 2; null and absent mean milliseconds. Raises CodecError for anything else."""
    if value == sbe.SBE_NULL_INT32:
        return codec.CLUSTER_TIME_UNIT_MILLIS
    if not codec.CLUSTER_TIME_UNIT_MILLIS <= value <= codec.CLUSTER_TIME_UNIT_NANOS:
        raise CodecError(f"unknown ClusterTimeUnit: {value}")
    return value


cdef str decode_ascii(const uint8_t* data, size_t length):
    """Text of a var-ascii field, such as a channel. Raises CodecError when it is not ASCII."""
    try:
        return (<const char*> data)[:length].decode("ascii") if length > 0 else ""
    except UnicodeDecodeError as error:
        raise CodecError(f"text field is not ASCII: {error}") from None


cdef bytes bytes_of(const sbe.VarData* data):
    """A copy of a field of bytes, such as credentials; no bytes when the sender's version has no such field."""
    return (<const char*> data.data)[:data.length] if data.length > 0 else b""
