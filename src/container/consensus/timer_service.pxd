# Which timers have expired: two services, over a heap and over a wheel. Upstream: TimerService.java.
from libc.stdint cimport int32_t, int64_t

from container.consensus.long_map cimport LongMap

cdef enum:
    POLL_LIMIT = 20                     # timers that one poll lets expire
    DEFAULT_TICKS_PER_WHEEL = 128


cdef class TimerHandler:
    # True: the timer's event is in the log. False: not now; the timer stays, and the poll ends. An exception as well.
    cpdef bint on_timer_event(self, int64_t correlation_id, int64_t deadline) except -1


cdef class TimerSnapshot:
    cpdef int on_timer(self, int64_t correlation_id, int64_t deadline) except -1


cdef class TimerService:
    cpdef int poll(self, int64_t now) except -1         # how many expired
    cpdef int schedule(self, int64_t correlation_id, int64_t deadline) except -1
    cpdef bint cancel(self, int64_t correlation_id) except -1       # False: there is no such timer
    cpdef bint expire(self, int64_t correlation_id, int64_t now) except -1      # the same; one that is not due stays
    cpdef void set_current_time(self, int64_t now) noexcept
    cpdef int64_t snapshot(self, TimerSnapshot snapshot) except -1  # how many timers there are
    cpdef int64_t count(self) noexcept


cdef struct Timer:
    int64_t correlation_id
    int64_t deadline
    int64_t sequence                    # number of the call that scheduled it: no two are alike
    int32_t heap_index                  # NOWHERE: on the wheel, or free
    int32_t next                        # of the wheel's spoke, or of the free ones
    int32_t previous


cdef class PriorityHeapTimerService(TimerService):
    cdef TimerHandler _handler
    cdef LongMap _index_by_correlation_id
    cdef Timer* _timers                 # used ones and free ones
    cdef int32_t* _heap                 # indexes of timers, the next to expire first; room for all timers
    cdef int32_t _capacity              # of both
    cdef int32_t _heap_size
    cdef int32_t _first_free            # NOWHERE: none
    cdef int64_t _next_sequence
    cdef bint _is_polling
    cdef int _expire(self, int64_t now) except -1
    cdef int _check_capacity(self) except -1
    cdef int _grow(self) except -1
    cdef void _forget(self, int64_t correlation_id, int32_t index) noexcept
    cdef void _put_in(self, int32_t index) noexcept
    cdef void _take_out(self, int32_t index) noexcept
    cdef void _push(self, int32_t index) noexcept
    cdef void _pop(self, int32_t heap_index) noexcept
    cdef void _sift_up(self, int32_t heap_index, int32_t index) noexcept
    cdef void _sift_down(self, int32_t heap_index, int32_t index) noexcept


cdef class WheelTimerService(PriorityHeapTimerService):
    cdef int32_t* _spokes               # first timer of each, or NOWHERE
    cdef int32_t _ticks_per_wheel
    cdef int _tick_bits                 # log2 of the resolution
    cdef int64_t _tick                  # on the wheel are timers of the ticks after it, one lap of them
    cdef int64_t _waiting               # timers on the wheel
    cdef int32_t* _spoke_at(self, int64_t tick) noexcept
    cdef void _unlink(self, int32_t index) noexcept
    cdef void _advance(self, int64_t tick) noexcept
