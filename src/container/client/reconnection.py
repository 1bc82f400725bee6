"""Decides when a reconnecting client connects again, and keeps unsent messages meanwhile. No I/O.

:class:`Reconnection` learns how each attempt and each session ended, and returns when the next attempt begins, if there
is one. :class:`Outbox` keeps messages to send in their order, within limits. The owner of the client passes in the time
and the random numbers.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from container.client.client_context import check_count, check_instance
from container.common.values import counted, shown
from container.errors import (
    ClosedError,
    ClusterError,
    ClusterUnavailableError,
    ConfigurationError,
    ContainerError,
    MessageTooLongError,
    OutboxFullError,
)

_NS_PER_S = 1_000_000_000
_MAX_DOUBLINGS = 64
_MAX_S = 1_000_000_000  # 31 years: a time in nanoseconds fits 64 bits


class ConnectionState(enum.Enum):
    """State of a reconnecting client's connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"
    CLOSED = "closed"


class OutboxPolicy(enum.Enum):
    """Fate of a message for which the outbox has no room."""

    REFUSE = "refuse"
    """It is refused immediately, with OutboxFullError."""
    BLOCK = "block"
    """Its sender waits for room, within the send's time limit."""
    DROP_OLDEST = "drop oldest"
    """The oldest go, as many as it needs; their senders get OutboxFullError."""


@dataclass(frozen=True, kw_only=True)
class ReconnectPolicy:
    """How long to wait between attempts to connect, and how long to try; checked when it is made.

    ================ ======= ==============================================================================
    setting          default meaning
    ================ ======= ==============================================================================
    ``first_delay``  0.1     seconds before the first attempt after a session is lost
    ``max_delay``    5.0     seconds between two attempts at most, from begin to begin; each delay is twice the
                             one before
    ``jitter``       0.5     share of each delay, 0 to 1, that is left out at random: clients that lose their
                             leader together do not come back together
    ``max_attempts`` None    attempts in a row that fail until the client is closed; None for no limit
    ``max_seconds``  600.0   seconds without a session until the client is closed; None for no limit
    ``probe_after``  1.0     seconds for which a session that owes a word may be silent until a new connect is
                             tried beside it; None for never
    ================ ======= ==============================================================================

    An error that is not retryable (``is_retryable``), such as a rejected authentication, closes the client immediately.
    """

    first_delay: float = 0.1
    max_delay: float = 5.0
    jitter: float = 0.5
    max_attempts: int | None = None
    max_seconds: float | None = 600.0
    probe_after: float | None = 1.0

    def __post_init__(self) -> None:
        _check_number("max_delay", self.max_delay, "be a number of seconds above 0", most=_MAX_S)
        _check_number("first_delay", self.first_delay, "be above 0 and <= max_delay", most=self.max_delay)
        _check_number("jitter", self.jitter, "be a number from 0 to 1", most=1, takes_zero=True)
        if self.max_attempts is not None:
            check_count("max_attempts", self.max_attempts)
        if self.max_seconds is not None:
            _check_number("max_seconds", self.max_seconds, "be None or a number of seconds above 0", most=_MAX_S)
        if self.probe_after is not None:
            _check_number("probe_after", self.probe_after, "be None or a number of seconds above 0", most=_MAX_S)

    def delay_ns(self, attempt: int, random: float) -> int:
        """Nanoseconds to wait before an attempt after ``attempt`` failed ones; random: 0 to 1."""
        delay = min(self.max_delay, self.first_delay * 2 ** min(attempt, _MAX_DOUBLINGS))
        return int(delay * (1 - self.jitter * random) * _NS_PER_S)


class Reconnection:
    """Decides about attempts. Begins in CONNECTING: the first attempt is due immediately.

    ``random`` returns a number from 0 to 1; ``now_ns`` is of any clock that only goes forward.
    """

    def __init__(self, policy: ReconnectPolicy, *, random: Callable[[], float], now_ns: int) -> None:
        self.policy = policy
        self.state = ConnectionState.CONNECTING
        #: Attempts in a row that failed.
        self.failures = 0
        #: How many sessions there have been so far.
        self.sessions = 0
        #: The error that ended the last session or attempt, or that closed the client; None before.
        self.error: ContainerError | None = None
        self._random = random
        self._since_ns = now_ns  # without a session
        self._begun_ns = now_ns  # the last attempt
        self._due_ns = now_ns

    def poll(self, now_ns: int) -> bool:
        """Return True when an attempt begins now; the state is then CONNECTING. The caller reports how it ends."""
        if self.state is not ConnectionState.WAITING or now_ns < self._due_ns:
            return False
        self.state = ConnectionState.CONNECTING
        self._begun_ns = now_ns
        return True

    def hasten(self, now_ns: int) -> bool:
        """A probe, which is under way, is the next attempt from now on. False where none is awaited."""
        if self.state is not ConnectionState.WAITING:
            return False
        self.state = ConnectionState.CONNECTING
        self._begun_ns = now_ns
        return True

    def wait_ns(self, now_ns: int) -> int:
        """Nanoseconds until the next attempt is due; 0 where none is awaited."""
        return max(0, self._due_ns - now_ns) if self.state is ConnectionState.WAITING else 0

    def on_connected(self) -> None:
        """The attempt succeeded."""
        if self.state is ConnectionState.CONNECTING:
            self.state = ConnectionState.CONNECTED
            self.failures = 0
            self.sessions += 1
            self.error = None

    def on_failed(self, error: ContainerError, now_ns: int) -> None:
        """The attempt failed."""
        if self.state is ConnectionState.CONNECTING:
            self.failures += 1
            self._wait_or_close(error, self._begun_ns, now_ns)

    def on_lost(self, error: ContainerError, now_ns: int) -> None:
        """The session ended, and not by the client's own close."""
        if self.state is ConnectionState.CONNECTED:
            self._since_ns = now_ns
            self._wait_or_close(error, now_ns, now_ns)

    def close(self, error: ContainerError) -> None:
        """No more attempts. Nothing happens the second time."""
        if self.state is not ConnectionState.CLOSED:
            self.state = ConnectionState.CLOSED
            self.error = error

    def _wait_or_close(self, error: ContainerError, begun_ns: int, now_ns: int) -> None:
        # A delay is from begin to begin: who has waited for a node in an attempt does not wait again after it.
        self.error = error
        due_ns = max(now_ns, begun_ns + self.policy.delay_ns(self.failures, self._random()))
        limit = self._exceeded(due_ns)
        if not error.is_retryable:
            self.close(error)
        elif limit is not None:
            given_up = ClosedError(f"no session {limit}: {error}")
            given_up.__cause__ = error
            self.close(given_up)
        else:
            self.state = ConnectionState.WAITING
            self._due_ns = due_ns

    def _exceeded(self, due_ns: int) -> str | None:
        attempts, seconds = self.policy.max_attempts, self.policy.max_seconds
        if attempts is not None and self.failures >= attempts:
            return f"after {counted(attempts, 'attempt')}"
        if seconds is not None and due_ns - self._since_ns >= seconds * _NS_PER_S:
            return f"within {seconds:g} s"
        return None


def attempt_error(error: OSError) -> ContainerError:
    """Meaning of an OSError of an attempt to connect: retryable, unless somebody has to change a file or a setting."""
    needs_a_hand = isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError)
    kind = ClusterError if needs_a_hand else ClusterUnavailableError
    failed = kind(f"the attempt to connect failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


class OutboxEntry:
    """Something that waits to be sent; ``item`` is its owner's."""

    __slots__ = ("item", "length", "number")

    def __init__(self, number: int, length: int, item: Any) -> None:
        self.number = number
        self.length = length
        self.item = item


class Outbox:
    """Messages that wait to be sent, oldest first, within a limit of messages and of bytes.

    Counts what is in it and not what is under way: an entry that is taken and not sent after all is put back, to its
    place.
    """

    def __init__(self, *, max_messages: int, max_bytes: int, policy: OutboxPolicy) -> None:
        check_count("outbox_messages", max_messages)
        check_count("outbox_bytes", max_bytes)
        check_instance("outbox_policy", policy, OutboxPolicy)
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.policy = policy
        #: Entries that went to make room.
        self.dropped = 0
        self._entries: OrderedDict[int, OutboxEntry] = OrderedDict()  # that were never taken: their order is this one's
        self._returned: dict[int, OutboxEntry] = {}  # that were put back
        self._returned_numbers: list[int] = []  # heap of them, and of some that have left
        self._bytes = 0
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._entries) + len(self._returned)

    def __contains__(self, entry: OutboxEntry) -> bool:
        """Whether the entry waits to be sent."""
        return self._entries.get(entry.number) is entry or self._returned.get(entry.number) is entry

    @property
    def bytes(self) -> int:
        """Bytes of all that waits."""
        return self._bytes

    def has_room(self, length: int) -> bool:
        """Whether a message of that length can be put."""
        return len(self) < self.max_messages and self._bytes + length <= self.max_bytes

    def put(self, length: int, item: Any) -> tuple[OutboxEntry, list[OutboxEntry]]:
        """Put a message at the end; return its entry, and those that went for it, which will not be sent.

        Raises:
            OutboxFullError: there is no room, and the policy makes none.
            MessageTooLongError: the message alone is longer than all may be.
        """
        gone: list[OutboxEntry] = []
        if length > self.max_bytes:
            raise MessageTooLongError(f"a message of {length} bytes: the outbox takes {self.max_bytes} bytes in all")
        if not self.has_room(length):
            if self.policy is not OutboxPolicy.DROP_OLDEST:
                raise OutboxFullError(self.summary)
            while not self.has_room(length):
                oldest = self.first()
                assert oldest is not None  # there is no room, and the message has room alone
                self.remove(oldest)
                gone.append(oldest)
            self.dropped += len(gone)
        entry = OutboxEntry(self._next_number, length, item)
        self._next_number += 1
        self._entries[entry.number] = entry
        self._bytes += length
        return entry, gone

    def entries(self) -> list[OutboxEntry]:
        """All that waits, oldest first."""
        return sorted([*self._returned.values(), *self._entries.values()], key=lambda entry: entry.number)

    @property
    def summary(self) -> str:
        """How full it is."""
        return (
            f"{counted(len(self), 'message')} of {self._bytes} bytes to send: at most {self.max_messages} of "
            f"{self.max_bytes} bytes may"
        )

    def put_back(self, entry: OutboxEntry) -> None:
        """Put what was taken and not sent back to its place, whatever the limits."""
        if entry in self:
            return
        self._returned[entry.number] = entry
        heappush(self._returned_numbers, entry.number)
        self._bytes += entry.length

    def first(self) -> OutboxEntry | None:
        """The oldest entry, which stays; None when there is none."""
        while self._returned_numbers and self._returned_numbers[0] not in self._returned:
            heappop(self._returned_numbers)
        entry = next(iter(self._entries.values()), None)
        if self._returned_numbers and (entry is None or self._returned_numbers[0] < entry.number):
            return self._returned[self._returned_numbers[0]]
        return entry

    def remove(self, entry: OutboxEntry) -> bool:
        """Take an entry out, as it is sent or given up; False when it is not there any more."""
        if entry not in self:
            return False
        (self._entries if entry.number in self._entries else self._returned).pop(entry.number)
        self._bytes -= entry.length
        return True


def _check_number(name: str, value: Any, rule: str, *, most: float, takes_zero: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or (value == 0 and not takes_zero):  # nor is NaN
        limit = f", at most {most}" if most == _MAX_S else ""
        raise ConfigurationError(f"{name} must {rule}{limit}, not {shown(value)}")
