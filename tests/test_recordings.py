"""The log of a member as rows: against a decoder in plain Python, and against messages laid out by hand."""

from __future__ import annotations

import pickle
import random
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from container.codecs.messages import encode
from container.errors import ConfigurationError
from container.recordings import (
    LOG_VIEWS,
    VIEWS,
    Filters,
    RecordingError,
    open_member,
    open_members,
    plan,
    read,
    read_partition,
    schema,
)
from container.recordings.views import columns_of
from tests.plain_decoder import frame_times, frames, message_row, messages
from tests.recordings_world import (
    CHANNEL,
    SEGMENT_LENGTH,
    TERM_LENGTH,
    World,
    entry,
    new_term,
    rows_of,
    session_message,
    table_of,
)

LAYOUTS: dict[str, dict[str, Any]] = {
    "by default": {},
    "term ids wrap": {"initial_term_id": 2**31 - 2},
    "begins in a term": {"start_position": 4096},
    "begins in a later term": {"start_position": 5 * TERM_LENGTH + 64},
    "one term per segment": {"segment_length": TERM_LENGTH},
    "checksums": {"checksum": True},
    "another mtu and stream": {"mtu_length": 4096, "stream_id": 333, "initial_term_id": -5},
}


def filled(base_dir: Path, seed: int = 1, count: int = 300, *, stop: bool = True, **layout: Any) -> World:
    """A member with three leadership terms and messages of all kinds in several segments."""
    world = World(base_dir, **layout)
    rng = random.Random(seed)
    for _ in range(3):
        term = world.begin_term()
        world.append_some(rng, count // 3, term)
    return world.close(stop=stop)


def place_of(world: World) -> tuple[Path, int, int, int, int, int]:
    """Where the plain decoder finds the log."""
    log = world.log
    first = log.start_position // log.term_length * log.term_length
    return world.archive_dir, log.recording_id, log.start_position, log.position, log.segment_length, first


def expected_rows(world: World) -> list[dict[str, Any]]:
    """What the plain decoder says of the messages of a log."""
    return [message_row(*message) for message in messages(*place_of(world))]


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def only(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names if name in row} for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_message_is_as_the_plain_decoder_sees_it(tmp_path: Path, layout: dict[str, Any]) -> None:
    world = filled(tmp_path, **layout)
    rows = rows_of(tmp_path, "messages")
    committed = world.bases[-1]
    assert [row["committed"] for row in rows] == [row["log_position"] <= committed for row in rows]
    assert without(rows, "committed") == expected_rows(world)
    assert len(rows) == 303
    assert world.log.position - world.log.start_position > 2 * SEGMENT_LENGTH


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_frame_is_as_the_plain_decoder_sees_it(tmp_path: Path, layout: dict[str, Any]) -> None:
    world = filled(tmp_path, **layout)
    rows = rows_of(tmp_path, "frames")
    found = list(frames(*place_of(world)))
    assert [row["leadership_term_id"] for row in rows] == [
        sum(frame.position >= base for base in world.bases) - 1 for frame in found
    ]
    assert without(rows, "committed", "leadership_term_id") == [
        {
            "log_position": frame.end,
            "begin_position": frame.position,
            "frame_length": frame.length,
            "version": frame.version,
            "flags": frame.flags,
            "type": "PAD" if frame.payload is None else "DATA",
            "term_offset": frame.term_offset,
            "session_id": frame.session_id,
            "stream_id": frame.stream_id,
            "term_id": frame.term_id,
            "reserved_value": frame.reserved_value,
            **times,
            **({} if frame.payload is None else {"payload": frame.payload}),
        }
        for frame, times in zip(found, frame_times(found), strict=True)
    ]
    assert {row["type"] for row in rows} == {"PAD", "DATA"}


@pytest.mark.parametrize(
    ("view", "templates"),
    [("sessions", {21, 22}), ("session_messages", {1}), ("timers", {20})],
)
def test_a_view_of_the_log_shows_its_messages_with_its_columns(tmp_path: Path, view: str, templates: set[int]) -> None:
    world = filled(tmp_path)
    events = {21: {"event": "OPEN"}, 22: {"event": "CLOSE"}}
    expected = [
        row | (events.get(row["template_id"], {}) if view == "sessions" else {})
        for row in expected_rows(world)
        if row["template_id"] in templates and row["schema_id"] == 111
    ]
    names = [column.name for column in columns_of(view) if column.name not in ("committed", "event_time")]
    assert without(rows_of(tmp_path, view), "committed") == only(expected, names)
    assert expected


def test_terms_come_from_the_log_and_from_the_recording_log(tmp_path: Path) -> None:
    world = filled(tmp_path)
    rows = rows_of(tmp_path, "terms")
    logged, recorded = ([row for row in rows if row["source"] == source] for source in ("log", "recording_log"))
    assert [row["term_base_log_position"] for row in logged] == world.bases
    assert [row["begin_position"] for row in logged] == world.bases
    assert [row["leader_member_id"] for row in logged] == [0, 1, 2]
    assert {row["time_unit"] for row in logged} == {"MILLIS"}
    assert {row["recording_id"] for row in rows} == {0}
    assert without(recorded, "source", "timestamp") == [
        {
            "leadership_term_id": index,
            "term_base_log_position": base,
            **({"end_log_position": end} if end is not None else {}),
            "entry_index": index,
            "is_valid": True,
            "recording_id": 0,
        }
        for index, (base, end) in enumerate(zip(world.bases, [*world.bases[1:], None], strict=True))
    ]


def test_a_message_of_every_template_has_its_fields(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.append(new_term(3, 0))
    common = {"leadership_term_id": 3, "timestamp": 17}
    unknown = encode("cluster", "SessionKeepAlive", leadership_term_id=3, cluster_session_id=4)
    written = [
        session_message(5, b"hello", term=3, timestamp=17),
        session_message(-(2**63) + (2 << 56) + 4, b"", term=3, timestamp=17),
        encode("cluster", "TimerEvent", correlation_id=-8, **common),
        encode(
            "cluster",
            "SessionOpenEvent",
            correlation_id=9,
            cluster_session_id=4,
            response_stream_id=102,
            response_channel=CHANNEL,
            encoded_principal=b"\0\xff",
            **common,
        ),
        encode("cluster", "SessionCloseEvent", cluster_session_id=4, close_reason=1, **common),
        encode("cluster", "SessionCloseEvent", cluster_session_id=4, close_reason=7, **common),
        encode("cluster", "SessionCloseEvent", cluster_session_id=4, close_reason=None, **common),
        encode("cluster", "ClusterActionRequest", log_position=832, action=2, flags=1, **common),
        encode(
            "cluster",
            "MembershipChangeEvent",
            log_position=2,
            leader_member_id=1,
            cluster_size=3,
            change_type=1,
            member_id=6,
            cluster_members="0,a:1",
            **common,
        ),
        unknown[:6] + b"\x63\0" + unknown[8:],
        encode("archive", "Ping", control_session_id=4),
    ]
    ends = [world.log.append(message) for message in written]
    world.close()
    rows = rows_of(tmp_path, "messages", recording_id=0)[1:]
    assert [row["log_position"] for row in rows] == ends
    assert [row["message_length"] for row in rows] == [len(message) for message in written]
    always = ("log_position", "begin_position", "committed", "message_length", "schema_version")
    here = {"schema_id": 111, **common}
    close = {**here, "template_id": 22, "cluster_session_id": 4}
    assert without(rows, *always) == [
        {**here, "template_id": 1, "cluster_session_id": 5, "payload": b"hello", "payload_length": 5},
        {
            **here,
            "template_id": 1,
            "cluster_session_id": -(2**63) + (2 << 56) + 4,
            "service_id": 2,
            "payload": b"",
            "payload_length": 0,
        },
        {**here, "template_id": 20, "correlation_id": -8},
        {
            **here,
            "template_id": 21,
            "cluster_session_id": 4,
            "correlation_id": 9,
            "response_stream_id": 102,
            "response_channel": CHANNEL,
            "encoded_principal": b"\0\xff",
        },
        {**close, "close_reason": "SERVICE_ACTION"},
        {**close, "close_reason": "7"},
        close,
        {**here, "template_id": 23, "event_log_position": 832, "action": "SNAPSHOT", "flags": 1},
        {
            **here,
            "template_id": 25,
            "event_log_position": 2,
            "leader_member_id": 1,
            "cluster_size": 3,
            "change_type": "QUIT",
            "changed_member_id": 6,
            "cluster_members": "0,a:1",
        },
        {"schema_id": 111, "template_id": 5, "payload": written[9][8:], "payload_length": 16},
        {"schema_id": 101, "template_id": 106, "payload": written[10][8:], "payload_length": 8},
    ]


def test_an_older_and_a_newer_sender_are_read_by_their_block_length(tmp_path: Path) -> None:
    world = World(tmp_path)
    older_body, newer_body = (new_term(1, base, time_unit=2, app_version=9)[8:] for base in (0, 96))
    opened = encode(
        "cluster",
        "SessionOpenEvent",
        leadership_term_id=1,
        correlation_id=2,
        cluster_session_id=3,
        timestamp=4,
        response_stream_id=5,
        response_channel="aeron:ipc",
        encoded_principal=b"p",
    )
    for message in (
        (40).to_bytes(2, "little") + b"\x18\0\x6f\0\3\0" + older_body[:40],
        (56).to_bytes(2, "little") + b"\x18\0\x6f\0\x63\0" + newer_body + b"newfield",
        (44).to_bytes(2, "little") + opened[2:6] + b"\x63\0" + opened[8:44] + b"newfield" + opened[44:],
    ):
        world.log.append(message)
    world.close()
    older, newer, session = rows_of(tmp_path, "messages", recording_id=0)
    assert (older["schema_version"], older["time_unit"], older["app_version"]) == (3, "MILLIS", 0)
    assert (newer["schema_version"], newer["time_unit"], newer["app_version"]) == (99, "NANOS", 9)
    assert (session["response_channel"], session["encoded_principal"]) == ("aeron:ipc", b"p")


@pytest.mark.parametrize("batch_rows", [1, 7, 300, 65536])
def test_rows_are_the_same_in_batches_of_any_size(tmp_path: Path, batch_rows: int) -> None:
    world = filled(tmp_path)
    batches = list(read(tmp_path, "messages", batch_rows=batch_rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len(rows) == len(expected_rows(world))
    assert rows == table_of(tmp_path, "messages").to_pylist()


def test_a_batch_ends_at_16_mib_of_payload(tmp_path: Path) -> None:
    world = World(tmp_path, term_length=2**24, segment_length=2**26, mtu_length=65504)
    world.log.append_session_messages(300, payload_length=150_000)
    world.close()
    batches = list(read(tmp_path, "session_messages", recording_id=0))
    sizes = [sum(len(value.as_py()) for value in batch["payload"]) for batch in batches]
    assert sum(sizes) == 300 * 150_000
    assert len(sizes) == 3
    assert all(2**24 <= size < 2**24 + 150_000 for size in sizes[:-1])


def test_columns_are_those_asked_for_in_that_order(tmp_path: Path) -> None:
    filled(tmp_path)
    table = table_of(tmp_path, "messages", columns=["payload", "log_position", "member_id"])
    assert table.column_names == ["payload", "log_position", "member_id"]
    assert table["log_position"].to_pylist() == table_of(tmp_path, "messages")["log_position"].to_pylist()
    with pytest.raises(ConfigurationError, match="view 'timers' has no column 'payload', it has member_id, log_posi"):
        list(read(tmp_path, "timers", columns=["payload"]))
    with pytest.raises(ConfigurationError, match=r"columns='timestamp' is one text, give a list of names such as \["):
        list(read(tmp_path, "timers", columns="timestamp"))


def test_without_columns_there_are_only_numbers_of_rows(tmp_path: Path) -> None:
    filled(tmp_path)
    batches = list(read(tmp_path, "messages", columns=[]))
    assert sum(batch.num_rows for batch in batches) == 303
    assert all(batch.num_columns == 0 for batch in batches)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_its_schema_and_says_what_its_columns_mean(tmp_path: Path, view: str) -> None:
    assert schema(view).names == [column.name for column in columns_of(view)]
    assert schema(view, member_column=True).names[0] == "member_id"
    assert all(field.metadata[b"comment"].endswith(b".") for field in schema(view))


@pytest.mark.parametrize("member_column", [False, True])
@pytest.mark.parametrize("view", LOG_VIEWS)
def test_batches_have_the_schema_of_their_view(tmp_path: Path, view: str, member_column: bool) -> None:
    filled(tmp_path)
    batches = list(read(tmp_path, view, member_column=member_column))
    assert batches
    for batch in batches:
        assert batch.schema.equals(schema(view, member_column=member_column), check_metadata=True)
        batch.validate(full=True)


def test_an_unknown_view_and_mode_are_refused(tmp_path: Path) -> None:
    world = filled(tmp_path)
    member = open_member(world.base_dir)
    with pytest.raises(ConfigurationError, match="view='frame' is unknown, use one of frames, messages"):
        plan(member, "frame")
    with pytest.raises(ConfigurationError, match="mode='lax' is unknown, use one of strict, permissive"):
        plan(member, "frames", mode="lax")


# Partitions and filters.


def test_partitions_of_terms_and_segments_have_all_rows_between_them(tmp_path: Path) -> None:
    world = filled(tmp_path)
    parts = plan(open_member(tmp_path), "messages")
    borders = [(part.begin_position, part.end_position) for part in parts]
    assert [begin for begin, _ in borders[1:]] == [end for _, end in borders[:-1]]
    segments = range(0, world.log.position, SEGMENT_LENGTH)
    assert {begin for begin, _ in borders} == {*segments, *world.bases}
    assert [part.leadership_term_id for part in parts] == [
        sum(begin >= base for base in world.bases) - 1 for begin, _ in borders
    ]
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    rows = [row for part in sent for batch in read_partition(part) for row in batch.to_pylist()]
    assert rows == table_of(tmp_path, "messages").to_pylist()
    assert len(rows) == 303


def test_without_a_recording_log_there_is_a_partition_for_each_segment(tmp_path: Path) -> None:
    world = filled(tmp_path)
    parts = plan(open_member(world.archive_dir), "messages")
    assert [part.begin_position for part in parts] == list(range(0, world.log.position, SEGMENT_LENGTH))
    assert {part.leadership_term_id for part in parts} == {None}
    assert {row["committed"] for row in rows_of(world.archive_dir, "messages")} == {False}


def test_a_message_belongs_to_the_partition_in_which_it_begins(tmp_path: Path) -> None:
    """Whatever divides the log: the boundaries of all frames are tried."""
    world = World(tmp_path)
    world.begin_term()
    rng = random.Random(3)
    for length in (10, 5000, 1344, 8000, 0):
        world.log.append(session_message(1, rng.randbytes(length)))
    world.close()
    (part,) = plan(open_member(tmp_path), "messages")
    expected = rows_of(tmp_path, "messages")
    borders = [frame.end for frame in frames(*place_of(world))]
    for border in borders:
        halves = [
            part.__class__(**{**fields(part), "end_position": border}),
            part.__class__(**{**fields(part), "begin_position": border}),
        ]
        first, second = ([row for batch in read_partition(half) for row in batch.to_pylist()] for half in halves)
        assert [row["log_position"] for row in first + second] == [row["log_position"] for row in expected]
        assert all(row["begin_position"] < border for row in first)
        assert all(row["begin_position"] >= border for row in second)


def fields(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


@pytest.mark.parametrize("view", LOG_VIEWS)
def test_positions_divide_a_view_without_losing_or_repeating_a_row(tmp_path: Path, view: str) -> None:
    world = filled(tmp_path)
    rows = rows_of(tmp_path, view)
    assert rows
    rng = random.Random(5)
    cuts = sorted({0, world.log.position, *(rng.randrange(world.log.position) for _ in range(20)), *world.bases})
    ranges = [Filters(begin_position=begin, end_position=end) for begin, end in pairwise(cuts)]
    parts = [rows_of(tmp_path, view, filters=filters) for filters in ranges]
    assert [row for part in parts for row in part] == rows
    for (begin, end), part in zip(pairwise(cuts), parts, strict=True):
        assert all(begin < row["log_position"] <= end for row in part)


FILTERS: dict[str, tuple[Filters, Any]] = {
    "positions": (
        Filters(begin_position=70_000, end_position=200_000),
        lambda row: 70_000 < row["log_position"] <= 200_000,
    ),
    "from a time": (Filters(begin_timestamp=1050), lambda row: row.get("timestamp", -1) >= 1050),
    "to a time": (Filters(end_timestamp=1050), lambda row: row.get("timestamp", 9999) < 1050),
    "templates": (Filters(template_ids=frozenset([20, 22])), lambda row: row["template_id"] in (20, 22)),
    "an unknown template": (Filters(template_ids=frozenset([0x63])), lambda row: row["template_id"] == 0x63),
    "terms": (Filters(leadership_term_ids=frozenset([0, 2])), lambda row: row.get("leadership_term_id") in (0, 2)),
    "nothing": (Filters(template_ids=frozenset(), leadership_term_ids=frozenset()), lambda _: False),
    "all of them": (
        Filters(begin_position=100, begin_timestamp=3, template_ids=frozenset([1]), leadership_term_ids=frozenset([1])),
        lambda row: row["template_id"] == 1 and row["leadership_term_id"] == 1,
    ),
}


@pytest.mark.parametrize(("filters", "accepts"), FILTERS.values(), ids=FILTERS.keys())
def test_filters_choose_rows(tmp_path: Path, filters: Filters, accepts: Any) -> None:
    filled(tmp_path)
    expected = [row for row in rows_of(tmp_path, "messages") if accepts(row)]
    assert rows_of(tmp_path, "messages", filters=filters) == expected


def test_partitions_that_a_filter_excludes_are_not_planned(tmp_path: Path) -> None:
    world = filled(tmp_path)
    member = open_member(tmp_path)
    everything = plan(member, "timers")
    ends = plan(member, "timers", filters=Filters(begin_position=world.bases[2]))
    assert ends == [part for part in everything if part.begin_position >= world.bases[2]]
    terms = plan(member, "timers", filters=Filters(leadership_term_ids=frozenset([1])))
    assert {part.leadership_term_id for part in terms} == {1}
    assert plan(member, "timers", filters=Filters(begin_position=world.log.position)) == []


def write_steps(base_dir: Path) -> dict[int, list[int]]:
    """Write a log of three leaders, each a whole segment and a part; the second one's clock is hours behind, the third
    one's is ahead. Return the timestamps by term."""
    world = World(base_dir, segment_length=TERM_LENGTH)
    times: dict[int, list[int]] = {}
    for term, hour in enumerate((10, 7, 13)):
        now = hour * 3_600_000
        world.begin_term(timestamp=now)
        times[term] = [now]
        for _ in range(24):
            now += 120_000
            world.log.append(session_message(1, bytes(4000), term=term, timestamp=now))
            times[term].append(now)
    world.close()
    return times


@pytest.mark.parametrize("files", ["all", "an archive alone", "a recording log that has lost its end"])
def test_what_another_leader_s_clock_says_leaves_no_file_unread(tmp_path: Path, files: str) -> None:
    """The next part begins hours before or behind what is wanted of the last part of a term."""
    times = write_steps(tmp_path)
    path = tmp_path / "archive" if files == "an archive alone" else tmp_path
    if files.startswith("a recording log"):
        log = tmp_path / "cluster" / "recording.log"
        log.write_bytes(log.read_bytes()[:-64])
    every = [time for term in times.values() for time in term]
    for bound in every[::4]:
        for filters, expected in (
            (Filters(begin_timestamp=bound), [time for time in every if time >= bound]),
            (Filters(end_timestamp=bound), [time for time in every if time < bound]),
            (Filters(begin_timestamp=bound, end_timestamp=bound + 1), [bound]),
        ):
            assert [row["timestamp"] for row in rows_of(path, "messages", filters=filters)] == expected, filters
    for term, expected in times.items():
        filters = Filters(leadership_term_ids=frozenset([term]))
        assert [row["timestamp"] for row in rows_of(path, "messages", filters=filters)] == expected


def test_a_time_without_an_end_has_no_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.append(session_message(1, b"x", timestamp=2**63 - 1))
    world.log.append(session_message(1, b"x", timestamp=None))  # type: ignore[arg-type]
    world.close()
    found = rows_of(tmp_path, "messages", filters=Filters(begin_timestamp=5), mode="permissive")
    assert found[0]["timestamp"] == 2**63 - 1
    assert [row.get("timestamp") for row in rows_of(tmp_path, "frames")] == [2**63 - 1, None]


def test_a_filter_that_a_view_can_not_apply_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(ConfigurationError, match="frames can be chosen by position and leadership term only"):
        list(read(tmp_path, "frames", filters=Filters(template_ids=frozenset([1]))))
    with pytest.raises(ConfigurationError, match="view='recordings' takes no filters"):
        list(read(tmp_path, "recordings", filters=Filters(begin_position=1)))
    with pytest.raises(
        ConfigurationError, match="begin_timestamp='2026-11-28': must be a whole number of 64 bits, of a time in the cl"
    ):
        list(read(tmp_path, "messages", filters=Filters(begin_timestamp="2026-11-28")))  # type: ignore[arg-type]
    for wrong in ("96", 96.5, 2**63):
        with pytest.raises(ConfigurationError, match=f"end_position={wrong!r}: must be a whole number of 64 bits$"):
            list(read(tmp_path, "messages", filters=Filters(end_position=wrong)))  # type: ignore[arg-type]
    # A fraction would be cut off, and a message before it be let through.
    with pytest.raises(ConfigurationError, match=r"begin_timestamp=1050\.5: must be a whole number"):
        list(read(tmp_path, "messages", filters=Filters(begin_timestamp=1050.5)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a template id is 0 to 65535, got 65536"):
        list(read(tmp_path, "messages", filters=Filters(template_ids=frozenset([65536]))))


def test_several_members_are_read_one_after_the_other(tmp_path: Path) -> None:
    worlds = [filled(tmp_path / str(index), seed=7) for index in range(2)]
    table = pa.Table.from_batches(list(read([world.base_dir for world in worlds], "timers", member_column=True)))
    count = len(rows_of(worlds[0].base_dir, "timers"))
    assert table.num_rows == 2 * count
    with pytest.raises(ConfigurationError, match="path is empty"):
        open_members([])
    with pytest.raises(ConfigurationError, match="archive_dir='x' cannot belong to 2 members"):
        open_members([tmp_path, tmp_path], archive_dir="x")
    with pytest.raises(
        ConfigurationError, match=r"path names member \S+ twice: \S+/1 and \S+/1; name each member once"
    ):
        open_members([world.base_dir for world in worlds] + [worlds[1].base_dir])


# Memory and processes.


def test_arrays_own_their_memory(tmp_path: Path) -> None:
    world = filled(tmp_path)
    batches = list(read(tmp_path, "session_messages", batch_rows=10))
    expected = [row["payload"] for row in expected_rows(world) if row["template_id"] == 1]
    world.segment().unlink()
    assert [value.as_py() for batch in batches for value in batch["payload"]] == expected


def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path) -> None:
    world = filled(tmp_path)
    batches = read(tmp_path, "frames", batch_rows=1)
    next(batches)
    with world.segment().open("r+b") as file:
        file.truncate(100)
    with world.segment(1).open("r+b") as file:
        file.truncate(0)
    with pytest.raises(RecordingError, match="the file ends before byte") as caught:
        list(batches)
    assert caught.value.file is not None


def test_an_error_survives_pickling(tmp_path: Path) -> None:
    filled(tmp_path).segment().unlink()
    with pytest.raises(RecordingError) as caught:
        list(read(tmp_path, "messages"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.file, again.offset, again.log_position) == (str(tmp_path / "archive" / "0-0.rec"), 0, 0)


def test_without_pyarrow_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "aeron-cluster-container\[recordings\]"'):
        schema("messages")
    with pytest.raises(ImportError, match="reading recordings needs pyarrow"):
        next(read(tmp_path, "messages"))
    assert open_member(tmp_path).log_range().start_position == 0


def test_entries_of_the_catalog_and_the_recording_log_are_rows(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin_term()
    world.entries.append(
        entry(1, 4, entry_type=2, log_position=96, service_id=0, is_valid=False, archive_endpoint="host:8010")
    )
    world.close(stop=False)
    (log,) = rows_of(tmp_path, "recordings")
    assert (log["recording_id"], log["stream_id"], log["segment_file_length"]) == (0, 100, SEGMENT_LENGTH)
    assert "stop_position" not in log
    assert log["stripped_channel"] == "aeron:udp?alias=log"
    term, standby = rows_of(tmp_path, "recording_log")
    assert (term["entry_type"], term["is_valid"], term.get("log_position")) == ("TERM", True, None)
    assert standby == {
        "entry_index": 1,
        "recording_id": 4,
        "leadership_term_id": 0,
        "term_base_log_position": 0,
        "log_position": 96,
        "timestamp": 5,
        "service_id": 0,
        "entry_type": "STANDBY_SNAPSHOT",
        "is_valid": False,
        "archive_endpoint": "host:8010",
    }
