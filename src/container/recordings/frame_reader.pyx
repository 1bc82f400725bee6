"""Frames of a recording, read from its segment files with every length and bound checked.

Blocks are read with ``pread`` and not mapped: a file that is cut short while it is mapped would end the process with
SIGBUS, and reading a block is as quick (docs/design/recordings.md). Layout of files and frames: upstream's
Archive.java, AeronArchive.segmentFileBasePosition, DataHeaderFlyweight.java and FrameDescriptor.java.
"""
import os

from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strerror

from container.codecs cimport sbe
from container.sealed cimport seal
from container.transport cimport FRAME_FLAG_BEGIN, FRAME_HEADER_LENGTH, align_frame

from container.errors import RecordingError
from container.recordings.catalog import POSITION_MAX as _POSITION_MAX
from container.recordings.files import PERMISSION_ADVICE as _PERMISSION_ADVICE
from container.recordings.files import PERMISSION_ERRORS as _PERMISSION_ERRORS

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <unistd.h>
    /* A name that is no regular file (a pipe, say) must neither block nor be read. */
    static int recording_open(const char *path) {
        struct stat status;
        int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file >= 0 && (fstat(file, &status) < 0 || !S_ISREG(status.st_mode))) {
            close(file);
            errno = EINVAL;
            return -1;
        }
        return file;
    }
    """
    int recording_open(const char* path) noexcept nogil
    Py_ssize_t pread(int file, void* buffer, size_t length, int64_t offset) noexcept nogil
    int close(int file) noexcept nogil

cdef enum:
    NO_SEGMENT = -1
    TERM_LENGTH_MIN = 64 * 1024
    TERM_LENGTH_MAX = 1024 * 1024 * 1024
    MTU_LENGTH_MAX = 64 * 1024
    PATH_CAPACITY = 4096 + 64
    # A block lies in the processor's cache when its frames are looked at; larger ones were not quicker.
    BLOCK_LENGTH = 256 * 1024
    PAGE_LENGTH = 4096

# Offsets in a frame's header.
cdef enum:
    FRAME_LENGTH_OFFSET = 0
    FRAME_VERSION_OFFSET = 4
    FRAME_FLAGS_OFFSET = 5
    FRAME_TYPE_OFFSET = 6
    FRAME_TERM_OFFSET_OFFSET = 8
    FRAME_STREAM_ID_OFFSET = 16
    FRAME_TERM_ID_OFFSET = 20

FRAME_FAILURES = frozenset(range(FAILED_BEYOND_END, FAILED_SHORT_FILE))
"""Failures after which the frames of the same Aeron term cannot be found any more, but those of the next one can."""
MESSAGE_FAILURES = frozenset([FAILED_ORPHAN, FAILED_INCOMPLETE, FAILED_TOO_LONG, FAILED_MESSAGE, FAILED_TEXT])
"""Failures of one message, behind which the next one can be read."""
FILE_FAILURES = frozenset([FAILED_OPEN, FAILED_READ, FAILED_SHORT_FILE])
"""Failures after which nothing of the same segment can be read."""

_WHAT = {
    FAILED_NOTHING_WRITTEN: "nothing is written here",
    FAILED_FRAME_LENGTH: "frame length {value} is out of range, at most {expected} is possible",
    FAILED_FRAME_VERSION: "frame version is {value}, expected {expected}",
    FAILED_FRAME_TYPE: "frame type is {value}, expected 0 (padding) or 1 (data)",
    FAILED_TERM_OFFSET: "term offset of the frame is {value}, expected {expected}",
    FAILED_TERM_ID: "term id of the frame is {value}, expected {expected}",
    FAILED_STREAM_ID: "stream id of the frame is {value}, expected {expected}",
    FAILED_BEYOND_END: "the frame ends at log position {value}, beyond {expected} where the recording or its term ends",
    FAILED_ORPHAN: "a fragment without the beginning of its message",
    FAILED_INCOMPLETE: "a message whose last fragment is missing",
    FAILED_TOO_LONG: "a message of {value} bytes or more, the longest possible has {expected}",
    FAILED_TEXT: "a text field of the message is not ASCII (template id {value})",
    FAILED_NO_BEGIN_MARKER: "a snapshot's message (template id {value}) before its begin marker",
    FAILED_SECOND_BEGIN_MARKER: "a second begin marker in a snapshot",
    FAILED_NO_END_MARKER: "the snapshot has no end marker",
    FAILED_SNAPSHOT_TYPE: "the snapshot's marker has type {value}, expected {expected} (1 module, 2 service)",
    FAILED_SNAPSHOT_POSITION: "the snapshot's marker names log position {value}, expected {expected}",
}


def segment_file_name(int64_t recording_id, int64_t segment_position):
    """The name (str) of a segment file: recording id and the log position where the segment begins."""
    return f"{recording_id}-{segment_position}.rec"


def segment_position(int64_t start_position, int64_t position, int32_t term_length, int32_t segment_length):
    """Where the segment with a log position begins: segments are counted from the term in which the recording starts.

    Upstream: AeronArchive.segmentFileBasePosition.
    """
    cdef int64_t first = start_position - (start_position & (term_length - 1))
    return first + ((position - first) & ~(<int64_t> segment_length - 1))


cdef bint is_power_of_two(int64_t value) noexcept nogil:
    return value > 0 and (value & (value - 1)) == 0


cdef class FrameReader:
    """Frames of one recording from a log position on.

    Args:
        archive_dir: directory (path) of the segment files.
        recording_id, start_position, term_length, segment_length, initial_term_id, mtu_length, stream_id: as the
            archive's catalog has them (int).

    Raises RecordingError when these are not possible for a recording.
    """

    def __cinit__(self):
        self._file = -1
        self._file_position = NO_SEGMENT
        self._block = NULL

    def __init__(
        self, archive_dir, *, int64_t recording_id, int64_t start_position, int32_t term_length, int32_t segment_length,
        int32_t initial_term_id, int32_t mtu_length, int32_t stream_id
    ):
        self._directory = os.fsencode(archive_dir)
        self._directory_name = self._directory
        if len(self._directory) > PATH_CAPACITY - 64:
            raise ValueError(f"the path of the archive has {len(self._directory)} bytes, at most 4096 are possible")
        self.recording_id = recording_id
        self.start_position = start_position
        self.term_length = term_length
        self.segment_length = segment_length
        self.initial_term_id = initial_term_id
        self.mtu_length = mtu_length
        self.stream_id = stream_id
        self._check_layout()
        self._position_bits_to_shift = term_length.bit_length() - 1
        self._first_segment_position = start_position - (start_position & (term_length - 1))
        if self._block == NULL:
            self._block = <uint8_t*> malloc(BLOCK_LENGTH)
            if self._block == NULL:
                raise MemoryError("no memory for a block of a segment file")
        self.move_to(start_position)

    def __dealloc__(self):
        self._close()
        free(self._block)

    def _check_layout(self):
        if not TERM_LENGTH_MIN <= self.term_length <= TERM_LENGTH_MAX or not is_power_of_two(self.term_length):
            self._refuse("term_length", self.term_length, "a power of two from 64 KiB to 1 GiB")
        if self.segment_length < self.term_length or not is_power_of_two(self.segment_length):
            self._refuse("segment_length", self.segment_length, "a power of two, not less than the term length")
        if not FRAME_HEADER_LENGTH < self.mtu_length <= MTU_LENGTH_MAX:
            self._refuse("mtu_length", self.mtu_length, "33 to 65536")
        if not 0 <= self.start_position <= _POSITION_MAX or self.start_position % FRAME_HEADER_LENGTH != 0:
            self._refuse("start_position", self.start_position, "a multiple of 32 from 0 to 2^61")

    def _refuse(self, name, value, allowed):
        catalog = os.path.join(os.fsdecode(self._directory), "archive.catalog")
        raise RecordingError(
            f"{name}={value} of recording {self.recording_id} is impossible, it must be {allowed}", file=catalog)

    cdef int64_t segment_position_of(self, int64_t position) noexcept nogil:
        cdef int64_t first = self._first_segment_position
        return first + ((position - first) & ~(<int64_t> self.segment_length - 1))

    cdef void move_to(self, int64_t position) noexcept nogil:
        """Continue at a log position where a frame begins."""
        self.frame = NULL
        self.position = position
        self.next_position = position

    cdef int fail(self, int failure, int64_t position, int64_t value, int64_t expected) noexcept nogil:
        self.failure = failure
        self.failure_position = position
        self.failure_value = value
        self.failure_expected = expected
        return failure

    cdef int next_frame(self, int64_t limit) noexcept nogil:
        """Read the frame at `next_position`: READ_OK, READ_END when that is `limit` or behind it, or a failure.

        After a failure `next_position` is where it was.
        """
        cdef int64_t position = self.next_position
        cdef int64_t room
        cdef int32_t length, term_offset, term_id, value
        cdef const uint8_t* frame
        cdef int result
        if position >= limit:
            return READ_END
        if (position < self._block_position
                or position + FRAME_HEADER_LENGTH > self._block_position + self._block_length):
            result = self._fill(position, FRAME_HEADER_LENGTH, limit)
            if result < 0:
                return result
        frame = self._block + (position - self._block_position)
        length = sbe.sbe_get_int32(frame)
        if length <= 0:
            return self.fail(FAILED_NOTHING_WRITTEN, position, length, 0)
        term_offset = <int32_t> (position & (self.term_length - 1))
        room = self.term_length - term_offset
        self.frame_type = sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET)
        if self.frame_type == FRAME_TYPE_DATA and room > self.mtu_length:
            room = self.mtu_length
        if frame[FRAME_VERSION_OFFSET] != 0:
            return self.fail(FAILED_FRAME_VERSION, position, frame[FRAME_VERSION_OFFSET], 0)
        if self.frame_type > FRAME_TYPE_DATA:
            return self.fail(FAILED_FRAME_TYPE, position, self.frame_type, FRAME_TYPE_DATA)
        if length < FRAME_HEADER_LENGTH or length > room:
            return self.fail(FAILED_FRAME_LENGTH, position, length, room)
        value = sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET)
        if value != term_offset:
            return self.fail(FAILED_TERM_OFFSET, position, value, term_offset)
        value = sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET)
        # Term ids wrap around at 32 bits.
        term_id = <int32_t> (
            <uint32_t> (position >> self._position_bits_to_shift) + <uint32_t> self.initial_term_id)
        if value != term_id:
            return self.fail(FAILED_TERM_ID, position, value, term_id)
        value = sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET)
        if value != self.stream_id:
            return self.fail(FAILED_STREAM_ID, position, value, self.stream_id)
        if position + align_frame(length) > limit:
            return self.fail(FAILED_BEYOND_END, position, position + align_frame(length), limit)
        # Of padding only the header is recorded.
        if (self.frame_type == FRAME_TYPE_DATA
                and position + length > self._block_position + self._block_length):
            result = self._fill(position, length, limit)
            if result < 0:
                return result
            frame = self._block
        self.frame = frame
        self.frame_length = length
        self.frame_flags = frame[FRAME_FLAGS_OFFSET]
        self.position = position
        self.next_position = position + align_frame(length)
        return READ_OK

    cdef int _fill(self, int64_t position, int64_t needed, int64_t limit) noexcept nogil:
        """Read a block that begins at `position` and has at least `needed` bytes of the same segment."""
        cdef int64_t segment = self.segment_position_of(position)
        cdef int64_t wanted = min(<int64_t> BLOCK_LENGTH, min(segment + self.segment_length, limit) - position)
        cdef int64_t length = 0
        cdef Py_ssize_t count
        self._block_length = 0
        self._block_position = position
        if self._file_position != segment and self._open(segment) < 0:
            return self.fail(FAILED_OPEN, position, errno, 0)
        wanted = max(wanted, needed)
        while length < needed:
            count = pread(self._file, self._block + length, <size_t> (wanted - length), position - segment + length)
            if count == 0:
                return self.fail(FAILED_SHORT_FILE, position, position - segment + length, 0)
            if count > 0:
                length += count
            elif errno != EINTR:
                return self.fail(FAILED_READ, position, errno, 0)
        self._block_length = length
        return READ_OK

    cdef int _open(self, int64_t segment_position) noexcept nogil:
        cdef char[PATH_CAPACITY] path
        self._close()
        snprintf(path, PATH_CAPACITY, "%s/%lld-%lld.rec", self._directory_name,
                 <long long> self.recording_id, <long long> segment_position)
        self._file = recording_open(path)
        if self._file < 0:
            return -1
        self._file_position = segment_position
        return 0

    cdef void _close(self) noexcept nogil:
        if self._file >= 0:
            close(self._file)
        self._file = -1
        self._file_position = NO_SEGMENT
        self._block_length = 0

    def seek(self, int64_t position):
        """Continue at a log position (int) where a frame begins; the start of a term is such a place."""
        self.move_to(position)

    def has_frame(self, int64_t position, int64_t limit):
        """Whether a frame begins at a log position and ends at ``limit`` or before (bool). The reader is moved."""
        self.move_to(position)
        return self.next_frame(limit) == READ_OK

    def begins_message(self, int64_t position, int64_t limit):
        """Whether a message or padding begins at a log position, in a frame that ends at ``limit`` or before (bool).

        The reader is moved.
        """
        return self.has_frame(position, limit) and self._is_border()

    cdef bint _is_border(self) noexcept nogil:
        return self.frame_type == FRAME_TYPE_PAD or (self.frame_flags & FRAME_FLAG_BEGIN) != 0

    def last_border(self, int64_t position, int64_t limit, int64_t read_limit):
        """Walk the frames from a log position where one begins; return the last place (int) up to ``limit`` where a
        message or padding begins, and ``position`` when there is none behind it.

        The walk ends at what is damaged, and at ``read_limit``, where the recording ends. The reader is moved.
        """
        cdef int64_t border = position
        cdef int result = READ_OK
        self.move_to(position)
        with nogil:
            while result == READ_OK and self.next_position <= limit:
                result = self.next_frame(read_limit)
                if result == READ_OK and self._is_border():
                    border = self.position
        return border

    def find_end(self, int64_t position, int64_t limit):
        """Walk the frames from a log position on; return where they end (int), ``limit`` at most.

        A recording whose end the catalog does not know ends as the archive finds it at its start: where nothing is
        written, or before a last frame of which perhaps not all was written. Where a frame is damaged the walk goes on
        in the next Aeron term, and where a file cannot be read it ends at the limit, so that the damage lies within
        what is recorded and is found by who reads it.
        """
        cdef int64_t begin = position
        cdef int result
        while True:
            self.move_to(position)
            with nogil:
                result = READ_OK
                while result == READ_OK:
                    result = self.next_frame(limit)
            if result == READ_END or result == FAILED_OPEN or result == FAILED_READ:
                return limit
            if result == FAILED_NOTHING_WRITTEN and self.failure_value == 0:
                return self.position if self._is_torn(self.next_position, begin) else self.next_position
            position = (self.next_position | (self.term_length - 1)) + 1
            if position >= limit:
                return limit

    cdef bint _is_torn(self, int64_t end, int64_t begin) noexcept:
        """Whether the frame before `end` crosses pages, the last of which has nothing in it (upstream: Catalog.java).

        Pages are written in any order: its header may be on the disk, and its end not.
        """
        cdef int64_t page = (end - 1) & ~(<int64_t> PAGE_LENGTH - 1)
        cdef int64_t index
        if end == begin or self.frame == NULL or self.frame_type == FRAME_TYPE_PAD or self.position >= page:
            return False
        for index in range(page - self.position, self.frame_length):
            if self.frame[index] != 0:
                return False
        return True

    def close(self):
        """Close the segment file; may be called again, and reading opens it again."""
        self._close()

    @property
    def last_failure(self):
        """What went wrong last (int): one of the ``FAILED_…`` numbers, or 0."""
        return self.failure

    def failure_error(self):
        """The RecordingError for what went wrong last: it names file, offset and log position."""
        segment = self.segment_position_of(self.failure_position)
        directory = os.fsdecode(self._directory)
        return RecordingError(
            self._failure_text(),
            file=os.path.join(directory, segment_file_name(self.recording_id, segment)),
            offset=self.failure_position - segment,
            log_position=self.failure_position,
        )

    def _failure_text(self):
        cdef bytes message
        if self.failure == FAILED_OPEN and self.failure_value == EINVAL:
            return "is not a regular file"
        if self.failure in (FAILED_OPEN, FAILED_READ):
            message = strerror(<int> self.failure_value)
            verb = "opened" if self.failure == FAILED_OPEN else "read"
            advice = f"; {_PERMISSION_ADVICE}" if self.failure_value in _PERMISSION_ERRORS else ""
            return f"the segment file cannot be {verb}: {message.decode('utf-8', 'replace')}{advice}"
        if self.failure == FAILED_MESSAGE:
            message = sbe.sbe_error_text(<int> self.failure_value)
            return f"{message.decode('ascii')} (template id {self.failure_expected})"
        if self.failure == FAILED_NO_MEMORY:
            return f"no memory for a message of {self.failure_value} bytes"
        if self.failure == FAILED_SHORT_FILE:
            return f"the file ends before byte {self.failure_value + 1}, in the middle of what was recorded"
        return _WHAT[self.failure].format(value=self.failure_value, expected=self.failure_expected)


seal((FrameReader,))
