# Log in: polls up to the commit position, reassembles, dispatches by template id.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from container.service.event_handler cimport EventHandler
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.clocks cimport Clock
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription

cdef enum:
    POLL_TIME_LIMIT_NS = 100_000_000


@cython.final
cdef class BoundedLogAdapter(FragmentHandler):
    cdef EventHandler _handler
    cdef FragmentAssembler _assembler
    cdef Subscription _subscription
    cdef Image _image                       # None when no log is joined
    cdef int64_t max_log_position           # where the current image counts as finished; never a poll limit
    cdef int64_t event_position             # after the last message that was not a session message
    cdef int _event_template_id             # of that message; -1 when it has no head that is one
    cdef int _fragment_limit
    cdef Clock _clock
    cdef int64_t _poll_end_ns
    cdef int64_t _event_begin_ns            # when the message before the current one was done
    cdef bint is_slow                       # the last poll ended as its time was over
    cdef int _slow_template_id              # of the message with which it was
    cdef void join(self, Subscription subscription, Image image, int64_t max_log_position) noexcept
    cdef bint is_joined(self) noexcept
    cdef bint is_done(self) noexcept
    cdef int64_t position(self) noexcept
    cdef str slow_callback(self)            # with which the last poll came to its end; "" for one that may be slow
    cdef str event_name(self)               # what kind of message that was, as upstream names it
    cdef int poll(self, int64_t limit) except -1
    cdef Subscription leave(self)           # the subscription, for the caller to close
    cdef int _on_event(
        self, int template_id, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1
    cdef int _on_session_open(self, const uint8_t* buffer, size_t length, int64_t log_position) except -1
    cdef int _on_session_close(self, const uint8_t* buffer, size_t length, int64_t log_position) except -1
    cdef int _on_action(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_new_term(self, const uint8_t* buffer, size_t length) except -1
