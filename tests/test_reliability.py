"""The tables of docs/reliability.md: every fault is in them, and what they name is there."""

from __future__ import annotations

import re
from functools import cache

import pytest

from container.testing.processes.local_cluster import QUICK_FAILOVER
from tests.conformance_table import TESTS, names_of_tests
from tests.soak.faults import FAULTS

DOCUMENT = TESTS.parent / "docs" / "reliability.md"
# Of a single member the session timeout is Aeron's own.
NOT_QUICK = {"aeron.cluster.session.timeout"}
SPAN = r"\d+(?: to \d+)?"
HOW_LONG = re.compile(rf"(?:(?:end|wait|whole) {SPAN}(?:, |$))+|immediately|{SPAN} s|")


@cache
def tables() -> dict[str, list[list[str]]]:
    """The rows below each heading, without the table's own heading, as lists of cells."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| "):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return {heading: rows[2:] for heading, rows in found.items()}


FAULT_TABLES = [heading for heading in tables() if heading != "Time limits"]


def test_every_fault_has_a_row_of_its_own() -> None:
    named = [name for rows in tables().values() for row in rows for name in re.findall(r"fault `(\w+)`", row[-1])]
    assert sorted(named) == sorted(FAULTS)


def test_no_fault_has_two_rows() -> None:
    faults = [row[0] for heading in FAULT_TABLES for row in tables()[heading]]
    assert sorted(faults) == sorted(set(faults))


@pytest.mark.parametrize("heading", FAULT_TABLES)
def test_each_row_says_how_it_is_shown_by_what_is_there(heading: str) -> None:
    known = names_of_tests() | {"./run fuzz", "own-tests.md"}
    for row in tables()[heading]:
        quoted = re.findall(r"(fault )?`([^`]+)`", row[-1])
        assert quoted or row[-1].startswith("all faults"), row
        assert [name for is_fault, name in quoted if name not in (FAULTS if is_fault else known)] == [], row


@pytest.mark.parametrize("heading", FAULT_TABLES)
def test_each_row_says_what_happens_and_how_long(heading: str) -> None:
    for row in tables()[heading]:
        assert len(row) == (3 if heading == "Bad input" else 5), row
        assert row[0], row
        assert row[-2 if len(row) == 3 else 2], row
        assert len(row) == 3 or HOW_LONG.fullmatch(row[3]), row


def test_the_timeouts_of_the_tests_are_those_of_the_harness() -> None:
    told = {row[0].strip("`"): row[1] for row in tables()["Time limits"]}
    assert {name: value for name, value in told.items() if name not in NOT_QUICK} == {
        name: QUICK_FAILOVER[name] for name in told if name not in NOT_QUICK
    }
    assert not NOT_QUICK & set(QUICK_FAILOVER)
