"""Recordings as a stream of Arrow, which DuckDB, Polars and writers of Parquet take, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

from container.errors import ConfigurationError, RecordingError
from container.recordings import VIEWS, Filters, open_reader, plan, read, schema
from tests.spark.written_members import WrittenMember, write_history


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> WrittenMember:
    return write_history(tmp_path_factory.mktemp("member"))


@pytest.mark.parametrize("view", VIEWS)
def test_a_reader_has_the_schema_and_the_rows_of_its_view(member: WrittenMember, view: str) -> None:
    with open_reader(member.base_dir, view, batch_rows=100) as batches:
        assert batches.schema.equals(schema(view), check_metadata=True)
        assert batches.read_all().to_pylist() == [
            row for batch in read(member.base_dir, view) for row in batch.to_pylist()
        ]


def test_duckdb_and_polars_read_it(member: WrittenMember, tmp_path: Path) -> None:
    columns = ["event_time", "cluster_session_id", "payload_length"]
    rows = open_reader(member.base_dir, "session_messages", columns=columns, batch_rows=100)
    groups = duckdb.from_arrow(rows).aggregate("cluster_session_id, count(*) AS n, sum(payload_length) AS bytes")
    expected: dict[int, tuple[int, int]] = {}
    for message in member.of_template(1):
        count, length = expected.get(message["cluster_session_id"], (0, 0))
        expected[message["cluster_session_id"]] = count + 1, length + len(message["payload"])
    assert {row[0]: (row[1], row[2]) for row in groups.fetchall()} == expected
    frame = pl.from_arrow(open_reader(member.base_dir, "session_messages", columns=columns).read_all())
    assert isinstance(frame, pl.DataFrame)
    windows = frame.sort("event_time").group_by_dynamic("event_time", every="1s").agg(pl.len())
    assert windows["len"].sum() == len(member.of_template(1))
    ds.write_dataset(open_reader(member.base_dir, "messages"), tmp_path / "out", format="parquet")
    stored = duckdb.read_parquet(f"{tmp_path}/out/*.parquet").aggregate("count(*)")
    assert stored.fetchall() == [(len(member.messages),)]


def test_filters_and_columns_are_those_of_read(member: WrittenMember) -> None:
    late = member.messages[1000]["timestamp"]
    rows = open_reader(member.base_dir, "messages", columns=["timestamp"], filters=Filters(begin_timestamp=late))
    assert rows.read_all().column(0).to_pylist() == [m["timestamp"] for m in member.messages if m["timestamp"] >= late]
    with pytest.raises(ConfigurationError, match="has no column 'color'"):
        open_reader(member.base_dir, "messages", columns=["color"])


def test_damage_ends_the_stream_after_the_rows_before_it_and_is_a_row_in_mode_permissive(tmp_path: Path) -> None:
    damaged = write_history(tmp_path)
    _, file, *_ = sorted((tmp_path / "archive").glob("0-*.rec"), key=lambda path: int(path.stem.split("-")[1]))
    with file.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 65536)
    positions: list[int] = []
    batches = open_reader(damaged.base_dir, "messages", columns=["log_position"], batch_rows=100)
    with pytest.raises(RecordingError, match=file.name):
        positions.extend(position for batch in batches for position in batch.column(0).to_pylist())
    assert positions == [message["log_position"] for message in damaged.messages][: len(positions)] != []
    with pytest.raises(duckdb.Error, match=file.name):
        duckdb.from_arrow(open_reader(damaged.base_dir, "messages")).aggregate("count(*)").fetchall()
    rows = open_reader(damaged.base_dir, "messages", mode="permissive").read_all()
    assert sum(error is not None for error in rows.column("error").to_pylist()) == 1


@pytest.mark.parametrize("members", ["/var/lib/member-0", Path("member-0"), ["member-0"]])
def test_a_plan_is_of_members(members: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"members=.*: must be a Member or several, which open_member makes"):
        plan(members, "messages")
