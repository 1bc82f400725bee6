"""A whole cluster on this machine for development and tests: a process for each member, and one that watches them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from container.common.directories import created_directory
from container.common.error_texts import message_of
from container.common.loggers import prints_json, report
from container.common.process_end import Stage, close_at_end
from container.common.values import shown
from container.errors import ClusterError, ConfigurationError, TimedOutError
from container.files.directory_lock import DirectoryLock
from container.node.members import PORT, PORT_COUNT, check_size
from container.service.given_service import check_maker
from container.testing.processes.endpoints import HOST, MEMBER_COUNTS, PORTS_APART
from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.native_cluster import NativeCluster
from container.testing.processes.process import ProcessEndedError

_NOTHING: Mapping[str, Any] = {}
_LAUNCH_TIMEOUT_S = 60.0
_STOP_LIMIT_S = 30.0
_LOOK_S = 0.1
_PORT_MAX = 65_535
_SHOWN_LINES = 20
_ERROR = "aeron-cluster: error: "


class LaunchedCluster(NativeCluster):
    """A cluster on this machine, each member a process with ``aeron-cluster node``; :meth:`launch` starts one.

    A context manager; :meth:`close` shuts all members down cleanly. :attr:`members` has a handle to each, with
    ``member_id``, ``is_leader``, ``kill()``, ``stop()`` and ``restart()``; :attr:`leader` is the one that leads.

    Attributes:
        directory: the parent of the members' directories (Path).
        ingress_endpoints: addresses of the members for clients (str).
    """

    _watcher: _Watcher | None = None
    _lock: DirectoryLock | None = None

    @classmethod
    def launch(
        cls,
        *services: str | Callable[[], object],
        members: int = 3,
        directory: str | os.PathLike[str] | None = None,
        host: str = HOST,
        port: int = PORT,
        driver: Mapping[str, Any] = _NOTHING,
        archive: Mapping[str, Any] = _NOTHING,
        consensus_module: Mapping[str, Any] = _NOTHING,
        container: Mapping[str, Any] = _NOTHING,
        threading_mode: str | None = None,
        timeout: float = _LAUNCH_TIMEOUT_S,
        say: Callable[[str], object] | None = None,
    ) -> LaunchedCluster:
        """Start all members, and return the cluster once they have one leader.

        Each member is a separate process, so that you can kill it. The process imports the service: pass a class of a
        module, or a function that creates the service. Timeouts are short, so that a new leader takes over about 3 s
        after a kill; settings change that. Lines that the members log, and who leads, go to ``say``.

        Args:
            services: makers of the services, called without arguments: a class, a function, or ``package.module:Name``.
            members: number of members: 1, 3, 5 or 7.
            directory: holds a directory for each member, which it continues or begins; by default a temporary one,
                which :meth:`close` removes.
            host: the name or address of this machine by which clients reach them.
            port: the UDP port for clients of the first member; each next one has 10 more. 0 takes free ones.
            driver, archive, consensus_module, container: settings of these parts of all members, by name.
            threading_mode: of each member, as for :func:`container.launch_node`.
            timeout: maximum seconds until all have a leader.
            say: called with each line (str), on a thread of the cluster's; standard error when not given.

        Raises:
            ConfigurationError: a bad argument, a service that another process cannot import, or a directory that holds
                a cluster of another size.
            ClusterError: a member ended while it started; the text has what it said.
            MarkFileError: another cluster runs in the directory, which stays as it is.
            TimedOutError: the members do not have one leader in time.
        """
        if members not in MEMBER_COUNTS:
            counts = ", ".join(map(str, MEMBER_COUNTS))
            raise ConfigurationError(f"members={shown(members)}: must be one of {counts}")
        last_port = _PORT_MAX - PORTS_APART * (members - 1) - PORT_COUNT + 1
        if type(port) is not int or not 0 <= port <= last_port:
            raise ConfigurationError(f"port={shown(port)}: must be a whole number from 0 to {last_port}")
        if not services:
            raise ConfigurationError("services: give at least one service")
        paths = [_service_path(each) for each in services]
        settings = {"driver": driver, "archive": archive, "consensus_module": consensus_module, "container": container}
        if directory is not None:
            check_size(Path(directory), members, is_apart=True, option="members=", other="another directory")
        where = None if directory is None else Path(created_directory("directory", os.fspath(directory)))
        lock = None if where is None else DirectoryLock(where, "cluster")  # before a file of its members is touched
        try:
            cluster = cls(
                *[path for path, _directory in paths],
                member_count=members,
                base_dir=where,
                host=host,
                port=port or None,
                threading_mode=threading_mode,
                settings=settings,
                environment={"PYTHONPATH": _search_path([found for _path, found in paths if found])},
            )
        except BaseException:
            if lock is not None:
                lock.disown()
            raise
        cluster._lock = lock
        cluster._watcher = _Watcher(cluster, _printed if say is None else say)
        try:
            cluster.start()
            cluster._watcher.start()
            cluster.await_ready(timeout)
        except ProcessEndedError as error:
            why = _why_ended(cluster) or message_of(error)  # before a temporary directory goes
            cluster.close()
            raise ClusterError(why) from None
        except TimeoutError as error:
            cluster.close()
            raise TimedOutError(message_of(error)) from None
        except BaseException:
            cluster.close()
            raise
        finally:
            close_at_end(cluster, Stage.NODE)
        return cluster

    @property
    def directory(self) -> Path:
        """Where the members' directories are."""
        return self.base_dir

    @property
    def ingress_endpoints(self) -> str:
        """Where clients of the network reach the members."""
        return ",".join(f"{each.member_id}={each.ingress}" for each in self.endpoints)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until every member has ended, as after ``aeron-cluster shutdown``; whether they have in time (s)."""
        return self._watcher is None or self._watcher.has_ended.wait(timeout)

    def close(self) -> None:
        """End all members in order, followers first, and remove a temporary directory. May be called again.

        A member that has not ended after 30 seconds is killed.
        """
        try:
            running = [member for member in self.members if member.node.is_running]
            for member in sorted(running, key=lambda each: each.is_leader):
                member.resume()
                member.node.process.send_signal(signal.SIGTERM)
            for member in running:
                try:
                    member.node.process.wait(_STOP_LIMIT_S)
                except TimeoutError:
                    report(
                        "warning", "member %d has not ended after %d s: it is killed", member.member_id, _STOP_LIMIT_S
                    )
        finally:
            if self._watcher is not None:
                self._watcher.stop()
            super().close()
            if self._lock is not None:
                self._lock.disown()


def _why_ended(cluster: LaunchedCluster) -> str:
    """The errors with which members ended while they started: none twice, and nothing that an earlier run has said."""
    found: dict[str, int] = {}
    for member in (each for each in cluster.members if each.ended_parts):
        lines = member.node.process.errors().splitlines()
        errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
        if text := "\n".join(errors[-1:] or lines[-_SHOWN_LINES:]):
            found.setdefault(text, member.member_id)
    return "; ".join(f"member {member_id} ended while it started: {text}" for text, member_id in found.items())


class _Watcher(threading.Thread):
    """Passes on what members log, and says who leads and who has ended, on a thread of its own."""

    def __init__(self, cluster: LaunchedCluster, say: Callable[[str], object]) -> None:
        super().__init__(name="cluster-watcher", daemon=True)
        self._cluster, self._say = cluster, say
        self._is_closed = threading.Event()
        self.has_ended = threading.Event()
        self._leader: LocalMember | None = None
        self._ended: dict[LocalMember, int] = {}
        self._read = {member: _size_of(member.node.process.err_path) for member in cluster.members}

    def run(self) -> None:
        """Look again and again until the cluster is closed."""
        while not self._is_closed.wait(_LOOK_S):
            self._look()
        self._look()

    def stop(self) -> None:
        """Pass on what is left, and end."""
        self._is_closed.set()
        if self.is_alive():
            self.join()

    def _look(self) -> None:
        for member in self._cluster.members:
            self._pass_on(member)
            self._say_end(member)
        if all(member.node.process.has_ended for member in self._cluster.members):
            self.has_ended.set()
            return
        leader = self._cluster.leader
        if leader is not None and leader is not self._leader:
            self._leader = leader
            self._told(f"member {leader.member_id} leads")

    def _say_end(self, member: LocalMember) -> None:
        process = member.node.process
        if process.has_ended and self._ended.get(member) != process.pid:
            self._ended[member] = process.pid
            if self._leader is member:
                self._leader = None
            self._told(f"member {member.member_id} (pid {process.pid}) ended with {process.return_code}")

    def _pass_on(self, member: LocalMember) -> None:
        path = member.node.process.err_path
        try:
            with path.open("rb") as file:
                file.seek(self._read[member])
                whole, end, _rest = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._read[member] += len(whole) + len(end)
        for line in whole.decode("utf-8", "replace").splitlines():
            # A line of JSON names its source, and stays JSON.
            self._told(line if prints_json() else f"member {member.member_id}: {line}")

    def _told(self, line: str) -> None:
        try:
            self._say(line)
        except Exception as error:
            report("error", "a line of the cluster was not taken: %s", message_of(error))


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _printed(line: str, stream: TextIO | None = None) -> None:
    print(line, file=stream or sys.stderr, flush=True)


def _service_path(service: object) -> tuple[str, str | None]:
    """Where another process finds what makes a service, and the directory that it needs for that if it is a script's.

    Raises:
        ConfigurationError: it is of no module, or inside a function.
    """
    if isinstance(service, str):
        return service, None
    module, name = (getattr(service, each, None) for each in ("__module__", "__qualname__"))
    if not callable(service) or not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise ConfigurationError(
            f"services: {shown(service)}: must be a class, or a function that makes a service, at the top of a module: "
            "each member is a process of its own and imports it"
        )
    check_maker(service, "services")
    if module != "__main__":
        return f"{module}:{name}", None
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        return f"{spec.name}:{name}", None
    file = getattr(main, "__file__", None)
    if file is None:
        raise ConfigurationError(
            f"services: {shown(service)}: must be in a file: each member is a process of its own and imports it"
        )
    path = Path(file).resolve()
    return f"{path.stem}:{name}", str(path.parent)


def _search_path(first: list[str]) -> str:
    """The directories in which this process finds modules, for others."""
    return os.pathsep.join(dict.fromkeys([*first, *[each for each in sys.path if each], str(Path.cwd())]))


def launch_cluster(*services: str | Callable[[], object], **settings: Any) -> LaunchedCluster:
    """The same as :meth:`LaunchedCluster.launch`."""
    return LaunchedCluster.launch(*services, **settings)
