"""The duty cycle of an archive, from its first subscription to its last file: one agent, which one thread drives.

Upstream: ArchiveConductor.java and SharedModeArchiveConductor.java. Everything that an archive does for its clients is
the conductor's; here is what the conductor lives on: the Aeron client that is invoked, the mark file that shows a live
owner, and the end, in order or after the loss of one of them.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.agent.agent cimport Agent
from container.archive.server.archive_conductor cimport Conductor
from container.common.sealed cimport seal
from container.transport.duration_tracker cimport DurationTracker
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counters
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client
from container.transport.wait_reporter cimport WaitReporter

from container.common.directories import removed_text
from container.errors import AgentTermination, ArchiveError, ClosedError, MarkFileError

cdef enum:
    CLIENT_HEARTBEAT_TYPE_ID = 11
    RECORDING_POSITION_TYPE_ID = 100
    LAST_TYPE_ID = 113                  # of an archive's counters
    SOURCE_IDENTITY_LENGTH_OFFSET = 12  # in the key of a recording's position; the archive's id is behind the text
    SOURCE_IDENTITY_OFFSET = 16
    MAX_SOURCE_IDENTITY_LENGTH = 88


def new_archive_id(Client client not None, *, bint is_given):
    """An id for an archive that has none set (int): that of a client which the caller gave, else a new one.

    Raises as the client does.
    """
    return client.client_id() if is_given else client.next_correlation_id()


cdef class Heartbeat:
    """The work that must be done in time: invoking the client, and showing in the mark file that the owner lives.

    Each happens when the clock's millisecond has changed, so :meth:`beat` may be called as often as one likes: in each
    duty cycle, and with each step of a recovery.

    Args:
        client: the archive's.
        clock: the source of time.
        mark_file: an :class:`~container.archive.server.archive_mark_file.ArchiveMarkFile`.
        on_error: called with errors that end nothing: of a turn of the client's, and of the mark file's disk.
    """
    cdef readonly object mark_file
    cdef Client _client
    cdef Clock _clock
    cdef object _on_error
    cdef object _catalog                # that of the archive once it is open, else None
    cdef int64_t _beat_ms

    def __init__(self, Client client not None, Clock clock not None, mark_file not None, on_error not None):
        self.mark_file, self._client, self._clock, self._on_error = mark_file, client, clock, on_error
        self._beat_ms = INT64_MIN

    def watch(self, catalog not None):
        """Look from now on, with each refresh of the mark file, whether a catalog is in its place: so it is seen within
        a second that the archive's directory was removed or moved."""
        self._catalog = catalog

    cpdef int beat(self) except? -1:
        """Invoke the client and refresh the mark file, if it is time to; return how much work that was (int).

        Raises ClosedError when the client is closed, MarkFileError when the mark file is another owner's by now, or the
        catalog is not in its place any more.
        """
        cdef int64_t now_ms = self._clock.epoch_ms()
        cdef int work_count = 0
        if now_ms != self._beat_ms:
            self._beat_ms = now_ms
            work_count = self._invoke_client()
            try:
                if self.mark_file.refresh(now_ms):
                    work_count += 1
                    if self._catalog is not None and not self._catalog.is_in_place():
                        raise MarkFileError(removed_text(self._catalog.path))
            except OSError as error:        # the disk may be well again before anybody takes the file for a dead one's
                self._on_error(error)
        if self._client.is_closed():
            raise ClosedError(f"unexpected Aeron close: {getattr(self._client, 'close_reason', None)}")
        return work_count

    cdef int _invoke_client(self) except? -1:
        cdef int work_count = 0
        try:
            work_count = self._client.invoke()
        except Exception as error:          # a handler of the client's errors may raise, or the driver is gone
            self._on_error(error)
        return work_count


cdef bint _is_of_archive(Counters counters, int32_t counter_id, int64_t archive_id) noexcept nogil:
    cdef int32_t type_id = counters.type_id(counter_id)
    cdef const uint8_t* key = counters.key(counter_id)
    cdef int64_t found = 0
    cdef int32_t length = 0
    if type_id < RECORDING_POSITION_TYPE_ID or type_id > LAST_TYPE_ID or key == NULL:
        return False
    if type_id == RECORDING_POSITION_TYPE_ID:
        memcpy(&length, key + SOURCE_IDENTITY_LENGTH_OFFSET, sizeof(length))
        if length < 0 or length > MAX_SOURCE_IDENTITY_LENGTH:
            return False
        key += SOURCE_IDENTITY_OFFSET + length
    memcpy(&found, key, sizeof(found))
    return found == archive_id


cdef int32_t _counter_of_archive(Counters counters, int64_t archive_id) noexcept nogil:
    # The first of an archive's counters, or NULL_VALUE.
    cdef int32_t counter_id, state
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if state == COUNTER_ALLOCATED and _is_of_archive(counters, counter_id, archive_id):
            return counter_id
    return NULL_VALUE


cdef int64_t _heartbeat_of(Counters counters, int64_t client_id) noexcept nogil:
    # When the client last showed that it lives (epoch ms), or NULL_VALUE.
    cdef int32_t counter_id, state
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if (state == COUNTER_ALLOCATED and counters.type_id(counter_id) == CLIENT_HEARTBEAT_TYPE_ID
                and counters.registration_id(counter_id) == client_id):
            return counters.value(counter_id)
    return NULL_VALUE


def await_former_archive(Client client not None, int64_t archive_id, Heartbeat heartbeat not None,
                         IdleStrategy idle_strategy not None, int64_t limit_ns):
    """Wait until the driver has given up the counters of an archive with the same id that was killed.

    Until then a consensus module would find the position of a recording of the dead one, and wait for it to move. An
    archive that lives is known by the heartbeat of its client, which moves.

    Args:
        client: the archive's, connected to the driver.
        archive_id: the id of both (int).
        heartbeat: kept up meanwhile.
        idle_strategy: what is done between two looks.
        limit_ns: how long to wait at most (int, nanoseconds): the driver's client liveness timeout, and some more.

    Raises ArchiveError when the other archive lives, or its counters are still there after that time; what
    :meth:`Heartbeat.beat` raises.
    """
    cdef Counters counters = client.counters()
    cdef WaitReporter waiting = WaitReporter(
        client.clock, client.client_name, f"the counters of a former archive with archiveId={archive_id}, which the "
        "driver has until the client liveness timeout is over")
    cdef int64_t begin_ns = client.clock.nano_time(), known_owner_id = INT64_MIN, owner_id, known_ms = 0, heartbeat_ms
    cdef int32_t counter_id = _counter_of_archive(counters, archive_id)
    while counter_id != NULL_VALUE:
        owner_id = counters.owner_id(counter_id)
        heartbeat_ms = _heartbeat_of(counters, owner_id)
        if owner_id != known_owner_id:
            known_owner_id, known_ms = owner_id, heartbeat_ms
        if (heartbeat_ms != known_ms and heartbeat_ms != NULL_VALUE
                or client.clock.nano_time() - begin_ns > limit_ns):
            raise ArchiveError(f"found existing archive for archiveId={archive_id}")
        waiting.tick()
        heartbeat.beat()
        idle_strategy.idle(0)
        counter_id = _counter_of_archive(counters, archive_id)


cdef class ArchiveAgent(Agent):
    """An archive at work. Where client or mark file were lost, files are closed at the end and nothing else: their next
    owner finds where recordings end.

    Args:
        conductor: the :class:`~container.archive.server.archive_conductor.ArchiveConductor`: what the archive does for
            its clients. ``start()``, ``do_work()`` and ``close()`` are called.
        heartbeat: see :class:`Heartbeat`.
        clock: the source of time.
        cycle_tracker: measures the duty cycles, idling included.
        on_error: called with each error (BaseException) that a duty cycle or the end raised.
        release: called last by :meth:`close` with True, or with False when the archive's directory is
            another owner's by now (bool): gives back what the archive was made of.
    """
    cdef Conductor _conductor
    cdef Heartbeat _heartbeat
    cdef Clock _clock
    cdef DurationTracker _cycle_tracker
    cdef object _release
    cdef bint _is_aborted                   # client or mark file was lost: there is nothing to close in order
    cdef bint _is_lost                      # the mark file was

    def __init__(self, Conductor conductor not None, Heartbeat heartbeat not None, Clock clock not None,
                 DurationTracker cycle_tracker not None, on_error not None, release not None):
        self._conductor, self._heartbeat, self._clock, self._cycle_tracker = conductor, heartbeat, clock, cycle_tracker
        self._on_error, self._release = on_error, release

    def start(self):
        """Subscribe to the requests of clients, who are served from the first duty cycle on.

        Raises what the driver refuses (AeronError), and DriverTimeoutError when it does not answer.
        """
        self._conductor.start()
        self._cycle_tracker.begin(self._clock.nano_time())

    cdef int _work(self) except? -1:
        cdef int work_count
        self._cycle_tracker.measure_and_begin(self._clock.nano_time())
        work_count = self._beat()
        return work_count + self._conductor.do_work()

    cdef int _work_again(self) except? -1:
        return self._conductor.record()

    cdef int64_t _tick(self) noexcept:
        return self._heartbeat._beat_ms

    cdef int _beat(self) except? -1:
        try:
            return self._heartbeat.beat()
        except (ClosedError, MarkFileError) as error:
            self._check_process()
            self._is_aborted = True
            self._is_lost = isinstance(error, MarkFileError)
            raise AgentTermination(str(error)) from None

    cdef int _end(self) except -1:
        try:
            if not self._is_aborted:
                self._try_last_beat()
            if not self._is_aborted:
                self._conductor.close()
        except BaseException as error:
            self._on_error(error)
        finally:
            self._release(not self._is_lost)
        return 0

    cdef int _try_last_beat(self) except -1:
        # Nobody has looked since the last duty cycle, which may be long ago where a caller drives the agent.
        try:
            self._beat()
        except AgentTermination as error:
            self.terminate(error)
        except BaseException as error:
            self._on_error(error)
        return 0

    cdef str _kind(self):
        return "archive"


seal((Heartbeat, ArchiveAgent))
