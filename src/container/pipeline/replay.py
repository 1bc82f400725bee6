"""Replays of a service over recorded history on Spark's executors, and comparisons of two services, as tables.

The log is cut at its snapshots. In each segment the container's own agent runs the service from the recorded state on;
so segments run in parallel, one or several to a partition, and no row passes through the driver.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from container.replay.diff import COMPARED, KEY, SHOWN, UNKNOWN, diff_schema, diff_segment
from container.replay.execution import (
    ERROR_KIND,
    STATE_HASH_KIND,
    ReplaySegment,
    ServiceSource,
    find_service,
    plan_replay,
    replay_schema,
    replay_segment,
)
from container.spark.options import SourceOptions
from container.spark.source import furthest_log, spark_schema

PARTITIONS_MAX = 128
"""Maximum number of partitions of a replay: a log with thousands of snapshots does not need as many tasks."""

_PLACE = ("log_position", *KEY)


def replay(spark: SparkSession, options: SourceOptions, service: ServiceSource, **plan: Any) -> DataFrame:
    """Run a service over a member's recorded log: a row for each message that it sends, each timer, and each state
    hash.

    Args:
        spark: a session; its executors must see the member's files, and have the service's module.
        options: where the member is, with ``mode`` and ``batch_rows`` as
            :func:`~container.replay.execution.replay_segment` takes them. If there are several members, it takes the
            one whose log is known to be committed the furthest.
        service: a class, a function without arguments, or ``package.module:Name`` of either.
        plan: the arguments of :func:`~container.replay.execution.plan_replay`, such as ``begin_position`` and
            ``is_continuous``.

    Returns:
        a table with the columns of :data:`~container.replay.execution.REPLAY_COLUMNS`, in partitions in the order of
        the log. It is computed, and the service run, each time that it is used: write it first.

    Raises:
        ConfigurationError: the service cannot be found, or an argument is wrong.
        RecordingError: the member has no log that can be found. Damage further on fails the query, in mode strict.
    """
    _check_service(service)
    mode, batch_rows = options.mode, options.batch_rows

    def run(segment: ReplaySegment) -> Iterator[pa.RecordBatch]:
        return replay_segment(segment, service, mode=mode, batch_rows=batch_rows)

    return _in_parallel(spark, plan_replay(furthest_log(options).member, **plan), run, replay_schema())


def diff(
    spark: SparkSession,
    options: SourceOptions,
    service: ServiceSource,
    other: ServiceSource,
    *,
    ignore_state: bool = False,
    **plan: Any,
) -> DataFrame:
    """Run two services over a member's recorded log: a row for each action in which they differ.

    In each segment both start from the recorded state, so that what differs does not add up; the hashes at its end show
    whether the states differ. With ``is_continuous`` each keeps its own state, in one partition. With ``ignore_state``
    only what they do is compared.

    Other arguments and errors are those of :func:`replay`; the table has the columns of
    :data:`~container.replay.diff.DIFF_COLUMNS`.
    """
    _check_service(service)
    _check_service(other)
    mode, batch_rows = options.mode, options.batch_rows

    def run(segment: ReplaySegment) -> Iterator[pa.RecordBatch]:
        return diff_segment(segment, service, other, mode=mode, batch_rows=batch_rows, ignore_state=ignore_state)

    return _in_parallel(spark, plan_replay(furthest_log(options).member, **plan), run, diff_schema())


def diff_tables(rows: DataFrame, other_rows: DataFrame) -> DataFrame:
    """Compare two replays of the same part of a log that were stored, such as those of two releases of a package.

    No process can have both releases at once, so each is replayed by itself, in its own environment. The result has
    the columns of :data:`~container.replay.diff.DIFF_COLUMNS`, in no order.
    """
    joined = (
        _with_occurrence(rows)
        .alias("one")
        .join(
            _with_occurrence(other_rows).alias("two"), [_equal(name) for name in (*_PLACE, "occurrence")], "full_outer"
        )
    )
    is_missing, is_added = f.col("two.sequence").isNull(), f.col("one.sequence").isNull()
    change = f.when(is_missing, "MISSING").when(is_added, "ADDED").otherwise("CHANGED")
    columns = {name: f.coalesce(f"one.{name}", f"two.{name}") for name in (*_PLACE, "timestamp", "occurrence")}
    columns |= {"change": change} | {name: f.col(f"one.{name}") for name in SHOWN}
    columns |= {f"other_{name}": f.col(f"two.{name}") for name in SHOWN}
    columns["state_difference"] = f.lit(None).cast("string")
    return joined.where(is_missing | is_added | ~reduce(and_, map(_equal, COMPARED))).select(
        [columns[field.name].alias(field.name, metadata=field.metadata) for field in spark_schema(diff_schema())]
    )


def _equal(name: str) -> Column:
    return f.col(f"one.{name}").eqNullSafe(f.col(f"two.{name}"))


def _with_occurrence(rows: DataFrame) -> DataFrame:
    """Number the rows of the same kind, for the same client or timer, at the same log position."""
    of_place = Window.partitionBy(*_PLACE).orderBy("sequence")
    return rows.withColumn("occurrence", f.row_number().over(of_place) - 1)


def _check_service(service: ServiceSource) -> None:
    if isinstance(service, str):
        find_service(service)  # now: a mistake is reported immediately, not by a failed task


def _in_parallel(
    spark: SparkSession,
    segments: Sequence[ReplaySegment],
    run: Callable[[ReplaySegment], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """At most ``PARTITIONS_MAX`` partitions of segments that follow each other; each gets its own segments alone."""
    size = -(-len(segments) // PARTITIONS_MAX)
    parts = [pickle.dumps(segments[first : first + size]) for first in range(0, len(segments), size)]

    def run_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for segment in pickle.loads(parts[index]):
                    yield from run(segment)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(run_all, spark_schema(schema))


class ReplaySummary(NamedTuple):
    """The totals of a replay."""

    row_counts: dict[str, int]
    """The number of rows of each kind."""
    compared_count: int
    """State hashes at positions where a snapshot is recorded."""
    differing_count: int
    """The state hashes that differ from that of the recorded snapshot."""
    first_difference: int | None
    """The log position of the first of these."""
    first_error: int | None
    """The log position of the first error of the service."""


def summarise_replay(rows: DataFrame) -> ReplaySummary:
    """Count the rows of a replay. Use a table that was stored: counting runs the service again otherwise."""
    is_compared = f.col("recorded_state_hash").isNotNull()
    differs = is_compared & (f.col("state_hash") != f.col("recorded_state_hash"))
    found = {
        row.kind: row
        for row in rows.groupBy("kind")
        .agg(
            f.count("*").alias("rows"),
            f.count_if(is_compared).alias("compared"),
            f.count_if(differs).alias("differing"),
            f.min(f.when(differs, f.col("log_position"))).alias("first_difference"),
            f.min("log_position").alias("first"),
        )
        .collect()
    }
    hashes, errors = found.get(STATE_HASH_KIND), found.get(ERROR_KIND)
    return ReplaySummary(
        {kind: found[kind].rows for kind in sorted(found)},
        hashes.compared if hashes else 0,
        hashes.differing if hashes else 0,
        hashes.first_difference if hashes else None,
        errors.first if errors else None,
    )


class DiffSummary(NamedTuple):
    """The totals of a comparison."""

    counts: dict[tuple[str, str], int]
    """The number of rows of each kind and change."""
    first_answer: int | None
    """The log position of the first difference between the services' actions."""
    first_state: int | None
    """The log position of the first state that differs."""
    first_unknown: int | None
    """The log position of the first states that cannot be compared."""


def summarise_diff(rows: DataFrame) -> DiffSummary:
    """Count the rows of a comparison. Use a table that was stored."""
    found = rows.groupBy("kind", "change").agg(f.count("*").alias("rows"), f.min("log_position").alias("first"))
    collected = sorted(found.collect())
    answers = [row.first for row in collected if row.kind != STATE_HASH_KIND]
    states = [row.first for row in collected if row.kind == STATE_HASH_KIND and row.change != UNKNOWN]
    unknown = [row.first for row in collected if row.change == UNKNOWN]
    return DiffSummary(
        {(row.kind, row.change): row.rows for row in collected},
        min(answers, default=None),
        min(states, default=None),
        min(unknown, default=None),
    )
