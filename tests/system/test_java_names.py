"""The names of Aeron that the tables from Java have are those of the jar, and Java reads property files as we do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from container.settings.property_files import parse_properties
from container.testing.processes.java_tools import find_java
from container.testing.processes.local_archive import run_archive_tool
from tests.limits import LIMIT_S
from tests.test_from_java import LINES, rows

FILE = rb"""# comment \
a = 1
   ! b = 2
c   d
e:f
g =h\
   i,\

j=k
l\ m\=n=o
p=\u00e4\t\q\\
q=\\\
   r
   s\
t=u
=v
w
\# x=\! y
z="""


def output(java_classes: Path, jar: Path, *arguments: str) -> list[str]:
    command = [
        str(find_java()),
        "-cp",
        os.pathsep.join(map(str, (java_classes, jar))),
        "container.tests.JavaNames",
        str(jar),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return sorted(done.stdout.splitlines())


def test_the_names_are_those_of_the_jar(java_classes: Path, jar: Path) -> None:
    assert output(java_classes, jar) == sorted(LINES), "write what JavaNames prints to tests/java_names.txt, sorted"


@pytest.mark.parametrize("content", [FILE, FILE.replace(b"\n", b"\r\n"), b"a\\", b"", b"a=\\ud83d\\ude00\xe4\f=\f"])
def test_java_reads_a_file_of_properties_as_we_do(
    java_classes: Path, jar: Path, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "c.properties"
    file.write_bytes(content)
    found = {}
    for line in output(java_classes, jar, str(file)):
        name, _, value = line.partition("=")
        found[text_of(name)] = text_of(value)
    assert parse_properties(content) == found


def text_of(units: str) -> str:
    return bytes.fromhex(units).decode("utf-16-be", "surrogatepass")


def test_the_words_of_the_archive_tool_are_those_of_its_help(tmp_path: Path) -> None:
    lines = run_archive_tool(tmp_path, "help", output_directory=tmp_path).output.splitlines()
    words = {line.split()[0].rstrip(":") for line in lines if line.startswith("  ") and line[2:3].isalpha()}
    assert words == set(rows("from-java.md", "ArchiveTool"))
