"""The meaning of bytes of the cluster's schema, read independently from the layouts that the reference decoders
printed.

Nothing here uses the container's codecs, so that the fuzzer's model cannot share their mistakes.
"""

from __future__ import annotations

import struct
from typing import Any

from tests.golden.vectors import HEADER, VAR_LENGTH, Layout, Slot, load

SCHEMA_ID = 111
SCHEMA_VERSION = 16
NULL_INT32 = -(2**31)
PAYLOAD_OFFSET = 32
"""Where the payload of a session message begins, whatever the block length says."""

LAYOUTS: dict[str, Layout] = load("cluster").layouts
# The one field that is newer than the reference.
LAYOUTS["ServiceTerminationPosition"].fields["ack_required"] = Slot(8, 17, NULL_INT32)
NAMES = {layout.template_id: name for name, layout in LAYOUTS.items()}


class Refused(Exception):
    """The bytes are refused; ``kind`` is the name of the exception that the container must raise."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def message_name(data: bytes) -> str:
    """The name of the message, "" for an unknown one. Raises Refused."""
    if len(data) < HEADER.size:
        raise Refused("CodecError")
    _block_length, template_id, schema_id, _version = HEADER.unpack_from(data)
    if schema_id != SCHEMA_ID:
        raise Refused("ClusterError")
    return NAMES.get(template_id, "")


def fields_of(name: str, data: bytes) -> dict[str, Any]:
    """The fields of a message of that name: numbers, and var data as bytes. Raises Refused."""
    return _decode(name, data)[0]


def is_longer_than_its_fields(name: str, data: bytes) -> bool:
    """Whether bytes follow the message that its version does not explain. Raises Refused."""
    _block_length, _template_id, _schema_id, version = HEADER.unpack_from(data)
    return version <= SCHEMA_VERSION and _decode(name, data)[1] < len(data)


def _decode(name: str, data: bytes) -> tuple[dict[str, Any], int]:
    block_length, _template_id, _schema_id, version = HEADER.unpack_from(data)
    layout = LAYOUTS[name]
    position = HEADER.size + block_length
    if position > len(data) or block_length < _shortest_block(layout):
        raise Refused("CodecError")
    fields: dict[str, Any] = {}
    for field, slot in layout.fields.items():
        code = "<i" if _is_int32(slot) else "<q"
        is_there = slot.since <= version and slot.offset + struct.calcsize(code) <= block_length
        fields[field] = struct.unpack_from(code, data, HEADER.size + slot.offset)[0] if is_there else slot.null
    for field, since in layout.var.items():
        if since > version:
            fields[field] = b""
            continue
        begin = position + VAR_LENGTH.size
        if begin > len(data) or begin + VAR_LENGTH.unpack_from(data, position)[0] > len(data):
            raise Refused("CodecError")
        position = begin + VAR_LENGTH.unpack_from(data, position)[0]
        fields[field] = data[begin:position]
    return fields, position


def _shortest_block(layout: Layout) -> int:
    return max(slot.offset + (4 if _is_int32(slot) else 8) for slot in layout.fields.values() if not slot.since)


def _is_int32(slot: Slot) -> bool:
    return slot.null in (NULL_INT32, 0)


def text_of(data: bytes) -> str:
    """A text field, which must be ASCII. Raises Refused."""
    if not data.isascii():
        raise Refused("CodecError")
    return data.decode("ascii")
