"""What the test of a Spark cluster runs as a program of its own: a read, an ingest and a replay on the cluster.

Arguments: Spark's master, a member's directory, and a directory for the tables. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from container.pipeline.ingest import ingest, read_table
from container.pipeline.replay import diff, replay, summarise_diff, summarise_replay
from container.spark import FORMAT, open_session
from container.spark.options import SourceOptions
from tests.replay_world import GENEROUS, TALLY

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # Begin when both workers have their executor.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def directories(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where the executor runs that has a partition: a worker's own directory."""
    for batch in batches:
        here = str(Path.cwd().parents[1])
        yield pa.RecordBatch.from_pydict({"directory": [here] * batch.num_rows, "pid": [os.getpid()] * batch.num_rows})


def run(spark: SparkSession, member: Path, tables: Path) -> dict[str, Any]:
    """Everything; the results are those that local mode has, too."""
    options = SourceOptions((str(member),))
    source = spark.read.format(FORMAT).option("view", "session_messages").load(str(member))
    where = source.select("log_position").mapInArrow(directories, "directory string, pid long").distinct().collect()
    manifest = ingest(spark, options, tables / "ingest", cluster="main")
    replayed = tables / "replay"
    replay(spark, options, TALLY).write.parquet(str(replayed))
    rows = spark.read.parquet(str(replayed))
    compared = diff(spark, options, TALLY, GENEROUS)
    return {
        "directories": sorted({row.directory for row in where}),
        "session_messages": source.where("error is null").count(),
        "ingested": read_table(spark, tables / "ingest").count(),
        "manifest": manifest.row_count,
        "replay": summarise_replay(rows)._asdict(),
        "egress": sorted([row.log_position, bytes(row.payload).decode()] for row in rows.collect() if row.payload),
        "first_difference": summarise_diff(compared).first_answer,
    }


if __name__ == "__main__":
    session = open_session("standalone", master=sys.argv[1], settings=SETTINGS)
    try:
        print(json.dumps(run(session, Path(sys.argv[2]), Path(sys.argv[3]))))
    finally:
        session.stop()
