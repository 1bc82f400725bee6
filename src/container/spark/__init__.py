"""Recordings of clusters in Spark: the data source ``aeron.cluster``. Needs the extra ``spark``.

:func:`register` makes the source known to a session; :func:`open_session` starts one that has it. docs/pipeline.md has
options, columns and recipes; :mod:`container.pipeline` has whole pipelines.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as missing:
    raise ImportError(
        'container.spark needs PySpark: install the extra spark (pip install "aeron-cluster-container[spark]")'
    ) from missing

from container.spark.session import open_session, register
from container.spark.source import FORMAT

__all__ = ["FORMAT", "open_session", "register"]
