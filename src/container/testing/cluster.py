"""Clusters of real processes, for tests to import."""

from container.testing.processes.cluster import *  # noqa: F403
