"""A program that ingests a member into a table of a format, and kills itself with SIGKILL at one place when asked to.

Its arguments: a JSON object with path, table, format, state_dir, warehouse, partition_by and kill. The last is null, or
the number of a batch and ``before`` or ``after``: of its commit, which the manifest does not have yet.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from container.pipeline.delta_table import DeltaWriter
from container.pipeline.iceberg_table import IcebergWriter
from container.pipeline.ingest import ingest
from container.spark import open_session
from container.spark.options import SourceOptions
from container.spark.table_formats import table_format_settings
from container.spark.versions import IS_4_1

FEW_TASKS = {
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.showConsoleProgress": "false",
}


def kill_at(batch_id: int, when: str) -> None:
    """Let this process die of SIGKILL before or after the commit of a batch."""

    def around(commit: Callable[..., None], batch_of: Callable[..., int]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            is_it = batch_of(*arguments) == batch_id
            if is_it and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            commit(*arguments)
            if is_it:
                os.kill(os.getpid(), signal.SIGKILL)

        return run

    of_delta = around(DeltaWriter.bring_in, lambda _self, batch: batch.batch_id)
    of_iceberg = around(IcebergWriter._append, lambda _self, _rows, number: number)
    setattr(DeltaWriter, "bring_in", of_delta)  # noqa: B010
    setattr(IcebergWriter, "_append", of_iceberg)  # noqa: B010


def main(text: str) -> None:
    """Run one ingest, and print its manifest's counts and what the table itself has."""
    given = json.loads(text)
    table_format, warehouse = given["format"], given["warehouse"]
    if given["kill"] is not None:
        kill_at(*given["kill"])
    jars = given["jars"]
    settings = table_format_settings(jars, warehouse=Path(warehouse)) if jars else {}
    spark = open_session("ingest", master="local[2]", settings={**FEW_TASKS, **settings})
    manifest = ingest(
        spark,
        SourceOptions((given["path"],), max_bytes_per_batch=None if IS_4_1 else 32_768),
        given["table"],
        table_format=table_format,
        partition_by=given["partition_by"],
        state_dir=Path(given["state_dir"]) if table_format == "iceberg" else None,
        cluster="main: 1",
    )
    name = given["table"] if table_format == "iceberg" else f"delta.`{given['table']}`"
    found: dict[str, Any] = {"batch_id": manifest.batch_id, "row_count": manifest.row_count}
    if jars:
        rows = spark.table(name)
        found["positions"] = sorted(row.log_position for row in rows.select("log_position").collect())
        found["hours"] = sorted({f"{row.date} {row.hour}" for row in rows.select("date", "hour").distinct().collect()})
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
