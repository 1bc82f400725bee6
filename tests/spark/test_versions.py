"""What each supported Spark can do: ``./run nightly`` repeats these tests with Spark 4.1 and 4.2."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from container.errors import RecordingUnavailableError
from container.pipeline.ingest import ingest, read_table
from container.recordings import VIEWS, open_member, plan, read_partition
from container.spark import FORMAT, register
from container.spark.offsets import end_positions
from container.spark.options import SourceOptions
from container.spark.source import ClusterStreamReader, arrow_schema, spark_schema
from container.spark.versions import IS_4_1
from tests.limits import LIMIT_S
from tests.spark.written_members import BEGIN_MS, WrittenMember

ROOT = Path(__file__).parents[2]


def load(spark: SparkSession, member: WrittenMember, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load(str(member.base_dir))


def read_now(spark: SparkSession, rows: DataFrame, directory: Path) -> int:
    """How many rows a stream gives until it has all of now; it keeps its checkpoint and its rows in the directory."""
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120), "the stream has not ended after 120 s"
    return spark.read.parquet(str(directory / "rows")).count()


@pytest.mark.parametrize("view", VIEWS)
def test_a_batch_of_each_view_has_all_rows(spark: SparkSession, member: WrittenMember, view: str) -> None:
    expected = sum(
        batch.num_rows
        for partition in plan(open_member(str(member.base_dir)), view)
        for batch in read_partition(partition)
    )
    frame = load(spark, member, view=view)
    assert frame.count() == expected > 0
    assert frame.where("error is not null").count() == 0


@pytest.mark.smoke
def test_a_query_has_all_rows_after_one_with_filters(spark: SparkSession, member: WrittenMember) -> None:
    frame = load(spark, member)
    assert frame.where("template_id = 20").count() == len(member.of_template(20))
    assert frame.count() == len(member.messages)


def test_times_choose_rows(spark: SparkSession, member: WrittenMember) -> None:
    begin, end = (member.messages[place]["timestamp"] for place in (300, 900))
    rows = load(spark, member, startingTimestamp=str(begin), endingTimestamp=str(end)).select("event_time").collect()
    expected = [message["timestamp"] for message in member.messages if begin <= message["timestamp"] < end]
    assert sorted(row.event_time.replace(tzinfo=UTC).timestamp() for row in rows) == [
        datetime.fromtimestamp(timestamp / 1000, UTC).timestamp() for timestamp in expected
    ]


def test_payloads_of_sbe_are_columns(spark: SparkSession, member: WrittenMember) -> None:
    schema = ROOT / "tests" / "schemas" / "orders.xml"
    rows = load(spark, member, decoder=f"sbe:{schema}", view="session_messages")
    assert rows.where("decode_error is not null").count() == len(member.of_template(1))


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    rows = spark.readStream.format(FORMAT).option("committed", str(member.messages[800]["log_position"]))
    assert read_now(spark, rows.load(str(member.base_dir)), tmp_path) == 801
    rows = spark.readStream.format(FORMAT)
    assert read_now(spark, rows.load(str(member.base_dir)), tmp_path) == len(member.messages)
    assert read_now(spark, rows.load(str(member.base_dir)), tmp_path) == len(member.messages)
    found = spark.read.parquet(str(tmp_path / "rows")).select("log_position").collect()
    assert sorted(row[0] for row in found) == [message["log_position"] for message in member.messages]


@pytest.mark.parametrize("limit", ["max_rows_per_batch", "max_bytes_per_batch"])
def test_a_limit_holds_or_is_refused(spark: SparkSession, member: WrittenMember, tmp_path: Path, limit: str) -> None:
    rows = spark.readStream.format(FORMAT).option(limit, "600000").load(str(member.base_dir))
    if IS_4_1:
        with pytest.raises(StreamingQueryException, match=f"{limit} needs Spark 4.2 or later"):
            read_now(spark, rows, tmp_path)
    else:
        assert read_now(spark, rows, tmp_path) == len(member.messages)


def test_without_a_start_a_stream_never_goes_back(member: WrittenMember) -> None:
    """As Spark 4.1 asks: without a start, and after a restart perhaps for less than was read."""
    chosen = SourceOptions((str(member.base_dir),), committed=member.messages[800]["log_position"])
    reader = ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))
    begin = reader.initialOffset()
    end = reader.latestOffset()
    assert reader.partitions(begin, end)
    ahead = ClusterStreamReader(structs.replace(chosen, committed="recorded"), spark_schema(arrow_schema(chosen)))
    later = ahead.latestOffset()
    reader.partitions(end, later)
    assert end_positions(reader.latestOffset()) == end_positions(later), "it was told of that"
    restarted = ClusterStreamReader(chosen, spark_schema(arrow_schema(chosen)))
    assert end_positions(restarted.latestOffset()) == end_positions(end)
    with pytest.raises(RecordingUnavailableError, match=r"has read the log of .* to \d+, and of that only \d+"):
        restarted.partitions(later, end)


def test_an_ingest_has_each_row_once(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    options = SourceOptions((str(member.base_dir),))
    for _ in range(2):
        assert ingest(spark, options, tmp_path / "table", cluster="c").row_count == len(member.messages)
    assert read_table(spark, tmp_path / "table").select("log_position").distinct().count() == len(member.messages)


def test_the_source_is_found_without_a_call(spark: SparkSession, member: WrittenMember) -> None:
    """Of a session that never called register: sources that are found belong to no session."""
    fresh = spark.newSession()
    assert load(fresh, member, view="timers").count() == len(member.of_template(20))
    register(fresh)
    assert load(fresh, member, view="timers").count() == len(member.of_template(20))


def test_a_session_starts_without_a_warning_of_the_source() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from container.spark import open_session; open_session().stop()"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "aeron.cluster" not in done.stderr


def test_a_table_has_its_options_and_a_query_adds_to_them(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    # A space and a percent sign: Spark makes a URI of the path.
    here = tmp_path / "member 100%25"
    shutil.copytree(member.base_dir, here)
    total, timers = len(member.messages), len(member.of_template(20))
    at = member.messages[600]["log_position"]
    create = "CREATE TABLE log USING aeron.cluster OPTIONS (view 'messages', startingPosition '0', path '{}')"
    spark.sql(create.format(here))
    try:
        assert spark.sql("SELECT count(*) FROM log WHERE template_id = 20").collect()[0][0] == timers
        assert spark.read.table("log").count() == total
        assert spark.read.option("endingPosition", str(at)).table("log").count() == 601
        assert spark.sql(f"SELECT count(*) FROM log WITH (startingPosition = {at})").collect()[0][0] == total - 601
        assert spark.sql("SELECT count(*) FROM log").collect()[0][0] == total
        # Spark's own mistake, which docs/pipeline.md names: with a Spark that does it right this is total + 601.
        twice = f"SELECT * FROM log WITH (endingPosition = {at}) UNION ALL SELECT * FROM log"
        assert spark.sql(twice).count() == 2 * 601
        bounded = spark.read.option("endingPosition", str(at)).table("log")
        assert bounded.union(spark.table("log")).count() == total + 601
        assert read_now(spark, spark.readStream.table("log"), tmp_path) == total
        with pytest.raises(AnalysisException, match="view: a table has the columns that it was created with"):
            spark.read.option("view", "timers").table("log").count()
        with pytest.raises(AnalysisException, match="aeron.cluster only reads what a cluster recorded"):
            spark.sql("INSERT INTO log SELECT * FROM log")
        with pytest.raises(AnalysisException, match="these are the columns of a table, which has its own path"):
            spark.read.format(FORMAT).schema(spark.table("log").schema).load("/elsewhere").count()
        spark.sql("ALTER TABLE log ADD COLUMNS (volume int)")
        with pytest.raises(AnalysisException, match="the view 'messages' has no column 'volume'"):
            spark.table("log").count()
    finally:
        spark.sql("DROP TABLE log")
    assert here.exists()


def test_a_table_of_a_list_of_members_and_one_by_the_catalog(spark: SparkSession, member: WrittenMember) -> None:
    timers = len(member.of_template(20))
    spark.sql(f"CREATE TABLE listed USING aeron.cluster OPTIONS (view 'timers', path '[\"{member.base_dir}\"]')")
    try:
        assert spark.table("listed").count() == timers
        spark.sql(f"ALTER TABLE listed SET LOCATION '{member.base_dir}'")
    finally:
        spark.sql("DROP TABLE listed")
    try:
        made = spark.catalog.createTable("made", path=str(member.base_dir), source=FORMAT, view="timers")
        assert made.count() == timers
    finally:
        spark.sql("DROP TABLE IF EXISTS made")
    assert member.base_dir.exists()


def create_and_read(spark: SparkSession, statement: str) -> None:
    spark.sql(f"CREATE TABLE wrong {statement}")
    spark.table("wrong").count()


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("USING aeron.cluster OPTIONS (viev 'timers', path '{}')", "option 'viev' is unknown; did you mean 'view'?"),
        ("USING aeron.cluster OPTIONS (view 'timers')", "path is missing"),
        # Spark would delete what SET LOCATION names, which may be a member's directory, when the table is dropped.
        ("USING aeron.cluster OPTIONS (paths '[\"{}\"]')", "Spark deletes when the table is dropped"),
        # Spark writes the metadata of columns, which carry a table's options, into files of Parquet.
        ("USING aeron.cluster OPTIONS (path '{}', storage_options '{{}}')", "give storage_options with each query"),
        ("(timestamp bigint) USING aeron.cluster OPTIONS (path '{}')", "create it without naming columns"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(
    spark: SparkSession, member: WrittenMember, statement: str, text: str
) -> None:
    try:
        with pytest.raises(AnalysisException) as caught:
            create_and_read(spark, statement.format(member.base_dir))
    finally:
        spark.sql("DROP TABLE IF EXISTS wrong")
    assert text in str(caught.value)


@pytest.mark.smoke
def test_windows_by_event_time_in_sql(spark: SparkSession, member: WrittenMember) -> None:
    """The block of docs/pipeline.md."""
    chapter = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8").split("### Tables and SQL\n")[1]
    create, query = chapter.split("```sql\n")[1].split("```")[0].strip().split("\n\n")
    spark.sql(create.replace("/var/lib/member-0", str(member.base_dir)).rstrip(";"))
    try:
        rows = spark.sql(query.rstrip(";")).collect()
    finally:
        spark.sql("DROP TABLE orders")
    expected: dict[int, int] = {}
    for message in member.of_template(1):
        minute = message["timestamp"] // 60_000
        expected[minute] = expected.get(minute, 0) + 1
    assert {int(row["minute"].replace(tzinfo=UTC).timestamp()) // 60: row["messages"] for row in rows} == expected
    assert min(expected) == BEGIN_MS // 60_000
