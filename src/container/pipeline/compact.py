"""Compaction: the many small files of a table become few large ones, by the format's own means; rows stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from container.errors import ConfigurationError, ContainerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_delta(table: Path) -> tuple[int, int]:
    """Compact a table of Delta Lake; return how many files became how many. An ingest may run meanwhile.

    Files that were replaced stay for readers of earlier versions until the table is vacuumed.

    Raises:
        ConfigurationError: it is no table of Delta Lake, or the package deltalake is not installed.
        ContainerError: Delta's library refuses it.
    """
    from container.pipeline.delta_table import require_deltalake

    require_deltalake()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not DeltaTable.is_deltatable(str(table)):
        raise ConfigurationError(f"table={table} is no table of Delta Lake")
    try:
        found = DeltaTable(str(table)).optimize.compact()
    except DeltaError as error:
        raise ContainerError(f"{table}: {error}") from error
    return found["numFilesRemoved"], found["numFilesAdded"]


def compact_iceberg(spark: Callable[[], SparkSession], table: str) -> tuple[int, int]:
    """Compact a table of Iceberg; return how many files became how many. An ingest may run meanwhile.

    Args:
        spark: opens a session with Iceberg's jar and the table's catalog.
        table: its name with its catalog, such as ``local.logs.messages``.

    Raises:
        ConfigurationError: the name has no catalog, or Iceberg has no jar for this Spark.
    """
    from container.spark.table_formats import ICEBERG, require_name, require_pair

    require_pair(ICEBERG)
    require_name(table)
    catalog, _, name = table.partition(".")
    # Two small files are enough: an ingest makes one for each batch.
    row = (
        spark()
        .sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))")
        .collect()[0]
    )
    return row["rewritten_data_files_count"], row["added_data_files_count"]
