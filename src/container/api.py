"""The interface of a replicated service: subclass :class:`ClusteredService`, call :class:`Cluster` from callbacks.

This module is the manual of the interface. It is plain Python and imports nothing compiled, so that a service can be
written, read and type-checked anywhere.

**What a service must be.** Every member of the cluster runs the same service over the same log, and replays the log
after a restart. The state after a message may depend on the state before it and on the callback's arguments, and on
nothing else: no wall clock (use the ``timestamp`` of the callback or :attr:`Cluster.time`), no randomness, no
environment, no iteration over a ``set`` of strings.

**Threads.** All callbacks run on the agent's thread, one at a time. :class:`Cluster` and :class:`ClientSession` may be
used only on that thread, and only from inside a callback.

**Exceptions.** An exception that leaves a callback of the log (a session's open, close or message, a timer, a new term)
ends the member: an event that one member skips and another applies makes their states differ for ever. The error log
names the callback, the position and the cause. After a restart the member loads its last snapshot and replays the log,
with that event. So **check what a client sends, and answer with an error; do not raise**: every member raises for the
same message, and again in each replay. To recover, stop all members, install a version of the service that answers
this message, on all of them, and start them.

The setting ``callback_error_policy = "skip"`` keeps upstream's rule instead: the exception is counted and logged, and
the service goes on with the next event. Changes made before the exception stay; the rest of the callback does not
run. Choose it only for a service whose callbacks fail on all members alike, or not at all. MemoryError,
RecursionError, OSError and what is no ``Exception`` (``SystemExit``, an interrupt) cannot come from the event, nor
can what was raised from one of these: they end the member with either policy. So does a stream to the consensus
module that is gone.

What an exception of another callback does is said there. A callback must not swallow
:class:`~container.errors.AgentTermination`; as it is no ``Exception``, ``except Exception`` lets it pass. An exception
of ``do_background_work`` is counted and logged wherever it was called from, also while a callback idles or sends.

**Coroutines.** A callback that is a coroutine function is refused by name when the container starts.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Buffer, Callable, Iterator, Sequence

from container.type_names import Any, Protocol

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

#: An offer did not go out: nobody subscribes.
NOT_CONNECTED = -1
#: An offer did not go out: the receiver is behind. Idle, then offer again.
BACK_PRESSURED = -2
#: An offer did not go out: the log rotates its terms. Offer again at once.
ADMIN_ACTION = -3
#: An offer did not go out: the publication is closed.
CLOSED = -4
#: An offer did not go out: the stream has reached its greatest position.
MAX_POSITION_EXCEEDED = -5
#: The result of an offer to a session on a member that is not the leader: nothing is sent, and that is success.
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

    ``bytes(buffer)``, slices (``buffer[2:10]``, which are ``bytes``), ``buffer[0]`` (an ``int``), ``len``, ``struct``
    and ``memoryview`` work. The bytes are a copy that the container owns, and it is yours for as long as you refer to
    the object or to a view of it: one that is kept is never written to again.

    The ``get_…`` methods read a little-endian number at an offset in bytes, without an object for the bytes; they raise
    IndexError where it would not lie within the message.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def get_int8(self, offset: int = 0) -> int: ...
    def get_uint8(self, offset: int = 0) -> int: ...
    def get_int16(self, offset: int = 0) -> int: ...
    def get_uint16(self, offset: int = 0) -> int: ...
    def get_int32(self, offset: int = 0) -> int: ...
    def get_uint32(self, offset: int = 0) -> int: ...
    def get_int64(self, offset: int = 0) -> int: ...
    def get_uint64(self, offset: int = 0) -> int: ...
    def get_float64(self, offset: int = 0) -> float: ...


class Header(Protocol):
    """Where a message stands in the log. Like the buffer, it does not change while you refer to it."""

    @property
    def position(self) -> int:
        """The log position (bytes) just after the message."""

    @property
    def frame_length(self) -> int:
        """Bytes of the frame: 32 of its header, 32 of the session header, and the payload."""

    @property
    def session_id(self) -> int:
        """Aeron session id of the log stream (not the cluster session id)."""

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
        """Flags of the frame; 0xC0 for a whole message."""


class SessionMessages(Protocol):
    """Consecutive session messages of the log, for a service that takes many at once (``on_session_messages``).

    Such a service defines ``on_session_messages(self, messages: SessionMessages) -> None`` beside
    :meth:`ClusteredService.on_session_message`, which is then not called. All other events come between batches, in
    their place in the log.

    **The result must not depend on where a batch begins and ends**: that follows from the timing of polls, and differs
    between members and in a replay. Two ways to write such a service:

    * ``for index in messages:`` handles one message after the other, to the end: to leave the loop early ends the
      container. While it is at a message, the cluster's time and log position are that message's, as without batches.
      Where the policy is to skip, an exception skips that message alone; those after it come again in another call.
      A claim that is open when the iteration goes on is aborted, and a send that failed is reported, as both are at the
      end of ``on_session_message``.
    * The columns handle all messages at once: ``numpy.asarray(messages.timestamps)``,
      ``numpy.frombuffer(messages.payloads, dtype)``. Look at :attr:`offsets` first: a message of another length than
      the dtype's shifts all that follow it, and how many those are differs between members. The cluster's time and
      log position are the last message's. An exception outside of an iteration ends the container: nobody could tell
      which message to skip.

    Everything returned is a copy and does not change while you hold it. A batch that is kept, or handed to another
    thread, can be read; only the callback's own iteration moves the cluster.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """The indexes of the messages; the cluster's time and log position follow them."""

    @property
    def session_ids(self) -> Sequence[int]:
        """The cluster session id of each message, a buffer of int64 ("q"); negative for a message of a service."""

    @property
    def positions(self) -> Sequence[int]:
        """The log position (bytes) just after each message, a buffer of int64."""

    @property
    def timestamps(self) -> Sequence[int]:
        """The cluster time of each message, a buffer of int64 in the cluster's time unit."""

    @property
    def offsets(self) -> Sequence[int]:
        """Where each message begins in :attr:`payloads`, and their length at the end: a buffer of len + 1 int64."""

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
        """Stream id on which the client hears answers."""

    @property
    def response_channel(self) -> str:
        """Channel on which the client hears answers."""

    @property
    def encoded_principal(self) -> bytes:
        """What the authenticator says of the client; empty without authentication."""

    @property
    def is_closing(self) -> bool:
        """True once a request to close the session was sent and while this member has led since."""

    def close(self) -> None:
        """Asks the cluster to close the session; nothing happens when it is closed already.

        When it could not be sent, :attr:`is_closing` stays False, and the error log has it unless a later try of the
        same event succeeds. Raises ClusterError as :meth:`Cluster.close_client_session` does.
        """

    def offer(self, *buffers: Buffer) -> int:
        """Tries once to send a message, made of the buffers in their order, to the client.

        Returns a position (> 0), :data:`MOCKED_OFFER` on a member that does not lead, or one of the negative results.
        :data:`NOT_CONNECTED` also when the service does not respond or the client could not be reached.

        Raises on every member alike: ClusterError from a callback that must not send, or on another thread;
        MessageTooLongError (a ValueError) for a message that the client's channel cannot carry on any member. That is
        one eighth of the channel's ``term-length``, less 32 bytes, and 16 MiB less 32 bytes where it has none.

        **Without a term-length in the client's egress channel** each member's driver takes its own default
        (``aeron.term.buffer.length``; 16 MiB terms carry 2 MiB). A message too long for the leader's driver alone is
        dropped: the error log says so and the result is :data:`CLOSED`. It raises nothing, as a follower could not
        raise it, too.
        """

    def send(self, *buffers: Buffer) -> int:
        """Sends a message to the client, waiting a little when it reads too slowly.

        It tries, and tries again while there is back pressure, idling in between (which keeps the container alive).
        For 1 second after the egress publication was made, it also waits for the client to connect. Returns what the
        last :meth:`offer` returned, so a negative result says that the client does not get this message. Raises as
        :meth:`offer` does.

        One thread answers all clients, so the time that sends wait is limited for **all sessions together**:

        * While several sessions are open: 30 ms, and 10 % of the time that goes by without waiting.
        * While one session is open: 1 second for a message, 2 seconds in all, and as much as the time that goes by
          without waiting. So the only client gets more answers at once than its window holds.
        * After a send has given up, sends to that session try once for 1 second; 2, 4, up to 32 seconds when that
          happens again soon. An accepted message does not end this, time does.

        What a service does must not depend on the result: only the leader waits and only the leader sends.
        """

    def try_claim(self, length: int, buffer_claim: Any) -> int:
        """Claims ``length`` bytes of the egress stream for a :class:`container.BufferClaim`; results as for `offer`.

        **Commit or abort it before its event ends**, which is when the callback returns, or when the iteration of a
        batch goes on. A claim that is open then is aborted and reported in the error log, as it would block the stream;
        a later commit raises ClusterError. Until then, too, be quick: the media driver gives up a claim that is open
        for 15 s, and its commit raises :class:`container.errors.ClaimLostError`. Where that leaves the callback it ends
        the member, with either policy, as no other member meets it.

        The bytes must fit one frame. On every member alike it raises ValueError above the ``mtu`` of the client's
        channel less 64 bytes, or above 65,440 where it has none. Then each member's driver takes its own default
        (1,408: 1,344 bytes); a claim too long for the leader's driver alone is reported, and the result is
        :data:`CLOSED`.
        """


class Cluster(Protocol):
    """What a service can ask of its cluster (upstream's ``Cluster``).

    The calls that send (:meth:`offer`, :meth:`send`, :meth:`try_claim`, :meth:`schedule_timer`, :meth:`cancel_timer`,
    :meth:`close_client_session`, and those of a :class:`ClientSession`) raise ClusterError from ``on_start``,
    ``on_take_snapshot``, ``on_role_change``, ``do_background_work`` and ``on_terminate``, and from another thread than
    the agent's, whatever the role. They must be made on **every** member, leader or not: the consensus module expects
    them from each and counts them. (Whether ``on_take_snapshot`` is called at all depends on a member's archive.)
    """

    @property
    def member_id(self) -> int:
        """This member's id; -1 before it first joined the log. Not for the state: it differs between members."""

    @property
    def role(self) -> Role:
        """The role of this member. Not for the state: it differs between members."""

    @property
    def log_position(self) -> int:
        """Position in the log, in bytes, up to which it has been processed."""

    @property
    def time(self) -> int:
        """Cluster time of the event in progress, in :attr:`time_unit` since 1970."""

    @property
    def time_unit(self) -> TimeUnit | None:
        """Unit of cluster time; None before the first leadership term or snapshot told it."""

    @property
    def context(self) -> Any:
        """The context with which the container was launched."""

    @property
    def aeron(self) -> Any:
        """The container's Aeron client; to be used only on the agent's thread."""

    @property
    def client_sessions(self) -> Sequence[ClientSession]:
        """The open sessions, a fresh list in upstream's order, which is the same on all members.

        Ascending ids, but a session whose id is below all others when it opens comes last.
        """

    def get_client_session(self, cluster_session_id: int) -> ClientSession | None:
        """The open session with this id, or None."""

    def for_each_client_session(self, action: Callable[[ClientSession], object]) -> None:
        """Calls ``action`` for each open session, in the order of :attr:`client_sessions`."""

    def close_client_session(self, cluster_session_id: int) -> bool:
        """Asks the consensus module to close a session: CloseSession (30).

        Returns True when the request was sent, now or before; False when 3 attempts met back pressure: then as
        :meth:`schedule_timer`. Raises ClusterError when no such session is open.
        """

    def schedule_timer(self, correlation_id: int, deadline: int) -> bool:
        """Schedules ``on_timer_event(correlation_id, ...)`` at cluster time ``deadline``: ScheduleTimer (31).

        A timer with the same correlation id is replaced. Returns False when it could not be sent: idle with
        :meth:`idle` and try again, until it returns True, else the members' timers differ::

            while not cluster.schedule_timer(correlation_id, deadline):
                cluster.idle()

        A False that no True follows, for the same timer and in the same event, is reported in the error log. Raises
        ClusterError when the consensus module is gone.
        """

    def cancel_timer(self, correlation_id: int) -> bool:
        """Cancels a timer: CancelTimer (32). Returns and raises as :meth:`schedule_timer`."""

    def offer(self, *buffers: Buffer) -> int:
        """Tries once to send a message to the cluster itself, to be logged and delivered to every service.

        It comes back as ``on_session_message(None, ...)``. Returns a position (> 0), BACK_PRESSURED or ADMIN_ACTION;
        a service that neither retries nor reads such a failure is reported in the error log, as the members would
        diverge. Raises ClusterError when the consensus module is gone, ValueError for a message that is too long
        (over 16,352 bytes with the default control channel: one eighth of its term length, less 32). So the control
        channels of all members must have the same term length and MTU, or a message fails on some of them only.
        """

    def send(self, *buffers: Buffer) -> int:
        """As :meth:`offer`, but keeps trying, idling in between, until the message is accepted.

        It ends otherwise only when the consensus module goes away, the container is closed (AgentTermination), or
        as `offer` raises. Returns the position.
        """

    def try_claim(self, length: int, buffer_claim: Any) -> int:
        """Claims ``length`` bytes of the stream to the cluster for a :class:`container.BufferClaim`.

        Returns and raises as :meth:`offer`; ValueError above 1,344 bytes with an MTU of 1,408. When it must be
        committed, and what becomes of it otherwise, is as for :meth:`ClientSession.try_claim`.
        """

    def idle(self, work_count: int = 0) -> None:
        """Idles once while a callback waits for something, keeping client, mark file and background work going.

        Raises AgentTermination when the container is to end.
        """


class SnapshotPublication(Protocol):
    """Where :meth:`ClusteredService.on_take_snapshot` writes the state. It is closed when the callback returns."""

    @property
    def max_message_length(self) -> int:
        """The longest message that one `send` or `offer` takes, in bytes."""

    @property
    def position(self) -> int:
        """Position in the snapshot's recording, in bytes."""

    def send(self, *buffers: Buffer) -> int:
        """Writes one message, waiting out back pressure; returns the position after it.

        Raises ClusterError when the recording is gone, ArchiveError when the archive reports an error (a full disk,
        say), TimedOutError when the archive has recorded nothing for 60 seconds, ValueError when the message is too
        long.
        """

    def offer(self, *buffers: Buffer) -> int:
        """Tries once to write one message; returns a position or a negative result.

        A failure that is neither retried nor read fails the snapshot, as it would lack a message.
        """


class SnapshotImage(Protocol):
    """Where :meth:`ClusteredService.on_start` reads the state that was written, message by message.

    There is one place in the snapshot, which all ways of reading move on: a loop that was left is continued by the next
    one, by :meth:`poll` and by :func:`container.read_snapshot`. What is not read when ``on_start`` returns is reported
    in the log and dropped.
    """

    @property
    def is_end_of_stream(self) -> bool:
        """True when every message has been handed over, up to where the snapshot's recording stopped."""

    @property
    def position(self) -> int:
        """Position in the snapshot's recording after the last message that was handed over, in bytes."""

    def poll(self, handler: Callable[[bytes], object], fragment_limit: int = 10) -> int:
        """Hands messages, each as ``bytes``, to ``handler``, from up to ``fragment_limit`` frames; never waits.

        Returns the number of frames read. The handler must not read the image itself: that raises ClusterError. Raises
        what the handler raises, ArchiveError when the archive reports an
        error, and SnapshotError when a part of the snapshot is missing: a frame, or all frames after one because the
        replay ended early or no frame came for 60 seconds.
        """

    def __iter__(self) -> Iterator[bytes]:
        """Iterates over the remaining messages, waiting for each; raises as :meth:`poll`.

        The iteration ends only when all messages up to the end of the snapshot were handed over.
        """


class ClusteredService(ABC):
    """A replicated service: subclass it, and implement at least :meth:`on_session_message`.

    ===================================  ==================================  ===================================
    callback                             when, and on which members          may send
    ===================================  ==================================  ===================================
    ``on_start``                         once, before the log                no
    ``on_session_open``                  a client opened a session; all      yes
    ``on_session_close``                 a session was closed; all           yes
    ``on_session_message``               a message was logged; all           yes
    ``on_timer_event``                   a timer fired; all                  yes
    ``on_take_snapshot``                 the state is to be written; all     no
    ``on_role_change``                   this member's role changed          no
    ``on_new_leadership_term_event``     a leader took office; all           yes
    ``on_terminate``                     once, at the end                    no
    ``do_background_work``               every duty cycle of this member     no
    ===================================  ==================================  ===================================

    "All" means on every member, at the same position of the log, and again when the log is replayed.
    An exception in a callback of the log ends the member, unless ``callback_error_policy`` is ``skip``: see the top of
    this module.

    A callback may take as long as it needs: the media driver keeps its member. Nothing else of the member happens
    meanwhile, though, and the mark file looks stale after 10 s, unless the callback idles with :meth:`Cluster.idle`.
    """

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        """The service starts: keep ``cluster``, and load the state when there is a snapshot.

        ``snapshot_image`` is None for a cluster that has none. The sessions of the snapshot are open already. An
        exception ends the container, and with it the node: a member must not run with half a state.
        """

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """A client opened ``session`` at cluster time ``timestamp``; from now on it can be answered."""

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """``session`` was closed at cluster time ``timestamp``; it cannot be answered any more."""

    @abstractmethod
    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """A message of a client, or of a service (``session`` is None), was logged at cluster time ``timestamp``.

        A service that also defines ``on_session_messages`` gets its messages there, many at once: see
        :class:`SessionMessages`.
        """

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """The timer scheduled with ``correlation_id`` fired at cluster time ``timestamp``."""

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Write the whole state to ``snapshot_publication``, the same bytes on every member.

        No message is processed meanwhile. After an exception the snapshot is given up and the cluster goes on; so it
        is when the archive stands still for 60 seconds.
        """

    def on_role_change(self, new_role: Role) -> None:
        """This member's role is now ``new_role``; the state must not depend on it.

        An exception is counted and logged.
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
        """A leadership term began: NewLeadershipTermEvent (24), positions in bytes, time in ``time_unit``."""

    def on_terminate(self, cluster: Cluster) -> None:
        """The container ends; an exception is logged. It is not called when the driver died.

        After an exception of a callback of the log the state is the one that this callback left, half applied.
        """

    def do_background_work(self, now_ns: int) -> int:
        """Work that is no part of the replicated state, such as polling a metrics queue; called very often.

        ``now_ns`` is a monotonic local clock in nanoseconds. Return how much was done, a number; 0 or None lets the
        container idle. An exception is counted and logged.
        """
        return 0
