# Types of container.testing.processes.recording_writer.
import os
from collections.abc import Buffer, Callable
from typing import Final, final

CHECKSUMS: Final[dict[str, Callable[[bytes], int]]]

@final
class RecordingWriter:
    recording_id: int
    start_position: int
    term_length: int
    segment_length: int
    mtu_length: int
    initial_term_id: int
    stream_id: int
    session_id: int
    position: int
    def __init__(
        self,
        archive_dir: str | os.PathLike[str],
        *,
        recording_id: int = 0,
        session_id: int = 7,
        stream_id: int = 100,
        initial_term_id: int = 0,
        mtu_length: int = 1408,
        term_length: int = ...,
        segment_length: int = ...,
        start_position: int = 0,
        checksum: bool | str | None = None,
    ) -> None: ...
    @property
    def max_message_length(self) -> int: ...
    def append(self, message: Buffer) -> int: ...
    def append_frame(self, payload: Buffer, flags: int = 0xC0, *, frame_type: int = 1) -> int: ...
    def append_padding(self, length: int | None = None) -> int: ...
    def append_session_messages(
        self,
        count: int,
        *,
        payload_length: int = 64,
        payload_length_max: int | None = None,
        leadership_term_id: int = 0,
        session_count: int = 1,
        timestamp: int = 0,
        seed: int = 1,
    ) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
