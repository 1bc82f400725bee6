"""The egress of a leader's sessions: for which of them the driver is asked, and how long its answers are waited for.

The driver is asked for many at a time, so that those of thousands of sessions come soon, and never for so many that its
command buffer is full. A name that cannot be resolved keeps it busy for long, which delays all that it is asked
meanwhile: of channels with a name it is asked for a few, and they hold up no others.

The log continues meanwhile. A service that uses a session's egress before its answer is there waits for it, and a new
leader waits for those of all its sessions. After a wait that brought no answer nothing waits until that one is there.
"""
import re
from collections import deque

from libc.stdint cimport int64_t

from container.common.channel_uri import ChannelUri
from container.common.sealed cimport seal
from container.errors import Category, ClusterError, ConfigurationError
from container.service.container_client_session cimport ContainerClientSession, WaitBudget, refill
from container.transport.transport_seam cimport Client

cdef enum:
    MAX_ADDRESSES = 64                      # for which the driver is asked at a time
    MAX_NAMES = 4
    PATIENCE_NS = 1_000_000_000             # how long the log waits for a driver that does not answer
    PATIENCE_REFILL = 1                     # what was not waited comes back: half of the time goes to the log

cdef object _ADDRESS = re.compile(r"(\d+(\.\d+){3}|\[.*\])(:\d+)?(/\d+)?")
cdef tuple _WITH_ADDRESSES = ("endpoint", "control", "interface")


cdef bint has_name(str channel) except -1:
    """Whether the driver has to resolve a name for this channel."""
    if channel.startswith("aeron:ipc"):
        return False
    params = {}
    try:
        params = ChannelUri.parse(channel).params
    except ConfigurationError:
        pass                                # no driver takes it
    for name in _WITH_ADDRESSES:
        text = params.get(name)
        if text is not None and _ADDRESS.fullmatch(text) is None:
            return True
    return False


cdef class ConnectQueue:
    """Sessions to be connected: a limited number at a time, the latest first."""

    def __cinit__(self, Py_ssize_t limit):
        self._limit = limit
        self._asked = []
        self._waiting = deque()

    cdef int add(self, list sessions) except -1:
        self._waiting.extendleft(reversed(sessions))
        return 0

    cdef int poll(self, Client client, int64_t now_ns, list failures) except -1:
        cdef ContainerClientSession session
        self._asked = [
            session for session in self._asked if not self._is_done(session, client, now_ns, failures)]
        while self._waiting and len(self._asked) < self._limit:
            session = self._waiting.popleft()
            self._asked.append(session)
            if self._is_done(session, client, now_ns, failures):
                self._asked.pop()
        return 0

    cdef bint _is_done(self, ContainerClientSession session, Client client, int64_t now_ns, list failures) except -1:
        # A failure here concerns this member alone: the session itself is open on all of them.
        cdef bint is_done = True
        try:
            is_done = session._is_connected(client, now_ns)
        except Exception as error:
            failures.append(ClusterError(
                f"failed to connect session response publication: {error}", category=Category.WARN))
        return is_done


cdef class EgressConnects:
    """All sessions whose egress the driver has not answered for."""

    def __cinit__(self):
        self._addresses = ConnectQueue(MAX_ADDRESSES)
        self._names = ConnectQueue(MAX_NAMES)
        self._patience = WaitBudget(PATIENCE_NS, PATIENCE_NS, PATIENCE_REFILL, 0)

    cdef bint is_empty(self) noexcept:
        return not (self._addresses._asked or self._addresses._waiting or self._names._asked or self._names._waiting)

    cdef int add(self, list sessions, int64_t now_ns) except -1:
        cdef ContainerClientSession session
        cdef list addresses = [], names = []
        for session in sessions:
            session._begin_connecting(now_ns)
            (names if has_name(session.response_channel) else addresses).append(session)
        self._addresses.add(addresses)
        return self._names.add(names)

    cdef list poll(self, Client client, int64_t now_ns):
        cdef list failures = []
        self._addresses.poll(client, now_ns, failures)
        self._names.poll(client, now_ns, failures)
        return failures

    cdef bint is_overdue(self) noexcept:
        return self._overdue is not None and self._overdue._is_connecting

    cdef int64_t wait_limit_ns(self, int64_t now_ns) noexcept:
        refill(&self._patience, now_ns)
        return self._patience.remaining_ns

    cdef bint is_awaited(self, ContainerClientSession session) noexcept:
        return not self.is_empty() if session is None else session._is_connecting

    cdef int waited(self, ContainerClientSession session, int64_t begin_ns, int64_t end_ns) except -1:
        self._patience.remaining_ns -= end_ns - begin_ns
        self._patience.counted_ns = end_ns
        self._overdue = None
        if self.is_awaited(session):
            self._overdue = (self._addresses._asked or self._names._asked)[0] if session is None else session
        return 0

    cdef int clear(self) except -1:
        self._overdue = None
        self._addresses = ConnectQueue(MAX_ADDRESSES)
        self._names = ConnectQueue(MAX_NAMES)
        return 0


seal((ConnectQueue, EgressConnects))
