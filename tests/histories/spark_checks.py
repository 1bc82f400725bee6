"""The rules for every history in Spark: ingest has the committed messages, and the audit knows damage."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from container.pipeline.audit import AuditReport, audit
from container.pipeline.ingest import ingest
from container.spark.options import SourceOptions
from tests.histories.checks import Damage, Disagreement, agree, plain_rows
from tests.histories.world import WrittenCluster, write_cluster


def run(spark: SparkSession, seed: int, directory: Path) -> None:
    """Write the history of a seed into a new directory, and check it."""
    directory.mkdir()
    cluster = write_cluster(seed, directory)
    check_ingest(spark, cluster, directory / "table")
    check_audit(spark, cluster, random.Random(seed))


def options_of(cluster: WrittenCluster, max_bytes_per_batch: int | None = None) -> SourceOptions:
    return SourceOptions(
        tuple(str(member.base_dir) for member in cluster.members),
        member="all",
        max_bytes_per_batch=max_bytes_per_batch,
    )


def check_ingest(spark: SparkSession, cluster: WrittenCluster, table: Path) -> None:
    """The table has each committed message of each member once, and the manifest says so."""
    manifest = ingest(spark, options_of(cluster, 100_000), table, cluster="main")
    expected = sorted(
        (member.member_id, row["log_position"], row["timestamp"], row["cluster_session_id"], row["payload"])
        for member in cluster.members
        for row in ({"cluster_session_id": -1, "payload": b"", **one} for one in plain_rows(member, member.committed))
    )
    rows = spark.read.parquet(str(table)) if manifest.row_count else None
    names = ["member_id", "log_position", "timestamp", "cluster_session_id", "payload"]
    found = sorted(
        (one, two, three, -1 if four is None else four, bytes(five or b""))
        for one, two, three, four, five in ([] if rows is None else rows.select(*names).collect())
    )
    agree("ingest", found, expected)
    agree("rows by the manifest", [manifest.row_count], [len(expected)])
    for member in cluster.members:
        known = manifest.members[str(member.member_id)]
        agree("positions by the manifest", [known.end_position], [max(member.start, member.committed)])


def check_audit(spark: SparkSession, cluster: WrittenCluster, rng: random.Random) -> None:
    """A history without damage does not fail; a byte of a payload that a majority has differently does."""
    verdict = audit(spark, options_of(cluster))
    if verdict.verdict == "fail":
        raise Disagreement(f"the audit fails a history without damage: {_failures(verdict)}")
    if len(cluster.members) == 1:
        return
    member = rng.choice([one for one in cluster.members if one.committed > one.start])
    payloads = [row for row in plain_rows(member, member.committed) if row["template_id"] == 1]
    compared = [
        row for row in payloads if sum(one.start < row["log_position"] <= one.agreed for one in cluster.members) > 1
    ]
    if not compared:
        return
    row = rng.choice(compared)
    damage = Damage(rng, member, row["begin_position"] + 64)  # the first byte of its payload
    try:
        if audit(spark, options_of(cluster)).verdict != "fail":
            raise Disagreement(f"{damage}: the audit does not find it")
    finally:
        damage.undo()


def _failures(report: AuditReport) -> list[str]:
    return [finding.text for one in report.checks for finding in one.findings if finding.state == "fail"]
