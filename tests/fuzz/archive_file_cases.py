"""Cases of hostile files: one file of an archive's directory is damaged, or something else lies in its place.

The rule: the archive starts, or refuses with an error of bounded length that names what is wrong; nothing crashes or
hangs. An archive that has started answers each request, records and replays; recordings whose files are as they were
are replayed as they were. Nothing outside the directory is written to, created or removed, and what the archive creates
may be neither written nor read by other users. After a start that was refused the directory is free, stopped recordings
are as they were, and once the file is back the archive starts and has everything.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import socket
import stat
import struct
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from container.archive.server.archive_context import ArchiveContext
from container.archive.server.archive_mark_file import LINK_FILE_NAME, MARK_FILE_NAME
from container.archive.server.native_archive import Archive
from container.errors import ContainerError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver
from tests.archive_world import ARCHIVE_ID, NETWORK_CHANNEL, ArchiveRequests, Stream, Subscriber
from tests.control_world import CONTROL_CHANNEL, ERROR, MS, OK
from tests.fuzz.archive_request_cases import TEXT_LENGTH_MAX, check
from tests.fuzz.mutations import BEGIN, END

ARCHIVE_FILE_EPISODE_LENGTH = 50
SEGMENT_LENGTH = 64 * 1024
TURNS_MAX = 5000
DEAD_MS = 11_000
PROCESS_ID = 4711
NEXT_ID = 4
"""The id of the recording that a good archive begins next."""
IN_PROGRESS = 2
EMPTY = 3

CATALOG, POSITIONS, MIGRATION = "archive.catalog", "archive.positions", "archive.migration"
TEMPORARY = (f"{CATALOG}.new", f"{POSITIONS}.new", f"{MIGRATION}.new", f"{LINK_FILE_NAME}.tmp")
STRANGE_NAMES = (
    "0--65536.rec",
    "00-0.rec",
    "0-00.rec",
    "0-1.rec",
    "0-9223372036854775807.rec",
    "0-99999999999999999999999.rec",
    "99999999999999999999999-0.rec",
    "-1-0.rec",
    "0-0.rec.del",
    "0-0.rec\n",
    "\N{ARABIC-INDIC DIGIT ONE}-0.rec",
    "1-65536.rec",
    "2-131072.rec",
    "3-0.rec",
    "3-65536.rec",
    f"{NEXT_ID}-0.rec",
    "x" * 200,
    os.fsdecode(b"\xff.rec"),
)
NUMBERS = [0, 1, -1, 2, 7, 8, 31, 32, 33, 64, 512, 4096, 2**16, 2**30, 2**31 - 1, 2**31, -(2**31), 2**32, 2**61]
NUMBERS += [2**62, 2**63 - 1, 2**63 - 32, -(2**63)]
_NOTE = struct.Struct("<8s6q")
_SEGMENT = re.compile(r"(\d+)-(\d+)\.rec", re.ASCII)

type Files = dict[str, bytes]


class FilesWorld:
    """An archive as a program starts it, on real files, over the memory transport."""

    def __init__(self, base: Path, *, is_mark_elsewhere: bool, sync_level: int) -> None:
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock)
        self.base = base
        self.directory = base / "archive"
        self.mark_directory = base / "marks" if is_mark_elsewhere else self.directory
        self.sync_level = sync_level
        self.errors: list[BaseException] = []
        self.client: MemoryClient
        self.archive: Archive

    def start(self, **settings: Any) -> None:
        """Start the archive, or raise what refuses that."""
        self.client = self.driver.connect("archive")
        arguments: dict[str, Any] = {
            "archive_dir": str(self.directory),
            "mark_file_dir": str(self.mark_directory),
            "archive_id": ARCHIVE_ID,
            "control_channel": NETWORK_CHANNEL,
            "local_control_channel": CONTROL_CHANNEL,
            "replication_channel": "aeron:udp?endpoint=localhost:0",
            "segment_file_length": SEGMENT_LENGTH,
            "catalog_capacity": 4096,
            "low_storage_space_threshold": 0,
            "file_sync_level": self.sync_level,
            "catalog_file_sync_level": self.sync_level,
            "threading_mode": "INVOKER",
        }
        context = ArchiveContext(
            client=self.client,
            process_id=PROCESS_ID,
            error_handler=self.errors.append,
            idle_strategy=lambda: SteppingIdleStrategy(lambda: self.clock.advance(10 * MS)),
            environ={},
            **arguments | settings,
        )
        try:
            self.archive = Archive.launch(context)
        except BaseException:
            self.client.close()
            raise

    def close(self) -> None:
        self.archive.close()
        self.client.close()

    def kill(self) -> None:
        """End as a process that is killed does: the files stay as they are."""
        self.client.sever()
        self.client.expire()

    def work(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.clock.advance(MS)
            self.archive.invoke()

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


class FilesClient(ArchiveRequests):
    """A client that takes long messages too: a damaged catalog may have entries of any length."""

    _begun = b""

    def raw(self, limit: int = 10_000) -> list[bytes]:
        seam.invoke(self.client)
        messages = []
        for data, header in seam.poll(self.responses, limit):
            self._begun = data if header["flags"] & BEGIN else self._begun + data
            if header["flags"] & END:
                messages.append(self._begun)
        return messages


# What can lie in the place of a file.


def damaged(rng: random.Random, content: bytes) -> bytes:
    """The content of a file, with something wrong in it."""
    changed = bytearray(content)
    used = len(content.rstrip(b"\0")) + 64
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if not changed:
            return rng.randbytes(rng.choice([0, 1, 100, 5000]))
        at = rng.randrange(min(len(changed), rng.choice([8, 64, 256, used, used, len(changed)])))
        match rng.randrange(8):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1 | 2:
                at -= at % 4
                changed[at : at + 4] = struct.pack("<q", rng.choice(NUMBERS))[:4]
            case 3 | 4:
                at -= at % 4
                changed[at : at + 8] = struct.pack("<q", rng.choice(NUMBERS))
            case 5:
                length = rng.choice([1, 32, 100, 512, 4096])
                changed[at : at + length] = rng.randbytes(length)
            case 6:
                length = rng.choice([1, 32, 100, 512, 4096, 65536])
                changed[at : at + length] = bytes(min(length, len(changed) - at))
            case _:
                del changed[at:]
    return bytes(changed)


def forged_note(rng: random.Random) -> bytes:
    """A note of a migration that nobody wrote, with a checksum that is right."""
    ids = [rng.choice([0, 1, 2, EMPTY, EMPTY, 9, -1, 2**63 - 1]) for _ in range(2)]
    places = [0, 0, 0, 4096, SEGMENT_LENGTH, 2 * SEGMENT_LENGTH, 3072, 2**62, *NUMBERS]
    head = _NOTE.pack(b"migrate1", *ids, *[rng.choice(places) for _ in range(4)])
    return head + zlib.crc32(head).to_bytes(4, "little")


class Place:
    """One file of a directory, and what is put there."""

    def __init__(self, path: Path, content: bytes | None, outside: Path) -> None:
        self.path = path
        self.content = content
        self._outside = outside

    def clear(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def restore(self) -> None:
        """Put back what was there."""
        self.clear()
        if self.content is not None:
            self.path.write_bytes(self.content)

    # The kinds of damage.

    def change(self, rng: random.Random) -> None:
        self.path.write_bytes(damaged(rng, self.content or b""))

    def fill(self, rng: random.Random) -> None:
        self.path.write_bytes(rng.randbytes(rng.choice([0, 1, 7, 100, 4096, 70_000])))

    def empty(self, _rng: random.Random) -> None:
        self.path.write_bytes(b"")

    def grow(self, rng: random.Random) -> None:
        with self.path.open("ab") as file:
            file.write(rng.randbytes(rng.choice([1, 32, 1000])) if rng.random() < 0.5 else b"")
            file.truncate(file.tell() + rng.choice([0, 1, 4096, 2**20, 2**31, 2**40]))

    def remove(self, _rng: random.Random) -> None:
        self.clear()

    def link(self, _rng: random.Random) -> None:
        self.clear()
        self.path.symlink_to(self._outside / "victim")
        (self._outside / "victim").write_bytes(self.content or b"")

    def dangle(self, _rng: random.Random) -> None:
        self.clear()
        self.path.symlink_to(self._outside / "absent")

    def link_to_directory(self, _rng: random.Random) -> None:
        self.clear()
        self.path.symlink_to(self._outside)

    def link_to_device(self, rng: random.Random) -> None:
        self.clear()
        self.path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/dev/full"]))

    def loop(self, _rng: random.Random) -> None:
        self.clear()
        self.path.symlink_to(self.path)

    def pipe(self, _rng: random.Random) -> None:
        self.clear()
        os.mkfifo(self.path)

    def listen(self, _rng: random.Random) -> None:
        self.clear()
        # The path of a socket must be short: it is made by its name in the directory that is open.
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as made, contextlib.suppress(OSError):
                made.bind(f"/proc/self/fd/{descriptor}/{self.path.name}")
        finally:
            os.close(descriptor)

    def nest(self, rng: random.Random) -> None:
        self.clear()
        self.path.mkdir()
        if rng.random() < 0.5:
            (self.path / "inner").write_bytes(b"x")


CONTENT_DAMAGES = (Place.change, Place.fill, Place.empty, Place.grow, Place.remove)
PLACE_DAMAGES = (
    Place.link,
    Place.dangle,
    Place.link_to_directory,
    Place.link_to_device,
    Place.loop,
    Place.pipe,
    Place.listen,
    Place.nest,
)
DAMAGES = (*[Place.change] * 8, *CONTENT_DAMAGES, *PLACE_DAMAGES)


def tree(directory: Path) -> dict[str, tuple[Any, ...]]:
    """All that is in a directory: kind and mode, time of the last change, content."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_mtime_ns, content)
    return found


type Places = list[tuple[str, str, Place]]
"""Names of files, what is done to them, and where they are."""


class ArchiveFileEpisode:
    """The cases of one episode, all of one archive, all drawn from ``seed`` and ``number``."""

    def __init__(self, seed: int, number: int, counts: Counter[str]) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.counts = counts
        self.case = "an archive that is whole"
        """The present action, for the report of a failure."""

    def run(self, cases: int) -> None:
        """Runs the cases. Raises Disagreement, or whatever else went wrong."""
        mask = os.umask(0)
        try:
            with tempfile.TemporaryDirectory(prefix="fuzz-") as base, contextlib.redirect_stderr(io.StringIO()):
                self.base = Path(base)
                self.outside = self.base / "outside"
                self.outside.mkdir()
                (self.outside / "kept").write_bytes(b"not the archive's")
                self._write_archive()
                for _ in range(cases):
                    self._run_case()
        finally:
            os.umask(mask)

    # A good archive, which all cases begin with.

    def _write_archive(self) -> None:
        rng = self.rng
        self.is_mark_elsewhere = rng.random() < 0.3
        self.sync_level = rng.choice([0, 0, 1])
        self.is_killed = rng.random() < 0.6
        world = self.world = self._new_world()
        world.start()
        for name in ("archive", "marks"):
            directory = self.base / name
            check(directory.exists() or (name == "marks" and not self.is_mark_elsewhere), f"{name} was not created")
            directory.mkdir(mode=0o750, exist_ok=True)
            check(not directory.stat().st_mode & 0o027, f"{name} may be read or written by others")
        client = self._connect()
        self.positions: dict[int, int] = {}
        lengths = [150_000, rng.choice([1000, 3000, 60_000]), rng.choice([2000, 70_000, 100_000]), 0]
        for recording_id, length in enumerate(lengths):
            stream = Stream(world, 1001 + recording_id)  # type: ignore[arg-type]
            client.start_recording(stream.publication.stream_id)
            check(client.signal("START") == recording_id, "another recording began")
            stream.fill(length, rng.choice([100, 992, 3000]))
            self.positions[recording_id] = stream.position
            if recording_id != IN_PROGRESS:
                stream.close()
                client.signal("STOP")
        world.work(5)
        if self.is_killed:
            world.kill()
        else:
            world.close()
        self.files = self._read_files()
        world = self.world = self._new_world()
        world.start()
        client = self._connect()
        self.contents = {each: self._replayed(client, each) for each in range(EMPTY)}
        world.close()
        check(all(self.contents.values()), "a recording is empty")

    def _new_world(self) -> FilesWorld:
        world = FilesWorld(self.base, is_mark_elsewhere=self.is_mark_elsewhere, sync_level=self.sync_level)
        world.clock.advance(self._passed_ms() * MS)
        return world

    def _passed_ms(self) -> int:
        self._elapsed_ms = getattr(self, "_elapsed_ms", -DEAD_MS) + DEAD_MS
        return self._elapsed_ms

    def _read_files(self) -> Files:
        found = {}
        for directory in ("archive", "marks"):
            for path in (self.base / directory).iterdir():
                found[f"{directory}/{path.name}"] = path.read_bytes()
        return found

    def _lay_out(self) -> None:
        """The files of the good archive."""
        for directory in ("archive", "marks"):
            for path in (self.base / directory).iterdir():
                Place(path, None, self.outside).clear()
        for name, content in self.files.items():
            path = self.base / name
            path.write_bytes(content)
            path.chmod(0o640)

    # A case.

    def _run_case(self) -> None:
        rng = self.rng
        self._lay_out()
        for path in self.outside.iterdir():
            if path.name != "kept":
                path.unlink()
        self.world = self._new_world()
        settings: dict[str, Any] = {}
        if rng.random() < 0.1:
            settings["delete_dir_on_start"] = True
        if rng.random() < 0.3:
            settings["torn_frame"] = "cut"
        if rng.random() < 0.2:
            settings["file_sync_level"] = settings["catalog_file_sync_level"] = rng.choice([0, 1, 2])
        is_running = rng.random() < 0.2
        places: Places = []
        for _ in range(0 if is_running else rng.choice([*[1] * 9, 2])):
            self._damage(places, is_running=False)
        self.case = f"{[str(each) for each in settings.items()]}{self._told(places)}"
        self._note(places)
        try:
            self.world.start(**settings)
        except (ContainerError, OSError) as error:
            self.counts["starts that were refused"] += 1
            self._check_text(str(error))
            self._check_outside()
            self._check_after_refusal(places, "delete_dir_on_start" in settings)
            return
        self.counts["starts"] += 1
        if is_running:
            # What lies in the place of a segment is looked at anew each time that it is opened.
            self._damage(places, is_running=True)
            self.case += f" while it runs: {self._told(places)}"
            self._note(places)
        is_deleted = "delete_dir_on_start" in settings
        self._use(is_deleted)
        self._check_reports()
        self._check_created()
        self.world.close()
        self._check_reports()
        self._check_outside()
        self._start_again()

    def _damage(self, places: Places, *, is_running: bool) -> None:
        rng = self.rng
        segments = [name for name in self.files if _SEGMENT.fullmatch(name.removeprefix("archive/"))]
        mark = "marks" if self.is_mark_elsewhere else "archive"
        names = [f"archive/{each}" for each in (CATALOG, CATALOG, POSITIONS, MIGRATION, LINK_FILE_NAME)]
        names += [f"{mark}/{MARK_FILE_NAME}", *[rng.choice(segments) for _ in range(3)]]
        names += [f"archive/{rng.choice([*TEMPORARY, *STRANGE_NAMES])}"]
        used = [each for each, _, _ in places]
        name = rng.choice([each for each in (segments if is_running else names) if each not in used])
        place = Place(self.base / name, self.files.get(name), self.outside)
        if name.endswith(MIGRATION) and rng.random() < 0.7:
            kind = "forged"
            place.path.write_bytes(forged_note(rng))
        else:
            damage = rng.choice(DAMAGES)
            kind = damage.__name__
            damage(place, rng)
        what = "a segment" if _SEGMENT.fullmatch(place.path.name) else place.path.name
        self.counts[f"{what}: {kind}" if place.content is not None or kind == "forged" else f"beside: {kind}"] += 1
        places.append((name, kind, place))

    def _told(self, places: Places) -> str:
        return ", ".join(f"{kind} {name!r}" for name, kind, _ in places)

    def _note(self, places: Places) -> None:
        """Note what is outside, and what is there already, before the archive comes to it."""
        self._outside_before = tree(self.outside)
        self._names_before = {str(path) for path in self.world.base.rglob("*")}
        self._stopped_before = self._stopped_segments()
        self._touched = self._touched_recordings(places)
        found = [_SEGMENT.fullmatch(place.path.name) for name, _, place in places if name in self.files]
        self._bad_segments = [(int(each[1]), int(each[2])) for each in found if each is not None]

    def _touched_recordings(self, places: Places) -> set[int]:
        """The recordings of which something may not be as it was."""
        touched = set()
        for _, _, place in places:
            found = re.match(r"(\d+)-", place.path.name)
            if place.path.name in (CATALOG, MIGRATION):
                return set(range(NEXT_ID + 1))
            if found is not None:
                touched.add(int(found[1]))
        return touched

    def _stopped_segments(self) -> Files:
        return {
            name: (self.base / name).read_bytes()
            for name, content in self.files.items()
            if name.startswith(("archive/0-", "archive/1-"))
            and (self.base / name).is_file()
            and not (self.base / name).is_symlink()
            and len(content) == (self.base / name).stat().st_size
        }

    def _check_after_refusal(self, places: Places, is_deleting: bool) -> None:
        if is_deleting or any(kind == "forged" for _, kind, _ in places):
            return
        for name, content in self._stopped_before.items():
            check((self.base / name).read_bytes() == content, f"{name} is not as it was")
        if any(place.path.name == CATALOG for _, _, place in places):
            return  # an archive that was refused may have believed it in part
        for _, _, place in places:
            place.restore()
        self.case += ", and then all is whole again"
        touched = self._touched & {IN_PROGRESS}  # it may have been recovered as it was found
        self._note([])
        self._touched = touched
        self.world.errors.clear()
        if any(place.path.name == MARK_FILE_NAME for _, _, place in places):
            self.world.clock.advance(DEAD_MS * MS)
        self.world.start()
        self._use(is_deleted=False)
        self.world.close()

    def _start_again(self) -> None:
        """A start with the remaining files succeeds, or refuses them."""
        try:
            self.world.start()
        except (ContainerError, OSError) as error:
            self._check_text(str(error))
            self.counts["second starts that were refused"] += 1
            return
        self.world.close()
        self._check_outside()

    # What a client does.

    def _connect(self) -> ArchiveRequests:
        client = FilesClient(self.world, response_stream_id=20)  # type: ignore[arg-type]
        client.open()
        return client

    def _use(self, is_deleted: bool) -> None:
        rng, touched = self.rng, self._touched
        client = self._connect()
        for recording_id in range(NEXT_ID + 1):
            for name in ("StartPositionRequest", "StopPositionRequest", "RecordingPositionRequest"):
                self._ask(client, name, recording_id=recording_id)
            client.send("ListRecordingRequest", recording_id=recording_id)
            self.world.work(3)
        client.send("ListRecordingsRequest", from_recording_id=0, record_count=100)
        self.world.work(5)
        client.take()
        for recording_id in range(EMPTY):
            is_whole = recording_id not in touched and not is_deleted
            content = self._replayed(client, recording_id)
            if is_whole:
                expected = self.contents[recording_id]
                check(content == expected, f"recording {recording_id} is not as it was: {len(content or b'')} bytes")
        self._record(client, must=not touched & {NEXT_ID} and touched != set(range(NEXT_ID + 1)) and not is_deleted)
        for _ in range(3):
            self._ask(client, *self._change(rng))
            self.world.work(rng.choice([1, 5]))
            client.signals()
        if rng.random() < 0.3:
            self._extend(client, rng.randrange(EMPTY + 1))
        client.client.close()
        self.world.work(3)

    def _ask(self, client: ArchiveRequests, name: str, fields: dict[str, Any] | None = None, **more: Any) -> int:
        """Ask, and return the answer's relevant id, or -1 after an error."""
        answer = client.ask(name, **(fields or {}) | more)
        check(len(answer["error_message"]) <= TEXT_LENGTH_MAX, "an answer is too long")
        relevant_id = answer["relevant_id"]
        return -1 if answer["code"] != OK or relevant_id is None else int(relevant_id)

    def _change(self, rng: random.Random) -> tuple[str, dict[str, Any]]:
        recording_id = rng.randrange(NEXT_ID + 1)
        places = [0, 32, 4096, SEGMENT_LENGTH, 2 * SEGMENT_LENGTH, self.positions.get(recording_id, 0)]
        if self._bad_segments and rng.random() < 0.5:
            recording_id, base = rng.choice(self._bad_segments)
            places = [base, base + 1024, base + 32 * 1024]
        name = rng.choice(
            [
                "TruncateRecordingRequest",
                "TruncateRecordingRequest",
                "PurgeRecordingRequest",
                "PurgeSegmentsRequest",
                "DetachSegmentsRequest",
                "DeleteDetachedSegmentsRequest",
                "AttachSegmentsRequest",
                "MigrateSegmentsRequest",
                "UpdateChannelRequest",
            ]
        )
        fields: dict[str, Any] = {"recording_id": recording_id}
        if name == "TruncateRecordingRequest":
            fields["position"] = rng.choice(places)
        elif name in ("PurgeSegmentsRequest", "DetachSegmentsRequest"):
            fields["new_start_position"] = rng.choice(places)
        elif name == "MigrateSegmentsRequest":
            fields = {"src_recording_id": recording_id, "dst_recording_id": rng.randrange(NEXT_ID + 1)}
        elif name == "UpdateChannelRequest":
            fields["channel"] = b"aeron:ipc?alias=" + b"x" * rng.choice([1, 300])
        return name, fields

    def _replayed(self, client: ArchiveRequests, recording_id: int) -> bytes | None:
        """The data of a replay of everything, within some time; None where it is refused."""
        subscriber = Subscriber(self.world)  # type: ignore[arg-type]
        answer = client.ask("ReplayRequest", **client.replay_fields(recording_id, -1, -2))
        check(len(answer["error_message"]) <= TEXT_LENGTH_MAX, "an answer is too long")
        content = None
        if answer["code"] != ERROR:
            for _ in range(300):
                if subscriber.has_ended():
                    break
                self.world.work()
            content = subscriber.content
            self._ask(client, "StopAllReplaysRequest", recording_id=recording_id)
            self.world.work(3)
        subscriber.client.close()
        self.world.work()
        client.take()
        return content

    def _record(self, client: ArchiveRequests, *, must: bool) -> None:
        """A new recording; it must begin, unless the catalog or its own first segment may prevent that."""
        stream = Stream(self.world, 2001)  # type: ignore[arg-type]
        client.signals()
        client.start_recording(2001)
        self.world.work(5)
        began = [recording_id for name, recording_id, _ in client.signals() if name == "START"]
        check(began or not must, f"a new recording does not begin: {self.world.texts()}")
        if began:
            for _ in range(30):
                if not self._offer(stream, self.rng.randbytes(1000)):
                    break
            self.world.work(5)
            stream.close()
            self.world.work(5)
            stop = self._ask(client, "StopPositionRequest", recording_id=began[0])
            check(stop == stream_position(stream) or not must, f"a new recording stops at {stop}")
        else:
            stream.close()
        self.world.work(3)
        client.take()

    def _offer(self, stream: Stream, message: bytes) -> bool:
        for _ in range(20):
            if seam.offer(stream.publication, message) > 0:
                stream.sent_position = stream.position  # type: ignore[attr-defined]
                return True
            self.world.work()
        return False

    def _extend(self, client: ArchiveRequests, recording_id: int) -> None:
        channel = "aeron:ipc?term-length=64k|mtu=1408|session-id=77"
        position = self._ask(client, "StopPositionRequest", recording_id=recording_id)
        if 0 <= position < 2**40 and position % 32 == 0:
            channel += f"|init-term-id=0|term-id={position // 65536}|term-offset={position % 65536}"
        fields = {"recording_id": recording_id, "stream_id": 2002, "source_location": 0, "channel": channel.encode()}
        self._ask(client, "ExtendRecordingRequest", fields)
        stream = Stream(self.world, 2002, channel)  # type: ignore[arg-type]
        self.world.work(3)
        self._offer(stream, b"extended" * 100)
        self.world.work(3)
        stream.close()
        self.world.work(3)
        client.take()

    # What must hold.

    def _check_text(self, text: str) -> None:
        check(len(text) <= TEXT_LENGTH_MAX, f"an error of {len(text)} characters: {text[:300]}")
        check(str(self.base) in text or "recording" in text, f"an error that names nothing: {text[:1000]}")

    def _check_reports(self) -> None:
        errors, self.world.errors[:] = list(self.world.errors), []
        for error in errors:
            check(isinstance(error, (ContainerError, OSError)), f"reported: {error!r}")
            check(len(str(error)) <= TEXT_LENGTH_MAX, f"a report of {len(str(error))} characters")

    def _check_outside(self) -> None:
        check(tree(self.outside) == self._outside_before, "something outside has changed")
        names = sorted(path.name for path in self.base.iterdir())
        check(names == ["archive", "marks", "outside"], f"files outside: {names}")

    def _check_created(self) -> None:
        for directory in (self.world.directory, self.world.mark_directory):
            for path in directory.iterdir():
                mode = path.lstat().st_mode
                if str(path) not in self._names_before:
                    check(stat.S_ISREG(mode) and not mode & 0o137, f"{path.name} was created with mode {mode:o}")


def stream_position(stream: Stream) -> int:
    """Where a stream that is closed was."""
    return int(getattr(stream, "sent_position", 0))
