"""The reports of checks of services: one exception for each kind of mistake."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from container.common.callbacks import unused_methods
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError
from container.service.service_handler import CALLBACKS
from container.testing.memory.memory_member import MemoryMember

_PACKAGE = str(Path(__file__).parents[2])

type Life = Callable[[MemoryMember], object]
"""The activity of clients and time around a member."""


def uncalled_methods(kind: type) -> list[str]:
    """A text for each method of a service's class that has nearly the name of a callback, and so is never called."""
    return unused_methods(kind, CALLBACKS)


def user_line(error: BaseException) -> str:
    """The user's line that raised, as the end of a text about the error; nothing where there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "src/container", "<"))
    ]
    return f" in {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class DivergenceError(ContainerError):
    """Two runs of a service over the same log came to other states; ``log_position`` is the first where they did."""

    def __init__(self, text: str, log_position: int) -> None:
        super().__init__(text)
        self.log_position = log_position


class HostilePayloadError(ContainerError):
    """A payload made a callback raise, or ended snapshots. ``payload`` (bytes) is the last one that was sent."""

    def __init__(self, text: str, payload: bytes) -> None:
        super().__init__(text)
        self.payload = payload


class MemoryGrowthError(ContainerError):
    """The service keeps what it should not; ``growth`` is in bytes."""

    def __init__(self, text: str, growth: int) -> None:
        super().__init__(text)
        self.growth = growth


class ForbiddenCallError(ContainerError):
    """A callback called something whose result may differ on another member.

    ``calls`` names each function, file and line.
    """

    def __init__(self, text: str, calls: Sequence[str]) -> None:
        super().__init__(text)
        self.calls = tuple(calls)


def check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigurationError(f"{name}={shown(count)}: must be at least 1")
