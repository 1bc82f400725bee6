"""One style of door for clients: `connect` of the class that you get; docs/design/clients.md says why."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

import container.archive
import container.client

DOORS = {
    "AeronArchive",
    "AeronCluster",
    "AsyncAeronArchive",
    "AsyncAeronCluster",
    "AsyncReconnectingClient",
    "AsyncSessionPool",
    "ReconnectingClient",
    "SessionPool",
}
PUBLIC: dict[str, Any] = {
    name: getattr(module, name) for module in (container.client, container.archive) for name in module.__all__
}


def test_each_client_has_its_door_and_nothing_else_has_one() -> None:
    assert {name for name, value in PUBLIC.items() if hasattr(value, "connect")} == DOORS


@pytest.mark.parametrize("module", [container.client, container.archive])
def test_no_function_of_a_module_opens_a_client(module: ModuleType) -> None:
    assert [name for name in module.__all__ if inspect.isroutine(getattr(module, name))] == []


@pytest.mark.parametrize("name", sorted(DOORS))
def test_a_door_takes_a_context_or_keywords_and_is_entered_as_its_name_says(name: str) -> None:
    client = PUBLIC[name]
    context, *others = inspect.signature(client.connect).parameters.values()
    assert (context.name, context.default) == ("context", None)
    assert {each.kind for each in others} == {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    assert hasattr(client, "__aenter__" if name.startswith("Async") else "__enter__")


@pytest.mark.parametrize("name", ["aconnect", "areconnecting", "reconnecting"])
def test_a_former_door_warns_and_leads_to_the_new_one(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"container.client.{name} is now \w+.connect") as warned:
        door = getattr(container.client, name)
    assert warned[0].filename == __file__
    assert door.__name__ == "connect"
    with pytest.raises(AttributeError, match="'container.client' has no attribute 'bconnect'"):
        container.client.bconnect  # noqa: B018
