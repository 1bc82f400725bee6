"""Cluster time in Spark: the unit of a cluster's timestamps, and timestamps as times and dates."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f

from container.api import TimeUnit
from container.recordings import Member
from container.recordings.arrow import TICKS_PER_SECOND
from container.recordings.cluster_time import DEFAULT_TIME_UNIT, known_time_unit

_DAY_S, _MICROS_PER_SECOND = 86_400, 1_000_000
# Days from 1970 to the first of the year 1, and to the first of the year 10000.
_FIRST_DAY, _END_DAY = -719_162, 2_932_897


def time_unit(members: Sequence[Member]) -> TimeUnit:
    """The unit of a cluster's time, by the first of its members whose files say it; else Aeron's default."""
    return TimeUnit[next(filter(None, map(known_time_unit, members)), DEFAULT_TIME_UNIT)]


def as_time(timestamp: Column, unit: TimeUnit) -> Column:
    """A timestamp of the cluster as Spark's, which has microseconds; null outside the years 1 to 9999."""
    if unit is TimeUnit.MILLIS:
        time = f.timestamp_millis(timestamp)
    elif unit is TimeUnit.MICROS:
        time = f.timestamp_micros(timestamp)
    else:
        time = f.timestamp_micros(_floor_divided(timestamp, 1000))
    return f.when(_has_date(timestamp, unit), time)


def as_date(time: Column) -> Column:
    """The date of a time in UTC, whatever the session's time zone."""
    return f.date_from_unix_date(_floor_divided(f.unix_micros(time), _DAY_S * _MICROS_PER_SECOND).cast("int"))


def as_hour(time: Column) -> Column:
    """The hour of a time in UTC, 0 to 23, whatever the session's time zone."""
    return f.pmod(_floor_divided(f.unix_micros(time), 3600 * _MICROS_PER_SECOND), f.lit(24)).cast("int")


def _has_date(timestamp: Column, unit: TimeUnit) -> Column:
    """Whether Spark has a date for it: of a service with a clock of its own, or of damage, a timestamp can be any."""
    ticks = _DAY_S * ticks_per_second(unit)
    return timestamp.between(max(_FIRST_DAY * ticks, -(2**63)), min(_END_DAY * ticks, 2**63) - 1)


def _floor_divided(value: Column, divisor: int) -> Column:
    """Exactly, in integers of 64 bits; Spark's own division is of floating point or rounds towards zero."""
    return f.call_function("div", value, f.lit(divisor)) - f.when(value % divisor < 0, 1).otherwise(0)


def ticks_per_second(unit: TimeUnit) -> int:
    """How many units of cluster time a second has."""
    return TICKS_PER_SECOND[unit.name]
