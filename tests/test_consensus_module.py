"""A consensus module from launch to end: settings, starts that are refused, on a thread and driven by the caller."""

from __future__ import annotations

import socket
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.aeron.client import AeronClient
from container.aeron.media_driver import MediaDriver
from container.archive.server.native_archive import Archive
from container.client import AeronCluster
from container.clustered_service_container import ClusteredServiceContainer
from container.common.aeron_defaults import CounterType
from container.consensus.consensus_module import ConsensusModule
from container.consensus.consensus_module_arguments import (
    ConsensusModuleArguments,
    ConsensusModuleSettingsArguments,
)
from container.consensus.consensus_module_context import BackupRequests, ConsensusModuleContext
from container.errors import (
    ClusterError,
    ClusterTermination,
    ConcurrentConcludeError,
    ConfigurationError,
    ContainerError,
    DriverTimeoutError,
    MarkFileError,
)
from container.settings.consensus_module_table import ConsensusModuleSettings, consensus_module_settings_table
from container.settings.sources import load_consensus_module_settings
from container.testing.memory import transport_probe as probe
from container.testing.processes.endpoints import MemberEndpoints, PortReservation, members_string
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.services import Quiet

MEMBERS = "0,localhost:9010,localhost:9020,localhost:9030,localhost:9040,localhost:8010"
GIVEN: dict[str, Any] = {
    "cluster_members": MEMBERS,
    "ingress_channel": "aeron:udp",
    "replication_channel": "aeron:udp?endpoint=localhost:0",
}


def settings_of(**given: object) -> ConsensusModuleSettings:
    return load_consensus_module_settings({**GIVEN, **given}, environ={})


@pytest.mark.parametrize("missing", sorted(GIVEN))
def test_what_has_no_default_must_be_given(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{missing} must be given, such as "):
        settings_of(**{missing: None})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"log_channel": "aeron:udp?term-id=1"}, "log_channel=.*: leave out term-id, which the consensus module sets"),
        ({"startup_canvass_timeout_ns": "15s"}, "startup_canvass_timeout_ns=.*: must be at least twice"),
        ({"cluster_id": 2**31 - 1}, "archive_response_stream_id=20 with cluster_id=2147483647"),
        ({"service_count": 0}, "service_count=0: must be"),
        ({"service_count": 11}, "service_count=11: must be"),
        ({"archive_control_channel": "aeron:udp?endpoint=a:1"}, "local archive control must be IPC"),
        ({"timer_service": "sundial"}, "timer_service='sundial': must be wheel or priority_heap"),
        ({"cluster_memberz": MEMBERS}, "unknown setting 'cluster_memberz'.*did you mean 'cluster_members'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        settings_of(**given)


def test_settings_are_upstream_s_properties() -> None:
    settings = load_consensus_module_settings(
        {},
        environ={
            "AERON_CLUSTER_MEMBERS": MEMBERS,
            "AERON_CLUSTER_INGRESS_CHANNEL": "aeron:udp",
            "AERON_CLUSTER_REPLICATION_CHANNEL": "aeron:udp?endpoint=localhost:0",
            "AERON_CLUSTER_SESSION_TIMEOUT": "3s",
            "AERON_CLUSTER_TIMER_SERVICE_SUPPLIER": "io.aeron.cluster.PriorityHeapTimerServiceSupplier",
        },
    )
    assert settings.session_timeout_ns == 3_000_000_000
    assert settings.snapshot_stream_id == 107
    names = [setting.property for setting in consensus_module_settings_table().values()]
    assert len(names) == len(set(names))


def test_only_backups_are_allowed_what_they_ask_for_by_default() -> None:
    allowed = [each for each in range(120) if BackupRequests().is_authorised(111, each, None, b"")]
    assert allowed == [77, 79, 81]


class Place:
    """A driver, an archive and free ports for one member."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = PortReservation()
        self.endpoints = MemberEndpoints.take(0, self.ports)
        self.driver = MediaDriver.launch_embedded(directory / "driver")
        self.archive = Archive.launch(
            archive_dir=directory / "archive",
            aeron_dir=self.driver.aeron_dir,
            control_channel=f"aeron:udp?endpoint={self.endpoints.archive}",
            replication_channel="aeron:udp?endpoint=localhost:0",
            segment_file_length=1024**2,
        )

    def settings(self, **given: object) -> dict[str, Any]:
        return {
            "cluster_dir": self.directory / "cluster",
            "aeron_dir": self.driver.aeron_dir,
            "log_channel": "aeron:udp?term-length=1m",
            **GIVEN,
            "cluster_members": members_string([self.endpoints]),
            **given,
        }

    def service(self) -> ClusteredServiceContainer:
        return ClusteredServiceContainer.launch(
            Quiet(), cluster_dir=self.directory / "cluster", aeron_dir=self.driver.aeron_dir
        )

    def close(self) -> None:
        self.archive.close()
        self.driver.close()
        self.ports.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_it_leads_on_its_own_thread_and_closes(place: Place) -> None:
    with ConsensusModule.launch(**place.settings()) as module, place.service() as service:
        assert repr(module) == "<ConsensusModule consensus-module-0-0 running>"
        wait_until(lambda: service.context.service_name and leads(module), LIMIT_S, "a leader")
        with pytest.raises(ContainerError, match="the consensus module has its own thread: launch with"):
            module.invoke()
    assert not module.is_running
    assert module.failure is None
    module.close()
    assert service.join(LIMIT_S)


def leads(module: ConsensusModule) -> bool:
    """Whether it has appended the first event of a term."""
    publication = module.context.agent.log_publisher.publication
    return publication is not None and module.context.agent.has_leader


def test_a_caller_may_drive_it(place: Place) -> None:
    module = ConsensusModule.launch(**place.settings(use_agent_invoker=True))
    with place.service():

        def turn() -> bool:
            module.invoke()
            return leads(module)

        wait_until(turn, LIMIT_S, "a leader")
        module.close()
    assert module.invoke() == 0


def test_another_one_on_the_directory_or_of_the_cluster_is_refused(place: Place) -> None:
    with ConsensusModule.launch(**place.settings()):
        with pytest.raises(MarkFileError, match="active"):
            ConsensusModule.launch(**place.settings())
        with pytest.raises(ClusterError, match="existing consensus module detected for clusterId=0"):
            ConsensusModule.launch(**place.settings(cluster_dir=place.directory / "other"))

    def is_free() -> bool:
        """The driver takes the counters of a client that is closed away a moment later."""
        with AeronClient(place.driver.aeron_dir) as client:
            counters = probe.counters(client)
            records = [probe.counter_record(counters, each) for each in range(probe.counter_capacity(counters))]
        return not any(each["state"] == 1 and each["type_id"] == CounterType.CONSENSUS_MODULE_STATE for each in records)

    wait_until(is_free, LIMIT_S, "the counters of the consensus module to be gone")
    ConsensusModule.launch(**place.settings()).close()


def test_an_id_that_is_none_of_the_members_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cluster_member_id=1 is not in cluster_members: the members are 0"):
        ConsensusModule.launch(**GIVEN, cluster_member_id=1, cluster_dir=tmp_path)


def test_without_a_driver_nothing_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(DriverTimeoutError):
        ConsensusModule.launch(
            **GIVEN, cluster_dir=tmp_path / "cluster", aeron_dir=tmp_path / "none", driver_timeout_ms=50
        )
    assert list((tmp_path / "cluster").iterdir()) == []


def test_a_context_is_for_one(place: Place) -> None:
    context = ConsensusModuleContext(**place.settings())
    ConsensusModule.launch(context).close()
    assert context.is_closed
    with pytest.raises(ConcurrentConcludeError, match="make a new one for each consensus module"):
        ConsensusModule.launch(context)
    with pytest.raises(TypeError, match="give settings to the ConsensusModuleContext"):
        ConsensusModule.launch(context, cluster_id=1)
    with pytest.raises(ConfigurationError, match="must be a ConsensusModuleContext; give settings by name"):
        ConsensusModule.launch({"cluster_id": 1})  # type: ignore[arg-type]


def test_it_ends_with_a_service_that_ends(place: Place) -> None:
    module = ConsensusModule.launch(**place.settings())
    with place.service():
        wait_until(lambda: leads(module), LIMIT_S, "a leader")
    assert module.join(LIMIT_S)
    assert isinstance(module.failure, ClusterTermination)
    assert not module.failure.is_expected


def test_clients_reach_it_once_its_port_is_given_back(place: Place) -> None:
    host, port = place.endpoints.ingress.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((socket.gethostbyname(host), int(port)))
        module = ConsensusModule.launch(**place.settings())
        service = place.service()
        errors = module.context.counters.error_counter
        wait_until(lambda: leads(module) and errors.value > 0, LIMIT_S, "the driver to refuse the port")
    with module, service:
        AeronCluster.connect(
            aeron_dir=place.driver.aeron_dir,
            ingress_channel="aeron:udp",
            ingress_endpoints=f"0={place.endpoints.ingress}",
            egress_channel="aeron:udp?endpoint=localhost:0",
            message_timeout=LIMIT_S,
        ).close()
        assert module.failure is None


def test_the_keywords_for_type_checkers_are_the_settings() -> None:
    objects = {"idle_strategy", "authenticator", "authorisation_service"}
    names = set(consensus_module_settings_table())
    assert set(ConsensusModuleSettingsArguments.__annotations__) == names - objects
    own = set(typing.get_type_hints(ConsensusModuleContext.__init__)) - {"settings", "return"}
    assert set(typing.get_type_hints(ConsensusModuleArguments)) == names | own
