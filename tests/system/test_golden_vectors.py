"""Makes the golden vectors anew with the reference encoders, and compares them with the files."""

import subprocess
from pathlib import Path

import pytest

from container.testing.processes.java_tools import compile_java, java_command, resolve_jar
from tests.golden.vectors import DIRECTORY, FILES

GENERATION_LIMIT_S = 60


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    jar = resolve_jar()
    classes = compile_java([DIRECTORY / "GoldenVectors.java"], tmp_path_factory.mktemp("classes"), [jar])
    return [jar, classes]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_vectors_are_what_the_reference_encoders_make(path: Path, class_path: list[Path]) -> None:
    content = path.read_text(encoding="ascii")
    # Only the questions are handed over, so every answer that comes back is the encoders'.
    questions = "".join(line.partition(" -> ")[0] + "\n" for line in content.splitlines())
    result = subprocess.run(
        java_command("GoldenVectors", class_path),
        input=questions,
        capture_output=True,
        text=True,
        timeout=GENERATION_LIMIT_S,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == content
