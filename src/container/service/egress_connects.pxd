# Which sessions' egress a leader has its driver add, and how many of them at a time.
cimport cython
from libc.stdint cimport int64_t

from container.service.container_client_session cimport ContainerClientSession, WaitBudget
from container.transport.transport_seam cimport Client


@cython.final
cdef class ConnectQueue:
    cdef Py_ssize_t _limit
    cdef list _asked                        # sessions for which the driver has been asked, at most so many
    cdef object _waiting                    # deque of the others

    cdef int add(self, list sessions) except -1
    cdef int poll(self, Client client, int64_t now_ns, list failures) except -1
    cdef bint _is_done(self, ContainerClientSession session, Client client, int64_t now_ns, list failures) except -1


@cython.final
cdef class EgressConnects:
    cdef ConnectQueue _addresses
    cdef ConnectQueue _names
    cdef WaitBudget _patience
    cdef ContainerClientSession _overdue    # waited for, and still without an answer; or None

    cdef bint is_overdue(self) noexcept

    cdef bint is_empty(self) noexcept
    cdef int add(self, list sessions, int64_t now_ns) except -1
    cdef list poll(self, Client client, int64_t now_ns)     # errors of those that cannot be connected
    cdef int64_t wait_limit_ns(self, int64_t now_ns) noexcept    # for how long the driver may be waited for now
    # For the answer for this session, or with None for all.
    cdef bint is_awaited(self, ContainerClientSession session) noexcept
    cdef int waited(self, ContainerClientSession session, int64_t begin_ns, int64_t end_ns) except -1
    cdef int clear(self) except -1
