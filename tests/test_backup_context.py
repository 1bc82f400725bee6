"""A backup as a program has it: settings and objects, a real driver, an archive and a node to copy from."""

from __future__ import annotations

import time
import typing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import container
from container.aeron import MediaDriver
from container.archive.server.native_archive import Archive
from container.backup import ClusterBackup, ClusterBackupContext
from container.backup.backup_agent import ClusterBackupAgent
from container.backup.backup_arguments import BackupArguments, BackupSettingsArguments
from container.cli.command_line import parse
from container.common.aeron_defaults import CounterType
from container.errors import ClusterError, ConfigurationError, MarkFileError
from container.files.cnc_file import CncFile, CounterRecord, read_mark_file
from container.files.recording_log import read_recording_log
from container.node.cluster_node import ClusterNode
from container.operate import control
from container.operate.answers import RefusedError
from container.operate.control import backup_query_delay
from container.operate.driver_counters import BACKUP_STATES
from container.operate.marks import read_cluster_mark
from container.operate.node_errors import read_errors
from container.operate.node_metrics import NodeSample, sample_node
from container.operate.status import health, read_status
from container.settings.backup_table import BackupSettings, backup_settings_table
from container.settings.sources import load_backup_settings
from container.testing.memory.memory_transport import ManualClock, MemoryDriver
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.services import Counter
from tests.test_backup_requests import Credentials
from tests.test_cluster_node import ask
from tests.test_metrics import NAMES, values_of

GIVEN: dict[str, Any] = {
    "cluster_consensus_endpoints": "host0:9011,host1:9011",
    "consensus_channel": "aeron:udp?endpoint=backup:9111",
    "catchup_endpoint": "backup:0",
}


def settings_of(**given: object) -> BackupSettings:
    return load_backup_settings({**GIVEN, **given}, environ={})


def test_defaults_are_upstreams() -> None:
    settings = settings_of()
    assert (settings.source_type, settings.initial_replay_start) == ("ANY", "BEGINNING")
    assert settings.backup_interval_ns == 3600 * 10**9
    assert (settings.response_timeout_ns, settings.progress_timeout_ns) == (5 * 10**9, 10 * 10**9)
    assert settings.cool_down_interval_ns == 30 * 10**9
    assert settings.catchup_channel == "aeron:udp?alias=backup|cc=cubic|so-sndbuf=512k|so-rcvbuf=512k|rcv-wnd=512k"
    properties = [each.property for each in backup_settings_table().values()]
    assert len(properties) == len(set(properties))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cluster_consensus_endpoints": None}, "cluster_consensus_endpoints must be given, such as host1:9011,"),
        ({"cluster_consensus_endpoints": "a:1,b"}, "'b' is not an address: give host:port of each member, such as"),
        ({"cluster_consensus_endpoints": "a:0"}, "'a:0' is not an address: give host:port of each member, such as"),
        ({"consensus_channel": None}, "consensus_channel must be given, such as aeron:udp?endpoint=backup-host:9111"),
        ({"consensus_channel": "aeron:udp"}, "consensus_channel='aeron:udp' needs an endpoint, such as aeron:udp?end"),
        ({"catchup_endpoint": None}, "catchup_endpoint must be given, such as backup-host:0"),
        ({"catchup_endpoint": "host"}, "catchup_endpoint='host' is not an address: give host:port, such as "),
        ({"source_type": "LEADERS"}, "source_type='LEADERS': must be one of ANY, LEADER, FOLLOWER"),
        ({"backup_interval_ns": "0s"}, "backup_interval_ns='0s': must be 1000000 to "),
        ({"cluster_id": 2**31 - 1}, "cluster_id * 100 + 100 + archive_response_stream_id must be from -2147483648 to"),
        ({"archive_control_channel": "aeron:udp?endpoint=a:1"}, "local archive control must be IPC"),
        ({"backup_intervall_ns": 1}, "unknown setting 'backup_intervall_ns': did you mean 'backup_interval_ns'?"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_is_allowed(given: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_of(**given)
    assert text in str(caught.value)


def test_the_keywords_for_type_checkers_are_the_settings() -> None:
    names = set(backup_settings_table())
    assert set(BackupSettingsArguments.__annotations__) == names - {"idle_strategy", "credentials_supplier"}
    own = set(typing.get_type_hints(ClusterBackupContext.__init__)) - {"settings", "return"}
    assert set(typing.get_type_hints(BackupArguments)) == names | own


def test_credentials_must_be_able_to_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="credentials_supplier=<object.*>: its encoded_credentials"):
        ClusterBackupContext(credentials_supplier=object(), environ={})  # type: ignore[arg-type]
    context = ClusterBackupContext(
        cluster_dir=tmp_path, credentials_supplier="tests.services:Counter", environ={}, **GIVEN
    )
    with pytest.raises(ConfigurationError, match="credentials_supplier='tests.services:Counter': its encoded_cred"):
        context.conclude()
    context.abandon()


def test_the_command_refuses_directories_that_are_not_there(tmp_path: Path) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in GIVEN.items()]
    options = parse("aeron-cluster", ["backup", "--dir", str(tmp_path / "missing"), *words], lambda _: None)
    with pytest.raises(ClusterError, match="cluster_dir=.*missing"):
        options.command(options)
    (tmp_path / "copy").mkdir()
    options = parse(
        "aeron-cluster",
        ["backup", "--dir", str(tmp_path / "copy"), "--archive-dir", str(tmp_path / "missing"), *words],
        lambda _: None,
    )
    with pytest.raises(ClusterError, match="archive_dir=.*missing"):
        options.command(options)


class Supplier:
    """Needs to be asked twice."""

    def __init__(self, credentials: bytes = b"challenge") -> None:
        self._credentials = credentials

    def encoded_credentials(self) -> bytes:
        return self._credentials

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return b"word"


class World:
    """A node, and beside a driver of its own the archive of a backup."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = PortReservation()
        port = self.ports.take_row(5)
        self.node: ClusterNode = container.launch_node(
            Counter(), host=self.ports.host, port=port, consensus_module={"authenticator": Credentials()}
        )
        self.consensus_endpoint = f"{self.ports.host}:{port + 1}"
        self.driver = MediaDriver.launch_embedded()
        self.archive = Archive.launch(
            archive_dir=directory / "archive",
            aeron_dir=self.driver.aeron_dir,
            is_control_channel_enabled=False,
            replication_channel=f"aeron:udp?endpoint={self.ports.host}:0",
        )
        self.errors: list[BaseException] = []

    def launch(self, **settings: Any) -> ClusterBackup:
        given: dict[str, Any] = {
            "cluster_dir": self.directory / "cluster",
            "aeron_dir": self.driver.aeron_dir,
            "cluster_consensus_endpoints": self.consensus_endpoint,
            "consensus_channel": f"aeron:udp?endpoint={self.ports.host}:0",
            "catchup_endpoint": f"{self.ports.host}:0",
            "member_archive_response_channel": f"aeron:udp?endpoint={self.ports.host}:0",
            "cool_down_interval_ns": "100ms",
            "error_handler": self.errors.append,
        }
        return ClusterBackup.launch(**(given | settings))

    def counters(self, cluster_id: int = 0) -> list[CounterRecord]:
        """Those of a backup."""
        file = CncFile.open_ready(Path(self.driver.aeron_dir))
        assert file is not None
        try:
            types = [each for each in CounterType if each.name.startswith("BACKUP_")]
            return [each for each in file.counters() if each.type_id in types and each.key_int32(0) == cluster_id]
        finally:
            file.close()

    def counter(self, type_id: CounterType, cluster_id: int = 0) -> int | None:
        return next((each.value for each in self.counters(cluster_id) if each.type_id == type_id), None)

    def await_copy(self, snapshots: int = 0, cluster_id: int = 0) -> None:
        """Wait until the backup follows the node, and has copied so many snapshots since its start."""

        def is_there() -> bool:
            is_following = self.counter(CounterType.BACKUP_STATE, cluster_id) == 5
            count = self.counter(CounterType.BACKUP_SNAPSHOT_COUNTER, cluster_id) or 0
            return is_following and count >= snapshots

        wait_until(is_there, LIMIT_S, f"a copy; reported: {self.errors}")

    @property
    def unexpected_errors(self) -> list[BaseException]:
        """Those but of connections that a busy machine has lost."""
        return [each for each in self.errors if "is not connected" not in str(each)]

    def close(self) -> None:
        self.archive.close()
        self.driver.close()
        self.node.close()
        self.ports.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("backup"))
    yield made
    made.close()


def test_it_copies_shows_what_it_does_and_its_next_life_goes_on(world: World) -> None:
    ask(world.node, b"1")
    world.node.take_snapshot()
    cluster_dir = world.directory / "cluster"
    with world.launch() as backup:
        world.await_copy(1)
        assert repr(backup) == "<ClusterBackup cluster-backup clusterId=0 running>"
        mark = read_mark_file(cluster_dir / "cluster-mark.dat")
        assert (mark.component_type, mark.aeron_dir) == (3, world.driver.aeron_dir)
        status = read_status(cluster_dir)
        assert (status.component, status.node, status.archive) == ("BACKUP", "running", "running")
        assert status.backup is not None
        assert (status.backup.state, status.backup.snapshot_count) == ("BACKING_UP", 1)
        assert status.last_snapshot is not None
        assert health(cluster_dir, "ready", 0).exit_code == 0
        assert health(cluster_dir, "leader", 0).exit_code == 1
        with pytest.raises(ClusterError, match="this media driver has a backup with clusterId=0"):
            world.launch(cluster_dir=world.directory / "other")
        with pytest.raises(MarkFileError):
            world.launch()
    assert backup.failure is None
    assert health(cluster_dir, "live", 0).exit_code == 1
    ask(world.node, b"2")
    world.node.take_snapshot()
    with world.launch(credentials_supplier=Supplier()):  # which is challenged
        world.await_copy(1)
    entries = list(read_recording_log(cluster_dir))
    assert [each.service_id for each in entries if each.is_snapshot] == [0, -1, 0, -1]
    assert world.unexpected_errors == []


def test_its_metrics_have_what_its_counters_have(world: World) -> None:
    cluster_dir = world.directory / "cluster"
    with world.launch():
        world.await_copy()

        def sample() -> tuple[NodeSample, list[CounterRecord]] | None:
            before = world.counters()
            sampled = sample_node(cluster_dir)
            return (sampled, before) if world.counters() == before else None

        # The rest of the log may come while this looks.
        found, counters = wait_until(sample, LIMIT_S, "counters that stand still")
        values = values_of(found)
        records = {each.type_id: each for each in counters}
        assert values["aeron_cluster_up"] == values["aeron_cluster_archive_up"] == 1
        states = {name: value for name, value in values.items() if name.startswith("aeron_cluster_backup_state ")}
        assert states == {f"aeron_cluster_backup_state {each}": each == "BACKING_UP" for each in BACKUP_STATES}
        position = records[CounterType.BACKUP_LIVE_LOG_POSITION].value
        assert values["aeron_cluster_backup_position_bytes"] == position > 0
        deadline_ms = records[CounterType.BACKUP_QUERY_DEADLINE].value
        assert values["aeron_cluster_backup_next_query_timestamp_seconds"] == deadline_ms / 1000 > time.time()
        assert values["aeron_cluster_backup_snapshots_total"] == records[CounterType.BACKUP_SNAPSHOT_COUNTER].value
        errors = values["aeron_cluster_errors_total backup"]
        assert errors == records[CounterType.BACKUP_ERROR_COUNT].value
        assert world.unexpected_errors == []
        assert 0 <= values["aeron_cluster_mark_file_age_seconds backup"] < 10
        assert values["aeron_cluster_recorded_position_bytes"] >= position
        unknown = {name for name in NAMES if "_backup_" in name} - {name.partition(" ")[0] for name in values}
        assert not unknown, "metrics of a backup that this one has not"
        assert {each.labels[1:3] for each in found.samples[1:]} == {("0", "")}, "a backup is not a member"
    assert values_of(sample_node(cluster_dir))["aeron_cluster_up"] == 0


def test_events_and_error_log_say_what_it_does(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As `aeron-cluster errors` reads them, and the log has them."""
    cluster_dir = world.directory / "said"
    # A busy machine may have other rounds that fail, such as one without an answer in time.
    text = f"no member answers as it should: {world.consensus_endpoint} is the leader, source_type=FOLLOWER"
    with caplog.at_level("DEBUG", "container"):
        with world.launch(cluster_dir=cluster_dir, cluster_id=11, source_type="FOLLOWER", response_timeout_ns="1s"):
            wait_until(lambda: sum(text in str(each) for each in world.errors) > 1, LIMIT_S, "two rounds that fail")
            (log,) = [each for each in read_errors(cluster_dir, []) if each.source == "backup"]
            values = values_of(sample_node(cluster_dir))
        with world.launch(cluster_dir=cluster_dir, cluster_id=11):
            world.await_copy(cluster_id=11)
    (entry,) = [each for each in log.errors if text in each.text]
    assert entry.count > 1
    assert values["aeron_cluster_errors_total backup"] > 1
    events: dict[str, list[dict[str, Any]]] = {}
    for record in caplog.records:
        if record.name.startswith("container") and "clusterId=11" in record.getMessage() and hasattr(record, "event"):
            events.setdefault(record.event, []).append(record.fields)  # type: ignore[attr-defined]
    said = {getattr(record, "event", None) for record in caplog.records if text in record.getMessage()}
    assert said == {"backup_failed"}, "the log says it once"
    expected = {"state": "BACKUP_QUERY", "log_position": -1, "reason": text}
    failed = [each for each in events["backup_failed"] if each["reason"] == text]
    assert failed[0] == {"source": "cluster-backup clusterId=11"} | expected
    (updated,) = events["backup_updated"]
    assert (updated["member_id"], updated["leadership_term_id"]) == (0, 0)
    states = [each["state"] for each in events["backup_state"]]
    assert states[:2] == ["RESET_BACKUP", "BACKUP_QUERY"]
    assert states[-2:] == ["BACKING_UP", "CLOSED"]
    world.errors.clear()


def test_what_the_cluster_does_not_accept_is_reported_with_its_reason(world: World) -> None:
    with world.launch(cluster_dir=world.directory / "refused", cluster_id=7, credentials_supplier=Supplier(b"raise")):
        refused = "AUTHENTICATION_REJECTED: session failed authentication"
        wait_until(lambda: any(refused in str(each) for each in world.errors), LIMIT_S, "a query to be refused")
    world.errors.clear()


def test_the_directory_of_a_member_is_refused(world: World) -> None:
    with pytest.raises(MarkFileError):
        world.launch(cluster_dir=world.node.directory / "cluster")


def test_a_caller_may_drive_it(world: World, tmp_path: Path) -> None:
    backup = world.launch(cluster_dir=tmp_path / "driven", cluster_id=9, use_agent_invoker=True)

    def is_following() -> bool:
        backup.invoke()
        return world.counter(CounterType.BACKUP_STATE, 9) == 5

    def state() -> int | None:
        backup.invoke()
        return world.counter(CounterType.BACKUP_STATE, 9)

    assert health(tmp_path / "driven", "ready", 0).exit_code == 1
    wait_until(is_following, LIMIT_S, "a copy")
    ask(world.node, b"1")
    world.node.take_snapshot()
    backup_query_delay(tmp_path / "driven", 0)
    wait_until(lambda: state() == 0, LIMIT_S, "a query")
    seen = set()

    def is_following_again() -> bool:
        seen.add(found := state())
        assert health(tmp_path / "driven", "ready", 0).exit_code == 0, found
        return found == 5

    wait_until(is_following_again, LIMIT_S, "another copy")
    assert seen == {0, 1, 4, 5}
    backup.close()
    assert not backup.is_running
    assert health(tmp_path / "driven", "ready", 0).exit_code == 1


def test_the_query_of_another_backup_is_not_delayed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no counters, on a driver that another backup uses as well."""
    directory = world.directory / "cluster"
    with world.launch():
        world.await_copy()
        mark = read_cluster_mark(directory)
        other = msgspec.structs.replace(mark, cluster_id=10)
        monkeypatch.setattr(control, "_running", lambda _: (directory, other))
        with pytest.raises(RefusedError, match="the backup has no counter of its next query"):
            backup_query_delay(directory, 0)


class Marks:
    """A mark file, and the recording log beside it, which is in its place."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def update_activity_timestamp(self, now_ms: int) -> None:
        self.written.append(now_ms)

    def is_in_place(self) -> bool:
        return True


def test_its_mark_file_is_written_also_where_the_clock_is_set_back() -> None:
    clock, marks = ManualClock(), Marks()
    context: Any = SimpleNamespace(
        client=MemoryDriver(clock).connect("backup"),
        clock=clock,
        machine=SimpleNamespace(do_work=lambda: 0),
        mark_file=marks,
        recording_log=marks,
        counted_error_handler=lambda _error: None,
    )
    agent = ClusterBackupAgent(context)
    begin_ms = clock.now_ms
    for now_ms in (begin_ms, begin_ms + 999, begin_ms + 1000, begin_ms - 5000, begin_ms - 4001):
        clock.set_epoch_ms(now_ms)
        agent.do_work()
    assert marks.written == [begin_ms, begin_ms + 1000, begin_ms - 5000]
