"""How a member ends: with its cluster, once services and members have terminated, or because it cannot continue."""
from libc.stdint cimport int64_t

from container.common.error_texts import message_of
from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_services cimport MemberServices
from container.consensus.member_status cimport LEADER, STATE_CLOSED, STATE_TERMINATING, MemberStatus
from container.errors import ClusterTermination, PublicationUnavailableError
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef enum:
    NULL_POSITION = -1


cdef class MemberTermination:
    """The end of this member, from the moment that one is asked for. A member that ends raises ClusterTermination.

    Args:
        context: concluded (ConsensusModuleContext).
        members: of the cluster (ClusterMembers).
        publisher: says it to the other members (ConsensusPublisher).
        status, services, recording: of this member.
    """

    def __init__(self, context, ClusterMembers members not None, ConsensusPublisher publisher not None,
                 MemberStatus status not None, MemberServices services not None, LogRecording recording not None):
        cdef Client client = context.client
        self._on_error, self._recording_log = context.counted_error_handler, context.recording_log
        self._clock, self._timeout_ns = client.clock, context.settings.termination_timeout_ns
        self._members, self._status, self._services, self._recording = members, status, services, recording
        self._publisher, self._untold = publisher, []
        self._log_position = self._followed_position = NULL_POSITION
        self._followed_term_id = NULL_VALUE

    cdef bint is_begun(self) noexcept:
        """Whether this leader has begun one."""
        return self._deadline_ns is not None

    cdef int begin(self, int64_t now_ns, int64_t log_position) except -1:
        """Begin one, as leader; :meth:`tell_services` follows, after a snapshot or immediately."""
        self._log_position = log_position
        self._deadline_ns = now_ns + self._timeout_ns
        self._is_awaiting_services = True
        return 0

    cdef int forget(self) except -1:
        """Take back what :meth:`begin` began: it is not in the log."""
        self._deadline_ns = None
        self._log_position = NULL_POSITION
        return 0

    cdef int tell_services(self, str reason) except -1:
        """Have services and members terminate, and wait for that from now on."""
        cdef ClusterMember member
        self._status.set_state(STATE_TERMINATING, reason)
        self._is_sent = False
        self._untold = self._members.others()
        for member in self._untold:
            member.has_terminated = False
        return self._send()

    cdef int tell_services_after_snapshot(self) except -1:
        """The same where a snapshot came before: members have as long again."""
        self._deadline_ns = self._clock.nano_time() + self._timeout_ns
        return self.tell_services("snapshot complete")

    cdef int poll(self, int64_t now_ns) except -1:
        """Take a turn of the leader whose state is TERMINATING."""
        self._send()
        if self._can_terminate(now_ns):
            self._end_at(self._log_position, "the cluster terminates")
        return 0

    cdef int on_ack(self, ClusterMember member, int64_t leadership_term_id, int64_t log_position) except -1:
        """A follower says that it ends; nothing where this member has not asked for that."""
        if (self._status.role == LEADER and self._deadline_ns is not None and log_position >= self._log_position
                and leadership_term_id == self._status.leadership_term_id):
            member.has_terminated = True
        return 0

    cdef int on_position(self, int64_t log_position) except -1:
        """The leader of the term says where this follower is to end.

        It holds in that term alone, different from upstream: the log of the next one need not have what was there.
        """
        self._followed_position = log_position
        self._followed_term_id = self._status.leadership_term_id
        return 0

    cdef bint is_followed(self) noexcept:
        """Whether the leader of the term has said so."""
        return self._followed_position != NULL_POSITION and (
            self._followed_term_id == self._status.leadership_term_id)

    cdef bint is_reached(self, int64_t log_position) noexcept:
        """Whether the log was read up to there."""
        return self.is_followed() and log_position >= self._followed_position

    cdef int follow(self) except -1:
        """End as the leader said: have the services terminate first."""
        self._log_position = self._followed_position
        self._status.set_state(STATE_TERMINATING, f"terminationPosition={self._followed_position}")
        self._is_sent = False
        return self._send()

    cdef int poll_follower(self) except -1:
        """Take a turn of a follower whose state is TERMINATING."""
        return self._send()

    cdef int on_terminated_services(self, int64_t log_position) except -1:
        """All services have terminated."""
        self._is_awaiting_services = False
        if self._deadline_ns is not None:
            if not self._can_terminate(self._clock.nano_time()):
                return 0
        elif self._status.role != LEADER and self._members.count() > 1:
            self._publisher.termination_ack(self._status.leader, self._status.leadership_term_id, log_position)
        return self._end_at(log_position, "services have terminated")

    cdef int check_archive(self, object error) except -1:
        """End the member whose archive is gone, or cannot write the log any more, whatever else it was asked for."""
        if self._recording.has_failed(error):
            self.terminate(False, message_of(error))
        return 0

    cdef int terminate(self, bint is_expected, str reason) except -1:
        """End this member."""
        if not is_expected:
            try:
                self._services.proxy.termination_position(0, True)
            except Exception as error:
                self._on_error(error)
        self._recording.forget()
        self._status.set_state(STATE_CLOSED, reason)
        raise ClusterTermination(is_expected=is_expected, reason="" if is_expected else reason)

    cdef int _send(self) except -1:
        if not self._is_sent:
            try:
                self._is_sent = self._services.proxy.termination_position(self._log_position, True)
            except PublicationUnavailableError as error:
                self._is_sent = True            # nobody is there to be told
                self._on_error(error)
        if self._untold:
            self._untold = [member for member in self._untold if not self._publisher.termination_position(
                member, self._status.leadership_term_id, self._log_position)]
        return 0

    cdef bint _can_terminate(self, int64_t now_ns) except -1:
        cdef ClusterMember member
        if self._is_awaiting_services:
            return False
        if now_ns >= <int64_t> self._deadline_ns:
            return True
        for member in self._members.members:
            if not (member.is_leader or member.has_terminated):
                return False
        return True

    cdef int _end_at(self, int64_t log_position, str reason) except -1:
        """End this member where its services have ended. The next start finds the end without the recording log too."""
        cdef bint is_noted = True
        try:
            self._recording_log.commit_log_position(self._status.leadership_term_id, log_position)
            self._recording_log.force()
        except OSError as error:                # another try in each turn would do no better
            is_noted = False
            self._on_error(error)
        return self.terminate(is_noted, reason)


seal((MemberTermination,))
