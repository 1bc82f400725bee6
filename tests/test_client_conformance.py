"""The table of the client's twenty statements: each has tests, which exist, and says where it is shown."""

from __future__ import annotations

import pytest

from tests.conformance_table import Row, names_of_tests, read_table

STATEMENT_COUNT = 20
UNIT, SYSTEM = "unit", "system"


def table() -> list[Row]:
    """The rows of ``client_conformance.md``."""
    return read_table("client_conformance.md")


def test_every_statement_has_a_row() -> None:
    assert [row.number for row in table()] == list(range(1, STATEMENT_COUNT + 1))


@pytest.mark.parametrize("number", range(1, STATEMENT_COUNT + 1))
def test_every_statement_has_tests_that_exist(number: int) -> None:
    row = table()[number - 1]
    assert row.tests, row.statement
    missing = [test for test in row.tests if test not in names_of_tests()]
    assert not missing, f"{row.statement}: client_conformance.md names tests that are not there"


def test_the_table_says_where_each_statement_is_shown() -> None:
    for row in table():
        is_system = {test.startswith("system/") for test in row.tests}
        expected = " + ".join([UNIT] * (False in is_system) + [SYSTEM] * (True in is_system))
        assert row.shown_by == expected, row
