"""Faults on purpose: services that are broken in the middle of an episode, to prove that the fuzzer notices."""

from __future__ import annotations

import ctypes
import resource
from typing import Any

from container.api import ClientSession, Header, MessageBuffer
from container.testing.memory.recording_service import RecordingService

VICTIM = b"good 7 "
"""How the message begins at which the fault happens: the seventh good one of a member."""


class Sabotaged(RecordingService):
    """Does ``sabotage`` instead of what it should when the victim comes."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if bytes(buffer).startswith(VICTIM):
            self.sabotage(session, timestamp, buffer, header)
        else:
            super().on_session_message(session, timestamp, buffer, header)

    def sabotage(self, *message: Any) -> None:
        """The action in its place."""


class Losing(Sabotaged):
    """A message is lost."""


class Doubling(Sabotaged):
    """A message comes twice."""

    def sabotage(self, *message: Any) -> None:
        RecordingService.on_session_message(self, *message)
        RecordingService.on_session_message(self, *message)


class Raising(Sabotaged):
    """An error that no bad frame has caused."""

    def sabotage(self, *message: Any) -> None:
        RecordingService.on_session_message(self, *message)
        raise ValueError("sabotage")


class Hanging(Sabotaged):
    """A callback that never returns."""

    def sabotage(self, *message: Any) -> None:
        while True:
            pass


class Crashing(Sabotaged):
    """The process touches memory that is not there."""

    def sabotage(self, *message: Any) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(1)


SABOTAGES: dict[str, type[RecordingService]] = {
    "none": RecordingService,
    "lose": Losing,
    "double": Doubling,
    "raise": Raising,
    "hang": Hanging,
    "crash": Crashing,
}
