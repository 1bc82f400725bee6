# The streams that a client of an archive works with: publications that are recorded, and replays.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveConnection
from container.transport.fragment_assembler cimport BytesAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Image, PendingAdd, Publication, Subscription
from container.transport.transport_seam cimport Client


cdef class RecordedPublication:
    cdef Client _client
    cdef Publication _publication


cdef class Messages(FragmentHandler):
    cdef object _on_message                 # is called with each message (bytes) and its end (int)
    cdef BytesAssembler _assembler
    cdef int64_t _position
    cdef int poll(self, Image image, object on_message, int limit) except -1


cdef Messages new_messages()


cdef class Replay:
    cdef readonly int64_t replay_session_id
    cdef readonly int32_t session_id
    cdef Client _client
    cdef Subscription _subscription
    cdef Image _image                       # None: it has not come yet
    cdef Messages _messages
    cdef int64_t _limit_ns
    cdef int64_t _deadline_ns               # of its coming
    cdef int _find(self) except -1


cdef class StreamAdd:
    cdef ArchiveConnection _connection
    cdef PendingAdd _pending
    cdef int64_t _replay_session_id
    cdef bint _is_replay
    cpdef object poll(self)
