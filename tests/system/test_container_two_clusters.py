"""Two clusters of one member each on one media driver and one archive: each container keeps to its own cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from container.testing.processes.endpoints import MemberEndpoints, PortReservation
from container.testing.processes.local_cluster import CounterType, Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.harness import (
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    error_texts,
    module_errors,
    reports,
    snapshot_recordings,
    start_tool,
)


def control_streams(number: int) -> dict[str, str]:
    """Streams between consensus module and container that no other cluster on the same driver uses."""
    return {
        "aeron.cluster.service.stream.id": str(1_000 * number + 104),
        "aeron.cluster.consensus.module.stream.id": str(1_000 * number + 105),
    }


class Guest(Node):
    """A consensus module on the driver and the archive of another node."""

    def __init__(self, host: Node, cluster_id: int, properties: dict[str, str]) -> None:
        self._guest_ports = PortReservation()
        endpoints = replace(MemberEndpoints.take(0, self._guest_ports), archive=host.endpoints.archive)
        super().__init__(
            cluster_id=cluster_id,
            members=[endpoints],
            base_dir=host.base_dir / f"cluster-{cluster_id}",
            idle_strategy=host.idle_strategy,
            class_path=host.class_path[1:],
            properties={**properties, "aeron.dir": str(host.aeron_dir)},
            separate_processes=True,
        )
        self.aeron_dir, self.archive_dir = host.aeron_dir, host.archive_dir
        self.driver, self.archive = host.driver, host.archive
        self._parts = [self.process]
        self.processes = [self.process]

    def start(self) -> Self:
        self.process.start()
        return self

    def close(self) -> None:
        super().close()
        self._guest_ports.close()


def start_service(node: Node) -> Process:
    """Start the service of a cluster and wait until its member leads."""
    service = node.start_service(REPORTING_SERVICE)
    node.await_leader()
    return service


def message_lengths(service: Process) -> list[int]:
    """The lengths of the messages of services that a service has got."""
    return [report["length"] for report in reports(service, "on_session_message") if report["session_id"] is None]


def test_two_clusters_share_driver_and_archive(node: NodeFactory) -> None:
    host = node(cluster_id=5, separate_processes=True, properties=control_streams(1))
    with Guest(host, 7, control_streams(2)) as guest:
        host.start()
        first = start_service(host)
        guest.start()
        second = start_service(guest)
        with CommandClient(host) as of_first, CommandClient(guest) as of_second:
            for _message in range(3):
                assert of_first.do("offer", length=100) > 0
            assert of_second.do("offer", length=200) > 0
            of_first.do("schedule", correlation_id=1, delay_ms=10)
            await_report(first, "on_timer_event")
            await_report(first, "on_session_message", count=7)
            await_report(second, "on_session_message", count=2)
            assert (of_first.do("state"), of_second.do("state")) == ([8, 1, 0], [3, 0, 0])
            assert (message_lengths(first), message_lengths(second)) == ([100] * 3, [200])
            for service in (first, second):
                assert len(reports(service, "on_new_leadership_term_event")) == 1

            tools = [start_tool(each, "snapshot") for each in (host, guest)]
            assert [tool.wait(LIMIT_S) for tool in tools] == [0, 0]
            snapshots = [snapshot_recordings(each) for each in (host, guest)]
            assert [sorted(snapshot) for snapshot in snapshots] == [[-1, 0], [-1, 0]]
            assert not set(snapshots[0].values()) & set(snapshots[1].values())

            # The end of one cluster's consensus module ends its container, and nothing of the other cluster.
            guest.stop()
            second.wait(LIMIT_S)
            assert ["commit-pos counter unexpectedly closed" in text for text in error_texts(guest)] == [True]
            assert of_first.do("echo", text="still here") == "still here"
        assert first.is_running
        guest.start()
        second = start_service(guest)
        assert reports(second, "on_start")[0]["state"] == [3, 0, 0]
        with CommandClient(host) as of_first, CommandClient(guest) as of_second:
            assert of_second.do("offer", length=300) > 0
            await_report(second, "on_session_message", count=2)
            assert of_first.do("state") == [10, 1, 0]
            assert of_second.do("state") == [6, 0, 0]
        for each in (host, guest):
            assert each.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0) == 0
            assert error_texts(each) == module_errors(each) == []
