"""Objects that are not services, given wherever a program gives one: the error names them and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import container
from container import ClusteredService
from container.errors import ConfigurationError
from container.service.given_service import check_path
from container.testing import MemoryMember
from tests.test_check_command import check
from tests.test_main import code_of

MODULE = __name__


class Underived:
    """The one callback that a service needs, in a class that is not a service."""

    def on_session_message(self, *arguments: object) -> None: ...


class Silent(ClusteredService):
    """It lacks the one callback that a service needs."""


class Needy(ClusteredService):
    def __init__(self, name: str) -> None:
        self.name = name

    def on_session_message(self, *arguments: object) -> None: ...


class Good(ClusteredService):
    def on_session_message(self, *arguments: object) -> None: ...


def nothing() -> None: ...


async def later() -> Good:
    return Good()


underived = Underived()
good = Good()

DERIVE = "Underived has no callback on_start(): derive it from container.ClusteredService"
WRITE = "Silent has no on_session_message(): write def on_session_message(self, ...)"
PARAMETERS = "Needy(name: 'str') is called without arguments: give its parameters defaults"
MAKER = "must be a class, or a function that makes one"
NOT_DERIVED = "must be an instance of a class that is derived from container.ClusteredService, not "


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Underived, DERIVE),
        (underived, "must be a ClusteredService, or a function that makes one: derive its class from"),
        (Silent, WRITE),
        (Needy, PARAMETERS),
        (nothing, "made None: it must make a ClusteredService: return one from nothing()"),
        (later, "later is a coroutine function: use def, and return a ClusteredService"),
        ("m:Name", "must be a ClusteredService, or a function that makes one: derive its class from"),
    ],
)
def test_a_member_in_memory_names_the_fix(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        MemoryMember(given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Underived, DERIVE),
        (underived, MAKER),
        (Silent, WRITE),
        (Needy, PARAMETERS),
        (nothing, "made None: it must make a ClusteredService: return one from nothing()"),
        (good, MAKER),
    ],
)
@pytest.mark.parametrize("consensus", [None, "native"])
def test_a_simulation_names_the_fix(given: Any, text: str, consensus: str | None) -> None:
    simulate: Callable[..., Any] = pytest.importorskip("container.testing.simulation").simulate
    settings = {} if consensus is None else {"consensus": consensus}
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        simulate(given, seed=1, payloads=[b"x"], **settings)


IN_PROCESS = [
    (Underived, "must be an instance, not the class Underived: pass Underived()"),
    (underived, DERIVE),
    (nothing, NOT_DERIVED + "the function nothing: pass nothing()"),
    ("m:Name", NOT_DERIVED + "'m:Name'"),
]


@pytest.mark.parametrize(("given", "text"), IN_PROCESS)
def test_run_names_the_fix_without_waiting_for_a_node(
    given: Any, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        container.run(given, cluster_dir="/no/such/directory")
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("given", "text"), IN_PROCESS)
def test_a_node_names_the_fix(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        container.launch_node(given)


@pytest.mark.parametrize(("given", "text"), [(Underived, DERIVE), (Silent, WRITE), (Needy, PARAMETERS)])
def test_a_cluster_names_the_fix_before_it_starts_a_process(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        container.launch_cluster(given)


COMMANDS = [
    ("Underived", DERIVE),
    ("Silent", WRITE),
    ("Needy", PARAMETERS),
]


@pytest.mark.parametrize(
    ("name", "text"),
    [*COMMANDS, ("underived", DERIVE), ("nothing", "nothing() returned None: it must return a service")],
)
def test_dev_names_the_fix(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("dev", f"{MODULE}:{name}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"service='{MODULE}:{name}': {text}" in line


@pytest.mark.parametrize(("name", "text"), COMMANDS)
def test_dev_with_members_names_the_fix(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("dev", "--members", "3", f"{MODULE}:{name}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"service='{MODULE}:{name}': {text}" in line


@pytest.mark.parametrize(("name", "text"), [*COMMANDS, ("underived", MAKER), ("good", MAKER)])
def test_check_names_the_fix_once(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"{MODULE}:{name}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{MODULE}" in line
    assert text in line


def test_a_path_of_an_instance_is_checked_before_the_process_that_uses_it() -> None:
    for name in ("Good", "good"):
        check_path(f"{MODULE}:{name}", "service")
    for name in ("Underived", "underived"):
        with pytest.raises(ConfigurationError, match=rf"^service='{MODULE}:{name}': {re.escape(DERIVE)}"):
            check_path(f"{MODULE}:{name}", "service")
