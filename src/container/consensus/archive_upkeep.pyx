"""A member's requests to its archive besides the cluster's work: one after the other.

It validates the recording log when a tool asks for that, and removes what is no longer needed.
"""
from libc.stdint cimport INT64_MAX, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.common.error_texts import message_of
from container.common.log_events import log_event
from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport LEADER, MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.recording_log_validator import validate_recording_log
from container.consensus.retention import needed_log_position, outdated, remove_log, remove_snapshots
from container.consensus.steps cimport is_done
from container.errors import ArchiveError
from container.transport.transport_seam cimport Client

cdef enum:
    NS_PER_MS = 1_000_000
    NULL_POSITION = -1

cdef int64_t RETENTION_INTERVAL_NS = 60_000_000_000     # between two looks while somebody needs what would go


cdef class ArchiveUpkeep:
    """Validation of the recording log, and retention of snapshots and log.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        members: of the cluster (ClusterMembers).
        status, recording, termination: of this member.
        backups: what backups were answered (BackupAnswers).
    """

    def __init__(self, context, AsyncArchive archive not None, ClusterMembers members not None,
                 MemberStatus status not None, LogRecording recording not None,
                 MemberTermination termination not None, backups):
        cdef Client client = context.client
        self._name, self._on_error, self._clock = context.name, context.counted_error_handler, client.clock
        self._counters, self._recording_log = context.counters, context.recording_log
        self._archive, self._members, self._status = archive, members, status
        self._recording, self._termination, self._backups = recording, termination, backups
        self._service_count = context.settings.service_count
        self._retained_count = context.settings.snapshots_retained
        self._due_ns = INT64_MAX

    cdef int look_soon(self) except -1:
        """Look in a moment for what is no longer needed, if it is wanted that it goes."""
        if self._retained_count > 0:
            self._due_ns = self._clock.nano_time()
        return 0

    cdef int poll(self, bint may_begin, int64_t now_ns) except -1:
        """Continue, or begin if ``may_begin``; how much was done."""
        if self._work is None:
            if not may_begin:
                return 0
            if self.is_validation_wanted:
                self.is_validation_wanted = False
                self._work = validate_recording_log(self._archive, self._recording_log)
            elif now_ns >= self._due_ns:
                self._due_ns = INT64_MAX
                self._work = self._retain()
            else:
                return 0
        if is_done(self._work, self._on_failure):
            self._work = None
        return 1

    def _on_failure(self, error):
        self._on_error(error)
        self._termination.check_archive(error)

    def _retain(self):
        cdef int64_t log_position
        kept, hold = self._retained_count, None
        found = outdated(self._recording_log.entries, kept, self._service_count)
        if found.log_position == NULL_POSITION:
            return
        self._due_ns = self._clock.nano_time() + RETENTION_INTERVAL_NS      # unless all of it goes now
        snapshot_count, segment_count = 0, 0
        log_start = self._counters.retained_log_position.get()
        try:
            snapshot_count = yield from remove_snapshots(self._archive, self._recording_log, found)
            log_position, hold = needed_log_position(
                found.log_position, is_leader=self._status.role == LEADER,
                leadership_term_id=self._status.leadership_term_id, others=self._members.others(),
                backup_position=self._backups.log_position)
            segment_count, log_start = yield from remove_log(self._archive, self._recording.recording_id, log_position)
        except ArchiveError as error:
            if not self._archive.is_alive():
                raise
            hold = message_of(error)
        self._counters.retained_log_position.set(log_start)
        if hold is None:
            self._due_ns = INT64_MAX
        elif hold != self._hold:
            log_event(self._name, "retention_held", reason=hold, retry_ms=RETENTION_INTERVAL_NS // NS_PER_MS)
        self._hold = hold
        if snapshot_count or segment_count:
            log_event(
                self._name, "retention_applied", snapshots_retained=kept, recordings_deleted=snapshot_count,
                segments_deleted=segment_count, log_start_position=log_start, log_position=found.log_position)

    cpdef int close(self) except -1:
        """Give up what is in progress."""
        if self._work is not None:
            self._work.close()
            self._work = None
        return 0


seal((ArchiveUpkeep,))
