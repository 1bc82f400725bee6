"""One member of a cluster as real processes: driver, archive and consensus module, and services around them."""

from __future__ import annotations

import enum
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from container.api import Role
from container.common import forks
from container.common.aeron_defaults import LOG_STREAM_ID, CounterType
from container.common.values import counted
from container.errors import ContainerError
from container.files.cnc_file import (
    CncFile,
    CounterRecord,
    FileFormatError,
    MarkFileStatus,
    mark_terminated,
    read_mark_file,
)
from container.files.error_log import ErrorRecord
from container.testing.processes.endpoints import MemberEndpoints, PortReservation, ingress_endpoints, members_string
from container.testing.processes.java_tools import JVM_FLAGS, as_environment, find_java, java_command, resolve_jar
from container.testing.processes.local_archive import ArchiveKind, archive_process, archive_properties, known_kind
from container.testing.processes.process import Process, ToolResult, is_alive, wait_until
from container.testing.processes.recordings import latest_snapshot, recorded_messages

_NODE_CLASS = "io.aeron.cluster.ClusteredMediaDriver"
# The same in three processes, with an archive between these two.
_DRIVER_CLASS = "io.aeron.driver.MediaDriver"
_CONSENSUS_MODULE_CLASS = "io.aeron.cluster.ConsensusModule"
_CONTAINER_CLASS = "io.aeron.cluster.service.ClusteredServiceContainer"
_TOOL_CLASS = "io.aeron.cluster.ClusterTool"

_NATIVE_PREFIXES = ("aeron.cluster.", "aeron.archive.", "aeron.driver.timeout")
# Properties that are not the C driver's, and its idle strategy, which may be a class of Java's.
_OTHERS_PREFIXES = ("aeron.cluster.", "aeron.archive.", "aeron.shared.idle.strategy")

_SOCKET_BUFFER_LENGTH = 2 * 1024 * 1024
_PART_LIMIT_S = 60.0
_TOOL_MARGIN_S = 5.0  # it has a limit of its own, and says more

# Properties on which a service and its consensus module must agree, beyond directories and ids: passed on if set.
_SHARED_PROPERTIES = (
    "aeron.cluster.control.channel",
    "aeron.cluster.service.stream.id",
    "aeron.cluster.consensus.module.stream.id",
    "aeron.cluster.replay.channel",
    "aeron.cluster.replay.stream.id",
    "aeron.cluster.snapshot.channel",
    "aeron.cluster.snapshot.stream.id",
    "aeron.cluster.mark.file.dir",
    "aeron.archive.local.control.channel",
    "aeron.archive.local.control.stream.id",
    "aeron.driver.timeout",
)


class ModuleState(enum.IntEnum):
    """States of a consensus module (upstream: ConsensusModule.State)."""

    INIT = 0
    ACTIVE = 1
    SUSPENDED = 2
    SNAPSHOT = 3
    QUITTING = 4
    TERMINATING = 5
    CLOSED = 6


ELECTION_STATE_CLOSED = 17

# Where the key of a counter holds the cluster id, and then, for counters of a service, the service id.
_RECOVERY_STATE_CLUSTER_ID_OFFSET = 24
_SERVICE_ID_OFFSET = 4


class Node:
    """One member: Java's ``ClusteredMediaDriver``, set up by system properties, and what runs around it.

    With ``separate_processes`` driver, archive and consensus module are three processes instead of one, so that each
    can be killed alone: :attr:`driver`, :attr:`archive`, :attr:`process`. Statements about the node then hold for all
    three. Each of the three may be Java's or this package's, and another one after :meth:`become`.

    The directories ``driver``, ``archive`` and ``cluster`` and the outputs of its processes lie in one base
    directory. They last over kills and restarts. :meth:`close`, or the end of a ``with`` block, ends all
    processes and removes the directories.
    """

    def __init__(
        self,
        *,
        member_id: int = 0,
        members: Sequence[MemberEndpoints] | None = None,
        cluster_id: int = 0,
        service_count: int = 1,
        base_dir: Path | None = None,
        idle_strategy: str = "backoff",
        class_path: Sequence[Path] = (),
        properties: Mapping[str, str] | None = None,
        jvm_flags: Sequence[str] = JVM_FLAGS,
        separate_processes: bool = False,
        driver: ArchiveKind | None = None,
        archive: ArchiveKind | None = None,
        consensus_module: ArchiveKind | None = None,
        network_namespace: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Choose directories and ports; nothing is started.

        Args:
            member_id: which of ``members`` this is.
            members: all members of the cluster; one with free ports when not given.
            cluster_id: value of ``aeron.cluster.id``.
            service_count: number of service containers that the consensus module waits for.
            base_dir: made if needed and left in place by :meth:`close`; when not given, a new directory, in
                memory where possible, which :meth:`close` removes.
            idle_strategy: of all agents: an alias of upstream's, or a class of ``class_path``.
            class_path: what the node, its Java services and its tools see beside Aeron's jar.
            properties: system properties on top of those chosen here.
            jvm_flags: options of the JVM.
            separate_processes: whether driver, archive and consensus module are a process each.
            driver: whose media driver the node has, in separate processes: ``java`` or ``native``, the C driver of this
                package's library; when not given, Java's.
            archive: whose archive the node has, in separate processes: ``java`` or ``native``, this package's; when
                not given, Java's, in the node's process or in one of its own.
            consensus_module: whose consensus module the node has, in separate processes: ``java`` or ``native``, this
                package's; when not given, Java's.
            network_namespace: where all processes of this node run; see :mod:`container.testing.processes.network`.
            environment: variables of all processes of this node, and of what is started around it.

        Raises:
            ContainerError: ``member_id`` is not one of ``members``, a kind is unknown, or there are no free ports.
            JavaError: there is no JVM, or Aeron's jar cannot be fetched.
        """
        kinds: tuple[ArchiveKind | None, ...] = (driver, archive, consensus_module)
        if self._needs_java(kinds):  # first, so that a missing JVM or jar leaves nothing behind
            find_java()
            resolve_jar()
        self._given_class_path = tuple(class_path)
        self.member_id = member_id
        self.cluster_id = cluster_id
        self.service_count = service_count
        self.idle_strategy = idle_strategy
        self.jvm_flags = tuple(jvm_flags)
        self._ports = PortReservation()
        self.members = tuple(members or [MemberEndpoints.take(member_id, self._ports)])
        self.endpoints = _member(self.members, member_id)
        self._owns_base_dir = base_dir is None
        forks.own(self)
        self.base_dir = base_dir or make_directory(f"aeron-node-{member_id}-")
        self.base_dir.mkdir(parents=True, exist_ok=True)
        self.aeron_dir = self.base_dir / "driver"
        self.archive_dir = self.base_dir / "archive"
        self.cluster_dir = self.base_dir / "cluster"
        self.properties = {**self._default_properties(), **(properties or {})}
        self.network_namespace = network_namespace
        self.environment = dict(environment or {})
        #: Whose media driver the node has.
        self.driver_kind: ArchiveKind = known_kind(driver or "java")
        #: Whose archive the node has.
        self.archive_kind: ArchiveKind = known_kind(archive or "java")
        #: Whose consensus module the node has.
        self.consensus_module_kind: ArchiveKind = known_kind(consensus_module or "java")
        #: The processes of the node and of what was started around it.
        self.processes: list[Process] = []
        self._set_parts(separate_processes or any(kinds))
        self._cnc_file: CncFile | None = None
        self._cnc_guard = threading.Lock()  # a cluster's watcher looks at counters beside its owner
        self._tool_run_count = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.member_id} in {self.base_dir}>"

    @property
    def class_path(self) -> tuple[Path, ...]:
        """The class path of Java's programs: Aeron's jar, and the given entries. Raises JavaError when the jar cannot
        be had."""
        return (resolve_jar(), *self._given_class_path)

    @staticmethod
    def _needs_java(kinds: Sequence[ArchiveKind | None]) -> bool:
        return not all(kind == "native" for kind in kinds)

    def _set_parts(self, separate_processes: bool) -> None:
        self._parts = self._make_parts(separate_processes)
        #: The driver's, the archive's and the consensus module's process: the same one, unless they are separate.
        self.driver, self.archive, self.process = self._parts[0], self._parts[len(self._parts) // 2], self._parts[-1]
        self.processes[:0] = self._parts

    def become(
        self,
        *,
        driver: ArchiveKind | None = None,
        archive: ArchiveKind | None = None,
        consensus_module: ArchiveKind | None = None,
    ) -> Self:
        """Have parts of other kinds from the next start on, over the same files; each in a process of its own.

        Args:
            driver, archive, consensus_module: ``java`` or ``native``; what is not given stays as it is.

        Raises:
            ContainerError: the node runs, or a kind is unknown.
            JavaError: there is no JVM, or Aeron's jar cannot be fetched.
        """
        self._require_end()
        kinds = [
            known_kind(new or old)
            for new, old in (
                (driver, self.driver_kind),
                (archive, self.archive_kind),
                (consensus_module, self.consensus_module_kind),
            )
        ]
        if self._needs_java(kinds):
            find_java()
            resolve_jar()
        self.driver_kind, self.archive_kind, self.consensus_module_kind = kinds
        for part in self._parts:
            part.close()
            self.processes.remove(part)
        self._set_parts(True)
        return self

    def _make_parts(self, separate_processes: bool) -> list[Process]:
        if not separate_processes:
            return [self._java_process(f"node-{self.member_id}", _NODE_CLASS, self.properties)]
        archive = archive_process(
            self.archive_kind,
            f"archive-{self.member_id}",
            self.properties,
            directory=self.base_dir,
            class_path=self.class_path if self.archive_kind == "java" else (),
            jvm_flags=self.jvm_flags,
            network_namespace=self.network_namespace,
        )
        archive.environment |= self.environment
        return [
            self._driver_process(f"driver-{self.member_id}"),
            archive,
            self._consensus_module_process(f"consensus-module-{self.member_id}"),
        ]

    def _driver_process(self, name: str) -> Process:
        if self.driver_kind == "java":
            return self._java_process(name, _DRIVER_CLASS, self.properties)
        known = {key: value for key, value in self.properties.items() if not key.startswith(_OTHERS_PREFIXES)}
        command = [sys.executable, "-m", "container.testing.processes.client_driver", str(self.aeron_dir)]
        return self._process(name, command, as_environment(known))

    def _consensus_module_process(self, name: str) -> Process:
        if self.consensus_module_kind == "java":
            return self._java_process(name, _CONSENSUS_MODULE_CLASS, self.properties)
        known = {key: value for key, value in self.properties.items() if key.startswith(_NATIVE_PREFIXES)}
        if "." in known.get("aeron.cluster.idle.strategy", ""):
            known["aeron.cluster.idle.strategy"] = "sleep(50us)"  # for a class of Java's
        command = [sys.executable, "-m", "container", "consensus-module", "--aeron-dir", str(self.aeron_dir)]
        return self._process(name, command, as_environment(known))

    def _java_process(
        self, name: str, main_class: str, properties: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> Process:
        command = java_command(
            main_class, self.class_path, properties=properties, arguments=arguments, flags=self.jvm_flags
        )
        return self._process(name, command)

    def _process(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        return Process(
            name,
            command,
            directory=self.base_dir,
            environment={**self.environment, **(environment or {})},
            network_namespace=self.network_namespace,
        )

    # Settings

    def _default_properties(self) -> dict[str, str]:
        return {
            **self._driver_properties(),
            **self._archive_properties(),
            **self._consensus_module_properties(),
        }

    def _driver_properties(self) -> dict[str, str]:
        # Terms of 1 MiB carry messages of up to 128 KiB and are rolled over often, which tests should see.
        return {
            "aeron.threading.mode": "SHARED",
            "aeron.shared.idle.strategy": self.idle_strategy,
            "aeron.term.buffer.length": "1m",
            "aeron.ipc.term.buffer.length": "1m",
            # A log buffer has its space before it is used, so a full disk is an error and no SIGBUS later.
            "aeron.term.buffer.sparse.file": "false",
            "aeron.perform.storage.checks": "true",
            "aeron.socket.so_sndbuf": str(_socket_buffer_length("wmem_max")),
            "aeron.socket.so_rcvbuf": str(_socket_buffer_length("rmem_max")),
        }

    def _archive_properties(self) -> dict[str, str]:
        return archive_properties(
            self.archive_dir,
            self.aeron_dir,
            control_endpoint=self.endpoints.archive,
            host=self.endpoints.host,
            idle_strategy=self.idle_strategy,
        )

    def _consensus_module_properties(self) -> dict[str, str]:
        return {
            "aeron.cluster.id": str(self.cluster_id),
            "aeron.cluster.member.id": str(self.member_id),
            "aeron.cluster.members": members_string(self.members),
            "aeron.cluster.dir": str(self.cluster_dir),
            "aeron.cluster.service.count": str(self.service_count),
            "aeron.cluster.ingress.channel": "aeron:udp",
            "aeron.cluster.ingress.ipc.allowed": "true",
            "aeron.cluster.log.channel": "aeron:udp?term-length=1m",
            "aeron.cluster.replication.channel": f"aeron:udp?endpoint={self.endpoints.host}:0",
            "aeron.cluster.idle.strategy": self.idle_strategy,
        }

    def service_properties(self, service_id: int = 0) -> dict[str, str]:
        """Return the system properties with which a service container takes its place on this node."""
        shared = {name: self.properties[name] for name in _SHARED_PROPERTIES if name in self.properties}
        return {
            "aeron.dir": str(self.aeron_dir),
            "aeron.cluster.dir": str(self.cluster_dir),
            "aeron.cluster.id": str(self.cluster_id),
            "aeron.cluster.service.id": str(service_id),
            **shared,
        }

    def service_environment(self, service_id: int = 0) -> dict[str, str]:
        """Return :meth:`service_properties` as environment variables."""
        return as_environment(self.service_properties(service_id))

    def client_properties(self, *, ipc: bool = False) -> dict[str, str]:
        """Return the system properties of a client on this node's driver, over UDP or shared memory."""
        if ipc:
            channels = {
                "aeron.cluster.ingress.channel": "aeron:ipc",
                "aeron.cluster.egress.channel": "aeron:ipc",
            }
        else:
            channels = {
                "aeron.cluster.ingress.channel": "aeron:udp",
                "aeron.cluster.ingress.endpoints": ingress_endpoints(self.members),
                "aeron.cluster.egress.channel": f"aeron:udp?endpoint={self.endpoints.host}:0",
            }
        return {"aeron.dir": str(self.aeron_dir), **channels}

    def client_environment(self, *, ipc: bool = False) -> dict[str, str]:
        """Return :meth:`client_properties` as environment variables."""
        return as_environment(self.client_properties(ipc=ipc))

    # Life

    def start(self) -> Self:
        """Start the node's process; :meth:`await_started` and :meth:`await_leader` wait for it.

        Separate processes of Java's start one after the other, each when the one that it needs is ready: its archive
        gives up a driver that takes longer than ``aeron.driver.timeout`` to start, its consensus module an archive
        after 10 s. This package's wait for each other.

        Raises:
            ContainerError: it still runs.
            TimeoutError, ProcessEndedError: a separate driver or archive does not become ready.
        """
        for part in self._parts:
            if part.is_running:
                raise ContainerError(f"{part.name} (pid {part.pid}) still runs; end it first")
        # A dead driver's files look alive to whoever connects before the new driver replaces them.
        self._forget_cnc_file()
        shutil.rmtree(self.aeron_dir, ignore_errors=True)
        self._make_directories()
        self.driver.start()
        if self.archive is not self.driver:
            if "java" in (self.driver_kind, self.archive_kind):
                self.await_driver()
            self.archive.start()
            if self.consensus_module_kind == "java":
                self._await_archive()
            self.process.start()
        return self

    @property
    def pid(self) -> int:
        """The process id of the node, of its consensus module when that is separate."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the node's process runs, also while it is paused; all of them, when they are separate."""
        return all(part.is_running for part in self._parts)

    @property
    def has_ended(self) -> bool:
        """Whether no process of the node runs."""
        return not any(part.is_running for part in self._parts)

    def kill(self) -> None:
        """End the node's process immediately (SIGKILL), as a crash would; services and clients stay."""
        for part in reversed(self._parts):
            part.kill()

    def stop(self, limit_s: float = 30.0) -> int:
        """Ask the node's process for an orderly end (SIGTERM) and return its return code.

        Separate processes are ended one after the other, the driver last; the first code that is not 0 is returned.

        Raises:
            TimeoutError: it still runs after ``limit_s`` seconds.
        """
        codes = [part.stop(limit_s) for part in reversed(self._parts)]
        return next(filter(None, codes), 0)

    def pause(self) -> None:
        """Stop the node's process from running (SIGSTOP) until :meth:`resume`."""
        for part in self._parts:
            part.pause()

    def resume(self) -> None:
        """Let the paused node run again (SIGCONT)."""
        for part in self._parts:
            part.resume()

    def restart(self, *, say: Callable[[str], None] | None = None) -> Self:
        """Kill the node if it runs, wait until its mark files may be taken, and start it with the same files.

        Its services must be dead by then; start them again afterwards. ``say`` is as in :meth:`await_mark_files_stale`.
        To wait for nothing, call :meth:`kill`, :meth:`release_mark_files` and :meth:`start` instead.

        Raises:
            as :meth:`await_mark_files_stale`.
        """
        self.kill()
        self.await_mark_files_stale(say=say)
        return self.start()

    def _disown(self, _process_id: int) -> None:
        """In a forked child: the directories are the parent's to remove."""
        self._owns_base_dir = False

    def close(self) -> None:
        """End all processes, give the ports back and remove the directories; may be called again."""
        for process in reversed(self.processes):
            process.close()
        self._forget_cnc_file()
        self._ports.close()
        if self._owns_base_dir:
            shutil.rmtree(self.base_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Processes around it

    def _make_directories(self) -> None:
        """Make what our commands refuse to make: the directories of archive and cluster."""
        for name, directory in (("archive", self.archive_dir), ("cluster", self.cluster_dir)):
            Path(self.properties.get(f"aeron.{name}.dir", directory)).mkdir(parents=True, exist_ok=True)

    def start_process(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a program whose output lies in the base directory and which :meth:`close` ends.

        Raises:
            ContainerError: a program of that name still runs.
            FileNotFoundError: there is no such program.
        """
        return self._start(self._process(name, command, environment))

    def _start(self, process: Process) -> Process:
        for earlier in [other for other in self.processes if other.name == process.name]:
            if earlier.is_running:
                raise ContainerError(f"{earlier.name} (pid {earlier.pid}) still runs; end it first")
            earlier.close()
            self.processes.remove(earlier)
        self.processes.append(process)
        self._make_directories()
        return process.start()

    def start_service(
        self, command: Sequence[str], service_id: int = 0, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a service container, such as ``[sys.executable, "examples/echo_service.py"]``, on this node.

        It finds its place in the variables of :meth:`service_environment`, to which ``environment`` adds.

        Raises:
            as :meth:`start_process`.
        """
        variables = {**self.service_environment(service_id), **(environment or {})}
        return self.start_process(f"service-{service_id}", command, variables)

    @property
    def services(self) -> list[Process]:
        """The processes of the services that were started last, running or not."""
        return [process for process in self.processes if process.name.startswith("service-")]

    def start_java_service(
        self, service_class: str, service_id: int = 0, properties: Mapping[str, str] | None = None
    ) -> Process:
        """Start Java's service container with a ``ClusteredService`` of the class path on this node.

        Raises:
            as :meth:`start_process`.
        """
        settings = {
            **self.service_properties(service_id),
            "aeron.cluster.service.class.name": service_class,
            "aeron.cluster.idle.strategy": self.idle_strategy,
            **(properties or {}),
        }
        return self._start(self._java_process(f"service-{service_id}", _CONTAINER_CLASS, settings))

    def start_java_client(
        self,
        main_class: str,
        arguments: Sequence[str] = (),
        *,
        ipc: bool = False,
        properties: Mapping[str, str] | None = None,
        name: str = "client",
    ) -> Process:
        """Start a Java program of the class path with the settings of :meth:`client_properties`.

        Raises:
            as :meth:`start_process`.
        """
        settings = {**self.client_properties(ipc=ipc), **(properties or {})}
        return self._start(self._java_process(name, main_class, settings, arguments))

    def cluster_tool(self, *arguments: str, limit_s: float = 60.0) -> ToolResult:
        """Run Java's ClusterTool on this node's cluster directory, such as ``cluster_tool("describe")``.

        Raises:
            TimeoutError: it did not end within ``limit_s`` seconds; it is killed.
        """
        self._tool_run_count += 1
        name = f"cluster-tool-{self._tool_run_count}-{arguments[0]}"
        with self._java_process(name, _TOOL_CLASS, {}, [str(self.cluster_dir), *arguments]) as tool:
            return_code = tool.start().wait(limit_s)
            return ToolResult(return_code, tool.output() + tool.errors())

    def ask_for(self, action: str, limit_s: float = 60.0) -> None:
        """Ask this node, which leads, for ``snapshot``, ``shutdown``, ``abort``, ``suspend`` or ``resume``.

        With a consensus module of Java's Java's ClusterTool asks, with a native one the word of ``aeron-cluster``.

        Raises:
            ContainerError: it was refused, as when this node does not lead; the text holds the tool's output.
            TimeoutError: the tool did not end within ``limit_s`` seconds.
        """
        if self.consensus_module_kind == "java":
            result, tool_name = self.cluster_tool(action, limit_s=limit_s), "ClusterTool"
        else:
            result, tool_name = self._own_tool(action, limit_s), "aeron-cluster"
        if result.return_code != 0:
            raise ContainerError(f"{tool_name} {action} on member {self.member_id} failed: {result.output}")

    def _own_tool(self, action: str, limit_s: float) -> ToolResult:
        self._tool_run_count += 1
        command = [sys.executable, "-m", "container", action, str(self.cluster_dir), "--timeout", f"{limit_s:g}"]
        with self._process(f"aeron-cluster-{self._tool_run_count}-{action}", command) as tool:
            return ToolResult(tool.start().wait(limit_s + _TOOL_MARGIN_S), tool.output() + tool.errors())

    def take_snapshot(self, limit_s: float = 60.0) -> None:
        """Ask this node, which leads, for a snapshot, and wait until it is taken here.

        Raises:
            ContainerError: as :meth:`ask_for`.
            TimeoutError, ProcessEndedError: the snapshot was not taken.
        """
        before = self.snapshot_count or 0
        self.ask_for("snapshot", limit_s)
        self.await_counter(CounterType.SNAPSHOT_COUNTER, before + 1, limit_s)

    # Counters

    def counters(self) -> list[CounterRecord]:
        """Return the driver's counters; none while the node does not run or its driver is not ready.

        Those of a dead driver stay in its file: see :class:`~container.files.cnc_file.CncFile`.
        """
        if not self.driver.is_running:
            return []
        with self._cnc_guard:
            if self._cnc_file is None:
                self._cnc_file = CncFile.open_ready(self.aeron_dir)
            return [] if self._cnc_file is None else list(self._cnc_file.counters())

    def _forget_cnc_file(self) -> None:
        with self._cnc_guard:
            if self._cnc_file is not None:
                self._cnc_file.close()
                self._cnc_file = None

    def counter(self, type_id: int, service_id: int | None = None) -> CounterRecord | None:
        """Return this cluster's counter of a type, or ``None``; ``service_id`` for those of one service."""
        is_recovery_state = type_id == CounterType.RECOVERY_STATE
        cluster_id_offset = _RECOVERY_STATE_CLUSTER_ID_OFFSET if is_recovery_state else 0
        for counter in self.counters():
            if counter.type_id != type_id or counter.key_int32(cluster_id_offset) != self.cluster_id:
                continue
            if service_id is None or counter.key_int32(_SERVICE_ID_OFFSET) == service_id:
                return counter
        return None

    def counter_value(self, type_id: int, service_id: int | None = None) -> int | None:
        """Return the value of :meth:`counter`, or ``None`` when there is none."""
        counter = self.counter(type_id, service_id)
        return None if counter is None else counter.value

    @property
    def module_state(self) -> ModuleState | None:
        """The state of the consensus module, ``None`` while it has no counter."""
        value = self.counter_value(CounterType.CONSENSUS_MODULE_STATE)
        return None if value is None else ModuleState(value)

    @property
    def commit_position(self) -> int | None:
        """The committed position of the log, ``None`` while the consensus module has none."""
        return self.counter_value(CounterType.COMMIT_POSITION)

    @property
    def role(self) -> Role | None:
        """The role of the consensus module, ``None`` while it has no counter."""
        value = self.counter_value(CounterType.NODE_ROLE)
        return None if value is None else Role(value)

    @property
    def append_position(self) -> int | None:
        """How far the archive has recorded the log, committed or not; ``None`` while it does not record it."""
        for counter in self.counters():
            # The stream's id is in the label alone: "rec-pos: <recording id> <session id> <stream id> <channel>".
            if counter.type_id == CounterType.RECORDING_POSITION and counter.label.split()[3] == str(LOG_STREAM_ID):
                return counter.value
        return None

    @property
    def snapshot_count(self) -> int | None:
        """The snapshots taken since the node started, ``None`` while there is no consensus module."""
        return self.counter_value(CounterType.SNAPSHOT_COUNTER)

    @property
    def election_is_closed(self) -> bool:
        """Whether the node has a leader: itself or another."""
        return self.counter_value(CounterType.ELECTION_STATE) == ELECTION_STATE_CLOSED

    @property
    def is_leader(self) -> bool:
        """Whether the node leads, its election is over, and it takes messages or is suspended."""
        return (
            self.role is Role.LEADER
            and self.election_is_closed
            and self.module_state in (ModuleState.ACTIVE, ModuleState.SUSPENDED)
        )

    # Waits

    def wait_until[T](self, predicate: Callable[[], T | None], limit_s: float, what: str) -> T:
        """:func:`~container.testing.processes.process.wait_until`, which also fails once the node has ended."""
        return wait_until(predicate, limit_s, what, self._parts)

    def await_driver(self, limit_s: float = _PART_LIMIT_S) -> None:
        """Wait until the driver is ready for clients.

        Raises:
            TimeoutError, ProcessEndedError: it is not.
        """
        what = f"the driver of member {self.member_id} to be ready"
        wait_until(lambda: bool(self.counters()), limit_s, what, [self.driver])

    def _await_archive(self) -> None:
        what = f"the archive of member {self.member_id} to be ready"
        wait_until(self._archive_is_ready, _PART_LIMIT_S, what, [self.driver, self.archive])

    def _archive_is_ready(self) -> bool:
        return any(status.pid == self.archive.pid and status.is_active for status in self.mark_files())

    def await_started(self, limit_s: float = 30.0) -> None:
        """Wait until the consensus module is there; it may still wait for its services.

        Raises:
            TimeoutError, ProcessEndedError: it does not come.
        """
        what = f"the consensus module of member {self.member_id} to publish its commit position"
        self.wait_until(lambda: self.commit_position is not None, limit_s, what)

    def await_leader(self, limit_s: float = 60.0) -> None:
        """Wait until this node leads, which needs all its services.

        Raises:
            TimeoutError, ProcessEndedError: it does not lead, or it or one of its services ended.
        """
        what = f"member {self.member_id} to lead, with its {counted(self.service_count, 'service')}"
        wait_until(lambda: self.is_leader, limit_s, what, [*self._parts, *self.services])

    def await_state(self, state: ModuleState, limit_s: float = 30.0) -> None:
        """Wait until the consensus module is in a state.

        Raises:
            TimeoutError, ProcessEndedError: it is not.
        """
        what = f"the consensus module of member {self.member_id} to be {state.name}"
        self.wait_until(lambda: self.module_state is state, limit_s, what)

    def await_role(self, role: Role, limit_s: float = 60.0) -> None:
        """Wait until the consensus module has a role, whether its election is over or not.

        Raises:
            TimeoutError, ProcessEndedError: it has not.
        """
        what = f"member {self.member_id} to be {role.name}"
        self.wait_until(lambda: self.role is role, limit_s, what)

    def await_commit_position(self, position: int, limit_s: float = 60.0) -> None:
        """Wait until the log is committed up to a position here.

        Raises:
            TimeoutError, ProcessEndedError: it is not.
        """
        self.await_counter(CounterType.COMMIT_POSITION, position, limit_s)

    def await_counter(
        self, type_id: int, at_least: int, limit_s: float = 60.0, *, service_id: int | None = None
    ) -> None:
        """Wait until this cluster has a counter of a type, as :meth:`counter` finds it, with this value or more.

        Raises:
            TimeoutError: it has not; the text has the last value.
            ProcessEndedError: the node has ended, or a service whose work the counter shows.
        """
        last: int | None = None
        watched = list(self._parts)
        if type_id == CounterType.SNAPSHOT_COUNTER:
            watched += self.services
        elif service_id is not None:
            watched += [service for service in self.services if service.name == f"service-{service_id}"]

        def is_there() -> bool:
            nonlocal last
            last = self.counter_value(type_id, service_id)
            return last is not None and last >= at_least

        name = CounterType(type_id).name if type_id in CounterType else f"of type {type_id}"
        try:
            wait_until(
                is_there, limit_s, f"counter {name} of member {self.member_id} to be at least {at_least}", watched
            )
        except TimeoutError as error:
            raise TimeoutError(f"its last value is {last}: {error}") from None

    # Files and errors

    def snapshot_messages(self, service_id: int = 0) -> list[bytes]:
        """Return the latest snapshot of a service, message by message: the container's framing, then the service's own.

        Raises:
            FileNotFoundError, ContainerError: there is none.
        """
        return recorded_messages(self.archive_dir, latest_snapshot(self.cluster_dir, service_id).recording_id)

    def mark_files(self) -> list[MarkFileStatus]:
        """Return the readable mark files of the archive, the consensus module and the services."""
        archive_dir = self.properties.get("aeron.archive.dir", self.archive_dir)
        archive_dir = Path(self.properties.get("aeron.archive.mark.file.dir", archive_dir))
        cluster_dir = Path(self.properties.get("aeron.cluster.mark.file.dir", self.cluster_dir))
        statuses = []
        for path in (archive_dir / "archive-mark.dat", *sorted(cluster_dir.glob("cluster-mark*.dat"))):
            try:
                statuses.append(read_mark_file(path))
            except (FileNotFoundError, FileFormatError):
                continue
        return statuses

    def await_mark_files_stale(self, limit_s: float = 15.0, say: Callable[[str], None] | None = None) -> None:
        """Wait until the mark files of the killed node may be taken over: 10 s after their last update.

        Args:
            limit_s: seconds until giving up.
            say: called once with what is waited for and for how long, if it takes any time.

        Raises:
            ContainerError: the node still runs, and so keeps its files alive.
            FileFormatError: an owner was killed while it started, so that its file never becomes stale.
            TimeoutError: a file is still updated, by a process that should be dead.
        """
        self._require_end()
        longest_ms = self._mark_files_stale_in_ms()
        if say is not None and longest_ms > 0:
            say(f"waiting {longest_ms / 1000:.1f} s, after which a dead owner's mark files may be taken")
        what = f"the mark files below {self.base_dir} to become stale"
        wait_until(lambda: self._mark_files_stale_in_ms() == 0, limit_s, what)

    def _require_end(self) -> None:
        if not self.has_ended:
            raise ContainerError(f"member {self.member_id} (pid {self.pid}) still runs; end it first")

    def _mark_files_stale_in_ms(self) -> int:
        now_ms = time.time_ns() // 1_000_000
        return max((status.takeable_in_ms(now_ms) for status in self.mark_files()), default=0)

    def release_mark_files(self) -> None:
        """Mark the files of dead owners as ended, so that a restart need not wait for them to become stale.

        For tests that restart often. It knows what a new owner cannot know: that the old one is dead.

        Raises:
            ContainerError: an owner lives.
        """
        for status in self.mark_files():
            if is_alive(status.pid):
                raise ContainerError(f"{status.path} is held by pid {status.pid}, which lives; end it first")
            mark_terminated(status.path)

    def errors(self) -> dict[Path, list[ErrorRecord]]:
        """Return the error logs that are not empty, by mark file, and the driver's by ``aeron_dir``."""
        logs = {status.path: list(status.errors) for status in self.mark_files()}
        cnc_file = CncFile.open_ready(self.aeron_dir)
        if cnc_file is not None:
            logs[self.aeron_dir] = cnc_file.errors()
            cnc_file.close()
        return {path: records for path, records in logs.items() if records}

    def report(self) -> str:
        """Return the ends of all outputs, and all error logs, for the text of a failure."""
        parts = [process.tail() for process in self.processes]
        for path, records in self.errors().items():
            parts += [f"--- {path}: {record.observation_count} x {record.text}" for record in records]
        return "\n".join(parts)


def _member(members: Sequence[MemberEndpoints], member_id: int) -> MemberEndpoints:
    for member in members:
        if member.member_id == member_id:
            return member
    raise ContainerError(f"member_id={member_id} is not one of members={members_string(members)}")


def make_directory(prefix: str) -> Path:
    """Make a new directory, in memory where the system has such a file system for everybody."""
    shared_memory = Path("/dev/shm")
    is_usable = shared_memory.is_dir() and os.access(shared_memory, os.W_OK)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=shared_memory if is_usable else None))


def _socket_buffer_length(limit_name: str) -> int:
    """2 MiB, or what the system allows: a driver refuses to start when it gets less than it asks for."""
    try:
        limit = int(Path("/proc/sys/net/core", limit_name).read_text())
    except (OSError, ValueError):
        return _SOCKET_BUFFER_LENGTH
    return min(limit, _SOCKET_BUFFER_LENGTH)
