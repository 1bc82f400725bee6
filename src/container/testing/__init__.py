"""Tools for tests of a clustered service: a member in memory, and real nodes and clusters as processes.

:class:`MemoryMember` runs a service in this process, step by step, in microseconds; see
:mod:`container.testing.memory.memory_member`. Below it, :mod:`container.testing.scripted_member` leaves each duty cycle
to the test. :mod:`container.testing.checks` finds what would let replicas diverge. They need no extra and no driver.

The process side needs the extra ``cluster`` (``pip install "aeron-cluster-container[cluster]"``) and never loads the
Aeron C library. Its modules are in :mod:`container.testing.processes`:

- :mod:`container.testing.node`: a member of a cluster, Java's ``ClusteredMediaDriver``, as a process.
- :mod:`container.testing.native_node`: a member without Java, as a process.
- :mod:`container.testing.cluster`: clusters of 1, 3 or 5 members with their services, and handles to each part.
- :mod:`container.testing.archive`: an archive as a process, Java's or this package's.
- :mod:`container.testing.network`: a network of their own, from which members can be cut off (Linux, as root).

:func:`wait_until` waits for a state of any of these, with a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.testing.memory.memory_member import LogEntry, MemoryMember, MemorySession, MemorySnapshot
    from container.testing.processes.process import wait_until

__all__ = ["LogEntry", "MemoryMember", "MemorySession", "MemorySnapshot", "wait_until"]


def __getattr__(name: str) -> Any:
    # On first use: the process side does without the compiled modules.
    if name == "wait_until":
        from container.testing.processes.process import wait_until

        return wait_until
    if name in __all__:
        from container.testing.memory import memory_member

        return getattr(memory_member, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
