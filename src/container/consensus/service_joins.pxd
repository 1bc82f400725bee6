# JoinLog to the services of a member, and their acks.
from libc.stdint cimport int32_t, int64_t

from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.steps cimport Deadline


cdef class ServiceJoins:
    cdef int _member_id
    cdef MemberServices _services
    cdef MemberSnapshots _snapshots
    cdef Deadline _deadline
    cdef int64_t _log_position                  # of the join that services have yet to ack; NULL_POSITION: none
    cdef int32_t _session_id                    # of that log
    cdef object _kept                           # closes what has to stay until then (callable), or None
    cdef bint _is_replay                        # that is a replay of the member's own recording
    cdef bint is_awaited(self, int32_t session_id) noexcept
    cdef int keep(self, object close, bint is_replay) except -1
    cpdef int close(self) except -1
