"""The log of a term that another member leads: its subscription, its recording, and that services join it.

The leader sends the live log to the log endpoint, and replays what is missing here to the catch-up endpoint. Both are
destinations of one subscription, and one image comes of them. Upstream: Election.java (addFollowerSubscription,
addLiveLogDestination), ConsensusModuleAgent.java (tryJoinLogAsFollower).
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from container.common.error_texts import message_of
from container.common.sealed cimport seal
from container.consensus import channels
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport FOLLOWER
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.errors import ArchiveError, ClusterEvent
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counters
from container.transport.frames cimport NULL_VALUE
from container.transport.streams cimport Image, PendingAdd, Subscription

cdef enum:
    LIVE_WINDOW = 32 * 1024 * 1024          # before the end of the log the live destination is added, at most
    LOCAL_SOCKET_ADDRESS_TYPE_ID = 14       # of a counter of the driver (upstream: AeronCounters.java)


cdef bint has_local_sockets(Counters counters, int64_t registration_id) noexcept nogil:
    """Whether a driver still shows a socket that it opened for a stream, by the stream's registration id."""
    cdef int32_t counter_id, state
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if (state == COUNTER_ALLOCATED and counters.type_id(counter_id) == LOCAL_SOCKET_ADDRESS_TYPE_ID
                and counters.registration_id(counter_id) == registration_id):
            return True
    return False


cdef class FollowerLog:
    """Follows the log of a leader.

    Args:
        context: concluded (ConsensusModuleContext).
        this_member: where the log is received (ClusterMember).
        log_adapter: reads the image of the log once it is recorded (LogAdapter).
        recording, joins, termination: of this member.
    """

    def __init__(self, context, ClusterMember this_member not None, LogAdapter log_adapter not None,
                 LogRecording recording not None, ServiceJoins joins not None, MemberTermination termination not None):
        self._settings, self._on_error, self._client = context.settings, context.counted_error_handler, context.client
        self._this_member, self._log_adapter, self._recording = this_member, log_adapter, recording
        self._joins, self._termination, self._changes = joins, termination, []
        self._left_registration_id = NULL_VALUE

    cdef int begin_subscription(self, int32_t session_id, bint is_catchup) except -1:
        """Ask the driver for the subscription, with the destination for catching up or the live one."""
        settings = self._settings
        self._session_id = session_id
        if is_catchup:
            self._catchup_destination = channels.destination(settings.log_channel, self._this_member.catchup_endpoint)
        else:
            self._live_destination = self._live_channel()
        self._pending_subscription = self._client.begin_add_subscription(
            channels.follower_log_channel(
                settings.log_channel, self._client.next_correlation_id(), self._client.next_correlation_id(),
                session_id),
            settings.log_stream_id, False)
        return 0

    def _live_channel(self):
        template = self._settings.log_channel
        if channels.is_multi_destination(template):
            return channels.destination(template, self._this_member.log_endpoint)
        return template

    cdef int poll(self) except -1:
        """Look after what the driver was asked for; how much was done. Raises what it refuses."""
        cdef int work_count = 0
        cdef PendingAdd pending
        cdef int index = 0
        if self._pending_subscription is not None:
            pending = self._pending_subscription
            self._pending_subscription = None       # where it raises the driver has forgotten it
            self._subscription = pending.poll()
            if self._subscription is None:
                self._pending_subscription = pending
            else:
                work_count = 1
                for destination in (self._catchup_destination, self._live_destination):
                    if destination is not None:
                        self._add_destination(destination)
        while index < len(self._changes):
            pending = self._changes.pop(index)
            if pending.poll() is None:
                self._changes.insert(index, pending)
                index += 1
            else:
                work_count += 1
        return work_count

    cdef int _add_destination(self, str destination) except -1:
        self._changes.append(self._subscription.begin_add_destination(destination))
        return 0

    cdef object join_position(self):
        """Where the image of the log joined (int); None until there is one."""
        cdef Image image
        self.poll()
        if self._subscription is None:
            return None
        image = self._subscription.image_by_session_id(self._session_id)
        return None if image is None else image.join_position

    cdef str catchup_endpoint(self):
        """Where the leader is to replay to, ``host:port``; with port 0 while the driver has not chosen one."""
        cdef str endpoint = self._this_member.catchup_endpoint
        cdef str resolved
        self.poll()
        if self._subscription is not None and endpoint.endswith(":0"):
            resolved = self._subscription.resolved_endpoint()
            if resolved:
                endpoint = f"{endpoint.removesuffix(':0')}:{resolved.rpartition(':')[2]}"
        return endpoint

    cdef int begin_join(self, bint is_startup, bint is_term_open) except -1:
        """Record the image, and have the services join the log where it joined; :meth:`poll_join` looks after it.

        ``is_term_open``: whether the beginning of the term is in this member's log already.
        """
        self._join = self._record_and_join(is_startup, is_term_open)
        return 0

    cdef bint poll_join(self) except -1:
        """Whether the log is recorded and all services have joined it."""
        self.poll()
        if self._join is not None:
            try:
                next(self._join)
            except StopIteration:
                self._join = None
        return self._join is None

    cpdef int close_join(self) except -1:
        """Give a join up."""
        if self._join is not None:
            self._join.close()
            self._join = None
        return 0

    def _record_and_join(self, bint is_startup, bint is_term_open):
        cdef Image image = self._subscription.image_by_session_id(self._session_id)
        cdef str channel = self._subscription.channel
        cdef int32_t stream_id = self._settings.log_stream_id
        # Where this member has all of an open term, nothing may come for as long as no client says anything.
        cdef bint is_more_due = self._catchup_destination is not None or not is_term_open
        if image is None:
            raise ClusterEvent(f"the image of the leader's log has gone: sessionId={self._session_id}")
        try:
            yield from self._recording.start(
                channel=channel, stream_id=stream_id, session_id=self._session_id, is_local=False, image=image)
        except ArchiveError as error:
            if error.code == ArchiveError.STORAGE_SPACE:
                self._on_error(error)
                self._termination.terminate(False, message_of(error))
            self._termination.check_archive(error)
            raise
        self._log_adapter.join(image, self._subscription)
        # A driver keeps an image until all have read what it has, whatever becomes of its publication; one that has
        # nothing goes with that. So there is one for the services, as long as this member has it and does not read.
        while is_more_due and self._recording.position() <= image.join_position:
            if image.is_closed() or self._recording.is_lost():
                raise ClusterEvent(f"the leader's log has ended before anything came: sessionId={self._session_id}")
            yield
        yield from self._joins.join(
            image.join_position, INT64_MAX, self._session_id, stream_id, is_startup, FOLLOWER, channel, image)

    cdef int add_live_destination(self) except -1:
        """Receive the live log as well, unless it does."""
        if self._live_destination is not None:
            return 0
        self._live_destination = self._live_channel()
        return self._add_destination(self._live_destination)

    cdef int stop_catchup(self) except -1:
        """Receive no replay any more: the leader says that the live log reaches this member."""
        cdef str destination = self._catchup_destination
        self._catchup_destination = None
        if destination is not None and self._subscription is not None:
            self.add_live_destination()         # what is recorded is there, though it may not be read that far yet
            self._changes.append(self._subscription.begin_remove_destination(destination))
        return 0

    cdef bint is_catching_up(self) noexcept:
        return self._catchup_destination is not None

    cdef bint is_near_live(self, int64_t position) noexcept:
        """Whether what was read of the log is less than a window before a position."""
        cdef Image image = self._log_adapter.image
        return image is not None and image.position() >= position - min(
            <int64_t> image.term_buffer_length >> 2, <int64_t> LIVE_WINDOW)

    def leave(self):
        """End it, as a generator that waits for the driver: the destinations go first, and with them their ports.

        The subscription stays until services have joined that were asked to: they find the image by it.
        """
        cdef object subscription = self._subscription
        if subscription is not None:
            self._left_registration_id = subscription.registration_id
            for destination in (self._catchup_destination, self._live_destination):
                if destination is not None:
                    self._changes.append(self._subscription.begin_remove_destination(destination))
            self._catchup_destination = self._live_destination = None
        while self._changes:
            try:
                self.poll()
            except Exception as error:          # of a destination that was never added
                self._on_error(ClusterEvent(f"the log's subscription: {message_of(error)}"))
            if self._changes:
                yield
        if subscription is not None and self._joins.is_awaited(self._session_id):
            self._subscription = None
            self._joins.keep(subscription.close, False)
        self.close()

    def await_sockets_closed(self):
        """Wait, after :meth:`leave`, until the driver has closed its sockets, for as long as that takes."""
        cdef Counters counters = self._client.counters()
        while self._left_registration_id != NULL_VALUE:
            if has_local_sockets(counters, self._left_registration_id):
                yield
            else:
                self._left_registration_id = NULL_VALUE

    cpdef int close(self) except -1:
        """End it without waiting; may be called twice."""
        cdef PendingAdd pending
        cdef list changes = self._changes
        cdef PendingAdd asked = self._pending_subscription
        cdef Subscription subscription = self._subscription
        self._changes, self._pending_subscription, self._subscription = [], None, None
        self._catchup_destination = self._live_destination = None
        try:
            self.close_join()
            for pending in changes:
                pending.close()
            if asked is not None:
                asked.close()
        finally:
            if subscription is not None:
                subscription.close()
        return 0


seal((FollowerLog,))
