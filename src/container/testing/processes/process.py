"""Programs started by a test: captured output, limits on every wait, and none that outlives its parent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from container.common import forks
from container.common.closed_files import closed_to_others
from container.errors import ContainerError

_POLL_PAUSE_S = 0.005
_KILL_LIMIT_S = 10.0
_TAIL_LINES = 40

NAMESPACE_DIRECTORY = Path("/run/netns")
"""Where network namespaces have their names (iproute2)."""

# Runs in the new process before it becomes the program. Not a preexec_fn: no Python code is safe between fork
# and exec in a parent that has threads. 1 is PR_SET_PDEATHSIG; the parent may have died before that was set.
_LAUNCHER = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit('the parent is gone')\n"
    "if sys.argv[2]: os.setns(os.open(sys.argv[2], os.O_RDONLY | os.O_CLOEXEC), os.CLONE_NEWNET)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process is gone. ``Popen.poll`` would not do for a wait: Ctrl-C can leave its lock taken forever."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


class ProcessEndedError(ContainerError):
    """A process ended while something was awaited of it; the text holds the end of its output."""


class ToolResult(NamedTuple):
    """The result and output of a run of one of Java's tools."""

    return_code: int
    """The exit code."""
    output: str
    """Standard output and standard error."""


class Process:
    """One program with its output in ``<name>.out`` and ``<name>.err`` of a directory.

    It runs in a process group of its own, so that Ctrl-C at a terminal does not reach it: the parent decides
    how it ends. On Linux the kernel kills it when the thread that started it ends. Its umask has 027 in it: other users
    can neither read nor write what it creates, such as the directory of Java's media driver.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        network_namespace: str | None = None,
        shares_output: bool = False,
    ) -> None:
        """Describe the program; :meth:`start` starts it.

        Args:
            name: names the output files, and the process in errors.
            command: the program and its arguments.
            directory: where the output files go; it exists.
            environment: variables on top of this process's own.
            network_namespace: name of the network namespace to run in (Linux, as root); this process's by default.
            shares_output: whether it writes where this process does, and into no files.
        """
        self.name = name
        self._shares_output = shares_output
        nowhere = Path(os.devnull) if shares_output else None
        self.network_namespace = network_namespace
        self.command = list(command)
        self.environment = dict(environment or {})
        self.out_path = nowhere or directory / f"{name}.out"
        self.err_path = nowhere or directory / f"{name}.err"
        self._popen: subprocess.Popen[bytes] | None = None
        self._popen_of_parent: subprocess.Popen[bytes] | None = None
        forks.own(self)
        self._out_start = self._err_start = self._read_offset = 0

    def start(self) -> Self:
        """Start the program; its output is appended to that of an earlier start.

        Raises:
            ContainerError: it still runs from an earlier start.
            FileNotFoundError: there is no such program.
        """
        if self.is_running:
            raise ContainerError(f"{self.name} (pid {self.pid}) still runs; end it before starting it again")
        # The launcher hides from Popen that there is no such program.
        if shutil.which(self.command[0]) is None:
            raise FileNotFoundError(f"{self.name} cannot be started: there is no program {self.command[0]}")
        self.close()
        with closed_to_others(), self.out_path.open("ab") as out, self.err_path.open("ab") as err:
            self._out_start = self._read_offset = out.tell()
            self._err_start = err.tell()
            self._popen = subprocess.Popen(
                _launched(self.command, self.network_namespace),
                stdin=subprocess.PIPE,
                stdout=None if self._shares_output else out,
                stderr=None if self._shares_output else err,
                env={**os.environ, **self.environment},
                process_group=0,
            )
        return self

    @property
    def pid(self) -> int:
        """The process id of the latest start.

        Raises:
            ContainerError: it was never started.
        """
        return self._started().pid

    @property
    def is_launching(self) -> bool:
        """Whether what ties the process to its parent, which is a Python of its own (Linux), is not the program yet."""
        if not sys.platform.startswith("linux"):
            return False
        try:
            return os.fsencode(_LAUNCHER) in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False  # it has ended

    @property
    def is_running(self) -> bool:
        """Whether the program runs, also while it is paused."""
        return self._popen is not None and not _has_ended(self._popen)

    @property
    def has_ended(self) -> bool:
        """Whether the program was started and runs no more."""
        return self._popen is not None and _has_ended(self._popen)

    @property
    def return_code(self) -> int | None:
        """The return code of the program, or minus the signal that ended it; ``None`` while it runs."""
        if self._popen is None:
            return None
        code = self._popen.poll()
        # None as well while another thread asks.
        return self._popen.wait() if code is None and _has_ended(self._popen) else code

    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise ContainerError(f"{self.name} was never started; call start()")
        return self._popen

    def wait(self, limit_s: float) -> int:
        """Wait for the end and return the return code.

        Raises:
            TimeoutError: the program still runs after ``limit_s`` seconds.
        """
        try:
            return self._started().wait(limit_s)
        except subprocess.TimeoutExpired:
            message = f"{self.name} (pid {self.pid}) did not end in {limit_s:g} s\n{self.tail()}"
            raise TimeoutError(message) from None

    def send_signal(self, number: int) -> None:
        """Send a signal to the program; nothing happens when it has ended."""
        if self.is_running:
            self._started().send_signal(number)

    def stop(self, limit_s: float = 30.0) -> int:
        """Ask for an orderly end (SIGTERM), wait for it and return the return code.

        Raises:
            TimeoutError: the program still runs after ``limit_s`` seconds.
        """
        self.send_signal(signal.SIGTERM)
        return self.wait(limit_s)

    def kill(self) -> None:
        """End the program and what it started (SIGKILL to its group), and wait until it is gone."""
        process = self._popen
        if process is None or (_has_ended(process) and process.poll() is not None):
            return
        os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(_KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            if not _has_ended(process):
                raise

    def pause(self) -> None:
        """Stop the program from running (SIGSTOP) until :meth:`resume`."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused program run again (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def _disown(self, _process_id: int) -> None:
        """In a forked child: the program is the parent's to end."""
        self._popen_of_parent, self._popen = self._popen, None

    def close(self) -> None:
        """Kill the program if it runs; its output files stay. May be called again."""
        self.kill()
        if self._popen is not None:
            _close_quietly(self._popen.stdin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write_line(self, text: str) -> None:
        """Write a line to the program's standard input.

        Raises:
            ProcessEndedError: the program does not read it any more.
        """
        stdin = self._started().stdin
        try:
            if stdin is None:
                raise BrokenPipeError
            stdin.write(text.encode() + b"\n")
            stdin.flush()
        except (BrokenPipeError, ValueError):
            message = f"{self.name} reads no more input, so not {text!r} either\n{self.tail()}"
            raise ProcessEndedError(message) from None

    def close_input(self) -> None:
        """Let the program read the end of its standard input."""
        _close_quietly(self._started().stdin)

    def read_line(self, limit_s: float) -> str:
        """Return the next whole line of standard output of the latest start, without its line end.

        Raises:
            TimeoutError: none came within ``limit_s`` seconds.
            ProcessEndedError: the program ended without one.
        """
        line = self.wait_until(self._next_line, limit_s, f"{self.name} to print a line")
        return line.decode("utf-8", "replace").rstrip("\n")

    def _next_line(self) -> bytes | None:
        with self.out_path.open("rb") as file:
            file.seek(self._read_offset)
            line = file.readline()
        if not line.endswith(b"\n"):
            return None
        self._read_offset += len(line)
        return line

    def output(self) -> str:
        """Return the standard output of the latest start."""
        return _text(self.out_path, self._out_start)

    def errors(self) -> str:
        """Return the standard error of the latest start."""
        return _text(self.err_path, self._err_start)

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of both outputs, of every start, with a heading each: for an error's text."""
        parts = [f"--- {self.name}: {self._state()}"]
        for stream, path in (("stdout", self.out_path), ("stderr", self.err_path)):
            last = _text(path, 0).splitlines()[-lines:]
            if last:
                parts += [f"--- {self.name}, {stream}:", *last]
        return "\n".join(parts)

    def _state(self) -> str:
        if self._popen is None:
            return "never started"
        return f"pid {self.pid}, " + ("running" if self.is_running else f"ended with {self.return_code}")

    def wait_until[T](self, predicate: Callable[[], T | None], limit_s: float, what: str) -> T:
        """:func:`wait_until`, which also fails as soon as this program has ended."""
        return wait_until(predicate, limit_s, what, [self])


def wait_until[T](
    predicate: Callable[[], T | None],
    limit_s: float,
    what: str,
    processes: Iterable[Process] = (),
) -> T:
    """Call ``predicate`` repeatedly until it returns a true value, and return that value.

    Args:
        predicate: what to try; what it raises is raised.
        limit_s: seconds until giving up.
        what: completes the sentence "waited for …".
        processes: programs that must run meanwhile; the ends of their outputs are part of an error's text.

    Raises:
        TimeoutError: ``predicate`` returned nothing true in time.
        ProcessEndedError: one of ``processes`` ended, and ``predicate`` returned nothing true after that.
    """
    watched = list(processes)
    deadline = time.monotonic() + limit_s
    while True:
        # Asked before the predicate: what a program did just before its end still counts.
        ended = [process for process in watched if not process.is_running]
        result = predicate()
        if result:
            return result
        if ended:
            names = ", ".join(f"{process.name} ended with {process.return_code}" for process in ended)
            raise ProcessEndedError(f"waited for {what}, but {names}\n{_tails(watched)}")
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {limit_s:g} s for {what}\n{_tails(watched)}")
        time.sleep(_POLL_PAUSE_S)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; on Linux one that has ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return not sys.platform.startswith("linux")
    return state != "Z"


def _launched(command: list[str], network_namespace: str | None) -> list[str]:
    if not sys.platform.startswith("linux"):
        return command
    namespace = "" if network_namespace is None else str(NAMESPACE_DIRECTORY / network_namespace)
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), namespace, *command]


def _tails(processes: Iterable[Process]) -> str:
    return "\n".join(process.tail() for process in processes)


def _text(path: Path, start: int) -> str:
    try:
        return path.read_bytes()[start:].decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _close_quietly(stream: IO[bytes] | None) -> None:
    if stream is None:
        return
    try:
        stream.close()
    except BrokenPipeError:
        return
