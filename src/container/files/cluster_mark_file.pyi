# The member's mark file, as type checkers see it.
import os
from typing import Final, TextIO, final

from container.transport.seam import Clock, MarkFile

HEADER_LENGTH: Final[int]
SEMANTIC_VERSION: Final[int]
VERSION_FAILED: Final[int]
LIVENESS_TIMEOUT_MS: Final[int]
ERROR_BUFFER_MIN_LENGTH: Final[int]
ERROR_BUFFER_MAX_LENGTH: Final[int]
ACTIVATION_IN_PROGRESS: Final[int]
TERMINATED: Final[int]

@final
class ClusterMarkFile(MarkFile):
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        error_buffer_length: int = ...,
        page_size: int = ...,
        clock: Clock | None = None,
        fallback: TextIO | None = None,
    ) -> None: ...
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
    @property
    def member_id(self) -> int: ...
    @property
    def candidate_term_id(self) -> int: ...
    def write_header(
        self,
        *,
        archive_stream_id: int,
        service_stream_id: int,
        consensus_module_stream_id: int,
        service_id: int,
        cluster_id: int,
        aeron_dir: str,
        control_channel: str,
        service_name: str,
    ) -> None: ...
    def signal_ready(self) -> None: ...
    def signal_failed_start(self) -> None: ...
    def update_activity_timestamp(self, now_ms: int) -> int: ...
    def set_member_id(self, member_id: int) -> int: ...
    def signal_terminated(self) -> int: ...
    def write_errors(self, offset: int, data: bytes) -> None: ...
    def close(self) -> int: ...

def mark_file_name(service_id: int) -> str: ...
def link_file_name(service_id: int) -> str: ...
def ensure_link_file(
    cluster_dir: str | os.PathLike[str], mark_file_dir: str | os.PathLike[str], service_id: int
) -> None: ...
