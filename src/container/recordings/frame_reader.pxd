# Frames of a recording by log position, read block by block from its segment files, with every bound checked.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

cdef enum:
    FRAME_TYPE_PAD = 0
    FRAME_TYPE_DATA = 1

# What a read came to: something was read, the range has ended, or a failure with its facts in the reader.
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


cdef class FrameReader:
    """Reads the frames of one recording; never writes, maps or locks, so a file may be cut under it."""
    # What the catalog says of the recording.
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
    # The last failure.
    cdef int failure
    cdef int64_t failure_position
    cdef int64_t failure_value
    cdef int64_t failure_expected

    cdef int next_frame(self, int64_t limit) noexcept nogil
    cdef int fail(self, int failure, int64_t position, int64_t value, int64_t expected) noexcept nogil
    cdef void move_to(self, int64_t position) noexcept nogil
    cdef int _fill(self, int64_t position, int64_t needed, int64_t limit) noexcept nogil
    cdef int _open(self, int64_t segment_position) noexcept nogil
    cdef void _close(self) noexcept nogil
    cdef bint _is_border(self) noexcept nogil
    cdef bint _is_torn(self, int64_t end, int64_t begin) noexcept
    cdef int64_t segment_position_of(self, int64_t position) noexcept nogil
