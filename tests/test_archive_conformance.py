"""The table of the archive's 78 statements: each has tests, which exist, or is open with a reason."""

from __future__ import annotations

import pytest

from tests.conformance_table import Row, names_of_tests, read_table

STATEMENT_COUNT = 78
UNIT, SYSTEM, OPEN = "unit", "system", "open: "


def table() -> list[Row]:
    """The rows of ``archive_conformance.md``."""
    return read_table("archive_conformance.md")


def test_every_statement_has_a_row() -> None:
    assert [row.number for row in table()] == list(range(1, STATEMENT_COUNT + 1))


@pytest.mark.parametrize("number", range(1, STATEMENT_COUNT + 1))
def test_every_statement_has_tests_that_exist(number: int) -> None:
    row = table()[number - 1]
    missing = [test for test in row.tests if test not in names_of_tests()]
    assert not missing, f"{row.statement}: archive_conformance.md names tests that are not there"
    assert bool(row.tests) != row.shown_by.startswith(OPEN), row.statement


def test_the_table_says_where_each_statement_is_shown() -> None:
    for row in table():
        if row.tests:
            is_system = {test.startswith("system/") for test in row.tests}
            expected = " + ".join([UNIT] * (False in is_system) + [SYSTEM] * (True in is_system))
            assert row.shown_by.partition(";")[0] == expected, row
