"""A replay of a member's own recording of the log, for its services and for itself. Upstream: LogReplay.java."""
from libc.stdint cimport int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.common.error_texts import message_of
from container.common.sealed cimport seal
from container.consensus import channels
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport (
    FOLLOWER, STATE_ACTIVE, STATE_INIT, STATE_SNAPSHOT, STATE_SUSPENDED, MemberStatus,
)
from container.consensus.service_joins cimport ServiceJoins
from container.consensus.steps cimport Deadline, ReplayImage, check
from container.consensus.steps import begin_replay
from container.errors import ArchiveError, ClusterError, ClusterEvent


cdef class MemberLogReplay:
    """A replay from one position of the log to another: container.consensus.election_host.LogReplay.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        status, recording, log_adapter, snapshots, joins: of this member.
        log_position, stop_position: from where to where (int).
    """

    def __init__(self, context, AsyncArchive archive not None, MemberStatus status not None,
                 LogRecording recording not None, LogAdapter log_adapter not None, MemberSnapshots snapshots not None,
                 ServiceJoins joins not None, int64_t log_position, int64_t stop_position):
        self._settings, self._on_error = context.settings, context.counted_error_handler
        self._client, self._counters, self._archive = context.client, context.counters, archive
        self._status, self._recording, self._log_adapter = status, recording, log_adapter
        self._snapshots, self._joins, self._stop_position = snapshots, joins, stop_position
        self._deadline = Deadline(self._client.clock, self._settings.leader_heartbeat_timeout_ns)
        self._begin = self._join(log_position)

    def do_work(self):
        """Take a turn; how much was done (int)."""
        cdef int work_count = 0
        try:
            if self._replay is not None:
                check(self._replay.request)
            if self._begin is None:
                work_count = self._poll()
            else:
                next(self._begin)
        except StopIteration:
            self._begin = None
            work_count = 1
        except ArchiveError as error:
            raise ClusterError(
                f"the log cannot be replayed up to {self._stop_position}: {message_of(error)}; this member tries "
                "again. If its recording is damaged, take the archive's and the cluster's directories from a backup, "
                "or, beside members that have the log from 0 on, let this one begin with empty directories") from error
        return work_count

    def is_done(self):
        """Whether services and consensus module are at its end (bool)."""
        return (self._begin is None and self._log_adapter.position() >= self._stop_position
                and self._status.state != STATE_SNAPSHOT)

    def position(self):
        """How far it has come (int)."""
        return self._log_adapter.position()

    def close(self):
        """End it, once services that were asked to join it have done so."""
        if self._begin is not None:
            self._begin.close()
        self._log_adapter.leave()
        if self._replay is not None:
            if self._begin is not None and self._joins.is_awaited(self._replay.image.session_id):
                self._joins.keep(self._end_replay, True)
            else:
                self._end_replay()

    def _end_replay(self):
        cdef ReplayImage replay = self._replay
        self._replay = None
        if replay is not None:
            try:
                self._archive.stop_replay(replay.replay_session_id)
            except ArchiveError as error:
                self._on_error(error)
            self._archive.forget(replay.request)
            replay.subscription.close()

    def _join(self, int64_t log_position):
        settings = self._settings
        self._replay = yield from begin_replay(
            self._archive, self._client, self._deadline, recording_id=self._recording.recording_id,
            position=log_position, length=self._stop_position - log_position,
            channel=channels.log_replay_channel(settings.replay_channel), stream_id=settings.replay_stream_id)
        self._log_adapter.join(self._replay.image, self._replay.subscription)
        yield from self._joins.join(
            log_position, self._stop_position, self._replay.image.session_id, settings.replay_stream_id, True, FOLLOWER,
            self._replay.subscription.channel, self._replay.image)

    cdef int _poll(self) except -1:
        """Read it, and let the services read as far."""
        cdef int work_count = 0
        cdef int64_t position
        if self._status.state in (STATE_ACTIVE, STATE_SUSPENDED, STATE_INIT):
            self._log_adapter.poll(self._stop_position)
            position = self._log_adapter.position()
            if position > self._counters.commit_position.get():
                self._counters.commit_position.propose_max(position)
                work_count += 1
            elif self._log_adapter.is_image_closed() and position < self._stop_position:
                raise ClusterEvent(f"unexpected image close when replaying log: position={position}")
        return work_count + self._snapshots.poll()


seal((MemberLogReplay,))
