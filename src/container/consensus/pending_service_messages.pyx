"""Messages that a service has offered and that are not in the log yet.

Each member hears its own services' messages and gives them consecutive ids, the same on all members, as services are
deterministic. The leader appends them. All members drop a message that comes back with the log, or is committed. So
after a change of leader the new one continues where the log ends, and no message is in it twice.

A message is kept with the header that it has in a snapshot: its timestamp is the position behind it in the log, or the
greatest int64 while it is not appended. No call makes an object for a message. One thread at a time uses a tracker.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from container.codecs.cluster cimport (
    SESSION_MESSAGE_HEADER_CLUSTER_SESSION_ID_OFFSET, SESSION_MESSAGE_HEADER_ENCODED_LENGTH,
    SESSION_MESSAGE_HEADER_TIMESTAMP_OFFSET, SessionMessageHeader, session_message_header_encode,
    session_message_header_put_timestamp, session_message_header_wrap,
)
from container.codecs.sbe cimport SBE_OK, sbe_error_text, sbe_get_int64
from container.common.sealed cimport seal
from container.errors import Category, ClusterError, ConfigurationError

cdef enum:
    RECORD_HEADER_LENGTH = 8            # the bytes of the message behind it
    RECORD_ALIGNMENT = 8
    FIRST_CAPACITY = 4096
    KEPT_CAPACITY = 1 << 20             # an empty tracker gives more memory than this back
    MAX_CAPACITY = 1 << 30              # upstream's
    MAX_SERVICE_ID = 127                # 7 bits of a session id
    NO_TERM = -1                        # the log publisher writes the term's id, and nobody reads this one


cpdef int service_id_from_log_message(int64_t cluster_session_id) noexcept:
    """The service that a message in the log, or in a snapshot, comes from."""
    return <int> (<uint64_t> cluster_session_id >> 56) & 0x7F


cpdef int service_id_from_service_message(int64_t cluster_session_id) noexcept:
    """The service that a message on the way to the consensus module comes from: it gives its id as session id."""
    return <int32_t> cluster_session_id


cpdef int64_t service_session_id(int service_id, int64_t session_id) noexcept:
    return <int64_t> (<uint64_t> service_id << 56) | session_id


cdef class MessageAppender:
    """Where messages go: the log."""

    cdef int64_t append_message(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except? -6:
        raise TypeError(f"{type(self).__name__} does not implement append_message()")


cdef class PendingMessageSnapshot:
    """Where a snapshot's messages go."""

    cdef int on_message(self, const uint8_t* message, size_t length) except -1:
        raise TypeError(f"{type(self).__name__} does not implement on_message()")


cdef inline int64_t _record_length(int64_t message_length) noexcept:
    return (RECORD_HEADER_LENGTH + message_length + RECORD_ALIGNMENT - 1) & ~<int64_t> (RECORD_ALIGNMENT - 1)


cdef inline int64_t _message_length(const uint8_t* record) noexcept:
    return (<const int64_t*> record)[0]


cdef inline uint8_t* _message(uint8_t* record) noexcept:
    return record + RECORD_HEADER_LENGTH


cdef inline int64_t _session_id(uint8_t* record) noexcept:
    return sbe_get_int64(_message(record) + SESSION_MESSAGE_HEADER_CLUSTER_SESSION_ID_OFFSET)


cdef inline int64_t _position(uint8_t* record) noexcept:
    return sbe_get_int64(_message(record) + SESSION_MESSAGE_HEADER_TIMESTAMP_OFFSET)


cdef class PendingServiceMessageTracker:
    """The pending messages of one service.

    ``max_capacity`` bounds the bytes of pending messages; the memory may be twice as much.
    """

    def __cinit__(self):
        self._records = NULL
        self._capacity = 0
        self._head = 0
        self._unsent = 0
        self._tail = 0
        self._is_busy = False

    def __init__(self, int64_t service_id, int64_t max_capacity=MAX_CAPACITY):
        if not 0 <= service_id <= MAX_SERVICE_ID:
            raise ConfigurationError(f"service id {service_id}: give one of 0 to {MAX_SERVICE_ID}")
        if not 0 < max_capacity <= MAX_CAPACITY:
            raise ConfigurationError(
                f"capacity {max_capacity} for pending service messages: give 1 to {MAX_CAPACITY} bytes")
        self.service_id = <int> service_id
        self.max_capacity = max_capacity
        self.log_service_session_id = service_session_id(self.service_id, INT64_MIN)
        self.next_service_session_id = self.log_service_session_id + 1

    def __dealloc__(self):
        free(self._records)

    cdef bint enqueue(self, const uint8_t* payload, size_t length) except -1:
        """Give a service's message its id, and keep it; False when it is in the log already.

        Raises ClusterError when there is no room. Then nothing has changed, and the message must not be taken from the
        service's stream: whichever comes next gets its id.
        """
        cdef int64_t session_id = self.next_service_session_id
        cdef uint8_t* message
        self._check_free()
        if session_id > self.log_service_session_id:
            message = self._reserve(length + SESSION_MESSAGE_HEADER_ENCODED_LENGTH)
            session_message_header_encode(
                message, SESSION_MESSAGE_HEADER_ENCODED_LENGTH, NO_TERM, session_id, INT64_MAX)
            if length > 0:
                memcpy(message + SESSION_MESSAGE_HEADER_ENCODED_LENGTH, payload, length)
        self.next_service_session_id = session_id + 1
        return session_id > self.log_service_session_id

    cdef int poll(self, MessageAppender appender) except -1:
        """Append messages in order, 20 at most, until one cannot be appended now."""
        cdef int appended = 0
        cdef int64_t position
        cdef uint8_t* record
        self._check_free()
        self._is_busy = True
        try:
            while appended < SERVICE_MESSAGE_LIMIT and self._unsent < self._tail:
                record = self._records + self._unsent
                position = appender.append_message(
                    _session_id(record),
                    _message(record) + SESSION_MESSAGE_HEADER_ENCODED_LENGTH,
                    <size_t> (_message_length(record) - SESSION_MESSAGE_HEADER_ENCODED_LENGTH))
                if position <= 0:
                    break
                session_message_header_put_timestamp(_message(record), position)
                self._unsent += _record_length(_message_length(record))
                appended += 1
        finally:
            self._is_busy = False
        return appended

    cpdef int sweep_leader(self, int64_t commit_position) except -1:
        """Drop the messages that this member appended, as leader, up to the commit position."""
        self._check_free()
        return self._sweep(commit_position)

    cdef int _sweep(self, int64_t commit_position) noexcept:
        while self._head < self._unsent and _position(self._records + self._head) <= commit_position:
            self.log_service_session_id = _session_id(self._records + self._head)
            self._drop_first()
        return 0

    cpdef int sweep_follower(self, int64_t cluster_session_id) except -1:
        """Drop the messages up to one that was read from the log; an id below the last one changes nothing."""
        self._check_free()
        self.log_service_session_id = max(self.log_service_session_id, cluster_session_id)
        while self._head < self._tail and _session_id(self._records + self._head) <= self.log_service_session_id:
            self._drop_first()
        return 0

    cpdef int restore_uncommitted(self, int64_t commit_position) except -1:
        """Take back what was appended behind the final commit position of a term: it is not in the log."""
        self._check_free()
        self._sweep(commit_position)
        self._forget_positions(self._unsent)
        return 0

    cpdef int load_state(
        self, int64_t next_service_session_id, int64_t log_service_session_id, int64_t capacity
    ) except -1:
        """Begin with a snapshot's state and no message. ``capacity`` is for upstream, which allocates as much."""
        self._check_free()
        if capacity < 0:
            raise ClusterError(
                f"snapshot has incorrect pending message capacity {capacity} for serviceId={self.service_id}: it is "
                "damaged; recover from an older one", category=Category.FATAL)
        self.next_service_session_id = next_service_session_id
        self.log_service_session_id = log_service_session_id
        self._head = self._unsent = self._tail = 0
        return 0

    cdef int load_message(self, const uint8_t* message, size_t length) except -1:
        """Add a message of a snapshot: a SessionMessageHeader and the payload."""
        cdef SessionMessageHeader header
        cdef int result = session_message_header_wrap(&header, message, length)
        self._check_free()
        if result != SBE_OK:
            raise ClusterError(
                f"snapshot has incorrect pending message: serviceId={self.service_id}: "
                f"{sbe_error_text(result).decode()}", category=Category.FATAL)
        memcpy(self._reserve(length), message, length)
        return 0

    cpdef int verify(self) except -1:
        """Check, after loading, that the messages' ids follow each other and the log's, and are before the next one."""
        cdef int64_t offset = self._head
        cdef uint64_t count = 0
        cdef int64_t session_id
        while offset < self._tail:
            count += 1
            session_id = _session_id(self._records + offset)
            # Unsigned, as a damaged id may be near the end of the numbers.
            if <uint64_t> session_id != <uint64_t> self.log_service_session_id + count:
                raise ClusterError(
                    f"snapshot has incorrect pending message: serviceId={self.service_id}"
                    f" nextServiceSessionId={self.next_service_session_id}"
                    f" logServiceSessionId={self.log_service_session_id}"
                    f" clusterSessionId={session_id} pendingMessageIndex={count}", category=Category.FATAL)
            offset += _record_length(_message_length(self._records + offset))
        if <uint64_t> self.next_service_session_id != <uint64_t> self.log_service_session_id + count + 1:
            raise ClusterError(
                f"snapshot has incorrect pending message state: serviceId={self.service_id}"
                f" nextServiceSessionId={self.next_service_session_id}"
                f" logServiceSessionId={self.log_service_session_id}"
                f" pendingMessageCount={count}", category=Category.FATAL)
        return 0

    cpdef int reset(self) except -1:
        """Regard no message as appended, after loading: positions in a snapshot are of a leader that is gone."""
        self._check_free()
        self._forget_positions(self._tail)
        return 0

    cpdef int64_t size(self) noexcept:
        return self._tail - self._head

    cpdef int64_t next_service_session_id_for_snapshot(self) noexcept:
        """The next id as a snapshot has it: that behind the log's last one where nothing is pending."""
        return self.next_service_session_id if self._head < self._tail else self.log_service_session_id + 1

    def missed_messages(self):
        """An error to report with a snapshot, when the log has messages that this member's service did not offer."""
        cdef int64_t missed = self.next_service_session_id_for_snapshot() - self.next_service_session_id
        if missed <= 0:
            return None
        return ClusterError(
            f"follower has missed {missed} service message(s): service {self.service_id} did not offer all that it "
            "offered on the leader; make what it does with Cluster.offer depend on the log alone")

    cdef int for_each(self, PendingMessageSnapshot snapshot) except -1:
        """Give all messages to ``snapshot``, in order."""
        cdef int64_t offset = self._head
        cdef uint8_t* record
        self._check_free()
        self._is_busy = True
        try:
            while offset < self._tail:
                record = self._records + offset
                snapshot.on_message(_message(record), <size_t> _message_length(record))
                offset += _record_length(_message_length(record))
        finally:
            self._is_busy = False
        return 0

    cdef int _check_free(self) except -1:
        if self._is_busy:
            raise ClusterError(
                f"the pending messages of service {self.service_id} are being handed out: change them after the call")
        return 0

    cdef uint8_t* _reserve(self, size_t length) except NULL:
        """Room for a message at the end; what is before may move to the front of the memory, or to other memory."""
        cdef int64_t size = self._tail - self._head
        cdef int64_t needed, capacity
        cdef void* grown
        if length > <size_t> self.max_capacity or size + _record_length(<int64_t> length) > self.max_capacity:
            raise ClusterError(
                f"pending service message buffer at capacity={self.max_capacity} for serviceId={self.service_id}: a "
                f"message of {length} bytes has no room beside {size} bytes; the service offers more than the log "
                "takes: let it offer less, or find out why no message is committed")
        needed = size + _record_length(<int64_t> length)
        if self._tail + _record_length(<int64_t> length) > self._capacity:
            if self._head > 0:
                memmove(self._records, self._records + self._head, <size_t> size)
                self._unsent -= self._head
                self._tail = size
                self._head = 0
            # Half of the memory is free after a move: so what moves is paid for by what went before.
            if needed > self._capacity // 2:
                capacity = max(<int64_t> FIRST_CAPACITY, self._capacity)
                while capacity < needed * 2 and capacity < 2 * self.max_capacity:
                    capacity *= 2
                capacity = min(capacity, max(<int64_t> FIRST_CAPACITY, 2 * self.max_capacity))
                grown = realloc(self._records, <size_t> capacity)
                if grown == NULL:
                    raise MemoryError(f"no memory for {needed} bytes of pending messages of service {self.service_id}")
                self._records = <uint8_t*> grown
                self._capacity = capacity
        grown = self._records + self._tail
        (<int64_t*> grown)[0] = <int64_t> length
        self._tail += _record_length(<int64_t> length)
        return <uint8_t*> grown + RECORD_HEADER_LENGTH

    cdef int _drop_first(self) noexcept:
        self._head += _record_length(_message_length(self._records + self._head))
        self._unsent = max(self._unsent, self._head)
        if self._head == self._tail:
            self._head = self._unsent = self._tail = 0
            if self._capacity > KEPT_CAPACITY:
                free(self._records)
                self._records = NULL
                self._capacity = 0
        return 0

    cdef int _forget_positions(self, int64_t end) noexcept:
        """Regard no message as appended; those behind ``end`` are not."""
        cdef int64_t offset = self._head
        while offset < end:
            session_message_header_put_timestamp(_message(self._records + offset), INT64_MAX)
            offset += _record_length(_message_length(self._records + offset))
        self._unsent = self._head
        return 0


seal((PendingServiceMessageTracker,))
