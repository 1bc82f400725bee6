"""The source in batches: rows, columns, filters, members, decoders, what it says about wrong options, and damage."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.pipeline.spark_errors import plain_error
from container.recordings import open_member
from container.sbe.schema import read_schema
from container.spark import FORMAT
from container.spark.options import SourceOptions
from container.spark.source import ClusterReader, arrow_schema, spark_schema
from container.testing.processes.recordings import write_catalog
from tests.recordings_world import SEGMENT_LENGTH
from tests.sbe_reference import Reference
from tests.spark.written_members import TRANSFER, History, WrittenMember


class Transfer(msgspec.Struct):
    """What :func:`decode_transfer` gives: two columns that only a payload of at least 16 bytes has."""

    number: int
    square: int


def decode_transfer(payload: bytes) -> Transfer:
    """A payload of the written history; each hundredth does not decode."""
    number, square = TRANSFER.unpack_from(payload)
    if number % 100 == 50:
        raise ValueError(f"number {number} is not for us")
    return Transfer(number, square)


ORDERS = Path(__file__).parents[1] / "schemas" / "orders.xml"
DECODER = "tests.spark.test_source:decode_transfer"


def load(spark: SparkSession, member: WrittenMember, view: str, **options: Any) -> DataFrame:
    return spark.read.format(FORMAT).options(path=member.path, view=view, **member.options, **options).load()


def read_directly(member: WrittenMember, *filters: Filter, **options: Any) -> tuple[int, list[dict[str, Any]]]:
    """What the executors would read, without a session: the number of partitions, and the rows."""
    chosen = SourceOptions((member.path,), storage=member.storage, **options)
    reader = ClusterReader(chosen, spark_schema(arrow_schema(chosen)))
    reader.narrow(list(filters))
    partitions = reader.partitions()
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return len(partitions), [row for batch in batches for row in batch.to_pylist()]


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(plain_error(caught.value))


def test_messages_are_rows_with_the_fields_of_the_log(spark: SparkSession, member: WrittenMember) -> None:
    frame = load(spark, member, "messages")
    rows = frame.orderBy("log_position").collect()
    names = ("log_position", "leadership_term_id", "template_id", "timestamp", "cluster_session_id", "correlation_id")
    found = [tuple(row[name] for name in names) for row in rows]
    assert found == [tuple(message.get(name) for name in names) for message in member.messages]
    payloads = [bytes(row.payload) for row in rows if row.template_id == 1]
    assert payloads == [message["payload"] for message in member.of_template(1)]
    assert all(row.committed and row.error is None for row in rows)
    # A partition for each term and segment: the second term begins in the middle of the second of four segments.
    assert frame.rdd.getNumPartitions() == 4
    assert "End of the message" in frame.schema["log_position"].metadata["comment"]


def test_a_query_with_filters_gives_what_it_gives_without_push_down(spark: SparkSession, member: WrittenMember) -> None:
    middle = member.messages[900]["log_position"]
    frame = load(spark, member, "messages", columns="log_position,template_id,timestamp")
    found = frame.where(f"log_position > {middle} and template_id in (20, 22) or timestamp is null").count()
    assert found == len([message for message in member.of_template(20, 22) if message["log_position"] > middle])


def test_filters_leave_partitions_and_rows_unread(member: WrittenMember) -> None:
    partitions, rows = read_directly(member)
    assert (partitions, len(rows)) == (4, len(member.messages))
    begin = 2 * SEGMENT_LENGTH
    partitions, rows = read_directly(member, GreaterThan(("log_position",), begin), EqualTo(("template_id",), 20))
    expected = [m["log_position"] for m in member.of_template(20) if m["log_position"] > begin]
    assert (partitions, [row["log_position"] for row in rows]) == (1, expected)
    assert read_directly(member, EqualTo(("log_position",), -5))[1] == []


def test_queries_of_one_dataframe_do_not_share_their_filters(spark: SparkSession, member: WrittenMember) -> None:
    def counts() -> tuple[int, ...]:
        frame = load(spark, member, "messages", columns="template_id")
        timers = frame.where("template_id = 20")
        opened = frame.where("template_id = 21")
        return timers.count(), frame.count(), opened.count(), timers.union(opened).count(), frame.count()

    expected = tuple(len(member.of_template(*ids)) for ids in ([20], [1, 20, 21, 22, 23, 24], [21], [20, 21]))
    assert counts() == (*expected, len(member.messages))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # as for a source of somebody else's
    try:
        assert counts() == (*expected, len(member.messages))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_columns_and_batches_are_as_the_options_say(member: WrittenMember) -> None:
    options = SourceOptions((member.path,), storage=member.storage, batch_rows=100)
    chosen = pa.schema([arrow_schema(options).field(name) for name in ("timestamp", "member_id")])
    reader = ClusterReader(options, spark_schema(chosen))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert {tuple(batch.schema.names) for batch in batches} == {("timestamp", "member_id")}
    assert max(len(batch) for batch in batches) == 100
    assert sum(len(batch) for batch in batches) == len(member.messages)


def test_a_schema_that_is_given_has_the_types_of_the_view(member: WrittenMember) -> None:
    reader = ClusterReader(SourceOptions((member.path,)), StructType([StructField("timestamp", LongType())]))
    assert reader.partitions()
    with pytest.raises(ConfigurationError, match="'timestamp' of the view 'messages' is bigint, not timestamp: give n"):
        ClusterReader(SourceOptions((member.path,)), StructType([StructField("timestamp", TimestampType())]))


def test_a_decoder_gives_typed_columns_and_rows_for_what_does_not_decode(
    spark: SparkSession, member: WrittenMember
) -> None:
    frame = load(spark, member, "session_messages", decoder=DECODER)
    assert dict(frame.dtypes)["number"] == dict(frame.dtypes)["square"] == "bigint"
    rows = frame.orderBy("log_position").collect()
    assert len(rows) == len(member.of_template(1))
    for number, row in enumerate(rows):
        assert bytes(row.payload)[: TRANSFER.size] == TRANSFER.pack(number, number * number)
        if number % 100 == 50:
            assert (row.number, row.decode_error) == (None, f"ValueError: number {number} is not for us")
        else:
            assert (row.number, row.square, row.decode_error) == (number, number * number, None)
    total = load(spark, member, "session_messages", decoder=DECODER, columns="square").agg({"square": "sum"})
    assert total.collect()[0][0] == sum(row.square or 0 for row in rows)


def test_payloads_of_sbe_are_columns_by_a_schema(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders.xml"
    path.write_bytes(ORDERS.read_bytes())
    schema = read_schema(str(path))
    random, reference = Random(1), Reference(schema)
    payloads = [reference.message(random, random.choice(schema.messages), 2) for _ in range(200)]
    payloads[100:103] = [b"", b"not SBE at all", payloads[0][:-1]]
    history = History(tmp_path / "member")
    history.begin_term()
    history.open_session(1)
    for payload in payloads:
        history.message(1, payload)
    member = history.finish()
    frame = load(spark, member, "messages", decoder=f"sbe:{path}")
    rows = frame.where("template_id = 1").orderBy("log_position").collect()
    assert len(rows) == 200
    for number, (payload, row) in enumerate(zip(payloads, rows, strict=True)):
        names = [name for name in ("NewOrder", "Cancel") if row[name] is not None]
        if 100 <= number < 103:
            assert (names, row.decode_error is None) == ([], False)
            continue
        name, values = reference.read(payload)
        assert (names, row.decode_error) == ([name], None)
        assert row[name].order_id == values["order_id"]
    assert rows[100].decode_error == "0 bytes are less than a message's header, which has 8"
    frame_rows = frame.orderBy("log_position").collect()
    others = [row for row in frame_rows if row.template_id != 1]
    assert {(row.NewOrder, row.Cancel, row.decode_error) for row in others} == {(None, None, None)}
    options = SourceOptions((str(member.base_dir),), decoder=f"sbe:{path}#Cancel", columns=("order_id",))
    reader = ClusterReader(options, spark_schema(pa.schema([arrow_schema(options).field("order_id")])))
    path.unlink()
    sent = pickle.loads(pickle.dumps(reader))  # an executor needs no file
    found = [row for part in sent.partitions() for batch in sent.read(part) for row in batch.to_pylist()]
    expected = [None if row.Cancel is None else row.Cancel.order_id for row in frame_rows]
    assert [row["order_id"] for row in found] == expected
    with pytest.raises(PySparkException) as caught:
        load(spark, member, "messages", decoder=f"sbe:{ORDERS}#Order")
    assert str(plain_error(caught.value)) == f"schema {ORDERS}: has no message 'Order'; it has NewOrder, Cancel"


def test_members_are_read_together_and_told_apart(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    copy = shutil.copytree(member.base_dir, tmp_path / "copy")
    frame = spark.read.format(FORMAT).options(view="timers", member="all").load([str(member.base_dir), str(copy)])
    counts = {row.member_id: row["count"] for row in frame.groupBy("member_id").count().collect()}
    assert counts == dict.fromkeys((0, 1), len(member.of_template(20)))


def test_wrong_options_fail_with_one_sentence(spark: SparkSession, member: WrittenMember, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, member, "session_messages", columns="log_position,color")
    assert str(plain_error(caught.value)).startswith("columns: the view 'session_messages' has no 'color'; it has ")
    nowhere = spark.read.format(FORMAT).option("view", "recordings").load(str(tmp_path / "nowhere"))
    assert failure(nowhere) == f"{tmp_path}/nowhere: is not a directory"


def test_damage_ends_a_strict_query_and_is_a_row_of_a_permissive_one(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    damaged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "damaged")))
    segment = damaged.archive_dir / f"0-{SEGMENT_LENGTH}.rec"
    with segment.open("r+b") as file:
        file.truncate(0)
    message = failure(load(spark, damaged, "messages"))
    assert message.startswith(f"{segment}, ")
    assert f"log position {SEGMENT_LENGTH}" in message
    rows = load(spark, damaged, "messages", mode="permissive").orderBy("log_position").collect()
    errors = [(row.log_position, str(segment) in row.error) for row in rows if row.error is not None]
    assert errors[0] == (SEGMENT_LENGTH, True)
    assert all(SEGMENT_LENGTH <= position < 2 * SEGMENT_LENGTH for position, _ in errors)
    readable = [
        message["log_position"]
        for message in member.messages
        if not SEGMENT_LENGTH < message["log_position"] <= 2 * SEGMENT_LENGTH
    ]
    assert [row.log_position for row in rows if row.error is None] == readable


def test_a_file_that_cannot_be_opened_fails_a_permissive_query_too(
    spark: SparkSession, member: WrittenMember, tmp_path: Path
) -> None:
    damaged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "damaged")))
    segment = damaged.archive_dir / f"0-{SEGMENT_LENGTH}.rec"
    segment.unlink()
    for mode in ("strict", "permissive"):
        message = failure(load(spark, damaged, "messages", mode=mode))
        assert message.startswith(f"{segment}, ")
        assert message.endswith("the segment file cannot be opened: No such file or directory")


@pytest.mark.parametrize("view", ["messages", "frames", "terms", "recording_log", "recordings", "snapshots"])
def test_a_worker_that_does_not_see_the_directory_fails_its_task(
    member: WrittenMember, tmp_path: Path, view: str
) -> None:
    """A row in place of what another worker could read would be a gap forever, behind an offset that has moved on."""
    copy = Path(shutil.copytree(member.base_dir, tmp_path / "copy"))
    options = SourceOptions((str(copy),), view=view, mode="permissive")
    reader = ClusterReader(options, spark_schema(arrow_schema(options)))
    partitions = reader.partitions()
    copy.rename(tmp_path / "elsewhere")
    for partition in partitions:
        with pytest.raises(
            RecordingUnavailableError, match=r"copy.*: host \S+ does not see this directory of .*: mount it there"
        ):
            list(reader.read(partition))


@pytest.mark.parametrize("committed_only", [True, False])
def test_a_member_without_a_readable_catalog_is_one_row_of_a_permissive_query(
    member: WrittenMember, tmp_path: Path, committed_only: bool
) -> None:
    damaged = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "damaged")))
    (damaged.archive_dir / "archive.catalog").write_bytes(b"cut")
    paths = (str(member.base_dir), str(damaged.base_dir))
    for mode in ("permissive", "strict"):
        options = SourceOptions(paths, member="all", mode=mode, view="timers", committed_only=committed_only)
        reader = ClusterReader(options, spark_schema(arrow_schema(options)))
        if mode == "strict":
            with pytest.raises(RecordingError, match="the catalog has 3 bytes"):
                reader.partitions()
            continue
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        *rows, last = [row for batch in batches for row in batch.to_pylist()]
        assert len(rows) == len(member.of_template(20))
        assert (last["member_id"], "the catalog has 3 bytes" in last["error"]) == (1, True)


def test_a_position_that_is_given_bounds_also_a_log_whose_end_is_lost(member: WrittenMember, tmp_path: Path) -> None:
    shorter = WrittenMember(Path(shutil.copytree(member.base_dir, tmp_path / "shorter")))
    log, *rest = open_member(shorter.base_dir).recordings()
    wanted, last = (member.messages[place]["log_position"] for place in (10, -2))
    write_catalog(shorter.archive_dir, [replace(log, stop_position=last), *rest])
    for committed, mode, end in ((wanted, "strict", wanted), (None, "permissive", last)):
        options = SourceOptions((str(shorter.base_dir),), mode=mode, committed_only=True, committed=committed)
        reader = ClusterReader(options, spark_schema(arrow_schema(options)))
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        expected = [one["log_position"] for one in member.messages if one["log_position"] <= end]
        assert [row["log_position"] for row in rows if row["error"] is None] == expected
        assert [row["log_position"] for row in rows if row["error"] is not None] == ([] if committed else [last])


def test_an_error_of_a_recording_comes_whole_from_a_worker() -> None:
    error = RecordingError("is damaged", file="f", offset=3, log_position=4)
    text = f"Traceback (most recent call last):\n  File x\ncontainer.errors.RecordingError: {error}\n SQLSTATE: 38000"
    assert str(plain_error(PySparkException(text))) == "f, offset 3, log position 4: is damaged"


def test_an_error_of_a_write_is_what_java_says_last() -> None:
    text = """[STREAM_FAILED] Query terminated with exception: Return Message: Traceback (most recent call last):
py4j.protocol.Py4JJavaError: An error occurred while calling o68.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:823)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy.
"""
    assert str(plain_error(PySparkException(text))) == "IOException: No space left on device"
