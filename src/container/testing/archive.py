"""An archive as a process, for tests to import."""

from container.testing.processes.local_archive import ArchiveKind, LocalArchive

__all__ = ["ArchiveKind", "LocalArchive"]
