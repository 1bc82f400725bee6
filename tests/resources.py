"""Counts of the resources of a process and a driver, so that a test can say that it is as much as before."""

from __future__ import annotations

import ctypes
import gc
import json
import linecache
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._harness import resident_mib
from container.api import Cluster
from container.common import error_texts
from container.testing.memory import transport_probe as seam
from container.transport.transport_seam import Client


def memory_directory() -> str | None:
    """A directory in memory for files that outlive no test; None where the system has none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def used_mib() -> float:
    """Resident memory of this process in MiB, without what the allocator has free and keeps for later."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident_mib(os.getpid())


def python_objects() -> Counter[str]:
    """How many objects the garbage collector knows, by type, after a collection; a Counter is not counted."""
    gc.collect()
    objects = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    del objects["collections.Counter"]
    return objects


def grown(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Types of which there are more than before, and by how many."""
    return {name: after[name] - before[name] for name in after if after[name] > before[name]}


def grown_each_time(live: Callable[[], object], rounds: int, *, at_least: int = 1) -> dict[str, int]:
    """Types of which there are ``at_least`` that many more after each of several equal parts of a life.

    The values are by how many at least. Resources left behind by a life grow with each life, and with each event that
    leaves them. The rest of the process (caches that grow in steps, tuples that the collector takes on and off its
    books) gains an object now and then.
    """
    growth: list[dict[str, int]] = []
    for _ in range(rounds):
        before = python_objects()
        live()
        growth.append(grown(before, python_objects()))
    least = {name: min(each.get(name, 0) for each in growth) for name in growth[0]}
    return {name: count for name, count in least.items() if count >= at_least}


def open_files() -> int:
    """How many file descriptors the process has open."""
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform.startswith("linux") else 0


def mappings(part: str) -> int:
    """How many mappings of files with this in their path the process has."""
    if not sys.platform.startswith("linux"):
        return 0
    return sum(part in line for line in Path("/proc/self/maps").read_text().splitlines())


def allocated_counters(client: Client) -> Counter[int]:
    """How many counters of each type the driver has."""
    return Counter(type_id for _counter_id, type_id, _label, _value in seam.counters(client).read())


# Of a service's process, told by itself


def append_holdings(member_dir: Path, number: int, cluster: Cluster) -> None:
    """Append a line of JSON to the process's own file: what it holds now, at a place of the log; ``number`` finds it.

    The caches that the texts of errors fill are emptied first.
    """
    linecache.clearcache()
    error_texts._sources.clear()
    re.purge()
    holdings = {
        "number": number,
        "role": cluster.role.name,
        "log_position": cluster.log_position,
        "sessions": len(list(cluster.client_sessions)),
        "open files": open_files(),
        "mapped files": mappings("/"),
        "objects": python_objects(),
    }
    path = holdings_path(member_dir, os.getpid())
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(holdings) + "\n")


def holdings_path(member_dir: Path, pid: int) -> Path:
    """Where a process of a member writes what it holds."""
    return member_dir / "holdings" / f"{pid}.jsonl"


def read_holdings(member_dir: Path, pid: int, number: int) -> dict[str, Any] | None:
    """The last line of a process, if it has that number."""
    try:
        lines = holdings_path(member_dir, pid).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return None
    if not lines or not lines[-1].endswith("\n"):
        return None
    found: dict[str, Any] = json.loads(lines[-1])
    return found if found["number"] == number else None
