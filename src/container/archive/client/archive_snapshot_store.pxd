# The store of a service's snapshots, as recordings of an archive.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveConnection
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.counters cimport Counters
from container.transport.transport_seam cimport Client, SnapshotReader, SnapshotStore, SnapshotWriter
from container.transport.streams cimport Subscription


cdef class ArchiveSnapshotWriter(SnapshotWriter):
    cdef readonly int32_t counter_id            # of the recording position
    cdef ArchiveConnection _archive
    cdef Counters _counters
    cpdef int check(self) except -1
    cpdef int64_t recorded_position(self) except? -1
    cpdef bint is_complete(self) except -1


cdef class ArchiveSnapshotReader(SnapshotReader):
    cdef ArchiveConnection _archive
    cdef Subscription _subscription
    cpdef int check(self) except -1


cdef class ArchiveSnapshotStore(SnapshotStore):
    cdef readonly object context                # ArchiveClientContext
    cdef readonly str snapshot_channel
    cdef readonly int32_t snapshot_stream_id
    cdef readonly str replay_channel
    cdef readonly int32_t replay_stream_id
    cdef readonly object cluster_dir            # of the recording log; None: the log's recording is found without it
    cdef Client _client
    cpdef SnapshotWriter create(self, IdleStrategy idle)
    cpdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle)
    cpdef SnapshotReader open_log(
        self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle)
    cdef int64_t _log_recording_id(self, int32_t session_id, int64_t archive_id) except? -1
    cdef SnapshotReader _open(
        self, ArchiveSnapshotReader reader, int64_t recording_id, int64_t position, int64_t length, IdleStrategy idle)
    cdef int _start_recording(self, ArchiveSnapshotWriter writer, IdleStrategy idle) except -1
    cdef int _await_stop_position(
        self, ArchiveSnapshotReader reader, int64_t recording_id, IdleStrategy idle) except -1
    cdef int _start_replay(
        self, ArchiveSnapshotReader reader, int64_t recording_id, int64_t position, int64_t length, IdleStrategy idle
    ) except -1
