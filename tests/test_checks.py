"""The checks of container.testing.checks: each finds the service that is wrong in its way, and blames no other."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import getpass
import hashlib
import importlib.metadata
import importlib.resources
import io
import json
import locale
import logging
import mmap
import os
import pickle
import platform
import random
import re
import resource
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any

import numpy
import pytest

import container
from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    Role,
    SnapshotImage,
)
from container.errors import ConfigurationError, ContainerError, SnapshotError
from container.service.state_difference import state_difference
from container.testing import MemoryMember
from container.testing.lives import GeneratedLife
from container.testing.memory.checks import (
    ENVIRONMENTS,
    DivergenceError,
    ForbiddenCallError,
    HostilePayloadError,
    MemoryGrowthError,
    check_calls,
    check_environments,
    check_golden_snapshots,
    check_memory,
    check_payloads,
    check_replays,
    check_restarts,
    check_upgrade,
    write_golden_snapshot,
)
from examples.auction_service import AuctionService, OpenAuction, PlaceBid
from examples.ledger_service import TRANSFER, LedgerService
from examples.upgraded_counter import ACTIVATION, MOST_NAMES, NAME, Counter, CounterV1, State
from tests.services import (
    Adding,
    Chatty,
    Counting,
    Exiting,
    Forgetful,
    LocalTime,
    Lucky,
    Marking,
    Printing,
    Scheduling,
    Shared,
    Sorting,
    Trusting,
    bids,
    coming_and_going,
    encode,
    life,
    transfers,
)


class Logging(Adding):
    """Good: logging reads the clock, and nothing of it comes back."""

    def add(self, payload: bytes) -> None:
        super().add(payload)
        logging.getLogger(__name__).error("%d bytes", len(payload))
        import colorsys  # noqa: F401 - an import looks for files

        random.Random(self.state.total).random()
        datetime.datetime.fromtimestamp(self.state.total, datetime.UTC)


@pytest.mark.parametrize("service", [Adding, Logging, Sorting, LocalTime])
def test_replays_of_services_that_keep_their_state_agree(service: type[Adding]) -> None:
    assert check_replays(service, life, every=3) > 100


def test_replays_of_the_examples_agree() -> None:
    assert check_replays(AuctionService, bids, every=2) > 50
    assert check_replays(LedgerService, transfers, every=5) > 20


def test_a_replay_finds_state_that_no_snapshot_has() -> None:
    with pytest.raises(DivergenceError, match=r"replaying the log from the snapshot at (\d+), the state at log") as e:
        check_replays(Forgetful, life)
    text = str(e.value)
    assert "The last events before it:\n" in text
    assert re.search(r"\nTotals\.total: \d+ in the other run, \d+ now\.", text), text
    assert re.search(r"\n  \d+: SessionMessageHeader b'[ab].* \{'leadership_term_id'", text), text
    assert e.value.log_position > 0


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "State.a[1].b: 2 in the other run, 3 now."),
        ({"a": [1]}, {"a": [1, 2]}, "the length of State.a: 1 in the other run, 2 (2 at [1]) now."),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "the keys of State, or their order: ['a', 'b'] in the other run, ['b'"),
        ({"a": 1}, {"a": True}, "State.a: 1 in the other run, True now."),
    ],
)
def test_astate_difference_is_named_by_its_path(one: Any, other: Any, text: str) -> None:
    written = []
    for state in (one, other):
        messages: list[bytes] = []
        container.write_snapshot(Messages(messages), state, name="State")
        written.append(messages)
    assert state_difference(*written).startswith(text)


def test_astate_difference_of_other_bytes_is_named_by_its_place() -> None:
    same = bytes(100)
    text = state_difference([same, same + b"one"], [same, same + b"other"])
    assert text.startswith("Message 1 of the snapshot: b'")
    assert "one' from byte 85 on in the other run, b'" in text
    assert text.endswith("other' from byte 85 on now.")
    assert state_difference([same], [same, same]) == "The snapshot has 1 message in the other run, 2 now."


class Messages:
    """A publication that keeps its messages."""

    max_message_length = 1_000

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages

    def send(self, *buffers: bytes | memoryview) -> int:
        self._messages.append(b"".join(buffers))
        return 1


def test_a_replay_finds_state_of_the_class() -> None:
    Shared.seen.clear()
    with pytest.raises(DivergenceError, match="replaying the whole log"):
        check_replays(Shared, life)


def test_a_life_that_restarts_the_member_is_compared_as_well() -> None:
    def restarting(member: MemoryMember) -> None:
        client = member.open_session()
        snapshot = member.take_snapshot()
        for _ in range(5):
            client.send(b"x")
        member.take_snapshot()
        member.restart(snapshot)

    assert check_replays(Adding, restarting, every=100, restarts=1) >= 2
    Shared.seen.clear()
    with pytest.raises(DivergenceError):
        check_replays(Shared, restarting, every=100, restarts=1)


@pytest.mark.parametrize(("every", "restarts"), [(0, 1), (1, 0), (-1, 5)])
def test_replays_need_counts_that_are_positive(every: int, restarts: int) -> None:
    with pytest.raises(ConfigurationError, match=r"(every|restarts)=(0|-1): must be at least 1"):
        check_replays(Adding, life, every=every, restarts=restarts)


def _touch() -> None:
    Path("never.txt").exists()


def _connect() -> None:
    with socket.socket() as wire:
        wire.settimeout(0)
        wire.connect_ex(("127.0.0.1", 9))


def _thread() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def _pool() -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(int).result()


FORBIDDEN: dict[str, Callable[[], object]] = {
    "time.time": time.time,
    "time.monotonic_ns": time.monotonic_ns,
    "datetime.now": datetime.datetime.now,
    "date.today": datetime.date.today,
    "random.random": random.random,
    "random.getrandbits": lambda: random.randint(1, 6),
    "posix.urandom": uuid.uuid4,
    "io.open": lambda: Path(__file__).open().close(),
    "posix.stat": _touch,
    "socket.connect_ex": _connect,
    "_thread.start_joinable_thread": _thread,
    "time.strftime": lambda: time.strftime("%Y"),
    "time.gmtime": lambda: time.gmtime(),
    "time.asctime": lambda: time.asctime(),
    "time.localtime": lambda: time.localtime(1),
    "_posixsubprocess.fork_exec": lambda: subprocess.run([sys.executable, "-c", ""], check=True, cwd="."),
    "_sqlite3.connect": lambda: sqlite3.connect(":memory:").close(),
    "_thread.start_joinable_thread of a pool": _pool,
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_call_is_named_with_its_line(name: str) -> None:
    class Calling(Adding):
        def add(self, payload: bytes) -> None:
            FORBIDDEN[name]()

    with pytest.raises(ForbiddenCallError, match="callbacks called what may answer differently") as e:
        check_calls(Calling, life)
    here = str(Path(__file__))
    function = name.partition(" ")[0].replace("posix.", "os.").replace("start_joinable_thread", "start_")
    assert any(call.startswith(function) and here in call for call in e.value.calls), e.value.calls
    assert len(e.value.calls) == len(set(e.value.calls))


@pytest.mark.parametrize(
    ("service", "way"), [(Adding, life), (Logging, life), (AuctionService, bids), (LedgerService, transfers)]
)
def test_no_call_of_good_services_is_forbidden(
    service: type[ClusteredService], way: Callable[[MemoryMember], None]
) -> None:
    check_calls(service, way)


def counting(member: MemoryMember) -> None:
    """Messages of the counter in two releases."""
    client = member.open_session()
    for number in range(30):
        client.send(b"%s+%d" % (b"ada" if number % 3 else b"bob", number))
        client.send(b"no number")


def switching(member: MemoryMember) -> None:
    """The same before and after the new rules."""
    counting(member)
    member.sessions[0].send(ACTIVATION)
    counting(member)


class Doubling(Adding):
    """Wrong: schedules a timer that its state does not know, again after each start."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.number = 0

    def add(self, payload: bytes) -> None:
        self.number += 1
        self.schedule(self.number, 5)


@pytest.mark.parametrize(
    ("service", "way"),
    [(Adding, life), (AuctionService, bids), (LedgerService, transfers), (Counter, counting), (Counter, switching)],
)
def test_restarts_of_good_services_are_not_seen(
    service: type[ClusteredService], way: Callable[[MemoryMember], None]
) -> None:
    assert check_restarts(service, way, every=4) > 50


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (Chatty, r"restarted from snapshots, event \d+ is answer .*; without a restart it is answer"),
        (Doubling, r"restarted from snapshots, event \d+ is "),
        (Lucky, r"run again, event \d+ is answer"),
        (Shared, r"run again, event \d+ is answer"),
    ],
)
def test_a_restart_that_clients_notice_is_found(service: type[Adding], text: str) -> None:
    Shared.seen.clear()
    with pytest.raises(DivergenceError, match=text):
        check_restarts(service, life)


class Repeating(Adding):
    """Wrong: gives the last answer of the log again when it has replayed it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = b""
        self.is_due = False

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        if session is not None:
            if self.is_due:
                session.send(self.last)
                self.is_due = False
            self.last = b"%d" % self.state.total
            session.send(self.last)

    def on_role_change(self, role: Role) -> None:
        self.is_due = role is Role.LEADER and self.last != b""


class Rescheduling(Scheduling):
    """Wrong: schedules a timer for each message, and after a start one more for the first."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.has_started = snapshot_image is not None

    def add(self, payload: bytes) -> None:
        super().add(payload)
        if self.has_started:
            self.schedule(self.state.total + 1_000_000, 500)
            self.has_started = False


def test_an_answer_that_comes_again_after_a_replay_is_found() -> None:
    with pytest.raises(DivergenceError, match=r"restarted from the whole log, event \d+ is answer .*; without a"):
        check_restarts(Repeating, life)
    check_replays(Repeating, life)  # its state is right


def test_a_timer_that_is_scheduled_twice_after_a_restart_is_found() -> None:
    with pytest.raises(DivergenceError, match=r"restarted from snapshots, event \d+ is (TimerEvent|timer) .*10000"):
        check_restarts(Rescheduling, life)
    check_restarts(Scheduling, life)
    check_restarts(Scheduling, GeneratedLife(1))


class Storing(Adding):
    """Wrong: keeps a number that no snapshot takes."""

    def add(self, payload: bytes) -> None:
        if len(payload) == 8:
            self.state.total = int.from_bytes(payload, "little") << 8


@pytest.mark.parametrize("service", [Adding, AuctionService, LedgerService, CounterV1, Counter])
def test_good_services_survive_any_payload(service: type[ClusteredService]) -> None:
    valid = [encode(OpenAuction(1, "lot", 100, 1_000)), TRANSFER.pack(1, 2, 3, 4), b"ada+12345678901", ACTIVATION]
    assert check_payloads(service, valid, count=500, every=50) == 500


def test_a_payload_that_makes_a_callback_raise_is_shown() -> None:
    with pytest.raises(HostilePayloadError, match=r"message \d+ of seed 7 is b.*: ValueError: ") as e:
        check_payloads(Trusting, [b"12"], seed=7)
    with pytest.raises(ValueError, match=r"invalid literal|int\(\)"):
        int(e.value.payload)


@pytest.mark.parametrize("end", [SystemExit(3), GeneratorExit(), BaseExceptionGroup("x", [SystemExit()])], ids=repr)
def test_a_payload_that_ends_the_process_is_shown(end: BaseException) -> None:
    class Leaving(Adding):
        def add(self, payload: bytes) -> None:
            if len(payload) > 100:
                raise end

    with pytest.raises(HostilePayloadError, match=rf"message \d+ of seed 1 is b.*: {type(end).__name__}: ") as e:
        check_payloads(Leaving, [b"12"])
    assert len(e.value.payload) > 100


def test_a_payload_that_ends_snapshots_is_found() -> None:
    with pytest.raises(
        HostilePayloadError, match=r"the snapshot after message \d+ of seed 1, which is .*OverflowError"
    ):
        check_payloads(Storing, [bytes(8)], every=10)


class Digits(Adding):
    """Wrong: there are digits that are not numbers."""

    def add(self, payload: bytes) -> None:
        text = payload.decode(errors="replace")
        self.state.total += int(text) if text.isdigit() and len(text) < 100 else 0


class Naming(Adding):
    """Wrong: JSON has texts that no snapshot can have."""

    def add(self, payload: bytes) -> None:
        with contextlib.suppress(ValueError):
            self.state.names = [str(json.loads(payload))]


@pytest.mark.parametrize(("service", "payload"), [(Digits, b""), (Naming, b'"name"')])
def test_texts_that_callbacks_and_snapshots_refuse_are_among_the_hostile_payloads(
    service: type[Adding], payload: bytes
) -> None:
    with pytest.raises(HostilePayloadError):
        check_payloads(service, [payload], every=10)


class Ring(Adding):
    """Good: keeps the last messages, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self.last: deque[bytes] = deque(maxlen=200)

    def add(self, payload: bytes) -> None:
        super().add(payload)
        self.last.append(payload + bytes(2_000))


class Hoarding(Adding):
    """Wrong: keeps each session that was ever open."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[int, bytes] = {}

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.sessions[session.id] = bytes(1_000)


def test_memory_of_a_good_service_does_not_grow() -> None:
    assert check_memory(Adding, coming_and_going) < 50_000


def test_what_is_kept_of_sessions_that_are_gone_is_found() -> None:
    with pytest.raises(MemoryGrowthError, match=r"after 200 lives, 200 more left \d+ bytes more") as e:
        check_memory(Hoarding, coming_and_going, times=400)
    assert e.value.growth > 100_000
    assert "test_checks.py" in str(e.value)


class Talking(Adding):
    """Logs each message."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        logging.getLogger("talking").warning("%s", "a long line " * 100)
        super().on_session_message(session, timestamp, buffer, header)


@pytest.mark.usefixtures("caplog")
def test_records_that_a_handler_keeps_are_not_the_service_s() -> None:
    assert check_memory(Talking, coming_and_going) < 50_000
    assert logging.getLogger("talking").isEnabledFor(logging.WARNING)


def test_memory_needs_two_lives_or_messages() -> None:
    with pytest.raises(ConfigurationError, match="times=1: must be at least 2"):
        check_memory(Adding, coming_and_going, times=1)
    with pytest.raises(ConfigurationError, match="messages=1: must be at least 2"):
        check_memory(Adding, coming_and_going, messages=1)
    with pytest.raises(ConfigurationError, match="messages=10: the life logs no message"):
        check_memory(Adding, lambda member: None, messages=10)


def test_a_number_of_each_message_is_found() -> None:
    assert check_memory(Adding, coming_and_going, messages=4_000, limit=20_000) < 20_000
    with pytest.raises(MemoryGrowthError, match="most of it from\n  .*services.py"):
        check_memory(Counting, coming_and_going, messages=4_000, limit=20_000)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("service", [AuctionService, LedgerService, Ring, Adding])
def test_memory_of_good_services_does_not_grow_over_a_million_messages(service: type[ClusteredService]) -> None:
    valid = (encode(PlaceBid(1, 1, "bob", 100)), TRANSFER.pack(1, 2, 3, 4))
    assert check_memory(service, GeneratedLife(1, 300, valid), messages=1_000_000) < 100_000


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("service", [Counting, Marking])
def test_a_little_of_each_of_a_million_messages_is_found(service: type[Adding]) -> None:
    with pytest.raises(MemoryGrowthError, match="most of it from\n  .*services.py") as e:
        check_memory(service, coming_and_going, messages=1_000_000)
    assert e.value.growth > 300_000


class Hasty(Counter):
    """Wrong: counts by name before the log says so, from wherever its first snapshot was."""

    def add(self, name: str, number: int) -> bytes:
        self.state.totals[name] = self.state.totals.get(name, 0) + number
        return super().add(name, number)


class Unable(Counter):
    """Wrong: has no way from the old state."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        if snapshot_image is not None:
            self.state = container.read_snapshot(snapshot_image, State, version=2, name=NAME)


def test_a_new_release_comes_to_one_state_from_all_snapshots_of_the_old_one() -> None:
    assert check_upgrade(CounterV1, Counter, counting, every=7) > 50
    assert check_replays(Counter, switching) > 20
    check_calls(Counter, switching)


def test_a_new_release_that_keeps_more_than_the_old_one_is_found() -> None:
    with pytest.raises(DivergenceError, match=r"the log from the snapshot at \d+, the state at log position"):
        check_upgrade(CounterV1, Hasty, counting)


class Talkative(Counter):
    """Wrong: answers twice."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        if session is not None:
            session.send(b"by the way")


class Punctual(Counter):
    """Wrong: schedules a timer that the old release did not."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        self.cluster = cluster

    def add(self, name: str, number: int) -> bytes:
        while not self.cluster.schedule_timer(number, self.cluster.time + 1_000_000):
            self.cluster.idle()
        return super().add(name, number)


@pytest.mark.parametrize(("new", "what"), [(Talkative, "answer"), (Punctual, "timer")])
def test_a_new_release_that_does_something_else_is_found(new: type[Counter], what: str) -> None:
    with pytest.raises(DivergenceError, match=rf"with the new release, event \d+ is {what} .*; with the old one it is"):
        check_upgrade(CounterV1, new, counting)


def test_a_new_release_that_cannot_read_the_old_state_is_found() -> None:
    with pytest.raises(SnapshotError, match="holds version 1 of Counter, not 2: give upgrades the type that"):
        check_upgrade(CounterV1, Unable, counting)


def test_golden_snapshots_of_old_releases_are_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no golden snapshot \(\*\.snapshot\)"):
        check_golden_snapshots(Counter, tmp_path)
    write_golden_snapshot(CounterV1, counting, tmp_path / "1.0.snapshot")
    write_golden_snapshot(Counter, switching, tmp_path / "2.0.snapshot")
    with pytest.raises(FileExistsError):
        write_golden_snapshot(Counter, switching, tmp_path / "2.0.snapshot")
    assert check_golden_snapshots(Counter, tmp_path) == 2
    with pytest.raises(SnapshotError, match="holds version 1 of Counter, not 2") as e:
        check_golden_snapshots(Unable, tmp_path)
    assert e.value.__notes__[-1] == f"golden snapshot: {tmp_path / '1.0.snapshot'}"


def test_a_golden_snapshot_that_does_not_stay_or_is_none_is_found(tmp_path: Path) -> None:
    class Growing(Adding):
        def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
            super().on_start(cluster, snapshot_image)
            self.state.total += 1

    write_golden_snapshot(Adding, life, tmp_path / "a.snapshot")
    with pytest.raises(DivergenceError, match=r"a restart changes the state: Totals\.total: \d+ in"):
        check_golden_snapshots(Growing, tmp_path)
    (tmp_path / "a.snapshot").write_bytes(b"nothing")
    with pytest.raises(SnapshotError, match="not written by write_golden_snapshot"):
        check_golden_snapshots(Adding, tmp_path)


def test_the_old_release_refuses_the_new_state_by_name() -> None:
    with pytest.raises(SnapshotError, match="holds version 2 of Counter, not 1: start the release that wrote it"):
        check_upgrade(Counter, CounterV1, counting)


def test_the_rules_change_where_the_log_says_so() -> None:
    with MemoryMember(Counter) as member:
        client = member.open_session()
        assert client.send(b"ada+1") == [b"ada=1"]
        assert client.send(b"bob+2") == [b"bob=3"]
        assert client.send(ACTIVATION) == [b"rules 2"]
        assert client.send(b"bob+2") == [b"bob=2"]
        assert client.send(b"bob+\xb2") == [b"error"]
        for number in range(1, MOST_NAMES):
            client.send(b"n%d+1" % number)
        assert client.send(b"other+1") == [b"other=error"]
        assert client.send(b"n5+1") == [b"n5=2"]
        assert member.service.state.total == 3 + 2 + MOST_NAMES


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Sorting", "it differs with PYTHONHASHSEED; look for sets of texts or bytes, and hash()"),
        ("Clocked", "it differs in the same environment too; look for clocks, random numbers and addresses"),
        ("HashTimer", "it differs with PYTHONHASHSEED"),
        ("LocaleTotal", "it differs with LC_ALL"),
    ],
)
def test_processes_with_other_environments_find_what_depends_on_them(name: str, cause: str) -> None:
    with pytest.raises(DivergenceError, match=r"request at log position \d+ differs between processes with") as e:
        check_environments(f"tests.services:{name}", "tests.services:life", environments=ENVIRONMENTS[:2])
    assert cause in str(e.value)


def test_a_process_that_fails_is_an_error_with_its_words() -> None:
    with pytest.raises(ContainerError) as failed:
        check_environments(Trusting, life)
    # ``match`` would search the notes as well: one has the traceback.
    assert re.search(r"ValueError: invalid literal .* in .*services\.py:\d+$", str(failed.value))
    with pytest.raises(ContainerError, match=r"code 3: "):
        check_environments(Exiting, life)


def test_what_a_process_cannot_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="tests.services has no Missing"):
        check_environments("tests.services:Missing", life)
    with pytest.raises(ConfigurationError, match="another process cannot import them"):
        check_environments(Adding, lambda member: None)
    monkeypatch.setattr(Adding, "__module__", "__main__")
    with pytest.raises(ConfigurationError, match="is of __main__, which another process cannot import"):
        check_environments(Adding, life)


class Positions(Adding):
    """Good: answers with the log position, and with how many terms there were, which its snapshot has."""

    def on_new_leadership_term_event(self, *arguments: Any) -> None:
        self.state.total += 1

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(b"%d in %d" % (header.position, self.state.total))


class Strict(Adding):
    """Good: closes a session that sends nonsense, and its partner with it."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None and bytes(buffer[:4]) != b"good":
            session.close()

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        for other in self.cluster.client_sessions:
            if other.id == session.id + 1:
                other.close()


def test_more_good_services_are_not_blamed() -> None:
    check_restarts(Positions, life, every=4)
    check_environments(Printing, life, environments=ENVIRONMENTS[:2])
    assert check_payloads(Strict, [b"good one"]) == 1_000
    assert check_payloads(Adding, [bytes(131_000)], count=300) == 300
    check_replays(Strict, GeneratedLife(2))
    check_restarts(Strict, GeneratedLife(3))
    check_memory(Ring, coming_and_going)


@pytest.mark.parametrize(
    "call",
    [uuid.uuid1, time.ctime, lambda: time.clock_gettime(0), random.Random, Path("/dev/null/x").mkdir],
    ids=["uuid1", "ctime", "clock_gettime", "Random", "mkdir"],
)
def test_more_forbidden_calls_are_found(call: Callable[[], object]) -> None:
    class Calling(Adding):
        def add(self, payload: bytes) -> None:
            with contextlib.suppress(OSError):
                call()

    with pytest.raises(ForbiddenCallError):
        check_calls(Calling, life)


pandas: Any = importlib.import_module("pandas")  # has no types

FACTS: dict[str, Callable[[], object]] = {
    "a variable": lambda: os.environ.get("HOME"),
    "a variable by getenv": lambda: os.getenv("NO_SUCH"),
    "whether a variable is there": lambda: "NO_SUCH" in os.environ,
    "all variables": lambda: dict(os.environ),
    "how many variables there are": lambda: len(os.environ),
    "a variable that is set": lambda: os.environ.__setitem__("CHECKED", "yes"),
    "the language": locale.getlocale,
    "the language that is set": lambda: locale.setlocale(locale.LC_CTYPE, ""),
    "the order of the language": lambda: locale.strcoll("a", "b"),
    "the numbers of the language": locale.localeconv,
    "the encoding": locale.getpreferredencoding,
    "the host": platform.node,
    "the host's system": platform.system,
    "the system by uname": os.uname,
    "the host by the network": socket.gethostname,
    "the host by its card": uuid.getnode,
    "the user": getpass.getuser,
    "the user's number": os.getuid,
    "the home": lambda: os.path.expanduser("~/x"),  # noqa: PTH111
    "the resources": lambda: resource.getrusage(resource.RUSAGE_SELF),
    "the limits": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
    "the directory for files": tempfile.gettempdir,
    "where it is": os.getcwdb,
    "a file by its class": lambda: io.FileIO(__file__).close(),
    "a file by numpy": lambda: numpy.fromfile(__file__, dtype="u1", count=4),
    "a file that numpy writes": lambda: numpy.zeros(1).tofile(os.devnull),
    "memory that is shared": lambda: mmap.mmap(-1, 10).close(),
    "a data base by its class": lambda: sqlite3.Connection(":memory:").close(),
    "a socket that is made": lambda: socket.socket().close(),
    "how many threads there are": threading.active_count,
    "the thread's number": threading.get_native_id,
    "a secret": secrets.token_hex,
    "the version of a package": lambda: importlib.metadata.version("pytest"),
    "a file of a package": lambda: importlib.resources.files(container).joinpath("py.typed").read_bytes(),
    "a generator of numpy": numpy.random.default_rng,
    "the generator that all of numpy shares": lambda: numpy.random.random(),
    "an order by numpy's generator": lambda: numpy.random.permutation(4),
    "numpy's time": lambda: numpy.datetime64("now"),
    "numpy's day": lambda: numpy.datetime64("today", "D"),
    "a clock of pandas": lambda: pandas.Timestamp.now(),
    "a day of pandas": lambda: pandas.Timestamp.today("UTC"),
    "the clock as a date": lambda: time.gmtime(),
    "the clock as a text": lambda: time.asctime(None or time.gmtime()),
    "no seconds": lambda: time.gmtime(None),
    "local time": lambda: time.mktime((2020, 1, 1, 0, 0, 0, 0, 0, 0)),
    "an alarm": lambda: signal.setitimer(signal.ITIMER_REAL, 0),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_of_one_process_is_found_with_its_line_also_when_python_remembers_it(name: str) -> None:
    FACTS[name]()

    class Calling(Adding):
        def add(self, payload: bytes) -> None:
            FACTS[name]()

    with pytest.raises(ForbiddenCallError) as e:
        check_calls(Calling, life)
    assert all(str(Path(__file__)) in call for call in e.value.calls), e.value.calls


@dataclasses.dataclass
class Pair:
    """Two values."""

    one: int = 1
    other: str = "two"


class Odd:
    """Can be called, and has no attributes."""

    def __call__(self, *_arguments: object) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


class Dates(datetime.datetime):
    """Dates with a clock of the service's own."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Dates:
        """The beginning of a year."""
        return cls(2024, 1, 1, tzinfo=tz)


HARMLESS: dict[str, Callable[[], object]] = {
    "what has no attributes": lambda: Odd()(Odd()),
    "a text": lambda: "now".upper() + repr("today"),
    "an import": lambda: sys.modules.pop("colorsys", None) and importlib.import_module("colorsys"),
    "a date that is read": lambda: datetime.datetime.strptime("2024-01-02", "%Y-%m-%d"),
    "a date that is written": lambda: datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).strftime("%Y-%m-%d"),
    "a timestamp that is written": lambda: time.strftime("%Y-%m-%d", time.gmtime(5)) + time.asctime(time.gmtime(5)),
    "a dataclass": lambda: repr(Pair()) + str(dataclasses.asdict(Pair())),
    "JSON": lambda: json.loads(json.dumps({"a": [1]})),
    "an id made of a name": lambda: uuid.uuid5(uuid.NAMESPACE_DNS, "name"),
    "decimals": lambda: str(decimal.Decimal(1) / 3),
    "a digest": lambda: hashlib.sha256(b"x").hexdigest(),
    "paths": lambda: str(PurePath("a") / "b") + os.path.normpath("a/../b"),
    "expressions": lambda: re.compile("a+x?").findall("aax"),
    "a seed": lambda: random.Random(5).choice([1, 2, 3]),
    "pickles": lambda: pickle.loads(pickle.dumps({"a": 1})),
    "addresses": lambda: socket.inet_aton("1.2.3.4"),
    "a lock": lambda: threading.Lock().acquire(),
    "the thread's name": lambda: threading.current_thread().name,
    "numpy": lambda: repr(numpy.sort(numpy.frombuffer(bytes(8), "u1"))),
    "a time of pandas": lambda: pandas.Timestamp(5, unit="ms").isoformat(),
    "the date of a timestamp": lambda: time.asctime(time.gmtime(5)),
    "a clock of the service's own": lambda: Dates.now(datetime.UTC),
    "a time of numpy": lambda: numpy.datetime64("2024-01-01T00:00:00"),
    "numbers by seed": lambda: numpy.random.Generator(numpy.random.PCG64(5)).integers(6),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_follows_from_its_arguments_is_not_blamed(name: str) -> None:
    class Calling(Adding):
        def add(self, payload: bytes) -> None:
            super().add(payload)
            HARMLESS[name]()

    check_calls(Calling, life)


def test_a_check_of_calls_hears_only_its_own_thread_and_nothing_behind_it() -> None:
    calls: list[str] = []

    class Opening(Adding):
        def add(self, payload: bytes) -> None:
            thread = threading.Thread(target=lambda: io.FileIO(__file__).close())
            thread.start()
            thread.join()

    with pytest.raises(ForbiddenCallError) as e:
        check_calls(Opening, life)
    calls += e.value.calls
    assert calls
    assert not any("open" in call.partition(" in ")[0] for call in calls)
    io.FileIO(__file__).close()
    assert tuple(calls) == e.value.calls


def test_a_traceback_and_a_seeded_generator_may_be_made() -> None:
    class Calling(Adding):
        def add(self, payload: bytes) -> None:
            random.Random(5).random()
            try:
                int("x")
            except ValueError:
                traceback.format_exc()

    check_calls(Calling, life)
