"""The rate limiter of the gallery: bursts, refills and keys that are forgotten."""

from __future__ import annotations

import random

import msgspec
import pytest

from container.api import TimeUnit
from container.testing import MemoryMember, MemorySession
from examples.gallery import rate_limiter
from examples.gallery.rate_limiter import BUCKET, PERMIT_MS, RateLimiter, Reply, Take


def ask(client: MemorySession, request: Take) -> Reply:
    """The reply to a request."""
    (answer,) = client.send(msgspec.msgpack.encode(request))
    return msgspec.msgpack.decode(answer, type=Reply)


def life(member: MemoryMember) -> None:
    """Keys that are used often and seldom."""
    draws = random.Random(1)
    client = member.open_session()
    for number in range(120):
        ask(client, Take(number, f"key {draws.randrange(5)}", draws.randrange(1, BUCKET + 1)))
        member.advance(draws.randrange(400))


@pytest.mark.parametrize("unit", [TimeUnit.MILLIS, TimeUnit.MICROS, TimeUnit.NANOS])
def test_a_full_bucket_goes_at_once_and_comes_back_evenly(unit: TimeUnit) -> None:
    per_ms = 1000 ** [TimeUnit.MILLIS, TimeUnit.MICROS, TimeUnit.NANOS].index(unit)
    with MemoryMember(RateLimiter, time_unit=unit) as member:
        client = member.open_session()
        assert all(ask(client, Take(number, "ada")).is_granted for number in range(BUCKET))
        assert ask(client, Take(1, "ada")) == Reply(1, False, PERMIT_MS)
        assert ask(client, Take(2, "ada", 3)) == Reply(2, False, 3 * PERMIT_MS)
        assert ask(client, Take(3, "bob", BUCKET)) == Reply(3, True)
        member.advance(PERMIT_MS * per_ms - 1)
        assert ask(client, Take(4, "ada")) == Reply(4, False, 1)
        member.advance(1)
        assert ask(client, Take(5, "ada")) == Reply(5, True)
        assert ask(client, Take(6, "ada")) == Reply(6, False, PERMIT_MS)


def test_keys_are_limited_and_full_buckets_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MAX_KEYS", 3)
    with MemoryMember(RateLimiter) as member:
        client = member.open_session()
        assert [ask(client, Take(1, key)).error for key in "abcd"] == ["", "", "", "too many keys"]
        assert ask(client, Take(1, "a")).is_granted
        member.advance(2 * PERMIT_MS)
        assert ask(client, Take(2, "d")).is_granted
        assert list(member.service.state.full_at) == ["a", "d"]


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode({"type": "Take"}), b"x" * 500])
def test_bad_input_gets_an_answer(payload: bytes) -> None:
    with MemoryMember(RateLimiter) as member:
        (answer,) = member.open_session().send(payload)
        assert msgspec.msgpack.decode(answer, type=Reply).error.startswith("not understood: ")


def test_the_buckets_survive_a_restart() -> None:
    with MemoryMember(RateLimiter) as member:
        life(member)
        state = member.service.state
        assert state.full_at
        member.restart(member.take_snapshot())
        assert member.service.state == state
