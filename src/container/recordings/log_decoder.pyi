# Types of container.recordings.log_decoder.
from collections.abc import Collection, Mapping
from typing import Final, final

from container.errors import RecordingError
from container.files.directories import Directory
from container.recordings.batch_decoder import BatchDecoder

COLUMNS: Final[frozenset[str]]

@final
class LogDecoder(BatchDecoder):  # type: ignore[misc]
    def __init__(
        self,
        archive_dir: Directory,
        layout: Mapping[str, int],
        columns: Mapping[str, str],
        *,
        batch_rows: int,
        begin: int,
        end: int,
        read_end: int,
        committed_position: int,
        begin_position: int = ...,
        end_position: int = ...,
        begin_timestamp: int | None = None,
        end_timestamp: int | None = None,
        template_ids: Collection[int] | None = None,
        is_cluster_only: bool = False,
        leadership_term_ids: Collection[int] | None = None,
        likely_term_id: int = -1,
    ) -> None: ...
    @property
    def untimed_count(self) -> int: ...
    def decode_messages(self) -> int: ...
    def decode_frames(self, leadership_term_id: int) -> int: ...
    def skip_damage(self, is_frames: bool) -> int: ...
    def put_error(self, error: RecordingError, text: str) -> bool: ...
