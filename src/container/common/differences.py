"""How an error shows two values that differ: where they do, however long they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from container.common.values import shown

_LONGEST = 80
# How much is shown before the difference: whatever the characters are, the difference itself is shown as well.
_BYTES_BEFORE, _CHARACTERS_BEFORE = 16, 5


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()
"""Stands for a value that is missing where another one is."""


class Difference(NamedTuple):
    """The first place where two values differ, and what each has there, as texts."""

    path: str
    one: str
    other: str


def first_difference(one: Any, other: Any, path: str = "") -> Difference | None:
    """The first place where two values differ, below dicts, lists and tuples; None when they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one:
            if key in other and (found := first_difference(one[key], other[key], f"{path}.{key}".lstrip("."))):
                return found
        if list(one) != list(other):
            return Difference(f"the keys{path and f' of {path}'}, or their order", *shown_apart(list(one), list(other)))
        return None
    if type(one) is type(other) and isinstance(one, list | tuple):
        names = getattr(one, "_fields", None)
        for index, (value, other_value) in enumerate(zip(one, other, strict=False)):
            place = f"{path}[{index}]" if names is None else f"{path}.{names[index]}".lstrip(".")
            if found := first_difference(value, other_value, place):
                return found
        if len(one) == len(other):
            return None
        least = min(len(one), len(other))
        return Difference(f"the length{path and f' of {path}'}", _length(one, least), _length(other, least))
    return None if _is_same(one, other) else Difference(path, *_apart(one, other))


def shown_apart(one: Any, other: Any) -> tuple[str, str]:
    """Two values that differ, each as :func:`~container.common.values.shown` shows it, or where it differs.

    The texts are never the same, unless the values are equal. Never raises.
    """
    whole, other_whole = _text(one), _text(other)
    if whole != other_whole and max(len(whole), len(other_whole)) <= _LONGEST:
        return whole, other_whole
    found = first_difference(one, other)
    if found is None:
        return shown(one), shown(other)
    if not found.path:
        return found.one, found.other
    return f"{shown(one)}, {found.path}: {found.one}", f"{shown(other)}, {found.path}: {found.other}"


def _length(values: Sequence[Any], least: int) -> str:
    """How many values there are, with the first one that the other does not have."""
    return f"{len(values)} ({shown(values[least])} at [{least}])" if len(values) > least else str(len(values))


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)  # NaN is what it is, and 0.0 is not -0.0
    try:
        return bool(one == other)
    except Exception:  # of the user's
        return _text(one) == _text(other)


def _apart(one: Any, other: Any) -> tuple[str, str]:
    """Two values that have no parts, as texts that differ."""
    if isinstance(one, bytes | bytearray | memoryview) and isinstance(other, bytes | bytearray | memoryview):
        one, other = bytes(one), bytes(other)
        return _from(one, other, "byte", _BYTES_BEFORE) if one != other else _alike(one, other)
    if isinstance(one, str) and isinstance(other, str):
        return _from(one, other, "character", _CHARACTERS_BEFORE) if one != other else _alike(one, other)
    text, other_text = _text(one), _text(other)
    if text == other_text:
        return _alike(one, other)
    if max(len(text), len(other_text)) <= _LONGEST:
        return text, other_text
    begin = max(_first(text, other_text) - _BYTES_BEFORE, 0)
    return _cut(text, begin), _cut(other_text, begin)


def _from(one: Any, other: Any, unit: str, before: int) -> tuple[str, str]:
    if max(len(_text(one)), len(_text(other))) <= _LONGEST:
        return _text(one), _text(other)
    begin = max(_first(one, other) - before, 0)
    place = f" from {unit} {begin} on" if begin else ""
    return f"{shown(one[begin:])}{place}", f"{shown(other[begin:])}{place}"


def _alike(one: Any, other: Any) -> tuple[str, str]:
    text = shown(one)
    if type(one) is not type(other):
        return f"{text} ({type(one).__qualname__})", f"{text} ({type(other).__qualname__})"
    return text, f"{text}, which looks the same and is not equal"


def _first(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Where two sequences differ first."""
    least = min(len(one), len(other))
    return next((index for index in range(least) if one[index] != other[index]), least)


def _cut(text: str, begin: int) -> str:
    end = begin + _LONGEST
    return f"{'...' * (begin > 0)}{text[begin:end]}{'...' * (end < len(text))}"


def _text(value: Any) -> str:
    """All of a value, on one line."""
    try:
        if type(value) is int and value.bit_length() > 256:
            return hex(value)  # as decimal digits it would take long, or be refused
        text = " ".join(repr(value).split("\n"))
        text.encode()
    except Exception:
        return f"<{type(value).__name__}>"
    return text
