"""The public names, read from the reference: the modules of its pages, and what each of them exports."""

from __future__ import annotations
import __future__

import importlib
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
LIST = ROOT / "tests" / "public_names.txt"
HEAD = "# Public names by module: `./run python -m tests.public_names` writes this list from docs/reference.\n"


def public_names() -> dict[str, list[str]]:
    """Sorted names by public module: those that its page lists, else those of ``__all__``, else all without ``_``.

    Raises:
        AttributeError: a page lists a name that its module does not have.
    """
    found = {}
    for page in sorted(PAGES.glob("*.rst")):
        text = page.read_text(encoding="utf-8")
        for name, listed in re.findall(r"automodule:: (\S+)\n +:members:((?:.*\n(?: {13}.*\n)*))", text):
            module = importlib.import_module(name)
            names = re.findall(r"\w+", listed) or getattr(module, "__all__", None) or _defined(module)
            for public in names:
                getattr(module, public)
            found[name] = sorted(names)
    return dict(sorted(found.items()))


def _defined(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType | __future__._Feature)
    ]


def as_text(names: dict[str, list[str]]) -> str:
    return HEAD + "".join(f"{module}.{name}\n" for module, found in names.items() for name in found)


if __name__ == "__main__":
    LIST.write_text(as_text(public_names()), encoding="utf-8")
