"""The ledger of the examples: what its books do, and its gateway over a member that loses messages."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from examples.ledger_client import LedgerClient, TransferRefused
from examples.ledger_service import (
    ANSWER,
    MAX_ACCOUNTS,
    MAX_ACCOUNTS_BY_SESSION,
    MAX_BALANCE,
    MAX_CLIENTS,
    MAX_CLIENTS_BY_SESSION,
    TRANSFER,
    WINDOW,
    Answer,
    Books,
    Status,
)
from tests import ingress_member
from tests.ingress_member import Request
from tests.limits import LIMIT_S
from tests.threaded_members import PatientMember, ThreadedMembers


def applied(balance: int) -> Answer:
    return Answer(Status.APPLIED, balance)


OUT_OF_TURN = Answer(Status.OUT_OF_TURN, 0)


def test_the_next_number_is_applied_once() -> None:
    books = Books()
    assert books.transfer(1, 7, 1, 100, 5) == applied(5)
    assert books.transfer(1, 7, 2, 100, 5) == applied(10)
    assert books.transfer(2, 7, 1, 100, 5) == applied(5)  # a repetition gets the answer of then
    assert books.transfer(1, 7, 4, 100, 5) == OUT_OF_TURN
    assert books.transfer(1, 7, 0, 100, 5) == OUT_OF_TURN
    assert books.transfer(1, 8, 1, 100, -4) == applied(6)  # another client has numbers of its own
    assert books.accounts == {100: 6}


def test_answers_are_known_for_a_whole_window() -> None:
    books = Books()
    for number in range(1, 3 * WINDOW + 10):
        assert books.transfer(1, 7, number, 1, 1) == applied(number)
    last = 3 * WINDOW + 9
    assert books.transfer(1, 7, last - WINDOW + 1, 1, 1) == applied(last - WINDOW + 1)
    assert books.transfer(1, 7, last - WINDOW, 1, 1) == OUT_OF_TURN
    assert books.accounts == {1: last}


def test_a_balance_that_does_not_fit_is_refused_and_the_next_transfer_goes_on() -> None:
    books = Books()
    assert books.transfer(1, 7, 1, 100, 2**63 - 1) == applied(MAX_BALANCE)
    assert books.transfer(1, 7, 2, 100, 1) == Answer(Status.OUT_OF_RANGE, MAX_BALANCE)
    assert books.transfer(1, 7, 2, 100, 1) == Answer(Status.OUT_OF_RANGE, MAX_BALANCE)  # a repetition
    assert books.transfer(1, 7, 3, 100, -1) == applied(MAX_BALANCE - 1)
    assert books.transfer(1, 7, 4, 200, -(2**63)) == Answer(Status.OUT_OF_RANGE, 0)
    assert books.accounts == {100: MAX_BALANCE - 1}


def test_a_number_ahead_of_its_turn_leaves_no_trace_of_its_client() -> None:
    books = Books()
    assert books.transfer(1, 7, 2, 100, 5) == OUT_OF_TURN
    assert books == Books()


def test_clients_and_accounts_are_limited_by_session_and_in_total() -> None:
    books = Books()
    refused = Answer(Status.TOO_MANY_CLIENTS, 0)
    for client_id in range(MAX_CLIENTS):
        session_id = client_id // MAX_CLIENTS_BY_SESSION
        assert books.transfer(session_id, client_id, 1, 1, 0) == applied(0)
        if client_id % MAX_CLIENTS_BY_SESSION == MAX_CLIENTS_BY_SESSION - 1:
            assert books.transfer(session_id, -1, 1, 1, 0) == refused
            books.forget_session(session_id)
    assert books.transfer(999, -1, 1, 1, 0) == refused
    refused = Answer(Status.TOO_MANY_ACCOUNTS, 0)
    number = 1
    for account in range(2, MAX_ACCOUNTS_BY_SESSION + 2):
        number += 1
        assert books.transfer(1, 0, number, account, 1) == applied(1)
    assert books.transfer(1, 0, number + 1, -1, 1) == refused
    books.forget_session(1)
    assert books.transfer(1, 0, number + 2, -1, 1) == applied(1)
    books.accounts |= dict.fromkeys(range(MAX_ACCOUNTS), 0)
    assert books.transfer(2, 0, number + 3, -2, 1) == refused
    assert books.transfer(2, 0, number + 4, -1, 1) == applied(2)


@pytest.mark.parametrize("seed", range(3))
def test_the_gateway_loses_and_repeats_nothing(members: ThreadedMembers, seed: int) -> None:
    random_source = random.Random(seed)
    books = Books()
    count = 3000
    lost_in = {random_source.randrange(1, count // 2)}
    lost_out = {random_source.randrange(1, count) for _ in range(5)}
    ends = [random_source.randrange(1, count) for _ in range(2)]  # of sessions

    def script(member: PatientMember) -> None:
        member.cluster_session_id = 100
        sessions: set[int] = set()  # a probe has one beside the client's

        def connect(request: Request) -> None:
            member.cluster_session_id += 1
            sessions.add(member.cluster_session_id)
            member.on_SessionConnectRequest(request)

        def transfer(request: Request) -> None:
            client_id, number, account, amount = TRANSFER.unpack(request["payload"])
            session_id = request["cluster_session_id"]
            if session_id not in sessions:
                return  # it ended before this came
            if number in lost_in:
                lost_in.remove(number)
                return
            answer = books.transfer(1, client_id, number, account, amount)
            if number in ends:
                ends.remove(number)
                member.session_event(0, ingress_member.CLOSED, "TIMEOUT", session_id=session_id)
                sessions.discard(session_id)
            elif number in lost_out:
                lost_out.remove(number)
            else:
                member.message(ANSWER.pack(client_id, number, answer.balance, answer.status), session_id=session_id)

        member.hooks |= {"SessionConnectRequest": connect, "SessionMessageHeader": transfer}

    members.member(0, "aeron:ipc", script)
    settings: dict[str, Any] = {
        "ingress_channel": "aeron:ipc",
        "egress_channel": "aeron:ipc?alias=egress",
        "aeron_dir": members.aeron_dir,
        "message_timeout": LIMIT_S,
    }

    async def scenario() -> list[int]:
        async with LedgerClient(**settings, resend_s=2.0) as ledger:
            balances = await asyncio.gather(*(ledger.transfer(1, 1) for _ in range(count)))
            assert ledger.sessions >= 3  # the member has one egress, which a probe takes over
            assert ledger.resent > 0
            return balances

    assert asyncio.run(scenario()) == list(range(1, count + 1))
    assert books.accounts == {1: count}
    assert (lost_in, lost_out, ends) == (set(), set(), [])


def test_the_gateway_reports_what_the_service_refuses(members: ThreadedMembers) -> None:
    books = Books()

    def script(member: PatientMember) -> None:
        def hook(request: Request) -> None:
            client_id, number, account, amount = TRANSFER.unpack(request["payload"])
            answer = books.transfer(1, client_id, number, account, amount)
            member.message(ANSWER.pack(0, 0, 0, Status.MALFORMED))  # not for this client
            member.message(ANSWER.pack(client_id, number, answer.balance, answer.status))

        member.hooks["SessionMessageHeader"] = hook

    members.member(0, "aeron:ipc", script)
    settings: dict[str, Any] = {
        "ingress_channel": "aeron:ipc",
        "egress_channel": "aeron:ipc?alias=egress",
        "aeron_dir": members.aeron_dir,
        "message_timeout": LIMIT_S,
    }

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), LedgerClient(**settings) as ledger:
            assert await ledger.transfer(1, MAX_BALANCE) == MAX_BALANCE
            with pytest.raises(TransferRefused, match="OUT_OF_RANGE"):
                await ledger.transfer(1, 1)
            assert await ledger.transfer(1, -1) == MAX_BALANCE - 1
        books.sessions[1].clients = MAX_CLIENTS_BY_SESSION
        async with asyncio.timeout(LIMIT_S), LedgerClient(**settings) as ledger:
            results = await asyncio.gather(*(ledger.transfer(1, 0) for _ in range(50)), return_exceptions=True)
            assert {str(result) for result in results} == {"the transfer was refused: TOO_MANY_CLIENTS"}
            with pytest.raises(TransferRefused, match="TOO_MANY_CLIENTS"):
                await ledger.transfer(1, 0)

    asyncio.run(scenario())
