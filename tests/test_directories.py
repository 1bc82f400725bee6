"""Directories that settings name: made, and there after a cut of the power."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from container.errors import ClusterError
from container.storage.directories import concluded_directory
from container.storage.file_storage import FileStorage
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws


def forced_directories(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    fsync = os.fsync

    def force(descriptor: int) -> None:
        found.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", force)
    return found


def test_a_directory_is_there_whatever_a_cut_of_the_power_leaves() -> None:
    disk = SimulatedDisk()
    assert concluded_directory(disk.process(), "cluster_dir", "/cluster") == "/cluster"
    assert [state.contents() for state in disk.crash_states()] == [{"/": None, "/cluster": None}]


def test_one_that_a_killed_process_has_made_is_forced_as_well() -> None:
    disk = SimulatedDisk()
    killed = disk.process()
    killed.make_directory("/cluster")
    killed.kill(Draws(1))
    assert len(list(disk.crash_states())) == 2
    concluded_directory(disk.process(), "cluster_dir", "/cluster")
    assert [state.contents() for state in disk.crash_states()] == [{"/": None, "/cluster": None}]


@pytest.mark.parametrize("kind", ["make_directory", "force_directory"])
def test_a_disk_that_fails_is_an_error_that_names_the_setting(kind: str) -> None:
    disk = SimulatedDisk()
    disk.fail(kind, errno.EIO)
    with pytest.raises(ClusterError, match="^cluster_dir='/cluster': cannot be created: cannot .*: repair its disk"):
        concluded_directory(disk.process(), "cluster_dir", "/cluster")


def test_the_names_of_all_that_is_made_among_files_are_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = forced_directories(monkeypatch)
    path = concluded_directory(FileStorage(), "cluster_dir", str(tmp_path / "one" / "two" / "three"))
    where = tmp_path.resolve()
    assert path == str(where / "one" / "two" / "three")
    expected = [where, where / "one", where / "one" / "two"]
    assert found == [*map(str, expected), str(expected[-1])]  # the last is forced whether it was there or not
    found.clear()
    assert concluded_directory(FileStorage(), "cluster_dir", path) == path
    assert found == [str(expected[-1])]


def test_a_parent_that_may_not_be_read_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = os.open

    def refuse(path: str | Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_file(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    assert concluded_directory(FileStorage(), "cluster_dir", str(tmp_path / "one")) == str(tmp_path.resolve() / "one")
    assert (tmp_path / "one").is_dir()
