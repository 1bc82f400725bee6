"""Clusters of real processes, for tests to import."""

from container.testing.processes.local_cluster import *  # noqa: F403
