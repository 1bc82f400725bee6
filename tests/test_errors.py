"""What errors say of themselves: whether to try again, what became of it, and the same after pickling."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container import errors
from container.api import NOT_CONNECTED
from container.client import AeronCluster, ClientState, SessionPool
from container.client.egress_listener import EventCode
from container.errors import (
    AgentTermination,
    Category,
    ClusterTermination,
    ClusterUnavailableError,
    ContainerError,
    MessageTooLongError,
    Outcome,
    RecordingError,
    RegistrationError,
    SendTimedOutError,
    SessionError,
    SessionLimitError,
)
from container.transport.message_buffer import BufferClaim
from tests import ingress_member
from tests.client_world import MEMBER_0, Collecting, World
from tests.ingress_member import ERROR, IngressMember

ROOT = Path(__file__).parents[1]
HEADING = "| error | is also a | `is_retryable` | `outcome` | when |"
NAME = re.compile(r"`(\w+)`")


def error_classes() -> Iterator[type[BaseException]]:
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, (ContainerError, AgentTermination)):
            yield kind


def made(kind: type[BaseException]) -> BaseException:
    arguments: dict[str, Any] = {
        name: {"code": 12, "detail": "why", "is_expected": True}[name]
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.kind == parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    return kind(**arguments) if kind is ClusterTermination else kind("it failed: 7", **arguments)


def rows() -> dict[str, list[str]]:
    """The table of docs/client.md: the cells of each error."""
    lines = (ROOT / "docs" / "client.md").read_text(encoding="utf-8").splitlines()
    table: dict[str, list[str]] = {}
    for line in lines[lines.index(HEADING) + 2 :]:
        if not line.startswith("| "):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        table[name.strip("`")] = cells
    return table


def raised_by_the_client() -> set[str]:
    """Names of errors that the client's sources use."""
    names = {kind.__name__ for kind in error_classes()}
    sources = [*(ROOT / "src/container/client").glob("*.pyx"), *(ROOT / "src/container/client").glob("*.py")]
    used = {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return names & used - {"ContainerError", "Event"}  # the latter is asyncio's, too


# Pickling


@pytest.mark.parametrize("kind", list(error_classes()), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("remake", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_an_error_survives_pickling_with_all_that_it_says(kind: type[BaseException], remake: Any) -> None:
    error = made(kind)
    error.add_note("seen at noon")
    again = remake(error)
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.args == error.args
    assert again.__dict__ == error.__dict__
    assert again.__notes__ == ["seen at noon"]


def test_a_users_error_survives_pickling_whatever_its_constructor_takes() -> None:
    again = pickle.loads(pickle.dumps(OwnError(7)))
    assert (type(again), str(again), again.number) == (OwnError, "number 7", 7)


class OwnError(SendTimedOutError):
    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}", code=number, category=Category.WARN)
        self.number = number


def test_a_recording_error_still_has_its_places() -> None:
    again = pickle.loads(pickle.dumps(RecordingError("is damaged", file="f", offset=3)))
    assert (again.detail, again.file, again.offset, again.log_position) == ("is damaged", "f", 3, None)
    assert str(again) == "f, offset 3: is damaged"


# What a program can do


@pytest.mark.parametrize("kind", list(error_classes()), ids=lambda kind: kind.__name__)
def test_each_class_says_whether_to_try_again_and_what_is_known(kind: type[BaseException]) -> None:
    if issubclass(kind, ContainerError):
        assert isinstance(kind.is_retryable, bool)
        assert isinstance(kind.outcome, Outcome)


def test_the_table_has_every_error_of_a_client() -> None:
    of_the_transport = {"AeronError", "ClaimLostError", "DriverTimeoutError", "ForkedError"}
    assert sorted(rows()) == sorted(raised_by_the_client() | of_the_transport | {"OutcomeUnknownError"})


@pytest.mark.parametrize("name", sorted(rows()))
def test_the_table_says_what_the_class_says(name: str) -> None:
    also, is_retryable, outcome, when = rows()[name]
    kind = getattr(errors, name)
    assert is_retryable == ("yes" if kind.is_retryable else "no")
    assert outcome == kind.outcome.value
    assert when
    bases = NAME.findall(also)
    for base in bases:
        assert issubclass(kind, getattr(errors, base, None) or getattr(builtins, base)), base
    pythons = {cls.__name__ for cls in kind.__mro__ if cls.__module__ == "builtins"}
    pythons -= {"Exception", "BaseException", "object", "OSError"}
    shown = {base for base in bases if hasattr(builtins, base)}
    if "ConnectionRefusedError" in shown:
        pythons -= {"ConnectionError"}
    assert shown == pythons


@pytest.mark.parametrize(("code", "is_retryable"), [(1, False), (9, True), (10, True), (11, False), (12, True)])
def test_a_refusal_of_the_driver_says_by_its_code_whether_to_try_again(code: int, is_retryable: bool) -> None:
    error = RegistrationError("refused", code=code)
    assert error.is_retryable == is_retryable
    assert pickle.loads(pickle.dumps(error)).is_retryable == is_retryable


# From a client


def test_the_session_limit_can_be_tried_again_and_another_refusal_can_not(world: World) -> None:
    member = IngressMember(world.driver, 0, MEMBER_0)
    member.refuse(ERROR, "concurrent session limit")
    with pytest.raises(SessionLimitError, match="ERROR: concurrent session limit; members tried") as limited:
        world.connect()
    assert (limited.value.is_retryable, limited.value.code) == (True, EventCode.ERROR)
    assert isinstance(limited.value, ConnectionRefusedError)
    member.refuse(ERROR, "invalid client version")
    with pytest.raises(SessionError) as refused:
        world.connect()
    assert (type(refused.value), refused.value.is_retryable) == (SessionError, False)


def test_a_rejected_client_gets_a_permission_error_that_is_no_connection_error(world: World) -> None:
    IngressMember(world.driver, 0, MEMBER_0).refuse(ingress_member.AUTHENTICATION_REJECTED, "no")
    with pytest.raises(PermissionError) as refused:
        world.connect()
    assert not isinstance(refused.value, ConnectionError)


@pytest.mark.parametrize(("code", "is_retryable"), [(1, False), (9, True)])
def test_members_that_the_driver_refuses_can_be_tried_again_if_their_names_may_resolve_later(
    world: World, code: int, is_retryable: bool
) -> None:
    for refusal in (1, code):
        world.driver.fail_next_add("exclusive_publication", code=refusal, text="refused")
    with pytest.raises(ClusterUnavailableError, match="no member's ingress publication could be added") as refused:
        world.connect()
    assert refused.value.is_retryable == is_retryable


def test_a_send_that_is_not_accepted_was_not_sent(world: World) -> None:
    IngressMember(world.driver, 0, MEMBER_0)
    client = world.connect()
    world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED] * 10_000)
    with pytest.raises(SendTimedOutError, match="NOT_CONNECTED, state CONNECTED") as late:
        client.send(b"x", timeout=1.0)
    assert (late.value.is_retryable, late.value.outcome) == (True, Outcome.NOT_DONE)
    assert client.state == ClientState.CONNECTED


# Lengths


def too_long(length: int, limit: str, longest: int) -> str:
    return f"of {length} bytes is longer than the {limit} of {longest} bytes"


def test_too_long_a_message_is_counted_as_the_caller_passed_it(world: World) -> None:
    IngressMember(world.driver, 0, MEMBER_0)
    client: AeronCluster = world.connect()
    longest = client.max_message_length
    assert client.offer(bytes(longest)) > 0
    for call in (client.offer, client.send):
        with pytest.raises(MessageTooLongError, match=too_long(longest + 1, "max_message_length", longest)):
            call(bytes(longest), b"x")
    longest = client.max_payload_length
    with pytest.raises(MessageTooLongError, match=too_long(longest + 1, "max_payload_length", longest)):
        client.try_claim(longest + 1, BufferClaim())


def test_too_long_a_message_of_a_pooled_session_is_counted_as_the_caller_passed_it(world: World) -> None:
    member = IngressMember(world.driver, 0, MEMBER_0)
    with SessionPool.connect(world.context(listener=Collecting())) as pool:
        member.cluster_session_id = 9
        (session,) = pool.open_all(1)
        longest = pool.cluster.max_message_length
        with pytest.raises(MessageTooLongError, match=too_long(longest + 1, "max_message_length", longest)):
            session.offer(bytes(longest + 1))
