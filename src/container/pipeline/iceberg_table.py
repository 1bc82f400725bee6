"""A table of Iceberg: each batch is one append whose snapshot says which batch of which query it is.

Before a batch is appended, the table's snapshots are searched for it, so that one that Spark repeats after a kill is
not in the table twice. The manifest names the snapshot before the batch: when that one has expired, the batch's own may
have as well, and the ingest is refused.
"""

from __future__ import annotations

import threading
from copy import deepcopy
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from container.errors import ConfigurationError, ContainerError
from container.pipeline.checkpoint import end_of_batch, query_id
from container.pipeline.manifest import MANIFEST_NAME, Batch, Manifest
from container.pipeline.parquet_table import CHECKPOINT_NAME, refuse_another_time
from container.spark.offsets import end_positions, member_keys
from container.spark.options import ANY

_QUERY_ID = "aeron-cluster.query-id"
_BATCH_ID = "aeron-cluster.batch-id"
_PICKED = "source-snapshot-id"


class IcebergWriter:
    """Takes the batches of a streaming query into a table of Iceberg, and keeps its manifest.

    Args:
        spark: a session with Iceberg's jar and the table's catalog.
        state_dir: the directory of the manifest and the checkpoint; who makes this has it locked.
        manifest: of the table, as it was read or made.

    Raises:
        ConfigurationError: the checkpoint of the query whose batches the table has is gone, or is another's; or the
            table is not that of the manifest.
    """

    def __init__(self, spark: SparkSession, state_dir: Path, manifest: Manifest) -> None:
        self._spark = spark
        self._state_dir = state_dir
        self._name = manifest.table or ""
        self._lock = threading.Lock()
        self.manifest = manifest
        snapshots = self._snapshots()
        if manifest.query_id is None:
            # One that was made just before a kill has a snapshot without rows.
            if any(int(one.summary.get("total-records", 0)) > 0 for one in snapshots):
                raise ConfigurationError(
                    f"table={self._name} is not empty and {state_dir} has no manifest of it: give another name"
                )
        elif query_id(state_dir / CHECKPOINT_NAME) != manifest.query_id:
            raise ConfigurationError(
                f"state_dir={state_dir} has no {CHECKPOINT_NAME}, or not the one of its ingest, without which nobody "
                "knows where to continue: bring it back, or give another directory and another table"
            )
        if manifest.batch_id >= 0 and self._owner() != manifest.query_id:
            raise ConfigurationError(
                f"table={self._name} is not the one that {state_dir} has the checkpoint of: it was recreated; give "
                "another directory and another table"
            )
        base = manifest.base_snapshot_id
        if manifest.moving is not None and base is not None and all(one.snapshot_id != base for one in snapshots):
            raise ConfigurationError(
                f"table={self._name} has no snapshot {base} any more, so nobody knows whether batch "
                f"{manifest.moving.batch_id} is in it: give another directory and another table"
            )
        self._refuse_set_back(snapshots)
        has = max(map(int, self._batches(snapshots).values()), default=-1)
        last = manifest.batch_id if manifest.moving is None else manifest.moving.batch_id
        if has > last:
            raise ConfigurationError(
                f"table={self._name} has batches of its ingest up to {has}, and {state_dir / MANIFEST_NAME} up to "
                f"{last}: it is older than the table; give another directory and another table"
            )
        self.finish()
        refuse_another_time(state_dir, self.manifest)

    def finish(self) -> None:
        """Note a batch that is in the table and not in the manifest; wait for one that is being stored."""
        with self._lock:
            batch = self.manifest.moving
            if batch is None:
                return
            appended = self._appended(batch.batch_id)
            if appended is not None:
                self._note(batch, appended)

    def store(self, rows: DataFrame, batch_id: int) -> None:
        """Append a batch to the table, unless it is there already: Spark repeats one that it has not noted as done.

        Raises:
            ConfigurationError: the table was set back to before an earlier batch.
            ContainerError: the append was done, and the table has no snapshot of it.
        """
        with self._lock:
            if batch_id <= self.manifest.batch_id:
                return
            checkpoint = self._state_dir / CHECKPOINT_NAME
            manifest = deepcopy(self.manifest)
            manifest.query_id = query_id(checkpoint)
            whole = self._with_all_columns(rows)
            self._prepare(whole, manifest.query_id or "")
            offset = end_of_batch(checkpoint, batch_id)
            member_ids = {key: member_id for member_id, key in member_keys(offset).items()}
            batch = Batch(batch_id, {}, end_positions(offset), member_ids)
            snapshots = self._snapshots()
            self._refuse_set_back(snapshots)
            if self.manifest.moving is None:
                # The newest that there is: those before it expire first.
                newest = max(snapshots, key=lambda one: one.committed_at, default=None)
                manifest.base_snapshot_id = None if newest is None else newest.snapshot_id
            manifest.moving = batch
            manifest.write(self._state_dir)
            self.manifest = manifest
            appended = self._appended(batch_id)
            if appended is None:
                self._append(whole, batch_id)
                appended = self._appended(batch_id)
            if appended is None:
                raise ContainerError(f"table={self._name}: batch {batch_id} was appended and has no snapshot")
            self._note(batch, appended)

    def _append(self, rows: DataFrame, batch_id: int) -> None:
        (
            rows.writeTo(self._name)
            .option(f"snapshot-property.{_QUERY_ID}", self.manifest.query_id or "")
            .option(f"snapshot-property.{_BATCH_ID}", str(batch_id))
            .append()
        )

    def _snapshots(self) -> list[Row]:
        """The table's snapshots; none where there is no table."""
        if not self._spark.catalog.tableExists(self._name):
            return []
        self._spark.catalog.refreshTable(self._name)
        return self._spark.table(f"{self._name}.snapshots").collect()

    def _refuse_set_back(self, snapshots: list[Row]) -> None:
        """Refuse a table that was rolled back to before a batch: it has the batch's snapshot, and lacks its rows."""
        batches = self._batches(snapshots)
        if not batches:
            return
        rows = self._spark.table(f"{self._name}.history").where("not is_current_ancestor").collect()
        away = {row.snapshot_id for row in rows}
        # Rows that cherrypick_snapshot applied again behind those of others have another snapshot.
        picked = {one.summary.get(_PICKED) for one in snapshots if one.snapshot_id not in away}
        lost = sorted(int(batches[one]) for one in away & batches.keys() if str(one) not in picked)
        if lost:
            raise ConfigurationError(
                f"table={self._name} was set back to before batch {lost[0]} of its ingest: set it forward again, or "
                "give another directory and another table"
            )

    def _batches(self, snapshots: list[Row]) -> dict[int, str]:
        """The batch of each snapshot that is one of this query's; none before it has begun."""
        query = self.manifest.query_id
        return {
            one.snapshot_id: one.summary[_BATCH_ID]
            for one in snapshots
            if query is not None and one.summary.get(_QUERY_ID) == query
        }

    def _appended(self, batch_id: int) -> Row | None:
        for snapshot in self._snapshots():
            of = snapshot.summary
            if (of.get(_QUERY_ID), of.get(_BATCH_ID)) == (self.manifest.query_id, str(batch_id)):
                return snapshot
        return None

    def _owner(self) -> str | None:
        """The query whose table it is; None when it is nobody's, or there is none."""
        if not self._spark.catalog.tableExists(self._name):
            return None
        rows = self._spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()
        return {row.key: str(row.value) for row in rows}.get(_QUERY_ID)

    def _prepare(self, rows: DataFrame, query: str) -> None:
        """Make the table, add columns that are new, and say whose it is; refuse that of another ingest."""
        if not self._spark.catalog.tableExists(self._name):
            catalog, *namespace, _ = self._name.split(".")
            if namespace:
                self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{'.'.join(namespace)}")
            columns = [f.col(name) for name in self.manifest.partition_by]
            empty = self._spark.createDataFrame([], _nullable(rows.schema))
            # Whose it is comes with the table: another ingest that begins now must not find one that is nobody's.
            made = empty.writeTo(self._name).using("iceberg").tableProperty(_QUERY_ID, query)
            made.partitionedBy(*columns).create()
        known = set(self._spark.table(self._name).columns)
        for name, kind in rows.dtypes:
            if name not in known:
                self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMN `{name}` {kind}")
        owner = self._owner()
        if owner not in (None, query):
            raise ConfigurationError(f"table={self._name} is that of another ingest: give another name")
        if owner is None:
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('{_QUERY_ID}' = '{query}')")

    def _with_all_columns(self, rows: DataFrame) -> DataFrame:
        missing = [column for column in self.manifest.columns if column.name not in rows.columns]
        return rows.withColumns({column.name: f.lit(None).cast(column.type) for column in missing}) if missing else rows

    def _note(self, batch: Batch, appended: Row) -> None:
        """Take a batch that is in the table into the manifest."""
        manifest = deepcopy(self.manifest)
        manifest.add_positions(batch)
        manifest.row_count += int(appended.summary.get("added-records", 0))
        manifest.file_count += int(appended.summary.get("added-data-files", 0))
        rows = self._rows_of(appended)
        damaged = rows.where("error is not null").select("member_id", "log_position", "error").collect()
        manifest.error_row_count += len(damaged)
        manifest.add_damage(batch, [row.asDict() for row in damaged])
        for key, member_id in batch.member_ids.items():
            for gap in manifest.members[key].gaps:
                if gap.end_position is None:
                    behind = rows.where(f.col("error").isNull() & (f.col("begin_position") >= gap.known_position))
                    if key != ANY:
                        is_of_member = (
                            f.col("member_id").isNull() if member_id is None else f.col("member_id") == member_id
                        )
                        behind = behind.where(is_of_member)
                    gap.end_position = behind.agg(f.min("begin_position")).collect()[0][0]
        manifest.moving = None
        manifest.base_snapshot_id = appended.snapshot_id
        manifest.write(self._state_dir)
        self.manifest = manifest

    def _rows_of(self, appended: Row) -> DataFrame:
        """The rows that one snapshot has added."""
        reader = self._spark.read.format("iceberg")
        if appended.parent_id is None:
            return reader.option("snapshot-id", appended.snapshot_id).load(self._name)
        return (
            reader.option("start-snapshot-id", appended.parent_id)
            .option("end-snapshot-id", appended.snapshot_id)
            .load(self._name)
        )


def _nullable(columns: StructType) -> StructType:
    """The columns as a table has them that may get others: none is required."""
    return StructType([StructField(column.name, column.dataType) for column in columns])
