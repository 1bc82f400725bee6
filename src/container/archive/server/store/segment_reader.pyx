"""Reads a recording back, frame by frame, across terms and segments: for replays.

Upstream: ReplaySession.java. Each header is compared with what its position demands, so that bytes that are not a frame
of this place are never sent for one.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from container.archive.server.store.layout cimport (
    FRAME_ALIGNMENT, FRAME_HEADER_LENGTH, FRAME_OK, FRAME_SESSION_ID_OFFSET, FRAME_STREAM_ID_OFFSET,
    FRAME_TERM_ID_OFFSET, FRAME_TERM_OFFSET_OFFSET, FRAME_TYPE_OFFSET, FRAME_VERSION_OFFSET, WRONG_CHECKSUM,
    WRONG_LENGTH, WRONG_STREAM_ID, WRONG_TERM_ID, WRONG_TERM_OFFSET, WRONG_TYPE, WRONG_VERSION, align_frame, is_padding,
    layout_of, segment_base, term_id_at, term_offset_at, wrong_header,
)
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.files.checksums cimport CHECKSUM_NONE
from container.files.checksums cimport checksum as checksum_of
from container.storage.storage_seam cimport OPEN_NO_FOLLOW, OPEN_READ_ONLY, Storage

from container.errors import RecordingError, RecordingUnavailableError

cdef enum:
    BUFFER_LENGTH = 1 << 20


cdef class SegmentReader:
    """The reader of one recording, from a position where a frame begins.

    Args:
        storage: holds the segment files (Storage).
        archive_dir: their directory (str).
        descriptor: the recording's (RecordingDescriptor).
        position: the position of the first frame (int).
        buffer_length: maximum bytes of one read; at least the longest data frame.
        checksum: the kind recorded in place of session ids, which is verified; 0 for none.

    Raises ValueError for values that no recording can have. Reading raises RecordingError, with file and offset, for
    bytes that are not a frame of the recording, and its subclass RecordingUnavailableError for a file that is missing
    or unreadable.
    """

    def __init__(
        self, Storage storage not None, str archive_dir not None, descriptor, int64_t position, *,
        size_t buffer_length=BUFFER_LENGTH, int checksum=CHECKSUM_NONE
    ):
        layout_of(&self._layout, descriptor)
        if position < descriptor.start_position or position & (FRAME_ALIGNMENT - 1):
            raise ValueError(f"position {position} must be a multiple of 32, not before the start of recording "
                             f"{descriptor.recording_id} at {descriptor.start_position}")
        if buffer_length < FRAME_HEADER_LENGTH:
            raise ValueError(f"a buffer of {buffer_length} bytes has no room for a frame")
        self.data = <uint8_t*> malloc(buffer_length)
        if self.data == NULL:
            raise MemoryError(f"no memory for a buffer of {buffer_length} bytes")
        self.capacity = buffer_length
        self.recording_id = descriptor.recording_id
        self.position = position
        self._start_position = descriptor.start_position
        self._storage, self._directory, self._checksum = storage, archive_dir, checksum

    def __dealloc__(self):
        free(self.data)

    cpdef int open(self) except -1:
        """Open the segment of the position; RecordingUnavailableError when it is not there."""
        return self._open_segment(self.position)

    def is_frame(self, int64_t position):
        """Whether a frame of the recording begins at a position (bool)."""
        return self.is_at_frame(position)

    def read_frames(self, int64_t limit_position, size_t max_length=BUFFER_LENGTH):
        """The length of what is read next (int), and its frames (bytes); of padding the header alone.

        Reading ends before ``limit_position``: the length is 0 when no frame ends there or before it.
        """
        cdef int64_t length = self.read(limit_position, max_length)
        cdef bint is_header = length > 0 and is_padding(self.data)
        return length, self.data[:FRAME_HEADER_LENGTH if is_header else length]

    def skip(self, int64_t length):
        """Skip ``length`` bytes (int) of the last read."""
        self.consume(length)

    cdef int64_t read(self, int64_t limit_position, size_t max_length) except -1:
        cdef int64_t room = min(limit_position - self.position,
                                <int64_t> self._layout.term_length - term_offset_at(&self._layout, self.position))
        cdef int64_t count, wanted, length
        cdef int wrong = FRAME_OK
        self._ready = 0
        if room < FRAME_HEADER_LENGTH:
            return 0
        wanted = min(room, <int64_t> min(max(max_length, <size_t> FRAME_HEADER_LENGTH), self.capacity))
        count = self._fetch(self.data, <size_t> wanted, self.position)
        if count < FRAME_HEADER_LENGTH:
            raise self._end_of_file(count)
        with nogil:
            length = self._whole_frames(count, room, &wrong)
        if length == 0 and wrong == FRAME_OK:
            # Padding, or a frame that is longer than what was read.
            length = align_frame(sbe.sbe_get_int32(self.data))
            if length > room:
                return 0
            if not is_padding(self.data):
                if length > <int64_t> self.capacity:
                    raise self._damage(WRONG_LENGTH)
                if count == wanted:
                    count = self._fetch(self.data, <size_t> length, self.position)
                if count < length:
                    raise self._end_of_file(count)
                with nogil:
                    length = self._whole_frames(count, room, &wrong)
        if length == 0:
            raise self._damage(wrong)
        self._ready = length
        return length

    cdef int64_t _whole_frames(self, int64_t length, int64_t room, int* wrong) noexcept nogil:
        """Bytes of the whole data frames in front; where there are none, what is wrong with the first."""
        cdef int64_t begin = 0, end
        cdef const uint8_t* frame
        while begin + FRAME_HEADER_LENGTH <= length:
            frame = self.data + begin
            wrong[0] = wrong_header(&self._layout, frame, self.position + begin)
            if wrong[0] != FRAME_OK or is_padding(frame):
                return begin
            end = begin + align_frame(sbe.sbe_get_int32(frame))
            if end > length or end > room:
                return begin
            if self._checksum != CHECKSUM_NONE and (
                    self._computed(frame, end - begin) != sbe.sbe_get_int32(frame + FRAME_SESSION_ID_OFFSET)):
                wrong[0] = WRONG_CHECKSUM
                return begin
            begin = end
        return begin

    cdef bint is_at_frame(self, int64_t position) except -1:
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        if position < self._start_position or position & (FRAME_ALIGNMENT - 1):
            return False
        if self._fetch(header, FRAME_HEADER_LENGTH, position) < FRAME_HEADER_LENGTH:
            return False
        return wrong_header(&self._layout, header, position) == FRAME_OK

    cdef int consume(self, int64_t length) except -1:
        if length < 0 or length > self._ready or length & (FRAME_ALIGNMENT - 1):
            raise ValueError(f"cannot continue behind {length} bytes: {self._ready} are read, in frames")
        self._ready -= length
        self.position += length
        return 0

    cdef int64_t _fetch(self, uint8_t* target, size_t length, int64_t position) except -1:
        """Bytes read, fewer than ``length`` only where the file ends."""
        self._open_segment(position)
        try:
            return self._file.pread(target, length, position - self._segment_position)
        except OSError as error:
            raise RecordingUnavailableError(
                f"cannot read {length} bytes: {error.strerror}", file=self._file.path,
                offset=position - self._segment_position, log_position=position) from error

    cdef int _open_segment(self, int64_t position) except -1:
        cdef int64_t segment_position = segment_base(&self._layout, position)
        if self._file is not None and segment_position == self._segment_position:
            return 0
        self.close()
        cdef str path = self._path(segment_position)
        try:
            self._file = self._storage.open_file(path, OPEN_READ_ONLY | OPEN_NO_FOLLOW)
        except OSError as error:
            what = "recording segment not found" if isinstance(error, FileNotFoundError) else (
                f"recording segment cannot be opened: {error.strerror}")
            raise RecordingUnavailableError(what, file=path, log_position=position) from error
        self._segment_position = segment_position
        return 0

    cpdef int close(self) except -1:
        """Close the file; a later read opens it again. May be called twice."""
        cdef StorageFile file = self._file
        self._file = None
        self._ready = 0
        if file is not None:
            file.close()
        return 0

    cdef object _damage(self, int wrong):
        """The error for the frame at the position, whose header lies in the buffer."""
        cdef const uint8_t* frame = self.data
        cdef int32_t length = sbe.sbe_get_int32(frame)
        if wrong == WRONG_LENGTH and length <= 0:
            what = f"unexpected end of recording: frame length is {length}"
        elif wrong == WRONG_LENGTH:
            what = (f"frame length {length} is impossible: the term has "
                    f"{self._layout.term_length - term_offset_at(&self._layout, self.position)} bytes left, a data "
                    f"frame at most {self.capacity}")
        elif wrong == WRONG_VERSION:
            what = f"frame version is {frame[FRAME_VERSION_OFFSET]}, expected 0"
        elif wrong == WRONG_TYPE:
            what = f"frame type is {sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET)}, expected 0 (padding) or 1 (data)"
        elif wrong == WRONG_TERM_OFFSET:
            what = (f"term offset of the frame is {sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET)}, expected "
                    f"{term_offset_at(&self._layout, self.position)}")
        elif wrong == WRONG_TERM_ID:
            what = (f"term id of the frame is {sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET)}, expected "
                    f"{term_id_at(&self._layout, self.position)}")
        elif wrong == WRONG_STREAM_ID:
            what = (f"stream id of the frame is {sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET)}, expected "
                    f"{self._layout.stream_id}")
        else:
            what = (f"CRC checksum mismatch: recorded checksum={sbe.sbe_get_int32(frame + FRAME_SESSION_ID_OFFSET)}, "
                    f"computed checksum={self._computed(frame, align_frame(length))}")
        return RecordingError(what, file=self._path(self._segment_position),
                              offset=self.position - self._segment_position, log_position=self.position)

    cdef int32_t _computed(self, const uint8_t* frame, int64_t length) noexcept nogil:
        return <int32_t> checksum_of(self._checksum, frame + FRAME_HEADER_LENGTH, length - FRAME_HEADER_LENGTH, 0)

    cdef object _end_of_file(self, int64_t count):
        return RecordingError(
            f"the file ends {count} bytes behind the begin of a frame", file=self._path(self._segment_position),
            offset=self.position - self._segment_position, log_position=self.position)

    cdef str _path(self, int64_t segment_position):
        return f"{self._directory}/{self.recording_id}-{segment_position}.rec"

    def __repr__(self):
        return f"<SegmentReader recording_id={self.recording_id} position={self.position}>"


seal((SegmentReader,))
