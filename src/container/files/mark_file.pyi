# What the mark files of a member's container and of an archive have in common, as type checkers see it.
import os
from typing import Final, NamedTuple

from container.storage.seam import Storage
from container.transport.seam import MarkFile

LIVENESS_TIMEOUT_MS: Final[int]
ERROR_BUFFER_MIN_LENGTH: Final[int]
ERROR_BUFFER_MAX_LENGTH: Final[int]
ACTIVATION_IN_PROGRESS: Final[int]

class MarkFileKind(NamedTuple):
    sbe_header: bytes
    begin: bytes
    version: int
    failed_version: int
    lengths_offset: int
    holder: str
    own_place: str
    error_file: str

class OwnedMarkFile(MarkFile):
    @property
    def path(self) -> str: ...
    @property
    def error_buffer_length(self) -> int: ...
    @property
    def error_buffer(self) -> bytes: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def activity_timestamp(self) -> int: ...
    @property
    def version(self) -> int: ...
    def signal_ready(self) -> None: ...
    def signal_failed_start(self) -> None: ...
    def update_activity_timestamp(self, now_ms: int) -> int: ...
    def signal_terminated(self) -> int: ...
    def write_errors(self, offset: int, data: bytes) -> None: ...
    def close(self) -> int: ...

def write_link_file(
    storage: Storage, directory: str | os.PathLike[str], name: str, mark_file_dir: str | os.PathLike[str]
) -> None: ...
