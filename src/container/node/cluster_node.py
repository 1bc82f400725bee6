"""A member of a cluster in this process: media driver, archive, consensus module and services."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeGuard

from container.aeron.media_driver import MediaDriver
from container.api import ClusteredService
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.native_archive import Archive
from container.clustered_service_container import ClusteredServiceContainer
from container.common import forks
from container.common.aeron_defaults import SERVICE_SNAPSHOT_STREAM_ID
from container.common.directories import created_directory
from container.common.error_texts import message_of
from container.common.log_events import WaitLog
from container.common.loggers import report
from container.common.process_end import Stage, close_at_end
from container.common.threads import check_threads
from container.common.values import is_path, shown
from container.consensus.consensus_module import ConsensusModule
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.context import Context
from container.errors import (
    AgentInterrupted,
    ClusterError,
    ClusterTermination,
    ConfigurationError,
    PublicationUnavailableError,
    TimedOutError,
)
from container.files.directory_lock import DirectoryLock
from container.files.names import CNC_FILE_NAME
from container.node.lost_log import check_log_is_named
from container.node.members import Membership, members_given
from container.node.service_process import ServiceProcess
from container.node.shared_thread import Part, SharedContext, SharedThread
from container.service.given_service import check_given
from container.service.service_handler import ServiceHandler
from container.settings.sources import validate_driver_settings

_SHARED_MEMORY = Path("/dev/shm")
_POLL_S = 0.001
_LAUNCH_TIMEOUT_S = 30.0
_SNAPSHOT_TIMEOUT_S = 30.0
_NULL_POSITION = -1
_NOTHING: Mapping[str, Any] = {}

SHARED, DEDICATED = "SHARED", "DEDICATED"

COMMON_OWN_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "archive": {
        "aeron_dir": "aeron_dir decides",
        "archive_dir": "directory decides",
        "control_channel": "members, or host and port, decide",
        "use_agent_invoker": "threading_mode decides",
    },
    "consensus_module": {
        "aeron_dir": "aeron_dir decides",
        "cluster_dir": "directory decides",
        "cluster_member_id": "member_id decides",
        "cluster_members": "members, or host and port, decide",
        "service_count": "services decide",
        "use_agent_invoker": "threading_mode decides",
    },
    "container": {
        "aeron_dir": "aeron_dir decides",
        "cluster_dir": "directory decides",
        "service_id": "order of services decides",
        "use_agent_invoker": "threading_mode decides",
    },
}
"""Settings of parts that follow from those of any node, and what of the node they follow from."""

_OWN_SETTINGS = {
    **COMMON_OWN_SETTINGS,
    "archive": {**COMMON_OWN_SETTINGS["archive"], "threading_mode": "threading_mode decides"},
}

OF_BOTH = ("cluster_id", "control_channel", "consensus_module_stream_id", "service_stream_id")
"""Settings of the same name and meaning of consensus module and containers."""


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Have a setting that is refused say of which part it is: several have settings of the same name."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{part}: {error}") from error


class ClusterNode:
    """A member of a cluster in this process, by default of a cluster of one; :meth:`launch` makes one.

    It serves until a tool ends the cluster, a part fails, or :meth:`close` is called, as ``with`` does. When a part
    ends, the node closes the others. The interpreter closes a node that is still open when it exits.

    Attributes:
        directory: its files: the archive's recordings, the recording log, mark files (Path).
        aeron_dir: the media driver's directory, for clients of this machine (str).
        ingress_endpoints: addresses of the members for network clients, such as ``0=localhost:9010`` (str).
        member_id: its id among the members (int).
    """

    def __init__(
        self, directory: Path, aeron_dir: str, membership: Membership, on_end: Callable[[], object] | None
    ) -> None:
        """Make the empty node, which :meth:`launch` fills with parts."""
        self.directory = directory
        self.aeron_dir = aeron_dir
        self._membership = membership
        self.member_id = membership.own.id
        self.ingress_endpoints = membership.ingress_endpoints
        self._closing = ExitStack()
        self._parts: list[Part | ServiceProcess] = []
        self._member: SharedContext | None = None  # where archive and consensus module have no threads of their own
        self._shared: SharedContext | None = None  # where the services share one; that of all parts is both
        self._threads: dict[SharedContext, SharedThread] = {}
        self._ended: list[Part | ServiceProcess] = []
        self._on_end = on_end
        self._has_ended = threading.Event()
        self._is_launching = True  # and closed by launch() when that fails
        self._is_closed = False
        self._close_guard = threading.RLock()  # a signal handler may close it while its thread does
        self._lock: DirectoryLock | None = None
        self._parent_id = 0
        forks.own(self)

    @classmethod
    def launch(
        cls,
        *services: ClusteredService | ServiceHandler | ServiceProcess,
        directory: str | os.PathLike[str] | None = None,
        host: str | None = None,
        port: int | None = None,
        members: Sequence[Mapping[str, Any]] | None = None,
        member_id: int | None = None,
        aeron_dir: str | os.PathLike[str] | None = None,
        driver: Mapping[str, Any] = _NOTHING,
        archive: Mapping[str, Any] = _NOTHING,
        consensus_module: Mapping[str, Any] = _NOTHING,
        container: Mapping[str, Any] = _NOTHING,
        threading_mode: str = SHARED,
        timeout: float | None = None,
        on_ready: Callable[[], object] | None = None,
        on_end: Callable[[], object] | None = None,
    ) -> Self:
        """Start a member, and return it once its cluster has a leader (itself, if it is the only member).

        Args:
            services: its services; their ids are 0, 1, … in this order. A
                :class:`~container.node.service_process.ServiceProcess` runs in a separate process.
            directory: the member's directory, with old files or none; by default a temporary one, which :meth:`close`
                removes.
            host: the name or address at which clients reach this machine (IPv6 with or without brackets); ``localhost``
                by default.
            port: the UDP port for clients, 9010 by default; the four ports after it must be free as well.
            members: instead of host and port, all members of a cluster, the same list on each: mappings with ``id``
                and ``host``, and with ``port`` (9010 by default, and the four after it); or, in place of host and
                port, with ``ingress``, ``consensus``, ``log``, ``catchup`` and ``archive``, each as ``host:port``.
            member_id: which of ``members`` this one is.
            aeron_dir: the media driver's; by default one in memory that belongs to ``directory``.
            driver: settings of the media driver, by name.
            archive: settings of the archive, by name.
            consensus_module: settings of the consensus module, by name.
            container: settings of all service containers, by name.
            threading_mode: ``SHARED``: the parts take turns on one thread, which idles by the containers' setting
                ``idle_strategy``. With several members, or with services in separate processes, driver, archive and
                consensus module share one thread, which idles by the consensus module's setting. The services have
                another, so that a long callback costs the member neither its log nor its lead. ``DEDICATED``: each part
                has its own thread.
            timeout: maximum seconds until there is a leader; by default 30 for one member and no limit for several. A
                member that starts alone waits for the others, and logs which ones are missing.
            on_ready: called when there is a leader, just before the node is returned; an exception closes the node.
            on_end: called on the thread of each part that has ended.

        Raises:
            ConfigurationError: a bad setting, no service, a directory that cannot be made, or one that has the log of
                another member or of a cluster of other members.
            AeronError, MarkFileError: another node runs on the directory; or something was killed there less than 10
                seconds ago that was not a node of this machine.
            ClusterError: a port cannot be had, or a part ended while it started; the cause is the failure of the first
                that did, unless ``record_error_messages`` is false.
            TimedOutError: there is no leader in time.
            ContainerError, OSError: a part cannot be made, see their ``launch()``.
        """
        check_threads("launch_node()")
        if not services:
            raise ConfigurationError("services: give at least one service")
        for service in services:
            if not isinstance(service, ServiceProcess):
                check_given(service, "services")
        if threading_mode not in (SHARED, DEDICATED):
            raise ConfigurationError(f"threading_mode={shown(threading_mode)}: must be {SHARED} or {DEDICATED}")
        check_parts({"archive": archive, "consensus_module": consensus_module, "container": container}, _OWN_SETTINGS)
        membership = members_given(members, member_id, host, port)
        is_temporary = directory is None
        check_paths(directory=directory, aeron_dir=aeron_dir)
        where = Path(
            tempfile.mkdtemp(prefix="aeron-node-")
            if directory is None
            else created_directory("directory", os.fspath(directory))
        )
        driver_dir = os.fspath(aeron_dir) if aeron_dir is not None else aeron_dir_of(where)
        node = cls(where, driver_dir, membership, on_end)
        try:
            if is_temporary:
                node._closing.callback(shutil.rmtree, where, ignore_errors=True)
            node._lock_directory()
            node._launch(services, driver, archive, consensus_module, container, threading_mode == SHARED)
            node._await_leader(timeout)
            if on_ready is not None:
                on_ready()
        except BaseException:
            node.close()
            raise
        finally:
            node._is_launching = False
            close_at_end(node, Stage.NODE)
        if node._ended:
            node._close_by_itself()
        return node

    def _lock_directory(self) -> None:
        """Keep other nodes out, check whose log is there, and free at once what a node holds that was killed here."""
        self._lock = DirectoryLock(self.directory)
        self._closing.callback(self._lock.close)
        self._membership.check_directory(self.directory)
        self._lock.free_files_of_the_dead()
        self._membership.note(self.directory)

    def _launch(
        self,
        services: tuple[ClusteredService | ServiceHandler | ServiceProcess, ...],
        driver: Mapping[str, Any],
        archive: Mapping[str, Any],
        consensus_module: Mapping[str, Any],
        container: Mapping[str, Any],
        is_shared: bool,
    ) -> None:
        where = {"aeron_dir": self.aeron_dir}
        cluster_dir = self.directory / "cluster"
        own = self._membership.own
        with _named("driver"):
            settings = {"term_buffer_sparse_file": True, **validate_driver_settings(driver)}
            invoked = self._launch_driver(settings, is_shared)
        if is_shared:
            self._member = self._shared = SharedContext("node", invoked)
            has_processes = any(isinstance(each, ServiceProcess) for each in services)
            # A callback must not keep a member of several from the others.
            if has_processes or not self._membership.is_one:
                self._shared = SharedContext("services", None)
        with _named("consensus_module"):
            module = ConsensusModuleContext(
                **{
                    "cluster_dir": cluster_dir,
                    "cluster_member_id": own.id,
                    "cluster_members": self._membership.cluster_members,
                    "ingress_channel": "aeron:udp",
                    "replication_channel": f"aeron:udp?endpoint={own.any_port}",
                    "is_ipc_ingress_allowed": True,
                    "service_count": len(services),
                    **where,
                    **consensus_module,
                },
                use_agent_invoker=is_shared,
            )
            if self._member is not None and self._member is not self._shared:
                self._member.idle_as(module)
            own_streams = (module.settings.log_stream_id, module.settings.snapshot_stream_id)
        with _named("archive"):
            self._start(
                Archive,
                ArchiveContext(
                    cluster_stream_ids=(*own_streams, container.get("snapshot_stream_id", SERVICE_SNAPSHOT_STREAM_ID)),
                    **{
                        "archive_dir": self.directory / "archive",
                        "control_channel": f"aeron:udp?endpoint={own.archive}",
                        "replication_channel": f"aeron:udp?endpoint={own.any_port}",
                        **where,
                        **archive,
                        "threading_mode": "INVOKER" if is_shared else "SHARED",
                    },
                ),
                self._member,
            )
        if self._membership.is_one:
            check_log_is_named(cluster_dir, self.directory / "archive", module.settings.log_stream_id)
        with _named("container"):  # before the consensus module starts, and a member that others see
            common = {"cluster_dir": cluster_dir, **where, **of_both(consensus_module), **container}
            contexts = [
                Context(
                    None if isinstance(service, ServiceProcess) else service,
                    **{"service_id": service_id, **common},
                    use_agent_invoker=is_shared,
                )
                for service_id, service in enumerate(services)
            ]
            for context in contexts:
                _ = context.settings  # checks the values
        with _named("consensus_module"):
            self._start(ConsensusModule, module, self._member)
        with _named("container"):
            for service_id, (service, context) in enumerate(zip(services, contexts, strict=True)):
                if isinstance(service, ServiceProcess):
                    self._start_process(service, {"service_id": service_id, **common})
                    continue
                if self._shared is not None:
                    self._shared.prepare(context)
                self._start(ClusteredServiceContainer, context, self._shared)
        for each in dict.fromkeys((self._member, self._shared)):
            if each is not None and each.has_parts:
                self._threads[each] = thread = SharedThread(each)
                thread.start()

    def _launch_driver(self, settings: dict[str, Any], is_shared: bool) -> MediaDriver | None:
        """Start the driver, and return it where it has no threads of its own."""
        threading = settings.setdefault("threading", "INVOKER" if is_shared else "SHARED")
        if threading == "INVOKER" and not is_shared:
            raise ConfigurationError('threading="INVOKER": must have threads, unless threading_mode is SHARED')
        driver = MediaDriver.launch_embedded(self.aeron_dir, **settings)
        self._closing.callback(driver.close)
        self._note(Path(self.aeron_dir, CNC_FILE_NAME))
        return driver if threading == "INVOKER" else None

    def _start(self, make: type[Part], context: Any, shared: SharedContext | None) -> None:
        """Make a part, and start it on a thread of its own unless it shares one."""
        part: Part = make(context, on_end=lambda: self._part_ended(part))
        self._parts.append(part)
        self._note(getattr(context.mark_file, "path", None))  # a container may have one of another kind
        if self._shared is not None and isinstance(part, ConsensusModule):
            self._shared.module = part
        if shared is None:
            part.start()
        else:
            shared.add(part)

    def _start_process(self, service: ServiceProcess, settings: dict[str, Any]) -> None:
        self._parts.append(service)
        service_id = settings.pop("service_id")
        service.start(self.directory, service_id, settings, lambda: self._part_ended(service))

    def _note(self, path: str | os.PathLike[str] | None) -> None:
        if self._lock is not None and path is not None:
            self._lock.note(path)

    def _part_ended(self, part: Part | ServiceProcess) -> None:
        self._ended.append(part)
        self._has_ended.set()
        try:
            if self._on_end is not None:
                self._on_end()
        finally:
            if not (self._is_launching or self._is_closed):
                self._close_by_itself()

    def _close_by_itself(self) -> None:
        """Close what is left when a part has ended, on another thread than the parts have."""
        try:
            threading.Thread(target=self._close_left, name="node-close", daemon=True).start()
        except RuntimeError as error:  # the program's close() does it, or the end of the process
            report("error", "the node has ended and is not closed: no thread for that: %s", message_of(error))

    def _close_left(self) -> None:
        try:
            self.close()
        except Exception as error:
            report("error", "the node was not closed cleanly: %s", message_of(error))

    def _await_leader(self, timeout: float | None) -> None:
        if timeout is None:
            timeout = _LAUNCH_TIMEOUT_S if self._membership.is_one else math.inf
        begin = time.monotonic()
        agent = self._module().context.agent
        wait_log = WaitLog("the node")
        while not agent.has_leader or self._has_ended.is_set():
            if self._has_ended.wait(_POLL_S):
                self.close()  # the others end as well: one of them may have the cause
                failures = [each for each in (part.failure for part in self._ended) if _is_cause(each)]
                if not failures and self.failure is not None:
                    failures = [self.failure]
                is_shown = self.has_error_messages
                reasons = "; ".join([message_of(each, is_shown=is_shown) for each in failures]) or "closed"
                raise ClusterError(f"the node ended while it started: {reasons}") from self._shown_cause(*failures)
            if self._membership.is_one:
                if time.monotonic() - begin > timeout:
                    raise TimedOutError(f"the node does not lead after {timeout:g} s: its service replays, or waits")
                continue
            what = waited_for(agent.members.others())
            wait_log.tick(what, time.monotonic_ns())
            if time.monotonic() - begin > timeout:
                raise TimedOutError(f"member {self.member_id} has no leader after {timeout:g} s: it waits for {what}")

    def _shown_cause(self, *failures: BaseException | None) -> BaseException | None:
        """The first of these, unless its message may not be shown: whoever prints the error prints its cause as well.

        Its part has logged it, and where it was raised.
        """
        return next(iter(failures), None) if self.has_error_messages else None

    def take_snapshot(self, timeout: float = _SNAPSHOT_TIMEOUT_S) -> None:
        """Take a snapshot of services and consensus module, and wait for it; the next start begins there.

        Afterwards another can be asked for, and the operator's tools are not refused for this one. For any thread but
        those of its parts.

        Args:
            timeout: maximum seconds until it is taken.

        Raises:
            ClusterError: the node has ended; or it continues, and another member leads, or the snapshot was refused or
                has failed, such as for too little space on the disk.
            TimedOutError: it was not taken in time: a callback takes long, or a tool has asked for something else.
            ForkedError: in a forked child.
        """
        if self._parent_id:
            raise forks.refusal("take a snapshot", "a node", self._parent_id)
        end = time.monotonic() + timeout
        agent = self._module().context.agent
        before = agent.snapshot_count
        is_requested = False
        while not is_requested or agent.snapshot_count == before or agent.is_taking_snapshot:
            is_requested = is_requested or agent.request_snapshot()
            leader = self.leader_member_id
            if not is_requested and leader not in (None, self.member_id):
                raise ClusterError(
                    f"no snapshot was asked for: member {leader} leads, and this is member {self.member_id}: ask there"
                )
            if self._has_ended.wait(_POLL_S):
                if agent.snapshot_count != before:
                    return
                raise ClusterError("the node has ended: no snapshot was taken") from self._shown_cause(self.failure)
            if is_requested and agent.snapshot_failure is not None:
                raise ClusterError(f"no snapshot was taken: {agent.snapshot_failure}")
            if time.monotonic() > end:
                state = "asked for and not taken" if is_requested else "not asked for: another request is in progress"
                raise TimedOutError(f"a snapshot was {state} after {timeout:g} s")

    @property
    def leader_member_id(self) -> int | None:
        """Which member leads (int), as this one knows; None while it has no leader, and once it has ended."""
        agent = self._module().context.agent
        if not (self.is_running and agent.has_leader):
            return None
        return next((each.id for each in agent.members.members if each.is_leader), None)

    def _module(self) -> ConsensusModule:
        return next(part for part in self._parts if isinstance(part, ConsensusModule))

    def _disown(self, process_id: int) -> None:
        self._parent_id = process_id
        self._has_ended = threading.Event()  # a thread that no longer exists may hold the lock of the other
        self._has_ended.set()

    @property
    def is_running(self) -> bool:
        """True until the first of its parts has ended; False in a forked child."""
        return not self._has_ended.is_set()

    @property
    def failure(self) -> BaseException | None:
        """The reason for its end: the failure of the first part that failed on its own.

        None while all parts run, and after an end by a tool or :meth:`close`.
        """
        failures = [part.failure for part in self._ended]
        failure = failures[0] if failures else None
        if failure is not None and not getattr(failure, "is_expected", False):
            failure = next(filter(_is_cause, failures), failure)
        if failure is None:  # of no part: such as SystemExit in an authenticator
            failure = next(filter(None, [each.agent.termination for each in self._threads]), None)
        return None if getattr(failure, "is_expected", False) else failure

    @property
    def has_error_messages(self) -> bool:
        """Whether texts may have the messages of what services raise: ``record_error_messages`` of the containers."""
        found = [part.context.settings for part in self._parts if isinstance(part, ClusteredServiceContainer)]
        return all(settings.record_error_messages for settings in found)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until a part has ended; return True if one has within ``timeout`` seconds (None: no limit).

        The node then closes the others, on a thread of its own; :meth:`close` waits for that. Raises ForkedError in a
        forked child.
        """
        if self._parent_id:
            raise forks.refusal("wait for the end of the node", "a node", self._parent_id)
        return self._has_ended.wait(timeout)

    def close(self) -> None:
        """End services, consensus module, archive and driver, and wait for that; remove a temporary directory.

        Any thread may call it, also twice: the second call waits for the first, except in a signal handler on its
        thread. From inside a callback of a part, and from ``on_end``, the end is only asked for: close it on another
        thread as well. In a forked child nothing happens.

        A callback in progress is finished; one that still idles after 5 seconds is ended. Where Ctrl-C interrupts the
        wait for it, driver and directory stay the node's until the callback has ended.
        """
        if self._parent_id:
            return
        if any(each.is_on_this_thread for each in (*self._parts, *self._threads.values())):
            self._ask_to_end()
            return
        with self._close_guard:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._close_parts()
            finally:
                # If the wait for a callback is interrupted, as by Ctrl-C, driver and lock stay with the parts that
                # still run.
                self._is_closed = not any(part.is_running for part in self._parts)
                if self._is_closed:
                    self._closing.close()

    def _close_parts(self) -> None:
        services = None if self._shared is None else self._threads.get(self._shared)
        if services is None:
            self._ask_to_end()
        with ExitStack() as closing:
            # The services are closed first, and come last. A thread closes its parts.
            for thread in self._threads.values():
                if thread is not services:
                    closing.callback(thread.close)
            for part in self._parts:
                if self._context_of(part) not in self._threads:
                    closing.callback(part.close)
            if services is not None:
                closing.callback(services.close)

    def _context_of(self, part: Part | ServiceProcess) -> SharedContext | None:
        """The context of the thread that a part shares; None where it shares none."""
        if isinstance(part, ServiceProcess):
            return None
        return self._shared if isinstance(part, ClusteredServiceContainer) else self._member

    def _ask_to_end(self) -> None:
        """Ask the services alone: the other parts stay while a callback idles, and are closed after all services."""
        if self._shared is not None and self._shared in self._threads:
            self._threads[self._shared].ask_to_end()
            return
        for part in self._parts:
            if isinstance(part, ConsensusModule):
                part.expect_services_to_end()
            elif isinstance(part, ClusteredServiceContainer) and self._shared is None:
                part.ask_to_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else f"ended: {self.failure!r}"
        return f"<ClusterNode {self.ingress_endpoints} {state}>"


def aeron_dir_of(directory: Path) -> str:
    """The media driver's directory for a node's: the same at each start, and in memory where the system has that."""
    if not _SHARED_MEMORY.is_dir():
        return str(directory / "driver")
    path = os.fsencode(directory.resolve())  # hashlib loads libcrypto, 4 MiB
    return str(_SHARED_MEMORY / f"aeron-node-{zlib.crc32(path):08x}{zlib.crc32(path[::-1]):08x}")


def waited_for(others: Iterable[Any]) -> str:
    """Return what a member without a leader waits for: those of the others of which it has not heard."""
    silent = [str(each.id) for each in others if each.log_position == _NULL_POSITION]
    if not silent:
        return "the election of a leader"
    names = " and ".join(filter(None, [", ".join(silent[:-1]), silent[-1]]))
    return f"member{'s' if len(silent) > 1 else ''} {names}, of which it has not heard"


def check_parts(settings: Mapping[str, Mapping[str, Any]], own: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigurationError for settings of parts that the node decides, or that differ between its parts."""
    for part, reasons in own.items():
        for name, reason in reasons.items():
            if name in settings.get(part, _NOTHING):
                raise ConfigurationError(f"{part}: leave out {name}={shown(settings[part][name])}: the node's {reason}")
    module, containers = (settings.get(part, _NOTHING) for part in ("consensus_module", "container"))
    for name in OF_BOTH:
        if name in containers and containers[name] != module.get(name):
            raise ConfigurationError(
                f"container: leave out {name}={shown(containers[name])}, and set it for consensus_module: "
                "the containers take it from there"
            )


def of_both(consensus_module: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that the containers take from the consensus module's."""
    return {name: consensus_module[name] for name in OF_BOTH if name in consensus_module}


def check_paths(**paths: str | os.PathLike[str] | None) -> None:
    """Raise ConfigurationError for what is given and no path."""
    for name, path in paths.items():
        if path is not None and not is_path(os.fspath(path) if isinstance(path, os.PathLike) else path):
            raise ConfigurationError(f"{name}={shown(path)}: must be a path in UTF-8, not empty and without NUL")


def _is_cause(failure: BaseException | None) -> TypeGuard[BaseException]:
    """Whether a failure is one of its own: the end of another part brings the others to an end."""
    if isinstance(failure, ClusterTermination):
        return bool(failure.reason)
    # A service that cannot say anything to its consensus module is left behind by that.
    return failure is not None and not isinstance(failure, AgentInterrupted | PublicationUnavailableError)


launch_node = ClusterNode.launch
"""The same as :meth:`ClusterNode.launch`."""
