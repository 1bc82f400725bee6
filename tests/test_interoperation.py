"""The table of docs/interoperation.md: each cell names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance_table import names_of_tests

DOCUMENT = Path(__file__).parent.parent / "docs" / "interoperation.md"


def rows() -> list[list[str]]:
    """The cells of each line of the tables that name tests."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in DOCUMENT.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and ".py::" in line
    ]


def test_each_cell_names_tests_that_exist() -> None:
    assert len(rows()) >= 11
    for java, _ours, _what, tests in rows():
        named = re.findall(r"`([^`]+)`", tests)
        assert named, java
        assert [test for test in named if test not in names_of_tests()] == []


def test_the_tests_of_real_archives_and_consensus_modules_are_in_the_table() -> None:
    named = {test for row in rows() for test in re.findall(r"`([^`]+)`", row[3])}
    there = {test for test in names_of_tests() if test.startswith("system/test_native_")}
    assert there <= named
