"""Snapshots as rows: entries of the recording log, and what the recordings of snapshots hold."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from container.codecs.messages import encode
from container.recordings import (
    RecordingError,
    RecordingUnavailableError,
    open_member,
    plan,
    read,
    read_partition,
    recording_ends,
    schema,
)
from container.recordings import member as member_module
from container.replay.execution import recorded_snapshots
from tests.recordings_world import CHANNEL, World, entry, failure_of, marker, rows_of, session_message

POSITION = 960
SERVICE_MESSAGE_ID = -(2**63) + 1


def module_messages(position: int = POSITION) -> list[bytes]:
    """A snapshot of a consensus module, with one of each thing."""
    return [
        marker(0, type_id=1, position=position),
        encode(
            "cluster",
            "ConsensusModule",
            next_session_id=8,
            next_service_session_id=SERVICE_MESSAGE_ID + 2,
            log_service_session_id=SERVICE_MESSAGE_ID,
            pending_message_capacity=4096,
        ),
        encode(
            "cluster",
            "ClusterSession",
            cluster_session_id=7,
            correlation_id=70,
            opened_log_position=160,
            time_of_last_activity=-1,
            close_reason=None,
            response_stream_id=102,
            response_channel=CHANNEL,
        ),
        encode("cluster", "Timer", correlation_id=5, deadline=1234),
        encode(
            "cluster",
            "PendingMessageTracker",
            next_service_session_id=SERVICE_MESSAGE_ID + 2,
            log_service_session_id=SERVICE_MESSAGE_ID,
            pending_message_capacity=4096,
            service_id=0,
        ),
        session_message(SERVICE_MESSAGE_ID + 1, b"pending", timestamp=2**63 - 1),
        session_message(SERVICE_MESSAGE_ID + 2, b"appended", timestamp=928),
        marker(2, type_id=1, position=position),
        b"data of an extension",
    ]


def service_messages(position: int = POSITION, data: list[bytes] | None = None) -> list[bytes]:
    """A snapshot of a service with one session and its own data."""
    session = encode(
        "cluster",
        "ClientSession",
        cluster_session_id=7,
        response_stream_id=102,
        response_channel=CHANNEL,
        encoded_principal=b"me",
    )
    own = [b"state 1", b"", b"\x28\0\x64\0 looks like a marker"] if data is None else data
    return [marker(0, position=position), session, marker(2, position=position), *own]


def filled(base_dir: Path, *, in_log: bool = True, **snapshots: list[bytes]) -> World:
    """A member with a log and a snapshot of service 0 and of the consensus module."""
    world = World(base_dir)
    world.begin_term()
    world.add_snapshot(0, snapshots.get("service", service_messages()), POSITION, in_log=in_log)
    world.add_snapshot(-1, snapshots.get("module", module_messages()), POSITION, in_log=in_log)
    return world.close()


def items(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """The rows without what all rows of a snapshot have."""
    common = {"service_id", "term_base_log_position", "timestamp", "entry_index", "is_valid", "leadership_term_id"}
    return [
        {name: value for name, value in row.items() if name not in {*common, "recording_id", "log_position", *names}}
        for row in rows
    ]


def test_entries_and_contents_are_rows(tmp_path: Path) -> None:
    filled(tmp_path)
    rows = rows_of(tmp_path, "snapshots")
    common = {
        "leadership_term_id": 0,
        "term_base_log_position": 0,
        "log_position": POSITION,
        "timestamp": 6,
        "is_valid": True,
    }
    assert all(common.items() <= row.items() for row in rows)
    by_service = {service: [row for row in rows if row["service_id"] == service] for service in (0, -1)}
    assert [{row["entry_index"] for row in by_service[service]} for service in (0, -1)] == [{1}, {2}]
    assert [{row["recording_id"] for row in by_service[service]} for service in (0, -1)] == [{1}, {2}]
    of_service, of_module = items(by_service[0]), items(by_service[-1])
    assert of_service[0] == of_module[0] == {"item": "ENTRY", "is_complete": True}
    assert [row["item_index"] for row in of_service[1:]] == list(range(6))
    assert [row["item_index"] for row in of_module[1:]] == list(range(9))
    session = {"cluster_session_id": 7, "response_stream_id": 102, "response_channel": CHANNEL}
    mark = {"item": "MARKER", "time_unit": "MILLIS", "app_version": 1}
    assert items(of_service[1:], "item_index") == [
        {**mark, "mark": "BEGIN"},
        {"item": "CLIENT_SESSION", **session, "encoded_principal": b"me"},
        {**mark, "mark": "END"},
        {"item": "SERVICE_DATA", "payload": b"state 1"},
        {"item": "SERVICE_DATA", "payload": b""},
        {"item": "SERVICE_DATA", "payload": b"\x28\0\x64\0 looks like a marker"},
    ]
    tracker = {
        "next_service_session_id": SERVICE_MESSAGE_ID + 2,
        "log_service_session_id": SERVICE_MESSAGE_ID,
        "pending_message_capacity": 4096,
    }
    pending = {"item": "PENDING_MESSAGE"}
    assert items(of_module[1:], "item_index") == [
        {**mark, "mark": "BEGIN"},
        {"item": "CONSENSUS_MODULE", "next_session_id": 8, **tracker},
        {"item": "CLUSTER_SESSION", **session, "correlation_id": 70, "opened_log_position": 160},
        {"item": "TIMER", "correlation_id": 5, "deadline": 1234},
        {"item": "PENDING_MESSAGE_TRACKER", **tracker, "pending_service_id": 0},
        {**pending, "cluster_session_id": SERVICE_MESSAGE_ID + 1, "payload": b"pending"},
        {**pending, "cluster_session_id": SERVICE_MESSAGE_ID + 2, "payload": b"appended", "appended_log_position": 928},
        {**mark, "mark": "END"},
        {"item": "EXTENSION_DATA", "payload": b"data of an extension"},
    ]


def test_without_a_recording_log_snapshots_are_found_by_their_streams(tmp_path: Path) -> None:
    world = filled(tmp_path, in_log=False)
    rows = rows_of(world.archive_dir, "snapshots")
    entries = [row for row in rows if row["item"] == "ENTRY"]
    expected = {"log_position": POSITION, "leadership_term_id": 0, "item": "ENTRY", "is_complete": True}
    assert entries == [{**expected, "recording_id": 1}, {**expected, "recording_id": 2, "service_id": -1}]
    assert len(rows) == 2 + 6 + 9
    # With a recording log only its entries count.
    assert rows_of(tmp_path, "snapshots") == []


@pytest.mark.parametrize("member_column", [False, True])
def test_batches_have_the_schema_of_the_view(tmp_path: Path, member_column: bool) -> None:
    filled(tmp_path)
    batches = list(read(tmp_path, "snapshots", member_column=member_column))
    assert batches
    for batch in batches:
        assert batch.schema.equals(schema("snapshots", member_column=member_column), check_metadata=True)
        batch.validate(full=True)


def test_large_data_comes_in_bounded_batches(tmp_path: Path) -> None:
    rng = random.Random(4)
    data = [rng.randbytes(rng.randrange(8000)) for _ in range(300)]
    filled(tmp_path, service=service_messages(data=data))
    batches = list(read(tmp_path, "snapshots", batch_rows=50, columns=["item", "payload"]))
    assert all(batch.num_rows <= 50 for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["payload"] for row in rows if row["item"] == "SERVICE_DATA"] == data


def test_a_snapshot_whose_recording_is_gone_is_an_incomplete_entry(tmp_path: Path) -> None:
    world = filled(tmp_path)
    world.descriptors.pop()
    world.entries.append(
        entry(3, 1, entry_type=2, log_position=7, service_id=-1, is_valid=False, archive_endpoint="host:1")
    )
    world.close()
    *_, gone, standby = rows_of(tmp_path, "snapshots")
    assert (gone["service_id"], gone["is_complete"]) == (-1, False)
    assert (standby["item"], standby["is_valid"], "is_complete" in standby) == ("ENTRY", False, False)


BAD: dict[str, tuple[list[bytes], int, str]] = {
    "no end marker": (service_messages()[:2], 2, "the snapshot has no end marker"),
    "nothing": ([], 0, "the snapshot has no end marker"),
    "no begin marker": (service_messages()[1:], 0, "message .template id 102. before its begin marker"),
    "an end without a beginning": (service_messages()[2:], 0, "message .template id 100. before its begin marker"),
    "a second beginning": ([service_messages()[0]] * 2, 1, "a second begin marker in a snapshot"),
    "of a consensus module": (module_messages(), 0, "marker has type 1, expected 2 .1 module, 2 service."),
    "of another position": (service_messages(POSITION + 32), 0, "marker names log position 992, expected 960"),
    "of another schema": ([encode("archive", "Ping", control_session_id=4)], 0, "message is of another schema"),
    "a cut message": ([service_messages()[0], service_messages()[1][:30]], 1, "message is truncated .template id 102."),
    "too short": ([service_messages()[0], b"abc"], 1, "message is truncated .template id -1."),
}


@pytest.mark.parametrize(("messages", "good", "text"), BAD.values(), ids=BAD.keys())
def test_a_bad_snapshot_is_rows_up_to_the_damage_and_an_error(
    tmp_path: Path, messages: list[bytes], good: int, text: str
) -> None:
    world = filled(tmp_path, service=messages)
    error, rows = failure_of(tmp_path, "snapshots")
    with pytest.raises(RecordingError, match=text):
        raise error
    assert error.file == str(world.archive_dir / "1-0.rec")
    assert [row["item"] for row in rows[:1]] == ["ENTRY"]
    assert len(rows) == 1 + good
    assert rows[0]["is_complete"] is False
    rows = rows_of(tmp_path, "snapshots", mode="permissive")
    assert rows[1 + good]["error"] == str(error)
    assert [row["is_complete"] for row in rows if row.get("item") == "ENTRY"] == [False, True]
    assert rows[-1]["item"] == "EXTENSION_DATA"


def test_a_message_of_an_unknown_template_is_a_row(tmp_path: Path) -> None:
    messages = module_messages()
    messages.insert(1, b"\0\0\x6a\0\x6f\0\x10\0obsolete")
    filled(tmp_path, module=messages)
    row = next(row for row in rows_of(tmp_path, "snapshots") if row["item"] == "UNKNOWN")
    assert row["payload"] == messages[1]


def test_a_damaged_frame_ends_a_snapshot(tmp_path: Path) -> None:
    world = filled(tmp_path)
    path = world.archive_dir / "1-0.rec"
    content = bytearray(path.read_bytes())
    content[96] = 7
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="offset 96, log position 96: frame length 7 is out of range"):
        rows_of(tmp_path, "snapshots")
    rows = rows_of(tmp_path, "snapshots", mode="permissive")
    assert [row.get("item") for row in rows[:3]] == ["ENTRY", "MARKER", None]
    assert rows[3]["item"] == "ENTRY"


@pytest.mark.parametrize(
    ("field", "value"),
    [("term_buffer_length", 0), ("segment_file_length", 0), ("mtu_length", 7), ("stop_position", 33)],
)
@pytest.mark.parametrize("in_log", [True, False])
def test_an_impossible_descriptor_of_a_snapshot_is_one_error(
    tmp_path: Path, field: str, value: int, in_log: bool
) -> None:
    world = filled(tmp_path, in_log=in_log)
    path = tmp_path if in_log else world.archive_dir
    good = rows_of(path, "snapshots")
    changed: Any = {field: value}
    world.descriptors[0] = dataclasses.replace(world.descriptors[0], **changed)
    world.close()
    error, rows = failure_of(path, "snapshots")
    assert error.file == str(world.archive_dir / "archive.catalog")
    assert f"={value} of recording 1 is impossible" in error.detail
    assert [(row["item"], row["is_complete"]) for row in rows] == [("ENTRY", False)]
    entry_row, damaged, *others = rows_of(path, "snapshots", mode="permissive")
    assert entry_row == rows[0]
    assert (damaged["error"], damaged["recording_id"]) == (str(error), 1)
    assert others == [row for row in good if row["recording_id"] == 2]


def test_without_its_catalog_a_read_of_a_snapshot_fails_in_either_mode(tmp_path: Path) -> None:
    world = filled(tmp_path)
    partitions = plan(open_member(tmp_path), "snapshots", mode="permissive")
    world.archive_dir.joinpath("archive.catalog").unlink()
    assert len(partitions) == 2
    for partition in partitions:
        with pytest.raises(RecordingUnavailableError, match="the catalog cannot be read: No such file"):
            list(read_partition(partition))


@pytest.mark.parametrize("in_log", [True, False])
def test_many_snapshots_are_few_partitions_in_their_order(tmp_path: Path, in_log: bool) -> None:
    world = World(tmp_path)
    world.begin_term()
    for number in range(100):
        world.add_snapshot(0, service_messages(data=[b"state %d" % number]), POSITION, in_log=in_log)
    world.close()
    partitions = plan(open_member(tmp_path if in_log else world.archive_dir), "snapshots")
    assert len(partitions) <= 32
    batches = [batch for partition in partitions for batch in read_partition(partition, batch_rows=11)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len(batches) < 100
    assert all(batch.num_rows <= 11 for batch in batches)
    assert [row["recording_id"] for row in rows] == [number for number in range(1, 101) for _ in range(5)]
    assert [row["payload"] for row in rows[4::5]] == [b"state %d" % number for number in range(100)]
    counted = [batch.num_rows for partition in partitions for batch in read_partition(partition, columns=[])]
    assert sum(counted) == len(rows)


def test_a_plan_or_a_read_of_many_snapshots_reads_the_catalog_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.begin_term()
    for _ in range(200):
        # The recording of a snapshot that is being taken has no end in the catalog: its files say it.
        world.add_snapshot(0, service_messages(), POSITION)
        world.descriptors[-1] = dataclasses.replace(world.descriptors[-1], stop_position=-1)
    world.close()
    seen: list[object] = []

    def count(module: object, name: str) -> None:
        real = getattr(module, name)

        def counted(*given: Any) -> Any:
            seen.append(name)
            return real(*given)

        monkeypatch.setattr(module, name, counted)

    for module in (member_module, recording_ends):
        count(module, "read_catalog")
        count(module, "file_names")
    member = open_member(tmp_path)
    partitions = plan(member, "snapshots")
    assert sum(batch.num_rows for part in partitions for batch in read_partition(part, columns=["item"])) == 200 * 7
    assert len(seen) <= 1 + 2 * len(partitions)
    seen.clear()
    assert len(recorded_snapshots(member)) == 1
    assert len(seen) == 3
