"""Archives that replicate from each other: over one driver in memory, over a simulated network, over a real driver.

Their conductors are real, their disks simulated; clients send raw requests.
"""

from __future__ import annotations

import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from container.aeron import AeronClient, MediaDriver
from container.archive.authentication import AcceptAll, AllowAll, Authenticator
from container.archive.server.archive_conductor import ArchiveConductor
from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.store.recording_store import RecordingStore, StoreSettings
from container.codecs import messages as codecs
from container.files.catalog import RecordingDescriptor
from container.settings.archive_table import ArchiveSettings
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import ManualClock, MemoryDriver
from container.testing.processes.endpoints import PortReservation
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from container.transport.streams import Publication
from container.transport.transport_seam import Client
from tests.archive_streams import with_ids
from tests.fabric_world import FabricWorld
from tests.limits import LIMIT_S

MS = 1_000_000
NOW_MS = 1_700_000_000_000
DIRECTORY = "/archive"
SEGMENT_LENGTH = 128 * 1024
TURNS_MAX = 20_000
VERSION = 1 << 16 | 12 << 8
OK, ERROR = 0, 1
STREAM_ID = 1001
SIGNALS = ("START", "STOP", "EXTEND", "REPLICATE", "MERGE", "SYNC", "DELETE", "REPLICATE_END")
IPC = "aeron:ipc?term-length=64k|mtu=1408"
_RESPONSE_SESSIONS = itertools.count(5001)

type Message = tuple[str, dict[str, Any]]


class World(ABC):
    """Archives, each on its host, and their clients; :meth:`turn` lets all of them work, and time pass."""

    hosts = ("localhost", "localhost")

    def __init__(self) -> None:
        self.archives: list[Archive] = []
        self.tasks: list[Callable[[], object]] = []
        self.first_archive_id = 41

    @abstractmethod
    def connect(self, host: int) -> Client:
        """A client of a host's driver."""

    @abstractmethod
    def port(self, host: int) -> int:
        """A port of a host that is free."""

    def pass_time(self) -> None:
        """Some time, in which what was sent arrives."""

    def turn(self) -> None:
        self.pass_time()
        for task in self.tasks:
            task()
        for archive in self.archives:
            archive.work()

    def until[T](self, predicate: Callable[[], T]) -> T:
        for _ in range(TURNS_MAX):
            if result := predicate():
                return result
            self.turn()
        raise AssertionError(f"did not happen in {TURNS_MAX} turns; reported: {self.texts()}")

    def texts(self) -> list[str]:
        return [str(error) for archive in self.archives for error in archive.errors]

    def archive(self, host: int, **settings: Any) -> Archive:
        return Archive(self, host, **settings)

    def close(self) -> None:
        """Nothing is left behind."""


class MemoryWorld(World):
    """One driver, which is the whole world; a turn takes a millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock, publication_window=32 * 1024)
        self._ports = itertools.count(8001)

    def connect(self, host: int) -> Client:
        return self.driver.connect(f"host {host}")

    def port(self, host: int) -> int:
        return next(self._ports)

    def pass_time(self) -> None:
        self.clock.advance(MS)


class NetworkWorld(World):
    """Two hosts on a simulated network."""

    hosts = ("a", "b")

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.network = FabricWorld("".join(self.hosts), **options)
        self._ports = itertools.count(8001)

    def connect(self, host: int) -> Client:
        return self.network.drivers[self.hosts[host]].connect("test")

    def port(self, host: int) -> int:
        return next(self._ports)

    def pass_time(self) -> None:
        self.network.run(MS // 10)


_DRIVER_WORLDS = itertools.count(1)


class DriverWorld(World):
    """One media driver, which others have had before: it may still have their counters for a moment."""

    def __init__(self, driver: MediaDriver) -> None:
        super().__init__()
        self.first_archive_id = 1_000 * next(_DRIVER_WORLDS)
        self.aeron_dir = driver.aeron_dir
        self.ports = PortReservation()
        self.clients: list[AeronClient] = []

    def connect(self, host: int) -> Client:
        self.clients.append(AeronClient(self.aeron_dir, use_invoker=True))
        return self.clients[-1]

    def port(self, host: int) -> int:
        return self.ports.take()

    def pass_time(self) -> None:
        os.sched_yield()

    def until[T](self, predicate: Callable[[], T]) -> T:
        deadline = time.monotonic() + LIMIT_S
        while not (result := predicate()):
            assert time.monotonic() < deadline, f"did not happen within {LIMIT_S:g} s; reported: {self.texts()}"
            self.turn()
        return result

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.ports.close()


class Archive:
    """An archive on a disk of its own."""

    def __init__(
        self, world: World, host: int, *, authenticator: Authenticator | None = None, port: int | None = None,
        disk: SimulatedDisk | None = None, **settings: Any
    ) -> None:  # fmt: skip
        self.world = world
        self.given = settings
        self.host = world.hosts[host]
        self.host_number = host
        self.client = world.connect(host)
        self.errors: list[Exception] = []
        self.port = world.port(host) if port is None else port
        replication_port = world.port(host) if isinstance(world, MemoryWorld) else 0
        values: dict[str, Any] = {
            "archive_dir": DIRECTORY,
            "control_channel": f"aeron:udp?endpoint={self.host}:{self.port}",
            "control_stream_id": 10,
            "local_control_stream_id": self.port,
            "control_response_stream_id": 20 + len(world.archives),
            "replication_channel": f"aeron:udp?endpoint={self.host}:{replication_port}",
            "segment_file_length": SEGMENT_LENGTH,
            "low_storage_space_threshold": 0,
            # A real driver may take long on a busy machine; in memory a test that is about this waits for it.
            "message_timeout_ns": (2_000 if isinstance(world, MemoryWorld) else 20_000) * MS,
            "replay_linger_timeout_ns": 50 * MS,
        }
        self.settings = ArchiveSettings(**(values | settings))
        self.disk = SimulatedDisk() if disk is None else disk
        self.storage = self.disk.process()
        if disk is None:
            self.storage.make_directory(DIRECTORY)
            self.storage.force_directory("/")
        self.store = RecordingStore.open(
            self.storage,
            StoreSettings(
                archive_dir=DIRECTORY,
                segment_file_length=self.settings.segment_file_length,
                catalog_capacity=1 << 14,
                low_storage_space_threshold=self.settings.low_storage_space_threshold,
                file_sync_level=self.settings.file_sync_level,
                catalog_file_sync_level=self.settings.catalog_file_sync_level,
            ),
            now_ms=NOW_MS,
            former_owner=None,
            owner=(1, 42),
            write_owner=lambda: None,
            report_error=self.errors.append,
            report_progress=lambda: None,
        )
        archive_id = world.first_archive_id + len(world.archives)
        self.conductor = ArchiveConductor(
            self.client,
            self.store,
            self.settings,
            archive_id=archive_id,
            counters=ArchiveCounters(
                self.client, archive_id, threading_mode="INVOKER", conductor_cycle_threshold_ns=100 * MS
            ),
            authenticator=AcceptAll() if authenticator is None else authenticator,
            authorisation_service=AllowAll(),
            on_error=self.errors.append,
            replay_linger_ns=self.settings.replay_linger_timeout_ns,
            first_session_id=700 * (1 + len(world.archives)),
            next_token=itertools.count(9001 + 100 * len(world.archives)).__next__,
        )
        self.conductor.start()
        self.is_working = True
        world.archives.append(self)

    def work(self) -> None:
        if self.is_working:
            seam.invoke(self.client)
            self.conductor.do_work()

    def close(self) -> None:
        """Close it in order."""
        self.is_working = False
        self.conductor.close()
        self.store.close()

    def vanish(self) -> None:
        """Die, as the driver and the network see it."""
        self.is_working = False
        self.client.close()
        self.world.archives.remove(self)

    def next_life(self, power: Draws | None = None) -> Archive:
        """The next process, on what this one leaves when it is killed, or when its machine loses power."""
        self.vanish()
        if power is None:
            self.storage.kill(Draws(0))
        else:
            self.disk.cut_power(power)
        return Archive(self.world, self.host_number, port=self.port, disk=self.disk, **self.given)

    def control_channel(self) -> str:
        return str(self.settings.control_channel)

    def requests(self, **fields: Any) -> Requests:
        """A client of this archive that is connected."""
        requests = Requests(self.world, self)
        requests.open(**fields)
        return requests

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        descriptor = self.store.catalog.descriptor(recording_id)
        assert descriptor is not None
        return descriptor

    def range(self, recording_id: int) -> tuple[int, int]:
        descriptor = self.descriptor(recording_id)
        return descriptor.start_position, descriptor.stop_position

    def content(self, recording_id: int) -> bytes:
        """The frames of a recording, with session and stream id 0."""
        end = self.store.recorded_position(recording_id)
        reader = self.store.open_reader(recording_id, self.descriptor(recording_id).start_position)
        content = bytearray()
        try:
            while reader.position < end:
                length, part = reader.read_frames(end)
                assert length > 0
                content += part
                reader.skip(length)
        finally:
            reader.close()
        return with_ids(content)


def replicate_fields(source: str, recording_id: int, **fields: Any) -> dict[str, Any]:
    """The fields of a request to replicate a recording of the archive that listens on that channel."""
    return {
        "src_recording_id": recording_id,
        "dst_recording_id": -1,
        "stop_position": -1,
        "channel_tag_id": -1,
        "subscription_tag_id": -1,
        "src_control_stream_id": 10,
        "file_io_max_length": -1,
        "replication_session_id": -1,
        "src_control_channel": source.encode(),
        "live_destination": b"",
        "replication_channel": b"",
        "encoded_credentials": b"",
        "src_response_channel": b"",
    } | fields


class Requests:
    """A client of an archive: raw requests, and what comes back."""

    def __init__(self, world: World, archive: Archive) -> None:
        self.world = world
        self.client = world.connect(archive.host_number)
        self.publication: Publication = seam.add_publication(
            self.client, "aeron:ipc?term-length=64k", archive.settings.local_control_stream_id, exclusive=True
        )
        self.response_channel = f"aeron:ipc?session-id={next(_RESPONSE_SESSIONS)}"
        self.responses = seam.add_subscription(self.client, self.response_channel, 20)
        self.control_session_id = -1
        self.messages: list[Message] = []
        self._correlation_ids = itertools.count(1000)
        world.until(self._is_connected)

    def _is_connected(self) -> bool:
        seam.invoke(self.client)
        return seam.is_connected(self.publication)

    def open(self, **fields: Any) -> None:
        correlation_id = next(self._correlation_ids)
        request: dict[str, Any] = {
            "correlation_id": correlation_id,
            "response_stream_id": 20,
            "version": VERSION,
            "response_channel": self.response_channel,
            "encoded_credentials": b"",
            "client_info": "name=raw",
        } | fields
        self._offer(codecs.encode("archive", "AuthConnectRequest", **request))
        self.control_session_id = self.response(correlation_id)["relevant_id"]
        keep_alive = {"control_session_id": self.control_session_id, "correlation_id": -1}
        self._offer(codecs.encode("archive", "KeepAliveRequest", **keep_alive))
        self.world.turn()

    def _offer(self, data: bytes) -> None:
        def is_sent() -> bool:
            seam.invoke(self.client)
            return seam.offer(self.publication, data) > 0

        self.world.until(is_sent)

    def send(self, name: str, **fields: Any) -> int:
        """Send a request; its correlation id."""
        correlation_id = next(self._correlation_ids)
        values = {"control_session_id": self.control_session_id, "correlation_id": correlation_id} | fields
        self._offer(codecs.encode("archive", name, **values))
        return correlation_id

    def poll(self) -> list[Message]:
        """All messages received so far, without pings."""
        seam.invoke(self.client)
        came = [codecs.decode("archive", data) for data, _ in seam.poll(self.responses, 1000)]
        self.messages += [each for each in came if each[0] != "Ping"]
        return self.messages

    def response(self, correlation_id: int) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            for name, each in self.poll():
                if name == "ControlResponse" and each["correlation_id"] == correlation_id:
                    return each
            return None

        answer = self.world.until(found)
        assert answer is not None
        return answer

    def ok(self, name: str, **fields: Any) -> int:
        """Send a request that must succeed; the relevant id of the answer."""
        response = self.response(self.send(name, **fields))
        assert response["code"] == OK, response
        return int(response["relevant_id"])

    def error(self, name: str, **fields: Any) -> tuple[int, str]:
        """Send a request that must be refused; code and text."""
        response = self.response(self.send(name, **fields))
        assert response["code"] == ERROR, response
        return int(response["relevant_id"]), response["error_message"].decode()

    def start_recording(self, stream_id: int = STREAM_ID, channel: str = IPC) -> int:
        return self.ok(
            "StartRecordingRequest2", stream_id=stream_id, source_location=0, auto_stop=1, channel=channel.encode()
        )

    def replicate(self, source: str | Archive, recording_id: int = 0, **fields: Any) -> Replication:
        """Ask for a replication; the answer has come."""
        channel = source if isinstance(source, str) else source.control_channel()
        self.messages.clear()
        correlation_id = self.send("ReplicateRequest2", **replicate_fields(channel, recording_id, **fields))
        response = self.response(correlation_id)
        assert response["code"] == OK, response
        return Replication(self, correlation_id, response["relevant_id"])


class Replication:
    """A replication, and what its client has got of it."""

    def __init__(self, requests: Requests, correlation_id: int, replication_id: int) -> None:
        self.requests = requests
        self.correlation_id = correlation_id
        self.replication_id = replication_id

    def events(self) -> list[tuple[Any, ...]]:
        """Signals as name, recording, position, and whether they have a subscription; OK and errors with their text."""
        events: list[tuple[Any, ...]] = []
        for name, each in self.requests.poll():
            if each["correlation_id"] == self.correlation_id:
                assert (events, each["code"]) == ([], OK), "the reply comes first"
                continue
            if each["correlation_id"] != self.replication_id:
                continue
            if name == "RecordingSignalEvent":
                has_subscription = each["subscription_id"] != -1
                events.append((SIGNALS[each["signal"]], each["recording_id"], each["position"], has_subscription))
            elif each["code"] == OK:
                events.append(("OK",))
            else:
                events.append(("ERROR", each["relevant_id"], each["error_message"].decode()))
        return events

    def names(self) -> list[str]:
        return [event[0] for event in self.events()]

    def until(self, name: str) -> None:
        self.requests.world.until(lambda: name in self.names())

    def finish(self, *, stops: bool = True) -> list[tuple[Any, ...]]:
        """All that came up to the end, and nothing comes behind it."""
        self.until("REPLICATE_END")
        if stops:
            self.until("STOP")
        for _ in range(50):
            self.requests.world.turn()
        events = self.events()
        assert [event[0] for event in events].count("REPLICATE_END") == 1
        assert "REPLICATE_END" in [event[0] for event in (events[-2:] if stops else events[-1:])]
        return events

    @property
    def recording_id(self) -> int:
        return next(int(event[1]) for event in self.events() if event[0] in ("REPLICATE", "EXTEND"))


class Stream:
    """A publication on the host of an archive, which may be recorded."""

    def __init__(self, archive: Archive, stream_id: int = STREAM_ID, channel: str = IPC) -> None:
        self.world = archive.world
        self.client = self.world.connect(archive.host_number)
        self.publication: Publication = seam.add_publication(self.client, channel, stream_id, exclusive=True)

    @property
    def position(self) -> int:
        return seam.position(self.publication)

    def offer(self, message: bytes) -> bool:
        seam.invoke(self.client)
        return seam.offer(self.publication, message) > 0

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.world.until(lambda message=message: self.offer(message))  # type: ignore[misc]

    def fill(self, length: int, size: int = 992) -> None:
        """Send so many bytes at least."""
        end = self.position + length
        number = 0
        while self.position < end:
            self.send(bytes([1 + number % 250]) * size)
            number += 1

    def close(self) -> None:
        self.publication.close()


def recording(archive: Archive, length: int = 10_000, **stream: Any) -> tuple[int, Stream]:
    """A recording that is active, and the stream that it is of."""
    requests = archive.requests()
    publication = Stream(archive, **stream)
    recording_id = archive.store.catalog.next_recording_id
    requests.start_recording(stream.get("stream_id", STREAM_ID))
    archive.world.until(lambda: archive.store.is_active(recording_id))
    publication.fill(length)
    archive.world.until(lambda: archive.store.recorded_position(recording_id) == publication.position)
    return recording_id, publication


def recorded(archive: Archive, length: int = 10_000, **stream: Any) -> int:
    """The id of a recording of an archive that has stopped."""
    recording_id, publication = recording(archive, length, **stream)
    publication.close()
    archive.world.until(lambda: not archive.store.is_active(recording_id))
    return recording_id


def recorded_messages(archive: Archive, messages: list[bytes], **stream: Any) -> int:
    """The id of a recording of these messages that has stopped."""
    recording_id, publication = recording(archive, 0, **stream)
    publication.send(*messages)
    archive.world.until(lambda: archive.store.recorded_position(recording_id) == publication.position)
    publication.close()
    archive.world.until(lambda: not archive.store.is_active(recording_id))
    return recording_id


def snapshot_messages(service_id: int, log_position: int, term_id: int, length: int) -> list[bytes]:
    """The messages of a snapshot: that of the consensus module for -1, else of a service, whose own state is last.

    Args:
        service_id: of whom.
        log_position, term_id: what the markers say.
        length: of the messages between or behind the markers, in bytes with their frames.
    """
    is_service = service_id != -1
    begin, end = (
        codecs.encode(
            "cluster",
            "SnapshotMarker",
            type_id=2 if is_service else 1,
            log_position=log_position,
            leadership_term_id=term_id,
            index=0,
            mark=mark,
            time_unit=0,
            app_version=1,
        )
        for mark in (0, 2)
    )
    if is_service:
        return [begin, end, *([bytes([7]) * 992] * (length // 1024))]
    session = codecs.encode(
        "cluster",
        "ClusterSession",
        cluster_session_id=1,
        correlation_id=1,
        opened_log_position=0,
        time_of_last_activity=-1,
        close_reason=-(2**31),
        response_stream_id=1,
        response_channel=b"x" * 940,
    )
    return [begin, *([session] * (length // 1024)), end]
