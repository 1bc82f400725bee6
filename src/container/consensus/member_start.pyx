"""The start of a member: it finds its log, loads its last snapshot, waits for its services, and begins an election."""
from libc.stdint cimport int32_t, int64_t

from container.archive import error_codes
from container.archive.client cimport recording_counters
from container.archive.client.async_archive cimport AsyncArchive
from container.common.aeron_defaults import CounterType
from container.common.error_texts import message_of
from container.common.log_events import log_event
from container.common.sealed cimport seal
from container.consensus.consensus_counters cimport recovery_state_key, recovery_state_label
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_election_host cimport MemberElectionHost
from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport STATE_ACTIVE, STATE_CLOSED, MemberStatus
from container.consensus.standby_copies import StandbyCopies
from container.consensus.steps import added, connected
from container.consensus.steps cimport Deadline
from container.errors import AgentTermination, ArchiveError
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport NULL_VALUE

cdef enum:
    NS_PER_MS = 1_000_000

RECOVERY_STATE_TYPE_ID = int(CounterType.RECOVERY_STATE)


cdef class MemberStart:
    """Starts this member, in turns.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        status, services, recording, snapshots, elections: of this member.
        handler: what a snapshot is loaded into (ConsensusEventHandler).
    """

    def __init__(self, context, AsyncArchive archive not None, MemberStatus status not None,
                 MemberServices services not None, LogRecording recording not None, MemberSnapshots snapshots not None,
                 MemberElectionHost elections not None, ConsensusEventHandler handler not None):
        self._context, self._client, self._counters = context, context.client, context.counters
        self._archive, self._status, self._services, self._recording = archive, status, services, recording
        self._snapshots, self._elections, self._handler = snapshots, elections, handler
        self.awaits = "the archive to answer"
        self._work = self._start()

    cdef bint is_in_progress(self) noexcept:
        return self._work is not None

    cdef int do_work(self) except -1:
        """Take a turn; how much was done. A start that fails ends the agent."""
        cdef int work_count = 0
        try:
            next(self._work)
        except StopIteration:
            self._work = None
            work_count = 1
        except Exception as error:
            self._context.counted_error_handler(error)
            self._status.set_state(STATE_CLOSED, "failed to start")
            self._work = None
            raise AgentTermination(f"the consensus module cannot start: {message_of(error)}") from error
        return work_count

    cpdef int close(self) except -1:
        """Give it up."""
        if self._work is not None:
            self._work.close()
        return 0

    def _start(self):
        cdef Counter counter
        cdef int64_t begin_ns = self._client.clock.nano_time()
        cluster_id = self._context.settings.cluster_id
        yield from connected(self._archive)
        recording_id = self._context.recording_log.find_last_term_recording_id()
        if recording_id != NULL_VALUE:
            try:
                yield from self._recording.stop(recording_id)
            except ArchiveError as error:       # that it has none is said better by the plan
                if error.code != error_codes.UNKNOWN_RECORDING:
                    raise
        yield from self._context.log_orphans.remove(
            self._archive, Deadline(self._client.clock, self._context.settings.leader_heartbeat_timeout_ns))
        plan = yield from self._recording.make_plan(NULL_VALUE)
        if plan.log is not None and self._context.recording_log.mend(plan.log.stop_position):
            plan = yield from self._recording.make_plan(NULL_VALUE)
        if plan.log is not None and (yield from self._copy_standby_snapshot(plan.log.stop_position)):
            plan = yield from self._recording.make_plan(NULL_VALUE)
        if plan.log is not None:
            self._recording.set_recording_id(plan.log.recording_id)
        term_id, position, timestamp, recording_ids = NULL_VALUE, 0, 0, []
        if plan.snapshots:
            snapshot = plan.snapshots[0]
            term_id, position, timestamp = snapshot.leadership_term_id, snapshot.log_position, snapshot.timestamp
            recording_ids = [each.recording_id for each in plan.snapshots[1:]]
        counter = yield from added(self._client.begin_add_counter(
            RECOVERY_STATE_TYPE_ID, recovery_state_key(term_id, position, timestamp, cluster_id, recording_ids),
            recovery_state_label(term_id, position, cluster_id)))
        try:
            if plan.snapshots:
                yield from self._snapshots.load(plan.snapshots[0], self._handler)
            self.awaits = "the services to start"
            yield from self._services.await_started(position)
        finally:
            counter.close()
        log_event(
            self._context.name, "recovered",
            snapshot_recording_id=plan.snapshots[0].recording_id if plan.snapshots else NULL_VALUE,
            log_position=position, leadership_term_id=term_id, cluster_time=timestamp,
            append_position=plan.appended_log_position,
            duration_ms=(self._client.clock.nano_time() - begin_ns) // NS_PER_MS)
        self._elections.begin_at_start()
        self._status.set_state(STATE_ACTIVE, "started")

    def _copy_standby_snapshot(self, int64_t log_end):
        """Copy the latest snapshot of a standby, where it is later than the own; whether one was copied (bool)."""
        self.awaits = "the archive to copy the snapshot of a standby"
        copied = yield from StandbyCopies(
            self._context, self._archive, self._find_position, self._new_session_id).run(log_end)
        self.awaits = "the archive to answer"
        if copied is not None:
            self._counters.snapshot_count.increment()
            log_event(
                self._context.name, "standby_snapshot_copied", leadership_term_id=copied.leadership_term_id,
                log_position=copied.log_position)
        return copied is not None

    def _new_session_id(self):
        return <int32_t> self._client.next_correlation_id()

    def _find_position(self, int64_t recording_id):
        """How far an active recording of the archive is (int), None where it is not active."""
        cdef Counters counters = self._client.counters()
        cdef int32_t counter_id = recording_counters.find_by_recording(
            counters, recording_id, self._archive.archive_id)
        return None if counter_id == recording_counters.NULL_COUNTER_ID else counters.value(counter_id)


seal((MemberStart,))
