"""The store of a service's snapshots: recordings of the archive beside the consensus module, which also replays what a
service has missed of the log.

Each operation has its own session with the archive. Beside upstream's rules:

- every wait idles with the caller's idle strategy, so that a mark file stays alive during a wait of seconds;
- an error that the archive reports asynchronously always raises (upstream's rule from 1.53 on);
- waiting for the replay has a limit and looks at the archive's errors;
- every wait says in the log, after a while, what it waits for.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.client cimport recording_counters
from container.archive.client.archive_connection cimport ArchiveConnection, Wait
from container.archive.client.archive_events import SourceLocation
from container.archive.client.archive_requests import recording_fields, replay_fields
from container.common.aeron_defaults import (
    REPLAY_CHANNEL, REPLAY_STREAM_ID, SERVICE_SNAPSHOT_STREAM_ID, SNAPSHOT_CHANNEL,
)
from container.common.channel_uri import add_session_id
from container.common.sealed cimport seal
from container.errors import ClusterError
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.counters cimport Counters
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client, SnapshotReader, SnapshotStore, SnapshotWriter

cdef enum:
    FROM_START = 0
    TO_THE_END = -1                                     # as a replay's length


cdef ArchiveConnection _connect_archive(Client client, object context, IdleStrategy idle):
    cdef ArchiveConnection archive = ArchiveConnection(client, context)
    try:
        archive.connect(idle)
    except BaseException:
        archive.close()
        raise
    return archive


cdef class ArchiveSnapshotWriter(SnapshotWriter):
    """A snapshot that an archive records while it is published; closing the publication ends the
    recording."""

    def __init__(self):
        raise TypeError("made by ArchiveSnapshotStore.create()")

    cpdef int check(self) except -1:
        """Raise ArchiveError when the archive reported an error or is lost."""
        return self._archive.check()

    cpdef int64_t recorded_position(self) except? -1:
        """Up to where the publication is recorded, in bytes. Raises ClusterError when the recording stopped."""
        # The counter is this recording's only if it still is after its value was read: ids are reused.
        cdef int64_t recorded_position = self._counters.value(self.counter_id)
        if recording_counters.recording_id_of(self._counters, self.counter_id) != self.recording_id:
            raise ClusterError(f"recording stopped unexpectedly: {self.recording_id}")
        return recorded_position

    cpdef bint is_complete(self) except -1:
        """Whether all that was published is recorded. Raises ClusterError when the recording stopped before
        that."""
        return self.recorded_position() >= self.publication.position() >= 0

    cpdef int close(self) except -1:
        """End the recording and the archive session. May be called twice."""
        try:
            self.publication.close()
        finally:
            self._archive.close()
        return 0


cdef class ArchiveSnapshotReader(SnapshotReader):
    """A snapshot that an archive replays."""

    def __init__(self):
        raise TypeError("made by ArchiveSnapshotStore.open()")

    cpdef int check(self) except -1:
        """Raise ArchiveError when the archive reported an error or is lost."""
        return self._archive.check()

    cpdef int close(self) except -1:
        """End the replay and the archive session. May be called twice."""
        try:
            self._subscription.close()
        finally:
            self._archive.close()
        return 0


cdef class ArchiveSnapshotStore(SnapshotStore):
    """Snapshots as recordings of the archive beside the consensus module; each operation has its own
    connection.

    ``snapshot_channel`` and ``snapshot_stream_id`` are where a snapshot is published to be recorded,
    ``replay_channel`` and ``replay_stream_id`` where it is replayed; the defaults are upstream's. ``cluster_dir`` is
    the consensus module's directory, whose recording log says which recording the log is.
    """

    def __init__(self, Client client not None, context not None, *,
                 str snapshot_channel not None=SNAPSHOT_CHANNEL,
                 int32_t snapshot_stream_id=SERVICE_SNAPSHOT_STREAM_ID,
                 str replay_channel not None=REPLAY_CHANNEL, int32_t replay_stream_id=REPLAY_STREAM_ID,
                 cluster_dir=None):
        self._client = client
        self.context = context
        self.snapshot_channel = snapshot_channel
        self.snapshot_stream_id = snapshot_stream_id
        self.replay_channel = replay_channel
        self.replay_stream_id = replay_stream_id
        self.cluster_dir = cluster_dir

    cpdef SnapshotWriter create(self, IdleStrategy idle):
        """Connect to the archive, add the publication and wait until it is being recorded.

        Block, idling with ``idle``. Raise ArchiveError when the archive refuses (``code`` STORAGE_SPACE:
        its disk is full) or is lost, TimedOutError, and whatever ``idle`` raises; everything is closed then.
        """
        cdef ArchiveSnapshotWriter writer = ArchiveSnapshotWriter.__new__(ArchiveSnapshotWriter)
        writer._archive = _connect_archive(self._client, self.context, idle)
        try:
            writer.publication = self._client.add_exclusive_publication(
                self.snapshot_channel, self.snapshot_stream_id)
            self._start_recording(writer, idle)
        except BaseException:
            if writer.publication is not None:
                writer.publication.close()
            writer._archive.close()
            raise
        return writer

    cdef int _start_recording(self, ArchiveSnapshotWriter writer, IdleStrategy idle) except -1:
        cdef int32_t session_id = writer.publication.session_id
        cdef int64_t archive_id = writer._archive.archive_id
        cdef int64_t recording_id
        cdef Wait wait
        cdef str channel = add_session_id(self.snapshot_channel, session_id)
        writer._archive.wait_for(writer._archive.ask(
            "StartRecordingRequest2", f"start recording of {channel} stream {self.snapshot_stream_id}",
            recording_fields(channel, self.snapshot_stream_id, SourceLocation.LOCAL, True)), idle)
        wait = Wait(
            self._client, idle, self.context.message_timeout_ns,
            f"the recording position counter of session id {session_id}, archive id {archive_id}")
        writer._counters = self._client.counters()
        while True:
            writer.counter_id = recording_counters.find_by_session(writer._counters, session_id, archive_id)
            recording_id = recording_counters.recording_id_of(writer._counters, writer.counter_id)
            if recording_id != NULL_VALUE:
                writer.recording_id = recording_id
                return 0
            wait.turn(0)
            writer.check()

    cpdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle):
        """Connect to the archive, ask where the recording ends, start its replay from its start and wait
        until the replay arrives.

        Block and raise as :meth:`create`; TimedOutError also when the recording does not stop.
        """
        cdef ArchiveSnapshotReader reader = ArchiveSnapshotReader.__new__(ArchiveSnapshotReader)
        reader._archive = _connect_archive(self._client, self.context, idle)
        try:
            self._await_stop_position(reader, recording_id, idle)
        except BaseException:
            reader._archive.close()
            raise
        return self._open(reader, recording_id, FROM_START, TO_THE_END, idle)

    cpdef SnapshotReader open_log(
            self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle):
        """Connect to the archive, start the replay of the log from ``position`` up to ``end_position`` (bytes) and
        waits until it arrives.

        The recording is the one of the log with ``session_id`` while that is recorded, else the one of the last
        leadership term in the recording log. Block and raise as :meth:`create`, and ClusterError when neither says
        the recording.
        """
        cdef ArchiveSnapshotReader reader = ArchiveSnapshotReader.__new__(ArchiveSnapshotReader)
        cdef int64_t recording_id
        reader._archive = _connect_archive(self._client, self.context, idle)
        try:
            recording_id = self._log_recording_id(session_id, reader._archive.archive_id)
            reader.stop_position = end_position
        except BaseException:
            reader._archive.close()
            raise
        return self._open(reader, recording_id, position, end_position - position, idle)

    cdef int64_t _log_recording_id(self, int32_t session_id, int64_t archive_id) except? -1:
        cdef Counters counters = self._client.counters()
        cdef int64_t recording_id = recording_counters.recording_id_of(
            counters, recording_counters.find_by_session(counters, session_id, archive_id))
        if recording_id != NULL_VALUE:
            return recording_id
        recording_ids = []
        if self.cluster_dir is not None:
            from container.files.recording_log import read_recording_log
            try:
                recording_ids = [
                    entry.recording_id for entry in read_recording_log(self.cluster_dir)
                    if entry.is_term and entry.is_valid and entry.recording_id != NULL_VALUE]
            except FileNotFoundError:
                pass                            # as if it named none
        if not recording_ids:
            raise ClusterError(
                f"which recording the log is, is not known: the archive does not record session id {session_id}, and "
                f"{self.cluster_dir} has no recording.log with a leadership term; cluster_dir must be the consensus "
                "module's")
        return recording_ids[len(recording_ids) - 1]

    cdef SnapshotReader _open(
            self, ArchiveSnapshotReader reader, int64_t recording_id, int64_t position, int64_t length,
            IdleStrategy idle):
        try:
            self._start_replay(reader, recording_id, position, length, idle)
        except BaseException:
            if reader._subscription is not None:
                reader._subscription.close()
            reader._archive.close()
            raise
        return reader

    cdef int _await_stop_position(
            self, ArchiveSnapshotReader reader, int64_t recording_id, IdleStrategy idle) except -1:
        # A recording ends a moment after its snapshot was acknowledged. Only a stopped one has an end to be proven.
        cdef Wait wait = Wait(
            self._client, idle, self.context.message_timeout_ns,
            f"recording {recording_id} to stop: the archive is still recording it, and a snapshot without an end "
            "cannot be loaded")
        reader.stop_position = _stop_position(reader._archive, recording_id, idle)
        while reader.stop_position == NULL_VALUE:
            wait.turn(0)
            reader.stop_position = _stop_position(reader._archive, recording_id, idle)
        return 0

    cdef int _start_replay(
            self, ArchiveSnapshotReader reader, int64_t recording_id, int64_t position, int64_t length,
            IdleStrategy idle) except -1:
        # A subscription without the session id could be fed by another replay on this stream.
        cdef int32_t session_id = <int32_t> reader._archive.wait_for(reader._archive.ask(
            "ReplayRequest",
            f"replay of recording {recording_id} to {self.replay_channel} stream {self.replay_stream_id}",
            replay_fields(recording_id, position, length, self.replay_channel, self.replay_stream_id)),
            idle).relevant_id
        cdef str channel = add_session_id(self.replay_channel, session_id)
        cdef Wait wait = Wait(
            self._client, idle, self.context.message_timeout_ns,
            f"the replay of recording {recording_id} on {channel} stream {self.replay_stream_id}")
        reader._subscription = self._client.add_subscription(channel, self.replay_stream_id)
        while True:
            reader.image = reader._subscription.image_by_session_id(session_id)
            if reader.image is not None:
                return 0
            wait.turn(0)
            reader.check()


cdef int64_t _stop_position(ArchiveConnection archive, int64_t recording_id, IdleStrategy idle) except? -1:
    return archive.wait_for(archive.ask(
        "StopPositionRequest", f"stop position of recording {recording_id}", {"recording_id": recording_id}),
        idle).relevant_id


seal((ArchiveSnapshotWriter, ArchiveSnapshotReader, ArchiveSnapshotStore))
