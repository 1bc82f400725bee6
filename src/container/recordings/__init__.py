"""What a cluster leaves behind, as tables: the log, snapshots, recording log and catalog of a member, for reading.

:func:`read` yields Arrow record batches of a *view* (see :data:`VIEWS` and :mod:`container.recordings.views`);
:func:`plan` and :func:`read_partition` do the same in parts that can be read in parallel. Nothing here writes to,
locks or maps a member's files, so a running member may be read.

:mod:`container.replay.execution` runs a service again over the log, and :mod:`container.replay.diff` two versions
of one.

Reading rows needs pyarrow, which the extra ``spark`` brings.
"""

from __future__ import annotations

from container.errors import RecordingError, RecordingUnavailableError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import RecordingLogEntry
from container.recordings.member import LogRange, Member, open_member, open_members
from container.recordings.partitions import Filters, Partition, plan, read, read_partition
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
    "plan",
    "read",
    "read_partition",
    "schema",
]
