"""Record batches of the columns that are wanted, made of decoded columns or of rows, and small ones made one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from container.errors import RecordingError
from container.recordings.arrow import arrow_type, as_times, import_pyarrow
from container.recordings.views import EVENT_TIME, Column, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65536
BATCH_BYTES = 16 * 1024 * 1024


class BatchMaker:
    """Makes record batches of the wanted columns in their order; some have one value throughout.

    Args:
        columns: those that are wanted.
        constants: what is the same for all rows, by column.
        times: the column of timestamps of which times are made, and their unit; None when no times are wanted.
    """

    def __init__(
        self, columns: Sequence[Column], constants: dict[str, Any], times: tuple[str, str] | None = None
    ) -> None:
        self._arrow = import_pyarrow()
        self._names = [column.name for column in columns]
        self.columns = {column.name: column.type for column in columns if column.name != EVENT_TIME.name}
        self.constants = constants
        self._schema = schema_of(columns)
        self._times = times
        if times is not None:
            self.columns.setdefault(times[0], "int64")

    def varying(self) -> dict[str, str]:
        """The columns that are read, without those that have one value throughout."""
        return {name: kind for name, kind in self.columns.items() if name not in self.constants}

    def decoded(self, known: Collection[str]) -> dict[str, str]:
        """Those of them that a decoder knows; from now on the others are null throughout."""
        self.constants |= {name: None for name in self.varying() if name not in known}
        return self.varying()

    def from_arrays(self, arrays: dict[str, Any], rows: int) -> pa.RecordBatch:
        for name, value in self.constants.items():
            if name in self.columns:
                scalar = self._arrow.scalar(value, arrow_type(self.columns[name]))
                arrays[name] = self._arrow.repeat(scalar, rows)
        if self._times is not None:
            timestamp, unit = self._times
            arrays[EVENT_TIME.name] = as_times(arrays[timestamp], unit)
        if not self._names:
            # Rows without columns: only their number matters.
            return self._arrow.RecordBatch.from_struct_array(self._arrow.array([{}] * rows, self._arrow.struct([])))
        return self._arrow.RecordBatch.from_arrays([arrays[name] for name in self._names], schema=self._schema)

    def from_rows(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        arrays = {
            name: self._arrow.array([row.get(name) for row in rows], arrow_type(kind))
            for name, kind in self.varying().items()
        }
        return self.from_arrays(arrays, len(rows))


def joined(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: small ones cost whoever takes them more than their rows do."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if pending and (rows + batch.num_rows > batch_rows or size + batch.nbytes > BATCH_BYTES):
                yield _one_batch(pending)
                pending, rows, size = [], 0, 0
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    except RecordingError:
        if pending:
            yield _one_batch(pending)
        raise
    if pending:
        yield _one_batch(pending)


def _one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    arrow = import_pyarrow()
    first = batches[0]
    if len(batches) == 1:
        return first
    if not first.schema.names:
        rows = sum(batch.num_rows for batch in batches)
        return arrow.RecordBatch.from_struct_array(arrow.array([{}] * rows, arrow.struct([])))
    arrays = [arrow.concat_arrays([batch.column(index) for batch in batches]) for index in range(first.num_columns)]
    return arrow.RecordBatch.from_arrays(arrays, schema=first.schema)
