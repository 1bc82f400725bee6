"""Mark files of archives for tests: where they are, what is in them, and what Java's archive leaves."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from container.archive.server.archive_mark_file import MARK_FILE_NAME, ArchiveMarkFile
from container.storage.storage_seam import CREATE, EXCLUSIVE, READ_ONLY, Storage
from container.testing.memory.manual_time import ManualClock
from container.testing.simulation.disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
MS = 1_000_000
DEAD_MS = 11_000
MIB = 1024 * 1024
LENGTH = 1_056_768
ACTIVATING = 2**63 - 1
READY = 0x030100
PID = 4711
DIRECTORY = "/archive"

SBE_HEADER = bytes.fromhex("8000c80064000200")
# version, padding, activity and start timestamp, pid, control, local control and events stream id, header length, error
# buffer length, archive id, reserved
BLOCK = struct.Struct("<iiqqqiiiii4xq64s")
VERSION, TIMESTAMP, START, PROCESS_ID, ARCHIVE_ID, RESERVED = 0, 2, 3, 4, 10, 11

WRITTEN: dict[str, Any] = {
    "archive_id": 77,
    "control_stream_id": 10,
    "local_control_stream_id": 11,
    "events_stream_id": 30,
    "control_channel": "aeron:udp?endpoint=localhost:8010",
    "local_control_channel": "aeron:ipc?term-length=64k",
    "aeron_dir": "/dev/shm/aeron",
}
JAVA = (NOW_MS - 100_000, 12)
"""Start timestamp and process id of the owner of :func:`left_file`."""


class World(NamedTuple):
    """Where mark files are, and their time."""

    storage: Storage
    directory: str
    clock: ManualClock

    @property
    def path(self) -> str:
        return f"{self.directory}/{MARK_FILE_NAME}"

    def take(self, **changes: Any) -> ArchiveMarkFile:
        arguments: dict[str, Any] = {"storage": self.storage, "clock": self.clock, "process_id": PID, **WRITTEN}
        return ArchiveMarkFile(self.path, **arguments | changes)

    def put(self, content: bytes, name: str = MARK_FILE_NAME) -> None:
        file = self.storage.open_file(f"{self.directory}/{name}", CREATE | EXCLUSIVE)
        file.write(content, 0)
        file.force(with_metadata=True)
        file.close()
        self.storage.force_directory(self.directory)

    def content(self, name: str = MARK_FILE_NAME) -> bytes:
        file = self.storage.open_file(f"{self.directory}/{name}", READ_ONLY)
        try:
            return file.read(file.length(), 0)
        finally:
            file.close()

    def names(self) -> list[str]:
        return self.storage.list_directory(self.directory)

    def saved_errors(self) -> list[str]:
        return [name for name in self.names() if name.endswith("-error.log")]

    def header(self) -> tuple[Any, ...]:
        return BLOCK.unpack_from(self.content(), 8)

    def wait(self, milliseconds: int = DEAD_MS) -> None:
        self.clock.advance(milliseconds * MS)


def on_disk(disk: SimulatedDisk, now_ms: int = NOW_MS) -> World:
    """A new process on a simulated disk."""
    return World(disk.process(), DIRECTORY, ManualClock(epoch_ms=now_ms))


def new_disk(**arguments: Any) -> SimulatedDisk:
    disk = SimulatedDisk(**arguments)
    storage = disk.process()
    storage.make_directory(DIRECTORY)
    storage.force_directory("/")
    return disk


def texts(*values: str) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value.encode() for value in values)


def left_file(
    *,
    version: int = READY,
    activity_timestamp: int = -1,
    owner: tuple[int, int] = JAVA,
    header_length: int = 8192,
    error_buffer_length: int = MIB,
    errors: tuple[str, ...] = (),
    is_legacy: bool = False,
) -> bytes:
    """The file that Java's archive left."""
    block = BLOCK.pack(
        version, 0, activity_timestamp, *owner, 10, 10, 30, header_length, error_buffer_length, 5, bytes(64)
    )
    header = (b"" if is_legacy else SBE_HEADER) + block + texts("", "aeron:ipc", "", "/old/aeron")
    log = bytearray(MIB)
    offset = 0
    for number, text in enumerate(errors):
        record = struct.pack("<iiqq", 24 + len(text), number + 1, NOW_MS - 50_000, NOW_MS - 90_000) + text.encode()
        log[offset : offset + len(record)] = record
        offset += -(-len(record) // 8) * 8
    return header.ljust(8192, b"\0") + bytes(log)
