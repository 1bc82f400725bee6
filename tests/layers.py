"""The rooms of the package and which of them each may use: checked by test_layers.py, drawn in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "container"


class Room(NamedTuple):
    """Modules that belong together, by name below ``container``; a package stands for what is in no other room."""

    purpose: str
    modules: str
    uses: str = ""


# From the lowest to the highest: a room may use rooms above it in this table, and of these only those that it names.
ROOMS = {
    "interface": Room("what a service implements and is given, in plain Python", "api"),
    "common": Room(
        "errors, texts, values, regular files, forks: what knows nothing of Aeron's streams",
        "common errors version archive.error_codes",
    ),
    "codecs": Room("messages as fields at offsets in borrowed bytes", "codecs", "common"),
    "transport": Room(
        "the seam: client, image, publication, counters, clocks, stores; buffers, fragments and idling over it",
        "transport",
        "common codecs",
    ),
    "storage": Room(
        "the seam for files that must survive a crash, and its side over the operating system", "storage", "common"
    ),
    "settings": Room("every setting and where its value comes from", "settings", "common transport"),
    "libaeron": Room("the declarations of Aeron's C library", "aeron.libaeron"),
    "aeron": Room("the seam over Aeron's C client, and the media driver", "aeron", "common transport libaeron"),
    "files": Room(
        "files that Aeron's processes share: mark file, error log and its entries, CnC file, catalog, recording log, "
        "node state; checksums, names of segment files",
        "files error_handlers",
        "common codecs transport storage",
    ),
    "agent": Room(
        "running an agent: its loop, its thread, its owner, its context, several on one thread",
        "agent",
        "common settings transport storage aeron files",
    ),
    "archive": Room(
        "what an archive and those who use one have in common: texts of channels, who may do what",
        "archive.authentication archive.channel_texts",
        "common",
    ),
    "archive-client": Room(
        "the client of an archive, for programs, services, members and replications; snapshots in an archive",
        "archive.client",
        "common codecs transport aeron files archive",
    ),
    "service": Room(
        "inside the member: agent, adapters, proxy, sessions, snapshots",
        "service snapshots",
        "interface common settings codecs transport agent",
    ),
    "client": Room("the client of a cluster", "client", "interface common settings codecs transport aeron files"),
    "recordings": Room("recordings of a member as Arrow columns", "recordings", "common codecs transport files"),
    "archive-store": Room(
        "the archive's directory: catalog, positions, segments, and what a crash leaves of them",
        "archive.server.store",
        "common codecs storage files",
    ),
    "archive-sessions": Room(
        "work of an archive for its clients: a state machine for each control session, recording, replay, list, "
        "deletion and replication; its counters and events",
        "archive.server.sessions archive.server.archive_counters archive.server.recording_events",
        "common settings codecs transport files archive archive-client archive-store",
    ),
    "archive-conductor": Room(
        "what an archive does in each turn, and for each request: sessions, recordings, replays, replications",
        "archive.server.archive_conductor archive.server.recorder archive.server.replayer",
        "common codecs transport settings archive archive-store archive-sessions",
    ),
    "consensus": Room(
        "the native consensus module: members and elections, sessions, timers, the log in and out, snapshots, recovery",
        "consensus",
        "interface common transport storage settings codecs files agent archive archive-client",
    ),
    "archive-front": Room(
        "an archive as its owner sees it: launching, running and closing one; its duty cycle and its mark file; the "
        "command `aeron-cluster archive`",
        "archive",
        "common transport storage settings files agent archive archive-client archive-sessions archive-store "
        "archive-conductor",
    ),
    "backup": Room(
        "a backup of a cluster: copying log and snapshots away from it; the command `aeron-cluster backup`",
        "backup",
        "common codecs transport storage settings aeron files agent archive-client consensus archive-front",
    ),
    "operate": Room(
        "what operators ask of a node: facts from its files and counters, control of a running one, deletions, as text "
        "or JSON",
        "operate",
        "common settings codecs storage aeron transport files recordings archive-client archive-store archive-front "
        "consensus",
    ),
    "replay": Room(
        "a recorded log, executed again by the real agent",
        "replay",
        "interface common settings codecs transport files service recordings",
    ),
    "sbe": Room("payloads that a user's SBE schema describes, as Arrow columns", "sbe", "common recordings"),
    "spark": Room("the data source `aeron.cluster`", "spark", "common recordings sbe"),
    "pipeline": Room(
        "ingest, audit, replay and analytics on Spark",
        "pipeline",
        "interface common settings files recordings replay spark",
    ),
    "memory": Room(
        "for tests: a member in memory, over the seam, with a scripted consensus module; the checks of a service",
        "testing.memory",
        "interface common settings codecs transport service",
    ),
    "processes": Room(
        "for tests: nodes, clusters and archives as real processes; recordings that are written",
        "testing.processes",
        "interface common codecs transport aeron files",
    ),
    "front": Room(
        "launching, running and closing a container; the command `aeron-cluster`",
        "__init__ __main__ cli clustered_service_container context node run_service setting_types",
        "interface common settings transport storage aeron files agent archive-client service client consensus backup "
        "archive-front operate pipeline replay processes",
    ),
    "simulation": Room(
        "for tests: a cluster in one thread, from one seed, in virtual time; of members, or of whole nodes",
        "testing.simulation",
        "interface common settings transport storage agent service client consensus archive-front memory front",
    ),
    "testing": Room(
        "for tests: what they import; the command `aeron-cluster check`",
        "testing",
        "interface common recordings memory simulation processes",
    ),
}


def room_of(module: str) -> str:
    """The room of a module such as ``container.client.requests``; the longest name in the table counts."""
    parts = module.split(".")[1:] or ["__init__"]
    while parts:
        name = ".".join(parts)
        for room, (_purpose, modules, _uses) in ROOMS.items():
            if name in modules.split():
                return room
        parts.pop()
    raise LookupError(f"{module} is in no room: give it one in tests/layers.py")


def module_of(path: Path) -> str:
    """The module's name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_CYTHON = re.compile(
    r"^([ \t]*)(?:from[ \t]+([\w.]+)[ \t]+c?import[ \t]*(\([^)]*\)|[^\n;]*)|c?import[ \t]+([^\n;]*))", re.M
)
_NAMED = re.compile(r"container\.[a-z_]\w*(?:\.\w+)*")


class When(Enum):
    """When a file needs what it names."""

    LOADED = "when it is loaded"
    CALLED = "when a function is called"
    NEVER = "for type checkers, or as a text"


def imported_by(path: Path, package: str = "container") -> Iterator[tuple[str, When]]:
    """The names that a file of ``package`` imports or cimports, wherever in the file, also for type checkers alone.

    A string that names a module, or something in one, counts: it is for ``import_module``, or for a process.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".py", ".pyi"}:
        yield from _imported_in(ast.parse(text), package, When.NEVER if path.suffix == ".pyi" else When.LOADED)
        return
    text = re.sub(r"\\\n", " ", text)
    for string in re.findall(r"[\"']([\w.:]+)[\"']", text):
        yield from ((name, When.NEVER) for name in _named(string))
    text = re.sub(r"#[^\n]*", "", text)
    for indent, source, names, plain in _CYTHON.findall(text):
        for name in re.sub(r"[()\s]+", " ", names or plain).split(","):
            if name.strip():
                found = f"{_absolute(source, package)}.{name.split()[0]}" if source else name.split()[0]
                yield found, When.CALLED if indent else When.LOADED


def _imported_in(node: ast.AST, package: str, when: When) -> Iterator[tuple[str, When]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, when) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = _absolute("." * node.level + (node.module or ""), package)
        yield from ((f"{source}.{alias.name}", when) for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from ((name, When.NEVER) for name in _named(node.value))
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and when is When.LOADED:
        when = When.CALLED
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        when = When.NEVER
    for child in ast.iter_child_nodes(node):
        yield from _imported_in(child, package, when)


def _absolute(source: str, package: str) -> str:
    name = source.lstrip(".")
    if name == source:
        return source
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - (len(source) - len(name)) + 1], *filter(None, [name])])


def _named(string: str) -> Iterator[str]:
    module = string.partition(":")[0]
    if _NAMED.fullmatch(module):
        yield module


def modules() -> dict[str, list[Path]]:
    """The files of each module."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in {".py", ".pyi", ".pyx", ".pxd"}:
            found.setdefault(module_of(path), []).append(path)
    return found


@cache
def uses() -> frozenset[tuple[str, str, When]]:
    """Each import of a module of the package by another: the names of both, and when."""
    files, found = modules(), set()
    for module, paths in files.items():
        package = module if paths[0].stem == "__init__" else module.rpartition(".")[0]
        for name, when in {each for path in paths for each in imported_by(path, package)}:
            parts = name.split(".")
            if parts[0] != "container":
                continue
            while ".".join(parts) not in files:
                parts.pop()
            found.add((module, ".".join(parts), when))
    return frozenset(found)


def late_circles(found: Iterable[tuple[str, str, When]]) -> list[str]:
    """Imports in functions of modules that need the importing one, themselves or through others."""
    needs: dict[str, set[str]] = {}
    for module, used, when in found:
        if when is not When.NEVER:
            needs.setdefault(module, set()).add(used)

    def needed_by(module: str) -> set[str]:
        reached: set[str] = set()
        left = [module]
        while left:
            new = needs.get(left.pop(), set()) - reached
            reached |= new
            left += new
        return reached

    late = sorted({(module, used) for module, used, when in found if when is When.CALLED})
    return [
        f"{module} imports {used} in a function, which needs it" for module, used in late if module in needed_by(used)
    ]


def markdown() -> str:
    """The table of docs/architecture.md."""
    head = ["| room | what is in it | may use |", "| --- | --- | --- |"]
    return "\n".join(head + [f"| {name} | {room.purpose} | {room.uses or 'nothing'} |" for name, room in ROOMS.items()])


if __name__ == "__main__":
    print(markdown())
