"""One thread that runs a simulated world: events in virtual time, and fibers for what waits inside its calls.

An agent waits deep inside its own code, for a counter, an image or an archive. So each runs on a *fiber*, which keeps
its stack while others run (greenlet). Any code that waits calls :meth:`Fiber.park`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NoReturn

from container.errors import ContainerError
from container.testing.simulation.virtual_time import Draws, VirtualTime

try:
    import greenlet
except ImportError as error:
    raise ImportError(
        'a simulation needs the package greenlet: pip install "aeron-cluster-container[testing]"'
    ) from error

_TIES = 1
_FIRST_PARK_NS = 1_100_000
_LONGEST_PARK_NS = 100_000_000
_MOST_UNWINDINGS = 100


class SimulatedCrash(BaseException):
    """Unwinds the fibers of a process that was killed. Its further actions have no effect."""


class Scheduler:
    """Runs what is due, in the order of virtual time; a draw decides among things that are due at the same time."""

    def __init__(self, time: VirtualTime, draws: Draws) -> None:
        self.time = time
        self._draws = draws
        self._queue: list[tuple[int, int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0
        self.fibers: list[Fiber] = []
        self._hub = greenlet.getcurrent()

    def at(self, time_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        """Call ``action(*arguments)`` at that time; immediately after what is due now if the time has passed."""
        self._sequence += 1
        tie = self._draws.draw(_TIES, self._sequence)
        heapq.heappush(self._queue, (max(time_ns, self.time.now_ns), tie, self._sequence, action, arguments))

    def after(self, delay_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        """Call ``action(*arguments)`` in so many nanoseconds."""
        self.at(self.time.now_ns + delay_ns, action, *arguments)

    def step(self) -> bool:
        """Move to the next event and run it; False when there is none."""
        if not self._queue:
            return False
        time_ns, _, _, action, arguments = heapq.heappop(self._queue)
        self.time.now_ns = time_ns
        action(*arguments)
        return True

    def close(self) -> None:
        """End all fibers, in the order in which they were started, and forget what was due."""
        for fiber in self.fibers[:]:
            fiber.kill()
        self._queue.clear()


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
        self._greenlet = greenlet.greenlet(self._run, scheduler._hub)
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
        self._scheduler._hub.switch()
        if self.is_killed:
            self._unwind()

    def _unwind(self) -> NoReturn:
        self._unwindings += 1
        if self._unwindings > _MOST_UNWINDINGS:
            self._scheduler._hub.switch()
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
