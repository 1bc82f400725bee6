"""The mark file of a service, a consensus module or a backup: who owns it, whether the owner lives, and its error log.

They are upstream's ``cluster-mark-service-<N>.dat`` and ``cluster-mark.dat``: a MarkFileHeader (schema 110, template
200) at offset 0, and a distinct error log from byte 8192 on. Upstream: ClusterMarkFile.java.
:mod:`container.files.mark_file` has the part that all mark files share.
"""
import os
import struct

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from container.common.sealed cimport seal
from container.files.mark_file cimport (
    ACTIVITY_TIMESTAMP_OFFSET, BLOCK_LENGTH, MARK_HEADER_LENGTH, SBE_HEADER_LENGTH, START_TIMESTAMP_OFFSET,
    VERSION_OFFSET, OwnedMarkFile,
)
from container.storage.storage_seam cimport Storage
from container.transport.clocks cimport Clock
from container.transport.frames cimport NULL_VALUE

from container.common.loggers import report
from container.errors import MarkFileError
from container.files import mark_file
from container.files.mark_file import MarkFileKind, write_link_file
from container.storage.file_storage import FileStorage
from container.transport.clocks import SystemClock

# MarkFileHeader. Offsets are of the block; in the layout before schema 110 had a header, the block began at offset 0
# of the file.
cdef enum:
    TEMPLATE_ID = 200
    SCHEMA_ID = 110
    SCHEMA_VERSION = 2
    COMPONENT_TYPE_OFFSET = 4
    CANDIDATE_TERM_ID_OFFSET = 32
    ARCHIVE_STREAM_ID_OFFSET = 40
    MEMBER_ID_OFFSET = 56
    HEADER_LENGTH_OFFSET = 64
    ERROR_BUFFER_LENGTH_OFFSET = 68
    CLUSTER_ID_OFFSET = 72

cdef enum:
    C_SEMANTIC_VERSION = 0x000300       # 0.3.0
    C_VERSION_FAILED = -1
    C_COMPONENT_CONSENSUS_MODULE = 1
    C_COMPONENT_CONTAINER = 2
    C_COMPONENT_BACKUP = 3

ERROR_BUFFER_MIN_LENGTH = mark_file.ERROR_BUFFER_MIN_LENGTH
ERROR_BUFFER_MAX_LENGTH = mark_file.ERROR_BUFFER_MAX_LENGTH

cdef bytes _SBE_HEADER = struct.pack("<HHHH", BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION)
_COMPONENT_TYPES = ("UNKNOWN", "CONSENSUS_MODULE", "CONTAINER", "BACKUP", "STANDBY")


def _kind(component_type, holder, own_place, error_file):
    return MarkFileKind(
        sbe_header=_SBE_HEADER,
        begin=struct.pack("<ii", 0, component_type),
        version=C_SEMANTIC_VERSION,
        failed_version=C_VERSION_FAILED,
        lengths_offset=HEADER_LENGTH_OFFSET,
        holder=holder,
        own_place=own_place,
        error_file=error_file,
    )


_KINDS = {
    C_COMPONENT_CONTAINER: _kind(
        C_COMPONENT_CONTAINER, "container", "a cluster_dir or a service_id of its own", "CONTAINER"),
    C_COMPONENT_CONSENSUS_MODULE: _kind(
        C_COMPONENT_CONSENSUS_MODULE, "consensus module", "a cluster_dir of its own", "CONSENSUS_MODULE"),
    C_COMPONENT_BACKUP: _kind(C_COMPONENT_BACKUP, "backup", "a cluster_dir of its own", "BACKUP"),
}
MARK_FILE_NAME = "cluster-mark.dat"     # of a consensus module, or of a backup
LINK_FILE_NAME = "cluster-mark.lnk"


def mark_file_name(service_id):
    """Name of the mark file of a service."""
    return f"cluster-mark-service-{service_id}.dat"


def link_file_name(service_id):
    """Name of the file that says where the mark file of a service is."""
    return f"cluster-mark-service-{service_id}.lnk"


cdef class ClusterMarkFile(OwnedMarkFile):
    """Creates the mark file of a service, a consensus module or a backup, or takes over the one that a dead owner left.

    Args:
        path: of the file; its directory must be there.
        is_of_consensus_module, is_of_backup: whose it is (bool).
        error_buffer_length: bytes of the error log, from 1 MiB to 2,147,475,455.
        page_size: the file's length becomes a multiple of it: the driver's file page size, in bytes.
        clock: the source of time; the system's by default.
        storage: where the file is; among this machine's by default.
        fallback: text stream for the notice that old errors were saved; None for no notice.

    After this the start is in progress; :meth:`signal_ready` or :meth:`signal_failed_start` ends it.

    Raises:
        ConfigurationError: a length or a page size out of range.
        MarkFileError: the file is held by a live owner, or by one that starts right now; it is another component's,
            of another major version, too short, or can't be created, reserved or opened. The file is left as it was.

    May be used by several threads.
    """

    cdef int _component_type

    def __init__(self, path, *, bint is_of_consensus_module=False, bint is_of_backup=False,
                 error_buffer_length=ERROR_BUFFER_MIN_LENGTH, page_size=4096, Clock clock=None, Storage storage=None,
                 fallback=None):
        self._component_type = (
            C_COMPONENT_BACKUP if is_of_backup
            else C_COMPONENT_CONSENSUS_MODULE if is_of_consensus_module else C_COMPONENT_CONTAINER)
        self._begin(
            _KINDS[self._component_type], path, storage if storage is not None else FileStorage(),
            clock if clock is not None else SystemClock(), os.getpid(), error_buffer_length, page_size, fallback)

    cdef int64_t _block_offset(self, bytes head) except -1:
        return SBE_HEADER_LENGTH if head[2:6] == _SBE_HEADER[2:6] else 0

    cdef int _check_version(self, int32_t version) except -1:
        cdef int major = (version >> 16) & 0xFF
        if version == C_VERSION_FAILED:
            report("warning", "mark file %s has version -1: the start before this one failed", self.path)
        elif major != 0:
            raise MarkFileError(f"mark file major version {major} does not match software: 0: {self.path}; start with "
                                "an empty directory, or with the software that wrote it")
        return 0

    cdef int _check_claimed(self, int64_t block) except -1:
        cdef int64_t component_type = self._get32(block + COMPONENT_TYPE_OFFSET)
        cdef bint is_backup = (         # a consensus module may continue from its copy
            component_type == C_COMPONENT_BACKUP and self._component_type == C_COMPONENT_CONSENSUS_MODULE)
        if component_type != 0 and component_type != self._component_type and not is_backup:
            name = _COMPONENT_TYPES[component_type] if 0 < component_type < len(_COMPONENT_TYPES) else component_type
            raise MarkFileError(f"existing mark file type {name} not same as required type "
                                f"{_COMPONENT_TYPES[self._component_type]}: {self.path}")
        return 0

    cdef int _adopt(self, int64_t block) except -1:
        """Make the claimed file ours: the header in today's layout; in today's layout the version stays as it was."""
        cdef int64_t candidate_term_id = self._get64(block + CANDIDATE_TERM_ID_OFFSET)
        if self._get64(block + START_TIMESTAMP_OFFSET) == 0:    # it was killed before it wrote either
            candidate_term_id = NULL_VALUE
        if block == 0:
            # The old layout's timestamp lies where today's version and component type do. It goes only when today's
            # timestamp and SBE header are there: at no moment may another process see a file that is free.
            self._put64(ACTIVITY_TIMESTAMP_OFFSET, INT64_MAX)
            self._write(0, _SBE_HEADER)
            self._put32(VERSION_OFFSET, 0)
            self._write(SBE_HEADER_LENGTH + START_TIMESTAMP_OFFSET,
                        bytes(MARK_HEADER_LENGTH - SBE_HEADER_LENGTH - START_TIMESTAMP_OFFSET))
        return self._write_identity(candidate_term_id)

    cdef int _write_new(self) except -1:
        return self._write_identity(NULL_VALUE)

    cdef int _write_identity(self, int64_t candidate_term_id) except -1:
        """The fields that are known before the container is configured, except the version.

        The name goes with the time: a claim under the name of a process that was killed would stay for good.
        """
        self._write(0, _SBE_HEADER)
        self._put32(COMPONENT_TYPE_OFFSET, self._component_type)
        self._put32(HEADER_LENGTH_OFFSET, MARK_HEADER_LENGTH)
        self._put32(ERROR_BUFFER_LENGTH_OFFSET, self.error_buffer_length)
        return self._write(SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET, struct.pack(
            "<qqqq", self._clock.epoch_ms(), *self._owner, candidate_term_id))

    def write_header(self, *, archive_stream_id, service_stream_id, consensus_module_stream_id, service_id, cluster_id,
                     aeron_dir, control_channel, service_name, ingress_stream_id=NULL_VALUE, member_id=NULL_VALUE,
                     ingress_channel="", authenticator=""):
        """Write what readers of the file want to know of its owner, before it is ready.

        The member id of a container is -1, until the log is joined. Raise MarkFileError when the texts do not fit.
        """
        texts = b"".join(struct.pack("<I", len(text)) + text for text in (
            aeron_dir.encode("ascii", "replace"), control_channel.encode("ascii"), ingress_channel.encode("ascii"),
            service_name.encode("ascii"), authenticator.encode("ascii", "replace")))
        end = SBE_HEADER_LENGTH + BLOCK_LENGTH + len(texts)
        if end > MARK_HEADER_LENGTH:
            raise MarkFileError(f"ClusterMarkFile headerLength={end} > headerLengthCapacity={MARK_HEADER_LENGTH}: "
                                "shorten aeron_dir, the channels or service_name")
        with self._guard:
            self._require_ours()
            self._write_or_fail(SBE_HEADER_LENGTH + ARCHIVE_STREAM_ID_OFFSET, struct.pack(
                "<iiiiii", archive_stream_id, service_stream_id, consensus_module_stream_id, ingress_stream_id,
                member_id, service_id))
            self._write_or_fail(SBE_HEADER_LENGTH + CLUSTER_ID_OFFSET, struct.pack("<i", cluster_id))
            self._write_or_fail(SBE_HEADER_LENGTH + BLOCK_LENGTH,
                                texts.ljust(MARK_HEADER_LENGTH - SBE_HEADER_LENGTH - BLOCK_LENGTH, b"\0"))

    cpdef int set_member_id(self, int32_t member_id) except -1:
        """Write the member id from the joined log. Only readers need it, so what prevents the write is logged."""
        with self._guard:
            if self._file is not None:
                try:
                    self._require_ours()
                    self._write_or_fail(SBE_HEADER_LENGTH + MEMBER_ID_OFFSET, struct.pack("<i", member_id))
                except (MarkFileError, OSError) as error:
                    report("warning", "%s", error)
        return 0

    @property
    def member_id(self):
        """The member id (int); -1 before the log is joined, or once closed."""
        return self._field32(MEMBER_ID_OFFSET)

    @property
    def candidate_term_id(self):
        """The term for which the member stood (int), carried over from the file's last owner; -1 when there is none."""
        return self._field64(CANDIDATE_TERM_ID_OFFSET)


def ensure_link_file(Storage storage not None, cluster_dir, mark_file_dir, service_id):
    """Write the link file of a service, see :func:`container.files.mark_file.write_link_file`."""
    write_link_file(storage, cluster_dir, link_file_name(service_id), mark_file_dir)


seal((ClusterMarkFile,))
