"""An archive's counters: statement 77 of the conformance checklist, and what the cluster finds recordings by."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator

import pytest

from container.aeron import AeronClient, MediaDriver
from container.archive.server.archive_counters import ArchiveCounters, recording_position_key, recording_position_label
from container.common.aeron_defaults import CounterType
from container.errors import ArchiveError, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.counters import Counter
from container.transport.transport_seam import Client
from container.version import version_info
from tests.limits import LIMIT_S

ARCHIVE_ID = -7
LABELS = {
    101: f"Archive Errors - archiveId=-7 {version_info()}",
    102: "Archive Control Sessions - archiveId=-7",
    103: "archive-conductor max cycle time in ns: SHARED - archiveId=-7",
    104: "archive-conductor work cycle time exceeded count: threshold=100ms SHARED - archiveId=-7",
    105: "archive-recorder max write time in ns - archiveId=-7",
    106: "archive-recorder total write bytes - archiveId=-7",
    107: "archive-recorder total write time in ns - archiveId=-7",
    108: "archive-replayer max read time in ns - archiveId=-7",
    109: "archive-replayer total read bytes - archiveId=-7",
    110: "archive-replayer total read time in ns - archiveId=-7",
    111: "Archive Recording Sessions - archiveId=-7",
    112: "Archive Replay Sessions - archiveId=-7",
}


def counters_of(
    client: Client, archive_id: int = ARCHIVE_ID, mode: str = "SHARED", threshold_ns: int = 100_000_000
) -> ArchiveCounters:
    return ArchiveCounters(client, archive_id, threading_mode=mode, conductor_cycle_threshold_ns=threshold_ns)


def records(client: Client) -> list[seam.CounterRecord]:
    """The records of all counters of archives."""
    counters = seam.counters(client)
    every = [seam.counter_record(counters, each) for each in range(seam.counter_capacity(counters))]
    return [each for each in every if each["state"] == 1 and 100 <= each["type_id"] <= 113]


def members(counters: ArchiveCounters) -> dict[int, Counter]:
    return {
        101: counters.error_counter,
        102: counters.control_sessions,
        103: counters.conductor_cycle.max_counter,
        104: counters.conductor_cycle.exceeded_counter,
        105: counters.recorder_max_write_time,
        106: counters.recorder_total_write_bytes,
        107: counters.recorder_total_write_time,
        108: counters.replayer_max_read_time,
        109: counters.replayer_total_read_bytes,
        110: counters.replayer_total_read_time,
        111: counters.recording_sessions,
        112: counters.replay_sessions,
    }


def test_labels_keys_and_values_are_upstreams(client: MemoryClient) -> None:
    counters = counters_of(client)
    made = records(client)
    assert {each["type_id"]: each["label"] for each in made} == LABELS
    assert {each["key"] for each in made} == {struct.pack("<q", ARCHIVE_ID) + bytes(104)}
    assert {each["value"] for each in made} == {0}
    assert {each["owner_id"] for each in made} == {seam.client_id(client)}
    assert len(made) == len(LABELS)
    assert counters.archive_id == ARCHIVE_ID
    assert repr(counters) == "<ArchiveCounters archive_id=-7 counters=12>"


def test_each_attribute_is_the_counter_of_its_type(client: MemoryClient) -> None:
    for type_id, counter in members(counters_of(client)).items():
        seam.set_counter(counter, type_id)
    assert {each["type_id"]: each["value"] for each in records(client)} == {each: each for each in LABELS}


@pytest.mark.parametrize(
    ("mode", "threshold_ns", "text"), [("INVOKER", 2_000_000_000, "2s INVOKER"), ("SHARED", 1500, "1500ns SHARED")]
)
def test_the_label_has_threshold_and_mode(client: MemoryClient, mode: str, threshold_ns: int, text: str) -> None:
    counters = counters_of(client, mode=mode, threshold_ns=threshold_ns)
    assert counters.conductor_cycle.threshold_ns == threshold_ns
    assert f"threshold={text} - archiveId=-7" in counters.conductor_cycle.exceeded_counter.label


def test_close_gives_all_back_and_may_be_called_twice(client: MemoryClient) -> None:
    counters = counters_of(client)
    counters.close()
    counters.close()
    assert records(client) == []
    assert client.open_resources == []
    counters_of(client)


@pytest.mark.parametrize("place", range(12))
def test_nothing_is_left_when_there_is_no_room(clock: ManualClock, place: int) -> None:
    driver = MemoryDriver(clock, counters_capacity=1 + place)
    client = driver.connect("archive")
    with pytest.raises(RegistrationError):
        counters_of(client)
    assert client.open_resources == []


@pytest.mark.parametrize("type_id", [101, 102])
@pytest.mark.parametrize("archive_id", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_an_archive_of_this_id_is_found_by_either_counter(driver: MemoryDriver, type_id: int, archive_id: int) -> None:
    other = driver.connect("other")
    seam.add_counter(other, type_id, struct.pack("<q", archive_id), "of an archive")
    client = driver.connect("archive")
    with pytest.raises(ArchiveError, match=rf"^found existing archive for archiveId={archive_id}$") as caught:
        counters_of(client, archive_id)
    assert caught.value.code == 0
    assert client.open_resources == []


def test_an_archive_is_refused_beside_itself(client: MemoryClient) -> None:
    counters_of(client)
    with pytest.raises(ArchiveError, match=r"^found existing archive for archiveId=-7$"):
        counters_of(client)
    counters_of(client, ARCHIVE_ID + 1)
    assert len(records(client)) == 24


@pytest.mark.parametrize("type_id", [100, 103, 112, 113, 201])
def test_other_counters_do_not_hinder(driver: MemoryDriver, type_id: int) -> None:
    other = driver.connect("other")
    seam.add_counter(other, type_id, struct.pack("<q", ARCHIVE_ID), "another")
    seam.add_counter(other, 101, struct.pack("<q", ARCHIVE_ID + 1), "another archive")
    seam.add_counter(other, 102, struct.pack("<iq", 1, ARCHIVE_ID), "elsewhere in the key")
    counters_of(driver.connect("archive"))


def test_what_an_archive_left_does_not_hinder(driver: MemoryDriver) -> None:
    other = driver.connect("other")
    counters = counters_of(other)
    counters.close()
    counters_of(driver.connect("archive")).close()
    again = driver.connect("again")
    counters_of(again)
    again.sever()
    with pytest.raises(ArchiveError, match="found existing archive"):
        counters_of(driver.connect("early"))
    again.expire()
    counters_of(driver.connect("late"))


def test_the_types_are_named() -> None:
    assert {each.value for each in CounterType if "ARCHIVE" in each.name} == set(range(101, 114))


@pytest.mark.parametrize("length", [0, 1, 21, 87, 88, 89, 500])
def test_the_key_of_a_recording_fits(length: int) -> None:
    identity = "127.0.0.1:40123-and-more-"[:length].ljust(length, "x")
    key = recording_position_key(2**40, -5, identity, -(2**63))
    kept = min(length, 88)
    assert key == struct.pack("<qii", 2**40, -5, kept) + identity[:kept].encode() + struct.pack("<q", -(2**63))
    assert len(key) <= 112


def test_what_is_not_ascii_becomes_a_question_mark() -> None:
    assert recording_position_key(1, 2, "né", 3)[16:18] == b"n?"
    assert recording_position_label(1, 2, 3, "aeron:ipc?alias=\ufffdé", 4) == (
        "rec-pos: 1 2 3 aeron:ipc?alias=?? - archiveId=4"
    )


@pytest.mark.parametrize("archive_id", [0, -(2**63)])
def test_the_label_of_a_recording_is_cut_in_its_channel(archive_id: int) -> None:
    channel = "aeron:udp?endpoint=localhost:40123|alias=" + "x" * 500
    label = recording_position_label(17, -(2**31), 100, channel, archive_id)
    end = f" - archiveId={archive_id}"
    assert len(label) == 380
    assert label.endswith("x" + end)
    assert label.removesuffix(end) == f"rec-pos: 17 -2147483648 100 {channel}"[: 380 - len(end)]
    assert recording_position_label(0, 1, 2, "aeron:ipc", 3) == "rec-pos: 0 1 2 aeron:ipc - archiveId=3"


@pytest.fixture(scope="module")
def media_driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(timer_interval_ns=20_000_000) as driver:
        yield driver


def test_a_driver_has_the_same_counters(media_driver: MediaDriver) -> None:
    with AeronClient(media_driver.aeron_dir, use_invoker=True) as client:
        counters = counters_of(client)
        assert {each["type_id"]: each["label"] for each in records(client)} == LABELS
        seam.increment_counter(counters.control_sessions)
        assert next(each["value"] for each in records(client) if each["type_id"] == 102) == 1
        with AeronClient(media_driver.aeron_dir, use_invoker=True) as other:
            with pytest.raises(ArchiveError, match=r"^found existing archive for archiveId=-7$"):
                counters_of(other)
            key = recording_position_key(9, 8, "i" * 100, ARCHIVE_ID)
            label = recording_position_label(9, 8, 7, "aeron:ipc?alias=" + "x" * 400, ARCHIVE_ID)
            counter = seam.add_counter(other, CounterType.RECORDING_POSITION, key, label)  # it goes with its object
            made = next(each for each in records(other) if each["type_id"] == 100)
            assert (made["key"], made["label"]) == (key, label)
            counter.close()
        counters.close()
        deadline = time.monotonic() + LIMIT_S
        while records(client):
            assert time.monotonic() < deadline
            seam.invoke(client)
            os.sched_yield()
        counters_of(client).close()
