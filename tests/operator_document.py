"""The chapter of docs/operator-tools.md that lists the fields of the facts, made from `container.operate.facts`."""

from __future__ import annotations

import ast
from pathlib import Path

from container.operate import facts

DOCUMENT = Path(__file__).parents[1] / "docs" / "operator-tools.md"
HEADING = "## Fields"


def fields_markdown() -> str:
    """Return the chapter: a table for each struct, the facts of words first and then their parts."""
    tree = ast.parse(Path(str(facts.__file__)).read_text(encoding="utf-8"))
    structs = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name != "Facts"]
    text = (
        f"{HEADING}\n\nWritten by `tests/operator_document.py`; a test compares this chapter with it. Positions are "
        "log positions in bytes,\nnames in `_ms` are epoch milliseconds, and a field is null where a file does not say "
        "it. New fields may come; these\nkeep their names and meanings.\n"
    )
    return text + "".join(_table(node) for node in structs)


def _table(node: ast.ClassDef) -> str:
    rows = []
    for field, comment in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(comment, ast.Expr):
            assert isinstance(field.target, ast.Name), node.name
            assert isinstance(comment.value, ast.Constant), node.name
            assert isinstance(comment.value.value, str), node.name
            kind = ast.unparse(field.annotation).replace(" | None", " or null").replace(" | ", " or ")
            rows.append(f"| `{field.target.id}` | {kind} | {comment.value.value} |\n")
    doc = ast.get_docstring(node)
    return f"\n### {node.name}\n\n{doc}\n\n| field | type | meaning |\n| --- | --- | --- |\n" + "".join(rows)


def write() -> None:
    """Write the chapter into the document."""
    head = DOCUMENT.read_text(encoding="utf-8").partition(HEADING)[0]
    DOCUMENT.write_text(head + fields_markdown(), encoding="utf-8")


if __name__ == "__main__":
    write()
