"""Reads what an archive sends to one of its clients: ControlResponse (1) and Challenge (59) of schema 101.

A poll ends at each of them and none is lost when several come at once, as in upstream's
ControlResponsePoller. Pings, recording signals and messages of later versions are passed over: nobody here
waits for them.
"""
from libc.stdint cimport uint8_t

from container.codecs.archive cimport (
    ARCHIVE_SCHEMA_ID, CHALLENGE_TEMPLATE_ID, CONTROL_RESPONSE_TEMPLATE_ID, Challenge, ControlResponse,
    challenge_control_session_id, challenge_correlation_id, challenge_version, challenge_wrap,
    control_response_code, control_response_control_session_id, control_response_correlation_id,
    control_response_relevant_id, control_response_version, control_response_wrap,
)
from container.codecs.sbe cimport (
    SBE_NULL_INT32, MessageHeader, VarData, sbe_error_text, sbe_read_header,
)
from container.common.sealed cimport seal
from container.errors import ArchiveError, CodecError
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_ABORT, ACTION_BREAK, ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription

cdef enum:
    FRAGMENT_LIMIT = 10


cdef int _check(int result, str message) except -1:
    if result < 0:
        raise CodecError(f"{message} from the archive: {sbe_error_text(result).decode('ascii')}")
    return 0


cdef inline bytes _bytes(const VarData* data):
    return (<const char*> data.data)[:data.length] if data.length > 0 else b""


cdef class ControlResponsePoller(FragmentHandler):
    """Holds the last message that was read from ``subscription``, until the next poll."""

    def __init__(self, Subscription subscription not None):
        self.subscription = subscription
        self._assembler = SessionFragmentAssembler(self)
        self._clear()

    cdef int poll(self) except -1:
        if self.is_complete:
            self._clear()
        return self.subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cdef void _clear(self) noexcept:
        self.is_complete = False
        self.code = SBE_NULL_INT32
        self.error_message = ""
        self.encoded_challenge = None

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if self.is_complete:
            return ACTION_ABORT     # another image's message; the next poll gets it
        if sbe_read_header(buffer, length, &message) < 0:
            raise CodecError(f"message of {length} bytes from the archive: too short for a message header")
        if message.schema_id != ARCHIVE_SCHEMA_ID:
            raise ArchiveError(f"expected schemaId={ARCHIVE_SCHEMA_ID}, actual={message.schema_id}")
        if message.template_id == CONTROL_RESPONSE_TEMPLATE_ID:
            self._on_control_response(buffer, length)
        elif message.template_id == CHALLENGE_TEMPLATE_ID:
            self._on_challenge(buffer, length)
        else:
            return ACTION_CONTINUE
        self.is_complete = True
        return ACTION_BREAK

    cdef int _on_control_response(self, const uint8_t* buffer, size_t length) except -1:
        cdef ControlResponse response
        _check(control_response_wrap(&response, buffer, length), "ControlResponse")
        self.control_session_id = control_response_control_session_id(&response)
        self.correlation_id = control_response_correlation_id(&response)
        self.relevant_id = control_response_relevant_id(&response)
        self.code = control_response_code(&response)
        self.version = control_response_version(&response)
        self.error_message = _bytes(&response.error_message).decode("ascii", "replace")
        return 0

    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1:
        cdef Challenge challenge
        _check(challenge_wrap(&challenge, buffer, length), "Challenge")
        self.control_session_id = challenge_control_session_id(&challenge)
        self.correlation_id = challenge_correlation_id(&challenge)
        self.version = challenge_version(&challenge)
        self.encoded_challenge = _bytes(&challenge.encoded_challenge)
        return 0


seal((ControlResponsePoller,))
