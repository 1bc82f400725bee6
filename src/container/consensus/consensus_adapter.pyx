"""The consensus stream in: messages of the other members, and requests of backups and standbys.

Upstream: ConsensusAdapter.java. Malformed and failing messages are reported and skipped: they must not disturb the
rest. So is one that says it is from no other member of this cluster, or is for another one; messages do not name their
cluster. A request whose sender is gone by now is not answered.

A sender of an older version leaves fields out, and any may leave them null. They count as upstream has it: no commit
position, no flags, no start-up, no vote for the candidate. A NewLeadershipTerm of upstream's has no protocol version:
-1.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.common.values import shown
from container.consensus import cluster_member
from container.consensus.channels import is_destination
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.errors import CodecError, ConfigurationError
from container.transport.decoding cimport bytes_of, check_codec, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_CONTINUE, NULL_VALUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    FRAGMENT_LIMIT = 10
    NULL_POSITION = -1
    NO_FLAGS = 0
    MAX_STANDBY_SNAPSHOT_LENGTH = 64 * 1024     # of the message: it is kept, also of who is not authenticated
    MAX_STANDBY_SNAPSHOTS = 64          # of a notification: more than one of each service and the consensus module
    MAX_LIST_LENGTH = 4096              # of a list of members that is compared
    MAX_OTHER_LISTS = 4                 # of one member that are reported
    VERSION_WITHOUT_PROTOCOL = 17       # up to here nothing of upstream's is where ours has the protocol version

cdef int32_t NATIVE_PROTOCOL_VERSION = cluster_member.NATIVE_PROTOCOL_VERSION


cdef class ConsensusAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with what comes on the consensus stream.

    Args:
        subscription: of that stream (Subscription); closed with this.
        handler: gets each message, on the thread that polls.
        members: from whom messages are taken, and which of them this one is (ClusterMembers).
    """

    def __init__(self, Subscription subscription not None, ConsensusEventHandler handler not None,
                 ClusterMembers members not None):
        self._subscription = subscription
        self._handler = handler
        self._members = members
        self._list = members.encode().encode("ascii", "replace")
        self._other_lists = {}
        self._assembler = SessionFragmentAssembler(self)

    cpdef int poll(self) except -1:
        """Hand on some messages; how many frames they came in (int)."""
        return self._subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cdef int forget_lost(self) except -1:
        return self._assembler.forget_lost(self._subscription)

    cpdef int close(self) except -1:
        """Close the subscription."""
        return self._subscription.close()

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef Image image
        cdef int template_id
        try:
            check_codec(sbe.sbe_read_header(buffer, length, &message), "message header")
            template_id = message.template_id
            if message.schema_id != codec.CLUSTER_SCHEMA_ID:
                self._handler.on_foreign_message(message.schema_id)
            elif not (self._dispatch_position(template_id, buffer, length)
                      or self._dispatch_election(template_id, buffer, length)
                      or self._dispatch_end(template_id, buffer, length)):
                image = self._subscription.image_by_session_id(header.session_id)
                if image is not None or template_id not in (
                        codec.BACKUP_QUERY_TEMPLATE_ID, codec.CHALLENGE_RESPONSE_TEMPLATE_ID,
                        codec.HEARTBEAT_REQUEST_TEMPLATE_ID, codec.STANDBY_SNAPSHOT_TEMPLATE_ID):
                    self._dispatch_request(&message, buffer, length, image)
        except CodecError as error:
            self._handler.on_malformed_message(
                f"consensus message of {length} bytes from sessionId={header.session_id}: {error}")
        except Exception as error:      # raised from here it would end the turn, for all clients
            self._handler.on_failed_message(error)
        return ACTION_CONTINUE

    cdef bint _dispatch_position(self, int template_id, const uint8_t* buffer, size_t length) except -1:
        cdef codec.AppendPosition append
        cdef codec.CommitPosition commit
        cdef int32_t member_id
        cdef int flags
        if template_id == codec.APPEND_POSITION_TEMPLATE_ID:
            check_codec(codec.append_position_wrap(&append, buffer, length), "AppendPosition")
            member_id = codec.append_position_follower_member_id(&append)
            flags = codec.append_position_flags(&append)
            if self._is_from(member_id, "AppendPosition"):
                self._handler.on_append_position(
                    codec.append_position_leadership_term_id(&append), codec.append_position_log_position(&append),
                    member_id, NO_FLAGS if flags == sbe.SBE_NULL_UINT8 else flags)
        elif template_id == codec.COMMIT_POSITION_TEMPLATE_ID:
            check_codec(codec.commit_position_wrap(&commit, buffer, length), "CommitPosition")
            member_id = codec.commit_position_leader_member_id(&commit)
            if self._is_from(member_id, "CommitPosition"):
                self._handler.on_commit_position(
                    codec.commit_position_leadership_term_id(&commit), codec.commit_position_log_position(&commit),
                    member_id)
        else:
            return False
        return True

    cdef bint _dispatch_election(self, int template_id, const uint8_t* buffer, size_t length) except -1:
        cdef codec.CanvassPosition canvass
        cdef codec.RequestVote request
        cdef codec.Vote vote
        cdef int32_t member_id
        if template_id == codec.CANVASS_POSITION_TEMPLATE_ID:
            check_codec(codec.canvass_position_wrap(&canvass, buffer, length), "CanvassPosition")
            member_id = codec.canvass_position_follower_member_id(&canvass)
            if self._is_from(member_id, "CanvassPosition"):
                if length > codec.CANVASS_POSITION_ENCODED_LENGTH:
                    self._check_list(member_id, codec.canvass_position_protocol_version(&canvass), buffer, length)
                self._handler.on_canvass_position(
                    codec.canvass_position_log_leadership_term_id(&canvass),
                    codec.canvass_position_log_position(&canvass), codec.canvass_position_leadership_term_id(&canvass),
                    member_id, codec.canvass_position_protocol_version(&canvass))
        elif template_id == codec.REQUEST_VOTE_TEMPLATE_ID:
            check_codec(codec.request_vote_wrap(&request, buffer, length), "RequestVote")
            member_id = codec.request_vote_candidate_member_id(&request)
            if self._is_from(member_id, "RequestVote"):
                self._handler.on_request_vote(
                    codec.request_vote_log_leadership_term_id(&request), codec.request_vote_log_position(&request),
                    codec.request_vote_candidate_term_id(&request), member_id,
                    codec.request_vote_protocol_version(&request))
        elif template_id == codec.VOTE_TEMPLATE_ID:
            check_codec(codec.vote_wrap(&vote, buffer, length), "Vote")
            member_id = codec.vote_follower_member_id(&vote)
            if self._is_from(member_id, "Vote") and self._is_for(codec.vote_candidate_member_id(&vote), "Vote"):
                self._handler.on_vote(
                    codec.vote_candidate_term_id(&vote), codec.vote_log_leadership_term_id(&vote),
                    codec.vote_log_position(&vote), codec.vote_candidate_member_id(&vote), member_id,
                    codec.vote_vote(&vote) == codec.BOOLEAN_TRUE)
        elif template_id == codec.NEW_LEADERSHIP_TERM_TEMPLATE_ID:
            self._on_new_leadership_term(buffer, length)
        elif template_id == codec.CATCHUP_POSITION_TEMPLATE_ID:
            self._on_catchup_position(buffer, length)
        else:
            return False
        return True

    cdef int _on_new_leadership_term(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.NewLeadershipTerm term
        cdef int64_t commit_position
        cdef int32_t member_id, protocol_version = NULL_VALUE
        check_codec(codec.new_leadership_term_wrap(&term, buffer, length), "NewLeadershipTerm")
        member_id = codec.new_leadership_term_leader_member_id(&term)
        commit_position = codec.new_leadership_term_commit_position(&term)
        if (term.version <= VERSION_WITHOUT_PROTOCOL
                and term.block_length >= codec.NEW_LEADERSHIP_TERM_BLOCK_LENGTH + sizeof(int32_t)):
            protocol_version = sbe.sbe_get_int32(buffer + codec.NEW_LEADERSHIP_TERM_ENCODED_LENGTH)
        if self._is_from(member_id, "NewLeadershipTerm"):
            self._handler.on_new_leadership_term(
                codec.new_leadership_term_log_leadership_term_id(&term),
                codec.new_leadership_term_next_leadership_term_id(&term),
                codec.new_leadership_term_next_term_base_log_position(&term),
                codec.new_leadership_term_next_log_position(&term),
                codec.new_leadership_term_leadership_term_id(&term),
                codec.new_leadership_term_term_base_log_position(&term),
                codec.new_leadership_term_log_position(&term),
                NULL_POSITION if commit_position == sbe.SBE_NULL_INT64 else commit_position,
                codec.new_leadership_term_leader_recording_id(&term), codec.new_leadership_term_timestamp(&term),
                member_id, codec.new_leadership_term_log_session_id(&term),
                codec.new_leadership_term_app_version(&term),
                codec.new_leadership_term_is_startup(&term) == codec.BOOLEAN_TRUE, protocol_version)
        return 0

    cdef int _on_catchup_position(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.CatchupPosition catchup
        cdef int32_t member_id
        cdef str endpoint
        check_codec(codec.catchup_position_wrap(&catchup, buffer, length), "CatchupPosition")
        member_id = codec.catchup_position_follower_member_id(&catchup)
        endpoint = decode_ascii(catchup.catchup_endpoint.data, catchup.catchup_endpoint.length)
        if not is_destination(endpoint):
            self._handler.on_malformed_message(
                f"CatchupPosition of member {member_id}: no log can be sent to {shown(endpoint)}: it takes host:port")
        elif self._is_from(member_id, "CatchupPosition"):
            self._handler.on_catchup_position(
                codec.catchup_position_leadership_term_id(&catchup), codec.catchup_position_log_position(&catchup),
                member_id, endpoint)
        return 0

    cdef bint _dispatch_end(self, int template_id, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopCatchup stop
        cdef codec.TerminationPosition position
        cdef codec.TerminationAck ack
        cdef int32_t member_id
        if template_id == codec.STOP_CATCHUP_TEMPLATE_ID:
            check_codec(codec.stop_catchup_wrap(&stop, buffer, length), "StopCatchup")
            if self._is_for(codec.stop_catchup_follower_member_id(&stop), "StopCatchup"):
                self._handler.on_stop_catchup(codec.stop_catchup_leadership_term_id(&stop))
        elif template_id == codec.TERMINATION_POSITION_TEMPLATE_ID:
            check_codec(codec.termination_position_wrap(&position, buffer, length), "TerminationPosition")
            self._handler.on_termination_position(
                codec.termination_position_leadership_term_id(&position),
                codec.termination_position_log_position(&position))
        elif template_id == codec.TERMINATION_ACK_TEMPLATE_ID:
            check_codec(codec.termination_ack_wrap(&ack, buffer, length), "TerminationAck")
            member_id = codec.termination_ack_member_id(&ack)
            if self._is_from(member_id, "TerminationAck"):
                self._handler.on_termination_ack(
                    codec.termination_ack_leadership_term_id(&ack), codec.termination_ack_log_position(&ack),
                    member_id)
        else:
            return False
        return True

    cdef bint _is_from(self, int32_t member_id, str message) except -1:
        """Whether another member of this cluster has that id, as the sender of a message must; else report it."""
        if member_id != self._members.this_member.id and self._members.find(member_id) is not None:
            return True
        self._handler.on_unexpected_message(
            f"{message} of member {member_id}: the others of this cluster are "
            f"{[each.id for each in self._members.others()]}")
        return False

    cdef int _check_list(
            self, int32_t member_id, int32_t protocol_version, const uint8_t* buffer, size_t length) except -1:
        """Report each list of a native member that is not this one's once, and the first few of a member alone."""
        cdef const uint8_t* data = buffer + codec.CANVASS_POSITION_ENCODED_LENGTH
        cdef bytes text
        cdef list known
        length -= codec.CANVASS_POSITION_ENCODED_LENGTH
        if protocol_version != NATIVE_PROTOCOL_VERSION or length > MAX_LIST_LENGTH or (
                length == <size_t> len(self._list) and memcmp(data, <const char*> self._list, length) == 0):
            return 0
        text = PyBytes_FromStringAndSize(<const char*> data, <Py_ssize_t> length)
        known = self._other_lists.setdefault(member_id, [])
        if text in known or len(known) == MAX_OTHER_LISTS:
            return 0
        known.append(text)
        differences = self._members.differences(text.decode("ascii", "replace"))
        if differences:
            self._handler.on_failed_message(ConfigurationError(
                f"member {member_id} has another list of members than this one, member {self._members.this_member.id}: "
                f"{'; '.join(differences)}: give all members the same list"))
        return 0

    cdef bint _is_for(self, int32_t member_id, str message) except -1:
        """Whether that is this member's id, as the addressee's of a message must be; else report it."""
        if member_id == self._members.this_member.id:
            return True
        self._handler.on_unexpected_message(
            f"{message} for member {member_id} has come to member {self._members.this_member.id}")
        return False

    cdef int _dispatch_request(self, const sbe.MessageHeader* message, const uint8_t* buffer, size_t length,
                               Image image) except -1:
        cdef codec.BackupQuery query
        cdef codec.ChallengeResponse response
        cdef codec.HeartbeatRequest heartbeat
        cdef int64_t position
        cdef int template_id = message.template_id
        if template_id == codec.BACKUP_QUERY_TEMPLATE_ID:
            check_codec(codec.backup_query_wrap(&query, buffer, length), "BackupQuery")
            position = codec.backup_query_log_position(&query)
            self._handler.on_backup_query(
                codec.backup_query_correlation_id(&query), codec.backup_query_response_stream_id(&query),
                codec.backup_query_version(&query),
                INT64_MAX if position in (sbe.SBE_NULL_INT64, NULL_VALUE) else position,
                decode_ascii(query.response_channel.data, query.response_channel.length),
                bytes_of(&query.encoded_credentials), image)
        elif template_id == codec.CHALLENGE_RESPONSE_TEMPLATE_ID:
            check_codec(codec.challenge_response_wrap(&response, buffer, length), "ChallengeResponse")
            self._handler.on_consensus_challenge_response(
                codec.challenge_response_correlation_id(&response),
                codec.challenge_response_cluster_session_id(&response), bytes_of(&response.encoded_credentials))
        elif template_id == codec.HEARTBEAT_REQUEST_TEMPLATE_ID:
            check_codec(codec.heartbeat_request_wrap(&heartbeat, buffer, length), "HeartbeatRequest")
            self._handler.on_heartbeat_request(
                codec.heartbeat_request_correlation_id(&heartbeat),
                codec.heartbeat_request_response_stream_id(&heartbeat),
                decode_ascii(heartbeat.response_channel.data, heartbeat.response_channel.length),
                bytes_of(&heartbeat.encoded_credentials), image)
        elif template_id == codec.STANDBY_SNAPSHOT_TEMPLATE_ID:
            self._on_standby_snapshot(buffer, length, image)
        else:
            self._handler.on_unexpected_message(f"consensus message of an unknown template: id={template_id}")
        return 0

    cdef int _on_standby_snapshot(self, const uint8_t* buffer, size_t length, Image image) except -1:
        cdef codec.StandbySnapshot notification
        cdef codec.StandbySnapshotSnapshots each
        cdef list snapshots = []
        check_codec(codec.standby_snapshot_wrap(&notification, buffer, length), "StandbySnapshot")
        if length > MAX_STANDBY_SNAPSHOT_LENGTH:
            raise CodecError(f"StandbySnapshot: it may have {MAX_STANDBY_SNAPSHOT_LENGTH} bytes")
        codec.standby_snapshot_snapshots_begin(&notification, &each)
        while codec.standby_snapshot_snapshots_next(&each):
            if len(snapshots) == MAX_STANDBY_SNAPSHOTS:
                raise CodecError(f"StandbySnapshot: it may have {MAX_STANDBY_SNAPSHOTS} snapshots")
            snapshots.append((
                codec.standby_snapshot_snapshots_recording_id(&each),
                codec.standby_snapshot_snapshots_leadership_term_id(&each),
                codec.standby_snapshot_snapshots_term_base_log_position(&each),
                codec.standby_snapshot_snapshots_log_position(&each),
                codec.standby_snapshot_snapshots_timestamp(&each), codec.standby_snapshot_snapshots_service_id(&each),
                decode_ascii(each.archive_endpoint.data, each.archive_endpoint.length)))
        return self._handler.on_standby_snapshot(
            codec.standby_snapshot_correlation_id(&notification),
            codec.standby_snapshot_response_stream_id(&notification), codec.standby_snapshot_version(&notification),
            snapshots, decode_ascii(notification.response_channel.data, notification.response_channel.length),
            bytes_of(&notification.encoded_credentials), image)


seal((ConsensusAdapter,))
