"""Requests over our clients, one process each, beside ``benchmarks/java/RequestClient.java``: same lines, same answers.

On standard input come the lines

- ``trips N``: N round trips, one after the other; answered by JSON with ``p50_us`` and ``p99_us``;
- ``idle SECONDS MAX_PARK_US``: an idle session; answered by ``HELD`` at the end. The asyncio client waits as it does by
  default, the others in a polling loop whose pauses grow to so many microseconds;
- ``requests N``: so many requests at once that may be sent again; answered by ``SENT`` when all are on their way, and
  when all have ended by JSON: ``answered``, ``failed``, ``resent``, and by the monotonic clock, in nanoseconds, when a
  new leader was heard of last (``leader_ns``), and when the median and the last request ended.

Arguments: asyncio or blocking, and the settings of the client as JSON.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

from container.client import AeronCluster, AsyncAeronCluster, EgressListener, Request
from container.errors import OutcomeUnknownError
from container.transport.idle_strategy import BackoffIdleStrategy

LIMIT_S = 60.0
REST_S = 0.02
_MESSAGE = struct.Struct("<q24x")


def key_of(payload: bytes) -> int:
    """The number that a message begins with."""
    number: int = _MESSAGE.unpack(payload)[0]
    return number


class Leaders(EgressListener):
    """When a new leader was heard of last."""

    leader_ns = 0

    def on_new_leader(self, *event: Any) -> None:
        self.leader_ns = time.monotonic_ns()


def say(answer: str | dict[str, float]) -> None:
    """Answer a line."""
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)


def spans(durations_ns: list[int]) -> dict[str, float]:
    """The figures of round trips."""
    ordered = sorted(durations_ns)
    return {"p50_us": ordered[len(ordered) // 2] / 1e3, "p99_us": ordered[len(ordered) * 99 // 100] / 1e3}


def outcome(ends_ns: list[int], answered: int, resent: int, leaders: Leaders) -> dict[str, float]:
    """The figures of requests."""
    ordered = sorted(ends_ns)
    return {
        "answered": answered,
        "failed": len(ends_ns) - answered,
        "resent": resent,
        "leader_ns": leaders.leader_ns,
        "p50_ns": ordered[len(ordered) // 2],
        "last_ns": ordered[-1],
    }


async def serve_asyncio(settings: dict[str, Any]) -> None:
    """Until the input ends."""
    leaders = Leaders()
    async with AsyncAeronCluster.connect(**settings, correlate=key_of, resend=True, listener=leaders) as client:
        say("READY")
        key = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, number, *_ = line.split()
            if what == "trips":
                durations_ns = []
                for _ in range(int(number)):
                    key += 1
                    begin_ns = time.monotonic_ns()
                    await client.request(_MESSAGE.pack(key), key=key)
                    durations_ns.append(time.monotonic_ns() - begin_ns)
                say(spans(durations_ns))
            elif what == "idle":
                await asyncio.sleep(float(number))
                say("HELD")
            else:
                say(await request_at_once(client, range(key + 1, key + 1 + int(number)), leaders))
                key += int(number)


async def request_at_once(client: AsyncAeronCluster, keys: range, leaders: Leaders) -> dict[str, float]:
    """All at once; what became of them."""
    resent = client.request_counts.resent
    answered = 0
    ends_ns = []

    async def ask(key: int) -> None:
        nonlocal answered
        try:
            await client.request(_MESSAGE.pack(key), key=key)
            answered += 1
        except OutcomeUnknownError:
            pass
        ends_ns.append(time.monotonic_ns())

    async with asyncio.TaskGroup() as tasks:
        for key in keys:
            tasks.create_task(ask(key))
        while client.request_counts.in_flight < len(keys):
            await asyncio.sleep(0.001)
        say("SENT")
    return outcome(ends_ns, answered, client.request_counts.resent - resent, leaders)


class Blocking:
    """A loop that polls, with requests in flight."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._leaders = Leaders()
        self._client = self._connect()
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._key = 0

    def _connect(self, **more: Any) -> AeronCluster:
        return AeronCluster.connect(**self._settings, **more, correlate=key_of, resend=True, listener=self._leaders)

    def serve(self) -> None:
        """Until the input ends."""
        threading.Thread(target=self._read, daemon=True).start()
        say("READY")
        while line := self._await_line():
            what, number, *more = line.split()
            if what == "trips":
                say(self._round_trips(int(number)))
            elif what == "idle":
                say(self._hold(float(number), int(more[0])))
            else:
                say(self._request(int(number)))
        self._client.close()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put("")

    def _await_line(self) -> str:
        while True:
            self._client.poll_egress()
            try:
                return self._lines.get(timeout=REST_S)
            except Empty:
                pass

    def _round_trips(self, trips: int) -> dict[str, float]:
        durations_ns = []
        for _ in range(trips):
            self._key += 1
            begin_ns = time.monotonic_ns()
            self._client.request(_MESSAGE.pack(self._key), key=self._key)
            durations_ns.append(time.monotonic_ns() - begin_ns)
        return spans(durations_ns)

    def _hold(self, seconds: float, max_park_us: int) -> str:
        # An idle strategy belongs to a client: one of its own for this.
        end = time.monotonic() + seconds
        self._client.close()
        with self._connect(idle_strategy=BackoffIdleStrategy(10, 20, 1_000, max_park_us * 1_000)) as client:
            while time.monotonic() < end:
                client.idle(client.poll_egress())
        self._client = self._connect()
        return "HELD"

    def _request(self, count: int) -> dict[str, float]:
        client = self._client
        resent = self._resent()
        waiting: list[Request] = []
        for _ in range(count):
            self._key += 1
            waiting.append(client.begin_request(_MESSAGE.pack(self._key), key=self._key))
        say("SENT")
        ends_ns: list[int] = []
        answered = 0
        while waiting:
            work_count = client.poll_egress()
            done = [request for request in waiting if request.is_done]
            if done:
                ends_ns += [time.monotonic_ns()] * len(done)
                answered += sum(request.error is None for request in done)
                waiting = [request for request in waiting if not request.is_done]
            client.idle(work_count)
        return outcome(ends_ns, answered, self._resent() - resent, self._leaders)

    def _resent(self) -> int:
        counts = self._client.request_counts
        assert counts is not None
        return counts.resent


def main(kind: str, settings: str) -> None:
    """Connect and serve."""
    given = json.loads(settings) | {"message_timeout": LIMIT_S, "new_leader_timeout": LIMIT_S}
    if kind == "asyncio":
        asyncio.run(serve_asyncio(given))
    else:
        Blocking(given).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
