"""Profile: where the service's processor time of an echo goes, by part, beside Java's container; Linux with perf.

Each load of echo runs twice on one node: as it is, for the processor time and the context switches of the agent (the
thread that ran most), and under perf, which gives the shares of the parts. ``kernel`` is what the operating system
takes, parks and yields of idling included; ``aeron`` is Aeron's C library; ``container`` is our compiled modules and a
service's own module in Cython; ``jvm`` is compiled Java code, too. All are seconds per million messages. It also
measures a park and a yield on this machine.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import container
from benchmarks._harness import CACHE, Report, RoundFailed, cpu_seconds, say
from benchmarks._peers import LIMIT_S, running
from benchmarks._verdicts import Result
from benchmarks.echo import ALL_PEERS, BARE, Load, LoadClient, grouped, loads

KERNEL, CONTAINER = "kernel", "container"
METRICS = {
    "per_second": "9,.0f",
    "cpu_s_per_million": "7.4f",
    KERNEL: "7.4f",
    "interpreter": "7.4f",
    "jvm": "7.4f",
    "aeron": "7.4f",
    CONTAINER: "7.4f",
    "libc": "7.4f",
    "samples": "5.0f",
    "voluntary_per_million": "9,.0f",
    "involuntary_per_million": "9,.0f",
    "cpu_us": "7.3f",
    "wall_us": "7.3f",
}
_PARTS = {
    "java": (KERNEL, "jvm", "libc"),
    "python": (KERNEL, "interpreter", "aeron", CONTAINER, "libc"),
    "cython": (KERNEL, "interpreter", "aeron", CONTAINER, "libc"),
    BARE: (KERNEL, "interpreter", "aeron", CONTAINER, "libc"),
}
_ANONYMOUS = ("[unknown]", "[anon]", "[heap]", "[stack]")
_LIBC = re.compile(r"^(libc|libm|libpthread|librt|ld-musl)\b")
_HERTZ = 5000
_SWITCHES = re.compile(r"^(non)?voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)


class PerfMissing(Exception):
    """There is no perf, or it may not look at processes; the message says what helps."""


def part_of(path: str, peer: str) -> str:
    """The part to which code belongs, by the file that perf names for it."""
    name = path.rpartition("/")[2]
    if path.startswith("[") and path not in _ANONYMOUS:
        return "libc" if path == "[vdso]" else KERNEL
    if _LIBC.match(name):
        return "libc"
    if peer == "java":
        return "jvm"
    if path.startswith((str(Path(container.__file__).parent), str(CACHE))):
        return CONTAINER
    # The loader is there for the interpreter, which asks it for thread-local storage (__tls_get_addr).
    return "aeron" if "aeron" in name else "interpreter"


def samples_of(script: str, peer: str) -> dict[str, int]:
    """The samples of each of the peer's parts, from the lines ``address (file)`` of ``perf script``."""
    counts: Counter[str] = Counter()
    for line in script.splitlines():
        if found := re.match(r"\s*[0-9a-f]+ \((.*)\)\s*$", line):
            counts[part_of(found[1].removesuffix(" (deleted)"), peer)] += 1
    if not counts:
        raise RoundFailed("perf saw nothing: the load was too short")
    return {part: counts[part] for part in _PARTS[peer]}


@contextmanager
def recorded(pid: int, path: Path) -> Iterator[None]:
    """Let perf sample a process into a file, from when the block is entered."""
    control, to_perf = os.pipe()
    from_perf, answers = os.pipe()
    command = ["perf", "record", "-e", "cpu-clock", "-F", str(_HERTZ), "-p", str(pid), "-o", str(path)]
    command += ["--delay=-1", f"--control=fd:{control},{answers}"]
    with tempfile.TemporaryFile() as said, os.fdopen(to_perf, "wb", 0) as asking, os.fdopen(from_perf, "rb") as told:
        perf = subprocess.Popen(command, pass_fds=(control, answers), stdout=said, stderr=said)
        os.close(control)
        os.close(answers)
        try:
            with suppress(BrokenPipeError):
                asking.write(b"enable\n")
            if not told.read(4).startswith(b"ack"):
                perf.wait(LIMIT_S)
                said.seek(0)
                why = said.read().decode(errors="replace").strip()
                raise PerfMissing(
                    f"perf may not look at processes (root, or sysctl kernel.perf_event_paranoid=0, helps):\n{why}"
                )
            yield
        finally:
            perf.send_signal(signal.SIGINT)
            perf.wait(LIMIT_S)


def script_of(path: Path) -> str:
    """The address and the file of each sample, as ``perf script`` prints them."""
    command = ["perf", "script", "-i", str(path), "-F", "ip,dso"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout


def switches(pid: int) -> dict[str, tuple[int, int, int]]:
    """For each thread: nanoseconds that it ran, and its voluntary and involuntary context switches."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            ran = int((task / "schedstat").read_text(encoding="ascii").split()[0])
            counts = _SWITCHES.findall((task / "status").read_text(encoding="ascii", errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        by_kind = {kind: int(count) for kind, count in counts}
        found[task.name] = (ran, by_kind[""], by_kind["non"])
    return found


class Meter(AbstractContextManager["Meter"]):
    """Measures a process, and its busiest thread, while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.seconds, self.voluntary, self.involuntary = 0.0, 0, 0

    def __enter__(self) -> Meter:
        self._before, self._seconds = switches(self._pid), cpu_seconds(self._pid)
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds, after = cpu_seconds(self._pid) - self._seconds, switches(self._pid)
        _, self.voluntary, self.involuntary = max(
            tuple(now - then for now, then in zip(after[thread], self._before.get(thread, (0, 0, 0)), strict=True))
            for thread in after
        )


def profile(pid: int, peer: str, client: LoadClient, load: Load) -> Result:
    """One load of one service: processor time and switches as it is, and what perf makes of the same again."""
    result = client.run(load, meter := Meter(pid))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "perf.data"
        client.run(load, recorded(pid, path))
        samples = samples_of(script_of(path), peer)
    total, count = meter.seconds / load.messages * 1e6, sum(samples.values())
    return {
        "per_second": result["per_second"],
        "cpu_s_per_million": total,
        **{part: of_part / count * total for part, of_part in samples.items()},
        "samples": count,
        "voluntary_per_million": meter.voluntary / load.messages * 1e6,
        "involuntary_per_million": meter.involuntary / load.messages * 1e6,
    }


def idling() -> dict[str, list[Result]]:
    """The cost of a park of a microsecond and of a yield, in processor time and in elapsed time."""

    class Timespec(ctypes.Structure):
        _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))

    libc = ctypes.CDLL(None)
    park = ctypes.byref(Timespec(0, 1_000))

    def cost(function: str, argument: object, count: int) -> Result:
        call = getattr(libc, function)
        begin, begin_wall = time.thread_time_ns(), time.perf_counter_ns()
        for _ in range(count):
            call(argument, None)
        spent, wall = time.thread_time_ns() - begin, time.perf_counter_ns() - begin_wall
        return {"cpu_us": spent / count / 1e3, "wall_us": wall / count / 1e3}

    # Cost of the loop and a call: a function of the C library that does next to nothing.
    loop = cost("abs", 1, 100_000)
    found = {"park": cost("nanosleep", park, 2_000), "yield": cost("sched_yield", None, 10_000)}
    return {name: [{metric: result[metric] - loop[metric] for metric in result}] for name, result in found.items()}


def measure(report: Report, peers: Mapping[str, Sequence[Load]], warm_up: int) -> None:
    """Add the line of this machine's idling, and one for each load with the peers that run it."""
    if shutil.which("perf") is None:
        raise PerfMissing("perf shows where processor time goes: install it (apt install linux-perf)")
    report.add("idling on this machine", idling())
    every = list(dict.fromkeys(load for chosen in peers.values() for load in chosen))
    for group in grouped(every):
        found: dict[Load, dict[str, list[Result]]] = {load: {} for load in group}
        for peer, chosen in peers.items():
            mine = [load for load in group if load in chosen]
            if not mine:
                continue
            say(f"profile of {peer}: {mine[0].medium}, {mine[0].idle}, {len(mine)} loads")
            try:
                with running(ALL_PEERS[peer], mine[0].idle) as (node, service):
                    client = LoadClient(node, mine[0].medium)
                    client.run(mine[0]._replace(window=256, length=32, sessions=1, messages=warm_up))
                    for load in mine:
                        found[load][peer] = [profile(service.pid, peer, client, load)]
            except RoundFailed as failure:
                say(f"{peer} failed: {failure}")
                report.failures.setdefault(peer, []).append(str(failure))
        for load, results in found.items():
            report.add(str(load), results)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="./run bench profile", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="at window 256 over UDP, as in echo")
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="messages before the first load of a node")
    parser.add_argument("--only", default="", help="loads whose name contains this, such as 'ipc'")
    parser.add_argument("--peers", default=",".join(ALL_PEERS), help="names, separated by commas")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    options = parse(arguments)
    chosen = [load for load in loads(options.messages) if options.only in str(load)]
    report = Report("profile", METRICS)
    try:
        measure(report, dict.fromkeys(options.peers.split(","), chosen), options.warm_up)
    except PerfMissing as missing:
        sys.exit(str(missing))
    return report.finish()


if __name__ == "__main__":
    main()
