"""Every import and cimport of the package follows the table of rooms in layers.py; the document has the same table."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.layers import PACKAGE, ROOMS, ROOT, When, imported_by, late_circles, markdown, modules, room_of, uses
from tests.room_picture import PLACE, picture, reduced, rows_of


def test_every_module_is_in_a_room_and_every_room_has_modules() -> None:
    rooms = {room_of(module) for module in modules()}
    assert rooms == set(ROOMS)
    named = {f"container.{name}" for room in ROOMS.values() for name in room.modules.split()} - {"container.__init__"}
    assert named <= set(modules()), "tests/layers.py names modules that are not there"


def test_rooms_use_only_rooms_above_them() -> None:
    names = list(ROOMS)
    for index, (name, room) in enumerate(ROOMS.items()):
        assert set(room.uses.split()) <= set(names[:index]), name


def test_imports_follow_the_table() -> None:
    found = {(module, used): (room_of(module), room_of(used)) for module, used, _ in uses()}
    wrong = [
        f"{module} ({room}) imports {used} ({other})"
        for (module, used), (room, other) in found.items()
        if other != room and other not in ROOMS[room].uses.split()
    ]
    assert not wrong, "these imports cross a border of tests/layers.py:\n" + "\n".join(wrong)


def test_no_room_has_leave_that_it_does_not_need() -> None:
    needed = {(room_of(module), room_of(used)) for module, used, _ in uses()}
    spare = [
        f"{name}: {each}" for name, room in ROOMS.items() for each in room.uses.split() if (name, each) not in needed
    ]
    assert not spare, "nothing in the room uses these:\n" + "\n".join(spare)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".py", "def late():\n    from container.testing.node import Node\n"),
        (".py", "import container.testing.node\n"),
        (".py", "from container.testing import node\n"),
        (".pyx", "from container.testing.node cimport Node, Other as O\n"),
        (".pyx", "    from container.testing import (\n    node,\n    java)\n"),
        (".pxd", "cimport container.testing.node\n"),
        (".pyi", "from container.testing.node import Node\n"),
        (".py", "from ..testing import node\n"),
        (".py", "from ..testing.node import Node\n"),
        (".pyx", "from ..testing cimport node\n"),
        (".pyx", "from ..testing.node import Node\n"),
        (".pyx", "import os, container.testing.node as n\n"),
        (".pyx", "from container.testing \\\n    import node\n"),
        (".pyx", "from container.testing cimport (  # (1)\n    node,\n)\n"),
        (".py", "importlib.import_module('container.testing.node')\n"),
        (".py", "__import__(name='container.testing.node')\n"),
        (".py", "load_object('container.testing.node:Node', 'place')\n"),
        (".pyx", "__import__('container.testing.node')\n"),
    ],
)
def test_an_import_is_seen_in_each_form(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"planted{suffix}"
    path.write_text(text)
    assert any(name.startswith("container.testing.node") for name, _ in imported_by(path, "container.client"))


def test_no_import_in_a_function_hides_a_circle() -> None:
    assert not late_circles(uses())


@pytest.mark.parametrize(
    ("suffix", "text", "when"),
    [
        (".py", "from container.b import c\n", When.LOADED),
        (".py", "if TYPE_CHECKING:\n    from container.b import c\n", When.NEVER),
        (".py", "def f():\n    from container.b import c\n", When.CALLED),
        (".py", "class A:\n    async def f(self):\n        import container.b.c\n", When.CALLED),
        (".py", "class A:\n    import container.b.c\n", When.LOADED),
        (".py", "import_module('container.b.c')\n", When.NEVER),
        (".pyi", "from container.b import c\n", When.NEVER),
        (".pyx", "from container.b cimport c\n", When.LOADED),
        (".pyx", "cdef f():\n    from container.b import c\n", When.CALLED),
        (".pxd", "cimport container.b.c\n", When.LOADED),
    ],
)
def test_when_an_import_is_needed_is_seen(tmp_path: Path, suffix: str, text: str, when: When) -> None:
    path = tmp_path / f"planted{suffix}"
    path.write_text(text)
    assert set(imported_by(path)) == {("container.b.c", when)}


def test_a_circle_in_functions_is_seen_through_others() -> None:
    circle = [("a", "b", When.CALLED), ("b", "c", When.LOADED), ("c", "a", When.CALLED)]
    assert late_circles(circle) == [
        "a imports b in a function, which needs it",
        "c imports a in a function, which needs it",
    ]
    assert not late_circles([*circle[:2], ("c", "a", When.NEVER)])


def test_what_starts_the_package_and_its_entry_points_use_the_test_kit_for_one_command_alone() -> None:
    assert not [name for name, _ in imported_by(PACKAGE.parent / "aeron_cluster_command.py") if ".testing" in name]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    places = [*project["scripts"].values(), *(p for each in project["entry-points"].values() for p in each.values())]
    assert [place for place in places if "testing" in place] == ["container.testing.check_command:check_parser"]


def test_the_document_has_the_table() -> None:
    assert markdown() in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), (
        "put what `python -m tests.layers` prints into docs/architecture.md"
    )


def test_the_document_has_the_picture() -> None:
    assert PLACE.read_text(encoding="utf-8") == picture(), "run `python -m tests.room_picture`"


def test_an_arrow_is_left_out_where_a_longer_way_leads() -> None:
    uses = {"low": set[str](), "middle": {"low"}, "high": {"low", "middle"}}
    assert reduced(uses) == {"low": set(), "middle": {"low"}, "high": {"middle"}}
    assert rows_of(uses) == {"low": 0, "middle": 1, "high": 2}


def test_the_way_of_a_message_names_modules() -> None:
    """The picture is drawn by hand."""
    known = {module.rpartition(".")[2] for module in modules()}
    drawn = re.findall(
        r'<text x="[^"]*" y="[^"]*">([^<]*)<', (PLACE.parent / "message.svg").read_text(encoding="utf-8")
    )
    assert len(drawn) == 12
    assert {name for name in drawn if name not in known} == {"your service"}
