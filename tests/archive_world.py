"""An archive's conductor over the memory transport and a simulated disk, with clients that send raw requests, streams
that are recorded and subscribers that read replays; time passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from container.archive.authentication import AcceptAll, AllowAll, Authenticator, AuthorisationService
from container.archive.server.archive_conductor import ArchiveConductor
from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.store.recording_store import RecordingStore, StoreSettings
from container.settings.archive_table import ArchiveSettings
from container.storage.storage_seam import READ_ONLY
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver
from container.testing.simulation.disk import SimulatedDisk
from container.transport.streams import Image, Publication, Subscription
from tests.archive_streams import with_ids
from tests.control_world import CONTROL_CHANNEL, ERROR, MS, OK, RawClient

ARCHIVE_ID = 42
FIRST_SESSION_ID = 700
DIRECTORY = "/archive"
NETWORK_CHANNEL = "aeron:udp?endpoint=localhost:8010"
SEGMENT_LENGTH = 128 * 1024
IPC = "aeron:ipc?term-length=64k|mtu=1408"
SIGNALS = ("START", "STOP", "EXTEND", "REPLICATE", "MERGE", "SYNC", "DELETE", "REPLICATE_END")
TURNS_MAX = 20_000


class ArchiveWorld:
    """An archive on a disk, which can be closed, killed and opened again."""

    def __init__(
        self,
        *,
        authenticator: Authenticator | None = None,
        authorisation_service: AuthorisationService | None = None,
        cluster_stream_ids: Collection[int] = (),
        window: int = 0,
        counters: int = 1024,
        disk: SimulatedDisk | None = None,
        driver: MemoryDriver | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        if driver is None:
            driver = MemoryDriver(self.clock, publication_window=window, counters_capacity=counters)
        self.driver = driver
        self.disk = SimulatedDisk() if disk is None else disk
        self.authenticator = AcceptAll() if authenticator is None else authenticator
        self.authorisation_service = AllowAll() if authorisation_service is None else authorisation_service
        self.cluster_stream_ids = cluster_stream_ids
        given: dict[str, Any] = {
            "archive_dir": DIRECTORY,
            "control_channel": NETWORK_CHANNEL,
            "local_control_channel": CONTROL_CHANNEL,
            "replication_channel": "aeron:udp?endpoint=localhost:0",
            "segment_file_length": SEGMENT_LENGTH,
            "low_storage_space_threshold": 0,
        } | settings
        self.settings = ArchiveSettings(**given)
        self.errors: list[Exception] = []
        self.owner: tuple[int, int] | None = None
        self.tokens = iter(range(9001, 10_000))
        self.clients: list[ArchiveRequests] = []
        self.streams: list[Stream] = []
        self.open()

    def open(self) -> None:
        """Start the archive."""
        self.client: MemoryClient = self.driver.connect("archive")
        self.storage = self.disk.process()
        if not self.storage.exists(DIRECTORY):
            self.storage.make_directory(DIRECTORY)
        former, self.owner = self.owner, (1 if self.owner is None else self.owner[0] + 1, 42)
        self.store = RecordingStore.open(
            self.storage,
            StoreSettings(
                archive_dir=DIRECTORY,
                segment_file_length=self.settings.segment_file_length,
                catalog_capacity=1 << 14,
                low_storage_space_threshold=self.settings.low_storage_space_threshold,
            ),
            now_ms=seam.epoch_ms(self.client),
            former_owner=former,
            owner=self.owner,
            write_owner=lambda: None,
            report_error=self.errors.append,
            report_progress=lambda: None,
        )
        self.counters = ArchiveCounters(
            self.client, ARCHIVE_ID, threading_mode="INVOKER", conductor_cycle_threshold_ns=100 * MS
        )
        self.conductor = ArchiveConductor(
            self.client,
            self.store,
            self.settings,
            archive_id=ARCHIVE_ID,
            counters=self.counters,
            authenticator=self.authenticator,
            authorisation_service=self.authorisation_service,
            on_error=self.errors.append,
            replay_linger_ns=self.settings.replay_linger_timeout_ns,
            first_session_id=FIRST_SESSION_ID,
            next_token=lambda: next(self.tokens),
            cluster_stream_ids=self.cluster_stream_ids,
        )
        self.conductor.start()

    def close(self) -> None:
        """Close the archive in order."""
        self.conductor.close()
        self.store.close()
        self.counters.close()
        self.client.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def connect(self, **settings: Any) -> ArchiveRequests:
        client = ArchiveRequests(self, **settings)
        client.open()
        return client

    def work(self, turns: int = 1) -> None:
        """Turns of the duty cycle."""
        for _ in range(turns):
            seam.invoke(self.client)
            self.conductor.do_work()

    def wait(self, duration_ms: int, step_ms: int = 10) -> None:
        """Let time pass, with a turn each step."""
        for _ in range(duration_ms // step_ms):
            self.clock.advance(step_ms * MS)
            self.work()

    def until(self, predicate: Callable[[], object]) -> None:
        for _ in range(TURNS_MAX):
            if predicate():
                return
            self.work()
        raise AssertionError(f"did not happen in {TURNS_MAX} turns; reported: {self.texts()}")

    def texts(self) -> list[str]:
        """The texts of what was reported, which is forgotten."""
        texts = [str(error) for error in self.errors]
        self.errors.clear()
        return texts

    def counter(self, type_id: int) -> list[dict[str, Any]]:
        """The records of the counters of a type."""
        counters = seam.counters(self.client)
        records = (seam.counter_record(counters, each) for each in range(seam.counter_capacity(counters)))
        return [dict(each) for each in records if (each["state"], each["type_id"]) == (1, type_id)]

    def counter_value(self, type_id: int) -> int:
        [record] = self.counter(type_id)
        return int(record["value"])

    def stream(self, stream_id: int, channel: str = IPC) -> Stream:
        return Stream(self, stream_id, channel)

    def content(self, name: str) -> bytes:
        """The bytes of a file in the archive's directory."""
        file = self.storage.open_file(f"{DIRECTORY}/{name}", READ_ONLY)
        try:
            return file.read(file.length(), 0)
        finally:
            file.close()

    def recorded(self, recording_id: int) -> bytes:
        """The frames of a recording, with session and stream id 0."""
        descriptor = self.store.catalog.descriptor(recording_id)
        assert descriptor is not None
        end = self.store.recorded_position(recording_id)
        reader = self.store.open_reader(recording_id, descriptor.start_position)
        content = bytearray()
        try:
            while True:
                length, part = reader.read_frames(end)
                if length == 0:
                    break
                content += part
                reader.skip(length)
        finally:
            reader.close()
        return with_ids(content)


class ArchiveRequests(RawClient):
    """A client of the archive: requests by name, and what comes back."""

    world: ArchiveWorld  # type: ignore[assignment]

    def __init__(self, world: ArchiveWorld, **settings: Any) -> None:
        super().__init__(world, **settings)  # type: ignore[arg-type]
        self.kept: list[tuple[str, dict[str, Any]]] = []

    def open(self, **fields: Any) -> None:  # type: ignore[override]
        """Connect, up to the keep-alive."""
        correlation_id = self.request_session(**fields)
        self.world.work(5)
        [(name, response)] = self.received()
        assert (name, response["code"], response["correlation_id"]) == ("ControlResponse", OK, correlation_id)
        self.control_session_id = response["relevant_id"]
        self.send("KeepAliveRequest", correlation_id=-1)
        self.world.work()

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """The received messages, without pings."""
        taken = [*self.kept, *self.received()]
        self.kept = []
        return [each for each in taken if each[0] != "Ping"]

    def ask(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a request, and return the response to it; what comes before stays to be taken."""
        correlation_id = self.send(name, **fields)
        return self.response_to(correlation_id)

    def response_to(self, correlation_id: int) -> dict[str, Any]:
        for _ in range(TURNS_MAX):
            for index, (kind, each) in enumerate(self.take_all()):
                if kind == "ControlResponse" and each["correlation_id"] == correlation_id:
                    del self.kept[index]
                    return each
            self.world.work()
        raise AssertionError(f"no answer to {correlation_id}: {self.kept}; reported: {self.world.texts()}")

    def take_all(self) -> list[tuple[str, dict[str, Any]]]:
        self.kept = self.take()
        return list(self.kept)

    def ok(self, name: str, **fields: Any) -> int:
        """Send a request that must succeed; the relevant id of the answer."""
        response = self.ask(name, **fields)
        assert response["code"] == OK, response
        return int(response["relevant_id"])

    def error(self, name: str, **fields: Any) -> tuple[int, str]:
        """Send a request that must be refused; code and text."""
        response = self.ask(name, **fields)
        assert response["code"] == ERROR, response
        return int(response["relevant_id"]), response["error_message"].decode()

    def signals(self) -> list[tuple[str, int, int]]:
        """Name, recording and position of the signals that came, which are taken."""
        found = [each for name, each in self.take_all() if name == "RecordingSignalEvent"]
        self.kept = [each for each in self.kept if each[0] != "RecordingSignalEvent"]
        return [(SIGNALS[each["signal"]], each["recording_id"], each["position"]) for each in found]

    def signal(self, name: str) -> int:
        """Wait for a signal, the next that is not taken yet; its recording."""
        for _ in range(TURNS_MAX):
            for index, (kind, each) in enumerate(self.take_all()):
                if kind == "RecordingSignalEvent" and SIGNALS[each["signal"]] == name:
                    del self.kept[index]
                    return int(each["recording_id"])
            self.world.work()
        raise AssertionError(f"no signal {name}: {self.kept}; reported: {self.world.texts()}")

    def start_recording(self, stream_id: int, channel: str = IPC, *, auto_stop: bool = True, local: bool = True) -> int:
        """Ask for recordings of a channel; the subscription's id."""
        return self.ok(
            "StartRecordingRequest2",
            stream_id=stream_id,
            source_location=int(not local),
            auto_stop=int(auto_stop),
            channel=channel.encode(),
        )

    def replay(self, recording_id: int, position: int = -1, length: int = -1, **fields: Any) -> int:
        """Ask for a replay; the replay session's id."""
        return self.ok("ReplayRequest", **self.replay_fields(recording_id, position, length, **fields))

    def replay_fields(self, recording_id: int, position: int = -1, length: int = -1, **fields: Any) -> dict[str, Any]:
        return {
            "recording_id": recording_id,
            "position": position,
            "length": length,
            "replay_stream_id": 3000,
            "file_io_max_length": -1,
            "replay_token": -1,
            "replay_channel": b"aeron:ipc",
        } | fields


class Stream:
    """A publication that is recorded."""

    def __init__(self, world: ArchiveWorld, stream_id: int, channel: str = IPC) -> None:
        self.world = world
        self.client: MemoryClient = world.driver.connect("publisher")
        self.publication: Publication = seam.add_publication(self.client, channel, stream_id, exclusive=True)

    @property
    def position(self) -> int:
        return seam.position(self.publication)

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.world.until(lambda message=message: seam.offer(self.publication, message) > 0)  # type: ignore[misc]

    def fill(self, length: int, size: int = 992) -> None:
        """Send so many bytes at least, in messages of ``size``."""
        end = self.position + length
        number = 0
        while self.position < end:
            self.send(bytes([number % 251]) * size)
            number += 1

    def close(self) -> None:
        self.publication.close()


class Subscriber:
    """A subscription to a replay, and what it has delivered, with ids 0."""

    def __init__(self, world: ArchiveWorld, stream_id: int = 3000, channel: str = "aeron:ipc") -> None:
        self.world = world
        self.client: MemoryClient = world.driver.connect("subscriber")
        self.subscription: Subscription = seam.add_subscription(self.client, channel, stream_id)
        self.image: Image | None = None
        self.blocks = bytearray()

    def read(self) -> int:
        """Read what there is; how much."""
        seam.invoke(self.client)
        if self.image is None:
            self.image = seam.image_at_index(self.subscription, 0)
        if self.image is None:
            return 0
        block = seam.poll_blocks(self.image)
        self.blocks += block if not block or block[6:8] != b"\0\0" else block[:32]
        return len(block)

    @property
    def content(self) -> bytes:
        return with_ids(self.blocks)

    def has_ended(self) -> bool:
        self.read()
        return self.image is not None and seam.is_end_of_stream(self.image)

    def is_closed(self) -> bool:
        self.read()
        return self.image is not None and seam.is_closed(self.image)
