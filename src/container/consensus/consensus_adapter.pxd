# Decodes the consensus stream of a member.
from libc.stdint cimport int32_t, uint8_t

from container.codecs.sbe cimport MessageHeader
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription


cdef class ConsensusAdapter(FragmentHandler):
    cdef Subscription _subscription
    cdef ConsensusEventHandler _handler
    cdef ClusterMembers _members
    cdef SessionFragmentAssembler _assembler
    cdef bytes _list                            # of members, as this one has it
    cdef dict _other_lists                      # the first few of a member that differ, by its id
    cpdef int poll(self) except -1
    cdef int forget_lost(self) except -1        # what publishers began to send that are gone
    cpdef int close(self) except -1
    # These return whether the message is one of theirs.
    cdef bint _dispatch_position(self, int template_id, const uint8_t* buffer, size_t length) except -1
    cdef bint _dispatch_election(self, int template_id, const uint8_t* buffer, size_t length) except -1
    cdef bint _dispatch_end(self, int template_id, const uint8_t* buffer, size_t length) except -1
    cdef int _on_new_leadership_term(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_catchup_position(self, const uint8_t* buffer, size_t length) except -1
    cdef bint _is_from(self, int32_t member_id, str message) except -1
    cdef int _check_list(
        self, int32_t member_id, int32_t protocol_version, const uint8_t* buffer, size_t length) except -1
    cdef bint _is_for(self, int32_t member_id, str message) except -1
    cdef int _dispatch_request(
        self, const MessageHeader* message, const uint8_t* buffer, size_t length, Image image) except -1
    cdef int _on_standby_snapshot(self, const uint8_t* buffer, size_t length, Image image) except -1
