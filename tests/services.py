"""Small services that tests share, good and wrong, and lives that a member leads with them.

Other processes import this module as well, and need no pytest for that.
"""

from __future__ import annotations

import ctypes
import datetime
import locale
import logging
import os
import random
import sys
import threading
import time
from typing import ClassVar

import msgspec

import container
from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)
from container.testing.memory.memory_member import MemoryMember
from examples.auction_service import OpenAuction, PlaceBid
from examples.ledger_service import TRANSFER


class Quiet(ClusteredService):
    """Does nothing."""

    def on_session_message(self, *_arguments: object) -> None:
        """Do nothing."""


class Echo(ClusteredService):
    """Sends each message back."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(buffer)


class Counter(ClusteredService):
    """Adds up numbers and answers with the sum; what clients ask it to do wrong, it does."""

    def __init__(self) -> None:
        self.total = 0
        self.restored: int | None = None

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        if snapshot_image is not None:
            self.total = self.restored = container.read_snapshot(snapshot_image, int)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        text = bytes(buffer)
        if text == b"raise":
            raise ValueError("as asked")
        if text.startswith(b"block "):
            ctypes.CDLL(None).usleep(int(text[6:]) * 1_000_000)
        elif text.startswith(b"hold "):
            ctypes.PyDLL(None).usleep(int(text[5:]) * 1_000_000)  # with the GIL
        else:
            self.total += int(text)
        if session is not None:
            session.send(b"%d" % self.total)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, self.total)


# --- a good service, and what can be wrong with one like it


class Totals(msgspec.Struct):
    """The state of the services below."""

    total: int = 0
    names: list[str] = []


class Adding(ClusteredService):
    """Good: adds up the lengths of messages, keeps them in snapshots, and answers with the total."""

    def __init__(self) -> None:
        self.state = Totals()
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.state = container.read_snapshot(snapshot_image, Totals)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, self.state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.add(bytes(buffer))
        if session is not None:
            session.send(b"%d" % self.state.total)

    def add(self, payload: bytes) -> None:
        """Change the state as a message asks for."""
        self.state.total += len(payload)

    def schedule(self, correlation_id: int, delay: int) -> None:
        """Schedule a timer that much after the cluster's time: repeat the request until it is made."""
        while not self.cluster.schedule_timer(correlation_id, self.cluster.time + delay):
            self.cluster.idle()


class Scheduling(Adding):
    """Good: schedules one timer for each message."""

    def add(self, payload: bytes) -> None:
        self.state.total += 1
        self.schedule(self.state.total, 500)


class Named(Adding):
    """Good, as README's: takes nothing but name+digits."""

    def add(self, payload: bytes) -> None:
        name, plus, digits = payload.partition(b"+")
        if plus and name.isalnum() and digits.isdigit():
            self.state.total += int(digits) % 1_000


class Printing(Adding):
    """Good: prints what it likes."""

    def add(self, payload: bytes) -> None:
        super().add(payload)
        print("no line", end="")


class Joining(Adding):
    """Good, as far as states show: waits for its thread."""

    def add(self, payload: bytes) -> None:
        thread = threading.Thread(target=super().add, args=[payload])
        thread.start()
        thread.join()


class Forgetful(Adding):
    """Wrong: a part of its state is in no snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1

    def add(self, payload: bytes) -> None:
        self.state.total += self.factor * len(payload)
        self.factor += 1


class Shared(Adding):
    """Wrong: keeps state in its class, which a process that continues does not forget."""

    seen: ClassVar[list[bytes]] = []

    def add(self, payload: bytes) -> None:
        self.seen.append(payload)
        self.state.total = len(self.seen)


class Impatient(Adding):
    """Wrong: asks for its timer once, whatever comes of that."""

    def add(self, payload: bytes) -> None:
        self.cluster.schedule_timer(1, self.cluster.time + 10)


class Trusting(Adding):
    """Wrong: raises for what is not a number."""

    def add(self, payload: bytes) -> None:
        self.state.total += int(payload)


class Misspelt(Adding):
    """Wrong: raises what cannot be printed."""

    def add(self, payload: bytes) -> None:
        raise ValueError("\ud800")


class Leaving(Adding):
    """Wrong: exits where it is made."""

    def __init__(self) -> None:
        raise SystemExit(0)


class Exiting(Adding):
    """Wrong: ends its process where the clock is another."""

    def add(self, payload: bytes) -> None:
        if datetime.date.today().year == 2041:
            print("half a line", end="")
            print("the end", file=sys.stderr, flush=True)
            os._exit(3)


class Chatty(Adding):
    """Wrong: what it answers depends on what it kept since it was started."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.answers += 1
        if session is not None:
            session.send(b"answer %d" % self.answers)


class Lucky(Adding):
    """Wrong: answers by chance."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(b"%d" % random.getrandbits(64))


class Sorting(Adding):
    """Wrong: the order of a set of texts is another in each process."""

    def add(self, payload: bytes) -> None:
        self.state.names = list({*self.state.names, payload.decode()})


class HashAnswer(Adding):
    """Wrong: the state is right, an answer is not."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        assert session is not None
        session.send(b"%d" % hash(bytes(buffer)))


class HashTimer(Adding):
    """Wrong: the state is right, a timer is not."""

    def add(self, payload: bytes) -> None:
        super().add(payload)
        self.schedule(abs(hash(payload)), 60_000)


class LocaleTotal(Adding):
    """Wrong: reads numbers as the language does."""

    def add(self, payload: bytes) -> None:
        locale.setlocale(locale.LC_ALL, "")
        self.state.total += len(locale.setlocale(locale.LC_CTYPE))


class LocalTime(Adding):
    """Wrong: the hour of the day depends on the time zone."""

    def add(self, payload: bytes) -> None:
        self.state.total = datetime.datetime.fromtimestamp(1_700_000_000).hour


class Clocked(Adding):
    """Wrong: looks at a clock of its own."""

    def add(self, payload: bytes) -> None:
        self.state.total = time.time_ns()


class Year(Adding):
    """Wrong: depends on the year, which is the same in all runs of today."""

    def add(self, payload: bytes) -> None:
        self.state.total += datetime.datetime.now(datetime.UTC).year


class Today(Adding):
    """Wrong: depends on the day."""

    def add(self, payload: bytes) -> None:
        self.state.names = [str(datetime.date.today())]


class Hour(Adding):
    """Wrong: depends on the hour, of either clock."""

    def add(self, payload: bytes) -> None:
        self.state.total = int(time.time()) // 3_600


class Patient(Adding):
    """Wrong: gives up what takes long, by a clock that measures durations."""

    def __init__(self) -> None:
        super().__init__()
        self.last = time.monotonic()

    def add(self, payload: bytes) -> None:
        now = time.monotonic()
        if now - self.last < 600:
            self.state.total += len(payload)
        self.last = now


class Racing(Adding):
    """Wrong: two threads add to one list, in an order that nothing decides."""

    def add(self, payload: bytes) -> None:
        names: list[str] = []

        def work(name: str) -> None:
            for _ in range(10_000):
                if not names or names[-1] != name:
                    names.append(name)

        threads = [threading.Thread(target=work, args=[name]) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.state.names = names


class Versioned(Adding):
    """Wrong: depends on Python's minor version."""

    def add(self, payload: bytes) -> None:
        self.state.total += sys.hexversion >> 16 & 0xFF


class SystemToday(Adding):
    """Wrong: depends on the day, by the system's clock, which the kit cannot set."""

    def add(self, payload: bytes) -> None:
        import numpy as np

        self.state.names = [str(np.datetime64("today"))]


class Limited(Adding):
    """Wrong: reads a setting of its own from the environment where it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = int(os.environ.get("ORDER_LIMIT", "100"))

    def add(self, payload: bytes) -> None:
        self.state.total = min(self.state.total + len(payload), self.limit)


class Logging(Adding):
    """Reads a level of logging where it is made, which must be one that there is."""

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("orders").setLevel(os.getenv("ORDER_LOG_LEVEL", "WARNING"))


class ProcessorsOnce(Adding):
    """Wrong: goes by the number of processors."""

    def __init__(self) -> None:
        super().__init__()
        self.processors = os.cpu_count() or 1

    def add(self, payload: bytes) -> None:
        self.state.total += self.processors


class Counting(Adding):
    """Wrong: keeps a number of each message."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: list[int] = []

    def add(self, payload: bytes) -> None:
        super().add(payload)
        self.totals.append(self.state.total)


class Marking(Adding):
    """Wrong: keeps a byte of each message."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = bytearray()

    def add(self, payload: bytes) -> None:
        super().add(payload)
        self.marks.append(len(payload) % 256)


# --- lives


class Stateless(ClusteredService):
    """Keeps a state, and takes no snapshot of it."""

    def __init__(self) -> None:
        self.count = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.count += 1


class Unheard(Adding):
    """Has a callback with a misspelt name, which is never called."""

    def on_timer_evnt(self, correlation_id: int, timestamp: int) -> None:
        self.totals = Totals()


def life(member: MemoryMember) -> None:
    """Two clients, one of which goes, and messages of all kinds of lengths."""
    first, second = member.open_session(), member.open_session()
    for number in range(30):
        first.send(b"a%d" % (number % 7))
        if second.is_open:
            second.send(b"b" * number)
        if number == 20:
            second.close(CloseReason.TIMEOUT)
        member.advance(10)


def opening(member: MemoryMember) -> None:
    """A client that sends nothing."""
    member.open_session()


def numbers(member: MemoryMember) -> None:
    """Messages that are numbers."""
    client = member.open_session()
    for number in range(30):
        client.send(b"%d" % number)


def coming_and_going(member: MemoryMember) -> None:
    """A client that leaves nothing behind."""
    client = member.open_session()
    for _ in range(10):
        client.send(b"hello")
    client.close()


encode = msgspec.msgpack.Encoder().encode


def bids(member: MemoryMember) -> None:
    """Auctions that are opened, bid for and closed by their timers."""
    client, other = member.open_session(b"ada"), member.open_session(b"bob")
    for number in range(5):
        client.send(encode(OpenAuction(2 * number, f"lot {number}", 100, 1_000)))
        for price in range(4):
            other.send(encode(PlaceBid(2 * number + 1, number + 1, "bob", 100 * price)))
            member.advance(200)


def transfers(member: MemoryMember) -> None:
    """Transfers between a few accounts."""
    client = member.open_session()
    for number in range(1, 40):
        client.send(TRANSFER.pack(number, number % 3, number % 5, number))
