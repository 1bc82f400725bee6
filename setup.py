"""Builds the extension modules: generates the codecs, turns every .pyx into C with Cython and compiles it.

A module is made again when something that it is made of has changed: its source, each declaration and header that it
reaches, a setting, Cython or Python. Contents are compared and not times, so a checkout or a copy rebuilds nothing.
"""

import filecmp
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import astuple, dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCE = Path("src")
CODECS = SOURCE / "container" / "codecs"
SHARED = "container._cyutility"
"""The module with code that Cython would otherwise write into each of the others; it has no source."""
PLATFORM = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"


@dataclass(frozen=True)
class Build:
    """The differences between a release and a debug build."""

    c_directory: Path
    directives: dict[str, object]
    c_flags: list[str]
    macros: list[tuple[str, str | None]]


# Every module has all inline functions of the headers that it includes and uses a few of them, hence no warning about
# unused ones. gcc's warnings about initialization and sizes are wrong: it does not see the checks of results.
# A wrong C type between modules is an error: it would be a wrong read at run time.
# Without the macro Cython compiles every `assert` in; with it the statement leaves no trace.
RELEASE = Build(
    c_directory=Path("build", "cython"),
    directives={
        "language_level": 3,
        "boundscheck": False,
        "wraparound": False,
        "initializedcheck": False,
        "cdivision": True,
        "autotestdict": False,
        # Unpickled objects would not be initialised.
        "auto_pickle": False,
        "emit_code_comments": False,
        "freethreading_compatible": True,
        "show_performance_hints": True,
    },
    c_flags=[
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
    c_directory=Path("build", "cython-debug"),
    directives=RELEASE.directives | {"boundscheck": True, "initializedcheck": True, "linetrace": True},
    c_flags=[*RELEASE.c_flags, "-Og", "-g", "-UNDEBUG"],
    macros=[("CYTHON_TRACE", "1")],
)

# The C compiler's level of optimisation. With -O1 the modules that messages pass through take as many instructions for
# each as with -O2, and half of the time to compile; -Og takes a third.
OPTIMISATION = {
    f"container.{room}.{name}": level
    for level, rooms in {
        # Loops over many rows or bytes.
        "-O2": {
            "files": "checksums",
            "recordings": "batch_decoder columns frame_mask frame_reader log_decoder message_reader snapshot_decoder",
            "sbe": "block_walk",
        },
        # No message passes through these in production.
        "-Og": {
            "aeron": "client conductor_events keepalive library media_driver",
            "agent": "agent_thread",
            "archive.server": "archive_counters archive_mark_file",
            "archive.client": (
                "archive_client_context archive_connection archive_snapshot_store async_archive recording_counters"
            ),
            "archive.server.sessions": (
                "control_adapter control_session recording_subscription replication_session responses"
            ),
            "archive.server.store": "catalog recovery",
            "client": "connect_steps round_trips",
            "codecs": "messages",
            "consensus": (
                "archive_upkeep cluster_control cluster_member consensus_counters leader_log member_election_host "
                "member_log_replay member_services member_snapshots member_start member_status member_termination "
                "service_joins snapshot_messages steps term_preparation"
            ),
            "files": "cluster_mark_file error_log mark_file",
            "operate": "cluster_control",
            "service": "cluster_counters service_counters state_check",
            "testing.memory": "manual_time memory_stores set_iteration transport_probe",
            "testing.processes": "recording_writer",
            "testing.simulation": "disk fabric observed_service scheduler taps turns virtual_time",
            "transport": "wait_reporter",
        },
    }.items()
    for room, names in rooms.items()
    for name in names.split()
}
USUAL_OPTIMISATION = "-O1"

# Before glibc 2.34 dlopen is in a library of its own; only the module that calls it may depend on that.
LINK_FLAGS = ["-Wl,--as-needed"] if sys.platform == "linux" else []

# After each call of a `cdef void f() nogil` that may raise, Cython takes the GIL to look for an exception:
# some 70 ns that nobody sees in the source.
MISSING_NOEXCEPT = re.compile(
    r"^performance hint: (?P<place>.+?:\d+:\d+): (?P<hint>(?:Exception check|No exception value).*)$",
    re.MULTILINE,
)

CIMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<package>[\w.]+)[ \t]+)?cimport[ \t]+(?P<names>\([^)]*\)|[^\n#]*)", re.MULTILINE
)
HEADER = re.compile(r'^[ \t]*cdef[ \t]+extern[ \t]+from[ \t]+"(?P<header>[^"]+)"', re.MULTILINE)


def generate_codecs() -> None:
    """Write src/container/codecs from schema/, leaving files alone whose text has not changed."""
    subprocess.run([sys.executable, str(Path("scripts", "generate_codecs.py"))], check=True)


def extensions() -> list[Extension]:
    """One extension for each .pyx of the package, named as its path says, and the one that all others share."""
    sources = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.pyx")}
    # The largest first: at the end of a build no core waits for one of them.
    names = sorted(sources, key=lambda name: (-sources[name].stat().st_size, name))
    return [extension(SHARED, []), *(extension(name, [sources[name].as_posix()]) for name in names)]


def extension(name: str, sources: list[str]) -> Extension:
    return Extension(
        name,
        sources,
        include_dirs=[str(SOURCE), str(CODECS)],
        libraries=["dl"] if sys.platform == "linux" else [],
        extra_link_args=LINK_FLAGS,
    )


@cache
def reached(path: Path) -> frozenset[Path]:
    """The declarations and headers that one file names; Cython and the C compiler read them with it."""
    text = path.read_text(encoding="utf-8")
    found = {path.with_suffix(".pxd")} if path.suffix == ".pyx" else set()
    found |= {path.with_name(match["header"]) for match in HEADER.finditer(text)}
    for match in CIMPORT.finditer(text):
        names = [name.split()[0] for name in match["names"].strip("()").split(",") if name.strip()]
        modules = [f"{match['package']}.{name}" for name in names] if match["package"] else names
        for module in [match["package"] or "", *modules]:
            place = SOURCE.joinpath(*module.split("."))
            found |= {place.with_suffix(".pxd"), place / "__init__.pxd"}
    return frozenset(each for each in found if each != path and each.is_file())


def made_of(source: Path) -> list[Path]:
    """The source and all that it reaches, in order."""
    found: set[Path] = set()
    left = [source]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += reached(path) if path.suffix in (".pyx", ".pxd") else ()
    return sorted(found)


@cache
def content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Digests:
    """Digests of the sources from which each file of a build was made."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "made-of.json"
        try:
            self._digests: dict[str, str] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            self._digests = {}

    def is_made(self, file: Path, wanted: str) -> bool:
        """Whether the file is there, and made of that."""
        return self._digests.get(str(file)) == wanted and file.is_file()

    def note(self, file: Path, made: str) -> None:
        """Note it at once: a build that fails later does not make this file again."""
        self._digests[str(file)] = made
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._path.with_suffix(".new")
        whole.write_text(json.dumps(self._digests, indent=1, sort_keys=True))
        whole.replace(self._path)


def c_digest(build: Build, module: Extension) -> str:
    """The digest of all that the C file of a module is made of."""
    files = [(str(path), content(path)) for source in module.sources for path in made_of(Path(source))]
    return digest(version("cython"), sorted(build.directives.items(), key=str), SHARED, files)


def source_of(module: Extension) -> str:
    """The .pyx of a module; empty for the shared one."""
    return str(next(iter(module.sources), ""))


def translate(module: Extension, target: Path, directives: dict[str, object]) -> str:
    """Turn a module into C and return what Cython said.

    The C file is there afterwards if all went well, and not where Cython failed or hinted at a missing `noexcept`.
    """
    cython: Any = import_module("Cython.Compiler.Main")
    shared: Any = import_module("Cython.Build.SharedModule")
    source = source_of(module)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    new = target.with_suffix(".new.c")
    options = cython.CompilationOptions(compiler_directives=dict(directives), include_path=[str(SOURCE)])
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        shown = os.dup(2)
        os.dup2(log.fileno(), 2)
        failed = True
        try:
            if source:
                options.output_file, options.shared_utility_qualified_name = str(new), SHARED
                failed = bool(cython.compile_single(source, options, full_module_name=module.name).num_errors)
            else:
                options.shared_c_file_path, options.module_name = str(new), module.name
                failed = bool(shared.generate_shared_module(options)[0])
        except cython.CompileError:
            pass
        finally:
            sys.stderr.flush()
            os.dup2(shown, 2)
            os.close(shown)
        log.seek(0)
        text = log.read()
    if failed or MISSING_NOEXCEPT.search(text):
        new.unlink(missing_ok=True)
    else:
        new.replace(target)
    return text


@dataclass
class Task:
    """A module to build, and the digests of its sources."""

    module: Extension
    c_file: Path
    c_digest: str
    target: Path
    digest: str
    is_in_c: bool


@dataclass
class Answer:
    """The outcome of a task: Cython's output, and the error, if any."""

    text: str = ""
    is_in_c: bool = False
    error: str = ""


class BuildExtensions(build_ext):
    """Builds each module whose sources have changed; `--debug` selects the debug build."""

    def finalize_options(self) -> None:
        if self.editable_mode:
            # Its own directory is temporary, which would compile everything on every editable installation.
            self.build_lib = f"build/lib.{PLATFORM}"
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def build_extensions(self) -> None:
        """Make what is out of date: as many processes as there are cores each translate, compile and link a module."""
        build = DEBUG if self.debug else RELEASE
        in_c = Digests(build.c_directory)
        made = Digests(Path("build", f"temp.{PLATFORM}"))
        self.force = True  # of what is asked for below
        tasks = []
        for module in self.extensions:
            # Flags behind ours: with "-O0" the C compiler takes a fifth of the time, where nothing is measured.
            level = OPTIMISATION.get(module.name, USUAL_OPTIMISATION)
            module.extra_compile_args = [level, *build.c_flags, *os.environ.get("CONTAINER_CFLAGS", "").split()]
            module.define_macros = build.macros
            c_file = build.c_directory.joinpath(*module.name.split(".")).with_suffix(".c")
            of_c = c_digest(build, module)
            compiler = [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
            whole = digest(of_c, sys.version, module.extra_compile_args, module.define_macros, compiler)
            target = Path(self.get_ext_fullpath(module.name))
            if not made.is_made(target, whole):
                tasks.append(Task(module, c_file, of_c, target, whole, in_c.is_made(c_file, of_c)))
        if tasks:
            self._make(tasks, build, in_c, made)

    def _make(self, tasks: list[Task], build: Build, in_c: Digests, made: Digests) -> None:
        for name in ("Cython.Compiler.Main", "Cython.Build.SharedModule"):
            import_module(name)  # once, before the processes fork
        context = multiprocessing.get_context("fork")
        left = list(reversed(range(len(tasks))))
        workers: dict[Connection, int] = {}
        hints: set[str] = set()
        errors: list[str] = []
        for _ in range(min(self.parallel or 1, len(tasks))):
            ours, its = context.Pipe()
            context.Process(target=self._work, args=(tasks, build, its), daemon=True).start()
            its.close()
            workers[ours] = left.pop()
            ours.send(workers[ours])
        while workers:
            for worker in [each for each in wait(list(workers)) if isinstance(each, Connection)]:
                task = tasks[workers.pop(worker)]
                try:
                    answer = Answer(*worker.recv())
                except EOFError:
                    answer = Answer(error=f"the process that made {task.module.name} has died")
                sys.stderr.write(answer.text)
                found = {f"{hint['place']}: {hint['hint']}" for hint in MISSING_NOEXCEPT.finditer(answer.text)}
                hints |= found
                if answer.is_in_c:
                    in_c.note(task.c_file, task.c_digest)
                if answer.error:
                    errors.append(answer.error)
                    left.clear()
                elif not found:
                    made.note(task.target, task.digest)
                    print(f"compiled {task.module.name}", flush=True)
                if left:
                    workers[worker] = left.pop()
                    worker.send(workers[worker])
        if errors:
            raise CompileError("\n".join(errors))
        if hints:
            lines = ["declare these functions noexcept or give them an error return:", *sorted(hints)]
            raise CompileError("\n  ".join(lines))

    def _work(self, tasks: list[Task], build: Build, connection: Connection) -> None:
        """Make the modules whose numbers come, until no more do. Cython is quick in a process that it has run in."""
        while True:
            try:
                number = connection.recv()
            except EOFError:
                return
            # Plain values: under pip this file is not a module, so the other side could not import its classes.
            connection.send(astuple(self._make_one(tasks[number], build)))

    def _make_one(self, task: Task, build: Build) -> Answer:
        answer = Answer(is_in_c=task.is_in_c)
        try:
            if not answer.is_in_c:
                answer.text = translate(task.module, task.c_file, build.directives)
                answer.is_in_c = task.c_file.exists()
            if answer.is_in_c:
                task.module.sources = [str(task.c_file)]
                super().build_extension(task.module)
            elif not MISSING_NOEXCEPT.search(answer.text):
                answer.error = f"Cython cannot translate {source_of(task.module)}: see its messages"
        except CompileError as error:
            answer.error = f"{task.module.name}: {error}"
        return answer

    def copy_extensions_to_source(self) -> None:
        """Copy what has been made into the source tree; what is there already stays as it is."""
        build_py = self.get_finalized_command("build_py")
        everything = self.extensions
        place = self._get_inplace_equivalent  # type: ignore[attr-defined]
        pairs = [(module, place(build_py, module)) for module in everything]
        self.extensions = [
            module for module, (inplace, made) in pairs if not (Path(inplace).exists() and filecmp.cmp(inplace, made))
        ]
        super().copy_extensions_to_source()
        self.extensions = everything


if __name__ == "__main__":
    generate_codecs()
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExtensions})
