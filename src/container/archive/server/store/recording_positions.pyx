"""How far the recordings in progress are written: archive.positions, our own file, beside the catalog.

Upstream has nothing of the kind and finds the end of a recording by its frames, which a write that was cut short can
look like. A position here is stored once the data before it are written, and forced where the archive forces, so:

- the process was killed: the position is exact, as the system keeps what was stored.
- the power was cut: it is a lower bound if the archive forces its data, and says nothing if it does not.
- another archive, such as upstream's, ran in between, or the recording was extended since: it is not believed.

Each start writes a new file, under another name first; damage to it never stops a start. A place has 64 bytes and lies
in one sector, so that it survives whole or not at all.
"""
import errno
import struct
import zlib
from contextlib import suppress

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from container.common.sealed cimport hide
from container.storage.storage_seam cimport (
    OPEN_CREATE, OPEN_EXCLUSIVE, OPEN_NO_FOLLOW, OPEN_READ_ONLY, Storage, StorageFile, StorageMap,
)

from container.archive.error_codes import GENERIC as _GENERIC
from container.archive.server.store.facts import KnownPosition
from container.errors import ArchiveError, ConfigurationError
from container.files.catalog import POSITION_MAX as _POSITION_MAX

cdef extern from *:
    """
    /* In program order for another process and for a crash of this one, and whole. */
    static inline void position_store(uint8_t *target, int64_t value)
    { __atomic_store_n((int64_t *) target, value, __ATOMIC_RELEASE); }
    static inline void kind_store(uint8_t *target, uint32_t value)
    { __atomic_store_n((uint32_t *) target, value, __ATOMIC_RELEASE); }
    """
    void position_store(uint8_t* target, int64_t value) noexcept nogil
    void kind_store(uint8_t* target, uint32_t value) noexcept nogil

POSITIONS_NAME = "archive.positions"
_NEW_NAME = "archive.positions.new"
_PASSING_ERRORS = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOMEM])
_MAGIC = b"ARCPOS\r\n"
_VERSION = 2

cdef enum:
    PAGE = 4096                     # bytes by which the file grows, and of one map
    SECTOR = 512                    # the header's
    PLACE_LENGTH = 64
    LENGTH_MAX = 16 * 1024 * 1024   # of a file that is believed
    SPARE_PLACES = 8                # kept free by recordings, so that a truncation finds one on a full disk
    FRAME_ALIGNMENT = 32
    NO_PID = -1                     # of the owner during a recovery: there is none

cdef enum:
    KIND_FREE = 0
    KIND_POSITION = 1
    KIND_TRUNCATION = 2

# Offsets in a place. The checksum is of kind, recording id and identity; the position is there twice, the second time
# with all its bits turned, so that zeros are not a position. A crash between the two stores leaves two that differ:
# neither is believed.
cdef enum:
    KIND_OFFSET = 0
    CHECKSUM_OFFSET = 4
    RECORDING_ID_OFFSET = 8
    IDENTITY_OFFSET = 16
    IDENTITY_LENGTH = 32
    POSITION_OFFSET = 48
    TURNED_POSITION_OFFSET = 56

_HEADER = struct.Struct("<8sii16sqqqq")         # magic, version, sync level, boot id, owner, owner during its recovery
_IDENTITY = struct.Struct("<qqqii")             # start timestamp, control session, correlation, session id, zero


cdef class RecordingPosition:
    """The place of one recording in progress; :meth:`RecordingPositions.begin` takes it."""

    cpdef int set(self, int64_t position) except -1:
        """The recording is written up to a log position. Raises ArchiveError once closed."""
        cdef uint8_t* place = self._place()
        position_store(place + TURNED_POSITION_OFFSET, ~position)
        position_store(place + POSITION_OFFSET, position)
        return 0

    cpdef int force(self) except -1:
        """Wait until the position is on the disk. Raises ArchiveError once closed, OSError."""
        self._place()
        return self._map.force(<size_t> self._offset, PLACE_LENGTH)

    cpdef int close(self) except -1:
        """Free the place; the catalog has the stop position. May be called twice."""
        cdef RecordingPositions owner = self._owner
        self._owner = None
        if owner is not None and self._map.data != NULL:
            kind_store(self._map.data + self._offset + KIND_OFFSET, KIND_FREE)
            owner._free.append((self._map, self._offset))
        return 0

    cdef uint8_t* _place(self) except NULL:
        if self._owner is None or self._map.data == NULL:
            raise ArchiveError(f"the position of recording {self.recording_id} is closed", code=_GENERIC)
        return self._map.data + self._offset

    def __repr__(self):
        return f"<RecordingPosition of {self.recording_id}{' closed' if self._owner is None else ''}>"


cdef class RecordingPositions:
    """The positions of an archive's recordings in progress; :meth:`open` makes it."""

    @staticmethod
    def open(Storage storage not None, str archive_dir not None, *, int sync_level, owner):
        """Read what the archive that ran before has left.

        Args:
            storage: where the directory is.
            archive_dir: its path.
            sync_level: of this archive's data: from 1 on it forces them.
            owner: start timestamp and process id (ints) in the mark file as it was before this start; None without one.

        A file that is missing, damaged or cannot be read says nothing. Raises ConfigurationError for another level,
        OSError when memory or descriptors are short: then another start may know more.
        """
        if not 0 <= sync_level <= 2:
            raise ConfigurationError(f"sync_level={sync_level} of the recordings: must be 0, 1 or 2")
        cdef RecordingPositions made = RecordingPositions.__new__(RecordingPositions)
        made._storage, made._directory, made.sync_level = storage, archive_dir, sync_level
        made.path = f"{archive_dir}/{POSITIONS_NAME}"
        made._former = b""
        made._known, made._truncations, made._notes, made._maps, made._free = {}, {}, {}, [], []
        made._load(owner)
        return made

    cdef int _load(self, object owner) except -1:
        cdef StorageFile file
        cdef bytes content = b""
        cdef int64_t offset
        if owner is None:
            return 0
        try:
            file = self._storage.open_file(self.path, OPEN_READ_ONLY | OPEN_NO_FOLLOW)
            try:
                if file.length() <= LENGTH_MAX:
                    content = file.read(LENGTH_MAX, 0)
            finally:
                file.close()
        except OSError as error:
            if error.errno in _PASSING_ERRORS:
                raise
        if len(content) < SECTOR or content[_HEADER.size:_HEADER.size + 4] != _crc(content[:_HEADER.size]):
            return 0
        magic, version, level, boot_id, timestamp, pid, next_timestamp, next_pid = _HEADER.unpack_from(content)
        if magic != _MAGIC or version != _VERSION or level not in (0, 1, 2):
            return 0
        if tuple(owner) != (timestamp, pid) and (tuple(owner) != (next_timestamp, next_pid) or next_pid == NO_PID):
            return 0
        self._is_same_boot = boot_id == self._storage.boot_id()
        if not self._is_same_boot and level == 0:
            return 0
        self._former = content
        for offset in range(SECTOR, len(content) - PLACE_LENGTH + 1, PLACE_LENGTH):
            self._load_place(content[offset:offset + PLACE_LENGTH])
        return 0

    cdef int _load_place(self, bytes place) except -1:
        kind, recording_id, position = _read_place(place)
        if kind == KIND_POSITION:
            identity = place[IDENTITY_OFFSET:IDENTITY_OFFSET + IDENTITY_LENGTH]
            self._known.setdefault(recording_id, []).append((identity, position))
        elif kind == KIND_TRUNCATION:
            # If there are two, the one that cuts less is the older: a crash came between them.
            self._truncations[recording_id] = min(position, self._truncations.get(recording_id, position))
        return 0

    cpdef object known(self, object descriptor):
        """How far a recording of the catalog was written, which has no stop position there.

        Return a :class:`KnownPosition`, or None when nothing is known.
        """
        identity = _identity(descriptor)
        found = {position for other, position in self._known.get(descriptor.recording_id, ()) if other == identity}
        if not found:
            return None
        if self._is_same_boot:
            position = min(found)
            return KnownPosition(position, True) if len(found) == 1 and position >= descriptor.start_position else None
        # Segments before a beginning are purged or detached only once what follows them is on the disk: what is known
        # from before that is less than the catalog says.
        return KnownPosition(max(min(found), descriptor.start_position), False)

    cpdef dict truncations(self):
        """Truncations that were begun and not ended: the position (int) by recording id (dict)."""
        return dict(self._truncations)

    cpdef int begin_recovery(self, object owner) except -1:
        """The mark file has another owner (start timestamp and process id, ints) from now on, who recovers.

        After a crash what is known is known to the next start as well. Forced. Raises OSError.
        """
        if len(self._former) > 0:
            _magic, _version, level, boot_id, timestamp, pid, _, _ = _HEADER.unpack_from(self._former)
            self._former = _header(level, boot_id, timestamp, pid, owner[0], owner[1]) + self._former[SECTOR:]
            self._replace_file(self._former)
        return 0

    cpdef int begin_ownership(self, object owner) except -1:
        """Recovery is over. Drop all that was known, except truncations that have not ended.

        ``owner``: start timestamp and process id (ints) in the mark file. Forced. Raises OSError.
        """
        cdef bytes content = _header(self.sync_level, self._storage.boot_id(), owner[0], owner[1], NO_PID, NO_PID)
        cdef int64_t offset
        cdef RecordingPosition note
        for recording_id, position in self._truncations.items():
            content += _place_bytes(KIND_TRUNCATION, recording_id, bytes(IDENTITY_LENGTH), position)
        self._replace_file(content.ljust((len(content) + PAGE - 1) // PAGE * PAGE, b"\0"))
        self._file = self._storage.open_file(self.path, OPEN_NO_FOLLOW)
        for offset in range(0, self._file.length(), PAGE):
            self._map_page(offset)
        for recording_id in self._truncations:
            note = RecordingPosition.__new__(RecordingPosition)
            note.recording_id, note._owner = recording_id, self
            note._map, note._offset = self._free.pop()
            self._notes[recording_id] = note
        self._former, self._known = b"", {}
        return 0

    cpdef RecordingPosition begin(self, object descriptor, int64_t position):
        """Take a place for a recording that begins, or is extended, at a log position.

        The descriptor is the catalog's while it is in progress. From level 1 on the place is forced.

        Return its :class:`RecordingPosition`. Raise OSError, and ArchiveError unless the ownership has begun.
        """
        cdef RecordingPosition made
        self._check_owned()
        while len(self._free) <= SPARE_PLACES:
            self._grow()
        made = self._take(KIND_POSITION, descriptor.recording_id, _identity(descriptor), position)
        if self.sync_level > 0:
            try:
                made.force()
            except BaseException:
                made.close()
                raise
        return made

    cpdef int note_truncation(self, int64_t recording_id, int64_t position) except -1:
        """A recording is about to be cut at a log position: a start that finds this does it again.

        Forced from level 1 on. Raises OSError, and ArchiveError unless the ownership has begun.
        """
        cdef RecordingPosition note
        self._check_owned()
        note = self._notes.get(recording_id)
        if note is not None:
            note.set(position)
        else:
            if len(self._free) == 0:
                self._grow()
            note = self._take(KIND_TRUNCATION, recording_id, bytes(IDENTITY_LENGTH), position)
            self._notes[recording_id] = note
        self._truncations[recording_id] = position
        return note.force() if self.sync_level > 0 else 0

    cpdef int end_truncation(self, int64_t recording_id) except -1:
        """Nothing is left behind the position of a truncation. Forced from level 1 on. Raises OSError."""
        cdef RecordingPosition note = self._notes.pop(recording_id, None)
        self._truncations.pop(recording_id, None)
        if note is not None:
            note.close()
            if self.sync_level > 0 and note._map.data != NULL:
                note._map.force(<size_t> note._offset, PLACE_LENGTH)
        return 0

    cpdef int close(self) except -1:
        """Close the file, whose positions stay as they are; may be called twice. Raises OSError."""
        cdef StorageMap each
        cdef StorageFile file = self._file
        self._file = None
        for each in self._maps:
            each.close()
        self._maps, self._free = [], []
        if file is not None:
            file.close()
        return 0

    cdef int _check_owned(self) except -1:
        if self._file is None:
            raise ArchiveError(f"{self.path} is not open for positions: begin the ownership first, and close it last",
                               code=_GENERIC)
        return 0

    cdef int _replace_file(self, bytes content) except -1:
        """Put a new file in the place of whatever has the name, a symbolic link for example."""
        cdef str path = f"{self._directory}/{_NEW_NAME}"
        cdef StorageFile made
        with suppress(FileNotFoundError):
            self._storage.unlink(path)
        made = self._storage.open_file(path, OPEN_CREATE | OPEN_EXCLUSIVE)
        try:
            made.write(content, 0)
            made.force(False)
        finally:
            made.close()
        self._storage.rename(path, self.path)
        self._storage.force_directory(self._directory)
        return 0

    cdef int _grow(self) except -1:
        cdef int64_t length = self._file.length()
        self._file.reserve(length + PAGE)
        self._file.force(False)                 # a force of the map leaves the length out
        return self._map_page(length)

    cdef int _map_page(self, int64_t begin) except -1:
        cdef StorageMap made = self._file.map_range(begin, PAGE)
        self._maps.append(made)
        # The first ones are taken first.
        self._free[:0] = [(made, offset) for offset in range(
            PAGE - PLACE_LENGTH, (SECTOR if begin == 0 else 0) - 1, -PLACE_LENGTH)]
        return 0

    cdef RecordingPosition _take(self, int kind, int64_t recording_id, bytes identity, int64_t position):
        cdef RecordingPosition made = RecordingPosition.__new__(RecordingPosition)
        cdef bytes content = _place_bytes(kind, recording_id, identity, position)
        cdef uint8_t* place
        made.recording_id, made._owner = recording_id, self
        made._map, made._offset = self._free.pop()
        place = made._place()
        # It counts once its kind is there.
        kind_store(place + KIND_OFFSET, KIND_FREE)
        memcpy(place + CHECKSUM_OFFSET, <const char*> content + CHECKSUM_OFFSET, PLACE_LENGTH - CHECKSUM_OFFSET)
        kind_store(place + KIND_OFFSET, <uint32_t> kind)
        return made

    def __repr__(self):
        return f"<RecordingPositions {self.path}{' closed' if self._file is None else ''}>"


cdef bytes _header(int sync_level, bytes boot_id, object timestamp, object pid, object next_timestamp, object next_pid):
    fields = _HEADER.pack(_MAGIC, _VERSION, sync_level, boot_id, timestamp, pid, next_timestamp, next_pid)
    return (fields + _crc(fields)).ljust(SECTOR, b"\0")


cdef bytes _place_bytes(int kind, int64_t recording_id, bytes identity, int64_t position):
    known = struct.pack("<q", recording_id) + identity
    return (struct.pack("<I", kind) + _crc(struct.pack("<I", kind) + known) + known
            + struct.pack("<qq", position, ~position))


cdef tuple _read_place(bytes place):
    """Kind, recording id and position; KIND_FREE when it is free or damaged."""
    cdef int64_t position, turned
    kind, = struct.unpack_from("<I", place, KIND_OFFSET)
    recording_id, = struct.unpack_from("<q", place, RECORDING_ID_OFFSET)
    position, turned = struct.unpack_from("<qq", place, POSITION_OFFSET)
    if (kind != KIND_FREE and _crc(place[:4] + place[RECORDING_ID_OFFSET:POSITION_OFFSET]) == place[4:8]
            and 0 <= position <= _POSITION_MAX and position % FRAME_ALIGNMENT == 0
            and turned == ~position):
        return kind, recording_id, position
    return KIND_FREE, recording_id, 0


cdef bytes _crc(bytes content):
    return struct.pack("<I", zlib.crc32(content))


cdef bytes _identity(object descriptor):
    return _IDENTITY.pack(descriptor.start_timestamp, descriptor.control_session_id, descriptor.correlation_id,
                          descriptor.session_id, 0)


hide((RecordingPosition, RecordingPositions))
