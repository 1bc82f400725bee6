"""Avro payloads as columns, by the library fastavro and the writer's schema."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from container.errors import ConfigurationError
from container.spark.payloads import RowDecoder, column_fields, struct_type, utc_microseconds

try:
    import fastavro
except ImportError as _error:
    raise ConfigurationError(
        "decoder: Avro payloads need the package fastavro: pip install 'aeron-cluster-container[avro]'"
    ) from _error

PREFIX = "avro:"
_PRECISION_MAX = 38
_FIRST_DAY, _LAST_DAY = (day.toordinal() - 719_163 for day in (datetime.date.min, datetime.date.max))

type _Skip = Callable[[bytes, int], int]
"""Takes a payload and where a value begins; returns where it ends. Raises ValueError."""


class _Type(NamedTuple):
    """A schema: its Arrow type, what makes a value of what fastavro gives, and what finds the end of its bytes."""

    arrow: pa.DataType
    convert: Callable[[Any], Any]
    skip: _Skip


class AvroPayloads(RowDecoder):
    """Decodes records of one schema, each without a header. The schema is read once, where the query is planned."""

    def __init__(self, text: str, schema: Any, view_columns: Sequence[str]) -> None:
        """Prepare for a schema.

        Args:
            text: the option.
            schema: as JSON gives it.
            view_columns: the names that are taken.

        Raises:
            ConfigurationError: it is not a schema, no record's, or it cannot be columns.
        """
        self._arguments = text, schema, view_columns
        try:
            parsed = fastavro.parse_schema(schema)
            self._schema = fastavro.parse_schema(_without_logical_types(schema))
        except Exception as error:  # fastavro's own, and KeyError and TypeError where a schema lacks something
            raise ConfigurationError(
                f"decoder={text!r}: not an Avro schema: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ConfigurationError(f"decoder={text!r}: is not the schema of a record, whose fields become columns")
        try:
            self._type = _type(parsed, parsed["__named_schemas"], ())
        except TypeError as error:
            raise ConfigurationError(f"decoder={text!r}: {error}") from None
        self._names = [field.name for field in self._type.arrow]
        self.fields = column_fields(text, [(field.name, field.type) for field in self._type.arrow], view_columns)

    def __reduce__(self) -> tuple[type[AvroPayloads], tuple[str, Any, Sequence[str]]]:
        """Send the schema, so that an executor needs no file."""
        return type(self), self._arguments

    def cells(self, payload: bytes) -> list[Any]:
        """The values of a record's fields."""
        # fastavro takes a negative index of an enum or a union from the end: so each payload is checked before.
        end = self._type.skip(payload, 0)
        if end != len(payload):
            raise ValueError(f"the record ends after {end} of {len(payload)} bytes")
        record = self._type.convert(fastavro.schemaless_reader(BytesIO(payload), self._schema, None))
        return [record[name] for name in self._names]


def make_avro_decoder(text: str, view_columns: Sequence[str]) -> AvroPayloads:
    """Make the decoder of ``avro:FILE``.

    Raises:
        ConfigurationError: the file cannot be read, is not a schema, or cannot be columns.
    """
    path = text.removeprefix(PREFIX)
    if not path:
        raise ConfigurationError(f"decoder={text!r}: name the schema's file, as in avro:/etc/order.avsc")
    try:
        schema = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"decoder={text!r}: the schema cannot be read: {error}") from error
    return AvroPayloads(text, schema, view_columns)


def _without_logical_types(schema: Any) -> Any:
    """The schema, so that fastavro gives numbers and bytes: it rounds a decimal with more digits than its type has."""
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(one) for one in schema] if isinstance(schema, list) else schema


def _type(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> _Type:
    """The type of a parsed schema; raises TypeError where no column can have it."""
    if isinstance(schema, list):
        return _union(schema, named, within)
    if isinstance(schema, str):
        if schema in named:
            return _type(named[schema], named, within)
        schema = {"type": schema}
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named, within)
    if kind == "array":
        item = _type(schema["items"], named, within)
        return _Type(
            pa.list_(item.arrow), lambda values: [item.convert(value) for value in values], _skip_blocks(item.skip)
        )
    if kind == "map":
        return _map(_type(schema["values"], named, within))
    if kind == "enum":
        return _Type(pa.string(), _same, _skip_index(len(schema["symbols"]), schema["name"]))
    if isinstance(kind, dict | list) or kind in named:
        return _type(kind, named, within)
    return _simple(kind, schema)


def _same(value: Any) -> Any:
    return value


def _simple(kind: str, schema: dict[str, Any]) -> _Type:
    skip: _Skip = _SKIPS.get(kind, _skip_bytes)
    if kind == "fixed":
        if not isinstance(schema["size"], int) or schema["size"] <= 0:
            raise TypeError(f"the type {schema['name']} has a size of {schema['size']!r}: it cannot be a column")
        skip = _skip_fixed(schema["size"])
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if not 0 <= scale <= precision <= _PRECISION_MAX or not precision:
            raise TypeError(
                f"decimal({precision}, {scale}) cannot be a column: the precision is from 1 to {_PRECISION_MAX}, "
                "the scale no greater"
            )
        return _Type(pa.decimal128(precision, scale), lambda value: _decimal(value, scale), skip)
    known = _LOGICAL.get((kind, logical or ""))
    if known is not None:
        return _Type(*known, skip)
    if kind == "null":
        raise TypeError("a null alone cannot be a column: make a union of it and another type")
    return _Type(_PRIMITIVE[kind], _same, skip)


def _record(schema: dict[str, Any], named: dict[str, Any], within: tuple[str, ...]) -> _Type:
    name = schema["name"]
    if name in within:
        raise TypeError(f"the record {name} contains itself: it cannot be a column")
    if not schema["fields"]:
        raise TypeError(f"the record {name} has no fields: it cannot be a column")
    types = {field["name"]: _type(field["type"], named, (*within, name)) for field in schema["fields"]}
    skips = [one.skip for one in types.values()]

    def skip(payload: bytes, at: int) -> int:
        for one in skips:
            at = one(payload, at)
        return at

    return _Type(
        struct_type((field, one.arrow) for field, one in types.items()),
        lambda record: {field: one.convert(record[field]) for field, one in types.items()},
        skip,
    )


def _union(schema: list[Any], named: dict[str, Any], within: tuple[str, ...]) -> _Type:
    others = [one for one in schema if one not in ("null", {"type": "null"})]
    if len(others) != 1:
        raise TypeError("a union can be a column if it is of null and one other type")
    other = _type(others[0], named, within)
    skips = [other.skip if one is others[0] else _skip_nothing for one in schema]
    index = _skip_index(len(skips), "a union")

    def skip(payload: bytes, at: int) -> int:
        end = index(payload, at)
        return skips[_long(payload, at)[0]](payload, end)

    return _Type(other.arrow, lambda value: None if value is None else other.convert(value), skip)


def _map(value: _Type) -> _Type:
    def skip(payload: bytes, at: int) -> int:
        return value.skip(payload, _skip_bytes(payload, at))

    return _Type(
        pa.map_(pa.string(), value.arrow),
        lambda items: [(key, value.convert(item)) for key, item in items.items()],
        _skip_blocks(skip),
    )


def _decimal(value: bytes, scale: int) -> Decimal:
    unscaled = int.from_bytes(value, "big", signed=True)
    if len(value) > _PRECISION_MAX:  # of 16 bytes at most, unless they begin with many zeros
        raise ValueError(f"a decimal has {len(value)} bytes")
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


def _time(microseconds: int) -> str:
    if not 0 <= microseconds < 86_400_000_000:
        raise ValueError(f"a time is {microseconds} µs after midnight")
    return (datetime.datetime.min + datetime.timedelta(microseconds=microseconds)).time().isoformat()


def _date(days: int) -> int:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise ValueError(f"a date is {days} days after 1970-01-01: outside of the years 1 to 9999")
    return days


def _long(payload: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(payload):
            raise ValueError(f"the payload ends after {len(payload)} bytes, within a record")
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at
    raise ValueError(f"the number that ends before byte {at} is longer than 64 bits")


def _skip_nothing(_: bytes, at: int) -> int:
    return at


def _skip_long(payload: bytes, at: int) -> int:
    return _long(payload, at)[1]


def _skip_int(payload: bytes, at: int) -> int:
    value, end = _long(payload, at)
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"the int at byte {at} is {value}: longer than 32 bits")
    return end


def _skip_bytes(payload: bytes, at: int) -> int:
    length, begin = _long(payload, at)
    if not 0 <= length <= len(payload) - begin:
        raise ValueError(f"the length at byte {at} is {length}; {len(payload) - begin} bytes are left")
    return begin + length


def _skip_boolean(payload: bytes, at: int) -> int:
    if payload[at : at + 1] not in (b"\0", b"\1"):
        raise ValueError(f"no boolean at byte {at}")
    return at + 1


def _skip_fixed(size: int) -> _Skip:
    def skip(payload: bytes, at: int) -> int:
        if len(payload) - at < size:
            raise ValueError(f"the payload ends after {len(payload)} bytes, within a record")
        return at + size

    return skip


def _skip_index(count: int, name: str) -> _Skip:
    def skip(payload: bytes, at: int) -> int:
        index, end = _long(payload, at)
        if not 0 <= index < count:
            raise ValueError(f"the index of {name} at byte {at} is {index}: it is from 0 to {count - 1}")
        return end

    return skip


def _skip_blocks(item: _Skip) -> _Skip:
    """Skip an array or a map. Each item has at least one byte, so that a count cannot make more than there are
    bytes."""

    def skip(payload: bytes, at: int) -> int:
        while True:
            count, at = _long(payload, at)
            if not count:
                return at
            end = None
            if count < 0:
                size, at = _long(payload, at)
                count, end = -count, at + size
            for _ in range(count):
                at = item(payload, at)
            if end is not None and at != end:
                raise ValueError(f"a block ends at byte {at}, by its size at byte {end}")

    return skip


_PRIMITIVE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
}
_SKIPS: dict[str, _Skip] = {
    "null": _skip_nothing,
    "boolean": _skip_boolean,
    "int": _skip_int,
    "long": _skip_long,
    "float": _skip_fixed(4),
    "double": _skip_fixed(8),
}
_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_LOGICAL: dict[tuple[str, str], tuple[pa.DataType, Callable[[Any], Any]]] = {
    ("long", "timestamp-millis"): (_UTC, lambda value: utc_microseconds(value * 1_000)),
    ("long", "timestamp-micros"): (_UTC, utc_microseconds),
    ("long", "local-timestamp-millis"): (_LOCAL, lambda value: utc_microseconds(value * 1_000)),
    ("long", "local-timestamp-micros"): (_LOCAL, utc_microseconds),
    ("int", "date"): (pa.date32(), _date),
    ("int", "time-millis"): (pa.string(), lambda value: _time(value * 1_000)),
    ("long", "time-micros"): (pa.string(), _time),
}
