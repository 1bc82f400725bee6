"""Plain words: no page may become worse to read than its ceilings, which only fall; docstrings have none to mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import DOCUMENTS, ROOT
from tests.prose import (
    CODE,
    STILTED,
    TARGET,
    Figures,
    ceilings,
    comments,
    docstrings,
    figures,
    sentences,
    stiff_comments,
    stiff_sentences,
)
from tests.test_source import FILES, PACKAGE, lines_matching

PLAIN = (
    *(PACKAGE, ROOT / "benchmarks", ROOT / "examples", ROOT / "scripts", ROOT / "setup.py"),
    *(ROOT / "src" / "aeron_cluster_pytest.py", ROOT / "src" / "pyspark_aeron_cluster.py"),
)
"""Directories and files whose docstrings and comments are plain."""

STIFF_IN_TESTS = 346
"""Sentences to mend in the docstrings of tests/; the number only falls."""


def test_no_file_has_stilted_words() -> None:
    found = lines_matching(STILTED, lambda path: path.suffix == ".md" or not path.is_relative_to(ROOT / "tests"))
    assert not found, "say it in plain words:\n" + "\n".join(found)


@pytest.mark.parametrize("page", DOCUMENTS)
def test_a_page_is_as_plain_as_its_ceilings(page: str) -> None:
    found = figures((ROOT / page).read_text(encoding="utf-8"))
    limit = ceilings().get(page, TARGET)
    assert not found.exceeds(limit), f"{found} exceeds {limit}: `python -m tests.prose {page}` prints its sentences"


def test_a_page_that_is_plain_has_no_ceilings_of_its_own() -> None:
    for page, limit in ceilings().items():
        found = figures((ROOT / page).read_text(encoding="utf-8"))
        assert found.exceeds(TARGET), f"{page} is plain: `python -m tests.prose --lower` takes it out of the ceilings"
        assert limit.exceeds(TARGET), page


def test_the_readme_has_six_hundred_words_at_most() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 600


def _stiff_in(*directories: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in FILES
        if path.suffix in CODE and any(path.is_relative_to(directory) for directory in directories)
        for line, sentence in stiff_sentences(path)
    ]


def test_docstrings_are_plain() -> None:
    found = _stiff_in(*PLAIN)
    assert not found, "name the thing first, in plain words:\n" + "\n".join(found)


def test_comments_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in FILES
        if path.suffix in CODE and any(path.is_relative_to(directory) for directory in PLAIN)
        for line, sentence in stiff_comments(path)
    ]
    assert not found, "name the thing first, in plain words:\n" + "\n".join(found)


def test_docstrings_of_tests_become_plainer() -> None:
    found = _stiff_in(ROOT / "tests")
    assert len(found) <= STIFF_IN_TESTS, "name the thing first, in plain words:\n" + "\n".join(found)
    assert len(found) == STIFF_IN_TESTS, f"lower STIFF_IN_TESTS to {len(found)}"


CYTHON = '''"""What a module is."""
cdef class A:
    """A class.

    Who calls it goes
    on.
    """
    TEXT = """What a string
    has."""
    cdef int x(self):
        r"""Plain. Of \\*."""
'''
PYTHON = CYTHON.replace("cdef class A:", "class A:").replace("cdef int x", "def x")


@pytest.mark.parametrize(("name", "text"), [("a.pyx", CYTHON), ("a.py", PYTHON)])
def test_the_docstrings_of_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert [line for line, _ in docstrings(path)] == [1, 3, 11]
    assert list(stiff_sentences(path)) == [(1, "What a module is."), (3, "Who calls it goes on."), (11, "Of \\*.")]


def test_the_comments_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "# One comment. What is\n# read.\n\nA = 1  # Who asks.\n    # Plain.\n    #: Of B.\nB = '# What'\n#\n",
        encoding="utf-8",
    )
    assert comments(path) == [(1, "One comment. What is\nread."), (4, "Who asks."), (5, "Plain.\nOf B."), (8, "")]
    assert list(stiff_comments(path)) == [(1, "What is read."), (4, "Who asks."), (5, "Of B.")]


PAGE = """# What a heading says

What is read
stays. Is it? **Who waits?** `a. B` is one word, e.g. Here. See [two words](x.md).

- Of these {words}.

| Of a cell | goes on |
| --- | --- |

```sh
What is code
```
"""


@pytest.mark.parametrize(
    ("sentence", "is_stiff"),
    [
        ("It is no buffer.", True),
        ("They were no files.", True),
        ("There is no buffer.", False),
        ("It is no longer open, and no newer.", False),
        ("It is no newer than that.", False),
        ("The answer is no, or late.", False),
    ],
)
def test_a_denial_names_no_noun(tmp_path: Path, sentence: str, is_stiff: bool) -> None:
    (tmp_path / "a.py").write_text(f"# {sentence}\n", encoding="utf-8")
    assert bool(list(stiff_comments(tmp_path / "a.py"))) == is_stiff


def test_the_figures_of_a_page() -> None:
    text = PAGE.format(words="one " * 24)
    assert sentences(text)[:3] == ["What is read stays.", "Is it?", "**Who waits?**"]
    assert len(sentences(text)) == 6
    assert figures(text) == Figures(median_words=4, long_percent=17, long_cells=0, openings=3, stiff=1)
    assert figures(PAGE.format(words="shall")).long_percent == 0
    assert figures("Where it ends. How? It ends.\n\n| Whether it is so. | Whereas |\n").openings == 2
    assert figures("| a | " + "word " * 26 + "|\n").long_cells == 1
    assert not figures(text).exceeds(Figures(4, 17, 0, 3, 1))
    assert figures(text).exceeds(Figures(4, 17, 0, 2, 1))
