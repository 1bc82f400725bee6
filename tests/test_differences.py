"""Findings end with the difference and not before it, however long the two values are, and whoever reports them."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import container
from container.api import ClientSession, Header, MessageBuffer
from container.common.differences import NOTHING, first_difference, shown_apart
from container.service.state_difference import state_difference
from container.testing.memory.checks import DivergenceError, check_restarts, check_upgrade
from container.testing.memory.scripted_consensus_module import ScheduleTimer, SessionMessage
from container.testing.simulation import OpenSession, Plan, Send, SimulationFailure, simulate
from tests.services import Adding, life

LONG = "x" * 10_000
SAME = bytes(range(256)) * 20


class Alike(msgspec.Struct):
    """Prints what it does not compare."""

    number: int

    def __repr__(self) -> str:
        return "Alike()"


class Unprintable:
    """Raises whatever is asked of it."""

    def __repr__(self) -> str:
        raise ValueError("no")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (1, 2, ("1", "2")),
        (1, True, ("1", "True")),
        (b"a", NOTHING, ("b'a'", "nothing")),
        ([1, 2], [1, 3], ("[1, 2]", "[1, 3]")),
        (b"y" * 100 + b"a", b"y" * 100 + b"b", (f"b'{'y' * 16}a' from byte 84 on", f"b'{'y' * 16}b' from byte 84 on")),
        (b"y" * 100, b"y" * 101, (f"b'{'y' * 16}' from byte 84 on", f"b'{'y' * 17}' from byte 84 on")),
        (LONG + "a", LONG + "b", ("'xxxxxa' from character 9995 on", "'xxxxxb' from character 9995 on")),
        (
            {"session": 1, "payload": SAME + b"a"},
            {"session": 1, "payload": SAME + b"b"},
            ("payload: b'\\xf0\\xf1", "payload: b'\\xf0\\xf1"),
        ),
        (list(range(100)), list(range(101)), ("the length: 100", "the length: 101 (100 at [100])")),
        (
            SessionMessage(1, 2, 3, SAME + b"a"),
            SessionMessage(1, 2, 3, SAME + b"b"),
            (", payload: b'", ", payload: b'"),
        ),
        (10**100, 10**100 + 1, ("...", "...")),
        (b"a", bytearray(b"a"), ("b'a'", "bytearray(b'a')")),
        (SAME, bytearray(SAME), (" (bytes)", " (bytearray)")),
        (Alike(1), Alike(2), ("Alike()", "Alike(), which looks the same and is not equal")),
        (Unprintable(), 1, ("<Unprintable>", "1")),
        (dict.fromkeys(range(9), LONG), dict.fromkeys((*range(8), 9), LONG), ("the keys, or", "the keys, or")),
    ],
)
def test_texts_of_two_values_show_where_they_differ(one: Any, other: Any, texts: tuple[str, str]) -> None:
    for left, right, parts in ((one, other, texts), (other, one, texts[::-1])):
        found = shown_apart(left, right)
        if "looks the same" not in found[1]:
            assert all(part in text for part, text in zip(parts, found, strict=True)), found
        assert found[0] != found[1]
        assert max(map(len, found)) < 300


@pytest.mark.parametrize("symbol", ["a", "\x00", "\u1234", "\ud800", "\U000e0001", "'", "\\"])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_the_difference_is_shown_whatever_stands_around_it(symbol: str, as_bytes: bool) -> None:
    for length, ends in itertools.product((0, 1, 15, 16, 17, 1_000), (("", "b"), ("c", "d"), ("c" * 500, "d" * 500))):
        values: list[Any] = [symbol * length + end for end in ends]
        if as_bytes:
            values = [value.encode("utf-8", "surrogatepass") for value in values]
        assert len(set(shown_apart(*values))) == 2
        assert len(set(shown_apart(*({"a": value} for value in values)))) == 2


def test_values_that_are_equal_have_no_difference() -> None:
    nan = float("nan")
    assert first_difference({"a": [nan, (1, 2)]}, {"a": [nan, (1, 2)]}) is None
    assert first_difference({"a": 0.0}, {"a": -0.0}) == ("a", "0.0", "-0.0")
    assert first_difference([Unprintable()], [Unprintable()]) is None


class Messages:
    """Where a snapshot is written to."""

    max_message_length = 1_000

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def send(self, *buffers: bytes | memoryview) -> int:
        self.messages.append(b"".join(map(bytes, buffers)))
        return 1


@pytest.mark.parametrize(
    ("one", "other", "parts"),
    [
        ({"text": LONG + "a"}, {"text": LONG + "b"}, ("State.text: 'xxxxxa' from character 9995 on", "'xxxxxb'")),
        (
            {"nan": float("nan"), "n": 1},
            {"nan": float("nan"), "n": 2},
            ("State.n: 1 in the other run, 2 now",),
        ),
        (
            {"names": {f"name {i}": i for i in range(100)}},
            {"names": {f"name {i}": i for i in (*range(99), 100)}},
            ("State.names, or their order: ['name 0', ", "[99]: 'name 99'", "[99]: 'name 100'"),
        ),
    ],
)
def test_states_show_where_they_differ(one: Any, other: Any, parts: tuple[str, ...]) -> None:
    written = []
    for state in (one, other):
        container.write_snapshot(messages := Messages(), state, name="State")
        written.append(messages.messages)
    text = state_difference(*written)
    assert all(part in text for part in parts), text


class Long(Adding):
    """Answers with a long text that ends with how often it answered since it was started."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.answers += 1
        if session is not None:
            session.send(b"x" * 1_000 + b"%d" % self.answers)


class Longer(Adding):
    """Answers as :class:`Long` does, with one more."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.state.total += 1
        if session is not None:
            session.send(b"x" * 1_000 + b"%d" % (self.state.total + 1))


def two_values(text: str, between: str) -> tuple[str, str]:
    """What a finding says on both sides of some words."""
    left, _, right = text.partition(between)
    return left.rpartition(" is ")[2], right


@pytest.mark.parametrize(
    ("check", "between"),
    [
        (lambda: check_restarts(Long, life), "; without a restart it is "),
        (lambda: check_upgrade(Long, Longer, life), "; with the old one it is "),
    ],
)
def test_checks_show_where_answers_differ(check: Callable[[], object], between: str) -> None:
    with pytest.raises(DivergenceError) as e:
        check()
    left, right = two_values(str(e.value), between)
    assert left.startswith("answer {'session': ")
    assert "' from byte 98" in left
    assert left != right


class Messaging(Adding):
    """Sends the cluster a message that ends with what this member did."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Messaging.made += 1
        self.number = Messaging.made

    def add(self, payload: bytes) -> None:
        if self.cluster is not None and payload.startswith(b"send"):
            self.cluster.offer(b"x" * 1_000 + b"%d" % self.number)


class Differing(Adding):
    """Answers with a long text that ends with the number of its instance."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Differing.made += 1
        self.number = Differing.made

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(b"x" * 1_000 + b"%d" % self.number)


PLAN = Plan(members=3, events=(OpenSession(at=0, client=0), Send(at=500, client=0, payload=b"send")))


@pytest.mark.parametrize(
    ("service", "options", "between"),
    [
        (Messaging, {}, ", and a message "),
        (Differing, {}, "; a service that has the whole log answers "),
        (Adding, {"state": lambda service: ("x" * 1_000, id(service))}, " in the reference."),
    ],
)
def test_simulations_show_where_members_differ(service: type[Adding], options: dict[str, Any], between: str) -> None:
    with pytest.raises(SimulationFailure) as e:
        simulate(service, plan=PLAN, **options)
    text = e.value.finding.text
    assert between in text
    if service is Adding:
        assert "[1]: " in text
        left, right = text.partition(" in member ")[::2]
        assert left.rpartition("[1]: ")[2] not in right
    else:
        left, right = two_values(text, between)
        assert "' from byte 98" in left
        assert left.partition(": the log")[0].partition(" from member")[0] != right.partition(" from member")[0]


def test_requests_of_other_kinds_are_shown_as_they_are() -> None:
    one, other = ScheduleTimer(1, 2), ScheduleTimer(1, 3)
    assert shown_apart(one, other) == (repr(one), repr(other))


def test_values_that_are_too_deep_to_be_searched_are_compared_as_a_whole() -> None:
    one: list[object] = [1]
    other: list[object] = [2]
    for _ in range(sys.getrecursionlimit()):
        one, other = [one], [other]
    left, right = shown_apart(one, other)
    assert left.startswith("[[")
    assert right.startswith("[[")


class Sent:
    """A snapshot's publication that keeps what is sent."""

    max_message_length = max_payload_length = 1 << 20

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def send(self, *buffers: bytes | memoryview) -> int:
        """Keep a message."""
        self.messages.append(b"".join(map(bytes, buffers)))
        return len(self.messages)


def test_states_that_are_too_deep_to_be_searched_are_compared_by_their_messages() -> None:
    messages = []
    for number in (1, 2):
        state: list[object] = [number]
        for _ in range(sys.getrecursionlimit() - len(inspect.stack())):
            state = [state]
        sent = Sent()
        container.write_snapshot(sent, state)
        messages.append(sent.messages)
    assert " of the snapshot: " in state_difference(*messages)
