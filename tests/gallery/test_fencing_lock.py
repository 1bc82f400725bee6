"""The locks of the gallery: one client at a time, in turn, with tokens that ascend."""

from __future__ import annotations

import random

import msgspec
import pytest

from container.testing import MemoryMember, MemorySession
from examples.gallery import fencing_lock
from examples.gallery.fencing_lock import Acquire, FencingLock, Granted, Release, Reply

_ANSWERS: msgspec.msgpack.Decoder[Reply | Granted] = msgspec.msgpack.Decoder(Reply | Granted)
LEASE_MS = 1_000


def ask(client: MemorySession, request: Acquire | Release) -> Reply:
    """The reply to a request."""
    answer = _ANSWERS.decode(client.send(msgspec.msgpack.encode(request))[-1])
    assert isinstance(answer, Reply)
    return answer


def granted(client: MemorySession) -> list[Granted]:
    """The locks that a client got after it had waited."""
    answers = [_ANSWERS.decode(answer) for answer in client.egress]
    return [answer for answer in answers if isinstance(answer, Granted)]


def life(member: MemoryMember) -> None:
    """Clients that lock, wait, release, forget to and leave."""
    draws = random.Random(1)
    clients = [member.open_session() for _ in range(4)]
    for number in range(120):
        client, lock = draws.choice(clients), draws.choice("abc")
        ask(client, Release(number, lock) if number % 3 == 0 else Acquire(number, lock, draws.randrange(1, 500)))
        member.advance(draws.randrange(100))
        if number == 60:
            clients.pop().close()


def test_clients_have_a_lock_in_turn_with_ascending_tokens() -> None:
    with MemoryMember(FencingLock) as member:
        ada, bob, eve = (member.open_session() for _ in range(3))
        assert ask(ada, Acquire(1, "a", LEASE_MS)) == Reply(1, 1)
        assert ask(bob, Acquire(1, "a", LEASE_MS)) == Reply(1)
        assert ask(eve, Acquire(1, "a", LEASE_MS)) == Reply(1)
        assert ask(eve, Acquire(2, "b", LEASE_MS)) == Reply(2, 2)
        assert ask(ada, Release(2, "a")) == Reply(2, 1)
        assert (granted(bob), granted(eve)) == ([Granted("a", 3)], [])
        bob.close()
        assert granted(eve) == [Granted("a", 4)]
        assert ask(ada, Release(3, "a")) == Reply(3, error="you do not have this lock")


def test_a_client_that_waits_may_give_up() -> None:
    with MemoryMember(FencingLock) as member:
        ada, bob, eve = (member.open_session() for _ in range(3))
        for client in (ada, bob, eve):
            ask(client, Acquire(1, "a", LEASE_MS))
        assert ask(bob, Release(2, "a")) == Reply(2)
        ask(ada, Release(2, "a"))
        assert (granted(bob), granted(eve)) == ([], [Granted("a", 2)])


def test_a_lease_ends_unless_it_is_started_again() -> None:
    with MemoryMember(FencingLock) as member:
        ada, bob = member.open_session(), member.open_session()
        ask(ada, Acquire(1, "a", LEASE_MS))
        ask(bob, Acquire(1, "a", LEASE_MS))
        member.advance(LEASE_MS - 1)
        assert ask(ada, Acquire(2, "a", LEASE_MS)) == Reply(2, 1)
        member.advance(LEASE_MS - 1)
        assert granted(bob) == []
        member.advance(1)
        assert granted(bob) == [Granted("a", 2)]
        assert ask(ada, Release(3, "a")).error
        member.advance(LEASE_MS)
        state = member.service.state
        assert (state.count, state.claims, state.locks, state.by_session, member.timers) == (0, {}, {}, {}, {})


def test_a_timer_that_fires_while_the_lease_is_started_again_ends_nothing() -> None:
    with MemoryMember(FencingLock) as member:
        ada, bob = member.open_session(), member.open_session()
        ask(ada, Acquire(1, "a", LEASE_MS))
        ask(bob, Acquire(1, "a", LEASE_MS))
        ask(ada, Acquire(2, "a", LEASE_MS))
        member.fire_timer(1)
        assert granted(bob) == []
        assert ask(ada, Release(3, "a")) == Reply(3, 1)


def test_claims_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing_lock, "MAX_CLAIMS", 3)
    monkeypatch.setattr(fencing_lock, "MAX_LOCKS_OF_SESSION", 2)
    with MemoryMember(FencingLock) as member:
        ada, bob = member.open_session(), member.open_session()
        errors = [ask(client, Acquire(1, lock, 1)).error for client in (ada, bob) for lock in "abc"]
        assert errors == ["", "", "too many locks", "", "too many locks", "too many locks"]
        assert ask(bob, Acquire(1, "a", 1)) == Reply(1)  # it has claimed this one


def test_locks_and_their_leases_survive_a_restart() -> None:
    with MemoryMember(FencingLock) as member:
        life(member)
        state, timers = member.service.state, member.timers
        assert state.locks
        assert sorted(timers) == sorted(state.locks)
        member.restart(member.take_snapshot())
        assert (member.service.state, member.timers) == (state, timers)
