"""When a client whose leader is silent probes, and what becomes of its session then: the state machine, without I/O."""

from __future__ import annotations

import itertools

import pytest

from container.client.reconnection import ReconnectPolicy
from container.client.silence import Signs, Silence, Verdict, has_other_members

MS = 1_000_000
S = 1_000 * MS


class World:
    """A session that is looked at as often as its silence asks for."""

    def __init__(self, *, has_others: bool = False, **policy: float | None) -> None:
        self.now_ns = 7 * S
        self.heard = self.sent = 0
        self.is_owed, self.is_connected, self.is_unsent = False, True, False
        self.silence = Silence(
            ReconnectPolicy(jitter=0.0, **policy),  # type: ignore[arg-type]
            has_others=has_others,
            random=lambda: 0.0,
            now_ns=self.now_ns,
        )
        self.wait(1.0)

    def look(self) -> bool:
        signs = Signs(self.heard, self.sent, self.is_owed, self.is_connected)
        return self.silence.look(signs, self.now_ns, is_unsent=self.is_unsent)

    def wait(self, seconds: float) -> float | None:
        """Let so much time pass, or until a probe is due; after how many seconds it is, else None."""
        begin_ns, end_ns = self.now_ns, self.now_ns + int(seconds * S)
        while self.silence.due_ns is not None and self.silence.due_ns <= end_ns:
            self.now_ns = self.silence.due_ns
            if self.look():
                return (self.now_ns - begin_ns) / S
        self.now_ns = end_ns
        return None

    def probe(self, *, term: int = 3, probe_term: int = 3) -> Verdict:
        """A probe begins, and has a session at once."""
        self.silence.on_begun(self.now_ns)
        return self.judge(term=term, probe_term=probe_term)

    def judge(self, *, term: int = 3, probe_term: int = 3) -> Verdict:
        return self.silence.judge(term=term, is_connected=self.is_connected, probe_term=probe_term, now_ns=self.now_ns)


@pytest.fixture
def world() -> World:
    return World()


def test_a_session_without_traffic_is_never_probed_for(world: World) -> None:
    assert world.wait(3600) is None
    world.sent += 1  # a message to which the service need not answer
    assert world.wait(3600) is None


@pytest.mark.parametrize("missing", ["a reply", "a leader", "room"])
def test_what_is_owed_for_a_second_is_probed_for(world: World, missing: str) -> None:
    world.is_owed = missing != "room"
    world.is_connected = missing != "a leader"
    world.is_unsent = missing == "room"
    due = world.wait(10)
    assert due is not None
    assert 1.0 <= due <= 1.5


def test_a_word_begins_the_time_anew(world: World) -> None:
    for _ in range(50):
        world.is_owed = True
        assert world.wait(0.9) is None
        world.is_owed = False
        world.heard += 1
        assert world.wait(0.3) is None


def test_messages_that_are_accepted_are_not_stuck(world: World) -> None:
    world.is_unsent = True
    for _ in range(100):
        world.sent += 1
        assert world.wait(0.2) is None


def test_a_request_whose_time_was_up_stays_owed_until_a_word_comes(world: World) -> None:
    world.is_owed = True
    assert world.wait(0.5) is None
    world.is_owed = False
    assert world.wait(1.0) is not None


def test_a_client_that_stood_still_hears_first_what_has_come(world: World) -> None:
    world.is_owed = True
    world.wait(0.25)
    world.now_ns += 60 * S
    assert not world.look()


def test_a_client_that_is_rarely_polled_probes_as_well(world: World) -> None:
    world.is_owed = True
    looks = []
    for _ in range(5):
        world.now_ns += 2 * S
        looks.append(world.look())
    assert True in looks


def test_a_slow_leader_keeps_its_session_and_sees_ever_fewer_probes(world: World) -> None:
    world.is_owed = True
    times = []
    for _ in range(6):
        due = world.wait(20)
        assert due is not None
        times.append(round(due))
        assert world.probe() is Verdict.KEEP
    assert times == [1, 2, 4, 8, 8, 8]
    world.is_owed = False
    world.wait(100)
    world.is_owed = True
    due = world.wait(20)
    assert due is not None
    assert round(due) == 1


def test_a_service_that_needs_three_seconds_for_each_answer_costs_few_probes(world: World) -> None:
    probes = 0
    for _ in range(200):  # ten minutes
        world.is_owed = True
        end_ns = world.now_ns + 3 * S
        while world.now_ns < end_ns and world.wait((end_ns - world.now_ns) / S) is not None:
            probes += 1
            assert world.probe() is Verdict.KEEP
        world.heard += 1
    assert probes <= 25


def test_probes_that_fail_are_apart_and_a_refusal_for_good_ends_them(world: World) -> None:
    world.is_owed = True
    world.is_connected = False
    assert world.wait(10) is not None
    begun = []
    for _ in range(5):
        world.silence.on_begun(world.now_ns)
        begun.append(world.now_ns)
        world.silence.on_failed(is_retryable=True)
        assert world.wait(10) is not None
    apart = [round((later - earlier) / S, 1) for earlier, later in itertools.pairwise(begun)]
    assert all(1.0 <= each <= 5.5 for each in apart)
    world.silence.on_begun(world.now_ns)
    world.silence.on_failed(is_retryable=False)
    assert world.wait(3600) is None


def test_the_only_member_in_another_term_has_forgotten_the_session(world: World) -> None:
    world.is_owed = True
    world.wait(10)
    assert world.probe(probe_term=4) is Verdict.WAIT
    world.now_ns += 249 * MS
    assert world.judge(probe_term=4) is Verdict.WAIT
    world.now_ns += 1 * MS
    assert world.judge(probe_term=4) is Verdict.REPLACE


def test_a_cluster_that_began_from_nothing_has_an_older_term(world: World) -> None:
    world.is_owed = True
    world.wait(10)
    assert world.probe(probe_term=0) is Verdict.WAIT
    world.now_ns += 250 * MS
    assert world.judge(probe_term=0) is Verdict.REPLACE


def test_of_several_members_a_session_has_time_to_hear_of_its_new_leader() -> None:
    world = World(has_others=True)
    world.is_owed, world.is_connected = True, False
    world.wait(10)
    assert world.probe(probe_term=4) is Verdict.WAIT
    world.now_ns += 1_900 * MS
    assert world.judge(probe_term=4) is Verdict.WAIT
    world.is_connected = True
    assert world.judge(term=4, probe_term=4) is Verdict.KEEP
    assert world.judge(term=4, probe_term=3) is Verdict.KEEP, "of a leader that does not know yet that it is none"


def test_a_leader_that_is_there_but_was_lost_is_connected_to_anew(world: World) -> None:
    world.is_owed, world.is_connected = True, False
    world.wait(10)
    assert world.probe() is Verdict.WAIT
    world.now_ns += 250 * MS
    assert world.judge() is Verdict.REPLACE


def test_none_is_never() -> None:
    world = World(probe_after=None)
    world.is_owed, world.is_connected = True, False
    assert world.silence.due_ns is None
    assert not world.look()


def test_a_client_knows_other_members_from_its_endpoints() -> None:
    assert not has_other_members(None)
    assert not has_other_members("0=node0:9010")
    assert has_other_members("0=node0:9010,1=node1:9010")
