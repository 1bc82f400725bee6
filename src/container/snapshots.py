"""Writes and reads a service's state as a ``msgspec`` Struct: fragmented, tagged with a version, checked.

A service whose state is one Struct needs these two hooks::

    def on_take_snapshot(self, snapshot_publication):
        write_snapshot(snapshot_publication, self.state, version=1)

    def on_start(self, cluster, snapshot_image):
        if snapshot_image is not None:
            self.state = read_snapshot(snapshot_image, State, version=1)

Several states may be written one after the other, and are read in the same order.

**Format.** One header message, then chunk messages of at most ``publication.max_message_length`` bytes. The header is
40 bytes, little-endian, and the type's name: magic ``ACCSTATE`` (8 bytes), format version u16 (1), length of the type's
name u16, the user's version u32, length of the payload u64, CRC-32 of the payload u32, CRC-32 of the header before this
field and of the name u32, chunk length u64. The payload is the Struct in MessagePack.

**What is written comes back.** A member that loads a snapshot must have the state of those that went on. So the state
is checked before it is written: each value must be exactly of its declared type. Refused are a text in a number's
field, an int in a float's, a tuple or an instance of a class in a field of any type, an instance of a derived class, a
number beyond its constraints, an attribute that is no field, a ``cached_property`` that is out of date, NaN as a key,
more than 1,000 levels, and a list, dict or Struct that is in the state twice, which would come back as two. The check
takes about as long as the encoding, and next to no memory. What types alone do not decide is decoded and compared:
values with constraints, dates, enums, dataclasses, abstract types, and Structs with ``__post_init__``. A state that is
one of these is twice in memory while it is checked.

**Equal on all members.** A ``dict`` keeps its order of insertion, in the running member and in one that loads the
snapshot, so iterating over it is safe. A ``set`` or ``frozenset`` has no such order and is refused, in a declared type
and wherever the state holds one; use a ``dict`` with None values, or a sorted list.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import msgspec.inspect

from container.errors import ConfigurationError, SnapshotError
from container.service.state_check import check_state

__all__ = ["read_snapshot", "write_snapshot"]

_MAGIC = b"ACCSTATE"
_FORMAT_VERSION = 1
_HEADER = struct.Struct("<8sHHIQIIQ")
_TYPES_WITHOUT_SETS: set[type] = set()


class _Publication(Protocol):
    @property
    def max_message_length(self) -> int: ...
    def send(self, *buffers: bytes | memoryview) -> int: ...


class _Image(Protocol):
    def __iter__(self) -> Iterator[bytes]: ...


def write_snapshot(
    snapshot_publication: _Publication, state: object, *, version: int = 1, state_type: Any = None
) -> int:
    """Writes ``state`` (a msgspec Struct, or anything msgspec encodes) of any size to a snapshot.

    ``state_type`` is what it will be read as, by default the class of ``state``: give ``dict[int, Order]`` for such a
    dict.

    ``version`` (0 to 2**32 - 1) is yours: raise it when the Struct changes in a way that its readers cannot bridge.
    Returns the length of the encoded state in bytes. Raises what :meth:`~container.api.SnapshotPublication.send`
    raises, ``TypeError`` for a state that msgspec cannot encode, ConfigurationError, with the place, for one that would
    not come back as it is or has a set in it or in its type, and ValueError for a version out of range. Nothing is
    written then.
    """
    state_type = type(state) if state_type is None else state_type
    _refuse_sets(state_type)
    if not 0 <= version < 1 << 32:
        raise ValueError(f"version {version} of a snapshot: it must be from 0 to {(1 << 32) - 1}")
    payload = msgspec.msgpack.encode(state)
    check_state(state, state_type, _name_of(state_type))
    name = _type_name(state_type)
    chunk_length = snapshot_publication.max_message_length
    fields = (_MAGIC, _FORMAT_VERSION, len(name), version, len(payload), zlib.crc32(payload))
    blank = _HEADER.pack(*fields, 0, chunk_length)
    header = _HEADER.pack(*fields, _header_checksum(blank, name), chunk_length)
    snapshot_publication.send(header, name)
    view = memoryview(payload)
    for begin in range(0, len(payload), chunk_length):
        snapshot_publication.send(view[begin : begin + chunk_length])
    return len(payload)


def read_snapshot[T](snapshot_image: _Image, state_type: type[T], *, version: int = 1) -> T:
    """Reads back a state of ``state_type`` that :func:`write_snapshot` wrote with the same ``version``.

    Raises SnapshotError, which says what was found, when the snapshot ends early, was not written by
    :func:`write_snapshot`, holds another type or version, is damaged, or does not fit the type.
    """
    _refuse_sets(state_type)
    messages = iter(snapshot_image)
    header = next(messages, None)
    if header is None:
        raise SnapshotError(f"the snapshot ends where a state of type {_name_of(state_type)} should begin")
    payload_length, checksum, chunk_length = _check_header(header, state_type, version)
    payload = bytearray()
    while len(payload) < payload_length:
        chunk = next(messages, None)
        if chunk is None:
            raise SnapshotError(f"the snapshot ends after {len(payload)} of {payload_length} bytes of the state")
        if len(chunk) != min(chunk_length, payload_length - len(payload)):
            raise SnapshotError(
                f"a part of the state has {len(chunk)} bytes where "
                f"{min(chunk_length, payload_length - len(payload))} were written: the snapshot is damaged"
            )
        payload += chunk
    if zlib.crc32(payload) != checksum:
        raise SnapshotError(f"the checksum of the state's {payload_length} bytes is wrong: the snapshot is damaged")
    try:
        return msgspec.msgpack.decode(payload, type=state_type)
    except msgspec.MsgspecError as error:
        raise SnapshotError(
            f"the state in the snapshot is not a {_name_of(state_type)} of today: {error}; "
            "raise the version when the type changes, and convert old states"
        ) from error


def _refuse_sets(state_type: type) -> None:
    if state_type not in _TYPES_WITHOUT_SETS:
        _walk(msgspec.inspect.type_info(state_type), _name_of(state_type), set())
        _TYPES_WITHOUT_SETS.add(state_type)


def _walk(info: object, path: str, seen: set[type]) -> None:
    if isinstance(info, msgspec.inspect.SetType | msgspec.inspect.FrozenSetType):
        raise _is_a_set(path)
    if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType | msgspec.inspect.TypedDictType):
        if info.cls in seen:  # on whatever path: types that refer to each other have too many of them
            return
        seen.add(info.cls)
    for name in getattr(info, "__struct_fields__", ()):
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, msgspec.inspect.Field):
                _walk(part.type, f"{path}.{part.name}", seen)
            elif isinstance(part, msgspec.inspect.Type):
                _walk(part, path, seen)


def _is_a_set(path: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is a set: the order of its elements differs between members; use a dict or a sorted list"
    )


def _name_of(state_type: Any) -> str:
    return getattr(state_type, "__qualname__", None) or str(state_type)


def _type_name(state_type: Any) -> bytes:
    return _name_of(state_type).encode()[:256]


def _header_checksum(header: bytes, name: bytes) -> int:
    # Over the header with its own checksum as zero, and the name.
    return zlib.crc32(name, zlib.crc32(header))


def _check_header(message: bytes, state_type: type, version: int) -> tuple[int, int, int]:
    if len(message) < _HEADER.size or message[:8] != _MAGIC:
        raise SnapshotError(
            f"not a state written by write_snapshot: the message begins with {message[:8].hex(' ') or 'nothing'}"
        )
    _, found_format, name_length, found_version, length, checksum, own_checksum, chunk_length = _HEADER.unpack_from(
        message
    )
    if found_format != _FORMAT_VERSION:
        raise SnapshotError(
            f"the state is in format {found_format}, this release reads format {_FORMAT_VERSION}: "
            "use the release that wrote it, or a newer one"
        )
    name = message[_HEADER.size :]
    blank = message[:28] + bytes(4) + message[32 : _HEADER.size]
    if len(name) != name_length or _header_checksum(blank, name) != own_checksum:
        raise SnapshotError("the header of the state is damaged: its checksum is wrong")
    if name != _type_name(state_type):
        raise SnapshotError(
            f"the snapshot holds a state of type {name.decode(errors='replace')}, "
            f"not {_type_name(state_type).decode()}: read the states in the order in which they were written"
        )
    if found_version != version:
        raise SnapshotError(f"the snapshot holds version {found_version} of {name.decode()}, not {version}")
    if chunk_length == 0:
        raise SnapshotError("the header of the state is damaged: its chunk length is 0")
    return length, checksum, chunk_length
