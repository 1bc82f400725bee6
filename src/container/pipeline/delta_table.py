"""A table of Delta Lake: Spark writes a batch's files, and one commit of delta-rs has them all and its number.

The commit has the transaction identifier that Delta's own streaming sink uses: the id of the query and the number of
the batch. The table itself so says which batches it has, and one that is repeated is not committed again. This needs no
jar, and works with any Spark.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from container.errors import ConfigurationError, ContainerError
from container.pipeline.manifest import MANIFEST_NAME, Batch, Manifest, partition_values
from container.pipeline.parquet_table import TableWriter

_STATISTICS = ("log_position", "timestamp")
"""The columns whose bounds a reader gets, to leave files out."""
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_CONSTRAINT = "delta.constraints."
_COMMITS_MAX = 1_000
"""How many of the last commits are looked at for one that set the table back, when an ingest begins."""

try:
    from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction
except ImportError:
    _IS_INSTALLED = False
else:
    _IS_INSTALLED = True


def require_deltalake() -> None:
    """Raise ConfigurationError without the package that commits.

    Raises:
        ConfigurationError: it is not installed.
    """
    if not _IS_INSTALLED:
        raise ConfigurationError('delta needs the package deltalake: pip install "aeron-cluster-container[delta]"')


def plain_text(error: Exception) -> str:
    """An error text of Delta's library in one line: for a system's error the library makes a tree in colors."""
    return " ".join(_COLORS.sub("", str(error)).split())


class DeltaWriter(TableWriter):
    """Takes the batches of a streaming query into a table of Delta Lake.

    Raises:
        ConfigurationError: as for TableWriter; or the table lacks a batch that its manifest has, as one that was
            recreated or set back does, or the package deltalake is not installed.
    """

    def __init__(self, table: Path, manifest: Manifest) -> None:
        require_deltalake()
        found = _opened(table, manifest) if _is_delta(table) else None
        has = None if found is None else found.transaction_version(manifest.query_id or "")
        if manifest.batch_id >= 0 and (has is None or has < manifest.batch_id):
            raise ConfigurationError(
                f"table={table} has batches of its ingest up to {has}, and its manifest up to {manifest.batch_id}: "
                "it was recreated or set back; give another directory"
            )
        last = manifest.batch_id if manifest.moving is None else manifest.moving.batch_id
        if has is not None and has > last:
            raise ConfigurationError(
                f"table={table} has batches of its ingest up to {has}, and {MANIFEST_NAME} up to {last}: it is older "
                "than the table; bring them back as they were at one time, or give another directory"
            )
        self._version = 0 if found is None else found.version()
        if found is not None:
            _refuse_restored(found, table, manifest, _COMMITS_MAX)
        super().__init__(table, manifest)

    def refuse_later_batches(self) -> None:
        """Need no list of files: the table itself says which batches it has."""

    def prepare(self, rows: DataFrame) -> None:
        """Make the table, or add columns that are new.

        Raises:
            ConfigurationError: somebody has partitioned the table differently, or gave a column another type.
            ContainerError: Delta's library refuses it.
        """
        columns = Schema.from_json(_nullable(rows.schema.jsonValue()))
        try:
            if not _is_delta(self.table):
                DeltaTable.create(str(self.table), columns, partition_by=list(self.manifest.partition_by))
                return
            table = _opened(self.table, self.manifest)
            # Names that differ in capitals are one name to Delta.
            known = {field.name.lower(): field for field in table.schema().fields}
            added = [field for field in columns.fields if field.name.lower() not in known]
            for field in columns.fields:
                has = known.get(field.name.lower(), field)
                if (has.name, _kind(has)) != (field.name, _kind(field)):
                    raise ConfigurationError(
                        f"table={self.table} has a column {has.name!r} of {has.type}, and the ingest writes "
                        f"{field.name!r} of {field.type}: rename that column, or give another directory"
                    )
            if added:
                table.alter.add_columns(added)
        except (DeltaError, OSError) as error:
            raise ContainerError(f"{self.table}: {plain_text(error)}") from error

    def bring_in(self, batch: Batch) -> None:
        """Commit the files of a batch with its number, unless the table has that number.

        Raises:
            ConfigurationError: somebody has partitioned the table differently, or set it back.
            ContainerError: Delta's library refuses the commit.
        """
        query, table = self.manifest.query_id or "", _opened(self.table, self.manifest)
        has = table.transaction_version(query)
        if has is not None and has >= batch.batch_id:
            return
        if table.version() > self._version:
            _refuse_restored(table, self.table, self.manifest, table.version() - self._version)
        self._version = table.version()
        try:
            table.create_write_transaction(
                [self._action(name) for name in batch.files.values()],
                "append",
                table.schema(),
                list(self.manifest.partition_by),
                commit_properties=CommitProperties(app_transactions=[Transaction(query, batch.batch_id)]),
            )
        except (DeltaError, OSError) as error:
            text = plain_text(error)
            raise ContainerError(f"{self.table}: batch {batch.batch_id} is not committed: {text}") from error

    def _action(self, name: str) -> AddAction:
        status = (self.table / name).stat()
        return AddAction(
            name,  # the library encodes it
            status.st_size,
            partition_values(Path(name)),
            int(status.st_mtime * 1000),
            True,
            json.dumps(_statistics(self.table / name)),
        )


def _opened(table: Path, manifest: Manifest) -> DeltaTable:
    """The table, as it is divided by the columns of its manifest: in another one a file's directory would say nothing.

    Raises:
        ConfigurationError: it is divided by others, or has constraints, which each writer has to check.
        ContainerError: Delta's library cannot read it.
    """
    try:
        found = DeltaTable(str(table))
        columns, settings = found.metadata().partition_columns, found.metadata().configuration
    except DeltaError as error:
        raise ContainerError(f"{table}: {error}") from error
    if columns != list(manifest.partition_by):
        raise ConfigurationError(
            f"table={table} is divided by {', '.join(columns) or 'nothing'}, and its ingest divides it by "
            f"{', '.join(manifest.partition_by)}: somebody has recreated it; give another directory"
        )
    constraint = next((name for name in settings if name.startswith(_CONSTRAINT)), None)
    if constraint is not None:
        raise ConfigurationError(
            f"table={table} has the constraint {constraint.removeprefix(_CONSTRAINT)!r}, which an ingest does not "
            "check: drop it, or give another directory"
        )
    return found


def _refuse_restored(found: DeltaTable, table: Path, manifest: Manifest, commits: int) -> None:
    """Refuse a table that was set back to before a batch: it keeps the batch's number, and lacks its rows.

    Raises:
        ConfigurationError: it was, in one of the last commits.
    """
    if all(one.get("operation") != "RESTORE" for one in found.history(commits)):
        return
    query, seen = manifest.query_id or "", found.version()
    for restored in found.history(max(commits, _COMMITS_MAX)):
        # A later restore may have set the table back: versions behind that are not in it.
        if restored.get("operation") != "RESTORE" or restored["version"] > seen:
            continue
        now, then = DeltaTable(str(table)), DeltaTable(str(table))
        try:
            now.load_as_version(restored["version"])
            then.load_as_version(_restored_to(restored["operationParameters"]))
        except DeltaError:
            return  # it is so long ago that the log has no such version any more
        if then.transaction_version(query) != now.transaction_version(query):
            raise ConfigurationError(
                f"table={table} was set back to version {then.version()}, which has batches of its ingest up to "
                f"{then.transaction_version(query)}, from {now.transaction_version(query)}: set it forward again, or "
                "give another directory"
            )
        seen = then.version()


def _restored_to(target: dict[str, Any]) -> int | datetime:
    """The version or the time that a commit has set the table back to: of Spark or of Delta's own library."""
    if target.get("version") is not None:
        return int(target["version"])
    if target.get("datetime") is not None:
        return datetime.fromtimestamp(int(target["datetime"]) / 1000, UTC)
    return datetime.fromisoformat(target["timestamp"]).astimezone()  # Spark writes it without its zone


def _is_delta(table: Path) -> bool:
    return (table / "_delta_log").is_dir() and DeltaTable.is_deltatable(str(table))


def _kind(field: Field) -> Any:
    """A column's type, without the comments that fields in it may have."""
    return json.loads(
        field.type.to_json(), object_hook=lambda part: {name: part[name] for name in part if name != "metadata"}
    )


def _nullable(schema: dict[str, Any]) -> str:
    """Spark's schema as Delta's, which has the same text; files that Spark writes have only what may be null."""
    text = json.dumps(schema)
    for name in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{name}": false', f'"{name}": true')
    return text


def _statistics(file: Path) -> dict[str, Any]:
    metadata = pq.read_metadata(file)
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in _STATISTICS:
            continue
        found = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if found and all(one is not None and one.has_min_max for one in found):
            least[name], most[name] = min(one.min for one in found), max(one.max for one in found)
            nulls[name] = sum(one.null_count for one in found)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
