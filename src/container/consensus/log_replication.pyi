"""A copy of what the leader has recorded of the log."""

from typing import final

from container.archive.client.async_archive import AsyncArchive
from container.consensus.cluster_member import ClusterMember
from container.consensus.consensus_module_context import ConsensusModuleContext

@final
class MemberLogReplication:
    """A copy of the leader's log up to a position: container.consensus.election_host.LogReplication."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        archive: AsyncArchive,
        recording_id: int,
        leader: ClusterMember,
        leader_recording_id: int,
        stop_position: int,
    ) -> None: ...
    @property
    def recording_id(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def is_done(self) -> bool: ...
    def do_work(self, now_ns: int) -> int: ...
    def on_signal(self, correlation_id: int, recording_id: int, position: int, signal: int) -> None: ...
    def close(self) -> None: ...
