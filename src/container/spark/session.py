"""A Spark session that has the data source: finds Java, sets the Python of the workers, and registers the source."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from container.common.java import JavaError, find_java
from container.errors import ConfigurationError
from container.spark.source import FORMAT, KEEPS_FILTERS_APART, ClusterDataSource

DEFAULT_MASTER = "local[*]"

_CONNECT = "sc://"
_IS_FOUND = "DATA_SOURCE_ALREADY_EXISTS"
"""Spark's name for the error that a source was found without a call, which cannot be replaced: it is the same."""
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_TIME_ZONE = "spark.sql.session.timeZone"


def register(spark: SparkSession) -> None:
    """Make the format ``aeron.cluster`` known to a session, and let a Spark without known bugs in it push filters down.

    Spark finds an installed package without this call, unless it runs a Spark Connect server that lacks the package.
    Each executor needs this package, with its compiled modules, for the Python that runs the workers.
    """
    if KEEPS_FILTERS_APART:
        spark.conf.set(_PUSHDOWN, "true")
    if _is_found(spark):
        return  # Spark would warn that the source replaced itself.
    try:
        spark.dataSource.register(ClusterDataSource)
    except AnalysisException as error:
        if error.getCondition() != _IS_FOUND:
            raise


def open_session(
    name: str = "aeron-cluster", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a Spark session, or use the present one, with the source registered.

    The workers run this interpreter unless ``PYSPARK_PYTHON`` names another, and find user code from the current
    directory as ``python -m`` does. Times are shown in UTC.

    Args:
        name: the application's name, which Spark shows.
        master: Spark's master, such as ``local[2]`` or ``spark://host:7077``; ``local[*]`` by default. With
            ``sc://host:15002`` it is a session of that Spark Connect server, whose own settings hold.
        settings: Spark's settings on top of those chosen here.

    Raises:
        ConfigurationError: there is no system Java that runs Spark (the text lists the places that were searched), or
            Spark Connect lacks a package.
    """
    chosen = master or DEFAULT_MASTER
    if chosen.startswith(_CONNECT):
        builder = _connect(chosen)
        defaults = {_TIME_ZONE: "UTC"}
    else:
        _choose_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(name).master(chosen)
        defaults = _settings(chosen)
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def _is_found(spark: SparkSession) -> bool:
    """Whether a session in this process has found the source without a call; False where Spark does not say."""
    with contextlib.suppress(Exception):  # not part of PySpark's interface: each Spark may have it elsewhere
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(FORMAT))
    return False


def is_connected(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _connect(url: str) -> SparkSession.Builder:
    missing = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f'Spark Connect needs {", ".join(missing)}: pip install "aeron-cluster-container[spark-connect]"'
        )
    return SparkSession.builder.remote(url)


def _choose_java() -> None:
    """Point JAVA_HOME, which Spark's scripts use before PATH, at a Java that runs Spark."""
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
        _TIME_ZONE: "UTC",
        "spark.ui.enabled": "false",
    }
    if master.startswith("local"):
        # An address, as a machine need not be able to resolve its own name.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings
