"""Frames of a recording, read from its segment files with every length and bound checked.

Blocks are read with ``pread`` and not mapped: a file that is cut short while it is mapped would end the process with
SIGBUS, and reading a block is as quick (docs/design/recordings.md). Layout of files and frames: upstream's
Archive.java, AeronArchive.segmentFileBasePosition, DataHeaderFlyweight.java and FrameDescriptor.java.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_SetInterrupt
from libc.errno cimport EINTR, EINVAL, EIO, ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strerror

from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.files.checksums cimport CHECKSUM_CRC32, CHECKSUM_CRC32C, CHECKSUM_NONE, checksum
from container.transport.frames cimport FRAME_FLAG_BEGIN, FRAME_HEADER_LENGTH, align_frame

from container.errors import RecordingError, RecordingUnavailableError
from container.files.catalog import POSITION_MAX as _POSITION_MAX
from container.files.directories import RemoteDirectory as _RemoteDirectory
from container.files.open_errors import PERMISSION_ADVICE as _PERMISSION_ADVICE
from container.files.open_errors import PERMISSION_ERRORS as _PERMISSION_ERRORS
from container.files.segments import segment_file_name

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <unistd.h>
    /* A name that is not a regular file (a pipe, say) must neither block nor be read. */
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
    static void set_errno(int value) { errno = value; }
    """
    void set_errno(int value) noexcept nogil
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
    SCAN_LENGTH = 8192      # read at once where frames are looked for
    NO_POSITION = -1

# Evidence, besides the header itself, that a frame begins where a header could be one.
cdef enum:
    PROOF_NONE
    PROOF_SESSION       # its session id is that of the frames before, or its checksum is right
    PROOF_NEXT          # another frame, or the limit, is where it ends

# Offsets in a frame's header.
cdef enum:
    FRAME_LENGTH_OFFSET = 0
    FRAME_VERSION_OFFSET = 4
    FRAME_FLAGS_OFFSET = 5
    FRAME_TYPE_OFFSET = 6
    FRAME_TERM_OFFSET_OFFSET = 8
    FRAME_SESSION_ID_OFFSET = 12
    FRAME_STREAM_ID_OFFSET = 16
    FRAME_TERM_ID_OFFSET = 20

# Flags without a meaning: the others are that a message begins, that it ends, end of stream, revoked. And of the four
# bytes that are version, flags and type those bits that may be set.
cdef enum:
    FRAME_FLAGS_UNKNOWN = 0x0F
    FRAME_TYPE_DATA_BITS = 0x00010000
    FRAME_KIND_BITS = 0x0001F000

FRAME_FAILURES = frozenset([
    *range(FAILED_BEYOND_END, FAILED_SHORT_FILE), *range(FAILED_CHECKSUM, FAILED_NO_MEMORY), FAILED_PADDING,
])
"""Failures of one frame: the next one must be looked for."""
CONTENT_FAILURES = frozenset([FAILED_MESSAGE, FAILED_TEXT, *range(FAILED_TERM_BASE, FAILED_CHECKSUM)])
"""Failures of a message that is there to its end."""
MESSAGE_FAILURES = frozenset([FAILED_ORPHAN, FAILED_INCOMPLETE, FAILED_TOO_LONG, *CONTENT_FAILURES])
"""Failures of one message, behind which the next one can be read."""
_UNAVAILABLE = frozenset([FAILED_OPEN, FAILED_READ, FAILED_NO_MEMORY])

_WHAT = {
    FAILED_NOTHING_WRITTEN: "nothing is written here",
    FAILED_FRAME_LENGTH: "frame length {value} is out of range, at most {expected} is possible",
    FAILED_FRAME_VERSION: "frame version is {value}, expected {expected}",
    FAILED_FRAME_TYPE: "frame type is {value}, expected 0 (padding) or 1 (data)",
    FAILED_TERM_OFFSET: "term offset of the frame is {value}, expected {expected}",
    FAILED_TERM_ID: "term id of the frame is {value}, expected {expected}",
    FAILED_STREAM_ID: "stream id of the frame is {value}, expected {expected}",
    FAILED_FRAME_FLAGS: "flags of the frame are {value:#x}, the bits {expected:#x} have no meaning",
    FAILED_FRAME_INSIDE: "another frame begins at log position {expected}, but this one says that it ends at {value}",
    FAILED_NO_NEXT_FRAME: "no frame begins at log position {value}, where this one says that it ends",
    FAILED_PADDING: "padding up to log position {value} is not empty: it may have been a data frame",
    FAILED_SESSION_ID: "session id of the frame is {value}, of those before and behind it {expected}",
    FAILED_CHECKSUM: "checksum of the payload is {expected:#010x}, recorded is {value:#010x}",
    FAILED_SCHEMA_ID: "schema id is {value}, and all else is as in a message of schema {expected}",
    FAILED_TEMPLATE_ID: "template id is {value}, which no message of schema {expected} in a log has",
    FAILED_BLOCK_LENGTH: "block length is {value}, expected {expected}",
    FAILED_SCHEMA_VERSION: "schema version is {value}, of the messages around it {expected}",
    FAILED_LEADERSHIP_TERM_ID: "leadership term id is {value}, of the messages around it {expected}",
    FAILED_TIMESTAMP: "timestamp {value} is far from those of the messages around it, {expected}",
    FAILED_EVENT_POSITION: "the message says that it ends at log position {value}, it ends at {expected}",
    FAILED_LENGTH: "the message has {value} bytes, its fields end at {expected}",
    FAILED_TERM_BASE: "the leadership term begins at log position {expected}, the message says {value}",
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


cdef bint is_power_of_two(int64_t value) noexcept nogil:
    return value > 0 and (value & (value - 1)) == 0


cdef inline int32_t term_id_at(FrameReader reader, int64_t position) noexcept nogil:
    # Term ids wrap around at 32 bits.
    return <int32_t> (
        <uint32_t> (position >> reader._position_bits_to_shift) + <uint32_t> reader.initial_term_id)


cdef inline bint is_plausible(FrameReader reader, const uint8_t* frame, int64_t position) noexcept nogil:
    """Whether a header is that of a frame at a log position; wherever it ends."""
    cdef int32_t length = sbe.sbe_get_int32(frame)
    cdef int32_t term_offset = <int32_t> (position & (reader.term_length - 1))
    cdef int32_t room = reader.term_length - term_offset
    cdef uint32_t kind = sbe.sbe_get_uint32(frame + FRAME_VERSION_OFFSET)
    if kind & FRAME_TYPE_DATA_BITS and room > reader.mtu_length:
        room = reader.mtu_length
    return (
        (kind & ~<uint32_t> FRAME_KIND_BITS) == 0
        and FRAME_HEADER_LENGTH <= length <= room
        and sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET) == term_offset
        and sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET) == reader.stream_id
        and sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET) == term_id_at(reader, position))


cdef int header_failure(FrameReader reader, const uint8_t* frame, int64_t position, int64_t limit) noexcept nogil:
    """Check the header of a frame at a log position; return READ_OK, or a failure."""
    cdef int32_t length = sbe.sbe_get_int32(frame)
    if is_plausible(reader, frame, position):
        return FAILED_BEYOND_END if position + align_frame(length) > limit else READ_OK
    if length <= 0:
        return FAILED_NOTHING_WRITTEN
    if frame[FRAME_VERSION_OFFSET] != 0:
        return FAILED_FRAME_VERSION
    if sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET) > FRAME_TYPE_DATA:
        return FAILED_FRAME_TYPE
    if frame[FRAME_FLAGS_OFFSET] & FRAME_FLAGS_UNKNOWN:
        return FAILED_FRAME_FLAGS
    if sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET) != (position & (reader.term_length - 1)):
        return FAILED_TERM_OFFSET
    if sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET) != term_id_at(reader, position):
        return FAILED_TERM_ID
    if sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET) != reader.stream_id:
        return FAILED_STREAM_ID
    return FAILED_FRAME_LENGTH


cdef inline bint may_have_inside(const uint8_t* frame, int32_t term_offset, int64_t length) noexcept nogil:
    """Whether somewhere in a frame another one may begin: its term offset is there. This is for each frame."""
    cdef int64_t offset = FRAME_HEADER_LENGTH
    while offset < length:
        if sbe.sbe_get_int32(frame + offset + FRAME_TERM_OFFSET_OFFSET) == term_offset + <int32_t> offset:
            return True
        offset += FRAME_HEADER_LENGTH
    return False


cdef class FrameReader:
    """Frames of one recording from a log position on.

    Args:
        archive_dir: directory of the segment files: a path, or a :class:`~container.files.directories.RemoteDirectory`.
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
        self._is_remote = isinstance(archive_dir, _RemoteDirectory)
        self._directory = os.fsencode(str(archive_dir) if self._is_remote else archive_dir)
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
        self._remote = archive_dir.segment_reader(recording_id) if self._is_remote else None
        self._position_bits_to_shift = term_length.bit_length() - 1
        self._first_segment_position = start_position - (start_position & (term_length - 1))
        if self._block == NULL:
            self._block = <uint8_t*> malloc(BLOCK_LENGTH)
            if self._block == NULL:
                raise MemoryError("no memory for a block of a segment file")
        self.known_begin = self.known_end = self.torn_position = NO_POSITION
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
        """Continue at a log position where a frame begins; what was known of the frames before is forgotten."""
        self.frame = NULL
        self.position = position
        self.next_position = position
        self._has_session = False
        self._checksum_kind = CHECKSUM_NONE

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
        cdef int64_t end
        cdef int32_t length
        cdef uint16_t frame_type
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
        if (position & (self.term_length - 1)) == 0:
            # Reading may begin here, and must come to the same results then.
            self._has_session = False
            self._checksum_kind = CHECKSUM_NONE
        length = sbe.sbe_get_int32(frame)
        frame_type = sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET)
        if not is_plausible(self, frame, position) or position + align_frame(length) > limit:
            return self._refuse_header(header_failure(self, frame, position, limit), frame, position, limit)
        end = position + align_frame(length)
        # Padding is recorded as its header alone.
        if frame_type == FRAME_TYPE_DATA:
            if end > self._block_position + self._block_length:
                result = self._fill(position, end - position, limit)
                if result < 0:
                    return result
                frame = self._block
            if not self._has_session or sbe.sbe_get_int32(frame + FRAME_SESSION_ID_OFFSET) != self._session_id:
                result = self._check_session(frame, position, length, limit)
                if result < 0:
                    return self._damage_or_unread(result, position)
            if self._checksum_kind == CHECKSUM_NONE and may_have_inside(
                    frame, <int32_t> (position & (self.term_length - 1)), end - position):
                result = self._check_inside(frame, position, end, limit)
                if result < 0:
                    return result
        else:
            result = self._check_padding(position, end, limit)
            if result < 0:
                return self._damage_or_unread(result, position)
        # A length that is wrong shows where the next frame should begin.
        if end < limit and (end & (self.term_length - 1)) != 0 and not (
                end + FRAME_HEADER_LENGTH <= self._block_position + self._block_length
                and sbe.sbe_get_int32(self._block + (end - self._block_position) + FRAME_TERM_OFFSET_OFFSET)
                == <int32_t> (end & (self.term_length - 1))):
            result = self._check_next(position, end, frame_type, limit)
            if result < 0:
                return self._damage_or_unread(result, position)
        self.frame = frame
        self.frame_type = frame_type
        self.frame_length = length
        self.frame_flags = frame[FRAME_FLAGS_OFFSET]
        self.position = position
        self.next_position = end
        return READ_OK

    cdef int _damage_or_unread(self, int result, int64_t position) noexcept nogil:
        """The result of a check of a frame's surroundings: no damage, if a part of them could not be read."""
        if self._peek_error == 0:
            return result
        return self.fail(FAILED_READ, position, self._peek_error, 0)

    cdef int _refuse_header(
        self, int failure, const uint8_t* frame, int64_t position, int64_t limit
    ) noexcept nogil:
        """Fail with what the header has, and what it should have."""
        cdef int64_t value = sbe.sbe_get_int32(frame)
        cdef int64_t expected = 0
        cdef uint16_t frame_type = sbe.sbe_get_uint16(frame + FRAME_TYPE_OFFSET)
        if failure == FAILED_FRAME_VERSION:
            value = frame[FRAME_VERSION_OFFSET]
        elif failure == FAILED_FRAME_TYPE:
            value, expected = frame_type, FRAME_TYPE_DATA
        elif failure == FAILED_FRAME_LENGTH:
            expected = self.term_length - (position & (self.term_length - 1))
            if frame_type == FRAME_TYPE_DATA:
                expected = min(expected, <int64_t> self.mtu_length)
        elif failure == FAILED_FRAME_FLAGS:
            value, expected = frame[FRAME_FLAGS_OFFSET], value
            expected = value & FRAME_FLAGS_UNKNOWN
        elif failure == FAILED_TERM_OFFSET:
            value = sbe.sbe_get_int32(frame + FRAME_TERM_OFFSET_OFFSET)
            expected = position & (self.term_length - 1)
        elif failure == FAILED_TERM_ID:
            value, expected = sbe.sbe_get_int32(frame + FRAME_TERM_ID_OFFSET), term_id_at(self, position)
        elif failure == FAILED_STREAM_ID:
            value, expected = sbe.sbe_get_int32(frame + FRAME_STREAM_ID_OFFSET), self.stream_id
        elif failure == FAILED_BEYOND_END:
            value, expected = position + align_frame(<int32_t> value), limit
        return self.fail(failure, position, value, expected)

    cdef int64_t _longest_end(self, int64_t position, uint16_t frame_type) noexcept nogil:
        """Where the longest frame possible at a log position ends."""
        cdef int64_t room = self.term_length - (position & (self.term_length - 1))
        if frame_type == FRAME_TYPE_DATA and room > self.mtu_length:
            room = align_frame(self.mtu_length)
        return position + room

    cdef int _check_inside(
        self, const uint8_t* frame, int64_t position, int64_t end, int64_t limit
    ) noexcept nogil:
        """Whether another frame begins in a frame: a length that is too great would swallow it without a trace.

        It has the session id of this one, which no client knows: a payload cannot look like that by intention.
        """
        cdef int64_t offset = FRAME_HEADER_LENGTH
        while offset < end - position:
            if (sbe.sbe_get_int32(frame + offset + FRAME_SESSION_ID_OFFSET)
                    == sbe.sbe_get_int32(frame + FRAME_SESSION_ID_OFFSET)
                    and header_failure(self, frame + offset, position + offset, limit) == READ_OK):
                return self.fail(FAILED_FRAME_INSIDE, position, end, position + offset)
            offset += FRAME_HEADER_LENGTH
        return READ_OK

    cdef int _check_padding(self, int64_t position, int64_t end, int64_t limit) noexcept nogil:
        """Whether padding may be a data frame whose type is damaged, or swallows frames as its length is.

        An archive writes the header of padding only; what lies behind is nothing of the log. That at the end of a term
        may be long, and ends at a known place; no data frame is longer than the MTU.
        """
        cdef int64_t body = position + FRAME_HEADER_LENGTH
        cdef int64_t found
        cdef bint may_be_data = end - position <= align_frame(self.mtu_length)
        if may_be_data and not self._is_zero(body, min(end, body + FRAME_HEADER_LENGTH)):
            return self.fail(FAILED_PADDING, position, end, 0)
        if (end & (self.term_length - 1)) == 0:
            return READ_OK
        found = self._find_frame(body, end, limit, PROOF_NEXT)
        return READ_OK if found < 0 else self.fail(FAILED_FRAME_INSIDE, position, end, found)

    cdef int _check_next(self, int64_t position, int64_t end, uint16_t frame_type, int64_t limit) noexcept nogil:
        """Whether a frame can end where no other seems to begin.

        It can, when the header there is damaged only, or when nothing more is written. When a frame begins elsewhere,
        and this one could reach up to there, then its length is not to be believed, and neither is its payload.
        """
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        cdef int64_t last = min(self._longest_end(position, frame_type), limit)
        cdef int64_t found
        if end == self.known_begin or end == self.known_end or not self.peek(end, FRAME_HEADER_LENGTH, header):
            return READ_OK
        if self._agrees(header, end):
            return READ_OK
        found = self._find_frame(position + FRAME_HEADER_LENGTH, last + FRAME_HEADER_LENGTH, limit, PROOF_NONE)
        if found >= 0:
            return self.fail(FAILED_NO_NEXT_FRAME, position, end, found)
        if (last == limit or (last & (self.term_length - 1)) == 0) and not self._is_zero(end, last):
            return self.fail(FAILED_NO_NEXT_FRAME, position, end, last)
        return READ_OK

    cdef bint _agrees(self, const uint8_t* header, int64_t position) noexcept nogil:
        """Whether most of what says where a frame is agrees with a log position."""
        cdef int agreeing = 0
        cdef int32_t term_offset = <int32_t> (position & (self.term_length - 1))
        agreeing += sbe.sbe_get_int32(header + FRAME_TERM_OFFSET_OFFSET) == term_offset
        agreeing += sbe.sbe_get_int32(header + FRAME_TERM_ID_OFFSET) == term_id_at(self, position)
        agreeing += sbe.sbe_get_int32(header + FRAME_STREAM_ID_OFFSET) == self.stream_id
        return agreeing >= 2

    cdef int _check_session(
        self, const uint8_t* frame, int64_t position, int32_t length, int64_t limit
    ) noexcept nogil:
        """Check bytes 12 to 15 of a data frame: a session id that others have too, or the checksum of the payload.

        An archive that records checksums writes them over the session id, of padding not; nothing else says that it
        does, and it may do so from one start to the next. A session id is new where a leader is, or where a member
        that was behind has got the log from another's archive: then the next frame has it as well.
        """
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        cdef int32_t value = sbe.sbe_get_int32(frame + FRAME_SESSION_ID_OFFSET)
        cdef int64_t payload_length = align_frame(length) - FRAME_HEADER_LENGTH
        cdef int64_t next_position
        cdef int kind
        if payload_length == 0 and self._checksum_kind == CHECKSUM_NONE and value == 0:
            return READ_OK
        for kind in range(CHECKSUM_CRC32, CHECKSUM_CRC32C + 1):
            if self._checksum_kind != CHECKSUM_NONE and self._checksum_kind != kind:
                continue
            if <int32_t> checksum(kind, frame + FRAME_HEADER_LENGTH, payload_length, 0) == value:
                self._checksum_kind = kind
                self._has_session = False
                return READ_OK
        next_position = self.peek_data_frame(position + align_frame(length), limit, header)
        kind = self._checksum_kind
        if kind != CHECKSUM_NONE:
            if next_position < 0 or sbe.sbe_get_int32(header + FRAME_SESSION_ID_OFFSET) != value:
                return self._refuse_checksum(kind, frame, position, payload_length)
        elif next_position >= 0 and sbe.sbe_get_int32(header + FRAME_SESSION_ID_OFFSET) != value:
            if self._has_session and sbe.sbe_get_int32(header + FRAME_SESSION_ID_OFFSET) == self._session_id:
                return self.fail(FAILED_SESSION_ID, position, value, self._session_id)
            if not self._has_session:
                for kind in range(CHECKSUM_CRC32, CHECKSUM_CRC32C + 1):
                    if self._has_checksum(kind, next_position, header):
                        return self._refuse_checksum(kind, frame, position, payload_length)
        self._checksum_kind = CHECKSUM_NONE
        self._has_session = True
        self._session_id = value
        return READ_OK

    cdef int _refuse_checksum(
        self, int kind, const uint8_t* frame, int64_t position, int64_t payload_length
    ) noexcept nogil:
        return self.fail(
            FAILED_CHECKSUM, position, sbe.sbe_get_uint32(frame + FRAME_SESSION_ID_OFFSET),
            checksum(kind, frame + FRAME_HEADER_LENGTH, payload_length, 0))

    cdef bint _has_checksum(self, int kind, int64_t position, const uint8_t* header) noexcept nogil:
        """Whether a data frame elsewhere in the open segment has the checksum of its payload."""
        cdef uint8_t[SCAN_LENGTH] part
        cdef int64_t begin = position + FRAME_HEADER_LENGTH
        cdef int64_t end = position + align_frame(sbe.sbe_get_int32(header))
        cdef int64_t length
        cdef uint32_t value = 0
        while begin < end:
            length = min(end - begin, <int64_t> SCAN_LENGTH)
            if not self.peek(begin, length, part):
                return False
            value = checksum(kind, part, length, value)
            begin += length
        return value == sbe.sbe_get_uint32(header + FRAME_SESSION_ID_OFFSET)

    cdef bint peek(self, int64_t position, int64_t length, uint8_t* target) noexcept nogil:
        """Copy bytes of the open segment from a log position on and leave the block; False if there are fewer.

        `_peek_error` is what kept the last call from reading (errno), or 0.
        """
        cdef int64_t done = 0
        cdef Py_ssize_t count
        self._peek_error = 0
        if (self._file_position == NO_SEGMENT or position < self._file_position
                or position + length > self._file_position + self.segment_length):
            return False
        while done < length:
            count = self._read(target + done, length - done, position - self._file_position + done)
            if count > 0:
                done += count
            elif count == 0:
                return False
            elif errno != EINTR:
                self._peek_error = errno
                return False
        return True

    cdef int64_t peek_data_frame(self, int64_t position, int64_t limit, uint8_t* header) noexcept nogil:
        """The log position of the first data frame from a place on where a frame begins; -1 if none is seen.

        It is looked for in the open segment, up to `limit`; its header is copied.
        """
        while position < limit and self.peek(position, FRAME_HEADER_LENGTH, header):
            if header_failure(self, header, position, limit) < 0:
                return NO_POSITION
            if sbe.sbe_get_uint16(header + FRAME_TYPE_OFFSET) == FRAME_TYPE_DATA:
                return position
            position += align_frame(sbe.sbe_get_int32(header))
        return NO_POSITION

    cdef bint _is_zero(self, int64_t begin, int64_t end) noexcept nogil:
        """Whether all bytes of the open segment between two positions are zero; those behind its end do not count.

        False, with `_peek_error`, where they cannot be read.
        """
        cdef uint8_t[SCAN_LENGTH] part
        cdef int64_t length
        while begin < end:
            length = min(end - begin, <int64_t> SCAN_LENGTH)
            while not self.peek(begin, length, part):
                length //= 2    # where the file is shorter
                if length == 0:
                    return self._peek_error == 0
            # Each byte is as the one before it, and the first is zero: the library compares many at once.
            if part[0] != 0 or memcmp(part, part + 1, <size_t> length - 1) != 0:
                return False
            begin += length
        return True

    cdef int64_t resynchronise(self, int64_t limit) noexcept nogil:
        """Continue at the first frame behind the last failure, and return its log position; -1 when there is no frame.

        Its header must agree with its place, and its session id with the frames before the damage: so bytes of a
        payload that look like a frame do not count. Where no such frame is left in the Aeron term, or none was read
        before, the frame behind it must be one as well. It is -1 with FAILED_READ where the file cannot be read.
        """
        cdef int64_t begin = self.failure_position + FRAME_HEADER_LENGTH
        cdef int64_t term_end = min(limit, (self.failure_position | (self.term_length - 1)) + 1)
        cdef int64_t found = NO_POSITION
        self._peek_error = 0
        if self._has_session or self._checksum_kind != CHECKSUM_NONE:
            found = self._find_frame(begin, term_end, limit, PROOF_SESSION)
        if found < 0 and self._peek_error == 0:
            found = self._find_frame(begin, limit, limit, PROOF_NEXT)
            self._has_session = False
        if found >= 0:
            self.frame = NULL
            self.position = self.next_position = found
        else:
            self._damage_or_unread(self.failure, self.failure_position)
        return found

    cdef int64_t _find_frame(self, int64_t begin, int64_t end, int64_t limit, int proof) noexcept nogil:
        """The first log position from `begin` on and before `end` where a frame begins; -1 when there is none.

        It is looked for in the open segment only.
        """
        cdef uint8_t[SCAN_LENGTH] part
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        cdef int64_t length, index, offset, position
        end = min(end, limit)
        while begin < end:
            length = min(end - begin, <int64_t> SCAN_LENGTH)
            if not self.peek(begin, length, part):
                length = FRAME_HEADER_LENGTH
                if not self.peek(begin, length, part):
                    return NO_POSITION      # or `_peek_error`
            for index in range(length // FRAME_HEADER_LENGTH):
                offset = index * FRAME_HEADER_LENGTH
                position = begin + offset
                if (sbe.sbe_get_int32(part + offset + FRAME_TERM_OFFSET_OFFSET)
                        != <int32_t> (position & (self.term_length - 1))
                        or header_failure(self, part + offset, position, limit) < 0):
                    continue
                memcpy(header, part + offset, FRAME_HEADER_LENGTH)
                if self._is_proved(header, position, limit, proof):
                    return position
            begin += length
        return NO_POSITION

    cdef bint _is_proved(
        self, const uint8_t* header, int64_t position, int64_t limit, int proof
    ) noexcept nogil:
        cdef uint8_t[FRAME_HEADER_LENGTH] following
        cdef int64_t end = position + align_frame(sbe.sbe_get_int32(header))
        cdef bint is_data = sbe.sbe_get_uint16(header + FRAME_TYPE_OFFSET) == FRAME_TYPE_DATA
        if proof == PROOF_NONE:
            return True
        if proof == PROOF_SESSION and is_data and self._checksum_kind != CHECKSUM_NONE:
            return self._has_checksum(self._checksum_kind, position, header)
        if proof == PROOF_SESSION and self._has_session:
            return sbe.sbe_get_int32(header + FRAME_SESSION_ID_OFFSET) == self._session_id
        return end == limit or (end & (self.term_length - 1)) == 0 or (
            self.peek(end, FRAME_HEADER_LENGTH, following) and header_failure(self, following, end, limit) == READ_OK)

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
            count = self._read(self._block + length, wanted - length, position - segment + length)
            if count == 0:
                return self.fail(FAILED_SHORT_FILE, position, position - segment + length, 0)
            if count > 0:
                length += count
            elif errno != EINTR:
                return self.fail(FAILED_READ, position, errno, 0)
        self._block_length = length
        self._peek_error = 0
        return READ_OK

    cdef int _open(self, int64_t segment_position) noexcept nogil:
        cdef char[PATH_CAPACITY] path
        self._close()
        if self._is_remote:
            if not self._has_remote(segment_position):
                set_errno(ENOENT if self._remote_error is None else EIO)
                return -1
            self._file_position = segment_position
            return 0
        snprintf(path, PATH_CAPACITY, "%s/%lld-%lld.rec", self._directory_name,
                 <long long> self.recording_id, <long long> segment_position)
        self._file = recording_open(path)
        if self._file < 0:
            return -1
        self._file_position = segment_position
        return 0

    cdef Py_ssize_t _read(self, uint8_t* target, int64_t length, int64_t offset) noexcept nogil:
        """Read from the open segment as `pread` does: any of the bytes that are wanted, 0 at its end, -1 with errno."""
        cdef Py_ssize_t count
        if not self._is_remote:
            return pread(self._file, target, <size_t> length, offset)
        count = self._read_remote(target, length, offset)
        if count < 0:
            set_errno(EIO)
        return count

    cdef bint _has_remote(self, int64_t segment_position) noexcept with gil:
        cdef bint is_there = False
        self._remote_error = None
        try:
            is_there = self._remote.has(segment_position)
        except BaseException as error:
            self._keep_error(error)
        return is_there

    cdef Py_ssize_t _read_remote(self, uint8_t* target, int64_t length, int64_t offset) noexcept with gil:
        cdef bytes content
        cdef Py_ssize_t count = -1
        try:
            content = self._remote.read(self._file_position, offset, length)
            if len(content) > length:
                raise ValueError(f"{len(content)} bytes came, {length} were asked for")
            memcpy(target, PyBytes_AS_STRING(content), <size_t> len(content))
            count = len(content)
        except BaseException as error:
            self._keep_error(error)
        return count

    cdef object _keep_error(self, object error):
        """Keep what reading raised for :meth:`failure_error`; an interrupt is raised again where Python looks for one.
        """
        if isinstance(error, KeyboardInterrupt):
            PyErr_SetInterrupt()
        if not isinstance(error, RecordingUnavailableError):
            directory = os.fsdecode(self._directory)
            error = RecordingUnavailableError(f"cannot be read: {type(error).__name__}: {error}", file=directory)
        self._remote_error = error

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
        """Whether a frame begins at a log position and ends at ``limit`` or before (bool). The reader is moved.

        Raises RecordingUnavailableError where the file cannot be read.
        """
        self.move_to(position)
        result = self.next_frame(limit)
        self._refuse_unread(result)
        return result == READ_OK

    cdef int _refuse_unread(self, int result) except -1:
        if result == FAILED_READ or (result == FAILED_OPEN and self.failure_value == EIO):
            raise self.failure_error()
        return 0

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

        The walk ends at what is damaged, and at ``read_limit``, where the recording ends. The reader is moved. Raise
        RecordingUnavailableError where a file cannot be read.
        """
        cdef int64_t border = position
        cdef int result = READ_OK
        self.move_to(position)
        with nogil:
            while result == READ_OK and self.next_position <= limit:
                result = self.next_frame(read_limit)
                if result == READ_OK and self._is_border():
                    border = self.position
        self._refuse_unread(result)
        return border

    def find_end(self, int64_t position, int64_t limit):
        """Walk the frames from a log position on; return where they end (int), ``limit`` at most.

        A recording whose end the catalog does not know ends as the archive finds it at its start: where nothing is
        written, or before a last frame of which perhaps not all was written: :attr:`torn_position` is where that ends,
        else -1. An archive writes one frame behind the other into a file of zeros, so zeros with anything behind them
        are not its end. Behind a damaged frame the walk continues at the next one. If a file cannot be opened it ends
        at the limit, so that the damage lies within the recorded range and a reader finds it. Raise
        RecordingUnavailableError where a file cannot be read: it may end anywhere then.
        """
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        cdef int64_t begin = position
        cdef int64_t found
        cdef int result
        cdef bint is_zero
        self.torn_position = NO_POSITION
        self.move_to(position)
        while True:
            with nogil:
                result = READ_OK
                while result == READ_OK:
                    result = self.next_frame(limit)
            self._refuse_unread(result)
            if result == READ_END or result == FAILED_OPEN:
                return limit
            if result == FAILED_NOTHING_WRITTEN and self.failure_value == 0:
                is_zero = self._is_zero(self.next_position, limit)
                self._refuse_unread(self._damage_or_unread(READ_OK, self.next_position))
                if is_zero:
                    if not self._is_torn(self.next_position, begin):
                        return self.next_position
                    self.torn_position = self.next_position
                    return self.position
                if (self.peek(self.next_position, FRAME_HEADER_LENGTH, header)
                        and sbe.sbe_get_int32(header + FRAME_LENGTH_OFFSET) > 0):
                    self._block_length = 0      # an archive that runs has written it since
                    continue
            found = self.resynchronise(limit)
            if found >= 0:
                continue
            self._refuse_unread(self.failure)
            # Nothing more can be read: what is damaged ends somewhere in this Aeron term.
            return min(limit, (self.failure_position | (self.term_length - 1)) + 1)

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
        """The last failure (int): one of the ``FAILED_…`` numbers, or 0."""
        return self.failure

    def failure_error(self):
        """The RecordingError for what went wrong last: it names file, offset and log position.

        It is a RecordingUnavailableError when nothing was read: a file could not be opened or read, or memory is short.
        """
        if self._is_remote and self.failure in (FAILED_OPEN, FAILED_READ) and self.failure_value == EIO:
            error = self._remote_error
            error.log_position = self.failure_position
            return error
        segment = self.segment_position_of(self.failure_position)
        directory = os.fsdecode(self._directory)
        kind = RecordingUnavailableError if self.failure in _UNAVAILABLE else RecordingError
        return kind(
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
