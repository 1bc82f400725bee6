"""The key-value store of the gallery: versions, expiry and limits."""

from __future__ import annotations

import random

import msgspec
import pytest

from container.testing import MemoryMember, MemorySession
from examples.gallery import expiring_store
from examples.gallery.expiring_store import Delete, ExpiringStore, Get, Put, Reply, Request


def ask(client: MemorySession, request: Request) -> Reply:
    """The reply to a request."""
    (answer,) = client.send(msgspec.msgpack.encode(request))
    return msgspec.msgpack.decode(answer, type=Reply)


def life(member: MemoryMember) -> None:
    """Clients that write, read and delete a few keys."""
    draws = random.Random(1)
    client = member.open_session()
    for number in range(120):
        key = f"key {draws.randrange(5)}"
        ask(client, Put(number, key, draws.randbytes(9), draws.choice([0, 100, 1_000])))
        member.advance(draws.randrange(200))
        found = ask(client, Get(number, draws.choice(["key 0", "key 1"])))
        ask(client, Put(number, "key 1", b"changed", 500, draws.choice([found.version, 0])))
        if number % 4 == 0:
            ask(client, Delete(number, key, draws.choice([None, 7])))


def test_a_key_is_written_read_and_removed() -> None:
    with MemoryMember(ExpiringStore) as member:
        client = member.open_session()
        assert ask(client, Get(1, "a")) == Reply(1, 0)
        assert ask(client, Put(2, "a", b"one")) == Reply(2, 1)
        assert ask(client, Put(3, "a", b"two")) == Reply(3, 2)
        assert ask(client, Get(4, "a")) == Reply(4, 2, b"two")
        assert ask(client, Delete(5, "a")) == Reply(5, 0)
        assert ask(client, Delete(6, "a")) == Reply(6, 0)
        assert (member.service.state.entries, member.service.state.size) == ({}, 0)


def test_a_change_with_another_version_is_refused() -> None:
    with MemoryMember(ExpiringStore) as member:
        client = member.open_session()
        assert ask(client, Put(1, "a", b"one", if_version=0)) == Reply(1, 1)
        assert ask(client, Put(2, "a", b"two", if_version=0)) == Reply(2, 1, error="the version is 1")
        assert ask(client, Delete(3, "a", if_version=5)) == Reply(3, 1, error="the version is 1")
        assert ask(client, Put(4, "a", b"two", if_version=1)) == Reply(4, 2)
        assert ask(client, Delete(5, "a", if_version=2)) == Reply(5, 0)


def test_a_key_expires_and_a_new_value_does_not_expire_with_the_old_one() -> None:
    with MemoryMember(ExpiringStore) as member:
        client = member.open_session()
        ask(client, Put(1, "a", b"one", 100))
        ask(client, Put(1, "b", b"one", 100))
        member.advance(50)
        ask(client, Put(2, "b", b"two"))
        member.fire_timer(2)  # the cluster had decided on it before it had the new value
        member.advance(49)
        assert ask(client, Get(3, "a")) == Reply(3, 1, b"one")
        member.advance(1)
        assert member.service.state.entries.keys() == {"b"}
        assert (ask(client, Get(4, "a")), ask(client, Get(4, "b"))) == (Reply(4, 0), Reply(4, 3, b"two"))
        assert (member.timers, member.service.state.expiring, member.service.state.size) == ({}, {}, 3)


def test_keys_and_bytes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring_store, "MAX_KEYS", 2)
    monkeypatch.setattr(expiring_store, "MAX_BYTES", 10)
    with MemoryMember(ExpiringStore) as member:
        client = member.open_session()
        assert [ask(client, Put(1, key, b"four")).error for key in "abc"] == ["", "", "too many keys"]
        assert ask(client, Put(2, "a", b"seven..")) == Reply(2, 1, error="too many bytes")
        assert ask(client, Put(2, "a", b"six...")) == Reply(2, 3)
        assert member.service.state.size == 10
        for version, value in enumerate((b"again.", b"less", b"more..", b""), 4):
            assert ask(client, Put(3, "a", value)) == Reply(3, version)
        assert member.service.state.size == 4
        assert ask(client, Put(4, "a", bytes(5_000))).error.startswith("not understood: ")


def test_keys_and_their_expiry_survive_a_restart() -> None:
    with MemoryMember(ExpiringStore) as member:
        life(member)
        state, timers = member.service.state, member.timers
        assert state.expiring
        assert timers.keys() == state.expiring.keys()
        member.restart(member.take_snapshot())
        assert (member.service.state, member.timers) == (state, timers)
