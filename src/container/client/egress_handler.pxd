# The C-level callbacks of a client. A listener in Cython derives from EgressHandler and is given to the context as it
# is; PythonEgressHandler wraps a listener in Python. The GIL is held in every callback, and a Python exception ends the
# poll and is raised by it. container.client.EgressListener says when each runs.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.message_buffer cimport Header, MessageBuffer
from container.transport.frames cimport FrameHeader


cdef class EgressHandler:
    # data: borrowed until the call returns. Return an Action of transport.frames, as of a controlled listener.
    cdef int on_message(
        self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
        const FrameHeader* header) except -1
    cdef int on_session_event(
        self, int64_t correlation_id, int64_t cluster_session_id, int64_t leadership_term_id,
        int32_t leader_member_id, int32_t code, str detail) except -1
    cdef int on_new_leader(
        self, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
        str ingress_endpoints) except -1
    cdef int on_admin_response(
        self, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type, int32_t response_code,
        str message, bytes payload) except -1
    # Return an Action as well.
    cdef int on_extension_message(
        self, int block_length, int template_id, int schema_id, int version, bytes body) except -1


cdef class MessageCopy:                 # a message as Python sees it; the objects are reused if nobody keeps them
    cdef MessageBuffer buffer
    cdef Header header
    cdef int fill(self, const uint8_t* data, size_t length, const FrameHeader* header) except -1


cdef class PythonEgressHandler(EgressHandler):
    cdef readonly object listener
    cdef object _on_message             # bound once: saves a look-up per message
    cdef bint _is_controlled            # the listener says what becomes of each message
    cdef MessageCopy _message


# The handler that calls a listener of either kind; several in Python may share a message copy, None for one of its own.
cdef EgressHandler egress_handler(object listener, MessageCopy message)
cdef object enumerated(object kind, int32_t value)
