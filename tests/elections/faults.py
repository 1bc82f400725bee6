"""The fate of a cluster of elections, by its seed: its past, its network, and faults at the worst moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container.api import Role
from container.consensus.election_host import ElectionState
from tests.elections.oracle import would_vote

if TYPE_CHECKING:
    from tests.elections.world import Cluster, Member

_S = ElectionState
_CHANGING = frozenset(ElectionState) - {_S.INIT, _S.CANVASS, _S.NOMINATE}
_OPENING = frozenset({_S.LEADER_LOG_REPLICATION, _S.LEADER_REPLAY, _S.LEADER_INIT})
_S_NS = 1_000_000_000


class Faults:
    """The effects of a seed on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        draw = cluster.random
        self._cluster = cluster
        #: How often a member that enters a state of a change is hit right then.
        self._aim = draw.choice((0.0, 0.05, 0.15, 0.3, 0.5))
        self._aimed = _CHANGING
        self._hit: list[tuple[int, Member, ElectionState | None]] = []
        #: Members that are held back, such as wiped ones: until when they stay down (ns).
        self._until_ns: dict[int, int] = {}
        self._wipes = draw.choice((0, 0, 0, 1))
        cluster.loss = draw.choice((0.0, 0.1, 0.3, 0.5))
        cluster.is_ordered = draw.random() < 0.5
        cluster.sync_level = draw.choice((0, 1, 1, 2))
        cluster.copy_entries = draw.choice((4, 4, 4, 2))
        # A busy driver takes up to 0.3 s: a voter must not give the leader that it voted for up meanwhile.
        cluster.publication_ticks = 16 if cluster.seed % 4 == 0 else 4
        if draw.random() < 0.1:
            cluster.settings.appointed_leader_id = draw.randrange(len(cluster.nodes))
            # Nobody else may lead, so it may not lose what others have.
            cluster.sync_level = max(1, cluster.sync_level)
        #: Who is away at first.
        self._away: list[Member] = []
        past = draw.random()
        if past < 0.35:
            give_past(cluster)
        elif past < 0.75:
            self._away = give_figure_8(cluster)
            self._aim, self._aimed = draw.choice((0.3, 0.6)), draw.choice((_CHANGING, _OPENING, _OPENING))
            cluster.loss = draw.choice((0.1, 0.3, 0.5))
        elif draw.random() < 0.3:
            self._aim, self._aimed = 0.6, frozenset({_S.CANDIDATE_BALLOT})
        #: What is done to the network again and again, and when next.
        self._network = draw.choice((None, None, None, self._change_sides, self._part_from_leader))
        self._network_ns = cluster.now_ns + 3 * _S_NS
        #: Whether one member hears nobody for a while, when all else is healed: a leader of upstream's stays for ever.
        self.is_one_deaf = draw.random() < 0.2 and not any(node.is_java for node in cluster.nodes)
        self.is_one_deaf &= cluster.settings.appointed_leader_id == -1

    def begin(self) -> None:
        """Start all members, or those that were not away."""
        nodes, draw = self._cluster.nodes, self._cluster.random
        if not self._away and draw.random() < 0.5:
            self._away = draw.sample(nodes, draw.randrange((len(nodes) + 1) // 2))
        for node in nodes:
            if node not in self._away:
                node.start()

    def on_state(self, member: Member, state: ElectionState) -> None:
        """A member has entered a state."""
        if state in self._aimed and self._aim and self._cluster.random.random() < self._aim:
            late = self._cluster.random.choice((0, 1, 2, 4, 8))
            self._hit.append((self._cluster.now_ns + late * 20_000_000, member, state))

    def on_truncation(self, member: Member) -> None:
        """A member's recording is truncated, and its recording log does not say so yet."""
        if self._cluster.random.random() < 0.4:
            self._hit.append((self._cluster.now_ns, member, None))

    def _change_sides(self) -> None:
        """Two parts of the cluster, and a member goes from one to the other: also one that has just followed."""
        self._cluster.cuts ^= {self._cluster.random.randrange(len(self._cluster.nodes))}

    def _part_from_leader(self) -> None:
        """A member and the leader do not hear each other, and all others hear both."""
        cluster, leader = self._cluster, self._cluster.leader()
        if cluster.broken or leader is None:
            cluster.broken = set()
        else:
            other = cluster.random.choice([node for node in cluster.nodes if node is not leader])
            cluster.broken = {(leader.id, other.id), (other.id, leader.id)}

    def disturb(self) -> None:
        """Crash, start, cut off, stall or heal."""
        cluster, draw = self._cluster, self._cluster.random
        if self._network is not None and cluster.now_ns >= self._network_ns:
            self._network()
            self._network_ns = cluster.now_ns + draw.randrange(100, 3000) * 1_000_000
        if self._hit:
            for due_ns, member, state in self._hit:
                if state is None and member.is_up:
                    member.crash()
                elif due_ns <= cluster.now_ns and state is _S.CANDIDATE_BALLOT and draw.random() < 0.5:
                    # With the votes it may have by then, it leads late.
                    member.stall(draw.randrange(400, 2500) * 1_000_000)
                elif due_ns <= cluster.now_ns:
                    self._strike(member)
            self._hit = [each for each in self._hit if each[0] > cluster.now_ns]
        what = draw.random()
        node = draw.choice(cluster.nodes)
        if node.election is not None and node.role == Role.LEADER:
            # In the middle of a change it hurts most.
            what /= 4
        if what < 0.004 and node.is_up:
            node.crash(is_power_cut=draw.random() < 0.3)
        elif what < 0.02 and not node.is_up:
            if cluster.now_ns >= self._until_ns.get(node.id, 0):
                node.start()
        elif what < 0.022:
            cluster.cuts = set(draw.sample(range(len(cluster.nodes)), draw.randrange(len(cluster.nodes))))
        elif what < 0.027:
            cluster.heal(draw.random() < 0.3)
        elif what < 0.032:
            first, second = draw.sample(range(len(cluster.nodes)), 2)
            cluster.broken ^= {(first, second)} if draw.random() < 0.5 else {(first, second), (second, first)}
        elif what < 0.034:
            cluster.loss = draw.choice((0.0, 0.1, 0.4))
        elif what < 0.037 and node.is_up:
            node.stall(draw.randrange(10, 2500) * 1_000_000)
        elif what < 0.039 and node.is_java:
            # The clock of the system is set. Ours measures with another.
            node.clock_offset_ns += draw.choice((-1, 1)) * draw.randrange(1, 5000) * 1_000_000
        elif what < 0.042 and self._wipes and node.is_up and cluster.is_agreed() and self._can_lose(node):
            self._wipes -= 1
            node.crash()
            node.wipe()
            self._until_ns[node.id] = cluster.now_ns + 3 * _S_NS

    def _can_lose(self, node: Member) -> bool:
        """Whether all others have what a member has, and may lead without it: else wiping it is the loss."""
        return node.id != self._cluster.settings.appointed_leader_id and all(
            len(each.disk.entries) >= len(node.disk.entries) for each in self._cluster.nodes
        )

    def _start_all(self, nodes: list[Member]) -> None:
        for node in nodes:
            if not node.is_up and self._cluster.now_ns >= self._until_ns.get(node.id, 0):
                node.start()

    def _strike(self, node: Member) -> None:
        cluster, draw = self._cluster, self._cluster.random
        others = [each for each in cluster.nodes if each is not node]
        what = draw.randrange(9)
        if what == 0 and node.is_up:
            node.crash(is_power_cut=draw.random() < 0.3)
        elif what == 1:
            other = draw.choice(others)
            if other.is_up:
                other.crash()
        elif what == 2:
            # The others go on without it.
            cluster.cuts = {node.id}
            self._start_all(others)
        elif what == 3:
            other = draw.choice(others)
            cluster.broken |= {(node.id, other.id), (other.id, node.id)}
        elif what == 4:
            pair = (node.id, draw.choice(others).id)
            cluster.broken |= {pair if draw.random() < 0.5 else pair[::-1]}
        elif what >= 7:
            # The others go on, with those that were away.
            if node.is_up:
                node.crash()
            self._start_all(others)
            cluster.heal(False)
        elif what == 5 and node.is_up:
            node.stall(draw.randrange(100, 2500) * 1_000_000)
        else:
            cluster.cuts = {each.id for each in draw.sample(others, min(len(others), (len(others) + 1) // 2))}


def give_past(cluster: Cluster) -> None:
    """Give the disks a past that the rules allow: terms whose leaders were cut off, with tails that few others have."""
    draw, nodes, oracle = cluster.random, cluster.nodes, cluster.oracle
    next_term = draw.randrange(2)
    threshold = len(nodes) // 2 + 1
    for _ in range(draw.randrange(1, 5)):
        term_id, next_term = next_term, next_term + 1 + (draw.random() < 0.2)
        appointed = cluster.settings.appointed_leader_id
        candidate = draw.choice(nodes) if appointed == -1 else nodes[appointed]
        others = [node for node in nodes if node is not candidate]
        asked = draw.sample(others, draw.randrange(len(others) + 1))
        voters = [node for node in asked if would_vote(node, candidate)] + [candidate]
        for node in voters:
            node.disk.candidate_term_id = term_id
            oracle.votes[node.id, term_id] = candidate.id
        if len(voters) < threshold:
            continue
        base = len(candidate.disk.entries)
        oracle.leaders[term_id], oracle.bases[term_id] = candidate, base
        can_follow = [node for node in others if node.disk.candidate_term_id <= term_id]
        whole = [candidate]
        if not candidate.is_java:
            note_term(candidate, term_id, base)
        for node in draw.sample(can_follow, draw.randrange(len(can_follow) + 1)):
            adopt(node, candidate, term_id, base, draw.randrange(base + 1) if draw.random() < 0.3 else base)
            # A crash may come when all is copied, and nothing of the term is recorded.
            if len(node.disk.entries) == base and draw.random() < 0.7:
                whole.append(node)
                if not node.is_java:
                    note_term(node, term_id, base)
        if len(whole) < threshold:
            continue
        # Upstream's record a term no earlier than they join it.
        for node in whole:
            note_term(node, term_id, base)
        for _ in range(draw.randrange(4)):
            kind = 0 if len(candidate.disk.entries) == base else cluster.next_entry()
            candidate.disk.entries.append((term_id, kind))
        for node in whole[1:]:
            node.disk.entries = candidate.disk.entries[: draw.randrange(base, len(candidate.disk.entries) + 1)]
        reached = sorted((len(node.disk.entries) for node in whole), reverse=True)[threshold - 1]
        if reached > len(oracle.committed):
            is_native = not candidate.is_java and sum(not node.is_java for node in whole) >= threshold
            oracle.acknowledge(candidate.disk.entries[:reached], term_id, is_native)


def give_figure_8(cluster: Cluster) -> list[Member]:
    """Give the disks the past of figure 8 of the paper on Raft; who led last but one, and stays away.

    Member a led term 1, and was cut off with a tail that nobody else has. Member b led term 2 without it, and died
    before anybody heard of that. Then a led term 3, and died when others had copied its tail, and recorded nothing of
    the term.
    """
    draw, nodes = cluster.random, cluster.nodes
    appointed = cluster.settings.appointed_leader_id
    a, b, *others = draw.sample(nodes, len(nodes))
    if appointed not in (-1, a.id):
        others = [node for node in (a, b, *others) if node.id != appointed]
        a, b = nodes[appointed], others.pop()
    base, tail = draw.randrange(4), draw.choice((1, 2, 3, 10, 20))
    common = [(0, 0), *((0, cluster.next_entry()) for _ in range(base - 1))] if base else []
    for node in nodes:
        node.disk.entries = list(common)
        note_term(node, 0, 0)
        node.disk.candidate_term_id = 1
        note_term(node, 1, base)
    a.disk.entries += [(1, 0), *((1, cluster.next_entry()) for _ in range(tail - 1))]
    if not b.is_java:
        note_term(b, 2, base)
    copied = draw.sample(others, draw.randrange(len(nodes) // 2 - (len(nodes) > 3), len(others) + 1))
    for node in copied:
        node.disk.entries = list(a.disk.entries)
    if not a.is_java and draw.random() < 0.5:
        note_term(a, 3, base + tail)
    a.disk.candidate_term_id = 3
    for node in others:
        node.disk.candidate_term_id = 3
        cluster.oracle.votes[node.id, 3] = a.id
    b.disk.candidate_term_id = 2
    cluster.oracle.leaders.update({0: a, 1: a, 2: b, 3: a})
    cluster.oracle.bases.update({0: 0, 1: base, 2: base, 3: base + tail})
    cluster.oracle.acknowledge(common, 0, is_native=all(not node.is_java for node in nodes))
    return [b]


def note_term(node: Member, term_id: int, base: int) -> None:
    """Record a term that is formed or followed."""
    node.disk.has_recording = True
    node.record(-1, term_id, base)


def adopt(node: Member, leader: Member, term_id: int, base: int, length: int) -> None:
    """Have a member take a leader's log from where its own differs, up to a length."""
    ours, theirs = node.disk, leader.disk
    recorded = {term.id for term in ours.terms}
    common = 0
    while common < min(len(ours.entries), base) and ours.entries[common] == theirs.entries[common]:
        common += 1
    position = max(common, length)
    ours.entries = theirs.entries[:position]
    older = [term for term in theirs.terms if term.id < term_id]
    ours.terms = [type(term)(term.id, term.base, term.end) for term in older if term.base <= position]
    if ours.terms and ours.terms[-1].end > position:
        if len(ours.terms) > 1 and ours.terms[-1].id not in recorded and leader.cluster.random.random() < 0.5:
            del ours.terms[-1]  # which is recorded once all of it is copied
        else:
            ours.terms[-1].end = -1
    ours.has_recording = bool(ours.terms)
    if not ours.terms:
        ours.entries = []
