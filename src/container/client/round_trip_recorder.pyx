"""Counts how long round trips took, in the buckets of an HdrHistogram of two significant digits; recording allocates
nothing but, the first time, the buckets: 36 KiB.

The first 256 buckets are 1 ns wide. From there each doubling of the duration has 128: a bucket is at most 1/128 of its
least duration wide. Longer durations count as 73 minutes.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from container.client.client_metrics import RoundTripTimes
from container.common.sealed cimport seal
from container.transport.clocks cimport Clock

cdef extern from *:
    int __builtin_clzll(unsigned long long value) noexcept nogil

cdef enum:
    SUB_BUCKETS = 256
    SUB_BUCKET_BITS = 8
    MAX_BITS = 42
    BUCKETS = (MAX_BITS - SUB_BUCKET_BITS + 2) * SUB_BUCKETS // 2

cdef int64_t MAX_NS = (<int64_t> 1 << MAX_BITS) - 1


cdef class RoundTripRecorder:
    """Measures by a clock, and keeps what it measured; for one thread, and :meth:`snapshot` for any."""

    cdef Clock _clock
    cdef int64_t* _counts
    cdef int64_t _count, _min_ns, _max_ns, _total_ns

    def __init__(self, Clock clock not None):
        self._clock = clock

    def __dealloc__(self):
        free(self._counts)

    def use(self, Clock clock not None):
        """Measure by this clock from now on; what was counted stays."""
        self._clock = clock

    def now_ns(self):
        """The clock's time in nanoseconds (int), for :meth:`record_since`."""
        return self._clock.nano_time()

    def record_since(self, int64_t begin_ns):
        """Count a round trip that began at that time and ends now."""
        self.record(self._clock.nano_time() - begin_ns)

    cpdef int record(self, int64_t duration_ns) except -1:
        """Count a round trip of ``duration_ns``; limit it to 0 and 73 minutes. Return 0."""
        cdef int64_t ns = min(max(duration_ns, <int64_t> 0), MAX_NS)
        cdef int shift = 63 - __builtin_clzll(<uint64_t> ns | (SUB_BUCKETS - 1)) - (SUB_BUCKET_BITS - 1)
        if self._counts == NULL:
            self._counts = <int64_t*> calloc(BUCKETS, sizeof(int64_t))
            if self._counts == NULL:
                raise MemoryError(f"no memory for {BUCKETS} buckets of a histogram")
        self._counts[shift * (SUB_BUCKETS // 2) + (ns >> shift)] += 1
        self._min_ns = ns if self._count == 0 else min(ns, self._min_ns)
        self._max_ns = max(ns, self._max_ns)
        self._total_ns += ns
        self._count += 1
        return 0

    def snapshot(self):
        """The counts so far (:class:`container.client.RoundTripTimes`)."""
        cdef int index, shift
        cdef list buckets = []
        if self._counts != NULL:
            for index in range(BUCKETS):
                if self._counts[index] > 0:
                    shift = max(0, index // (SUB_BUCKETS // 2) - 1)
                    buckets.append((
                        ((<int64_t> (index - shift * (SUB_BUCKETS // 2)) + 1) << shift) - 1, self._counts[index]))
        return RoundTripTimes(
            count=self._count, min_ns=self._min_ns, max_ns=self._max_ns, total_ns=self._total_ns,
            buckets=tuple(buckets))


seal((RoundTripRecorder,))
