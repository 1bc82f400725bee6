"""Which media driver a client uses: one that runs, or one of its own that ends with it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from container.aeron import MediaDriver, default_aeron_dir, driver_absence
from container.client import (
    AeronCluster,
    AsyncAeronCluster,
    AsyncConnect,
    AsyncReconnectingClient,
    ClientContext,
    ConnectStep,
    EgressListener,
    ReconnectingClient,
    ReconnectPolicy,
    SessionPool,
)
from container.errors import ClosedError, ConfigurationError, DriverTimeoutError, TimedOutError
from container.testing.processes.process import wait_until
from tests.forking import Child
from tests.limits import LIMIT_S
from tests.threaded_members import PatientMember, ThreadedMembers

NS_PER_S = 1_000_000_000
ENDPOINTS = "0=localhost:1"
"""Where nobody listens."""


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No directory is given, and in Aeron's default one, which has the user's name, no driver runs."""
    monkeypatch.delenv("AERON_DIR", raising=False)
    monkeypatch.setenv("USER", f"container-test-{os.getpid()}")
    assert driver_absence(default_aeron_dir(), NS_PER_S) is not None


def settings(**others: Any) -> dict[str, Any]:
    given = {
        "ingress_channel": "aeron:udp",
        "ingress_endpoints": ENDPOINTS,
        "egress_channel": "aeron:udp?endpoint=localhost:0",
        "message_timeout": 0.5,
    }
    return given | others


def reachable(members: ThreadedMembers) -> dict[str, Any]:
    """Settings with a member that answers."""
    endpoint = members.take_endpoint()
    members.member(0, f"aeron:udp?endpoint={endpoint}", PatientMember.echo)
    return settings(ingress_endpoints=f"0={endpoint}", message_timeout=LIMIT_S)


def own_directories(pid: int | None = None) -> set[Path]:
    """Directories of embedded drivers of a process."""
    pattern = f"aeron-embedded-of-{pid or os.getpid()}-*"
    return {path for parent in ("/dev/shm", "/tmp") for path in Path(parent).glob(pattern)}


# One of its own


def _has(found: Callable[[], list[Any]], count: int) -> bool:
    return len(found()) == count


@pytest.mark.parametrize("kind", [AeronCluster, ReconnectingClient])
def test_the_end_of_a_session_is_sent_before_its_driver_ends(members: ThreadedMembers, kind: Any) -> None:
    endpoint = members.take_endpoint()
    member = members.member(0, f"aeron:udp?endpoint={endpoint}", PatientMember.echo)
    given = settings(ingress_endpoints=f"0={endpoint}", message_timeout=LIMIT_S, embedded_driver=True)
    heard = partial(members.do, lambda: member.received("SessionCloseRequest"))
    for count in range(1, 6):
        with kind.connect(**given):
            pass
        wait_until(partial(_has, heard, count), LIMIT_S, "the member to hear of the end")


def test_a_client_that_finds_no_driver_has_one_of_its_own(
    members: ThreadedMembers, caplog: pytest.LogCaptureFixture
) -> None:
    given = reachable(members)
    before = own_directories()
    with caplog.at_level(logging.INFO, "container.client"):
        client = AeronCluster.connect(**given, correlate=lambda payload: payload)
    (directory,) = own_directories() - before
    assert oct(directory.stat().st_mode)[-3:] == "700"  # other users cannot share it
    (line,) = [record.getMessage() for record in caplog.records if "media driver" in record.getMessage()]
    assert line.startswith(f"started an embedded media driver for this client, in {directory}/driver: ")
    assert f"{default_aeron_dir()}/cnc.dat does not exist" in line
    assert client.request(b"echo", key=b"echo") == b"echo"
    client.close()
    assert own_directories() == before
    assert driver_absence(default_aeron_dir(), NS_PER_S) is not None


def test_each_client_has_a_driver_of_its_own(members: ThreadedMembers) -> None:
    given = reachable(members)
    before = own_directories()
    with AeronCluster.connect(**given):
        (first,) = own_directories() - before
        with AeronCluster.connect(**given):
            assert len(own_directories() - before) == 2
        assert own_directories() - before == {first}
        assert driver_absence(first / "driver", NS_PER_S) is None


def test_every_way_to_connect_has_it(members: ThreadedMembers) -> None:
    given = reachable(members)
    before = own_directories()

    async def with_asyncio() -> None:
        for make in (AsyncAeronCluster.connect, AsyncReconnectingClient.connect):
            async with make(**given, correlate=lambda payload: payload) as client:
                assert len(own_directories() - before) == 1
                assert await client.request(b"one", key=b"one") == b"one"
            assert own_directories() == before

    asyncio.run(with_asyncio())
    with ReconnectingClient.connect(**given, correlate=lambda payload: payload) as client:
        assert len(own_directories() - before) == 1
        assert client.request(b"two", key=b"two") == b"two"
    with SessionPool.connect(**given):
        assert len(own_directories() - before) == 1
    assert own_directories() == before


def test_a_client_that_cannot_connect_ends_its_driver() -> None:
    before = own_directories()
    for _ in range(2):
        with pytest.raises(TimedOutError, match="nobody listens there"):
            AeronCluster.connect(**settings(message_timeout=3.0))
        assert own_directories() == before
    connecting = AeronCluster.async_connect(**settings())
    assert len(own_directories() - before) == 1
    connecting.close()
    assert own_directories() == before


def test_a_client_that_is_dropped_ends_its_driver() -> None:
    before = own_directories()

    def drop() -> None:
        connecting = AsyncConnect(ClientContext(**settings()))
        assert connecting.step == ConnectStep.CREATE_EGRESS_SUBSCRIPTION

    with pytest.warns(ResourceWarning, match="unclosed Aeron client"):
        drop()
    assert own_directories() == before


def test_a_driver_of_its_own_dies_with_the_process_and_its_directory_with_the_next(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from container.client import AsyncConnect, ClientContext\n"
        f"connecting = AsyncConnect(ClientContext(**{settings()!r}))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "AERON_DIR"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (directory,) = own_directories(process.pid)
        with MediaDriver.launch_embedded():
            assert driver_absence(directory / "driver", 5 * NS_PER_S) is None  # it is in use, and stays
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    # No process is left: the driver was threads of the one that is gone.
    assert driver_absence(directory / "driver", 1) is not None
    with MediaDriver.launch_embedded() as other:
        assert not directory.exists()
        assert Path(other.aeron_dir).exists()


def test_a_forked_child_leaves_its_parents_driver_alone_and_can_have_its_own(members: ThreadedMembers) -> None:
    given = reachable(members)
    before = own_directories()
    with Child() as child, AeronCluster.connect(**given, correlate=lambda payload: payload) as client:
        (directory,) = own_directories() - before
        if child.fork():
            client.close()
            with AsyncConnect(ClientContext(**settings())) as connecting:
                child.tell(f"own: {len(own_directories())}, {connecting.step.name}")
            child.end(f"after: {len(own_directories())}")
        assert child.outcome() == (0, ["own: 1, CREATE_EGRESS_SUBSCRIPTION", "after: 0"])
        assert driver_absence(directory / "driver", NS_PER_S) is None
        assert client.request(b"alive", key=b"alive") == b"alive"
    assert own_directories() == before


def test_a_forked_child_holds_no_lock_of_its_parents_directory() -> None:
    # Else a child that lives on would keep the directory of a parent that was killed.
    def has_lock_open() -> bool:
        return any(path.exists() and path.samefile(directory) for path in Path("/proc/self/fd").iterdir())

    with Child() as child, MediaDriver.launch_embedded() as driver:
        directory = Path(driver.aeron_dir).parent
        assert has_lock_open()
        if child.fork():
            child.end(str(has_lock_open()))
        assert child.outcome() == (0, ["False"])


# One that runs


def test_a_driver_that_runs_in_the_default_directory_is_used(caplog: pytest.LogCaptureFixture) -> None:
    before = own_directories()
    with (
        caplog.at_level(logging.INFO, "container.client"),
        MediaDriver.launch_embedded(default_aeron_dir()),
        AsyncConnect(ClientContext(**settings())) as connecting,
    ):
        assert connecting.client is not None
        assert connecting.client.aeron_dir == default_aeron_dir()  # type: ignore[attr-defined]
        assert own_directories() == before
    assert "embedded" not in caplog.text


@pytest.mark.parametrize("source", ["setting", "variable"])
def test_where_a_directory_is_given_no_driver_is_started(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(tmp_path / "none")
    if source == "variable":
        monkeypatch.setenv("AERON_DIR", directory)
    given = settings(aeron_dir=directory) if source == "setting" else settings()
    begin = time.monotonic()
    with pytest.raises(DriverTimeoutError, match=f"no media driver within 500 ms: {directory}/cnc.dat does not exist"):
        AeronCluster.connect(**given)
    assert time.monotonic() - begin >= 0.5  # the message timeout, and not the driver's of 10 s
    assert own_directories() == set()


def test_the_shorter_of_both_timeouts_ends_the_wait_for_a_driver(tmp_path: Path) -> None:
    given = settings(aeron_dir=str(tmp_path / "none"), message_timeout=30.0, driver_timeout=0.1)
    with pytest.raises(DriverTimeoutError, match="no media driver within 100 ms"):
        AeronCluster.connect(**given)


def test_a_driver_can_be_refused() -> None:
    with pytest.raises(DriverTimeoutError, match="does not exist; start a media driver there, .*embedded_driver=False"):
        AeronCluster.connect(**settings(embedded_driver=False, message_timeout=0.1))
    assert own_directories() == set()


@pytest.mark.parametrize("name", ["ingress_channel", "egress_channel"])
def test_over_ipc_only_the_members_driver_will_do(name: str) -> None:
    given = settings(ingress_channel="aeron:udp?endpoint=localhost:1", ingress_endpoints=None, message_timeout=0.1)
    with pytest.raises(DriverTimeoutError, match="over IPC it must be the member's own, so none is started"):
        AeronCluster.connect(**given | {name: "aeron:ipc"})
    with pytest.raises(ConfigurationError, match=f"embedded_driver must be None or False with {name}='aeron:ipc'"):
        ClientContext(**given | {name: "aeron:ipc", "embedded_driver": True})


def test_a_connect_in_steps_waits_for_a_driver_without_blocking(tmp_path: Path) -> None:
    directory = tmp_path / "driver"
    context = ClientContext(**settings(aeron_dir=str(directory), message_timeout=LIMIT_S, driver_timeout=LIMIT_S))
    begin = time.monotonic()
    with AsyncConnect(context) as connecting:
        assert connecting.poll() is None
        assert time.monotonic() - begin < LIMIT_S / 2
        assert connecting.step == ConnectStep.AWAIT_DRIVER
        assert connecting.client is None
        assert connecting.awaited == f"a media driver: {directory}/cnc.dat does not exist"
        with MediaDriver.launch_embedded(directory):

            def has_a_client() -> bool | None:
                connecting.poll()
                return connecting.client is not None or None

            wait_until(has_a_client, LIMIT_S, "the client's")
            connecting.close()
    with pytest.raises(ClosedError):
        connecting.poll()


def test_the_agent_is_invoked_while_a_driver_is_awaited(tmp_path: Path) -> None:
    calls: list[int] = []
    given = settings(aeron_dir=str(tmp_path / "none"), message_timeout=0.1)
    with pytest.raises(DriverTimeoutError):
        AeronCluster.connect(**given, agent_invoker=lambda: calls.append(1))
    assert len(calls) > 2


# Settings


def test_a_driver_of_its_own_excludes_another() -> None:
    with pytest.raises(ConfigurationError, match="aeron_dir must be None with embedded_driver=True, not '/somewhere'"):
        ClientContext(**settings(aeron_dir="/somewhere", embedded_driver=True))
    with pytest.raises(ConfigurationError, match="embedded_driver must be None, True or False, not 1"):
        ClientContext(**settings(embedded_driver=1))


def test_one_that_is_asked_for_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_DIR", "/no/such/driver")
    context = ClientContext.from_environment(**settings(embedded_driver=True))
    assert context.aeron_dir is None
    before = own_directories()
    with AsyncConnect(context) as connecting:
        assert connecting.step == ConnectStep.CREATE_EGRESS_SUBSCRIPTION
        assert len(own_directories() - before) == 1


def test_a_library_without_a_driver_leaves_the_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> MediaDriver:
        raise ImportError("libaeron.so has no media driver")

    monkeypatch.setattr("container.aeron.MediaDriver", type("MediaDriver", (), {"launch_embedded": refuse}))
    with pytest.raises(DriverTimeoutError, match="none can be started for this client: libaeron.so has no media"):
        AeronCluster.connect(**settings(message_timeout=0.1))
    with pytest.raises(ImportError):
        AeronCluster.connect(**settings(embedded_driver=True))


def test_a_reconnecting_client_goes_on_after_a_driver_that_is_missing(tmp_path: Path) -> None:
    policy = ReconnectPolicy(first_delay=0.01, max_attempts=2)
    given = settings(aeron_dir=str(tmp_path / "none"), message_timeout=0.05, listener=EgressListener())
    client = ReconnectingClient.connect(**given, policy=policy)
    with pytest.raises(ClosedError, match="no session after 2 attempts: no media driver within 50 ms"), client:
        pass
