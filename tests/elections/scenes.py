"""Scenes of mixed clusters that random seeds meet seldom: each says for how long nobody led."""

from __future__ import annotations

from collections.abc import Callable

from container.api import Role
from container.consensus.election_host import ElectionState, NewLeadershipTerm
from tests.elections.world import MS, Cluster, Member, Term

S = 1_000 * MS
LIMIT_NS = 100 * S


def cluster_with_log(kinds: str, length: int, *, appointed: int = -1, seed: int = 7) -> Cluster:
    """A cluster that is down, with a log of one term that all members have recorded and nobody has applied."""
    cluster = Cluster(kinds, seed)
    cluster.loss, cluster.append_chance = 0.0, 0.0
    cluster.settings.appointed_leader_id = appointed
    entries = [(0, 0), *((0, cluster.next_entry()) for _ in range(length - 1))]
    for node in cluster.nodes:
        node.disk.entries, node.disk.has_recording, node.disk.terms = list(entries), True, [Term(0, 0, -1)]
    cluster.oracle.bases[0] = 0
    return cluster


def run_until(cluster: Cluster, is_there: Callable[[], bool], limit_ns: int = LIMIT_NS) -> int:
    """Run until something is there; for how long that took (ns), at most the limit."""
    begin = cluster.now_ns
    while not is_there() and cluster.now_ns < begin + limit_ns:
        cluster.tick()
    return cluster.now_ns - begin


def is_led(cluster: Cluster) -> bool:
    """Whether one of those that are up leads all others that are."""
    leader = cluster.leader()
    return leader is not None and all(
        node.election is None and node.leadership_term_id == leader.leadership_term_id
        for node in cluster.nodes
        if node.is_up
    )


def a_leader_dies_early(kinds: str) -> int:
    """Member 0, whose log is the longest, dies when the others have heard of its term; how long until they have one."""
    cluster = cluster_with_log(kinds, 20)
    first, *others = cluster.nodes
    first.disk.entries.append((0, cluster.next_entry()))
    others[0].disk.entries = list(first.disk.entries)
    for node in cluster.nodes:
        node.start()

    def is_heard() -> bool:
        return first.role == Role.LEADER and sum(node.followed_term_id > 0 for node in others) >= 2

    assert run_until(cluster, is_heard) < LIMIT_NS
    first.crash()
    return run_until(cluster, lambda: is_led(cluster))


def one_has_entered_a_newer_term_and_has_nothing(kinds: str) -> int:
    """Member 1 has entered term 2 with an empty log, member 2 has an entry of term 1, and the last one is away.

    That is a quorum of four; how long until it has a leader.
    """
    cluster = cluster_with_log(kinds, 1)
    first, second, third, _ = cluster.nodes
    for node in (first, second):
        node.disk.entries = []
    first.disk.terms = [Term(1, 0, -1)]
    second.disk.terms = [Term(1, 0, 0), Term(2, 0, -1)]
    third.disk.entries, third.disk.terms = [(1, 0)], [Term(1, 0, -1)]
    cluster.oracle.bases |= {1: 0, 2: 0}
    for node in (first, second, third):
        node.disk.candidate_term_id = 2
        node.start()
    return run_until(cluster, lambda: is_led(cluster))


def one_that_has_nothing_keeps_the_appointed_from_asking(kinds: str, *, is_one_waiting: bool) -> Cluster:
    """Member 3 is appointed, and has an entry of term 1; member 0 has entered term 2 with an empty log.

    Member 2 says nothing: it waits for member 3 as the leader of a term, or it is away. When this returns, the others
    have had time for an election, or nobody leads.
    """
    cluster = cluster_with_log(kinds, 1, appointed=3)
    for node in cluster.nodes:
        node.disk.entries, node.disk.terms, node.disk.candidate_term_id = [(1, 0)], [Term(1, 0, -1)], 2
    first, _, third, appointed = cluster.nodes
    first.disk.entries, first.disk.terms = [], [Term(1, 0, 0), Term(2, 0, -1)]
    cluster.oracle.bases |= {1: 0, 2: 0}
    if is_one_waiting:
        third.start()
        cluster.tick()
        third.hear("new_leadership_term", (NewLeadershipTerm(1, 3, 1, -1, 3, 1, 1, 0, 1, appointed.id, 5, False, -1),))
        assert third.election is not None
        assert third.election.state is ElectionState.FOLLOWER_REPLAY
    for node in cluster.nodes:
        if node is not third:
            node.start()
    run_until(cluster, lambda: is_led(cluster), 20 * S)
    return cluster


def one_copies_slowly(kinds: str) -> int:
    """Three of five are up, and one of them copies for longer than a time-out; how long until there is a leader."""
    cluster = cluster_with_log(kinds, 400, appointed=0)
    cluster.copy_entries = 2
    up = cluster.nodes[:3]
    del up[2].disk.entries[20:]
    for node in up:
        node.start()
    return run_until(cluster, lambda: is_led(cluster))


def an_appointed_leader_dies_early(kinds: str) -> int:
    """It dies when a follower has heard of its term, and comes back; how long until it leads."""
    cluster = cluster_with_log(kinds, 20, appointed=0)
    first, *others = cluster.nodes
    for node in cluster.nodes:
        node.start()
    assert run_until(cluster, lambda: any(node.followed_term_id > 0 for node in others)) < LIMIT_NS
    for _ in range(2):
        cluster.tick()
    first.crash()
    for _ in range(50):
        cluster.tick()
    first.start()
    return run_until(cluster, lambda: is_led(cluster))


def one_must_take_back_all(kinds: str, *, is_in_election: bool) -> int:
    """The last one led a term that nobody has heard of, from position 0; how long until member 0 commits with it alone.

    Member 0 has committed nothing when the other one dies, that elected it, and has something only in its election.
    """
    cluster = Cluster(kinds, 1)
    cluster.loss, cluster.append_chance = 0.0, 0.0
    cluster.settings.appointed_leader_id = 0
    first, second, last = cluster.nodes
    last.disk.entries, last.disk.has_recording, last.disk.terms = [(1, 0), (1, 5)], True, [Term(1, 0, -1)]
    if is_in_election:
        first.disk.entries, first.disk.has_recording, first.disk.terms = [(2, 0)], True, [Term(2, 0, -1)]
    cluster.oracle.bases |= {1: 0, 2: 0}
    for node in (first, second):
        node.disk.candidate_term_id = 2
        node.start()
    assert (
        run_until(cluster, lambda: first.role == Role.LEADER and (is_in_election or first.election is None)) < LIMIT_NS
    )
    assert first.commit == 0
    second.crash()
    last.start()
    return run_until(cluster, lambda: is_led(cluster) and first.commit > 0)


def one_comes_back_that_voted(kinds: str, *, has_restarted: bool, seed: int = 7) -> tuple[int, int, int]:
    """The last member comes back to a healthy cluster with a candidate term 9 beyond it, and with less of the log.

    For how long nobody led (ns), how many terms that took, and how long it took until it followed (ns).
    """
    cluster = cluster_with_log(kinds, 20, seed=seed)
    cluster.append_chance = 0.3
    last: Member = cluster.nodes[-1]
    # Member 0 leads.
    for node in cluster.nodes[1:]:
        del node.disk.entries[19:]
    for node in cluster.nodes:
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    leader = cluster.leader()
    assert leader is cluster.nodes[0]
    term = leader.leadership_term_id
    if has_restarted:
        last.crash()
    else:
        cluster.cuts = {last.id}
        run_until(cluster, lambda: last.election is not None and last.election.state is ElectionState.CANVASS)
        assert last.election is not None
        last.election.candidate_term_id = term + 9
    last.disk.candidate_term_id = term + 9
    for _ in range(100):
        cluster.tick()
    cluster.leaderless_ns, cluster.cuts = 0, set()
    if has_restarted:
        last.start()
    took_ns = run_until(cluster, lambda: is_led(cluster))
    # It may only look so before anybody has heard of the candidate term.
    took_ns += run_until(cluster, lambda: False, 2 * S) - 2 * S
    took_ns += run_until(cluster, lambda: is_led(cluster))
    now_leads = cluster.leader()
    assert now_leads is not None
    return cluster.leaderless_ns, now_leads.leadership_term_id - term, took_ns


def a_crash_cuts_a_truncation_short(kinds: str) -> Cluster:
    """Member 0 led a term that nobody heard of, and dies as its recording is truncated; then it comes back."""
    for seed in range(7, 50):
        cluster = cluster_with_log(kinds, 20, seed=seed)
        first, *others = cluster.nodes
        cluster.oracle.bases |= {1: 20, 2: 41}
        for node in others:
            node.disk.terms = [Term(0, 0, 20), Term(1, 20, 20), Term(2, 20, 20), Term(3, 20, -1)]
        cluster.oracle.bases[3] = 20
        first.disk.entries += [(1, 0), *((1, cluster.next_entry()) for _ in range(20))]
        first.disk.terms = [Term(0, 0, 20), Term(1, 20, 41), Term(2, 41, -1)]
        for node in cluster.nodes:
            node.start()
        assert run_until(cluster, lambda disk=first.disk: len(disk.entries) == 20) < LIMIT_NS  # type: ignore[misc]
        if first.disk.terms[-1].base == 41:
            break  # between the two writes
    else:
        raise AssertionError("both writes came in one tick in all seeds")
    first.crash()
    run_until(cluster, lambda: False, S)
    first.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    return cluster


def a_crash_cuts_a_copy_short(kinds: str) -> Member:
    """Member 0 led a term that nobody heard of, and dies as it copies the next one; it is down, with half a copy."""
    cluster = cluster_with_log(kinds, 20)
    first, *others = cluster.nodes
    cluster.copy_entries = 2
    cluster.oracle.bases |= {1: 20, 2: 20}
    entries = [(2, 0), *((2, cluster.next_entry()) for _ in range(20))]
    for node in others:
        node.disk.entries += entries
        node.disk.terms = [Term(0, 0, 20), Term(1, 20, 20), Term(2, 20, -1)]
    first.disk.terms = [Term(0, 0, 20), Term(1, 20, -1)]
    for node in cluster.nodes:
        node.start()
    assert run_until(cluster, lambda: len(first.disk.entries) > 20) < LIMIT_NS
    assert len(first.disk.entries) < 41
    first.crash()
    return first


def a_term_is_far_ahead(kinds: str, ahead: int, times: int = 1) -> Cluster:
    """A vote is asked for in a term so far ahead, again and again; then one comes back that was away, and a wiped one.

    All follow a leader of such a term when this returns.
    """
    cluster = cluster_with_log(kinds, 20)
    cluster.append_chance = 0.3
    first, second, *_, last = cluster.nodes
    for node in cluster.nodes:
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    last.crash()
    for _ in range(times):
        term_id = first.leadership_term_id + ahead
        while first.disk.candidate_term_id < term_id:
            # Its log is better than any other: it gets the vote, and never leads. Who follows hears nothing at first.
            first.hear("request_vote", (term_id, 1 << 40, term_id, last.id, last.protocol_version))
            cluster.tick()
        run_until(cluster, lambda: False, S)
        assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
        assert first.leadership_term_id > term_id
    last.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    second.crash()
    second.wipe()
    run_until(cluster, lambda: False, 5 * S)
    second.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    return cluster


def one_has_recorded_empty_terms(kinds: str, count: int) -> int:
    """The last one led that many terms and opened none, with less of the log; how long until it follows (ns)."""
    cluster = cluster_with_log(kinds, 40)
    *others, last = cluster.nodes
    del last.disk.entries[20:]
    last.disk.candidate_term_id = count
    last.disk.terms = [Term(0, 0, 20), *(Term(term, 20, 20) for term in range(1, count)), Term(count, 20, -1)]
    for node in others:
        # Most of those terms are in a gap of their recording logs.
        node.disk.candidate_term_id = 1_000 + count
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    last.start()
    return run_until(cluster, lambda: is_led(cluster))


def one_has_committed_and_led_an_empty_term(seed: int) -> Cluster:
    """Members 0 and 1 have committed all that is before term 4. Then member 1 led term 5, and opened nothing.

    Member 2 led term 3 with another log. At the end, 0 has told 1 that it has nothing of term 5, and has died.
    """
    cluster = cluster_with_log("NNN", 10, seed=seed)
    first, second, last = cluster.nodes
    cluster.oracle.bases |= {2: 10, 3: 10, 4: 12, 5: 12}
    entries = [(2, 0), (2, cluster.next_entry())]
    first.disk.entries += [*entries, (4, 0)]
    second.disk.entries += entries
    last.disk.entries += [(3, 0)]
    for node, ends in ((first, [Term(4, 12, -1)]), (second, [Term(4, 12, 12), Term(5, 12, -1)])):
        node.disk.terms = [Term(0, 0, 10), Term(1, 10, 10), Term(2, 10, 12), Term(3, 12, 12), *ends]
    last.disk.terms = [Term(0, 0, 10), Term(1, 10, 10), Term(2, 10, 10), Term(3, 10, -1)]
    for node, term_id in zip(cluster.nodes, (4, 5, 5), strict=True):
        node.disk.candidate_term_id = term_id
    cluster.oracle.acknowledge(second.disk.entries, 4, True)
    first.start()
    last.start()
    assert run_until(cluster, lambda: first.followed_term_id > 5 and first.role == Role.LEADER) < LIMIT_NS
    cluster.cuts = {last.id}
    second.start()
    assert run_until(cluster, lambda: second.disk.terms[-1].id < 5) < LIMIT_NS
    first.crash()
    cluster.cuts = set()
    run_until(cluster, lambda: is_led(cluster), 5 * S)
    return cluster


def one_led_a_term_that_the_others_have_as_empty(more: int, *, has_led_again: bool) -> Cluster:
    """Member 2 led term 2 from 10 on, which the others have recorded as empty, where their log ends.

    Its log is that much longer than theirs (entries); ``has_led_again``: its last term is 3, empty on all. When this
    returns, all have followed a leader and worked for 2 s.
    """
    cluster = cluster_with_log("NNN", 10)
    *others, last = cluster.nodes
    cluster.oracle.bases |= {1: 10, 2: 10, 3: 12}
    entries = [(1, 0), (1, cluster.next_entry())]
    for node in others:
        node.disk.entries += entries
        node.disk.terms = [Term(0, 0, 10), Term(1, 10, 12), Term(2, 12, 12), Term(3, 12, 12), Term(4, 12, -1)]
        node.disk.candidate_term_id = 4
    last.disk.entries += [(2, 0), *((2, cluster.next_entry()) for _ in range(1 + more))]
    ends = [Term(2, 10, 12), Term(3, 12, -1)] if has_led_again else [Term(2, 10, -1)]
    last.disk.terms, last.disk.candidate_term_id = [Term(0, 0, 10), Term(1, 10, 10), *ends], 3
    for node in cluster.nodes:
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    cluster.append_chance = 0.3
    run_until(cluster, lambda: False, 2 * S)
    return cluster


def one_has_as_empty_a_term_that_the_others_have_something_of(more: int) -> Cluster:
    """Member 2 led term 1 from 10 on, unheard, and has recorded term 2 as empty behind that; the others have not.

    Its log is that much longer than theirs (entries). When this returns, all have followed a leader and worked for 2 s.
    """
    cluster = cluster_with_log("NNN", 10)
    *others, last = cluster.nodes
    cluster.oracle.bases |= {1: 10, 2: 10}
    entries = [(2, 0), (2, cluster.next_entry())]
    for node in others:
        node.disk.entries += entries
        node.disk.terms = [Term(0, 0, 10), Term(1, 10, 10), Term(2, 10, 12), Term(3, 12, 12), Term(4, 12, -1)]
        node.disk.candidate_term_id = 4
    last.disk.entries += [(1, 0), *((1, cluster.next_entry()) for _ in range(1 + more))]
    end = len(last.disk.entries)
    last.disk.terms, last.disk.candidate_term_id = [Term(0, 0, 10), Term(1, 10, end), Term(2, end, -1)], 4
    for node in cluster.nodes:
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    cluster.append_chance = 0.3
    run_until(cluster, lambda: False, 2 * S)
    return cluster


def restored_from_a_backup(kinds: str, length: int, *restored: int) -> Cluster:
    """A cluster that is down, and has committed all before 20 in four terms; some members are restored from a backup.

    The backup had a snapshot of term 0 and a leader of term 3, and its copy of the log has that length (entries). It
    leaves the terms between them out. Nobody has anything of term 3.
    """
    cluster = cluster_with_log(kinds, 10)
    cluster.oracle.bases |= {1: 10, 2: 16, 3: 20}
    committed = list(cluster.nodes[0].disk.entries)
    for term_id, count in ((1, 5), (2, 3)):
        committed += [(term_id, 0), *((term_id, cluster.next_entry()) for _ in range(count))]
    for node in cluster.nodes:
        node.disk.entries, node.disk.candidate_term_id = list(committed), 3
        node.disk.terms = [Term(0, 0, 10), Term(1, 10, 16), Term(2, 16, 20), Term(3, 20, -1)]
        if node.id in restored:
            node.disk.entries, node.disk.terms = committed[:length], [Term(0, 0, -1), Term(3, 20, -1)]
    cluster.oracle.acknowledge(committed, 3, True)
    return cluster


def one_is_restored_from_a_backup(kinds: str, length: int, *, is_late: bool) -> Cluster:
    """The last one is: its copy has that length (entries). Either all follow at the end, or 20 s have gone.

    ``is_late``: the last one starts while the leader of its last term leads. Else it starts with the others, and they
    have something of that term.
    """
    cluster = restored_from_a_backup(kinds, length, len(kinds) - 1)
    *others, last = cluster.nodes
    if is_late:
        for node in others:
            node.start()
        assert run_until(cluster, lambda: cluster.leader() is not None) < LIMIT_NS
        leader = cluster.leader()
        assert leader is not None
        last.disk.terms[-1].id = last.disk.candidate_term_id = leader.leadership_term_id
    else:
        for node in others:
            node.disk.entries.append((3, 0))
    for node in cluster.nodes:
        if not node.is_up:
            node.start()
    run_until(cluster, lambda: is_led(cluster), 20 * S)
    return cluster


def the_leader_dies_of_one_that_is_restored_from_a_backup() -> Cluster:
    """Member 1 was away since term 1, and member 0 dies once it has led member 2, which has all that is committed."""
    cluster = restored_from_a_backup("NNN", 20, 2)
    leader, behind, last = cluster.nodes
    del behind.disk.entries[12:], behind.disk.terms[2:]
    behind.disk.terms[-1].end, behind.disk.candidate_term_id = -1, 1
    leader.start()
    last.start()
    run_until(cluster, lambda: len(last.disk.entries) != 20, 20 * S)
    leader.crash()
    behind.start()
    run_until(cluster, lambda: is_led(cluster), 20 * S)
    return cluster


def the_term_of_a_backup_was_never_opened(length: int) -> Cluster:
    """The last one is restored from a backup, and the others have a term behind its last one, which is empty there."""
    cluster = restored_from_a_backup("NNN", length, 2)
    for node in cluster.nodes[:2]:
        node.disk.terms[-1:] = [Term(3, 20, 20), Term(4, 20, -1)]
        node.disk.entries.append((4, 0))
        node.disk.candidate_term_id = 4
    cluster.oracle.bases[4] = 20
    for node in cluster.nodes:
        node.start()
    run_until(cluster, lambda: is_led(cluster), 20 * S)
    return cluster


def one_loses_its_leader_while_it_records_its_first_log(kinds: str) -> Cluster:
    """The last of three is new, and has recorded all, but its services are slow to join. Then its leader dies.

    The other one has lost a few elections before it starts again. When this returns, there is a leader, or 20 s have
    gone.
    """
    cluster = Cluster(kinds, 3)
    cluster.loss = cluster.append_chance = 0.0
    *others, new = cluster.nodes
    for node in others:
        node.start()
    assert run_until(cluster, lambda: not any(node.election for node in others)) < LIMIT_NS
    leader = cluster.leader()
    assert leader is not None
    other = next(node for node in others if node is not leader)
    leader.disk.entries += [(leader.leadership_term_id, cluster.next_entry()) for _ in range(12)]
    assert run_until(cluster, lambda: other.commit == len(leader.disk.entries), LIMIT_NS) < LIMIT_NS
    new.is_joining_slowly = True
    new.start()
    assert run_until(cluster, lambda: len(new.disk.entries) == len(leader.disk.entries), LIMIT_NS) < LIMIT_NS
    leader.crash()
    other.crash()
    assert run_until(cluster, lambda: new.election is not None and new.election.leader is None, LIMIT_NS) < LIMIT_NS
    new.is_joining_slowly = False
    other.disk.candidate_term_id += 4
    other.start()
    run_until(cluster, lambda: cluster.leader() is not None and not (new.election or other.election), 20 * S)
    return cluster


def one_refuses_the_appointed(kinds: str) -> Cluster:
    """The last member, that all others have outlived, led a term that nobody heard of. Member 0 is appointed now."""
    cluster = cluster_with_log(kinds, 20, appointed=0)
    last = cluster.nodes[-1]
    cluster.oracle.bases[2] = 10
    last.disk.entries[10:] = [(2, 0), (2, cluster.next_entry())]
    last.disk.terms, last.disk.candidate_term_id = [Term(0, 0, 10), Term(1, 10, 10), Term(2, 10, -1)], 2
    for node in cluster.nodes:
        node.start()
    return cluster


def one_led_in_a_gap() -> Cluster:
    """The last member led a term that nobody heard of; the others are far beyond it, with a gap where it was."""
    cluster = cluster_with_log("NNN", 20)
    *others, last = cluster.nodes
    term_id, far = 1 << 20, 1 << 31
    cluster.oracle.bases |= {term_id: 10, far: 20}
    last.disk.entries[10:] = [(term_id, 0), (term_id, cluster.next_entry())]
    last.disk.terms, last.disk.candidate_term_id = [Term(0, 0, 10), Term(term_id, 10, -1)], term_id
    for node in others:
        node.record(-1, far, 20)
        node.disk.entries += [(far, 0)]
        node.disk.candidate_term_id = far
    for node in cluster.nodes:
        node.start()
    return cluster


def one_has_something_of_a_term_in_the_gap(kinds: str) -> Cluster:
    """The last one led a term of which nobody else has heard, and the others go on behind a gap with that term in it.

    All follow one leader when this returns. The last one's log is shorter than theirs, which goes further in the term
    before that one.
    """
    cluster = cluster_with_log(kinds, 30)
    *others, last = cluster.nodes
    del last.disk.entries[20:]
    last.disk.terms = [Term(0, 0, 20), Term(100, 20, -1)]
    last.disk.entries += [(100, 0), *((100, cluster.next_entry()) for _ in range(4))]
    cluster.oracle.bases[100] = 20
    for node in others:
        node.disk.candidate_term_id = 1 << 31
        node.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    assert all(term.id != 100 for node in others for term in node.disk.terms)
    last.start()
    assert run_until(cluster, lambda: is_led(cluster)) < LIMIT_NS
    return cluster
