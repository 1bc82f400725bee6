"""A second opinion on what an agent does: upstream's rules written a second time, small and slow, over frames and
numbers.

It is told of each frame that is sent and of each duty cycle, and says what the service is called with, what is
acknowledged, which errors are counted, and how the agent ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tests.fuzz.wire import NULL_INT32, PAYLOAD_OFFSET, Refused, fields_of, message_name, text_of

NULL_VALUE = -1
FOLLOWER, LEADER = 0, 2
FRAGMENT_LIMIT = 50
TERM_LENGTH = 64 * 1024
SNAPSHOT_ACTION = 2
_CHANNEL = re.compile(r"(aeron-spy:)?aeron:(udp|ipc)(\?[^=|]+=[^|]*(\|[^=|]+=[^|]*)*)?", re.S)
_CHANNEL_MAX_LENGTH = 4095


class LogFrame(NamedTuple):
    """A frame as it lies in a log; padding has no flags."""

    begin: int
    end: int
    flags: int | None
    payload: bytes


@dataclass
class Log:
    """The frames of one stream by where they begin."""

    frames: dict[int, LogFrame] = field(default_factory=dict)
    end_position: int | None = None
    """Where the stream has ended; None while it may grow."""


class Join(NamedTuple):
    """The request of a JoinLog."""

    log_position: int
    max_log_position: int
    member_id: int
    session_id: int
    stream_id: int
    is_startup: bool
    role: int
    is_standby: bool
    channel: str


class Session(NamedTuple):
    """An open session."""

    id: int
    response_stream_id: int
    response_channel: str
    encoded_principal: bytes


class Ack(NamedTuple):
    """What the consensus module is told."""

    log_position: int
    timestamp: int
    ack_id: int
    relevant_id: int


class World(Protocol):
    """The model's view of the driver, which is not under test."""

    def find_log(self, channel: str, stream_id: int, session_id: int) -> tuple[Log, int] | None:
        """The log that a subscription would see, and where; None when it would wait. Raises Refused."""

    def connect(self, session: Session) -> bool:
        """Whether the driver takes a publication for a session, which is then held until it is disconnected."""

    def disconnect(self, session_id: int) -> None:
        """Let a session's publication go."""


class Ended(Exception):
    """The agent ends; ``kind`` is the name of the exception, ``is_expected`` as that of a ClusterTermination."""

    def __init__(self, kind: str, *, is_expected: bool | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.is_expected = is_expected


class Assembler:
    """Puts the fragments of one stream together; ``take`` returns a message when one is whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] | None = None
        self._next = NULL_VALUE
        self._begin = NULL_VALUE

    def take(self, frame: LogFrame) -> bytes | None:
        flags = frame.flags or 0
        if flags & 0xC0 == 0xC0:
            return frame.payload
        if flags & 0x80:
            self._parts, self._begin = [], frame.begin
        elif self._parts is None or frame.begin != self._next or not self._is_same_term(frame):
            self._parts = None
            return None
        self._parts.append(frame.payload)
        self._next = frame.end
        if not flags & 0x40:
            return None
        message, self._parts = b"".join(self._parts), None
        return message

    def _is_same_term(self, frame: LogFrame) -> bool:
        return frame.begin // TERM_LENGTH == self._begin // TERM_LENGTH


def tell(order: list[int], session_id: int) -> None:
    """Puts a new session where upstream tells it: behind the last that is below it, else at the end."""
    below = [index for index, other in enumerate(order) if other < session_id]
    order.insert(below[-1] + 1 if below else len(order), session_id)


class Model:
    """The state of the agent of service 0 on one member."""

    def __init__(self, world: World, client_id: int, first_recording_id: int) -> None:
        self.world = world
        self.log_position = 0
        self.time = 0
        self.role = FOLLOWER
        self.member_id = NULL_VALUE
        self.time_unit: int | None = None
        self.sessions: dict[int, Session] = {}
        self.told: list[int] = []
        self.connected: set[int] = set()
        self.acks = [Ack(0, 0, 0, client_id)]
        self.calls: list[tuple[Any, ...]] = [("on_start", False)]
        self.errors: list[str] = []
        self.snapshots: dict[int, tuple[dict[str, int], list[Session]]] = {}
        self.ended: Ended | None = None
        self.is_waiting = False
        self.is_active = True
        self.commit_position = 0
        self.log: Log | None = None
        self.position = 0
        self.control: list[tuple[int, LogFrame]] = []
        """Frames on the control stream that have not been read, each with its session id."""
        self._max_log_position = NULL_VALUE
        self._pending: Join | None = None
        self._termination_position = NULL_VALUE
        self._requested_position = NULL_VALUE
        self._is_ack_required = True
        self._is_standby = False
        self._log_assembler = Assembler()
        self._control_assemblers: dict[int, Assembler] = {}
        self._next_recording_id = first_recording_id

    def cycle(self) -> None:
        """One duty cycle with a slow tick in it."""
        try:
            self._poll_control()
            if self.is_waiting:
                return
            if self.log is not None and self._poll_log() == 0 and self._is_log_done():
                self._close_log()
        except Refused as refused:
            self.errors.append(refused.kind)
        except Ended as ended:
            self.ended = ended

    # --- control stream

    def _poll_control(self) -> None:
        if self.control:
            session_id, frame = self.control.pop(0)
            assembler = self._control_assemblers.setdefault(session_id, Assembler())
            message = assembler.take(frame)
            if message is not None:
                self._on_control(message)
        if self._pending is not None and self.log is None:
            join, self._pending = self._pending, None
            self._join(join)
        if not self.is_waiting:
            self._check_positions()

    def _on_control(self, message: bytes) -> None:
        name = message_name(message)
        if name == "JoinLog":
            self._on_join_log(fields_of(name, message))
        elif name == "ServiceTerminationPosition":
            fields = fields_of(name, message)
            self._termination_position = fields["log_position"]
            self._is_ack_required = fields["ack_required"] != 0
        elif name == "RequestServiceAck":
            self._requested_position = fields_of(name, message)["log_position"]

    def _on_join_log(self, fields: dict[str, Any]) -> None:
        if fields["role"] not in (0, 1, 2):
            raise Refused("ClusterError")
        channel = text_of(fields["log_channel"])
        self._pending = Join(
            fields["log_position"],
            fields["max_log_position"],
            fields["member_id"],
            fields["log_session_id"],
            fields["log_stream_id"],
            fields["is_startup"] == 1,
            fields["role"],
            fields["is_standby"] == 1,
            channel,
        )
        self._max_log_position = fields["log_position"]

    def _join(self, join: Join) -> None:
        if len(join.channel) > _CHANNEL_MAX_LENGTH or not _CHANNEL.fullmatch(join.channel):
            raise Ended("AgentTermination")
        if join.role != LEADER:
            self._disconnect_all()
        try:
            found = self.world.find_log(join.channel, join.stream_id, join.session_id)
        except Refused:
            raise Ended("AgentTermination") from None
        if found is None:
            self.is_waiting = True
            return
        log, position = found
        if join.log_position < self.log_position or position != join.log_position:
            raise Ended("AgentTermination")
        if join.log_position > self.log_position:
            raise Ended("AgentTermination")  # no archive has the log
        self.log, self.position = log, position
        self._is_standby = join.is_standby
        self._max_log_position = join.max_log_position
        self._ack(join.log_position, NULL_VALUE)
        self.member_id = join.member_id
        if join.role == LEADER and not join.is_startup:
            for session_id in self.told:
                self._connect(self.sessions[session_id])
        self._set_role(join.role)

    def _check_positions(self) -> None:
        position = self._termination_position
        if position != NULL_VALUE and self.log_position >= position:
            is_expected = self.log_position == position
            if not is_expected:
                self.errors.append("ClusterEvent")
            self.is_active = False
            self.calls.append(("on_terminate",))
            if self._is_ack_required:
                self._ack(self.log_position, NULL_VALUE)
            raise Ended("ClusterTermination", is_expected=is_expected)
        position = self._requested_position
        if position != NULL_VALUE and self.log_position >= position:
            if self.log_position > position:
                self.errors.append("ClusterEvent")
            self._ack(self.log_position, NULL_VALUE)
            self._requested_position = NULL_VALUE

    def _ack(self, log_position: int, relevant_id: int) -> None:
        self.acks.append(Ack(log_position, self.time, len(self.acks), relevant_id))

    def _set_role(self, role: int) -> None:
        if role != self.role:
            self.role = role
            self.calls.append(("on_role_change", role))

    def _connect(self, session: Session) -> None:
        if session.id in self.connected:
            return
        if self.world.connect(session):
            self.connected.add(session.id)
        else:
            self.errors.append("ClusterError")

    def _disconnect_all(self) -> None:
        for session_id in self.connected:
            self.world.disconnect(session_id)
        self.connected.clear()

    # --- log

    def _poll_log(self) -> int:
        count = 0
        term = self.position // TERM_LENGTH
        while count < FRAGMENT_LIMIT:
            assert self.log is not None
            frame = self.log.frames.get(self.position)
            if frame is None or frame.begin >= self.commit_position or frame.begin // TERM_LENGTH != term:
                break
            self.position = frame.end
            if frame.flags is None:
                continue
            count += 1
            message = self._log_assembler.take(frame)
            if message is not None:
                self._on_log(message, frame.end)
        return count

    def _is_log_done(self) -> bool:
        assert self.log is not None
        end_position = self.log.end_position
        return self.position >= self._max_log_position or (end_position is not None and self.position >= end_position)

    def _close_log(self) -> None:
        self.log_position = max(self.position, self.log_position)
        self.log = None
        self._disconnect_all()
        self._set_role(FOLLOWER)

    def _on_log(self, message: bytes, position: int) -> None:
        name = message_name(message)
        handler = getattr(self, f"_on_{name}", None)
        if handler is not None:
            fields = fields_of(name, message)
            if name == "SessionMessageHeader" and len(message) < PAYLOAD_OFFSET:
                raise Refused("CodecError")
            handler(fields, position, message)

    def _advance(self, log_position: int, timestamp: int) -> None:
        self.log_position, self.time = log_position, timestamp

    def _on_SessionMessageHeader(self, fields: dict[str, Any], position: int, message: bytes) -> None:  # noqa: N802
        self._advance(position, fields["timestamp"])
        session = self.sessions.get(fields["cluster_session_id"])
        session_id = None if session is None else session.id
        self.calls.append(("on_session_message", session_id, self.time, message[PAYLOAD_OFFSET:], position))

    def _on_TimerEvent(self, fields: dict[str, Any], position: int, _message: bytes) -> None:  # noqa: N802
        self._advance(position, fields["timestamp"])
        self.calls.append(("on_timer_event", fields["correlation_id"], self.time))

    def _on_SessionOpenEvent(self, fields: dict[str, Any], position: int, _message: bytes) -> None:  # noqa: N802
        session = Session(
            fields["cluster_session_id"],
            fields["response_stream_id"],
            text_of(fields["response_channel"]),
            fields["encoded_principal"],
        )
        self._advance(position, fields["timestamp"])
        if session.id in self.sessions:
            raise Refused("ClusterError")
        if self.role == LEADER:
            self._connect(session)
        self.sessions[session.id] = session
        tell(self.told, session.id)
        self.calls.append(("on_session_open", session.id, self.time))

    def _on_SessionCloseEvent(self, fields: dict[str, Any], position: int, _message: bytes) -> None:  # noqa: N802
        if fields["close_reason"] not in (0, 1, 2):
            raise Refused("CodecError")
        self._advance(position, fields["timestamp"])
        session = self.sessions.pop(fields["cluster_session_id"], None)
        if session is None:
            self.errors.append("ClusterEvent")
            return
        self.told.remove(session.id)
        if session.id in self.connected:
            self.connected.remove(session.id)
            self.world.disconnect(session.id)
        self.calls.append(("on_session_close", session.id, self.time, fields["close_reason"]))

    def _on_ClusterActionRequest(self, fields: dict[str, Any], _position: int, _message: bytes) -> None:  # noqa: N802
        if fields["action"] not in (0, 1, 2):
            raise Refused("CodecError")
        self._advance(fields["log_position"], fields["timestamp"])
        flags = 0 if fields["flags"] == NULL_INT32 else fields["flags"]
        if fields["action"] != SNAPSHOT_ACTION or not (flags == 0 or (flags & 1 and self._is_standby)):
            return
        marker = {
            "type_id": 2,
            "log_position": self.log_position,
            "leadership_term_id": fields["leadership_term_id"],
            "index": 0,
            "time_unit": NULL_INT32 if self.time_unit is None else self.time_unit,
            "app_version": 1,
        }
        self.calls.append(("on_take_snapshot",))
        recording_id, self._next_recording_id = self._next_recording_id, self._next_recording_id + 1
        self.snapshots[recording_id] = marker, [self.sessions[session_id] for session_id in self.told]
        self._ack(self.log_position, recording_id)

    def _on_NewLeadershipTermEvent(self, fields: dict[str, Any], _position: int, _message: bytes) -> None:  # noqa: N802
        if fields["time_unit"] not in (0, 1, 2, NULL_INT32):
            raise Refused("CodecError")
        if fields["app_version"] >> 16 & 0xFF != 0:
            self.errors.append("ClusterError")
            raise Ended("AgentTermination")
        self._advance(fields["log_position"], fields["timestamp"])
        self.time_unit = max(0, fields["time_unit"])
        self.calls.append(
            (
                "on_new_leadership_term_event",
                fields["leadership_term_id"],
                self.log_position,
                self.time,
                fields["term_base_log_position"],
                fields["leader_member_id"],
                fields["log_session_id"],
                self.time_unit,
                fields["app_version"],
            )
        )
