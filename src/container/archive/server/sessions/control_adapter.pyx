"""Control requests in: what clients ask an archive for (upstream: ControlSessionAdapter.java).

There is one adapter for each subscription, and in it one assembler for each image, so that no client can spoil the
message of another. Methods and their arguments have the names of the schema's messages and fields, so a request that is
new there is a call. It is read with the block length and the version of its sender; fields that an older version lacks
are left out. Messages of a foreign schema, truncated messages and messages with an unknown location are reported and
skipped. A message with an unknown template is skipped silently: it may be of a later version.
"""
from libc.stdint cimport uint8_t

import re

from container.archive.server.sessions.control_handler import ControlRequest
from container.codecs cimport archive as codec
from container.codecs cimport sbe
from container.codecs import messages
from container.common.sealed cimport hide, seal
from container.errors import ArchiveError, CodecError
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport ACTION_CONTINUE, NULL_VALUE, FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    FRAGMENT_LIMIT = 10         # of one poll

# The method of a request is named as its message, except for these.
_NAMED = {
    "StartPositionRequest": "on_get_start_position",
    "RecordingPositionRequest": "on_get_recording_position",
    "StopPositionRequest": "on_get_stop_position",
    "MaxRecordedPositionRequest": "on_get_max_recorded_position",
    "TaggedReplicateRequest": "on_replicate",
    "ChallengeResponse": "on_challenge_response",
    "AuthConnectRequest": "on_connect",
}
_FLAGS = ("auto_stop", "apply_stream_id")
# They look for a part of a channel, in the bytes of the catalog.
_SEARCHES = (
    codec.LIST_RECORDINGS_FOR_URI_REQUEST_TEMPLATE_ID, codec.FIND_LAST_MATCHING_RECORDING_REQUEST_TEMPLATE_ID,
    codec.LIST_RECORDING_SUBSCRIPTIONS_REQUEST_TEMPLATE_ID,
)


def _methods():
    """The handler's method for each message that is a request, by template id."""
    methods = {}
    for template_id, name in messages.MESSAGE_NAMES["archive"].items():
        words = re.match("(.+)Request2?$", name)
        if name in _NAMED:
            methods[template_id] = _NAMED[name]
        elif words is not None:
            methods[template_id] = "on" + re.sub("[A-Z]", r"_\g<0>", words[1]).lower()
    return methods


_METHODS = _methods()


cdef bint _is_local(int template_id, int source_location) except -1:
    if source_location not in (codec.SOURCE_LOCATION_LOCAL, codec.SOURCE_LOCATION_REMOTE):
        raise ArchiveError(
            f"request {template_id}: unknown sourceLocation={source_location}; known are 0 local and 1 remote")
    return source_location == codec.SOURCE_LOCATION_LOCAL


cdef class RequestStream:
    """An image of a request subscription, and what it has sent of a message so far."""


cdef class ControlAdapter(FragmentHandler):
    """Hands the requests that come on ``subscription`` to ``handler`` (ControlHandler), one call each.

    ``on_error(Exception)`` receives an ArchiveError for each malformed message, and each error of the handler; reading
    then continues. A BaseException that is not an Exception, such as the end of an agent, ends the poll.
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

    cdef int _decode(self, const uint8_t* buffer, size_t length) except -1:
        cdef sbe.MessageHeader message
        cdef int result = sbe.sbe_read_header(buffer, length, &message)
        if result < 0:
            raise ArchiveError(
                f"request: {sbe.sbe_error_text(result).decode('ascii')}: a header needs {sbe.SBE_HEADER_LENGTH} bytes, "
                f"got {length} from {self._sender()}")
        if message.schema_id != codec.ARCHIVE_SCHEMA_ID:
            raise ArchiveError(
                f"expected schemaId={codec.ARCHIVE_SCHEMA_ID}, actual={message.schema_id} from {self._sender()}")
        if message.template_id in _METHODS:
            try:
                _, fields = messages.decode("archive", (<const char*> buffer)[:length], keeps_nulls=True)
            except CodecError as error:
                raise ArchiveError(f"request {message.template_id}: {error} from {self._sender()}") from None
            self._call(message.template_id, fields)
        return 0

    cdef int _call(self, int template_id, dict fields) except -1:
        # A field that was not sent is left out: the handler has a default for it.
        cdef dict arguments = {}
        for name, value in fields.items():
            if name == "source_location":
                arguments["is_local"] = _is_local(template_id, value)
            elif name in _FLAGS:
                arguments[name] = value == codec.BOOLEAN_TRUE
            elif isinstance(value, bytes) and name != "encoded_credentials" and template_id not in _SEARCHES:
                arguments[name] = value.decode("ascii", "replace")
            elif value is not None:
                arguments[name] = value
        method = _METHODS[template_id]
        if method == "on_connect":
            self._handler.on_connect(self._image, **arguments)
        else:
            request = ControlRequest(
                template_id, arguments.pop("control_session_id"), arguments.pop("correlation_id", NULL_VALUE),
                self._image.correlation_id)
            getattr(self._handler, method)(request, **arguments)
        return 0

    cdef str _sender(self):
        return f"{self._image.source_identity} sessionId={self._image.session_id}"


hide((RequestStream,))
seal((ControlAdapter,))
