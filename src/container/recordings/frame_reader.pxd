# Frames of a recording by log position, read block by block from its segment files, with every bound checked.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

cdef enum:
    FRAME_TYPE_PAD = 0
    FRAME_TYPE_DATA = 1

# Result of a read: something was read, the range has ended, or a failure with its facts in the reader.
cdef enum:
    READ_OK = 0
    READ_END = 1
    FAILED_OPEN = -1            # no segment file, or it cannot be opened: `failure_value` is errno
    FAILED_READ = -2            # `failure_value` is errno
    FAILED_SHORT_FILE = -3      # the file ends here: its length is `failure_value`
    FAILED_NOTHING_WRITTEN = -4
    FAILED_FRAME_LENGTH = -5
    FAILED_FRAME_VERSION = -6
    FAILED_FRAME_TYPE = -7
    FAILED_TERM_OFFSET = -8
    FAILED_TERM_ID = -9
    FAILED_STREAM_ID = -10
    FAILED_BEYOND_END = -11     # a frame reaches beyond where the recording, or its leadership term, ends
    FAILED_ORPHAN = -12         # a fragment without the beginning of its message
    FAILED_INCOMPLETE = -13     # a message without its last fragment
    FAILED_TOO_LONG = -14
    FAILED_MESSAGE = -15        # a codec refused the message: its result is `failure_value`
    FAILED_TEXT = -16           # a text field is not ASCII
    FAILED_NO_BEGIN_MARKER = -17        # of a snapshot, and so on
    FAILED_SECOND_BEGIN_MARKER = -18
    FAILED_NO_END_MARKER = -19
    FAILED_SNAPSHOT_TYPE = -20
    FAILED_SNAPSHOT_POSITION = -21
    FAILED_NO_MEMORY = -22
    FAILED_FRAME_FLAGS = -23
    FAILED_FRAME_INSIDE = -24   # another frame begins within this one
    FAILED_NO_NEXT_FRAME = -25  # none begins where this one ends, but one could behind another length
    FAILED_SESSION_ID = -26
    FAILED_CHECKSUM = -27
    FAILED_SCHEMA_ID = -28      # of a message in a log, and so on
    FAILED_TEMPLATE_ID = -29
    FAILED_BLOCK_LENGTH = -30
    FAILED_SCHEMA_VERSION = -31
    FAILED_LEADERSHIP_TERM_ID = -32
    FAILED_TIMESTAMP = -33
    FAILED_EVENT_POSITION = -34
    FAILED_LENGTH = -35
    FAILED_TERM_BASE = -36
    FAILED_PADDING = -37        # of a frame: padding with content, so perhaps none


cdef class FrameReader:
    """Reads the frames of one recording; never writes, maps or locks, so a file may be cut under it."""
    # From the catalog's entry of the recording.
    cdef readonly int64_t recording_id
    cdef readonly int64_t start_position
    cdef readonly int32_t term_length
    cdef readonly int32_t segment_length
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t mtu_length
    cdef readonly int32_t stream_id
    cdef int _position_bits_to_shift
    cdef int64_t _first_segment_position
    # The open segment file and the block of it in memory.
    cdef object _remote             # what reads remote segment files; None for local ones
    cdef bint _is_remote
    cdef object _remote_error       # why it could not read last
    cdef bytes _directory
    cdef const char* _directory_name
    cdef int _file
    cdef int64_t _file_position     # where the open segment begins, NULL_POSITION when none is open
    cdef uint8_t* _block
    cdef int64_t _block_position
    cdef int64_t _block_length
    # The frame that was read last; its bytes lie in the block until the next read.
    cdef const uint8_t* frame
    cdef int32_t frame_length
    cdef uint16_t frame_type
    cdef uint8_t frame_flags
    cdef int64_t position           # where it begins
    cdef int64_t next_position      # where the next one begins
    cdef readonly int64_t torn_position     # where a last frame ends that `find_end` has left out; -1 without one
    # Content of bytes 12 to 15 of data frames: the session id of the frames before this one, or a checksum.
    cdef int _checksum_kind
    cdef bint _has_session
    cdef int32_t _session_id
    # Places where a frame is known to begin, as the ranges of a stream have them.
    cdef int64_t known_begin
    cdef int64_t known_end
    cdef int _peek_error            # errno of the last `peek`, 0 when it could read or was behind the end of the file
    # The last failure.
    cdef int failure
    cdef int64_t failure_position
    cdef int64_t failure_value
    cdef int64_t failure_expected

    cdef int next_frame(self, int64_t limit) noexcept nogil
    cdef int fail(self, int failure, int64_t position, int64_t value, int64_t expected) noexcept nogil
    cdef void move_to(self, int64_t position) noexcept nogil
    cdef bint peek(self, int64_t position, int64_t length, uint8_t* target) noexcept nogil
    cdef int64_t peek_data_frame(self, int64_t position, int64_t limit, uint8_t* header) noexcept nogil
    cdef int64_t resynchronise(self, int64_t limit) noexcept nogil
    cdef int _damage_or_unread(self, int result, int64_t position) noexcept nogil
    cdef int _refuse_unread(self, int result) except -1
    cdef int _refuse_header(
        self, int failure, const uint8_t* frame, int64_t position, int64_t limit) noexcept nogil
    cdef int64_t _longest_end(self, int64_t position, uint16_t frame_type) noexcept nogil
    cdef int _check_session(
        self, const uint8_t* frame, int64_t position, int32_t length, int64_t limit) noexcept nogil
    cdef int _check_inside(
        self, const uint8_t* frame, int64_t position, int64_t end, int64_t limit) noexcept nogil
    cdef int _check_padding(self, int64_t position, int64_t end, int64_t limit) noexcept nogil
    cdef int _check_next(self, int64_t position, int64_t end, uint16_t frame_type, int64_t limit) noexcept nogil
    cdef bint _agrees(self, const uint8_t* header, int64_t position) noexcept nogil
    cdef bint _is_zero(self, int64_t begin, int64_t end) noexcept nogil
    cdef bint _has_checksum(self, int kind, int64_t position, const uint8_t* header) noexcept nogil
    cdef int _refuse_checksum(
        self, int kind, const uint8_t* frame, int64_t position, int64_t payload_length) noexcept nogil
    cdef bint _is_proved(
        self, const uint8_t* header, int64_t position, int64_t limit, int proof) noexcept nogil
    cdef int64_t _find_frame(self, int64_t begin, int64_t end, int64_t limit, int proof) noexcept nogil
    cdef int _fill(self, int64_t position, int64_t needed, int64_t limit) noexcept nogil
    cdef int _open(self, int64_t segment_position) noexcept nogil
    cdef Py_ssize_t _read(self, uint8_t* target, int64_t length, int64_t offset) noexcept nogil
    cdef bint _has_remote(self, int64_t segment_position) noexcept with gil
    cdef Py_ssize_t _read_remote(self, uint8_t* target, int64_t length, int64_t offset) noexcept with gil
    cdef object _keep_error(self, object error)
    cdef void _close(self) noexcept nogil
    cdef bint _is_border(self) noexcept nogil
    cdef bint _is_torn(self, int64_t end, int64_t begin) noexcept
    cdef int64_t segment_position_of(self, int64_t position) noexcept nogil
