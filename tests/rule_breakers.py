"""Services that break a rule of docs/service.md, each by the row of its table; other processes import this module."""

from __future__ import annotations

import datetime
import getpass
import itertools
import locale
import os
import platform
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

import container
from container.api import (
    ClientSession,
    Cluster,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)
from tests.services import (
    Adding,
    Clocked,
    Counting,
    Forgetful,
    HashAnswer,
    Impatient,
    LocaleTotal,
    LocalTime,
    Lucky,
    Patient,
    Racing,
    Shared,
    Sorting,
    Trusting,
    Year,
)

NODE = socket.gethostname()
VARIABLES = dict(os.environ)


class Numbering(Adding):
    """Adds a number to its state with each message."""

    def number(self) -> int:
        """A number that is wrong."""
        return 0

    def add(self, payload: bytes) -> None:
        self.state.total += self.number()


class Unchecked(Adding):
    """Answers each message, also one that no client waits for."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.add(bytes(buffer))
        session.send(b"%d" % self.state.total)  # type: ignore[union-attr]


class Monotonic(Numbering):
    """Wrong: keeps the time of its background work, in days."""

    now_ns = 0

    def do_background_work(self, now_ns: int) -> int:
        self.now_ns = now_ns
        return 0

    def number(self) -> int:
        return self.now_ns // 86_400_000_000_000


class Slowness(Monotonic):
    """Wrong: depends on whether its background work ever had to wait."""

    was_slow = False

    def do_background_work(self, now_ns: int) -> int:
        self.was_slow |= 0 < self.now_ns < now_ns - 10_000_000
        return super().do_background_work(now_ns)

    def number(self) -> int:
        return int(self.was_slow)


class Busy(Numbering):
    """Wrong: counts how often its background work was asked for."""

    count = 0

    def do_background_work(self, now_ns: int) -> int:
        self.count += 1
        return 0

    def number(self) -> int:
        return self.count


class Seeded(Numbering):
    """Wrong: a generator of its own has a seed by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random()

    def number(self) -> int:
        return self.random.getrandbits(32)


class Identified(Adding):
    """Wrong: answers with a random id."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(os.urandom(16))


class Drawing(Numbering):
    """Wrong: draws from the generator that all of numpy shares."""

    def number(self) -> int:
        import numpy

        return int(numpy.random.randint(1_000_000))


class Dated(Numbering):
    """Wrong: asks numpy for the day."""

    def number(self) -> int:
        import numpy

        return int(numpy.datetime64("today").astype(int))


class Variable(Numbering):
    """Wrong: reads a variable."""

    def number(self) -> int:
        return len(os.environ.get("HOME", ""))


class VariableOnce(Numbering):
    """Wrong: has read a variable on import."""

    def number(self) -> int:
        return len(VARIABLES.get("HOSTNAME", ""))


class Arguments(Numbering):
    """Wrong: looks at its process's arguments."""

    def number(self) -> int:
        return len(sys.argv)


class Home(Numbering):
    """Wrong: knows its user's home."""

    def number(self) -> int:
        return len(os.path.expanduser("~"))  # noqa: PTH111


class HostOnce(Numbering):
    """Wrong: has looked up its host on import."""

    def number(self) -> int:
        return len(NODE)


class Host(Numbering):
    """Wrong: knows its host, of which Python remembers the name."""

    def number(self) -> int:
        return len(platform.node())


class System(Numbering):
    """Wrong: knows its host in another way."""

    def number(self) -> int:
        return len(os.uname().nodename)


class User(Numbering):
    """Wrong: knows its user."""

    def number(self) -> int:
        return len(getpass.getuser())


class Resources(Numbering):
    """Wrong: looks at how much memory its process has."""

    def number(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Processors(Numbering):
    """Wrong: counts processors."""

    def number(self) -> int:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0


class Language(Numbering):
    """Wrong: asks for the language."""

    def number(self) -> int:
        return len(str(locale.getlocale()))


class Collating(Adding):
    """Wrong: sorts by the language."""

    def add(self, payload: bytes) -> None:
        self.state.names = sorted({*self.state.names, payload.decode()}, key=lambda name: locale.strxfrm(name))


class Reading(Numbering):
    """Wrong: reads a file."""

    def number(self) -> int:
        return len(Path(__file__).read_bytes())


class Looking(Numbering):
    """Wrong: asks whether a file is there."""

    def number(self) -> int:
        return int(Path("/no/such/file").exists())


class Mapping(Numbering):
    """Wrong: reads a file through C."""

    def number(self) -> int:
        import numpy

        return int(numpy.fromfile(__file__, dtype="u1", count=10).sum())


class Asking(Numbering):
    """Wrong: asks the network."""

    def number(self) -> int:
        return len(socket.getaddrinfo("127.0.0.1", 80))


class Running(Numbering):
    """Wrong: asks another process."""

    def number(self) -> int:
        return subprocess.run([sys.executable, "-S", "-c", ""], check=False).returncode


class Threading(Numbering):
    """Wrong: has a thread work for it."""

    def number(self) -> int:
        found: list[int] = []
        thread = threading.Thread(target=found.append, args=[1])
        thread.start()
        thread.join()
        return sum(found)


class Ordered(Adding):
    """Wrong: goes through a set of numbers."""

    def add(self, payload: bytes) -> None:
        for number in {len(payload), 8, 16, 1_000}:
            self.state.total = number


class Leading(Numbering):
    """Wrong: knows whether it leads."""

    def number(self) -> int:
        return int(self.cluster.role)


class Placed(Numbering):
    """Wrong: knows where its files are."""

    def number(self) -> int:
        return len(str(self.cluster.context.cluster_dir))


class Configured(Numbering):
    """Wrong: knows its member's settings."""

    def number(self) -> int:
        return len(self.cluster.context.settings.aeron_dir)


class Member(Numbering):
    """Wrong: knows its member's id."""

    def number(self) -> int:
        return self.cluster.member_id


class Streamed(Adding):
    """Wrong: knows where the log came from."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.state.total += header.session_id + header.stream_id


class Endless(Adding):
    """Wrong: offers until it is heard."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        while session is not None and session.offer(b"x") < 0:
            self.cluster.idle()


class Insistent(Adding):
    """Wrong: offers until it is heard, without an idle."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        while session is not None and session.offer(b"x") < 0:
            pass


class Waking(Adding):
    """Wrong: schedules its timers again when it starts."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.schedule(1, 1_000)


class Visited(Adding):
    """Wrong: keeps each session that ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[int, bytes] = {}

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.sessions[session.id] = bytes(1_000)


class Numbered(Adding):
    """Wrong: has a number of its own, which the class counts."""

    numbers: ClassVar[Any] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.own = next(self.numbers)

    def add(self, payload: bytes) -> None:
        self.state.total += self.own


class Wall(Numbering):
    """Wrong: has looked at the clock when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.year = datetime.datetime.now(datetime.UTC).year

    def number(self) -> int:
        return self.year


class Processed(Numbering):
    """Wrong: measures its own time."""

    def number(self) -> int:
        return time.process_time_ns()


class Tally(msgspec.Struct):
    """The state of the services below."""

    total: int = 0
    counts: dict[str, int] = {}
    seen: set[str] = set()


class Refilling(Adding):
    """Wrong: sorts its names where it starts, and not where they come."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.tally.counts = dict(sorted(container.read_snapshot(snapshot_image, dict[str, int]).items()))

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, self.tally.counts)

    def add(self, payload: bytes) -> None:
        name = payload.hex()
        self.tally.counts[name] = self.tally.counts.get(name, 0) + 1


class Unordered(Refilling):
    """Wrong: has a set in its state."""

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, self.tally)

    def add(self, payload: bytes) -> None:
        self.tally.seen.add(payload.hex())


class Mistyped(Adding):
    """Wrong: has half a number where a whole one is declared."""

    def add(self, payload: bytes) -> None:
        self.state.total += len(payload) / 2  # type: ignore[assignment]


class Planted(NamedTuple):
    """A service that breaks a rule, and the checks that find it."""

    service: type[Adding]
    checks: str


# By the rows of the table in docs/service.md.
TABLE: dict[str, list[Planted]] = {
    "the clock, in callbacks and when the service is created": [
        Planted(Clocked, "calls"),
        Planted(Processed, "calls"),
        Planted(Year, "calls environments"),
        Planted(Patient, "calls environments"),
        Planted(Wall, "environments"),
        Planted(Dated, "calls"),
    ],
    "`now_ns` of `do_background_work`, or the number of its calls": [
        Planted(Monotonic, "replays restarts simulations"),
        Planted(Slowness, "replays restarts simulations"),
        Planted(Busy, "replays restarts simulations"),
    ],
    "random numbers": [
        Planted(Lucky, "calls restarts"),
        Planted(Identified, "calls restarts"),
        Planted(Seeded, "restarts"),
        Planted(Drawing, "calls restarts"),
    ],
    "the environment: variables, the process's arguments, the names of host and user, the machine's resources": [
        Planted(Variable, "calls"),
        Planted(VariableOnce, "environments"),
        Planted(Arguments, "environments"),
        Planted(Home, "calls"),
        Planted(Host, "calls"),
        Planted(HostOnce, "environments"),
        Planted(System, "calls"),
        Planted(User, "calls environments"),
        Planted(Resources, "calls"),
        Planted(Processors, "calls"),
    ],
    "the language and the time zone": [
        Planted(Language, "calls"),
        Planted(Collating, "calls"),
        Planted(LocaleTotal, "calls environments"),
        Planted(LocalTime, "environments"),
    ],
    "files, the network, other processes": [
        Planted(Reading, "calls"),
        Planted(Looking, "calls"),
        Planted(Mapping, "calls"),
        Planted(Asking, "calls"),
        Planted(Running, "calls"),
    ],
    "threads": [Planted(Threading, "calls"), Planted(Racing, "calls environments")],
    "the order of a `set`, or `hash()`": [
        Planted(Ordered, "calls"),
        Planted(Sorting, "calls environments"),
        Planted(HashAnswer, "environments"),
    ],
    "values that differ between members: `cluster.role`, `cluster.member_id`, `cluster.context`, the log's "
    "ids in `header`": [
        Planted(Leading, "replays simulations"),
        Planted(Member, "simulations"),
        Planted(Placed, "replays simulations"),
        Planted(Configured, "replays simulations"),
        Planted(Streamed, "replays simulations"),
    ],
    "state that is not in the snapshot, or is kept in the class": [
        Planted(Forgetful, "replays restarts"),
        Planted(Shared, "replays restarts"),
        Planted(Numbered, "replays restarts"),
    ],
    "a message that makes a callback raise": [Planted(Trusting, "payloads")],
    "state that grows with each message or session": [Planted(Counting, "memory"), Planted(Visited, "memory")],
    "a use of `session` where it is None": [Planted(Unchecked, "simulations")],
    "a request to the cluster that is not repeated": [Planted(Impatient, "simulations")],
    "an offer to a client that is repeated endlessly": [
        Planted(Endless, "payloads"),
        Planted(Insistent, "payloads"),
    ],
    "a timer scheduled in `on_start`": [Planted(Waking, "replays restarts")],
    "a `dict` in the state, filled in another order after a restart": [Planted(Refilling, "replays")],
    "a `set` in the state, or a value whose type is not the declared one": [
        Planted(Unordered, "replays payloads"),
        Planted(Mistyped, "replays payloads"),
    ],
}

# What docs/service.md demands or forbids, sentence by sentence, with the rows of the table that it stands for.
SENTENCES = {
    "Use `timestamp`, not the clock.": "the clock, in callbacks and when the service is created",
    "Repeat a timer request, a close or a `cluster.offer` that returns False or a negative number, with "
    "`cluster.idle()` in between: all members must make the same requests.": (
        "a request to the cluster that is not repeated"
    ),
    "Never repeat `session.offer` endlessly: a client that is gone accepts nothing, and the loop would "
    "block all others.": "an offer to a client that is repeated endlessly",
    "Do not schedule them again in `on_start`, which cannot send anything.": "a timer scheduled in `on_start`",
    "A `dict` keeps its order, so each member, and each upgrade of an old state, must fill it in the same order.": (
        "a `dict` in the state, filled in another order after a restart"
    ),
    "A `set` is refused, because its order differs between members: use a dict with None as values, or a "
    "sorted list.": ("a `set` in the state, or a value whose type is not the declared one"),
    "Each value must have exactly its declared type, so that the loaded state equals the written one.": (
        "a `set` in the state, or a value whose type is not the declared one"
    ),
}

# By what the rules of docs/service.md say in bold: rows of the table, or none for what forbids nothing.
RULES: dict[str, list[str]] = {
    "The state depends on nothing but the events.": [
        "the clock, in callbacks and when the service is created",
        "`now_ns` of `do_background_work`, or the number of its calls",
        "random numbers",
        "the environment: variables, the process's arguments, the names of host and user, the machine's resources",
        "the language and the time zone",
        "files, the network, other processes",
        "threads",
        "the order of a `set`, or `hash()`",
        "values that differ between members: `cluster.role`, `cluster.member_id`, `cluster.context`, the "
        "log's ids in `header`",
    ],
    "Keep all state in the snapshot.": ["state that is not in the snapshot, or is kept in the class"],
    "Check client input, limit how much of it you keep, and answer bad input with an error.": [
        "a message that makes a callback raise",
        "state that grows with each message or session",
    ],
    "Check first whether `session` is None.": ["a use of `session` where it is None"],
    "Repeat a timer request, a close or a `cluster.offer` that returns False or a negative number": [
        "a request to the cluster that is not repeated"
    ],
    "Never repeat `session.offer` endlessly": ["an offer to a client that is repeated endlessly"],
    "The leader decides when a timer fires: at its deadline or later.": ["a timer scheduled in `on_start`"],
    "`buffer` and `header` stay valid as long as you refer to them.": [],
    "What a snapshot can hold": [
        "a `dict` in the state, filled in another order after a restart",
        "a `set` in the state, or a value whose type is not the declared one",
    ],
}
