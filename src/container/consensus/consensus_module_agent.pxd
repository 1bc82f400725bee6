# The duty cycle of a consensus module: one agent, which one thread drives.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_control cimport ClusterControl
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_adapter cimport ConsensusAdapter
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.consensus.consensus_module_adapter cimport ConsensusModuleAdapter
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.follower_log cimport FollowerLog
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.leader_log cimport LeaderLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_following cimport LogFollowing
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_election_host cimport MemberElectionHost
from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_start cimport MemberStart
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.peer_messages cimport PeerMessages
from container.consensus.pending_service_messages cimport MessageAppender, PendingServiceMessageTracker
from container.consensus.service_proxy cimport ServiceProxy
from container.consensus.session_manager cimport SessionManager
from container.consensus.timer_service cimport TimerService
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport Client


cdef class ConsensusModuleAgent(ConsensusEventHandler):
    # what it is given
    cdef readonly object context                # ConsensusModuleContext, concluded
    cdef Client _client
    cdef Clock _clock
    cdef ConsensusModuleCounters _counters
    cdef ClusterClock _cluster_clock
    cdef object _recording_log

    # in and out
    cdef IngressAdapter _ingress
    cdef ConsensusModuleAdapter _service_adapter
    cdef ServiceProxy _service_proxy
    cdef ConsensusAdapter _consensus
    cdef ConsensusPublisher _publisher
    cdef LogAdapter _log_adapter
    cdef readonly LogPublisher log_publisher
    cdef AsyncArchive _archive
    cdef object _egress_channels                # EgressChannels
    cdef str _ingress_endpoints

    # its parts
    cdef readonly ClusterMembers members
    cdef readonly SessionManager sessions
    cdef readonly object backups                # BackupAnswers
    cdef object _standby_snapshots              # StandbySnapshots; None: they are not accepted
    cdef MemberStatus _status
    cdef MemberServices _services
    cdef TimerService _timers
    cdef list _trackers                         # PendingServiceMessageTracker of each service
    cdef MessageAppender _message_appender
    cdef int _portions                          # of timers, and of messages of a service, that a turn takes at most
    cdef int64_t _new_log_term_length           # bytes; 0: the driver decides
    cdef LogRecording _recording
    cdef LogCommit _commit
    cdef MemberTermination _termination
    cdef MemberSnapshots _snapshots
    cdef ArchiveUpkeep _upkeep
    cdef ClusterControl _control
    cdef LeaderLog _leader_log
    cdef FollowerLog _follower_log
    cdef LogFollowing _following
    cdef FollowerCatchups _catchups
    cdef MemberElectionHost _elections
    cdef PeerMessages _peers
    cdef MemberStart _start

    cdef dict _expired_timers                   # correlation id -> how often, and when last, it expired unscheduled
    cdef int64_t _heartbeat_timeout_ns
    cdef int64_t _slow_tick_deadline_ns         # of the monotonic clock, as the next
    cdef int _missed_service_id                 # that went away before it acknowledged the end; NULL_VALUE: none
    cdef int64_t _mark_file_deadline_ns
    cdef object _wait_log                       # WaitLog
    cdef bint _is_waiting                       # as far as it is logged

    cdef int _turn(self) except -1
    cdef int _log_wait(self, int64_t now_ns) except -1
    cdef int _slow_tick(self, int64_t now_ns) except -1
    cdef int _slow_tick_of_leader(self, int64_t now_ns) except -1
    cdef int _slow_tick_of_follower(self, int64_t now_ns) except -1
    cdef int _enter_election(self, bint is_log_end_of_stream, str reason) except -1
    cdef int _check_version(self, int32_t time_unit, int32_t app_version) except -1
    cdef int _check_services(self) except -1
    cdef int _invoke_client(self) except -1
    cdef int _poll_archive(self) except -1
    cdef int _consensus_work(self, int64_t now_ns) except -1
    cdef int _poll_timers(self) except -1
    cdef int _append_service_messages(self) except -1
    cdef int64_t _max_payload_length(self) except -1
    cdef PendingServiceMessageTracker _tracker_of(self, int service_id)
