"""A copy of what the leader has recorded of the log: by the archive, from the leader's archive into the own recording.

Upstream: RecordingReplication.java, ConsensusModuleAgent.java (newLogReplication). Unlike upstream's

- the counter of the recording is looked for until it is there;
- an error of the archive ends the copy at once, and not when it has made no progress for long;
- where the recording has ended is asked of the archive, whichever signals came;
- a copy that is closed before the archive has answered is stopped once it has.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.client cimport recording_counters
from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.archive_events import RecordingSignal
from container.archive.client.async_archive cimport AsyncArchive
from container.archive.client.recording_counters cimport NULL_COUNTER_ID
from container.common.error_texts import message_of
from container.common.sealed cimport seal
from container.consensus import channels
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.steps cimport Deadline, check
from container.consensus.steps import stopped
from container.errors import ArchiveError, ClusterError
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef enum:
    NULL_POSITION = -1

cdef int REPLICATE_END = RecordingSignal.REPLICATE_END


cdef class MemberLogReplication:
    """A copy of the leader's log up to a position: container.consensus.election_host.LogReplication.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: the member's (AsyncArchive).
        recording_id: id of the recording of the member's log to extend; -1: make a new recording (int).
        leader: the member whose log is copied (ClusterMember).
        leader_recording_id: id of the log's recording in the leader's archive (int).
        stop_position: where the copy ends (int).
    """

    def __init__(self, context, AsyncArchive archive not None, int64_t recording_id, ClusterMember leader not None,
                 int64_t leader_recording_id, int64_t stop_position):
        cdef Client client = context.client
        self._settings, self._on_error = context.settings, context.counted_error_handler
        self._orphans = context.log_orphans
        self._clock, self._counters, self._archive = client.clock, client.counters(), archive
        self._deadline = Deadline(self._clock, self._settings.leader_heartbeat_timeout_ns)
        self._leader_id, self._stop_position = leader.id, stop_position
        self.recording_id, self.position = recording_id, NULL_POSITION
        self._counter_id = NULL_COUNTER_ID
        self._work = self._copy(leader, leader_recording_id, <int32_t> client.next_correlation_id())

    def do_work(self, int64_t now_ns):
        """Take a turn; how much was done (int). Raises ClusterError when it fails, TimedOutError without progress."""
        cdef int64_t before = self.position
        try:
            next(self._work)
        except StopIteration:
            pass
        except ArchiveError as error:
            raise ClusterError(
                f"the log of member {self._leader_id} cannot be copied: {message_of(error)}") from error
        return self.is_done or self.position != before

    def on_signal(self, int64_t correlation_id, int64_t recording_id, int64_t position, int signal):
        """A signal of the archive about a recording."""
        if self._request is None or not self._request.is_done or self._request.relevant_id != correlation_id:
            return
        if recording_id != NULL_VALUE:
            self.recording_id = recording_id
        if signal == REPLICATE_END:
            self._has_ended = True

    def close(self):
        """End it."""
        cdef ArchiveRequest request = self._request
        self._work.close()
        self._request = None
        if request is None:
            return
        if request.is_done:
            self._stop(request)
        else:
            request.on_done = self._stop

    def _stop(self, ArchiveRequest request):
        self._archive.forget(request)
        if request.error is None and not self._has_ended:
            try:
                self._archive.stop_replication(request.relevant_id)
            except ArchiveError as error:
                self._on_error(error)

    def _copy(self, ClusterMember leader, int64_t leader_recording_id, int32_t session_id):
        cdef ArchiveRequest request
        cdef int64_t look_ns
        settings = self._settings
        if self.recording_id == NULL_VALUE:
            yield from self._orphans.remove(self._archive, self._deadline)
        self._orphans.note_log(session_id)
        channel, response_channel = channels.replication_channels(
            settings.replication_channel, leader.archive_response_endpoint)
        request = self._request = self._archive.replicate(
            leader_recording_id, self.recording_id,
            channels.destination(settings.leader_archive_control_channel, leader.archive_endpoint),
            settings.archive_control_stream_id, self._stop_position, channel, session_id, response_channel)
        self._archive.follow(request)
        while not request.is_done:              # closed meanwhile it is not forgotten: it has to be stopped
            self._archive.poll()
            if not request.is_done:
                yield
        look_ns = self._begin_progress()
        while not self._has_ended:
            check(request)
            if self._clock.nano_time() >= look_ns:
                look_ns = self._clock.nano_time() + <int64_t> settings.leader_heartbeat_interval_ns
                self._look()
            self._deadline.check()
            yield
        check(request)
        if self.recording_id == NULL_VALUE:
            raise ClusterError(f"the copy of the log of member {self._leader_id} has ended before it has begun")
        self.position = yield from stopped(self._archive, self._deadline, self.recording_id)
        self.is_done = True

    cdef int64_t _begin_progress(self) except -1:
        self._deadline.begin(
            f"the log of member {self._leader_id} to be copied up to {self._stop_position}: it is at {self.position}")
        return self._clock.nano_time()

    cdef int _look(self) except -1:
        """See how far it is."""
        cdef int64_t position
        if self._counter_id == NULL_COUNTER_ID and self.recording_id != NULL_VALUE:
            self._counter_id = recording_counters.find_by_recording(
                self._counters, self.recording_id, self._archive.archive_id)
        if self._counter_id == NULL_COUNTER_ID:
            return 0
        position = self._counters.value(self._counter_id)
        # Ids are reused: it is this recording's only if it still is after its value was read.
        if recording_counters.recording_id_of(self._counters, self._counter_id) != self.recording_id:
            self._counter_id = NULL_COUNTER_ID
        elif position > self.position:
            self.position = position
            self._begin_progress()
        return 0


seal((MemberLogReplication,))
