"""The echo service in Cython: no Python object is made for a message. docs/cython.md says how to build and run it."""
from libc.stdint cimport int64_t, uint8_t

from container cimport ContainerClientSession, FrameHeader, ServiceHandler


cdef class EchoHandler(ServiceHandler):
    """Sends every message of a client back to it."""

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        if session is None:
            return 0
        try:
            session.send_bytes(data, length)
        except ValueError:  # longer than the client's own egress channel can carry
            session.send(b"too long for your egress channel")
        return 0
