"""The election: each state with a scripted host and simulated time, what upstream gets wrong, and a model of clusters.

Which of upstream's tests each stands for: ``docs/upstream-tests.md``.
"""

from __future__ import annotations

from typing import Any

import pytest

from container.api import Role
from container.consensus.cluster_member import NATIVE_PROTOCOL_VERSION
from container.consensus.election import Election, Failures
from container.consensus.election_host import ElectionHost, ElectionState
from container.errors import AgentTermination, ClusterError, ClusterEvent, TimedOutError
from tests.election_world import MS, RECORDING_ID, SESSION_ID, Scene
from tests.elections.oracle import Violation
from tests.elections.scenes import LIMIT_NS, is_led, run_until
from tests.elections.world import Cluster, Term
from tests.native_leader import NativeLeader

UPSTREAM_VERSION = 1 << 16
FOLLOWING = [each.name for each in ElectionState if 9 <= each <= 16]
LEADING = [each.name for each in ElectionState if 5 <= each <= 8]


def names(scene: Scene) -> list[str]:
    return scene.host.states


# Before there is a leader


def test_cm31_a_single_member_elects_itself_and_persists_the_next_candidate_term() -> None:
    scene = Scene(me=0, count=1, persisted=3)
    scene.step(times=6)
    assert names(scene) == [
        *("INIT", "LEADER_LOG_REPLICATION", "LEADER_REPLAY", "LEADER_INIT", "LEADER_READY", "CLOSED")
    ]
    assert scene.election.is_closed
    assert scene.sent("persist") == [(4, 0)]
    assert scene.sent("begin_join_as_leader") == [(4, 0, SESSION_ID, True)]
    assert scene.sent("ensure_term")[-1] == (-1, 0, 4, 0, -1)
    assert scene.election.leader is scene.members.this_member
    assert not [name for name, *_ in scene.host.calls if name in ("canvass", "new_term", "request_vote")]


def test_cm32_the_appointed_leader_of_three_is_elected_as_soon_as_all_are_heard() -> None:
    scene = Scene(me=0, appointed_leader=0)
    scene.elected((1, -1, 0), (2, -1, 0))
    assert scene.sent("persist") == [(0, 0)]
    assert scene.sent("request_vote") == [(1, -1, 0, 0), (2, -1, 0, 0)]
    assert scene.host.role == Role.LEADER
    scene.step()
    assert scene.sent("new_term") == [(1, -1, 0, 0, 0, SESSION_ID, False), (2, -1, 0, 0, 0, SESSION_ID, False)]
    scene.step(times=2)
    scene.step(10 * MS, times=3)
    assert scene.state == "LEADER_READY"
    assert scene.sent("begin_join_as_leader") == [(0, 0, SESSION_ID, True)]
    assert not scene.sent("append_new_leadership_term_event")
    scene.hear("append_position", 0, 0, 1, 0)
    scene.step()
    assert scene.sent("append_new_leadership_term_event") == [(0, 0)]
    assert [name for name, *_ in scene.host.calls][-1] == "election_complete"
    assert scene.election.is_closed
    assert scene.election.leadership_term_id == 0


def test_a_member_votes_and_follows_whom_it_voted_for() -> None:
    scene = Scene()
    scene.canvassed()
    scene.hear("request_vote", -1, 0, 0, 0)
    assert scene.host.calls[-2:] == [("persist", 0, 0), ("vote", 0, 0, -1, 0, True)]
    assert scene.state == "FOLLOWER_BALLOT"
    scene.hear_new_term(log_term=-1, term=0, base=0, commit=100)
    scene.host.join_position = 0
    scene.step(times=4)
    assert names(scene)[-5:] == [
        *("FOLLOWER_REPLAY", "FOLLOWER_LOG_INIT", "FOLLOWER_LOG_AWAIT", "FOLLOWER_READY", "CLOSED")
    ]
    assert scene.sent("add_log_subscription") == [(SESSION_ID, False)]
    assert set(scene.sent("ensure_term")) == {(-1, 0, 0, 0, -1)}  # again, once the first log has a recording
    assert scene.sent("append") == [(0, 0, 0, 0)]
    assert scene.sent("election_complete")
    assert scene.election.leader is scene.members.find(0)


def test_cm32_all_members_heard_nominate_without_the_canvass_time_out() -> None:
    scene = Scene()
    scene.canvassed()
    scene.step()
    assert scene.sent("canvass") == [(-1, 0, -1)]
    scene.hear("canvass_position", -1, 0, -1, 0)
    scene.step()
    assert scene.state == "CANVASS"
    scene.hear("canvass_position", -1, 0, -1, 2)
    scene.step()
    assert scene.state == "NOMINATE"


def test_a_nominated_member_goes_on_with_its_canvass() -> None:
    scene = Scene()
    scene.host.draw = 0.99
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step()
    scene.sent("canvass")
    scene.step(100 * MS, times=4)
    assert scene.state == "NOMINATE"
    assert len(scene.sent("canvass")) == 4


def test_a_nominated_member_votes_for_a_candidate() -> None:
    scene = Scene()
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step()
    assert scene.state == "NOMINATE"
    scene.hear("request_vote", -1, 0, 0, 0)
    scene.step()
    assert scene.state == "FOLLOWER_BALLOT"
    assert scene.sent("vote") == [(0, 0, -1, 0, True)]


@pytest.mark.parametrize("is_startup", [True, False])
def test_cm33_a_majority_nominates_after_the_canvass_deadline(is_startup: bool) -> None:
    scene = Scene(is_startup=is_startup)
    scene.canvassed()
    scene.hear("append_position", -1, 0, 0, 0)
    limit_ns = scene.settings.startup_canvass_timeout_ns if is_startup else scene.settings.leader_heartbeat_timeout_ns
    scene.step(limit_ns - 2 * MS)
    assert scene.state == "CANVASS"
    scene.step(2 * MS)
    assert scene.state == "NOMINATE"


def test_cm34_a_vote_that_is_missing_delays_and_does_not_block() -> None:
    scene = Scene()
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step()
    scene.step(500 * MS)
    scene.hear("vote", 0, -1, 0, 1, 2, True)
    scene.step(900 * MS)
    assert scene.state == "CANDIDATE_BALLOT"
    scene.step(100 * MS)
    assert scene.state == "LEADER_LOG_REPLICATION"


def test_all_votes_win_at_once() -> None:
    scene = Scene()
    scene.elected((0, -1, 0), (2, -1, 0))
    assert scene.host.reasons[-1] == "unanimous leader"


def test_a_ballot_without_majority_ends_in_a_canvass() -> None:
    scene = Scene()
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step()
    scene.step(500 * MS)
    scene.step(1000 * MS)
    assert scene.state == "CANVASS"
    assert scene.host.role == Role.FOLLOWER
    assert scene.election.leadership_term_id == -1


def test_cm34_a_refusal_blocks_and_the_next_ballot_wins() -> None:
    scene = Scene()
    scene.canvassed((0, -1, 0))
    scene.step(60_000 * MS)
    scene.step(500 * MS)
    scene.hear("vote", 0, -1, 0, 1, 2, False)
    scene.hear("vote", 0, -1, 0, 1, 0, True)
    scene.step(1000 * MS)
    assert scene.state == "CANVASS"
    scene.hear("canvass_position", -1, 0, -1, 0)
    scene.step(10_000 * MS)
    assert scene.state == "NOMINATE"
    scene.step(1000 * MS)
    scene.hear("vote", 1, -1, 0, 1, 2, True)
    scene.step(1000 * MS)
    assert scene.state == "LEADER_LOG_REPLICATION"
    assert scene.election.leadership_term_id == 1


def test_a_ballot_without_leader_ends_in_a_canvass() -> None:
    scene = Scene()
    scene.canvassed()
    scene.hear("request_vote", -1, 0, 0, 0)
    scene.step(1_199 * MS)
    assert scene.state == "FOLLOWER_BALLOT"
    scene.step()
    assert scene.state == "CANVASS"
    assert scene.election.leadership_term_id == -1


@pytest.mark.parametrize(
    ("term", "log_term", "is_followed"), [(5, 4, True), (4, 4, False), (6, 4, False), (5, 3, False)]
)
def test_a_member_that_is_about_to_nominate_itself_follows_whom_it_voted_for(
    term: int, log_term: int, is_followed: bool
) -> None:
    """Where a member does not vote, the winner waits as long as its voter, and then for a log publication."""
    scene = Scene(term=4, position=100, is_startup=False)
    scene.canvassed()
    scene.hear("request_vote", 4, 100, 5, 2)
    scene.step(1_200 * MS)
    scene.step(60_000 * MS)
    for member_id in (0, 2):
        scene.hear("canvass_position", 4, 100, 4, member_id)
    scene.step()
    assert scene.state == "NOMINATE"
    scene.hear_new_term(2, log_term=log_term, term=term, base=100, position=100, commit=100)
    assert scene.state == ("FOLLOWER_REPLAY" if is_followed else "NOMINATE")


def test_a_leader_that_enters_an_election_prepares_as_follower() -> None:
    scene = Scene(me=0, term=1, position=120, is_startup=False)
    scene.host.role = int(Role.LEADER)
    scene.host.prepared = None
    scene.step(times=2)
    assert (scene.state, scene.host.role) == ("INIT", Role.FOLLOWER)
    scene.host.prepared = 160
    scene.step()
    assert scene.state == "CANVASS"
    assert scene.sent("begin_preparation") == [(120,)]
    assert scene.election.append_position == 160


def test_a_preparation_that_does_not_end_is_said_and_begun_again() -> None:
    scene = Scene(term=1, position=120, is_startup=False)
    scene.host.prepared = None
    scene.step()
    scene.step(10_000 * MS)
    assert isinstance(scene.host.errors[0], TimedOutError)
    assert "INIT: waited too long for the recording of the log to end and its sockets" in str(scene.host.errors[0])
    scene.step()
    assert len(scene.sent("begin_preparation")) == 2


def test_a_preparation_that_fails_again_and_again_pauses_longer_each_time() -> None:
    scene = Scene(term=1, position=120, is_startup=False)
    scene.host.prepared = ClusterError("the recording is damaged")
    for _ in range(2_000):
        scene.step(5 * MS)
    assert 3 <= len(scene.sent("begin_preparation")) < 12
    scene.host.prepared = 160
    scene.step(10_000 * MS)
    assert scene.state == "CANVASS"


def test_messages_are_ignored_before_the_first_step() -> None:
    scene = Scene(term=1)
    scene.hear("canvass_position", 1, 0, 1, 0)
    scene.hear("request_vote", 1, 0, 5, 0)
    scene.hear("vote", 1, 1, 0, 1, 0, True)
    scene.hear("append_position", 1, 0, 0, 0)
    scene.hear("commit_position", 1, 50, 0)
    scene.hear("replay_new_leadership_term_event", 2, 10, 5)
    scene.hear("recording_signal", 1, 2, 3, 4)
    scene.hear_new_term(log_term=1, term=2, base=0)
    assert (scene.state, scene.host.calls, scene.election.notified_commit_position) == ("INIT", [], 0)


def test_cm35_nobody_gets_a_second_yes_for_a_term_and_every_yes_is_persisted() -> None:
    scene = Scene()
    scene.canvassed()
    scene.hear("request_vote", -1, 0, 4, 0)
    scene.hear("request_vote", -1, 0, 4, 2)
    scene.hear("request_vote", -1, 0, 3, 2)
    assert scene.sent("vote") == [(0, 4, -1, 0, True), (2, 4, -1, 0, False), (2, 3, -1, 0, False)]
    again = Scene(persisted=scene.host.persisted)
    again.canvassed()
    again.hear("request_vote", -1, 0, 4, 2)
    again.hear("request_vote", -1, 0, 5, 2)
    assert again.sent("vote") == [(2, 4, -1, 0, False), (2, 5, -1, 0, True)]
    assert again.host.persisted == 5


def test_a_vote_for_a_term_that_cannot_be_persisted_is_no_vote() -> None:
    scene = Scene()
    scene.canvassed()
    scene.host.persisted = 9
    scene.hear("request_vote", -1, 0, 4, 0)
    assert scene.sent("vote") == [(0, 4, -1, 0, False)]
    assert (scene.state, scene.election.candidate_term_id) == ("CANVASS", 9)


def test_a_candidate_term_is_persisted_before_the_first_request() -> None:
    scene = Scene(persisted=6)
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step()
    scene.host.calls.clear()
    scene.step(500 * MS)
    scene.step()
    assert [call[:2] for call in scene.host.calls if call[0] in ("persist", "request_vote")] == [
        *(("persist", 7), ("request_vote", 0), ("request_vote", 2))
    ]


def test_a_candidate_asks_until_its_request_went() -> None:
    scene = Scene()
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step()
    scene.host.sends = False
    scene.step(500 * MS)
    scene.step(times=2)
    assert len(scene.sent("request_vote")) == 4
    scene.host.sends = True
    scene.step(times=3)
    assert len(scene.sent("request_vote")) == 2


@pytest.mark.parametrize(
    ("term", "position", "vote"), [(1, 100, True), (1, 101, True), (1, 99, False), (0, 500, False)]
)
def test_cm36_only_a_log_that_is_not_worse_gets_a_vote(term: int, position: int, vote: bool) -> None:
    scene = Scene(term=1, position=100)
    scene.canvassed()
    scene.hear("request_vote", term, position, 8, 2)
    assert scene.sent("vote") == [(2, 8, 1, 100, vote)]
    assert scene.host.persisted == scene.election.candidate_term_id == 8
    assert scene.state == ("FOLLOWER_BALLOT" if vote else "CANVASS")


@pytest.mark.parametrize(
    ("ours", "asked", "vote"),
    [((2, 0), (1, 100), True), ((2, 0), (-1, 0), True), ((1, 100), (2, 0), True), ((2, 100), (2, 0), False)],
)
def test_who_has_nothing_refuses_nobody_and_wins_by_its_term(
    ours: tuple[int, int], asked: tuple[int, int], vote: bool
) -> None:
    scene = Scene(term=ours[0], position=ours[1])
    scene.canvassed()
    scene.hear("request_vote", *asked, 8, 2)
    assert scene.sent("vote") == [(2, 8, *ours, vote)]


def test_cm37_who_is_not_appointed_never_nominates_itself() -> None:
    scene = Scene(me=1, appointed_leader=0)
    scene.canvassed((0, -1, 0), (2, -1, 0))
    scene.step(1000 * MS, times=100)
    assert scene.state == "CANVASS"
    assert len(scene.sent("canvass")) == 100


def test_cm38_a_leader_that_ended_in_order_is_not_waited_for() -> None:
    scene = Scene(term=1, position=100, is_startup=False, graceful_leader=0)
    scene.canvassed((2, 1, 100))
    scene.step()
    assert scene.state == "NOMINATE"
    scene.step(500 * MS)
    scene.hear("vote", 2, 1, 100, 1, 2, True)
    scene.step()
    assert scene.state == "LEADER_LOG_REPLICATION"


def test_a_leader_that_ended_in_order_counts_again_when_it_speaks() -> None:
    scene = Scene(term=1, position=100, is_startup=False, graceful_leader=0)
    scene.canvassed((0, 1, 200), (2, 1, 100))
    scene.step()
    assert scene.state == "CANVASS"


def test_unknown_members_and_own_messages_change_nothing() -> None:
    scene = Scene()
    scene.canvassed()
    scene.host.calls.clear()
    for member_id in (1, 9):
        scene.hear("canvass_position", 5, 70, 5, member_id)
        scene.hear("request_vote", 5, 70, 6, member_id)
    scene.hear("append_position", -1, 50, 9, 0)
    scene.hear_new_term(9, log_term=-1, term=2, base=0)
    scene.hear_new_term(1, log_term=-1, term=-1, base=0)
    assert (scene.state, scene.host.calls) == ("CANVASS", [])
    assert scene.members.this_member.log_position == 0


# As follower


def test_cm39_a_member_of_an_older_term_replicates_it_and_asks_for_the_next() -> None:
    scene = Scene(term=0, base=60, position=60)
    scene.canvassed()
    scene.hear("request_vote", 1, 120, 2, 0)
    assert scene.state == "FOLLOWER_BALLOT"
    scene.hear_new_term(log_term=1, term=2, base=120, following=(2, 120, 120), commit=60)
    assert scene.state == "CANVASS"
    scene.sent("canvass")
    scene.step()
    assert scene.sent("canvass") == [(0, 60, 0)]
    scene.hear_new_term(log_term=0, term=2, base=120, following=(1, 60, 120), commit=60)
    assert scene.state == "FOLLOWER_LOG_REPLICATION"
    scene.step()
    # A crash may come while it is copied.
    assert scene.sent("ensure_term") == [(0, 60, 1, 60, -1)]
    assert scene.sent("new_log_replication") == [(0, RECORDING_ID, 120)]
    replication = scene.host.replication
    assert replication is not None
    scene.hear("recording_signal", 1, 44, 60, 1)
    assert scene.sent("set_log_recording_id") == [(44,)]
    replication.position = 100
    scene.step(times=3)
    assert scene.sent("append") == [(0, 2, 100, 0)]
    # Where the leader's term begins is said once this member follows, and has recorded both terms.
    replication.position = 120
    scene.step(times=3)
    assert not scene.sent("append")
    assert not scene.sent("ensure_term")
    replication.is_done = True
    scene.step()
    assert scene.state == "CANVASS"
    assert scene.sent("close_replication") == [()]
    assert (scene.election.append_position, scene.election.log_leadership_term_id) == (120, 1)
    scene.step()
    assert scene.sent("canvass") == [(1, 120, 2)]
    scene.hear_new_term(log_term=1, term=2, base=120, following=(2, 120, -1), commit=60)
    scene.step()
    assert scene.state == "FOLLOWER_REPLAY"
    assert [call for call in scene.host.calls if call[0] in ("append", "ensure_term")] == [
        ("ensure_term", 0, 60, 1, 60, 120),
        ("ensure_term", 0, 60, 2, 120, -1),
        ("append", 0, 2, 120, 0),
    ]
    assert scene.election.log_leadership_term_id == 2


def test_what_is_replicated_and_never_committed_times_out() -> None:
    scene = Scene(term=1, base=60, position=60)
    scene.canvassed()
    scene.hear("request_vote", 1, 120, 2, 0)
    scene.hear_new_term(log_term=1, term=2, base=120, following=(2, 120, 120), commit=-1)
    scene.step()
    replication = scene.host.replication
    assert replication is not None
    replication.position, replication.is_done = 120, True
    scene.step()
    scene.hear_new_term(log_term=1, term=2, base=120, following=(2, 120, 120), commit=-1)
    scene.step()
    assert scene.sent("append") == [(0, 2, 120, 0)]
    # A message of the leader renews the deadline; then there is none.
    scene.wait(9_000 * MS)
    scene.hear("commit_position", 2, 60, 0)
    scene.step(9_000 * MS)
    assert scene.state == "FOLLOWER_REPLAY"
    scene.step(1_000 * MS)
    assert scene.state == "INIT"
    assert "waited too long for the leader to commit the log before its term" in str(scene.host.errors[0])


def test_cm39_failed_terms_before_the_current_one_are_replicated_as_one() -> None:
    scene = Scene(term=1, base=60, position=60)
    scene.canvassed()
    scene.hear("request_vote", 1, 120, 10, 0)
    scene.hear_new_term(log_term=1, term=10, base=120, following=(10, 120, 120), commit=120)
    scene.step()
    assert scene.sent("new_log_replication") == [(0, RECORDING_ID, 120)]


def test_cm39_empty_terms_are_recorded_one_by_one() -> None:
    scene = Scene(term=0)
    scene.canvassed()
    scene.hear("request_vote", 9, 120, 10, 0)
    for term in range(8):
        scene.hear_new_term(log_term=term, term=10, base=120, following=(term + 1, 0, 0), commit=120)
        assert scene.state == "FOLLOWER_LOG_REPLICATION"
        scene.step()
        assert scene.state == "CANVASS"
        assert scene.sent("ensure_term") == [(0, 0, term + 1, 0, 0)]
        scene.sent("canvass")
        scene.step()
        assert scene.sent("canvass") == [(term + 1, 0, 10)]
    scene.hear_new_term(log_term=8, term=10, base=120, following=(9, 60, 120), commit=120)
    scene.step()
    assert scene.sent("new_log_replication") == [(0, RECORDING_ID, 60)]


def test_a_late_member_of_the_same_term_replays_and_catches_up() -> None:
    scene = Scene(term=1, base=0, position=20, append=60)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0, position=120, commit=110)
    assert scene.state == "FOLLOWER_REPLAY"
    scene.step()
    assert scene.sent("new_log_replay") == [(20, 60)]
    replay = scene.host.replay
    assert replay is not None
    scene.hear("replay_new_leadership_term_event", 1, 30, 0)
    replay.at, replay.done = 60, True
    scene.host.sends = False
    scene.step()
    assert (scene.state, scene.election.log_position) == ("FOLLOWER_CATCHUP_INIT", 60)
    scene.step(times=2)
    assert scene.sent("add_log_subscription") == [(SESSION_ID, True)]
    scene.host.sends = True
    scene.step()
    assert set(scene.sent("send_catchup_position")) == {(0, 1, 60)}
    assert scene.state == "FOLLOWER_CATCHUP_AWAIT"
    scene.host.join_position, scene.host.joined_as_follower = 60, False
    scene.step(times=3)
    assert scene.sent("begin_join_as_follower") == [(False,)]
    scene.host.joined_as_follower = True
    scene.step()
    assert scene.state == "FOLLOWER_CATCHUP"
    scene.host.commit = 100
    scene.step()
    assert scene.sent("poll_catchup") == [(0, 1, 110)]
    assert not scene.sent("add_live_log_destination")
    assert scene.sent("is_catchup_near_live") == [(120,)]
    # cm44
    scene.host.near_live = True
    scene.step(times=2)
    assert len(scene.sent("add_live_log_destination")) == 1
    scene.host.commit = 120
    scene.step()
    assert scene.state == "FOLLOWER_CATCHUP"
    scene.host.catching_up, scene.host.snapshot = False, True
    scene.step()
    assert scene.state == "FOLLOWER_CATCHUP"
    scene.host.snapshot = False
    scene.step()
    assert scene.state == "FOLLOWER_LOG_INIT"
    scene.step(times=2)
    assert scene.election.is_closed
    assert scene.sent("append")[-1] == (0, 1, 120, 0)
    assert not scene.sent("add_log_subscription")


def test_a_member_records_the_term_that_a_new_log_is_of_before_it_says_anything_of_that() -> None:
    """It had no recording to enter the term with, and the services have not joined the log yet."""
    scene = Scene()
    scene.canvassed()
    scene.hear_new_term(log_term=-1, term=2, base=0, position=64, following=(2, 0, -1), commit=64)
    scene.host.join_position, scene.host.joined_as_follower, scene.host.prepared = 0, False, 64
    scene.step(times=4)
    assert scene.state == "FOLLOWER_CATCHUP_AWAIT"
    scene.hear_new_term(2, log_term=2, term=5, base=64)
    assert scene.state == "INIT"
    scene.host.calls.clear()
    scene.step(times=2)
    assert scene.host.calls[1:] == [("ensure_term", -1, 0, 2, 0, -1), ("canvass", 2, 64, 2)]


@pytest.mark.parametrize("position", [100, 150])
def test_a_member_records_a_term_before_anything_of_the_term_is_recorded(position: int) -> None:
    """What a crash left of it would count as of the term before, in which another member may have another log."""
    scene = Scene(term=1, base=0, position=100)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=2, base=100, position=position, following=(2, 100, -1), commit=140)
    scene.step(times=2)
    assert scene.state == ("FOLLOWER_LOG_AWAIT" if position == 100 else "FOLLOWER_CATCHUP_AWAIT")
    scene.host.join_position = 100
    scene.host.calls.clear()
    scene.step(times=2)
    assert [call[0] for call in scene.host.calls[:2]] == ["ensure_term", "begin_join_as_follower"]
    assert set(scene.sent("ensure_term")) == {(1, 0, 2, 100, -1)}
    assert scene.election.log_leadership_term_id == 2


def test_a_late_member_of_an_older_term_replicates_up_to_the_term() -> None:
    scene = Scene(term=0)
    scene.canvassed()
    scene.hear_new_term(log_term=0, term=1, base=60, position=120, following=(1, 60, 120), commit=120)
    scene.step()
    assert scene.sent("new_log_replication") == [(0, RECORDING_ID, 60)]
    replication = scene.host.replication
    assert replication is not None
    replication.position, replication.is_done = 60, True
    scene.step()
    assert scene.state == "CANVASS"
    assert scene.election.append_position == 60


def test_the_initial_term_is_the_base_where_the_recording_log_is_empty() -> None:
    scene = Scene(term=2, base=120, position=150, is_startup=False)
    scene.canvassed()
    scene.hear_new_term(log_term=2, term=3, base=500, position=600, following=(3, 500, 600), commit=600)
    scene.step()
    assert scene.host.replication is not None
    scene.host.replication.position, scene.host.replication.is_done = 500, True
    scene.step()
    assert scene.sent("ensure_term")[0] == (2, 120, 2, 120, 500)


def test_a_replication_that_ends_early_is_an_error() -> None:
    scene = Scene(term=0)
    scene.canvassed()
    scene.hear_new_term(log_term=0, term=1, base=60, following=(1, 60, -1))
    scene.step()
    assert scene.host.replication is not None
    scene.host.replication.position, scene.host.replication.is_done = 59, True
    scene.step()
    assert "has ended at 59, before 60" in str(scene.host.errors[0])
    scene.step()
    assert scene.sent("close_replication") == [()]


def test_a_term_with_nothing_said_of_what_comes_before_it_is_an_error() -> None:
    scene = Scene(term=0)
    scene.canvassed()
    scene.hear_new_term(log_term=0, term=1, base=60)
    assert isinstance(scene.host.errors[0], ClusterError)
    assert "invalid NewLeadershipTerm: this member has recorded up to 0" in str(scene.host.errors[0])
    # Where only the end of the next term is missing, the leader says it later.
    scene.step(times=2)
    scene.hear_new_term(log_term=0, term=2, base=60, following=(1, 0, -1))
    assert scene.state == "CANVASS"


@pytest.mark.parametrize("is_leader_startup", [True, False])
@pytest.mark.parametrize("is_startup", [True, False])
def test_whether_the_services_start_is_the_leaders_word(is_leader_startup: bool, is_startup: bool) -> None:
    scene = Scene(term=0, is_startup=is_startup)
    scene.canvassed()
    scene.hear_new_term(log_term=0, term=0, base=0, commit=1024, is_startup=is_leader_startup)
    scene.host.join_position = 0
    scene.step(times=3)
    assert scene.sent("begin_join_as_follower") == [(is_leader_startup,)]


def test_an_uncommitted_end_is_said_and_replayed_once_it_is_committed() -> None:
    scene = Scene(term=1, base=0, position=50, append=100)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=2, base=100, following=(2, 100, -1))
    scene.step()
    # What this member says in the term of the leader is of the leader's log, and it has recorded so.
    assert [call for call in scene.host.calls if call[0] in ("append", "ensure_term")] == [
        ("ensure_term", 1, 0, 2, 100, -1),
        ("append", 0, 2, 100, 0),
    ]
    scene.step(200 * MS)
    assert len(scene.sent("append")) == 2
    # Part of what is before the term is not a commit of the term: a quorum may still lose it.
    scene.hear("commit_position", 2, 60, 0)
    scene.step(times=2)
    assert not scene.sent("new_log_replay")
    scene.hear("commit_position", 2, 100, 0)
    scene.step()
    assert scene.sent("new_log_replay") == [(50, 100)]
    scene.hear("replay_new_leadership_term_event", 1, 60, 40)
    assert scene.election.log_leadership_term_id == 2
    assert scene.election.log_position == 60


def test_a_replay_ends_with_what_is_committed_and_the_rest_waits() -> None:
    scene = Scene(term=1, base=0, position=50, append=100)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0, position=90, commit=80)
    scene.step()
    assert scene.sent("new_log_replay") == [(50, 80)]
    assert scene.host.replay is not None
    scene.host.replay.at, scene.host.replay.done = 80, True
    scene.step()
    assert (scene.state, scene.host.reasons[-1]) == ("CANVASS", "replayed up to 80 of 100")
    scene.hear_new_term(log_term=1, term=1, base=0, position=90, commit=80)
    scene.step()
    assert (scene.state, scene.host.reasons[-1]) == ("CANVASS", "nothing committed to replay from 80: 80")


def test_a_follower_does_not_wait_for_ever_for_a_leader_that_is_gone() -> None:
    scene = Scene(term=1, base=0, position=50, append=100)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=2, base=100, following=(2, 100, -1))
    scene.step(9_000 * MS)
    scene.hear_new_term(log_term=1, term=2, base=100, following=(2, 100, -1))
    scene.step(9_000 * MS)
    assert scene.state == "FOLLOWER_REPLAY"
    scene.step(1_000 * MS)
    assert scene.state == "INIT"
    assert "waited too long for the leader to commit the log before its term" in str(scene.host.errors[0])


@pytest.mark.parametrize(
    ("log_position", "text"),
    [
        (60, "CatchupPosition to be sent"),
        (0, "an image of the live log"),
    ],
)
def test_what_a_follower_waits_for_has_an_end(log_position: int, text: str) -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0, position=log_position)
    scene.host.sends = False
    scene.step(times=3)
    scene.step(10_000 * MS)
    assert scene.state == "INIT"
    assert text in str(scene.host.errors[0])


def test_a_slow_service_may_take_its_time_while_there_is_a_leader() -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0)
    scene.host.join_position, scene.host.joined_as_follower = 0, False
    for _ in range(60):
        scene.step(1_000 * MS)
        scene.hear("commit_position", 1, 0, 0)
    assert scene.state == "FOLLOWER_LOG_AWAIT"
    # What it has recorded counts meanwhile.
    assert len(scene.sent("append")) > 50
    scene.step(10_000 * MS)
    assert scene.state == "INIT"


def test_what_is_recorded_of_the_live_log_counts_before_the_services_have_joined_it() -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=2, base=0)
    scene.host.join_position, scene.host.joined_as_follower = 0, False
    scene.step(times=4)
    scene.sent("append"), scene.sent("ensure_term")
    scene.host.recorded = 64
    scene.step(times=2)
    assert scene.sent("append") == [(0, 2, 64, 0)]
    assert scene.sent("ensure_term") == [(1, 0, 2, 0, -1)]
    scene.host.recorded = 96
    scene.step()
    assert (scene.sent("append"), scene.sent("ensure_term")) == ([(0, 2, 96, 0)], [])
    scene.host.joined_as_follower = True
    scene.step(times=2)
    assert scene.state == "CLOSED"
    assert [call[2] for call in scene.sent("append")] == [96]


def test_an_image_that_joined_elsewhere_is_an_error() -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0)
    scene.host.join_position = 32
    scene.step(times=3)
    assert "joined at 32, and this member's log continues at 0" in str(scene.host.errors[0])
    scene.host.join_position = None
    scene.step()
    assert scene.sent("begin_preparation") == [(0,)]


def test_a_follower_that_cannot_say_that_it_is_ready_begins_again() -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0)
    scene.host.join_position, scene.host.sends = 0, False
    scene.step(times=5)
    assert scene.state == "FOLLOWER_READY"
    scene.step(10_000 * MS)
    assert "AppendPosition to be sent to member 0" in str(scene.host.errors[0])


def test_cm40_a_divergent_log_is_truncated_and_the_election_begins_again() -> None:
    scene = Scene(term=1, base=0, position=50, append=200)
    scene.canvassed()
    scene.host.truncated = False
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    assert scene.sent("begin_truncation") == [(1, 100)]
    scene.step(times=3)
    assert scene.state == "CANVASS"
    # Meanwhile it answers, and counts on nothing that goes.
    scene.hear("request_vote", 1, 100, 9, 2)
    assert scene.sent("vote") == [(2, 9, 1, 100, True)]
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    assert not scene.sent("begin_truncation")
    scene.host.truncated, scene.host.prepared = True, 100
    scene.step()
    assert scene.state == "INIT"
    assert isinstance(scene.host.errors[0], ClusterEvent)
    assert "recorded up to 200, and term 1 ends at 100 in the log of member 0" in str(scene.host.errors[0])
    scene.step(times=2)
    assert scene.sent("canvass")[-1] == (1, 100, 1)


@pytest.mark.parametrize(("committed", "is_truncated"), [(100, True), (101, False)])
def test_native_members_take_nothing_back_that_was_committed(committed: int, is_truncated: bool) -> None:
    scene = Scene(term=1, base=0, position=100, append=200)
    scene.canvassed()
    scene.host.commit = committed
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    assert bool(scene.sent("begin_truncation")) == is_truncated
    if not is_truncated:
        assert scene.state == "INIT"
        assert (
            "the log is not truncated: this member has recorded up to 200, and term 1 ends at 100 in the log of member "
            "0, which leads term 3; committed is 101. No native members take back what was committed, unless"
        ) in str(scene.host.errors[0])


def test_beside_members_of_upstreams_a_member_takes_back_what_a_leader_wants() -> None:
    """Their rules allow that, and without this member there may be no quorum."""
    scene = Scene(term=1, base=0, position=100, append=200)
    scene.canvassed((2, 1, 100), version=1 << 16)
    scene.host.commit = 150
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    assert scene.sent("begin_truncation") == [(1, 100)]


def test_a_leader_of_upstreams_is_known_by_its_term_alone() -> None:
    """It canvasses no more, and who comes back hears of it in nothing else."""
    scene = Scene(term=1, base=0, position=100, append=200)
    scene.canvassed()
    scene.host.commit = 150
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120), version=-1)
    assert scene.sent("begin_truncation") == [(1, 100)]


@pytest.mark.parametrize(("last", "is_truncated"), [(1 << 16, True), (NATIVE_PROTOCOL_VERSION, False)])
def test_a_member_of_upstreams_is_not_forgotten_with_a_canvass(last: int, is_truncated: bool) -> None:
    """It may have led, and be down: what it let this member commit may go. One that has migrated is native."""
    scene = Scene(term=1, base=0, position=100, append=200)
    scene.canvassed((2, 1, 100), version=1 << 16)
    scene.hear("canvass_position", 1, 100, 1, 2, last)
    scene.election.handle_error(scene.host.now, ClusterEvent("a term ended"))
    scene.canvassed()
    scene.host.commit = 150
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    assert bool(scene.sent("begin_truncation")) == is_truncated


def test_a_truncation_that_does_not_end_is_an_error() -> None:
    scene = Scene(term=1, base=0, position=50, append=200)
    scene.canvassed()
    scene.host.truncated = False
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    scene.step(10_000 * MS)
    assert "waited too long for services to join a replay, or the archive to truncate" in str(scene.host.errors[0])


def test_services_that_applied_what_is_truncated_have_to_start_again() -> None:
    scene = Scene(term=1, base=0, position=150, append=200)
    scene.canvassed((2, 1, 100), version=1 << 16)
    scene.hear_new_term(log_term=1, term=3, base=120, following=(2, 100, 120))
    with pytest.raises(AgentTermination, match="150 applied: the services' state has what the log has lost"):
        scene.step()


def test_a_late_message_of_the_own_term_truncates_nothing() -> None:
    scene = Scene(term=2, base=100, position=150, append=150)
    scene.canvassed()
    scene.hear_new_term(log_term=2, term=2, base=100, following=(2, 100, -1))
    assert scene.state == "FOLLOWER_REPLAY"
    assert not scene.sent("begin_truncation")


# As leader


def test_cm41_a_leader_waits_until_a_quorum_has_its_log_in_its_term() -> None:
    scene = Scene(me=0, term=1, base=0, position=60, append=120)
    scene.host.ends = {1: 120}
    scene.elected((1, 1, 60), (2, 1, 120))
    scene.step()
    assert scene.sent("new_term") == [(1, 1, 2, 120, 0, SESSION_ID, False), (2, 1, 2, 120, 0, SESSION_ID, False)]
    assert scene.sent("commit") == [(0, 2)]
    # The term is in its recording log before anybody hears of it.
    assert [call[0] for call in scene.host.calls if call[0] in ("ensure_term", "new_term")] == ["ensure_term"]
    # A word from before the term is not a follower's.
    scene.hear("canvass_position", 1, 120, 1, 2)
    assert scene.sent("new_term") == [(2, 1, 2, 120, 0, SESSION_ID, False)]
    scene.step(times=3)
    assert scene.state == "LEADER_LOG_REPLICATION"
    scene.hear("append_position", 2, 60, 1, 0)
    scene.step()
    assert scene.sent("commit") == [(60, 2)]
    scene.hear("append_position", 2, 120, 2, 0)
    scene.step()
    assert scene.state == "LEADER_REPLAY"
    assert scene.sent("ensure_term") == [(1, 0, 2, 120, -1)]
    assert scene.sent("commit") == [(120, 2)]
    scene.step()
    assert scene.sent("new_log_replay") == [(60, 120)]
    assert scene.host.replay is not None
    scene.host.replay.done = True
    scene.step(times=2)
    assert scene.sent("close_replay") == [()]
    assert scene.sent("begin_join_as_leader") == [(2, 120, SESSION_ID, True)]


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_replay_of_a_leader_that_stands_still_has_an_end_unless_a_snapshot_is_taken(snapshot: bool) -> None:
    scene = Scene(me=1, term=1, base=0, position=60, append=120)
    scene.elected((0, 1, 120), (2, 1, 120))
    scene.hear("append_position", 2, 120, 0, 0)
    scene.step(times=3)
    assert scene.host.replay is not None
    scene.step(9_000 * MS)
    assert scene.state == "LEADER_REPLAY", "it goes on"
    scene.host.replay.work, scene.host.snapshot = 0, snapshot
    scene.step(9_000 * MS)
    scene.step(9_000 * MS)
    assert scene.state == ("LEADER_REPLAY" if snapshot else "INIT")
    assert [str(each) for each in scene.host.errors] == [
        "LEADER_REPLAY: waited too long for services and archive to continue the replay of the log"
    ] * (not snapshot)


def test_commit_position_and_new_term_are_of_the_same_term() -> None:
    scene = Scene(me=1, term=42, base=0, position=100)
    scene.elected((0, 42, 100), (2, 42, 100))
    scene.hear("append_position", 43, 100, 0, 0)
    scene.step()
    assert scene.state == "LEADER_REPLAY"
    assert scene.sent("new_term") == [
        (0, 42, 43, 100, 100, SESSION_ID, False),
        (2, 42, 43, 100, 100, SESSION_ID, False),
    ]
    assert scene.sent("commit") == [(100, 43)]
    scene.step()
    assert scene.state == "LEADER_INIT"
    assert scene.sent("new_term") == [(to, 43, 43, 100, 100, SESSION_ID, True) for to in (0, 2)]
    assert scene.sent("commit") == [(100, 43)]


def test_cm45_a_leader_in_its_election_is_heard_at_each_interval() -> None:
    scene = Scene(me=0, term=1, position=100)
    scene.elected((1, 1, 100), (2, 1, 100))
    scene.host.joined_as_leader = False
    scene.hear("append_position", 2, 100, 1, 0)
    scene.step(times=4)
    assert scene.state == "LEADER_INIT"
    scene.sent("new_term")
    scene.sent("commit")
    scene.step(50 * MS, times=40)
    assert len(scene.sent("new_term")) == 2 * 10
    assert len(scene.sent("commit")) == 10
    # And it answers.
    scene.hear("canvass_position", 0, 40, 0, 2)
    assert scene.sent("new_term") == [(2, 0, 2, 100, 100, SESSION_ID, True)]
    scene.hear("request_vote", 1, 100, 2, 2)
    assert scene.sent("vote") == [(2, 2, 2, 100, False)]


def test_a_leader_without_a_log_publication_says_nothing_and_steps_down() -> None:
    scene = Scene(me=0, term=1, position=100)
    scene.host.publication = None
    scene.elected((1, 1, 100), (2, 1, 100))
    scene.hear("canvass_position", 0, 40, 0, 2)
    scene.step(9_000 * MS)
    assert not scene.sent("new_term")
    assert scene.state == "LEADER_LOG_REPLICATION"
    scene.step(1_000 * MS)
    assert scene.state == "INIT"
    assert "waited too long for the driver to add the log publication, from log:3" in str(scene.host.errors[0])
    scene.step()
    assert scene.sent("begin_preparation")
    assert scene.host.role == Role.FOLLOWER


def test_a_leader_whose_port_is_taken_leaves_the_others_ever_more_time() -> None:
    scene = Scene(me=0, term=1, position=100)
    scene.host.publication = ClusterError("cannot bind log:3")
    pauses = []
    for _ in range(10):
        pauses.append(scene.pause_ms())
        scene.step(500 * MS)
        for member_id in (1, 2):
            scene.hear("vote", scene.election.candidate_term_id, 1, 100, 0, member_id, True)
        scene.step(times=2)
        assert scene.state == "INIT"
    # Each time the driver says a number of its own, it is the same trouble.
    assert pauses == [2, 2, 100, 200, 400, 800, 1600, 3200, 6400, 10_000]


def test_a_leader_without_followers_steps_down() -> None:
    scene = Scene(me=0, term=1, position=100)
    scene.elected((1, 1, 100), (2, 1, 100))
    scene.step()
    scene.hear("append_position", 2, 40, 1, 0)
    scene.step(9_000 * MS)
    scene.hear("append_position", 2, 50, 1, 0)
    scene.step(9_000 * MS)
    assert scene.state == "LEADER_LOG_REPLICATION"
    scene.step(5_000 * MS)
    scene.step(5_000 * MS)
    assert scene.state == "INIT"
    assert "waited too long for a quorum of members to follow in term 2" in str(scene.host.errors[0])


def test_cm42_a_leader_that_is_ready_and_has_lost_its_followers_steps_down() -> None:
    scene = Scene(me=0, term=1, position=100)
    scene.elected((1, 1, 100), (2, 1, 100))
    scene.host.event_goes = False
    scene.hear("append_position", 2, 100, 1, 0)
    scene.step(times=6)
    assert scene.state == "LEADER_READY"
    assert scene.sent("append_new_leadership_term_event")
    scene.step(10_000 * MS)
    assert scene.state == "INIT"
    assert not scene.sent("append_new_leadership_term_event")
    assert scene.sent("update_leader_position")[-1][1:] == (0,)


def test_a_leader_whose_services_do_not_join_steps_down_and_a_single_member_waits() -> None:
    scene = Scene(me=0, term=1, position=100)
    scene.elected((1, 1, 100), (2, 1, 100))
    scene.host.joined_as_leader = False
    scene.hear("append_position", 2, 100, 1, 0)
    scene.step(times=4)
    scene.step(10_000 * MS)
    assert scene.state == "INIT"
    assert "the recording of the log to begin and the services to join it as leader" in str(scene.host.errors[0])
    single = Scene(me=0, count=1)
    single.host.joined_as_leader = False
    single.step(10_000 * MS, times=20)
    assert single.state == "LEADER_INIT"
    assert single.sent("begin_join_as_leader") == [(0, 0, SESSION_ID, True)]


def leading(state: str) -> Scene:
    """A member that leads term 2, in that state."""
    scene = Scene(me=0, term=1, position=100, append=120)
    scene.elected((1, 1, 120), (2, 1, 120))
    scene.host.joined_as_leader = scene.host.event_goes = False
    if state == "LEADER_LOG_REPLICATION":
        return scene
    scene.hear("append_position", 2, 120, 1, 0)
    scene.step(times=2)
    assert scene.host.replay is not None
    if state != "LEADER_REPLAY":
        scene.host.replay.done = True
        scene.step(times=2)
    if state == "LEADER_READY":
        scene.host.joined_as_leader = True
        scene.step()
    return scene


@pytest.mark.parametrize("state", LEADING)
@pytest.mark.parametrize("message", ["canvass_position", "request_vote", "new_term", "commit_position"])
def test_a_leader_in_its_election_stands_back_for_a_newer_term(state: str, message: str) -> None:
    scene = leading(state)
    assert scene.state == state
    if message == "canvass_position":
        scene.hear(message, 3, 200, 3, 1)
    elif message == "request_vote":
        scene.hear(message, 2, 120, 3, 1)
    elif message == "commit_position":
        scene.hear(message, 3, 120, 1)
    else:
        scene.hear_new_term(1, log_term=1, term=3, base=120)
    assert scene.state == "INIT"
    assert "a newer term than 2, " in str(scene.host.errors[0])


@pytest.mark.parametrize("state", LEADING)
def test_a_leader_in_its_election_goes_on_whatever_an_older_term_says(state: str) -> None:
    scene = leading(state)
    scene.hear("canvass_position", 1, 100, 1, 1)
    scene.hear("request_vote", 1, 120, 2, 1)
    scene.hear("commit_position", 1, 120, 1)
    scene.hear("append_position", 3, 500, 1, 0)
    scene.hear_new_term(1, log_term=1, term=1, base=120)
    assert scene.state == state
    member = scene.members.find(1)
    assert member is not None
    assert member.log_position == 100


def test_a_follower_begins_again_for_a_newer_leader() -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0)
    scene.step(times=2)
    assert scene.state == "FOLLOWER_LOG_AWAIT"
    scene.hear_new_term(2, log_term=1, term=1, base=0)
    assert scene.state == "FOLLOWER_LOG_AWAIT"
    scene.hear_new_term(2, log_term=1, term=2, base=0)
    assert scene.state == "INIT"
    assert "in which this member is in FOLLOWER_LOG_AWAIT: NewLeadershipTerm of member 2" in str(scene.host.errors[0])


# What the leader says of its commits


def test_the_notified_commit_position_never_falls_by_a_commit_position() -> None:
    scene = Scene(term=7, position=100)
    scene.canvassed()
    scene.hear_new_term(log_term=7, term=7, base=100)
    election = scene.election
    for position, expected in ((2048, 2048), (5000, 5000), (100, 5000), (4999, 5000), (-(1 << 63), 5000)):
        scene.hear("commit_position", 7, position, 0)
        assert election.notified_commit_position == expected
    # The term may be an older one: leaders before 1.50 sent it.
    scene.hear("commit_position", 2, 10_000, 0)
    assert election.notified_commit_position == 10_000
    scene.hear("commit_position", 7, 13_131, 2)
    scene.hear("commit_position", 7, 13_131, 9)
    assert election.notified_commit_position == 10_000
    election.leader = None
    scene.hear("commit_position", 7, 65_535, 0)
    assert election.notified_commit_position == 10_000
    election.state = ElectionState.INIT
    scene.hear("commit_position", 7, 1 << 60, 0)
    assert election.notified_commit_position == 10_000


def test_the_notified_commit_position_never_falls_by_a_new_term() -> None:
    scene = Scene(term=7, position=100)
    scene.canvassed()

    def heard(state: ElectionState, term: int, commit: int, *, leader: int = 0, log_term: int = 7) -> tuple[int, int]:
        scene.election.state = state
        scene.election.log_leadership_term_id = 7
        scene.hear_new_term(leader, log_term=log_term, term=term, base=100, following=(-1, -1, -1), commit=commit)
        return scene.election.notified_commit_position, scene.election.leadership_term_id

    state = ElectionState
    assert heard(state.CANVASS, 111, 333) == (333, 111)
    # In a ballot only the candidate's term counts.
    assert heard(state.FOLLOWER_BALLOT, 111, 555) == (555, 111)
    assert heard(state.FOLLOWER_BALLOT, 112, 600) == (555, 111)
    assert heard(state.CANDIDATE_BALLOT, 111, 560) == (560, 111)
    # Upstream follows a leader of an older term in CANVASS; we voted in a newer one.
    assert heard(state.CANVASS, 2, 777) == (560, 111)
    assert heard(state.INIT, 222, 777) == (560, 111)
    assert heard(state.CANVASS, 222, 777, leader=43) == (560, 111)
    assert heard(state.CANVASS, 111, 777, leader=1) == (560, 111)
    assert heard(state.CANVASS, 222, 777, leader=1) == (777, 222)
    assert heard(state.CANVASS, 333, 500) == (777, 333)
    assert heard(state.CANVASS, 334, -1) == (777, 334)
    assert heard(state.CANVASS, 444, 1000, log_term=6) == (777, 334)
    for other in state:
        if other not in (state.INIT, state.CANVASS, state.CANDIDATE_BALLOT, state.FOLLOWER_BALLOT):
            assert heard(other, 555, 2000, log_term=6) == (777, 334)


# What a member is known for


@pytest.mark.parametrize("is_error", [False, True])
def test_what_a_leader_has_committed_is_forgotten_with_it(is_error: bool) -> None:
    """Another one has its own log, of which that says nothing."""
    scene = Scene(term=0, position=60, append=120)
    scene.canvassed()
    scene.hear_new_term(leader=0, log_term=0, term=1, base=120, following=(1, 120, -1), commit=100)
    assert (scene.state, scene.election.notified_commit_position) == ("FOLLOWER_REPLAY", 100)
    if is_error:
        scene.election.handle_error(scene.host.now, ClusterEvent("the leader is gone"))
        scene.step(times=2)
    else:
        scene.host.commit = 100
        scene.hear("commit_position", 1, 120, 0)
        scene.step()
        assert scene.host.replay is not None
        scene.host.replay.at, scene.host.replay.done = 110, True
        scene.step()
    assert (scene.state, scene.election.notified_commit_position) == ("CANVASS", 0)


def test_term_position_and_time_of_a_member_are_set_together() -> None:
    members = Scene(me=0).members
    member = members.find(1)
    assert member is not None
    assert not member.is_active(0, 10)
    assert member.time_of_last_append_position_ns == -1  # never heard from, as upstream's
    for name in ("leadership_term_id", "log_position", "time_of_last_append_position_ns"):
        with pytest.raises(AttributeError):
            setattr(member, name, 7)
    member.set_log(3, 100, 50)
    assert (member.leadership_term_id, member.log_position, member.time_of_last_append_position_ns) == (3, 100, 50)
    assert [member.is_active(now, 10) for now in (50, 59, 60)] == [True, True, False]
    member.reset()
    assert not member.is_active(50, 10)


def test_a_member_of_an_older_term_counts_up_to_the_end_of_that_term() -> None:
    members = Scene(me=0).members
    members.this_member.set_log(4, 500, 50)
    for member_id, term, position in ((1, 2, 400), (2, 1, 300)):
        member = members.find(member_id)
        assert member is not None
        member.set_log(term, position, 50)
    ends = {2: 120, 1: 90}
    assert members.quorum_position(4, lambda term: ends.get(term, 0), 50, 10) == 120
    assert members.quorum_position(4, lambda _term: 0, 50, 10) == 0
    assert members.quorum_position(2, lambda term: ends.get(term, 0), 50, 10) == 90


# What upstream gets wrong


def test_a_member_follows_no_leader_of_a_term_before_its_vote() -> None:
    """Else a candidate that counts the vote and the leader that counts the follower each commit what they will."""
    scene = Scene(term=4, position=100, is_startup=False)
    scene.canvassed()
    scene.hear("request_vote", 4, 100, 5, 2)
    scene.step(1_200 * MS)
    assert scene.state == "CANVASS"
    for _ in range(9):
        scene.hear_new_term(log_term=4, term=4, base=0, position=150, commit=100)
        scene.step(100 * MS)
    assert scene.state == "CANVASS"
    assert not scene.sent("append")
    assert {call[2] for call in scene.sent("canvass")} == {4}
    # The leader goes on, so this member says that it has voted, and a native leader begins a new election.
    scene.wait(200 * MS)
    scene.hear_new_term(log_term=4, term=4, base=0, position=150, commit=100)
    scene.step(100 * MS)
    assert (scene.state, scene.sent("canvass")) == ("CANVASS", [(4, 100, 5)])
    # Upstream's leader does not, and is followed as its own members would: that ballot is over.
    scene.hear_new_term(log_term=4, term=4, base=0, position=150, commit=100, version=-1)
    assert scene.state == "FOLLOWER_REPLAY"


def test_who_is_not_appointed_does_not_ask_for_an_election_either() -> None:
    scene = Scene(term=4, position=100, appointed_leader=0, persisted=5)
    scene.canvassed()
    for _ in range(30):
        scene.hear_new_term(log_term=4, term=4, base=0, position=150, commit=100)
        scene.step(100 * MS)
    assert scene.state == "CANVASS"


def test_the_tail_of_an_old_term_does_not_open_the_new_one() -> None:
    """Issue 2147 of upstream's, in LEADER_LOG_REPLICATION: a longer log of an older term is another log."""
    scene = Scene(me=0, term=3, base=80, position=80, append=100)
    scene.host.ends = {2: 80, 3: 100}
    scene.canvassed((1, 3, 100))
    scene.step(60_000 * MS)
    scene.step(500 * MS)
    scene.hear("vote", 4, 3, 100, 0, 1, True)
    scene.step(1_000 * MS)
    assert scene.state == "LEADER_LOG_REPLICATION"
    for _ in range(20):
        scene.hear("canvass_position", 2, 300, 2, 2)
        scene.step(100 * MS)
    assert scene.state == "LEADER_LOG_REPLICATION"
    assert {commit for commit, _ in scene.sent("commit")} == {0}
    scene.hear("append_position", 4, 100, 1, 0)
    scene.step()
    assert scene.state == "LEADER_REPLAY"
    # From here on it counts as far as its log is the leader's.
    member = scene.members.find(1)
    assert member is not None
    scene.wait(10_000 * MS)
    scene.hear("canvass_position", 2, 300, 2, 2)
    scene.step()
    assert scene.sent("commit")[-1] == (100, 4)
    assert scene.host.replay is not None
    scene.host.replay.done = True
    scene.step(times=3)
    assert scene.sent("update_leader_position")[-1][1:] == (80,)


def test_issue_2147_a_restarted_leader_with_an_uncommitted_tail_commits_nothing() -> None:
    """The seven steps of upstream's issue: what is acknowledged after them would be lost."""
    cluster = Cluster(3, 1)
    cluster.loss, cluster.append_chance = 0.0, 0.0
    old_leader, *others = cluster.nodes
    cluster.oracle.bases[0] = 0
    # 1. Member 0 led term 0. 2. It recorded a tail that nobody else has. 3. It stopped.
    for node in cluster.nodes:
        node.disk.has_recording, node.disk.terms = True, [Term(0, 0, -1)]
        node.disk.entries = [(0, 0), (0, 1), (0, 2)]
    old_leader.disk.entries += [(0, 91), (0, 92), (0, 93), (0, 94)]
    # 4. The two others elect one of them.
    for node in others:
        node.start()
    for _ in range(600):
        cluster.tick()
    leader = next(node for node in others if node.role == Role.LEADER)
    follower = next(node for node in others if node is not leader)
    assert (leader.election, follower.election, leader.commit) == (None, None, 4)
    # 5. It appends a message, which the follower does not get.
    cluster.cuts = {follower.id}
    leader.disk.entries.append((leader.leadership_term_id, 1000))
    # 6. The old leader comes back and says how long its log is.
    for _ in range(10):
        leader.hear("canvass_position", (0, 7, 0, old_leader.id, old_leader.protocol_version))
        cluster.tick()
        assert leader.commit == 4
    # 7. The leader dies, the others elect one of them, and nothing that was applied is lost.
    leader.crash()
    cluster.cuts = set()
    old_leader.start()
    for _ in range(900):
        cluster.tick()
    assert follower.election is old_leader.election is None
    assert old_leader.disk.entries == follower.disk.entries
    assert (0, 91) not in old_leader.disk.entries
    assert len(cluster.committed) == 5


def one_cut_off_leader_after_the_other() -> Cluster:
    """Five members of which 0 and 1 have an entry that nobody else has, and 2 led a term before it was cut off.

    Member 0 is elected by 1 and 3, which copies the entry; then 1 is cut off, 0 and 3 die, and 2 comes back with 4.
    """
    cluster = Cluster(5, 1)
    cluster.loss, cluster.append_chance = 0.0, 0.0
    for node in cluster.nodes:
        disk = node.disk
        disk.has_recording, disk.entries, disk.terms = True, [(1, 0)], [Term(1, 0, -1)]
        if node.id < 2:
            disk.entries.append((1, 5))
        else:
            disk.candidate_term_id = 2
    cluster.nodes[2].disk.terms = [Term(1, 0, 1), Term(2, 1, -1)]
    cluster.oracle.bases.update({1: 0, 2: 1})
    cluster.settings.appointed_leader_id = 0
    for member_id in (0, 1, 3):
        cluster.nodes[member_id].start()
    while ElectionState.LEADER_LOG_REPLICATION not in cluster.states:
        cluster.tick()
        assert cluster.now_ns < 60_000 * MS
    cluster.broken = {(0, 1), (1, 0)}
    for _ in range(50):
        cluster.tick()
    assert cluster.nodes[3].disk.entries == [(1, 0), (1, 5)]
    return cluster


def two_leads_again(cluster: Cluster) -> None:
    cluster.nodes[0].crash()
    cluster.nodes[3].crash()
    cluster.broken, cluster.settings.appointed_leader_id = set(), 2
    cluster.nodes[2].start()
    cluster.nodes[4].start()
    for _ in range(600):
        cluster.tick()
    assert cluster.nodes[2].role == Role.LEADER


def test_a_leader_applies_nothing_that_a_leader_before_it_could_take_back() -> None:
    cluster = one_cut_off_leader_after_the_other()
    assert cluster.committed == []
    two_leads_again(cluster)
    assert (1, 5) not in cluster.committed
    assert cluster.nodes[1].disk.entries == cluster.nodes[2].disk.entries


def test_what_members_said_before_the_term_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it counts only as far as that log is the leader's: the same run, with the quorum counted so."""
    monkeypatch.setattr(Election, "_quorum_position", lambda each, now: each._count_position(now, is_strict=False))
    with pytest.raises(Violation, match="applies .* at 1 in term 3 .*, and member 2 can lead without it"):
        one_cut_off_leader_after_the_other()


# Members of upstream's


def test_a_member_comes_back_to_a_leader_of_upstreams_that_does_not_have_what_was_committed() -> None:
    """Upstream's hole: it ends, as its services have what the log has lost, and follows after its start."""
    cluster = Cluster("NJJ", 1)
    cluster.loss, cluster.append_chance, cluster.oracle.is_lossy = 0.0, 0.0, True
    for node in cluster.nodes:
        disk = node.disk
        disk.has_recording, disk.entries, disk.terms = True, [(1, 0)], [Term(1, 0, -1)]
    native, *others = cluster.nodes
    native.disk.entries.append((1, 5))
    for node in others:
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    run_until(cluster, lambda: False, 2_000 * MS)  # what they said without a leader is past
    native.start()
    native.commit = 2
    native.enter_election("its leader is gone")
    assert run_until(cluster, lambda: not native.is_up) < LIMIT_NS
    native.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    leader = cluster.leader()
    assert leader is not None
    assert leader.is_java
    assert native.disk.entries == leader.disk.entries


def test_members_of_upstreams_count_by_what_they_said_before_the_term() -> None:
    """They say nothing in a term whose leader announces less than all of their log, and nothing while they replay."""
    scene = Scene(me=0, count=5, term=1, base=0, position=60, append=120)
    scene.host.ends = {1: 120}
    for member_id, position in ((1, 120), (2, 120), (3, 40), (4, 40)):
        if member_id == 1:
            scene.step()
        scene.hear("canvass_position", 1, position, 1, member_id, UPSTREAM_VERSION)
    scene.step()
    scene.step(500 * MS)
    for member_id, position in ((1, 120), (2, 120), (3, 40), (4, 40)):
        scene.hear("vote", scene.election.candidate_term_id, 1, position, 0, member_id, True)
    scene.step(times=2)
    assert scene.state == "LEADER_REPLAY"
    assert {call[4] for call in scene.sent("new_term")} == {120}


def test_a_leader_says_from_the_first_message_on_what_upstreams_would_say() -> None:
    scene = Scene(me=0, count=5, term=1, base=0, position=0, append=120)
    scene.host.ends = {1: 120}
    scene.step()
    for member_id, version in ((1, NATIVE_PROTOCOL_VERSION), (2, UPSTREAM_VERSION), (3, NATIVE_PROTOCOL_VERSION)):
        scene.hear("canvass_position", 1, 120, 1, member_id, version)
    scene.step(60_000 * MS)
    scene.step(500 * MS)
    for member_id in (1, 2, 3, 4):
        scene.hear("vote", scene.election.candidate_term_id, 1, 120, 0, member_id, True)
    scene.step(times=2)
    assert scene.state == "LEADER_LOG_REPLICATION"
    # For native members nothing is committed until they have said so in the term. Member 4 has not said what it is.
    assert [(call[0], call[4]) for call in scene.sent("new_term")] == [(1, 0), (2, 120), (3, 0)]
    assert {commit for commit, _ in scene.sent("commit")} == {0}


def test_a_member_of_upstreams_that_has_all_hears_of_no_commit_position_0() -> None:
    """It would wait for this leader for ever, and counts without."""
    scene = Scene(me=0, count=5, term=1, base=0, position=0, append=120)
    scene.step()
    scene.hear("canvass_position", 1, 120, 1, 1, UPSTREAM_VERSION)
    scene.hear("canvass_position", -1, 0, -1, 2, UPSTREAM_VERSION)
    scene.hear("canvass_position", -1, 0, -1, 3, UPSTREAM_VERSION)
    scene.step(60_000 * MS)
    scene.step(500 * MS)
    for member_id, position in ((1, 120), (2, 0), (3, 0)):
        scene.hear("vote", scene.election.candidate_term_id, 1 if position else -1, position, 0, member_id, True)
    scene.step(1000 * MS)
    scene.step(times=2)
    # Nor does one that has something to copy, unasked: it may hear that after it has copied it.
    assert scene.sent("new_term") == []
    for member_id, position in ((1, 120), (2, 0), (3, 0)):
        scene.hear("canvass_position", 1 if position else -1, position, 1, member_id, UPSTREAM_VERSION)
    assert [(call[0], call[4]) for call in scene.sent("new_term")] == [(2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("bases", "position", "is_answered"),
    [({}, 120, False), ({2: 0}, 120, True), ({2: 120}, 120, False), ({}, 121, True), ({}, 119, True)],
)
def test_a_member_of_upstreams_that_takes_back_or_copies_something_hears_of_a_commit_position_of_0(
    bases: dict[int, int], position: int, is_answered: bool
) -> None:
    scene = Scene(me=0, term=2, base=0, position=0, append=120)
    scene.elected((1, 2, 0), (2, 2, 0))
    scene.step()
    scene.host.bases = bases
    scene.sent("new_term")
    scene.hear("canvass_position", 1, position, 1, 1, UPSTREAM_VERSION)
    assert bool(scene.sent("new_term")) == is_answered


def test_one_of_upstreams_that_has_not_said_its_position_hears_no_commit_position_of_zero() -> None:
    scene = Scene(me=0, term=1, base=0, append=120)
    scene.canvassed((2, -1, 0))
    scene.hear("request_vote", 1, 110, 1, 1, UPSTREAM_VERSION)
    scene.step(60_000 * MS)
    scene.step(500 * MS)
    scene.hear("vote", scene.election.candidate_term_id, -1, 0, 0, 2, True)
    scene.step(1000 * MS)
    scene.step(times=2)
    assert scene.state == "LEADER_LOG_REPLICATION"
    assert [(call[0], call[4]) for call in scene.sent("new_term")] == [(2, 0)]


def test_upstreams_hear_nothing_of_what_was_counted_before_this_member_lost_it() -> None:
    scene = Scene(term=1, base=0, position=50, append=120)
    scene.host.ends = {1: 120}
    scene.elected((0, 1, 120), (2, 1, 120), version=UPSTREAM_VERSION)
    scene.step()
    assert [call[4] for call in scene.sent("new_term")] == [120, 120]
    following = (3, 100, 100)
    scene.hear_new_term(2, log_term=2, term=9, base=100, following=following, version=-1)
    scene.step(times=2)
    scene.hear_new_term(2, log_term=2, term=9, base=100, following=following, version=-1)
    scene.host.prepared = 100
    scene.step(times=2)
    scene.host.ends = {1: 100}
    others = ((0, 2, 100), (2, 1, 80))
    while scene.state != "CANDIDATE_BALLOT":
        for member_id, term, position in others:
            scene.hear("canvass_position", term, position, term, member_id, UPSTREAM_VERSION)
        scene.step(50 * MS)
    for member_id, term, position in others:
        scene.hear("vote", scene.election.candidate_term_id, term, position, 1, member_id, True)
    scene.step(times=2)
    assert [call[3:5] for call in scene.sent("new_term")] == [(100, 80), (100, 80)]


@pytest.mark.parametrize("base", [100, 120])
def test_a_recorded_term_that_is_empty_is_looked_for_in_the_log_of_upstreams_leader(base: int) -> None:
    """Upstream's names the next term alone: what lies before it can be of this member's term, or of the one before."""
    scene = Scene(term=4, base=100, position=100)
    scene.host.bases = {4: 100}
    scene.canvassed()
    scene.hear_new_term(log_term=4, term=7, base=150, following=(5, 120, 120), version=-1)
    assert (scene.state, scene.sent("canvass_to")) == ("CANVASS", [(0, 3, 100, 4)])
    scene.hear_new_term(log_term=3, term=7, base=150, following=(4, base, 120), version=-1)
    scene.step()
    if base == 100:
        assert (scene.sent("drop_empty_terms"), scene.sent("new_log_replication")) == ([], [(0, RECORDING_ID, 120)])
    else:
        assert (scene.sent("drop_empty_terms"), scene.election.log_leadership_term_id) == ([(4,)], 3)


@pytest.mark.parametrize(("base", "end", "dropped"), [(120, 120, [4]), (100, 120, [5]), (100, 100, []), (100, -1, [])])
def test_recorded_terms_that_are_empty_are_dropped_at_once(base: int, end: int, dropped: list[int]) -> None:
    """Else each takes two answers of the leader, and a member that led after many lost ballots is long in coming."""
    scene = Scene(term=6, base=100, position=100)
    scene.host.bases = {3: 60, 4: 100, 5: 100, 6: 100}
    scene.canvassed()
    scene.hear_new_term(log_term=6, term=9, base=150, following=(7, 120, 120), version=-1)
    assert scene.sent("canvass_to") == [(0, 3, 100, 6), (0, 5, 100, 6)]
    scene.hear_new_term(log_term=3, term=9, base=150, following=(4, base, end), version=-1)
    assert scene.state == "CANVASS"
    assert scene.sent("drop_empty_terms") == [(each,) for each in dropped]
    assert scene.election.log_leadership_term_id == min(dropped, default=7) - 1
    if not dropped:
        scene.hear_new_term(log_term=5, term=9, base=150, following=(6, 100, 120), version=-1)
        scene.step()
        assert scene.sent("new_log_replication") == [(0, RECORDING_ID, 120)]


def test_a_leader_of_upstreams_is_refused_once_for_a_vote_however_many_terms_are_to_be_copied() -> None:
    scene = Scene(term=4, base=60, position=100, persisted=9)
    scene.host.bases = {4: 60}
    scene.canvassed()
    message: dict[str, Any] = {"term": 7, "base": 120, "version": -1}
    scene.hear_new_term(log_term=4, following=(5, 100, 100), **message)
    assert scene.state == "CANVASS"
    scene.step(1_000 * MS)
    scene.hear_new_term(log_term=4, following=(5, 100, 100), **message)
    assert scene.state == "FOLLOWER_LOG_REPLICATION"
    scene.step()
    assert (scene.state, scene.election.log_leadership_term_id) == ("CANVASS", 5)
    scene.hear_new_term(log_term=5, following=(6, 100, 100), **message)
    assert scene.state == "FOLLOWER_LOG_REPLICATION"
    scene.step()
    scene.hear("request_vote", 6, 120, 10, 2)
    scene.step(1_200 * MS)
    assert (scene.state, scene.host.persisted) == ("CANVASS", 10)
    scene.hear_new_term(log_term=6, following=(7, 100, 120), **message)
    assert scene.state == "CANVASS"


def test_a_leader_waits_for_members_of_upstreams_however_long_they_are_silent() -> None:
    scene = Scene(me=0, count=5, term=1, base=0, position=60, append=120)
    scene.elected(*((each, 1, 120 if each == 1 else 60) for each in (1, 2, 3, 4)), version=UPSTREAM_VERSION)
    for _ in range(60):
        scene.step(1_000 * MS)
    assert scene.state == "LEADER_LOG_REPLICATION"


def test_under_an_appointed_leader_of_upstreams_a_term_is_recorded_when_the_log_is_joined() -> None:
    scene = Scene(term=1, base=0, position=50, append=100, appointed_leader=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=2, base=100, following=(2, 100, -1), version=-1)
    scene.step()
    assert scene.sent("append") == [(0, 2, 100, 0)]
    assert not scene.sent("ensure_term")


def test_who_leads_an_older_term_hears_of_a_newer_log() -> None:
    """Upstream's leader waits in LEADER_LOG_REPLICATION for ever unless it hears of one."""
    scene = leading("LEADER_INIT")
    scene.hear_new_term(1, log_term=0, term=1, base=120)
    assert scene.sent("canvass_to") == [(1, 2, 120, 2)]
    scene.hear_new_term(1, log_term=2, term=2, base=120)
    assert not scene.sent("canvass_to")


def test_an_answer_for_an_older_log_truncates_nothing() -> None:
    """It comes late: the member has recorded the term that it says comes next, which begins before its log ends."""
    scene = Scene(term=5, base=90, position=80, append=100)
    scene.host.bases = {3: 60, 5: 90}
    scene.canvassed()
    scene.hear_new_term(log_term=3, term=6, base=120, following=(5, 90, 120), commit=80)
    assert (scene.state, scene.sent("begin_truncation")) == ("CANVASS", [])


# What a member has recorded, and what it voted for


def test_a_term_that_its_leader_never_opened_is_dropped() -> None:
    """Else what comes next of the term before would be recorded as of this one."""
    scene = Scene(term=3, base=80, position=80)
    scene.host.bases = {2: 40, 3: 80}
    scene.canvassed()
    scene.hear_new_term(log_term=3, term=5, base=120, following=(3, 100, 100), commit=60)
    assert (scene.sent("drop_empty_terms"), scene.sent("canvass_to")) == ([], [(0, 2, 80, 3)])
    scene.hear_new_term(log_term=2, term=5, base=120, following=(4, 100, 120), commit=60)
    assert scene.sent("drop_empty_terms") == [(3,)]
    scene.step(100 * MS)
    assert (scene.state, scene.sent("canvass")[-1]) == ("CANVASS", (2, 80, 3))


def test_a_term_that_is_in_no_recording_log_yet_is_dropped() -> None:
    """A new log has no recording when its first term begins."""
    scene = Scene(term=3, base=0, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=3, term=5, base=0, following=(3, 0, 0))
    assert (scene.sent("drop_empty_terms"), scene.state) == ([(3,)], "CANVASS")


EMPTY_TERMS: dict[str, tuple[tuple[int, int, int], str, list[tuple[int, ...]]]] = {
    "it goes on in the term before": ((7, 100, -1), "drop_empty_terms", [(3,)]),
    "the first began there, and has something": ((3, 80, 100), "drop_empty_terms", [(4,)]),
    "one in the middle began there": ((4, 80, 100), "drop_empty_terms", [(5,)]),
    "the last began there": ((5, 80, 100), "new_log_replication", [(0, RECORDING_ID, 100)]),
    "all are empty": ((6, 80, 100), "new_log_replication", [(0, RECORDING_ID, 100)]),
    "it left the term before earlier": ((4, 60, 100), "begin_truncation", [(5, 60)]),
    "it has nothing of the term before": ((2, 100, 100), "begin_truncation", [(5, 40)]),
    "nor of any at the same position": ((2, 80, 80), "begin_truncation", [(5, 40)]),
    "nor before": ((2, 20, 20), "begin_truncation", [(5, 40)]),
}


@pytest.mark.parametrize("case", EMPTY_TERMS)
def test_the_last_term_that_is_not_empty_says_where_a_log_differs(case: str) -> None:
    """The empty ones behind it may have been entered unheard, and their leaders' logs be others.

    Dropped unasked, one that a quorum has committed in would no longer keep this member from voting for an older log.
    """
    following, name, calls = EMPTY_TERMS[case]
    scene = Scene(term=5, base=80, position=30, append=80)
    scene.host.bases = {1: 0, 2: 40, 3: 80, 4: 80, 5: 80}
    scene.canvassed()
    for log_term in (5, 4):
        scene.hear_new_term(log_term=log_term, term=7, base=120, following=(log_term, 80, 80), commit=30)
        assert scene.sent("canvass_to") == [(0, 2, 80, 5)]
        assert not scene.sent("drop_empty_terms")
    scene.hear_new_term(log_term=2, term=7, base=120, following=following, commit=30)
    scene.step()
    assert scene.sent(name) == calls


def test_an_older_leader_drops_no_empty_term() -> None:
    scene = Scene(term=5, base=80, position=80)
    scene.host.bases = {2: 40, 5: 80}
    scene.canvassed()
    scene.hear_new_term(log_term=2, term=4, base=120, following=(4, 120, -1))
    assert (scene.sent("drop_empty_terms"), scene.sent("canvass_to"), scene.state) == ([], [], "CANVASS")


def test_a_member_at_the_begin_of_the_log_asks_for_its_first_term() -> None:
    scene = Scene(term=5, base=0, position=0)
    scene.host.bases = {4: 0, 5: 0}
    scene.canvassed()
    scene.hear_new_term(log_term=5, term=7, base=120, following=(5, 60, 60))
    assert scene.sent("canvass_to") == [(0, -1, 0, 5)]
    scene.hear_new_term(log_term=-1, term=7, base=120, following=(4, 0, 60))
    assert scene.sent("drop_empty_terms") == [(5,)]


def test_a_member_whose_recording_log_does_not_say_what_is_recorded_follows_nobody() -> None:
    scene = Scene(term=5, base=80, position=80)
    scene.host.bases = {5: 80}
    scene.canvassed()
    scene.hear_new_term(log_term=5, term=7, base=120, following=(5, 80, 80))
    assert scene.state == "INIT"
    assert "the recording log has no term for the log before 80" in str(scene.host.errors[-1])
    assert not scene.sent("canvass_to")


# What a backup has copied: its recording log leaves out the terms between that of its snapshot and its last one

BACKUPS: dict[str, tuple[int, tuple[int, int, int], str, list[tuple[int, ...]]]] = {
    "it has something of the last term": (5, (6, 100, 120), "new_log_replication", [(0, RECORDING_ID, 100)]),
    "it leads the last term": (5, (-1, -1, -1), "new_log_replication", [(0, RECORDING_ID, 120)]),
    "it leads the last term in its election": (5, (5, 120, -1), "new_log_replication", [(0, RECORDING_ID, 120)]),
    "it has nothing of that": (5, (5, 100, 100), "canvass_to", [(0, 2, 80, 5)]),
    "the message is of its own log": (4, (6, 60, 100), "canvass_to", [(0, 5, 80, 5)]),
    "it goes on in the term before": (2, (6, 100, -1), "drop_empty_terms", [(3,)]),
    "a term that was left out began there": (2, (4, 80, 100), "drop_empty_terms", [(5,)]),
    "another one began there": (2, (6, 80, 100), "new_log_replication", [(0, RECORDING_ID, 100)]),
}


def restored(*, append: int = 80) -> Scene:
    """A member with terms 2 and 5, that a backup had, in CANVASS: its recording log says nothing of 3 and 4."""
    scene = Scene(term=5, base=80, position=30, append=append)
    scene.host.bases, scene.host.left_out = {2: 40, 5: 80}, True
    scene.canvassed()
    return scene


@pytest.mark.parametrize("case", BACKUPS)
def test_a_log_that_a_backup_has_copied_goes_by_its_last_term(case: str) -> None:
    """The leader of that had all of it, and so has who has something of that."""
    log_term, following, name, calls = BACKUPS[case]
    scene = restored()
    term = 5 if case.startswith("it leads") else 7
    scene.hear_new_term(log_term=log_term, term=term, base=120, following=following, commit=30)
    scene.step()
    assert (scene.sent(name), scene.sent("begin_truncation")) == (calls, [])


@pytest.mark.parametrize("following", [(3, 60, 100), (2, 40, 40)])
def test_nothing_that_a_backup_has_copied_is_taken_back(following: tuple[int, int, int]) -> None:
    """The leader has nothing of the last term. In its log the term before ends earlier than here."""
    scene = restored()
    scene.hear_new_term(log_term=2, term=7, base=120, following=following, commit=30)
    assert (scene.state, scene.sent("begin_truncation"), scene.sent("drop_empty_terms")) == ("INIT", [], [])
    assert "the recording log has no term for the log before 80" in str(scene.host.errors[-1])


def test_a_log_that_a_backup_has_copied_is_looked_for_in_no_older_term_of_upstreams_leader() -> None:
    scene = restored()
    scene.hear_new_term(log_term=4, term=7, base=150, following=(5, 120, 140), version=-1)
    assert (scene.state, scene.sent("canvass_to"), scene.sent("drop_empty_terms")) == ("CANVASS", [], [])
    scene.hear_new_term(log_term=5, term=7, base=150, following=(6, 140, 150), version=-1)
    scene.step()
    assert (scene.sent("canvass_to"), scene.sent("new_log_replication")) == ([], [(0, RECORDING_ID, 140)])


@pytest.mark.parametrize("append", [80, 90])
@pytest.mark.parametrize("version", [NATIVE_PROTOCOL_VERSION, -1])
def test_a_member_copies_what_comes_before_the_term_that_it_has_recorded(append: int, version: int) -> None:
    """A backup knows where the last term begins, and its copy ends before; or a crash cut a copy short."""
    scene = restored(append=append)
    scene.hear_new_term(log_term=5, term=5, base=120, position=140, commit=30, version=version)
    scene.step()
    assert scene.sent("new_log_replication") == [(0, RECORDING_ID, 120)]
    assert scene.host.replication is not None
    scene.host.replication.position, scene.host.replication.is_done = 120, True
    scene.step()
    assert (scene.state, scene.sent("ensure_term")) == ("CANVASS", [(5, 80, 5, 80, -1)]), "the term goes on"
    scene.hear_new_term(log_term=5, term=5, base=120, position=140, commit=120, version=version)
    assert scene.state == "FOLLOWER_REPLAY"


def test_a_member_that_is_about_to_nominate_itself_compares_its_log_with_that_of_the_leader_it_voted_for() -> None:
    scene = Scene(term=5, base=80, position=80)
    scene.host.bases = {2: 40, 5: 80}
    scene.canvassed((0, 5, 80), (2, 5, 80))
    scene.hear("request_vote", 5, 80, 7, 0)
    while scene.state != "NOMINATE":
        for member_id in (0, 2):
            scene.hear("canvass_position", 5, 80, 5, member_id)
        scene.step(20 * MS)
    scene.hear_new_term(log_term=5, term=7, base=80, following=(7, 80, 80))
    assert (scene.state, scene.sent("canvass_to")) == ("NOMINATE", [(0, 2, 80, 5)])
    scene.hear_new_term(log_term=2, term=7, base=80, following=(7, 80, 80))
    assert scene.state == "FOLLOWER_REPLAY"


def test_what_was_recorded_of_such_a_term_is_truncated_first() -> None:
    scene = Scene(term=3, base=80, position=70, append=90)
    scene.host.bases = {3: 80}
    scene.canvassed()
    scene.hear_new_term(log_term=3, term=5, base=120, following=(3, 100, 100), commit=60)
    assert scene.sent("begin_truncation") == [(3, 80)]
    assert not scene.sent("drop_empty_terms")


def test_a_member_that_voted_for_itself_alone_follows_a_leader_of_an_older_term() -> None:
    scene = Scene(term=4, position=100, is_startup=False)
    scene.canvassed((0, 4, 100), (2, 4, 100))
    scene.step()
    scene.step(500 * MS)
    scene.step(1_000 * MS)
    assert (scene.state, scene.host.persisted) == ("CANVASS", 5)
    scene.hear_new_term(log_term=4, term=4, base=0, position=100, commit=100)
    assert scene.state == "FOLLOWER_REPLAY"
    assert scene.election.candidate_term_id == 5


def test_after_a_start_nobody_knows_whom_a_member_voted_for() -> None:
    scene = Scene(term=4, position=100, persisted=5)
    scene.canvassed()
    scene.hear_new_term(log_term=4, term=4, base=0, position=100, commit=100)
    assert scene.state == "CANVASS"


def test_a_candidate_asks_for_a_term_beyond_what_others_voted_in() -> None:
    scene = Scene(term=4, position=100, is_startup=False)
    scene.step()
    scene.hear("canvass_position", 4, 100, 9, 0)
    scene.hear("canvass_position", 4, 100, 40, 2, UPSTREAM_VERSION)
    scene.step()
    scene.step(500 * MS)
    assert scene.host.persisted == 10


def test_a_leader_in_its_election_stands_back_for_who_must_refuse_it() -> None:
    scene = leading("LEADER_LOG_REPLICATION")
    scene.hear("canvass_position", 1, 100, 3, 1)
    assert scene.state == "INIT"
    assert "member 1 follows nobody of a term before 3, in which it voted" in str(scene.host.errors[0])


def test_who_prepares_votes_while_it_knows_where_its_log_ends() -> None:
    scene = Scene(term=1, position=100, is_startup=False)
    scene.host.prepared = None
    scene.step()
    scene.hear("request_vote", 1, 99, 3, 0)
    scene.hear("request_vote", 1, 100, 4, 2)
    assert scene.sent("vote") == [(0, 3, 1, 100, False), (2, 4, 1, 100, True)]
    assert scene.state == "INIT"
    scene.host.prepared = 100
    scene.step(times=2)
    scene.hear_new_term(2, log_term=1, term=4, base=100, following=(4, 100, -1))
    assert scene.state == "FOLLOWER_REPLAY"


def test_who_has_followed_a_log_does_not_vote_until_its_recording_has_stopped() -> None:
    scene = Scene(term=1, position=0)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0)
    scene.host.join_position, scene.host.joined_as_follower = 0, False
    scene.step(times=4)
    scene.host.prepared = None
    scene.election.handle_error(scene.host.now, ClusterError("a service has failed"))
    scene.step()
    scene.hear("request_vote", 1, 0, 3, 2)
    assert not scene.sent("vote")
    scene.host.prepared = 200
    scene.step()
    scene.hear("request_vote", 1, 100, 3, 2)
    assert scene.sent("vote") == [(2, 3, 1, 200, False)]


def test_a_follower_that_replays_says_so() -> None:
    scene = Scene(term=1, base=0, position=20, append=60)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0, position=60, commit=60)
    scene.step(200 * MS, times=50)
    assert scene.state == "FOLLOWER_REPLAY"
    assert len(scene.sent("append")) > 40


# Errors


def test_equal_errors_pause_longer_each_time_and_others_do_not() -> None:
    scene = Scene(term=1, position=100, is_startup=False)
    pauses = []

    def fail(text: str) -> None:
        scene.election.handle_error(scene.host.now, ClusterError(text))
        pauses.append(scene.pause_ms())

    for number in range(5):
        fail(f"no space for {number} segments")
    fail("the archive is gone")
    fail("no space for 8 segments")
    fail("no space for 9 segments")
    # Two that take turns pause as well.
    assert pauses == [2, 100, 200, 400, 800, 2, 1600, 3200]
    assert scene.host.reasons[-3] == "no space for 9 segments"
    assert len(scene.host.errors) == 8
    # The clean-up does not wait for the pause.
    scene.election.handle_error(scene.host.now, ClusterError("no space for 9 segments"))
    scene.sent("begin_preparation")
    scene.step()
    assert (scene.state, len(scene.sent("begin_preparation"))) == ("CANVASS", 1)
    # Who pauses says how far its log is, and votes; it follows nobody.
    scene.host.calls.clear()
    scene.step()
    assert scene.sent("canvass") == [(1, 100, 1)]
    scene.hear("request_vote", 1, 100, 9, 2)
    assert scene.sent("vote") == [(2, 9, 1, 100, True)]
    scene.hear_new_term(2, log_term=1, term=9, base=100, following=(9, 100, -1))
    assert scene.state == "FOLLOWER_BALLOT"
    scene.step(6_400 * MS)
    scene.hear_new_term(2, log_term=1, term=9, base=100, following=(9, 100, -1))
    assert scene.state == "FOLLOWER_REPLAY"


def test_failures_before_a_term_that_lasted_count_no_more() -> None:
    failures = Failures(10_000 * MS)
    for _ in range(5):
        pause_ns = failures.add(0, ClusterEvent("no leader"))
    assert pause_ns == 800 * MS
    failures.end(1_000 * MS)
    assert failures.add(10_999 * MS, ClusterEvent("no leader")) == 1_600 * MS
    failures.end(11_000 * MS)
    assert failures.add(21_000 * MS, ClusterEvent("no leader")) == 0
    assert failures.since_ns == 21_000 * MS


def test_a_follower_that_has_completed_its_election_begins_to_forget_its_failures() -> None:
    scene = Scene(term=0, position=60)
    failures = scene.election._failures
    failures.add(scene.host.now, ClusterEvent("one"))
    scene.canvassed()
    scene.hear_new_term(log_term=0, term=1, base=60, following=(1, 60, -1), commit=60)
    scene.host.join_position = 60
    scene.step(times=6)
    assert scene.election.is_closed
    failures.add(scene.host.now + 10_000 * MS, ClusterEvent("one"))
    assert failures.since_ns == scene.host.now + 10_000 * MS


@pytest.mark.parametrize("term_id", [(1 << 63) - 1, (1 << 32) + 3])
@pytest.mark.parametrize("name", ["request_vote", "canvass_position", "new_leadership_term", "commit_position"])
def test_a_term_that_cannot_be_is_heard_by_nobody(name: str, term_id: int) -> None:
    """It would be persisted, and leave no term to elect a leader in."""
    scene = Scene(term=2, position=60)
    scene.canvassed()
    if name == "new_leadership_term":
        scene.hear_new_term(log_term=2, term=term_id, base=60, commit=60)
    elif name == "commit_position":
        scene.hear(name, term_id, 60, 0)
    else:
        scene.hear(name, 2, 60, term_id, 0)
    assert f"member 0 is ignored: its term {term_id} is more than 4294967296 beyond 2" in str(scene.host.errors[0])
    assert scene.state == "CANVASS"
    assert scene.host.persisted == -1
    assert not scene.sent("vote")
    for member_id in (0, 2):
        scene.hear("canvass_position", 2, 60, 2, member_id)
    scene.step()
    scene.step(600 * MS)
    assert (scene.state, scene.host.persisted) == ("CANDIDATE_BALLOT", 3)


@pytest.mark.parametrize("name", ["request_vote", "canvass_position"])
def test_a_log_of_a_term_that_cannot_be_is_heard_by_nobody(name: str) -> None:
    """It would be better than any other: its member got each vote, and a leader gave way to it."""
    scene = Scene(term=2, position=60)
    scene.canvassed()
    scene.hear(name, 1 << 62, 60, 3, 0)
    assert f"member 0 is ignored: its term {1 << 62} is more than 4294967296 beyond 2" in str(scene.host.errors[0])
    assert scene.state == "CANVASS"
    assert scene.host.persisted == -1
    assert not scene.sent("vote")


def test_a_member_goes_towards_a_term_out_of_reach_that_another_names_again() -> None:
    """Its disk says that it voted in it: it follows nobody of a term before that. A damaged message comes once."""
    scene = Scene(term=2, position=60)
    scene.canvassed()
    far = 3 * (1 << 32)
    scene.hear("canvass_position", 2, 60, far, 0)
    scene.hear("canvass_position", 2, 60, far - 1, 2)
    assert scene.host.persisted == -1
    for _ in range(2):
        scene.hear("canvass_position", 2, 60, far, 0)
    assert scene.host.persisted == 2 + 2 * (1 << 32)
    assert len(scene.host.errors) == 4
    scene.hear("canvass_position", 2, 60, far, 0)
    assert len(scene.host.errors) == 4
    scene.hear("canvass_position", 2, 60, 2, 2)
    scene.step()
    scene.step(600 * MS)
    assert (scene.state, scene.host.persisted) == ("CANDIDATE_BALLOT", far + 1)


def test_a_leader_with_a_term_in_its_log_that_is_beyond_its_own_is_not_followed() -> None:
    """Its log would be copied, and each term before that one recorded: without an end, in one turn."""
    scene = Scene(term=2, position=60)
    scene.canvassed()
    scene.hear_new_term(log_term=2, term=3, base=100, position=100, following=(1 << 62, 60, 100))
    assert str(scene.host.errors[0]) == (
        f"NewLeadershipTerm of member 0 is ignored: it leads term 3, and has term {1 << 62} in its log"
    )
    scene.step()
    assert scene.state == "CANVASS"
    assert not scene.sent("ensure_term")
    scene.hear_new_term(log_term=2, term=3, base=100, position=100, following=(3, 60, 100))
    scene.step()
    assert scene.state == "FOLLOWER_LOG_REPLICATION"


def test_without_a_term_left_a_member_says_so() -> None:
    scene = Scene(term=2, position=60, persisted=(1 << 63) - 1)
    scene.canvassed()
    for member_id in (0, 2):
        scene.hear("canvass_position", 2, 60, 2, member_id)
    scene.step()
    scene.step(600 * MS)
    assert "no term is left to ask for votes in" in str(scene.host.errors[0])
    assert scene.state == "INIT"


def test_an_error_takes_back_what_is_not_committed() -> None:
    scene = Scene(term=1, base=0, position=20, append=60)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0, position=60, commit=60)
    scene.step()
    scene.hear("replay_new_leadership_term_event", 1, 50, 40)
    scene.host.commit = 30
    scene.election.handle_error(scene.host.now, ClusterError("the replay has failed"))
    scene.step()
    assert (
        scene.host.calls[-2:] == [("close_replay",), ("begin_preparation", 30)]
        or (
            "begin_preparation",
            30,
        )
        in scene.host.calls
    )
    assert (scene.election.log_position, scene.election.notified_commit_position) == (30, 0)
    assert scene.election.log_session_id is None


def test_the_end_of_the_agent_passes() -> None:
    scene = Scene()
    end = AgentTermination("no space")
    with pytest.raises(AgentTermination) as caught:
        scene.election.handle_error(scene.host.now, end)
    assert caught.value is end
    assert scene.host.errors == [end]


def test_an_election_that_ends_with_its_member_closes_what_it_has() -> None:
    scene = Scene(term=1, base=0, position=20, append=60)
    scene.canvassed()
    scene.hear_new_term(log_term=1, term=1, base=0, position=60, commit=60)
    scene.step()
    scene.election.close()
    scene.election.close()
    assert scene.sent("close_replay") == [()]
    assert repr(scene.election).startswith("<Election of member 1 FOLLOWER_REPLAY leader=0 leadership_term_id=1 ")


def test_a_closed_election_does_nothing() -> None:
    scene = Scene(me=0, count=1)
    scene.step(times=6)
    scene.host.calls.clear()
    assert scene.election.do_work(scene.host.now) == 0
    scene.hear_new_term(0, log_term=5, term=6, base=0)
    assert (scene.state, scene.host.calls) == ("CLOSED", [])


# Clusters


def test_a_seed_does_the_same_again() -> None:
    histories = []
    for _ in range(2):
        cluster = Cluster(3, 7)
        cluster.run(500)
        histories.append(cluster.history)
    assert histories[0] == histories[1]


def test_seeds_reach_all_states() -> None:
    reached: set[Any] = set()
    for seed in range(3):
        cluster = Cluster(3, seed)
        cluster.run(1500)
        reached |= set(cluster.states)
    assert reached == set(ElectionState)


def test_the_model_finds_a_member_that_does_not_record_what_it_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Election, "_record_replicated_term", lambda _election: None)
    with pytest.raises(Violation):  # noqa: PT012
        for seed in range(100):
            Cluster(3, seed).run(1000)


def test_the_leader_that_dies_beside_the_jar_has_all_that_a_leader_asks_its_host_for() -> None:
    """Its scenes are slow: they run seldom, and this says at once what a new step of a leader needs there."""
    of_followers = {
        "add_live_log_destination",
        "add_log_subscription",
        "begin_join_as_follower",
        "begin_truncation",
        "drop_empty_terms",
        "first_empty_term",
        "is_catching_up",
        "is_catchup_near_live",
        "is_left_out",
        "last_filled_term",
        "log_join_position",
        "new_log_replication",
        "poll_catchup",
        "poll_join_as_follower",
        "poll_truncation",
        "recorded_position",
        "send_append_position",
        "send_canvass_position",
        "send_catchup_position",
        "set_log_recording_id",
        "update_candidate_term_id",
    }
    asked = {name for name, value in vars(ElectionHost).items() if callable(value) and not name.startswith("_")}
    assert {name for name in asked if not hasattr(NativeLeader, name)} == of_followers
