# One client session as the service sees it, and the sessions of a member in the order of their ids.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.service.event_handler cimport EventHandler
from container.transport.frames cimport BufferVector
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication


cdef struct WaitBudget:
    int64_t remaining_ns                    # below 0 after a wait that took longer than it might
    int64_t capacity_ns
    int64_t refill                          # divisor: this fraction of the time without waits comes back
    int64_t counted_ns                      # until when


cdef void refill(WaitBudget* budget, int64_t now_ns) noexcept


@cython.final
cdef class SendPatience:
    cdef Py_ssize_t session_count           # open sessions
    cdef WaitBudget _shared
    cdef WaitBudget _lone
    cdef WaitBudget* refilled(self, int64_t now_ns) noexcept    # the budget that counts now, to be charged with a wait


@cython.final
cdef class ContainerClientSession:
    cdef readonly int64_t id
    cdef readonly int32_t response_stream_id
    cdef readonly str response_channel
    cdef readonly bytes encoded_principal
    cdef readonly bint is_closing
    cdef EventHandler _cluster
    cdef Publication _publication           # None while not connected
    cdef PendingAdd _pending                # what the driver has been asked for and has not answered, or None
    cdef int64_t _connect_deadline_ns       # until then a send waits for the client to subscribe
    cdef int64_t _patient_from_ns           # before then a send tries once
    cdef int64_t _back_off_ns               # the last pause between two waits; 0 when there was none
    cdef SendPatience _patience             # of all sessions; None until it is one of them
    cdef bint _is_connecting                # the driver's answer is waited for, asked or not yet
    cdef size_t _max_length                 # of a message: no member's publication on this channel carries more
    cdef Py_ssize_t _max_claim_length
    cdef int _set_limits(self) except -1
    cdef void _begin_connecting(self, int64_t now_ns) noexcept
    # Ask the driver once. RegistrationError, and what else it refuses with, is the caller's.
    cdef bint _is_connected(self, Client client, int64_t now_ns) except -1
    cdef PendingAdd _take_pending(self)
    cdef void _mark_closing(self, bint is_closing) noexcept
    cdef Publication _take_publication(self)
    # For services in Cython; vectors[0] is left free for the session header. Results as Publication.offer.
    cdef int64_t offer_vectors(self, BufferVector* vectors, size_t count) except? -6
    cdef int64_t offer_bytes(self, const uint8_t* data, size_t length) except? -6
    cdef int64_t send_vectors(self, BufferVector* vectors, size_t count) except? -6
    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6
    cdef int64_t _send_again(self, BufferVector* vectors, size_t count, int64_t result) except? -6
    cdef bint _is_worth_waiting(self, int64_t result, int64_t now_ns) noexcept
    cdef void _back_off(self, int64_t begin_ns, int64_t now_ns) noexcept
    cdef int64_t _offer(self, BufferVector* vectors, size_t count, bint is_patient) except? -6
    cdef int64_t _offer_one(self, object buffer, bint is_patient) except? -6
    cdef int64_t _offer_all(self, tuple buffers, bint is_patient) except? -6


@cython.final
cdef class ClientSessions:
    cdef list _sessions                     # in ascending order of ids
    cdef int64_t* _ids                      # the same order; owned
    cdef list _told                         # in the order in which they are listed and written
    cdef Py_ssize_t _capacity
    cdef SendPatience _patience
    cdef ContainerClientSession _last       # whom the last look-up found
    cdef Py_ssize_t _index_of(self, int64_t cluster_session_id) noexcept    # < 0: -(insertion point) - 1
    cdef int _tell(self, ContainerClientSession session) except -1
    cdef ContainerClientSession _find(self, int64_t cluster_session_id)
    cdef inline ContainerClientSession get(self, int64_t cluster_session_id):       # None where there is none
        if self._last is not None and self._last.id == cluster_session_id:
            return self._last
        return self._find(cluster_session_id)
    cdef int add(self, ContainerClientSession session) except -1
    cdef ContainerClientSession remove(self, int64_t cluster_session_id)
