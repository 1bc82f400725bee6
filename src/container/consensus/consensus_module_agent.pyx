"""The duty cycle of a consensus module: in upstream's order, and no turn waits. Upstream: ConsensusModuleAgent.java.

The agent makes the parts of a member, gives each its turn, and hands them what the adapters have decoded. Parts wait
with generators of their own, or of :mod:`container.consensus.steps`, that each turn takes one on.

The cluster clock gives the timestamps of the log. All durations are of the monotonic clock, so that a step of the
system's clock times nobody out.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.codecs.cluster cimport (
    CLUSTER_ACTION_RESUME, CLUSTER_ACTION_SNAPSHOT, CLUSTER_ACTION_SUSPEND,
    SESSION_MESSAGE_HEADER_ENCODED_LENGTH,
)
from container.common.aeron_defaults import fragment_limit, portions
from container.common.directories import removed_text
from container.common.error_texts import message_of
from container.common.log_events import WaitLog
from container.common.sealed cimport seal
from container.consensus import channels
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.backup_requests import (
    BackupAnswers, BackupQuery, HeartbeatRequest, StandbySnapshot, StandbySnapshotEntry, StandbySnapshots,
)
from container.consensus.cluster_control cimport ClusterControl
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.cluster_session cimport ClusterSession
from container.consensus.compatibility import check_compatible
from container.consensus.consensus_adapter cimport ConsensusAdapter
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.consensus.consensus_module_adapter cimport ConsensusModuleAdapter
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.election import Election
from container.consensus.election_host import NewLeadershipTerm
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.follower_log cimport FollowerLog
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.leader_log cimport LeaderLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_appenders cimport ServiceMessageAppender, TimerAppender
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_following cimport LogFollowing
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_election_host cimport MemberElectionHost
from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_start cimport MemberStart
from container.consensus.member_status cimport (
    FOLLOWER, LEADER, STATE_ACTIVE, STATE_CLOSED, STATE_INIT, STATE_SNAPSHOT, STATE_SUSPENDED, STATE_TERMINATING,
    MemberStatus,
)
from container.consensus.member_termination cimport MemberTermination
from container.consensus.peer_messages cimport PeerMessages
from container.consensus.pending_service_messages cimport (
    SERVICE_MESSAGE_LIMIT, PendingServiceMessageTracker, service_id_from_log_message, service_id_from_service_message,
)
from container.consensus.service_joins cimport ServiceJoins
from container.consensus.service_proxy cimport ServiceProxy
from container.consensus.session_manager cimport SessionManager
from container.consensus.term_announcer cimport TermAnnouncer
from container.consensus.timer_service cimport POLL_LIMIT as TIMER_POLL_LIMIT
from container.consensus.uncommitted_timers cimport UncommittedTimers
from container.errors import (
    AgentTermination, ArchiveError, ClusterError, ClusterEvent, ConfigurationError, MarkFileError,
)
from container.transport.frames cimport ACTION_ABORT, ACTION_CONTINUE, NULL_VALUE
from container.transport.streams cimport Image

cdef enum:
    NS_PER_MS = 1_000_000
    SLOW_TICK_INTERVAL_NS = 10 * 1_000_000
    MARK_FILE_INTERVAL_NS = 1_000_000_000
    ACTION_FLAGS_DEFAULT = 0
    MAX_MESSAGE_LENGTH = 16 * 1024 * 1024       # of any publication


cdef class ConsensusModuleAgent(ConsensusEventHandler):
    """The agent of a consensus module; the first turns start it, and it leads or follows until :meth:`close`.

    Args:
        context: concluded (container.consensus.consensus_module_context.ConsensusModuleContext): settings, client,
            counters, files, authenticator and the rest; it stays the owner of all that it has.

    One thread calls it. It asks the driver for the control streams, and waits for that; later it waits for nothing.
    """

    def __init__(self, context):
        settings = context.settings
        self.context, self._on_error = context, context.counted_error_handler
        self._client, self._counters, self._cluster_clock = context.client, context.counters, context.cluster_clock
        self._clock, self._recording_log = self._client.clock, context.recording_log
        self.members = ClusterMembers(context.members, settings.cluster_member_id)
        self._status = MemberStatus(context, self.members.this_member)
        self._missed_service_id = NULL_VALUE
        self.log_publisher = LogPublisher()
        self.sessions = SessionManager(
            self._client, self._cluster_clock, self.log_publisher, authenticator=context.authenticator,
            authorisation_service=context.authorisation_service, on_error=self._on_error,
            timed_out_counter=self._counters.timed_out_clients, cluster_id=settings.cluster_id,
            member_id=settings.cluster_member_id, session_timeout_ns=settings.session_timeout_ns,
            leader_heartbeat_timeout_ns=settings.leader_heartbeat_timeout_ns,
            max_concurrent_sessions=settings.max_concurrent_sessions)
        self._egress_channels = channels.egress_channels(settings, context.members)
        self._trackers = [PendingServiceMessageTracker(each) for each in range(settings.service_count)]
        self._new_log_term_length = channels.term_length(settings.log_channel)
        self._expired_timers = {}
        self._heartbeat_timeout_ns = settings.leader_heartbeat_timeout_ns
        self._ingress_endpoints = self.members.ingress_endpoints()
        self._log_adapter = LogAdapter(
            self, fragment_limit(settings.log_fragment_limit, context.use_agent_invoker))
        ingress_limit = fragment_limit(settings.ingress_fragment_limit, context.use_agent_invoker)
        self._ingress = IngressAdapter(
            self, self._client, settings.ingress_stream_id, ingress_limit, self._on_error)
        self._portions = portions(ingress_limit, context.use_agent_invoker)
        self.backups = BackupAnswers(
            self._recording_log, service_count=settings.service_count,
            commit_position_counter_id=self._counters.commit_position.counter_id, members=self.members,
            status=self._status)
        if self._counters.standby_snapshots is not None:
            self._standby_snapshots = StandbySnapshots(
                self._recording_log, self._count_standby_snapshot, settings.standby_snapshot_delay_ns, self._on_error)
        self._wait_log = WaitLog(context.name)
        try:
            self._add_streams(context)
            self._make_parts(context)
        except BaseException:                   # the client may belong to a caller who keeps using it
            for stream in self._streams():
                if stream is not None:
                    self._attempt(stream.close)
            raise
        self._services.watch(self._client)
        self._recording.watch(self._client)
        self._archive.on_signal = self._elections.on_recording_signal

    def _add_streams(self, context):
        settings = context.settings
        self._service_adapter = ConsensusModuleAdapter(
            self._client.add_subscription(settings.control_channel, settings.consensus_module_stream_id), self,
            self._portions)
        self._service_proxy = ServiceProxy(
            self._client.add_publication(settings.control_channel, settings.service_stream_id))
        self._consensus = ConsensusAdapter(
            self._client.add_subscription(
                channels.consensus_subscription_channel(
                    settings.consensus_channel, self.members.this_member.consensus_endpoint),
                settings.consensus_stream_id),
            self, self.members)
        self._publisher = ConsensusPublisher(
            self._client, self.members, channel=settings.consensus_channel, stream_id=settings.consensus_stream_id,
            is_control_enabled=settings.is_consensus_control_enabled, on_error=self._on_error)
        self._archive = context.new_archive_client()

    def _streams(self):
        return self._archive, self._service_proxy, self._service_adapter, self._publisher, self._consensus

    def _make_parts(self, context):
        """Each of those that come first is known to some of those after it."""
        cdef UncommittedTimers timers = UncommittedTimers()
        cdef ServiceJoins joins
        cdef LeaderLog leader_log
        cdef FollowerLog follower_log
        cdef TermAnnouncer announcer
        self._services = MemberServices(context, self._service_proxy)
        self._timers = context.new_timer_service(
            TimerAppender(self._status, self.log_publisher, self._cluster_clock, timers))
        self._recording = LogRecording(context, self._archive)
        self._termination = MemberTermination(
            context, self.members, self._publisher, self._status, self._services, self._recording)
        self._message_appender = ServiceMessageAppender(
            self._status, self.log_publisher, self._cluster_clock, self._termination)
        self._upkeep = ArchiveUpkeep(
            context, self._archive, self.members, self._status, self._recording, self._termination, self.backups)
        self._snapshots = MemberSnapshots(
            context, self._archive, self._status, self.sessions, self._timers, self._trackers, self._termination,
            self._upkeep)
        self._commit = LogCommit(
            context, self.members, self._publisher, self._status, self._termination, self._recording,
            self.log_publisher, self.sessions, self._timers, self._trackers, timers)
        self._control = ClusterControl(
            context, self._status, self.sessions, self.log_publisher, self._commit, self._termination, self._snapshots,
            self._upkeep)
        joins = ServiceJoins(context, self._services, self._snapshots)
        leader_log = LeaderLog(context, self.members, self.log_publisher, self._recording, joins, self._termination)
        follower_log = FollowerLog(
            context, self.members.this_member, self._log_adapter, self._recording, joins, self._termination)
        announcer = TermAnnouncer(context, self._publisher, self._recording)
        self._leader_log, self._follower_log = leader_log, follower_log
        self._following = LogFollowing(
            context, self._publisher, self._status, self._log_adapter, self._recording, follower_log,
            self._termination)
        self._catchups = FollowerCatchups(
            context, self._archive, self._publisher, self.log_publisher, self._recording)
        self._elections = MemberElectionHost(
            context, self._archive, self.members, self._publisher, announcer, self._status, self.sessions, self._timers,
            self._ingress, self._log_adapter, self.log_publisher, self._recording, self._commit, leader_log,
            follower_log, self._following, self._catchups, joins, self._snapshots, self._termination, self._upkeep)
        self._peers = PeerMessages(
            context, self.members, self._publisher, announcer, self._status, self.log_publisher, self._recording,
            self._commit, self._catchups, self._following, self._elections)
        self._start = MemberStart(
            context, self._archive, self._status, self._services, self._recording, self._snapshots, self._elections,
            self)

    # For its owner

    def start(self):
        """Begin: the first turns do the rest."""
        self._counters.cycle.begin(self._clock.nano_time())

    @property
    def has_leader(self):
        """Whether it has started, no election is in progress, and it has not ended (bool). For any thread."""
        return (self._status.state != STATE_INIT and self._status.state != STATE_CLOSED
                and not self._start.is_in_progress() and self._elections.election is None)

    @property
    def snapshot_count(self):
        """How many snapshots it has taken since its start (int). For any thread."""
        return self._counters.snapshot_count.get()

    @property
    def is_taking_snapshot(self):
        """Whether its state is SNAPSHOT, as it is for a moment after it has counted one (bool). For any thread."""
        return self._status.state == STATE_SNAPSHOT

    @property
    def snapshot_failure(self):
        """Why the last snapshot was not taken (str), or None. For any thread."""
        return self._snapshots.failure

    def request_snapshot(self):
        """Ask for a snapshot, as ClusterTool does; whether it could be asked for (bool). For any thread.

        It cannot while the member does not lead, and while something else is asked for.
        """
        return self._control.request_snapshot()

    def expect_services_to_end(self):
        """A node that closes ends its services first: from now on it is in order that one goes away. For any thread."""
        self._services.is_end_expected = True

    # The duty cycle

    cdef int _work(self) except? -1:
        self._counters.cycle.measure_and_begin(self._clock.nano_time())
        return self._turn()

    cdef int _work_again(self) except? -1:
        """Commit what the archive has recorded since the turn appended it."""
        if self._status.role != LEADER or self._start.is_in_progress() or self._elections.election is not None:
            return 0
        return self._commit.update_as_leader(self._clock.nano_time())

    cdef int64_t _tick(self) noexcept:
        return self._clock.coarse_nano_time()

    cdef int _turn(self) except -1:
        cdef int64_t now_ns = self._clock.nano_time()
        cdef bint is_starting = self._start.is_in_progress()
        cdef int work_count = 0, slow_tick_count
        if now_ns >= self._slow_tick_deadline_ns or is_starting or self._elections.election is not None:
            slow_tick_count = self._slow_tick(now_ns)
            work_count += slow_tick_count
            self._log_wait(now_ns)
            self._slow_tick_deadline_ns = now_ns + (1 if slow_tick_count > 0 else SLOW_TICK_INTERVAL_NS)
        if is_starting:
            work_count += self._start.do_work()
        else:
            work_count += self._consensus.poll()
            if self._elections.election is not None:
                work_count += self._elections.do_work(now_ns)
            else:
                work_count += self._consensus_work(now_ns)
        return work_count + self._service_adapter.poll()

    cdef int _log_wait(self, int64_t now_ns) except -1:
        """Log what is waited for, if that lasts long."""
        cdef str what = None
        if self._start.is_in_progress():
            what = self._start.awaits
        elif self._elections.election is not None:
            what = self._elections.awaits
        elif self._status.state == STATE_SNAPSHOT:
            what = "services and archive to take the snapshot"
        elif self._status.state == STATE_TERMINATING:
            what = "services and members to terminate"
        if what is not None or self._is_waiting:
            self._is_waiting = what is not None
            self._wait_log.tick(what, now_ns)
        return 0

    cdef int _slow_tick(self, int64_t now_ns) except -1:
        cdef bint has_started = not self._start.is_in_progress()
        cdef int work_count = self._invoke_client()
        if self._client.is_closed():
            raise AgentTermination(f"unexpected Aeron close: {getattr(self._client, 'close_reason', None)}")
        if now_ns >= self._mark_file_deadline_ns:
            self._mark_file_deadline_ns = now_ns + MARK_FILE_INTERVAL_NS
            self._show_activity()
            self._ingress.forget_lost()
            self._ingress.try_again()
            self._consensus.forget_lost()
        self._check_services()
        work_count += self._publisher.poll_adds(now_ns)
        if has_started:
            if self._status.role == LEADER:
                work_count += self._leader_log.poll_destinations(now_ns)
            self._catchups.poll()
            if self._elections.election is None:
                work_count += self._upkeep.poll(
                    self._status.state == STATE_ACTIVE and not self._snapshots.is_asking_for_space(), now_ns)
            self._poll_archive()
        # The archive has said before why, if it could not write.
        if self._recording.is_lost() and self._elections.election is None and self._elections.can_enter():
            self._enter_election(self._log_adapter.is_end_of_stream_known(), "log recording stopped")
        if has_started:
            work_count += self.sessions.tell_the_refused(self._status.leadership_term_id, self._status.leader.id)
            if self._elections.election is None:
                self._elections.forget_failures(now_ns)
                if self._status.role == LEADER:
                    work_count += self._slow_tick_of_leader(now_ns)
                else:
                    work_count += self._slow_tick_of_follower(now_ns)
            if self._standby_snapshots is not None:
                work_count += self._standby_snapshots.poll(self._counters.commit_position.get(), now_ns)
        return work_count

    cdef int _slow_tick_of_leader(self, int64_t now_ns) except -1:
        cdef int work_count = self._control.poll(now_ns)
        cdef Image image
        self._ingress.poll_adds()
        if self._status.state == STATE_ACTIVE:
            for image in self._ingress.take_lost_images():
                self.sessions.on_unavailable_ingress_image(image.correlation_id)
            work_count += self.sessions.process_pending(self._status.leadership_term_id)
            work_count += self.sessions.check_sessions(
                self._status.leadership_term_id, self._status.leader.id, self._ingress_endpoints)
            if self.members.count() > 1 and not self.members.has_active_quorum(
                    now_ns, self._heartbeat_timeout_ns):
                self._elections.enter(False, "inactive follower quorum")
                work_count += 1
            else:
                work_count += self._control.poll_node()
        elif self._status.state == STATE_TERMINATING:
            self._termination.poll(now_ns)
        return work_count

    cdef int _slow_tick_of_follower(self, int64_t now_ns) except -1:
        cdef int work_count = self._follower_log.poll()
        self._ingress.poll_adds()
        if self._status.state == STATE_ACTIVE:
            work_count += self.sessions.process_pending_actions(self._status.leadership_term_id)
            work_count += self._control.poll_node()
        elif self._status.state == STATE_TERMINATING:
            self._termination.poll_follower()
        if (self._elections.can_enter() and not self._termination.is_followed()
                and self._following.is_leader_silent(now_ns)):
            self._elections.enter(False, "leader heartbeat timeout")
            work_count += 1
        return work_count

    cdef int _enter_election(self, bint is_log_end_of_stream, str reason) except -1:
        return self._elections.enter(is_log_end_of_stream, f"{reason}: eos={is_log_end_of_stream}")

    def _show_activity(self):
        try:
            self.context.mark_file.update_activity_timestamp(self._clock.epoch_ms())
            if not self._recording_log.is_in_place():
                raise MarkFileError(removed_text(self._recording_log.path))
        except MarkFileError as error:          # another consensus module may write this one's files by now
            self._on_error(error)
            self._termination.terminate(False, message_of(error))

    cdef int _check_services(self) except -1:
        cdef bint is_ending = self._status.state == STATE_TERMINATING
        cdef int service_id = self._services.lost_service_id(is_ending)
        if is_ending and service_id != self._missed_service_id:
            self._missed_service_id = service_id        # what it acknowledged last is read in this turn
        elif service_id != NULL_VALUE:
            self._on_error(ClusterEvent(f"Aeron client in service closed unexpectedly: serviceId={service_id}"))
            self._termination.terminate(False, f"service {service_id} is gone")
        return 0

    cdef int _invoke_client(self) except -1:
        cdef int work_count = 0
        try:
            work_count = self._client.invoke()
        except Exception as error:              # a handler of the client's errors may raise, or the driver is gone
            self._on_error(error)
        return work_count

    cdef int _poll_archive(self) except -1:
        """Hear what the archive has to say. An error that is somebody's is looked after there."""
        cdef object error
        try:
            self._archive.poll()
            error = self._archive.take_error()
        except ArchiveError as lost:
            error = lost
        if error is not None:
            self._on_archive_error(error)
        return 0

    def _on_archive_error(self, error):
        self._on_error(error)
        if error.code == ArchiveError.STORAGE_SPACE:
            self._termination.terminate(False, message_of(error))
        self._termination.check_archive(error)

    cdef int _consensus_work(self, int64_t now_ns) except -1:
        cdef int work_count = 0
        if self._status.role == LEADER:
            if self._status.state == STATE_ACTIVE:
                work_count += self._poll_timers()
                work_count += self._append_service_messages()
                work_count += self._ingress.poll()
            work_count += self._commit.update_as_leader(now_ns)
        else:
            work_count += self._following.poll(now_ns)
            if self._following.end is not None and self._elections.can_enter():
                self._enter_election(self._log_adapter.is_end_of_stream_known(), self._following.end)
                return work_count
            work_count += self._ingress.poll()
        work_count += self._snapshots.poll()
        if self._snapshots.poll_space():
            self._slow_tick_deadline_ns = 0     # which asks for the snapshot
            work_count += 1
        return work_count

    cdef int _poll_timers(self) except -1:
        cdef int64_t now = self._cluster_clock.time()
        cdef int work_count = 0, done, _portion
        for _portion in range(self._portions):
            done = self._timers.poll(now)
            work_count += done
            if done < TIMER_POLL_LIMIT:
                break
        return work_count

    cdef int _append_service_messages(self) except -1:
        cdef PendingServiceMessageTracker tracker
        cdef int work_count = 0, done, _portion
        for tracker in self._trackers:
            for _portion in range(self._portions):
                done = tracker.poll(self._message_appender)
                work_count += done
                if done < SERVICE_MESSAGE_LIMIT:
                    break
        return work_count

    # Requests of services and tools

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
            self._termination.terminate(False, message_of(error))
        return 0

    cdef int64_t _max_payload_length(self) except -1:
        """The longest payload of a session message in the log (bytes): the same on each member, for writing and
        reading."""
        cdef int64_t length = self.log_publisher.max_payload_length()
        cdef int64_t term_length = self._new_log_term_length
        if length > 0:
            return length
        if self._log_adapter.image is not None:
            term_length = self._log_adapter.image.term_buffer_length
        elif self._recording.plan is not None and self._recording.plan.log is not None:
            term_length = self._recording.plan.log.term_buffer_length
        length = min(term_length // 8, <int64_t> MAX_MESSAGE_LENGTH) - SESSION_MESSAGE_HEADER_ENCODED_LENGTH
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
            cluster_session_id, self._status.role == LEADER and self._status.state == STATE_ACTIVE and (
                self._elections.election is None),
            self._status.leadership_term_id)

    cdef int on_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef int64_t expired, timestamp
        if self._expired_timers:
            expired, timestamp = self._expired_timers.get(correlation_id, (0, 0))
            if expired > 0 and deadline <= timestamp:   # the service is behind the log, in which it has expired
                if expired > 1:
                    self._expired_timers[correlation_id] = expired - 1, timestamp
                else:
                    del self._expired_timers[correlation_id]
                self._timers.cancel(correlation_id)     # it takes the place of what the service scheduled before
                return 0
        self._commit.forget_timer(correlation_id)
        return self._timers.schedule(correlation_id, deadline)

    cdef int on_cancel_timer(self, int64_t correlation_id) except -1:
        self._commit.forget_timer(correlation_id)
        self._timers.cancel(correlation_id)
        return 0

    cdef int on_service_ack(
            self, int64_t log_position, int64_t timestamp, int64_t ack_id, int64_t relevant_id, int32_t service_id
    ) except -1:
        cdef bint is_for_snapshot = self._snapshots.is_awaiting_services()
        if not self._services.take_ack(log_position, ack_id, relevant_id, service_id):
            return 0
        # Upstream takes the position of a snapshot from the ack, whoever has sent it.
        if is_for_snapshot:
            log_position = self._snapshots.log_position
        if (self._status.state not in (STATE_SNAPSHOT, STATE_TERMINATING)
                and (self._start.is_in_progress() or self._elections.election is not None)):
            return 0                            # a step of those waits for its own
        if self._services.has_reached(log_position):
            if is_for_snapshot:
                self._snapshots.take(timestamp, self._services.poll_acks())
            elif self._status.state == STATE_TERMINATING:
                self._termination.on_terminated_services(log_position)
        return 0

    cdef int on_cluster_members_query(self, int64_t correlation_id, bint is_extended) except -1:
        if is_extended:
            self._service_proxy.cluster_members_extended_response(
                correlation_id, self._status.leader.id, self.members, self._clock.epoch_ms() * NS_PER_MS,
                self._clock.nano_time())
        else:
            self._service_proxy.cluster_members_response(
                correlation_id, self._status.leader.id, self.members.encode())
        return 0

    # Requests of clients

    cdef int on_session_connect(
            self, int64_t correlation_id, int32_t response_stream_id, int32_t version, str response_channel,
            bytes encoded_credentials, str client_info, Image image) except -1:
        cdef str channel = self._egress_channel(response_channel, response_stream_id, correlation_id)
        if channel is None:
            return 0
        return self.sessions.on_session_connect(
            correlation_id, response_stream_id, version, channel, encoded_credentials, client_info, image,
            self._status.role == LEADER, self._ingress_endpoints)

    def _egress_channel(self, str requested, int32_t stream_id, int64_t correlation_id):
        """Where somebody is answered; None, and a report, where that cannot be, as there is nowhere to say so."""
        channel = None
        try:
            channel = self._egress_channels.channel(requested, stream_id)
        except ConfigurationError as error:
            self._on_error(ClusterEvent(f"request not answered: correlationId={correlation_id}: {error}"))
        return channel

    cdef int on_session_close(self, int64_t leadership_term_id, int64_t cluster_session_id) except -1:
        if leadership_term_id == self._status.leadership_term_id and self._status.role == LEADER:
            self.sessions.on_session_close(leadership_term_id, cluster_session_id)
        return 0

    cdef int on_ingress_message(
            self, int64_t leadership_term_id, int64_t cluster_session_id, const uint8_t* payload, size_t length
    ) except -1:
        cdef ClusterSession session
        if leadership_term_id != self._status.leadership_term_id or self._status.role != LEADER:
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
        if leadership_term_id == self._status.leadership_term_id and self._status.role == LEADER:
            session = self.sessions.find(cluster_session_id)
            if session is not None and session.is_open():
                if image is not None:
                    session.link(image.correlation_id)
                session.time_of_last_activity_ns = self._clock.nano_time()
        return 0

    cdef int on_challenge_response(
            self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials) except -1:
        if self._status.role == LEADER:
            self.sessions.on_challenge_response(correlation_id, cluster_session_id, encoded_credentials, True)
        return 0

    cdef int on_admin_request(
            self, int64_t leadership_term_id, int64_t cluster_session_id, int64_t correlation_id, int32_t request_type
    ) except -1:
        cdef ClusterSession session
        if leadership_term_id != self._status.leadership_term_id or self._status.role != LEADER:
            return 0
        session = self.sessions.find(cluster_session_id)
        if session is None or not session.is_open():
            return 0
        return self._control.on_admin_request(session, correlation_id, request_type)

    # Messages of the other members

    cpdef int on_canvass_position(
            self, int64_t log_leadership_term_id, int64_t log_position, int64_t leadership_term_id,
            int32_t follower_member_id, int32_t protocol_version) except -1:
        self._catchups.stop(self.members.find(follower_member_id))      # it follows nobody, and asks again
        if self._elections.election is None:
            return self._peers.on_canvass_position(
                log_leadership_term_id, log_position, leadership_term_id, follower_member_id, protocol_version)
        self._elections.hear(
            Election.on_canvass_position, log_leadership_term_id, log_position, leadership_term_id, follower_member_id,
            protocol_version)
        return 0

    cpdef int on_request_vote(
            self, int64_t log_leadership_term_id, int64_t log_position, int64_t candidate_term_id,
            int32_t candidate_member_id, int32_t protocol_version) except -1:
        if self._elections.election is None:
            return self._peers.on_request_vote(candidate_term_id, candidate_member_id)
        self._elections.hear(
            Election.on_request_vote, log_leadership_term_id, log_position, candidate_term_id, candidate_member_id,
            protocol_version)
        return 0

    cpdef int on_vote(
            self, int64_t candidate_term_id, int64_t log_leadership_term_id, int64_t log_position,
            int32_t candidate_member_id, int32_t follower_member_id, bint vote) except -1:
        if self._elections.election is not None:
            self._elections.hear(
                Election.on_vote, candidate_term_id, log_leadership_term_id, log_position, candidate_member_id,
                follower_member_id, vote)
        return 0

    cpdef int on_new_leadership_term(
            self, int64_t log_leadership_term_id, int64_t next_leadership_term_id,
            int64_t next_term_base_log_position, int64_t next_log_position, int64_t leadership_term_id,
            int64_t term_base_log_position, int64_t log_position, int64_t commit_position, int64_t leader_recording_id,
            int64_t timestamp, int32_t leader_member_id, int32_t log_session_id, int32_t app_version, bint is_startup,
            int32_t protocol_version) except -1:
        if leadership_term_id >= self._status.leadership_term_id:   # the version of an older leader matters no more
            self._check_version(self._cluster_clock.time_unit, app_version)
        self._elections.note_leader(leadership_term_id)
        if self._elections.election is None:
            return self._peers.on_new_leadership_term(leadership_term_id, commit_position, leader_member_id)
        self._elections.hear(Election.on_new_leadership_term, NewLeadershipTerm(
            log_leadership_term_id, next_leadership_term_id, next_term_base_log_position, next_log_position,
            leadership_term_id, term_base_log_position, log_position, commit_position, leader_recording_id,
            leader_member_id, log_session_id, is_startup, protocol_version))
        return 0

    cpdef int on_append_position(
            self, int64_t leadership_term_id, int64_t log_position, int32_t follower_member_id, int flags) except -1:
        if self._elections.election is None:
            return self._peers.on_append_position(leadership_term_id, log_position, follower_member_id, flags)
        self._elections.hear(
            Election.on_append_position, leadership_term_id, log_position, follower_member_id, flags)
        return 0

    cpdef int on_commit_position(
            self, int64_t leadership_term_id, int64_t log_position, int32_t leader_member_id) except -1:
        self._elections.note_leader(leadership_term_id)
        if self._elections.election is None:
            return self._peers.on_commit_position(leadership_term_id, log_position, leader_member_id)
        self._elections.hear(Election.on_commit_position, leadership_term_id, log_position, leader_member_id)
        return 0

    cpdef int on_catchup_position(
            self, int64_t leadership_term_id, int64_t log_position, int32_t follower_member_id, str catchup_endpoint
    ) except -1:
        # In an election as well: a follower joins the log before the term is open.
        if (leadership_term_id <= self._status.leadership_term_id and self._status.role == LEADER
                and self.log_publisher.publication is not None):
            self._catchups.begin(self.members.find(follower_member_id), log_position, catchup_endpoint)
        return 0

    cpdef int on_stop_catchup(self, int64_t leadership_term_id) except -1:
        if leadership_term_id == self._status.leadership_term_id:
            self._follower_log.stop_catchup()
        return 0

    cpdef int on_termination_position(self, int64_t leadership_term_id, int64_t log_position) except -1:
        if self.members.count() == 1:           # it has no sender's id that could be wrong
            return self.on_unexpected_message("unexpected TerminationPosition")
        if leadership_term_id == self._status.leadership_term_id and self._status.role == FOLLOWER:
            self._termination.on_position(log_position)
            self._following.hear_leader(self._clock.nano_time())
        return 0

    cpdef int on_termination_ack(self, int64_t leadership_term_id, int64_t log_position, int32_t member_id) except -1:
        return self._termination.on_ack(self.members.find(member_id), leadership_term_id, log_position)

    # Requests of backups and standbys

    cdef int on_backup_query(
            self, int64_t correlation_id, int32_t response_stream_id, int32_t version, int64_t log_position,
            str response_channel, bytes encoded_credentials, Image image) except -1:
        return self._on_backup_request(
            BackupQuery(self.backups, log_position), correlation_id, response_stream_id, version, response_channel,
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
        if self._elections.election is None and self._status.state in (STATE_ACTIVE, STATE_SUSPENDED, STATE_SNAPSHOT):
            channel = self._egress_channel(response_channel, response_stream_id, correlation_id)
            if channel is not None:
                self.sessions.on_action_request(
                    request, correlation_id, response_stream_id, version, channel, encoded_credentials, image)
        return 0

    cdef int on_consensus_challenge_response(
            self, int64_t correlation_id, int64_t cluster_session_id, bytes encoded_credentials) except -1:
        return self.sessions.on_challenge_response(correlation_id, cluster_session_id, encoded_credentials, False)

    def _count_standby_snapshot(self):
        self._counters.standby_snapshots.increment()

    # Events of the log

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

    cdef int on_replay_timer_event(self, int64_t correlation_id, int64_t timestamp) except -1:
        # One with a later deadline the service has scheduled since the leader appended this. Upstream takes it from
        # followers, which may lead later, and the next one after a cancel, which has left nothing to expire here.
        if not self._timers.expire(correlation_id, timestamp):
            self._expired_timers[correlation_id] = self._expired_timers.get(correlation_id, (0, 0))[0] + 1, timestamp
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
        if leadership_term_id != self._status.leadership_term_id:
            return 0
        if action == CLUSTER_ACTION_SUSPEND:
            self._status.set_state(STATE_SUSPENDED, "the log")
        elif action == CLUSTER_ACTION_RESUME:
            self._status.set_state(STATE_ACTIVE, "the log")
        elif action == CLUSTER_ACTION_SNAPSHOT and flags == ACTION_FLAGS_DEFAULT:
            self._snapshots.await_services(log_position, self._clock.nano_time(), "the log")
        return 0

    cdef int on_replay_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t time_unit, int32_t app_version) except -1:
        self._check_version(time_unit, app_version)
        self._status.set_leadership_term(leadership_term_id)
        if self._elections.election is not None:
            self._elections.election.on_replay_new_leadership_term_event(
                leadership_term_id, log_position, term_base_log_position)
        return 0

    cdef int on_failed_log(self, object error) except -1:
        """A message of the log cannot be decoded or applied."""
        self._on_error(error)
        self._termination.terminate(False, f"the log cannot be applied: {message_of(error)}")
        return 0

    cdef int _check_version(self, int32_t time_unit, int32_t app_version) except -1:
        """End this member where it may not continue the log, or follow its leader."""
        try:
            check_compatible(self.context, time_unit, app_version, "log")
        except Exception as error:              # of a validator of the user's as well: this event does not come again
            self._on_error(error)
            self._termination.terminate(False, message_of(error))
        return 0

    # Contents of a snapshot

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

    # The end

    cdef int _report_end(self, object error) except -1:
        if not getattr(error, "is_expected", False):
            self._on_error(error)
        return 0

    cdef str _kind(self):
        return "consensus module"

    cdef int _end(self) except -1:
        for closable in (self._start, self._elections, self._snapshots, self._upkeep, self._ingress):
            self._attempt(closable.close)
        self._attempt(self._tell_clients)       # without ingress: who connects again waits for the next start
        self._attempt(self._log_adapter_leave)
        if self._status.role != LEADER:         # a leader's log ends with its publication; this one's leader continues
            self._attempt(self._recording.ask_to_stop)
        for closable in (self.log_publisher, *self._streams()):
            self._attempt(closable.close)
        self._attempt(self._close_sessions)
        self._attempt(self._remove_listeners)
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
        if self._status.role == LEADER and self.members.count() == 1:       # else clients follow the next leader
            self.sessions.tell_of_the_end(self._status.leadership_term_id)

    def _close_sessions(self):
        self.sessions.close()

    def _remove_listeners(self):
        self._services.unwatch(self._client)
        self._recording.unwatch(self._client)

    def _show_closed(self):
        self._status.set_state(STATE_CLOSED, "closed")


seal((ConsensusModuleAgent,))
