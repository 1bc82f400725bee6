"""Simulated clusters of whole nodes: what the oracles see in a history that is wrong, and in members that run."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from container.testing.memory import transport_probe as seam
from container.testing.simulation.nodes.cluster import NativePlan, expand
from container.testing.simulation.nodes.disk_world import Step
from container.testing.simulation.nodes.history import Acks, check_recorded
from container.testing.simulation.nodes.node import SNAPSHOT
from container.testing.simulation.nodes.recorded import LOG_STREAM_ID, TERM_LENGTH, Violation, frames_of, voted_term_of
from container.testing.simulation.virtual_time import NodeClock, VirtualTime
from tests.recorded_frames import Frames
from tests.sim.cluster_oracle import History, check_resources
from tests.sim.cluster_run import report, run_seed, shrink
from tests.sim.cluster_world import World, run
from tests.sim.node_oracle import State
from tests.test_node_simulation import OPEN, TERM, message, sent

FRAMES, OTHERS = Frames(stream_id=LOG_STREAM_ID), Frames(stream_id=LOG_STREAM_ID, session_id=78)
LOG = FRAMES.block(0, message(*TERM), message(*OPEN), sent(b"p 1 0 "), sent(b"p 2 0 "))
SAME = OTHERS.block(0, message(*TERM), message(*OPEN), sent(b"p 1 0 "), sent(b"p 2 0 "))
OTHER = FRAMES.block(0, message(*TERM), message(*OPEN), sent(b"p 1 0 "), sent(b"p 3 0 "))


class Disk:
    """A member, as far as the history asks for it."""

    def __init__(self, member_id: int, content: bytes) -> None:
        self.member_id, self.content = member_id, content
        self.voted, self.begin = 9, 0

    def voted_term(self) -> int:
        return self.voted

    def log_begin(self) -> int:
        return self.begin

    def log_bytes(self, begin: int, end: int, *, again: bool = False) -> bytes:
        return self.content[begin:end]


def history_of(*contents: bytes) -> tuple[History, list[Disk]]:
    return History(len(contents), 1), [Disk(each, content) for each, content in enumerate(contents)]


def test_members_may_differ_in_who_sent_a_frame_and_in_what_follows_the_end() -> None:
    assert LOG != SAME
    assert frames_of(LOG) == frames_of(SAME) != frames_of(OTHER)
    history, disks = history_of(LOG, SAME, b"")
    history.commit(disks[0], len(LOG), disks)
    history.check_leader(disks[1], 0)
    assert (history.end, history.log.end, history.leaders) == (len(LOG), len(LOG), {0: 1})


@pytest.mark.parametrize("contents", [(LOG, OTHER, b""), (LOG, LOG[:-32], b""), (LOG, SAME, b"", b"", b"")])
def test_a_commit_without_a_quorum_is_seen(contents: tuple[bytes, ...]) -> None:
    history, disks = history_of(*contents)
    with pytest.raises(Violation, match=r"^quorum: m0 commits 0 to \d+, which \[0(, 1)?\] have recorded"):
        history.commit(disks[0], len(LOG), disks)


def test_a_commit_of_what_is_not_recorded_is_seen() -> None:
    history, disks = history_of(LOG, SAME, SAME)
    with pytest.raises(Violation, match="^append: m0 commits 100000, and has recorded up to "):
        history.commit(disks[0], 100_000, disks)


def test_a_second_leader_of_a_term_and_one_without_the_log_are_seen() -> None:
    history, disks = history_of(LOG, SAME, OTHER)
    history.commit(disks[0], len(LOG), disks)
    history.check_leader(disks[0], 1)
    history.check_leader(disks[0], 1)
    with pytest.raises(Violation, match="^leaders: m0 and m1 lead in term 1"):
        history.check_leader(disks[1], 1)
    with pytest.raises(Violation, match="^committed: m2 leads; of [0-9]+ bytes committed it has but "):
        history.check_leader(disks[2], 2)


def test_a_log_without_its_begin_is_compared_from_there_on() -> None:
    history, disks = history_of(LOG, SAME, OTHER)
    history.commit(disks[0], len(LOG), disks)
    for disk in disks:
        disk.begin = 96
    history.check_content(disks[1], len(LOG), "starts")
    with pytest.raises(Violation, match="^committed: m2 starts; of [0-9]+ bytes committed it has but "):
        history.check_content(disks[2], len(LOG), "starts")


def test_states_that_differ_and_states_of_what_is_not_committed_are_seen() -> None:
    history, disks = history_of(LOG, SAME, b"")
    history.check_state("one", 2, 5)
    with pytest.raises(Violation, match="^state: other has another state after 2 events"):
        history.check_state("other", 2, 6)
    with pytest.raises(Violation, match="^ahead: services have applied 2 events, 0 are committed"):
        history.check_applied()
    with pytest.raises(Violation, match="^state: after 2 events a service has another state than the log"):
        history.commit(disks[0], len(LOG), disks)


def test_answers_that_are_not_the_log_s_are_seen() -> None:
    history, disks = history_of(LOG, SAME, b"")
    history.commit(disks[0], len(LOG), disks)
    history.on_sent(1)
    history.on_answer(1, 0)
    with pytest.raises(Violation, match="^answer: message 1 is applied at 0, and at 1"):
        history.on_answer(1, 1)
    with pytest.raises(Violation, match="^answer: message 7 is at None of the log, not 1"):
        history.on_answer(7, 1)
    with pytest.raises(Violation, match=r"^log: nobody sent \[2\]"):
        history.check_sent()
    history.on_sent(2)
    history.on_answer(2, 1)
    history.check_sent()


def test_a_message_in_front_of_one_that_was_answered_before_is_seen() -> None:
    history, disks = history_of(LOG, SAME, b"")
    history.commit(disks[0], len(LOG), disks)
    history.on_sent(2)
    history.on_answer(2, 1)
    history.on_sent(1)
    with pytest.raises(Violation, match="^linearizable: message 1 is at 0: 2 were answered"):
        history.on_answer(1, 0)


def test_terms_that_begin_elsewhere_are_seen() -> None:
    history, disks = history_of(LOG, SAME, b"")
    history.check_terms("m0", {0: 96})
    history.commit(disks[0], len(LOG), disks)
    history.check_terms("m0", {0: 0, 1: 96})
    history.check_terms("m0", {1: 320})
    with pytest.raises(Violation, match="^terms: m1 has term 0 from 96 on, and it begins at 0"):
        history.check_terms("m1", {0: 96, 1: 96})


def request_of(candidate_id: int, term_id: int, log: tuple[int, int] = (1, 96)) -> bytes:
    return struct.pack("<HHHHqqqii", 32, 51, 111, 9, *log, term_id, candidate_id, 0)


def vote_of(voter_id: int, candidate_id: int, term_id: int, log: tuple[int, int] = (1, 96), yes: int = 1) -> bytes:
    return struct.pack("<HHHHqqqiii", 36, 52, 111, 9, term_id, *log, candidate_id, voter_id, yes)


def test_votes_that_are_as_they_must_be_are_counted() -> None:
    history, disks = history_of(b"", b"", b"")
    for sender, sent_message in (
        (0, request_of(0, 2)),
        (1, request_of(1, 2)),
        (0, vote_of(0, 1, 2, yes=0)),
        (2, vote_of(2, 0, 2, (1, 64))),
        (2, vote_of(2, 0, 2, (2, 0))),
        (2, vote_of(2, 1, 2, (2, 32), yes=0)),
        (1, request_of(1, 3)),
        (0, vote_of(0, 1, 3, (1, 96))),
        (0, b"another message"),
    ):
        history.on_consensus_message(disks[sender], sent_message)
    assert (history.contested, history.refusals) == (1, 1)
    assert history.votes == {0: {2: 0, 3: 1}, 1: {2: 1, 3: 1}, 2: {2: 0}}


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ((1, 96), "m0 votes in term 2 for m0 and m1"),
        ((1, 128), "m0, whose log ends at 128 of term 1, votes in term 2 for m1, whose log ends at 96 of term 1"),
        ((2, 32), "m0, whose log ends at 32 of term 2, votes in term 2 for m1, whose log ends at 96 of term 1"),
    ],
)
def test_a_second_vote_of_a_term_and_one_for_a_worse_log_are_seen(log: tuple[int, int], text: str) -> None:
    history, disks = history_of(b"", b"", b"")
    history.on_consensus_message(disks[0], request_of(0, 2))
    history.on_consensus_message(disks[1], request_of(1, 2))
    with pytest.raises(Violation, match=f"^votes: {text}$"):
        history.on_consensus_message(disks[0], vote_of(0, 1, 2, log))


def test_votes_need_not_be_read_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "reads_along", False)
    history, disks = history_of(b"", b"", b"")
    for candidate_id in (0, 1):
        history.on_consensus_message(disks[2], vote_of(2, candidate_id, 9))
    assert history.votes == {}


def test_a_vote_that_is_not_kept_is_seen() -> None:
    history, disks = history_of(b"", b"", b"")
    history.on_consensus_message(disks[0], vote_of(0, 1, 9))
    disks[0].voted = 8
    with pytest.raises(Violation, match="^votes: m0 starts; it has voted in term 9, and kept 8"):
        history.check_vote(disks[0], "starts")
    with pytest.raises(Violation, match="^votes: m0 sends a vote; it has voted in term 10, and kept 8"):
        history.on_consensus_message(disks[0], vote_of(0, 1, 10))


def test_a_replay_of_what_is_not_committed_is_seen() -> None:
    end = len(LOG)
    more = FRAMES.block(end, sent(b"p 3 0 "))
    history, disks = history_of(LOG + more, SAME, b"")
    history.commit(disks[0], end, disks)
    request, other = (
        struct.pack("<HHHHqqqqq", 52, 6, 101, 10, 1, 2, 3, 0, length) for length in (end, end + len(more))
    )
    history.on_archive_request(disks[0], 3, request, disks)
    history.on_archive_request(disks[0], 4, other, disks)
    with pytest.raises(Violation, match=r"^replays: m0 replays 0 to \d+, which \[0\] have recorded"):
        history.on_archive_request(disks[0], 3, other, disks)


def test_the_term_of_a_vote_is_read() -> None:
    header = struct.pack("<i4x", 3 << 8)
    record = struct.pack("<HHHHi4x", 24, 301, 112, 10, 40) + struct.pack("<qqq", 7, 1, 2)
    assert (voted_term_of(header + record), voted_term_of(header), voted_term_of(b"")) == (7, -1, -1)


def test_clocks_drift_and_are_set() -> None:
    time = VirtualTime()
    clock = NodeClock(time, epoch_ms=1_000, drift_ppm=100)
    time.now_ns = 10_000_000_000
    assert clock.now_ms == 11_001
    clock.step_epoch(-5_000)
    assert clock.now_ms == 6_001


def ack_of(position: int, number: int, relevant_id: int = -1) -> bytes:
    return struct.pack("<HHHHqqqqi", 36, 33, 111, 9, position, 0, number, relevant_id, 0)


ACTION = struct.pack("<HHHHqqqi", 36, 23, 111, 9, 0, 0, 1_000, 2)
"""A message of the log: services are to take snapshots."""


def at_snapshot() -> tuple[History, int]:
    """A history whose log asks for a snapshot, and where."""
    log = FRAMES.block(0, message(*TERM), message(*OPEN), sent(b"t 1 50 "), ACTION)
    history, disks = history_of(log, log, b"")
    history.commit(disks[0], len(log), disks)
    assert history.log.snapshots == {len(log)}
    return history, len(log)


def test_acks_of_services_have_numbers_without_a_gap_and_never_go_back() -> None:
    history, end = at_snapshot()
    acks = Acks()
    for each in (ack_of(0, 0), ack_of(96, 1), b"another message", ack_of(end, 2, 7)):
        history.on_ack("s0", acks, each)
    assert acks == Acks(count=3, position=end)


@pytest.mark.parametrize(
    ("acks", "ack", "text"),
    [
        (Acks(2, 96), ack_of(128, 1), "s0 sends ack 1 at 128 after 2 of them"),
        (Acks(2, 96), ack_of(128, 3), "s0 sends ack 3 at 128 after 2 of them"),
        (Acks(2, 96), ack_of(64, 2), "s0 sends an ack at 64 after 96, of [0-9]+ committed"),
        (Acks(2, 96), ack_of(1 << 20, 2), "s0 sends an ack at 1048576 after 96, of [0-9]+ committed"),
        (Acks(2, 96), ack_of(96, 2, 5), "s0 names recording 5 at 96: the log asks for no snapshot"),
    ],
)
def test_acks_that_are_not_as_they_must_be_are_seen(acks: Acks, ack: bytes, text: str) -> None:
    history, _ = at_snapshot()
    with pytest.raises(Violation, match=f"^acks: {text}"):
        history.on_ack("s0", acks, ack)


def marker_of(position: int, mark: int) -> bytes:
    return struct.pack("<HHHHqqqiiii", 40, 100, 111, 16, 2, position, 0, 0, mark, 0, 1)


def records_of(position: int, *, session_id: int = 7, deadline: int | None = None) -> list[bytes]:
    """Records of a snapshot, without the service's part."""
    timers = [] if deadline is None else [struct.pack("<HHHHqq", 16, 104, 111, 16, 10, deadline)]
    session = struct.pack("<HHHHqi", 12, 102, 111, 16, session_id, 102)
    return [marker_of(position, 0), session, *timers, marker_of(position, 2)]


def state_of(events: int, digest: int) -> list[bytes]:
    """The service's part."""
    content = msgspec.msgpack.encode(State(events=events, digest=digest))
    header = struct.pack("<8sHHIQIIQ", b"ACCSTATE", 1, 5, 1, len(content), 0, 0, 1 << 20) + b"State"
    return [header, content]


def test_snapshots_that_say_what_the_log_says_are_as_they_must_be() -> None:
    history, end = at_snapshot()
    (events, digest, timers), (session_id,) = history.log.at_snapshot[end], history.log.sessions_at[end]
    [deadline] = timers.values()
    history.check_snapshot("m0", end, 0, [*records_of(end, session_id=session_id), *state_of(events, digest)])
    history.check_snapshot("m0", end, -1, records_of(end, session_id=session_id, deadline=deadline))
    history.check_snapshot("m0", end + 32, 0, [])  # nobody knows yet what is there


def test_snapshots_that_say_something_else_are_seen() -> None:
    history, end = at_snapshot()
    (events, digest, _), (session_id,) = history.log.at_snapshot[end], history.log.sessions_at[end]
    good, state = records_of(end, session_id=session_id), state_of(events, digest)
    for service_id, messages, text in (
        (0, [*good[:-1], *state], "m0 has no whole snapshot of service 0 at"),
        (0, [*good, state[0], state[1][:-1]], "m0 has no whole snapshot of service 0 at"),
        (0, good, "m0 has no whole snapshot of service 0 at"),
        (0, [*records_of(end - 32, session_id=session_id), *state], "m0 has no whole snapshot of service 0 at"),
        (0, [*records_of(end, session_id=99), *state], "m0 has sessions .99. at"),
        (0, [*good, *state_of(events + 1, digest)], "m0 has the state of"),
        (0, [*good, *state_of(events, digest ^ 1)], "m0 has the state of"),
        (-1, good, "m0 has timers {} at"),
        (-1, records_of(end, session_id=session_id, deadline=1), "m0 has timers {10: 1} at"),
    ):
        with pytest.raises(Violation, match=f"^snapshots: {text}"):
            history.check_snapshot("m0", end, service_id, messages)


def test_what_an_archive_says_and_has_not_is_seen() -> None:
    check_recorded("it", 128, 64, b"\1" * 64, None)
    check_recorded("it", 128, 64, b"\1" * 64, b"\1" * 64)
    for written, forced, text in (
        (b"\1" * 32, None, "it says 128, and its files have 32 of the last 64"),
        (bytes(64), None, "it says 128, and its files have 64 of the last 64"),
        (b"\1" * 64, b"\1" * 32, "it says 128, and not all of the last 64 bytes are forced"),
    ):
        with pytest.raises(Violation, match=f"^recorded: {text}"):
            check_recorded("it", 128, 64, written, forced)


def test_what_is_held_at_rest_and_what_is_missing_are_seen() -> None:
    expected = Counter({"a": 1, "b": 2})
    check_resources("m0", Counter({"a": 1, "b": 2}), expected)
    with pytest.raises(Violation, match=r"^resources: m0 has \[\('c', 1\)\] more, and \[\('b', 1\)\] fewer"):
        check_resources("m0", Counter({"a": 1, "b": 1, "c": 1}), expected)


# Members that run.


def plan_of(*kinds: str, members: int = 3) -> NativePlan:
    plain = replace(
        expand(3, members), level=1, services=1, latency_us=(50, 200), clock_offsets_ms=(0,) * 7, drifts_ppm=(0,) * 7
    )
    return replace(plain, operations=tuple(Step(number, kind, number) for number, kind in enumerate(kinds)))


@pytest.fixture
def world() -> Iterator[World]:
    made = World(plan_of())
    made.boot()
    made.await_(made._is_led, 20_000, "a leader")
    made.run_for(500)
    yield made
    made.close()


@pytest.mark.parametrize("seed", [1023, 1056, 1106, 100_031, 782_405_990])
def test_seeds_that_found_something_find_nothing(seed: int) -> None:
    """Mark files, a catalog that no start has mended, logs with nothing, and a part that is lost before its node."""
    result = run(expand(seed, has_more=False))
    assert result.violation is None, report(result, seed)


def test_a_client_is_served_after_a_suspension_in_which_as_many_asked_as_there_may_be_sessions() -> None:
    """The leader reads then what those have asked for that are gone, and refuses others until they time out."""
    result = run(expand(290).only([10, 12, 14, 17, 18, 19, 21, 22, 23, 24, 26, 28, 37, 40, 49, 51]))
    assert result.violation is None, report(result, 290)
    assert any("concurrent session limit" in line for line in result.log)
    assert result.stats["settled"] == 1


def test_an_election_leaves_no_recording_that_only_tried_whether_there_is_space() -> None:
    seed = 100_075
    result = run(expand(seed).only([*range(12), *range(1000, 1005)]))
    assert result.violation is None, report(result, seed)


@pytest.mark.parametrize("members", [3, 5, 7])
def test_members_elect_serve_and_settle(members: int) -> None:
    result = run(plan_of("connect", "send", "send", "work", members=members))
    assert result.violation is None
    assert result.stats["answers"] > 1
    assert result.stats["starts"] == result.stats["power cuts"] == members


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        ("kill_all", "kills of all"),
        ("roll", "rolling restarts"),
        ("upgrade", "rolling upgrades"),
        ("shutdown", "shutdowns"),
        ("abort", "aborts"),
        ("isolate", "members isolated"),
        ("wipe", "members wiped"),
        ("replace", "members wiped"),
        ("reconnect", "clients that come back"),
        ("suspend", "suspensions"),
        ("behead", "leaders cut off"),
        ("mute", "leaders that hear nobody"),
        ("compete", "competitions"),
        ("slow_disk", "slow calls of disks"),
        ("ahead", "leaders whose clock is ahead"),
    ],
)
def test_members_settle_after_each_of_these(kind: str, counted: str) -> None:
    result = run(plan_of("connect", "send", kind, "work", "heal", "connect", "send", "work"))
    assert result.violation is None
    assert result.stats["settled"] == 1
    assert result.stats[counted] > 0


def test_three_services_and_snapshots_of_two_versions() -> None:
    kinds = ("connect", "send", "send", "snapshot", "work", "upgrade", "connect", "send", "snapshot", "upgrade", "kill")
    plan = plan_of(*kinds)
    result = run(replace(plan, services=3))
    assert result.violation is None
    assert result.stats["snapshots loaded"] >= 9
    assert result.stats["snapshots read"] >= 12


def test_the_begin_of_a_log_that_no_snapshot_needs_goes() -> None:
    kinds = [*("connect", "send", "work", "snapshot") * 8, "kill_all", "connect", "send", "work"]
    result = run(replace(plan_of(*kinds), retained=1, longest=9_000, segment_length=TERM_LENGTH))
    assert result.violation is None
    assert result.stats["logs without their begin"] > 0


def test_a_commit_that_goes_back_is_seen(world: World) -> None:
    member = world.members[0]
    member.committed_in_life = 1 << 20
    with pytest.raises(Violation, match="^commit: m0 goes back from 1048576 to "):
        world.run_for(100)


def test_an_end_without_a_cause_is_seen(world: World) -> None:
    module = world.members[1].life.module
    assert module is not None
    module.close()
    with pytest.raises(Violation, match="^end: m1: <ConsensusModule consensus-module-0-1 ended"):
        world.run_for(100)


def test_an_error_of_the_code_is_seen(world: World) -> None:
    world.members[2].errors.append(TypeError("planted"))
    with pytest.raises(Violation, match="^reported: m2: TypeError: planted"):
        world.run_for(100)


def test_a_disk_that_forgets_what_was_committed_is_seen(world: World) -> None:
    member = next(each for each in world.members if not each.is_leading)
    member.kill()
    committed = member.committed
    member.wipe()
    member.committed = committed
    with pytest.raises(Violation, match="^committed: m[0-2] starts; of [0-9]+ bytes committed it has but 0"):
        world.run_for(30_000)


def test_a_member_is_wiped_only_when_others_have_all_and_its_votes_do_not_count(world: World) -> None:
    leader = world._leader()
    assert leader is not None
    leader.terms_at_end = max(each.voted_term() for each in world.members)
    assert not world._may_be_wiped(leader)
    leader.kill()
    world.until(lambda: world._leader() is not None, 20_000)
    world.run_for(200)
    assert world._may_be_wiped(leader)
    leader.terms_at_end += 1
    assert not world._may_be_wiped(leader)


def test_a_resource_that_is_never_given_back_is_seen(world: World) -> None:
    member = world.members[1]
    seam.add_subscription(member.life.clients[1], "aeron:ipc", 999)
    with pytest.raises(Violation, match=r"^resources: m1, which .* 'subscription', 999\), 1\)\] more"):
        world.finish()


def test_a_follower_whose_service_speaks_to_clients_is_seen(world: World) -> None:
    for member in world.members:
        member.check_egress()
    follower = next(each for each in world.members if not each.is_leading)
    seam.add_publication(follower.life.clients[2], "aeron:udp?endpoint=clients:20001", 102)
    with pytest.raises(Violation, match=r"^resources: m\d follows, and its services hold "):
        follower.check_egress()


class Drawn(random.Random):
    """Draws that have the leader stay away."""

    def random(self) -> float:
        return 0.6


def test_the_others_have_a_leader_while_one_stays_away(world: World) -> None:
    leader = world._leader()
    assert leader is not None
    world._check_core(Drawn())
    assert world.stats["leaders without one member"] == 1
    assert world._leader() not in (None, leader)


def test_others_that_have_no_leader_are_seen(world: World) -> None:
    for member in world.members:
        if not member.is_leading:
            member.schedule.paused_until_ns = world.time.now_ns + 10**12
    with pytest.raises(Violation, match=r"^liveness: a leader without m\d did not come within "):
        world._check_core(Drawn())


def test_what_services_acknowledge_and_archives_record_is_looked_at(world: World) -> None:
    assert all(each._acks[0].count > 0 for each in world.members)
    assert all(known[1] > 0 for each in world.members for known in each._recorded.values() if known[0] == 0)
    member = world.members[2]
    member._acks[0].count += 1
    leader = world._leader()
    assert leader is not None
    assert leader.set_toggle(SNAPSHOT)
    with pytest.raises(Violation, match="^acks: service 0 of m2 sends ack "):
        world.run_for(1_000)


def test_bytes_that_an_archive_counts_and_has_not_are_seen(world: World) -> None:
    member = world.members[0]
    for known in member._recorded.values():
        known[1] -= 1 << 12
        known[0] = 99
    with pytest.raises(Violation, match="^recorded: recording 99 of m0 says "):
        member._look_at_recordings()


def test_without_peace_nothing_settles(world: World) -> None:
    world._heal = lambda: None  # type: ignore[method-assign]
    for member in world.members:
        member.schedule.paused_until_ns = world.time.now_ns + 10**12
        member.wake()
    with pytest.raises(Violation, match="^liveness: a session did not come within "):
        world.finish()


def test_another_way_to_run_a_seed_is_a_part_of_it() -> None:
    whole, part = run_seed(2), run_seed(2, [0, 1])
    assert len(part.plan.operations) == 2 < len(whole.plan.operations)


def test_a_seed_has_as_many_members_as_are_asked_for_and_all_else_as_before() -> None:
    drawn = expand(2)
    assert run_seed(2, [0], members=7).plan == replace(drawn, members=7).only([0])
    assert [expand(seed, members=0).members for seed in range(40)] == [expand(seed).members for seed in range(40)]


def test_a_finding_is_shown_with_as_few_members_as_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "_do_clog", lambda world, draw: world.members[0].errors.append(TypeError("planted")))
    seed = next(seed for seed in range(100) if expand(seed).members == 5)
    plan = replace(expand(seed), operations=plan_of("connect", "send", "clog", "work").operations)
    shorter = shrink(run(plan))
    assert shorter.plan.members == 3
    assert shorter.plan.operations[0].kind == "clog"
    assert f"./run sim --cluster --members 3 --first {seed} --seeds 1 --keep 2" in report(shorter, seed)


def test_a_slow_disk_keeps_its_member(world: World) -> None:
    member = next(each for each in world.members if not each.is_leading)
    member.slow_until_ns, member.slow_mean_ns = world.time.now_ns + 10**10, 10**9
    begin_ns, turns = world.time.now_ns, member.schedule.turns
    while member.slow_calls == 0:
        world._do_connect(random.Random(1))
        world.run_for(100)
        assert world.time.now_ns < begin_ns + 5 * 10**9, "the disk was never written to"
    assert member.schedule.busy_until_ns > world.time.now_ns
    until_ns, turns = member.schedule.busy_until_ns, member.schedule.turns
    member.wake()
    world.run_for((until_ns - world.time.now_ns) // 10**6 - 1)
    assert member.schedule.turns == turns
