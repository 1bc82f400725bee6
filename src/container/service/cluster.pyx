"""A service's calls to its cluster, from Python and Cython; the agent carries them out."""
cimport cython
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t, uint8_t

from container.api import Role, TimeUnit
from container.common.sealed cimport hide
from container.common.values import shown
from container.errors import ClusterError
from container.transport.buffer_vectors cimport BufferVectors, gather_vectors, release_vectors
from container.transport.message_buffer cimport BufferClaim
from container.transport.frames cimport NOT_CONNECTED, BufferVector
from container.transport.streams cimport publication_result_name
from container.transport.wait_reporter cimport WaitReporter

cdef tuple _ROLES = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
cdef tuple _TIME_UNITS = (TimeUnit.MILLIS, TimeUnit.MICROS, TimeUnit.NANOS)
cdef str _LOST_MESSAGE = ("a message to the cluster is lost on this member and the members may diverge; use "
                          "Cluster.send, or idle and offer again")


cdef int64_t _number(str name, object value) except? -1:
    """Check an integer argument of a callback's call; an error names it, as it ends the member on which it is
    raised."""
    try:
        return PyNumber_Index(value)
    except (TypeError, OverflowError) as error:
        raise type(error)(f"{name}={shown(value)}: must be a whole number of 64 bits") from None


cdef class FailedSend:
    """A raw offer or a request that was not sent; kept until its event ends."""


# Not bound: CPython calls such a method without a detour.
@cython.binding(False)
cdef class Cluster:
    """Upstream's Cluster; see :class:`container.api.Cluster` for the contract of each call."""

    cdef WaitReporter _wait_for(self, str what):
        return None

    cdef int idle_once(self, int work_count) except -1:
        return 0

    cdef bint close_session_by_id(self, int64_t cluster_session_id) except -1:
        return False

    cdef bint send_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        return False

    cdef bint send_cancel_timer(self, int64_t correlation_id) except -1:
        return False

    cdef int64_t offer_vectors(self, BufferVector* vectors, size_t count) except? -6:
        raise ClusterError("this cluster cannot send: it is not the one that the container passes to a service")

    cdef int64_t offer_bytes(self, const uint8_t* data, size_t length) except? -6:
        cdef BufferVector vectors[2]
        vectors[1].data = <uint8_t*> data
        vectors[1].length = length
        return self.offer_vectors(vectors, 2)

    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6:
        cdef BufferVector vectors[2]
        vectors[1].data = <uint8_t*> data
        vectors[1].length = length
        return self.send_vectors(vectors, 2)

    cdef int64_t send_vectors(self, BufferVector* vectors, size_t count) except? -6:
        cdef int64_t result = self.offer_vectors(vectors, count)
        cdef WaitReporter waiting = None
        while result <= 0:
            if waiting is None:
                waiting = self._wait_for("the consensus module to take a message of the service")
            self.idle_once(0)
            waiting.tick()
            result = self.offer_vectors(vectors, count)
        return result

    cdef int64_t claim(self, Py_ssize_t length, BufferClaim buffer_claim) except? -6:
        return NOT_CONNECTED

    cdef object find_session(self, int64_t cluster_session_id):
        return None

    cdef list list_sessions(self):
        return []

    cdef int64_t get_log_position(self) noexcept:
        return -1

    cdef int64_t get_cluster_time(self) noexcept:
        return 0

    cdef int get_member_id(self) noexcept:
        return -1

    cdef int get_role(self) noexcept:
        return 0

    cdef int get_time_unit(self) noexcept:
        return -1

    cdef object get_context(self):
        return None

    cdef object get_aeron(self):
        return None

    def __repr__(self):
        return f"<Cluster member_id={self.member_id} {self.role.name} log_position={self.log_position}>"

    @property
    def member_id(self):
        """This member's id (int); -1 before it joined a log."""
        return self.get_member_id()

    @property
    def role(self):
        """The role of this member (Role)."""
        return _ROLES[self.get_role()]

    @property
    def log_position(self):
        """The processed position of the log (int, bytes)."""
        return self.get_log_position()

    @property
    def time(self):
        """Cluster time of the event in progress (int, in `time_unit`)."""
        return self.get_cluster_time()

    @property
    def time_unit(self):
        """Unit of cluster time (TimeUnit or None)."""
        cdef int time_unit = self.get_time_unit()
        return _TIME_UNITS[time_unit] if time_unit >= 0 else None

    @property
    def context(self):
        """The context of the container."""
        return self.get_context()

    @property
    def aeron(self):
        """The Aeron client of the container."""
        return self.get_aeron()

    @property
    def client_sessions(self):
        """The open sessions in upstream's order: ascending ids, but one below all others last (a fresh list)."""
        return self.list_sessions()

    def get_client_session(self, cluster_session_id):
        """The open session with this id, or None."""
        return self.find_session(_number("cluster_session_id", cluster_session_id))

    def for_each_client_session(self, action):
        """Call ``action(session)`` for each open session in the order of :attr:`client_sessions`."""
        for session in self.list_sessions():
            action(session)

    def close_client_session(self, cluster_session_id):
        """Ask for the close of a session; see :meth:`container.api.Cluster.close_client_session`."""
        return bool(self.close_session_by_id(_number("cluster_session_id", cluster_session_id)))

    def schedule_timer(self, correlation_id, deadline):
        """Schedule a timer; see :meth:`container.api.Cluster.schedule_timer`."""
        return bool(self.send_schedule_timer(_number("correlation_id", correlation_id), _number("deadline", deadline)))

    def cancel_timer(self, correlation_id):
        """Cancel a timer; see :meth:`container.api.Cluster.cancel_timer`."""
        return bool(self.send_cancel_timer(_number("correlation_id", correlation_id)))

    def offer(self, *buffers):
        """Try once to send a message to the cluster; see :meth:`container.api.Cluster.offer`."""
        cdef BufferVectors gathered
        cdef int64_t result
        gather_vectors(&gathered, buffers)
        try:
            result = self.offer_vectors(gathered.vectors, <size_t> gathered.count + 1)
            if result > 0 and self._loose_ends is None:
                return result
            payload = b"".join(buffers)
            return self._tracked(result, "Cluster.offer", payload, len(payload), _LOST_MESSAGE)
        finally:
            release_vectors(&gathered)

    def send(self, *buffers):
        """Send a message to the cluster, waiting out back pressure; see :meth:`container.api.Cluster.send`."""
        cdef BufferVectors gathered
        cdef int64_t position
        gather_vectors(&gathered, buffers)
        try:
            position = self.send_vectors(gathered.vectors, <size_t> gathered.count + 1)
            if self._loose_ends is not None:
                payload = b"".join(buffers)
                self._sent(payload, len(payload))
            return position
        finally:
            release_vectors(&gathered)

    def try_claim(self, Py_ssize_t length, BufferClaim buffer_claim not None):
        """Claim a range of the stream to the cluster; see :meth:`container.api.Cluster.try_claim`."""
        cdef int64_t result = self.claim(length, buffer_claim)
        if result > 0 and self._loose_ends is None:
            return result
        return self._tracked(result, "Cluster.try_claim", None, length, _LOST_MESSAGE)

    def idle(self, int work_count=0):
        """Idle once inside a callback; see :meth:`container.api.Cluster.idle`."""
        self.idle_once(work_count)

    cdef int64_t _tracked(
            self, int64_t result, str name, object payload, Py_ssize_t length, str consequence) except? -6:
        if result > 0:
            self._sent(payload, length)
        else:
            self._keep(payload, length,
                       f"{name} returned {publication_result_name(result)} at logPosition={self.get_log_position()} "
                       f"and was not repeated until it was accepted: {consequence}")
        return result

    cdef int _sent(self, object what, Py_ssize_t length) except -1:
        cdef FailedSend failed
        for failed in self._loose_ends:
            if failed.what == what or failed.length == length >= 0 and (failed.what is None or what is None):
                self._loose_ends.remove(failed)
                break
        return 0

    cdef int _keep(self, object what, Py_ssize_t length, str text) except -1:
        cdef FailedSend failed
        if self._loose_ends is None:
            self._loose_ends = []
        self._sent(what, length)        # it is being retried, for however long
        failed = FailedSend.__new__(FailedSend)
        failed.what = what
        failed.length = length
        failed.text = text
        self._loose_ends.append(failed)
        return 0


hide((FailedSend,))
