"""A member's side of its archive, with no consensus module: what copies and cuts the log, over archives in memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from container.archive.client.async_archive import AsyncArchive
from container.consensus.cluster_member import ClusterMember, parse_cluster_members
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.consensus.log_orphans import LogOrphans
from container.consensus.log_replication import MemberLogReplication
from container.consensus.log_truncation import LogTruncation
from container.consensus.steps import Deadline, stopped
from container.files.recording_log import RecordingLog
from container.testing.memory import transport_probe as seam
from container.testing.simulation.disk import SimulatedDisk
from tests.replication_world import MS, STREAM_ID, Archive, World

CLUSTER_DIR = "/cluster"
TIMEOUT_NS = 500 * MS
LOCAL_CHANNEL = "aeron:ipc?term-length=64k"


def leader_of(source: str | Archive, response_endpoint: str | None = None) -> ClusterMember:
    """The member whose archive listens there (``host:port``)."""
    endpoint = source if isinstance(source, str) else f"{source.host}:{source.port}"
    last = "" if response_endpoint is None else f",{response_endpoint}"
    return parse_cluster_members(f"0,a:1,a:2,a:3,a:4,{endpoint}{last}")[0]


class LogMember:
    """A member that has a cluster directory and a client of its archive; :meth:`crash` is the end of its process.

    Args:
        world: of the archives.
        host: where it is.
        control_stream_id: on which its archive listens to this machine.
        replication_channel: on which another archive replays to its own.
        disk: with its cluster directory, of an earlier life.
        timeout_ns: the leader heartbeat timeout.
        service_count: how many services it has.
    """

    def __init__(
        self,
        world: World,
        host: int,
        *,
        control_stream_id: int,
        replication_channel: str,
        disk: SimulatedDisk | None = None,
        timeout_ns: int = TIMEOUT_NS,
        service_count: int = 1,
    ) -> None:
        self.world = world
        self.client = world.connect(host)
        self.disk = SimulatedDisk() if disk is None else disk
        self.storage = self.disk.process()
        if disk is None:
            self.storage.make_directory(CLUSTER_DIR)
            self.storage.force_directory("/")
        self.recording_log = RecordingLog.open(self.storage, CLUSTER_DIR, create=True, file_sync_level=1)
        self.errors: list[BaseException] = []
        self.recording_id = -1
        self.orphans = LogOrphans(
            self.storage, CLUSTER_DIR, self.recording_log, (STREAM_ID, 106, 107), self.errors.append
        )
        settings = SimpleNamespace(
            replication_channel=replication_channel,
            leader_archive_control_channel="aeron:udp?term-length=64k",
            archive_control_stream_id=10,
            leader_heartbeat_interval_ns=MS,
            leader_heartbeat_timeout_ns=timeout_ns,
            service_count=service_count,
            replay_channel=LOCAL_CHANNEL,
            replay_stream_id=103,
        )
        self.context = cast(
            ConsensusModuleContext,
            SimpleNamespace(
                client=self.client,
                settings=settings,
                counted_error_handler=self.errors.append,
                recording_log=self.recording_log,
                log_orphans=self.orphans,
            ),
        )
        self.archive = AsyncArchive(
            self.client,
            control_channel=LOCAL_CHANNEL,
            control_stream_id=control_stream_id,
            response_channel=LOCAL_CHANNEL,
            response_stream_id=500,
            term_buffer_length=64 * 1024,
            mtu_length=1408,
            is_sparse=True,
            client_name="member",
            encoded_credentials=b"",
            message_timeout_ns=2000 * MS,
        )
        self.archive.on_signal = self._on_signal
        self.replication: MemberLogReplication | None = None
        self.is_replay_awaited = False
        """Whether services are still to join a replay of the log."""
        self.truncation = LogTruncation(self.context, self.archive, self._await_replay_joined)
        self.world.until(self._is_connected)

    def _is_connected(self) -> bool:
        seam.invoke(self.client)
        return self.archive.poll()

    def _await_replay_joined(self) -> Iterator[None]:
        while self.is_replay_awaited:
            yield

    def _on_signal(self, event: Any) -> None:
        if self.replication is not None:
            self.replication.on_signal(event.correlation_id, event.recording_id, event.position, int(event.signal))
            self.recording_id = self.replication.recording_id

    def turn(self) -> None:
        """Do an agent's work of a turn before its election works."""
        self.world.turn()
        seam.invoke(self.client)
        self.archive.poll()
        error = self.archive.take_error()
        assert error is None, error

    def begin_copy(self, source: str | Archive, source_id: int, stop: int, **leader: Any) -> MemberLogReplication:
        self.replication = MemberLogReplication(
            self.context, self.archive, self.recording_id, leader_of(source, **leader), source_id, stop
        )
        return self.replication

    def work(self) -> bool:
        """Take the copy a turn on; whether it is done."""
        assert self.replication is not None
        self.turn()
        self.replication.do_work(0)
        return self.replication.is_done

    def copy(self, source: str | Archive, source_id: int, stop: int, **leader: Any) -> MemberLogReplication:
        """Copy up to a position."""
        replication = self.begin_copy(source, source_id, stop, **leader)
        self.world.until(self.work)
        replication.close()
        return replication

    def run(self, steps: Any) -> Any:
        """Take a generator on to its end; what it returns."""
        result: list[Any] = []

        def is_done() -> bool:
            self.turn()
            try:
                next(steps)
            except StopIteration as end:
                result.append(end.value)
            return bool(result)

        self.world.until(is_done)
        return result[0]

    def start(self) -> int:
        """Do a start's work on the recording of the log before there is a plan: where it ends, -1 without one."""
        deadline = Deadline(self.client.clock, TIMEOUT_NS)
        self.run(self.orphans.remove(self.archive, deadline))
        recording_id = self.recording_log.find_last_term_recording_id()
        if recording_id == -1:
            return -1
        position: int = self.run(stopped(self.archive, deadline, recording_id))
        self.recording_log.mend(position)
        return position

    def truncate(self, recording_id: int, term_id: int, position: int) -> None:
        self.truncation.begin(recording_id, term_id, position)

        def is_done() -> bool:
            self.turn()
            return self.truncation.poll()

        self.world.until(is_done)

    def crash(self) -> None:
        """Its process is killed: its client is gone, and the archive is not asked to end anything."""
        self.client.close()
        self.recording_log.close()


def member_of(archive: Archive, **options: Any) -> LogMember:
    """The member whose archive this is."""
    return LogMember(
        archive.world,
        archive.host_number,
        control_stream_id=archive.settings.local_control_stream_id,
        replication_channel=str(archive.settings.replication_channel),
        **options,
    )


def terms(log: RecordingLog) -> list[tuple[int, int, int]]:
    """Term, base and end of each entry."""
    return [(each.leadership_term_id, each.term_base_log_position, each.log_position) for each in log.entries]
