"""Reads the tables that map statements of a protocol to the tests that show them, and finds all tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
UNIT, SYSTEM, OPEN = "unit", "system", "open: "


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
        f"{path.relative_to(TESTS).as_posix()}::{name}"
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.M)
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


def check_has_tests_or_is_open(row: Row, table: str, *, may_name_cases: bool = False) -> None:
    """A row names tests that are there, each once, or says that it is open; ``test[case]`` where it may."""
    names = [test.partition("[")[0] if may_name_cases else test for test in row.tests]
    missing = [name for name in names if name not in names_of_tests()]
    assert not missing, f"{row.statement}: {table} names tests that are not there: {missing}"
    assert bool(row.tests) != row.shown_by.startswith(OPEN), row.statement
    assert len(row.tests) == len(set(row.tests)), row.statement


def check_is_shown_where_it_says(row: Row) -> None:
    """The last cell of a row, up to a remark behind ``;``, names its tests."""
    is_system = {test.startswith("system/") for test in row.tests}
    expected = " + ".join([UNIT] * (False in is_system) + [SYSTEM] * (True in is_system))
    assert row.shown_by.partition(";")[0] == expected, row
