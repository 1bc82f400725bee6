"""The table formats Delta Lake and Iceberg in a Spark session: which jars fit which Spark, and the settings."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pyspark

from container.common.jars import Jar, resolve
from container.common.java import JavaError
from container.errors import ConfigurationError

DELTA = "delta"
ICEBERG = "iceberg"
CATALOG_MARK = "spark.sql.catalog."

_DELTA_STORAGE = Jar(
    "io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
)
_JARS = {
    (DELTA, "4.1"): (
        Jar(
            "io.delta",
            "delta-spark_4.1_2.13",
            "4.4.0",
            "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
        ),
        _DELTA_STORAGE,
    ),
    (DELTA, "4.2"): (
        Jar(
            "io.delta",
            "delta-spark_4.2_2.13",
            "4.4.0",
            "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        ),
        _DELTA_STORAGE,
    ),
    (ICEBERG, "4.1"): (
        Jar(
            "org.apache.iceberg",
            "iceberg-spark-runtime-4.1_2.13",
            "1.12.0",
            "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
        ),
    ),
}
"""The pairs that work, each run; a jar of another Spark may write and then not read."""

_EXTENSIONS = {
    DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    ICEBERG: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def require_pair(table_format: str) -> None:
    """Refuse a table format for which this Spark has no jar that works.

    Raises:
        ConfigurationError: there is none; the text names the pairs that work.
    """
    minor = ".".join(pyspark.__version__.split(".")[:2])
    if (table_format, minor) in _JARS:
        return
    pairs = ", ".join(f"{name} with Spark {version}" for name, version in sorted(_JARS))
    raise ConfigurationError(
        f"{table_format} has no jar that works with Spark {pyspark.__version__}; pairs that work are {pairs}, and an "
        "ingest into delta with any Spark"
    )


def require_name(table: str) -> None:
    """Refuse what is not the name of a table with its catalog.

    Raises:
        ConfigurationError: it is not.
    """
    if not re.fullmatch(r"\w+(\.\w+)+", table, re.ASCII):
        raise ConfigurationError(
            f"table={table!r}: a table of iceberg has a name with its catalog, of letters, digits, underscores and "
            "dots, such as local.logs.messages"
        )


def table_format_settings(table_formats: Collection[str], *, warehouse: Path | None = None) -> dict[str, str]:
    """Settings of a Spark session that reads and writes Delta Lake or Iceberg, or both.

    The jars are fetched by name at first use, with their checksums verified. Tables of Delta are named by path
    (``delta.`/data/log```), those of Iceberg by catalog.

    Args:
        table_formats: of ``delta`` and ``iceberg``.
        warehouse: directory of an Iceberg catalog without a service, named ``local``; None for catalogs of your own.

    Raises:
        ConfigurationError: this Spark has no jar for one that works, or the jar cannot be fetched.
    """
    jars: list[Jar] = []
    for name in table_formats:
        require_pair(name)
        jars += _JARS[name, ".".join(pyspark.__version__.split(".")[:2])]
    try:
        paths = [str(resolve(jar)) for jar in jars]
    except JavaError as error:
        raise ConfigurationError(f"{' and '.join(table_formats)}: {error}") from None
    settings = {
        "spark.jars": ",".join(paths),
        "spark.sql.extensions": ",".join(_EXTENSIONS[name] for name in table_formats),
    }
    if DELTA in table_formats:
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if ICEBERG in table_formats and warehouse is not None:
        settings |= {
            f"{CATALOG_MARK}local": "org.apache.iceberg.spark.SparkCatalog",
            f"{CATALOG_MARK}local.type": "hadoop",
            f"{CATALOG_MARK}local.warehouse": str(warehouse.absolute()),
        }
    return settings
