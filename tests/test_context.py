"""What a context makes of settings and objects when it is concluded, and how it lets go of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.clustered_service_container import ClusteredServiceContainer
from container.codecs.messages import decode
from container.common.loggers import log_to_stderr
from container.context import Context
from container.errors import (
    ClusterEvent,
    ConcurrentConcludeError,
    ConfigurationError,
    MarkFileError,
    RegistrationError,
)
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.settings.sources import load_settings
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_stores import MemoryMarkFile, MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.memory.recording_service import RecordingService
from container.transport.idle_strategy import BackoffIdleStrategy, BusySpinIdleStrategy, SleepingIdleStrategy
from tests.test_settings import SETTINGS

NOW_MS = 1_700_000_000_000


@pytest.fixture
def client() -> MemoryClient:
    return MemoryDriver(ManualClock(epoch_ms=NOW_MS)).connect("given")


@pytest.fixture
def concluded(tmp_path: Path, client: MemoryClient) -> Iterator[Any]:
    """Makes and concludes contexts over memory; they are closed at the end."""
    contexts: list[Context] = []

    def make(service: Any = None, **settings: Any) -> Context:
        arguments: dict[str, Any] = {
            "client": client,
            "snapshot_store": MemorySnapshotStore(client),
            "environ": {},
            "cluster_dir": tmp_path,
            **settings,
        }
        context = Context(RecordingService() if service is None else service, **arguments)
        contexts.append(context)
        context.conclude()
        return context

    yield make
    for context in contexts:
        context.close()


# --- idle strategies


@pytest.mark.parametrize(
    "text",
    [
        "noop",
        "busy_spin",
        "spin",
        "yield",
        "sleep",
        "sleep-ns",
        "sleep-ms",
        "sleep(100us)",
        "backoff",
        "backoff(10,20,1us,50us)",
    ],
)
def test_idle_strategy_by_its_name(concluded: Any, text: str) -> None:
    context = concluded(environ={"AERON_CLUSTER_IDLE_STRATEGY": text})
    assert context.agent_context.idle_strategy is not context.new_idle_strategy()


@pytest.mark.parametrize(
    "text", ["controllable", "sleep(", "sleep(0)", "backoff(1,2)", "backoff(10,20,50us,1us)", "sleep(1,2)"]
)
def test_bad_idle_strategy_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigurationError, match="idle_strategy=.* idle strategy "):
        load_settings({"idle_strategy": text}, environ={})


def test_idle_strategies_have_their_parameters(concluded: Any) -> None:
    sleeping = concluded(idle_strategy="sleep(2ms)", service_id=1).agent_context.idle_strategy
    assert isinstance(sleeping, SleepingIdleStrategy)
    assert sleeping.period_ns == 2_000_000
    backoff = concluded(idle_strategy="backoff(1,2,3us,4us)", service_id=2).agent_context.idle_strategy
    assert isinstance(backoff, BackoffIdleStrategy)
    assert (backoff.max_spins, backoff.max_park_period_ns) == (1, 4_000)


def test_agent_and_runner_get_strategies_of_their_own_from_a_function(concluded: Any) -> None:
    context = concluded(idle_strategy=BusySpinIdleStrategy)
    assert isinstance(context.agent_context.idle_strategy, BusySpinIdleStrategy)
    assert context.new_idle_strategy() is not context.agent_context.idle_strategy


# --- conclude


@pytest.mark.parametrize("service_id", range(10))
def test_s1_service_ids_0_to_9_are_accepted(concluded: Any, service_id: int) -> None:
    assert concluded(service_id=service_id).agent_context.service_id == service_id


def test_s2_default_service_name_is_made_of_the_ids(concluded: Any) -> None:
    assert concluded(cluster_id=5, service_id=3).service_name == "clustered-service-5-3"


def test_service_name_can_be_given(concluded: Any) -> None:
    assert concluded(service_name="mine").service_name == "mine"


def test_context_is_concluded_once(concluded: Any) -> None:
    context = concluded()
    assert context.is_concluded
    with pytest.raises(ConcurrentConcludeError, match="once"):
        context.conclude()


def test_context_is_the_containers() -> None:
    assert ClusteredServiceContainer.Context is Context


def test_context_does_not_check_values_before_it_is_concluded() -> None:
    context = Context(RecordingService(), service_id=77, environ={})
    assert not context.is_concluded
    with pytest.raises(ConfigurationError, match="service_id=77"):
        _ = context.settings


def test_agent_finds_its_settings(concluded: Any, client: MemoryClient) -> None:
    context = concluded(
        cluster_id=2,
        service_id=1,
        control_channel="aeron:ipc?term-length=64k",
        service_stream_id=204,
        consensus_module_stream_id=205,
        is_responding_service=False,
        log_fragment_limit=7,
        app_version="1.2.3",
    )
    assert context.client is client
    assert context.clock is client.clock
    assert not context.owns_aeron_client
    agent = context.agent_context
    assert (agent.cluster_id, agent.service_id) == (2, 1)
    assert agent.control_channel == "aeron:ipc?term-length=64k"
    assert (agent.service_stream_id, agent.consensus_module_stream_id) == (204, 205)
    assert agent.is_responding_service is False
    assert agent.log_fragment_limit == 7
    assert agent.app_version == 0x010203
    assert agent.app_version_validator(0x010000, 0x01FFFF)
    assert agent.termination_hook() is None
    assert isinstance(agent.snapshot_store, MemorySnapshotStore)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 50),
        ({"use_agent_invoker": True}, 512),
        ({"use_agent_invoker": True, "log_fragment_limit": 50}, 50),
        ({"use_agent_invoker": True, "environ": {"AERON_CLUSTER_LOG_FRAGMENT_LIMIT": "60"}}, 60),
    ],
)
def test_a_turn_of_a_thread_that_parts_share_takes_more_messages(
    concluded: Any, settings: dict[str, Any], limit: int
) -> None:
    assert concluded(**settings).agent_context.log_fragment_limit == limit


def test_directories_are_made_and_canonical(concluded: Any, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    context = concluded(
        cluster_dir=tmp_path / "link" / "deep" / "cluster", mark_file_dir=tmp_path / "link" / ".." / "marks"
    )
    assert context.cluster_dir == tmp_path / "real" / "deep" / "cluster"
    assert context.mark_file_dir == tmp_path / "marks"
    assert context.mark_file.path == str(tmp_path / "marks" / "cluster-mark-service-0.dat")


def test_directory_that_can_not_be_made_is_named(tmp_path: Path, client: MemoryClient) -> None:
    (tmp_path / "file").touch()
    context = Context(RecordingService(), client=client, environ={}, cluster_dir=tmp_path / "file" / "c")
    with pytest.raises(ConfigurationError, match="cluster_dir='.*/file/c': cannot be created: Not a directory"):
        context.conclude()


def test_a_long_directory_that_cannot_be_made_is_named_whole(tmp_path: Path, client: MemoryClient) -> None:
    (tmp_path / "file").touch()
    deep = tmp_path / "file" / "/".join(["a-directory-with-a-long-name"] * 20)
    context = Context(RecordingService(), client=client, environ={}, cluster_dir=deep)
    with pytest.raises(ConfigurationError, match=f"cluster_dir='{deep}': cannot be created: Not a directory"):
        context.conclude()


def test_s7_link_file_only_when_the_directories_differ(concluded: Any, tmp_path: Path) -> None:
    link = tmp_path / "cluster-mark-service-0.lnk"
    concluded(mark_file_dir=tmp_path / "marks").close()
    assert link.read_bytes() == str(tmp_path / "marks").encode()
    concluded(mark_file_dir=tmp_path)
    assert not link.exists()


def test_mark_file_is_ready_with_what_the_context_knows(concluded: Any, tmp_path: Path) -> None:
    concluded(cluster_id=2, service_id=1, archive_control_stream_id=11, aeron_dir="/dev/shm/shown")
    _name, header = decode("mark", (tmp_path / "cluster-mark-service-1.dat").read_bytes())
    assert header["version"] == 768
    assert header["activity_timestamp"] == NOW_MS
    assert header["archive_stream_id"] == 11
    assert (header["cluster_id"], header["service_id"], header["member_id"]) == (2, 1, -1)
    assert header["service_name"] == b"clustered-service-2-1"
    assert header["control_channel"] == b"aeron:ipc?term-length=128k"
    assert header["aeron_directory"] == b"/dev/shm/shown"


def test_mark_file_of_the_callers_is_used_and_closed(concluded: Any, tmp_path: Path) -> None:
    mark_file = MemoryMarkFile()
    context = concluded(mark_file=mark_file)
    assert context.mark_file is mark_file
    assert list(tmp_path.iterdir()) == []
    context.counted_error_handler(ClusterEvent("kept in memory"))
    context.close()
    assert mark_file.is_closed


def test_s5_second_context_on_the_same_files_is_refused(concluded: Any) -> None:
    concluded()
    with pytest.raises(MarkFileError, match="active mark file detected"):
        concluded()


@pytest.mark.parametrize(("cluster_id", "service_id"), [(0, 0), (7, 3)])
def test_s10_counters_have_upstreams_keys_labels_and_owner(
    concluded: Any, client: MemoryClient, cluster_id: int, service_id: int
) -> None:
    concluded(
        cluster_id=cluster_id, service_id=service_id, cycle_threshold_ns="250us", snapshot_duration_threshold_ns="2s"
    )
    suffix = f" - clusterId={cluster_id} serviceId={service_id}"
    labels = {
        218: f"Cluster container max cycle time in ns{suffix}",
        219: f"Cluster container work cycle time exceeded count: threshold=250us{suffix}",
        236: f"Clustered service max snapshot duration in ns{suffix}",
        237: f"Clustered service max snapshot duration exceeded count: threshold=2s{suffix}",
    }
    key = cluster_id.to_bytes(4, "little") + service_id.to_bytes(4, "little")
    counters = seam.counters(client)
    found = {
        record["type_id"]: record
        for record in (seam.counter_record(counters, counter_id) for counter_id, *_rest in counters.read())
    }
    assert set(found) - {11} == {215, *labels}
    for type_id in (215, *labels):
        assert found[type_id]["key"] == key.ljust(112, b"\0")
        assert found[type_id]["owner_id"] == seam.client_id(client)
        assert found[type_id]["value"] == 0
    assert {type_id: found[type_id]["label"] for type_id in labels} == labels
    assert found[215]["label"].startswith(f"Cluster Container Errors{suffix} version=")
    assert " commit=" in found[215]["label"]


def test_errors_are_counted_recorded_and_handed_to_the_user(concluded: Any) -> None:
    seen: list[BaseException] = []
    context = concluded(error_handler=seen.append)
    error = ClusterEvent("something")
    context.counted_error_handler(error)
    assert context.counted_error_handler.error_counter.value == 1
    assert context.error_log.record(error) == 2
    assert seen == [error]


class ValueErrorsDropped:
    """A delegating error handler, to be named by a setting."""

    def next(self, error_handler: Any) -> None:
        self.handler = error_handler

    def on_error(self, error: BaseException) -> None:
        if not isinstance(error, ValueError):
            self.handler(error)


@pytest.mark.parametrize("given", [f"{__name__}:ValueErrorsDropped", ValueErrorsDropped()])
def test_delegating_error_handler_comes_first(concluded: Any, given: object) -> None:
    seen: list[BaseException] = []
    context = concluded(error_handler=seen.append, delegating_error_handler=given)
    kept = KeyError("kept")
    context.counted_error_handler(ValueError("dropped"))
    context.counted_error_handler(kept)
    assert seen == [kept]
    assert context.counted_error_handler.error_counter.value == 2


@pytest.mark.parametrize("setting", ["delegating_error_handler", "service_class_name"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing.module:Name", "module missing.module cannot be imported: ModuleNotFoundError: "),
        (f"{__name__}:Missing", "has no Missing"),
        (f"{__name__}:Unbuildable", r"Unbuildable\(\) failed: RuntimeError: no"),
    ],
)
def test_class_that_can_not_be_found_or_made_is_named(
    tmp_path: Path, client: MemoryClient, setting: str, name: str, problem: str
) -> None:
    settings: dict[str, Any] = {setting: name}
    context = Context(client=client, environ={}, cluster_dir=tmp_path, **settings)
    with pytest.raises(ConfigurationError, match=f"^{setting}='{name}': .*{problem}"):
        context.conclude()
    context.abandon()


class Unbuildable:
    """A class that has no instances."""

    def __init__(self) -> None:
        raise RuntimeError("no")


def test_service_can_be_named(tmp_path: Path, client: MemoryClient) -> None:
    environ = {"AERON_CLUSTER_SERVICE_CLASS_NAME": "container.testing.memory.recording_service:RecordingService"}
    context = Context(client=client, environ=environ, cluster_dir=tmp_path)
    context.conclude()
    assert type(context.service).__name__ == "RecordingService"
    assert isinstance(context.agent_context.service_handler, PythonServiceHandler)
    context.close()


def test_service_that_is_given_counts_before_the_one_that_is_named(concluded: Any) -> None:
    service = RecordingService()
    assert concluded(service, service_class_name="missing:Name").service is service


def test_no_service_at_all_is_refused_with_what_to_do(tmp_path: Path, client: MemoryClient) -> None:
    context = Context(client=client, environ={}, cluster_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="no service: pass an instance of a ClusteredService, or set"):
        context.conclude()
    context.abandon()


def test_service_written_in_cython_is_taken_as_it_is(concluded: Any) -> None:
    handler = ServiceHandler()
    assert concluded(handler).agent_context.service_handler is handler


def test_configuration_is_printed_when_wanted(concluded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    concluded(service_id=1)
    assert capsys.readouterr().out == ""
    concluded(service_id=2, print_configuration=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ClusteredServiceContainer.Context"
    assert "    service_id=2" in lines
    assert "    service_name='clustered-service-0-2'" in lines
    assert len(lines) == len(SETTINGS) + 3


def test_configuration_is_a_record_where_the_log_is_json(
    concluded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("container"), "level", logging.INFO)
    log_to_stderr("info", "json")
    concluded(service_id=2, print_configuration=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = [json.loads(line) for line in printed.err.splitlines() if '"configuration"' in line]
    assert line["source"] == "clustered-service-0-2"
    assert "    service_id=2\n" in line["message"]


def test_closed_context_lets_go_of_the_mark_file_and_leaves_the_callers_client(
    concluded: Any, client: MemoryClient
) -> None:
    context = concluded()
    context.close()
    context.close()
    assert context.is_closed
    assert context.mark_file.is_closed
    assert context.error_log.is_closed
    assert not client.is_closed()


def test_abandoned_start_frees_the_mark_file(concluded: Any, tmp_path: Path) -> None:
    concluded().abandon()
    _name, header = decode("mark", (tmp_path / "cluster-mark-service-0.dat").read_bytes())
    assert (header["version"], header["activity_timestamp"]) == (-1, -1)
    concluded()


def test_failure_before_the_mark_file_is_there_abandons_nothing(tmp_path: Path) -> None:
    context = Context(RecordingService(), service_id=77, environ={}, cluster_dir=tmp_path)
    with pytest.raises(ConfigurationError):
        context.conclude()
    context.abandon()
    assert list(tmp_path.iterdir()) == []


def test_resource_that_fails_to_close_keeps_nothing_else_open(
    concluded: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = concluded()

    class Stuck:
        def close(self) -> None:
            raise RuntimeError("stuck")

    monkeypatch.setattr(context, "error_log", Stuck())
    context.close()
    assert context.mark_file.is_closed
    assert "close failed: RuntimeError: stuck" in caplog.text


def test_driver_that_refuses_a_counter_is_an_error(concluded: Any, client: MemoryClient) -> None:
    client.driver.fail_next_add("counter", text="no room")
    with pytest.raises(RegistrationError, match="no room"):
        concluded()


class Halves:
    """Delegating error handlers that are none."""

    class WithoutNext:
        def on_error(self, error: BaseException) -> None: ...

    class WithoutOnError:
        def next(self, error_handler: Any) -> None: ...

    class NextIsNoMethod(WithoutNext):
        next = 5

    class TakesNothing(WithoutNext):
        def next(self) -> None: ...

    class Coroutine(WithoutOnError):
        async def on_error(self, error: BaseException) -> None: ...

    class Fails(WithoutNext):
        def next(self, error_handler: Any) -> None:
            raise KeyError("not now")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("os:environ", "delegating_error_handler='os:environ': must have next()"),
        ("os:getcwd", "delegating_error_handler='os:getcwd': must have next()"),
        ("os:sep", "delegating_error_handler='os:sep': must have next()"),
        ("tests.test_context:Halves.WithoutNext", ":Halves.WithoutNext': must have next()"),
        ("tests.test_context:Halves.WithoutOnError", ":Halves.WithoutOnError': must have on_error()"),
        ("tests.test_context:Halves.NextIsNoMethod", ":Halves.NextIsNoMethod': must have next()"),
        ("tests.test_context:Halves.TakesNothing", "its next(): is called with (error_handler), which does not fit"),
        ("tests.test_context:Halves.Coroutine", "its on_error(): must be a plain function, not a coroutine function"),
        (Halves.TakesNothing(), "its next(): is called with (error_handler)"),
        (ValueErrorsDropped, "must be an instance, not the class ValueErrorsDropped"),
        (5, "delegating_error_handler=5: must have next()"),
    ],
)
def test_what_is_no_delegating_error_handler_is_refused_by_name_with_nothing_opened(
    tmp_path: Path, client: MemoryClient, given: Any, text: str
) -> None:
    directory = tmp_path / "cluster"
    with pytest.raises(ConfigurationError) as raised:
        Context(RecordingService(), client=client, cluster_dir=directory, delegating_error_handler=given).conclude()
    assert text in str(raised.value)
    assert not directory.exists()


def test_a_delegating_error_handler_that_fails_at_the_start_is_refused(concluded: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"delegating_error_handler: next\(\) failed: KeyError: 'not now'"):
        concluded(delegating_error_handler=Halves.Fails())


async def _coroutine(_error: BaseException) -> None: ...


def _generator() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"error_handler": lambda: None}, "is called with (error), which does not fit its parameters"),
        ({"error_handler": _coroutine}, "must be a plain function, not a coroutine function or a generator function"),
        ({"error_handler": "os:path"}, "error_handler='os:path': must be callable"),
        ({"termination_hook": lambda _error: None}, "is called with (), which does not fit its parameters"),
        ({"termination_hook": _generator}, "must be a plain function"),
        ({"app_version_validator": lambda _own: True}, "is called with (own_version, other_version), which does not"),
    ],
)
def test_callbacks_that_cannot_be_called_are_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Context(RecordingService(), environ={}, **settings)
    assert text in str(raised.value)
    assert str(raised.value).startswith(f"{next(iter(settings))}=")


@pytest.mark.parametrize("path", ["os:environ", "tests.test_context:ValueErrorsDropped"])
def test_a_named_service_that_is_none_is_refused_by_name(path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"service_class_name='{path}': .* has no callback on_start"):
        Context(environ={}, service_class_name=path).create_service()


def test_a_named_text_is_no_service() -> None:
    with pytest.raises(ConfigurationError, match="service_class_name='os:sep': .* derived from container.Cluster"):
        Context(environ={}, service_class_name="os:sep").create_service()
