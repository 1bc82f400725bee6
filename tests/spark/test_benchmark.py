"""The benchmarks that need Spark, tiny: all comes through, and each way says what it took."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import _harness, recorded_logs, recorded_snapshots, spark_source
from benchmarks._harness import Report
from benchmarks._logs import MIB, written_log


@pytest.mark.slow
def test_the_source_is_compared_with_ready_made_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    spark.dataSource.register(spark_source.ReadySource)
    report = Report("spark_source", {})
    with written_log(8 * MIB, payload_length=96, segment_length=4 * MIB, directory=tmp_path) as log:
        spark_source.compare(spark, log, "session_messages", argparse.Namespace(rounds=1, seed=1), report)
    (row,) = report.finish().as_json()["rows"].values()
    assert set(row) == {"source", "ready 65536", "ready 16384"}
    assert min(result[name] for result in row.values() for name in ("m_rows_s", "cpu_us_per_row", "peak_mib")) > 0
    assert set(report.failures) == set(row)


@pytest.mark.slow
def test_audit_replay_and_diff_of_long_logs_are_measured(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    options = argparse.Namespace(rounds=1, seed=1, gib=[4 / 1024, 8 / 1024], payload=96, segment_mib=4, snapshot_mib=2)
    report = recorded_logs.compare(spark, tmp_path, options)
    rows = report.finish().as_json()["rows"]
    assert set(rows) == {"Spark's own scan", "session_messages", "audit of 2 members", "replay", "diff"}
    for row in rows.values():
        assert set(row) == {"0.00390625 GiB", "0.0078125 GiB"}
        assert min(result[name] for result in row.values() for name in recorded_logs.METRICS) > 0
    assert not any(report.failures.values())


@pytest.mark.slow
def test_views_replays_and_audits_of_many_snapshots_are_measured(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    report = recorded_snapshots.compare(spark, tmp_path, [3, 5], 1, 1)
    rows = report.finish().as_json()["rows"]
    ways = {"view", "plan of a replay", "Spark's own scan", "view in Spark", "replay in Spark", "audit in Spark"}
    assert set(rows) == ways
    for row in rows.values():
        assert set(row) == {"3", "5"}
        assert min(result[name] for result in row.values() for name in recorded_snapshots.METRICS) > 0
    assert not any(report.failures.values())
