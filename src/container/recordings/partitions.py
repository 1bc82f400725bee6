"""Rows of a view: all of them in the order of the log, or those of one partition of a plan."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.errors import RecordingUnavailableError
from container.files.open_errors import is_there
from container.recordings.arrow import import_pyarrow
from container.recordings.cluster_time import time_unit
from container.recordings.commit import name_of
from container.recordings.member import STRICT, open_members
from container.recordings.partition_plan import ALL_ROWS, Filters, Partition, plan
from container.recordings.partition_reader import read_batches
from container.recordings.record_batches import BATCH_ROWS
from container.recordings.remote import is_url, local_path
from container.recordings.views import EVENT_TIME, schema_of, wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa


def read(path: str | Path | Sequence[str | Path], view: str, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a view of one member or several, in the order of the log, member by member.

    Options are those of :func:`~container.recordings.open_members` (``archive_dir``, ``recording_id``, ``committed``,
    ``storage_options``), :func:`plan` (``filters``, ``mode``) and :func:`read_partition` (``batch_rows``, ``columns``,
    ``member_column``).

    Raises:    as those do.
    """
    names = ("archive_dir", "recording_id", "committed", "storage_options")
    places = {name: options.pop(name) for name in names if name in options}
    mode = options.pop("mode", STRICT)
    filters = options.pop("filters", ALL_ROWS)
    for partition in plan(open_members(path, **places), view, filters=filters, mode=mode):
        yield from read_partition(partition, filters=filters, **options)


def open_reader(path: str | Path | Sequence[str | Path], view: str, **options: Any) -> pa.RecordBatchReader:
    """Return the rows of :func:`read` as a stream that DuckDB, Polars and others of Arrow take, with its schema.

    It can be read once, as they ask for batches; a batch that cannot be read raises there as :func:`read` does.

    Raises:
        ConfigurationError: the view has no such column.
        ImportError: pyarrow is not installed.
    """
    columns = wanted_columns(view, options.get("columns"), bool(options.get("member_column")))
    return import_pyarrow().RecordBatchReader.from_batches(schema_of(columns), read(path, view, **options))


def read_partition(
    partition: Partition,
    *,
    filters: Filters = ALL_ROWS,
    batch_rows: int = BATCH_ROWS,
    columns: Sequence[str] | None = None,
    member_column: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition as Arrow record batches, which own their memory.

    A batch has at most ``batch_rows`` rows and ends at 16 MiB of payload, so memory is bounded whatever the length
    of a segment; the GIL is released while a batch is decoded. Only the named columns are made, in that order; by
    default all of the view, and before them ``member_id`` with ``member_column``.

    Raises:
        ConfigurationError: the view has no such column, or cannot apply a filter.
        RecordingUnavailableError: a file that must be there is missing, or cannot be opened or read, in either mode.
        RecordingError: the files are damaged, in mode strict; the rows before the damage have been yielded. In mode
            permissive a row with the column ``error`` takes the place of what is damaged and says how many bytes were
            skipped, a warning is logged for the partition, and reading continues at the next frame that agrees with its
            place; where a file ends too early, in the next segment.
    """
    filters.check(partition.view)
    _check_sight(partition)
    wanted = wanted_columns(partition.view, columns, member_column)
    times = _times_of(partition) if any(column.name == EVENT_TIME.name for column in wanted) else None
    yield from read_batches(partition, filters, batch_rows, wanted, times)


def _check_sight(partition: Partition) -> None:
    """Raise RecordingUnavailableError on a host that does not see the local directories of the plan."""
    member = partition.member
    for name in (member.archive_dir, member.cluster_dir):
        directory = None if name is None else local_path(name) if is_url(name) else name
        if partition.failure is None and directory is not None and not _is_seen(Path(directory)):
            raise RecordingUnavailableError(
                f"host {socket.gethostname()} does not see this directory of {name_of(member)}: mount it there under "
                "the same path, or ship the member to a place that all hosts see: aeron-cluster pipeline ship",
                file=directory,
            )


def _is_seen(directory: Path) -> bool:
    try:
        return is_there(directory)
    except OSError:
        return True  # The open of its files raises the reason.


def _times_of(partition: Partition) -> tuple[str, str]:
    """Name the column with the timestamps of a view, and their unit."""
    if partition.source == "catalog":
        return "start_timestamp", "MILLIS"
    return "timestamp", time_unit(partition.member)
