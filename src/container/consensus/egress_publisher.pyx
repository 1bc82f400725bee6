"""The consensus module's own messages to a client: events of its session, challenges, leaders, admin responses.

Upstream: EgressPublisher.java. A send tries up to three times to offer the message and never waits.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs.cluster cimport (
    admin_response_encode, admin_response_encoded_length, challenge_encode, challenge_encoded_length,
    new_leader_event_encode, new_leader_event_encoded_length, session_event_encode, session_event_encoded_length,
)
from container.transport.streams cimport Publication

cdef enum:
    SEND_ATTEMPTS = 3
    PROTOCOL_VERSION = 0 << 16 | 3 << 8     # 0.3.0, of the cluster's protocol


cdef bint send(Publication publication, bytes message) except -1:
    """A message that was encoded elsewhere."""
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(message)
    cdef int _attempt
    if publication is None:
        return False
    for _attempt in range(SEND_ATTEMPTS):
        if publication.offer(data, len(message)) > 0:
            return True
    return False


cdef bytes _new(int64_t length):
    return PyBytes_FromStringAndSize(NULL, length)


cdef inline uint8_t* _data(bytes message) noexcept:
    return <uint8_t*> PyBytes_AS_STRING(message)


cdef bint send_event(
        Publication publication, int64_t cluster_session_id, int64_t correlation_id, int64_t leadership_term_id,
        int32_t leader_member_id, int32_t code, int64_t leader_heartbeat_timeout_ns, str detail) except -1:
    """SessionEvent (2)."""
    cdef bytes text = detail.encode("ascii", "replace")
    cdef uint32_t length = <uint32_t> len(text)
    cdef bytes message = _new(session_event_encoded_length(length))
    session_event_encode(
        _data(message), len(message), cluster_session_id, correlation_id, leadership_term_id, leader_member_id, code,
        PROTOCOL_VERSION, leader_heartbeat_timeout_ns, text, length)
    return send(publication, message)


cdef bint send_challenge(
        Publication publication, int64_t cluster_session_id, int64_t correlation_id, bytes encoded_challenge
) except -1:
    """Challenge (7)."""
    cdef uint32_t length = <uint32_t> len(encoded_challenge)
    cdef bytes message = _new(challenge_encoded_length(length))
    challenge_encode(_data(message), len(message), correlation_id, cluster_session_id, encoded_challenge, length)
    return send(publication, message)


cdef bint send_new_leader(
        Publication publication, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
        str ingress_endpoints) except -1:
    """NewLeaderEvent (6)."""
    cdef bytes text = ingress_endpoints.encode("ascii", "replace")
    cdef uint32_t length = <uint32_t> len(text)
    cdef bytes message = _new(new_leader_event_encoded_length(length))
    new_leader_event_encode(
        _data(message), len(message), leadership_term_id, cluster_session_id, leader_member_id, text, length)
    return send(publication, message)


cdef bint send_admin_response(
        Publication publication, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type,
        int32_t response_code, str text) except -1:
    """AdminResponse (27)."""
    cdef bytes encoded = text.encode("ascii", "replace")
    cdef uint32_t length = <uint32_t> len(encoded)
    cdef bytes message = _new(admin_response_encoded_length(length, 0))
    admin_response_encode(
        _data(message), len(message), cluster_session_id, correlation_id, request_type, response_code,
        encoded, length, b"", 0)
    return send(publication, message)
