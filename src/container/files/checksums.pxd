# The checksums that an archive can record in place of a frame's session id.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    CHECKSUM_NONE = 0
    CHECKSUM_CRC32 = 1      # upstream: io.aeron.archive.checksum.Crc32, as in zlib
    CHECKSUM_CRC32C = 2     # upstream: io.aeron.archive.checksum.Crc32c (Castagnoli)

cdef uint32_t checksum(int kind, const uint8_t* data, int64_t length, uint32_t value) noexcept nogil
