"""Turns a context into a running archive: on a thread of its own, or driven by the caller; closes in order."""

from __future__ import annotations

from typing import ClassVar, Self, Unpack

from container.agent.agent_owner import AgentOwner
from container.archive.server.archive_agent import ArchiveAgent
from container.archive.server.archive_arguments import ArchiveArguments
from container.archive.server.archive_context import ArchiveContext


class Archive(AgentOwner[ArchiveAgent, ArchiveContext]):
    """An Aeron Archive: it records streams, replays them, and copies recordings of other archives, for Aeron's clients.

    :meth:`launch` makes one beside a media driver. It serves clients until the driver goes away, another process takes
    its directory over, or :meth:`close`. It is a context manager that closes at the end.
    """

    Context: ClassVar = ArchiveContext
    kind = "archive"

    @classmethod
    def launch(cls, context: ArchiveContext | None = None, **settings: Unpack[ArchiveArguments]) -> Self:
        """Start an archive, repair what a crash has left in its directory, and return it once it serves clients.

        Args:
            context: an :class:`~container.archive.server.archive_context.ArchiveContext` with everything, or None.
            settings: arguments of such a context: settings (docs/settings.md) and objects. With
                ``use_agent_invoker=True`` there is no thread: call :meth:`invoke` again and again.

        Raises:
            ConfigurationError: a bad setting.
            MarkFileError: the mark file is held by a live owner, or cannot be written.
            DriverTimeoutError: there is no media driver.
            ArchiveError: another archive of the driver has the same id.
            AeronError: the driver refuses a counter or a subscription.
            RecordingError: files are damaged, or a frame that a crash may have cut is refused.
            OSError: the disk fails.
            ContainerError: the system has no thread for the archive.
        """
        return cls._launch(context, settings)

    def _begin_agent(self, context: ArchiveContext) -> ArchiveAgent:
        context.agent.start()
        return context.agent

    @property
    def archive_id(self) -> int:
        """The id that distinguishes its counters from those of other archives on the same driver."""
        return self.context.archive_id
