"""One real member, for tests to import."""

from container.testing.processes.node import Node

__all__ = ["Node"]
