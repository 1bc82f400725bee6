# A replay of a member's own recording of the log.
from libc.stdint cimport int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport MemberStatus
from container.consensus.service_joins cimport ServiceJoins
from container.consensus.steps cimport Deadline, ReplayImage
from container.transport.transport_seam cimport Client


cdef class MemberLogReplay:
    cdef object _settings
    cdef object _on_error
    cdef Client _client
    cdef ConsensusModuleCounters _counters
    cdef AsyncArchive _archive
    cdef MemberStatus _status
    cdef LogRecording _recording
    cdef LogAdapter _log_adapter
    cdef MemberSnapshots _snapshots
    cdef ServiceJoins _joins
    cdef Deadline _deadline
    cdef object _begin                          # generator; None: it is joined
    cdef ReplayImage _replay
    cdef int64_t _stop_position
    cdef int _poll(self) except -1
