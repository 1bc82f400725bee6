"""State as a msgspec Struct in a snapshot: what is written is read back, and anything else is refused by name."""

from __future__ import annotations

import enum
import random
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.errors import ConfigurationError, SnapshotError
from container.set_finder import find_set
from container.snapshot_loader import SnapshotImage
from container.snapshots import read_snapshot, write_snapshot
from container.testing import transport_probe as seam
from container.testing.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory_stores import MemorySnapshotStore
from container.testing.memory_transport import MemoryDriver


class Recording:
    """A publication that keeps the messages of a snapshot, and the image of their replay over memory."""

    def __init__(self, max_message_length: int = 64) -> None:
        self.max_message_length = max_message_length
        self.messages: list[bytes] = []

    def send(self, *buffers: bytes | memoryview) -> int:
        message = b"".join(buffers)
        assert len(message) <= max(self.max_message_length, 300)
        self.messages.append(message)
        return len(self.messages)

    def image(self) -> SnapshotImage:
        """Where the service's state begins: behind a message of the container's."""
        driver = MemoryDriver(ManualClock())
        client = driver.connect("service")
        idle = SteppingIdleStrategy(_never_idle)
        store = MemorySnapshotStore(client)
        reader = seam.open_snapshot(store, store.add_recording([b"end marker", *self.messages]), idle)
        assert [data for data, _ in seam.poll(reader.image, 1)] == [b"end marker"]
        return seam.snapshot_image(reader, client, idle)


def _never_idle() -> None:
    raise AssertionError("waited for a message of a snapshot that is all there")


class Order(msgspec.Struct):
    order_id: int
    lines: dict[str, list[int]]
    note: str | None = None


class Book(msgspec.Struct):
    orders: dict[int, Order]
    total: int = 0


class OtherBook(msgspec.Struct):
    orders: dict[int, Order]


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class WithSet(msgspec.Struct):
    groups: list[dict[str, frozenset[int]]]


class WithSetBehindANode(msgspec.Struct):
    node: Node
    tags: set[str]


@dataclass
class Plain:
    count: int


BOOK = Book({i: Order(i, {"b": [i] * i, "a": []}, None if i % 2 else "note") for i in range(20)}, 7)


@pytest.mark.parametrize("max_message_length", [1, 7, 64, 1_000_000])
def test_a_struct_of_any_size_comes_back(max_message_length: int) -> None:
    recording = Recording(max_message_length)
    length = write_snapshot(recording, BOOK, version=3)
    assert read_snapshot(recording.image(), Book, version=3) == BOOK
    assert len(recording.messages) == 1 + -(-length // max_message_length)


@given(st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1)), st.integers(1, 200))
def test_any_dict_comes_back_in_its_order(state: dict[str, int], max_message_length: int) -> None:
    recording = Recording(max_message_length)
    write_snapshot(recording, state)
    read = read_snapshot(recording.image(), dict)
    assert list(read.items()) == list(state.items())


@pytest.mark.parametrize(
    "state", [0, "", b"\0" * 1000, None, [], {}, 1.5, Plain(3), Node(1, [Node(2), Node(3, [Node(4)])])]
)
def test_what_msgspec_encodes_comes_back(state: object) -> None:
    recording = Recording()
    write_snapshot(recording, state)
    assert read_snapshot(recording.image(), type(state)) == state


def test_several_states_are_read_in_the_order_in_which_they_were_written() -> None:
    recording = Recording()
    write_snapshot(recording, BOOK)
    write_snapshot(recording, Node(5))
    image = recording.image()
    assert read_snapshot(image, Book) == BOOK
    assert not image.is_end_of_stream
    assert read_snapshot(image, Node) == Node(5)
    assert image.is_end_of_stream


def test_a_state_is_followed_by_messages_of_the_services_own() -> None:
    recording = Recording()
    write_snapshot(recording, Node(5))
    recording.messages += [b"%d" % number for number in range(40)]
    image = recording.image()
    assert read_snapshot(image, Node) == Node(5)
    assert list(image) == [b"%d" % number for number in range(40)]


def test_equal_states_are_written_as_equal_bytes() -> None:
    one, other = Recording(), Recording()
    write_snapshot(one, BOOK)
    write_snapshot(other, msgspec.convert(msgspec.to_builtins(BOOK), Book, strict=False))
    assert one.messages == other.messages


@pytest.mark.parametrize("state", [WithSet([]), WithSetBehindANode(Node(1), set()), {1}, frozenset()])
def test_a_set_is_refused_when_written(state: object) -> None:
    with pytest.raises(ConfigurationError, match="is a set"):
        write_snapshot(Recording(), state)


class Loose(msgspec.Struct):
    anything: Any = None
    names: dict[str, int] = {}


class Unseen(msgspec.Struct, gc=False, array_like=True, omit_defaults=True):
    numbers: list[int] = []


@dataclass(slots=True)
class Slotted:
    value: object


class Groups(enum.Enum):
    FEW = frozenset({1, 2})


class OrderedSet(set[int]):
    pass


class NamedDict(dict[str, Any]):
    pass


Pair = namedtuple("Pair", "one other")


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"tags": {"a", "b"}}, "dict['tags']"),
        ({"deep": [0, {"er": (1, frozenset({2}))}]}, "dict['deep'][1]['er'][1]"),
        ({frozenset({1}): 2}, "dict, key frozenset({1})"),
        ({(1, frozenset()): 2}, "dict, key (1, frozenset())[1]"),
        ([[1], [set()]], "list[1][0]"),
        (Loose(anything={1}), "Loose.anything"),
        (Loose(names={1, 2}), "Loose.names"),  # type: ignore[arg-type]
        (Loose(names={"a": {3}}), "Loose.names['a']"),  # type: ignore[dict-item]
        (Loose(anything=Loose(anything=[Slotted({1})])), "Loose.anything.anything[0].value"),
        (Unseen(numbers={5}), "Unseen.numbers"),  # type: ignore[arg-type]
        (Loose(anything=Groups.FEW), "Loose.anything.value"),
        ([OrderedSet({1})], "list[0]"),
        (NamedDict(a={1}), "NamedDict['a']"),
        (OrderedDict(a={1}), "OrderedDict['a']"),
        ([Pair(1, {2})], "list[0][1]"),
    ],
)
def test_a_set_is_refused_whatever_the_type_says(state: object, path: str) -> None:
    recording = Recording()
    with pytest.raises(ConfigurationError) as refused:
        write_snapshot(recording, state)
    assert str(refused.value).startswith(f"{path} is a set: ")
    assert recording.messages == []


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.builds(Loose, inner)
    ),
)


@given(PLAIN)
def test_a_state_without_a_set_is_not_refused(state: Any) -> None:
    assert find_set(state, "state") is None
    msgspec.msgpack.encode(state)


@given(PLAIN, st.randoms())
def test_a_set_is_found_wherever_it_is(state: Any, randomness: random.Random) -> None:
    planted = _plant(state, {1}, randomness)
    msgspec.msgpack.encode(planted)
    assert find_set(planted, "state") is not None


def _plant(state: Any, value: object, randomness: random.Random) -> Any:
    # The state with the value somewhere in it, at random.
    if isinstance(state, Loose):
        return Loose(_plant(state.anything, value, randomness))
    if isinstance(state, list | tuple) and state:
        index = randomness.randrange(len(state))
        return type(state)([*state[:index], _plant(state[index], value, randomness), *state[index + 1 :]])
    if isinstance(state, dict) and state:
        key = randomness.choice(list(state))
        return {**state, key: _plant(state[key], value, randomness)}
    return value


def test_a_set_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(ConfigurationError, match=r"WithSetBehindANode\.tags is a set"):
        read_snapshot(Recording().image(), WithSetBehindANode)


@pytest.mark.parametrize("version", [0, 2**31, 2**32 - 1])
def test_the_versions_are_those_of_32_bits(version: int) -> None:
    recording = Recording()
    write_snapshot(recording, BOOK, version=version)
    assert read_snapshot(recording.image(), Book, version=version) == BOOK


@pytest.mark.parametrize("version", [-1, 2**32])
def test_a_version_out_of_range_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version}"):
        write_snapshot(Recording(), BOOK, version=version)


def test_another_version_is_refused_with_both() -> None:
    recording = Recording()
    write_snapshot(recording, BOOK, version=2)
    with pytest.raises(SnapshotError, match="holds version 2 of Book, not 1"):
        read_snapshot(recording.image(), Book)


def test_another_type_is_refused_with_both() -> None:
    recording = Recording()
    write_snapshot(recording, BOOK)
    with pytest.raises(SnapshotError, match="type Book, not OtherBook"):
        read_snapshot(recording.image(), OtherBook)


def test_a_type_that_changed_is_refused() -> None:
    recording = Recording()
    write_snapshot(recording, msgspec.defstruct("Book", [("orders", str)])("x"))
    with pytest.raises(SnapshotError, match="not a Book of today"):
        read_snapshot(recording.image(), Book)


@pytest.mark.parametrize("first", [b"", b"ACCSTATE", b"x" * 40, b"ACCSTATF" + bytes(32)])
def test_what_write_snapshot_did_not_write_is_refused(first: bytes) -> None:
    recording = Recording()
    recording.messages = [first]
    with pytest.raises(SnapshotError, match="not a state written by write_snapshot"):
        read_snapshot(recording.image(), Book)


def test_a_header_of_another_format_is_refused_with_both() -> None:
    recording = Recording()
    recording.messages = [b"ACCSTATE" + bytes(32)]
    with pytest.raises(SnapshotError, match="the state is in format 0, this release reads format 1"):
        read_snapshot(recording.image(), Book)


def test_an_empty_snapshot_is_refused() -> None:
    with pytest.raises(SnapshotError, match="ends where a state of type Book should begin"):
        read_snapshot(Recording().image(), Book)


def test_a_missing_part_is_refused_with_how_much_there_was() -> None:
    recording = Recording()
    length = write_snapshot(recording, BOOK)
    del recording.messages[-1]
    with pytest.raises(SnapshotError, match=rf"ends after \d+ of {length} bytes"):
        read_snapshot(recording.image(), Book)


@pytest.mark.parametrize("part", [1, 2, -1])
@pytest.mark.parametrize("excess", [-1, 1])
def test_a_part_of_another_length_is_refused_with_both(part: int, excess: int) -> None:
    recording = Recording()
    write_snapshot(recording, BOOK)
    written = len(recording.messages[part])
    recording.messages[part] = (recording.messages[part] + b"x")[: written + excess]
    with pytest.raises(SnapshotError, match=f"has {written + excess} bytes where {written} were written: the snapshot"):
        read_snapshot(recording.image(), Book)


def test_every_flipped_bit_is_noticed() -> None:
    recording = Recording(max_message_length=200)
    write_snapshot(recording, Book({1: Order(1, {"a": [1]})}))
    for index, message in enumerate(recording.messages):
        for at in range(8 * len(message)):
            damaged = bytearray(message)
            damaged[at // 8] ^= 1 << at % 8
            copy = Recording()
            copy.messages = [*recording.messages[:index], bytes(damaged), *recording.messages[index + 1 :]]
            with pytest.raises(SnapshotError):
                read_snapshot(copy.image(), Book)


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_random_messages_are_refused(messages: list[bytes]) -> None:
    recording = Recording()
    recording.messages = messages
    with pytest.raises(SnapshotError):
        read_snapshot(recording.image(), Book)
