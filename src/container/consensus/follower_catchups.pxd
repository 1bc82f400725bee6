# Replays of the leader's log for members that are behind.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.transport.clocks cimport Clock


cdef class CatchupReplay:                       # what a member has asked for
    cdef int64_t log_position
    cdef str endpoint
    cdef ArchiveRequest request
    cdef bint has_begun
    cdef int64_t deadline_ns                    # of its beginning: its member waits no longer
    cdef int64_t due_ns                         # when a request that has failed is made again


cdef class FollowerCatchups:
    cdef object _settings
    cdef Clock _clock
    cdef object _on_error
    cdef AsyncArchive _archive
    cdef ConsensusPublisher _publisher
    cdef LogPublisher _log_publisher
    cdef LogRecording _recording
    cdef dict _replays                          # of a member id: its CatchupReplay
    cdef set _reached                           # ids of members that had a replay since this one leads
    cdef list _given_up                         # ArchiveRequest of those that end once they have begun
    cdef int begin(self, ClusterMember follower, int64_t log_position, str endpoint) except -1
    cdef int _ask(self, int32_t member_id, CatchupReplay replay) except -1
    cdef int poll(self) except -1
    cdef bint _is_too_short(self, ArchiveRequest request) except -1
    cdef bint _is_given_up(self, int32_t member_id, CatchupReplay replay) except -1
    cdef int complete(self, ClusterMember follower, int64_t leadership_term_id, int flags) except -1
    cdef bint is_of_this_log(self, ClusterMember follower, int flags) except -1
    cdef int stop(self, ClusterMember follower) except -1
    cdef int stop_all(self) except -1
    cdef int _end(self, ArchiveRequest request) except -1
