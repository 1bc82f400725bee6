"""What the test of Spark Connect runs as a program of its own: a session of a server, which has no JVM here.

Arguments: the server's URL, a member's directory, and one for the stream. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from container.errors import ConfigurationError
from container.pipeline.analytics import analyse
from container.pipeline.ingest import ingest
from container.pipeline.rows import core_count
from container.spark import FORMAT, open_session
from container.spark.options import SourceOptions


def run(spark: SparkSession, member: str, directory: Path) -> dict[str, Any]:
    """Everything that a session does; the results are those of one with a JVM."""
    query = (
        spark.readStream.format(FORMAT)
        .load(member)
        .writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120), "the stream has not ended after 120 s"
    spark.sql(f"CREATE TABLE timers USING {FORMAT} OPTIONS (view 'timers', path '{member}')")
    options = SourceOptions((member,))
    try:
        ingest(spark, options, directory / "table")
        refused = ""
    except ConfigurationError as error:
        refused = str(error)
    return {
        "session": type(spark).__module__,
        "batch": spark.read.format(FORMAT).load(member).count(),
        "stream": spark.read.parquet(str(directory / "rows")).count(),
        "table": spark.read.table("timers").count(),
        "cores": core_count(spark),
        "analytics": analyse(spark, options).timers.count(),
        "ingest": refused,
    }


if __name__ == "__main__":
    session = open_session(master=sys.argv[1])
    try:
        print(json.dumps(run(session, sys.argv[2], Path(sys.argv[3]))))
    finally:
        session.stop()
