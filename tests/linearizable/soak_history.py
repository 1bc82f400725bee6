"""The history of a soak's clients: what they add to accounts and get of them, as registers.

A soak may last for days, so its history is checked whenever the cluster rests, and starts again with the balances
there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tests.linearizable import checker
from tests.linearizable.history import History, Operation
from tests.soak.ledger import ACCOUNTS_OF_RELAYS, Op, wrapped

FILE = checker.ROOT / "build" / "soak" / "history.jsonl"
_SNAPSHOT = 0
"""The client that stands for the snapshot that all members agree on."""


class SoakHistory:
    """Requests of the sequenced ledger's clients, by client and sequence.

    Args:
        path: of the file that is left, the last one that was checked; one that fails stays beside it.
        limit_s: seconds for the verdict.
    """

    def __init__(self, path: Path = FILE, *, limit_s: float = checker.LIMIT_S) -> None:
        self.checked = 0
        """Operations whose history is linearizable."""
        self._path, self._limit_s = path, limit_s
        self._history = History()
        self._under_way: dict[tuple[int, int], Operation] = {}
        self._values: dict[tuple[int, int], int] = {}

    @classmethod
    def if_possible(cls, say: Callable[[str], None]) -> Self | None:
        """Return a history, or None where this machine cannot check it, and say why."""
        try:
            checker.build()
        except checker.NoCheckerError as error:
            say(f"without histories of accounts: {error}")
            return None
        return cls()

    def begin(self, client: int, sequence: int, op: int, key: int, value: int) -> None:
        """Note a command, if it is one for an account that no relay adds to."""
        if key < ACCOUNTS_OF_RELAYS:
            return
        if op == Op.ADD:
            self._under_way[client, sequence] = self._history.begin(client, str(key), "add", value)
        elif op == Op.GET:
            self._under_way[client, sequence] = self._history.begin(client, str(key), "read")

    def take_value(self, client: int, sequence: int, value: int) -> None:
        """Note what a GET was answered, which comes ahead of its acknowledgement; later it is too late."""
        if (client, sequence) in self._under_way:
            self._values[client, sequence] = wrapped(value)

    def end(self, client: int, sequence: int) -> None:
        """Note that a command is acknowledged."""
        operation = self._under_way.pop((client, sequence), None)
        if operation is not None:
            self._history.end(operation, self._values.pop((client, sequence), None))

    def check(self, accounts: Mapping[int, int]) -> str:
        """Check the history so far, and continue from these values; return the checker's verdict.

        Args:
            accounts: what all members have now, while no client has a command under way.

        Raises:
            AssertionError: no order explains it; the file with all of it stays.
        """
        history, values = self._history, {str(key): value for key, value in accounts.items()}
        keys = {each.key for each in history}
        for key in keys:
            history.end(history.begin(_SNAPSHOT, key, "read"), values.get(key, 0))
        own_path = self._path.with_stem(f"{self._path.stem}-{os.getpid()}")  # another soak may run at the same time
        history.write(own_path)
        verdict = checker.check(own_path, limit_s=self._limit_s)
        assert verdict.outcome != "illegal", f"{verdict.text}\nthe history: {own_path}"
        own_path.replace(self._path)
        if verdict.outcome == "ok":
            self.checked += len(history)
        self._history = History()
        for key in keys:
            self._history.end(self._history.begin(_SNAPSHOT, key, "write", values.get(key, 0)))
        return verdict.text
