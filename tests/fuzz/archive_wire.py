"""The meaning of bytes of the archive's schema, read independently from the layouts that the reference decoders
printed.

Nothing here uses the archive's codecs, so that the fuzzer's model cannot share their mistakes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.fuzz.wire import NULL_INT32, Refused
from tests.golden.vectors import HEADER, VAR_LENGTH, Layout, Slot, load

SCHEMA_ID = 101
SCHEMA_VERSION = 13
_GOLDEN = load("archive")
REQUESTS: dict[str, Layout] = {
    name: layout
    for name, layout in _GOLDEN.layouts.items()
    if name.endswith(("Request", "Request2")) or name == "ChallengeResponse"
}
"""Messages that a client may send, without templates that only the archive sends."""
NAMES = {layout.template_id: name for name, layout in REQUESTS.items()}
UNANSWERED = ("KeepAliveRequest", "ChallengeResponse", "CloseSessionRequest")
CONNECTS = ("ConnectRequest", "AuthConnectRequest")
_LOCATIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that can be read: its name, and its fields of fixed length; those that it does not have are -1."""

    name: str
    fields: dict[str, int]

    @property
    def is_answered(self) -> bool:
        """Whether a session that may ask gets a reply to it; a token is for another session than the request's."""
        if self.name in UNANSWERED or self.name in CONNECTS:
            return False
        return self.fields.get("replay_token", -1) in (-1, -(2**63))


def read_request(data: bytes) -> Request | None:
    """The request in bytes; None for another template. Raises Refused for what must be reported."""
    if len(data) < HEADER.size:
        raise Refused("short")
    block_length, template_id, schema_id, version = HEADER.unpack_from(data)
    if schema_id != SCHEMA_ID:
        raise Refused("schema")
    name = NAMES.get(template_id)
    if name is None:
        return None
    layout = REQUESTS[name]
    position = HEADER.size + block_length
    if position > len(data) or block_length < _shortest_block(layout):
        raise Refused("block")
    for first in layout.var.values():
        if first > version:
            continue
        begin = position + VAR_LENGTH.size
        if begin > len(data) or begin + VAR_LENGTH.unpack_from(data, position)[0] > len(data):
            raise Refused("text")
        position = begin + VAR_LENGTH.unpack_from(data, position)[0]
    fields = {field: _number(data, slot, block_length, version) for field, slot in layout.fields.items()}
    if fields.get("source_location", 0) not in _LOCATIONS:
        raise Refused("location")
    return Request(name, fields)


def width(slot: Slot) -> int:
    """Bytes of a field."""
    return 4 if slot.null in (NULL_INT32, 0) else 8


def _number(data: bytes, slot: Slot, block_length: int, version: int) -> int:
    if slot.since > version or slot.offset + width(slot) > block_length:
        return -1
    code = "<i" if width(slot) == 4 else "<q"
    return int(struct.unpack_from(code, data, HEADER.size + slot.offset)[0])


def _shortest_block(layout: Layout) -> int:
    return max(slot.offset + width(slot) for slot in layout.fields.values() if not slot.since)
