"""The examples that need no cluster: the auction house over memory, and the service of the README."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from container.errors import AgentTermination, SnapshotError
from examples.auction_service import (
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
from examples.echo_service import EchoService
from tests.member import Member

ROOT = Path(__file__).parents[1]
ANSWERS: Any = msgspec.msgpack.Decoder(Accepted | Refused | AuctionState | AuctionClosed)


class House:
    """An auction service on a leading member, with sessions 1 and 2."""

    def __init__(self, member: Member | None = None) -> None:
        self.member = member or Member(AuctionService()).lead()
        for session_id in (1, 2):
            self.member.cm.open_session(session_id)
        self.member.commit()

    def ask(self, request: Any, session_id: int = 1) -> Any:
        """Sends a request; the newest answer."""
        self.member.deliver(msgspec.msgpack.encode(request), session_id=session_id)
        return self.answers(session_id)[-1]

    def answers(self, session_id: int = 1) -> list[Any]:
        """All that a session heard."""
        return [ANSWERS.decode(message.payload) for message in self.member.cm.egress(session_id)]


def test_an_auction_closes_by_its_timer_and_every_client_hears_who_won() -> None:
    house = House()
    assert house.ask(OpenAuction(1, "a clock", 50, 1_500)) == Accepted(1, 1)
    assert house.member.cm.scheduled_timers == [(1, 2_500)]
    assert house.ask(PlaceBid(2, 1, "ada", 40)) == Accepted(2, 1)
    assert house.ask(PlaceBid(3, 1, "grace", 60), 2) == Accepted(3, 1)
    assert house.ask(PlaceBid(4, 1, "ada", 55)) == Refused(4, "55 is not above the highest bid, 60")
    house.member.cm.timer_event(1, timestamp=2_500)
    house.member.commit()
    for session_id in (1, 2):
        assert house.answers(session_id)[-1] == AuctionClosed(1, "a clock", "grace", 60)
    assert house.ask(PlaceBid(5, 1, "ada", 100)) == Refused(5, "auction 1 is closed")
    assert house.ask(PlaceBid(6, 9, "ada", 100)) == Refused(6, "no auction 9")


def test_an_auction_below_its_reserve_price_has_no_winner() -> None:
    house = AuctionHouse()
    house.open("a vase", 100, 5)
    assert house.bid(1, "ada", 99) == ""
    assert house.close(1) == AuctionClosed(1, "a vase", "", 0)
    assert house.close(1) is None


@pytest.mark.parametrize(("unit", "factor"), [(0, 1), (1, 1_000), (2, 1_000_000)])
def test_durations_are_in_the_clusters_time_unit(unit: int, factor: int) -> None:
    house = House()
    house.member.cm.new_leadership_term(time_unit=unit)
    house.ask(OpenAuction(1, "x", 1, 10))
    assert house.member.cm.scheduled_timers[-1] == (1, 1_000 + 10 * factor)


def test_a_request_that_is_not_understood_is_refused() -> None:
    house = House()
    house.member.deliver(b"\xc1 no message")
    assert isinstance(house.answers()[-1], Refused)
    assert house.member.errors == []


def test_a_timer_under_back_pressure_is_set_all_the_same() -> None:
    house = House()
    house.member.results(-2, -3, -2)
    assert house.ask(OpenAuction(1, "x", 1, 10)) == Accepted(1, 1)
    assert len(house.member.cm.scheduled_timers) == 1


def test_the_state_comes_back_from_a_snapshot() -> None:
    house = House()
    for index in range(50):
        house.ask(OpenAuction(index, f"item {index}", index, 1_000))
        house.ask(PlaceBid(index, index + 1, "ada", index + 5))
    before = house.ask(QueryState(99))
    position = house.member.cm.snapshot()
    house.member.commit()
    messages = house.member.store.messages(house.member.store.recording_ids[-1])

    member = Member(AuctionService(), log_position=position)
    member.start(recording_ids=[member.store.add_recording(messages)], leadership_term_id=1)
    member.cm.join_as_leader()
    member.work()
    member.deliver(msgspec.msgpack.encode(QueryState(99)))
    after = member.service.house
    assert list(after.auctions.values()) == before.auctions
    assert after.checksum() == before.checksum
    assert before.auctions[0] == Auction(1, "item 0", 0, 2_000, "ada", 5, 1)


def test_a_snapshot_of_another_service_is_refused() -> None:
    member = Member(AuctionService())
    messages = Member().lead()
    messages.cm.snapshot()
    messages.commit()
    store = messages.store
    recording_id = member.store.add_recording([*store.messages(store.recording_ids[-1]), b"something else"])
    member.cm.start(recording_ids=[recording_id], leadership_term_id=1)
    with pytest.raises(AgentTermination, match="not a state written by write_snapshot") as raised:
        member.agent.on_start()
    assert isinstance(raised.value.__cause__, SnapshotError)


@pytest.mark.parametrize("length", [0, 1, 1_344, 8_000])
def test_the_echo_service_answers_with_the_same_bytes(length: int) -> None:
    member = Member(EchoService()).lead()
    member.cm.open_session(1)
    member.deliver(bytes(length), session_id=1)
    member.cm.service_message(0, 1, b"of a service")
    member.commit()
    assert [message.payload for message in member.cm.egress(1)] == [bytes(length)]
    assert member.errors == []


def test_the_service_of_the_readme_works_and_has_at_most_twenty_lines() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    source = next(block for block in blocks if "ClusteredService" in block)
    assert sum(1 for line in source.splitlines() if line.strip()) <= 20
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(source, "README.md", "exec"), names)
    member = Member(names["Counter"]()).lead()
    member.cm.open_session(1)
    member.deliver(b"40", b"2")
    assert [message.payload for message in member.cm.egress(1)] == [b"40", b"42"]
    position = member.cm.snapshot()
    member.commit()
    messages = member.store.messages(member.store.recording_ids[-1])
    second = Member(names["Counter"](), log_position=position)
    second.start(recording_ids=[second.store.add_recording(messages)], leadership_term_id=1)
    assert second.service.total == 42
