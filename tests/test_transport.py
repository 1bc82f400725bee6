"""What of the seam is not abstract: counters, clocks, names of results; and what its abstract classes say."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.errors import DriverTimeoutError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.clocks import SystemClock
from container.transport.counters import Counter, Counters
from container.transport.streams import FragmentHandler, Image, Publication, Subscription
from container.transport.transport_seam import Client, ClientListener, MarkFile, SnapshotReader, SnapshotWriter

UNUSED = {
    "state": 0,
    "type_id": -1,
    "key": None,
    "value": -1,
    "registration_id": -1,
    "owner_id": -1,
    "label": "",
}


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (NOT_CONNECTED, "NOT_CONNECTED"),
        (BACK_PRESSURED, "BACK_PRESSURED"),
        (ADMIN_ACTION, "ADMIN_ACTION"),
        (CLOSED, "CLOSED"),
        (MAX_POSITION_EXCEEDED, "MAX_POSITION_EXCEEDED"),
        (-6, "-6"),
        (4736, "4736"),
    ],
)
def test_results_have_aerons_names(result: int, name: str) -> None:
    assert seam.result_name(result) == name


# Counters


@pytest.mark.parametrize("counter_id", [-1, -(2**31), 64, 2**31 - 1])
def test_a_counter_id_out_of_range_reads_as_unused(counter_id: int) -> None:
    counters = MemoryDriver(counters_capacity=64).counters
    assert seam.counter_capacity(counters) == 64
    assert seam.counter_record(counters, counter_id) == UNUSED


def test_counters_of_no_driver_have_no_records() -> None:
    counters = Counters()
    assert seam.counter_capacity(counters) == 0
    assert seam.counter_record(counters, 0) == UNUSED
    assert counters.read() == []


def test_a_scan_passes_over_reclaimed_records_and_stops_at_an_unused_one(client: MemoryClient) -> None:
    counters = [seam.add_counter(client, 1000 + index, b"", f"c{index}") for index in range(4)]
    counters[1].close()
    seam.set_counter(counters[3], 2**63 - 1)
    listed = seam.counters(client).read()[1:]
    assert listed == [
        (counters[0].counter_id, 1000, "c0", 0),
        (counters[2].counter_id, 1002, "c2", 0),
        (counters[3].counter_id, 1003, "c3", 2**63 - 1),
    ]


def test_a_label_that_is_not_ascii_is_still_read(client: MemoryClient) -> None:
    counter = seam.add_counter(client, 1, b"", "d\u00fcr")
    assert seam.counter_record(seam.counters(client), counter.counter_id)["label"] == "d?r"


def test_a_counter_can_be_set_incremented_and_proposed(client: MemoryClient) -> None:
    counter = seam.add_counter(client, 1000, b"", "label")
    assert counter.value == 0
    seam.set_counter(counter, 41)
    seam.increment_counter(counter)
    assert counter.value == 42
    seam.propose_max_counter(counter, 7)
    assert counter.value == 42
    seam.propose_max_counter(counter, 43)
    assert counter.value == 43
    assert seam.counter_record(seam.counters(client), counter.counter_id)["value"] == 43
    assert repr(counter) == f"<MemoryCounter {counter.counter_id} 'label' value=43>"


def test_a_closed_counter_ignores_writes_and_reads_as_null(client: MemoryClient) -> None:
    counter = seam.add_counter(client, 1000)
    counter.close()
    for write in (seam.set_counter, seam.propose_max_counter):
        write(counter, 5)
    seam.increment_counter(counter)
    assert counter.value == -1
    assert seam.counter_record(seam.counters(client), counter.counter_id)["value"] == 0


# Clocks


def test_the_system_clock_is_the_machines() -> None:
    driver = MemoryDriver(SystemClock())
    client = driver.connect()
    before_ns, before_ms = time.monotonic_ns(), time.time_ns() // 1_000_000
    now_ns, now_ms = seam.nano_time(client), seam.epoch_ms(client)
    assert before_ns <= now_ns <= time.monotonic_ns()
    assert before_ms <= now_ms <= time.time_ns() // 1_000_000


# What abstract classes say when they are used by themselves


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda: seam.on_fragment(FragmentHandler(), b""), "FragmentHandler does not implement on_fragment"),
        (lambda: seam.poll(Image()), "Image does not implement controlled_poll"),
        (lambda: seam.poll(Image(), 1, 1), "Image does not implement bounded_controlled_poll"),
        (lambda: seam.poll(Subscription()), "Subscription does not implement controlled_poll"),
        (lambda: seam.image_at_index(Subscription(), 0), "Subscription .* image_at_index"),
        (lambda: seam.image(Subscription(), 1), "Subscription .* image_by_session_id"),
        (lambda: seam.resolved_endpoint(Subscription()), "Subscription .* resolved_endpoint"),
        (lambda: Subscription().close(), "Subscription .* close"),
        (lambda: seam.offer(Publication(), b""), "Publication .* offer"),
        (lambda: seam.offer_vectors(Publication(), [b""]), "Publication .* offer_vectors"),
        (lambda: seam.try_claim(Publication(), b""), "Publication .* try_claim"),
        (lambda: Publication().close(), "Publication .* close"),
        (lambda: Counter().close(), "Counter .* close"),
        (lambda: seam.next_correlation_id(Client()), "Client .* next_correlation_id"),
        (lambda: seam.next_session_id(Client(), 1), "Client .* next_session_id"),
        (lambda: seam.add_publication(Client(), "", 1), "Client .* add_publication"),
        (lambda: seam.add_publication(Client(), "", 1, True), "Client .* add_exclusive_publication"),
        (lambda: seam.add_subscription(Client(), "", 1), "Client .* add_subscription"),
        (lambda: seam.add_counter(Client(), 1), "Client .* add_counter"),
        (lambda: seam.counters(Client()), "Client .* counters"),
        (lambda: seam.has_stream(Client(), 1, 1), "Client .* has_stream"),
        (lambda: seam.add_listener(Client(), ClientListener()), "Client .* add_listener"),
        (lambda: seam.remove_listener(Client(), ClientListener()), "Client .* remove_listener"),
        (lambda: Client().close(), "Client .* close"),
        (lambda: seam.check(SnapshotWriter()), "SnapshotWriter .* check"),
        (lambda: seam.recorded_position(SnapshotWriter()), "SnapshotWriter .* recorded_position"),
        (lambda: seam.is_complete(SnapshotWriter()), "SnapshotWriter .* is_complete"),
        (lambda: SnapshotWriter().close(), "SnapshotWriter .* close"),
        (lambda: seam.check(SnapshotReader()), "SnapshotReader .* check"),
        (lambda: SnapshotReader().close(), "SnapshotReader .* close"),
        (lambda: seam.update_activity_timestamp(MarkFile(), 1), "MarkFile .* update_activity_timestamp"),
        (lambda: seam.set_member_id(MarkFile(), 1), "MarkFile .* set_member_id"),
        (lambda: seam.signal_terminated(MarkFile()), "MarkFile .* signal_terminated"),
        (lambda: MarkFile().close(), "MarkFile .* close"),
    ],
)
def test_an_abstract_class_names_the_missing_method(call: Callable[[], object], method: str) -> None:
    with pytest.raises(TypeError, match=method):
        call()


def test_an_abstract_object_is_closed_and_goes_nowhere() -> None:
    image, subscription, publication = Image(), Subscription(), Publication()
    client = Client()
    assert all(seam.is_closed(thing) for thing in (image, subscription, publication, client))
    assert not any(seam.is_connected(thing) for thing in (subscription, publication))
    assert seam.position(image) == seam.end_of_stream_position(image) == -1
    assert seam.position(publication) == CLOSED
    assert seam.is_end_of_stream(image)
    assert seam.image_count(subscription) == 0
    assert seam.client_id(client) == -1
    assert not seam.is_invoker(client)
    assert seam.invoke(client) == 0


def test_a_subclass_in_python_shows_its_name() -> None:
    class Nowhere(Publication):
        pass

    assert repr(Nowhere()) == "<Nowhere None stream_id=0 session_id=0>"
    assert repr(Image()) == "<Image session_id=0 join_position=0 position=-1 closed=True>"
    assert repr(Subscription()) == "<Subscription None stream_id=0>"


def test_nothing_connects_to_a_dead_driver(driver: MemoryDriver) -> None:
    driver.kill()
    with pytest.raises(DriverTimeoutError):
        driver.connect()
