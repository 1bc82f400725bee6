"""The example services under hostile input: they answer, agree, and can always take a snapshot."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples.auction_service import MAX_CLOSED, MAX_OPEN, MAX_PRICE, AuctionService, OpenAuction, PlaceBid, QueryState
from examples.echo_service import EchoService
from examples.ledger_service import ANSWER, MAX_ACCOUNTS, MAX_BALANCE, MAX_CLIENTS, TRANSFER, LedgerService, Status
from examples.pipeline_demo import NextAuctionService
from tests import hostile
from tests.hostile import boundary

ROOT = Path(__file__).parents[1]


def readme_counter() -> Any:
    """The service of the README."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(next(block for block in blocks if "ClusteredService" in block), "README.md", "exec"), names)
    return names["Counter"]()


def auction_request(chance: random.Random) -> bytes:
    """A request of the auction house that a client could send."""
    request = chance.choice(
        (
            OpenAuction(chance.randrange(9), "lot", chance.randrange(100), chance.randrange(1, 10_000)),
            PlaceBid(chance.randrange(9), chance.randrange(1, 300), "ada", chance.randrange(1_000)),
            QueryState(chance.randrange(9), chance.randrange(300)),
        )
    )
    return msgspec.msgpack.encode(request)


def odd_auction_request(chance: random.Random) -> bytes:
    """A request whose fields have other types, ranges and names."""
    values = [boundary(chance), "", "x" * chance.choice((1, 64, 65)), None, 1.0, float("nan"), True, [], {}, b"\xff"]
    fields: dict[object, object] = {"type": chance.choice(("OpenAuction", "PlaceBid", "QueryState", "Auction", 1))}
    names = ["request_id", "item", "reserve_price", "duration_ms", "auction_id", "bidder", "price", "first_auction_id"]
    for name in chance.sample(names, chance.randrange(len(names))):
        fields[name] = chance.choice(values) if chance.random() < 0.4 else boundary(chance)
    if chance.random() < 0.1:
        fields[chance.choice(("extra", 5, b"\xff"))] = chance.choice(values)
    return msgspec.msgpack.encode(fields)


def extreme_auction_request(chance: random.Random) -> bytes:
    """A request of the right types with numbers at the ends of ranges."""
    chosen = chance.choice(
        (
            OpenAuction(boundary(chance), "lot", boundary(chance), boundary(chance)),
            PlaceBid(boundary(chance), chance.randrange(1, 300), "ada", boundary(chance)),
            PlaceBid(0, chance.randrange(1, 300), "ada", chance.choice((MAX_PRICE, MAX_PRICE + 1))),
            QueryState(boundary(chance), boundary(chance)),
        )
    )
    return msgspec.msgpack.encode(chosen)


def transfer(chance: random.Random) -> bytes:
    """A transfer of one of a few clients, whose number is often the next one or close to it."""
    client_id = chance.randrange(20)
    return TRANSFER.pack(client_id, chance.randrange(1, 60), chance.randrange(10), chance.randrange(-99, 99))


def extreme_transfer(chance: random.Random) -> bytes:
    """A transfer with numbers at the ends of ranges."""
    return TRANSFER.pack(*(boundary(chance, most=2**63 - 1) for _ in range(4)))


def large_transfer(chance: random.Random) -> bytes:
    """The first transfers of clients, each of as much as fits."""
    return TRANSFER.pack(
        chance.randrange(20, 40), chance.randrange(1, 4), 5, chance.choice((2**63 - 1, -(2**63), 2**62))
    )


def number(chance: random.Random) -> bytes:
    """A number in decimal digits, or nearly."""
    digits = b"%d" % chance.choice((boundary(chance), chance.randrange(10**9), 10**9))
    if chance.random() < 0.05:
        digits = b"9" * chance.choice((9, 10, 5_000))
    return chance.choice((b"", b" ", b"+", b"_", "\N{ARABIC-INDIC DIGIT ONE}".encode())) + digits


def named_number(chance: random.Random) -> bytes:
    """A number behind a name, or nearly."""
    return chance.choice((b"one", b"", b"a" * 16, b"\xff", b"a" * 5_000)) + chance.choice((b"+", b"=")) + number(chance)


SERVICES: dict[str, tuple[Any, list[hostile.Command]]] = {
    "auction": (AuctionService, [auction_request, odd_auction_request, extreme_auction_request]),
    "next auction": (NextAuctionService, [auction_request, odd_auction_request, extreme_auction_request]),
    "ledger": (LedgerService, [transfer, extreme_transfer, large_transfer]),
    "echo": (EchoService, [number]),
    "readme": (readme_counter, [number, named_number]),
}


@pytest.mark.parametrize("name", SERVICES)
def test_hostile_clients_neither_stop_nor_divide_the_members(name: str) -> None:
    make, valid = SERVICES[name]
    members = hostile.run(make, valid, seed=sum(name.encode()))
    service: Any = members.leader.service
    if "auction" in name:
        assert service.house == members.follower.service.house
        assert members.fired > 50
        assert 0 < len(service.house.closed) <= MAX_CLOSED
        assert len(service.house.auctions) <= MAX_OPEN + MAX_CLOSED
        assert any(auction.bid_count for auction in service.house.auctions.values())
        assert set(service.house.open_counts) <= set(members.sessions)
    elif name == "ledger":
        assert service.books == members.follower.service.books
        assert 0 < len(service.books.clients) <= MAX_CLIENTS
        assert 0 < len(service.books.accounts) <= MAX_ACCOUNTS
        assert all(abs(balance) <= MAX_BALANCE for balance in service.books.accounts.values())
        assert set(service.books.sessions) <= set(members.sessions)
        statuses = {answer.status for client in service.books.clients.values() for answer in client.answers}
        assert statuses >= {Status.APPLIED, Status.OUT_OF_RANGE}
    elif name == "readme":
        assert 0 < service.total == members.follower.service.total < 2**63


def test_every_message_of_a_client_is_answered() -> None:
    chance = random.Random(4)
    for name, (make, valid) in SERVICES.items():
        members = hostile.Members(make, 4)
        members.open_session()
        for count in range(1, 301):
            payload = hostile.hostile_bytes(chance, valid)[:1_400]
            for member in (members.leader, members.follower):
                member.cm.session_message(1, payload)
            members.commit()
            answers = [answer.payload for answer in members.leader.cm.egress(1)]
            if "auction" not in name:  # whose clients also hear of auctions that close
                assert len(answers) == count, name
            assert len(answers) >= count


def test_a_ledger_answers_what_is_no_transfer() -> None:
    members = hostile.Members(LedgerService, 1)
    members.open_session()
    members.log(lambda cm: cm.session_message(1, b"no transfer"))
    members.commit()
    assert [struct.unpack("<qqqq", answer.payload) for answer in members.leader.cm.egress(1)] == [
        (0, 0, 0, Status.MALFORMED)
    ]
    assert ANSWER.size == 32
