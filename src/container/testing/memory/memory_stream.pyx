"""A publication as a driver in memory knows it: its log, who shares it, who subscribes, how far it may go."""
from libc.stdint cimport INT64_MAX, int64_t

from container.common.sealed cimport hide
from container.testing.memory.memory_log cimport MemoryImage, ReaderListener
from container.transport.frames cimport BACK_PRESSURED, FRAME_HEADER_LENGTH, MAX_POSITION_EXCEEDED, NOT_CONNECTED


cdef class StreamSender:
    """Sends what is appended to a stream; the rules of UDP decide about positions, and images are spies."""

    cdef bint is_connected(self) noexcept:
        return False

    cdef int64_t limit(self) noexcept:
        return self.position

    cdef int64_t release_position(self) noexcept:
        return self.position

    cdef int on_append(self) except -1:
        return 0


cdef class MemoryStream(ReaderListener):
    """The state of one stream, shared by the publications of all clients that added it.

    It is the listener of its images except spies, of which upstream's driver knows neither transports nor rejections.
    """

    cdef int on_reject(self) except -1:
        self._is_rejected = True
        return 0

    cdef int transport_count(self) noexcept:
        return 0 if self.channel.is_ipc else 1

    cdef int64_t admit(self, size_t length) except? -6:
        cdef int64_t position
        if self._script:
            result = self._script.pop(0)
            if isinstance(result, BaseException):
                raise result
            if result is not None:
                return result
        position = self.log.position()
        if position < self._limit():
            return 0
        if position + <int64_t> length + FRAME_HEADER_LENGTH >= self.log.max_possible_position:
            return MAX_POSITION_EXCEEDED
        return BACK_PRESSURED if self.is_connected() else NOT_CONNECTED

    cdef bint is_connected(self) noexcept:
        return len(self._images) > 0 if self.sender is None else self.sender.is_connected()

    cdef int64_t join_position(self) noexcept:
        # Upstream's IpcPublication.joinPosition: where the slowest subscriber is, or the furthest has been.
        cdef MemoryImage image
        cdef int64_t position
        for image in self._images:
            self._consumer_position = max(self._consumer_position, image.position())
        if self.sender is not None:
            return self.sender.position                     # where a spy joins
        position = self._consumer_position
        for image in self._images:
            position = min(position, image.position())
        return position

    cdef int64_t _limit(self) noexcept:
        if self.sender is not None:
            return self.sender.limit()
        if self._images and self._window_length == 0:
            return INT64_MAX
        return self.join_position() + (self._window_length if self._images else 0)

    cdef int release_terms(self) except -1:
        cdef MemoryImage image
        cdef int64_t position
        if self.sender is None:
            return self.log.release_before(self.join_position())
        position = self.sender.release_position()
        for image in self._images:
            position = min(position, image.position())
        return self.log.release_before(position)

    cdef bint is_drained(self) noexcept:
        cdef MemoryImage image
        for image in self._images:
            if not image.is_end_of_stream():
                return False
        return True


hide((StreamSender, MemoryStream))
