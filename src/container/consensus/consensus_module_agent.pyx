"""The duty cycle of a consensus module: in upstream's order, and no turn waits. Upstream: ConsensusModuleAgent.java.

What has to be waited for is a generator of :mod:`container.consensus.steps`, or of this module, that each turn takes
one on: the start, the preparation of an election, a join of the services, a snapshot.

The cluster clock gives the timestamps of the log. All durations are of the monotonic clock, so that a step of the
system's clock times nobody out.
"""
from collections import deque

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from container.archive import error_codes
from container.archive.client cimport recording_counters
from container.archive.client.recording_counters cimport NULL_COUNTER_ID
from container.codecs.cluster cimport (
    ADMIN_REQUEST_TEMPLATE_ID, ADMIN_REQUEST_TYPE_SNAPSHOT, ADMIN_RESPONSE_CODE_ERROR, ADMIN_RESPONSE_CODE_OK,
    ADMIN_RESPONSE_CODE_UNAUTHORISED_ACCESS, CLUSTER_ACTION_RESUME, CLUSTER_ACTION_SNAPSHOT, CLUSTER_ACTION_SUSPEND,
    SESSION_MESSAGE_HEADER_ENCODED_LENGTH,
)
from container.codecs.messages import encode
from container.common import aeron_defaults
from container.common.aeron_defaults import CounterType
from container.common.channel_uri import ChannelUri, add_session_id
from container.common.directories import removed_text
from container.common.error_texts import message_of
from container.common.log_events import WaitLog, log_event
from container.common.sealed cimport hide, seal
from container.common.semantic_version import format_version
from container.consensus import channels
from container.consensus.backup_requests import (
    BackupQuery, HeartbeatRequest, StandbySnapshot, StandbySnapshotEntry, StandbySnapshots, backup_response,
)
from container.consensus cimport egress_publisher
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.cluster_session cimport ClusterSession
from container.consensus.consensus_adapter cimport ConsensusAdapter
from container.consensus.consensus_counters cimport recovery_state_key, recovery_state_label
from container.consensus.consensus_module_adapter cimport ConsensusModuleAdapter
from container.consensus.election import Election, Failures
from container.consensus.election_host import ElectionState
from container.consensus.event_handler cimport ConsensusEventHandler
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.pending_service_messages cimport (
    MessageAppender, PendingServiceMessageTracker, service_id_from_log_message, service_id_from_service_message,
)
from container.consensus.recording_log_validator import validate_recording_log
from container.consensus.position_queue cimport PositionQueue
from container.consensus.recovery_plan import create_recovery_plan, needed_recording_id
from container.consensus.retention import needed_log_position, outdated, remove_log, remove_snapshots
from container.consensus.service_acks import ServiceAck, ServiceAckQueues
from container.consensus.service_proxy cimport ServiceProxy
from container.consensus.session_manager cimport SessionManager
from container.consensus.snapshot_messages cimport SnapshotAdapter, snapshot_messages
from container.consensus.steps cimport ActiveRecording, Deadline, ReplayImage
from container.consensus.steps import added, answer, begin_replay, record_snapshot, start_recording, try_recording
from container.consensus.timer_service cimport TimerHandler
from container.errors import (
    AgentTermination, ArchiveError, ClusterError, ClusterEvent, ClusterTermination, CodecError, ConfigurationError,
    MarkFileError, PublicationUnavailableError, RecordingError, SnapshotError,
)
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport ACTION_ABORT, ACTION_CONTINUE, NULL_VALUE
from container.transport.transport_seam cimport ClientListener
from container.transport.streams cimport Image, Publication

cdef enum:
    NS_PER_MS = 1_000_000
    NULL_POSITION = -1
    SLOW_TICK_INTERVAL_NS = 10 * 1_000_000
    MARK_FILE_INTERVAL_NS = 1_000_000_000
    ACTION_FLAGS_DEFAULT = 0
    ACTION_FLAGS_STANDBY_SNAPSHOT = 1
    CONSENSUS_MODULE_SERVICE_ID = -1
    MAX_MESSAGE_LENGTH = 16 * 1024 * 1024       # of any publication

cdef enum Toggle:                               # of the counter of type 202: what a tool wants of the cluster
    TOGGLE_INACTIVE
    TOGGLE_NEUTRAL
    TOGGLE_SUSPEND
    TOGGLE_RESUME
    TOGGLE_SNAPSHOT
    TOGGLE_SHUTDOWN
    TOGGLE_ABORT
    TOGGLE_STANDBY_SNAPSHOT

cdef enum:                                      # of the counter of type 233, beside INACTIVE and NEUTRAL
    NODE_TOGGLE_VALIDATE_RECORDING_LOG = 3

cdef enum:                                      # cheaper than members of the enum
    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2

cdef int32_t RECOVERY_STATE_TYPE_ID = CounterType.RECOVERY_STATE
cdef int64_t RETENTION_INTERVAL_NS = 60_000_000_000     # between two looks while somebody needs what would go

STATES = ("INIT", "ACTIVE", "SUSPENDED", "SNAPSHOT", "QUITTING", "TERMINATING", "CLOSED")


cdef bint _is_done(object step, object on_failure) except -1:
    """Take a generator one step on; whether it has ended, after a failure as well, which ``on_failure`` is given."""
    cdef bint is_done = True
    try:
        next(step)
        is_done = False
    except StopIteration:
        pass
    except Exception as error:
        on_failure(error)
    return is_done


cdef class Listener(ClientListener):
    """Remembers that a service, or the counter of the log's recording, is gone."""

    def __cinit__(self, int service_count):
        cdef int service_id
        self._service_count = service_count
        self._service_client_ids = <int64_t*> PyMem_Malloc(max(1, service_count) * sizeof(int64_t))
        if self._service_client_ids == NULL:
            raise MemoryError("no memory for the client ids of services")
        for service_id in range(service_count):
            self._service_client_ids[service_id] = NULL_VALUE
        self.lost_service_id = NULL_VALUE
        self.append_registration_id = NULL_VALUE

    def __dealloc__(self):
        PyMem_Free(self._service_client_ids)

    cdef int watch(self, int service_id, int64_t client_id) except -1:
        self._service_client_ids[service_id] = client_id
        return 0

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        cdef int service_id
        if registration_id == NULL_VALUE:
            return
        if registration_id == self.append_registration_id:
            self.is_append_position_lost = True
        for service_id in range(self._service_count):
            if self._service_client_ids[service_id] == registration_id:
                self.lost_service_id = service_id


cdef class TimerAppender(TimerHandler):
    """Appends the events of timers that expire, for the leader."""
    cdef ConsensusModuleAgent _agent

    cpdef bint on_timer_event(self, int64_t correlation_id) except -1:
        cdef ConsensusModuleAgent agent = self._agent
        cdef int64_t position = agent.log_publisher.append_timer(
            agent._leadership_term_id, correlation_id, agent._cluster_clock.time())
        if position <= 0:
            return False
        agent._uncommitted_timers.push(position, correlation_id)
        return True


cdef class ServiceMessageAppender(MessageAppender):
    """Appends messages that services have offered, for the leader."""
    cdef ConsensusModuleAgent _agent

    cdef int64_t append_message(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except? -6:
        cdef ConsensusModuleAgent agent = self._agent
        return agent.log_publisher.append_message(
            agent._leadership_term_id, cluster_session_id, agent._cluster_clock.time(), payload, length)


cdef class AgentLogReplay:
    """A replay of the member's own recording of the log, for its services and for itself."""
    cdef ConsensusModuleAgent _agent
    cdef object _begin                          # generator; None: it is joined
    cdef ReplayImage _replay
    cdef int64_t _stop_position

    def do_work(self):
        """Take a turn; how much was done (int)."""
        cdef int work_count = 0
        if self._begin is None:
            return self._agent._replay_poll(self._stop_position)
        try:
            next(self._begin)
        except StopIteration:
            self._begin = None
            work_count = 1
        except ArchiveError as error:
            raise self.failure(error) from error
        return work_count

    def failure(self, error):
        """The error (ClusterError) that says what an error of the archive keeps from being done."""
        return ClusterError(
            f"the log cannot be replayed up to {self._stop_position}: {message_of(error)}; if its recording is "
            "damaged, take the archive's and the cluster's directories from a backup, or, beside other members, let "
            "this one begin with empty directories")

    def is_done(self):
        """Whether services and consensus module are at its end (bool)."""
        return (self._begin is None and self._agent._log_adapter.position() >= self._stop_position
                and self._agent._state != STATE_SNAPSHOT)

    def position(self):
        """How far it has come (int)."""
        return self._agent._log_adapter.position()

    def close(self):
        """End it."""
        self._agent._log_replay = None
        if self._begin is not None:
            self._begin.close()
        self._agent._log_adapter.leave()
        if self._replay is not None:
            try:
                self._agent._archive.stop_replay(self._replay.replay_session_id)
            except ArchiveError as error:
                self._agent.report(error)
            self._replay.subscription.close()
            self._replay = None


def _own_endpoints(settings, members):
    """Where members and their archives listen, and where the channels of the settings do."""
    for member in members:
        for endpoint in (member.ingress_endpoint, member.consensus_endpoint, member.log_endpoint,
                         member.catchup_endpoint, member.archive_endpoint, member.archive_response_endpoint,
                         member.egress_response_endpoint):
            if endpoint:
                yield endpoint
    for channel in (settings.ingress_channel, settings.consensus_channel, settings.log_channel,
                    settings.replication_channel):
        uri = ChannelUri.parse(channel)
        for name in ("endpoint", "control"):
            if uri.get(name):
                yield uri.get(name)


def _own_streams(settings):
    return (settings.ingress_stream_id, settings.log_stream_id, settings.service_stream_id,
            settings.consensus_module_stream_id, settings.consensus_stream_id, settings.replay_stream_id,
            settings.snapshot_stream_id, settings.archive_control_stream_id, aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
            aeron_defaults.ARCHIVE_RECORDING_EVENTS_STREAM_ID, aeron_defaults.SERVICE_SNAPSHOT_STREAM_ID)


cdef class ConsensusModuleAgent(ConsensusEventHandler):
    """The agent of a consensus module; the first turns start it, and it leads or follows until :meth:`close`.

    Args:
        context: concluded (container.consensus.consensus_module_context.ConsensusModuleContext): settings, client,
            counters, files, authenticator and the rest; it stays the owner of all that it has.

    One thread calls it. It asks the driver for the control streams, and waits for that; later it waits for nothing.
    """

    def __init__(self, context):
        cdef TimerAppender timer_appender = TimerAppender.__new__(TimerAppender)
        cdef ServiceMessageAppender message_appender = ServiceMessageAppender.__new__(ServiceMessageAppender)
        settings = context.settings
        self.context, self._settings, self._on_error = context, settings, context.counted_error_handler
        self._client = context.client
        self._clock, self._all_counters = self._client.clock, self._client.counters()
        self._counters, self._cluster_clock = context.counters, context.cluster_clock
        self._recording_log, self._node_state = context.recording_log, context.node_state_file
        self._random = context.random
        self.members = ClusterMembers(context.members, settings.cluster_member_id)
        self._leader = self.members.this_member
        self.log_publisher = LogPublisher()
        self.sessions = SessionManager(
            self._client, self._cluster_clock, self.log_publisher, authenticator=context.authenticator,
            authorisation_service=context.authorisation_service, on_error=self._on_error,
            timed_out_counter=self._counters.timed_out_clients, cluster_id=settings.cluster_id,
            member_id=settings.cluster_member_id, session_timeout_ns=settings.session_timeout_ns,
            leader_heartbeat_timeout_ns=settings.leader_heartbeat_timeout_ns,
            max_concurrent_sessions=settings.max_concurrent_sessions)
        self._egress_channels = channels.EgressChannels(
            settings.egress_channel, is_ipc_allowed=settings.is_ipc_ingress_allowed,
            term_length_max=settings.egress_term_length_max, own_endpoints=_own_endpoints(settings, context.members),
            own_streams=_own_streams(settings))
        timer_appender._agent = message_appender._agent = self
        self._message_appender = message_appender
        self._timers = context.new_timer_service(timer_appender)
        self._trackers = [PendingServiceMessageTracker(each) for each in range(settings.service_count)]
        self._acks = ServiceAckQueues(settings.service_count, self._on_error)
        self._listener = Listener.__new__(Listener, settings.service_count)
        self._log_adapter = LogAdapter(self, settings.log_fragment_limit)
        self._ingress = IngressAdapter(
            self, self._client, settings.ingress_stream_id, settings.ingress_fragment_limit, self._on_error)
        self._deadline = Deadline(self._clock, settings.leader_heartbeat_timeout_ns)
        self._heartbeat_interval_ns = settings.leader_heartbeat_interval_ns
        self._heartbeat_timeout_ns = settings.leader_heartbeat_timeout_ns
        self._failures = Failures(settings.leader_heartbeat_timeout_ns)
        self._failure_limit_ns = settings.driver_timeout_ms * <int64_t> NS_PER_MS
        self._end_of_term = self.end_of_term
        self._expired_timers = {}
        self._uncommitted_timers = PositionQueue()
        self._uncommitted_states = deque()
        self._leadership_term_id = self._log_recording_id = self._log_subscription_id = NULL_VALUE
        self._log_request_id = NULL_VALUE
        self._append_counter_id = NULL_COUNTER_ID
        self._termination_position = self._join_position = self._backup_position = NULL_POSITION
        self._retained_count = settings.snapshots_retained
        self._retention_due_ns = INT64_MAX
        self._ingress_endpoints = self.members.ingress_endpoints()
        self._control = ConsensusModuleAdapter(
            self._client.add_subscription(settings.control_channel, settings.consensus_module_stream_id), self)
        self._services = ServiceProxy(
            self._client.add_publication(settings.control_channel, settings.service_stream_id))
        self._consensus = ConsensusAdapter(
            self._client.add_subscription(
                channels.consensus_subscription_channel(
                    settings.consensus_channel, self.members.this_member.consensus_endpoint),
                settings.consensus_stream_id),
            self, self.members)
        if self._counters.standby_snapshots is not None:
            self._standby_snapshots = StandbySnapshots(
                self._recording_log, self._count_standby_snapshot, settings.standby_snapshot_delay_ns, self._on_error)
        self._archive = context.new_archive_client()
        self._client.add_listener(self._listener)
        self._wait_log = WaitLog(context.name)
        self._start_awaits = "the archive to answer"
        self._start = self._start_up()

    # The duty cycle

    def start(self):
        """Begin: the first turns do the rest."""
        self._counters.cycle.begin(self._clock.nano_time())

    cdef int _work(self) except? -1:
        self._counters.cycle.measure_and_begin(self._clock.nano_time())
        return self._turn()

    cdef int64_t _tick(self) noexcept:
        return self._clock.coarse_nano_time()

    cdef int _turn(self) except -1:
        cdef int64_t now_ns = self._clock.nano_time()
        cdef int work_count = 0, slow_tick_count
        if now_ns >= self._slow_tick_deadline_ns or self._start is not None or self._election is not None:
            slow_tick_count = self._slow_tick(now_ns)
            work_count += slow_tick_count
            self._log_wait(now_ns)
            self._slow_tick_deadline_ns = now_ns + (1 if slow_tick_count > 0 else SLOW_TICK_INTERVAL_NS)
        if self._start is None:
            work_count += self._consensus.poll()
        if self._start is not None:
            work_count += self._take_start_on()
        elif self._election is not None:
            work_count += self._take_election_on(now_ns)
        else:
            work_count += self._consensus_work(now_ns)
        return work_count + self._control.poll()

    cdef int _log_wait(self, int64_t now_ns) except -1:
        """Log what is waited for, if that lasts long."""
        cdef str what = None
        if self._start is not None:
            what = self._start_awaits
        elif self._election is not None:
            what = self._election_awaits
        elif self._state == STATE_SNAPSHOT:
            what = "services and archive to take the snapshot"
        elif self._state == STATE_TERMINATING:
            what = "services and members to terminate"
        if what is not None or self._is_waiting:
            self._is_waiting = what is not None
            self._wait_log.tick(what, now_ns)
        return 0

    def _take_start_on(self):
        cdef int work_count = 0
        try:
            next(self._start)
        except StopIteration:
            self._start = None
            work_count = 1
        except Exception as error:
            self._on_error(error)
            self._set_state(STATE_CLOSED, "failed to start")
            self._start = None
            raise AgentTermination(f"the consensus module cannot start: {message_of(error)}") from error
        return work_count

    def _take_election_on(self, int64_t now_ns):
        cdef int work_count = 1
        election = self._election
        try:
            work_count = election.do_work(now_ns)
        except Exception as error:
            election.handle_error(now_ns, error)
            self._check_failures(now_ns, message_of(error))
        return work_count

    cdef int _check_failures(self, int64_t now_ns, str reason) except -1:
        """End a member without others that has failed to lead for too long: whoever supervises it starts it again."""
        cdef object since_ns = self._failures.since_ns
        if since_ns is not None and self.members.count() == 1 and now_ns - <int64_t> since_ns >= self._failure_limit_ns:
            self._terminate(False, f"it has not led for {self._failure_limit_ns / 1e9:g} s: {reason}")
        return 0

    cdef int _slow_tick(self, int64_t now_ns) except -1:
        cdef int work_count = self._invoke_client()
        cdef int lost_service_id
        if self._client.is_closed():
            raise AgentTermination(f"unexpected Aeron close: {getattr(self._client, 'close_reason', None)}")
        if now_ns >= self._mark_file_deadline_ns:
            self._mark_file_deadline_ns = now_ns + MARK_FILE_INTERVAL_NS
            self._show_activity()
            self._ingress.forget_lost()
            self._ingress.try_again()
            self._consensus.forget_lost()
        lost_service_id = self._listener.lost_service_id
        if lost_service_id != NULL_VALUE and self._state != STATE_TERMINATING and not self._are_services_ending:
            self._listener.lost_service_id = NULL_VALUE
            self._on_error(ClusterEvent(f"Aeron client in service closed unexpectedly: serviceId={lost_service_id}"))
            self._terminate(False, f"service {lost_service_id} is gone")
        if self._start is None:
            if self._election is None:
                work_count += self._poll_upkeep(now_ns)
            work_count += self._poll_archive()
        if self._listener.is_append_position_lost:  # the archive has said before why, if it could not write
            self._append_counter_id = NULL_COUNTER_ID
            if self._election is None and self._can_enter_election():
                self._enter_election(False, "log recording stopped: eos=False")
        if self._start is None:
            work_count += self.sessions.tell_the_refused(self._leadership_term_id, self._leader.id)
            if self._election is None:
                if self._role == LEADER:
                    work_count += self._slow_tick_of_leader(now_ns)
                elif self._state == STATE_ACTIVE:
                    work_count += self.sessions.process_pending_actions(self._leadership_term_id)
            if self._standby_snapshots is not None:
                work_count += self._standby_snapshots.poll(self._counters.commit_position.get(), now_ns)
        return work_count

    def _show_activity(self):
        try:
            self.context.mark_file.update_activity_timestamp(self._clock.epoch_ms())
            if not self._recording_log.is_in_place():
                raise MarkFileError(removed_text(self._recording_log.path))
        except MarkFileError as error:          # another consensus module may write this one's files by now
            self._on_error(error)
            self._terminate(False, message_of(error))

    cdef int _slow_tick_of_leader(self, int64_t now_ns) except -1:
        cdef int work_count = self._check_control_toggle(now_ns)
        cdef Image image
        if self._failures.since_ns is not None and now_ns - self._leads_since_ns >= self._heartbeat_timeout_ns:
            self._failures.forget()
        self._ingress.poll_adds()
        if self._state == STATE_ACTIVE:
            for image in self._ingress.take_lost_images():
                self.sessions.on_unavailable_ingress_image(image.correlation_id)
            work_count += self.sessions.process_pending(self._leadership_term_id)
            work_count += self.sessions.check_sessions(
                self._leadership_term_id, self._leader.id, self._ingress_endpoints)
            if self.members.count() > 1 and not self.members.has_active_quorum(
                    now_ns, self._heartbeat_timeout_ns):
                self._enter_election(False, "inactive follower quorum")
                work_count += 1
            else:
                work_count += self._check_node_control_toggle()
        elif self._state == STATE_TERMINATING:
            self._send_termination()
            if self._can_terminate(now_ns):
                self._end_at(self._termination_position, "the cluster terminates")
        return work_count

    cdef int _invoke_client(self) except -1:
        cdef int work_count = 0
        try:
            work_count = self._client.invoke()
        except Exception as error:              # a handler of the client's errors may raise, or the driver is gone
            self._on_error(error)
        return work_count

    cdef int _poll_archive(self) except -1:
        """Hear what the archive has to say; an error that answers a request is of whoever has asked."""
        if self._archive.is_waiting():
            return 0
        try:
            self._archive.poll()
        except ArchiveError as error:
            self._on_archive_error(error)
        return 0

    def _on_archive_error(self, error):
        cdef int64_t now_ns
        self._on_error(error)
        if error.code == ArchiveError.STORAGE_SPACE:
            self._terminate(False, message_of(error))
        self._check_archive(error)
        if self._election is not None and error.code != error_codes.UNKNOWN_REPLAY:
            now_ns = self._clock.nano_time()
            self._election.handle_error(now_ns, error if self._log_replay is None else self._log_replay.failure(error))
            self._check_failures(now_ns, message_of(error))

    cdef int _check_archive(self, object error) except -1:
        """End the member whose archive is gone, or cannot write the log any more, whatever else it was asked for."""
        if isinstance(error, ArchiveError) and (not self._archive.is_alive() or (
                self._log_request_id != NULL_VALUE and error.correlation_id == self._log_request_id)):
            self._terminate(False, message_of(error))
        return 0

    def _on_failed_upkeep(self, error):
        self._on_error(error)
        self._check_archive(error)

    cdef int _consensus_work(self, int64_t now_ns) except -1:
        cdef PendingServiceMessageTracker tracker
        cdef int work_count = 0
        if self._role == LEADER:
            if self._state == STATE_ACTIVE:
                work_count += self._timers.poll(self._cluster_clock.time())
                for tracker in self._trackers:
                    work_count += tracker.poll(self._message_appender)
                work_count += self._ingress.poll()
            work_count += self._update_leader_position(now_ns)
        if self._snapshot is not None:
            work_count += self._poll_snapshot()
        elif self._space_check is not None:
            work_count += self._poll_space_check()
        return work_count

    cdef int _update_leader_position(self, int64_t now_ns) except -1:
        cdef int64_t append_position = self._recorded_position()
        if append_position == NULL_POSITION:
            return 0
        self.members.this_member.set_log(self._leadership_term_id, append_position, now_ns)
        return self._update_commit_position(now_ns, append_position, min(
            append_position, self.members.quorum_position(
                self._leadership_term_id, self._end_of_term, now_ns, self._heartbeat_timeout_ns)))

    cdef int _update_commit_position(
            self, int64_t now_ns, int64_t append_position, int64_t quorum_position) except -1:
        if quorum_position > self._counters.commit_position.get() or (
                now_ns - self._time_of_last_log_update_ns >= self._heartbeat_interval_ns):
            self._counters.commit_position.propose_max(quorum_position)
            self._time_of_last_log_update_ns = now_ns
            self._sweep_uncommitted(quorum_position)
            return 1
        return 0

    cdef int64_t _recorded_position(self) noexcept:
        """How far the log is recorded; NULL_POSITION where it is not."""
        cdef int64_t position
        if self._append_counter_id == NULL_COUNTER_ID:
            return NULL_POSITION
        position = self._all_counters.value(self._append_counter_id)
        # Ids are reused: a member that stood still may not have heard yet that the counter is another's by now.
        if self._all_counters.registration_id(self._append_counter_id) != self._listener.append_registration_id:
            return NULL_POSITION
        return position

    cdef int _replay_poll(self, int64_t stop_position) except -1:
        """Read a replay of the log, and let the services read as far."""
        cdef int work_count = 0
        cdef int64_t position
        if self._state == STATE_ACTIVE or self._state == STATE_SUSPENDED or self._state == STATE_INIT:
            self._log_adapter.poll(stop_position)
            position = self._log_adapter.position()
            if position > self._counters.commit_position.get():
                self._counters.commit_position.propose_max(position)
                work_count += 1
            elif self._log_adapter.is_image_closed() and position < stop_position:
                raise ClusterEvent(f"unexpected image close when replaying log: position={position}")
        if self._snapshot is not None:
            work_count += self._poll_snapshot()
        return work_count

    # The start

    def _start_up(self):
        cdef Counter counter
        cdef int64_t begin_ns = self._clock.nano_time()
        settings = self._settings
        yield from answer(self._archive)        # the connect
        recording_id = self._recording_log.find_last_term_recording_id()
        if recording_id != NULL_VALUE:
            try:
                yield from self._stop_recording(recording_id)
            except ArchiveError as error:       # that it has none is said better by the plan
                if error.code != error_codes.UNKNOWN_RECORDING:
                    raise
        plan = self._recovery_plan = yield from self._plan(NULL_VALUE)
        if plan.log is not None:
            self._log_recording_id = plan.log.recording_id
        term_id, position, timestamp, recording_ids = NULL_VALUE, 0, 0, []
        if plan.snapshots:
            snapshot = plan.snapshots[0]
            term_id, position, timestamp = snapshot.leadership_term_id, snapshot.log_position, snapshot.timestamp
            recording_ids = [each.recording_id for each in plan.snapshots[1:]]
        counter = yield from added(self._client.begin_add_counter(
            RECOVERY_STATE_TYPE_ID,
            recovery_state_key(term_id, position, timestamp, settings.cluster_id, recording_ids),
            recovery_state_label(term_id, position, settings.cluster_id)))
        try:
            if plan.snapshots:
                yield from self._load_snapshot(plan.snapshots[0])
            self._start_awaits = "the services to start"
            yield from self._await_started_services()
        finally:
            counter.close()
        log_event(
            self.context.name, "recovered",
            snapshot_recording_id=plan.snapshots[0].recording_id if plan.snapshots else NULL_VALUE,
            log_position=position, leadership_term_id=term_id, cluster_time=timestamp,
            append_position=plan.appended_log_position, duration_ms=(self._clock.nano_time() - begin_ns) // NS_PER_MS)
        self._begin_election(
            True, NULL_VALUE, plan.last_leadership_term_id, plan.last_term_base_log_position,
            self._counters.commit_position.get(), plan.appended_log_position)
        self._set_state(STATE_ACTIVE, "started")

    def _plan(self, int64_t replicated_recording_id):
        extent = None
        needed = needed_recording_id(self._recording_log, replicated_recording_id)
        if needed is not None:
            self._archive.list_recording(needed)
            yield from answer(self._archive)
            extent = self._archive.descriptor
        plan = create_recovery_plan(
            self._recording_log, self._settings.service_count, replicated_recording_id, extent)
        log, snapshots = plan.log, plan.snapshots
        if snapshots and log is not None and NULL_POSITION != log.stop_position < snapshots[0].log_position:
            raise RecordingError(
                f"the log ends at {log.stop_position}, before the snapshot at {snapshots[0].log_position}: a cut of "
                "the power or a failed disk took what was not forced, and what was acknowledged behind the log's end "
                "is in the snapshot alone; restore a backup, or have the node go on without that by `aeron-cluster "
                "invalidate-latest-snapshot`", file=self._recording_log.path)
        return plan

    def _load_snapshot(self, snapshot):
        cdef SnapshotAdapter adapter
        try:
            adapter = yield from self._read_snapshot(snapshot)
        except (ArchiveError, ClusterError, CodecError) as error:
            raise SnapshotError(
                f"cannot load the consensus module's snapshot at logPosition={snapshot.log_position}, recording "
                f"{snapshot.recording_id}: {message_of(error)}; if the recording is damaged, `aeron-cluster "
                "invalidate-latest-snapshot` has the node start from the snapshot before it") from error
        self._check_time_unit(adapter.time_unit, "snapshot")
        self._check_app_version(adapter.app_version, "snapshot")
        self._timers.set_current_time(self._cluster_clock.time())
        self._counters.commit_position.set(snapshot.log_position)
        self._set_leadership_term(snapshot.leadership_term_id)
        self._expected_ack_position = snapshot.log_position

    def _read_snapshot(self, snapshot):
        cdef PendingServiceMessageTracker tracker
        cdef ReplayImage replay
        cdef SnapshotAdapter adapter
        settings = self._settings
        replay = yield from begin_replay(
            self._archive, self._client, self._deadline, recording_id=snapshot.recording_id, position=0, length=-1,
            channel=settings.replay_channel, stream_id=settings.replay_stream_id)
        try:
            adapter = SnapshotAdapter(replay.image, self)
            while not adapter.is_done:
                if adapter.poll() == 0:
                    self._archive.poll()
                    yield
        finally:
            replay.subscription.close()
        for tracker in self._trackers:
            tracker.verify()
            tracker.reset()
        return adapter

    def _await_started_services(self):
        while not self._acks.has_reached(self._expected_ack_position, self._service_ack_id):
            yield
        acks = self._acks.poll_all()
        failed = [ack.service_id for ack in acks if ack.relevant_id == NULL_VALUE]
        if failed:
            raise ClusterError(f"failed to start clustered service(s): {', '.join(map(str, failed))}")
        for ack in acks:
            self._listener.watch(ack.service_id, ack.relevant_id)
        self._service_ack_id += 1

    def _check_time_unit(self, int32_t time_unit, str what):
        if time_unit != self._cluster_clock.time_unit:
            raise ClusterError(
                f"incompatible time unit: {self._cluster_clock.time_unit} {what}={time_unit}; a cluster keeps the one "
                "that it began with: set cluster_clock (0 is millis, 1 micros, 2 nanos)")

    def _check_app_version(self, int32_t app_version, str what):
        if not self.context.app_version_validator(self._settings.app_version, app_version):
            raise ClusterError(
                f"incompatible version: {format_version(self._settings.app_version)} {what}="
                f"{format_version(app_version)}; set app_version: by default its major number must be the same")

    # What services and tools ask for

    cdef int on_service_message(self, int64_t service_id, const uint8_t* payload, size_t length) except -1:
        cdef int index = service_id_from_service_message(service_id)
        cdef PendingServiceMessageTracker tracker
        if not 0 <= index < len(self._trackers):
            return self._refuse_service("message", index)
        if <int64_t> length > self._max_payload_length():
            # The same on each member, and again in a replay: no member gives it an id.
            return self._refuse_length(f"serviceId={index}", length)
        tracker = self._trackers[index]
        try:
            tracker.enqueue(payload, length)
        except ClusterError as error:           # one that is lost would be a gap in what all members offer
            self._on_error(error)
            self._terminate(False, message_of(error))
        return 0

    cdef int64_t _max_payload_length(self) except -1:
        """Of a session message in the log (bytes)."""
        cdef int64_t length = self.log_publisher.max_payload_length()
        if length == 0 and self._recovery_plan is not None and self._recovery_plan.log is not None:
            length = min(<int64_t> self._recovery_plan.log.term_buffer_length // 8, <int64_t> MAX_MESSAGE_LENGTH) - (
                SESSION_MESSAGE_HEADER_ENCODED_LENGTH)
        return length if length > 0 else MAX_MESSAGE_LENGTH

    def _refuse_length(self, source, length):
        self._on_error(ClusterError(
            f"message of {length} bytes from {source}: the log takes {self._max_payload_length()} at most; it is not "
            "in the log: send shorter ones, or give the log longer terms (aeron.cluster.log.channel)"))
        return 0

    def _refuse_service(self, what, index):
        self._on_error(ClusterError(
            f"{what} from serviceId={index}, but this member has {len(self._trackers)} service(s), from id 0 on: set "
            "aeron.cluster.service.count, or the service's aeron.cluster.service.id"))
        return 0

    cdef int on_service_close_session(self, int64_t cluster_session_id) except -1:
        return self.sessions.on_service_close_session(
            cluster_session_id, self._role == LEADER and self._state == STATE_ACTIVE and self._election is None,
            self._leadership_term_id)

    cdef int on_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef int64_t expired
        if self._expired_timers:
            expired = self._expired_timers.pop(correlation_id, 0)
            if expired > 1:
                self._expired_timers[correlation_id] = expired - 1
            if expired > 0:                     # the service is behind the log, in which it has expired
                return 0
        return self._timers.schedule(correlation_id, deadline)

    cdef int on_cancel_timer(self, int64_t correlation_id) except -1:
        self._timers.cancel(correlation_id)
        return 0

    cdef int on_service_ack(
            self, int64_t log_position, int64_t timestamp, int64_t ack_id, int64_t relevant_id, int32_t service_id
    ) except -1:
        if 0 <= service_id < self._listener._service_count and ack_id == 0 and (
                self._listener._service_client_ids[service_id] != NULL_VALUE):
            self._on_error(ClusterError(
                f"initial ack already received from service: possible duplicate serviceId={service_id}"))
            return 0
        self._acks.append(ServiceAck(service_id, ack_id, log_position, relevant_id))
        # Upstream takes the position of a snapshot from the ack, whoever has sent it.
        if self._state == STATE_SNAPSHOT and self._snapshot is None:
            log_position = self._snapshot_position
        if (self._state not in (STATE_SNAPSHOT, STATE_TERMINATING)
                and (self._start is not None or self._election is not None)):
            return 0                            # a step of those waits for its own
        if self._acks.has_reached(log_position, self._service_ack_id):
            if self._state == STATE_SNAPSHOT and self._snapshot is None:
                self._service_ack_id += 1
                self._begin_snapshot(log_position, timestamp, self._acks.poll_all())
            elif self._state == STATE_TERMINATING:
                self._on_terminated_services(log_position)
        return 0

    cdef int on_cluster_members_query(self, int64_t correlation_id, bint is_extended) except -1:
        if is_extended:
            self._services.send(self._members_response(correlation_id))
        else:
            self._services.cluster_members_response(correlation_id, self._leader.id, self.members.encode())
        return 0

    def _members_response(self, int64_t correlation_id):
        cdef ClusterMember member
        cdef int64_t now_ns = self._clock.nano_time(), epoch_ns = self._clock.epoch_ms() * 1_000_000
        return encode(
            "cluster", "ClusterMembersExtendedResponse", correlation_id=correlation_id, current_time_ns=epoch_ns,
            leader_member_id=self._leader.id, member_id=self._settings.cluster_member_id,
            active_members=[{
                "leadership_term_id": member.leadership_term_id,
                "log_position": member.log_position,
                "time_of_last_append_ns": epoch_ns - (now_ns - member.time_of_last_append_position_ns),
                "member_id": member.id,
                "ingress_endpoint": member.ingress_endpoint.encode(),
                "consensus_endpoint": member.consensus_endpoint.encode(),
                "log_endpoint": member.log_endpoint.encode(),
                "catchup_endpoint": member.catchup_endpoint.encode(),
                "archive_endpoint": member.archive_endpoint.encode(),
            } for member in self.members.members],
            passive_members=[])

    # What clients ask for

    cdef int on_session_connect(
            self, int64_t correlation_id, int32_t response_stream_id, int32_t version, str response_channel,
            bytes encoded_credentials, str client_info, Image image) except -1:
        cdef str channel = self._egress_channel(response_channel, response_stream_id, correlation_id)
        if channel is None:
            return 0
        return self.sessions.on_session_connect(
            correlation_id, response_stream_id, version, channel, encoded_credentials, client_info, image,
            self._role == LEADER, self._ingress_endpoints)

    def _egress_channel(self, str requested, int32_t stream_id, int64_t correlation_id):
        """Where somebody is answered; None, and a report, where that cannot be, as there is nowhere to say so."""
        channel = None
        try:
            channel = self._egress_channels.channel(requested, stream_id)
        except ConfigurationError as error:
            self._on_error(ClusterEvent(f"request not answered: correlationId={correlation_id}: {error}"))
        return channel

    cdef int on_session_close(self, int64_t leadership_term_id, int64_t cluster_session_id) except -1:
        if leadership_term_id == self._leadership_term_id and self._role == LEADER:
            self.sessions.on_session_close(leadership_term_id, cluster_session_id)
        return 0

    cdef int on_ingress_message(
            self, int64_t leadership_term_id, int64_t cluster_session_id, const uint8_t* payload, size_t length
    ) except -1:
        cdef ClusterSession session
        if leadership_term_id != self._leadership_term_id or self._role != LEADER:
            return ACTION_CONTINUE
        session = self.sessions.find(cluster_session_id)
        if session is None or not session.is_open():
            return ACTION_CONTINUE
        if <int64_t> length > self.log_publisher.max_payload_length():
            self._refuse_length(f"clusterSessionId={cluster_session_id}", length)
            return ACTION_CONTINUE
        if self.log_publisher.append_message(
                leadership_term_id, cluster_session_id, self._cluster_clock.time(), payload, length) <= 0:
            return ACTION_ABORT
        session.time_of_last_activity_ns = self._clock.coarse_nano_time()
        return ACTION_CONTINUE

    cdef int on_session_keep_alive(
            self, int64_t leadership_term_id, int64_t cluster_session_id, Image image) except -1:
        cdef ClusterSession session
        if leadership_term_id == self._leadership_term_id and self._role == LEADER:
            session = self.sessions.find(cluster_session_id)
            if session is not None and session.is_open():
                if image is not None:
                    session.link(image.correlation_id)
                session.time_of_last_activity_ns = self._clock.nano_time()
        return 0

    cdef int on_challenge_response(
            self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials) except -1:
        if self._role == LEADER:
            self.sessions.on_challenge_response(correlation_id, cluster_session_id, encoded_credentials, True)
        return 0

    cdef int on_admin_request(
            self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type
    ) except -1:
        cdef ClusterSession session
        if leadership_term_id != self._leadership_term_id or self._role != LEADER:
            return 0
        session = self.sessions.find(cluster_session_id)
        if session is None or not session.is_open():
            return 0
        code, text = self._answer_to_admin_request(session, request_type)
        egress_publisher.send_admin_response(
            session.publication, session.id, correlation_id, request_type, code, text)
        return 0

    def _answer_to_admin_request(self, ClusterSession session, int32_t request_type):
        name = "SNAPSHOT" if request_type == ADMIN_REQUEST_TYPE_SNAPSHOT else str(request_type)
        if not self.sessions.may(ADMIN_REQUEST_TEMPLATE_ID, request_type, session):
            return ADMIN_RESPONSE_CODE_UNAUTHORISED_ACCESS, f"Execution of the {name} request was not authorised"
        if request_type != ADMIN_REQUEST_TYPE_SNAPSHOT:
            return ADMIN_RESPONSE_CODE_ERROR, f"Unknown request type: {name}"
        if self._counters.control_toggle.get() != TOGGLE_NEUTRAL:
            return ADMIN_RESPONSE_CODE_ERROR, "Failed to switch ClusterControl to the ToggleState.SNAPSHOT state"
        self._counters.control_toggle.set(TOGGLE_SNAPSHOT)
        return ADMIN_RESPONSE_CODE_OK, ""

    # What backups and standbys ask for

    cdef int on_backup_query(
            self, int64_t correlation_id, int32_t response_stream_id, int32_t version, int64_t log_position,
            str response_channel, bytes encoded_credentials, Image image) except -1:
        return self._on_backup_request(
            BackupQuery(self, log_position), correlation_id, response_stream_id, version, response_channel,
            encoded_credentials, image)

    cdef int on_heartbeat_request(
            self, int64_t correlation_id, int32_t response_stream_id, str response_channel, bytes encoded_credentials,
            Image image) except -1:
        return self._on_backup_request(
            HeartbeatRequest(), correlation_id, response_stream_id, 0, response_channel, encoded_credentials, image)

    cdef int on_standby_snapshot(
            self, int64_t correlation_id, int32_t response_stream_id, int32_t version, list snapshots,
            str response_channel, bytes encoded_credentials, Image image) except -1:
        return self._on_backup_request(
            StandbySnapshot(self._standby_snapshots, [StandbySnapshotEntry(*each) for each in snapshots]),
            correlation_id, response_stream_id, version, response_channel, encoded_credentials, image)

    def _on_backup_request(
            self, request, int64_t correlation_id, int32_t response_stream_id, int32_t version, str response_channel,
            bytes encoded_credentials, Image image):
        cdef str channel
        if self._election is None and self._state in (STATE_ACTIVE, STATE_SUSPENDED, STATE_SNAPSHOT):
            channel = self._egress_channel(response_channel, response_stream_id, correlation_id)
            if channel is not None:
                self.sessions.on_action_request(
                    request, correlation_id, response_stream_id, version, channel, encoded_credentials, image)
        return 0

    cdef int on_consensus_challenge_response(
            self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials) except -1:
        return self.sessions.on_challenge_response(correlation_id, cluster_session_id, encoded_credentials, False)

    def backup_response(self, int64_t correlation_id, int64_t log_position):
        """What a backup needs to know (bytes); None while there is no term."""
        last_term = self._recording_log.find_last_term()
        if last_term is None:
            return None
        snapshots = self._recording_log.find_snapshot_at_or_before_or_lowest(
            log_position, self._settings.service_count) or ()
        self._backup_position = snapshots[0].log_position if snapshots else 0
        return backup_response(
            correlation_id, last_term=last_term, snapshots=snapshots,
            commit_position_counter_id=self._counters.commit_position.counter_id, leader_member_id=self._leader.id,
            member_id=self._settings.cluster_member_id, cluster_members=self.members.encode())

    def _count_standby_snapshot(self):
        self._counters.standby_snapshots.increment()

    # What the log says

    cdef int on_replay_session_message(self, int64_t cluster_session_id, int64_t timestamp) except -1:
        cdef int service_id
        if cluster_session_id < 0:
            service_id = service_id_from_log_message(cluster_session_id)
            if not 0 <= service_id < len(self._trackers):
                raise ClusterError(
                    f"the log has a message of service {service_id}, but this member has {len(self._trackers)}: set "
                    "aeron.cluster.service.count to what the other members have")
            (<PendingServiceMessageTracker> self._trackers[service_id]).sweep_follower(cluster_session_id)
        return 0

    cdef int on_replay_timer_event(self, int64_t correlation_id) except -1:
        if not self._timers.cancel(correlation_id):
            self._expired_timers[correlation_id] = self._expired_timers.get(correlation_id, 0) + 1
        return 0

    cdef int on_replay_session_open(
            self, int64_t log_position, int64_t correlation_id, int64_t cluster_session_id, int32_t response_stream_id,
            str response_channel) except -1:
        return self.sessions.on_replay_session_open(
            log_position, correlation_id, cluster_session_id, response_stream_id, response_channel)

    cdef int on_replay_session_close(self, int64_t cluster_session_id, int32_t close_reason) except -1:
        return self.sessions.on_replay_session_close(cluster_session_id)

    cdef int on_replay_cluster_action(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t action, int32_t flags
    ) except -1:
        if leadership_term_id != self._leadership_term_id:
            return 0
        if action == CLUSTER_ACTION_SUSPEND:
            self._set_state(STATE_SUSPENDED, "the log")
        elif action == CLUSTER_ACTION_RESUME:
            self._set_state(STATE_ACTIVE, "the log")
        elif action == CLUSTER_ACTION_SNAPSHOT and flags == ACTION_FLAGS_DEFAULT:
            self._snapshot_position = log_position
            self._set_state(STATE_SNAPSHOT, "the log")
            self._counters.snapshot_duration.begin(self._clock.nano_time())
        return 0

    cdef int on_replay_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t time_unit, int32_t app_version) except -1:
        try:
            self._check_time_unit(time_unit, "log")
            self._check_app_version(app_version, "log")
        except Exception as error:              # of a validator of the user's as well: this event does not come again
            self._on_error(error)
            self._terminate(False, message_of(error))
        self._set_leadership_term(leadership_term_id)
        if self._election is not None:
            self._election.on_replay_new_leadership_term_event(
                leadership_term_id, log_position, term_base_log_position)
        return 0

    # What a snapshot says

    cdef int on_load_state(self, int64_t next_session_id, int64_t next_service_session_id,
                           int64_t log_service_session_id, int32_t pending_message_capacity) except -1:
        self.sessions.load_next_session_id(next_session_id)
        if self._trackers:
            (<PendingServiceMessageTracker> self._trackers[0]).load_state(
                next_service_session_id, log_service_session_id, pending_message_capacity)
        return 0

    cdef int on_load_session(
            self, int64_t cluster_session_id, int64_t correlation_id, int64_t opened_log_position, int32_t close_reason,
            int32_t response_stream_id, str response_channel) except -1:
        return self.sessions.on_load_session(
            cluster_session_id, correlation_id, opened_log_position, close_reason, response_stream_id,
            response_channel)

    cdef int on_load_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        return self._timers.schedule(correlation_id, deadline)

    cdef PendingServiceMessageTracker _tracker_of(self, int service_id):
        if not 0 <= service_id < len(self._trackers):
            raise ClusterError(f"serviceId={service_id} invalid for serviceCount={len(self._trackers)}: set "
                               "aeron.cluster.service.count to what it was when the snapshot was taken")
        return self._trackers[service_id]

    cdef int on_load_tracker(
            self, int64_t next_service_session_id, int64_t log_service_session_id, int32_t pending_message_capacity,
            int32_t service_id) except -1:
        return self._tracker_of(service_id).load_state(
            next_service_session_id, log_service_session_id, pending_message_capacity)

    cdef int on_load_pending_message(self, int64_t cluster_session_id, const uint8_t* message, size_t length) except -1:
        return self._tracker_of(service_id_from_log_message(cluster_session_id)).load_message(message, length)

    @property
    def has_leader(self):
        """Whether it has started, no election is in progress, and it has not ended (bool). For any thread."""
        return (self._state != STATE_INIT and self._state != STATE_CLOSED and self._start is None
                and self._election is None)

    @property
    def snapshot_count(self):
        """How many snapshots it has taken since its start (int). For any thread."""
        return self._counters.snapshot_count.get()

    def request_snapshot(self):
        """Ask for a snapshot, as ClusterTool does; whether it could be asked for (bool). For any thread.

        It cannot while the member does not lead, and while something else is asked for.
        """
        if self._state != STATE_ACTIVE or self._counters.control_toggle.get() != TOGGLE_NEUTRAL:
            return False
        self.snapshot_failure = None
        self._counters.control_toggle.set(TOGGLE_SNAPSHOT)
        return True

    # What an election asks for: ElectionHost

    @property
    def role(self):
        """Its role (int), of container.api.Role."""
        return self._role

    def set_role(self, int role):
        """Take a role."""
        if role != self._role:
            log_event(self.context.name, "role_changed", role=aeron_defaults.ROLES[role],
                      former_role=aeron_defaults.ROLES[self._role], leadership_term_id=self._leadership_term_id,
                      log_position=self._counters.commit_position.get())
        self._role = role
        self._counters.node_role.set(role)

    def set_election_state(self, int state, str reason):
        """Show a state of the election."""
        self._election_awaits = f"the election to end: its state is {ElectionState(state).name}"
        log_event(self.context.name, "election_state", state=ElectionState(state).name, reason=reason or "in order",
                  leadership_term_id=self._leadership_term_id)
        self._counters.election_state.set(state)

    def now_ns(self):
        """The monotonic clock (int)."""
        return self._clock.nano_time()

    def random(self):
        """A number from 0 to below 1 (float)."""
        return self._random.random()

    def commit_position(self):
        """Up to where the log is committed (int)."""
        return self._counters.commit_position.get()

    def is_taking_snapshot(self):
        """Whether its state is SNAPSHOT (bool)."""
        return self._state == STATE_SNAPSHOT

    def set_log_recording_id(self, int64_t recording_id):
        """Note which recording is the log's."""
        if recording_id != NULL_VALUE:
            self._log_recording_id = recording_id

    def end_of_term(self, int64_t leadership_term_id):
        """Where an older term ends in this member's log (int); 0 for one that it does not know, or that is open."""
        entry = self._recording_log.find_term_entry(leadership_term_id)
        return 0 if entry is None else max(<int64_t> 0, <int64_t> entry.log_position)

    def candidate_term_id(self):
        """The highest term that it voted for or stood for (int), from its disk."""
        return self._node_state.candidate_term_id

    def update_candidate_term_id(self, int64_t candidate_term_id, int64_t log_position):
        """Stand for a term: it is on the disk when this returns."""
        self._node_state.update_candidate_term_id(candidate_term_id, log_position, self._clock.epoch_ms())

    def propose_max_candidate_term_id(self, int64_t candidate_term_id, int64_t log_position):
        """Raise that term, and return it (int)."""
        return self._node_state.propose_max_candidate_term_id(candidate_term_id, log_position, self._clock.epoch_ms())

    def begin_preparation(self, int64_t log_position):
        """Undo what the last term has left open; :meth:`poll_preparation` looks after it."""
        if self._preparation is not None:
            self._preparation.close()
        self._preparation = self._prepare(log_position)

    def poll_preparation(self):
        """The append position (int) once it is done, -1 without a log; None: not yet."""
        append_position = None
        try:
            next(self._preparation)
        except StopIteration as done:
            self._preparation = None
            append_position = done.value
        return append_position

    def _prepare(self, int64_t log_position):
        cdef Counters counters = self._all_counters
        cdef int64_t append_position = NULL_POSITION
        self.set_role(FOLLOWER)
        self._ingress.close()
        if self._join is not None:
            self._join.close()
            self._join = None
            # Services that are to join the log wait for it: it stays until they have. Upstream waits in one turn.
            yield from self._await_joined_services()
        if self._snapshot is not None:          # the other members may have theirs
            self._snapshot.close()
            self._snapshot = None
            self._set_state(STATE_ACTIVE, "snapshot given up")
        self._log_adapter.leave()
        self.log_publisher.close()
        self._counters.control_toggle.set(TOGGLE_INACTIVE)
        self._log_subscription_id = self._log_request_id = NULL_VALUE
        self._append_counter_id = NULL_COUNTER_ID
        self._listener.append_registration_id = NULL_VALUE
        self._listener.is_append_position_lost = False
        if self._upkeep is not None:
            self._upkeep.close()
            self._upkeep = None
        if self._space_check is not None:
            self._space_check.close()
            self._space_check = None
        self._has_space = False
        if self._log_recording_id == NULL_VALUE:
            return append_position
        while self._archive.is_waiting():       # for what nobody waits for any more
            self._archive.poll()
            yield
        append_position = yield from self._stop_recording(self._log_recording_id)
        self._recovery_plan = yield from self._plan(self._log_recording_id)
        self.sessions.clear_after(log_position, self._leadership_term_id)
        self.sessions.disconnect()
        self._counters.commit_position.set(log_position)
        self._restore_uncommitted(log_position)
        while recording_counters.find_by_recording(
                counters, self._log_recording_id, self._archive.archive_id) != NULL_COUNTER_ID:
            self._deadline.check()
            yield
        return append_position

    def _stop_recording(self, int64_t recording_id):
        """Stop the recording of the log, if it goes on; return where it has ended (int)."""
        cdef int64_t position = NULL_POSITION
        self._archive.stop_recording_by_identity(recording_id)
        yield from answer(self._archive)        # which comes before the recording has ended
        self._deadline.begin(f"recording {recording_id} of the log to stop")
        while position == NULL_POSITION:
            self._archive.stop_position(recording_id)
            yield from answer(self._archive)
            position = self._archive.relevant_id
            if position == NULL_POSITION:
                self._deadline.check()
                yield
        return position

    def begin_log_publication(self, int64_t append_position):
        """Ask for a publication that continues the log there; :meth:`poll_log_publication` looks after it."""
        settings = self._settings
        self._channel_tag = self._client.next_correlation_id()
        channel = channels.log_publication_channel(
            settings.log_channel, channel_tag=self._channel_tag, publication_tag=self._client.next_correlation_id(),
            append_position=append_position, log=self._recovery_plan.log,
            log_endpoint=self.members.this_member.log_endpoint, member_count=self.members.count(),
            is_control_enabled=settings.is_log_control_enabled)
        self._pending_log_publication = self._client.begin_add_publication(channel, settings.log_stream_id, True)

    def poll_log_publication(self):
        """Its session id (int) once it is there; None: not yet."""
        cdef Publication publication
        if self._pending_log_publication is None:
            return None if self.log_publisher.publication is None else self.log_publisher.publication.session_id
        publication = self._pending_log_publication.poll()
        if publication is None:
            return None
        self._pending_log_publication = None
        self.log_publisher.set_publication(publication)
        return publication.session_id

    def new_log_replay(self, int64_t log_position, int64_t append_position):
        """Replay the member's own recording of the log (AgentLogReplay)."""
        cdef AgentLogReplay replay = AgentLogReplay.__new__(AgentLogReplay)
        replay._agent, replay._stop_position = self, append_position
        self._log_replay = replay
        replay._begin = self._begin_log_replay(replay, log_position, append_position)
        return replay

    def _begin_log_replay(self, AgentLogReplay replay, int64_t log_position, int64_t append_position):
        settings = self._settings
        replay._replay = yield from begin_replay(
            self._archive, self._client, self._deadline, recording_id=self._log_recording_id, position=log_position,
            length=append_position - log_position, channel=settings.replay_channel,
            stream_id=settings.replay_stream_id)
        self._log_adapter.join(replay._replay.image, replay._replay.subscription)
        yield from self._join_services(
            log_position, append_position, replay._replay.image.session_id, settings.replay_stream_id, True, FOLLOWER,
            replay._replay.subscription.channel)

    def _join_services(self, int64_t log_position, int64_t max_log_position, int32_t session_id, int32_t stream_id,
                       bint is_startup, int role, str channel):
        """Have the services join a log, and wait until each has acked its first position, however long that takes."""
        # The acks of two joins may be equal: there is no second one before that of an election that failed is acked.
        yield from self._await_joined_services()
        self._deadline.begin("room on the control channel to the services")
        while not self._services.join_log(
                log_position, max_log_position, self._settings.cluster_member_id, session_id, stream_id, is_startup,
                role, channel):
            self._deadline.check()
            yield
        self._join_position = log_position
        yield from self._await_joined_services()

    def _await_joined_services(self):
        while self._join_position != NULL_POSITION:
            # Services that are to take a snapshot ack it before they join the next log.
            if (self._state == STATE_SNAPSHOT and self._snapshot is None) or not self._acks.has_reached(
                    self._join_position, self._service_ack_id):
                yield
            else:
                self._acks.remove_heads()
                self._service_ack_id += 1
                self._join_position = NULL_POSITION

    def begin_join_as_leader(
            self, int64_t leadership_term_id, int64_t log_position, int32_t log_session_id, bint is_startup):
        """Record the log publication and have the services join it; :meth:`poll_join_as_leader` looks after it."""
        self._set_leadership_term(leadership_term_id)
        self._join = self._join_as_leader(log_position, log_session_id, is_startup)

    def poll_join_as_leader(self):
        """Whether all services have joined (bool)."""
        try:
            next(self._join)
        except StopIteration:
            self._join = None
        return self._join is None

    def _join_as_leader(self, int64_t log_position, int32_t session_id, bint is_startup):
        cdef ActiveRecording active
        settings = self._settings
        try:
            active = yield from start_recording(
                self._archive, self._all_counters, self._deadline,
                channel=channels.log_recording_channel(settings.log_channel, self._channel_tag, session_id),
                stream_id=settings.log_stream_id, session_id=session_id,
                extended_recording_id=self._recording_log.find_last_term_recording_id(), is_local=True)
        except ArchiveError as error:
            if error.code == ArchiveError.STORAGE_SPACE:
                self._on_error(error)
                self._terminate(False, message_of(error))
            raise
        self._log_subscription_id, self._log_recording_id = active.subscription_id, active.recording_id
        self._log_request_id = active.request_id
        self._append_counter_id = active.counter_id
        self._listener.append_registration_id = active.registration_id
        yield from self._join_services(
            log_position, INT64_MAX, session_id, settings.log_stream_id, is_startup, LEADER,
            channels.local_log_channel(settings.log_channel, self._channel_tag, session_id))

    def append_new_leadership_term_event(self, int64_t leadership_term_id, int64_t log_position):
        """Append the first message of the term; whether the log took it (bool)."""
        return self.log_publisher.append_new_leadership_term_event(
            leadership_term_id, self._cluster_clock.time(), log_position,
            self._settings.cluster_member_id, self.log_publisher.session_id(), self._cluster_clock.time_unit,
            self._settings.app_version) > 0

    def update_leader_position(self, int64_t now_ns, int64_t append_position, int64_t quorum_position):
        """Commit the log up to a position; how much was done (int)."""
        return self._update_commit_position(now_ns, append_position, quorum_position)

    def ensure_term(self, int64_t initial_leadership_term_id, int64_t initial_term_base_log_position,
                    int64_t leadership_term_id, int64_t term_base_log_position, int64_t log_position):
        """Have a term in the recording log, and its end where that is known."""
        if self._log_recording_id != NULL_VALUE:
            self._recording_log.ensure_coherent(
                recording_id=self._log_recording_id, initial_log_leadership_term_id=initial_leadership_term_id,
                initial_term_base_log_position=initial_term_base_log_position, leadership_term_id=leadership_term_id,
                term_base_log_position=term_base_log_position, log_position=log_position,
                timestamp=self._cluster_clock.time())

    def publish_commit_position(self, int64_t commit_position, int64_t leadership_term_id):
        """Send the commit position to all other members: there are none."""

    def publish_canvass_position(
            self, int64_t log_leadership_term_id, int64_t append_position, int64_t leadership_term_id):
        """Say to all other members how far the log is: there are none."""

    def election_complete(self, int64_t now_ns):
        """There is a leader: work begins."""
        election = self._election
        self._leads_since_ns = now_ns
        self._set_leadership_term(election.leadership_term_id)
        if self._role == LEADER:
            self._time_of_last_log_update_ns = now_ns - self._heartbeat_interval_ns
            self._timers.set_current_time(self._cluster_clock.time())
            # Only from SUSPEND a tool gets to RESUME.
            self._counters.control_toggle.set(TOGGLE_SUSPEND if self._state == STATE_SUSPENDED else TOGGLE_NEUTRAL)
            self.sessions.prepare_for_new_term(election.is_leader_startup)
        else:
            self._time_of_last_log_update_ns = now_ns
        self._counters.node_control_toggle.set(TOGGLE_NEUTRAL)
        self._notified_commit_position = max(self._notified_commit_position, <int64_t> election.log_position)
        self._counters.commit_position.set(election.log_position)
        self._leader = election.leader
        self.members.set_leader(self._leader.id)
        self._ingress.connect(channels.ingress_subscription_channels(
            self._settings.ingress_channel, self.members.this_member.ingress_endpoint, is_leader=self._role == LEADER,
            is_ipc_allowed=self._settings.is_ipc_ingress_allowed))
        self._election = None
        self._begin_retention()

    def _begin_election(self, bint is_node_startup, int32_t graceful_closed_leader_id, int64_t leadership_term_id,
                        int64_t term_base_log_position, int64_t log_position, int64_t append_position,
                        int64_t pause_ns=0):
        self._counters.election_count.increment()
        self._election = Election(
            self, self._settings, self.members, is_node_startup=is_node_startup,
            graceful_closed_leader_id=graceful_closed_leader_id, leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position, log_position=log_position, append_position=append_position,
            failures=self._failures, pause_ns=pause_ns)

    cdef bint _can_enter_election(self) noexcept:
        """Whether the log may end here: not while services take a snapshot that is committed, or terminate."""
        return self._state == STATE_ACTIVE or self._state == STATE_SUSPENDED or (
            self._state == STATE_SNAPSHOT and len(self._uncommitted_states) > 0)

    def _enter_election(self, bint is_log_end_of_stream, str reason):
        cdef int64_t append_position = max(
            <int64_t> self._recovery_plan.appended_log_position, self._recorded_position())
        self.set_role(FOLLOWER)
        entry = self._recording_log.find_term_entry(self._leadership_term_id)
        base = self._recovery_plan.last_term_base_log_position if entry is None else entry.term_base_log_position
        event = ClusterEvent(reason)
        now_ns = self._clock.nano_time()
        pause_ns = self._failures.add(now_ns, event)
        self._on_error(event)
        self._check_failures(now_ns, reason)
        self._begin_election(
            False, self._leader.id if is_log_end_of_stream else NULL_VALUE, self._leadership_term_id, base,
            self._counters.commit_position.get(), append_position, pause_ns)

    cdef int _set_leadership_term(self, int64_t leadership_term_id) except -1:
        self._leadership_term_id = leadership_term_id
        self._counters.leadership_term_id.set(leadership_term_id)
        return 0

    # Commit and roll-back

    cdef int _sweep_uncommitted(self, int64_t commit_position) except -1:
        cdef PendingServiceMessageTracker tracker
        for tracker in self._trackers:
            tracker.sweep_leader(commit_position)
        self._uncommitted_timers.sweep(commit_position)
        while self._uncommitted_states and <int64_t> self._uncommitted_states[0][0] <= commit_position:
            self._uncommitted_states.popleft()
        return self.sessions.sweep_uncommitted(commit_position)

    cdef int _restore_uncommitted(self, int64_t commit_position) except -1:
        cdef PendingServiceMessageTracker tracker
        for correlation_id in self._uncommitted_timers.after(commit_position):
            self._timers.schedule(correlation_id, 0)
        self._uncommitted_timers.clear()
        for tracker in self._trackers:
            tracker.restore_uncommitted(commit_position)
        self.sessions.restore_uncommitted(commit_position)
        for position, state in self._uncommitted_states:
            if position > commit_position:
                if self._state != STATE_CLOSED:
                    self._set_state(state, "rollback")
                    self._termination = None    # of a shutdown that is not in the log
                    self._termination_position = NULL_POSITION
                break
        self._uncommitted_states.clear()
        return 0

    cdef int _set_state(self, ModuleState state, str reason) except -1:
        if state != self._state:
            log_event(self.context.name, "state_changed", state=aeron_defaults.MODULE_STATES[<int> state],
                      former_state=aeron_defaults.MODULE_STATES[<int> self._state], reason=reason,
                      log_position=self._counters.commit_position.get())
        self._state = state
        self._counters.module_state.set(<int64_t> state)
        return 0

    # Control

    cdef int _check_control_toggle(self, int64_t now_ns) except -1:
        cdef int64_t toggle = self._counters.control_toggle.get()
        if toggle == TOGGLE_NEUTRAL or toggle == TOGGLE_INACTIVE:
            return 0
        if self._state == STATE_ACTIVE:
            if toggle == TOGGLE_SUSPEND:
                return self._append_action(CLUSTER_ACTION_SUSPEND, ACTION_FLAGS_DEFAULT, STATE_SUSPENDED, "SUSPEND")
            if (toggle == TOGGLE_SNAPSHOT or toggle == TOGGLE_SHUTDOWN) and not self._has_space:
                if self._space_check is None:
                    self._space_check = self._check_space()
                return 0
            if toggle == TOGGLE_SNAPSHOT:
                if self._append_action(CLUSTER_ACTION_SNAPSHOT, ACTION_FLAGS_DEFAULT, STATE_SNAPSHOT, "SNAPSHOT"):
                    self._counters.snapshot_duration.begin(now_ns)
                return 1
            if toggle == TOGGLE_STANDBY_SNAPSHOT:
                if self.log_publisher.append_cluster_action(
                        self._leadership_term_id, self._cluster_clock.time(), CLUSTER_ACTION_SNAPSHOT,
                        ACTION_FLAGS_STANDBY_SNAPSHOT) > 0:
                    self._counters.control_toggle.set(TOGGLE_NEUTRAL)
                return 1
            if toggle == TOGGLE_SHUTDOWN:
                return self._begin_shutdown(now_ns)
            if toggle == TOGGLE_ABORT:
                return self._begin_abort(now_ns)
        elif self._state == STATE_SUSPENDED and toggle == TOGGLE_RESUME:
            if self._append_action(CLUSTER_ACTION_RESUME, ACTION_FLAGS_DEFAULT, STATE_ACTIVE, "RESUME"):
                self.sessions.refresh_activity()    # what clients sent meanwhile was not read
                self._counters.control_toggle.set(TOGGLE_NEUTRAL)
            return 1
        if toggle < 0 or toggle > TOGGLE_STANDBY_SNAPSHOT:
            self._on_error(ClusterEvent(f"invalid toggle value: {toggle}"))
            self._counters.control_toggle.set(TOGGLE_NEUTRAL)
        return 0

    cdef int _check_node_control_toggle(self) except -1:
        cdef int64_t toggle = self._counters.node_control_toggle.get()
        if toggle == TOGGLE_NEUTRAL or toggle == TOGGLE_INACTIVE:
            return 0
        self._counters.node_control_toggle.set(TOGGLE_NEUTRAL)
        if toggle == NODE_TOGGLE_VALIDATE_RECORDING_LOG:
            self._is_validation_wanted = True
        else:
            self._on_error(ClusterEvent(f"node control toggle {toggle} asks for what this consensus module cannot do"))
        return 1

    cdef int _poll_upkeep(self, int64_t now_ns) except -1:
        """Take on what asks the archive beside the cluster's work: one thing after the other, and no snapshot."""
        if self._upkeep is None:
            if self._state != STATE_ACTIVE or self._space_check is not None or self._has_space:
                return 0
            if self._is_validation_wanted:
                self._is_validation_wanted = False
                self._upkeep = validate_recording_log(self._archive, self._recording_log)
            elif now_ns >= self._retention_due_ns:
                self._retention_due_ns = INT64_MAX
                self._upkeep = self._retain()
            else:
                return 0
        if _is_done(self._upkeep, self._on_failed_upkeep):
            self._upkeep = None
        return 1

    # Retention

    def _retain(self):
        cdef int64_t log_position
        kept, hold = self._retained_count, None
        found = outdated(self._recording_log.entries, kept, self._settings.service_count)
        if found.log_position == NULL_POSITION:
            return
        self._retention_due_ns = self._clock.nano_time() + RETENTION_INTERVAL_NS     # unless all of it goes now
        snapshot_count, segment_count = 0, 0
        log_start = self._counters.retained_log_position.get()
        try:
            snapshot_count = yield from remove_snapshots(self._archive, self._recording_log, found)
            log_position, hold = needed_log_position(
                found.log_position, is_leader=self._role == LEADER, leadership_term_id=self._leadership_term_id,
                others=self.members.others(),
                backup_position=None if self._backup_position == NULL_POSITION else self._backup_position)
            segment_count, log_start = yield from remove_log(self._archive, self._log_recording_id, log_position)
        except ArchiveError as error:
            if not self._archive.is_alive():
                raise
            hold = message_of(error)
        self._counters.retained_log_position.set(log_start)
        if hold is None:
            self._retention_due_ns = INT64_MAX
        elif hold != self._retention_hold:
            log_event(self.context.name, "retention_held", reason=hold, retry_ms=RETENTION_INTERVAL_NS // NS_PER_MS)
        self._retention_hold = hold
        if snapshot_count or segment_count:
            log_event(
                self.context.name, "retention_applied", snapshots_retained=kept, recordings_deleted=snapshot_count,
                segments_deleted=segment_count, log_start_position=log_start, log_position=found.log_position)

    cdef int _begin_retention(self) except -1:
        """Look in a moment for what is no longer needed, if it is wanted that it goes."""
        if self._retained_count > 0:
            self._retention_due_ns = self._clock.nano_time()
        return 0

    cdef int _append_action(self, int32_t action, int32_t flags, ModuleState next_state, str reason) except -1:
        """Append an action, and enter the state that it means; whether the log took it."""
        cdef int64_t position = self.log_publisher.append_cluster_action(
            self._leadership_term_id, self._cluster_clock.time(), action, flags)
        if position <= 0:
            return 0
        self._uncommitted_states.append((position, <int> self._state))
        if next_state == STATE_SNAPSHOT:
            self._snapshot_position = position
            self._has_space = False             # the next one asks again
        self._set_state(next_state, reason)
        return 1

    cdef int _begin_shutdown(self, int64_t now_ns) except -1:
        if not self._append_action(CLUSTER_ACTION_SNAPSHOT, ACTION_FLAGS_DEFAULT, STATE_SNAPSHOT, "SHUTDOWN"):
            return 0
        self._counters.snapshot_duration.begin(now_ns)
        self._termination_position = self.log_publisher.position()
        self._termination = now_ns + <int64_t> self._settings.termination_timeout_ns
        self._is_awaiting_services = True
        return 1

    cdef int _begin_abort(self, int64_t now_ns) except -1:
        self._termination_position = self.log_publisher.position()
        self._termination = now_ns + <int64_t> self._settings.termination_timeout_ns
        self._is_awaiting_services = True
        self._set_state(STATE_TERMINATING, "ABORT")
        self._tell_services_to_terminate(self._termination_position)
        return 1

    # Snapshots

    def _check_space(self):
        # Once a snapshot is in the log, services take it, and end where the archive has no space for it.
        while self._upkeep is not None:         # it asks the archive
            yield
        yield from try_recording(
            self._archive, channel=add_session_id(
                self._settings.snapshot_channel, <int32_t> self._client.next_correlation_id()),
            stream_id=self._settings.snapshot_stream_id)
        self._has_space = True

    cdef int _poll_space_check(self) except -1:
        cdef bint is_done = _is_done(self._space_check, self._refuse_snapshot)
        if is_done:
            self._space_check = None
            self._slow_tick_deadline_ns = 0
        return is_done

    def _refuse_snapshot(self, error):
        """Leave the cluster as it is: no snapshot is in the log."""
        self._fail_snapshot(message_of(error))
        self._on_error(ClusterError(
            f"no snapshot is taken, and the cluster goes on: {message_of(error)}; repair the cause, such as too little "
            "space on the archive's disk, then ask again; `abort` ends a node without a snapshot"))
        self._check_archive(error)
        self._counters.control_toggle.set(TOGGLE_NEUTRAL)

    def _fail_snapshot(self, str text):
        self.snapshot_failure = text
        log_event(self.context.name, "snapshot_failed", leadership_term_id=self._leadership_term_id, reason=text)

    cdef int _begin_snapshot(self, int64_t log_position, int64_t timestamp, list acks) except -1:
        failed = [ack.service_id for ack in acks if ack.relevant_id == NULL_VALUE]
        for service_id in failed:
            self._on_error(ClusterEvent(f"service={service_id} failed to take snapshot"))
        if failed:
            self.snapshot_failure = f"service {', '.join(map(str, failed))} failed to take it"
            return self._end_snapshot()
        self._snapshot = self._take_snapshot(log_position, timestamp, acks)
        return 0

    def _take_snapshot(self, int64_t log_position, int64_t timestamp, list acks):
        cdef int64_t begin_ns = self._clock.nano_time()
        settings, log = self._settings, self._recording_log
        term_id = self._leadership_term_id
        for tracker in self._trackers:
            missed = tracker.missed_messages()
            if missed is not None:
                self._on_error(missed)
        while self._upkeep is not None:         # it asks the archive
            yield
        messages = snapshot_messages(
            self.sessions, self._timers, self._trackers, log_position, term_id, self._cluster_clock.time_unit,
            settings.app_version)
        recording_id, length = yield from record_snapshot(
            self._archive, self._client, self._deadline, channel=settings.snapshot_channel,
            stream_id=settings.snapshot_stream_id, messages=messages)
        base = log.get_term_entry(term_id).term_base_log_position
        for ack in reversed(acks):
            log.append_snapshot(ack.relevant_id, term_id, base, log_position, timestamp, ack.service_id)
        log.append_snapshot(recording_id, term_id, base, log_position, timestamp, CONSENSUS_MODULE_SERVICE_ID)
        log.force()
        self._counters.snapshot_duration.end(self._clock.nano_time())
        self._counters.snapshot_count.increment()
        log_event(
            self.context.name, "snapshot_taken", log_position=log_position, leadership_term_id=term_id,
            recording_id=recording_id, bytes=length, duration_ms=(self._clock.nano_time() - begin_ns) // NS_PER_MS)

    cdef int _poll_snapshot(self) except -1:
        cdef bint is_done = _is_done(self._snapshot, self._on_failed_snapshot)
        if is_done:
            self._snapshot = None
            self._end_snapshot()
        return is_done

    def _on_failed_snapshot(self, error):
        self._on_error(error)
        self._on_error(ClusterEvent(f"failed to take snapshot: {message_of(error)}"))
        self._fail_snapshot(message_of(error))
        self._check_archive(error)          # too little space for a snapshot is no end while there is some for the log

    cdef int _end_snapshot(self) except -1:
        self.sessions.refresh_activity()
        if self._termination is not None:
            self._termination = self._clock.nano_time() + <int64_t> self._settings.termination_timeout_ns
            self._set_state(STATE_TERMINATING, "snapshot complete")
            return self._tell_services_to_terminate(self._termination_position)
        self._set_state(STATE_ACTIVE, "snapshot complete")
        self._begin_retention()
        if self._role == LEADER:
            self._counters.control_toggle.set(TOGGLE_NEUTRAL)
        return 0

    # The end

    cdef int _tell_services_to_terminate(self, int64_t log_position) except -1:
        self._termination_position = log_position
        self._is_termination_sent = False
        return self._send_termination()

    cdef int _send_termination(self) except -1:
        if not self._is_termination_sent:
            try:
                self._is_termination_sent = self._services.termination_position(self._termination_position, True)
            except PublicationUnavailableError as error:
                self._is_termination_sent = True    # nobody is there to be told
                self._on_error(error)
        return 0

    def _can_terminate(self, int64_t now_ns):
        cdef ClusterMember member
        if self._is_awaiting_services:
            return False
        return now_ns >= self._termination or all(
            [member.is_leader or member.has_terminated for member in self.members.members])

    def _on_terminated_services(self, int64_t log_position):
        self._is_awaiting_services = False
        if self._termination is not None and not self._can_terminate(self._clock.nano_time()):
            return
        self._end_at(log_position, "services have terminated")

    def _end_at(self, int64_t log_position, str reason):
        """End this member where its services have ended. The next start finds the end without the recording log too."""
        cdef bint is_noted = True
        try:
            self._recording_log.commit_log_position(self._leadership_term_id, log_position)
            self._recording_log.force()
        except OSError as error:                # another try in each turn would do no better
            is_noted = False
            self._on_error(error)
        self._terminate(is_noted, reason)

    cdef int _terminate(self, bint is_expected, str reason) except -1:
        """End this member: raises ClusterTermination."""
        if not is_expected:
            try:
                self._services.termination_position(0, True)
            except Exception as error:
                self._on_error(error)
        self._stop_log_recording()
        self._set_state(STATE_CLOSED, reason)
        raise ClusterTermination(is_expected=is_expected, reason="" if is_expected else reason)

    cdef int _stop_log_recording(self) except -1:
        # Its session ends with the publication; this is for a log whose leader is somebody else.
        self._append_counter_id = NULL_COUNTER_ID
        self._listener.append_registration_id = NULL_VALUE
        return 0

    def expect_services_to_end(self):
        """A node that closes ends its services first: from now on it is in order that one goes away. For any thread."""
        self._are_services_ending = True

    cdef int _report_end(self, object error) except -1:
        if not getattr(error, "is_expected", False):
            self._on_error(error)
        return 0

    cdef str _kind(self):
        return "consensus module"

    cdef int _end(self) except -1:
        for generator in (
                self._start, self._preparation, self._join, self._snapshot, self._space_check, self._upkeep):
            if generator is not None:
                self._attempt(generator.close)
        closable = self._ingress
        self._attempt(closable.close)
        self._attempt(self._tell_clients)       # without ingress: who connects again waits for the next start
        self._attempt(self._log_adapter_leave)
        for closable in (self.log_publisher, self._archive, self._services, self._control, self._consensus):
            self._attempt(closable.close)
        self._attempt(self._close_sessions)
        self._attempt(self._remove_listener)
        self._attempt(self._show_closed)
        self.context.release()
        return 0

    def _attempt(self, call):
        try:
            call()
        except Exception as error:
            self._on_error(error)

    def _log_adapter_leave(self):
        self._log_adapter.leave()

    def _tell_clients(self):
        if self._role == LEADER and len(self.members.members) == 1:     # else clients follow the next leader
            self.sessions.tell_of_the_end(self._leadership_term_id)

    def _close_sessions(self):
        self.sessions.close()

    def _remove_listener(self):
        self._client.remove_listener(self._listener)

    def _show_closed(self):
        self._set_state(STATE_CLOSED, "closed")


hide((Listener, TimerAppender, ServiceMessageAppender, AgentLogReplay))
seal((ConsensusModuleAgent,))
