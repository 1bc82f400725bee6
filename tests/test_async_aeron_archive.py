"""The client of an archive for asyncio, against the native archive in memory, whose turns are the loop's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from container.archive import (
    REPLAY_ALL_AND_STOP,
    ArchiveClientContext,
    AsyncAeronArchive,
    RecordingSignal,
    RecordingSignalEvent,
    error_codes,
)
from container.archive.client import async_aeron_archive
from container.errors import ArchiveError, TimedOutError
from container.testing.memory.memory_transport import MemoryClient
from tests.archive_tour import CHANNEL, REPLAY_CHANNEL, SEGMENT_LENGTH
from tests.archive_world import DIRECTORY, ArchiveWorld
from tests.control_world import CONTROL_CHANNEL
from tests.limits import LIMIT_S
from tests.pauses import pause, run, until

MS = 1_000_000
CONTEXT = ArchiveClientContext(control_channel=CONTROL_CHANNEL)


class Scene:
    """An archive in memory that works while the loop runs, and a session with it."""

    def __init__(self, world: ArchiveWorld, client: MemoryClient, archive: AsyncAeronArchive) -> None:
        self.world = world
        self.client = client
        self.archive = archive
        self.signals: list[RecordingSignalEvent] = []

    async def until_it_fails(self) -> None:
        while True:
            self.archive.check_for_error_response()
            await pause()

    async def recording(self, *messages: bytes) -> tuple[int, int]:
        publication = await self.archive.add_recorded_publication(CHANNEL, 1001)
        for message in messages:
            while publication.offer(message) < 0:
                await pause()
        end = publication.position
        [descriptor] = await self.archive.list_recordings_for_uri(0, 1, "aeron:ipc", 1001)
        while await self.archive.get_recording_position(descriptor.recording_id) < end:
            await pause()
        publication.close()
        while await self.archive.get_stop_position(descriptor.recording_id) == -1:
            await pause()
        return descriptor.recording_id, end


@asynccontextmanager
async def scene(**settings: Any) -> AsyncIterator[Scene]:
    world = ArchiveWorld(**settings)

    async def work() -> None:
        while True:
            world.clock.advance(MS)
            world.work()
            await pause()

    working = asyncio.get_running_loop().create_task(work())
    client = world.driver.connect("program")
    signals: list[RecordingSignalEvent] = []
    try:
        async with (
            AsyncAeronArchive.connect(CONTEXT, client=client, on_signal=signals.append) as archive,
        ):
            made = Scene(world, client, archive)
            made.signals = signals
            yield made
    finally:
        working.cancel()
    assert client.open_resources == []


def test_a_stream_is_recorded_and_replayed() -> None:
    async def main() -> None:
        async with scene() as made:
            sent = [b"%d" % number * 100 for number in range(50)]
            recording_id, end = await made.recording(*sent)
            replay = await made.archive.replay(recording_id, 0, end, REPLAY_CHANNEL, 2001)
            read = [each async for each in made.archive.read(replay)]
            assert [message for message, _ in read] == sent
            assert read[-1][1] == end
            assert RecordingSignal.STOP in [each.signal for each in made.signals]
            again = await made.archive.extend_recorded_publication(recording_id, CHANNEL, 1001)
            assert again.position == end
            again.close()
            with pytest.raises(ArchiveError) as refused:
                await made.archive.extend_recorded_publication(99, CHANNEL, 1001)
            assert refused.value.code == error_codes.UNKNOWN_RECORDING

    run(main())


def test_many_requests_are_in_flight_at_once() -> None:
    async def main() -> None:
        async with scene() as made:
            recording_id, end = await made.recording(b"one")
            ask = made.archive.get_stop_position
            answers = await asyncio.gather(*(ask(recording_id + number % 2) for number in range(100)),
                                           return_exceptions=True)  # fmt: skip
            assert answers[::2] == [end] * 50
            assert {getattr(each, "code", None) for each in answers[1::2]} == {error_codes.UNKNOWN_RECORDING}
            assert await made.archive.list_recording(99) is None
            assert not await made.archive.try_stop_recording(99)
            with pytest.raises(ArchiveError, match="^stop of recording subscription 99: "):
                await made.archive.stop_recording(99)

    run(main())


def test_a_request_that_is_cancelled_disturbs_no_other() -> None:
    async def main() -> None:
        async with scene() as made:
            recording_id, end = await made.recording(b"one")
            cancelled = asyncio.ensure_future(made.archive.get_stop_position(recording_id))
            await pause()
            cancelled.cancel()
            assert await made.archive.get_stop_position(recording_id) == end
            assert cancelled.cancelled()

    run(main())


def test_a_lost_archive_is_told_to_all_and_a_new_session_can_be_had() -> None:
    async def main() -> None:
        async with scene() as made:
            recording_id, end = await made.recording(b"one")
            assert made.archive.is_connected
            made.archive.check_for_error_response()
            first = made.archive.control_session_id
            made.world.reopen()
            with pytest.raises(ArchiveError, match="connection to the archive is lost"):
                await made.until_it_fails()
            with pytest.raises(ArchiveError, match="connection to the archive is lost"):
                await made.archive.get_stop_position(recording_id)
            await made.archive.reconnect()
            assert await made.archive.get_stop_position(recording_id) == end
            await made.archive.reconnect()
            assert made.archive.control_session_id != first
            assert (made.archive.archive_id, made.archive.context) == (42, CONTEXT)

    run(main())


def test_requests_end_with_the_session() -> None:
    async def main() -> None:
        async with scene() as made:
            waiting = asyncio.ensure_future(made.archive.get_stop_position(0))
            await pause()
            await made.archive.aclose()
            with pytest.raises(ArchiveError, match="client is closed"):
                await waiting
            with pytest.raises(ArchiveError, match="client is closed"):
                await made.archive.get_stop_position(0)

    run(main())


def test_a_replay_that_fails_is_told_to_its_reader() -> None:
    async def main() -> None:
        async with scene() as made:
            recording_id, _ = await made.recording(b"one")
            replay = await made.archive.replay(recording_id, 0, -1, REPLAY_CHANNEL, 2001)
            await made.archive.start_replay(recording_id, 0, -1, "aeron:ipc?alias=nobody", 2002)  # nobody joins it
            with pytest.raises(ArchiveError, match="no connection established for replayChannel"):
                await made.until_it_fails()
            replay.close()

    run(main())


def test_a_connect_that_is_not_answered_leaves_nothing() -> None:
    async def main() -> None:
        world = ArchiveWorld()
        world.close()
        client = world.driver.connect("program")

        async def pass_time() -> None:
            while True:
                world.clock.advance(MS)
                await pause()

        passing = asyncio.get_running_loop().create_task(pass_time())
        with pytest.raises(TimedOutError, match="step AWAIT_PUBLICATION_CONNECTED"):
            await AsyncAeronArchive.connect(CONTEXT, client=client)
        passing.cancel()
        assert client.open_resources == []

    run(main())


def test_a_replay_that_fails_is_not_taken_for_whole() -> None:
    async def main() -> None:
        async with scene() as made:
            recording_id, _ = await made.recording(*[b"m" * 992] * 300)
            made.world.storage.unlink(f"{DIRECTORY}/{recording_id}-{SEGMENT_LENGTH}.rec")
            read: list[bytes] = []
            replay = await made.archive.replay(recording_id, 0, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, 2001)
            with pytest.raises(ArchiveError, match=f"recordingId={recording_id}"):  # noqa: PT012
                async for message, _ in made.archive.read(replay):
                    read.append(message)
            assert len(read) == 128

    run(main())


class SlowClient:
    """A client that is made while its session is given up."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.closed = (threading.Event() for _ in range(3))

    def make(self, *_arguments: object) -> SlowClient:
        self.begun.set()
        assert self.may_end.wait(LIMIT_S)
        return self

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("is_loop_over", [False, True])
def test_a_client_that_comes_after_its_connect_was_cancelled_is_closed(
    monkeypatch: pytest.MonkeyPatch, is_loop_over: bool
) -> None:
    client = SlowClient()
    monkeypatch.setattr(async_aeron_archive, "own_client", client.make)

    async def main() -> None:
        connecting = asyncio.ensure_future(AsyncAeronArchive.connect(CONTEXT)._connect())
        await until(client.begun.is_set, "the thread to begin")
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        client.may_end.set()
        if not is_loop_over:
            await until(client.closed.is_set, "the client to be closed")

    run(main())
    assert client.closed.is_set()


def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async def main() -> None:
        async with scene() as made:
            closing = asyncio.ensure_future(made.archive.aclose())
            await pause()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert made.client.open_resources == []

    run(main())


def test_a_session_that_is_lost_says_so_as_shortly_each_time() -> None:
    async def main() -> None:
        async with scene() as made:
            made.world.reopen()
            with pytest.raises(ArchiveError, match="is lost"):
                await made.until_it_fails()
            lengths = []
            for _ in range(3):
                with pytest.raises(ArchiveError, match="is lost") as lost:
                    await made.archive.get_stop_position(0)
                lengths.append(len(lost.traceback))
            assert len(set(lengths)) == 1

    run(main())


def test_a_reconnect_that_fails_is_told_to_whoever_checks() -> None:
    async def main() -> None:
        async with scene() as made:
            made.world.close()
            made.world.open()
            made.world.conductor.close()
            with pytest.raises(TimedOutError):
                await made.archive.reconnect()
            with pytest.raises(TimedOutError):
                made.archive.check_for_error_response()

    run(main())
