"""The documentation site: the pages as they are in the tree, and a reference from docstrings; ``./run docs``."""

from __future__ import annotations

import ast
import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

from container.version import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

project = "aeron-cluster-container"
version = release = VERSION
project_copyright = "the project's contributors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "docs/reference/*.rst",
    "examples/**/*.md",
    "tests/*.md",
    "tests/java/*.md",
]
exclude_patterns = [".*", "build", "src", "tests/java/target"]

html_theme = "furo"
html_title = f"aeron-cluster-container {VERSION}"
html_show_sphinx = False
html_copy_source = False
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["theme.css"]
pygments_style = "default"
pygments_dark_style = "github-dark"

myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

NAVIGATION = {
    "Learn": ["/README", "getting-started", "tutorial/index", "/examples/gallery/README", "faq", "glossary"],
    "Write and test": ["service", "cython", "client", "testing", "testing-clusters", "upgrading", "settings"],
    "Operate": ["deployment", "operations", "operator-tools", "metrics", "logs", "security", "/SECURITY"],
    "Run without Java": ["consensus-module", "archive", "free-threading", "interoperation"],
    "Analyse": ["pipeline", "replay"],
    "Come from Java": ["from-java", "from-java-contexts", "upstream", "upstream-tests"],
    "Reference": [
        f"reference/{page}"
        for page in ("service", "client", "errors", "testing", "archive", "node", "recordings", "pipeline")
    ],
    "Understand": ["architecture", "reliability", "performance", "performance-data", "design/index"],
    "Take part": ["/CONTRIBUTING", "/CHANGELOG", "own-tests"],
}
"""Pages of the side bar by heading; Sphinx reports a page that is in no list."""

LISTS = {
    "docs/index": NAVIGATION,
    "docs/tutorial/index": {"": [path.stem for path in sorted((ROOT / "docs/tutorial").glob("[0-9]*.md"))]},
    "docs/design/index": {
        "": [path.stem for path in sorted((ROOT / "docs/design").glob("*.md")) if path.stem != "index"]
    },
    "docs/own-tests": {
        "": [
            "/tests/conformance",
            "/tests/archive_conformance",
            "/tests/client_conformance",
            "/tests/consensus_conformance",
            "/tests/java/README",
        ]
    },
}
"""Pages below a page. They stand here, so that a page has no words that only Sphinx reads."""


def add_lists(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the hidden lists of the pages below ``page`` (the event ``source-read``)."""
    for caption, pages in LISTS.get(page, {}).items():
        heading = f":caption: {caption}\n" if caption else ""
        listed = "\n".join(pages)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n{heading}\n{listed}\n```\n"


@cache
def stub(module: str) -> dict[str, ast.FunctionDef]:
    """Functions by qualified name in the ``.pyi`` beside a compiled module; empty where there is none."""
    path = (ROOT / "src").joinpath(*module.split(".")).with_suffix(".pyi")
    found: dict[str, ast.FunctionDef] = {}
    if path.exists():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for item in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(item, ast.FunctionDef):
                    prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                    found[prefix + item.name] = item
    return found


def add_types(
    app: Sphinx, what: str, name: str, found: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Take the signature of a compiled function from its stub, which has the types (``autodoc-process-signature``)."""
    function = stub(getattr(found, "__module__", None) or "").get(getattr(found, "__qualname__", ""))
    if function is None:
        # Sphinx reads a signature as Python; one that it cannot read has no links, and its marks of shortened names.
        return (signature.replace("<factory>", "..."), returns) if signature else None
    arguments = copy.copy(function.args)
    if arguments.args and arguments.args[0].arg in {"self", "cls"}:
        arguments.args = arguments.args[1:]
    return f"({ast.unparse(arguments)})", ast.unparse(function.returns) if function.returns else None


SECTIONS = Config(napoleon_use_ivar=True)


def read_sections(app: Sphinx, what: Any, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Turn sections such as ``Raises:`` into fields (the event ``autodoc-process-docstring``).

    The extension napoleon would also take the words before a colon for a type, in the docstring of an attribute.
    """
    if what not in {"attribute", "data", "property"}:
        lines[:] = GoogleDocstring(lines, SECTIONS, app, what, name, found, options).lines()


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_lists)
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("autodoc-process-signature", add_types)
