"""Ingest into Parquet: each row once, also over a kill in the middle, and a manifest of what is covered."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from container.errors import ConfigurationError, ContainerError
from container.pipeline.ingest import IngestStopped, ingest, read_table
from container.pipeline.manifest import Batch, Gap, Manifest, MemberPositions, PositionRange, TableColumn, read_manifest
from container.pipeline.parquet_table import TableWriter, locked, merged_columns
from container.spark import FORMAT
from container.spark.options import Bound, SourceOptions
from container.testing.processes.process import Process
from tests.recordings_world import SEGMENT_LENGTH, World, session_message
from tests.spark.conftest import LIMIT_S
from tests.spark.written_members import BEGIN_MS, TRANSFER, History, WrittenMember

COMMAND = [sys.executable, "-m", "container", "pipeline", "--master", "local[2]"]


def options_of(*members: WrittenMember, **options: Any) -> SourceOptions:
    return SourceOptions(tuple(str(member.base_dir) for member in members), **options)


def assert_same_rows(spark: SparkSession, member: WrittenMember, table: DataFrame) -> None:
    """The table has each row of the source once, and no other."""
    source = spark.read.format(FORMAT).load(str(member.base_dir))
    stored = table.select(source.columns)
    assert (source.exceptAll(stored).count(), stored.exceptAll(source).count()) == (0, 0)


def test_what_is_committed_is_ingested_once_and_what_follows_is_added(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    for number in range(300):
        history.message(1, TRANSFER.pack(number, number))
    history.begin_term()
    history.message(1, b"not yet known to be committed")
    member, table = history.finish(is_closed=False), tmp_path / "table"
    committed = member.terms[1][1]
    options = options_of(member, max_bytes_per_batch=20_000, committed="known")
    first = ingest(spark, options, table, cluster="main")
    (key,) = first.members
    assert first.members[key] == MemberPositions(0, committed, [], [PositionRange(0, committed)])
    assert first.batch_id > 0, "several batches"
    assert first.row_count == len(member.messages) - 2
    history.message(1, b"and one more")
    history.finish()
    manifest = ingest(spark, options, table, cluster="main")
    assert manifest.members[key].covered == [PositionRange(0, history.position)]
    assert manifest == read_manifest(table)
    rows = read_table(spark, table)
    assert_same_rows(spark, member, rows)
    assert {(row.cluster, str(row.date), row.term) for row in rows.select("cluster", "date", "term").collect()} == {
        ("main", "2023-11-14", 0),
        ("main", "2023-11-14", 1),
    }
    stored = [(one.term, one.row_count, one.last_log_position) for one in manifest.partitions]
    assert stored == [(0, len(member.messages) - 3, committed), (1, 3, history.position)]
    with pytest.raises(ConfigurationError, match="was made with cluster='main', not 'other': give another directory"):
        ingest(spark, options, table, cluster="other")


@pytest.fixture
def killed(tmp_path: Path, member: WrittenMember) -> Path:
    """The table of an ingest that was killed, with Spark and all, after a part of its batches."""
    table = tmp_path / "table"
    words = ["ingest", str(member.base_dir), "--table", str(table), "--cluster", "main", "--max-bytes-per-batch", "32k"]
    with Process("ingest", [*COMMAND, *words], directory=tmp_path) as process:
        process.start()

        def has_begun() -> bool:
            manifest = read_manifest(table)
            return manifest is not None and manifest.batch_id >= 1

        process.wait_until(has_begun, LIMIT_S, "two batches to be finished")
        process.kill()
    return table


def test_an_ingest_that_was_killed_goes_on_and_has_each_row_once(
    spark: SparkSession, member: WrittenMember, killed: Path
) -> None:
    before = read_manifest(killed)
    assert before is not None
    assert 0 < before.row_count < len(member.messages), "it was killed in the middle"
    manifest = ingest(spark, options_of(member, max_bytes_per_batch=100_000), killed, cluster="main")
    assert manifest.row_count == len(member.messages)
    assert_same_rows(spark, member, read_table(spark, killed))


def test_an_ingest_that_ended_in_its_first_look_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """A full disk, or a kill: Spark leaves the file in which it was to note how far the first batch reads."""
    history, table = History(tmp_path / "member"), tmp_path / "table"
    history.begin_term()
    offsets = table / "_checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.d8634f87.tmp", "..0.d8634f87.tmp.crc"):
        (offsets / name).touch()
    assert ingest(spark, options_of(history.finish()), table, cluster="main").row_count == 1


def test_damage_is_a_gap_in_the_manifest_and_the_rest_is_ingested(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    damaged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "damaged")))
    segment = damaged.archive_dir / f"0-{SEGMENT_LENGTH}.rec"
    os.truncate(segment, 0)
    options = options_of(damaged, mode="permissive", view="session_messages")
    manifest = ingest(spark, options, tmp_path / "table", cluster="main")
    (positions,) = manifest.members.values()
    (gap,) = positions.gaps
    assert (gap.begin_position, gap.end_position) == (SEGMENT_LENGTH, 2 * SEGMENT_LENGTH)
    assert str(segment) in gap.reason
    assert positions.covered == [
        PositionRange(0, SEGMENT_LENGTH),
        PositionRange(2 * SEGMENT_LENGTH, member.end_position),
    ]
    readable = [m for m in member.of_template(1) if not SEGMENT_LENGTH < m["log_position"] <= 2 * SEGMENT_LENGTH]
    assert (manifest.row_count, manifest.error_row_count) == (len(readable) + 1, 1)
    with pytest.raises(ContainerError, match=f"{segment}.*log position {SEGMENT_LENGTH}"):
        ingest(spark, options_of(damaged), tmp_path / "strict", cluster="main")


def test_a_file_that_is_away_for_a_moment_is_no_gap(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    other = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "other")))
    segment, table = other.archive_dir / f"0-{SEGMENT_LENGTH}.rec", tmp_path / "table"
    segment.rename(tmp_path / "away")
    options = options_of(other, mode="permissive", view="session_messages")
    with pytest.raises(ContainerError, match=f"{segment}.*cannot be opened: No such file or directory"):
        ingest(spark, options, table, cluster="main")
    (tmp_path / "away").rename(segment)
    manifest = ingest(spark, options, table, cluster="main")
    (positions,) = manifest.members.values()
    assert (positions.gaps, positions.covered) == ([], [PositionRange(0, member.end_position)])
    assert (manifest.row_count, manifest.error_row_count) == (len(member.of_template(1)), 0)


def test_wrong_tables_and_views_are_refused_before_anything_runs(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="view='frames' cannot be partitioned by date, as not every row"):
        ingest(spark, options_of(member, view="frames"), tmp_path, cluster="main")
    with pytest.raises(ConfigurationError, match="cluster='__HIVE_DEFAULT_PARTITION__': .* this stands for null"):
        ingest(spark, options_of(member), tmp_path / "null", cluster="__HIVE_DEFAULT_PARTITION__")
    with pytest.raises(
        ConfigurationError, match="cluster: give the name of the cluster, as no file of a member names it"
    ):
        ingest(spark, options_of(member), tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not empty and has no _manifest.json"):
        ingest(spark, options_of(member), tmp_path, cluster="main")
    with pytest.raises(ContainerError, match="it is not the table of an ingest"):
        read_table(spark, tmp_path)
    (tmp_path / "_manifest.json").write_text("{}")
    with pytest.raises(ContainerError, match="_manifest.json is not a manifest: Object missing required field"):
        read_table(spark, tmp_path)
    Manifest(cluster="main", view="messages", decoder=None, members={}).write(tmp_path)
    with pytest.raises(ContainerError, match="is empty: no batch with rows of its ingest is finished yet"):
        read_table(spark, tmp_path)


def test_ranges_lie_between_gaps() -> None:
    positions = MemberPositions(0, 1000, [Gap(500, None, "open"), Gap(0, 96, "begins later"), Gap(160, 320, "damaged")])
    positions.cover()
    assert positions.covered == [PositionRange(96, 160), PositionRange(320, 500)]


def test_damage_beyond_the_limit_of_gaps_is_not_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last gap reaches over it, in the same batch and in later ones, whatever the order of the rows."""
    monkeypatch.setattr("container.pipeline.manifest.GAP_LIMIT", 3)
    writer = TableWriter.__new__(TableWriter)
    writer.table, writer._lock = tmp_path, threading.Lock()
    writer.manifest = Manifest(cluster="main", view="messages", decoder=None, members={"0": MemberPositions(0, 0)})
    schema = pa.schema(
        [
            ("member_id", pa.int32()),
            ("begin_position", pa.int64()),
            ("log_position", pa.int64()),
            ("error", pa.string()),
        ]
    )

    def bring_in(batch_id: int, end: int, *damaged: int) -> list[PositionRange]:
        """A batch in which each 32 bytes are a row up to a position, but for damage."""
        begin = writer.manifest.members["0"].end_position
        rows: list[dict[str, Any]] = [
            {"member_id": 0, "log_position": place, "error": f"damage at {place}"}
            if place in damaged
            else {"member_id": 0, "begin_position": place, "log_position": place + 32}
            for place in range(begin, end, 32)
        ]
        name = f"batch-{batch_id}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[::-1], schema), tmp_path / name)
        writer.manifest.moving = Batch(batch_id, {name: name}, {"0": end}, {"0": 0})
        writer.finish()
        return writer.manifest.members["0"].covered

    first = [PositionRange(0, 64), PositionRange(96, 160), PositionRange(192, 256)]
    assert bring_in(0, 640, 512, 64, 160, 256, 320) == [*first, PositionRange(544, 640)]
    assert bring_in(1, 800) == [*first, PositionRange(544, 800)]
    assert bring_in(2, 960, 928) == first
    assert bring_in(3, 1120) == [*first, PositionRange(960, 1120)]
    gaps = writer.manifest.members["0"].gaps
    reason = "damage at 256; this gap is the last of 3 and reaches over all damage behind it"
    assert [(gap.begin_position, gap.end_position) for gap in gaps] == [(64, 96), (160, 192), (256, 960)]
    assert gaps[-1].reason == reason
    assert writer.manifest.error_row_count == 6


PLAIN_READER = """
import json, sys
import pyarrow.dataset as ds

table = ds.dataset(sys.argv[1], format="parquet", partitioning="hive").to_table()
assert "container" not in sys.modules
print(json.dumps([sorted(table.column("log_position").to_pylist()), sorted(set(table.column("date").to_pylist()))]))
"""


def test_a_table_that_was_moved_is_read_by_pyarrow_alone_and_by_plain_spark_and_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    for number in range(300):
        history.message(1, TRANSFER.pack(number, number))
    member, table, moved = history.finish(), tmp_path / "table", tmp_path / "elsewhere" / "moved"
    options = options_of(member, max_bytes_per_batch=10_000)
    ingest(spark, options, table, cluster="main")
    moved.parent.mkdir()
    table.rename(moved)
    for path in moved.rglob("*"):
        assert not path.is_file() or str(table).encode() not in path.read_bytes(), f"{path} names where the table was"
    done = subprocess.run(
        [sys.executable, "-I", "-c", PLAIN_READER, str(moved)], capture_output=True, text=True, check=True
    )
    positions, dates = json.loads(done.stdout)
    assert positions == [message["log_position"] for message in member.messages]
    assert dates == ["2023-11-14"]
    plain = spark.newSession().read.parquet(str(moved))
    assert_same_rows(spark, member, plain)
    assert {(row.cluster, row.term) for row in plain.select("cluster", "term").distinct().collect()} == {("main", 0)}
    for path in moved.rglob("*.parquet"):
        kinds = {str(field.type) for field in pq.read_schema(path)}
        assert kinds <= {"int32", "int64", "string", "binary", "bool", "timestamp[us, tz=UTC]"}
    history.message(1, b"behind the move")
    history.finish()
    ingest(spark, options, moved, cluster="main")
    assert_same_rows(spark, member, spark.read.parquet(str(moved)))


@pytest.mark.parametrize("moves", [1, *(pytest.param(moves, marks=pytest.mark.slow) for moves in (0, 2))])
def test_a_batch_that_was_decided_is_moved_to_its_end_whatever_was_moved_before(
    spark: SparkSession, member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    table, options, real = tmp_path / "table", options_of(member), Path.replace
    moved: list[Path] = []

    def replace(source: Path, target: Path) -> Path:
        if source.suffix == ".parquet":
            if len(moved) == moves:
                raise OSError("no more")
            moved.append(target)
        return real(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises((OSError, ContainerError), match="no more"):
        ingest(spark, options, table, cluster="main")
    monkeypatch.undo()
    before = read_manifest(table)
    assert before is not None
    assert before.moving is not None
    assert (before.batch_id, before.row_count, len(moved)) == (-1, 0, moves)
    manifest = ingest(spark, options, table, cluster="main")
    assert manifest.moving is None
    assert manifest.row_count == len(member.messages)
    assert_same_rows(spark, member, read_table(spark, table))
    assert sorted(path.name for path in table.iterdir() if path.name.startswith("_")) == [
        "_checkpoint",
        "_common_metadata",
        "_lock",
        "_manifest.json",
    ]


def test_a_file_of_a_decided_batch_that_is_gone_is_named(tmp_path: Path) -> None:
    checkpoint = tmp_path / "_checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "query"}')
    manifest = Manifest(cluster="main", view="messages", decoder=None, members={}, query_id="query")
    manifest.moving = Batch(0, {"_staging/a.parquet": "term=0/batch-0.parquet"}, {}, {})
    with pytest.raises(ConfigurationError, match="term=0/batch-0.parquet of batch 0, which was on its way .* is gone"):
        TableWriter(tmp_path, manifest)


def test_a_table_without_its_checkpoint_or_in_use_is_not_written(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    table, options = tmp_path / "table", options_of(member, view="timers")
    manifest = ingest(spark, options, table, cluster="main")
    with locked(table), pytest.raises(ConfigurationError, match="another ingest writes into it"):
        ingest(spark, options, table, cluster="main")
    shutil.rmtree(table / "_checkpoint")
    with pytest.raises(ConfigurationError, match="has no _checkpoint, or not the one of its ingest"):
        ingest(spark, options, table, cluster="main")
    assert read_manifest(table) == manifest
    assert read_table(spark, table).count() == manifest.row_count


@pytest.mark.parametrize("table_format", [pytest.param("parquet", marks=pytest.mark.slow), "delta"])
def test_a_checkpoint_and_a_manifest_of_different_times_are_refused_and_no_row_is_lost_or_there_twice(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    history, table, backup = History(tmp_path / "member"), tmp_path / "table", tmp_path / "backup"
    history.begin_term()

    def run() -> Manifest:
        history.message(1, TRANSFER.pack(1, 1))
        return ingest(spark, options_of(history.finish()), table, table_format=table_format, cluster="main")

    def take(name: str, source: Path) -> None:
        shutil.rmtree(table / name, ignore_errors=True)
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, table / name)

    run()
    shutil.copytree(table, backup)
    run()
    newest = Path(shutil.copytree(table, tmp_path / "newest"))
    take("_checkpoint", backup)
    with pytest.raises(ConfigurationError, match=r"_checkpoint does not have batch 1 as _manifest\.json has it"):
        run()
    take("_checkpoint", newest)
    take("_manifest.json", backup)
    older = "has batches up to 1, and _manifest.json up to 0"
    later = "is of a batch after 0, the last one that" if table_format == "parquet" else "batches of its ingest up to 1"
    with pytest.raises(ConfigurationError, match=older if table_format == "parquet" else later):
        run()
    take("_checkpoint", backup)
    with pytest.raises(ConfigurationError, match=later):
        run()
    take("_checkpoint", newest)
    take("_manifest.json", newest)
    (last,) = (table / "_checkpoint" / "offsets").glob("1")
    text = last.read_text()
    last.write_text(text.replace('"position": ', '"position": 1').replace('"position":', '"position": '))
    with pytest.raises(ConfigurationError, match="does not have batch 1 as"):
        run()
    last.write_text(text[:-9])
    with pytest.raises(ContainerError, match=r"offsets/1 is damaged: bring the checkpoint back"):
        run()
    last.write_text(text)
    assert run().row_count == len(history.finish().messages)


def test_an_ingest_begins_at_the_beginning_and_its_cluster_keeps_its_name(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    starting = Bound("startingPosition", position=SEGMENT_LENGTH)
    with pytest.raises(ConfigurationError, match="startingPosition: an ingest has the log from its beginning"):
        ingest(spark, options_of(member, starting=starting), tmp_path / "table", cluster="main")
    ingest(spark, options_of(member, view="timers"), tmp_path / "table", cluster="007")
    assert {row.cluster for row in read_table(spark, tmp_path / "table").select("cluster").collect()} == {"007"}


def test_dates_are_utc_whatever_the_time_zone_of_the_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    day = 86_400_000
    expected = {
        "2023-11-14": BEGIN_MS + 1,
        "2023-11-15": (BEGIN_MS // day + 1) * day,
        "1969-12-31": -1,
        "1970-01-01": 0,
        None: 2**62,
    }
    for timestamp in list(expected.values())[1:]:
        for _ in range(2):  # one message with a time that none beside it has would be damage
            history.now_ms = timestamp - 1
            history.message(1, b"")
    member = history.finish()
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    try:
        for other in ("Pacific/Kiritimati", "America/Los_Angeles"):
            spark.conf.set("spark.sql.session.timeZone", other)
            table = tmp_path / other.replace("/", "-")
            manifest = ingest(spark, options_of(member), table, cluster="main")
            assert {partition.date for partition in manifest.partitions} == set(expected)
            found = read_table(spark, table).select("date", "timestamp").collect()
            assert {row.date and str(row.date): row.timestamp for row in found} == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_dates_are_right_when_an_ingest_began_before_the_first_term(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path / "member")
    world.close(stop=False)
    second = 1_000_000_000

    def on_progress(manifest: Manifest, _: StreamingQuery) -> None:
        if manifest.row_count == 2:
            raise IngestStopped
        if not world.bases:
            now = BEGIN_MS // 1000 * second
            world.begin_term(timestamp=now, time_unit=2)
            world.log.append(session_message(1, b"x", timestamp=now + 86_400 * second))
            world.close(stop=False)

    options = SourceOptions((str(tmp_path / "member"),))
    manifest = ingest(spark, options, tmp_path / "table", cluster="main", interval_s=0.1, on_progress=on_progress)
    assert [partition.date for partition in manifest.partitions] == ["2023-11-14", "2023-11-15"]


@pytest.mark.slow
def test_columns_of_payloads_keep_their_meaning_when_the_decoder_changes(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path / "member")
    history.begin_term()
    member, table = history.finish(), tmp_path / "table"

    def run(source: str, payload: bytes) -> Manifest:
        """An ingest in a process of its own, whose workers have this decoder and no earlier one."""
        history.message(1, payload)
        history.finish()
        (tmp_path / "orders.py").write_text(f"import msgspec\n\n{source}\n")
        words = ["ingest", str(member.base_dir), "--table", str(table), "--cluster", "main"]
        done = subprocess.run(
            [*COMMAND, *words, "--decoder", "orders:Order"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        )
        if done.returncode != 0:
            raise ContainerError(done.stderr)
        manifest = read_manifest(table)
        assert manifest is not None
        return manifest

    run(
        "class Order(msgspec.Struct):\n    price: int\n    note: str\n    date: str",
        b'{"price":1,"note":"a","date":"d"}',
    )
    run("class Order(msgspec.Struct):\n    price: int\n    size: float", b'{"price":2,"size":0.5}')
    with pytest.raises(ContainerError, match="column 'price' has type bigint and would have string now"):
        run("class Order(msgspec.Struct):\n    price: str", b'{"price":"3"}')
    manifest = run("class Order(msgspec.Struct):\n    note: str = ''\n    price: int = 0", b'{"price":4}')
    payload = [column.name for column in manifest.columns if column.is_payload]
    assert payload == ["price", "note", "payload_date", "decode_error", "size"]
    rows = spark.newSession().read.parquet(str(table)).where("template_id = 1").orderBy("log_position")
    assert [(row.price, row.note, row.payload_date, row.size) for row in rows.collect()] == [
        (1, "a", "d", None),
        (2, None, None, 0.5),
        (None, None, None, None),
        (4, "", None, None),
    ]
    schema = pq.read_schema(table / "_common_metadata")
    assert set(payload) <= set(schema.names)


def test_a_column_neither_changes_its_type_nor_where_it_comes_from(tmp_path: Path) -> None:
    known = [TableColumn("flags", "int", False), TableColumn("price", "bigint", True)]
    assert merged_columns(tmp_path, known, []) == known
    added = TableColumn("size", "double", True)
    assert merged_columns(tmp_path, known, [added, known[1]]) == [*known, added]
    for changed, text in (
        (TableColumn("price", "string", True), "column 'price' has type bigint and would have string now"),
        (TableColumn("flags", "int", True), "column 'flags' came from the view and would come from the decoder now"),
        (TableColumn("price", "bigint", False), "column 'price' came from the decoder and would come from the view"),
        (TableColumn("Price", "bigint", True), "column 'Price' was 'price', and Spark does not distinguish upper from"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            merged_columns(tmp_path, known, [changed])


class Uncaught:
    """Java's handler of what ends a thread."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def uncaughtException(self, _thread: Any, error: Any) -> None:  # noqa: N802
        self.errors.append(error.getClass().getName())

    class Java:
        """What py4j asks for."""

        implements = ("java.lang.Thread$UncaughtExceptionHandler",)


def test_a_stop_within_a_batch_ends_the_query_in_order(
    spark: SparkSession, member: WrittenMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = threading.Event()

    def store(_writer: TableWriter, batch: DataFrame, _batch_id: int) -> None:
        within.set()
        batch.sparkSession._jvm.java.lang.Thread.sleep(1000 * LIMIT_S)  # type: ignore[union-attr]

    def stop(_manifest: Manifest, _query: StreamingQuery) -> None:
        if within.is_set():
            raise IngestStopped

    monkeypatch.setattr(TableWriter, "store", store)
    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    threads, uncaught = gateway.jvm.java.lang.Thread, Uncaught()  # type: ignore[union-attr]
    threads.setDefaultUncaughtExceptionHandler(uncaught)
    try:
        ingest(spark, options_of(member), tmp_path / "table", cluster="main", on_progress=stop)
    finally:
        threads.setDefaultUncaughtExceptionHandler(None)
    assert uncaught.errors == []


def test_a_master_that_spark_refuses_is_one_sentence(member: WrittenMember, tmp_path: Path) -> None:
    words = ["ingest", str(member.base_dir), "--table", str(tmp_path / "table"), "--cluster", "main"]
    done = subprocess.run(
        [*COMMAND[:-1], "nonsense", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("aeron-cluster: error: Spark does not start: [JAVA_GATEWAY_EXITED]")
