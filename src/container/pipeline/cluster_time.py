"""Cluster time in Spark: the unit of a cluster's timestamps, and timestamps as times and dates."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f

from container.api import TimeUnit
from container.recordings import Filters, Member, plan, read_partition

_NEW_TERM_TEMPLATE_ID = 24


def time_unit(members: Sequence[Member]) -> TimeUnit:
    """The unit of a cluster's time: by a member's latest snapshots, else by the first term in a log.

    Milliseconds, Aeron's default, when nothing says it.
    """
    for member in members:
        found = _first(member, "snapshots", Filters()) or _first(
            member, "messages", Filters(template_ids=frozenset([_NEW_TERM_TEMPLATE_ID]))
        )
        if found is not None:
            return TimeUnit[found]
    return TimeUnit.MILLIS


def _first(member: Member, view: str, filters: Filters) -> str | None:
    for partition in plan([member], view, filters=filters, mode="permissive"):
        for batch in read_partition(partition, filters=filters, batch_rows=1, columns=["time_unit"]):
            for value in batch.column(0).to_pylist():
                if value is not None:
                    return str(value)
    return None


def as_time(timestamp: Column, unit: TimeUnit) -> Column:
    """A timestamp of the cluster as Spark's, which has microseconds."""
    if unit is TimeUnit.MILLIS:
        return f.timestamp_millis(timestamp)
    if unit is TimeUnit.MICROS:
        return f.timestamp_micros(timestamp)
    return f.timestamp_micros(f.floor(timestamp / f.lit(1000)).cast("bigint"))


def ticks_per_second(unit: TimeUnit) -> int:
    """How many units of cluster time a second has."""
    return {TimeUnit.MILLIS: 1_000, TimeUnit.MICROS: 1_000_000, TimeUnit.NANOS: 1_000_000_000}[unit]
