# Snapshots of a member: taken when the log says so, and loaded at a start.
from libc.stdint cimport int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.session_manager cimport SessionManager
from container.consensus.steps cimport Deadline
from container.consensus.timer_service cimport TimerService
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport Client


cdef class MemberSnapshots:
    cdef object _context                        # ConsensusModuleContext, concluded
    cdef object _settings
    cdef object _on_error
    cdef Client _client
    cdef Clock _clock
    cdef ConsensusModuleCounters _counters
    cdef ClusterClock _cluster_clock
    cdef object _recording_log
    cdef AsyncArchive _archive
    cdef MemberStatus _status
    cdef SessionManager _sessions
    cdef TimerService _timers
    cdef list _trackers                         # PendingServiceMessageTracker of each service
    cdef MemberTermination _termination
    cdef ArchiveUpkeep _upkeep
    cdef Deadline _deadline
    cdef object _taking                         # generator; None: none is in progress
    cdef object _space_check                    # generator, before a snapshot; None: none is in progress
    cdef readonly bint has_space                # it has ended well, and the snapshot is not in the log yet
    cdef readonly int64_t log_position          # of the snapshot in progress, or of the last one
    cdef readonly str failure                   # why the last one was not taken; None: it was, or is asked for again
    cdef bint is_awaiting_services(self) noexcept
    cdef bint is_asking_for_space(self) noexcept
    cdef int ask_for_space(self) except -1
    cdef int await_services(self, int64_t log_position, int64_t now_ns, str reason) except -1
    cdef int take(self, int64_t timestamp, list acks) except -1
    cdef bint poll(self) except -1
    cdef bint poll_space(self) except -1
    cdef int give_up(self) except -1
    cdef int give_up_space(self) except -1
    cdef int forget_failure(self) except -1
    cpdef int close(self) except -1
    cdef int _end(self) except -1
