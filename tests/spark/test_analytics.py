"""Analytics: the tables against what was written, and the report."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from container.api import TimeUnit
from container.pipeline.analytics import Analytics, analyse, timer_lateness, write_analytics
from container.pipeline.timeline import BIN_COUNT
from container.recordings import open_member
from container.spark.options import SourceOptions
from container.testing.processes.recordings import write_catalog
from tests.recordings_world import SEGMENT_LENGTH
from tests.spark.written_members import History, WrittenMember


def test_tables_have_what_the_log_has(
    spark: SparkSession, member: WrittenMember, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = analyse(spark, SourceOptions((str(member.base_dir),), mode="permissive"))
    assert caplog.messages == []
    page = write_analytics(found, tmp_path / "out")
    text = page.read_text()
    assert text.count("<svg ") == 2  # one drawing for wide pages, one for narrow ones
    assert "2 terms, led by members 0 and 1: the leader changed once" in text
    assert "<script" not in text
    stored = Analytics(*(spark.read.parquet(str(tmp_path / "out" / name)) for name in Analytics._fields))
    payloads = [len(message["payload"]) for message in member.of_template(1)]

    (minute,) = stored.per_minute.collect()
    assert (minute.client_messages, minute.payload_bytes) == (len(payloads), sum(payloads))
    assert (minute.timers, minute.service_messages) == (len(member.of_template(20)), 0)
    assert (minute.sessions_opened, minute.sessions_closed, minute.open_sessions) == (3, 2, 1)
    assert minute.leadership_changes == 2

    bins = stored.timeline.orderBy("begin").collect()
    times = [message["timestamp"] for message in member.messages]
    assert 50 < len(bins) <= BIN_COUNT + 1
    assert {one.end - one.begin for one in bins} == {timedelta(milliseconds=20)}
    assert sum(one.client_messages for one in bins) == len(payloads)
    assert sum(one.payload_bytes for one in bins) == sum(payloads)
    assert sum(one.timers for one in bins) == minute.timers
    assert [one.open_sessions for one in (bins[0], bins[-1])] == [3, 1]
    for one in bins:
        begin_ms, end_ms = (round(time.timestamp() * 1000) for time in (one.begin, one.end))
        counted = [m for m in member.of_template(1) if begin_ms <= m["timestamp"] < end_ms]
        assert (begin_ms % 20, one.client_messages) == (0, len(counted))
    assert max(times) - min(times) == (bins[-1].last_message - bins[0].first_message) / timedelta(milliseconds=1)

    taken = {row.log_position for row in stored.snapshots.collect()}
    assert taken == {m["log_position"] for m in member.of_template(23)}
    assert (stored.damage.count(), stored.members.collect()[0].path) == (0, str(member.base_dir))

    sessions = {row.cluster_session_id: row for row in stored.per_session.collect()}
    for session_id, session in sessions.items():
        own = [m for m in member.of_template(1) if m["cluster_session_id"] == session_id]
        assert (session.messages, session.payload_bytes) == (len(own), sum(len(m["payload"]) for m in own))
    assert [sessions[number].close_reason for number in (1, 2, 3)] == ["CLIENT_ACTION", "TIMEOUT", None]
    opened, *_, closed = [m["timestamp"] for m in member.messages if m.get("cluster_session_id") == 2]
    assert sessions[2].duration_s == (closed - opened) / 1000

    sizes = {row.bytes_up_to: row.client_messages for row in stored.sizes.collect()}
    assert sizes == {
        bound: len([size for size in payloads if below < size <= bound])
        for below, bound in ((0, 32), (32, 64), (64, 128), (4096, 16_384))
    }

    expired = {m["correlation_id"]: m["timestamp"] for m in member.of_template(20)}
    timers = stored.timers.collect()
    assert len(timers) == 2
    assert all(timer.late_ms == expired[timer.correlation_id] - timer.deadline > 0 for timer in timers)

    median, most = sorted(timer.late_ms for timer in timers)
    assert f"Timer lateness: median {median:g} ms, at most {most:g} ms, of 2 timers" in text

    terms = stored.leadership.orderBy("leadership_term_id").collect()
    assert [(term.leader_member_id, term.messages) for term in terms] == [
        (leader, len([m for m in member.messages if m["leadership_term_id"] == leader]) - 1) for leader in (0, 1)
    ]


def test_damage_that_analytics_leave_out_is_a_warning(
    spark: SparkSession, member: WrittenMember, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = Path(shutil.copytree(member.base_dir, tmp_path / "damaged"))
    segment = damaged / "archive" / f"0-{SEGMENT_LENGTH}.rec"
    os.truncate(segment, 0)
    with caplog.at_level(logging.WARNING):
        found = analyse(spark, SourceOptions((str(damaged),), mode="permissive"))
    (text,) = [text for text in caplog.messages if "damaged" in text.partition(";")[0]]
    place = f"{segment}, offset 0, log position {SEGMENT_LENGTH}: the file ends before byte 1"
    assert text.startswith(f"the log is damaged in 1 places, which are left out; first: {place}")
    assert [row.log_position for row in found.damage.collect()] == [SEGMENT_LENGTH]
    page = write_analytics(found, tmp_path / "out").read_text()
    assert "1 place of the log is damaged and left out." in page
    assert page.count(f'<td class="long">{place.partition(": ")[0]}') == 1
    assert page.count('<path class="damage"') == 4  # in the legend and in its lane, of both drawings


def test_sessions_of_a_purged_part_of_the_log_are_open_where_it_begins(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    purged = Path(shutil.copytree(member.base_dir, tmp_path / "purged"))
    (purged / "archive" / "0-0.rec").unlink()
    descriptor, *others = open_member(purged).recordings()
    begun = {name: getattr(descriptor, name) for name in descriptor.__slots__} | {"start_position": SEGMENT_LENGTH}
    write_catalog(purged / "archive", [type(descriptor)(**begun), *others])
    found = analyse(spark, SourceOptions((str(purged),)))
    bins = found.timeline.orderBy("begin").collect()
    assert [one.open_sessions for one in (bins[0], bins[-1])] == [3, 1]
    assert found.per_minute.collect()[0].open_sessions == 1


def test_a_session_that_is_silent_in_the_rest_of_a_purged_log_is_open_by_a_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(tmp_path / "purged")
    history.begin_term()
    for session_id in (1, 2):
        history.open_session(session_id)
    while history.position < SEGMENT_LENGTH + 3000:
        history.message(1, bytes(7000))
    history.take_snapshot((1, 2))
    purged = history.finish().base_dir
    (purged / "archive" / "0-0.rec").unlink()
    descriptor, *others = open_member(purged).recordings()
    write_catalog(purged / "archive", [replace(descriptor, start_position=SEGMENT_LENGTH), *others])
    (minute,) = analyse(spark, SourceOptions((str(purged),))).per_minute.collect()
    assert minute.open_sessions == 2


@pytest.mark.slow
def test_logs_of_one_message_and_of_none_have_a_report(spark: SparkSession, tmp_path: Path) -> None:
    one, none = (History(tmp_path / name) for name in ("one", "none"))
    one.begin_term(leader_member_id=2)
    found = analyse(spark, SourceOptions((str(one.finish().base_dir),)))
    page = write_analytics(found, tmp_path / "one-out").read_text()
    assert "1 term, led by member 2: the leader did not change." in page
    (only,) = found.timeline.collect()
    assert (only.end - only.begin, only.leadership_changes) == (timedelta(seconds=1), 1)
    found = analyse(spark, SourceOptions((str(none.finish(is_closed=False).base_dir),)))
    page = write_analytics(found, tmp_path / "none-out").read_text()
    assert "The log has no message with a time." in page
    assert "<svg" not in page


def test_lateness_is_a_number_however_late_a_timer_is(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    history.now_ms = 1_700_000_000_000_000_000
    # Due at once, of a clock in nanoseconds; the second one is later than a number of 64 bits can say.
    history.take_snapshot(timers=[(5, 0), (6, 1 - 2**63)])
    history.timer(5)
    history.timer(6)
    options = SourceOptions((str(history.finish().base_dir),), mode="permissive")
    row, other = timer_lateness(spark, options, TimeUnit.NANOS).collect()
    assert row.late_ms == row.expired_at / 1_000_000
    assert other.late_ms == (2**63 - 1) / 1_000_000
