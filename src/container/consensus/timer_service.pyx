"""Which timers have expired: two services, over a heap and over a wheel.

Each member keeps its services' timers, and the leader alone polls. Times are in the cluster's unit. Both services let
timers expire by deadline, and those of one deadline in the order in which they were scheduled last: upstream leaves the
order of ties, and of all timers of one tick of the wheel, to chance. They differ in their costs: with the wheel, a
timer for the near future that is cancelled before it comes costs the same however many there are.

A handler may schedule and cancel timers while it is called, its own as well: when it then returns True, only the timer
that expired goes. A timer that it schedules and that is due by now expires in the same poll. It must not poll.

A snapshot has timers by deadline, and by order of scheduling within one. So a service that is loaded from it lets them
expire in the same order.

No call makes an object for a timer. Memory grows, and is given back only when the service goes. One thread at a time
uses a service.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc

from container.common.sealed cimport seal
from container.consensus.long_map cimport NOT_IN_MAP, LongMap
from container.errors import ClusterError, ConfigurationError

cdef enum:
    NOWHERE = -1
    FIRST_CAPACITY = 16
    MAX_TICKS_PER_WHEEL = 1 << 20
    MAX_TICK_BITS = 62


cdef object _abstract(object self, str method):
    return TypeError(f"{type(self).__name__} does not implement {method}()")


cdef class TimerHandler:
    """The handler of expired timers."""

    cpdef bint on_timer_event(self, int64_t correlation_id, int64_t deadline) except -1:
        """Append the event to the log; False when that is not possible now: the timer is kept, and the poll ends."""
        raise _abstract(self, "on_timer_event")


cdef class TimerSnapshot:
    """Where a snapshot's timers go."""

    cpdef int on_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        """Take one timer; an exception ends the snapshot."""
        raise _abstract(self, "on_timer")


cdef class TimerService:
    """Timers by their correlation ids."""

    cpdef int poll(self, int64_t now) except -1:
        """Let timers expire whose deadline is ``now`` or before, at most 20; return how many did."""
        raise _abstract(self, "poll")

    cpdef int schedule(self, int64_t correlation_id, int64_t deadline) except -1:
        """Schedule a timer, in place of one with the same id if there is one."""
        raise _abstract(self, "schedule")

    cpdef bint cancel(self, int64_t correlation_id) except -1:
        """Cancel a timer; False when there is none with this id."""
        raise _abstract(self, "cancel")

    cpdef bint expire(self, int64_t correlation_id, int64_t now) except -1:
        """Hear that a timer expired by ``now``: it goes, unless its deadline is later; False when there is none."""
        raise _abstract(self, "expire")

    cpdef void set_current_time(self, int64_t now) noexcept:
        """Hear of the time before the next poll, which may be much later than that of the last one."""

    cpdef int64_t snapshot(self, TimerSnapshot snapshot) except -1:
        """Give all timers to ``snapshot``; return how many there are."""
        raise _abstract(self, "snapshot")

    cpdef int64_t count(self) noexcept:
        """The number of timers."""
        return 0


cdef inline bint _is_before(const Timer* a, const Timer* b) noexcept nogil:
    return a.deadline < b.deadline if a.deadline != b.deadline else a.sequence < b.sequence


cdef int _compare(const void* a, const void* b) noexcept nogil:
    return -1 if _is_before(<const Timer*> a, <const Timer*> b) else 1


cdef class PriorityHeapTimerService(TimerService):
    """Timers in a binary heap: each call costs the logarithm of their number."""

    def __cinit__(self):
        self._timers = NULL
        self._heap = NULL
        self._capacity = 0
        self._heap_size = 0
        self._first_free = NOWHERE
        self._next_sequence = 0
        self._is_polling = False
        self._index_by_correlation_id = LongMap()

    def __init__(self, TimerHandler handler not None):
        self._handler = handler

    def __dealloc__(self):
        free(self._timers)
        free(self._heap)

    cpdef int poll(self, int64_t now) except -1:
        if self._is_polling:
            raise ClusterError("the handler of a timer polled the timers: schedule and cancel is what it may do")
        self._is_polling = True
        try:
            return self._expire(now)
        finally:
            self._is_polling = False

    cdef int _expire(self, int64_t now) except -1:
        cdef int expired = 0
        cdef int64_t correlation_id, sequence, found
        cdef int32_t index
        while expired < POLL_LIMIT and self._heap_size > 0:
            index = self._heap[0]
            if self._timers[index].deadline > now:
                break
            correlation_id = self._timers[index].correlation_id
            sequence = self._timers[index].sequence
            if not self._handler.on_timer_event(correlation_id, self._timers[index].deadline):
                break
            expired += 1
            # The handler may have cancelled the timer, or rescheduled it: that one stays.
            found = self._index_by_correlation_id.get(correlation_id)
            if found >= 0 and self._timers[found].sequence == sequence:
                self._forget(correlation_id, <int32_t> found)
        return expired

    cpdef int schedule(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef int64_t found = self._index_by_correlation_id.get(correlation_id)
        cdef int32_t index
        if found >= 0:
            index = <int32_t> found
            self._take_out(index)
        else:
            self._check_capacity()
            index = self._first_free
            self._index_by_correlation_id.put(correlation_id, index)    # the last that may fail
            self._first_free = self._timers[index].next
            self._timers[index].correlation_id = correlation_id
        self._timers[index].deadline = deadline
        self._timers[index].sequence = self._next_sequence
        self._next_sequence += 1
        self._put_in(index)
        return 0

    cpdef bint cancel(self, int64_t correlation_id) except -1:
        cdef int64_t found = self._index_by_correlation_id.get(correlation_id)
        if found < 0:
            return False
        self._forget(correlation_id, <int32_t> found)
        return True

    cpdef bint expire(self, int64_t correlation_id, int64_t now) except -1:
        cdef int64_t found = self._index_by_correlation_id.get(correlation_id)
        if found < 0:
            return False
        if self._timers[found].deadline <= now:
            self._forget(correlation_id, <int32_t> found)
        return True

    cpdef int64_t snapshot(self, TimerSnapshot snapshot) except -1:
        """Give all timers to ``snapshot``, by deadline and in the order of scheduling; return how many there are.

        Timers that ``snapshot`` schedules and cancels meanwhile change nothing in it.
        """
        cdef LongMap indexes = self._index_by_correlation_id
        cdef size_t number = indexes._count
        cdef size_t copied = 0
        cdef size_t place
        cdef Timer* timers
        if number == 0:
            return 0
        timers = <Timer*> malloc(number * sizeof(Timer))
        if timers == NULL:
            raise MemoryError(f"no memory to put {number} timers in order for a snapshot")
        try:
            for place in range(indexes._mask + 1):
                if indexes._slots[place].value != NOT_IN_MAP:
                    timers[copied] = self._timers[indexes._slots[place].value]
                    copied += 1
            qsort(timers, number, sizeof(Timer), _compare)
            for place in range(number):
                snapshot.on_timer(timers[place].correlation_id, timers[place].deadline)
        finally:
            free(timers)
        return <int64_t> number

    cpdef int64_t count(self) noexcept:
        return <int64_t> self._index_by_correlation_id._count

    cdef int _check_capacity(self) except -1:
        if self._first_free == NOWHERE:
            self._grow()
        return 0

    cdef int _grow(self) except -1:
        cdef int64_t capacity = max(<int64_t> FIRST_CAPACITY, <int64_t> self._capacity * 2)
        cdef void* timers
        cdef void* heap
        cdef int64_t index
        if capacity > INT32_MAX:
            raise ClusterError(f"{self._capacity} timers are scheduled, and no more are possible: cancel some")
        # Either is as good as before when the other one fails.
        timers = realloc(self._timers, <size_t> capacity * sizeof(Timer))
        if timers != NULL:
            self._timers = <Timer*> timers
        heap = realloc(self._heap, <size_t> capacity * sizeof(int32_t))
        if heap != NULL:
            self._heap = <int32_t*> heap
        if timers == NULL or heap == NULL:
            raise MemoryError(f"no memory for {self._capacity + 1} timers")
        for index in range(capacity - 1, self._capacity - 1, -1):
            self._timers[index].correlation_id = 0
            self._timers[index].heap_index = NOWHERE
            self._timers[index].next = self._first_free
            self._timers[index].previous = NOWHERE
            self._first_free = <int32_t> index
        self._capacity = <int32_t> capacity
        return 0

    cdef void _forget(self, int64_t correlation_id, int32_t index) noexcept:
        self._index_by_correlation_id.remove(correlation_id)
        self._take_out(index)
        self._timers[index].next = self._first_free
        self._first_free = index

    cdef void _put_in(self, int32_t index) noexcept:
        self._push(index)

    cdef void _take_out(self, int32_t index) noexcept:
        self._pop(self._timers[index].heap_index)

    cdef void _push(self, int32_t index) noexcept:
        self._heap_size += 1
        self._sift_up(self._heap_size - 1, index)

    cdef void _pop(self, int32_t heap_index) noexcept:
        """Take the timer at a place of the heap out: the heap's last one fills the place."""
        cdef int32_t last
        self._timers[self._heap[heap_index]].heap_index = NOWHERE
        self._heap_size -= 1
        if heap_index == self._heap_size:
            return
        last = self._heap[self._heap_size]
        self._sift_down(heap_index, last)
        if self._heap[heap_index] == last:
            self._sift_up(heap_index, last)

    cdef void _sift_up(self, int32_t heap_index, int32_t index) noexcept:
        cdef int32_t parent
        while heap_index > 0:
            parent = (heap_index - 1) // 2
            if not _is_before(&self._timers[index], &self._timers[self._heap[parent]]):
                break
            self._heap[heap_index] = self._heap[parent]
            self._timers[self._heap[heap_index]].heap_index = heap_index
            heap_index = parent
        self._heap[heap_index] = index
        self._timers[index].heap_index = heap_index

    cdef void _sift_down(self, int32_t heap_index, int32_t index) noexcept:
        cdef int32_t child
        while heap_index < self._heap_size // 2:
            child = 2 * heap_index + 1
            if (child + 1 < self._heap_size
                    and _is_before(&self._timers[self._heap[child + 1]], &self._timers[self._heap[child]])):
                child += 1
            if _is_before(&self._timers[index], &self._timers[self._heap[child]]):
                break
            self._heap[heap_index] = self._heap[child]
            self._timers[self._heap[heap_index]].heap_index = heap_index
            heap_index = child
        self._heap[heap_index] = index
        self._timers[index].heap_index = heap_index


cdef class WheelTimerService(PriorityHeapTimerService):
    """A wheel for the timers of the next lap, each spoke those of one tick, and a heap for all others.

    ``tick_resolution`` is the length of a tick in the cluster's unit; the next power of two is taken. A lap is
    ``ticks_per_wheel`` ticks. When its tick comes, a timer moves from the wheel into the heap, where all that is due
    is put in order. Timers beyond the lap wait in the heap too, as on a wheel they would be looked at in each lap.

    The time may jump: a jump of years costs the same as one lap. Upstream's wheel finds the timers that it jumped over
    up to a lap later; here they expire with the next polls.
    """

    def __cinit__(self):
        self._spokes = NULL
        self._waiting = 0

    def __init__(
        self, TimerHandler handler not None, int64_t tick_resolution, int64_t ticks_per_wheel=DEFAULT_TICKS_PER_WHEEL,
        int64_t start_time=0
    ):
        cdef int64_t spoke
        self._handler = handler
        if not 0 < tick_resolution <= <int64_t> 1 << MAX_TICK_BITS:
            raise ConfigurationError(f"tick resolution {tick_resolution} of a timer wheel: give one of 1 to 2^62")
        if not 0 < ticks_per_wheel <= MAX_TICKS_PER_WHEEL or ticks_per_wheel & (ticks_per_wheel - 1):
            raise ConfigurationError(f"{ticks_per_wheel} ticks per timer wheel: give a power of two of 1 to 2^20")
        self._tick_bits = 0
        while <int64_t> 1 << self._tick_bits < tick_resolution:
            self._tick_bits += 1
        self._ticks_per_wheel = <int32_t> ticks_per_wheel
        self._tick = start_time >> self._tick_bits
        self._spokes = <int32_t*> malloc(<size_t> ticks_per_wheel * sizeof(int32_t))
        if self._spokes == NULL:
            raise MemoryError(f"no memory for a timer wheel of {ticks_per_wheel} ticks")
        for spoke in range(ticks_per_wheel):
            self._spokes[spoke] = NOWHERE

    def __dealloc__(self):
        free(self._spokes)

    @property
    def tick_resolution(self):
        """The length of a tick: a power of two."""
        return <int64_t> 1 << self._tick_bits

    cpdef void set_current_time(self, int64_t now) noexcept:
        """Go to the tick of ``now``: timers jumped over expire with the next polls. An earlier time is ignored."""
        self._advance(now >> self._tick_bits)

    cdef int _expire(self, int64_t now) except -1:
        self._advance(now >> self._tick_bits)
        return PriorityHeapTimerService._expire(self, now)

    cdef int32_t* _spoke_at(self, int64_t tick) noexcept:
        return &self._spokes[tick & (self._ticks_per_wheel - 1)]

    cdef void _put_in(self, int32_t index) noexcept:
        cdef int64_t tick = self._timers[index].deadline >> self._tick_bits
        cdef int32_t* spoke
        if tick <= self._tick or <uint64_t> tick - <uint64_t> self._tick > <uint64_t> self._ticks_per_wheel:
            self._push(index)
            return
        spoke = self._spoke_at(tick)
        if spoke[0] != NOWHERE:
            self._timers[spoke[0]].previous = index
        self._timers[index].next = spoke[0]
        self._timers[index].previous = NOWHERE
        spoke[0] = index
        self._waiting += 1

    cdef void _take_out(self, int32_t index) noexcept:
        if self._timers[index].heap_index != NOWHERE:
            self._pop(self._timers[index].heap_index)
        else:
            self._unlink(index)

    cdef void _unlink(self, int32_t index) noexcept:
        cdef Timer* timer = &self._timers[index]
        if timer.previous != NOWHERE:
            self._timers[timer.previous].next = timer.next
        else:
            self._spoke_at(timer.deadline >> self._tick_bits)[0] = timer.next
        if timer.next != NOWHERE:
            self._timers[timer.next].previous = timer.previous
        self._waiting -= 1

    cdef void _advance(self, int64_t tick) noexcept:
        """Move the timers of all ticks up to this one into the heap."""
        cdef uint64_t passed
        cdef int64_t offset
        cdef int32_t* spoke
        cdef int32_t index
        if tick <= self._tick:
            return
        if self._waiting > 0:
            passed = <uint64_t> tick - <uint64_t> self._tick
            for offset in range(1, 1 + <int64_t> min(passed, <uint64_t> self._ticks_per_wheel)):
                spoke = self._spoke_at(self._tick + offset)
                while spoke[0] != NOWHERE:
                    index = spoke[0]
                    self._unlink(index)
                    self._push(index)
        self._tick = tick


seal((PriorityHeapTimerService, WheelTimerService))
