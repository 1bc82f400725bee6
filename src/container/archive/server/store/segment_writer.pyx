"""Writes one recording into its segment files, block by block.

Upstream: RecordingWriter.java. A block goes from the memory it lies in to the file, with no copy unless checksums are
recorded. The order for each block: write, force by level, next segment when this one is full, the position for the
recovery after a crash, and its force when a torn write of the block could not be told from the whole.
"""
import errno

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from container.archive.server.store.layout cimport (
    FRAME_ALIGNMENT, FRAME_HEADER_LENGTH, FRAME_OK, FRAME_SESSION_ID_OFFSET, SECTOR_LENGTH, align_frame, is_padding,
    layout_of, segment_base, term_offset_at, wrong_header,
)
from container.archive.server.store.recording_positions cimport RecordingPosition
from container.archive.server.store.recovery cimport has_zero_sector
from container.codecs cimport sbe
from container.common.sealed cimport seal
from container.files.checksums cimport CHECKSUM_NONE
from container.files.checksums cimport checksum as checksum_of
from container.storage.storage_seam cimport OPEN_CREATE, OPEN_EXCLUSIVE, OPEN_NO_FOLLOW, Storage, StorageFile

from container.errors import ArchiveError

cdef enum:
    COPY_CAPACITY = 1 << 20     # of the buffer for checksums: what a recorder polls at most
    PREPARE_FROM = 1 << 20      # bytes written: a recording that stays shorter takes no more of the disk than it has
    PREPARE_LENGTH = 256 << 10  # and a longer one takes at most so much more; in memory a step clears all of it


cdef bint may_look_whole(const uint8_t* block, int64_t length, int64_t offset) noexcept nogil:
    """Can a torn write of the block, which lies at ``offset`` in the file, look like all of it?"""
    cdef int64_t begin = 0, frame_length
    while begin < length:
        frame_length = align_frame(sbe.sbe_get_int32(block + begin))
        if frame_length < FRAME_HEADER_LENGTH or frame_length > length - begin:
            return True                     # the memory is shared, and has changed since it was checked
        # Its header is not zero, nor then is its part of the first sector.
        if (offset + begin) // SECTOR_LENGTH != (offset + begin + frame_length - 1) // SECTOR_LENGTH and (
                has_zero_sector(block + begin, frame_length, offset + begin)):
            return True
        begin += frame_length
    return False


cdef bint has_whole_frames(const uint8_t* block, int64_t length) noexcept nogil:
    cdef int64_t begin = 0
    cdef int32_t frame_length
    while begin < length:
        frame_length = sbe.sbe_get_int32(block + begin)
        if frame_length < FRAME_HEADER_LENGTH:
            return False
        begin += align_frame(frame_length)
    return begin == length


cdef class SegmentWriter:
    """The writer of one active recording.

    Args:
        storage: where the segment files are (Storage).
        archive_dir: their directory (str).
        descriptor: of the recording (RecordingDescriptor).
        place: where its position is kept for the recovery after a crash (RecordingPosition).
        sync_level: 0 writes, 1 also forces data after each block, 2 data and metadata.
        checksum: kind that is recorded in place of session ids, 0 for none.
        position: where writing begins (int): the end of what is recorded.

    Raises ValueError for values that no recording can have. After its first failure a writer only takes
    :meth:`clear_tail` and :meth:`close`. The position is where the recording ends then: where it was, or behind the
    block when all but the force of the place was done.
    """

    def __init__(
        self, Storage storage not None, str archive_dir not None, descriptor, RecordingPosition place not None, *,
        int sync_level, int checksum=CHECKSUM_NONE, int64_t position
    ):
        layout_of(&self._layout, descriptor)
        if position < descriptor.start_position or position & (FRAME_ALIGNMENT - 1):
            raise ValueError(f"position {position} must be a multiple of 32, not before the start of recording "
                             f"{descriptor.recording_id} at {descriptor.start_position}")
        self.recording_id = descriptor.recording_id
        self.position = self._first_position = position
        self.place = place
        self._storage, self._directory = storage, archive_dir
        self._segment_position = segment_base(&self._layout, position)
        self._sync_level, self._checksum = sync_level, checksum

    def __dealloc__(self):
        free(self._copy)

    cpdef int open(self) except -1:
        """Open the segment of the position, or create it at its whole length.

        Raises ArchiveError: then nothing is recorded, and the recording can be stopped where it was.
        """
        if self._file is not None or self.has_failed:
            raise ArchiveError(f"cannot open the writer of recording {self.recording_id} a second time")
        cdef str path = self._path(self._segment_position)
        cdef StorageFile file
        try:
            if self._storage.exists(path):
                file = self._storage.open_file(path, OPEN_NO_FOLLOW)
                try:
                    if file.length() != self._layout.segment_length:
                        file.set_length(self._layout.segment_length)
                    if self._sync_level > 0:
                        self._storage.force_directory(self._directory)
                except BaseException:
                    file.close()
                    raise
            else:
                file = self._created(self._segment_position)
        except OSError as error:
            raise self._failure(error, 0) from error
        self._file = file
        return 0

    def write(self, const uint8_t[::1] block not None):
        """Write a block (bytes-like): whole frames of one term, or padding alone, of which the header is enough.

        Raises ArchiveError: code STORAGE_SPACE when the disk is full, else GENERIC. Then nothing more is announced.
        """
        cdef int64_t length = block.shape[0]
        if length >= FRAME_HEADER_LENGTH and is_padding(&block[0]):
            length = align_frame(sbe.sbe_get_int32(&block[0]))
        if block.shape[0] > 0:
            self.write_block(&block[0], <size_t> length)

    cdef int write_block(self, const uint8_t* block, size_t length) except -1:
        if self._file is None or self.has_failed:
            raise ArchiveError(f"cannot write to recording {self.recording_id} at {self.position}: the writer "
                               f"{'has failed' if self.has_failed else 'is not open'}")
        self._check_block(block, <int64_t> length)
        cdef bint is_ambiguous
        self.has_failed = True
        try:
            is_ambiguous = self._store(block, <int64_t> length)
            # From here on a recovery counts the block, so the recording has it, also where the next call fails.
            self.position += <int64_t> length
            if is_ambiguous:
                self.place.force()
        except OSError as error:
            raise self._failure(error, <int64_t> length) from error
        self.has_failed = False
        assert self.position & (FRAME_ALIGNMENT - 1) == 0, "a frame begins at a multiple of 32"
        assert self._segment_position == segment_base(&self._layout, self.position), "the open segment has the position"
        return 0

    cdef int _check_block(self, const uint8_t* block, int64_t length) except -1:
        cdef int64_t room = self._layout.term_length - term_offset_at(&self._layout, self.position)
        cdef bint is_whole = FRAME_HEADER_LENGTH <= length <= room and wrong_header(
            &self._layout, block, self.position) == FRAME_OK
        if is_whole and is_padding(block):
            is_whole = align_frame(sbe.sbe_get_int32(block)) == length
        elif is_whole and (self._sync_level > 0 or self._checksum != CHECKSUM_NONE):
            with nogil:
                is_whole = has_whole_frames(block, length)      # what follows walks from frame to frame
        if not is_whole:
            raise ArchiveError(f"a block of {length} bytes is not whole frames of recording {self.recording_id} at "
                               f"{self.position}")
        return 0

    cdef int _store(self, const uint8_t* block, int64_t length) except -1:
        """Return whether a torn write of the block could look like all of it."""
        cdef int64_t offset = self.position - self._segment_position
        cdef bint is_pad = is_padding(block), may_be_torn = False
        if not is_pad and offset + length > self._prepared_end and (
                self.position - self._first_position >= PREPARE_FROM):
            self._prepare(offset, length)
        if is_pad:
            self._file.pwrite(block, FRAME_HEADER_LENGTH, offset)
        elif self._checksum == CHECKSUM_NONE:
            self._file.pwrite(block, <size_t> length, offset)
        else:
            self._file.pwrite(self._with_checksums(block, length), <size_t> length, offset)
        if self._sync_level > 0:
            self._file.force(self._sync_level > 1)
        if offset + length == self._layout.segment_length:
            self._roll_over()
        self.place.set(self.position + length)
        if self._sync_level > 0 and not is_pad:
            with nogil:
                may_be_torn = may_look_whole(block, length, offset)
        return may_be_torn

    cdef int _prepare(self, int64_t offset, int64_t length) except -1:
        """Have what is written next placed on the disk at once: a third of a write's time is the search for places.

        Where that is not possible the rest of the segment is written without it.
        """
        cdef int64_t end = min(offset + max(length, <int64_t> PREPARE_LENGTH), <int64_t> self._layout.segment_length)
        self._prepared_end = end if self._file.prepare(offset, end - offset) else self._layout.segment_length
        return 0

    cdef const uint8_t* _with_checksums(self, const uint8_t* block, int64_t length) except NULL:
        """A copy of the block, in which each frame has the checksum of its payload in place of a session id."""
        cdef size_t capacity = <size_t> max(length, <int64_t> COPY_CAPACITY)
        cdef uint8_t* copy
        cdef int64_t begin = 0, frame_length
        if self._copy_capacity < capacity:
            copy = <uint8_t*> realloc(self._copy, capacity)
            if copy == NULL:
                raise MemoryError(f"no memory for a block of {length} bytes")
            self._copy, self._copy_capacity = copy, capacity
        with nogil:
            memcpy(self._copy, block, <size_t> length)
            while begin < length:
                frame_length = align_frame(sbe.sbe_get_int32(self._copy + begin))
                if frame_length < FRAME_HEADER_LENGTH or frame_length > length - begin:
                    break                   # the memory is shared, and has changed since it was checked
                sbe.sbe_put_int32(self._copy + begin + FRAME_SESSION_ID_OFFSET, <int32_t> checksum_of(
                    self._checksum, self._copy + begin + FRAME_HEADER_LENGTH, frame_length - FRAME_HEADER_LENGTH, 0))
                begin += frame_length
        return self._copy

    cdef int _roll_over(self) except -1:
        """Open the segment behind a full one. It must not be there: it would be another recording's, or unknown data.
        """
        cdef int64_t following = self._segment_position + self._layout.segment_length
        self._close_file()
        try:
            self._file = self._created(following)
        except FileExistsError as error:
            raise ArchiveError(f"segment file already exists: {self._path(following)}") from error
        self._segment_position = following
        self._prepared_end = 0
        return 0

    cdef StorageFile _created(self, int64_t segment_position):
        """A new segment file of the whole length, without a place on the disk yet; its name is forced by level."""
        cdef str path = self._path(segment_position)
        cdef StorageFile file = self._storage.open_file(path, OPEN_CREATE | OPEN_EXCLUSIVE)
        try:
            file.set_length(self._layout.segment_length)
            if self._sync_level > 0:
                self._storage.force_directory(self._directory)
        except BaseException:
            file.close()
            try:
                self._storage.unlink(path)
            except OSError:
                pass                        # what failed first is reported
            raise
        return file

    cpdef int clear_tail(self) except -1:
        """Zero what lies behind the position after a failure, so that no recovery takes it for frames.

        Reopen the file: the system then does not forget what a failed force left unwritten. Raises OSError.
        """
        if not self.has_failed:
            return 0
        cdef int64_t segment_position = segment_base(&self._layout, self.position)
        cdef str path = self._path(segment_position)
        cdef StorageFile file
        self._close_file()
        if self._segment_position > segment_position:       # created, and nothing came to be in it
            self._storage.unlink(self._path(self._segment_position))
            self._segment_position = segment_position
        file = self._storage.open_file(path, OPEN_NO_FOLLOW)
        try:
            file.set_length(self.position - segment_position)
            file.set_length(self._layout.segment_length)
            if self._sync_level > 0:
                file.force(self._sync_level > 1)
                self._storage.force_directory(self._directory)
        finally:
            file.close()
        return 0

    cpdef int close(self) except -1:
        """Close the file, which is not forced; the place stays. May be called twice."""
        return self._close_file()

    cdef int _close_file(self) except -1:
        cdef StorageFile file = self._file
        self._file = None
        if file is not None:
            file.close()
        return 0

    cdef str _path(self, int64_t segment_position):
        return f"{self._directory}/{self.recording_id}-{segment_position}.rec"

    cdef object _failure(self, object error, int64_t length):
        cdef bint is_full = error.errno == errno.ENOSPC
        if not is_full:
            try:
                is_full = self._storage.usable_space(self._directory) < length
            except OSError:
                pass                        # what failed first is reported
        advice = ""
        if error.errno == errno.EFBIG:
            advice = "; allow larger files (ulimit -f), or give the archive a smaller segment_file_length"
        return ArchiveError(f"recording {self.recording_id} cannot continue at {self.position}: {error}{advice}",
                            code=ArchiveError.STORAGE_SPACE if is_full else ArchiveError.GENERIC)

    def __repr__(self):
        return f"<SegmentWriter recording_id={self.recording_id} position={self.position}>"


seal((SegmentWriter,))
