"""A whole native node as one process: it serves Java's client, lives through a kill, and ends when it is told to."""

from __future__ import annotations

import pytest

from container.common.aeron_defaults import CounterType
from container.testing.native_node import NativeNode
from tests.system.harness import LIMIT_S, ROOT, run_echo_client, run_ledger_client
from tests.system.test_native_archive import PUTS

pytestmark = pytest.mark.timeout(120)

ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
LEDGER = "tests.system.ledger_service:LedgerService"


@pytest.mark.parametrize("ipc", [False, True], ids=["udp", "ipc"])
@pytest.mark.parametrize("mode", ["SHARED", pytest.param("DEDICATED", marks=pytest.mark.slow)])
def test_java_s_client_gets_every_message_back(java_classes: object, mode: str, ipc: bool) -> None:
    service = "examples.echo_service:EchoService"
    with NativeNode(service, threading_mode=mode, environment=ENVIRONMENT, class_path=[java_classes]) as node:  # type: ignore[list-item]
        node.start().await_leader(LIMIT_S)
        result = run_echo_client(node, "messages=1000", ipc=ipc)
        assert (result["sent"], result["received"], result["mismatches"]) == (1000, 1000, 0)
        assert node.counter_value(CounterType.CONSENSUS_MODULE_ERROR_COUNT) == 0
        assert node.errors() == {}


def test_it_goes_on_after_a_kill_and_ends_with_java_s_tool(java_classes: object) -> None:
    with NativeNode(LEDGER, environment=ENVIRONMENT, class_path=[java_classes]) as node:  # type: ignore[list-item]
        node.start().await_leader(LIMIT_S)
        before = run_ledger_client(node, *PUTS, "hash")[-1]
        node.take_snapshot()
        node.kill()
        node.release_mark_files()
        node.start().await_leader(LIMIT_S)
        assert run_ledger_client(node, "hash") == [before]
        assert node.cluster_tool("shutdown").return_code == 0
        assert node.process.wait(LIMIT_S) == 0
        node.start().await_leader(LIMIT_S)
        assert run_ledger_client(node, "hash") == [before]
        assert node.stop() == 0
