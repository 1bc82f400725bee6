"""A whole node without Java as one process, for tests to import."""

from container.testing.processes.native_node import NativeNode

__all__ = ["NativeNode"]
