"""Clients' requests and messages in, over the network and over IPC. Upstream: IngressAdapter.java.

Malformed, truncated and failing messages are reported and skipped: they must not disturb other clients.
"""
from libc.stdint cimport int32_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport hide, seal
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.errors import CodecError
from container.transport.decoding cimport bytes_of, check_codec, decode_ascii
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport ACTION_CONTINUE, FrameHeader
from container.transport.transport_seam cimport Client
from container.transport.streams cimport FragmentHandler, Image, PendingAdd, Subscription


cdef class IngressStream(FragmentHandler):
    """One subscription of the ingress."""

    cdef int poll(self, int fragment_limit) except -1:
        # The cost of a turn without a message grows with the streams, so a poll takes at least as many frames: with
        # a limit alone, thousands of clients that report to be alive would be more than the turns of a busy member.
        return self._subscription.controlled_poll(
            self._assembler, max(fragment_limit, self._subscription.image_count()))

    cdef list take_lost_images(self):
        cdef Image image
        cdef int32_t session_id
        cdef list lost
        for session_id in [each for each in self._assembler._assemblers if each not in self._images]:
            # One that sends parts of messages alone, and so is not known yet.
            image = self._subscription.image_by_session_id(session_id)
            if image is None:
                self._assembler.forget(session_id)
            else:
                self._images[session_id] = image
        lost = [image for image in self._images.values() if image.is_closed()]
        for image in lost:
            del self._images[image.session_id]
            self._assembler.forget(image.session_id)
        return lost

    cdef Image _image_of(self, const FrameHeader* header):
        cdef Image image = self._images.get(header.session_id)
        if image is None or image.is_closed():
            image = self._subscription.image_by_session_id(header.session_id)
            if image is not None:
                self._images[header.session_id] = image
        return image

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef codec.SessionMessageHeader session_message
        if (sbe.sbe_read_header(buffer, length, &message) == sbe.SBE_OK
                and message.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID
                and codec.session_message_header_wrap(&session_message, buffer, length) == sbe.SBE_OK):
            return self._handler.on_ingress_message(
                codec.session_message_header_leadership_term_id(&session_message),
                codec.session_message_header_cluster_session_id(&session_message),
                buffer + codec.SESSION_MESSAGE_HEADER_ENCODED_LENGTH,
                length - codec.SESSION_MESSAGE_HEADER_ENCODED_LENGTH)
        try:
            check_codec(sbe.sbe_read_header(buffer, length, &message), "message header")
            self._on_other(&message, buffer, length, header)
        except CodecError as error:
            self._handler.on_malformed_message(
                f"ingress message of {length} bytes from sessionId={header.session_id}: {error}")
        except Exception as error:      # raised from here it would end the turn, for all clients
            self._handler.on_failed_message(error)
        return ACTION_CONTINUE

    cdef int _on_other(self, const sbe.MessageHeader* message, const uint8_t* buffer, size_t length,
                       const FrameHeader* header) except -1:
        cdef codec.SessionMessageHeader session_message
        cdef codec.SessionKeepAlive keep_alive
        cdef codec.SessionCloseRequest close_request
        cdef codec.ChallengeResponse response
        cdef codec.AdminRequest request
        cdef int template_id = message.template_id
        if message.schema_id != codec.CLUSTER_SCHEMA_ID:
            self._handler.on_foreign_message(message.schema_id)
        elif template_id == codec.SESSION_KEEP_ALIVE_TEMPLATE_ID:
            check_codec(codec.session_keep_alive_wrap(&keep_alive, buffer, length), "SessionKeepAlive")
            self._handler.on_session_keep_alive(
                codec.session_keep_alive_leadership_term_id(&keep_alive),
                codec.session_keep_alive_cluster_session_id(&keep_alive), self._image_of(header))
        elif template_id == codec.SESSION_CONNECT_REQUEST_TEMPLATE_ID:
            self._on_connect(buffer, length, header)
        elif template_id == codec.SESSION_CLOSE_REQUEST_TEMPLATE_ID:
            check_codec(codec.session_close_request_wrap(&close_request, buffer, length), "SessionCloseRequest")
            self._handler.on_session_close(
                codec.session_close_request_leadership_term_id(&close_request),
                codec.session_close_request_cluster_session_id(&close_request))
        elif template_id == codec.CHALLENGE_RESPONSE_TEMPLATE_ID:
            check_codec(codec.challenge_response_wrap(&response, buffer, length), "ChallengeResponse")
            self._handler.on_challenge_response(
                codec.challenge_response_correlation_id(&response),
                codec.challenge_response_cluster_session_id(&response), bytes_of(&response.encoded_credentials))
        elif template_id == codec.ADMIN_REQUEST_TEMPLATE_ID:
            check_codec(codec.admin_request_wrap(&request, buffer, length), "AdminRequest")
            self._handler.on_admin_request(
                codec.admin_request_leadership_term_id(&request), codec.admin_request_cluster_session_id(&request),
                codec.admin_request_correlation_id(&request), codec.admin_request_request_type(&request))
        elif template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            check_codec(codec.session_message_header_wrap(&session_message, buffer, length), "SessionMessageHeader")
        return 0

    cdef int _on_connect(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1:
        cdef codec.SessionConnectRequest request
        cdef Image image = self._image_of(header)
        check_codec(codec.session_connect_request_wrap(&request, buffer, length), "SessionConnectRequest")
        if image is not None:           # else its client is gone
            self._handler.on_session_connect(
                codec.session_connect_request_correlation_id(&request),
                codec.session_connect_request_response_stream_id(&request),
                codec.session_connect_request_version(&request),
                decode_ascii(request.response_channel.data, request.response_channel.length),
                bytes_of(&request.encoded_credentials),
                decode_ascii(request.client_info.data, request.client_info.length), image)
        return 0


cdef class IngressAdapter:
    """Feeds a :class:`ConsensusEventHandler` with what clients send, some messages at a poll.

    Args:
        handler: what is given the messages.
        client: what the subscriptions are added to (Client).
        stream_id: of ingress (int).
        fragment_limit: for each of the subscriptions, or as many as it has streams, if they are more (int).
        on_error: is given why the driver refuses one (Exception); it must not raise.
    """

    def __init__(self, ConsensusEventHandler handler not None, Client client not None, int32_t stream_id,
                 int fragment_limit, on_error):
        self._handler = handler
        self._client = client
        self._stream_id = stream_id
        self._fragment_limit = fragment_limit
        self._on_error = on_error
        self._streams, self._pending, self._refused = [], [], []

    cdef int connect(self, list wanted) except -1:
        """Ask the driver for subscriptions to these channels; :meth:`poll_adds` looks after them."""
        for channel in wanted:
            self._pending.append((channel, self._client.begin_add_subscription(channel, self._stream_id, False)))
        return 0

    cdef int poll_adds(self) except -1:
        """Poll the subscriptions that the driver has added from now on; one that it refuses is reported."""
        cdef list pending = self._pending
        cdef PendingAdd add
        cdef object subscription, failure
        self._pending = []
        for channel, add in pending:
            subscription = failure = None
            try:
                subscription = add.poll()
            except Exception as error:
                failure = error
            if failure is not None:
                self._refused.append(channel)
                self._on_error(failure)
            elif subscription is None:
                self._pending.append((channel, add))
            else:
                self._add(subscription)
        return 0

    cdef int try_again(self) except -1:
        """Ask again for what the driver has refused: whoever has the port may give it back."""
        cdef list refused = self._refused
        self._refused = []
        return self.connect(refused)

    cdef int _add(self, Subscription subscription) except -1:
        cdef IngressStream stream = IngressStream.__new__(IngressStream)
        stream._subscription, stream._handler, stream._images = subscription, self._handler, {}
        stream._assembler = SessionFragmentAssembler(stream)
        self._streams.append(stream)
        return 0

    cdef int poll(self) except -1:
        cdef IngressStream stream
        cdef int work_count = 0
        for stream in self._streams:
            work_count += stream.poll(self._fragment_limit)
        return work_count

    cdef int forget_lost(self) except -1:
        cdef IngressStream stream
        for stream in self._streams:
            stream._assembler.forget_lost(stream._subscription)
        return 0

    cdef list take_lost_images(self):
        cdef IngressStream stream
        cdef list lost = []
        for stream in self._streams:
            lost += stream.take_lost_images()
        return lost

    cpdef int close(self) except -1:
        """Close the subscriptions; clients lose their image of the ingress. May be called twice."""
        cdef IngressStream stream
        cdef PendingAdd pending
        cdef list streams = self._streams, adds = self._pending
        self._streams, self._pending, self._refused = [], [], []
        for _channel, pending in adds:
            pending.close()
        for stream in streams:
            stream._subscription.close()
        return 0


hide((IngressStream,))
seal((IngressAdapter,))
