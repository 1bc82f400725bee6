"""The seam over recordings: what an agent sees in place of a driver when it is run over a log that was recorded.

The log comes from the recording's files, snapshots are read from theirs, and what the service sends becomes rows. No
file is written, no clock is read, nothing waits: what happens depends on the recording and the service alone.
"""
from hashlib import sha256

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.aeron_defaults import (
    CONSENSUS_MODULE_STREAM_ID, CONTROL_CHANNEL, SERVICE_STREAM_ID, CounterType,
)
from container.common.sealed cimport hide, seal
from container.recordings.columns cimport ColumnBatch, Columns, end_row, is_full, put_bytes, put_int32, put_int64
from container.recordings.fields cimport put_text
from container.recordings.frame_reader cimport READ_END
from container.recordings.message_reader cimport MessageReader
from container.service.cluster cimport Cluster
from container.service.service_handler cimport ServiceHandler
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.memory_counters cimport CounterBuffers, MemoryCounters
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_BREAK, FRAME_FLAGS_UNFRAGMENTED, FRAME_HEADER_LENGTH, NULL_VALUE, BufferVector, Claim,
    FrameHeader, begin_claim,
)
from container.transport.transport_seam cimport (
    Client, ClientListener, MarkFile, SnapshotReader, SnapshotStore, SnapshotWriter,
)
from container.transport.streams cimport FragmentHandler, Image, PendingAdd, Publication, Subscription

cdef enum:
    BATCH_BYTES = 16 * 1024 * 1024
    MESSAGE_LENGTH_MAX = 16 * 1024 * 1024
    TICK_NS = 2_000_000                     # more than an agent's slow tick
    COUNTERS_CAPACITY = 8
    CLIENT_ID = 1
    CONTROL_REGISTRATION_ID = 2
    SNAPSHOT_RECORDING_ID = 0
    TERM_BITS = 30

# Where a column lies in the batch.
cdef enum:
    KIND
    LOG_POSITION
    SEQUENCE
    TIMESTAMP
    CLUSTER_SESSION_ID
    CORRELATION_ID
    DEADLINE
    PAYLOAD
    STATE_HASH
    RECORDED_STATE_HASH
    ERROR


cdef class ReplayRows:
    """Collects what the service does as rows; ``columns`` (dict of str to str) are names and types, in their order.

    A batch ends at ``batch_rows`` rows (int) or 16 MiB. :attr:`cluster` must be the agent before anything is sent.
    """
    cdef ColumnBatch _batch
    cdef list _names
    cdef list _taken
    cdef Cluster _cluster
    cdef readonly int64_t hash_position     # of the last state hash, -1 while there is none
    cdef int64_t _sequence_position
    cdef int32_t _sequence
    cdef bint _is_closed

    def __init__(self, columns, int batch_rows):
        self._names = list(columns)
        self._batch = ColumnBatch(columns.values(), batch_rows, BATCH_BYTES)
        self._taken = []
        self.hash_position = NULL_VALUE
        self._sequence_position = NULL_VALUE

    def begin(self, Cluster cluster not None):
        """Take log position and cluster time of the rows from this agent."""
        self._cluster = cluster

    def close(self):
        """Drop whatever is still sent."""
        self._is_closed = True

    def take(self, bint is_end=False):
        """The full batches, at the end also the last one: a list of pairs of rows (int) and a dict of arrays."""
        cdef list taken
        if is_end and self._batch.columns.rows > 0:
            self._take_batch()
        taken = self._taken
        if taken:
            self._taken = []
        return taken

    def put_error(self, str kind not None, str text not None):
        """Add a row for an error, or a warning."""
        cdef bytes name = kind.encode("ascii")
        cdef bytes encoded = text.encode("utf-8", "replace")
        self._begin(name)
        put_bytes(&self._batch.columns, ERROR, <const uint8_t*> (<const char*> encoded), len(encoded))
        self._end()

    cdef int _take_batch(self) except -1:
        cdef int32_t rows = self._batch.columns.rows
        self._taken.append((rows, dict(zip(self._names, self._batch.take(), strict=True))))
        return 0

    cdef Columns* _begin(self, const char* kind) noexcept:
        cdef Columns* batch = &self._batch.columns
        cdef int64_t position = self._cluster.get_log_position()
        if position != self._sequence_position:
            self._sequence_position = position
            self._sequence = 0
        put_text(batch, KIND, kind)
        put_int64(batch, LOG_POSITION, position)
        put_int32(batch, SEQUENCE, self._sequence)
        put_int64(batch, TIMESTAMP, self._cluster.get_cluster_time())
        self._sequence += 1
        return batch

    cdef int _end(self) except -1:
        end_row(&self._batch.columns)
        return self._take_batch() if is_full(&self._batch.columns) else 0

    cdef int put_message(self, const uint8_t* data, size_t length, bint is_egress) except -1:
        """A session message header and payload: to a client, or to the cluster."""
        cdef codec.SessionMessageHeader header
        cdef Columns* batch
        if self._is_closed or codec.session_message_header_wrap(&header, data, length) < 0:
            return 0
        batch = self._begin("EGRESS" if is_egress else "SERVICE_MESSAGE")
        if is_egress:
            put_int64(batch, CLUSTER_SESSION_ID, codec.session_message_header_cluster_session_id(&header))
        put_bytes(batch, PAYLOAD, data + codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET,
                  <int64_t> length - codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET)
        return self._end()

    cdef int put_request(self, const uint8_t* data, size_t length) except -1:
        """Take a request of the service to the consensus module, other than an ack."""
        cdef sbe.MessageHeader header
        cdef codec.ScheduleTimer scheduled
        cdef codec.CancelTimer cancelled
        cdef codec.CloseSession closed
        cdef Columns* batch
        if self._is_closed or sbe.sbe_read_header(data, length, &header) < 0:
            return 0
        if header.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            return self.put_message(data, length, False)
        if header.template_id == codec.SCHEDULE_TIMER_TEMPLATE_ID:
            codec.schedule_timer_wrap(&scheduled, data, length)
            batch = self._begin("SCHEDULE_TIMER")
            put_int64(batch, CORRELATION_ID, codec.schedule_timer_correlation_id(&scheduled))
            put_int64(batch, DEADLINE, codec.schedule_timer_deadline(&scheduled))
        elif header.template_id == codec.CANCEL_TIMER_TEMPLATE_ID:
            codec.cancel_timer_wrap(&cancelled, data, length)
            batch = self._begin("CANCEL_TIMER")
            put_int64(batch, CORRELATION_ID, codec.cancel_timer_correlation_id(&cancelled))
        elif header.template_id == codec.CLOSE_SESSION_TEMPLATE_ID:
            codec.close_session_wrap(&closed, data, length)
            batch = self._begin("CLOSE_SESSION")
            put_int64(batch, CLUSTER_SESSION_ID, codec.close_session_cluster_session_id(&closed))
        else:
            return 0
        return self._end()

    cdef int put_state_hash(self, str state_hash, object recorded) except -1:
        cdef bytes text = state_hash.encode("ascii")
        cdef Columns* batch = self._begin("STATE_HASH")
        put_text(batch, STATE_HASH, text)
        if recorded is not None:
            text = recorded.encode("ascii")
            put_text(batch, RECORDED_STATE_HASH, text)
        self.hash_position = self._cluster.get_log_position()
        return self._end()


cdef class StateHash:
    """SHA-256 over the messages of a service's state, each behind its length (uint64, little-endian)."""
    cdef object _digest

    def __init__(self):
        self._digest = sha256()

    def update(self, bytes message not None):
        """Add the next message."""
        self.add(<const uint8_t*> (<const char*> message), <size_t> len(message))

    def hexdigest(self):
        """The hash of all messages so far (str, 64 hexadecimal digits)."""
        return self._digest.hexdigest()

    cdef int add(self, const uint8_t* data, size_t length) except -1:
        cdef int64_t prefix = <int64_t> length
        self._digest.update((<const char*> &prefix)[:8])
        self._digest.update((<const char*> data)[:length])
        return 0


# --- out


cdef inline int64_t _frame_length(int64_t length) noexcept nogil:
    return (FRAME_HEADER_LENGTH + length + 31) & ~(<int64_t> 31)


cdef class ReplayPublication(Publication):
    """Hands each message to :meth:`on_message`; it takes all at once, as a stream that is never full."""
    cdef bint _closed
    cdef int64_t _position
    cdef dict _claims               # memory of claims by address
    cdef uint8_t* _gathered
    cdef size_t _capacity

    def __cinit__(self):
        self._claims = {}
        self.max_payload_length = MESSAGE_LENGTH_MAX
        self.max_message_length = MESSAGE_LENGTH_MAX
        self.term_buffer_length = 8 * MESSAGE_LENGTH_MAX

    def __dealloc__(self):
        free(self._gathered)

    cdef int on_message(self, const uint8_t* data, size_t length) except -1:
        return 0

    cdef bint is_connected(self) noexcept:
        return not self._closed

    cdef bint is_closed(self) noexcept:
        return self._closed

    cdef int64_t position(self) noexcept:
        return self._position

    cdef int64_t _advance(self, size_t length) noexcept:
        self._position += _frame_length(<int64_t> length)
        return self._position

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        self.on_message(buffer, length)
        return self._advance(length)

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        cdef size_t length = 0
        cdef size_t index
        cdef void* grown
        for index in range(count):
            length += vectors[index].length
        if length > self._capacity:
            grown = realloc(self._gathered, length)
            if grown == NULL:
                raise MemoryError(f"no memory for a message of {length} bytes")
            self._gathered = <uint8_t*> grown
            self._capacity = length
        length = 0
        for index in range(count):
            if vectors[index].length > 0:
                memcpy(self._gathered + length, vectors[index].data, vectors[index].length)
            length += vectors[index].length
        return self.offer(self._gathered, length)

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        cdef bytearray memory = bytearray(FRAME_HEADER_LENGTH + length)
        cdef char* begin = memory
        claim.frame_header = <uint8_t*> begin
        claim.data = claim.frame_header + FRAME_HEADER_LENGTH
        claim.length = length
        (<int32_t*> begin)[0] = -<int32_t> (FRAME_HEADER_LENGTH + length)
        begin_claim(claim)
        self._claims[<size_t> begin] = memory
        return self._advance(length)

    cdef int commit(self, Claim* claim) except -1:
        # The memory lives for as long as its bytes are looked at.
        cdef bytearray _memory = self._claims.pop(<size_t> claim.frame_header)
        return self.on_message(claim.data, claim.length)

    cdef int abort(self, Claim* claim) except -1:
        del self._claims[<size_t> claim.frame_header]
        return 0

    cpdef int close(self) except -1:
        self._closed = True
        return 0


cdef class EgressPublication(ReplayPublication):
    """To a client."""
    cdef ReplayRows _rows

    cdef int on_message(self, const uint8_t* data, size_t length) except -1:
        return self._rows.put_message(data, length, True)


cdef class ControlPublication(ReplayPublication):
    """To the consensus module."""
    cdef ReplayRows _rows

    cdef int on_message(self, const uint8_t* data, size_t length) except -1:
        return self._rows.put_request(data, length)


cdef class StatePublication(ReplayPublication):
    """A snapshot that is hashed behind its end marker, where the service's own state begins."""
    cdef StateHash _hash            # None before the end marker
    cdef list _messages             # None when they are not kept

    cdef int on_message(self, const uint8_t* data, size_t length) except -1:
        cdef codec.SnapshotMarker marker
        if self._messages is not None:
            self._messages.append((<const char*> data)[:length])
        if self._hash is not None:
            return self._hash.add(data, length)
        if (codec.snapshot_marker_wrap(&marker, data, length) == sbe.SBE_OK
                and codec.snapshot_marker_mark(&marker) == codec.SNAPSHOT_MARK_END):
            self._hash = StateHash()
        return 0


# --- in


cdef class ReplayImage(Image):
    """The messages of a recording from ``begin`` to ``end`` (positions), each as if it had come in one frame."""
    cdef MessageReader _reader
    cdef FrameHeader _header
    cdef int64_t _position
    cdef int64_t _end
    cdef bint _is_log
    cdef bint _is_pending           # the reader's message ends behind the limit of the poll that read it
    cdef readonly bint is_drained   # the last poll came to its limit
    cdef bytes _injected
    cdef int64_t _injected_position

    def __init__(self, archive_dir, layout, *, int64_t begin, int64_t end, bint is_log):
        self._reader = MessageReader(archive_dir, **layout)
        self._reader.seek(begin)
        self._position = self.join_position = begin
        self._end = end
        self._is_log = is_log
        memset(&self._header, 0, sizeof(FrameHeader))
        self._header.flags = FRAME_FLAGS_UNFRAGMENTED
        self._header.stream_id = self._reader.stream_id
        self._header.initial_term_id = self._reader.initial_term_id
        self._header.position_bits_to_shift = (<int> self._reader.term_length).bit_length() - 1

    def inject(self, bytes message not None, int64_t position):
        """Have the next poll deliver a message that was not recorded, as one that ends at a log position."""
        self._injected = message
        self._injected_position = position
        self.is_drained = False

    def close(self):
        """Close the files."""
        self._reader.close()

    cdef int64_t position(self) noexcept:
        return self._position

    cdef int64_t end_of_stream_position(self) noexcept:
        return (<int64_t> 1 << 62) if self._is_log else self._end

    cdef bint is_end_of_stream(self) noexcept:
        return not self._is_log and self._position >= self._end

    cdef bint is_closed(self) noexcept:
        return False

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        return self._poll(handler, self._end, fragment_limit)

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        return self._poll(handler, min(limit_position, self._end), fragment_limit)

    cdef int _poll(self, FragmentHandler handler, int64_t limit, int fragment_limit) except -1:
        cdef MessageReader reader = self._reader
        cdef int fragments = 0
        cdef int result
        cdef int action
        self.is_drained = False
        if self._injected is not None:
            fragments += self._deliver_injected(handler)
        while fragments < fragment_limit:
            if not self._is_pending and reader.next_position < limit:
                result = reader.next_message(self._end, self._end)
                if result < 0:
                    raise reader.failure_error()
                self._is_pending = result != READ_END
            if not self._is_pending:
                self._position = max(self._position, limit)
                self.is_drained = True
                break
            if reader.log_position > limit:
                self.is_drained = True
                break
            self._is_pending = False
            self._position = reader.log_position
            self._fill_header(reader.begin_position, reader.log_position, reader.message_length)
            action = handler.on_fragment(reader.message, <size_t> reader.message_length, &self._header)
            if action == ACTION_ABORT:
                self._is_pending = True
                self._position = reader.begin_position
                break
            fragments += 1
            if action == ACTION_BREAK:
                break
        return fragments

    cdef int _deliver_injected(self, FragmentHandler handler) except -1:
        cdef bytes message = self._injected
        self._injected = None
        self._fill_header(self._injected_position, self._injected_position, len(message))
        handler.on_fragment(<const uint8_t*> (<const char*> message), <size_t> len(message), &self._header)
        return 1

    cdef void _fill_header(self, int64_t begin, int64_t position, int64_t length) noexcept:
        cdef uint32_t term_count = <uint32_t> (begin >> self._header.position_bits_to_shift)
        self._header.position = position
        self._header.term_offset = <int32_t> (begin & (self._reader.term_length - 1))
        self._header.term_id = <int32_t> (<uint32_t> self._header.initial_term_id + term_count)
        self._header.frame_length = <int32_t> (FRAME_HEADER_LENGTH + length)


cdef class MessagesImage(Image):
    """The messages (a sequence of bytes) of a snapshot that a service has just taken."""
    cdef tuple _messages
    cdef Py_ssize_t _index
    cdef int64_t _position
    cdef int64_t _end
    cdef FrameHeader _header

    def __init__(self, messages not None):
        self._messages = tuple(messages)
        self._end = sum([_frame_length(len(message)) for message in self._messages])
        memset(&self._header, 0, sizeof(FrameHeader))
        self._header.flags = FRAME_FLAGS_UNFRAGMENTED
        self._header.position_bits_to_shift = TERM_BITS

    def close(self):
        """There is nothing to close."""

    cdef int64_t position(self) noexcept:
        return self._position

    cdef int64_t end_of_stream_position(self) noexcept:
        return self._end

    cdef bint is_end_of_stream(self) noexcept:
        return self._position >= self._end

    cdef bint is_closed(self) noexcept:
        return False

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        cdef int fragments = 0
        cdef int action
        cdef int64_t begin
        cdef bytes message
        while fragments < fragment_limit and self._index < len(self._messages):
            message = <bytes> self._messages[self._index]
            begin = self._position
            self._index += 1
            self._position = begin + _frame_length(len(message))
            self._header.position = self._position
            self._header.term_offset = <int32_t> (begin & ((<int64_t> 1 << TERM_BITS) - 1))
            self._header.term_id = <int32_t> (begin >> TERM_BITS)
            self._header.frame_length = <int32_t> (FRAME_HEADER_LENGTH + len(message))
            action = handler.on_fragment(<const uint8_t*> (<const char*> message), <size_t> len(message), &self._header)
            if action == ACTION_ABORT:
                self._index -= 1
                self._position = begin
                break
            fragments += 1
            if action == ACTION_BREAK:
                break
        return fragments


cdef class LogSubscription(Subscription):
    """Has the log's image, whatever session is asked for."""
    cdef ReplayImage _image

    cdef Image image_by_session_id(self, int32_t session_id):
        return self._image

    cpdef int close(self) except -1:
        return 0


cdef class ControlSubscription(Subscription):
    """The messages of the consensus module: a single one, to join the log."""
    cdef bytes _message

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        cdef bytes message = self._message
        cdef FrameHeader header
        if message is None:
            return 0
        self._message = None
        memset(&header, 0, sizeof(FrameHeader))
        header.flags = FRAME_FLAGS_UNFRAGMENTED
        handler.on_fragment(<const uint8_t*> (<const char*> message), <size_t> len(message), &header)
        return 1

    cpdef int close(self) except -1:
        return 0


cdef class ReplaySnapshotWriter(SnapshotWriter):
    """Becomes a row when the service has written its state."""
    cdef ReplayRows _rows
    cdef object _recorded
    cdef object _on_taken

    cdef int check(self) except -1:
        return 0

    cdef int64_t recorded_position(self) except? -1:
        return self.publication.position()

    cdef bint is_complete(self) except -1:
        cdef StatePublication publication = <StatePublication> self.publication
        self._rows.put_state_hash(publication._hash.hexdigest(), self._recorded)
        if self._on_taken is not None:
            self._on_taken(publication._messages)
        return True

    cpdef int close(self) except -1:
        return self.publication.close()


cdef class ReplaySnapshotReader(SnapshotReader):
    """The recorded snapshot from which the replay begins."""

    cdef int check(self) except -1:
        return 0

    cpdef int close(self) except -1:
        (<object> self.image).close()
        return 0


cdef class ReplaySnapshotStore(SnapshotStore):
    """Hashes the snapshots that are taken, and gives the one to begin from.

    Args:
        rows: where the hashes go.
        recorded: a callable that for a log position gives the term length, the MTU and the hash of the snapshot that
            is recorded there; the hash is None where there is none.
        begin: the image of the snapshot to begin from, or None.
        on_taken: called with all messages of each snapshot (a list of bytes), or None.
    """
    cdef ReplayRows _rows
    cdef object _recorded
    cdef Image _begin
    cdef object _on_taken

    def __init__(self, ReplayRows rows not None, recorded, Image begin, on_taken=None):
        self._rows = rows
        self._recorded = recorded
        self._begin = begin
        self._on_taken = on_taken

    cdef SnapshotWriter create(self, IdleStrategy idle):
        cdef ReplaySnapshotWriter writer = ReplaySnapshotWriter.__new__(ReplaySnapshotWriter)
        cdef StatePublication publication = StatePublication.__new__(StatePublication)
        term_length, mtu_length, writer._recorded = self._recorded(self._rows._cluster.get_log_position())
        publication.term_buffer_length = term_length
        publication.max_payload_length = mtu_length - FRAME_HEADER_LENGTH
        publication.max_message_length = min(<int> term_length // 8, MESSAGE_LENGTH_MAX)
        if self._on_taken is not None:
            publication._messages = []
        writer.publication = publication
        writer._rows = self._rows
        writer._on_taken = self._on_taken
        return writer

    cdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle):
        cdef ReplaySnapshotReader reader = ReplaySnapshotReader.__new__(ReplaySnapshotReader)
        reader.image = self._begin
        reader.stop_position = self._begin.end_of_stream_position()
        return reader


# --- the rest of a driver


cdef class ReplayClock(Clock):
    """Moves only by :meth:`advance`: cluster time comes from the log."""
    cdef int64_t _now_ns

    def advance(self):
        """Let one slow tick of the agent be due."""
        self._now_ns += TICK_NS

    cdef int64_t nano_time(self) noexcept nogil:
        return self._now_ns

    cdef int64_t epoch_ms(self) noexcept nogil:
        return self._now_ns // 1_000_000

    cdef int64_t epoch_ns(self) noexcept nogil:
        return self._now_ns


cdef class ReplayCounter(Counter):
    """A counter that nobody reads."""
    cdef int64_t _own

    def __cinit__(self):
        self._value = &self._own

    cpdef int close(self) except -1:
        return 0


cdef class ReplayMarkFile(MarkFile):
    """A mark file that is not there."""

    cdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        return 0

    cdef int set_member_id(self, int32_t member_id) except -1:
        return 0

    cdef int signal_terminated(self) except -1:
        return 0

    cpdef int close(self) except -1:
        return 0


cdef class ReplayPendingAdd(PendingAdd):
    """An add that is done when it is asked for."""
    cdef Publication _publication

    cdef object poll(self):
        return self._publication

    cpdef int close(self) except -1:
        return 0


cdef class ReplayClient(Client):
    """A client whose driver is a recording.

    Args:
        rows: where what is sent goes.
        log: the log's image.
        join_log: the message (bytes) by which the consensus module has the log joined.
        recovery_key: the key (bytes) of the recovery state's counter.
        cluster_id: of the commit position's counter.
    """
    cdef ReplayRows _rows
    cdef ReplayImage _log
    cdef bytes _join_log
    cdef CounterBuffers _buffers
    cdef MemoryCounters _counters
    cdef int32_t _commit_counter_id

    def __init__(self, ReplayRows rows not None, ReplayImage log not None, bytes join_log not None,
                 bytes recovery_key not None, int32_t cluster_id):
        cdef bytes cluster_key = (<const char*> &cluster_id)[:4]
        self.clock = ReplayClock.__new__(ReplayClock)
        self.client_name = "replay"
        self._rows = rows
        self._log = log
        self._join_log = join_log
        self._buffers = CounterBuffers(self.clock, COUNTERS_CAPACITY)
        self._counters = MemoryCounters.__new__(MemoryCounters)
        self._counters.open(self._buffers)
        self._commit_counter_id = self._buffers.allocate(
            CounterType.COMMIT_POSITION, cluster_key, "commit position", CONTROL_REGISTRATION_ID, CLIENT_ID)
        self._buffers.allocate(
            CounterType.RECOVERY_STATE, recovery_key, "recovery state", CONTROL_REGISTRATION_ID, CLIENT_ID)

    def commit(self, int64_t log_position):
        """Let the agent have the log up to a position."""
        self._log.is_drained = False
        self._buffers.value(self._commit_counter_id)[0] = log_position

    def new_counter(self):
        """A counter that nobody reads, for what measures durations."""
        return self.add_counter(0, b"", "")

    cdef int64_t client_id(self) noexcept:
        return CLIENT_ID

    cdef Publication add_publication(self, str channel, int32_t stream_id):
        cdef EgressPublication egress
        cdef ControlPublication control
        cdef Publication publication
        if channel == CONTROL_CHANNEL and stream_id == CONSENSUS_MODULE_STREAM_ID:
            control = ControlPublication.__new__(ControlPublication)
            control._rows = self._rows
            publication = control
        else:
            egress = EgressPublication.__new__(EgressPublication)
            egress._rows = self._rows
            publication = egress
        publication.channel = channel
        publication.stream_id = stream_id
        return publication

    cdef PendingAdd begin_add_publication(self, str channel, int32_t stream_id, bint is_exclusive):
        cdef ReplayPendingAdd pending = ReplayPendingAdd.__new__(ReplayPendingAdd)
        pending._publication = self.add_publication(channel, stream_id)
        return pending

    cdef Subscription add_subscription(self, str channel, int32_t stream_id):
        cdef ControlSubscription control
        cdef LogSubscription log
        cdef Subscription subscription
        if channel == CONTROL_CHANNEL and stream_id == SERVICE_STREAM_ID:
            control = ControlSubscription.__new__(ControlSubscription)
            control._message = self._join_log
            subscription = control
        else:
            log = LogSubscription.__new__(LogSubscription)
            log._image = self._log
            subscription = log
        subscription.channel = channel
        subscription.stream_id = stream_id
        return subscription

    cdef Counter add_counter(self, int32_t type_id, bytes key, str label):
        return ReplayCounter.__new__(ReplayCounter)

    cdef Counters counters(self):
        return self._counters

    cdef int add_listener(self, ClientListener listener) except -1:
        return 0

    cdef int remove_listener(self, ClientListener listener) except -1:
        return 0

    cpdef bint is_closed(self) noexcept:
        return False

    cpdef int close(self) except -1:
        return 0


def takes_batches(ServiceHandler handler not None):
    """Whether a service gets its session messages in batches (bool)."""
    return bool(handler.takes_batches())


hide((
    ReplayPublication, EgressPublication, ControlPublication, StatePublication, LogSubscription,
    ControlSubscription, ReplaySnapshotWriter, ReplaySnapshotReader, ReplayClock, ReplayCounter, ReplayPendingAdd,
))
seal((ReplayRows, StateHash, ReplayImage, MessagesImage, ReplaySnapshotStore, ReplayMarkFile, ReplayClient))
