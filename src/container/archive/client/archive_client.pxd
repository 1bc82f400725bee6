# The few archive calls that a service needs, and the store of snapshots made of them.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.control_response_poller cimport ControlResponsePoller
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.counters cimport Counters
from container.transport.seam cimport Client, SnapshotReader, SnapshotStore, SnapshotWriter
from container.transport.streams cimport Publication, Subscription
from container.transport.wait_reporter cimport WaitReporter


cdef class _Wait:
    cdef Client _client
    cdef IdleStrategy _idle
    cdef int64_t _limit_ns
    cdef int64_t _deadline_ns
    cdef str _what
    cdef WaitReporter _reporter
    cdef int begin(self, str what) except -1    # the next step: what is awaited from now on
    cdef int turn(self, int work_count) except -1


cdef class ArchiveClient:
    cdef readonly object context                # ArchiveClientContext
    cdef readonly int64_t control_session_id    # NULL_VALUE until the archive gave one
    cdef readonly int64_t archive_id            # NULL_VALUE of an archive before 1.11
    cdef Client _client
    cdef IdleStrategy _idle
    cdef Subscription _subscription
    cdef Publication _publication
    cdef ControlResponsePoller _poller
    cdef bint _is_closed
    cdef int _connect(self) except -1
    cdef int _begin(self, _Wait wait, str step, str what) except -1
    cdef int _add_streams(self) except -1
    cdef bytes _credentials(self, bytes challenge)
    cdef int _await_connect_response(self, _Wait wait, int64_t correlation_id) except -1
    cdef int _check_response(self, str name) except -1
    cdef int _check_open(self) except -1
    cdef int _check_subscription(self) except -1
    cdef bint _try_send(self, bytearray request) except -1
    cdef int _send_within(self, _Wait wait, bytearray request) except -1
    cdef int _send(self, bytearray request, str name) except -1
    cdef int _report_other_response(self, str name) except -1
    cdef int64_t _await_response(self, int64_t correlation_id, str name) except? -1
    cpdef int64_t start_recording(self, str channel, int32_t stream_id) except? -1
    cpdef int64_t start_replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id
    ) except? -1
    cpdef int64_t stop_position(self, int64_t recording_id) except? -1
    cpdef int check_for_error_response(self) except -1
    cpdef int close(self) except -1
    cdef int _close_streams(self) except -1


cdef class ArchiveSnapshotWriter(SnapshotWriter):
    cdef readonly int32_t counter_id            # of the recording position
    cdef ArchiveClient _archive
    cdef Counters _counters
    cpdef int check(self) except -1
    cpdef int64_t recorded_position(self) except? -1
    cpdef bint is_complete(self) except -1


cdef class ArchiveSnapshotReader(SnapshotReader):
    cdef ArchiveClient _archive
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
