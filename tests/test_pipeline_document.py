"""docs/pipeline.md is in step with the code: views, options, commands, and code that compiles."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from container.recordings.views import VIEWS, views_markdown

TEXT = (Path(__file__).parents[1] / "docs" / "pipeline.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


def test_the_chapter_of_views_is_that_of_the_code() -> None:
    assert TEXT.endswith("\n" + views_markdown()), (
        "write container.recordings.views.views_markdown() to the end of docs/pipeline.md"
    )


def test_every_option_is_in_the_table() -> None:
    options = pytest.importorskip("container.spark.options")
    named = re.findall(r"^\| `(\w+)` \| ", TEXT.split("## Options of the source")[1].split("\n## ")[0], re.M)
    assert sorted(named) == sorted(["path", *options._PARSERS])


def test_every_check_of_an_audit_is_in_the_tables_of_what_it_compares_and_of_what_it_misses() -> None:
    checks = pytest.importorskip("container.pipeline.audit").CHECKS
    tables = TEXT.split("### Audit")[1].split("\n### ")[0].split("| check | ")[1:]
    assert [table.partition(" |")[0] for table in tables] == ["comparison", "missing data that is a finding"]
    for table in tables:
        rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.M)
        assert tuple(name for name, _ in rows) == checks
    states = re.compile(r"`(?:fail|warn)`")
    for name, cells in rows:
        found, silent = cells.split(" | ")
        assert states.search(found), f"{name}: what is noticed, and as what?"
        assert not states.search(silent), f"{name}: what is not a finding has a state"


def test_what_can_be_missing_or_wrong_has_its_tests() -> None:
    table = TEXT.split("## Missing or wrong data")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert rows
    for row in rows:
        *_, cell, _ = row.split(" |")
        names = re.findall(r"`(test_\w+)`", cell)
        assert names, f"a row names no test: {row}"
        assert [name for name in names if f"def {name}(" not in tests] == []


def test_the_table_of_what_can_be_wrong_names_each_view_and_each_command() -> None:
    chapter = TEXT.split("## Missing or wrong data")[1].split("\n## ")[0]
    assert [name for name in VIEWS if f"`{name}`" not in chapter] == []
    for command in ("ingest", "audit", "replay", "diff", "analytics"):
        assert re.search(rf"\b{command}\b", chapter), f"the table says nothing of {command}"


def test_commands_are_understood() -> None:
    from container.pipeline.pipeline_command import pipeline_parser

    parser = pipeline_parser(argparse.ArgumentParser, "pipeline")
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("aeron-cluster pipeline")]
    assert len(lines) >= 4
    for line in lines:
        assert callable(parser.parse_args(shlex.split(line)[2:]).command)


def test_code_compiles() -> None:
    assert len(blocks("python")) >= 7
    for block in blocks("python"):
        compile(block, "docs/pipeline.md", "exec")
