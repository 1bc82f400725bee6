"""A snapshot as Arrow columns: the state of a consensus module, or the sessions and data of a service.

Upstream: ConsensusModuleSnapshotAdapter.java, ServiceSnapshotLoader.java. Between begin marker and end marker lie
messages of the cluster's schema, behind it the service's own, which have no framing but Aeron's.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.codecs.snapshot_types cimport SNAPSHOT_TYPE_CONSENSUS_MODULE, SNAPSHOT_TYPE_SERVICE
from container.common.sealed cimport initialise, seal
from container.recordings.batch_decoder cimport BatchDecoder
from container.recordings.columns cimport Columns, end_row, is_full, put_bytes, put_int32, put_int64
from container.recordings.fields cimport (
    close_reason_name, is_ascii, put_enum, put_field32, put_field64, put_text, put_var, time_unit_name,
)
from container.recordings.frame_reader cimport (
    FAILED_MESSAGE, FAILED_NO_BEGIN_MARKER, FAILED_NO_END_MARKER, FAILED_SECOND_BEGIN_MARKER, FAILED_SNAPSHOT_POSITION,
    FAILED_SNAPSHOT_TYPE, FAILED_TEXT, READ_END, READ_OK,
)
from container.recordings.message_reader cimport MessageReader
from container.transport.frames cimport NULL_VALUE

cdef enum:
    UNKNOWN_TEMPLATE = -1

# Where a column lies in the batch.
cdef enum:
    ITEM_INDEX
    ITEM
    MARK
    CLUSTER_SESSION_ID
    CORRELATION_ID
    DEADLINE
    OPENED_LOG_POSITION
    CLOSE_REASON
    RESPONSE_STREAM_ID
    RESPONSE_CHANNEL
    ENCODED_PRINCIPAL
    NEXT_SESSION_ID
    NEXT_SERVICE_SESSION_ID
    LOG_SERVICE_SESSION_ID
    PENDING_MESSAGE_CAPACITY
    PENDING_SERVICE_ID
    APPENDED_LOG_POSITION
    TIME_UNIT
    APP_VERSION
    PAYLOAD
    ERROR

_INDICES = {
    "item_index": ITEM_INDEX,
    "item": ITEM,
    "mark": MARK,
    "cluster_session_id": CLUSTER_SESSION_ID,
    "correlation_id": CORRELATION_ID,
    "deadline": DEADLINE,
    "opened_log_position": OPENED_LOG_POSITION,
    "close_reason": CLOSE_REASON,
    "response_stream_id": RESPONSE_STREAM_ID,
    "response_channel": RESPONSE_CHANNEL,
    "encoded_principal": ENCODED_PRINCIPAL,
    "next_session_id": NEXT_SESSION_ID,
    "next_service_session_id": NEXT_SERVICE_SESSION_ID,
    "log_service_session_id": LOG_SERVICE_SESSION_ID,
    "pending_message_capacity": PENDING_MESSAGE_CAPACITY,
    "pending_service_id": PENDING_SERVICE_ID,
    "appended_log_position": APPENDED_LOG_POSITION,
    "time_unit": TIME_UNIT,
    "app_version": APP_VERSION,
    "payload": PAYLOAD,
    "error": ERROR,
}
COLUMNS = frozenset(_INDICES)
"""The columns that are made here; the others of the view are the same for a whole snapshot."""


cdef const char* mark_name(int32_t value) noexcept nogil:
    if value == codec.SNAPSHOT_MARK_BEGIN:
        return "BEGIN"
    if value == codec.SNAPSHOT_MARK_SECTION:
        return "SECTION"
    if value == codec.SNAPSHOT_MARK_END:
        return "END"
    return NULL


cdef class SnapshotDecoder(BatchDecoder):
    """Decodes a recording of a snapshot into batches of columns.

    Args:
        columns: names and types (dict of str to str) of the wanted columns, of those in ``COLUMNS``.
        batch_rows: rows (int) of a batch at most; it also ends at 16 MiB of payload and text.
        end: where the recording ends.
        is_consensus_module: whose snapshot it is, or None for whatever its begin marker says.
        log_position: which log position its markers must name, or -1 for any.
        layout: the arguments of :class:`~container.recordings.message_reader.MessageReader`.

    Raises RecordingError and ValueError as those arguments' owners do.
    """
    cdef int64_t _end
    cdef int64_t _item_index
    cdef int64_t _type_id               # -1 until it is known
    cdef int64_t _snapshot_position     # -1 until it is known
    cdef int64_t _leadership_term_id    # -1 until it is known
    cdef bint _is_begun
    cdef bint _is_ended

    def __init__(
        self, archive_dir, layout, columns, *, int batch_rows, int64_t end, is_consensus_module=None,
        int64_t log_position=NULL_VALUE
    ):
        self._open_batch(columns, _INDICES, batch_rows)
        initialise(MessageReader, self, (archive_dir,), layout)
        self._end = end
        self._type_id = NULL_VALUE
        if is_consensus_module is not None:
            self._type_id = SNAPSHOT_TYPE_CONSENSUS_MODULE if is_consensus_module else SNAPSHOT_TYPE_SERVICE
        self._snapshot_position = log_position
        self._leadership_term_id = NULL_VALUE

    @property
    def is_complete(self):
        """Whether begin and end marker have been read (bool)."""
        return self._is_ended

    @property
    def snapshot_position(self):
        """The log position of the snapshot (int), -1 while nothing says it."""
        return self._snapshot_position

    @property
    def leadership_term_id(self):
        """The leadership term of the snapshot (int) by its begin marker, -1 until that is read."""
        return self._leadership_term_id

    def put_error(self, error):
        """Add a row for a failure (RecordingError): its text, and all else null."""
        cdef bytes text = str(error).encode("utf-8", "replace")
        put_bytes(&self._batch.columns, ERROR, <const uint8_t*> (<const char*> text), len(text))
        end_row(&self._batch.columns)

    def decode_items(self, bint until_end_marker=False):
        """Decode until the batch is full (return 0), the recording has ended (1) or something failed (below 0).

        The failure is then in :attr:`last_failure` and :meth:`failure_error`. With ``until_end_marker`` the end marker
        ends it too; it is not an error then that there is none.
        """
        cdef int result
        with nogil:
            result = self._decode_items(until_end_marker)
        return result

    cdef int _decode_items(self, bint until_end_marker) noexcept nogil:
        cdef int result
        while not is_full(&self._batch.columns):
            if until_end_marker and self._is_ended:
                return READ_END
            result = self.next_message(self._end, self._end)
            if result == READ_END and not self._is_ended and not until_end_marker:
                self._is_ended = True
                return self.fail(FAILED_NO_END_MARKER, self._end, 0, 0)
            if result != READ_OK:
                return result
            result = self._decode_item()
            if result < 0:
                return result
        return READ_OK

    cdef int _decode_item(self) noexcept nogil:
        cdef sbe.MessageHeader header
        cdef int result
        if self._is_ended:
            self._put_payload(
                "SERVICE_DATA" if self._type_id == SNAPSHOT_TYPE_SERVICE else "EXTENSION_DATA", self.message,
                self.message_length)
            return READ_OK
        result = sbe.sbe_read_header(self.message, <size_t> self.message_length, &header)
        if result < 0:
            return self._refuse(result, UNKNOWN_TEMPLATE)
        if header.schema_id != codec.CLUSTER_SCHEMA_ID:
            return self._refuse(sbe.SBE_SCHEMA, header.template_id)
        if header.template_id == codec.SNAPSHOT_MARKER_TEMPLATE_ID:
            return self._decode_marker()
        if not self._is_begun:
            return self.fail(FAILED_NO_BEGIN_MARKER, self.begin_position, header.template_id, 0)
        if header.template_id == codec.CLIENT_SESSION_TEMPLATE_ID:
            return self._decode_client_session()
        if header.template_id == codec.CLUSTER_SESSION_TEMPLATE_ID:
            return self._decode_cluster_session()
        if header.template_id == codec.TIMER_TEMPLATE_ID:
            return self._decode_timer()
        if header.template_id == codec.CONSENSUS_MODULE_TEMPLATE_ID:
            return self._decode_consensus_module()
        if header.template_id == codec.PENDING_MESSAGE_TRACKER_TEMPLATE_ID:
            return self._decode_tracker()
        if header.template_id == codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID:
            return self._decode_pending_message()
        self._put_payload("UNKNOWN", self.message, self.message_length)
        return READ_OK

    cdef int _refuse(self, int result, int32_t template_id) noexcept nogil:
        return self.fail(FAILED_MESSAGE, self.begin_position, result, template_id)

    cdef void _put_item(self, const char* item) noexcept nogil:
        put_int64(&self._batch.columns, ITEM_INDEX, self._item_index)
        put_text(&self._batch.columns, ITEM, item)
        self._item_index += 1

    cdef void _put_payload(self, const char* item, const uint8_t* data, int64_t length) noexcept nogil:
        self._put_item(item)
        put_bytes(&self._batch.columns, PAYLOAD, data, length)
        end_row(&self._batch.columns)

    cdef int _decode_marker(self) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.SnapshotMarker marker
        cdef int64_t type_id, position
        cdef int32_t mark, time_unit
        cdef int result = codec.snapshot_marker_wrap(&marker, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.SNAPSHOT_MARKER_TEMPLATE_ID)
        type_id = codec.snapshot_marker_type_id(&marker)
        position = codec.snapshot_marker_log_position(&marker)
        mark = codec.snapshot_marker_mark(&marker)
        if mark == codec.SNAPSHOT_MARK_BEGIN and self._is_begun:
            return self.fail(FAILED_SECOND_BEGIN_MARKER, self.begin_position, 0, 0)
        if mark != codec.SNAPSHOT_MARK_BEGIN and not self._is_begun:
            return self.fail(FAILED_NO_BEGIN_MARKER, self.begin_position, codec.SNAPSHOT_MARKER_TEMPLATE_ID, 0)
        if not (type_id == self._type_id
                or self._type_id == NULL_VALUE and SNAPSHOT_TYPE_CONSENSUS_MODULE <= type_id <= SNAPSHOT_TYPE_SERVICE):
            return self.fail(
                FAILED_SNAPSHOT_TYPE, self.begin_position, type_id, max(self._type_id, <int64_t> SNAPSHOT_TYPE_SERVICE))
        if self._snapshot_position != NULL_VALUE and position != self._snapshot_position:
            return self.fail(FAILED_SNAPSHOT_POSITION, self.begin_position, position, self._snapshot_position)
        self._type_id = type_id
        self._snapshot_position = position
        self._leadership_term_id = codec.snapshot_marker_leadership_term_id(&marker)
        self._is_begun = True
        self._is_ended = mark == codec.SNAPSHOT_MARK_END
        self._put_item("MARKER")
        put_enum(batch, MARK, mark_name(mark), mark)
        time_unit = codec.snapshot_marker_time_unit(&marker)
        put_enum(batch, TIME_UNIT, time_unit_name(time_unit), time_unit)
        put_int32(batch, APP_VERSION, codec.snapshot_marker_app_version(&marker))
        end_row(batch)
        return READ_OK

    cdef int _decode_client_session(self) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.ClientSession session
        cdef int result = codec.client_session_wrap(&session, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.CLIENT_SESSION_TEMPLATE_ID)
        if not is_ascii(&session.response_channel):
            return self.fail(FAILED_TEXT, self.begin_position, codec.CLIENT_SESSION_TEMPLATE_ID, 0)
        self._put_item("CLIENT_SESSION")
        put_field64(batch, CLUSTER_SESSION_ID, codec.client_session_cluster_session_id(&session))
        put_field32(batch, RESPONSE_STREAM_ID, codec.client_session_response_stream_id(&session))
        put_var(batch, RESPONSE_CHANNEL, &session.response_channel)
        put_var(batch, ENCODED_PRINCIPAL, &session.encoded_principal)
        end_row(batch)
        return READ_OK

    cdef int _decode_cluster_session(self) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.ClusterSession session
        cdef int32_t reason
        cdef int result = codec.cluster_session_wrap(&session, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.CLUSTER_SESSION_TEMPLATE_ID)
        if not is_ascii(&session.response_channel):
            return self.fail(FAILED_TEXT, self.begin_position, codec.CLUSTER_SESSION_TEMPLATE_ID, 0)
        self._put_item("CLUSTER_SESSION")
        put_field64(batch, CLUSTER_SESSION_ID, codec.cluster_session_cluster_session_id(&session))
        put_field64(batch, CORRELATION_ID, codec.cluster_session_correlation_id(&session))
        put_field64(batch, OPENED_LOG_POSITION, codec.cluster_session_opened_log_position(&session))
        reason = codec.cluster_session_close_reason(&session)
        put_enum(batch, CLOSE_REASON, close_reason_name(reason), reason)
        put_field32(batch, RESPONSE_STREAM_ID, codec.cluster_session_response_stream_id(&session))
        put_var(batch, RESPONSE_CHANNEL, &session.response_channel)
        end_row(batch)
        return READ_OK

    cdef int _decode_timer(self) noexcept nogil:
        cdef codec.Timer timer
        cdef int result = codec.timer_wrap(&timer, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.TIMER_TEMPLATE_ID)
        self._put_item("TIMER")
        put_field64(&self._batch.columns, CORRELATION_ID, codec.timer_correlation_id(&timer))
        put_field64(&self._batch.columns, DEADLINE, codec.timer_deadline(&timer))
        end_row(&self._batch.columns)
        return READ_OK

    cdef int _decode_consensus_module(self) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.ConsensusModule module
        cdef int result = codec.consensus_module_wrap(&module, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.CONSENSUS_MODULE_TEMPLATE_ID)
        self._put_item("CONSENSUS_MODULE")
        put_field64(batch, NEXT_SESSION_ID, codec.consensus_module_next_session_id(&module))
        put_field64(batch, NEXT_SERVICE_SESSION_ID, codec.consensus_module_next_service_session_id(&module))
        put_field64(batch, LOG_SERVICE_SESSION_ID, codec.consensus_module_log_service_session_id(&module))
        put_int32(batch, PENDING_MESSAGE_CAPACITY, codec.consensus_module_pending_message_capacity(&module))
        end_row(batch)
        return READ_OK

    cdef int _decode_tracker(self) noexcept nogil:
        cdef Columns* batch = &self._batch.columns
        cdef codec.PendingMessageTracker tracker
        cdef int result = codec.pending_message_tracker_wrap(&tracker, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.PENDING_MESSAGE_TRACKER_TEMPLATE_ID)
        self._put_item("PENDING_MESSAGE_TRACKER")
        put_field64(batch, NEXT_SERVICE_SESSION_ID, codec.pending_message_tracker_next_service_session_id(&tracker))
        put_field64(batch, LOG_SERVICE_SESSION_ID, codec.pending_message_tracker_log_service_session_id(&tracker))
        put_int32(batch, PENDING_MESSAGE_CAPACITY, codec.pending_message_tracker_pending_message_capacity(&tracker))
        put_field32(batch, PENDING_SERVICE_ID, codec.pending_message_tracker_service_id(&tracker))
        end_row(batch)
        return READ_OK

    cdef int _decode_pending_message(self) noexcept nogil:
        """A message of a service to its cluster that was not yet in the log, or not yet committed there."""
        cdef Columns* batch = &self._batch.columns
        cdef codec.SessionMessageHeader message
        cdef int64_t appended
        cdef int result = codec.session_message_header_wrap(&message, self.message, <size_t> self.message_length)
        if result < 0:
            return self._refuse(result, codec.SESSION_MESSAGE_HEADER_TEMPLATE_ID)
        put_field64(batch, CLUSTER_SESSION_ID, codec.session_message_header_cluster_session_id(&message))
        appended = codec.session_message_header_timestamp(&message)
        if appended != INT64_MAX:
            put_field64(batch, APPENDED_LOG_POSITION, appended)
        self._put_payload(
            "PENDING_MESSAGE", self.message + codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET,
            self.message_length - codec.SESSION_MESSAGE_HEADER_PAYLOAD_OFFSET)
        return READ_OK


seal((SnapshotDecoder,))
