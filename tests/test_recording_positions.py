"""What archive.positions says after a kill, a cut of the power, another archive, damage."""

from __future__ import annotations

import dataclasses
import errno
import stat
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from container.archive.server.store.facts import KnownPosition
from container.archive.server.store.recording_positions import POSITIONS_NAME, RecordingPositions
from container.errors import ArchiveError, ConfigurationError
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from tests.crashes import check_power_cuts, kills
from tests.test_archive_catalog import described

FIRST, SECOND, THIRD = (1_000, 41), (2_000, 42), (3_000, 43)
"""Owners: start timestamp and process id."""
LEVELS = [0, 1, 2]
START = 1024
PLACES_PER_PAGE = 64
VERSION = 2


@pytest.fixture(params=["files", "simulated"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return FileStorage() if request.param == "files" else SimulatedDisk().process()


@pytest.fixture
def directory(storage: Storage, tmp_path: Path) -> str:
    if isinstance(storage, FileStorage):
        return str(tmp_path)
    storage.make_directory("/archive")
    return "/archive"


def opened(
    storage: Storage, directory: str, owner: tuple[int, int] | None = FIRST, level: int = 0
) -> RecordingPositions:
    return RecordingPositions.open(storage, directory, sync_level=level, owner=owner)


def owned(storage: Storage, directory: str, level: int = 0, owner: tuple[int, int] = FIRST) -> RecordingPositions:
    made = opened(storage, directory, None, level)
    made.begin_ownership(owner)
    return made


def content_of(storage: Storage, directory: str) -> bytes:
    file = storage.open_file(f"{directory}/{POSITIONS_NAME}", 0)
    return file.read(file.length(), 0)


@pytest.mark.parametrize("level", LEVELS)
def test_after_a_kill_a_position_is_exact(storage: Storage, directory: str, level: int) -> None:
    place = owned(storage, directory, level).begin(described(5), START)
    assert opened(storage, directory).known(described(5)) == KnownPosition(START, is_exact=True)
    for position in (2048, 1 << 40, START):
        place.set(position)
        assert opened(storage, directory).known(described(5)) == KnownPosition(position, is_exact=True)
    assert opened(storage, directory).known(described(6)) is None


def test_each_recording_has_its_own(storage: Storage, directory: str) -> None:
    positions = owned(storage, directory)
    places = {each: positions.begin(described(each), START) for each in range(3 * PLACES_PER_PAGE)}
    for each, place in places.items():
        place.set(START + 32 * each)
    found = opened(storage, directory)
    for each in places:
        assert found.known(described(each)) == KnownPosition(START + 32 * each, is_exact=True)
    assert len(content_of(storage, directory)) == 4 * 4096


def test_a_place_that_is_freed_is_not_believed_and_is_used_again(storage: Storage, directory: str) -> None:
    positions = owned(storage, directory)
    for each in range(10 * PLACES_PER_PAGE):
        place = positions.begin(described(each), START)
        place.close()
        place.close()
        assert opened(storage, directory).known(described(each)) is None
    assert len(content_of(storage, directory)) == 4096


@pytest.mark.parametrize(
    "change", [{"session_id": 6}, {"control_session_id": 6}, {"correlation_id": 6}, {"start_timestamp": 6}]
)
def test_a_recording_that_was_extended_since_is_not_believed(
    storage: Storage, directory: str, change: dict[str, Any]
) -> None:
    owned(storage, directory).begin(described(5), START).set(2048)
    found = opened(storage, directory)
    assert found.known(dataclasses.replace(described(5), **change)) is None
    assert found.known(described(5, stream_id=7, stop_timestamp=7)) is not None, "these say nothing of the extension"


@pytest.mark.parametrize("owner", [None, SECOND, (FIRST[0], 0), (0, FIRST[1]), (-1, -1)])
def test_nothing_is_believed_when_another_archive_ran_in_between(
    storage: Storage, directory: str, owner: tuple[int, int] | None
) -> None:
    positions = owned(storage, directory)
    positions.begin(described(5), START)
    positions.note_truncation(6, 2048)
    found = opened(storage, directory, owner)
    assert found.known(described(5)) is None
    assert found.truncations() == {}


def test_a_position_before_the_start_of_the_recording_is_not_believed(storage: Storage, directory: str) -> None:
    owned(storage, directory).begin(described(5), START)
    assert opened(storage, directory).known(described(5, start_position=2048)) is None


def test_an_owner_takes_the_file_over_once_it_says_so(storage: Storage, directory: str) -> None:
    owned(storage, directory).begin(described(5), START)
    second = opened(storage, directory)
    with pytest.raises(ArchiveError, match="begin the ownership first"):
        second.begin(described(6), START)
    with pytest.raises(ArchiveError, match="begin the ownership first"):
        second.note_truncation(6, START)
    assert opened(storage, directory).known(described(5)) is not None
    second.begin_ownership(SECOND)
    assert second.known(described(5)) is None, "recovery is over"
    assert opened(storage, directory).known(described(5)) is None
    second.begin(described(6), START)
    assert opened(storage, directory, SECOND).known(described(5)) is None
    assert opened(storage, directory, SECOND).known(described(6)) is not None


def test_what_is_known_survives_crashes_of_recoveries(storage: Storage, directory: str) -> None:
    owned(storage, directory).begin(described(5), 2048)
    owner = FIRST
    for each in range(1, 4):
        found = opened(storage, directory, owner)
        assert found.known(described(5)) == KnownPosition(2048, is_exact=True)
        owner = (each, each)
        found.begin_recovery(owner)
        assert found.known(described(5)) == KnownPosition(2048, is_exact=True)
    assert opened(storage, directory, SECOND).known(described(5)) is None
    assert opened(storage, directory, FIRST).known(described(5)) is not None, "the new owner was not written yet"


def test_a_recovery_of_a_file_that_says_nothing_leaves_it(storage: Storage, directory: str) -> None:
    owned(storage, directory).begin(described(5), 2048)
    before = content_of(storage, directory)
    opened(storage, directory, SECOND).begin_recovery(THIRD)
    assert content_of(storage, directory) == before
    assert opened(storage, directory, THIRD).known(described(5)) is None


# --- cuts of the power -------------------------------------------------------------------------------------------


def after_power_cut(level: int, act: Callable[[RecordingPositions], object]) -> RecordingPositions:
    disk = SimulatedDisk()
    act(owned(disk.process(), "/", level))
    disk.cut_power(Draws(0))
    return opened(disk.process(), "/", level=level)


@pytest.mark.parametrize("level", [1, 2])
def test_after_a_cut_of_the_power_a_begin_that_was_moved_since_is_the_bound(level: int) -> None:
    # The segments in front of it were purged while the recording was active: what follows them had been forced.
    found = after_power_cut(level, lambda positions: positions.begin(described(5), START))
    assert found.known(described(5, start_position=4096)) == KnownPosition(4096, is_exact=False)


@pytest.mark.parametrize("level", [1, 2])
def test_after_a_cut_of_the_power_a_forced_position_is_a_bound(level: int) -> None:
    def act(positions: RecordingPositions) -> None:
        place = positions.begin(described(5), START)
        place.set(2048)
        place.force()

    assert after_power_cut(level, act).known(described(5)) == KnownPosition(2048, is_exact=False)


def test_at_level_0_a_cut_of_the_power_leaves_nothing_that_is_believed() -> None:
    def act(positions: RecordingPositions) -> None:
        place = positions.begin(described(5), START)
        place.set(2048)
        place.force()
        positions.note_truncation(6, START)

    found = after_power_cut(0, act)
    assert found.known(described(5)) is None
    assert found.truncations() == {}


def test_the_level_is_that_of_the_archive_that_wrote() -> None:
    disk = SimulatedDisk()
    owned(disk.process(), "/", 0).begin(described(5), START).force()
    disk.cut_power(Draws(0))
    assert opened(disk.process(), "/", level=2).known(described(5)) is None


@pytest.mark.parametrize("level", [1, 2])
def test_begin_forces_the_place(level: int) -> None:
    found: list[KnownPosition | None] = []
    disk = SimulatedDisk()
    positions = owned(disk.process(), "/", level)
    for each in range(2 * PLACES_PER_PAGE):
        positions.begin(described(each), START + each * 32)
    for state in disk.crash_states():
        again = opened(state.process(), "/")
        found += [again.known(described(each)) for each in range(2 * PLACES_PER_PAGE)]
        assert again.known(described(each)) == KnownPosition(START + each * 32, is_exact=False)
    assert None not in found


@pytest.mark.parametrize("level", [1, 2])
def test_no_cut_of_the_power_shows_a_position_that_was_not_set(level: int) -> None:
    allowed = {None, *(KnownPosition(position, is_exact=False) for position in (START, 2048, 4096))}

    def act(storage: Storage) -> None:
        positions = owned(storage, "/", level)
        first = positions.begin(described(0), START)
        second = positions.begin(described(1), START)
        first.set(2048)
        second.set(2048)
        first.force()
        second.set(4096)
        second.close()
        positions.begin(described(0, correlation_id=3), START).set(4096)

    def check(disk: SimulatedDisk) -> None:
        found = opened(disk.process(), "/")
        for each in (described(0), described(1), described(0, correlation_id=3)):
            assert found.known(each) in allowed
        found.begin_ownership(SECOND)
        found.begin(described(9), START)
        assert opened(disk.process(), "/", SECOND).known(described(9)) == KnownPosition(START, is_exact=True)
        assert disk.process().list_directory("/") == [POSITIONS_NAME]

    assert check_power_cuts(lambda _: None, act, check) > 5


def test_a_kill_leaves_what_was_set_or_nothing() -> None:
    found = set()

    def act(storage: Storage) -> None:
        positions = owned(storage, "/", 1)
        place = positions.begin(described(0), START)
        place.set(2048)
        place.force()
        place.set(4096)
        place.force()
        positions.begin_ownership(FIRST)

    for disk in kills(lambda _: None, act):
        found.add(opened(disk.process(), "/").known(described(0)))
    exact = {KnownPosition(each, is_exact=True) for each in (START, 2048, 4096)}
    assert {None} < found <= {None} | exact
    assert KnownPosition(4096, is_exact=True) in found


@pytest.mark.parametrize("level", LEVELS)
def test_a_crash_while_an_owner_takes_over_leaves_the_old_file_or_the_new_one(level: int) -> None:
    def prepare(storage: Storage) -> None:
        positions = owned(storage, "/", 1)
        positions.begin(described(0), 2048)
        positions.note_truncation(7, START)

    def act(storage: Storage) -> None:
        positions = opened(storage, "/", FIRST, level)
        positions.begin_recovery(SECOND)
        positions.begin_ownership(SECOND)

    def check(disk: SimulatedDisk) -> None:
        found = [opened(disk.process(), "/", each).truncations() for each in (FIRST, SECOND)]
        if level > 0:
            assert {7: START} in found, "whichever owner the mark file has last"
        assert all(each in ({}, {7: START}) for each in found)
        assert f"/{POSITIONS_NAME}" in disk.contents()

    check_power_cuts(prepare, act, check)
    for disk in kills(prepare, act):
        check(disk)


# --- truncations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_truncation_is_known_until_it_has_ended(storage: Storage, directory: str, level: int) -> None:
    positions = owned(storage, directory, level)
    positions.note_truncation(3, 4096)
    positions.note_truncation(4, 64)
    positions.note_truncation(3, 2048)
    assert positions.truncations() == {3: 2048, 4: 64}
    assert opened(storage, directory).truncations() == {3: 2048, 4: 64}
    positions.end_truncation(3)
    positions.end_truncation(3)
    assert opened(storage, directory).truncations() == {4: 64}
    again = opened(storage, directory)
    again.begin_ownership(SECOND)
    assert opened(storage, directory, SECOND).truncations() == {4: 64}, "it was not done again yet"
    again.end_truncation(4)
    assert opened(storage, directory, SECOND).truncations() == {}


def test_a_truncation_that_ends_before_the_ownership_begins_is_forgotten(storage: Storage, directory: str) -> None:
    owned(storage, directory).note_truncation(3, 4096)
    again = opened(storage, directory)
    again.end_truncation(3)
    assert opened(storage, directory).truncations() == {3: 4096}
    again.begin_ownership(SECOND)
    assert opened(storage, directory, SECOND).truncations() == {}


def test_more_truncations_than_a_page_has_places(storage: Storage, directory: str) -> None:
    expected = {each: each * 32 for each in range(3 * PLACES_PER_PAGE)}
    positions = owned(storage, directory)
    for each, position in expected.items():
        positions.note_truncation(each, position)
    again = opened(storage, directory)
    assert again.truncations() == expected
    again.begin_ownership(SECOND)
    assert opened(storage, directory, SECOND).truncations() == expected
    for each in expected:
        again.end_truncation(each)
    assert opened(storage, directory, SECOND).truncations() == {}
    again.begin(described(5), START)
    assert opened(storage, directory, SECOND).known(described(5)) is not None


@pytest.mark.parametrize("level", [1, 2])
def test_a_noted_truncation_is_on_the_disk_and_an_ended_one_is_not(level: int) -> None:
    disk = SimulatedDisk()
    positions = owned(disk.process(), "/", level)
    positions.note_truncation(3, 4096)
    assert [opened(each.process(), "/").truncations() for each in disk.crash_states()] == [{3: 4096}]
    positions.end_truncation(3)
    assert [opened(each.process(), "/").truncations() for each in disk.crash_states()] == [{}]


def test_a_truncation_finds_a_place_on_a_full_disk() -> None:
    disk = SimulatedDisk(capacity=4096)
    positions = owned(disk.process(), "/", 1)
    with pytest.raises(OSError, match="cannot reserve"):  # noqa: PT012 - the last of many
        for each in range(PLACES_PER_PAGE):
            positions.begin(described(each), START)
    for each in range(4):
        positions.note_truncation(each, START)
    assert opened(disk.process(), "/").truncations() == dict.fromkeys(range(4), START)


# --- damage ------------------------------------------------------------------------------------------------------


def test_no_byte_that_rots_is_believed_or_stops_a_start() -> None:
    disk, exact = SimulatedDisk(), KnownPosition(2048, is_exact=True)
    positions = owned(disk.process(), "/")
    positions.begin(described(5), START).set(2048)
    positions.note_truncation(6, START)
    positions.close()
    for offset in range(512 + 2 * 64):
        for mask in (1, 0x80):
            disk.rot(f"/{POSITIONS_NAME}", offset, mask)
            found = opened(disk.process(), "/")
            assert found.known(described(5)) in (None, exact)
            if offset < 16 or 32 <= offset < 48 or 512 <= offset < 576:
                assert found.known(described(5)) is None, offset
            assert found.truncations() in ({}, {6: START})
            disk.rot(f"/{POSITIONS_NAME}", offset, mask)
    found.begin_ownership(SECOND)
    assert opened(disk.process(), "/").known(described(5)) is None


def test_zeros_in_the_place_of_a_position_are_not_believed(tmp_path: Path) -> None:
    owned(FileStorage(), str(tmp_path)).begin(described(5, start_position=0), 2048)
    path = tmp_path / POSITIONS_NAME
    whole = path.read_bytes()
    for begin in range(512, 576):
        path.write_bytes(whole[:begin].ljust(len(whole), b"\0"))
        assert opened(FileStorage(), str(tmp_path)).known(described(5, start_position=0)) is None, begin


@pytest.mark.parametrize("length", [0, 1, 63, 511, 512, 575])
def test_a_file_that_is_cut_says_nothing(tmp_path: Path, length: int) -> None:
    owned(FileStorage(), str(tmp_path)).begin(described(5), START)
    path = tmp_path / POSITIONS_NAME
    path.write_bytes(path.read_bytes()[:length])
    found = opened(FileStorage(), str(tmp_path))
    assert found.known(described(5)) is None
    found.begin_recovery(SECOND)
    found.begin_ownership(SECOND)
    assert len(path.read_bytes()) == 4096


def test_files_of_random_bytes_say_nothing() -> None:
    random, disk = Random(7), SimulatedDisk()
    owned(disk.process(), "/").begin(described(5), START)
    file = disk.process().open_file(f"/{POSITIONS_NAME}", 0)
    whole = file.read(4096, 0)
    for case in range(1_000):
        content = bytearray(whole)
        for _ in range(random.randrange(1, 20)):
            begin = random.randrange(64, len(content)) if case % 2 else random.randrange(len(content))
            content[begin : begin + random.randrange(80)] = random.randbytes(random.randrange(80))
        file.set_length(len(content))
        file.write(content, 0)
        found = opened(disk.process(), "/")
        assert found.known(described(5)) in (None, KnownPosition(START, is_exact=True))
        assert found.truncations() == {}


def test_a_file_of_another_version_says_nothing(tmp_path: Path) -> None:
    owned(FileStorage(), str(tmp_path)).begin(described(5), START)
    path = tmp_path / POSITIONS_NAME
    content = bytearray(path.read_bytes())
    content[8:12] = struct.pack("<i", VERSION + 1)
    content[80:84] = struct.pack("<I", zlib.crc32(content[:80]))
    path.write_bytes(content)
    assert opened(FileStorage(), str(tmp_path)).known(described(5)) is None
    content[8:12] = struct.pack("<i", VERSION)
    content[80:84] = struct.pack("<I", zlib.crc32(content[:80]))
    path.write_bytes(content)
    assert opened(FileStorage(), str(tmp_path)).known(described(5)) is not None


def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "archive"
    victim.write_bytes(b"precious" * 1000)
    directory.mkdir()
    for name in (POSITIONS_NAME, f"{POSITIONS_NAME}.new"):
        (directory / name).symlink_to(victim)
    positions = opened(FileStorage(), str(directory))
    positions.begin_recovery(SECOND)
    positions.begin_ownership(SECOND)
    positions.begin(described(5), START)
    assert victim.read_bytes() == b"precious" * 1000
    assert not (directory / POSITIONS_NAME).is_symlink()
    assert [each.name for each in directory.iterdir()] == [POSITIONS_NAME]


def test_others_cannot_read_the_file(tmp_path: Path) -> None:
    owned(FileStorage(), str(tmp_path))
    mode = stat.S_IMODE((tmp_path / POSITIONS_NAME).stat().st_mode)
    assert mode & ~0o640 == 0


@pytest.mark.parametrize("kind", ["open", "look", "read"])
def test_a_file_that_cannot_be_read_says_nothing(kind: str) -> None:
    disk = SimulatedDisk()
    owned(disk.process(), "/").begin(described(5), START)
    disk.fail(kind, errno.EIO)
    found = opened(disk.process(), "/")
    assert found.known(described(5)) is None
    found.begin_ownership(SECOND)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_start_that_lacks_descriptors_or_memory_is_to_be_repeated(error: int) -> None:
    disk = SimulatedDisk()
    owned(disk.process(), "/").begin(described(5), START)
    disk.fail("open", error)
    with pytest.raises(OSError, match="cannot open"):
        opened(disk.process(), "/")
    assert opened(disk.process(), "/").known(described(5)) == KnownPosition(START, is_exact=True)


def test_a_directory_of_that_name_is_reported(tmp_path: Path) -> None:
    (tmp_path / POSITIONS_NAME).mkdir()
    positions = opened(FileStorage(), str(tmp_path))
    with pytest.raises(OSError, match="cannot rename"):
        positions.begin_ownership(SECOND)


def test_a_force_that_fails_frees_the_place() -> None:
    disk = SimulatedDisk()
    positions = owned(disk.process(), "/", 1)
    disk.fail("force", errno.EIO)
    with pytest.raises(OSError, match="cannot force"):
        positions.begin(described(5), START)
    assert opened(disk.process(), "/").known(described(5)) is None


# --- misuse ------------------------------------------------------------------------------------------------------


def test_what_is_closed_is_not_used(storage: Storage, directory: str) -> None:
    positions = owned(storage, directory)
    first, second = positions.begin(described(5), START), positions.begin(described(6), START)
    first.close()
    calls: list[Callable[[], object]] = [lambda: first.set(64), first.force]
    for call in calls:
        with pytest.raises(ArchiveError, match="position of recording 5 is closed"):
            call()
    positions.close()
    positions.close()
    calls = [lambda: second.set(64), second.force]
    for call in calls:
        with pytest.raises(ArchiveError, match="position of recording 6 is closed"):
            call()
    second.close()
    with pytest.raises(ArchiveError, match="not open"):
        positions.begin(described(7), START)
    assert "closed" in repr(positions)
    assert "closed" in repr(first)
    assert opened(storage, directory).known(described(6)) is not None, "the file keeps what it has"


@pytest.mark.parametrize("level", [-1, 3])
def test_another_level_is_refused(storage: Storage, directory: str, level: int) -> None:
    with pytest.raises(ConfigurationError, match="sync_level="):
        opened(storage, directory, level=level)


def test_what_a_crash_left_of_a_takeover_is_overwritten(storage: Storage, directory: str) -> None:
    storage.open_file(f"{directory}/{POSITIONS_NAME}.new", CREATE).write(b"half" * 2000, 0)
    owned(storage, directory)
    assert storage.list_directory(directory) == [POSITIONS_NAME]
