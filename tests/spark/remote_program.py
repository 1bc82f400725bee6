"""What the test of workers that do not see a member's disk runs as a program of its own: reads of a URL.

Arguments: Spark's master, the URL, and the storage options as JSON. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from container.spark import FORMAT, open_session
from tests.spark.standalone_program import SETTINGS, directories


def run(spark: SparkSession, url: str, storage_options: str) -> dict[str, Any]:
    """What the workers read, and where those ran that did."""
    options = {"path": url, "storage_options": storage_options}
    messages = spark.read.format(FORMAT).options(**options).load().where("error is null")
    where = messages.select("log_position").mapInArrow(directories, "directory string, pid long").distinct().collect()
    return {
        "directories": sorted({row.directory for row in where}),
        "rows": sorted([row.log_position, row.template_id] for row in messages.collect()),
        "snapshots": spark.read.format(FORMAT).options(view="snapshots", **options).load().count(),
    }


if __name__ == "__main__":
    session = open_session("remote", master=sys.argv[1], settings=SETTINGS)
    try:
        print(json.dumps(run(session, *sys.argv[2:])))
    finally:
        session.stop()
