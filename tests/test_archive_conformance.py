"""The table of the archive's 78 statements: each has tests, which exist, or is open with a reason."""

from __future__ import annotations

import re

import pytest

from tests.conformance_table import (
    Row,
    check_has_tests_or_is_open,
    check_is_shown_where_it_says,
    names_of_tests,
    read_table,
)

STATEMENT_COUNT = 78
STATEMENT_IN_NAME = re.compile(r"::test_(?:conformance_)?(\d+)_")
NUMBERED = (
    "test_archive_mark_file.py",
    "test_archive_statements.py",
    "test_control_adapter.py",
    "test_control_driver.py",
    "test_control_session.py",
    "system/test_archive_mark_file.py",
)
"""Files in which a number behind ``test_`` is that of a statement."""


def table() -> list[Row]:
    """The rows of ``archive_conformance.md``."""
    return read_table("archive_conformance.md")


def test_every_statement_has_a_row() -> None:
    assert [row.number for row in table()] == list(range(1, STATEMENT_COUNT + 1))


@pytest.mark.parametrize("number", range(1, STATEMENT_COUNT + 1))
def test_every_statement_has_tests_that_exist(number: int) -> None:
    check_has_tests_or_is_open(table()[number - 1], "archive_conformance.md", may_name_cases=True)


def test_every_test_with_a_statements_number_is_in_its_row() -> None:
    rows = {row.number: row.tests for row in table()}
    missing = [
        f"{number}: {test}"
        for test in sorted(names_of_tests())
        if test.startswith(NUMBERED)
        for number in map(int, STATEMENT_IN_NAME.findall(test))
        if test not in rows[number]
    ]
    assert not missing, "archive_conformance.md lacks:\n" + "\n".join(missing)


def test_the_table_says_where_each_statement_is_shown() -> None:
    for row in table():
        if row.tests:
            check_is_shown_where_it_says(row)
