# The C-level callbacks that the agent calls. A service in Cython derives from ServiceHandler and is given to the
# container as it is; PythonServiceHandler wraps a service in Python. The GIL is held in every callback, and a Python
# exception is handed on. container.api.ClusteredService says when each runs and what an exception does.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.service.cluster cimport Cluster
from container.service.container_client_session cimport ContainerClientSession
from container.service.session_messages cimport SessionMessages
from container.service.snapshot_loader cimport SnapshotImage
from container.service.snapshot_taker cimport SnapshotPublication
from container.transport.message_buffer cimport Header, MessageBuffer
from container.transport.frames cimport FrameHeader


cdef class ServiceHandler:
    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1        # None without a snapshot
    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1
    cdef int on_session_close(
        self, ContainerClientSession session, int64_t timestamp, int32_t close_reason) except? -1
    # session: None for a message of a service. data: borrowed until the call returns.
    cdef int on_session_message(
        self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
        const FrameHeader* header) except? -1
    cdef bint takes_batches(self) noexcept      # True: on_session_messages is called in place of on_session_message
    cdef int on_session_messages(self, SessionMessages messages) except? -1
    cdef int on_timer_event(self, int64_t correlation_id, int64_t timestamp) except? -1
    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1
    cdef int on_role_change(self, int32_t new_role) except? -1
    cdef int on_new_leadership_term_event(
        self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
        int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except? -1
    cdef int on_terminate(self, Cluster cluster) except? -1
    cdef int do_background_work(self, int64_t now_ns) except? -1                             # how much was done


cdef class PythonServiceHandler(ServiceHandler):
    cdef readonly object service
    cdef object _on_session_message     # bound once: saves a look-up per message
    cdef object _function               # of on_session_message
    cdef object _instance               # its first argument; None when it takes none
    cdef int64_t _timestamp             # of the last message, which others often share
    cdef object _timestamp_object       # the same as an int; None before the first message
    cdef object _on_session_messages    # None when the service takes one message at a time
    cdef object _on_timer_event
    cdef object _do_background_work     # None when the service has no background work
    cdef MessageBuffer _buffer          # the one that the next message reuses
    cdef Header _header
    cdef int _bind(self) except -1
