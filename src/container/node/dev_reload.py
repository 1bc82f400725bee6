"""``aeron-cluster dev --reload``: a cluster of one that loads its services again when their files change, over its log.

The node is a process of its own, and runs a copy of the files: what is saved later is not run before it was compared.
When a file changes, two more processes run the old code and the new code over the log, and this one says where they
differ; then the node starts again with the new code. Code that cannot be imported, that fails on the log or from the
latest snapshot, or that does not come to the end in time, is not taken: the old node keeps running. All these processes
end with this one.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.common.error_texts import user_stack_text
from container.common.main_program import Ending
from container.common.object_path import load_object, place_of, search_current_directory
from container.common.values import shown, shown_path
from container.errors import ConfigurationError, ContainerError, MarkFileError
from container.files.directory_lock import DirectoryLock
from container.testing.processes.process import Process

if TYPE_CHECKING:
    from types import TracebackType

    from container.replay.execution import ReplaySegment, TakenSnapshot

_LOOK_S = 0.2
_POLL_S = 0.05
_STOP_LIMIT_S = 30.0
_SAID_AFTER_S = 2.0
_OLD_LIMIT_S = 60.0
_NEW_LIMIT_S, _NEW_LIMIT_FACTOR = 30.0, 10.0
"""The new code has that many seconds for the log, or that many times as long as the old code, if this is longer."""
_SHOWN_DIFFERENCES = 5
_COPIES_PREFIX = "aeron-cluster-dev-code-"
_OLD, _NEW = "the old code", "the new code"
_IS_NEW = "new"
_STACK = "Traceback "


class _EndAskedError(Exception):
    """A signal has come that ends the command."""


class _TooLongError(ContainerError):
    """Code has not come to the end of the log in time."""


type Files = dict[Path, tuple[int, int]]
"""Modification time (ns) and length (bytes) by file."""


class Sources:
    """The files that services are made of: a module with those beside it that it imports, or a whole package."""

    def __init__(self, services: Sequence[str]) -> None:
        """Find them.

        Raises:
            ConfigurationError: a service has no file.
        """
        self._packages: list[Path] = []
        self._modules: list[Path] = []
        self._imports: dict[Path, tuple[tuple[int, int], set[str]]] = {}
        """The imports of each file, with the time and length that it had then."""
        for service in services:
            name = service.partition(":")[0].partition(".")[0]
            spec = importlib.util.find_spec(name) if name else None
            if spec is None or not (spec.origin or spec.submodule_search_locations):
                raise ConfigurationError(f"--reload: {shown(service)}: no file is known of module {shown(name)}")
            if spec.submodule_search_locations:
                self._packages += [Path(place).absolute() for place in spec.submodule_search_locations]
            else:  # links are not resolved: a copy has the name by which it is imported
                self._modules.append(Path(str(spec.origin)).absolute())

    @property
    def names(self) -> str:
        """The files and packages that the services are in, for a line that names them."""
        return ", ".join(dict.fromkeys(each.name for each in (*self._modules, *self._packages)))

    def files(self) -> Files:
        """The present files; one that is just being replaced may be missing for a moment."""
        found: Files = {}
        for path in self._paths():
            with contextlib.suppress(OSError):
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_size
        return found

    def copy_to(self, directory: Path) -> None:
        """Copy them, so that a process that searches ``directory`` first imports the copies. Raise OSError when one is
        missing."""
        for package in self._packages:
            shutil.copytree(package, directory / package.name, ignore=_not_copied, dirs_exist_ok=True)
        for path in self._paths():
            if not any(path.is_relative_to(package) for package in self._packages):
                shutil.copy2(path, directory / path.name)

    def _paths(self) -> Iterator[Path]:
        for package in self._packages:
            for path in package.rglob("*.py"):
                if not any(part.startswith(".") for part in path.relative_to(package).parts):
                    yield path
        for module in self._modules:
            yield from self._with_imports(module) if module.parent.resolve() == Path.cwd().resolve() else [module]

    def _with_imports(self, module: Path) -> list[Path]:
        found = [module]
        for path in found:  # which grows meanwhile
            beside = (module.parent / f"{name}.py" for name in sorted(self._imported(path)))
            found += [each for each in beside if each not in found and each.is_file()]
        return found

    def _imported(self, path: Path) -> set[str]:
        """The modules that a file names in its imports; what it named before, while it is being written."""
        known, names = self._imports.get(path, ((0, 0), set[str]()))
        try:
            status = path.stat()
            now = status.st_mtime_ns, status.st_size
            if now != known:
                names = _imports(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return names
        self._imports[path] = now, names
        return names


class Reloader:
    """The node, a copy of the code that it runs, and whether that is still what the files say. A context manager."""

    def __init__(self, options: Namespace, directory: Path, end: Ending) -> None:
        self._options = options
        self._directory = directory
        self._end = end
        self._signal_count = 0
        self._sources = Sources(options.services)
        self._copies = Path()
        self._lock: DirectoryLock | None = None
        self._old: Path | None = None
        self._seen: Files = {}
        self._node: Process | None = None

    def run(self) -> None:
        """Look for changes until a signal comes, or a tool ends the cluster."""
        with contextlib.suppress(_EndAskedError):
            while self._look() != 0:
                self._pause(_LOOK_S)

    def _pause(self, seconds: float) -> None:
        if self._end.wait_for(seconds) is not None:
            self._signal_count += 1
            raise _EndAskedError

    def _look(self) -> int | None:
        """Reload if a file has changed; the exit status of a node that a tool has ended, else None."""
        files = self._sources.files()
        if files != self._seen:
            self._pause(_LOOK_S)
            if files == self._sources.files():  # else an editor is still writing
                self._seen = files
                self._reload()
        elif self._node is not None and self._node.has_ended:
            if self._node.return_code == 0:
                return 0
            _say(f"the node ended with code {self._node.return_code}: {self._waiting}")
            self._node = None
        return None

    @property
    def _waiting(self) -> str:
        return f"no node runs: waiting for the next change of {self._sources.names}"

    def _reload(self) -> None:
        new = Path(tempfile.mkdtemp(dir=self._copies))
        try:
            self._sources.copy_to(new)
            self._compare(new)
        except (ContainerError, OSError) as error:
            why = _why_not_copied(error) if isinstance(error, OSError) else str(error)
            is_running = self._node is not None and not self._node.has_ended
            _say(f"the new code is not taken{', and the old code keeps running' if is_running else ''}: {why}")
            if self._node is None:
                _say(self._waiting)
            shutil.rmtree(new)
            return
        self._stop()
        if self._signal_count:
            raise _EndAskedError
        self._start(new)

    def _compare(self, new: Path) -> None:
        end: int | None = None
        for service_id, service in enumerate(self._options.services):
            if (place := importlib.util.find_spec("pyarrow")) is None or self._old is None:
                self._check(new, [service], f"{service}: {_NEW} to be imported", _NEW_LIMIT_S)
                if place is None:
                    _say('what changes is not said: that needs pip install "aeron-cluster-container[recordings]"')
                continue
            if end is None:  # the same for both: the node may still run, and its log grows
                from container.replay.execution import end_of_log  # needs pyarrow

                end = end_of_log(self._directory, committed="recorded")
            rows = [self._copies / f"{service_id}.{name}.arrow" for name in ("old", "new")]
            arguments = [service, str(service_id), str(self._directory.resolve()), str(end)]
            begun = time.monotonic()
            is_known = self._run_old([*arguments, str(rows[0])])
            limit_s = max(_NEW_LIMIT_S, _NEW_LIMIT_FACTOR * (time.monotonic() - begun))
            what = f"{service}: {_NEW} to run over the log up to position {end}"
            self._check(new, [*arguments, str(rows[1]), _IS_NEW], what, limit_s)
            if is_known:
                _say_differences(service, *rows)

    def _run_old(self, arguments: list[str]) -> bool:
        """Whether it came to an end, by an error or not: its rows can then be compared."""
        assert self._old is not None
        what = f"{arguments[0]}: {_OLD} to run over the log up to position {arguments[3]}"
        try:
            self._run(self._old, arguments, what, _OLD_LIMIT_S)
        except _TooLongError as error:
            _say(f"what changes is not said: {error}")
            return False
        return True

    def _check(self, code: Path, arguments: Sequence[str], what: str, limit_s: float) -> None:
        if failure := self._run(code, arguments, what, limit_s):
            *stack, reason = [line.replace(f"{code}{os.sep}", "") for line in failure]
            for line in stack[next((at for at, line in enumerate(stack) if line.startswith(_STACK)), len(stack)) :]:
                _say(line)
            raise ContainerError(reason)

    def _run(self, code: Path, arguments: Sequence[str], what: str, limit_s: float) -> list[str]:
        """Run this module with arguments, as a process that imports the code; its lines of error, none if it worked.

        Raises:
            _TooLongError: it did not end in time, and was killed.
            _EndAskedError: a signal came, and it was killed.
        """
        command = [sys.executable, "-P", "-m", "container.node.dev_reload", *arguments]
        process = Process("comparison", command, directory=self._copies, environment=_environment(code))
        begun, is_said = time.monotonic(), False
        with process.start():
            while not process.has_ended:
                waited = time.monotonic() - begun
                if waited > limit_s:
                    raise _TooLongError(f"waited {limit_s:.0f} s for {what}: does it wait for something, or loop?")
                if waited > _SAID_AFTER_S and not is_said:
                    _say(f"waiting for {what}, for {limit_s:.0f} s at most")
                    is_said = True
                self._pause(_POLL_S)
            lines = [line for line in process.errors().splitlines() if line.strip()]
            return [] if process.return_code == 0 else lines or [f"code {process.return_code}"]

    def _start(self, code: Path | None = None) -> None:
        if code is None:
            code = Path(tempfile.mkdtemp(dir=self._copies))
            self._seen = self._sources.files()  # before the copy: what is saved meanwhile is a change
            try:
                self._sources.copy_to(code)
            except OSError as error:
                raise ConfigurationError(f"--reload: {_why_not_copied(error)}") from None
        if self._old is not None:
            shutil.rmtree(self._old)
        self._old = code
        command = [sys.executable, "-P", "-m", "container", "dev", *self._arguments()]
        self._node = Process(
            "node", command, directory=self._copies, environment=_environment(code), shares_output=True
        ).start()

    def _arguments(self) -> list[str]:
        given = self._options
        options = {
            "--dir": self._directory,
            "--host": given.host,
            "--port": given.port,
            "--aeron-dir": given.aeron_dir,
            "--term-length": given.term_length,
            "--metrics-port": given.metrics_port,
            "--log-level": given.log_level,
            "--log-format": given.log_format,
        }
        pairs = [[name, str(value)] for name, value in options.items() if value is not None]
        return [*given.services, *(text for pair in pairs for text in pair)]

    def _stop(self) -> None:
        """End the node; after a limit, or the second signal, it is killed."""
        if self._node is None:
            return
        deadline = time.monotonic() + _STOP_LIMIT_S
        with self._node as node:
            node.send_signal(signal.SIGTERM)
            while not node.has_ended and self._signal_count < 2:
                if time.monotonic() > deadline:
                    _say(f"the node has not ended after {_STOP_LIMIT_S:g} s: it is killed")
                    break
                with contextlib.suppress(_EndAskedError):
                    self._pause(_POLL_S)
        self._node = None

    def __enter__(self) -> Reloader:
        _remove_copies_of_the_dead()
        self._copies, self._lock = _new_copies()
        try:
            self._start()
        except BaseException:
            self._remove_copies()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            self._remove_copies()

    def _remove_copies(self) -> None:
        shutil.rmtree(self._copies, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def run_reloading(options: Namespace) -> None:
    """Run the node, and reload it, until a signal comes or a tool ends the cluster.

    Raises:
        ConfigurationError: several members, or a service that cannot be loaded.
    """
    if options.members > 1:
        raise ConfigurationError(f"--reload: works with one member, and --members is {options.members}")
    search_current_directory()
    for service in options.services:
        load_object(service, "service")  # a mistake is reported once, and before anything starts
    with contextlib.ExitStack() as stack:
        directory = options.directory
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="aeron-cluster-dev-"))
        starting = Namespace(is_starting=False)
        with Ending(starting) as end, Reloader(options, Path(directory), end) as reloader:
            reloader.run()


def _new_copies() -> tuple[Path, DirectoryLock]:
    """A new directory for copies, and its lock."""
    while True:
        copies = Path(tempfile.mkdtemp(prefix=_COPIES_PREFIX))
        try:
            lock = DirectoryLock(copies)
        except MarkFileError:  # another start looks right now whether its owner is dead
            copies.rmdir()
            continue
        lock.sign()
        return copies, lock


def _remove_copies_of_the_dead() -> None:
    """Remove the copies that commands of this user have left when they were killed; none that may be in use."""
    for copies in Path(tempfile.gettempdir()).glob(f"{_COPIES_PREFIX}*"):
        with contextlib.suppress(OSError, MarkFileError):
            status = copies.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                lock = DirectoryLock(copies)
                if lock.is_of_the_dead():
                    shutil.rmtree(copies, ignore_errors=True)
                lock.disown()


def _not_copied(directory: str, names: list[str]) -> list[str]:
    """Hidden files, such as an editor's locks, caches, and what is neither file nor directory, as a dangling link."""
    return [
        name
        for name in names
        if name.startswith(".")
        or name == "__pycache__"
        or not ((path := Path(directory, name)).is_file() or path.is_dir())
    ]


def _why_not_copied(error: OSError) -> str:
    if isinstance(error, shutil.Error):
        path, _copy, why = error.args[0][0]
        return f"{shown_path(str(path))[1:-1]} cannot be copied: {why}"
    name = shown_path(str(error.filename))[1:-1]
    return f"{name} is missing" if isinstance(error, FileNotFoundError) else f"{name}: {error.strerror}"


def _imports(source: bytes) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def _environment(code: Path) -> dict[str, str]:
    """That of a process which finds the code first, whatever is saved meanwhile, then all that this one finds."""
    places = [str(code), str(Path.cwd()), *(place for place in sys.path if place)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)), "PYTHONDONTWRITEBYTECODE": "1"}


def _say_differences(service: str, old_rows: Path, new_rows: Path) -> None:
    from container.replay.diff import diff_batches
    from container.replay.execution import STATE_HASH_KIND
    from container.replay.replay_command import described

    old, new = list(_batches(old_rows)), list(_batches(new_rows))
    differences = [row for batch in diff_batches(old, new) for row in batch.to_pylist()]
    actions = [row for row in differences if row["kind"] != STATE_HASH_KIND]
    end = max((batch.column("log_position")[-1].as_py() for batch in new if batch.num_rows), default=0)
    if not differences:
        _say(f"{service}: {_NEW} does what {_OLD} did, up to log position {end}")
        return
    for row in actions[:_SHOWN_DIFFERENCES]:
        _say(f"{service}: log position {row['log_position']}: {described(row, _OLD, _NEW)}")
    if len(actions) > _SHOWN_DIFFERENCES:
        _say(f"{service}: {len(actions) - _SHOWN_DIFFERENCES} more differences, up to log position {end}")
    if state := next((row for row in differences if row["kind"] == STATE_HASH_KIND), None):
        position = state["log_position"]
        where = _state_difference(old_rows, new_rows, position)
        _say(f"{service}: the state at log position {position} differs{where and f': {where}'}")


def _state_difference(old_rows: Path, new_rows: Path, log_position: int) -> str:
    """Where two states at a log position differ; nothing when one of the two took no snapshot there."""
    from container.service.state_difference import state_difference

    old, new = (_state(_states_path(rows), log_position) for rows in (old_rows, new_rows))
    if old is None or new is None:
        return ""
    return state_difference(old, new, run=f"of {_OLD}", now=f"of {_NEW}").removesuffix(".")


def _states_path(rows: Path) -> Path:
    """The file beside those rows of the states that they only have the hashes of."""
    return rows.with_suffix(".states")


def _state(states: Path, log_position: int) -> list[bytes] | None:
    for batch in _batches(states):
        if batch.column("log_position")[0].as_py() == log_position:  # each batch has one
            messages: list[bytes] = batch.column("messages")[0].as_py()
            return messages
    return None


def _batches(rows: Path) -> Iterator[Any]:
    import pyarrow

    if rows.exists():
        with pyarrow.OSFile(str(rows)) as file, pyarrow.ipc.open_stream(file) as reader:
            yield from reader


def _say(text: str) -> None:
    print(f"reload: {text}", file=sys.stderr, flush=True)


def _write_rows(
    service: str, service_id: str = "0", directory: str = "", end: str = "0", rows: str = "", code: str = ""
) -> None:
    """Load a service; write what it does over a log up to a log position, as rows of a replay.

    New code also starts from the latest snapshot, as the node will; it must not fail.
    """
    load_object(service, "service")
    if not directory:
        return
    import pyarrow

    from container.replay.execution import plan_of_all, replay_schema

    whole, last = plan_of_all(directory, service_id=int(service_id), end_position=int(end), committed="recorded")
    if code == _IS_NEW and last is not None:
        failure = f"does not work from the latest snapshot, of position {last.begin_position},"
        for _batch in _batches_of(last, service, failure):
            pass
    form = pyarrow.schema([("log_position", pyarrow.int64()), ("messages", pyarrow.large_list(pyarrow.large_binary()))])
    with (
        pyarrow.OSFile(rows, "wb") as file,
        pyarrow.ipc.new_stream(file, replay_schema()) as writer,
        pyarrow.OSFile(str(_states_path(Path(rows))), "wb") as states_file,
        pyarrow.ipc.new_stream(states_file, form) as states_writer,
    ):

        def keep(taken: TakenSnapshot) -> None:
            columns = [[taken.log_position], [list(taken.state)]]
            states_writer.write(pyarrow.record_batch(columns, schema=form))

        for batch in _batches_of(whole, service, "fails on the log" if code == _IS_NEW else "", keep):
            writer.write(batch)


def _batches_of(
    segment: ReplaySegment, service: str, failure: str, on_snapshot: Callable[[TakenSnapshot], object] | None = None
) -> Iterator[Any]:
    """The rows of a segment. Raise ContainerError, which begins with ``failure`` if that is given, when it fails."""
    from container.replay.execution import ERROR_KIND, replay_segment

    errors: list[BaseException] = []
    for batch in replay_segment(segment, service, on_snapshot=on_snapshot, on_error=errors.append):
        for row in batch.to_pylist() if failure and errors else ():
            if row["kind"] == ERROR_KIND:
                place = place_of(errors[0].__cause__ or errors[0])
                raise ContainerError(
                    f"{service} {failure} at log position {row['log_position']}: {row['error']}{place}"
                ) from (errors[0].__cause__ or errors[0])
        yield batch


if __name__ == "__main__":
    try:
        _write_rows(*sys.argv[1:])
    except ContainerError as failure:
        stack = "" if failure.__cause__ is None else user_stack_text(failure.__cause__)
        raise SystemExit("\n".join([*stack.splitlines(), " ".join(str(failure).splitlines())])) from None
