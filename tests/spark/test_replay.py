"""Replays and comparisons on Spark: the rows of the segments, in parallel, and the commands."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from container.__main__ import main
from container.errors import ConfigurationError
from container.pipeline.replay import DiffSummary, diff, diff_tables, replay, summarise_diff, summarise_replay
from container.pipeline.spark_errors import plain_error
from container.replay.diff import diff as diff_whole
from container.spark.options import SourceOptions
from tests.replay_services import FAILING, STATE, GenerousTallyService, MoodyTallyService, TallyService
from tests.replay_world import GENEROUS, TALLY, Tally, of_kind, replayed, rows, write_tally


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    return write_tally(tmp_path_factory.mktemp("tally") / "member")


def options_of(tally: Tally, **options: Any) -> SourceOptions:
    return SourceOptions((str(tally.base_dir),), **options)


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a small table without their nulls."""
    found = [row.asDict() for row in frame.collect()]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def test_segments_are_partitions_with_the_rows_of_the_whole(spark: SparkSession, tally: Tally) -> None:
    middle = tally.answers[50][0]
    frame = replay(spark, options_of(tally, batch_rows=50), TALLY, hash_positions=[middle])
    assert frame.rdd.getNumPartitions() == 3
    assert "SHA-256" in frame.schema["state_hash"].metadata["comment"]
    assert collected(frame) == replayed(tally.base_dir, hash_positions=[middle])
    summary = summarise_replay(frame)
    assert (summary.compared_count, summary.differing_count, summary.first_error) == (2, 0, None)
    assert summary.row_counts["EGRESS"] == len(tally.answers)


def test_a_service_may_be_a_class_that_only_the_driver_knows(spark: SparkSession, tally: Tally) -> None:
    other = type("LocalTallyService", (GenerousTallyService,), {})
    frame = diff(spark, options_of(tally), TallyService, other, begin_position=tally.snapshots[0])
    begin = tally.snapshots[0]
    assert collected(frame) == rows(diff_whole(tally.base_dir, TallyService, other, begin_position=begin))
    assert summarise_diff(frame).first_answer == min(answer[0] for answer in tally.answers if answer[0] > begin)


def test_what_is_wrong_is_told_before_anything_runs_or_by_the_query(spark: SparkSession, tmp_path: Path) -> None:
    tally = write_tally(tmp_path / "member", 30)
    with pytest.raises(ConfigurationError, match="tests.replay_services has no Nobody"):
        replay(spark, options_of(tally), "tests.replay_services:Nobody")
    with pytest.raises(ConfigurationError, match="begin_position=64: a replay can begin at 0, "):
        replay(spark, options_of(tally), TALLY, begin_position=64)
    place = tally.answers[-3][0]
    tally.world.damage(place, b"\xff\xff\xff\x7f")
    with pytest.raises(PySparkException) as caught:
        replay(spark, options_of(tally), TALLY).collect()
    assert f"log position {place}: " in str(plain_error(caught.value))
    permissive = summarise_replay(replay(spark, options_of(tally, mode="permissive"), TALLY))
    assert permissive.first_error == tally.answers[-3][0]


def test_no_rows_are_no_differences(spark: SparkSession, tally: Tally) -> None:
    frame = diff(spark, options_of(tally), TALLY, TallyService)
    assert summarise_diff(frame) == DiffSummary({}, None, None, None)


def test_stored_replays_are_compared_like_services(spark: SparkSession, tally: Tally, tmp_path: Path) -> None:
    stored = []
    for service in (TallyService, MoodyTallyService):
        path = str(tmp_path / service.__name__)
        replay(spark, options_of(tally), service, is_continuous=True).write.parquet(path)
        stored.append(spark.read.parquet(path))
    found = collected(diff_tables(*stored))
    expected = rows(diff_whole(tally.base_dir, TallyService, MoodyTallyService))
    order = itemgetter("log_position", "kind", "cluster_session_id", "occurrence")
    assert sorted(of_kind(found, "EGRESS"), key=order) == sorted(of_kind(expected, "EGRESS"), key=order)
    assert sorted(row["log_position"] for row in found) == sorted(row["log_position"] for row in expected)
    assert diff_tables(stored[0], stored[0]).count() == 0


def run_command(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, *arguments: object) -> int:
    """Run the command in this process, on the tests' session."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    return main(["pipeline", "--master", "local[2]", *map(str, arguments)])


def test_the_commands_write_tables_and_say_what_they_found(
    spark: SparkSession,
    tally: Tally,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    range_options = ("--begin", tally.snapshots[1], "--end", tally.position, "--hash", tally.answers[-1][0])
    assert run_command(monkeypatch, spark, "replay", tally.base_dir, "--service", TALLY, "--out", out) == 0
    said = capsys.readouterr().out
    assert f"EGRESS: {len(tally.answers)}" in said
    assert f"recorded snapshots compared: 2, 0 differ; rows in {out}" in said
    assert spark.read.parquet(str(out)).where("kind = 'EGRESS'").count() == len(tally.answers)
    services = ("--service", TALLY, "--other", GENEROUS)
    assert run_command(monkeypatch, spark, "diff", tally.base_dir, *services, *range_options, "--out", out) == 1
    said, error = capsys.readouterr()
    first = min(answer[0] for answer in tally.answers if answer[0] > tally.snapshots[1])
    assert "EGRESS CHANGED: " in said
    assert f"the services do something different from log position {first} on; rows in {out}" in error
    assert run_command(monkeypatch, spark, "diff", tally.base_dir, *services[:2], "--other", TALLY, "--out", out) == 0
    assert f"{TALLY} does what {TALLY} does" in capsys.readouterr().out
    foreign = (*services[:2], "--other", "tests.replay_services:ForeignTallyService", "--begin", 0, "--continuous")
    assert run_command(monkeypatch, spark, "diff", tally.base_dir, *foreign, "--out", out) == 1
    error = capsys.readouterr().err
    assert f"the services have states that cannot be compared from log position {tally.snapshots[0]} on; ro" in error
    assert run_command(monkeypatch, spark, "diff", tally.base_dir, *foreign, "--ignore-state", "--out", out) == 0


def test_the_command_fails_for_a_service_that_fails_or_has_another_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(1)
    position = tally.take_snapshot(STATE.pack(5, 5))
    failing = tally.number(FAILING)
    path = tally.finish()
    out, service = ("--out", tmp_path / "out"), ("--service", TALLY)
    assert run_command(monkeypatch, spark, "replay", path, *service, *out, "--continuous") == 1
    assert f"the service failed, first at log position {failing}" in capsys.readouterr().err
    assert run_command(monkeypatch, spark, "replay", path, *service, *out, "--end", position) == 1
    text = f"the service's state is not the recorded one, first at the snapshot at {position}"
    assert text in capsys.readouterr().err
