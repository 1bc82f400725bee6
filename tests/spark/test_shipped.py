"""Shipping to an object store by the command: kills, two at once, damage; a live node under load that purges."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import container
from container.client import AeronCluster
from container.errors import ConfigurationError
from container.pipeline.ship import check_place
from container.pipeline.ship_place import open_place
from container.recordings import read
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process
from tests.object_store import ObjectStore
from tests.services import Quiet
from tests.spark.written_members import WrittenMember

LIMIT_S = 60


def command(member: WrittenMember, store: ObjectStore, url: str, *words: str) -> list[str]:
    options = json.dumps(store.options)
    ship = ["pipeline", "ship", str(member.base_dir), "--to", url, "--storage-options", options, *words]
    return [sys.executable, "-m", "container", *ship]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def objects(store: ObjectStore, url: str) -> dict[str, int]:
    store.file_system.invalidate_cache()
    found: dict[str, Any] = store.file_system.find(url.removeprefix("s3://"), detail=True)
    return {name: entry["size"] for name, entry in found.items()}


def assert_whole(member: WrittenMember, store: ObjectStore, url: str) -> None:
    manifest, faults = check_place(open_place(url, store.options))
    assert (faults, manifest.end_position) == ([], member.end_position)
    for view in ("messages", "snapshots"):
        expected = [row for batch in read(member.base_dir, view) for row in batch.to_pylist()]
        found = [row for batch in read(url, view, storage_options=store.options) for row in batch.to_pylist()]
        assert found == expected


def test_a_killed_command_is_run_again_and_the_place_is_whole(
    member: WrittenMember, object_store: ObjectStore, tmp_path: Path
) -> None:
    store = object_store
    url = store.place()
    for count in (1, 3, 6):

        def has_so_many(count: int = count) -> bool:
            return len(objects(store, url)) >= count

        with Process("ship", command(member, store, url), directory=tmp_path) as process:
            process.start()
            process.wait_until(has_so_many, LIMIT_S, f"{count} objects")
            process.kill()
    done = run(*command(member, store, url))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{url} has the log up to {member.end_position}, manifest 2\n"
    assert_whole(member, store, url)
    before = objects(store, url)
    again = run(*command(member, store, url))
    assert (again.returncode, objects(store, url)) == (0, before)
    assert run(*command(member, store, url, "--check")).stdout.startswith(f"{url} is whole: log positions 0 to ")


class Silent(Quiet):
    """Takes what it gets; its snapshot has several fragments."""

    def on_take_snapshot(self, snapshot_publication: container.SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, "state" * 5_000)


def positions(path: str | Path, **options: Any) -> list[int]:
    batches = read(path, "messages", columns=["log_position"], **options)
    return [position for batch in batches for position in batch.column(0).to_pylist()]


@pytest.mark.slow
def test_a_live_node_is_shipped_while_it_works_whatever_happens_to_the_shipper(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    """What is in the place is always a whole prefix of the log; after the end it is the log."""
    url, directory, storage = object_store.place(), tmp_path / "node", object_store.options
    words = [sys.executable, "-m", "container", "pipeline", "ship", str(directory), "--to", url]
    words += ["--storage-options", json.dumps(storage)]
    ports = PortReservation("127.0.0.1")
    settings: dict[str, Any] = {
        "archive": {"segment_file_length": 65_536},
        "consensus_module": {"log_channel": "aeron:udp?term-length=64k"},
    }
    shipped = [0]
    with (
        closing(ports),
        container.launch_node(
            Silent(), directory=directory, host="127.0.0.1", port=ports.take_row(5), **settings
        ) as node,
        AeronCluster.connect(
            aeron_dir=node.aeron_dir, ingress_channel="aeron:ipc", egress_channel="aeron:ipc", message_timeout=LIMIT_S
        ) as client,
    ):

        def is_ahead() -> bool:
            for _ in range(40):
                client.send(bytes(1000))
            client.poll_egress()
            try:
                shipped.append(check_place(open_place(url, storage))[0].end_position)
            except ConfigurationError:
                return False  # Nothing was shipped yet.
            return shipped[-1] > target

        for round_number in range(4):
            target = shipped[-1] + 100_000
            with Process("ship", [*words, "--every", "0.1"], directory=tmp_path) as process:
                process.start()
                process.wait_until(is_ahead, LIMIT_S, f"round {round_number}: the place to grow to {target}")
                node.take_snapshot()
                process.kill()
            manifest, faults = check_place(open_place(url, storage))
            assert faults == []
            own = [position for position in positions(directory) if position <= manifest.end_position]
            assert positions(url, storage_options=storage) == own
    assert shipped == sorted(shipped)
    # The last message may have come after the last pass; nothing of a member that has ended says that it is committed.
    done = run(*words, "--committed", "recorded")
    assert done.returncode == 0, done.stderr
    for view in ("messages", "snapshots", "sessions"):
        expected = [row for batch in read(directory, view) for row in batch.to_pylist()]
        found = [row for batch in read(url, view, storage_options=storage) for row in batch.to_pylist()]
        assert found == expected, view
