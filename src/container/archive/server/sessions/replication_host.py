"""The interface that a replication uses of its archive: the conductor implements it."""

from __future__ import annotations

from typing import Protocol

from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.recording_subscription import RecordingSubscription
from container.archive.server.store.recording_store import RecordingStore
from container.settings.archive_table import ArchiveSettings
from container.transport.transport_seam import Client

__all__ = ["ReplicationHost"]


class ReplicationHost(Protocol):
    """An archive as its replications see it."""

    @property
    def client(self) -> Client:
        """The client that adds the streams to the other archive; the host invokes it."""

    @property
    def store(self) -> RecordingStore:
        """The recordings, one of which is replicated into."""

    @property
    def settings(self) -> ArchiveSettings:
        """Channels, streams and time limits for the other archive."""

    def extend_for_replication(
        self,
        control_session: ControlSession,
        replication_id: int,
        recording_id: int,
        stream_id: int,
        channel: str,
        original_channel: str,
    ) -> RecordingSubscription:
        """Record a channel of another host at the end of a recording, as a request to extend it would, with auto-stop.

        The subscription is the host's, which polls it and closes it when it ends. For what comes later the host sends
        ``control_session`` what it sends for such a request, with ``replication_id`` as the correlation id: OK once the
        driver has added the subscription, EXTEND, STOP, and an error when nothing can be recorded.

        Args:
            control_session: the session that asked for the replication.
            replication_id: the replication's id.
            recording_id: the id of the recording to extend.
            stream_id: the stream's id.
            channel: the channel to subscribe to.
            original_channel: the channel as a list of subscriptions shows it.

        Raises ArchiveError when it cannot be begun: the replication then sends the error.
        """

    def stop_recording(self, subscription: RecordingSubscription) -> None:
        """End what is recorded on a subscription, and the subscription; nothing when it has ended already."""
