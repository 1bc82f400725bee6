"""Histories of clients, their file, and what the checker says of them; a machine without Go skips what needs that."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from container.client import ReconnectingClient
from container.errors import ClusterUnavailableError, ContainerError, LeaderChangedError
from tests.limits import LIMIT_S
from tests.linearizable import checker, registers, simulated
from tests.linearizable.__main__ import main
from tests.linearizable.history import History
from tests.linearizable.registers import RegisterClients, RegisterService, StaleRegisters, State
from tests.linearizable.soak_history import SoakHistory
from tests.soak.ledger import Op

KEY, OTHER_KEY = 1030, 1031
MANY = 50_000
CHECK_LIMIT_S = 120.0
"""For 50,000 operations, which take 3 s where nothing else runs."""


@pytest.fixture(scope="session")
def porcupine() -> None:
    """Skip the test where the checker cannot be built."""
    try:
        checker.build()
    except checker.NoCheckerError as error:
        pytest.skip(str(error))


needs_porcupine = pytest.mark.usefixtures("porcupine")


class Clock:
    """A clock that goes on by 1 ns with each look."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


def lines(path: Path) -> list[dict[str, Any]]:
    """The operations of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


# Without Go.


def test_a_history_has_what_was_asked_what_came_of_it_and_when(tmp_path: Path) -> None:
    history = History(Clock())
    history.end(history.begin(1, "x", "write", 5))
    unknown = history.begin(2, "x", "cas", 5, 7)
    history.forget(history.begin(3, "x", "add", 1))
    history.end(history.begin(1, "x", "read"), 7)
    history.write(tmp_path / "made" / "it.jsonl")
    assert lines(tmp_path / "made" / "it.jsonl") == [
        {"client": 1, "key": "x", "op": "write", "arguments": [5], "result": None, "call": 1, "return": 2},
        {"client": 2, "key": "x", "op": "cas", "arguments": [5, 7], "result": None, "call": 3, "return": None},
        {"client": 1, "key": "x", "op": "read", "arguments": [], "result": 7, "call": 5, "return": 6},
    ]
    assert (len(history), history.unknown) == (3, 1)
    history.end(unknown, True)
    assert history.unknown == 0


def test_histories_of_several_worlds_become_one() -> None:
    one, other = History(), History()
    one.begin(1, "x", "read")
    other.forget(other.begin(1, "y", "read"))
    other.begin(1, "y", "add", 1)
    one.extend(other)
    assert [(each.key, each.op) for each in one] == [("x", "read"), ("y", "add")]


def test_registers_do_what_the_model_says() -> None:
    service = RegisterService()
    asked = [("read", 0, 0), ("write", 5, 0), ("cas", 4, 9), ("cas", 5, 7), ("add", 2, 0), ("read", 0, 0)]
    results = [service.apply(op, "x", first, second) for op, first, second in asked]  # type: ignore[arg-type]
    assert [results[0], *results[2:]] == [0, 0, 1, 9, 9]
    assert service.apply("add", "x", 2**63 - 1, 0) == -(2**63) + 8
    assert service.state == State({"x": -(2**63) + 8})


class FakeClient:
    """A client whose requests end in turn: answered by a service, lost, or never sent."""

    def __init__(self, service: RegisterService) -> None:
        self.service, self.count = service, 0

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""

    def request(self, message: bytes, *, key: int, timeout: float) -> bytes:
        self.count += 1
        errors: dict[int, type[ContainerError]] = {0: LeaderChangedError, 1: ClusterUnavailableError}
        if self.count % 10 in errors:
            raise errors[self.count % 10]("no reply")
        sent: list[bytes] = []

        class Session:
            send = staticmethod(sent.append)

        self.service.on_session_message(Session(), 0, message, None)  # type: ignore[arg-type]
        return sent[0]


def clients(service: RegisterService, monkeypatch: pytest.MonkeyPatch) -> History:
    """The history of a client that asks a service for a while."""
    monkeypatch.setattr(ReconnectingClient, "connect", lambda **_: FakeClient(service))
    monkeypatch.setattr(registers, "PAUSE_S", 0.0)
    with RegisterClients({}, count=1) as some:
        some.await_answers(300, LIMIT_S)
    assert not some.failures
    return some.history


def test_a_client_records_answers_and_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    history = clients(RegisterService(), monkeypatch)
    ended = [each for each in history if each.return_ns is not None]
    assert 300 <= len(ended) <= len(history) <= 1.2 * len(ended)
    assert 0.1 * len(ended) < history.unknown < 0.14 * len(ended)
    assert {type(each.result) for each in ended if each.op == "cas"} == {bool}
    assert {each.op for each in history} == {"read", "write", "cas", "add"}


def test_a_machine_without_go_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checker, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(checker.NoCheckerError, match="go is not on PATH: install Go"):
        checker.build()
    assert main(["some.jsonl"]) == 2
    assert "linearizable: go is not on PATH" in capsys.readouterr().err
    said: list[str] = []
    assert SoakHistory.if_possible(said.append) is None
    assert said == ["without histories of accounts: go is not on PATH: install Go 1.21 or later (apt install golang)"]


def test_a_module_that_cannot_be_fetched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho "no route to the proxy, with $GOFLAGS" >&2\nexit 1\n')
    go.chmod(0o700)
    monkeypatch.setattr(checker, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = "Porcupine cannot be fetched: go mod download: no route to the proxy, with -mod=readonly"
    with pytest.raises(checker.NoCheckerError, match=expected):
        checker.build()


# With Go.

type Step = tuple[int, str, Sequence[int], Any, int, int | None]
"""Client, op, arguments, result, call, and return."""

LEGAL: list[Step] = [
    (1, "write", [5], None, 0, 10),
    (2, "read", [], 0, 5, 15),  # at the same time as the write
    (2, "read", [], 5, 16, 20),
    (1, "cas", [4, 9], False, 21, 25),
    (2, "cas", [5, 7], True, 21, 26),
    (1, "add", [-8], -1, 27, 30),
]


def verdict(tmp_path: Path, steps: Sequence[Step], **settings: Any) -> checker.Verdict:
    """What the checker says of a history of one key."""
    path = tmp_path / "history.jsonl"
    names = ("client", "op", "arguments", "result", "call", "return")
    made = [json.dumps({"key": "x", **dict(zip(names, step, strict=True))}) for step in steps]
    path.write_text("\n".join(made) + "\n")
    return checker.check(path, **settings)


@needs_porcupine
@pytest.mark.parametrize(
    ("outcome", "steps"),
    [
        ("ok", []),
        ("ok", LEGAL),
        ("illegal", [*LEGAL, (1, "read", [], 7, 31, 35)]),  # stale
        ("illegal", [(1, "write", [5], None, 0, 10), (2, "read", [], 0, 11, 20)]),  # the write is lost
        ("ok", [(1, "write", [5], None, 0, 10), (2, "read", [], 0, 10, 20)]),  # they have 10 in common
        ("illegal", [*LEGAL, (1, "cas", [-1, 3], False, 31, 35)]),
        ("illegal", [(1, "add", [2], None, 0, 10), (2, "add", [2], 2, 11, 20)]),
        ("ok", [(1, "add", [2], None, 0, 10), (2, "add", [2], 4, 11, 20)]),  # nobody was given the first sum
        ("illegal", [(1, "add", [2], 2, 0, 9), (2, "add", [2], 2, 0, 9)]),  # one of them is lost
        ("ok", [(1, "write", [5], None, 0, None), (2, "read", [], 0, 1, 2), (2, "read", [], 5, 90, 91)]),  # seen late
        ("ok", [(1, "write", [5], None, 0, None), (2, "read", [], 0, 1, 2), (2, "read", [], 0, 90, 91)]),  # never seen
        ("illegal", [(1, "write", [5], None, 0, None), (2, "read", [], 5, 1, 2), (2, "read", [], 0, 90, 91)]),  # gone
        ("illegal", [(1, "write", [5], None, 50, None), (2, "read", [], 5, 1, 2)]),  # seen before it was asked for
        ("illegal", [(1, "add", [5], None, 0, None), (2, "read", [], 10, 1, 2)]),  # done twice
        ("ok", [(1, "cas", [0, 5], None, 0, None), (2, "read", [], 5, 1, 2)]),
        ("ok", [(1, "read", [], None, 0, None), (2, "read", [], 0, 1, 2)]),
        ("ok", [(1, "add", [2**63 - 1], 2**63 - 1, 0, 1), (1, "add", [1], -(2**63), 2, 3)]),
    ],
)
def test_a_history_is_legal_or_not(tmp_path: Path, outcome: str, steps: Sequence[Step]) -> None:
    assert verdict(tmp_path, steps).outcome == outcome


@needs_porcupine
def test_what_is_illegal_is_shown_up_to_the_operation_that_has_no_place(tmp_path: Path) -> None:
    steps = [*LEGAL, (1, "read", [], 7, 1_000_031, 2_000_035), (2, "write", [1], None, 3_000_000, 4_000_000)]
    first, second, *rest = verdict(tmp_path, steps).text.splitlines()
    assert first.startswith("illegal: 1 keys of 8 operations on 1 keys, 0 without an outcome, checked in ")
    assert second == 'key "x" is the smallest: no order explains these 7 of its 8 operations'
    assert len(rest) == 8
    assert [line.split() for line in rest[-2:]] == [
        ["0.000027", "0.000030", "1", "add", "-8", "->", "-1"],
        ["1.000031", "2.000035", "1", "read", "->", "7", "<-", "has", "no", "place"],
    ]
    shown = verdict(tmp_path, steps, lines=2).text.splitlines()
    assert shown[3].split(maxsplit=1) == ["...", "5 earlier ones, which --lines 7 shows"]
    assert shown[4:] == rest[-2:]


@needs_porcupine
def test_the_smallest_of_several_keys_is_shown(tmp_path: Path) -> None:
    history = History(Clock())
    for key, count in (("a", 5), ("b", 2), ("c", 3), ("d", 1)):
        for _ in range(count):
            history.end(history.begin(1, key, "write", 1))
        history.end(history.begin(1, key, "read"), 1 if key == "d" else 2)
    history.write(tmp_path / "it.jsonl")
    found = checker.check(tmp_path / "it.jsonl").text
    assert found.startswith("illegal: 3 keys of 15 operations on 4 keys")
    assert 'key "b" is the smallest: no order explains these 3 of its 3 operations' in found


@needs_porcupine
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: unexpected EOF"),
        ('{"key": "x", "op": "read", "call": 1} {}', "line 2: more than one object"),
        ('{"key": "x", "op": "read", "call": 1, "color": 2}', 'line 2: json: unknown field "color"'),
        ('{"op": "read", "call": 1}', "line 2: key and call must be given"),
        ('{"key": "x", "op": "read"}', "line 2: key and call must be given"),
        ('{"key": "x", "op": "swap", "call": 1}', 'line 2: op "swap": must be read, write, cas or add'),
        ('{"key": "x", "op": "cas", "arguments": [1], "call": 1}', "line 2: cas has 1 arguments: must be 2"),
        ('{"key": "x", "op": "read", "result": true, "call": 1, "return": 2}', "line 2: result true: json: cannot"),
        ('{"key": "x", "op": "add", "arguments": [1.5], "call": 1}', "line 2: json: cannot unmarshal number 1.5"),
        ('{"key": "x", "op": "write", "arguments": [1], "result": 1, "call": 1, "return": 2}', "a write has no result"),
        ('{"key": "x", "op": "read", "result": 1, "call": 1}', "line 2: a result without a return"),
        ('{"key": "x", "op": "read", "result": 1, "call": 3, "return": 2}', "line 2: it returns at 2, before its call"),
    ],
)
def test_what_is_no_history_is_refused_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "it.jsonl"
    path.write_text(f'{{"key": "x", "op": "read", "call": 1}}\n{line}\n')
    with pytest.raises(ValueError, match=message):
        checker.check(path)
    assert main([str(path)]) == 2
    with pytest.raises(ValueError, match="no such file"):
        checker.check(tmp_path / "none.jsonl")


def many(path: Path, count: int, *, keys: int, clients: int = 8) -> None:
    """Write a legal history: each operation has its point in time, and some have no outcome."""
    draw = random.Random(1)
    free, drawn = [0] * clients, []
    for _ in range(count):
        client = min(range(clients), key=free.__getitem__)
        call = free[client] + draw.randrange(1, 100)
        point = call + draw.randrange(1, 500)
        free[client] = point + draw.randrange(1, 500)
        drawn.append((point, client, call, free[client]))
    service = RegisterService()
    with path.open("w") as file:
        for _, client, call, end in sorted(drawn):
            key, op = f"r{draw.randrange(keys)}", draw.choice(registers.OPS)
            arguments = {"read": [], "cas": [draw.randrange(20), draw.randrange(20)]}.get(op, [draw.randrange(20)])
            result: int | None = service.apply(op, key, *[*arguments, 0, 0][:2])
            is_known = draw.random() > 0.002
            shown = {"write": None, "cas": bool(result)}.get(op, result) if is_known else None
            names = ("client", "key", "op", "arguments", "result", "call", "return")
            values = (client, key, op, arguments, shown, call, end if is_known else None)
            file.write(json.dumps(dict(zip(names, values, strict=True))) + "\n")


@needs_porcupine
@pytest.mark.parametrize("keys", [1, 100])
def test_fifty_thousand_operations_are_checked_within_a_limit(tmp_path: Path, keys: int) -> None:
    path = tmp_path / "it.jsonl"
    many(path, MANY, keys=keys)
    found = checker.check(path, limit_s=CHECK_LIMIT_S)
    assert found.text.startswith(f"ok: {MANY} operations on {keys} keys, ")


@needs_porcupine
@pytest.mark.parametrize(("sum_read", "outcome"), [(39, "ok"), (40, "ok"), (41, "illegal"), (-1, "illegal")])
def test_many_operations_alike_without_an_outcome_need_no_search(tmp_path: Path, sum_read: int, outcome: str) -> None:
    steps: list[Step] = [(number, "add", [1], None, number, None) for number in range(40)]
    assert verdict(tmp_path, [*steps, (50, "read", [], sum_read, 100, 101)]).outcome == outcome
    seen_early: Step = (50, "read", [], 21, 20, 20)  # 21 of them were called then, the last one just now
    assert verdict(tmp_path, [*steps, seen_early]).outcome == "ok"
    assert verdict(tmp_path, [*steps, (50, "read", [], 22, 20, 20)]).outcome == "illegal"


@needs_porcupine
def test_without_a_verdict_in_time_it_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Any of 40 sums may or may not be part of what is read, and none is.
    steps: list[Step] = [(number, "add", [2**number], None, 0, None) for number in range(40)]
    steps += [(50, "read", [], -(number + 1), 10 + 2 * number, 11 + 2 * number) for number in range(3)]
    found = verdict(tmp_path, steps, limit_s=0.5)
    assert found.outcome == "unknown"
    assert found.text.startswith("unknown: no verdict on 1 keys within 0.5 s, 43 operations on 1 keys, 40 without")
    assert main([str(tmp_path / "history.jsonl"), "--limit", "0.5"]) == 3
    assert "unknown: no verdict" in capsys.readouterr().out


@needs_porcupine
def test_a_service_that_reads_from_a_stale_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for service in (RegisterService(), StaleRegisters()):
        clients(service, monkeypatch).write(tmp_path / "it.jsonl")
        outcomes.append(main([str(tmp_path / "it.jsonl")]))
    assert outcomes == [0, 1]


# The soak's clients.


def test_a_soak_records_what_is_asked_of_its_own_accounts(tmp_path: Path) -> None:
    history = SoakHistory(tmp_path / "it.jsonl")
    for sequence, (op, key) in enumerate([(Op.ADD, 5), (Op.TIMER, KEY), (Op.ADD, KEY), (Op.GET, KEY)], 1):
        history.begin(1, sequence, op, key, 9)
    history.take_value(1, 4, 2**64 - 3)
    for sequence in (1, 2, 3, 4):
        history.end(1, sequence)
    history.take_value(1, 4, 7)
    history._history.write(tmp_path / "it.jsonl")
    assert [(each["op"], each["arguments"], each["result"]) for each in lines(tmp_path / "it.jsonl")] == [
        ("add", [9], None),
        ("read", [], -3),
    ]


def soak(path: Path, *told: int | None) -> SoakHistory:
    """A soak in which one client adds 1 to an account and another gets it, and is told this, again and again."""
    history = SoakHistory(path)
    for sequence, value in enumerate(told, 1):
        history.begin(1, sequence, Op.ADD, KEY, 1)
        history.end(1, sequence)
        history.begin(2, sequence, Op.GET, KEY, 0)
        if value is not None:
            history.take_value(2, sequence, value)
        history.end(2, sequence)
    return history


@needs_porcupine
def test_a_soak_goes_on_from_what_all_members_have(tmp_path: Path) -> None:
    history = soak(tmp_path / "it.jsonl", 1, 2, None, 4)
    assert history.check({KEY: 4, OTHER_KEY: 3, 5: 7}).startswith("ok: 9 operations on 1 keys, 0 without an outcome")
    assert history.checked == 9
    history.begin(1, 5, Op.ADD, KEY, 1)
    history.end(1, 5)
    with pytest.raises(AssertionError, match=r"(?s)illegal: .*add 1\n.*read -> 4 .*has no place\nthe history: "):
        history.check({KEY: 4})


@needs_porcupine
@pytest.mark.parametrize(("told", "account"), [((1, 1), 2), ((1, 3), 2), ((1, 2), 3), ((1, 2), 1)])
def test_a_soak_finds_what_no_order_explains(tmp_path: Path, told: Sequence[int], account: int) -> None:
    with pytest.raises(AssertionError, match="illegal: 1 keys of 5 operations"):
        soak(tmp_path / "it.jsonl", *told).check({KEY: account})


def test_a_soak_checks_a_file_that_no_other_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.jsonl"
    checked = []

    def check(own_path: Path, *, limit_s: float) -> checker.Verdict:
        path.write_text("what another soak has checked")
        checked.append(lines(own_path))
        return checker.Verdict("ok", f"within {limit_s} s")

    monkeypatch.setattr(checker, "check", check)
    soak(path, 1, 2).check({KEY: 2})
    assert len(checked[0]) == 5
    assert checked == [lines(path)]
    assert list(tmp_path.iterdir()) == [path]


# Simulated clients.


def test_simulated_clients_have_histories_with_and_without_outcomes() -> None:
    recorded = [simulated.record(seed) for seed in range(30, 38)]
    histories = [each for each in recorded if each is not None]
    assert len(histories) > 4
    assert 0 < sum(each.unknown for each in histories) < sum(map(len, histories)) / 2
    assert all(each.return_ns is None or each.call_ns < each.return_ns for history in histories for each in history)


@needs_porcupine
def test_simulated_nodes_are_linearizable() -> None:
    assert main(["--simulated", "25"]) == 0


@needs_porcupine
def test_simulated_clusters_are_linearizable() -> None:
    assert main(["--clusters", "6", "--seed", "30"]) == 0
