"""Comparisons of two services over the same recorded log: what differs, in which order, and from where on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from container.api import ClientSession
from container.recordings import open_member
from container.replay.diff import DIFF_COLUMNS, diff, diff_batches, diff_schema, diff_segment
from container.replay.execution import plan_replay, replay
from examples.upgraded_counter import Counter as UpgradedCounter
from examples.upgraded_counter import CounterV1
from tests.recordings_world import session_message
from tests.replay_services import (
    FAILING,
    OFFERING,
    TIMING,
    BatchTallyService,
    ForeignTallyService,
    ForgetfulTallyService,
    GenerousTallyService,
    MiscountingTallyService,
    MoodyTallyService,
    TallyService,
    UpgradedTallyService,
)
from tests.replay_world import SERVICE_SESSION, Tally, of_kind, replayed, rows, write_tally


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    return write_tally(tmp_path_factory.mktemp("tally") / "member")


def compared(path: Path, service: Any, other: Any, **options: Any) -> list[dict[str, Any]]:
    return rows(diff(path, service, other, **options))


class LaterTallyService(TallyService):
    """Has its timers later, offers more, and fails where the other does not."""

    def on_number(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
        super().on_number(session, timestamp, payload)
        number = int.from_bytes(payload[:8], "little", signed=True)
        if number == TIMING:
            self.cluster.schedule_timer(self.count, timestamp + 200)
        if number == OFFERING:
            self.cluster.offer(b"once more")
        if number == 40:
            raise ValueError("40 is too much")


class CrosswiseTallyService(TallyService):
    """Answers all clients at a timer, the last one first."""

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        for session in reversed(self.cluster.client_sessions):
            session.send(b"timer %d at %d" % (correlation_id, timestamp))


@pytest.mark.parametrize("other", [TallyService, BatchTallyService, CrosswiseTallyService])
def test_services_that_clients_can_not_tell_apart_do_not_differ(tally: Tally, other: type[TallyService]) -> None:
    assert compared(tally.base_dir, TallyService, other) == []


def compared_simply(path: Path, service: Any, other: Any) -> list[tuple[Any, ...]]:
    """Position, session, occurrence and payloads of answers that differ, by two replays as dicts."""
    names = ("log_position", "cluster_session_id")
    sent: list[dict[tuple[Any, ...], bytes]] = [{}, {}]
    for one, by_place in zip((service, other), sent, strict=True):
        counts: Counter[tuple[Any, ...]] = Counter()
        for row in of_kind(replayed(path, one), "EGRESS"):
            place = tuple(row[name] for name in names)
            by_place[*place, counts[place]] = row["payload"]
            counts[place] += 1
    places = sorted({*sent[0], *sent[1]})
    pairs = [(*place, sent[0].get(place), sent[1].get(place)) for place in places]
    return [pair for pair in pairs if pair[-2] != pair[-1]]


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 50, 65536])
def test_differences_are_found_wherever_they_are(tally: Tally, batch_rows: int) -> None:
    found = compared(tally.base_dir, TallyService, MoodyTallyService, batch_rows=batch_rows)
    names = ("log_position", "cluster_session_id", "occurrence", "payload", "other_payload")
    listed = [tuple(row.get(name) for name in names) for row in of_kind(found, "EGRESS")]
    assert sorted(listed, key=lambda row: row[:3]) == compared_simply(tally.base_dir, TallyService, MoodyTallyService)
    assert [row["log_position"] for row in found] == sorted(row["log_position"] for row in found)
    assert {row["change"] for row in found} == {"CHANGED", "MISSING", "ADDED"}


@pytest.mark.parametrize("batch_rows", [3, 65536])
def test_each_other_answer_is_a_row_with_both_payloads(tally: Tally, batch_rows: int) -> None:
    found = compared(tally.base_dir, TallyService, GenerousTallyService, batch_rows=batch_rows)
    expected = [answer for answer in tally.answers if b" after " in answer[3] and int(answer[3].split()[-1]) >= 10]
    names = ("log_position", "timestamp", "cluster_session_id", "payload", "other_payload")
    assert [tuple(row[name] for name in names) for row in found] == [
        (*answer, answer[3].split()[0] + b"!") for answer in expected
    ]
    assert {(row["kind"], row["change"], row["occurrence"]) for row in found} == {("EGRESS", "CHANGED", 0)}


def test_what_only_one_service_does_is_missing_or_added(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    timing = tally.number(TIMING, SERVICE_SESSION)
    offering = tally.number(OFFERING, SERVICE_SESSION)
    failing = tally.number(40)
    tally.number(FAILING)
    path = tally.finish()
    names = ("log_position", "kind", "change", "occurrence")

    def listed(one: Any, two: Any) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in compared(path, one, two, mode="permissive")]

    assert listed(TallyService, LaterTallyService) == [
        (timing, "SCHEDULE_TIMER", "ADDED", 1),
        (offering, "SERVICE_MESSAGE", "ADDED", 2),
        (failing, "ERROR", "ADDED", 0),
    ]
    assert listed(LaterTallyService, TallyService) == [
        (timing, "SCHEDULE_TIMER", "MISSING", 1),
        (offering, "SERVICE_MESSAGE", "MISSING", 2),
        (failing, "ERROR", "MISSING", 0),
    ]
    # In mode strict the first error ends it, though the other service goes on.
    strict = [(row["log_position"], row["kind"]) for row in compared(path, LaterTallyService, TallyService)]
    assert strict == [(timing, "SCHEDULE_TIMER"), (offering, "SERVICE_MESSAGE"), (failing, "ERROR")]


def test_states_differ_by_their_hashes(tally: Tally) -> None:
    found = compared(tally.base_dir, TallyService, ForgetfulTallyService)
    assert [(row["kind"], row["change"], row["log_position"]) for row in found] == [
        ("STATE_HASH", "CHANGED", position) for position in (*tally.snapshots, tally.position)
    ]
    assert all(row["state_hash"] != row["other_state_hash"] for row in found)


@pytest.mark.parametrize("batch_rows", [1, 65536])
def test_states_of_two_forms_are_compared_by_what_both_can_load(tally: Tally, batch_rows: int) -> None:
    path, options = tally.base_dir, {"batch_rows": batch_rows, "hash_positions": [tally.answers[20][0]]}
    places = sorted([tally.answers[20][0], *tally.snapshots, tally.position])
    assert compared(path, TallyService, UpgradedTallyService, **options) == []
    assert compared(path, UpgradedTallyService, TallyService, **options) == []
    for service, change in ((MiscountingTallyService, "CHANGED"), (ForeignTallyService, "UNKNOWN")):
        found = compared(path, TallyService, service, **options, begin_position=0)
        assert [(row["kind"], row["change"], row["log_position"]) for row in found] == [
            ("STATE_HASH", change, position) for position in places
        ]
        assert all(row["state_difference"] for row in found)
        assert compared(path, TallyService, service, **options, begin_position=0, ignore_state=True) == []


def test_a_state_is_compared_through_its_upgrades(tmp_path: Path) -> None:
    def text(payload: bytes) -> int:
        return log.world.log.append(session_message(1, payload, timestamp=log.now_ms))

    log = Tally(tmp_path / "member")
    log.open_session(1)
    for number in range(20):
        text(b"ada+%d" % number)
    before = text(b"ada+1")
    switch = text(b"use rules 2")
    after = text(b"ada+2")
    log.finish()
    options = {"hash_positions": [before, switch]}
    found = compared(log.base_dir, CounterV1, UpgradedCounter, **options, end_position=before + 96)
    assert [(row["kind"], row["log_position"]) for row in found] == [("EGRESS", switch), ("STATE_HASH", switch)]
    assert "State.rules" not in found[1]["state_difference"]
    assert found[1]["state_difference"].startswith(
        "Counter.rules: 1 in the other as it loads the snapshot of the first, 2"
    )
    assert compared(log.base_dir, CounterV1, UpgradedCounter, end_position=before) == []
    assert compared(log.base_dir, UpgradedCounter, CounterV1, end_position=before) == []
    assert compared(log.base_dir, CounterV1, UpgradedCounter)[1]["log_position"] == after


def test_the_states_of_stored_replays_can_be_left_out(tally: Tally) -> None:
    def stored(service: type[TallyService]) -> Any:
        return iter(list(replay(tally.base_dir, service)))

    found = rows(diff_batches(stored(TallyService), stored(UpgradedTallyService)))
    assert {row["kind"] for row in found} == {"STATE_HASH"}
    assert rows(diff_batches(stored(TallyService), stored(UpgradedTallyService), ignore_state=True)) == []


def test_segments_begin_with_the_recorded_state(tally: Tally) -> None:
    member = open_member(tally.base_dir)
    parts = [
        rows(diff_segment(segment, TallyService, GenerousTallyService)) for segment in reversed(plan_replay(member))
    ]
    assert [row for part in reversed(parts) for row in part] == compared(
        tally.base_dir, TallyService, GenerousTallyService
    )


def test_columns_are_described() -> None:
    assert diff_schema().names == [column.name for column in DIFF_COLUMNS]
