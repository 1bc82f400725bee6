"""What an archive says of its recordings to whoever listens; whatever fails there is nobody's concern."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from container.aeron import AeronClient, MediaDriver
from container.archive.server.recording_events import RecordingEvents
from container.codecs import messages as codecs
from container.errors import DriverTimeoutError, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.streams import Publication, Subscription
from container.transport.transport_seam import Client
from tests.limits import LIMIT_S

CHANNEL, STREAM_ID = "aeron:ipc", 30
NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED = range(-1, -6, -1)

type Call = Callable[[RecordingEvents], object]

CALLS: dict[str, Call] = {
    "RecordingStarted": lambda events: events.started(5, 64, -3, 1001, "aeron:ipc?alias=x", "aeron:ipc"),
    "RecordingProgress": lambda events: events.progress(5, 64, 2**40),
    "RecordingStopped": lambda events: events.stopped(5, 64, 2**40 + 32),
}
FIELDS: dict[str, dict[str, Any]] = {
    "RecordingStarted": {
        "recording_id": 5,
        "start_position": 64,
        "session_id": -3,
        "stream_id": 1001,
        "channel": b"aeron:ipc?alias=x",
        "source_identity": b"aeron:ipc",
    },
    "RecordingProgress": {"recording_id": 5, "start_position": 64, "position": 2**40},
    "RecordingStopped": {"recording_id": 5, "start_position": 64, "stop_position": 2**40 + 32},
}


class Listener:
    """A monitor that subscribes to the events."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.subscription: Subscription = seam.add_subscription(client, CHANNEL, STREAM_ID)

    def received(self) -> list[tuple[str, dict[str, Any]]]:
        seam.invoke(self.client)
        return [codecs.decode("archive", data) for data, _ in seam.poll(self.subscription, 1000)]


@pytest.fixture
def events(client: MemoryClient) -> RecordingEvents:
    return RecordingEvents(client, CHANNEL, STREAM_ID)


@pytest.fixture
def listener(driver: MemoryDriver) -> Listener:
    return Listener(driver.connect("monitor"))


def test_each_event_is_what_upstream_sends(events: RecordingEvents, listener: Listener) -> None:
    listener.received()
    assert [call(events) for call in CALLS.values()] == [0, True, 0]
    assert listener.received() == list(FIELDS.items())


def test_the_publication_is_exclusive(driver: MemoryDriver, events: RecordingEvents) -> None:
    [info] = driver.publications()
    assert (info.channel, info.stream_id, info.is_exclusive) == (CHANNEL, STREAM_ID, True)
    assert repr(events) == "<RecordingEvents aeron:ipc stream 30>"
    assert isinstance(events.publication, Publication)


@pytest.mark.parametrize("name", CALLS)
def test_nobody_listens(events: RecordingEvents, driver: MemoryDriver, name: str) -> None:
    assert CALLS[name](events) == 0
    assert Listener(driver.connect("late")).received() == []


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("result", [NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED, RuntimeError("a bug")])
def test_what_cannot_be_sent_is_dropped_at_once(
    driver: MemoryDriver, events: RecordingEvents, listener: Listener, name: str, result: int | Exception
) -> None:
    driver.publication_results(CHANNEL, STREAM_ID, [result])
    listener.received()
    assert CALLS[name](events) == 0
    assert listener.received() == []
    CALLS[name](events)
    assert listener.received() == [(name, FIELDS[name])]


@pytest.mark.parametrize("name", ["RecordingStarted", "RecordingStopped"])
@pytest.mark.parametrize("failures", [1, 2, 3, 4])
def test_begin_and_end_are_tried_three_times(
    driver: MemoryDriver, events: RecordingEvents, listener: Listener, name: str, failures: int
) -> None:
    driver.publication_results(
        CHANNEL, STREAM_ID, [BACK_PRESSURED, ADMIN_ACTION, BACK_PRESSURED, ADMIN_ACTION][:failures]
    )
    listener.received()
    CALLS[name](events)
    assert listener.received() == ([(name, FIELDS[name])] if failures < 3 else [])


@pytest.mark.parametrize("result", [BACK_PRESSURED, ADMIN_ACTION])
def test_progress_is_tried_once(driver: MemoryDriver, events: RecordingEvents, listener: Listener, result: int) -> None:
    driver.publication_results(CHANNEL, STREAM_ID, [result])
    listener.received()
    assert events.progress(5, 64, 96) is False
    assert events.progress(5, 64, 128) is True
    assert [fields["position"] for _, fields in listener.received()] == [128]


def test_a_monitor_that_does_not_read_holds_up_nothing(clock: ManualClock) -> None:
    driver = MemoryDriver(clock, publication_window=1024)
    listener = Listener(driver.connect("monitor"))
    events = RecordingEvents(driver.connect("archive"), CHANNEL, STREAM_ID)
    listener.received()
    sent = [position for position in range(0, 3200, 32) if events.progress(1, 0, position)]
    assert 0 < len(sent) < 100
    events.stopped(1, 0, 3200)
    assert [fields["position"] for _, fields in listener.received()] == sent
    listener.received()
    events.stopped(1, 0, 3200)
    assert [name for name, _ in listener.received()] == ["RecordingStopped"]


@pytest.mark.parametrize("length", [8192, 100_000])
def test_a_message_that_is_too_long_is_dropped(events: RecordingEvents, listener: Listener, length: int) -> None:
    listener.received()
    events.started(1, 0, 2, 3, "aeron:ipc?alias=" + "x" * length, "aeron:ipc")
    assert listener.received() == []
    events.progress(1, 0, 32)
    assert len(listener.received()) == 1


def test_what_is_not_ascii_becomes_a_question_mark(events: RecordingEvents, listener: Listener) -> None:
    listener.received()
    events.started(1, 0, 2, 3, "aeron:ipc?alias=\ufffd", "né")
    [(_, fields)] = listener.received()
    assert (fields["channel"], fields["source_identity"]) == (b"aeron:ipc?alias=?", b"n?")


def test_events_after_the_close_are_dropped(client: MemoryClient, events: RecordingEvents, listener: Listener) -> None:
    listener.received()
    events.close()
    events.close()
    assert [call(events) for call in CALLS.values()] == [0, False, 0]
    assert client.open_resources == []


def test_a_lost_driver_is_not_raised(driver: MemoryDriver, events: RecordingEvents, listener: Listener) -> None:
    listener.received()
    driver.kill()
    for call in CALLS.values():
        call(events)


@pytest.mark.parametrize("error", [None, DriverTimeoutError("no answer")])
def test_a_publication_that_cannot_be_added_is_raised(
    driver: MemoryDriver, client: MemoryClient, error: Exception | None
) -> None:
    driver.fail_next_add("exclusive_publication", 4, "no", error=error)
    with pytest.raises(RegistrationError if error is None else DriverTimeoutError):
        RecordingEvents(client, CHANNEL, STREAM_ID)
    assert client.open_resources == []


def test_over_a_driver() -> None:
    with (
        MediaDriver.launch_embedded() as driver,
        AeronClient(driver.aeron_dir, use_invoker=True) as client,
        AeronClient(driver.aeron_dir, use_invoker=True) as other,
    ):
        events = RecordingEvents(client, CHANNEL, STREAM_ID)
        for call in CALLS.values():
            call(events)
        listener = Listener(other)
        received: list[tuple[str, dict[str, Any]]] = []
        deadline = time.monotonic() + LIMIT_S
        while not seam.is_connected(events.publication) or not seam.is_connected(listener.subscription):
            assert time.monotonic() < deadline
            seam.invoke(client)
            seam.invoke(other)
            os.sched_yield()
        for call in CALLS.values():
            call(events)
        while len(received) < len(FIELDS):
            assert time.monotonic() < deadline
            received += listener.received()
        assert received == list(FIELDS.items())
        events.close()
        assert [call(events) for call in CALLS.values()] == [0, False, 0]
