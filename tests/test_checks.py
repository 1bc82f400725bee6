"""The checks of container.testing.checks: each finds the service that is wrong in its way, and blames no other."""

from __future__ import annotations

import datetime
import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

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
from container.errors import ConfigurationError, ContainerError
from container.testing import MemoryMember
from container.testing.checks import (
    DivergenceError,
    ForbiddenCallError,
    check_calls,
    check_environments,
    check_replays,
)
from examples.auction_service import AuctionService, OpenAuction, PlaceBid
from examples.ledger_service import TRANSFER, LedgerService


class Totals(msgspec.Struct):
    """What the services below keep."""

    total: int = 0
    names: list[str] = []


class Adding(ClusteredService):
    """A good service: adds the lengths of messages, and keeps them in snapshots."""

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

    def add(self, payload: bytes) -> None:
        """What a message does."""
        self.state.total += len(payload)


class Forgetful(Adding):
    """Wrong: a part of its state is in no snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1

    def add(self, payload: bytes) -> None:
        self.state.total += self.factor * len(payload)
        self.factor += 1


class Shared(Adding):
    """Wrong: keeps state in its class, which a process that goes on does not forget."""

    seen: ClassVar[list[bytes]] = []

    def add(self, payload: bytes) -> None:
        self.seen.append(payload)
        self.state.total = len(self.seen)


class Sorting(Adding):
    """Wrong: the order of a set of texts is another in each process."""

    def add(self, payload: bytes) -> None:
        self.state.names = list({*self.state.names, payload.decode()})


class LocalTime(Adding):
    """Wrong: the hour of the day depends on the time zone."""

    def add(self, payload: bytes) -> None:
        self.state.total = datetime.datetime.fromtimestamp(1_700_000_000).hour


class Logging(Adding):
    """Good: logging reads the clock, and nothing of it comes back."""

    def add(self, payload: bytes) -> None:
        super().add(payload)
        logging.getLogger(__name__).error("%d bytes", len(payload))
        import colorsys  # noqa: F401 - an import looks for files

        random.Random(self.state.total).random()
        datetime.datetime.fromtimestamp(self.state.total, datetime.UTC)


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
    assert "Message 0 of the snapshot:" in text or "Message 1 of the snapshot:" in text
    assert e.value.log_position > 0


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
    with pytest.raises(ConfigurationError, match=f"every={every}, restarts={restarts}: both must be at least 1"):
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
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_call_is_named_with_its_line(name: str) -> None:
    class Calling(Adding):
        def add(self, payload: bytes) -> None:
            FORBIDDEN[name]()

    with pytest.raises(ForbiddenCallError, match="callbacks called what may answer differently") as e:
        check_calls(Calling, life)
    here = str(Path(__file__))
    function = name.replace("posix", "os").replace("start_joinable_thread", "start_")
    assert any(call.startswith(function) and here in call for call in e.value.calls), e.value.calls
    assert len(e.value.calls) == len(set(e.value.calls))


@pytest.mark.parametrize(
    ("service", "way"), [(Adding, life), (Logging, life), (AuctionService, bids), (LedgerService, transfers)]
)
def test_no_call_of_good_services_is_forbidden(
    service: type[ClusteredService], way: Callable[[MemoryMember], None]
) -> None:
    check_calls(service, way)


def test_processes_with_other_environments_agree_about_a_good_service() -> None:
    assert check_environments("tests.test_checks:Adding", "tests.test_checks:life") > 100


@pytest.mark.parametrize("name", ["Sorting", "LocalTime"])
def test_processes_with_other_environments_find_what_depends_on_them(name: str) -> None:
    with pytest.raises(DivergenceError, match=r"the state at log position \d+ differs between processes with"):
        check_environments(f"tests.test_checks:{name}", "tests.test_checks:life")


def test_a_process_that_fails_is_an_error_with_its_words() -> None:
    with pytest.raises(ContainerError, match=r"(?s)code 1: .*has no Missing"):
        check_environments("tests.test_checks:Missing", "tests.test_checks:life")
