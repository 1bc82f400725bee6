"""The elections of a member: begun, taken on, and all that they ask of it (container.consensus.election_host).

Other modules do what an election asks for; this one connects them: the leader's side in ``leader_log``, the follower's
in ``follower_log`` and ``log_following``, the roll-back in ``term_preparation``, the replay in ``member_log_replay``.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.common.error_texts import message_of
from container.common.log_events import log_event
from container.common.sealed cimport seal
from container.consensus import channels, terms
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.consensus_counters cimport TOGGLE_NEUTRAL, TOGGLE_SUSPEND
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.election import Election, Failures
from container.consensus.election_host import ElectionState
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.follower_log cimport FollowerLog
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.leader_log cimport LeaderLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_following cimport LogFollowing
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.log_replication import MemberLogReplication
from container.consensus.log_truncation cimport LogTruncation
from container.consensus.member_log_replay import MemberLogReplay
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport (
    FOLLOWER, LEADER, STATE_ACTIVE, STATE_SNAPSHOT, STATE_SUSPENDED, MemberStatus,
)
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.consensus.session_manager cimport SessionManager
from container.consensus.term_announcer cimport TermAnnouncer
from container.consensus.term_preparation cimport TermPreparation
from container.consensus.timer_service cimport TimerService
from container.errors import ClusterEvent
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef enum:
    NS_PER_MS = 1_000_000
    NULL_POSITION = -1


cdef int64_t MOST_TERMS_AHEAD = terms.MOST_TERMS_AHEAD


cdef class MemberElectionHost:
    """Begins elections, and does what they ask for.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        members: of the cluster (ClusterMembers).
        publisher, announcer: what it says to them (ConsensusPublisher, TermAnnouncer).
        status, sessions, timers, ingress, log_adapter, log_publisher, recording, commit, leader_log, follower_log,
            following, catchups, joins, snapshots, termination, upkeep: of this member.
    """

    def __init__(self, context, AsyncArchive archive not None, ClusterMembers members not None,
                 ConsensusPublisher publisher not None, TermAnnouncer announcer not None, MemberStatus status not None,
                 SessionManager sessions not None, TimerService timers not None,
                 IngressAdapter ingress not None, LogAdapter log_adapter not None, LogPublisher log_publisher not None,
                 LogRecording recording not None, LogCommit commit not None, LeaderLog leader_log not None,
                 FollowerLog follower_log not None, LogFollowing following not None, FollowerCatchups catchups not None,
                 ServiceJoins joins not None, MemberSnapshots snapshots not None,
                 MemberTermination termination not None, ArchiveUpkeep upkeep not None):
        cdef Client client = context.client
        settings = context.settings
        self._context, self._settings, self._on_error = context, settings, context.counted_error_handler
        self._recording_log, self._node_state = context.recording_log, context.node_state_file
        self._clock, self._cluster_clock, self._counters = client.clock, context.cluster_clock, context.counters
        self._archive, self._members, self._status, self._sessions = archive, members, status, sessions
        self._timers, self._ingress, self._log_adapter = timers, ingress, log_adapter
        self._log_publisher, self._recording, self._commit = log_publisher, recording, commit
        self._leader_log, self._joins, self._snapshots = leader_log, joins, snapshots
        self._termination, self._upkeep = termination, upkeep
        self._publisher, self._announcer, self._follower_log = publisher, announcer, follower_log
        self._following, self._catchups = following, catchups
        self._preparation = TermPreparation(
            context, status, sessions, ingress, log_adapter, recording, commit, leader_log, follower_log, catchups,
            snapshots, upkeep)
        self._truncation = LogTruncation(context, archive, joins.await_replay_joined)
        self._heartbeat_interval_ns = settings.leader_heartbeat_interval_ns
        self._heartbeat_timeout_ns = settings.leader_heartbeat_timeout_ns
        self._failures = Failures(settings.leader_heartbeat_timeout_ns)
        self._failure_limit_ns = settings.driver_timeout_ms * <int64_t> NS_PER_MS

    # For the agent

    cdef bint can_enter(self) except -1:
        """Whether the log may end here: not while services take a snapshot that is committed, or terminate."""
        return self._status.state == STATE_ACTIVE or self._status.state == STATE_SUSPENDED or (
            self._status.state == STATE_SNAPSHOT and self._commit.has_uncommitted_state())

    cdef int enter(self, bint is_log_end_of_stream, str reason) except -1:
        """Begin an election of a member that has worked in a term; ``is_log_end_of_stream``: the leader has closed."""
        # Where the recording has stopped, this member still has what it was seen to have: leaders counted on that.
        cdef int64_t append_position = max(
            <int64_t> self._recording.plan.appended_log_position, self._recording.position(),
            self._recording.seen_position)
        cdef int64_t now_ns, pause_ns
        self._status.set_role(FOLLOWER)
        entry = self._recording_log.find_term_entry(self._status.leadership_term_id)
        base = self._recording.plan.last_term_base_log_position if entry is None else entry.term_base_log_position
        event = ClusterEvent(reason)
        now_ns = self._clock.nano_time()
        pause_ns = self._failures.add(now_ns, event)
        self._on_error(event)
        self._check_failures(now_ns, reason)
        return self._begin(
            False, self._status.leader.id if is_log_end_of_stream else NULL_VALUE, self._status.leadership_term_id,
            base, append_position, pause_ns)

    cdef int begin_at_start(self) except -1:
        """Begin the election of a member that has started, as its recovery plan says."""
        plan = self._recording.plan
        return self._begin(
            True, NULL_VALUE, plan.last_leadership_term_id, plan.last_term_base_log_position,
            plan.appended_log_position, 0)

    cdef int _begin(
            self, bint is_node_startup, int32_t graceful_closed_leader_id, int64_t leadership_term_id,
            int64_t term_base_log_position, int64_t append_position, int64_t pause_ns) except -1:
        self._counters.election_count.increment()
        self.election = Election(
            self, self._settings, self._members, is_node_startup=is_node_startup,
            graceful_closed_leader_id=graceful_closed_leader_id, leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position, log_position=self._counters.commit_position.get(),
            append_position=append_position, failures=self._failures, pause_ns=pause_ns)
        return 0

    cdef int do_work(self, int64_t now_ns) except -1:
        """Take the election that is in progress on; how much was done."""
        cdef int work_count = 1
        cdef object election = self.election
        try:
            work_count = election.do_work(now_ns)
        except Exception as error:
            election.handle_error(now_ns, error)
            self._check_failures(now_ns, message_of(error))
        return work_count

    def hear(self, handler, *message):
        """Hand a message to the election that is in progress, by its handler of that (callable)."""
        cdef int64_t now_ns
        cdef object election = self.election
        try:
            handler(election, *message)
        except Exception as error:
            now_ns = self._clock.nano_time()
            election.handle_error(now_ns, error)
            self._check_failures(now_ns, message_of(error))

    cdef int note_leader(self, int64_t leadership_term_id) except -1:
        """A leader of a term was heard of: none, where this member's is newer, or that term cannot be."""
        cdef int64_t term_id = self._status.leadership_term_id
        if term_id <= leadership_term_id <= term_id + MOST_TERMS_AHEAD:
            self.time_of_last_leader_update_ns = self._clock.nano_time()
        return 0

    cdef int forget_failures(self, int64_t now_ns) except -1:
        """Elections before this term no longer count once it has gone well for a while."""
        if self._failures.since_ns is not None and now_ns - self._in_term_since_ns >= self._heartbeat_timeout_ns:
            self._failures.forget()
        return 0

    def on_recording_signal(self, event):
        """The archive's signal of a recording (RecordingSignalEvent), for the election that is in progress."""
        if self.election is not None:
            self.election.on_recording_signal(
                event.correlation_id, event.recording_id, event.position, int(event.signal))

    cpdef int close(self) except -1:
        """Give up what is in progress."""
        try:
            if self.election is not None:
                self.election.close()
            self._preparation.close()
            self._truncation.close()
            self._joins.close()
        finally:
            self._leader_log.close_join()
            self._leader_log.close_publishing()
            self._follower_log.close()
        return 0

    cdef int _check_failures(self, int64_t now_ns, str reason) except -1:
        """End a member without others that has failed to lead for too long: whoever supervises it starts it again."""
        cdef object since_ns = self._failures.since_ns
        if since_ns is not None and self._members.count() == 1 and now_ns - <int64_t> since_ns >= (
                self._failure_limit_ns):
            self._termination.terminate(
                False, f"it has not led for {self._failure_limit_ns / 1e9:g} s: {reason}")
        return 0

    # For the election: ElectionHost

    @property
    def role(self):
        """Its role (int), of container.api.Role."""
        return self._status.role

    def set_role(self, int role):
        """Take a role."""
        self._status.set_role(role)

    def set_election_state(self, int state, str reason):
        """Show a state of the election."""
        self.awaits = f"the election to end: its state is {ElectionState(state).name}"
        log_event(
            self._context.name, "election_state", state=ElectionState(state).name, reason=reason or "in order",
            leadership_term_id=self._status.leadership_term_id)
        self._counters.election_state.set(state)

    def now_ns(self):
        """The monotonic clock (int)."""
        return self._clock.nano_time()

    def random(self):
        """A number from 0 to below 1 (float)."""
        return self._context.random.random()

    def report(self, error):
        """Count and record an error."""
        self._on_error(error)

    def commit_position(self):
        """Up to where the log is committed (int)."""
        return self._counters.commit_position.get()

    def is_taking_snapshot(self):
        """Whether its state is SNAPSHOT (bool)."""
        return self._status.state == STATE_SNAPSHOT

    def candidate_term_id(self):
        """The highest term that it voted for or stood for (int), from its disk."""
        return self._node_state.candidate_term_id

    def update_candidate_term_id(self, int64_t candidate_term_id, int64_t log_position):
        """Stand for a term: it is on the disk when this returns."""
        self._node_state.update_candidate_term_id(candidate_term_id, log_position, self._clock.epoch_ms())

    def propose_max_candidate_term_id(self, int64_t candidate_term_id, int64_t log_position):
        """Raise that term, and return it (int)."""
        return self._node_state.propose_max_candidate_term_id(candidate_term_id, log_position, self._clock.epoch_ms())

    def end_of_term(self, int64_t leadership_term_id):
        """Where an older term ends in this member's log (int); 0 for one that it does not know, or that is open."""
        return self._recording.end_of_term(leadership_term_id)

    def ensure_term(self, int64_t initial_leadership_term_id, int64_t initial_term_base_log_position,
                    int64_t leadership_term_id, int64_t term_base_log_position, int64_t log_position):
        """Have a term in the recording log, and its end where that is known."""
        if self._recording.recording_id != NULL_VALUE:
            self._recording_log.ensure_coherent(
                recording_id=self._recording.recording_id, initial_log_leadership_term_id=initial_leadership_term_id,
                initial_term_base_log_position=initial_term_base_log_position, leadership_term_id=leadership_term_id,
                term_base_log_position=term_base_log_position, log_position=log_position,
                timestamp=self._cluster_clock.time())

    def base_of_term(self, int64_t leadership_term_id):
        """Where a term begins in this member's log (int); -1 for one that it does not know."""
        entry = self._recording_log.find_term_entry(leadership_term_id)
        return NULL_POSITION if entry is None else entry.term_base_log_position

    def base_after_term(self, int64_t leadership_term_id):
        """Where the next term begins that the recording log has after one (int); -1 for none."""
        entry = self._recording_log.find_term_after(leadership_term_id)
        return NULL_POSITION if entry is None else entry.term_base_log_position

    def first_empty_term(self, int64_t leadership_term_id):
        """The first of the terms (int) up to one that is there, that begin where it does."""
        return self._recording_log.find_first_empty_term(leadership_term_id)

    def last_filled_term(self, int64_t leadership_term_id):
        """The last term (int) before that one that begins before it, and ends where it begins; -1 for none."""
        entry = self._recording_log.find_last_filled_term(leadership_term_id, self.base_of_term(leadership_term_id))
        return NULL_VALUE if entry is None else entry.leadership_term_id

    def is_left_out(self, int64_t leadership_term_id):
        """Whether the recording log leaves out the term (bool) before that one and the empty ones where it begins."""
        return self._recording_log.is_left_out(leadership_term_id, self.base_of_term(leadership_term_id))

    def drop_empty_terms(self, int64_t first_term_id):
        """Take the last terms out of the recording log, from one on; the term before them (int), -1 for none."""
        cdef int64_t term_id = self._recording_log.drop_last_terms(first_term_id)
        # This member may have followed such a leader already. Messages from now on are of the term before: its actions
        # count.
        if term_id < self._status.leadership_term_id:
            self._status.set_leadership_term(term_id)
        return term_id

    def set_log_recording_id(self, int64_t recording_id):
        """Note which recording is the log's."""
        if recording_id != NULL_VALUE:
            self._recording.set_recording_id(recording_id)

    def begin_preparation(self, int64_t log_position):
        """Undo what the last term has left open; :meth:`poll_preparation` looks after it."""
        self._preparation.begin(log_position)

    def poll_preparation(self):
        """The append position (int) once it is done, -1 without a log; None: not yet."""
        return self._preparation.poll()

    def begin_log_publication(self, int64_t append_position):
        """Ask for a publication that continues the log there; :meth:`poll_log_publication` looks after it."""
        self._leader_log.begin_publication(append_position)

    def poll_log_publication(self):
        """Its session id (int) once it is there; None: not yet."""
        return self._leader_log.poll_publication()

    def begin_join_as_leader(
            self, int64_t leadership_term_id, int64_t log_position, int32_t log_session_id, bint is_startup):
        """Record the log publication and have the services join it; :meth:`poll_join_as_leader` looks after it."""
        self._status.set_leadership_term(leadership_term_id)
        self._leader_log.begin_join(log_position, log_session_id, is_startup)

    def poll_join_as_leader(self):
        """Whether all services have joined (bool)."""
        return self._leader_log.poll_join()

    def append_new_leadership_term_event(self, int64_t leadership_term_id, int64_t log_position):
        """Append the first message of the term; whether the log took it (bool)."""
        return self._log_publisher.append_new_leadership_term_event(
            leadership_term_id, self._cluster_clock.time(), log_position,
            self._settings.cluster_member_id, self._log_publisher.session_id(), self._cluster_clock.time_unit,
            self._settings.app_version) > 0

    def update_leader_position(self, int64_t now_ns, int64_t quorum_position):
        """Commit the log up to a position; how much was done (int)."""
        return self._commit.update(now_ns, quorum_position)

    def new_log_replay(self, int64_t log_position, int64_t stop_position):
        """Replay the member's own recording of the log (MemberLogReplay)."""
        return MemberLogReplay(
            self._context, self._archive, self._status, self._recording, self._log_adapter, self._snapshots,
            self._joins, log_position, stop_position)

    def new_log_replication(
            self, ClusterMember leader, int64_t leader_recording_id, int64_t stop_position, int64_t now_ns):
        """Copy the leader's recording of the log, up to a position (MemberLogReplication)."""
        return MemberLogReplication(
            self._context, self._archive, self._recording.recording_id, leader, leader_recording_id, stop_position)

    def begin_truncation(self, int64_t log_leadership_term_id, int64_t log_position):
        """Cut the log off at a position; :meth:`poll_truncation` looks after it."""
        self._truncation.begin(self._recording.recording_id, log_leadership_term_id, log_position)

    def poll_truncation(self):
        """Whether it is cut off, and the recording log says so (bool)."""
        return self._truncation.poll()

    def add_log_subscription(self, int32_t log_session_id, bint is_catchup):
        """Ask for a subscription of the leader's log."""
        self._follower_log.begin_subscription(log_session_id, is_catchup)

    def log_join_position(self):
        """Where the image of the leader's log joined (int); None: not yet."""
        return self._follower_log.join_position()

    def begin_join_as_follower(self, bint is_leader_startup):
        """Record that image and have the services join it; :meth:`poll_join_as_follower` looks after it."""
        self._sessions.follow()
        self._following.begin(
            self._clock.nano_time(), self._follower_log.join_position(), self.election.notified_commit_position)
        self._follower_log.begin_join(is_leader_startup, self.election.is_term_open)

    def poll_join_as_follower(self):
        """Whether the log is recorded and all services have joined (bool)."""
        return self._follower_log.poll_join()

    def recorded_position(self):
        """How far the log is recorded that this member joins (int); -1 where it is not."""
        return self._recording.position()

    def send_catchup_position(self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position):
        """Ask the leader to replay its log from a position on; whether that was sent (bool)."""
        return self._publisher.catchup_position(
            leader, leadership_term_id, log_position, self._follower_log.catchup_endpoint())

    def poll_catchup(self, ClusterMember leader, int64_t leadership_term_id, int64_t limit_position):
        """Read the log up to a limit, and say how far it is recorded; how much was done (int)."""
        return self._following.poll_catchup(
            leader, leadership_term_id, limit_position, self._clock.nano_time()) + self._snapshots.poll()

    def is_catchup_near_live(self, int64_t position):
        """Whether what was read is near a position (bool)."""
        return self._follower_log.is_near_live(position)

    def add_live_log_destination(self):
        """Receive the live log as well."""
        self._follower_log.add_live_destination()

    def is_catching_up(self):
        """Whether the leader has not said yet that the live log reaches this member (bool)."""
        return self._follower_log.is_catching_up()

    def track_catchup_completion(self, ClusterMember member, int64_t leadership_term_id, int flags):
        """As leader: end the replay for a member that has caught up."""
        if self._status.role == LEADER:
            self._catchups.complete(member, leadership_term_id, flags)

    def request_vote(self, ClusterMember member, int64_t log_leadership_term_id, int64_t append_position,
                     int64_t candidate_term_id):
        """Ask for a vote; whether that was sent (bool)."""
        return self._publisher.request_vote(member, log_leadership_term_id, append_position, candidate_term_id)

    def place_vote(self, ClusterMember candidate, int64_t candidate_term_id, int64_t log_leadership_term_id,
                   int64_t append_position, bint vote):
        """Send a vote."""
        self._publisher.place_vote(candidate, candidate_term_id, log_leadership_term_id, append_position, vote)

    def publish_new_leadership_term(
            self, ClusterMember member, int64_t log_leadership_term_id, int64_t leadership_term_id,
            int64_t append_position, int64_t commit_position, int32_t log_session_id, bint is_startup):
        """Say to a member that this one leads."""
        self._announcer.announce(
            member, log_leadership_term_id, leadership_term_id, append_position, append_position, commit_position,
            log_session_id, is_startup, True)

    def send_append_position(
            self, ClusterMember leader, int64_t leadership_term_id, int64_t append_position, int flags):
        """Say to the leader how far the log is recorded; whether that was sent (bool)."""
        return self._publisher.append_position(leader, leadership_term_id, append_position, flags)

    def publish_commit_position(self, int64_t commit_position, int64_t leadership_term_id):
        """Send the commit position to all other members."""
        self._commit.publish(leadership_term_id, commit_position)

    def publish_canvass_position(
            self, int64_t log_leadership_term_id, int64_t append_position, int64_t leadership_term_id):
        """Say to all other members how far the log is."""
        for member in self._members.others():
            self._publisher.canvass_position(member, log_leadership_term_id, append_position, leadership_term_id)

    def send_canvass_position(self, ClusterMember member, int64_t log_leadership_term_id, int64_t append_position,
                              int64_t leadership_term_id):
        """Say to one member how far the log is."""
        self._publisher.canvass_position(member, log_leadership_term_id, append_position, leadership_term_id)

    def election_complete(self, int64_t now_ns):
        """There is a leader: work begins."""
        election = self.election
        self._in_term_since_ns = now_ns
        self._status.set_leadership_term(election.leadership_term_id)
        if self._status.role == LEADER:
            self._commit.begin_term(now_ns - self._heartbeat_interval_ns)
            self._timers.set_current_time(self._cluster_clock.time())
            # Only from SUSPEND a tool gets to RESUME.
            self._counters.control_toggle.set(
                TOGGLE_SUSPEND if self._status.state == STATE_SUSPENDED else TOGGLE_NEUTRAL)
            self._sessions.prepare_for_new_term(election.is_leader_startup)
        else:
            self._following.begin(
                now_ns, election.log_position, max(election.notified_commit_position, election.log_position))
        self._counters.node_control_toggle.set(TOGGLE_NEUTRAL)
        self._counters.commit_position.set(election.log_position)
        self._status.leader = election.leader
        self._members.set_leader(self._status.leader.id)
        self._ingress.connect(channels.ingress_subscription_channels(
            self._settings.ingress_channel, self._members.this_member.ingress_endpoint,
            is_leader=self._status.role == LEADER, is_ipc_allowed=self._settings.is_ipc_ingress_allowed))
        self.election = None
        self._upkeep.look_soon()


seal((MemberElectionHost,))
