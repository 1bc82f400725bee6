"""How plain the sentences of a page are; as a program, prints the figures of pages, and lowers what is allowed.

Docstrings have the same words to avoid: ``python -m tests.prose src/container/api.py`` prints the sentences to mend.
"""

from __future__ import annotations

import ast
import math
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

from tests.documents import DOCUMENTS, ROOT

LONG = 25
"""A sentence of more words than this is long."""

# Words that read as translated, or say little: each has a plainer one ("reports", "cannot", "silently", "immediately").
# No file has them.
STILTED = re.compile(
    r"\b(?:in vain|so to speak|can not|aloud|in silence|without a word|tells|(?:is|are|was|were) told|told to"
    r"|all the same|as good as ever|look so often|a text that is|restarted, too|had told)\b",
    re.I,
)

# The same, where tests still have some: "a directory that is none", "so many … at most", "goes on" for "continues",
# "the begin" for "the beginning".
STIFF = re.compile(
    r"\b(?:(?<!there )(?:is|are|was|were) (?-i:none)|so (?:many|much) (?:at|of|as)|(?:go|goes|went|gone) on|anew"
    r"|heed\w*|shall"
    r"|but for|pass(?:es|ed)? over|is to be|are to be|of its own accord"
    r"|(?:the|an?|its|no|'s) begin(?! (?:marker|frame))"
    # "is no buffer" for "is not a buffer"; "is no longer" and "is no newer" compare.
    r"|(?<!there )(?:is|are|was|were) no(?= \w)"
    r"(?! (?:longer|more|less|worse|better|deeper|earlier|later|newer|older)\b))\b",
    re.I,
)

# Sentences that name nothing before their verb ("What is read …", "Who waits …", "Of these …"). A question may.
OPENING = re.compile(r"[*_\"'(]*(?:What|Who|Whoever|Whatever|Of)\b(?!.*\?)")

# The same on pages, which a reader scans: no half question ("Whether it runs", "Where it ends") either.
PAGE_OPENING = re.compile(r"[*_\"'(]*(?:What|Who|Whoever|Whatever|Of|Whether|How|Where)\b(?!.*\?)")

CEILINGS = Path(__file__).with_name("prose_ceilings.toml")
_NO_END = re.compile(r"\b(?:e\.g|i\.e|vs|etc)\.$")


@dataclass(frozen=True)
class Figures:
    """The sentences of one page, as whole numbers that :data:`TARGET` and :data:`CEILINGS` limit."""

    median_words: int
    """The median over sentences of paragraphs and lists, rounded up."""
    long_percent: int
    """How many of these have more than :data:`LONG` words, rounded up."""
    long_cells: int
    """Sentences of that length in cells of tables."""
    openings: int
    """Sentences, also in cells, that :data:`PAGE_OPENING` finds."""
    stiff: int
    """Places that :data:`STIFF` finds."""

    def exceeds(self, limit: Figures) -> bool:
        return any(mine > allowed for mine, allowed in zip(astuple(self), astuple(limit), strict=True))

    def lowered_to(self, other: Figures) -> Figures:
        return Figures(*map(min, astuple(self), astuple(other)))


TARGET = Figures(15, 20, 0, 0, 0)
"""The goal of every page. One that has not yet got there has ceilings of its own, which only fall."""


def ceilings() -> dict[str, Figures]:
    """The limits of each page that has not reached the target."""
    return {page: Figures(**limits) for page, limits in tomllib.loads(CEILINGS.read_text(encoding="utf-8")).items()}


def sentences(text: str) -> list[str]:
    """The sentences of a page's paragraphs and lists, without blocks of code, tables and headings."""
    text = re.sub(r"^ *(?:#|\|).*$", "\n", _without_code(text), flags=re.M)
    text = re.sub(r"^ *(?:[-*>]|\d+\.) +", "\n\n", text, flags=re.M)
    return [sentence for paragraph in re.split(r"\n\s*\n", text) for sentence in _split(paragraph)]


def sentences_of_cells(text: str) -> list[str]:
    """Those of the cells of a page's tables."""
    rows = [line for line in _without_code(text).splitlines() if line.lstrip().startswith("|")]
    return [sentence for row in rows for cell in re.split(r"(?<!\\)\|", row) for sentence in _split(cell)]


def _without_code(text: str) -> str:
    text = re.sub(r"^ *```.*?^ *```", "\n", text, flags=re.M | re.S)
    return re.sub(r"<!--.*?-->", "\n", text, flags=re.S)


def _split(paragraph: str) -> list[str]:
    flat = " ".join(paragraph.split())
    flat = re.sub(r"``.+?``|`[^`]+`", lambda code: re.sub(r"[.!?\s]", "_", code[0]), flat)  # code is one word
    flat = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", flat)
    found, begin = [], 0
    for end in re.finditer(r"[.!?][\"')*_]*\s+(?=[\"'(*_]*[A-Z`0-9\[])", flat):
        if not _NO_END.search(flat[begin : end.start() + 1]):
            found.append(flat[begin : end.end()].strip())
            begin = end.end()
    found.append(flat[begin:].strip())
    return [sentence for sentence in found if re.search(r"\w", sentence)]


def words(sentence: str) -> int:
    return len(re.findall(r"\S*\w\S*", sentence))


def figures(text: str) -> Figures:
    prose, cells = sentences(text), sentences_of_cells(text)
    lengths = [words(sentence) for sentence in prose]
    return Figures(
        math.ceil(median(lengths)) if lengths else 0,
        math.ceil(100 * sum(length > LONG for length in lengths) / len(lengths)) if lengths else 0,
        sum(words(sentence) > LONG for sentence in cells),
        sum(PAGE_OPENING.match(sentence) is not None for sentence in prose + cells),
        sum(len(STIFF.findall(sentence)) for sentence in prose + cells),
    )


CODE = {".py", ".pyi", ".pyx", ".pxd"}
_TRIPLE_QUOTED = re.compile(r'(?<![\\"])"""(.*?)(?<!\\)"""', re.S)


def docstrings(path: Path) -> list[tuple[int, str]]:
    """Line and text of each docstring in a file of code: of modules, classes and functions, and behind attributes."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".py", ".pyi"}:
        return [
            (node.lineno, node.value.value)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]
    # Python cannot parse Cython, but a string alone on its line is a docstring there as well.
    return [
        (text.count("\n", 0, found.start()) + 1, found[1])
        for found in _TRIPLE_QUOTED.finditer(text)
        if text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip() in {"", "r"}
    ]


_COMMENT = re.compile(r"(?P<own>^|.*\s\s)\s*#:?(?: (?P<text>.*)|$)")


def comments(path: Path) -> list[tuple[int, str]]:
    """First line and text of each comment in a file of code; lines in a row without code are one."""
    found: list[tuple[int, str]] = []
    end = 0  # the line behind the last comment, where that has lines of its own
    for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        comment = _COMMENT.fullmatch(text)
        if comment is None:
            continue
        is_alone = not comment["own"].strip()
        if is_alone and end == line:
            found[-1] = found[-1][0], f"{found[-1][1]}\n{comment['text'] or ''}"
        else:
            found.append((line, comment["text"] or ""))
        end = line + 1 if is_alone else 0
    return found


def stiff_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Line of the docstring and text of each sentence in a file's docstrings that is not plain."""
    return _stiff(docstrings(path))


def stiff_comments(path: Path) -> Iterator[tuple[int, str]]:
    """The same of its comments."""
    return _stiff(comments(path))


def _stiff(texts: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for line, text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            for sentence in _split(paragraph):
                if OPENING.match(sentence) or STIFF.search(sentence) or STILTED.search(sentence):
                    yield line, sentence


def main(arguments: list[str]) -> None:
    """Print the figures of pages, by default all; of one alone, its sentences to mend. ``--lower`` writes the ceilings.

    A ceiling never rises that way: a page that has become worse keeps its own, and fails its test. For a file of code,
    print the sentences to mend of its docstrings and comments.
    """
    for argument in arguments:
        if Path(argument).suffix in CODE:
            for line, sentence in [*stiff_sentences(ROOT / argument), *stiff_comments(ROOT / argument)]:
                print(f"{argument}:{line}: {sentence}")
    arguments, given = [one for one in arguments if Path(one).suffix not in CODE], arguments
    if given and not arguments:
        return
    pages = [argument for argument in arguments if argument != "--lower"] or DOCUMENTS
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages}
    for page, text in texts.items():
        print(f"{page:36} {figures(text)}")
    if len(pages) == 1:
        for sentence in sentences(text) + sentences_of_cells(text):
            if words(sentence) > LONG or PAGE_OPENING.match(sentence) or STIFF.search(sentence):
                print(f"{words(sentence):4} {sentence}")
    if "--lower" in arguments:
        limits = {page: limit.lowered_to(figures(texts[page])) for page, limit in ceilings().items() if page in texts}
        _write({**ceilings(), **limits})


def _write(limits: dict[str, Figures]) -> None:
    lines = CEILINGS.read_text(encoding="utf-8").splitlines()[:1]
    for page, limit in limits.items():
        if limit.exceeds(TARGET):
            raised = [max(pair) for pair in zip(astuple(limit), astuple(TARGET), strict=True)]
            values = ", ".join(f"{name} = {value}" for name, value in zip(Figures.__annotations__, raised, strict=True))
            lines.append(f'"{page}" = {{ {values} }}')
    CEILINGS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
