# Log entries that a leader appends without a client's request.
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.pending_service_messages cimport MessageAppender
from container.consensus.timer_service cimport TimerHandler
from container.consensus.uncommitted_timers cimport UncommittedTimers


cdef class TimerAppender(TimerHandler):
    cdef MemberStatus _status
    cdef LogPublisher _log_publisher
    cdef ClusterClock _cluster_clock
    cdef UncommittedTimers _uncommitted


cdef class ServiceMessageAppender(MessageAppender):
    cdef MemberStatus _status
    cdef LogPublisher _log_publisher
    cdef ClusterClock _cluster_clock
    cdef MemberTermination _termination
