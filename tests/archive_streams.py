"""Recordings and replays of an archive with no conductor: their sessions over a transport and a store, for tests."""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from container.archive.server.sessions.recording_session import RecordingSession
from container.archive.server.sessions.replay_request import (
    RecordedRange,
    ReplayLimits,
    ReplayRange,
    ReplayRequest,
    check_replay_request,
)
from container.archive.server.sessions.replay_session import ReplaySession
from container.storage.file_storage import FileStorage
from container.testing.memory import transport_probe as probe
from container.testing.memory.memory_transport import ManualClock, MemoryDriver
from container.testing.simulation.disk import SimulatedDisk
from container.transport.clocks import Clock, SystemClock
from container.transport.counters import Counter, Counters
from container.transport.streams import Image, Publication, Subscription
from container.transport.transport_seam import Client
from tests.limits import LIMIT_S
from tests.store_world import NOW_MS, StoreWorld

TERM = 1 << 16
HEADER_LENGTH = 32
PADDING = 0
IPC = "aeron:ipc?term-length=64k|mtu=1408"
CORRELATION_ID, SUBSCRIPTION_ID, REPLAY_SESSION_ID = 77, 78, 79
CONNECT_TIMEOUT_NS = 5_000_000_000
TURNS_MAX = 200_000
COUNTER_TYPE_ID = 100
HEADER = struct.Struct("<iBBHiiiiq")
_STREAMS = itertools.count(7001)


def aligned(length: int) -> int:
    return (length + 31) // 32 * 32


def frames(content: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    """Position and bytes of each frame; of padding ``content`` has the header alone."""
    offset = 0
    while offset < len(content):
        length, _, _, kind, *_ = HEADER.unpack_from(content, offset)
        stored = HEADER_LENGTH if kind == PADDING else aligned(length)
        yield position, content[offset : offset + stored]
        offset += stored
        position += aligned(length)
    assert offset == len(content)


def with_ids(content: bytes | bytearray, session_id: int = 0, stream_id: int = 0) -> bytes:
    """Frames, of padding the headers alone, with these ids."""
    result = bytearray(content)
    offset = 0
    while offset < len(content):
        length, _, _, kind, *_ = HEADER.unpack_from(content, offset)
        struct.pack_into("<ii", result, offset + 12, session_id, stream_id)
        offset += HEADER_LENGTH if kind == PADDING else aligned(length)
    return bytes(result)


def payloads(content: bytes) -> list[bytes]:
    """Bytes of data frames, with their flags in front."""
    return [
        bytes([HEADER.unpack_from(frame)[2]]) + frame[HEADER_LENGTH : HEADER.unpack_from(frame)[0]]
        for _, frame in frames(content, 0)
        if HEADER.unpack_from(frame)[3] != PADDING
    ]


def stored(block: bytes) -> bytes:
    """A block as an archive stores it."""
    return block[:HEADER_LENGTH] if block and HEADER.unpack_from(block)[3] == PADDING else block


@dataclass
class Reader:
    """A subscription, and what its image has delivered."""

    streams: Streams = field(repr=False)
    subscription: Subscription
    image: Image | None = None
    content: bytearray = field(default_factory=bytearray, repr=False)
    begin: int = -1
    position: int = -1

    def read(self, limit: int = 1 << 20, *, blocks: int = 1 << 30) -> None:
        if self.image is None:
            self.image = probe.take_new_image(self.subscription)
            if self.image is None:
                return
            self.begin = self.position = self.image.join_position
        for _ in range(blocks):
            block = probe.poll_blocks(self.image, limit)
            if not block:
                return
            self.content += stored(block)
            self.position += len(block)

    @property
    def is_at_end(self) -> bool:
        """Whether all that will come is read."""
        return self.image is not None and probe.is_end_of_stream(self.image)

    @property
    def is_closed(self) -> bool:
        return self.image is not None and probe.is_closed(self.image)


@dataclass
class Recording:
    """A stream, and the session that records it."""

    streams: Streams = field(repr=False)
    publication: Publication
    subscription: Subscription
    session: RecordingSession
    observer: Reader
    counter: Counter
    is_stopped: bool = False

    @property
    def recording_id(self) -> int:
        return self.session.recording_id

    def offer(self, *messages: bytes) -> None:
        for message in messages:
            self.streams.until(lambda message=message: probe.offer(self.publication, message) > 0)  # type: ignore[misc]

    def fill(self, left: int) -> None:
        """Send until the term has so many bytes left, a multiple of 1024."""
        while (TERM - probe.position(self.publication)) % TERM != left:
            self.offer(bytes(992))

    def record(self) -> None:
        """Record all that is published."""
        self.streams.until(
            lambda: self.session.is_done or self.session.recorded_position == probe.position(self.publication)
        )

    def end(self) -> None:
        """Close the publication, and record all of it."""
        self.publication.close()
        self.streams.until(lambda: self.session.is_done)

    def stop(self) -> None:
        """Do as a conductor does with a session that is done."""
        assert self.session.is_done
        self.streams.store.store.stop(self.session.writer, NOW_MS + 1)
        self.counter.close()
        self.subscription.close()
        self.observer.subscription.close()
        self.publication.close()
        self.is_stopped = True

    def content(self) -> bytes:
        return self.streams.store.frames(self.recording_id)


@dataclass
class Replay:
    """A replay session and its subscriber."""

    streams: Streams = field(repr=False)
    session: ReplaySession
    publication: Publication
    stream_id: int
    channel: str
    reader: Reader | None = None

    def subscribe(self, channel: str = IPC) -> Reader:
        self.reader = self.streams.reader(self.stream_id, channel)
        return self.reader

    def content(self) -> bytes:
        assert self.reader is not None
        return bytes(self.reader.content)

    def finish(self) -> bytes:
        """Replay and read until the session is done and its stream has ended; return what was read."""
        reader = self.reader or self.subscribe()
        self.streams.until(lambda: self.session.is_done and (reader.is_at_end or reader.is_closed))
        return bytes(reader.content)


@dataclass
class Streams:
    """A client, a store, and what is recorded and replayed with them."""

    client: Client
    store: StoreWorld
    clock: Clock
    recordings: list[Recording] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    are_read: bool = True
    """Whether each turn reads what is replayed."""
    limit_s: float | None = None
    """How long to wait where a driver's threads take part; without them turns are counted."""

    def turn(self) -> None:
        """One duty cycle."""
        probe.invoke(self.client)
        for recording in self.recordings:
            if not recording.is_stopped:
                recording.session.do_work()
                recording.observer.read()
                if recording.session.is_done:  # else it would hold up the publisher
                    recording.subscription.close()
        for replay in self.replays:
            replay.session.do_work()
            if self.are_read and replay.reader is not None:
                replay.reader.read()

    def until(self, predicate: Callable[[], object]) -> None:
        deadline = None if self.limit_s is None else time.monotonic() + self.limit_s
        turns = 0
        while not predicate():
            turns += 1
            is_late = turns > TURNS_MAX if deadline is None else time.monotonic() > deadline
            assert not is_late, f"did not happen in {turns} turns: {self.recordings} {self.replays}"
            self.turn()
            if deadline is not None:
                os.sched_yield()

    def reader(self, stream_id: int, channel: str = IPC) -> Reader:
        adding = probe.begin_add_subscription(self.client, channel, stream_id, queues_images=True)
        added: list[object] = []

        def is_added() -> bool:
            added.append(probe.poll_add(adding))
            return added[-1] is not None

        self.until(is_added)
        subscription = added[-1]
        assert isinstance(subscription, Subscription)
        return Reader(self, subscription)

    def start(
        self,
        channel: str = IPC,
        *,
        block_length_limit: int = 1 << 20,
        clock: Clock | None = None,
        extended: int | None = None,
        before: Callable[[Publication, Reader], object] = lambda publication, observer: None,
    ) -> Recording:
        """A publication and the session that records it; ``before`` is called when only the observer is there."""
        stream_id = next(_STREAMS) if extended is None else self.descriptor(extended).stream_id
        observer = self.reader(stream_id)
        publication = probe.add_publication(self.client, channel, stream_id, exclusive=True)
        self.until(lambda: probe.is_connected(publication))
        before(publication, observer)
        subscription = self.reader(stream_id).subscription
        images: list[Image] = []

        def has_come() -> bool:
            image = probe.take_new_image(subscription)
            images.extend([] if image is None else [image])
            return bool(images)

        self.until(has_come)
        [image] = images
        if extended is None:
            writer = self.store.store.start_recording(
                start_position=image.join_position,
                initial_term_id=image.initial_term_id,
                term_buffer_length=image.term_buffer_length,
                mtu_length=image.mtu_length,
                session_id=image.session_id,
                stream_id=stream_id,
                stripped_channel="aeron:ipc",
                original_channel=channel,
                source_identity=image.source_identity,
                now_ms=NOW_MS,
            )
        else:
            writer = self.store.store.extend_recording(
                extended,
                image.join_position,
                control_session_id=1,
                correlation_id=CORRELATION_ID,
                session_id=image.session_id,
            )
        counter = probe.add_counter(self.client, COUNTER_TYPE_ID, b"", "rec-pos")
        probe.set_counter(counter, image.join_position)
        session = RecordingSession(
            writer.recording_id,
            SUBSCRIPTION_ID,
            CORRELATION_ID,
            image,
            counter,
            writer,
            block_length_limit=block_length_limit,
            clock=clock,
            owner=self,
        )
        recording = Recording(self, publication, subscription, session, observer, counter)
        self.recordings.append(recording)
        return recording

    def recorded(self, *messages: bytes, channel: str = IPC) -> int:
        """The id of a stopped recording of these messages."""
        recording = self.start(channel)
        recording.offer(*messages)
        recording.end()
        assert recording.session.error is None
        recording.stop()
        return recording.recording_id

    def continued(self, recording_id: int) -> str:
        """A channel that begins where a recording ends."""
        return f"{IPC}|{self.place(recording_id, self.store.store.recorded_position(recording_id))}"

    def descriptor(self, recording_id: int):  # type: ignore[no-untyped-def]
        descriptor = self.store.store.catalog.descriptor(recording_id)
        assert descriptor is not None
        return descriptor

    def place(self, recording_id: int, position: int) -> str:
        """The parameters of a channel that make a publication begin at a position of a recording."""
        descriptor = self.descriptor(recording_id)
        term_length = descriptor.term_buffer_length
        term_id = (descriptor.initial_term_id + position // term_length + 2**31) % 2**32 - 2**31
        return f"init-term-id={descriptor.initial_term_id}|term-id={term_id}|term-offset={position % term_length}"

    def active(self, recording_id: int) -> RecordingSession | None:
        for recording in self.recordings:
            if recording.recording_id == recording_id and not recording.is_stopped:
                return recording.session
        return None

    def replay(
        self,
        recording_id: int,
        position: int = -1,
        length: int = -1,
        *,
        bound: Counter | None = None,
        counters: Counters | None = None,
        is_subscribed: bool = True,
        read_length: int = 0,
        replay_range: ReplayRange | None = None,
        place: str | None = None,
        endpoint: str | None = None,
        deadline_ns: int | None = None,
    ) -> Replay:
        descriptor = self.descriptor(recording_id)
        recording = self.active(recording_id)
        limit = -1
        if bound is not None:
            limit = bound.value
        elif recording is not None:
            limit = recording.recorded_position
        if replay_range is None:
            replay_range = check_replay_request(
                ReplayRequest(recording_id, position, length),
                RecordedRange(descriptor.start_position, descriptor.stop_position, descriptor.mtu_length, limit),
                ReplayLimits(0, 20, 1 << 20),
            )
        stream_id = next(_STREAMS)
        place = place or self.place(recording_id, replay_range.position)
        media = "ipc?" if endpoint is None else f"udp?endpoint={endpoint}|"
        channel = f"aeron:{media}term-length={descriptor.term_buffer_length}|mtu={descriptor.mtu_length}|{place}"
        publication = probe.add_publication(self.client, channel, stream_id, exclusive=True)
        session = ReplaySession(
            REPLAY_SESSION_ID,
            CORRELATION_ID,
            self.store.store.open_reader(recording_id, replay_range.position),
            publication,
            replay_range=replay_range,
            recording=recording,
            stop_position=descriptor.stop_position,
            counters=counters or (None if bound is None else probe.counters(self.client)),
            counter_id=-1 if bound is None else bound.counter_id,
            counter_registration_id=-1 if bound is None else bound.registration_id,
            connect_deadline_ns=probe.nano_time(self.client) + CONNECT_TIMEOUT_NS
            if deadline_ns is None
            else deadline_ns,
            clock=self.clock,
            read_length=read_length,
            owner=self,
        )
        replay = Replay(self, session, publication, stream_id, channel)
        self.replays.append(replay)
        if is_subscribed:
            replay.subscribe(IPC if endpoint is None else f"aeron:udp?endpoint={endpoint}")
        return replay


@dataclass
class Simulated:
    """Streams in memory, on a simulated disk."""

    disk: SimulatedDisk
    driver: MemoryDriver
    clock: ManualClock
    streams: Streams = field(repr=False)


def simulated(
    *,
    level: int = 0,
    window: int = 0,
    segment_length: int = TERM,
    checksum: int = 0,
    on_latency: Callable[[str, int], object] | None = None,
) -> Simulated:
    disk = SimulatedDisk(on_latency=on_latency)
    clock = ManualClock()
    driver = MemoryDriver(clock, publication_window=window)
    store = StoreWorld(disk.process(), "/", level=level, segment_length=segment_length, checksum=checksum)
    return Simulated(disk, driver, clock, Streams(driver.connect("archive"), store, clock))


def on_files(client: Client, directory: str, *, segment_length: int = TERM) -> Streams:
    """Streams of a driver's client, on files."""
    return Streams(
        client, StoreWorld(FileStorage(), directory, segment_length=segment_length), SystemClock(), limit_s=LIMIT_S
    )
