"""Random histories of clusters in Spark: ingest and audit agree with a plain reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.histories import spark_checks


@pytest.mark.parametrize("seed", [4, 6])
def test_ingest_and_audit_agree_on_a_random_history(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    spark_checks.run(spark, seed, tmp_path / "history")
