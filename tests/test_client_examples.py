"""The ledger of the examples: what its books do, and its gateway over a member that loses messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from examples.ledger_client import LedgerClient
from examples.ledger_service import ANSWER, TRANSFER, WINDOW, Books
from tests import scripted_member
from tests.scripted_member import Request
from tests.threaded_members import LIMIT_S, PatientMember, ThreadedMembers


def test_the_next_number_is_applied_once() -> None:
    books = Books()
    assert books.transfer(7, 1, 100, 5) == 5
    assert books.transfer(7, 2, 100, 5) == 10
    assert books.transfer(7, 1, 100, 5) == 5  # a repetition gets the answer of then
    assert books.transfer(7, 4, 100, 5) is None  # ahead of its turn
    assert books.transfer(7, 0, 100, 5) is None
    assert books.transfer(8, 1, 100, -4) == 6  # another client has numbers of its own
    assert books.accounts == {100: 6}


def test_answers_are_known_for_a_whole_window() -> None:
    books = Books()
    for number in range(1, 3 * WINDOW + 10):
        assert books.transfer(7, number, 1, 1) == number
    last = 3 * WINDOW + 9
    assert books.transfer(7, last - WINDOW + 1, 1, 1) == last - WINDOW + 1
    assert books.transfer(7, last - WINDOW, 1, 1) is None
    assert books.accounts == {1: last}


@pytest.fixture
def members() -> Iterator[ThreadedMembers]:
    with ThreadedMembers() as members:
        yield members


@pytest.mark.parametrize("seed", range(3))
def test_the_gateway_loses_and_repeats_nothing(members: ThreadedMembers, seed: int) -> None:
    random_source = random.Random(seed)
    books = Books()
    count = 3000

    def script(member: PatientMember) -> None:
        closed = 0

        def hook(request: Request) -> None:
            nonlocal closed
            if random_source.random() < 0.01:
                return  # lost on its way in
            client_id, number, account, amount = TRANSFER.unpack(request["payload"])
            balance = books.transfer(client_id, number, account, amount)
            if closed == 0 and number > count // 2:
                closed = 1
                member.session_event(0, scripted_member.CLOSED, "TIMEOUT")
            elif balance is not None and random_source.random() > 0.01:  # else lost on its way out
                member.message(ANSWER.pack(client_id, number, balance))

        member.hooks["SessionMessageHeader"] = hook

    members.member(0, "aeron:ipc", script)
    settings: dict[str, Any] = {
        "ingress_channel": "aeron:ipc",
        "egress_channel": "aeron:ipc?alias=egress",
        "aeron_dir": members.aeron_dir,
        "message_timeout": LIMIT_S,
    }

    async def scenario() -> list[int]:
        async with LedgerClient(**settings, resend_s=0.02) as ledger:
            balances = await asyncio.gather(*(ledger.transfer(1, 1) for _ in range(count)))
            assert ledger.sessions == 2
            assert ledger.resent > 0
            return balances

    assert asyncio.run(scenario()) == list(range(1, count + 1))
    assert books.accounts == {1: count}
