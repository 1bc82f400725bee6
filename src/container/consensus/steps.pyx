"""Waits of a consensus module, as generators that never block: each turn takes one on.

Upstream waits inside its duty cycle for all of them: ConsensusModuleAgent.java (awaitServicesReady, startLogRecording,
tryCreateAppendPosition, loadSnapshot, takeSnapshot), LogReplay.java. They yield while they wait, return what they were
made for, and raise TimedOutError, which says what was waited for, when that takes longer than it may; and what archive
and driver answer. To give one up, close it: it then removes what it has made for itself.
"""
from contextlib import suppress

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive import error_codes
from container.archive.client cimport recording_counters
from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.common.channel_uri import add_session_id
from container.common.sealed cimport hide, seal
from container.errors import ArchiveError, ClusterError, ContainerError, TimedOutError
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counters
from container.transport.frames cimport CLOSED, MAX_POSITION_EXCEEDED, NULL_VALUE
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication, Subscription, publication_result_name

cdef enum:
    MESSAGES_PER_TURN = 100             # of a snapshot


cdef class Deadline:
    """How long something may take: ``limit_ns`` from each ``begin`` on."""

    def __init__(self, Clock clock not None, int64_t limit_ns):
        self._clock = clock
        self._limit_ns = limit_ns

    cpdef int begin(self, str what) except -1:
        """Wait for this from now on."""
        self._what = what
        self._deadline_ns = self._clock.nano_time() + self._limit_ns
        return 0

    cpdef int check(self) except -1:
        """Raise TimedOutError when it is over."""
        if self._clock.nano_time() >= self._deadline_ns:
            raise TimedOutError(f"waited {self._limit_ns / 1e9:g} s for {self._what}")
        return 0


cdef class ActiveRecording:
    """A recording in progress, and the counter that shows how far it is."""


cdef class ReplayImage:
    """A replay in progress, from its start position on."""


cdef bint is_done(object step, object on_failure) except -1:
    """Take a step on; whether it has ended, after a failure as well, which ``on_failure`` is given."""
    cdef bint has_ended = True
    try:
        next(step)
        has_ended = False
    except StopIteration:
        pass
    except Exception as error:
        on_failure(error)
    return has_ended


def connected(AsyncArchive archive not None):
    """Wait until the archive has answered the connect."""
    while not archive.poll():
        yield


def answer(AsyncArchive archive not None, ArchiveRequest request not None):
    """Wait for the answer to a request; return its ``relevant_id`` (int). If it is given up, its answer is ignored."""
    try:
        while not request.is_done:
            archive.poll()
            if not request.is_done:
                yield
    finally:
        if not request.is_done:
            archive.forget(request)
    check(request)
    return request.relevant_id


cdef int check(ArchiveRequest request) except -1:
    """Raise the error that the archive has answered a request with, or that has come later where it is followed."""
    if request.error is not None:
        raise request.error
    return 0


def added(PendingAdd pending not None):
    """Wait for what the driver was asked for; return it. Given up, it is not added."""
    cdef object thing = None
    try:
        while thing is None:
            thing = pending.poll()
            if thing is None:
                yield
    finally:
        if thing is None:
            pending.close()
    return thing


def start_recording(
        AsyncArchive archive not None, Counters counters not None, Deadline deadline not None, *,
        str channel not None, int32_t stream_id, int32_t session_id, int64_t extended_recording_id, bint is_local):
    """Have the archive record a session of a stream; return the ActiveRecording. It stops with that session.

    Its request is followed, for the caller, who has it forgotten.

    Args:
        archive: the member's.
        counters: the driver's.
        deadline: the time by which the recording must begin once the archive has agreed.
        channel, stream_id, session_id: the stream and the session to record.
        extended_recording_id: the recording to extend (int); -1: make a new one.
        is_local: whether it is published on this driver (bool).
    """
    cdef ActiveRecording active = ActiveRecording.__new__(ActiveRecording)
    cdef ArchiveRequest request
    cdef bint is_active = False
    if extended_recording_id == NULL_VALUE:
        request = archive.start_recording(channel, stream_id, is_local, True)
    else:
        request = archive.extend_recording(extended_recording_id, channel, stream_id, is_local, True)
    active.request = request
    archive.follow(request)
    try:
        active.subscription_id = yield from answer(archive, request)
        deadline.begin(f"the counter of the recording of session {session_id} on {channel}")
        while not is_active:
            active.counter_id = recording_counters.find_by_session(counters, session_id, archive.archive_id)
            if active.counter_id != recording_counters.NULL_COUNTER_ID:
                # A driver shows a counter a moment before it writes the registration id.
                active.registration_id = counters.registration_id(active.counter_id)
                active.recording_id = recording_counters.recording_id_of(counters, active.counter_id)
                is_active = active.registration_id != 0 and active.recording_id != NULL_VALUE
            if not is_active:
                archive.poll()
                check(request)
                deadline.check()
                yield
    finally:
        if not is_active:
            archive.forget(request)
    return active


def stopped(AsyncArchive archive not None, Deadline deadline not None, int64_t recording_id):
    """Wait until a recording has stopped, which it is about to do; return where it has ended (int)."""
    cdef int64_t position = NULL_VALUE
    deadline.begin(f"recording {recording_id} to stop")
    while position == NULL_VALUE:
        position = yield from answer(archive, archive.stop_position(recording_id))
        if position == NULL_VALUE:
            deadline.check()
            yield
    return position


def try_recording(AsyncArchive archive not None, *, str channel not None, int32_t stream_id):
    """Have the archive agree to record a stream, and take that back: it refuses where its disk has too little space.

    Args:
        archive: the member's.
        channel, stream_id: as what is recorded later; nobody publishes on it, and nothing else is recorded of it.
    """
    try:
        subscription_id = yield from answer(archive, archive.start_recording(channel, stream_id, True, False))
        yield from answer(archive, archive.stop_recording(subscription_id))
    except GeneratorExit:
        # Given up for an election. The archive would listen for good, also where it has not answered yet.
        with suppress(ContainerError):                  # such as a client that is closed with its member
            archive.stop_recording_of_channel(channel, stream_id)
        raise


def begin_replay(
        AsyncArchive archive not None, Client client not None, Deadline deadline not None, *, int64_t recording_id,
        int64_t position, int64_t length, str channel not None, int32_t stream_id):
    """Have the archive replay a part of a recording; return the ReplayImage, whose subscription is the caller's.

    Its request is followed, for the caller, who has it forgotten.

    Args:
        archive: the member's.
        client: what the subscription is added to.
        deadline: for the image to come.
        recording_id, position, length: what is replayed, in bytes; length -1: to its end (int).
        channel, stream_id: on which; a session id is added to the channel.
    """
    cdef ReplayImage replay = ReplayImage.__new__(ReplayImage)
    cdef Subscription subscription = None
    cdef ArchiveRequest request = archive.replay(recording_id, position, length, channel, stream_id, NULL_VALUE)
    cdef int32_t session_id
    replay.request = request
    archive.follow(request)
    try:
        replay.replay_session_id = yield from answer(archive, request)
        session_id = <int32_t> replay.replay_session_id
        subscription = yield from added(
            client.begin_add_subscription(add_session_id(channel, session_id), stream_id, False))
        deadline.begin(f"the replay of recording {recording_id} from {position} on {channel}")
        while replay.image is None:
            archive.poll()
            check(request)
            replay.image = subscription.image_by_session_id(session_id)
            if replay.image is None:
                deadline.check()
                yield
        if replay.image.join_position != position:
            raise ClusterError(f"joinPosition={replay.image.join_position} expected startPosition={position}")
        replay.subscription = subscription
        return replay
    finally:
        if replay.subscription is None:
            archive.forget(request)
            if subscription is not None:
                subscription.close()


def without_replays(AsyncArchive archive not None, Deadline deadline not None, int64_t recording_id, ask):
    """Have the archive end all replays of a recording, and do what it refuses while there is one; return the answer.

    Args:
        archive: of the member.
        deadline: for the replays to end.
        recording_id: of which.
        ask: a callable that asks the archive, and has the ArchiveRequest as its result.
    """
    yield from answer(archive, archive.stop_all_replays(recording_id))
    deadline.begin(f"replays of recording {recording_id} to end")
    while True:
        try:
            return (yield from answer(archive, ask()))
        except ArchiveError as error:
            # Upstream's archive answers that replays end, but they may continue for a moment.
            if error.code != error_codes.ACTIVE_RECORDING:
                raise
        deadline.check()
        yield


def record_snapshot(
        AsyncArchive archive not None, Client client not None, Deadline deadline not None, *, str channel not None,
        int32_t stream_id, list messages not None):
    """Publish messages and have the archive record them to the last byte; return the recording's id and bytes (int).

    Args:
        archive: the member's.
        client: what the publication is added to.
        deadline: for each message to be sent, and for the rest to be recorded.
        channel, stream_id: on which it is published.
        messages: of the snapshot (list of bytes).
    """
    cdef Counters counters = client.counters()
    cdef ActiveRecording active = None
    cdef Publication publication
    cdef bytes message
    cdef int64_t result
    cdef int64_t sent = 0
    publication = yield from added(client.begin_add_publication(channel, stream_id, True))
    try:
        active = yield from start_recording(
            archive, counters, deadline, channel=add_session_id(channel, publication.session_id), stream_id=stream_id,
            session_id=publication.session_id, extended_recording_id=NULL_VALUE, is_local=True)
        deadline.begin("room for a snapshot")
        for message in messages:
            result = publication.offer(<const uint8_t*> PyBytes_AS_STRING(message), len(message))
            while result <= 0:
                if result == CLOSED or result == MAX_POSITION_EXCEEDED:
                    raise ClusterError(
                        f"unexpected publication state of a snapshot: {publication_result_name(result)}")
                deadline.check()
                archive.poll()
                check(active.request)
                yield
                result = publication.offer(<const uint8_t*> PyBytes_AS_STRING(message), len(message))
            sent += 1
            if sent % MESSAGES_PER_TURN == 0:
                deadline.begin("room for a snapshot")
                yield
        deadline.begin(f"recording {active.recording_id} of a snapshot to reach its end")
        while counters.value(active.counter_id) < publication.position():
            if recording_counters.recording_id_of(counters, active.counter_id) != active.recording_id:
                raise ClusterError(f"recording has stopped unexpectedly: {active.recording_id}")
            deadline.check()
            archive.poll()
            check(active.request)
            yield
        # The counter is this recording's only if it still is after its value was read: ids are reused.
        if recording_counters.recording_id_of(counters, active.counter_id) != active.recording_id:
            raise ClusterError(f"recording has stopped unexpectedly: {active.recording_id}")
        return active.recording_id, publication.position()
    finally:
        publication.close()
        if active is not None:
            archive.forget(active.request)


seal((Deadline,))
hide((ActiveRecording, ReplayImage))
