"""Writes and reads a service's state as a ``msgspec`` Struct: fragmented, tagged with a version, checked.

A service whose state is one Struct needs these two hooks::

    def on_take_snapshot(self, snapshot_publication):
        write_snapshot(snapshot_publication, self.state, version=1)

    def on_start(self, cluster, snapshot_image):
        if snapshot_image is not None:
            self.state = read_snapshot(snapshot_image, State, version=1)

Several states may be written one after the other, and are read in the same order.

When its form changes, raise the version and say how an old state becomes a new one: see :func:`read_snapshot`.

**Format.** One header message, then chunk messages of at most ``publication.max_message_length`` bytes. The header is
40 bytes, little-endian, and the state's name: magic ``ACCSTATE`` (8 bytes), format version u16 (1), length of the name
u16, the user's version u32, length of the payload u64, CRC-32 of the payload u32, CRC-32 of the header before this
field and of the name u32, chunk length u64. The payload is the Struct in MessagePack.

**A loaded state equals the written one.** A member that loads a snapshot must have the state of the others. So the
state is checked before it is written: each value must be exactly of its declared type. These are refused: a string in a
number's field, an int in a float's, a tuple or an instance of a class in a field of any type, an instance of a derived
class, a number beyond its constraints, an attribute that is not a field, a stale ``cached_property``, NaN as a key,
more than 1,000 levels, and a list, dict or Struct that occurs twice in the state and would come back as two. The check
takes about as long as the encoding, and next to no memory. Where types alone do not decide, the state is decoded and
compared: values with constraints, dates, enums, dataclasses, abstract types, and Structs with ``__post_init__``. Such a
state is in memory twice during the check.

**Equal on all members.** A ``dict`` keeps its order of insertion, in the running member and in one that loads the
snapshot, so iterating over it is safe. A ``set`` or ``frozenset`` has no such order and is refused, in a declared type
and wherever the state holds one; use a ``dict`` with None values, or a sorted list.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import msgspec.inspect

from container.common.values import shown
from container.errors import ConfigurationError, SnapshotError
from container.service.state_check import check_state

__all__ = ["Upgrade", "read_snapshot", "snapshot_version", "write_snapshot"]

_MAGIC = b"ACCSTATE"
_FORMAT_VERSION = 1
_HEADER = struct.Struct("<8sHHIQIIQ")
_MAX_NAME_LENGTH = 256
_TYPES_WITHOUT_SETS: set[type] = set()


class _Publication(Protocol):
    @property
    def max_message_length(self) -> int: ...
    def send(self, *buffers: bytes | memoryview) -> int: ...


class _Image(Protocol):
    def __iter__(self) -> Iterator[bytes]: ...


class _PeekableImage(Protocol):
    def peek(self) -> bytes | None: ...


def write_snapshot(
    snapshot_publication: _Publication,
    state: object,
    *,
    version: int = 1,
    state_type: Any = None,
    name: str | None = None,
) -> int:
    """Write ``state`` (a msgspec Struct, or anything msgspec encodes) of any size to a snapshot.

    ``state_type`` is the type for reading it back, by default the class of ``state``: pass ``dict[int, Order]`` for
    such a dict. ``name`` (up to 256 bytes of UTF-8) must match in :func:`read_snapshot`; by default it is the name of
    the class.

    You choose ``version`` (0 to 2**32 - 1): raise it when the Struct changes in a way that old readers cannot handle.
    Return the length of the encoded state in bytes. Raise what :meth:`~container.api.SnapshotPublication.send` raises,
    ``TypeError`` for a state that msgspec cannot encode, ConfigurationError, with the place, for one that would not
    come back as it is or has a set in it or in its type, and ValueError for a version out of range or a name that is
    too long. Nothing is written then.
    """
    state_type = type(state) if state_type is None else state_type
    _refuse_sets(state_type)
    if not 0 <= version < 1 << 32:
        raise ValueError(f"version {version} of a snapshot: it must be from 0 to {(1 << 32) - 1}")
    payload = msgspec.msgpack.encode(state)
    check_state(state, state_type, _name_of(state_type))
    declared = _state_name(state_type, name).encode()
    if len(declared) > _MAX_NAME_LENGTH:
        raise ValueError(f"name of {len(declared)} bytes of a snapshot: it must have up to {_MAX_NAME_LENGTH}")
    chunk_length = snapshot_publication.max_message_length
    fields = (_MAGIC, _FORMAT_VERSION, len(declared), version, len(payload), zlib.crc32(payload))
    blank = _HEADER.pack(*fields, 0, chunk_length)
    header = _HEADER.pack(*fields, _header_checksum(blank, declared), chunk_length)
    snapshot_publication.send(header, declared)
    view = memoryview(payload)
    for begin in range(0, len(payload), chunk_length):
        snapshot_publication.send(view[begin : begin + chunk_length])
    return len(payload)


Upgrade = tuple[Any, Callable[[Any], Any]]
"""The type of an old state, and a function that makes the next version's state of it."""


def snapshot_version(snapshot_image: _PeekableImage) -> int:
    """Return the version of the state that :func:`read_snapshot` would read next; it stays unread.

    Raise SnapshotError when the snapshot ends here, or :func:`write_snapshot` did not write what follows.
    """
    header = snapshot_image.peek()
    if header is None:
        raise SnapshotError("the snapshot ends where a state should begin")
    return _Header.of(header).version


def read_snapshot[T](
    snapshot_image: _Image,
    state_type: type[T],
    *,
    version: int = 1,
    upgrades: Mapping[int, Upgrade] | None = None,
    name: str | None = None,
) -> T:
    """Read back a state of ``state_type`` that :func:`write_snapshot` wrote with the same ``version`` and ``name``.

    With ``upgrades`` it also reads older versions. Each entry has, by version, the type of the state at that time and a
    function that returns the next version's state; the last one returns a ``state_type``::

        read_snapshot(image, State, version=3, upgrades={1: (StateV1, from_1_to_2), 2: (StateV2, from_2_to_3)})

    A function must depend only on its argument, and return the same on all members: its result is the state.

    Raises:
        SnapshotError: the snapshot ends early, was not written by :func:`write_snapshot`, holds another name or
            version, is damaged, or does not fit the type; or an upgrade raised, or made what is not a state of the next
            version.
        ConfigurationError: a type has a set in it, or ``upgrades`` lacks a version between others.
    """
    steps = _steps(upgrades or {}, state_type, version)
    messages = iter(snapshot_image)
    expected = _state_name(state_type, name)
    message = next(messages, None)
    if message is None:
        raise SnapshotError(f"the snapshot ends where a state of type {expected} should begin")
    header = _Header.of(message)
    header.check(expected, steps, version)
    payload = _read_payload(messages, header)
    kind, _ = steps[header.version]
    try:
        state = msgspec.msgpack.decode(payload, type=kind)
    except msgspec.MsgspecError as error:
        raise SnapshotError(
            f"the state in the snapshot, version {header.version}, is not a {_name_of(kind)} of today: {error}; "
            "raise the version when the type changes, and read old states with upgrades"
        ) from error
    for number in range(header.version, version):
        state = _upgraded(state, steps[number][1], steps[number + 1][0], number, expected)
    return state  # type: ignore[no-any-return]


def _steps(upgrades: Mapping[int, Upgrade], state_type: Any, version: int) -> dict[int, Upgrade]:
    """Type and upgrade of each version that can be read, today's among them."""
    for number, step in upgrades.items():
        if not isinstance(number, int) or number < 0 or number >= version:
            raise ConfigurationError(f"upgrades has {shown(number)}: must be versions below {version}, the one to read")
        if not isinstance(step, tuple) or len(step) != 2 or not callable(step[1]):
            raise ConfigurationError(
                f"upgrades[{number}]={shown(step)}: must be the type of that version, and a function that takes it"
            )
    steps = {**upgrades, version: (state_type, _keep)}
    for number in range(min(steps), version):
        if number not in steps:
            raise ConfigurationError(
                f"upgrades has no version {number}: it needs each from {min(steps)} to {version - 1}"
            )
    for kind, _ in steps.values():
        _refuse_sets(kind)
    return steps


def _keep(state: Any) -> Any:
    return state


def _upgraded(state: Any, upgrade: Callable[[Any], Any], kind: Any, number: int, name: str) -> Any:
    step = f"the upgrade of {name} from version {number} to {number + 1}"
    try:
        state = upgrade(state)
    except Exception as error:
        raise SnapshotError(f"{step} raised {type(error).__name__}: {error}") from error
    try:
        msgspec.msgpack.encode(state)
        check_state(state, kind, _name_of(kind))
    except (ConfigurationError, TypeError, ValueError, OverflowError) as error:
        raise SnapshotError(f"{step} made no {_name_of(kind)} that a snapshot could hold: {error}") from error
    return state


def _read_payload(messages: Iterator[bytes], header: _Header) -> bytearray:
    payload = bytearray()
    while len(payload) < header.length:
        chunk = next(messages, None)
        if chunk is None:
            raise SnapshotError(f"the snapshot ends after {len(payload)} of {header.length} bytes of the state")
        if len(chunk) != min(header.chunk_length, header.length - len(payload)):
            raise SnapshotError(
                f"a part of the state has {len(chunk)} bytes where "
                f"{min(header.chunk_length, header.length - len(payload))} were written: the snapshot is damaged"
            )
        payload += chunk
    if zlib.crc32(payload) != header.checksum:
        raise SnapshotError(f"the checksum of the state's {header.length} bytes is wrong: the snapshot is damaged")
    return payload


def decode_states(messages: Sequence[bytes]) -> dict[str, Any]:
    """Return the states that :func:`write_snapshot` wrote as ``messages``, by name, as dicts and lists without types.

    Raise SnapshotError when there is anything else among the messages, or they are damaged.
    """
    found: dict[str, Any] = {}
    rest = iter(messages)
    for message in rest:
        header = _Header.of(message)
        try:
            found[header.name] = msgspec.msgpack.decode(_read_payload(rest, header))
        except msgspec.MsgspecError as error:
            raise SnapshotError(f"the state {header.name} cannot be decoded: {error}") from error
    return found


def _refuse_sets(state_type: type) -> None:
    if state_type not in _TYPES_WITHOUT_SETS:
        _walk(msgspec.inspect.type_info(state_type), _name_of(state_type), set())
        _TYPES_WITHOUT_SETS.add(state_type)


def _walk(info: object, path: str, seen: set[type]) -> None:
    if isinstance(info, msgspec.inspect.SetType | msgspec.inspect.FrozenSetType):
        raise _is_a_set(path)
    if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType | msgspec.inspect.TypedDictType):
        if info.cls in seen:  # on any path: types that refer to each other have too many paths
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
    what = "the state" if path in ("set", "frozenset") else path
    return ConfigurationError(
        f"{what} is a set: the order of its elements differs between members; use a dict or a sorted list"
    )


def _name_of(state_type: Any) -> str:
    return getattr(state_type, "__qualname__", None) or str(state_type)


def _state_name(state_type: Any, name: str | None) -> str:
    """The declared name; by default that of the class, in any module."""
    if name is not None:
        return name
    default = getattr(state_type, "__name__", None) or str(state_type)
    return default.encode()[:_MAX_NAME_LENGTH].decode(errors="ignore")


def _header_checksum(header: bytes, name: bytes) -> int:
    # Over the header with its own checksum as zero, and the name.
    return zlib.crc32(name, zlib.crc32(header))


class _Header(NamedTuple):
    """The header message of a state."""

    name: str
    version: int
    length: int
    checksum: int
    chunk_length: int

    @classmethod
    def of(cls, message: bytes) -> _Header:
        """The contents of a header as :func:`write_snapshot` writes them; raise SnapshotError for other messages."""
        if len(message) < _HEADER.size or message[:8] != _MAGIC:
            raise SnapshotError(
                f"not a state written by write_snapshot: the message begins with {message[:8].hex(' ') or 'nothing'}"
            )
        _, found_format, name_length, version, length, checksum, own_checksum, chunk_length = _HEADER.unpack_from(
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
        if chunk_length == 0:
            raise SnapshotError("the header of the state is damaged: its chunk length is 0")
        return cls(name.decode(errors="replace"), version, length, checksum, chunk_length)

    def check(self, name: str, steps: Mapping[int, object], version: int) -> None:
        """Raise SnapshotError unless it is a state of this name, in one of these versions."""
        if self.name != name:
            raise SnapshotError(
                f"the snapshot holds a state of type {self.name}, not {name}: read the states in the order in which "
                "they were written, and give a class that has another name today its old one with name="
            )
        if self.version in steps:
            return
        if self.version > version:
            raise SnapshotError(
                f"the snapshot holds version {self.version} of {name}, not {version}: start the release that wrote it, "
                "or a newer one"
            )
        raise SnapshotError(
            f"the snapshot holds version {self.version} of {name}, not {version}: give upgrades the type that it had "
            "then, and a function that makes the next version's state of it"
        )
