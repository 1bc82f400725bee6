"""The interface of a replicated service: subclass :class:`ClusteredService`, call :class:`Cluster` from callbacks.

This module is the manual of the interface. It is plain Python and imports nothing compiled: you can write, read and
type-check a service anywhere. ``pydoc`` lists its classes by name. Read the rules here first, then one class at a time:

- ``python -m pydoc container.ClusteredService``: the callbacks; when each runs, and on which members
- ``python -m pydoc container.Cluster``: time, timers, sessions and messages, for callbacks
- ``python -m pydoc container.ClientSession``: a client, and how it is answered
- ``python -m pydoc container.SnapshotPublication`` and ``container.SnapshotImage``: writing and reading the state

**Determinism.** Every member of the cluster runs the same service over the same log, and replays the log after a
restart. The state after an event may depend only on the state before it and on the callback's arguments. Do not use
the wall clock (use the callback's ``timestamp`` or :attr:`Cluster.time`), random numbers, the environment, or the
iteration order of a ``set`` of strings.

**Threads.** All callbacks run on the agent's thread, one at a time. Use :class:`Cluster` and :class:`ClientSession`
only on that thread, and only inside a callback.

**Exceptions.** An exception that leaves a callback of the log (a session's open, close or message, a timer, a new term)
ends the member. If one member skipped an event that another one applied, their states would differ forever. The error
log names the callback, the position and the cause. After a restart the member loads its last snapshot and replays the
log, including that event. So **check what a client sends and answer with an error; do not raise**: every member raises
for the same message, and again in each replay. To recover, stop all members, install a version of the service that
handles this message on all of them, and start them.

With the setting ``callback_error_policy = "skip"`` upstream's rule applies instead: the container counts and logs the
exception and continues with the next event. Changes made before the exception stay; the rest of the callback does not
run. Choose it only for a service whose callbacks fail on all members alike, or not at all. Some exceptions end the
member with either policy, because they cannot come from the event: MemoryError, RecursionError, OSError, anything that
is not an ``Exception`` (``SystemExit``, an interrupt), anything raised from one of these, and the loss of the stream to
the consensus module.

Each other callback documents what its exceptions do. The container counts and logs an exception of
``do_background_work`` wherever the call came from, including a callback that idles or sends. A callback must not
swallow :class:`~container.errors.AgentTermination`; it is not an ``Exception``, so ``except Exception`` lets it pass.

**Coroutines.** The container does not start with a callback that is a coroutine function; the error names the callback.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Buffer, Callable, Iterator, Sequence
from typing import Any, Protocol

__all__ = [
    "ADMIN_ACTION",
    "BACK_PRESSURED",
    "CLOSED",
    "MAX_POSITION_EXCEEDED",
    "MOCKED_OFFER",
    "NOT_CONNECTED",
    "ClientSession",
    "CloseReason",
    "Cluster",
    "ClusteredService",
    "Header",
    "MessageBuffer",
    "Role",
    "SessionMessages",
    "SnapshotImage",
    "SnapshotPublication",
    "TimeUnit",
]

#: The offer was not sent: there is no subscriber.
NOT_CONNECTED = -1
#: The offer was not sent: the receiver is behind. Idle, then offer again.
BACK_PRESSURED = -2
#: The offer was not sent: the log is rotating its terms. Offer again immediately.
ADMIN_ACTION = -3
#: The offer was not sent: the publication is closed.
CLOSED = -4
#: The offer was not sent: the stream has reached its maximum position.
MAX_POSITION_EXCEEDED = -5
#: The result of an offer to a session on a member that is not the leader: it sends nothing, which counts as success.
MOCKED_OFFER = 1


class Role(enum.IntEnum):
    """The role of a member (upstream's ``Cluster.Role``)."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class CloseReason(enum.IntEnum):
    """Why a session was closed (schema enum ``CloseReason``)."""

    CLIENT_ACTION = 0
    SERVICE_ACTION = 1
    TIMEOUT = 2


class TimeUnit(enum.IntEnum):
    """The unit of cluster time, timestamps and timer deadlines (schema enum ``ClusterTimeUnit``)."""

    MILLIS = 0
    MICROS = 1
    NANOS = 2


class MessageBuffer(Protocol):
    """The bytes of a message: a read-only buffer.

    ``bytes(buffer)``, slices (``buffer[2:10]`` returns ``bytes``), ``buffer[0]`` (an ``int``), ``len``, ``struct`` and
    ``memoryview`` work. The bytes are a copy. You may keep the buffer, or a view of it, for as long as you like: the
    container does not write to it while you hold it.

    The ``get_…`` methods read a little-endian number at an offset in bytes, without creating a ``bytes`` object. They
    raise IndexError when the number would not lie within the message.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def get_int8(self, offset: int = 0) -> int:
        """Return the signed byte at ``offset``. Raise IndexError outside the message."""

    def get_uint8(self, offset: int = 0) -> int:
        """Return the unsigned byte at ``offset``. Raise IndexError outside the message."""

    def get_int16(self, offset: int = 0) -> int:
        """Return the little-endian signed 16-bit number at ``offset``. Raise IndexError outside the message."""

    def get_uint16(self, offset: int = 0) -> int:
        """Return the little-endian unsigned 16-bit number at ``offset``. Raise IndexError outside the message."""

    def get_int32(self, offset: int = 0) -> int:
        """Return the little-endian signed 32-bit number at ``offset``. Raise IndexError outside the message."""

    def get_uint32(self, offset: int = 0) -> int:
        """Return the little-endian unsigned 32-bit number at ``offset``. Raise IndexError outside the message."""

    def get_int64(self, offset: int = 0) -> int:
        """Return the little-endian signed 64-bit number at ``offset``. Raise IndexError outside the message."""

    def get_uint64(self, offset: int = 0) -> int:
        """Return the little-endian unsigned 64-bit number at ``offset``. Raise IndexError outside the message."""

    def get_float64(self, offset: int = 0) -> float:
        """Return the little-endian 64-bit float at ``offset``. Raise IndexError outside the message."""


class Header(Protocol):
    """Where a message is in the log. Like the buffer, it does not change while you hold it."""

    @property
    def position(self) -> int:
        """The log position just after the message, in bytes."""

    @property
    def frame_length(self) -> int:
        """Length of the frame in bytes: 32 for its header, 32 for the session header, and the payload."""

    @property
    def session_id(self) -> int:
        """Aeron session id of the log stream; not the cluster session id."""

    @property
    def stream_id(self) -> int:
        """Aeron stream id of the log."""

    @property
    def term_id(self) -> int:
        """Term id of the message's first frame."""

    @property
    def term_offset(self) -> int:
        """Offset in the term of the message's first frame, in bytes."""

    @property
    def flags(self) -> int:
        """Flags of the frame; 0xC0 for an unfragmented message."""


class SessionMessages(Protocol):
    """A batch of consecutive session messages of the log, for a service with ``on_session_messages``.

    To get batches, define ``on_session_messages(self, messages: SessionMessages) -> None`` beside
    :meth:`ClusteredService.on_session_message`, which the container then does not call. All other events come between
    batches, in log order.

    **The result must not depend on where a batch begins and ends.** That follows from the timing of polls, and differs
    between members and in a replay. There are two ways to write such a service:

    * ``for index in messages:`` handles one message after the other. Do not leave the loop early: that ends the
      container. During each step the cluster's time and log position are that message's, as without batches. With
      ``callback_error_policy = "skip"`` an exception skips that message only; the messages after it come again in
      another call. Before each next step the container aborts an open claim and reports a failed send, as it does at
      the end of ``on_session_message``.
    * The columns handle all messages together: ``numpy.asarray(messages.timestamps)``,
      ``numpy.frombuffer(messages.payloads, dtype)``. Check :attr:`offsets` first: a message that does not have the
      dtype's length shifts all that follow it, and how many follow differs between members. The cluster's time and
      log position are the last message's. An exception outside an iteration ends the container, because no single
      message caused it.

    Everything returned is a copy and does not change while you hold it. You may keep a batch or hand it to another
    thread to read; only the callback's own iteration advances the cluster's time and log position.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indexes of the messages; the cluster's time and log position follow."""

    @property
    def session_ids(self) -> Sequence[int]:
        """The cluster session id of each message, a buffer of int64 ("q"); negative for a message of a service."""

    @property
    def positions(self) -> Sequence[int]:
        """The log position just after each message, in bytes: a buffer of int64."""

    @property
    def timestamps(self) -> Sequence[int]:
        """The cluster time of each message, a buffer of int64 in the cluster's time unit."""

    @property
    def offsets(self) -> Sequence[int]:
        """Where each message begins in :attr:`payloads`, then the length of all: a buffer of len + 1 int64."""

    @property
    def payloads(self) -> MessageBuffer:
        """The bytes of all messages, one after the other."""

    def session(self, index: int) -> ClientSession | None:
        """The session of a message; None for a message of a service, or of a session that is not open."""

    def payload(self, index: int) -> bytes:
        """The bytes of one message."""


class ClientSession(Protocol):
    """A client's session with the cluster (upstream's ``ClientSession``). Sessions are equal on all members."""

    @property
    def id(self) -> int:
        """The cluster session id."""

    @property
    def response_stream_id(self) -> int:
        """Stream id on which the client receives answers."""

    @property
    def response_channel(self) -> str:
        """Channel on which the client receives answers."""

    @property
    def encoded_principal(self) -> bytes:
        """The client's identity as the authenticator encoded it; empty without authentication."""

    @property
    def is_closing(self) -> bool:
        """True once a close request was sent, until this member next joins a log as leader."""

    def close(self) -> None:
        """Ask the cluster to close the session; do nothing when it is closed already.

        If the request cannot be sent, :attr:`is_closing` stays False, and the error log reports it unless a later try
        in the same event succeeds. Raise ClusterError as :meth:`Cluster.close_client_session` does.
        """

    def offer(self, *buffers: Buffer) -> int:
        """Try once to send the client one message, made of the buffers in their order.

        Return a position (> 0), :data:`MOCKED_OFFER` on a member that is not the leader, or a negative result.
        :data:`NOT_CONNECTED` also means that the service does not respond or that the client is unreachable.

        The first offer, send or claim to a new session may come before the leader's driver has added its egress. It
        waits for that. All sessions together wait for at most 1 second, and half of the time that passes. While the
        driver owes an answer that was waited for, nothing waits.

        Raise the same on every member: ClusterError in a callback that must not send, or on another thread;
        MessageTooLongError (a ValueError) for a message that the client's channel cannot carry on any member. The limit
        is one eighth of the channel's ``term-length``, less 32 bytes, or 16 MiB less 32 bytes without that parameter.

        **Without a term-length in the client's egress channel** each member's driver uses its own default
        (``aeron.term.buffer.length``; 16 MiB terms carry 2 MiB). If a message is too long for the leader's driver only,
        the leader drops it, reports it in the error log and returns :data:`CLOSED`. It does not raise, because the
        followers would not raise either.
        """

    def send(self, *buffers: Buffer) -> int:
        """Send the client a message, waiting a little when the client reads too slowly.

        Try again while there is back pressure, and idle in between, which keeps the container alive. For 1 second
        after the egress publication was added, also wait for the client to connect. Return the last result of
        :meth:`offer`: a negative one means that the client does not get this message. Raise as :meth:`offer` does.

        One thread answers all clients, so the time that sends wait is limited for **all sessions together**:

        * While several sessions are open: 30 ms, and 10% of the time that passes without waiting.
        * While one session is open: 1 second for a message, 2 seconds in all, and as much as the time that passes
          without waiting. So a single client can get a burst of answers that is larger than its window.
        * After a send has given up, sends to that session try only once for the next 1 second; 2, 4, up to 32 seconds
          when that happens again soon. Only time ends this; an accepted message does not.

        The state must not depend on the result: only the leader waits, and only the leader sends.
        """

    def try_claim(self, length: int, buffer_claim: Any) -> int:
        """Claim ``length`` bytes of the egress stream for a :class:`container.BufferClaim`; return as :meth:`offer`.

        **Commit or abort the claim before its event ends**: before the callback returns, or before the next step of an
        iteration over a batch. The container aborts a claim that is still open, which would block the stream, and
        reports it in the error log; a later commit raises ClusterError. Commit quickly as well: the media driver gives
        up a claim after 15 s, and its commit raises :class:`container.errors.ClaimLostError`. If that leaves the
        callback, it ends the member with either policy, because it happens on this member only.

        The bytes must fit one frame. Raise ValueError on every member when ``length`` exceeds the ``mtu`` of the
        client's channel less 64 bytes, or 65,440 bytes without that parameter. Without it, each member's driver uses
        its own default (1,408, for 1,344 bytes). If a claim is too long for the leader's driver only, the leader
        reports it and returns :data:`CLOSED`.
        """


class Cluster(Protocol):
    """The cluster as a service sees it (upstream's ``Cluster``).

    Some calls send: :meth:`offer`, :meth:`send`, :meth:`try_claim`, :meth:`schedule_timer`, :meth:`cancel_timer`,
    :meth:`close_client_session`, and those of a :class:`ClientSession`. Make them on **every** member, leader or not:
    the consensus module expects them from each member and counts them. They raise ClusterError on every member in
    ``on_start``, ``on_take_snapshot`` (which runs only if the member's archive works), ``on_role_change``,
    ``do_background_work`` and ``on_terminate``, and on any thread but the agent's.
    """

    @property
    def member_id(self) -> int:
        """This member's id; -1 before it first joined the log. Do not use it for the state: members differ in it."""

    @property
    def role(self) -> Role:
        """This member's role. Do not use it for the state: members differ in it."""

    @property
    def log_position(self) -> int:
        """The position up to which the service has processed the log, in bytes."""

    @property
    def time(self) -> int:
        """Cluster time of the current event, in :attr:`time_unit` since 1970."""

    @property
    def time_unit(self) -> TimeUnit | None:
        """Unit of cluster time; None before the first leadership term or snapshot."""

    @property
    def context(self) -> Any:
        """The context with which the container was launched."""

    @property
    def aeron(self) -> Any:
        """The container's Aeron client; use it only on the agent's thread."""

    @property
    def client_sessions(self) -> Sequence[ClientSession]:
        """A new list of the open sessions, in upstream's order, which is the same on all members.

        Ids ascend, but a session whose id is below all others when it opens comes last.
        """

    def get_client_session(self, cluster_session_id: int) -> ClientSession | None:
        """The open session with this id, or None."""

    def for_each_client_session(self, action: Callable[[ClientSession], object]) -> None:
        """Call ``action`` for each open session, in the order of :attr:`client_sessions`."""

    def close_client_session(self, cluster_session_id: int) -> bool:
        """Ask the consensus module to close a session: CloseSession (30).

        Return True when the request was sent, now or before, and False when 3 attempts met back pressure: then retry
        as for :meth:`schedule_timer`. Raise ClusterError when no such session is open.
        """

    def schedule_timer(self, correlation_id: int, deadline: int) -> bool:
        """Schedule ``on_timer_event(correlation_id, ...)`` at cluster time ``deadline``: ScheduleTimer (31).

        ``deadline`` is in :attr:`time_unit`, milliseconds by default. Replace a timer with the same correlation id.
        Return False when the request could not be sent. Idle and try again until it returns True; otherwise the
        members' timers differ::

            while not cluster.schedule_timer(correlation_id, deadline):
                cluster.idle()

        The error log reports a False that no True follows for the same timer in the same event. Raise ClusterError
        when the consensus module is gone.
        """

    def cancel_timer(self, correlation_id: int) -> bool:
        """Cancel a timer: CancelTimer (32). Return and raise as :meth:`schedule_timer`."""

    def offer(self, *buffers: Buffer) -> int:
        """Try once to send a message to the cluster itself, which logs it and delivers it to every service.

        It arrives as ``on_session_message(None, ...)``. Return a position (> 0), BACK_PRESSURED or ADMIN_ACTION. The
        error log reports a failure that you do not retry in the same event until it is accepted, because the members
        would diverge. :meth:`send` retries for you. Raise ClusterError when the consensus module is gone, and
        ValueError for a message that is too long: over one eighth of the control channel's term length, less 32 (16,352
        bytes by default). So give the control channels of all members the same term length and MTU, or a message fails
        on some of them only.
        """

    def send(self, *buffers: Buffer) -> int:
        """Send a message as :meth:`offer` does, but retry, idling in between, until it is accepted.

        Return the position. Raise as :meth:`offer`, and AgentTermination when the container is closed.
        """

    def try_claim(self, length: int, buffer_claim: Any) -> int:
        """Claim ``length`` bytes of the stream to the cluster for a :class:`container.BufferClaim`.

        Return and raise as :meth:`offer`; ValueError above 1,344 bytes with an MTU of 1,408. Commit or abort it as
        described for :meth:`ClientSession.try_claim`.
        """

    def idle(self, work_count: int = 0) -> None:
        """Idle once while a callback waits; keep the Aeron client, mark file and background work going.

        Raise AgentTermination when the container is about to end.
        """


class SnapshotPublication(Protocol):
    """Where :meth:`ClusteredService.on_take_snapshot` writes the state; closed when the callback returns."""

    @property
    def max_message_length(self) -> int:
        """The longest message that one :meth:`send` or :meth:`offer` takes, in bytes."""

    @property
    def position(self) -> int:
        """Position in the snapshot's recording, in bytes."""

    def send(self, *buffers: Buffer) -> int:
        """Write one message, waiting while there is back pressure; return the position after it.

        Raise ClusterError when the recording is gone, ArchiveError when the archive reports an error such as a full
        disk, TimedOutError when the archive has recorded nothing for 60 seconds, and ValueError when the message is too
        long.
        """

    def offer(self, *buffers: Buffer) -> int:
        """Try once to write one message; return a position or a negative result.

        A failure that you do not retry until it is accepted fails the snapshot, because it would lack a message.
        """


class SnapshotImage(Protocol):
    """Where :meth:`ClusteredService.on_start` reads the state that was written, message by message.

    All ways of reading share one position: a new loop, :meth:`poll` and :func:`container.read_snapshot` continue where
    the last one stopped. The log reports what is unread when ``on_start`` returns; the container drops it.
    """

    @property
    def is_end_of_stream(self) -> bool:
        """True when every message has been read, up to where the snapshot's recording stopped."""

    @property
    def position(self) -> int:
        """Position in the snapshot's recording after the last message read, in bytes."""

    def poll(self, handler: Callable[[bytes], object], fragment_limit: int = 10) -> int:
        """Pass the messages of up to ``fragment_limit`` frames to ``handler``, each as ``bytes``; never wait.

        Return the number of frames read. The handler must not read the image: that raises ClusterError. Raise what
        the handler raises, ArchiveError when the archive reports an error, and SnapshotError when a part of the
        snapshot is missing: a frame, or all frames after one because the replay ended early or no frame came for 60
        seconds.
        """

    def peek(self) -> bytes | None:
        """Return the beginning of the next message, which stays unread: as much as its first frame has.

        A message of up to 1,376 bytes, with Aeron's usual MTU, is there whole. Return None when every message has been
        read. Wait, and raise, as iterating does; raise ClusterError when :meth:`poll` has read a part of a message.
        """

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the remaining messages, waiting for each; raise as :meth:`poll`.

        The iteration ends only at the end of the snapshot.
        """


class ClusteredService(ABC):
    """A replicated service: subclass it and implement at least :meth:`on_session_message`.

    ===================================  ==================================  ===================================
    callback                             when, and on which members          may send
    ===================================  ==================================  ===================================
    ``on_start``                         once, before the log                no
    ``on_session_open``                  a client opened a session; all      yes
    ``on_session_close``                 a session closed; all               yes
    ``on_session_message``               a message was logged; all           yes
    ``on_timer_event``                   a timer fired; all                  yes
    ``on_take_snapshot``                 write the state; all                no
    ``on_role_change``                   this member's role changed          no
    ``on_new_leadership_term_event``     a leader took office; all           yes
    ``on_terminate``                     once, at the end                    no
    ``do_background_work``               every duty cycle of this member     no
    ===================================  ==================================  ===================================

    "All" means on every member, at the same position of the log, and again when the log is replayed.
    An exception in a callback of the log ends the member, unless ``callback_error_policy`` is ``skip``: see the top of
    this module.

    A callback may take as long as it needs: the media driver keeps its member. The member does nothing else meanwhile,
    though, and its mark file looks stale after 10 s, unless the callback calls :meth:`Cluster.idle`.
    """

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        """Start the service: keep ``cluster``, and load the state when there is a snapshot.

        ``snapshot_image`` is None for a cluster without a snapshot. The sessions of the snapshot are already open. An
        exception ends the container, and the node with it: a member must not run with half its state.
        """

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Handle a client that opened ``session`` at cluster time ``timestamp``; you can now answer it."""

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Handle a session that closed at cluster time ``timestamp``; you can no longer answer it."""

    @abstractmethod
    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Handle a message that was logged at cluster time ``timestamp``.

        ``session`` is None for a message of a service, or of a session that is not open. A service that also defines
        ``on_session_messages`` gets its messages there, in batches: see :class:`SessionMessages`.
        """

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Handle the timer scheduled with ``correlation_id``, which fired at cluster time ``timestamp``."""

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Write the whole state to ``snapshot_publication``, the same bytes on every member.

        The member processes no message meanwhile. After an exception, or when the archive stands still for 60 seconds,
        the container gives up the snapshot and the cluster continues.
        """

    def on_role_change(self, new_role: Role) -> None:
        """Handle this member's new role; the state must not depend on it.

        The container counts and logs an exception.
        """

    def on_new_leadership_term_event(
        self,
        leadership_term_id: int,
        log_position: int,
        timestamp: int,
        term_base_log_position: int,
        leader_member_id: int,
        log_session_id: int,
        time_unit: TimeUnit,
        app_version: int,
    ) -> None:
        """Handle a new leadership term: NewLeadershipTermEvent (24), positions in bytes, times in ``time_unit``."""

    def on_terminate(self, cluster: Cluster) -> None:
        """Clean up before the container ends. Not called when the driver died.

        The container logs an exception. If it ends because a callback of the log raised, the state is half changed, as
        that callback left it.
        """

    def do_background_work(self, now_ns: int) -> int:
        """Do work that is not part of the replicated state, such as polling a metrics queue; called very often.

        ``now_ns`` is the time of a monotonic local clock in nanoseconds. Return how much was done as a number; 0 or
        None lets the container idle. The container counts and logs an exception.
        """
        return 0
