# A member's requests to its archive besides the cluster's work.
from libc.stdint cimport int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.transport.clocks cimport Clock


cdef class ArchiveUpkeep:
    cdef str _name                              # of the consensus module, in events of the log
    cdef object _on_error
    cdef Clock _clock
    cdef ConsensusModuleCounters _counters
    cdef object _recording_log
    cdef AsyncArchive _archive
    cdef ClusterMembers _members
    cdef MemberStatus _status
    cdef LogRecording _recording
    cdef MemberTermination _termination
    cdef object _backups                        # BackupAnswers
    cdef int _service_count
    cdef object _work                           # generator; None: none is in progress
    cdef public bint is_validation_wanted       # of the recording log
    cdef int _retained_count                    # snapshots that are kept; 0: all
    cdef int64_t _due_ns                        # when what is not needed is removed; INT64_MAX: not yet
    cdef str _hold                              # why not all of that could go at the last look; None: it could
    cdef int look_soon(self) except -1
    cdef int poll(self, bint may_begin, int64_t now_ns) except -1
    cpdef int close(self) except -1
