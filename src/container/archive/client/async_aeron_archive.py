"""The client of an archive for asyncio."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
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
from container.common.doors import EnteredByAsyncWith, Entering, make
from container.errors import ArchiveError, TimedOutError
from container.files.catalog import RecordingDescriptor
from container.transport.transport_seam import Client

_SPINS = 50
"""Turns in a row, with the loop's other tasks between them, before a pause."""
_BUSY_PAUSE_S = 0.000_5
_QUIET_PAUSE_S = 0.01


class AsyncAeronArchive(
    ArchiveSession[
        Awaitable[int],
        Awaitable[bool],
        Awaitable[None],
        Awaitable[list[RecordingDescriptor]],
        Awaitable[RecordingDescriptor | None],
        Awaitable[list[RecordingSubscriptionDescriptor]],
    ],
    EnteredByAsyncWith,
):
    """A session with an archive for one event loop, made by :meth:`connect`.

    Each request is awaited; many may be at once, such as with ``asyncio.gather``. One that is cancelled may have been
    carried out. A task of the session takes its turns.
    """

    def __init__(self, connection: ArchiveConnection, owned_client: Client | None = None) -> None:
        """Take over a connected session; use :meth:`connect`."""
        super().__init__(connection, owned_client)
        self._wake = asyncio.Event()
        self._lost: Exception | None = None
        self._task = asyncio.get_running_loop().create_task(self._take_turns())

    @staticmethod
    def connect(
        context: ArchiveClientContext | None = None,
        *,
        client: Client | None = None,
        aeron_dir: str | os.PathLike[str] | None = None,
        on_signal: SignalConsumer | None = None,
        **settings: Any,
    ) -> Connecting:
        """Open a session for asyncio: ``async with AsyncAeronArchive.connect(...) as archive``, or ``await`` it.

        Arguments and errors as for :meth:`AeronArchive.connect`.
        """
        return Connecting(
            context_of(context, settings, "client", "aeron_dir", "on_signal"), client, aeron_dir, on_signal
        )

    async def reconnect(self) -> None:
        """Open a new session, with new streams, in place of one that is lost or not. Raises as the connect; may be
        called again then. Requests that wait end with ArchiveError."""
        await self._end_turns()
        try:
            self._connection.reconnect()
            await _connect(self._connection)
        except BaseException as error:
            self._lost = error if isinstance(error, Exception) else ArchiveError("no connection to the archive")
            raise
        self._lost = None
        self._task = asyncio.get_running_loop().create_task(self._take_turns())

    def check_for_error_response(self) -> None:
        """Raise ArchiveError when the archive has told this session of an error that answers no request, such as one of
        a recording; or what ended the session."""
        self._check_not_lost()
        error = self._connection.take_error()
        if error is not None:
            raise error

    # Streams

    async def add_recorded_publication(
        self, channel: str, stream_id: int, *, is_exclusive: bool = True
    ) -> RecordedPublication:
        """Do as :meth:`AeronArchive.add_recorded_publication`."""
        publication: RecordedPublication = await self._added(
            StreamAdd.publication(self._connection, channel, stream_id, is_exclusive), channel
        )
        try:
            await self.start_recording(add_session_id(channel, publication.session_id), stream_id, auto_stop=True)
        except BaseException:
            publication.close()
            raise
        return publication

    async def extend_recorded_publication(self, recording_id: int, channel: str, stream_id: int) -> RecordedPublication:
        """Do as :meth:`AeronArchive.extend_recorded_publication`."""
        continued = continued_channel(channel, recording_id, await self.list_recording(recording_id))
        publication: RecordedPublication = await self._added(
            StreamAdd.publication(self._connection, continued, stream_id, True), channel
        )
        try:
            own = add_session_id(channel, publication.session_id)
            await self.extend_recording(recording_id, own, stream_id, auto_stop=True)
        except BaseException:
            publication.close()
            raise
        return publication

    async def replay(
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
        """Do as :meth:`AeronArchive.replay`."""
        replay_session_id = await self._begin_replay(
            recording_id,
            position,
            length,
            replay_channel,
            replay_stream_id,
            file_io_max_length,
            bounding_limit_counter_id,
        )
        replay: Replay = await self._added(
            StreamAdd.replay(self._connection, replay_channel, replay_stream_id, replay_session_id), replay_channel
        )
        return replay

    async def read(self, replay: Replay) -> AsyncIterator[tuple[bytes, int]]:
        """Yield as :meth:`AeronArchive.read`."""
        taken: list[tuple[bytes, int]] = []
        spins = 0
        with replay:
            while True:
                has_ended = replay.has_ended
                work_count = replay.poll(lambda message, position: taken.append((message, position)), READ_LIMIT)
                for each in taken:
                    yield each
                taken.clear()
                spins = 0 if work_count > 0 else spins + 1
                if work_count == 0 and has_ended:
                    await self.stop_replay(replay.replay_session_id)  # as AeronArchive, which says why
                    self.check_for_error_response()
                    replay.check_end()
                    return
                if work_count == 0:
                    self.check_for_error_response()
                await asyncio.sleep(0 if spins < _SPINS else _BUSY_PAUSE_S)

    async def _added(self, pending: StreamAdd, channel: str) -> Any:
        limit_s = self.context.message_timeout_ns / 1e9
        try:
            async with asyncio.timeout(limit_s):
                while (added := pending.poll()) is None:
                    await asyncio.sleep(_BUSY_PAUSE_S)
                return added
        except TimeoutError:
            pending.close()
            raise TimedOutError(f"waited {limit_s:g} s for the driver to add {channel}") from None
        except BaseException:
            pending.close()
            raise

    # Asking

    async def _ask(
        self,
        name: str,
        what: str,
        fields: dict[str, Any],
        answer: Callable[[ArchiveRequest], Any],
        wanted: int = 0,
        absent: int | None = None,
    ) -> Any:
        self._check_not_lost()
        request = self._connection.ask(name, what, fields, wanted)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request.on_done = lambda _request: None if done.done() else done.set_result(None)
        self._wake.set()
        try:
            await done
        finally:
            self._connection.forget(request)
        if request.error is not None and (
            absent is None or not isinstance(request.error, ArchiveError) or request.error.code != absent
        ):
            raise failure(request)
        return answer(request)

    def _check_not_lost(self) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)  # each raise would make it longer

    async def _take_turns(self) -> None:
        spins = 0
        try:
            while True:
                work_count = self._connection.invoke() + self._connection.turn()
                spins = 0 if work_count > 0 else spins + 1
                if self._connection.waiting == 0:
                    self._wake.clear()
                    await _woken(self._wake, _QUIET_PAUSE_S)
                    spins = 0
                else:
                    await asyncio.sleep(0 if spins < _SPINS else _BUSY_PAUSE_S)
        except Exception as error:  # the archive is lost, or sends garbage: no more answers come
            self._lost = error
            self._connection.fail(error)

    async def _end_turns(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def aclose(self) -> None:
        """End the session and close its streams; a client of its own is closed too. May be called twice.

        Requests that wait end with ArchiveError.
        """
        try:
            await self._end_turns()
        finally:
            self._close_streams()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None and connection.step != "CLOSED":
            warnings.warn(
                f"unclosed {self!r}: use 'async with AsyncAeronArchive.connect(...)'", ResourceWarning, stacklevel=2
            )


async def _woken(event: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        pass


async def _own_client(aeron_dir: str | os.PathLike[str] | None, context: ArchiveClientContext) -> Client:
    """Make an Aeron client in a thread; one that comes after the task was cancelled is closed."""
    making = asyncio.get_running_loop().run_in_executor(None, own_client, aeron_dir, context)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(lambda made: made.exception() or made.result().close())
        raise


async def _connect(connection: ArchiveConnection) -> None:
    """Take turns until it is connected."""
    while connection.step != "CONNECTED":
        work_count = connection.invoke() + connection.turn()
        await asyncio.sleep(0 if work_count > 0 else _BUSY_PAUSE_S)


class Connecting(Entering):
    """A session about to be opened: await it, or use it in ``async with``."""

    _client_type = AsyncAeronArchive

    def __init__(
        self,
        context: ArchiveClientContext,
        client: Client | None,
        aeron_dir: str | os.PathLike[str] | None,
        on_signal: SignalConsumer | None,
    ) -> None:
        self._arguments = context, client, aeron_dir, on_signal
        self._archive: AsyncAeronArchive | None = None

    def __await__(self) -> Generator[Any, Any, AsyncAeronArchive]:
        return self._connect().__await__()

    async def _connect(self) -> AsyncAeronArchive:
        context, client, aeron_dir, on_signal = self._arguments
        owned: Client | None = None
        connection: ArchiveConnection | None = None
        try:
            if client is None:  # which may have to wait for its driver
                client = owned = await _own_client(aeron_dir, context)
            connection = ArchiveConnection(client, context)
            connection.on_signal = on_signal
            await _connect(connection)
            return make(AsyncAeronArchive, connection, owned)
        except BaseException:
            if connection is not None:
                connection.close()
            if owned is not None:
                owned.close()
            raise

    async def __aenter__(self) -> AsyncAeronArchive:
        self._archive = await self
        return self._archive

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._archive is not None:
            await self._archive.aclose()
