# The protocol between an archive and one of its clients, as a state machine that never waits.
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from container.transport.clocks cimport Clock
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.transport_seam cimport Client
from container.transport.streams cimport FragmentHandler, PendingAdd, Publication, Subscription
from container.transport.wait_reporter cimport WaitReporter


cdef enum Step:                             # the order of their names in archive_connection.pyx
    ADD_STREAMS
    AWAIT_PUBLICATION_CONNECTED
    RESOLVE_RESPONSE_CHANNEL
    SEND_CONNECT_REQUEST
    AWAIT_SUBSCRIPTION_CONNECTED
    AWAIT_CONNECT_RESPONSE
    AWAIT_ARCHIVE_ID_RESPONSE
    SEND_KEEP_ALIVE
    CONNECTED
    CLOSED


cdef class ArchiveRequest:
    cdef readonly int64_t correlation_id
    cdef readonly str what
    cdef readonly bint is_done
    cdef readonly int64_t relevant_id       # of the answer
    cdef readonly int32_t code              # CONTROL_RESPONSE_CODE_*; NULL_VALUE: there was no such answer
    cdef readonly list items                # descriptors that came
    cdef readonly object error              # exception; None: it was answered as it should be, or it waits
    cdef public object on_done              # is called with the request when it is done; None: nobody is
    cdef bytes _message                     # None once it was sent
    cdef Publication _publication           # on which it is sent
    cdef int64_t _timeout_ns
    cdef int64_t _deadline_ns
    cdef int32_t _wanted                    # maximum number of descriptors; 0: the answer is not a descriptor
    cdef int32_t _end_code                  # of the answer when fewer come
    cdef bint _is_replication               # what the archive says of it later has the id that it answers


cdef class ArchiveConnection(FragmentHandler):
    cdef readonly object context            # ArchiveClientContext
    cdef readonly int64_t control_session_id    # NULL_VALUE until the archive gave one
    cdef readonly int64_t archive_id        # NULL_VALUE of an archive before 1.11
    cdef readonly str control_channel
    cdef readonly int32_t control_stream_id
    cdef public object on_signal            # is called with each RecordingSignalEvent; None: they are skipped
    cdef Client _client
    cdef Clock _clock
    cdef object _response_uri               # ChannelUri
    cdef bint _is_response_mode
    cdef Step _step
    cdef str _what                          # the step waits for
    cdef int64_t _connect_deadline_ns
    cdef PendingAdd _pending
    cdef bint _is_pending_subscription
    cdef Subscription _subscription
    cdef Publication _publication
    cdef SessionFragmentAssembler _assembler
    cdef ArchiveRequest _connecting         # the connect's own request
    cdef bytes _challenge                   # in place of its answer
    cdef int32_t _archive_version
    cdef dict _requests                     # correlation id -> ArchiveRequest that is not done
    cdef object _unsent                     # deque of requests not sent yet, and some that are done
    cdef list _deadlines                    # heap of (deadline, correlation id), of some that are done as well
    cdef object _errors                     # deque of what answers no request
    cdef object _given_up                   # deque of correlation ids that were sent, and whose answers do not count
    cdef dict _followed                     # correlation id -> ArchiveRequest whose later errors are its own
    cdef bint _is_reading

    cdef bint is_alive(self) noexcept                       # whether both streams of the session are connected
    cpdef int turn(self) except -1
    cpdef ArchiveRequest ask(
        self, str name, str what, dict fields, int32_t wanted=*, int64_t timeout_ns=*, Publication publication=*)
    cpdef int tell(self, str name, dict fields) except -1
    cpdef int follow(self, ArchiveRequest request) except -1
    cpdef int forget(self, ArchiveRequest request) except -1
    cpdef object take_error(self)
    cpdef int check(self) except -1
    cpdef int reconnect(self) except -1
    cpdef int close(self) except -1
    cpdef int invoke(self) except -1
    cpdef int idle(self, IdleStrategy idle, int work_count) except -1
    cpdef int connect(self, IdleStrategy idle) except -1
    cpdef ArchiveRequest wait_for(self, ArchiveRequest request, IdleStrategy idle)
    cdef int _begin_connect(self) except -1
    cdef int _connect(self) except -1
    cdef bint _add_streams(self) except -1
    cdef PendingAdd _begin_add(self)
    cdef bint _resolve(self) except -1
    cdef int _request_session(self) except -1
    cdef int _on_connect_response(self) except -1
    cdef ArchiveRequest _begin(
        self, str name, str what, dict fields, int32_t wanted, int64_t timeout_ns, Publication publication)
    cdef int _expire(self) except -1
    cdef int _send(self) except -1
    cdef int _read(self) except -1
    cdef int _give_up(self, ArchiveRequest request, object error) except -1
    cdef int _check_not_reading(self) except -1
    cdef int _finish(self, ArchiveRequest request, object error) except -1
    cdef object _lost(self, str what)
    cdef bint _try_send(self, Publication publication, bytes message) except -1
    cdef int _leave(self, object reason) except -1
    cdef int _on_control_response(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_item(self, int64_t control_session_id, int64_t correlation_id, object item) except -1
    cdef int _on_signal(self, const uint8_t* buffer, size_t length) except -1


cdef inline int64_t deadline_after(int64_t now_ns, int64_t limit_ns) noexcept:
    return now_ns + limit_ns if limit_ns < INT64_MAX - max(now_ns, 0) else INT64_MAX


cdef class Wait:
    cdef Client _client
    cdef IdleStrategy _idle
    cdef int64_t _limit_ns
    cdef int64_t _deadline_ns
    cdef str _what
    cdef WaitReporter _reporter
    cdef int begin(self, str what) except -1    # the next step: what is awaited from now on
    cdef int turn(self, int work_count) except -1
