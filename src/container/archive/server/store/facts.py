"""Facts known about recordings after a crash, as values."""

from __future__ import annotations

from typing import NamedTuple


class KnownPosition(NamedTuple):
    """How far a recording in progress was written.

    ``is_exact``: the process was killed but the system stayed up, so the recording ends at ``position`` (log position).
    Otherwise all before it is on the disk, and more may be.
    """

    position: int
    is_exact: bool


class Recovered(NamedTuple):
    """A recording whose end was found at a start.

    ``basis`` says by what: ``"exact"`` or ``"bound"`` for a position that was stored, ``"frames"`` for the frames
    alone, ``"truncation"`` for a truncation that was completed. ``torn_length`` counts the bytes of a last frame that
    was cut, as perhaps not all of it was written.
    """

    recording_id: int
    stop_position: int
    basis: str
    torn_length: int
