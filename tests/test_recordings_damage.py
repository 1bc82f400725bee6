"""Damaged, missing and cut recordings: rows up to the damage, and an error that names file, offset and log position."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from container.codecs.messages import encode
from container.recordings import (
    Filters,
    RecordingError,
    RecordingUnavailableError,
    open_member,
    plan,
    read,
    read_partition,
)
from container.testing.processes.recordings import descriptor_of, write_catalog
from tests.plain_decoder import Frame, frames
from tests.recordings_world import (
    CHANNEL,
    SEGMENT_LENGTH,
    TERM_LENGTH,
    World,
    failure_of,
    new_term,
    rows_of,
    session_message,
)

BEGIN, MIDDLE, END = 0x80, 0, 0x40


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A log of five Aeron terms in three segments, with one leadership term."""
    made = World(tmp_path)
    made.begin_term()
    rng = random.Random(2)
    while made.log.position < 5 * TERM_LENGTH - 9000:
        made.append_some(rng, 10)
    return made.close()


def all_frames(world: World) -> list[Frame]:
    return list(frames(world.archive_dir, 0, 0, world.log.position, SEGMENT_LENGTH))


def victim_of(world: World) -> Frame:
    """A whole message in the middle of the second segment, in its first Aeron term."""
    return next(
        frame
        for frame in all_frames(world)
        if frame.position > SEGMENT_LENGTH + 20_000 and frame.flags == 0xC0 and frame.payload is not None
    )


def told(error: RecordingError, position: int) -> dict[str, Any]:
    """The row for damage behind which reading goes on at a position."""
    assert error.log_position is not None
    skipped = position - error.log_position
    text = f"{error}; {skipped} bytes skipped, up to log position {position}"
    return {"log_position": error.log_position, "committed": False, "error": text}


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


HEADER_DAMAGE: dict[str, tuple[int, bytes, str]] = {
    "no length": (0, i32(0), "nothing is written here"),
    "a negative length": (0, i32(-64), "nothing is written here"),
    "too short": (0, i32(31), "frame length 31 is out of range, at most 1408 is possible"),
    "too long": (0, i32(1409), "frame length 1409 is out of range, at most 1408 is possible"),
    "as long as can be": (0, i32(2**31 - 1), "frame length 2147483647 is out of range"),
    "another version": (4, b"\1", "frame version is 1, expected 0"),
    "another type": (6, b"\5", r"frame type is 5, expected 0 \(padding\) or 1 \(data\)"),
    "flags that have no meaning": (5, b"\xc4", "flags of the frame are 0xc4, the bits 0x4 have no meaning"),
    "another term offset": (8, i32(7), "term offset of the frame is 7, expected"),
    "another term id": (20, i32(9), "term id of the frame is 9, expected 2"),
    "another stream": (16, i32(101), "stream id of the frame is 101, expected 100"),
}


@pytest.mark.parametrize("view", ["messages", "frames"])
@pytest.mark.parametrize(("offset", "data", "text"), HEADER_DAMAGE.values(), ids=HEADER_DAMAGE.keys())
def test_a_damaged_frame_header_is_named_and_reading_goes_on_at_the_next_frame(
    world: World, offset: int, data: bytes, text: str, view: str
) -> None:
    intact = rows_of(world.base_dir, view)
    victim = victim_of(world)
    world.damage(victim.position + offset, data)
    error, before = failure_of(world.base_dir, view)
    assert (error.file, error.offset, error.log_position) == (
        str(world.segment(1)),
        victim.position - SEGMENT_LENGTH,
        victim.position,
    )
    assert str(error).startswith(
        f"{world.segment(1)}, offset {victim.position - SEGMENT_LENGTH}, log position {victim.position}: "
    )
    with pytest.raises(RecordingError, match=text):
        raise error
    assert before == [row for row in intact if row["log_position"] <= victim.position]

    rows = rows_of(world.base_dir, view, mode="permissive")
    after = [row for row in intact if row["begin_position"] >= victim.end]
    assert after
    assert rows == [*before, told(error, victim.end), *after]


def test_padding_that_is_too_long_is_damage(world: World) -> None:
    world.log.append_padding(None)
    world.close()
    padding = next(frame for frame in all_frames(world) if frame.payload is None and frame.end % TERM_LENGTH == 0)
    world.damage(padding.position, i32(padding.length + 32))
    error, _ = failure_of(world.base_dir)
    assert error.log_position == padding.position
    assert "frame length" in error.detail


def test_a_missing_segment_ends_a_read_in_either_mode(world: World) -> None:
    """It may be there a moment later, or on another machine: a row in its place would make it a gap forever."""
    intact = rows_of(world.base_dir, "messages")
    world.segment(1).unlink()
    error, before = failure_of(world.base_dir)
    assert error.detail == "the segment file cannot be opened: No such file or directory"
    assert (error.file, error.offset, error.log_position) == (str(world.segment(1)), 0, SEGMENT_LENGTH)
    assert before == [row for row in intact if row["begin_position"] < SEGMENT_LENGTH]
    assert isinstance(error, RecordingUnavailableError)
    again, rows = failure_of(world.base_dir, mode="permissive")
    assert (type(again), str(again), rows) == (type(error), str(error), before)
    # Whoever knows that it is lost for good says so with an empty file: that is damage which can be read.
    world.segment(1).touch()
    rows = rows_of(world.base_dir, "messages", mode="permissive")
    after = [row for row in intact if row["begin_position"] >= 2 * SEGMENT_LENGTH]
    assert [row for row in rows if "error" not in row] == [*before, *after]
    (row,) = [row for row in rows if "error" in row]
    assert row["error"].endswith(f"; {SEGMENT_LENGTH} bytes skipped, up to log position {2 * SEGMENT_LENGTH}")


@pytest.mark.parametrize("cut", ["in a header", "in a payload", "between frames", "at its beginning"])
def test_a_segment_that_is_cut_short_is_read_up_to_there(world: World, cut: str) -> None:
    intact = rows_of(world.base_dir, "messages")
    victim = victim_of(world)
    length = victim.position - SEGMENT_LENGTH + {"in a header": 10, "in a payload": 33}.get(cut, 0)
    os.truncate(world.segment(1), 0 if cut == "at its beginning" else length)
    position = SEGMENT_LENGTH if cut == "at its beginning" else victim.position
    error, before = failure_of(world.base_dir)
    assert "the file ends before byte" in error.detail
    assert (error.file, error.log_position) == (str(world.segment(1)), position)
    assert before == [row for row in intact if row["log_position"] <= position]
    rows = rows_of(world.base_dir, "messages", mode="permissive")
    after = [row for row in intact if row["begin_position"] >= 2 * SEGMENT_LENGTH]
    assert rows == [*before, told(error, 2 * SEGMENT_LENGTH), *after]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.mkdir(), "is not a regular file"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
    ids=["a directory", "a pipe", "a link to itself"],
)
def test_what_is_no_segment_file_is_refused(world: World, make: Any, text: str) -> None:
    world.segment(1).unlink()
    make(world.segment(1))
    for mode in ("strict", "permissive"):
        error, _ = failure_of(world.base_dir, mode=mode)
        assert isinstance(error, RecordingUnavailableError)
        assert text in error.detail
        assert error.file == str(world.segment(1))


def test_what_is_behind_the_stop_position_is_not_read(world: World) -> None:
    intact = rows_of(world.base_dir, "messages")
    stop = intact[-3]["log_position"]
    world.damage(world.log.position, b"\xff" * 64)
    descriptor = descriptor_of(world.log)
    write_catalog(world.archive_dir, [_stopped_at(descriptor, stop)])
    assert rows_of(world.base_dir, "messages") == intact[:-2]


def _stopped_at(descriptor: Any, stop: int) -> Any:
    return type(descriptor)(
        **{name: getattr(descriptor, name) for name in descriptor.__slots__} | {"stop_position": stop}
    )


def test_a_frame_that_reaches_beyond_the_end_is_damage(world: World) -> None:
    last = all_frames(world)[-1]
    write_catalog(world.archive_dir, [_stopped_at(descriptor_of(world.log), last.end - 32)])
    error, _ = failure_of(world.base_dir)
    assert error.log_position == last.position
    assert error.detail == (
        f"the frame ends at log position {last.end}, beyond {last.end - 32} where the recording or its term ends"
    )


def test_a_term_boundary_without_a_frame_does_not_divide_the_log(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin_term()
    world.log.append(session_message(1, bytes(500)))
    world.bases.append(world.log.position - 64)
    world.close()
    assert [part.begin_position for part in plan(open_member(tmp_path), "messages")] == [0]
    assert len(rows_of(tmp_path, "messages")) == 2


def test_a_term_whose_first_frame_is_damaged_is_known_from_the_next_aeron_term_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    for term in range(3):
        world.begin_term()
        while world.log.position < (term + 1) * 2 * TERM_LENGTH - 20_000:
            world.log.append(session_message(1, bytes(5000), term=term))
    world.close()
    intact = rows_of(tmp_path, "frames")
    for term in (1, 2):
        world.damage(world.bases[term], i32(5))
    rows = rows_of(tmp_path, "frames", mode="permissive")
    assert [row["log_position"] for row in rows if "error" in row] == world.bases[1:]
    unsure = [range(base, (base // TERM_LENGTH + 1) * TERM_LENGTH) for base in world.bases[1:]]
    expected = [row for row in intact if row["begin_position"] not in world.bases[1:]]
    for row in expected:
        if any(row["begin_position"] in part for part in unsure):
            row["leadership_term_id"] -= 1
    assert [row for row in rows if "error" not in row] == expected


# Messages.


def test_the_last_message_of_a_dead_leader_has_no_end_and_is_no_row(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin_term()
    world.log.append_frame(session_message(1, b"begun"), BEGIN)
    world.log.append_frame(b"middle", MIDDLE)
    world.log.append_padding(96)
    world.begin_term()
    last = world.log.append(session_message(1, b"whole", term=1))
    world.log.append_frame(session_message(1, b"not yet recorded to its end", term=1), BEGIN)
    world.close()
    rows = rows_of(tmp_path, "messages")
    assert [row["template_id"] for row in rows] == [24, 24, 1]
    assert rows[-1]["log_position"] == last


def test_fragments_that_make_no_message_are_damage(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin_term()
    incomplete = world.log.position
    world.log.append_frame(session_message(1, b"begun"), BEGIN)
    world.log.append(session_message(1, b"good 1"))
    orphan = world.log.position
    world.log.append_frame(b"middle", MIDDLE)
    world.log.append_frame(b"end", END)
    world.log.append(session_message(1, b"good 2"))
    interrupted = world.log.position
    world.log.append_frame(session_message(1, b"begun"), BEGIN)
    world.log.append_padding(64)
    world.log.append_frame(b"end", END)
    world.log.append(session_message(1, b"good 3"))
    world.close()
    rows = rows_of(tmp_path, "session_messages", mode="permissive")
    assert [row.get("payload", row["log_position"]) for row in rows] == [
        incomplete,
        b"good 1",
        orphan,
        b"good 2",
        interrupted,
        b"good 3",
    ]
    texts = [row["error"].split(": ")[-1].partition(";")[0] for row in rows if "error" in row]
    assert texts == [
        "a message whose last fragment is missing",
        "a fragment without the beginning of its message",
        "a message whose last fragment is missing",
    ]
    error, _ = failure_of(tmp_path)
    assert (error.log_position, error.offset) == (incomplete, incomplete)


def test_a_message_longer_than_possible_is_damage(tmp_path: Path) -> None:
    world = World(tmp_path)
    for part in range(8):
        world.log.append_frame(bytes(1300), BEGIN if part == 0 else END if part == 7 else MIDDLE)
    last = world.log.append(new_term(0, world.log.position))
    world.close()
    rows = rows_of(tmp_path, "messages", mode="permissive", recording_id=0)
    assert "a message of 9100 bytes or more, the longest possible has 8192; 10752 bytes skipped" in rows[0]["error"]
    assert [row["log_position"] for row in rows] == [0, last]


GOOD_OPEN = encode(
    "cluster",
    "SessionOpenEvent",
    leadership_term_id=0,
    correlation_id=9,
    cluster_session_id=4,
    timestamp=1,
    response_stream_id=102,
    response_channel=CHANNEL,
    encoded_principal=b"me",
)
BEYOND = "block length reaches beyond the message"
BAD_MESSAGES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", r"message is truncated \(template id -1\)"),
    "half a header": (b"\x18\0\1\0", r"message is truncated \(template id -1\)"),
    "half a session header": (session_message(1, b"")[:31], f"{BEYOND} .template id 1."),
    "a block beyond the end": (b"\xff\xff" + GOOD_OPEN[2:], f"{BEYOND} .template id 21."),
    "text beyond the end": (GOOD_OPEN[:-3], r"message is truncated \(template id 21\)"),
    "a text of 4 GiB": (GOOD_OPEN[:44] + b"\xff\xff\xff\xff", r"message is truncated \(template id 21\)"),
    "a text that is not ASCII": (
        GOOD_OPEN.replace(b"aeron", b"a\xe9ron"),
        r"a text field of the message is not ASCII \(template id 21\)",
    ),
}


@pytest.mark.parametrize(("message", "text"), BAD_MESSAGES.values(), ids=BAD_MESSAGES.keys())
def test_a_message_that_no_codec_reads_is_one_error(tmp_path: Path, message: bytes, text: str) -> None:
    world = World(tmp_path)
    world.begin_term()
    position = world.log.position
    world.log.append(message)
    good = world.log.append(GOOD_OPEN)
    world.close()
    error, before = failure_of(tmp_path)
    assert error.log_position == position
    with pytest.raises(RecordingError, match=text):
        raise error
    assert len(before) == 1
    rows = rows_of(tmp_path, "messages", mode="permissive")
    assert rows[1] == told(error, rows[2]["begin_position"])
    assert (rows[2]["log_position"], rows[2]["encoded_principal"], len(rows)) == (good, b"me", 3)


def test_errors_do_not_hide_in_a_view_of_other_messages(world: World) -> None:
    victim = victim_of(world)
    world.damage(victim.position, i32(5))
    for view in ("timers", "sessions", "terms"):
        errors = [row for row in rows_of(world.base_dir, view, mode="permissive") if "error" in row]
        assert [row["log_position"] for row in errors] == [victim.position]


# Elections.


def test_what_an_election_removed_since_the_plan_is_no_error(world: World) -> None:
    parts = plan(open_member(world.base_dir, committed="known"), "messages")
    intact = rows_of(world.base_dir, "messages")
    keep = intact[-20]["log_position"]
    last = parts[-1]
    # As an archive truncates: the catalog's stop position, and zeros behind it.
    world.damage(keep, bytes(world.log.position - keep))
    write_catalog(world.archive_dir, [_stopped_at(descriptor_of(world.log), keep)])
    rows = [row for batch in read_partition(last) for row in batch.to_pylist()]
    assert [row["log_position"] for row in rows] == [
        row["log_position"] for row in intact if last.begin_position <= row["begin_position"] < keep
    ]


def test_what_is_missing_though_it_was_committed_is_an_error(world: World) -> None:
    (world.cluster_dir / "recording.log").write_bytes(b"")
    world.bases.append(world.log.position)
    world.close()
    parts = plan(open_member(world.base_dir), "messages")
    keep = rows_of(world.base_dir, "messages")[-20]["log_position"]
    world.damage(keep, bytes(world.log.position - keep))
    write_catalog(world.archive_dir, [_stopped_at(descriptor_of(world.log), keep)])
    with pytest.raises(RecordingError, match=f"log position {keep}: nothing is written here"):
        list(read_partition(parts[-1]))


# Impossible layouts.


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("term_buffer_length", 0, "a power of two from 64 KiB to 1 GiB"),
        ("term_buffer_length", 65537, "a power of two"),
        ("term_buffer_length", -(2**31), "a power of two"),
        ("segment_file_length", 65536 * 3, "a power of two, not less than the term length"),
        ("segment_file_length", 32768, "not less than the term length"),
        ("mtu_length", 32, "33 to 65536"),
        ("mtu_length", 2**30, "33 to 65536"),
        ("start_position", -32, "a multiple of 32"),
        ("start_position", 33, "a multiple of 32"),
        ("start_position", 2**61 + 32, r"from 0 to 2\^61"),
        ("stop_position", 2**61 + 32, r"it must be a multiple of 32 from 0, where it starts, to 2\^61"),
        ("stop_position", 2**63 - 32, "is impossible"),
        ("stop_position", 33, "is impossible"),
        ("stop_position", -7, "is impossible"),
    ],
)
def test_an_impossible_layout_in_the_catalog_is_refused(world: World, field: str, value: int, allowed: str) -> None:
    descriptor = descriptor_of(world.log)
    values = {name: getattr(descriptor, name) for name in descriptor.__slots__} | {field: value}
    write_catalog(world.archive_dir, [type(descriptor)(**values)])
    with pytest.raises(RecordingError, match=allowed) as caught:
        list(read(world.base_dir, "messages"))
    assert caught.value.file == str(world.archive_dir / "archive.catalog")
    assert str(value) in str(caught.value)
    assert f"of recording {descriptor.recording_id} is impossible" in str(caught.value)
    assert rows_of(world.base_dir, "messages", mode="permissive") == [{"error": str(caught.value)}]


def test_terms_that_begin_in_a_missing_segment_do_not_divide_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.begin_term()
        while world.log.position < (len(world.bases) - 0.3) * SEGMENT_LENGTH:
            world.log.append(session_message(1, bytes(5000)))
    world.close()
    intact = rows_of(tmp_path, "frames")
    for number in (0, 1):
        os.truncate(world.segment(number), 0)
    first, second, *rows = rows_of(tmp_path, "frames", mode="permissive")
    assert (first["log_position"], second["log_position"]) == (0, SEGMENT_LENGTH)
    assert rows == [row for row in intact if row["begin_position"] >= 2 * SEGMENT_LENGTH]
    assert {row["leadership_term_id"] for row in rows} == {2}


@pytest.mark.parametrize("stop", [2**40, 2**61])
def test_a_stop_position_far_behind_the_last_file_is_one_error_there(world: World, stop: int) -> None:
    intact = rows_of(world.base_dir, "messages")
    end = 3 * SEGMENT_LENGTH
    world.log.append_padding(None)
    while world.log.position < end:
        world.log.append_padding(None)
    world.close()
    write_catalog(world.archive_dir, [_stopped_at(descriptor_of(world.log), stop)])
    parts = plan(open_member(world.base_dir), "messages")
    borders = range(0, end, SEGMENT_LENGTH)
    assert [part.begin_position for part in parts] == [*borders, end]
    assert parts[-1].end_position == stop
    error, before = failure_of(world.base_dir)
    assert (error.file, error.offset, error.log_position) == (str(world.segment(3)), 0, end)
    assert before == intact
    again, rows = failure_of(world.base_dir, mode="permissive")
    assert (type(again), str(again), rows) == (RecordingUnavailableError, str(error), intact)


def test_missing_segments_in_a_row_are_one_partition(world: World) -> None:
    last = world.log.position // SEGMENT_LENGTH
    for number in range(last):
        world.segment(number).unlink()
    parts = plan(open_member(world.base_dir), "messages", mode="permissive")
    assert [part.begin_position for part in parts] == [0, last * SEGMENT_LENGTH]
    error, rows = failure_of(world.base_dir, mode="permissive")
    assert "No such file or directory" in error.detail
    assert (error.log_position, rows) == (0, [])


# Ranges of positions, as the batches of a stream are.


@pytest.mark.parametrize("view", ["messages", "frames"])
def test_damage_is_given_once_wherever_a_range_ends(world: World, view: str) -> None:
    victim = victim_of(world)
    orphan = world.log.position
    world.log.append_frame(b"a fragment alone", END)
    refused = world.log.append(session_message(1, b"")[:20])
    world.log.append(session_message(1, b"last"))
    world.close()
    world.damage(victim.position, i32(5))
    everything = rows_of(world.base_dir, view, mode="permissive")
    damaged = [row["log_position"] for row in everything if "error" in row]
    assert damaged[0] == victim.position
    if view == "messages":
        assert damaged[1:] == [orphan, refused - 64]
    places = {place + offset for place in (victim.position, orphan, refused) for offset in (-96, -32, 0, 1, 32, 64)}
    for cut in sorted(places):
        halves = (Filters(end_position=cut), Filters(begin_position=cut))
        parts = [rows_of(world.base_dir, view, mode="permissive", filters=filters) for filters in halves]
        assert [row for part in parts for row in part] == everything


def test_damage_where_a_range_ends_is_not_of_that_range(world: World) -> None:
    victim = victim_of(world)
    intact = rows_of(world.base_dir, "messages", filters=Filters(end_position=victim.position))
    world.damage(victim.position, i32(5))
    assert rows_of(world.base_dir, "messages", filters=Filters(end_position=victim.position)) == intact
    with pytest.raises(RecordingError, match="frame length 5 is out of range"):
        rows_of(world.base_dir, "messages", filters=Filters(end_position=victim.end))
