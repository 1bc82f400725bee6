"""What is checked besides single headers: checksums, neighbours, lengths; where reading goes on; what is warned of."""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import pytest

from container.codecs.messages import encode
from container.files.checksums import crc32, crc32c
from tests.plain_decoder import Frame, frames
from tests.recordings_world import SEGMENT_LENGTH, World, failure_of, rows_of, session_message

NOW = 1_795_000_000_000
CHECKSUMS = ("CRC-32", "CRC-32C")


def written(base_dir: Path, count: int = 20, length: int = 96, **layout: Any) -> tuple[World, list[Frame]]:
    """A leadership term with messages of one length, a millisecond apart; and the frames of the messages."""
    world = World(base_dir, initial_term_id=77, **layout)
    world.begin_term()
    for index in range(count):
        world.log.append(session_message(1, bytes([index + 1]) * length, timestamp=NOW + index))
    world.close()
    return world, list(frames(world.archive_dir, 0, 0, world.log.position, SEGMENT_LENGTH))[1:]


def positions(rows: list[dict[str, Any]]) -> list[int]:
    return [row["log_position"] for row in rows if "error" not in row]


def test_checksums_are_those_of_everybody() -> None:
    assert (crc32(b"123456789"), crc32c(b"123456789")) == (0xCBF43926, 0xE3069283)
    assert (crc32(b""), crc32c(b"")) == (0, 0)


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_a_payload_that_its_checksum_does_not_fit_is_an_error(tmp_path: Path, checksum: str) -> None:
    world, written_frames = written(tmp_path, checksum=checksum)
    intact = rows_of(tmp_path, "messages")
    assert len(intact) == 21
    for victim in (written_frames[0], written_frames[7], written_frames[-1]):
        world.damage(victim.position + 80, b"\xff")
        error, before = failure_of(tmp_path)
        assert error.log_position == victim.position
        assert error.detail.startswith("checksum of the payload is 0x")
        assert before == [row for row in intact if row["log_position"] <= victim.position]
        rows = rows_of(tmp_path, "messages", mode="permissive")
        assert positions(rows) == [position for position in positions(intact) if position != victim.end]
        assert victim.payload is not None
        world.damage(victim.position + 80, victim.payload[48:49])
    assert rows_of(tmp_path, "messages") == intact


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_an_archive_may_record_checksums_from_one_start_to_the_next(tmp_path: Path, checksum: str) -> None:
    """Nothing but the frames says so: those of both kinds are read, and damage of the second kind is noticed."""
    world, written_frames = written(tmp_path)
    made = crc32 if checksum == "CRC-32" else crc32c
    for frame in written_frames[10:]:
        assert frame.payload is not None
        area = frame.payload.ljust(frame.end - frame.position - 32, b"\0")
        world.damage(frame.position + 12, struct.pack("<I", made(area)))
    assert len(rows_of(tmp_path, "messages")) == 21
    world.damage(written_frames[15].position + 80, b"\xff")
    error, _ = failure_of(tmp_path)
    assert error.log_position == written_frames[15].position


@pytest.mark.parametrize("length", [1408, 1440])
def test_padding_may_have_been_a_data_frame_only_if_it_is_no_longer_than_one(tmp_path: Path, length: int) -> None:
    world = World(tmp_path, mtu_length=1408)
    world.begin_term()
    world.log.append(session_message(1, b"x", timestamp=NOW))
    begin = world.log.position
    world.log.append_padding(length)
    world.log.append(session_message(1, b"y", timestamp=NOW))
    world.close()
    intact = rows_of(tmp_path, "messages")
    world.damage(begin + 32, bytes([0x5A]) * (length - 32))
    rows = rows_of(tmp_path, "messages", mode="permissive")
    if length > 1408:
        assert rows == intact
    else:
        assert rows[2]["error"].startswith(str(world.segment(0)))
        assert "it may have been a data frame" in rows[2]["error"]
        assert [*rows[:2], *rows[3:]] == intact


def test_a_session_id_that_no_other_frame_has_is_an_error(tmp_path: Path) -> None:
    world, written_frames = written(tmp_path)
    world.damage(written_frames[5].position + 12, b"\x63")
    error, _ = failure_of(tmp_path)
    assert (error.log_position, error.detail) == (
        written_frames[5].position,
        "session id of the frame is 99, of those before and behind it 7",
    )
    # Of another archive, or of another leader: from a frame on all have it.
    for frame in written_frames[5:]:
        world.damage(frame.position + 12, b"\x63")
    assert len(rows_of(tmp_path, "messages")) == 21


MESSAGE_DAMAGE: dict[str, tuple[int, bytes, str]] = {
    "block length": (0, b"\x19", "block length is 25, expected 24"),
    "template id": (2, b"\x03", "template id is 3, which no message of schema 111 in a log has"),
    "schema id": (4, b"\x6e", "schema id is 110, and all else is as in a message of schema 111"),
    "schema version": (6, b"\x11", "schema version is 17, of the messages around it 16"),
    "leadership term": (8, b"\x05", "leadership term id is 5, of the messages around it 0"),
    "time before": (26, b"\0\0", "is far from those of the messages around it"),
    "time behind": (30, b"\x10", "is far from those of the messages around it"),
}


@pytest.mark.parametrize(("offset", "data", "text"), MESSAGE_DAMAGE.values(), ids=MESSAGE_DAMAGE.keys())
@pytest.mark.parametrize("view", ["messages", "timers"])
def test_a_field_that_does_not_fit_the_messages_around_it_is_an_error(
    tmp_path: Path, offset: int, data: bytes, text: str, view: str
) -> None:
    """In a view that would not show the message, too: damage could have made it another."""
    world, written_frames = written(tmp_path)
    victim = written_frames[8]
    world.damage(victim.position + 32 + offset, data)
    error, _ = failure_of(tmp_path, view)
    assert error.log_position == victim.position
    assert text in error.detail
    rows = rows_of(tmp_path, "messages", mode="permissive")
    assert victim.end not in positions(rows)
    assert len(positions(rows)) == 20


def test_clocks_may_be_set_and_logs_may_be_quiet(tmp_path: Path) -> None:
    times = [0, 5, -50_000, -49_990, 400_000, 9_000_000, 9_000_001, 100, 101, 102]
    world = World(tmp_path)
    world.begin_term()
    for change in times:
        world.log.append(session_message(1, b"", timestamp=NOW + change))
    world.close()
    assert [row["timestamp"] - NOW for row in rows_of(tmp_path, "session_messages")] == times


def test_a_message_of_an_extension_is_a_row(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin_term()
    world.log.append(struct.pack("<HHHH", 24, 1, 900, 3) + bytes(40))
    world.log.append(encode("cluster", "TimerEvent", leadership_term_id=0, correlation_id=1, timestamp=NOW))
    world.close()
    assert [row["schema_id"] for row in rows_of(tmp_path, "messages")] == [111, 900, 111]


@pytest.mark.parametrize("longer", [1, 3])
def test_a_length_that_reaches_over_other_frames_swallows_none(tmp_path: Path, longer: int) -> None:
    """The end of a later frame is where a frame begins: only those inside show that the length is wrong."""
    world, written_frames = written(tmp_path)
    victim, last = written_frames[4], written_frames[4 + longer]
    world.damage(victim.position, struct.pack("<i", last.end - victim.position))
    error, _ = failure_of(tmp_path)
    assert error.log_position == victim.position
    assert f"another frame begins at log position {victim.end}" in error.detail
    rows = rows_of(tmp_path, "messages", mode="permissive")
    assert len(positions(rows)) == 20


def test_a_length_that_is_too_short_makes_no_short_message(tmp_path: Path) -> None:
    world, written_frames = written(tmp_path)
    victim = written_frames[4]
    world.damage(victim.position, struct.pack("<i", 70))
    error, _ = failure_of(tmp_path)
    assert error.log_position == victim.position
    assert "no frame begins at log position" in error.detail
    assert len(positions(rows_of(tmp_path, "messages", mode="permissive"))) == 20


def test_bytes_of_a_payload_that_look_like_a_frame_are_none(tmp_path: Path) -> None:
    """A client may send what looks like frames at their place; it does not know the session id of the log."""
    world, written_frames = written(tmp_path, count=5, length=1200)
    victim = written_frames[2]
    for offset in range(96, 1200, 96):
        place = victim.position + offset
        header = struct.pack("<iBBHiiiiq", 96, 0, 0xC0, 1, place, 0x666, 100, 77, 0)
        world.damage(place, header + session_message(1, b"forged", timestamp=NOW))
    assert len(rows_of(tmp_path, "session_messages")) == 5
    world.damage(victim.position + 4, b"\1")
    rows = rows_of(tmp_path, "session_messages", mode="permissive")
    assert b"forged" not in [row.get("payload") for row in rows]
    assert len(positions(rows)) == 4


def test_a_read_warns_once_of_all_that_it_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world, written_frames = written(tmp_path)
    for victim in (written_frames[3], written_frames[9]):
        world.damage(victim.position + 4, b"\1")
    with caplog.at_level(logging.WARNING):
        rows = rows_of(tmp_path, "messages", mode="permissive")
    errors = [row["error"] for row in rows if "error" in row]
    length = written_frames[3].end - written_frames[3].position
    assert [text.rpartition("; ")[2] for text in errors] == [
        f"{length} bytes skipped, up to log position {written_frames[number].end}" for number in (3, 9)
    ]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == f"damage in 2 places, {2 * length} bytes skipped; first: {errors[0]}"


def test_a_header_of_zeros_is_no_session_message(tmp_path: Path) -> None:
    """Before the first session message there is none that others could be like."""
    world = World(tmp_path)
    world.begin_term()
    begin = world.log.position
    for index in range(3):
        world.log.append(session_message(1, b"%d" % index, timestamp=index))
    world.close()
    intact = {view: rows_of(tmp_path, view) for view in ("messages", "session_messages")}
    world.damage(begin + 32, bytes(8))
    for view in intact:
        error, _ = failure_of(tmp_path, view)
        assert (error.log_position, error.detail) == (begin, "message is of another schema (template id 0)")
        whole = [position for position in positions(intact[view]) if position != begin + 96]
        assert positions(rows_of(tmp_path, view, mode="permissive")) == whole
