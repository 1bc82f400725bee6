"""``./run soak --archive``: a real archive process is killed under load again and again, at points that a seed chooses.

After each kill the counters of its recordings still show what it had announced. The archive is started again, and then
its files must hold, for each recording, exactly a prefix of what was published, up to that position at least. Now and
then it is killed while it repairs its files, ended in order, or asked to stop a recording; recordings go on in later
lives as a cluster's log does.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.cnc_file import CncFile
from container.files.segments import segment_file_name, segment_position
from container.testing.memory import transport_probe as seam
from container.testing.processes.local_archive import LocalArchive
from container.testing.processes.process import Process
from container.transport.streams import Publication
from container.transport.transport_seam import Client
from tests.archive_world import SIGNALS
from tests.replication_world import Archive, DriverWorld, Requests

TERM_LENGTH = 64 * 1024
MTU_LENGTH = 8192
MAX_PAYLOAD_LENGTH = MTU_LENGTH - 32
HEADER = struct.Struct("<iBBHiiii")
HEADER_LENGTH = 32
PADDING = 0
STREAM_ID = 4001
LOCAL_CONTROL_STREAM_ID = 10
LIMIT_S = 30.0
UNBLOCKED_COMMANDS = "Unblocked Control Commands"
_SIZES = (0, 1, 31, 32, 33, 100, 1000, 4064, 4096, MAX_PAYLOAD_LENGTH)


class Lost(AssertionError):
    """What the archive's directory does not hold, or holds and should not."""


@dataclass
class Recording:
    """A recording as those who publish and watch it know it."""

    recording_id: int
    payloads: list[bytes] = field(default_factory=list)
    """All that was published for it, as far as a crash may have left it."""
    announced: int = 0
    """Position up to which it must be there."""
    stop_position: int | None = None
    """What a client was told, or what the last recovery found."""
    publication: Publication | None = None


class ArchiveKills:
    """A driver, an archive and what was published. ``with`` starts the driver, and ends everything."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.seed = seed
        self.choice = random.Random(seed)
        self.directory = directory
        self.counts: Counter[str] = Counter()
        self.recordings: dict[int, Recording] = {}
        self.segment_length = self.choice.choice((1, 2, 16)) * TERM_LENGTH
        self.sync_level = self.choice.choice((0, 0, 1, 2))
        self.aeron_dir = directory / "driver"
        command = [sys.executable, "-m", "container.testing.processes.client_driver", str(self.aeron_dir)]
        self.driver = Process("driver", command, directory=directory)
        self.archive = LocalArchive(
            "native",
            directory,
            self.aeron_dir,
            properties={
                "aeron.archive.segment.file.length": str(self.segment_length),
                "aeron.archive.file.sync.level": str(self.sync_level),
                "aeron.archive.catalog.file.sync.level": str(self.sync_level),
                "aeron.archive.low.storage.space.threshold": "0",
                # A process that is killed while it writes a command to the driver holds up all others, until the driver
                # passes over that command after its client liveness timeout of 10 s.
                "aeron.driver.timeout": "30000",
            },
        )

    def __enter__(self) -> ArchiveKills:
        try:
            assert self.driver.start().read_line(LIMIT_S) == "ready"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.archive.close()
        self.driver.close()

    def driver_report(self) -> str:
        """Whether the driver runs, its errors, and the counter of commands that dead clients had written by half.

        The driver reads no other command behind such a one until its client liveness timeout is over.
        """
        parts = [self.driver.tail()]
        try:
            with closing(CncFile(self.aeron_dir / "cnc.dat")) as file:
                named = [each for each in file.counters() if each.label.startswith(UNBLOCKED_COMMANDS)]
                parts += [f"--- driver: {each.label} = {each.value}" for each in named]
                parts += [f"--- driver: {each}" for each in file.errors()]
        except (ContainerError, OSError) as error:
            parts.append(f"--- driver: {error}")
        return "\n".join(parts)

    def run(self, points: int) -> None:
        """Kill the archive so many times, and look after each; raises Lost for what is not as it should be."""
        for _point in range(points):
            self._start()
            self._live()
        self._start()
        self._end_in_order()

    def _start(self) -> None:
        """Start the archive, now and then kill it while it starts, and look at what it has found."""
        self.archive.release_mark_file()
        self.archive.start()
        while self.choice.random() < 0.1:
            threading.Event().wait(self.choice.random() * 0.25)
            self.archive.kill()
            self.counts["kills of a start"] += 1
            self.archive.release_mark_file()
            self.archive.start()
        self.archive.await_ready(LIMIT_S)
        self.check()

    def _live(self) -> None:
        """Record streams, and kill the archive in the middle of it."""
        world = DriverWorld(cast(Any, SimpleNamespace(aeron_dir=str(self.aeron_dir))))
        try:
            settings = SimpleNamespace(local_control_stream_id=LOCAL_CONTROL_STREAM_ID)
            requests = Requests(world, cast(Archive, SimpleNamespace(settings=settings, host_number=0)))
            requests.open()
            active = self._begin(world, requests)
            self._publish(world, active, self.choice.randrange(1500))
            if self.choice.random() < 0.3:
                self._stop(world, requests, active)
                self._publish(world, active, self.choice.randrange(300))
            self.archive.kill()
            self.counts["kills"] += 1
            self._note_announced(world.clients[0], active)
        finally:
            for recording in self.recordings.values():
                recording.publication = None
            world.close()

    def _begin(self, world: DriverWorld, requests: Requests) -> list[Recording]:
        stopped = [each for each in self.recordings.values() if each.stop_position is not None]
        self.choice.shuffle(stopped)
        extended = stopped[: self.choice.randrange(3)]
        active = [self._extend(world, requests, each) for each in extended]
        return active + [self._start_new(world, requests) for _ in range(self.choice.randrange(0 if active else 1, 3))]

    def _start_new(self, world: DriverWorld, requests: Requests) -> Recording:
        publication = self._add_publication(world, f"aeron:ipc?term-length=64k|mtu={MTU_LENGTH}")
        fields = {"stream_id": STREAM_ID, "source_location": 0, "auto_stop": 1}
        channel = f"aeron:ipc?session-id={publication.session_id}".encode()
        requests.ok("StartRecordingRequest2", channel=channel, **fields)
        recording_id = int(signalled(requests, "START")["recording_id"])
        recording = Recording(recording_id, publication=publication)
        self.recordings[recording_id] = recording
        self.counts["recordings"] += 1
        return recording

    def _extend(self, world: DriverWorld, requests: Requests, recording: Recording) -> Recording:
        descriptor = self._descriptors()[recording.recording_id]
        stop = descriptor.stop_position
        term_id = (descriptor.initial_term_id + stop // TERM_LENGTH + 2**31) % 2**32 - 2**31
        position = f"init-term-id={descriptor.initial_term_id}|term-id={term_id}|term-offset={stop % TERM_LENGTH}"
        publication = self._add_publication(world, f"aeron:ipc?term-length=64k|mtu={MTU_LENGTH}|{position}")
        fields = {"stream_id": STREAM_ID, "source_location": 0, "auto_stop": 1, "recording_id": recording.recording_id}
        channel = f"aeron:ipc?session-id={publication.session_id}".encode()
        requests.ok("ExtendRecordingRequest2", channel=channel, **fields)
        signalled(requests, "EXTEND")
        recording.publication, recording.stop_position = publication, None
        self.counts["extensions"] += 1
        return recording

    def _add_publication(self, world: DriverWorld, channel: str) -> Publication:
        return seam.add_publication(world.clients[0], channel, STREAM_ID, exclusive=True)

    def _publish(self, world: DriverWorld, active: Sequence[Recording], count: int) -> None:
        live = [each for each in active if each.publication is not None]
        for _ in range(count if live else 0):
            recording = self.choice.choice(live)
            payload = self._payload(recording)
            publication = recording.publication
            assert publication is not None
            recording.payloads.append(payload)
            world.until(partial(self._offer, world, publication, payload))
            self.counts["messages"] += 1

    def _offer(self, world: DriverWorld, publication: Publication, payload: bytes) -> bool:
        if seam.offer(publication, payload) > 0:
            return True
        seam.invoke(world.clients[0])
        assert self.archive.is_running, self.archive.report()
        return False

    def _payload(self, recording: Recording) -> bytes:
        """A message of its own, or zeros alone, which a torn page could look like."""
        size = self.choice.choice(_SIZES) if self.choice.random() < 0.5 else self.choice.randrange(MAX_PAYLOAD_LENGTH)
        if self.choice.random() < 0.2:
            return bytes(size)
        word = struct.pack("<iq", recording.recording_id, len(recording.payloads))
        return (word * (size // len(word) + 1))[:size]

    def _stop(self, world: DriverWorld, requests: Requests, active: list[Recording]) -> None:
        """Stop a recording in order: what the client is told holds from then on."""
        live = [each for each in active if each.publication is not None]
        if not live:
            return
        recording = self.choice.choice(live)
        assert recording.publication is not None
        requests.ok("StopRecordingByIdentityRequest", recording_id=recording.recording_id)
        recording.stop_position = int(signalled(requests, "STOP")["position"])
        recording.announced = recording.stop_position
        recording.publication.close()
        recording.publication = None
        self.counts["stops"] += 1

    def _note_announced(self, client: Client, active: Sequence[Recording]) -> None:
        """What the dead archive's counters show: nobody else writes them."""
        counters = seam.counters(client)
        values: dict[int, int] = {}
        for counter_id in range(seam.counter_capacity(counters)):
            record = seam.counter_record(counters, counter_id)
            if record["type_id"] == CounterType.RECORDING_POSITION and record["state"] == 1:
                # Counters of earlier lives may be there still, with lower values.
                (recording_id,) = struct.unpack_from("<q", record["key"] or bytes(8))
                values[recording_id] = max(values.get(recording_id, 0), record["value"])
        for recording in active:
            if recording.publication is not None:
                recording.announced = max(recording.announced, values.get(recording.recording_id, 0))

    def _end_in_order(self) -> None:
        code = self.archive.stop()
        if code != 0:
            raise Lost(f"the archive ended with {code}: {self.archive.report()}")
        self.check()

    # The oracle: it reads catalog and segments by itself.

    def _descriptors(self) -> dict[int, RecordingDescriptor]:
        return {each.recording_id: each for each in read_catalog(self.archive.archive_dir)}

    def check(self) -> None:
        """Compare each recording with what was published for it, and take it as it is from now on."""
        descriptors = self._descriptors()
        for recording_id, recording in self.recordings.items():
            descriptor = descriptors.get(recording_id)
            if descriptor is None:
                raise Lost(f"recording {recording_id} is gone")
            stop = descriptor.stop_position
            if recording.stop_position is not None and stop != recording.stop_position:
                raise Lost(f"recording {recording_id} stopped at {recording.stop_position} and has {stop} now")
            if stop < recording.announced:
                raise Lost(f"recording {recording_id} ends at {stop}; announced was {recording.announced}")
            found = self._payloads(descriptor)
            if found != recording.payloads[: len(found)]:
                wrong = next(index for index, each in enumerate(found) if each != recording.payloads[index])
                raise Lost(f"recording {recording_id}: message {wrong} is not what was published")
            self.counts["messages in recordings not announced"] += len(recording.payloads) - len(found)
            del recording.payloads[len(found) :]
            recording.stop_position = recording.announced = stop

    def _payloads(self, descriptor: RecordingDescriptor) -> list[bytes]:
        """The messages of a recording, frame by frame; what lies behind its end must be zero."""
        found: list[bytes] = []
        position, stop = descriptor.start_position, descriptor.stop_position
        base = -1
        content: bytes = b""
        while position < stop or base < 0:
            next_base = segment_position(descriptor.start_position, position, TERM_LENGTH, self.segment_length)
            if next_base != base:
                base = next_base
                path = self.archive.archive_dir / segment_file_name(descriptor.recording_id, base)
                content = path.read_bytes() if path.exists() or position < stop else b""
            if position == stop:
                break
            offset = position - base
            length, _, _, kind, term_offset, _, stream_id, term_id = HEADER.unpack_from(content, offset)
            expected_id = (descriptor.initial_term_id + position // TERM_LENGTH + 2**31) % 2**32 - 2**31
            if length < HEADER_LENGTH or (term_offset, term_id, stream_id) != (
                position % TERM_LENGTH,
                expected_id,
                STREAM_ID,
            ):
                raise Lost(f"recording {descriptor.recording_id}: no frame at {position} of {stop}")
            if kind != PADDING:
                found.append(content[offset + HEADER_LENGTH : offset + length])
            position += (length + 31) // 32 * 32
        if position != stop:
            raise Lost(f"recording {descriptor.recording_id} ends at {stop}, within a frame")
        if any(content[stop - base :]):
            raise Lost(f"recording {descriptor.recording_id}: bytes behind its end at {stop}")
        return found


def signalled(requests: Requests, name: str) -> dict[str, Any]:
    """Wait for a signal, and take it."""

    def found() -> dict[str, Any] | None:
        for index, (kind, each) in enumerate(requests.poll()):
            if kind == "RecordingSignalEvent" and SIGNALS[each["signal"]] == name:
                del requests.messages[index]
                return each
        return None

    signal = requests.world.until(found)
    assert signal is not None
    return signal


def main(arguments: Sequence[str]) -> int:
    """Run the soak; 0 when nothing was lost."""
    parser = argparse.ArgumentParser(prog="./run soak --archive", description=__doc__)
    parser.add_argument("--points", type=int, default=100, help="how often the archive is killed (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the first 20 points; each next 20 have the next seed")
    options = parser.parse_args(arguments)
    if options.points < 1:
        parser.error(f"--points {options.points}: must be at least 1")
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    left, seed = options.points, options.seed
    while left > 0:
        points = min(left, 20)
        with (
            tempfile.TemporaryDirectory(prefix="archive-kills-") as directory,
            ArchiveKills(Path(directory), seed) as kills,
        ):
            try:
                kills.run(points)
            except (Lost, AssertionError, ContainerError, OSError) as error:
                print(f"FAILED: seed {seed}: {error}\n{kills.driver_report()}")
                print(f"the same again: ./run soak --archive --seed {seed} --points {points}")
                return 1
            counts += kills.counts
        left, seed = left - points, seed + 1
    for name, count in sorted(counts.items()):
        print(f"  {name:<40}{count:>12,}")
    print(f"{counts['kills']:,} kills under load, 0 losses, {time.monotonic() - begin:.0f} s")
    return 0
