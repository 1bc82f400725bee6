"""Snapshots of a member: taken when the log says so and all services have taken theirs, and loaded at a start.

Before a leader asks for one in the log, its archive must agree to have space for it: services end where it has none.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.common.channel_uri import add_session_id
from container.common.error_texts import message_of
from container.common.log_events import log_event
from container.common.sealed cimport seal
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.compatibility import check_compatible
from container.consensus.consensus_counters cimport TOGGLE_NEUTRAL
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.consensus.member_status cimport LEADER, STATE_ACTIVE, STATE_SNAPSHOT, MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.pending_service_messages cimport PendingServiceMessageTracker
from container.consensus.session_manager cimport SessionManager
from container.consensus.snapshot_messages cimport SnapshotAdapter, snapshot_messages
from container.consensus.steps cimport Deadline, ReplayImage, check, is_done
from container.consensus.steps import begin_replay, record_snapshot, try_recording
from container.consensus.timer_service cimport TimerService
from container.errors import ArchiveError, ClusterError, ClusterEvent, CodecError, SnapshotError
from container.transport.frames cimport NULL_VALUE

cdef enum:
    NS_PER_MS = 1_000_000
    CONSENSUS_MODULE_SERVICE_ID = -1


cdef class MemberSnapshots:
    """The snapshots of this member, one at a time.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        status, sessions, timers, termination, upkeep: of this member.
        trackers: PendingServiceMessageTracker of each service (list).
    """

    def __init__(self, context, AsyncArchive archive not None, MemberStatus status not None,
                 SessionManager sessions not None, TimerService timers not None, list trackers not None,
                 MemberTermination termination not None, ArchiveUpkeep upkeep not None):
        self._context, self._settings, self._on_error = context, context.settings, context.counted_error_handler
        self._client, self._counters, self._cluster_clock = context.client, context.counters, context.cluster_clock
        self._clock, self._recording_log = self._client.clock, context.recording_log
        self._archive, self._status, self._sessions, self._timers = archive, status, sessions, timers
        self._trackers, self._termination, self._upkeep = trackers, termination, upkeep
        self._deadline = Deadline(self._clock, self._settings.leader_heartbeat_timeout_ns)

    cdef bint is_awaiting_services(self) noexcept:
        """Whether services are to take a snapshot, and have not all acknowledged that."""
        return self._status.state == STATE_SNAPSHOT and self._taking is None

    cdef bint is_asking_for_space(self) noexcept:
        """Whether it asks the archive, or has asked for a snapshot that is not in the log yet."""
        return self._space_check is not None or self.has_space

    cdef int ask_for_space(self) except -1:
        """Ask the archive, where that has not begun; ``has_space`` once it has agreed."""
        if self._space_check is None:
            self._space_check = self._check_space()
        return 0

    cdef int await_services(self, int64_t log_position, int64_t now_ns, str reason) except -1:
        """The log asks for a snapshot at a position: services are to take theirs."""
        self.log_position = log_position
        self.has_space = False                  # the next one asks again
        self._status.set_state(STATE_SNAPSHOT, reason)
        self._counters.snapshot_duration.begin(now_ns)
        return 0

    cdef int take(self, int64_t timestamp, list acks) except -1:
        """All services have acknowledged (ServiceAck of each): take this member's own part."""
        failed = [ack.service_id for ack in acks if ack.relevant_id == NULL_VALUE]
        for service_id in failed:
            self._on_error(ClusterEvent(f"service={service_id} failed to take snapshot"))
        if failed:
            self.failure = f"service {', '.join(map(str, failed))} failed to take it"
            return self._end()
        self._taking = self._take(self.log_position, timestamp, acks)
        return 0

    cdef bint poll(self) except -1:
        """Continue taking the snapshot; return whether that has ended now."""
        if self._taking is None or not is_done(self._taking, self._on_failure):
            return False
        self._taking = None
        self._end()
        return True

    cdef bint poll_space(self) except -1:
        """Continue asking for space; return whether the archive has answered now."""
        if self._space_check is None or not is_done(self._space_check, self._refuse):
            return False
        self._space_check = None
        return True

    cdef int give_up(self) except -1:
        """Leave the snapshot that is being taken: the other members may have theirs."""
        if self._taking is not None:
            self._taking.close()
            self._taking = None
            self._status.set_state(STATE_ACTIVE, "snapshot given up")
        return 0

    cdef int give_up_space(self) except -1:
        """Ask the archive no more, and forget that it has agreed."""
        if self._space_check is not None:
            self._space_check.close()
            self._space_check = None
        self.has_space = False
        return 0

    cdef int forget_failure(self) except -1:
        self.failure = None
        return 0

    cpdef int close(self) except -1:
        """Give up what is in progress."""
        try:
            if self._taking is not None:
                self._taking.close()
        finally:
            self.give_up_space()
        return 0

    def load(self, snapshot, ConsensusEventHandler handler not None):
        """Load one (RecordingLogEntry), which ``handler`` is given; SnapshotError where that cannot be."""
        cdef SnapshotAdapter adapter
        try:
            adapter = yield from self._read(snapshot, handler)
        except (ArchiveError, ClusterError, CodecError) as error:
            raise SnapshotError(
                f"cannot load the consensus module's snapshot at logPosition={snapshot.log_position}, recording "
                f"{snapshot.recording_id}: {message_of(error)}; if the recording is damaged, `aeron-cluster "
                "invalidate-latest-snapshot` has the node start from the snapshot before it") from error
        check_compatible(self._context, adapter.time_unit, adapter.app_version, "snapshot")
        self._timers.set_current_time(self._cluster_clock.time())
        self._counters.commit_position.set(snapshot.log_position)
        self._status.set_leadership_term(snapshot.leadership_term_id)

    def _read(self, snapshot, ConsensusEventHandler handler):
        cdef PendingServiceMessageTracker tracker
        cdef ReplayImage replay
        cdef SnapshotAdapter adapter
        settings = self._settings
        replay = yield from begin_replay(
            self._archive, self._client, self._deadline, recording_id=snapshot.recording_id, position=0, length=-1,
            channel=settings.replay_channel, stream_id=settings.replay_stream_id)
        try:
            adapter = SnapshotAdapter(replay.image, handler)
            while not adapter.is_done:
                if adapter.poll() == 0:
                    self._archive.poll()
                    check(replay.request)
                    yield
        finally:
            replay.subscription.close()
            self._archive.forget(replay.request)
        for tracker in self._trackers:
            tracker.verify()
            tracker.reset()
        return adapter

    def _check_space(self):
        # Once a snapshot is in the log, services take it, and end where the archive has no space for it.
        yield from try_recording(
            self._archive, channel=add_session_id(
                self._settings.snapshot_channel, <int32_t> self._client.next_correlation_id()),
            stream_id=self._settings.snapshot_stream_id)
        self.has_space = True

    def _refuse(self, error):
        """Leave the cluster as it is: no snapshot is in the log."""
        self._fail(message_of(error))
        self._on_error(ClusterError(
            f"no snapshot is taken, and the cluster continues: {message_of(error)}; repair the cause, such as too "
            "little space on the archive's disk, then ask again; `abort` ends a node without a snapshot"))
        self._termination.check_archive(error)
        self._counters.control_toggle.set(TOGGLE_NEUTRAL)

    def _fail(self, str text):
        self.failure = text
        log_event(
            self._context.name, "snapshot_failed", leadership_term_id=self._status.leadership_term_id, reason=text)

    def _take(self, int64_t log_position, int64_t timestamp, list acks):
        cdef int64_t begin_ns = self._clock.nano_time()
        settings, log = self._settings, self._recording_log
        term_id = self._status.leadership_term_id
        for tracker in self._trackers:
            missed = tracker.missed_messages()
            if missed is not None:
                self._on_error(missed)
        messages = snapshot_messages(
            self._sessions, self._timers, self._trackers, log_position, term_id, self._cluster_clock.time_unit,
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
            self._context.name, "snapshot_taken", log_position=log_position, leadership_term_id=term_id,
            recording_id=recording_id, bytes=length, duration_ms=(self._clock.nano_time() - begin_ns) // NS_PER_MS)

    def _on_failure(self, error):
        self._on_error(error)
        self._on_error(ClusterEvent(f"failed to take snapshot: {message_of(error)}"))
        self._fail(message_of(error))
        self._termination.check_archive(error)  # no space for a snapshot does not end it while the log has some

    cdef int _end(self) except -1:
        self._sessions.refresh_activity()
        if self._termination.is_begun():
            return self._termination.tell_services_after_snapshot()
        self._status.set_state(STATE_ACTIVE, "snapshot complete")
        self._upkeep.look_soon()
        if self._status.role == LEADER:
            self._counters.control_toggle.set(TOGGLE_NEUTRAL)
        return 0


seal((MemberSnapshots,))
