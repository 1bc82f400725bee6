"""Replays of written recordings: the rows of a service, its state's hashes, segments, positions, errors and damage."""

from __future__ import annotations

import hashlib
import pickle
import random
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from container.api import ClientSession, Cluster, SnapshotImage, SnapshotPublication
from container.errors import ConfigurationError, RecordingError
from container.recordings import open_member
from container.replay.diff import DIFF_COLUMNS, diff
from container.replay.execution import (
    REPLAY_COLUMNS,
    make_service,
    plan_replay,
    replay,
    replay_schema,
    replay_segment,
)
from tests.recordings_world import SEGMENT_LENGTH, World, entry
from tests.replay_services import (
    CANCELLING,
    CLAIMING,
    CLOSING,
    FAILING,
    OFFERING,
    STATE,
    TIMING,
    BatchTallyService,
    BrokenTallyService,
    ColumnTallyService,
    RestlessTallyService,
    TallyService,
)
from tests.replay_world import SERVICE_SESSION, TALLY, Tally, egress, of_kind, replayed, rows, write_tally
from tests.resources import open_files


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    return write_tally(tmp_path_factory.mktemp("tally") / "member")


def hash_of(count: int, total: int) -> str:
    """The hash of the service's state by the documented rule."""
    state = STATE.pack(count, total)
    return hashlib.sha256(len(state).to_bytes(8, "little") + state).hexdigest()


def hashes(found: list[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    return [
        (row["log_position"], row["state_hash"], row.get("recorded_state_hash")) for row in of_kind(found, "STATE_HASH")
    ]


def test_answers_are_those_that_clients_must_have_got(tally: Tally) -> None:
    found = replayed(tally.base_dir)
    assert egress(found) == tally.answers
    assert of_kind(found, "ERROR", "WARNING") == []
    first, second, last = hashes(found)
    assert [first[0], second[0]] == tally.snapshots
    assert first[1] == first[2]
    assert second[1] == second[2]
    assert last == (tally.position, hash_of(tally.count, tally.sum), None)


@pytest.mark.parametrize("service", [TallyService, lambda: TallyService(), TALLY])
def test_a_service_is_a_class_a_function_or_a_name(tally: Tally, service: Any) -> None:
    assert egress(replayed(tally.base_dir, service)) == tally.answers


def test_each_thing_that_a_service_asks_for_is_a_row(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.open_session(2)
    claiming = tally.number(CLAIMING)
    closing = tally.number(CLOSING, 2)
    offering = tally.number(OFFERING, SERVICE_SESSION)
    timing = tally.number(TIMING, SERVICE_SESSION)
    timed = tally.now_ms
    cancelling = tally.number(CANCELLING, SERVICE_SESSION)
    found = replayed(tally.finish())
    described = [
        tuple(row.get(name) for name in ("kind", "log_position", "sequence", "cluster_session_id", "correlation_id"))
        for row in found
    ]
    assert described == [
        ("EGRESS", claiming, 0, 1, None),
        ("EGRESS", claiming, 1, 1, None),
        ("EGRESS", closing, 0, 2, None),
        ("CLOSE_SESSION", closing, 1, 2, None),
        ("SERVICE_MESSAGE", offering, 0, None, None),
        ("SERVICE_MESSAGE", offering, 1, None, None),
        ("SCHEDULE_TIMER", timing, 0, None, 4),
        ("CANCEL_TIMER", cancelling, 0, None, 5),
        ("STATE_HASH", cancelling, 1, None, None),
    ]
    payloads = [row["payload"] for row in found if "payload" in row]
    assert payloads == [b"-3 after 1", b"claimed", b"-5 after 2", b"to ourselves", b"claimed"]
    (timer,) = of_kind(found, "SCHEDULE_TIMER")
    assert (timer["timestamp"], timer["deadline"]) == (timed, timed + 100)


def test_segments_between_snapshots_give_the_rows_of_the_whole(tally: Tally) -> None:
    member = open_member(tally.base_dir)
    middle = tally.answers[100][0]
    segments = plan_replay(member, hash_positions=[middle])
    borders = [0, *tally.snapshots, tally.position]
    assert [(one.begin_position, one.end_position) for one in segments] == list(pairwise(borders))
    parts = [rows(replay_segment(pickle.loads(pickle.dumps(one)), TallyService)) for one in reversed(segments)]
    whole = replayed(tally.base_dir, hash_positions=[middle])
    assert [row for part in reversed(parts) for row in part] == whole
    assert middle in [position for position, _, _ in hashes(whole)]


@pytest.mark.parametrize("begin", [0, 1])
def test_a_replay_begins_at_a_snapshot_and_ends_where_it_is_told(tally: Tally, begin: int) -> None:
    lower = tally.snapshots[begin]
    upper = tally.answers[-20][0]
    found = replayed(tally.base_dir, begin_position=lower, end_position=upper)
    assert egress(found) == [answer for answer in tally.answers if lower < answer[0] <= upper]
    assert hashes(found)[-1][0] == upper


def test_a_position_within_a_message_is_that_of_the_message_before(tally: Tally) -> None:
    upper = tally.answers[-20][0]
    exact = replayed(tally.base_dir, end_position=upper)
    beyond = replayed(tally.base_dir, end_position=upper + 32, hash_positions=[upper])
    assert beyond[: len(exact)] == exact
    assert [position for position, _, _ in hashes(beyond)][-2:] == [upper, upper + 32]
    assert hashes(beyond)[-1][1] == hashes(exact)[-1][1]


def test_a_state_is_hashed_wherever_it_is_asked_for(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    expected = []
    for number in range(50):
        position = tally.number(number, filler=bytes(2000 * (number % 3)))
        expected.append((position, hash_of(tally.count, tally.sum), None))
    path = tally.finish()
    found = replayed(path, hash_positions=[position for position, _, _ in expected])
    assert hashes(found) == expected
    assert egress(found) == tally.answers


@pytest.mark.parametrize("batch_rows", [1, 7])
def test_rows_do_not_depend_on_the_length_of_batches(tally: Tally, batch_rows: int) -> None:
    batches = list(replay(tally.base_dir, TALLY, batch_rows=batch_rows))
    assert all(batch.num_rows <= batch_rows for batch in batches)
    assert {batch.schema for batch in batches} == {replay_schema()}
    assert rows(iter(batches)) == replayed(tally.base_dir)


@pytest.mark.parametrize("service", [BatchTallyService, ColumnTallyService])
def test_a_service_with_batches_of_messages_has_the_same_rows(tally: Tally, service: type[TallyService]) -> None:
    assert replayed(tally.base_dir, service) == replayed(tally.base_dir)


@pytest.mark.parametrize("service", [TallyService, BatchTallyService, ColumnTallyService])
def test_an_error_becomes_a_row_and_ends_a_strict_replay_only(tmp_path: Path, service: type[TallyService]) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(5)
    failing = tally.number(FAILING)
    tally.answers.pop()
    tally.number(6)
    path = tally.finish()
    strict = replayed(path, service)
    permissive = replayed(path, service, mode="permissive")
    (error,) = of_kind(strict, "ERROR")
    assert error["log_position"] == failing
    assert "ValueError" in error["error"]
    assert "no number -1" in error["error"]
    assert egress(strict) == tally.answers[:1]
    assert hashes(strict) == []
    if service is not ColumnTallyService:  # which ends in a container, too: nobody knows at which message it failed
        assert egress(permissive) == tally.answers
        assert hashes(permissive) == [(tally.position, hash_of(tally.count, tally.sum), None)]
        assert of_kind(permissive, "ERROR") == [error]


@pytest.mark.parametrize("mode", ["strict", "permissive"])
def test_a_service_that_ends_itself_ends_the_replay(tally: Tally, mode: str) -> None:
    found = replayed(tally.base_dir, RestlessTallyService, mode=mode)
    assert found[-1]["kind"] == "ERROR"
    assert found[-1]["error"] == "AgentTermination: enough"


def test_a_service_that_can_not_start_gives_its_error_at_the_begin(tally: Tally) -> None:
    begin = tally.snapshots[0]
    found = replayed(tally.base_dir, BrokenTallyService, begin_position=begin, mode="permissive")
    assert [(row["kind"], row["log_position"], row["error"]) for row in found] == [
        ("ERROR", begin, "ValueError: this snapshot is of another version")
    ]


class Interrupted(TallyService):
    """Ctrl-C comes in its callbacks."""

    where = "on_start"

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        if self.where == "on_start" and snapshot_image is not None:
            signal.raise_signal(signal.SIGINT)

    def on_number(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
        super().on_number(session, timestamp, payload)
        if self.where == "on_number":
            signal.raise_signal(signal.SIGINT)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(b"another form")


@pytest.mark.parametrize("mode", ["strict", "permissive"])
@pytest.mark.parametrize("where", ["on_start", "on_number"])
def test_ctrl_c_in_a_callback_is_no_error_of_the_service(
    tally: Tally, monkeypatch: pytest.MonkeyPatch, where: str, mode: str
) -> None:
    monkeypatch.setattr(Interrupted, "where", where)
    begin = tally.snapshots[0]
    with pytest.raises(KeyboardInterrupt):
        list(replay(tally.base_dir, Interrupted, begin_position=begin, mode=mode))
    with pytest.raises(KeyboardInterrupt):  # also where a state of the other service is loaded
        list(diff(tally.base_dir, TallyService, Interrupted, begin_position=0, mode=mode))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("it has no text")


def test_an_error_whose_text_can_not_be_made_is_named(tally: Tally) -> None:
    class Failing(TallyService):
        def on_number(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
            raise Unprintable

    class Unmade(TallyService):
        def __init__(self) -> None:
            raise Unprintable

    error = of_kind(replayed(tally.base_dir, Failing), "ERROR")[0]["error"]
    assert error.startswith("Unprintable: <its text could not be made")
    with pytest.raises(ConfigurationError, match="cannot be made: Unprintable"):
        list(replay(tally.base_dir, Unmade))


def test_a_snapshot_that_the_service_does_not_reproduce_shows_in_its_hash(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(3)
    position = tally.take_snapshot(STATE.pack(9, 9))
    found = replayed(tally.finish())
    assert hashes(found) == [(position, hash_of(1, 3), hash_of(9, 9))]


def test_only_what_is_committed_is_replayed(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(1)
    position = tally.take_snapshot()
    tally.number(2)
    path = tally.finish(is_closed=False)
    assert egress(replayed(path, committed="known")) == tally.answers[:1]
    with pytest.raises(ConfigurationError, match=f"end_position={tally.position}: must be from .* to {position}, up"):
        replayed(path, committed="known", end_position=tally.position)
    assert egress(replayed(path, committed=position)) == tally.answers[:1]


def test_a_purged_log_begins_at_its_first_snapshot(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member", start_position=SEGMENT_LENGTH)
    tally.sessions.append(1)
    tally.count, tally.sum = 10, 100
    position = tally.take_snapshot()
    tally.number(5)
    path = tally.finish()
    assert egress(replayed(path)) == tally.answers
    with pytest.raises(ConfigurationError, match=f"begin_position=0: a replay can begin at {position}, where"):
        replayed(path, begin_position=0)


def test_a_purged_log_without_a_snapshot_can_not_be_replayed(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member", start_position=SEGMENT_LENGTH)
    tally.number(5)
    with pytest.raises(ConfigurationError, match="service 0 has no snapshot behind that"):
        replayed(tally.finish())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"begin_position": 32}, "begin_position=32: a replay can begin at 0, "),
        ({"end_position": -1}, "end_position=-1: must be from begin_position=0"),
        ({"hash_positions": [0]}, "hash_positions: 0 is not behind 0 and up to"),
        ({"service_id": 10}, "service_id=10: must be from 0 to 9"),
        ({"mode": "lenient"}, "mode='lenient' is unknown, use one of strict, permissive"),
        ({"service": TallyService()}, "must be a class or a function that makes one, not a service"),
        (
            {"service": "os:environ"},
            "service='os:environ': must be a class or a function that makes one, not a service",
        ),
        ({"service": "tests.replay_services:Tally"}, "tests.replay_services has no Tally"),
        ({"service": lambda: 1 // 0}, "cannot be made: ZeroDivisionError"),
        ({"service": dict}, "is derived from container.ClusteredService, not {}"),
    ],
)
def test_what_can_not_be_replayed_is_refused(tally: Tally, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        replayed(tally.base_dir, **{"service": TALLY, **options})


def test_damage_ends_a_replay_at_its_position(tmp_path: Path) -> None:
    tally = write_tally(tmp_path / "member")
    place, *_ = tally.answers[150]
    tally.world.damage(place, b"\xff\xff\xff\x7f")
    before = [answer for answer in tally.answers if answer[0] <= place]
    found = replayed(tally.base_dir, mode="permissive")
    assert egress(found) == before
    assert found[-1]["kind"] == "ERROR"
    assert f"log position {place}" in found[-1]["error"]
    with pytest.raises(RecordingError, match=f"log position {place}: "):
        replayed(tally.base_dir)


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(3)
    position = tally.take_snapshot()
    tally.number(4)
    path = tally.finish()
    (snapshot,) = (tally.world.archive_dir).glob("1-*.rec")
    snapshot.write_bytes(snapshot.read_bytes()[:96])
    with pytest.raises(RecordingError, match=snapshot.name):
        replayed(path, begin_position=position)
    with pytest.raises(RecordingError, match=snapshot.name):
        replayed(path)
    assert of_kind(replayed(path, mode="permissive"), "ERROR")[0]["error"].startswith("RecordingError: ")


def test_the_close_of_a_session_that_is_not_open_is_a_warning(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.sessions.append(5)
    position = tally.close_session(5)
    tally.open_session(1)
    tally.number(3)
    found = replayed(tally.finish())
    assert [(row["kind"], row["log_position"]) for row in found[:1]] == [("WARNING", position)]
    assert egress(found) == tally.answers


def test_snapshots_that_are_invalid_gone_or_of_another_service_do_not_count(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    for _ in range(2):
        tally.number(3)
        tally.take_snapshot()
    world: World = tally.world
    world.entries[0] = entry(1, 1, log_position=tally.snapshots[0], entry_type=1, service_id=0, is_valid=False)
    world.entries.append(entry(3, 99, log_position=tally.position, entry_type=1, service_id=0))
    world.entries.append(entry(4, 2, log_position=tally.position, entry_type=1, service_id=1))
    segments = plan_replay(open_member(tally.finish()))
    assert [(one.begin_position, one.end_position) for one in segments] == [(0, tally.position)]
    assert [one.log_position for one in segments[0].snapshots] == tally.snapshots[1:]


def test_columns_are_described() -> None:
    assert replay_schema().names == [column.name for column in REPLAY_COLUMNS]
    assert b"SHA-256" in replay_schema().field("state_hash").metadata[b"comment"]
    assert isinstance(make_service(TALLY), TallyService)
    document = (Path(__file__).parents[1] / "docs" / "replay.md").read_text()
    for column in (*REPLAY_COLUMNS, *DIFF_COLUMNS):
        assert f"`{column.name}`" in document


class EndingTallyService(TallyService):
    """Counts how often it is ended, and says goodbye then."""

    ended = 0

    def on_terminate(self, cluster: Cluster) -> None:
        EndingTallyService.ended += 1
        for session in cluster.client_sessions:
            session.send(b"goodbye")


def test_a_replay_that_is_given_up_ends_its_service_and_leaves_no_file_open(tally: Tally) -> None:
    assert of_kind(replayed(tally.base_dir, EndingTallyService), "EGRESS")[-1]["payload"] != b"goodbye"
    ended, files = EndingTallyService.ended, open_files()
    batches = replay_segment(plan_replay(open_member(tally.base_dir))[1], EndingTallyService, batch_rows=10)
    next(batches)
    batches.close()
    assert (EndingTallyService.ended, open_files()) == (ended + 1, files)


def test_flipped_bytes_never_do_more_than_change_rows(tmp_path: Path) -> None:
    tally = write_tally(tmp_path / "member", 60)
    segment = tally.world.segment()
    good = segment.read_bytes()
    rng = random.Random(11)
    for _ in range(400):
        position = rng.randrange(tally.position)
        tally.world.damage(position, bytes([good[position] ^ 1 << rng.randrange(8)]))
        found = replayed(tally.base_dir, mode="permissive")
        assert {row["kind"] for row in found[-1:]} <= {"STATE_HASH", "ERROR"}
        segment.write_bytes(good)
    assert egress(replayed(tally.base_dir)) == tally.answers
