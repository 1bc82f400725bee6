"""Recovery: where recordings end that were in progress, after a kill, a cut of the power, another archive, damage."""

from __future__ import annotations

import dataclasses
import errno
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from container.archive.server.store.facts import Recovered
from container.archive.server.store.recovery import recover
from container.errors import ConfigurationError, RecordingError
from container.files.catalog import RecordingDescriptor
from container.files.checksums import crc32c
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from tests.crashes import check_power_cuts, kills
from tests.segment_scenes import (
    DATA,
    FIRST,
    NOW,
    PADDING,
    SECOND,
    SEGMENT,
    TERM,
    Scene,
    filled,
    frame,
    frames,
    recording,
    stopped,
)

LEVELS = [0, 1, 2]
THREE = frames(0, [b"a" * 100, b"b" * 500, b"c" * 3000])
END = len(THREE)
"""Where they end."""


@pytest.fixture(params=["files", "simulated"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(FileStorage(), str(tmp_path)) if request.param == "files" else simulated()


def simulated() -> Scene:
    return Scene(SimulatedDisk().process())


def refused(scene: Scene, text: str, **values: Any) -> RecordingError:
    """The start is refused, and neither catalog nor segments are changed."""
    before = {each: scene.storage.length_of(f"{scene.directory}/{each}") for each in scene.segments()}
    contents = {
        each: scene.segment(int(each[2:-4])) for each in before if each.startswith("0-") and each[2:-4].isdigit()
    }
    entry = scene.catalog().descriptor(0)
    with pytest.raises(RecordingError, match=text) as raised:
        scene.start(**values)
    assert scene.catalog().descriptor(0) == entry
    assert {each: scene.storage.length_of(f"{scene.directory}/{each}") for each in scene.segments()} == before
    assert contents == {each: scene.segment(int(each[2:-4])) for each in contents}
    return raised.value


# --- nothing is known --------------------------------------------------------------------------------------------


def test_without_a_segment_the_recording_ends_where_it_begins(scene: Scene) -> None:
    scene.write_catalog(recording(start_position=4096))
    assert scene.start() == [Recovered(0, 4096, "frames", 0)]
    assert scene.descriptor() == stopped(recording(start_position=4096), 4096)
    assert scene.segments() == []


@pytest.mark.parametrize("level", LEVELS)
def test_the_frames_say_where_it_ends(scene: Scene, level: int) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE)
    assert scene.start(level=level) == [Recovered(0, END, "frames", 0)]
    assert scene.descriptor() == stopped(recording(), END)
    assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")
    assert scene.start(owner=SECOND) == [], "it has stopped"


@pytest.mark.parametrize("start", [1024, TERM + 1024, SEGMENT - 4096, 5 * TERM, 5 * TERM + 96])
def test_a_recording_may_begin_in_the_middle_of_a_term(scene: Scene, start: int) -> None:
    base, content = start // TERM * TERM, frames(start, [b"a" * 100, b"b"])
    scene.write_catalog(recording(start_position=start))
    scene.write(base, content, offset=start - base)
    assert scene.start() == [Recovered(0, start + len(content), "frames", 0)]


def test_the_highest_segment_counts(scene: Scene) -> None:
    scene.write_catalog(recording())
    for base in (0, SEGMENT):
        scene.write(base, filled(base, base + SEGMENT))
    scene.write(2 * SEGMENT, frame(2 * SEGMENT))
    assert scene.start() == [Recovered(0, 2 * SEGMENT + 160, "frames", 0)]


def test_earlier_segments_may_be_missing(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(3 * SEGMENT, frame(3 * SEGMENT))
    assert scene.start() == [Recovered(0, 3 * SEGMENT + 160, "frames", 0)]


@pytest.mark.parametrize("length", [SEGMENT, 0])
def test_behind_a_full_segment_the_empty_one_is_the_end(scene: Scene, length: int) -> None:
    scene.write_catalog(recording())
    scene.write(0, filled(0, SEGMENT))
    scene.write(SEGMENT, b"", length=length)
    assert scene.start() == [Recovered(0, SEGMENT, "frames", 0)]
    assert scene.segment(SEGMENT) == bytes(SEGMENT)


def test_an_empty_segment_alone_is_the_end(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(2 * SEGMENT, b"")
    assert scene.start() == [Recovered(0, 2 * SEGMENT, "frames", 0)]


def test_a_full_segment_gets_an_empty_one_behind_it(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(0, filled(0, SEGMENT))
    assert scene.start() == [Recovered(0, SEGMENT, "frames", 0)]
    assert scene.segments() == ["0-0.rec", f"0-{SEGMENT}.rec"]
    assert scene.segment(SEGMENT) == bytes(SEGMENT)


def test_a_segment_that_lost_frames_before_an_empty_one_is_the_last(scene: Scene) -> None:
    content = filled(0, SEGMENT)
    scene.write_catalog(recording())
    scene.write(0, content[: 20 * 4096] + bytes(4096) + content[21 * 4096 :])
    scene.write(SEGMENT, b"")
    assert scene.start() == [Recovered(0, 20 * 4096, "frames", 0)]
    assert scene.segments() == ["0-0.rec"]
    assert scene.segment(0) == content[: 20 * 4096].ljust(SEGMENT, b"\0")


@pytest.mark.parametrize(
    "garbage",
    [
        frame(END, length=64, stream_id=99, term_id=12345),
        frame(END, stream_id=99),
        frame(END, term_id=5),
        frame(END, term_offset=END + 32),
        frame(END, version=1),
        frame(END, type=2),
        frame(END, length=31),
        frame(END, length=-1),
        frame(END, length=TERM),
        frame(END, length=33 * 1024),
        bytes(32) + frame(END + 32),
        b"\xff" * 500,
        bytes(5000) + b"\x01",
    ],
    ids=range(13),
)
def test_garbage_behind_the_end_is_no_frame_and_is_erased(scene: Scene, garbage: bytes) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE + garbage)
    assert scene.start() == [Recovered(0, END, "frames", 0)]
    assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")


def test_frames_behind_a_wrong_header_are_damage(scene: Scene) -> None:
    content = bytearray(frames(0, [b"a" * 100] * 20))
    content[5 * 160 + 20] ^= 1
    scene.write_catalog(recording())
    scene.write(0, bytes(content))
    error = refused(scene, "no frame begins here, but at log position 960 one does.*mark-invalid")
    assert (error.offset, error.log_position) == (800, 800)
    assert error.file is not None
    assert error.file.endswith("/0-0.rec")


@pytest.mark.parametrize("is_same_session", [True, False])
def test_frames_of_an_earlier_session_behind_the_end_are_stale(scene: Scene, is_same_session: bool) -> None:
    old = recording(start_position=0, session_id=7 if is_same_session else 8)
    first = frames(0, [b"a" * 100] * 2, session_id=6)
    stale = bytearray(first + frames(len(first), [b"s" * 1000] * 3))
    newer = frames(len(first), [b"n" * 500], session_id=old.session_id)
    stale[len(first) : len(first) + len(newer)] = newer
    scene.write_catalog(old)
    scene.write(0, bytes(stale))
    end = len(first) + len(newer)
    if is_same_session:
        refused(scene, f"no frame begins here, but at log position {len(first) + 1056} one does")
    else:
        assert scene.start() == [Recovered(0, end, "frames", 0)]
        assert scene.segment(0) == (first + newer).ljust(SEGMENT, b"\0")


def test_sessions_may_alternate(scene: Scene) -> None:
    content = b""
    for session_id in (7, 8, 7, 8):
        content += frames(len(content), [b"n" * 100] * 3, session_id=session_id)
    scene.write_catalog(recording(session_id=7))
    scene.write(0, content)
    assert scene.start() == [Recovered(0, len(content), "frames", 0)], "the last extension has no frame yet"


def test_padding_before_garbage_is_not_torn(scene: Scene) -> None:
    content = THREE + frame(END, b"", kind=PADDING, length=TERM - END)
    scene.write_catalog(recording())
    scene.write(0, content.ljust(TERM, b"\0") + frame(TERM, b"s" * 100, stream_id=3))
    assert scene.start() == [Recovered(0, TERM, "frames", 0)]


def test_behind_the_bound_a_frame_of_an_earlier_session_is_stale() -> None:
    newer = frames(0, [b"n" * 1000] * 2)
    scene = bounded(len(newer) // 2)
    scene.write(0, newer + frames(len(newer), [b"s" * 1000] * 3, session_id=6))
    assert scene.start(level=1) == [Recovered(0, len(newer), "bound", 0)]
    assert scene.segment(0) == newer.ljust(SEGMENT, b"\0")


def test_a_checksum_that_looks_like_the_session_id_ends_nothing(scene: Scene) -> None:
    content = frames(0, [b"a" * 100, b"b" * 100, b"c" * 100], checksum=crc32c)
    session_id = int.from_bytes(content[160 + 12 : 160 + 16], "little", signed=True)
    scene.write_catalog(recording(session_id=session_id))
    scene.write(0, content)
    assert scene.start() == [Recovered(0, len(content), "frames", 0)]


def test_frames_far_behind_a_wrong_header_are_damage(scene: Scene) -> None:
    length = 4 << 20
    content = b"".join(frame(at, b"y" * 16352, term=length, session_id=7) for at in range(0, 2 << 20, 16384))
    scene.write_catalog(recording(term_buffer_length=length, segment_file_length=length, session_id=99))
    scene.write(0, content[:4] + b"\xff" + content[5:], length=length)
    with pytest.raises(RecordingError, match="no frame begins here, but at log position"):
        scene.start()


def test_a_file_that_is_longer_than_a_segment_is_cut(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(0, filled(0, SEGMENT + 4096), length=SEGMENT + 4096)
    assert scene.start() == [Recovered(0, SEGMENT, "frames", 0)]
    assert len(scene.segment(SEGMENT)) == SEGMENT


@pytest.mark.parametrize("length", [END, END + 31, END + 32, 3 * 4096])
def test_a_file_that_is_shorter_than_a_segment_gets_its_length(scene: Scene, length: int) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE, length=length)
    assert scene.start() == [Recovered(0, END, "frames", 0)]
    assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")


def test_a_frame_behind_the_end_of_the_file_is_torn(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(0, (THREE + frame(END, b"d" * 2000))[: END + 1000], length=END + 1000)
    refused(scene, "last frame may be incomplete")
    assert scene.start(torn_frame="cut") == [Recovered(0, END, "frames", 2048)]
    assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")


ZERO_PAGE = frame(END, b"d" * 300 + bytes(9000) + b"e" * 100)


@pytest.mark.parametrize(
    ("last", "is_torn"),
    [
        (ZERO_PAGE, True),
        (frame(END, b"d" * (4096 - END - 32) + bytes(500)), True),
        (frame(END, b"d" * (4096 - END - 32)), False),
        (frame(END, bytes(4096 - END - 32)), False),
        (frame(END, b"d" * (4096 - END - 32) + bytes(500) + b"e"), False),
        (frame(END, bytes(4096 - END - 32) + b"e" + bytes(4095) + b"e"), False),
        (frame(END, bytes(4096 - END - 32) + bytes(4095) + b"e" + bytes(4096)), True),
        (frame(END, b"", kind=PADDING, length=TERM - END), False),
    ],
    ids=range(8),
)
def test_a_last_frame_with_a_zero_page_is_refused_or_cut(scene: Scene, last: bytes, is_torn: bool) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE + last)
    if is_torn:
        error = refused(scene, "last frame may be incomplete.*ArchiveTool verify")
        assert (error.offset, error.log_position) == (END, END)
        assert scene.start(torn_frame="cut") == [Recovered(0, END, "frames", len(last))]
        assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")
    else:
        length = TERM - END if len(last) == 32 else len(last)
        assert scene.start() == [Recovered(0, END + length, "frames", 0)]
        assert scene.segment(0) == (THREE + last).ljust(SEGMENT, b"\0")


@pytest.mark.parametrize(("kind", "checksum"), [(1, zlib.crc32), (2, crc32c)])
def test_a_checksum_proves_that_a_frame_is_whole(scene: Scene, kind: int, checksum: Callable[[bytes], int]) -> None:
    last = frame(END, b"d" * 700 + bytes(6000), checksum=checksum)
    scene.write_catalog(recording())
    scene.write(0, THREE + last)
    refused(scene, "last frame may be incomplete", checksum=3 - kind)
    assert scene.start(checksum=kind) == [Recovered(0, END + len(last), "frames", 0)]


def test_payloads_of_zeros_that_are_not_last_are_no_damage(scene: Scene) -> None:
    content = frames(0, [bytes(1000)] * 9)
    scene.write_catalog(recording())
    scene.write(0, content)
    assert scene.start() == [Recovered(0, len(content), "frames", 0)], "its last frame lies in one page"
    scene.write_catalog(recording())
    scene.write(0, frames(0, [bytes(1000)] * 4))
    refused(scene, "last frame may be incomplete")


def test_the_page_of_a_frame_is_of_the_file_and_not_of_what_is_read_at_once(scene: Scene) -> None:
    mebibyte, term = 1 << 20, 4 << 20
    content = filled(0, mebibyte - 3 * 32) + frame(mebibyte - 96, b"z" * 8000, term=term)
    content = (
        b"".join(frame(at, b"y" * 4064, term=term) for at in range(0, mebibyte - 4096, 4096))
        + frame(mebibyte - 4096, b"z" * 3968, term=term)
        + frame(mebibyte - 96, b"z" * 8000, term=term)
    )
    values = {"term_buffer_length": term, "segment_file_length": term}
    scene.write_catalog(recording(**values))
    scene.write(0, content, length=term)
    assert scene.start() == [Recovered(0, len(content), "frames", 0)]


def test_padding_is_passed_over(scene: Scene) -> None:
    content = THREE + frame(END, b"", kind=PADDING, length=TERM - END)
    scene.write_catalog(recording())
    scene.write(0, content.ljust(TERM, b"\0") + frame(TERM, b"next term"))
    assert scene.start() == [Recovered(0, TERM + 64, "frames", 0)]


def test_padding_may_be_the_end_of_a_segment(scene: Scene) -> None:
    content = filled(0, TERM) + frames(TERM, [b"a"])
    content += frame(len(content), b"", kind=PADDING, length=SEGMENT - len(content))
    scene.write_catalog(recording())
    scene.write(0, content)
    assert scene.start() == [Recovered(0, SEGMENT, "frames", 0)]
    assert scene.segment(0) == content.ljust(SEGMENT, b"\0")


# --- an exact position -------------------------------------------------------------------------------------------


def known(scene: Scene, position: int, *, level: int = 0, descriptor: RecordingDescriptor | None = None) -> None:
    """A recording was written up to a position when its archive was killed."""
    descriptor = recording() if descriptor is None else descriptor
    scene.write_catalog(descriptor)
    place = scene.positions(level=level).begin(descriptor, descriptor.start_position)
    place.set(position)
    if level > 0:
        place.force()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "behind", [b"", frame(END, b"d" * 5000), b"\x55" * 3000, frame(END, bytes(8000))], ids=range(4)
)
def test_after_a_kill_the_recording_ends_where_it_was_announced(scene: Scene, level: int, behind: bytes) -> None:
    known(scene, END, level=level)
    scene.write(0, THREE + behind)
    assert scene.start(level=level) == [Recovered(0, END, "exact", 0)]
    assert scene.descriptor() == stopped(recording(), END)
    assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")


def test_after_a_kill_a_last_frame_of_zeros_is_whole(scene: Scene) -> None:
    content = THREE + frame(END, bytes(9000))
    known(scene, len(content))
    scene.write(0, content)
    assert scene.start() == [Recovered(0, len(content), "exact", 0)]


@pytest.mark.parametrize("with_next", [True, False])
@pytest.mark.parametrize("behind", [b"", frame(SEGMENT)])
def test_after_a_kill_at_the_end_of_a_segment(scene: Scene, with_next: bool, behind: bytes) -> None:
    known(scene, SEGMENT)
    scene.write(0, filled(0, SEGMENT))
    if with_next:
        scene.write(SEGMENT, behind)
    assert scene.start() == [Recovered(0, SEGMENT, "exact", 0)]
    assert scene.segment(SEGMENT) == bytes(SEGMENT)


def test_after_a_kill_before_a_full_segment_was_announced(scene: Scene) -> None:
    content = filled(0, SEGMENT)
    known(scene, SEGMENT - 2 * 4096)
    scene.write(0, content)
    scene.write(SEGMENT, b"")
    assert scene.start() == [Recovered(0, SEGMENT - 2 * 4096, "exact", 0)]
    assert scene.segments() == ["0-0.rec"]
    assert scene.segment(0) == content[: -2 * 4096].ljust(SEGMENT, b"\0")


@pytest.mark.parametrize("base", [0, 4096])
def test_after_a_kill_before_anything_was_written(scene: Scene, base: int) -> None:
    known(scene, base, descriptor=recording(start_position=base))
    assert scene.start() == [Recovered(0, base, "exact", 0)]
    assert scene.segments() == []


def test_after_a_kill_of_an_empty_recording_with_a_file(scene: Scene) -> None:
    known(scene, 4096, descriptor=recording(start_position=4096))
    scene.write(0, frame(4096), offset=4096)
    assert scene.start() == [Recovered(0, 4096, "exact", 0)]
    assert scene.segment(0) == bytes(SEGMENT)


@pytest.mark.parametrize("position", [END + 32, END - 32, 160 + 32, SEGMENT])
def test_files_that_do_not_have_what_was_announced_are_refused(scene: Scene, position: int) -> None:
    known(scene, position)
    scene.write(0, THREE)
    error = refused(scene, f"written up to log position {position}, but its frames end here")
    assert error.log_position in (END, 160, 160 + 544)
    assert error.file is not None


def test_a_missing_file_of_what_was_announced_is_refused(scene: Scene) -> None:
    known(scene, SEGMENT + 160)
    scene.write(0, filled(0, SEGMENT))
    error = refused(scene, f"written up to log position {SEGMENT + 160}, but this file is missing")
    assert error.file is not None
    assert error.file.endswith(f"/0-{SEGMENT}.rec")


def test_data_in_a_later_file_are_not_erased(scene: Scene) -> None:
    known(scene, END)
    scene.write(0, THREE)
    scene.write(SEGMENT, frame(SEGMENT))
    refused(scene, f"ends at log position {END}, but this later file has data")


# --- a lower bound -----------------------------------------------------------------------------------------------


def bounded(position: int, *, level: int = 1, start: int = 0) -> Scene:
    """A recording of which all before a position was on the disk when the power was cut."""
    disk = SimulatedDisk()
    scene = Scene(disk.process())
    known(scene, position, level=level, descriptor=recording(start_position=start))
    for name in ("archive.catalog", "archive.positions"):
        scene.storage.open_file(f"/{name}", 0).force(True)
    disk.cut_power(Draws(0))
    return Scene(disk.process())


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("bound", [0, 160, 160 + 544, END])
def test_after_a_cut_of_the_power_frames_are_walked_from_the_bound(bound: int, level: int) -> None:
    scene = bounded(bound, level=level)
    scene.write(0, THREE)
    assert scene.start(level=level) == [Recovered(0, END, "bound", 0)]
    assert scene.descriptor() == stopped(recording(), END)
    assert scene.segment(0) == THREE.ljust(SEGMENT, b"\0")


def test_at_level_0_a_cut_of_the_power_leaves_the_frames_alone() -> None:
    scene = bounded(END, level=0)
    scene.write(0, THREE)
    assert scene.start() == [Recovered(0, END, "frames", 0)]


@pytest.mark.parametrize(
    "payload", [bytes(100), b"d" * 512 + bytes(512) + b"d" * 100, b"d" * 512 + bytes(32)], ids=range(3)
)
def test_a_frame_behind_the_bound_that_may_be_torn_is_cut(payload: bytes) -> None:
    begin = 4096 - 544
    content = filled(0, begin) + frame(begin, b"b" * 480)
    torn = frame(4096 - 32, payload)
    scene = bounded(begin)
    scene.write(0, content + torn + frame(4096 - 32 + len(torn), b"whole"))
    assert scene.start(level=1) == [Recovered(0, 4096 - 32, "bound", len(torn))]
    assert scene.segment(0) == content.ljust(SEGMENT, b"\0")


def test_a_frame_of_zeros_before_the_bound_stays() -> None:
    content = frames(0, [b"a", bytes(5000), b"c"])
    scene = bounded(len(content) - 64)
    scene.write(0, content)
    assert scene.start(level=1) == [Recovered(0, len(content), "bound", 0)]


@pytest.mark.parametrize(("kind", "checksum"), [(1, zlib.crc32), (2, crc32c)])
def test_a_frame_of_zeros_behind_the_bound_stays_with_its_checksum(kind: int, checksum: Callable[[bytes], int]) -> None:
    content = frames(0, [b"a" * 40, bytes(5000), b"c"], checksum=checksum)
    scene = bounded(0)
    scene.write(0, content)
    assert scene.start(level=1, checksum=kind) == [Recovered(0, len(content), "bound", 0)]


def test_the_walk_goes_on_in_the_next_segments() -> None:
    scene = bounded(4096)
    for base in (0, SEGMENT):
        scene.write(base, filled(base, base + SEGMENT))
    scene.write(2 * SEGMENT, frame(2 * SEGMENT))
    assert scene.start(level=1) == [Recovered(0, 2 * SEGMENT + 160, "bound", 0)]


@pytest.mark.parametrize("with_next", [True, False])
def test_a_bound_at_the_end_of_a_segment(with_next: bool) -> None:
    scene = bounded(SEGMENT)
    scene.write(0, filled(0, SEGMENT))
    if with_next:
        scene.write(SEGMENT, frame(SEGMENT))
    stop = SEGMENT + 160 if with_next else SEGMENT
    assert scene.start(level=1) == [Recovered(0, stop, "bound", 0)]
    assert scene.segments() == ["0-0.rec", f"0-{SEGMENT}.rec"]


def test_a_bound_at_the_start_needs_no_file() -> None:
    scene = bounded(4096, start=4096)
    assert scene.start(level=1) == [Recovered(0, 4096, "bound", 0)]
    assert scene.segments() == []


@pytest.mark.parametrize("bound", [160, SEGMENT])
def test_a_missing_file_of_what_is_on_the_disk_is_refused(bound: int) -> None:
    refused(bounded(bound), f"log position {bound} on the disk, but this file is missing", level=1)


def test_a_file_that_ends_before_the_bound_is_refused() -> None:
    scene = bounded(END)
    scene.write(0, THREE[:-32], length=END - 32)
    refused(scene, f"log position {END} on the disk, but this file has {END - 32} bytes", level=1)


def test_a_later_term_shows_that_a_lost_frame_was_announced() -> None:
    scene = bounded(4096)
    content = filled(0, SEGMENT)
    scene.write(0, content[:8192] + bytes(4096) + content[3 * 4096 :])
    refused(scene, "the frames end here, but a later term has data", level=1)
    scene.write(0, content[:8192] + bytes(4096) + content[3 * 4096 : TERM])
    assert scene.start(level=1) == [Recovered(0, 8192, "bound", 0)], "in its own term it may be one block"


def test_a_later_segment_shows_that_a_lost_frame_was_announced() -> None:
    scene = bounded(4096)
    scene.write(0, filled(0, 8192))
    scene.write(SEGMENT, frame(SEGMENT))
    refused(scene, "later file has data", level=1)
    scene.write(SEGMENT, bytes(160))
    assert scene.start(level=1) == [Recovered(0, 8192, "bound", 0)]
    assert scene.segments() == ["0-0.rec"]


def test_which_frames_may_be_torn_is_what_plain_code_says() -> None:
    random = Random(3)
    for _ in range(300):
        at = random.randrange(0, 64) * 32
        content = filled(0, at) if at > 0 else b""
        payload = bytearray(random.randbytes(random.randrange(0, 3000)))
        for _ in range(random.randrange(3)):
            begin = random.randrange(len(payload) + 1)
            end = min(len(payload), begin + random.choice([8, 300, 512, 700, 1024]))
            payload[begin:end] = bytes(end - begin)
        last = frame(at, bytes(payload))
        parts = [last[max(0, s - at) : max(0, s + 512 - at)] for s in range(at // 512 * 512, at + len(last), 512)]
        scene = bounded(at)
        scene.write(0, content + last)
        stop = at if any(not any(part) for part in parts) else at + len(last)
        assert scene.start(level=1)[0].stop_position == stop


# --- names and layouts -------------------------------------------------------------------------------------------

OTHERS = [
    "0.rec",
    "-0.rec",
    "0-.rec",
    "a-0.rec",
    "0-0.rec.del",
    "00-0.rec",
    "0-00131072.rec",
    "0-131072.rec.del",
    "0-131072.REC",
    "0--0.rec",
    "0-131072 .rec",
    "+0-131072.rec",
    "0-131072-.rec",
    "0-1e5.rec",
    "0-131072.rec\n",
    "\u0660-\u0661\u0663\u0661\u0660\u0667\u0662.rec",
    "archive-mark.dat",
]


def test_names_that_are_no_segments_are_left_alone(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE)
    for name in OTHERS:
        scene.storage.open_file(f"{scene.directory}/{name}", CREATE).write(b"other", 0)
    assert scene.start() == [Recovered(0, END, "frames", 0)]
    for name in OTHERS:
        assert scene.storage.open_file(f"{scene.directory}/{name}", 0).read(9, 0) == b"other"


@pytest.mark.parametrize("base", [-SEGMENT, -1, 32, TERM, SEGMENT + 1, 2**61 + SEGMENT, 2**63, 10**30])
def test_a_segment_in_an_impossible_place_is_refused(scene: Scene, base: int) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE)
    scene.write(base, b"", length=0)
    error = refused(scene, f"no segment of recording 0 begins at {base}")
    assert error.file is not None
    assert error.file.endswith(f"/0-{base}.rec")


def test_of_other_recordings_nothing_is_looked_at(scene: Scene) -> None:
    other = dataclasses.replace(recording(1), stop_position=9, stop_timestamp=9)
    scene.write_catalog(recording(0), other)
    for base in (-7, 0, 10**30):
        scene.write(base, b"other", recording_id=1)
        scene.write(base, b"other", recording_id=10)
    assert scene.start() == [Recovered(0, 0, "frames", 0)]
    assert scene.descriptor(1) == other
    assert scene.segment(0, 1) == scene.segment(0, 10) == b"other".ljust(SEGMENT, b"\0")


def test_a_segment_in_front_of_the_recording_may_begin_anywhere(scene: Scene) -> None:
    # Upstream's archive leaves it when a replication replaces an empty recording by one that begins elsewhere.
    scene.write_catalog(recording(start_position=2 * SEGMENT))
    scene.write(SEGMENT - TERM, b"", length=SEGMENT)
    assert scene.start() == [Recovered(0, 2 * SEGMENT, "frames", 0)]
    assert scene.segments() == [f"0-{SEGMENT - TERM}.rec"]


def test_segments_that_were_detached_are_left_alone(scene: Scene) -> None:
    scene.write_catalog(recording(start_position=2 * SEGMENT))
    for base in (0, SEGMENT):
        scene.write(base, filled(base, base + SEGMENT))
    assert scene.start() == [Recovered(0, 2 * SEGMENT, "frames", 0)]
    assert scene.segments() == ["0-0.rec", f"0-{SEGMENT}.rec"]
    assert scene.segment(SEGMENT) == filled(SEGMENT, 2 * SEGMENT)


@pytest.mark.parametrize(
    "values",
    [
        {"term_buffer_length": 0}, {"term_buffer_length": -1}, {"term_buffer_length": 96 * 1024},
        {"term_buffer_length": 32 * 1024}, {"term_buffer_length": -(2**31)}, {"segment_file_length": 0},
        {"segment_file_length": TERM // 2}, {"segment_file_length": 3 * TERM}, {"segment_file_length": -SEGMENT},
        {"segment_file_length": 2**31 - 1}, {"mtu_length": 0}, {"mtu_length": 2**31 - 1}, {"mtu_length": -1},
        {"start_position": -1}, {"start_position": 33}, {"start_position": 2**62}, {"start_position": -(2**63)},
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_layout_is_refused(scene: Scene, values: dict[str, int]) -> None:
    scene.write_catalog(recording(**values))
    scene.write(0, THREE)
    error = refused(scene, "recording 0 cannot have start position .*mark-invalid")
    assert (error.file, error.offset) == (f"{scene.directory}/archive.catalog", 32)


def test_a_damaged_recording_leaves_those_before_it_recovered(scene: Scene) -> None:
    scene.write_catalog(recording(0), recording(1, mtu_length=0), recording(2))
    with pytest.raises(RecordingError, match="recording 1 cannot"):
        scene.start()
    assert [scene.descriptor(each).stop_position for each in range(3)] == [0, -1, -1]


@pytest.mark.parametrize("position", [2**61 - SEGMENT, 2**61 - 4096])
def test_the_greatest_positions(scene: Scene, position: int) -> None:
    base = position // TERM * TERM
    scene.write_catalog(recording(start_position=position))
    scene.write(base, frame(position), offset=position - base)
    assert scene.start() == [Recovered(0, position + 160, "frames", 0)]


@pytest.mark.parametrize("values", [{"torn_frame": "keep"}, {"checksum": 3}, {"checksum": -1}])
def test_other_settings_are_refused(scene: Scene, values: dict[str, Any]) -> None:
    scene.write_catalog(recording())
    with pytest.raises(ConfigurationError, match=f"{next(iter(values))}="):
        scene.start(**values)
    assert scene.descriptor() == recording()


# --- progress and failures ---------------------------------------------------------------------------------------


def test_progress_is_reported_for_each_recording_each_mebibyte_and_around_each_force() -> None:
    disk, length = SimulatedDisk(), 8 << 20
    scene = Scene(disk.process())
    values = {"term_buffer_length": length, "segment_file_length": length}
    scene.write_catalog(*[recording(each, **values) for each in range(3)])
    scene.write(0, frame(0, term=length) + bytes(64) + b"garbage", length=length)
    catalog = scene.catalog(level=1)
    positions = scene.positions(level=1)
    events: list[str] = []

    def look(kind: str, count: int) -> None:
        if kind.startswith("force") or (kind == "read" and count >= 4096):
            events.append(kind)

    disk.on_latency = look
    recover(scene.storage, "/", catalog, positions, now_ms=NOW, report_progress=lambda: events.append("progress"))
    forces = [index for index, event in enumerate(events) if event.startswith("force")]
    assert len(forces) == 5, "of the names, of the segment that was erased, and of each stop position"
    assert all(events[index - 1] == events[index + 1] == "progress" for index in forces)
    reads = [index for index, event in enumerate(events) if event == "read"]
    assert len(reads) >= 8
    assert all(events[index - 1] == "progress" for index in reads)


def test_what_report_progress_raises_ends_the_start() -> None:
    scene = simulated()
    scene.write_catalog(recording())

    def fail() -> None:
        raise TimeoutError("the driver is gone")

    with pytest.raises(TimeoutError):
        scene.start(report_progress=fail)
    assert scene.descriptor() == recording()


@pytest.mark.parametrize("kind", ["open", "read", "extend", "force", "look", "write", "rename", "force_directory"])
def test_a_disk_that_fails_ends_the_start_and_the_next_one_succeeds(kind: str) -> None:
    for after in count():
        disk, calls = SimulatedDisk(), count()
        scene = Scene(disk.process())
        known(scene, END, level=1)
        scene.write(0, THREE + frame(END))
        disk.fail(kind, errno.EIO, after=after)
        disk.on_latency = lambda each, _length, calls=calls: next(calls) if each == kind else None
        with suppress(OSError):
            scene.start(level=1)
        disk.on_latency = None
        if next(calls) <= after:
            break
        again = Scene(disk.process())
        for owner in (FIRST, SECOND):
            again.start(owner=owner, level=1)
        # Positions that cannot be read say nothing, and then the frame that was not announced counts.
        stop = again.descriptor().stop_position
        assert stop in (END, END + 160)
        assert again.segment(0) == (THREE + frame(END))[:stop].ljust(SEGMENT, b"\0")


# --- crashes -----------------------------------------------------------------------------------------------------

type Build = Callable[[Scene], None]


def build_frames(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE + b"\x55" * 700)


def build_torn(scene: Scene) -> None:
    scene.write_catalog(recording())
    scene.write(0, THREE + ZERO_PAGE)


def build_exact(scene: Scene) -> None:
    known(scene, END, level=1)
    scene.write(0, THREE + frame(END, b"d" * 600))


def build_lost(scene: Scene) -> None:
    content = filled(0, SEGMENT)
    scene.write_catalog(recording())
    scene.write(0, content[: 20 * 4096] + bytes(1000))
    scene.write(SEGMENT, b"")


def build_full(scene: Scene) -> None:
    known(scene, SEGMENT, level=1)
    scene.write(0, filled(0, SEGMENT, 16 * 1024 - 32))


def build_unannounced(scene: Scene) -> None:
    known(scene, SEGMENT - 4096, level=1)
    scene.write(0, filled(0, SEGMENT))
    scene.write(SEGMENT, b"")


BUILDS: dict[str, tuple[Build, set[int]]] = {
    "frames": (build_frames, {END}),
    "torn": (build_torn, {END}),
    "exact": (build_exact, {END, END + 640}),
    "lost": (build_lost, {20 * 4096}),
    "full": (build_full, {SEGMENT}),
    "unannounced": (build_unannounced, {SEGMENT - 4096, SEGMENT}),
}
"""What is on the disk, and where it may end: an exact position is a bound once the power was cut."""


def check_end(disk: SimulatedDisk, ends: set[int], level: int) -> None:
    """The next start finds one of these ends, and leaves nothing behind it, whatever crash comes then."""
    scene = Scene(disk.process())
    for owner in (FIRST, SECOND):
        scene.start(owner=owner, level=level, torn_frame="cut")
    found = scene.descriptor().stop_position
    assert found in ends
    content = check_nothing_behind(scene, found)
    for state in disk.crash_states() if level > 0 else ():
        again = Scene(state.process())
        assert again.descriptor().stop_position == found
        assert check_nothing_behind(again, found) == content


def check_nothing_behind(scene: Scene, stop: int) -> bytes:
    """Neither bytes nor files; returns the last segment."""
    base = stop // SEGMENT * SEGMENT
    assert max(int(each[2:-4]) for each in scene.segments()) <= base
    content = scene.segment(base) if f"0-{base}.rec" in scene.segments() else bytes(SEGMENT)
    assert len(content) == SEGMENT
    assert not any(content[stop - base :])
    return content


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BUILDS)
def test_a_crash_of_a_recovery_changes_nothing_for_the_next_one(name: str, level: int) -> None:
    build, ends = BUILDS[name]

    def prepare(storage: Storage) -> None:
        build(Scene(storage))

    def act(storage: Storage) -> None:
        Scene(storage).start(level=level, torn_frame="cut")

    least = min(ends)
    for disk in kills(prepare, act):
        check_end(disk, {least}, level)


def forced_scene(build: Build) -> Callable[[Storage], None]:
    def prepare(storage: Storage) -> None:
        build(Scene(storage))
        for name in storage.list_directory("/"):
            storage.open_file(f"/{name}", 0).force(True)
        storage.force_directory("/")

    return prepare


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BUILDS)
def test_a_cut_of_the_power_in_a_recovery_leaves_an_end_that_is_right(name: str, level: int) -> None:
    build, ends = BUILDS[name]
    states = check_power_cuts(
        forced_scene(build),
        lambda storage: Scene(storage).start(level=level, torn_frame="cut"),
        lambda disk: check_end(disk, ends, level),
    )
    assert states > 10


@pytest.mark.parametrize("level", [1, 2])
def test_what_a_process_erased_before_it_was_killed_does_not_come_back(level: int) -> None:
    disk = SimulatedDisk()
    scene = Scene(disk.process())
    known(scene, END, level=level)
    scene.write(0, THREE + frame(END, b"d" * 600))
    scene.write(SEGMENT, b"garbage")
    file = scene.storage.open_file("/0-0.rec", 0)
    file.set_length(END)
    file.set_length(SEGMENT)
    scene.storage.unlink(f"/0-{SEGMENT}.rec")
    scene.storage.kill(Draws(0))  # type: ignore[attr-defined]
    check_end(disk, {END}, level)


@pytest.mark.parametrize("start", [0, 4096])
def test_a_cut_of_the_power_before_the_first_segment_has_its_length(start: int) -> None:
    scene = bounded(start, start=start)
    scene.write(0, b"", length=0)
    assert scene.start(level=1) == [Recovered(0, start, "bound", 0)]
    assert scene.segment(0) == bytes(SEGMENT)


# --- truncations -------------------------------------------------------------------------------------------------


def truncated(scene: Scene, position: int, *, stop: int, start: int = 0, level: int = 1) -> RecordingDescriptor:
    """A truncation that was noted, with nothing done of it."""
    descriptor = dataclasses.replace(recording(start_position=start), stop_position=stop, stop_timestamp=5)
    scene.write_catalog(descriptor)
    scene.positions(level=level).note_truncation(0, position)
    return descriptor


@pytest.mark.parametrize(
    ("position", "left"),
    [
        (0, []),
        (4096, ["0-0.rec"]),
        (SEGMENT - 4096, ["0-0.rec"]),
        (SEGMENT, ["0-0.rec"]),
        (SEGMENT + 4096, ["0-0.rec", f"0-{SEGMENT}.rec"]),
        (2 * SEGMENT, ["0-0.rec", f"0-{SEGMENT}.rec"]),
        (2 * SEGMENT + 160, ["0-0.rec", f"0-{SEGMENT}.rec", f"0-{2 * SEGMENT}.rec"]),
    ],
)
def test_a_truncation_that_was_noted_is_done_again(scene: Scene, position: int, left: list[str]) -> None:
    old = truncated(scene, position, stop=2 * SEGMENT + 160)
    for base in (0, SEGMENT):
        scene.write(base, filled(base, base + SEGMENT))
    scene.write(2 * SEGMENT, frame(2 * SEGMENT))
    assert scene.start(level=1) == [Recovered(0, position, "truncation", 0)]
    assert scene.descriptor() == dataclasses.replace(old, stop_position=position)
    assert scene.segments() == left
    for base in range(0, position, SEGMENT):
        end = min(position, base + SEGMENT)
        expected = (filled(base, base + SEGMENT) if base < 2 * SEGMENT else frame(base))[: end - base]
        assert scene.segment(base) == expected.ljust(SEGMENT, b"\0")
    assert scene.start(owner=SECOND, level=1) == []


def test_a_truncation_of_a_recording_that_begins_within_a_segment(scene: Scene) -> None:
    truncated(scene, 4096, stop=8192, start=4096)
    scene.write(0, filled(4096, 8192), offset=4096)
    assert scene.start(level=1) == [Recovered(0, 4096, "truncation", 0)]
    assert scene.segments() == []


@pytest.mark.parametrize("case", ["longer", "before", "in progress", "deleted"])
def test_a_note_that_does_not_fit_the_recording_is_forgotten(scene: Scene, case: str) -> None:
    position = {"longer": 12 * 1024, "before": 1024}.get(case, 4096)
    old = truncated(scene, position, stop=8192, start=2048)
    scene.write(0, filled(2048, 8192), offset=2048)
    if case == "in progress":
        old = recording(start_position=2048)
        scene.write_catalog(old)
    if case == "deleted":
        scene.catalog().delete(0)
    done = scene.start(level=1)
    assert done == ([Recovered(0, 8192, "frames", 0)] if case == "in progress" else [])
    assert scene.segment(0) == (bytes(2048) + filled(2048, 8192)).ljust(SEGMENT, b"\0")
    if case in ("longer", "before"):
        assert scene.descriptor() == old


@pytest.mark.parametrize("level", [1, 2])
def test_a_crash_while_a_truncation_is_done_again_leaves_it_to_be_done(level: int) -> None:
    position = SEGMENT + 512

    def prepare(storage: Storage) -> None:
        scene = Scene(storage)
        truncated(scene, position, stop=2 * SEGMENT + 160, level=level)
        scene.write(0, b"never looked at")
        scene.write(SEGMENT, filled(SEGMENT, SEGMENT + 4096, 480))
        scene.write(2 * SEGMENT, frame(2 * SEGMENT))
        for name in storage.list_directory("/"):
            storage.open_file(f"/{name}", 0).force(True)

    def check(disk: SimulatedDisk) -> None:
        scene = Scene(disk.process())
        for owner in (FIRST, SECOND):
            scene.start(owner=owner, level=level)
        assert scene.descriptor().stop_position == position
        assert scene.segments() == ["0-0.rec", f"0-{SEGMENT}.rec"]
        assert scene.segment(SEGMENT) == filled(SEGMENT, position, 480).ljust(SEGMENT, b"\0")

    def act(storage: Storage) -> None:
        Scene(storage).start(level=level)

    assert check_power_cuts(prepare, act, check) > 10
    for disk in kills(prepare, act):
        check(disk)


# --- directories of another writer -------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [None, "CRC-32", "CRC-32C"])
@pytest.mark.parametrize("start", [0, 4096, 5 * TERM + 320])
def test_a_directory_that_upstream_wrote_ends_where_it_was_written(
    tmp_path: Path, start: int, checksum: str | None
) -> None:
    random = Random(f"{start} {checksum}")
    for number in range(8):
        directory = tmp_path / str(number)
        directory.mkdir()
        writer = RecordingWriter(directory, recording_id=3, start_position=start, initial_term_id=-1, checksum=checksum)
        for _ in range(random.randrange(1, 400)):
            writer.append(random.randbytes(random.randrange(1, 4000)))
        writer.flush()
        write_catalog(directory, [descriptor_of(writer, stop=False)], checksum=checksum is not None)
        scene = Scene(FileStorage(), str(directory))
        kind = {None: 0, "CRC-32": 1, "CRC-32C": 2}[checksum]
        before = {each: scene.segment(int(each[2:-4]), 3) for each in scene.segments()}
        assert scene.start(checksum=kind) == [Recovered(3, writer.position, "frames", 0)]
        assert before.items() <= {each: scene.segment(int(each[2:-4]), 3) for each in scene.segments()}.items()


def test_a_running_archive_is_recovered_after_each_of_its_writes() -> None:
    """A writer's order, at level 1: write, force, set the position; frames of any content, killed or without power."""
    random = Random(11)
    for case in range(60):
        disk = SimulatedDisk()
        scene = Scene(disk.process())
        scene.write_catalog(recording())
        scene.storage.open_file("/archive.catalog", 0).force(True)
        scene.write(0, b"")
        place = scene.positions(level=1).begin(recording(), 0)
        file, position, announced = scene.storage.open_file("/0-0.rec", 0), 0, 0
        for _ in range(random.randrange(1, 12)):
            length = random.randrange(1, 6000)
            payload = random.choice([random.randbytes(length), bytes(length), b"z" * length])
            block = frame(position, payload)
            file.write(block, position)
            if random.randrange(6) == 0:
                break
            file.force(False)
            position += len(block)
            place.set(position)
            place.force()
            announced = position
        is_killed = case % 2 == 0
        scene.storage.kill(Draws(case)) if is_killed else disk.cut_power(Draws(case))  # type: ignore[attr-defined]
        done = Scene(disk.process()).start(level=1)
        assert done[0].basis == ("exact" if is_killed else "bound")
        assert done[0].stop_position == announced if is_killed else done[0].stop_position >= announced


def test_recover_is_called_with_names(scene: Scene) -> None:
    scene.write_catalog(recording())
    positions = scene.positions()
    assert recover(scene.storage, scene.directory, scene.catalog(), positions, now_ms=NOW)[0].stop_position == 0
    assert DATA == 1
