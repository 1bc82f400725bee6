# Messages from an archive to the client of a control session: their bytes, and how they are sent.
from libc.stdint cimport int32_t, int64_t

from container.transport.streams cimport Publication

cdef enum:
    PROTOCOL_VERSION = 1 << 16 | 12 << 8    # 1.12.0, of the requests and responses
    PROTOCOL_MAJOR_VERSION = 1

# Results of a send; one that is less is the seam's NOT_CONNECTED, CLOSED or MAX_POSITION_EXCEEDED: the client is gone.
cdef enum:
    NOT_SENT = 0                            # no room now
    SENT = 1


cpdef bytes control_response(
    int64_t control_session_id, int64_t correlation_id, int64_t relevant_id, int32_t code, str error_text,
    int64_t max_length)
cpdef bytes challenge(int64_t control_session_id, int64_t correlation_id, bytes encoded_challenge)
cpdef bytes subscription_descriptor(
    int64_t control_session_id, int64_t correlation_id, int64_t subscription_id, int32_t stream_id,
    str stripped_channel)
cpdef bytes recording_signal(
    int64_t control_session_id, int64_t correlation_id, int64_t recording_id, int64_t subscription_id,
    int64_t position, int32_t signal)
cpdef bytes ping(int64_t control_session_id)
cpdef int send(Publication publication, bytes message) except? -6
cpdef int send_descriptor(
    Publication publication, int64_t control_session_id, int64_t correlation_id, bytes entry) except? -6
