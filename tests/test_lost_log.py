"""A node of one whose recording log has lost the log that its archive has is refused, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import container
from container.errors import ClusterError
from container.node.lost_log import check_log_is_named
from container.testing.processes.recordings import write_catalog
from tests.services import Counter
from tests.test_archive_catalog import described
from tests.test_cluster_node import HOST, ask

LOG = "aeron:udp?tags=53|session-id=7|alias=log"


def cut(length: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:length])

    change.__name__ = f"{length} bytes"
    return change


@pytest.mark.parametrize("change", [Path.unlink, cut(0), cut(31)], ids=lambda change: change.__name__)
def test_a_node_does_not_begin_anew_beside_the_log_that_it_has(
    tmp_path: Path, port: int, change: Callable[[Path], None]
) -> None:
    with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
        assert ask(node, b"4") == b"4"
        node.take_snapshot()
    path = tmp_path / "cluster" / "recording.log"
    content = path.read_bytes()
    change(path)
    for _ in range(2):
        with pytest.raises(
            ClusterError, match=r"recording\.log has no entry, and recording 0 in .* is a log from 0 to"
        ):
            container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port)
    path.write_bytes(content)
    with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
        assert ask(node, b"5") == b"9"


@pytest.mark.parametrize(
    ("recorded", "is_lost"),
    [
        ({}, True),
        ({"stop_position": 0}, False),  # of a start that was cut short
        ({"stream_id": 101}, False),
        ({"original_channel": "aeron:udp?endpoint=localhost:1|alias=login"}, False),  # of a user
        ({"original_channel": "aeron:udp?endpoint=localhost:1"}, False),
    ],
)
def test_only_frames_of_a_log_are_one(tmp_path: Path, recorded: dict[str, Any], is_lost: bool) -> None:
    values: dict[str, Any] = {
        "stream_id": 100,
        "original_channel": LOG,
        "start_position": 0,
        "stop_position": 96,
    } | recorded
    write_catalog(tmp_path, [described(**values)])
    if is_lost:
        with pytest.raises(ClusterError, match="remove"):
            check_log_is_named(tmp_path, tmp_path, 100)
    else:
        check_log_is_named(tmp_path, tmp_path, 100)
