"""The log of a term that this member leads: its publication, its recording, and that services join it."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from container.common.error_texts import message_of
from container.common.sealed cimport seal
from container.consensus import channels
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport LEADER
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.errors import ArchiveError
from container.transport.streams cimport Publication


cdef class LeaderLog:
    """Begins the log of a term.

    Args:
        context: concluded (ConsensusModuleContext).
        publisher: what appends to the publication (LogPublisher), which stays its owner's to close.
        recording, joins, termination: of this member.
    """

    def __init__(self, context, LogPublisher publisher not None, LogRecording recording not None,
                 ServiceJoins joins not None, MemberTermination termination not None):
        self._settings, self._on_error = context.settings, context.counted_error_handler
        self._client, self._publisher, self._recording = context.client, publisher, recording
        self._joins, self._termination = joins, termination

    cdef int begin_publication(self, int64_t append_position, str log_endpoint, Py_ssize_t member_count) except -1:
        """Ask for a publication that continues the recording of the log, which ends at ``append_position``."""
        settings = self._settings
        self._channel_tag = self._client.next_correlation_id()
        channel = channels.log_publication_channel(
            settings.log_channel, channel_tag=self._channel_tag, publication_tag=self._client.next_correlation_id(),
            append_position=append_position, log=self._recording.plan.log, log_endpoint=log_endpoint,
            member_count=member_count, is_control_enabled=settings.is_log_control_enabled)
        self._pending_publication = self._client.begin_add_publication(channel, settings.log_stream_id, True)
        return 0

    cdef object poll_publication(self):
        """Its session id (int) once it is there; None: not yet."""
        cdef Publication publication
        if self._pending_publication is None:
            return None if self._publisher.publication is None else self._publisher.publication.session_id
        publication = self._pending_publication.poll()
        if publication is None:
            return None
        self._pending_publication = None
        self._publisher.set_publication(publication)
        return publication.session_id

    cdef int begin_join(self, int64_t log_position, int32_t session_id, bint is_startup) except -1:
        """Record the publication, and have the services join it where the term begins."""
        self._join = self._record_and_join(log_position, session_id, is_startup)
        return 0

    cdef bint poll_join(self) except -1:
        """Whether all services have joined."""
        try:
            next(self._join)
        except StopIteration:
            self._join = None
        return self._join is None

    cdef bint is_joining(self) noexcept:
        """Whether a join has begun, and has not ended well."""
        return self._join is not None

    cpdef int close_join(self) except -1:
        """Give a join up."""
        if self._join is not None:
            self._join.close()
            self._join = None
        return 0

    def _record_and_join(self, int64_t log_position, int32_t session_id, bint is_startup):
        settings = self._settings
        try:
            yield from self._recording.start(
                channel=channels.log_recording_channel(settings.log_channel, self._channel_tag, session_id),
                stream_id=settings.log_stream_id, session_id=session_id, is_local=True)
        except ArchiveError as error:
            if error.code == ArchiveError.STORAGE_SPACE:
                self._on_error(error)
                self._termination.terminate(False, message_of(error))
            raise
        yield from self._joins.join(
            log_position, INT64_MAX, session_id, settings.log_stream_id, is_startup, LEADER,
            channels.local_log_channel(settings.log_channel, self._channel_tag, session_id))


seal((LeaderLog,))
