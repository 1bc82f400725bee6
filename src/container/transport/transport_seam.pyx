"""The seam between the container and what carries its messages: abstract client, snapshot store and mark file.

Streams, counters and clocks have a module each. The classes of this one are never used by themselves:
`container.aeron` implements them over a media driver, and `container.testing.memory.memory_transport` over memory.
"""
from libc.stdint cimport int32_t, int64_t

from container.transport.abstract cimport abstract
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport NULL_VALUE
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.streams cimport PendingAdd, Publication, Subscription


cdef class ClientListener:
    """The client's conductor reports that a counter or the client itself is gone."""

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        pass

    cdef void on_close(self) noexcept nogil:
        pass


cdef class Client:
    """Adds and closes publications, subscriptions and counters."""

    cdef int64_t client_id(self) noexcept:
        return NULL_VALUE

    cdef int64_t next_correlation_id(self) except? -1:
        raise abstract(self, "next_correlation_id")

    cdef int32_t next_session_id(self, int32_t stream_id) except? -1:
        raise abstract(self, "next_session_id")

    cdef Publication add_publication(self, str channel, int32_t stream_id):
        raise abstract(self, "add_publication")

    cdef Publication add_exclusive_publication(self, str channel, int32_t stream_id):
        raise abstract(self, "add_exclusive_publication")

    cdef Subscription add_subscription(self, str channel, int32_t stream_id):
        raise abstract(self, "add_subscription")

    cdef Counter add_counter(self, int32_t type_id, bytes key, str label):
        raise abstract(self, "add_counter")

    cdef Counters counters(self):
        raise abstract(self, "counters")

    cdef bint has_stream(self, int32_t stream_id, int32_t session_id) except -1:
        raise abstract(self, "has_stream")

    cdef int add_listener(self, ClientListener listener) except -1:
        raise abstract(self, "add_listener")

    cdef int remove_listener(self, ClientListener listener) except -1:
        raise abstract(self, "remove_listener")

    cdef bint is_invoker(self) noexcept nogil:
        return False

    cdef int invoke(self) except -1:
        return 0

    cpdef bint is_closed(self) noexcept:
        return True

    @property
    def close_reason(self):
        """Why it is closed, in the words of what ended it (str); None while it is open."""
        return "closed" if self.is_closed() else None

    cpdef int close(self) except -1:
        raise abstract(self, "close")

    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive):
        raise abstract(self, "begin_add_publication")

    cdef PendingAdd begin_add_subscription(self, str channel, int32_t stream_id, bint queues_images):
        raise abstract(self, "begin_add_subscription")

    cdef PendingAdd begin_add_counter(self, int32_t type_id, bytes key, str label):
        raise abstract(self, "begin_add_counter")


cdef class SnapshotWriter:
    """A snapshot that is being published and recorded at the same time."""

    cdef int check(self) except -1:
        raise abstract(self, "check")

    cdef int64_t recorded_position(self) except? -1:
        raise abstract(self, "recorded_position")

    cdef bint is_complete(self) except -1:
        raise abstract(self, "is_complete")

    cpdef int close(self) except -1:
        raise abstract(self, "close")


cdef class SnapshotReader:
    """A snapshot that is being replayed: whole once ``image`` was read up to ``stop_position`` (int), never before."""

    cdef int check(self) except -1:
        raise abstract(self, "check")

    cpdef int close(self) except -1:
        raise abstract(self, "close")


cdef class SnapshotStore:
    """Where snapshots are recorded and replayed from, and the log is replayed from: an archive, or memory."""

    cdef SnapshotWriter create(self, IdleStrategy idle):
        raise abstract(self, "create")

    cdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle):
        raise abstract(self, "open")

    cdef SnapshotReader open_log(
            self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle):
        raise abstract(self, "open_log")


cdef class MarkFile:
    """The agent's view of its member's mark file."""

    cdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        raise abstract(self, "update_activity_timestamp")

    cdef int set_member_id(self, int32_t member_id) except -1:
        raise abstract(self, "set_member_id")

    cdef int signal_terminated(self) except -1:
        raise abstract(self, "signal_terminated")

    cpdef int close(self) except -1:
        raise abstract(self, "close")
