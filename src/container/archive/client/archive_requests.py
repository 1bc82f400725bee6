"""Every request to an archive, once for all fronts: the blocking one, and the one for asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from container.archive import error_codes
from container.archive.client.archive_connection import ArchiveRequest
from container.archive.client.archive_events import NULL_POSITION, SourceLocation
from container.errors import ConfigurationError

_NULL = -1
_COUNT_MAX = (1 << 31) - 1


def _relevant_id(request: ArchiveRequest) -> int:
    return request.relevant_id


def _was_active(request: ArchiveRequest) -> bool:
    return request.error is None and request.relevant_id != 0


def _was_known(request: ArchiveRequest) -> bool:
    return request.error is None


def _nothing(_request: ArchiveRequest) -> None:
    return None


def _items(request: ArchiveRequest) -> list[Any]:
    return request.items


def _item(request: ArchiveRequest) -> Any:
    return request.items[0] if request.items else None


def _bytes(text: str, name: str) -> bytes:
    if not isinstance(text, str):
        raise ConfigurationError(f"{name} must be a str, not {text!r}")
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} must be ASCII, not {text!r}") from None


def recording_fields(channel: str, stream_id: int, source_location: SourceLocation, auto_stop: bool) -> dict[str, Any]:
    """Fields of StartRecordingRequest2, and of ExtendRecordingRequest2 beside the recording."""
    return {
        "stream_id": stream_id,
        "source_location": int(SourceLocation(source_location)),
        "auto_stop": int(bool(auto_stop)),
        "channel": _bytes(channel, "channel"),
    }


def replay_fields(
    recording_id: int,
    position: int,
    length: int,
    channel: str,
    stream_id: int,
    file_io_max_length: int = _NULL,
    replay_token: int = _NULL,
) -> dict[str, Any]:
    """Fields of ReplayRequest, and of BoundedReplayRequest beside the counter."""
    return {
        "recording_id": recording_id,
        "position": position,
        "length": length,
        "replay_stream_id": stream_id,
        "file_io_max_length": file_io_max_length,
        "replay_token": replay_token,
        "replay_channel": _bytes(channel, "replay_channel"),
    }


class ArchiveRequests[Whole, Truth, Nothing, Recordings, Recording, Subscriptions](ABC):
    """The requests of a session with an archive (upstream: ``AeronArchive``).

    Positions and lengths are in bytes, ids are those of the archive, channels are Aeron's. Each request raises
    ArchiveError when the archive refuses it, with one of the ``container.archive.error_codes`` as ``code``, and when
    the archive is lost; TimedOutError when it does not answer within the message timeout; ConfigurationError or
    CodecError for what cannot be sent. With asyncio each is awaited.
    """

    @abstractmethod
    def _ask(
        self,
        name: str,
        what: str,
        fields: dict[str, Any],
        answer: Callable[[ArchiveRequest], Any],
        wanted: int = 0,
        absent: int | None = None,
    ) -> Any:
        """Make a request and return what ``answer`` makes of it. An error with the code ``absent`` gives None."""

    # Recording

    def start_recording(
        self,
        channel: str,
        stream_id: int,
        source_location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
    ) -> Whole:
        """Record what is published on a channel and stream: StartRecordingRequest2 (63).

        Args:
            channel: with a ``session-id`` it records that publication alone.
            stream_id: of the stream.
            source_location: LOCAL for a stream that is published on the archive's media driver, which a spy records.
            auto_stop: whether the recording ends for good with its first image.

        Returns:
            The subscription's id, for :meth:`stop_recording`. Each image is a recording of its own, which begins a
            moment later: with the signal START, and a recording position counter.
        """
        return self._ask(
            "StartRecordingRequest2",
            f"start recording of {channel} stream {stream_id}",
            recording_fields(channel, stream_id, source_location, auto_stop),
            _relevant_id,
        )

    def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        source_location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
    ) -> Whole:
        """Extend a stopped recording: ExtendRecordingRequest2 (64). Arguments and result as for
        :meth:`start_recording`.

        The publication must begin where the recording ends: its channel has ``init-term-id``, ``term-id``,
        ``term-offset``, ``term-length`` and ``mtu`` for that.
        """
        return self._ask(
            "ExtendRecordingRequest2",
            f"extension of recording {recording_id} by {channel} stream {stream_id}",
            {"recording_id": recording_id} | recording_fields(channel, stream_id, source_location, auto_stop),
            _relevant_id,
        )

    def stop_recording(self, subscription_id: int) -> Nothing:
        """Record no longer for a subscription: StopRecordingSubscriptionRequest (14).

        ArchiveError with UNKNOWN_SUBSCRIPTION when there is none.
        """
        return self._ask(*self._stop(subscription_id), _nothing)

    def try_stop_recording(self, subscription_id: int) -> Truth:
        """Do :meth:`stop_recording`; whether there was such a subscription."""
        return self._ask(*self._stop(subscription_id), _was_known, absent=error_codes.UNKNOWN_SUBSCRIPTION)

    def stop_recording_of_channel(self, channel: str, stream_id: int) -> Nothing:
        """Record no longer what :meth:`start_recording` was given: StopRecordingRequest (5).

        ArchiveError with UNKNOWN_SUBSCRIPTION when it is not recorded.
        """
        return self._ask(*self._stop_channel(channel, stream_id), _nothing)

    def try_stop_recording_of_channel(self, channel: str, stream_id: int) -> Truth:
        """Do :meth:`stop_recording_of_channel`; whether it was recorded."""
        return self._ask(*self._stop_channel(channel, stream_id), _was_known, absent=error_codes.UNKNOWN_SUBSCRIPTION)

    def try_stop_recording_by_identity(self, recording_id: int) -> Truth:
        """Stop an active recording: StopRecordingByIdentityRequest (65); whether it was active.

        ArchiveError with UNKNOWN_RECORDING when there is no such recording.
        """
        return self._ask(
            "StopRecordingByIdentityRequest",
            f"stop of recording {recording_id}",
            {"recording_id": recording_id},
            _was_active,
        )

    @staticmethod
    def _stop(subscription_id: int) -> tuple[str, str, dict[str, Any]]:
        return (
            "StopRecordingSubscriptionRequest",
            f"stop of recording subscription {subscription_id}",
            {"subscription_id": subscription_id},
        )

    @staticmethod
    def _stop_channel(channel: str, stream_id: int) -> tuple[str, str, dict[str, Any]]:
        fields = {"stream_id": stream_id, "channel": _bytes(channel, "channel")}
        return "StopRecordingRequest", f"stop of recording {channel} stream {stream_id}", fields

    # Replays

    def start_replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        replay_channel: str,
        replay_stream_id: int,
        *,
        file_io_max_length: int = _NULL,
        replay_token: int = _NULL,
    ) -> Whole:
        """Replay a part of a recording: ReplayRequest (6).

        Args:
            recording_id: of the recording.
            position: where the replay begins, on the edge of a frame; NULL_POSITION: where the recording does.
            length: how much, more than there is of an active recording too; REPLAY_ALL_AND_FOLLOW or
                REPLAY_ALL_AND_STOP.
            replay_channel: on which it is published.
            replay_stream_id: likewise.
            file_io_max_length: how much is read at once, an MTU at least; -1: as much as the archive likes.
            replay_token: -1: none.

        Returns:
            The replay session's id, for :meth:`stop_replay`; its lower 32 bits, as a signed number, are the session id
            of the publication. Subscribe with that, and without delay: the archive waits for 5 s.
        """
        return self._ask(
            "ReplayRequest",
            f"replay of recording {recording_id} to {replay_channel} stream {replay_stream_id}",
            replay_fields(
                recording_id, position, length, replay_channel, replay_stream_id, file_io_max_length, replay_token
            ),
            _relevant_id,
        )

    def start_bounded_replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        limit_counter_id: int,
        replay_channel: str,
        replay_stream_id: int,
        *,
        file_io_max_length: int = _NULL,
        replay_token: int = _NULL,
    ) -> Whole:
        """Replay no further than the value of a counter, a position: BoundedReplayRequest (18).

        ``limit_counter_id`` is a counter of the archive's media driver; all else is as for :meth:`start_replay`.
        """
        fields = replay_fields(
            recording_id, position, length, replay_channel, replay_stream_id, file_io_max_length, replay_token
        )
        return self._ask(
            "BoundedReplayRequest",
            f"bounded replay of recording {recording_id} to {replay_channel} stream {replay_stream_id}",
            fields | {"limit_counter_id": limit_counter_id},
            _relevant_id,
        )

    def request_replay_token(self, recording_id: int) -> Whole:
        """Return a token, with which another session may ask for one replay of a recording: ReplayTokenRequest
        (105)."""
        return self._of_recording("ReplayTokenRequest", "replay token", recording_id, _relevant_id)

    def stop_replay(self, replay_session_id: int) -> Nothing:
        """End a replay: StopReplayRequest (7). Nothing happens when it has ended."""
        return self._ask(*self._stop_replay(replay_session_id), _nothing)

    @staticmethod
    def _stop_replay(replay_session_id: int) -> tuple[str, str, dict[str, Any]]:
        return "StopReplayRequest", f"stop of replay {replay_session_id}", {"replay_session_id": replay_session_id}

    def stop_all_replays(self, recording_id: int = _NULL) -> Nothing:
        """End all replays of a recording, or of all (-1): StopAllReplaysRequest (19)."""
        return self._of_recording("StopAllReplaysRequest", "stop of all replays", recording_id, _nothing)

    # Lists of recordings

    def list_recordings(self, from_recording_id: int, record_count: int) -> Recordings:
        """Return the descriptors of at most ``record_count`` recordings, from an id on: ListRecordingsRequest (8)."""
        return self._ask(
            "ListRecordingsRequest",
            f"list of recordings from {from_recording_id}",
            {"from_recording_id": from_recording_id, "record_count": self._count(record_count)},
            _items,
            record_count,
        )

    def list_recordings_for_uri(
        self, from_recording_id: int, record_count: int, channel_fragment: str, stream_id: int
    ) -> Recordings:
        """Return the descriptors of at most ``record_count`` recordings, from an id on, of one stream id whose channel
        contains a text: ListRecordingsForUriRequest (9)."""
        return self._ask(
            "ListRecordingsForUriRequest",
            f"list of recordings of {channel_fragment} stream {stream_id}",
            {
                "from_recording_id": from_recording_id,
                "record_count": self._count(record_count),
                "stream_id": stream_id,
                "channel": _bytes(channel_fragment, "channel_fragment"),
            },
            _items,
            record_count,
        )

    def list_recording(self, recording_id: int) -> Recording:
        """Return the descriptor of a recording, None when there is none: ListRecordingRequest (10)."""
        return self._of_recording("ListRecordingRequest", "descriptor", recording_id, _item, 1)

    def find_last_matching_recording(
        self, min_recording_id: int, channel_fragment: str, stream_id: int, session_id: int
    ) -> Whole:
        """Return the id of the last recording, not before an id, of a stream and session whose channel contains a text;
        -1: none. FindLastMatchingRecordingRequest (16)."""
        return self._ask(
            "FindLastMatchingRecordingRequest",
            f"last recording of {channel_fragment} stream {stream_id} session {session_id}",
            {
                "min_recording_id": min_recording_id,
                "session_id": session_id,
                "stream_id": stream_id,
                "channel": _bytes(channel_fragment, "channel_fragment"),
            },
            _relevant_id,
        )

    def list_recording_subscriptions(
        self,
        pseudo_index: int,
        subscription_count: int,
        channel_fragment: str,
        stream_id: int,
        *,
        apply_stream_id: bool,
    ) -> Subscriptions:
        """Return what the archive listens to in order to record it: ListRecordingSubscriptionsRequest (17).

        Args:
            pseudo_index: number of matching subscriptions to skip.
            subscription_count: maximum number to return.
            channel_fragment: a substring of their channels; "": any.
            stream_id: the id of their streams.
            apply_stream_id: whether to filter by ``stream_id``.
        """
        return self._ask(
            "ListRecordingSubscriptionsRequest",
            f"list of recording subscriptions of {channel_fragment}",
            {
                "pseudo_index": pseudo_index,
                "subscription_count": self._count(subscription_count),
                "apply_stream_id": int(bool(apply_stream_id)),
                "stream_id": stream_id,
                "channel": _bytes(channel_fragment, "channel_fragment"),
            },
            _items,
            subscription_count,
        )

    @staticmethod
    def _count(count: int) -> int:
        if count < 1:
            raise ConfigurationError(f"at least 1 must be listed, not {count}")
        if count > _COUNT_MAX:
            raise ConfigurationError(f"at most {_COUNT_MAX} can be listed, not {count}")
        return count

    # Positions

    def get_start_position(self, recording_id: int) -> Whole:
        """Return where a recording begins: StartPositionRequest (52)."""
        return self._of_recording("StartPositionRequest", "start position", recording_id, _relevant_id)

    def get_stop_position(self, recording_id: int) -> Whole:
        """Return where a recording ends, NULL_POSITION while it is active: StopPositionRequest (15)."""
        return self._of_recording("StopPositionRequest", "stop position", recording_id, _relevant_id)

    def get_recording_position(self, recording_id: int) -> Whole:
        """Return how far a recording is, NULL_POSITION unless it is active: RecordingPositionRequest (12)."""
        return self._of_recording("RecordingPositionRequest", "recording position", recording_id, _relevant_id)

    def get_max_recorded_position(self, recording_id: int) -> Whole:
        """Return how far a recording is, or where it ends: MaxRecordedPositionRequest (67)."""
        return self._of_recording("MaxRecordedPositionRequest", "max recorded position", recording_id, _relevant_id)

    # Recordings and their files

    def truncate_recording(self, recording_id: int, position: int) -> Whole:
        """Cut a stopped recording at a position, on the edge of a frame: TruncateRecordingRequest (13).

        Returns:
            The number of segment files to delete. The archive deletes them after its answer, and signals DELETE at the
                end.
        """
        return self._ask(
            "TruncateRecordingRequest",
            f"truncation of recording {recording_id} at {position}",
            {"recording_id": recording_id, "position": position},
            _relevant_id,
        )

    def purge_recording(self, recording_id: int) -> Whole:
        """Delete a stopped recording: PurgeRecordingRequest (104). Result of :meth:`truncate_recording`."""
        return self._of_recording("PurgeRecordingRequest", "deletion", recording_id, _relevant_id)

    def purge_segments(self, recording_id: int, new_start_position: int) -> Whole:
        """Delete the segment files before a position, at which a segment must begin: PurgeSegmentsRequest (55).

        Returns:
            The number of segment files to delete. The archive deletes them after its answer.
        """
        return self._ask("PurgeSegmentsRequest", *self._new_start(recording_id, new_start_position), _relevant_id)

    def detach_segments(self, recording_id: int, new_start_position: int) -> Nothing:
        """Let a recording begin at a later segment and leave the files before it: DetachSegmentsRequest (53)."""
        return self._ask("DetachSegmentsRequest", *self._new_start(recording_id, new_start_position), _nothing)

    @staticmethod
    def _new_start(recording_id: int, new_start_position: int) -> tuple[str, dict[str, Any]]:
        return (
            f"new start of recording {recording_id} at {new_start_position}",
            {"recording_id": recording_id, "new_start_position": new_start_position},
        )

    def delete_detached_segments(self, recording_id: int) -> Whole:
        """Delete the files before a recording's start: DeleteDetachedSegmentsRequest (54); how many."""
        return self._of_recording(
            "DeleteDetachedSegmentsRequest", "deletion of detached segments", recording_id, _relevant_id
        )

    def attach_segments(self, recording_id: int) -> Whole:
        """Let a recording begin with the first of the files before its start: AttachSegmentsRequest (56); how many
        segments it gets."""
        return self._of_recording("AttachSegmentsRequest", "attachment of segments", recording_id, _relevant_id)

    def migrate_segments(self, src_recording_id: int, dst_recording_id: int) -> Whole:
        """Move the segments of a stopped recording in front of another, or behind it: MigrateSegmentsRequest (57); how
        many. The source is empty then."""
        return self._ask(
            "MigrateSegmentsRequest",
            f"migration of segments of recording {src_recording_id} to {dst_recording_id}",
            {"src_recording_id": src_recording_id, "dst_recording_id": dst_recording_id},
            _relevant_id,
        )

    def update_channel(self, recording_id: int, channel: str) -> Nothing:
        """Replace the channel of a recording in the catalog: UpdateChannelRequest (107)."""
        return self._ask(
            "UpdateChannelRequest",
            f"update of the channel of recording {recording_id}",
            {"recording_id": recording_id, "channel": _bytes(channel, "channel")},
            _nothing,
        )

    # Replications

    def replicate(
        self,
        src_recording_id: int,
        src_control_stream_id: int,
        src_control_channel: str,
        *,
        dst_recording_id: int = _NULL,
        stop_position: int = NULL_POSITION,
        live_destination: str = "",
        replication_channel: str = "",
        channel_tag_id: int = _NULL,
        subscription_tag_id: int = _NULL,
        file_io_max_length: int = _NULL,
        replication_session_id: int = _NULL,
        encoded_credentials: bytes = b"",
        src_response_channel: str = "",
    ) -> Whole:
        """Copy a recording of another archive to this one: ReplicateRequest2 (66).

        Args:
            src_recording_id: the id of the recording there.
            src_control_stream_id: the stream on which that archive takes requests.
            src_control_channel: the channel on which it does.
            dst_recording_id: the id of the recording here to extend; -1: make a new one.
            stop_position: the position where the copy ends; NULL_POSITION: the end of the recording.
            live_destination: a multicast or MDC channel that the copy joins when it has caught up; "": none.
            replication_channel: the channel on which the source replays; "": the archive's own.
            channel_tag_id: tag of that channel; -1: none.
            subscription_tag_id: tag of the subscription to it; -1: none.
            file_io_max_length: bytes that the source reads at once; -1: the source chooses.
            replication_session_id: the session id of the replay's publication; -1: any.
            encoded_credentials: credentials for the source.
            src_response_channel: the channel on which the source answers; "": the archive's own.

        Returns:
            The replication's id, for :meth:`stop_replication`. Signals report its progress: REPLICATE, EXTEND, MERGE,
            SYNC, STOP, and REPLICATE_END whatever came of it.
        """
        return self._ask(
            "ReplicateRequest2",
            f"replication of recording {src_recording_id} of {src_control_channel}",
            {
                "src_recording_id": src_recording_id,
                "dst_recording_id": dst_recording_id,
                "stop_position": stop_position,
                "channel_tag_id": channel_tag_id,
                "subscription_tag_id": subscription_tag_id,
                "src_control_stream_id": src_control_stream_id,
                "file_io_max_length": file_io_max_length,
                "replication_session_id": replication_session_id,
                "src_control_channel": _bytes(src_control_channel, "src_control_channel"),
                "live_destination": _bytes(live_destination, "live_destination"),
                "replication_channel": _bytes(replication_channel, "replication_channel"),
                "encoded_credentials": bytes(encoded_credentials),
                "src_response_channel": _bytes(src_response_channel, "src_response_channel"),
            },
            _relevant_id,
        )

    def tagged_replicate(
        self,
        src_recording_id: int,
        dst_recording_id: int,
        channel_tag_id: int,
        subscription_tag_id: int,
        src_control_stream_id: int,
        src_control_channel: str,
        live_destination: str = "",
    ) -> Whole:
        """Do :meth:`replicate` with tags, so that a subscription of another client follows the merge."""
        return self.replicate(
            src_recording_id,
            src_control_stream_id,
            src_control_channel,
            dst_recording_id=dst_recording_id,
            live_destination=live_destination,
            channel_tag_id=channel_tag_id,
            subscription_tag_id=subscription_tag_id,
        )

    def stop_replication(self, replication_id: int) -> Nothing:
        """End a replication: StopReplicationRequest (51). ArchiveError with UNKNOWN_REPLICATION when there is none."""
        return self._ask(*self._stop_replication(replication_id), _nothing)

    def try_stop_replication(self, replication_id: int) -> Truth:
        """Do :meth:`stop_replication`; whether there was such a replication."""
        return self._ask(*self._stop_replication(replication_id), _was_known, absent=error_codes.UNKNOWN_REPLICATION)

    @staticmethod
    def _stop_replication(replication_id: int) -> tuple[str, str, dict[str, Any]]:
        return "StopReplicationRequest", f"stop of replication {replication_id}", {"replication_id": replication_id}

    def _of_recording(
        self, name: str, what: str, recording_id: int, answer: Callable[[ArchiveRequest], Any], wanted: int = 0
    ) -> Any:
        return self._ask(name, f"{what} of recording {recording_id}", {"recording_id": recording_id}, answer, wanted)
