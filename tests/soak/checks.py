"""What must hold after any run: journals agree, acknowledged commands are in them once, snapshots are equal."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from container.errors import ContainerError
from container.testing.processes.local_cluster import CounterType, LocalCluster, LocalMember
from container.testing.processes.process import wait_until
from container.testing.processes.recordings import read_snapshot_entries, recorded_messages
from tests.soak.ledger import JOURNAL_RECORD, JournalRecord, Kind, Ledger
from tests.soak.load_client import LoadClient, State
from tests.soak.services import MAX_SERVICE_COUNT, check_pending, journals

_STATE_CHANGES = frozenset({Kind.MESSAGE, Kind.RELAYED, Kind.TIMER, Kind.SESSION_OPEN, Kind.SESSION_CLOSE})
_SETTLE_LIMIT_S = 60.0


@dataclass
class Findings:
    """What a check found: how much was compared, and what was wrong, as sentences."""

    events: int = 0
    runs: int = 0
    lived: Counter[Kind] = field(default_factory=Counter)
    divergences: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def raise_if_any(self) -> None:
        """Raises AssertionError with all that was wrong."""
        wrong = [*self.divergences, *self.losses]
        assert not wrong, f"{len(wrong)} findings in {self.events} events:\n" + "\n".join(wrong[:50])


@dataclass
class Run:
    """The journal of one start of one member's service."""

    name: str
    records: list[JournalRecord]

    @property
    def changes(self) -> list[JournalRecord]:
        """The events that changed the state."""
        return [record for record in self.records if record.kind in _STATE_CHANGES]


def read_runs(member_dir: Path) -> list[Run]:
    """The journals of all services of a member, in the order of the starts of each."""
    return [
        Run(f"{member_dir.name} {path.parent.name} start {number}", read_journal(path))
        for service_id in range(MAX_SERVICE_COUNT)
        for number, path in enumerate(journals(member_dir, service_id))
    ]


def read_journal(path: Path) -> list[JournalRecord]:
    """The records of one start of a service."""
    content = path.read_bytes()
    whole = len(content) - len(content) % JOURNAL_RECORD.size
    return list(map(JournalRecord._make, JOURNAL_RECORD.iter_unpack(content[:whole])))


def check_journals(runs: Sequence[Run], clients: Iterable[LoadClient]) -> Findings:
    """Compares all journals with each other, and what clients were told with the journals."""
    findings = Findings(runs=len(runs))
    history = _merge(runs, findings)
    positions = sorted(history)
    findings.events = len(positions)
    findings.lived = _count(runs, history)
    for run in runs:
        _check_run(run, history, positions, findings)
    _check_digests(runs, findings)
    _check_once(history, positions, findings)
    for client in clients:
        _check_client(client, history, findings)
    return findings


def _merge(runs: Sequence[Run], findings: Findings) -> dict[int, JournalRecord]:
    history: dict[int, JournalRecord] = {}
    for run in runs:
        for record in run.changes:
            known = history.setdefault(record.position, record)
            if known != record:
                findings.divergences.append(f"{run.name}: {record} differs from {known} of an earlier journal")
    return history


def _count(runs: Sequence[Run], history: dict[int, JournalRecord]) -> Counter[Kind]:
    """How often each kind of event happened: once for all members, but for role changes, which each has its own."""
    counts = Counter(Kind(record.kind) for record in history.values())
    records = [record for run in runs for record in run.records]
    counts[Kind.SNAPSHOT] = len({record.position for record in records if record.kind == Kind.SNAPSHOT})
    counts[Kind.ROLE] = sum(record.kind == Kind.ROLE for record in records)
    return counts


def _check_run(run: Run, history: dict[int, JournalRecord], positions: list[int], findings: Findings) -> None:
    for record in run.records:
        if record.kind == Kind.ANOMALY:
            findings.divergences.append(f"{run.name}: the service reports an anomaly: {record}")
    if not run.records:
        return  # It ended before its service had started.
    start, changes = run.records[0], run.changes
    before = bisect_right(positions, start.position)
    expected = history[positions[before - 1]].hash if before else 0
    if start.kind != Kind.START or start.hash != expected:
        findings.divergences.append(f"{run.name}: begins with {start}, expected hash {expected:#x}")
    if any(first.position >= second.position for first, second in pairwise(changes)):
        findings.divergences.append(f"{run.name}: log positions do not ascend")
    if changes:
        passed = bisect_right(positions, changes[-1].position) - before
        if passed != len(changes):
            findings.losses.append(f"{run.name}: applied {len(changes)} of {passed} events from {start.position} on")


def _check_digests(runs: Sequence[Run], findings: Findings) -> None:
    digests: dict[tuple[int, int], JournalRecord] = {}
    for run in runs:
        for record in run.records:
            if record.kind in (Kind.READ, Kind.SNAPSHOT):
                known = digests.setdefault((record.kind, record.position), record)
                if known != record:
                    findings.divergences.append(f"{run.name}: {record} differs from {known} of an earlier journal")


def _check_once(history: dict[int, JournalRecord], positions: list[int], findings: Findings) -> None:
    last: dict[int, int] = {}
    seen: set[tuple[int, int, int]] = set()
    for position in positions:
        record = history[position]
        if record.kind == Kind.MESSAGE:
            if record.second != last.get(record.first, 0) + 1:
                findings.losses.append(f"{record} follows command {last.get(record.first, 0)} of its client")
            last[record.first] = record.second
            continue
        key = (record.kind, record.first, record.second if record.kind == Kind.RELAYED else 0)
        if key in seen:
            findings.divergences.append(f"{record} happened before")
        seen.add(key)


def _check_client(client: LoadClient, history: dict[int, JournalRecord], findings: Findings) -> None:
    applied = max(
        (r.second for r in history.values() if r.kind == Kind.MESSAGE and r.first == client.client_id), default=0
    )
    if applied < client.acknowledged:
        findings.losses.append(f"client {client.client_id}: {client.acknowledged} acknowledged, {applied} applied")
    for position, value in zip(client.positions, client.hashes, strict=True):
        record = history.get(position)
        if record is None:
            findings.losses.append(f"client {client.client_id}: what was answered at {position} is in no journal")
        elif record.hash != value:
            findings.divergences.append(f"client {client.client_id}: was told {value:#x} at {position}, not {record}")


def drain(clients: Sequence[LoadClient], limit_s: float = _SETTLE_LIMIT_S) -> State:
    """Waits until all commands are answered and no timer or relay is to come, and returns the state: the log rests."""
    for client in clients:
        client.drain(limit_s)
    return wait_until(
        lambda: found if (found := clients[0].read(limit_s)).open_count == 0 else None,
        limit_s,
        "all timers to fire and all relays to come back",
    )


def settle(cluster: LocalCluster, clients: Sequence[LoadClient], limit_s: float = _SETTLE_LIMIT_S) -> State:
    """Waits until all commands are answered, no timer or relay is to come, and all members have said the same.

    Raises TimeoutError when that does not come about, AssertionError when members differ.
    """
    state = drain(clients, limit_s)
    digests = {
        (member.member_id, service_id): wait_until(
            partial(_digest_at, journals(member.node.base_dir, service_id)[-1], state.position),
            limit_s,
            f"service {service_id} of member {member.member_id} to journal the READ at {state.position}",
        )
        for member in cluster.members
        for service_id in range(member.node.service_count)
    }
    assert set(digests.values()) == {state.digest}, f"members differ at {state.position}: {digests}, told: {state}"
    return state


def _digest_at(journal: Path, position: int) -> int | None:
    for record in reversed(read_journal(journal)):
        if (record.kind, record.position) == (Kind.READ, position):
            return record.hash
    return None


def check_snapshots(cluster: LocalCluster, clients: Iterable[LoadClient]) -> Ledger:
    """Takes a snapshot and compares it message by message between all members and services; returns its state."""
    take_snapshot(cluster)
    snapshots = {
        (member.member_id, service_id): member.node.snapshot_messages(service_id)
        for member in cluster.members
        for service_id in range(member.node.service_count)
    }
    expected = next(iter(snapshots.values()))
    for (member_id, service_id), messages in snapshots.items():
        assert messages == expected, f"the snapshot of member {member_id}, service {service_id} differs from another"
    check_pending(cluster)
    ledger = Ledger.from_frames([message for message in expected if not is_framing(message)])
    assert not ledger.totals.timers_spurious
    assert not ledger.totals.relays_spurious
    for client in clients:
        assert ledger.clients.get(client.client_id, 0) == client.acknowledged, f"{client} and {ledger.clients}"
    return ledger


def take_snapshot(cluster: LocalCluster) -> None:
    """Take a snapshot, again where an election of a busy machine comes in between: it alone may have one refused."""

    def is_taken() -> bool:
        leader = cluster.await_leader(_SETTLE_LIMIT_S)
        term_id = leader.node.counter_value(CounterType.LEADERSHIP_TERM_ID)
        try:
            cluster.take_snapshot()
        except ContainerError:
            is_same_term = leader.node.counter_value(CounterType.LEADERSHIP_TERM_ID) == term_id
            if is_same_term and leader.is_leader and leader.node.election_is_closed:
                raise
            return False
        return True

    wait_until(is_taken, _SETTLE_LIMIT_S, "the leader to take a snapshot")


def snapshots_of(member: LocalMember) -> dict[int, int]:
    """The recordings of the valid snapshots of a member's service, by their log positions."""
    entries = read_snapshot_entries(member.node.cluster_dir)
    return {entry.log_position: entry.recording_id for entry in entries if entry.service_id == 0}


def compare_snapshots(members: Iterable[LocalMember], position: int) -> list[bytes]:
    """Returns the messages of the snapshot at a log position, which all of the members have, and the same."""
    expected = None
    for member in members:
        recording_ids = snapshots_of(member)
        assert position in recording_ids, f"{member} has no snapshot at {position}: {sorted(recording_ids)}"
        messages = recorded_messages(member.node.archive_dir, recording_ids[position])
        assert expected in (None, messages), f"the snapshot of {member} at {position} differs from that of another"
        expected = messages
    assert expected, "no messages to compare"
    return expected


def is_framing(message: bytes) -> bool:
    """Whether it is one of the container's own, of the cluster's schema: markers and sessions."""
    return message[4:6] == b"\x6f\x00"
