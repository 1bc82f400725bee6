"""The generator of the codecs: same in, same out; nothing written twice; wrong descriptions named."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.generate_codecs import NOTICE, DescriptionError, generate, load_schema, parse_schema
from tests.limits import LIMIT_S

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "generate_codecs.py"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S)


def description(**changes: Any) -> dict[str, Any]:
    message = {"id": 1, "doc": "A test.", "fields": ["a int64", "b Colour 2"], "var": ["c ascii"], **changes}
    return {
        "name": "test",
        "id": 7,
        "version": 3,
        "enum": {"Colour": {"RED": 0}},
        "message": {"Thing": message},
    }


def test_every_file_says_that_it_is_generated() -> None:
    files = generate()
    assert set(files) == {
        "__init__.py",
        "archive.pxd",
        "archive_codec.h",
        "cluster.pxd",
        "cluster_codec.h",
        "mark.pxd",
        "mark_codec.h",
        "messages.pyi",
        "messages.pyx",
        "sbe.pxd",
        "sbe_codec.h",
        "snapshot_types.pxd",
    }
    for text in files.values():
        assert text.splitlines()[0].endswith(f" {NOTICE}")


def test_output_is_deterministic() -> None:
    assert generate() == generate()


def test_runs_isolated_from_any_directory_and_leaves_unchanged_files_alone(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "codecs"
    assert run("--output", str(output), cwd=tmp_path).returncode == 0
    assert {path.name: path.read_text(encoding="utf-8") for path in output.iterdir()} == generate()
    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir()}
    (output / "mark.pxd").write_text("changed", encoding="utf-8")
    assert run("--output", str(output), cwd=tmp_path).returncode == 0
    after = {path.name: path.stat().st_mtime_ns for path in output.iterdir()}
    assert after.pop("mark.pxd") != before.pop("mark.pxd")
    assert after == before
    assert (output / "mark.pxd").read_text(encoding="utf-8") == generate()["mark.pxd"]


def test_check_names_what_is_not_up_to_date_and_writes_nothing(tmp_path: Path) -> None:
    run("--output", str(tmp_path), cwd=tmp_path)
    assert run("--check", "--output", str(tmp_path), cwd=tmp_path).returncode == 0
    (tmp_path / "sbe.pxd").unlink()
    (tmp_path / "mark.pxd").write_text("changed", encoding="utf-8")
    result = run("--check", "--output", str(tmp_path), cwd=tmp_path)
    assert result.returncode == 1
    assert "sbe.pxd is not up to date" in result.stderr
    assert "mark.pxd is not up to date" in result.stderr
    assert result.stderr.count("\n") == 2
    assert not (tmp_path / "sbe.pxd").exists()
    assert (tmp_path / "mark.pxd").read_text(encoding="utf-8") == "changed"


def test_codecs_in_the_package_are_up_to_date() -> None:
    result = run("--check", cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")


def test_offsets_follow_from_the_order_of_the_fields() -> None:
    (message,) = parse_schema(description(fields=["a int64", "b Colour", "c version", "d int64 2"])).messages
    assert [(field.name, field.offset, field.end) for field in message.fields] == [
        ("a", 0, 8),
        ("b", 8, 12),
        ("c", 12, 16),
        ("d", 16, 24),
    ]
    assert (message.block_length(1), message.block_length(2), message.written_block_length) == (16, 24, 24)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fields": ["a int64", "b uint16"]}, "Thing.b: unknown type uint16"),
        ({"group": {"parts": {"fields": ["a text"]}}}, "Thing.parts.a: unknown type text"),
        (
            {"group": {"parts": {"fields": ["a int64", "b int64 2"]}}},
            "Thing.parts.b: what is in a group cannot be newer",
        ),
        ({"group": {"parts": {"fields": ["count int64"]}}}, "Thing.parts: count has another meaning in the output"),
        ({"group": {"parts": {"fields": ["a int64"], "id": 1}}}, "Thing.parts: unknown key id"),
        ({"group": {"length": {"fields": ["a int64"]}}}, "Thing: length has another meaning in the output"),
        ({"fields": ["a int64 three"]}, '"a int64 three" is not "name type" or "name type since"'),
        ({"fields": ["a"]}, '"a" is not "name type"'),
        ({"fields": ["a int64 4", "b int64 3"]}, "Thing.b: a field cannot be older than the one before it"),
        ({"var": ["c text"]}, "Thing.c: unknown type text"),
        ({"var": ["length ascii"]}, "Thing: length has another meaning in the output"),
        ({"fields": ["capacity int64"]}, "Thing: capacity has another meaning in the output"),
        ({"block_length": 4}, "Thing: fields of 12 bytes in a shorter block"),
        ({"payload": 30, "var": []}, "Thing: a payload must follow the block at once"),
        ({"payload": 20}, "Thing: a payload must follow the block at once"),
        ({"feilds": []}, "Thing: unknown key feilds"),
    ],
)
def test_wrong_description_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        parse_schema(description(**changes))
    assert text in str(caught.value)


def test_shared_template_id_is_refused() -> None:
    wrong = description()
    wrong["message"]["Other"] = wrong["message"]["Thing"]
    with pytest.raises(DescriptionError, match="two messages share a template id"):
        parse_schema(wrong)


def test_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text('name = "broken"\nid = 1\nversion = 1\n', encoding="utf-8")
    with pytest.raises(DescriptionError, match=r"broken\.toml: enum is missing"):
        load_schema(path)
