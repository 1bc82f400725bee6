"""What the process of each of our containers holds, over a run: no more than when it was first in the same state.

A process counts what it has itself when a command asks it to: file descriptors, mapped files and Python objects by
type. Its publications, subscriptions (with an image) and counters are those that its driver has for it. Two counts are
compared when they are of the same process in the same role, with nothing under way: all commands answered, no timer or
relay to come, and no session open but those of the load clients.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from container.client.client_context import ClientContext
from container.files.cnc_file import CounterRecord
from container.testing.processes.local_cluster import CounterType, LocalMember
from container.testing.processes.process import wait_until
from tests.resources import grown, read_holdings
from tests.soak.checks import read_journal
from tests.soak.ledger import JournalRecord, Kind
from tests.soak.services import journals

# A driver and a client library linger for some seconds before they let go of what is closed; the session of a client
# that died is closed after 10 s.
SETTLE_LIMIT_S = 60.0
ANSWER_LIMIT_S = 30.0

KINDS = ("publications", "subscriptions", "counters", "mapped files", "file descriptors", "Python objects")
_LIVED = {
    Kind.SESSION_OPEN: "sessions opened",
    Kind.SESSION_CLOSE: "sessions closed",
    Kind.SNAPSHOT: "snapshots",
    Kind.ROLE: "role changes",
}
# Name of the counter, then registration id, session id, stream id and channel of its stream.
_EGRESS_LABEL = re.compile(rf": \d+ -?\d+ {ClientContext.egress_stream_id} aeron:udp")
_PUBLISHER_LIMIT, _SUBSCRIBER_POSITION = 1, 4  # types of the counters that a driver has for each of them


class State(NamedTuple):
    """Which process it is, and its role: counts are compared within one state."""

    member_id: int
    pid: int
    role: str


@dataclass(frozen=True)
class Holdings:
    """What a process held at a log position."""

    state: State
    log_position: int
    sessions: int
    counts: dict[str, int]
    objects: Counter[str]
    labels: Counter[str]
    """Of the counters that the driver has for it."""

    def growth_since(self, first: Holdings) -> dict[str, int]:
        """Of which kinds there is more than then, and how much; a Python object counts by its type."""
        growth = {kind: self.counts[kind] - first.counts[kind] for kind in self.counts}
        growth["Python objects"] = sum(grown(first.objects, self.objects).values())
        return {kind: count for kind, count in growth.items() if count > 0}

    def is_equal(self, other: Holdings | None) -> bool:
        """Whether both hold the same."""
        return other is not None and (self.counts, self.objects) == (other.counts, other.objects)


class ResourceWatch:
    """Remembers the first holdings in each state, and compares all later ones with those."""

    def __init__(self) -> None:
        self.comparisons = 0
        #: By kind, how much more a process had than at first, after all waiting; 0 for each is as it should be.
        self.growth: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.findings: list[str] = []
        self._first: dict[State, Holdings] = {}
        self._lived: dict[State, Counter[str]] = {}
        self._numbers = itertools.count(1)

    @property
    def processes(self) -> int:
        """How many processes were compared with themselves."""
        return len({(state.member_id, state.pid) for state in self._lived})

    @property
    def lived(self) -> Counter[str]:
        """What all processes went through between their first and their last count in one role."""
        longest: dict[int, Counter[str]] = {}
        for state, lived in self._lived.items():
            longest[state.pid] = max(longest.get(state.pid, Counter()), lived, key=Counter.total)
        total = Counter(dict.fromkeys(_LIVED.values(), 0))
        for lived in longest.values():
            total.update(lived)
        return total

    def measure(self, members: Sequence[LocalMember], session_count: int, ask: Callable[[int], None]) -> None:
        """Compare what members hold with what they held first in the same state, or remember it as that.

        Args:
            members: ours, running.
            session_count: how many sessions are open when nothing is left of clients that went away.
            ask: lets the members write down what they hold, under this number.

        Raises:
            TimeoutError: a member does not answer, sessions stay open, or a first count does not come twice.
        """
        last: dict[LocalMember, Holdings] = {}
        pending = list(members)

        def settle() -> bool:
            number = next(self._numbers)
            ask(number)
            for member in list(pending):
                held = _holdings(member, number)
                if held.sessions == session_count and self._is_done(held, last.get(member)):
                    pending.remove(member)
                    self._note(member, held)
                last[member] = held
            return not pending

        try:
            wait_until(settle, SETTLE_LIMIT_S, "all containers to hold what they held at first")
        except TimeoutError:
            for member in pending:
                self._tell(member, last[member], session_count)

    def _is_done(self, held: Holdings, previous: Holdings | None) -> bool:
        """Whether it is the first of its state and has come twice, or has not grown since the first."""
        first = self._first.get(held.state)
        return held.is_equal(previous) if first is None else not held.growth_since(first)

    def _note(self, member: LocalMember, held: Holdings) -> None:
        first = self._first.setdefault(held.state, held)
        if first is not held:
            self.comparisons += 1
            self._lived[held.state] = _lived_between(read_journal(journals(member.node.base_dir)[-1]), first, held)

    def _tell(self, member: LocalMember, held: Holdings, session_count: int) -> None:
        first = self._first.get(held.state)
        if held.sessions != session_count:
            raise TimeoutError(f"{held.state}: {held.sessions} sessions stay open, {session_count} are of clients")
        if first is None:
            raise TimeoutError(f"{held.state}: what it holds changes all the time, and nothing is under way")
        self._note(member, held)
        growth = held.growth_since(first)
        for kind, count in growth.items():
            self.growth[kind] = max(self.growth[kind], count)
        self.findings.append(
            f"{held.state} has grown by {growth} in {dict(self._lived[held.state])}: "
            f"{grown(first.objects, held.objects)} {grown(first.labels, held.labels)}"
        )


def _lived_between(records: Sequence[JournalRecord], first: Holdings, last: Holdings) -> Counter[str]:
    passed = (record for record in records if first.log_position < record.position <= last.log_position)
    return Counter(name for record in passed if (name := _LIVED.get(Kind(record.kind))) is not None)


def _holdings(member: LocalMember, number: int) -> Holdings:
    pid = member.service.pid
    what = f"member {member.member_id} to write down what it holds, number {number}"
    told = wait_until(lambda: read_holdings(member.node.base_dir, pid, number), ANSWER_LIMIT_S, what, [member.service])
    counters = _owned_counters(member)
    owned = Counter(counter.type_id for counter in counters)
    objects: Counter[str] = Counter(told["objects"])
    counts = {
        "publications": owned[_PUBLISHER_LIMIT],
        "subscriptions": owned[_SUBSCRIBER_POSITION],
        "counters": owned.total(),
        "mapped files": told["mapped files"],
        "file descriptors": told["open files"],
    }
    state = State(member.member_id, pid, told["role"])
    labels = Counter(counter.label for counter in counters)
    return Holdings(state, told["log_position"], told["sessions"], counts, objects, labels)


def _owned_counters(member: LocalMember) -> list[CounterRecord]:
    """The counters that the driver has for the container's client, and those of all egress.

    Consensus module and container have each client's egress publication in common, and the driver has its counters for
    the one who asked first: that is one or the other, by the way in which the member came to lead.
    """
    errors = member.node.counter(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0)
    assert errors is not None, f"member {member.member_id} has no counter of its container's errors"
    return [
        counter
        for counter in member.node.counters()
        if counter.owner_id == errors.owner_id or _EGRESS_LABEL.search(counter.label)
    ]
