# The mark file of a service or of a consensus module, as type checkers see it.
import os
from typing import Final, TextIO, final

from container.files.mark_file import OwnedMarkFile
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock

ERROR_BUFFER_MIN_LENGTH: Final[int]
ERROR_BUFFER_MAX_LENGTH: Final[int]
MARK_FILE_NAME: Final[str]
LINK_FILE_NAME: Final[str]

@final
class ClusterMarkFile(OwnedMarkFile):
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_of_consensus_module: bool = False,
        is_of_backup: bool = False,
        error_buffer_length: int = ...,
        page_size: int = ...,
        clock: Clock | None = None,
        storage: Storage | None = None,
        fallback: TextIO | None = None,
    ) -> None: ...
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
        ingress_stream_id: int = ...,
        member_id: int = ...,
        ingress_channel: str = "",
        authenticator: str = "",
    ) -> None: ...
    def set_member_id(self, member_id: int) -> int: ...

def mark_file_name(service_id: int) -> str: ...
def link_file_name(service_id: int) -> str: ...
def ensure_link_file(
    storage: Storage, cluster_dir: str | os.PathLike[str], mark_file_dir: str | os.PathLike[str], service_id: int
) -> None: ...
