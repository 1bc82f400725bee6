"""An archive's messages to the client of a control session: each as bytes, and how it is sent.

A send tries up to three times to offer the message and never waits. The session decides what becomes of a message that
was not sent: it may keep the bytes and send them later (upstream: ControlResponseProxy.java).

Two things are better than upstream's: the version in a Challenge, which upstream leaves as the buffer had it, is null;
and the text of an error is cut where the message would be too long for its publication.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs.archive cimport (
    ARCHIVE_SCHEMA_ID, ARCHIVE_SCHEMA_VERSION, PING_ENCODED_LENGTH, RECORDING_DESCRIPTOR_BLOCK_LENGTH,
    RECORDING_DESCRIPTOR_RECORDING_ID_OFFSET, RECORDING_DESCRIPTOR_TEMPLATE_ID, RECORDING_SIGNAL_EVENT_ENCODED_LENGTH,
    challenge_encode, challenge_encoded_length, control_response_encode, control_response_encoded_length, ping_encode,
    recording_descriptor_put_control_session_id, recording_descriptor_put_correlation_id,
    recording_signal_event_encode, recording_subscription_descriptor_encode,
    recording_subscription_descriptor_encoded_length,
)
from container.codecs.sbe cimport SBE_HEADER_LENGTH, SBE_NULL_VERSION, sbe_put_header
from container.errors import ArchiveError
from container.transport.frames cimport ADMIN_ACTION, BACK_PRESSURED, BufferVector
from container.transport.streams cimport Publication

cdef enum:
    ATTEMPTS = 3

_CUT_END = "..."


cdef inline uint8_t* _data(bytes message) noexcept:
    return <uint8_t*> PyBytes_AS_STRING(message)


cdef inline bytes _new(int64_t length):
    return PyBytes_FromStringAndSize(NULL, length)


cdef inline bytes _ascii(str text):
    return text.encode("ascii", "replace")


cpdef bytes control_response(
        int64_t control_session_id, int64_t correlation_id, int64_t relevant_id, int32_t code, str error_text,
        int64_t max_length):
    """ControlResponse (1), the outcome of a request.

    ``relevant_id`` and ``code`` are as the archive's protocol has them. ``error_text`` is cut so that the message has
    at most ``max_length`` bytes; what is not ASCII in it becomes a question mark.
    """
    cdef int64_t room = max(<int64_t> 0, max_length - control_response_encoded_length(0))
    cdef bytes text
    cdef bytes message
    if len(error_text) > room:
        error_text = error_text[:max(<int64_t> 0, room - len(_CUT_END))] + _CUT_END[:room]
    text = _ascii(error_text)
    message = _new(control_response_encoded_length(<uint32_t> len(text)))
    control_response_encode(
        _data(message), len(message), control_session_id, correlation_id, relevant_id, code, PROTOCOL_VERSION,
        text, <uint32_t> len(text))
    return message


cpdef bytes challenge(int64_t control_session_id, int64_t correlation_id, bytes encoded_challenge):
    """Challenge (59), which an authenticator has for a client."""
    cdef bytes message = _new(challenge_encoded_length(<uint32_t> len(encoded_challenge)))
    challenge_encode(
        _data(message), len(message), control_session_id, correlation_id, SBE_NULL_VERSION,
        encoded_challenge, <uint32_t> len(encoded_challenge))
    return message


cpdef bytes subscription_descriptor(
        int64_t control_session_id, int64_t correlation_id, int64_t subscription_id, int32_t stream_id,
        str stripped_channel):
    """RecordingSubscriptionDescriptor (23), of a subscription that is there to be recorded."""
    cdef bytes channel = _ascii(stripped_channel)
    cdef bytes message = _new(recording_subscription_descriptor_encoded_length(<uint32_t> len(channel)))
    recording_subscription_descriptor_encode(
        _data(message), len(message), control_session_id, correlation_id, subscription_id, stream_id,
        channel, <uint32_t> len(channel))
    return message


cpdef bytes recording_signal(
        int64_t control_session_id, int64_t correlation_id, int64_t recording_id, int64_t subscription_id,
        int64_t position, int32_t signal):
    """RecordingSignalEvent (24); ``position`` is in bytes, ``signal`` one of the protocol's RecordingSignal."""
    cdef bytes message = _new(RECORDING_SIGNAL_EVENT_ENCODED_LENGTH)
    recording_signal_event_encode(
        _data(message), len(message), control_session_id, correlation_id, recording_id, subscription_id, position,
        signal)
    return message


cpdef bytes ping(int64_t control_session_id):
    """Ping (106), by which a session finds out whether its client still reads."""
    cdef bytes message = _new(PING_ENCODED_LENGTH)
    ping_encode(_data(message), len(message), control_session_id)
    return message


cpdef int send(Publication publication, bytes message) except? -6:
    """Offer a message up to three times, without waiting in between.

    Return 1 when it was sent, 0 when there was no room, and NOT_CONNECTED, CLOSED or MAX_POSITION_EXCEEDED when it can
    never be sent. Raises ArchiveError when it is longer than the publication's messages may be.
    """
    cdef BufferVector vector
    vector.data = _data(message)
    vector.length = len(message)
    return _send(publication, &vector, 1, len(message))


cpdef int send_descriptor(
        Publication publication, int64_t control_session_id, int64_t correlation_id, bytes entry) except? -6:
    """Send RecordingDescriptor (22), as :func:`send`: a catalog entry with the ids of the session and its request.

    ``entry`` is the descriptor as the catalog has it, with its padding (Catalog.entry_bytes); the ids that are stored
    in it do not go out. Raises ArchiveError as well when it is too short for a descriptor.
    """
    cdef uint8_t prefix[RECORDING_DESCRIPTOR_RECORDING_ID_OFFSET]
    cdef size_t stored = RECORDING_DESCRIPTOR_RECORDING_ID_OFFSET - SBE_HEADER_LENGTH
    cdef BufferVector vectors[2]
    if len(entry) < RECORDING_DESCRIPTOR_BLOCK_LENGTH:
        raise ArchiveError(f"a catalog entry has {len(entry)} bytes: a descriptor needs "
                           f"{RECORDING_DESCRIPTOR_BLOCK_LENGTH}")
    sbe_put_header(
        prefix, RECORDING_DESCRIPTOR_BLOCK_LENGTH, RECORDING_DESCRIPTOR_TEMPLATE_ID, ARCHIVE_SCHEMA_ID,
        ARCHIVE_SCHEMA_VERSION)
    recording_descriptor_put_control_session_id(prefix, control_session_id)
    recording_descriptor_put_correlation_id(prefix, correlation_id)
    vectors[0].data = prefix
    vectors[0].length = sizeof(prefix)
    vectors[1].data = _data(entry) + stored
    vectors[1].length = len(entry) - stored
    return _send(publication, vectors, 2, SBE_HEADER_LENGTH + len(entry))


cdef int _send(Publication publication, const BufferVector* vectors, size_t count, int64_t length) except? -6:
    cdef int64_t result = BACK_PRESSURED
    cdef int _attempt
    if length > publication.max_message_length:
        raise ArchiveError(f"a response of {length} bytes is longer than the {publication.max_message_length} bytes of "
                           f"a message of {publication.channel}")
    for _attempt in range(ATTEMPTS):
        result = publication.offer_vectors(vectors, count)
        if result > 0:
            return SENT
        if result != BACK_PRESSURED and result != ADMIN_ACTION:
            return <int> result
    return NOT_SENT
