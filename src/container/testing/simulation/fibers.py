"""Fibers: what waits inside the calls of a simulated world, while its scheduler runs others.

An agent waits deep inside its own code, for a counter, an image or an archive. So each runs on a *fiber*, which keeps
its stack while others run (greenlet). Any code that waits calls :meth:`Fiber.park`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

try:
    import greenlet
except ImportError as error:
    raise ImportError(
        'a simulation needs the package greenlet: pip install "aeron-cluster-container[testing]"'
    ) from error

from container.errors import ContainerError
from container.testing.simulation.scheduler import Scheduler

_FIRST_PARK_NS = 1_100_000
_LONGEST_PARK_NS = 100_000_000
_MOST_UNWINDINGS = 100


class SimulatedCrash(BaseException):
    """Unwinds the fibers of a process that was killed. Its further actions have no effect."""


class Fiber:
    """Runs ``main()`` on a stack of its own, until it returns, raises or is killed.

    Its exception goes to ``on_end(error)``, None when it returned; nothing is called when it was killed.
    """

    def __init__(
        self, scheduler: Scheduler, main: Callable[[], object], on_end: Callable[[BaseException | None], object]
    ) -> None:
        self._scheduler = scheduler
        self._main = main
        self._on_end = on_end
        self._turn = 0
        self._wake_ns = 0
        self._idle_park_ns = _FIRST_PARK_NS
        self.is_killed = False
        """True once :meth:`kill` was called: what it still does has no effect."""
        self._unwindings = 0
        self.paused_until_ns = 0
        """Until then it does not run, as a process that is stopped or collects garbage."""
        self._greenlet = greenlet.greenlet(self._run, scheduler.hub)
        scheduler.fibers.append(self)
        self._due(scheduler.time.now_ns)

    @property
    def is_alive(self) -> bool:
        """True until it has ended."""
        return not self._greenlet.dead

    def park(self, until_ns: int | None = None) -> None:
        """Let others run; called on the fiber. Without a time it parks longer each time, until :meth:`wake`."""
        if self.is_killed:
            self._unwind()
        now_ns = self._scheduler.time.now_ns
        if until_ns is None:
            until_ns = now_ns + self._idle_park_ns
            self._idle_park_ns = min(2 * self._idle_park_ns, _LONGEST_PARK_NS)
        else:
            self._idle_park_ns = _FIRST_PARK_NS
        self._due(until_ns)
        self._scheduler.hub.switch()
        if self.is_killed:
            self._unwind()

    def _unwind(self) -> NoReturn:
        self._unwindings += 1
        if self._unwindings > _MOST_UNWINDINGS:
            self._scheduler.hub.switch()
        raise SimulatedCrash

    def wake(self) -> None:
        """Something came that it may wait for: its idle park ends now, but not before the next slow tick."""
        earliest = self._scheduler.time.now_ns
        if self._wake_ns > earliest + _FIRST_PARK_NS:
            self._due(earliest + _FIRST_PARK_NS)
        self._idle_park_ns = _FIRST_PARK_NS

    def kill(self) -> None:
        """Unwind it with SimulatedCrash. Its resources must have no effect by now."""
        self.is_killed = True
        self._turn += 1
        if self in self._scheduler.fibers:
            self._scheduler.fibers.remove(self)
        if greenlet.getcurrent() is self._greenlet:
            raise SimulatedCrash
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.switch()
            if not self._greenlet.dead:
                raise ContainerError(
                    "a callback of a member that was killed waits again and again: code that catches BaseException "
                    "around Cluster.idle() must let it go"
                )

    def _due(self, time_ns: int) -> None:
        self._turn += 1
        self._wake_ns = max(time_ns, self.paused_until_ns)
        self._scheduler.at(self._wake_ns, self._resume, self._turn)

    def _resume(self, turn: int) -> None:
        if turn != self._turn or self.is_killed:
            return
        if self._scheduler.time.now_ns < self.paused_until_ns:
            self._due(self.paused_until_ns)
            return
        self._greenlet.switch()

    def _run(self) -> None:
        error = None
        try:
            if self.is_killed:
                return
            self._main()
        except SimulatedCrash:
            return
        except BaseException as raised:
            error = raised
        if not self.is_killed:
            if self in self._scheduler.fibers:
                self._scheduler.fibers.remove(self)
            self._scheduler.after(0, self._on_end, error)
