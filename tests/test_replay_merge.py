"""A replay that is followed by the live stream, over a real driver: how it merges, and how it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from container.aeron import MediaDriver
from container.archive import AeronArchive, RecordingSignal, RecordingSignalEvent, ReplayMerge
from container.archive.client.archive_connection import ArchiveConnection
from container.errors import ArchiveError, TimedOutError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from tests.replication_world import MS, DriverWorld

STREAM_ID = 1800
MESSAGE = bytes(992)


class Scene:
    """A stream that is recorded, and a session with the archive."""

    def __init__(self, driver: MediaDriver) -> None:
        self.world = DriverWorld(driver)
        self.server = self.world.archive(0)
        self.publisher = self.world.connect(0)
        self.control = f"localhost:{self.world.port(0)}"
        channel = f"aeron:udp?control={self.control}|control-mode=dynamic|term-length=64k|ssc=true"
        self.publication = seam.add_publication(self.publisher, channel, STREAM_ID, exclusive=True)
        self.client = self.world.connect(1)
        self.signals: list[RecordingSignalEvent] = []
        self.archive = AeronArchive.connect(
            client=self.client,
            control_channel=self.server.control_channel(),
            response_channel="aeron:udp?endpoint=localhost:0",
            idle_strategy=SteppingIdleStrategy(self.world.turn, max_idles=1_000_000),
            on_signal=self.signals.append,
        )
        self.archive.start_recording(f"{channel}|session-id={self.publication.session_id}", STREAM_ID, auto_stop=True)
        self.until(lambda: self.archive.poll_for_recording_signals() < 0 or self.signals)
        [started] = self.signals
        assert started.signal == RecordingSignal.START
        self.recording_id = started.recording_id
        self.read = 0
        self.send(100)

    def until(self, predicate: Callable[[], object]) -> None:
        def is_true() -> object:
            seam.invoke(self.client)
            seam.invoke(self.publisher)
            return predicate()

        self.world.until(is_true)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.until(lambda: seam.offer(self.publication, MESSAGE) > 0)

    def merge(self) -> ReplayMerge:
        session = f"session-id={self.publication.session_id}"
        return self.archive.replay_merge(
            channel=f"aeron:udp?control-mode=manual|{session}",
            stream_id=STREAM_ID,
            replay_channel=f"aeron:udp?{session}",
            replay_destination="aeron:udp?endpoint=localhost:0",
            live_destination=f"aeron:udp?endpoint=localhost:{self.world.port(1)}|control={self.control}",
            recording_id=self.recording_id,
            start_position=0,
        )

    def poll(self, merge: ReplayMerge) -> None:
        merge.poll(self._on_message, 20)

    def _on_message(self, message: bytes, position: int) -> None:
        self.read += 1
        assert (message, position) == (MESSAGE, self.read * 1024)

    def until_it_is(self, merge: ReplayMerge, state: str) -> None:
        def is_there() -> bool:
            self.poll(merge)
            return merge.state == state

        self.until(is_there)

    def until_it_raises(self, merge: ReplayMerge) -> None:
        def is_never() -> bool:
            self.poll(merge)
            return False

        self.until(is_never)


@pytest.fixture
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        publication_linger_timeout_ns=50 * MS,
        image_liveness_timeout_ns=500 * MS,
        timer_interval_ns=20 * MS,
        term_buffer_length=64 * 1024,
    ) as driver:
        yield driver


@pytest.fixture
def scene(driver: MediaDriver) -> Iterator[Scene]:
    scene = Scene(driver)
    yield scene
    scene.archive.close()
    scene.server.close()
    scene.world.close()


def test_a_replay_is_followed_by_the_live_stream(scene: Scene) -> None:
    merge = scene.merge()
    scene.until_it_is(merge, "MERGED")
    assert (scene.read, merge.is_live_added, merge.position) == (100, True, 100 * 1024)
    scene.send(10)

    def has_read() -> bool:
        scene.poll(merge)
        return scene.read == 110

    scene.until(has_read)
    assert merge.is_merged
    merge.close()
    assert merge.state == "CLOSED"


def test_a_live_stream_that_ends_before_the_merge_ends_it(scene: Scene) -> None:
    merge = scene.merge()
    scene.until_it_is(merge, "CATCHUP")
    scene.publication.close()
    with pytest.raises(ArchiveError, match=r"the image of recording 0 was closed at \d+, in state "):
        scene.until_it_raises(merge)
    assert merge.has_failed
    assert scene.read == 100
    merge.close()


def test_a_live_stream_that_ends_after_the_merge_is_told(scene: Scene) -> None:
    merge = scene.merge()
    scene.until_it_is(merge, "MERGED")
    scene.publication.close()
    with pytest.raises(ArchiveError, match="the image of recording 0 was closed at 102400, in state MERGED"):
        scene.until_it_raises(merge)


def test_an_archive_that_dies_ends_it(scene: Scene) -> None:
    merge = scene.merge()
    scene.until_it_is(merge, "CATCHUP")
    scene.server.vanish()
    with pytest.raises((ArchiveError, TimedOutError)):
        scene.until_it_raises(merge)
    merge.close()
    assert merge.state == "CLOSED"


def fill(connection: ArchiveConnection) -> None:
    """Ask until there is no room, also after the driver has moved on."""
    full_s = time.monotonic()
    while time.monotonic() < full_s + 0.1:
        with contextlib.suppress(ArchiveError):
            connection.tell("UpdateChannelRequest", {"recording_id": 0, "channel": b"aeron:ipc?alias=" + b"x" * 1200})
            full_s = time.monotonic()


def test_no_room_for_the_end_of_the_replay_is_no_failure(scene: Scene) -> None:
    """Upstream's merges as well: the archive ends a replay that nobody reads by itself."""
    connection = scene.archive._connection
    merge = scene.merge()

    def is_merged_though_there_is_no_room() -> bool:
        scene.poll(merge)
        if merge.is_live_added and connection.waiting:
            merge.do_work()  # sends it
            for _ in range(1000):  # the answer comes, and is not read yet
                scene.world.turn()
            scene.server.is_working = False
            fill(connection)
            begin_s = time.monotonic()
            while merge.state == "ATTEMPT_LIVE_JOIN" and time.monotonic() < begin_s + 1:  # else it is late: once more
                merge.do_work()
            scene.server.is_working = True
            for _ in range(1000):  # there is room again
                scene.world.turn()
        return merge.is_merged

    scene.until(is_merged_though_there_is_no_room)
    assert scene.read == 100
    merge.close()
