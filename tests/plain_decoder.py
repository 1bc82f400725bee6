"""A decoder of recordings in plain Python: the oracle of the tests, and the peer of the benchmark. Slow and short.

It shares no code with the package: where the two agree, both have understood the format in the same way.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HEADER = struct.Struct("<HHHH")
FRAME = struct.Struct("<iBBHiiiiq")


class Frame(NamedTuple):
    """A frame of a recording; ``payload`` is ``None`` for padding."""

    position: int
    end: int
    length: int
    version: int
    flags: int
    kind: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    reserved_value: int
    payload: bytes | None


def frames(
    directory: Path, recording_id: int, begin: int, end: int, segment_length: int, first_segment: int = 0
) -> Iterator[Frame]:
    """Yield the frames between two positions of a recording; segments are counted from where the first one begins."""
    position, base, content = begin, -1, b""
    while position < end:
        segment = first_segment + (position - first_segment) // segment_length * segment_length
        if segment != base:
            base = segment
            content = (directory / f"{recording_id}-{base}.rec").read_bytes()
        offset = position - base
        values = FRAME.unpack_from(content, offset)
        length = values[0]
        if length <= 0:
            return
        next_position = position + (length + 31) // 32 * 32
        payload = content[offset + 32 : offset + length] if values[3] == 1 else None
        yield Frame._make([position, next_position, *values, payload])
        position = next_position


def messages(
    directory: Path, recording_id: int, begin: int, end: int, segment_length: int, first_segment: int = 0
) -> Iterator[tuple[int, int, bytes]]:
    """Yield begin position, log position and bytes of each message that is whole."""
    parts, first = None, 0
    for frame in frames(directory, recording_id, begin, end, segment_length, first_segment):
        if frame.payload is None:
            continue
        if frame.flags & 0x80:
            parts, first = bytearray(), frame.position
        if parts is None:
            continue
        parts += frame.payload
        if frame.flags & 0x40:
            yield first, frame.end, bytes(parts)
            parts = None


# Fields by template id: name, struct code.
_BLOCKS: dict[int, list[tuple[str, str]]] = {
    1: [("leadership_term_id", "q"), ("cluster_session_id", "q"), ("timestamp", "q")],
    20: [("leadership_term_id", "q"), ("correlation_id", "q"), ("timestamp", "q")],
    21: [
        ("leadership_term_id", "q"),
        ("correlation_id", "q"),
        ("cluster_session_id", "q"),
        ("timestamp", "q"),
        ("response_stream_id", "i"),
    ],
    22: [("leadership_term_id", "q"), ("cluster_session_id", "q"), ("timestamp", "q"), ("close_reason", "i")],
    23: [
        ("leadership_term_id", "q"),
        ("event_log_position", "q"),
        ("timestamp", "q"),
        ("action", "i"),
        ("flags", "i"),
    ],
    24: [
        ("leadership_term_id", "q"),
        ("event_log_position", "q"),
        ("timestamp", "q"),
        ("term_base_log_position", "q"),
        ("leader_member_id", "i"),
        ("log_session_id", "i"),
        ("time_unit", "i"),
        ("app_version", "i"),
    ],
}
_STRUCTS = {template: struct.Struct("<" + "".join(code for _, code in block)) for template, block in _BLOCKS.items()}
_NAMES = {template: [name for name, _ in block] for template, block in _BLOCKS.items()}
_ENUMS = {
    "close_reason": ["CLIENT_ACTION", "SERVICE_ACTION", "TIMEOUT"],
    "action": ["SUSPEND", "RESUME", "SNAPSHOT"],
    "time_unit": ["MILLIS", "MICROS", "NANOS"],
}


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without ``event_time``, after a check that it is the time of their timestamps, in milliseconds."""
    found = []
    for row in rows:
        timestamp = row.get("timestamp", row.get("start_timestamp"))
        expected = None
        if timestamp is not None:
            # Outside of these years Python has no date.
            with suppress(OverflowError):
                expected = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
                    milliseconds=timestamp
                )
        assert row.get("event_time") == expected, row
        found.append({name: value for name, value in row.items() if name != "event_time"})
    return found


def frame_times(found: Iterable[Frame]) -> Iterator[dict[str, Any]]:
    """Yield the timestamp that each frame has, that of its message; none of padding and of what is unknown."""
    known: dict[str, Any] = {}
    for frame in found:
        if frame.payload is None:
            known = {}
        elif frame.flags & 0x80:
            known = {}
            if len(frame.payload) >= 8:
                _block, template_id, schema_id, _version = HEADER.unpack_from(frame.payload)
                at = 32 if template_id == 21 else 24
                if schema_id == 111 and template_id in {*_BLOCKS, 25} and len(frame.payload) >= at + 8:
                    timestamp = int.from_bytes(frame.payload[at : at + 8], "little", signed=True)
                    known = {"timestamp": timestamp}
        yield known


def message_row(begin: int, position: int, message: bytes) -> dict[str, Any]:
    """The columns of the view ``messages`` that are not null, for messages of the current version."""
    block_length, template_id, schema_id, version = HEADER.unpack_from(message)
    row: dict[str, Any] = {
        "begin_position": begin,
        "log_position": position,
        "template_id": template_id,
        "schema_id": schema_id,
        "schema_version": version,
        "message_length": len(message),
    }
    if schema_id != 111 or template_id not in _STRUCTS:
        return {**row, "payload": message[8:], "payload_length": len(message) - 8}
    row.update(zip(_NAMES[template_id], _STRUCTS[template_id].unpack_from(message, 8), strict=True))
    for name, names in _ENUMS.items():
        if name in row:
            row[name] = names[row[name]]
    rest = message[8 + block_length :]
    if template_id == 1:
        row |= {"payload": rest, "payload_length": len(rest)}
        if row["cluster_session_id"] < 0:
            row["service_id"] = row["cluster_session_id"] >> 56 & 0x7F
    if template_id == 21:
        length = int.from_bytes(rest[:4], "little")
        row["response_channel"] = rest[4 : 4 + length].decode()
        row["encoded_principal"] = rest[8 + length :]
    return row


def session_message_rows(
    directory: Path, recording_id: int, begin: int, end: int, segment_length: int
) -> Iterator[tuple[int, int, int, int, int, bytes]]:
    """Yield begin, log position, term, session, timestamp and payload of each session message."""
    unpack = struct.Struct("<HHHHqqq").unpack_from
    for first, position, message in messages(directory, recording_id, begin, end, segment_length):
        _block, template_id, _schema, _version, term, session, timestamp = unpack(message)
        if template_id == 1:
            yield first, position, term, session, timestamp, message[32:]
