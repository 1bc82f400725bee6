"""An archive as a process of its own, Java's or this package's, beside any media driver; and Java's ArchiveTool."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from container.errors import ContainerError
from container.files.cnc_file import FileFormatError, MarkFileStatus, mark_terminated, read_mark_file
from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.java_tools import JVM_FLAGS, as_environment, java_command, resolve_jar
from container.testing.processes.process import Process, ToolResult, is_alive

type ArchiveKind = Literal["java", "native"]
"""The implementation of an archive: Java's, or the one of this package."""

ARCHIVE_KINDS: tuple[ArchiveKind, ...] = get_args(ArchiveKind.__value__)
"""Java's ``io.aeron.archive.Archive``, and the archive of this package (``aeron-cluster archive``).

A media driver and a consensus module are of one of these kinds as well.
"""

MARK_FILE_NAME = "archive-mark.dat"

_JAVA_CLASS = "io.aeron.archive.Archive"
_TOOL_CLASS = "io.aeron.archive.ArchiveTool"
_NATIVE_COMMAND = ("-m", "container", "archive")
_NATIVE_PREFIXES = ("aeron.archive.", "aeron.dir", "aeron.library", "aeron.driver.timeout")
_IDLE_STRATEGY = "aeron.archive.idle.strategy"
_SHORT_PARKS = "backoff(10,20,1us,50us)"
_READY_LIMIT_S = 60.0
_TOOL_LIMIT_S = 60.0


def known_kind(kind: ArchiveKind) -> ArchiveKind:
    """Return what it is given; raise ContainerError for what is not a kind of a part."""
    if kind not in ARCHIVE_KINDS:
        raise ContainerError(f"a part is one of {', '.join(ARCHIVE_KINDS)}, not {kind!r}")
    return kind


def archive_properties(
    archive_dir: Path, aeron_dir: Path, *, control_endpoint: str, host: str = HOST, idle_strategy: str = "backoff"
) -> dict[str, str]:
    """Return the system properties that tests give an archive: one thread, small segments, whole terms.

    Args:
        archive_dir: the directory of its catalog and recordings.
        aeron_dir: the directory of its media driver.
        control_endpoint: ``host:port`` on which it takes requests over the network.
        host: the address on which replications arrive.
        idle_strategy: an alias of upstream's, or a class of the class path.
    """
    return {
        "aeron.dir": str(aeron_dir),
        "aeron.archive.dir": str(archive_dir),
        # Archive and consensus module ask for sparse control streams, whatever the driver's default is.
        "aeron.archive.control.term.buffer.sparse": "false",
        "aeron.archive.control.channel": f"aeron:udp?endpoint={control_endpoint}",
        "aeron.archive.replication.channel": f"aeron:udp?endpoint={host}:0",
        "aeron.archive.recording.events.enabled": "false",
        "aeron.archive.threading.mode": "SHARED",
        _IDLE_STRATEGY: idle_strategy,
        "aeron.archive.segment.file.length": "16m",
    }


def archive_process(
    kind: ArchiveKind,
    name: str,
    properties: Mapping[str, str],
    *,
    directory: Path,
    class_path: Sequence[Path] = (),
    jvm_flags: Sequence[str] = JVM_FLAGS,
    network_namespace: str | None = None,
) -> Process:
    """Return the process of an archive that is set up by Java's system properties; it is not started.

    This package's archive gets them as environment variables. An idle strategy that is a class of Java's becomes one
    that parks at most 50 us.

    Args:
        kind: whose archive.
        name: of the process and its output files.
        properties: with ``aeron.dir`` and ``aeron.archive.dir``.
        directory: where the output files go.
        class_path: of Java's archive, with Aeron's jar.
        jvm_flags: options of the JVM.
        network_namespace: where the process runs.

    Raises:
        ContainerError: there is no such kind.
        JavaError: there is no JVM.
    """
    environment: dict[str, str] = {}
    if known_kind(kind) == "java":
        command = java_command(_JAVA_CLASS, class_path, properties=properties, flags=jvm_flags)
    else:
        known = {name: value for name, value in properties.items() if name.startswith(_NATIVE_PREFIXES)}
        if "." in known.get(_IDLE_STRATEGY, ""):
            known[_IDLE_STRATEGY] = _SHORT_PARKS
        environment = as_environment(known)
        directories = ("--dir", properties["aeron.archive.dir"], "--aeron-dir", properties["aeron.dir"])
        command = [sys.executable, *_NATIVE_COMMAND, *directories]
    return Process(name, command, directory=directory, environment=environment, network_namespace=network_namespace)


def run_archive_tool(
    archive_dir: Path,
    *arguments: str,
    output_directory: Path,
    answer: str | None = None,
    properties: Mapping[str, str] | None = None,
    limit_s: float = _TOOL_LIMIT_S,
) -> ToolResult:
    """Run Java's ArchiveTool over a directory, such as ``run_archive_tool(directory, "verify", "-a", …)``.

    Args:
        archive_dir: the directory of an archive; only ``describe``, ``dump``, ``errors`` and ``pid`` leave it as it is.
        arguments: the command and its own arguments.
        output_directory: where the tool's output files go: not the archive's directory, where they would be strangers.
        answer: what the tool reads when it asks whether to continue, as ``compact`` does: ``y`` or ``n``.
        properties: system properties.
        limit_s: seconds until it is killed.

    Raises:
        JavaError: there is no JVM, or Aeron's jar cannot be fetched.
        TimeoutError: it did not end within ``limit_s`` seconds, as when it asks and has no answer.
    """
    command = java_command(
        _TOOL_CLASS, [resolve_jar()], properties=properties, arguments=[str(archive_dir), *arguments]
    )
    with Process(f"archive-tool-{arguments[0]}", command, directory=output_directory) as tool:
        tool.start()
        if answer is not None:
            tool.write_line(answer)
        tool.close_input()
        return_code = tool.wait(limit_s)
        return ToolResult(return_code, tool.output() + tool.errors())


class LocalArchive:
    """An archive as a process of its own, beside a media driver that runs already.

    Its directory ``archive`` and the outputs of its process lie in one directory, which lasts over kills and restarts
    and is not removed here. :meth:`close`, or the end of a ``with`` block, kills the process.
    """

    def __init__(
        self,
        kind: ArchiveKind,
        directory: Path,
        aeron_dir: Path,
        *,
        name: str = "archive",
        archive_id: int | None = None,
        host: str = HOST,
        idle_strategy: str = "backoff",
        properties: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        jvm_flags: Sequence[str] = JVM_FLAGS,
        network_namespace: str | None = None,
    ) -> None:
        """Choose a port and settings; nothing is started.

        Args:
            kind: ``java`` or ``native``.
            directory: where ``<name>`` with the catalog and the recordings, and the output files are; made if needed.
            aeron_dir: the directory of the media driver.
            name: of the archive's directory, its process and output files.
            archive_id: value of ``aeron.archive.id``; when not given, the archive takes one of the driver's ids.
            host: the address on which the archive listens.
            idle_strategy: an alias of upstream's, or a class of ``class_path``, for which this package's archive takes
                one that parks at most 50 us.
            properties: system properties on top of those of :func:`archive_properties`; this package's archive gets
                them as environment variables.
            class_path: what Java's archive sees beside Aeron's jar.
            jvm_flags: options of the JVM.
            network_namespace: where the process runs; see :mod:`container.testing.processes.network`.

        Raises:
            ContainerError: there is no such kind, or there are no free ports.
            JavaError: there is no JVM, or Aeron's jar cannot be fetched.
        """
        self.kind = known_kind(kind)
        jar = resolve_jar()  # before there is anything to give back
        self.directory = directory
        self.aeron_dir = aeron_dir
        self.archive_dir = directory / name
        self._ports = PortReservation(host)
        self._java_settings: dict[str, Any] = {"class_path": class_path, "jvm_flags": jvm_flags}
        self.network_namespace = network_namespace
        endpoint = f"{host}:{self._ports.take()}"
        self.properties = {
            **archive_properties(
                self.archive_dir, aeron_dir, control_endpoint=endpoint, host=host, idle_strategy=idle_strategy
            ),
            **({} if archive_id is None else {"aeron.archive.id": str(archive_id)}),
            **(properties or {}),
        }
        #: The channel on which clients of other drivers send requests.
        self.control_channel = self.properties["aeron.archive.control.channel"]
        directory.mkdir(parents=True, exist_ok=True)
        #: The archive's process.
        self.process = archive_process(
            kind,
            name,
            self.properties,
            directory=directory,
            class_path=[jar, *class_path],
            jvm_flags=jvm_flags,
            network_namespace=network_namespace,
        )

    def __repr__(self) -> str:
        return f"<LocalArchive {self.kind} in {self.archive_dir}>"

    def start(self) -> Self:
        """Start the process; :meth:`await_ready` waits until it serves.

        Raises:
            ContainerError: it still runs.
        """
        directory = self.properties.get("aeron.archive.dir", self.archive_dir)
        Path(directory).mkdir(parents=True, exist_ok=True)  # what our command refuses to make
        self.process.start()
        return self

    @property
    def pid(self) -> int:
        """The process id of the latest start."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process runs, also while it is paused."""
        return self.process.is_running

    @property
    def is_ready(self) -> bool:
        """Whether the mark file shows that this process has started, its catalog has been read and it serves.

        Ours has its process id there already while it repairs files; its log says when it serves.
        """
        status = self.mark_file()
        is_marked = status is not None and status.pid == self.pid and status.is_active and status.version != 0
        return is_marked and (self.kind == "java" or " is ready: " in self.process.errors())

    def await_ready(self, limit_s: float = _READY_LIMIT_S) -> Self:
        """Wait until :attr:`is_ready`.

        Raises:
            TimeoutError, ProcessEndedError: it is not.
        """
        self.process.wait_until(lambda: self.is_ready, limit_s, f"{self!r} to be ready")
        return self

    def stop(self, limit_s: float = 30.0) -> int:
        """Ask for an orderly end (SIGTERM), wait for it and return the return code.

        Raises:
            TimeoutError: the process still runs after ``limit_s`` seconds.
        """
        return self.process.stop(limit_s)

    def kill(self) -> None:
        """End the process immediately (SIGKILL), as a crash would, and wait until it is gone."""
        self.process.kill()

    def pause(self) -> None:
        """Stop the process from running (SIGSTOP) until :meth:`resume`."""
        self.process.pause()

    def resume(self) -> None:
        """Let the paused process run again (SIGCONT)."""
        self.process.resume()

    def restart(self) -> Self:
        """Kill the process if it runs, free its mark file, and start it with the same files.

        Raises:
            as :meth:`release_mark_file`.
        """
        self.kill()
        self.release_mark_file()
        return self.start()

    def hand_over(self, kind: ArchiveKind) -> LocalArchive:
        """Return an archive of a kind over the same files and with the same settings; it is not started.

        The mark file of this one, which is dead by then, is freed. Its port is this one's, so keep this one.

        Raises:
            ContainerError: this one still runs, or there is no such kind.
        """
        if self.is_running:
            raise ContainerError(f"{self!r} (pid {self.pid}) still runs; end it first")
        self.release_mark_file()
        return LocalArchive(
            kind,
            self.directory,
            self.aeron_dir,
            name=self.archive_dir.name,
            properties=self.properties,
            network_namespace=self.network_namespace,
            **self._java_settings,
        )

    def close(self) -> None:
        """Kill the process if it runs and give the port back; the files stay. May be called again."""
        self.process.close()
        self._ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Files and errors

    def mark_file(self) -> MarkFileStatus | None:
        """Return what the mark file says, ``None`` while there is none that can be read."""
        archive_dir = self.properties.get("aeron.archive.dir", self.archive_dir)
        directory = Path(self.properties.get("aeron.archive.mark.file.dir", archive_dir))
        try:
            return read_mark_file(directory / MARK_FILE_NAME)
        except (FileNotFoundError, FileFormatError):
            return None

    def release_mark_file(self) -> None:
        """Mark the file of a dead owner as ended, so that a restart need not wait until it is stale.

        Raises:
            ContainerError: the owner lives.
        """
        status = self.mark_file()
        if status is None:
            return
        if is_alive(status.pid):
            raise ContainerError(f"{status.path} is held by pid {status.pid}, which lives; end it first")
        mark_terminated(status.path)

    def errors(self) -> list[str]:
        """Return the texts in the mark file's error log, each once."""
        status = self.mark_file()
        return [] if status is None else [record.text for record in status.errors]

    def report(self) -> str:
        """Return the ends of the outputs, and the error log, for the text of a failure."""
        return "\n".join([self.process.tail(), *(f"--- {self!r}: {text}" for text in self.errors())])

    def tool(self, *arguments: str, answer: str | None = None, limit_s: float = _TOOL_LIMIT_S) -> ToolResult:
        """Run Java's ArchiveTool over the archive's directory, as :func:`run_archive_tool` does.

        Raises:
            as :func:`run_archive_tool`.
        """
        return run_archive_tool(
            self.archive_dir, *arguments, output_directory=self.directory, answer=answer, limit_s=limit_s
        )
