"""The counters by which an archive shows what it does, and how it names those of its recordings.

Types, keys and labels are upstream's (ArchiveCounters.java, Archive.java, RecordingPos.java), which the cluster, its
tools and monitors look for. The key of each is the archive's id, except for the positions of recordings.

Better than upstream's: an archive without a counter of errors, as one that runs in a media driver, is found by its
counter of control sessions.
"""
import struct

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.common.aeron_defaults import CounterType
from container.common.quantities import format_duration
from container.common.sealed cimport seal
from container.errors import ArchiveError
from container.transport.duration_tracker cimport DurationTracker
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counter, Counters
from container.transport.transport_seam cimport Client
from container.version import version_info

cdef int32_t ERROR_COUNT_TYPE_ID = CounterType.ARCHIVE_ERROR_COUNT
cdef int32_t CONTROL_SESSIONS_TYPE_ID = CounterType.ARCHIVE_CONTROL_SESSIONS

cdef enum:
    MAX_KEY_LENGTH = 112
    MAX_LABEL_LENGTH = 380
    SOURCE_IDENTITY_OFFSET = 16         # in the key of a recording's position
    MAX_SOURCE_IDENTITY_LENGTH = MAX_KEY_LENGTH - SOURCE_IDENTITY_OFFSET - 8


cdef inline str _suffix(int64_t archive_id):
    return f" - archiveId={archive_id}"


cdef inline int64_t _first_of_key(Counters counters, int32_t counter_id) noexcept nogil:
    cdef const uint8_t* key = counters.key(counter_id)
    cdef int64_t value = 0
    if key != NULL:
        memcpy(&value, key, sizeof(value))
    return value


cdef bint _is_running(Counters counters, int64_t archive_id) noexcept nogil:
    # A driver has the counters of a client until that closes them, or has not been heard of for a time.
    cdef int32_t counter_id, state, type_id
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if state != COUNTER_ALLOCATED:
            continue
        type_id = counters.type_id(counter_id)
        if ((type_id == ERROR_COUNT_TYPE_ID or type_id == CONTROL_SESSIONS_TYPE_ID)
                and _first_of_key(counters, counter_id) == archive_id):
            return True
    return False


cdef class ArchiveCounters:
    """The counters of the archive ``archive_id``; each is an attribute, and all are 0 at first.

    Args:
        client: the archive's (Client); its driver is asked for each counter, which blocks until it has answered.
        archive_id: which archive of the driver it is (int).
        threading_mode: name of the mode, for labels (str).
        conductor_cycle_threshold_ns: a duty cycle that takes longer is counted (int, nanoseconds).

    Raises ArchiveError when an archive of the driver has the id already, also one that was killed, until the driver's
    client liveness timeout is over; and what the client raises: RegistrationError when there is no room for a counter,
    DriverTimeoutError when the driver is gone. There is nothing to close then.
    """

    def __init__(self, Client client not None, int64_t archive_id, *, str threading_mode not None,
                 int64_t conductor_cycle_threshold_ns):
        self._client = client
        self._added = []
        self.archive_id = archive_id
        if _is_running(client.counters(), archive_id):
            raise ArchiveError(f"found existing archive for archiveId={archive_id}")
        try:
            self.error_counter = self._add(ERROR_COUNT_TYPE_ID, "Archive Errors", f" {version_info()}")
            self.conductor_cycle = DurationTracker(
                self._add(
                    CounterType.ARCHIVE_MAX_CYCLE_TIME, f"archive-conductor max cycle time in ns: {threading_mode}"),
                self._add(
                    CounterType.ARCHIVE_CYCLE_TIME_THRESHOLD_EXCEEDED,
                    "archive-conductor work cycle time exceeded count: "
                    f"threshold={format_duration(conductor_cycle_threshold_ns)} {threading_mode}"),
                conductor_cycle_threshold_ns)
            self.control_sessions = self._add(CONTROL_SESSIONS_TYPE_ID, "Archive Control Sessions")
            self.recording_sessions = self._add(CounterType.ARCHIVE_RECORDING_SESSIONS, "Archive Recording Sessions")
            self.replay_sessions = self._add(CounterType.ARCHIVE_REPLAY_SESSIONS, "Archive Replay Sessions")
            self.recorder_max_write_time = self._add(
                CounterType.ARCHIVE_RECORDER_MAX_WRITE_TIME, "archive-recorder max write time in ns")
            self.recorder_total_write_bytes = self._add(
                CounterType.ARCHIVE_RECORDER_TOTAL_WRITE_BYTES, "archive-recorder total write bytes")
            self.recorder_total_write_time = self._add(
                CounterType.ARCHIVE_RECORDER_TOTAL_WRITE_TIME, "archive-recorder total write time in ns")
            self.replayer_max_read_time = self._add(
                CounterType.ARCHIVE_REPLAYER_MAX_READ_TIME, "archive-replayer max read time in ns")
            self.replayer_total_read_bytes = self._add(
                CounterType.ARCHIVE_REPLAYER_TOTAL_READ_BYTES, "archive-replayer total read bytes")
            self.replayer_total_read_time = self._add(
                CounterType.ARCHIVE_REPLAYER_TOTAL_READ_TIME, "archive-replayer total read time in ns")
        except BaseException:
            self.close()
            raise

    cpdef int close(self) except -1:
        """Give all counters back; those of a client that is closed are gone already. May be called twice."""
        cdef Counter counter
        while self._added:
            counter = self._added.pop()
            counter.close()
        return 0

    cdef Counter _add(self, int32_t type_id, str name, str end=""):
        cdef Counter counter = self._client.add_counter(
            type_id, struct.pack("<q", self.archive_id), f"{name}{_suffix(self.archive_id)}{end}")
        self._added.append(counter)
        return counter

    def __repr__(self):
        return f"<ArchiveCounters archive_id={self.archive_id} counters={len(self._added)}>"


cpdef bytes recording_position_key(
        int64_t recording_id, int32_t session_id, str source_identity, int64_t archive_id):
    """The key of the counter that shows how far a recording is (bytes), by which the cluster finds it.

    Args:
        recording_id: of the recording (int).
        session_id: of the image that is recorded (int).
        source_identity: who sends to the image (str); only the first 88 characters are in the key.
        archive_id: the archive's (int).
    """
    cdef bytes identity = source_identity[:MAX_SOURCE_IDENTITY_LENGTH].encode("ascii", "replace")
    return (struct.pack("<qii", recording_id, session_id, len(identity)) + identity + struct.pack("<q", archive_id))


cpdef str recording_position_label(
        int64_t recording_id, int32_t session_id, int32_t stream_id, str stripped_channel, int64_t archive_id):
    """The label of that counter (str, ASCII); the channel is cut where there is no room for all of it.

    Args:
        recording_id: of the recording (int).
        session_id: of the image that is recorded (int).
        stream_id: of the image's stream (int).
        stripped_channel: as the catalog has it (str).
        archive_id: the archive's (int).
    """
    cdef str begin = f"rec-pos: {recording_id} {session_id} {stream_id} "
    cdef str end = _suffix(archive_id)
    cdef Py_ssize_t room = MAX_LABEL_LENGTH - len(begin) - len(end)
    return f"{begin}{stripped_channel[:room].encode('ascii', 'replace').decode('ascii')}{end}"


seal((ArchiveCounters,))
