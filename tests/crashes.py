"""Runs a piece of work on a simulated disk, and shows what each crash of it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

from container.errors import ContainerError
from container.storage.storage_seam import Storage
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws

type Work = Callable[[Storage], object]
"""Uses the disk as one process."""

KILLS_PER_CALL = 2


def check_power_cuts(prepare: Work, act: Work, check: Callable[[SimulatedDisk], object], *, limit: int = 4096) -> int:
    """Call ``check`` with each disk that a cut of the power may leave, at each call of ``act``; returns how many.

    The effects of ``prepare`` are on the disk when ``act`` begins.
    """
    disk = SimulatedDisk()
    prepare(disk.process())
    disk.cut_power(Draws(0))
    states = 0

    def look(_kind: str, _length: int) -> None:
        nonlocal states
        for state in disk.crash_states(limit=limit):
            states += 1
            check(state)

    disk.on_latency = look
    act(disk.process())
    look("end", 0)
    return states


def kills(prepare: Work, act: Work) -> Iterator[SimulatedDisk]:
    """Each disk that a kill of ``act`` leaves, at each of its calls; a write may be cut at a page."""
    for number in count():
        for seed in range(KILLS_PER_CALL):
            disk = SimulatedDisk()
            prepare(disk.process())
            storage = disk.process()
            calls = 0

            def strike(_kind: str, _length: int) -> None:
                nonlocal calls
                calls += 1
                if calls > number:  # noqa: B023 - it is called within this round
                    storage.kill(Draws(seed))  # noqa: B023

            disk.on_latency = strike
            with suppress(OSError, ContainerError):
                act(storage)
            disk.on_latency = None
            if calls <= number:
                return
            yield disk
