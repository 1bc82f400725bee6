# Shared by the adapters: checks that turn a refusal of a codec into an error with its facts.
from libc.stdint cimport int32_t, uint8_t

from container.codecs cimport sbe


cdef int check_codec(int result, str message) except -1
cdef int check_schema(const uint8_t* buffer, size_t length, sbe.MessageHeader* header) except -1
cdef int32_t decode_time_unit(int32_t value) except -1
cdef str decode_ascii(const uint8_t* data, size_t length)
cdef bytes bytes_of(const sbe.VarData* data)
