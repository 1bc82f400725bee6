"""The duty cycle of a consensus module: in upstream's order, and no turn waits."""

from typing import Any, final

from container.consensus.backup_requests import BackupAnswers
from container.consensus.cluster_member import ClusterMembers
from container.consensus.consensus_event_handler import ConsensusEventHandler
from container.consensus.log_publisher import LogPublisher
from container.consensus.session_manager import SessionManager

@final
class ConsensusModuleAgent(ConsensusEventHandler):
    """The agent of a consensus module; the first turns start it, and it leads or follows until :meth:`close`."""

    context: Any
    members: ClusterMembers
    sessions: SessionManager
    log_publisher: LogPublisher
    backups: BackupAnswers

    def __init__(self, context: Any) -> None: ...
    @property
    def has_leader(self) -> bool: ...
    @property
    def snapshot_count(self) -> int: ...
    @property
    def is_taking_snapshot(self) -> bool: ...
    @property
    def snapshot_failure(self) -> str | None: ...
    def request_snapshot(self) -> bool: ...
    def start(self) -> None: ...
    def expect_services_to_end(self) -> None: ...
