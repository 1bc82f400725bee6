"""A session with an archive, whatever front it has: who it is, its streams, and the client of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from container.archive import error_codes
from container.archive.client.archive_client_context import SETTINGS, ArchiveClientContext, check_names
from container.archive.client.archive_connection import ArchiveConnection
from container.archive.client.archive_events import NULL_POSITION, RecordingSignalEvent
from container.archive.client.archive_requests import ArchiveRequests
from container.archive.client.replay_merge import ReplayMerge
from container.common.channel_uri import ChannelUri, initial_position
from container.errors import ArchiveError, ConfigurationError
from container.files.catalog import RecordingDescriptor
from container.transport.transport_seam import Client

READ_LIMIT = 64
"""Frames of a replay that are read at once."""

type SignalConsumer = Callable[[RecordingSignalEvent], object]


def context_of(context: ArchiveClientContext | None, settings: dict[str, Any], *keywords: str) -> ArchiveClientContext:
    """The context, or one of these settings. ``keywords`` are what the call takes beside."""
    check_names(settings, (*SETTINGS, *keywords))
    if context is None:
        return ArchiveClientContext(**settings)
    if settings:
        raise ConfigurationError(f"give a context or settings, not both: {', '.join(sorted(settings))}")
    return context


def own_client(aeron_dir: str | os.PathLike[str] | None, context: ArchiveClientContext) -> Client:
    """An Aeron client for one session."""
    from container.aeron.client import AeronClient

    return AeronClient(aeron_dir, context.client_name or "archive-client")


def continued_channel(channel: str, recording_id: int, descriptor: RecordingDescriptor | None) -> str:
    """The channel of a publication that begins where a recording ends.

    Raises ArchiveError when there is no such recording (None), or it is active.
    """
    if descriptor is None:
        raise ArchiveError(f"unknown recording id: {recording_id}", code=error_codes.UNKNOWN_RECORDING)
    if descriptor.stop_position == NULL_POSITION:
        raise ArchiveError(
            f"recording {recording_id} is active: nothing can continue where it ends", code=error_codes.ACTIVE_RECORDING
        )
    uri = ChannelUri.parse(channel)
    uri.put("term-length", str(descriptor.term_buffer_length))
    uri.put("mtu", str(descriptor.mtu_length))
    uri.params |= initial_position(descriptor.stop_position, descriptor.initial_term_id, descriptor.term_buffer_length)
    return str(uri)


class ArchiveSession[Whole, Truth, Nothing, Recordings, Recording, Subscriptions](
    ArchiveRequests[Whole, Truth, Nothing, Recordings, Recording, Subscriptions]
):
    """The common part of the fronts."""

    def __init__(self, connection: ArchiveConnection, owned_client: Client | None) -> None:
        self._connection = connection
        self._owned_client = owned_client

    @property
    def context(self) -> ArchiveClientContext:
        """Where the archive is."""
        return self._connection.context

    @property
    def archive_id(self) -> int:
        """Id of the archive; -1 for one before 1.11."""
        return self._connection.archive_id

    @property
    def control_session_id(self) -> int:
        """Id of the session, of the archive's making."""
        return self._connection.control_session_id

    @property
    def is_connected(self) -> bool:
        """Whether the archive still has the session, as far as is known."""
        return self._connection.is_connected

    def replay_merge(
        self,
        *,
        channel: str,
        stream_id: int,
        replay_channel: str,
        replay_destination: str,
        live_destination: str,
        recording_id: int,
        start_position: int,
        progress_timeout_ns: int = 5_000_000_000,
    ) -> ReplayMerge:
        """Replay an active recording until it has caught up with the live stream, then read the live stream.

        Poll the result, which never waits, in place of a replay. All channels are UDP.

        Args:
            channel: the subscription's: ``aeron:udp?control-mode=manual|session-id=…`` with the stream's session id.
            stream_id: of the stream.
            replay_channel: ``aeron:udp?session-id=…``, with the same session id.
            replay_destination: where the replay arrives, such as ``aeron:udp?endpoint=localhost:0``.
            live_destination: where the live stream does, such as ``aeron:udp?endpoint=localhost:0|control=host:port``.
            recording_id: of the recording.
            start_position: where to begin.
            progress_timeout_ns: maximum time without progress, in nanoseconds.

        Raises:
            ConfigurationError: a channel is IPC, or the subscription's is not ``control-mode=manual``.
        """
        return ReplayMerge(
            self._connection,
            channel=channel,
            stream_id=stream_id,
            replay_channel=replay_channel,
            replay_destination=replay_destination,
            live_destination=live_destination,
            recording_id=recording_id,
            start_position=start_position,
            progress_timeout_ns=progress_timeout_ns,
        )

    def _begin_replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        replay_channel: str,
        replay_stream_id: int,
        file_io_max_length: int,
        bounding_limit_counter_id: int,
    ) -> Whole:
        """Start a replay, bounded by a counter unless that is -1."""
        if bounding_limit_counter_id == -1:
            return self.start_replay(
                recording_id, position, length, replay_channel, replay_stream_id, file_io_max_length=file_io_max_length
            )
        return self.start_bounded_replay(
            recording_id,
            position,
            length,
            bounding_limit_counter_id,
            replay_channel,
            replay_stream_id,
            file_io_max_length=file_io_max_length,
        )

    def _close_streams(self) -> None:
        try:
            self._connection.close()
        finally:
            if self._owned_client is not None:
                self._owned_client.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._connection!r} archive_id={self.archive_id}>"
