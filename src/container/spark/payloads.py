"""Users' payloads as typed columns: a decoder named by the user, its columns, and rows for what does not decode."""

from __future__ import annotations

import datetime
import enum
import inspect
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from msgspec import inspect as types_of

from container.common.object_path import load_object
from container.errors import ConfigurationError
from container.spark.joined import JoinedDecoder

ERROR_COLUMN = "decode_error"
PAYLOAD_COLUMN = "payload"
_SETTING = "decoder"
_CLASH_PREFIX = "payload_"
FIELDS_MAX = 10_000
"""Fields that a decoder gives at most, with those in structs: a few types that name each other can make millions."""

# Where msgspec.json would begin and msgspec.msgpack cannot, because a type's fields are an object or an array there.
_JSON_BEGINNINGS = frozenset(b"{[ \t\r\n")
_JSON_FIRST_BYTES = pa.array([bytes([byte]) for byte in sorted(_JSON_BEGINNINGS)], pa.binary())

# So many payloads are decoded by one call: their objects stay in the processor's caches until they are columns.
_AT_ONCE = 2_048
# A batch in which something fails is cut into so many parts, until they are short enough to go row by row.
_PARTS = 8
_ROW_BY_ROW = 16

_SIMPLE: dict[type[types_of.Type], pa.DataType] = {
    types_of.BoolType: pa.bool_(),
    types_of.FloatType: pa.float64(),
    types_of.StrType: pa.string(),
    types_of.BytesType: pa.binary(),
    types_of.ByteArrayType: pa.binary(),
    types_of.DecimalType: pa.decimal128(38, 18),
}
_SEQUENCES = (types_of.ListType, types_of.SetType, types_of.FrozenSetType, types_of.VarTupleType)
_RECORDS = (types_of.StructType, types_of.DataclassType, types_of.NamedTupleType, types_of.TypedDictType)


_UTC = pa.timestamp("us", tz="UTC")
_MICROSECONDS_MIN, _MICROSECONDS_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999


class _Conversion(NamedTuple):
    """How values of one Python type become those of an Arrow type.

    ``convert`` makes one value and is None where it is one already; ``build`` makes a whole array without a Python
    call for each value, and is None where there is no such way.
    """

    arrow: pa.DataType
    convert: Callable[[Any], Any] | None
    build: Callable[[list[Any]], pa.Array] | None = None

    def array(self, cells: list[Any]) -> pa.Array:
        """All values as an array."""
        if self.build is not None:
            return self.build(cells)
        if self.convert is not None:
            cells = list(map(_each(self), cells))
        return pa.array(cells, self.arrow)


class _Record(NamedTuple):
    """One type of message: its class, and its fields in their order."""

    cls: type
    names: tuple[str, ...]
    conversions: tuple[_Conversion, ...]
    may_be_unset: frozenset[str]
    """The fields that msgspec leaves UNSET where a payload lacks them, which is null."""

    def cells(self, value: Any) -> list[Any]:
        """The values of the fields, as Arrow takes them; a TypedDict may lack some."""
        found = [value.get(name) for name in self.names] if isinstance(value, dict) else self._attributes(value)
        return [
            None if cell is None or cell is UNSET else cell if conversion.convert is None else conversion.convert(cell)
            for cell, conversion in zip(found, self.conversions, strict=True)
        ]

    def arrays(self, values: list[Any]) -> list[pa.Array]:
        """An array for each field, of values that are not a TypedDict; AttributeError if one is None."""
        columns = [list(map(attrgetter(name), values)) for name in self.names]
        return [
            conversion.array(_without_unset(cells) if name in self.may_be_unset else cells)
            for name, conversion, cells in zip(self.names, self.conversions, columns, strict=True)
        ]

    def _attributes(self, value: Any) -> list[Any]:
        return [getattr(value, name) for name in self.names]


def struct_type(named: Iterable[tuple[str, pa.DataType]], most: int = FIELDS_MAX) -> pa.StructType:
    """Make a struct of fields; raises TypeError where it has more than ``most``, with those within."""
    found = pa.struct(list(named))
    if _field_count(found) > most:
        raise TypeError(f"has more than {most} fields with those in its structs: it cannot be a column")
    return found


def _field_count(kind: pa.DataType) -> int:
    return sum(1 + _field_count(kind.field(index).type) for index in range(kind.num_fields))


def column_fields(
    decoder: str, named: Sequence[tuple[str, pa.DataType]], view_columns: Sequence[str], most: int = FIELDS_MAX
) -> list[pa.Field]:
    """The columns of what a decoder gives, with ``payload_`` before the names that a view has, and its errors.

    Raises:
        ConfigurationError: two have the same name (Spark does not distinguish upper from lower case in names), or
            there are more than ``most``, with those in structs.
    """
    try:
        struct_type(named, most)
    except TypeError as refused:
        raise ConfigurationError(f"{_SETTING}={decoder!r}: {refused}") from None
    taken = {name.lower() for name in (*view_columns, ERROR_COLUMN)}
    fields = []
    for name, arrow in named:
        column = f"{_CLASH_PREFIX}{name}" if name.lower() in taken else name
        if column.lower() in taken:
            raise ConfigurationError(f"{_SETTING}={decoder!r}: two columns would be named {column!r}; rename a field")
        taken.add(column.lower())
        fields.append(pa.field(column, arrow, metadata={"comment": f"{name} of the payload, by {decoder}"}))
    error = "why the payload did not decode; null when it did"
    return [*fields, pa.field(ERROR_COLUMN, pa.string(), metadata={"comment": error})]


def utc_microseconds(value: int) -> int:
    """Return a time in microseconds since 1970; raises ValueError outside of the years 1 to 9999, as Spark has them."""
    if not _MICROSECONDS_MIN <= value <= _MICROSECONDS_MAX:
        raise ValueError(f"a time is {value} µs after 1970: outside of the years 1 to 9999")
    return value


class RowDecoder(ABC):
    """Decodes one payload after the other, and gives each that fails its error."""

    fields: list[pa.Field]
    """The columns; the last one is ``decode_error``."""

    @abstractmethod
    def cells(self, payload: bytes) -> list[Any] | None:
        """The values of a payload's columns, as Arrow takes them; None for one without columns. May raise anything."""

    def decode(self, payloads: pa.Array) -> list[pa.Array]:
        """One array for each of :attr:`fields`, with a value for each payload; a null payload gives nulls only."""
        rows: list[list[Any] | None] = []
        errors: list[str | None] = []
        for payload in payloads.to_pylist():
            try:
                rows.append(None if payload is None else self.cells(payload))
                errors.append(None)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit as well, and the panics of libraries in Rust
                rows.append(None)
                errors.append(_text(error))
        arrays = [self._column(index, rows, errors) for index in range(len(self.fields) - 1)]
        if any(error is not None and row is not None for row, error in zip(rows, errors, strict=True)):
            # A column refused a row's value, so the row's other columns must not keep theirs.
            rows = [row if error is None else None for row, error in zip(rows, errors, strict=True)]
            arrays = [self._column(index, rows, errors) for index in range(len(self.fields) - 1)]
        return [*arrays, pa.array(errors, pa.string())]

    def _column(self, index: int, rows: Sequence[list[Any] | None], errors: list[str | None]) -> pa.Array:
        field = self.fields[index]
        cells = [None if row is None else row[index] for row in rows]
        try:
            return pa.array(cells, field.type)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            for number, cell in enumerate(cells):
                try:
                    pa.scalar(cell, field.type)
                except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
                    cells[number] = None
                    errors[number] = f"{field.name}: {_text(error)}"
            return pa.array(cells, field.type)


class PayloadDecoder(RowDecoder):
    """Decodes payloads with the type or function that ``package.module:name`` names.

    That is a type: a msgspec Struct, or a union of tagged ones, encoded with msgspec as JSON or MessagePack; the first
    byte says which. Or it is a function that takes the payload as ``bytes`` and is annotated to return a Struct, a
    dataclass, a NamedTuple, a TypedDict, or a union of such; None stands for a payload that has no columns.

    The fields of a single type become columns of their own names, with ``payload_`` before a name that the view has
    already. Each type of a union is one column, a struct named as the class in snake case, and null for other types. A
    payload that raises, or does not fit its column, becomes nulls and a text in the column ``decode_error``.
    """

    def __init__(self, path: str, view_columns: Sequence[str]) -> None:
        """Find the decoder and make its columns.

        Args:
            path: ``package.module:name``.
            view_columns: the names that are taken.

        Raises:
            ConfigurationError: there is no such decoder, or a type that it gives can't be a column.
        """
        found = load_object(path, _SETTING)
        self._decode, result = _decode_function(path, found)
        self._records = _records(path, result)
        self._joined = _joined(result, self._records) if self._decode is not found else None
        self._is_union = len(self._records) > 1
        self._path, self._view_columns = path, view_columns
        if self._is_union:
            named = [(_snake_case(record.cls.__name__), _struct(record)) for record in self._records]
        else:
            (record,) = self._records
            named = [
                (name, conversion.arrow) for name, conversion in zip(record.names, record.conversions, strict=True)
            ]
        self.fields = column_fields(path, named, view_columns)

    def __reduce__(self) -> tuple[type[PayloadDecoder], tuple[str, Sequence[str]]]:
        """Send where it is found: an executor imports it."""
        return type(self), (self._path, self._view_columns)

    def cells(self, payload: bytes) -> list[Any] | None:
        """The values of a payload's columns; None for one without columns."""
        return self._row(self._decode(payload))

    def decode(self, payloads: pa.Array) -> list[pa.Array]:
        """One array for each of :attr:`fields`, with a value for each payload; a null payload gives nulls only.

        Payloads of a type are decoded by one call for all, then those of parts in which something fails.
        """
        if self._joined is None:
            return super().decode(payloads)
        is_json = pc.is_in(pc.binary_slice(payloads, 0, 1), _JSON_FIRST_BYTES)
        if not payloads.null_count and pc.all(is_json, min_count=0).as_py():
            return _concatenated(list(self._parts(payloads, json=True)))
        if not payloads.null_count and not pc.any(is_json, min_count=0).as_py():
            return _concatenated(list(self._parts(payloads, json=False)))
        return self._mixed(payloads, is_json)

    def _mixed(self, payloads: pa.Array, is_json: pa.Array) -> list[pa.Array]:
        """Each format apart, then all in their places."""
        valid = payloads.is_valid()
        of_json, of_msgpack = pc.and_(valid, is_json), pc.and_(valid, pc.invert(is_json))
        decoded = _concatenated(
            [*self._parts(payloads.filter(of_json), json=True), *self._parts(payloads.filter(of_msgpack), json=False)]
        )
        begin_of_msgpack = pc.sum(of_json, min_count=0).as_py()
        places = pc.if_else(
            of_json,
            pc.cumulative_sum(of_json.cast(pa.int64())),
            pc.add(pc.cumulative_sum(of_msgpack.cast(pa.int64())), begin_of_msgpack),
        )
        places = pc.if_else(valid, pc.subtract(places, 1), pa.scalar(None, pa.int64()))
        return [array.take(places) for array in decoded]

    def _parts(self, payloads: pa.Array, *, json: bool) -> Iterator[list[pa.Array]]:
        if len(payloads) <= _ROW_BY_ROW:
            yield super().decode(payloads)
            return
        if len(payloads) > _AT_ONCE:
            for begin in range(0, len(payloads), _AT_ONCE):
                yield from self._parts(payloads.slice(begin, _AT_ONCE), json=json)
            return
        try:
            arrays = self._at_once(payloads, json=json)
        except KeyboardInterrupt:
            raise
        except BaseException:  # of which row, and why, its own decoding says
            length = max(_ROW_BY_ROW, -(-len(payloads) // _PARTS))
            for begin in range(0, len(payloads), length):
                yield from self._parts(payloads.slice(begin, length), json=json)
        else:
            yield arrays

    def _at_once(self, payloads: pa.Array, *, json: bool) -> list[pa.Array]:
        """Arrays of payloads that all decode; raises when one does not, or when a column refuses a value."""
        assert self._joined is not None
        values = self._joined.decode(payloads.to_pylist(), json=json)
        if self._is_union:
            classes = tuple(record.cls for record in self._records)
            first = {kind: _first_of(classes, kind) for kind in set(map(type, values))}
            indexes = list(map(first.__getitem__, map(type, values)))
            arrays = [
                _structs(record, [value if at == index else None for value, at in zip(values, indexes, strict=True)])
                for index, record in enumerate(self._records)
            ]
        else:
            arrays = self._records[0].arrays(values)
        return [*arrays, pa.nulls(len(payloads), pa.string())]

    def _row(self, value: Any) -> list[Any] | None:
        if value is None:
            return None
        for index, record in enumerate(self._records):
            if isinstance(value, dict if typing.is_typeddict(record.cls) else record.cls):
                cells = record.cells(value)
                if not self._is_union:
                    return cells
                row: list[Any] = [None] * len(self._records)
                row[index] = dict(zip(record.names, cells, strict=True))
                return row
        expected = " or ".join(record.cls.__name__ for record in self._records)
        raise TypeError(f"the decoder returned {type(value).__name__}, not {expected}")


def _concatenated(parts: list[list[pa.Array]]) -> list[pa.Array]:
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]


def _joined(kind: Any, records: Sequence[_Record]) -> JoinedDecoder | None:
    """A decoder of many values of a type in one call; None where the values may be dictionaries."""
    return None if any(typing.is_typeddict(record.cls) for record in records) else JoinedDecoder(kind)


def _first_of(classes: tuple[type, ...], kind: type) -> int:
    """The index of the first class that a type is of; StopIteration if it is of none, such as None."""
    return next(index for index, cls in enumerate(classes) if issubclass(kind, cls))


def _text(error: BaseException) -> str:
    """The text of an error for a column: valid UTF-8, whatever a user's error contains or does."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = f"{type(error).__name__}, which has no text"
    return text.encode("utf-8", "backslashreplace").decode()


def _decode_function(path: str, found: Any) -> tuple[Callable[[bytes], Any], Any]:
    """The function that decodes one payload, and the type of its results."""
    found = getattr(found, "__value__", found)  # of `type Name = …`
    if isinstance(found, type | types.UnionType) and not (isinstance(found, type) and not _is_struct(found)):
        return _either_format(found), found
    if not callable(found) or isinstance(found, type):
        raise ConfigurationError(
            f"{_SETTING}={path!r}: is not a msgspec Struct, union of tagged Structs, or function from bytes to one"
        )
    try:
        result = typing.get_type_hints(found).get("return", inspect.Parameter.empty)
    except Exception as error:
        raise ConfigurationError(f"{_SETTING}={path!r}: its annotations cannot be read: {_text(error)}") from error
    if result is inspect.Parameter.empty:
        raise ConfigurationError(
            f"{_SETTING}={path!r}: the function must be annotated with the type that it returns, "
            "because its fields become the columns"
        )
    return found, getattr(result, "__value__", result)


def _is_struct(found: type) -> bool:
    return issubclass(found, msgspec.Struct)


def _either_format(kind: Any) -> Callable[[bytes], Any]:
    try:
        from_json, from_msgpack = msgspec.json.Decoder(kind).decode, msgspec.msgpack.Decoder(kind).decode
    except (RuntimeError, TypeError) as error:  # the first for numbers beyond 64 bits
        raise ConfigurationError(f"{_SETTING}: {error}") from error

    def decode(payload: bytes) -> Any:
        return from_json(payload) if payload[:1] and payload[0] in _JSON_BEGINNINGS else from_msgpack(payload)

    return decode


def _records(path: str, result: Any) -> list[_Record]:
    try:
        info = types_of.type_info(result)
        parts = [part for part in _parts(info) if not isinstance(part, types_of.NoneType)]
        records = [_record(part) for part in parts]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{_SETTING}={path!r}: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"{_SETTING}={path!r}: a type contains itself: it cannot be a column") from None
    if not records:
        raise ConfigurationError(f"{_SETTING}={path!r}: gives no columns, because it returns None")
    return records


def _parts(info: types_of.Type) -> Sequence[types_of.Type]:
    return info.types if isinstance(info, types_of.UnionType) else (info,)


def _record(info: types_of.Type) -> _Record:
    if not isinstance(info, _RECORDS):
        raise TypeError(f"{_name(info)} has no fields that could be columns; return a msgspec Struct or a dataclass")
    names = tuple(field.name for field in info.fields)
    conversions = []
    for field in info.fields:
        try:
            conversions.append(_conversion(field.type))
        except TypeError as error:
            raise TypeError(f"field {field.name!r} of {info.cls.__name__} {error}") from None
    unset = frozenset(field.name for field in info.fields if field.default is UNSET)
    return _Record(info.cls, names, tuple(conversions), unset)


def _without_unset(cells: list[Any]) -> list[Any]:
    return [None if cell is UNSET else cell for cell in cells]


def _conversion(info: types_of.Type) -> _Conversion:
    """The conversion for a field's type; raises TypeError, whose text follows the field's name."""
    parts = [part for part in _parts(info) if not isinstance(part, types_of.NoneType)]
    if len(parts) != 1:
        raise TypeError(f"cannot be a column: a union of {', '.join(map(_name, parts)) or 'nothing'}")
    (part,) = parts
    if type(part) in _SIMPLE:
        return _Conversion(_SIMPLE[type(part)], None)
    if type(part) in _CUT_BY_ARROW:
        return _checked(*_CUT_BY_ARROW[type(part)])
    if isinstance(part, types_of.DateTimeType):
        return _Conversion(_UTC, _in_utc, _times)
    if isinstance(part, types_of.RawType | types_of.MemoryViewType):
        return _Conversion(pa.binary(), bytes)
    if isinstance(part, types_of.UUIDType):
        return _Conversion(pa.string(), str)
    if isinstance(part, types_of.TimeType):
        return _Conversion(pa.string(), lambda value: value.isoformat())
    if isinstance(part, types_of.EnumType):
        return _enum(part.cls)
    if isinstance(part, types_of.LiteralType):
        return _Conversion(_type_of_values(part.values), None)
    if isinstance(part, _SEQUENCES):
        return _list(_conversion(part.item_type))
    if isinstance(part, types_of.TupleType):
        return _list_of_equal(part)
    if isinstance(part, types_of.DictType):
        return _map(_conversion(part.key_type), _conversion(part.value_type))
    if isinstance(part, _RECORDS):
        return _nested(_record(part))
    raise TypeError(f"cannot be a column: its type is {_name(part)}")


def _struct(record: _Record) -> pa.DataType:
    kinds = [conversion.arrow for conversion in record.conversions]
    return struct_type(zip(record.names, kinds, strict=True))


def _type_of_values(values: Sequence[Any]) -> pa.DataType:
    for cls, arrow in ((int, pa.int64()), (str, pa.string())):
        if all(value is None or isinstance(value, cls) for value in values):
            return arrow
    raise TypeError("cannot be a column: its values are neither all integers nor all texts")


def _each(conversion: _Conversion) -> Callable[[Any], Any]:
    convert = conversion.convert
    if convert is None:
        return lambda value: None if value is UNSET else value
    return lambda value: None if value is None or value is UNSET else convert(value)


def _enum(cls: type[enum.Enum]) -> _Conversion:
    arrow = _type_of_values([member.value for member in cls])
    # ``value`` is a property in Python, ``_value_`` what it is unless a class has its own.
    if not all(member.value is member._value_ for member in cls):
        return _Conversion(arrow, lambda member: member.value)

    def build(cells: list[Any]) -> pa.Array:
        try:
            return pa.array(list(map(attrgetter("_value_"), cells)), arrow)
        except AttributeError:
            return pa.array([None if cell is None else cell._value_ for cell in cells], arrow)

    return _Conversion(arrow, lambda member: member.value, build)


def _in_utc(value: Any) -> Any:
    """The time in UTC; OverflowError where that is outside of the years 1 to 9999."""
    value = _time(value)
    return value if value.tzinfo is None else value.astimezone(datetime.UTC)


def _times(cells: list[Any]) -> pa.Array:
    array = pa.array(cells, _UTC)
    bounds = pc.min_max(array.cast(pa.int64()))
    for bound in ("min", "max"):
        if (value := bounds[bound].as_py()) is not None:
            utc_microseconds(value)
    return array


def _whole_number(value: Any) -> Any:
    if type(value) is not int and value != int(value):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _instance_of(kind: type, but: type | None = None) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind) or (but is not None and isinstance(value, but)):
            raise TypeError(f"{value!r} is not a {kind.__name__}")
        return value

    return check


def _checked(arrow: pa.DataType, check: Callable[[Any], Any]) -> _Conversion:
    """The conversion for unchecked values of a user's function; msgspec checks those of a Struct."""
    return _Conversion(arrow, check, lambda cells: pa.array(cells, arrow))


_time = _instance_of(datetime.datetime)
# Arrow makes 1 of 1.5, a day of a time, and takes a number for microseconds.
_CUT_BY_ARROW: dict[type[types_of.Type], tuple[pa.DataType, Callable[[Any], Any]]] = {
    types_of.IntType: (pa.int64(), _whole_number),
    types_of.DateType: (pa.date32(), _instance_of(datetime.date, datetime.datetime)),
    types_of.TimeDeltaType: (pa.duration("us"), _instance_of(datetime.timedelta)),
}


def _nested(record: _Record) -> _Conversion:
    def convert(value: Any) -> dict[str, Any]:
        return dict(zip(record.names, record.cells(value), strict=True))

    if typing.is_typeddict(record.cls) or not record.names:
        return _Conversion(_struct(record), convert)
    return _Conversion(_struct(record), convert, lambda cells: _structs(record, cells))


def _structs(record: _Record, cells: list[Any]) -> pa.Array:
    """One struct for each value, null for None."""
    missing = [cell is None for cell in cells]
    fields = list(_struct(record))
    if not fields:
        return pa.array([None if cell is None else {} for cell in cells], pa.struct([]))
    if not any(missing):
        return pa.StructArray.from_arrays(record.arrays(cells), fields=fields)
    children = [
        conversion.array(_without_unset([None if cell is None else getattr(cell, name) for cell in cells]))
        for name, conversion in zip(record.names, record.conversions, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(missing))


def _list(item: _Conversion) -> _Conversion:
    each = _each(item)
    arrow = pa.list_(item.arrow)

    def build(cells: list[Any]) -> pa.Array:
        found = [() if cell is None else cell for cell in cells]
        ends = list(accumulate(map(len, found), initial=0))
        offsets = pa.array(ends, pa.int32())
        missing = pa.array([cell is None for cell in cells])
        return pa.ListArray.from_arrays(offsets, item.array(list(chain.from_iterable(found))), type=arrow, mask=missing)

    return _Conversion(arrow, lambda values: [each(value) for value in values], build)


def _list_of_equal(part: types_of.TupleType) -> _Conversion:
    items = [_conversion(item) for item in part.item_types]
    if len({item.arrow for item in items}) != 1:
        raise TypeError("cannot be a column: a tuple of different types; use a Struct")
    eaches = [_each(item) for item in items]
    return _Conversion(
        pa.list_(items[0].arrow), lambda values: [each(value) for each, value in zip(eaches, values, strict=True)]
    )


def _map(key: _Conversion, value: _Conversion) -> _Conversion:
    each_key, each_value = _each(key), _each(value)
    return _Conversion(
        pa.map_(key.arrow, value.arrow),
        lambda items: [(each_key(name), each_value(item)) for name, item in items.items()],
    )


def _name(info: types_of.Type) -> str:
    cls = getattr(info, "cls", None)
    return cls.__name__ if isinstance(cls, type) else type(info).__name__.removesuffix("Type").lower()


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
