# How a member ends: with its cluster, or because it cannot continue.
from libc.stdint cimport int64_t

from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_services cimport MemberServices
from container.consensus.member_status cimport MemberStatus
from container.transport.clocks cimport Clock


cdef class MemberTermination:
    cdef object _on_error
    cdef Clock _clock
    cdef int64_t _timeout_ns
    cdef object _recording_log
    cdef ClusterMembers _members
    cdef MemberStatus _status
    cdef MemberServices _services
    cdef LogRecording _recording
    cdef object _deadline_ns                    # of a termination that this leader began; None: none
    cdef int64_t _log_position                  # NULL_POSITION: none was asked for
    cdef ConsensusPublisher _publisher
    cdef list _untold                           # ClusterMember of those that are not told yet
    cdef int64_t _followed_position             # where this follower ends; NULL_POSITION: it continues
    cdef int64_t _followed_term_id              # of the leader that said so
    cdef bint _is_awaiting_services
    cdef bint _is_sent                          # to the services
    cdef bint is_begun(self) noexcept
    cdef int begin(self, int64_t now_ns, int64_t log_position) except -1
    cdef int forget(self) except -1
    cdef int tell_services(self, str reason) except -1
    cdef int tell_services_after_snapshot(self) except -1
    cdef int poll(self, int64_t now_ns) except -1
    cdef int on_ack(self, ClusterMember member, int64_t leadership_term_id, int64_t log_position) except -1
    cdef int on_position(self, int64_t log_position) except -1
    cdef bint is_followed(self) noexcept
    cdef bint is_reached(self, int64_t log_position) noexcept
    cdef int follow(self) except -1
    cdef int poll_follower(self) except -1
    cdef int on_terminated_services(self, int64_t log_position) except -1
    cdef int check_archive(self, object error) except -1
    cdef int terminate(self, bint is_expected, str reason) except -1
    cdef int _send(self) except -1
    cdef bint _can_terminate(self, int64_t now_ns) except -1
    cdef int _end_at(self, int64_t log_position, str reason) except -1
