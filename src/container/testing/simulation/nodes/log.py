"""The log that nodes have agreed on, taken apart without the code that wrote it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from container.testing.simulation.nodes.recorded import Violation, messages_of
from container.testing.simulation.simulated_cluster import CLOSE, MESSAGE, OPEN, TERM, TIMER, Expected

SNAPSHOT_ACTION = 2
_HEADER = struct.Struct("<HHHH")
"""Length of the block, template, schema, version."""
_NO_SESSION = -1
_KINDS = {"message": MESSAGE, "timer": TIMER, "open": OPEN, "close": CLOSE, "term": TERM}

type Event = tuple[object, ...]


def event_of(message: bytes) -> Event:
    """A message of the log as an event for services: the kind, an id or None, the timestamp, and more."""
    block_length, template_id, schema_id, _version = _HEADER.unpack_from(message)
    if schema_id != 111:
        raise Violation("log", f"a message of schema {schema_id}")
    numbers = struct.unpack_from("<qqq", message, 8)
    match template_id:
        case 1:
            return ("message", numbers[1] if numbers[1] >= 0 else None, numbers[2], message[32:])
        case 20:
            return ("timer", numbers[1], numbers[2])
        case 21:
            return ("open", numbers[2], struct.unpack_from("<q", message, 32)[0])
        case 22:
            return ("close", numbers[1], numbers[2], struct.unpack_from("<i", message, 32)[0])
        case 23:
            return ("action", numbers[1], numbers[2], struct.unpack_from("<i", message, 32)[0])
        case 24:
            return ("term", numbers[0], numbers[2], struct.unpack_from("<q", message, 32)[0])
    raise Violation("log", f"a message of template {template_id} and {block_length} bytes")


def opened_with(message: bytes) -> tuple[str, bytes]:
    """The channel and the principal in a message that opens a session."""
    at = _HEADER.size + int.from_bytes(message[:2], "little")
    channel_length = int.from_bytes(message[at : at + 4], "little")
    channel = message[at + 4 : at + 4 + channel_length]
    at += 4 + channel_length
    principal_length = int.from_bytes(message[at : at + 4], "little")
    return channel.decode("ascii"), message[at + 4 : at + 4 + principal_length]


@dataclass
class Log:
    """The log as far as it is final."""

    content: bytes = b""
    """Up to the end of the last message, or of padding behind it."""
    entries: list[Expected] = field(default_factory=list)
    """The callbacks that services get, in order."""
    channels: dict[str, None] = field(default_factory=dict)
    """Channels of clients, in order."""
    opened: dict[int, int] = field(default_factory=dict)
    """The timestamp of the open event by session id."""
    sessions: dict[int, None] = field(default_factory=dict)
    """Ids of those that are open, in the order in which they were opened."""
    terms: list[tuple[int, int]] = field(default_factory=list)
    """Leadership term id and base position."""
    snapshots: set[int] = field(default_factory=set)
    """Where actions end that ask for one."""
    sessions_at: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The sessions that are open there."""
    timestamp: int = 0
    is_time_checked: bool = True
    """Whether it may never go back; checks that compare times hold only then."""

    def grow(self, content: bytes) -> None:
        """Take in what is behind the end of a log that is known to begin with what was final.

        Raises:
            Violation: it breaks a promise by itself.
        """
        end = len(self.content)
        for position, message in messages_of(content, end):
            if message:
                self._add(position, message)
            end = position
        self.content = content[:end]

    def _add(self, position: int, message: bytes) -> None:
        event = event_of(message)
        timestamp = event[2]
        assert isinstance(timestamp, int)
        if timestamp < self.timestamp and self.is_time_checked:
            raise Violation("time", f"{event} at {position} after {self.timestamp}")
        self.timestamp = timestamp
        payload = b""
        match event:
            case ("action", *_):
                if event[3] == SNAPSHOT_ACTION:
                    self.snapshots.add(position)
                    self.sessions_at[position] = tuple(self.sessions)
                    self._on_snapshot(position)
                return
            case ("term", int(term_id), _, int(base)):
                if self.terms and (term_id <= self.terms[-1][0] or base < self.terms[-1][1]):
                    raise Violation("terms", f"term {term_id} from {base} on after {self.terms[-1]}")
                self.terms.append((term_id, base))
            case ("open", int(session_id), _):
                # Its number is that of its request, and it opens once its client is reached: a later one may be first.
                if session_id in self.opened:
                    raise Violation("sessions", f"session {session_id} opens again")
                self.opened[session_id] = timestamp
                self.sessions[session_id] = None
                channel, payload = opened_with(message)
                self.channels[channel] = None
            case ("close", int(session_id), _, int(reason)):
                if session_id not in self.sessions:
                    raise Violation("sessions", f"session {session_id} closes, and is not open")
                del self.sessions[session_id]
                payload = bytes((reason,))
            case ("message", int(session_id), _, bytes(payload)):
                if session_id not in self.sessions:
                    raise Violation("sessions", f"a message of session {session_id}, which is not open: {payload!r}")
            case ("message", None, _, bytes(payload)):
                pass
        event_id = event[1] if isinstance(event[1], int) else _NO_SESSION
        self.entries.append((position, _KINDS[str(event[0])], event_id, timestamp, payload))
        self._on_event(event, message)

    def _on_event(self, event: Event, message: bytes) -> None:
        """Look at an event that services get."""

    def _on_snapshot(self, position: int) -> None:
        """Note what a snapshot must have that is asked for there."""

    @property
    def end(self) -> int:
        """Where the last message ends, or padding behind it."""
        return len(self.content)
