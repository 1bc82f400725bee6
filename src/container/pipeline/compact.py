"""Compaction: the many small files of a table become few large ones, by the format's own means; rows stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from container.errors import ConfigurationError, ContainerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCK_NAME = "_compaction_lock"


def compact_delta(table: Path) -> tuple[int, int]:
    """Compact a table of Delta Lake; return how many files became how many. An ingest may run meanwhile.

    Files that were replaced stay for readers of earlier versions until the table is vacuumed. Delta's library lets two
    compactions of the same files through, and the table has their rows twice: one is kept out by a lock, that of
    another program is found when this is done.

    Raises:
        ConfigurationError: it is not a table of Delta Lake, another one compacts it, or the package deltalake is not
            installed.
        ContainerError: Delta's library refuses it, or another program has compacted the same files meanwhile.
    """
    from container.pipeline.delta_table import plain_text, require_deltalake
    from container.pipeline.parquet_table import locked

    require_deltalake()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not DeltaTable.is_deltatable(str(table)):
        raise ConfigurationError(f"table={table} is not a table of Delta Lake")
    with locked(table, _LOCK_NAME, "another compaction of it runs"):
        try:
            before = DeltaTable(str(table))
            first = before.version() + 1
            found = before.optimize.compact()
            last = DeltaTable(str(table)).version()
        except (DeltaError, OSError) as error:
            raise ContainerError(f"{table}: {plain_text(error)}") from error
        _refuse_removed_twice(table, range(first, last + 1))
    return found["numFilesRemoved"], found["numFilesAdded"]


def _refuse_removed_twice(table: Path, versions: Iterable[int]) -> None:
    """See that no two commits have removed one file: both have its rows in new ones.

    Raises:
        ContainerError: two have, or a commit is gone.
    """
    by: dict[tuple[str, str | None], int] = {}
    for version in versions:
        try:
            commit = (table / "_delta_log" / f"{version:020}.json").read_bytes()
        except FileNotFoundError:
            raise ContainerError(
                f"{table}: it is compacted, but version {version} is gone from its log already, so nobody knows "
                "whether another program compacted the same files meanwhile: raise delta.logRetentionDuration, and let "
                "one program compact it"
            ) from None
        # Split bytes: splitting a text also breaks at characters that a column may contain, such as Unicode's line
        # separator.
        for line in commit.splitlines():
            removed = json.loads(line).get("remove")
            if removed is None:
                continue
            # Two that delete rows of one file remove it with another deletion vector each, and put it back.
            vector = (removed.get("deletionVector") or {}).get("pathOrInlineDv")
            earlier = by.setdefault((unquote(removed["path"]), vector), version)
            if earlier != version:
                raise ContainerError(
                    f"{table}: another program compacted the same files meanwhile, so that rows are there twice since "
                    f"version {version}: set the table back to version {version - 1} (RESTORE) before anything else "
                    "is written, and let one program compact it"
                )


def compact_iceberg(spark: Callable[[], SparkSession], table: str) -> tuple[int, int]:
    """Compact a table of Iceberg; return how many files became how many. An ingest may run meanwhile.

    Args:
        spark: opens a session with Iceberg's jar and the table's catalog.
        table: its name with its catalog, such as ``local.logs.messages``.

    Raises:
        ConfigurationError: the name has no catalog, or Iceberg has no jar for this Spark.
        ContainerError: Iceberg refuses it; the text says why.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from container.pipeline.spark_errors import plain_error
    from container.spark.table_formats import ICEBERG, require_name, require_pair

    require_pair(ICEBERG)
    require_name(table)
    catalog, _, name = table.partition(".")
    # Two small files are enough: an ingest makes one for each batch.
    call = f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))"
    try:
        row = spark().sql(call).collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        raise ContainerError(f"{table}: {plain_error(error)}") from error
    return row["rewritten_data_files_count"], row["added_data_files_count"]
