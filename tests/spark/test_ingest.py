"""Ingest into Parquet: each row once, also over a kill in the middle, and a manifest of what is covered."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from container.errors import ConfigurationError, ContainerError
from container.pipeline.ingest import ingest, read_table
from container.pipeline.manifest import Gap, Manifest, MemberPositions, PositionRange, read_manifest
from container.pipeline.sink_log import finished_files
from container.spark import FORMAT
from container.spark.options import SourceOptions
from container.testing.process import Process
from tests.recordings_world import SEGMENT_LENGTH
from tests.spark.conftest import LIMIT_S
from tests.spark.written_members import TRANSFER, History, WrittenMember

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
    with pytest.raises(ConfigurationError, match="view='frames' has no timestamps to partition by"):
        ingest(spark, options_of(member, view="frames"), tmp_path, cluster="main")
    with pytest.raises(ConfigurationError, match="cluster: give the name of the cluster, as no mark file names it"):
        ingest(spark, options_of(member), tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not empty and has no _manifest.json"):
        ingest(spark, options_of(member), tmp_path, cluster="main")
    with pytest.raises(ContainerError, match="it is no table of an ingest"):
        read_table(spark, tmp_path)
    (tmp_path / "_manifest.json").write_text("{}")
    with pytest.raises(ContainerError, match="_manifest.json is no manifest: Object missing required field"):
        read_table(spark, tmp_path)
    Manifest(cluster="main", view="messages", decoder=None, members={}).write(tmp_path)
    with pytest.raises(ContainerError, match="is empty: no batch of its ingest is finished yet"):
        read_table(spark, tmp_path)


def test_ranges_lie_between_gaps() -> None:
    positions = MemberPositions(0, 1000, [Gap(500, None, "open"), Gap(0, 96, "begins later"), Gap(160, 320, "damaged")])
    positions.cover()
    assert positions.covered == [PositionRange(96, 160), PositionRange(320, 500)]


def test_logs_of_the_sink_are_read_when_spark_has_merged_them(tmp_path: Path) -> None:
    logs = tmp_path / "_spark_metadata"
    logs.mkdir()

    def write(name: str, *files: str) -> None:
        lines = [f'{{"path":"file://{tmp_path}/{file}","action":"add"}}' for file in files]
        (logs / name).write_text("\n".join(["v1", *lines]))

    write("8", "term=1/h%20i")
    write("9.compact", "a", "b", "c", "term=1/h%20i", "j")
    write("10", "k")
    assert finished_files(tmp_path, 8, 3, 7) == [tmp_path / "term=1/h i"]
    assert finished_files(tmp_path, 10, 3, 7) == [tmp_path / name for name in ("term=1/h i", "j", "k")]
    assert finished_files(tmp_path, 9, 4, 8) == [tmp_path / "j"]
    # The log of a batch that the checkpoint does not have yet does not count, and neither do logs that are gone.
    assert finished_files(tmp_path, 11, 5, 9) is None
