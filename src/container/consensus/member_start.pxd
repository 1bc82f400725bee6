# The start of a member.
from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_election_host cimport MemberElectionHost
from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport MemberStatus
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.transport_seam cimport Client


cdef class MemberStart:
    cdef object _context                        # ConsensusModuleContext, concluded
    cdef Client _client
    cdef ConsensusModuleCounters _counters
    cdef AsyncArchive _archive
    cdef MemberStatus _status
    cdef MemberServices _services
    cdef LogRecording _recording
    cdef MemberSnapshots _snapshots
    cdef MemberElectionHost _elections
    cdef ConsensusEventHandler _handler
    cdef object _work                           # generator; None: the member has started, or failed to
    cdef str awaits                             # what it waits for
    cdef bint is_in_progress(self) noexcept
    cdef int do_work(self) except -1
    cpdef int close(self) except -1
