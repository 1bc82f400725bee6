"""Reads views for the pipelines, with the options that a user gave for the source."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from container.recordings import LOG_VIEWS
from container.spark.options import SourceOptions
from container.spark.session import is_connected
from container.spark.source import FORMAT, ClusterDataSource, spark_schema

_RANGE_LENGTH = 100_000
type Fold = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def read_view(spark: SparkSession, options: SourceOptions, view: str, columns: Sequence[str] = ()) -> DataFrame:
    """A view as a table: that of the members that the options name, all columns or some of them.

    Name the columns: Spark asks a Python source for all that it has, whatever a query uses.
    """
    return spark.read.format(FORMAT).options(**_chosen(options, view, columns)).load()


def fold_view(
    spark: SparkSession, options: SourceOptions, view: str, columns: Sequence[str], fold: Fold, made: pa.Schema
) -> DataFrame:
    """Apply a function to each partition of a view where it is read: the rows do not go through Spark.

    The function gets the batches of a partition, with these columns, and yields batches of the schema ``made``.
    """
    source = ClusterDataSource(_chosen(options, view, columns))
    reader = source.reader(source.schema())
    tasks = [(pickle.dumps(partition),) for partition in reader.partitions()]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from fold(reader.read(pickle.loads(task)))

    return distributed(spark, tasks, "partition binary").mapInArrow(run, spark_schema(made))


def distributed(spark: SparkSession, rows: Sequence[Any], schema: str) -> DataFrame:
    """A table of tasks, one for each partition, as far as that makes sense."""
    frame = spark.createDataFrame(rows, schema)
    return frame.repartition(max(1, min(len(rows), task_count(spark))))


def task_count(spark: SparkSession) -> int:
    """How many tasks at most are worth it for even work on all cores."""
    return 16 * core_count(spark)


def core_count(spark: SparkSession) -> int:
    """How many tasks run at a time, as Spark takes it for its default."""
    if is_connected(spark):
        # Without a JVM here: a range is divided into so many partitions.
        places = spark.range(_RANGE_LENGTH).select(f.spark_partition_id().alias("place"))
        return places.distinct().count()
    return spark.sparkContext.defaultParallelism


def _chosen(options: SourceOptions, view: str, columns: Sequence[str]) -> dict[str, str]:
    is_log = view in LOG_VIEWS
    return source_options(
        structs.replace(
            options,
            view=view,
            columns=tuple(columns),
            committed_only=options.committed_only and is_log,
            decoder=None,
            starting=options.starting if is_log else None,
            ending=options.ending if is_log else None,
        )
    )


def total_of(rows: DataFrame, listed: Sequence[object], limit: int) -> int:
    """How many rows there are, of which the first, up to the limit, are listed."""
    return len(listed) if len(listed) < limit else rows.count()


def source_options(options: SourceOptions) -> dict[str, str]:
    """The options as Spark takes them, the opposite of :func:`~container.spark.options.parse_options`."""
    texts = {
        "path": json.dumps(options.paths),
        "member": str(options.member),
        "view": options.view,
        "mode": options.mode,
        "committed_only": str(options.committed_only).lower(),
        "batch_rows": str(options.batch_rows),
    }
    if options.archive_dirs:
        texts["archive_dir"] = json.dumps(options.archive_dirs)
    if options.storage is not None:
        texts["storage_options"] = options.storage.text
    if options.committed is not None:
        texts["committed"] = str(options.committed)
    if options.decoder is not None:
        texts["decoder"] = options.decoder
    if options.columns:
        texts["columns"] = ",".join(options.columns)
    for name in ("max_bytes_per_batch", "max_rows_per_batch"):
        if getattr(options, name) is not None:
            texts[name] = str(getattr(options, name))
    for bound in (options.starting, options.ending):
        if bound is not None:
            texts[bound.name] = bound.text
    return texts
