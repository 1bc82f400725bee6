# Replays of the leader's log for members that are behind.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording


cdef class FollowerCatchups:
    cdef object _settings
    cdef object _on_error
    cdef AsyncArchive _archive
    cdef ConsensusPublisher _publisher
    cdef LogPublisher _log_publisher
    cdef LogRecording _recording
    cdef dict _replays                          # of a member id: its ArchiveRequest
    cdef set _reached                           # ids of members that had a replay since this one leads
    cdef list _given_up                         # ArchiveRequest of those that end once they have begun
    cdef int begin(self, ClusterMember follower, int64_t log_position, str endpoint) except -1
    cdef int poll(self) except -1
    cdef int complete(self, ClusterMember follower, int64_t leadership_term_id, int flags) except -1
    cdef bint is_of_this_log(self, ClusterMember follower, int flags) except -1
    cdef int stop(self, ClusterMember follower) except -1
    cdef int stop_all(self) except -1
    cdef int _end(self, ArchiveRequest request) except -1
