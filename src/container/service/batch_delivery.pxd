# Session messages to a service that takes many at once.
from libc.stdint cimport int64_t, uint8_t

from container.service.event_handler cimport EventHandler
from container.service.service_handler cimport ServiceHandler
from container.service.session_messages cimport SessionMessages


cdef class BatchDelivery:
    cdef ServiceHandler _handler
    cdef EventHandler _cluster
    cdef SessionMessages _messages          # what waits to be delivered
    cdef int add(self, object session, int64_t session_id, int64_t log_position, int64_t timestamp,
                 const uint8_t* data, size_t length) except -1
    cdef int deliver(self) except -1
    cdef int _skip_message(self, object error) except -1
