"""The log of a term that this member leads: its publication, its recording, and that services join it.

Where the log goes to each follower on its own, the publication has a destination for each.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from container.common.error_texts import message_of
from container.common.sealed cimport seal
from container.consensus import channels
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport LEADER
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.consensus.steps import added
from container.errors import ArchiveError, ClusterEvent
from container.transport.streams cimport PendingAdd, Publication

cdef enum:
    ADD_INTERVAL_NS = 1_000_000_000         # after the driver has refused a destination


cdef class LeaderLog:
    """Begins the log of a term.

    Args:
        context: concluded (ConsensusModuleContext).
        members: of the cluster (ClusterMembers).
        publisher: what appends to the publication (LogPublisher), which stays its owner's to close.
        recording, joins, termination: of this member.
    """

    def __init__(self, context, ClusterMembers members not None, LogPublisher publisher not None,
                 LogRecording recording not None, ServiceJoins joins not None, MemberTermination termination not None):
        self._settings, self._on_error = context.settings, context.counted_error_handler
        self._client, self._publisher, self._recording = context.client, publisher, recording
        self._joins, self._termination, self._members = joins, termination, members
        self._pending, self._missing = {}, {}

    cdef int begin_publication(self, int64_t append_position) except -1:
        """Ask for a publication that continues the recording of the log, which ends at ``append_position``."""
        self.close_publishing()
        self._publishing = self._publish(append_position)
        return 0

    cdef object poll_publication(self):
        """Its session id (int) once it is there; None: not yet."""
        if self._publishing is not None:
            try:
                next(self._publishing)
            except StopIteration:
                self._publishing = None
        if self._publishing is not None or self._publisher.publication is None:
            return None
        return self._publisher.publication.session_id

    def _publish(self, int64_t append_position):
        cdef ClusterMember member
        settings = self._settings
        if self._recording.is_plan_stale():     # of a member that leads straight after it has copied the log
            yield from self._recording.make_plan(self._recording.recording_id)
        self._channel_tag = self._client.next_correlation_id()
        channel = channels.log_publication_channel(
            settings.log_channel, channel_tag=self._channel_tag, publication_tag=self._client.next_correlation_id(),
            append_position=append_position, log=self._recording.plan.log,
            log_endpoint=self._members.this_member.log_endpoint, member_count=self._members.count(),
            is_control_enabled=settings.is_log_control_enabled)
        publication = yield from added(self._client.begin_add_publication(channel, settings.log_stream_id, True))
        self._publisher.set_publication(publication)
        if channels.is_multi_destination(settings.log_channel):
            self._missing = {member: 0 for member in self._members.others()}

    cdef int poll_destinations(self, int64_t now_ns) except -1:
        """Add the destination of each follower; how much was done. One that the driver refuses is asked for again."""
        cdef Publication publication = self._publisher.publication
        cdef int work_count = 0
        if publication is None or not (self._missing or self._pending):
            return 0
        for member, due_ns in list(self._missing.items()):
            if now_ns >= due_ns:
                del self._missing[member]
                self._begin_destination(publication, member, now_ns)
        for member in list(self._pending):
            work_count += self._poll_destination(member, self._pending[member], now_ns)
        return work_count

    cdef int _begin_destination(self, Publication publication, ClusterMember member, int64_t now_ns) except -1:
        try:
            self._pending[member] = publication.begin_add_destination(
                channels.destination(self._settings.log_channel, member.log_endpoint))
        except Exception as error:
            self._try_later(member, error, now_ns)
        return 0

    cdef int _poll_destination(self, ClusterMember member, PendingAdd pending, int64_t now_ns) except -1:
        failure = None
        try:
            if pending.poll() is None:
                return 0
        except Exception as error:
            failure = error
        del self._pending[member]
        if failure is not None:
            self._try_later(member, failure, now_ns)
        return 1

    def _try_later(self, ClusterMember member, failure, int64_t now_ns):
        self._missing[member] = now_ns + ADD_INTERVAL_NS
        self._on_error(ClusterEvent(f"the log does not go to member {member.id} yet: {message_of(failure)}"))

    cpdef int close_publishing(self) except -1:
        """Forget what the driver was asked for; the publication stays its publisher's."""
        cdef PendingAdd pending
        cdef dict asked = self._pending
        self._pending, self._missing = {}, {}
        if self._publishing is not None:
            self._publishing.close()
            self._publishing = None
        for pending in asked.values():
            pending.close()
        return 0

    cdef int leave(self) except -1:
        """Publish no more. The publication closes once services that are to join it have done so."""
        cdef Publication publication = self._publisher.publication
        self.close_publishing()
        if publication is not None and self._joins.is_awaited(publication.session_id):
            self._joins.keep(self._publisher.release().close, False)
        else:
            self._publisher.close()
        return 0

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
            self._termination.check_archive(error)
            raise
        yield from self._joins.join(
            log_position, INT64_MAX, session_id, settings.log_stream_id, is_startup, LEADER,
            channels.local_log_channel(settings.log_channel, self._channel_tag, session_id), None)


seal((LeaderLog,))
