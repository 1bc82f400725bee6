"""Every byte of a small log is flipped: what is noticed of each field is what a table of docs/pipeline.md says."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from container.codecs.messages import encode
from container.recordings import open_member, plan, read_partition
from tests.plain_decoder import frames
from tests.recordings_world import CHANNEL, SEGMENT_LENGTH, World, new_term, session_message, without_warnings

DOCUMENT = Path(__file__).parent.parent / "docs" / "pipeline.md"
HEADING = "## What a flipped byte shows"
NOW = 1_795_000_000_000
MASKS = (0x01, 0x20, 0x40, 0x80)
NOTICED, SILENT = "noticed", "silent"

FRAME_FIELDS = {
    "frame length": 4,
    "frame version": 1,
    "flags": 1,
    "type": 2,
    "term offset": 4,
    "session id or checksum": 4,
    "stream id": 4,
    "term id": 4,
    "reserved value": 8,
}
HEADER_FIELDS = {"block length": 2, "template id": 2, "schema id": 2, "schema version": 2}
TERM, TIME = {"leadership term id": 8}, {"timestamp": 8}
SESSION, CORRELATION = {"cluster session id": 8}, {"correlation id": 8}
POSITION = {"position of the message": 8}
MESSAGE_FIELDS: dict[int, dict[str, int]] = {
    1: TERM | SESSION | TIME,
    20: TERM | CORRELATION | TIME,
    21: TERM | CORRELATION | SESSION | TIME | {"response stream id": 4, "length of a text": 4, "text": len(CHANNEL)},
    22: TERM | SESSION | TIME | {"close reason": 4},
    23: TERM | POSITION | TIME | {"action and its flags": 8},
    24: TERM | POSITION | {"timestamp of a new term": 8, "base of the term": 8, "leader, log session, time unit": 16},
}


def written(base_dir: Path, checksum: str | None) -> World:
    """Messages of each kind, one of them in three frames, and padding; in bytes of all values."""
    world = World(base_dir, mtu_length=128, initial_term_id=1_234_567, checksum=checksum)
    world.log.session_id = 0x1234_5678
    world.bases.append(0)
    world.log.append(new_term(0, 0, timestamp=NOW))
    common = {"leadership_term_id": 0}
    noise = bytes(range(7, 256))
    messages = [
        session_message(1, noise[:40], timestamp=NOW + 5),
        encode("cluster", "TimerEvent", correlation_id=7, timestamp=NOW + 5, **common),
        encode(
            "cluster",
            "SessionOpenEvent",
            correlation_id=9,
            cluster_session_id=4,
            timestamp=NOW + 9,
            response_stream_id=102,
            response_channel=CHANNEL,
            encoded_principal=b"\1\2\3",
            **common,
        ),
        session_message(4, noise[:200], timestamp=NOW + 12),
        encode("cluster", "SessionCloseEvent", cluster_session_id=4, timestamp=NOW + 20, close_reason=0, **common),
    ]
    for message in messages:
        world.log.append(message)
    world.log.append_padding(96)
    end = world.log.position + 96
    world.log.append(
        encode("cluster", "ClusterActionRequest", log_position=end, timestamp=NOW + 21, action=2, flags=0, **common)
    )
    world.log.append(session_message(1, noise[100:150], timestamp=NOW + 22))
    world.log.append(session_message(2, noise[150:190], timestamp=NOW + 22))
    return world.close()


def fields_of(world: World) -> Iterator[tuple[int, str]]:
    """The name of the field that each byte of the log belongs to."""
    for frame in frames(world.archive_dir, 0, 0, world.log.position, SEGMENT_LENGTH):
        kind = "" if frame.payload is not None else " of padding"
        sizes = [(f"{name}{kind}", length) for name, length in FRAME_FIELDS.items()]
        if frame.payload is not None:
            left = frame.length - 32
            if frame.flags & 0x80:
                template = struct.unpack_from("<H", frame.payload, 2)[0]
                sizes += [*HEADER_FIELDS.items(), *MESSAGE_FIELDS[template].items()]
                left -= sum(length for _, length in sizes) - 32
                if template == 21:
                    sizes.append(("length of a text", 4))
                    left -= 4
            sizes += [("payload", left)]
        last = "between frames" if frame.payload is not None else "where padding is"
        sizes.append((last, frame.end - frame.position - sum(length for _, length in sizes)))
        ends = accumulate((length for _, length in sizes), initial=frame.position)
        for (name, length), begin in zip(sizes, ends, strict=False):
            yield from ((position, name) for position in range(begin, begin + length))


class Reader:
    """Reads the log again and again, with one byte that is another."""

    def __init__(self, world: World) -> None:
        (self._partition,) = plan(open_member(world.base_dir), "messages", mode="permissive")
        self._file = os.open(world.segment(0), os.O_RDWR)
        self.intact = self.rows()

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in read_partition(self._partition) for row in batch.to_pylist()]

    def outcome(self, position: int, mask: int) -> str:
        """What a flip shows; asserts that no row is wrong that comes with an error, and that the others are there."""
        value = os.pread(self._file, 1, position)
        os.pwrite(self._file, bytes([value[0] ^ mask]), position)
        try:
            rows = self.rows()
        finally:
            os.pwrite(self._file, value, position)
        errors = [row for row in rows if row["error"] is not None]
        if not errors:
            return "equal" if rows == self.intact else SILENT
        good = [row for row in rows if row["error"] is None]
        lost = [row for row in self.intact if row not in good]
        assert good == [row for row in self.intact if row not in lost], f"a wrong row: byte {position}, {mask:#x}"
        assert len(lost) <= 2, f"{len(lost)} messages are lost: byte {position}, {mask:#x}"
        return NOTICED

    def close(self) -> None:
        os.close(self._file)


def found(directory: Path, checksum: str | None) -> dict[str, str]:
    """For each field whether flips of its bytes are noticed: always, partly, never; or change no row of messages."""
    world = written(directory, checksum)
    reader = Reader(world)
    outcomes: dict[str, set[str]] = defaultdict(set)
    try:
        with without_warnings():
            for position, name in fields_of(world):
                outcomes[name] |= {reader.outcome(position, mask) for mask in MASKS}
    finally:
        reader.close()
    return {name: _said(several) for name, several in outcomes.items()}


def _said(outcomes: set[str]) -> str:
    if outcomes == {NOTICED}:
        return "always"
    if NOTICED in outcomes:
        return "partly"
    return "never, and changes no message" if outcomes == {"equal"} else "never"


def documented() -> dict[str, tuple[str, str]]:
    """The table: for each field what is noticed without and with recorded checksums."""
    _, _, rest = DOCUMENT.read_text().partition(f"{HEADING}\n")
    lines = [line for line in rest.partition("\n#")[0].splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: (without, checked) for name, without, checked, _ in cells}


@pytest.mark.parametrize(
    ("checksum", "column"), [(None, 0), ("CRC-32C", 1), pytest.param("CRC-32", 1, marks=pytest.mark.slow)]
)
def test_what_a_flipped_byte_shows_is_what_the_table_says(tmp_path: Path, checksum: str | None, column: int) -> None:
    assert found(tmp_path, checksum) == {name: cells[column] for name, cells in documented().items()}
