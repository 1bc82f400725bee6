"""A whole archive on a simulated disk, with clients, publishers and readers of replays, from one crash to the next.

The archive is the production's: context, agent, conductor and store; driver, disk, time and numbers are simulated. A
plan is a list of operations, each with random numbers of its own, so that a part of a plan does the same as before.
"""

from __future__ import annotations

import errno
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from container.archive.server.archive_context import ArchiveContext
from container.archive.server.archive_mark_file import MARK_FILE_NAME
from container.codecs import messages as codecs
from container.errors import AgentTermination, ArchiveError, ArchiveEvent, MarkFileError, RecordingError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.simulation.nodes.disk_world import (
    CAPACITY,
    MS,
    PROGRAMMING_ERRORS,
    DiskPlan,
    DiskWorld,
    Result,
    Step,
    operations,
    swarm,
)
from container.testing.simulation.nodes.recorded import TERM_LENGTH, Violation
from container.transport.streams import Image, Publication, Subscription
from tests.sim.archive_oracle import (
    HEADER_LENGTH,
    Disk,
    Recording,
    check_disk,
    files_of,
    frames_of,
    with_checksum,
    without_ids,
)

DIRECTORY = "/archive"
INITIAL_TERM_ID = 7
IPC = "aeron:ipc?term-length=64k|mtu=1408"
VERSION = 1 << 16 | 12 << 8
RECORDING_POSITION = 100
OK, ERROR = 0, 1
START, STOP, EXTEND, DELETE = 0, 1, 2, 6
GENERIC, ACTIVE_RECORDING, MAX_REPLAYS, MAX_RECORDINGS = 0, 2, 7, 8
UNKNOWN_SUBSCRIPTION, UNKNOWN_RECORDING = 4, 5
STARTS = (0, TERM_LENGTH - 2048, 3 * TERM_LENGTH - 20_000, 5 * TERM_LENGTH)
SIZES = (0, 1, 31, 32, 33, 100, 448, 480, 481, 1000, 1376, 4064, 7000)
FAULTS = (
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("force", errno.EIO),
    ("extend", errno.ENOSPC),
    ("force_directory", errno.EIO),
    ("unlink", errno.EIO),
    ("rename", errno.EIO),
    ("open", errno.EMFILE),
    ("map", errno.ENOSPC),
    ("read", errno.EIO),
)
KINDS = {
    "publish": 30.0,
    "work": 20.0,
    "record": 6.0,
    "close": 4.0,
    "stop": 3.0,
    "extend": 6.0,
    "replay": 5.0,
    "stop_replays": 1.5,
    "truncate": 4.0,
    "purge": 0.8,
    "purge_segments": 1.5,
    "detach": 1.0,
    "attach": 1.0,
    "delete_detached": 0.7,
    "lose_publishers": 0.5,
    "ask": 2.0,
    "vanish": 0.7,
    "fault": 1.0,
    "fill_disk": 0.5,
    "free_disk": 0.5,
    "kill": 2.0,
    "cut": 2.0,
    "restart": 0.8,
}


@dataclass(frozen=True, kw_only=True)
class Plan(DiskPlan):
    """All that a run depends on."""

    checksum: str | None
    threshold: int
    """Of the low storage space."""


def expand(seed: int) -> Plan:
    """The plan of a seed."""
    draw = random.Random(seed)
    level = draw.choice([0, 0, 1, 1, 2])
    segment_length = TERM_LENGTH * draw.choice([1, 1, 2])
    checksum = draw.choice([None, None, None, "CRC-32", "CRC-32C"])
    window = draw.choice([0, 0, 8192, 32768])
    threshold = draw.choice([0, 0, 1 << 16])
    weights = swarm(draw, KINDS, ("publish", "work", "record", "kill", "cut"))
    if level == 0:
        weights["cut"] /= 4
    return Plan(
        seed=seed,
        level=level,
        segment_length=segment_length,
        checksum=checksum,
        window=window,
        threshold=threshold,
        operations=tuple(operations(draw, weights, "record", draw.randint(20, 160))),
    )


@dataclass
class Stream:
    """A publication, and what an observer of it has seen."""

    recording: Recording
    publication: Publication
    subscription: Subscription
    tap: Image
    correlation_id: int = -1
    """Of the request to record it."""
    subscription_id: int = -1
    is_auto_stop: bool = True
    is_awaited: bool = False
    """Nothing is published until the recording goes on."""
    is_closed: bool = False
    is_stopping: bool = False
    """A client has asked for its stop."""
    is_detached: bool = False
    position: int = 0

    def drain(self, checksum: str | None) -> None:
        """See what was published since the last call."""
        while not self.is_detached:
            block = seam.poll_blocks(self.tap)
            if not block:
                return
            self.recording.add(self.position, block, checksum)
            self.position += len(block)


@dataclass
class Replay:
    """A replay, and what it may deliver."""

    recording: Recording
    frames: dict[int, tuple[int, bytes]]
    begin: int
    stop: int | None
    """Where it is to end, None for one that follows."""
    subscription: Subscription
    stream_id: int
    is_slow: bool
    session_id: int = -1
    image: Image | None = None
    position: int = -1
    announced: int = -1
    """How far the recording was when the replay was read: no replay is ahead of that."""
    is_stopped: bool = False
    is_done: bool = False


@dataclass
class Client:
    """A client's session, and what it waits for."""

    client: MemoryClient
    publication: Publication
    responses: Subscription
    channel: str
    stream_id: int
    state: str = "new"
    session_id: int = -1
    pending: dict[int, Callable[[int, int, str], object]] = field(default_factory=dict)
    deleting: dict[int, Recording] = field(default_factory=dict)


class World(DiskWorld[Plan]):
    """One plan's run."""

    FAULTS, MOST_CALLS = FAULTS, 4

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, DIRECTORY)
        self.recordings: dict[int, Recording] = {}
        self.next_stream_id, self.next_correlation_id, self.next_replay_stream_id = 1000, 1, 20_000

    def boot(self) -> None:
        """The first start."""
        self._boot()
        self._start([])

    # The life of a process.

    def _boot(self) -> None:
        self.driver = MemoryDriver(
            self.clock,
            publication_window=self.plan.window,
            initial_term_id=INITIAL_TERM_ID,
            first_session_id=self.random.randrange(-(1 << 30), 1 << 30),
            counters_capacity=256,
        )
        self.former_client: MemoryClient | None = None

    def _crash(self) -> None:
        """The process ends here, whatever it is about to do; what it does yet has no effect."""
        self.calls_left = -1
        if self.storage.is_dead:
            return
        self._observe_counters()
        self._end_process(self.storage)
        self.client.sever()

    def _context(self) -> ArchiveContext:
        self.client = self.driver.connect("archive")
        self.storage = self.disk.process()
        self.errors.clear()
        self.processes += 1
        return ArchiveContext(
            client=self.client,
            storage=self.storage,
            idle_strategy=lambda: SteppingIdleStrategy(self._idle),
            error_handler=self._error_handler(self.storage),
            archive_dir=DIRECTORY,
            low_storage_space_threshold=self.plan.threshold,
            record_checksum=self.plan.checksum,
            replay_checksum=self.plan.checksum,
            **self._archive_settings(),
        )

    def _idle(self) -> None:
        self.clock.advance(10 * MS)
        self._expire_former()

    def _expire_former(self) -> None:
        if self.former_client is not None and self.clock.now_ns >= self.former_until_ns:
            self.former_client.expire()
            self.former_client = None

    def _start(self, crashes: list[tuple[int, bool]]) -> None:
        """Start the archive, with crashes in the middle of it (calls before it, and whether power is cut); check."""
        while not self.is_over:
            self.is_faulty = False
            self.calls_left, self.is_power_cut = crashes.pop(0) if crashes else (-1, False)
            context = self._context()
            try:
                context.conclude()
                if self.storage.is_dead:
                    raise OSError("it died at the end of its start")
                self.calls_left = -1
            except Exception as error:
                if self.storage.is_dead:
                    self.stats["crashes of a recovery"] += 1
                    self._end_life(self.is_power_cut)
                    continue
                if self.is_faulty:
                    self.log.append(f"  the start failed: {error}")
                    self._abandon(context)
                    self.fault = None
                    continue
                if isinstance(error, MarkFileError) and "a start is in progress, or was killed" in str(error):
                    self._abandon(context)
                    self._free_mark_file()
                    continue
                if self.is_uncertain and isinstance(error, RecordingError):
                    self.log.append(f"  refused: {error}")
                    self.stats["starts that damage refused"] += 1
                    self.is_over = True
                    return
                raise Violation("start", f"{type(error).__name__}: {error}") from error
            self._check_disk()
            if self.is_uncertain:
                self.is_over = True
                return
            self.context, self.agent = context, context.agent
            try:
                self.agent.start()
            except Exception as error:
                raise Violation("start", f"{type(error).__name__}: {error}") from error
            self._begin_life()
            return

    def _free_mark_file(self) -> None:
        storage = self.disk.process()
        self._release(storage, f"{DIRECTORY}/{MARK_FILE_NAME}")
        storage.kill(self.draws)
        self.stats["claims that an operator released"] += 1

    def _abandon(self, context: ArchiveContext) -> None:
        context.abandon()
        if not self.storage.is_dead:
            self.storage.kill(self.draws)
        self.client.close()
        self.clock.advance(10_001 * MS)  # the disk may have refused to take its sign-off

    def _begin_life(self) -> None:
        self.streams: list[Stream] = []
        self.replays: list[Replay] = []
        self.by_session: dict[int, Recording] = {}
        self.users = self.driver.connect("publishers")
        self.observers = self.driver.connect("observers")
        self.control: Client | None = None
        self.stats["lives"] += 1

    def _end_life(self, is_power_cut: bool, *, was_alive: bool = False) -> None:
        """After a crash: all of the machine is gone, or the process alone, which the driver gives up in time."""
        for stream in getattr(self, "streams", ()):
            stream.drain(self.plan.checksum)
        if was_alive and not is_power_cut and self.control is not None:
            # What the archive sent in its last turn holds as well: its client reads it.
            self._observe_counters()
            self._poll_client()
        self._note_unknown_starts()
        self.fault, self.disk.capacity = None, CAPACITY
        if is_power_cut:
            self._boot()
        else:
            self._close_users()
            if self.former_client is not None:
                self.former_client.expire()
            self.former_client = self.client
            self.former_until_ns = self.clock.now_ns + self.random.choice([10_000, 10_000, 14_000]) * MS
        self.streams, self.replays = [], []
        if was_alive and not is_power_cut and self.random.random() < 0.05:
            self._check_that_a_live_mark_file_is_respected()
        self.clock.advance(10_001 * MS + self.random.randrange(2000) * MS)
        self._expire_former()

    def _close_users(self) -> None:
        for client in (getattr(self, "users", None), getattr(self, "observers", None)):
            if client is not None and not seam.is_closed(client):
                client.close()
        control = getattr(self, "control", None)
        if control is not None and not seam.is_closed(control.client):
            control.client.close()

    def _check_that_a_live_mark_file_is_respected(self) -> None:
        before = files_of(self.disk.contents(), DIRECTORY)
        former, context = self.client, self._context()
        try:
            context.conclude()
        except MarkFileError:
            self._abandon(context)
            self.client = former
        except Exception as error:
            raise Violation("mark file", f"{type(error).__name__}: {error}") from error
        else:
            raise Violation("mark file", "an archive started right behind one that might be alive")
        if files_of(self.disk.contents(), DIRECTORY) != before:
            raise Violation("mark file", "a start that was refused has changed files")
        self.stats["early starts refused"] += 1

    def _note_unknown_starts(self) -> None:
        """A recording of which no client was told may begin wherever its subscription may have joined."""
        for recording in self.recordings.values():
            if not recording.is_certain:
                recording.starts |= {recording.start, *recording.frames, recording.end}

    def _check_disk(self) -> None:
        published = {each.stream_id: each.end for each in self.recordings.values() if not each.is_gone}
        check_disk(Disk(self.disk.contents(), DIRECTORY), self.recordings, is_uncertain=self.is_uncertain)
        self.stats["checks"] += 1
        for stream_id, end in published.items():
            self.stats["bytes lost"] += max(0, end - self.recordings[stream_id].end)
        for stream_id in [each.stream_id for each in self.recordings.values() if not each.is_certain]:
            del self.recordings[stream_id]  # nobody was told of it, and it is not there

    # Turns.

    def turn(self, advance_ms: int = 0) -> None:
        """One duty cycle of everybody; a crash in it ends the life, and the next one begins."""
        if self.is_over:
            return
        self.clock.advance(advance_ms * MS)
        try:
            self.agent.do_work()
        except (Exception, AgentTermination) as error:
            if not self.storage.is_dead:
                raise Violation("cycle", f"{type(error).__name__}: {error}") from error
        if self.storage.is_dead:
            self._recover()
            return
        self._observe_counters()
        self._check_errors()
        self._poll_client()
        for stream in self.streams:
            stream.drain(self.plan.checksum)
        self._read_replays()

    def _recover(self) -> None:
        self._end_life(self.is_power_cut, was_alive=not self.is_faulty)
        crashes = self._crashes_of_a_start(0.25, [5, 30, 120])
        if self.random.random() < 0.1:
            self._arm_fault(self.random)
        self._start(crashes)

    def _observe_counters(self) -> None:
        counters = self.driver.counters
        self.announced_now: dict[int, int] = {}  # recordings by session id of the image
        for counter_id in range(256):
            record = seam.counter_record(counters, counter_id)
            if record["state"] == 0:
                break
            if record["state"] != 1 or record["type_id"] != RECORDING_POSITION or record["key"] is None:
                continue
            session_id = int.from_bytes(record["key"][8:12], "little", signed=True)
            recording = self.by_session.get(session_id)
            recording_id = int.from_bytes(record["key"][:8], "little", signed=True)
            self.announced_now[session_id] = recording_id
            if recording is not None and record["value"] > recording.announced:
                recording.announced = record["value"]
                self._know(recording, recording_id)

    def _know(self, recording: Recording, recording_id: int) -> None:
        if recording.recording_id not in (-1, recording_id):
            raise Violation("ids", f"recording {recording.recording_id} is announced as {recording_id}")
        recording.recording_id = recording_id

    def _check_errors(self) -> None:
        for error in self.errors:
            if isinstance(error, PROGRAMMING_ERRORS):
                raise Violation("reported", f"{type(error).__name__}: {error}") from error
            if not self.is_faulty and not isinstance(error, (ArchiveError, ArchiveEvent)):
                raise Violation("reported", f"{type(error).__name__}: {error}") from error
        self.errors.clear()

    # The client.

    def _connect(self) -> None:
        client = self.driver.connect("client")
        settings = self.context.settings
        publication = seam.add_publication(
            client, settings.local_control_channel, settings.local_control_stream_id, exclusive=True
        )
        self.next_replay_stream_id += 1
        stream_id = self.next_replay_stream_id
        channel = "aeron:ipc?term-length=64k"
        responses = seam.add_subscription(client, channel, stream_id)
        self.control = Client(client, publication, responses, channel, stream_id)

    def _send(self, name: str, **fields: Any) -> int:
        """Send a request; its correlation id, or -1 if it cannot be sent."""
        assert self.control is not None
        correlation_id = self.next_correlation_id
        self.next_correlation_id += 1
        fields |= {"correlation_id": correlation_id}
        if name != "AuthConnectRequest":
            fields["control_session_id"] = self.control.session_id
        result = seam.offer(self.control.publication, codecs.encode("archive", name, **fields))
        return correlation_id if result > 0 else -1

    def _request(self, handler: Callable[[int, int, str], object], name: str, **fields: Any) -> int:
        correlation_id = self._send(name, **fields)
        if correlation_id >= 0 and self.control is not None:
            self.control.pending[correlation_id] = handler
        return correlation_id

    @property
    def is_connected(self) -> bool:
        return self.control is not None and self.control.state == "active"

    def _poll_client(self) -> None:
        if self.control is None:
            self._connect()
        control = self.control
        assert control is not None
        seam.invoke(control.client)
        if control.state == "new":
            correlation_id = self._request(
                self._connected,
                "AuthConnectRequest",
                response_stream_id=control.stream_id,
                version=VERSION,
                response_channel=control.channel,
                encoded_credentials=b"",
                client_info="",
            )
            if correlation_id >= 0:
                control.state = "connecting"
        for data, _ in seam.poll(control.responses, 1000):
            name, fields = codecs.decode("archive", data)
            if name == "ControlResponse":
                self._on_response(control, fields)
            elif name == "RecordingSignalEvent":
                self._on_signal(control, fields)

    def _connected(self, code: int, relevant_id: int, text: str) -> None:
        assert self.control is not None
        if code != OK:
            raise Violation("answer", f"connect: {relevant_id} {text}")
        if self.control.state == "connecting":
            self.control.session_id, self.control.state = relevant_id, "active"
            self._send("KeepAliveRequest")

    def _on_response(self, control: Client, fields: dict[str, Any]) -> None:
        handler = control.pending.get(fields["correlation_id"])
        if handler is None:
            raise Violation("answer", f"to a request that was not sent: {fields}")
        handler(fields["code"], fields["relevant_id"], fields["error_message"].decode())

    def _on_signal(self, control: Client, fields: dict[str, Any]) -> None:
        signal, recording_id, position = fields["signal"], fields["recording_id"], fields["position"]
        correlation_id = fields["correlation_id"]
        if signal == DELETE:
            recording = control.deleting.pop(correlation_id, None)
            if recording is None:
                raise Violation("signal", f"DELETE that was not to come: {fields}")
            recording.is_busy = False
            return
        streams = [each for each in self.streams if each.correlation_id == correlation_id]
        if not streams:
            raise Violation("signal", f"of a recording that nobody asked for: {fields}")
        stream = streams[0]
        if signal == STOP:
            self._on_stop(stream, recording_id, position)
        elif signal in (START, EXTEND):
            self._on_begin(stream, recording_id, position, is_new=signal == START)
        else:
            raise Violation("signal", f"unexpected: {fields}")

    def _on_begin(self, stream: Stream, recording_id: int, position: int, *, is_new: bool) -> None:
        recording = stream.recording
        stream.drain(self.plan.checksum)
        self._know(recording, recording_id)
        if is_new:
            if recording.is_certain or not recording.is_boundary(position):
                raise Violation("signal", f"recording {recording_id} begins at {position}, published {recording.end}")
            recording.start = position
            recording.frames = {begin: each for begin, each in recording.frames.items() if begin >= position}
        elif position != recording.stop:
            raise Violation("signal", f"recording {recording_id} goes on at {position}, not at {recording.stop}")
        is_going = not (stream.is_closed or stream.is_stopping or self.is_faulty)
        if is_going and self.announced_now.get(stream.publication.session_id) != recording_id:
            raise Violation("signal", f"recording {recording_id} has no counter when its begin is signalled")
        recording.is_certain = recording.is_active = True
        recording.is_busy = stream.is_awaited = False
        recording.stop, recording.starts = None, set()
        recording.announced = max(recording.announced, position)

    def _on_stop(self, stream: Stream, recording_id: int, position: int) -> None:
        recording = stream.recording
        stream.drain(self.plan.checksum)
        if recording.recording_id != recording_id or not recording.is_active:
            raise Violation("signal", f"stop of {recording_id} at {position}, which is not active")
        if position < recording.announced or not recording.is_boundary(position):
            raise Violation(
                "signal", f"recording {recording_id} stops at {position}: announced {recording.announced}, "
                f"published {recording.end}"
            )  # fmt: skip
        if stream.is_closed and not stream.is_stopping and not self.is_faulty and position != recording.end:
            raise Violation("complete", f"recording {recording_id} stops at {position}, published {recording.end}")
        recording.stop = recording.announced = position
        recording.is_active = False
        for replay in self.replays:
            if replay.recording is recording and replay.stop is None:
                replay.stop = position
        recording.cut(position)
        stream.is_detached = True
        self._close_stream(stream)
        if not stream.is_auto_stop:
            self._end_subscription(stream)
        stream.subscription.close()  # a publication that has ended is there for new subscribers until all have read it

    def _end_subscription(self, stream: Stream) -> None:
        """A subscription that records the next publication as well; it is not to: each recording has its stream."""
        recording = stream.recording
        recording.is_busy = True

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code == OK:
                recording.is_busy = False
            else:
                self._refused(recording, "end of a subscription", relevant_id, text, UNKNOWN_SUBSCRIPTION)

        self._request(answered, "StopRecordingSubscriptionRequest", subscription_id=stream.subscription_id)

    def _close_stream(self, stream: Stream) -> None:
        if not stream.is_closed:
            stream.is_closed = True
            stream.publication.close()

    def _refused(self, recording: Recording, what: str, code: int, text: str, *allowed: int) -> None:
        """An error reply. After a failure of the disk nobody knows whether it was done."""
        if self.is_faulty:
            recording.is_busy = True
            return
        if code not in allowed:
            raise Violation("answer", f"{what} of recording {recording.recording_id}: {code} {text}")
        recording.is_busy = False

    # Operations.

    def do(self, operation: Step) -> None:
        """Do one, and a turn."""
        if self.is_over:
            return
        draw = random.Random(operation.seed)
        self.log.append(f"{operation.number} {operation.kind}")
        getattr(self, f"_do_{operation.kind}")(draw)
        if not self.is_over and operation.kind not in ("kill", "cut", "restart"):
            self.turn(draw.choice([0, 0, 1, 5]))

    def _do_work(self, draw: random.Random) -> None:
        for _ in range(draw.choice([1, 3, 10])):
            self.turn(draw.choice([0, 1, 1, 10, 300]))

    def _open_stream(self, recording: Recording, position: int) -> Stream:
        term_id = (INITIAL_TERM_ID + position // TERM_LENGTH + 2**31) % 2**32 - 2**31
        place = f"init-term-id={INITIAL_TERM_ID}|term-id={term_id}|term-offset={position % TERM_LENGTH}"
        tap = seam.add_subscription(self.observers, IPC, recording.stream_id)
        publication = seam.add_publication(self.users, f"{IPC}|{place}", recording.stream_id, exclusive=True)
        seam.invoke(self.observers)
        image = seam.image(tap, publication.session_id)
        assert image is not None
        stream = Stream(recording, publication, tap, image, position=position)
        self.streams.append(stream)
        self.by_session[publication.session_id] = recording
        return stream

    def _do_record(self, draw: random.Random) -> None:
        if not self.is_connected or len([each for each in self.recordings.values() if not each.is_gone]) >= 8:
            return
        position = draw.choice(STARTS)
        recording = Recording(self.next_stream_id, position, is_busy=True)
        self.next_stream_id += 1
        self.recordings[recording.stream_id] = recording
        stream = self._open_stream(recording, position)
        if draw.random() < 0.3:
            self._publish(stream, draw, 2)
        stream.is_auto_stop = draw.random() < 0.8
        stream.correlation_id = self._request(
            lambda code, relevant_id, text: self._on_recording(stream, code, relevant_id, text),
            "StartRecordingRequest2",
            stream_id=recording.stream_id,
            source_location=draw.randrange(2),
            auto_stop=int(stream.is_auto_stop),
            channel=IPC.encode(),
        )
        self.stats["recordings"] += 1

    def _on_recording(self, stream: Stream, code: int, relevant_id: int, text: str) -> None:
        if code == OK:
            stream.subscription_id = relevant_id
            return
        self._refused(stream.recording, "recording", relevant_id, text, MAX_RECORDINGS)
        stream.is_stopping = True
        stream.is_awaited = False

    def _do_publish(self, draw: random.Random) -> None:
        streams = [each for each in self.streams if not (each.is_closed or each.is_awaited)]
        if streams:
            self._publish(draw.choice(streams), draw, draw.choice([1, 2, 5, 20]))

    def _publish(self, stream: Stream, draw: random.Random, count: int) -> None:
        for _ in range(count):
            size, kind = draw.choice(SIZES), draw.randrange(4)
            payload = bytes(size)
            if kind == 1:
                payload = draw.randbytes(size // 2) + bytes(size - size // 2)
            elif kind == 2 and size:
                payload = bytes(size - 1) + b"e"
            elif kind == 3:
                payload = draw.randbytes(size)
            if seam.offer(stream.publication, payload) < 0:
                return
            self.stats["messages"] += 1

    def _do_close(self, draw: random.Random) -> None:
        streams = [each for each in self.streams if not each.is_closed and each.recording.is_active]
        if streams:
            self._close_stream(draw.choice(streams))

    def _do_stop(self, draw: random.Random) -> None:
        streams = [each for each in self.streams if each.recording.is_active and not each.is_detached]
        if not streams or not self.is_connected:
            return
        stream = draw.choice(streams)
        kind = draw.randrange(3)
        stream.is_stopping = True

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK and relevant_id not in (UNKNOWN_SUBSCRIPTION, UNKNOWN_RECORDING):
                self._refused(stream.recording, "stop", relevant_id, text)

        if kind == 0:
            self._request(answered, "StopRecordingByIdentityRequest", recording_id=stream.recording.recording_id)
        elif kind == 1:
            self._request(answered, "StopRecordingSubscriptionRequest", subscription_id=stream.subscription_id)
        else:
            self._request(answered, "StopRecordingRequest", stream_id=stream.recording.stream_id, channel=IPC.encode())

    def _idle_recordings(self) -> list[Recording]:
        return [
            each
            for each in self.recordings.values()
            if each.is_certain and not (each.is_active or each.is_busy or each.is_gone or each.stop is None)
        ]

    def _do_extend(self, draw: random.Random) -> None:
        idle = self._idle_recordings()
        if not idle or not self.is_connected:
            return
        recording = draw.choice(idle)
        assert recording.stop is not None
        recording.is_busy = True
        stream = self._open_stream(recording, recording.stop)
        stream.is_awaited = True
        stream.is_auto_stop = draw.random() < 0.8
        stream.correlation_id = self._request(
            lambda code, relevant_id, text: self._on_recording(stream, code, relevant_id, text),
            "ExtendRecordingRequest2",
            recording_id=recording.recording_id,
            stream_id=recording.stream_id,
            source_location=draw.randrange(2),
            auto_stop=int(stream.is_auto_stop),
            channel=IPC.encode(),
        )
        self.stats["extensions"] += 1

    def _do_replay(self, draw: random.Random) -> None:
        known = [each for each in self.recordings.values() if each.is_active and not each.is_busy]
        known += self._idle_recordings()
        if not known or not self.is_connected:
            return
        recording = draw.choice(known)
        limit = recording.announced if recording.stop is None else recording.stop
        positions = [each for each in recording.boundaries(limit) if each < limit or recording.is_active]
        if not positions:
            return
        begin = draw.choice(positions)
        self.next_replay_stream_id += 1
        subscription = seam.add_subscription(self.observers, "aeron:ipc", self.next_replay_stream_id)
        replay = Replay(
            recording,
            recording.frames,
            begin,
            recording.stop,
            subscription,
            self.next_replay_stream_id,
            is_slow=draw.random() < 0.2,
            announced=limit,
        )
        self.replays.append(replay)

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                if not self.is_faulty and not replay.is_stopped and relevant_id != MAX_REPLAYS:
                    raise Violation("replay", f"of {recording.recording_id} from {begin}: {relevant_id} {text}")
                replay.is_done = True
            else:
                replay.session_id = relevant_id

        self._request(
            answered,
            "ReplayRequest",
            recording_id=recording.recording_id,
            position=begin,
            length=-1,
            replay_stream_id=self.next_replay_stream_id,
            file_io_max_length=draw.choice([-1, 1408, 65536]),
            replay_token=-1,
            replay_channel=b"aeron:ipc",
        )
        self.stats["replays"] += 1

    def _read_replays(self) -> None:
        seam.invoke(self.observers)
        for replay in self.replays:
            replay.announced = max(replay.announced, replay.recording.announced, replay.recording.stop or 0)
            if replay.is_done or (replay.is_slow and self.random.random() < 0.8):
                continue
            self._read_replay(replay)

    def _read_replay(self, replay: Replay) -> None:
        if replay.image is None:
            replay.image = seam.image_at_index(replay.subscription, 0)
            if replay.image is None:
                return
            replay.position = replay.image.join_position
            if replay.position != replay.begin:
                raise Violation("replay", f"from {replay.begin} begins at {replay.position}")
        name = f"of {replay.recording.recording_id} from {replay.begin}"
        ids = replay.image.session_id.to_bytes(4, "little", signed=True) + replay.stream_id.to_bytes(4, "little")
        while block := seam.poll_blocks(replay.image):
            for length, frame in frames_of(block):
                # What came after its beginning is not in its frames, and may be purged by now, where a reader is slow.
                held = replay.frames if replay.position in replay.frames else replay.recording.ever
                end, expected = held.get(replay.position, (0, b""))
                # A frame that is recorded with a checksum is replayed with an id.
                if end != replay.position + length or without_ids(frame) != without_ids(expected):
                    raise Violation("replay", f"{name}: another frame at {replay.position}")
                if frame[12:20] != ids:
                    raise Violation("replay", f"{name}: at {replay.position} are the ids of another stream")
                replay.position += length
                if replay.position > replay.announced and not self.is_faulty:
                    raise Violation("replay", f"{name} is at {replay.position}; announced was {replay.announced}")
                self.stats["frames replayed"] += 1
        if seam.is_end_of_stream(replay.image) or seam.is_closed(replay.image):
            stop = replay.stop if replay.stop is not None else replay.recording.stop
            is_short = stop is not None and replay.position < min(stop, replay.recording.announced)
            if is_short and not (replay.is_stopped or self.is_faulty):
                raise Violation("replay", f"{name} ends at {replay.position} before {stop}")
            replay.is_done = True
            replay.subscription.close()
            self.stats["replays read to the end"] += not replay.is_stopped

    def _do_stop_replays(self, draw: random.Random) -> None:
        going = [each for each in self.replays if not each.is_done]
        if not going or not self.is_connected:
            return
        chosen = draw.choice(going)
        recording = chosen.recording
        if chosen.session_id >= 0 and draw.random() < 0.5:
            chosen.is_stopped = True
            self._request(
                lambda code, relevant_id, text: None, "StopReplayRequest", replay_session_id=chosen.session_id
            )
            return
        for replay in self.replays:
            replay.is_stopped |= replay.recording is recording

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                raise Violation("answer", f"stop replays: {relevant_id} {text}")

        self._request(answered, "StopAllReplaysRequest", recording_id=recording.recording_id)

    def _do_truncate(self, draw: random.Random) -> None:
        idle = self._idle_recordings()
        if not idle or not self.is_connected:
            return
        recording = draw.choice(idle)
        assert recording.stop is not None
        position = draw.choice(recording.boundaries(recording.stop))
        recording.is_busy = True
        recording.cuts = {position}

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                self._refused(recording, "truncation", relevant_id, text, ACTIVE_RECORDING)
                if not recording.is_busy:
                    recording.cuts = set()
                return
            recording.cuts = set()
            if position == recording.start:
                recording.detached = None  # its files go with the others
            recording.stop = recording.announced = position
            recording.cut(position)
            if self.control is not None:
                self.control.deleting[correlation_id] = recording
            self.stats["truncations"] += 1

        correlation_id = self._request(
            answered, "TruncateRecordingRequest", recording_id=recording.recording_id, position=position
        )

    def _do_purge(self, draw: random.Random) -> None:
        idle = self._idle_recordings()
        if not idle or not self.is_connected:
            return
        recording = draw.choice(idle)
        recording.is_busy = recording.may_be_gone = True

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                self._refused(recording, "purge", relevant_id, text, ACTIVE_RECORDING)
                recording.may_be_gone = recording.is_busy
                return
            recording.is_gone = True
            if self.control is not None:
                self.control.deleting[correlation_id] = recording
            self.stats["purges"] += 1

        correlation_id = self._request(answered, "PurgeRecordingRequest", recording_id=recording.recording_id)

    def _later_starts(self) -> list[tuple[Recording, int]]:
        """Where recordings may be made to begin."""
        known = [each for each in self.recordings.values() if each.is_active and not each.is_busy]
        length = self.plan.segment_length
        choices = []
        for each in [*known, *self._idle_recordings()]:
            first = each.start // TERM_LENGTH * TERM_LENGTH
            end = each.announced if each.stop is None else each.stop
            choices += [(each, base) for base in range(first + length, end + 1, length)]
        return choices

    def _do_purge_segments(self, draw: random.Random) -> None:
        choices = self._later_starts()
        if not choices or not self.is_connected:
            return
        recording, start = draw.choice(choices)
        recording.is_busy = True
        recording.starts = {start}

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                self._refused(recording, "purge of segments", relevant_id, text, GENERIC)
                if not self.is_faulty and not text.startswith("invalid detach: replay in progress"):
                    raise Violation("answer", f"purge of segments of {recording.recording_id}: {text}")
                recording.starts = recording.starts if recording.is_busy else set()
                return
            recording.begin_at(start)
            recording.starts, recording.detached = set(), None
            if self.control is not None:
                self.control.deleting[correlation_id] = recording
            self.stats["purges of segments"] += 1

        correlation_id = self._request(
            answered, "PurgeSegmentsRequest", recording_id=recording.recording_id, new_start_position=start
        )

    def _do_detach(self, draw: random.Random) -> None:
        choices = self._later_starts()
        if not choices or not self.is_connected:
            return
        recording, start = draw.choice(choices)
        recording.is_busy = True
        recording.starts = {start}

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                self._refused(recording, "detaching", relevant_id, text, GENERIC)
                if not self.is_faulty and not text.startswith("invalid detach: replay in progress"):
                    raise Violation("answer", f"detaching of {recording.recording_id}: {text}")
                recording.starts = recording.starts if recording.is_busy else set()
                return
            if recording.detached is None:
                recording.detached = recording.start
            recording.begin_at(start)
            recording.starts, recording.is_busy = set(), False
            self.stats["detached segments"] += 1

        self._request(answered, "DetachSegmentsRequest", recording_id=recording.recording_id, new_start_position=start)

    def _detached_recordings(self) -> list[Recording]:
        known = [each for each in self.recordings.values() if each.is_active and not each.is_busy]
        return [each for each in [*known, *self._idle_recordings()] if each.detached is not None]

    def _do_attach(self, draw: random.Random) -> None:
        detached = self._detached_recordings()
        if not detached or not self.is_connected:
            return
        recording = draw.choice(detached)
        start = recording.detached
        assert start is not None
        recording.is_busy = True
        recording.starts = {start}

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                self._refused(recording, "attaching", relevant_id, text)
                return
            if (
                relevant_id == 0 and recording.start != start
            ):  # else a request before a crash was done, and not answered
                raise Violation("answer", f"attaching of {recording.recording_id} from {start}: nothing was there")
            recording.begin_at(start)
            recording.starts, recording.detached, recording.is_busy = set(), None, False
            self.stats["attached segments"] += 1

        self._request(answered, "AttachSegmentsRequest", recording_id=recording.recording_id)

    def _do_delete_detached(self, draw: random.Random) -> None:
        detached = self._detached_recordings()
        if not detached or not self.is_connected:
            return
        recording = draw.choice(detached)
        recording.is_busy, recording.detached = True, None

        def answered(code: int, relevant_id: int, text: str) -> None:
            if code != OK:
                self._refused(recording, "deletion of detached segments", relevant_id, text)
            elif self.control is not None:
                self.control.deleting[correlation_id] = recording

        correlation_id = self._request(answered, "DeleteDetachedSegmentsRequest", recording_id=recording.recording_id)

    def _do_lose_publishers(self, draw: random.Random) -> None:
        """Their process dies: recordings end with what was consumed."""
        for stream in self.streams:
            stream.drain(self.plan.checksum)
            stream.is_stopping = stream.is_closed = True
        self.users.sever()
        self.users.expire()
        self.users = self.driver.connect("publishers")

    def _do_ask(self, draw: random.Random) -> None:
        """What the archive says of a recording is what is known."""
        idle = self._idle_recordings()
        if not idle or not self.is_connected:
            return
        recording = draw.choice(idle)
        name, expected = draw.choice([("StopPositionRequest", "stop"), ("StartPositionRequest", "start")])
        asked = recording.stop, recording.start

        def answered(code: int, relevant_id: int, text: str) -> None:
            known = getattr(recording, expected)
            is_known = (recording.stop, recording.start) == asked and not (recording.is_busy or self.is_faulty)
            if is_known and (code, relevant_id) != (OK, known):
                raise Violation("answer", f"{name} of {recording.recording_id}: {relevant_id} {text}, not {known}")

        self._request(answered, name, recording_id=recording.recording_id)

    def _do_vanish(self, draw: random.Random) -> None:
        if self.control is not None:
            # Who asked is gone, and nobody knows what came of it.
            for recording in self.control.deleting.values():
                recording.is_busy = True
            for stream in self.streams:
                stream.is_stopping = True
                stream.is_awaited = True
                if not stream.is_detached:
                    stream.recording.is_busy = True
            self.control.client.sever()
            self.control.client.expire()
            self.control = None

    def _do_free_disk(self, draw: random.Random) -> None:
        self.disk.capacity = CAPACITY

    def _arm_crash(self, draw: random.Random) -> None:
        self.calls_left = draw.randint(1, draw.choice([3, 20, 60]))

    def _do_restart(self, draw: random.Random) -> None:
        """An end in order, after which all is in the catalog."""
        self.calls_left = -1
        self.fault = None
        self.disk.capacity = CAPACITY
        was_faulty = self.is_faulty
        self.agent.close()
        self._observe_counters()
        for stream in self.streams:
            stream.drain(self.plan.checksum)
        self._note_unknown_starts()
        self.storage.kill(self.draws)
        if not was_faulty:
            self._check_disk_at_rest()
        self._close_users()
        self.client.close()
        self.streams, self.replays = [], []
        self.clock.advance((20 + draw.randrange(100)) * MS)
        self.stats["restarts"] += 1
        self._start([])

    def _check_disk_at_rest(self) -> None:
        for entry in Disk(self.disk.contents(), DIRECTORY).entries:
            if entry.stop < 0:
                raise Violation("close", f"recording {entry.recording_id} has no stop position after an end in order")

    def finish(self) -> None:
        """The last crash, and what it leaves."""
        if not self.is_over:
            for _ in range(3):
                self.turn(1)
        if not self.is_over:
            self.is_power_cut = self.is_power_cut and self.plan.level > 0
            self._crash()
            self._end_life(self.is_power_cut)
            self._start([])

    @property
    def digest(self) -> int:
        """A number for all that happened, and for what is on the disk."""
        text = repr((self.log, sorted(self.stats.items())))
        return zlib.crc32(text.encode(), Disk(self.disk.contents(), DIRECTORY).digest())


def run(plan: Plan) -> Result[Plan]:
    """Run a plan; an error of the simulation itself is raised."""
    return World(plan).run()


__all__ = ["HEADER_LENGTH", "Plan", "Result", "Step", "World", "expand", "run", "with_checksum"]
