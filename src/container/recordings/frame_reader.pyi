# Types of container.recordings.frame_reader.
from typing import Final, final

from container.errors import RecordingError
from container.files.directories import Directory

CONTENT_FAILURES: Final[frozenset[int]]
FRAME_FAILURES: Final[frozenset[int]]
MESSAGE_FAILURES: Final[frozenset[int]]

@final
class FrameReader:
    recording_id: int
    start_position: int
    term_length: int
    segment_length: int
    initial_term_id: int
    mtu_length: int
    stream_id: int
    def __init__(
        self,
        archive_dir: Directory,
        *,
        recording_id: int,
        start_position: int,
        term_length: int,
        segment_length: int,
        initial_term_id: int,
        mtu_length: int,
        stream_id: int,
    ) -> None: ...
    def seek(self, position: int) -> None: ...
    def has_frame(self, position: int, limit: int) -> bool: ...
    def begins_message(self, position: int, limit: int) -> bool: ...
    def last_border(self, position: int, limit: int, read_limit: int) -> int: ...
    def find_end(self, position: int, limit: int) -> int: ...
    def close(self) -> None: ...
    @property
    def torn_position(self) -> int: ...
    @property
    def last_failure(self) -> int: ...
    def failure_error(self) -> RecordingError: ...
