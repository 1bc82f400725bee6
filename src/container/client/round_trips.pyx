"""Round trips with an echo service, in C: numbered messages, a window of them at a time, each answer checked, timed."""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from container.client.aeron_cluster cimport AeronCluster
from container.client.egress_handler cimport PythonEgressHandler
from container.client.egress_listener import EgressListener
from container.common.sealed cimport initialise, seal
from container.errors import ConfigurationError
from container.transport.clocks cimport Clock, SystemClock
from container.transport.frames cimport ACTION_CONTINUE, FrameHeader

cdef enum:
    NUMBER_LENGTH = sizeof(int64_t)
    RECENT = 1_000

cdef int64_t NS_PER_S = 1_000_000_000


cdef class RoundTrips(PythonEgressHandler):
    """Sends messages of ``length`` bytes to a service that sends each back; it is the listener of the client that does.

    An answer counts when it is the next message, byte for byte: a session's messages are answered in their order. Any
    other message is counted in :attr:`others`. Other events go to ``listener``. Raises ConfigurationError for a length
    below 8, which is what the number in each message takes.
    """

    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t messages
    cdef readonly Py_ssize_t window
    cdef readonly Py_ssize_t sent
    cdef readonly Py_ssize_t received
    cdef readonly Py_ssize_t others             # messages other than the answer that is due
    cdef int64_t* _times_ns                     # when each was sent; once answered, how long that took
    cdef uint8_t* _message
    cdef Clock _clock

    def __init__(self, Py_ssize_t length, listener=None):
        _check_least("length", length, NUMBER_LENGTH)
        initialise(PythonEgressHandler, self, (EgressListener() if listener is None else listener,), {})
        self.length = length
        self._clock = SystemClock()
        self._message = <uint8_t*> _resized(self._message, length, 1)

    def __dealloc__(self):
        free(self._times_ns)
        free(self._message)

    def begin(self, Py_ssize_t messages, Py_ssize_t window):
        """Begin a round of ``messages`` messages (at least 1), at most ``window`` (at least 1) in flight."""
        _check_least("messages", messages, 1)
        _check_least("window", window, 1)
        self._times_ns = <int64_t*> _resized(self._times_ns, messages, sizeof(int64_t))
        self.messages = messages
        self.window = window
        self.sent = self.received = self.others = 0

    def run(self, AeronCluster cluster not None, double seconds):
        """Send, poll and idle until all of the round are answered, or for ``seconds``; True when all are.

        Raise as :meth:`AeronCluster.poll_egress`, and ClosedError when the client gets closed.
        """
        cdef int64_t end_ns = self._clock.nano_time() + <int64_t> (seconds * NS_PER_S)
        while self.received < self.messages:
            cluster.idle(cluster.poll_egress() + self._offer(cluster))
            if self._clock.nano_time() >= end_ns:
                break
        return self.received == self.messages

    cdef int _offer(self, AeronCluster cluster) except -1:
        cdef int count = 0
        while self.sent < self.messages and self.sent - self.received < self.window:
            self._write(self.sent)
            self._times_ns[self.sent] = self._clock.nano_time()
            if cluster.offer_message(self._message, <size_t> self.length) <= 0:
                break
            self.sent += 1
            count += 1
        return count

    cdef void _write(self, int64_t number) noexcept:
        cdef Py_ssize_t index
        memcpy(self._message, &number, NUMBER_LENGTH)
        for index in range(NUMBER_LENGTH, self.length):
            self._message[index] = <uint8_t> (number + index)

    cdef int on_message(
            self, int64_t cluster_session_id, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        cdef int64_t now_ns = self._clock.nano_time()
        if self.received < self.sent:
            self._write(self.received)
            if length == <size_t> self.length and memcmp(data, self._message, length) == 0:
                self._times_ns[self.received] = now_ns - self._times_ns[self.received]
                self.received += 1
                return ACTION_CONTINUE
        self.others += 1
        return ACTION_CONTINUE

    def durations_ns(self):
        """How long each answer took, in nanoseconds, in the order of the messages (list of int)."""
        cdef Py_ssize_t index
        return [self._times_ns[index] for index in range(self.received)]

    def recent_mean_us(self):
        """The mean duration of the last thousand answers, in microseconds (float); 0 when there is none."""
        cdef Py_ssize_t index
        cdef Py_ssize_t count = min(<Py_ssize_t> RECENT, self.received)
        cdef int64_t total = 0
        for index in range(self.received - count, self.received):
            total += self._times_ns[index]
        return total / 1000.0 / count if count > 0 else 0.0


cdef void* _resized(void* memory, Py_ssize_t count, size_t size) except NULL:
    cdef void* resized = realloc(memory, <size_t> count * size)
    if resized == NULL:
        raise MemoryError(f"no memory for {count} times {size} bytes")
    return resized


def _check_least(str name, Py_ssize_t value, Py_ssize_t least):
    if value < least:
        raise ConfigurationError(f"{name} must be at least {least}, not {value}")


def percentile_us(ordered, double percent):
    """Below which so many percent of the durations are: of a sorted sequence in ns, in microseconds; 0 of none."""
    cdef Py_ssize_t count = len(ordered)
    return ordered[min(count - 1, <Py_ssize_t> (count * percent / 100))] / 1000 if count > 0 else 0.0


seal((RoundTrips,))
