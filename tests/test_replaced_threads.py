"""A program that replaces Python's threads, as gevent's patch_all() does, is refused in one sentence, or works."""

from __future__ import annotations

import _thread
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import container
from container.archive import Archive
from container.client import AsyncAeronCluster, AsyncReconnectingClient, AsyncSessionPool
from container.consensus import ConsensusModule
from container.errors import ConfigurationError
from container.operate.exporter import Exporter
from container.testing.processes.endpoints import PortReservation
from tests.limits import LIMIT_S
from tests.services import Counter

REMEDY = "gevent.monkey.patch_all\\(thread=False, queue=False\\)"


def start_on_a_greenlet(*_arguments: object) -> None:
    """Stands for what a library puts in the place of a thread's start."""


class OneThreadsQueue:
    """Stands for what a library puts in the place of a queue."""


CHANNELS: Any = {
    "control_channel": "aeron:udp?endpoint=localhost:1",
    "replication_channel": "aeron:udp?endpoint=localhost:0",
}
MEMBER: Any = {
    "cluster_members": "0,a:1,a:2,a:3,a:4,a:5",
    "ingress_channel": "aeron:udp",
    "replication_channel": "aeron:udp?endpoint=localhost:0",
}
ENTRIES: list[tuple[str, Callable[[], object]]] = [
    ("launch_node\\(\\)", lambda: container.launch_node(Counter())),
    ("an archive", lambda: Archive.launch(archive_dir="/none", **CHANNELS)),
    ("a consensus module", lambda: ConsensusModule.launch(cluster_dir="/none", **MEMBER)),
    ("a container", lambda: container.ClusteredServiceContainer.launch(Counter(), cluster_dir="/none")),
    ("AsyncAeronCluster", lambda: AsyncAeronCluster.connect(egress_channel="aeron:ipc")),
    ("AsyncReconnectingClient", lambda: AsyncReconnectingClient.connect(egress_channel="aeron:ipc")),
    ("AsyncSessionPool", lambda: AsyncSessionPool.connect(egress_channel="aeron:ipc")),
    ("an exporter", lambda: Exporter([])),
]


@pytest.mark.parametrize(("what", "call"), ENTRIES, ids=[what for what, _call in ENTRIES])
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(_thread, "start_new_thread", start_on_a_greenlet), (queue, "SimpleQueue", OneThreadsQueue)],
)
def test_what_has_a_thread_refuses_replaced_ones(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object, what: str, call: Callable[[], object]
) -> None:
    monkeypatch.setattr(module, name, value)
    with pytest.raises(
        ConfigurationError, match=f"^{what} needs Python's threads and queues, and tests has .*{REMEDY}$"
    ):
        call()


PROGRAM = """
import gevent.monkey
gevent.monkey.patch_all({patch})
import asyncio
import container
from container.client import AsyncSessionPool, AsyncAeronCluster
from tests.services import Counter

async def ask(node):
    settings = dict(aeron_dir=node.aeron_dir, ingress_channel="aeron:ipc", egress_channel="aeron:ipc")
    async with AsyncAeronCluster.connect(**settings) as client:
        await client.send(b"1")
        print((await client.receive()).payload.decode())
    async with AsyncSessionPool.connect(**settings) as pool:
        session = await pool.open()
        await session.send(b"2")
        print((await session.receive()).payload.decode())

with container.launch_node(Counter(), host="127.0.0.1", port={port}) as node:
    asyncio.run(ask(node))
"""


@pytest.mark.parametrize(
    ("patch", "code", "output", "error"),
    [
        ("", 1, "", "launch_node() needs Python's threads and queues, and gevent has replaced them"),
        ("thread=False, queue=False", 0, "1\n3\n", ""),
    ],
)
def test_gevent_is_refused_or_works(patch: str, code: int, output: str, error: str) -> None:
    pytest.importorskip("gevent")
    ports = PortReservation("127.0.0.1")
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(patch=patch, port=ports.take_row(5))],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        ports.close()
    assert (done.returncode, done.stdout) == (code, output), done.stderr
    assert error in done.stderr
