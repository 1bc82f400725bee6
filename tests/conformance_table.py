"""Reads the tables that map statements of a protocol to the tests that show them, and finds all tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent


class Row(NamedTuple):
    """One line of a table."""

    number: int
    statement: str
    tests: list[str]
    shown_by: str


@cache
def names_of_tests() -> frozenset[str]:
    """``file::test`` of every test, with files relative to this directory."""
    return frozenset(
        f"{path.relative_to(TESTS).as_posix()}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@cache
def read_table(name: str) -> list[Row]:
    """The rows of a table, whose file is relative to this directory."""
    rows = []
    for line in (TESTS / name).read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"\| (\d+) \| (.+?) \| (.*) \| (.+?) \|", line):
            number, statement, tests, shown_by = found.groups()
            rows.append(Row(int(number), statement, re.findall(r"`([^`]+)`", tests), shown_by))
    return rows
