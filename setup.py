"""Builds the extension modules: generates the codecs, turns every .pyx into C with Cython and compiles it."""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from Cython.Build import cythonize
from Cython.Compiler.Errors import CompileError as TranslationError
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCE = "src"


@dataclass(frozen=True)
class Build:
    """What makes a release a release, and a debug build a debug build."""

    c_directory: str
    directives: dict[str, object]
    c_flags: list[str]
    macros: list[tuple[str, str | None]]


# Every module inlines the codecs that it cimports and uses a few of their functions, hence no warning about
# unused ones. What gcc says about initialization and sizes is wrong: it does not see the checks of results.
# A wrong C type between modules is an error: it would be a wrong read at run time.
# Without the macro Cython compiles every `assert` in; with it the statement leaves no trace.
RELEASE = Build(
    c_directory="build/cython",
    directives={
        "language_level": 3,
        "boundscheck": False,
        "wraparound": False,
        "initializedcheck": False,
        "cdivision": True,
        "autotestdict": False,
        # What unpickling makes would not be initialised.
        "auto_pickle": False,
        "freethreading_compatible": True,
        "show_performance_hints": True,
    },
    c_flags=[
        "-O2",
        "-g0",
        "-fwrapv",
        "-fno-strict-aliasing",
        "-pthread",
        "-Wno-unused-function",
        "-Wno-unused-variable",
        "-Wno-unused-but-set-variable",
        "-Wno-maybe-uninitialized",
        "-Wno-alloc-size-larger-than",
        "-Werror=implicit-function-declaration",
        "-Werror=incompatible-pointer-types",
        "-Werror=int-conversion",
    ],
    macros=[("CYTHON_WITHOUT_ASSERTIONS", "1")],
)
# Keeps what a release leaves out: Cython's own checks, every `assert` of a .pyx, line tracing, symbols.
DEBUG = Build(
    c_directory="build/cython-debug",
    directives=RELEASE.directives | {"boundscheck": True, "initializedcheck": True, "linetrace": True},
    c_flags=[*RELEASE.c_flags, "-Og", "-g", "-UNDEBUG"],
    macros=[("CYTHON_TRACE", "1")],
)

# Before glibc 2.34 dlopen is in a library of its own; only the module that calls it shall depend on that.
LINK_FLAGS = ["-Wl,--as-needed"] if sys.platform == "linux" else []

# After each call of a `cdef void f() nogil` that may raise, Cython takes the GIL to look for an exception:
# some 70 ns that nobody sees in the source.
MISSING_NOEXCEPT = re.compile(
    r"^performance hint: (?P<place>.+?:\d+:\d+): (?P<hint>(?:Exception check|No exception value).*)$",
    re.MULTILINE,
)


def generate_codecs() -> None:
    """Write src/container/codecs from schema/, leaving files alone whose text has not changed."""
    subprocess.run([sys.executable, str(Path("scripts", "generate_codecs.py"))], check=True)


def extensions() -> list[Extension]:
    """One extension for each .pyx of the package, named as its path says."""
    return [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [path.as_posix()],
            include_dirs=[SOURCE],
            libraries=["dl"] if sys.platform == "linux" else [],
            extra_link_args=LINK_FLAGS,
        )
        for path in sorted(Path(SOURCE).rglob("*.pyx"))
    ]


def translate(modules: list[Extension], build: Build, jobs: int) -> dict[str, list[str]]:
    """Turn each module's .pyx into C under the build's directory; return the C sources by module name.

    Raises CompileError when Cython cannot translate a module, and when it hints at a missing `noexcept`: then
    with file, line and column.
    """
    settings = Path(build.c_directory, "directives")
    # Cython does not see that a module depends on the codecs that it cimports by `from container.codecs cimport`.
    codecs = b"".join(path.read_bytes() for path in sorted(Path(SOURCE, "container", "codecs").glob("*.pxd")))
    wanted = f"{build.directives!r} {hashlib.sha256(codecs).hexdigest()}"
    changed = not settings.exists() or settings.read_text() != wanted
    failure = ""
    with removed_unless_checked(build.c_directory) as hints, captured_stderr() as log:
        try:
            translated = cythonize(  # type: ignore[no-untyped-call]
                modules,
                nthreads=jobs,
                build_dir=build.c_directory,
                include_path=[SOURCE],
                compiler_directives=build.directives,
                force=changed,
            )
        except TranslationError as error:
            failure = f"Cython cannot translate {error.message_only}: see its messages"
        log.seek(0)
        hints += sorted({f"{found['place']}: {found['hint']}" for found in MISSING_NOEXCEPT.finditer(log.read())})
    if hints:
        failure = "\n  ".join(["declare these functions noexcept or give them an error return:", *hints])
    if failure:
        raise CompileError(failure)
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(wanted)
    return {module.name: module.sources for module in translated}


@contextmanager
def removed_unless_checked(directory: str) -> Iterator[list[str]]:
    """Remove the C files that the block writes under a directory if it adds to the list, or does not end.

    Cython takes a module whose C file is newer for done: the next build would not repeat a hint about it.
    """

    def c_files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path(directory).rglob("*.c")}

    before = c_files()
    hints: list[str] = []
    checked = False
    try:
        yield hints
        checked = not hints
    finally:
        if not checked:
            for path, written in c_files().items():
                if before.get(path) != written:
                    path.unlink()


@contextmanager
def captured_stderr() -> Iterator[TextIO]:
    """Collect what this process and its children write to standard error in a file, and show it at the end.

    Cython prints hints from worker processes, so replacing sys.stderr alone would not see them.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        sys.stderr.flush()
        shown = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            with open(2, "w", encoding="utf-8", buffering=1, closefd=False) as raw, redirect_stderr(raw):
                yield log
        finally:
            os.dup2(shown, 2)
            os.close(shown)
            log.seek(0)
            sys.stderr.write(log.read())


class BuildExtensions(build_ext):
    """Translates with the directives above before it compiles; `--debug` selects the debug build."""

    def finalize_options(self) -> None:
        if self.editable_mode:
            # Its own directory is temporary, which would compile everything on every editable installation.
            self.build_lib = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def run(self) -> None:
        build = DEBUG if self.debug else RELEASE
        sources = translate(list(self.extensions), build, self.parallel or 1)
        for extension in self.extensions:
            extension.sources = sources[extension.name]
            extension.depends = [*extension.depends, "setup.py"]
            # Flags behind ours: with "-O0" the C compiler takes a third of the time, where nothing is measured.
            extension.extra_compile_args = [*build.c_flags, *os.environ.get("CONTAINER_CFLAGS", "").split()]
            extension.define_macros = build.macros
        super().run()

    def build_extension(self, ext: Extension) -> None:
        """Compile a module if it is out of date, and print its name then: a whole build takes minutes."""
        module = Path(self.get_ext_fullpath(ext.name))
        before = module.stat().st_mtime_ns if module.exists() else None
        super().build_extension(ext)
        if module.stat().st_mtime_ns != before:
            print(f"compiled {ext.name}", flush=True)


if __name__ == "__main__":
    generate_codecs()
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExtensions})
