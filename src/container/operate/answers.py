"""How a word ends: its facts and exit code, and the errors of words that have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from container.errors import ContainerError
from container.operate.facts import Facts

EXIT_NO = 1
"""The answer is no, or what was asked for was refused or has failed."""
EXIT_UNKNOWN = 3
"""The files do not say: missing, unreadable, damaged or of another version."""


class Answer(NamedTuple):
    """The facts of a word, and the exit code: 0, or 1 for a no."""

    facts: Facts
    exit_code: int = 0


class NoFactsError(ContainerError):
    """The files do not say what was asked for; the text names the file and what is wrong with it."""


class RefusedError(ContainerError):
    """The request was refused, and nothing has changed; the text says why, and what to do."""


def known(value: int) -> int | None:
    """Aeron's -1 as None."""
    return None if value == -1 else value


def text(value: bytes | None) -> str:
    """Return a text of a message, which is ASCII; empty without one."""
    return "" if value is None else bytes(value).decode("ascii", "replace")


def plain(text: str) -> str:
    """Return a text from a file without what would control a terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


def named(names: Sequence[str], number: int) -> str:
    """Return what a number stands for; the number itself when that is not known."""
    return names[number] if 0 <= number < len(names) else str(number)
