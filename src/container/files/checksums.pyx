"""CRC-32 and CRC-32C, eight bytes at a time by tables, without the GIL.

Upstream: Crc32.java and Crc32c.java of io.aeron.archive.checksum.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from container.codecs cimport sbe

cdef enum:
    TABLE_COUNT = 8
    POLYNOMIAL_CRC32 = 0xEDB88320
    POLYNOMIAL_CRC32C = 0x82F63B78

cdef uint32_t[2][TABLE_COUNT][256] tables


cdef void fill_tables(uint32_t[TABLE_COUNT][256] target, uint32_t polynomial) noexcept:
    """Table k has the checksum of each byte with k zero bytes behind it."""
    cdef int byte, _bit, table
    cdef uint32_t value
    for byte in range(256):
        value = <uint32_t> byte
        for _bit in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        target[0][byte] = value
    for byte in range(256):
        for table in range(1, TABLE_COUNT):
            value = target[table - 1][byte]
            target[table][byte] = (value >> 8) ^ target[0][value & 0xFF]


fill_tables(tables[CHECKSUM_CRC32 - 1], POLYNOMIAL_CRC32)
fill_tables(tables[CHECKSUM_CRC32C - 1], POLYNOMIAL_CRC32C)


cdef uint32_t checksum(int kind, const uint8_t* data, int64_t length, uint32_t value) noexcept nogil:
    """The checksum of bytes, behind others whose checksum is `value`; 0 where there are none before."""
    cdef uint32_t[TABLE_COUNT][256]* table = &tables[kind - 1]
    cdef uint64_t word
    value = ~value
    while length >= 8:
        word = <uint64_t> sbe.sbe_get_int64(data) ^ value
        value = (
            table[0][7][word & 0xFF] ^ table[0][6][word >> 8 & 0xFF]
            ^ table[0][5][word >> 16 & 0xFF] ^ table[0][4][word >> 24 & 0xFF]
            ^ table[0][3][word >> 32 & 0xFF] ^ table[0][2][word >> 40 & 0xFF]
            ^ table[0][1][word >> 48 & 0xFF] ^ table[0][0][word >> 56])
        data += 8
        length -= 8
    while length > 0:
        value = (value >> 8) ^ table[0][0][(value ^ data[0]) & 0xFF]
        data += 1
        length -= 1
    return ~value


def crc32(data):
    """The CRC-32 (int) of a bytes-like object."""
    cdef const uint8_t[::1] view = data
    return checksum(CHECKSUM_CRC32, &view[0] if len(view) > 0 else NULL, len(view), 0)


def crc32c(data):
    """The CRC-32C (int) of a bytes-like object."""
    cdef const uint8_t[::1] view = data
    return checksum(CHECKSUM_CRC32C, &view[0] if len(view) > 0 else NULL, len(view), 0)
