"""Random kills over a random history: of Spark's driver, of executors, and of Python workers.

Stream, ingest, batch, replay and audit run in a program of their own, which is started again until it comes to its end.
Their results then equal those of a plain reader. With Spark's ``local-cluster`` executors are processes; in ``local``
mode the driver is the executor.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from container.testing.processes.process import Process
from tests.histories.checks import Disagreement, agree, answers, plain_rows
from tests.histories.world import WrittenCluster, write_cluster

PHASES = ("stream", "ingest", "batch", "replay", "audit")
RESULT, STARTED, TABLE = "result.json", "started", "table"
ROOT = Path(__file__).parents[2]
PYTHON_PATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
LOCAL, EXECUTORS = "local[2,4]", "local-cluster[2,1,512]"
DRIVER, EXECUTOR, WORKER = "driver", "executor", "worker"
_LIMIT_S = 3600.0
_POLL_S = 0.05
_SPARE_STARTS = 3
_MARKS = {EXECUTOR: b"CoarseGrainedExecutorBackend", WORKER: b"pyspark.daemon"}


def describe(member_id: int, position: int, timestamp: int | None, session_id: int | None, payload: Any) -> list[Any]:
    """The columns compared in a row."""
    return [member_id, position, timestamp or 0, session_id or 0, bytes(payload or b"").hex()]


@dataclass
class Kills:
    """The number of kills of each kind."""

    counts: Counter[str] = field(default_factory=Counter)
    starts: int = 0


def run(seed: int, directory: Path, master: str | None = None) -> Kills:
    """Write the history of a seed into a new directory, read it under kills, and check what was read."""
    directory.mkdir()
    cluster = write_cluster(seed, directory)
    rng = random.Random(seed)
    chosen = master or rng.choice([LOCAL, LOCAL, EXECUTORS])
    victims = [WORKER, DRIVER] if chosen == LOCAL else [EXECUTOR, WORKER, DRIVER]
    # Of a kind each at least, the driver last and while stream or ingest runs: their checkpoints are what is tested.
    plans = [(victim, rng.choice(PHASES[: 2 if victim == DRIVER else None]), rng.uniform(0, 4)) for victim in victims]
    kills = Kills()
    found = _results(cluster, directory, chosen, sorted(plans, key=lambda plan: PHASES.index(plan[1])), kills, rng)
    _check(cluster, found)
    return kills


def _results(
    cluster: WrittenCluster,
    directory: Path,
    master: str,
    plans: list[tuple[str, str, float]],
    kills: Kills,
    rng: random.Random,
) -> dict[str, Any]:
    """Run the program to its end, and kill as planned; no plan is carried out twice."""
    out = directory / "out"
    out.mkdir()
    paths = [str(member.base_dir) for member in cluster.members]
    command = [sys.executable, "-m", "tests.histories.kill_program", master, str(out), *paths]
    environment = {"PYTHONPATH": PYTHON_PATH, "SPARK_HOME": str(_spark_home(directory / "spark"))}
    limit = time.monotonic() + _LIMIT_S
    allowed = len(plans) + _SPARE_STARTS
    while not (out / RESULT).exists():
        if kills.starts == allowed:
            raise Disagreement(f"the program did not come to its end in {allowed} starts; {dict(kills.counts)}")
        kills.starts += 1
        with Process("program", command, directory=out, environment=environment) as process:
            process.start()
            was_killed = False
            while not process.has_ended:
                if time.monotonic() > limit:
                    raise Disagreement(f"the program takes longer than {_LIMIT_S:.0f} s: {process.tail()}")
                if plans and (out / f"{STARTED}-{plans[0][1]}").exists():
                    victim, _, delay_s = plans[0]
                    threading.Event().wait(delay_s)
                    if _kill(process, victim, rng):
                        kills.counts[victim] += 1
                        was_killed = True
                        plans.pop(0)
                    elif (out / f"{STARTED}-audit").exists():
                        plans.pop(0)  # It is too late for that.
                threading.Event().wait(_POLL_S)
            if process.return_code != 0 and not was_killed and "failed to connect back" not in process.tail():
                raise Disagreement(f"the program failed, and nothing was killed: {process.tail()}")
    found: dict[str, Any] = json.loads((out / RESULT).read_text())
    return found


def _spark_home(path: Path) -> Path:
    """Spark's programs in a directory of their own, as its executors write below its home."""
    path.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            (path / entry.name).symlink_to(entry)
    return path


def _kill(process: Process, victim: str, rng: random.Random) -> bool:
    """Kill one of a kind (SIGKILL); whether there was one."""
    if victim == DRIVER:
        process.kill()
        return True
    found = [pid for pid in _descendants(process.pid) if _MARKS[victim] in _command(pid)]
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(rng.choice(found), signal.SIGKILL)
        return True
    return False


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have (Linux)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, pending = list[int](), [pid]
    while pending:
        following = children.get(pending.pop(), [])
        found += following
        pending += following
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _check(cluster: WrittenCluster, found: dict[str, Any]) -> None:
    expected = sorted(
        describe(
            member.member_id, row["log_position"], row["timestamp"], row.get("cluster_session_id"), row.get("payload")
        )
        for member in cluster.members
        for row in plain_rows(member, member.committed)
    )
    for phase in ("stream", "ingest", "batch"):
        agree(f"{phase} under kills", found.get(phase, []), expected)
    agree("rows of an ingest under kills", [found["row_count"]], [len(expected)])
    member = max(cluster.members, key=lambda one: max(one.start, one.committed))
    if member.start == 0:
        sent = sorted(
            [position, session_id, payload.hex()]
            for position, session_id, payload in answers(plain_rows(member, member.committed))
        )
        agree("replay under kills", found["replay"], sent)
    agree("errors of a replay under kills", found["replay_errors"], [])
    if found["audit"] == "fail":
        raise Disagreement("the audit fails a history without damage, under kills")
