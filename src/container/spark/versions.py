"""Differences between the supported Sparks, 4.1 to 4.3."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

IS_4_1 = find_spec("pyspark.sql.streaming.datasource") is None
"""Whether this is Spark 4.1, which asks a stream for its latest offset without its start and without a limit."""

if TYPE_CHECKING or not IS_4_1:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """Never made: Spark 4.1 asks for no limit."""

    class ReadAllAvailable(ReadLimit):
        """Everything."""

    class ReadMaxBytes(ReadLimit):
        """A number of bytes."""

    class ReadMaxRows(ReadLimit):
        """A number of rows."""

    class SupportsTriggerAvailableNow:
        """Spark 4.1 takes the first latest offset of such a query for its end, for any source."""


def arrow_columns(columns: StructType) -> pa.Schema:
    """Arrow's schema of Spark's, with times in UTC."""
    return to_arrow_schema(columns) if IS_4_1 else to_arrow_schema(columns, timezone="UTC")


__all__ = [
    "IS_4_1",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_columns",
]
