"""SBE in plain Python, for tests: makes messages of a schema by chance, and reads them value by value."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from random import Random
from typing import Any

from container.sbe.schema import Block, Choices, Composite, Enum, Member, Message, Number, Schema, Text

FORMATS = {"char": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I"}
FORMATS |= {"int64": "q", "uint64": "Q", "float": "f", "double": "d"}


class Wrong(Exception):
    """The bytes are not a message of the schema."""


class Reference:
    """Writes and reads the messages of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.order = ">" if schema.is_big_endian else "<"
        self._free_entries = 0

    # Writing

    def message(self, random: Random, message: Message, version: int, beyond: int = 0) -> bytes:
        """A message with values by chance, as a writer with a version of the schema makes it.

        Args:
            random: gives the values.
            message: which one.
            version: of the writer; one above that of the schema has ``beyond`` bytes more in each block.
            beyond: see there.
        """
        schema = self.schema
        body = self._body(random, message.block, version, beyond)
        header = bytearray(schema.header_size)
        for number, value in (
            (schema.block_length, self._length(message.block, version) + beyond),
            (schema.template_id, message.template_id),
            (schema.schema_of_message, schema.schema_id),
            (schema.version_of_message, version),
        ):
            struct.pack_into(self.order + FORMATS[number.primitive], header, number.offset, value)
        return bytes(header) + body

    def _length(self, block: Block, version: int) -> int:
        return max((leaf.offset + leaf.size for leaf in leaves(block.fields) if leaf.since <= version), default=0)

    def _body(self, random: Random, block: Block, version: int, beyond: int) -> bytes:
        out = bytearray(self._length(block, version))
        for field in block.fields:
            self._put(random, field, version, out)
        out += bytes(beyond)
        for group in block.groups:
            if group.since > version:
                continue
            count = random.randrange(3)
            header = bytearray(group.header_size)
            length = self._length(group.block, version) + beyond
            struct.pack_into(
                self.order + FORMATS[group.block_length.primitive], header, group.block_length.offset, length
            )
            struct.pack_into(self.order + FORMATS[group.count.primitive], header, group.count.offset, count)
            out += header
            for _ in range(count):
                out += self._body(random, group.block, version, beyond)
        for data in block.data:
            if data.since > version:
                continue
            content = random.choice(["", "x", "Zürich", "a" * 20, "漢字 and more"]).encode()
            if data.encoding != "utf-8":
                content = bytes(random.randrange(256) for _ in range(random.randrange(9)))
            header = bytearray(data.header_size)
            struct.pack_into(self.order + FORMATS[data.length.primitive], header, data.length.offset, len(content))
            out += header + content
        return bytes(out)

    def _put(self, random: Random, field: Member, version: int, out: bytearray) -> None:
        if isinstance(field, Composite):
            for member in field.members:
                self._put(random, member, version, out)
        elif isinstance(field, Enum):
            value = random.choice([*field.names, field.number.null or 0])
            if field.number.since <= version:
                struct.pack_into(self.order + _unsigned(field.number), out, field.number.offset, value)
        elif isinstance(field, Choices):
            if field.number.since <= version:
                value = sum(1 << bit for bit in field.bits.values() if random.random() < 0.5)
                struct.pack_into(self.order + _unsigned(field.number), out, field.number.offset, value)
        elif field.constant is not None or field.since > version:
            return
        elif isinstance(field, Text):
            text = random.choice(["", "A", "AB", "X" * field.length])[: field.length]
            out[field.offset : field.offset + field.length] = text.encode().ljust(field.length, b"\0")
        else:
            for index in range(1 if field.length is None else field.length):
                code = FORMATS[field.primitive]
                at = field.offset + index * struct.calcsize(code)
                if code in "fd":
                    struct.pack_into(self.order + code, out, at, random.choice([0.0, -1.5, 1e10, math.nan]))
                    continue
                bits = 8 * struct.calcsize(code)
                value = random.choice([0, 1, 2**bits - 1, 2 ** (bits - 1), random.getrandbits(bits)])
                struct.pack_into(self.order + code.upper(), out, at, value)

    # Reading

    def read(self, payload: bytes) -> tuple[str, dict[str, Any]]:
        """The name of a message and its values, as Arrow gives them.

        Raises:
            Wrong: it is not a message of the schema.
        """
        schema = self.schema
        if len(payload) < schema.header_size:
            raise Wrong
        block_length, template_id, schema_id, version = (
            self._number(payload, 0, number)
            for number in (
                schema.block_length,
                schema.template_id,
                schema.schema_of_message,
                schema.version_of_message,
            )
        )
        message = next((one for one in schema.messages if one.template_id == template_id), None)
        if schema_id != schema.schema_id or message is None:
            raise Wrong
        self._free_entries = len(payload) + 255
        values, _ = self._read(payload, schema.header_size, message.block, block_length, version)
        return message.name, values

    def _number(self, payload: bytes, at: int, number: Number) -> Any:
        code = FORMATS[number.primitive]
        if at + number.offset + struct.calcsize(code) > len(payload):
            raise Wrong
        return struct.unpack_from(self.order + code, payload, at + number.offset)[0]

    def _read(self, payload: bytes, at: int, block: Block, length: int, version: int) -> tuple[dict[str, Any], int]:
        if at + length > len(payload) or length < self._length(block, version):
            raise Wrong
        found = {field.name: self._value(payload, at, field, version) for field in block.fields}
        at += length
        for group in block.groups:
            if group.since > version:
                found[group.name] = None
                continue
            if at + group.header_size > len(payload):
                raise Wrong
            length = self._number(payload, at, group.block_length)
            count = self._number(payload, at, group.count)
            at += group.header_size
            if count > len(payload) - at + self._free_entries:
                raise Wrong
            items = found[group.name] = []
            for _ in range(count):
                item, end = self._read(payload, at, group.block, length, version)
                self._free_entries -= end == at
                if self._free_entries < 0:
                    raise Wrong
                items.append(item)
                at = end
        for data in block.data:
            if data.since > version:
                found[data.name] = None
                continue
            if at + data.header_size > len(payload):
                raise Wrong
            end = at + data.header_size + self._number(payload, at, data.length)
            content = payload[at + data.header_size : end]
            if end > len(payload):
                raise Wrong
            found[data.name] = content if data.encoding is None else _decoded(content, data.encoding)
            at = end
        return found, at

    def _value(self, payload: bytes, at: int, field: Member, version: int) -> Any:
        if isinstance(field, Composite):
            return {member.name: self._value(payload, at, member, version) for member in field.members}
        if isinstance(field, Enum):
            if field.number.since > version:
                return None
            code = self._number(payload, at, field.number)
            if code % 2 ** (8 * field.number.size) == field.number.null:
                return None
            other = chr(code) if field.number.primitive == "char" and code > 0x20 else str(code)
            return field.names.get(code, other)
        if isinstance(field, Choices):
            is_there = field.number.since <= version
            code = self._number(payload, at, field.number) if is_there else 0
            return {name: bool(code >> bit & 1) if is_there else None for name, bit in field.bits.items()}
        if field.constant is not None:
            return field.constant
        if field.since > version:
            return None
        if isinstance(field, Text):
            begin = at + field.offset
            text = payload[begin : begin + field.length].partition(b"\0")[0]
            return None if field.null == 0 and not text else _decoded(text, field.encoding or "")
        if field.length is None:
            return self._cell(self._number(payload, at, field), field)
        return [
            self._cell(self._number(payload, at + index * struct.calcsize(FORMATS[field.primitive]), field), field)
            for index in range(field.length)
        ]

    def _cell(self, value: Any, field: Number) -> Any:
        if isinstance(value, float):
            return None if field.is_optional and math.isnan(value) else value
        if field.null is not None and value % 2 ** (8 * struct.calcsize(FORMATS[field.primitive])) == field.null:
            return None
        return Decimal(value) if field.primitive == "uint64" else value


def _unsigned(number: Number) -> str:
    return FORMATS[number.primitive].upper()


def _decoded(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise Wrong from None


def leaves(fields: tuple[Member, ...]) -> list[Number | Text]:
    """The numbers and texts that take bytes."""
    found: list[Number | Text] = []
    for field in fields:
        if isinstance(field, Composite):
            found += leaves(field.members)
        elif isinstance(field, Enum | Choices):
            found.append(field.number)
        elif field.constant is None:
            found.append(field)
    return found
