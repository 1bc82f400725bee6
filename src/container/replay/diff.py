"""Compares two services over the same recorded log: what would have been answered differently, and from where on.

Both run side by side over :mod:`container.replay.execution`. Their messages to the same client, and actions on the same
timer, at the same log position are compared one by one in order. The order among clients does not count, as no client
can see it. The texts of the service's errors do not count either, but their presence does.

States are compared by their snapshots. When these are not equal, each service starts from the snapshot of the other, as
two releases do whose states have different forms: what it then writes is compared with its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.errors import ContainerError
from container.recordings.arrow import import_pyarrow
from container.recordings.member import STRICT, Member, open_member
from container.recordings.record_batches import BATCH_ROWS
from container.recordings.views import Column, schema_of
from container.replay.execution import (
    ERROR_KIND,
    STATE_HASH_KIND,
    ReplaySegment,
    ServiceSource,
    TakenSnapshot,
    load_state,
    plan_replay,
    replay_segment,
)
from container.service.state_difference import state_difference

if TYPE_CHECKING:
    import pyarrow as pa

DIFF_COLUMNS = (
    Column("log_position", "int64", "End in the log of the message that both services were called with."),
    Column("timestamp", "int64", "Cluster time of that message, in the cluster's time unit."),
    Column("kind", "string", "Kind of difference, as in a replay: EGRESS, SCHEDULE_TIMER, STATE_HASH and so on."),
    Column(
        "change",
        "string",
        "CHANGED, MISSING when only the first service did it, ADDED when only the other did; UNKNOWN of states in two "
        "formats when neither service can load the other's.",
    ),
    Column("cluster_session_id", "int64", "The client concerned."),
    Column("correlation_id", "int64", "The timer concerned."),
    Column("occurrence", "int32", "Counts, from 0, what a service did of this kind for this client or timer there."),
    Column("payload", "binary", "Message of the first service."),
    Column("other_payload", "binary", "Message of the other service."),
    Column("deadline", "int64", "When the first service's timer is due."),
    Column("other_deadline", "int64", "When the other service's timer is due."),
    Column("state_hash", "string", "The hash of the first service's state."),
    Column("other_state_hash", "string", "The hash of the other service's state."),
    Column("error", "string", "Error of the first service."),
    Column("other_error", "string", "Error of the other service."),
    Column("state_difference", "string", "The place where the states differ, or why they cannot be compared."),
)
"""The columns of the rows of a comparison."""

COMPARED = ("payload", "deadline", "state_hash")
"""The columns of a replay that two services can have differently …"""
SHOWN = (*COMPARED, "error")
"""… and those that a difference shows of both."""
KEY = ("kind", "cluster_session_id", "correlation_id")
"""Columns that rows at the same log position must share to be compared with each other."""
UNKNOWN = "UNKNOWN"
"""The change of states that cannot be compared."""
_DIFF_BATCH_ROWS = 4096
# How many rows are compared at once: more and more while they are equal, and fewer towards one that is not.
_WINDOW_MIN, _WINDOW_MAX = 2, 65536

type _Row = dict[str, Any]


def diff_schema() -> pa.Schema:
    """Return the Arrow schema of the rows; each field has its meaning in its metadata, under ``b"comment"``.

    Raises:
        ImportError: pyarrow is not installed.
    """
    return schema_of(DIFF_COLUMNS)


def diff(
    path: str | Path | Member,
    service: ServiceSource,
    other: ServiceSource,
    *,
    archive_dir: str | Path | None = None,
    recording_id: int | None = None,
    committed: str | int | None = None,
    mode: str = STRICT,
    batch_rows: int = BATCH_ROWS,
    report_progress: Callable[[int], object] | None = None,
    ignore_state: bool = False,
    **plan: Any,
) -> Iterator[pa.RecordBatch]:
    """Run two services over a member's log without a break, and yield what the other does differently.

    The rows are in the order of the log, so that the first one says from where on the two differ. Arguments and errors
    are those of :func:`~container.replay.execution.replay`; in mode strict an error of either service ends both. With
    ``ignore_state`` only what they do is compared, and not their states.
    """
    member = path
    if not isinstance(member, Member):
        member = open_member(member, archive_dir=archive_dir, recording_id=recording_id, committed=committed)
    for segment in plan_replay(member, is_continuous=True, **plan):
        yield from diff_segment(
            segment,
            service,
            other,
            mode=mode,
            batch_rows=batch_rows,
            report_progress=report_progress,
            ignore_state=ignore_state,
        )


def diff_segment(
    segment: ReplaySegment,
    service: ServiceSource,
    other: ServiceSource,
    *,
    mode: str = STRICT,
    batch_rows: int = BATCH_ROWS,
    report_progress: Callable[[int], object] | None = None,
    ignore_state: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Run two services over one segment, and yield what the other does differently, in the order of the log.

    Arguments and errors are those of :func:`~container.replay.execution.replay_segment` and :func:`diff`;
    ``report_progress`` is called for the first service. Both start from the snapshot that is recorded at the segment's
    beginning; differences of their states before it do not count.
    """
    states = None if ignore_state else _States(segment, service, other)
    options: dict[str, Any] = {"mode": mode, "batch_rows": batch_rows}
    with (
        closing(
            replay_segment(
                segment,
                service,
                report_progress=report_progress,
                on_snapshot=None if states is None else states.on_snapshot,
                **options,
            )
        ) as batches,
        closing(
            replay_segment(segment, other, on_snapshot=None if states is None else states.on_other_snapshot, **options)
        ) as other_batches,
    ):
        yield from _diff(batches, other_batches, states, **options, ignore_state=ignore_state)


class _States:
    """The states of two services that are not equal, until they are asked for."""

    def __init__(self, segment: ReplaySegment, service: ServiceSource, other: ServiceSource) -> None:
        self._segment = segment
        self._service = service
        self._other = other
        self._waiting: dict[int, TakenSnapshot] = {}
        self._unequal: dict[int, tuple[TakenSnapshot, TakenSnapshot]] = {}

    def on_snapshot(self, snapshot: TakenSnapshot) -> None:
        """One of the first service, or of the other one as :meth:`on_other_snapshot`."""
        if before := self._waiting.pop(snapshot.log_position, None):
            self._keep(snapshot, before)
        else:
            self._waiting[snapshot.log_position] = snapshot

    def on_other_snapshot(self, snapshot: TakenSnapshot) -> None:
        """One of the other service."""
        if before := self._waiting.pop(snapshot.log_position, None):
            self._keep(before, snapshot)
        else:
            self._waiting[snapshot.log_position] = snapshot

    def _keep(self, one: TakenSnapshot, two: TakenSnapshot) -> None:
        if one.state != two.state:
            self._unequal[one.log_position] = one, two

    def compare(self, log_position: int) -> tuple[str, str] | None:
        """The change and where it is, or None when the services agree about both states."""
        one, two = self._unequal.pop(log_position)
        failures = []
        for whose, source, own, theirs in (
            ("the other", self._other, two, one),
            ("the first", self._service, one, two),
        ):
            try:
                loaded = load_state(self._segment, source, theirs)
            except ContainerError as error:
                failures.append(f"{whose} cannot load the snapshot of {_ELSE[whose]}: {error}")
                continue
            if loaded != own.state:
                run = f"in {whose} as it loads the snapshot of {_ELSE[whose]}"
                return "CHANGED", state_difference(loaded, own.state, run=run, now="in its own")
        return (UNKNOWN, "; ".join(failures)) if len(failures) == 2 else None


_ELSE = {"the first": "the other", "the other": "the first"}


def diff_batches(
    batches: Iterable[pa.RecordBatch],
    other_batches: Iterable[pa.RecordBatch],
    *,
    mode: str = STRICT,
    batch_rows: int = BATCH_ROWS,
    ignore_state: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Compare the rows of two replays of the same part of the log, in its order, whoever made them.

    So two releases of the same package can be compared, which no process can have at once. Their states are compared
    by their hashes, which differ when the forms of the states do: then use ``ignore_state``. In mode strict an error in
    either ends it.
    """
    return _diff(batches, other_batches, None, mode=mode, batch_rows=batch_rows, ignore_state=ignore_state)


def _diff(
    batches: Iterable[pa.RecordBatch],
    other_batches: Iterable[pa.RecordBatch],
    states: _States | None,
    *,
    mode: str,
    batch_rows: int,
    ignore_state: bool,
) -> Iterator[pa.RecordBatch]:
    arrow, schema = import_pyarrow(), diff_schema()
    pending: list[_Row] = []
    for rows, other_rows in _by_position(batches, other_batches):
        for row in _differences(rows, other_rows):
            if row["kind"] == STATE_HASH_KIND:
                if ignore_state:
                    continue
                if states is not None and row["change"] == "CHANGED":
                    compared = states.compare(row["log_position"])
                    if compared is None:
                        continue
                    row["change"], row["state_difference"] = compared
            pending.append(row)
        if len(pending) >= min(batch_rows, _DIFF_BATCH_ROWS):
            yield arrow.RecordBatch.from_pylist(pending, schema=schema)
            pending = []
        if mode == STRICT and any(row["kind"] == ERROR_KIND for row in (*rows, *other_rows)):
            break  # behind an error of one there is nothing to compare the other with
    if pending:
        yield arrow.RecordBatch.from_pylist(pending, schema=schema)


def _by_position(
    batches: Iterable[pa.RecordBatch], other_batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[list[_Row], list[_Row]]]:
    """The actions of both services at each log position where they differ."""
    one, two, window = _Rows(batches), _Rows(other_batches), _WINDOW_MIN
    while one.left is not None or two.left is not None:
        if one.left is not None and two.left is not None:
            count = _equal_count(one.left, two.left, window)
            if count > 0:
                one.skip(count)
                two.skip(count)
                window = min(2 * window, _WINDOW_MAX)
                continue
            if window > _WINDOW_MIN:
                window //= 2
                continue
        position = min(side.position for side in (one, two) if side.left is not None)
        yield one.take(position), two.take(position)


def _equal_count(left: Any, other_left: Any, window: int) -> int:
    """How many of the first rows can be left out, as they are equal and of whole positions; 0 when some differ."""
    count: int = min(window, left.num_rows, other_left.num_rows)
    if not left.slice(0, count).equals(other_left.slice(0, count)):
        return 0
    positions = left.column("log_position")
    last = positions[count - 1]
    while count > 0 and positions[count - 1] == last:  # more rows of that position may follow
        count -= 1
    return count


class _Rows:
    """The rows of a replay that are still to be compared."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows > 0)  # what is filtered may be without rows
        self.left: Any = next(self._batches, None)
        """The rest of the batch; None at the end."""

    @property
    def position(self) -> int:
        """The log position of the next row."""
        position: int = self.left.column("log_position")[0].as_py()
        return position

    def skip(self, count: int) -> None:
        """Leave out the next rows."""
        self.left = self.left.slice(count) if count < self.left.num_rows else next(self._batches, None)

    def take(self, position: int) -> list[_Row]:
        """The next rows, as far as they have this log position."""
        found: list[_Row] = []
        while self.left is not None and self.position == position:
            found += self.left.slice(0, 1).to_pylist()
            self.skip(1)
        return found


def _differences(rows: Sequence[_Row], other_rows: Sequence[_Row]) -> Iterator[_Row]:
    """Rows of a comparison at one log position."""
    if rows == other_rows:
        return
    by_key, other_by_key = _by_key(rows), _by_key(other_rows)
    for key in dict.fromkeys([*by_key, *other_by_key]):
        for occurrence, (one, two) in enumerate(zip_longest(by_key.get(key, ()), other_by_key.get(key, ()))):
            if one is None or two is None or any(one[name] != two[name] for name in COMPARED):
                yield _difference(one, two, occurrence)


def _by_key(rows: Sequence[_Row]) -> dict[tuple[Any, ...], list[_Row]]:
    found: dict[tuple[Any, ...], list[_Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in KEY)].append(row)
    return found


def _difference(one: _Row | None, two: _Row | None, occurrence: int) -> _Row:
    known = one or two or {}
    change = "CHANGED" if one and two else "MISSING" if one else "ADDED"
    row = {name: known[name] for name in ("log_position", "timestamp", *KEY)}
    row |= {"change": change, "occurrence": occurrence}
    row |= {name: one[name] for name in SHOWN if one}
    return row | {f"other_{name}": two[name] for name in SHOWN if two}
