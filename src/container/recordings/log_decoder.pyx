"""The log's frames and messages as Arrow columns. No Python object is made for a frame; the GIL is released meanwhile.

Which fields of which message become which column is in :mod:`container.recordings.views`. A message is read with the
project's own codecs: a field that the sender's version or block does not have is null, and extra bytes of a longer
block than ours are skipped.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport initialise, seal
from container.recordings.batch_decoder cimport BatchDecoder
from container.recordings.columns cimport Columns, end_row, is_full, put_bool, put_bytes, put_int32, put_int64
from container.recordings.fields cimport (
    action_name, change_type_name, close_reason_name, is_ascii, put_enum, put_field32, put_field64, put_text, put_var,
    time_unit_name,
)
from container.recordings.frame_reader cimport (
    FAILED_BLOCK_LENGTH, FAILED_EVENT_POSITION, FAILED_INCOMPLETE, FAILED_LEADERSHIP_TERM_ID, FAILED_LENGTH,
    FAILED_MESSAGE, FAILED_ORPHAN, FAILED_READ, FAILED_SCHEMA_ID, FAILED_SCHEMA_VERSION,
    FAILED_TEMPLATE_ID, FAILED_TERM_BASE, FAILED_TEXT, FAILED_TIMESTAMP, FRAME_TYPE_DATA, FRAME_TYPE_PAD,
    READ_END, READ_OK,
)
from container.recordings.message_reader cimport MessageReader
from container.transport.frames cimport FRAME_FLAG_BEGIN, FRAME_HEADER_LENGTH, align_frame

from container.recordings.frame_reader import CONTENT_FAILURES as _CONTENT_FAILURES
from container.recordings.frame_reader import FRAME_FAILURES as _FRAME_FAILURES
from container.recordings.frame_reader import MESSAGE_FAILURES as _MESSAGE_FAILURES

cdef enum:
    TEMPLATE_BITS_LENGTH = 65536 // 8
    UNKNOWN_TEMPLATE = -1
    SERVICE_ID_SHIFT = 56       # a session id of a service: bit 63, then seven bits of service id
    SERVICE_ID_MASK = 0x7F
    # Where all messages of a log have their leadership term, and most their timestamp; the messages that name their own
    # position have it between the two.
    TERM_ID_OFFSET = 8
    CLUSTER_SESSION_ID_OFFSET = 16
    EVENT_POSITION_OFFSET = 16
    TIMESTAMP_OFFSET = 24
    OPEN_TIMESTAMP_OFFSET = 32
    TERM_BASE_OFFSET = 32
    NEIGHBOUR_LENGTH = 40       # the first bytes of a message, in which all of these are that it has
    FLAGS_VERSION = 11          # of the schema, in which action requests got flags
    TIME_UNIT_VERSION = 4       # in which new leadership terms got time unit and application version
    # Clocks are set: how far a timestamp may be from those around it, about a minute in milliseconds, and beyond that a
    # part of itself, about another minute in any unit.
    CLOCK_CHANGE_MIN = 60_000
    CLOCK_CHANGE_BITS = 25

ctypedef struct Neighbour:
    bint is_there
    uint16_t template_id
    uint16_t version
    int64_t leadership_term_id
    int64_t timestamp

# Where a column lies in the batch.
cdef enum:
    LOG_POSITION
    BEGIN_POSITION
    LEADERSHIP_TERM_ID
    TEMPLATE_ID
    SCHEMA_ID
    SCHEMA_VERSION
    TIMESTAMP
    MESSAGE_LENGTH
    SOURCE
    EVENT
    CLUSTER_SESSION_ID
    SERVICE_ID
    CORRELATION_ID
    CLOSE_REASON
    RESPONSE_STREAM_ID
    RESPONSE_CHANNEL
    ENCODED_PRINCIPAL
    EVENT_LOG_POSITION
    ACTION
    FLAGS
    TERM_BASE_LOG_POSITION
    LEADER_MEMBER_ID
    LOG_SESSION_ID
    TIME_UNIT
    APP_VERSION
    CLUSTER_SIZE
    CHANGE_TYPE
    CHANGED_MEMBER_ID
    CLUSTER_MEMBERS
    FRAME_LENGTH
    VERSION
    TYPE
    TERM_OFFSET
    SESSION_ID
    STREAM_ID
    TERM_ID
    RESERVED_VALUE
    PAYLOAD_LENGTH
    PAYLOAD
    COMMITTED
    ERROR

_INDICES = {
    "log_position": LOG_POSITION,
    "begin_position": BEGIN_POSITION,
    "leadership_term_id": LEADERSHIP_TERM_ID,
    "template_id": TEMPLATE_ID,
    "schema_id": SCHEMA_ID,
    "schema_version": SCHEMA_VERSION,
    "timestamp": TIMESTAMP,
    "message_length": MESSAGE_LENGTH,
    "source": SOURCE,
    "event": EVENT,
    "cluster_session_id": CLUSTER_SESSION_ID,
    "service_id": SERVICE_ID,
    "correlation_id": CORRELATION_ID,
    "close_reason": CLOSE_REASON,
    "response_stream_id": RESPONSE_STREAM_ID,
    "response_channel": RESPONSE_CHANNEL,
    "encoded_principal": ENCODED_PRINCIPAL,
    "event_log_position": EVENT_LOG_POSITION,
    "action": ACTION,
    "flags": FLAGS,
    "term_base_log_position": TERM_BASE_LOG_POSITION,
    "leader_member_id": LEADER_MEMBER_ID,
    "log_session_id": LOG_SESSION_ID,
    "time_unit": TIME_UNIT,
    "app_version": APP_VERSION,
    "cluster_size": CLUSTER_SIZE,
    "change_type": CHANGE_TYPE,
    "changed_member_id": CHANGED_MEMBER_ID,
    "cluster_members": CLUSTER_MEMBERS,
    "frame_length": FRAME_LENGTH,
    "version": VERSION,
    "type": TYPE,
    "term_offset": TERM_OFFSET,
    "session_id": SESSION_ID,
    "stream_id": STREAM_ID,
    "term_id": TERM_ID,
    "reserved_value": RESERVED_VALUE,
    "payload_length": PAYLOAD_LENGTH,
    "payload": PAYLOAD,
    "committed": COMMITTED,
    "error": ERROR,
}
COLUMNS = frozenset(_INDICES)
"""The columns that are made here."""

# Offsets in a frame's header that only the view of frames shows.
cdef enum:
    FRAME_FLAGS_OFFSET = 5
    FRAME_VERSION_OFFSET = 4
    FRAME_SESSION_ID_OFFSET = 12
    FRAME_STREAM_ID_OFFSET = 16
    FRAME_TERM_ID_OFFSET = 20
    FRAME_RESERVED_VALUE_OFFSET = 24


cdef inline int32_t block_length_of(uint16_t template_id, uint16_t version) noexcept nogil:
    """Bytes of the block of a message of the log in a version of the schema; 0 for one that no log has."""
    if template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
        return codec.SESSION_MESSAGE_HEADER_BLOCK_LENGTH
    if template_id == codec.TIMER_EVENT_TEMPLATE_ID:
        return codec.TIMER_EVENT_BLOCK_LENGTH
    if template_id == codec.SESSION_OPEN_EVENT_TEMPLATE_ID:
        return codec.SESSION_OPEN_EVENT_BLOCK_LENGTH
    if template_id == codec.SESSION_CLOSE_EVENT_TEMPLATE_ID:
        return codec.SESSION_CLOSE_EVENT_BLOCK_LENGTH
    if template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID:
        return (codec.CLUSTER_ACTION_REQUEST_BLOCK_LENGTH if version >= FLAGS_VERSION
                else codec.CLUSTER_ACTION_REQUEST_MIN_BLOCK_LENGTH)
    if template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID:
        return (codec.NEW_LEADERSHIP_TERM_EVENT_BLOCK_LENGTH if version >= TIME_UNIT_VERSION
                else codec.NEW_LEADERSHIP_TERM_EVENT_MIN_BLOCK_LENGTH)
    if template_id == codec.MEMBERSHIP_CHANGE_EVENT_TEMPLATE_ID:
        return codec.MEMBERSHIP_CHANGE_EVENT_BLOCK_LENGTH
    return 0


cdef inline bint has_block_only(uint16_t template_id) noexcept nogil:
    """Whether a message ends with its block: no text and no payload."""
    return (template_id == codec.TIMER_EVENT_TEMPLATE_ID or template_id == codec.SESSION_CLOSE_EVENT_TEMPLATE_ID
            or template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID
            or template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID)


cdef inline void read_facts(const uint8_t* message, const sbe.MessageHeader* header, Neighbour* out) noexcept nogil:
    """Read the facts that a message shares with those around it; its block must be complete."""
    out.is_there = True
    out.template_id = header.template_id
    out.version = header.version
    out.leadership_term_id = sbe.sbe_get_int64(message + TERM_ID_OFFSET)
    out.timestamp = sbe.sbe_get_int64(message + (
        OPEN_TIMESTAMP_OFFSET if header.template_id == codec.SESSION_OPEN_EVENT_TEMPLATE_ID else TIMESTAMP_OFFSET))


cdef bint is_alone(
    const Neighbour* previous, const Neighbour* first, const Neighbour* second, int64_t value, int64_t before,
    int64_t behind, int64_t further_behind
) noexcept nogil:
    """Whether a value is that of neither neighbour; of the first message that is read, of neither of the next two."""
    if previous.is_there:
        return value != before and not (first.is_there and behind == value)
    return (first.is_there and behind != value and second.is_there and further_behind == behind
            and first.template_id != codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID)


cdef inline uint64_t clock_change(int64_t timestamp) noexcept nogil:
    """How much clocks are set, in the unit of a timestamp."""
    return <uint64_t> CLOCK_CHANGE_MIN + (<uint64_t> (timestamp if timestamp > 0 else 0) >> CLOCK_CHANGE_BITS)


cdef inline bint is_before(int64_t value, int64_t other) noexcept nogil:
    """Whether a time is before another, and by more than clocks are set."""
    return value < other and <uint64_t> other - <uint64_t> value > clock_change(value)


cdef inline bint is_far(int64_t value, int64_t before, int64_t behind) noexcept nogil:
    """Whether a time is far from all that lies between two others."""
    return is_before(value, min(before, behind)) or is_before(max(before, behind), value)


cdef class LogDecoder(BatchDecoder):
    """Decodes a range of a log into batches of columns.

    Args:
        columns: names and types (dict of str to str, as Arrow names them) of the wanted columns of one view.
        batch_rows: rows (int) of a batch at most; it also ends at 16 MiB of payload and text.
        begin, end: log positions; what begins in this range is decoded.
        read_end: log position up to which a message that begins in the range may be read on.
        committed_position: up to which ``committed`` is true.
        begin_position, end_position: only messages that end behind the first and not behind the second.
        begin_timestamp, end_timestamp: only messages from the first up to and without the second; None for no limit.
        template_ids: only messages of these templates (set of int); None for all.
        is_cluster_only: whether messages of other schemas are left out.
        leadership_term_ids: only messages of these terms (set of int); None for all.
        likely_term_id: the leadership term by the recording log (int), -1 if unknown; it decides where two messages
            have different ones and no third is there.
        layout: the arguments of :class:`~container.recordings.message_reader.MessageReader`.

    Raises RecordingError and ValueError as those arguments' owners do.
    """
    cdef int64_t _end
    cdef int64_t _read_end
    cdef int64_t _committed_position
    cdef int64_t _filter_begin
    cdef int64_t _filter_end
    cdef bint _has_times
    cdef readonly int64_t untimed_count     # messages that bounds of time left out because they have none
    cdef int64_t _begin_timestamp
    cdef bint _has_end
    cdef int64_t _end_timestamp
    cdef uint8_t* _template_bits
    cdef bint _is_cluster_only
    cdef int64_t* _terms
    cdef Py_ssize_t _term_count             # -1 for all terms
    cdef Neighbour _previous                # the message of the cluster's schema before this one, if that was whole
    cdef int64_t _likely_term_id
    cdef int64_t _doubtful_position         # where a message began before the one before it was whole
    cdef int64_t _session_header            # that of session messages of its version, once there was one; else 0
    cdef sbe.MessageHeader _session_fields  # what it says
    cdef bint _wants_sessions               # whether session messages may be rows
    cdef bint _has_frame_time               # of frames: whether it is known of which time the message is …
    cdef int64_t _frame_timestamp           # … and that

    def __cinit__(self):
        self._template_bits = NULL
        self._terms = NULL

    def __init__(
        self, archive_dir, layout, columns, *, int batch_rows, int64_t begin, int64_t end, int64_t read_end,
        int64_t committed_position, int64_t begin_position=INT64_MIN, int64_t end_position=INT64_MAX,
        begin_timestamp=None, end_timestamp=None, template_ids=None, bint is_cluster_only=False,
        leadership_term_ids=None, int64_t likely_term_id=-1
    ):
        self._open_batch(columns, _INDICES, batch_rows)
        initialise(MessageReader, self, (archive_dir,), layout)
        self.seek(begin)
        self._end = end
        self._read_end = max(end, read_end)
        self._committed_position = committed_position
        self._previous.is_there = False
        self._has_frame_time = False
        self._session_header = 0
        self._likely_term_id = likely_term_id
        self._doubtful_position = -1
        self._filter_begin = self.known_begin = begin_position
        self._filter_end = self.known_end = end_position
        self.untimed_count = 0
        self._has_times = begin_timestamp is not None or end_timestamp is not None
        self._begin_timestamp = INT64_MIN if begin_timestamp is None else begin_timestamp
        self._has_end = end_timestamp is not None
        self._end_timestamp = end_timestamp if self._has_end else 0
        self._is_cluster_only = is_cluster_only
        self._set_templates(template_ids)
        self._set_terms(leadership_term_ids)

    def __dealloc__(self):
        free(self._template_bits)
        free(self._terms)

    def _set_templates(self, template_ids):
        cdef int template_id
        self._wants_sessions = template_ids is None or codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID in template_ids
        if template_ids is None:
            return
        self._template_bits = <uint8_t*> calloc(TEMPLATE_BITS_LENGTH, 1)
        if self._template_bits == NULL:
            raise MemoryError("no memory for a set of template ids")
        for template_id in template_ids:
            if not 0 <= template_id <= 0xFFFF:
                raise ValueError(f"a template id is 0 to 65535, got {template_id}")
            self._template_bits[template_id >> 3] |= <uint8_t> (1 << (template_id & 7))
        self.template_bits = self._template_bits

    def _set_terms(self, leadership_term_ids):
        cdef Py_ssize_t index
        self._term_count = -1
        if leadership_term_ids is None:
            return
        self._terms = <int64_t*> malloc(max(1, len(leadership_term_ids)) * sizeof(int64_t))
        if self._terms == NULL:
            raise MemoryError("no memory for a set of leadership terms")
        self._term_count = len(leadership_term_ids)
        for index, term in enumerate(leadership_term_ids):
            self._terms[index] = term

    def decode_messages(self):
        """Decode until the batch is full (return 0), the range has ended (1) or something failed (below 0).

        The failure is then in :attr:`last_failure` and :meth:`failure_error`.
        """
        cdef int result
        with nogil:
            result = self._decode_messages()
        return result

    def decode_frames(self, int64_t leadership_term_id):
        """As :meth:`decode_messages`, a row per frame; the term (or -1) is that of the whole range."""
        cdef int result
        with nogil:
            result = self._decode_frames(leadership_term_id)
        return result

    def skip_damage(self, bint is_frames):
        """Move to where reading can be trusted again; return that log position (int), the end if there is none.

        Behind a frame that is damaged this is the next one; of messages, the next that begins there. Raise
        RecordingUnavailableError where the file cannot be read.
        """
        cdef int64_t position = self.next_position
        self._has_frame_time = False
        if self.failure in _FRAME_FAILURES:
            position = self.resynchronise(self._end)
            if position < 0 and self.failure == FAILED_READ:
                raise self.failure_error()
        elif self.failure not in _MESSAGE_FAILURES:
            position = -1       # the file ends too early, or cannot be read
        if position >= 0 and not is_frames and self.failure not in _CONTENT_FAILURES:
            position = self.skip_fragments(self._end)
        return self._end if position < 0 else position

    def put_error(self, error, text):
        """Add a row for the last failure (RecordingError) with a text, and all else null; return whether it was added.

        Among several ranges in a row, only the one that contains the position (from its beginning to before its end)
        yields the row. A whole message belongs to the range in which it ends.
        """
        cdef int64_t position = error.log_position
        cdef bytes content = text.encode("utf-8", "replace")
        if position < self._filter_begin and self.failure not in _CONTENT_FAILURES:
            return False
        put_int64(&self._batch.columns, LOG_POSITION, position)
        put_bool(&self._batch.columns, COMMITTED, position <= self._committed_position)
        put_bytes(&self._batch.columns, ERROR, <const uint8_t*> (<const char*> content), len(content))
        end_row(&self._batch.columns)
        return True

    cdef int _decode_messages(self) noexcept nogil:
        cdef int result
        while not is_full(&self._batch.columns):
            result = self.next_message(self._end, self._read_end)
            if result != READ_OK:
                self._previous.is_there = False
                if result == FAILED_INCOMPLETE and self.is_doubtful:
                    self._doubtful_position = self.next_position
                return self._result_of(result)
            if self.log_position > self._filter_end:
                return READ_END
            if (self.begin_position & (self.term_length - 1)) == 0:
                self._previous.is_there = False     # reading may begin here, and must come to the same results then
            if is_like_before(self):
                self._previous.timestamp = sbe.sbe_get_int64(self.message + TIMESTAMP_OFFSET)
                if self._wants_sessions and self.log_position > self._filter_begin:
                    self._put_session_message(
                        &self._session_fields, self._previous.leadership_term_id, self._previous.timestamp,
                        sbe.sbe_get_int64(self.message + CLUSTER_SESSION_ID_OFFSET))
                continue
            result = self._check_message()
            if result < 0:
                self._previous.is_there = False
            if self.log_position <= self._filter_begin:
                continue
            if result == READ_OK:
                result = self._decode_message()
            if result < 0:
                return result
        return READ_OK

    cdef int _decode_frames(self, int64_t leadership_term_id) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef const uint8_t* frame
        cdef int result
        while not is_full(batch):
            result = self.next_frame(self._end)
            if result != READ_OK:
                return self._result_of(result)
            self._note_frame_time()
            if self.next_position <= self._filter_begin:
                continue
            if self.next_position > self._filter_end:
                return READ_END
            frame = self.frame
            put_int64(batch, LOG_POSITION, self.next_position)
            put_int64(batch, BEGIN_POSITION, self.position)
            if leadership_term_id >= 0:
                put_int64(batch, LEADERSHIP_TERM_ID, leadership_term_id)
            put_int32(batch, FRAME_LENGTH, self.frame_length)
            put_int32(batch, VERSION, frame[FRAME_VERSION_OFFSET])
            put_int32(batch, FLAGS, self.frame_flags)
            put_text(batch, TYPE, "PAD" if self.frame_type == FRAME_TYPE_PAD else "DATA")
            put_int32(batch, TERM_OFFSET, <int32_t> (self.position & (self.term_length - 1)))
            put_int32(batch, SESSION_ID, sbe.sbe_get_int32(frame + FRAME_SESSION_ID_OFFSET))
            put_int32(batch, STREAM_ID, sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET))
            put_int32(batch, TERM_ID, sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET))
            put_int64(batch, RESERVED_VALUE, sbe.sbe_get_int64(frame + FRAME_RESERVED_VALUE_OFFSET))
            if self._has_frame_time:
                put_field64(batch, TIMESTAMP, self._frame_timestamp)
            if self.frame_type == FRAME_TYPE_DATA:
                put_bytes(batch, PAYLOAD, frame + FRAME_HEADER_LENGTH, self.frame_length - FRAME_HEADER_LENGTH)
            put_bool(batch, COMMITTED, self.next_position <= self._committed_position)
            end_row(batch)
        return READ_OK

    cdef void _note_frame_time(self) noexcept nogil:
        """Take the timestamp of a message from its first frame; the frames that follow belong to the same one."""
        cdef const uint8_t* message = self.frame + FRAME_HEADER_LENGTH
        cdef int32_t length = self.frame_length - FRAME_HEADER_LENGTH, block_length
        cdef sbe.MessageHeader header
        cdef Neighbour facts
        if self.frame_type != FRAME_TYPE_DATA:
            self._has_frame_time = False
            return
        if not self.frame_flags & FRAME_FLAG_BEGIN:
            return
        self._has_frame_time = False
        if length < sbe.SBE_HEADER_LENGTH or sbe.sbe_read_header(message, <size_t> length, &header) < 0:
            return
        block_length = block_length_of(header.template_id, header.version)
        if (header.schema_id != codec.CLUSTER_SCHEMA_ID or block_length == 0
                or length < min(sbe.SBE_HEADER_LENGTH + block_length, <int32_t> NEIGHBOUR_LENGTH)):
            return
        read_facts(message, &header, &facts)
        self._frame_timestamp = facts.timestamp
        self._has_frame_time = True

    cdef int _result_of(self, int result) noexcept nogil:
        """Damage where no wanted row can end any more does not matter."""
        return READ_END if result < 0 and self.failure_position >= self._filter_end else result

    cdef int _check_message(self) noexcept nogil:
        """Check what a message of any kind has, wanted or not: header, leadership term, timestamp and length."""
        cdef sbe.MessageHeader header
        cdef Neighbour facts
        cdef int result
        result = sbe.sbe_read_header(self.message, <size_t> self.message_length, &header)
        if result < 0:
            return self._refuse(result, UNKNOWN_TEMPLATE)
        if header.schema_id != codec.CLUSTER_SCHEMA_ID:
            return self._check_foreign(&header)
        if sbe.SBE_HEADER_LENGTH + header.block_length > self.message_length:
            return self._refuse(sbe.SBE_BLOCK, header.template_id)
        result = self._check_header(&header)
        if result != READ_OK or block_length_of(header.template_id, header.version) == 0:
            return result
        read_facts(self.message, &header, &facts)
        if not (self._previous.is_there and facts.leadership_term_id == self._previous.leadership_term_id
                and facts.version == self._previous.version
                and <uint64_t> facts.timestamp - <uint64_t> self._previous.timestamp
                <= clock_change(self._previous.timestamp)):
            result = self._check_neighbours(&facts)
            if result < 0:
                return result
        if facts.version != self._previous.version or not self._previous.is_there:
            self._session_header = 0
        if (header.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID
                and header.block_length == codec.SESSION_MESSAGE_HEADER_BLOCK_LENGTH):
            self._session_header = sbe.sbe_get_int64(self.message)
            self._session_fields = header
        self._previous = facts
        return READ_OK

    cdef int _check_header(self, const sbe.MessageHeader* header) noexcept nogil:
        """Check a message of the cluster's schema. A newer version than ours may have new templates and blocks."""
        cdef int32_t block_length = block_length_of(header.template_id, header.version)
        cdef int64_t end = sbe.SBE_HEADER_LENGTH + header.block_length
        if header.version > codec.CLUSTER_SCHEMA_VERSION:
            return READ_OK if header.block_length >= block_length else self.fail(
                FAILED_BLOCK_LENGTH, self.begin_position, header.block_length, block_length)
        if block_length == 0:
            return self.fail(
                FAILED_TEMPLATE_ID, self.begin_position, header.template_id, codec.CLUSTER_SCHEMA_ID)
        if header.block_length != block_length:
            return self.fail(FAILED_BLOCK_LENGTH, self.begin_position, header.block_length, block_length)
        if has_block_only(header.template_id) and self.message_length != end:
            return self._refuse_length(end)
        if (header.template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID
                or header.template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID):
            return self._check_positions(header.template_id)
        return READ_OK

    cdef int _check_positions(self, int32_t template_id) noexcept nogil:
        """These messages say where they end, and where a leadership term begins: before padding, if there is any."""
        cdef int64_t value = sbe.sbe_get_int64(self.message + EVENT_POSITION_OFFSET)
        cdef int64_t distance
        if value != self.log_position:
            return self.fail(FAILED_EVENT_POSITION, self.begin_position, value, self.log_position)
        if template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID:
            value = sbe.sbe_get_int64(self.message + TERM_BASE_OFFSET)
            distance = <int64_t> (<uint64_t> self.begin_position - <uint64_t> value)
            if distance != 0 and not (
                    (self.begin_position & (self.term_length - 1)) == 0
                    and 0 < distance < self.log_position - self.begin_position):
                return self.fail(FAILED_TERM_BASE, self.begin_position, value, self.begin_position)
        return READ_OK

    cdef int _check_foreign(self, const sbe.MessageHeader* header) noexcept nogil:
        """Another schema is an extension's, unless all else is what a message of the cluster would have here."""
        cdef Neighbour facts, other
        cdef int32_t block_length = block_length_of(header.template_id, header.version)
        if self.begin_position == self._doubtful_position:
            # Rather a fragment that says that it begins a message.
            return self.fail(FAILED_ORPHAN, self.begin_position, 0, 0)
        if sbe.sbe_get_int64(self.message) == 0:
            return self._refuse(sbe.SBE_SCHEMA, header.template_id)
        if (block_length == 0 or header.block_length != block_length
                or sbe.SBE_HEADER_LENGTH + block_length > self.message_length):
            return READ_OK
        read_facts(self.message, header, &facts)
        other = self._previous
        if not other.is_there:
            self._peek_message(self.log_position, &other)
        if (other.is_there and facts.version == other.version
                and facts.leadership_term_id == other.leadership_term_id):
            return self.fail(FAILED_SCHEMA_ID, self.begin_position, header.schema_id, codec.CLUSTER_SCHEMA_ID)
        return READ_OK

    cdef int _check_neighbours(self, const Neighbour* facts) noexcept nogil:
        """Compare a message with those before and behind it.

        Its leadership term and version are those of one of them; with the first message of a leader both may be new.
        Its timestamp is not far from both, if they are near each other: nothing keeps a clock from being set.
        """
        cdef Neighbour first, second
        cdef Neighbour previous = self._previous
        cdef int64_t behind
        cdef bint is_new = facts.template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID
        first.is_there = second.is_there = False
        behind = self._peek_message(self.log_position, &first)
        if behind >= 0:
            self._peek_message(behind, &second)
        if is_new and previous.is_there and facts.leadership_term_id > previous.leadership_term_id:
            previous.is_there = False
        if not previous.is_there and first.is_there and (
                not second.is_there or second.template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID):
            # Where the two differ, the more likely one is right.
            second.is_there = True
            second.leadership_term_id = self._likely_term_id
            second.version = codec.CLUSTER_SCHEMA_VERSION
        if is_alone(&previous, &first, &second, facts.version, previous.version, first.version, second.version):
            return self.fail(
                FAILED_SCHEMA_VERSION, self.begin_position, facts.version,
                previous.version if previous.is_there else first.version)
        if (previous.is_there or facts.leadership_term_id != self._likely_term_id) and is_alone(
                &previous, &first, &second, facts.leadership_term_id, previous.leadership_term_id,
                first.leadership_term_id, second.leadership_term_id):
            return self.fail(
                FAILED_LEADERSHIP_TERM_ID, self.begin_position, facts.leadership_term_id,
                previous.leadership_term_id if previous.is_there else first.leadership_term_id)
        if (not is_new and previous.is_there and first.is_there
                and first.template_id != codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID
                and is_far(facts.timestamp, previous.timestamp, first.timestamp)
                and not (second.is_there and not is_far(facts.timestamp, previous.timestamp, second.timestamp))):
            return self.fail(FAILED_TIMESTAMP, self.begin_position, facts.timestamp, previous.timestamp)
        return READ_OK

    cdef int64_t _peek_message(self, int64_t position, Neighbour* out) noexcept nogil:
        """Facts of the first message of the cluster from a position on, and where its first frame ends; -1 if none."""
        cdef uint8_t[FRAME_HEADER_LENGTH] frame
        cdef uint8_t[NEIGHBOUR_LENGTH] message
        cdef sbe.MessageHeader header
        cdef int32_t length, known, block_length
        out.is_there = False
        while True:
            position = self.peek_data_frame(position, self._read_end, frame)
            if position < 0:
                return -1
            length = sbe.sbe_get_int32(frame)
            known = min(length - FRAME_HEADER_LENGTH, <int32_t> NEIGHBOUR_LENGTH)
            if (frame[FRAME_FLAGS_OFFSET] & FRAME_FLAG_BEGIN
                    and self.peek(position + FRAME_HEADER_LENGTH, known, message)
                    and sbe.sbe_read_header(message, <size_t> known, &header) == sbe.SBE_OK):
                block_length = block_length_of(header.template_id, header.version)
                if (header.schema_id == codec.CLUSTER_SCHEMA_ID and block_length != 0
                        and min(sbe.SBE_HEADER_LENGTH + block_length, <int32_t> NEIGHBOUR_LENGTH) <= known):
                    read_facts(message, &header, out)
                    return position + align_frame(length)
            position += align_frame(length)

    cdef int _decode_message(self) noexcept nogil:
        cdef sbe.MessageHeader header
        sbe.sbe_read_header(self.message, <size_t> self.message_length, &header)
        if self._template_bits != NULL and not (
                self._template_bits[header.template_id >> 3] >> (header.template_id & 7)) & 1:
            return READ_OK
        if header.schema_id != codec.CLUSTER_SCHEMA_ID:
            return READ_OK if self._is_cluster_only else self._decode_unknown(&header)
        if header.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            return self._decode_session_message(&header)
        if header.template_id == codec.TIMER_EVENT_TEMPLATE_ID:
            return self._decode_timer(&header)
        if header.template_id == codec.SESSION_OPEN_EVENT_TEMPLATE_ID:
            return self._decode_session_open(&header)
        if header.template_id == codec.SESSION_CLOSE_EVENT_TEMPLATE_ID:
            return self._decode_session_close(&header)
        if header.template_id == codec.CLUSTER_ACTION_REQUEST_TEMPLATE_ID:
            return self._decode_action(&header)
        if header.template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID:
            return self._decode_new_term(&header)
        if header.template_id == codec.MEMBERSHIP_CHANGE_EVENT_TEMPLATE_ID:
            return self._decode_membership_change(&header)
        return self._decode_unknown(&header)

    cdef int _refuse(self, int result, int32_t template_id) noexcept nogil:
        return self.fail(FAILED_MESSAGE, self.begin_position, result, template_id)

    cdef int _refuse_length(self, int64_t end) noexcept nogil:
        return self.fail(FAILED_LENGTH, self.begin_position, self.message_length, end)

    cdef int _refuse_text(self, int32_t template_id) noexcept nogil:
        return self.fail(FAILED_TEXT, self.begin_position, template_id, 0)

    cdef bint _passes(self, int64_t leadership_term_id, int64_t timestamp) noexcept nogil:
        """Whether a message is of the wanted terms and times; without a term or a time it is not."""
        cdef Py_ssize_t index
        cdef bint is_wanted = self._term_count < 0
        for index in range(self._term_count):
            if self._terms[index] == leadership_term_id:
                is_wanted = True
                break
        if not is_wanted or not self._has_times:
            return is_wanted
        if timestamp == sbe.SBE_NULL_INT64:
            self.untimed_count += 1
            return False
        return timestamp >= self._begin_timestamp and (timestamp < self._end_timestamp or not self._has_end)

    cdef void _put_common(
        self, const sbe.MessageHeader* header, int64_t leadership_term_id, int64_t timestamp
    ) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        put_int64(batch, LOG_POSITION, self.log_position)
        put_int64(batch, BEGIN_POSITION, self.begin_position)
        put_field64(batch, LEADERSHIP_TERM_ID, leadership_term_id)
        put_field64(batch, TIMESTAMP, timestamp)
        put_int32(batch, TEMPLATE_ID, header.template_id)
        put_int32(batch, SCHEMA_ID, header.schema_id)
        put_int32(batch, SCHEMA_VERSION, header.version)
        put_int32(batch, MESSAGE_LENGTH, <int32_t> self.message_length)
        put_bool(batch, COMMITTED, self.log_position <= self._committed_position)

    cdef int _decode_session_message(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef codec.SessionMessageHeader message
        cdef int result = codec.session_message_header_wrap(&message, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        self._put_session_message(
            header, codec.session_message_header_leadership_term_id(&message),
            codec.session_message_header_timestamp(&message),
            codec.session_message_header_cluster_session_id(&message))
        return READ_OK

    cdef void _put_session_message(
        self, const sbe.MessageHeader* header, int64_t term, int64_t timestamp, int64_t session_id
    ) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef int64_t length = self.message_length - codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET
        if not self._passes(term, timestamp):
            return
        self._put_common(header, term, timestamp)
        put_field64(batch, CLUSTER_SESSION_ID, session_id)
        if session_id < 0 and session_id != sbe.SBE_NULL_INT64:
            put_int32(batch, SERVICE_ID, <int32_t> ((session_id >> SERVICE_ID_SHIFT) & SERVICE_ID_MASK))
        put_int32(batch, PAYLOAD_LENGTH, <int32_t> length)
        put_bytes(batch, PAYLOAD, self.message + codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET, length)
        end_row(batch)

    cdef int _decode_timer(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef codec.TimerEvent event
        cdef int64_t term, timestamp
        cdef int result = codec.timer_event_wrap(&event, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        term = codec.timer_event_leadership_term_id(&event)
        timestamp = codec.timer_event_timestamp(&event)
        if not self._passes(term, timestamp):
            return READ_OK
        self._put_common(header, term, timestamp)
        put_field64(&self._batch.columns, CORRELATION_ID, codec.timer_event_correlation_id(&event))
        end_row(&self._batch.columns)
        return READ_OK

    cdef int _decode_session_open(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.SessionOpenEvent event
        cdef int64_t term, timestamp
        cdef int result = codec.session_open_event_wrap(&event, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        if event.version <= codec.CLUSTER_SCHEMA_VERSION and <int64_t> event.encoded_length != self.message_length:
            return self._refuse_length(<int64_t> event.encoded_length)
        if not is_ascii(&event.response_channel):
            return self._refuse_text(header.template_id)
        term = codec.session_open_event_leadership_term_id(&event)
        timestamp = codec.session_open_event_timestamp(&event)
        if not self._passes(term, timestamp):
            return READ_OK
        self._put_common(header, term, timestamp)
        put_text(batch, EVENT, "OPEN")
        put_field64(batch, CORRELATION_ID, codec.session_open_event_correlation_id(&event))
        put_field64(batch, CLUSTER_SESSION_ID, codec.session_open_event_cluster_session_id(&event))
        put_field32(batch, RESPONSE_STREAM_ID, codec.session_open_event_response_stream_id(&event))
        put_var(batch, RESPONSE_CHANNEL, &event.response_channel)
        put_var(batch, ENCODED_PRINCIPAL, &event.encoded_principal)
        end_row(batch)
        return READ_OK

    cdef int _decode_session_close(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef codec.SessionCloseEvent event
        cdef int32_t value
        cdef int64_t term, timestamp
        cdef int result = codec.session_close_event_wrap(&event, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        term = codec.session_close_event_leadership_term_id(&event)
        timestamp = codec.session_close_event_timestamp(&event)
        if not self._passes(term, timestamp):
            return READ_OK
        self._put_common(header, term, timestamp)
        put_text(&self._batch.columns, EVENT, "CLOSE")
        put_field64(&self._batch.columns, CLUSTER_SESSION_ID, codec.session_close_event_cluster_session_id(&event))
        value = codec.session_close_event_close_reason(&event)
        put_enum(&self._batch.columns, CLOSE_REASON, close_reason_name(value), value)
        end_row(&self._batch.columns)
        return READ_OK

    cdef int _decode_action(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef codec.ClusterActionRequest request
        cdef int32_t value
        cdef int64_t term, timestamp
        cdef int result = codec.cluster_action_request_wrap(
            &request, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        term = codec.cluster_action_request_leadership_term_id(&request)
        timestamp = codec.cluster_action_request_timestamp(&request)
        if not self._passes(term, timestamp):
            return READ_OK
        self._put_common(header, term, timestamp)
        put_field64(&self._batch.columns, EVENT_LOG_POSITION, codec.cluster_action_request_log_position(&request))
        value = codec.cluster_action_request_action(&request)
        put_enum(&self._batch.columns, ACTION, action_name(value), value)
        put_field32(&self._batch.columns, FLAGS, codec.cluster_action_request_flags(&request))
        end_row(&self._batch.columns)
        return READ_OK

    cdef int _decode_new_term(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.NewLeadershipTermEvent event
        cdef int32_t value
        cdef int64_t term, timestamp
        cdef int result = codec.new_leadership_term_event_wrap(
            &event, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        term = codec.new_leadership_term_event_leadership_term_id(&event)
        timestamp = codec.new_leadership_term_event_timestamp(&event)
        if not self._passes(term, timestamp):
            return READ_OK
        self._put_common(header, term, timestamp)
        put_text(batch, SOURCE, "log")
        put_field64(batch, EVENT_LOG_POSITION, codec.new_leadership_term_event_log_position(&event))
        put_field64(batch, TERM_BASE_LOG_POSITION, codec.new_leadership_term_event_term_base_log_position(&event))
        put_field32(batch, LEADER_MEMBER_ID, codec.new_leadership_term_event_leader_member_id(&event))
        put_field32(batch, LOG_SESSION_ID, codec.new_leadership_term_event_log_session_id(&event))
        value = codec.new_leadership_term_event_time_unit(&event)
        put_enum(batch, TIME_UNIT, time_unit_name(value), value)
        put_int32(batch, APP_VERSION, codec.new_leadership_term_event_app_version(&event))
        end_row(batch)
        return READ_OK

    cdef int _decode_membership_change(self, const sbe.MessageHeader* header) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.MembershipChangeEvent event
        cdef int32_t value
        cdef int64_t term, timestamp
        cdef int result = codec.membership_change_event_wrap(
            &event, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, header.template_id)
        if event.version <= codec.CLUSTER_SCHEMA_VERSION and <int64_t> event.encoded_length != self.message_length:
            return self._refuse_length(<int64_t> event.encoded_length)
        if not is_ascii(&event.cluster_members):
            return self._refuse_text(header.template_id)
        term = codec.membership_change_event_leadership_term_id(&event)
        timestamp = codec.membership_change_event_timestamp(&event)
        if not self._passes(term, timestamp):
            return READ_OK
        self._put_common(header, term, timestamp)
        put_field64(batch, EVENT_LOG_POSITION, codec.membership_change_event_log_position(&event))
        put_field32(batch, LEADER_MEMBER_ID, codec.membership_change_event_leader_member_id(&event))
        put_field32(batch, CLUSTER_SIZE, codec.membership_change_event_cluster_size(&event))
        value = codec.membership_change_event_change_type(&event)
        put_enum(batch, CHANGE_TYPE, change_type_name(value), value)
        put_field32(batch, CHANGED_MEMBER_ID, codec.membership_change_event_member_id(&event))
        put_var(batch, CLUSTER_MEMBERS, &event.cluster_members)
        end_row(batch)
        return READ_OK

    cdef int _decode_unknown(self, const sbe.MessageHeader* header) noexcept nogil:
        """A message of another schema or of a template that we do not know: its header, and the rest as payload."""
        cdef int64_t length = self.message_length - sbe.SBE_HEADER_LENGTH
        if not self._passes(sbe.SBE_NULL_INT64, sbe.SBE_NULL_INT64):
            return READ_OK
        self._put_common(header, sbe.SBE_NULL_INT64, sbe.SBE_NULL_INT64)
        put_int32(&self._batch.columns, PAYLOAD_LENGTH, <int32_t> length)
        put_bytes(&self._batch.columns, PAYLOAD, self.message + sbe.SBE_HEADER_LENGTH, length)
        end_row(&self._batch.columns)
        return READ_OK


cdef inline bint is_like_before(LogDecoder decoder) noexcept nogil:
    """Whether a message differs from a session message before it in session, time and payload only, as most do.

    Then there is nothing more to check: the header is one that was, and the time is near that of the message before.
    """
    return (decoder.message_length >= codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET and decoder._previous.is_there
            and decoder._session_header != 0
            and sbe.sbe_get_int64(decoder.message) == decoder._session_header
            and sbe.sbe_get_int64(decoder.message + TERM_ID_OFFSET) == decoder._previous.leadership_term_id
            and <uint64_t> sbe.sbe_get_int64(decoder.message + TIMESTAMP_OFFSET)
            - <uint64_t> decoder._previous.timestamp <= clock_change(decoder._previous.timestamp))


seal((LogDecoder,))
