"""The recording of the log in the member's archive: begun, stopped, followed by its counter, and planned with."""
from libc.stdint cimport int32_t, int64_t

from container.archive.client cimport recording_counters
from container.archive.client.async_archive cimport AsyncArchive
from container.archive.client.recording_counters cimport NULL_COUNTER_ID
from container.common.sealed cimport hide, seal
from container.consensus.recovery_plan import create_recovery_plan, needed_recording_id
from container.consensus.steps cimport ActiveRecording, Deadline, check
from container.consensus.steps import answer, start_recording, stopped
from container.errors import ArchiveError, ClusterEvent, RecordingError
from container.transport.frames cimport NULL_VALUE
from container.transport.streams cimport Image
from container.transport.transport_seam cimport Client, ClientListener

cdef enum:
    NULL_POSITION = -1


cdef class RecordingListener(ClientListener):
    """Remembers that the counter of the log's recording is gone."""

    def __cinit__(self):
        self.registration_id = NULL_VALUE

    cdef void on_unavailable_counter(self, int64_t registration_id, int32_t counter_id) noexcept nogil:
        if registration_id != NULL_VALUE and registration_id == self.registration_id:
            self.is_lost = True


cdef class LogRecording:
    """The recording of the log, or that there is none.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
    """

    def __init__(self, context, AsyncArchive archive not None):
        cdef Client client = context.client
        self._archive, self._recording_log = archive, context.recording_log
        self._service_count = context.settings.service_count
        self._counters = client.counters()
        self._deadline = Deadline(client.clock, context.settings.leader_heartbeat_timeout_ns)
        self._listener = RecordingListener.__new__(RecordingListener)
        self.recording_id = self._request_id = NULL_VALUE
        self._counter_id = NULL_COUNTER_ID
        self.seen_position = NULL_POSITION

    def watch(self, Client client not None):
        """Notice from now on when the recording's counter goes away, until :meth:`unwatch`."""
        client.add_listener(self._listener)

    def unwatch(self, Client client not None):
        """Notice no more."""
        client.remove_listener(self._listener)

    cdef int set_recording_id(self, int64_t recording_id) except -1:
        """Note which recording is the log's."""
        self.recording_id = recording_id
        return 0

    cdef int64_t position(self) noexcept:
        """How far the log is recorded; NULL_POSITION where it is not."""
        cdef int64_t position
        if self._counter_id == NULL_COUNTER_ID:
            return NULL_POSITION
        position = self._counters.value(self._counter_id)
        # Ids are reused: a member that stood still may not have heard yet that the counter is another's by now.
        if self._counters.registration_id(self._counter_id) != self._listener.registration_id:
            return NULL_POSITION
        self.seen_position = position
        return position

    cdef bint is_lost(self) noexcept:
        """Whether the counter has gone away since :meth:`reset`; the log has no recorded position then."""
        if self._listener.is_lost:
            self._counter_id = NULL_COUNTER_ID
        return self._listener.is_lost

    cdef bint has_failed(self, object error) except -1:
        """Whether an error says that the archive is gone, or cannot write the log any more."""
        return isinstance(error, ArchiveError) and (not self._archive.is_alive() or (
            self._request_id != NULL_VALUE and error.correlation_id == self._request_id))

    cdef bint is_plan_stale(self) except -1:
        """Whether the plan knows nothing of the recording of the log."""
        return self.recording_id != NULL_VALUE and (
            self.plan.log is None or self.plan.log.recording_id != self.recording_id)

    cdef int forget(self) except -1:
        """Follow it no more. It ends with the publication; this is for a log whose leader is somebody else, too."""
        self._counter_id = NULL_COUNTER_ID
        self._listener.registration_id = NULL_VALUE
        return 0

    cdef int reset(self) except -1:
        """Follow it no more, and forget how it has ended."""
        self.forget()
        self._request_id = NULL_VALUE
        self._listener.is_lost = False
        return 0

    def end_of_term(self, int64_t leadership_term_id):
        """Where an older term ends in this member's log (int); 0 for one that it does not know, or that is open."""
        entry = self._recording_log.find_term_entry(leadership_term_id)
        return 0 if entry is None else max(<int64_t> 0, <int64_t> entry.log_position)

    def start(self, *, str channel not None, int32_t stream_id, int32_t session_id, bint is_local, Image image=None):
        """Have the archive record a session of a stream as the log, which continues where its recording has ended.

        ``image`` is this member's own of a stream that is not published here: the recording begins where that has
        joined only while it is there. Raises ClusterEvent when it has gone: the recording is not the log then.
        """
        cdef ActiveRecording active
        active = yield from start_recording(
            self._archive, self._counters, self._deadline, channel=channel, stream_id=stream_id, session_id=session_id,
            extended_recording_id=self.recording_id, is_local=is_local)
        # An error that comes later is not this generator's: :meth:`has_failed` knows it.
        self._archive.forget(active.request)
        if image is not None and image.is_closed():
            raise ClusterEvent(f"the image of the leader's log has gone: sessionId={session_id}")
        self.recording_id, self._request_id = active.recording_id, active.request.correlation_id
        self._counter_id = active.counter_id
        self.seen_position = NULL_POSITION
        self._listener.registration_id = active.registration_id
        check(active.request)                   # for one that came before the counter was seen

    def stop(self, int64_t recording_id):
        """Stop a recording if it is active; return where it has ended (int)."""
        # The answer comes before the recording has ended.
        yield from answer(self._archive, self._archive.stop_recording_by_identity(recording_id))
        return (yield from stopped(self._archive, self._deadline, recording_id))

    def ask_to_stop(self):
        """Ask the archive to stop the recording, and wait for no answer: this member ends. ArchiveError: it cannot."""
        if self.recording_id != NULL_VALUE and self._archive.is_alive():
            self._archive.tell("StopRecordingByIdentityRequest", {"recording_id": self.recording_id})

    def await_stopped(self):
        """Wait, after :meth:`stop`, until its counter is gone as well."""
        while recording_counters.find_by_recording(
                self._counters, self.recording_id, self._archive.archive_id) != NULL_COUNTER_ID:
            self._deadline.check()
            yield

    def make_plan(self, int64_t replicated_recording_id):
        """Find the snapshot and log position from which a start continues; return the RecoveryPlan, also as ``plan``.

        Args:
            replicated_recording_id: the recording of the log, where that is known (int); -1: the recording log says it.
        """
        extent = None
        needed = needed_recording_id(self._recording_log, replicated_recording_id)
        if needed is not None:
            request = self._archive.list_recording(needed)
            yield from answer(self._archive, request)
            extent = request.items[0] if request.items else None
        plan = create_recovery_plan(self._recording_log, self._service_count, replicated_recording_id, extent)
        log, snapshots = plan.log, plan.snapshots
        if snapshots and log is not None and NULL_POSITION != log.stop_position < snapshots[0].log_position:
            raise RecordingError(
                f"the log ends at {log.stop_position}, before the snapshot at {snapshots[0].log_position}: a cut of "
                "the power or a failed disk took what was not forced, and what was acknowledged behind the log's end "
                "is in the snapshot alone; restore a backup, or have the node continue without that by `aeron-cluster "
                "invalidate-latest-snapshot`", file=self._recording_log.path)
        self.plan = plan
        return plan


hide((RecordingListener,))
seal((LogRecording,))
