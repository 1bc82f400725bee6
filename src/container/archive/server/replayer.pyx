"""The replays of an archive: those that wait for their publication, and those that run.

Upstream: the replays' part of ArchiveConductor.java, CreateReplayPublicationSession.java, and its replayer. A replay
that is stopped is gone when the answer is sent: a truncation that follows finds none.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive.channel_texts import parse_channel, replay_channel
from container.archive.server.archive_counters cimport ArchiveCounters
from container.archive.server.recorder cimport Recorder, add
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.sessions.replay_request import RecordedRange, ReplayLimits, check_replay_request
from container.archive.server.sessions.replay_session cimport ReplaySession
from container.common.error_texts import message_of, type_name
from container.common.sealed cimport seal
from container.errors import ArchiveError, ConfigurationError
from container.transport.counters cimport COUNTER_ALLOCATED
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef enum:
    UNSIGNED_INT_MASK = 0xFFFFFFFF
    INT_MAX = 0x7FFFFFFF


cdef class PendingReplay:
    """A replay whose publication the driver has been asked for."""


cdef class Replayer:
    """Begins, does and ends replays, in the duty cycle of the archive.

    Args:
        client: adds publications (Client).
        store: the archive's recordings on the disk (container.archive.server.store.recording_store.RecordingStore).
        recorder: has the sessions of active recordings (Recorder).
        counters: of the archive (ArchiveCounters).
        on_error: called with each error that no client asked for; it must not raise.
        max_concurrent_replays: how many there may be (int).
        buffer_length: bytes that a replay can read at once (int).
        linger_ns: how long a replay that has ended can be read yet, where the request does not say (int).
        connect_timeout_ns: how long a replay waits for a subscriber (int).
    """

    def __init__(
        self, Client client not None, store, Recorder recorder not None, ArchiveCounters counters not None, on_error,
        *, int max_concurrent_replays, int64_t buffer_length, int64_t linger_ns, int64_t connect_timeout_ns
    ):
        self._client, self._clock, self._store, self._recorder = client, client.clock, store, recorder
        self._counters, self._counters_reader, self._on_error = counters, client.counters(), on_error
        self._max_concurrent_replays, self._buffer_length = max_concurrent_replays, buffer_length
        self._linger_ns, self._connect_timeout_ns = linger_ns, connect_timeout_ns
        self._replay_count = 1
        self._pending, self._sessions = [], {}

    # Requests. They raise ArchiveError.

    cpdef int start(
        self, ControlSession control_session, int64_t correlation_id, object request, int32_t stream_id, str channel,
        object image_correlation_id=None, object limit_counter_id=None
    ) except -1:
        """Ask for the publication of a replay; the request is answered when the replay is found to be possible.

        Args:
            control_session: receives the answer (ControlSession).
            correlation_id: the request's (int).
            request: the range to replay (container.archive.server.sessions.replay_request.ReplayRequest).
            stream_id: the publication's (int).
            channel: the publication's, as the client sent it (str).
            image_correlation_id: the id of the image of a request with a replay token (int), or None.
            limit_counter_id: the id of the counter that bounds the replay (int), or None.
        """
        cdef PendingReplay pending = PendingReplay()
        cdef object parsed, descriptor, recorded = None
        cdef str text
        try:
            parsed = parse_channel(channel)
        except ConfigurationError as error:
            raise ArchiveError(f"failed to process replayChannel - {message_of(error)}") from error
        pending.control_session, pending.correlation_id = control_session, correlation_id
        pending.recording_id, pending.counter_id = request.recording_id, NULL_VALUE
        if limit_counter_id is not None:
            self._take_counter(pending, limit_counter_id)
        descriptor = self._store.catalog.descriptor(request.recording_id)
        if descriptor is not None:
            recorded = RecordedRange(
                descriptor.start_position, descriptor.stop_position, descriptor.mtu_length,
                self._limit_position(request.recording_id, pending))
        pending.replay_range = check_replay_request(
            request, recorded,
            ReplayLimits(len(self._sessions) + len(self._pending), self._max_concurrent_replays, self._buffer_length))
        pending.read_length = request.file_io_max_length
        pending.deadline_ns = self._clock.coarse_nano_time() + self._connect_timeout_ns
        try:
            text = replay_channel(
                parsed, position=pending.replay_range.position, initial_term_id=descriptor.initial_term_id,
                term_length=descriptor.term_buffer_length, mtu_length=descriptor.mtu_length,
                linger_ns=self._linger_ns, image_correlation_id=image_correlation_id)
            pending.adding = self._client.begin_add_publication(text, stream_id, True)
        except Exception as error:
            raise ArchiveError(f"failed to process replayChannel - {message_of(error)}") from error
        self._pending.append(pending)
        return 0

    def _take_counter(self, PendingReplay pending, limit_counter_id):
        cdef int32_t counter_id = limit_counter_id
        if counter_id < 0 or self._counters_reader.state(counter_id) != COUNTER_ALLOCATED:
            raise ArchiveError(
                f"unable to create replay limit counter id= {counter_id} because of: there is no such counter")
        pending.counter_id = counter_id
        pending.counter_registration_id = self._counters_reader.registration_id(counter_id)

    cdef int64_t _limit_position(self, int64_t recording_id, PendingReplay pending) except? -2:
        if pending.counter_id != NULL_VALUE:
            return self._counters_reader.value(pending.counter_id)
        if self._store.is_active(recording_id):
            return self._store.recorded_position(recording_id)
        return NULL_VALUE

    cpdef int stop(self, int64_t replay_session_id) except -1:
        """Stop a replay at once, if there is one of this id."""
        cdef ReplaySession session = self.session_of(replay_session_id)
        if session is not None:
            session.abort()
            self._end(session)
        return 0

    cpdef object session_of(self, int64_t replay_session_id):
        """A replay that has begun (ReplaySession), or None."""
        return self._sessions.get(replay_session_id)

    cpdef int stop_all(self, int64_t recording_id) except -1:
        """Stop all replays of a recording at once, or all that there are for -1."""
        cdef ReplaySession session
        cdef PendingReplay pending
        for session in list(self._sessions.values()):
            if recording_id == NULL_VALUE or session.recording_id == recording_id:
                session.abort()
                self._end(session)
        for pending in list(self._pending):
            if recording_id == NULL_VALUE or pending.recording_id == recording_id:
                self._pending.remove(pending)
                self._give_up(pending, ArchiveError("replay aborted"))
        return 0

    cpdef object lowest_position(self, int64_t recording_id):
        """Where the replay of a recording is that is farthest behind (int), or None without one."""
        cdef ReplaySession session
        cdef PendingReplay pending
        cdef object lowest = None
        for session in self._sessions.values():
            if session.recording_id == recording_id and (lowest is None or session.position < lowest):
                lowest = session.position
        for pending in self._pending:
            if pending.recording_id == recording_id and (lowest is None or pending.replay_range.position < lowest):
                lowest = pending.replay_range.position
        return lowest

    # The duty cycle.

    cdef int do_work(self) except -1:
        """One turn: a batch of each replay; how much was done."""
        cdef PendingReplay pending
        cdef ReplaySession session
        cdef int work_count = 0, i = 0
        cdef int64_t longest_ns = 0, read_bytes = 0, read_time_ns = 0
        cdef bint has_ended = False
        while i < len(self._pending):
            pending = self._pending[i]
            if self._begin(pending):
                del self._pending[i]
                work_count += 1
            else:
                i += 1
        for session in self._sessions.values():
            work_count += session.do_work()
            self._answer(session)
            if session.read_bytes > 0:
                longest_ns = max(longest_ns, session.longest_read_ns)
                read_bytes += session.read_bytes
                read_time_ns += session.read_time_ns
                session.longest_read_ns = session.read_bytes = session.read_time_ns = 0
            has_ended |= session.is_done
        if has_ended:
            for session in [session for session in self._sessions.values() if session.is_done]:
                self._end(session)
        if read_bytes > 0:
            add(self._counters.replayer_total_read_bytes, read_bytes)
            add(self._counters.replayer_total_read_time, read_time_ns)
            self._counters.replayer_max_read_time.propose_max(longest_ns)
        return work_count

    cdef bint _begin(self, PendingReplay pending) except -1:
        """Whether a replay has begun, or cannot."""
        try:
            if pending.publication is None:
                pending.publication = pending.adding.poll()
                if pending.publication is None:
                    return False
            if self._store.is_active(pending.recording_id) \
                    and self._recorder.session_of(pending.recording_id) is None \
                    and self._clock.coarse_nano_time() <= pending.deadline_ns:
                return False        # the recording waits for its counter
            self._begin_session(pending)
        except Exception as error:
            self._on_error(error)
            self._give_up(pending, ArchiveError(
                f"failed to create replay publication: {type_name(error)}: {message_of(error)}"))
        return True

    cdef int _begin_session(self, PendingReplay pending) except -1:
        cdef int64_t replay_session_id = (
            <int64_t> self._replay_count << 32) | (<int64_t> pending.publication.session_id & UNSIGNED_INT_MASK)
        cdef RecordingSession recording = self._recorder.session_of(pending.recording_id)
        cdef object reader = self._store.open_reader(pending.recording_id, pending.replay_range.position)
        self._replay_count = 1 if self._replay_count == INT_MAX else self._replay_count + 1
        self._sessions[replay_session_id] = ReplaySession(
            replay_session_id, pending.correlation_id, reader, pending.publication,
            replay_range=pending.replay_range, recording=recording,
            stop_position=NULL_VALUE if recording is not None else self._store.recorded_position(pending.recording_id),
            counters=None if pending.counter_id == NULL_VALUE else self._counters_reader,
            counter_id=pending.counter_id, counter_registration_id=pending.counter_registration_id,
            connect_deadline_ns=pending.deadline_ns, clock=self._clock, read_length=max(0, pending.read_length),
            owner=pending.control_session)
        add(self._counters.replay_sessions, 1)
        return 0

    cdef int _give_up(self, PendingReplay pending, object error) except -1:
        pending.control_session.send_error(pending.correlation_id, message_of(error), error.code)
        try:
            if pending.publication is None:
                pending.adding.close()
            else:
                pending.publication.revoke()
        except Exception as failure:
            self._on_error(failure)
        return 0

    cdef int _answer(self, ReplaySession session) except -1:
        cdef ControlSession control_session
        if session.take_response():
            control_session = session.owner
            control_session.send_ok(session.correlation_id, session.replay_session_id)
        return 0

    cdef int _end(self, ReplaySession session) except -1:
        """Forget a replay that is done; what ended it is sent to the client."""
        cdef ControlSession control_session = session.owner
        if session.error is not None:
            if not isinstance(session.error.__cause__, ArchiveError):     # the files' fault, not the request's
                self._on_error(session.error)
            control_session.send_error(session.correlation_id, message_of(session.error), session.error.code)
        del self._sessions[session.replay_session_id]
        add(self._counters.replay_sessions, -1)
        return 0

    cpdef int close(self) except -1:
        """Stop all replays; their publications are revoked."""
        return self.stop_all(NULL_VALUE)

    def __repr__(self):
        return f"<Replayer replays={len(self._sessions)}>"


seal((PendingReplay, Replayer))
