"""Runs tests against mutants, in a process that has loaded all of them: each run is a fork of it, which takes no time.

Reads one request a line from standard input, JSON, and answers each with a line. The mutant's number is in memory that
the compiled modules share with this process, and so is what a run has reached.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY_LIMIT = 16 << 30
"""Bytes of address space that a run may have: a mutant's loop may not eat the machine."""
WALL_CLOCK_FACTOR = 20
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no"]


class Switch:
    """The shared memory: the number of the active mutant, then a byte for each that was reached."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def activate(self, number: int) -> None:
        """Makes this the mutant that is active; 0 for none."""
        self._memory[:4] = struct.pack("=i", number)

    def reached(self) -> list[int]:
        """The mutants that were reached, which are forgotten then."""
        flags = self._memory[4:]
        self._memory[4:] = bytes(len(flags))
        return [number for number, is_reached in enumerate(flags) if is_reached]


class Notes:
    """A pytest plugin: which test failed first, and for each test how long it took and what it reached."""

    def __init__(self, switch: Switch | None) -> None:
        self.failed = ""
        self.tests: dict[str, tuple[float, list[int]]] = {}
        self._switch = switch

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Notes what a test reached."""
        if self._switch is None:
            return (yield)
        self._switch.reached()
        begin = time.perf_counter()
        result = yield
        self.tests[item.nodeid] = (time.perf_counter() - begin, self._switch.reached())
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported fails, too."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def run(switch: Switch, request: dict[str, Any], answers: int) -> None:
    """In the child: runs the tests and writes what came of them."""
    limit_s = int(request["limit_s"])
    # Of the processor's time: another's load must not look like a hang.
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2) if request["is_quiet"] else (0,):
        os.dup2(null, fd)
    notes = Notes(switch if request["notes_reached"] else None)
    code = pytest.main([*OPTIONS, *request["tests"]], plugins=[notes])
    answer = {"code": int(code), "failed": notes.failed, "tests": notes.tests}
    with os.fdopen(answers, "w") as file:
        json.dump(answer, file)
    os._exit(0)


def answer_of(switch: Switch, request: dict[str, Any]) -> dict[str, Any]:
    """The result of a request: the child's output, or how it ended."""
    switch.activate(request["number"])
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(reading)
        with contextlib.suppress(BaseException):
            run(switch, request, writing)
        os._exit(99)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(pid, signal.SIGKILL))
    signal.alarm(int(WALL_CLOCK_FACTOR * request["limit_s"]))
    with os.fdopen(reading) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    signal.alarm(0)
    switch.activate(0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if text:
        found: dict[str, Any] = json.loads(text)
        return found
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return {"ended": "hang" if name in ("SIGXCPU", "SIGKILL") else f"crash: {name}"}
    return {"ended": f"exit code {os.WEXITSTATUS(status)}"}


def main() -> None:
    """Loads the test files that are named as arguments after the file of the switch, then serves requests."""
    switch = Switch(Path(sys.argv[1]))
    with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null):
        code = pytest.main([*OPTIONS, "--collect-only", *sys.argv[2:]])
    if code != 0:
        raise SystemExit(f"the tests cannot be collected: {code!r}")
    # The end of a run is limited by tests/conftest.py, and this process goes on.
    faulthandler.cancel_dump_traceback_later()
    gc.freeze()
    # Arrow's allocator has a thread, and takes care of it in a fork.
    warnings.simplefilter("ignore", DeprecationWarning)
    for line in sys.stdin:
        print(json.dumps(answer_of(switch, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
