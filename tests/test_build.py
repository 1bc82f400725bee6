"""The build and ./run: hints that fail it, what a wheel carries, pinned versions, what it says is missing."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import aeron_library
from tests.limits import LIMIT_S

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUN = [line for line in (ROOT / "requirements" / "run.in").read_text().splitlines() if not line.startswith("#")]
"""Packages that an installation needs."""
PACKAGE_SETS = ("demo", "spark", "test", "check", "docs")
OTHER_SPARKS = ("spark-4.1", "spark-4.2")
TOP_LEVEL = PYPROJECT["tool"]["setuptools"]["py-modules"]

TAKES_THE_GIL = '''"""A function whose callers must take the GIL to look for an exception."""
cdef void count(int* value) nogil:
    value[0] += 1
'''


def load_setup() -> ModuleType:
    """setup.py as a module: importing it builds nothing."""
    spec = importlib.util.spec_from_file_location("project_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def build(directory: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    """Build modules of a directory as setup.py does, in a process of its own."""
    program = (
        "import setup as project, setuptools, sys\n"
        "modules = [project.extension(name, [name + '.pyx']) for name in sys.argv[1:]]\n"
        "command = {'build_ext': project.BuildExtensions}\n"
        "setuptools.setup(ext_modules=modules, packages=[], py_modules=[], cmdclass=command, name='small',\n"
        "                 script_args=['--quiet', 'build_ext', '--build-lib', 'built'])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *modules],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CONTAINER_CFLAGS": "-O0"},
        capture_output=True,
        text=True,
        check=False,
    )


def made(directory: Path, *modules: str) -> set[str]:
    """Build them, and return those that were compiled."""
    done = build(directory, *modules)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^compiled (\w+)$", done.stdout, re.M))


def test_missing_noexcept_fails_the_build_and_names_the_line(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.pyx").write_text(TAKES_THE_GIL)

    for _ in ("at first", "and again, although the source has not changed since"):
        failed = build(tmp_path, "one", "two")
        assert failed.returncode != 0
        assert "declare these functions noexcept or give them an error return:" in failed.stderr
        for name in ("one", "two"):
            assert f"\n  {name}.pyx:2:0: Exception check on 'count' will always require the GIL" in failed.stderr
        assert not [*tmp_path.rglob("*.c"), *tmp_path.rglob("*.so")]

    (tmp_path / "one.pyx").write_text(TAKES_THE_GIL.replace("nogil", "noexcept nogil"))
    assert made(tmp_path, "one") == {"one"}
    assert (tmp_path / "build" / "cython" / "one.c").exists()


def test_a_module_that_cython_refuses_fails_the_build_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.pyx").write_text('"""A syntax error."""\ncdef int f(:\n')
    failed = build(tmp_path, "broken")
    assert failed.returncode != 0
    assert "broken.pyx:2:11: " in failed.stderr
    assert failed.stderr.splitlines()[-1].endswith("Cython cannot translate broken.pyx: see its messages")


def test_a_module_that_the_c_compiler_refuses_fails_the_build_and_is_made_once_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "other.pyx").write_text(
        '"""A header that is not there yet."""\ncdef extern from "other.h":\n    pass\n'
    )
    failed = build(tmp_path, "other")
    assert failed.returncode != 0
    assert "other.h" in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("error: other: Command ")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "other.h").write_text("// It is now.\n")
    assert made(tmp_path, "other") == {"other"}


def test_modules_are_made_again_only_when_what_they_are_made_of_changes(tmp_path: Path) -> None:
    package = tmp_path / "src"
    package.mkdir()
    (package / "numbers.pxd").write_text('# A number.\ncdef extern from "numbers.h":\n    int NUMBER\n')
    (package / "numbers.h").write_text("enum { NUMBER = 1 };\n")
    (tmp_path / "plain.pyx").write_text('"""A module without C functions."""\n')
    (tmp_path / "uses.pyx").write_text(
        '"""A module that reads a header."""\nfrom numbers cimport (\n    NUMBER,\n)\nprint(NUMBER)\n'
    )

    assert made(tmp_path, "plain", "uses") == {"plain", "uses"}
    assert made(tmp_path, "plain", "uses") == set()
    for path in tmp_path.rglob("*.pyx"):
        os.utime(path)
    assert made(tmp_path, "plain", "uses") == set(), "a time is not content"
    (package / "numbers.h").write_text("enum { NUMBER = 2 };\n")
    assert made(tmp_path, "plain", "uses") == {"uses"}
    (package / "numbers.pxd").write_text('# A number.\ncdef extern from "numbers.h":\n    const int NUMBER\n')
    assert made(tmp_path, "plain", "uses") == {"uses"}
    for path in (tmp_path / "built").glob("plain.*"):
        path.unlink()
    assert made(tmp_path, "plain", "uses") == {"plain"}


def test_a_module_is_made_of_all_that_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    package = Path("src", "container")
    found = set(load_setup().made_of(package / "archive" / "server" / "recording_events.pyx"))
    assert {package / "codecs" / name for name in ("archive.pxd", "archive_codec.h", "sbe.pxd", "sbe_codec.h")} <= found
    assert package / "codecs" / "cluster_codec.h" not in found
    users = set(load_setup().made_of(package / "consensus" / "snapshot_messages.pyx"))
    assert package / "codecs" / "cluster_codec.h" in users, "cimported from the package"


def test_the_modules_with_an_optimisation_of_their_own_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    project = load_setup()
    assert {extension.name for extension in project.extensions()} >= set(project.OPTIMISATION)


def test_a_wheel_carries_declarations_and_stubs_but_neither_cython_nor_c(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    shipped = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    wanted = {
        path.relative_to(ROOT / "src")
        for path in (ROOT / "src" / "container").rglob("*")
        if path.suffix in {".py", ".pxd", ".pyi", ".h"} or path.name == "py.typed"
    }
    assert shipped == wanted | {Path(f"{name}.py") for name in TOP_LEVEL}
    assert Path("container/py.typed") in shipped
    assert {Path("container/codecs/cluster.pxd"), Path("container/codecs/cluster_codec.h")} <= shipped


def checkout(directory: Path) -> Path:
    """A checkout with one small module in Cython, which builds in seconds; the pages and tests matter to no build."""
    made = directory / "checkout"
    made.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, made)
    for name in ("schema", "scripts", "requirements"):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    package = made / "src" / "container"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copy(ROOT / "src" / "container" / "version.py", package)
    (package / "small.pyx").write_text('"""A module without C functions."""\n')
    for name in TOP_LEVEL:
        (made / "src" / f"{name}.py").write_text("")
    # The codecs are written into the package, and would be compiled with it: that takes half a minute.
    (made / "scripts" / "generate_codecs.py").write_text(
        "import pathlib\n"
        "place = pathlib.Path('src', 'container', 'codecs')\n"
        "place.mkdir(exist_ok=True)\n"
        "(place / '__init__.py').write_text('')\n"
    )
    return made


def files_of(directory: Path) -> dict[str, bytes]:
    """All files below a directory, without Python's caches."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("hook", ["prepare_metadata_for_build_wheel", "build_wheel", "build_sdist"])
def test_what_pip_builds_of_a_checkout_leaves_it_as_it_is(tmp_path: Path, hook: str) -> None:
    backend, (place,) = PYPROJECT["build-system"]["build-backend"], PYPROJECT["build-system"]["backend-path"]
    directory = checkout(tmp_path)
    before = files_of(directory)
    made = tmp_path / "made"
    made.mkdir()
    program = (
        f"import sys; sys.path.insert(0, {place!r}); import {backend}; backend = {backend}\n"
        f"wanted = backend.get_requires_for_build_{'sdist' if hook == 'build_sdist' else 'wheel'}()\n"
        f"print(wanted, backend.{hook}('../made'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=os.environ | {"CONTAINER_CFLAGS": "-O0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert files_of(directory) == before
    wanted, name = done.stdout.splitlines()[-1].split()
    assert wanted == "[]"
    result = made / name
    assert result.exists()
    if hook == "build_wheel":
        with zipfile.ZipFile(result) as wheel:
            names = wheel.namelist()
        assert any(re.fullmatch(r"container/small\..+\.so", name) for name in names), names


def test_the_same_sources_make_the_same_source_distribution(tmp_path: Path) -> None:
    directory = checkout(tmp_path)
    found = []
    for number, time in enumerate((1_000_000_000, 1_500_000_000)):
        for path in directory.rglob("*"):
            os.utime(path, (time, time))
        made = tmp_path / str(number)
        made.mkdir()
        program = f"from scripts import build_backend; print(build_backend.build_sdist({str(made)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found.append((made / done.stdout.split()[-1]).read_bytes())
    assert found[0] == found[1]


def test_sources_of_aeron_that_are_none_are_refused(tmp_path: Path) -> None:
    directory = checkout(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "from scripts import build_backend; build_backend.build_wheel('.')"],
        cwd=directory,
        env=os.environ | {"AERON_SOURCES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"AERON_SOURCES={tmp_path}: no sources of Aeron; ")


def test_the_wheels_of_a_release_are_built_of_the_sources_that_its_workflow_brings() -> None:
    """cibuildwheel replaces variables in a setting, but hands no pattern to a shell."""
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps = [step for job in ("sources", "wheels") for step in release["jobs"][job]["steps"]]
    (directory,) = re.findall(r"aeron_library\.py (\S+)", "\n".join(step.get("run", "") for step in steps))
    handed_on = [step["with"]["path"] for step in steps if step.get("with", {}).get("name") == "aeron-sources"]
    assert handed_on == [directory, directory]
    tree = f"{directory}/{aeron_library.CRATE}-{aeron_library.VERSION}/aeron"
    assert PYPROJECT["tool"]["cibuildwheel"]["environment"] == {"AERON_SOURCES": f"$PWD/{tree}"}


def test_a_release_refuses_a_tag_that_is_not_its_version() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (step,) = [step for step in release["jobs"]["sources"]["steps"] if "GITHUB_REF_NAME" in step.get("run", "")]
    assert step["if"] == "startsWith(github.ref, 'refs/tags/v')"
    version = re.search(r'VERSION = "(.+)"', (ROOT / "src" / "container" / "version.py").read_text())
    assert version is not None
    for tag, code in ((f"v{version[1]}", 0), ("v999.0.0", 1)):
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": tag}, check=False
        )
        assert done.returncode == code, tag


def test_the_library_of_a_wheel_is_found_before_pyaeron(tmp_path: Path) -> None:
    """A copy of the package without its library, with pyaeron's under that name."""
    package = tmp_path / "container"
    shutil.copytree(ROOT / "src" / "container", package, ignore=shutil.ignore_patterns("*.pyx", "*.c", "__pycache__"))
    library = package / "aeron" / aeron_library.LIBRARY
    assert not library.exists()
    program = "from container.aeron import library_path; print(library_path())"

    def found() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "AERON_LIBRARY": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    first = found()
    shutil.copy(first, library)
    assert found() == str(library) != first


def test_the_page_about_cython_installs_what_its_next_command_needs() -> None:
    """The same that builds the package: a module that cimports from it is built with the Cython of that release."""
    block = (ROOT / "docs" / "cython.md").read_text(encoding="utf-8").partition("```sh\n")[2].partition("```")[0]
    install, command = block.splitlines()[:2]
    assert re.findall(r'"([^"]+)"', install) == PYPROJECT["build-system"]["requires"]
    assert install.startswith("pip install ")
    assert command.startswith("cythonize ")


def test_each_extra_has_a_line_on_a_page_that_installs_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = re.findall(r"pip\s+install\s+[\"'][^\"'\[]+\[([\w,-]+)\]", "\n".join(page.read_text() for page in pages))
    named = {name for line in lines for name in line.split(",")}
    assert named == {*PYPROJECT["project"]["optional-dependencies"]} - {"test"}


def test_a_python_that_is_too_old_is_named_before_anything_is_installed() -> None:
    """Read as pip reads it: the sentence comes before what only the Python that is needed has."""
    minimum = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    backend = ROOT.joinpath(*PYPROJECT["build-system"]["build-backend"].split(".")).with_suffix(".py")
    program = (
        "import sys; sys.version_info = (3, 11, 7, 'final', 0)\n"
        "sys.modules['setuptools'] = None\n"
        f"exec(compile(open({str(backend)!r}).read(), 'backend', 'exec'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"aeron-cluster-container needs Python {minimum} or newer, and {sys.executable} is 3.11.7: make the virtual "
        "environment with a newer one\n"
    )
    ast.parse(backend.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_an_extension_is_built_for_each_cython_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    built = {extension.name: extension.sources for extension in load_setup().extensions()}
    assert built["container.transport.transport_seam"] == ["src/container/transport/transport_seam.pyx"]
    assert "container.codecs.messages" in built
    assert built.pop("container._cyutility") == []
    assert len(built) == len(list((ROOT / "src").rglob("*.pyx")))


def pins(name: str) -> dict[str, str]:
    """Version by package of what a file of requirements/ installs on this platform."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate()
    }


def locked() -> dict[str, str]:
    """Version by package of everything that ./run ever installs."""
    return {package: version for name in PACKAGE_SETS for package, version in pins(name).items()}


def test_the_sets_of_packages_agree_about_versions() -> None:
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == {*PACKAGE_SETS, *OTHER_SPARKS}
    versions = locked()
    for name in PACKAGE_SETS:
        assert pins(name).items() <= versions.items(), name


def test_the_demo_needs_no_linter_no_pytest_and_no_spark() -> None:
    assert not {"mypy", "ruff", "pytest", "hypothesis", "pyspark", "pandas", "matplotlib"} & set(pins("demo"))


def test_each_supported_spark_has_its_tests() -> None:
    """The range in pyproject.toml is the versions that ./run makes environments for, and no other."""
    tested = {name.removeprefix("spark-"): pins(name) for name in OTHER_SPARKS}
    versions = [pins("spark")["pyspark"], *(found.pop("pyspark") for found in tested.values())]
    assert not any(tested.values()), "all else comes from the environment"
    assert f'other_sparks="{" ".join(tested)}"' in (ROOT / "run").read_text()
    minors = sorted(tuple(map(int, version.split(".")[:2])) for version in versions)
    first, last = minors[0], (minors[-1][0], minors[-1][1] + 1)
    assert minors == [(first[0], minor) for minor in range(first[1], last[1])]
    asked = [requirement for requirement in declared() if requirement.name == "pyspark"]
    assert asked
    for requirement in asked:
        assert set(str(requirement.specifier).split(",")) == {
            ">={}.{}".format(*first),
            "<{}.{}".format(*last),
        }


def declared() -> list[Requirement]:
    """Requirements in pyproject.toml: at run time, in extras, for the build and for the checks."""
    project = PYPROJECT["project"]
    groups = [*project["optional-dependencies"].values(), *PYPROJECT["dependency-groups"].values()]
    lists = [RUN, PYPROJECT["build-system"]["requires"], *groups]
    return [Requirement(text) for requirements in lists for text in requirements]


def test_lock_pins_one_version_that_suits_each_declared_requirement() -> None:
    versions = locked()
    for requirement in declared():
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} does not admit the locked {version}"


def test_environment_is_what_the_lock_says() -> None:
    installed: dict[str, str] = {}
    for found in importlib.metadata.distributions():
        # The first one on the path counts: setuptools, once imported, has others of its own behind it.
        installed.setdefault(str(canonicalize_name(found.name)), found.version)
    needed = set().union(*(pins(name) for name in PACKAGE_SETS if name != "check"))
    assert needed <= set(installed)
    different = {
        package: (version, installed[package])
        for package, version in locked().items()
        if package in installed and installed[package] != version
    }
    assert not different, f"locked and installed versions differ: {different}; remove the environment and ./run build"


def run_script(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of ./run in a directory that has nothing but requirements, with these variables only."""
    shutil.copy(ROOT / "run", directory)
    shutil.copytree(ROOT / "requirements", directory / "requirements", dirs_exist_ok=True)
    return subprocess.run(
        ["/bin/sh", str(directory / "run"), *arguments],
        env={"HOME": str(directory), "PATH": "/usr/bin:/bin"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def commands(directory: Path, *names: str) -> str:
    """A PATH on which there are only these of the system's commands."""
    directory.mkdir()
    for command in names:
        found = shutil.which(command)
        assert found is not None
        (directory / command).symlink_to(found)
    return str(directory)


@pytest.mark.parametrize("script", ["run", ".ci/run"])
def test_scripts_are_executable_and_parse_in_a_plain_shell(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    for shell in filter(None, map(shutil.which, ("sh", "dash"))):
        subprocess.run([shell, "-n", str(ROOT / script)], check=True)


def test_run_answers_an_unknown_word_with_its_words(tmp_path: Path) -> None:
    result = run_script(tmp_path, "demonstrate")
    assert result.returncode == 2
    assert result.stderr.startswith("run: unknown word 'demonstrate'\nusage: ./run WORD")


def test_each_word_that_run_explains_is_one_that_it_does(tmp_path: Path) -> None:
    usage = run_script(tmp_path, "help").stdout
    explained = set(re.findall(r"^  ([a-z]+) ", usage, re.M))
    assert {"demo", "test", "check", "build", "debug", "bench"} <= explained
    script = (ROOT / "run").read_text()
    for word in explained:
        assert re.search(rf"^{word}\)", script, re.M), f"no branch for {word}"


@pytest.mark.parametrize("word", ["elections", "linearizable", "sim", "soak"])
def test_a_word_imports_no_package_that_run_does_not_prepare_for_it(word: str) -> None:
    found = re.search(rf"^(?:[a-z]+ \| )*{word}(?: \| [a-z]+)*\) prepare(.*) ;;$", (ROOT / "run").read_text(), re.M)
    assert found is not None
    prepared = {package for name in ("demo", *found[1].split()) for package in pins(name)}
    known = {package for name in PACKAGE_SETS for package in pins(name)}
    heavy = ("pyspark", "pandas", "numpy", "pyarrow", "pytest", "hypothesis", "greenlet")
    assert known.issuperset(heavy)
    program = (
        "import importlib, pkgutil, sys\n"
        "sys.modules.update(dict.fromkeys(sys.argv[2:]))  # importing one of these raises\n"
        "package = importlib.import_module(sys.argv[1])\n"
        "for module in pkgutil.iter_modules(package.__path__, sys.argv[1] + '.'):\n"
        "    importlib.import_module(module.name)\n"
    )
    missing = [package for package in heavy if package not in prepared]
    assert missing
    command = [sys.executable, "-c", program, f"tests.{word}", *missing]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_run_says_how_to_get_a_python(tmp_path: Path) -> None:
    path = commands(tmp_path / "commands", "dirname", "cksum", "cat")
    result = run_script(tmp_path, "test", PATH=path)
    assert result.returncode == 1
    assert re.fullmatch(r"run: found no Python 3\.12 or newer .*: install one .*\n", result.stderr)


def test_run_refuses_a_python_that_does_not_suit(tmp_path: Path) -> None:
    result = run_script(tmp_path, "test", PYTHON="no-such-python")
    assert result.returncode == 1
    assert re.fullmatch(r"run: PYTHON=no-such-python is not a Python 3\.12 or newer .*\n", result.stderr)


def test_run_passes_over_commands_that_exist_and_fail(tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python3.13").write_text("#!/bin/sh\nexit 127\n")
    (shims / "python3.12").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for shim in shims.iterdir():
        shim.chmod(0o755)
    version = "{}.{}".format(*sys.version_info)
    result = run_script(tmp_path, "interpreter", version, PATH=f"{shims}:/usr/bin:/bin")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).resolve() == Path(sys.executable).resolve()


def test_run_says_how_to_get_a_compiler(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    stamp = 'echo "$(cat requirements/*.txt | cksum) $(pwd)" >.venv/environment; touch .venv/has-demo'
    subprocess.run(["sh", "-c", stamp], cwd=tmp_path, check=True)
    result = run_script(tmp_path, "build", CC="no-such-compiler")
    assert result.returncode == 1
    assert re.fullmatch(r"run: found no C compiler 'no-such-compiler': install one .*\n", result.stderr)
