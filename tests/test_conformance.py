"""The table of the sixty statements: every statement has tests, every test in it exists, and none is left out."""

from __future__ import annotations

import re

import pytest

from tests.conformance_table import Row, check_is_shown_where_it_says, names_of_tests, read_table

STATEMENT_COUNT = 60
STATEMENT_IN_NAME = re.compile(r"(?<=_s)\d+(?=_)")


def table() -> list[Row]:
    """The rows of ``conformance.md``."""
    return read_table("conformance.md")


def numbers_in(test: str) -> set[int]:
    return {int(number) for number in STATEMENT_IN_NAME.findall(test.partition("::")[2])}


def test_every_statement_has_a_row() -> None:
    assert [row.number for row in table()] == list(range(1, STATEMENT_COUNT + 1))


@pytest.mark.parametrize("number", range(1, STATEMENT_COUNT + 1))
def test_a_statement_has_a_test_named_after_it(number: int) -> None:
    row = table()[number - 1]
    assert [test for test in row.tests if number in numbers_in(test)], row.statement


def test_every_test_of_the_table_exists() -> None:
    missing = [f"{row.number}: {test}" for row in table() for test in row.tests if test not in names_of_tests()]
    assert not missing, "conformance.md names tests that are not there:\n" + "\n".join(missing)


def test_every_test_with_a_statements_number_is_in_its_row() -> None:
    rows = {row.number: row.tests for row in table()}
    missing = [
        f"{number}: {test}"
        for test in sorted(names_of_tests())
        for number in numbers_in(test)
        if test not in rows.get(number, [])
    ]
    assert not missing, "conformance.md lacks:\n" + "\n".join(missing)


def test_the_table_says_where_each_statement_is_shown() -> None:
    for row in table():
        check_is_shown_where_it_says(row)
