"""Hostile directories of an archive: a start, or a clear error; nothing else is written to, and nothing crashes."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from container.archive.server.store.catalog import Catalog
from container.archive.server.store.recording_positions import POSITIONS_NAME, RecordingPositions
from container.errors import ContainerError, RecordingError
from container.files.catalog import RecordingDescriptor
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from tests.segment_scenes import FIRST, SEGMENT, TERM, Scene, filled, frame, recording
from tests.test_archive_catalog import described, encoded, image

CASES = 1_000
NUMBERS = [0, 1, -1, 7, 31, 32, 33, 64, 2**16, 2**31 - 1, 2**31, -(2**31), 2**61, 2**63 - 1, -(2**63), 2**64 - 1]


def damaged(random: Random, content: bytes) -> bytes:
    """Some bytes of it, or numbers in it, are others."""
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(len(changed))
        kind = random.randrange(5)
        if kind == 0:
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[at : at + 4] = struct.pack("<Q", random.choice(NUMBERS) % 2**64)[:4]
        elif kind == 2:
            at -= at % 4
            changed[at : at + 8] = struct.pack("<Q", random.choice(NUMBERS) % 2**64)
        elif kind == 3:
            changed[at : at + 100] = random.randbytes(100)
        else:
            changed = changed[: max(1, at)]
    return bytes(changed)


def use(catalog: Catalog) -> None:
    """All that an archive does with its catalog."""
    for each in catalog.recording_ids():
        found = catalog.descriptor(each)
        assert isinstance(found, RecordingDescriptor)
        assert found.recording_id == each
        catalog.entry_bytes(each)
        catalog.set_stop(each, 64, 1)
        catalog.extend(each, 1, 2, 3)
        catalog.replace(described(each, source_identity="x" * 300))
        catalog.set_start_position(each, 32)
        assert catalog.stop_position(each) == -1
    added = catalog.add(described())
    assert catalog.descriptor(added) == described(added)
    catalog.delete(added)
    catalog.close()


def test_damaged_catalogs_are_refused_or_used() -> None:
    random, results = Random(1), {"used": 0, "refused": 0}
    whole = image(*[encoded(described(each)) for each in range(6)], next_id=6, length=4096)
    for _ in range(CASES):
        disk = SimulatedDisk()
        file = disk.process().open_file("/archive.catalog", CREATE)
        content = damaged(random, whole[: random.choice([4096, 1600])])
        file.write(content, 0)
        try:
            catalog = Catalog.open(disk.process(), "/", capacity=2048)
        except RecordingError:
            assert file.read(9_999, 0) == content
            results["refused"] += 1
            continue
        use(catalog)
        assert len(Catalog.open(disk.process(), "/", capacity=2048).recording_ids()) <= 6
        assert disk.process().list_directory("/") == ["archive.catalog"]
        results["used"] += 1
    assert min(results.values()) > CASES // 10


def hostile_scene(random: Random) -> tuple[SimulatedDisk, Scene]:
    """A crashed archive of two recordings, with damage in one of its files."""
    disk = SimulatedDisk()
    scene = Scene(disk.process())
    start = random.choice([0, 4096, TERM])
    scene.write_catalog(recording(0, start_position=start), recording(1))
    content = filled(start, random.choice([start + 4096, TERM + 8192, SEGMENT]))
    content += frame(start + len(content), random.randbytes(random.randrange(1, 3000)))
    begin = start % TERM
    base = start - begin
    scene.write(base, content[: SEGMENT - begin], offset=begin)
    if len(content) > SEGMENT - begin:
        scene.write(base + SEGMENT, content[SEGMENT - begin :])
    scene.write(0, filled(0, 8192), recording_id=1)
    positions = scene.positions(level=random.choice([0, 1]))
    place = positions.begin(recording(0, start_position=start), start)
    place.set(random.choice([start, start + 4096, start + len(content), random.choice(NUMBERS[:8]) * 32]))
    positions.note_truncation(1, random.choice([0, 4096, 64]))
    positions.close()
    names = [*scene.segments(), "archive.catalog", POSITIONS_NAME]
    for name in random.sample(names, random.randrange(1, 3)):
        file = scene.storage.open_file(f"/{name}", 0)
        old = file.read(file.length(), 0)
        part = damaged(random, old[: random.choice([200, 1_000, len(old)])])
        file.write(part, 0)
        if random.randrange(4) == 0:
            file.set_length(len(part))
    return disk, scene


def test_damaged_directories_are_recovered_or_refused() -> None:
    random, results = Random(2), {"recovered": 0, "refused": 0}
    for _ in range(CASES):
        disk, scene = hostile_scene(random)
        level = random.choice([0, 1])
        if random.randrange(2) == 0:
            disk.cut_power(Draws(random.randrange(1 << 30)))
            scene = Scene(disk.process())
        before = set(disk.contents())
        try:
            done = scene.start(level=level, torn_frame=random.choice(["refuse", "cut"]), checksum=random.choice([0, 1]))
        except RecordingError:
            results["refused"] += 1
        else:
            for each in done:
                assert each.stop_position % 32 == 0
            assert not [each for each in scene.catalog().recording_ids() if scene.catalog().stop_position(each) == -1]
            results["recovered"] += 1
        assert all(each in before or each.endswith((".rec", POSITIONS_NAME)) for each in disk.contents())
    assert min(results.values()) > CASES // 10


@pytest.mark.parametrize("name", ["archive.catalog", POSITIONS_NAME, "0-0.rec"])
def test_files_of_random_bytes_are_refused_or_say_nothing(name: str) -> None:
    random = Random(name)
    for _ in range(CASES // 5):
        disk = SimulatedDisk()
        scene = Scene(disk.process())
        scene.write_catalog(recording())
        scene.write(0, filled(0, 4096))
        scene.positions().begin(recording(), 0)
        file = scene.storage.open_file(f"/{name}", 0)
        file.write(random.randbytes(random.randrange(1, 5000)), random.choice([0, 0, 512, 4096]))
        with suppress(ContainerError):
            scene.start()


def test_nothing_outside_the_directory_is_written_to(tmp_path: Path) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "archive"
    victim.write_bytes(b"precious" * 20_000)
    directory.mkdir()
    scene = Scene(FileStorage(), str(directory))
    scene.write_catalog(recording())
    for name in ("archive.catalog.new", POSITIONS_NAME, f"{POSITIONS_NAME}.new"):
        (directory / name).symlink_to(victim)
    scene.start()
    positions = RecordingPositions.open(FileStorage(), str(directory), sync_level=1, owner=FIRST)
    positions.begin_ownership(FIRST)
    positions.begin(recording(), 0)
    scene.catalog().replace(recording(source_identity="x" * 5000))
    assert victim.read_bytes() == b"precious" * 20_000
    assert not [each for each in directory.iterdir() if each.is_symlink()]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["archive", "victim"]
