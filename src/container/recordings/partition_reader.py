"""The rows of a partition of a view, read from the files of its member."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from container.common.aeron_defaults import CONSENSUS_MODULE_SNAPSHOT_STREAM_ID, FRAME_ALIGNMENT
from container.errors import RecordingError, RecordingUnavailableError
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.directories import Directory, path_in
from container.files.names import CATALOG_NAME
from container.files.recording_log import CONSENSUS_MODULE_SERVICE_ID, ENTRY_TYPE_NAMES, RecordingLogEntry
from container.recordings.frame_reader import MESSAGE_FAILURES
from container.recordings.log_decoder import COLUMNS as LOG_COLUMNS
from container.recordings.log_decoder import LogDecoder
from container.recordings.member import tolerates
from container.recordings.message_reader import MessageReader
from container.recordings.partition_plan import Filters, Partition, Snapshot
from container.recordings.record_batches import BatchMaker, joined
from container.recordings.recording_ends import RecordingEnds
from container.recordings.remote import check_objects, checked
from container.recordings.snapshot_decoder import COLUMNS as SNAPSHOT_COLUMNS
from container.recordings.snapshot_decoder import SnapshotDecoder
from container.recordings.views import MEMBER_ID, Column

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_NULL_VALUE = -1
_READ_OK, _READ_END = 0, 1

# Templates of schema 111 that each view of the log shows; messages shows all.
_TEMPLATES = {
    "sessions": frozenset([21, 22]),
    "session_messages": frozenset([1]),
    "timers": frozenset([20]),
    "terms": frozenset([24]),
}


def read_batches(
    partition: Partition,
    filters: Filters,
    batch_rows: int,
    columns: Sequence[Column],
    times: tuple[str, str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, as :func:`~container.recordings.read_partition` does.

    Args:
        partition: the part of a view.
        filters: which rows are wanted; they suit the view.
        batch_rows: the most rows of a batch.
        columns: those that are wanted, in that order.
        times: the column of timestamps and their unit, where ``event_time`` is wanted.
    """

    def new_maker() -> BatchMaker:
        return BatchMaker(columns, {MEMBER_ID.name: partition.member.member_id}, times)

    if partition.source == "snapshot":
        yield from joined(_read_snapshots(partition, batch_rows, new_maker), batch_rows)
        return
    make = new_maker()
    yield from _damage_as_row(partition, make, _read(partition, filters, batch_rows, make))


def _damage_as_row(
    partition: Partition, make: BatchMaker, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches, and in mode permissive a row for the error that ends them."""
    try:
        yield from batches
    except RecordingError as error:
        if not tolerates(partition.mode, error):
            raise
        yield make.from_rows([{"error": str(error), "log_position": error.log_position}])


def _read(partition: Partition, filters: Filters, batch_rows: int, make: BatchMaker) -> Iterator[pa.RecordBatch]:
    if partition.failure is not None:
        raise partition.failure
    if partition.source == "log":
        yield from _read_log(partition, filters, batch_rows, make)
    elif partition.source == "catalog":
        yield from _read_entries(partition, _recordings(partition), batch_rows, make)
    elif partition.view == "terms":
        yield from _read_entries(partition, _logged_terms(partition), batch_rows, make)
    elif partition.source == "recording_log":
        yield from _read_entries(partition, _log_entries(partition), batch_rows, make)


def _read_log(partition: Partition, filters: Filters, batch_rows: int, make: BatchMaker) -> Iterator[pa.RecordBatch]:
    decoder = _decoder(partition, filters, batch_rows, make)
    if decoder is None:
        return
    term = _NULL_VALUE if partition.leadership_term_id is None else partition.leadership_term_id
    is_frames = partition.view == "frames"
    may_be_truncated = True
    is_checked = False
    damage = _Damage()
    try:
        while True:
            result = decoder.decode_frames(term) if is_frames else decoder.decode_messages()
            error = None
            if not is_checked:
                _check_same_log(partition)  # Its file is open now, and stays the one that it is.
                is_checked = True
            if result < 0:
                error = decoder.failure_error()
                _check_what_was_read(partition, filters)
                # Behind damage, a mismatch is not an election's work: looking again would take long.
                may_be_truncated = may_be_truncated and _was_truncated(partition, error)
                if may_be_truncated:
                    result, error = _READ_END, None
                elif tolerates(partition.mode, error):
                    position = _after_damage(decoder, is_frames)
                    damage.add(decoder, error, position)
                    result = _READ_END if position >= partition.end_position else _READ_OK
                    error = None
            if result == _READ_END:
                _check_what_was_read(partition, filters)
            if decoder.rows and (error is not None or result == _READ_END or decoder.is_full):
                rows = decoder.rows
                yield make.from_arrays(decoder.take(), rows)
            if error is not None:
                raise error
            if result == _READ_END:
                return
    finally:
        damage.warn()
        if decoder.untimed_count:
            _log.warning(
                "%d messages from log position %d on have no time: bounds of time leave them out, positions do not",
                decoder.untimed_count,
                partition.begin_position,
            )
        decoder.close()


def _check_same_log(partition: Partition) -> None:
    """Raise RecordingUnavailableError when another log was begun since the plan was made: its files have the names of
    those that were wiped."""
    descriptor, archive = partition.descriptor, partition.member.archive
    assert descriptor is not None
    try:
        # No further than to the log's own entry: the catalog of an old cluster has thousands of snapshots behind it.
        now = next(read_catalog(archive, {descriptor.recording_id}), None)
    except RecordingError:
        return
    if now is not None and now.start_timestamp != descriptor.start_timestamp:
        raise RecordingUnavailableError(
            f"recording {descriptor.recording_id} is another one than when the query was planned: the cluster was "
            "wiped and started again",
            file=path_in(archive, CATALOG_NAME),
        )


class _Damage:
    """The damage that a permissive read has skipped, for the rows and for one warning at its end."""

    def __init__(self) -> None:
        self._count = self._skipped = 0
        self._first = ""

    def add(self, decoder: LogDecoder, error: RecordingError, position: int) -> None:
        """Add the row for damage behind which reading continues at a log position."""
        assert error.log_position is not None
        skipped = position - error.log_position
        text = f"{error}; {skipped} bytes skipped, up to log position {position}"
        if decoder.put_error(error, text):
            self._count, self._skipped = self._count + 1, self._skipped + skipped
            self._first = self._first or text

    def warn(self) -> None:
        if self._count:
            _log.warning("damage in %d places, %d bytes skipped; first: %s", self._count, self._skipped, self._first)


def _decoder(partition: Partition, filters: Filters, batch_rows: int, make: BatchMaker) -> LogDecoder | None:
    descriptor = partition.descriptor
    assert descriptor is not None
    make.constants["recording_id"] = descriptor.recording_id
    begin = partition.begin_position
    if filters.begin_position is not None:
        begin = max(begin, _first_to_read(partition, descriptor, filters))
    templates = _TEMPLATES.get(partition.view)
    if filters.template_ids is not None:
        templates = filters.template_ids if templates is None else templates & filters.template_ids
    terms = filters.leadership_term_ids
    if partition.view == "frames" and terms is not None:
        if partition.leadership_term_id not in terms:
            return None
        terms = None
    limits = {
        name: value
        for name, value in (("begin_position", filters.begin_position), ("end_position", filters.end_position))
        if value is not None
    }
    return LogDecoder(
        _likely_read(partition, filters),
        descriptor.layout(),
        make.decoded(LOG_COLUMNS),
        batch_rows=batch_rows,
        begin=begin,
        end=partition.end_position,
        read_end=partition.recorded_position,
        committed_position=partition.committed_position,
        begin_timestamp=filters.begin_timestamp,
        end_timestamp=filters.end_timestamp,
        template_ids=templates,
        is_cluster_only=partition.view in _TEMPLATES,
        leadership_term_ids=terms,
        likely_term_id=_NULL_VALUE if partition.leadership_term_id is None else partition.leadership_term_id,
        **limits,
    )


def _likely_read(partition: Partition, filters: Filters) -> Directory:
    """The partition's archive, of which nothing is fetched in advance behind the last row that is wanted."""
    return checked(partition.member.archive, _last_position(partition, filters))


def _last_position(partition: Partition, filters: Filters) -> int:
    end = partition.end_position
    return end if filters.end_position is None else min(end, filters.end_position)


def _check_what_was_read(partition: Partition, filters: Filters) -> None:
    """Raise RecordingUnavailableError when an object of a shipped place is not what was shipped."""
    assert partition.descriptor is not None
    end = _last_position(partition, filters)
    check_objects(partition.member.archive, partition.descriptor.recording_id, partition.begin_position, end)


def check_partition(partition: Partition, filters: Filters) -> None:
    """Compare all that a partition of the log reads of a shipped place with what was shipped, before any row is given.

    :func:`read_batches` compares it as it is read: its error comes behind rows, which nobody may keep then.

    Raises:
        RecordingUnavailableError: an object has other bytes, or cannot be fetched.
    """
    if partition.source != "log" or partition.descriptor is None:
        return
    begin = max(partition.begin_position, filters.begin_position or 0)
    end, recording_id = _last_position(partition, filters), partition.descriptor.recording_id
    check_objects(partition.member.archive, recording_id, begin, end, is_read=False)


def _first_to_read(partition: Partition, descriptor: RecordingDescriptor, filters: Filters) -> int:
    """The last place where a frame is known to begin, and of which no wanted message began before."""
    assert filters.begin_position is not None
    first = min(filters.begin_position, partition.end_position)
    if filters.is_border and first % FRAME_ALIGNMENT == 0 and partition.begin_position < first:
        with closing(MessageReader(partition.member.archive, **descriptor.layout())) as reader:
            if reader.begins_message(first, partition.recorded_position):
                return first
    # A message has its frames in one Aeron term, at the start of which one begins.
    return first & -descriptor.term_buffer_length


def _after_damage(decoder: LogDecoder, is_frames: bool) -> int:
    """Move the decoder to where reading can be trusted again; return that log position."""
    return decoder.skip_damage(is_frames)


def _was_truncated(partition: Partition, error: RecordingError) -> bool:
    """Whether what is missing was removed by an election since the plan was made; committed messages never are."""
    position, descriptor = error.log_position, partition.descriptor
    if isinstance(error, RecordingUnavailableError):
        return False  # Without its files nothing can be said of a log.
    if position is None or position < partition.committed_position or descriptor is None:
        return False
    try:
        return partition.member.recorded_position(descriptor) <= position
    except RecordingError:
        return False


def _read_snapshots(
    partition: Partition, batch_rows: int, new_maker: Callable[[], BatchMaker]
) -> Iterator[pa.RecordBatch]:
    descriptors = [snapshot.descriptor for snapshot in partition.snapshots]
    ends = RecordingEnds(partition.member, {one.recording_id for one in descriptors if one is not None})
    for snapshot in partition.snapshots:
        make = new_maker()
        yield from _damage_as_row(partition, make, _read_snapshot(partition, snapshot, ends, batch_rows, make))


def _read_snapshot(
    partition: Partition, snapshot: Snapshot, ends: RecordingEnds, batch_rows: int, make: BatchMaker
) -> Iterator[pa.RecordBatch]:
    """The row of a snapshot's entry, and then what its recording holds."""
    entry, descriptor = snapshot.entry, snapshot.descriptor
    make.constants |= _snapshot_constants(entry, descriptor)
    row: dict[str, Any] = {"item": "ENTRY"}
    if descriptor is None:
        # The recording of a standby snapshot is in another archive; others may have been removed as old.
        row["is_complete"] = False if entry is not None and entry.is_snapshot else None
        yield make.from_rows([row])
        return
    is_module = descriptor.stream_id == CONSENSUS_MODULE_SNAPSHOT_STREAM_ID
    if entry is not None:
        is_module = entry.service_id == CONSENSUS_MODULE_SERVICE_ID
    archive_dir = checked(partition.member.archive)
    try:
        end = ends.of(descriptor)
        arguments: dict[str, Any] = {
            # A batch takes memory for all rows that it may have, and an item has a frame at least.
            "batch_rows": min(batch_rows, max(1, (end - descriptor.start_position) // FRAME_ALIGNMENT)),
            "end": end,
            "is_consensus_module": is_module,
            "log_position": _NULL_VALUE if entry is None else entry.log_position,
        }
        try:
            row["is_complete"] = _find_end_marker(archive_dir, descriptor, make, arguments)
        finally:
            check_objects(partition.member.archive, descriptor.recording_id, descriptor.start_position, end)
    except RecordingError:
        row["is_complete"] = False
        yield make.from_rows([row])
        raise
    yield make.from_rows([row])
    columns = make.decoded(SNAPSHOT_COLUMNS)
    decoder = SnapshotDecoder(archive_dir, descriptor.layout(), columns, **arguments)
    try:
        while True:
            result = decoder.decode_items()
            error = decoder.failure_error() if result < 0 else None
            if error is not None and tolerates(partition.mode, error):
                decoder.put_error(error)
                error = None
                result = _READ_OK if decoder.last_failure in MESSAGE_FAILURES else _READ_END
            if decoder.rows and (error is not None or result == _READ_END or decoder.is_full):
                rows = decoder.rows
                yield make.from_arrays(decoder.take(), rows)
            if error is not None:
                raise error
            if result == _READ_END:
                return
    finally:
        decoder.close()


def _snapshot_constants(entry: RecordingLogEntry | None, descriptor: RecordingDescriptor | None) -> dict[str, Any]:
    """The values that all rows of a snapshot share."""
    if entry is None:
        assert descriptor is not None
        is_module = descriptor.stream_id == CONSENSUS_MODULE_SNAPSHOT_STREAM_ID
        return {
            "recording_id": descriptor.recording_id,
            "service_id": CONSENSUS_MODULE_SERVICE_ID if is_module else None,
        }
    names = (
        "recording_id",
        "service_id",
        "leadership_term_id",
        "term_base_log_position",
        "log_position",
        "timestamp",
        "entry_index",
        "is_valid",
    )
    return {name: getattr(entry, name) for name in names}


def _find_end_marker(
    archive_dir: Directory, descriptor: RecordingDescriptor, make: BatchMaker, arguments: dict[str, Any]
) -> bool:
    """Whether a snapshot has begin and end marker; without a recording log its position and term come from them."""
    decoder = SnapshotDecoder(archive_dir, descriptor.layout(), {}, **arguments)
    result = _READ_OK
    while result == _READ_OK:
        result = decoder.decode_items(until_end_marker=True)
        decoder.take()
    if "log_position" not in make.constants:
        make.constants["log_position"] = _known(decoder.snapshot_position)
        make.constants["leadership_term_id"] = _known(decoder.leadership_term_id)
    decoder.close()
    return decoder.is_complete


def _read_entries(
    partition: Partition, rows: Iterator[dict[str, Any]], batch_rows: int, make: BatchMaker
) -> Iterator[pa.RecordBatch]:
    """Batches of few rows that come as dicts; damage ends them as the partition's mode says."""
    pending: list[dict[str, Any]] = []
    failure = None
    while True:
        try:
            row = next(rows, None)
        except RecordingError as error:
            failure, row = error, None
            if tolerates(partition.mode, error):
                pending.append({"error": str(error)})
        if row is not None:
            pending.append(row)
        if pending and (row is None or len(pending) >= batch_rows):
            yield make.from_rows(pending)
            pending = []
        if row is None:
            break
    if failure is not None and not tolerates(partition.mode, failure):
        raise failure


def _known(value: int) -> int | None:
    """None for what upstream writes as -1."""
    return None if value == _NULL_VALUE else value


def _recordings(partition: Partition) -> Iterator[dict[str, Any]]:
    partition.member.shipped()
    for descriptor in read_catalog(partition.member.archive):
        row = {name: getattr(descriptor, name) for name in RecordingDescriptor.__slots__}
        row["stop_timestamp"] = _known(descriptor.stop_timestamp)
        row["stop_position"] = _known(descriptor.stop_position)
        yield row


def _log_entries(partition: Partition) -> Iterator[dict[str, Any]]:
    member = partition.member
    if member.cluster_dir is None:
        return
    member.shipped()
    try:
        for entry in member.logged_entries():
            yield {
                **{name: getattr(entry, name) for name in RecordingLogEntry.__slots__},
                "log_position": _known(entry.log_position),
                "entry_type": ENTRY_TYPE_NAMES[entry.entry_type],
            }
    except FileNotFoundError:
        return


def _logged_terms(partition: Partition) -> Iterator[dict[str, Any]]:
    for row in _log_entries(partition):
        if row["entry_type"] == "TERM":
            end = row.pop("log_position")
            yield {"source": "recording_log", "end_log_position": end, **row}
