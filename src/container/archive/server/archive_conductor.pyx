"""The conductor of an archive, with its work in each turn and for each request: sessions, recordings, replays, files.

Upstream: ArchiveConductor.java; method names are those of ControlHandler. A request is checked, done, and answered by
the session that it came on: what fails is an error reply with upstream's code, and is reported where it is not the
client's mistake. Replies come before the signals of what they answer.
"""
from libc.stdint cimport int64_t

import functools

from container.archive import error_codes
from container.archive.channel_texts import parse_channel, stripped_channel
from container.archive.channel_texts import response_channel as derived_response_channel
from container.archive.server.archive_counters cimport ArchiveCounters
from container.archive.server.recorder cimport Recorder, add
from container.archive.server.recording_events cimport RecordingEvents
from container.archive.server.replayer cimport Replayer
from container.archive.server.sessions import control_session as control_sessions
from container.archive.server.sessions.control_adapter cimport ControlAdapter
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.deletion_session import DeletionSession
from container.archive.server.sessions.listing_session import ListingSession, SubscriptionListing, find_last_matching
from container.archive.server.sessions.replay_request import ReplayRequest
from container.archive.server.sessions.replay_session cimport ReplaySession
from container.archive.server.sessions.replication_request import (
    ReplicationRequest,
    check_replication_request,
    is_response_channel,
)
from container.archive.server.sessions.replication_session import ReplicationSession
from container.codecs.archive cimport RECORDING_SIGNAL_DELETE
from container.common.aeron_defaults import IPC_SOURCE_IDENTITY
from container.common.channel_uri import ChannelUri
from container.common.error_texts import message_of, type_name
from container.common.sealed cimport seal
from container.common.values import shown
from container.errors import ArchiveError, ArchiveEvent, ConfigurationError
from container.transport.abstract cimport abstract
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef enum:
    MAX_REPLAY_TOKENS = 65536


cdef bint _has_response_mode(str channel) except -1:
    """Whether a channel is answered on the connection of its request. False for an invalid channel."""
    cdef bint is_response = False
    try:
        is_response = is_response_channel(channel)
    except ConfigurationError:
        pass
    return is_response


def _refuse_shared_memory(channel, what):
    """Refuse a channel in shared memory to a client of the network, which has no access to it."""
    if not parse_channel(channel).is_udp:
        raise ConfigurationError(
            f"what clients of the network ask for is {what} over the network, not on {shown(channel)}")


def _answered(action):
    """The method of a request: if that is accepted, ``action`` is given session, correlation id and the fields. It
    answers by itself and returns None, or returns what the OK says (int)."""
    @functools.wraps(action)
    def do(self, request, **fields):
        self._do(request, action, **fields)
    return do


cdef class Conductor:
    """The work of an archive for its clients, as the agent sees it that gives it its turns."""

    cpdef int do_work(self) except -1:
        """Take a turn; return how much was done."""
        raise abstract(self, "do_work")

    cpdef int record(self) except -1:
        """Record alone what there is; return how much that was."""
        raise abstract(self, "record")


cdef class ArchiveConductor(Conductor):
    """Serves the clients of an archive; it owns all that it makes, and neither the client nor the store.

    Args:
        client: in invoker mode; whoever calls :meth:`do_work` invokes it (Client).
        store: the recordings on the disk (container.archive.server.store.recording_store.RecordingStore).
        settings: of the archive (container.settings.archive_table.ArchiveSettings).
        archive_id: of the archive (int).
        counters: of the archive (ArchiveCounters).
        authenticator: decides who may connect (container.archive.authentication.Authenticator).
        authorisation_service: decides what they may ask for (container.archive.authentication.AuthorisationService).
        on_error: called with each error (Exception); it must not raise.
        replay_linger_ns: how long a replay that has ended can be read yet, where the request does not say (int).
        first_session_id: of the first session (int), in [0, 2**31).
        next_token: makes a replay token (int, 64 bits) when called.
        cluster_stream_ids: of the log and the snapshots of the cluster whose archive it is (collection of int). Only
            clients in shared memory, which are the node's own user's, may change their recordings, and no other client
            may have the archive publish in shared memory, where it could pass for one of them.
    """

    def __init__(
        self, Client client not None, store, settings, *, int64_t archive_id, ArchiveCounters counters not None,
        authenticator, authorisation_service, on_error, int64_t replay_linger_ns, int64_t first_session_id, next_token,
        cluster_stream_ids=()
    ):
        self.client, self.store, self.settings, self._clock = client, store, settings, client.clock
        self._archive_id, self._counters, self._on_error = archive_id, counters, on_error
        self._authenticator, self._authorisation_service = authenticator, authorisation_service
        self._next_session_id, self._next_token = first_session_id, next_token
        self._replay_linger_ns = replay_linger_ns
        self._cluster_stream_ids = frozenset(cluster_stream_ids)
        self._control_sessions, self._replications, self._replay_tokens = {}, {}, {}
        self._sessions = []

    def start(self):
        """Add what is published and subscribed to, the local requests last; waits for the driver.

        Raises what the driver answers, as :meth:`container.transport.transport_seam.Client.add_subscription`.
        """
        cdef object settings = self.settings
        if settings.is_recording_events_enabled:
            self._events = RecordingEvents(
                self.client, settings.recording_events_channel, settings.recording_events_stream_id)
        self.recorder = Recorder(
            self.client, self.store, self._counters, self._on_error, archive_id=self._archive_id,
            max_concurrent_recordings=settings.max_concurrent_recordings,
            block_length_limit=settings.file_io_max_length, events=self._events)
        self.replayer = Replayer(
            self.client, self.store, self.recorder, self._counters, self._on_error,
            max_concurrent_replays=settings.max_concurrent_replays, buffer_length=settings.file_io_max_length,
            linger_ns=self._replay_linger_ns, connect_timeout_ns=settings.connect_timeout_ns)
        if settings.is_control_channel_enabled:
            self._network_adapter = self._adapter(settings.control_channel, settings.control_stream_id)
        self._local_adapter = self._adapter(settings.local_control_channel, settings.local_control_stream_id)

    def _adapter(self, channel, stream_id):
        cdef dict params
        channel = ChannelUri.parse(channel)
        params = {**channel.params, "sparse": "true" if self.settings.control_term_buffer_sparse else "false"}
        return ControlAdapter(
            self.client.add_subscription(str(ChannelUri(channel.media, params)), stream_id), self, self._on_error)

    # The duty cycle.

    cpdef int do_work(self) except -1:
        """One turn; how much was done (int). A part that fails is reported, and the others continue."""
        cdef int work_count = 0
        if self._network_adapter is not None:
            work_count += self._network_adapter.poll()
        work_count += self._local_adapter.poll()
        if self._replay_tokens:
            work_count += self._drop_tokens()
        if self._control_sessions:
            work_count += self._work_of_control_sessions()
        if self._sessions:
            work_count += self._work_of_sessions()
        if self._replications:
            work_count += self._work_of_replications()
        work_count += self.replayer.do_work()
        work_count += self.recorder.do_work()
        return work_count

    cpdef int record(self) except -1:
        """Record what there is, and nothing else of a turn; how much was done (int)."""
        return self.recorder.do_work()

    cdef int _work_of_control_sessions(self) except -1:
        cdef ControlSession session
        cdef int work_count = 0
        cdef bint has_ended = False
        for session in self._control_sessions.values():
            work_count += session.do_work()
            has_ended |= session.has_ended()
        if has_ended:
            for session in [session for session in self._control_sessions.values() if session.has_ended()]:
                self._end_control_session(session)
        return work_count

    cdef int _end_control_session(self, ControlSession session) except -1:
        del self._control_sessions[session.session_id]
        for token in [token for token, issued in self._replay_tokens.items() if issued[0] is session]:
            del self._replay_tokens[token]
        session.close()
        add(self._counters.control_sessions, -1)
        return 0

    cdef int _work_of_sessions(self) except -1:
        cdef int work_count = 0
        for session in list(self._sessions):
            try:
                work_count += session.do_work()
            except Exception as error:
                self._on_error(error)
            if session.is_done:
                self._sessions.remove(session)
                if session.control_session.active_listing is session:
                    session.control_session.active_listing = None
                work_count += 1
        return work_count

    cdef int _work_of_replications(self) except -1:
        cdef int work_count = 0
        for replication_id, session in list(self._replications.items()):
            try:
                work_count += session.do_work()
            except Exception as error:
                self._on_error(error)
                session.stop()
            if session.is_done:
                if session.error is not None:
                    self._on_error(session.error)
                del self._replications[replication_id]
                work_count += 1
        return work_count

    cdef int _drop_tokens(self) except -1:
        cdef int64_t now_ns = self._clock.coarse_nano_time()
        cdef list expired = [token for token, issued in self._replay_tokens.items() if now_ns > issued[2]]
        for token in expired:
            del self._replay_tokens[token]
        return len(expired)

    cdef int64_t _take_session_id(self) noexcept:
        cdef int64_t session_id = self._next_session_id
        self._next_session_id += 1
        return session_id

    def close(self):
        """End all sessions in order: recordings get their stop positions, replications and stops their signals."""
        for part in (self.recorder, self.replayer, *self._replications.values()):
            if part is not None:
                self._attempt(part.close)
        self._replications = {}
        for session in list(self._control_sessions.values()):
            self._attempt(self._send_and_end, session)
        for part in (self._network_adapter, self._local_adapter, self._events):
            if part is not None:
                self._attempt(part.close)

    def _send_and_end(self, ControlSession session):
        session.do_work()                   # a last signal or reply may wait for its turn
        session.abort(control_sessions.SESSION_CLOSED)
        self._end_control_session(session)

    def _attempt(self, call, *arguments):
        try:
            call(*arguments)
        except Exception as error:
            self._on_error(error)

    # The part of a host of replications (container.archive.server.sessions.replication_host).

    def extend_for_replication(
            self, ControlSession control_session, replication_id, recording_id, stream_id, channel, original_channel):
        """Record what is replayed from another archive, at the end of a recording (RecordingSubscription)."""
        return self.recorder.extend(control_session, replication_id, recording_id, stream_id, False, True, channel)

    def stop_recording(self, subscription):
        """Stop what a replication records."""
        self.recorder.stop(subscription)

    # Control sessions.

    cdef ControlSession _accept(self, object request):
        """The session of a request to carry out now; None when the client has been answered instead."""
        cdef ControlSession session = self._known(request)
        return session if session is not None and session.accept_request(request) else None

    def _known(self, request):
        session = self._control_sessions.get(request.control_session_id)
        if session is None:
            self._on_error(ArchiveEvent(
                f"unknown controlSessionId={request.control_session_id} for templateId={request.template_id} "
                f"correlationId={request.correlation_id}"))
        return session

    def _do(self, request, action, **fields):
        cdef ControlSession session = self._accept(request)
        if session is not None:
            self._answer(session, request.correlation_id, action, **fields)

    def _answer(self, ControlSession session, correlation_id, action, **fields):
        try:
            relevant_id = action(self, session, correlation_id, **fields)
        except ArchiveError as error:
            if error.__cause__ is not None and not isinstance(error.__cause__, ConfigurationError):
                self._on_error(error)
            session.send_error(correlation_id, message_of(error), error.code)
        except ConfigurationError as error:
            session.send_error(correlation_id, message_of(error))
        except Exception as error:
            self._on_error(error)
            session.send_error(correlation_id, f"{type_name(error)}: {message_of(error)}")
        else:
            if relevant_id is not None:
                session.send_ok(correlation_id, relevant_id)

    def on_connect(
            self, image, *, correlation_id, response_stream_id, version=0, response_channel, encoded_credentials=b"",
            client_info=""):
        """Begin a session; a channel that cannot be used is reported, and nobody is answered."""
        cdef object settings = self.settings
        cdef ControlSession session
        if self._cluster_stream_ids and image.source_identity != IPC_SOURCE_IDENTITY:
            _refuse_shared_memory(response_channel, "answered")
        session = ControlSession(
            self.client, image, self._authenticator, self._authorisation_service, self._on_error,
            session_id=self._take_session_id(), archive_id=self._archive_id, correlation_id=correlation_id,
            version=version,
            response_channel=derived_response_channel(
                parse_channel(response_channel), term_length=settings.control_term_buffer_length,
                mtu_length=settings.control_mtu_length, is_sparse=settings.control_term_buffer_sparse,
                image_correlation_id=image.correlation_id),
            response_stream_id=response_stream_id, encoded_credentials=encoded_credentials, client_info=client_info,
            connect_timeout_ns=settings.connect_timeout_ns,
            liveness_check_interval_ns=settings.session_liveness_check_interval_ns)
        self._control_sessions[session.session_id] = session
        add(self._counters.control_sessions, 1)

    def on_close_session(self, request):
        # One that is gone already, with the client's subscription to its responses, is not an error.
        session = self._control_sessions.get(request.control_session_id)
        if session is not None and session.is_of_session(request):
            session.abort(control_sessions.SESSION_CLOSED)

    def on_challenge_response(self, request, encoded_credentials):
        session = self._known(request)
        if session is not None:
            session.on_challenge_response(request, encoded_credentials)

    def on_keep_alive(self, request):
        self._accept(request)

    @_answered
    def on_archive_id(self, session, correlation_id):
        return self._archive_id

    # Requests that the archive of a cluster carries out for its own consensus module and services alone.

    cdef bint _is_stranger(self, ControlSession session) noexcept:
        return bool(self._cluster_stream_ids) and not session.is_local()

    def _check_stream(self, session, stream_id, what):
        if self._is_stranger(session) and stream_id in self._cluster_stream_ids:
            raise ArchiveError(
                f"{what} is of the cluster's stream {stream_id}: only clients in shared memory, such as its consensus "
                "module, may do that", code=error_codes.UNAUTHORISED_ACTION)

    def _check_recording(self, session, recording_id):
        if self._is_stranger(session):
            descriptor = self.store.catalog.descriptor(recording_id)
            if descriptor is not None:
                self._check_stream(session, descriptor.stream_id, f"recording {recording_id}")

    def _check_replay(self, ControlSession session, ReplaySession replay):
        if replay is not None and replay.owner is not session:
            self._check_recording(session, replay.recording_id)

    # Recordings.

    @_answered
    def on_start_recording(self, session, correlation_id, *, stream_id, is_local, auto_stop=False, channel):
        self._check_stream(session, stream_id, "the stream to record")
        self.recorder.start(session, correlation_id, stream_id, is_local, auto_stop, channel)

    @_answered
    def on_extend_recording(
            self, session, correlation_id, *, recording_id, stream_id, is_local, auto_stop=False, channel):
        self._check_recording(session, recording_id)
        self.recorder.extend(session, correlation_id, recording_id, stream_id, is_local, auto_stop, channel)

    @_answered
    def on_stop_recording(self, session, correlation_id, *, stream_id, channel):
        self._check_stream(session, stream_id, "what is recorded")
        self.recorder.stop_by_channel(stream_id, channel)
        return 0

    @_answered
    def on_stop_recording_subscription(self, session, correlation_id, *, subscription_id):
        subscription = self.recorder.subscription_of(subscription_id)
        if subscription is not None:
            self._check_stream(session, subscription.stream_id, "what is recorded")
        self.recorder.stop_by_subscription_id(subscription_id)
        return 0

    @_answered
    def on_stop_recording_by_identity(self, session, correlation_id, *, recording_id):
        self._check_known(recording_id)
        self._check_recording(session, recording_id)
        return int(self.recorder.stop_by_recording_id(recording_id))

    # Replays.

    def on_replay(
            self, request, *, recording_id, position, length, replay_stream_id, file_io_max_length=NULL_VALUE,
            replay_token=NULL_VALUE, replay_channel):
        self._start_replay(
            request, ReplayRequest(recording_id, position, length, file_io_max_length), replay_stream_id, replay_token,
            replay_channel, None)

    def on_bounded_replay(
            self, request, *, recording_id, position, length, limit_counter_id, replay_stream_id,
            file_io_max_length=NULL_VALUE, replay_token=NULL_VALUE, replay_channel):
        self._start_replay(
            request, ReplayRequest(recording_id, position, length, file_io_max_length), replay_stream_id, replay_token,
            replay_channel, limit_counter_id)

    def _start_replay(self, request, replay, stream_id, token, channel, limit_counter_id):
        cdef ControlSession session
        if token == NULL_VALUE or not _has_response_mode(channel):
            self._do(
                request, ArchiveConductor._replay, replay=replay, stream_id=stream_id, channel=channel,
                image_correlation_id=None, limit_counter_id=limit_counter_id)
            return
        # The session that was given the token is answered; this image is where the client wants the replay.
        session = self._session_of_token(token, replay.recording_id)
        if session is None:
            self._on_error(ArchiveEvent(
                f"unknown replayToken for recordingId={replay.recording_id} correlationId={request.correlation_id}"))
            return
        self._answer(
            session, request.correlation_id, ArchiveConductor._replay, replay=replay, stream_id=stream_id,
            channel=channel, image_correlation_id=request.image_correlation_id, limit_counter_id=limit_counter_id)

    def _replay(self, session, correlation_id, replay, stream_id, channel, image_correlation_id, limit_counter_id):
        if self._is_stranger(session):
            _refuse_shared_memory(channel, "replayed")
        self.replayer.start(
            session, correlation_id, replay, stream_id, channel, image_correlation_id, limit_counter_id)

    def _session_of_token(self, token, recording_id):
        issued = self._replay_tokens.get(token)
        if issued is None or issued[1] != recording_id or self._clock.coarse_nano_time() > issued[2]:
            return None
        return issued[0]

    @_answered
    def on_stop_replay(self, session, correlation_id, *, replay_session_id):
        self._check_replay(session, self.replayer.session_of(replay_session_id))
        self.replayer.stop(replay_session_id)
        return 0

    @_answered
    def on_stop_all_replays(self, session, correlation_id, *, recording_id):
        if recording_id == NULL_VALUE and self._is_stranger(session):
            raise ArchiveError("the replays of all recordings: only clients in shared memory may stop them",
                               code=error_codes.UNAUTHORISED_ACTION)
        self._check_recording(session, recording_id)
        self.replayer.stop_all(recording_id)
        return 0

    @_answered
    def on_replay_token(self, session, correlation_id, *, recording_id):
        self._check_known(recording_id)
        if len(self._replay_tokens) >= MAX_REPLAY_TOKENS:
            raise ArchiveError(f"{MAX_REPLAY_TOKENS} replay tokens are in use: try again in some seconds")
        token = self._next_token()
        while token == NULL_VALUE or token in self._replay_tokens:
            token = self._next_token()
        deadline_ns = self._clock.coarse_nano_time() + self.settings.connect_timeout_ns
        self._replay_tokens[token] = (session, recording_id, deadline_ns)
        return token

    # Lists and positions.

    def _check_no_listing(self, session):
        if session.active_listing is not None and not session.active_listing.is_done:
            raise ArchiveError("active listing already in progress", code=error_codes.ACTIVE_LISTING)

    def _begin(self, session, listing):
        self._check_no_listing(session)
        session.active_listing = listing
        self._sessions.append(listing)

    def _list(self, session, correlation_id, **asked):
        self._begin(session, ListingSession(
            session, self.store.catalog, correlation_id, on_error=self._on_error, **asked))

    @_answered
    def on_list_recording(self, session, correlation_id, *, recording_id):
        self._list(session, correlation_id, from_recording_id=recording_id, record_count=1, is_single=True)

    @_answered
    def on_list_recordings(self, session, correlation_id, *, from_recording_id, record_count):
        self._list(session, correlation_id, from_recording_id=from_recording_id, record_count=record_count)

    @_answered
    def on_list_recordings_for_uri(
            self, session, correlation_id, *, from_recording_id, record_count, stream_id, channel):
        self._list(
            session, correlation_id, from_recording_id=from_recording_id, record_count=record_count,
            stream_id=stream_id, channel_fragment=channel)

    @_answered
    def on_find_last_matching_recording(
            self, session, correlation_id, *, min_recording_id, session_id, stream_id, channel):
        return find_last_matching(
            self.store.catalog, min_recording_id=min_recording_id, session_id=session_id, stream_id=stream_id,
            channel_fragment=channel)

    @_answered
    def on_list_recording_subscriptions(self, session, correlation_id, *, channel, **asked):
        self._begin(session, SubscriptionListing(
            session, correlation_id,
            [(each.subscription_id, each.stream_id, each.subscription.channel)
             for each in self.recorder.by_key.values() if each.subscription is not None],
            channel_fragment=channel, on_error=self._on_error, **asked))

    def _check_known(self, recording_id):
        if not self.store.catalog.has(recording_id):
            raise ArchiveError(f"unknown recording id: {recording_id}", code=error_codes.UNKNOWN_RECORDING)

    @_answered
    def on_get_start_position(self, session, correlation_id, *, recording_id):
        self._check_known(recording_id)
        return self.store.catalog.start_position(recording_id)

    @_answered
    def on_get_recording_position(self, session, correlation_id, *, recording_id):
        self._check_known(recording_id)
        return self.store.recorded_position(recording_id) if self.store.is_active(recording_id) else NULL_VALUE

    @_answered
    def on_get_stop_position(self, session, correlation_id, *, recording_id):
        self._check_known(recording_id)
        return self.store.catalog.stop_position(recording_id)

    @_answered
    def on_get_max_recorded_position(self, session, correlation_id, *, recording_id):
        self._check_known(recording_id)
        return self.store.recorded_position(recording_id)

    # Cutting, deleting, moving.

    def _delete(self, ControlSession session, correlation_id, deletion):
        session.send_ok(correlation_id, deletion.file_count)
        self._sessions.append(DeletionSession(
            self.store, deletion, session, correlation_id, on_error=self._on_error))

    @_answered
    def on_truncate_recording(self, session, correlation_id, *, recording_id, position):
        self._check_recording(session, recording_id)
        self._delete(session, correlation_id, self.store.truncate(
            recording_id, position, lowest_replay_position=self.replayer.lowest_position(recording_id)))

    @_answered
    def on_purge_recording(self, session, correlation_id, *, recording_id):
        self._check_recording(session, recording_id)
        self._delete(session, correlation_id, self.store.purge(
            recording_id, lowest_replay_position=self.replayer.lowest_position(recording_id)))

    @_answered
    def on_detach_segments(self, session, correlation_id, *, recording_id, new_start_position):
        self._check_recording(session, recording_id)
        self.store.detach(
            recording_id, new_start_position, lowest_replay_position=self.replayer.lowest_position(recording_id))
        return 0

    @_answered
    def on_delete_detached_segments(self, session, correlation_id, *, recording_id):
        self._check_recording(session, recording_id)
        self._delete(session, correlation_id, self.store.delete_detached(recording_id))

    @_answered
    def on_purge_segments(self, session, correlation_id, *, recording_id, new_start_position):
        self._check_recording(session, recording_id)
        self._delete(session, correlation_id, self.store.purge_segments(
            recording_id, new_start_position, lowest_replay_position=self.replayer.lowest_position(recording_id)))

    @_answered
    def on_attach_segments(self, session, correlation_id, *, recording_id):
        self._check_recording(session, recording_id)
        return self.store.attach(recording_id)

    @_answered
    def on_migrate_segments(self, ControlSession session, correlation_id, *, src_recording_id, dst_recording_id):
        cdef int64_t count
        for recording_id in (src_recording_id, dst_recording_id):
            self._check_recording(session, recording_id)
        count = self.store.migrate(src_recording_id, dst_recording_id)
        session.send_ok(correlation_id, count)
        if count > 0:
            session.send_signal(correlation_id, src_recording_id, NULL_VALUE, NULL_VALUE, RECORDING_SIGNAL_DELETE)

    @_answered
    def on_update_channel(self, ControlSession session, correlation_id, *, recording_id, channel):
        self._check_no_listing(session)
        if not self.store.catalog.has(recording_id):
            session.send_recording_unknown(correlation_id, recording_id)
            return None
        self._check_recording(session, recording_id)
        self.store.update_channel(recording_id, stripped_channel(parse_channel(channel)), channel)
        return 0

    # Replications.

    @_answered
    def on_replicate(self, ControlSession session, correlation_id, *, replication_channel="", **fields):
        replication = ReplicationRequest(
            replication_channel=replication_channel or self.settings.replication_channel, **fields)
        if self._is_stranger(session):
            for channel in (replication.src_control_channel, replication.replication_channel):
                _refuse_shared_memory(channel, "replicated")
        self._check_recording(session, replication.dst_recording_id)
        check_replication_request(replication, self.store)
        replication_id = self._take_session_id()
        # It takes no step before its turn: the answer is the first that the client is sent.
        self._replications[replication_id] = ReplicationSession(
            self, session, replication_id=replication_id, request=replication)
        return replication_id

    @_answered
    def on_stop_replication(self, session, correlation_id, *, replication_id):
        replication = self._replications.get(replication_id)
        if replication is None:
            raise ArchiveError(f"unknown replication id {replication_id}", code=error_codes.UNKNOWN_REPLICATION)
        replication.stop()
        return 0

    def __repr__(self):
        return f"<ArchiveConductor archive_id={self._archive_id} control_sessions={len(self._control_sessions)}>"


seal((ArchiveConductor,))
