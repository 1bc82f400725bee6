"""The recordings of an archive: what is subscribed to, what is about to begin, and what is being recorded.

Upstream: the recordings' part of ArchiveConductor.java, and its recorder. A recording begins with its entry in the
catalog, then comes its counter, then the signal, then data; it ends with the stop position in the catalog, then the
signal, then the counter goes. Nothing here waits for the driver.
"""
from libc.stdint cimport int32_t, int64_t

from container.archive import error_codes
from container.archive.channel_texts import parse_channel, stripped_channel, subscription_channel, subscription_key
from container.archive.server.archive_counters cimport ArchiveCounters
from container.archive.server.archive_counters import recording_position_key, recording_position_label
from container.archive.server.recording_events cimport RecordingEvents
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.sessions.recording_subscription cimport RecordingSubscription
from container.archive.server.store.segment_writer cimport SegmentWriter
from container.codecs.archive cimport RECORDING_SIGNAL_EXTEND, RECORDING_SIGNAL_START, RECORDING_SIGNAL_STOP
from container.common.aeron_defaults import CounterType
from container.common.error_texts import message_of, shorten, type_name
from container.common.sealed cimport seal
from container.errors import ArchiveError
from container.transport.counters cimport Counter
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image

_MAX_TEXT_LENGTH = 1024          # of a channel in a reply


cdef void add(Counter counter, int64_t value) noexcept:
    """Add to a counter that this thread alone writes."""
    counter.set(counter.get() + value)


cdef int _check_image(object descriptor, Image image) except -1:
    """Refuse an image that cannot continue a recording where that has stopped; the store checks the position."""
    if descriptor is None or image.join_position != descriptor.stop_position:
        return 0
    for name, of_image, of_recording in (
        ("initialTermId", image.initial_term_id, descriptor.initial_term_id),
        ("termBufferLength", image.term_buffer_length, descriptor.term_buffer_length),
        ("mtuLength", image.mtu_length, descriptor.mtu_length),
    ):
        if of_image != of_recording:
            raise ArchiveError(
                f"cannot extend recording {descriptor.recording_id} image.{name}={of_image} != "
                f"rec.{name}={of_recording}", code=error_codes.INVALID_EXTENSION)
    return 0


cdef class PendingRecording:
    """A recording that has a writer and no counter yet."""


cdef class Recorder:
    """Begins, does and ends recordings, in the duty cycle of the archive.

    Args:
        client: subscribes and adds counters (Client).
        store: the archive's recordings on the disk (container.archive.server.store.recording_store.RecordingStore).
        counters: of the archive (ArchiveCounters).
        on_error: called with each error that no client asked for; it must not raise.
        archive_id: of the archive (int); counters have it.
        max_concurrent_recordings: how many may be active when another is asked for (int).
        block_length_limit: bytes that are written at most at a time (int).
        events: where starts, progress and stops are published (RecordingEvents), or None.
    """

    def __init__(
        self, Client client not None, store, ArchiveCounters counters not None, on_error, *, int64_t archive_id,
        int max_concurrent_recordings, int64_t block_length_limit, RecordingEvents events=None
    ):
        self._client, self._clock, self._store, self._counters = client, client.clock, store, counters
        self._on_error, self._events, self._archive_id = on_error, events, archive_id
        self._max_concurrent_recordings, self._block_length_limit = max_concurrent_recordings, block_length_limit
        self.by_key, self._by_subscription_id = {}, {}
        self._subscriptions, self._pending, self._sessions = [], [], []

    cdef RecordingSession session_of(self, int64_t recording_id):
        """The session of a recording that is active, or None."""
        cdef RecordingSession session
        for session in self._sessions:
            if session.recording_id == recording_id and not session.has_ended():
                return session
        return None

    # Requests. They raise ArchiveError, or ConfigurationError for a channel.

    cpdef RecordingSubscription start(
        self, ControlSession control_session, int64_t correlation_id, int32_t stream_id, bint is_local,
        bint is_auto_stop, str channel
    ):
        """Subscribe to a channel; each of its images begins a recording. The driver's answer is sent by the way."""
        self._check_count()
        self._store.check_space()
        return self._subscribe(
            control_session, correlation_id, stream_id, is_local, is_auto_stop, channel, NULL_VALUE)

    cpdef RecordingSubscription extend(
        self, ControlSession control_session, int64_t correlation_id, int64_t recording_id, int32_t stream_id,
        bint is_local, bint is_auto_stop, str channel
    ):
        """Subscribe to a channel whose image continues a recording that has stopped."""
        cdef object descriptor
        self._check_count()
        descriptor = self._store.known(recording_id)
        if descriptor.stream_id != stream_id:
            raise ArchiveError(
                f"cannot extend recording {recording_id} with streamId={stream_id} for existing "
                f"streamId={descriptor.stream_id}", code=error_codes.UNKNOWN_RECORDING)
        self._store.check_extendable(recording_id)
        self._store.check_space()
        return self._subscribe(
            control_session, correlation_id, stream_id, is_local, is_auto_stop, channel, recording_id)

    cdef int _check_count(self) except -1:
        if len(self._sessions) + len(self._pending) >= self._max_concurrent_recordings:
            raise ArchiveError(
                f"max concurrent recordings reached {self._max_concurrent_recordings}",
                code=error_codes.MAX_RECORDINGS)
        return 0

    cdef RecordingSubscription _subscribe(
        self, ControlSession control_session, int64_t correlation_id, int32_t stream_id, bint is_local,
        bint is_auto_stop, str channel, int64_t extended_recording_id
    ):
        cdef object parsed = parse_channel(channel)
        cdef str key = subscription_key(stream_id, parsed)
        cdef RecordingSubscription subscription
        if key in self.by_key:
            raise ArchiveError(
                f"recording exists for streamId={stream_id} channel={shorten(channel, _MAX_TEXT_LENGTH)}",
                code=error_codes.ACTIVE_SUBSCRIPTION)
        subscription = RecordingSubscription(
            self._client, control_session, correlation_id, key=key,
            channel=subscription_channel(parsed, is_local=is_local), stream_id=stream_id,
            stripped_channel=stripped_channel(parsed), original_channel=channel, is_auto_stop=is_auto_stop,
            extended_recording_id=extended_recording_id)
        self.by_key[key] = subscription
        self._subscriptions.append(subscription)
        return subscription

    cpdef int stop_by_channel(self, int32_t stream_id, str channel) except -1:
        """Stop what a request for this channel records."""
        cdef RecordingSubscription subscription = self.by_key.get(subscription_key(stream_id, parse_channel(channel)))
        if subscription is None:
            raise ArchiveError(
                f"no recording found for streamId={stream_id} channel={shorten(channel, _MAX_TEXT_LENGTH)}",
                code=error_codes.UNKNOWN_SUBSCRIPTION)
        return self.stop(subscription)

    cpdef RecordingSubscription subscription_of(self, int64_t subscription_id):
        """The subscription that has this id and its key, or None."""
        return self._by_subscription_id.get(subscription_id)

    cpdef int stop_by_subscription_id(self, int64_t subscription_id) except -1:
        """Stop what a subscription records."""
        cdef RecordingSubscription subscription = self.subscription_of(subscription_id)
        if subscription is None:
            raise ArchiveError(
                f"no recording subscription found for subscriptionId={subscription_id}",
                code=error_codes.UNKNOWN_SUBSCRIPTION)
        return self.stop(subscription)

    cpdef bint stop_by_recording_id(self, int64_t recording_id) except -1:
        """Stop a recording, and take its subscription's key away; whether it was the subscription's (bool).

        False where no recording of that id is active, or another of its subscription was stopped so before. While
        others of the subscription are active, it continues, also with new images. Only they can stop it (upstream).
        """
        cdef RecordingSession session = self.session_of(recording_id)
        cdef RecordingSubscription subscription
        cdef PendingRecording pending
        if session is not None:
            session.abort()
            subscription = session.owner
        else:
            for pending in self._pending:
                if pending.writer.recording_id == recording_id:
                    pending.is_aborted = True
                    subscription = pending.subscription
                    break
            else:
                return False
        if not self._release_key(subscription):
            return False
        subscription.is_released = True
        return True

    cpdef int stop(self, RecordingSubscription subscription) except -1:
        """Stop all recordings of a subscription where they are, in the next turn; may be called twice."""
        return self._stop(subscription, None)

    cdef int _stop(self, RecordingSubscription subscription, object error) except -1:
        cdef RecordingSession session
        self._forget(subscription, error)
        for session in self._sessions:
            if session.owner is subscription:
                session.abort()
        return 0

    cdef int _forget(self, RecordingSubscription subscription, object error) except -1:
        """Begin no other recording on a subscription; its key is free, and it is closed with its last recording."""
        subscription.end(error)
        self._release_key(subscription)
        self._has_ended_subscription = True
        return 0

    cdef bint _release_key(self, RecordingSubscription subscription) except -1:
        """Whether the subscription had its key, which is free now."""
        if self.by_key.get(subscription.key) is not subscription:
            return False
        del self.by_key[subscription.key]
        self._by_subscription_id.pop(subscription.subscription_id, None)
        return True

    # The duty cycle.

    cdef int do_work(self) except -1:
        """One turn: new subscriptions, new images, and a block of each recording; how much was done."""
        cdef RecordingSubscription subscription
        cdef PendingRecording pending
        cdef int work_count = 0, i = 0
        for subscription in self._subscriptions:
            work_count += self._poll_subscription(subscription)
        while i < len(self._pending):
            pending = self._pending[i]
            if self._begin_session(pending):
                del self._pending[i]
                work_count += 1
            else:
                i += 1
        if self._sessions:
            work_count += self._record()
        if self._has_ended_subscription:
            work_count += self._close_unused()
        return work_count

    cdef int _poll_subscription(self, RecordingSubscription subscription) except -1:
        cdef Image image
        cdef int work_count = 0
        try:
            if subscription.poll():
                work_count = 1
                self._has_ended_subscription |= subscription.is_ended       # stopped while the driver was asked
                if self.by_key.get(subscription.key) is subscription:
                    self._by_subscription_id[subscription.subscription_id] = subscription
                subscription.control_session.send_ok(subscription.correlation_id, subscription.subscription_id)
        except Exception as error:
            work_count = 1
            self._refuse(subscription, error)
        image = subscription.take_new_image()
        while image is not None:
            work_count += 1
            self._begin(subscription, image)
            image = subscription.take_new_image()
        return work_count

    cdef int _begin(self, RecordingSubscription subscription, Image image) except -1:
        """Make a writer for an image, and ask for the counter; a failure is the client's answer."""
        cdef PendingRecording pending = PendingRecording()
        pending.subscription, pending.image = subscription, image
        subscription.begin_recording()
        try:
            pending.writer = self._writer_of(subscription, image)
            pending.counter = self._client.begin_add_counter(
                <int32_t> CounterType.RECORDING_POSITION,
                recording_position_key(
                    pending.writer.recording_id, image.session_id, image.source_identity, self._archive_id),
                recording_position_label(
                    pending.writer.recording_id, image.session_id, subscription.stream_id,
                    subscription.stripped_channel, self._archive_id))
            self._pending.append(pending)
        except Exception as error:
            self._give_up(pending, error)
        return 0

    cdef int _give_up(self, PendingRecording pending, object error) except -1:
        """Leave a recording that has not begun as it is, and answer the client."""
        if pending.writer is not None:
            self._stop_writer(pending.writer)
        pending.subscription.end_recording()
        self._end_released(pending.subscription)
        return self._refuse(pending.subscription, error)

    cdef int _end_released(self, RecordingSubscription subscription) except -1:
        if subscription.is_released and not subscription.is_ended and subscription.recording_count == 0:
            self._forget(subscription, None)
        return 0

    cdef SegmentWriter _writer_of(self, RecordingSubscription subscription, Image image):
        cdef int64_t recording_id = subscription.extended_recording_id
        if recording_id == NULL_VALUE:
            return self._store.start_recording(
                start_position=image.join_position, initial_term_id=image.initial_term_id,
                term_buffer_length=image.term_buffer_length, mtu_length=image.mtu_length,
                session_id=image.session_id, stream_id=subscription.stream_id,
                stripped_channel=subscription.stripped_channel, original_channel=subscription.original_channel,
                source_identity=image.source_identity, now_ms=self._clock.epoch_ms())
        _check_image(self._store.catalog.descriptor(recording_id), image)
        return self._store.extend_recording(
            recording_id, image.join_position, control_session_id=subscription.control_session.session_id,
            correlation_id=subscription.correlation_id, session_id=image.session_id)

    cdef bint _begin_session(self, PendingRecording pending) except -1:
        """Whether the driver has answered: the recording has begun then, or cannot."""
        cdef object counter = None
        cdef bint has_failed = False
        try:
            counter = pending.counter.poll()
        except Exception as error:
            has_failed = True
            self._give_up(pending, error)
        if counter is not None:
            self._begin_recording(pending, counter)
        return has_failed or counter is not None

    cdef int _begin_recording(self, PendingRecording pending, Counter counter) except -1:
        cdef RecordingSubscription subscription = pending.subscription
        cdef Image image = pending.image
        cdef RecordingSession session
        session = RecordingSession(
            pending.writer.recording_id, subscription.subscription_id, subscription.correlation_id, image, counter,
            pending.writer, block_length_limit=self._block_length_limit, is_auto_stop=subscription.is_auto_stop,
            owner=subscription, clock=self._clock)
        session.counter.set(image.join_position)
        self._sessions.append(session)
        subscription.set_recording(session)
        self._counters.recording_sessions.increment()
        subscription.control_session.send_signal(
            subscription.correlation_id, session.recording_id, session.subscription_id, image.join_position,
            RECORDING_SIGNAL_START if subscription.extended_recording_id == NULL_VALUE else RECORDING_SIGNAL_EXTEND)
        if self._events is not None:
            self._events.started(
                session.recording_id, image.join_position, image.session_id, subscription.stream_id,
                subscription.original_channel, image.source_identity)
        if subscription.is_ended or pending.is_aborted:     # stopped while the driver was asked
            session.abort()
        return 0

    cdef int _record(self) except -1:
        cdef RecordingSession session
        cdef int64_t position, longest_ns = 0, written_bytes = 0, write_time_ns = 0
        cdef int work_count = 0
        cdef bint has_ended = False
        for session in self._sessions:
            position = session.writer.position
            work_count += session.do_work()
            has_ended |= session.has_ended()
            if session.writer.position > position:
                longest_ns = max(longest_ns, session.longest_write_ns)
                written_bytes += session.written_bytes
                write_time_ns += session.write_time_ns
                session.longest_write_ns = session.written_bytes = session.write_time_ns = 0
            if self._events is not None and session.writer.position > session.announced_position:
                if self._events.progress(session.recording_id, session.image.join_position, session.writer.position):
                    session.announced_position = session.writer.position
        if written_bytes > 0:
            add(self._counters.recorder_total_write_bytes, written_bytes)
            add(self._counters.recorder_total_write_time, write_time_ns)
            self._counters.recorder_max_write_time.propose_max(longest_ns)
        if has_ended:
            work_count += self._end_sessions()
        return work_count

    cdef int _end_sessions(self) except -1:
        cdef RecordingSession session
        cdef list ended = [session for session in self._sessions if session.has_ended()]
        self._sessions = [session for session in self._sessions if not session.has_ended()]
        for session in ended:
            self._end_session(session)
        return len(ended)

    cdef int _end_session(self, RecordingSession session) except -1:
        cdef RecordingSubscription subscription = session.owner
        cdef ControlSession control_session = subscription.control_session
        cdef Counter counter = session.counter
        assert counter.get() <= session.writer.position, "the stop is not before what was announced"
        cdef bint is_stopped = self._stop_writer(session.writer)
        if session.error is not None:
            self._on_error(session.error)
            control_session.send_error(session.correlation_id, message_of(session.error), session.error.code)
        if is_stopped:
            control_session.send_signal(
                session.correlation_id, session.recording_id, session.subscription_id, session.writer.position,
                RECORDING_SIGNAL_STOP)
            if self._events is not None:
                self._events.stopped(session.recording_id, session.image.join_position, session.writer.position)
        subscription.end_recording()
        if subscription.is_auto_stop:
            self._stop(subscription, session.error)
        elif subscription.is_ended:
            self._has_ended_subscription = True
        self._end_released(subscription)
        try:
            counter.close()
        except Exception as error:
            self._on_error(error)
        add(self._counters.recording_sessions, -1)
        # Each has the other: the image would stay, with its mapped log, until cycles are collected.
        session.owner = None
        return 0

    cdef int _stop_writer(self, SegmentWriter writer) except -1:
        """End a recording in the catalog; whether it has its stop position there."""
        cdef bint is_stopped = False
        try:
            self._store.stop(writer, self._clock.epoch_ms())
            is_stopped = True
        except Exception as error:
            self._on_error(error)
        return is_stopped

    cdef int _refuse(self, RecordingSubscription subscription, object error) except -1:
        """Answer that nothing can be recorded of an image; a subscription that stops by itself ends with that."""
        cdef object refusal = error
        self._on_error(error)
        if not isinstance(error, ArchiveError):
            refusal = ArchiveError(f"{type_name(error)}: {message_of(error)}")
        subscription.control_session.send_error(subscription.correlation_id, message_of(refusal), refusal.code)
        if subscription.is_auto_stop or subscription.is_ended or subscription.subscription is None:
            self._stop(subscription, refusal)
        return 0

    cdef int _close_unused(self, bint is_last=False) except -1:
        """Close the subscriptions that have ended, are answered for, and have no recording left; how many."""
        cdef RecordingSubscription subscription
        cdef list closable = [
            subscription for subscription in self._subscriptions
            if subscription.is_ended and subscription.recording_count == 0
            and (is_last or not subscription.is_awaited())]
        self._has_ended_subscription = False
        self._subscriptions = [
            subscription for subscription in self._subscriptions if subscription not in closable]
        for subscription in closable:
            try:
                subscription.close()
            except Exception as error:
                self._on_error(error)
        return len(closable)

    cpdef int close(self) except -1:
        """Stop all recordings where they are; their stop positions go into the catalog, and signals are sent."""
        cdef RecordingSubscription subscription
        cdef RecordingSession session
        cdef PendingRecording pending
        for subscription in self._subscriptions:
            self._forget(subscription, None)
        for pending in self._pending:
            self._stop_writer(pending.writer)
            pending.subscription.end_recording()
            try:
                pending.counter.close()
            except Exception as error:
                self._on_error(error)
        self._pending = []
        for session in self._sessions:
            session.abort()
        self._end_sessions()
        self._close_unused(True)
        return 0

    def __repr__(self):
        return f"<Recorder recordings={len(self._sessions)} subscriptions={len(self._subscriptions)}>"


seal((PendingRecording, Recorder))
