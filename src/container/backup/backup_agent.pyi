"""The agent of a backup: its client, its mark file, and the state machine in turns."""

from typing import final

from container.agent.agent import Agent
from container.backup.backup_context import ClusterBackupContext

@final
class ClusterBackupAgent(Agent):
    """The agent of a backup; it copies until :meth:`close`."""

    def __init__(self, context: ClusterBackupContext) -> None: ...
