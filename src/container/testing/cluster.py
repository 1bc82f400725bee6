"""Clusters of real processes, for tests to import."""

from container.testing.processes.local_cluster import *  # noqa: F403
from container.testing.processes.native_cluster import NativeCluster as NativeCluster
