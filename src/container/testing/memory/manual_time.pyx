"""A clock that a test advances, and an idle strategy that runs the world: they make a run repeatable."""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.errors import TimedOutError
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock


cdef class ManualClock(Clock):
    """Both clocks, moved by :meth:`advance`, and by ``auto_advance_ns`` at each reading of the container."""

    def __init__(self, int64_t nano_time=1_000_000_000, *, int64_t epoch_ms=1_700_000_000_000,
                 int64_t auto_advance_ns=0):
        self._now_ns = nano_time
        self._epoch_ms_at_zero = epoch_ms - nano_time // 1_000_000
        self.auto_advance_ns = auto_advance_ns

    @property
    def now_ns(self):
        """The monotonic clock (int, nanoseconds); reading it here moves nothing."""
        return self._now_ns

    @property
    def now_ms(self):
        """The time since 1970 (int, milliseconds); reading it here moves nothing."""
        return self._epoch_ms_at_zero + self._now_ns // 1_000_000

    def advance(self, int64_t duration_ns):
        """Move both clocks forward (int, nanoseconds)."""
        self._now_ns += duration_ns

    def set_epoch_ms(self, int64_t epoch_ms):
        """Set the time since 1970 alone, forward or backward, as an operator would."""
        self._epoch_ms_at_zero = epoch_ms - self._now_ns // 1_000_000

    cdef int64_t nano_time(self) noexcept nogil:
        cdef int64_t now_ns = self._now_ns
        self._now_ns += self.auto_advance_ns
        return now_ns

    cdef int64_t coarse_nano_time(self) noexcept nogil:
        return self._now_ns

    cdef int64_t epoch_ms(self) noexcept nogil:
        return self._epoch_ms_at_zero + self.nano_time() // 1_000_000

    cdef int64_t epoch_ns(self) noexcept nogil:
        return self._epoch_ms_at_zero * 1_000_000 + self.nano_time()

    def __repr__(self):
        return f"<ManualClock now_ns={self._now_ns} now_ms={self.now_ms}>"


cdef class SteppingIdleStrategy(IdleStrategy):
    """Calls ``step()``, unless None, each time there was no work: a waiting agent sees time pass.

    Raises TimedOutError when it has idled ``max_idles`` times in a row: what was waited for will not come.
    """

    def __init__(self, step=None, *, int max_idles=10_000):
        self.step = step
        self.max_idles = max_idles

    cdef int idle(self, int work_count) except? -1:
        if work_count > 0:
            self._idles_in_a_row = 0
            return 0
        self.idle_count += 1
        self._idles_in_a_row += 1
        if self._idles_in_a_row > self.max_idles:
            self._idles_in_a_row = 0
            raise TimedOutError(f"idled {self.max_idles} times in a row and found no work")
        if self.step is not None:
            self.step()
        return 0

    cdef void reset(self) noexcept:
        self._idles_in_a_row = 0

    def __repr__(self):
        return f"stepping({self.step!r})"


seal((ManualClock, SteppingIdleStrategy))
