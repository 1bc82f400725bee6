"""Reads views for the pipelines, with the options that a user gave for the source."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from container.recordings import LOG_VIEWS
from container.spark.options import SourceOptions
from container.spark.source import FORMAT


def read_view(spark: SparkSession, options: SourceOptions, view: str, columns: Sequence[str] = ()) -> DataFrame:
    """A view as a table: that of the members that the options name, all columns or some of them."""
    committed_only = options.committed_only and view in LOG_VIEWS
    chosen = structs.replace(options, view=view, columns=tuple(columns), committed_only=committed_only, decoder=None)
    return spark.read.format(FORMAT).options(**source_options(chosen)).load()


def source_options(options: SourceOptions) -> dict[str, str]:
    """The options as Spark takes them, the opposite of :func:`~container.spark.options.parse_options`."""
    texts = {
        "path": json.dumps(options.paths),
        "view": options.view,
        "mode": options.mode,
        "committed_only": str(options.committed_only).lower(),
        "batch_rows": str(options.batch_rows),
    }
    if options.archive_dirs:
        texts["archive_dir"] = json.dumps(options.archive_dirs)
    if options.committed is not None:
        texts["committed"] = str(options.committed)
    if options.decoder is not None:
        texts["decoder"] = options.decoder
    if options.columns:
        texts["columns"] = ",".join(options.columns)
    if options.max_bytes_per_batch is not None:
        texts["max_bytes_per_batch"] = str(options.max_bytes_per_batch)
    return texts
