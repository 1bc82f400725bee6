"""A minute of nothing but sends, of sleep and of a held GIL: the client lives, its session as the cluster allows."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from container.client import AeronCluster, ClientState
from container.testing.processes.local_cluster import Node
from tests.limits import LIMIT_S
from tests.system.harness import NodeFactory
from tests.system.test_client import Collecting, poll_until, settings, start_echo

MINUTE_S = 60.0
BUSY = """
import asyncio, ctypes, sys
from container.client import AeronCluster, EgressListener, AsyncAeronCluster

pytestmark = pytest.mark.nodes("native", "java")

class Listener(EgressListener):
    def on_message(self, *arguments): pass

settings = dict(argument.split("=", 1) for argument in sys.argv[2:])

async def hold():
    async with AsyncAeronCluster.connect(**settings) as client:
        with AeronCluster.connect(**settings, listener=Listener()) as blocking:
            ctypes.PyDLL(None).usleep(int(float(sys.argv[1]) * 1e6))
            while not blocking.is_closed:
                blocking.idle(blocking.poll_egress())
            print("blocking:", blocking.close_reason)
        async with asyncio.timeout(20):
            try:
                await client.receive()
            except Exception as error:
                print("asyncio:", type(error).__name__, error)

asyncio.run(hold())
"""


@pytest.fixture
def echo(node: NodeFactory) -> Node:
    return start_echo(node())


@pytest.mark.slow
def test_a_minute_of_sends_of_sleep_and_of_a_held_gil(echo: Node) -> None:
    reachable = settings(echo, Collecting())
    del reachable["listener"], reachable["message_timeout"]
    holder = echo.start_process(
        "gil-holder",
        [sys.executable, "-c", BUSY, str(MINUTE_S), *(f"{name}={value}" for name, value in reachable.items())],
    )
    asleep, sending = Collecting(), Collecting()
    with (
        AeronCluster.connect(**reachable, listener=asleep) as sleeper,
        AeronCluster.connect(**reachable, listener=sending) as sender,
    ):
        end = time.monotonic() + MINUTE_S
        count = 0
        while time.monotonic() < end:
            assert sender.offer(b"%d" % count) > 0
            count += 1
            threading.Event().wait(0.05)  # a program with little to send
        poll_until(sender, lambda: len(sending.messages) == count, "all echoes")
        assert sender.state == ClientState.CONNECTED
        poll_until(sleeper, lambda: sleeper.is_closed, "the news that the session is gone")
        assert sleeper.close_reason == "closed by the cluster: TIMEOUT"
    assert holder.wait(LIMIT_S) == 0, holder.tail()
    assert holder.output().splitlines()[-2:] == [
        "blocking: closed by the cluster: TIMEOUT",
        "asyncio: ClosedError the client is closed: closed by the cluster: TIMEOUT",
    ]
