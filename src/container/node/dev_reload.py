"""``aeron-cluster dev --reload``: a cluster of one that loads its services again when their files change, over its log.

The node is a process of its own, and runs a copy of the files: what is saved later is not run before it was compared.
When a file changes, two more processes run the old code and the new code over the log, and this one says where they
differ; then the node starts again with the new code. Code that cannot be imported, or that fails on the log, is not
taken: the old node keeps running.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.common.main_program import Ending
from container.common.object_path import load_object, search_current_directory
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError

if TYPE_CHECKING:
    from types import TracebackType

_LOOK_S = 0.2
_STOP_LIMIT_S = 30.0
_SHOWN_DIFFERENCES = 5
_OLD, _NEW = "the old code", "the new code"

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
                self._packages += [Path(place).resolve() for place in spec.submodule_search_locations]
            else:
                self._modules.append(Path(str(spec.origin)).resolve())

    def files(self) -> Files:
        """The present files; one that is just being replaced may be missing for a moment."""
        found: Files = {}
        for path in self._paths():
            with contextlib.suppress(OSError):
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_size
        return found

    def copy_to(self, directory: Path) -> None:
        """Copy them, so that a process that runs in ``directory`` imports the copies."""
        for package in self._packages:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, directory / package.name, ignore=ignored, dirs_exist_ok=True)
        for path in self._paths():
            if not any(path.is_relative_to(package) for package in self._packages):
                shutil.copy2(path, directory / path.name)

    def _paths(self) -> Iterator[Path]:
        for package in self._packages:
            yield from package.rglob("*.py")
        for module in self._modules:
            yield from self._with_imports(module) if module.parent == Path.cwd().resolve() else [module]

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

    def __init__(self, options: Namespace, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._sources = Sources(options.services)
        self._copies = Path(tempfile.mkdtemp(prefix="aeron-cluster-dev-"))
        self._old: Path | None = None
        self._seen: Files = {}
        self._node: subprocess.Popen[bytes] | None = None
        self._start()

    def look(self) -> int | None:
        """Reload if a file has changed; the exit status of a node that a tool has ended, else None."""
        files = self._sources.files()
        if files != self._seen:
            time.sleep(_LOOK_S)
            if files == self._sources.files():  # else an editor is still writing
                self._seen = files
                self._reload()
        elif self._node is not None and self._node.poll() is not None:
            if self._node.returncode == 0:
                return 0
            _say(f"the node ended with code {self._node.returncode}: it starts again when a file changes")
            self._node = None
        return None

    def _reload(self) -> None:
        new = Path(tempfile.mkdtemp(dir=self._copies))
        self._sources.copy_to(new)
        try:
            self._compare(new)
        except ContainerError as error:
            state = "is not taken" if self._node is None else "is not taken, and the old code keeps running"
            _say(f"the new code {state}: {error}")
            shutil.rmtree(new)
            return
        self._stop()
        self._start(new)

    def _compare(self, new: Path) -> None:
        end: int | None = None
        for service_id, service in enumerate(self._options.services):
            if (place := importlib.util.find_spec("pyarrow")) is None or self._old is None:
                _check_import(new, service)
                if place is None:
                    _say('what changes is not said: that needs pip install "aeron-cluster-container[recordings]"')
                continue
            if end is None:  # the same for both: the node may still run, and its log grows
                from container.replay.execution import end_of_log  # needs pyarrow

                end = end_of_log(self._directory, committed="recorded")
            rows = [self._copies / f"{service_id}.{name}.arrow" for name in ("old", "new")]
            _replay(self._old, service, service_id, self._directory, end, rows[0], is_needed=False)
            _replay(new, service, service_id, self._directory, end, rows[1], is_needed=True)
            _say_differences(service, *rows)

    def _start(self, code: Path | None = None) -> None:
        if code is None:
            code = Path(tempfile.mkdtemp(dir=self._copies))
            self._seen = self._sources.files()  # before the copy: what is saved meanwhile is a change
            self._sources.copy_to(code)
        if self._old is not None:
            shutil.rmtree(self._old)
        self._old = code
        command = [sys.executable, "-P", "-m", "container", "dev", *self._arguments()]
        self._node = subprocess.Popen(command, env=_environment(code))

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
        if self._node is None:
            return
        if self._node.poll() is None:
            self._node.send_signal(signal.SIGTERM)
            try:
                self._node.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                _say(f"the node has not ended after {_STOP_LIMIT_S:g} s: it is killed")
                self._node.kill()
                self._node.wait()
        self._node = None

    def __enter__(self) -> Reloader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            shutil.rmtree(self._copies, ignore_errors=True)


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
        with Ending(starting) as end, Reloader(options, Path(directory)) as node:
            while end.wait_for(_LOOK_S) is None:
                if node.look() is not None:
                    return


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


def _run(code: Path, arguments: Sequence[str]) -> str:
    """Run this module with arguments, as a process that imports the code; its last line of error, or nothing."""
    command = [sys.executable, "-m", __name__, *arguments]
    ended = subprocess.run(command, cwd=code, env=_environment(code), capture_output=True, text=True, check=False)
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    return "" if ended.returncode == 0 else (lines or [f"code {ended.returncode}"])[-1]


def _check_import(code: Path, service: str) -> None:
    if failure := _run(code, [service]):
        raise ContainerError(failure)


def _replay(
    code: Path, service: str, service_id: int, directory: Path, end: int, rows: Path, *, is_needed: bool
) -> None:
    failure = _run(code, [service, str(service_id), str(directory.resolve()), str(end), str(rows)])
    if failure and is_needed:
        raise ContainerError(failure)


def _say_differences(service: str, old_rows: Path, new_rows: Path) -> None:
    from container.replay.diff import diff_batches
    from container.replay.execution import ERROR_KIND, STATE_HASH_KIND
    from container.replay.replay_command import described

    old, new = _batches(old_rows), _batches(new_rows)
    errors = [row["error"] for batch in new for row in batch.to_pylist() if row["kind"] == ERROR_KIND]
    if errors:
        raise ContainerError(f"{service} fails on the log: {errors[0]}")
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
    if len(actions) < len(differences):
        _say(f"{service}: the state at log position {differences[-1]['log_position']} differs")


def _batches(rows: Path) -> list[Any]:
    import pyarrow

    if not rows.exists():
        return []
    with pyarrow.OSFile(str(rows)) as file, pyarrow.ipc.open_stream(file) as reader:
        return list(reader)


def _say(text: str) -> None:
    print(f"reload: {text}", file=sys.stderr, flush=True)


def _write_rows(service: str, service_id: str = "0", directory: str = "", end: str = "0", rows: str = "") -> None:
    """Load a service; write what it does over a log up to a log position, as rows of a replay."""
    load_object(service, "service")
    if not directory:
        return
    import pyarrow

    from container.replay.execution import replay, replay_schema

    with pyarrow.OSFile(rows, "wb") as file, pyarrow.ipc.new_stream(file, replay_schema()) as writer:
        for batch in replay(
            directory, service, committed="recorded", service_id=int(service_id), end_position=int(end)
        ):
            writer.write(batch)


if __name__ == "__main__":
    try:
        _write_rows(*sys.argv[1:])
    except ContainerError as failure:
        raise SystemExit(str(failure)) from None
