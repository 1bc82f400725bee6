"""Protobuf payloads as columns, by the library protobuf and a message's descriptor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from container.common.object_path import load_object
from container.errors import ConfigurationError
from container.spark.payloads import RowDecoder, column_fields, struct_type, utc_microseconds

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
except ImportError as _error:
    raise ConfigurationError(
        "decoder: protobuf payloads need the package protobuf: pip install 'aeron-cluster-container[protobuf]'"
    ) from _error

PREFIX = "protobuf:"
_TIMESTAMP = "google.protobuf.Timestamp"

_SIMPLE: dict[int, pa.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
}
_UNSIGNED_64 = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


class _Column(NamedTuple):
    """A field of a message: its name, its Arrow type, and what reads it from a message."""

    name: str
    arrow: pa.DataType
    read: Callable[[Any], Any]


class _Value(NamedTuple):
    """One value of a field: its Arrow type, and what makes it of what protobuf gives."""

    arrow: pa.DataType
    convert: Callable[[Any], Any]


class ProtobufPayloads(RowDecoder):
    """Decodes one type of message. Its descriptor is read once, where the query is planned."""

    def __init__(self, text: str, descriptors: bytes, message: str, view_columns: Sequence[str]) -> None:
        """Prepare for a message.

        Args:
            text: the option.
            descriptors: an encoded FileDescriptorSet.
            message: the full name of the message.
            view_columns: the names that are taken.

        Raises:
            ConfigurationError: there is no such message, or it cannot be columns.
        """
        self._arguments = text, descriptors, message, view_columns
        found = _find(text, descriptors, message)
        try:
            self._class = message_factory.GetMessageClass(found)
            self._columns = _columns(found, (found.full_name,))
        except (RecursionError, TypeError) as error:
            raise ConfigurationError(f"decoder={text!r}: {error}") from None
        if not self._columns:
            raise ConfigurationError(f"decoder={text!r}: the message {message} has no fields that could be columns")
        self.fields = column_fields(text, [(column.name, column.arrow) for column in self._columns], view_columns)

    def __reduce__(self) -> tuple[type[ProtobufPayloads], tuple[str, bytes, str, Sequence[str]]]:
        """Send the descriptors, so that an executor needs neither file nor module."""
        return type(self), self._arguments

    def cells(self, payload: bytes) -> list[Any]:
        """The values of a message's fields; protobuf checks lengths and ends, and bounds the depth."""
        message = self._class.FromString(payload)
        # By the class, here and below: a field may have the name of a method.
        if not self._class.IsInitialized(message):
            missing = self._class.FindInitializationErrors(message)
            raise ValueError(f"required fields are missing: {', '.join(missing)}")
        return [column.read(message) for column in self._columns]


def make_protobuf_decoder(text: str, view_columns: Sequence[str]) -> ProtobufPayloads:
    """Make the decoder of ``protobuf:FILE#package.Message`` or ``protobuf:package.module:Message``.

    Raises:
        ConfigurationError: the file or module cannot be read, or has no such message.
    """
    place = text.removeprefix(PREFIX)
    path, mark, message = place.rpartition("#")
    if mark and path and message:
        try:
            descriptors = Path(path).read_bytes()
        except (OSError, ValueError) as error:  # a path with NUL
            raise ConfigurationError(f"decoder={text!r}: the descriptors cannot be read: {error}") from error
        return ProtobufPayloads(text, descriptors, message, view_columns)
    if mark or ":" not in place:
        raise ConfigurationError(
            f"decoder={text!r}: name a file of protoc --descriptor_set_out and a message, as in "
            "protobuf:/etc/orders.pb#shop.Order, or a generated class, as in protobuf:shop.orders_pb2:Order"
        )
    descriptor = getattr(load_object(place, "decoder"), "DESCRIPTOR", None)
    if not isinstance(descriptor, Descriptor):
        raise ConfigurationError(f"decoder={text!r}: is not a class of a protobuf message")
    files = descriptor_pb2.FileDescriptorSet()
    _add_files(descriptor.file, files, set())
    return ProtobufPayloads(text, files.SerializeToString(), descriptor.full_name, view_columns)


def _add_files(file: FileDescriptor, files: Any, seen: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name in seen:
        return
    seen.add(file.name)
    for imported in file.dependencies:
        _add_files(imported, files, seen)
    file.CopyToProto(files.file.add())


def _find(text: str, descriptors: bytes, message: str) -> Descriptor:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        names = [f"{file.package}.{kind.name}".lstrip(".") for file in files.file for kind in file.message_type]
    except Exception as error:  # protobuf's own, which differ between its implementations
        raise ConfigurationError(
            f"decoder={text!r}: cannot be used as descriptors: {error}; "
            "write them with protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise ConfigurationError(f"decoder={text!r}: no message {message}; there are {', '.join(names)}") from None
    except Exception as error:
        raise ConfigurationError(
            f"decoder={text!r}: {error}; write the descriptors with protoc --include_imports --descriptor_set_out=FILE"
        ) from error


def _columns(message: Descriptor, within: tuple[str, ...]) -> list[_Column]:
    """Columns for the fields of a message; raises TypeError where a message contains itself."""
    return [_column(field, within) for field in message.fields]


def _column(field: FieldDescriptor, within: tuple[str, ...]) -> _Column:
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (_value(entry.fields_by_name[part], within) for part in ("key", "value"))

        def pairs(message: Any) -> list[tuple[Any, Any]]:
            found = getattr(message, name)  # in no order of its own
            return [(key.convert(one), value.convert(found[one])) for one in sorted(found)]

        return _Column(name, pa.map_(key.arrow, value.arrow), pairs)
    one = _value(field, within)
    convert = one.convert
    if field.is_repeated:
        return _Column(name, pa.list_(one.arrow), lambda message: [convert(item) for item in getattr(message, name)])
    if field.has_presence:

        def present(message: Any) -> Any:
            return convert(getattr(message, name)) if type(message).HasField(message, name) else None

        return _Column(name, one.arrow, present)
    return _Column(name, one.arrow, lambda message: convert(getattr(message, name)))


def _value(field: FieldDescriptor, within: tuple[str, ...]) -> _Value:
    if field.type in _SIMPLE:
        return _Value(_SIMPLE[field.type], lambda value: value)
    if field.type in _UNSIGNED_64:
        return _Value(pa.decimal128(20, 0), Decimal)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return _Value(pa.string(), lambda number: names.get(number) or str(number))
    kind = field.message_type
    if kind.full_name == _TIMESTAMP:
        return _Value(pa.timestamp("us", tz="UTC"), _timestamp)
    if kind.full_name in within:
        raise TypeError(f"the message {kind.full_name} contains itself, in field {field.full_name}: no column can")
    columns = _columns(kind, (*within, kind.full_name))
    if not columns:
        return _Value(pa.bool_(), lambda _: True)
    return _Value(
        struct_type((column.name, column.arrow) for column in columns),
        lambda value: {column.name: column.read(value) for column in columns},
    )


def _timestamp(value: Any) -> int:
    if not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(f"a Timestamp has {value.nanos} nanos: they are from 0 to 999999999")
    return utc_microseconds(value.seconds * 1_000_000 + value.nanos // 1_000)
