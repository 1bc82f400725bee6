"""One client session as the service sees it, and the sessions of a member in the order of their ids.

The egress publication is a shared one on the channel exactly as it was logged: the consensus module, another process,
writes its session events into the same log buffer. On a member that does not lead, an offer is a mocked success.
"""
cimport cython
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from container.buffer_vectors cimport (
    BorrowedBuffer, BufferVectors, borrow_buffer, gather_vectors, release_buffer, release_vectors,
)
from container.cluster cimport Cluster
from container.message_buffer cimport BufferClaim
from container.transport cimport (
    ADMIN_ACTION, BACK_PRESSURED, NOT_CONNECTED, BufferVector, Client, Publication,
)

cdef enum:
    SEND_TIMEOUT_NS = 1_000_000_000         # the longest that one send() holds up the service


# Not bound: CPython calls such a method without a detour.
@cython.binding(False)
cdef class ContainerClientSession:
    """A client's session (upstream's ClientSession); see :class:`container.api.ClientSession` for its contract."""

    def __init__(self, Cluster cluster not None, int64_t cluster_session_id, int32_t response_stream_id,
                 str response_channel not None, bytes encoded_principal not None):
        self._cluster = cluster
        self.id = cluster_session_id
        self.response_stream_id = response_stream_id
        self.response_channel = response_channel
        self.encoded_principal = encoded_principal
        self.is_closing = False
        self._connect_deadline_ns = 0
        self._is_stuck = False

    cdef int _connect(self, Client client, int64_t now_ns) except -1:
        if self._publication is None:
            self._publication = client.add_publication(self.response_channel, self.response_stream_id)
            self._connect_deadline_ns = now_ns + SEND_TIMEOUT_NS
            self._is_stuck = False
        return 0

    cdef void _mark_closing(self, bint is_closing) noexcept:
        self.is_closing = is_closing

    cdef Publication _take_publication(self):
        cdef Publication publication = self._publication
        self._publication = None
        return publication

    cdef int64_t offer_vectors(self, BufferVector* vectors, size_t count) except? -6:
        return self._cluster.session_offer(self, vectors, count)

    cdef int64_t offer_bytes(self, const uint8_t* data, size_t length) except? -6:
        cdef BufferVector vectors[2]
        vectors[1].data = <uint8_t*> data
        vectors[1].length = length
        return self._cluster.session_offer(self, vectors, 2)

    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6:
        cdef BufferVector vectors[2]
        vectors[1].data = <uint8_t*> data
        vectors[1].length = length
        return self.send_vectors(vectors, 2)

    cdef int64_t send_vectors(self, BufferVector* vectors, size_t count) except? -6:
        cdef int64_t result = self._cluster.session_offer(self, vectors, count)
        if result <= 0:
            return result if self._is_stuck else self._send_again(vectors, count, result)
        if self._is_stuck:
            self._is_stuck = False
        return result

    cdef int64_t _send_again(self, BufferVector* vectors, size_t count, int64_t result) except? -6:
        cdef int64_t now_ns = self._cluster.now_ns()
        cdef int64_t deadline_ns = now_ns + SEND_TIMEOUT_NS
        while result <= 0:
            if result == BACK_PRESSURED:
                if now_ns >= deadline_ns:
                    self._is_stuck = True
                    return result
            elif result == NOT_CONNECTED:
                if now_ns >= self._connect_deadline_ns or self._publication is None:
                    return result
            elif result != ADMIN_ACTION:
                return result
            self._cluster.idle_once(0)
            result = self.offer_vectors(vectors, count)
            now_ns = self._cluster.now_ns()
        return result

    cdef int64_t _offer(self, BufferVector* vectors, size_t count, bint is_patient) except? -6:
        return self.send_vectors(vectors, count) if is_patient else self.offer_vectors(vectors, count)

    cdef int64_t _offer_all(self, tuple buffers, bint is_patient) except? -6:
        cdef BufferVectors gathered
        gather_vectors(&gathered, buffers)
        try:
            return self._offer(gathered.vectors, <size_t> gathered.count + 1, is_patient)
        finally:
            release_vectors(&gathered)

    cdef int64_t _offer_one(self, object buffer, bint is_patient) except? -6:
        cdef BufferVector vectors[2]
        cdef BorrowedBuffer borrowed
        borrow_buffer(buffer, &vectors[1], &borrowed)
        if not borrowed.is_view:
            return self._offer(vectors, 2, is_patient)
        try:
            return self._offer(vectors, 2, is_patient)
        finally:
            release_buffer(&borrowed)

    # One parameter of its own for the first buffer: with *buffers alone each call would make a tuple.

    def offer(self, buffer=b"", /, *more):
        """Tries once to send a message to the client; see :meth:`container.api.ClientSession.offer`."""
        return self._offer_all((buffer, *more), False) if more else self._offer_one(buffer, False)

    def send(self, buffer=b"", /, *more):
        """Sends a message, waiting out back pressure; see :meth:`container.api.ClientSession.send`."""
        return self._offer_all((buffer, *more), True) if more else self._offer_one(buffer, True)

    def try_claim(self, Py_ssize_t length, BufferClaim buffer_claim not None):
        """Claims a range of the egress stream; see :meth:`container.api.ClientSession.try_claim`."""
        return self._cluster.session_try_claim(self, self._publication, length, buffer_claim)

    def close(self):
        """Asks the cluster to close this session; see :meth:`container.api.ClientSession.close`."""
        self._cluster.close_session(self)

    @property
    def is_connected(self):
        """True when this member can send to the client now (bool)."""
        return self._publication is not None and bool(self._publication.is_connected())

    def __repr__(self):
        return (f"<ClientSession id={self.id} response_stream_id={self.response_stream_id} "
                f"response_channel={self.response_channel!r} is_closing={bool(self.is_closing)}>")


cdef class ClientSessions:
    """The open sessions, found by binary search with no Python object per look-up, and told in upstream's order.

    That order is ascending, but a session whose id is below all others comes last (ClusteredServiceAgent.addSession).
    Ids are given when clients ask, and sessions open when they are connected, so it does happen. Services see the
    order, and snapshots show it: it must be the same on members that run Java's container.
    """

    def __cinit__(self):
        self._sessions = []
        self._told = []
        self._ids = NULL
        self._capacity = 0

    def __dealloc__(self):
        free(self._ids)

    cdef Py_ssize_t _index_of(self, int64_t cluster_session_id) noexcept:
        cdef Py_ssize_t count = len(self._sessions)
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = count
        cdef Py_ssize_t middle
        cdef uint64_t distance
        if count == 0 or cluster_session_id < self._ids[0]:
            return -1
        if self._ids[count - 1] < cluster_session_id:
            return -count - 1
        # Ids are given one after the other, so that few numbers are missing: an id has at most as many ids before
        # it, or behind it, as there are numbers between it and the first, or the last. Where both say the same
        # place, no number is missing, or it is the first: the id is there, and its memory need not be touched.
        distance = <uint64_t> cluster_session_id - <uint64_t> self._ids[0]
        if distance < <uint64_t> count:
            high = <Py_ssize_t> distance
        distance = <uint64_t> self._ids[count - 1] - <uint64_t> cluster_session_id
        if distance < <uint64_t> count:
            low = count - 1 - <Py_ssize_t> distance
        if low == high:
            return low
        while low < high:
            middle = (low + high) >> 1
            if self._ids[middle] < cluster_session_id:
                low = middle + 1
            else:
                high = middle
        return low if low < count and self._ids[low] == cluster_session_id else -low - 1

    cdef ContainerClientSession _find(self, int64_t cluster_session_id):
        cdef Py_ssize_t index = self._index_of(cluster_session_id)
        if index < 0:
            return None
        self._last = <ContainerClientSession> PyList_GET_ITEM(self._sessions, index)
        return self._last

    cdef int add(self, ContainerClientSession session) except -1:
        cdef Py_ssize_t count = len(self._sessions)
        cdef Py_ssize_t index = self._index_of(session.id)
        cdef Py_ssize_t capacity = self._capacity
        cdef void* grown
        if index >= 0:
            raise KeyError(session.id)
        index = -index - 1
        if count == capacity:
            capacity = 64 if capacity == 0 else 2 * capacity
            grown = realloc(self._ids, capacity * sizeof(int64_t))
            if grown == NULL:
                raise MemoryError(f"no memory for {capacity} sessions")
            self._ids = <int64_t*> grown
            self._capacity = capacity
        self._sessions.insert(index, session)
        memmove(self._ids + index + 1, self._ids + index, (count - index) * sizeof(int64_t))
        self._ids[index] = session.id
        return self._tell(session)

    cdef int _tell(self, ContainerClientSession session) except -1:
        cdef Py_ssize_t count = len(self._told)
        cdef Py_ssize_t index = count
        while index > 0 and (<ContainerClientSession> self._told[index - 1]).id > session.id:
            index -= 1
        self._told.insert(index if index > 0 else count, session)
        return 0

    cdef ContainerClientSession remove(self, int64_t cluster_session_id):
        cdef Py_ssize_t index = self._index_of(cluster_session_id)
        cdef ContainerClientSession session
        if index < 0:
            return None
        session = self._sessions.pop(index)
        self._told.remove(session)
        memmove(self._ids + index, self._ids + index + 1, (len(self._sessions) - index) * sizeof(int64_t))
        self._last = None
        return session

    def __len__(self):
        return len(self._sessions)

    def __iter__(self):
        return iter(list(self._told))
