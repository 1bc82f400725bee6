# The core: duty cycle, log position, cluster time, sessions, role, acks. It implements Cluster for the service.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from container.service.agent_events cimport ActiveLogEvent, AgentListener
from container.service.batch_delivery cimport BatchDelivery
from container.service.bounded_log_adapter cimport BoundedLogAdapter
from container.service.consensus_module_proxy cimport ConsensusModuleProxy
from container.service.container_client_session cimport ClientSessions, ContainerClientSession
from container.service.egress_connects cimport EgressConnects
from container.service.event_handler cimport EventHandler
from container.service.service_adapter cimport ServiceAdapter
from container.service.service_handler cimport ServiceHandler
from container.transport.duration_tracker cimport DurationTracker
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counters
from container.transport.transport_seam cimport Client, MarkFile, SnapshotReader, SnapshotStore
from container.transport.streams cimport Image, Subscription


@cython.final
cdef class ClusteredServiceAgent(EventHandler):
    cdef object _context
    cdef object _on_error                       # counted error handler
    cdef Client _client
    cdef Clock _clock
    cdef ServiceHandler _handler
    cdef IdleStrategy _idle_strategy
    cdef int _sends                         # to sessions, since the other parts of its thread had a turn
    cdef IdleStrategy _cluster_idle             # idle_once() as a strategy
    cdef MarkFile _mark_file
    cdef SnapshotStore _snapshot_store
    cdef ConsensusModuleProxy _proxy
    cdef ServiceAdapter _service_adapter
    cdef BoundedLogAdapter _log_adapter
    cdef ClientSessions _sessions
    cdef EgressConnects _connects
    cdef DurationTracker _duty_cycle_tracker
    cdef DurationTracker _snapshot_duration_tracker
    cdef BatchDelivery _batch                   # None when the service takes one message at a time
    cdef AgentListener _listener
    cdef Counters _counters
    cdef ActiveLogEvent _active_log_event       # None when no log waits to be joined
    cdef SnapshotReader _gap                    # what was missed of the log, while it is replayed; else None

    cdef int32_t _service_id
    cdef int32_t _member_id
    cdef int32_t _role
    cdef int32_t _time_unit                     # -1: not known yet
    cdef int64_t _log_position
    cdef int64_t _cluster_time
    cdef int64_t _ack_id
    cdef int64_t _termination_position          # NULL_VALUE: none
    cdef bint _is_termination_ack_required
    cdef int64_t _requested_ack_position        # NULL_VALUE: none
    cdef int64_t _last_tick_ns
    cdef int64_t _mark_file_ms                  # the time of day that was written last
    cdef int64_t _last_commit_position
    cdef int64_t _gap_position                  # where the replay has come to, when this was last looked at
    cdef int64_t _gap_end_position
    cdef int64_t _gap_deadline_ns
    cdef int32_t _standby_snapshot_flags
    cdef int _lifecycle_callback                # the callback in progress from which nothing may be sent
    cdef int _event                             # the event of the log whose callback is in progress
    cdef int64_t _event_id                      # of its session, timer or term
    cdef size_t _message_length                 # of the last session message
    cdef str _name                              # of the service, for what is logged
    cdef int64_t _opened_count                  # sessions, since they were logged last
    cdef int64_t _closed_count
    cdef int64_t _sessions_reported_ns
    cdef int64_t _snapshot_length               # bytes of the last snapshot that was taken
    cdef bint _is_gap_late                      # nothing came of the gap in time, and it is looked once more
    cdef bint _halts_on_error                   # callback_error_policy
    cdef bint _is_service_active
    cdef bint _is_in_background_work
    cdef bint _is_aborted
    cdef bint _is_closed
    cdef bint _is_responding_service
    cdef bint _is_interrupted                   # the next idling raises AgentTermination
    cdef uintptr_t _owner_thread                # 0 in a forked child
    cdef long _parent_id                        # of the process of which this one is a fork; 0 where it was made
    cdef list _child_failures                   # what a forked child has raised since
    cdef uint8_t _session_header[32]

    cdef int _open(self, object context) except -1
    cdef int _disown(self, long process_id) except -1
    cdef int _check_process(self) except -1
    cdef int _start(self) except -1
    cdef int _await_commit_position(self) except -1
    cdef int _recover_state(self) except -1
    cdef int32_t _await_recovery_state(self) except -1
    cdef int64_t _load_snapshot(self, int64_t recording_id) except -1
    cdef int _do_work(self) except? -1
    cdef bint _tick(self, int64_t now_ns) except -1
    cdef int _slow_tick(self) except -1
    cdef int _check_client(self) except -1
    cdef int _invoke_client(self) except -1
    cdef bint _session_makes_room(self) except -1
    cdef bint _makes_room(self, int* attempts) except -1
    cdef int _end_for(self, object error, str doing) except -1
    cdef int _idle(self, int work_count, bint works_in_background) except -1
    cdef int _poll_control(self) except -1
    cdef int _check_termination(self) except -1
    cdef int _check_requested_ack(self) except -1
    cdef int64_t _commit_position(self) noexcept
    cdef int _background_work(self, int64_t now_ns) except -1
    cdef int _poll_log(self) except -1
    cdef int _skip_event(self, object error) except -1
    cdef int _skip(self, str name, int64_t log_position, str what, dict facts, object error) except -1
    cdef int _report_with(self, str remark, object error, dict facts=*) except -1
    cdef int _report_at_end(self, object error, str remark=*) except -1
    cdef int _begin_event(self, int64_t log_position, int64_t timestamp) except -1
    cdef int _deliver_batch(self) except -1
    cdef int _check_valid_invocation(self) except -1
    cdef int _refuse_invocation(self) except -1
    cdef void _put_session(self, int64_t cluster_session_id) noexcept
    cdef int _ack(self, int64_t log_position, int64_t relevant_id) except -1
    cdef int _join_log(self, ActiveLogEvent event) except -1
    cdef bint _subscribe_to_log(self, ActiveLogEvent event) except -1
    cdef int _fetch_gap(self, ActiveLogEvent event) except -1
    cdef str _missed(self, int64_t position)
    cdef object _gap_failure(self, int64_t position, str reason)
    cdef int _check_gap(self) except -1
    cdef Image _await_image(self, Subscription subscription, ActiveLogEvent event)
    cdef int _close_log(self) except -1
    cdef int _set_role(self, int32_t role) except -1
    cdef int _begin_egress(self, list sessions) except -1
    cdef int _await_egress(self, ContainerClientSession session) except -1
    cdef bint _has_egress(self, ContainerClientSession session) except -1
    cdef int _poll_connects(self) except -1
    cdef int _disconnect(self, ContainerClientSession session) except -1
    cdef int _disconnect_egress(self) except -1
    cdef int _close_resource(self, object resource) except -1
    cdef int _report_sessions(self) except -1
    cdef int _report_if_slow(self, str callback, int64_t begin_ns) except -1
    cdef int64_t _take_snapshot(self, int64_t log_position, int64_t leadership_term_id) except? -1
    cdef int _snapshot(self, int64_t log_position, int64_t leadership_term_id) except -1
    cdef int64_t _report_too_long(self, ContainerClientSession session, size_t length, int32_t limit) except? -6
    cdef int _terminate_service(self) except -1
    cdef int _close(self) except -1
    cdef int _call_on_terminate(self) except -1
    cdef int _run_termination_hook(self) except -1


cdef ClusteredServiceAgent new_agent(object context)
