"""A member's messages to the others of its cluster, on a publication to each. Upstream: ConsensusPublisher.java.

A send tries up to three times and never waits. A message that was not sent then, such as one to a member that is absent
or does not read, is not sent later: the caller sends it again if it must arrive.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs.cluster cimport (
    APPEND_POSITION_ENCODED_LENGTH, BOOLEAN_FALSE, BOOLEAN_TRUE, CANVASS_POSITION_ENCODED_LENGTH, CLUSTER_SCHEMA_ID,
    CLUSTER_SCHEMA_VERSION, COMMIT_POSITION_ENCODED_LENGTH, NEW_LEADERSHIP_TERM_BLOCK_LENGTH,
    NEW_LEADERSHIP_TERM_ENCODED_LENGTH, NEW_LEADERSHIP_TERM_TEMPLATE_ID, REQUEST_VOTE_ENCODED_LENGTH,
    STOP_CATCHUP_ENCODED_LENGTH, TERMINATION_ACK_ENCODED_LENGTH, TERMINATION_POSITION_ENCODED_LENGTH,
    VOTE_ENCODED_LENGTH, append_position_encode, canvass_position_encode, catchup_position_encode,
    catchup_position_encoded_length, commit_position_encode, new_leadership_term_encode, request_vote_encode,
    stop_catchup_encode, termination_ack_encode, termination_position_encode, vote_encode,
)
from container.codecs.sbe cimport SBE_HEADER_LENGTH, sbe_put_header, sbe_put_int32
from container.common.sealed cimport seal
from container.consensus import channels, cluster_member
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.errors import ClusterEvent, RegistrationError
from container.transport.frames cimport CLOSED, MAX_POSITION_EXCEEDED
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication, publication_result_name

cdef enum:
    SEND_ATTEMPTS = 3
    MAX_LIST_LENGTH = 4096                  # of a list of members that is sent: far below any longest message
    ADD_INTERVAL_NS = 1_000_000_000         # after the driver has refused
    TERM_BLOCK_LENGTH = NEW_LEADERSHIP_TERM_BLOCK_LENGTH + 4        # with the protocol version behind upstream's fields
    TERM_LENGTH = SBE_HEADER_LENGTH + TERM_BLOCK_LENGTH

cdef int32_t PROTOCOL_VERSION = cluster_member.NATIVE_PROTOCOL_VERSION
cdef int32_t TEMPORARILY_UNAVAILABLE = RegistrationError.RESOURCE_TEMPORARILY_UNAVAILABLE


cdef class ConsensusPublisher:
    """The publications of one member to the others, and each message that it sends on them.

    Every message names this member as its sender, and a call returns whether it was sent now (bool): False without a
    member (None) or a publication to it, with nobody connected and under back pressure. A publication that is closed is
    reported and added again; :meth:`poll_adds` looks after that.

    Args:
        client: what publications are added to (Client).
        members: all, and which of them this one is (ClusterMembers); their ``consensus_channel`` and ``publication``
            are set here.
        channel: the setting ``consensus_channel`` (str).
        stream_id: of the consensus stream (int).
        is_control_enabled: whether a publication is bound to this member's host (bool).
        on_error: called with what is reported (an exception).
    """

    def __init__(self, Client client not None, ClusterMembers members not None, *, str channel not None,
                 int32_t stream_id, bint is_control_enabled, on_error):
        cdef ClusterMember member
        self._client = client
        self._on_error = on_error
        self._stream_id = stream_id
        self._member_id = members.this_member.id
        text = members.encode().encode("ascii", "replace")
        self._canvass = bytearray(CANVASS_POSITION_ENCODED_LENGTH)
        if len(text) <= MAX_LIST_LENGTH:        # not a reason to lose the message
            self._canvass += text
        self._others = members.others()
        self._pending = [None] * len(self._others)
        self._add_due_ns = [0] * len(self._others)
        self._missing_count = len(self._others)
        for member in self._others:
            member.publication = None
            member.consensus_channel = channels.consensus_publication_channel(
                channel, member, members.this_member, is_control_enabled=is_control_enabled)

    cpdef int poll_adds(self, int64_t now_ns) except -1:
        """Ask the driver for each publication that is missing, and look after the answers; how much was done (int).

        A publication that the driver refuses is reported, and asked for again a second later. ``now_ns`` (int) is of
        the monotonic clock.
        """
        cdef int index, work_count = 0
        if self._missing_count > 0:
            for index in range(len(self._others)):
                if (<ClusterMember> self._others[index]).publication is None:
                    work_count += self._poll_add(index, now_ns)
        return work_count

    cdef int _poll_add(self, int index, int64_t now_ns) except -1:
        cdef ClusterMember member = self._others[index]
        cdef PendingAdd pending = self._pending[index]
        cdef object failure = None
        try:
            if pending is not None:
                member.publication = pending.poll()
            elif now_ns >= <int64_t> self._add_due_ns[index]:
                self._pending[index] = self._client.begin_add_publication(
                    member.consensus_channel, self._stream_id, True)
        except Exception as error:
            self._pending[index] = None
            failure = error
        if member.publication is not None:
            self._pending[index] = None
            self._missing_count -= 1
            return 1
        # The driver removes its remains of the previous publication in a moment.
        if failure is not None and not (
                isinstance(failure, RegistrationError) and failure.code == TEMPORARILY_UNAVAILABLE):
            self._add_due_ns[index] = now_ns + ADD_INTERVAL_NS
            self._on_error(ClusterEvent(f"no consensus publication to member {member.id}: {failure}"))
        return 0

    cpdef int close(self) except -1:
        """Close the publications; may be called twice."""
        cdef ClusterMember member
        cdef list closables = [each for each in self._pending if each is not None]
        for member in self._others:
            if member.publication is not None:
                closables.append(member.publication)
                member.publication = None
        self._pending = [None] * len(self._others)
        self._missing_count = 0
        for closable in closables:
            try:
                closable.close()
            except Exception as error:
                self._on_error(error)
        return 0

    cpdef bint canvass_position(
            self, ClusterMember member, int64_t log_leadership_term_id, int64_t log_position,
            int64_t leadership_term_id) except -1:
        """CanvassPosition (50): without a leader, how far this member's log goes.

        Its list of members is behind all that upstream reads, as in ``cluster_members``: a native one says where its
        own differs.
        """
        canvass_position_encode(
            <uint8_t*> PyByteArray_AS_STRING(self._canvass), len(self._canvass), log_leadership_term_id, log_position,
            leadership_term_id, self._member_id, PROTOCOL_VERSION)
        return self._send(member, <const uint8_t*> PyByteArray_AS_STRING(self._canvass), len(self._canvass))

    cpdef bint request_vote(
            self, ClusterMember member, int64_t log_leadership_term_id, int64_t log_position,
            int64_t candidate_term_id) except -1:
        """RequestVote (51)."""
        cdef uint8_t message[REQUEST_VOTE_ENCODED_LENGTH]
        request_vote_encode(
            message, sizeof(message), log_leadership_term_id, log_position, candidate_term_id, self._member_id,
            PROTOCOL_VERSION)
        return self._send(member, message, sizeof(message))

    cpdef bint place_vote(
            self, ClusterMember candidate, int64_t candidate_term_id, int64_t log_leadership_term_id,
            int64_t log_position, bint vote) except -1:
        """Vote (52), for the candidate or against it."""
        cdef uint8_t message[VOTE_ENCODED_LENGTH]
        if candidate is None:
            return False
        vote_encode(
            message, sizeof(message), candidate_term_id, log_leadership_term_id, log_position, candidate.id,
            self._member_id, BOOLEAN_TRUE if vote else BOOLEAN_FALSE)
        return self._send(candidate, message, sizeof(message))

    cpdef bint new_leadership_term(
            self, ClusterMember member, int64_t log_leadership_term_id, int64_t next_leadership_term_id,
            int64_t next_term_base_log_position, int64_t next_log_position, int64_t leadership_term_id,
            int64_t term_base_log_position, int64_t log_position, int64_t commit_position, int64_t leader_recording_id,
            int64_t timestamp, int32_t log_session_id, int32_t app_version, bint is_startup) except -1:
        """NewLeadershipTerm (53): this member leads. Its protocol version is behind all that upstream reads."""
        cdef uint8_t message[TERM_LENGTH]
        new_leadership_term_encode(
            message, sizeof(message), log_leadership_term_id, next_leadership_term_id, next_term_base_log_position,
            next_log_position, leadership_term_id, term_base_log_position, log_position, leader_recording_id, timestamp,
            self._member_id, log_session_id, app_version, BOOLEAN_TRUE if is_startup else BOOLEAN_FALSE,
            commit_position)
        sbe_put_header(
            message, TERM_BLOCK_LENGTH, NEW_LEADERSHIP_TERM_TEMPLATE_ID, CLUSTER_SCHEMA_ID, CLUSTER_SCHEMA_VERSION)
        sbe_put_int32(message + NEW_LEADERSHIP_TERM_ENCODED_LENGTH, PROTOCOL_VERSION)
        return self._send(member, message, sizeof(message))

    cpdef bint append_position(
            self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position, int flags) except -1:
        """AppendPosition (54): how far this follower's log goes; flag 1 while it catches up."""
        cdef uint8_t message[APPEND_POSITION_ENCODED_LENGTH]
        append_position_encode(
            message, sizeof(message), leadership_term_id, log_position, self._member_id, <uint8_t> flags)
        return self._send(leader, message, sizeof(message))

    cpdef bint commit_position(
            self, ClusterMember member, int64_t leadership_term_id, int64_t log_position) except -1:
        """CommitPosition (55), the leader's heartbeat."""
        cdef uint8_t message[COMMIT_POSITION_ENCODED_LENGTH]
        commit_position_encode(message, sizeof(message), leadership_term_id, log_position, self._member_id)
        return self._send(member, message, sizeof(message))

    cpdef bint catchup_position(
            self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position, str catchup_endpoint
    ) except -1:
        """CatchupPosition (56): from where on, and to which ``host:port``, the leader is to replay its log.

        False, too, for an endpoint that nothing can be sent to, as while its port is 0.
        """
        cdef bytes endpoint, message
        cdef int64_t length
        if not channels.is_destination(catchup_endpoint):
            return False
        endpoint = catchup_endpoint.encode("ascii")
        length = catchup_position_encoded_length(<uint32_t> len(endpoint))
        message = PyBytes_FromStringAndSize(NULL, length)
        catchup_position_encode(
            <uint8_t*> PyBytes_AS_STRING(message), length, leadership_term_id, log_position, self._member_id, endpoint,
            <uint32_t> len(endpoint))
        return self._send(leader, <const uint8_t*> PyBytes_AS_STRING(message), length)

    cpdef bint stop_catchup(self, ClusterMember follower, int64_t leadership_term_id) except -1:
        """StopCatchup (57): the live log reaches the follower by now."""
        cdef uint8_t message[STOP_CATCHUP_ENCODED_LENGTH]
        if follower is None:
            return False
        stop_catchup_encode(message, sizeof(message), leadership_term_id, follower.id)
        return self._send(follower, message, sizeof(message))

    cpdef bint termination_position(
            self, ClusterMember member, int64_t leadership_term_id, int64_t log_position) except -1:
        """TerminationPosition (75): where the member is to end."""
        cdef uint8_t message[TERMINATION_POSITION_ENCODED_LENGTH]
        termination_position_encode(message, sizeof(message), leadership_term_id, log_position)
        return self._send(member, message, sizeof(message))

    cpdef bint termination_ack(self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position) except -1:
        """TerminationAck (76): this follower ends there."""
        cdef uint8_t message[TERMINATION_ACK_ENCODED_LENGTH]
        termination_ack_encode(message, sizeof(message), leadership_term_id, log_position, self._member_id)
        return self._send(leader, message, sizeof(message))

    cdef bint _send(self, ClusterMember member, const uint8_t* message, size_t length) except -1:
        cdef Publication publication = None if member is None else member.publication
        cdef int64_t result
        cdef int _attempt
        if publication is None:
            return False
        for _attempt in range(SEND_ATTEMPTS):
            result = publication.offer(message, length)
            if result > 0:
                return True
            if result == CLOSED or result == MAX_POSITION_EXCEEDED:
                member.publication = None
                self._missing_count += 1
                self._on_error(ClusterEvent(
                    f"consensus publication to member {member.id}: {publication_result_name(result)}: adding another"))
                publication.close()
                break
        return False


seal((ConsensusPublisher,))
