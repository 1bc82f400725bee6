"""A client that loads the sequenced ledger from a thread: numbers commands, sends lost ones again, keeps answers."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.errors import ContainerError
from container.testing.processes.process import wait_until
from container.transport.idle_strategy import SleepingIdleStrategy
from tests.linearizable.soak_history import SoakHistory
from tests.soak.ledger import ACCOUNTS_OF_RELAYS, ANSWER, COMMAND, Op, Status

_WINDOW = 32
_RESEND_AFTER_S = 1.0
_REWIND_PAUSE_S = 0.1
_CONNECT_TIMEOUT_S = 5.0
_MAX_PADDING = 6_000
_ACCOUNTS = range(ACCOUNTS_OF_RELAYS, ACCOUNTS_OF_RELAYS + 128)


class State(NamedTuple):
    """The ledger's answer to a READ: timers and relays still to come, the log position, a hash of all state there."""

    open_count: int
    position: int
    digest: int


class LoadClient(EgressListener):
    """Sends commands as fast as answers and ``rate`` allow, between :meth:`resume` and :meth:`drain`.

    Go-back-n: up to 32 commands are under way. When the ledger tells of a gap, the leader changes or no answer comes
    for a second, everything that was not answered is sent again. A lost session is replaced by a new one.
    """

    def __init__(
        self,
        client_id: int,
        settings: dict[str, Any],
        *,
        seed: int = 0,
        rate: float = 500.0,
        history: SoakHistory | None = None,
    ) -> None:
        """Start the thread; it connects at once, and sends after :meth:`resume`.

        Args:
            client_id: of this client; not that of another one in the same ledger.
            settings: of a :class:`~container.client.ClientContext`.
            seed: decides the commands.
            rate: commands per second, at most.
            history: takes what is asked of accounts.
        """
        self.client_id = client_id
        self.acknowledged = 0
        self.sessions_opened = 0
        self.resent = 0
        #: How often no answer came for a second while commands were under way.
        self.stalls = 0
        #: The longest time from the making of a command to its acknowledgement, since somebody set it to 0.
        self.longest_wait_s = 0.0
        self.failure: BaseException | None = None
        #: Log position and hash of each answer that told of a command carried out just then.
        self.positions, self.hashes = array("q"), array("Q")
        #: When set, all commands have that many bytes after them, and not a few of them up to 6,000.
        self.padding: range | None = None
        self._settings = settings
        self._random = random.Random(seed * 1_000_003 + client_id)
        self._pause_s = 1.0 / rate
        self._history = history
        self._outstanding: deque[bytes] = deque()
        self._made_s: deque[float] = deque()
        self._next = 1
        self._is_sending = False
        self._is_stopping = False
        self._next_send_s = self._last_progress_s = self._last_rewind_s = 0.0
        self._requested: deque[tuple[Op, int, int]] = deque()
        self._is_read_wanted = False
        self._states: list[State] = []
        self._read_sent_s = 0.0
        self._session: AeronCluster | None = None
        self._thread = threading.Thread(target=self._run, name=f"load-{client_id}", daemon=True)
        self._thread.start()

    # From other threads

    @property
    def sent(self) -> int:
        """Number of the last command that was made."""
        return self.acknowledged + len(self._outstanding)

    def resume(self) -> None:
        """Begin to send commands, or go on."""
        self._is_sending = True

    def request(self, op: Op, key: int, value: int = 0) -> None:
        """Send this command soon, also while no others are sent."""
        self._requested.append((op, key, value))

    def await_acknowledged(self, count: int, limit_s: float = 60.0) -> None:
        """Wait until ``count`` more commands are acknowledged than now.

        Raises:
            TimeoutError: they are not.
        """
        goal = self.acknowledged + count
        self._await(lambda: self.acknowledged >= goal, limit_s, f"{count} more acknowledgements")

    def drain(self, limit_s: float = 60.0) -> None:
        """Make no more commands, and wait until all are acknowledged.

        Raises:
            TimeoutError: they are not.
        """
        self._is_sending = False
        self._await(lambda: not self._outstanding and not self._requested, limit_s, "all commands to be acknowledged")

    def read(self, limit_s: float = 60.0) -> State:
        """Return the ledger's state, as a READ tells it.

        Raises:
            TimeoutError: none came.
        """
        self._states.clear()
        self._is_read_wanted = True
        self._await(lambda: bool(self._states), limit_s, "the answer to a READ")
        return self._states[-1]

    def _await(self, predicate: Callable[[], bool], limit_s: float, what: str) -> None:
        def ask() -> bool:
            if self.failure is not None:
                raise self.failure
            return predicate()

        wait_until(ask, limit_s, f"client {self.client_id}: {what} ({self})")

    def __repr__(self) -> str:
        return (
            f"<LoadClient {self.client_id} acknowledged {self.acknowledged} of {self.sent} "
            f"sessions {self.sessions_opened} {self._session}>"
        )

    def close(self) -> None:
        """End the thread and its session; may be called again."""
        self._is_stopping = True
        self._thread.join(2 * _CONNECT_TIMEOUT_S)

    # On its own thread

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._work()
        except BaseException as error:
            self.failure = error
        finally:
            if self._session is not None:
                self._session.close()

    def _work(self) -> None:
        session = self._session
        if session is None or session.is_closed:
            self._connect()
            return
        try:
            work_count = session.poll_egress()
            work_count += self._send(session, time.monotonic())
            session.idle(work_count)
        except ContainerError:
            # Such as a send to a leader that is just gone: a new session shows whether there is a cluster.
            session.close()

    def _connect(self) -> None:
        try:
            self._session = AeronCluster.connect(
                listener=self,
                client_name=f"load-{self.client_id}",
                message_timeout=_CONNECT_TIMEOUT_S,
                idle_strategy=SleepingIdleStrategy(1_000_000),
                **self._settings,
            )
        except ContainerError:
            return  # Between leaders; whoever waits for answers has a limit.
        self.sessions_opened += 1
        self._rewind()

    def _rewind(self) -> None:
        self.resent += self._next - self.acknowledged - 1
        self._next = self.acknowledged + 1
        self._last_rewind_s = self._last_progress_s = time.monotonic()
        self._read_sent_s = 0.0

    def _send(self, session: AeronCluster, now_s: float) -> int:
        if self._is_read_wanted and now_s - self._read_sent_s >= _RESEND_AFTER_S:
            if session.offer(COMMAND.pack(Op.READ, self.client_id, 0, 0, 0)) > 0:
                self._read_sent_s = now_s
            return 1
        if self._outstanding and now_s - self._last_progress_s >= _RESEND_AFTER_S:
            self.stalls += 1
            self._rewind()
        if self._next > self.sent and not self._make(now_s):
            return 0
        if session.offer(self._outstanding[self._next - self.acknowledged - 1]) <= 0:
            return 0
        self._next += 1
        return 1

    def _make(self, now_s: float) -> bool:
        """Make the next command, if there is to be one."""
        if len(self._outstanding) >= _WINDOW:
            return False
        if self._requested:
            op, key, value = self._requested[0]
            self._append(op, key, value)
            self._requested.popleft()
            return True
        if not self._is_sending or now_s < self._next_send_s:
            return False
        self._next_send_s = max(self._next_send_s + self._pause_s, now_s - self._pause_s)
        self._append(*self._choose())
        return True

    def _append(self, op: Op, key: int, value: int) -> None:
        if not self._outstanding:
            self._last_progress_s = time.monotonic()
        self._made_s.append(time.monotonic())
        if self._history is not None:
            self._history.begin(self.client_id, self.sent + 1, op, key, value)
        self._outstanding.append(COMMAND.pack(op, self.client_id, self.sent + 1, key, value) + self._choose_padding())

    def _choose_padding(self) -> bytes:
        if self.padding is not None:
            return self._random.randbytes(self._random.choice(self.padding))
        return b"" if self._random.random() < 0.9 else self._random.randbytes(self._random.randrange(_MAX_PADDING))

    def _choose(self) -> tuple[Op, int, int]:
        choice, sequence = self._random.random(), self.sent + 1
        unique = self.client_id << 40 | sequence
        if choice < 0.05:
            return Op.TIMER, unique, self._random.randrange(1_000)
        if choice < 0.15:
            return Op.RELAY, unique, self._random.randrange(-1_000, 1_000)
        if choice < 0.151:
            return Op.RAISE, 0, 0
        if choice < 0.4:
            return Op.GET, self._random.choice(_ACCOUNTS), 0
        return Op.ADD, self._random.choice(_ACCOUNTS), self._random.randrange(-(2**62), 2**62)

    # What the cluster says

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        status, _client_id, sequence, position, value = ANSWER.unpack(buffer)
        if status == Status.STATE:
            self._is_read_wanted = False
            self._states.append(State(sequence, position, value))
        elif status == Status.VALUE:
            if self._history is not None:
                self._history.take_value(self.client_id, sequence, value)
        elif status in (Status.OK, Status.DUPLICATE):
            if status == Status.OK:
                self.positions.append(position)
                self.hashes.append(value)
            self._acknowledge(sequence)
        elif status == Status.GAP and sequence + 1 < self._next:
            if time.monotonic() - self._last_rewind_s >= _REWIND_PAUSE_S:
                self._rewind()
        elif status == Status.INVALID:
            raise AssertionError(f"client {self.client_id}: the ledger found a command invalid")

    def _acknowledge(self, sequence: int) -> None:
        if sequence > self.sent:
            raise AssertionError(f"client {self.client_id}: acknowledged {sequence} of {self.sent} commands")
        while self.acknowledged < sequence:
            self._outstanding.popleft()
            self.acknowledged += 1
            if self._history is not None:
                self._history.end(self.client_id, self.acknowledged)
            self._last_progress_s = time.monotonic()
            self.longest_wait_s = max(self.longest_wait_s, self._last_progress_s - self._made_s.popleft())
        self._next = max(self._next, self.acknowledged + 1)

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, ingress_endpoints: str
    ) -> None:
        self._rewind()
