"""Builds the mutated copy of the project: all mutants of the chosen modules in one build, under ``build/mutation``.

The copy is a whole one, with sources, tests and compiled modules, so that nothing of this is ever in the source tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Errors import CompileError
from setuptools import Extension

from tests.mutation.modules import MODULES
from tests.mutation.mutants import FIRST_COLUMN, Mutant, Planted, Source, install, read, write

ROOT = Path(__file__).parent.parent.parent
WORK = ROOT / "build" / "mutation"
COPY = WORK / "copy"
MUTANTS = WORK / "mutants"
NUMBERS_OF_A_MODULE = 10_000
HERE = Path(__file__).parent

SWITCH_SOURCE = '''
cdef extern from *:
    """
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static int chosen_mutant;
    static int* active_mutant = &chosen_mutant;
    static unsigned char* reached_mutants;
    __attribute__((constructor)) static void find_mutant(void) {
        const char* number = getenv("MUTANT");
        const char* path = getenv("MUTANTS_SWITCH");
        int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        chosen_mutant = number ? atoi(number) : 0;
        if (fd >= 0) {
            active_mutant = mmap(NULL, lseek(fd, 0, SEEK_END), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            reached_mutants = (unsigned char*) (active_mutant + 1);
            close(fd);
        }
    }
    static int mutant_is_off(int number) {
        if (reached_mutants) reached_mutants[number] = 1;
        return *active_mutant != number;
    }
    """
    bint mutant_is_off(int number) noexcept nogil
'''
"""The switch: which mutant is active, and where a run notes which mutants its tests come to."""

CYTHON_ERROR = re.compile(rf":\d+:({str(FIRST_COLUMN)[0]}\d{{{len(str(FIRST_COLUMN)) - 1}}}):")
GENERIC_FUNCTION = re.compile(r"^(\s*def \w+)\[\w+\]", re.MULTILINE)


def planted_mutants() -> list[Planted]:
    """The mutants of planted.toml."""
    return [Planted(**entry) for entry in tomllib.loads((HERE / "planted.toml").read_text()).get("mutant", [])]


def digest(paths: Sequence[Path]) -> str:
    """A number for the contents of these files."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return whole.hexdigest()


def prepare(modules: Sequence[str]) -> list[Mutant]:
    """The mutants of the modules, in a copy that is up to date; compiles only what has changed."""
    sources = [path for kind in ("*.pyx", "*.pxd", "*.h", "*.py") for path in (ROOT / "src").rglob(kind)]
    own = [HERE / name for name in ("build.py", "mutants.py", "planted.toml")]
    wanted = " ".join([digest([*sources, *own]), *(module.path for module in MODULES.values())])
    stamp = WORK / "stamp"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(COPY, ignore_errors=True)
        shutil.rmtree(MUTANTS, ignore_errors=True)
        MUTANTS.mkdir(parents=True)
        _copy_project()
        stamp.write_text(wanted)
    missing = [name for name in modules if not (MUTANTS / f"{name}.json").exists()]
    if missing:
        _build(missing)
    for name in ("tests", "examples", "docs"):
        shutil.rmtree(COPY / name)
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    return [mutant for name in modules for mutant in read(MUTANTS / f"{name}.json")]


def _copy_project() -> None:
    def unwanted(directory: str, names: list[str]) -> list[str]:
        at_top = Path(directory) == ROOT
        caches = [name for name in names if name == "__pycache__" or name.endswith("_cache")]
        return caches + [name for name in names if at_top and (name in ("build", "dist") or name.startswith("."))]

    shutil.copytree(ROOT, COPY, ignore=unwanted)


def _build(modules: Sequence[str]) -> None:
    made: dict[str, list[Mutant]] = {}
    c_sources: dict[str, str] = {}
    with contextlib.chdir(COPY):
        sys.path.insert(0, str(COPY))
        import setup as project

        sys.path.remove(str(COPY))
        for name in modules:
            first = 1 + NUMBERS_OF_A_MODULE * list(MODULES).index(name)
            made[name], c_sources[name] = _translate(name, first, project.RELEASE.directives)
            print(f"mutate: {name}: {len(made[name])} mutants", flush=True)
        _compile(c_sources, [*project.RELEASE.c_flags, "-O1"], project.RELEASE.macros)
    for name, mutants in made.items():
        write(mutants, MUTANTS / f"{name}.json")


def _translate(name: str, first: int, directives: dict[str, object]) -> tuple[list[Mutant], str]:
    """Writes the mutated module and its C source; mutants that do not compile are left out."""
    path = MODULES[name].path
    file = COPY / path
    planted = [plant for plant in planted_mutants() if plant.file == path]
    # A module in Python becomes a compiled one in the copy, without the one thing that Cython does not read.
    text = GENERIC_FUNCTION.sub(r"\1", file.read_text())
    dropped: frozenset[str] = frozenset()
    while True:
        source = Source(path, text, enumerate(planted, first))
        module = Path(path).relative_to("src").with_suffix(".pyx")
        target = COPY / "src" / module
        target.write_text(f"{source}{SWITCH_SOURCE}")
        made = install(source, first + len(planted), dropped)
        messages = io.StringIO()
        try:
            with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(messages):
                (extension,) = cythonize(  # type: ignore[no-untyped-call]
                    [Extension(".".join(module.with_suffix("").parts), [f"src/{module}"])],
                    nthreads=0,
                    build_dir=str(WORK / "c"),
                    include_path=["src"],
                    compiler_directives={**directives, "annotation_typing": file.suffix == ".pyx"},
                    force=True,
                )
        except CompileError:
            refused = {int(column) - FIRST_COLUMN for column in CYTHON_ERROR.findall(messages.getvalue())}
            keys = {mutant.key for mutant in made[0].mutants if mutant.number in refused} if made else set()
            if not keys:
                raise SystemExit(f"mutate: Cython cannot translate {name}:\n{messages.getvalue()}") from None
            dropped |= keys
            continue
        return source.mutants + made[0].mutants, extension.sources[0]


def _compile(c_sources: dict[str, str], flags: list[str], macros: list[tuple[str, str | None]]) -> None:
    lines = [
        "from setuptools import Extension, setup",
        "setup(name='mutants', packages=[], py_modules=[], package_dir={'': 'src'}, ext_modules=[",
        *(
            f"Extension({_module_name(name)!r}, [{c_source!r}], extra_compile_args={flags!r}, "
            f"include_dirs=['src', 'src/container/codecs'], define_macros={macros!r}, "
            "libraries=['dl'] if __import__('sys').platform == 'linux' else []),"
            for name, c_source in c_sources.items()
        ),
        "])",
    ]
    script = COPY / "build_mutants.py"
    script.write_text("\n".join(lines))
    command = [sys.executable, str(script), "--quiet", "build_ext", "--inplace", "--build-temp", str(WORK / "objects")]
    done = subprocess.run(command, cwd=COPY, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"mutate: the C compiler refuses the mutants:\n{done.stdout}{done.stderr}")


def _module_name(name: str) -> str:
    return ".".join(Path(MODULES[name].path).relative_to("src").with_suffix("").parts)
