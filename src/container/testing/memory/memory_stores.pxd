# Storage of an agent in memory: snapshots and its mark file.
from libc.stdint cimport int32_t, int64_t

from container.testing.memory.memory_log cimport MemoryImage, MemoryLog
from container.testing.memory.memory_transport cimport MemoryClient
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.transport_seam cimport MarkFile, SnapshotReader, SnapshotStore, SnapshotWriter
from container.transport.streams cimport Subscription


cdef class MemoryRecording:
    cdef readonly MemoryLog log
    cdef public int64_t recorded_position
    cdef MemoryImage _image                                 # what is being recorded; None once finished
    cdef int record(self) except -1


cdef class MemorySnapshotWriter(SnapshotWriter):
    cdef MemorySnapshotStore _store
    cdef MemoryRecording _recording
    cdef Subscription _subscription                         # the archive's


cdef class MemorySnapshotReader(SnapshotReader):
    cdef MemorySnapshotStore _store
    cdef Subscription _subscription


cdef class MemorySnapshotStore(SnapshotStore):
    cdef readonly str snapshot_channel
    cdef readonly int32_t snapshot_stream_id
    cdef readonly str replay_channel
    cdef readonly int32_t replay_stream_id
    cdef MemoryClient _client
    cdef MemoryClient _archive
    cdef int64_t _next_recording_id
    cdef dict _recordings                                   # recording id -> MemoryRecording
    cdef list _logs                                         # of MemoryLog
    cdef dict _scripts                                      # operation -> iterator of what its next calls do
    cdef SnapshotReader _replay(self, MemoryLog log, int64_t position, int64_t end_position, IdleStrategy idle)
    cdef MemoryImage _await_image(self, Subscription subscription, int32_t session_id, IdleStrategy idle)
    cdef int64_t _keep(self, MemoryRecording recording, object recording_id) except? -1
    cdef int _script(self, str operation, IdleStrategy idle) except -1


cdef class MemoryMarkFile(MarkFile):
    cdef readonly list activity_timestamps
    cdef readonly list member_ids
    cdef readonly bint is_terminated
    cdef readonly bint is_closed
    cdef public object error
    cdef int _fail(self) except -1
