"""Events that reach the agent between two steps of its duty cycle, and wait there for it."""
from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport hide, seal
from container.service.cluster_counters cimport NULL_COUNTER_ID
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport ClientListener


cdef class AgentListener(ClientListener):
    """Remembers that the commit position counter, or the client, is gone."""

    def __cinit__(self):
        self.commit_counter_id = NULL_COUNTER_ID
        self.commit_registration_id = NULL_VALUE

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        if counter_id == self.commit_counter_id and registration_id == self.commit_registration_id:
            self.is_commit_position_closed = True

    cdef void on_close(self) noexcept nogil:
        self.is_client_closed = True


cdef class ActiveLogEvent:
    """A JoinLog that waits for the current image to be drained."""


hide((ActiveLogEvent,))
seal((AgentListener,))
