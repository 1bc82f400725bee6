"""SBE beside Real Logic's sbe-tool: which schemas are accepted, what messages say, and what encodings are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from container.sbe.charsets import codec_of, decode
from tests.sbe_tool import Comparison, SbeTool
from tests.seeds import drawn

MULTIPLE = ("Big5", "Big5-HKSCS", "EUC-JP", "EUC-KR", "GB18030", "GB2312", "Shift_JIS", "windows-31j", "x-windows-949")
"""Encodings with characters of two bytes."""
UNLIKE = {("\u2571", "\uff0f"), ("\u2572", "\uff3c")}
"""Of Big5: Java reads lines that cross from bytes of which Python makes what other bytes are as well."""


@pytest.fixture(scope="module")
def tool(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SbeTool]:
    with SbeTool(tmp_path_factory.mktemp("sbe-tool"), jar) as tool:
        yield tool


def compare(tool: SbeTool, directory: Path, seeds: list[int]) -> None:
    comparison = Comparison(tool, directory)
    for seed in seeds:
        comparison.seed(seed)
    counts = comparison.counts
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    assert counts["schemas accepted by both"] > len(seeds) // 2
    assert counts["schemas refused by both"] > len(seeds) // 5
    assert counts["schemas refused by us alone"] <= len(seeds) // 50
    assert counts["values"] > 50 * len(seeds)


def test_sbe_tool_accepts_the_same_schemas_and_reads_the_same(tool: SbeTool, tmp_path: Path) -> None:
    compare(tool, tmp_path, [*range(150), *drawn("sbe", 50)])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_sbe_tool_accepts_the_same_of_many_schemas_and_reads_the_same(tool: SbeTool, tmp_path: Path, part: int) -> None:
    compare(tool, tmp_path, [*range(1_000 * part + 150, 1_000 * (part + 1) + 150), *drawn(f"sbe {part}", 1_000)])


def test_an_encoding_by_any_name_of_java_is_read_as_java_reads_it(tool: SbeTool) -> None:
    """Each byte by each name; where either has no character for it, there is nothing to compare."""
    names = [name for name in tool.names() if codec_of(name) is not None]
    assert len(names) > 400
    for name in names:
        codec = codec_of(name)
        assert codec is not None
        for byte in range(256):
            theirs, ours = tool.decode(name, bytes([byte])), decode(codec, bytes([byte]))
            assert "\ufffd" in theirs + ours or ours == theirs, (name, byte)


@pytest.mark.parametrize("name", MULTIPLE)
def test_characters_of_two_bytes_are_read_as_java_reads_them(tool: SbeTool, name: str) -> None:
    codec = codec_of(name)
    assert codec is not None
    pairs = [bytes([first, second]) for first in range(0x81, 0xFF) if first != 0x8F for second in range(0x40, 0xFF)]
    theirs = tool.decode(name, b"\n".join(pairs)).split("\n")
    ours = decode(codec, b"\n".join(pairs)).split("\n")
    assert len(theirs) == len(ours) == len(pairs)
    both = [(one, other) for one, other in zip(theirs, ours, strict=True) if "\ufffd" not in one + other]
    assert len(both) > 5_000
    assert {(one, other) for one, other in both if one != other} <= UNLIKE


def test_texts_with_marks_of_their_order_are_read_as_java_reads_them(tool: SbeTool) -> None:
    texts = [mark + text for mark in (b"", b"\xfe\xff", b"\xff\xfe", b"\0\0\xfe\xff", b"\xff\xfe\0\0") for text in
             (b"", b"\0A", b"A\0", b"\0\0\0A", b"A\0\0\0")]  # fmt: skip
    for name in ("UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32", "UTF-32BE", "UTF-32LE", "UTF-8"):
        codec = codec_of(name)
        assert codec is not None
        for text in texts:
            theirs, ours = tool.decode(name, text), decode(codec, text)
            assert "\ufffd" in theirs + ours or ours == theirs, (name, text)
