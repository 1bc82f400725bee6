"""Whatever call a crash ends, the store opens again with all that it promised, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import container
from container.archive.server.store.recording_store import RecordingStore, StoreSettings
from container.storage.file_storage import FileStorage
from container.testing.simulation.disk import SimulatedDisk
from tests import store_crashes
from tests.recorded_frames import TERM_LENGTH
from tests.store_crashes import NOW_MS, Recording, check_store, run
from tests.store_world import FRAMES, StoreWorld

SEEDS = 1600
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_crashes_at_any_call_lose_nothing_that_was_promised(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        run(seed)


def test_a_seed_repeats() -> None:
    assert run(5).log == run(5).log


class Exhaustive:
    """A plan on a disk, of which each state that a cut of the power may leave is opened and checked."""

    def __init__(self, plan: Callable[[StoreWorld, dict[int, Recording]], object]) -> None:
        self.recordings: dict[int, Recording] = {}
        self.states = 0
        self.is_on = False
        self.disk = SimulatedDisk(on_latency=self.on_latency)
        self.world = StoreWorld(self.disk.process(), "/", level=1)
        self.is_on = True
        plan(self.world, self.recordings)
        self.on_latency("", 0)

    def on_latency(self, kind: str, _length: int) -> None:
        if not self.is_on or kind in ("look", "read"):
            return
        self.is_on = False
        for state in self.disk.crash_states():
            self.states += 1
            self.check(state)
        self.is_on = True

    def check(self, state: SimulatedDisk) -> None:
        storage = state.process()
        settings: StoreSettings = self.world.settings
        store = RecordingStore.open(
            storage,
            settings,
            now_ms=NOW_MS,
            former_owner=self.world.owner,
            owner=(9, 9),
            write_owner=lambda: None,
            report_error=self.world.errors.append,
            report_progress=lambda: None,
        )
        copies = {each: copy_of(recording) for each, recording in self.recordings.items()}
        check_store(storage, store, copies, TERM_LENGTH, is_uncertain=False)
        store.close()


def copy_of(recording: Recording) -> Recording:
    return Recording(
        recording.recording_id,
        recording.start,
        recording.stop,
        frames=list(recording.frames),
        ever=recording.ever,
        least_stop=recording.least_stop,
        starts=set(recording.starts),
        may_be_gone=recording.may_be_gone,
        is_gone=recording.is_gone,
    )


def write(world: StoreWorld, recording: Recording, *payloads: bytes | None) -> None:
    (writer,) = world.store._writers.values()
    for payload in payloads:
        position = writer.position
        content = FRAMES.padding(position) if payload is None else FRAMES.data(position, payload)
        recording.add(content, FRAMES.rest(position) if payload is None else len(content))
        writer.write(content)
        recording.stop = writer.position


def begin(world: StoreWorld, recordings: dict[int, Recording], start: int = 0) -> Recording:
    recording_id = len(recordings)
    recording = recordings[recording_id] = Recording(recording_id, start, start, starts={start}, may_be_gone=True)
    world.start(start)
    recording.may_be_gone = False
    return recording


def stop(world: StoreWorld) -> None:
    (writer,) = world.store._writers.values()
    world.store.stop(writer, NOW_MS)


def test_every_state_of_a_recording_is_right() -> None:
    def plan(world: StoreWorld, recordings: dict[int, Recording]) -> None:
        recording = begin(world, recordings, TERM_LENGTH - 4096)
        write(world, recording, b"x" * 700, bytes(1000), b"y" * 100, None, bytes(700))
        stop(world)
        world.extend(0)
        write(world, recording, b"", b"z" * 1000 + bytes(100))
        stop(world)

    assert Exhaustive(plan).states > 100


def test_every_state_of_a_truncation_is_right() -> None:
    def plan(world: StoreWorld, recordings: dict[int, Recording]) -> None:
        recording = begin(world, recordings, TERM_LENGTH - 2048)
        write(world, recording, b"x" * 100, b"y" * 100, None, b"z" * 100)
        stop(world)
        recording.least_stop = recording.boundaries[1]
        world.delete(world.store.truncate(0, recording.least_stop))
        recording.stop, recording.least_stop = recording.least_stop, None
        recording.cut(recording.stop)
        world.extend(0)
        write(world, recording, bytes(100))

    assert Exhaustive(plan).states > 50


def test_every_state_of_a_purge_and_a_migration_is_right() -> None:
    def plan(world: StoreWorld, recordings: dict[int, Recording]) -> None:
        first = begin(world, recordings, TERM_LENGTH - 1024)
        write(world, first, b"x" * 100, None)
        stop(world)
        second = begin(world, recordings, TERM_LENGTH)
        write(world, second, b"y" * 100)
        stop(world)
        first.least_stop = first.start
        second.starts.add(first.start)
        second.frames = first.frames + second.frames
        world.store.migrate(0, 1)
        first.stop, first.least_stop, first.frames = first.start, None, []
        second.start, second.starts = first.start, {first.start}
        second.may_be_gone = True
        deletion = world.store.purge(1)
        second.is_gone = True
        world.delete(deletion)

    assert Exhaustive(plan).states > 50


def test_the_check_notices_what_is_wrong() -> None:
    world = StoreWorld(SimulatedDisk().process(), "/", level=1)
    recording = Recording(0, 0, 128, starts={0})
    recording.add(FRAMES.block(0, b"one", b"two"), 128)
    world.record(b"one", b"two")

    def wrong(match: str, changed: Recording) -> None:
        with pytest.raises(store_crashes.Violation, match=match):
            check_store(world.storage, world.store, {0: changed}, TERM_LENGTH, is_uncertain=False)

    check_store(world.storage, world.store, {0: copy_of(recording)}, TERM_LENGTH, is_uncertain=False)
    longer = copy_of(recording)
    longer.stop = 192
    wrong("announced is 192", longer)
    other = copy_of(recording)
    other.frames = [(0, 64, FRAMES.data(0, b"one")), (64, 128, FRAMES.data(64, b"TWO"))]
    wrong("a frame at 64 that was not recorded", other)
    gone = copy_of(recording)
    gone.is_gone = True
    wrong("is there again", gone)
    world.put("0-0.rec", b"x", 5000)
    wrong("is not zero behind the end", copy_of(recording))
    with pytest.raises(store_crashes.Violation, match="nobody made them"):
        check_store(world.storage, world.store, {}, TERM_LENGTH, is_uncertain=False)


RECORD = """
import sys
from container.storage.file_storage import FileStorage
from tests.store_world import StoreWorld
world = StoreWorld(FileStorage(), sys.argv[1], level=int(sys.argv[2]))
writer = world.start()
while True:
    world.write(writer, bytes(500), b"x" * 5000 + bytes(4000), *([None] if writer.position % 65536 > 50000 else []))
    print(writer.position, flush=True)
"""


@pytest.mark.parametrize("level", [0, 1])
def test_a_process_that_is_killed_loses_nothing_that_it_announced(tmp_path: Path, level: int) -> None:
    command = [sys.executable, "-c", RECORD, str(tmp_path), str(level)]
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(container.__file__).parents[1]), str(root)])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        announced = 0
        for line in process.stdout:
            announced = int(line)
            if announced > 3 * TERM_LENGTH:
                process.kill()
                break
        announced = max([announced, *(int(line) for line in process.stdout if line.endswith("\n"))])
    world = StoreWorld(FileStorage(), str(tmp_path), level=level, owner=(1, 42))
    assert [each.basis for each in world.store.recovered] == ["exact"]
    assert world.range(0)[1] >= announced
    assert world.frames(0)
    stop = world.range(0)[1]
    base = stop // TERM_LENGTH * TERM_LENGTH
    assert world.segments() == list(range(0, base + 1, TERM_LENGTH))
    assert not world.content(0, base)[stop - base :].strip(b"\0")
