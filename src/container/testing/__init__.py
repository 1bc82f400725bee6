"""What tests of a clustered service need: a member in memory, and real nodes and clusters as processes.

:class:`MemoryMember` runs a service in this process, step by step, in microseconds; see
:mod:`container.testing.memory_member`. Below it, :mod:`container.testing.scripted_member` leaves each duty cycle to the
test. :mod:`container.testing.checks` finds what would let replicas diverge. They need no extra and no driver.

The process side needs the extra ``cluster`` (``pip install "aeron-cluster-container[cluster]"``) and never loads the
Aeron C library:

- :mod:`container.testing.java`: find a JVM, resolve Aeron's jar with its checksum verified, compile Java.
- :mod:`container.testing.process`: a program that cannot outlive its parent, and :func:`wait_until`.
- :mod:`container.testing.endpoints`: ports that are free, and where the members of a cluster listen.
- :mod:`container.testing.node`: a member of a cluster, Java's ``ClusteredMediaDriver``, as a process.
- :mod:`container.testing.cluster`: clusters of 1, 3 or 5 members with their services, and handles to each part.
- :mod:`container.testing.network`: a network of their own, from which members can be cut off (Linux, as root).
- :mod:`container.testing.recordings`: snapshots and other recordings, read from the files of a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.testing.memory_member import LogEntry, MemoryMember, MemorySession, MemorySnapshot

__all__ = ["LogEntry", "MemoryMember", "MemorySession", "MemorySnapshot"]


def __getattr__(name: str) -> Any:
    # On first use: the process side does without the compiled modules.
    if name in __all__:
        from container.testing import memory_member

        return getattr(memory_member, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
