"""A service that notes each of its callbacks, for tests to import."""

from container.testing.memory.recording_service import RecordingService

__all__ = ["RecordingService"]
