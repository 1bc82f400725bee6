"""The catalog of an archive, open for writing, in the bytes of upstream's Catalog.java.

A change within one sector of 512 bytes is made in place, as a sector is on the disk whole or not at all. A change of
several sectors, such as a descriptor that grows, is written into a new file that replaces the old one. A new entry is
there once its length word is, which is written when all the rest of it is on the disk. So no crash leaves half an
entry.

The caller has the archive's mark file: nobody else writes to the catalog. One thread uses it.
"""
import struct

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.codecs cimport sbe
from container.archive.server.store.window cimport CHUNK_LENGTH, FileWindow, window_of
from container.common.sealed cimport hide
from container.files.checksums cimport CHECKSUM_CRC32C, CHECKSUM_NONE
from container.files.checksums cimport checksum as checksum_of
from container.storage.storage_seam cimport OPEN_CREATE, OPEN_EXCLUSIVE, OPEN_NO_FOLLOW, Storage, StorageFile

from contextlib import suppress

from container.archive.error_codes import GENERIC as _GENERIC
from container.archive.error_codes import UNKNOWN_RECORDING as _UNKNOWN_RECORDING
from container.common.semantic_version import format_version
from container.errors import ArchiveError, ConfigurationError, RecordingError
from container.files.catalog import CATALOG_HEADER as _HEADER
from container.files.catalog import CATALOG_NAME as _CATALOG_NAME
from container.files.catalog import CATALOG_VERSION as _NEW_VERSION
from container.files.catalog import DESCRIPTOR as _DESCRIPTOR
from container.files.catalog import ENTRY_HEADER as _ENTRY_HEADER
from container.files.catalog import NULL_POSITION as _NULL_POSITION
from container.files.catalog import parse_descriptor

cdef enum:
    SECTOR = 512
    HEADER_LENGTH = 32
    ENTRY_HEADER_LENGTH = 32
    DESCRIPTOR_LENGTH = 80          # then three texts, each behind its length
    MAJOR_VERSION = 3
    NEW_ALIGNMENT = 64
    ALIGNMENT_MIN = 8
    ALIGNMENT_MAX = 1024 * 1024
    STATE_INVALID = 0
    STATE_VALID = 1
    STATE_DELETED = 2

# Offsets in the file, in an entry, and of fields in an entry.
cdef enum:
    NEXT_RECORDING_ID_OFFSET = 8
    ALIGNMENT_OFFSET = 16
    STATE_OFFSET = 4
    CHECKSUM_OFFSET = 8
    CONTROL_SESSION_ID_OFFSET = ENTRY_HEADER_LENGTH
    RECORDING_ID_OFFSET = ENTRY_HEADER_LENGTH + 16
    STOP_TIMESTAMP_OFFSET = ENTRY_HEADER_LENGTH + 32
    START_POSITION_OFFSET = ENTRY_HEADER_LENGTH + 40
    STOP_POSITION_OFFSET = ENTRY_HEADER_LENGTH + 48
    SESSION_ID_OFFSET = ENTRY_HEADER_LENGTH + 72

cdef int64_t LENGTH_MAX = 0x7FFFFFFF            # to upstream the catalog is one buffer of Java's
cdef int64_t RECORDING_ID_MAX = 0x7FFFFFFFFFFFFFFE
_NEW_NAME = f"{_CATALOG_NAME}.new"


cdef class Catalog:
    """The recordings of an archive; :meth:`open` makes it."""

    @staticmethod
    def open(Storage storage not None, str archive_dir not None, *, int64_t capacity=CHUNK_LENGTH, int sync_level=0,
             int checksum=CHECKSUM_NONE):
        """Open the catalog of a directory, or make a new one.

        Args:
            storage: where the directory is.
            archive_dir: its path.
            capacity: bytes that the file has at least (from 32 to 2^31 - 1); it grows when they are used up.
            sync_level: 0 leaves a change of an entry to the system, 1 forces it, 2 forces the file's metadata too.
            checksum: kind of the entries' checksums (int), CHECKSUM_NONE, CHECKSUM_CRC32 or CHECKSUM_CRC32C.

        Raises RecordingError when the catalog is damaged or of another version, ConfigurationError for a value out of
        range, OSError.
        """
        if not HEADER_LENGTH <= capacity <= LENGTH_MAX:
            raise ConfigurationError(
                f"capacity={capacity} of the catalog: must be from {HEADER_LENGTH} to {LENGTH_MAX}")
        if not 0 <= sync_level <= 2:
            raise ConfigurationError(f"sync_level={sync_level} of the catalog: must be 0, 1 or 2")
        if not CHECKSUM_NONE <= checksum <= CHECKSUM_CRC32C:
            raise ConfigurationError(f"checksum={checksum} of the catalog: must be from 0 to {CHECKSUM_CRC32C}")
        cdef Catalog made = Catalog.__new__(Catalog)
        made._storage, made._directory = storage, archive_dir
        made.path = f"{archive_dir}/{_CATALOG_NAME}"
        made.capacity, made.sync_level, made.checksum = capacity, sync_level, checksum
        made._entries, made._deleted = {}, []
        with suppress(FileNotFoundError):
            storage.unlink(f"{archive_dir}/{_NEW_NAME}")        # a crash has left it
        if not storage.exists(made.path):
            made._make_file([_HEADER.pack(_NEW_VERSION, HEADER_LENGTH, 0, NEW_ALIGNMENT)], capacity)
        made._file = storage.open_file(made.path, OPEN_NO_FOLLOW)
        try:
            made._load()
        except BaseException:
            made._file.close()
            raise
        return made

    cdef int _load(self) except -1:
        cdef int64_t length = self._file.length()
        if length < HEADER_LENGTH or length > LENGTH_MAX:
            raise RecordingError(
                f"the catalog has {length} bytes, possible are {HEADER_LENGTH} to {LENGTH_MAX}", file=self.path)
        version, _length, next_recording_id, alignment = _HEADER.unpack(self._read(0, HEADER_LENGTH))
        if version >> 16 != MAJOR_VERSION:
            raise RecordingError(
                f"the catalog has version {format_version(version)}, only {MAJOR_VERSION}.x is known: "
                "migrate it with upstream's ArchiveTool", file=self.path, offset=0)
        if alignment == 0:
            raise RecordingError("the catalog has the old format, without an alignment: migrate it with upstream's "
                                 "ArchiveTool", file=self.path, offset=ALIGNMENT_OFFSET)
        if not ALIGNMENT_MIN <= alignment <= ALIGNMENT_MAX or alignment & (alignment - 1):
            raise RecordingError(f"alignment {alignment} of the catalog is impossible",
                                 file=self.path, offset=ALIGNMENT_OFFSET)
        self.alignment = alignment
        cdef int64_t last_id = self._scan(length)
        if next_recording_id != 0 and next_recording_id <= last_id:
            raise RecordingError(f"the next recording id is {next_recording_id}, but there is recording {last_id}",
                                 file=self.path, offset=NEXT_RECORDING_ID_OFFSET)
        if next_recording_id < 0:
            raise RecordingError(f"the next recording id is {next_recording_id}, must not be negative",
                                 file=self.path, offset=NEXT_RECORDING_ID_OFFSET)
        self.next_recording_id = next_recording_id if next_recording_id != 0 else last_id + 1
        self.capacity = max(self.capacity, length)
        self._clear_behind_end(length)
        self._written_end = self._end
        if self.sync_level > 0:
            # A process that was killed may have written or renamed what is seen here and was never forced. Nothing may
            # be built on that before it is on the disk: a power cut would bring the earlier file back.
            self._force(True)
            self._storage.force_directory(self._directory)
        return 0

    cdef int64_t _scan(self, int64_t length) except -2:
        """Find the entries; return the greatest recording id, -1 without any."""
        cdef FileWindow window = window_of(self._file, None)
        cdef int64_t offset = HEADER_LENGTH, last_id = -1, last_valid_id = -1, recording_id
        cdef int32_t entry_length, state
        cdef str damage
        while offset + ENTRY_HEADER_LENGTH <= length:
            entry_length = sbe.sbe_get_int32(window.at(offset, ENTRY_HEADER_LENGTH))
            state = sbe.sbe_get_int32(window.at(offset, ENTRY_HEADER_LENGTH) + STATE_OFFSET)
            if entry_length == 0:
                break
            damage = _entry_damage(window, offset, entry_length, state, length)
            recording_id = -1
            if damage is None:
                recording_id = sbe.sbe_get_int64(window.at(offset + RECORDING_ID_OFFSET, 8))
                if recording_id > RECORDING_ID_MAX or state == STATE_VALID and recording_id <= last_valid_id:
                    damage = f"recording id {recording_id} comes behind {last_valid_id}, they must ascend"
            if damage is not None:
                raise RecordingError(damage, file=self.path, offset=offset)
            if state == STATE_VALID:
                self._entries[recording_id] = (offset, entry_length)
                last_valid_id = recording_id
            elif state == STATE_DELETED and recording_id >= 0:
                self._deleted.append(recording_id)
            last_id = max(last_id, recording_id)
            offset += self._total(ENTRY_HEADER_LENGTH + entry_length)
        self._end = offset
        return last_id

    cdef int _clear_behind_end(self, int64_t length) except -1:
        """A crash may have left an entry without its length word: take it away. The file gets its capacity."""
        cdef FileWindow window = window_of(self._file, None)
        cdef int64_t used_end = window.used_end(self._end, length), place = self._end + self.alignment
        while place + ENTRY_HEADER_LENGTH <= used_end:
            if _is_entry(window, place, length, self.next_recording_id):
                raise RecordingError(f"the entry has no length, but at offset {place} there is another",
                                     file=self.path, offset=self._end)
            place += self.alignment
        if used_end >= 0:
            self._cut_behind_end()
        elif length < self.capacity:
            self._file.set_length(self.capacity)
        if used_end >= 0 or length < self.capacity:
            self._force(True)
        return 0

    cdef int _cut_behind_end(self) except -1:
        self._file.set_length(self._end)
        self._file.set_length(self.capacity)
        self._written_end = self._end
        return 0

    cpdef int64_t add(self, object descriptor) except -1:
        """Add a recording; return its id (int). The descriptor's recording id and control session are ignored.

        Everything before the length word is forced at each level.

        What is not ASCII in its texts becomes "?". Raise ArchiveError when the catalog is full, OSError.
        """
        self._begin_change()
        cdef int64_t recording_id = self.next_recording_id
        if recording_id > RECORDING_ID_MAX:
            raise ArchiveError("the catalog is full: there are no more recording ids", code=_GENERIC)
        assert recording_id not in self._entries and recording_id not in self._deleted, "no id is given twice"
        cdef bytes body = _encoded(descriptor, 0, 0, recording_id)
        cdef int64_t total = self._total(ENTRY_HEADER_LENGTH + len(body)), offset = self._end
        if offset + total > self.capacity:
            self._grow(offset + total)
        cdef bytes entry = self._framed(body, total)
        if self._written_end > offset:          # an entry that failed; where one was longer, its end would stay
            self._cut_behind_end()
        self._written_end = offset + total
        self._file.write(bytes(4) + entry[4:], offset)
        self._file.write((recording_id + 1).to_bytes(8, "little"), NEXT_RECORDING_ID_OFFSET)
        self._force(True)
        self._file.write(entry[:4], offset)
        self._force(False)
        self._entries[recording_id] = (offset, total - ENTRY_HEADER_LENGTH)
        self._end = self._written_end = offset + total
        self.next_recording_id = recording_id + 1
        return recording_id

    cpdef int pass_over(self, int64_t recording_id) except -1:
        """Give no recording this id, nor one before it; the next entry puts that on the disk."""
        self.next_recording_id = max(self.next_recording_id, recording_id + 1)
        return 0

    cpdef object descriptor(self, int64_t recording_id):
        """The :class:`RecordingDescriptor`, or None when the recording is unknown, invalid or deleted.

        Raises RecordingError when it is damaged, OSError.
        """
        if recording_id not in self._entries:
            return None
        offset, length = self._entry(recording_id)
        content = self._read(offset + ENTRY_HEADER_LENGTH, length)
        return parse_descriptor(self.path, content, 0, length, content_offset=offset + ENTRY_HEADER_LENGTH)

    cpdef bytes entry_bytes(self, int64_t recording_id):
        """The descriptor as it is stored, with its padding (bytes). Raises ArchiveError, OSError."""
        offset, length = self._entry(recording_id)
        return self._read(offset + ENTRY_HEADER_LENGTH, length)

    cpdef int64_t entry_offset(self, int64_t recording_id) except -1:
        """Where the entry begins in the file now (int, bytes). Raises ArchiveError."""
        return self._entry(recording_id)[0]

    cpdef bint has(self, int64_t recording_id) except -1:
        """Whether there is a valid recording of this id."""
        return recording_id in self._entries

    cpdef list recording_ids(self):
        """Ids of the valid recordings, ascending (list of int)."""
        return list(self._entries)

    cpdef list deleted_ids(self):
        """Ids of recordings that were deleted and whose entries are still there (list of int)."""
        return [each for each in self._deleted if each not in self._entries]

    cpdef int64_t start_position(self, int64_t recording_id) except? -2:
        """Where the recording begins (int, log position). Raises ArchiveError, OSError."""
        return self._field(recording_id, START_POSITION_OFFSET)

    cpdef int64_t stop_position(self, int64_t recording_id) except? -2:
        """Where it ends (int, log position), -1 while it is in progress. Raises ArchiveError, OSError."""
        return self._field(recording_id, STOP_POSITION_OFFSET)

    cpdef int set_stop(self, int64_t recording_id, int64_t position, int64_t timestamp_ms) except -1:
        """The recording ends at a log position. Raises ArchiveError, OSError."""
        return self._change(recording_id, [
            (STOP_TIMESTAMP_OFFSET, _int64(timestamp_ms)), (STOP_POSITION_OFFSET, _int64(position))], True)

    cpdef int set_start_position(self, int64_t recording_id, int64_t position) except -1:
        """The recording begins at a log position. Raises ArchiveError, OSError."""
        return self._change(recording_id, [(START_POSITION_OFFSET, _int64(position))], True)

    cpdef int extend(self, int64_t recording_id, int64_t control_session_id, int64_t correlation_id,
                     int32_t session_id) except -1:
        """The recording is in progress again, from where it ended, with these ids. Raises ArchiveError, OSError."""
        return self._change(recording_id, [
            (CONTROL_SESSION_ID_OFFSET, _int64(control_session_id) + _int64(correlation_id)),
            (STOP_TIMESTAMP_OFFSET, _int64(_NULL_POSITION)), (STOP_POSITION_OFFSET, _int64(_NULL_POSITION)),
            (SESSION_ID_OFFSET, session_id.to_bytes(4, "little", signed=True))], True)

    cpdef int replace(self, object descriptor) except -1:
        """Give a recording another descriptor; its control session id and correlation id stay.

        An entry becomes longer when it must, and never shorter. Raises ArchiveError, OSError.
        """
        self._begin_change()
        offset, length = self._entry(descriptor.recording_id)
        control_session_id, correlation_id = struct.unpack("<qq", self._read(offset + CONTROL_SESSION_ID_OFFSET, 16))
        cdef bytes body = _encoded(descriptor, control_session_id, correlation_id, descriptor.recording_id)
        cdef int64_t old_total = self._total(ENTRY_HEADER_LENGTH + length)
        cdef int64_t total = max(old_total, self._total(ENTRY_HEADER_LENGTH + len(body)))
        cdef bytes entry = self._framed(body, total)
        if total == old_total and _is_one_sector(offset, offset + total):
            self._store(offset, entry)
        else:
            self._rewrite(offset, old_total, entry)
        self._entries[descriptor.recording_id] = (offset, total - ENTRY_HEADER_LENGTH)
        return 0

    cpdef int delete(self, int64_t recording_id) except -1:
        """The recording is gone; its id is never given again. Raises ArchiveError, OSError."""
        self._change(recording_id, [(STATE_OFFSET, STATE_DELETED.to_bytes(4, "little"))], False)
        del self._entries[recording_id]
        self._deleted.append(recording_id)
        return 0

    cpdef int force(self) except -1:
        """Wait until all of it is on the disk. Raises OSError, ArchiveError once closed."""
        self._begin_change()
        return self._force(True)

    cpdef bint is_in_place(self) except -1:
        """Whether its path leads to it, or it is closed; not once the archive's directory was removed or moved.

        One that could not be replaced to the end takes no changes any more, and its path may lead to the other file: it
        counts as in its place. Raises OSError when that cannot be known.
        """
        return self._file is None or self._failure is not None or self._file.is_in_place()

    cpdef int close(self) except -1:
        """Force the file and close it; may be called twice. Raises OSError, and it is closed then as well."""
        cdef StorageFile file = self._file
        self._file = None
        if file is not None:
            try:
                file.force(True)
            finally:
                file.close()
        return 0

    cpdef int abandon(self) except -1:
        """Close the file without forcing it: it is another archive's by now. May be called twice. Raises OSError."""
        cdef StorageFile file = self._file
        self._file = None
        if file is not None:
            file.close()
        return 0

    cdef int _check_open(self) except -1:
        if self._file is None:
            raise ArchiveError(f"the catalog {self.path} is closed", code=_GENERIC)
        if self._failure is not None:
            raise ArchiveError(f"the catalog {self.path} cannot be used any more, as a change of it failed half way: "
                               f"{self._failure}", code=_GENERIC)
        return 0

    cdef int _begin_change(self) except -1:
        """For each change: a file of which a force failed is replaced first. The system may take the lost bytes for
        written: a power cut could leave some of them beside later writes, and each further force would fail.
        """
        self._check_open()
        if self._has_lost:
            self._rewrite(self._end, 0, b"")
        return 0

    cdef tuple _entry(self, int64_t recording_id):
        self._check_open()
        found = self._entries.get(recording_id)
        if found is None:
            raise ArchiveError(f"unknown recording id: {recording_id}", code=_UNKNOWN_RECORDING)
        return found

    cdef bytes _read(self, int64_t offset, int64_t length):
        self._check_open()
        content = self._file.read(length, offset)
        if len(content) < length:
            raise RecordingError(f"the catalog ends at {offset + len(content)} bytes, in the middle of an entry",
                                 file=self.path, offset=offset)
        return content

    cdef int64_t _field(self, int64_t recording_id, int64_t field_offset) except? -2:
        return int.from_bytes(self._read(self._entry(recording_id)[0] + field_offset, 8), "little", signed=True)

    cdef int64_t _total(self, int64_t length) noexcept:
        """The length of an entry with its padding."""
        return (length + self.alignment - 1) & ~<int64_t> (self.alignment - 1)

    cdef bytes _framed(self, bytes body, int64_t total):
        """A valid entry of this length, with header and padding."""
        if total - ENTRY_HEADER_LENGTH > LENGTH_MAX:
            raise ArchiveError(f"the catalog has no room for an entry of {total} bytes", code=_GENERIC)
        body = body.ljust(total - ENTRY_HEADER_LENGTH, b"\0")
        return _ENTRY_HEADER.pack(len(body), STATE_VALID, _checksum(self.checksum, body)) + body

    cdef int _change(self, int64_t recording_id, list fields, bint is_renewed) except -1:
        """Store fields of an entry, (offset in it, bytes), ascending: all or none of them survive."""
        self._begin_change()
        offset, length = self._entry(recording_id)
        cdef int64_t begin, end
        if is_renewed and self.checksum != CHECKSUM_NONE:
            changed = _patched(self._read(offset, ENTRY_HEADER_LENGTH + length), 0, fields)[ENTRY_HEADER_LENGTH:]
            fields = [(CHECKSUM_OFFSET, _checksum(self.checksum, changed).to_bytes(4, "little")), *fields]
        last = fields[len(fields) - 1]
        begin, end = fields[0][0], last[0] + len(last[1])
        if _is_one_sector(offset + begin, offset + end):
            return self._store(offset + begin, _patched(self._read(offset + begin, end - begin), begin, fields))
        entry = self._read(offset, ENTRY_HEADER_LENGTH + length)
        return self._rewrite(offset, len(entry), _patched(entry, 0, fields))

    cdef int _store(self, int64_t offset, bytes content) except -1:
        """Bytes in one sector."""
        self._file.write(content, offset)
        return self._force(False)

    cdef int _force(self, bint always) except -1:
        if not always and self.sync_level == 0:
            return 0
        try:
            return self._file.force(self.sync_level > 1)
        except OSError:
            self._has_lost = True
            raise

    cdef int _rewrite(self, int64_t offset, int64_t old_length, bytes content) except -1:
        """Replace some bytes by others, in a new file. The bytes behind them move."""
        cdef int64_t shift = len(content) - old_length, capacity = self.capacity
        if self._end + shift > capacity:
            capacity = self._larger_capacity(self._end + shift)
        parts = [(0, offset), content, (offset + old_length, self._end)]
        self._make_file(parts, capacity)
        # The name may be another file's from here on: nothing may be written into the old one.
        try:
            self._file.close()
            self._file = self._storage.open_file(self.path, OPEN_NO_FOLLOW)
        except BaseException as error:
            self._failure = error
            raise
        self._has_lost = False
        self.capacity = capacity
        self._end += shift
        self._written_end = self._end
        if shift != 0:
            self._entries = {each: (place + shift if place > offset else place, length)
                             for each, (place, length) in self._entries.items()}
        return 0

    cdef int _make_file(self, list parts, int64_t capacity) except -1:
        """Replace the file by one of these parts: bytes, or ranges of the old one. Forced at each level."""
        cdef str path = f"{self._directory}/{_NEW_NAME}"
        cdef StorageFile made
        cdef int64_t place = 0
        with suppress(FileNotFoundError):
            self._storage.unlink(path)
        made = self._storage.open_file(path, OPEN_CREATE | OPEN_EXCLUSIVE)
        try:
            for part in parts:
                for chunk in [part] if isinstance(part, bytes) else self._chunks(part[0], part[1]):
                    made.write(chunk, place)
                    place += len(chunk)
            made.set_length(capacity)
            made.force(self.sync_level > 1)
            made.close()
            self._storage.rename(path, self.path)
        except BaseException:
            made.close()
            with suppress(OSError):
                self._storage.unlink(path)
            raise
        try:
            self._storage.force_directory(self._directory)
        except BaseException as error:
            self._failure = error
            raise
        return 0

    def _chunks(self, begin, end):
        for offset in range(begin, end, CHUNK_LENGTH):
            yield self._read(offset, min(CHUNK_LENGTH, end - offset))

    cdef int64_t _larger_capacity(self, int64_t needed) except -1:
        cdef int64_t capacity = self.capacity
        if needed > LENGTH_MAX:
            raise ArchiveError(f"the catalog is full: it would have {needed} bytes, at most {LENGTH_MAX} are possible",
                               code=_GENERIC)
        while capacity < needed:
            capacity = min(capacity + (capacity >> 1), LENGTH_MAX)
        return capacity

    cdef int _grow(self, int64_t needed) except -1:
        cdef int64_t capacity = self._larger_capacity(needed)
        self._file.set_length(capacity)
        self._force(True)
        self.capacity = capacity
        return 0

    def __repr__(self):
        return f"<Catalog {self.path} recordings={len(self._entries)}{' closed' if self._file is None else ''}>"


cdef str _entry_damage(FileWindow window, int64_t offset, int64_t entry_length, int32_t state, int64_t file_length):
    """The damage of an entry in words, or None."""
    cdef int64_t end = offset + ENTRY_HEADER_LENGTH + entry_length, place
    cdef int _text
    if entry_length < DESCRIPTOR_LENGTH:
        return f"an entry has {entry_length} bytes, at least {DESCRIPTOR_LENGTH} are needed"
    if end > file_length:
        return f"an entry of {entry_length} bytes reaches beyond the {file_length} bytes of the catalog"
    if state == STATE_VALID:
        place = offset + ENTRY_HEADER_LENGTH + DESCRIPTOR_LENGTH
        for _text in range(3):
            if place + 4 > end:
                return "a text reaches beyond its entry"
            place += 4 + <int64_t> sbe.sbe_get_uint32(window.at(place, 4))
            if place > end:
                return "a text reaches beyond its entry"
        return None
    return None if state == STATE_INVALID or state == STATE_DELETED else f"an entry has the unknown state {state}"


cdef bint _is_entry(FileWindow window, int64_t offset, int64_t file_length, int64_t next_recording_id) except -1:
    """Whether an entry of a recording could be there that has its id already."""
    cdef int32_t entry_length = sbe.sbe_get_int32(window.at(offset, ENTRY_HEADER_LENGTH))
    cdef int32_t state = sbe.sbe_get_int32(window.at(offset, ENTRY_HEADER_LENGTH) + STATE_OFFSET)
    if (not STATE_INVALID <= state <= STATE_DELETED
            or _entry_damage(window, offset, entry_length, STATE_VALID, file_length) is not None):
        return False
    return 0 <= sbe.sbe_get_int64(window.at(offset + RECORDING_ID_OFFSET, 8)) < next_recording_id


cdef bytes _encoded(object descriptor, int64_t control_session_id, int64_t correlation_id, int64_t recording_id):
    """A descriptor in upstream's bytes, without padding."""
    parts = [_DESCRIPTOR.pack(
        control_session_id, correlation_id, recording_id, descriptor.start_timestamp, descriptor.stop_timestamp,
        descriptor.start_position, descriptor.stop_position, descriptor.initial_term_id,
        descriptor.segment_file_length, descriptor.term_buffer_length, descriptor.mtu_length, descriptor.session_id,
        descriptor.stream_id)]
    for text in (descriptor.stripped_channel, descriptor.original_channel, descriptor.source_identity):
        encoded = text.encode("ascii", "replace")
        parts += [len(encoded).to_bytes(4, "little"), encoded]
    return b"".join(parts)


cdef uint32_t _checksum(int kind, bytes content) noexcept:
    if kind == CHECKSUM_NONE:
        return 0
    return checksum_of(kind, <const uint8_t*> <const char*> content, len(content), 0)


cdef bytes _patched(bytes content, int64_t begin, list fields):
    """Bytes of an entry from `begin` on, with other fields."""
    changed = bytearray(content)
    for offset, field in fields:
        changed[offset - begin:offset - begin + len(field)] = field
    return bytes(changed)


cdef bint _is_one_sector(int64_t begin, int64_t end) noexcept:
    return begin // SECTOR == (end - 1) // SECTOR


cdef bytes _int64(int64_t value):
    return value.to_bytes(8, "little", signed=True)


hide((Catalog,))
