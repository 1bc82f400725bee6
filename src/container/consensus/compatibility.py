"""Whether this member may continue a snapshot or a log: its unit of time and its version of the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from container.common.semantic_version import format_version
from container.consensus.cluster_clock import ClusterClock
from container.errors import ClusterError


class _Settings(Protocol):
    @property
    def app_version(self) -> int: ...


class Expected(Protocol):
    """The configuration of a member."""

    @property
    def cluster_clock(self) -> ClusterClock:
        """The clock of the timestamps in the log."""

    @property
    def app_version_validator(self) -> Callable[[int, int], bool]:
        """The check whether a version, the first argument, may continue the state of another one, the second."""

    @property
    def settings(self) -> _Settings:
        """Its settings."""


def check_compatible(expected: Expected, time_unit: int, app_version: int, what: str) -> None:
    """Raise ClusterError unless a member may continue ``what``: "log" or "snapshot"."""
    own_unit, own_version = expected.cluster_clock.time_unit, expected.settings.app_version
    if time_unit != own_unit:
        raise ClusterError(
            f"incompatible time unit: {own_unit} {what}={time_unit}; a cluster keeps the one that it began with: set "
            "cluster_clock (0 is millis, 1 micros, 2 nanos)"
        )
    if not expected.app_version_validator(own_version, app_version):
        raise ClusterError(
            f"incompatible version: {format_version(own_version)} {what}={format_version(app_version)}; set "
            "app_version: by default its major number must be the same"
        )
