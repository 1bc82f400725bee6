"""Finds where recordings end that were in progress when their archive ended. At each start, before anybody is served.

A position that is known decides: exactly when the process was killed, as a lower bound when the power was cut, and then
frames are walked from there. Without one the frames of the highest segment are walked, as upstream does (Catalog.java),
but each header is checked for its place. The bytes behind the end are erased before the catalog has the end, so that a
crash in between changes nothing for the next recovery.

Damage is not taken for the end: where frames follow that belong there, RecordingError is raised and nothing written.
"""
import re

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from container.archive.server.store.catalog cimport Catalog
from container.archive.server.store.recording_positions cimport RecordingPositions
from container.archive.server.store.window cimport FileWindow, window_of
from container.codecs cimport sbe
from container.common.sealed cimport hide
from container.files.checksums cimport CHECKSUM_CRC32C, CHECKSUM_NONE
from container.files.checksums cimport checksum as checksum_of
from container.storage.storage_seam cimport OPEN_CREATE, OPEN_NO_FOLLOW, Storage, StorageFile

from container.archive.server.store.facts import Recovered
from container.errors import ConfigurationError, RecordingError
from container.files.catalog import NULL_POSITION as _NULL_POSITION
from container.files.catalog import POSITION_MAX as _POSITION_MAX

cdef enum:
    SECTOR = 512
    PAGE = 4096
    TERM_LENGTH_MIN = 64 * 1024
    LENGTH_MAX = 1024 * 1024 * 1024             # of terms and segments
    MTU_LENGTH_MAX = 64 * 1024
    BLOCK_LENGTH_MAX = 1024 * 1024              # what upstream writes at once, by default
    FRAME_HEADER_LENGTH = 32                    # and the alignment of frames
    TYPE_PAD = 0
    TYPE_DATA = 1
    VERSION_OFFSET = 4
    TYPE_OFFSET = 6
    TERM_OFFSET_OFFSET = 8
    SESSION_ID_OFFSET = 12                      # of the session, or a checksum of the payload
    STREAM_ID_OFFSET = 16
    TERM_ID_OFFSET = 20

# Why a walk along the frames has ended.
cdef enum:
    AT_LIMIT
    AT_ZERO                                     # nothing is written there
    AT_WRONG_HEADER                             # or at a frame that an earlier session has left behind its end
    AT_SHORT_FRAME                              # the file ends in the middle of it
    AT_ZERO_SECTOR                              # of a frame, so that perhaps not all of it was written

cdef int64_t POSITION_MAX = _POSITION_MAX
_SEGMENT_NAME = re.compile(r"(0|[1-9][0-9]*)-(0|-?[1-9][0-9]*)\.rec")
cdef bytes _NO_HEADER = bytes(FRAME_HEADER_LENGTH)
_ADVICE = "`ArchiveTool mark-invalid` leaves the recording out"


def recover(Storage storage not None, str archive_dir not None, Catalog catalog not None,
            RecordingPositions positions not None, *, int64_t now_ms, str torn_frame="refuse",
            int checksum=CHECKSUM_NONE, report_progress=None):
    """Give each recording that has no stop position one, and complete truncations that were begun.

    Args:
        storage: where the directory is.
        archive_dir: its path.
        catalog, positions: of the directory; the ownership of the positions begins afterwards.
        now_ms: the stop timestamp, epoch milliseconds.
        torn_frame: of which perhaps not all was written and of which nothing is known: "refuse" it, or "cut" it off.
        checksum: kind of the frames' checksums (int), which prove that a frame is whole.
        report_progress: called with nothing about each MiB that is read, and before and after each force.

    Return what was done (list of :class:`Recovered`).

    Raise RecordingError when a recording is damaged or its end cannot be known: then it is left as it is, and those
    before it are recovered. ConfigurationError for another ``torn_frame`` or ``checksum``, OSError.
    """
    if torn_frame not in ("refuse", "cut"):
        raise ConfigurationError(f"torn_frame={torn_frame!r}: must be 'refuse' or 'cut'")
    if not CHECKSUM_NONE <= checksum <= CHECKSUM_CRC32C:
        raise ConfigurationError(f"checksum={checksum} of the frames: must be from 0 to {CHECKSUM_CRC32C}")
    cdef _Recovery recovery = _Recovery.__new__(_Recovery)
    recovery._storage, recovery._directory, recovery._catalog = storage, archive_dir, catalog
    recovery._positions, recovery._now_ms, recovery._checksum = positions, now_ms, checksum
    recovery._is_torn_cut, recovery._report_progress = torn_frame == "cut", report_progress
    return recovery._run()


cdef bint has_zero_sector(const uint8_t* content, int64_t length, int64_t file_offset) noexcept nogil:
    """Whether a part of the content that lies in one sector of the file is zero.

    A write that was cut short may have left that sector out, or have written it.
    """
    cdef int64_t begin = 0, end, index
    while begin < length:
        end = min(length, (file_offset + begin) // SECTOR * SECTOR + SECTOR - file_offset)
        index = begin
        if end - begin < 8 or sbe.sbe_get_int64(content + begin) == 0:
            while index < end and content[index] == 0:
                index += 1
            if index == end:
                return True
        begin = end
    return False


cdef class _Segment:
    """A segment file, and where a walk along its frames has ended."""
    cdef str path
    cdef StorageFile file
    cdef FileWindow window
    cdef int64_t base                           # log position where it begins
    cdef int64_t length                         # of the file, at most that of a segment
    cdef int64_t file_length
    cdef int64_t end                            # offset where the frames end that count
    cdef int64_t last_begin                     # offset of the last one that counts, -1 without one
    cdef bint is_last_data
    cdef int reason                             # why the walk has ended
    cdef int64_t broken_length                  # of the frame at `end`, with AT_SHORT_FRAME and AT_ZERO_SECTOR
    cdef int64_t used_end                       # offset behind the last byte from `end` on that is not zero, or -1


cdef class _Recovery:
    cdef Storage _storage
    cdef str _directory
    cdef Catalog _catalog
    cdef RecordingPositions _positions
    cdef int64_t _now_ms
    cdef int _checksum
    cdef bint _is_torn_cut
    cdef object _report_progress
    cdef dict _bases                            # recording id -> list of the bases of its segments, ascending
    # The recording in question.
    cdef int64_t _recording_id
    cdef int64_t _start
    cdef int64_t _first_base
    cdef int64_t _segment_length
    cdef int32_t _term_length
    cdef int _position_bits_to_shift
    cdef int32_t _initial_term_id
    cdef int32_t _stream_id
    cdef int32_t _mtu_length
    cdef int32_t _session_id                    # of its last extension; earlier frames may have others
    cdef int64_t _torn_length

    cdef list _run(self):
        cdef int64_t recording_id
        cdef list done = []
        cdef list in_progress = [each for each in self._catalog.recording_ids()
                                 if self._catalog.stop_position(each) == _NULL_POSITION]
        self._find_segments()
        if self._positions.sync_level > 0 and (in_progress or self._positions.truncations()):
            self._force_names()                 # what a process that was killed has removed must not come back
        for recording_id, position in sorted(self._positions.truncations().items()):
            if self._complete_truncation(recording_id, position):
                done.append(Recovered(recording_id, position, "truncation", 0))
            self._positions.end_truncation(recording_id)
        for recording_id in in_progress:
            self._progress()
            done.append(self._recover(recording_id))
        return done

    cdef int _progress(self) except -1:
        if self._report_progress is not None:
            self._report_progress()
        return 0

    cdef int _find_segments(self) except -1:
        self._bases = {}
        for name in self._storage.list_directory(self._directory):
            found = _SEGMENT_NAME.fullmatch(name)
            if found is not None:
                self._bases.setdefault(int(found[1]), []).append(int(found[2]))
        for bases in self._bases.values():
            bases.sort()
        return 0

    cdef object _describe(self, int64_t recording_id):
        """Take the recording in question; return its descriptor."""
        descriptor = self._catalog.descriptor(recording_id)
        cdef int64_t term_length = descriptor.term_buffer_length, segment_length = descriptor.segment_file_length
        if not (_is_power_of_two(term_length) and TERM_LENGTH_MIN <= term_length <= segment_length <= LENGTH_MAX
                and _is_power_of_two(segment_length)
                and FRAME_HEADER_LENGTH <= descriptor.mtu_length <= MTU_LENGTH_MAX
                and 0 <= descriptor.start_position <= POSITION_MAX
                and descriptor.start_position % FRAME_HEADER_LENGTH == 0):
            raise RecordingError(
                f"recording {recording_id} cannot have start position {descriptor.start_position}, term length "
                f"{term_length}, segment length {segment_length} and MTU {descriptor.mtu_length}: {_ADVICE}",
                file=self._catalog.path, offset=self._catalog.entry_offset(recording_id))
        self._recording_id, self._start = recording_id, descriptor.start_position
        self._term_length, self._segment_length = descriptor.term_buffer_length, segment_length
        self._position_bits_to_shift = term_length.bit_length() - 1
        self._initial_term_id, self._stream_id = descriptor.initial_term_id, descriptor.stream_id
        self._mtu_length, self._session_id = descriptor.mtu_length, descriptor.session_id
        self._first_base = self._start - self._start % self._term_length
        self._torn_length = 0
        return descriptor

    cdef list _segment_bases(self):
        """Where the segments of the recording begin that lie in it, ascending.

        Those in front are detached, or what the recording was before a replication replaced it, whose segments may have
        begun elsewhere.
        """
        found = [base for base in self._bases.get(self._recording_id, []) if base < 0 or base >= self._first_base]
        for base in found:
            if base < 0 or base > POSITION_MAX or (base - self._first_base) % self._segment_length != 0:
                raise RecordingError(f"no segment of recording {self._recording_id} begins at {base}: it has "
                                     f"{self._segment_length} bytes in each, from {self._first_base} on",
                                     file=self._path(base))
        return found

    cdef str _path(self, object base):
        return f"{self._directory}/{self._recording_id}-{base}.rec"

    cdef int64_t _base_of(self, int64_t position) noexcept:
        return self._first_base + (position - self._first_base) // self._segment_length * self._segment_length

    cdef int64_t _begin_in(self, int64_t base) noexcept:
        """The offset of the first frame in a segment."""
        return self._start - base if base == self._first_base else 0

    cdef bint _complete_truncation(self, int64_t recording_id, int64_t position) except -1:
        """Cut a recording again; False when it was extended since, or never was that long."""
        cdef int64_t base
        cdef list bases
        if not self._catalog.has(recording_id) or self._catalog.stop_position(recording_id) == _NULL_POSITION:
            return False
        descriptor = self._describe(recording_id)
        if not self._start <= position <= descriptor.stop_position:
            return False
        bases = self._segment_bases()
        self._set_stop(recording_id, position, descriptor.stop_timestamp)
        base = self._base_of(position)
        if base in bases and position > max(base, self._start):
            self._erase(self._open(base), position - base)
        self._remove([each for each in bases if each >= position or position == self._start])
        return True

    cdef object _recover(self, int64_t recording_id):
        descriptor = self._describe(recording_id)
        known = self._positions.known(descriptor)
        cdef list bases = self._segment_bases()
        cdef _Segment segment
        cdef int64_t stop
        cdef str basis = "frames" if known is None else "exact" if known.is_exact else "bound"
        if basis == "frames":
            segment = self._walk_from_files(bases)
        elif basis == "exact":
            segment = self._walk_to(bases, known.position)
        else:
            segment = self._walk_from(bases, known.position)
        stop = max(self._start, segment.base + segment.end if segment is not None else self._start)
        if known is not None and segment is None:
            stop = known.position
        self._finish(bases, segment, stop, basis)
        self._set_stop(recording_id, stop, self._now_ms)
        return Recovered(recording_id, stop, basis, self._torn_length)

    cdef _Segment _walk_from_files(self, list bases):
        """Nothing is known: what the frames of the highest segment say."""
        cdef _Segment segment, before
        if not bases:
            return None
        segment = self._open(bases[len(bases) - 1])
        self._walk(segment, self._begin_in(segment.base), segment.length, False)
        if segment.last_begin < 0 and segment.base - self._segment_length in bases:
            # It was made when the one before was full; without power that one may have lost frames.
            before = self._open(segment.base - self._segment_length)
            self._walk(before, self._begin_in(before.base), before.length, False)
            if before.end < self._segment_length:
                segment = before
        if segment.reason == AT_SHORT_FRAME:
            self._cut_torn(segment, segment.end, segment.broken_length)
        elif segment.is_last_data and self._is_torn(segment):
            self._cut_torn(segment, segment.last_begin, segment.end - segment.last_begin)
        return segment

    cdef bint _is_torn(self, _Segment segment) except -1:
        """Whether the last frame lies in several pages, and one of them but the first has nothing of it."""
        cdef int64_t length = segment.end - segment.last_begin
        cdef const uint8_t* frame
        cdef int64_t page = (segment.last_begin // PAGE + 1) * PAGE - segment.last_begin, index, end
        if page >= length:
            return False
        length = min(length, segment.length - segment.last_begin)
        frame = segment.window.at(segment.last_begin, length)
        if self._has_checksum(frame, length):
            return False
        while page < length:
            end = min(page + PAGE, length)
            index = page
            while index < end and frame[index] == 0:
                index += 1
            if index == end:
                return True
            page = end
        return False

    cdef int _cut_torn(self, _Segment segment, int64_t begin, int64_t length) except -1:
        if not self._is_torn_cut:
            raise RecordingError(
                "the last frame may be incomplete, as a page of it is zero or behind the end of the file: let a start "
                "cut torn frames off, or run `ArchiveTool verify`",
                file=segment.path, offset=begin, log_position=segment.base + begin)
        segment.end, self._torn_length = begin, length
        segment.reason = AT_ZERO_SECTOR
        return 0

    cdef _Segment _walk_to(self, list bases, int64_t position):
        """The recording ends at a position exactly: the files must have it."""
        cdef _Segment segment
        cdef int64_t base
        if position == self._start:
            base = self._base_of(position)
            if base not in bases:
                return None
            segment = self._open(base)
            segment.end = self._start - base
            return segment
        base = self._base_of(position - 1)
        if base not in bases:
            raise RecordingError(f"the recording was written up to log position {position}, but this file is missing: "
                                 f"{_ADVICE}", file=self._path(base), log_position=position)
        segment = self._open(base)
        self._walk(segment, self._begin_in(base), min(segment.length, position - base), False)
        if base + segment.end != position:
            raise RecordingError(
                f"the recording was written up to log position {position}, but its frames end here: {_ADVICE}",
                file=segment.path, offset=segment.end, log_position=base + segment.end)
        return segment

    cdef _Segment _walk_from(self, list bases, int64_t position):
        """All before a position is on the disk: what the frames behind it say. None when no file has any."""
        cdef _Segment segment
        cdef int64_t base = self._base_of(position)
        if base not in bases:
            if position != self._start and (position != base or base - self._segment_length not in bases):
                raise RecordingError(f"the recording has log position {position} on the disk, but this file is "
                                     f"missing: {_ADVICE}", file=self._path(base), log_position=position)
            return None
        segment = self._open(base)
        # The length of the file may be lost if the recording has nothing yet.
        if position - base > segment.length and position != self._start:
            raise RecordingError(f"the recording has log position {position} on the disk, but this file has "
                                 f"{segment.length} bytes: {_ADVICE}", file=segment.path, log_position=position)
        self._walk(segment, position - base, segment.length, True)
        while segment.end == self._segment_length and segment.base + self._segment_length in bases:
            segment = self._open(segment.base + self._segment_length)
            self._walk(segment, 0, segment.length, True)
        if segment.reason == AT_SHORT_FRAME or segment.reason == AT_ZERO_SECTOR:
            self._torn_length = segment.broken_length
        return segment

    cdef _Segment _open(self, int64_t base):
        cdef _Segment made = _Segment.__new__(_Segment)
        made.path, made.base = self._path(base), base
        made.file = self._storage.open_file(made.path, OPEN_NO_FOLLOW)
        made.window = window_of(made.file, self._report_progress)
        made.file_length = made.file.length()
        made.length = min(made.file_length, self._segment_length)
        made.last_begin = made.used_end = -1
        return made

    cdef int32_t _frame_length(self, _Segment segment, int64_t offset) except -1:
        """The length of the frame whose header lies there, with padding; 0 when there is none that belongs there."""
        cdef const uint8_t* frame = segment.window.at(offset, FRAME_HEADER_LENGTH)
        cdef int64_t position = segment.base + offset
        cdef int32_t length = sbe.sbe_get_int32(frame)
        cdef int32_t term_offset = <int32_t> (position & (self._term_length - 1))
        cdef int32_t room = self._term_length - term_offset
        cdef int frame_type = sbe.sbe_get_uint16(frame + TYPE_OFFSET)
        if frame_type == TYPE_DATA:
            room = min(room, self._mtu_length)
        if (FRAME_HEADER_LENGTH <= length <= room and frame[VERSION_OFFSET] == 0 and frame_type <= TYPE_DATA
                and sbe.sbe_get_int32(frame + TERM_OFFSET_OFFSET) == term_offset
                and sbe.sbe_get_int32(frame + STREAM_ID_OFFSET) == self._stream_id
                and sbe.sbe_get_int32(frame + TERM_ID_OFFSET) == <int32_t> (
                    <uint32_t> (position >> self._position_bits_to_shift) + <uint32_t> self._initial_term_id)):
            return (length + FRAME_HEADER_LENGTH - 1) & ~(FRAME_HEADER_LENGTH - 1)
        return 0

    cdef bint _is_of_session(self, _Segment segment, int64_t offset) except -1:
        """Whether a frame has the session id of the last extension; it may have a checksum in its place."""
        return self._session_id == sbe.sbe_get_int32(
            segment.window.at(offset, FRAME_HEADER_LENGTH) + SESSION_ID_OFFSET)

    cdef int _walk(self, _Segment segment, int64_t offset, int64_t limit, bint is_power_cut) except -1:
        """Find where the frames end from an offset on, at most at `limit`.

        After a cut of the power a frame counts only if none of its sectors can be missing, and it is of the last
        extension: the bound is not before that, and what an earlier session has left behind its end is stale.
        """
        cdef int32_t length
        cdef const uint8_t* frame
        cdef bint is_zero, is_data
        segment.end, segment.last_begin, segment.reason = offset, -1, AT_LIMIT
        while segment.end + FRAME_HEADER_LENGTH <= limit:
            length = self._frame_length(segment, segment.end)
            frame = segment.window.at(segment.end, FRAME_HEADER_LENGTH)
            if length == 0:
                is_zero = memcmp(frame, <const char*> _NO_HEADER, FRAME_HEADER_LENGTH) == 0
                segment.reason = AT_ZERO if is_zero else AT_WRONG_HEADER
                break
            is_data = sbe.sbe_get_uint16(frame + TYPE_OFFSET) == TYPE_DATA
            if is_data:
                if segment.end + length > segment.length:
                    segment.reason, segment.broken_length = AT_SHORT_FRAME, length
                    break
                if is_power_cut:
                    if not self._is_of_session(segment, segment.end) and not self._has_any_checksum(segment, length):
                        segment.reason = AT_WRONG_HEADER
                        break
                    frame = segment.window.at(segment.end, length)
                    if has_zero_sector(frame, length, segment.end) and not self._has_checksum(frame, length):
                        segment.reason, segment.broken_length = AT_ZERO_SECTOR, length
                        break
            segment.last_begin, segment.is_last_data = segment.end, is_data
            segment.end += length
        return 0

    cdef bint _has_checksum(self, const uint8_t* frame, int64_t length) noexcept:
        """Whether a frame, with its padding, has the checksum of its payload."""
        return self._checksum != CHECKSUM_NONE and sbe.sbe_get_uint32(frame + SESSION_ID_OFFSET) == checksum_of(
            self._checksum, frame + FRAME_HEADER_LENGTH, length - FRAME_HEADER_LENGTH, 0)

    cdef bint _has_any_checksum(self, _Segment segment, int32_t length) except -1:
        """Whether the frame at the end has one of either kind: then it does not say of which session it is."""
        cdef const uint8_t* frame = segment.window.at(segment.end, length)
        cdef uint32_t recorded = sbe.sbe_get_uint32(frame + SESSION_ID_OFFSET)
        cdef int kind
        for kind in range(CHECKSUM_NONE + 1, CHECKSUM_CRC32C + 1):
            if recorded == checksum_of(kind, frame + FRAME_HEADER_LENGTH, length - FRAME_HEADER_LENGTH, 0):
                return True
        return False

    cdef int _finish(self, list bases, _Segment segment, int64_t stop, str basis) except -1:
        """Leave nothing behind the end: neither bytes nor files. All is checked before anything is written."""
        cdef int64_t base = self._base_of(stop)
        cdef _Segment last = None
        cdef bint is_forced = self._positions.sync_level > 0    # what is read may not be on the disk yet
        cdef list later = [each for each in bases if each > base]
        for each in later:
            self._check_empty(each, stop)
        if segment is not None and segment.base == base:
            last = segment
        elif base in bases:
            last = self._open(base)             # the one before is full
            last.end = stop - base
        if last is not None:
            self._check_behind(last, basis)
            if last.used_end >= 0 or last.file_length != self._segment_length:
                self._erase(last, last.end)
            elif is_forced:
                self._force(last.file)
        if segment is not None and segment is not last and is_forced:
            self._force(segment.file)
        self._remove(later)
        if last is None and stop > self._start:
            self._create(base)
        return 0

    cdef int _check_empty(self, int64_t base, int64_t stop) except -1:
        cdef _Segment segment = self._open(base)
        if segment.window.used_end(0, segment.length) >= 0:
            raise RecordingError(f"the recording ends at log position {stop}, but this later file has data: "
                                 f"{_ADVICE}", file=segment.path, log_position=stop)
        segment.file.close()
        return 0

    cdef int _check_behind(self, _Segment segment, str basis) except -1:
        """Raise RecordingError when data behind the end proves that the end is damage."""
        cdef int64_t place = segment.end + FRAME_HEADER_LENGTH, position = segment.base + segment.end, term_end
        segment.used_end = segment.window.used_end(segment.end, segment.length)
        if basis == "bound":
            # A block lies in one term, and is on the disk before the next one is written.
            term_end = (position // self._term_length + 1) * self._term_length
            if segment.base + segment.used_end > term_end:
                raise RecordingError(f"the frames end here, but a later term has data: {_ADVICE}",
                                     file=segment.path, offset=segment.end, log_position=position)
        # The rest of an earlier session behind the end is not damage: one block, or its rest behind newer frames.
        while segment.reason == AT_WRONG_HEADER and place + FRAME_HEADER_LENGTH <= segment.used_end:
            if self._frame_length(segment, place) > 0 and (
                    self._is_of_session(segment, place) or place - segment.end > BLOCK_LENGTH_MAX):
                raise RecordingError(f"no frame begins here, but at log position {segment.base + place} one does: "
                                     f"{_ADVICE}", file=segment.path, offset=segment.end, log_position=position)
            place += FRAME_HEADER_LENGTH
        return 0

    cdef int _erase(self, _Segment segment, int64_t offset) except -1:
        """The file keeps what is before the offset, and zeros behind it."""
        segment.file.set_length(offset)
        segment.file.set_length(self._segment_length)
        return self._force(segment.file)

    cdef int _create(self, int64_t base) except -1:
        """An empty segment, as there is one behind a segment that is full."""
        cdef StorageFile file = self._storage.open_file(self._path(base), OPEN_CREATE | OPEN_NO_FOLLOW)
        file.set_length(self._segment_length)
        self._force(file)
        file.close()
        return self._force_names()

    cdef int _remove(self, list bases) except -1:
        for base in reversed(bases):
            self._storage.unlink(self._path(base))
        return self._force_names() if bases else 0

    cdef int _set_stop(self, int64_t recording_id, int64_t position, int64_t timestamp_ms) except -1:
        self._progress()
        self._catalog.set_stop(recording_id, position, timestamp_ms)
        return self._progress()

    cdef int _force(self, StorageFile file) except -1:
        self._progress()
        file.force(self._positions.sync_level > 1)
        return self._progress()

    cdef int _force_names(self) except -1:
        self._progress()
        self._storage.force_directory(self._directory)
        return self._progress()


cdef bint _is_power_of_two(int64_t value) noexcept:
    return value > 0 and (value & (value - 1)) == 0


hide((_Segment, _Recovery))
