"""The end of the log that another leader's log does not have is cut off. Upstream: Election.java (truncateLogEntry).

First the archive cuts the recording, then the recording log says so. A crash in between leaves terms that reach behind
the end of the recording; the next start mends them (:meth:`RecordingLog.mend`). In the opposite order, a member might
lead with the part to cut off, and begin its term before it.
"""
from libc.stdint cimport int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.common.sealed cimport seal
from container.consensus.steps cimport Deadline
from container.consensus.steps import without_replays
from container.transport.transport_seam cimport Client


cdef class LogTruncation:
    """Cuts the log of a member off.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        await_replay_joined: makes a generator that waits for services that are to join a replay of the log (callable).
    """

    def __init__(self, context, AsyncArchive archive not None, await_replay_joined not None):
        cdef Client client = context.client
        self._archive, self._recording_log = archive, context.recording_log
        self._await_replay_joined = await_replay_joined
        self._deadline = Deadline(client.clock, context.settings.leader_heartbeat_timeout_ns)

    cpdef int begin(self, int64_t recording_id, int64_t leadership_term_id, int64_t log_position) except -1:
        """Cut a recording of the log, which has stopped, off at a position; :meth:`poll` looks after it.

        ``leadership_term_id`` is the log's last term, which ends there then.
        """
        self.close()
        self._work = self._truncate(recording_id, leadership_term_id, log_position)
        return 0

    cpdef bint poll(self) except -1:
        """Whether it is cut off and the recording log says so. Raises what archive and disk report."""
        if self._work is not None:
            try:
                next(self._work)
            except StopIteration:
                self._work = None
        return self._work is None

    cpdef int close(self) except -1:
        """Give it up."""
        if self._work is not None:
            self._work.close()
            self._work = None
        return 0

    def _truncate(self, int64_t recording_id, int64_t leadership_term_id, int64_t log_position):
        yield from self._await_replay_joined()
        yield from without_replays(
            self._archive, self._deadline, recording_id,
            lambda: self._archive.truncate_recording(recording_id, log_position))
        self._recording_log.end_terms(leadership_term_id, log_position)


seal((LogTruncation,))
