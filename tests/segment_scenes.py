"""Directories of an archive with a few frames in them, on any storage, and a start that recovers them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable
from typing import Any, Literal

from container.archive.server.store.catalog import Catalog
from container.archive.server.store.facts import Recovered
from container.archive.server.store.recording_positions import RecordingPositions
from container.archive.server.store.recovery import recover
from container.files.catalog import RecordingDescriptor
from container.storage.storage_seam import CREATE, Storage
from tests.test_archive_catalog import described, encoded, image

TERM, SEGMENT = 64 * 1024, 128 * 1024
FIRST, SECOND = (1_000, 41), (2_000, 42)
"""Owners of the positions: of the archive that crashed, and of the next one."""
NOW = 1_800_000_000_000
STREAM, INITIAL_TERM = 100, 2**31 - 2
DATA, PADDING = 1, 0

_HEADER = struct.Struct("<iBBHiiiiq")


def recording(recording_id: int = 0, **changes: Any) -> RecordingDescriptor:
    """A recording in progress from position 0; its term ids overflow."""
    values = {"start_position": 0, "mtu_length": 32 * 1024, "session_id": 7, "initial_term_id": INITIAL_TERM} | changes
    return described(recording_id, **values)


def wrapped(value: int) -> int:
    """The 32 bits of a term id."""
    return (value + 2**31) % 2**32 - 2**31


def frame(
    position: int,
    payload: bytes = b"x" * 100,
    *,
    kind: int = DATA,
    length: int | None = None,
    checksum: Callable[[bytes], int] | None = None,
    term: int = TERM,
    **changes: int,
) -> bytes:
    """A frame as it is recorded, with its padding to 32 bytes."""
    fields = {
        "length": 32 + len(payload) if length is None else length,
        "version": 0,
        "flags": 0xC0,
        "type": kind,
        "term_offset": position % term,
        "session_id": 7,
        "stream_id": STREAM,
        "term_id": wrapped(INITIAL_TERM + position // term),
        "reserved": 0,
    } | changes
    payload = payload.ljust((len(payload) + 31) // 32 * 32, b"\0")
    if checksum is not None:
        fields["session_id"] = struct.unpack("<i", struct.pack("<I", checksum(payload)))[0]
    return _HEADER.pack(*fields.values()) + payload


def frames(position: int, payloads: Iterable[bytes], **values: Any) -> bytes:
    """Frames one behind the other."""
    content = b""
    for payload in payloads:
        content += frame(position + len(content), payload, **values)
    return content


def filled(position: int, end: int, payload_length: int = 4064) -> bytes:
    """Frames up to ``end`` exactly."""
    content = b""
    while position + len(content) < end:
        at = position + len(content)
        content += frame(at, b"y" * min(payload_length, end - at - 32))
    return content


class Scene:
    """The directory of an archive."""

    def __init__(self, storage: Storage, directory: str = "/") -> None:
        self.storage, self.directory = storage, directory

    def write_catalog(self, *descriptors: RecordingDescriptor) -> None:
        next_id = max((each.recording_id for each in descriptors), default=-1) + 1
        path = f"{self.directory}/archive.catalog"
        content = image(*[encoded(each) for each in descriptors], next_id=next_id, length=4096)
        self._write(path, 0, content, len(content))

    def write(
        self, base: int, content: bytes, *, offset: int = 0, recording_id: int = 0, length: int = SEGMENT
    ) -> None:
        """Put bytes into a segment file, which is created."""
        self._write(f"{self.directory}/{recording_id}-{base}.rec", offset, content, length)

    def _write(self, path: str, offset: int, content: bytes, length: int) -> None:
        file = self.storage.open_file(path, CREATE)
        file.set_length(0)
        file.set_length(length)
        file.write(content, offset)
        file.force(True)
        file.close()
        self.storage.force_directory(self.directory)

    def positions(self, owner: tuple[int, int] | None = None, level: int = 0) -> RecordingPositions:
        """The positions of an archive that runs."""
        made = RecordingPositions.open(self.storage, self.directory, sync_level=level, owner=None)
        made.begin_ownership(FIRST if owner is None else owner)
        return made

    def catalog(self, level: int = 0) -> Catalog:
        return Catalog.open(self.storage, self.directory, capacity=4096, sync_level=level)

    def start(
        self,
        *,
        owner: tuple[int, int] = FIRST,
        level: int = 0,
        torn_frame: Literal["refuse", "cut"] = "refuse",
        checksum: int = 0,
        report_progress: Callable[[], object] | None = None,
    ) -> list[Recovered]:
        """Do an archive's work at its start; the next owner's is :data:`SECOND`."""
        directory = self.directory
        catalog = self.catalog(level)
        positions = RecordingPositions.open(self.storage, directory, sync_level=level, owner=owner)
        positions.begin_recovery(SECOND)
        try:
            done = recover(
                self.storage,
                directory,
                catalog,
                positions,
                now_ms=NOW,
                torn_frame=torn_frame,
                checksum=checksum,
                report_progress=report_progress,
            )
        finally:
            catalog.close()
        positions.begin_ownership(SECOND)
        positions.close()
        return done

    def segment(self, base: int, recording_id: int = 0) -> bytes:
        file = self.storage.open_file(f"{self.directory}/{recording_id}-{base}.rec", 0)
        return file.read(file.length(), 0)

    def segments(self) -> list[str]:
        return [each for each in self.storage.list_directory(self.directory) if ".rec" in each]

    def descriptor(self, recording_id: int = 0) -> RecordingDescriptor:
        found = self.catalog().descriptor(recording_id)
        assert found is not None
        return found


def stopped(descriptor: RecordingDescriptor, position: int) -> RecordingDescriptor:
    """As the catalog has it after its recovery."""
    return dataclasses.replace(descriptor, stop_position=position, stop_timestamp=NOW)
