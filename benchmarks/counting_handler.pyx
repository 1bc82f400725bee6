"""A service in Cython that counts messages and bytes, for benchmarks/replay.py."""
from libc.stdint cimport int64_t, uint8_t

from container cimport ContainerClientSession, FrameHeader, ServiceHandler


cdef class CountingHandler(ServiceHandler):
    """Counts messages and bytes."""

    cdef readonly int64_t count
    cdef readonly int64_t length

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        self.count += 1
        self.length += <int64_t> length
        return 0
