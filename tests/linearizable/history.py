"""Records what clients ask of registers, and when: the history that a checker decides about.

A history is a file of JSON lines, one for each operation::

    {"client": 1, "key": "r3", "op": "cas", "arguments": [5, 7], "result": true, "call": 1200, "return": 4100}

``op`` is ``read``, ``write`` of a value, ``add`` of a number, or ``cas``: the value that is expected and the one that
takes its place. Each key is a register of 64 bits with sign, which holds 0 at first; sums wrap. ``result`` is the value
for ``read``, the sum for ``add``, a bool for ``cas``, and null where the client was given none, as for ``write``.
``call`` and ``return`` are in ns, of one clock for all clients. ``return`` is null where the outcome is unknown: the
operation may be done at any time after its call, or never.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

type Op = Literal["read", "write", "cas", "add"]


@dataclass(slots=True, eq=False)
class Operation:
    """A client's request, and its result."""

    client: int
    key: str
    op: Op
    arguments: tuple[int, ...]
    call_ns: int
    result: int | bool | None = None
    return_ns: int | None = None
    """None while it is under way, and where its outcome is unknown."""
    was_done: bool = True
    """False if it was certainly not done, and so does not belong to the history."""

    def line(self) -> str:
        """Its line of the file."""
        values = (self.client, self.key, self.op, self.arguments, self.result, self.call_ns, self.return_ns)
        names = ("client", "key", "op", "arguments", "result", "call", "return")
        return json.dumps(dict(zip(names, values, strict=True)))


class History:
    """The operations of any number of clients, each of which may have a thread of its own.

    Args:
        now_ns: the clock.
    """

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._operations: list[Operation] = []

    def begin(self, client: int, key: str, op: Op, *arguments: int) -> Operation:
        """Note that a client asks this now. It is of unknown outcome until :meth:`end`."""
        operation = Operation(client, key, op, arguments, self._now_ns())
        self._operations.append(operation)
        return operation

    def end(self, operation: Operation, result: int | bool | None = None) -> None:
        """Note that its client has the answer now."""
        operation.result = result
        operation.return_ns = self._now_ns()

    def forget(self, operation: Operation) -> None:
        """Note that it was not done and will not be."""
        operation.was_done = False

    def extend(self, other: History) -> None:
        """Take in what another one has, of other keys: its clock may be another one."""
        self._operations += other

    def __iter__(self) -> Iterator[Operation]:
        return (each for each in list(self._operations) if each.was_done)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def unknown(self) -> int:
        """How many operations have no outcome."""
        return sum(each.return_ns is None for each in self)

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{each.line()}\n" for each in self)
