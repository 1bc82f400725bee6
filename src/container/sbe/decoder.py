"""Batches of SBE payloads as Arrow arrays."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from container.errors import ConfigurationError
from container.recordings.arrow import import_pyarrow
from container.sbe import block_walk, charsets
from container.sbe.block_walk import BlockWalk
from container.sbe.java_values import SIZES
from container.sbe.schema import (
    Block,
    Choices,
    Composite,
    Data,
    Enum,
    Member,
    Message,
    Number,
    Schema,
    Text,
    required_lengths,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Neither Spark nor most readers of Parquet have unsigned types: the next greater one holds all values.
_ARROW = {"char": "int16", "int8": "int8", "uint8": "int16", "int16": "int16", "uint16": "int32", "int32": "int32"}
_ARROW |= {"uint32": "int64", "int64": "int64", "float": "float32", "double": "float64"}
_OUT_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8}
_ENCODINGS = {"utf-8": block_walk.UTF8, "latin-1": block_walk.LATIN1}
_UINT64_DIGITS = 20


class SbeDecoder:
    """Decodes messages of a schema into columns, without a Python object for each.

    Each message of the schema is a struct column with the message's name, null for other messages. Where one message is
    named, its fields are the columns, and other messages are errors. In a struct:

    * a number is a column of the same type; unsigned ones of the next greater type, ``uint64`` is ``decimal(20, 0)``;
    * a ``char`` or an array of them is a string, up to the first zero; another array is a list;
    * an enum is a string: the name of the value, or the number where the schema has no name for it;
    * a set is a struct of booleans, a composite a struct;
    * a group is a list of structs;
    * data and characters are a string where Python has their encoding as Java has it, else binary;
    * a constant has its value in each row;
    * what has no fields, such as a heartbeat, is true.

    A field is null where it has its null value and is optional, and where a message was written with an older version
    of the schema, which had no such field. Fields that a newer version adds are skipped.
    """

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        """Prepare for the messages of a schema.

        Args:
            schema: what :func:`container.sbe.schema.read_schema` has read.
            message: the name of one message; None for all.

        Raises:
            ConfigurationError: the schema has no such message, or that has no fields.
            ImportError: pyarrow is not installed.
        """
        self._arrow = import_pyarrow()
        import pyarrow.compute

        self._compute = pyarrow.compute
        self._schema = schema
        self._messages = _chosen(schema, message)
        self._is_single = message is not None
        self._names: list[str] = []
        self._blocks: list[tuple[Any, ...]] = []
        #: Numbers of blocks, by the identity of what the schema has for them.
        self._numbers: dict[int, int] = {}
        templates = {one.template_id: self._add(one.block, one.name) for one in self._messages}
        header = (
            schema.header_size,
            _place(schema.block_length),
            _place(schema.template_id),
            _place(schema.schema_of_message),
            _place(schema.version_of_message),
        )
        self._walk = BlockWalk(header, schema.schema_id, schema.is_big_endian, self._blocks, templates)
        # Decode no payloads, to get the types.
        self.fields: list[pa.Field] = [
            self._arrow.field(name, array.type) for name, array in zip(self._columns(), self._arrays(0), strict=True)
        ]

    def __repr__(self) -> str:
        return f"<SbeDecoder of schema {self._schema.schema_id}: {', '.join(one.name for one in self._messages)}>"

    def _add(self, block: Block, name: str) -> int:
        """Give a block and those of its groups their numbers."""
        number = self._numbers[id(block)] = len(self._blocks)
        self._names.append(name)
        self._blocks.append(())
        groups = [
            (
                group.since,
                _place(group.block_length),
                _place(group.count),
                group.header_size,
                self._add(group.block, f"{name}.{group.name}"),
            )
            for group in block.groups
        ]
        texts = [(one.offset, one.length, one.since) for one in _texts(block.fields) if one.encoding == "utf-8"]
        data = [(one.since, _place(one.length), one.header_size, _encoding(one)) for one in block.data]
        self._blocks[number] = (required_lengths(block.fields), texts, groups, data)
        return number

    def _columns(self) -> list[str]:
        if not self._is_single:
            return [message.name for message in self._messages]
        return _names(self._messages[0].block)

    def decode(self, payloads: pa.Array) -> tuple[list[pa.Array], dict[int, str]]:
        """Decode binary payloads.

        Args:
            payloads: a binary array; a null gives nulls.

        Returns:
            An array for each of :attr:`fields`, as long as ``payloads``; and for each payload that is wrong its number
            and why. Its columns are null.

        Raises:
            MemoryError: a batch has more than there is memory for, or more than 2 GiB of a field.
        """
        validity, offsets, data = payloads.buffers()
        failures = self._walk.walk(
            payloads,
            0 if offsets is None else offsets.address,
            0 if data is None else data.address,
            0 if validity is None or payloads.null_count == 0 else validity.address,
            payloads.offset,
            len(payloads) if offsets is not None else 0,
        )
        texts = {row: self._text(code, block, value) for row, code, block, value in failures}
        return self._arrays(len(payloads)), texts

    def _arrays(self, rows: int) -> list[pa.Array]:
        found = []
        for message in self._messages:
            number = self._numbers[id(message.block)]
            arrays = self._parts(message.block, number)
            if not self._is_single:
                arrays = [self._struct(arrays, message.block, self._walk.entry_count(number))]
            found += self._spread(arrays, number, rows)
        return found

    def _spread(self, arrays: list[pa.Array], number: int, rows: int) -> list[pa.Array]:
        """The arrays with a null for each payload that is not such a message."""
        count = self._walk.entry_count(number)
        if count == rows:
            return arrays
        places = np.full(rows, -1, np.int32)
        places[np.frombuffer(self._walk.rows(number), np.int32)] = np.arange(count, dtype=np.int32)
        taken = self._arrow.array(places, mask=places < 0)
        return [array.take(taken) for array in arrays]

    # Arrays of blocks

    def _parts(self, block: Block, number: int) -> list[pa.Array]:
        """An array for each field, group and data of a block."""
        arrow = self._arrow
        count = self._walk.entry_count(number)
        found = [self._member(field, number, count) for field in block.fields]
        for index, group in enumerate(block.groups):
            child = self._numbers[id(group.block)]
            items = self._struct(self._parts(group.block, child), group.block, self._walk.entry_count(child))
            offsets, bits, null_count = self._walk.groups(number, index)
            kind = arrow.list_(items.type)
            buffers = [_buffer(arrow, bits), arrow.py_buffer(offsets)]
            found.append(arrow.Array.from_buffers(kind, count, buffers, null_count, children=[items]))
        found += [self._binary(self._walk.data(number, index), count, one) for index, one in enumerate(block.data)]
        return found

    def _struct(self, arrays: list[pa.Array], block: Block, count: int) -> pa.Array:
        return self._struct_of(arrays, _names(block), count)

    def _struct_of(self, arrays: list[pa.Array], names: Sequence[str], count: int) -> pa.Array:
        arrow = self._arrow
        if not arrays:
            return arrow.repeat(arrow.scalar(True), count)  # Parquet has no structs without fields
        kind = arrow.struct([arrow.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        return arrow.Array.from_buffers(kind, count, [None], 0, children=arrays)

    def _member(self, member: Member, number: int, count: int) -> pa.Array:
        arrow = self._arrow
        if isinstance(member, Composite):
            parts = [self._member(one, number, count) for one in member.members]
            return self._struct_of(parts, [one.name for one in member.members], count)
        if isinstance(member, Enum):
            return self._enum(member, number, count)
        if isinstance(member, Choices):
            width, of = SIZES[member.number.primitive], member.number
            bits = [self._walk.choices(number, of.offset, width, bit, of.since) for bit in member.bits.values()]
            arrays = [
                arrow.Array.from_buffers(arrow.bool_(), count, [_buffer(arrow, valid), arrow.py_buffer(values)], nulls)
                for values, valid, nulls in bits
            ]
            return self._struct_of(arrays, list(member.bits), count)
        if member.constant is not None:
            return arrow.repeat(arrow.scalar(member.constant, self._type(member)), count)
        if isinstance(member, Text):
            null = -1 if member.null is None else member.null
            found = self._walk.texts(number, member.offset, member.length, member.since, null, _encoding(member))
            return self._binary(found, count, member)
        return self._number(member, number, count)

    def _type(self, member: Number | Text) -> pa.DataType:
        arrow = self._arrow
        if isinstance(member, Text):
            return arrow.binary() if member.encoding is None else arrow.string()
        if member.primitive == "uint64":
            return arrow.decimal128(_UINT64_DIGITS, 0)
        return arrow.type_for_alias(_ARROW[member.primitive])

    def _number(self, member: Number, number: int, count: int) -> pa.Array:
        arrow = self._arrow
        kind = self._type(member)
        length = 1 if member.length is None else member.length
        out_width = 16 if member.primitive == "uint64" else _OUT_WIDTHS[_ARROW[member.primitive]]
        is_nan_null = member.is_optional and member.null is None and member.primitive in ("float", "double")
        values, bits, null_count = self._walk.numbers(
            number,
            member.offset,
            SIZES[member.primitive],
            length,
            out_width,
            member.since,
            member.null or 0,
            member.null is not None,
            is_nan_null,
        )
        buffers = [_buffer(arrow, bits), arrow.py_buffer(values)]
        found = arrow.Array.from_buffers(kind, count * length, buffers, null_count)
        if member.length is None:
            return found
        bits, null_count = self._walk.present(number, member.since)
        offsets = np.arange(count + 1, dtype=np.int32) * length
        buffers = [_buffer(arrow, bits), arrow.py_buffer(offsets)]
        return arrow.Array.from_buffers(arrow.list_(kind), count, buffers, null_count, children=[found])

    def _enum(self, member: Enum, number: int, count: int) -> pa.Array:
        """Names of values; of a value without a name its character or its number."""
        arrow, compute = self._arrow, self._compute
        codes = self._number(member.number, number, count)
        names = arrow.array(list(member.names.values()), arrow.string())
        indices = compute.index_in(codes, arrow.array(list(member.names), codes.type))
        if indices.null_count > codes.null_count:
            others = compute.unique(codes.filter(compute.and_(codes.is_valid(), indices.is_null())))
            is_char = member.number.primitive == "char"
            texts = [chr(code) if is_char and code > 0x20 else str(code) for code in others.to_pylist()]
            names = arrow.concat_arrays([names, arrow.array(texts, arrow.string())])
            known = arrow.concat_arrays([arrow.array(list(member.names), codes.type), others])
            indices = compute.index_in(codes, known)
        return names.take(indices)

    def _binary(self, parts: tuple[bytes, bytes, bytes | None, int], count: int, member: Text | Data) -> pa.Array:
        arrow = self._arrow
        offsets, content, bits, null_count = parts
        kind = arrow.string() if member.encoding in _ENCODINGS else arrow.binary()
        buffers = [_buffer(arrow, bits), arrow.py_buffer(offsets), arrow.py_buffer(content)]
        found = arrow.Array.from_buffers(kind, count, buffers, null_count)
        if member.encoding is None or member.encoding in _ENCODINGS:
            return found
        coded = found.dictionary_encode()
        texts = [charsets.decode(member.encoding, one) for one in coded.dictionary.to_pylist()]
        return arrow.array(texts, arrow.string()).take(coded.indices)

    # Texts

    def _text(self, code: int, block: int, value: int) -> str:
        """Why a payload is wrong."""
        name = self._names[block] if 0 <= block < len(self._names) else ""
        if code == block_walk.NO_HEADER:
            return f"{value} bytes are less than a message's header, which has {self._schema.header_size}"
        if code == block_walk.OTHER_SCHEMA:
            return f"it is of schema {value}, and the file has schema {self._schema.schema_id}"
        if code == block_walk.UNKNOWN_TEMPLATE:
            known = sorted(one.template_id for one in self._messages)
            near = known[max(0, bisect.bisect(known, value) - 5) :][:10]
            which = (", ".join(map(str, near)) or "none") + (", …" if len(known) > len(near) else "")
            return f"template id {value} is of no message that is read; these have {which}"
        if code == block_walk.SHORT_BLOCK:
            return f"{name}: a block of {value} bytes is shorter than its fields"
        if code == block_walk.TOO_MANY_ENTRIES:
            return f"{name}: {value} entries are more than there are bytes for"
        if code == block_walk.NO_TEXT:
            return f"{name}: a text is not UTF-8"
        return f"{name}: it ends too early"


def _chosen(schema: Schema, name: str | None) -> tuple[Message, ...]:
    found = tuple(one for one in schema.messages if name in (None, one.name))
    if not found and name is not None:
        known = ", ".join(one.name for one in schema.messages)
        raise ConfigurationError(f"schema {schema.path}: has no message {name!r}; it has {known}")
    if name is not None and not _names(found[0].block):
        raise ConfigurationError(f"schema {schema.path}: message {name!r} has no fields to be columns")
    return found


def _names(block: Block) -> list[str]:
    return [one.name for one in (*block.fields, *block.groups, *block.data)]


def _place(number: Number) -> tuple[int, int, bool]:
    return number.offset, SIZES[number.primitive], number.primitive.startswith("int")


def _encoding(member: Text | Data) -> int:
    return _ENCODINGS.get(member.encoding or "", block_walk.BYTES)


def _buffer(arrow: Any, bits: bytes | None) -> pa.Buffer | None:
    return None if bits is None else arrow.py_buffer(bits)


def _texts(fields: Sequence[Member]) -> list[Text]:
    found: list[Text] = []
    for field in fields:
        if isinstance(field, Composite):
            found += _texts(field.members)
        elif isinstance(field, Text) and field.constant is None:
            found.append(field)
    return found
