"""The examples that need no cluster: the auction house over memory, and the service of the README."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from container.api import TimeUnit
from container.errors import AgentTermination, SnapshotError
from container.testing import MemoryMember
from container.testing.memory.scripted_member import ScriptedMember
from examples.auction_service import (
    MAX_CLOSED,
    MAX_OPEN,
    MAX_OPEN_BY_SESSION,
    MAX_PRICE,
    PAGE_LENGTH,
    Accepted,
    Auction,
    AuctionClosed,
    AuctionHouse,
    AuctionService,
    AuctionState,
    OpenAuction,
    PlaceBid,
    QueryState,
    Refused,
)
from examples.echo_service import TOO_LONG, EchoService
from examples.pipeline_demo import LEAST_RAISE, NextAuctionService

ROOT = Path(__file__).parents[1]
ANSWERS: Any = msgspec.msgpack.Decoder(Accepted | Refused | AuctionState | AuctionClosed)


class House:
    """An auction service on a leading member, with sessions 1 and 2."""

    def __init__(self, time_unit: TimeUnit = TimeUnit.MILLIS) -> None:
        self.member = MemoryMember(AuctionService, time_unit=time_unit)
        self.clients = [self.member.open_session() for _ in range(2)]

    def ask(self, request: Any, session_id: int = 1) -> Any:
        """Sends a request; the newest answer."""
        self.clients[session_id - 1].send(msgspec.msgpack.encode(request))
        return self.answers(session_id)[-1]

    def state(self) -> list[Auction]:
        """All auctions, page by page."""
        auctions: list[Auction] = []
        first: int | None = 0
        while first is not None:
            page = self.ask(QueryState(99, first))
            assert page.checksum == self.member.service.house.checksum()
            auctions += page.auctions
            first = page.next_auction_id
        return auctions

    def answers(self, session_id: int = 1) -> list[Any]:
        """All that a session heard."""
        return [ANSWERS.decode(payload) for payload in self.clients[session_id - 1].egress]


def test_an_auction_closes_by_its_timer_and_every_client_hears_who_won() -> None:
    house = House()
    assert house.ask(OpenAuction(1, "a clock", 50, 1_500)) == Accepted(1, 1)
    assert house.member.timers == {1: 2_500}
    assert house.ask(PlaceBid(2, 1, "ada", 40)) == Accepted(2, 1)
    assert house.ask(PlaceBid(3, 1, "grace", 60), 2) == Accepted(3, 1)
    assert house.ask(PlaceBid(4, 1, "ada", 55)) == Refused(4, "55 is not above the highest bid, 60")
    house.member.advance(1_500)
    for session_id in (1, 2):
        assert house.answers(session_id)[-1] == AuctionClosed(1, "a clock", "grace", 60)
    assert house.ask(PlaceBid(5, 1, "ada", 100)) == Refused(5, "auction 1 is closed")
    assert house.ask(PlaceBid(6, 9, "ada", 100)) == Refused(6, "no auction 9")


def test_an_auction_below_its_reserve_price_has_no_winner() -> None:
    house = AuctionHouse()
    house.open(1, "a vase", 100, 5)
    assert house.bid(1, "ada", 99) == ""
    assert house.close(1) == AuctionClosed(1, "a vase", "", 0)
    assert house.close(1) is None


@pytest.mark.parametrize(("unit", "factor"), [("MILLIS", 1), ("MICROS", 1_000), ("NANOS", 1_000_000)])
def test_durations_are_in_the_clusters_time_unit(unit: str, factor: int) -> None:
    house = House(TimeUnit[unit])
    house.ask(OpenAuction(1, "x", 1, 10))
    assert house.member.timers == {1: 1_000 + 10 * factor}


HOSTILE_REQUESTS = {
    "no message": b"\xc1 no message",
    "no text": msgspec.msgpack.encode(PlaceBid(1, 1, "ada", 5)).replace(b"ada", b"\xff\xfe\xfd"),
    "a name that is not text": b"\x81\xa2\xff\xfe\x01",
    "too long": msgspec.msgpack.encode(PlaceBid(1, 1, "a" * 600, 5)),
    "nested too deep for the decoder": b"\x82\xa4type\xaaQueryState\xa1x" + b"\x91" * 100_000,
    "a duration of 2**64 - 1 ms": msgspec.msgpack.encode(
        {"type": "OpenAuction", "request_id": 1, "item": "x", "reserve_price": 0, "duration_ms": 2**64 - 1}
    ),
    "a price of 2**64 - 1": msgspec.msgpack.encode(
        {"type": "PlaceBid", "request_id": 1, "auction_id": 1, "bidder": "x", "price": 2**64 - 1}
    ),
    "a price below 0": msgspec.msgpack.encode(PlaceBid(1, 1, "ada", -1)),
    "no bidder": msgspec.msgpack.encode(PlaceBid(1, 1, "", 1)),
    "an unknown field": msgspec.msgpack.encode({"type": "QueryState", "request_id": 1, "x": 1}),
}


@pytest.mark.parametrize("name", HOSTILE_REQUESTS)
def test_a_hostile_request_is_refused_changes_nothing_and_snapshots_go_on(name: str) -> None:
    house = House()
    house.ask(OpenAuction(1, "x", 1, 10))
    before = msgspec.msgpack.encode(house.member.service.house)
    house.clients[0].send(HOSTILE_REQUESTS[name])
    assert isinstance(house.answers()[-1], Refused)
    assert msgspec.msgpack.encode(house.member.service.house) == before
    assert house.member.take_snapshot().state
    assert house.member.errors == []


def test_open_auctions_are_limited_by_session_and_in_total() -> None:
    house = AuctionHouse()
    for session_id in range(MAX_OPEN // MAX_OPEN_BY_SESSION):
        for _ in range(MAX_OPEN_BY_SESSION):
            assert isinstance(house.open(session_id, "x", 1, 10), Auction)
        assert house.open(session_id, "x", 1, 10) == "your session has 100 auctions open: wait until one closes"
    assert house.open(77, "x", 1, 10) == "1000 auctions are open: wait until one closes"
    assert house.close(1) is not None
    assert isinstance(house.open(0, "x", 1, 10), Auction)
    house.forget_session(0)
    assert house.close(2) is not None
    assert house.open_counts == dict.fromkeys(range(1, 10), MAX_OPEN_BY_SESSION)


def test_of_the_closed_auctions_the_newest_are_kept() -> None:
    house = AuctionHouse()
    for _ in range(MAX_CLOSED + 5):
        auction = house.open(1, "x", 1, 10)
        assert isinstance(auction, Auction)
        assert house.close(auction.auction_id) is not None
    assert list(house.auctions) == list(range(6, MAX_CLOSED + 6))
    assert (len(house.closed), house.open_counts) == (MAX_CLOSED, {})
    assert house.bid(1, "ada", 5) == "no auction 1"


def test_a_page_of_the_longest_auctions_fits_the_shortest_egress() -> None:
    auction = Auction(2**63, 2**63, "\U0001f600" * 64, MAX_PRICE, 2**63, "\U0001f600" * 64, MAX_PRICE, 2**63)
    answer = AuctionState(2**63, [auction] * PAGE_LENGTH, 2**32 - 1, 2**63)
    assert len(msgspec.msgpack.encode(answer)) < 64 * 1024 // 8 - 32


def test_a_timer_under_back_pressure_is_set_all_the_same() -> None:
    house = House()
    house.member.fail_requests(-2, -3, -2)
    assert house.ask(OpenAuction(1, "x", 1, 10)) == Accepted(1, 1)
    assert house.member.timers == {1: 1_010}


def test_the_state_comes_back_from_a_snapshot() -> None:
    house = House()
    for index in range(50):
        house.ask(OpenAuction(index, f"item {index}", index, 1_000))
        house.ask(PlaceBid(index, index + 1, "ada", index + 5))
    before = house.state()
    old = house.member.service.house
    house.member.restart(house.member.take_snapshot())
    after = house.member.service.house
    assert after is not old
    assert list(after.auctions.values()) == before
    assert after == old
    assert before[0] == Auction(1, 1, "item 0", 0, 2_000, "ada", 5, 1)


def test_the_next_version_takes_up_the_state_and_refuses_small_raises() -> None:
    house = House()
    house.ask(OpenAuction(1, "x", 1, 10))
    house.ask(PlaceBid(2, 1, "ada", 100))
    house.member.restart(house.member.take_snapshot(), service=NextAuctionService)
    assert house.ask(PlaceBid(3, 1, "ada", 101)) == Refused(3, f"101 raises the highest bid by less than {LEAST_RAISE}")
    assert house.ask(PlaceBid(4, 1, "ada", 100 + LEAST_RAISE)) == Accepted(4, 1)


def test_a_snapshot_of_another_service_is_refused() -> None:
    messages = [*ScriptedMember().lead().take_snapshot(), b"something else"]
    with pytest.raises(AgentTermination, match="not a state written by write_snapshot") as raised:
        ScriptedMember(AuctionService()).start(messages)
    assert isinstance(raised.value.__cause__, SnapshotError)


@pytest.mark.parametrize("length", [0, 1, 1_344, 8_000])
def test_the_echo_service_answers_with_the_same_bytes(length: int) -> None:
    with MemoryMember(EchoService) as member:
        client = member.open_session()
        client.send(bytes(length))
        member.inject_service_message(b"of a service", service_id=0)
        assert client.egress == [bytes(length)]
        assert member.errors == []


def test_what_the_clients_egress_can_not_carry_is_answered_with_a_text() -> None:
    member = ScriptedMember(EchoService(), log_term_length=128 * 1024).lead()
    member.cm.open_session(1, response_channel="aeron:ipc?term-length=64k")
    member.deliver(bytes(8_192 - 32), bytes(8_192 - 31), session_id=1)
    assert member.answers() == [bytes(8_192 - 32), TOO_LONG]
    assert member.errors == []


def test_the_service_of_the_readme_works_and_has_at_most_twenty_lines() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    source = next(block for block in blocks if "ClusteredService" in block)
    assert sum(1 for line in source.splitlines() if line.strip()) <= 20
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(source, "README.md", "exec"), names)
    refused = [b"", b"+-1", b"+1_0", b"+\xd9\xa1", b"+ 1", b"+" + b"1" * 5_000, b"a" * 5_000 + b"+1"]
    with MemoryMember(names["Counter"]) as member:
        client = member.open_session()
        for text in (b"one+40", b"+2", *refused):
            client.send(text)
        error = b"error: send id+digits, 29 bytes at most"
        assert client.egress == [b"one=40", b"=42", error, *[b"=" + error] * 5, b"a" * 29 + b"=" + error]
        assert member.errors == []
        member.restart(member.take_snapshot())
        assert member.service.total == 42
