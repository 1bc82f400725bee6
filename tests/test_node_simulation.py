"""Simulated nodes: what the oracles see in a log or on a disk that is wrong, or in a node that runs."""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from container.errors import ClusterError
from container.storage.storage_seam import CREATE, Storage
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.nodes.log import event_of
from container.testing.simulation.nodes.recorded import (
    ARCHIVE_DIR,
    CLUSTER_DIR,
    LOG_STREAM_ID,
    TERM_LENGTH,
    LogEntry,
    Violation,
    check_retention,
    read_catalog,
    read_recording,
)
from tests.recorded_frames import Frames
from tests.sim.node_oracle import Log, State, apply, check_disk
from tests.sim.node_run import report, run_seed
from tests.sim.node_world import Client, World, expand, run

FRAMES = Frames(stream_id=LOG_STREAM_ID)


@pytest.mark.parametrize("seed", [1603, 100166, 102114, 201273])
def test_seeds_that_found_something_find_nothing(seed: int) -> None:
    result = run_seed(seed)
    assert result.violation is None, report(result, seed)


def test_plans_have_one_service_or_two() -> None:
    assert {expand(seed).services for seed in range(50)} == {1, 2}


def test_a_plan_without_operations_settles_and_ends_with_a_crash() -> None:
    result = run(expand(3).only([]))
    assert result.violation is None
    assert result.stats["settled"] == 1
    assert result.stats["kills"] + result.stats["power cuts"] == 1


# A log that is made by hand.

TERM = (24, "qqqqiiii", (0, 0, 1, 0, 0, 7, 1, 1))
OPEN = (21, "qqqqiII", (0, 5, 1, 2, 102, 0, 0))
CLOSE = (22, "qqqi", (0, 1, 9, 1))
SNAPSHOT = (23, "qqqii", (0, 0, 9, 2, 0))


def message(template_id: int, code: str, values: tuple[int, ...], payload: bytes = b"") -> bytes:
    body = struct.pack(f"<{code}", *values)
    return struct.pack("<HHHH", len(body), template_id, 111, 16) + body + payload


def sent(text: bytes, *, session_id: int = 1, timestamp: int = 3) -> bytes:
    return message(1, "qqq", (0, session_id, timestamp), text)


def timer(timer_id: int, timestamp: int) -> bytes:
    return message(20, "qqq", (0, timer_id, timestamp))


def log_of(*messages: bytes, services: int = 1) -> Log:
    log = Log(services=services)
    log.extend(FRAMES.block(0, message(*TERM), message(*OPEN), *messages))
    return log


def test_the_log_is_a_service_s_state() -> None:
    log = log_of(sent(b"t 1 5 "), sent(b"s 2 1 "), sent(b"S0 1 ", session_id=-(2**63) + 1), timer(10, 8))
    assert log.state.applied == [1, 2]
    assert (log.state.timers, log.state.offered, log.state.received, log.state.sessions) == ({}, 1, [1], {1: 2})
    other = State(received=[0])
    for each in (TERM, OPEN):
        apply(other, event_of(message(*each)), 1)
    assert other.digest == log.digests[2]
    before = log.content
    log.extend(before + FRAMES.block(len(before), message(*CLOSE)))
    assert log.state.sessions == {}
    with pytest.raises(Violation, match="^prefix: the log is another one at "):
        log.extend(before + FRAMES.block(len(before), message(*SNAPSHOT)))


@pytest.mark.parametrize(
    ("oracle", "messages"),
    [
        ("once", [sent(b"p 1 0 "), sent(b"p 1 0 ")]),
        ("sessions", [sent(b"p 1 0 ", session_id=2)]),
        ("sessions", [message(*OPEN)]),
        ("sessions", [message(*CLOSE), message(*CLOSE)]),
        ("timers", [timer(10, 8)]),
        ("timers", [sent(b"t 1 5 "), timer(10, 7)]),
        ("timers", [sent(b"t 1 5 "), timer(10, 8), timer(10, 9)]),
        ("timers", [sent(b"t 1 5 "), sent(b"c 2 1 "), timer(10, 1004)]),
        ("time", [sent(b"p 1 0 ", timestamp=1)]),
        ("terms", [message(24, "qqqqiiii", (0, 0, 3, 0, 0, 7, 1, 1))]),
        ("service messages", [sent(b"S0 1 ", session_id=-5)]),
        ("service messages", [sent(b"s 1 2 "), sent(b"S0 2 ", session_id=-5)]),
        ("service messages", [sent(b"s 1 2 "), sent(b"S0 1 ", session_id=-5), sent(b"S0 2 ", session_id=-3)]),
        ("log", [message(99, "qqq", (0, 0, 9))]),
    ],
)
def test_what_is_wrong_in_a_log_is_seen(oracle: str, messages: list[bytes]) -> None:
    with pytest.raises(Violation) as caught:
        log_of(*messages)
    assert caught.value.oracle == oracle


def test_a_timer_that_is_scheduled_after_its_cancel_fires() -> None:
    assert log_of(sent(b"c 2 1 "), sent(b"t 1 2000 "), timer(10, 2003)).fired == {10}


def test_sessions_open_in_another_order_than_they_were_asked_for() -> None:
    earlier = message(21, "qqqqiII", (0, 5, 0, 2, 102, 0, 0))
    assert log_of(earlier, sent(b"p 1 0 ", session_id=0)).state.sessions == {1: 0, 0: 1}


def entry(recording_id: int, kind: int, position: int, *, service_id: int = -1, term_id: int = 0) -> bytes:
    return struct.pack("<qqqqqiI", recording_id, term_id, 0, position, 1, service_id, kind).ljust(64, b"\0")


def catalog(*stream_ids: int) -> bytes:
    content = struct.pack("<iiqi12x", 0x030100, 32, 5, 64)
    for recording_id, stream_id in enumerate(stream_ids):
        body = struct.pack("<7q6i", 0, 0, recording_id, 1, 2, 0, -1, 7, TERM_LENGTH, TERM_LENGTH, 1408, -77, stream_id)
        content += struct.pack("<iiI20x", 96, 1, 0) + body.ljust(96, b"\0")
    return content.ljust(4096, b"\0")


def storage_of(recording_log: bytes, archive: bytes) -> Storage:
    storage = SimulatedDisk().process()
    for path in ("/node", ARCHIVE_DIR, CLUSTER_DIR):
        storage.make_directory(path)
    segment = FRAMES.block(0, message(*TERM), message(*OPEN), message(*SNAPSHOT)).ljust(TERM_LENGTH, b"\0")
    for path, content in (
        (f"{CLUSTER_DIR}/recording.log", recording_log),
        (f"{ARCHIVE_DIR}/archive.catalog", archive),
        (f"{ARCHIVE_DIR}/0-0.rec", segment),
    ):
        file = storage.open_file(path, CREATE)
        file.write(content, 0)
        file.close()
    return storage


SNAPSHOT_POSITION = len(FRAMES.block(0, message(*TERM), message(*OPEN), message(*SNAPSHOT)))
FIRST_TERM = entry(0, 0, -1)


def test_a_disk_that_is_right_is_taken_in() -> None:
    whole = [entry(1, 1, SNAPSHOT_POSITION, service_id=each) for each in (0, -1)]
    log = Log(services=1)
    check_disk(storage_of(FIRST_TERM + b"".join(whole), catalog(LOG_STREAM_ID, 106)), log, services=1)
    assert (log.end, log.terms, log.snapshots) == (SNAPSHOT_POSITION, [(0, 0)], {SNAPSHOT_POSITION})
    check_disk(storage_of(FIRST_TERM + whole[0], catalog(LOG_STREAM_ID, 106)), Log(services=1), services=1)
    check_disk(storage_of(b"", catalog()), Log(services=1), services=1)


@pytest.mark.parametrize(
    ("oracle", "recording_log", "archive"),
    [
        ("recording log", FIRST_TERM, catalog(106)),
        ("recording log", entry(0, 0, -1, term_id=1), catalog(LOG_STREAM_ID)),
        ("recording log", FIRST_TERM + entry(0, 0, -1, term_id=1), catalog(LOG_STREAM_ID)),
        ("snapshots", FIRST_TERM + entry(1, 1, 32), catalog(LOG_STREAM_ID, 106)),
        ("snapshots", FIRST_TERM + entry(1, 1, SNAPSHOT_POSITION, service_id=0), catalog(LOG_STREAM_ID)),
        ("snapshots", FIRST_TERM + entry(1, 1, SNAPSHOT_POSITION), catalog(LOG_STREAM_ID, 106)),
    ],
)
def test_what_is_wrong_on_a_disk_is_seen(oracle: str, recording_log: bytes, archive: bytes) -> None:
    with pytest.raises(Violation) as caught:
        check_disk(storage_of(recording_log, archive), Log(services=1), services=1)
    assert caught.value.oracle == oracle


@pytest.mark.parametrize(
    ("retained", "start", "positions", "text"),
    [
        (0, 64, [640], "the log begins at 64, and the snapshots that count are at"),
        (2, 1344, [640, 1280, 1920], "the log begins at 1344, and"),
        (2, 1344, [640, 1280], "the log begins at 1344, and"),
        (1, 64, [], "the log begins at 64, and"),
    ],
)
def test_a_log_that_was_deleted_too_far_is_seen(retained: int, start: int, positions: list[int], text: str) -> None:
    snapshots = [LogEntry(0, 0, 0, each, service, True) for each in positions for service in (0, -1)]
    if len(positions) > retained > 0:
        assert check_retention(snapshots, positions[-retained], 1, retained) == positions[-retained]
    with pytest.raises(Violation, match=f"^retention: {text}"):
        check_retention(snapshots, start, 1, retained)


def test_a_begin_of_the_log_that_nobody_has_seen_is_seen() -> None:
    [recording] = read_catalog(catalog(LOG_STREAM_ID))[1]
    storage = storage_of(FIRST_TERM, catalog(LOG_STREAM_ID))
    storage.rename(f"{ARCHIVE_DIR}/0-0.rec", f"{ARCHIVE_DIR}/0-{TERM_LENGTH}.rec")
    with pytest.raises(Violation, match="^retention: the log begins at 65536, and was final up to 3 alone"):
        read_recording(storage, recording, b"abc")


def test_a_log_that_is_gone_is_seen() -> None:
    with pytest.raises(Violation, match="^recording log: it has no term, and the log has "):
        check_disk(storage_of(b"", catalog()), log_of(), services=1)


# A node that runs.


@pytest.fixture
def world() -> Iterator[World]:
    with contextlib.redirect_stderr(io.StringIO()):
        yield booted()


def booted() -> World:
    made = World(replace(expand(3), level=1, services=1, step_ms=1, operations=()))
    made.boot()
    return made


def turns(world: World, count: int) -> None:
    for _ in range(count):
        world.turn()


def test_what_clients_are_told_is_seen(world: World) -> None:
    client = Client(world, 1)
    with pytest.raises(Violation, match="^answer: to message 5, which another client has sent"):
        client.on_message(1, 2, b"5 0", None)  # type: ignore[arg-type]
    world.senders[5] = client
    client.on_message(1, 2, b"5 0", None)  # type: ignore[arg-type]
    with pytest.raises(Violation, match="^answer: message 5 is applied at 0, and at 1"):
        client.on_message(1, 2, b"5 1", None)  # type: ignore[arg-type]
    with pytest.raises(Violation, match="^acknowledged: message 5 is at None, was at 0"):
        world._check_disk()


def test_an_error_of_a_part_is_seen(world: World) -> None:
    world.errors.append(TypeError("planted"))
    with pytest.raises(Violation, match="^reported: TypeError: planted"):
        world.turn()


def test_after_a_loss_errors_are_expected_that_damage_explains(world: World) -> None:
    world.is_uncertain = True
    world.errors += [ClusterError("unknown leadershipTermId=4")]
    world.turn()
    assert world.reports == ["unknown leadershipTermId=4"]
    world.errors += [ClusterError("ack out of sequence: expected …")]
    with pytest.raises(Violation, match="^reported: ClusterError: ack out of sequence"):
        world.turn()
    world.errors[:] = [TypeError("planted")]
    with pytest.raises(Violation, match="^reported: TypeError: planted"):
        world.turn()


def test_a_node_that_cannot_start_after_a_loss_and_names_no_way_out_is_seen(world: World) -> None:
    with pytest.raises(Violation, match="^advice: no way out is named: it is gone"):
        world._refuse(RuntimeError("it is gone"))
    world.reports.append("take it from a backup")
    world._refuse(RuntimeError("it is gone"))
    assert world.stats["starts that damage refused"] == 1


def test_the_end_of_a_part_is_seen(world: World) -> None:
    turns(world, 30)
    assert world.life.module is not None
    world.life.module.close()
    with pytest.raises(Violation, match="^end: <ConsensusModule consensus-module-0-0 ended"):
        world.turn()


def test_states_and_commits_that_are_not_the_log_s_are_seen(world: World) -> None:
    turns(world, 30)
    world.states[3] = 77
    with pytest.raises(Violation, match="^state: after 3 events"):
        world._check_disk()
    world.committed = 1 << 20
    with pytest.raises(Violation, match="^committed: the log ends at [0-9]+, 1048576 was committed"):
        world._check_disk()


@pytest.mark.parametrize("count", range(1, 14))
def test_a_consensus_module_ends_at_once_whose_archive_is_lost(world: World, count: int) -> None:
    """In an election as well, and while it waits for an answer."""
    turns(world, 30)
    world._do_restart(world.random)
    turns(world, count)
    life = world.life
    assert life.archive is not None
    assert life.module is not None
    life.busy.add(id(life.archive))
    lost = life.clients.pop(0)
    lost.sever()
    lost.expire()
    before: Any = world.clock.now_ns
    world.await_end_after_loss(life.module)
    assert world.clock.now_ns - before <= 100_000_000
