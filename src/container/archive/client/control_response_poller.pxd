# Reads what an archive sends to one of its clients, message by message.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription


cdef class ControlResponsePoller(FragmentHandler):
    cdef readonly Subscription subscription
    cdef readonly bint is_complete              # the last poll read a message, whose fields follow
    cdef readonly int64_t control_session_id
    cdef readonly int64_t correlation_id
    cdef readonly int64_t relevant_id
    cdef readonly int32_t code                  # CONTROL_RESPONSE_CODE_*; SBE_NULL_INT32 of any other message
    cdef readonly int32_t version
    cdef readonly str error_message
    cdef readonly bytes encoded_challenge       # None unless the message is a Challenge
    cdef SessionFragmentAssembler _assembler
    cdef int poll(self) except -1               # fragments read; at most one message becomes complete
    cdef void _clear(self) noexcept
    cdef int _on_control_response(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1
