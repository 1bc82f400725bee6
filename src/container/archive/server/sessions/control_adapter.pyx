"""Control requests in: what clients ask an archive for (upstream: ControlSessionAdapter.java).

There is one adapter for each subscription, and in it one assembler for each image, so that no client can spoil the
message of another. A message is read with the block length and the version of its sender: what an older version does
not have is -1 or empty. A message of a foreign schema, one that is cut off and one with a location that nobody knows
are reported and passed over; one whose template is not known is passed over silently, as it may be of a later version.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive.server.sessions.control_handler import ControlRequest
from container.codecs cimport archive as codec
from container.codecs cimport sbe
from container.common.sealed cimport hide, seal
from container.errors import ArchiveError
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport ACTION_CONTINUE, NULL_VALUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    FRAGMENT_LIMIT = 10         # of one poll


cdef inline bytes _bytes(const sbe.VarData* data):
    return (<const char*> data.data)[:data.length] if data.length > 0 else b""


cdef inline str _text(const sbe.VarData* data):
    return (<const char*> data.data)[:data.length].decode("ascii", "replace") if data.length > 0 else ""


cdef inline int64_t _optional_int64(int64_t value) noexcept nogil:
    return NULL_VALUE if value == sbe.SBE_NULL_INT64 else value


cdef inline int32_t _optional_int32(int32_t value) noexcept nogil:
    return NULL_VALUE if value == sbe.SBE_NULL_INT32 else value


cdef class RequestStream:
    """An image of a request subscription, and what it has sent of a message so far."""


cdef class ControlAdapter(FragmentHandler):
    """Hands the requests that come on ``subscription`` to ``handler`` (ControlHandler), one call each.

    ``on_error(Exception)`` is given an ArchiveError for each message that is none, and what the handler raises; the
    next message is read then. What is no Exception, such as the end of an agent, ends the poll.
    """

    def __init__(self, Subscription subscription not None, handler, on_error):
        self.subscription = subscription
        self._handler = handler
        self._on_error = on_error
        self._streams = {}
        self._next_image = 0

    cpdef int poll(self) except -1:
        """Read at most ten fragments; the number that was read (int). Each poll begins with the next image."""
        cdef int count = self.subscription.image_count()
        cdef int fragments = 0
        cdef int first = self._next_image if self._next_image < count else 0
        cdef int index
        cdef Image image
        self._next_image = first + 1
        try:
            for index in range(first, first + count):
                image = self.subscription.image_at_index(index if index < count else index - count)
                if image is None or fragments >= FRAGMENT_LIMIT:
                    break
                self._image = image
                fragments += image.controlled_poll(self._assembler(image), FRAGMENT_LIMIT - fragments)
        finally:
            self._image = None
        if len(self._streams) > count:
            self._forget_images()
        return fragments

    cpdef int close(self) except -1:
        """Close the subscription. May be called twice."""
        self._streams.clear()
        return self.subscription.close()

    cdef FragmentAssembler _assembler(self, Image image):
        cdef RequestStream stream = self._streams.get(image.correlation_id)
        if stream is None or stream.image is not image:
            stream = RequestStream.__new__(RequestStream)
            stream.image = image
            stream.assembler = FragmentAssembler(self)
            self._streams[image.correlation_id] = stream
        return stream.assembler

    cdef int _forget_images(self) except -1:
        cdef dict streams = {}
        cdef Image image
        cdef int index
        for index in range(self.subscription.image_count()):
            image = self.subscription.image_at_index(index)
            if image is not None and image.correlation_id in self._streams:
                streams[image.correlation_id] = self._streams[image.correlation_id]
        self._streams = streams
        return 0

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        try:
            self._decode(buffer, length)
        except Exception as error:
            self._on_error(error)
        return ACTION_CONTINUE

    cdef int _check(self, int result, size_t length, size_t needed) except -1:
        if result < 0:
            raise ArchiveError(
                f"request {self._template_id}: {sbe.sbe_error_text(result).decode('ascii')}: it needs {needed} bytes, "
                f"got {length} from {self._image.source_identity} sessionId={self._image.session_id}")
        return 0

    cdef bint _is_local(self, int32_t source_location) except -1:
        if source_location not in (codec.SOURCE_LOCATION_LOCAL, codec.SOURCE_LOCATION_REMOTE):
            raise ArchiveError(f"request {self._template_id}: unknown sourceLocation={source_location}; known are 0 "
                               f"local and 1 remote")
        return source_location == codec.SOURCE_LOCATION_LOCAL

    cdef object _head(self, const uint8_t* buffer):
        # The two ids are at the same place in every request of a session.
        return ControlRequest(
            self._template_id,
            sbe.sbe_get_int64(buffer + codec.KEEP_ALIVE_REQUEST_CONTROL_SESSION_ID_OFFSET),
            sbe.sbe_get_int64(buffer + codec.KEEP_ALIVE_REQUEST_CORRELATION_ID_OFFSET),
            self._image.correlation_id)

    cdef int _decode(self, const uint8_t* buffer, size_t length) except -1:
        cdef sbe.MessageHeader message
        cdef int result = sbe.sbe_read_header(buffer, length, &message)
        if result < 0:
            raise ArchiveError(
                f"request: {sbe.sbe_error_text(result).decode('ascii')}: a header needs {sbe.SBE_HEADER_LENGTH} bytes, "
                f"got {length} from {self._image.source_identity} sessionId={self._image.session_id}")
        if message.schema_id != codec.ARCHIVE_SCHEMA_ID:
            raise ArchiveError(
                f"expected schemaId={codec.ARCHIVE_SCHEMA_ID}, actual={message.schema_id} from "
                f"{self._image.source_identity} sessionId={self._image.session_id}")
        self._template_id = message.template_id
        if message.template_id == codec.START_RECORDING_REQUEST_TEMPLATE_ID:
            self._start_recording(buffer, length)
        elif message.template_id == codec.START_RECORDING_REQUEST2_TEMPLATE_ID:
            self._start_recording2(buffer, length)
        elif message.template_id == codec.EXTEND_RECORDING_REQUEST_TEMPLATE_ID:
            self._extend_recording(buffer, length)
        elif message.template_id == codec.EXTEND_RECORDING_REQUEST2_TEMPLATE_ID:
            self._extend_recording2(buffer, length)
        elif message.template_id == codec.STOP_RECORDING_REQUEST_TEMPLATE_ID:
            self._stop_recording(buffer, length)
        elif message.template_id == codec.STOP_RECORDING_SUBSCRIPTION_REQUEST_TEMPLATE_ID:
            self._stop_recording_subscription(buffer, length)
        elif message.template_id == codec.STOP_RECORDING_BY_IDENTITY_REQUEST_TEMPLATE_ID:
            self._stop_recording_by_identity(buffer, length)
        elif message.template_id == codec.REPLAY_REQUEST_TEMPLATE_ID:
            self._replay(buffer, length)
        elif message.template_id == codec.BOUNDED_REPLAY_REQUEST_TEMPLATE_ID:
            self._bounded_replay(buffer, length)
        elif message.template_id == codec.STOP_REPLAY_REQUEST_TEMPLATE_ID:
            self._stop_replay(buffer, length)
        elif message.template_id == codec.STOP_ALL_REPLAYS_REQUEST_TEMPLATE_ID:
            self._stop_all_replays(buffer, length)
        elif message.template_id == codec.REPLAY_TOKEN_REQUEST_TEMPLATE_ID:
            self._replay_token(buffer, length)
        elif message.template_id == codec.LIST_RECORDING_REQUEST_TEMPLATE_ID:
            self._list_recording(buffer, length)
        elif message.template_id == codec.LIST_RECORDINGS_REQUEST_TEMPLATE_ID:
            self._list_recordings(buffer, length)
        elif message.template_id == codec.LIST_RECORDINGS_FOR_URI_REQUEST_TEMPLATE_ID:
            self._list_recordings_for_uri(buffer, length)
        elif message.template_id == codec.FIND_LAST_MATCHING_RECORDING_REQUEST_TEMPLATE_ID:
            self._find_last_matching_recording(buffer, length)
        elif message.template_id == codec.LIST_RECORDING_SUBSCRIPTIONS_REQUEST_TEMPLATE_ID:
            self._list_recording_subscriptions(buffer, length)
        elif message.template_id == codec.START_POSITION_REQUEST_TEMPLATE_ID:
            self._start_position(buffer, length)
        elif message.template_id == codec.RECORDING_POSITION_REQUEST_TEMPLATE_ID:
            self._recording_position(buffer, length)
        elif message.template_id == codec.STOP_POSITION_REQUEST_TEMPLATE_ID:
            self._stop_position(buffer, length)
        elif message.template_id == codec.MAX_RECORDED_POSITION_REQUEST_TEMPLATE_ID:
            self._max_recorded_position(buffer, length)
        elif message.template_id == codec.TRUNCATE_RECORDING_REQUEST_TEMPLATE_ID:
            self._truncate_recording(buffer, length)
        elif message.template_id == codec.PURGE_RECORDING_REQUEST_TEMPLATE_ID:
            self._purge_recording(buffer, length)
        elif message.template_id == codec.DETACH_SEGMENTS_REQUEST_TEMPLATE_ID:
            self._detach_segments(buffer, length)
        elif message.template_id == codec.DELETE_DETACHED_SEGMENTS_REQUEST_TEMPLATE_ID:
            self._delete_detached_segments(buffer, length)
        elif message.template_id == codec.PURGE_SEGMENTS_REQUEST_TEMPLATE_ID:
            self._purge_segments(buffer, length)
        elif message.template_id == codec.ATTACH_SEGMENTS_REQUEST_TEMPLATE_ID:
            self._attach_segments(buffer, length)
        elif message.template_id == codec.MIGRATE_SEGMENTS_REQUEST_TEMPLATE_ID:
            self._migrate_segments(buffer, length)
        elif message.template_id == codec.UPDATE_CHANNEL_REQUEST_TEMPLATE_ID:
            self._update_channel(buffer, length)
        elif message.template_id == codec.REPLICATE_REQUEST_TEMPLATE_ID:
            self._replicate(buffer, length)
        elif message.template_id == codec.TAGGED_REPLICATE_REQUEST_TEMPLATE_ID:
            self._tagged_replicate(buffer, length)
        elif message.template_id == codec.REPLICATE_REQUEST2_TEMPLATE_ID:
            self._replicate2(buffer, length)
        elif message.template_id == codec.STOP_REPLICATION_REQUEST_TEMPLATE_ID:
            self._stop_replication(buffer, length)
        elif message.template_id == codec.CHALLENGE_RESPONSE_TEMPLATE_ID:
            self._challenge_response(buffer, length)
        elif message.template_id == codec.KEEP_ALIVE_REQUEST_TEMPLATE_ID:
            self._keep_alive(buffer, length)
        elif message.template_id == codec.ARCHIVE_ID_REQUEST_TEMPLATE_ID:
            self._archive_id(buffer, length)
        elif message.template_id == codec.CLOSE_SESSION_REQUEST_TEMPLATE_ID:
            self._close_session(buffer, length)
        elif message.template_id == codec.CONNECT_REQUEST_TEMPLATE_ID:
            self._connect(buffer, length)
        elif message.template_id == codec.AUTH_CONNECT_REQUEST_TEMPLATE_ID:
            self._auth_connect(buffer, length)
        return 0

    cdef int _start_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StartRecordingRequest request
        cdef int result = codec.start_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_start_recording(
            self._head(buffer), codec.start_recording_request_stream_id(&request),
            self._is_local(codec.start_recording_request_source_location(&request)), False, _text(&request.channel))
        return 0

    cdef int _start_recording2(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StartRecordingRequest2 request
        cdef int result = codec.start_recording_request2_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_start_recording(
            self._head(buffer), codec.start_recording_request2_stream_id(&request),
            self._is_local(codec.start_recording_request2_source_location(&request)),
            codec.start_recording_request2_auto_stop(&request) == codec.BOOLEAN_TRUE, _text(&request.channel))
        return 0

    cdef int _extend_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ExtendRecordingRequest request
        cdef int result = codec.extend_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_extend_recording(
            self._head(buffer), codec.extend_recording_request_recording_id(&request),
            codec.extend_recording_request_stream_id(&request),
            self._is_local(codec.extend_recording_request_source_location(&request)), False, _text(&request.channel))
        return 0

    cdef int _extend_recording2(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ExtendRecordingRequest2 request
        cdef int result = codec.extend_recording_request2_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_extend_recording(
            self._head(buffer), codec.extend_recording_request2_recording_id(&request),
            codec.extend_recording_request2_stream_id(&request),
            self._is_local(codec.extend_recording_request2_source_location(&request)),
            codec.extend_recording_request2_auto_stop(&request) == codec.BOOLEAN_TRUE, _text(&request.channel))
        return 0

    cdef int _stop_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopRecordingRequest request
        cdef int result = codec.stop_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_stop_recording(
            self._head(buffer), codec.stop_recording_request_stream_id(&request), _text(&request.channel))
        return 0

    cdef int _stop_recording_subscription(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopRecordingSubscriptionRequest request
        cdef int result = codec.stop_recording_subscription_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_stop_recording_subscription(
            self._head(buffer), codec.stop_recording_subscription_request_subscription_id(&request))
        return 0

    cdef int _stop_recording_by_identity(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopRecordingByIdentityRequest request
        cdef int result = codec.stop_recording_by_identity_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_stop_recording_by_identity(
            self._head(buffer), codec.stop_recording_by_identity_request_recording_id(&request))
        return 0

    cdef int _replay(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ReplayRequest request
        cdef int result = codec.replay_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_replay(
            self._head(buffer), codec.replay_request_recording_id(&request), codec.replay_request_position(&request),
            codec.replay_request_length(&request), codec.replay_request_replay_stream_id(&request),
            _optional_int32(codec.replay_request_file_io_max_length(&request)),
            _optional_int64(codec.replay_request_replay_token(&request)), _text(&request.replay_channel))
        return 0

    cdef int _bounded_replay(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.BoundedReplayRequest request
        cdef int result = codec.bounded_replay_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_bounded_replay(
            self._head(buffer), codec.bounded_replay_request_recording_id(&request),
            codec.bounded_replay_request_position(&request), codec.bounded_replay_request_length(&request),
            codec.bounded_replay_request_limit_counter_id(&request),
            codec.bounded_replay_request_replay_stream_id(&request),
            _optional_int32(codec.bounded_replay_request_file_io_max_length(&request)),
            _optional_int64(codec.bounded_replay_request_replay_token(&request)), _text(&request.replay_channel))
        return 0

    cdef int _stop_replay(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopReplayRequest request
        cdef int result = codec.stop_replay_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_stop_replay(self._head(buffer), codec.stop_replay_request_replay_session_id(&request))
        return 0

    cdef int _stop_all_replays(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopAllReplaysRequest request
        cdef int result = codec.stop_all_replays_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_stop_all_replays(self._head(buffer), codec.stop_all_replays_request_recording_id(&request))
        return 0

    cdef int _replay_token(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ReplayTokenRequest request
        cdef int result = codec.replay_token_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_replay_token(self._head(buffer), codec.replay_token_request_recording_id(&request))
        return 0

    cdef int _list_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ListRecordingRequest request
        cdef int result = codec.list_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_list_recording(self._head(buffer), codec.list_recording_request_recording_id(&request))
        return 0

    cdef int _list_recordings(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ListRecordingsRequest request
        cdef int result = codec.list_recordings_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_list_recordings(
            self._head(buffer), codec.list_recordings_request_from_recording_id(&request),
            codec.list_recordings_request_record_count(&request))
        return 0

    cdef int _list_recordings_for_uri(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ListRecordingsForUriRequest request
        cdef int result = codec.list_recordings_for_uri_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_list_recordings_for_uri(
            self._head(buffer), codec.list_recordings_for_uri_request_from_recording_id(&request),
            codec.list_recordings_for_uri_request_record_count(&request),
            codec.list_recordings_for_uri_request_stream_id(&request), _bytes(&request.channel))
        return 0

    cdef int _find_last_matching_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.FindLastMatchingRecordingRequest request
        cdef int result = codec.find_last_matching_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_find_last_matching_recording(
            self._head(buffer), codec.find_last_matching_recording_request_min_recording_id(&request),
            codec.find_last_matching_recording_request_session_id(&request),
            codec.find_last_matching_recording_request_stream_id(&request), _bytes(&request.channel))
        return 0

    cdef int _list_recording_subscriptions(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ListRecordingSubscriptionsRequest request
        cdef int result = codec.list_recording_subscriptions_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_list_recording_subscriptions(
            self._head(buffer), codec.list_recording_subscriptions_request_pseudo_index(&request),
            codec.list_recording_subscriptions_request_subscription_count(&request),
            codec.list_recording_subscriptions_request_apply_stream_id(&request) == codec.BOOLEAN_TRUE,
            codec.list_recording_subscriptions_request_stream_id(&request), _bytes(&request.channel))
        return 0

    cdef int _start_position(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StartPositionRequest request
        cdef int result = codec.start_position_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_get_start_position(self._head(buffer), codec.start_position_request_recording_id(&request))
        return 0

    cdef int _recording_position(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.RecordingPositionRequest request
        cdef int result = codec.recording_position_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_get_recording_position(
            self._head(buffer), codec.recording_position_request_recording_id(&request))
        return 0

    cdef int _stop_position(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopPositionRequest request
        cdef int result = codec.stop_position_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_get_stop_position(self._head(buffer), codec.stop_position_request_recording_id(&request))
        return 0

    cdef int _max_recorded_position(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.MaxRecordedPositionRequest request
        cdef int result = codec.max_recorded_position_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_get_max_recorded_position(
            self._head(buffer), codec.max_recorded_position_request_recording_id(&request))
        return 0

    cdef int _truncate_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.TruncateRecordingRequest request
        cdef int result = codec.truncate_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_truncate_recording(
            self._head(buffer), codec.truncate_recording_request_recording_id(&request),
            codec.truncate_recording_request_position(&request))
        return 0

    cdef int _purge_recording(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.PurgeRecordingRequest request
        cdef int result = codec.purge_recording_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_purge_recording(self._head(buffer), codec.purge_recording_request_recording_id(&request))
        return 0

    cdef int _detach_segments(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.DetachSegmentsRequest request
        cdef int result = codec.detach_segments_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_detach_segments(
            self._head(buffer), codec.detach_segments_request_recording_id(&request),
            codec.detach_segments_request_new_start_position(&request))
        return 0

    cdef int _delete_detached_segments(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.DeleteDetachedSegmentsRequest request
        cdef int result = codec.delete_detached_segments_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_delete_detached_segments(
            self._head(buffer), codec.delete_detached_segments_request_recording_id(&request))
        return 0

    cdef int _purge_segments(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.PurgeSegmentsRequest request
        cdef int result = codec.purge_segments_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_purge_segments(
            self._head(buffer), codec.purge_segments_request_recording_id(&request),
            codec.purge_segments_request_new_start_position(&request))
        return 0

    cdef int _attach_segments(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.AttachSegmentsRequest request
        cdef int result = codec.attach_segments_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_attach_segments(self._head(buffer), codec.attach_segments_request_recording_id(&request))
        return 0

    cdef int _migrate_segments(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.MigrateSegmentsRequest request
        cdef int result = codec.migrate_segments_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_migrate_segments(
            self._head(buffer), codec.migrate_segments_request_src_recording_id(&request),
            codec.migrate_segments_request_dst_recording_id(&request))
        return 0

    cdef int _update_channel(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.UpdateChannelRequest request
        cdef int result = codec.update_channel_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_update_channel(
            self._head(buffer), codec.update_channel_request_recording_id(&request), _text(&request.channel))
        return 0

    cdef int _replicate(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ReplicateRequest request
        cdef int result = codec.replicate_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_replicate(
            self._head(buffer), codec.replicate_request_src_recording_id(&request),
            codec.replicate_request_dst_recording_id(&request), NULL_VALUE, NULL_VALUE, NULL_VALUE,
            codec.replicate_request_src_control_stream_id(&request), NULL_VALUE, NULL_VALUE,
            _text(&request.src_control_channel), _text(&request.live_destination), "", b"", "")
        return 0

    cdef int _tagged_replicate(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.TaggedReplicateRequest request
        cdef int result = codec.tagged_replicate_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_replicate(
            self._head(buffer), codec.tagged_replicate_request_src_recording_id(&request),
            codec.tagged_replicate_request_dst_recording_id(&request), NULL_VALUE,
            codec.tagged_replicate_request_channel_tag_id(&request),
            codec.tagged_replicate_request_subscription_tag_id(&request),
            codec.tagged_replicate_request_src_control_stream_id(&request), NULL_VALUE, NULL_VALUE,
            _text(&request.src_control_channel), _text(&request.live_destination), "", b"", "")
        return 0

    cdef int _replicate2(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ReplicateRequest2 request
        cdef int result = codec.replicate_request2_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_replicate(
            self._head(buffer), codec.replicate_request2_src_recording_id(&request),
            codec.replicate_request2_dst_recording_id(&request), codec.replicate_request2_stop_position(&request),
            codec.replicate_request2_channel_tag_id(&request), codec.replicate_request2_subscription_tag_id(&request),
            codec.replicate_request2_src_control_stream_id(&request),
            _optional_int32(codec.replicate_request2_file_io_max_length(&request)),
            _optional_int32(codec.replicate_request2_replication_session_id(&request)),
            _text(&request.src_control_channel), _text(&request.live_destination), _text(&request.replication_channel),
            _bytes(&request.encoded_credentials), _text(&request.src_response_channel))
        return 0

    cdef int _stop_replication(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.StopReplicationRequest request
        cdef int result = codec.stop_replication_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_stop_replication(self._head(buffer), codec.stop_replication_request_replication_id(&request))
        return 0

    cdef int _challenge_response(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ChallengeResponse request
        cdef int result = codec.challenge_response_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_challenge_response(self._head(buffer), _bytes(&request.encoded_credentials))
        return 0

    cdef int _keep_alive(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.KeepAliveRequest request
        cdef int result = codec.keep_alive_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_keep_alive(self._head(buffer))
        return 0

    cdef int _archive_id(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ArchiveIdRequest request
        cdef int result = codec.archive_id_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_archive_id(self._head(buffer))
        return 0

    cdef int _close_session(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.CloseSessionRequest request
        cdef int result = codec.close_session_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_close_session(ControlRequest(
            self._template_id, codec.close_session_request_control_session_id(&request), NULL_VALUE,
            self._image.correlation_id))
        return 0

    cdef int _connect(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.ConnectRequest request
        cdef int result = codec.connect_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_connect(
            self._image, codec.connect_request_correlation_id(&request),
            codec.connect_request_response_stream_id(&request), codec.connect_request_version(&request),
            _text(&request.response_channel), b"", "")
        return 0

    cdef int _auth_connect(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.AuthConnectRequest request
        cdef int result = codec.auth_connect_request_wrap(&request, buffer, length)
        self._check(result, length, request.encoded_length)
        self._handler.on_connect(
            self._image, codec.auth_connect_request_correlation_id(&request),
            codec.auth_connect_request_response_stream_id(&request), codec.auth_connect_request_version(&request),
            _text(&request.response_channel), _bytes(&request.encoded_credentials), _text(&request.client_info))
        return 0


hide((RequestStream,))
seal((ControlAdapter,))
