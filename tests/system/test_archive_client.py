"""The public client of an archive against Java's archive and ours, as processes: the same comes of every request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from container.aeron import AeronClient
from container.archive import AeronArchive, AsyncAeronArchive, RecordingSignalEvent, error_codes
from container.errors import ArchiveError, ConfigurationError
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.local_archive import ARCHIVE_KINDS, LocalArchive
from container.testing.processes.process import wait_until
from examples import record_and_replay
from tests.archive_tour import CHANNEL, REPLAY_CHANNEL, SEGMENT_LENGTH, TOURS, Tour
from tests.limits import LIMIT_S
from tests.pauses import pause, run
from tests.system.archive_requests import start_driver

CONTROL_CHANNEL = "aeron:ipc"
PROPERTIES = {
    "aeron.archive.segment.file.length": str(SEGMENT_LENGTH),
    "aeron.archive.message.timeout": "2s",  # of a replication whose source does not answer
}
RECORDING_POSITION = 100


@pytest.fixture(scope="module", params=ARCHIVE_KINDS)
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalArchive]:
    directory: Path = tmp_path_factory.mktemp(request.param)
    with (
        start_driver(directory),
        LocalArchive(request.param, directory, directory / "driver", properties=PROPERTIES) as archive,
    ):
        archive.start()
        archive.await_ready()
        yield archive


def counter_of(client: AeronClient, recording_id: int) -> int:
    for counter_id, type_id, label, _ in seam.counters(client).read():
        if type_id == RECORDING_POSITION and label.startswith(f"rec-pos: {recording_id} "):
            return counter_id
    raise AssertionError(f"recording {recording_id} has no counter")


@pytest.mark.parametrize("tour", TOURS, ids=lambda tour: tour.__name__)
@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "network"])
def test_every_request_is_done_or_refused(archive: LocalArchive, tour: Callable[[Tour], None], is_remote: bool) -> None:
    signals: list[RecordingSignalEvent] = []
    control_channel = archive.control_channel if is_remote else CONTROL_CHANNEL
    with (
        AeronClient(archive.aeron_dir, "program") as client,
        AeronArchive.connect(
            client=client,
            control_channel=control_channel,
            response_channel="aeron:udp?endpoint=localhost:0" if is_remote else "aeron:ipc",
            on_signal=signals.append,
        ) as connected,
    ):

        def until(predicate: Callable[[], object]) -> None:
            def is_true() -> bool:
                seam.invoke(client)
                return bool(predicate())

            wait_until(is_true, LIMIT_S, "a step of the tour")

        tour(
            Tour(
                connected, until, lambda recording_id: counter_of(client, recording_id), signals,
                archive.control_channel
            )
        )  # fmt: skip


def test_a_session_has_its_own_client_if_it_is_given_none(archive: LocalArchive) -> None:
    with AeronArchive.connect(aeron_dir=archive.aeron_dir, control_channel=CONTROL_CHANNEL) as connected:
        assert connected.list_recording(1 << 40) is None


def test_a_program_with_asyncio_records_and_replays(archive: LocalArchive) -> None:
    messages = [b"%d" % number * 50 for number in range(200)]

    async def main() -> None:
        async with (
            AsyncAeronArchive.connect(aeron_dir=archive.aeron_dir, control_channel=CONTROL_CHANNEL) as connected,
        ):
            with await connected.add_recorded_publication(CHANNEL, 1700) as publication:
                for message in messages:
                    while publication.offer(message) < 0:
                        await pause(0.001)
                end = publication.position
                while not (found := await connected.list_recordings_for_uri(0, 1, "aeron:ipc", 1700)):
                    await pause(0.001)
                recording_id = found[0].recording_id
                while await connected.get_max_recorded_position(recording_id) < end:
                    await pause(0.001)
            unknown = await asyncio.gather(
                *(connected.get_start_position(1 << 40) for _ in range(20)), return_exceptions=True
            )
            assert {each.code for each in unknown if isinstance(each, ArchiveError)} == {error_codes.UNKNOWN_RECORDING}
            replay = await connected.replay(recording_id, 0, end, REPLAY_CHANNEL, 2700)
            assert [message async for message, _ in connected.read(replay)] == messages

    run(main())


def test_a_replay_is_followed_by_the_live_stream(archive: LocalArchive) -> None:
    ports = PortReservation()
    control = f"localhost:{ports.take()}"
    channel = f"aeron:udp?control={control}|control-mode=dynamic|term-length=64k|ssc=true"
    numbers: list[int] = []
    with (
        closing(ports),
        AeronArchive.connect(aeron_dir=archive.aeron_dir, control_channel=CONTROL_CHANNEL) as connected,
        connected.add_recorded_publication(channel, 1800) as publication,
    ):
        sent = 0

        def send() -> bool:
            nonlocal sent
            sent += publication.offer(sent.to_bytes(4, "little") * 200) > 0
            return sent % 500 == 0

        wait_until(send, LIMIT_S, "a part to be recorded")
        [recording] = connected.list_recordings_for_uri(0, 1, control, 1800)
        own = f"session-id={publication.session_id}"
        with connected.replay_merge(
            channel=f"aeron:udp?control-mode=manual|{own}",
            stream_id=1800,
            replay_channel=f"aeron:udp?{own}",
            replay_destination="aeron:udp?endpoint=localhost:0",
            live_destination=f"aeron:udp?endpoint=localhost:0|control={control}",
            recording_id=recording.recording_id,
            start_position=0,
        ) as merge:

            def is_merged() -> bool:
                send()
                merge.poll(lambda message, _: numbers.append(int.from_bytes(message[:4], "little")), 20)
                return merge.is_merged

            wait_until(is_merged, LIMIT_S, "the replay to have caught up")
            merged_at = sent
            assert merge.is_live_added
            wait_until(
                lambda: is_merged() and numbers and numbers[-1] > merged_at + 100,
                LIMIT_S, "the live stream to go on"
            )  # fmt: skip
            assert numbers == list(range(len(numbers)))
            merge.close()
            assert (merge.state, merge.do_work()) == ("CLOSED", 0)
        assert connected.list_recording(recording.recording_id) is not None


def test_a_merge_that_cannot_be_is_refused(archive: LocalArchive) -> None:
    settings: dict[str, Any] = {
        "channel": "aeron:udp?control-mode=manual|session-id=5",
        "stream_id": 1801,
        "replay_channel": "aeron:udp?session-id=5",
        "replay_destination": "aeron:udp?endpoint=localhost:0",
        "live_destination": "aeron:udp?endpoint=localhost:0",
        "recording_id": 1 << 40,
        "start_position": 0,
    }
    with AeronArchive.connect(aeron_dir=archive.aeron_dir, control_channel=CONTROL_CHANNEL) as connected:
        for name in ("channel", "replay_channel", "replay_destination", "live_destination"):
            with pytest.raises(ConfigurationError, match="IPC merging is not supported"):
                connected.replay_merge(**settings | {name: "aeron:ipc"})
        with pytest.raises(ConfigurationError, match="must be control-mode=manual"):
            connected.replay_merge(**settings | {"channel": "aeron:udp?endpoint=localhost:0"})
        with connected.replay_merge(**settings) as merge:
            with pytest.raises(ArchiveError, match=r"max recorded position .*: unknown recording") as refused:
                wait_until(lambda: merge.do_work() < 0, LIMIT_S, "the archive to refuse it")
            assert (refused.value.code, merge.has_failed) == (error_codes.UNKNOWN_RECORDING, True)
        assert connected.list_recording(1 << 40) is None


def test_the_example_records_and_replays_into_pandas(capsys: pytest.CaptureFixture[str]) -> None:
    record_and_replay.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "recording 0: 10000 prices"
    assert [line.split()[-1] for line in lines[2:12]] == ["100.245"] * 10
