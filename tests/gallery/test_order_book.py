"""The order book of the gallery: who trades with whom, and at which price."""

from __future__ import annotations

import random

import msgspec
import pytest

from container.testing import MemoryMember, MemorySession
from examples.gallery import order_book
from examples.gallery.order_book import Cancel, Filled, OrderBook, Place, Reply

_ANSWERS: msgspec.msgpack.Decoder[Reply | Filled] = msgspec.msgpack.Decoder(Reply | Filled)


def ask(client: MemorySession, request: Place | Cancel) -> list[Reply | Filled]:
    """Messages that the client received because of a request of its own."""
    return [_ANSWERS.decode(answer) for answer in client.send(msgspec.msgpack.encode(request))]


def life(member: MemoryMember) -> None:
    """Clients that trade, cancel and leave."""
    for client in trade(member):
        client.close()


def trade(member: MemoryMember) -> list[MemorySession]:
    """Trade with several clients, of which one leaves; return the others."""
    draws = random.Random(1)
    clients = [member.open_session() for _ in range(4)]
    for number in range(120):
        client = draws.choice(clients)
        if number % 7:
            ask(client, Place(number, draws.random() < 0.5, draws.randrange(1, 9), draws.randrange(95, 106)))
        else:
            ask(client, Cancel(number, draws.randrange(number + 1)))
        if number == 60:
            clients.pop().close()
    return clients


def test_the_best_price_trades_first_and_at_one_price_the_oldest_order() -> None:
    with MemoryMember(OrderBook) as member:
        ada, bob, eve = (member.open_session() for _ in range(3))
        ask(ada, Place(1, False, 5, 101))
        ask(bob, Place(1, False, 5, 100))
        ask(bob, Place(2, False, 5, 101))
        assert ask(eve, Place(1, True, 12, 101)) == [Reply(1, 4, 12, 500 + 505 + 202)]
        assert [_ANSWERS.decode(each) for each in ada.egress[1:]] == [Filled(1, 5, 101)]
        assert [_ANSWERS.decode(each) for each in bob.egress[2:]] == [Filled(2, 5, 100), Filled(3, 2, 101)]
        assert ask(eve, Place(2, True, 9, 101)) == [Reply(2, 5, 3, 303, waiting=6)]
        assert ask(ada, Place(2, False, 4, 102)) == [Reply(2, 6, waiting=4)]
        assert ask(ada, Place(3, False, 1, 90)) == [Reply(3, 7, 1, 101)]


def test_an_order_is_cancelled_by_its_session_alone_and_ends_with_it() -> None:
    with MemoryMember(OrderBook) as member:
        ada, bob = member.open_session(), member.open_session()
        ask(ada, Place(1, True, 1, 50))
        ask(ada, Place(2, True, 1, 51))
        assert ask(bob, Cancel(1, 1)) == [Reply(1, error="you have no order 1")]
        assert ask(ada, Cancel(3, 1)) == [Reply(3, 1)]
        assert ask(ada, Cancel(4, 1)) == [Reply(4, error="you have no order 1")]
        ada.close()
        state = member.service.state
        assert (state.orders, state.buyers, state.by_session) == ({}, [], {})


def test_waiting_orders_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_book, "MAX_ORDERS", 3)
    monkeypatch.setattr(order_book, "MAX_ORDERS_OF_SESSION", 2)
    with MemoryMember(OrderBook) as member:
        ada, bob = member.open_session(), member.open_session()
        replies = [ask(client, Place(1, True, 1, 1))[0] for client in (ada, ada, ada, bob, bob)]
        refused = Reply(1, error="too many orders wait")
        assert replies == [Reply(1, 1, waiting=1), Reply(1, 2, waiting=1), refused, Reply(1, 3, waiting=1), refused]


def test_an_order_that_trades_is_taken_when_the_book_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_book, "MAX_ORDERS", 2)
    with MemoryMember(OrderBook) as member:
        ada, bob = member.open_session(), member.open_session()
        ask(ada, Place(1, False, 2, 100))
        ask(ada, Place(2, False, 2, 101))
        assert ask(bob, Place(1, True, 1, 99)) == [Reply(1, error="too many orders wait")]
        assert ask(bob, Place(2, True, 1, 100)) == [Reply(2, 3, traded=1, cost=100)]
        assert ask(bob, Place(3, True, 5, 100)) == [Reply(3, 4, traded=1, cost=100, waiting=4)]
        assert len(member.service.state.orders) == 2


def test_the_book_survives_a_restart() -> None:
    with MemoryMember(OrderBook) as member:
        trade(member)
        state = member.service.state
        assert state.orders
        member.restart(member.take_snapshot())
        assert member.service.state == state


@pytest.mark.parametrize("seed", range(5))
def test_it_trades_as_a_search_through_all_orders_would(seed: int) -> None:
    draws = random.Random(seed)
    orders: list[tuple[int, bool, int, int]] = []
    with MemoryMember(OrderBook) as member:
        client = member.open_session()
        for number in range(1, 200):
            is_buy, units, price = draws.random() < 0.5, draws.randrange(1, 9), draws.randrange(95, 106)
            sign, left, cost = (1 if is_buy else -1), units, 0
            for other in sorted(orders, key=lambda order: (sign * order[3], order[0])):
                if other[1] != is_buy and left and sign * (price - other[3]) >= 0:
                    traded = min(left, other[2])
                    left, cost = left - traded, cost + traded * other[3]
                    orders.remove(other)
                    if other[2] > traded:
                        orders.append((*other[:2], other[2] - traded, other[3]))
            if left:
                orders.append((number, is_buy, left, price))
            assert ask(client, Place(number, is_buy, units, price))[-1] == Reply(
                number, number, units - left, cost, left
            )
