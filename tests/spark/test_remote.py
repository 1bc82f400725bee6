"""Members at s3:// whose local directories are gone: the tests of the source, of its bounds and of streams once more.

Each runs over a copy of a member's directories and over a place to which the member was shipped.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from container.pipeline.audit import audit
from container.pipeline.ingest import ingest, read_table
from container.pipeline.ship import Shipper
from container.pipeline.ship_place import open_place
from container.recordings import open_member
from container.spark.offsets import end_positions
from container.spark.options import SourceOptions
from container.testing.processes.process import Process
from tests.object_store import ObjectStore, write_place
from tests.spark.conftest import LIMIT_S
from tests.spark.test_bounds import (
    test_a_batch_of_a_stream_has_at_most_so_many_rows as a_batch_of_a_stream_has_at_most_so_many_rows,
)
from tests.spark.test_bounds import (
    test_a_stream_begins_where_the_options_say,
    test_positions_bound_a_batch,
    test_times_leave_whole_files_unread_and_lose_no_row,
    write_days,
)
from tests.spark.test_source import (
    test_a_decoder_gives_typed_columns_and_rows_for_what_does_not_decode,
    test_a_query_with_filters_gives_what_it_gives_without_push_down,
    test_columns_and_batches_are_as_the_options_say,
    test_filters_leave_partitions_and_rows_unread,
    test_messages_are_rows_with_the_fields_of_the_log,
    test_queries_of_one_dataframe_do_not_share_their_filters,
)
from tests.spark.test_standalone import PYTHON_PATH, StandaloneCluster, cluster
from tests.spark.test_stream import (
    stream,
    test_a_stream_is_counted_in_windows_of_event_time,
    test_limited_batches_end_at_buffer_terms_and_reach_the_end,
)
from tests.spark.test_stream import (
    test_any_offsets_give_each_row_once as any_offsets_give_each_row_once,
)
from tests.spark.written_members import WrittenMember, write_history

__all__ = [
    "cluster",
    "test_a_decoder_gives_typed_columns_and_rows_for_what_does_not_decode",
    "test_a_query_with_filters_gives_what_it_gives_without_push_down",
    "test_a_stream_begins_where_the_options_say",
    "test_a_stream_is_counted_in_windows_of_event_time",
    "test_columns_and_batches_are_as_the_options_say",
    "test_filters_leave_partitions_and_rows_unread",
    "test_limited_batches_end_at_buffer_terms_and_reach_the_end",
    "test_messages_are_rows_with_the_fields_of_the_log",
    "test_positions_bound_a_batch",
    "test_queries_of_one_dataframe_do_not_share_their_filters",
    "test_times_leave_whole_files_unread_and_lose_no_row",
]


def moved(written: WrittenMember, store: ObjectStore, kind: str) -> WrittenMember:
    """The member at a URL; its directory is no more."""
    if kind == "shipped":
        url = store.place()
        Shipper(open_member(written.base_dir, committed="recorded"), open_place(url, store.options)).run()
        written = replace(written, url=url, storage=store.storage, called=url)
    else:
        written = replace(written, url=store.copy(written.base_dir), storage=store.storage)
    shutil.rmtree(written.base_dir)
    return written


@pytest.fixture(scope="module", params=[pytest.param("copied", marks=pytest.mark.slow), "shipped"])
def member(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore
) -> WrittenMember:
    """The member of all tests, in the object store alone."""
    return moved(write_history(tmp_path_factory.mktemp("member")), object_store, request.param)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["messages", "timers", "session_messages", "frames"])
def test_batches_of_few_rows_give_each_row_once(member: WrittenMember, view: str) -> None:
    a_batch_of_a_stream_has_at_most_so_many_rows(member, view)


@pytest.mark.slow
def test_any_offsets_give_each_row_of_a_remote_log_once(member: WrittenMember) -> None:
    any_offsets_give_each_row_once(member)


@pytest.mark.slow
def test_two_workers_that_do_not_see_the_disk_read_what_was_shipped(
    cluster: StandaloneCluster, member: WrittenMember, tmp_path: Path
) -> None:
    assert not member.base_dir.exists()
    assert member.storage is not None
    command = [sys.executable, "-m", "tests.spark.remote_program", cluster.url, member.path, member.storage.text]
    with Process("program", command, directory=tmp_path, environment={"PYTHONPATH": PYTHON_PATH}) as program:
        assert program.start().wait(LIMIT_S / 2) == 0, program.tail()
        found = json.loads(program.output())
    assert found["directories"] == [str(work_dir) for work_dir in cluster.work_dirs], "both workers had a part in it"
    assert [tuple(row) for row in found["rows"]] == [
        (message["log_position"], message["template_id"]) for message in member.messages
    ]
    assert found["snapshots"] == 21


def test_a_stream_goes_on_with_each_manifest(tmp_path: Path, object_store: ObjectStore) -> None:
    written = write_history(tmp_path / "member")
    every = [message["log_position"] for message in written.messages]
    shipped = replace(written, url=object_store.place(), storage=object_store.storage, called="2")
    url, found = shipped.path, list[int]()
    write_place(object_store, written.base_dir, url, end=every[10])
    source = stream(shipped)
    offset = source.initialOffset()
    for number, end in enumerate([every[10], every[400], every[401], every[-1]], 1):
        write_place(object_store, written.base_dir, url, number=number, end=end)
        latest = source.latestOffset(offset, ReadAllAvailable())
        assert end_positions(latest) == {"2": end}
        batches = [batch for part in source.partitions(offset, latest) for batch in source.read(part)]
        found += [row["log_position"] for batch in batches for row in batch.to_pylist()]
        assert found == [position for position in every if position <= end]
        offset = latest


@pytest.mark.slow
def test_an_audit_and_an_ingest_read_members_at_urls(
    spark: SparkSession, tmp_path: Path, object_store: ObjectStore
) -> None:
    written = write_history(tmp_path / "member")
    places = [object_store.place() for _ in range(2)]
    for number, place in enumerate(places):
        write_place(object_store, written.base_dir, place, member_id=number)
    options = SourceOptions(tuple(places), storage=object_store.storage)
    shutil.rmtree(written.base_dir)
    report = audit(spark, options)
    assert report.verdict == "pass", report
    manifest = ingest(spark, options, tmp_path / "table")
    assert (manifest.cluster, manifest.row_count) == ("7", len(written.messages))
    assert read_table(spark, tmp_path / "table").count() == len(written.messages)


@pytest.fixture(scope="module", params=[pytest.param("copied", marks=pytest.mark.slow), "shipped"])
def days(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore
) -> WrittenMember:
    """A log of twelve hours, in the object store alone."""
    return moved(write_days(tmp_path_factory.mktemp("days") / "member"), object_store, request.param)
