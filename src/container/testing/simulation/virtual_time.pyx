"""Virtual time, and numbers that are drawn from a seed: what a simulation has in place of clocks and chance."""
from libc.math cimport log
from libc.stdint cimport int64_t, uint64_t

from container.common.sealed cimport seal
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock

cdef enum:
    MOST_READINGS = 100_000                 # of the clock in one turn: a callback that reads more often spins
    SPIN_STEP_NS = 1_000_000


cdef class VirtualTime:
    """The one time of a simulated world: ``now_ns`` (int, nanoseconds), which its scheduler moves."""

    def __repr__(self):
        return f"<VirtualTime {self.now_ns / 1e9:.9f} s>"


cdef class NodeClock(Clock):
    """The clocks of one host over a :class:`VirtualTime`; its time of day was ``epoch_ms`` when that was 0, and its
    monotonic clock had ``boot_ns``. Both gain ``drift_ppm`` microseconds in a second.

    Time stands still during a turn. A loop that reads the clock 100,000 times in one turn would never end, so from
    there on each reading moves this clock, and ``is_spinning`` is true.
    """

    def __init__(self, VirtualTime time not None, *, int64_t epoch_ms=1_700_000_000_000, int64_t boot_ns=0,
                 int64_t drift_ppm=0):
        self.time = time
        self._boot_ns = boot_ns
        self._drift_ppm = drift_ppm
        self.epoch_ms_at_zero = epoch_ms

    @property
    def now_ms(self):
        """The time of day of this host (int, milliseconds since 1970)."""
        return self.epoch_ms_at_zero + self._drifted_ns(self.time.now_ns) // 1_000_000

    def step_epoch(self, int64_t duration_ms):
        """Set the time of day forward, or back (milliseconds); the monotonic clock stays as it is."""
        self.epoch_ms_at_zero += duration_ms

    @property
    def is_spinning(self):
        """True when somebody read the clock too often in one turn (bool)."""
        return self._ahead_ns > 0

    def begin_turn(self):
        """A turn begins, or a waiting callback has idled: readings are counted from 0."""
        self._readings = 0

    cdef int64_t _passed_ns(self) noexcept nogil:
        self._readings += 1
        if self._readings > MOST_READINGS:
            self._ahead_ns += SPIN_STEP_NS
        return self._drifted_ns(self.time.now_ns) + self._ahead_ns

    cdef int64_t _drifted_ns(self, int64_t time_ns) noexcept nogil:
        return time_ns + time_ns // 1_000_000 * self._drift_ppm

    cdef int64_t nano_time(self) noexcept nogil:
        return self._boot_ns + self._passed_ns()

    cdef int64_t coarse_nano_time(self) noexcept nogil:
        return self.nano_time()

    cdef int64_t epoch_ms(self) noexcept nogil:
        return self.epoch_ms_at_zero + self._passed_ns() // 1_000_000

    cdef int64_t epoch_ns(self) noexcept nogil:
        return self.epoch_ms_at_zero * 1_000_000 + self._passed_ns()

    def __repr__(self):
        return f"<NodeClock {self.now_ms}>"


cdef inline uint64_t _mix(uint64_t value) noexcept nogil:
    # The finalizer of splitmix64.
    value = (value ^ (value >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t> 0x94D049BB133111EB
    return value ^ (value >> 31)


cdef class Draws:
    """Numbers drawn from a seed by what they are for: a stream (int) and the key (int) of an event in it.

    The same seed, stream and key give the same number, whatever else was drawn: one event less leaves all others as
    they are.
    """

    def __init__(self, uint64_t seed):
        self.seed = seed

    cdef uint64_t _draw(self, uint64_t stream, uint64_t key) noexcept nogil:
        cdef uint64_t value = _mix(self.seed + <uint64_t> 0x9E3779B97F4A7C15)
        value = _mix(value ^ (stream * <uint64_t> 0xD6E8FEB86659FD93))
        return _mix(value ^ (key * <uint64_t> 0x9E3779B97F4A7C15))

    def draw(self, uint64_t stream, uint64_t key):
        """A number from 0 to 2**64 - 1."""
        return self._draw(stream, key)

    def below(self, uint64_t stream, uint64_t key, uint64_t limit):
        """A number from 0 to ``limit`` - 1; raises ValueError when ``limit`` is 0."""
        if limit == 0:
            raise ValueError("limit=0: there is no number below it")
        return self._draw(stream, key) % limit

    def happens(self, uint64_t stream, uint64_t key, double probability):
        """True with this probability (bool)."""
        return (self._draw(stream, key) >> 11) * (1.0 / (<uint64_t> 1 << 53)) < probability

    def delay_ns(self, uint64_t stream, uint64_t key, int64_t least_ns, int64_t mean_ns):
        """A duration of at least ``least_ns``, exponential above it, ``mean_ns`` in the mean (int, nanoseconds)."""
        cdef double unit = ((self._draw(stream, key) >> 11) + 1) * (1.0 / (<uint64_t> 1 << 53))
        return least_ns + <int64_t> (-log(unit) * <double> (mean_ns - least_ns))


cdef class Trace:
    """A digest of all that happened, in its order: equal for two runs that did the same."""

    def note(self, int64_t time_ns, int64_t kind, int64_t who, int64_t value):
        """Add an event."""
        self._digest = _mix(self._digest ^ <uint64_t> time_ns)
        self._digest = _mix(self._digest ^ <uint64_t> kind ^ (<uint64_t> who << 8))
        self._digest = _mix(self._digest ^ <uint64_t> value)
        self.count += 1

    @property
    def digest(self):
        """The digest (int)."""
        return self._digest


cdef class ParkingIdleStrategy(IdleStrategy):
    """Calls ``park()`` each time that there was no work: the fiber that idles lets others run."""

    def __init__(self, park not None):
        self._park = park

    cdef int idle(self, int work_count) except? -1:
        if work_count <= 0:
            self._park()
        return 0

    cdef void reset(self) noexcept:
        pass

    def __repr__(self):
        return "parking"


seal((VirtualTime, NodeClock, Draws, Trace, ParkingIdleStrategy))
