"""Lives of an archive's store on a simulated disk, each ended by a crash; after each all that it promised is there.

A seed decides everything: what is recorded, stopped, extended, truncated, purged, moved and deleted, at which level,
which calls fail, and at which call the process is killed or the power cut. Run it for more seeds than the tests do::

    python -m tests.store_crashes --seeds 100000 --first 1
"""

from __future__ import annotations

import argparse
import errno
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from container.archive.server.store.recording_store import Deletion, RecordingStore, StoreSettings
from container.archive.server.store.segment_writer import SegmentWriter
from container.errors import ArchiveError, RecordingError
from container.files.checksums import crc32, crc32c
from container.storage.storage_seam import Storage
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from container.testing.simulation.virtual_time import Draws
from tests.recorded_frames import HEADER_LENGTH, TERM_LENGTH, Frames

FRAMES = Frames()
MTU_LENGTH = 16 << 10
PAGE = 4096
SECTOR = 512
CAPACITY = 1 << 40
SIZES = (0, 1, 31, 32, 33, 100, 448, 480, 481, 1000, 1376, 4064, 4096, 9000, MTU_LENGTH - HEADER_LENGTH)
NOW_MS = 1_700_000_000_000
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


class Violation(AssertionError):
    """The store broke a promise."""


@dataclass
class Recording:
    """What may be found of a recording."""

    recording_id: int
    start: int
    stop: int
    """What is announced: at least so much must be there."""
    frames: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Begin, end and bytes of each frame, also of those that were not announced."""
    ever: dict[int, set[bytes]] = field(default_factory=dict)
    """All that was ever recorded at a position."""
    least_stop: int | None = None
    """Where it may end instead, while a truncation or a migration is under way."""
    starts: set[int] = field(default_factory=set)
    """Where it may begin."""
    may_be_gone: bool = False
    is_gone: bool = False
    session_id: int = FRAMES.session_id
    """Of the image that is recorded now, or was last."""
    is_broken: bool = False
    """A call failed: nothing more is done with it until the next open."""

    def add(self, content: bytes, length: int) -> None:
        """Frames that are handed to the writer."""
        begin = self.frames[-1][1] if self.frames else self.start
        if content[6:8] == b"\0\0":
            self._add(begin, begin + length, content[:HEADER_LENGTH])
            return
        offset = 0
        while offset < length:
            frame_length = -(-int.from_bytes(content[offset : offset + 4], "little") // 32) * 32
            frame = content[offset : offset + frame_length]
            self._add(begin + offset, begin + offset + frame_length, frame)
            offset += frame_length

    def _add(self, begin: int, end: int, frame: bytes) -> None:
        self.frames.append((begin, end, frame))
        self.ever.setdefault(begin, set()).add(frame)

    def cut(self, stop: int) -> None:
        self.frames = [each for each in self.frames if each[1] <= stop]

    @property
    def boundaries(self) -> list[int]:
        return [self.start, *(end for _, end, _ in self.frames)]


def with_checksums(content: bytes, kind: int) -> bytes:
    """A block as an archive records it that has checksums."""
    compute = (None, crc32, crc32c)[kind]
    if compute is None or content[6:8] == b"\0\0":
        return content
    recorded, offset = bytearray(content), 0
    while offset < len(content):
        end = offset + -(-int.from_bytes(content[offset : offset + 4], "little") // 32) * 32
        recorded[offset + 12 : offset + 16] = compute(content[offset + HEADER_LENGTH : end]).to_bytes(4, "little")
        offset = end
    return bytes(recorded)


@dataclass
class Fault:
    """A call that is to fail in this life."""

    kind: str
    error: int
    calls_before: int
    written: int


class Lives:
    """One seed's disk, with what is known of it."""

    def __init__(self, seed: int, *, level: int | None = None) -> None:
        self.random = random.Random(seed)
        self.draws = Draws(seed)
        self.level = self.random.randrange(3) if level is None else level
        self.disk = SimulatedDisk(on_latency=self._on_latency, capacity=CAPACITY)
        self.segment_length = TERM_LENGTH * self.random.choice([1, 2])
        self.checksum = self.random.choice([0, 0, 1, 2])
        self.recordings: dict[int, Recording] = {}
        self.storage: SimulatedStorage = self.disk.process()
        self.store: RecordingStore | None = None
        self.writers: dict[int, SegmentWriter] = {}
        self.deletions: list[Deletion] = []
        self.owner: tuple[int, int] | None = None
        self.starts = 0
        self.time_ms = NOW_MS
        self.calls_left = -1
        self.fault: Fault | None = None
        self.has_failed = False
        self.is_power_cut = False
        self.log: list[str] = []
        self.errors: list[Exception] = []
        self.ends_here = False

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms

    # The life of a process.

    def _on_latency(self, kind: str, length: int) -> None:
        if self.calls_left > 0:
            self.calls_left -= 1
            if self.calls_left == 0:
                self._crash()
                return
        if self.fault is not None and self.fault.kind == kind:
            self.fault.calls_before -= 1
            if self.fault.calls_before < 0:
                self.log.append(f"  {kind} fails: {errno.errorcode[self.fault.error]}")
                self.disk.fail(kind, self.fault.error, written=self.fault.written)
                self.fault, self.has_failed = None, True

    def _crash(self) -> None:
        self.log.append("cut power" if self.is_power_cut else "kill")
        if self.is_power_cut:
            self.disk.cut_power(self.draws)
        else:
            self.storage.kill(self.draws)

    def settings(self) -> StoreSettings:
        is_uncertain = self.level == 0 and self.is_power_cut
        return StoreSettings(
            archive_dir="/",
            segment_file_length=self.segment_length,
            file_sync_level=self.level,
            catalog_file_sync_level=self.level,
            catalog_capacity=1 << 13,
            low_storage_space_threshold=0,
            record_checksum=self.checksum,
            replay_checksum=self.checksum,
            torn_frame="cut" if is_uncertain else "refuse",
        )

    def open(self) -> RecordingStore:
        self.starts += 1
        owner = (self.starts, 42)
        return RecordingStore.open(
            self.storage,
            self.settings(),
            now_ms=self.now_ms(),
            former_owner=self.owner,
            owner=owner,
            write_owner=lambda: setattr(self, "owner", owner),
            report_error=self.errors.append,
            report_progress=lambda: None,
        )

    def live(self, steps: int) -> None:
        """One life, which a crash ends."""
        self.storage = self.disk.process()
        self.writers, self.deletions = {}, []
        self.fault, self.has_failed = None, False
        self.calls_left = self.random.randint(1, self.random.choice([10, 60, 200]))
        self.is_power_cut = self.random.random() < 0.5
        self.disk.longest_write = self.random.choice([0, 0, 0, 512, 5000])
        self.log.append("-- live")
        try:
            self.store = self.open()
            if self.random.random() < 0.1:
                used = self.disk.capacity - self.storage.usable_space("/")
                self.disk.capacity, self.has_failed = used + self.random.randrange(8) * PAGE, True
                self.log.append("the disk is nearly full")
            for _ in range(steps):
                if self.fault is None and self.random.random() < 0.06:
                    kind, error = self.random.choice(FAULTS)
                    # A system writes whole sectors of what it does not write whole.
                    self.fault = Fault(kind, error, self.random.randrange(4), self.random.randrange(7) * SECTOR)
                self._step(self.store)
        except (OSError, ArchiveError, RecordingError) as error:
            if not self.storage.is_dead and not self.has_failed:
                raise Violation(f"{type(error).__name__}: {error}") from error
            self.log.append(f"  {error}")
        self.calls_left, self.fault, self.disk.capacity = -1, None, CAPACITY
        if not self.storage.is_dead:
            self._crash()

    def _step(self, store: RecordingStore) -> None:
        idle = [each for each in self.recordings.values() if self._is_idle(each)]
        active = [self.recordings[each] for each in self.writers]
        kinds: list[tuple[float, Callable[[RecordingStore], object]]] = [(1.0, self._start)]
        if active:
            kinds += [(12.0, self._write), (2.0, self._stop)]
        if idle:
            kinds += [(3.0, self._extend), (2.0, self._truncate), (0.4, self._purge)]
        if any(self._is_idle(each) or self._is_active(each) for each in self.recordings.values()):
            kinds.append((0.7, self._purge_segments))
        if len(idle) > 1:
            kinds.append((0.5, self._migrate))
        if self.deletions:
            kinds.append((6.0, self._delete))
        weights = [weight for weight, _ in kinds]
        (action,) = self.random.choices([action for _, action in kinds], weights)
        action(store)

    def _is_idle(self, recording: Recording) -> bool:
        return (
            recording.recording_id not in self.writers
            and not recording.is_broken
            and not recording.is_gone
            and all(each.recording_id != recording.recording_id for each in self.deletions)
        )

    def _is_active(self, recording: Recording) -> bool:
        is_deleted_from = any(each.recording_id == recording.recording_id for each in self.deletions)
        return recording.recording_id in self.writers and not is_deleted_from and not recording.is_broken

    def _idle(self) -> Recording:
        return self.random.choice([each for each in self.recordings.values() if self._is_idle(each)])

    @contextmanager
    def _trying(self, what: str, *recordings: Recording) -> Iterator[None]:
        """An operation that may fail by a fault; then it may be done, and may not be, until the next open."""
        self.log.append(what)
        try:
            yield
        except (OSError, ArchiveError) as error:
            self.log.append(f"  {error}")
            for recording in recordings:
                recording.is_broken = True
            if self.storage.is_dead:
                raise
            if not self.has_failed:
                raise Violation(f"{what}: {error}") from error

    def _start(self, store: RecordingStore) -> None:
        recording_id = store.catalog.next_recording_id
        start = self.random.choice([0, TERM_LENGTH - 2048, 3 * TERM_LENGTH - 20_000, 5 * TERM_LENGTH])
        recording = Recording(recording_id, start, start, starts={start}, may_be_gone=True)
        failed = self.recordings.get(recording_id)
        if failed is not None:  # its id was not used up, and yet it may be there
            recording.starts |= failed.starts
            recording.least_stop = min(recording.starts)
        self.recordings[recording_id] = recording
        with self._trying(f"start {recording_id} at {start}", recording):
            writer = store.start_recording(
                start_position=start,
                initial_term_id=FRAMES.initial_term_id,
                term_buffer_length=TERM_LENGTH,
                mtu_length=MTU_LENGTH,
                session_id=FRAMES.session_id,
                stream_id=FRAMES.stream_id,
                stripped_channel="aeron:ipc",
                original_channel="aeron:ipc",
                source_identity="aeron:ipc",
                now_ms=self.now_ms(),
            )
            recording.may_be_gone, recording.starts, recording.least_stop = False, {start}, None
            self._opened(store, recording, writer)

    def _opened(self, store: RecordingStore, recording: Recording, writer: SegmentWriter) -> None:
        self.writers[recording.recording_id] = writer
        try:
            writer.open()
        except ArchiveError as error:
            self.log.append(f"  {error}")
            self._stopped(store, recording, writer)

    def _payload(self) -> bytes:
        size = self.random.choice(SIZES)
        kind = self.random.randrange(4)
        if kind == 0:
            return bytes(size)
        if kind == 1:
            half = self.random.randrange(size + 1)
            return self.random.randbytes(half) + bytes(size - half)
        if kind == 2:
            return bytes(size - 1) + b"e" if size else b""
        return self.random.randbytes(size)

    def _block(self, position: int, session_id: int) -> tuple[bytes, int]:
        frames = Frames(session_id=session_id)
        rest = frames.rest(position)
        if rest == HEADER_LENGTH or self.random.random() < 0.1:
            return frames.padding(position), rest
        payloads: list[bytes] = []
        length = 0
        for _ in range(self.random.choice([1, 1, 2, 3, 8])):
            payload = self._payload()
            frame_length = -(-(HEADER_LENGTH + len(payload)) // 32) * 32
            if length + frame_length > rest:
                break
            payloads.append(payload)
            length += frame_length
        if not payloads:
            return frames.padding(position), rest
        return frames.block(position, *payloads), length

    def _write(self, store: RecordingStore) -> None:
        recording_id = self.random.choice(list(self.writers))
        recording, writer = self.recordings[recording_id], self.writers[recording_id]
        content, length = self._block(writer.position, recording.session_id)
        recording.cut(writer.position)
        recording.add(with_checksums(content, self.checksum), length)
        self.log.append(f"write {recording_id} at {writer.position}: {length}")
        try:
            writer.write(content)
        except ArchiveError as error:
            self.log.append(f"  {error}")
            if not self.storage.is_dead and not self.has_failed:
                raise Violation(f"write: {error}") from error
            self._stopped(store, recording, writer)
            return
        recording.stop = writer.position
        if recording.stop != recording.frames[-1][1]:
            raise Violation(f"the writer is at {recording.stop} behind a block that ends at {recording.frames[-1][1]}")

    def _stopped(self, store: RecordingStore, recording: Recording, writer: SegmentWriter) -> None:
        position = writer.position
        if position != recording.stop and not (writer.has_failed and position == recording.frames[-1][1]):
            raise Violation(f"the writer of {recording.recording_id} is at {position}, announced is {recording.stop}")
        self.writers.pop(recording.recording_id, None)
        with self._trying(f"stop {recording.recording_id} at {position}", recording):
            store.stop(writer, self.now_ms())
            recording.cut(position)
            recording.stop = position

    def _stop(self, store: RecordingStore) -> None:
        recording_id = self.random.choice(list(self.writers))
        self._stopped(store, self.recordings[recording_id], self.writers[recording_id])

    def _extend(self, store: RecordingStore) -> None:
        recording = self._idle()
        recording.session_id = self.random.randrange(-(1 << 31), 1 << 31)
        with self._trying(f"extend {recording.recording_id} at {recording.stop}", recording):
            writer = store.extend_recording(
                recording.recording_id,
                recording.stop,
                control_session_id=self.random.randrange(1 << 40),
                correlation_id=self.random.randrange(1 << 40),
                session_id=recording.session_id,
            )
            self._opened(store, recording, writer)

    def _truncate(self, store: RecordingStore) -> None:
        recording = self._idle()
        position = self.random.choice(recording.boundaries)
        if self.random.random() < 0.1:
            with self._trying(f"truncate {recording.recording_id} to no frame"):
                try:
                    store.truncate(recording.recording_id, recording.start + 8)
                except ArchiveError as error:
                    if error.code != 16:
                        raise
        recording.least_stop = position
        with self._trying(f"truncate {recording.recording_id} to {position}", recording):
            deletion = store.truncate(recording.recording_id, position)
            recording.stop, recording.least_stop = position, None
            recording.cut(position)
            self._deleting(deletion)

    def _purge(self, store: RecordingStore) -> None:
        recording = self._idle()
        recording.may_be_gone = True
        with self._trying(f"purge {recording.recording_id}", recording):
            deletion = store.purge(recording.recording_id)
            recording.is_gone = True
            self._deleting(deletion)

    def _purge_segments(self, store: RecordingStore) -> None:
        recording = self.random.choice(
            [each for each in self.recordings.values() if self._is_idle(each) or self._is_active(each)]
        )
        base = recording.start // TERM_LENGTH * TERM_LENGTH
        bases = range(base + self.segment_length, recording.stop + 1, self.segment_length)
        if not bases:
            return
        start = self.random.choice(bases)
        recording.starts.add(start)
        with self._trying(f"purge segments of {recording.recording_id} to {start}", recording):
            deletion = store.purge_segments(recording.recording_id, start)
            recording.start, recording.starts = start, {start}
            recording.frames = [each for each in recording.frames if each[0] >= start]
            self._deleting(deletion)

    def _migrate(self, store: RecordingStore) -> None:
        idle = [each for each in self.recordings.values() if self._is_idle(each)]
        pairs = [(a, b) for a in idle for b in idle if a is not b and self._fit(a, b)]
        if not pairs:
            return
        source, target = self.random.choice(pairs)
        merged = source.frames + target.frames
        both = sorted(merged)
        start, stop = min(source.start, target.start), max(source.stop, target.stop)
        self.log.append(f"migrate {source.recording_id} to {target.recording_id}")
        for begin, contents in source.ever.items():
            target.ever.setdefault(begin, set()).update(contents)
        target.starts.add(start)
        old = (target.frames, target.stop, source.frames)
        target.frames = both
        source.least_stop = source.start
        try:
            store.migrate(source.recording_id, target.recording_id)
        except (OSError, ArchiveError) as error:
            self.log.append(f"  {error}")
            source.is_broken = target.is_broken = True
            if self.storage.is_dead:
                raise
            if not self.has_failed and "preexisting" not in str(error):
                raise Violation(f"migrate: {error}") from error
            if "preexisting" in str(error):
                target.frames, target.starts, source.least_stop = old[0], {target.start}, None
            return
        target.start, target.stop, target.starts = start, stop, {start}
        source.stop, source.least_stop, source.frames = source.start, None, []

    def _fit(self, source: Recording, target: Recording) -> bool:
        def base(recording: Recording, position: int) -> int:
            first = recording.start // TERM_LENGTH * TERM_LENGTH
            return first + (position - first) // self.segment_length * self.segment_length

        if source.stop == target.start:
            seam = source.stop
        elif source.start == target.stop:
            seam = source.start
        else:
            return False
        return base(source, seam) == seam == base(target, seam)

    def _deleting(self, deletion: Deletion) -> None:
        if not deletion.is_done:
            self.deletions.append(deletion)

    def _delete(self, store: RecordingStore) -> None:
        deletion = self.random.choice(self.deletions)
        with self._trying(f"delete a file of {deletion.recording_id}"):
            try:
                store.delete_next_file(deletion)
            finally:
                if deletion.is_done:
                    self.deletions.remove(deletion)

    # What must be there afterwards.

    def check(self) -> None:
        """Open the store on the disk as it is, and compare."""
        self.storage = self.disk.process()
        is_uncertain = self.level == 0 and self.is_power_cut
        try:
            store = self.open()
        except RecordingError:
            if not is_uncertain:
                raise
            self.ends_here = True  # frames are lost in front of others: an operator is to look
            return
        check_store(self.storage, store, self.recordings, self.segment_length, is_uncertain=is_uncertain)
        self.ends_here = is_uncertain
        store.close()
        if not is_uncertain:
            self._settle()

    def _settle(self) -> None:
        for recording_id in [each for each, recording in self.recordings.items() if recording.is_gone]:
            del self.recordings[recording_id]


def check_store(
    storage: Storage,
    store: RecordingStore,
    recordings: dict[int, Recording],
    segment_length: int,
    *,
    is_uncertain: bool,
) -> None:
    """Compare what the store has with what may be there; the recordings become what is there.

    ``is_uncertain``: nothing was forced, and what was written may be lost. Then only what is read must be right.
    """
    found = set(store.catalog.recording_ids())
    unknown = found - set(recordings)
    if unknown:
        raise Violation(f"recordings {sorted(unknown)} are in the catalog, and nobody made them")
    for recording_id, recording in recordings.items():
        if recording_id not in found:
            if not (recording.may_be_gone or is_uncertain):
                raise Violation(f"recording {recording_id} is lost")
            recording.is_gone = True
            continue
        if recording.is_gone and not is_uncertain:
            raise Violation(f"recording {recording_id} is purged, and is there again")
        check_recording(storage, store, recording, segment_length, is_uncertain=is_uncertain)


def check_recording(
    storage: Storage, store: RecordingStore, recording: Recording, segment_length: int, *, is_uncertain: bool
) -> None:
    """Compare one recording."""
    name = f"recording {recording.recording_id}"
    descriptor = store.catalog.descriptor(recording.recording_id)
    if descriptor is None or descriptor.stop_position < descriptor.start_position:
        raise Violation(f"{name} has no range: {descriptor}")
    start, stop = descriptor.start_position, descriptor.stop_position
    least = recording.stop if recording.least_stop is None else min(recording.least_stop, recording.stop)
    if not is_uncertain:
        if start not in recording.starts:
            raise Violation(f"{name} begins at {start}, expected one of {sorted(recording.starts)}")
        between = recording.least_stop is not None and recording.least_stop < stop < recording.stop and stop != start
        if stop < least or between or stop not in {*recording.boundaries, recording.start, start}:
            raise Violation(f"{name} ends at {stop}, announced is {recording.stop}, or {recording.least_stop}")
    expected = {begin: frame for begin, _, frame in recording.frames}
    reader = store.open_reader(recording.recording_id, start)
    try:
        while reader.position < stop:
            position = reader.position
            length, content = reader.read_frames(stop, 1)
            if length == 0:
                raise RecordingError(f"no whole frame at {position}")
            ever = {frame[:HEADER_LENGTH] for frame in recording.ever.get(position, ())}
            is_right = content[:HEADER_LENGTH] in ever if is_uncertain else content == expected.get(position)
            if not is_right:
                raise Violation(f"{name} has a frame at {position} that was not recorded")
            reader.skip(length)
    except RecordingError as error:
        if not is_uncertain:
            raise Violation(f"{name}, {start} to {stop}: {error}") from error
    finally:
        reader.close()
    if is_uncertain:
        return
    check_tail(storage, recording.recording_id, start, stop, segment_length)
    recording.start, recording.stop, recording.starts = start, stop, {start}
    recording.least_stop, recording.may_be_gone, recording.is_broken = None, False, False
    recording.frames = [each for each in recording.frames if each[0] >= start]
    recording.cut(stop)


def check_tail(storage: Storage, recording_id: int, start: int, stop: int, segment_length: int) -> None:
    """Behind the end of a recording all is zero, and no segments are."""
    first = start // TERM_LENGTH * TERM_LENGTH
    base = first + (stop - first) // segment_length * segment_length
    for file_name in storage.list_directory("/"):
        if not file_name.startswith(f"{recording_id}-") or not file_name.endswith(".rec"):
            continue
        segment_base = int(file_name[len(str(recording_id)) + 1 : -4])
        if segment_base > base:
            raise Violation(f"{file_name} lies behind the end of the recording at {stop}")
        file = storage.open_file(f"/{file_name}", 0)
        length = file.length()
        # A crash while what lies behind the end is cleared leaves the last segment short.
        if length > segment_length or (
            length < segment_length and (segment_base < base or (length < stop - base and stop > start))
        ):
            raise Violation(f"{file_name} has {length} bytes")
        if segment_base == base and file.read(length, stop - base).strip(b"\0"):
            raise Violation(f"{file_name} is not zero behind the end of the recording at {stop}")


def run(seed: int, *, lives: int = 4, steps: int = 40, level: int | None = None) -> Lives:
    """Live through a seed; raises Violation with what happened."""
    world = Lives(seed, level=level)
    try:
        for _ in range(lives):
            world.live(steps)
            world.check()
            if world.ends_here:
                break
    except Exception as error:
        head = f"seed {seed}, level {world.level}, segments of {world.segment_length}, checksum {world.checksum}:"
        note = "\n  ".join([head, *world.log])
        error.add_note(note)
        raise
    return world


def main() -> int:
    """Run seeds from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            run(seed)
        except Exception:
            traceback.print_exc()
            failed += 1
    print(f"{options.seeds} seeds from {options.first} on, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
