"""The tables from Java: each name of Aeron's jar is there, and each name of ours that stands beside one exists."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import container.errors
from container.client import ClientContext
from container.common.aeron_defaults import CounterType
from container.operate.operator_command import WORDS
from container.settings.archive_table import archive_settings_table
from container.settings.backup_table import backup_settings_table
from container.settings.consensus_module_table import consensus_module_settings_table
from container.settings.container_table import settings_table
from container.settings.driver_table import driver_settings_table
from container.settings.java_properties import JAVA_PROPERTIES

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "tests" / "java_names.txt").read_text(encoding="ascii").splitlines()[1:]
NAMES = [line.split() for line in LINES]
"""What tests/java/JavaNames.java prints over the jar; a system test compares them."""

TABLES = {
    "container": settings_table(),
    "archive": archive_settings_table(),
    "consensus module": consensus_module_settings_table(),
    "backup": backup_settings_table(),
    "driver": driver_settings_table(),
}


def rows(page: str, heading: str, columns: int = 2) -> dict[str, str]:
    """The last column by the one before it, of the tables below a heading."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == columns and "`" in cells[-2]:
            assert cells[-2].strip("`") not in found, line
            found[cells[-2].strip("`")] = cells[-1]
    assert found, f"{page} has no table below {heading}"
    return found


def names(kind: str, *first: str) -> set[str]:
    return {each[1 + len(first)] for each in NAMES if each[0] == kind and each[1 : 1 + len(first)] == [*first]}


def test_each_property_is_there_beside_its_setting() -> None:
    found = rows("from-java.md", "Properties")
    assert set(found) == names("property") == JAVA_PROPERTIES
    for name, ours in found.items():
        expected = {
            f"`{setting.name}` ({part})"
            for part, table in TABLES.items()
            for setting in table.values()
            if setting.property == name
        }
        given = {f"{each}" for each in re.findall(r"`\w+` \([a-z ]+\)", ours) if not each.endswith("(client)")}
        assert given == expected, name
        for field in re.findall(r"`(\w+)` \(client\)", ours):
            assert field in {each.name for each in fields(ClientContext)}, name
        assert given or ours.startswith(("none: ", "the C driver reads `AERON_")) or "(client)" in ours, name


def test_each_method_of_a_context_is_there() -> None:
    for context in {each[1] for each in NAMES if each[0] == "context"}:
        found = rows("from-java-contexts.md", context.rpartition(".")[2].replace("$", "."))
        assert set(found) == names("context", context), context
        for name, ours in found.items():
            assert ours.startswith(("none: ", "`", "the C driver reads `AERON_")), f"{context} {name}: {ours}"


@pytest.mark.parametrize(
    ("context", "part"),
    [
        ("Archive", "archive"),
        ("ConsensusModule", "consensus module"),
        ("ClusteredServiceContainer", "container"),
        ("MediaDriver", "driver"),
        ("ClusterBackup", "backup"),
    ],
)
def test_what_stands_beside_a_method_can_be_given(context: str, part: str) -> None:
    from container.archive.server.archive_arguments import ArchiveArguments
    from container.setting_types import ContainerArguments

    known = {*TABLES[part], *ContainerArguments.__annotations__, *ArchiveArguments.__annotations__, "service"}
    known |= {"random_source", "driver_timeout", "aeron_dir"}
    for name, ours in rows("from-java-contexts.md", f"{context}.Context").items():
        setting = re.match(r"`(\w+)", ours)
        if setting is not None:
            assert setting[1] in known, name


def test_each_counter_is_there_with_our_name() -> None:
    found = rows("from-java-contexts.md", "Counters", columns=3)
    assert set(found) == names("counter")
    ours = {each.value: each.name for each in CounterType}
    for _kind, name, type_id in [each for each in NAMES if each[0] == "counter"]:
        if int(type_id) in ours:
            assert found[name] == f"`{ours[int(type_id)]}`"
        else:
            assert found[name].startswith(("none: ", "the C driver's")), name


def test_each_word_of_a_tool_is_there_beside_a_word_of_ours() -> None:
    assert names("word", "ClusterTool") == set(rows("from-java.md", "ClusterTool"))
    headings = ("ClusterTool", "ArchiveTool", "Other programs")
    for name, ours in [item for heading in headings for item in rows("from-java.md", heading).items()]:
        words = re.findall(r"`([a-z- ]+)`", ours)
        assert words or ours.startswith("none: "), name
        if not ours.startswith("none: "):
            assert set(words) <= {*WORDS, "node", "backup"}, name


def test_each_exception_is_there_beside_ours() -> None:
    found = rows("from-java.md", "Exceptions")
    assert set(found) == names("exception")
    for name, ours in found.items():
        classes = re.findall(r"`(\w+(?:Error|Event|Termination))`", ours)
        assert classes or ours.startswith("none: "), name
        assert all(hasattr(container.errors, each) for each in classes), name
