"""A backup's use of its Aeron client, for plain Python: the consensus stream, positions of recordings, new ids.

Upstream: ClusterBackupAgent.java, PublicationGroup.java. One member at a time is spoken to.
"""
import hashlib
import struct
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive.client cimport recording_counters
from container.archive.client.recording_counters cimport NULL_COUNTER_ID
from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.consensus.steps import added
from container.errors import ClusterError
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport (
    ACTION_CONTINUE, CLOSED, FRAME_FLAG_BEGIN, MAX_POSITION_EXCEEDED, NULL_VALUE, FrameHeader,
)
from container.transport.streams cimport (
    FragmentHandler, Image, Publication, Subscription, publication_result_name,
)
from container.transport.transport_seam cimport Client

from container.common.channel_uri import ChannelUri

cdef enum:
    FRAGMENT_LIMIT = 10
    REPLAY_FRAGMENT_LIMIT = 100
    SEND_ATTEMPTS = 3
    MESSAGE_BEGIN_LENGTH = 256

cdef object FRAGMENT = struct.Struct("<qB")     # where it ends, and its flags


cdef class ReplayHash(FragmentHandler):
    """A hash of what a replay brings: the place and the payload of each fragment.

    Session ids and reserved values are left out: they may differ between equal logs.
    """

    def __init__(self):
        self._hash = hashlib.sha256()

    def digest(self):
        """The hash of what was read so far (bytes)."""
        return self._hash.digest()

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        self._hash.update(FRAGMENT.pack(header.position, header.flags))
        self._hash.update((<const char*> buffer)[:length])
        return ACTION_CONTINUE


cdef class FirstMessage(FragmentHandler):
    """Keep the first message that a replay brings. A message that begins before the replay is skipped.

    Args:
        is_cluster: skip the messages of other schemas too: extensions have those (bool).
    """

    cdef readonly bytes message             # its first bytes; None until it came
    cdef bint _is_cluster

    def __init__(self, bint is_cluster):
        self._is_cluster = is_cluster

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader found
        if self.message is None and header.flags & FRAME_FLAG_BEGIN:
            if not self._is_cluster or (
                    sbe.sbe_read_header(buffer, length, &found) >= 0 and found.schema_id == codec.CLUSTER_SCHEMA_ID):
                self.message = (<const char*> buffer)[:min(length, <size_t> MESSAGE_BEGIN_LENGTH)]
        return ACTION_CONTINUE


cdef class BackupTransport(FragmentHandler):
    """The consensus stream between a backup and a member, and what the driver's counters show of recordings.

    Args:
        client: of the backup; somebody invokes it (Client).
        channel: on which members answer, with an endpoint, whose port may be 0 (str).
        stream_id: of the consensus stream (int).
    """

    def __init__(self, Client client not None, str channel not None, int32_t stream_id):
        self.client, self.stream_id = client, stream_id
        self._channel, self._counters = channel, client.counters()
        self._messages = deque()
        self._assembler = SessionFragmentAssembler(self)

    # The consensus stream.

    def listen(self):
        """Add the subscription for answers, unless it is there, and wait for its address; a step."""
        if self._subscription is None:
            self._subscription = yield from added(
                self.client.begin_add_subscription(self._channel, self.stream_id, False))
        while self.response_channel() is None:
            yield

    def response_channel(self):
        """The channel on which members answer (str), None while its address is not known."""
        cdef object uri = ChannelUri.parse(self._channel)
        cdef str endpoint
        if not str(uri.get("endpoint")).endswith(":0"):
            return self._channel
        endpoint = "" if self._subscription is None else self._subscription.resolved_endpoint()
        if not endpoint:
            return None
        uri.put("endpoint", f"{uri.get('endpoint').rpartition(':')[0]}:{endpoint.rpartition(':')[2]}")
        return str(uri)

    def connect(self, str channel not None):
        """Add a publication to a member in place of the one before; a step. It is not connected yet."""
        self.disconnect()
        self._publication = yield from added(self.client.begin_add_publication(channel, self.stream_id, True))

    def disconnect(self):
        """Send to no member any more, and drop received messages."""
        cdef Publication publication = self._publication
        self._publication = None
        self._messages.clear()
        if publication is not None:
            publication.close()

    def send(self, bytes message not None):
        """Send a message to the member (bytes); whether it was sent now (bool)."""
        cdef int64_t result
        cdef int _attempt
        if self._publication is None or not self._publication.is_connected():
            return False
        for _attempt in range(SEND_ATTEMPTS):
            result = self._publication.offer(<const uint8_t*> PyBytes_AS_STRING(message), len(message))
            if result > 0:
                return True
            if result == CLOSED or result == MAX_POSITION_EXCEEDED:
                raise ClusterError(f"unexpected state of the consensus publication: {publication_result_name(result)}")
        return False

    def poll(self):
        """Read what has come on the consensus stream; the messages since the last call (list of bytes)."""
        if self._subscription is not None:
            self._subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)
            self._assembler.forget_lost(self._subscription)
        messages = list(self._messages)
        self._messages.clear()
        return messages

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        self._messages.append((<const char*> buffer)[:length])
        return ACTION_CONTINUE

    # The live log.

    def add_subscription(self, str channel not None, int32_t stream_id):
        """Subscribe to a stream; a step that returns the Subscription."""
        return (yield from added(self.client.begin_add_subscription(channel, stream_id, False)))

    def resolved_endpoint(self, Subscription subscription not None):
        """The address of a UDP subscription (str), "" until it is bound."""
        return subscription.resolved_endpoint()

    def read_replay(self, Subscription subscription not None, int32_t session_id, FragmentHandler found not None):
        """Read on in a replay, for a FragmentHandler; the position it is at (int), -1 while it is not there."""
        cdef Image image = subscription.image_by_session_id(session_id)
        if image is None:
            return NULL_VALUE
        image.controlled_poll(found, REPLAY_FRAGMENT_LIMIT)
        return image.position()

    def new_id(self):
        """A number that nobody else of this driver has (int)."""
        return self.client.next_correlation_id()

    def find_recording(self, int32_t session_id, int64_t archive_id):
        """The recording of a session that an archive has active: its counter's id and its own (int), or None."""
        cdef int32_t counter_id = recording_counters.find_by_session(self._counters, session_id, archive_id)
        cdef int64_t recording_id
        if counter_id == NULL_COUNTER_ID or self._counters.registration_id(counter_id) == 0:
            return None
        recording_id = recording_counters.recording_id_of(self._counters, counter_id)
        return None if recording_id < 0 else (counter_id, recording_id)

    def find_position(self, int64_t recording_id, int64_t archive_id):
        """How far an active recording of an archive is (int), None where it is not active."""
        cdef int32_t counter_id = recording_counters.find_by_recording(self._counters, recording_id, archive_id)
        return None if counter_id == NULL_COUNTER_ID else self.position(counter_id, recording_id)

    def position(self, int32_t counter_id, int64_t recording_id):
        """How far a recording is by its counter (int), None once it has stopped."""
        cdef int64_t position = self._counters.value(counter_id)
        # The counter is this recording's only if it still is after its value was read: ids are reused.
        if recording_counters.recording_id_of(self._counters, counter_id) != recording_id:
            return None
        return position

    def nano_time(self):
        """The monotonic clock (int, nanoseconds)."""
        return self.client.clock.nano_time()

    def epoch_ms(self):
        """The time of day (int, milliseconds)."""
        return self.client.clock.epoch_ms()

    def close(self):
        """Close both streams; may be called twice."""
        cdef Subscription subscription = self._subscription
        self.disconnect()
        self._subscription = None
        if subscription is not None:
            subscription.close()


seal((BackupTransport, FirstMessage, ReplayHash))
