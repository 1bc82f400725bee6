"""The program killed over a random history: a stream, an ingest, a batch, a replay and an audit, one after the other.

Arguments: Spark's master, a directory for what it writes, and the directories of the members. It may be started again
after any end; stream and ingest then continue from their checkpoints. The last thing it writes is ``result.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from container.pipeline.audit import audit
from container.pipeline.ingest import ingest
from container.pipeline.replay import replay
from container.spark import FORMAT, open_session
from container.spark.options import SourceOptions
from tests.histories.kills import PHASES, RESULT, STARTED, TABLE, describe

BYTES_PER_BATCH = 20_000
SERVICE = "tests.replay_services:TallyService"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
}


def rows_of(frame: DataFrame) -> list[list[Any]]:
    """Rows as the other side has them: see :func:`~tests.histories.kills.describe`."""
    names = ["member_id", "log_position", "timestamp", "cluster_session_id", "payload"]
    return sorted(describe(*row) for row in frame.select(names).collect())


def stream(spark: SparkSession, options: SourceOptions, directory: Path) -> DataFrame:
    """The rows that a stream into Parquet files has written, from its checkpoint on."""
    rows = (
        spark.readStream.format(FORMAT)
        .options(member="all", max_bytes_per_batch=BYTES_PER_BATCH)
        .load(json.dumps(options.paths))
    )
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    query = writer.start(str(directory / "rows"), checkpointLocation=str(directory / "checkpoint"))
    query.awaitTermination()
    return spark.read.schema(rows.schema).parquet(str(directory / "rows"))


def run(spark: SparkSession, directory: Path, paths: tuple[str, ...]) -> dict[str, Any]:
    """Everything; each phase says that it begins."""
    options = SourceOptions(paths, member="all", max_bytes_per_batch=BYTES_PER_BATCH)

    def begin(phase: str) -> None:
        (directory / f"{STARTED}-{phase}").touch()

    found: dict[str, Any] = {}
    for phase in PHASES:
        begin(phase)
        if phase == "stream":
            found[phase] = rows_of(stream(spark, options, directory / "stream"))
        elif phase == "ingest":
            found["row_count"] = ingest(spark, options, directory / TABLE, cluster="main").row_count
            if found["row_count"]:
                found[phase] = rows_of(spark.read.parquet(str(directory / TABLE)))
        elif phase == "batch":
            found[phase] = rows_of(
                spark.read.format(FORMAT)
                .options(member="all", committed_only="true")
                .load(list(options.paths))
                .repartition(4)
            )
        elif phase == "replay":
            rows = replay(spark, SourceOptions(paths), SERVICE).collect()
            found[phase] = sorted(
                [row.log_position, row.cluster_session_id, bytes(row.payload).hex()]
                for row in rows
                if row.kind == "EGRESS"
            )
            found["replay_errors"] = [row.error for row in rows if row.kind in ("ERROR", "WARNING")]
        else:
            found[phase] = audit(spark, SourceOptions(paths)).verdict
    return found


if __name__ == "__main__":
    master, directory, *members = sys.argv[1:]
    session = open_session("histories", master=master, settings=SETTINGS)
    try:
        content = json.dumps(run(session, Path(directory), tuple(members)))
        Path(directory, RESULT).write_text(content)
    finally:
        session.stop()
