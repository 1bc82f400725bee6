# Types of container.recordings.snapshot_decoder.
from collections.abc import Mapping
from typing import Final, final

from container.errors import RecordingError
from container.files.directories import Directory
from container.recordings.batch_decoder import BatchDecoder

COLUMNS: Final[frozenset[str]]

@final
class SnapshotDecoder(BatchDecoder):  # type: ignore[misc]
    def __init__(
        self,
        archive_dir: Directory,
        layout: Mapping[str, int],
        columns: Mapping[str, str],
        *,
        batch_rows: int,
        end: int,
        is_consensus_module: bool | None = None,
        log_position: int = -1,
    ) -> None: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def snapshot_position(self) -> int: ...
    @property
    def leadership_term_id(self) -> int: ...
    def put_error(self, error: RecordingError) -> None: ...
    def decode_items(self, until_end_marker: bool = False) -> int: ...
