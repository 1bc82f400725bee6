"""The sequenced ledger: its state, its byte formats and its hash, the same as in ``tests/java/SequencedLedger.java``.

Clients number their commands. The ledger carries each out once, in the order of its client, and answers those that come
again. So a client may send again whatever was not answered, and whoever finds a number twice, or one missing, has found
an error of the cluster. The formats are described in ``docs/own-tests.md``.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import NamedTuple
from zlib import crc32


class Op(enum.IntEnum):
    """What a command does; commands but READ change the state."""

    ADD = 1
    TIMER = 2
    RELAY = 3
    READ = 4
    RAISE = 5
    ARM = 6
    BLOCK = 7
    IDLE = 8
    COUNT = 9
    HOLD = 10
    TERMINATE = 11
    SESSIONS = 12
    FORK = 13
    GET = 14


class Status(enum.IntEnum):
    """What an answer says."""

    OK = 0
    DUPLICATE = 1
    GAP = 2
    STATE = 3
    VALUE = 4
    INVALID = 255


class Kind(enum.IntEnum):
    """What happened, in journals and in the chain."""

    START = 0
    MESSAGE = 1
    RELAYED = 2
    TIMER = 3
    SESSION_OPEN = 4
    SESSION_CLOSE = 5
    READ = 6
    SNAPSHOT = 7
    ANOMALY = 8
    ROLE = 9


class Armed(enum.IntEnum):
    """Callbacks that ARM lets fail, after they have changed the state."""

    TIMER = 1
    SESSION_OPEN = 2
    SESSION_CLOSE = 3
    SNAPSHOT = 4
    ROLE_CHANGE = 5
    BACKGROUND_WORK = 6
    NEW_TERM = 7
    TERMINATE = 8


class Times(enum.IntEnum):
    """How often a callback fails after ARM. Java's fails once for ALWAYS, too."""

    NEVER = -1
    ONCE = 0
    ALWAYS = 1


class Anomaly(enum.IntEnum):
    """What a service found wrong by itself."""

    TIMER_NOT_SCHEDULED = 1
    RELAY_NOT_SENT = 2
    SESSIONS_DIFFER = 3
    FORK_NOT_REFUSED = 4


COMMAND = struct.Struct("<Bqqqq")
"""Op, client id, sequence, key, value; any bytes may follow, which count for the hash."""
ANSWER = struct.Struct("<BqqqQ")
"""Status, client id, number, log position, hash.

The number is the last sequence of that client, and the hash the chain; or, with STATE, the number of timers and relays
that are still to come, and the hash the digest; or, with VALUE, which comes ahead of the answer to a GET, the
sequence of that command, and the value of the account.
"""
RELAY = struct.Struct("<qqqq")
"""Client id, sequence, key, value; service 1 and 2 send it with their :func:`of_service` sequence and key."""
JOURNAL_RECORD = struct.Struct("<qqqqQ")
"""Kind, log position, two numbers, hash after it."""
SNAPSHOT_HEADER = struct.Struct("<qQqqqqqqqqqq")
SNAPSHOT_ENTRY = struct.Struct("<qqq")
SNAPSHOT_MAGIC = int.from_bytes(b"LEDGER02", "little")

SLOW_CALLBACK_MS = 7_000
"""How long a slow callback takes: longer than driver and clients of QUICK_FAILOVER wait for each other."""

ACCOUNTS_OF_RELAYS = 1024
"""Relays add to the accounts below this one."""

_SERVICE_ID_SHIFT = 56
_PRIME = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def mix(value: int, *numbers: int) -> int:
    """A hash of 64 bits over a hash and numbers of 64 bits."""
    for number in numbers:
        value = ((value ^ (number & _MASK)) * _PRIME) & _MASK
        value ^= value >> 32
    return value


def wrapped(number: int) -> int:
    """A sum as a signed number of 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def of_service(number: int, service_id: int) -> int:
    """A sequence or a key in the relay that this service sends; 0 is the ledger that answers clients."""
    return number & (1 << _SERVICE_ID_SHIFT) - 1 | service_id << _SERVICE_ID_SHIFT


def service_id_of(number: int) -> int:
    """Which service has sent a relay with this sequence or key."""
    return number >> _SERVICE_ID_SHIFT


def suffix(service_id: int) -> str:
    """What the names of a service's files and directories end with; nothing for the service that answers clients."""
    return f"-{service_id}" if service_id else ""


class JournalRecord(NamedTuple):
    """One event as a service wrote it down."""

    kind: int
    position: int
    first: int
    second: int
    hash: int


@dataclass
class Totals:
    """What was counted."""

    messages: int = 0
    timers_fired: int = 0
    timers_spurious: int = 0
    relays_back: int = 0
    relays_spurious: int = 0


@dataclass
class Ledger:
    """The whole replicated state."""

    chain: int = 0
    totals: Totals = field(default_factory=Totals)
    clients: dict[int, int] = field(default_factory=dict)
    accounts: dict[int, int] = field(default_factory=dict)
    timers: dict[int, int] = field(default_factory=dict)
    relays: dict[int, int] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=dict)

    def happened(self, kind: Kind, position: int, timestamp: int, first: int, second: int, payload: int = 0) -> None:
        """Takes an event into the chain: its kind, place, time and content."""
        self.chain = mix(self.chain, kind, position, timestamp, first, second, payload)

    def told(self, session_ids: Iterable[int]) -> None:
        """Takes the ids of sessions into the chain, in their order."""
        self.chain = mix(self.chain, *session_ids)

    def add(self, key: int, value: int) -> None:
        """Adds to an account."""
        self.accounts[key] = wrapped(self.accounts.get(key, 0) + value)

    def timer_fired(self, correlation_id: int) -> bool:
        """Takes note of a timer; False if it was not scheduled, or has fired before."""
        if self.timers.pop(correlation_id, None) is None:
            self.totals.timers_spurious += 1
            return False
        self.totals.timers_fired += 1
        return True

    def relay_back(self, key: int) -> bool:
        """Takes note of a message of our own that came back; False if it was not sent, or came before."""
        if self.relays.pop(key, None) is None:
            self.totals.relays_spurious += 1
            return False
        self.totals.relays_back += 1
        return True

    def frames(self) -> Iterator[bytes]:
        """The snapshot, message by message."""
        sections = self._sections()
        yield SNAPSHOT_HEADER.pack(SNAPSHOT_MAGIC, self.chain, *astuple(self.totals), *map(len, sections))
        for number, section in enumerate(sections, start=1):
            for entry in sorted(section.items()):
                yield SNAPSHOT_ENTRY.pack(number, *entry)

    def _sections(self) -> tuple[dict[int, int], ...]:
        return self.clients, self.accounts, self.timers, self.relays, self.sessions

    def digest(self) -> int:
        """A hash of the whole state, as a snapshot would hold it."""
        value = 0
        for frame in self.frames():
            value = mix(value, crc32(frame))
        return value

    @classmethod
    def from_frames(cls, frames: Sequence[bytes]) -> Ledger:
        """The state of a snapshot; raises ValueError when it is none."""
        if not frames or len(frames[0]) != SNAPSHOT_HEADER.size:
            raise ValueError(f"not a snapshot of a sequenced ledger: {len(frames)} frames, the first is {frames[:1]}")
        magic, chain, *numbers = SNAPSHOT_HEADER.unpack(frames[0])
        totals, counts = numbers[:5], numbers[5:]
        if magic != SNAPSHOT_MAGIC or len(frames) - 1 != sum(counts):
            raise ValueError(f"snapshot with magic {magic:#x} and {len(frames) - 1} entries, announced {sum(counts)}")
        ledger = cls(chain, Totals(*totals))
        sections = ledger._sections()
        for frame in frames[1:]:
            number, key, value = SNAPSHOT_ENTRY.unpack(frame)
            sections[number - 1][key] = value
        return ledger
