"""The fuzzer's command: so many cases by a seed, in a process of their own, so that a crash and a hang are seen too."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any

from tests.fuzz.archive_file_cases import ARCHIVE_FILE_EPISODE_LENGTH, ArchiveFileEpisode
from tests.fuzz.archive_request_cases import ARCHIVE_REQUEST_EPISODE_LENGTH, ArchiveRequestEpisode
from tests.fuzz.cases import EPISODE_LENGTH, Episode
from tests.fuzz.ingress_cases import INGRESS_EPISODE_LENGTH, IngressEpisode
from tests.fuzz.mutations import MUTATIONS, flipped
from tests.fuzz.recording_cases import RECORDING_EPISODE_LENGTH, RecordingEpisode
from tests.fuzz.sabotage import SABOTAGES
from tests.fuzz.service_cases import SERVICE_IPC_EPISODE_LENGTH, ServiceIpcEpisode
from tests.fuzz.snapshot_cases import SnapshotEpisode
from tests.resources import memory_directory

AGENT, FLIPS, RECORDINGS = "agent", "flips", "recordings"
ARCHIVE_REQUESTS, ARCHIVE_FILES = "archive-requests", "archive-files"
INGRESS, SERVICE_IPC = "ingress", "service-ipc"
LENGTHS = {
    AGENT: EPISODE_LENGTH,
    FLIPS: EPISODE_LENGTH,
    RECORDINGS: RECORDING_EPISODE_LENGTH,
    ARCHIVE_REQUESTS: ARCHIVE_REQUEST_EPISODE_LENGTH,
    ARCHIVE_FILES: ARCHIVE_FILE_EPISODE_LENGTH,
    INGRESS: INGRESS_EPISODE_LENGTH,
    SERVICE_IPC: SERVICE_IPC_EPISODE_LENGTH,
}
"""The parts that can be fuzzed, and how many cases an episode of them has."""

_EPISODES = {
    RECORDINGS: RecordingEpisode,
    ARCHIVE_REQUESTS: ArchiveRequestEpisode,
    ARCHIVE_FILES: ArchiveFileEpisode,
    INGRESS: IngressEpisode,
    SERVICE_IPC: ServiceIpcEpisode,
}

SNAPSHOT_EPISODE_INTERVAL = 5
"""Each fifth episode is one of snapshots."""
LIMIT_S = 60.0
_END = ""


@dataclass
class Report:
    """The result of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    episode: int = 0
    """The episode in progress at the end."""


def run_episode(
    seed: int, number: int, counts: Counter[str], sabotage: str = "none", part: str = AGENT, cases: int | None = None
) -> str:
    """Runs one episode; "" when all went well, else what went wrong and where."""
    episode: Any
    if part in _EPISODES:
        episode = _EPISODES[part](seed, number, counts)
    else:
        kind = SnapshotEpisode if number % SNAPSHOT_EPISODE_INTERVAL == SNAPSHOT_EPISODE_INTERVAL - 1 else Episode
        mutations = {flipped.__name__: flipped} if part == FLIPS else MUTATIONS
        episode = kind(seed, number, counts, SABOTAGES[sabotage], mutations)
    try:
        episode.run(LENGTHS[part] if cases is None else cases)
    except AssertionError as disagreement:
        return f"{disagreement}\nin: {episode.case}"
    except BaseException:
        return f"{traceback.format_exc()}\nin: {episode.case}"
    return ""


def work(options: argparse.Namespace) -> None:
    """The worker: says which episode it begins, and at last what it counted and what failed."""
    logging.getLogger("container").setLevel(logging.CRITICAL + 1)  # what is reported is counted
    counts: Counter[str] = Counter()
    failure = ""
    episodes = range(_episode_count(options)) if options.episode is None else [options.episode]
    for number in episodes:
        print(number, flush=True)
        failure = run_episode(options.seed, number, counts, options.sabotage, options.part)
        if failure:
            break
    print(json.dumps({"counts": counts, "failure": failure}), flush=True)


def _episode_count(options: argparse.Namespace) -> int:
    return -(-int(options.cases) // LENGTHS[options.part])


def supervise(arguments: list[str], limit_s: float) -> Report:
    """Runs the worker until it has ended, or has not begun another episode for ``limit_s`` seconds."""
    report = Report()
    # What the worker leaves behind when it crashes goes with the directory.
    directory = tempfile.TemporaryDirectory(prefix="container-fuzz-", dir=memory_directory())
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz", *arguments, "--worker"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": directory.name},
    )
    lines: Queue[str] = Queue()
    reader = threading.Thread(target=_read, args=(worker, lines))
    reader.start()
    try:
        while True:
            line = lines.get(timeout=limit_s)
            if line == _END:
                report.failure = report.failure or _death(worker.wait())
                return report
            if line.startswith("{"):
                result = json.loads(line)
                report.counts.update(result["counts"])
                report.failure = result["failure"]
            else:
                report.episode = int(line)
    except Empty:
        report.failure = f"a hang: the episode has not ended after {limit_s:g} s"
        return report
    finally:
        worker.kill()
        worker.wait()
        reader.join()
        directory.cleanup()


def _read(worker: subprocess.Popen[str], lines: Queue[str]) -> None:
    assert worker.stdout is not None
    with worker.stdout:
        for line in worker.stdout:
            lines.put(line)
    lines.put(_END)


def _death(status: int) -> str:
    if status == 0:
        return ""
    return f"a crash: {signal.Signals(-status).name}" if status < 0 else f"the worker ended with status {status}"


def main() -> int:
    """Prints the seed, what was counted, and, when something failed, the line that replays it; the exit status."""
    parser = argparse.ArgumentParser(prog="./run fuzz", description=__doc__)
    parser.add_argument(
        "--cases",
        type=int,
        default=100_000,
        help="how many cases, in episodes: bad messages ("
        + ", ".join(f"{length} with --part {part}" for part, length in LENGTHS.items())
        + "), or damaged files (%(default)s)",
    )
    parser.add_argument("--part", choices=list(LENGTHS), default=AGENT, help="what is fuzzed (%(default)s)")
    parser.add_argument("--seed", type=int, help="what all cases are drawn from; the same seed gives the same cases")
    parser.add_argument("--episode", type=int, help="run this episode only, to replay a failure")
    parser.add_argument(
        "--sabotage", choices=list(SABOTAGES), default="none", help="break the agent's service on purpose"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds after which an episode hangs (%(default)s)"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cases < 1:
        parser.error(f"--cases {options.cases}: must be at least 1")
    if options.sabotage != "none" and options.part not in (AGENT, FLIPS):
        parser.error(f"--sabotage {options.sabotage} breaks an agent's service: --part {options.part} has none")
    if options.worker:
        work(options)
        return 0
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    arguments = ["--part", options.part, "--cases", str(options.cases), "--seed", str(seed)]
    arguments += ["--sabotage", options.sabotage]
    if options.episode is not None:
        arguments += ["--episode", str(options.episode)]
    begin = time.monotonic()
    report = supervise(arguments, options.limit)
    _print_counts(report.counts)
    episodes = 1 if options.episode is not None else _episode_count(options)
    print(f"seed {seed}: {episodes * LENGTHS[options.part]} cases in {time.monotonic() - begin:.1f} s")
    if not report.failure:
        print("no disagreement, no crash, no hang")
        return 0
    sabotage = "" if options.sabotage == "none" else f" --sabotage {options.sabotage}"
    print(f"FAILED in episode {report.episode}: {report.failure}")
    part = "" if options.part == AGENT else f"--part {options.part} "
    print(f"replay: ./run fuzz {part}--seed {seed} --episode {report.episode}{sabotage}")
    return 1


def _print_counts(counts: Counter[str]) -> None:
    for name in sorted(counts):
        print(f"{counts[name]:>8}  {name}")


if __name__ == "__main__":
    sys.exit(main())
