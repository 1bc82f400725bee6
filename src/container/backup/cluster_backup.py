"""Turns a context into a running backup: on a thread of its own, or driven by the caller; closes in order."""

from __future__ import annotations

from typing import ClassVar, Self, Unpack

from container.agent.agent_owner import AgentOwner
from container.backup.backup_agent import ClusterBackupAgent
from container.backup.backup_arguments import BackupArguments
from container.backup.backup_context import ClusterBackupContext


class ClusterBackup(AgentOwner[ClusterBackupAgent, ClusterBackupContext]):
    """A backup: it keeps a copy of a cluster's log and of its latest snapshot (upstream's class of this name).

    :meth:`launch` makes one beside a media driver and an archive of its own. It copies until the driver goes away, or
    :meth:`close`. It is a context manager that closes at the end.
    """

    Context: ClassVar = ClusterBackupContext
    kind = "backup"

    @classmethod
    def launch(cls, context: ClusterBackupContext | None = None, **settings: Unpack[BackupArguments]) -> Self:
        """Start a backup, and return it immediately.

        Args:
            context: a :class:`~container.backup.backup_context.ClusterBackupContext`, or None.
            settings: what such a context takes: settings and objects. With ``use_agent_invoker=True`` there is no
                thread: call :meth:`invoke` again and again.

        Raises:
            ConfigurationError: a bad setting.
            MarkFileError: the mark file is held by a live owner, is a member's, or cannot be written.
            DriverTimeoutError: there is no media driver.
            ClusterError: another backup of the driver has the same cluster id.
            AeronError: the driver refuses a counter.
            RecordingError: the recording log is damaged.
            OSError: the disk fails.
            ContainerError: the system has no thread for it.
        """
        return cls._launch(context, settings)

    def _begin_agent(self, context: ClusterBackupContext) -> ClusterBackupAgent:
        return context.agent
