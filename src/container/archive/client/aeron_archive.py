"""The client of an archive that waits for each answer (upstream: AeronArchive.java)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_connection import ArchiveConnection, ArchiveRequest, failure
from container.archive.client.archive_events import RecordingSubscriptionDescriptor
from container.archive.client.archive_session import (
    READ_LIMIT,
    ArchiveSession,
    SignalConsumer,
    context_of,
    continued_channel,
    own_client,
)
from container.archive.client.archive_streams import RecordedPublication, Replay, StreamAdd
from container.common.channel_uri import add_session_id
from container.common.doors import EnteredByWith, make
from container.errors import ArchiveError
from container.files.catalog import RecordingDescriptor
from container.transport.idle_strategy import BackoffIdleStrategy, IdleStrategy
from container.transport.transport_seam import Client


class AeronArchive(
    ArchiveSession[
        int, bool, None, list[RecordingDescriptor], RecordingDescriptor | None, list[RecordingSubscriptionDescriptor]
    ],
    EnteredByWith,
):
    """A session with an archive, made by :meth:`connect`; for one thread at a time.

    Each request waits for its answer, idling with the session's idle strategy. ``with`` closes the session.
    """

    def __init__(
        self, connection: ArchiveConnection, idle_strategy: IdleStrategy, owned_client: Client | None = None
    ) -> None:
        """Take over a connected session; use :meth:`connect`."""
        super().__init__(connection, owned_client)
        self._idle = idle_strategy

    @classmethod
    def connect(
        cls,
        context: ArchiveClientContext | None = None,
        *,
        client: Client | None = None,
        aeron_dir: str | os.PathLike[str] | None = None,
        idle_strategy: IdleStrategy | None = None,
        on_signal: SignalConsumer | None = None,
        **settings: Any,
    ) -> Self:
        """Open a session with an archive; wait for at most the message timeout.

        Args:
            context: where the archive is; or else ``settings``, which are those of :class:`ArchiveClientContext`:
                ``control_channel``, ``response_channel``, ``credentials_supplier`` and so on.
            client: an Aeron client, which stays open; without one the session has its own.
            aeron_dir: the media driver's directory, for a client of its own; None: Aeron's default.
            idle_strategy: of each wait; None: one that backs off to 1 ms.
            on_signal: is called with each RecordingSignalEvent of this session, while a request waits or
                :meth:`poll_for_recording_signals` is called.

        Raises:
            TimedOutError: no answer in time; the text says which step did not happen.
            ArchiveError: the archive refuses, such as with AUTHENTICATION_REJECTED, or is lost.
            ConfigurationError: a setting or a channel is wrong.
        """
        context = context_of(context, settings, "client", "aeron_dir", "idle_strategy", "on_signal")
        idle_strategy = BackoffIdleStrategy() if idle_strategy is None else idle_strategy
        owned = own_client(aeron_dir, context) if client is None else None
        connection: ArchiveConnection | None = None
        try:
            connection = ArchiveConnection(client or owned, context)  # type: ignore[arg-type]
            connection.on_signal = on_signal
            connection.connect(idle_strategy)
        except BaseException:
            if connection is not None:
                connection.close()
            if owned is not None:
                owned.close()
            raise
        return make(cls, connection, idle_strategy, owned)

    def reconnect(self) -> None:
        """Open a new session, with new streams, in place of one that is lost or not. Waits and raises as
        :meth:`connect`; may be called again then.

        Recordings continue without a session. Replays do too, but nobody receives their errors.
        """
        self._connection.reconnect()
        self._connection.connect(self._idle)

    def check_for_error_response(self) -> None:
        """Raise ArchiveError when the archive is lost, or has reported an error that answers no request, such as one of
        a recording. Never waits."""
        self._connection.invoke()
        self._connection.check()

    def poll_for_error_response(self) -> str | None:
        """Return the text of such an error; None when there is none. Raises ArchiveError when the archive is lost."""
        self._connection.invoke()
        self._connection.turn()
        error = self._connection.take_error()
        return None if error is None else str(error)

    def poll_for_recording_signals(self) -> int:
        """Call ``on_signal`` with the signals that have come; return the number of messages read. Never waits.

        Raises as :meth:`check_for_error_response`.
        """
        self._connection.invoke()
        work_count = self._connection.turn()
        error = self._connection.take_error()
        if error is not None:
            raise error
        return work_count

    # Streams

    def add_recorded_publication(
        self, channel: str, stream_id: int, *, is_exclusive: bool = True
    ) -> RecordedPublication:
        """Publish on a channel and have the archive, which must use the same media driver, record that publication.

        The recording ends with :meth:`RecordedPublication.close`. Raises ArchiveError when somebody has the publication
        already: its recording would lack what came before.
        """
        publication: RecordedPublication = self._added(
            StreamAdd.publication(self._connection, channel, stream_id, is_exclusive), channel
        )
        try:
            self.start_recording(add_session_id(channel, publication.session_id), stream_id, auto_stop=True)
        except BaseException:
            publication.close()
            raise
        return publication

    def extend_recorded_publication(self, recording_id: int, channel: str, stream_id: int) -> RecordedPublication:
        """Publish on a channel from the end of a stopped recording, which the archive extends.

        The recording ends with :meth:`RecordedPublication.close`. Raises ArchiveError when there is no such recording,
        or it is active.
        """
        continued = continued_channel(channel, recording_id, self.list_recording(recording_id))
        publication: RecordedPublication = self._added(
            StreamAdd.publication(self._connection, continued, stream_id, True), channel
        )
        try:
            self.extend_recording(
                recording_id, add_session_id(channel, publication.session_id), stream_id, auto_stop=True
            )
        except BaseException:
            publication.close()
            raise
        return publication

    def replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        replay_channel: str,
        replay_stream_id: int,
        *,
        file_io_max_length: int = -1,
        bounding_limit_counter_id: int = -1,
    ) -> Replay:
        """Start a replay and subscribe to it; arguments as for :meth:`start_replay`.

        ``bounding_limit_counter_id`` is the counter of :meth:`start_bounded_replay`, -1: none.
        """
        replay_session_id = self._begin_replay(
            recording_id,
            position,
            length,
            replay_channel,
            replay_stream_id,
            file_io_max_length,
            bounding_limit_counter_id,
        )
        replay: Replay = self._added(
            StreamAdd.replay(self._connection, replay_channel, replay_stream_id, replay_session_id), replay_channel
        )
        return replay

    def read(self, replay: Replay) -> Iterator[tuple[bytes, int]]:
        """Yield each message of a replay, and where it ends in the recording, until the replay ends; close it then.

        Idles while nothing comes. Raises ArchiveError when the archive reports an error or is lost, and when the
        replay's image goes before everything was read; TimedOutError when the replay does not begin. The messages are
        complete only if nothing is raised: a failed replay ends as a finished one does.
        """
        taken: list[tuple[bytes, int]] = []
        with replay:
            while True:
                has_ended = replay.has_ended
                work_count = replay.poll(lambda message, position: taken.append((message, position)), READ_LIMIT)
                yield from taken
                taken.clear()
                if work_count > 0:
                    continue
                if has_ended:
                    self._confirm_end(replay)
                    return
                self._connection.check()
                self._connection.idle(self._idle, 0)

    def _confirm_end(self, replay: Replay) -> None:
        """Wait for an error of a replay that has ended: the archive reports it before it answers this request."""
        request = self._connection.ask(*self._stop_replay(replay.replay_session_id))
        try:
            while not request.is_done:
                self._connection.check()
                self._connection.idle(self._idle, 0)
        finally:
            self._connection.forget(request)
        if request.error is not None:
            raise failure(request)
        replay.check_end()

    def _added(self, pending: StreamAdd, channel: str) -> Any:
        """Wait for the resource that the driver was asked to add, and return it."""
        return pending.wait(self._idle, f"the driver to add {channel}")

    # Asking

    def _ask(
        self,
        name: str,
        what: str,
        fields: dict[str, Any],
        answer: Callable[[ArchiveRequest], Any],
        wanted: int = 0,
        absent: int | None = None,
    ) -> Any:
        request = self._connection.ask(name, what, fields, wanted)
        try:
            self._connection.wait_for(request, self._idle)
        except ArchiveError as error:
            if absent is None or request.error is None or error.code != absent:
                raise
        return answer(request)

    def close(self) -> None:
        """End the session and close its streams; a client of its own is closed too. May be called twice."""
        self._close_streams()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
