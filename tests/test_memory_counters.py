"""Counters in memory: the layout of a driver's counters file, and the life of a counter's id."""

from __future__ import annotations

import pytest

from container.errors import RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver


def test_counters_are_in_the_layout_of_a_driver(driver: MemoryDriver, client: MemoryClient) -> None:
    counter = seam.add_counter(client, 203, b"\x01\0\0\0", "Cluster commit-pos: - clusterId=1")
    seam.set_counter(counter, -5)
    record = seam.counter_record(seam.counters(client), counter.counter_id)
    assert record == {
        "state": 1,
        "type_id": 203,
        "key": b"\x01" + bytes(111),
        "value": -5,
        "registration_id": counter.registration_id,
        "owner_id": seam.client_id(client),
        "label": "Cluster commit-pos: - clusterId=1",
    }
    assert (counter.value, counter.label) == (-5, "Cluster commit-pos: - clusterId=1")
    assert driver.counters.read() == seam.counters(client).read()


def test_each_client_has_a_heartbeat_counter(driver: MemoryDriver, clock: ManualClock, client: MemoryClient) -> None:
    [(counter_id, type_id, label, _)] = driver.counters.read()
    client_id = seam.client_id(client)
    assert (type_id, label) == (11, f"client-heartbeat: id={client_id} name=test")
    record = seam.counter_record(driver.counters, counter_id)
    assert record["registration_id"] == record["owner_id"] == client_id
    assert record["key"] == client_id.to_bytes(8, "little") + bytes(104)
    clock.advance(5_000_000)
    seam.invoke(client)
    assert seam.counter_record(driver.counters, counter_id)["value"] == clock.now_ms


def test_a_closed_counter_is_reclaimed_and_its_id_used_again_after_a_second(
    clock: ManualClock, client: MemoryClient
) -> None:
    counters = seam.counters(client)
    first = seam.add_counter(client, 1000, b"key", "first")
    first.close()
    first.close()
    seam.set_counter(first, 9)
    assert first.value == -1
    record = seam.counter_record(counters, first.counter_id)
    assert (record["state"], record["key"], record["value"]) == (-1, bytes(112), 0)
    assert seam.add_counter(client, 1000).counter_id == first.counter_id + 1
    clock.advance(1_000_000_000)
    again = seam.add_counter(client, 1001, b"", "again")
    assert again.counter_id == first.counter_id
    assert again.registration_id != first.registration_id
    assert seam.counter_record(counters, again.counter_id)["label"] == "again"
    assert seam.add_counter(client, 1000).counter_id == first.counter_id + 2


def test_counters_run_out_with_a_clear_error() -> None:
    client = MemoryDriver(counters_capacity=3).connect()
    seam.add_counter(client, 1)
    seam.add_counter(client, 1)
    with pytest.raises(RegistrationError, match="all 3 counters.*counters_capacity"):
        seam.add_counter(client, 1)


def test_a_key_of_113_bytes_is_refused_and_a_long_label_cut(client: MemoryClient) -> None:
    with pytest.raises(RegistrationError, match="112 bytes, not 113"):
        seam.add_counter(client, 1, bytes(113))
    counter = seam.add_counter(client, 1, bytes(112), "x" * 500)
    assert seam.counter_record(seam.counters(client), counter.counter_id)["label"] == "x" * 380
