# The seam, streams: images, publications and what handles fragments, each of which a transport implements.
#
# `aeron/` does over a media driver, `testing/memory/memory_transport.pyx` over memory. Calls that can be made a million
# times a second are `noexcept nogil` or have a C error return.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.frames cimport BufferVector, Claim, FrameHeader


cdef class FragmentHandler:
    # buffer: payload after the frame header, borrowed until the call returns. Return an Action. An exception ends the
    # poll with the frame consumed (as if ACTION_BREAK) and is raised by the poll.
    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1


cdef class BlockHandler:
    # block: frames of one term with their headers, aligned to 32 bytes, borrowed until the call returns. They are whole
    # data frames, or one padding frame: its length is all of it, and nothing is behind its header. An exception ends
    # the poll with the block consumed and is raised by the poll.
    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1


cdef class Image:
    cdef readonly int32_t session_id
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t term_buffer_length
    cdef readonly int32_t mtu_length
    cdef readonly int64_t join_position
    cdef readonly int64_t correlation_id                    # another one when the session comes back
    cdef readonly str source_identity                       # a UDP sender's "host:port", else "aeron:ipc": of spies too
    cdef int64_t position(self) noexcept
    cdef int64_t end_of_stream_position(self) noexcept      # INT64_MAX while not known
    cdef bint is_end_of_stream(self) noexcept
    cdef bint is_closed(self) noexcept
    cdef int active_transport_count(self) noexcept          # UDP senders heard lately; 0 for IPC and once closed
    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1
    # Frames that begin below limit_position are delivered whole; a poll never crosses the end of a term.
    cdef int bounded_controlled_poll(
        self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1
    # Bytes consumed: at most one block, which ends at the limit, before a padding frame or with its term. A padding
    # frame comes alone, whatever its length; a data frame longer than the limit never comes.
    cdef int block_poll(self, BlockHandler handler, int block_length_limit) except -1
    # The driver gives the publication's image up, for all its subscribers; nothing once the image is closed.
    cpdef int reject(self, str reason) except -1


cdef class Subscription:
    cdef readonly str channel
    cdef readonly int32_t stream_id
    cdef readonly int64_t registration_id
    cdef bint is_connected(self) noexcept
    cdef bint is_closed(self) noexcept
    cdef int image_count(self) noexcept
    cdef Image image_at_index(self, int index)              # None when there is none
    cdef Image image_by_session_id(self, int32_t session_id)
    # Each image once, in the order in which they came, or None. Only where the add asked for it. One that has gone in
    # the meantime comes too, closed at its join position: so whoever asks in each duty cycle misses none.
    cdef Image take_new_image(self)
    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1
    cdef str resolved_endpoint(self)                        # "host:port" of a UDP endpoint, "" until bound
    # For a channel with control-mode=manual. poll() returns the subscription when it is done.
    cdef PendingAdd begin_add_destination(self, str channel)
    cdef PendingAdd begin_remove_destination(self, str channel)
    cpdef int close(self) except -1                         # may be called twice


cdef class Publication:
    cdef readonly str channel
    cdef readonly int32_t stream_id
    cdef readonly int32_t session_id
    cdef readonly int64_t registration_id
    cdef readonly int32_t max_payload_length                # of one frame: MTU - 32
    cdef readonly int32_t max_message_length
    cdef readonly int32_t term_buffer_length
    cdef readonly int32_t initial_term_id
    cdef bint is_connected(self) noexcept
    cdef bint is_closed(self) noexcept
    cdef int64_t position(self) noexcept
    # New position, or one of the results above. PUBLICATION_ERROR: the arguments are refused (message too long).
    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6
    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6
    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6
    # ClaimLostError when the driver has given the claim up. An abort of such a claim does nothing.
    cdef int commit(self, Claim* claim) except -1
    cdef int abort(self, Claim* claim) except -1
    cdef int64_t available_window(self) noexcept            # bytes until BACK_PRESSURED: 0 or less when it is; CLOSED
    # As of a subscription. poll() returns the publication.
    cdef PendingAdd begin_add_destination(self, str channel)
    cdef PendingAdd begin_remove_destination(self, str channel)
    # These are of exclusive publications alone. A block is whole data frames, each with the header that it has at its
    # place in the stream: it continues the term, or begins the next one when that is full. It may go beyond the window.
    # AeronError, with nothing sent, when a header is wrong or the term has no room for it.
    cdef int64_t offer_block(self, const uint8_t* block, size_t length) except? -6
    # A padding frame of 32 + length bytes, in place of one that was recorded. ADMIN_ACTION when the term is full: call
    # again. AeronError when the rest of the term is shorter.
    cdef int64_t append_padding(self, size_t length) except? -6
    cpdef int revoke(self) except -1                        # close; what is not read yet is never read
    cpdef int close(self) except -1                         # may be called twice


cdef class PendingAdd:                                      # what the driver has been asked to add or to remove
    # The added resource, or the one with the destination; None until the driver answers. Raises if it refuses. Never
    # waits, unless the driver must be asked again. A client in invoker mode must be invoked meanwhile.
    cdef object poll(self)
    cpdef int close(self) except -1                         # gives it up; nothing once poll() returned it or raised


cdef object lost_claim(Publication publication)     # the error for the caller to raise


# Raise as offer_block and append_padding do for a publication at this position.
cdef int check_block(Publication publication, int64_t position, const uint8_t* block, size_t length) except -1
cdef int check_padding(Publication publication, int64_t position, size_t length) except -1


cdef str publication_result_name(int64_t result)
