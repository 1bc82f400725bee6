"""Random histories of clusters in Spark: ingest and audit agree with a plain reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.histories import kills, spark_checks


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 6])
def test_ingest_and_audit_agree_on_a_random_history(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    spark_checks.run(spark, seed, tmp_path / "history")


@pytest.mark.slow
def test_all_in_spark_agrees_under_kills(tmp_path: Path) -> None:
    """Driver and Python workers; ``./run histories --kills-every`` has executors, too."""
    found = kills.run(4, tmp_path / "history", kills.LOCAL)
    assert found.starts > 1, "the driver was killed"
    assert found.counts[kills.DRIVER] == 1
