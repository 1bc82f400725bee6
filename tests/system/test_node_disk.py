"""A whole node on a disk that runs full: it says so and ends, has all that was acknowledged, and goes on with space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.testing.processes.process import ProcessEndedError
from tests.soak import disk
from tests.soak.node_kills import LIMIT_S, NodeKills

pytestmark = [pytest.mark.usefixtures("jar"), pytest.mark.slow]

SIZE_MIB = 24
LEFT = 100_000
FOREVER = 10**9
FULL = re.compile("No space left on device|usable storage space|free space on the disk|low storage threshold")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[disk.SmallDisk]:
    reason = disk.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    made = disk.SmallDisk(tmp_path / "node", SIZE_MIB)
    yield made
    made.close()


@pytest.mark.parametrize("is_snapshot_asked_for", [False, True])
def test_a_full_disk_ends_the_node_and_loses_nothing(
    tmp_path: Path, small_disk: disk.SmallDisk, *, is_snapshot_asked_for: bool
) -> None:
    with NodeKills(tmp_path, 1) as kills:
        kills.start()
        clients = [kills.connect() for _ in range(3)]
        try:
            kills.load(clients, 200)
            small_disk.fill(leaving=0 if is_snapshot_asked_for else LEFT)
            if is_snapshot_asked_for:
                kills.node.write_line("snapshot")
            with pytest.raises(ProcessEndedError):
                kills.load(clients, FOREVER)
        finally:
            for client in clients:
                client.session.close()
        assert kills.node.wait(LIMIT_S) == 1, kills.report()
        assert FULL.search(kills.report()), kills.report()
        kills.check_log()
        kills.release()
        kills.node.start()
        assert kills.node.wait(LIMIT_S) == 1, kills.report()
        assert FULL.search(kills.report()), kills.report()
        small_disk.free()
        kills.start()
        client = kills.connect()
        with client.session:
            kills.load([client], 100)
        kills.settle()
        kills.end()
        kills.check_log()
        kills.check_replay()
        assert kills.counts["messages in the log"] > 300
