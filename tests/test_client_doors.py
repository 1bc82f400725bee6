"""One style of door for clients: `connect` of the class that you get; docs/design/clients.md says why."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

import pytest

import container.archive
import container.client
from container.common.doors import door
from container.errors import ClosedError, ClusterError
from container.testing.memory.memory_transport import ManualClock, MemoryDriver

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


def settings_of(name: str) -> dict[str, Any]:
    if name.endswith("Archive"):
        return {}
    return {"ingress_channel": "aeron:udp?endpoint=localhost:9", "egress_channel": "aeron:udp?endpoint=localhost:0"}


@pytest.mark.parametrize("name", sorted(DOORS))
@pytest.mark.parametrize("arguments", [(), (None,)])
def test_a_client_made_by_hand_names_its_door(name: str, arguments: tuple[Any, ...]) -> None:
    settings = {"control_channel": "aeron:ipc"} if arguments else {}
    with pytest.raises(
        TypeError, match=rf"^{name}\(...\) connects nothing: use {name}.connect\(...\), as in 'a?"
    ) as refused:
        PUBLIC[name](*arguments, **settings)
    assert door(name) in str(refused.value)


@pytest.mark.parametrize("name", sorted(DOORS))
async def test_the_wrong_with_names_the_right_one(name: str) -> None:
    is_async = name.startswith("Async")
    client = PUBLIC[name]
    if is_async or name == "ReconnectingClient":
        entered = client.connect(**settings_of(name))
    else:
        entered = object.__new__(client) if client.__module__.endswith("aeron_archive") else None
    if entered is None:  # of a class that only a connect makes: what 'async with' looks up
        with pytest.raises(TypeError, match=f"{name} takes 'with': write 'with {name}.connect"):
            client.__aenter__(object())
        return
    right = "async with" if is_async else "with"
    with pytest.raises(TypeError, match=re.escape(f"{name} takes '{right}': write {door(name)}")):
        await enter_wrongly(entered, is_async=is_async)


async def enter_wrongly(entered: Any, *, is_async: bool) -> None:
    if is_async:
        with entered:
            pass
    async with entered:
        pass


async def use(call: Callable[[], Any]) -> None:
    found = call()
    if inspect.isawaitable(found):
        await found


@pytest.mark.parametrize("name", sorted(each for each in DOORS if each.startswith("Async")))
async def test_a_client_that_is_not_entered_names_its_door(name: str) -> None:
    client = PUBLIC[name].connect(**settings_of(name))
    uses: dict[str, list[Any]] = {
        "AsyncAeronArchive": [lambda: client.list_recordings(0, 1), lambda: client.start_recording],
        "AsyncAeronCluster": [lambda: client.request(b"", key=1), lambda: client.receive],
        "AsyncReconnectingClient": [
            lambda: client.send(b"x"),
            lambda: client.receive(),
            lambda: client.request(b"", key=1),
        ],
        "AsyncSessionPool": [lambda: client.open(), lambda: client.lost, lambda: client.leader_member_id],
    }
    text = re.escape(f"{name} is not connected yet: write {door(name)}")
    for call in uses[name]:
        with pytest.raises((AttributeError, ClosedError, ClusterError), match=text):
            await use(call)


@pytest.mark.parametrize("misuse", ["await", "async with"])
async def test_a_connect_in_steps_is_not_for_asyncio(misuse: str) -> None:
    driver = MemoryDriver(ManualClock())
    connecting: Any = container.client.AeronCluster.async_connect(
        client=driver.connect("test"), **settings_of("AeronCluster")
    )
    with pytest.raises(TypeError, match=r"polled, and is not for asyncio: write 'async with AsyncAeronCluster.connect"):
        await (use(lambda: connecting) if misuse == "await" else enter_wrongly(connecting, is_async=False))
    connecting.close()


@pytest.mark.parametrize("name", ["AsyncReconnectingClient", "ReconnectingClient"])
def test_a_fake_of_a_client_is_made_and_may_implement_a_protocol(name: str) -> None:
    class Sending(Protocol):
        def send(self, message: bytes) -> Any: ...

    client: Any = PUBLIC[name]

    class Fake(client, Sending):  # type: ignore[misc]
        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def send(self, message: bytes) -> Any:
            self.sent.append(message)

    fake = Fake()
    fake.send(b"x")
    assert fake.sent == [b"x"]
    assert isinstance(fake, PUBLIC[name])
