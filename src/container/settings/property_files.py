"""Reads ``.properties`` files as Java's ``Properties.load(InputStream)`` does; a system test compares the two."""

from __future__ import annotations

import re
from collections.abc import Iterator

from container.common.values import shown

_BLANKS = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(content: bytes) -> dict[str, str]:
    """The values by key, of which the last counts; Latin-1 with escapes, as Java has it.

    Raises ValueError for a ``\\u`` without four hexadecimal digits.
    """
    found = {}
    for line in _logical_lines(content.decode("latin-1")):
        key = _KEY.match(line)
        end = key.end() if key is not None else 0
        separator = _SEPARATOR.match(line, end)
        found[_unescaped(line[:end])] = _unescaped(line[separator.end() if separator is not None else end :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; one that ends with an odd number of backslashes continues on the next."""
    begun: str | None = None
    for natural in _LINE_ENDS.split(text):
        line = natural.lstrip(_BLANKS)
        if begun is None and (not line or line[0] in "#!"):
            continue
        line = (begun or "") + line
        begun = None
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = line[:-1]
        elif line:
            yield line
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        if found[2] == "u":
            raise ValueError(f"\\u without four hexadecimal digits: {shown(text)}")
        return _ESCAPED.get(found[2], found[2] or "")

    # Two halves of a character beyond 16 bits stand for that one.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
