"""Ingest into Delta Lake and Iceberg: each row once, whatever was killed when; pairs that do not work are refused."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.table import TableOptimizer
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from container.errors import ConfigurationError, ContainerError
from container.pipeline.compact import compact_delta, compact_iceberg
from container.pipeline.delta_table import DeltaWriter
from container.pipeline.iceberg_table import IcebergWriter
from container.pipeline.ingest import ingest, read_table
from container.pipeline.manifest import Batch, Manifest, read_manifest
from container.pipeline.parquet_table import locked
from container.spark.options import SourceOptions
from container.spark.table_formats import require_name, require_pair, table_format_settings
from tests.spark.written_members import TRANSFER, History, WrittenMember

MINOR = ".".join(pyspark.__version__.split(".")[:2])
NO_LIMITS = "it takes several batches, and Spark 4.1 limits none"
NEEDS_ICEBERG = pytest.mark.skipif(MINOR != "4.1", reason="Iceberg has a jar for Spark 4.1 only")
PROGRAM = Path(__file__).with_name("ingest_program.py")
LIMIT_S = 240
HOURLY = ("date", "hour")


def delta_positions(table: Path) -> list[int]:
    found: list[int] = DeltaTable(str(table)).to_pyarrow_table(columns=["log_position"]).column(0).to_pylist()
    return sorted(found)


def positions_of(member: WrittenMember) -> list[int]:
    return sorted(message["log_position"] for message in member.messages)


def run_ingest(
    member: WrittenMember, directory: Path, table_format: str, jars: list[str], kill: tuple[int, str] | None = None
) -> dict[str, Any] | None:
    """Run the program; what it prints, or None when it was killed as it should be."""
    given = {
        "path": str(member.base_dir),
        "table": "local.logs.messages" if table_format == "iceberg" else str(directory / "delta"),
        "format": table_format,
        "state_dir": str(directory / "state"),
        "warehouse": str(directory / "warehouse"),
        "partition_by": HOURLY,
        "jars": jars,
        "kill": kill,
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=directory,
    )
    assert done.returncode == (0 if kill is None else -signal.SIGKILL), done.stderr[-5000:]
    if kill is not None:
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(MINOR == "4.1", reason=NO_LIMITS)
def test_a_delta_table_has_each_row_once_and_is_compacted(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    table, options = tmp_path / "table", SourceOptions((str(member.base_dir),), max_bytes_per_batch=100_000)
    # The cluster's name is a directory's, with characters that stand for themselves neither there nor in Delta's log.
    manifest = ingest(
        spark, options, table, table_format="delta", partition_by=("cluster", *HOURLY), cluster="a: b/%2F"
    )
    assert manifest.row_count == len(member.messages)
    assert delta_positions(table) == positions_of(member)
    read = DeltaTable(str(table))
    assert read.metadata().partition_columns == ["cluster", *HOURLY]
    assert set(read.to_pyarrow_table(columns=["cluster"]).column(0).to_pylist()) == {"a: b/%2F"}
    assert read.transaction_version(manifest.query_id or "") == manifest.batch_id
    before = len(read.file_uris())
    assert before == manifest.file_count > 1
    # A row that a user deletes stays deleted, and compaction changes no row.
    gone = positions_of(member)[3]
    read.delete(f"log_position = {gone}")
    compact_delta(table)
    assert len(DeltaTable(str(table)).file_uris()) < before
    ingest(spark, options, table, table_format="delta", cluster="a: b/%2F")
    assert delta_positions(table) == [one for one in positions_of(member) if one != gone]


@pytest.mark.slow
@pytest.mark.skipif(MINOR != "4.3", reason="deltalake commits on each Spark; Spark 4.1 limits no batches")
def test_a_delta_ingest_that_is_killed_at_any_place_has_each_row_once(member: WrittenMember, tmp_path: Path) -> None:
    for kill in ((0, "before"), (1, "after")):
        run_ingest(member, tmp_path, "delta", [], kill)
        manifest = read_manifest(tmp_path / "delta")
        assert manifest is not None
        assert manifest.moving is not None, "it was killed with a batch on its way"
    found = run_ingest(member, tmp_path, "delta", [])
    assert found is not None
    assert found["row_count"] == len(member.messages)
    assert delta_positions(tmp_path / "delta") == positions_of(member)


def test_a_delta_table_that_somebody_has_divided_or_typed_anew_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    history, table = History(tmp_path / "member"), tmp_path / "table"
    history.begin_term()
    options = SourceOptions((str(history.finish().base_dir),), view="messages")
    ingest(spark, options, table, table_format="delta", cluster="main")
    rows = DeltaTable(str(table)).to_pyarrow_table()
    history.message(1, TRANSFER.pack(1, 1))
    history.finish()
    changed = rows.set_column(rows.schema.get_field_index("flags"), "flags", rows["flags"].cast("string"))
    for new, by, error in (
        (rows, ["template_id"], "is divided by template_id, and its ingest divides it by cluster, date, term"),
        (changed, ["cluster", "date", "term"], "has a column 'flags' of .*string.*, and the ingest writes 'flags' of"),
    ):
        write_deltalake(str(table), new, mode="overwrite", schema_mode="overwrite", partition_by=by)
        with pytest.raises((ConfigurationError, ContainerError), match=error):
            ingest(spark, options, table, table_format="delta", cluster="main")
        assert DeltaTable(str(table)).to_pyarrow_table().num_rows == rows.num_rows


def delta_batches(table: Path, count: int) -> Manifest:
    """Make a table of Delta Lake of so many batches, and the manifest that an ingest of them has."""
    for batch_id in range(count):
        write_deltalake(
            str(table),
            pa.table({"log_position": [batch_id], "date": ["2026-01-01"]}),
            mode="append",
            partition_by=["date"],
            commit_properties=CommitProperties(app_transactions=[Transaction("query", batch_id)]),
        )
    return Manifest(
        cluster="main",
        view="messages",
        decoder=None,
        members={},
        table_format="delta",
        partition_by=("date",),
        query_id="query",
        batch_id=count - 1,
    )


def test_a_delta_table_that_was_set_back_to_before_a_batch_or_has_a_constraint_is_refused(tmp_path: Path) -> None:
    manifest = delta_batches(tmp_path, 2)
    table = DeltaTable(str(tmp_path))
    table.delete("log_position = 0")
    # A table that has each batch is taken, and its checkpoint is looked for.
    for version, error in (
        (1, "has no _checkpoint"),
        (0, "was set back to version 0, which has batches of its ingest up to 0, from 1: set it forward again"),
        (1, "has no _checkpoint"),
    ):
        table.restore(version)
        with pytest.raises(ConfigurationError, match=error):
            DeltaWriter(tmp_path, manifest)
    DeltaTable(str(tmp_path)).alter.add_constraint({"late": "log_position >= 0"})
    with pytest.raises(ConfigurationError, match="has the constraint 'late', which an ingest does not check: drop it"):
        DeltaWriter(tmp_path, manifest)


def test_a_delta_table_may_be_set_back_to_a_time(tmp_path: Path) -> None:
    manifest = delta_batches(tmp_path, 2)
    table = DeltaTable(str(tmp_path))
    table.delete("log_position = 0")
    history = tmp_path / "_delta_log"
    for version in range(3):
        seconds = 1_700_000_000 + 60 * version
        os.utime(history / f"{version:020}.json", (seconds, seconds))
    for seconds, error in ((1_700_000_090, "has no _checkpoint"), (1_700_000_030, "was set back to version 0, which")):
        table.restore(datetime.fromtimestamp(seconds, UTC))
        with pytest.raises(ConfigurationError, match=error):
            DeltaWriter(tmp_path, manifest)


def test_a_delta_table_that_was_set_back_to_a_version_that_lacked_a_batch_is_refused(tmp_path: Path) -> None:
    manifest = delta_batches(tmp_path, 2)
    table = DeltaTable(str(tmp_path))
    for version in (0, 1, 2):
        table.restore(version)
        table.update_incremental()
    assert table.to_pyarrow_table()["log_position"].to_pylist() == [0]
    with pytest.raises(ConfigurationError, match="was set back to version 0, which has batches of its ingest up to 0"):
        DeltaWriter(tmp_path, manifest)


def test_two_compactions_at_once_do_not_double_rows_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta_batches(tmp_path, 2)
    with locked(tmp_path, "_compaction_lock"), pytest.raises(ConfigurationError, match="another compaction of it runs"):
        compact_delta(tmp_path)
    compact = TableOptimizer.compact

    def compact_second(optimizer: TableOptimizer) -> Any:
        compact(DeltaTable(str(tmp_path)).optimize)
        return compact(optimizer)

    monkeypatch.setattr(TableOptimizer, "compact", compact_second)
    with pytest.raises(ContainerError, match=r"rows are there twice since version 3: set the table back to version 2"):
        compact_delta(tmp_path)
    DeltaTable(str(tmp_path)).restore(2)
    assert delta_positions(tmp_path) == [0, 1]
    monkeypatch.undo()
    assert compact_delta(tmp_path) == (0, 0)


def test_a_compaction_of_text_with_line_separators_of_unicode_is_done(tmp_path: Path) -> None:
    for text in ("a\u2028b", "c\x85d"):
        write_deltalake(str(tmp_path), pa.table({"text": [text]}), mode="append")
    assert compact_delta(tmp_path) == (2, 1)


def do_behind_a_compaction(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> None:
    """Let something happen to a table of Delta Lake when its library has compacted it, before we look at it again."""
    compact = TableOptimizer.compact

    def compact_and_run(optimizer: TableOptimizer) -> Any:
        found = compact(optimizer)
        run()
        return found

    monkeypatch.setattr(TableOptimizer, "compact", compact_and_run)


def test_a_compaction_whose_commit_is_gone_from_the_log_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta_batches(tmp_path, 2)

    def clean_up() -> None:
        delta_batches(tmp_path, 1)
        DeltaTable(str(tmp_path)).create_checkpoint()
        (tmp_path / "_delta_log" / f"{2:020}.json").unlink()

    do_behind_a_compaction(monkeypatch, clean_up)
    with pytest.raises(ContainerError, match="it is compacted, but version 2 is gone from its log already"):
        compact_delta(tmp_path)


def test_two_that_delete_rows_of_one_file_beside_a_compaction_are_no_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta_batches(tmp_path, 2)

    def delete() -> None:
        first = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 9, "cardinality": 1}
        for version, vector in ((3, None), (4, first)):
            remove = {"remove": {"path": "other.parquet", "dataChange": True, "deletionVector": vector}}
            (tmp_path / "_delta_log" / f"{version:020}.json").write_text(json.dumps(remove) + "\n")

    do_behind_a_compaction(monkeypatch, delete)
    assert compact_delta(tmp_path) == (2, 1)


def test_a_lock_that_another_user_left_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked(tmp_path, "_compaction_lock"):
        pass
    opened = Path.open

    def open_to_read(path: Path, mode: str = "r") -> Any:
        if mode != "r":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", open_to_read)
    with (
        locked(tmp_path, "_compaction_lock"),
        pytest.raises(ConfigurationError, match="another ingest writes"),
        locked(tmp_path, "_compaction_lock"),
    ):
        pass
    with pytest.raises(PermissionError), locked(tmp_path, "_no_lock"):
        pass


def test_a_disk_that_is_full_is_one_sentence(
    member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Generic LocalFileSystem error\n   \x1b[31m>\x1b[0m No space left on device (os error 28)\n"
    full = OSError(text)
    plain = r"Generic LocalFileSystem error > No space left on device \(os error 28\)$"

    def refuse(*_: object, **__: object) -> None:
        raise full

    manifest = delta_batches(tmp_path, 1)
    monkeypatch.setattr(TableOptimizer, "compact", refuse)
    with pytest.raises(ContainerError, match=f"^{tmp_path}: {plain}"):
        compact_delta(tmp_path)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    writer: Any = object.__new__(DeltaWriter)
    writer.table, writer.manifest, writer._version = tmp_path, manifest, 0
    with pytest.raises(ContainerError, match=f"batch 1 is not committed: {plain}"):
        writer.bring_in(Batch(1, {}, {}, {}))
    monkeypatch.setattr("container.pipeline.ingest._go_on", refuse)
    session: Any = None
    with pytest.raises(ContainerError, match=r"table=.*/new: no space is left on the disk .*: make room and start"):
        ingest(session, SourceOptions((str(member.base_dir),)), tmp_path / "new", cluster="main")


def test_a_delta_table_whose_structs_have_comments_on_their_fields_is_taken(tmp_path: Path) -> None:
    def columns(**metadata: str) -> StructType:
        price = StructField("price", LongType(), metadata=metadata)
        return StructType([StructField("date", StringType()), StructField("order", StructType([price]))])

    manifest = Manifest(cluster="main", view="messages", decoder=None, members={}, partition_by=("date",))
    DeltaTable.create(str(tmp_path), Schema.from_json(columns(comment="in cents").json()), partition_by=["date"])
    rows: Any = SimpleNamespace(schema=columns())
    DeltaWriter(tmp_path, manifest).prepare(rows)


def test_a_delta_table_that_is_not_of_its_checkpoint_is_refused(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    table, options = tmp_path / "table", SourceOptions((str(member.base_dir),), view="timers")
    ingest(spark, options, table, table_format="delta", cluster="main")
    with locked(table), pytest.raises(ConfigurationError, match="another ingest writes into it"):
        ingest(spark, options, table, table_format="delta", cluster="main")
    with pytest.raises(ConfigurationError, match="was made with table_format='delta', not 'parquet'"):
        ingest(spark, options, table, cluster="main")
    log = (table / "_delta_log").rename(tmp_path / "log")
    with pytest.raises(ConfigurationError, match=r"up to None, and its manifest up to 0: it was recreated"):
        ingest(spark, options, table, table_format="delta", cluster="main")
    log.rename(table / "_delta_log")
    shutil.rmtree(table / "_checkpoint")
    with pytest.raises(ConfigurationError, match="has no _checkpoint, or not the one of its ingest"):
        ingest(spark, options, table, table_format="delta", cluster="main")
    (table / "_manifest.json").unlink()
    with pytest.raises(ConfigurationError, match=r"is not empty and has no _manifest\.json"):
        ingest(spark, options, table, table_format="delta", cluster="main")


def test_a_parquet_table_is_divided_by_date_and_hour(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    table, options = tmp_path / "table", SourceOptions((str(member.base_dir),))
    with pytest.raises(ConfigurationError, match="partition_by='day': must be one or more of cluster, date, hour"):
        ingest(spark, options, table, partition_by=["day"], cluster="main")
    manifest = ingest(spark, options, table, partition_by=HOURLY, cluster="main")
    assert {(one.date, one.hour) for one in manifest.partitions} == {("2023-11-14", 22)}
    rows = read_table(spark, table)
    assert sorted(row.log_position for row in rows.where("hour = 22").collect()) == positions_of(member)
    assert {(row.cluster, row.term) for row in rows.select("cluster", "term").collect()} == {("main", 0), ("main", 1)}
    with pytest.raises(ConfigurationError, match="was made with partition_by="):
        ingest(spark, options, table, partition_by=["date"], cluster="main")


def test_a_pair_that_does_not_work_is_refused_in_one_sentence() -> None:
    for table_format, good in (("delta", ("4.1", "4.2")), ("iceberg", ("4.1",))):
        if MINOR in good:
            require_pair(table_format)
            continue
        with pytest.raises(
            ConfigurationError,
            match=f"{table_format} has no jar that works with Spark {pyspark.__version__}; pairs that work are "
            "delta with Spark 4.1, delta with Spark 4.2, iceberg with Spark 4.1",
        ):
            table_format_settings([table_format])


@pytest.mark.parametrize("name", ["messages", "local.", "local.a b", "local.x'; DROP TABLE y", ""])
def test_a_name_of_a_table_of_iceberg_has_its_catalog(name: str) -> None:
    with pytest.raises(ConfigurationError, match="a table of iceberg has a name with its catalog"):
        require_name(name)
    require_name("local.logs.messages")


@pytest.mark.skipif(MINOR == "4.1", reason="Spark 4.1 has Iceberg")
def test_an_ingest_into_iceberg_is_refused_before_anything_is_made(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    options = SourceOptions((str(member.base_dir),))
    with pytest.raises(ConfigurationError, match="iceberg has no jar that works with Spark"):
        ingest(spark, options, "local.logs.x", table_format="iceberg", state_dir=tmp_path / "state", cluster="main")
    with pytest.raises(ConfigurationError, match="iceberg has no jar that works with Spark"):
        compact_iceberg(lambda: spark, "local.logs.x")
    assert list(tmp_path.iterdir()) == []


def test_a_compaction_that_iceberg_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "An error occurred while calling o54.sql.\n: java.lang.RuntimeException: Couldn't load table 'logs.x'\n"
        "\tat org.apache.iceberg.spark.procedures.BaseProcedure.loadSparkTable(BaseProcedure.java:175)\n"
        "Caused by: org.apache.spark.sql.catalyst.analysis.NoSuchTableException: The table logs.x is not there\n"
    )

    def refuse(_: str) -> None:
        raise Py4JJavaError.__new__(Py4JJavaError)

    monkeypatch.setattr(Py4JJavaError, "__str__", lambda _: text)
    monkeypatch.setattr("container.spark.table_formats.require_pair", lambda _: None)
    spark: Any = SimpleNamespace(sql=refuse)
    with pytest.raises(ContainerError, match=r"^local\.logs\.x: NoSuchTableException: The table logs\.x is not there$"):
        compact_iceberg(lambda: spark, "local.logs.x")


@NEEDS_ICEBERG
def test_an_iceberg_ingest_that_is_killed_behind_its_commit_has_each_row_once(tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    for number in range(100):
        history.message(1, TRANSFER.pack(number, number))
    member = history.finish()
    run_ingest(member, tmp_path, "iceberg", ["iceberg"], (0, "after"))
    # Another ingest that begins at the same time never sees a table that is nobody's.
    first = tmp_path / "warehouse" / "logs" / "messages" / "metadata" / "v1.metadata.json"
    assert "aeron-cluster.query-id" in json.loads(first.read_text())["properties"]
    found = run_ingest(member, tmp_path, "iceberg", ["iceberg"])
    assert found is not None
    assert found["positions"] == positions_of(member)


def test_an_iceberg_ingest_that_was_killed_behind_the_making_of_its_table_goes_on(tmp_path: Path) -> None:
    made = SimpleNamespace(snapshot_id=1, summary={"total-records": "0"})
    catalog = SimpleNamespace(tableExists=lambda _: True, refreshTable=lambda _: None)
    spark: Any = SimpleNamespace(catalog=catalog, table=lambda _: SimpleNamespace(collect=lambda: [made]))
    manifest = Manifest(cluster="main", view="messages", decoder=None, members={}, table="local.logs.messages")
    assert IcebergWriter(spark, tmp_path, manifest).manifest.batch_id == -1


@pytest.mark.slow
@NEEDS_ICEBERG
def test_an_iceberg_table_that_is_newer_than_its_state_is_refused(tmp_path: Path) -> None:
    history, state = History(tmp_path / "member"), tmp_path / "state"
    history.begin_term()
    backup = tmp_path / "backup"
    for number in range(2):
        history.message(1, TRANSFER.pack(number, number))
        run_ingest(history.finish(), tmp_path, "iceberg", ["iceberg"])
        if not number:
            shutil.copytree(state, backup)
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    history.message(1, TRANSFER.pack(2, 2))
    with pytest.raises(AssertionError, match="has batches of its ingest up to 1, and .*_manifest.json up to 0"):
        run_ingest(history.finish(), tmp_path, "iceberg", ["iceberg"])


@pytest.mark.slow
@NEEDS_ICEBERG
def test_an_iceberg_table_that_was_set_back_to_before_a_batch_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    for number in range(2):
        history.message(1, TRANSFER.pack(number, number))
        run_ingest(history.finish(), tmp_path, "iceberg", ["iceberg"])
    metadata = tmp_path / "warehouse" / "logs" / "messages" / "metadata"
    newest = metadata / f"v{(metadata / 'version-hint.text').read_text().strip()}.metadata.json"
    table = json.loads(newest.read_text())
    *_, before, last = table["snapshot-log"]
    # As rollback_to_snapshot does it.
    table["current-snapshot-id"] = table["refs"]["main"]["snapshot-id"] = before["snapshot-id"]
    table["snapshot-log"].append({**last, "snapshot-id": before["snapshot-id"]})
    newest.write_text(json.dumps(table))
    (metadata / f".{newest.name}.crc").unlink(missing_ok=True)
    history.message(1, TRANSFER.pack(2, 2))
    with pytest.raises(AssertionError, match="was set back to before batch 1 of its ingest"):
        run_ingest(history.finish(), tmp_path, "iceberg", ["iceberg"])


@pytest.mark.parametrize(("picked", "is_away"), [(None, False), ("12", False), ("12", True)])
def test_a_batch_of_iceberg_that_was_picked_again_is_not_lost(picked: str | None, is_away: bool) -> None:
    of_query = {"aeron-cluster.query-id": "query"}
    summaries = {number: of_query | {"aeron-cluster.batch-id": str(number - 10)} for number in (11, 12)}
    summaries[13] = {} if picked is None else {"source-snapshot-id": picked}
    snapshots: Any = [SimpleNamespace(snapshot_id=number, summary=summary) for number, summary in summaries.items()]
    away = [SimpleNamespace(snapshot_id=number) for number in (12, *[13] * is_away)]
    history = SimpleNamespace(where=lambda _: SimpleNamespace(collect=lambda: away))
    writer: Any = object.__new__(IcebergWriter)
    writer._spark, writer._name = SimpleNamespace(table=lambda _: history), "local.logs.messages"
    writer.manifest = SimpleNamespace(query_id="query")
    if picked is not None and not is_away:
        writer._refuse_set_back(snapshots)
        return
    with pytest.raises(ConfigurationError, match="was set back to before batch 2 of its ingest"):
        writer._refuse_set_back(snapshots)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # twelve starts of Spark
@NEEDS_ICEBERG
def test_the_same_log_is_in_delta_and_in_iceberg_after_kills(tmp_path: Path) -> None:
    jars, runs = ["delta", "iceberg"], {"delta": tmp_path / "for-delta", "iceberg": tmp_path / "for-iceberg"}
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    found = {}
    # Each run finds a longer log: Spark 4.1 makes one batch of what there is.
    for kills in ([(0, "before"), (0, "after")], [(1, "after")]):
        for number in range(300):
            history.message(1, TRANSFER.pack(number, number))
        member = history.finish()
        for table_format, directory in runs.items():
            directory.mkdir(exist_ok=True)
            for kill in kills:
                run_ingest(member, directory, table_format, jars, kill)
            found[table_format] = run_ingest(member, directory, table_format, jars)
    assert found["delta"] == found["iceberg"]
    assert found["delta"] is not None
    assert found["delta"]["batch_id"] == 1
    assert found["delta"]["positions"] == positions_of(member)
    assert found["delta"]["hours"] == ["2023-11-14 22"]
    assert delta_positions(runs["delta"] / "delta") == positions_of(member)
    words = ["compact", "--table", "local.logs.messages", "--format", "iceberg", "--warehouse", "warehouse"]
    done = subprocess.run(
        [sys.executable, "-m", "container", "pipeline", "--master", "local[2]", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=runs["iceberg"],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"local\.logs\.messages: \d+ files before, 1 now", done.stdout), done.stdout
    assert run_ingest(member, runs["iceberg"], "iceberg", jars) == found["iceberg"]
