"""After 1,000 sessions, 100 snapshots and 50 changes of the role there is as much of everything as before."""

from __future__ import annotations

import gc
import itertools
import logging
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from container.api import ClientSession
from container.testing.memory.scripted_member import ScriptedMember
from container.transport.streams import Publication, Subscription
from tests.limits import LIMIT_S
from tests.real_member import RealMember
from tests.resources import allocated_counters, grown_each_time, mappings, open_files
from tests.services import Adding

SESSIONS, SNAPSHOTS, ROLE_CHANGES = 1_000, 100, 50
ROUNDS = 5  # of a fifth of that each, an even number of changes of the role
WARM_UP = 10
RAREST = ROLE_CHANGES // ROUNDS // 2  # how often in a part what happens least, the member becoming leader, happens
# Interned strings, caches of the interpreter: what may come with a part of a life, in memory blocks. A part has 20
# snapshots.
BLOCKS_TOLERANCE = 16


def deliver(member: ScriptedMember) -> None:
    """The agent reads all of the log; at the end of a term a duty cycle finds nothing but padding."""
    member.commit()
    if member.work(1):
        member.commit()


def serve_sessions(member: ScriptedMember, count: int, first_id: int) -> None:
    """Clients come, ask, get an answer and go."""
    cm = member.cm
    for session_id in range(first_id, first_id + count):
        cm.open_session(session_id, response_channel=f"aeron:udp?endpoint=localhost:{session_id}")
        cm.session_message(session_id, b"question %d" % session_id)
        deliver(member)
        assert len(cm.egress(session_id)) == 1
        cm.close_session(session_id)
        cm.disconnect_egress(session_id)
        deliver(member)


def take_snapshots(member: ScriptedMember, count: int) -> None:
    """Snapshots are taken, and purged from the archive as operators do."""
    for _ in range(count):
        member.cm.snapshot()
        deliver(member)
        member.store.delete_recording(member.store.recording_ids[0])


def change_roles(member: ScriptedMember, count: int) -> None:
    """The member leads and follows by turns, with two sessions open."""
    for number in range(count):
        if number % 2 == 0:
            member.follow()
        else:
            member.lead()
    assert not member.errors


def live(member: ScriptedMember, *, sessions: int, snapshots: int, role_changes: int) -> None:
    """A part of a member's life; it ends as it began: as leader, with the two sessions open."""
    serve_sessions(member, sessions, 1_000)
    take_snapshots(member, snapshots)
    change_roles(member, role_changes)
    member.cm.poll()
    for kept in (member.cm.received, member.cm._from_service.messages):
        kept.clear()
    member.mark_file.activity_timestamps.clear()
    member.mark_file.member_ids.clear()


def holdings(member: ScriptedMember) -> dict[str, Any]:
    """What the driver, the member's client and the process hold."""
    resources = member.client.open_resources
    return {
        "publications": sum(isinstance(each, Publication) for each in resources),
        "subscriptions": sum(isinstance(each, Subscription) for each in resources),
        "streams of the driver": len(member.driver.publications()),
        "counters": allocated_counters(member.client),
        "open files": open_files(),
        "mapped files": mappings("/"),
    }


def test_a_long_life_over_memory_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "container")  # pytest keeps what is logged, and that is limited by time
    member = ScriptedMember(Adding()).lead()
    for session_id in (1, 2):
        member.cm.open_session(session_id)
    member.commit()
    live(member, sessions=WARM_UP, snapshots=WARM_UP, role_changes=WARM_UP)
    gc.collect()  # what tests before this one left may hold files
    before = holdings(member)
    blocks = [sys.getallocatedblocks()]

    def live_on() -> None:
        live(
            member,
            sessions=SESSIONS // ROUNDS,
            snapshots=SNAPSHOTS // ROUNDS,
            role_changes=ROLE_CHANGES // ROUNDS,
        )
        blocks.append(sys.getallocatedblocks())

    assert grown_each_time(live_on, ROUNDS, at_least=RAREST) == {}
    # What the member keeps, it keeps in each round; another thread's objects come once.
    assert statistics.median(after - begin for begin, after in itertools.pairwise(blocks)) < BLOCKS_TOLERANCE
    assert holdings(member) == before
    assert member.service.state.total == (SESSIONS + WARM_UP) * len(b"question 1000")
    assert member.errors == []
    assert len(member.agent.cluster.client_sessions) == 2


class Keeping(Adding):
    """Keeps the sessions that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[ClientSession] = []

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.kept.append(session)


def test_the_comparison_notices_what_is_left() -> None:
    member = ScriptedMember(Keeping()).lead()
    live(member, sessions=WARM_UP, snapshots=0, role_changes=2)
    live_on = partial(live, member, sessions=3, snapshots=0, role_changes=0)
    assert grown_each_time(live_on, ROUNDS) == {
        "container.service.container_client_session.ContainerClientSession": 3,
    }


# --- the same over a media driver


@pytest.fixture
def real_member(tmp_path: Path) -> Iterator[RealMember]:
    with RealMember(Adding(), tmp_path) as member:
        yield member


def really_serve_sessions(member: RealMember, count: int) -> None:
    """Clients come, ask, get an answer and go; each tenth over the network."""
    cm = member.cm
    for session_id in range(1, count + 1):
        channel = "aeron:ipc" if session_id % 10 else f"aeron:udp?endpoint=localhost:{member.egress_port}"
        cm.open_session(session_id, response_channel=channel, response_stream_id=10_000 + session_id)
        cm.session_message(session_id, b"question")
        member.deliver()
        member.until(partial(cm.egress, session_id), f"the answer to session {session_id}")
        cm.close_session(session_id)
        cm.disconnect_egress(session_id)
        member.deliver()


def really_take_snapshots(member: RealMember, count: int) -> None:
    """Snapshots are taken through an archive client of their own each."""
    for _ in range(count):
        member.cm.received.clear()
        member.cm.snapshot()
        member.deliver()
        member.until(lambda: member.cm.acks, "the ack of a snapshot")
        assert member.cm.acks[-1].relevant_id >= 0


def really_live(member: RealMember, *, sessions: int, snapshots: int, role_changes: int) -> None:
    """A part of a member's life, as leader at its end."""
    member.join("leader")
    really_serve_sessions(member, sessions)
    really_take_snapshots(member, snapshots)
    for number in range(role_changes):
        member.join("leader" if number % 2 else "follower")
    for kept in (member.cm.received, member.cm._from_service.messages, member.archive.requests):
        kept.clear()
    member.archive.recordings.clear()


def real_holdings(member: RealMember) -> dict[str, Any]:
    """What the driver and the process hold, of which the driver is a part."""
    return {
        "counters": allocated_counters(member.client),
        "open files": open_files(),
        "mapped files": mappings("/"),
        "mapped logs": mappings(".logbuffer"),
    }


SETTLED_S = 2.0  # a driver that shares two cores with others takes its time


def settled_holdings(member: RealMember, wanted: dict[str, Any] | None = None) -> dict[str, Any]:
    """The holdings once the driver has let go of what is closed: as ``wanted``, or, without, as a while before."""
    deadline = time.monotonic() + LIMIT_S
    found = real_holdings(member)
    since = time.monotonic()
    while time.monotonic() < deadline:
        member.work()
        now = real_holdings(member)
        if now != found:
            found, since = now, time.monotonic()
        if now == wanted or (wanted is None and time.monotonic() - since > SETTLED_S):
            return now
    return found


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts files and mappings in /proc")
def test_a_long_life_over_a_media_driver_leaves_nothing(real_member: RealMember) -> None:
    member = real_member
    really_live(member, sessions=WARM_UP, snapshots=WARM_UP, role_changes=WARM_UP)
    before = settled_holdings(member)
    live_on = partial(
        really_live,
        member,
        sessions=SESSIONS // ROUNDS,
        snapshots=SNAPSHOTS // ROUNDS,
        role_changes=ROLE_CHANGES // ROUNDS,
    )
    assert grown_each_time(live_on, ROUNDS, at_least=RAREST) == {}
    assert settled_holdings(member, before) == before
    assert member.errors == []
