"""The agent of a backup: its client, its mark file, and the state machine in turns. Upstream: ClusterBackupAgent.java.

Upstream ends when its archive is lost, or has no room. This one begins again once there is one, or room.
"""
from libc.stdint cimport INT64_MIN, int64_t

from container.agent.agent cimport Agent
from container.common.directories import removed_text
from container.common.sealed cimport seal
from container.errors import AgentTermination, MarkFileError
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport Client

cdef enum:
    MARK_FILE_INTERVAL_MS = 1_000


cdef class ClusterBackupAgent(Agent):
    """The agent of a backup; it copies until :meth:`close`.

    Args:
        context: concluded (container.backup.backup_context.ClusterBackupContext): settings, client, counters, files,
            the state machine; it stays the owner of all that it has.

    One thread calls it, and it never waits.
    """
    cdef object _context
    cdef object _machine
    cdef Client _client
    cdef Clock _clock
    cdef int64_t _beat_ms
    cdef int64_t _mark_file_ms

    def __init__(self, context):
        self._context, self._machine, self._client = context, context.machine, context.client
        self._on_error, self._clock = context.counted_error_handler, context.clock
        self._beat_ms, self._mark_file_ms = INT64_MIN, -MARK_FILE_INTERVAL_MS

    cdef int _work(self) except? -1:
        cdef int64_t now_ms = self._clock.epoch_ms()
        cdef int work_count = 0
        if now_ms != self._beat_ms:
            self._beat_ms = now_ms
            work_count = self._invoke_client()
            if not 0 <= now_ms - self._mark_file_ms < MARK_FILE_INTERVAL_MS:     # the clock may be set back
                self._mark_file_ms = now_ms
                self._show_activity(now_ms)
        if self._client.is_closed():
            raise AgentTermination(f"unexpected Aeron close: {getattr(self._client, 'close_reason', None)}")
        return work_count + <int> self._machine.do_work()

    cdef int _invoke_client(self) except? -1:
        try:
            return self._client.invoke()
        except Exception as error:              # a handler of the client's errors may raise, or the driver is gone
            self._on_error(error)
        return 0

    cdef int _show_activity(self, int64_t now_ms) except -1:
        try:
            self._context.mark_file.update_activity_timestamp(now_ms)
            if not self._context.recording_log.is_in_place():
                raise MarkFileError(removed_text(self._context.recording_log.path))
        except MarkFileError as error:          # another backup, or a member, may write this one's files by now
            raise AgentTermination(str(error)) from None
        except OSError as error:
            self._on_error(error)
        return 0

    cdef int64_t _tick(self) noexcept:
        return self._beat_ms

    cdef int _end(self) except -1:
        try:
            self._machine.close()
        except BaseException as error:
            self._on_error(error)
        finally:
            self._context.release()
        return 0

    cdef str _kind(self):
        return "backup"


seal((ClusterBackupAgent,))
