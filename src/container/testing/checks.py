"""The checks that find what would let replicas diverge, for tests to import."""

from container.testing.memory.checks import *  # noqa: F403
