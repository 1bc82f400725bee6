"""A cluster's files as tables to read: the log, snapshots, recording log and catalog of a member.

:func:`read` yields Arrow record batches of a *view* (see :data:`VIEWS` and :mod:`container.recordings.views`);
:func:`open_reader` returns them as a stream for DuckDB and Polars; :func:`plan` and :func:`read_partition` do the same
in parts that can be read in parallel. Nothing here writes, locks or maps a member's files, so the member may be
running.

:mod:`container.replay.execution` runs a service again over the log, and :mod:`container.replay.diff` two versions
of one.

Reading rows needs pyarrow, which the extra ``recordings`` installs. The modules are loaded when they are first used: an
archive needs a few of the small ones, and no tables.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.errors import RecordingError, RecordingUnavailableError
    from container.files.catalog import RecordingDescriptor
    from container.files.recording_log import RecordingLogEntry
    from container.recordings.member import LogRange, Member, open_member, open_members
    from container.recordings.partition_plan import Filters, Partition, plan
    from container.recordings.partitions import open_reader, read, read_partition
    from container.recordings.views import LOG_VIEWS, VIEWS, schema

__all__ = [
    "LOG_VIEWS",
    "VIEWS",
    "Filters",
    "LogRange",
    "Member",
    "Partition",
    "RecordingDescriptor",
    "RecordingError",
    "RecordingLogEntry",
    "RecordingUnavailableError",
    "open_member",
    "open_members",
    "open_reader",
    "plan",
    "read",
    "read_partition",
    "schema",
]

_HOMES = {
    "container.errors": "RecordingError RecordingUnavailableError",
    "container.files.catalog": "RecordingDescriptor",
    "container.files.recording_log": "RecordingLogEntry",
    "container.recordings.member": "LogRange Member open_member open_members",
    "container.recordings.partition_plan": "Filters Partition plan",
    "container.recordings.partitions": "open_reader read read_partition",
    "container.recordings.views": "LOG_VIEWS VIEWS schema",
}
_LAZY = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load the module of a public name when the name is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names for completion, with those that are not loaded yet."""
    return sorted({*globals(), *__all__})
