# The log of a term that this member leads.
from libc.stdint cimport int32_t, int64_t

from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication


cdef class LeaderLog:
    cdef object _settings
    cdef object _on_error
    cdef Client _client
    cdef LogPublisher _publisher
    cdef LogRecording _recording
    cdef ServiceJoins _joins
    cdef MemberTermination _termination
    cdef int64_t _channel_tag
    cdef ClusterMembers _members
    cdef object _publishing                     # generator; None: the driver is not asked for a publication
    cdef dict _missing                          # ClusterMember without a destination: when it may be asked for
    cdef dict _pending                          # ClusterMember: the PendingAdd of its destination
    cdef object _join                           # generator; None: none is in progress
    cdef int begin_publication(self, int64_t append_position) except -1
    cdef object poll_publication(self)
    cdef int poll_destinations(self, int64_t now_ns) except -1
    cdef int _begin_destination(self, Publication publication, ClusterMember member, int64_t now_ns) except -1
    cdef int _poll_destination(self, ClusterMember member, PendingAdd pending, int64_t now_ns) except -1
    cpdef int close_publishing(self) except -1
    cdef int leave(self) except -1
    cdef int begin_join(self, int64_t log_position, int32_t session_id, bint is_startup) except -1
    cdef bint poll_join(self) except -1
    cpdef int close_join(self) except -1
