"""Idle strategies by Aeron's names: what a duty cycle does when it found no work.

Each releases the GIL while it waits, so that other Python threads run. A strategy belongs to one thread.
"""
from libc.stdint cimport int64_t
from posix.time cimport nanosleep, timespec

from container.common.values import shown, whole_number
from container.errors import ConfigurationError

cdef extern from "sched.h" nogil:
    int sched_yield() noexcept

cdef extern from *:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #define container_cpu_relax() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define container_cpu_relax() __asm__ __volatile__("isb" ::: "memory")
    #else
    #define container_cpu_relax() __asm__ __volatile__("" ::: "memory")
    #endif
    """
    void container_cpu_relax() noexcept nogil


cdef inline void _sleep_ns(int64_t duration_ns) noexcept nogil:
    cdef timespec duration
    duration.tv_sec = duration_ns // 1_000_000_000
    duration.tv_nsec = duration_ns % 1_000_000_000
    nanosleep(&duration, NULL)


cdef class IdleStrategy:
    """Base of all idle strategies: :meth:`idle` waits once when there was no work and resets when there was."""

    cdef int idle(self, int work_count) except? -1:
        return 0

    cdef void reset(self) noexcept:
        pass

    cdef bint run_others(self) except -1:
        return False


cdef class NoOpIdleStrategy(IdleStrategy):
    """Continues immediately and keeps the GIL: for agents that the caller drives by hand."""

    def __repr__(self):
        return "noop"


cdef class BusySpinIdleStrategy(IdleStrategy):
    """Spins with a processor hint: lowest latency, one core at 100 %."""

    cdef int idle(self, int work_count) except? -1:
        if work_count <= 0:
            with nogil:
                container_cpu_relax()
        return 0

    def __repr__(self):
        return "busy_spin"


cdef class YieldingIdleStrategy(IdleStrategy):
    """Yields the processor to whoever else wants it."""

    cdef int idle(self, int work_count) except? -1:
        if work_count <= 0:
            with nogil:
                sched_yield()
        return 0

    def __repr__(self):
        return "yield"


_INT64_MAX = 2**63 - 1


def _as_int64(what, value):
    """The value, when it is a whole number that fits 64 bits."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = int.__int__(value)  # of a class of its own as well
    if type(value) is not int or not -_INT64_MAX <= value <= _INT64_MAX:
        raise ConfigurationError(f"idle strategy {what}={shown(value)}: must be a whole number that fits 64 bits")
    return value


cdef class SleepingIdleStrategy(IdleStrategy):
    """Sleeps for a fixed period (int, nanoseconds, at least 1)."""

    def __init__(self, period_ns):
        self.period_ns = _as_int64("sleep: period_ns", period_ns)
        if self.period_ns < 1:
            raise ConfigurationError(f"idle strategy sleep: period must be at least 1ns, not {self.period_ns}ns")

    cdef int idle(self, int work_count) except? -1:
        if work_count <= 0:
            with nogil:
                _sleep_ns(self.period_ns)
        return 0

    def __repr__(self):
        return f"sleep({self.period_ns}ns)"


cdef class BackoffIdleStrategy(IdleStrategy):
    """Spins, then yields, then parks for a period that doubles from the minimum to the maximum (nanoseconds).

    The defaults are upstream's: 10 spins, 20 yields, parks from 1 microsecond to 1 millisecond.
    """

    def __init__(self, max_spins=10, max_yields=20, min_park_period_ns=1_000, max_park_period_ns=1_000_000):
        self.max_spins = _as_int64("backoff: max_spins", max_spins)
        self.max_yields = _as_int64("backoff: max_yields", max_yields)
        self.min_park_period_ns = _as_int64("backoff: min_park_period_ns", min_park_period_ns)
        self.max_park_period_ns = _as_int64("backoff: max_park_period_ns", max_park_period_ns)
        if self.max_spins < 0 or self.max_yields < 0:
            raise ConfigurationError(
                f"idle strategy backoff: spins and yields must not be negative: {self.max_spins}, {self.max_yields}")
        if self.min_park_period_ns < 1 or self.max_park_period_ns < self.min_park_period_ns:
            raise ConfigurationError(
                "idle strategy backoff: park periods must be 1ns <= min <= max: "
                f"min={self.min_park_period_ns}ns max={self.max_park_period_ns}ns")
        self._state = 0
        self._count = 0
        self._park_period_ns = self.min_park_period_ns

    cdef int idle(self, int work_count) except? -1:
        if work_count > 0:
            self.reset()
            return 0
        if self._state == 0:
            if self._count < self.max_spins:
                self._count += 1
                with nogil:
                    container_cpu_relax()
                return 0
            self._state = 1
            self._count = 0
        if self._state == 1:
            if self._count < self.max_yields:
                self._count += 1
                with nogil:
                    sched_yield()
                return 0
            self._state = 2
            self._park_period_ns = self.min_park_period_ns
        with nogil:
            _sleep_ns(self._park_period_ns)
        self._park_period_ns = min(self._park_period_ns * 2, self.max_park_period_ns)
        return 0

    cdef void reset(self) noexcept:
        self._state = 0
        self._count = 0

    def __repr__(self):
        return (f"backoff({self.max_spins},{self.max_yields},{self.min_park_period_ns}ns,"
                f"{self.max_park_period_ns}ns)")


_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1}
_SYNTAX = ("noop, busy_spin (or spin), yield, sleep(100us) (or sleep-ns, sleep-ms), backoff, "
           "backoff(spins,yields,min_park,max_park)")


def parse_duration_ns(text):
    """Nanoseconds of a duration such as ``100us``, ``2ms``, ``1s`` or ``500`` (nanoseconds).

    Raises ConfigurationError (ValueError) when the text is not a duration, or stands for more than 2**63 - 1
    nanoseconds.
    """
    duration_ns = parse_quantity(text.strip(), _UNIT_NS) if isinstance(text, str) else None
    if duration_ns is not None and duration_ns > _INT64_MAX:
        raise ConfigurationError(f"a duration of {shown(text)} is too long: at most {_INT64_MAX}ns")
    if duration_ns is None:
        raise ConfigurationError(
            f"not a duration: {shown(text)}; write a number and one of ns, us, ms, s, such as 100us")
    return duration_ns


def parse_quantity(str text, dict factors):
    """A whole number with one of these units, whatever their case, times the unit's factor (int); None for any other
    text. A unit that ends like another comes after it, so no unit, ``""``, is the last."""
    cdef str lower = text.lower()
    for unit, factor in factors.items():
        number = lower.removesuffix(unit).rstrip()
        if lower.endswith(unit) and number.isascii() and number.isdigit():
            return whole_number(number) * factor
    return None


def _parse_count(str text):
    count = whole_number(text)
    if count is None or count < 0:
        raise ConfigurationError(f"not a count: {shown(text)}; write a whole number")
    return count


cpdef IdleStrategy parse_idle_strategy(text):
    """A new idle strategy from its name and parameters, such as ``backoff(10,20,1us,50us)``.

    Accepts Aeron's aliases. Raises ConfigurationError (ValueError) for an unknown name, or parameters that do not fit.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"idle strategy {shown(text)} is not understood; use one of: {_SYNTAX}")
    name, parenthesis, rest = text.strip().partition("(")
    name = name.rstrip().lower().replace("_", "-")
    if parenthesis and (not rest.endswith(")") or rest.count(")") > 1 or "(" in rest):
        raise ConfigurationError(f"idle strategy {shown(text)} is not understood; use one of: {_SYNTAX}")
    cdef str parameters = rest.removesuffix(")").strip()
    cdef list arguments = [a.strip() for a in parameters.split(",")] if parameters else []
    try:
        if name in ("noop", "no-op") and not arguments:
            return NoOpIdleStrategy()
        if name in ("busy-spin", "spin", "spinning") and not arguments:
            return BusySpinIdleStrategy()
        if name in ("yield", "yielding") and not arguments:
            return YieldingIdleStrategy()
        if name in ("sleep", "sleep-ns", "sleep-ms") and len(arguments) <= 1:
            default = "1ms" if name == "sleep-ms" else "1us"
            return SleepingIdleStrategy(parse_duration_ns(arguments[0] if arguments else default))
        if name == "backoff" and len(arguments) in (0, 4):
            if not arguments:
                return BackoffIdleStrategy()
            return BackoffIdleStrategy(
                _parse_count(arguments[0]), _parse_count(arguments[1]),
                parse_duration_ns(arguments[2]), parse_duration_ns(arguments[3]))
    except ConfigurationError as error:
        raise ConfigurationError(f"idle strategy {shown(text)}: {error}") from None
    raise ConfigurationError(f"idle strategy {shown(text)} is not understood; use one of: {_SYNTAX}")
