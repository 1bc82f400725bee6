"""Style as a test: linters, forbidden patterns, a purpose on each first line, the mood of docstrings, stubs."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.limits import LIMIT_S

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "container"
CODE = {".java", ".pxd", ".py", ".pyi", ".pyx", ".sh"}
TEXT = CODE | {"", ".h", ".in", ".md", ".toml", ".txt"}

# What no file may contain, by reason. Each is spelt so that it does not find itself here.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.:/-])/(?:home|root|Users|work)\b",
    "the host of a registry": r"\b(?:pypi[.]org|pythonhosted[.]org|maven(?:[.]apache)?[.]org|crates[.]io)\b",
    "work put off": r"\b(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b",
    "a method that is not there": r"NotImplemented[E]rror",
    "a test that is switched off": r"\b(?:mark[.](?:skip|xfail)|pytest[.]xfail)\b",
}
# Tests wait for what they need, with a limit; they do not hope that it happens in a given time. In quotes it
# is the program of a process that shall live until it is killed.
SLEEP = r"^[^\"']*\b(?:time|asyncio)[.]sleep\("

# Verbs in the third person; those that may be plural nouns count where an article or the like follows.
VERBS = (
    "accepts|adds|appends|asks|begins|borrows|builds|cancels|closes|commits|compares|computes|connects|converts|copies"
    "|creates|decodes|delivers|does|enters|fills|finds|follows|forgets|frees|gives|hands|has|hears|idles|keeps|launches"
    "|lets|loads|makes|measures|opens|puts|raises|reads|receives|refuses|releases|removes|replaces|replays|resets"
    "|returns|says|schedules|sends|serves|takes|tells|throws|tries|unlocks|waits|writes|yields"
)
PLURALS = (
    "blocks|calls|checks|claims|counts|cuts|drops|ends|forces|holds|joins|limits|lists|locks|logs|looks|maps|marks"
    "|moves|names|offers|passes|points|polls|prints|records|reports|runs|sets|shows|starts|stops|turns|updates"
)
ARTICLES = "an?|all|any|each|every|how|its?|one|the|these|this|to|until|up|what|whether"
THIRD_PERSON = re.compile(rf"(?:(?:never|also|\w+ly)\s+)?(?:(?:{VERBS})\b|(?:{PLURALS})\s(?:`|(?:{ARTICLES})\b))", re.I)
LATER_RETURNS = re.compile(r"[.;] [Rr]eturns\b(?!:)")
FUNCTION = re.compile(r"\s*(?:async\s+def|def|cdef|cpdef)\b(?!\s+(?:class|enum|extern|struct|union)\b)[^#]*\(")


def source_files() -> list[Path]:
    """Every file that is or will be under version control; without git, those outside built directories."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
        return sorted(path for path in names if path.is_file())
    built = {"build", "dist", "codecs", "__pycache__"}
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and path.suffix not in {".so", ".pyc"}
        and not any(
            part in built or part.endswith(".egg-info") or (part[0] == "." and part not in {".ci", ".gitignore"})
            for part in path.relative_to(ROOT).parts
        )
    )


FILES = source_files()


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_matching(pattern: str | re.Pattern[str], accept: Callable[[Path], bool]) -> list[str]:
    """`file:line: text` of each line that the pattern finds in an accepted text file."""
    search = re.compile(pattern).search
    return [
        f"{name(path)}:{number}: {line.strip()}"
        for path in FILES
        if path.suffix in TEXT and path.name != "LICENSE" and accept(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if search(line)
    ]


def cython_files() -> list[Path]:
    return [path for path in FILES if path.suffix in {".pyx", ".pxd"} and path.is_relative_to(PACKAGE)]


def run_tool(*command: str) -> None:
    result = subprocess.run(
        [str(Path(sys.executable).parent / command[0]), *command[1:]],
        cwd=ROOT,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


def test_python_passes_the_linter() -> None:
    run_tool("ruff", "check", "--no-cache", "--output-format", "concise")


def test_python_is_formatted() -> None:
    run_tool("ruff", "format", "--no-cache", "--check", "--output-format", "concise")


@pytest.mark.parametrize("reason", FORBIDDEN)
def test_no_file_contains(reason: str) -> None:
    found = lines_matching(FORBIDDEN[reason], lambda _: True)
    assert not found, f"{reason}:\n" + "\n".join(found)


def python_docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of functions in a Python module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring


def cython_docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of functions in a .pyx, .pxd or .pyi, and of the comments in their place."""
    lines = [line.strip() for line in text.splitlines()]
    for start, line in enumerate(lines):
        if not FUNCTION.match(line):
            continue
        if lines[start - 1].startswith("#"):  # above a declaration
            first = start - 1
            while first and lines[first - 1].startswith("#"):
                first -= 1
            yield first + 1, " ".join(comment.lstrip("# ") for comment in lines[first:start])
        end, signature = start, re.sub(r"\s*#.*", "", line)
        while signature.count("(") > signature.count(")"):
            end += 1
            signature += re.sub(r"\s*#.*", "", lines[end])
        if signature.endswith(":"):
            body = "\n".join(lines[end + 1 :])
            if found := re.match(r'r?"""(.*?)"""', body, re.S) or re.match(r"#\s*(.*)", body):
                yield end + 2, found[1]


def docstrings() -> Iterator[tuple[str, str]]:
    """Place and text of the docstrings of the package's functions."""
    for path in FILES:
        if path.suffix in {".pxd", ".py", ".pyi", ".pyx"} and path.is_relative_to(ROOT / "src"):
            parse = python_docstrings if path.suffix == ".py" else cython_docstrings
            for number, docstring in parse(path.read_text(encoding="utf-8")):
                yield f"{name(path)}:{number}", " ".join(docstring.split())


def test_docstrings_of_functions_are_imperative() -> None:
    """`Return the position.`, or a noun phrase, `The position.`; a question is allowed as well."""
    indicative = [
        f"{place}: {docstring}"
        for place, docstring in docstrings()
        if (THIRD_PERSON.match(docstring) and not docstring.endswith("?")) or LATER_RETURNS.search(docstring)
    ]
    assert not indicative, "say `Return the…`, not `Returns the…`:\n" + "\n".join(indicative)


def test_no_test_sleeps() -> None:
    found = lines_matching(SLEEP, lambda path: path.is_relative_to(ROOT / "tests"))
    assert not found, "wait for a condition, with a limit:\n" + "\n".join(found)


def test_lines_are_not_too_long() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    limit = settings["ruff"]["line-length"]
    assert settings["cython-lint"]["max-line-length"] == limit
    found = lines_matching(f"^.{{{limit + 1},}}$", lambda path: path.suffix in CODE or path.name == "run")
    found += lines_matching(rf"^(?!\|).{{{limit + 1},}}$", lambda path: path.suffix == ".md")  # but for rows of tables
    assert not found, "too long:\n" + "\n".join(found)


def purpose(path: Path) -> str:
    """The words on a file's first line, or on its second when the first names the interpreter."""
    lines = path.read_text(encoding="utf-8").splitlines() or [""]
    first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
    found = re.match(r'\s*(?:r?"""|//|/\*\*?|#+|<!--)\s*(.*)', first)
    return found[1] if found else ""


def test_each_file_begins_with_its_purpose() -> None:
    purposeless = [
        name(path)
        for path in FILES
        if path.suffix in TEXT and path.name not in {"LICENSE", "py.typed"} and len(purpose(path)) < 5
    ]
    assert not purposeless, "the first line says what a file is for:\n" + "\n".join(purposeless)


def test_nothing_built_and_no_large_file_is_tracked() -> None:
    built = [name(path) for path in FILES if path.suffix in {".c", ".class", ".jar", ".o", ".so", ".whl"}]
    large = [f"{name(path)}: {path.stat().st_size:,} B" for path in FILES if path.stat().st_size > 512 * 1024]
    assert not built + large


def test_each_compiled_module_that_python_imports_has_a_stub_and_no_other() -> None:
    """mypy looks into no .pyx, and misses the stub where one is wanted; a stub that nobody reads is only to be kept."""
    python = "\n".join(path.read_text(encoding="utf-8") for path in FILES if path.suffix in {".py", ".pyi", ".md"})
    unread = []
    for stub in (path.with_suffix(".pyi") for path in cython_files() if path.suffix == ".pyx"):
        package = ".".join(stub.parent.relative_to(ROOT / "src").parts)
        imports = rf"\b{re.escape(package)}(?:\.{stub.stem}\b| import (?:\([^)]*|[^\n]*)\b{stub.stem}\b)"
        if stub.exists() and not re.search(imports, python):
            unread.append(name(stub))
    assert not unread, "stubs that no Python needs:\n" + "\n".join(unread)


def test_each_c_function_says_how_it_fails() -> None:
    """`noexcept`, or an error value: a `void` function without either is checked after each call."""
    declaration = re.compile(r"^\s*cdef\s+(?:inline\s+)?void\s+(\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)([^:\n#]*)", re.M)
    silent = [
        f"{name(path)}: {found[1]}"
        for path in cython_files()
        for found in declaration.finditer(path.read_text(encoding="utf-8"))
        if not re.search(r"\b(?:noexcept|except)\b", found[2])
    ]
    assert not silent, "cdef void without noexcept or except:\n" + "\n".join(silent)


def test_no_except_clause_of_cython_is_left_by_a_jump() -> None:
    # Compiled, such a return, break or continue crashes where there was no memory for the error's traceback.
    wrong = []
    for path in cython_files():
        clauses: list[int] = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            indentation = len(line) - len(line.lstrip())
            while clauses and indentation <= clauses[-1]:
                clauses.pop()
            if re.match(r"\s*except\b.*:\s*(#.*)?$", line):
                clauses.append(indentation)
            elif clauses and re.match(r"\s*(return|break|continue)\b", line):
                wrong.append(f"{name(path)}:{number}: {line.strip()}")
    assert not wrong, "take the jump out of the except clause:\n" + "\n".join(wrong)


def mentions_wall_clock(tree: ast.AST, names: frozenset[str] = frozenset()) -> bool:
    """Does an expression grow with the wall clock, or with one of these names, which hold what it was?"""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Div):  # a rate falls where the machine is busy
        return mentions_wall_clock(tree.left, names)
    if isinstance(tree, ast.Attribute) and tree.attr in {"monotonic", "monotonic_ns", "perf_counter"}:
        return True
    if isinstance(tree, ast.Name) and tree.id in names:
        return True
    return any(mentions_wall_clock(child, names) for child in ast.iter_child_nodes(tree))


def wall_limits(source: str) -> list[int]:
    """The lines of asserts that something takes less wall time than a number says."""
    found = []
    for function in (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ):
        nodes = list(ast.walk(function))
        times = frozenset(
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and mentions_wall_clock(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        )
        for compare in (each for node in nodes if isinstance(node, ast.Assert) for each in ast.walk(node.test)):
            if not isinstance(compare, ast.Compare):
                continue
            operands = [compare.left, *compare.comparators]
            for less, operator, more in zip(operands, compare.ops, operands[1:], strict=False):
                if isinstance(operator, ast.Gt | ast.GtE):
                    less, more = more, less
                if isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot):
                    continue
                if isinstance(more, ast.Constant) and mentions_wall_clock(less, times):
                    found.append(compare.lineno)
    return sorted(set(found))


def test_no_test_fails_because_the_machine_is_busy() -> None:
    """A limit is processor time, or one that a wait of minutes passes and a busy machine does not: a named one."""
    assert wall_limits("def f():\n    begin = time.monotonic()\n    assert time.monotonic() - begin < 5") == [3]
    assert wall_limits("def f():\n    t = time.perf_counter() - b\n    assert 5 >= t") == [3]
    assert wall_limits("def f():\n    t = time.process_time()\n    assert t < 5 and time.monotonic() < LIMIT_S") == []
    wrong = [
        f"{name(path)}:{line}"
        for path in FILES
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")
        for line in wall_limits(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "these asserts fail where the machine is busy:\n" + "\n".join(wrong)


def test_no_test_has_a_shorter_limit_than_the_others() -> None:
    """Ten minutes mean a hang, and less may mean a busy machine."""
    limit = int(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["timeout"])
    wrong = [
        f"{name(path)}: {found[0]}"
        for path in FILES
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")
        for found in re.finditer(r"mark\.timeout\((\d+)\)", path.read_text(encoding="utf-8"))
        if int(found[1]) <= limit
    ]
    assert not wrong, f"leave out what is not above {limit}:\n" + "\n".join(wrong)


def short_limits(source: str) -> list[int]:
    """The lines of calls that give another process, thread or state seconds that a busy machine may need."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        called = ast.unparse(call.func)
        keywords = {each.arg: each.value for each in call.keywords}
        if called.startswith("subprocess.") or called.endswith(".communicate"):
            limits: list[ast.expr | None] = [keywords.get("timeout")]
        elif called.endswith(("process.wait", "thread.join", "service.wait", "started.wait")):
            limits = [*call.args, keywords.get("timeout")]
        elif called == "wait_until":
            limits = [*call.args[1:2]]
        else:
            continue
        seconds = [each.value for each in limits if isinstance(each, ast.Constant)]
        if any(isinstance(each, int | float) and 2 < each < LIMIT_S for each in seconds):
            found.append(call.lineno)
    return found


def test_no_test_gives_what_it_waits_for_less_time_than_the_others() -> None:
    assert short_limits("wait_until(is_done, 10, 'it to end')\nprocess.wait(LIMIT_S)\nprocess.wait(600)") == [1]
    assert short_limits("subprocess.run(command, timeout=60)\nservice.wait(30)\nprocess.wait(2)") == [1, 2]
    wrong = [
        f"{name(path)}:{line}"
        for path in FILES
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")
        for line in short_limits(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, f"LIMIT_S is {LIMIT_S:.0f} s:\n" + "\n".join(wrong)


def test_no_cython_file_is_included_in_another() -> None:
    assert not lines_matching(r"^\s*include\s+[\"']", lambda path: path.suffix in {".pyx", ".pxd"})


def test_each_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    unused = [path.name for path in (ROOT / "examples").rglob("*.py") if path.stem not in tests]
    assert not unused, f"no test mentions {unused}"


def test_documents_name_only_words_that_run_knows() -> None:
    known = set(re.findall(r"^([a-z -]+?(?: \| [a-z]+)*)\)", (ROOT / "run").read_text(), re.M))
    words = {word for case in known for word in case.split(" | ")}
    used = {
        word
        for path in FILES
        if path.suffix == ".md" or path.parent.name == ".ci"
        for word in re.findall(r"\./run ([a-z]+)", path.read_text(encoding="utf-8"))
    }
    assert used <= words, f"./run does not know {sorted(used - words)}"
