"""The live view without a terminal: it shows real nodes, asks before it acts, and acts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

import container
from container.node.cluster_node import ClusterNode
from container.operate import top
from container.operate.node_metrics import NodeSample, sample_node
from container.operate.node_rows import COLUMNS
from container.operate.top import Confirmation, TopApp
from container.testing.processes.endpoints import PortReservation
from tests.limits import LIMIT_S
from tests.services import Counter

SIZE = (80, 24)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClusterNode]:
    ports = PortReservation()
    with container.launch_node(
        Counter(), directory=tmp_path / "node", host="127.0.0.1", port=ports.take_row(5)
    ) as launched:
        yield launched
    ports.close()


def view(
    paths: list[Path], use: Callable[[TopApp, Pilot[None]], Awaitable[None]], size: tuple[int, int] = SIZE
) -> None:
    """Show nodes for as long as a coroutine uses the view."""

    async def run() -> None:
        app = TopApp(paths, 0.1)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.query_one(DataTable).row_count == len(paths), "the nodes' rows")
            await use(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], found: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not found():
        assert time.monotonic() < end, f"waited {LIMIT_S:g} s for {what}"
        await pilot.pause(0.05)


def cells(app: TopApp, row: int = 0) -> list[str]:
    return [str(cell).strip() for cell in app.query_one(DataTable).get_row_at(row)]


def about(app: TopApp) -> str:
    return str(app.query_one("#details", Static).content)


@pytest.mark.parametrize("size", [SIZE, (140, 40)])
def test_nodes_are_shown_with_what_is_known_of_the_chosen_one(
    node: ClusterNode, tmp_path: Path, size: tuple[int, int]
) -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        assert cells(app)[:5] == ["node", "0", "LEADER", "ACTIVE", "0"]
        assert cells(app, 1)[:4] == ["nowhere", "-", "-", "unknown"]
        assert "driver running   archive running   services 0 running" in about(app)
        table = app.query_one(DataTable)
        assert table.virtual_size.width <= size[0]
        assert "1 of 2 nodes run" in str(app.query_one("#title", Static).content)
        await pilot.press("down")
        await until(pilot, lambda: about(app).endswith("nowhere does not exist"), "the other node")

    view([node.directory, tmp_path / "nowhere"], use, size)


def test_columns_of_a_row_do_not_touch(node: ClusterNode) -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        table = app.query_one(DataTable)
        lines = ["".join(part.text for part in table.render_line(at)).split() for at in range(2)]
        assert lines[0] == " ".join(COLUMNS).split()
        assert lines[1] == cells(app)

    view([node.directory], use)


def test_a_key_takes_a_snapshot_after_a_question(node: ClusterNode) -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        for answer in ("n", "escape"):
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.screen, Confirmation), "the question")
            await pilot.press(answer)
            await until(pilot, lambda: not isinstance(app.screen, Confirmation), "its end")
        assert "snapshots 0, no snapshot" in about(app)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Confirmation), "the question")
        await pilot.press("y")
        await until(pilot, lambda: "snapshots 1, last at" in about(app), "the snapshot")
        assert ", 0 timers in it, " in about(app)

    view([node.directory], use)


def test_keys_suspend_a_cluster_and_let_it_go_on(node: ClusterNode) -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        for key, state in (("u", "SUSPENDED"), ("r", "ACTIVE")):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, Confirmation), "the question")
            await pilot.press("y")
            await until(pilot, lambda wanted=state: cells(app)[3] == wanted, state)  # type: ignore[misc]

    view([node.directory], use)


def test_a_node_that_ends_is_shown_as_stopped_and_nothing_is_asked_of_it(node: ClusterNode) -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        node.close()
        await until(pilot, lambda: cells(app)[3] == "stopped", "the end")
        assert cells(app)[2] == "-"
        await pilot.press("s")
        await pilot.pause()
        assert not isinstance(app.screen, Confirmation)

    view([node.directory], use)


def test_looks_that_take_long_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    begun: list[Path] = []

    def slow(path: Path) -> NodeSample:
        begun.append(path)
        assert go_on.wait(LIMIT_S)
        return sample_node(path)

    monkeypatch.setattr(top, "sample_node", slow)

    async def run() -> None:
        app = TopApp([tmp_path], 0.01)
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: len(begun) == 1, "the first look")
            await pilot.pause(0.3)
            assert len(begun) == 1
            go_on.set()
            await until(pilot, lambda: len(begun) > 2, "the next looks")

    asyncio.run(run())


def test_q_ends_it(tmp_path: Path) -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, "its end")

    view([tmp_path], use)


def test_it_needs_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "container", "top", str(tmp_path)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "aeron-cluster: error: top needs a terminal; `aeron-cluster status DIR --watch` prints to anything\n"
    )
