"""A table that any reader of Parquet can read: Hive's directories of whole files, and no list of files.

A micro-batch is written into a directory of its own. Then the manifest names its files and where each belongs, in one
atomic rename: from then on the batch is decided, and moving its files can be repeated. So after a kill at any place a
batch is either written again or its moves are completed, and each row is in the table once. No path in the table is
absolute.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import IO
from uuid import uuid4

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from container.errors import ConfigurationError
from container.pipeline.checkpoint import end_of_batch, last_finished, query_id
from container.pipeline.manifest import MANIFEST_NAME, Batch, Manifest, TableColumn
from container.spark.offsets import end_positions, member_keys
from container.spark.options import ANY

CHECKPOINT_NAME = "_checkpoint"
SCHEMA_NAME = "_common_metadata"
"""A Parquet file without rows that has all columns of the table, by a name that Spark looks for."""

_STAGING_NAME = "_staging"
_LOCK_NAME = "_lock"
_FILE = re.compile(r"batch-([0-9]+)-[0-9]+\.parquet")


@contextmanager
def locked(table: Path, name: str = _LOCK_NAME, text: str = "another ingest writes into it") -> Iterator[None]:
    """Keep other ingests from a table, or what else takes a lock of that name; it ends with the process, however.

    Raises:
        ConfigurationError: another one has it, as the text says.
    """
    with _opened_lock(table / name) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"table={table}: {text}") from None
        yield


def _opened_lock(path: Path) -> IO[str]:
    try:
        return path.open("w")
    except PermissionError:
        if not path.exists():
            raise
        # One that another user left in a table that both may write: to be read is enough for a lock.
        return path.open()


def refuse_another_time(state_dir: Path, manifest: Manifest) -> None:
    """Refuse a checkpoint from before or after the manifest, as of a backup: Spark would begin the next batch at
    another place than the one up to which the table has the log, so that rows were lost or there twice.

    Args:
        state_dir: the directory of both.
        manifest: what is in the table.

    Raises:
        ConfigurationError: the checkpoint is older or newer.
    """
    checkpoint, batch_id = state_dir / CHECKPOINT_NAME, manifest.batch_id
    finished = last_finished(checkpoint)
    if finished > batch_id:
        raise ConfigurationError(
            f"{checkpoint} has batches up to {finished}, and {MANIFEST_NAME} up to {batch_id}: they are of different "
            "times; bring both back with the table as they were at one time, or give another directory"
        )
    if batch_id < 0:
        return
    is_there = (checkpoint / "offsets" / str(batch_id)).exists()
    ends = end_positions(end_of_batch(checkpoint, batch_id)) if is_there else {}
    known = manifest.members if ends.keys() <= manifest.members.keys() else {}
    if len(ends) == len(manifest.members) == 1:
        known = dict(zip(ends, manifest.members.values(), strict=True))  # the one log has got another name
    same = [max(end, known[key].start_position) == known[key].end_position for key, end in ends.items() if key in known]
    if not is_there or not all(same):
        raise ConfigurationError(
            f"{checkpoint} does not have batch {batch_id} as {MANIFEST_NAME} has it: they are of different times; "
            "bring both back with the table as they were at one time, or give another directory"
        )


class TableWriter:
    """Takes the batches of a streaming query into a table, and keeps its manifest.

    Args:
        table: the table's directory; who makes this has it locked.
        manifest: of the table, as it was read or made.

    Raises:
        ConfigurationError: the checkpoint of the query whose batches the table has is gone, is another's, or is of
            another time than the manifest or the table; or a file of a batch that was on its way in a kill is gone.
    """

    def __init__(self, table: Path, manifest: Manifest) -> None:
        self.table = table
        self._lock = threading.Lock()
        self.manifest = manifest
        if manifest.query_id is not None and query_id(table / CHECKPOINT_NAME) != manifest.query_id:
            raise ConfigurationError(
                f"table={table} has no {CHECKPOINT_NAME}, or not the one of its ingest, without which nobody knows "
                "where to continue: bring it back, or give another directory"
            )
        self.finish()
        refuse_another_time(table, self.manifest)
        self.refuse_later_batches()

    def refuse_later_batches(self) -> None:
        """Refuse a table with batches that its manifest does not have.

        Raises:
            ConfigurationError: it has some, so that their rows would be there twice.
        """
        for file in self.table.rglob("batch-*.parquet"):
            number = _FILE.fullmatch(file.name)
            if number is not None and int(number[1]) > self.manifest.batch_id:
                raise ConfigurationError(
                    f"{file} is of a batch after {self.manifest.batch_id}, the last one that {MANIFEST_NAME} has: it "
                    "is older than the table; bring them back as they were at one time, or give another directory"
                )

    def finish(self) -> None:
        """Bring a batch that was decided into the table; wait for one that is being stored."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        batch = self.manifest.moving
        if batch is None:
            return
        for source, target in batch.files.items():
            path = self.table / target
            path.parent.mkdir(parents=True, exist_ok=True)
            # A file that is gone was moved before a kill.
            if (self.table / source).exists():
                (self.table / source).replace(path)
            if not path.exists():
                raise ConfigurationError(
                    f"{path} of batch {batch.batch_id}, which was on its way into the table in a kill, is gone, as "
                    "after a vacuum: bring it back, or give another directory"
                )
        self.bring_in(batch)
        manifest = deepcopy(self.manifest)
        manifest.add_damage(batch, manifest.add(self.table, batch))
        self._close_gaps(manifest, batch)
        manifest.moving = None
        manifest.write(self.table)
        self.manifest = manifest
        shutil.rmtree(self.table / _STAGING_NAME, ignore_errors=True)

    def store(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch into the table, unless it is there already: Spark repeats one that it has not noted as done."""
        with self._lock:
            if batch_id <= self.manifest.batch_id:
                return
            shutil.rmtree(self.table / _STAGING_NAME, ignore_errors=True)
            # A name of its own: on another machine an executor of a killed query may still write.
            staging = self.table / _STAGING_NAME / uuid4().hex
            # The session of a batch is a copy, of which this changes nothing else. INT96, the default, is obsolete.
            rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            whole = self.with_all_columns(rows)
            self.prepare(whole)
            whole.write.partitionBy(*self.manifest.partition_by).parquet(str(staging))
            checkpoint = self.table / CHECKPOINT_NAME
            manifest = deepcopy(self.manifest)
            manifest.query_id = query_id(checkpoint)
            offset = end_of_batch(checkpoint, batch_id)
            member_ids = {key: member_id for member_id, key in member_keys(offset).items()}
            manifest.moving = Batch(batch_id, self._places(staging, batch_id), end_positions(offset), member_ids)
            manifest.write(self.table)
            self.manifest = manifest
            self._finish()

    def prepare(self, rows: DataFrame) -> None:
        """Make the table ready for rows with these columns; Parquet's needs nothing."""

    def bring_in(self, batch: Batch) -> None:
        """Make a batch whose files are in their place a part of the table, once; Parquet's is that by their names."""
        self._write_schema(batch)

    def with_all_columns(self, rows: DataFrame) -> DataFrame:
        """The rows with the columns that the table has from an earlier decoder; they are null from now on."""
        missing = [column for column in self.manifest.columns if column.name not in rows.columns]
        return rows.withColumns({column.name: f.lit(None).cast(column.type) for column in missing}) if missing else rows

    def _places(self, staging: Path, batch_id: int) -> dict[str, str]:
        """Where the files of a batch belong, by where they were written."""
        files = sorted(staging.rglob("*.parquet"))
        return {
            str(file.relative_to(self.table)): str(
                file.parent.relative_to(staging) / f"batch-{batch_id:08}-{number:04}.parquet"
            )
            for number, file in enumerate(files)
        }

    def _write_schema(self, batch: Batch) -> None:
        """Say which columns the table has: the newest files have all of them."""
        path = self.table / SCHEMA_NAME
        newest = next(iter(batch.files.values()), None)
        if newest is None:
            return
        schema = pq.read_schema(self.table / newest)
        if path.exists() and pq.read_schema(path).equals(schema, check_metadata=True):
            return
        fresh = self.table / f"{SCHEMA_NAME}.new"
        pq.write_metadata(schema, fresh)
        fresh.replace(path)

    def _close_gaps(self, manifest: Manifest, batch: Batch) -> None:
        """Find where gaps end that were open: a batch has only what lies behind all earlier ones."""
        files = [self.table / name for name in batch.files.values()]
        for key, member_id in batch.member_ids.items():
            member = manifest.members[key]
            gaps = [gap for gap in member.gaps if gap.end_position is None]
            if gaps and files:
                is_of_member = _rows_of(member_id) if key != ANY else None
                ends = _positions_behind(files, is_of_member, [gap.known_position for gap in gaps])
                for gap, end in zip(gaps, ends, strict=True):
                    gap.end_position = end


def _rows_of(member_id: int | None) -> ds.Expression:
    column = ds.field("member_id")
    return column.is_null() if member_id is None else column == member_id


def _positions_behind(
    files: Sequence[Path], is_of_member: ds.Expression | None, positions: Sequence[int]
) -> list[int | None]:
    """Where the first message at or behind each log position begins that the files have, of all or of a member."""
    is_wanted = ds.field("error").is_null()
    if is_of_member is not None:
        is_wanted &= is_of_member
    places, none = np.array(positions, np.int64), np.iinfo(np.int64).max
    found = np.full(len(places), none)
    table = ds.dataset([str(file) for file in files], format="parquet")
    for batch in table.to_batches(columns=["begin_position"], filter=is_wanted):
        begins = np.append(np.sort(batch.column(0).drop_null().to_numpy()), none)
        found = np.minimum(found, begins[np.searchsorted(begins, places)])
    return [None if position == none else position for position in found.tolist()]


def merged_columns(table: Path, known: Sequence[TableColumn], now: Sequence[TableColumn]) -> list[TableColumn]:
    """The columns of a table that continues with the present ones: none changes its type or origin, and no new one
    differs from another only in upper and lower case, as Spark would take both for one.

    Raises:
        ConfigurationError: one has.
    """
    columns = {column.name.lower(): column for column in known}
    for column in now:
        before = columns.setdefault(column.name.lower(), column)
        if before.name != column.name:
            raise ConfigurationError(
                f"table={table}: column {column.name!r} was {before.name!r}, and Spark does not distinguish upper from "
                "lower case; give the field its earlier name or another one, or give another directory"
            )
        if before.is_payload != column.is_payload:
            was, becomes = ("the decoder", "the view") if before.is_payload else ("the view", "the decoder")
            raise ConfigurationError(
                f"table={table}: column {column.name!r} came from {was} and would come from {becomes} now; rename the "
                "decoder's field, or give another directory"
            )
        if before.type != column.type:
            raise ConfigurationError(
                f"table={table}: column {column.name!r} has type {before.type} and would have {column.type} now; give "
                "the field another name, or give another directory"
            )
    return list(columns.values())
