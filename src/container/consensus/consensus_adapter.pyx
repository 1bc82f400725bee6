"""What the consensus stream brings to a member: requests of backups and standbys. Upstream: ConsensusAdapter.java.

A message that is none, or fails, is reported and passed over: it must not disturb the rest. What other members would
send is passed over as well: there are none. A request whose sender is gone by now is not answered.
"""
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.errors import CodecError
from container.transport.decoding cimport bytes_of, check_codec, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_CONTINUE, NULL_VALUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    FRAGMENT_LIMIT = 10


cdef class ConsensusAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with what comes on the consensus stream."""

    def __init__(self, Subscription subscription not None, ConsensusEventHandler handler not None):
        self._subscription = subscription
        self._handler = handler
        self._assembler = SessionFragmentAssembler(self)

    cdef int poll(self) except -1:
        return self._subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cdef int forget_lost(self) except -1:
        return self._assembler.forget_lost(self._subscription)

    cpdef int close(self) except -1:
        """Close the subscription."""
        return self._subscription.close()

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef Image image
        try:
            check_codec(sbe.sbe_read_header(buffer, length, &message), "message header")
            image = self._subscription.image_by_session_id(header.session_id)
            if message.schema_id != codec.CLUSTER_SCHEMA_ID:
                self._handler.on_foreign_message(message.schema_id)
            elif image is not None:
                self._dispatch(&message, buffer, length, image)
        except CodecError as error:
            self._handler.on_malformed_message(
                f"consensus message of {length} bytes from sessionId={header.session_id}: {error}")
        except Exception as error:      # raised from here it would end the turn, for all clients
            self._handler.on_failed_message(error)
        return ACTION_CONTINUE

    cdef int _dispatch(self, const sbe.MessageHeader* message, const uint8_t* buffer, size_t length,
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
        return 0

    cdef int _on_standby_snapshot(self, const uint8_t* buffer, size_t length, Image image) except -1:
        cdef codec.StandbySnapshot notification
        cdef codec.StandbySnapshotSnapshots each
        cdef list snapshots = []
        check_codec(codec.standby_snapshot_wrap(&notification, buffer, length), "StandbySnapshot")
        codec.standby_snapshot_snapshots_begin(&notification, &each)
        while codec.standby_snapshot_snapshots_next(&each):
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
