"""Writes recordings as an archive does, frame by frame into segment files; quick enough for gigabytes.

For tests and benchmarks of what reads recordings. Layout of files and frames: upstream's RecordingWriter.java,
ExclusivePublication.java (messages never cross a term), DataHeaderFlyweight.java.
"""
import os
import zlib
from pathlib import Path

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.transport.frames cimport FRAME_FLAGS_UNFRAGMENTED, FRAME_FLAG_BEGIN, FRAME_FLAG_END, FRAME_HEADER_LENGTH

from container.files.checksums import crc32c
from container.files.segments import segment_file_name

CHECKSUMS = {"CRC-32": zlib.crc32, "CRC-32C": crc32c}
"""Checksums that archives can record, by upstream's names."""

cdef enum:
    TYPE_PAD = 0
    TYPE_DATA = 1
    TYPE_OFFSET = 6
    TERM_OFFSET_OFFSET = 8
    SESSION_ID_OFFSET = 12
    STREAM_ID_OFFSET = 16
    TERM_ID_OFFSET = 20
    PAYLOAD_LENGTH_MAX = 1024 * 1024


cdef inline int64_t align(int64_t length) noexcept nogil:
    return (length + FRAME_HEADER_LENGTH - 1) & ~<int64_t> (FRAME_HEADER_LENGTH - 1)


cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """xorshift64: quick, and the same everywhere."""
    state[0] ^= state[0] << 13
    state[0] ^= state[0] >> 7
    state[0] ^= state[0] << 17
    return state[0]


cdef class RecordingWriter:
    """Writes one recording. Appended frames are on disk after :meth:`flush`, or when their term is full.

    Args:
        archive_dir: the directory, which must exist.
        recording_id, session_id, stream_id, initial_term_id, mtu_length: as in the archive's catalog.
        term_length, segment_length: powers of two.
        start_position: where the recording begins, a multiple of 32.
        checksum: record a checksum of each frame's payload in place of the session id, as an archive with
            that setting does: ``"CRC-32"`` (or True) or ``"CRC-32C"``; by default none.

    Raises ValueError for another checksum.
    """
    cdef readonly int64_t recording_id
    cdef readonly int64_t start_position
    cdef readonly int32_t term_length
    cdef readonly int32_t segment_length
    cdef readonly int32_t mtu_length
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t stream_id
    cdef public int32_t session_id
    cdef readonly int64_t position
    cdef object _directory
    cdef object _checksum
    cdef uint8_t* _term         # the term in progress
    cdef int64_t _term_position     # where it begins
    cdef int64_t _flushed           # up to which position it is on disk
    cdef int _file
    cdef int64_t _file_position

    def __cinit__(self):
        self._file = -1
        self._term = NULL

    def __init__(
        self, archive_dir, *, int64_t recording_id=0, int32_t session_id=7, int32_t stream_id=100,
        int32_t initial_term_id=0, int32_t mtu_length=1408, int32_t term_length=64 * 1024,
        int32_t segment_length=128 * 1024, int64_t start_position=0, checksum=None
    ):
        self._directory = Path(archive_dir)
        self.recording_id = recording_id
        self.session_id = session_id
        self.stream_id = stream_id
        self.initial_term_id = initial_term_id
        self.mtu_length = mtu_length
        self.term_length = term_length
        self.segment_length = segment_length
        self.start_position = self.position = self._flushed = start_position
        if checksum and checksum is not True and checksum not in CHECKSUMS:
            raise ValueError(f"checksum={checksum!r}: must be one of {', '.join(CHECKSUMS)}")
        self._checksum = CHECKSUMS["CRC-32" if checksum is True else checksum] if checksum else None
        self._term_position = start_position & ~(<int64_t> term_length - 1)
        if self._term == NULL:
            self._term = <uint8_t*> calloc(term_length, 1)
            if self._term == NULL:
                raise MemoryError("no memory for a term")

    def __dealloc__(self):
        free(self._term)
        if self._file >= 0:
            os.close(self._file)

    @property
    def max_message_length(self):
        """The longest message (int) that fits: an eighth of a term, 16 MiB at most."""
        return min(self.term_length // 8, 16 * 1024 * 1024)

    def append(self, message):
        """Append a message (bytes-like) in as many frames as it needs; return the log position behind it (int).

        Raise ValueError when it is longer than :attr:`max_message_length`.
        """
        cdef const uint8_t[::1] view = message
        cdef int64_t length = len(view)
        if length > self.max_message_length:
            raise ValueError(f"a message has at most {self.max_message_length} bytes, got {length}")
        self._make_room(self._framed_length(length))
        self._append(&view[0] if length > 0 else NULL, length)
        return self.position

    def append_frame(self, payload, int flags=FRAME_FLAGS_UNFRAGMENTED, *, int frame_type=TYPE_DATA):
        """Append one frame with these flags, whatever they mean; return the log position behind it (int)."""
        cdef const uint8_t[::1] view = payload
        cdef int64_t length = len(view)
        self._make_room(align(FRAME_HEADER_LENGTH + length))
        self._put_frame(&view[0] if length > 0 else NULL, <int32_t> length, <uint8_t> flags, <uint16_t> frame_type)
        self._end_frame()
        return self.position

    def append_padding(self, length=None):
        """Append padding of ``length`` bytes (int, a multiple of 32), or to the end of the term; return the position.

        Only the header of padding is recorded.
        """
        cdef int64_t room = self._term_position + self.term_length - self.position
        cdef int64_t padding = room if length is None else length
        self._pad(min(padding, room))
        return self.position

    def append_session_messages(
        self, int64_t count, *, int32_t payload_length=64, payload_length_max=None, int64_t leadership_term_id=0,
        int64_t session_count=1, int64_t timestamp=0, int64_t seed=1
    ):
        """Append session messages of clients 1 to ``session_count`` in turn, with payload by ``seed``.

        Each has ``payload_length`` bytes, or between that and ``payload_length_max``, and a timestamp that is by 1
        greater than that of the one before. Return the log position behind them (int).
        """
        cdef int64_t index, length
        cdef uint64_t state = <uint64_t> seed * 2 + 1
        cdef int64_t span = (payload_length if payload_length_max is None else <int64_t> payload_length_max) + 1
        cdef uint8_t* message
        cdef int64_t header = codec.SESSION_MESSAGE_HEADER_ENCODED_LENGTH
        span -= payload_length
        if payload_length < 0 or span < 1 or header + payload_length + span - 1 > self.max_message_length:
            raise ValueError(
                f"payload of {payload_length} to {payload_length + span - 1} bytes does not fit messages of at most "
                f"{self.max_message_length}")
        message = <uint8_t*> calloc(header + payload_length + span + 8, 1)
        if message == NULL:
            raise MemoryError("no memory for a message")
        try:
            for index in range(count):
                length = payload_length + (<int64_t> (next_random(&state) >> 1) % span)
                codec.session_message_header_encode(
                    message, header, leadership_term_id, 1 + index % session_count, timestamp + index)
                fill_payload(message + header, length, &state)
                self._make_room(self._framed_length(header + length))
                self._append(message, header + length)
        finally:
            free(message)
        return self.position

    cdef int64_t _framed_length(self, int64_t length) noexcept:
        """Bytes that a message takes in the log."""
        cdef int64_t payload_max = self.mtu_length - FRAME_HEADER_LENGTH
        cdef int64_t rest = length % payload_max
        if length <= payload_max:
            return align(FRAME_HEADER_LENGTH + length)
        return (length // payload_max) * align(self.mtu_length) + (align(FRAME_HEADER_LENGTH + rest) if rest > 0 else 0)

    cdef int _make_room(self, int64_t length) except -1:
        """Pad the term to its end when ``length`` bytes do not fit it."""
        if self.position + length > self._term_position + self.term_length:
            self._pad(self._term_position + self.term_length - self.position)
        return 0

    cdef int _pad(self, int64_t length) except -1:
        if length <= 0:
            return 0
        self._put_header(<int32_t> length, FRAME_FLAGS_UNFRAGMENTED, TYPE_PAD)
        self.position += length
        self._end_frame()
        return 0

    cdef int _append(self, const uint8_t* message, int64_t length) except -1:
        cdef int64_t payload_max = self.mtu_length - FRAME_HEADER_LENGTH
        cdef int64_t begin = 0
        cdef int64_t part
        cdef uint8_t flags = FRAME_FLAG_BEGIN
        while True:
            part = min(length - begin, payload_max)
            if begin + part == length:
                flags |= FRAME_FLAG_END
            self._put_frame(message + begin, <int32_t> part, flags, TYPE_DATA)
            self._end_frame()
            begin += part
            if begin == length:
                return 0
            flags = 0

    cdef void _put_header(self, int32_t length, uint8_t flags, uint16_t frame_type) noexcept:
        cdef int64_t offset = self.position - self._term_position
        cdef uint8_t* frame = self._term + offset
        sbe.sbe_put_int32(frame, length)
        frame[5] = flags
        sbe.sbe_put_uint16(frame + TYPE_OFFSET, frame_type)
        sbe.sbe_put_int32(frame + TERM_OFFSET_OFFSET, <int32_t> offset)
        sbe.sbe_put_int32(frame + SESSION_ID_OFFSET, self.session_id)
        sbe.sbe_put_int32(frame + STREAM_ID_OFFSET, self.stream_id)
        sbe.sbe_put_int32(
            frame + TERM_ID_OFFSET,
            <int32_t> (<uint32_t> (self._term_position // self.term_length) + <uint32_t> self.initial_term_id))

    cdef int _put_frame(
        self, const uint8_t* payload, int32_t length, uint8_t flags, uint16_t frame_type
    ) except -1:
        cdef uint8_t* frame = self._term + (self.position - self._term_position)
        cdef int64_t framed = align(FRAME_HEADER_LENGTH + length)
        self._put_header(FRAME_HEADER_LENGTH + length, flags, frame_type)
        if length > 0:
            memcpy(frame + FRAME_HEADER_LENGTH, payload, length)
        if self._checksum is not None and frame_type == TYPE_DATA:
            area = PyBytes_FromStringAndSize(<char*> frame + FRAME_HEADER_LENGTH, framed - FRAME_HEADER_LENGTH)
            sbe.sbe_put_int32(frame + SESSION_ID_OFFSET, <int32_t> <uint32_t> self._checksum(area))
        self.position += framed
        return 0

    cdef int _end_frame(self) except -1:
        """Write a full term and begin the next one."""
        if self.position == self._term_position + self.term_length:
            self.flush()
            memset(self._term, 0, self.term_length)
            self._term_position = self.position
        return 0

    def flush(self):
        """Write what was appended to the segment file, which is made with its full length."""
        cdef int64_t begin = self._flushed
        cdef int64_t count
        while begin < self.position:
            self._open_segment(begin)
            data = PyBytes_FromStringAndSize(
                <char*> self._term + (begin - self._term_position), self.position - begin)
            count = os.pwrite(self._file, data, begin - self._file_position)
            begin += count
        self._flushed = begin

    cdef int _open_segment(self, int64_t position) except -1:
        cdef int64_t first = self.start_position & ~(<int64_t> self.term_length - 1)
        cdef int64_t segment = first + ((position - first) & ~(<int64_t> self.segment_length - 1))
        if self._file >= 0 and self._file_position == segment:
            return 0
        self.close()
        path = self._directory / segment_file_name(self.recording_id, segment)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._file_position = segment
        os.ftruncate(self._file, self.segment_length)
        return 0

    def close(self):
        """Close the segment file without a flush; may be called again."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


cdef void fill_payload(uint8_t* payload, int64_t length, uint64_t* state) noexcept nogil:
    """Bytes that look random, eight at a time; there is room for seven more."""
    cdef int64_t index
    cdef uint64_t value
    for index in range(0, length, 8):
        value = next_random(state)
        memcpy(payload + index, &value, sizeof(value))


seal((RecordingWriter,))
