# The session messages of one part of the log, for services that take many at once.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from container.service.event_handler cimport EventHandler
from container.transport.message_buffer cimport MessageBuffer


cdef class Int64Column:
    cdef int64_t* _data                     # owned
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _stride
    cdef int _append(self, int64_t value) except -1
    cdef bint _is_kept(self) noexcept       # somebody beside the one owner refers to it; a view of it does


cdef class SessionMessages:
    cdef EventHandler _cluster
    cdef Int64Column _session_ids
    cdef Int64Column _positions
    cdef Int64Column _timestamps
    cdef Int64Column _offsets               # one more than messages
    cdef MessageBuffer _payloads
    cdef list _sessions
    cdef Py_ssize_t _count
    cdef Py_ssize_t _current                # the message that an iteration is at; -1 before one, _count after one
    cdef unsigned long _thread              # that it is delivered on; 0 when it is not
    cdef void _end(self) noexcept           # after the callback
    cdef int _append(self, object session, int64_t session_id, int64_t log_position, int64_t timestamp,
                     const uint8_t* data, size_t length) except -1
    cdef bint _is_full(self) noexcept
    cdef int _begin(self) except -1         # before the callback: the cluster is at the last message
    cdef bint _is_left_early(self) noexcept     # the callback has returned, and its iteration is not at the end
    cdef bint _is_at_a_message(self) noexcept
    cdef int64_t _current_session_id(self) noexcept     # of that message
    cdef size_t _current_length(self) noexcept
    cdef SessionMessages _rest(self)        # a new one with what follows the message that the iteration is at
    cdef Py_ssize_t _at(self, Py_ssize_t index) except -1
    cdef SessionMessages _emptied(self)     # itself without messages, or a new one if somebody else refers to it


@cython.final
cdef class SessionMessagesIterator:
    cdef SessionMessages _messages          # None at the end
    cdef Py_ssize_t _at


cdef SessionMessages new_session_messages(EventHandler cluster)
