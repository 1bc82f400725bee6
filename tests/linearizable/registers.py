"""Registers as a clustered service, clients that use them, and services that are wrong, which a check must find."""

from __future__ import annotations

import random
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)
from container.client import ReconnectingClient
from container.errors import ContainerError, Outcome
from container.snapshots import read_snapshot, write_snapshot
from container.testing.processes.process import wait_until
from tests.linearizable.history import History, Op
from tests.soak.ledger import wrapped

OPS: tuple[Op, ...] = ("read", "write", "cas", "add")
REQUEST = struct.Struct("<qBqq")
"""Number of the request, op, up to two arguments; the key follows."""
REPLY = struct.Struct("<qq")
"""Number of the request, result."""
CONNECT_LIMIT_S = 60.0
PAUSE_S = 0.005


class State(msgspec.Struct):
    """All registers that were written."""

    values: dict[str, int] = {}


class RegisterService(ClusteredService):
    """Registers by key, which hold 0 at first."""

    def __init__(self) -> None:
        self.state = State()
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.state = read_snapshot(snapshot_image, State)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        assert session is not None
        request = bytes(buffer)
        number, op, *arguments = REQUEST.unpack_from(request)
        key = request[REQUEST.size :].decode()
        session.send(REPLY.pack(number, self.apply(OPS[op], key, *arguments)))

    def apply(self, op: Op, key: str, first: int, second: int) -> int:
        """Do what a client asks, and return the result."""
        values = self.state.values
        value = values.get(key, 0)
        match op:
            case "write":
                values[key] = first
            case "add":
                value = values[key] = wrapped(value + first)
            case "cas":
                is_equal = value == first
                if is_equal:
                    values[key] = second
                return int(is_equal)
        return value


class StaleRegisters(RegisterService):
    """Answers reads from a cache that is as new as the tenth last change."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, int] = {}
        self._changes = 0

    def apply(self, op: Op, key: str, first: int, second: int) -> int:
        """Read from the cache."""
        if op == "read":
            return self._cache.get(key, 0)
        self._changes += 1
        if self._changes % 10 == 0:
            self._cache = dict(self.state.values)
        return super().apply(op, key, first, second)


class RegisterClients:
    """Clients of one service of registers, a thread and a session each, whose operations are recorded.

    A client asks one thing at a time, and waits for the answer up to ``timeout`` seconds. ``with`` starts and ends
    them.

    Args:
        settings: of a :class:`~container.client.ClientContext`.
        count: how many.
        keys: how many registers they share.
        seed: decides what they ask.
        history: takes their operations.
        timeout: seconds.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        count: int = 4,
        keys: int = 5,
        seed: int = 1,
        history: History | None = None,
        timeout: float = 5.0,
    ) -> None:
        self.history = History() if history is None else history
        self.answered: Counter[int] = Counter()
        self.failures: list[BaseException] = []
        self._settings, self._keys, self._seed, self._timeout = settings, keys, seed, timeout
        self._is_stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()

    def await_answers(self, count: int, limit_s: float) -> None:
        """Wait until each client has so many more answers.

        Raises:
            TimeoutError: they do not come.
            BaseException: a client's own, of a kind that it does not expect.
        """
        goals = {number: self.answered[number] + count for number in range(len(self._threads))}

        def are_there() -> bool:
            if self.failures:
                raise self.failures[0]
            return all(self.answered[number] >= goal for number, goal in goals.items())

        wait_until(are_there, limit_s, f"{count} more answers for each client: {self.answered}")

    def _run(self, number: int) -> None:
        try:
            context = {"message_timeout": CONNECT_LIMIT_S, **self._settings}
            with ReconnectingClient.connect(correlate=_number_of, **context) as client:
                self._ask(client, number, random.Random(self._seed * 1_000_003 + number))
        except BaseException as error:
            self.failures.append(error)

    def _ask(self, client: Any, number: int, draw: random.Random) -> None:
        seen: dict[str, int] = {}
        asked = 0
        while not self._is_stopping.is_set():
            asked += 1
            unique = number + 1 << 32 | asked
            key = f"r{draw.randrange(self._keys)}"
            op = draw.choices(OPS, (4, 2, 3, 1))[0]
            arguments = {"write": [unique], "cas": [seen.get(key, 0), unique], "add": [draw.randrange(1, 100)]}.get(
                op, []
            )
            operation = self.history.begin(number, key, op, *arguments)
            request = REQUEST.pack(asked, OPS.index(op), *arguments, *[0] * (2 - len(arguments))) + key.encode()
            try:
                reply = client.request(request, key=asked, timeout=self._timeout)
            except ContainerError as error:
                if error.outcome is Outcome.NOT_DONE:
                    self.history.forget(operation)
                continue
            _, result = REPLY.unpack(reply)
            self.history.end(operation, {"write": None, "cas": bool(result)}.get(op, result))
            if op in ("read", "add"):
                seen[key] = result
            self.answered[number] += 1
            self._is_stopping.wait(PAUSE_S)


def _number_of(reply: bytes) -> int:
    return int(REPLY.unpack(reply)[0])
