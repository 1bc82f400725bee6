"""A backup beside archives in memory: both archives are real, the member that it asks is scripted, time is given."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from container.archive.client.async_archive import AsyncArchive
from container.backup.backup_machine import BackupState, ClusterBackupMachine
from container.backup.backup_transport import BackupTransport
from container.codecs.messages import decode, encode
from container.common.aeron_defaults import CounterType
from container.consensus.backup_requests import backup_response
from container.consensus.cluster_member import ClusterMember
from container.consensus.log_orphans import LogOrphans
from container.consensus.recovery_plan import create_recovery_plan, needed_recording_id
from container.errors import ContainerError
from container.files.recording_log import RecordingLog
from container.settings.backup_table import BackupSettings
from container.testing.memory import transport_probe as seam
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from container.transport.fragment_assembler import SessionFragmentAssembler
from tests.replication_world import MS, STREAM_ID, Archive, Stream, World, recorded_messages, snapshot_messages

CLUSTER_DIR = "/cluster"
CONSENSUS_STREAM_ID = 108
FRAME = 1024
TIMEOUT_NS = 500 * MS
INTERVAL_MS = 60_000
_SESSIONS = itertools.count(9001)


class Member:
    """A member of a cluster, as a backup sees it: an archive with a log, a commit position, answers.

    Args:
        world: of the archives.
        member_id: of it.
        archive: its own; made if there is none.
        leader_id: of the member that leads; its own by default.
    """

    def __init__(
        self, world: World, member_id: int = 0, archive: Archive | None = None, *, leader_id: int | None = None
    ) -> None:
        self.world, self.id = world, member_id
        self.archive = world.archive(0) if archive is None else archive
        self.client = world.connect(0)
        self.host = world.hosts[0]
        self.endpoint = f"{self.host}:{world.port(0)}"
        self._subscription = seam.add_subscription(
            self.client, f"aeron:udp?endpoint={self.endpoint}", CONSENSUS_STREAM_ID
        )
        self._handler = seam.CollectingHandler()
        self._assembler = SessionFragmentAssembler(self._handler)
        self._answers: dict[str, Any] = {}
        disk = SimulatedDisk().process()
        disk.make_directory(CLUSTER_DIR)
        self.recording_log = RecordingLog.open(disk, CLUSTER_DIR, create=True, file_sync_level=1)
        self.commit = seam.add_counter(self.client, CounterType.COMMIT_POSITION, b"\0\0\0\0", "commit")
        self.leader_id = member_id if leader_id is None else leader_id
        self.queries: list[dict[str, Any]] = []
        self.responses: list[dict[str, Any]] = []
        self.is_answering = True
        self.refusal: tuple[int, bytes] | None = None
        self.challenge: bytes | None = None
        self.fields: dict[str, Any] = {}
        self.stream: Stream | None = None
        self.recording_id = -1
        world.tasks.append(self.work)

    def begin_term(self, term_id: int = 0, length: int = 20 * FRAME, stream_id: int = STREAM_ID) -> None:
        """Lead a term, in which so many bytes of the log are recorded and committed."""
        self.recording_id = self.archive.store.catalog.next_recording_id
        channel = f"aeron:ipc?term-length=64k|mtu=1408|session-id={next(_SESSIONS)}"
        self.archive.requests().start_recording(stream_id, channel=channel)
        self.stream = Stream(self.archive, stream_id, channel)
        self.world.until(lambda: self.archive.store.is_active(self.recording_id))
        self.recording_log.append_term(self.recording_id, term_id, 0, 5)
        self.grow(length)

    def open_term(self, term_id: int, length: int, leader_id: int | None = None) -> int:
        """Begin a term at the end of the log, in which that grows; where it ends."""
        assert self.stream is not None
        self.recording_log.append_term(self.recording_id, term_id, self.stream.position, 6)
        if leader_id is not None:
            self.leader_id = leader_id
        return self.grow(length)

    def grow(self, length: int, *, is_committed: bool = True) -> int:
        """Have the log grow, and the term that begins where it ends be opened; where it ends then."""
        assert self.stream is not None
        last, end = self.recording_log.find_last_term(), self.stream.position + length
        assert last is not None
        while (position := self.stream.position) < end:
            if position == last.term_base_log_position:
                self.stream.send(term_event(last.leadership_term_id, position, self.leader_id))
            else:
                self.stream.send(client_message(last.leadership_term_id, position))
        end = self.stream.position
        self.world.until(lambda: self.archive.store.recorded_position(self.recording_id) == end)
        if is_committed:
            seam.set_counter(self.commit, end)
        return end

    def take_snapshot(
        self,
        term_id: int = 0,
        base: int = 0,
        services: int = 1,
        length: int = 3 * FRAME,
        edit: Callable[[int, list[bytes]], list[bytes]] = lambda _, messages: messages,
    ) -> int:
        """Have a snapshot at the end of the log; its position.

        Args:
            term_id, base: the term, and where it begins.
            services: how many take one.
            length: of each recording, at least.
            edit: is given the id of a service, -1 for the consensus module, and its messages; returns those to record.
        """
        position = self.commit.value
        for service_id in range(services - 1, -2, -1):
            messages = edit(service_id, snapshot_messages(service_id, position, term_id, length))
            recording_id = recorded_messages(self.archive, messages, stream_id=107 if service_id == -1 else 106)
            self.recording_log.append_snapshot(recording_id, term_id, base, position, 7, service_id)
        return position

    def work(self) -> None:
        """Answer what has come."""
        seam.invoke(self.client)
        seam.poll_with(self._subscription, self._assembler, 10)
        while self._handler.messages:
            name, fields = decode("cluster", self._handler.messages.pop(0)[0])
            if name == "BackupQuery":
                self._on_query(fields)
            else:
                self.responses.append(fields)
                self._answer(fields["correlation_id"])
        for channel, (publication, message) in list(self._answers.items()):
            if seam.offer(publication, message) > 0:
                del self._answers[channel]
                publication.close()

    def _on_query(self, query: dict[str, Any]) -> None:
        self.queries.append(query)
        self._channel, self._stream_id = query["response_channel"].decode(), query["response_stream_id"]
        if self.challenge is not None:
            self._reply(
                "Challenge",
                correlation_id=query["correlation_id"],
                cluster_session_id=-1,
                encoded_challenge=self.challenge,
            )
        else:
            self._answer(query["correlation_id"])

    def _answer(self, correlation_id: int) -> None:
        if not self.is_answering:
            return
        if self.refusal is not None:
            code, detail = self.refusal
            self._reply(
                "SessionEvent",
                correlation_id=correlation_id,
                cluster_session_id=-1,
                leadership_term_id=0,
                leader_member_id=self.leader_id,
                code=code,
                detail=detail,
                version=0,
                leader_heartbeat_timeout_ns=1,
            )
            return
        last = self.recording_log.find_last_term()
        assert last is not None
        counts = [each.service_id for each in self.recording_log.entries if each.is_valid_snapshot]
        found = self.recording_log.find_snapshot_at_or_before_or_lowest(2**63 - 1, max(counts, default=0) + 1)
        message = backup_response(
            correlation_id,
            last_term=last,
            snapshots=found or (),
            commit_position_counter_id=self.commit.counter_id,
            leader_member_id=self.leader_id,
            member_id=self.id,
            cluster_members=self.members(),
        )
        if self.fields:
            _, fields = decode("cluster", message)
            message = encode("cluster", "BackupResponse", **(fields | self.fields))
        self._send(message)

    def members(self) -> str:
        archive = f"{self.archive.host}:{self.archive.port}"
        return f"{self.id},{self.host}:1,{self.endpoint},{self.host}:3,{self.host}:4,{archive}"

    def _reply(self, name: str, **fields: Any) -> None:
        self._send(encode("cluster", name, **fields))

    def _send(self, message: bytes) -> None:
        publication = seam.add_publication(self.client, self._channel, self._stream_id, exclusive=True)
        self._answers[str(len(self.queries) + len(self.responses))] = (publication, message)


def term_event(term_id: int, base: int, leader_id: int) -> bytes:
    """The first message of a term, as long as the other ones."""
    return encode(
        "cluster",
        "NewLeadershipTermEvent",
        leadership_term_id=term_id,
        log_position=base + FRAME,
        timestamp=5,
        term_base_log_position=base,
        leader_member_id=leader_id,
        log_session_id=1,
        time_unit=0,
        app_version=1,
    ).ljust(FRAME - 32, b"\0")


def client_message(term_id: int, position: int) -> bytes:
    """A message of a client, for that position of the log."""
    header = encode(
        "cluster", "SessionMessageHeader", leadership_term_id=term_id, cluster_session_id=1, timestamp=position
    )
    return header.ljust(FRAME - 32, bytes([1 + position // FRAME % 250]))


class Credentials:
    """Gives a name, and answers a challenge with its end."""

    def encoded_credentials(self) -> bytes:
        return b"backup"

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return b"answer to " + encoded_challenge


class Display:
    """The counters of a backup."""

    def __init__(self) -> None:
        self.states: list[int] = []
        self.position = -1
        self.deadline_ms = -1
        self.snapshots = 0

    def show_state(self, state: int) -> None:
        self.states.append(state)

    def show_position(self, position: int) -> None:
        self.position = position

    def show_next_query(self, epoch_ms: int) -> None:
        self.deadline_ms = epoch_ms

    def next_query_ms(self) -> int:
        return self.deadline_ms

    def show_snapshots(self) -> None:
        self.snapshots += 1


class Backup:
    """A backup with an archive and a disk of its own; :meth:`crash` is the end of its process.

    Args:
        world: of the archives.
        members: that it may ask.
        archive: its own, of an earlier life.
        disk: with its cluster directory, of an earlier life.
    """

    def __init__(
        self,
        world: World,
        *members: Member,
        archive: Archive | None = None,
        disk: SimulatedDisk | None = None,
        **settings: Any,
    ) -> None:
        self.world = world
        self.archive = world.archive(1) if archive is None else archive
        self.client = world.connect(1)
        self.disk = SimulatedDisk() if disk is None else disk
        self.storage = self.disk.process()
        if disk is None:
            self.storage.make_directory(CLUSTER_DIR)
            self.storage.force_directory("/")
        self.recording_log = RecordingLog.open(self.storage, CLUSTER_DIR, create=True, file_sync_level=2)
        self.errors: list[BaseException] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.display = Display()
        host = world.hosts[1]
        values: dict[str, Any] = {
            "cluster_consensus_endpoints": ",".join(each.endpoint for each in members),
            "cluster_dir": CLUSTER_DIR,
            "consensus_channel": f"aeron:udp?endpoint={host}:{world.port(1)}",
            "catchup_endpoint": f"{host}:{world.port(1)}",
            "catchup_channel": "aeron:udp",
            "log_stream_id": STREAM_ID,
            "progress_timeout_ns": TIMEOUT_NS,
            "response_timeout_ns": TIMEOUT_NS,
            "cool_down_interval_ns": 50 * MS,
            "backup_interval_ns": INTERVAL_MS * MS,
        }
        self.settings = BackupSettings(**(values | settings))
        self.settings.check()
        self.transport = BackupTransport(self.client, str(self.settings.consensus_channel), CONSENSUS_STREAM_ID)
        self.orphans = LogOrphans(
            self.storage, CLUSTER_DIR, self.recording_log, (STREAM_ID, 106, 107), self.errors.append
        )
        self.machine = ClusterBackupMachine(
            self.transport,
            self.settings,
            self.recording_log,
            self.orphans,
            new_archive=self._new_archive,
            new_member_archive=self._new_member_archive,
            credentials_supplier=Credentials(),
            random_source=random.Random(next(_SESSIONS)),
            display=self.display,
            on_failure=self.errors.append,
            on_error=self.errors.append,
            on_event=lambda name, **fields: self.events.append((name, fields)),
        )
        self.is_working = True
        world.tasks.append(self.work)

    def _new_archive(self) -> AsyncArchive:
        return self._client_of("aeron:ipc?term-length=64k", self.archive.settings.local_control_stream_id, "aeron:ipc")

    def _new_member_archive(self, member: ClusterMember) -> AsyncArchive:
        channel = f"aeron:udp?endpoint={member.archive_endpoint}"
        response = f"aeron:udp?endpoint={self.world.hosts[1]}:{self.world.port(1)}"
        return self._client_of(channel, 10, response)

    def _client_of(self, channel: str, stream_id: int, response_channel: str) -> AsyncArchive:
        return AsyncArchive(
            self.client,
            control_channel=channel,
            control_stream_id=stream_id,
            response_channel=response_channel,
            response_stream_id=500,
            term_buffer_length=64 * 1024,
            mtu_length=1408,
            is_sparse=True,
            client_name="backup",
            encoded_credentials=b"",
            message_timeout_ns=2000 * MS,
        )

    def work(self) -> None:
        if self.is_working:
            seam.invoke(self.client)
            self.machine.do_work()

    @property
    def state(self) -> BackupState:
        return self.machine.state

    def until(self, predicate: Callable[[], object]) -> None:
        self.world.until(predicate)

    def until_state(self, state: BackupState) -> None:
        self.until(lambda: self.state == state)

    def until_backing_up(self) -> None:
        self.until_state(BackupState.BACKING_UP)

    def texts(self) -> list[str]:
        return [str(each) for each in self.errors]

    def failures(self) -> list[str]:
        return [fields["reason"] for name, fields in self.events if name == "backup_failed"]

    def log_recording_id(self) -> int:
        return self.recording_log.find_last_term_recording_id()

    def crash(self) -> None:
        """Its process is killed: nothing is asked to end."""
        self.is_working = False
        self.world.tasks.remove(self.work)
        self.client.close()
        with_suppressed(self.recording_log.close)

    def next_life(self, *members: Member, **settings: Any) -> Backup:
        """The next process, on what the one before has left."""
        return Backup(self.world, *members, archive=self.archive, disk=self.disk, **settings)

    def crash_with_its_host(self, power: Draws | None = None) -> None:
        """Its process is killed, and with it its archive; or their machine loses power."""
        self.crash()
        self.archive = self.archive.next_life(power)
        if power is None:
            self.storage.kill(Draws(0))
        else:
            self.disk.cut_power(power)

    def close(self) -> None:
        self.is_working = False
        self.machine.close()


def with_suppressed(call: Callable[[], object]) -> None:
    """Call it; what the disk of a dead process says does not matter."""
    try:
        call()
    except (ContainerError, OSError):
        return


def check_copy(backup: Backup, member: Member, services: int = 1) -> int:
    """Check, by what a starting member reads, that the copy is one: up to where it goes, -1 where there is none."""
    storage = backup.disk.process()
    log = RecordingLog.open(storage, CLUSTER_DIR, create=True, file_sync_level=0)
    try:
        recording_id = needed_recording_id(log)
        if recording_id is None:
            assert log.entries == ()
            return -1
        extent = backup.archive.descriptor(recording_id)
        end = backup.archive.store.recorded_position(recording_id)
        plan = create_recovery_plan(log, services, recording_extent=replace(extent, stop_position=end))
        begin = extent.start_position
        source = member.archive.content(member.recording_id)
        source_begin = member.archive.range(member.recording_id)[0]
        assert backup.archive.content(recording_id) == source[begin - source_begin : end - source_begin]
        assert plan.last_term_base_log_position <= end
        assert not plan.snapshots or begin <= plan.snapshots[0].log_position <= end
        for each in plan.snapshots:
            (original,) = [
                entry.recording_id
                for entry in member.recording_log.entries
                if entry.is_snapshot and (entry.service_id, entry.log_position) == (each.service_id, each.log_position)
            ]
            assert backup.archive.content(each.recording_id) == member.archive.content(original)
        return end
    finally:
        log.close()
