"""The C-level callbacks of a client, and the handler that wraps a listener in Python."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.client.egress_listener import (
    LISTENER_RULE, AdminRequestType, AdminResponseCode, ControlledEgressListener, EgressListener, EventCode,
)
from container.common.sealed cimport seal
from container.common.values import shown
from container.errors import ClusterError, ConfigurationError
from container.transport.message_buffer cimport Header, MessageBuffer
from container.transport.frames cimport ACTION_ABORT, ACTION_CONTINUE, FrameHeader


cdef class EgressHandler:
    """Base of listeners written in Cython: override what is needed, at least ``on_message``.

    Their callbacks are C functions, see ``egress_handler.pxd``: a message costs no Python object and no call of Python.
    From them ``offer_message`` of ``aeron_cluster.pxd`` sends in the same way.
    """

    cdef int on_message(
            self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        raise ConfigurationError(f"a message came from the cluster and {type(self).__name__} has no on_message")

    cdef int on_session_event(
            self, int64_t correlation_id, int64_t cluster_session_id, int64_t leadership_term_id,
            int32_t leader_member_id, int32_t code, str detail) except -1:
        return 0

    cdef int on_new_leader(
            self, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
            str ingress_endpoints) except -1:
        return 0

    cdef int on_admin_response(
            self, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type, int32_t response_code,
            str message, bytes payload) except -1:
        return 0

    cdef int on_extension_message(
            self, int block_length, int template_id, int schema_id, int version, bytes body) except -1:
        raise ClusterError(f"expected cluster egress schemaId=111 actual={schema_id}")


cdef class MessageCopy:
    """A message as Python sees it; when its buffer, a view of it or its header is kept, the next gets a fresh one."""

    def __cinit__(self):
        self.buffer = MessageBuffer.__new__(MessageBuffer)
        self.header = Header.__new__(Header)

    cdef int fill(self, const uint8_t* data, size_t length, const FrameHeader* header) except -1:
        if self.buffer._is_kept():
            self.buffer = MessageBuffer.__new__(MessageBuffer)
        if self.header._is_kept():
            self.header = Header.__new__(Header)
        self.buffer._fill(data, length)
        self.header._frame = header[0]
        return 0


cdef class PythonEgressHandler(EgressHandler):
    """Calls a listener in Python (:mod:`container.client.egress_listener`), plain or controlled."""

    def __init__(self, listener not None, MessageCopy message=None):
        self.listener = listener
        self._on_message = listener.on_message
        self._is_controlled = isinstance(listener, ControlledEgressListener)
        self._message = MessageCopy() if message is None else message

    cdef int on_message(
            self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        self._message.fill(data, length, header)
        action = self._on_message(cluster_session_id, timestamp, self._message.buffer, self._message.header)
        return _action_of(action, "on_message") if self._is_controlled else ACTION_CONTINUE

    cdef int on_session_event(
            self, int64_t correlation_id, int64_t cluster_session_id, int64_t leadership_term_id,
            int32_t leader_member_id, int32_t code, str detail) except -1:
        self.listener.on_session_event(
            correlation_id, cluster_session_id, leadership_term_id, leader_member_id, enumerated(EventCode, code),
            detail)
        return 0

    cdef int on_new_leader(
            self, int64_t cluster_session_id, int64_t leadership_term_id, int32_t leader_member_id,
            str ingress_endpoints) except -1:
        self.listener.on_new_leader(cluster_session_id, leadership_term_id, leader_member_id, ingress_endpoints)
        return 0

    cdef int on_admin_response(
            self, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type, int32_t response_code,
            str message, bytes payload) except -1:
        self.listener.on_admin_response(
            cluster_session_id, correlation_id, enumerated(AdminRequestType, request_type),
            enumerated(AdminResponseCode, response_code), message, payload)
        return 0

    cdef int on_extension_message(
            self, int block_length, int template_id, int schema_id, int version, bytes body) except -1:
        action = self.listener.on_extension_message(block_length, template_id, schema_id, version, body)
        return _action_of(action, "on_extension_message") if self._is_controlled else ACTION_CONTINUE


cdef int _action_of(object value, str callback) except -1:
    """The result of a controlled listener's callback as an action; None counts as CONTINUE."""
    cdef int action
    if value is None:
        return ACTION_CONTINUE
    action = int(value) if isinstance(value, int) else 0
    if not ACTION_ABORT <= action <= ACTION_CONTINUE:
        raise TypeError(f"{callback} of a ControlledEgressListener must return an Action or None, not {value!r}")
    return action


cdef object enumerated(object kind, int32_t value):
    """The member of an IntEnum, or the number itself when a later cluster has more of them."""
    found = value
    try:
        found = kind(value)
    except ValueError:
        pass
    return found


cdef EgressHandler egress_handler(object listener, MessageCopy message):
    check_listener(listener)
    return listener if isinstance(listener, EgressHandler) else PythonEgressHandler(listener, message)


def check_listener(listener):
    """Refuse what is not a listener, with a ConfigurationError that names it."""
    if not isinstance(listener, (EgressListener, ControlledEgressListener, EgressHandler)):
        raise ConfigurationError(f"listener must be {LISTENER_RULE}, not {shown(listener)}")


seal((MessageCopy, PythonEgressHandler))
