"""The core of a member's service side: duty cycle, log position, cluster time, sessions in id order, role and acks.

The rules are upstream's ClusteredServiceAgent. Three inputs drive it, polled in this order in each duty cycle: the
clock (a slow tick each millisecond), the control stream, and the log up to the commit position.
"""
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common import aeron_defaults, error_texts, forks, interruptions, loggers
from container.common.log_events import log_event
from container.common.channel_uri import replace_alias
from container.common.sealed cimport seal
from container.common.semantic_version import format_version
from container.errors import (
    AeronEvent, AgentInterrupted, AgentTermination, ArchiveError, Category, ClusterError, ClusterEvent,
    ClusterTermination, CodecError, MarkFileError, MessageTooLongError, SnapshotError,
)
from container.service.agent_events cimport ActiveLogEvent, AgentListener
from container.service.batch_delivery cimport BatchDelivery
from container.service.bounded_log_adapter cimport POLL_TIME_LIMIT_NS, BoundedLogAdapter
from container.service.cluster_counters cimport (
    NULL_COUNTER_ID, RecoveryState, find_commit_position, find_recovery_state, read_recovery_state,
    snapshot_recording_id,
)
from container.service.consensus_module_proxy cimport ConsensusModuleProxy
from container.service.container_client_session cimport ClientSessions, ContainerClientSession
from container.service.event_handler cimport EventHandler
from container.service.service_adapter cimport ServiceAdapter
from container.service.snapshot_loader cimport SnapshotImage, SnapshotLoader
from container.service.snapshot_taker cimport RecordingWait, SnapshotPublication, SnapshotTaker
from container.settings import callback_errors
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.message_buffer cimport BufferClaim
from container.transport.clocks cimport Clock
from container.transport.counters cimport COUNTER_ALLOCATED
from container.transport.frames cimport (
    BACK_PRESSURED, CLOSED, NOT_CONNECTED, NULL_VALUE, BufferVector, Claim, FrameHeader,
)
from container.transport.transport_seam cimport SnapshotReader, SnapshotWriter
from container.transport.streams cimport Image, Publication, Subscription
from container.transport.wait_reporter cimport WaitReporter

# Where the thread's control block is: one instruction where the compiler knows it.
cdef extern from *:
    """
    #include <pthread.h>
    #include <stdint.h>
    #ifdef __has_builtin
    #if __has_builtin(__builtin_thread_pointer)
    #define container_this_thread() ((uintptr_t)__builtin_thread_pointer())
    #endif
    #endif
    #ifndef container_this_thread
    #define container_this_thread() ((uintptr_t)pthread_self())
    #endif
    """
    uintptr_t this_thread "container_this_thread" () noexcept nogil

cdef enum:
    ROLE_FOLLOWER = 0
    ROLE_LEADER = 2
    MOCKED_OFFER = 1
    SESSION_HEADER_LENGTH = 32
    SLOW_TICK_NS = 1_000_000
    MARK_FILE_UPDATE_INTERVAL_MS = 1_000
    CLOSE_SESSION_ATTEMPTS = 3
    MAX_WORK_COUNT = 1_000_000              # of background work: sums stay far from what a C int holds
    ROOM_ATTEMPTS = 8                       # the driver moves a limit in steps
    SENDS_BETWEEN_TURNS = 50                # as many messages as a turn of a part alone takes
    TERMINATION_ACK_ATTEMPTS = 5
    LOG_IMAGE_TIMEOUT_S = 30
    LOG_LOOK_INTERVAL_NS = 100_000_000      # between looks at whether the driver still has a log that does not appear
    SLOW_CALLBACK_NS = POLL_TIME_LIMIT_NS   # a poll that this ends is slow
    SESSIONS_INTERVAL_S = 10                # between reports of how many came and went
    NS_PER_MS = 1_000_000
    CLUSTER_ACTION_FLAGS_DEFAULT = 0
    CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT = 1

cdef enum:
    LIFECYCLE_NONE = 0
    LIFECYCLE_ON_START = 1
    LIFECYCLE_ON_TERMINATE = 2
    LIFECYCLE_ON_ROLE_CHANGE = 3
    LIFECYCLE_DO_BACKGROUND_WORK = 4
    LIFECYCLE_ON_TAKE_SNAPSHOT = 5

cdef tuple _ROLE_NAMES = aeron_defaults.ROLES
cdef tuple _LIFECYCLE_NAMES = (
    "none", "on_start", "on_terminate", "on_role_change", "do_background_work", "on_take_snapshot")

# Callbacks of events of the log.
cdef enum:
    EVENT_NONE = 0
    EVENT_SESSION_MESSAGE = 1
    EVENT_TIMER = 2
    EVENT_SESSION_OPEN = 3
    EVENT_SESSION_CLOSE = 4
    EVENT_NEW_LEADERSHIP_TERM = 5
    EVENT_TAKE_SNAPSHOT = 6

cdef tuple _EVENT_CALLBACKS = (
    "the container", "on_session_message", "on_timer_event", "on_session_open", "on_session_close",
    "on_new_leadership_term_event", "on_take_snapshot",
)

# The same names as fields of what is logged.
cdef tuple _EVENT_FIELDS = (
    "", "cluster_session_id", "correlation_id", "cluster_session_id", "cluster_session_id", "leadership_term_id",
    "leadership_term_id",
)

# Fields that distinguish an event from others.
cdef tuple _EVENT_IDS = (
    "", "clusterSessionId", "correlationId", "clusterSessionId", "clusterSessionId", "leadershipTermId",
    "leadershipTermId",
)


cdef class ClusterIdleStrategy(IdleStrategy):
    """The cluster's own idling, which keeps conductor, mark file and background work going."""

    cdef ClusteredServiceAgent _agent

    def __init__(self, ClusteredServiceAgent agent not None):
        self._agent = agent

    cdef int idle(self, int work_count) except? -1:
        return self._agent.idle_once(work_count)

    cdef void reset(self) noexcept:
        self._agent._idle_strategy.reset()


cdef str _advice(int64_t recording_id, object failure):
    if recording_id == NULL_VALUE or not isinstance(failure, (ArchiveError, ClusterError, CodecError)):
        return ""
    return ("; if the recording is damaged, `aeron-cluster invalidate-latest-snapshot` has the node start from the "
            "snapshot before it")


cdef ClusteredServiceAgent new_agent(object context):
    cdef ClusteredServiceAgent agent = ClusteredServiceAgent.__new__(ClusteredServiceAgent)
    agent._open(context)
    return agent


cdef class ClusteredServiceAgent(EventHandler):
    """One service of one member. As services are given it, Python sees of it what a Cluster has and nothing else.

    :class:`~container.service.service_agent.ServiceAgent` makes one and runs it.
    """

    def __init__(self):
        raise TypeError("the agent is made by the container")

    cdef int _open(self, object context) except -1:
        cdef Publication publication
        context.check()
        self._context = context
        self._on_error = context.on_error
        self._client = context.client
        self._clock = context.clock
        self._handler = context.service_handler
        self._idle_strategy = context.idle_strategy
        self._cluster_idle = ClusterIdleStrategy(self)
        self._mark_file = context.mark_file
        self._snapshot_store = context.snapshot_store
        self._duty_cycle_tracker = context.duty_cycle_tracker
        self._snapshot_duration_tracker = context.snapshot_duration_tracker
        self._service_id = context.service_id
        self._is_responding_service = context.is_responding_service
        self._sessions = ClientSessions()
        self._log_adapter = BoundedLogAdapter(self, context.log_fragment_limit, self._clock)
        self._halts_on_error = context.callback_error_policy == callback_errors.HALT
        self._batch = BatchDelivery(self._handler, self) if self._handler.takes_batches() else None
        self._listener = AgentListener()
        self._member_id = NULL_VALUE
        self._role = ROLE_FOLLOWER
        self._time_unit = NULL_VALUE
        self._log_position = NULL_VALUE
        self._termination_position = NULL_VALUE
        self._requested_ack_position = NULL_VALUE
        self._last_commit_position = NULL_VALUE
        self._last_tick_ns = self._clock.nano_time() - SLOW_TICK_NS - 1
        self._sessions_reported_ns = self._last_tick_ns - SESSIONS_INTERVAL_S * <int64_t> 1_000_000_000
        self._name = context.service_name
        self._mark_file_ms = NULL_VALUE - MARK_FILE_UPDATE_INTERVAL_MS
        self._connects = EgressConnects()
        self._standby_snapshot_flags = CLUSTER_ACTION_FLAGS_DEFAULT
        codec.session_message_header_encode(self._session_header, sizeof(self._session_header), NULL_VALUE, 0, 0)

        publication = self._client.add_publication(
            context.control_channel, context.consensus_module_stream_id)
        try:
            self._service_adapter = ServiceAdapter(
                self._client.add_subscription(context.control_channel, context.service_stream_id), self)
        except BaseException:
            publication.close()
            raise
        self._proxy = ConsensusModuleProxy(publication)
        return 0

    # --- forks

    cdef int _disown(self, long process_id) except -1:
        """In a forked child: nothing is sent any more, and the agent ends where it is."""
        self._parent_id = process_id
        self._owner_thread = 0                          # what sends is refused
        self._listener.is_client_closed = True          # so is what idles or works
        self._log_adapter._poll_end_ns = 0              # a poll in progress ends with its message
        self._is_in_background_work = True
        self._is_closed = True
        self._loose_ends = None
        self._child_failures = []
        self._on_error = self._child_failures.append
        return 0

    cdef int _check_process(self) except -1:
        if self._parent_id != 0:
            raise forks.refusal("use a cluster, a session or an agent", f"that of service {self._context.service_name}",
                                self._parent_id)
        return 0

    cdef int _start(self) except -1:
        self._check_process()
        self._owner_thread = this_thread()
        self._counters = self._client.counters()
        self._await_commit_position()
        self._recover_state()
        self._duty_cycle_tracker.begin(self._clock.nano_time())
        self._is_service_active = True
        return 0

    cdef int _do_work(self) except? -1:
        cdef int64_t now_ns = self._clock.nano_time()
        cdef int work_count = 0
        cdef int polled
        self._duty_cycle_tracker.measure_and_begin(now_ns)
        self._sends = 0
        try:
            if self._tick(now_ns):
                work_count += self._poll_control()
            if self._log_adapter.is_joined():
                polled = self._poll_log()
                work_count += polled
                if polled == 0 and self._log_adapter.is_done():
                    self._close_log()
            work_count += self._background_work(now_ns)
        except AgentTermination:
            self._run_termination_hook()
            raise
        except MemoryError as error:
            # Maybe of what was to end the member, or to skip an event: nobody knows how much of the cycle was done.
            if self._parent_id != 0:
                raise
            self._run_termination_hook()
            raise AgentTermination(
                f"there was no memory to continue at logPosition={self._log_position}: this member ends, as its state "
                "could differ from the other members'. It replays the log at its next start") from error
        return work_count

    cdef int _close(self) except -1:
        """Each step is taken whatever the others raise: the mark file must not stay active."""
        if self._is_closed:
            return 0
        self._is_closed = True
        if self._counters is not None:
            try:
                self._client.remove_listener(self._listener)
            except BaseException as error:
                self._report_at_end(error)
        self._report_sessions()
        if not self._is_aborted:
            if self._is_service_active:
                self._is_service_active = False
                self._call_on_terminate()
            self._close_resource(self._log_adapter.leave())
            self._close_resource(self._gap)
            if self._active_log_event is not None:
                self._close_resource(self._active_log_event.subscription)
            if not self._context.owns_client and not self._client.is_closed():
                self._close_resource(self._service_adapter)
                self._close_resource(self._proxy)
                self._disconnect_egress()
        try:
            self._mark_file.signal_terminated()
        except BaseException as error:
            self._report_at_end(error)
        try:
            self._context.close()
        except BaseException as error:
            self._report_at_end(error)
        return 0

    cdef int _report_at_end(self, object error, str remark=None) except -1:
        # A report for which there is no memory keeps no later step from being taken.
        try:
            if remark is None:
                self._on_error(error)
            else:
                self._report_with(remark, error)
        except BaseException as failure:
            interruptions.keep(failure)
        return 0

    cdef int _call_on_terminate(self) except -1:
        self._lifecycle_callback = LIFECYCLE_ON_TERMINATE
        try:
            self._handler.on_terminate(self)
        except BaseException as error:
            self._report_at_end(error, "on_terminate raised this: the member ends in order")
        finally:
            self._lifecycle_callback = LIFECYCLE_NONE
        return 0

    cdef int _run_termination_hook(self) except -1:
        if self._parent_id != 0:
            return 0
        try:
            self._context.termination_hook()
        except BaseException as error:
            self._report_at_end(error, "the termination hook raised this: the member ends in order")
        return 0

    cdef int _close_resource(self, object resource) except -1:
        if resource is not None:
            try:
                resource.close()
            except BaseException as error:
                self._report_at_end(error)
        return 0

    # --- start

    cdef int _await_commit_position(self) except -1:
        cdef int32_t cluster_id = self._context.cluster_id
        cdef WaitReporter waiting = self._wait_for(
            f"the commit position counter of cluster {cluster_id}; is the consensus module running?")
        cdef int32_t counter_id = find_commit_position(self._counters, cluster_id)
        self._idle_strategy.reset()
        while counter_id == NULL_COUNTER_ID:
            self.idle_once(0)
            waiting.tick()
            counter_id = find_commit_position(self._counters, cluster_id)
        self._listener.commit_registration_id = self._counters.registration_id(counter_id)
        self._listener.commit_counter_id = counter_id
        # From here on the listener hears of its end, maybe on another thread: check whether that came before.
        self._client.add_listener(self._listener)
        if (self._counters.state(counter_id) != COUNTER_ALLOCATED
                or self._counters.registration_id(counter_id) != self._listener.commit_registration_id):
            self._listener.is_commit_position_closed = True
        return 0

    cdef int32_t _await_recovery_state(self) except -1:
        cdef int32_t cluster_id = self._context.cluster_id
        cdef WaitReporter waiting = self._wait_for(
            f"the recovery state counter of cluster {cluster_id} (it exists only while the consensus "
            "module starts: restart the node as well)")
        cdef int32_t counter_id = find_recovery_state(self._counters, cluster_id)
        self._idle_strategy.reset()
        while counter_id == NULL_COUNTER_ID:
            self.idle_once(0)
            waiting.tick()
            counter_id = find_recovery_state(self._counters, cluster_id)
        return counter_id

    cdef int _recover_state(self) except -1:
        cdef RecoveryState state
        cdef int32_t counter_id = self._await_recovery_state()
        cdef int64_t recording_id = NULL_VALUE, length = 0
        cdef int64_t begin_ns = self._clock.nano_time()
        cdef object failure = None
        read_recovery_state(self._counters, counter_id, &state)
        self._log_position = state.log_position
        self._cluster_time = state.timestamp
        codec.session_message_header_put_leadership_term_id(self._session_header, state.leadership_term_id)

        self._lifecycle_callback = LIFECYCLE_ON_START
        try:
            if state.leadership_term_id == NULL_VALUE:
                self._handler.on_start(self, None)
            else:
                recording_id = snapshot_recording_id(self._counters, counter_id, self._service_id)
                length = self._load_snapshot(recording_id)
        except AgentTermination:
            raise
        except BaseException as error:
            if self._parent_id != 0:
                raise
            failure = error
        finally:
            self._lifecycle_callback = LIFECYCLE_NONE

        try:
            self._ack(state.log_position, self._client.client_id() if failure is None else NULL_VALUE)
        except BaseException as error:
            if failure is None:
                raise
            self._on_error(error)
        if failure is not None:
            raise AgentTermination(
                f"failed to start service={self._context.service_name} leadershipTermId={state.leadership_term_id} "
                f"logPosition={state.log_position} clusterTime={state.timestamp} "
                f"snapshotRecordingId={recording_id}: {type(failure).__name__}: {failure}"
                f"{_advice(recording_id, failure)}") from failure
        log_event(
            self._name, "recovered", snapshot_recording_id=recording_id, log_position=state.log_position,
            leadership_term_id=state.leadership_term_id, cluster_time=state.timestamp, bytes=length,
            duration_ms=(self._clock.nano_time() - begin_ns) // NS_PER_MS)
        return 0

    cdef int64_t _load_snapshot(self, int64_t recording_id) except -1:
        """Load the snapshot, and return how many bytes its recording has."""
        cdef SnapshotReader reader = self._snapshot_store.open(recording_id, self._cluster_idle)
        cdef SnapshotLoader loader
        cdef SnapshotImage image
        cdef WaitReporter waiting = self._wait_for(f"the replay of snapshot recording {recording_id}")
        cdef int fragments
        try:
            loader = SnapshotLoader(reader, self, self._clock)
            while not loader.is_done:
                fragments = loader.poll()
                if loader.is_done:
                    break
                if fragments == 0:
                    waiting.tick()
                self.idle_once(fragments)
            if not self._context.app_version_validator(self._context.app_version, loader.app_version):
                raise ClusterError(
                    f"incompatible app version: {format_version(self._context.app_version)} "
                    f"snapshot={format_version(loader.app_version)}")
            self._time_unit = loader.time_unit
            image = SnapshotImage(reader, self)
            try:
                self._handler.on_start(self, image)
                image.report_unread(type(getattr(self._handler, "service", self._handler)).__name__)
            finally:
                image._end()
            return reader.stop_position
        finally:
            reader.close()

    cdef int on_snapshot_session(
            self, int64_t cluster_session_id, int32_t response_stream_id, str response_channel,
            bytes encoded_principal) except -1:
        if self._sessions.get(cluster_session_id) is not None:
            raise ClusterError(f"clusterSessionId={cluster_session_id} is twice in the snapshot")
        return self._sessions.add(ContainerClientSession(
            self, cluster_session_id, response_stream_id, response_channel, encoded_principal))

    # --- duty cycle

    cdef bint _tick(self, int64_t now_ns) except -1:
        self._check_client()
        if now_ns - self._last_tick_ns <= SLOW_TICK_NS:
            return False
        self._last_tick_ns = now_ns
        try:
            self._slow_tick()
        except Exception as error:
            # A failure here, such as of the mark file's disk, must not keep the control stream from being polled.
            self._on_error(error)
        return True

    cdef int _slow_tick(self) except -1:
        cdef int64_t now_ms
        PyErr_CheckSignals()
        if self._client.is_invoker():
            self._invoke_client()
            self._check_client()
        if self._listener.is_commit_position_closed:
            self._context.record_event(AeronEvent("commit-pos counter unexpectedly closed, terminating"))
            raise ClusterTermination(is_expected=True)
        if not self._connects.is_empty():
            self._poll_connects()
        if ((self._opened_count or self._closed_count)
                and self._last_tick_ns - self._sessions_reported_ns >= SESSIONS_INTERVAL_S * <int64_t> 1_000_000_000):
            self._report_sessions()
        now_ms = self._clock.epoch_ms()
        # Others judge the owner by the time of day, so its jumps, back and forth, show immediately.
        if not 0 <= now_ms - self._mark_file_ms < MARK_FILE_UPDATE_INTERVAL_MS:
            self._mark_file_ms = now_ms
            try:
                self._mark_file.update_activity_timestamp(now_ms)
            except MarkFileError as error:      # another container may have this one's place by now
                raise AgentTermination(str(error)) from None
        return 0

    cdef int _check_client(self) except -1:
        if self._listener.is_client_closed or self._client.is_closed():
            self._check_process()
            self._is_aborted = True
            self._invoke_client()               # its errors, of a turn that this thread did not invoke
            raise AgentTermination("unexpected Aeron close")
        return 0

    cdef int _invoke_client(self) except -1:
        # The error handler of a client that was given may raise: neither a tick nor the client's end stops at that.
        try:
            self._client.invoke()
        except BaseException as error:
            if self._parent_id != 0:
                raise
            if not (issubclass(type(error), Exception) or self._listener.is_client_closed
                    or self._client.is_closed()):
                raise
            self._on_error(error)
        return 0

    cdef int64_t _commit_position(self) noexcept:
        cdef int64_t position = self._counters.value(self._listener.commit_counter_id)
        # The record of a counter that went away may be given to another counter before the listener hears of its end.
        if self._counters.registration_id(self._listener.commit_counter_id) == self._listener.commit_registration_id:
            self._last_commit_position = position
        return self._last_commit_position

    cdef int _poll_control(self) except -1:
        cdef ActiveLogEvent event
        cdef int work_count = self._service_adapter.poll()
        if self._gap is not None:
            self._check_gap()
        if self._active_log_event is not None and not self._log_adapter.is_joined():
            event = self._active_log_event
            self._active_log_event = None
            try:
                self._join_log(event)
            except Exception as error:
                if self._parent_id != 0:
                    raise
                # The consensus module waits for the ack of the join and asks no second time.
                raise AgentTermination(
                    f"failed to join the log at logPosition={event.log_position}: {error}") from error
        self._check_termination()
        self._check_requested_ack()
        return work_count

    cdef int _check_termination(self) except -1:
        cdef int64_t position = self._termination_position
        if position == NULL_VALUE or self._log_position < position:
            return 0
        if self._log_position > position:
            # A consensus module that ends by itself says 0 (upstream: ConsensusModuleAgent.java).
            self._on_error(ClusterEvent(
                f"service terminate: logPosition={self._log_position}" + (
                    f" > terminationPosition={position}" if position != 0 else
                    ", and the consensus module ends by itself: its error log says why")))
        self._terminate_service()
        self._termination_position = NULL_VALUE
        raise ClusterTermination(is_expected=self._log_position == position)

    cdef int _terminate_service(self) except -1:
        cdef int attempts = TERMINATION_ACK_ATTEMPTS
        cdef int64_t ack_id
        self._is_service_active = False
        self._call_on_terminate()
        if not self._is_termination_ack_required:
            return 0
        ack_id = self._ack_id
        self._ack_id += 1
        try:
            while not self._proxy.ack(
                    self._log_position, self._cluster_time, ack_id, NULL_VALUE, self._service_id):
                attempts -= 1
                if attempts == 0:
                    break
                self.idle_once(0)
        except BaseException as error:
            self._on_error(error)
        return 0

    cdef int _check_requested_ack(self) except -1:
        cdef int64_t position = self._requested_ack_position
        if position == NULL_VALUE or self._log_position < position:
            return 0
        if self._log_position > position:
            self._on_error(ClusterEvent(
                f"invalid ack request: logPosition={self._log_position} > requestedAckPosition={position}"))
        self._ack(self._log_position, NULL_VALUE)
        self._requested_ack_position = NULL_VALUE
        return 0

    cdef int _background_work(self, int64_t now_ns) except -1:
        cdef int callback = self._lifecycle_callback
        cdef int work_count = 0
        if self._is_in_background_work:
            return 0
        self._lifecycle_callback = LIFECYCLE_DO_BACKGROUND_WORK
        self._is_in_background_work = True
        try:
            work_count = min(max(0, self._handler.do_background_work(now_ns)), MAX_WORK_COUNT)
        except Exception as error:
            # It may run while another callback idles, which it does not concern. No return here, see error_log.pyx.
            self._report_with(f"do_background_work raised this at logPosition={self._log_position}", error)
        finally:
            self._is_in_background_work = False
            self._lifecycle_callback = callback
        return work_count

    cdef int _ack(self, int64_t log_position, int64_t relevant_id) except -1:
        # The id counts as used from here on, whether the ack can be sent or not.
        cdef int64_t ack_id = self._ack_id
        cdef WaitReporter waiting = None
        self._check_process()
        self._ack_id += 1
        try:
            while not self._proxy.ack(log_position, self._cluster_time, ack_id, relevant_id, self._service_id):
                if waiting is None:
                    waiting = self._wait_for(
                        f"the consensus module to take ack {ack_id} at logPosition={log_position}")
                self.idle_once(0)
                waiting.tick()
        except Exception as error:
            # Its id is used up: without it, all that follow would be out of sequence.
            raise AgentTermination(
                f"ack {ack_id} at logPosition={log_position} cannot be sent: {error}") from error
        return 0

    # --- control stream

    cdef int on_join_log(
            self, int64_t log_position, int64_t max_log_position, int32_t member_id, int32_t log_session_id,
            int32_t log_stream_id, bint is_startup, int32_t role, bint is_standby, str log_channel) except -1:
        cdef ActiveLogEvent event = ActiveLogEvent.__new__(ActiveLogEvent)
        event.log_position = log_position
        event.max_log_position = max_log_position
        event.member_id = member_id
        event.session_id = log_session_id
        event.stream_id = log_stream_id
        event.is_startup = is_startup
        event.role = role
        event.is_standby = is_standby
        event.channel = log_channel
        # The current image, if any, counts as finished where the new one begins.
        self._log_adapter.max_log_position = log_position
        if self._active_log_event is not None:
            self._close_resource(self._active_log_event.subscription)
        self._active_log_event = event
        return 0

    cdef int on_service_termination_position(self, int64_t log_position, bint ack_required) except -1:
        self._termination_position = log_position
        self._is_termination_ack_required = ack_required
        return 0

    cdef int on_request_service_ack(self, int64_t log_position) except -1:
        self._requested_ack_position = log_position
        return 0

    cdef int _join_log(self, ActiveLogEvent event) except -1:
        cdef ContainerClientSession session
        if event.image is None and not self._subscribe_to_log(event):
            # The join was of an election that failed while a callback ran, or of a leader that is gone. The consensus
            # module counts the ack of each join, and asks for the next one after that: what this log had, the archive
            # replays then.
            loggers.report("warning", "the log session-id=%s has ended before this service could join it at "
                           "logPosition=%s: it waits for the next one", event.session_id, event.log_position)
            return self._ack(event.log_position, NULL_VALUE)
        if event.log_position > self._log_position:
            return self._fetch_gap(event)
        self._log_adapter.join(event.subscription, event.image, event.max_log_position)
        self._standby_snapshot_flags = (
            CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT if event.is_standby else CLUSTER_ACTION_FLAGS_DEFAULT)
        self._ack(event.log_position, NULL_VALUE)

        # From here on nothing may be raised: a leader that is left half joined answers nobody.
        self._member_id = event.member_id
        log_event(self._name, "log_joined", log_position=event.log_position, member_id=event.member_id,
                  role=_ROLE_NAMES[event.role] if 0 <= event.role <= ROLE_LEADER else event.role,
                  log_session_id=event.session_id)
        try:
            self._mark_file.set_member_id(event.member_id)
        except Exception as error:
            self._on_error(error)
        if event.role == ROLE_LEADER:
            for session in self._sessions:
                session._mark_closing(False)
            if self._is_responding_service and not event.is_startup:
                self._begin_egress(list(self._sessions))
                self._await_egress(None)
        return self._set_role(event.role)

    cdef bint _subscribe_to_log(self, ActiveLogEvent event) except -1:
        # False: the log is gone.
        cdef Subscription subscription
        cdef Image image
        cdef str channel = replace_alias(event.channel, f"log-sc-{self._service_id}")
        if event.role != ROLE_LEADER:
            self._disconnect_egress()
        subscription = self._client.add_subscription(channel, event.stream_id)
        try:
            image = self._await_image(subscription, event)
            if event.log_position < self._log_position:
                raise ClusterError("Cluster log must be contiguous for active log event: "
                                   f"expectedPosition={self._log_position} eventPosition={event.log_position}")
            if image is None:
                self._close_resource(subscription)
                return False
            if image.join_position != event.log_position:
                raise ClusterError("Cluster log must be contiguous for joining image: "
                                   f"expectedPosition={event.log_position} joinPosition={image.join_position}")
        except BaseException:
            self._close_resource(subscription)
            raise
        event.subscription = subscription
        event.image = image
        return True

    cdef int _fetch_gap(self, ActiveLogEvent event) except -1:
        # The log before was gone when the service had not read all of it. The missing part is committed and recorded: a
        # consensus module has applied the log up to where it has a service join the next one. Until the service has it,
        # the next log's image is held, and not read.
        cdef int64_t position = self._log_position
        cdef SnapshotReader gap
        self._gap_end_position = event.log_position
        self._active_log_event = event
        loggers.report("warning", "the archive replays %s, as the log ended before it had read that far",
                       self._missed(position))
        try:
            gap = self._snapshot_store.open_log(position, event.log_position, event.session_id, self._cluster_idle)
        except AgentTermination:
            raise
        except Exception as error:
            raise self._gap_failure(position, f"{type(error).__name__}: {error}") from error
        self._gap = gap
        self._gap_position = position
        self._is_gap_late = False
        self._gap_deadline_ns = self._clock.nano_time() + LOG_IMAGE_TIMEOUT_S * <int64_t> 1_000_000_000
        if gap.image.join_position != position:
            raise self._gap_failure(position, f"its replay begins at {gap.image.join_position}")
        self._log_adapter.join(None, gap.image, event.log_position)
        return 0

    cdef str _missed(self, int64_t position):
        return f"the log from position {position} to {self._gap_end_position}, which the service has missed"

    cdef object _gap_failure(self, int64_t position, str reason):
        return AgentTermination(f"cannot get {self._missed(position)}: {reason}")

    cdef int _check_gap(self) except -1:
        cdef int64_t position = self._log_adapter.position()
        cdef int64_t now_ns = self._clock.nano_time()
        if position >= self._gap_end_position:
            return 0
        if position != self._gap_position:
            self._gap_position = position
            self._gap_deadline_ns = now_ns + LOG_IMAGE_TIMEOUT_S * <int64_t> 1_000_000_000
            self._is_gap_late = False
        elif now_ns >= self._gap_deadline_ns and not self._is_gap_late:
            self._is_gap_late = True            # what came while the agent was busy is read before it counts
        elif now_ns >= self._gap_deadline_ns:
            raise self._gap_failure(
                position, f"nothing came for {LOG_IMAGE_TIMEOUT_S} s; the commit position is {self._commit_position()}")
        try:
            self._gap.check()
        except Exception as error:
            raise self._gap_failure(position, f"{type(error).__name__}: {error}") from error
        if self._gap.image.is_closed() or self._gap.image.is_end_of_stream():
            raise self._gap_failure(position, "its replay ended there")
        return 0

    cdef Image _await_image(self, Subscription subscription, ActiveLogEvent event):
        # None: the driver has no such log any more. The consensus module had it before it asked for the join.
        cdef str what = f"the log image session-id={event.session_id} of {subscription!r}"
        cdef WaitReporter waiting = self._wait_for(what)
        cdef int64_t now_ns = self._clock.nano_time()
        cdef int64_t deadline_ns = now_ns + LOG_IMAGE_TIMEOUT_S * <int64_t> 1_000_000_000
        cdef int64_t next_look_ns = now_ns + LOG_LOOK_INTERVAL_NS
        cdef Image image = subscription.image_by_session_id(event.session_id)
        self._idle_strategy.reset()
        while image is None:
            now_ns = self._clock.nano_time()
            if now_ns >= deadline_ns:
                raise AgentTermination(
                    f"{what} did not appear within {LOG_IMAGE_TIMEOUT_S} s: start the node and this container again")
            if now_ns >= next_look_ns:
                next_look_ns = now_ns + LOG_LOOK_INTERVAL_NS
                if not self._client.has_stream(event.stream_id, event.session_id):
                    return None
            self.idle_once(0)
            waiting.tick()
            image = subscription.image_by_session_id(event.session_id)
        return image

    cdef int _close_log(self) except -1:
        if self._gap is not None:
            self._check_gap()
        self._log_position = max(self._log_adapter.position(), self._log_position)
        self._close_resource(self._log_adapter.leave())
        if self._gap is not None:
            self._close_resource(self._gap)
            self._gap = None
        self._disconnect_egress()
        return self._set_role(ROLE_FOLLOWER)

    cdef int _set_role(self, int32_t role) except -1:
        cdef int callback = self._lifecycle_callback
        cdef int64_t begin_ns = self._clock.nano_time()
        if role == self._role:
            return 0
        log_event(self._name, "role_changed", role=_ROLE_NAMES[role], former_role=_ROLE_NAMES[self._role],
                  log_position=self._log_position)
        self._role = role
        self._lifecycle_callback = LIFECYCLE_ON_ROLE_CHANGE
        try:
            self._handler.on_role_change(role)
        except Exception as error:
            self._report_with(
                f"on_role_change raised this at logPosition={self._log_position}: the role is {_ROLE_NAMES[role]} "
                "anyway", error)
        finally:
            self._lifecycle_callback = callback
        self._report_if_slow(_LIFECYCLE_NAMES[LIFECYCLE_ON_ROLE_CHANGE], begin_ns)
        return 0

    # --- what is logged

    cdef int _report_sessions(self) except -1:
        if self._opened_count or self._closed_count:
            log_event(self._name, "sessions", open=len(self._sessions), opened=self._opened_count,
                      closed=self._closed_count, log_position=self._log_position)
            self._opened_count = self._closed_count = 0
            self._sessions_reported_ns = self._last_tick_ns
        return 0

    cdef int _report_if_slow(self, str callback, int64_t begin_ns) except -1:
        cdef int64_t duration_ns = self._clock.nano_time() - begin_ns
        if callback and duration_ns >= SLOW_CALLBACK_NS and self._parent_id == 0:
            log_event(self._name, "slow_callback", callback=callback, duration_ms=duration_ns // NS_PER_MS,
                      log_position=self._log_position)
        return 0

    # --- log

    cdef int _poll_log(self) except -1:
        cdef int polled
        try:
            polled = self._log_adapter.poll(self._commit_position())
        except BaseException as error:
            try:
                if self._parent_id != 0 or issubclass(type(error), AgentTermination):
                    raise
                self._skip_event(error)
            except BaseException:
                self.take_loose_ends()          # nothing of them is lost: the event is replayed
                raise
            if self._loose_ends is not None:    # of the callback that raised
                self.report_loose_ends()
            polled = 1
        if self._log_adapter.is_slow:
            self._report_if_slow(self._log_adapter.slow_callback(), self._log_adapter._event_begin_ns)
        self._deliver_batch()                   # also what stands before the frame that is skipped
        return polled

    cdef int _skip_event(self, object error) except -1:
        """Report the event in progress, which raised; raise AgentTermination when it must not be skipped."""
        cdef int event = self._event
        cdef str what = f"{_EVENT_IDS[event]}={self._event_id}"
        cdef int64_t log_position = self._log_position
        self._event = EVENT_NONE
        if event == EVENT_NONE:
            what = f"message={self._log_adapter.event_name()}"
            log_position = max(log_position, self._log_adapter.event_position)
            return self._skip(_EVENT_CALLBACKS[event], log_position, what, {}, error)
        if event == EVENT_SESSION_MESSAGE:
            return self.skip_message(_EVENT_CALLBACKS[event], self._event_id, self._message_length, error)
        return self._skip(
            _EVENT_CALLBACKS[event], log_position, what, {_EVENT_FIELDS[event]: self._event_id}, error)

    cdef int skip_message(self, str name, int64_t cluster_session_id, size_t length, object error) except -1:
        return self._skip(name, self._log_position, f"clusterSessionId={cluster_session_id} messageLength={length}",
                          {"cluster_session_id": cluster_session_id, "message_length": length}, error)

    cdef int _skip(self, str name, int64_t log_position, str what, dict facts, object error) except -1:
        cdef dict known = {
            "callback": name, "log_position": log_position, "cluster_time": self._cluster_time, **facts}
        cdef str where = f"in the event at logPosition={log_position} clusterTime={self._cluster_time} {what}"
        if self._parent_id != 0:
            raise error
        if self._halts_on_error or callback_errors.is_foreign(error):
            termination = AgentTermination(
                f"{name} raised {error_texts.type_name(error)} {where}: this member ends, as without the event its "
                "state could differ from the other members'. It replays the event at its next start: if all members "
                "end here, repair the service on all of them, then start them")
            termination.facts = known
            raise termination from error
        return self._report_with(f"{name} raised this {where}, which this member skips", error, known)

    cdef int report(self, object error) except -1:
        self._on_error(error)
        return 0

    cdef int _report_with(self, str remark, object error, dict facts=None) except -1:
        error_texts.report_with(remark, error, self._on_error, facts)
        return 0

    cdef void set_event(self, int64_t log_position, int64_t timestamp) noexcept:
        self._log_position = log_position
        self._cluster_time = timestamp

    cdef int _begin_event(self, int64_t log_position, int64_t timestamp) except -1:
        self._deliver_batch()
        self.set_event(log_position, timestamp)
        return 0

    cdef int _deliver_batch(self) except -1:
        cdef int64_t begin_ns
        if self._batch is not None:
            begin_ns = self._clock.coarse_nano_time()
            self._batch.deliver()
            if self._clock.coarse_nano_time() - begin_ns >= SLOW_CALLBACK_NS:
                self._report_if_slow("on_session_messages", begin_ns)
        return 0

    cdef int on_session_message(
            self, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
            const uint8_t* payload, size_t length, const FrameHeader* header) except -1:
        if self._batch is not None:
            return self._batch.add(
                self._sessions.get(cluster_session_id), cluster_session_id, log_position, timestamp, payload, length)
        self.set_event(log_position, timestamp)
        self._event = EVENT_SESSION_MESSAGE
        self._event_id = cluster_session_id
        self._message_length = length
        self._handler.on_session_message(
            self._sessions.get(cluster_session_id), timestamp, payload, length, header)
        self._event = EVENT_NONE
        if self._loose_ends is not None:
            self.report_loose_ends()
        return 0

    cdef int on_timer_event(self, int64_t log_position, int64_t correlation_id, int64_t timestamp) except -1:
        self._begin_event(log_position, timestamp)
        self._event = EVENT_TIMER
        self._event_id = correlation_id
        self._handler.on_timer_event(correlation_id, timestamp)
        self._event = EVENT_NONE
        if self._loose_ends is not None:
            self.report_loose_ends()
        return 0

    cdef int on_session_open(
            self, int64_t leadership_term_id, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
            int32_t response_stream_id, str response_channel, bytes encoded_principal) except -1:
        cdef ContainerClientSession session
        self._begin_event(log_position, timestamp)
        if self._sessions.get(cluster_session_id) is not None:
            # The log says so, and so to all members alike.
            self._on_error(ClusterError(f"clashing open clusterSessionId={cluster_session_id} "
                                        f"leadershipTermId={leadership_term_id} logPosition={log_position}"))
            return 0
        self._opened_count += 1
        session = ContainerClientSession(
            self, cluster_session_id, response_stream_id, response_channel, encoded_principal)
        self._sessions.add(session)
        if self._role == ROLE_LEADER and self._is_responding_service:
            self._begin_egress([session])
        self._event = EVENT_SESSION_OPEN
        self._event_id = cluster_session_id
        self._handler.on_session_open(session, timestamp)
        self._event = EVENT_NONE
        if self._loose_ends is not None:
            self.report_loose_ends()
        return 0

    cdef int on_session_close(
            self, int64_t leadership_term_id, int64_t log_position, int64_t cluster_session_id, int64_t timestamp,
            int32_t close_reason) except -1:
        cdef ContainerClientSession session
        self._begin_event(log_position, timestamp)
        session = self._sessions.remove(cluster_session_id)
        if session is None:
            self._on_error(ClusterEvent(
                f"unknown session close: clusterSessionId={cluster_session_id} closeReason={close_reason} "
                f"leadershipTermId={leadership_term_id} logPosition={log_position}"))
            return 0
        self._closed_count += 1
        self._disconnect(session)
        self._event = EVENT_SESSION_CLOSE
        self._event_id = cluster_session_id
        self._handler.on_session_close(session, timestamp, close_reason)
        self._event = EVENT_NONE
        if self._loose_ends is not None:
            self.report_loose_ends()
        return 0

    cdef int on_service_action(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t action,
            int32_t flags) except -1:
        self._begin_event(log_position, timestamp)
        if action == codec.CLUSTER_ACTION_SNAPSHOT and (
                flags == CLUSTER_ACTION_FLAGS_DEFAULT or flags & self._standby_snapshot_flags):
            self._snapshot(log_position, leadership_term_id)
        return 0

    cdef int on_new_leadership_term_event(
            self, int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int64_t term_base_log_position,
            int32_t leader_member_id, int32_t log_session_id, int32_t time_unit, int32_t app_version) except -1:
        self._deliver_batch()
        self._event = EVENT_NEW_LEADERSHIP_TERM
        self._event_id = leadership_term_id
        if not self._context.app_version_validator(self._context.app_version, app_version):
            text = (f"incompatible version: {format_version(self._context.app_version)} "
                    f"log={format_version(app_version)}")
            self._on_error(ClusterError(text))
            raise AgentTermination(text)
        log_event(self._name, "term_began", leadership_term_id=leadership_term_id, leader_member_id=leader_member_id,
                  log_position=log_position)
        codec.session_message_header_put_leadership_term_id(self._session_header, leadership_term_id)
        self._begin_event(log_position, timestamp)
        self._time_unit = time_unit
        self._handler.on_new_leadership_term_event(
            leadership_term_id, log_position, timestamp, term_base_log_position, leader_member_id, log_session_id,
            time_unit, app_version)
        self._event = EVENT_NONE
        if self._loose_ends is not None:
            self.report_loose_ends()
        return 0

    # --- egress

    cdef int _begin_egress(self, list sessions) except -1:
        self._connects.add(sessions, self._clock.nano_time())
        return self._poll_connects()

    cdef int _await_egress(self, ContainerClientSession session) except -1:
        # Do the work of a session, in a callback that uses it; with None, the work of all. Background work would be a
        # surprise in a callback that does not ask to idle.
        cdef int64_t begin_ns, end_ns
        if self._connects.is_overdue():
            return 0
        begin_ns = self._clock.nano_time()
        end_ns = begin_ns + self._connects.wait_limit_ns(begin_ns)
        self._idle_strategy.reset()
        try:
            while self._connects.is_awaited(session) and self._clock.nano_time() < end_ns:
                if self._client.is_invoker():
                    self._invoke_client()
                self._poll_connects()
                if self._connects.is_awaited(session):
                    self._idle(0, session is None)
        finally:
            end_ns = self._clock.nano_time()
            self._connects.waited(session, begin_ns, end_ns)
            self._log_adapter._event_begin_ns += end_ns - begin_ns      # the wait is not the callback's
        return 0

    cdef bint _has_egress(self, ContainerClientSession session) except -1:
        """Whether there is any now, of a session that had none a moment ago."""
        if session._is_connecting:
            self._await_egress(session)
        return session._publication is not None

    cdef int await_egress(self, object session) except -1:
        if self._lifecycle_callback == LIFECYCLE_NONE and this_thread() == self._owner_thread:
            self._await_egress(session)
        return 0

    cdef int _poll_connects(self) except -1:
        cdef list failures = self._connects.poll(self._client, self._clock.nano_time())
        for failure in failures:                # an error handler that idles comes back here
            self._on_error(failure)
        return 0

    cdef int _disconnect(self, ContainerClientSession session) except -1:
        self._close_resource(session._take_pending())
        self._close_resource(session._take_publication())
        return 0

    cdef int _disconnect_egress(self) except -1:
        cdef ContainerClientSession session
        self._connects.clear()
        for session in self._sessions:
            self._disconnect(session)
        return 0

    # --- snapshots

    cdef int _snapshot(self, int64_t log_position, int64_t leadership_term_id) except -1:
        cdef int64_t recording_id = NULL_VALUE
        cdef object failure = None
        cdef str what = f"no snapshot was taken at logPosition={log_position} leadershipTermId={leadership_term_id}"
        cdef str remark = (f"{what}: the state is unchanged, the log continues, and this member's next start replays "
                           "from the snapshot before. Repair the cause, then have a snapshot taken again")
        cdef int64_t begin_ns = self._clock.nano_time()
        log_event(self._name, "snapshot_begun", log_position=log_position, leadership_term_id=leadership_term_id)
        self._snapshot_duration_tracker.begin(begin_ns)
        try:
            recording_id = self._take_snapshot(log_position, leadership_term_id)
        except BaseException as error:
            if self._parent_id != 0:
                raise
            failure = error
        finally:
            self._snapshot_duration_tracker.end(self._clock.nano_time())
        if failure is None:
            log_event(self._name, "snapshot_taken", log_position=log_position, leadership_term_id=leadership_term_id,
                      recording_id=recording_id, bytes=self._snapshot_length,
                      duration_ms=(self._clock.nano_time() - begin_ns) // NS_PER_MS)
        else:
            log_event(self._name, "snapshot_failed", log_position=log_position, leadership_term_id=leadership_term_id,
                      duration_ms=(self._clock.nano_time() - begin_ns) // NS_PER_MS)
        try:
            self._ack(log_position, recording_id)
        except BaseException:
            if not isinstance(failure, AgentTermination):
                if failure is not None:
                    self._report_with(remark, failure)
                raise
        if failure is None:
            return 0
        if isinstance(failure, ArchiveError) and failure.code == ArchiveError.STORAGE_SPACE:
            raise AgentTermination(
                f"the archive is out of storage space: {failure}; {what}, and this member ends: free space on the disk "
                "of its archive, start it again, then have a snapshot taken") from failure
        if not isinstance(failure, Exception):
            self._event = EVENT_TAKE_SNAPSHOT
            self._event_id = leadership_term_id
            raise failure
        return self._report_with(remark, failure)

    cdef int64_t _take_snapshot(self, int64_t log_position, int64_t leadership_term_id) except? -1:
        cdef SnapshotWriter writer = self._snapshot_store.create(self._cluster_idle)
        cdef SnapshotPublication publication
        cdef RecordingWait waiting
        cdef SnapshotTaker taker
        cdef list lost
        cdef int32_t app_version = self._context.app_version
        # Without a term before it, the unit is not known: then null is written, which a loader takes for milliseconds.
        cdef int32_t time_unit = self._time_unit if self._time_unit != NULL_VALUE else sbe.SBE_NULL_INT32
        try:
            taker = SnapshotTaker(writer, self)
            taker.mark(codec.SNAPSHOT_MARK_BEGIN, log_position, leadership_term_id, time_unit, app_version)
            taker.write_sessions(self._sessions)
            taker.mark(codec.SNAPSHOT_MARK_END, log_position, leadership_term_id, time_unit, app_version)
            self._tick(self._clock.nano_time())
            writer.check()
            publication = SnapshotPublication(writer, self)
            self._lifecycle_callback = LIFECYCLE_ON_TAKE_SNAPSHOT
            try:
                self._handler.on_take_snapshot(publication)
            finally:
                self._lifecycle_callback = LIFECYCLE_NONE
                publication._end()
                lost = self.take_loose_ends()
            if lost:
                raise SnapshotError("; ".join(lost))
            waiting = RecordingWait(writer, self, f"the archive to finish snapshot recording {writer.recording_id}")
            while not writer.is_complete():
                waiting.turn()
            self._snapshot_length = writer.publication.position()
            return writer.recording_id
        finally:
            writer.close()

    # --- what services, sessions, batches and snapshots call

    cdef Clock clock(self):
        return self._clock

    cdef WaitReporter _wait_for(self, str what):
        return WaitReporter(self._clock, self._name, what)

    cdef int64_t now_ns(self) noexcept:
        return self._clock.nano_time()

    cdef int64_t get_log_position(self) noexcept:
        return self._log_position

    cdef int64_t get_cluster_time(self) noexcept:
        return self._cluster_time

    cdef int get_member_id(self) noexcept:
        return self._member_id

    cdef int get_role(self) noexcept:
        return self._role

    cdef int get_time_unit(self) noexcept:
        return self._time_unit

    cdef object get_context(self):
        own = self._context.service_context
        return self._context if own is None else own

    cdef object get_aeron(self):
        return self._client

    cdef object find_session(self, int64_t cluster_session_id):
        return self._sessions.get(cluster_session_id)

    cdef list list_sessions(self):
        return list(self._sessions)

    cdef int check_interrupted(self) except -1:
        if self._is_interrupted:
            raise AgentInterrupted("interrupted")
        return 0

    cdef int idle_once(self, int work_count) except -1:
        """Raise AgentTermination and nothing else: what idles is in the middle of something.

        On another thread than the agent's: ClusterError.
        """
        return self._idle(work_count, True)

    cdef int _idle(self, int work_count, bint works_in_background) except -1:
        cdef int64_t now_ns
        if this_thread() != self._owner_thread and self._owner_thread != 0:
            self._refuse_invocation()
        try:
            self._idle_strategy.idle(work_count)
            if work_count > 0:
                return 0
            self.check_interrupted()
            now_ns = self._clock.nano_time()
            self._tick(now_ns)
            if self._is_service_active and works_in_background:
                self._background_work(now_ns)
        except BaseException as error:
            self._end_for(error, "idled")
        return 0

    cdef int _end_for(self, object error, str doing) except -1:
        # In the middle of a callback nothing but an end may come from the other parts.
        if self._parent_id != 0 or isinstance(error, AgentTermination):
            raise error
        raise AgentTermination(f"{type(error).__name__} while the agent {doing}: {error}") from error

    cdef inline int _check_valid_invocation(self) except -1:
        if self._lifecycle_callback != LIFECYCLE_NONE or this_thread() != self._owner_thread:
            self._refuse_invocation()
        return 0

    cdef int _refuse_invocation(self) except -1:
        self._check_process()
        if self._lifecycle_callback != LIFECYCLE_NONE:
            raise ClusterError("sending messages or scheduling timers is not allowed from "
                               f"{_LIFECYCLE_NAMES[self._lifecycle_callback]}")
        raise ClusterError("a cluster or a session was used on another thread than the agent's; hand the work "
                           "over to the service and let a callback do it")

    cdef int64_t session_offer(self, object session, BufferVector* vectors, size_t count) except? -6:
        cdef PyObject* publication = <PyObject*> (<ContainerClientSession> session)._publication   # borrowed
        cdef int64_t result
        cdef size_t length = 0
        cdef size_t index
        self._check_valid_invocation()
        for index in range(1, count):
            length += vectors[index].length
        if length > (<ContainerClientSession> session)._max_length:
            raise MessageTooLongError(
                f"a message of {length} bytes to session {(<ContainerClientSession> session).id}: its channel carries "
                f"at most {(<ContainerClientSession> session)._max_length} bytes; send it in parts")
        if self._role != ROLE_LEADER:
            return MOCKED_OFFER
        if publication == <PyObject*> None:
            if not self._has_egress(session):
                return NOT_CONNECTED
            publication = <PyObject*> (<ContainerClientSession> session)._publication
        if SESSION_HEADER_LENGTH + length > <size_t> (<Publication> publication).max_message_length:
            return self._report_too_long(session, length, (<Publication> publication).max_message_length)
        self._put_session((<ContainerClientSession> session).id)
        vectors[0].data = self._session_header
        vectors[0].length = SESSION_HEADER_LENGTH
        self._sends += 1
        result = (<Publication> publication).offer_vectors(vectors, count)
        if result == BACK_PRESSURED and self._session_makes_room():
            result = (<Publication> publication).offer_vectors(vectors, count)
        return result

    cdef bint _session_makes_room(self) except -1:
        # Not at each refusal: a client that does not read makes no room.
        cdef int attempts = 0
        return self._sends >= SENDS_BETWEEN_TURNS and self._makes_room(&attempts)

    cdef bint _makes_room(self, int* attempts) except -1:
        # A turn takes many messages. Where all parts share its thread, nobody else reads what the service sends, or
        # makes room for more, until it ends.
        if attempts[0] >= ROOM_ATTEMPTS:
            return False
        attempts[0] += 1
        self._sends = 0
        try:
            return self._idle_strategy.run_others()
        except BaseException as error:
            self._end_for(error, "sent")

    cdef int64_t _report_too_long(self, ContainerClientSession session, size_t length, int32_t limit) except? -6:
        # The other members cannot know this driver's sizes: an exception here would make their services differ.
        self._on_error(ClusterEvent(
            f"a message of {length} bytes to session {session.id} at logPosition={self._log_position} is dropped: "
            f"{limit - SESSION_HEADER_LENGTH} bytes fit its channel {session.response_channel} with this driver's "
            "term length and MTU; send it in parts, or give the client's egress channel a longer term-length (or mtu, "
            "for a claim)", category=Category.ERROR))
        return CLOSED

    cdef inline void _put_session(self, int64_t cluster_session_id) noexcept:
        codec.session_message_header_put_cluster_session_id(self._session_header, cluster_session_id)
        codec.session_message_header_put_timestamp(self._session_header, self._cluster_time)

    cdef int64_t session_try_claim(
            self, object session, Publication publication, Py_ssize_t length, BufferClaim buffer_claim) except? -6:
        cdef Claim claim
        cdef int64_t result
        self._check_valid_invocation()
        buffer_claim._check_free()
        if not 0 <= length <= (<ContainerClientSession> session)._max_claim_length:
            raise ValueError(f"a claim of {length} bytes: it must be 0 to "
                             f"{(<ContainerClientSession> session)._max_claim_length}, what fits one frame")
        if self._role != ROLE_LEADER:
            buffer_claim._wrap(None, NULL, 0, length)
            self.keep_claim(buffer_claim, (<ContainerClientSession> session).id)
            return MOCKED_OFFER
        if publication is None:
            if not self._has_egress(session):
                return NOT_CONNECTED
            publication = (<ContainerClientSession> session)._publication
        if SESSION_HEADER_LENGTH + length > publication.max_payload_length:
            return self._report_too_long(session, length, publication.max_payload_length)
        self._sends += 1
        result = publication.try_claim(SESSION_HEADER_LENGTH + length, &claim)
        if result == BACK_PRESSURED and self._session_makes_room():
            result = publication.try_claim(SESSION_HEADER_LENGTH + length, &claim)
        if result > 0:
            self._put_session((<ContainerClientSession> session).id)
            memcpy(claim.data, self._session_header, sizeof(self._session_header))
            buffer_claim._wrap(publication, &claim, SESSION_HEADER_LENGTH, length)
            self.keep_claim(buffer_claim, (<ContainerClientSession> session).id)
        return result

    cdef int64_t offer_vectors(self, BufferVector* vectors, size_t count) except? -6:
        cdef int64_t result
        cdef int attempts = 0
        self._check_valid_invocation()
        codec.session_message_header_put_cluster_session_id(self._session_header, self._service_id)
        vectors[0].data = self._session_header
        vectors[0].length = SESSION_HEADER_LENGTH
        result = self._proxy.offer_vectors(vectors, count)
        while result == BACK_PRESSURED and self._makes_room(&attempts):
            result = self._proxy.offer_vectors(vectors, count)
        return result

    cdef int64_t claim(self, Py_ssize_t length, BufferClaim buffer_claim) except? -6:
        cdef Claim claim
        cdef int64_t result
        cdef int attempts = 0
        cdef Py_ssize_t limit
        self._check_valid_invocation()
        buffer_claim._check_free()
        if length < 0:
            raise ValueError(f"a claim of {length} bytes: it must not be negative")
        limit = self._proxy.publication().max_payload_length - SESSION_HEADER_LENGTH
        if length > limit:
            raise MessageTooLongError(
                f"a claim of {length} bytes is longer than the max_payload_length of {limit} bytes; a claim is one "
                "frame: offer it instead")
        result = self._proxy.try_claim(SESSION_HEADER_LENGTH + length, &claim)
        while result == BACK_PRESSURED and self._makes_room(&attempts):
            result = self._proxy.try_claim(SESSION_HEADER_LENGTH + length, &claim)
        if result > 0:
            codec.session_message_header_put_cluster_session_id(self._session_header, self._service_id)
            memcpy(claim.data, self._session_header, sizeof(self._session_header))
            buffer_claim._wrap(self._proxy.publication(), &claim, SESSION_HEADER_LENGTH, length)
            self.keep_claim(buffer_claim, NULL_VALUE)
        return result

    cdef bint send_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1:
        cdef int attempts = 0
        self._check_valid_invocation()
        if correlation_id == INT64_MAX or deadline == INT64_MAX:
            raise ValueError(f"schedule_timer({correlation_id}, {deadline}): 2**63 - 1 is not a correlation id and no "
                             "deadline, the consensus module uses it for 'none'")
        while not self._proxy.schedule_timer(correlation_id, deadline):
            if not self._makes_room(&attempts):
                return self.request_failed("schedule_timer", correlation_id)
        if self._loose_ends is not None:
            self.request_sent("schedule_timer", correlation_id)
        return True

    cdef bint send_cancel_timer(self, int64_t correlation_id) except -1:
        cdef int attempts = 0
        self._check_valid_invocation()
        while not self._proxy.cancel_timer(correlation_id):
            if not self._makes_room(&attempts):
                return self.request_failed("cancel_timer", correlation_id)
        if self._loose_ends is not None:
            self.request_sent("cancel_timer", correlation_id)
        return True

    cdef int close_session(self, object session) except -1:
        cdef int64_t cluster_session_id = (<ContainerClientSession> session).id
        self._check_valid_invocation()
        if self._sessions.get(cluster_session_id) is not None:
            self.close_session_by_id(cluster_session_id)
        return 0

    cdef bint close_session_by_id(self, int64_t cluster_session_id) except -1:
        cdef ContainerClientSession session
        cdef int _attempt
        self._check_valid_invocation()
        session = self._sessions.get(cluster_session_id)
        if session is None:
            raise ClusterError(f"unknown clusterSessionId: {cluster_session_id}")
        if session.is_closing:
            return True
        for _attempt in range(CLOSE_SESSION_ATTEMPTS):
            if self._proxy.close_session(cluster_session_id):
                session._mark_closing(True)
                if self._loose_ends is not None:
                    self.request_sent("close_client_session", cluster_session_id)
                return True
            self.idle_once(0)
        return self.request_failed("close_client_session", cluster_session_id)


seal((ClusterIdleStrategy, ClusteredServiceAgent))
