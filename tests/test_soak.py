"""The soak's own parts: the ledger, its snapshot, and that the checks find what they are to find."""

from __future__ import annotations

import random
import re
import struct
import sys
import threading
import time
from argparse import ArgumentTypeError
from array import array
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from container.errors import ClusterError, ContainerError, ForkedError
from container.testing.processes.local_cluster import JavaService, Service
from container.testing.processes.process import Process, ProcessEndedError, wait_until
from tests.limits import LIMIT_S
from tests.soak import archive_kills, checks, faults, repairs, resource_watch, scenario, services, slow_clients, warp
from tests.soak.__main__ import members_of, schedule
from tests.soak.checks import Run, check_journals, read_journal, read_runs
from tests.soak.faults import FAULTS
from tests.soak.ledger import (
    JOURNAL_RECORD,
    Anomaly,
    Armed,
    JournalRecord,
    Kind,
    Ledger,
    Times,
    mix,
    of_service,
    service_id_of,
    wrapped,
)
from tests.soak.ledger_service import ArmedError, SequencedLedgerService
from tests.soak.resource_watch import KINDS, Holdings, ResourceWatch, State


def ledger() -> Ledger:
    """A ledger with something of everything."""
    made = Ledger()
    made.clients = {2: 7, 1: 9}
    made.timers = {5: 1_000}
    made.relays = {6: 3}
    made.sessions = {4: 0}
    made.add(8, 2**63 - 1)
    made.add(8, 1)
    made.happened(Kind.MESSAGE, 64, 1, 1, 9, 0xFFFF)
    return made


class RefusingCluster:
    """Refuses snapshots, as many times as there are terms, each of which follows the one before at a refusal."""

    def __init__(self, *term_ids: int) -> None:
        self.term_ids = list(term_ids)
        self.taken = 0
        self.is_leader = self.election_is_closed = True

    @property
    def node(self) -> RefusingCluster:
        return self

    def await_leader(self, _limit_s: float) -> RefusingCluster:
        return self

    def counter_value(self, _type: int) -> int:
        return self.term_ids[0]

    def take_snapshot(self) -> None:
        if len(self.term_ids) > 1:
            self.term_ids.pop(0)
            raise ContainerError("refused")
        self.taken += 1


@pytest.mark.parametrize("prefix", ["ERROR - ", ""], ids=["Java's driver", "C's driver"])
def test_a_full_driver_directory_is_expected_in_the_words_of_either_driver(prefix: str) -> None:
    text = f"RegistrationError: ERROR - cannot add publication x: {prefix}insufficient usable storage for new log of"
    assert any(re.search(pattern, text) for pattern in FAULTS["fill_driver_directory"].errors)


@pytest.mark.parametrize(
    "text",
    [
        "TimedOutError: ERROR - client timeout from driver",
        "DriverTimeoutError: ERROR - unexpected close of heartbeat timestamp counter: 116",
        "TimedOutError: ERROR - service interval exceeded in ns: timeout=4000000000, interval=8015456423",
        "DriverTimeoutError: ERROR - MediaDriver keepalive: age=30324ms > timeout=5000ms",
    ],
)
def test_a_clock_set_forward_is_expected_to_end_clients_in_all_their_words(text: str) -> None:
    assert any(re.search(pattern, f"container.errors.{text}") for pattern in FAULTS["step_clock_far"].errors)


class CrampedScenario:
    """A cluster whose limited member's driver gives log buffers back after its disk was filled, so many each time."""

    def __init__(self, *given_back: int) -> None:
        self.given_back = list(given_back)
        self.free_buffers = 100
        self.is_running = True
        self.is_refused = False
        self.snapshots = 0

    @property
    def limited_member(self) -> CrampedScenario:
        return self

    @property
    def base_disk(self) -> CrampedScenario:
        return self

    def fill(self) -> None:
        self.free_buffers = 0

    def free(self) -> None:
        self.free_buffers = 100

    def ask_for_snapshot(self) -> None:
        self.free_buffers += self.given_back.pop(0)
        self.is_refused = self.free_buffers == 0
        self.snapshots += not self.is_refused

    def has_error(self, _member: object, text: str) -> bool:
        return self.is_refused and text in "insufficient usable storage for new log"

    def kill(self) -> None:
        self.is_running = False

    def await_progress(self) -> None:
        assert self.is_refused, "the fault is over before a log buffer was refused"
        assert not self.is_running

    def recover(self, _member: object) -> None:
        assert self.free_buffers, "a member starts on a full disk"
        self.is_running = True


def test_a_driver_directory_is_filled_until_a_log_buffer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "wait_until", ask_some_times)
    made: Any = CrampedScenario(3, 1, 0)
    FAULTS["fill_driver_directory"].run(made, random.Random(1))
    assert (made.snapshots, made.is_running) == (2, True)


def test_a_snapshot_is_asked_for_again_only_after_an_election() -> None:
    cluster: Any = RefusingCluster(1, 2, 3)
    checks.take_snapshot(cluster)
    assert cluster.taken == 1
    cluster = RefusingCluster(1, 1, 1)
    with pytest.raises(ContainerError, match="refused"):
        checks.take_snapshot(cluster)
    cluster.election_is_closed = False
    checks.take_snapshot(cluster)
    assert cluster.taken == 1


def test_a_snapshot_holds_the_whole_ledger_in_order() -> None:
    original = ledger()
    frames = list(original.frames())
    assert [len(frame) for frame in frames] == [96] + [24] * 6
    copy = Ledger.from_frames(frames)
    assert copy == original
    assert copy.digest() == original.digest() != Ledger().digest()
    assert copy.accounts == {8: -(2**63)}
    with pytest.raises(ValueError, match="5 entries, announced 6"):
        Ledger.from_frames(frames[:-1])
    with pytest.raises(ValueError, match="not a snapshot"):
        Ledger.from_frames([])


def test_sums_wrap_and_hashes_have_64_bits() -> None:
    assert wrapped(2**63) == -(2**63)
    assert wrapped(-(2**63) - 1) == 2**63 - 1
    assert 0 <= mix(0, -1, 2**63 - 1) < 2**64


def test_timers_and_relays_count_once() -> None:
    made = ledger()
    assert (made.timer_fired(5), made.timer_fired(5)) == (True, False)
    assert (made.relay_back(6), made.relay_back(6)) == (True, False)
    assert (made.totals.timers_fired, made.totals.timers_spurious) == (1, 1)
    assert (made.totals.relays_back, made.totals.relays_spurious) == (1, 1)


def test_the_seed_decides_the_schedule() -> None:
    def first(seed: int) -> list[tuple[str, float]]:
        return [(fault.name, choice.random()) for fault, choice in islice(schedule(list(FAULTS.values()), seed), 70)]

    assert first(1) == first(1) != first(2)
    assert {name for name, _ in first(1)[: len(FAULTS)]} == set(FAULTS), "each kind comes in the first round"


def test_members_are_counted_or_spelled() -> None:
    assert [members_of(text) for text in ("3", "7", "NNN", "NNNJJ")] == [3, 7, "NNN", "NNNJJ"]
    for text in ("1", "4", "NN", "NNX", "nnn", ""):
        with pytest.raises(ArgumentTypeError, match=r"is none of \[3, 5, 7\], nor as many letters"):
            members_of(text)


def test_the_parts_of_members_are_those_of_their_letters() -> None:
    made = scenario.Scenario(None, kinds="NJN")
    assert made._parts_by_letter() == ["native", None, "native"]
    members = [SimpleNamespace(member_id=each) for each in range(3)]
    assert [made.is_ours(each) for each in members] == [True, False, True]  # type: ignore[arg-type]


def test_the_order_of_sessions_is_in_the_chain() -> None:
    chains = []
    for session_ids in ([1, 2], [2, 1], [2, 1]):
        made = ledger()
        made.told(session_ids)
        chains.append(made.chain)
    assert chains[0] != chains[1] == chains[2] != ledger().chain


@pytest.mark.skipif(warp.unavailable_reason() is not None, reason=f"{warp.unavailable_reason()}")
def test_a_process_has_a_clock_and_a_disk_of_its_own(tmp_path: Path) -> None:
    made = warp.Warp(tmp_path)
    code = """
import os, sys, time
for _line in sys.stdin:
    begin = time.monotonic()
    with open(sys.argv[1], "wb") as file:
        os.pwrite(file.fileno(), b"x", 0)
    print(time.time(), time.monotonic() - begin, flush=True)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "written")]
    with Process("warped", command, directory=tmp_path, environment=made.environment("0")) as process:
        process.start()

        def ask() -> tuple[float, float]:
            """How far the clock is off, and how long a write takes, both in seconds."""
            process.write_line("go")
            now, took = map(float, process.read_line(LIMIT_S).split())
            return now - time.time(), took

        assert abs(ask()[0]) < 600
        made.set("0", step_s=-3600, write_us=300_000)
        step, took = ask()
        assert -4200 < step < -3000
        assert took >= 0.3
        made.set("0")
        assert abs(ask()[0]) < 600


# Journals


def history() -> list[JournalRecord]:
    """The events of a run without faults."""
    return [
        JournalRecord(Kind.SESSION_OPEN, 32, 1, 0, 11),
        JournalRecord(Kind.MESSAGE, 64, 1, 1, 12),
        JournalRecord(Kind.MESSAGE, 96, 1, 2, 13),
        JournalRecord(Kind.TIMER, 128, 5, 0, 14),
        JournalRecord(Kind.RELAYED, 160, 1, 2, 15),
        JournalRecord(Kind.MESSAGE, 192, 1, 3, 16),
    ]


START = JournalRecord(Kind.START, 0, 0, 0, 0)


def client(**changes: Any) -> Any:
    """The knowledge of a client that sent the messages of :func:`history`."""
    known = {"client_id": 1, "acknowledged": 3, "positions": array("q", [64, 192]), "hashes": array("Q", [12, 16])}
    return SimpleNamespace(**known | changes)


def wrong(*runs: list[JournalRecord], **changes: Any) -> list[str]:
    """The findings of the check in journals."""
    made = [Run(f"run {number}", records) for number, records in enumerate(runs)]
    findings = check_journals(made, [client(**changes)])
    return [*findings.divergences, *findings.losses]


def test_equal_journals_are_found_equal() -> None:
    restarted = [JournalRecord(Kind.START, 96, 0, 0, 13), *history()[3:]]
    assert wrong([START, *history()], [START, *history()[:2]], restarted, []) == []


def changed(records: list[JournalRecord], index: int, **values: int) -> list[JournalRecord]:
    """The records, one of them with other values."""
    return [record._replace(**values) if at == index else record for at, record in enumerate(records)]


@pytest.mark.parametrize(
    ("records", "finding"),
    [
        (changed(history(), 2, hash=99), "differs from"),
        (changed(history(), 2, second=1), "differs from"),
        ([history()[0], *history()[2:]], "applied 5 of 6 events"),
        ([*history()[:4], history()[5], history()[4]], "do not ascend"),
        ([*history(), JournalRecord(Kind.ANOMALY, 192, 3, 1, 16)], "reports an anomaly"),
        ([*history(), JournalRecord(Kind.TIMER, 224, 5, 0, 17)], "happened before"),
        ([*history(), JournalRecord(Kind.RELAYED, 224, 1, 2, 17)], "happened before"),
        ([*history(), JournalRecord(Kind.MESSAGE, 224, 1, 3, 17)], "follows command 3"),
        ([*history(), JournalRecord(Kind.MESSAGE, 224, 1, 5, 17)], "follows command 3"),
    ],
)
def test_what_is_wrong_in_one_journal_is_found(records: list[JournalRecord], finding: str) -> None:
    assert any(finding in text for text in wrong([START, *history()], [START, *records]))


def test_a_start_with_another_state_is_found() -> None:
    assert any("begins with" in text for text in wrong([START, *history()], [START._replace(position=96, hash=1)]))


def test_digests_at_one_position_must_be_equal() -> None:
    reads = [JournalRecord(Kind.READ, 192, 1, 0, digest) for digest in (1, 2)]
    assert any("differs" in text for text in wrong(*([START, *history(), read] for read in reads)))


def test_what_a_client_was_told_must_be_in_the_journals() -> None:
    journal = [START, *history()]
    assert wrong(journal, acknowledged=4) == ["client 1: 4 acknowledged, 3 applied"]
    assert any("in no journal" in text for text in wrong(journal, positions=array("q", [64, 999])))
    assert any("was told 0x5" in text for text in wrong(journal, hashes=array("Q", [5, 16])))


def test_what_happened_is_counted_once_for_all_members_and_roles_for_each() -> None:
    records = [START, JournalRecord(Kind.ROLE, 0, 2, 0, 0), *history(), JournalRecord(Kind.SNAPSHOT, 192, 0, 0, 7)]
    counted = check_journals([Run("run 0", records), Run("run 1", records)], [client()]).lived
    assert [counted[kind] for kind in (Kind.SESSION_OPEN, Kind.MESSAGE, Kind.SNAPSHOT, Kind.ROLE)] == [1, 3, 1, 2]


def test_journals_are_read_in_the_order_of_their_starts(tmp_path: Path) -> None:
    directory = tmp_path / "member-0" / "journal"
    directory.mkdir(parents=True)
    (directory / "100.bin").write_bytes(JOURNAL_RECORD.pack(*START) + JOURNAL_RECORD.pack(*history()[0])[:-1])
    (directory / "99.bin").write_bytes(b"")
    assert [(run.name, run.records) for run in read_runs(tmp_path / "member-0")] == [
        ("member-0 journal start 0", []),
        ("member-0 journal start 1", [START]),
    ]


# Resources

OURS = State(1, 77, "FOLLOWER")


def holdings(log_position: int = 64, *, state: State = OURS, sessions: int = 2, **changes: Any) -> Holdings:
    """The holdings of a process; the objects are all of one type."""
    counts = dict.fromkeys(KINDS[:-1], 5) | {key: value for key, value in changes.items() if key != "objects"}
    return Holdings(state, log_position, sessions, counts, Counter({"a.Type": changes.get("objects", 9)}), Counter())


class FakeMember:
    """A member whose process reports one count after the other, the last one forever."""

    def __init__(self, base_dir: Path) -> None:
        self.node = SimpleNamespace(base_dir=base_dir)
        self.member_id = 1
        self.told: list[Holdings] = []
        journal = [
            START,
            *history(),
            JournalRecord(Kind.ROLE, 160, 2, 0, 15),
            JournalRecord(Kind.SNAPSHOT, 192, 0, 0, 7),
        ]
        (base_dir / "journal").mkdir()
        (base_dir / "journal" / "1.bin").write_bytes(b"".join(JOURNAL_RECORD.pack(*record) for record in journal))


def ask_some_times(condition: Callable[[], object], _limit_s: float, what: str) -> None:
    """Stands for the wait, without the time."""
    if not any(condition() for _ in range(8)):
        raise TimeoutError(what)


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(resource_watch, "wait_until", ask_some_times)
    monkeypatch.setattr(
        resource_watch,
        "_holdings",
        lambda member, _number: member.told.pop(0) if len(member.told) > 1 else member.told[0],
    )
    return FakeMember(tmp_path)


def measure(watch: ResourceWatch, member: Any, *told: Holdings) -> None:
    """One measurement in which the process reports this."""
    member.told = list(told)
    watch.measure([member], 2, lambda _number: None)


def test_holdings_are_compared_once_they_are_as_at_first(member: Any) -> None:
    watch = ResourceWatch()
    measure(watch, member, holdings(objects=12), holdings(objects=10), holdings(32, objects=10))
    assert (watch.comparisons, watch.processes) == (0, 0)
    measure(watch, member, holdings(192, objects=11), holdings(192, sessions=3), holdings(192, publications=4))
    assert (watch.comparisons, watch.processes, watch.growth.total(), watch.findings) == (1, 1, 0, [])
    assert watch.lived == {"sessions opened": 0, "sessions closed": 0, "snapshots": 1, "role changes": 1}


def test_other_processes_and_roles_are_not_compared(member: Any) -> None:
    watch = ResourceWatch()
    measure(watch, member, holdings())
    measure(watch, member, holdings(objects=99, state=OURS._replace(pid=78)))
    measure(watch, member, holdings(objects=99, state=OURS._replace(role="LEADER")))
    assert (watch.comparisons, watch.findings) == (0, [])


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_grown_is_found(member: Any, kind: str) -> None:
    watch = ResourceWatch()
    measure(watch, member, holdings())
    grown: dict[str, Any] = {"objects" if kind == KINDS[-1] else kind: 12}
    measure(watch, member, holdings(192, **grown))
    assert watch.growth == {name: (3 if kind == KINDS[-1] else 7) if name == kind else 0 for name in KINDS}
    assert kind in watch.findings[0]


def test_sessions_that_stay_open_and_counts_that_never_settle_are_told(member: Any) -> None:
    with pytest.raises(TimeoutError, match="3 sessions stay open, 2 are of clients"):
        measure(ResourceWatch(), member, holdings(sessions=3))
    restless = [holdings(objects=number) for number in range(100)]
    with pytest.raises(TimeoutError, match="what it holds changes all the time"):
        measure(ResourceWatch(), member, *restless)


# Several services


def test_a_relay_tells_which_service_has_sent_it() -> None:
    key = 1 << 40 | 7
    sent = [of_service(key, service_id) for service_id in range(3)]
    assert sent[0] == key
    assert [service_id_of(each) for each in sent] == [0, 1, 2]
    assert [of_service(each, 1) for each in sent] == sent[1:2] * 3
    assert {each % 1024 for each in sent} == {7}


def test_further_services_are_python_and_answer_nobody() -> None:
    first, *further = services.with_further(JavaService("a.B"), Service(["python"], {"PYTHONPATH": "src"}), 3)
    assert first == JavaService("a.B", {"test.service.count": "3"})
    environment = {"PYTHONPATH": "src", "TEST_SERVICE_COUNT": "3", "AERON_CLUSTER_SERVICE_RESPONDER": "false"}
    assert further == [Service(["python"], environment)] * 2
    assert services.with_further(Service(["python"]), Service([]), 1) == [
        Service(["python"], {"TEST_SERVICE_COUNT": "1"})
    ]


def member_with(directory: Path, *module_snapshot: bytes, member_id: int = 0) -> Any:
    """A member with these files, and with this snapshot of its consensus module."""
    node = SimpleNamespace(base_dir=directory, snapshot_messages={-1: list(module_snapshot)}.get)
    return SimpleNamespace(member_id=member_id, node=node)


def test_each_service_has_journals_of_its_own(tmp_path: Path) -> None:
    member = member_with(tmp_path)
    assert [services.log_position(member, service_id) for service_id in (0, 1)] == [-1, -1]
    for name, records in {"journal/1": [], "journal-1/9": history()[:2], "journal-1/10": history()[:1]}.items():
        path = tmp_path / f"{name}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(JOURNAL_RECORD.pack(*record) for record in records) + b"partial")
    assert [services.log_position(member, service_id) for service_id in (0, 1)] == [-1, 32]
    assert [path.stem for path in services.journals(tmp_path, 1)] == ["9", "10"]
    assert [run.name.partition(" ")[2] for run in read_runs(tmp_path)] == [
        "journal start 0",
        "journal-1 start 0",
        "journal-1 start 1",
    ]


def test_the_error_log_of_javas_container_is_not_ours() -> None:
    names = ["cluster-mark-service-0.dat", "cluster-mark-service-1.dat", "cluster-mark.dat", "archive-mark.dat"]
    assert [services.is_ours(name, is_java=True) for name in names] == [False, True, False, False]
    assert [services.is_ours(name, is_java=False) for name in names] == [True, True, False, False]
    missed = "Follower has missed 3 service message(s).  Please check service (id=1) determinism"
    assert services.missed_messages(["something else", missed]) == [missed]


def module_message(template_id: int, layout: str, *numbers: int, payload: bytes = b"") -> bytes:
    """A message of a consensus module's snapshot."""
    return struct.pack("<HHHH" + layout, struct.calcsize("<" + layout), template_id, 111, 16, *numbers) + payload


def test_messages_that_a_member_has_not_counted_are_found(tmp_path: Path) -> None:
    first, second = (-(2**63) + (service_id << 56) for service_id in (0, 1))
    other = module_message(105, "qqqi", 2, first + 6, first + 5, 0)
    tracker = module_message(107, "qqii", first + 6, first + 5, 0, 0)
    behind = module_message(107, "qqii", second + 8, second + 6, 128, 1)
    waiting = module_message(1, "qqq", 3, second + 7, 2**63 - 1, payload=b"waiting")
    members = [member_with(tmp_path, other, tracker, behind, waiting, member_id=number) for number in range(2)]
    assert services.check_pending(SimpleNamespace(members=members)) == {  # type: ignore[arg-type]
        0: (first + 6, first + 5, []),
        1: (second + 8, second + 6, [b"waiting"]),
    }
    lost = member_with(tmp_path, other, tracker, module_message(107, "qqii", second + 7, second + 6, 0, 1), member_id=2)
    with pytest.raises(AssertionError, match=r"service messages at the snapshot of member 2: .*, of 0: "):
        services.check_pending(SimpleNamespace(members=[*members, lost]))  # type: ignore[arg-type]


# Repairs

TORN = (
    'Exception in thread "main" io.aeron.archive.client.ArchiveException: ERROR - Found potentially incomplete last '
    "fragment straddling page boundary in file: /dev/shm/a cluster/member-1/archive/12-16777216.rec\n"
    "Run `ArchiveTool verify` for corrective action!\n"
)


def test_a_torn_recording_is_found_in_what_the_archive_prints() -> None:
    assert repairs.torn_recording(TORN) == 12
    assert repairs.torn_recording("io.aeron.archive.client.ArchiveException: ERROR - active Mark file detected") is None


class TornMember:
    """A member whose archive refuses its first ``refusals`` starts."""

    member_id = 1

    def __init__(self, refusals: int, text: str = TORN) -> None:
        self._refusals, self._text = refusals, text
        self.errors = ""
        self.repaired: list[int] = []
        self.node = SimpleNamespace(
            archive=SimpleNamespace(errors=lambda: self.errors), errors=dict, report=lambda: "nothing"
        )

    def kill(self) -> None:
        """Nothing runs."""

    def restart(self) -> None:
        self._refusals -= 1
        self.errors = self._text if self._refusals >= 0 else ""
        if self.errors:
            raise ProcessEndedError("the archive has ended")

    def truncate(self, _member: object, recording_id: int) -> None:
        """Stands for ArchiveTool."""
        self.repaired.append(recording_id)


def started(member: TornMember, monkeypatch: pytest.MonkeyPatch) -> scenario.Scenario:
    """A scenario that has started a member."""
    monkeypatch.setattr(repairs, "truncate_torn_recording", member.truncate)
    made = scenario.Scenario(Path())
    made._start_member(member)  # type: ignore[arg-type]
    return made


def test_a_torn_recording_is_repaired_and_counts_as_no_failed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    member = TornMember(2)
    made = started(member, monkeypatch)
    assert (member.repaired, made.failed_starts, made.repairs.total()) == ([12, 12], 0, 2)


def test_another_failed_start_counts_as_such_and_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    member = TornMember(1, "driver timeout")
    made = started(member, monkeypatch)
    assert (member.repaired, made.failed_starts, made.repairs.total()) == ([], 1, 0)
    with pytest.raises(AssertionError, match="member 1 did not start"):
        started(TornMember(scenario.START_ATTEMPTS), monkeypatch)


def frame(payload: bytes) -> bytes:
    """A frame of a recording, aligned."""
    content = struct.pack("<i", 32 + len(payload)) + bytes([7]) * 28 + payload
    return content + bytes(-len(content) % 32)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment file with two frames."""
    path = tmp_path / "3-0.rec"
    path.write_bytes((frame(b"first") + frame(b"second" * 10)).ljust(65536, b"\0"))
    return path


def test_a_torn_frame_is_after_the_last_one_and_crosses_a_page(segment: Path) -> None:
    end = len(frame(b"first") + frame(b"second" * 10))
    before = segment.read_bytes()
    repairs.tear_file(segment)
    torn = segment.read_bytes()
    assert torn[:end] == before[:end]
    assert torn[end : end + 32] == struct.pack("<i", 8192) + bytes([7]) * 28
    assert not any(torn[end + 32 :])
    assert len(torn) == len(before)


@pytest.mark.parametrize("damage", repairs.DAMAGES)
def test_damage_hits_the_frame_and_nothing_before_it(segment: Path, damage: str) -> None:
    offset = len(frame(b"first"))
    before = segment.read_bytes()
    repairs.damage_frame(segment, offset, damage)
    after = segment.read_bytes()
    assert after[:offset] == before[:offset]
    assert after[offset : offset + 4] == (b"" if damage == "file cut" else bytes(4))
    assert after[offset + 32 :] == (b"" if damage == "file cut" else before[offset + 32 :])


def test_a_damaged_snapshot_is_that_of_the_service(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "latest_snapshot", lambda _directory: SimpleNamespace(recording_id=3))
    monkeypatch.setattr(repairs, "recorded_messages", lambda *_: [b"first", b"second" * 10])
    node = SimpleNamespace(cluster_dir=segment.parent, archive_dir=segment.parent)
    before = segment.read_bytes()
    told = repairs.damage_snapshot(SimpleNamespace(node=node), random.Random(1))  # type: ignore[arg-type]
    assert "at message 1 of 2 of 3-0.rec" in told
    assert segment.read_bytes()[: len(frame(b"first"))] == before[: len(frame(b"first"))]
    assert segment.read_bytes() != before


# The ledger's service


def ledger_service(tmp_path: Path, **cluster: Any) -> SequencedLedgerService:
    """A service in a cluster that has these."""
    made = SequencedLedgerService(tmp_path)
    made.cluster = SimpleNamespace(log_position=64, **cluster)
    return made


def failures(service: SequencedLedgerService, count: int) -> list[str]:
    """The errors of background work that is called so often."""
    texts = []
    for _ in range(count):
        try:
            service.do_background_work(0)
        except ArmedError as error:
            texts.append(str(error))
    return texts


def test_a_callback_fails_once_or_for_ever_or_no_more(tmp_path: Path) -> None:
    service = ledger_service(tmp_path)
    service._arm(Armed.BACKGROUND_WORK, Times.ONCE)
    assert failures(service, 3) == ["BACKGROUND_WORK"]
    service._arm(Armed.BACKGROUND_WORK, Times.ALWAYS)
    assert failures(service, 3) == ["BACKGROUND_WORK 1", "BACKGROUND_WORK 2", "BACKGROUND_WORK 3"]
    service._arm(Armed.BACKGROUND_WORK, Times.NEVER)
    assert failures(service, 3) == []


@pytest.mark.parametrize("refuses", [True, False])
def test_a_child_that_may_send_is_an_anomaly(tmp_path: Path, *, refuses: bool) -> None:
    def call(*_arguments: object) -> None:
        if refuses:
            raise ForkedError("of the parent")

    service = ledger_service(tmp_path, send=call, schedule_timer=call)
    service._fork(SimpleNamespace(send=call), 3)
    (journal,) = (tmp_path / "journal").iterdir()
    assert [(record.kind, record.first) for record in read_journal(journal)] == (
        [] if refuses else [(Kind.ANOMALY, Anomaly.FORK_NOT_REFUSED)]
    )


@pytest.mark.parametrize("callback", ["start", "snapshot"])
def test_a_switch_makes_a_callback_slow_once(tmp_path: Path, callback: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ledger_service(tmp_path, client_sessions=[])
    waits: list[int] = []
    monkeypatch.setattr(service, "_wait", lambda _number, milliseconds: waits.append(milliseconds))
    (tmp_path / f"slow-on-{callback}").touch()
    for _ in range(2):
        if callback == "start":
            service.on_start(service.cluster, None)
        else:
            service.on_take_snapshot(SimpleNamespace(send=lambda _frame: 0))
    assert waits == [7_000]


# Errors without end


class FloodedMember:
    """A member whose service prints to a file."""

    member_id = 1

    def __init__(self, path: Path) -> None:
        self.service = SimpleNamespace(err_path=path)


class Flooded:
    """A scenario with one member, which prints and records so much while its background work fails."""

    def __init__(self, path: Path, printed: int, recorded: int) -> None:
        self._printed, self._recorded = printed, recorded
        self._path = path
        path.write_bytes(b"before")
        self.ours = [FloodedMember(path)]
        self.calls: list[str] = []

    def fail_for_ever(self, callback: Armed) -> None:
        self.calls.append(f"fail {callback.name}")
        self._path.write_bytes(b"before" + bytes(self._printed))

    def fail_no_more(self, callback: Armed) -> None:
        self.calls.append(f"work {callback.name}")

    def service_errors(self, _member: object, text: str) -> list[str]:
        return [text] * self._recorded

    def await_our_error(self, _text: str) -> None:
        """It is there."""

    def await_progress(self) -> None:
        """There is some."""


def test_errors_without_end_have_limits(tmp_path: Path) -> None:
    flooded = Flooded(tmp_path / "err", 130_000, 21)
    with faults._flood_of_errors(flooded):  # type: ignore[arg-type]
        flooded.calls.append("block")
    assert flooded.calls == ["fail BACKGROUND_WORK", "block", "work BACKGROUND_WORK"]
    for printed, recorded, finding in ((0, 22, "22 errors of one place"), (1_000_000, 21, "has printed 1000000 bytes")):
        flooded = Flooded(tmp_path / "err", printed, recorded)
        with pytest.raises(AssertionError, match=finding), faults._flood_of_errors(flooded):  # type: ignore[arg-type]
            pass


# Slow clients


class SlowSession:
    """A session that takes ``limit`` commands and then has lost its leader."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.sent = 0
        self.polls = 0
        self.is_closed = threading.Event()

    def offer(self, command: bytes) -> int:
        _op, _client_id, sequence, _key, _value = struct.unpack("<Bqqqq", command)
        assert sequence == self.sent + 1
        if self.sent == self._limit:
            raise ClusterError("the leader is gone")
        self.sent += 1
        return self.sent

    def poll_egress(self) -> int:
        self.polls += 1
        return 0

    def close(self) -> None:
        self.is_closed.set()


def test_slow_clients_send_and_read_little_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [SlowSession(10**9), SlowSession(10**9), SlowSession(2)]
    made = iter(sessions)
    monkeypatch.setattr(slow_clients, "AeronCluster", SimpleNamespace(connect=lambda **_settings: next(made)))
    with slow_clients.SlowClients({"egress_channel": "aeron:udp?endpoint=localhost:0"}, 2_000, 3) as slow:
        slow.await_sent(50, LIMIT_S)
        wait_until(lambda: sessions[2].is_closed.is_set(), LIMIT_S, "the session without a leader to be closed")
        wait_until(lambda: sessions[1].polls, LIMIT_S, "the second client to read")
        wait_until(lambda: slow.session_count == 2, LIMIT_S, "two sessions to be left")
    assert (sessions[0].polls, sessions[2].sent) == (0, 2)
    assert all(session.is_closed.is_set() for session in sessions)
    assert slow.failure is None


def test_slow_clients_that_cannot_connect_leave_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SlowSession(1)
    made: list[Any] = [first, ClusterError("no leader")]

    def connect(**_settings: object) -> SlowSession:
        session = made.pop(0)
        if isinstance(session, Exception):
            raise session
        return session  # type: ignore[no-any-return]

    monkeypatch.setattr(slow_clients, "AeronCluster", SimpleNamespace(connect=connect))
    with pytest.raises(ClusterError, match="no leader"):
        slow_clients.SlowClients({"egress_channel": "aeron:udp?endpoint=localhost:0"}, 2_000, 2)
    assert first.is_closed.is_set()


def test_a_soak_of_no_kills_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        archive_kills.main(["--points", "0"])
    assert "--points 0: must be at least 1" in capsys.readouterr().err
