"""The benchmark of the source, tiny: both sources give the same rows, and each says what it took."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import _harness, spark_source
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
