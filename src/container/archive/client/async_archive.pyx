"""A client of an archive for those who take turns anyway: it answers one request at a time, and never waits.

A replication asks its source with it, the consensus module its member's archive.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_connection cimport CONNECTED, ArchiveConnection, ArchiveRequest
from container.archive.client.archive_events import SourceLocation
from container.archive.client.archive_requests import recording_fields, replay_fields
from container.common.sealed cimport initialise, seal
from container.errors import ArchiveError
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Publication


class _Credentials:
    """Those of a client that knows no answer to a challenge."""

    def __init__(self, encoded):
        self._encoded = encoded

    def encoded_credentials(self):
        return self._encoded

    def on_challenge(self, encoded_challenge):
        raise ArchiveError("replication does not support challenge/response authentication")


cdef class AsyncArchive(ArchiveConnection):
    """A session with an archive; :meth:`poll` connects it, and then answers one request at a time.

    Args:
        client: what its streams are added to, and what somebody invokes (Client).
        control_channel, control_stream_id: what that archive listens to (str, int).
        response_channel, response_stream_id: what it answers on (str, int).
        term_buffer_length, mtu_length: in bytes; and is_sparse (bool): of both channels where they do not say.
        client_name: what that archive shows of this client (str).
        encoded_credentials: for that archive (bytes).
        message_timeout_ns: limit of the connect, and of each request (int).

    Raises ConfigurationError for a channel that is none.
    """

    def __init__(
        self, Client client not None, *, str control_channel not None, int32_t control_stream_id,
        str response_channel not None, int32_t response_stream_id, int64_t term_buffer_length, int64_t mtu_length,
        bint is_sparse, str client_name not None, bytes encoded_credentials not None, int64_t message_timeout_ns
    ):
        initialise(ArchiveConnection, self, (client, ArchiveClientContext(
            control_channel=control_channel, control_stream_id=control_stream_id, response_channel=response_channel,
            response_stream_id=response_stream_id, term_buffer_length=term_buffer_length, mtu_length=mtu_length,
            term_buffer_sparse=is_sparse, client_name=client_name, message_timeout_ns=message_timeout_ns,
            credentials_supplier=_Credentials(encoded_credentials))), {})
        self.request_id = self.relevant_id = NULL_VALUE

    cdef bint is_waiting(self) noexcept:
        """Whether a request waits for its answer: no other can be made."""
        return self._asked is not None and not self._asked.is_done

    cpdef bint poll(self) except -1:
        """Take a turn; whether it is connected and no request waits for its answer any more (bool).

        The answer is in :attr:`relevant_id` and :attr:`descriptor`. Raises ArchiveError when the archive reports an
        error, whatever that is about, and when it is lost; TimedOutError when it does not answer in time, and the
        request is forgotten then; RegistrationError when the driver refuses a stream; CodecError.
        """
        cdef ArchiveRequest asked
        try:
            self.turn()
        except BaseException:
            if self._asked is not None and self._asked.is_done:
                self._asked = None
            raise
        asked = self._asked
        if asked is not None and asked.is_done:
            self._asked = None
            if asked.error is not None:
                raise asked.error
            self.relevant_id = asked.relevant_id
            self.descriptor = asked.items[0] if asked.items else None
            return True
        if self._step != CONNECTED:
            return False
        error = self.take_error()
        if error is not None:
            raise error
        return asked is None

    cpdef int list_recording(self, int64_t recording_id) except -1:
        """Ask what is known of a recording (10): :attr:`descriptor`."""
        return self._begin_request(
            "ListRecordingRequest", f"the descriptor of recording {recording_id}", {"recording_id": recording_id}, 1)

    cpdef int recording_position(self, int64_t recording_id) except -1:
        """Ask how far a recording is recorded, in bytes (12): :attr:`relevant_id`, -1 unless it is active."""
        return self._begin_request(
            "RecordingPositionRequest", f"the position of recording {recording_id}", {"recording_id": recording_id})

    cpdef int replay_token(self, int64_t recording_id) except -1:
        """Ask for a token, with which another publication may ask for a replay (105): :attr:`relevant_id`."""
        return self._begin_request(
            "ReplayTokenRequest", f"a token for a replay of recording {recording_id}", {"recording_id": recording_id})

    cpdef int replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id,
        int32_t file_io_max_length, int64_t replay_token=NULL_VALUE, Publication publication=None
    ) except -1:
        """Ask for a replay (6): :attr:`relevant_id` is its id.

        Args:
            recording_id: of the recording.
            position, length: which part of it, in bytes; a length of -1 follows it to its end.
            channel, stream_id: on which it is replayed.
            file_io_max_length: how much is read at once, in bytes; -1: as that archive likes.
            replay_token: -1: none.
            publication: on which the request is sent in place of the session's own.
        """
        return self._begin_request(
            "ReplayRequest", f"the replay of recording {recording_id} to {channel}",
            replay_fields(recording_id, position, length, channel, stream_id, file_io_max_length, replay_token),
            0, publication)

    cpdef int start_recording(self, str channel, int32_t stream_id, bint is_local, bint is_auto_stop) except -1:
        """Ask that a stream be recorded (63): :attr:`relevant_id` is the id of the subscription.

        Args:
            channel, stream_id: what is recorded.
            is_local: whether it is published on this driver.
            is_auto_stop: whether the recording stops for good with its first image.
        """
        return self._begin_request(
            "StartRecordingRequest2", f"the start of a recording of {channel}",
            _recorded(channel, stream_id, is_local, is_auto_stop))

    cpdef int extend_recording(
        self, int64_t recording_id, str channel, int32_t stream_id, bint is_local, bint is_auto_stop
    ) except -1:
        """Ask that a recording go on (64), with the stream and the answer of :meth:`start_recording`."""
        return self._begin_request(
            "ExtendRecordingRequest2", f"recording {recording_id} to go on with {channel}",
            {"recording_id": recording_id} | _recorded(channel, stream_id, is_local, is_auto_stop))

    cpdef int stop_recording(self, int64_t subscription_id) except -1:
        """Ask that a stream be recorded no longer (14); ArchiveError with UNKNOWN_SUBSCRIPTION where it is not."""
        return self._begin_request(
            "StopRecordingSubscriptionRequest", f"the end of the recording of subscription {subscription_id}",
            {"subscription_id": subscription_id})

    cpdef int stop_recording_by_identity(self, int64_t recording_id) except -1:
        """Ask that a recording be stopped (65): :attr:`relevant_id` is 1 where it was active, else 0."""
        return self._begin_request(
            "StopRecordingByIdentityRequest", f"the end of recording {recording_id}", {"recording_id": recording_id})

    cpdef int stop_position(self, int64_t recording_id) except -1:
        """Ask where a recording ends, in bytes (15): :attr:`relevant_id`, -1 while it is active."""
        return self._begin_request(
            "StopPositionRequest", f"the stop position of recording {recording_id}", {"recording_id": recording_id})

    cpdef int purge_recording(self, int64_t recording_id) except -1:
        """Ask that a stopped recording be deleted with all its files (104), which goes on after the answer."""
        return self._begin_request(
            "PurgeRecordingRequest", f"the deletion of recording {recording_id}", {"recording_id": recording_id})

    cpdef int purge_segments(self, int64_t recording_id, int64_t new_start_position) except -1:
        """Ask that a recording begin at a later segment (55): :attr:`relevant_id` is how many are deleted."""
        return self._begin_request(
            "PurgeSegmentsRequest", f"recording {recording_id} to begin at {new_start_position}",
            {"recording_id": recording_id, "new_start_position": new_start_position})

    cpdef int stop_replay(self, int64_t replay_session_id) except -1:
        """Ask that a replay be stopped (7), without waiting for the answer. Raises ArchiveError when it cannot."""
        return self.tell("StopReplayRequest", {"replay_session_id": replay_session_id})

    cdef int _begin_request(
        self, str name, str what, dict fields, int32_t wanted=0, Publication publication=None
    ) except -1:
        self._asked = self.ask(name, what, fields, wanted, NULL_VALUE, publication)
        self.request_id = self._asked.correlation_id
        self.descriptor = None
        self.relevant_id = NULL_VALUE
        return 0


cdef dict _recorded(str channel, int32_t stream_id, bint is_local, bint is_auto_stop):
    return recording_fields(
        channel, stream_id, SourceLocation.LOCAL if is_local else SourceLocation.REMOTE, is_auto_stop)


seal((AsyncArchive,))
