"""The pages' names of things in this tree: each link, file, folder, module and test that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance_table import names_of_tests
from tests.documents import DOCUMENTS, ROOT
from tests.test_source import FILES

PACKAGE = ROOT / "src" / "container"
OF_THE_READER = {"my_service.py", "test_my_service.py", "container.py", "tests/test_counter.py"}
"""Files of the one who reads: named in examples."""


def names_in_the_tree() -> set[str]:
    """Each path, its ends, and both without a suffix: ``src/a/b.pyx`` is also ``a/b.pyx`` and ``a/b``."""
    files = [
        *FILES,
        *(path for path in (PACKAGE / "codecs").iterdir() if path.suffix in {".h", ".pxd", ".pyi", ".pyx"}),
    ]
    paths = {path.relative_to(ROOT) for path in files}
    paths |= {parent for path in paths for parent in path.parents}
    ends = {Path(*path.parts[begin:]) for path in paths for begin in range(len(path.parts))}
    return {str(name) for end in ends for name in (end, end.with_suffix(""))}


IN_THE_TREE = names_in_the_tree()
FIRST_FOLDERS = {path.name for place in (ROOT, PACKAGE) for path in place.iterdir() if path.is_dir()} - {"build"}


def prose(document: str) -> str:
    """The text outside of blocks."""
    return re.sub(r"^```.*?^```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.M | re.S)


def names_a_place(word: str) -> bool:
    """Whether it is a file of code, or a path that begins with a folder of the project or of the package."""
    first, slash, _ = word.partition("/")
    return re.fullmatch(r"[\w./-]+", word) is not None and (
        Path(word).suffix in {".pxd", ".py", ".pyi", ".pyx"} or bool(slash and first in FIRST_FOLDERS)
    )


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def missing_names(text: str) -> list[str]:
    words = [word for quoted in re.findall(r"`([^`\n]+)`", text) for word in quoted.split()]
    places = {word.rstrip("/") for word in words if names_a_place(word)}
    tests = {test for word in words for test in re.findall(r"^([\w/]+\.py::\w+)", word)}
    known = names_of_tests() | {f"tests/{test}" for test in names_of_tests()}
    return sorted(places - IN_THE_TREE - OF_THE_READER) + sorted(
        test for test in tests - known if test.partition("::")[0] not in OF_THE_READER
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_page_names_is_there(document: str) -> None:
    missing = missing_names(prose(document))
    assert not missing, f"{document} names what is not there: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_page_links_to_is_there(document: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = ((ROOT / document).parent / path) if path else ROOT / document
            assert target.exists(), f"{document}: {link}"
            assert not anchor or anchor in anchors(target), f"{document}: no such heading: {link}"


def test_what_is_missing_is_found() -> None:
    text = (
        "`src/container/api.py`, `agent/agent`, `codecs/`, `storage_seam.pxd`, `./run test tests/test_source.py`, `a/b`"
    )
    assert missing_names(text) == []
    assert missing_names("`transport.pxd` and `agent/gone`, `tests/test_source.py::test_gone`") == [
        "agent/gone", "transport.pxd", "tests/test_source.py::test_gone",
    ]  # fmt: skip
