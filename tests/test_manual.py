"""The manual that the pages send a reader to: `pydoc` of a class or module, which begins with what was promised."""

from __future__ import annotations

import pydoc
import re

import pytest

import container.api
from tests.documents import DOCUMENTS, ROOT

NAMED = re.compile(r"python -m pydoc ([\w.]+)")


def text_of(name: str) -> str:
    return pydoc.render_doc(name, renderer=pydoc.plaintext)  # type: ignore[attr-defined]


def test_the_first_that_a_newcomer_is_sent_to_begins_with_the_callbacks() -> None:
    for document in ("README.md", "docs/service.md"):
        first = NAMED.findall((ROOT / document).read_text(encoding="utf-8"))[0]
        classes = re.findall(r"^(?:[\w.]+ = | *)class (\w+)\(", text_of(first), re.MULTILINE)
        assert classes[0] == "ClusteredService", document


def test_the_manual_names_the_classes_in_the_order_in_which_they_are_needed() -> None:
    names = NAMED.findall(str(container.api.__doc__))
    assert names[:3] == ["container.ClusteredService", "container.Cluster", "container.ClientSession"]


@pytest.mark.parametrize("document", [*DOCUMENTS, "src/container/api.py"])
def test_what_pages_send_a_reader_to_is_there(document: str) -> None:
    for name in NAMED.findall((ROOT / document).read_text(encoding="utf-8")):
        assert len(text_of(name)) > 200, name
