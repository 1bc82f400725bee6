# The types of container.archive.server.store.segment_reader, which is compiled.

from typing import final

from container.files.catalog import RecordingDescriptor
from container.storage.storage_seam import Storage

@final
class SegmentReader:
    def __init__(
        self,
        storage: Storage,
        archive_dir: str,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        buffer_length: int = 1 << 20,
        checksum: int = 0,
    ) -> None: ...
    @property
    def recording_id(self) -> int: ...
    @property
    def position(self) -> int: ...
    def open(self) -> int: ...
    def is_frame(self, position: int) -> bool: ...
    def read_frames(self, limit_position: int, max_length: int = 1 << 20) -> tuple[int, bytes]: ...
    def skip(self, length: int) -> None: ...
    def close(self) -> int: ...
