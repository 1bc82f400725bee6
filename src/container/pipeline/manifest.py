"""The contents of a table: its columns, the log positions of each member in it, the gaps, the rows of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq

from container.common.regular_files import read_regular
from container.errors import ContainerError
from container.spark.options import ANY

MANIFEST_NAME = "_manifest.json"
PARTITION_COLUMNS = ("cluster", "date", "term")
HOUR_COLUMN = "hour"
"""A column of tables that are partitioned by it, and of no others."""
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""The value of a directory that stands for null."""
PARQUET = "parquet"

GAP_LIMIT = 1_000
"""How many gaps a manifest has of a member at most; the last one reaches over all damage behind it."""

_VERSION = 2
_LENGTH_MAX = 1024**3


class PositionRange(msgspec.Struct, frozen=True):
    """Log positions from ``begin_position`` on, up to and without ``end_position``."""

    begin_position: int
    end_position: int


class Gap(msgspec.Struct):
    """Log positions of which the table has no rows, and why; ``end_position`` is None while nothing follows."""

    begin_position: int
    end_position: int | None
    reason: str
    last_position: int | None = None
    """The beginning of the last damaged place, for a gap over several of them with rows between."""

    @property
    def known_position(self) -> int:
        """Up to where it reaches at least: it ends with the first row from here on."""
        return self.begin_position if self.last_position is None else self.last_position


class MemberPositions(msgspec.Struct):
    """The part of one member's log that the table has."""

    start_position: int
    """Where the archive's recording began when the ingest began."""
    end_position: int
    """Up to where all was read."""
    gaps: list[Gap] = []
    covered: list[PositionRange] = []
    """The ranges between the gaps; made by :meth:`cover`."""

    def add_gaps(self, damage: Iterable[tuple[int, str]]) -> None:
        """Take in damage that a batch has found: where it begins, and what it is. Its gaps are open."""
        for position, reason in sorted(damage):
            if len(self.gaps) < GAP_LIMIT:
                self.gaps.append(Gap(position, None, reason))
                continue
            last = self.gaps[-1]
            if last.last_position is None:
                last.reason += f"; this gap is the last of {GAP_LIMIT:,} and reaches over all damage behind it"
            last.end_position, last.last_position = None, max(last.known_position, position)

    def cover(self) -> None:
        """Make :attr:`covered` of the positions and the gaps."""
        self.covered, begin = [], self.start_position
        for gap in sorted(self.gaps, key=lambda one: one.begin_position):
            if gap.begin_position > begin:
                self.covered.append(PositionRange(begin, gap.begin_position))
            begin = max(begin, self.end_position if gap.end_position is None else gap.end_position)
        if begin < self.end_position:
            self.covered.append(PositionRange(begin, self.end_position))


class TablePartition(msgspec.Struct):
    """The rows with one cluster, date, hour and leadership term; what is null or no partition is None."""

    cluster: str
    date: str | None
    term: int | None
    file_count: int = 0
    row_count: int = 0
    first_log_position: int | None = None
    last_log_position: int | None = None
    hour: int | None = None


class TableColumn(msgspec.Struct, frozen=True):
    """A column of the table's files: its name, its type as Spark says it, and whether it is a decoder's."""

    name: str
    type: str
    is_payload: bool


class Batch(msgspec.Struct):
    """A micro-batch whose files are written and not all in their place yet."""

    batch_id: int
    files: dict[str, str]
    """By where a file was written, where it belongs; both relative to the table's directory."""
    positions: dict[str, int]
    """Up to where each member was read, by its key."""
    member_ids: dict[str, int | None]
    """The id in the rows of each member, by its key."""


class Manifest(msgspec.Struct, kw_only=True):
    """The manifest of a table, kept in its file ``_manifest.json``."""

    version: int = _VERSION
    """The version of the manifest's format."""
    cluster: str
    """The name of the cluster in the table."""
    view: str
    """The view whose rows the table has."""
    decoder: str | None
    """The decoder of payloads; ``None`` without one."""
    members: dict[str, MemberPositions]
    """The position up to which each member was read, by its key."""
    table_format: str = PARQUET
    """The format of the table: ``parquet``, ``delta`` or ``iceberg``."""
    table: str | None = None
    """The name of a table that is not in this directory."""
    partition_by: tuple[str, ...] = PARTITION_COLUMNS
    """The columns that divide the table."""
    columns: list[TableColumn] = []
    """Columns of the files, without those of the directories; files that are older than a column do not have it."""
    query_id: str | None = None
    """The id of the query whose batches these are, from its checkpoint."""
    batch_id: int = -1
    """The last micro-batch that is in here."""
    file_count: int = 0
    """The number of data files."""
    row_count: int = 0
    """The number of rows."""
    error_row_count: int = 0
    """The number of rows that report damage."""
    partitions: list[TablePartition] = []
    """The partitions, each with its counts and positions."""
    moving: Batch | None = None
    """The batch that was on its way into the table when this was written."""
    base_snapshot_id: int | None = None
    """The snapshot of an Iceberg table before that batch."""

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that the table has besides those of the view and the decoder."""
        return (*PARTITION_COLUMNS, HOUR_COLUMN) if HOUR_COLUMN in self.partition_by else PARTITION_COLUMNS

    def add(self, table: Path, batch: Batch) -> list[dict[str, Any]]:
        """Take in a batch whose files are in their place; return the rows in it that tell of damage."""
        self.add_positions(batch)
        return [row for name in batch.files.values() for row in self._add_file(table, table / name)]

    def add_positions(self, batch: Batch) -> None:
        """Take in up to where a batch has read."""
        self.batch_id = batch.batch_id
        for key, position in batch.positions.items():
            member = self.members.setdefault(key, MemberPositions(position, position))
            member.end_position = max(member.end_position, position)

    def add_damage(self, batch: Batch, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in the rows of a batch that tell of damage: their ``member_id``, ``log_position`` and ``error``."""
        keys = {member_id: key for key, member_id in batch.member_ids.items()}
        found: dict[str, list[tuple[int, str]]] = {}
        for row in rows:
            found.setdefault(keys.get(row["member_id"], ANY), []).append((row["log_position"], row["error"]))
        for key, damage in found.items():
            self.members[key].add_gaps(damage)

    def _add_file(self, table: Path, file: Path) -> list[dict[str, Any]]:
        metadata = pq.read_metadata(file)
        partition = self._partition(table, file)
        partition.file_count += 1
        partition.row_count += metadata.num_rows
        self.file_count += 1
        self.row_count += metadata.num_rows
        names = metadata.schema.to_arrow_schema().names
        has_errors = False
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            positions = group.column(names.index("log_position")).statistics
            if positions is not None and positions.has_min_max:
                partition.first_log_position = _least(partition.first_log_position, positions.min)
                partition.last_log_position = -_least(
                    None if partition.last_log_position is None else -partition.last_log_position, -positions.max
                )
            errors = group.column(names.index("error")).statistics
            has_errors |= errors is None or errors.null_count != group.num_rows
        if not has_errors:
            return []
        rows = pq.read_table(file, columns=["member_id", "log_position", "error"], partitioning=None).to_pylist()
        damaged = [row for row in rows if row["error"] is not None]
        self.error_row_count += len(damaged)
        return damaged

    def _partition(self, table: Path, file: Path) -> TablePartition:
        values = partition_values(file.relative_to(table))
        term, hour = values.get("term"), values.get(HOUR_COLUMN)
        key = (
            values.get("cluster", self.cluster) or "",
            values.get("date"),
            None if term is None else int(term),
            None if hour is None else int(hour),
        )
        for partition in self.partitions:
            if (partition.cluster, partition.date, partition.term, partition.hour) == key:
                return partition
        partition = TablePartition(*key[:3], hour=key[3])
        self.partitions.append(partition)
        return partition

    def write(self, table: Path) -> Path:
        """Replace the manifest's file; it is whole at any time."""
        for member in self.members.values():
            member.cover()
        path = table / MANIFEST_NAME
        fresh = path.with_suffix(".new")
        self.partitions.sort(key=_place)
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        fresh.replace(path)
        return path


def partition_values(file: Path) -> dict[str, str | None]:
    """The values in Hive's directories of a file's relative path, by column; a null is None."""
    names = dict(part.split("=", 1) for part in file.parts[:-1] if "=" in part)
    return {name: None if text == NULL_DIRECTORY else unquote(text) for name, text in names.items()}


def _place(one: TablePartition) -> tuple[str, str, int, int]:
    return one.cluster, one.date or "", -1 if one.hour is None else one.hour, -1 if one.term is None else one.term


def _least(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)


def read_manifest(table: Path) -> Manifest | None:
    """The manifest of a table; None when it has none.

    Raises:
        ContainerError: the file is not a manifest, or has another version.
    """
    path = table / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        manifest = msgspec.json.decode(read_regular(path, _LENGTH_MAX), type=Manifest)
    except msgspec.DecodeError as error:
        raise ContainerError(f"{path} is not a manifest: {error}") from None
    if manifest.version != _VERSION:
        raise ContainerError(f"{path} has version {manifest.version}, only {_VERSION} is known")
    return manifest
