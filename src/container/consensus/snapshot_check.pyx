"""A copied snapshot, read up to its end marker: whether it is the one that its owner has named.

A name may be wrong, and a node that starts from the copy would find that out, or never. A service's
own state lies behind the end marker and is not read: it has no marker of its own, and may be long. Nor do markers have
the id of a service: whether two services' snapshots are exchanged shows nowhere. Upstream copies what is named.

No snapshot is taken at position 0. One that is named so is of a cluster that began with it and without the log before
it (upstream: ClusterToolOperator.java, seedRecordingLogFromSnapshot): its markers say where it was taken.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive.client.async_archive cimport AsyncArchive
from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.codecs.snapshot_types cimport SNAPSHOT_TYPE_CONSENSUS_MODULE, SNAPSHOT_TYPE_SERVICE
from container.common.sealed cimport hide
from container.consensus.steps cimport Deadline, ReplayImage, check
from container.consensus.steps import begin_replay
from container.errors import ClusterError
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport ACTION_BREAK, ACTION_CONTINUE, FrameHeader
from container.transport.streams cimport FragmentHandler
from container.transport.transport_seam cimport Client

cdef enum:
    FRAGMENT_LIMIT = 100
    CONSENSUS_MODULE_SERVICE_ID = -1


cdef str _described(int64_t type_id, int64_t log_position, int64_t leadership_term_id):
    cdef str owner = f"type {type_id}"
    if type_id == SNAPSHOT_TYPE_CONSENSUS_MODULE:
        owner = "the consensus module"
    elif type_id == SNAPSHOT_TYPE_SERVICE:
        owner = "a service"
    return f"{owner} at {log_position} in term {leadership_term_id}"


cdef class _SnapshotMarks(FragmentHandler):
    cdef int64_t _type_id
    cdef int64_t _log_position
    cdef int64_t _leadership_term_id
    cdef bint _is_begun
    cdef bint is_ended
    cdef str fault                          # None: there is none so far

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef sbe.MessageHeader message
        cdef bint is_read = sbe.sbe_read_header(buffer, length, &message) >= 0
        if is_read and message.schema_id == codec.CLUSTER_SCHEMA_ID:
            if message.template_id == codec.SNAPSHOT_MARKER_TEMPLATE_ID:
                self._on_marker(buffer, length)
            elif not self._is_begun:
                self.fault = "it has no begin marker"
        else:
            self.fault = "it has a message that is not of a cluster" if self._is_begun else "it has no begin marker"
        return ACTION_CONTINUE if self.fault is None and not self.is_ended else ACTION_BREAK

    cdef int _on_marker(self, const uint8_t* buffer, size_t length) except -1:
        cdef codec.SnapshotMarker marker
        cdef int64_t type_id, log_position, leadership_term_id
        cdef int32_t mark
        if codec.snapshot_marker_wrap(&marker, buffer, length) < 0:
            self.fault = "one of its markers is cut short"
            return 0
        mark = codec.snapshot_marker_mark(&marker)
        if self._is_begun == (mark == codec.SNAPSHOT_MARK_BEGIN):
            self.fault = "it has two begin markers" if self._is_begun else "it has no begin marker"
            return 0
        type_id = codec.snapshot_marker_type_id(&marker)
        log_position = codec.snapshot_marker_log_position(&marker)
        leadership_term_id = codec.snapshot_marker_leadership_term_id(&marker)
        if (type_id != self._type_id or (log_position != self._log_position and self._log_position != 0)
                or leadership_term_id != self._leadership_term_id):
            self.fault = (
                f"a marker says it is of {_described(type_id, log_position, leadership_term_id)}, and it should be of "
                f"{_described(self._type_id, self._log_position, self._leadership_term_id)}")
        self._is_begun = True
        self.is_ended = mark == codec.SNAPSHOT_MARK_END
        return 0


def check_snapshot(
        AsyncArchive archive not None, Client client not None, Deadline deadline not None, *, int64_t recording_id,
        int64_t stop_position, str channel not None, int32_t stream_id, snapshot, str named not None):
    """Have the archive replay a snapshot, and read it up to its end marker; a step.

    Args:
        archive: that has it.
        client: what the subscription is added to.
        deadline: for progress.
        recording_id: of it, from position 0 on (int).
        stop_position: where that ends (int, bytes).
        channel, stream_id: of the replay; a session id is added to the channel.
        snapshot: what it should be: has a ``service_id``, a ``log_position``, a ``leadership_term_id``.
        named: who has named it as what, for errors (str).

    Raises:
        ClusterError: it is another one, or not whole.
        ArchiveError: the archive refuses, or finds it damaged.
        TimedOutError: it makes no progress.
    """
    cdef _SnapshotMarks marks = _SnapshotMarks.__new__(_SnapshotMarks)
    marks._type_id = (
        SNAPSHOT_TYPE_CONSENSUS_MODULE if snapshot.service_id == CONSENSUS_MODULE_SERVICE_ID else SNAPSHOT_TYPE_SERVICE)
    marks._log_position, marks._leadership_term_id = snapshot.log_position, snapshot.leadership_term_id
    if stop_position > 0:
        yield from _read(archive, client, deadline, recording_id, stop_position, channel, stream_id, marks)
    if marks.fault is not None:
        raise ClusterError(f"{named} is another one: {marks.fault}")
    if not marks.is_ended:
        raise ClusterError(f"{named} is not whole: it has no end marker")


def _read(
        AsyncArchive archive, Client client, Deadline deadline, int64_t recording_id, int64_t stop_position,
        str channel, int32_t stream_id, _SnapshotMarks marks):
    cdef FragmentAssembler assembler = FragmentAssembler(marks)
    cdef ReplayImage replay
    cdef int64_t position = 0
    cdef bint has_ended = False
    replay = yield from begin_replay(
        archive, client, deadline, recording_id=recording_id, position=0, length=stop_position, channel=channel,
        stream_id=stream_id)
    try:
        deadline.begin(f"recording {recording_id} to be replayed on {channel}")
        while marks.fault is None and not marks.is_ended and position < stop_position:
            if replay.image.controlled_poll(assembler, FRAGMENT_LIMIT) > 0:
                position = replay.image.position()
                deadline.begin(f"recording {recording_id} to be replayed on {channel}: it is read up to {position}")
            elif has_ended:                 # the archive's error comes before the end that it is about, or just after
                raise ClusterError(
                    f"the replay of recording {recording_id} ended at {position}, and the recording ends at "
                    f"{stop_position}: the archive's error log says why")
            has_ended = replay.image.is_closed() or replay.image.is_end_of_stream()
            deadline.check()
            yield
            archive.poll()
            check(replay.request)
    finally:
        replay.subscription.close()
        archive.forget(replay.request)


hide((_SnapshotMarks,))
