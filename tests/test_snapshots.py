"""State as a msgspec Struct in a snapshot: what is written is read back, and anything else is refused by name."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import importlib
import math
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.errors import ClusterError, ConfigurationError, SnapshotError
from container.service.snapshot_loader import SnapshotImage
from container.snapshots import Upgrade, read_snapshot, snapshot_version, write_snapshot
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryDriver


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


def _checked(text: str) -> Checked:
    checked = Checked("")
    checked.text = text
    return checked


def _with_attribute(value: Any) -> Any:
    value.extra = 1
    return value


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"tags": {"a", "b"}}, "dict['tags'] is a set: "),
        ({"deep": [0, {"er": [1, frozenset({2})]}]}, "dict['deep'][1]['er'][1] is a set: "),
        ({frozenset({1}): 2}, "dict, key frozenset({1}) "),
        ({(1, frozenset()): 2}, "dict, key (1, frozenset()) "),
        ([[1], [set()]], "list[1][0] is a set: "),
        (Loose(anything={1}), "Loose.anything is a set: "),
        (Loose(names={1, 2}), "Loose.names is a set: "),  # type: ignore[arg-type]
        (Loose(names={"a": {3}}), "Loose.names['a'] is a set: "),  # type: ignore[dict-item]
        (Slotted({1}), "Slotted is Slotted(value={1}) and would come back as "),
        (Unseen(numbers={5}), "Unseen.numbers is a set: "),  # type: ignore[arg-type]
        (Loose(anything=Groups.FEW), "Loose.anything is "),
        ([OrderedSet({1})], "list[0] is a set: "),
        (NamedDict(a={1}), "NamedDict is {'a': {1}}"),
        ([Pair(1, {2})], "list[0] is Pair(one=1, other={2}) and would come back as [1, [2]] (list)"),
    ],
)
def test_a_set_is_refused_whatever_the_type_says(state: object, path: str) -> None:
    assert refused(state).startswith(path)


def refused(state: object, state_type: Any = None) -> str:
    """The error with which the state is refused; nothing is written."""
    recording = Recording()
    with pytest.raises(ConfigurationError) as caught:
        write_snapshot(recording, state, state_type=state_type)
    assert recording.messages == []
    return str(caught.value)


class Base(msgspec.Struct):
    number: int = 0


class Derived(Base):
    pass


class Frozen(msgspec.Struct, frozen=True):
    parts: list[int]


class Attributes(msgspec.Struct, dict=True):
    number: int = 0

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.number


class Checked(msgspec.Struct):
    text: str

    def __post_init__(self) -> None:
        self.text = self.text.strip()


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    tricks: list[str] = []


class Sparse(msgspec.Struct, omit_defaults=True):
    number: int | msgspec.UnsetType = msgspec.UNSET
    flag: int = 1


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


type Alias = dict[str, Base]
Key = NewType("Key", int)


class Typed(msgspec.Struct):
    """A field for each kind of type."""

    integer: int = 0
    real: float = 0.0
    text: str = ""
    flag: bool = False
    data: bytes = b""
    nothing: None = None
    anything: object = None
    maybe: int | None = None
    number: int | float = 0
    small: Annotated[int, msgspec.Meta(ge=0, lt=10)] = 0
    items: list[int] = []
    pair: tuple[int, str] = (0, "")
    many: tuple[int, ...] = ()
    by_name: dict[str, int] = {}
    by_pair: dict[tuple[int, int], str] = {}
    by_real: dict[float, int] = {}
    loose: dict[Any, Any] = {}
    struct: Base | None = None
    frozen: Frozen | None = None
    two: tuple[Frozen, Frozen] | None = None
    structs: list[Base] = []
    also: list[Base] = []
    pet: Cat | Dog | None = None
    checked: Checked | None = None
    sparse: Sparse | None = None
    attributes: Attributes | None = None
    alias: Alias = {}
    key: Key = Key(0)
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    rights: Rights = Rights.READ
    fixed: Literal[1, "a"] = 1
    moment: datetime.datetime | None = None
    day: datetime.date | None = None
    span: datetime.timedelta | None = None
    money: decimal.Decimal | None = None
    identity: uuid.UUID | None = None
    plain: Plain | None = None
    pair_of: Pair | None = None
    raw: bytearray | None = None


NAN = float("nan")
TEXT: Any = "9"
UTC = datetime.UTC
ZONE = datetime.timezone(datetime.timedelta(hours=2))
EXACT: list[dict[str, Any]] = [
    {"integer": -(2**63)}, {"integer": 2**64 - 1}, {"real": -0.0}, {"real": NAN}, {"real": math.inf}, {"text": "\0ä"},
    {"anything": [1, {"a": None, 2: b"x", 1.5: True}]}, {"anything": 2.0}, {"maybe": 3}, {"number": 3}, {"number": 3.0},
    {"small": 9}, {"items": [1, 2]}, {"pair": (1, "a")}, {"many": (1, 2, 3)}, {"by_name": {"b": 1, "a": 2}},
    {"by_pair": {(1, 2): "x"}}, {"by_real": {1.0: 1}}, {"loose": {(1, 2): 3, None: [1]}}, {"struct": Base(1)},
    {"frozen": Frozen([1])}, {"structs": [Base(1), Base(1)]}, {"pet": Cat(3)}, {"pet": Dog(["sit"])},
    {"checked": Checked("a")}, {"sparse": Sparse()}, {"sparse": Sparse(1, 2)}, {"attributes": Attributes(1)},
    {"alias": {"a": Base(2)}}, {"key": Key(5)}, {"fixed": "a"}, {"level": Level.HIGH},
    {"rights": Rights.READ | Rights.WRITE},
    {"moment": datetime.datetime(2020, 1, 1, 1, 1, 1, 7)},
    {"moment": datetime.datetime(2020, 1, 1, tzinfo=UTC)}, {"day": datetime.date(2020, 2, 29)},
    {"span": datetime.timedelta(days=3, microseconds=1)}, {"money": decimal.Decimal("1.00")},
    {"identity": uuid.UUID(int=7)}, {"plain": Plain(3)}, {"pair_of": Pair(1, "a")}, {"raw": bytearray(b"x")},
]  # fmt: skip
CHANGED: list[dict[str, Any]] = [
    {"integer": "7"}, {"integer": True}, {"integer": 1.0}, {"integer": None}, {"real": 1}, {"text": b"x"}, {"flag": 1},
    {"data": bytearray(b"x")}, {"data": memoryview(b"x")}, {"nothing": 0}, {"anything": (1, 2)},
    {"anything": bytearray(b"x")}, {"anything": [Base(1)]}, {"anything": [[{"a": (1,)}]]}, {"anything": Colour.RED},
    {"anything": datetime.datetime(2020, 1, 1)}, {"anything": decimal.Decimal(1)}, {"anything": {"a": {1: Pair(1, 2)}}},
    {"maybe": "3"}, {"maybe": 3.0}, {"number": True}, {"small": 10}, {"small": -1}, {"items": (1, 2)}, {"items": ["1"]},
    {"items": [1, 2.0]}, {"pair": [1, "a"]}, {"pair": (1,)}, {"pair": ("a", 1)}, {"many": (1, "2")}, {"many": [1]},
    {"by_name": {1: 1}}, {"by_name": {"a": "1"}}, {"by_name": OrderedDict(a=1)}, {"by_pair": {(1, "2"): "x"}},
    {"by_real": {1: 1}}, {"by_real": {NAN: 1}}, {"loose": {NAN: 1}}, {"loose": {(1, NAN): 1}},
    {"loose": {Pair(1, 2): 1}}, {"loose": {"a": (1,)}}, {"struct": Derived(1)}, {"struct": Base(TEXT)}, {"struct": {}},
    {"structs": [Base(1), Derived(1)]}, {"structs": [None]}, {"pet": Base(1)}, {"pet": Cat(TEXT)},
    {"checked": _checked(" a ")}, {"sparse": Sparse(TEXT)}, {"attributes": _with_attribute(Attributes(1))},
    {"alias": {"a": Derived(2)}}, {"key": "5"}, {"colour": "red"}, {"level": 2}, {"integer": Level.HIGH}, {"rights": 3},
    {"fixed": 2}, {"fixed": True},
    {"moment": datetime.datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))}, {"moment": "2020-01-01T00:00:00"},
    {"moment": datetime.datetime(2020, 10, 25, 2, 30, fold=1)}, {"day": datetime.datetime(2020, 1, 1)},
    {"money": 1}, {"plain": Plain(TEXT)}, {"plain": _with_attribute(Plain(3))}, {"pair_of": (1, 2)}, {"raw": b"x"},
]  # fmt: skip


@pytest.mark.parametrize("fields", EXACT, ids=repr)
def test_a_state_of_its_types_is_written_and_comes_back_as_it_is(fields: dict[str, Any]) -> None:
    recording = Recording(1_000_000)
    state = Typed(**fields)
    write_snapshot(recording, state)
    assert image_of(read_snapshot(recording.image(), Typed)) == image_of(state)


@pytest.mark.parametrize("fields", CHANGED, ids=repr)
def test_what_would_not_come_back_as_it_is_is_refused_with_its_place(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert refused(Typed(**fields)).startswith(f"Typed.{name}")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            Typed(by_name={"a": "7"}),  # type: ignore[dict-item]
            "Typed.by_name['a'] is '7' (str), and its type is int: ",
        ),
        (Typed(anything=[0, (1, 2)]), "Typed.anything[1] is (1, 2) and would come back as [1, 2] (list): "),
        (Typed(small=10), "Typed.small is 10, which cannot be read back as "),
        (Typed(by_real={NAN: 1}), "Typed.by_real, key nan is NaN, which no look-up finds again"),
        (Typed(attributes=_with_attribute(Attributes(1))), "Typed.attributes.extra is not a field of its struct"),
        ({1: Base(1)}, "dict[1] is Base(number=1) and would come back as {'number': 1} (dict): "),
    ],
)
def test_a_refusal_says_what_is_there_and_what_would_be(state: object, text: str) -> None:
    assert refused(state).startswith(text)


def test_the_type_of_a_state_that_is_no_struct_can_be_given() -> None:
    recording = Recording()
    state = {1: Base(1), 2: Base(2)}
    write_snapshot(recording, state, state_type=dict[int, Base])
    assert read_snapshot(recording.image(), dict[int, Base]) == state
    assert refused({1: Derived(1)}, dict[int, Base]).startswith("dict[1] is Derived(number=1) (Derived), and its type")


SHARED = Base(1)
PARTS = [1]
FROZEN = Frozen(PARTS)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        (Typed(structs=[SHARED], also=[SHARED]), "Typed.also[0]"),
        (Typed(structs=[SHARED, SHARED]), "Typed.structs[1]"),
        (Typed(anything=[PARTS, PARTS]), "Typed.anything[1]"),
        (Typed(items=PARTS, frozen=Frozen(PARTS)), "Typed.frozen.parts"),
        (Typed(two=(FROZEN, FROZEN)), "Typed.two[1].parts"),
        ([[], PARTS, {"a": {"b": PARTS}}], "list[2]['a']['b']"),
    ],
)
def test_what_is_in_a_state_twice_and_may_change_is_refused(state: object, place: str) -> None:
    assert refused(state).startswith(f"{place} is the same object as another part of the state: ")


def test_what_cannot_change_may_be_in_a_state_twice_and_anything_may_be_referred_to_from_elsewhere() -> None:
    elsewhere = [Base(number) for number in range(3_000)]
    state = Typed(structs=elsewhere, items=PARTS, many=(1,), by_pair={(1, 2): "a", (2, 1): "a"})
    state.anything = ["text", "text", b"x", b"x"]
    recording = Recording(8_000)
    write_snapshot(recording, state)
    assert read_snapshot(recording.image(), Typed) == state


class Prepared(Attributes, dict=True):
    def __post_init__(self) -> None:
        pass


@pytest.mark.parametrize("kind", [Attributes, Prepared])
def test_a_value_that_is_computed_on_demand_is_no_attribute(kind: type[Attributes]) -> None:
    state = kind(2)
    assert state.double == 4
    write_snapshot(Recording(), state)


@pytest.mark.parametrize("kind", [Attributes, Prepared])
def test_a_computed_value_that_is_out_of_date_is_refused(kind: type[Attributes]) -> None:
    """A member that goes on has 4, one that loads the snapshot has 6."""
    state = kind(2)
    assert state.double == 4
    state.number = 3
    assert refused(state).startswith(f"{kind.__name__}.double was computed from what has changed since: ")


class Place(msgspec.Struct, frozen=True):
    height: float


def test_nan_in_a_struct_is_no_key_either() -> None:
    assert "is NaN, which no look-up finds again" in refused({Place(NAN): 1}, dict[Place, int])
    write_snapshot(Recording(), {Place(1.0): 1}, state_type=dict[Place, int])


class Link(msgspec.Struct):
    following: Link | None = None


class Noted(msgspec.Struct):
    number: Annotated[int, {"any": "note"}]
    small: Annotated[int, msgspec.Meta(lt=10)] = 0


def test_notes_on_types_may_be_anything() -> None:
    recording = Recording()
    write_snapshot(recording, Noted(1))
    assert read_snapshot(recording.image(), Noted) == Noted(1)
    assert refused(Noted(1, 10)).startswith("Noted.small is 10")


def test_a_state_that_is_too_deep_to_be_read_from_any_callback_is_refused() -> None:
    """One of 9,999 levels can be encoded, and not be decoded."""
    deep: list[Any] = []
    chain = Link()
    for _ in range(999):
        deep = [deep]
        chain = Link(chain)
    recording = Recording(1_000_000)
    write_snapshot(recording, deep)
    assert read_snapshot(recording.image(), list) == deep
    assert chain.following is not None
    write_snapshot(Recording(1_000_000), chain.following)
    assert "is below 1000 others: " in refused([deep])
    assert len(text := refused(chain)) < 1_000
    assert "is below 1000 others: " in text


def image_of(value: Any) -> Any:
    """All that makes a state: types and values, so that equal images are equal states. Independent of the check."""
    if isinstance(value, msgspec.Struct):
        fields = [(name, image_of(getattr(value, name))) for name in value.__struct_fields__]
        return (type(value), fields, sorted(getattr(value, "__dict__", {})))
    if isinstance(value, list | tuple | set | frozenset):
        return (type(value), [image_of(item) for item in value])
    if isinstance(value, dict):
        return (type(value), [(image_of(key), image_of(item)) for key, item in value.items()])
    return (type(value), repr(value))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
    | st.datetimes(timezones=st.sampled_from([None, UTC, ZONE])) | st.decimals() | st.uuids() | st.dates()
    | st.timedeltas() | st.sampled_from([Colour.RED, *Groups, msgspec.UNSET]) | st.builds(bytearray, st.binary()),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers())
        | st.dictionaries(st.floats() | st.tuples(st.integers(), st.floats()) | st.dates(), inner)
        | st.builds(Loose, inner) | st.builds(Slotted, inner) | st.builds(Pair, inner, inner) | st.builds(Base, inner)
        | st.builds(Derived, inner) | st.builds(Attributes, inner) | st.builds(Cat, inner) | st.builds(Sparse, inner)
    ),
    max_leaves=8,
)  # fmt: skip


STATES = (
    ANYTHING
    | st.builds(Typed, anything=ANYTHING, items=ANYTHING, structs=ANYTHING, pet=ANYTHING, loose=ANYTHING)
    | st.sampled_from(Typed.__struct_fields__).flatmap(lambda name: st.builds(Typed, **{name: ANYTHING}))
)


@given(STATES)
@settings(max_examples=300)
def test_whatever_is_written_comes_back_as_it_is_and_what_comes_back_is_written(state: Any) -> None:
    recording = Recording(1_000_000)
    try:
        expected = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))
    except Exception:
        expected = None
    try:
        write_snapshot(recording, state)
    except (ConfigurationError, TypeError, ValueError, OverflowError):
        assert recording.messages == []
        is_same = expected is not None and image_of(expected) == image_of(state)
        assert not is_same or any(text in repr(image_of(state)) for text in ("'nan'", "<class 'set'>"))
        return
    assert image_of(read_snapshot(recording.image(), type(state))) == image_of(state)


class Box[T](msgspec.Struct):
    content: T


class Boxes(msgspec.Struct):
    numbers: Box[int]
    names: Box[set[str]]


def test_a_set_in_a_generic_type_is_refused_whatever_else_that_type_is_used_for() -> None:
    with pytest.raises(ConfigurationError, match=r"Boxes\.names\.content is a set"):
        read_snapshot(Recording().image(), Boxes)


def test_types_that_refer_to_each_other_are_checked_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More paths than anybody can wait for lead through these 14 types."""
    names = [f"Expression{number}" for number in range(14)]
    lines = ["from __future__ import annotations", "from msgspec import Struct"]
    lines += [f"class {name}(Struct, tag=True):\n    parts: list[Expression]" for name in names]
    lines += [f"Expression = {' | '.join(names)}"]
    (tmp_path / "expressions_of_a_test.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    expressions = importlib.import_module("expressions_of_a_test")
    state = expressions.Expression0([expressions.Expression1([])])
    recording = Recording()
    write_snapshot(recording, state)
    assert read_snapshot(recording.image(), type(state)) == state


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


class CounterV1(msgspec.Struct):
    """A state as it was."""

    names: list[str]


class CounterV2(msgspec.Struct):
    """The same with numbers."""

    numbers: dict[str, int]


class Counter(msgspec.Struct):
    """The state of today."""

    numbers: dict[str, int]
    total: int


def count_names(old: CounterV1) -> CounterV2:
    """From version 1 to 2."""
    return CounterV2({name: old.names.count(name) for name in old.names})


def add_total(old: CounterV2) -> Counter:
    """From version 2 to 3."""
    return Counter(old.numbers, sum(old.numbers.values()))


UPGRADES: dict[int, Upgrade] = {1: (CounterV1, count_names), 2: (CounterV2, add_total)}


@pytest.mark.parametrize(
    ("state", "version"),
    [(CounterV1(["b", "a", "b"]), 1), (CounterV2({"b": 2, "a": 1}), 2), (Counter({"b": 2, "a": 1}, 3), 3)],
)
def test_old_versions_are_read_by_upgrades(state: object, version: int) -> None:
    recording = Recording()
    write_snapshot(recording, state, version=version, name="Counter")
    image = recording.image()
    assert snapshot_version(image) == version
    counter = read_snapshot(image, Counter, version=3, upgrades=UPGRADES)
    assert counter == Counter({"b": 2, "a": 1}, 3)
    assert list(counter.numbers) == ["b", "a"]
    assert image.is_end_of_stream


def test_a_version_without_an_upgrade_and_a_newer_one_are_refused() -> None:
    recording = Recording()
    write_snapshot(recording, CounterV1([]), version=1, name="Counter")
    only_last = {2: UPGRADES[2]}
    with pytest.raises(SnapshotError, match="holds version 1 of Counter, not 3: give upgrades the type that"):
        read_snapshot(recording.image(), Counter, version=3, upgrades=only_last)
    newer = Recording()
    write_snapshot(newer, Counter({}, 0), version=4)
    with pytest.raises(SnapshotError, match="holds version 4 of Counter, not 3: start the release that wrote it"):
        read_snapshot(newer.image(), Counter, version=3, upgrades=UPGRADES)


@pytest.mark.parametrize(
    ("upgrades", "version", "text"),
    [
        ({1: UPGRADES[1]}, 3, "upgrades has no version 2: it needs each from 1 to 2"),
        ({0: UPGRADES[1], 2: UPGRADES[2]}, 3, "upgrades has no version 1: it needs each from 0 to 2"),
        ({1: UPGRADES[1], 4: UPGRADES[2]}, 2, "upgrades has 4: must be versions below 2, the one to read"),
        ({"1": UPGRADES[1]}, 2, "upgrades has '1': must be versions below 2"),
        ({1: CounterV1}, 2, r"upgrades\[1\]=.*: must be the type of that version, and a function"),
        ({1: (CounterV1, None)}, 2, r"upgrades\[1\]=.*: must be the type of that version, and a function"),
        ({1: (WithSet, count_names)}, 2, r"WithSet\.groups is a set"),
    ],
)
def test_upgrades_that_cannot_be_right_are_refused(upgrades: Any, version: int, text: str) -> None:
    recording = Recording()
    write_snapshot(recording, Counter({}, 0), version=version)
    with pytest.raises(ConfigurationError, match=text):
        read_snapshot(recording.image(), Counter, version=version, upgrades=upgrades)


def _raise(old: object) -> object:
    raise KeyError("price")


@pytest.mark.parametrize(
    ("upgrade", "text"),
    [
        (_raise, r"the upgrade of Counter from version 1 to 2 raised KeyError: 'price'"),
        (
            lambda old: None,
            r"the upgrade of Counter from version 1 to 2 made no CounterV2 that a snapshot could hold: ",
        ),
        (lambda old: CounterV2({"a": old}), r"made no CounterV2 that a snapshot could hold: .*numbers"),
        (lambda old: CounterV2({"a": 2**70}), "made no CounterV2 that a snapshot could hold: "),
        (lambda old: CounterV2({"\ud800": 1}), "made no CounterV2 that a snapshot could hold: .*surrogates"),
    ],
)
def test_an_upgrade_that_fails_is_named(upgrade: Callable[[Any], Any], text: str) -> None:
    recording = Recording()
    write_snapshot(recording, CounterV1(["a"]), name="Counter")
    with pytest.raises(SnapshotError, match=text):
        read_snapshot(
            recording.image(), Counter, version=3, upgrades={1: (CounterV1, upgrade), 2: (CounterV2, add_total)}
        )


def test_a_name_that_is_declared_counts_and_not_that_of_the_class() -> None:
    recording = Recording()
    write_snapshot(recording, BOOK, name="orders")
    with pytest.raises(SnapshotError, match="state of type orders, not Book: read the states in the order"):
        read_snapshot(recording.image(), Book)
    assert read_snapshot(recording.image(), Book, name="orders") == BOOK
    renamed = msgspec.defstruct("Renamed", [("orders", dict[int, Order]), ("total", int)])
    assert msgspec.structs.astuple(read_snapshot(recording.image(), renamed, name="orders")) == (BOOK.orders, 7)


def test_a_name_has_a_limit() -> None:
    recording = Recording()
    with pytest.raises(ValueError, match="name of 257 bytes of a snapshot: it must have up to 256"):
        write_snapshot(recording, BOOK, name="x" * 257)
    assert recording.messages == []
    write_snapshot(recording, BOOK, name="\u00e4" * 128)
    assert read_snapshot(recording.image(), Book, name="\u00e4" * 128) == BOOK


def test_the_version_can_be_asked_for_each_state_and_stays_unread() -> None:
    recording = Recording()
    write_snapshot(recording, BOOK, version=5)
    write_snapshot(recording, Counter({}, 0), version=6)
    image = recording.image()
    position = image.position
    assert [snapshot_version(image), snapshot_version(image), image.position] == [5, 5, position]
    assert read_snapshot(image, Book, version=5) == BOOK
    assert snapshot_version(image) == 6
    assert read_snapshot(image, Counter, version=6) == Counter({}, 0)
    with pytest.raises(SnapshotError, match="the snapshot ends where a state should begin"):
        snapshot_version(image)


def test_the_version_of_what_is_no_state_is_refused() -> None:
    recording = Recording()
    recording.messages = [b"something else"]
    with pytest.raises(SnapshotError, match="not a state written by write_snapshot"):
        snapshot_version(recording.image())


@pytest.mark.parametrize("length", [0, 1, 1376, 1377, 5000])
def test_a_peek_leaves_the_message_to_every_way_of_reading(length: int) -> None:
    messages = [bytes([number]) * length for number in range(3)]
    recording = Recording()
    recording.messages = messages
    image = recording.image()
    first_frame = min(length, 1376)
    assert image.peek() == messages[0][:first_frame]
    assert next(iter(image)) == messages[0]
    assert image.peek() == messages[1][:first_frame]
    polled: list[bytes] = []
    while not polled:
        image.poll(polled.append, 1)
    assert polled == [messages[1]]
    assert image.peek() == messages[2][:first_frame]
    assert list(image) == [messages[2]]
    assert image.peek() is None


def test_a_peek_in_the_middle_of_a_message_or_of_a_poll_is_refused() -> None:
    recording = Recording()
    recording.messages = [bytes(5000), b"last"]
    image = recording.image()
    image.poll(_never_called, 1)
    with pytest.raises(ClusterError, match=r"poll\(\) has read a part of a message"):
        image.peek()
    errors: list[str] = []

    def peek(message: bytes) -> None:
        with pytest.raises(ClusterError) as found:
            image.peek()
        errors.append(str(found.value))

    while not image.is_end_of_stream:
        image.poll(peek)
    assert len(errors) == 2
    assert all(text.startswith("the snapshot is being read: inside the handler of a poll()") for text in errors)


def _never_called(message: bytes) -> None:
    raise AssertionError("a part of a message was handed over")


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
