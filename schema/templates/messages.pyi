"""Cluster, archive and mark-file messages as dicts, for requests to archives, tests and tools."""

from collections.abc import Buffer, Mapping, Sequence
from typing import Any

type _Value = int | str | Buffer | Sequence[Mapping[str, object]] | None

MESSAGE_NAMES: dict[str, dict[int, str]]
"""For each schema, by its name: the name of the message with a template id."""

def decode(schema: str | int, data: Buffer, *, keeps_nulls: bool = False) -> tuple[str, dict[str, Any]]:
    """The name and the fields of the message at the beginning of `data`."""

def decode_as(schema: str | int, message_name: str, data: Buffer) -> dict[str, Any]:
    """The fields of `data`, which must begin with that message."""

def encode(schema: str | int, message_name: str, /, **fields: _Value) -> bytes:
    """The message as bytes, in the schema version that the container writes."""

def encode_into(buffer: Buffer, schema: str | int, message_name: str, /, **fields: _Value) -> int:
    """Write the message to the beginning of a writable buffer; the number of bytes written."""
