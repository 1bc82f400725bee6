# A client of another archive, as a state machine that never waits.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.clocks cimport Clock
from container.transport.frames cimport FrameHeader
from container.transport.seam cimport Client
from container.transport.streams cimport FragmentHandler, PendingAdd, Publication, Subscription


cdef enum Step:                             # the order of their names in async_archive.pyx
    ADD_STREAMS
    AWAIT_PUBLICATION_CONNECTED
    RESOLVE_RESPONSE_CHANNEL
    AWAIT_CONNECT_RESPONSE
    AWAIT_ARCHIVE_ID_RESPONSE
    SEND_KEEP_ALIVE
    CONNECTED
    CLOSED


cdef class SignalListener:
    # signal: a RecordingSignal. What it raises is raised by the poll, which has consumed the message.
    cdef int on_signal(self, int64_t correlation_id, int64_t recording_id, int64_t position, int32_t signal) except -1


cdef class AsyncArchive(FragmentHandler):
    cdef readonly int64_t control_session_id    # NULL_VALUE until the archive gave one
    cdef readonly int64_t archive_id            # NULL_VALUE of an archive before 1.11
    cdef readonly int64_t request_id            # correlation id of the last request; errors that come later have it too
    cdef readonly int64_t relevant_id           # of the last answer
    cdef readonly object descriptor             # of the last answer: RecordingDescriptor; None: there is none
    cdef readonly str control_channel
    cdef readonly int32_t control_stream_id
    cdef Client _client
    cdef Clock _clock
    cdef object _response_uri                   # ChannelUri
    cdef int32_t _response_stream_id
    cdef bint _is_response_mode
    cdef str _client_name
    cdef bytes _credentials
    cdef int64_t _message_timeout_ns
    cdef Step _step
    cdef PendingAdd _pending
    cdef bint _is_pending_subscription
    cdef Subscription _subscription
    cdef Publication _publication
    cdef SessionFragmentAssembler _assembler
    cdef SignalListener _listener               # None: signals are passed over
    # The request that is to be sent, or waits for its answer.
    cdef bytearray _request                     # None once it was sent
    cdef Publication _request_publication       # None: the session's own
    cdef int64_t _correlation_id                # NULL_VALUE: none waits
    cdef int64_t _deadline_ns
    cdef str _what
    # The message that was read last.
    cdef bint _has_message
    cdef int64_t _message_session_id
    cdef int64_t _message_correlation_id
    cdef int32_t _message_code
    cdef int32_t _message_version
    cdef int64_t _message_relevant_id
    cdef str _message_text
    cdef object _message_descriptor
    cdef bint _is_challenge

    cpdef bint poll(self) except -1
    cpdef int list_recording(self, int64_t recording_id) except -1
    cpdef int recording_position(self, int64_t recording_id) except -1
    cpdef int replay_token(self, int64_t recording_id) except -1
    cpdef int replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id,
        int32_t file_io_max_length, int64_t replay_token=*, Publication publication=*) except -1
    cpdef int start_recording(self, str channel, int32_t stream_id, bint is_local, bint is_auto_stop) except -1
    cpdef int extend_recording(
        self, int64_t recording_id, str channel, int32_t stream_id, bint is_local, bint is_auto_stop) except -1
    cpdef int stop_recording(self, int64_t subscription_id) except -1
    cpdef int stop_recording_by_identity(self, int64_t recording_id) except -1
    cpdef int stop_position(self, int64_t recording_id) except -1
    cpdef int purge_recording(self, int64_t recording_id) except -1
    cpdef int purge_segments(self, int64_t recording_id, int64_t new_start_position) except -1
    cpdef int stop_replay(self, int64_t replay_session_id) except -1
    cpdef int close(self) except -1
    cdef bint is_connected(self) noexcept
    cdef bint is_waiting(self) noexcept
    cdef bint is_alive(self) noexcept
    cdef int listen(self, SignalListener listener) except -1
    cdef bint _connect(self) except -1
    cdef bint _add_streams(self) except -1
    cdef PendingAdd _begin_add(self)
    cdef bint _begin_connect(self) except -1
    cdef bint _on_connect_response(self) except -1
    cdef int _time_out(self) except -1
    cdef int64_t _begin(self, str what) except? -1
    cdef bint _exchange(self) except -1
    cdef bint _on_message(self) except -1
    cdef int _read(self) except -1
    cdef object _lost(self, str what)
    cdef bint _try_send(self, Publication publication, bytearray request) except -1
    cdef int _send_unanswered(self, bytearray request) except -1
    cdef int _on_control_response(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_signal(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_descriptor(self, const uint8_t* buffer, size_t length) except -1
