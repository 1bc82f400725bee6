"""A request for a replication, and upstream's checks of it before it connects anywhere.

The checks, their order, codes and texts are those of ``ArchiveConductor.replicate``, except for one: an invalid
replication channel gets an error in reply, where upstream does not reply at all.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from container.archive.channel_texts import parse_channel
from container.archive.error_codes import ACTIVE_RECORDING, GENERIC, UNKNOWN_RECORDING
from container.errors import ArchiveError, ConfigurationError

__all__ = ["NULL_VALUE", "Recordings", "ReplicationRequest", "check_replication_request", "is_response_channel"]

NULL_VALUE = -1
"""As an id: none. As a position: no limit."""


class ReplicationRequest(NamedTuple):
    """A client's request: which recording of which archive to copy, and how.

    Channels are texts as the client sent them, in which every byte that is not ASCII is U+FFFD.
    """

    src_recording_id: int
    """The recording at the source."""
    dst_recording_id: int = NULL_VALUE
    """The local recording to extend; -1: a new one."""
    stop_position: int = NULL_VALUE
    """How far to copy, in bytes; -1: up to the end."""
    channel_tag_id: int = NULL_VALUE
    subscription_tag_id: int = NULL_VALUE
    """Tags of the recording subscription, which then has several destinations; -1: none."""
    src_control_stream_id: int = 10
    """Where the source listens, with :attr:`src_control_channel`."""
    file_io_max_length: int = NULL_VALUE
    """How much the source is to read at once, in bytes; -1: as it likes."""
    replication_session_id: int = NULL_VALUE
    """Session id of the stream by which it is copied; -1: that of the recording."""
    src_control_channel: str = ""
    live_destination: str = ""
    """The channel of the recorded stream itself, to follow it after the copy; empty: a copy is enough."""
    replication_channel: str = ""
    """On which the source replays; empty: the archive's own."""
    encoded_credentials: bytes = b""
    """For the source."""
    src_response_channel: str = ""
    """On which the source answers; empty: the archive's own."""

    def __repr__(self) -> str:
        """All but the credentials."""
        shown = [f"{name}={value!r}" for name, value in self._asdict().items() if name != "encoded_credentials"]
        return f"ReplicationRequest({', '.join(shown)})"


class _Catalog(Protocol):
    def has(self, recording_id: int, /) -> bool: ...

    def stop_position(self, recording_id: int, /) -> int: ...


class Recordings(Protocol):
    """The recordings, as the check asks about them: a RecordingStore."""

    @property
    def catalog(self) -> _Catalog:
        """The catalog, in which a recording that is active has no stop position."""

    def is_active(self, recording_id: int) -> bool:
        """Whether a recording is being written."""


def check_replication_request(request: ReplicationRequest, store: Recordings, default_channel: str = "") -> None:
    """Check what a client asks for against the recordings of this archive.

    ``default_channel`` is the archive's own, for a request without a replication channel. Raises ArchiveError, with the
    code and the text for the client.
    """
    channel = request.replication_channel or default_channel
    if channel:
        _check_channel(request, channel)
    recording_id = request.dst_recording_id
    if recording_id == NULL_VALUE:
        return
    if not store.catalog.has(recording_id):
        raise ArchiveError(f"unknown destination recording id {recording_id}", code=UNKNOWN_RECORDING)
    if store.is_active(recording_id) or store.catalog.stop_position(recording_id) == NULL_VALUE:
        raise ArchiveError(f"cannot replicate to active recording {recording_id}", code=ACTIVE_RECORDING)


def _check_channel(request: ReplicationRequest, channel: str) -> None:
    try:
        is_response = is_response_channel(channel)
    except ConfigurationError as error:
        raise ArchiveError(f"invalid replication channel: {error}", code=GENERIC) from error
    if is_response and request.live_destination:
        raise ArchiveError("response channels can't be used with live destinations", code=GENERIC)
    if is_response and (request.channel_tag_id != NULL_VALUE or request.subscription_tag_id != NULL_VALUE):
        raise ArchiveError("response channels can't be used with tagged replication", code=GENERIC)


def is_response_channel(channel: str) -> bool:
    """Whether a channel is answered on the connection of the one who asked.

    Raises ConfigurationError for what is not a channel.
    """
    return parse_channel(channel).get("control-mode") == "response"
