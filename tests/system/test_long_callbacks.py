"""Callbacks, and clients, that are silent for longer than a driver waits for its clients."""

from __future__ import annotations

import ctypes
import json
import threading
import time

import pytest

from container.testing.processes.local_cluster import CounterType
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.harness import (
    QUICK_DRIVER,
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    error_texts,
    module_errors,
    release,
    start,
    start_tool,
)

pytestmark = pytest.mark.nodes("native", "java")

PATIENT_SESSIONS = {"aeron.cluster.session.timeout": "120s"}


@pytest.mark.slow
def test_a_member_survives_callbacks_longer_than_the_liveness_timeout(node: NodeFactory) -> None:
    # With Aeron's defaults, at once on three nodes: one handles a message, one loads a snapshot, one writes one. The
    # first sleeps, the others hold the GIL.
    seconds = 60
    loading, writing, handling = (node(properties=PATIENT_SESSIONS) for _ in range(3))
    limit_s = LIMIT_S + seconds

    service = start(loading, REPORTING_SERVICE)
    assert loading.cluster_tool("snapshot").return_code == 0
    release(loading, service)
    services: list[Process] = [
        loading.start().start_service(REPORTING_SERVICE, environment={"TEST_HOLD_START": str(seconds)}),
        start(writing, REPORTING_SERVICE, {"TEST_HOLD_SNAPSHOT": str(seconds)}),
        start(handling, REPORTING_SERVICE),
    ]
    start_tool(writing, "snapshot")
    await_report(services[1], "on_take_snapshot")
    begin = time.monotonic()
    with CommandClient(handling) as client:
        client.send("sleep", seconds=seconds)
        client.poll_until(lambda: client.messages, "the answer to sleep", limit_s)
        assert client.do("echo", text="after") == "after"
        assert time.monotonic() - begin >= seconds

    loading.await_leader(limit_s)
    assert await_report(services[0], "on_start")["has_snapshot"]
    writing.await_counter(CounterType.SNAPSHOT_COUNTER, 1, limit_s)
    for member, process in zip((loading, writing, handling), services, strict=True):
        with CommandClient(member) as client:
            assert client.do("echo", text="still here") == "still here"
        assert process.is_running
        assert error_texts(member) == []
        assert module_errors(member) == []


def test_a_client_survives_silences_longer_than_the_liveness_timeout(node: NodeFactory) -> None:
    seconds = 7
    member = node(properties={**QUICK_DRIVER, **PATIENT_SESSIONS})
    start(member, REPORTING_SERVICE)
    with CommandClient(member) as sender, CommandClient(member) as sleeper:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sender.send_without_polling(b'{"do": "state"}')
            threading.Event().wait(0.1)
        for client in (sender, sleeper):
            await_echo(client, "after the silence")
        ctypes.PyDLL(None).usleep(seconds * 1_000_000)
        for client in (sender, sleeper):
            await_echo(client, "after the long call")


def await_echo(client: CommandClient, text: str) -> None:
    """Have this text back, whatever else comes before."""
    assert not client.cluster.is_closed
    client.send("echo", text=text)
    answer = json.dumps({"result": text}).encode()
    client.poll_until(lambda: answer in client.messages, f"the answer {text!r}")
