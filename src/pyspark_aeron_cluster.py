"""How Spark finds the data source ``aeron.cluster`` without a call of ``register``, in SQL shells as well.

Spark imports each top-level module whose name begins with ``pyspark_``, and registers its ``DefaultSource``. One that
fails ends the search for the sources of all other packages, so a missing requirement is a warning.
"""

from __future__ import annotations

import warnings

__all__ = ["DefaultSource"]

try:
    from container.spark.source import ClusterDataSource as DefaultSource
except ImportError as missing:
    warnings.warn(f"the data source aeron.cluster is not registered: {missing}", stacklevel=2)
