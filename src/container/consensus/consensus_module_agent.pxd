# The duty cycle of a consensus module: one agent, which one thread drives.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.consensus_adapter cimport ConsensusAdapter
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.consensus_module_adapter cimport ConsensusModuleAdapter
from container.consensus.event_handler cimport ConsensusEventHandler
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.pending_service_messages cimport MessageAppender, PendingServiceMessageTracker
from container.consensus.position_queue cimport PositionQueue
from container.consensus.service_proxy cimport ServiceProxy
from container.consensus.session_manager cimport SessionManager
from container.consensus.steps cimport ActiveRecording, Deadline
from container.consensus.timer_service cimport TimerService
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter, Counters
from container.transport.transport_seam cimport Client, ClientListener
from container.transport.streams cimport PendingAdd


cdef enum ModuleState:                          # what counter 200 shows
    STATE_INIT
    STATE_ACTIVE
    STATE_SUSPENDED
    STATE_SNAPSHOT
    STATE_QUITTING
    STATE_TERMINATING
    STATE_CLOSED


cdef class Listener(ClientListener):            # flags that the client's conductor sets, maybe on another thread
    cdef int64_t* _service_client_ids           # of services that acked their start; NULL_VALUE: not yet
    cdef int _service_count
    cdef int lost_service_id                    # NULL_VALUE: none
    cdef int64_t append_registration_id         # of the counter of the log's recording; NULL_VALUE: none
    cdef bint is_append_position_lost
    cdef int watch(self, int service_id, int64_t client_id) except -1


cdef class ConsensusModuleAgent(ConsensusEventHandler):
    # what it is made of
    cdef readonly object context                # ConsensusModuleContext, concluded
    cdef object _settings
    cdef object _egress_channels                # EgressChannels
    cdef Client _client
    cdef Clock _clock
    cdef Counters _all_counters
    cdef ConsensusModuleCounters _counters
    cdef ClusterClock _cluster_clock
    cdef object _recording_log
    cdef object _node_state
    cdef object _random
    cdef readonly ClusterMembers members
    cdef readonly SessionManager sessions
    cdef readonly LogPublisher log_publisher
    cdef LogAdapter _log_adapter
    cdef IngressAdapter _ingress
    cdef ConsensusModuleAdapter _control
    cdef ConsensusAdapter _consensus
    cdef object _standby_snapshots              # StandbySnapshots; None: they are not accepted
    cdef ServiceProxy _services
    cdef TimerService _timers
    cdef list _trackers                         # PendingServiceMessageTracker of each service
    cdef MessageAppender _message_appender
    cdef object _acks                           # ServiceAckQueues
    cdef Listener _listener
    cdef AsyncArchive _archive

    cdef Deadline _deadline                     # of whatever the start, the election or a snapshot waits for

    # what it does
    cdef ModuleState _state
    cdef int _role
    cdef int64_t _leadership_term_id
    cdef ClusterMember _leader
    cdef object _start                          # generator; None: started
    cdef object _election                       # None: there is a leader
    cdef object _preparation                    # generator; None: none is in progress
    cdef object _join                           # generator of an election; None: none is in progress
    cdef object _snapshot                       # generator; None: none is in progress
    cdef object _space_check                    # generator, before a snapshot; None: none is in progress
    cdef bint _has_space                        # it has ended well, and the snapshot is not in the log yet
    cdef readonly object snapshot_failure       # why the last snapshot was not taken (str), or None
    cdef object _upkeep                         # generator, that asks the archive; None: none is in progress
    cdef bint _is_validation_wanted             # of the recording log
    cdef int _retained_count                    # snapshots that are kept; 0: all
    cdef int64_t _retention_due_ns              # when what is not needed is removed; INT64_MAX: not yet
    cdef int64_t _backup_position               # from which a backup needs the log; NULL_POSITION: none has asked
    cdef str _retention_hold                    # why not all of that could go at the last look; None: it could
    cdef object _termination                    # deadline (ns) of a termination that this leader began; None: none
    cdef int64_t _termination_position          # NULL_POSITION: none was asked for
    cdef int64_t _snapshot_position             # of the snapshot in progress, or of the last one
    cdef bint _is_awaiting_services             # in a termination
    cdef bint _is_termination_sent              # to the services
    cdef int64_t _service_ack_id
    cdef int64_t _expected_ack_position
    cdef int64_t _join_position                 # of the join that services have yet to ack; NULL_POSITION: none
    cdef object _log_replay                     # AgentLogReplay; None: the log is not replayed
    cdef object _recovery_plan
    cdef str _ingress_endpoints
    cdef dict _expired_timers                   # correlation id -> how often it expired before it was scheduled
    cdef PositionQueue _uncommitted_timers      # correlation ids
    cdef object _uncommitted_states             # deque of (log position, state before)
    cdef int64_t _channel_tag
    cdef PendingAdd _pending_log_publication

    # the log's recording
    cdef int64_t _log_recording_id              # NULL_VALUE: there is none yet
    cdef int64_t _log_subscription_id           # NULL_VALUE: it is not recorded
    cdef int64_t _log_request_id                # of its recording: an error of the archive with it is a failed write
    cdef int32_t _append_counter_id             # NULL_COUNTER_ID: it is not recorded
    cdef int64_t _notified_commit_position

    cdef int64_t _heartbeat_interval_ns
    cdef int64_t _heartbeat_timeout_ns
    cdef object _failures                       # container.consensus.election.Failures, of all elections
    cdef int64_t _failure_limit_ns              # how long a member without others may fail to lead
    cdef int64_t _leads_since_ns
    cdef object _end_of_term                    # the method, which is made once

    # times, in nanoseconds of the monotonic clock
    cdef int64_t _slow_tick_deadline_ns
    cdef int64_t _mark_file_deadline_ns
    cdef int64_t _time_of_last_log_update_ns
    cdef readonly int64_t time_of_last_leader_update_ns

    # how it ends
    cdef object _wait_log                       # WaitLog
    cdef str _start_awaits
    cdef str _election_awaits
    cdef bint _is_waiting                       # as far as it is logged
    cdef bint _are_services_ending

    cdef int _turn(self) except -1
    cdef int _log_wait(self, int64_t now_ns) except -1
    cdef int _slow_tick(self, int64_t now_ns) except -1
    cdef int _slow_tick_of_leader(self, int64_t now_ns) except -1
    cdef int _poll_archive(self) except -1
    cdef int _check_archive(self, object error) except -1
    cdef int _check_failures(self, int64_t now_ns, str reason) except -1
    cdef int _consensus_work(self, int64_t now_ns) except -1
    cdef int _check_control_toggle(self, int64_t now_ns) except -1
    cdef int _check_node_control_toggle(self) except -1
    cdef int _poll_upkeep(self, int64_t now_ns) except -1
    cdef int _begin_retention(self) except -1
    cdef bint _can_enter_election(self) noexcept
    cdef int _begin_shutdown(self, int64_t now_ns) except -1
    cdef int _begin_abort(self, int64_t now_ns) except -1
    cdef int _append_action(self, int32_t action, int32_t flags, ModuleState next_state, str reason) except -1
    cdef int _set_state(self, ModuleState state, str reason) except -1
    cdef int64_t _recorded_position(self) noexcept
    cdef int _update_leader_position(self, int64_t now_ns) except -1
    cdef int _update_commit_position(
        self, int64_t now_ns, int64_t append_position, int64_t quorum_position) except -1
    cdef int _sweep_uncommitted(self, int64_t commit_position) except -1
    cdef int _restore_uncommitted(self, int64_t commit_position) except -1
    cdef int _set_leadership_term(self, int64_t leadership_term_id) except -1
    cdef int _tell_services_to_terminate(self, int64_t log_position) except -1
    cdef int _send_termination(self) except -1
    cdef int _begin_snapshot(self, int64_t log_position, int64_t timestamp, list acks) except -1
    cdef int _poll_snapshot(self) except -1
    cdef int _poll_space_check(self) except -1
    cdef int _end_snapshot(self) except -1
    cdef int _terminate(self, bint is_expected, str reason) except -1
    cdef int _stop_log_recording(self) except -1
    cdef int _replay_poll(self, int64_t stop_position) except -1
    cdef int _invoke_client(self) except -1
    cdef int64_t _max_payload_length(self) except -1
    cdef PendingServiceMessageTracker _tracker_of(self, int service_id)
