"""A leader's own entries in the log: timers that have expired, and messages that services offer."""
from libc.stdint cimport int64_t, uint8_t

from container.common.sealed cimport seal
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.pending_service_messages cimport MessageAppender
from container.consensus.timer_service cimport TimerHandler
from container.consensus.uncommitted_timers cimport UncommittedTimers


cdef class TimerAppender(TimerHandler):
    """Appends the events of timers, and notes each in ``uncommitted`` (UncommittedTimers)."""

    def __init__(self, MemberStatus status not None, LogPublisher log_publisher not None,
                 ClusterClock cluster_clock not None, UncommittedTimers uncommitted not None):
        self._status, self._log_publisher = status, log_publisher
        self._cluster_clock, self._uncommitted = cluster_clock, uncommitted

    cpdef bint on_timer_event(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef int64_t position = self._log_publisher.append_timer(
            self._status.leadership_term_id, correlation_id, self._cluster_clock.time())
        if position <= 0:
            return False
        self._uncommitted.push(position, correlation_id, deadline)
        return True


cdef class ServiceMessageAppender(MessageAppender):
    """Appends messages of services."""

    def __init__(self, MemberStatus status not None, LogPublisher log_publisher not None,
                 ClusterClock cluster_clock not None, MemberTermination termination not None):
        self._status, self._log_publisher, self._cluster_clock = status, log_publisher, cluster_clock
        self._termination = termination

    cdef int64_t append_message(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except? -6:
        cdef int64_t longest = self._log_publisher.max_payload_length()
        if <int64_t> length > longest > 0:      # all members have given it an id, and none may leave it out
            self._termination.terminate(
                False, f"a message of {length} bytes came from a service before there was a log, which takes {longest} "
                "at most; after a start it is refused: have services send shorter ones, or give the log longer terms "
                "(aeron.cluster.log.channel)")
        return self._log_publisher.append_message(
            self._status.leadership_term_id, cluster_session_id, self._cluster_clock.time(), payload, length)


seal((TimerAppender, ServiceMessageAppender))
