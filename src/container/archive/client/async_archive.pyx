"""A client of an archive for those who take turns anyway: any number of requests at once, and it never waits.

A replication asks its source with it, the consensus module its member's archive. Upstream: AeronArchive.java,
ArchiveProxy.java.
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
    """A session with an archive; :meth:`poll` connects it, and then gives each request its answer.

    An error goes to the request that it answers: its ``error``. One that comes later is that of a request which is
    followed (:meth:`follow`), or of nobody: :meth:`take_error`.

    Args:
        client: what its streams are added to, and what somebody invokes (Client).
        control_channel, control_stream_id: what that archive listens to (str, int).
        response_channel, response_stream_id: what it answers on (str, int).
        term_buffer_length, mtu_length: in bytes; and is_sparse (bool): of both channels where they do not say.
        client_name: what that archive shows of this client (str).
        encoded_credentials: for that archive (bytes).
        message_timeout_ns: limit of the connect, and of each request (int).

    Raises ConfigurationError for an invalid channel.
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

    cpdef bint poll(self) except -1:
        """Take a turn, in which each answer comes to its request; whether it is connected (bool).

        Raises ArchiveError when the archive refuses the connect or is lost: all requests have that error then;
        TimedOutError when it does not answer the connect in time; RegistrationError when the driver refuses a stream;
        CodecError.
        """
        self.turn()
        return self._step == CONNECTED

    # Each of these returns its request, with a limit of its own. Answers are in ``relevant_id`` and ``items``.

    cpdef ArchiveRequest list_recording(self, int64_t recording_id):
        """Ask what is known of a recording (ListRecordingRequest, 10): an item, or none where it is unknown."""
        return self.ask(
            "ListRecordingRequest", f"the descriptor of recording {recording_id}", {"recording_id": recording_id}, 1)

    cpdef ArchiveRequest find_last_matching_recording(
        self, int64_t min_recording_id, str channel_fragment, int32_t stream_id, int32_t session_id
    ):
        """Ask for the last recording of a session (FindLastMatchingRecordingRequest, 16): its id, -1 for none.

        Args:
            min_recording_id: no recording before this one counts.
            channel_fragment: what its channel contains.
            stream_id, session_id: of the recording.
        """
        return self.ask(
            "FindLastMatchingRecordingRequest", f"the last recording of session {session_id} on stream {stream_id}",
            {"min_recording_id": min_recording_id, "session_id": session_id, "stream_id": stream_id,
             "channel": channel_fragment.encode("ascii")})

    cpdef ArchiveRequest recording_position(self, int64_t recording_id):
        """Ask how far a recording is recorded, in bytes (RecordingPositionRequest, 12); -1 unless it is active."""
        return self.ask(
            "RecordingPositionRequest", f"the position of recording {recording_id}", {"recording_id": recording_id})

    cpdef ArchiveRequest replay_token(self, int64_t recording_id):
        """Ask for a token, with which another publication may ask for a replay (ReplayTokenRequest, 105)."""
        return self.ask(
            "ReplayTokenRequest", f"a token for a replay of recording {recording_id}", {"recording_id": recording_id})

    cpdef ArchiveRequest replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id,
        int32_t file_io_max_length, int64_t replay_token=NULL_VALUE, Publication publication=None
    ):
        """Ask for a replay (ReplayRequest, 6): the answer is its id.

        Args:
            recording_id: of the recording.
            position, length: which part of it, in bytes; a length of -1 follows it to its end.
            channel, stream_id: on which it is replayed.
            file_io_max_length: how much is read at once, in bytes; -1: as that archive likes.
            replay_token: -1: none.
            publication: on which the request is sent in place of the session's own.
        """
        return self.ask(
            "ReplayRequest", f"the replay of recording {recording_id} to {channel}",
            replay_fields(recording_id, position, length, channel, stream_id, file_io_max_length, replay_token),
            0, NULL_VALUE, publication)

    cpdef ArchiveRequest bounded_replay(
        self, int64_t recording_id, int64_t position, int64_t length, int32_t limit_counter_id, str channel,
        int32_t stream_id
    ):
        """Ask for a replay that goes no further than a counter of the archive's driver says (BoundedReplayRequest, 18).

        Args and answer: as of :meth:`replay`; ``limit_counter_id``: of that counter, a position in bytes.
        """
        return self.ask(
            "BoundedReplayRequest", f"the bounded replay of recording {recording_id} to {channel}",
            replay_fields(recording_id, position, length, channel, stream_id) | {"limit_counter_id": limit_counter_id})

    cpdef ArchiveRequest start_recording(self, str channel, int32_t stream_id, bint is_local, bint is_auto_stop):
        """Ask that a stream be recorded (StartRecordingRequest2, 63): the answer is the id of the subscription.

        Args:
            channel, stream_id: what is recorded.
            is_local: whether it is published on this driver.
            is_auto_stop: whether the recording stops for good with its first image.
        """
        return self.ask(
            "StartRecordingRequest2", f"the start of a recording of {channel}",
            _recorded(channel, stream_id, is_local, is_auto_stop))

    cpdef ArchiveRequest extend_recording(
        self, int64_t recording_id, str channel, int32_t stream_id, bint is_local, bint is_auto_stop
    ):
        """Ask to extend a recording (ExtendRecordingRequest2, 64), with stream and answer as for
        :meth:`start_recording`."""
        return self.ask(
            "ExtendRecordingRequest2", f"recording {recording_id} to continue with {channel}",
            {"recording_id": recording_id} | _recorded(channel, stream_id, is_local, is_auto_stop))

    cpdef ArchiveRequest stop_recording(self, int64_t subscription_id):
        """Ask that a stream be recorded no longer (StopRecordingSubscriptionRequest, 14).

        ArchiveError with UNKNOWN_SUBSCRIPTION where it is not.
        """
        return self.ask(
            "StopRecordingSubscriptionRequest", f"the end of the recording of subscription {subscription_id}",
            {"subscription_id": subscription_id})

    def stop_recording_of_channel(self, str channel not None, int32_t stream_id):
        """Ask that a channel be recorded no longer (StopRecordingRequest, 5), as it was named at the start.

        ArchiveError with UNKNOWN_SUBSCRIPTION where it is not.
        """
        return self.ask(
            "StopRecordingRequest", f"the end of the recording of {channel}",
            {"stream_id": stream_id, "channel": channel.encode("ascii")})

    cpdef ArchiveRequest stop_recording_by_identity(self, int64_t recording_id):
        """Ask that a recording be stopped (StopRecordingByIdentityRequest, 65): 1 where it was active, else 0."""
        return self.ask(
            "StopRecordingByIdentityRequest", f"the end of recording {recording_id}", {"recording_id": recording_id})

    cpdef ArchiveRequest stop_position(self, int64_t recording_id):
        """Ask where a recording ends, in bytes (StopPositionRequest, 15); -1 while it is active."""
        return self.ask(
            "StopPositionRequest", f"the stop position of recording {recording_id}", {"recording_id": recording_id})

    cpdef ArchiveRequest truncate_recording(self, int64_t recording_id, int64_t position):
        """Ask that a stopped recording end earlier, at a frame (TruncateRecordingRequest, 13): how many files go.

        They go after the answer; the signal DELETE says when. ArchiveError while it is replayed from behind there.
        """
        return self.ask(
            "TruncateRecordingRequest", f"recording {recording_id} to end at {position}",
            {"recording_id": recording_id, "position": position})

    cpdef ArchiveRequest purge_recording(self, int64_t recording_id):
        """Ask that a stopped recording be deleted with all its files (PurgeRecordingRequest, 104).

        They go after the answer.
        """
        return self.ask(
            "PurgeRecordingRequest", f"the deletion of recording {recording_id}", {"recording_id": recording_id})

    cpdef ArchiveRequest purge_segments(self, int64_t recording_id, int64_t new_start_position):
        """Ask that a recording begin at a later segment (PurgeSegmentsRequest, 55): how many are deleted."""
        return self.ask(
            "PurgeSegmentsRequest", f"recording {recording_id} to begin at {new_start_position}",
            {"recording_id": recording_id, "new_start_position": new_start_position})

    cpdef ArchiveRequest replicate(
        self, int64_t source_recording_id, int64_t recording_id, str source_channel, int32_t source_stream_id,
        int64_t stop_position, str replication_channel, int32_t replication_session_id,
        str source_response_channel="", bytes encoded_credentials=b""
    ):
        """Ask for a copy of another archive's recording (ReplicateRequest2, 66): the answer is the replication's id.

        All that the archive says of it later, signals and errors, has that id as its correlation id; the last of it is
        REPLICATE_END.

        Args:
            source_recording_id: the id of the recording in the other archive.
            recording_id: the id of the recording here to extend; -1: make a new one.
            source_channel, source_stream_id: where the other archive takes requests.
            stop_position: the position where the copy ends, in bytes; -1: the end of the recording.
            replication_channel: the channel on which the source replays.
            replication_session_id: the session id of that replay.
            source_response_channel: the channel on which the source answers; "": the archive's own.
            encoded_credentials: credentials for the source.
        """
        return self.ask(
            "ReplicateRequest2", f"the replication of recording {source_recording_id} of {source_channel}", {
                "src_recording_id": source_recording_id,
                "dst_recording_id": recording_id,
                "stop_position": stop_position,
                "channel_tag_id": NULL_VALUE,
                "subscription_tag_id": NULL_VALUE,
                "src_control_stream_id": source_stream_id,
                "file_io_max_length": NULL_VALUE,
                "replication_session_id": replication_session_id,
                "src_control_channel": source_channel.encode("ascii"),
                "live_destination": b"",
                "replication_channel": replication_channel.encode("ascii"),
                "encoded_credentials": encoded_credentials,
                "src_response_channel": source_response_channel.encode("ascii"),
            })

    cpdef ArchiveRequest stop_replication(self, int64_t replication_id):
        """Ask that a replication end (StopReplicationRequest, 51).

        ArchiveError with UNKNOWN_REPLICATION where it has ended.
        """
        return self.ask(
            "StopReplicationRequest", f"the end of replication {replication_id}", {"replication_id": replication_id})

    cpdef ArchiveRequest stop_all_replays(self, int64_t recording_id):
        """Ask that all replays of a recording end (StopAllReplaysRequest, 19)."""
        return self.ask(
            "StopAllReplaysRequest", f"the end of all replays of recording {recording_id}",
            {"recording_id": recording_id})

    cpdef int stop_replay(self, int64_t replay_session_id) except -1:
        """Ask that a replay be stopped (StopReplayRequest, 7), without waiting for the answer.

        Raises ArchiveError when it cannot.
        """
        return self.tell("StopReplayRequest", {"replay_session_id": replay_session_id})


cdef dict _recorded(str channel, int32_t stream_id, bint is_local, bint is_auto_stop):
    return recording_fields(
        channel, stream_id, SourceLocation.LOCAL if is_local else SourceLocation.REMOTE, is_auto_stop)


seal((AsyncArchive,))
