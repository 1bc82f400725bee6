"""A user's SBE schema, read from XML: messages with their fields, groups and data at offsets in bytes."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementInclude, ElementTree

import msgspec

from container.common.values import is_path, shown, whole_number
from container.errors import ConfigurationError

type Member = Number | Enum | Choices | Text | Composite

FILE_BYTES_MAX = 16 * 1024 * 1024
"""A longer file is no schema, and neither are longer ones together that include each other."""
FILES_MAX = 1_000
"""More files that are included are no schema; one that is included twice counts twice."""
DEPTH_MAX = 16
"""Groups in groups, and composites in composites, at most."""
FIELDS_MAX = 100_000
"""Fields of all messages at most, with those in composites and sets: a few composites can make millions."""
TEXT_ENCODINGS = {"UTF-8": "utf-8", "UTF8": "utf-8", "ASCII": "utf-8", "US-ASCII": "utf-8", "ISO-8859-1": "latin-1"}
"""Encodings of texts, by their names in schemas in capitals; data of others are bytes."""

SIZES = {"char": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
SIZES |= {"float": 4, "double": 8}
"""Bytes of the primitive types."""
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """A number, or an array of numbers."""

    name: str
    offset: int
    """In its block."""
    primitive: str
    """As SBE names it: ``int8`` to ``uint64``, ``float``, ``double``; ``char`` for encodings of enums."""
    length: int | None = None
    """Numbers of an array; None for one number."""
    null: int | None = None
    """The value that stands for null, as its bits without sign; None where there is none, and for NaN of floats, which
    is null where ``is_optional``."""
    is_optional: bool = False
    constant: int | float | None = None
    """What it is where it takes no bytes."""
    since: int = 0
    """The version of the schema that has it first."""

    @property
    def size(self) -> int:
        """Bytes of it in the block."""
        return 0 if self.constant is not None else SIZES[self.primitive] * (1 if self.length is None else self.length)


class Coded(msgspec.Struct, frozen=True):
    """What is encoded as a number."""

    number: Number

    @property
    def name(self) -> str:
        """Of the field."""
        return self.number.name

    @property
    def size(self) -> int:
        """Bytes of it in the block."""
        return self.number.size


class Enum(Coded, frozen=True):
    """A number with names for its values."""

    names: dict[int, str]


class Choices(Coded, frozen=True):
    """A set: bits with names."""

    bits: dict[int, str]


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """Characters in the block, up to the first zero."""

    name: str
    offset: int
    length: int
    encoding: str
    """``utf-8`` or ``latin-1``."""
    is_optional: bool = False
    """Whether :attr:`null` is null."""
    null: str = ""
    """The text of a single character that stands for null; that which is empty, so begins with zero, of all others."""
    constant: str | None = None
    since: int = 0

    @property
    def size(self) -> int:
        """Bytes of it in the block."""
        return 0 if self.constant is not None else self.length


class Composite(msgspec.Struct, frozen=True):
    """Members with a name together."""

    name: str
    members: tuple[Member, ...]
    size: int
    """Bytes of it in the block."""


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes behind the block, with their length in front."""

    name: str
    length: Number
    """Offset in the header."""
    header_size: int
    encoding: str | None
    """``utf-8`` or ``latin-1`` for text; None for bytes."""
    since: int = 0


class Block(msgspec.Struct, frozen=True):
    """What a message or an entry of a group has: fields at offsets, then groups, then data."""

    fields: tuple[Member, ...]
    groups: tuple[Group, ...]
    data: tuple[Data, ...]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one kind behind the block, with their length and number in front."""

    name: str
    block_length: Number
    count: Number
    header_size: int
    block: Block
    since: int = 0


class Message(msgspec.Struct, frozen=True):
    """A type of message."""

    name: str
    template_id: int
    block: Block


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """All messages of a schema, and the header in front of each."""

    path: str
    """Of its file."""
    schema_id: int
    version: int
    is_big_endian: bool
    block_length: Number
    template_id: Number
    schema_of_message: Number
    version_of_message: Number
    header_size: int
    messages: tuple[Message, ...]


def read_schema(path: str) -> Schema:
    """Read a schema from an XML file, with the files that it includes by XInclude.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: the file cannot be read, is no schema, or has something that contradicts the standard; the
            text names the file and the element.
    """
    if not is_path(path):
        raise ConfigurationError(f"schema {shown(path)}: must be a path in UTF-8, without NUL")
    load = cast("Any", _Loader())
    try:
        root: ElementTree.Element = load(path, "xml")
        ElementInclude.include(root, loader=load, base_url=path, max_depth=DEPTH_MAX)
    except ConfigurationError:
        raise
    except ElementTree.ParseError as error:
        raise ConfigurationError(f"schema {path}: is no XML: {error}") from None
    except ElementInclude.FatalIncludeError as error:
        raise ConfigurationError(f"schema {path}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"schema {path}: cannot be read: {error}") from None
    except (ValueError, LookupError) as error:  # of several bytes a character, unknown, or none of text
        raise ConfigurationError(f"schema {path}: its encoding cannot be read: {error}: save it as UTF-8") from None
    return _Reader(path, root).schema()


class _Loader:
    """Reads a file and those that it includes: each as often as it is included, so that all have one limit."""

    def __init__(self) -> None:
        self._left = FILE_BYTES_MAX
        self._count = 0

    def __call__(self, path: str, parse: str, encoding: str | None = None) -> Any:
        if parse != "xml":
            raise ElementInclude.FatalIncludeError(f"{path} is included as {parse}: only XML can be")
        with Path(path).open("rb") as file:
            text = file.read(self._left + 1)
        self._left -= len(text)
        self._count += 1
        if self._left < 0 or self._count > FILES_MAX:
            raise ConfigurationError(
                f"schema {path}: has more than {FILE_BYTES_MAX} bytes or {FILES_MAX} files with all that is included, "
                "so it is no schema"
            )
        if b"<!ENTITY" in text.replace(b"\0", b""):  # also in UTF-16; a few lines of entities can stand for gigabytes
            raise ConfigurationError(f"schema {path}: declares entities; write what they stand for in their place")
        return ElementTree.fromstring(text)


def _local(element: ElementTree.Element) -> str:
    """The element's name without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: ElementTree.Element, *names: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _local(child) in names)


class _Reader:
    def __init__(self, path: str, root: ElementTree.Element) -> None:
        self._path = path
        self._root = root
        self._field_count = 0
        if _local(root) != "messageSchema":
            raise self._wrong(root, "the root of an SBE schema is messageSchema")
        self._types: dict[str, ElementTree.Element] = {}
        for types in _children(root, "types"):
            for kind in _children(types, "type", "composite", "enum", "set"):
                self._types.setdefault(self._attribute(kind, "name"), kind)

    def schema(self) -> Schema:
        root = self._root
        order = root.get("byteOrder", "littleEndian")
        if order not in ("littleEndian", "bigEndian"):
            raise self._wrong(root, f"byteOrder={shown(order)}: must be littleEndian or bigEndian")
        header = self._composite_of(root, root.get("headerType", "messageHeader"))
        names = ("blockLength", "templateId", "schemaId", "version")
        block_length, template_id, schema_id, version = (self._unsigned(root, header, name) for name in names)
        messages = [self._message(element) for element in _children(root, "message")]
        if not messages:
            raise self._wrong(root, "it has no message")
        for attribute in ("template_id", "name"):
            found = [getattr(message, attribute) for message in messages]
            twice = _twice(found)
            if twice is not None:
                raise self._wrong(root, f"two messages have the {attribute.replace('template_id', 'id')} {twice}")
        return Schema(
            path=self._path,
            schema_id=self._number(root, "id"),
            version=self._number(root, "version", 0),
            is_big_endian=order == "bigEndian",
            block_length=block_length,
            template_id=template_id,
            schema_of_message=schema_id,
            version_of_message=version,
            header_size=header.size,
            messages=tuple(messages),
        )

    def _message(self, element: ElementTree.Element) -> Message:
        name = self._attribute(element, "name")
        return Message(name, self._number(element, "id"), self._block(element, 0, 0))

    def _block(self, element: ElementTree.Element, since: int, depth: int) -> Block:
        if depth > DEPTH_MAX:
            raise self._wrong(element, f"has groups in groups more than {DEPTH_MAX} deep")
        fields: list[Member] = []
        end = 0
        for child in _children(element, "field"):
            offset = self._number(child, "offset", end)
            if offset < end:
                raise self._wrong(child, f"offset={offset}: the field before it ends at {end}")
            field = self._field(child, offset, since)
            fields.append(field)
            end = offset + field.size
        length = self._number(element, "blockLength", end)
        if length < end:
            raise self._wrong(element, f"blockLength={length}: its fields end at {end}")
        groups = tuple(self._group(child, since, depth) for child in _children(element, "group"))
        data = tuple(self._data(child, since) for child in _children(element, "data"))
        self._refuse_twice(element, [one.name for one in (*fields, *groups, *data)])
        return Block(tuple(fields), groups, data)

    def _group(self, element: ElementTree.Element, since: int, depth: int) -> Group:
        since = max(since, self._number(element, "sinceVersion", 0))
        header = self._composite_of(element, element.get("dimensionType", "groupSizeEncoding"))
        return Group(
            name=self._attribute(element, "name"),
            block_length=self._unsigned(element, header, "blockLength"),
            count=self._unsigned(element, header, "numInGroup"),
            header_size=header.size,
            block=self._block(element, since, depth + 1),
            since=since,
        )

    def _data(self, element: ElementTree.Element, since: int) -> Data:
        kind = self._attribute(element, "type")
        header = self._composite_of(element, kind)
        length = self._unsigned(element, header, "length")
        parts = (child for child in _children(self._types[kind], "type") if child.get("name") == "varData")
        content = next(parts, None)
        if content is None:
            raise self._wrong(self._types[kind], "has no varData, as data must")
        encoding = content.get("characterEncoding")
        if encoding is None and content.get("primitiveType") == "char":
            encoding = "ASCII"
        return Data(
            name=self._attribute(element, "name"),
            length=length,
            header_size=header.size,
            encoding=TEXT_ENCODINGS.get((encoding or "").strip().upper()),
            since=max(since, self._number(element, "sinceVersion", 0)),
        )

    def _composite_of(self, element: ElementTree.Element, name: str) -> Composite:
        kind = self._type(element, name)
        if _local(kind) != "composite":
            raise self._wrong(element, f"the type {name!r} must be a composite")
        return self._composite(kind, name, 0, 0, 0)

    def _unsigned(self, element: ElementTree.Element, header: Composite, name: str) -> Number:
        for member in header.members:
            if isinstance(member, Number) and member.name == name and member.primitive in _UNSIGNED:
                return member
        raise self._wrong(element, f"its composite {header.name!r} needs {name!r} with an unsigned type")

    # Fields

    def _field(self, element: ElementTree.Element, offset: int, since: int) -> Member:
        name, kind = self._attribute(element, "name"), self._attribute(element, "type")
        since = max(since, self._number(element, "sinceVersion", 0))
        presence = element.get("presence")
        value = element.get("valueRef") if presence == "constant" else None
        if kind in SIZES and kind not in self._types:
            self._count(1)
            return self._simple(element, name, kind, offset, since, presence, value)
        return self._of_type(element, self._type(element, kind), name, offset, since, 0, presence, value)

    def _of_type(
        self,
        element: ElementTree.Element,
        kind: ElementTree.Element,
        name: str,
        offset: int,
        since: int,
        depth: int,
        presence: str | None = None,
        value: str | None = None,
    ) -> Member:
        self._count(1)
        since = max(since, self._number(kind, "sinceVersion", 0))
        shape = _local(kind)
        if shape == "type":
            return self._simple(kind, name, self._attribute(kind, "primitiveType"), offset, since, presence, value)
        if shape == "composite":
            return self._composite(kind, name, offset, since, depth)
        if shape == "enum":
            return self._enum(element, kind, name, offset, since, presence, value)
        number = self._encoding(kind, name, offset, since)
        size = number.size * 8
        choices = list(_children(kind, "choice"))
        self._count(len(choices))
        bits = {self._whole(choice, choice.text, 0, size - 1): self._attribute(choice, "name") for choice in choices}
        self._refuse_twice(kind, [self._attribute(choice, "name") for choice in choices])
        if len(bits) < len(choices):
            raise self._wrong(kind, "has two names for one bit")
        return Choices(number, bits)

    def _count(self, fields: int) -> None:
        self._field_count += fields
        if self._field_count > FIELDS_MAX:
            raise self._wrong(self._root, f"has more than {FIELDS_MAX} fields with those in composites and sets")

    def _composite(self, kind: ElementTree.Element, name: str, offset: int, since: int, depth: int) -> Composite:
        if depth > DEPTH_MAX:
            raise self._wrong(kind, f"has composites in composites more than {DEPTH_MAX} deep, or itself")
        members: list[Member] = []
        end = offset
        for child in _children(kind, "type", "composite", "enum", "set", "ref"):
            begin = offset + self._number(child, "offset", end - offset)
            if begin < end:
                raise self._wrong(child, f"offset={begin - offset}: what is before it ends at {end - offset}")
            of = self._type(child, self._attribute(child, "type")) if _local(child) == "ref" else child
            if child.get("name") == "varData":
                continue  # what is behind the header of data
            member = self._of_type(child, of, self._attribute(child, "name"), begin, since, depth + 1)
            members.append(member)
            end = begin + member.size
        if not members:
            raise self._wrong(kind, "has no members")
        self._refuse_twice(kind, [one.name for one in members])
        return Composite(name, tuple(members), end - offset)

    def _simple(
        self,
        kind: ElementTree.Element,
        name: str,
        primitive: str,
        offset: int,
        since: int,
        presence: str | None,
        value: str | None,
    ) -> Member:
        if primitive not in SIZES:
            raise self._wrong(kind, f"primitiveType={shown(primitive)}: must be one of {', '.join(SIZES)}")
        presence = presence or kind.get("presence") or "required"
        is_optional = presence == "optional"
        length = self._number(kind, "length", 1)
        if presence == "constant":
            return self._constant(kind, name, primitive, offset, value)
        if primitive == "char":
            encoding = TEXT_ENCODINGS.get((kind.get("characterEncoding") or "ASCII").strip().upper())
            if encoding is None:
                raise self._wrong(kind, f"characterEncoding={shown(kind.get('characterEncoding'))}: is not known")
            null = self._null(kind, primitive) if is_optional and length == 1 else None
            return Text(
                name=name,
                offset=offset,
                length=length,
                encoding=encoding,
                is_optional=is_optional,
                null=chr(null) if null else "",
                since=since,
            )
        return Number(
            name=name,
            offset=offset,
            primitive=primitive,
            length=None if length == 1 else length,
            null=self._null(kind, primitive) if is_optional else None,
            is_optional=is_optional,
            since=since,
        )

    def _constant(self, kind: ElementTree.Element, name: str, primitive: str, offset: int, value: str | None) -> Member:
        text = (kind.text or "").strip()
        value = value or kind.get("valueRef")
        if value is not None:
            found = self._value_of(kind, value)
            if primitive not in ("float", "double") and not _range(primitive)[0] <= found <= _range(primitive)[1]:
                raise self._wrong(kind, f"valueRef={shown(value)}: {found} is no {primitive}")
            if primitive == "char":
                return Text(name=name, offset=offset, length=1, encoding="utf-8", constant=chr(found))
            return Number(name=name, offset=offset, primitive=primitive, constant=found)
        if not text and kind.get("value") is not None:
            text = kind.get("value", "")
        if primitive == "char":
            return Text(name=name, offset=offset, length=len(text), encoding="utf-8", constant=text)
        if primitive in ("float", "double"):
            try:
                return Number(name=name, offset=offset, primitive=primitive, constant=float(text))
            except ValueError:
                raise self._wrong(kind, f"its constant {shown(text)} is no number") from None
        constant = self._whole(kind, text, *_range(primitive))
        return Number(name=name, offset=offset, primitive=primitive, constant=constant)

    def _enum(
        self,
        element: ElementTree.Element,
        kind: ElementTree.Element,
        name: str,
        offset: int,
        since: int,
        presence: str | None,
        value: str | None,
    ) -> Member:
        number = self._encoding(kind, name, offset, since)
        names = {}
        for one in _children(kind, "validValue"):
            text = (one.text or "").strip()
            is_char = number.primitive == "char"
            if is_char and len(text) != 1:
                raise self._wrong(one, f"its value {shown(text)} is no character")
            names[ord(text) if is_char else self._whole(one, text, *_range(number.primitive))] = self._attribute(
                one, "name"
            )
        if presence == "constant":
            if value is None:
                raise self._wrong(element, "a constant of an enum needs valueRef")
            _, _, wanted = value.rpartition(".")
            if wanted not in names.values():
                raise self._wrong(element, f"valueRef={shown(value)}: there is no such value")
            return Text(name=name, offset=offset, length=0, encoding="utf-8", constant=wanted)
        null = self._null(self._of_null(kind), number.primitive)
        return Enum(msgspec.structs.replace(number, null=null, is_optional=True), names)

    def _encoding(self, kind: ElementTree.Element, name: str, offset: int, since: int) -> Number:
        """The number that an enum or a set is encoded as."""
        encoding = self._attribute(kind, "encodingType")
        if encoding in self._types and _local(self._types[encoding]) == "type":
            encoding = self._attribute(self._types[encoding], "primitiveType")
        if encoding not in SIZES or encoding in ("float", "double"):
            raise self._wrong(kind, f"encodingType={shown(encoding)}: must be an integer or char")
        return Number(name=name, offset=offset, primitive=encoding, since=since)

    def _of_null(self, kind: ElementTree.Element) -> ElementTree.Element:
        """What says the null value of an enum: itself, or else the type that it is encoded as, where it has one."""
        if kind.get("nullValue") is not None:
            return kind
        return self._types.get(self._attribute(kind, "encodingType"), kind)

    def _value_of(self, element: ElementTree.Element, reference: str) -> int:
        enum, _, name = reference.rpartition(".")
        kind = self._types.get(enum)
        if kind is None or _local(kind) != "enum":
            raise self._wrong(element, f"valueRef={shown(reference)}: there is no such enum")
        for one in _children(kind, "validValue"):
            if one.get("name") == name:
                text = (one.text or "").strip()
                primitive = self._encoding(kind, name, 0, 0).primitive
                return (
                    ord(text) if primitive == "char" and len(text) == 1 else self._whole(one, text, *_range(primitive))
                )
        raise self._wrong(element, f"valueRef={shown(reference)}: there is no such value")

    def _null(self, kind: ElementTree.Element, primitive: str) -> int | None:
        """The value of an optional field that stands for null, as its bits without sign; None for NaN."""
        text = kind.get("nullValue")
        if primitive in ("float", "double"):
            return None if text is None else self._float_bits(kind, text, primitive)
        bits = 8 * SIZES[primitive]
        if text is not None:
            is_char = primitive == "char" and len(text) == 1 and not text.isdigit()
            # Some write the bits of a negative number.
            value = ord(text) if is_char else self._whole(kind, text, -(1 << (bits - 1)), (1 << bits) - 1)
            return value % (1 << bits)
        if primitive == "char":
            return 0
        return (1 << bits) - 1 if primitive in _UNSIGNED else 1 << (bits - 1)

    def _float_bits(self, kind: ElementTree.Element, text: str, primitive: str) -> int | None:
        try:
            value = float(text)
            packed = struct.pack("<f" if primitive == "float" else "<d", value)
        except (ValueError, OverflowError):
            raise self._wrong(kind, f"nullValue={shown(text)}: is no {primitive}") from None
        return None if math.isnan(value) else int.from_bytes(packed, "little")

    # Attributes

    def _type(self, element: ElementTree.Element, name: str) -> ElementTree.Element:
        kind = self._types.get(name)
        if kind is None:
            raise self._wrong(element, f"the type {shown(name)} is not in the schema")
        return kind

    def _attribute(self, element: ElementTree.Element, name: str) -> str:
        value = element.get(name)
        if not value:
            raise self._wrong(element, f"needs the attribute {name}")
        return value

    def _number(self, element: ElementTree.Element, name: str, default: int | None = None) -> int:
        text = element.get(name)
        if text is None:
            if default is None:
                raise self._wrong(element, f"needs the attribute {name}")
            return default
        value = whole_number(text.strip())
        if value is None or not 0 <= value < 2**31:
            raise self._wrong(element, f"{name}={shown(text)}: must be a number from 0 to {2**31 - 1}")
        return value

    def _whole(self, element: ElementTree.Element, text: str | None, least: int, most: int) -> int:
        try:
            value = int((text or "").strip())
        except ValueError:
            raise self._wrong(element, f"{shown(text)} is no whole number") from None
        if not least <= value <= most:
            raise self._wrong(element, f"{shown(text)}: must be from {least} to {most}")
        return value

    def _refuse_twice(self, element: ElementTree.Element, names: Sequence[str]) -> None:
        twice = _twice(names)
        if twice is not None:
            raise self._wrong(element, f"has {twice!r} twice")

    def _wrong(self, element: ElementTree.Element, why: str) -> ConfigurationError:
        name = element.get("name")
        what = f"{_local(element)} {name!r}" if name else _local(element)
        return ConfigurationError(f"schema {self._path}: {what}: {why}")


def _twice(values: Sequence[Any]) -> Any:
    """The first value that is there twice; None where none is."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _range(primitive: str) -> tuple[int, int]:
    """The least and the greatest of what an integer or a character can be."""
    bits = 8 * SIZES[primitive]
    if primitive == "char" or primitive in _UNSIGNED:
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def required_lengths(fields: Sequence[Member]) -> list[tuple[int, int]]:
    """Bytes that a block has at least: versions of the schema in ascending order, and from each on how many."""
    leaves = [leaf for field in fields for leaf in _leaves(field)]
    return [
        (since, max((leaf.offset + leaf.size for leaf in leaves if leaf.since <= since), default=0))
        for since in sorted({0, *(leaf.since for leaf in leaves)})
    ]


def _leaves(member: Member) -> Iterator[Number | Text]:
    if isinstance(member, Composite):
        for one in member.members:
            yield from _leaves(one)
    elif isinstance(member, Coded):
        yield member.number
    elif member.constant is None:
        yield member
