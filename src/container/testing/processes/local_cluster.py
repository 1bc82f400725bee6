"""Clusters of up to seven members as real processes: start, kill, stop, restart, wipe and cut off each part.

A member is a node (:class:`~container.testing.node.Node`) with its services. Media driver, archive, consensus module
and services of each are Java's or this package's, and a restart may change them. Members listen on addresses of their
own: 127.0.0.1, 127.0.0.2, … or, in a :class:`~container.testing.network.Network`, on hosts of their own, which can be
cut off.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from container.common import forks
from container.common.aeron_defaults import CounterType
from container.common.values import counted
from container.errors import ContainerError
from container.files.cnc_file import CncFile
from container.testing.processes.endpoints import (
    HOST,
    MEMBER_COUNTS,
    PORTS_APART,
    MemberEndpoints,
    PortReservation,
    ingress_endpoints,
)
from container.testing.processes.java_tools import JVM_FLAGS, as_environment
from container.testing.processes.local_archive import ArchiveKind, known_kind
from container.testing.processes.network import Network
from container.testing.processes.node import ModuleState, Node, make_directory
from container.testing.processes.process import Process, ProcessEndedError, ToolResult, wait_until

__all__ = [
    "QUICK_FAILOVER",
    "SMALL_JVM_FLAGS",
    "CounterType",
    "JavaService",
    "LocalCluster",
    "LocalMember",
    "ModuleState",
    "Node",
    "Service",
    "ToolResult",
    "as_environment",
]

QUICK_FAILOVER: Mapping[str, str] = {
    "aeron.cluster.leader.heartbeat.interval": "200ms",
    "aeron.cluster.leader.heartbeat.timeout": "2s",
    "aeron.cluster.startup.canvass.timeout": "4s",
    "aeron.cluster.election.timeout": "1s",
    "aeron.cluster.election.status.interval": "100ms",
    "aeron.cluster.termination.timeout": "5s",
    "aeron.client.liveness.timeout": "4s",
    "aeron.driver.timeout": "5000",
    "aeron.image.liveness.timeout": "2s",
    "aeron.publication.connection.timeout": "2s",
    "aeron.publication.linger.timeout": "1s",
    "aeron.timer.interval": "500ms",
}
"""Properties of every member of a :class:`LocalCluster`: a new leader is there some 3 s after the old one died.

Upstream's own defaults wait five times as long. These still leave room for the pauses of a machine with two cores.
"""

SMALL_JVM_FLAGS = (*JVM_FLAGS, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Xss512k")
"""Options of a JVM of which several share a test machine: a small heap, and little time spent on compiling."""

_CLIENT_DRIVER_LIMIT_S = 30.0


@dataclass(frozen=True)
class Service:
    """A service container as a program, such as ``Service([sys.executable, "my_service.py"])``."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, node: Node, service_id: int) -> Process:
        """Start it on a node, which passes its place in environment variables."""
        return node.start_service(self.command, service_id, self.environment)


@dataclass(frozen=True)
class JavaService:
    """Java's own service container with a ``ClusteredService`` of the class path, for comparison."""

    class_name: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def start(self, node: Node, service_id: int) -> Process:
        """Start it on a node, which passes its place in system properties."""
        return node.start_java_service(self.class_name, service_id, self.properties)


type Services = Sequence[Service | JavaService]
type Kinds = ArchiveKind | Sequence[ArchiveKind | None] | None


class LocalMember:
    """A node and its services. Control its parts through :attr:`node` and :attr:`services`, or all of it here."""

    def __init__(self, node: Node, services: Services) -> None:
        self.node = node
        self._services = tuple(services)

    def __repr__(self) -> str:
        return f"<LocalMember {self.member_id}>"

    @property
    def member_id(self) -> int:
        """The id of the member in its cluster."""
        return self.node.member_id

    @property
    def services(self) -> list[Process]:
        """The processes of the services, in the order of their ids; empty before the first start."""
        return self.node.services

    @property
    def service(self) -> Process:
        """The process of the first service.

        Raises:
            ContainerError: it was never started.
        """
        if not self.services:
            raise ContainerError(f"member {self.member_id} has no service yet; call start()")
        return self.services[0]

    @property
    def is_running(self) -> bool:
        """Whether the node and all services run, also while they are paused."""
        services = self.services
        return self.node.is_running and len(services) == len(self._services) and all(s.is_running for s in services)

    @property
    def has_ended(self) -> bool:
        """Whether neither the consensus module nor any service runs.

        A driver and an archive that are separate processes outlive their consensus module; :meth:`restart` kills them.
        """
        return not any(process.is_running for process in (self.node.process, *self.services))

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, and its services run."""
        return self.is_running and self.node.is_leader

    @property
    def ended_parts(self) -> list[Process]:
        """The processes of node and services that were started and have ended, though each of them is needed."""
        parts = dict.fromkeys((self.node.driver, self.node.archive, self.node.process, *self.services))
        return [part for part in parts if part.has_ended]

    def start(self) -> Self:
        """Start the node, and the services as soon as its driver is ready; nothing else is awaited.

        Raises:
            ContainerError: a part still runs.
            TimeoutError, ProcessEndedError: the driver does not become ready.
        """
        self.node.start()
        return self.start_services()

    def start_services(self) -> Self:
        """Start all services as soon as the node's driver is ready: they give it up after ``aeron.driver.timeout``.

        Raises:
            as :meth:`start`.
        """
        if self._services:
            self.node.await_driver()
        for service_id in range(len(self._services)):
            self.start_service(service_id)
        return self

    def start_service(self, service_id: int = 0) -> Process:
        """Start one service alone.

        Raises:
            ContainerError: it still runs.
        """
        return self._services[service_id].start(self.node, service_id)

    def kill(self) -> None:
        """End the services and the node immediately (SIGKILL)."""
        for service in self.services:
            service.kill()
        self.node.kill()

    def stop(self, limit_s: float = 30.0) -> None:
        """Ask services, then the node, for an orderly end (SIGTERM).

        Raises:
            TimeoutError: a part still runs after ``limit_s`` seconds.
        """
        for service in self.services:
            service.stop(limit_s)
        self.node.stop(limit_s)

    def pause(self) -> None:
        """Stop all parts from running (SIGSTOP) until :meth:`resume`."""
        self.node.pause()
        for service in self.services:
            service.pause()

    def resume(self) -> None:
        """Let all parts run again (SIGCONT)."""
        for service in self.services:
            service.resume()
        self.node.resume()

    def await_end(self, limit_s: float) -> None:
        """Wait until the consensus module and the services have ended, as they do soon after one of them was killed.

        Raises:
            TimeoutError: a part still runs after ``limit_s`` seconds; the text says which.
        """
        parts = (self.node.process, *self.services)
        what = f"all parts of member {self.member_id} to end"
        try:
            wait_until(lambda: self.has_ended, limit_s, what)
        except TimeoutError as error:
            running = ", ".join(f"{part.name} (pid {part.pid})" for part in parts if part.is_running)
            raise TimeoutError(f"{error}: still running: {running}\n{self.node.report()}") from None

    def restart(
        self,
        *,
        services: Services | None = None,
        driver: ArchiveKind | None = None,
        archive: ArchiveKind | None = None,
        consensus_module: ArchiveKind | None = None,
    ) -> Self:
        """Kill what runs, free the mark files of the dead, and start node and services with the same files.

        Args:
            services: as many others, which take the place of the old ones, such as a new release of each, or
                containers of the other kind.
            driver, archive, consensus_module: ``java`` or ``native``: the kind of the part from now on.

        Raises:
            ContainerError: their number is another one, or a kind is unknown.
            JavaError: there is no JVM for a part that becomes Java's, or Aeron's jar cannot be fetched.
        """
        if services is not None:
            self.replace_services(services)
        self.kill()
        if driver or archive or consensus_module:
            self.node.become(driver=driver, archive=archive, consensus_module=consensus_module)
        self.node.release_mark_files()
        return self.start()

    def replace_services(self, services: Services) -> None:
        """Replace the services, from the next start on.

        Raises:
            ContainerError: their number is another one.
        """
        if len(services) != len(self._services):
            raise ContainerError(f"{counted(len(services), 'service')}: the node expects {len(self._services)}")
        self._services = tuple(services)

    def wipe(self) -> None:
        """Remove all that the member has stored, as if its disk were new: log, snapshots, mark files.

        Raises:
            ContainerError: a part still runs.
        """
        if not (self.has_ended and self.node.has_ended):
            raise ContainerError(f"member {self.member_id} still runs; kill it before wiping its directories")
        for directory in (self.node.aeron_dir, self.node.archive_dir, self.node.cluster_dir):
            shutil.rmtree(directory, ignore_errors=True)


class LocalCluster:
    """Members as real processes, with handles to each part. Ends everything with :meth:`close` or ``with``."""

    def __init__(
        self,
        services: Services | Mapping[int, Services],
        *,
        member_count: int = 3,
        base_dir: Path | None = None,
        network: Network | None = None,
        separate_processes: Collection[int] = (),
        drivers: Kinds = None,
        archives: Kinds = None,
        consensus_modules: Kinds = None,
        properties: Mapping[str, str] | None = None,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        class_path: Sequence[Path] = (),
        idle_strategy: str = "backoff",
        jvm_flags: Sequence[str] = SMALL_JVM_FLAGS,
    ) -> None:
        """Choose directories and addresses; nothing is started.

        Args:
            services: what runs on every member, or by member id what runs on each: a mixed cluster.
            member_count: 1, 3, 5 or 7.
            base_dir: where the members' directories are; made if needed and left in place by :meth:`close`. When not
                given, a new directory, in memory where possible, which :meth:`close` removes.
            network: with hosts named by :meth:`network_hosts`; the members run there. It is not closed here.
            separate_processes: ids of members whose driver, archive and consensus module are a process each.
            drivers, archives, consensus_modules: whose each member has, in separate processes: ``java`` or ``native``
                for all, or one for each member: None where :class:`~container.testing.node.Node` chooses.
            properties: of every node, on top of :data:`QUICK_FAILOVER`.
            environments: by member id, variables of all processes of a member.
            class_path, idle_strategy, jvm_flags: as for :class:`~container.testing.node.Node`.

        Raises:
            ContainerError: a value is refused, or there are no free ports.
            JavaError: there is no JVM, or Aeron's jar cannot be fetched.
        """
        given = {"drivers": drivers, "archives": archives, "consensus_modules": consensus_modules}
        kinds = {name: _kind_of_each(name, value, member_count) for name, value in given.items()}
        self._take_places(member_count, base_dir, network)
        settings: dict[str, Any] = {
            "properties": {**QUICK_FAILOVER, **(properties or {})},
            "class_path": class_path,
            "idle_strategy": idle_strategy,
            "jvm_flags": jvm_flags,
        }
        for member_id in range(member_count):
            of_member = services[member_id] if isinstance(services, Mapping) else services
            node = Node(
                member_id=member_id,
                members=self.endpoints,
                service_count=len(of_member),
                base_dir=self.base_dir / f"member-{member_id}",
                separate_processes=member_id in separate_processes,
                driver=kinds["drivers"][member_id],
                archive=kinds["archives"][member_id],
                consensus_module=kinds["consensus_modules"][member_id],
                network_namespace=self._namespace_of(member_id),
                environment=(environments or {}).get(member_id),
                **settings,
            )
            self.members.append(LocalMember(node, of_member))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.members)} members in {self.base_dir}>"

    def _take_places(
        self, member_count: int, base_dir: Path | None, network: Network | None, first: tuple[str, int] | None = None
    ) -> None:
        """Choose directory and addresses: those of the network, those from a host's port on, or free ones."""
        if member_count not in MEMBER_COUNTS:
            raise ContainerError(f"member_count must be one of {MEMBER_COUNTS}, not {member_count}")
        self.network = network
        self._owns_base_dir = base_dir is None
        forks.own(self)
        self.base_dir = base_dir or make_directory("aeron-cluster-")
        self._reservations: list[PortReservation] = []
        self.endpoints = tuple(self._take_endpoints(member_id, first) for member_id in range(member_count))
        self._drivers: list[Process] = []
        self.members: list[LocalMember] = []

    def _namespace_of(self, member_id: int) -> str | None:
        return None if self.network is None else self.network[_host_name(member_id)].namespace

    @staticmethod
    def network_hosts(member_count: int = 3) -> list[str]:
        """Return the names of the hosts that a network for a cluster has: one for each member, one for clients."""
        return [*(_host_name(member_id) for member_id in range(member_count)), _CLIENT_HOST]

    def _take_endpoints(self, member_id: int, first: tuple[str, int] | None) -> MemberEndpoints:
        if self.network is not None:
            return MemberEndpoints.fixed(member_id, self.network[_host_name(member_id)].address)
        if first is not None:
            return MemberEndpoints.row(member_id, first[0], first[1] + member_id * PORTS_APART)
        ports = PortReservation(_loopback_address(member_id))
        self._reservations.append(ports)
        return MemberEndpoints.take(member_id, ports)

    # Life

    def start(self) -> Self:
        """Start all members; :meth:`await_leader` and :meth:`await_ready` wait for them.

        Raises:
            as :meth:`LocalMember.start`.
        """
        for member in self.members:
            member.node.start()
        for member in self.members:
            member.start_services()
        return self

    def _disown(self, _process_id: int) -> None:
        """In a forked child: the directories are the parent's to remove."""
        self._owns_base_dir = False

    def close(self) -> None:
        """End all processes, give the ports back and remove the directories; may be called again."""
        for driver in self._drivers:
            driver.close()
        for member in self.members:
            member.resume()
            member.node.close()
        for ports in self._reservations:
            ports.close()
        if self._owns_base_dir:
            shutil.rmtree(self.base_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Roles

    @property
    def leader(self) -> LocalMember | None:
        """The member that leads now, ``None`` while there is none. A member that is cut off may think it leads as well:
        the one with the latest leadership term counts."""
        leading = [member for member in self.members if member.is_leader]
        return max(leading, key=_leadership_term_id, default=None)

    @property
    def followers(self) -> list[LocalMember]:
        """The members that run and do not lead."""
        leader = self.leader
        return [member for member in self.members if member.is_running and member is not leader]

    def await_leader(self, limit_s: float = 60.0, *, other_than: LocalMember | None = None) -> LocalMember:
        """Wait until a member leads, and return it.

        Args:
            limit_s: seconds until giving up.
            other_than: a member whose successor is awaited.

        Raises:
            TimeoutError: nobody leads; the text holds what all members said.
            ProcessEndedError: nobody can: parts of a majority of the members have ended; the text says which.
        """
        return self._await_leader(limit_s, len(self.members) // 2, other_than)

    def _await_leader(self, limit_s: float, ended_members: int, other_than: LocalMember | None = None) -> LocalMember:
        """Give up immediately when parts of more than ``ended_members`` members have ended."""

        def find() -> LocalMember | None:
            leader = self.leader
            return None if leader is other_than else leader

        def missed() -> list[LocalMember]:
            ended = [member for member in self.members if member.ended_parts]
            return ended if len(ended) > ended_members else []

        what = "a member to lead" if other_than is None else f"a member other than {other_than.member_id} to lead"
        return self._wait_until(find, limit_s, what, missed)

    def await_ready(self, limit_s: float = 90.0) -> LocalMember:
        """Wait until all members run with one leader and have committed what it had committed, and return the leader.

        Raises:
            TimeoutError: a member is not ready; the text holds what all members said.
            ProcessEndedError: a part of a member has ended; the text says which.
        """
        leader = self._await_leader(limit_s, 0)
        position = leader.node.commit_position or 0
        for member in self.members:
            what = f"member {member.member_id} to follow the log up to {position}"
            self._wait_until(
                lambda member=member: self._is_at(member, position),  # type: ignore[misc]
                limit_s,
                what,
                lambda: [member for member in self.members if member.ended_parts],
            )
        return self._await_leader(limit_s, 0)

    @staticmethod
    def _is_at(member: LocalMember, position: int) -> bool:
        node = member.node
        return member.is_running and node.election_is_closed and (node.commit_position or -1) >= position

    def _wait_until[T](
        self, predicate: Callable[[], T | None], limit_s: float, what: str, missed: Callable[[], list[LocalMember]]
    ) -> T:
        """``missed`` returns the members whose ended parts make the wait pointless."""

        def ask() -> T | None:
            # Asked before the predicate: actions of a process just before its end still count.
            ended = missed()
            result = predicate()
            if ended and not result:
                texts = [
                    f"{part.name} of member {member.member_id} ended with {part.return_code}"
                    for member in ended
                    for part in member.ended_parts
                ]
                raise ProcessEndedError(f"waited for {what}, but {', '.join(texts)}\n{self.report()}")
            return result

        try:
            return wait_until(ask, limit_s, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.report()}") from None

    # Actions of a cluster

    def take_snapshot(self, limit_s: float = 60.0) -> None:
        """Let the leader take a snapshot, and wait until all running members have taken it.

        Raises:
            ContainerError: there is no leader, or it refused.
            TimeoutError, ProcessEndedError: a member did not take it.
        """
        before = {member: member.node.snapshot_count or 0 for member in self.members if member.is_running}
        self._leader_now().node.take_snapshot(limit_s)
        for member, count in before.items():
            try:
                member.node.await_counter(CounterType.SNAPSHOT_COUNTER, count + 1, limit_s)
            except TimeoutError as error:
                raise TimeoutError(f"{error}\n{self.report()}") from None

    def shut_down(self, limit_s: float = 60.0) -> None:
        """Let all members take a snapshot and end (the tool's ``shutdown``), and wait for their ends.

        Raises:
            ContainerError: there is no leader, or it refused.
            TimeoutError: a member did not end.
        """
        self._end_all("shutdown", limit_s)

    def abort(self, limit_s: float = 60.0) -> None:
        """Let all members end without a snapshot (the tool's ``abort``), and wait for their ends.

        Raises:
            as :meth:`shut_down`.
        """
        self._end_all("abort", limit_s)

    def _end_all(self, action: str, limit_s: float) -> None:
        self._leader_now().node.ask_for(action, limit_s)
        for member in self.members:
            member.await_end(limit_s)

    def _leader_now(self) -> LocalMember:
        leader = self.leader
        if leader is None:
            raise ContainerError("no member leads; call await_leader() first")
        return leader

    # Network

    def cut_off(self, member: LocalMember) -> None:
        """Let nothing pass between a member and the others or the clients until :meth:`reconnect`.

        Raises:
            ContainerError: this cluster was made without a network.
        """
        self._network().cut(_host_name(member.member_id))

    def reconnect(self, member: LocalMember) -> None:
        """Connect a member that was cut off.

        Raises:
            ContainerError: this cluster was made without a network.
        """
        self._network().heal(_host_name(member.member_id))

    def cut_link(self, one: LocalMember, other: LocalMember) -> None:
        """Let nothing pass between two members until :meth:`heal_link`; all the others reach both.

        Raises:
            ContainerError: this cluster was made without a network.
        """
        self._network().cut_link(_host_name(one.member_id), _host_name(other.member_id))

    def heal_link(self, one: LocalMember, other: LocalMember) -> None:
        """Connect two members again whose link was cut.

        Raises:
            ContainerError: this cluster was made without a network.
        """
        self._network().heal_link(_host_name(one.member_id), _host_name(other.member_id))

    def cut_way(self, sender: LocalMember, receiver: LocalMember) -> None:
        """Drop everything that a member sends to another one, which still reaches it, until :meth:`heal_way`.

        Raises:
            ContainerError: this cluster was made without a network.
        """
        self._network().cut_way(_host_name(sender.member_id), _host_name(receiver.member_id))

    def heal_way(self, sender: LocalMember, receiver: LocalMember) -> None:
        """Let the packets of a member reach another one again.

        Raises:
            ContainerError: this cluster was made without a network.
        """
        self._network().heal_way(_host_name(sender.member_id), _host_name(receiver.member_id))

    def _network(self) -> Network:
        if self.network is None:
            raise ContainerError("members cannot be cut off on the loopback device; give the cluster a network")
        return self.network

    # Clients

    def start_client_driver(self, name: str = "client-driver") -> Process:
        """Start a media driver for clients, away from the members' machines, and wait until it is ready.

        Its directory is :meth:`client_aeron_dir`. :meth:`close` ends it.

        Raises:
            ContainerError: one of that name still runs.
            TimeoutError, ProcessEndedError: it does not start.
        """
        for earlier in [driver for driver in self._drivers if driver.name == name]:
            if earlier.is_running:
                raise ContainerError(f"{name} (pid {earlier.pid}) still runs; end it first")
            earlier.close()
            self._drivers.remove(earlier)
        command = [sys.executable, "-m", "container.testing.processes.client_driver", str(self.client_aeron_dir(name))]
        driver = self.client_process(name, command)
        self._drivers.append(driver)
        driver.start().read_line(_CLIENT_DRIVER_LIMIT_S)
        return driver

    def client_process(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        """Return a program that runs where clients do, with its output in the cluster's directory; not yet started."""
        namespace = None if self.network is None else self.network[_CLIENT_HOST].namespace
        return Process(name, command, directory=self.base_dir, environment=environment, network_namespace=namespace)

    def client_aeron_dir(self, name: str = "client-driver") -> Path:
        """Return the Aeron directory of :meth:`start_client_driver`."""
        return self.base_dir / name

    def client_settings(self, driver_name: str = "client-driver") -> dict[str, Any]:
        """Return the settings of a :class:`~container.client.ClientContext` for a client of this cluster."""
        host = HOST if self.network is None else self.network[_CLIENT_HOST].address
        return {
            "aeron_dir": str(self.client_aeron_dir(driver_name)),
            "ingress_channel": "aeron:udp?term-length=1m",
            "ingress_endpoints": ingress_endpoints(self.endpoints),
            "egress_channel": f"aeron:udp?endpoint={host}:0",
        }

    # Errors

    def errors(self) -> dict[int, dict[Path, list[str]]]:
        """Return the texts of the error logs that are not empty, by member id and file."""
        return {
            member.member_id: {path: [record.text for record in records] for path, records in errors.items()}
            for member in self.members
            if (errors := member.node.errors())
        }

    def report(self) -> str:
        """Return the ends of all outputs, and all error logs, for the text of a failure."""
        parts = [part for driver in self._drivers for part in (driver.tail(), *self._client_driver_errors(driver))]
        for member in self.members:
            parts += [f"=== member {member.member_id}", member.node.report()]
        return "\n".join(parts)

    def _client_driver_errors(self, driver: Process) -> list[str]:
        cnc_file = CncFile.open_ready(self.client_aeron_dir(driver.name))
        if cnc_file is None:
            return []
        records = cnc_file.errors()
        cnc_file.close()
        return [f"--- {driver.name}: {record.observation_count} x {record.text}" for record in records]


_CLIENT_HOST = "clients"


def _kind_of_each(name: str, given: Kinds, member_count: int) -> list[ArchiveKind | None]:
    each = [given] * member_count if given is None or isinstance(given, str) else list(given)
    if len(each) != member_count:
        raise ContainerError(f"{len(each)} {name}: there are {member_count} members")
    return [None if kind is None else known_kind(kind) for kind in each]


def _host_name(member_id: int) -> str:
    return f"member-{member_id}"


def _loopback_address(member_id: int) -> str:
    """All of 127.0.0.0/8 is this machine on Linux; elsewhere only its first address is."""
    return f"127.0.0.{member_id + 1}" if sys.platform.startswith("linux") else HOST


def _leadership_term_id(member: LocalMember) -> int:
    value = member.node.counter_value(CounterType.LEADERSHIP_TERM_ID)
    return -1 if value is None else value
