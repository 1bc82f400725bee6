# The types of container.archive.server.store.segment_writer, which is compiled.

from collections.abc import Buffer
from typing import final

from container.archive.server.store.recording_positions import RecordingPosition
from container.files.catalog import RecordingDescriptor
from container.storage.storage_seam import Storage

@final
class SegmentWriter:
    def __init__(
        self,
        storage: Storage,
        archive_dir: str,
        descriptor: RecordingDescriptor,
        place: RecordingPosition,
        *,
        sync_level: int,
        checksum: int = 0,
        position: int,
    ) -> None: ...
    @property
    def recording_id(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def has_failed(self) -> bool: ...
    @property
    def place(self) -> RecordingPosition: ...
    def open(self) -> int: ...
    def write(self, block: Buffer) -> None: ...
    def clear_tail(self) -> int: ...
    def close(self) -> int: ...
