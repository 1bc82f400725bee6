"""The audit of three members and the copy that a backup has made of them: equal, and each difference is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from container.common.aeron_defaults import CounterType
from container.files.catalog import read_catalog
from container.files.recording_log import CONSENSUS_MODULE_SERVICE_ID, read_recording_log
from container.pipeline.audit import AuditReport, audit
from container.spark.options import SourceOptions
from container.testing.processes.native_cluster import NativeCluster
from tests.limits import LIMIT_S
from tests.system.backup_processes import BackupProcess
from tests.system.test_disaster_recovery import PATHS, SERVICE, Load
from tests.system.test_native_archive import LOG_STREAM_ID, closing_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FRAME_HEADER_LENGTH = 32


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with closing_session() as session:
        yield session


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The directories of three members that were killed, and of the copy, whose backup has ended."""
    directory = tmp_path_factory.mktemp("audited")
    with NativeCluster(SERVICE, base_dir=directory / "cluster", environment={"PYTHONPATH": PATHS}) as cluster:
        cluster.start().await_leader()
        cluster.start_client_driver()
        load = Load(cluster)
        try:
            load.await_more(100)
            cluster.take_snapshot()
            with BackupProcess("native", [each.node for each in cluster.members], directory / "backup") as backup:
                backup.await_position(1)
                load.await_more(100)
                cluster.take_snapshot()
                backup.query_now()
                backup.process.wait_until(
                    lambda: backup.counter(CounterType.BACKUP_SNAPSHOT_COUNTER) == 2, LIMIT_S, "the second snapshot"
                )
                load.await_more(100)
                leader = cluster.leader
                assert leader is not None
                end = leader.node.counter_value(CounterType.COMMIT_POSITION)
                assert end is not None
                backup.await_position(end)
                for member in cluster.members:
                    member.kill()
                backup.stop()
        finally:
            load.close()
        yield [*(each.node.base_dir for each in cluster.members), backup.base_dir]


def audited(spark: SparkSession, places: list[Path]) -> AuditReport:
    return audit(spark, SourceOptions(tuple(str(each) for each in places)))


def failed(report: AuditReport) -> dict[str, list[str]]:
    """Findings of the checks that fail."""
    return {
        check.name: [found.text for found in check.findings if found.state == "fail"]
        for check in report.checks
        if any(found.state == "fail" for found in check.findings)
    }


def log_file(copy: Path) -> Path:
    (log,) = [each for each in read_catalog(copy / "archive") if each.stream_id == LOG_STREAM_ID]
    return copy / "archive" / f"{log.recording_id}-0.rec"


def snapshot_file(copy: Path) -> Path:
    entries = [each for each in read_recording_log(copy / "cluster") if each.is_valid_snapshot]
    last = [each for each in entries if each.service_id == CONSENSUS_MODULE_SERVICE_ID][-1]
    return copy / "archive" / f"{last.recording_id}-0.rec"


def test_members_and_copy_have_one_history(spark: SparkSession, places: list[Path]) -> None:
    report = audited(spark, places)
    assert failed(report) == {}
    assert report.find("log").state == "pass"
    assert report.find("snapshots").state == "pass"
    assert len(report.members) == 4
    copy = report.members[-1]
    assert len(copy.snapshot_positions) == 2
    assert copy.snapshot_positions == report.members[0].snapshot_positions


def test_a_byte_of_the_copy_that_differs_is_found(spark: SparkSession, places: list[Path]) -> None:
    path = log_file(places[-1])
    with path.open("r+b") as file:
        file.seek(FRAME_HEADER_LENGTH + 8)
        before = file.read(1)
        file.seek(FRAME_HEADER_LENGTH + 8)
        file.write(bytes([before[0] ^ 1]))
    try:
        assert "log" in failed(audited(spark, places))
    finally:
        with path.open("r+b") as file:
            file.seek(FRAME_HEADER_LENGTH + 8)
            file.write(before)


@pytest.mark.parametrize(("find", "check"), [(log_file, "log"), (snapshot_file, "snapshots")])
def test_a_file_that_the_copy_lacks_is_found(spark: SparkSession, places: list[Path], find: object, check: str) -> None:
    path: Path = find(places[-1])  # type: ignore[operator]
    away = path.with_suffix(".away")
    path.rename(away)
    try:
        assert check in failed(audited(spark, places))
    finally:
        away.rename(path)
