"""Analytics: the tables against what was written, and the report."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from container.pipeline.analytics import Analytics, analyse, write_analytics
from container.spark.options import SourceOptions
from tests.recordings_world import SEGMENT_LENGTH
from tests.spark.written_members import WrittenMember


def test_tables_have_what_the_log_has(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    page = write_analytics(analyse(spark, SourceOptions((str(member.base_dir),))), tmp_path / "out")
    assert page.read_text().count('src="data:image/png;base64,') == 2
    stored = Analytics(*(spark.read.parquet(str(tmp_path / "out" / name)) for name in Analytics._fields))
    payloads = [len(message["payload"]) for message in member.of_template(1)]

    (minute,) = stored.per_minute.collect()
    assert (minute.client_messages, minute.payload_bytes) == (len(payloads), sum(payloads))
    assert (minute.timers, minute.service_messages) == (len(member.of_template(20)), 0)
    assert (minute.sessions_opened, minute.sessions_closed, minute.open_sessions) == (3, 2, 1)
    assert minute.leadership_changes == 2

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
        analyse(spark, SourceOptions((str(damaged),), mode="permissive"))
    (text,) = [text for text in caplog.messages if "damaged" in text.partition(";")[0]]
    place = f"{segment}, offset 0, log position {SEGMENT_LENGTH}: the file ends before byte 1"
    assert text.startswith(f"the log is damaged in 1 places, which are left out; first: {place}")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        analyse(spark, SourceOptions((str(member.base_dir),), mode="permissive"))
    assert caplog.messages == []
