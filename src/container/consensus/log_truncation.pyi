"""The end of the log that another leader's log does not have is cut off."""

from collections.abc import Callable, Iterator
from typing import final

from container.archive.client.async_archive import AsyncArchive
from container.consensus.consensus_module_context import ConsensusModuleContext

@final
class LogTruncation:
    """Cuts the log of a member off."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        archive: AsyncArchive,
        await_replay_joined: Callable[[], Iterator[None]],
    ) -> None: ...
    def begin(self, recording_id: int, leadership_term_id: int, log_position: int) -> int: ...
    def poll(self) -> bool: ...
    def close(self) -> int: ...
