"""The archive's catalog: upstream's bytes, what a crash leaves of a change, damage."""

from __future__ import annotations

import dataclasses
import errno
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from container.archive.error_codes import GENERIC, UNKNOWN_RECORDING
from container.archive.server.store.catalog import Catalog
from container.errors import ArchiveError, ConfigurationError, RecordingError
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.checksums import crc32c
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.processes.recordings import write_catalog
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from tests.crashes import check_power_cuts, kills

CAPACITY = 4096
MEBIBYTE = 1 << 20
LENGTH_MAX = 2**31 - 1
CHECKSUMS: dict[int, Callable[[bytes], int]] = {0: lambda _: 0, 1: zlib.crc32, 2: crc32c}
HEADER = struct.Struct("<iiqi12x")
ENTRY = struct.Struct("<iiI20x")
STATE_INVALID, STATE_VALID, STATE_DELETED = 0, 1, 2


def described(recording_id: int = 0, **changes: Any) -> RecordingDescriptor:
    """A recording in progress."""
    return dataclasses.replace(
        RecordingDescriptor(
            control_session_id=0,
            correlation_id=0,
            recording_id=recording_id,
            start_timestamp=1_700_000_000_000,
            stop_timestamp=-1,
            start_position=1024,
            stop_position=-1,
            initial_term_id=-7,
            segment_file_length=128 * 1024,
            term_buffer_length=64 * 1024,
            mtu_length=1408,
            session_id=-5,
            stream_id=100,
            stripped_channel="aeron:udp?tags=68|session-id=-5|alias=log",
            original_channel="aeron:udp?endpoint=localhost:9000|tags=68|session-id=-5|alias=log",
            source_identity="127.0.0.1:40123",
        ),
        **changes,
    )


def encoded(
    descriptor: RecordingDescriptor, *, alignment: int = 64, state: int = STATE_VALID, checksum: int = 0
) -> bytes:
    """An entry as upstream writes it."""
    values = dataclasses.astuple(descriptor)
    body = struct.pack("<7q6i", *values[:-3])
    for text in values[-3:]:
        body += struct.pack("<I", len(text)) + text.encode("ascii")
    total = (ENTRY.size + len(body) + alignment - 1) // alignment * alignment
    body = body.ljust(total - ENTRY.size, b"\0")
    return ENTRY.pack(len(body), state, CHECKSUMS[checksum](body)) + body


def image(*entries: bytes, next_id: int, alignment: int = 64, version: int = 0x030100, length: int = 0) -> bytes:
    """A whole catalog."""
    return (HEADER.pack(version, HEADER.size, next_id, alignment) + b"".join(entries)).ljust(length, b"\0")


@pytest.fixture(params=["files", "simulated"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return FileStorage() if request.param == "files" else SimulatedDisk().process()


@pytest.fixture
def directory(storage: Storage, tmp_path: Path) -> str:
    if isinstance(storage, FileStorage):
        return str(tmp_path)
    storage.make_directory("/archive")
    return "/archive"


def put(storage: Storage, directory: str, content: bytes) -> str:
    path = f"{directory}/archive.catalog"
    file = storage.open_file(path, CREATE)
    file.set_length(0)
    file.write(content, 0)
    file.close()
    return path


def content_of(storage: Storage, directory: str) -> bytes:
    file = storage.open_file(f"{directory}/archive.catalog", 0)
    return file.read(file.length(), 0)


def state_of(catalog: Catalog) -> dict[int, RecordingDescriptor | None]:
    return {each: catalog.descriptor(each) for each in catalog.recording_ids()}


def test_a_new_catalog_is_upstreams(storage: Storage, directory: str) -> None:
    catalog = Catalog.open(storage, directory)
    assert content_of(storage, directory) == image(next_id=0, length=MEBIBYTE)
    assert (catalog.next_recording_id, catalog.alignment, catalog.capacity) == (0, 64, MEBIBYTE)
    assert catalog.recording_ids() == []
    assert storage.list_directory(directory) == ["archive.catalog"]


@pytest.mark.parametrize("checksum", [0, 1, 2])
def test_entries_are_upstreams(storage: Storage, directory: str, checksum: int) -> None:
    catalog = Catalog.open(storage, directory, checksum=checksum)
    descriptors = [described(0), described(1, source_identity="aeron:ipc"), described(2, original_channel="aeron:ipc")]
    assert [catalog.add(each) for each in descriptors] == [0, 1, 2]
    catalog.close()
    entries = [encoded(each, checksum=checksum) for each in descriptors]
    assert content_of(storage, directory) == image(*entries, next_id=3, length=MEBIBYTE)


def test_the_writer_of_the_test_kit_agrees(tmp_path: Path) -> None:
    descriptors = [described(0), described(1, stop_position=4096, stop_timestamp=5)]
    expected = write_catalog(tmp_path, descriptors, checksum=True).read_bytes()
    (tmp_path / "archive.catalog").unlink()
    catalog = Catalog.open(FileStorage(), str(tmp_path), checksum=1)
    for each in descriptors:
        catalog.add(each)
    catalog.close()
    assert (tmp_path / "archive.catalog").read_bytes() == expected
    assert list(read_catalog(tmp_path)) == descriptors


def test_a_catalog_that_is_there_is_read_and_goes_on(storage: Storage, directory: str) -> None:
    entries = [encoded(described(3)), encoded(described(7))]
    put(storage, directory, image(*entries, next_id=9, length=MEBIBYTE))
    catalog = Catalog.open(storage, directory)
    assert state_of(catalog) == {3: described(3), 7: described(7)}
    assert catalog.add(described()) == 9
    assert catalog.entry_bytes(7) == entries[1][32:]
    assert catalog.entry_offset(7) == 32 + len(entries[0])
    assert catalog.descriptor(5) is None
    assert (catalog.has(3), catalog.has(5)) == (True, False)
    assert (catalog.start_position(3), catalog.stop_position(3)) == (1024, -1)
    catalog.close()
    assert content_of(storage, directory) == image(*entries, encoded(described(9)), next_id=10, length=MEBIBYTE)


def test_a_catalog_without_slack_gets_its_capacity(storage: Storage, directory: str) -> None:
    entry = encoded(described(0))
    put(storage, directory, image(entry, next_id=1))
    catalog = Catalog.open(storage, directory, capacity=CAPACITY)
    assert content_of(storage, directory) == image(entry, next_id=1, length=CAPACITY)
    assert catalog.add(described()) == 1
    assert state_of(catalog) == {0: described(0), 1: described(1)}


def test_a_catalog_that_is_longer_than_the_capacity_stays_so(storage: Storage, directory: str) -> None:
    put(storage, directory, image(next_id=0, length=2 * CAPACITY))
    assert Catalog.open(storage, directory, capacity=CAPACITY).capacity == 2 * CAPACITY


@pytest.mark.parametrize("alignment", [8, 16, 32, 64, 128, 1024, 4096])
def test_the_alignment_is_the_files(storage: Storage, directory: str, alignment: int) -> None:
    first = encoded(described(0), alignment=alignment)
    put(storage, directory, image(first, next_id=1, alignment=alignment, length=4 * alignment + CAPACITY))
    catalog = Catalog.open(storage, directory, capacity=CAPACITY)
    assert catalog.alignment == alignment
    catalog.add(described())
    catalog.set_stop(0, 2048, 77)
    expected = described(0, stop_position=2048, stop_timestamp=77)
    again = Catalog.open(storage, directory, capacity=CAPACITY)
    assert state_of(again) == {0: expected, 1: described(1)}
    entries = [encoded(expected, alignment=alignment), encoded(described(1), alignment=alignment)]
    written = image(*entries, next_id=2, alignment=alignment)
    assert content_of(storage, directory)[: len(written)] == written


def test_invalid_and_deleted_recordings_do_not_exist(storage: Storage, directory: str) -> None:
    states = [STATE_INVALID, STATE_VALID, STATE_DELETED]
    entries = [encoded(described(each), state=state) for each, state in enumerate(states)]
    put(storage, directory, image(*entries, next_id=3, length=CAPACITY))
    catalog = Catalog.open(storage, directory, capacity=CAPACITY)
    assert catalog.recording_ids() == [1]
    assert catalog.deleted_ids() == [2]
    for each in (0, 2, 3, -1):
        assert not catalog.has(each)
        assert catalog.descriptor(each) is None
        for call in (catalog.entry_bytes, catalog.entry_offset, catalog.start_position, catalog.stop_position):
            with pytest.raises(ArchiveError, match=f"unknown recording id: {each}") as raised:
                call(each)
            assert raised.value.code == UNKNOWN_RECORDING
    changes: list[Callable[[], object]] = [
        lambda: catalog.set_stop(2, 0, 0),
        lambda: catalog.set_start_position(2, 0),
        lambda: catalog.extend(2, 0, 0, 0),
        lambda: catalog.replace(described(2)),
        lambda: catalog.delete(2),
    ]
    for change in changes:
        with pytest.raises(ArchiveError, match="unknown recording id: 2"):
            change()


@pytest.mark.parametrize(("next_id", "entries", "expected"), [(0, [], 0), (0, [4], 5), (5, [4], 5), (50, [4], 50)])
def test_the_next_id(storage: Storage, directory: str, next_id: int, entries: list[int], expected: int) -> None:
    put(storage, directory, image(*[encoded(described(each)) for each in entries], next_id=next_id, length=CAPACITY))
    catalog = Catalog.open(storage, directory)
    assert catalog.next_recording_id == expected
    assert catalog.add(described()) == expected


@pytest.mark.parametrize("state", [STATE_INVALID, STATE_VALID, STATE_DELETED])
def test_an_id_is_never_given_again(storage: Storage, directory: str, state: int) -> None:
    put(storage, directory, image(encoded(described(4), state=state), next_id=0, length=CAPACITY))
    catalog = Catalog.open(storage, directory)
    assert catalog.add(described()) == 5
    catalog.delete(5)
    assert catalog.deleted_ids() == ([4, 5] if state == STATE_DELETED else [5])
    assert Catalog.open(storage, directory).add(described()) == 6


def test_the_last_id_of_all(storage: Storage, directory: str) -> None:
    last = 2**63 - 2
    put(storage, directory, image(next_id=last, length=CAPACITY))
    catalog = Catalog.open(storage, directory)
    assert catalog.add(described()) == last
    with pytest.raises(ArchiveError, match="no more recording ids"):
        catalog.add(described())
    assert Catalog.open(storage, directory).recording_ids() == [last]


SECOND = 32 + len(encoded(described(0)))
DAMAGED: dict[str, tuple[bytes, int | None, str]] = {
    "no header": (bytes(31), None, "has 31 bytes"),
    "empty": (b"", None, "has 0 bytes"),
    "zeros": (bytes(CAPACITY), 0, "version 0.0.0"),
    "major version 2": (image(next_id=0, version=0x020100, length=CAPACITY), 0, "version 2.1.0.*ArchiveTool"),
    "major version 4": (image(next_id=0, version=0x040000, length=CAPACITY), 0, "version 4.0.0"),
    "no alignment": (image(next_id=0, alignment=0, length=CAPACITY), 16, "old format.*ArchiveTool"),
    "alignment 4": (image(next_id=0, alignment=4, length=CAPACITY), 16, "alignment 4 "),
    "alignment 65": (image(next_id=0, alignment=65, length=CAPACITY), 16, "alignment 65 "),
    "alignment -64": (image(next_id=0, alignment=-64, length=CAPACITY), 16, "alignment -64 "),
    "alignment 2^30": (image(next_id=0, alignment=1 << 30, length=CAPACITY), 16, "alignment"),
    "next id too small": (image(encoded(described(5)), next_id=5, length=CAPACITY), 8, "next recording id is 5"),
    "next id too small for a deleted one": (
        image(encoded(described(5), state=STATE_DELETED), next_id=5, length=CAPACITY),
        8,
        "next recording id is 5",
    ),
    "negative next id": (image(next_id=-3, length=CAPACITY), 8, "next recording id is -3"),
    "negative id": (image(encoded(described(-1)), next_id=1, length=CAPACITY), 32, "recording id -1"),
    "id 2^63 - 1": (image(encoded(described(2**63 - 1)), next_id=0, length=CAPACITY), 32, "recording id"),
    "same id": (
        image(encoded(described(1)), encoded(described(1)), next_id=9, length=CAPACITY),
        SECOND,
        "recording id 1 comes behind 1",
    ),
    "descending ids": (
        image(encoded(described(2)), encoded(described(1)), next_id=9, length=CAPACITY),
        SECOND,
        "recording id 1 comes behind 2",
    ),
    "state 3": (image(encoded(described(0), state=3), next_id=1, length=CAPACITY), 32, "unknown state 3"),
    "state -1": (image(encoded(described(0), state=-1), next_id=1, length=CAPACITY), 32, "unknown state -1"),
    "negative length": (image(ENTRY.pack(-64, 1, 0), next_id=0, length=CAPACITY), 32, "has -64 bytes"),
    "too short": (image(ENTRY.pack(32, 1, 0), next_id=0, length=CAPACITY), 32, "has 32 bytes"),
    "too long": (image(ENTRY.pack(LENGTH_MAX, 1, 0), next_id=0, length=CAPACITY), 32, "reaches beyond the 4096 bytes"),
    "cut off": (image(encoded(described(0)), next_id=1)[:-64], 32, "reaches beyond"),
    "no room for texts": (
        image(ENTRY.pack(80, 1, 0), bytes(80), next_id=0, length=CAPACITY),
        32,
        "a text reaches beyond",
    ),
    "text too long": (
        image(ENTRY.pack(96, 1, 0), bytes(80), struct.pack("<I", 2**32 - 1), next_id=0, length=CAPACITY),
        32,
        "a text reaches beyond",
    ),
    "last text too long": (
        image(ENTRY.pack(96, 1, 0), bytes(88), struct.pack("<I", 5), next_id=0, length=CAPACITY),
        32,
        "a text reaches beyond",
    ),
    "length lost": (
        image(bytes(4) + encoded(described(0))[4:], encoded(described(1)), next_id=2, length=CAPACITY),
        32,
        "has no length, but at offset [0-9]+",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_refused_and_nothing_is_written(storage: Storage, directory: str, damage: str) -> None:
    content, offset, text = DAMAGED[damage]
    path = put(storage, directory, content)
    with pytest.raises(RecordingError, match=text) as raised:
        Catalog.open(storage, directory, capacity=CAPACITY)
    assert (raised.value.file, raised.value.offset) == (path, offset)
    assert content_of(storage, directory) == content


def test_a_file_that_upstream_cannot_map_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "archive.catalog"
    with path.open("wb") as file:
        file.write(image(next_id=0))
        file.truncate(LENGTH_MAX + 1)
    with pytest.raises(RecordingError, match=f"has {LENGTH_MAX + 1} bytes"):
        Catalog.open(FileStorage(), str(tmp_path))


@pytest.mark.parametrize(
    "values", [{"capacity": 31}, {"capacity": 2**31}, {"sync_level": 3}, {"sync_level": -1}, {"checksum": 3}]
)
def test_values_out_of_range_are_refused(tmp_path: Path, values: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(values))}="):
        Catalog.open(FileStorage(), str(tmp_path), **values)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Catalog.open(FileStorage(), str(tmp_path / "none"))


# --- changes -----------------------------------------------------------------------------------------------------

type Change = Callable[[Catalog], object]

CHANGES: dict[str, tuple[Change, Callable[[RecordingDescriptor], RecordingDescriptor]]] = {
    "set_stop": (
        lambda catalog: catalog.set_stop(1, 2048, 99),
        lambda old: dataclasses.replace(old, stop_position=2048, stop_timestamp=99),
    ),
    "set_start_position": (
        lambda catalog: catalog.set_start_position(1, 1 << 40),
        lambda old: dataclasses.replace(old, start_position=1 << 40),
    ),
    "extend": (
        lambda catalog: catalog.extend(1, 11, 22, -33),
        lambda old: dataclasses.replace(
            old, control_session_id=11, correlation_id=22, session_id=-33, stop_position=-1, stop_timestamp=-1
        ),
    ),
    "replace": (
        lambda catalog: catalog.replace(described(1, stream_id=4, session_id=8)),
        lambda old: dataclasses.replace(described(1, stream_id=4, session_id=8), **_control(old)),
    ),
    "replace longer": (
        lambda catalog: catalog.replace(described(1, original_channel="aeron:ipc?alias=" + "x" * 600)),
        lambda old: dataclasses.replace(described(1, original_channel="aeron:ipc?alias=" + "x" * 600), **_control(old)),
    ),
    "replace shorter": (
        lambda catalog: catalog.replace(described(1, original_channel="", stripped_channel="")),
        lambda old: dataclasses.replace(described(1, original_channel="", stripped_channel=""), **_control(old)),
    ),
}


def _control(old: RecordingDescriptor) -> dict[str, Any]:
    return {"control_session_id": old.control_session_id, "correlation_id": old.correlation_id}


def filled(storage: Storage, directory: str, checksum: int, count: int = 3) -> dict[int, RecordingDescriptor]:
    """A catalog of recordings that were extended and have stopped; entries are of different lengths."""
    made = {
        each: described(
            each,
            control_session_id=100 + each,
            correlation_id=200 + each,
            stop_position=1024,
            stop_timestamp=9,
            source_identity="i" * (40 * each),
        )
        for each in range(count)
    }
    entries = [encoded(each, checksum=checksum) for each in made.values()]
    put(storage, directory, image(*entries, next_id=count, length=CAPACITY))
    return made


@pytest.mark.parametrize("checksum", [0, 1, 2])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_upstreams_and_leaves_the_others(
    storage: Storage, directory: str, name: str, checksum: int
) -> None:
    act, expect = CHANGES[name]
    expected = filled(storage, directory, checksum)
    before = content_of(storage, directory)
    catalog = Catalog.open(storage, directory, capacity=CAPACITY, checksum=checksum)
    act(catalog)
    length = len(encoded(expected[1]))
    expected[1] = expect(expected[1])
    assert state_of(catalog) == expected
    assert state_of(Catalog.open(storage, directory, capacity=CAPACITY, checksum=checksum)) == expected
    entries = [encoded(each, checksum=checksum) for each in expected.values()]
    body = entries[1][32:].ljust(length - 32, b"\0")  # it never becomes shorter
    entries[1] = ENTRY.pack(len(body), STATE_VALID, CHECKSUMS[checksum](body)) + body
    assert content_of(storage, directory) == image(*entries, next_id=3, length=CAPACITY)
    assert len(content_of(storage, directory)) == len(before)
    assert storage.list_directory(directory) == ["archive.catalog"]
    assert catalog.add(described()) == 3
    assert state_of(catalog) == expected | {3: described(3)}


@pytest.mark.parametrize("checksum", [0, 2])
def test_a_deleted_entry_stays(storage: Storage, directory: str, checksum: int) -> None:
    expected = filled(storage, directory, checksum)
    catalog = Catalog.open(storage, directory, capacity=CAPACITY, checksum=checksum)
    catalog.delete(1)
    assert catalog.recording_ids() == [0, 2]
    assert catalog.deleted_ids() == [1]
    entries = [encoded(each, checksum=checksum) for each in expected.values()]
    entries[1] = entries[1][:4] + struct.pack("<i", STATE_DELETED) + entries[1][8:]
    assert content_of(storage, directory) == image(*entries, next_id=3, length=CAPACITY)


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_right_wherever_sectors_end(storage: Storage, directory: str, name: str, place: int) -> None:
    act, expect = CHANGES[name]
    padding = encoded(described(0, source_identity="p" * (64 * place)), checksum=1)
    old = described(1, stop_position=4096, stop_timestamp=3)
    put(storage, directory, image(padding, encoded(old, checksum=1), next_id=2, length=CAPACITY))
    catalog = Catalog.open(storage, directory, capacity=CAPACITY, checksum=1)
    act(catalog)
    catalog.close()
    again = Catalog.open(storage, directory, capacity=CAPACITY, checksum=1)
    assert again.descriptor(1) == expect(old)
    assert again.descriptor(0) == described(0, source_identity="p" * (64 * place))
    header = content_of(storage, directory)[again.entry_offset(1) :][: ENTRY.size]
    assert ENTRY.unpack(header)[2] == zlib.crc32(again.entry_bytes(1))


def test_a_replaced_entry_that_is_longer_than_the_file_makes_it_grow(storage: Storage, directory: str) -> None:
    expected = filled(storage, directory, 0)
    catalog = Catalog.open(storage, directory, capacity=CAPACITY)
    expected[0] = dataclasses.replace(expected[0], source_identity="x" * 10_000)
    catalog.replace(expected[0])
    assert state_of(catalog) == expected
    assert catalog.capacity == 4096 * 3 // 2 * 3 // 2 * 3 // 2
    assert len(content_of(storage, directory)) == catalog.capacity
    assert catalog.add(described()) == 3
    assert state_of(Catalog.open(storage, directory)) == expected | {3: described(3)}


def test_text_that_is_not_ascii_becomes_question_marks(storage: Storage, directory: str) -> None:
    catalog = Catalog.open(storage, directory)
    catalog.add(described(source_identity="grün"))
    assert catalog.descriptor(0) == described(0, source_identity="gr?n")


def test_the_catalog_grows_by_halves(storage: Storage, directory: str) -> None:
    catalog = Catalog.open(storage, directory, capacity=512)
    capacities = [512]
    for each in range(20):
        assert catalog.add(described()) == each
        if catalog.capacity != capacities[-1]:
            capacities.append(catalog.capacity)
    assert capacities == [512, 768, 1152, 1728, 2592, 3888, 5832]
    assert state_of(Catalog.open(storage, directory)) == {each: described(each) for each in range(20)}


def test_the_catalog_is_full_at_the_length_that_upstream_can_map(tmp_path: Path) -> None:
    path = tmp_path / "archive.catalog"
    hole = LENGTH_MAX // 64 * 64 - 64 * 7 - 32
    with path.open("wb") as file:
        file.write(image(ENTRY.pack(hole, STATE_DELETED, 0), next_id=0))
        file.truncate(32 + 32 + hole)
    catalog = Catalog.open(FileStorage(), str(tmp_path))
    assert catalog.capacity == 32 + 32 + hole
    assert catalog.add(described()) == 1
    assert catalog.capacity == LENGTH_MAX
    with pytest.raises(ArchiveError, match="catalog is full") as raised:
        catalog.add(described())
    assert raised.value.code == GENERIC
    assert catalog.recording_ids() == [1]


def test_ten_thousand_entries_open_quickly(tmp_path: Path) -> None:
    count = 10_000
    entries = [encoded(described(each)) for each in range(count)]
    (tmp_path / "archive.catalog").write_bytes(image(*entries, next_id=count, length=4 * MEBIBYTE))
    begin = time.process_time()
    catalog = Catalog.open(FileStorage(), str(tmp_path))
    taken = time.process_time() - begin
    assert len(catalog.recording_ids()) == count
    assert catalog.descriptor(count - 1) == described(count - 1)
    assert taken < 5  # with the square of the entries it takes a minute


def test_a_closed_catalog_is_not_used(storage: Storage, directory: str) -> None:
    catalog = Catalog.open(storage, directory)
    catalog.add(described())
    catalog.close()
    catalog.close()
    calls: list[Callable[[], object]] = [
        catalog.force,
        lambda: catalog.add(described()),
        lambda: catalog.descriptor(0),
        lambda: catalog.set_stop(0, 1024, 0),
        lambda: catalog.start_position(0),
    ]
    for call in calls:
        with pytest.raises(ArchiveError, match="is closed"):
            call()
    assert "closed" in repr(catalog)


# --- crashes -----------------------------------------------------------------------------------------------------

LEVELS = [0, 1, 2]


def opened(storage: Storage, level: int, checksum: int = 0) -> Catalog:
    return Catalog.open(storage, "/", capacity=CAPACITY, sync_level=level, checksum=checksum)


def surviving(disk: SimulatedDisk, checksum: int = 0) -> dict[int, RecordingDescriptor | None]:
    """What a start after the crash finds; it must be sound, and go on."""
    catalog = opened(disk.process(), 1, checksum)
    found = state_of(catalog)
    for each in found:
        if checksum:
            header = content_of(disk.process(), "")[catalog.entry_offset(each) :][: ENTRY.size]
            assert ENTRY.unpack(header)[2] == CHECKSUMS[checksum](catalog.entry_bytes(each))
    added = catalog.add(described(source_identity="afterwards"))
    assert added not in found
    again = opened(disk.process(), 1, checksum)
    assert state_of(again) == found | {added: described(added, source_identity="afterwards")}
    assert disk.process().list_directory("/") == ["archive.catalog"]
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_a_crash_of_the_first_start_leaves_no_catalog_or_an_empty_one(level: int) -> None:
    found = []
    check_power_cuts(lambda _: None, lambda s: opened(s, level), lambda disk: found.append(surviving(disk)))
    found += [surviving(disk) for disk in kills(lambda _: None, lambda s: opened(s, level))]
    assert found
    assert not any(found)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("length", [10, 500, 1200])
def test_a_crash_while_an_entry_is_added_leaves_it_whole_or_not_at_all(level: int, length: int) -> None:
    old: dict[int, RecordingDescriptor] = {}

    def prepare(storage: Storage) -> None:
        old.update(filled(storage, "/", 1))
        storage.open_file("/archive.catalog", 0).force(True)
        storage.force_directory("/")

    new = described(3, source_identity="n" * length)

    def act(storage: Storage) -> None:
        opened(storage, level, 1).add(new)

    found = []
    check_power_cuts(prepare, act, lambda disk: found.append(surviving(disk, 1)))
    assert all(each in (old, old | {3: new}) for each in found)
    assert old in found
    if level > 0:
        assert found[-1] == old | {3: new}, "it is on the disk when add returns"
    for disk in kills(prepare, act):
        found.append(surviving(disk, 1))
        assert found[-1] in (old, old | {3: new})


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("place", [0, 3, 5])
@pytest.mark.parametrize("name", [*CHANGES, "delete"])
def test_a_crash_while_an_entry_is_changed_leaves_the_old_or_the_new_one(name: str, level: int, place: int) -> None:
    first = described(0, source_identity="p" * (64 * place))
    old = described(1, stop_position=4096, stop_timestamp=3, control_session_id=8, correlation_id=9)
    last = described(2)
    deletion: tuple[Change, None] = (lambda catalog: catalog.delete(1), None)
    act, expect = CHANGES.get(name, deletion)
    before = {0: first, 1: old, 2: last}
    after = {0: first, 2: last} if expect is None else before | {1: expect(old)}

    def prepare(storage: Storage) -> None:
        put(
            storage, "/", image(*[encoded(each, checksum=2) for each in (first, old, last)], next_id=3, length=CAPACITY)
        )
        storage.open_file("/archive.catalog", 0).force(True)
        storage.force_directory("/")

    found = []
    check_power_cuts(prepare, lambda s: act(opened(s, level, 2)), lambda disk: found.append(surviving(disk, 2)))
    assert all(each in (before, after) for each in found)
    assert before in found
    if level > 0:
        assert found[-1] == after, "it is on the disk when the call returns"
    for disk in kills(prepare, lambda s: act(opened(s, level, 2))):
        assert surviving(disk, 2) in (before, after)


@pytest.mark.parametrize("level", LEVELS)
def test_a_crash_within_a_series_of_changes_leaves_each_of_them_whole(level: int) -> None:
    versions: dict[int, list[RecordingDescriptor]] = {}

    def act(storage: Storage) -> None:
        versions.clear()
        catalog = Catalog.open(storage, "/", capacity=700, sync_level=level)
        for each in range(3):
            versions[each] = [described(each), described(each, stop_position=2048, stop_timestamp=each)]
            catalog.add(described())
            catalog.set_stop(each, 2048, each)

    def check(disk: SimulatedDisk) -> None:
        found = surviving(disk)
        assert list(found) == list(range(len(found))), "none comes without those before it"
        assert all(descriptor in versions[each] for each, descriptor in found.items())

    assert check_power_cuts(lambda _: None, act, check) > 50
    for disk in kills(lambda _: None, act):
        check(disk)


def forces(disk: SimulatedDisk, act: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    disk.on_latency = lambda kind, _length: seen.append(kind)
    act()
    disk.on_latency = None
    return [kind for kind in seen if kind.startswith("force")]


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_forced_at_which_level(level: int) -> None:
    disk = SimulatedDisk()
    catalog = opened(disk.process(), level)
    after = ["force"] if level > 0 else []
    assert forces(disk, lambda: catalog.add(described())) == ["force", *after]
    assert forces(disk, lambda: catalog.set_stop(0, 2048, 1)) == after
    assert forces(disk, lambda: catalog.set_start_position(0, 2048)) == after
    assert forces(disk, lambda: catalog.extend(0, 1, 2, 3)) == after
    assert forces(disk, lambda: catalog.delete(0)) == after
    assert forces(disk, catalog.force) == ["force"]
    catalog.add(described())
    longer = described(1, source_identity="x" * 600)
    assert forces(disk, lambda: catalog.replace(longer)) == ["force", "force_directory"], "a new file, always"
    grown = ["force", "force", *after]
    assert forces(disk, lambda: catalog.add(described(source_identity="x" * CAPACITY))) == grown
    assert forces(disk, catalog.close) == ["force"]


def test_a_full_disk_leaves_the_catalog_as_it_was() -> None:
    disk = SimulatedDisk(capacity=2 * 4096)
    catalog = Catalog.open(disk.process(), "/", capacity=4 * 4096)
    catalog.add(described())
    with pytest.raises(OSError, match="cannot write") as raised:
        catalog.add(described(source_identity="x" * 9000))
    assert raised.value.errno == errno.ENOSPC
    assert catalog.add(described(1)) == 1, "what was half written is overwritten"
    assert state_of(catalog) == {0: described(0), 1: described(1)}
    assert state_of(Catalog.open(disk.process(), "/")) == {0: described(0), 1: described(1)}
    with pytest.raises(OSError, match="cannot"):
        catalog.replace(described(0, source_identity="x" * 9000))
    assert state_of(catalog) == {0: described(0), 1: described(1)}
    assert disk.process().list_directory("/") == ["archive.catalog"]


@pytest.mark.parametrize("kind", ["write", "force", "rename", "open", "extend"])
def test_a_failure_within_a_rewrite_leaves_the_old_entry(kind: str) -> None:
    disk = SimulatedDisk()
    catalog = opened(disk.process(), 1)
    catalog.add(described())
    disk.fail(kind, errno.EIO)
    with pytest.raises(OSError, match="cannot"):
        catalog.replace(described(0, source_identity="x" * 900))
    assert state_of(catalog) == {0: described(0)}
    catalog.replace(described(0, source_identity="x" * 900))
    assert state_of(opened(disk.process(), 1)) == {0: described(0, source_identity="x" * 900)}


def test_a_catalog_whose_name_may_be_lost_is_not_written_to() -> None:
    disk = SimulatedDisk()
    catalog = opened(disk.process(), 1)
    catalog.add(described())
    disk.fail("force_directory", errno.EIO)
    with pytest.raises(OSError, match="cannot force directory"):
        catalog.replace(described(0, source_identity="x" * 900))
    with pytest.raises(ArchiveError, match="cannot be used any more"):
        catalog.set_stop(0, 2048, 1)
    assert catalog.is_in_place(), "its name leads to the file that replaced it"
    disk.cut_power(Draws(1))
    assert opened(disk.process(), 1).recording_ids() == [0]


def test_after_a_force_that_failed_the_next_change_goes_into_a_new_file() -> None:
    disk = SimulatedDisk()
    catalog = opened(disk.process(), 1)
    catalog.add(described())
    disk.fail("force", errno.EIO)
    with pytest.raises(OSError, match="cannot force"):
        catalog.set_stop(0, 2048, 1)
    catalog.set_stop(0, 4096, 2)
    catalog.set_start_position(0, 2048)
    disk.cut_power(Draws(1))
    after = described(0, start_position=2048, stop_position=4096, stop_timestamp=2)
    assert state_of(opened(disk.process(), 1)) == {0: after}


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1])
def test_a_cut_of_the_power_mixes_nothing_of_two_attempts_to_add(level: int, after: int) -> None:
    disk = SimulatedDisk()
    catalog = opened(disk.process(), level)
    catalog.add(described(source_identity="x" * 100))
    attempts = [described(1, stream_id=each, start_position=each, source_identity="y" * 300) for each in (1024, 2048)]
    disk.fail("force", errno.EIO, after=after)
    if after == 0 or level > 0:
        with pytest.raises(OSError, match="cannot force"):
            catalog.add(attempts[0])
        disk.fail("force", errno.EIO, after=1)  # the new file is forced, and the entry is not
        with pytest.raises(OSError, match="cannot force"):
            catalog.add(attempts[1])
    for state in disk.crash_states(limit=1 << 14):
        found = state_of(opened(state.process(), level))
        assert found.pop(1, None) in (None, *attempts)
        assert found in ({}, {0: described(source_identity="x" * 100)}) if level == 0 else list(found) == [0]


@pytest.mark.parametrize("act", ["add", "replace", "force", "delete"])
def test_each_change_begins_with_the_new_file(act: str) -> None:
    disk = SimulatedDisk()
    storage = disk.process()
    catalog = opened(storage, 1)
    catalog.add(described())
    disk.fail("force", errno.EIO)
    with pytest.raises(OSError, match="cannot force"):
        catalog.set_stop(0, 2048, 1)
    disk.fail("rename", errno.ENOSPC)
    changes: dict[str, Callable[[], object]] = {
        "add": lambda: catalog.add(described()),
        "replace": lambda: catalog.replace(described(stream_id=7)),
        "force": catalog.force,
        "delete": lambda: catalog.delete(0),
    }
    with pytest.raises(OSError, match="cannot rename"):
        changes[act]()
    changes[act]()
    assert storage.list_directory("/") == ["archive.catalog"]


def test_an_entry_without_its_length_is_removed(storage: Storage, directory: str) -> None:
    body = bytes(4) + encoded(described(1))[4:]
    put(storage, directory, image(encoded(described(0)), body, next_id=2, length=CAPACITY))
    catalog = Catalog.open(storage, directory, capacity=CAPACITY)
    assert content_of(storage, directory) == image(encoded(described(0)), next_id=2, length=CAPACITY)
    assert catalog.add(described(original_channel="")) == 2
    assert Catalog.open(storage, directory).recording_ids() == [0, 2]


def test_what_a_crash_left_of_a_rewrite_is_removed(storage: Storage, directory: str) -> None:
    storage.open_file(f"{directory}/archive.catalog.new", CREATE).write(b"half", 0)
    Catalog.open(storage, directory)
    assert storage.list_directory(directory) == ["archive.catalog"]


def test_files_of_upstreams_tool_stay(storage: Storage, directory: str) -> None:
    names = ["archive.catalog.compact", "archive.catalog.updated"]
    for name in names:
        storage.open_file(f"{directory}/{name}", CREATE)
    Catalog.open(storage, directory).add(described())
    assert storage.list_directory(directory) == ["archive.catalog", *names]


def test_a_symbolic_link_that_leads_nowhere_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "archive.catalog.new").symlink_to(tmp_path / "victim")
    (tmp_path / "archive" / "archive.catalog").symlink_to(tmp_path / "other")
    Catalog.open(FileStorage(), str(tmp_path / "archive")).add(described())
    assert [each.name for each in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("seed", range(8))
def test_what_a_killed_process_had_renamed_lasts_before_anything_is_built_on_it(seed: int) -> None:
    disk = SimulatedDisk()
    first = disk.process()
    catalog = opened(first, 2)
    catalog.add(described())

    def kill_before_the_name_is_forced(kind: str, _length: int) -> None:
        if kind == "force_directory":
            disk.on_latency = None
            first.kill(Draws(1))

    disk.on_latency = kill_before_the_name_is_forced
    with pytest.raises((OSError, ArchiveError)):
        catalog.replace(described(0, original_channel="aeron:ipc?alias=" + "longer" * 200))
    assert first.is_dead
    second = disk.process()
    catalog = opened(second, 2)
    catalog.set_stop(0, 4096, 77)
    disk.cut_power(Draws(seed))
    descriptor = state_of(opened(disk.process(), 2))[0]
    assert descriptor is not None
    assert descriptor.stop_position == 4096
