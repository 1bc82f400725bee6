# A snapshot of a consensus module, as messages.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.codecs.sbe cimport MessageHeader
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.consensus.session_manager cimport SessionManager
from container.consensus.timer_service cimport TimerService
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Image


cdef list snapshot_messages(
    SessionManager sessions, TimerService timers, list trackers, int64_t log_position, int64_t leadership_term_id,
    int32_t time_unit, int32_t app_version)


cdef class SnapshotAdapter(FragmentHandler):
    cdef readonly bint is_done                  # the whole snapshot was read
    cdef readonly int32_t time_unit             # of the beginning
    cdef readonly int32_t app_version
    cdef Image _image
    cdef ConsensusEventHandler _handler
    cdef FragmentAssembler _assembler
    cdef bint _is_begun
    cdef int poll(self) except -1
    cdef int _on_marker(self, const uint8_t* buffer, size_t length) except -1
    cdef int _dispatch(self, const MessageHeader* message, const uint8_t* buffer, size_t length) except -1
