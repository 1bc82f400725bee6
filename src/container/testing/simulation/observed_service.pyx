"""A service between the agent and the service under test: compares what the agent delivers with what was logged."""
from bisect import bisect_right

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from container.common.differences import shown_apart
from container.common.sealed cimport hide, seal
from container.common.values import shown
from container.errors import MessageTooLongError
from container.service.cluster cimport Cluster
from container.service.container_client_session cimport ContainerClientSession
from container.service.service_handler cimport ServiceHandler
from container.service.session_messages cimport SessionMessages
from container.service.snapshot_loader cimport SnapshotImage
from container.service.snapshot_taker cimport SnapshotPublication
from container.transport.frames cimport MAX_MESSAGE_LENGTH, BufferVector, Claim, FrameHeader
from container.transport.transport_seam cimport SnapshotWriter
from container.transport.streams cimport Publication

cdef enum:
    MESSAGE = 1
    TIMER = 2
    OPEN = 3
    CLOSE = 4
    TERM = 5
    NO_SESSION = -1

cdef tuple _NAMES = ("nothing", "session message", "timer", "session open", "session close", "leadership term")


cdef class ObservedService(ServiceHandler):
    """Hands each callback on to ``inner``, after comparing it with the next entry of ``expected``.

    An entry is ``(log position, kind, id, timestamp, payload)``; kinds are 1 message, 2 timer, 3 session open,
    4 session close, 5 leadership term. ``index`` is the next entry. A difference goes to ``on_finding(text)``. After
    each ``probe_every`` events ``on_state(log position)`` is called. ``role`` and ``has_terminated`` are what
    ``on_role_change`` and ``on_terminate`` said last.

    Where ``expected`` grows elsewhere, ``on_behind()`` is called before an event counts as not logged or not committed:
    it brings ``expected`` and ``limit`` up to date. Such a service begins behind the log position of its start, and
    not at ``index``.
    """

    def __init__(self, ServiceHandler inner not None, list expected not None, *, on_finding, on_state,
                 on_behind=None, Py_ssize_t index=0, int64_t position=0, int64_t probe_every=0):
        self.inner = inner
        self.expected = expected
        self.index = index
        self.position = self.limit = position
        self.probe_every = probe_every
        self._on_finding = on_finding
        self._on_state = on_state
        self._on_behind = on_behind

    def switch_off(self):
        """The process of the service has ended: what still unwinds in it is not observed."""
        self._is_off = True

    def state(self):
        """The messages of a snapshot of the service, as it would write it now (tuple of bytes)."""
        cdef StateWriter writer = StateWriter.__new__(StateWriter)
        cdef StatePublication publication = StatePublication.__new__(StatePublication)
        cdef SnapshotPublication snapshot
        publication.messages = []
        publication.max_message_length = MAX_MESSAGE_LENGTH
        publication.max_payload_length = MAX_MESSAGE_LENGTH
        publication.term_buffer_length = 8 * MAX_MESSAGE_LENGTH
        publication.channel = "aeron:ipc?alias=state"
        writer.publication = publication
        snapshot = SnapshotPublication(writer, self._cluster)
        try:
            self.inner.on_take_snapshot(snapshot)
        finally:
            snapshot._end()
        return tuple(publication.messages)

    cdef int _find(self, str text) except -1:
        if not self._is_off:
            self._on_finding(text)
        return 0

    cdef tuple _next(self, int64_t position, str what):
        if self._is_off:
            return None
        if self._on_behind is not None and (position > self.limit or self.index >= len(self.expected)):
            self._on_behind()
        if position > self.limit:
            self._find(f"the service has the {what} at log position {position}, and only {self.limit} is committed")
        if self.index >= len(self.expected):
            self._find(f"the service has a {what} at log position {position}, where nothing was logged")
            return None
        return <tuple> self.expected[self.index]

    cdef int _begin(self, int64_t position, int kind, int64_t event_id, int64_t timestamp, const uint8_t* data,
                    size_t length) except -1:
        cdef str what = <str> _NAMES[kind]
        cdef tuple entry = self._next(position, what)
        cdef bytes payload
        if entry is None:
            return 0
        payload = <bytes> entry[4]
        if (position != <int64_t> entry[0] or kind != <int> entry[1] or event_id != <int64_t> entry[2]
                or timestamp != <int64_t> entry[3] or length != <size_t> len(payload)
                or memcmp(data, <const char*> payload, length) != 0):
            self._find(_difference(entry, (position, kind, event_id, timestamp, (<const char*> data)[:length])))
        self.index += 1
        self.position = position
        return 0

    cdef int _check_cluster(self, int64_t position, int64_t timestamp) except -1:
        cdef int64_t shown_position = self._cluster.get_log_position()
        cdef int64_t shown_time = self._cluster.get_cluster_time()
        if shown_position != position or shown_time != timestamp:
            self._find(f"the cluster shows log position {shown_position} and time {shown_time} in the event at log "
                       f"position {position} and time {timestamp}")
        return 0

    cdef int _end(self) except -1:
        if self.probe_every > 0 and self.index % self.probe_every == 0 and not self._is_off:
            self._on_state(self.position)
        return 0

    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1:
        self._cluster = cluster
        if self._on_behind is not None:
            self.limit = cluster.get_log_position()
            self.index = bisect_right(self.expected, self.limit, key=_position_of)
            self.position = <int64_t> self.expected[self.index - 1][0] if self.index > 0 else 0
        self.inner.on_start(cluster, snapshot_image)
        if self.probe_every > 0 and not self._is_off:
            self._on_state(self.position)
        return 0

    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1:
        self._begin(self._cluster.get_log_position(), OPEN, session.id, timestamp,
                    <const uint8_t*> <const char*> session.encoded_principal, len(session.encoded_principal))
        self._check_cluster(self.position, timestamp)
        self.inner.on_session_open(session, timestamp)
        return self._end()

    cdef int on_session_close(
            self, ContainerClientSession session, int64_t timestamp, int32_t close_reason) except? -1:
        cdef uint8_t reason = <uint8_t> close_reason
        self._begin(self._cluster.get_log_position(), CLOSE, session.id, timestamp, &reason, 1)
        self._check_cluster(self.position, timestamp)
        self.inner.on_session_close(session, timestamp, close_reason)
        return self._end()

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        self._begin(header.position, MESSAGE, NO_SESSION if session is None else session.id, timestamp, data, length)
        self._check_cluster(header.position, timestamp)
        self.inner.on_session_message(session, timestamp, data, length, header)
        return self._end()

    cdef bint takes_batches(self) noexcept:
        return self.inner.takes_batches()

    cdef int on_session_messages(self, SessionMessages messages) except? -1:
        cdef Py_ssize_t index
        cdef Py_ssize_t first = self.index
        cdef int64_t begin, end
        for index in range(messages._count):
            begin = messages._offsets._data[index]
            end = messages._offsets._data[index + 1]
            session = messages._sessions[index]
            self._begin(
                messages._positions._data[index], MESSAGE,
                NO_SESSION if session is None else messages._session_ids._data[index],
                messages._timestamps._data[index], messages._payloads._data + begin, <size_t> (end - begin))
        try:
            self.inner.on_session_messages(messages)
        except BaseException:
            if 0 <= messages._current < messages._count:    # the messages behind it come again
                self.index = first + messages._current + 1
            raise
        return self._end()

    cdef int on_timer_event(self, int64_t correlation_id, int64_t timestamp) except? -1:
        self._begin(self._cluster.get_log_position(), TIMER, correlation_id, timestamp, NULL, 0)
        self._check_cluster(self.position, timestamp)
        self.inner.on_timer_event(correlation_id, timestamp)
        return self._end()

    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1:
        if self._on_behind is not None and self.probe_every > 0 and not self._is_off:
            self._on_state(self.position)  # whoever starts from it must have the same
        return self.inner.on_take_snapshot(snapshot_publication)

    cdef int on_role_change(self, int32_t new_role) except? -1:
        if new_role == self.role or new_role != self._cluster.get_role():
            self._find(f"on_role_change gets the role {new_role}: before it was {self.role}, and the cluster has "
                       f"{self._cluster.get_role()}")
        self.role = new_role
        return self.inner.on_role_change(new_role)

    cdef int on_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except? -1:
        self._begin(log_position, TERM, leadership_term_id, timestamp, NULL, 0)
        self._check_cluster(log_position, timestamp)
        self.inner.on_new_leadership_term_event(
            leadership_term_id, log_position, timestamp, term_base_log_position, leader_member_id, log_session_id,
            time_unit, app_version)
        return self._end()

    cdef int on_terminate(self, Cluster cluster) except? -1:
        if self.has_terminated:
            self._find("the service is terminated twice")
        self.has_terminated = True
        return self.inner.on_terminate(cluster)

    cdef int do_background_work(self, int64_t now_ns) except? -1:
        return self.inner.do_background_work(now_ns)


def _position_of(entry):
    return entry[0]


def _difference(expected, found):
    payloads = (shown(expected[4]),) * 2 if expected[4] == found[4] else shown_apart(expected[4], found[4])
    return f"expected {_described(expected, payloads[0])}; the service has {_described(found, payloads[1])}"


def _described(entry, payload):
    position, kind, event_id, timestamp, _ = entry
    return f"{_NAMES[kind]} {event_id} at log position {position}, cluster time {timestamp}, payload {payload}"


cdef class StatePublication(Publication):
    """Collects the messages of a snapshot."""

    cdef bint is_connected(self) noexcept:
        return True

    cdef bint is_closed(self) noexcept:
        return False

    cdef int64_t position(self) noexcept:
        return self._position

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        if length > <size_t> self.max_message_length:
            raise MessageTooLongError(f"message of {length} bytes: max_message_length is {self.max_message_length}")
        self.messages.append((<const char*> buffer)[:length])
        self._position += <int64_t> length + 1
        return self._position

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        cdef size_t index
        cdef bytes message = b""
        for index in range(count):
            message += (<const char*> vectors[index].data)[:vectors[index].length]
        return self.offer(<const uint8_t*> <const char*> message, len(message))

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        raise MessageTooLongError("a snapshot takes no claims: send its messages")

    cdef int commit(self, Claim* claim) except -1:
        return 0

    cdef int abort(self, Claim* claim) except -1:
        return 0

    cpdef int close(self) except -1:
        return 0


cdef class StateWriter(SnapshotWriter):
    """The store's side of a look at the state: everything is recorded immediately."""

    cdef int check(self) except -1:
        return 0

    cdef int64_t recorded_position(self) except? -1:
        return self.publication.position()

    cdef bint is_complete(self) except -1:
        return True

    cpdef int close(self) except -1:
        return 0


seal((ObservedService,))
hide((StatePublication, StateWriter))
