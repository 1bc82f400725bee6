"""The public names: one list holds them, the reference has them, and pages and examples use no others."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from container import ClusteredService
from container.testing import MemoryMember
from tests.descriptions import described_beside, undescribed
from tests.documents import DOCUMENTS, ROOT, all_blocks
from tests.public_names import LIST, as_text, public_names

NAMES = public_names()
NOT_FOR_USERS = {"examples/pipeline_demo.py", "examples/ledger_client.py"}
"""Examples that show this project at work, by means of its own."""


def test_the_list_has_all_public_names() -> None:
    listed, found = set(LIST.read_text(encoding="utf-8").splitlines()), set(as_text(NAMES).splitlines())
    assert listed == found, (
        "a public name came or went, which users notice: if that is meant, say so in the changelog and run "
        f"`./run python -m tests.public_names`; gone: {sorted(listed - found)}, new: {sorted(found - listed)}"
    )


def test_each_module_of_the_reference_says_what_it_is() -> None:
    for name in NAMES:
        assert (importlib.import_module(name).__doc__ or "").strip(), name


def test_each_public_name_is_described() -> None:
    """So is each method, property and attribute of a public class; a member of an enum speaks for itself."""
    found = undescribed(NAMES)
    assert not found, "write a docstring, or a string behind the attribute:\n" + "\n".join(found)


def test_a_name_without_a_description_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "A = 1\n'One.'\n#: Two.\nB = 2\nC = 3\ntype D = int\n'A type.'\n\nclass E:\n    x: int\n    'X.'\n    y: int\n"
    )
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert described_beside(tmp_path / "a.py") == {("", "A"), ("", "B"), ("", "D"), ("E", "x")}
    module = types.ModuleType("container_without_words")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(
        "import dataclasses\n\n@dataclasses.dataclass(slots=True)\nclass Bare:\n    field: int\n\n"
        "    def method(self): ...\n    @property\n    def part(self): ...\n\n"
        "class Named:\n    'Has a field, ``told``.'\n    __slots__ = ('told', 'untold')\n\ndef function(): ...\n",
        vars(module),
    )
    for value in (module.Bare, module.Named):
        value.__module__ = module.__name__
    assert undescribed({module.__name__: ["Bare", "Named", "function"]}) == [
        f"{module.__name__}.{name}"
        for name in ("Bare", "Bare.field", "Bare.method", "Bare.part", "Named.untold", "function")
    ]


def test_a_flag_is_never_given_by_its_place() -> None:
    found = []
    for module, names in NAMES.items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            try:
                arguments = inspect.signature(value.__init__ if inspect.isclass(value) else value).parameters.values()
            except (TypeError, ValueError):  # a value, or a function of C that has none
                continue
            found += [
                f"{module}.{name}({each.name})"
                for each in arguments
                if isinstance(each.default, bool) and each.kind is each.POSITIONAL_OR_KEYWORD
            ]
    assert not found


INTERFACES = {
    *("ClusteredService", "ConnectionListener", "ControlledEgressListener", "EgressListener", "PoolListener"),
    *("AcceptAll", "AllowAll", "Authenticator", "AuthorisationService", "CredentialsSupplier", "DenyAll"),
    *("ClientSession", "Cluster", "Header", "MessageBuffer", "SessionMessages"),
    *("SessionProxy", "SnapshotImage", "SnapshotPublication"),
}
"""Classes that users derive from, whose objects a callback gets, or that are valid during one call alone."""


def test_an_object_of_a_public_class_says_what_it_is() -> None:
    classes: dict[str, Any] = {
        name: getattr(importlib.import_module(module), name) for module, names in NAMES.items() for name in names
    }
    lacking = {
        name
        for name, value in classes.items()
        if inspect.isclass(value)
        and not issubclass(value, BaseException | enum.Enum)
        and value.__repr__ is object.__repr__
    }
    assert lacking == INTERFACES


class Seeing(ClusteredService):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def on_session_message(self, session: Any, timestamp: int, buffer: Any, header: Any) -> None:
        self.seen += map(repr, (self.cluster, session, buffer, header))


def test_the_objects_that_a_callback_gets_say_what_they_are() -> None:
    with MemoryMember(Seeing) as member:
        member.open_session().send(b"hello")
        cluster, session, buffer, header = member.service.seen
    assert cluster == f"<Cluster member_id=0 LEADER log_position={member.log_position}>"
    assert [text.split()[0] for text in (session, buffer, header)] == ["<ClientSession", "<MessageBuffer", "<Header"]


def imports_that_are_not_public(code: str) -> list[str]:
    """Names that Python code imports from the package and that are not in the list."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "container":
            public = NAMES.get(node.module or "", [])
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & {*NAMES}
            found += [
                f"{node.module}.{alias.name}"
                for alias in node.names
                if alias.name not in public and f"{node.module}.{alias.name}" not in modules
            ]
    return found


BLOCKS = {
    key: block.text
    for key, block in all_blocks().items()
    if block.language == "python" and not block.document.startswith("docs/design/") and ">>>" not in block.text
}
EXAMPLES = [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "examples").rglob("*.py"))
    if str(path.relative_to(ROOT)) not in NOT_FOR_USERS
]


@pytest.mark.parametrize("key", BLOCKS)
def test_a_page_uses_public_names_alone(key: str) -> None:
    try:
        found = imports_that_are_not_public(BLOCKS[key])
    except SyntaxError:
        pytest.skip("a piece of code that is not whole")
    assert not found, f"{key}: {found}"


def _functions_beside_public_ones() -> dict[str, str]:
    """Functions without ``_`` of modules that define a public name, by name, which are not public themselves."""
    public = {name for names in NAMES.values() for name in names}
    values: list[Any] = [
        getattr(importlib.import_module(module), name) for module, names in NAMES.items() for name in names
    ]
    public |= {method for value in values if inspect.isclass(value) for method in dir(value)}
    found = {}
    for module in {getattr(value, "__module__", None) or "" for value in values}:
        path = (ROOT / "src").joinpath(*module.split(".")).with_suffix(".py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []:
            if isinstance(node, ast.FunctionDef) and node.name not in public and not node.name.startswith("_"):
                found[node.name] = f"{module}.{node.name}"
    return found


def test_a_page_for_users_calls_public_functions_alone() -> None:
    private = _functions_beside_public_ones()
    assert len(private) > 50
    pages = [page for page in DOCUMENTS if not page.startswith("docs/design/")]
    calls = {
        f"{page}: {private[name]}"
        for page in pages
        for name in re.findall(r"`(\w+)\(", Path(ROOT, page).read_text(encoding="utf-8"))
        if name in private
    }
    assert not calls


def named_in_the_text(text: str) -> set[str]:
    """Names of the form ``container.x.y`` in inline code."""
    return {found.rstrip(".") for found in re.findall(r"`(container(?:\.\w+)+)", text)}


OF_NO_REFERENCE = {
    "container.codecs.cluster",  # for cimport alone
    "container.recordings.views.views_markdown",  # writes the page that names it
    "container.settings.container_table.settings_markdown",
}


def names_that_are_not_public(names: set[str]) -> list[str]:
    """Those that are neither in the list, nor a public module, nor an attribute of a public class."""
    public = {f"{module}.{name}" for module, listed in NAMES.items() for name in listed} | set(NAMES) | OF_NO_REFERENCE
    return sorted(name for name in names if name not in public and name.rpartition(".")[0] not in public)


FOR_THOSE_WHO_CHANGE_THE_PROJECT = {
    page for page in DOCUMENTS if page.startswith(("docs/design/", "tests/")) or page == "CONTRIBUTING.md"
}


@pytest.mark.parametrize("page", sorted(set(DOCUMENTS) - FOR_THOSE_WHO_CHANGE_THE_PROJECT))
def test_the_text_of_a_page_uses_public_names_alone(page: str) -> None:
    assert not names_that_are_not_public(named_in_the_text(Path(ROOT, page).read_text(encoding="utf-8")))


def test_a_name_in_the_text_that_is_not_public_is_found() -> None:
    text = "`container.run()`, `container.client` and `container.client.ClientContext.connect`: `container.gone.f(1)`"
    assert names_that_are_not_public(named_in_the_text(text)) == ["container.gone.f"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_uses_public_names_alone(example: str) -> None:
    assert not imports_that_are_not_public(Path(ROOT, example).read_text(encoding="utf-8"))


def test_a_name_that_is_not_public_is_found() -> None:
    code = (
        "from container.client import AeronCluster, Nothing\nfrom container.testing import checks\nimport container\n"
    )
    assert imports_that_are_not_public(code) == ["container.client.Nothing"]
