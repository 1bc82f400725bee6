"""Public names without a description: a docstring, a string or ``#:`` beside the assignment, a word of the class."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"


def undescribed(names: dict[str, list[str]]) -> list[str]:
    """Those of ``names`` (by module), and of the public parts of classes among them, sorted.

    A function, a method, a property and a class need a docstring, which they may inherit. An attribute may be named in
    the docstring of its class instead; a value, a type and an attribute may have a string behind them, or ``#:``.
    """
    found = set()
    for module, listed in names.items():
        for name in listed:
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value):
                found |= {f"{value.__module__}.{name}.{part}" for part in _undescribed_parts(value)}
            if not _is_described(value, name):
                found.add(f"{module}.{name}")
    return sorted(found)


def _is_described(value: Any, name: str) -> bool:
    if inspect.isclass(value):
        return bool(_docstring(value))
    if callable(value) or inspect.ismodule(value):
        return bool((inspect.getdoc(value) or "").strip())
    return any(("", name) in described_beside(path) for path in _sources())


def _docstring(owner: type) -> str:
    """A class's own docstring, without the signature that a dataclass and a named tuple write in place of one."""
    text = owner.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{owner.__name__}(") else text.strip()


def _undescribed_parts(owner: type) -> Iterator[str]:
    words = " ".join(map(_docstring, owner.__mro__))
    for name, part in vars(owner).items():
        if name.startswith("_") or inspect.isclass(part) or isinstance(part, enum.Enum):
            continue
        if not _is_made_by_def(part):
            beside = any((each.__name__, name) in _beside(each.__module__) for each in owner.__mro__)
            own = (
                part.__doc__ if inspect.isgetsetdescriptor(part) else None
            )  # a property of a compiled class, or a field
            if not (own or beside or re.search(rf"\b{name}\b", words)):
                yield name
        elif not inspect.getdoc(getattr(owner, name)):
            yield name


def _is_made_by_def(part: Any) -> bool:
    return callable(part) or isinstance(part, property | classmethod | staticmethod | functools.cached_property)


def _beside(module: str) -> set[tuple[str, str]]:
    path = SOURCES.joinpath(*module.split("."))
    found: set[tuple[str, str]] = set()
    return found.union(*(described_beside(path.with_suffix(suffix)) for suffix in (".py", ".pyi")))


@functools.cache
def _sources() -> tuple[Path, ...]:
    return tuple(path for suffix in ("py", "pyi") for path in (SOURCES / "container").rglob(f"*.{suffix}"))


@functools.cache
def described_beside(path: Path) -> set[tuple[str, str]]:
    """Class (empty outside of one) and name of what is assigned in a file with ``#:`` before, or a string behind it."""
    if not path.is_file():
        return set()
    text = path.read_text(encoding="utf-8")
    return set(_assignments(ast.parse(text).body, "", text.splitlines()))


def _assignments(body: list[ast.stmt], owner: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef):
            yield from _assignments(statement.body, statement.name, lines)
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            yield from _assignments(statement.body, owner, lines)
        is_marked = statement.lineno > 1 and lines[statement.lineno - 2].lstrip().startswith("#:")
        if is_marked or (
            isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield from ((owner, name) for name in _targets(statement))


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.TypeAlias):
        targets = [statement.name]
    else:
        return []
    return [
        target.id if isinstance(target, ast.Name) else target.attr
        for target in targets
        if isinstance(target, ast.Name | ast.Attribute)
    ]
