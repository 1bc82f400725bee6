"""The archive's mark file: who owns the archive's directory, whether the owner lives, and its error log.

It is upstream's ``archive-mark.dat``: a MarkFileHeader (schema 100, template 200) at offset 0, and a distinct error log
from byte 8192 on. Upstream: ArchiveMarkFile.java. :mod:`container.files.mark_file` has the part that all mark files
share.

It is the only lock of an archive's directory: take it before anything else there is read, and give it back last.

Until a start is ready, the reserved part of the block names the owner before it. So a start that is killed in its
recovery hides nothing from the next one.
"""
import os
import struct

from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport seal
from container.files.mark_file cimport (
    ACTIVITY_TIMESTAMP_OFFSET, BLOCK_LENGTH, MARK_HEADER_LENGTH, SBE_HEADER_LENGTH, START_TIMESTAMP_OFFSET,
    OwnedMarkFile,
)
from container.storage.storage_seam cimport Storage
from container.transport.clocks cimport Clock

from container.errors import MarkFileError
from container.files.mark_file import MarkFileKind, write_link_file

# MarkFileHeader. Offsets are of the block.
cdef enum:
    TEMPLATE_ID = 200
    SCHEMA_ID = 100
    SCHEMA_VERSION = 2
    HEADER_LENGTH_OFFSET = 44
    RESERVED_OFFSET = 64
    MAJOR_VERSION = 3
    SEMANTIC_VERSION = 0x030100     # 3.1.0
    REFRESH_INTERVAL_MS = 1_000

MARK_FILE_NAME = "archive-mark.dat"
LINK_FILE_NAME = "archive-mark.lnk"

cdef bytes _SBE_HEADER = struct.pack("<HHHH", BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION)
_END_OF_TIMESTAMP = SBE_HEADER_LENGTH + START_TIMESTAMP_OFFSET
_OWNER = struct.Struct("<qq")           # start timestamp and process id
_FIELDS = struct.Struct("<iiiii4xq")    # three stream ids, lengths of header and error log, archive id
_KIND = MarkFileKind(
    sbe_header=_SBE_HEADER,
    begin=bytes(8),
    version=SEMANTIC_VERSION,
    failed_version=SEMANTIC_VERSION,    # with the version of a file that was never ready, 0, no Java archive starts
    lengths_offset=HEADER_LENGTH_OFFSET,
    holder="archive",
    own_place="a directory of its own",
    error_file="archive",
)


cdef class ArchiveMarkFile(OwnedMarkFile):
    """Creates the mark file of an archive, or takes over the one that a dead owner left.

    Args:
        path: of the file, :data:`MARK_FILE_NAME` in a directory that is there.
        storage: where the file is.
        clock: the source of time.
        process_id: of the owner.
        archive_id: of the archive; -1 for none.
        control_stream_id, local_control_stream_id, events_stream_id: the streams that readers of the file want to know.
        control_channel, events_channel: likewise, or None.
        local_control_channel, aeron_dir: likewise (str).
        error_buffer_length: bytes of the error log, from 1 MiB to 2,147,475,455.
        page_size: the file's length becomes a multiple of it: the driver's file page size, in bytes.
        fallback: text stream for the notice that old errors were saved; None for no notice.

    After this the start is in progress, and must be shown by :meth:`refresh`: a file that shows no life for 10 seconds
    is free. :meth:`signal_ready` or :meth:`signal_failed_start` ends it.

    ``former_owner``: start timestamp (epoch ms) and process id of who owned the file before this start; None when the
    file is new or names nobody. A start of ours that never was ready does not count.

    Raises:
        ConfigurationError: a length or a page size out of range.
        MarkFileError: the file is held by a live owner, or by one that starts right now; it is damaged, of something
            else, of another major version, of the layout without a message header, or too short; it can't be created,
            reserved, opened or forced; or the texts do not fit. The file is left as it was, or free.

    May be used by several threads.
    """
    cdef readonly tuple former_owner
    cdef tuple _stream_ids              # for control, local control and events
    cdef int64_t _archive_id
    cdef bytes _texts                   # as they follow the block
    cdef int64_t _refreshed_ms

    def __init__(self, path, *, Storage storage not None, Clock clock not None, int64_t process_id, int64_t archive_id,
                 int32_t control_stream_id, int32_t local_control_stream_id, int32_t events_stream_id,
                 str local_control_channel not None, str aeron_dir not None, str control_channel=None,
                 str events_channel=None, error_buffer_length=1024 * 1024, page_size=4096, fallback=None):
        texts = b"".join(struct.pack("<I", len(text)) + text.encode("ascii", "replace") for text in (
            control_channel or "", local_control_channel, events_channel or "", aeron_dir))
        end = SBE_HEADER_LENGTH + BLOCK_LENGTH + len(texts)
        if end > MARK_HEADER_LENGTH:
            raise MarkFileError(f"ArchiveMarkFile headerLength={end} > headerLengthCapacity={MARK_HEADER_LENGTH}: "
                                "shorten aeron_dir or the channels")
        self._stream_ids = control_stream_id, local_control_stream_id, events_stream_id
        self._archive_id, self._texts = archive_id, texts
        self._begin(_KIND, path, storage, clock, process_id, error_buffer_length, page_size, fallback)
        self._keep_start()

    cdef int _keep_start(self) except -1:
        """Have the disk keep what was written."""
        try:
            self._refreshed_ms = self._clock.epoch_ms()
            self._force()
            try:
                self._storage.force_directory(os.path.dirname(self.path) or ".")
            except OSError as error:
                self._fail(error)
        except BaseException:
            self.signal_failed_start()
            self.close()
            raise
        return 0

    cdef int64_t _block_offset(self, bytes head) except -1:
        cdef bint is_ours = head[2:6] == _SBE_HEADER[2:6]
        if (is_ours or not any(head[:SBE_HEADER_LENGTH])) and not any(head[SBE_HEADER_LENGTH:_END_OF_TIMESTAMP]):
            # Java's archive writes neither version nor time into a new file before it is ready.
            raise MarkFileError(
                f"mark file {self.path} has neither version nor time: Java's archive starts here for the first time, "
                "or a start was killed: delete the file if no archive is starting")
        if is_ours:
            return SBE_HEADER_LENGTH
        version, padding = struct.unpack_from("<ii", head)
        if 1 <= version >> 16 <= MAJOR_VERSION and padding == 0:
            raise MarkFileError(
                f"mark file {self.path} has the older layout, without a message header: run Aeron's `ArchiveTool "
                "ARCHIVE_DIR migrate`, and then Java's archive once, which converts the file")
        raise MarkFileError(
            f"mark file {self.path} is damaged, or not an archive's: it begins with {head[:SBE_HEADER_LENGTH].hex()}, "
            f"not with {_SBE_HEADER.hex()}; delete it, or give the archive {self._kind.own_place}")

    cdef int _check_version(self, int32_t version) except -1:
        cdef int32_t major = version >> 16
        if version != 0 and major != MAJOR_VERSION:     # 0: never ready
            advice = ("run Aeron's `ArchiveTool ARCHIVE_DIR migrate`" if 0 <= major < MAJOR_VERSION
                      else "start the software that wrote it, or use an empty directory")
            raise MarkFileError(f"mark file major version {major} does not match software: {MAJOR_VERSION}: "
                                f"{self.path}; {advice}")
        return 0

    cdef int _adopt(self, int64_t block) except -1:
        """Make the claimed file ours, all but the version, in one atomic write.

        The name goes with the time: a claim under the name of a process that was killed would stay for good.
        """
        found = _OWNER.unpack(self._read(block + START_TIMESTAMP_OFFSET, _OWNER.size))
        reserved = self._read(block + RESERVED_OFFSET, 2 * _OWNER.size)
        if _OWNER.unpack_from(reserved, _OWNER.size) == found:
            found = _OWNER.unpack_from(reserved)        # who was found never was ready
        self.former_owner = found if found[0] > 0 and found[1] > 0 else None
        self._write(0, _SBE_HEADER)
        return self._write_new()

    cdef int _write_new(self) except -1:
        block = (struct.pack("<q", self._clock.epoch_ms()) + _OWNER.pack(*self._owner)
                 + _FIELDS.pack(*self._stream_ids, MARK_HEADER_LENGTH, self.error_buffer_length, self._archive_id)
                 + _OWNER.pack(*(self.former_owner or (0, 0))) + _OWNER.pack(*self._owner))
        content = block.ljust(BLOCK_LENGTH - ACTIVITY_TIMESTAMP_OFFSET, b"\0") + self._texts
        return self._write(SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET,
                           content.ljust(MARK_HEADER_LENGTH - SBE_HEADER_LENGTH - ACTIVITY_TIMESTAMP_OFFSET, b"\0"))

    cdef int _before_ready(self) except -1:
        return self._write_or_fail(SBE_HEADER_LENGTH + RESERVED_OFFSET, bytes(BLOCK_LENGTH - RESERVED_OFFSET))

    cpdef bint refresh(self, int64_t now_ms) except -1:
        """Show that the owner lives (epoch ms), unless it did less than a second ago; return whether it did so now.

        For each turn of a duty cycle, and for each step of a recovery. Raise as :meth:`update_activity_timestamp`.
        """
        if 0 <= now_ms - self._refreshed_ms < REFRESH_INTERVAL_MS:
            return False
        self._refreshed_ms = now_ms
        self.update_activity_timestamp(now_ms)
        return True

    @property
    def owner(self):
        """Start timestamp (epoch ms) and process id of this owner (tuple of int)."""
        return self._owner


def ensure_link_file(Storage storage not None, archive_dir, mark_file_dir):
    """Write the archive's link file, see :func:`container.files.mark_file.write_link_file`."""
    write_link_file(storage, archive_dir, LINK_FILE_NAME, mark_file_dir)


seal((ArchiveMarkFile,))
