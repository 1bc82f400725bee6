"""A cluster with another unit of time than the default: log, timers and snapshot of a real node, and its next start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import container
from container.api import ClientSession, Cluster, Header, MessageBuffer, TimeUnit
from container.consensus.cluster_clock import TIME_UNITS, ClusterClock
from container.errors import ClusterError, ConfigurationError
from container.settings.consensus_module_table import cluster_time_unit_of
from container.settings.sources import load_consensus_module_settings
from container.testing.memory.manual_time import ManualClock
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.recordings_world import rows_of
from tests.services import Counter
from tests.test_cluster_node import ask
from tests.test_consensus_module import GIVEN

NS_PER_UNIT = {"micros": 1_000, "nanos": 1}
DELAY_NS = 30_000_000


class Timed(Counter):
    """Schedules a timer 30 ms after each message; tells the times of both."""

    def __init__(self, ns_per_unit: int) -> None:
        super().__init__()
        self.ns_per_unit = ns_per_unit
        self.deadlines: list[int] = []
        self.expired: list[int] = []
        self.units: set[TimeUnit | None] = set()
        self.cluster: Cluster | None = None

    def on_start(self, cluster: Cluster, snapshot_image: container.SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.cluster = cluster

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        assert self.cluster is not None
        assert self.cluster.time == timestamp
        self.units.add(self.cluster.time_unit)
        self.deadlines.append(timestamp + DELAY_NS // self.ns_per_unit)
        while not self.cluster.schedule_timer(len(self.deadlines), self.deadlines[-1]):
            self.cluster.idle()
        super().on_session_message(session, timestamp, buffer, header)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.expired.append(timestamp)


@pytest.mark.parametrize("unit", [pytest.param("micros", marks=pytest.mark.slow), "nanos"])
def test_a_cluster_keeps_the_unit_that_it_began_with(tmp_path: Path, unit: str) -> None:
    ports = PortReservation()
    place: dict[str, Any] = {"directory": tmp_path, "host": ports.host, "port": ports.take_row(5)}
    scale = NS_PER_UNIT[unit]
    settings = {"cluster_clock": unit}
    service = Timed(scale)
    with container.launch_node(service, **place, consensus_module=settings) as node:
        begin = time.time_ns()
        assert ask(node, b"4", b"5") == b"9"
        wait_until(lambda: len(service.expired) == 2, LIMIT_S, "two timers to expire")
        end = time.time_ns()
        node.take_snapshot()
        assert ask(node, b"1") == b"10"
    assert service.units == {TimeUnit[unit.upper()]}
    for deadline, expired in zip(service.deadlines[:2], service.expired[:2], strict=True):
        assert begin + DELAY_NS <= deadline * scale <= expired * scale <= end
    rows = rows_of(tmp_path, "messages", columns=["time_unit", "timestamp"])
    assert {row["time_unit"] for row in rows if "time_unit" in row} == {unit.upper()}
    assert all(begin - 60e9 < row["timestamp"] * scale <= time.time_ns() for row in rows)

    with pytest.raises(ClusterError, match="incompatible time unit: 0 snapshot=[12]; a cluster keeps the one"):
        container.launch_node(Timed(scale), **place)
    again = Timed(scale)
    with container.launch_node(again, **place, consensus_module=settings) as node:
        assert again.restored == 9
        assert ask(node, b"1") == b"11"
        wait_until(lambda: len(again.expired) == 2, LIMIT_S, "timers, of which one was scheduled before the start")
    ports.close()


def test_without_a_snapshot_the_log_says_which_unit_it_is(tmp_path: Path) -> None:
    ports = PortReservation()
    place: dict[str, Any] = {"directory": tmp_path, "host": ports.host, "port": ports.take_row(5)}
    with container.launch_node(Counter(), **place) as node:
        assert ask(node, b"4") == b"4"
    with pytest.raises(ClusterError, match="the node ended while it started"):
        container.launch_node(Counter(), **place, consensus_module={"cluster_clock": "nanos"})
    with container.launch_node(Counter(), **place) as node:
        assert ask(node, b"4") == b"8"
    ports.close()


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        (None, 0),
        ("millis", 0),
        ("micros", 1),
        ("nanos", 2),
        ("io.aeron.cluster.MillisecondClusterClock", 0),
        ("io.aeron.cluster.NanosecondClusterClock", 2),
    ],
)
def test_upstream_s_names_are_known(given: str | None, unit: int) -> None:
    settings = load_consensus_module_settings(
        {**GIVEN}, environ={} if given is None else {"AERON_CLUSTER_CLOCK": given}
    )
    clock = ClusterClock(ManualClock(), cluster_time_unit_of(settings.cluster_clock))
    assert clock.time_unit == unit
    assert clock.from_nanos(8_000_000_999) == (8_000, 8_000_000, 8_000_000_999)[unit]
    assert len(TIME_UNITS) == 3


def test_another_unit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cluster_clock='seconds': must be millis, micros or nanos"):
        load_consensus_module_settings({**GIVEN, "cluster_clock": "seconds"}, environ={})
