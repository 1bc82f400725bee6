"""A user's SBE schema, read from XML: messages with their fields, groups and data at offsets in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementInclude, ElementTree

import msgspec

from container.common.values import is_path, shown
from container.errors import ConfigurationError
from container.sbe import charsets, java_values
from container.sbe.java_values import SIZES, UNSIGNED

type Member = Number | Enum | Choices | Text | Composite

FILE_BYTES_MAX = 16 * 1024 * 1024
"""A longer file is not a schema, and neither are longer ones together that include each other."""
FILES_MAX = 1_000
"""A schema may include at most this many files; one that is included twice counts twice."""
DEPTH_MAX = 16
"""Groups in groups, and composites in composites, at most."""
FIELDS_MAX = 100_000
"""Fields of all messages at most, with those in composites and sets: a few composites can make millions."""
_KINDS = ("type", "composite", "enum", "set")
_INT32_MAX = 2**31 - 1


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
    """Its value if it takes no bytes."""
    since: int = 0
    """The version of the schema that has it first."""

    @property
    def size(self) -> int:
        """Bytes of it in the block."""
        return 0 if self.constant is not None else SIZES[self.primitive] * (1 if self.length is None else self.length)


class Coded(msgspec.Struct, frozen=True):
    """A type encoded as a number."""

    number: Number

    @property
    def name(self) -> str:
        """Name of the field."""
        return self.number.name

    @property
    def size(self) -> int:
        """Bytes of it in the block."""
        return self.number.size


class Enum(Coded, frozen=True):
    """A number with names for its values."""

    names: dict[int, str]


class Choices(Coded, frozen=True):
    """A set: names of bits."""

    bits: dict[str, int]


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """Characters in the block, up to the first zero."""

    name: str
    offset: int
    length: int
    encoding: str | None
    """As for :class:`Data`."""
    null: int | None = None
    """The byte that stands for null: zero for an empty text as well; None where none does."""
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
    """The name of Python's codec for text, ``utf-8`` for ASCII; None for bytes."""
    since: int = 0


class Block(msgspec.Struct, frozen=True):
    """The parts of a message or of an entry of a group: fields at offsets, then groups, then data."""

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
    """Path of its file."""
    schema_id: int
    """The id of the schema."""
    version: int
    """The version of the schema."""
    is_big_endian: bool
    """True if numbers are big-endian."""
    block_length: Number
    """The field of the header with the length of the block."""
    template_id: Number
    """The field of the header with the id of the message."""
    schema_of_message: Number
    """The field of the header with the schema id of the message."""
    version_of_message: Number
    """The field of the header with the version of the message."""
    header_size: int
    """The length of the header, in bytes."""
    messages: tuple[Message, ...]
    """The messages, in the order of the file."""


def read_schema(path: str) -> Schema:
    """Read a schema from an XML file, with the files that it includes by XInclude.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: the file cannot be read, is not a schema, or contradicts the standard; the
            text names the file and the element.
    """
    if not is_path(path):
        raise ConfigurationError(f"schema {shown(path)}: must be a path in UTF-8, without NUL")
    loader = _Loader()
    load = cast("Any", loader)
    try:
        root: ElementTree.Element = load(path, "xml")
        ElementInclude.include(root, loader=load, base_url=path, max_depth=DEPTH_MAX)
    except RecursionError:
        raise ConfigurationError(f"schema {path}: has elements in elements too deep to be read") from None
    except ConfigurationError:
        raise
    except ElementTree.ParseError as error:
        raise ConfigurationError(f"schema {path}: not XML: {error}") from None
    except ElementInclude.FatalIncludeError as error:
        raise ConfigurationError(f"schema {path}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"schema {path}: cannot be read: {error}") from None
    except (ValueError, LookupError) as error:  # of several bytes a character, unknown, or none of text
        raise ConfigurationError(f"schema {path}: its encoding cannot be read: {error}: save it as UTF-8") from None
    return _Reader(path, root, loader.names).schema()


class _Loader:
    """Reads a file and those that it includes: each as often as it is included, so that all have one limit."""

    def __init__(self) -> None:
        self._left = FILE_BYTES_MAX
        self._count = 0
        self.names = _Names()

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
                "so it is not a schema"
            )
        if b"<!ENTITY" in text.replace(b"\0", b""):  # also in UTF-16; a few lines of entities can stand for gigabytes
            raise ConfigurationError(f"schema {path}: declares entities; write what they stand for in their place")
        return ElementTree.fromstring(text, ElementTree.XMLParser(target=_Tree(self.names)))


class _Names:
    """Namespaces of a schema: those that prefixes stand for, and those of elements without."""

    def __init__(self) -> None:
        self.with_prefix: set[str] = set()
        self.without: set[str] = {""}


class _Tree(ElementTree.TreeBuilder):
    """Keeps comments and instructions, before which the value of an element ends, and what prefixes stand for."""

    def __init__(self, names: _Names) -> None:
        super().__init__(insert_comments=True, insert_pis=True)
        self._names = names

    def start_ns(self, prefix: str | None, uri: str) -> None:
        """Note what a prefix stands for."""
        (self._names.with_prefix if prefix else self._names.without).add(uri)


def _local(element: ElementTree.Element) -> str:
    """The element's name without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: ElementTree.Element, *names: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _local(child) in names)


class _Type(msgspec.Struct, kw_only=True):
    """A ``type`` of a schema."""

    primitive: str
    length: int
    presence: str
    encoding: str | None
    is_variable: bool
    constant: int | float | str | None
    null: int | float | None
    """As Java has it: with a sign, and of more bits for unsigned ones."""
    least: int | float | None
    most: int | float | None


class _Values(msgspec.Struct, kw_only=True):
    """An enum or a set of a schema: the encoding, and the numbers of names."""

    primitive: str
    null: int | float = 0
    names: dict[str, int]


class _Reader:
    """Reads what Real Logic's sbe-tool 1.38.1 accepts, and refuses what it refuses.

    Beside that it refuses what sbe-tool reads from other bytes than those of the field.
    """

    def __init__(self, path: str, root: ElementTree.Element, names: _Names) -> None:
        self._path = path
        self._root = root
        self._prefixed = names.with_prefix - names.without
        self._field_count = 0
        self._read_types: dict[int, _Type] = {}
        self._read_values: dict[int, _Values] = {}
        self._variable: dict[int, bool] = {}
        if _local(root) != "messageSchema":
            raise self._wrong(root, "the root of an SBE schema is messageSchema")
        declared = [kind for types in _children(root, "types") for kind in types if _local(kind)]
        #: Those that a reference finds: the first of a name.
        self._first: dict[str, ElementTree.Element] = {}
        self._first_of_kind: dict[tuple[str, str], ElementTree.Element] = {}
        for kind in declared:
            name = kind.get("name", "")
            self._first.setdefault(name, kind)
            self._first_of_kind.setdefault((_local(kind), name), kind)
        #: Those that a field finds: the last of a name, and a set before an enum before a composite.
        self._types = {name: ElementTree.Element("type", name=name, primitiveType=name) for name in SIZES}
        self._declared = [kind for shape in _KINDS for kind in declared if _local(kind) == shape]
        self._types |= {self._attribute(kind, "name"): kind for kind in self._declared}
        data = [one.get("type", "") for message in _children(root, "message") for one in _descendants(message, "data")]
        self._composites_of_data = set(data)

    def schema(self) -> Schema:
        root = self._root
        self._attribute(root, "package")
        self._version = self._number(root, "version", 0)
        self._check_types()
        messages = [self._message(element) for element in _children(root, "message")]
        self._refuse_twice(root, "two messages have the id", [message.template_id for message in messages])
        self._refuse_twice(root, "two messages have the name", [message.name for message in messages])
        kind, header = self._header(root, root.get("headerType", "messageHeader"))
        block_length = self._place(root, kind, header, "blockLength")
        template_id, schema_id, version = (
            self._place(root, kind, header, name, is_unsigned=False) for name in ("templateId", "schemaId", "version")
        )
        return Schema(
            path=self._path,
            schema_id=self._number(root, "id"),
            version=self._version,
            is_big_endian=root.get("byteOrder") == "bigEndian",
            block_length=block_length,
            template_id=template_id,
            schema_of_message=schema_id,
            version_of_message=version,
            header_size=header.size,
            messages=tuple(messages),
        )

    def _check_types(self) -> None:
        """Read all types, those as well that no field has."""
        version = self._version
        for kind in self._declared:
            is_hidden = self._types[kind.get("name", "")] is not kind
            self._version = _INT32_MAX if is_hidden else version
            self._member(kind, kind, "", 0, 0, ())
        self._version = version
        self._field_count = 0

    def _message(self, element: ElementTree.Element) -> Message:
        name = self._attribute(element, "name")
        self._number(element, "deprecated", 0)
        self._since(element)
        length = self._number(element, "blockLength", 0)
        return Message(name, self._number(element, "id"), self._block(element, length, 0, 0, is_message=True))

    def _block(
        self, element: ElementTree.Element, length: int, since: int, depth: int, *, is_message: bool = False
    ) -> Block:
        if depth > DEPTH_MAX:
            raise self._wrong(element, f"has groups in groups more than {DEPTH_MAX} deep")
        fields: list[Member] = []
        groups: list[Group] = []
        data: list[Data] = []
        ids = []
        end = end_of_fields = 0
        for child in self._members(element, "field", "group", "data"):
            shape = _local(child)
            if (shape == "field" and (groups or data)) or (shape == "group" and data):
                raise self._wrong(child, "must be before what is data" if data else "must be before all groups")
            ids.append(self._number(child, "id"))
            offset = 0 if shape == "group" else self._number(child, "offset", 0)  # 0: no offset
            if offset and offset < end:
                raise self._wrong(child, f"offset={offset}: what is before it ends at {end}")
            end = offset or (length if is_message and length and shape != "field" else end)
            if shape == "field":
                field = self._field(child, end, since)
                fields.append(field)
                end = end_of_fields = self._end(child, end + field.size)
            elif shape == "group":
                groups.append(self._group(child, since, depth))
            else:
                data.append(self._data(child, since))
        end = end_of_fields if is_message else end
        if length and length < end:
            raise self._wrong(element, f"blockLength={length}: its fields end at {end}")
        self._refuse_twice(element, "has twice the id", ids)
        self._refuse_twice(element, "has twice", [one.name for one in (*fields, *groups, *data)])
        return Block(tuple(fields), tuple(groups), tuple(data))

    def _group(self, element: ElementTree.Element, since: int, depth: int) -> Group:
        kind, header = self._header(element, element.get("dimensionType", "groupSizeEncoding"))
        block_length = self._place(element, kind, header, "blockLength", is_limited=True)
        count = self._place(element, kind, header, "numInGroup", is_unsigned=False, is_limited=True)
        since = max(since, self._since(element))
        self._number(element, "deprecated", 0)
        return Group(
            name=self._attribute(element, "name"),
            block_length=block_length,
            count=count,
            header_size=header.size,
            block=self._block(element, self._number(element, "blockLength", 0), since, depth + 1),
            since=since,
        )

    def _data(self, element: ElementTree.Element, since: int) -> Data:
        self._check_field(element)
        if self._presence(element) == "optional":
            raise self._wrong(element, "data cannot be optional")
        kind, header = self._header(element, self._attribute(element, "type"), is_data=True)
        length = self._place(element, kind, header, "length", is_limited=True)
        content = next((one for one in header.members if one.name == "varData"), None)
        if not isinstance(content, Number | Text):
            raise self._wrong(element, f"its composite {header.name!r} needs a varData with a type, as data must")
        if content is not header.members[1]:
            raise self._wrong(element, f"its composite {header.name!r} must begin with length and varData")
        encoding = self._type(self._part(kind, "varData")).encoding
        return Data(
            name=self._attribute(element, "name"),
            length=length,
            header_size=content.offset,
            encoding=None if encoding is None else _codec_of(encoding),
            since=max(since, self._since(element)),
        )

    # Composites that are in front of something

    def _header(
        self, element: ElementTree.Element, name: str, *, is_data: bool = False
    ) -> tuple[ElementTree.Element, Composite]:
        kind = self._type_named(element, name)
        if _local(kind) != "composite":
            raise self._wrong(element, f"the type {name!r} must be a composite")
        parts = [part for known, part in self._parts(kind) if known != "varData"]
        if any(map(self._is_variable, parts)) if is_data else self._is_variable(kind):
            raise self._wrong(element, f"the type {name!r} has no length, so only data can have it")
        return kind, self._composite(kind, name, 0, 0, ())

    def _place(
        self,
        element: ElementTree.Element,
        kind: ElementTree.Element,
        header: Composite,
        name: str,
        *,
        is_unsigned: bool = True,
        is_limited: bool = False,
    ) -> Number:
        """Where a number is in a header.

        Args:
            element: what has the header.
            kind: its type.
            header: the same, with places.
            name: of the number.
            is_unsigned: whether it must have an unsigned type.
            is_limited: whether its type says what it can be, as in front of groups and data.
        """
        found = next((one for one in header.members if one.name == name), None)
        kinds = UNSIGNED if is_unsigned else (*UNSIGNED, "int8", "int16", "int32", "int64")
        if not isinstance(found, Number) or found.primitive not in kinds:
            needed = "an unsigned type" if is_unsigned else "the type of an integer"
            raise self._wrong(element, f"its composite {header.name!r} needs {name!r} with {needed}")
        if found.constant is not None or found.length is not None:
            raise self._wrong(element, f"its composite {header.name!r} needs {name!r} as one number in the message")
        if is_limited:
            self._check_limits(element, name, self._type(self._part(kind, name)))
        return found

    def _check_limits(self, element: ElementTree.Element, name: str, kind: _Type) -> None:
        least, most = kind.least, kind.most
        of_primitive = java_values.limits(kind.primitive)[1]
        if kind.primitive not in UNSIGNED:
            if least is None or least < 0:
                raise self._wrong(element, f"{name!r} has a sign, so its type needs a minValue that has none")
            return
        greatest = min(of_primitive, _INT32_MAX) if kind.primitive == "uint32" else of_primitive
        if most is None and kind.primitive == "uint32":
            raise self._wrong(element, f"the type of {name!r} needs a maxValue of at most {greatest}")
        if most is not None and most > greatest:
            raise self._wrong(element, f"the type of {name!r} has maxValue={most}: at most {greatest} can be")
        limit = of_primitive if most is None else most
        if name == "numInGroup" and least is not None and least > limit:
            raise self._wrong(element, f"the type of {name!r} has minValue={least}, and at most {limit} can be")

    def _parts(self, kind: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
        """The names in a composite and what they are, by reference as well."""
        for one in self._members(kind, *_KINDS, "ref"):
            yield one.get("name", ""), self._first[one.get("type", "")] if _local(one) == "ref" else one

    def _part(self, kind: ElementTree.Element, name: str) -> ElementTree.Element:
        return next(part for known, part in self._parts(kind) if known == name)

    # Fields

    def _field(self, element: ElementTree.Element, offset: int, since: int) -> Member:
        kind = self._check_field(element)
        presence = self._presence(element, self._presence(kind))
        value = element.get("valueRef")
        shape = _local(kind)
        if value is not None:
            number = self._value_of(element, value)
            if presence == "constant":
                self._check_value(element, kind, value)
        if presence == "constant":
            if shape == "enum" and value is None:
                raise self._wrong(element, "a constant of an enum needs valueRef")
            if shape in ("set", "composite"):
                raise self._wrong(element, f"a {shape} cannot be constant")
        if self._is_variable(kind):
            raise self._wrong(element, f"the type {kind.get('name')!r} has no length, so only data can have it")
        since = max(since, self._since(element))
        name = self._attribute(element, "name")
        if shape == "type":
            self._count(1)
            of = self._type(kind)
            constant = of.constant
            if presence == "constant" and value is not None:
                constant = self._constant_of(of.primitive, of.encoding, number)
            elif presence == "constant" and of.presence != "constant":
                raise self._wrong(element, "is constant, and neither it nor its type has a value")
            return self._simple(of, name, offset, max(since, self._since(kind)), presence, constant)
        if shape == "enum" and presence == "constant" and value is not None:
            self._count(1)
            return Text(name=name, offset=offset, length=0, encoding="utf-8", constant=value.partition(".")[2])
        return self._member(element, kind, name, offset, since, ())

    def _check_field(self, element: ElementTree.Element) -> ElementTree.Element:
        """The type of a field or of data, whose attributes are right."""
        kind = self._type_named(element, self._attribute(element, "type"))
        self._number(element, "deprecated", 0)
        mine, other = element.get("semanticType"), kind.get("semanticType")
        if mine is not None and other is not None and mine != other:
            raise self._wrong(element, f"semanticType={shown(mine)}: its type has {shown(other)}")
        return kind

    def _member(
        self,
        element: ElementTree.Element,
        kind: ElementTree.Element,
        name: str,
        offset: int,
        since: int,
        path: tuple[str, ...],
    ) -> Member:
        """Make a member of a type; ``path`` has the names of the composites that it is in."""
        self._count(1)
        since = max(since, self._since(kind if element.get("sinceVersion") is None or not path else element))
        shape = _local(kind)
        if shape == "type":
            of = self._type(kind)
            return self._simple(of, name, offset, since, of.presence, of.constant)
        if shape == "composite":
            return self._composite(kind, name, offset, since, path)
        if shape not in _KINDS:
            raise self._wrong(element, f"{kind.get('name')!r} is not a type")
        found = self._values(kind)
        if shape == "set":
            self._count(len(found.names))
            return Choices(Number(name=name, offset=offset, primitive=found.primitive, since=since), found.names)
        names: dict[int, str] = {}
        for one, value in found.names.items():
            names.setdefault(value % 2**64 if found.primitive == "uint64" else value, one)
        null = None if found.null in found.names.values() else java_values.null_bits(found.primitive, found.null)
        number = Number(name=name, offset=offset, primitive=found.primitive, null=null, is_optional=True, since=since)
        return Enum(number, names)

    def _count(self, fields: int) -> None:
        self._field_count += fields
        if self._field_count > FIELDS_MAX:
            raise self._wrong(self._root, f"has more than {FIELDS_MAX} fields with those in composites and sets")

    def _end(self, element: ElementTree.Element, end: int) -> int:
        if end > _INT32_MAX:
            raise self._wrong(element, f"ends at {end}: a block has at most {_INT32_MAX} bytes")
        return end

    def _composite(
        self, kind: ElementTree.Element, name: str, offset: int, since: int, path: tuple[str, ...]
    ) -> Composite:
        if len(path) > DEPTH_MAX:
            raise self._wrong(kind, f"has composites in composites more than {DEPTH_MAX} deep")
        self._numbers(kind)
        self._presence(kind)
        path = (*path, self._attribute(kind, "name"))
        members: list[Member] = []
        end = offset
        for child in self._members(kind, *_KINDS, "ref", "data", "group"):
            named = self._attribute(child, "name")
            if _local(child) in ("data", "group"):
                raise self._wrong(child, "cannot be in a composite")
            of = child
            if _local(child) == "ref":
                target = self._attribute(child, "type")
                if target not in self._first:
                    raise self._wrong(child, f"the type {shown(target)} is not in the schema")
                if target in path:
                    raise self._wrong(child, f"the composite {target!r} is in itself")
                of = self._first[target]
                self._refuse_prefix(of)
            at = self._number(child if child.get("offset") is not None else of, "offset", -1)  # -1: no offset
            if at != -1 and offset + at < end:
                raise self._wrong(child, f"offset={at}: what is before it ends at {end - offset}")
            if self._presence(of) == "constant" and _local(of) != "type":
                raise self._wrong(child, f"a {_local(of)} in a composite cannot be constant")
            member = self._member(child, of, named, end if at == -1 else offset + at, since, path)
            members.append(member)
            end = self._end(child, (end if at == -1 else offset + at) + member.size)
        self._refuse_twice(kind, "has twice", [one.name for one in members])
        return Composite(name, tuple(members), end - offset)

    def _simple(
        self, of: _Type, name: str, offset: int, since: int, presence: str, constant: int | float | str | None
    ) -> Member:
        if of.primitive == "char":
            return Text(
                name=name,
                offset=offset,
                length=of.length,
                encoding=_codec_of(of.encoding or "ASCII") if constant is None else "utf-8",
                null=(int(of.null or 0) if of.length == 1 else 0) if presence == "optional" else None,
                constant=None if constant is None else str(constant),
                since=since,
            )
        is_optional = presence == "optional" and constant is None
        value = constant if isinstance(constant, int | float) else None
        return Number(
            name=name,
            offset=offset,
            primitive=of.primitive,
            length=None if of.length == 1 or constant is not None else of.length,
            null=java_values.null_bits(of.primitive, of.null) if is_optional else None,
            is_optional=is_optional,
            constant=value % 2**64 if of.primitive == "uint64" and isinstance(value, int) else value,
            since=since,
        )

    # Types

    def _type_named(self, element: ElementTree.Element, name: str) -> ElementTree.Element:
        kind = self._types.get(name)
        if kind is None:
            raise self._wrong(element, f"the type {shown(name)} is not in the schema")
        return kind

    def _is_variable(self, kind: ElementTree.Element) -> bool:
        found = self._variable.get(id(kind))
        if found is None:
            if _local(kind) == "type":
                found = self._type(kind).is_variable
            elif _local(kind) == "composite":
                name = kind.get("name", "")
                found = name in self._composites_of_data and self._types.get(name) is kind
                found = found or any(self._is_variable(part) for _, part in self._parts(kind))
            self._variable[id(kind)] = found = bool(found)
        return found

    def _type(self, kind: ElementTree.Element) -> _Type:
        found = self._read_types.get(id(kind))
        if found is None:
            found = self._read_types[id(kind)] = self._read_type(kind)
        return found

    def _read_type(self, kind: ElementTree.Element) -> _Type:
        self._numbers(kind)
        presence = self._presence(kind)
        primitive = self._attribute(kind, "primitiveType")
        if primitive not in SIZES:
            raise self._wrong(kind, f"primitiveType={shown(primitive)}: must be one of {', '.join(SIZES)}")
        length = self._number(kind, "length", 1)
        if length < 0:
            raise self._wrong(kind, f"length={length}: must not be less than 0")
        reference = kind.get("valueRef")
        if reference is not None and presence != "constant":
            raise self._wrong(kind, f"valueRef={shown(reference)}: only a constant can have one")
        encoding = kind.get("characterEncoding", "US-ASCII" if primitive == "char" else None)
        constant: int | float | str | None = None
        if presence == "constant" and reference is not None:
            constant = self._constant_of(primitive, encoding, self._value_of(kind, reference, primitive))
        elif presence == "constant" and primitive == "char":
            constant = self._constant_text(kind, length, encoding or "")
        elif presence == "constant":
            constant = self._value(kind, _value_text(kind), primitive)
        values = {name: kind.get(name) for name in ("nullValue", "minValue", "maxValue")}
        null, least, most = (
            None if text is None else self._value(kind, text, primitive, name) for name, text in values.items()
        )
        return _Type(
            primitive=primitive,
            length=length,
            presence=presence,
            encoding=None if encoding is None else encoding.strip(),
            is_variable=kind.get("variableLength", "").lower() == "true",
            constant=constant,
            null=null,
            least=least,
            most=most,
        )

    def _constant_text(self, kind: ElementTree.Element, length: int, encoding: str) -> str:
        text = _value_text(kind)
        if text is None:
            raise self._wrong(kind, "is constant and has no value")
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        if kind.get("length") is not None and length < units:
            raise self._wrong(kind, f"length={length}: its value {shown(text)} is longer")
        codec = charsets.codec_of(encoding.strip())
        if codec is None:
            raise self._wrong(kind, f"characterEncoding={shown(encoding)}: is not known, and its value is a text")
        content = charsets.encode(codec, text)
        if units == length == 1:
            content = content[:1]
        elif length > len(content):  # zeros that make no characters of four bytes do not change what is read
            content += bytes((length - len(content)) % 4)
        return charsets.decode(codec, content).rstrip("\0")

    @staticmethod
    def _constant_of(primitive: str, encoding: str | None, number: int) -> int | str:
        """A constant that is a value of an enum: of characters the one of that byte."""
        if primitive != "char":
            return number
        return charsets.decode(charsets.codec_of((encoding or "").strip()) or "ascii", bytes([number]))

    def _values(self, kind: ElementTree.Element) -> _Values:
        found = self._read_values.get(id(kind))
        if found is None:
            found = self._read_enum(kind) if _local(kind) == "enum" else self._read_set(kind)
            self._read_values[id(kind)] = found
        return found

    def _read_enum(self, kind: ElementTree.Element) -> _Values:
        self._numbers(kind)
        encoding = self._attribute(kind, "encodingType")
        primitive, of = encoding, None
        if encoding not in ("char", "uint8", "int8", "int16", "uint16", "int32"):
            of = self._encoding(kind, encoding)
            primitive = of.primitive
        text = kind.get("nullValue")
        null = None if text is None else self._value(kind, text, primitive, "nullValue")
        if null is None and of is not None:
            null = of.null
        if null is None:
            null = java_values.default_null(primitive)
        names: dict[str, int] = {}
        least, most = java_values.limits(primitive)
        if of is not None:
            least = least if of.least is None else int(of.least)
            most = most if of.most is None else int(of.most)
        for one in _children(kind, "validValue"):
            self._number(one, "deprecated", 0)
            name = self._attribute(one, "name")
            value = int(self._value(one, _value_text(one), primitive))
            if primitive != "char" and value == null:
                raise self._wrong(one, f"'{value}' stands for null")
            if primitive != "char" and not least <= value <= most:
                raise self._wrong(one, f"'{value}': must be from {least} to {most}")
            self._since(one)
            names[name] = value
        self._presence(kind)
        return _Values(primitive=primitive, null=null, names=names)

    def _read_set(self, kind: ElementTree.Element) -> _Values:
        self._numbers(kind)
        encoding = self._attribute(kind, "encodingType")
        primitive = encoding if encoding in UNSIGNED else self._encoding(kind, encoding).primitive
        names: dict[str, int] = {}
        for one in _children(kind, "choice"):
            self._number(one, "deprecated", 0)
            name = self._attribute(one, "name")
            bit = int(self._value(one, _value_text(one), primitive))
            if not 0 <= bit < java_values.BITS[primitive]:
                raise self._wrong(one, f"'{bit}': must be from 0 to {java_values.BITS[primitive] - 1}")
            self._since(one)
            names[name] = bit
        self._presence(kind)
        return _Values(primitive=primitive, names=names)

    def _encoding(self, kind: ElementTree.Element, name: str) -> _Type:
        """The type that an enum or a set is encoded as."""
        found = self._first_of_kind.get(("type", name))
        of = None if found is None else self._type(found)
        if of is None or of.length != 1 or of.primitive in ("float", "double"):
            raise self._wrong(
                kind, f"encodingType={shown(name)}: must be an integer or char that an {_local(kind)} can have"
            )
        return of

    def _value_of(self, element: ElementTree.Element, reference: str, primitive: str | None = None) -> int:
        """The number of a valid value: for a field of the enum that fields find, for a type of the first one."""
        enum, dot, name = reference.partition(".")
        if not (enum and dot and name):
            raise self._wrong(element, f"valueRef={shown(reference)}: must be an enum and its value, as in Side.BUY")
        kind = self._types.get(enum) if primitive is None else self._first_of_kind.get(("enum", enum))
        if kind is None or _local(kind) != "enum":
            raise self._wrong(element, f"valueRef={shown(reference)}: there is no such enum")
        values = self._values(kind)
        if primitive not in (None, values.primitive):
            raise self._wrong(
                element, f"valueRef={shown(reference)}: its enum is of {values.primitive}, not of {primitive}"
            )
        if name not in values.names:
            raise self._wrong(element, f"valueRef={shown(reference)}: there is no such value")
        return values.names[name]

    def _check_value(self, element: ElementTree.Element, kind: ElementTree.Element, reference: str) -> None:
        """Refuse a constant whose value is of another type than it."""
        enum = reference.partition(".")[0]
        if _local(kind) == "enum":
            if kind.get("name") != enum:
                raise self._wrong(element, f"valueRef={shown(reference)}: its type is another enum")
        elif _local(kind) != "type" or self._type(kind).primitive != self._values(self._types[enum]).primitive:
            raise self._wrong(element, f"valueRef={shown(reference)}: its type is another than that of the enum")

    def _value(
        self, element: ElementTree.Element, text: str | None, primitive: str, attribute: str = ""
    ) -> int | float:
        try:
            return java_values.parsed(text or "", primitive)
        except ValueError as error:
            what = f"{attribute}={shown(text)}" if attribute else shown(text)
            raise self._wrong(element, f"{what}{error}") from None

    # Attributes

    def _members(self, element: ElementTree.Element, *names: str) -> Iterator[ElementTree.Element]:
        for child in _children(element, *names):
            self._refuse_prefix(child)
            yield child

    def _refuse_prefix(self, element: ElementTree.Element) -> None:
        if self._prefixed and element.tag.rpartition("}")[0].removeprefix("{") in self._prefixed:
            raise self._wrong(element, "cannot have a prefix here")

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
        value = java_values.integer(text)
        if value is None or not -(2**31) <= value < 2**31:
            raise self._wrong(element, f"{name}={shown(text)}: must be a whole number of at most 32 bits")
        return value

    def _numbers(self, kind: ElementTree.Element) -> None:
        """Refuse invalid numbers, also in attributes of a type that may make no difference."""
        for name in ("deprecated", "offset", "sinceVersion"):
            self._number(kind, name, 0)

    def _since(self, element: ElementTree.Element) -> int:
        since = self._number(element, "sinceVersion", 0)
        if since > self._version:
            raise self._wrong(element, f"sinceVersion={since}: the schema has version {self._version}")
        return since

    def _presence(self, element: ElementTree.Element, default: str = "required") -> str:
        presence = element.get("presence", default)
        if presence not in ("required", "optional", "constant"):
            raise self._wrong(element, f"presence={shown(presence)}: must be required, optional or constant")
        return presence

    def _refuse_twice(self, element: ElementTree.Element, what: str, values: Sequence[int | str]) -> None:
        found: set[int | str] = set()
        for value in values:
            if value in found:
                raise self._wrong(element, f"{what} {value!r}")
            found.add(value)

    def _wrong(self, element: ElementTree.Element, why: str) -> ConfigurationError:
        name = element.get("name")
        what = f"{_local(element)} {name!r}" if name else _local(element)
        return ConfigurationError(f"schema {self._path}: {what}: {why}")


def _descendants(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (one for one in element.iter() if _local(one) == name)


def _value_text(element: ElementTree.Element) -> str | None:
    """The text of an element before its first comment or instruction; if one comes first, its own text."""
    if element.text or not len(element) or _local(element[0]):
        return element.text
    text = element[0].text or ""
    return text.partition(" ")[2] if cast("Any", element[0].tag) is ElementTree.PI else text


def _codec_of(encoding: str) -> str | None:
    codec = charsets.codec_of(encoding)
    return "utf-8" if codec == "ascii" else codec


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
