# The consensus module's own messages to a client. Each call returns whether it was sent now.
from libc.stdint cimport int32_t, int64_t

from container.transport.streams cimport Publication


cdef bint send(Publication publication, bytes message) except -1
cdef bint send_event(
    Publication publication, int64_t cluster_session_id, int64_t correlation_id, int64_t leadership_term_id,
    int32_t leader_member_id, int32_t code, int64_t leader_heartbeat_timeout_ns, str detail) except -1
cdef bint send_challenge(
    Publication publication, int64_t cluster_session_id, int64_t correlation_id, bytes encoded_challenge) except -1
cdef bint send_new_leader(
    Publication publication, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
    str ingress_endpoints) except -1
cdef bint send_admin_response(
    Publication publication, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type,
    int32_t response_code, str text) except -1
