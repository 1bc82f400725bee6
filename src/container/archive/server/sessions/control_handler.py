"""The interface that carries out requests of an archive's clients: one method each, with plain arguments.

Names are those of upstream's ControlSession.java and ArchiveConductor.java; arguments have the names of the message's
fields, and come by name. A field that the sender's version lacks has its default. Recordings, subscriptions, replays
and replications are ids; positions and lengths are in bytes; channels are texts as the client sent them, in which every
byte that is not ASCII is U+FFFD. No value has been checked, except that the message contains it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from container.transport.streams import Image

__all__ = ["ControlHandler", "ControlRequest"]


class ControlRequest(NamedTuple):
    """The ids that every request of a control session has."""

    template_id: int
    """Which message it is: what an authorisation service is asked about."""
    control_session_id: int
    """The session it says it is of."""
    correlation_id: int
    """The correlation id for its reply; -1 for a message that has none."""
    image_correlation_id: int
    """Which image of the request subscription it came on; another one each time that a publication comes back."""


class ControlHandler(Protocol):
    """Carries out clients' requests. An error of a method is reported, and the next request is handed over."""

    def on_connect(
        self,
        image: Image,
        *,
        correlation_id: int,
        response_stream_id: int,
        version: int = 0,
        response_channel: str,
        encoded_credentials: bytes = b"",
        client_info: str = "",
    ) -> object:
        """A client wants a session: messages 2, without credentials and info, and 58."""

    def on_close_session(self, request: ControlRequest) -> object:
        """The client is done with its session (3)."""

    def on_challenge_response(self, request: ControlRequest, encoded_credentials: bytes) -> object:
        """The client answers a challenge (60)."""

    def on_keep_alive(self, request: ControlRequest) -> object:
        """The client has got the answer to its connect (61); there is no reply."""

    def on_archive_id(self, request: ControlRequest) -> object:
        """What is the archive's id? (68)"""

    def on_start_recording(
        self, request: ControlRequest, *, stream_id: int, is_local: bool, auto_stop: bool = False, channel: str
    ) -> object:
        """Record a channel into new recordings: 63, and 4 which does not stop by itself."""

    def on_extend_recording(
        self,
        request: ControlRequest,
        *,
        recording_id: int,
        stream_id: int,
        is_local: bool,
        auto_stop: bool = False,
        channel: str,
    ) -> object:
        """Record a channel at the end of a recording: 64, and 11 which does not stop by itself."""

    def on_stop_recording(self, request: ControlRequest, stream_id: int, channel: str) -> object:
        """Stop what a channel is recorded into (5)."""

    def on_stop_recording_subscription(self, request: ControlRequest, subscription_id: int) -> object:
        """Stop what a subscription is recorded into (14)."""

    def on_stop_recording_by_identity(self, request: ControlRequest, recording_id: int) -> object:
        """Stop a recording (65)."""

    def on_replay(
        self,
        request: ControlRequest,
        *,
        recording_id: int,
        position: int,
        length: int,
        replay_stream_id: int,
        file_io_max_length: int = -1,
        replay_token: int = -1,
        replay_channel: str,
    ) -> object:
        """Replay a recording (6)."""

    def on_bounded_replay(
        self,
        request: ControlRequest,
        *,
        recording_id: int,
        position: int,
        length: int,
        limit_counter_id: int,
        replay_stream_id: int,
        file_io_max_length: int = -1,
        replay_token: int = -1,
        replay_channel: str,
    ) -> object:
        """Replay a recording no farther than a counter says (18); otherwise as a replay."""

    def on_stop_replay(self, request: ControlRequest, replay_session_id: int) -> object:
        """Stop a replay (7)."""

    def on_stop_all_replays(self, request: ControlRequest, recording_id: int) -> object:
        """Stop the replays of a recording, or of all for -1 (19)."""

    def on_replay_token(self, request: ControlRequest, recording_id: int) -> object:
        """Give a token by which another connection may ask for a replay (105)."""

    def on_list_recording(self, request: ControlRequest, recording_id: int) -> object:
        """Describe a recording (10)."""

    def on_list_recordings(self, request: ControlRequest, from_recording_id: int, record_count: int) -> object:
        """Describe recordings from an id on (8)."""

    def on_list_recordings_for_uri(
        self,
        request: ControlRequest,
        from_recording_id: int,
        record_count: int,
        stream_id: int,
        channel: bytes,
    ) -> object:
        """Describe recordings from an id on whose channel contains a text (9)."""

    def on_find_last_matching_recording(
        self,
        request: ControlRequest,
        min_recording_id: int,
        session_id: int,
        stream_id: int,
        channel: bytes,
    ) -> object:
        """Find the newest recording whose channel contains a text (16)."""

    def on_list_recording_subscriptions(
        self,
        request: ControlRequest,
        pseudo_index: int,
        subscription_count: int,
        apply_stream_id: bool,
        stream_id: int,
        channel: bytes,
    ) -> object:
        """Describe what is subscribed to be recorded (17)."""

    def on_get_start_position(self, request: ControlRequest, recording_id: int) -> object:
        """Where does a recording begin? (52)"""

    def on_get_recording_position(self, request: ControlRequest, recording_id: int) -> object:
        """How far is a recording recorded, that is active? (12)"""

    def on_get_stop_position(self, request: ControlRequest, recording_id: int) -> object:
        """Where did a recording stop? (15)"""

    def on_get_max_recorded_position(self, request: ControlRequest, recording_id: int) -> object:
        """How far is a recording recorded, active or not? (67)"""

    def on_truncate_recording(self, request: ControlRequest, recording_id: int, position: int) -> object:
        """Cut a recording off at a position (13)."""

    def on_purge_recording(self, request: ControlRequest, recording_id: int) -> object:
        """Delete a recording (104)."""

    def on_detach_segments(self, request: ControlRequest, recording_id: int, new_start_position: int) -> object:
        """Let a recording begin at a later segment (53)."""

    def on_delete_detached_segments(self, request: ControlRequest, recording_id: int) -> object:
        """Delete the segments before a recording's beginning (54)."""

    def on_purge_segments(self, request: ControlRequest, recording_id: int, new_start_position: int) -> object:
        """Let a recording begin at a later segment, and delete those before it (55)."""

    def on_attach_segments(self, request: ControlRequest, recording_id: int) -> object:
        """Let a recording begin at the earliest segment that is there (56)."""

    def on_migrate_segments(self, request: ControlRequest, src_recording_id: int, dst_recording_id: int) -> object:
        """Move the segments of a recording to another one (57)."""

    def on_update_channel(self, request: ControlRequest, recording_id: int, channel: str) -> object:
        """Change the channel that the catalog has of a recording (107)."""

    def on_replicate(
        self,
        request: ControlRequest,
        *,
        src_recording_id: int,
        dst_recording_id: int,
        stop_position: int = -1,
        channel_tag_id: int = -1,
        subscription_tag_id: int = -1,
        src_control_stream_id: int,
        file_io_max_length: int = -1,
        replication_session_id: int = -1,
        src_control_channel: str,
        live_destination: str,
        replication_channel: str = "",
        encoded_credentials: bytes = b"",
        src_response_channel: str = "",
    ) -> object:
        """Copy a recording of another archive: 66, and 50 and 62 which do not have all that."""

    def on_stop_replication(self, request: ControlRequest, replication_id: int) -> object:
        """Stop a replication (51)."""
