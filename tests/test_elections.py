"""Mixed clusters of native members and of upstream's: scenes, and seeds with an oracle that says whose fault it is.

``./run elections`` runs as many seeds as one likes, and ``./run elections exam`` takes rules out.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter

import pytest

from container.consensus.terms import MOST_TERMS_AHEAD
from container.files.recording_log import MOST_MISSING_TERMS
from tests import election_world, test_election
from tests.elections import exam, scenes
from tests.elections.__main__ import BOUND_S, Outcome, Row, baseline_of, is_worse, run_seed
from tests.elections.oracle import OURS, UPSTREAMS, Violation
from tests.elections.world import Cluster

S = scenes.S
MIXTURES = {
    "NNN": 140,
    "NJJ": 70,
    "NNJ": 70,
    "NNNN": 50,
    "NNJJ": 30,
    "NNNNN": 140,
    "NNNJJ": 50,
    "NJJJJ": 50,
    "NNNNNNN": 20,
    "NNNNJJJ": 20,
    "JJJNNNN": 10,
}


@pytest.mark.parametrize("kinds", MIXTURES)
def test_no_rule_of_ours_lets_a_mixture_lose_anything_or_stand_still(kinds: str) -> None:
    for seed in range(1, MIXTURES[kinds] + 1):
        _, oracle, blame, text, *_ = run_seed(kinds, seed)
        assert blame != OURS, f"{kinds}, seed {seed}, {oracle}: {text}"


def test_upstreams_members_alone_lose_what_was_committed_and_the_oracle_says_whose_fault_it_is() -> None:
    found = Counter(run_seed("JJJ", seed)[1:3] for seed in range(301, 501))
    assert {blame for _, blame in found} == {"", UPSTREAMS}
    assert sum(count for (oracle, _), count in found.items() if oracle in ("committed", "applied")) > 0


def test_a_term_that_a_member_of_upstreams_ended_behind_its_last_entry_is_upstreams_whoever_copies_it() -> None:
    assert run_seed("NNJJ", 51923)[1:3] == ("recording log", UPSTREAMS)


def test_upstreams_veto_of_an_appointed_leader_does_not_count_as_time_to_heal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads when a refusal comes after the ballot; members of upstream's alone wait as long for that."""
    bound_ns = 70 * S
    cluster = Cluster("NNJJ", 38)
    cluster.run(exam.TICKS, bound_ns=bound_ns)
    assert cluster.healing_ns is not None
    assert cluster.healing_ns > bound_ns
    cluster = Cluster("NNJJ", 38)
    monkeypatch.setattr(cluster, "_is_vetoed_by_upstream_s_rule", lambda: False)
    with pytest.raises(Violation, match="no leader that all follow, with all healed for 70 s"):
        cluster.run(exam.TICKS, bound_ns=bound_ns)


@pytest.mark.parametrize("kinds", ["JJJJ", "NJJJ", "NNJJ"])
def test_an_appointed_leader_that_upstreams_rules_keep_from_asking_for_votes_is_upstreams(kinds: str) -> None:
    """Two of its four members are not a quorum: one waits for it, and the log of one with nothing is the better one."""
    cluster = scenes.one_that_has_nothing_keeps_the_appointed_from_asking(kinds, is_one_waiting=True)
    assert cluster.leader() is None
    assert cluster._is_vetoed_by_upstream_s_rule()


def test_an_appointed_leader_that_a_member_of_ours_keeps_from_asking_for_votes_is_ours() -> None:
    """It says nothing, or something else than what it has."""
    cluster = scenes.one_that_has_nothing_keeps_the_appointed_from_asking("NNNJ", is_one_waiting=False)
    assert cluster.leader() is None
    assert not cluster._is_vetoed_by_upstream_s_rule()
    cluster = scenes.one_that_has_nothing_keeps_the_appointed_from_asking("NNJJ", is_one_waiting=True)
    cluster.nodes[0].disk = cluster.nodes[1].disk
    assert not cluster._is_vetoed_by_upstream_s_rule()


@pytest.mark.parametrize("kinds", ["NJJJJ", "NNNJJ", "NNNNN", "JJJJJ"])
def test_the_others_have_a_leader_soon_when_one_died_early(kinds: str) -> None:
    assert scenes.a_leader_dies_early(kinds) < 10 * S


@pytest.mark.parametrize("kinds", ["NNN", "NNJ", "NJN", "NJJ", "JNN", "JNJ", "JJN", "JJJ"])
def test_native_members_and_upstreams_agree_which_log_is_the_better_one(kinds: str) -> None:
    """Else none of the three that are there is elected: the one's best candidate is refused by the other."""
    assert scenes.one_has_entered_a_newer_term_and_has_nothing(kinds + "J") < 10 * S


@pytest.mark.parametrize("kinds", ["NJJJJ", "NNNJJ", "NNNNN", "JJJJJ"])
def test_a_leader_opens_its_term_while_one_of_three_copies_for_long(kinds: str) -> None:
    assert scenes.one_copies_slowly(kinds) < 40 * S


@pytest.mark.parametrize("kinds", ["NNN", "NJJ", "JNN", "JNJ", "JJJ"])
def test_an_appointed_leader_that_died_early_leads_again(kinds: str) -> None:
    assert scenes.an_appointed_leader_dies_early(kinds) < 10 * S


@pytest.mark.parametrize("is_in_election", [True, False])
@pytest.mark.parametrize("kinds", ["JJJ", "NJJ", "NNJ", "NJN", "NNN"])
def test_a_leader_that_has_committed_nothing_answers_who_must_take_its_log_back(
    kinds: str, is_in_election: bool
) -> None:
    """One of upstream's is told no commit position of 0, for which it would wait, but when it has to truncate first."""
    assert scenes.one_must_take_back_all(kinds, is_in_election=is_in_election) < 5 * S


@pytest.mark.parametrize(
    ("kinds", "has_restarted"), [("NJJJJ", True), ("JJJJN", True), ("JNNNN", True), ("NNNNN", False)]
)
def test_a_member_that_comes_back_with_votes_deposes_nobody(kinds: str, has_restarted: bool) -> None:
    leaderless_ns, terms, took_ns = scenes.one_comes_back_that_voted(kinds, has_restarted=has_restarted)
    assert (leaderless_ns, terms) == (0, 0)
    assert took_ns < 10 * S


def test_a_native_leader_begins_one_election_for_a_member_whose_votes_nobody_knows() -> None:
    """It may take another ballot, where candidates share the votes."""
    runs = [scenes.one_comes_back_that_voted("NNNNN", has_restarted=True, seed=seed) for seed in range(1, 10)]
    assert statistics.median(leaderless_ns for leaderless_ns, _, _ in runs) < 2 * S
    assert max(leaderless_ns for leaderless_ns, _, _ in runs) < 4 * S
    assert max(took_ns for _, _, took_ns in runs) < 12 * S


def test_a_truncation_that_a_crash_has_cut_short_leaves_no_term_beyond_the_log() -> None:
    cluster = scenes.a_crash_cuts_a_truncation_short("NNN")
    cluster.oracle.check_end(cluster.nodes)
    assert all(term.end <= len(node.disk.entries) for node in cluster.nodes for term in node.disk.terms)


@pytest.mark.parametrize("kinds", ["NNN", "NJJ"])
def test_a_copy_that_a_crash_has_cut_short_is_of_the_term_that_it_was_copied_of(kinds: str) -> None:
    member = scenes.a_crash_cuts_a_copy_short(kinds)
    assert [(term.id, term.base, term.end) for term in member.disk.terms] == [(0, 0, 20), (1, 20, 20), (2, 20, -1)]
    member.start()
    assert scenes.run_until(member.cluster, lambda: scenes.is_led(member.cluster)) < scenes.LIMIT_NS
    member.cluster.oracle.check_end(member.cluster.nodes)


@pytest.mark.parametrize("kinds", ["NNN", "NNNNN", "NNNN"])
def test_a_term_far_ahead_does_not_fill_the_recording_logs(kinds: str) -> None:
    """One message may name it, damaged or forged; who was away meanwhile comes back, and who has lost its disk."""
    cluster = scenes.a_term_is_far_ahead(kinds, 1 << 31)
    assert max(len(node.disk.terms) for node in cluster.nodes) <= 2 * MOST_MISSING_TERMS
    cluster.oracle.check_end(cluster.nodes)


@pytest.mark.parametrize("kinds", ["NNN", "NNNNN"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_term_at_the_limit_shuts_no_member_out(kinds: str, times: int) -> None:
    """However often a term is named that is as far ahead as members go at once, those that missed it come back."""
    cluster = scenes.a_term_is_far_ahead(kinds, MOST_TERMS_AHEAD, times)
    assert max(len(node.disk.terms) for node in cluster.nodes) <= (times + 1) * MOST_MISSING_TERMS
    cluster.oracle.check_end(cluster.nodes)


@pytest.mark.parametrize("kinds", ["NNN", "JNN"])
def test_a_member_drops_its_empty_terms_together(kinds: str) -> None:
    assert scenes.one_has_recorded_empty_terms(kinds, 128) < 3 * S


@pytest.mark.parametrize("seed", range(7, 12))
def test_a_member_keeps_an_empty_term_that_was_committed_in(seed: int) -> None:
    """The leader has said that of a later one alone. Else member 2 is elected without what is committed."""
    cluster = scenes.one_has_committed_and_led_an_empty_term(seed)
    cluster.nodes[0].start()
    assert scenes.run_until(cluster, lambda: scenes.is_led(cluster)) < scenes.LIMIT_NS
    cluster.oracle.check_end(cluster.nodes)


@pytest.mark.parametrize(("more", "has_led_again"), [(0, False), (3, False), (0, True)])
def test_a_log_of_a_term_that_the_leader_has_as_empty_is_taken_back(more: int, has_led_again: bool) -> None:
    cluster = scenes.one_led_a_term_that_the_others_have_as_empty(more, has_led_again=has_led_again)
    cluster.oracle.check_end(cluster.nodes)


@pytest.mark.parametrize("more", [-1, 0, 3])
def test_a_log_before_an_empty_term_that_the_leader_has_something_of_is_taken_back(more: int) -> None:
    cluster = scenes.one_has_as_empty_a_term_that_the_others_have_something_of(more)
    cluster.oracle.check_end(cluster.nodes)


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("length", [18, 20])
@pytest.mark.parametrize("kinds", ["NNN", "NJN", "JJN", "NNNNN"])
def test_a_member_that_is_restored_from_a_backup_takes_nothing_back(kinds: str, length: int, is_late: bool) -> None:
    """Its recording log leaves terms out, and has nothing of its last one. All of its log is committed."""
    cluster = scenes.one_is_restored_from_a_backup(kinds, length, is_late=is_late)
    assert scenes.is_led(cluster)
    assert not [each for each in cluster.history if "truncating the log" in each]
    cluster.oracle.check_end(cluster.nodes)


def test_a_member_that_is_restored_from_a_backup_has_what_was_committed_when_its_leader_dies() -> None:
    """Else the third one, which was away, elects it without that."""
    cluster = scenes.the_leader_dies_of_one_that_is_restored_from_a_backup()
    leader = cluster.leader()
    assert leader is cluster.nodes[2]
    assert leader.disk.entries[:20] == cluster.oracle.committed[:20]


@pytest.mark.parametrize("lengths", [(20, 20, 20), (18, 18, 18), (20, 18, 18), (18, 20, 18)])
def test_members_that_are_all_restored_from_a_backup_have_a_leader(lengths: tuple[int, ...]) -> None:
    cluster = scenes.restored_from_a_backup("NNN", 20, 0, 1, 2)
    cluster.oracle.committed = cluster.oracle.committed[: sorted(lengths)[1]]
    for node, length in zip(cluster.nodes, lengths, strict=True):
        del node.disk.entries[length:]
        node.start()
    assert scenes.run_until(cluster, lambda: scenes.is_led(cluster)) < 20 * S
    leader = cluster.leader()
    assert leader is not None
    assert all(node.disk.entries == leader.disk.entries[: len(node.disk.entries)] for node in cluster.nodes)


@pytest.mark.parametrize("length", [18, 20])
def test_nothing_of_a_backup_is_taken_back_where_its_last_term_was_never_opened(length: int) -> None:
    """A leader that has nothing of that term may name an older one that it followed: so the member reports that."""
    cluster = scenes.the_term_of_a_backup_was_never_opened(length)
    *others, last = cluster.nodes
    assert cluster.leader() in others
    assert not [each for each in cluster.history if "truncating the log" in each]
    assert any("the recording log has no term for the log before" in each for each in cluster.history)
    assert len(last.disk.entries) == length


def test_what_a_new_member_has_recorded_is_of_the_term_that_it_followed() -> None:
    """It entered that before its log had a recording. Else the term before its own would be the one that is not empty.

    It says so as a leader, and the others take back what is committed.
    """
    cluster = scenes.one_loses_its_leader_while_it_records_its_first_log("NNN")
    leader = cluster.leader()
    assert leader is cluster.nodes[2]
    assert not [each for each in cluster.history if "truncating the log" in each]
    assert leader.disk.entries[:13] == cluster.oracle.committed[:13]


@pytest.mark.parametrize("kinds", ["NNN", "NNNN", "NNNNN"])
def test_an_appointed_leader_leads_though_one_has_a_log_of_a_newer_term(kinds: str) -> None:
    """Which no quorum has: it refuses the only one that may lead, and upstream's candidates never win then."""
    cluster = scenes.one_refuses_the_appointed(kinds)
    assert scenes.run_until(cluster, lambda: scenes.is_led(cluster)) < 10 * S
    assert cluster.leader() is cluster.nodes[0]
    cluster.oracle.check_end(cluster.nodes)


def test_a_log_of_a_term_in_a_gap_is_taken_back() -> None:
    cluster = scenes.one_led_in_a_gap()
    assert scenes.run_until(cluster, lambda: scenes.is_led(cluster)) < 10 * S
    cluster.oracle.check_end(cluster.nodes)


@pytest.mark.parametrize("kinds", ["NNN", "NNNN"])
def test_what_a_member_has_of_a_term_in_the_gap_of_its_leader_is_taken_back(kinds: str) -> None:
    cluster = scenes.one_has_something_of_a_term_in_the_gap(kinds)
    cluster.oracle.check_end(cluster.nodes)
    leader = cluster.leader()
    assert leader is not None
    assert all(node.disk.entries[:30] == leader.disk.entries[:30] for node in cluster.nodes)


def test_one_that_went_too_far_alone_is_followed() -> None:
    cluster = scenes.cluster_with_log("NNN", 20)
    cluster.nodes[0].disk.candidate_term_id = 3 * MOST_TERMS_AHEAD
    for node in cluster.nodes:
        node.start()
    assert scenes.run_until(cluster, lambda: scenes.is_led(cluster)) < scenes.LIMIT_NS
    leader = cluster.leader()
    assert leader is not None
    assert leader.leadership_term_id > 3 * MOST_TERMS_AHEAD


def test_seven_members_agree_in_each_mixture_of_a_seed() -> None:
    for natives in range(8):
        assert run_seed("N" * natives + "J" * (7 - natives), 3)[2] != OURS


def row_of(kinds: str, seeds: range) -> Row:
    row = Row()
    for seed in seeds:
        row.add(run_seed(kinds, seed))
    return row


@pytest.mark.parametrize("kinds", ["NJJ", "NNJ"])
def test_a_mixture_has_a_leader_no_later_than_upstreams_members_alone(kinds: str) -> None:
    seeds = range(2001, 2051)
    late, late_alone = row_of(kinds, seeds).late_beside(row_of(baseline_of(kinds), seeds), BOUND_S * 1000)
    assert not is_worse(len(late), len(late_alone)), f"later than with {baseline_of(kinds)}: seeds {late}"


def test_seeds_that_are_late_in_one_of_two_runs_are_those_that_came_to_their_end_in_both() -> None:
    def row(times: dict[int, float | None]) -> Row:
        made = Row()
        for seed, healing_ms in times.items():
            outcome: Outcome = seed, "", "", "", healing_ms, 0.0
            made.add(outcome)
        return made

    ours = row({1: 100.0, 2: 20_001.0, 3: math.inf, 4: math.inf, 5: None, 6: 20_000.0, 7: math.inf})
    alone = row({1: 20_001.0, 2: 20_000.0, 3: 5.0, 4: math.inf, 5: 5.0, 6: math.inf, 7: None})
    assert ours.late_beside(alone, 20_000.0) == ([2, 3], [1, 6])


def test_a_mixture_is_worse_where_chance_does_not_give_as_many_late_seeds() -> None:
    assert [is_worse(late, 0) for late in (0, 9, 10)] == [False, False, True]
    assert [is_worse(late, 30) for late in (30, 50, 60)] == [False, False, True]
    assert not is_worse(0, 100)


@pytest.mark.parametrize("rule", exam.read_directed_rules(), ids=lambda rule: rule.name)
def test_a_directed_test_fails_without_its_rule(rule: exam.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    directed = getattr(test_election, rule.test)
    directed(**dict(rule.arguments))
    monkeypatch.setattr(election_world, "Election", rule.election_class())
    with pytest.raises(AssertionError):
        directed(**dict(rule.arguments))


@pytest.mark.slow
@pytest.mark.parametrize("rule", exam.read_rules(), ids=lambda rule: rule.name)
def test_each_rule_that_is_taken_out_is_found_missing(rule: exam.Rule) -> None:
    for first in exam.FIRSTS:
        seed, _ = exam.find(rule, first, exam.SEEDS)
        assert seed, f"nothing in {exam.SEEDS} seeds from {first}"


def test_the_rules_of_the_exam_are_in_the_election() -> None:
    rules = [*exam.read_rules(), *exam.read_directed_rules()]
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        rule.election_class()
