"""The consensus module's side of a member, played by a test: one line for each thing that it says.

::

    driver = MemoryDriver()
    cm = ScriptedConsensusModule(driver)
    cm.start()                                  # the counters that a starting service waits for
    agent.on_start()
    cm.join_as_leader()
    cm.open_session(1)
    cm.session_message(1, b"hello")
    cm.commit()
    cm.run(agent.do_work, until=lambda: cm.egress(1))
    assert cm.acks[0] == ServiceAck(log_position=0, timestamp=0, ack_id=0, relevant_id=..., service_id=0)

It writes raw Aeron frames through a :class:`~container.testing.memory.memory_transport.MemoryDriver` and checks
nothing: what the service sent is there to be looked at, in the order in which it came. The log is written
without back pressure, and before anyone reads it if you like; positions continue from one log to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from container.api import CloseReason, Role, TimeUnit
from container.common.aeron_defaults import (
    CONSENSUS_MODULE_STREAM_ID,
    CONTROL_CHANNEL,
    EGRESS_STREAM_ID,
    LOG_STREAM_ID,
    REPLAY_STREAM_ID,
    SERVICE_STREAM_ID,
    CounterType,
)
from container.errors import ContainerError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.memory.scripted_messages import (
    SCHEMA_VERSION,
    CancelTimer,
    CloseSession,
    ClusterAction,
    ClusterMembersQuery,
    ScheduleTimer,
    ServiceAck,
    ServiceMessage,
    SessionMessage,
    UnknownMessage,
    decode_service_message,
    encode,
    service_session_id,
)
from container.transport.counters import Counter
from container.transport.fragment_assembler import SessionFragmentAssembler
from container.transport.streams import Publication, Subscription

__all__ = [
    "CancelTimer",
    "CloseSession",
    "ClusterAction",
    "ClusterMembersQuery",
    "ScheduleTimer",
    "ScriptError",
    "ScriptedConsensusModule",
    "ServiceAck",
    "ServiceMessage",
    "SessionMessage",
    "UnknownMessage",
]

NULL_VALUE = -1
MAX_POSITION = 2**63 - 1
FRAGMENT_LIMIT = 1_000


class ScriptError(ContainerError):
    """The script asks for something that cannot be done now, or what it waits for did not happen."""


class ScriptedConsensusModule:
    """A consensus module that follows a script; ``client`` (MemoryClient) is its connection to ``driver``.

    ``leadership_term_id``, ``timestamp`` (the cluster time of what is logged next) and ``member_id`` may be
    set at any time. ``log_position`` is where the log begins.
    """

    def __init__(
        self,
        driver: MemoryDriver,
        *,
        cluster_id: int = 0,
        member_id: int = 0,
        log_position: int = 0,
        leadership_term_id: int = 0,
        timestamp: int = 1_000,
        control_channel: str = CONTROL_CHANNEL,
        service_stream_id: int = SERVICE_STREAM_ID,
        consensus_module_stream_id: int = CONSENSUS_MODULE_STREAM_ID,
        log_term_length: int = 64 * 1024,
        log_initial_term_id: int = 5,
        log_mtu_length: int = 1408,
    ) -> None:
        self.driver = driver
        self.client: MemoryClient = driver.connect("consensus-module", is_invoker=False)
        self.cluster_id = cluster_id
        self.member_id = member_id
        self.leadership_term_id = leadership_term_id
        self.timestamp = timestamp
        self.received: list[ServiceMessage] = []
        self.commit_counter: Counter | None = None
        self.recovery_counter: Counter | None = None
        self.log: MemoryLog | None = None
        self.log_publication: Publication | None = None
        self._log_channel = ""
        self._next_log_position = log_position
        self._next_tag = 1
        self._log_shape = {
            "term_length": log_term_length,
            "initial_term_id": log_initial_term_id,
            "mtu_length": log_mtu_length,
        }
        self._control: Publication = seam.add_publication(self.client, control_channel, service_stream_id)
        self._from_service = _Inbox(seam.add_subscription(self.client, control_channel, consensus_module_stream_id))
        self._egress: dict[tuple[str, int], _Inbox] = {}
        self._session_egress: dict[int, tuple[str, int]] = {}

    def close(self) -> None:
        """The consensus module goes away: counters, log and control streams with it. May be called twice."""
        self.client.close()

    # Counters

    def start(
        self,
        *,
        recording_ids: Sequence[int] = (),
        leadership_term_id: int = NULL_VALUE,
        log_position: int | None = None,
        timestamp: int = 0,
    ) -> None:
        """Create both counters that a service waits for.

        With ``recording_ids``, one for each service, it starts from snapshots that were taken in
        ``leadership_term_id`` at ``log_position`` (where the log is now, unless given) and ``timestamp``.
        """
        self.add_commit_counter()
        self.add_recovery_counter(
            recording_ids=recording_ids,
            leadership_term_id=leadership_term_id,
            log_position=log_position,
            timestamp=timestamp,
        )

    def add_commit_counter(self, *, value: int | None = None, cluster_id: int | None = None) -> Counter:
        """The commit position counter (type 203), at ``value`` or where the log begins.

        That of another ``cluster_id`` is only returned; :meth:`commit` does not move it.
        """
        of_cluster = self.cluster_id if cluster_id is None else cluster_id
        counter: Counter = seam.add_counter(
            self.client,
            CounterType.COMMIT_POSITION,
            _int32(of_cluster),
            f"Cluster commit-pos: - clusterId={of_cluster}",
        )
        seam.set_counter(counter, self._next_log_position if value is None else value)
        if cluster_id in (None, self.cluster_id):
            self.commit_counter = counter
        return counter

    def add_recovery_counter(
        self,
        *,
        recording_ids: Sequence[int] = (),
        leadership_term_id: int = NULL_VALUE,
        log_position: int | None = None,
        timestamp: int = 0,
        cluster_id: int | None = None,
    ) -> Counter:
        """The recovery state counter (type 204); the arguments are those of :meth:`start`."""
        of_cluster = self.cluster_id if cluster_id is None else cluster_id
        position = self._next_log_position if log_position is None else log_position
        key = b"".join(
            (
                _int64(leadership_term_id),
                _int64(position),
                _int64(timestamp),
                _int32(of_cluster),
                _int32(len(recording_ids)),
                *(_int64(recording_id) for recording_id in recording_ids),
            )
        )
        label = f"Cluster recovery: leadershipTermId={leadership_term_id} logPosition={position} clusterId={of_cluster}"
        counter: Counter = seam.add_counter(self.client, CounterType.RECOVERY_STATE, key, label)
        if cluster_id in (None, self.cluster_id):
            self.recovery_counter = counter
        return counter

    def remove_commit_counter(self) -> None:
        """The commit position counter goes away, as when the consensus module dies."""
        if self.commit_counter is not None:
            self.commit_counter.close()
            self.commit_counter = None

    def remove_recovery_counter(self) -> None:
        """The recovery state counter goes away, as after the first acks."""
        if self.recovery_counter is not None:
            self.recovery_counter.close()
            self.recovery_counter = None

    # Control stream

    def join_as_leader(self, *, is_startup: bool = False, ipc: bool = False, **join_log: Any) -> None:
        """Begin a log and tell the service to follow it as leader: by a spy, or over IPC with ``ipc``."""
        self.begin_log("ipc" if ipc else "leader")
        self.join_log(role=Role.LEADER, is_startup=is_startup, **join_log)

    def join_as_follower(self, **join_log: Any) -> None:
        """Begin a log that comes from another member and tell the service to follow it."""
        self.begin_log("follower")
        self.join_log(role=Role.FOLLOWER, **join_log)

    def begin_replay(self) -> None:
        """Begin a log to be replayed; write its content, then call :meth:`join_replay`."""
        self.begin_log("replay")

    def join_replay(self, **join_log: Any) -> None:
        """Tell the service to replay the log begun with :meth:`begin_replay` up to its end."""
        fields = {"is_startup": True, "max_log_position": self.log_position} | join_log
        self.join_log(role=Role.FOLLOWER, **fields)

    def join_log(
        self,
        *,
        role: int,
        log_position: int | None = None,
        max_log_position: int = MAX_POSITION,
        is_startup: bool = False,
        is_standby: bool | None = False,
        log_channel: str | None = None,
        log_session_id: int | None = None,
        log_stream_id: int | None = None,
        version: int = SCHEMA_VERSION,
    ) -> None:
        """Send JoinLog (40) for the log begun last; what is given stands in for what is right."""
        log = self._require_log()
        self.control_message(
            encode(
                "JoinLog",
                version,
                log_position=log.start_position if log_position is None else log_position,
                max_log_position=max_log_position,
                member_id=self.member_id,
                log_session_id=log.session_id if log_session_id is None else log_session_id,
                log_stream_id=log.stream_id if log_stream_id is None else log_stream_id,
                is_startup=int(is_startup),
                role=role,
                is_standby=None if is_standby is None else int(is_standby),
                log_channel=self._log_channel if log_channel is None else log_channel,
            )
        )

    def termination_position(
        self,
        log_position: int | None = None,
        *,
        ack_required: bool | None = None,
        version: int = SCHEMA_VERSION,
    ) -> None:
        """Send ServiceTerminationPosition (42), for the end of the log unless given.

        Only version 17 has ``ack_required``, where None is its null value; a 1.51.0 node sends 16.
        """
        self.control_message(
            encode(
                "ServiceTerminationPosition",
                version,
                log_position=self.log_position if log_position is None else log_position,
                ack_required=ack_required,
            )
        )

    def request_service_ack(self, log_position: int | None = None) -> None:
        """Send RequestServiceAck (108), for the end of the log unless given."""
        position = self.log_position if log_position is None else log_position
        self.control_message(encode("RequestServiceAck", log_position=position))

    def control_message(self, message: bytes) -> None:
        """Send any bytes to the services; raise ScriptError when nobody takes them."""
        result = seam.offer(self._control, message)
        while seam.result_name(result) == "ADMIN_ACTION":
            result = seam.offer(self._control, message)
        if result < 0:
            raise ScriptError(f"not sent to {self._control!r}: {seam.result_name(result)}; does the service subscribe?")

    # Log

    def begin_log(self, kind: str) -> MemoryLog:
        """A new log where the one before ends, which is ended; channels are those that a 1.51.0 node uses.

        Kinds are ``leader`` (UDP, read through a spy), ``ipc``, ``follower`` and ``replay``.
        """
        position = self.log_position
        self.end_log()
        session_id = seam.next_session_id(self.client, LOG_STREAM_ID)
        stream_id = REPLAY_STREAM_ID if kind == "replay" else LOG_STREAM_ID
        published, self._log_channel = _log_channels(kind, self._next_tag, session_id)
        self._next_tag += 2
        self.log = MemoryLog(session_id=session_id, stream_id=stream_id, start_position=position, **self._log_shape)
        self.log_publication = self.client.publish_log(self.log, published)
        return self.log

    def end_log(self, log_position: int | None = None) -> None:
        """The log's publication closes: its image comes to the end of the stream.

        The next log begins where this one ends, or at ``log_position``: what is behind that was never committed.
        """
        if self.log_publication is not None:
            self._next_log_position = self.log_position
            self.log_publication.close()
            self.log_publication = None
        if log_position is not None:
            self._next_log_position = log_position

    def lose_log(self, log_position: int | None = None) -> None:
        """The log's publication closes, and its images go away, whether they are read to the end or not.

        The next log begins where this one ends, or at ``log_position``: what is behind that was never committed.
        """
        session_id = self._require_log().session_id
        self.end_log(log_position)
        self.driver.give_up_images(session_id)

    @property
    def log_position(self) -> int:
        """Where the log ends now, in bytes."""
        if self.log_publication is None or self.log is None:
            return self._next_log_position
        return self.log.tail_position

    @property
    def commit_position(self) -> int:
        """The commit position counter's value; -1 when there is no counter."""
        return NULL_VALUE if self.commit_counter is None else self.commit_counter.value

    def commit(self, log_position: int | None = None) -> int:
        """Move the commit position to the end of the log, or to ``log_position``; the position."""
        position = self.log_position if log_position is None else log_position
        if self.commit_counter is None:
            raise ScriptError("there is no commit position counter: call start() or add_commit_counter() first")
        seam.set_counter(self.commit_counter, position)
        return position

    def log_message(self, message: bytes) -> int:
        """Append any bytes to the log; its position after them."""
        return self._require_log().append(message)

    def session_message(self, cluster_session_id: int, payload: bytes, *, timestamp: int | None = None) -> int:
        """Log a client's message: SessionMessageHeader (1) and payload; the log position after it."""
        header = encode(
            "SessionMessageHeader",
            leadership_term_id=self.leadership_term_id,
            cluster_session_id=cluster_session_id,
            timestamp=self._time(timestamp),
        )
        return self.log_message(header + payload)

    def service_message(self, service_id: int, message_id: int, payload: bytes) -> int:
        """Log a message that a service sent to the cluster; the log position after it."""
        return self.session_message(service_session_id(service_id, message_id), payload)

    def open_session(
        self,
        cluster_session_id: int,
        *,
        response_channel: str | None = None,
        response_stream_id: int = EGRESS_STREAM_ID,
        encoded_principal: bytes = b"",
        correlation_id: int | None = None,
        timestamp: int | None = None,
        connect_egress: bool = True,
    ) -> int:
        """Log SessionOpenEvent (21) and subscribe to the session's egress (``connect_egress``).

        Without a ``response_channel`` each session has a UDP endpoint of its own. Return the log position.
        """
        if response_channel is None:
            response_channel = f"aeron:udp?endpoint=localhost:{20_000 + cluster_session_id}"
        if connect_egress:
            self.connect_egress(cluster_session_id, response_channel, response_stream_id)
        return self.log_message(
            encode(
                "SessionOpenEvent",
                leadership_term_id=self.leadership_term_id,
                correlation_id=1_000 + cluster_session_id if correlation_id is None else correlation_id,
                cluster_session_id=cluster_session_id,
                timestamp=self._time(timestamp),
                response_stream_id=response_stream_id,
                response_channel=response_channel,
                encoded_principal=encoded_principal,
            )
        )

    def close_session(
        self,
        cluster_session_id: int,
        close_reason: int = CloseReason.CLIENT_ACTION,
        *,
        timestamp: int | None = None,
    ) -> int:
        """Log SessionCloseEvent (22); the log position after it."""
        return self.log_message(
            encode(
                "SessionCloseEvent",
                leadership_term_id=self.leadership_term_id,
                cluster_session_id=cluster_session_id,
                timestamp=self._time(timestamp),
                close_reason=close_reason,
            )
        )

    def timer_event(self, correlation_id: int, *, timestamp: int | None = None) -> int:
        """Log TimerEvent (20); the log position after it."""
        return self.log_message(
            encode(
                "TimerEvent",
                leadership_term_id=self.leadership_term_id,
                correlation_id=correlation_id,
                timestamp=self._time(timestamp),
            )
        )

    def cluster_action(
        self,
        action: int,
        *,
        flags: int | None = 0,
        log_position: int | None = None,
        timestamp: int | None = None,
        version: int = SCHEMA_VERSION,
    ) -> int:
        """Log ClusterActionRequest (23), which names its own end position unless given; the log position."""
        return self._log_with_end_position(
            log_position,
            lambda position: encode(
                "ClusterActionRequest",
                version,
                leadership_term_id=self.leadership_term_id,
                log_position=position,
                timestamp=self._time(timestamp),
                action=action,
                flags=flags,
            ),
        )

    def snapshot(self, *, flags: int | None = 0, timestamp: int | None = None) -> int:
        """Log the action that has a snapshot taken; the log position after it, the snapshot's own."""
        return self.cluster_action(ClusterAction.SNAPSHOT, flags=flags, timestamp=timestamp)

    def new_leadership_term(
        self,
        leadership_term_id: int | None = None,
        *,
        leader_member_id: int | None = None,
        log_position: int | None = None,
        term_base_log_position: int | None = None,
        log_session_id: int | None = None,
        time_unit: int | None = TimeUnit.MILLIS,
        app_version: int | None = 1,
        timestamp: int | None = None,
        version: int = SCHEMA_VERSION,
    ) -> int:
        """Log NewLeadershipTermEvent (24), of the next term unless given; the log position after it."""
        log = self._require_log()
        self.leadership_term_id = self.leadership_term_id + 1 if leadership_term_id is None else leadership_term_id
        base = log.tail_position if term_base_log_position is None else term_base_log_position
        return self._log_with_end_position(
            log_position,
            lambda position: encode(
                "NewLeadershipTermEvent",
                version,
                leadership_term_id=self.leadership_term_id,
                log_position=position,
                timestamp=self._time(timestamp),
                term_base_log_position=base,
                leader_member_id=self.member_id if leader_member_id is None else leader_member_id,
                log_session_id=log.session_id if log_session_id is None else log_session_id,
                time_unit=time_unit,
                app_version=app_version,
            ),
        )

    def membership_change(self) -> int:
        """Log MembershipChangeEvent (25), which services skip; return the log position after it."""
        return self._log_with_end_position(
            None,
            lambda position: encode(
                "MembershipChangeEvent",
                leadership_term_id=self.leadership_term_id,
                log_position=position,
                timestamp=self.timestamp,
                leader_member_id=self.member_id,
                cluster_size=3,
                change_type=0,
                member_id=self.member_id,
                cluster_members="0,a:1,a:2,a:3,a:4,a:5",
            ),
        )

    # Messages of the service

    def poll(self) -> list[ServiceMessage]:
        """Messages of the service since the last look; they are added to ``received``."""
        news = self._from_service.take()
        self.received.extend(news)
        return news

    @property
    def acks(self) -> list[ServiceAck]:
        """All acks received so far, oldest first."""
        return self._received(ServiceAck)

    @property
    def scheduled_timers(self) -> list[ScheduleTimer]:
        """All timers that the service scheduled, oldest first."""
        return self._received(ScheduleTimer)

    @property
    def cancelled_timers(self) -> list[CancelTimer]:
        """All timers that the service cancelled, oldest first."""
        return self._received(CancelTimer)

    @property
    def close_requests(self) -> list[CloseSession]:
        """All sessions that the service asked to close, oldest first."""
        return self._received(CloseSession)

    @property
    def service_messages(self) -> list[SessionMessage]:
        """All messages that the service sent to the cluster; their session id is the service's id."""
        return self._received(SessionMessage)

    def connect_egress(
        self, cluster_session_id: int, response_channel: str, response_stream_id: int = EGRESS_STREAM_ID
    ) -> None:
        """Subscribe to where a session gets its answers, as its client does."""
        key = (response_channel, response_stream_id)
        self._session_egress[cluster_session_id] = key
        if key not in self._egress:
            self._egress[key] = _Inbox(seam.add_subscription(self.client, *key))

    def disconnect_egress(self, cluster_session_id: int) -> None:
        """The session's client is gone; a subscription that it shared with other sessions stays."""
        key = self._session_egress.pop(cluster_session_id)
        if key not in self._session_egress.values():
            self._egress.pop(key).subscription.close()

    def egress(self, cluster_session_id: int) -> list[SessionMessage]:
        """Messages that a session has received, oldest first; raises ScriptError when nobody listens for it."""
        if cluster_session_id not in self._session_egress:
            raise ScriptError(f"nobody listens for session {cluster_session_id}: call open_session or connect_egress")
        inbox = self._egress[self._session_egress[cluster_session_id]]
        inbox.take()
        return [
            message
            for message in inbox.messages
            if isinstance(message, SessionMessage) and message.cluster_session_id == cluster_session_id
        ]

    def take_egress(self) -> list[SessionMessage]:
        """Take the messages that all sessions received since the last look; :meth:`egress` no longer has them."""
        news: list[SessionMessage] = []
        for inbox in self._egress.values():
            news += [message for message in inbox.take() if isinstance(message, SessionMessage)]
            inbox.messages.clear()
        return news

    def run(
        self,
        do_work: Callable[[], object],
        *,
        until: Callable[[], object],
        what: str = "",
        cycles: int = 1_000,
    ) -> int:
        """Call ``do_work`` until ``until`` is true, at most ``cycles`` times; how often it was called.

        Raise ScriptError, which names ``what`` was waited for, when it is still not true then.
        """
        for cycle in range(cycles):
            if until():
                return cycle
            do_work()
        if until():
            return cycles
        raise ScriptError(f"did not happen within {cycles} duty cycles: {what or repr(until)}")

    def forget_received(self) -> None:
        """Forget what the service sent so far, as a test does that runs for long."""
        self.received.clear()
        self._from_service.messages.clear()

    def _received[T](self, kind: type[T]) -> list[T]:
        self.poll()
        return [message for message in self.received if isinstance(message, kind)]

    def _require_log(self) -> MemoryLog:
        if self.log is None or self.log_publication is None:
            raise ScriptError("there is no log: call join_as_leader(), join_as_follower() or begin_replay() first")
        return self.log

    def _time(self, timestamp: int | None) -> int:
        return self.timestamp if timestamp is None else timestamp

    def _log_with_end_position(self, log_position: int | None, message: Callable[[int], bytes]) -> int:
        log = self._require_log()
        if log_position is None:
            log_position = log.position_after(len(message(0)))
        return self.log_message(message(log_position))

    def __repr__(self) -> str:
        return (
            f"<ScriptedConsensusModule log_position={self.log_position} "
            f"commit_position={self.commit_position} received={len(self.received)}>"
        )


class _Inbox:
    """The messages that come in on a subscription, put together again."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.messages: list[ServiceMessage] = []
        self._handler = seam.CollectingHandler()
        self._assembler = SessionFragmentAssembler(self._handler)

    def take(self) -> list[ServiceMessage]:
        """Messages received since the last look; they are added to ``messages``."""
        empty_polls = 0
        while empty_polls < 2:  # a poll of padding alone delivers nothing: the next one continues
            fragments = seam.poll_with(self.subscription, self._assembler, FRAGMENT_LIMIT)
            empty_polls = 0 if fragments else empty_polls + 1
        news = [decode_service_message(data) for data, _header in self._handler.messages]
        self._handler.messages.clear()
        self.messages.extend(news)
        return news


def _log_channels(kind: str, tag: int, session_id: int) -> tuple[str, str]:
    """The channel on which a log is published, and the one that JoinLog names."""
    if kind == "leader":
        published = f"aeron:udp?tags={tag}|session-id={session_id}|alias=log|control-mode=manual"
        return published, f"aeron-spy:aeron:udp?tags={tag}|session-id={session_id}|alias=log"
    if kind == "ipc":
        published = f"aeron:ipc?tags={tag}|session-id={session_id}|alias=log"
        return published, published
    if kind == "follower":
        published = f"aeron:udp?tags={tag}|session-id={session_id}|alias=log|control-mode=manual"
        return published, (
            f"aeron:udp?tags={tag},{tag + 1}|control-mode=manual|session-id={session_id}|alias=log-cm|"
            "group=true|rejoin=false"
        )
    if kind == "replay":
        channel = f"aeron:ipc?session-id={session_id}"
        return channel, channel
    raise ScriptError(f"unknown kind of log {kind!r}: known are leader, ipc, follower and replay")


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)
