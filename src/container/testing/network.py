"""A network that can be cut, for tests to import."""

from container.testing.processes.network import Network, NetworkError, unavailable_reason

__all__ = ["Network", "NetworkError", "unavailable_reason"]
