"""Java's node in a JVM of its own, and the services' containers in this process: ``aeron-cluster node --java``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from container.api import ClusteredService
from container.clustered_service_container import ClusteredServiceContainer
from container.common.directories import created_directory
from container.common.error_texts import message_of
from container.common.loggers import report
from container.common.process_end import Stage, close_at_end
from container.common.values import shown, suggestion
from container.context import Context
from container.errors import ClusterError, ConfigurationError
from container.files.directory_lock import DirectoryLock
from container.node.cluster_node import (
    COMMON_OWN_SETTINGS,
    aeron_dir_of,
    check_parts,
    check_paths,
    of_both,
)
from container.node.members import Membership, members_given
from container.operate.answers import NoFactsError
from container.operate.status import read_status
from container.service.service_handler import ServiceHandler
from container.settings.archive_table import ArchiveSettings
from container.settings.consensus_module_table import ConsensusModuleSettings
from container.settings.driver_table import DriverSettings
from container.settings.java_properties import JAVA_PROPERTIES
from container.settings.setting import Setting, table_of
from container.settings.sources import parse_text
from container.testing.processes.java_tools import AERON_FLAGS, java_command, resolve_jar
from container.testing.processes.process import Process

_MAIN_CLASS = "io.aeron.cluster.ClusteredMediaDriver"
_IDLE_STRATEGIES = {"noop": "noop", "busy_spin": "spin", "yield": "yield", "backoff": "backoff"}
_HELP = "docs/consensus-module.md"
_INVOKER = "INVOKER"
_STOP_LIMIT_S = 30.0
_POLL_S = 0.1


class JavaNode:
    """A member whose driver, archive and consensus module are Java's; a context manager that ends all of it.

    The JVM gets the settings as system properties, under Aeron's names, and ends with this process at the latest.
    """

    def __init__(self, directory: Path, aeron_dir: str, membership: Membership, on_end: Callable[[], object]) -> None:
        """Make the empty node, which :meth:`launch` fills."""
        self.directory, self.aeron_dir, self._membership = directory, aeron_dir, membership
        self.member_id = membership.own.id
        self.ingress_endpoints = membership.ingress_endpoints
        self._on_end = on_end
        self._containers: list[ClusteredServiceContainer] = []
        self._closing = ExitStack()
        self._is_closed = threading.Event()
        self._has_ended = threading.Event()
        self._close_guard = threading.RLock()  # a signal handler may close it while its thread does
        self._is_jvm_told_to_end = False

    @classmethod
    def launch(
        cls,
        *services: ClusteredService | ServiceHandler,
        directory: str,
        host: str | None = None,
        port: int | None = None,
        members: Sequence[Mapping[str, Any]] | None = None,
        member_id: int | None = None,
        aeron_dir: str | None = None,
        on_ready: Callable[[], object],
        on_end: Callable[[], object],
        **settings: Mapping[str, Any],
    ) -> JavaNode:
        """Start the JVM and the containers, and return once there is a leader.

        Args:
            services, directory, host, port, members, member_id, aeron_dir: as for :meth:`ClusterNode.launch`.
            on_ready: called when there is one, just before the node is returned; what it raises closes the node.
            on_end: called on another thread when the JVM or a container has ended.
            settings: by part, ``driver``, ``archive``, ``consensus_module`` and ``container``: settings by name.

        Raises:
            ConfigurationError: a setting that Java's node does not have, or a value that it does not take.
            ClusterError: a port cannot be had, or the JVM or a container ended while it started.
            MarkFileError: another node runs on the directory.
            JavaError: there is no Java, or no jar of Aeron; the environment variable AERON_JAR names one.
            ContainerError, OSError: a container cannot be made, see :meth:`ClusteredServiceContainer.launch`.
        """
        check_parts(settings, COMMON_OWN_SETTINGS)
        if settings.get("archive", {}).get("threading_mode") == _INVOKER:
            raise ConfigurationError(
                f'archive: leave out threading_mode="{_INVOKER}": nobody invokes the parts of Java\'s node'
            )
        membership = members_given(members, member_id, host, port)
        check_paths(directory=directory, aeron_dir=aeron_dir)
        where = Path(created_directory("directory", directory))
        node = cls(where, aeron_dir if aeron_dir is not None else aeron_dir_of(where), membership, on_end)
        try:
            node._closing.callback(DirectoryLock(where).close)
            membership.check_directory(where)
            membership.note(where)
            node._start_jvm(len(services), settings)
            for service_id, service in enumerate(services):
                node._start_container(service, service_id, settings)
            node._await_leader()
            on_ready()
        except BaseException:
            node.close()
            raise
        finally:
            close_at_end(node, Stage.NODE)
        return node

    def _start_jvm(self, service_count: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
        own = self._membership.own
        properties = {
            "aeron.dir": self.aeron_dir,
            "aeron.dir.delete.on.shutdown": "true",
            "aeron.archive.dir": str(self.directory / "archive"),
            "aeron.archive.control.channel": f"aeron:udp?endpoint={own.archive}",
            "aeron.archive.replication.channel": f"aeron:udp?endpoint={own.any_port}",
            "aeron.archive.recording.events.enabled": "false",
            "aeron.cluster.dir": str(self.directory / "cluster"),
            "aeron.cluster.member.id": str(own.id),
            "aeron.cluster.members": self._membership.cluster_members,
            "aeron.cluster.ingress.channel": "aeron:udp",
            "aeron.cluster.ingress.ipc.allowed": "true",
            "aeron.cluster.replication.channel": f"aeron:udp?endpoint={own.any_port}",
            "aeron.cluster.service.count": str(service_count),
            **_properties("driver", settings, table_of(DriverSettings)),
            **_properties("archive", settings, table_of(ArchiveSettings)),
            **_properties("consensus_module", settings, table_of(ConsensusModuleSettings)),
        }
        command = java_command(_MAIN_CLASS, [resolve_jar()], properties=properties, flags=AERON_FLAGS)
        self._jvm = Process("java-node", command, directory=self.directory)
        self._closing.callback(self._end_jvm)
        self._jvm.start()
        threading.Thread(target=self._watch, name="java-node", daemon=True).start()

    @property
    def leader_member_id(self) -> int | None:
        """Its own id while it leads; Java's node does not say in its files which of the others does."""
        with suppress(NoFactsError):
            found = read_status(self.directory / "cluster")
            if found.role == "LEADER" and found.election_state == "CLOSED":
                return self.member_id
        return None

    def _start_container(
        self,
        service: ClusteredService | ServiceHandler,
        service_id: int,
        settings: Mapping[str, Mapping[str, Any]],
    ) -> None:
        where = {
            "aeron_dir": self.aeron_dir,
            "cluster_dir": self.directory / "cluster",
            "service_id": service_id,
            "driver_timeout_ms": 60_000,  # a JVM that starts on a busy machine takes longer than the usual 10 s
            **of_both(settings.get("consensus_module", {})),
            **settings.get("container", {}),
        }
        container = ClusteredServiceContainer(Context(service, **where), on_end=self._part_ended)
        self._closing.callback(container.close)
        self._containers.append(container)
        container.start()

    def _watch(self) -> None:
        while not self._is_closed.wait(_POLL_S):
            if not self._jvm.is_running:
                self._part_ended()
                return

    def _part_ended(self) -> None:
        self._has_ended.set()
        self._on_end()

    def _await_leader(self) -> None:
        while not self._has_leader():
            if self._has_ended.wait(_POLL_S):
                failure = self.failure
                reason = "closed" if failure is None else message_of(failure, is_shown=self.has_error_messages)
                raise ClusterError(f"the node ended while it started: {reason}") from failure

    def _has_leader(self) -> bool:
        try:
            found = read_status(self.directory / "cluster")
        except NoFactsError:  # the JVM has not begun
            return False
        return (found.pid, found.election_state) == (self.pid, "CLOSED")

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._jvm.pid

    @property
    def failure(self) -> BaseException | None:
        """The cause of its end; None while it runs, and when a tool or :meth:`close` ended it."""
        for each in self._containers:
            if each.failure is not None and not getattr(each.failure, "is_expected", False):
                return each.failure
        if not (self._is_jvm_told_to_end or self._jvm.is_running) and self._jvm.return_code != 0:
            return ClusterError(f"Java's node ended with {self._jvm.return_code}: see {self._jvm.err_path}")
        return None

    @property
    def has_error_messages(self) -> bool:
        """Whether texts may have the messages of what services raise: ``record_error_messages`` of the containers."""
        return all(each.context.settings.record_error_messages for each in self._containers)

    def _end_jvm(self) -> None:
        try:
            if self._jvm.is_running:
                self._is_jvm_told_to_end = True
                self._jvm.stop(_STOP_LIMIT_S)
        except TimeoutError as error:
            report("warning", "%s: it is killed", error)
        finally:
            self._jvm.close()

    def close(self) -> None:
        """End the containers and then the JVM, in order; kill it if it has not ended after 30 seconds.

        Any thread may call it, also twice: the second call waits for the first, except in a signal handler on its
        thread.
        """
        with self._close_guard:
            self._is_closed.set()
            self._closing.close()

    def __enter__(self) -> JavaNode:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _properties(part: str, settings: Mapping[str, Mapping[str, Any]], table: Mapping[str, Setting]) -> dict[str, str]:
    """The settings of a part as system properties; quantities as numbers, as Java takes no unit for some of them."""
    names = {name: setting.property for name, setting in table.items() if setting.property in JAVA_PROPERTIES}
    found = {}
    for name, value in settings.get(part, {}).items():
        if name not in names:
            if name == "snapshots_retained":
                raise ConfigurationError(
                    f"{part}: snapshots_retained={shown(value)}: Java's node keeps all snapshots; leave it out, and "
                    "delete old ones by `aeron-cluster archive delete-snapshots`"
                )
            raise ConfigurationError(
                f"{part}: Java's node has no setting {shown(name)}: {suggestion(name, names, _HELP)}"
            )
        if table[name].unit and isinstance(value, str):
            try:
                value = parse_text(table[name], value)
            except ConfigurationError as error:
                raise ConfigurationError(f"{part}: {name}={shown(value)}: {error}") from None
        if name == "idle_strategy":
            if value not in _IDLE_STRATEGIES:
                raise ConfigurationError(
                    f"{part}: idle_strategy={shown(value)}: Java's node takes {', '.join(_IDLE_STRATEGIES)}"
                )
            value = _IDLE_STRATEGIES[value]
        found[names[name]] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
