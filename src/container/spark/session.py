"""A Spark session that has the data source: finds Java, sets the Python of the workers, and registers the source."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from container.common.java import JavaError, find_java
from container.errors import ConfigurationError
from container.spark.source import KEEPS_FILTERS_APART, ClusterDataSource

DEFAULT_MASTER = "local[*]"

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format ``aeron.cluster`` known to a session, and let a Spark that does it right push filters down.

    Each executor needs this package, with its compiled modules, for the Python that runs the workers.
    """
    if KEEPS_FILTERS_APART:
        spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(ClusterDataSource)


def open_session(
    name: str = "aeron-cluster", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a Spark session, or take the one that there is, with the source registered.

    The workers run this interpreter unless ``PYSPARK_PYTHON`` names another, and find user code from the current
    directory as ``python -m`` does. Times are shown in UTC.

    Args:
        name: the application's name, which Spark shows.
        master: Spark's master, such as ``local[2]`` or ``spark://host:7077``; ``local[*]`` by default.
        settings: Spark's settings on top of those chosen here.

    Raises:
        ConfigurationError: there is no system Java that runs Spark; the text says where it was looked for.
    """
    _choose_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = master or DEFAULT_MASTER
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in {**_settings(chosen), **(settings or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def _choose_java() -> None:
    """Let Spark's scripts, which take JAVA_HOME before PATH, start a Java that runs it."""
    try:
        java = find_java(bundled=False)
    except JavaError as error:
        raise ConfigurationError(f"Spark needs a system Java: {error}") from None
    home = java.resolve().parents[1]
    if (home / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(home)


def _settings(master: str) -> dict[str, str]:
    python_path = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(python_path),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    if master.startswith("local"):
        # Not the host's name, which a machine need not be able to resolve.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings
