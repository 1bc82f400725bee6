"""The seam, streams: abstract images, subscriptions and publications, and the helpers that all transports share."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.errors import AeronError, ClaimLostError
from container.transport.abstract cimport abstract
from container.transport.frames cimport (
    ADMIN_ACTION, BACK_PRESSURED, CLOSED, FRAME_HEADER_LENGTH, FRAME_TYPE_DATA, MAX_POSITION_EXCEEDED, NOT_CONNECTED,
    NULL_VALUE,
    BufferVector, Claim, DataFrame, FrameHeader, align_frame,
)


cdef object lost_claim(Publication publication):
    return ClaimLostError(
        f"a claim of {publication.channel} stream {publication.stream_id} is lost: it was open for "
        "so long that the media driver gave it up and continued (after aeron.publication.unblock.timeout, 15 s by "
        "default); commit sooner, or offer the message")


cdef int check_block(Publication publication, int64_t position, const uint8_t* block, size_t length) except -1:
    cdef int64_t term_length = publication.term_buffer_length
    cdef int32_t begin = <int32_t> (position & (term_length - 1))
    cdef int32_t term_id = <int32_t> (<uint32_t> publication.initial_term_id + <uint32_t> (position // term_length))
    cdef int32_t max_length = FRAME_HEADER_LENGTH + publication.max_payload_length
    cdef size_t offset = 0
    cdef const DataFrame* frame
    if length == 0 or length % FRAME_HEADER_LENGTH != 0 or length > <size_t> (term_length - begin):
        raise AeronError(
            f"a block of {length} bytes cannot follow position {position} of {publication.channel} stream "
            f"{publication.stream_id}: give whole frames, at most the {term_length - begin} bytes to the term's end")
    while offset < length:
        frame = <const DataFrame*> (block + offset)
        if (frame.frame_length < FRAME_HEADER_LENGTH or frame.frame_length > max_length
                or <size_t> align_frame(frame.frame_length) > length - offset
                or frame.type != FRAME_TYPE_DATA or frame.term_offset != begin + <int32_t> offset
                or frame.term_id != term_id or frame.session_id != publication.session_id
                or frame.stream_id != publication.stream_id):
            raise AeronError(
                f"a block for {publication.channel} stream {publication.stream_id} has a wrong frame at {offset} of "
                f"{length} bytes: length {frame.frame_length} (at most {max_length}), type {frame.type} "
                f"({<int> FRAME_TYPE_DATA}), term offset {frame.term_offset} ({begin + <int32_t> offset}), term id "
                f"{frame.term_id} ({term_id}), session id {frame.session_id} ({publication.session_id}), stream id "
                f"{frame.stream_id} ({publication.stream_id}); what it must be is in parentheses")
        offset += <size_t> align_frame(frame.frame_length)
    return 0


cdef int check_padding(Publication publication, int64_t position, size_t length) except -1:
    cdef int64_t term_length = publication.term_buffer_length
    cdef int64_t remaining = term_length - (position & (term_length - 1))       # of the next one, where one is full
    if length > <size_t> (remaining - FRAME_HEADER_LENGTH):
        raise AeronError(
            f"a padding frame of {length} bytes and its header cannot follow position {position} of "
            f"{publication.channel} stream {publication.stream_id}: the rest of the term is {remaining} bytes")
    return 0


cdef str publication_result_name(int64_t result):
    """Aeron's name of a negative result of an offer."""
    if result == NOT_CONNECTED:
        return "NOT_CONNECTED"
    if result == BACK_PRESSURED:
        return "BACK_PRESSURED"
    if result == ADMIN_ACTION:
        return "ADMIN_ACTION"
    if result == CLOSED:
        return "CLOSED"
    if result == MAX_POSITION_EXCEEDED:
        return "MAX_POSITION_EXCEEDED"
    return str(result)


cdef class FragmentHandler:
    """Receives the payload of frames, or of reassembled messages, from a poll."""

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        raise abstract(self, "on_fragment")


cdef class BlockHandler:
    """Receives the frames of an image as they lie in its log, with their headers, from a block poll."""

    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
        raise abstract(self, "on_block")


cdef class Image:
    """One publisher's stream as a subscription sees it, consumed in order by polls."""

    cdef int64_t position(self) noexcept:
        return NULL_VALUE

    cdef int64_t end_of_stream_position(self) noexcept:
        return NULL_VALUE

    cdef bint is_end_of_stream(self) noexcept:
        return True

    cdef bint is_closed(self) noexcept:
        return True

    cdef int active_transport_count(self) noexcept:
        return 0

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        raise abstract(self, "controlled_poll")

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        raise abstract(self, "bounded_controlled_poll")

    cdef int block_poll(self, BlockHandler handler, int block_length_limit) except -1:
        raise abstract(self, "block_poll")

    cpdef int reject(self, str reason) except -1:
        """Have the driver give the publication's image up, for all its subscribers; ``reason`` (str) is for its log.

        Does nothing once the image is closed.
        """
        raise abstract(self, "reject")

    def __repr__(self):
        return (f"<{type(self).__name__} session_id={self.session_id} join_position={self.join_position} "
                f"position={self.position()} closed={bool(self.is_closed())}>")


cdef class Subscription:
    """Receives the images of one channel and stream id."""

    cdef bint is_connected(self) noexcept:
        return False

    cdef bint is_closed(self) noexcept:
        return True

    cdef int image_count(self) noexcept:
        return 0

    cdef Image image_at_index(self, int index):
        raise abstract(self, "image_at_index")

    cdef Image image_by_session_id(self, int32_t session_id):
        raise abstract(self, "image_by_session_id")

    cdef Image take_new_image(self):
        raise abstract(self, "take_new_image")

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        raise abstract(self, "controlled_poll")

    cdef str resolved_endpoint(self):
        raise abstract(self, "resolved_endpoint")

    cdef PendingAdd begin_add_destination(self, str channel):
        raise abstract(self, "begin_add_destination")

    cdef PendingAdd begin_remove_destination(self, str channel):
        raise abstract(self, "begin_remove_destination")

    cpdef int close(self) except -1:
        raise abstract(self, "close")

    def __repr__(self):
        return f"<{type(self).__name__} {self.channel} stream_id={self.stream_id}>"


cdef class Publication:
    """Appends messages to one channel and stream id."""

    cdef bint is_connected(self) noexcept:
        return False

    cdef bint is_closed(self) noexcept:
        return True

    cdef int64_t position(self) noexcept:
        return CLOSED

    cdef int64_t offer(self, const uint8_t* buffer, size_t length) except? -6:
        raise abstract(self, "offer")

    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6:
        raise abstract(self, "offer_vectors")

    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6:
        raise abstract(self, "try_claim")

    cdef int commit(self, Claim* claim) except -1:
        raise abstract(self, "commit")

    cdef int abort(self, Claim* claim) except -1:
        raise abstract(self, "abort")

    cdef int64_t available_window(self) noexcept:
        return CLOSED

    cdef PendingAdd begin_add_destination(self, str channel):
        raise abstract(self, "begin_add_destination")

    cdef PendingAdd begin_remove_destination(self, str channel):
        raise abstract(self, "begin_remove_destination")

    cdef int64_t offer_block(self, const uint8_t* block, size_t length) except? -6:
        raise abstract(self, "offer_block")

    cdef int64_t append_padding(self, size_t length) except? -6:
        raise abstract(self, "append_padding")

    cpdef int revoke(self) except -1:
        """Close an exclusive publication; what subscribers have not read yet they never read."""
        raise abstract(self, "revoke")

    cpdef int close(self) except -1:
        raise abstract(self, "close")

    def __repr__(self):
        return (f"<{type(self).__name__} {self.channel} stream_id={self.stream_id} "
                f"session_id={self.session_id}>")


cdef class PendingAdd:
    """A request to the driver to add or remove something, until it answers."""

    cdef object poll(self):
        raise abstract(self, "poll")

    cpdef int close(self) except -1:
        raise abstract(self, "close")
