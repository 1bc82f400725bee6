"""Values that users give: how an error shows one, a near name for a misspelt one, when a text is a number or a path."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN_LENGTH = 80
_LONGEST_PATH = 5_000
_MAX_DIGITS = 19
_MAX_PATH_LENGTH = 65_535
_MAX_NAME_LENGTH = 100

TOO_LARGE = 2**64
"""Stands for every whole number with more digits than 64 bits have; outside of every range."""


def shown(value: object, longest: int = _SHOWN_LENGTH) -> str:
    """A value as an error names it: its repr on one line, shortened to ``longest`` characters. Never raises."""
    try:
        if type(value) is int and value.bit_length() > 256:
            return f"<int of {value.bit_length()} bits>"  # as decimal digits it would take long, or be refused
        if isinstance(value, str | bytes | bytearray):
            value = value[: 2 * longest]
        text = " ".join(repr(value).split("\n"))
        text.encode()
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def shown_path(path: object) -> str:
    """A path as an error names it: as :func:`shown`, but whole, as long as the system allows it to be."""
    return shown(path, _LONGEST_PATH)


def suggestion(name: object, known: Iterable[str], otherwise: str) -> str:
    """The advice behind an unknown name in an error: the known name near it, or else where to find the names."""
    import difflib

    if isinstance(name, str) and len(name) <= _MAX_NAME_LENGTH:
        matches = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1)
        if matches:
            return f"did you mean {matches[0]!r}?"
    return f"see {otherwise}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts, for a report: ``1 fault``, ``2,000 faults``. ``plural`` is for what takes no s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def whole_number(text: str) -> int | None:
    """The number that decimal digits stand for, with or without a sign; None when the text is something else.

    Python refuses to convert texts of some thousand digits. Here they are :data:`TOO_LARGE`, or less than -2**63.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not digits.isascii() or not digits.isdigit():
        return None
    digits = digits.lstrip("0") or "0"
    number = int(digits) if len(digits) <= _MAX_DIGITS else TOO_LARGE
    return -number if text.startswith("-") else number


def without_brackets(host: str) -> str:
    """A host as the system takes it: an address of IPv6 may be given as endpoints have it, such as ``[::1]``."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def host_of_endpoint(host: str) -> str:
    """A host as endpoints have it: an address of IPv6 in brackets."""
    host = without_brackets(host)
    return f"[{host}]" if ":" in host else host


def is_path(text: object) -> bool:
    """Whether a value is a string that the system accepts as a path."""
    if not isinstance(text, str) or not text or "\0" in text:
        return False
    try:
        return len(text.encode()) <= _MAX_PATH_LENGTH
    except UnicodeEncodeError:  # a half of a surrogate pair, or a byte of the environment that is not UTF-8
        return False
