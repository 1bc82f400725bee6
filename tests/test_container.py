"""A container from launch to end: on its own thread or driven by the caller, over memory and over a real driver."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from container.aeron.media_driver import MediaDriver
from container.clustered_service_container import ClusteredServiceContainer
from container.codecs.messages import decode
from container.errors import (
    AgentInterrupted,
    AgentTermination,
    ClusterTermination,
    ConcurrentConcludeError,
    ConfigurationError,
    ContainerError,
    DriverTimeoutError,
    MarkFileError,
    RegistrationError,
    TimedOutError,
)
from container.files.cnc_file import CncFile
from container.files.error_log import read_error_log
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.recording_service import RecordingService
from container.testing.processes.process import wait_until
from container.transport.clocks import SystemClock
from container.transport.counters import Counter
from container.transport.idle_strategy import NoOpIdleStrategy
from tests.limits import LIMIT_S
from tests.node import TERMINATED, TICK_NS, Node, SecondCall
from tests.services import Quiet


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., tuple[Node, ClusteredServiceContainer]]]:
    """Launches a container on its own thread, with a consensus module that it can start with."""
    containers: list[ClusteredServiceContainer] = []

    def launch(
        prepare: Callable[[Node], object] = lambda _node: None, *, is_started: bool = True, **settings: Any
    ) -> tuple[Node, ClusteredServiceContainer]:
        node = Node(tmp_path, auto_advance_ns=TICK_NS)
        prepare(node)
        if is_started:
            node.cm.start()
        containers.append(node.launch(**settings))
        return node, containers[-1]

    yield launch
    for container in containers:
        container.close()


@pytest.fixture
def invoked(node: Node) -> Iterator[tuple[Node, ClusteredServiceContainer]]:
    """A container that the test drives, started and leading."""
    node.cm.start()
    container = node.launch(use_agent_invoker=True, callback_error_policy="skip")
    work(node, container)
    node.cm.join_as_leader()
    node.cm.new_leadership_term()
    node.cm.commit()
    work(node, container, 5)
    yield node, container
    container.close()


def work(node: Node, container: ClusteredServiceContainer, cycles: int = 3) -> int:
    done = 0
    for _ in range(cycles):
        node.clock.advance(TICK_NS)
        done += container.invoke()
    return done


def error_counter(container: ClusteredServiceContainer) -> Counter:
    return container.context.counted_error_handler.error_counter


def await_call(node: Node, name: str) -> None:
    wait_until(lambda: name in node.service.names() or None, LIMIT_S, f"the callback {name}")


def await_end(container: ClusteredServiceContainer) -> None:
    assert container.join(LIMIT_S), f"{container} did not end"


# --- a start that fails


class CoroutineService(RecordingService):
    """A service that cannot be run."""

    async def on_timer_event(self, correlation_id: int, timestamp: int) -> None:  # type: ignore[override]
        """Never awaited."""


def no_service(node: Node) -> dict[str, Any]:
    node.service = None  # type: ignore[assignment]
    return {}


def coroutine_service(node: Node) -> dict[str, Any]:
    node.service = CoroutineService()
    return {}


def header_too_long(_node: Node) -> dict[str, Any]:
    return {"aeron_dir": "/" + "y" * 8_000}


def link_file_in_the_way(node: Node) -> dict[str, Any]:
    link = node.mark_path.parent / "cluster-mark-service-0.lnk"
    link.mkdir()
    return {}


def refused(kind: Any) -> Callable[[Node], dict[str, Any]]:
    def prepare(node: Node) -> dict[str, Any]:
        node.driver.fail_next_add(kind, text="scripted refusal")
        return {}

    return prepare


def no_second_idle_strategy(_node: Node) -> dict[str, Any]:
    strategies = iter([NoOpIdleStrategy()])
    return {"idle_strategy": lambda: next(strategies)}


FAILURES = {
    "link file": (link_file_in_the_way, MarkFileError),
    "counter": (refused("counter"), RegistrationError),
    "no service": (no_service, ConfigurationError),
    "coroutine": (coroutine_service, ConfigurationError),
    "header": (header_too_long, MarkFileError),
    "control publication": (refused("publication"), RegistrationError),
    "control subscription": (refused("subscription"), RegistrationError),
    "idle strategy of the runner": (no_second_idle_strategy, StopIteration),
}


@pytest.mark.parametrize("is_new", [True, False], ids=["new file", "taken file"])
@pytest.mark.parametrize("failure", FAILURES)
def test_s8_failed_start_leaves_timestamp_and_version_minus_1(node: Node, failure: str, is_new: bool) -> None:
    if not is_new:
        node.launch().close()
    break_it, error = FAILURES[failure]
    settings = break_it(node)
    open_resources = len(node.client.open_resources)
    with pytest.raises(error):
        node.launch(**settings)
    header = node.header()
    assert (header["version"], header["activity_timestamp"]) == (-1, TERMINATED)
    assert len(node.client.open_resources) == open_resources, "the caller's client keeps nothing"


@pytest.mark.parametrize("failure", FAILURES)
def test_the_start_after_a_failed_one_works(node: Node, failure: str) -> None:
    service = node.service
    break_it, error = FAILURES[failure]
    with pytest.raises(error):
        node.launch(**break_it(node))
    node.service = service
    link = node.mark_path.parent / "cluster-mark-service-0.lnk"
    if link.exists():
        link.rmdir()
    with node.launch():
        assert node.header()["version"] == 768


def test_interrupt_during_the_start_frees_the_mark_file(node: Node) -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    node.launch().close()
    with pytest.raises(KeyboardInterrupt):
        node.launch(idle_strategy=SecondCall(interrupt))
    assert node.header()["activity_timestamp"] == TERMINATED


def test_bad_setting_opens_nothing(node: Node, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="service_id=10"):
        node.launch(service_id=10, cluster_dir=tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_context_serves_one_container(node: Node) -> None:
    context = node.context()
    with ClusteredServiceContainer.launch(context):
        assert node.header()["version"] == 768
        with pytest.raises(ConcurrentConcludeError):
            ClusteredServiceContainer.launch(context)


def test_settings_beside_a_context_are_refused(node: Node) -> None:
    with pytest.raises(TypeError, match="give settings to the Context, not beside it: service_id"):
        ClusteredServiceContainer.launch(node.context(), service_id=1)
    assert not node.mark_path.exists()


def test_driver_that_is_not_there_is_an_error_that_says_where(tmp_path: Path) -> None:
    with pytest.raises(DriverTimeoutError, match=f"no media driver within 30 ms: {tmp_path}/d/cnc.dat does not exist"):
        ClusteredServiceContainer.launch(
            RecordingService(), aeron_dir=tmp_path / "d", cluster_dir=tmp_path, driver_timeout_ms=30, environ={}
        )
    assert not (tmp_path / "cluster-mark-service-0.dat").exists()


def test_dead_driver_is_noticed_before_the_mark_file_is_touched(tmp_path: Path) -> None:
    with MediaDriver.launch_embedded(str(tmp_path / "d"), dir_delete_on_shutdown=False):
        pass
    with pytest.raises(DriverTimeoutError, match="no media driver within 30 ms: .*has been shut down"):
        ClusteredServiceContainer.launch(
            RecordingService(), aeron_dir=tmp_path / "d", cluster_dir=tmp_path, driver_timeout_ms=30, environ={}
        )
    assert not (tmp_path / "cluster-mark-service-0.dat").exists()


# --- on a thread of its own


def test_container_waits_for_the_consensus_module_and_can_be_closed_at_once(running: Any) -> None:
    node, container = running(is_started=False)
    assert container.is_running
    assert container.failure is None
    container.close()
    assert not container.is_running
    assert node.service.names() == []
    assert node.header()["activity_timestamp"] == TERMINATED
    assert node.header()["version"] == 768
    assert node.recorded() == []


def test_callbacks_run_on_a_thread_with_the_services_name(running: Any) -> None:
    names: list[str] = []

    def prepare(node: Node) -> None:
        node.service.actions["on_start"] = lambda *_: names.append(threading.current_thread().name)

    node, _container = running(prepare, cluster_id=0, service_name="the service")
    await_call(node, "on_start")
    wait_until(lambda: names or None, LIMIT_S, "the name")
    assert names == ["the service"]


def test_s54_close_runs_on_terminate_once_and_signs_off(running: Any) -> None:
    node, container = running()
    await_call(node, "on_start")
    assert node.header()["activity_timestamp"] > 0
    container.close()
    container.close()
    assert node.service.names() == ["on_start", "on_terminate"]
    assert container.failure is None
    assert container.join(0)
    assert node.header()["activity_timestamp"] == TERMINATED
    assert node.hooks == 0
    assert not node.client.is_closed(), "the caller's client stays open"
    assert node.client.open_resources == []


def test_container_is_a_context_manager(running: Any) -> None:
    node, container = running()
    with container as entered:
        assert entered is container
        await_call(node, "on_start")
    assert not container.is_running
    assert "ended" in repr(container)


def test_several_threads_may_close(running: Any) -> None:
    node, container = running()
    await_call(node, "on_start")
    threads = [threading.Thread(target=container.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not container.is_running
    assert node.service.names().count("on_terminate") == 1


def test_close_in_a_callback_only_asks_for_the_end(running: Any) -> None:
    made: list[ClusteredServiceContainer] = []
    is_made = threading.Event()

    def close(_now_ns: int) -> int:
        assert is_made.wait(LIMIT_S)
        made[0].close()
        return 0

    node, container = running(lambda node: node.service.actions.update(do_background_work=close))
    made.append(container)
    is_made.set()
    await_end(container)
    container.close()
    assert node.service.names() == ["on_start", "on_terminate"]
    assert container.failure is None


def test_close_with_a_time_limit_says_that_a_callback_runs_on(running: Any) -> None:
    is_blocked, release = threading.Event(), threading.Event()

    def block(_now_ns: int) -> int:
        is_blocked.set()
        release.wait(LIMIT_S)
        return 0

    _node, container = running(lambda node: node.service.actions.update(do_background_work=block))
    assert is_blocked.wait(LIMIT_S)
    try:
        with pytest.raises(TimedOutError, match=r"clustered-service-0-0 has not ended 0 s after close\(\)"):
            container.close(timeout=0.01)
        assert container.is_running
    finally:
        release.set()
    container.close()
    assert not container.is_running


def test_a_close_that_waits_less_than_its_patience_interrupts_nothing(running: Any) -> None:
    is_idling, release = threading.Event(), threading.Event()

    def idle(_now_ns: int) -> int:
        while not release.is_set():
            is_idling.set()
            nodes[0].service.cluster.idle()
        return 0

    nodes: list[Any] = []

    def prepare(node: Any) -> None:
        nodes.append(node)
        node.service.actions.update(do_background_work=idle)

    _node, container = running(prepare)
    assert is_idling.wait(LIMIT_S)
    try:
        with pytest.raises(TimedOutError, match=r"has not ended 0 s after close\(\)"):
            container.close(timeout=0.3)
        assert container.is_running
    finally:
        release.set()
    container.close()
    assert container.failure is None, "the callback was interrupted"


def test_close_interrupts_a_service_that_idles(
    running: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("container.agent.agent_owner._INTERRUPTION_INTERVAL_S", 0.05)
    is_idling = threading.Event()

    def idle_for_ever(cluster: Any, _image: Any) -> None:
        while True:
            is_idling.set()
            cluster.idle()

    node, container = running(lambda node: node.service.actions.update(on_start=idle_for_ever))
    assert is_idling.wait(LIMIT_S)
    container.close()
    assert isinstance(container.failure, AgentInterrupted)
    assert "has not ended 0 s after close(): a callback or its disk keeps it" in caplog.text
    assert node.recorded() == [], "a requested end is not an error"
    assert node.header()["activity_timestamp"] == TERMINATED


def test_s16_service_that_fails_to_start_ends_the_container(running: Any) -> None:
    def fail(*_arguments: Any) -> None:
        raise ValueError("bad state")

    node, container = running(lambda node: node.service.actions.update(on_start=fail))
    await_end(container)
    assert isinstance(container.failure, AgentTermination)
    assert "failed to start service=clustered-service-0-0" in str(container.failure)
    assert isinstance(container.failure.__cause__, ValueError)
    assert node.service.names() == ["on_start"], "on_terminate is not called"
    assert node.hooks == 0
    (text,) = node.recorded()
    assert "ValueError: bad state" in text
    assert node.header()["activity_timestamp"] == TERMINATED


def test_errors_of_background_work_are_counted_and_recorded_once(running: Any) -> None:
    count = 0

    def fail(_now_ns: int) -> int:
        nonlocal count
        count += 1
        if count <= 3:
            raise ValueError("again")
        return 0

    node, container = running(lambda node: node.service.actions.update(do_background_work=fail))
    wait_until(lambda: count > 3 or None, LIMIT_S, "four rounds of background work")
    assert container.is_running
    assert error_counter(container).value == 3
    (record,) = read_error_log(node.mark_path.read_bytes()[8192:])
    assert record.observation_count == 3


def test_s11_activity_is_shown_while_the_container_waits(running: Any) -> None:
    node, _container = running(is_started=False)
    first = node.header()["activity_timestamp"]
    wait_until(lambda: node.header()["activity_timestamp"] > first or None, LIMIT_S, "a newer activity timestamp")


def test_invoke_is_for_a_container_without_a_thread(running: Any) -> None:
    _node, container = running()
    with pytest.raises(ContainerError, match="launch with use_agent_invoker=True"):
        container.invoke()


# --- driven by the caller


def test_first_invoke_starts_the_service(node: Node) -> None:
    node.cm.start()
    with node.launch(use_agent_invoker=True) as container:
        assert node.service.names() == []
        container.invoke()
        assert node.service.names() == ["on_start"]
        assert node.cm.acks[0].ack_id == 0
    assert node.service.names() == ["on_start", "on_terminate"]
    assert not container.is_running


def test_container_that_was_never_invoked_closes(node: Node) -> None:
    container = node.launch(use_agent_invoker=True)
    container.close()
    assert not container.is_running
    assert container.invoke() == 0
    assert node.service.names() == []
    assert node.header()["activity_timestamp"] == TERMINATED


def test_invoke_delivers_messages_and_returns_how_much_was_done(
    invoked: tuple[Node, ClusteredServiceContainer],
) -> None:
    node, container = invoked
    node.cm.open_session(1)
    node.cm.session_message(1, b"hello")
    node.cm.commit()
    assert work(node, container) > 0
    assert node.service.messages == [b"hello"]
    assert work(node, container) == 0
    assert node.header()["member_id"] == 0


def test_interrupt_in_a_callback_of_the_log_ends_the_container_and_reaches_the_caller(
    invoked: tuple[Node, ClusteredServiceContainer],
) -> None:
    node, container = invoked

    def interrupt(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    node.service.actions["on_session_message"] = interrupt
    node.cm.session_message(1, b"half applied")
    node.cm.commit()
    with pytest.raises(KeyboardInterrupt):
        work(node, container, 5)
    assert not container.is_running
    assert isinstance(container.failure, AgentTermination)


def test_error_in_a_callback_ends_the_container_by_default(node: Node) -> None:
    def fail(*_arguments: Any) -> None:
        raise ValueError("bad message")

    node.cm.start()
    with node.launch(use_agent_invoker=True) as container:
        work(node, container)
        node.cm.join_as_leader()
        node.service.actions["on_session_message"] = fail
        node.cm.session_message(1, b"one")
        node.cm.session_message(1, b"two")
        node.cm.commit()
        work(node, container, 5)
        assert node.service.messages == [b"one"]
        assert not container.is_running
        assert "on_session_message raised ValueError" in str(container.failure)
        assert any("bad message" in text for text in node.recorded())


def test_error_in_a_callback_is_counted_and_the_container_goes_on(
    invoked: tuple[Node, ClusteredServiceContainer],
) -> None:
    node, container = invoked

    def fail(*_arguments: Any) -> None:
        raise ValueError("bad message")

    node.service.actions["on_session_message"] = fail
    node.cm.open_session(1)
    node.cm.session_message(1, b"one")
    node.cm.session_message(1, b"two")
    node.cm.commit()
    work(node, container, 5)
    assert node.service.messages == [b"one", b"two"]
    assert container.is_running
    assert error_counter(container).value == 2


def test_s48_abort_terminates_in_order(invoked: tuple[Node, ClusteredServiceContainer]) -> None:
    node, container = invoked
    acks = len(node.cm.acks)
    node.cm.termination_position()
    work(node, container, 5)
    assert node.service.names()[-1] == "on_terminate"
    assert node.service.names().count("on_terminate") == 1
    assert len(node.cm.acks) == acks + 1
    assert node.hooks == 1
    assert not container.is_running
    assert isinstance(container.failure, ClusterTermination)
    assert container.failure.is_expected
    assert node.header()["activity_timestamp"] == TERMINATED
    assert node.recorded() == [], "a requested end is not an error"
    assert container.invoke() == 0


def test_s51_unexpected_termination_is_recorded_and_not_counted(
    invoked: tuple[Node, ClusteredServiceContainer],
) -> None:
    node, container = invoked
    counts: list[int] = []
    node.service.actions["on_terminate"] = lambda _cluster: counts.append(error_counter(container).value)
    node.cm.termination_position(32)
    node.clock.advance(TICK_NS)
    container.invoke()
    assert isinstance(container.failure, ClusterTermination)
    assert not container.failure.is_expected
    texts = node.recorded()
    assert any("ClusterEvent: WARN - service terminate: logPosition=" in text for text in texts)
    assert any("ClusterTermination: ERROR - unexpected termination" in text for text in texts)
    assert counts == [1], "the event alone"


def test_no_memory_for_the_end_of_an_invoked_agent_ends_it_all_the_same(
    invoked: tuple[Node, ClusteredServiceContainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    _node, container = invoked
    runner: Any = container._agent

    def do_work() -> int:
        raise MemoryError

    monkeypatch.setattr(
        container,
        "_agent",
        SimpleNamespace(do_work=do_work, close=runner.close, terminate=runner.terminate, is_busy=False),
    )
    assert container.invoke() == 0
    assert isinstance(container.failure, MemoryError)
    assert not container.is_running


def test_invoke_in_a_callback_is_refused(invoked: tuple[Node, ClusteredServiceContainer]) -> None:
    node, container = invoked
    raised: list[BaseException] = []

    def invoke(_now_ns: int) -> int:
        try:
            container.invoke()
        except ContainerError as error:
            raised.append(error)
        return 0

    node.service.actions["do_background_work"] = invoke
    work(node, container, 1)
    assert "from inside a callback" in str(raised[0])


def test_close_in_a_callback_ends_after_the_cycle(invoked: tuple[Node, ClusteredServiceContainer]) -> None:
    node, container = invoked
    still_running: list[bool] = []

    def close(_now_ns: int) -> int:
        container.close()
        still_running.append(container.is_running)
        return 0

    node.service.actions["do_background_work"] = close
    work(node, container, 1)
    assert still_running == [True]
    assert not container.is_running
    assert node.service.names()[-1] == "on_terminate"


def test_close_in_on_terminate_does_nothing_more(invoked: tuple[Node, ClusteredServiceContainer]) -> None:
    node, container = invoked
    node.service.actions["on_terminate"] = lambda _cluster: container.close()
    container.close()
    assert node.service.names().count("on_terminate") == 1
    assert not container.is_running


def test_interrupt_in_a_callback_reaches_the_caller_and_the_container_can_go_on(
    invoked: tuple[Node, ClusteredServiceContainer],
) -> None:
    node, container = invoked

    def interrupt(_now_ns: int) -> int:
        raise KeyboardInterrupt

    node.service.actions["do_background_work"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        work(node, container)
    del node.service.actions["do_background_work"]
    assert container.is_running
    assert work(node, container) == 0


def test_service_that_fails_to_start_ends_the_container_of_the_caller(node: Node) -> None:
    def fail(*_arguments: Any) -> None:
        raise ValueError("bad state")

    node.service.actions["on_start"] = fail
    node.cm.start()
    container = node.launch(use_agent_invoker=True)
    assert container.invoke() == 0
    assert not container.is_running
    assert "failed to start" in str(container.failure)
    assert node.header()["activity_timestamp"] == TERMINATED


# --- over a real driver


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded() as embedded:
        yield embedded


def heartbeat_labels(aeron_dir: str) -> list[str]:
    file = CncFile(Path(aeron_dir) / "cnc.dat")
    try:
        return [counter.label for counter in file.counters() if counter.type_id == 11]
    finally:
        file.close()


def test_s2_client_of_its_own_has_the_services_name(driver: MediaDriver, tmp_path: Path) -> None:
    with ClusteredServiceContainer.launch(
        Quiet(), aeron_dir=driver.aeron_dir, cluster_dir=tmp_path, cluster_id=4, service_id=2, environ={}
    ) as container:
        assert container.context.owns_aeron_client
        assert container.context.client.client_name == "clustered-service-4-2"
        wait_until(
            lambda: any("name=clustered-service-4-2" in label for label in heartbeat_labels(driver.aeron_dir)) or None,
            LIMIT_S,
            "the heartbeat counter with the client's name",
        )
    assert container.context.client.is_closed()


def test_s9_mark_file_names_the_drivers_directory(driver: MediaDriver, tmp_path: Path) -> None:
    environ = {"AERON_DIR": driver.aeron_dir, "AERON_CLUSTER_DIR": str(tmp_path)}
    with ClusteredServiceContainer.launch(Quiet(), environ=environ):
        _name, header = decode("mark", (tmp_path / "cluster-mark-service-0.dat").read_bytes())
    assert header["aeron_directory"] == driver.aeron_dir.encode()
    assert header["version"] == 768


def test_control_stream_that_does_not_fit_the_drivers_frees_the_mark_file(driver: MediaDriver, tmp_path: Path) -> None:
    """What upstream misses: the context is concluded, and the agent's publication is refused."""
    settings: dict[str, Any] = {"aeron_dir": driver.aeron_dir, "environ": {}}
    with ClusteredServiceContainer.launch(Quiet(), cluster_dir=tmp_path / "a", **settings):
        with pytest.raises(RegistrationError, match="term"):
            ClusteredServiceContainer.launch(
                Quiet(), cluster_dir=tmp_path / "b", control_channel="aeron:ipc?term-length=64k", **settings
            )
        _name, header = decode("mark", (tmp_path / "b" / "cluster-mark-service-0.dat").read_bytes())
        assert (header["version"], header["activity_timestamp"]) == (-1, TERMINATED)


def test_clients_errors_are_counted_once_there_is_a_counter(driver: MediaDriver, tmp_path: Path) -> None:
    with ClusteredServiceContainer.launch(
        Quiet(), aeron_dir=driver.aeron_dir, cluster_dir=tmp_path, environ={}
    ) as container:
        context = container.context
        context._on_error(ValueError("from the conductor"))
        assert context.counted_error_handler.error_counter.value == 1


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt, MemoryError])
def test_an_error_handler_that_raises_does_not_end_the_agent_past_its_close(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    client = MemoryDriver(SystemClock()).connect("test")
    handled: list[BaseException] = []

    def handle(error: BaseException) -> None:
        handled.append(error)
        raise failure

    container = ClusteredServiceContainer.launch(
        RecordingService(),
        client=client,
        snapshot_store=MemorySnapshotStore(client),
        clock=client.clock,
        environ={},
        cluster_dir=tmp_path,
        cpu_affinity=1023,  # which this machine refuses, on the agent's thread
        error_handler=handle,
    )
    container.close()
    assert "cpu_affinity=1023" in str(handled[0])
    assert isinstance(container.failure, AgentInterrupted)  # by close(), while it waited for a consensus module
    assert struct.unpack_from("<q", (tmp_path / "cluster-mark-service-0.dat").read_bytes(), 16) == (-1,)
