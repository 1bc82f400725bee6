"""Sectors of a recording that cannot be read: an error that names the file, never fewer rows or a row of damage."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from sysconfig import get_config_var
from typing import Any

import pytest

from tests.limits import LIMIT_S
from tests.recordings_world import SEGMENT_LENGTH, TERM_LENGTH, World, rows_of

SECTOR = 4096
HEADER_LENGTH = 32
PADDING = 0  # a data frame header's type

# A disk with one sector that cannot be read: what lies before it is read, and then nothing more.
DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static ssize_t bad_read(const char* name, int fd, void* to, size_t count, off_t offset) {
    ssize_t (*plain)(int, void*, size_t, off_t) = dlsym(RTLD_NEXT, name);
    const char* file = getenv("BAD_FILE");
    long bad = file ? atol(getenv("BAD_SECTOR")) : 0;
    char link[64], path[4096];
    ssize_t length;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = file ? readlink(link, path, sizeof(path) - 1) : -1;
    if (length > 0) {
        path[length] = 0;
        if (strcmp(path, file) == 0 && offset < bad + SECTOR && offset + (off_t) count > bad) {
            if (offset >= bad) { errno = EIO; return -1; }
            count = (size_t) (bad - offset);
        }
    }
    return plain(fd, to, count, offset);
}
ssize_t pread(int fd, void* to, size_t count, off_t offset) { return bad_read("pread", fd, to, count, offset); }
ssize_t pread64(int fd, void* to, size_t count, off_t offset) { return bad_read("pread64", fd, to, count, offset); }
"""

# Reads a member's messages for each bad sector in turn; prints what comes of each as a line of JSON.
READER = """
import json, os, sys
from container.recordings import RecordingError
from tests.recordings_world import rows_of
base_dir, file, mode, *sectors = sys.argv[1:]
os.environ["BAD_SECTOR"], os.environ["BAD_FILE"] = "0", file
for sector in sectors:
    os.environ["BAD_SECTOR"] = sector
    os.utime(file)  # where the log ends is kept of a file that was not written for a while
    try:
        rows = rows_of(base_dir, "messages", mode=mode)
        print(json.dumps({"rows": len(rows), "damage": sum("error" in row for row in rows)}))
    except RecordingError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes a sector unreadable."""
    directory = tmp_path_factory.mktemp("disk")
    source, library = directory / "disk.c", directory / "disk.so"
    source.write_text(DISK)
    compiler = str(os.environ.get("CC") or get_config_var("CC") or "cc").split()
    command = [*compiler, f"-DSECTOR={SECTOR}", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert made.returncode == 0, f"the library could not be compiled: {made.stderr[-2000:]}"
    return library


def outcomes(disk: Path, world: World, file: Path, mode: str, sectors: list[int]) -> list[dict[str, Any]]:
    """What reading with each bad sector came to."""
    ended = subprocess.run(
        [sys.executable, "-c", READER, str(world.base_dir), str(file), mode, *map(str, sectors)],
        env={**os.environ, "LD_PRELOAD": str(disk)},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, f"reading ended with {ended.returncode}: {ended.stderr[-2000:]}"
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(found) == len(sectors)
    return found


def made(path: Path, *, stop: bool) -> World:
    """A log of two segments; the second has data in its first Aeron term, and zeros behind."""
    world = World(path)
    world.begin_term()
    rng = random.Random(5)
    while world.log.position < 2 * TERM_LENGTH + TERM_LENGTH // 2:
        world.append_some(rng, 10)
    return world.close(stop=stop)


def read_sectors(segment: bytes, *, stop: bool) -> set[int]:
    """Where the sectors lie that a reader needs: all that hold a part of a frame, but for the body of padding.

    stop: the log was closed; otherwise nobody knows where it ends, and all behind it is read for frames.
    """
    needed: set[int] = set()
    offset = 0
    while offset < len(segment):
        length, kind = struct.unpack_from("<i2xH", segment, offset)
        if length <= 0:
            break
        used = HEADER_LENGTH if kind == PADDING else length
        needed.update(range(offset // SECTOR * SECTOR, offset + used, SECTOR))
        offset += (length + 31) // 32 * 32
    return needed if stop else needed | set(range(offset // SECTOR * SECTOR, len(segment), SECTOR))


@pytest.mark.parametrize("mode", ["strict", "permissive"])
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
def test_each_bad_sector_is_an_error_that_names_the_file(tmp_path: Path, disk: Path, mode: str, *, stop: bool) -> None:
    world = made(tmp_path, stop=stop)
    needed = read_sectors(world.segment(1).read_bytes(), stop=stop)
    sectors = list(range(0, SEGMENT_LENGTH, SECTOR))
    intact = len(rows_of(world.base_dir, "messages"))
    for sector, found in zip(sectors, outcomes(disk, world, world.segment(1), mode, sectors), strict=True):
        if sector not in needed:
            assert found == {"rows": intact, "damage": 0}, f"sector {sector} holds no frame"
            continue
        assert found.get("error") == "RecordingUnavailableError", f"sector {sector}: {found}"
        assert f"{world.segment(1)}" in found["text"]
        assert "cannot be read: Input/output error" in found["text"]


@pytest.mark.parametrize("mode", ["strict", "permissive"])
def test_damage_in_front_of_a_bad_sector_does_not_hide_it(tmp_path: Path, disk: Path, mode: str) -> None:
    """The next frame is looked for from the damage on: what cannot be read on the way is not skipped as damaged."""
    world = made(tmp_path, stop=True)
    world.segment(1).write_bytes(bytes(SECTOR) + world.segment(1).read_bytes()[SECTOR:])
    (found,) = outcomes(disk, world, world.segment(1), mode, [SECTOR])
    if mode == "strict":
        assert found["error"] == "RecordingError"
    else:
        assert found["error"] == "RecordingUnavailableError"
        assert "cannot be read: Input/output error" in found["text"]
