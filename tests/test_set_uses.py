"""Uses of sets by their order are found at their lines, and uses that come to the same in any order are not."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import msgspec
import pytest

from container.errors import ContainerError
from container.testing.memory.checks import ForbiddenCallError, check_calls
from container.testing.memory.set_uses import SetWatch
from tests.services import Adding, life

NAMES = {"ada", "bob", "cyd"}
NUMBERS = frozenset({1, 2, 3})


class Tags(set[str]):
    """A set of its own kind."""


class Holder(msgspec.Struct):
    """Has sets in fields."""

    names: set[str]
    groups: dict[str, set[str]]


class Slotted:
    """Has a set in a slot, and one behind a property."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names = set(NAMES)

    @property
    def others(self) -> set[str]:
        """Is not called by the watch."""
        return self.names


HOLDER = Holder(set(NAMES), {"a": set(NAMES)})
SLOTTED = Slotted()


def loop() -> None:
    for _name in NAMES:
        pass


def loop_of_difference() -> None:
    for _name in NAMES - {"ada"}:
        pass


def loop_of_keys() -> None:
    for _name in {"a": 1, "b": 2, "c": 3}.keys() - {"a"}:
        pass


def delegate() -> list[str]:
    def inner() -> Iterator[str]:
        yield from NAMES

    return list(inner())


def unpack() -> None:
    _one, *_others = NAMES


def unpack_all() -> None:
    _one, _two, _three = NUMBERS


def add_to_list() -> list[str]:
    names: list[str] = []
    names += NAMES
    return names


def extend() -> list[str]:
    names: list[str] = []
    names.extend(HOLDER.names)
    return names


def extend_bound() -> list[str]:
    names: list[str] = []
    more = names.extend
    more(NAMES)
    return names


def replace_all() -> list[str]:
    names = ["x"]
    names[:] = NAMES
    return names


def local_join() -> str:
    names = {"x", *NAMES}
    return ",".join(names)


def closure_join() -> str:
    names = set(NAMES)

    def inner() -> str:
        return ",".join(names)

    return inner()


def arguments(*_arguments: object) -> None:
    """Takes all."""


def made() -> set[str]:
    return {*NAMES, "x"}


def now_and_then(number: int) -> list[str] | set[str]:
    return list("ab") if number % 2 else {"a"}


def nested_comprehension() -> list[str]:
    return [letter for names in [NAMES] for name in names for letter in name]


WRONG: dict[str, Callable[[], object]] = {
    "loop": loop,
    "difference": loop_of_difference,
    "keys": loop_of_keys,
    "yield from": delegate,
    "unpack": unpack,
    "unpack all": unpack_all,
    "+=": add_to_list,
    "extend": extend,
    "bound extend": extend_bound,
    "slice": replace_all,
    "join of local": local_join,
    "join of closure": closure_join,
    "nested": nested_comprehension,
    "list": lambda: list(NAMES),
    "list of numbers": lambda: list(NUMBERS),
    "tuple": lambda: tuple(NAMES),
    "subclass": lambda: list(Tags(NAMES)),
    "comprehension": lambda: [name for name in NAMES],  # noqa: C416
    "dict comprehension": lambda: {name: 1 for name in NAMES},  # noqa: C420
    "generator": lambda: list(name for name in NAMES),  # noqa: C400
    "join": lambda: b"".join({b"a", b"b"}),
    "join of union": lambda: "".join(NAMES | {"dan"}),
    "join of method": lambda: "".join(NAMES.union({"dan"})),
    "join of set()": lambda: "".join(set(["a", "b"])),  # noqa: C405
    "join of slot": lambda: "".join(SLOTTED.names),
    "join of item": lambda: "".join(HOLDER.groups["a"]),
    "join by the type": lambda: str.join("", NAMES),
    "join of result": lambda: "".join(made()),
    "join of property": lambda: "".join(SLOTTED.others),
    "join of copy": lambda: "".join(NAMES.copy()),
    "join of get": lambda: "".join(HOLDER.groups.get("a", ())),
    "join of setdefault": lambda: "".join(HOLDER.groups.setdefault("a", set())),
    "star of result": lambda: [1, *made()],
    "next": lambda: next(iter(NAMES)),
    "star in list": lambda: [*NAMES],
    "star in tuple": lambda: (1, *NAMES),
    "star in list of local": lambda: [0, *(NAMES - {"bob"})],
    "star arguments": lambda: arguments(*NAMES),
    "star arguments behind": lambda: arguments(1, *NAMES),
    "enumerate": lambda: list(enumerate(NAMES)),
    "zip": lambda: list(zip(NAMES, range(3), strict=True)),
    "map": lambda: list(map(str, NUMBERS)),
    "dict.fromkeys": lambda: dict.fromkeys(NAMES),
    "deque": lambda: deque(NAMES),
    "chain": lambda: list(itertools.chain(NAMES, ["x"])),
    "reduce": lambda: functools.reduce(lambda one, other: one + other, NAMES),
    "sum of floats": lambda: sum({0.1, 0.2, 0.3}),
    "pop": lambda: set(NAMES).pop(),
    "pop by the type": lambda: set.pop(set(NAMES)),
}
RIGHT: dict[str, Callable[[], object]] = {
    "sorted": lambda: sorted(NAMES),
    "sorted generator": lambda: sorted(name.upper() for name in NAMES),
    "sorted list": lambda: sorted([name.upper() for name in NAMES]),
    "sorted map": lambda: sorted(map(str.upper, NAMES)),
    "sorted star": lambda: sorted([*NAMES, "x"]),
    "sorted list()": lambda: sorted(list(NAMES)),  # noqa: C414
    "loop of sorted": lambda: [name for name in sorted(NAMES)],  # noqa: C416
    "len": lambda: len(NAMES),
    "sum": lambda: sum(NUMBERS) + sum(number * 2 for number in NUMBERS) + math.prod(NUMBERS),
    "min": lambda: min(NAMES) + max(NAMES),
    "any": lambda: any(NUMBERS) and all(name.isalpha() for name in NAMES),
    "set": lambda: set(NAMES) | frozenset(NUMBERS),
    "set comprehension": lambda: {name.upper() for name in NAMES},
    "set of nested": lambda: {letter for name in NAMES for letter in name},
    "nested generators": lambda: sorted(name for name in (name.upper() for name in NAMES)),
    "set display": lambda: {*NAMES, "x"},
    "membership": lambda: "ada" in NAMES and NAMES.isdisjoint(NUMBERS),
    "algebra": lambda: ((NAMES | {"x"}) & {"x", "y"}) ^ ({"a", "b"} - {"a"}),
    "methods": lambda: NAMES.union(NUMBERS, ["x"]).difference({"x", "y"}),
    "keys": lambda: {"ada": 1}.keys() & NAMES,
    "comparison": lambda: Tags("xy") == NAMES or Tags("xy") < NAMES or {"ada": 1}.keys() <= NAMES,
    "one element": lambda: [*{"a"}, *list({"b"}), next(iter({"c"})), ",".join({"d"})],
    "join of a result that is a list": lambda: "".join(sorted(made())) + "".join("".join(now_and_then(3))),
    "none": lambda: list(set()),
    "dict": lambda: [list({"a": 1, "b": 2}), [*{"c": 1, "d": 2}], list({1: 2, 3: 4}.items())],
    "list": lambda: ",".join(["a", "b"]),
    "kept": lambda: [NAMES, {"a": NAMES}],
    "appended": lambda: deque[Any]().append(NAMES),
    "text": lambda: f"{NAMES} {NAMES!r}" + str(NAMES) + repr(NUMBERS),
    "hash": lambda: hash(NUMBERS) + bool(NAMES),
    "copy": lambda: NAMES.copy(),
}


def uses(function: Callable[[], object]) -> list[tuple[str, int]]:
    """Functions and lines that were reported."""
    found: list[tuple[str, int]] = []

    def report(frame: FrameType, _kind: type) -> None:
        found.append((frame.f_code.co_filename, frame.f_lineno))

    with SetWatch(report) as watch:
        watch.is_on = True
        try:
            function()
        finally:
            watch.is_on = False
    return found


@pytest.mark.parametrize("name", WRONG)
def test_a_use_by_order_is_found(name: str) -> None:
    function = WRONG[name]
    found = uses(function)
    assert found, name
    first = function.__code__.co_firstlineno
    assert all(place == (__file__, line) and first <= line < first + 8 for place in found for line in [place[1]])
    assert uses(function) == found  # it is found again by another watch


@pytest.mark.parametrize("name", RIGHT)
def test_a_use_that_is_the_same_in_any_order_is_not_found(name: str) -> None:
    assert uses(RIGHT[name]) == []


def test_a_property_is_not_called() -> None:
    called = 0

    class Counting:
        @property
        def names(self) -> set[str]:
            nonlocal called
            called += 1
            return NAMES

    counting = Counting()
    uses(lambda: [*counting.names])
    assert called == 1


def test_an_object_that_is_called_is_not_asked_for_attributes() -> None:
    class Called:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

        def __call__(self, _names: set[str]) -> list[str]:
            return list(NAMES)

    called = Called()
    found = uses(lambda: called(NAMES))
    assert [line for _file, line in found] == [Called.__call__.__code__.co_firstlineno + 1]


def test_code_without_a_file_is_watched_as_well() -> None:
    names: dict[str, Any] = {"__name__": "made", "names": NAMES}
    exec("def loop():\n    for name in names: pass\n    return sorted(names)", names)
    assert uses(names["loop"]) == [("<string>", 2)]


def test_a_watch_needs_a_tool_id() -> None:
    taken = [tool for tool in range(6) if sys.monitoring.get_tool(tool) is None]
    for tool in taken:
        sys.monitoring.use_tool_id(tool, "taken")
    try:
        with pytest.raises(ContainerError, match=r"sys\.monitoring has no tool id left"):
            uses(WRONG["loop"])
    finally:
        for tool in taken:
            sys.monitoring.free_tool_id(tool)
    assert uses(WRONG["loop"])


def test_what_is_no_longer_watched_is_not_found() -> None:
    found: list[Any] = []
    with SetWatch(lambda *place: found.append(place)) as watch:
        list(NAMES)
        watch.is_on = True
        other = threading.Thread(target=lambda: list(NAMES))
        other.start()
        other.join()
        watch.is_on = False
    assert list(Tags(NAMES))
    assert found == []


@pytest.mark.parametrize("kind", [set, frozenset, Tags])
def test_a_callback_that_uses_the_order_of_a_set_is_named_with_its_line(kind: type[set[str]]) -> None:
    class Looping(Adding):
        def add(self, payload: bytes) -> None:
            for name in kind({"x", payload.decode()}):
                self.state.names.append(name)

    with pytest.raises(ForbiddenCallError, match="callbacks called what may answer differently") as e:
        check_calls(Looping, life)
    line = Looping.add.__code__.co_firstlineno + 1
    assert e.value.calls == (f"order of a {kind.__name__} in {__file__}:{line}",)


class Sets(Adding):
    """Good: keeps a set, and sorts it for its snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def add(self, payload: bytes) -> None:
        self.names = {*self.names, payload.decode()} - {"a1"}
        self.state.names = sorted(self.names)
        self.state.total = sum(len(name) for name in self.names) + len(self.names)


def test_a_callback_that_keeps_sets_and_sorts_them_is_not_blamed() -> None:
    check_calls(Sets, life)
