# The archive's mark file, as type checkers see it.
import os
from typing import Final, TextIO, final

from container.files.mark_file import OwnedMarkFile
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock

MARK_FILE_NAME: Final[str]
LINK_FILE_NAME: Final[str]

@final
class ArchiveMarkFile(OwnedMarkFile):
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage: Storage,
        clock: Clock,
        process_id: int,
        archive_id: int,
        control_stream_id: int,
        local_control_stream_id: int,
        events_stream_id: int,
        local_control_channel: str,
        aeron_dir: str,
        control_channel: str | None = None,
        events_channel: str | None = None,
        error_buffer_length: int = ...,
        page_size: int = ...,
        fallback: TextIO | None = None,
    ) -> None: ...
    @property
    def former_owner(self) -> tuple[int, int] | None: ...
    @property
    def owner(self) -> tuple[int, int]: ...
    def refresh(self, now_ms: int) -> bool: ...

def ensure_link_file(
    storage: Storage, archive_dir: str | os.PathLike[str], mark_file_dir: str | os.PathLike[str]
) -> None: ...
