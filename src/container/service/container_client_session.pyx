"""One client session as the service sees it, and the sessions of a member in the order of their ids.

The egress publication is a shared one on the channel exactly as it was logged: the consensus module, another process,
writes its session events into the same log buffer. On a member that does not lead, an offer is a mocked success.
"""
cimport cython
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from container.common.channel_uri import ChannelUri
from container.common.quantities import SIZE_FACTORS
from container.common.sealed cimport seal
from container.errors import ConfigurationError
from container.service.event_handler cimport EventHandler
from container.transport.buffer_vectors cimport (
    BorrowedBuffer, BufferVectors, borrow_buffer, gather_vectors, release_buffer, release_vectors,
)
from container.transport.idle_strategy import parse_quantity
from container.transport.message_buffer cimport BufferClaim
from container.transport.frames cimport (
    ADMIN_ACTION, BACK_PRESSURED, FRAME_HEADER_LENGTH, MAX_MESSAGE_LENGTH, MTU_LENGTH_MAX, NOT_CONNECTED,
    TERM_LENGTH_MAX, TERM_LENGTH_MIN, BufferVector,
)
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication

cdef enum:
    SEND_TIMEOUT_NS = 1_000_000_000         # the longest that one send() waits
    SHARED_PATIENCE_NS = 30_000_000         # what all sends together may wait while several sessions are open
    SHARED_PATIENCE_REFILL = 10             # one part in 10 of the time that is not spent waiting
    LONE_PATIENCE_NS = 2_000_000_000        # the same while there is one session, which holds up nobody else
    LONE_PATIENCE_REFILL = 1
    MIN_PATIENCE_NS = 1_000_000             # a client that was waited for less than that is not backed off
    MIN_BACK_OFF_NS = 1_000_000_000
    MAX_BACK_OFF_NS = 32_000_000_000
    SESSION_HEADER_LENGTH = 32


cdef int64_t _size_of(object uri, str name, int64_t least, int64_t most) except -1:
    # The driver refuses anything else as a size, on every member.
    text = uri.get(name)
    size = None if text is None else parse_quantity(text, SIZE_FACTORS)
    return size if size is not None and least <= size <= most else most


cdef void refill(WaitBudget* budget, int64_t now_ns) noexcept:
    budget.remaining_ns = min(
        budget.capacity_ns, budget.remaining_ns + (now_ns - budget.counted_ns) // budget.refill)
    budget.counted_ns = now_ns


cdef class SendPatience:
    """How long sends may still wait for clients: a budget for all sessions together, refilled as time passes by.

    A client that does not read holds up all others, as one thread answers all. These decisions affect only egress,
    which only a leader sends: nothing of the replicated state may depend on it.
    """

    def __cinit__(self):
        self._shared = WaitBudget(SHARED_PATIENCE_NS, SHARED_PATIENCE_NS, SHARED_PATIENCE_REFILL, 0)
        self._lone = WaitBudget(LONE_PATIENCE_NS, LONE_PATIENCE_NS, LONE_PATIENCE_REFILL, 0)

    cdef WaitBudget* refilled(self, int64_t now_ns) noexcept:
        cdef WaitBudget* budget = &self._lone if self.session_count <= 1 else &self._shared
        refill(budget, now_ns)
        return budget


# Not bound: CPython calls such a method without a detour.
@cython.binding(False)
cdef class ContainerClientSession:
    """A client's session (upstream's ClientSession); see :class:`container.api.ClientSession` for its contract."""

    def __init__(self, EventHandler cluster not None, int64_t cluster_session_id, int32_t response_stream_id,
                 str response_channel not None, bytes encoded_principal not None):
        self._cluster = cluster
        self.id = cluster_session_id
        self.response_stream_id = response_stream_id
        self.response_channel = response_channel
        self.encoded_principal = encoded_principal
        self.is_closing = False
        self._connect_deadline_ns = 0
        self._patient_from_ns = 0
        self._back_off_ns = 0
        self._set_limits()

    cdef int _set_limits(self) except -1:
        # The channel is in the log. Where it has neither size, each member's driver has defaults of its own.
        cdef int64_t term_length = TERM_LENGTH_MAX
        cdef int64_t mtu_length = MTU_LENGTH_MAX
        if "term-length=" in self.response_channel or "mtu=" in self.response_channel:
            try:
                uri = ChannelUri.parse(self.response_channel)
            except ConfigurationError:
                pass                            # no driver takes it
            else:
                term_length = _size_of(uri, "term-length", TERM_LENGTH_MIN, TERM_LENGTH_MAX)
                mtu_length = _size_of(uri, "mtu", FRAME_HEADER_LENGTH + SESSION_HEADER_LENGTH, MTU_LENGTH_MAX)
        self._max_length = <size_t> (min(term_length // 8, <int64_t> MAX_MESSAGE_LENGTH) - SESSION_HEADER_LENGTH)
        self._max_claim_length = <Py_ssize_t> (mtu_length - FRAME_HEADER_LENGTH - SESSION_HEADER_LENGTH)
        return 0

    cdef void _begin_connecting(self, int64_t now_ns) noexcept:
        self._is_connecting = self._publication is None
        self._connect_deadline_ns = now_ns + SEND_TIMEOUT_NS
        self._patient_from_ns = 0
        self._back_off_ns = 0

    cdef bint _is_connected(self, Client client, int64_t now_ns) except -1:
        if not self._is_connecting:
            return True
        try:
            if self._pending is None:
                self._pending = client.begin_add_publication(self.response_channel, self.response_stream_id, False)
            self._publication = self._pending.poll()
        except BaseException:
            self._pending = None
            self._is_connecting = False
            raise
        if self._publication is None:
            return False
        self._pending = None
        self._begin_connecting(now_ns)
        return True

    cdef void _mark_closing(self, bint is_closing) noexcept:
        self.is_closing = is_closing

    cdef PendingAdd _take_pending(self):
        cdef PendingAdd pending = self._pending
        self._pending = None
        self._is_connecting = False
        return pending

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
        return result if result > 0 else self._send_again(vectors, count, result)

    cdef int64_t _send_again(self, BufferVector* vectors, size_t count, int64_t result) except? -6:
        cdef int64_t begin_ns, now_ns, end_ns
        cdef WaitBudget* budget
        if result == ADMIN_ACTION:              # the log rotates its terms: the next try does not wait
            result = self.offer_vectors(vectors, count)
        begin_ns = now_ns = self._cluster.now_ns()
        if not self._is_worth_waiting(result, now_ns) or now_ns < self._patient_from_ns:
            return result
        budget = self._patience.refilled(now_ns)
        end_ns = now_ns + min(budget.remaining_ns, <int64_t> SEND_TIMEOUT_NS)
        self._cluster.idle_once(1)              # begins with the shortest idling
        try:
            while now_ns < end_ns and self._is_worth_waiting(result, now_ns):
                self._cluster.idle_once(0)
                now_ns = self._cluster.now_ns()
                result = self.offer_vectors(vectors, count)
        finally:
            now_ns = self._cluster.now_ns()
            # Not below what refills soon: background work may have taken most of it, and clients have no part in that.
            budget.remaining_ns = max(budget.remaining_ns - (now_ns - begin_ns), <int64_t> -SHARED_PATIENCE_NS)
            budget.counted_ns = now_ns
        if self._is_worth_waiting(result, now_ns) and now_ns - begin_ns >= MIN_PATIENCE_NS:
            self._back_off(begin_ns, now_ns)
        return result

    cdef bint _is_worth_waiting(self, int64_t result, int64_t now_ns) noexcept:
        if self._patience is None or (self._publication is None and not self._is_connecting):
            return False
        if result == NOT_CONNECTED:
            return now_ns < self._connect_deadline_ns
        return result == BACK_PRESSURED or result == ADMIN_ACTION

    cdef void _back_off(self, int64_t begin_ns, int64_t now_ns) noexcept:
        # Time alone ends it: one accepted message does not show that a client reads again.
        if self._back_off_ns == 0 or begin_ns - self._patient_from_ns >= self._back_off_ns:
            self._back_off_ns = MIN_BACK_OFF_NS
        else:
            self._back_off_ns = min(2 * self._back_off_ns, <int64_t> MAX_BACK_OFF_NS)
        self._patient_from_ns = now_ns + self._back_off_ns

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
        """Try once to send a message to the client; see :meth:`container.api.ClientSession.offer`."""
        return self._offer_all((buffer, *more), False) if more else self._offer_one(buffer, False)

    def send(self, buffer=b"", /, *more):
        """Send a message, waiting a little for a slow client; see :meth:`container.api.ClientSession.send`."""
        return self._offer_all((buffer, *more), True) if more else self._offer_one(buffer, True)

    def try_claim(self, Py_ssize_t length, BufferClaim buffer_claim not None):
        """Claim a range of the egress stream; see :meth:`container.api.ClientSession.try_claim`."""
        return self._cluster.session_try_claim(self, self._publication, length, buffer_claim)

    def close(self):
        """Ask the cluster to close this session; see :meth:`container.api.ClientSession.close`."""
        self._cluster.close_session(self)

    @property
    def is_connected(self):
        """True when this member can send to the client now (bool). It waits as an offer does, if that may wait."""
        if self._is_connecting:
            self._cluster.await_egress(self)
        return self._publication is not None and bool(self._publication.is_connected())

    def __repr__(self):
        return (f"<ClientSession id={self.id} response_stream_id={self.response_stream_id} "
                f"response_channel={self.response_channel!r} is_closing={bool(self.is_closing)}>")


cdef class ClientSessions:
    """The open sessions, found by binary search with no Python object per look-up, and listed in upstream's order.

    That order is ascending, but a session whose id is below all others comes last (ClusteredServiceAgent.addSession).
    Ids are given when clients ask, and sessions open when they are connected, so it does happen. Services see the
    order, and snapshots show it: it must be the same on members that run Java's container.
    """

    def __cinit__(self):
        self._sessions = []
        self._told = []
        self._ids = NULL
        self._capacity = 0
        self._patience = SendPatience()

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
        session._patience = self._patience
        self._patience.session_count = count + 1
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
        self._patience.session_count = len(self._sessions)
        return session

    def __len__(self):
        return len(self._sessions)

    def __iter__(self):
        return iter(list(self._told))


seal((SendPatience, ContainerClientSession, ClientSessions))
