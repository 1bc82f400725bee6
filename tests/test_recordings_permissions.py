"""Files that may not be read: an error that names the file and what to do, in either mode; a row would be a gap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recordings_world import SEGMENT_LENGTH, World, marker, rows_of, session_message

NOBODY = 65534
ADVICE = "Permission denied; run as a user who may read it, or change its permissions"

# Reads as a user who owns nothing: first an intact member as the user who started it, so that all is imported.
READER = f"""
import json, os, sys
from container.recordings import VIEWS, RecordingError, read
for view in VIEWS:
    list(read(sys.argv[1], view))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
for line in sys.stdin:
    paths, view = json.loads(line)
    for mode in ("strict", "permissive"):
        rows, error = [], None
        try:
            for batch in read(paths, view, mode=mode):
                rows += [[row.get("log_position"), row["error"]] for row in batch.to_pylist()]
        except RecordingError as failure:
            error = [str(failure), failure.file]
        print(json.dumps([rows, error]), flush=True)
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)
        for path in Path(name).rglob("*"):
            path.chmod(0o700)


def written(base_dir: Path, *, stop: bool = True) -> World:
    """A member with two and a half segments and a snapshot."""
    world = World(base_dir)
    world.begin_term()
    while world.log.position < 5 * SEGMENT_LENGTH // 2:
        world.log.append(session_message(1, os.urandom(5000)))
    world.add_snapshot(0, [marker(0), marker(2), b"state"], 0)
    world.close(stop=stop)
    for path in base_dir.rglob("*"):
        path.chmod(0o755)
    return world


type Outcome = tuple[list[list[Any]], Any]
"""Rows (log position and error) of a read, and text and file of what it raised or None."""
type Reader = Callable[[list[Path], str], tuple[Outcome, Outcome]]


@pytest.fixture(scope="module")
def read_as_nobody() -> Iterator[Reader]:
    """What comes of reads by a user who owns nothing, in mode strict and permissive; one process does them all."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-c", READER, str(written(Path(name)).base_dir)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            stdin, stdout = process.stdin, process.stdout

            def read_views(paths: list[Path], view: str) -> tuple[Outcome, Outcome]:
                stdin.write(json.dumps([list(map(str, paths)), view]) + "\n")
                stdin.flush()
                return tuple(json.loads(stdout.readline())), tuple(json.loads(stdout.readline()))

            yield read_views
            stdin.close()
            assert process.wait() == 0


@pytest.mark.parametrize(
    ("number", "stop"), [(0, True), (1, False), (2, True), (2, False)], ids=["first", "middle", "last", "of a crash"]
)
def test_a_segment_that_may_not_be_read(directory: Path, read_as_nobody: Reader, number: int, stop: bool) -> None:
    world = written(directory / "node", stop=stop)
    positions = [row["log_position"] for row in rows_of(world.base_dir, "messages")]
    world.segment(number).chmod(0)
    begin = number * SEGMENT_LENGTH
    (rows, (text, file)), permissive = read_as_nobody([world.base_dir], "messages")
    assert text == f"{file}, offset 0, log position {begin}: the segment file cannot be opened: {ADVICE}"
    assert file == str(world.segment(number))
    assert rows == [[position, None] for position in positions if position <= begin]
    assert permissive == (rows, [text, file])


# What may not be read, the view, and what the error says.
DENIED: dict[str, tuple[str, str, str]] = {
    "the catalog": ("archive/archive.catalog", "messages", "the catalog cannot be read"),
    "the catalog, as rows": ("archive/archive.catalog", "recordings", "the catalog cannot be read"),
    "the catalog, for snapshots": ("archive/archive.catalog", "snapshots", "the catalog cannot be read"),
    "the recording log": ("cluster/recording.log", "messages", "the recording log cannot be read"),
    "the recording log, as rows": ("cluster/recording.log", "recording_log", "the recording log cannot be read"),
    "the recording log, for terms": ("cluster/recording.log", "terms", "the recording log cannot be read"),
    "the recording log, for snapshots": ("cluster/recording.log", "snapshots", "the recording log"),
    "the archive's directory": ("archive", "messages", "the path cannot be read"),
    "the cluster's directory": ("cluster", "messages", "the path cannot be read"),
    "the base directory": (".", "messages", "the path cannot be read"),
}


@pytest.mark.parametrize(("name", "view", "text"), DENIED.values(), ids=DENIED.keys())
def test_a_file_or_directory_that_may_not_be_read(
    directory: Path, read_as_nobody: Reader, name: str, view: str, text: str
) -> None:
    world, other = written(directory / "node"), written(directory / "other")
    denied = world.base_dir / name
    denied.chmod(0)
    (rows, (error, file)), permissive = read_as_nobody([world.base_dir, other.base_dir], view)
    assert rows == []
    assert error.startswith(f"{file}: {text}")
    assert error.endswith(ADVICE)
    assert Path(file).is_relative_to(denied)
    assert permissive == (rows, [error, file])


def test_a_directory_that_is_none_of_the_members_does_not_matter(directory: Path, read_as_nobody: Reader) -> None:
    world = written(directory / "node")
    (world.base_dir / "lost+found").mkdir(mode=0o700)
    (rows, error), _ = read_as_nobody([world.base_dir], "messages")
    assert error is None
    assert len(rows) == len(rows_of(world.base_dir, "messages"))
    # An archive alone has no cluster directory that it could be.
    (world.archive_dir / "lost+found").mkdir(mode=0o700)
    (rows, error), _ = read_as_nobody([world.archive_dir], "messages")
    assert (error, len(rows)) == (None, len(rows_of(world.base_dir, "messages")))
