"""Shipping to an object store by the command: kills, two at once, damage; a live node under load that purges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from container.pipeline.ship import check_place
from container.pipeline.ship_place import open_place
from container.recordings import read
from container.testing.process import Process
from tests.object_store import ObjectStore
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


def test_a_killed_command_is_run_again_and_the_place_is_whole(member: WrittenMember, object_store: ObjectStore) -> None:
    store = object_store
    url = store.place()
    for count in (1, 2, 3, 4, 6, 8):

        def has_so_many(count: int = count) -> bool:
            return len(objects(store, url)) >= count

        with Process("ship", command(member, store, url), directory=Path.cwd()) as process:
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
