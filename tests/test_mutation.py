"""The tool of ./run mutate: which mutants it makes, that each changes what it says, and what its lists do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from Cython.Build import cythonize
from Cython.Compiler.TreeFragment import parse_from_strings
from setuptools import Extension

from tests.cython_module import compile_c
from tests.limits import LIMIT_S
from tests.mutation.__main__ import Explanation
from tests.mutation.build import SWITCH_SOURCE, planted_mutants
from tests.mutation.modules import MODULES
from tests.mutation.mutants import Mutant, Planted, Source, install

ROOT = Path(__file__).parent.parent

MODULE = """
from libc.stdint cimport int64_t

cdef enum:
    LIMIT = 5


cdef int64_t scaled(int64_t value, int64_t factor) except? -1:
    return value * factor + 1


cdef bint is_small(int64_t value) noexcept:
    return value < LIMIT


def called(list log, int64_t value):
    log.append(value)
    if is_small(value) and value != 3:
        return "small"
    if value > 100:
        raise ValueError(value)
    return scaled(value, 2) - 1
"""


def mutants_of(text: str, path: Path, planted: Planted | None = None) -> list[Mutant]:
    """Writes a module with its mutants to ``sample.c``; all of them."""
    source = Source("sample.pyx", text, [] if planted is None else [(1, planted)])
    target = path / "sample.pyx"
    target.write_text(f"{source}{SWITCH_SOURCE}")
    made = install(source, 1 if planted is None else 2, frozenset())
    (extension,) = cythonize(  # type: ignore[no-untyped-call]
        [Extension("sample", [str(target)])], quiet=True, force=True, language_level=3
    )
    assert extension.sources == [str(path / "sample.c")]
    return [*source.mutants, *made[0].mutants]


def test_each_kind_of_fault_is_made(tmp_path: Path) -> None:
    found = {(mutant.line, mutant.function, mutant.mutation) for mutant in mutants_of(MODULE, tmp_path)}
    assert found == {
        (9, "scaled", "* → +"),
        (9, "scaled", "+ → -"),
        (9, "scaled", "1 → 2"),
        (9, "scaled", "return x → return x + 1"),
        (13, "is_small", "< → <="),
        (13, "is_small", "LIMIT → LIMIT + 1"),
        (17, "called", "append() dropped"),
        (18, "called", "!= → =="),
        (18, "called", "3 → 4"),
        (18, "called", "3 → 2"),
        (18, "called", "and → or"),
        (18, "called", "condition negated"),
        (20, "called", "> → >="),
        (20, "called", "100 → 101"),
        (20, "called", "100 → 99"),
        (20, "called", "condition negated"),
        (21, "called", "raise dropped"),
        (22, "called", "- → +"),
        (22, "called", "1 → 2"),
        (22, "called", "2 → 3"),
        (22, "called", "2 → 1"),
        (22, "called", "arguments 1 and 2 of scaled() swapped"),
        (22, "called", "return x → return None"),
    }


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import sample
found = []
for value in (3, 4, 5, 6, 100, 101):
    log = []
    try:
        found.append([sample.called(log, value), log])
    except ValueError:
        found.append(["raised", log])
print(json.dumps(found))
"""


def test_each_mutant_of_a_build_does_what_it_says_and_without_one_nothing_is_changed(tmp_path: Path) -> None:
    mutants = mutants_of(MODULE, tmp_path)
    compile_c(tmp_path / "sample.c", tmp_path)

    def outcome(number: int) -> list[list[object]]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env={**os.environ, "MUTANT": str(number)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        found: list[list[object]] = json.loads(done.stdout)
        return found

    original = [[6, [3]], ["small", [4]], [10, [5]], [12, [6]], [200, [100]], ["raised", [101]]]
    assert outcome(0) == original
    unchanged = [str(mutant) for mutant in mutants if outcome(mutant.number) == original]
    # A factor and a value are multiplied: which one is which does not show.
    assert [text for text in unchanged if "arguments 1 and 2 of scaled() swapped" not in text] == []
    (raised,) = [mutant.number for mutant in mutants if mutant.mutation == "raise dropped"]
    assert outcome(raised) == [*original[:5], [202, [101]]]


SWITCHES = """
cdef enum:
    FIRST = 1
    SECOND = 2


cdef bint is_one(int value) noexcept:
    return value == FIRST or value == SECOND


cdef bint is_another(int value) noexcept:
    return value != FIRST and value != SECOND


def called(list log, int value):
    return [is_one(value), is_another(value)]
"""


def test_comparisons_of_one_number_are_joined_the_other_way(tmp_path: Path) -> None:
    mutants = mutants_of(SWITCHES, tmp_path)
    compile_c(tmp_path / "sample.c", tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import sample; print([sample.called([], n) for n in (1, 3)])"
    )

    def outcome(mutation: str) -> str:
        (number,) = [mutant.number for mutant in mutants if mutant.mutation == mutation] or [0]
        environment = {**os.environ, "MUTANT": str(number)}
        command = [sys.executable, "-c", program, str(tmp_path)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True
        ).stdout

    assert outcome("none") == "[[True, False], [False, True]]\n"
    assert outcome("or → and") == "[[False, False], [False, True]]\n"
    assert outcome("and → or") == "[[True, True], [False, True]]\n"


def test_a_planted_fault_takes_the_place_of_its_statements(tmp_path: Path) -> None:
    planted = Planted("sample.pyx", "nothing is logged", "    log.append(value)", "pass")
    mutants = mutants_of(MODULE, tmp_path, planted)
    assert (mutants[0].number, mutants[0].line, mutants[0].mutation) == (1, 17, "nothing is logged")
    assert [mutant.line for mutant in mutants if mutant.mutation == "raise dropped"] == [21], "lines are the original's"
    assert [mutant.mutation for mutant in mutants if mutant.line == 17] == ["nothing is logged", "append() dropped"]


@pytest.mark.parametrize("original", ["log.append(values)", "return"])
def test_a_planted_fault_whose_statements_are_not_there_is_refused(original: str) -> None:
    planted = Planted("sample.pyx", "never", original, "pass")
    with pytest.raises(SystemExit, match="never: its original is 0 times in sample.pyx, not once"):
        Source("sample.pyx", MODULE, [(1, planted)])


def test_the_planted_faults_are_where_they_say_and_leave_what_cython_can_read() -> None:
    planted = planted_mutants()
    assert planted
    lost = []
    for plant in planted:
        try:
            source = Source(plant.file, (ROOT / plant.file).read_text(), [(1, plant)])
        except SystemExit as error:
            lost.append(str(error))
        else:
            parse_from_strings(plant.name, str(source))  # type: ignore[no-untyped-call]
    assert lost == []


def test_an_explanation_is_of_all_mutants_like_it_or_of_one() -> None:
    mutants = [Mutant(number, "a.pyx", 3, 10 * number, "f", "0 → 1", "g(0, 0)") for number in (1, 2)]
    every = Explanation("a.pyx", "f", "0 → 1", "g(0, 0)", "why")
    assert every.explained(mutants) == mutants
    assert Explanation("a.pyx", "f", "0 → 1", "g(0, 0)", "why", occurrence=2).explained(mutants) == mutants[1:]
    for other in ({"file": "b.pyx"}, {"function": "g"}, {"mutation": "1 → 2"}, {"original": "g(0)"}, {"occurrence": 3}):
        fields = {"file": "a.pyx", "function": "f", "mutation": "0 → 1", "original": "g(0, 0)", "reason": "why"} | other
        assert Explanation(**fields).explained(mutants) == []


def test_the_files_of_the_modules_are_there() -> None:
    for module in MODULES.values():
        assert [path for path in (module.path, *module.tests) if not (ROOT / path).is_file()] == []


def test_each_explained_mutant_is_of_a_function_and_a_text_that_are_there() -> None:
    """Whether it is one of the mutants, a run looks itself, after minutes."""
    entries = tomllib.loads((ROOT / "tests" / "mutation" / "equivalent.toml").read_text())["mutant"]
    wrong = []
    for entry in entries:
        source = (ROOT / entry["file"]).read_text(encoding="utf-8")
        name = entry["function"].rpartition(".")[2]
        if entry["original"] not in source or not re.search(rf"def .*\b{name}\(|cdef .*\b{name}\(", source):
            wrong.append(f"{entry['file']}: {entry['function']}: {entry['original']}")
    assert not wrong, "tests/mutation/equivalent.toml explains what is not there:\n" + "\n".join(wrong)
