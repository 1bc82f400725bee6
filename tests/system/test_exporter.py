"""The exporter serves what nodes count, Java's and native ones: live, killed, and three of which the leader dies."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from container.common.aeron_defaults import CounterType
from container.operate.driver_counters import open_cnc
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.local_cluster import LocalCluster, Node, Service
from container.testing.processes.process import Process, wait_until
from tests.limits import LIMIT_S
from tests.system.harness import COMMAND, LEDGER_SERVICE, ROOT, NodeFactory, Parts, run_ledger_client, start
from tests.system.test_native_archive import PUTS


class Scraped:
    """An exporter as Prometheus sees it."""

    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url

    def values(self) -> dict[tuple[str, ...], float]:
        """The values by the name of the sample, and what its labels are beside cluster and member."""
        with urllib.request.urlopen(self.url, timeout=LIMIT_S) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        return {
            (sample.name, *[value for name, value in sorted(sample.labels.items()) if not name.endswith("er_id")]): (
                sample.value
            )
            for family in families
            for sample in family.samples
        }


def cycle_times_ns(member: Node) -> list[int]:
    """The longest duty cycles of the threads of a node's archive."""
    with open_cnc(member.aeron_dir) as file:
        return [each.value for each in file.counters() if each.type_id == CounterType.ARCHIVE_MAX_CYCLE_TIME]


@contextmanager
def exporting(place: Path, *directories: Path) -> Iterator[Scraped]:
    """An exporter of nodes, for a ``with`` block; it ends in order with SIGTERM."""
    command = [*COMMAND, "exporter", *map(str, directories), "--port", "0", "--log-format", "json"]
    with Process("exporter", command, directory=place) as process:
        process.start()

        def find_url() -> str | None:
            lines = process.errors().splitlines()
            return None if not lines else str(json.loads(lines[0])["message"]).rpartition(" ")[2]

        yield Scraped(process, wait_until(find_url, LIMIT_S, "the exporter's line"))
        assert process.stop(LIMIT_S) == 0, process.tail()


@pytest.mark.nodes("native", "java")
def test_the_exporter_serves_what_a_node_counts(
    node: NodeFactory, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_java = request.node.callspec.params["node"] == "java"
    # Java's archive counts the cycles of each of its threads.
    member = node(properties={"aeron.archive.threading.mode": "DEDICATED"} if is_java else {})
    start(member, LEDGER_SERVICE)
    name = str(member.cluster_dir)
    with exporting(tmp_path, member.cluster_dir) as scraped:
        run_ledger_client(member, *PUTS)
        slowest_ns = max(cycle_times_ns(member))
        before = scraped.values()
        assert slowest_ns <= round(before["aeron_cluster_max_cycle_time_seconds", "archive", name] * 1e9)
        assert before["aeron_cluster_max_cycle_time_seconds", "archive", name] * 1e9 <= max(cycle_times_ns(member)) + 1
        member.take_snapshot()
        after = scraped.values()
        for values, snapshots in ((before, 0), (after, 1)):
            assert values["aeron_cluster_up", name] == values["aeron_cluster_ready", name] == 1
            assert values["aeron_cluster_leader", name] == 1
            assert values["aeron_cluster_module_state", name, "ACTIVE"] == 1
            assert values["aeron_cluster_service_up", name, "0"] == 1
            assert values["aeron_cluster_snapshots_total", name] == snapshots
            assert values["aeron_cluster_errors_total", "consensus-module", name] == 0
            assert values["aeron_cluster_errors_total", "service-0", name] == 0
            assert values["aeron_driver_received_bytes_total", name] > 0
        assert after["aeron_cluster_commit_position_bytes", name] == member.counter_value(CounterType.COMMIT_POSITION)
        assert (
            before["aeron_cluster_commit_position_bytes", name]
            < after["aeron_cluster_last_snapshot_position_bytes", name]
            <= after["aeron_cluster_recorded_position_bytes", name]
        )
        assert 0 < after["aeron_cluster_max_snapshot_duration_seconds", "consensus-module", name] < LIMIT_S
        assert after["aeron_archive_written_bytes_total", name] > 0
        member.kill()
        wait_until(
            lambda: scraped.values()["aeron_cluster_up", name] == 0 or None, LIMIT_S, "the node to count as dead"
        )
        assert scraped.values()["aeron_cluster_leader", name] == 0


@pytest.mark.slow
def test_of_three_members_one_leads_before_and_after_the_leader_s_death(tmp_path: Path, parts: Parts) -> None:
    with LocalCluster([Service(LEDGER_SERVICE)], **parts) as cluster:
        leader = cluster.start().await_ready()
        directories = [member.node.cluster_dir for member in cluster.members]
        with exporting(tmp_path, *directories) as scraped:

            def leaders() -> list[str]:
                found = scraped.values()
                return [str(each) for each in directories if found.get(("aeron_cluster_leader", str(each))) == 1]

            assert leaders() == [str(leader.node.cluster_dir)]
            leader.kill()
            cluster.await_leader()
            wait_until(
                lambda: (len(leaders()) == 1 and leaders() != [str(leader.node.cluster_dir)]) or None,
                LIMIT_S,
                "another leader in the metrics",
            )
            assert len({member.node.cluster_dir for member in cluster.members}) == 3


def test_a_node_serves_its_own_metrics(tmp_path: Path) -> None:
    ports = PortReservation()
    command = [*COMMAND, "dev", "examples.echo_service:EchoService", "--dir", str(tmp_path / "node")]
    command += ["--host", "127.0.0.1", "--port", str(ports.take_row(5)), "--metrics-port", "0", "--log-format", "json"]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with Process("dev", command, directory=tmp_path, environment=environment) as process:
        process.start()

        def ready() -> list[dict[str, Any]] | None:
            whole, _, _ = process.errors().rpartition("\n")
            lines = [json.loads(line) for line in whole.splitlines()]
            return lines if any("the node is ready" in line["message"] for line in lines) else None

        lines = process.wait_until(ready, LIMIT_S, "the node to be ready")
        (url,) = [line["message"].rpartition(" ")[2] for line in lines if line.get("source") == "exporter"]
        values = Scraped(process, url).values()
        assert values["aeron_cluster_leader", str(tmp_path / "node")] == 1
        assert process.stop(LIMIT_S) == 0, process.tail()
    ports.close()
