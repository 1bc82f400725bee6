"""Events that must never happen in a cluster of elections, and whose rules allow them.

* A committed entry never changes, and all members apply the same; who leads has all that is committed.
* Nobody without an entry that is applied could lead a newer term, even if all crashed now.
* A term has one leader, a member votes once in it, for what its disk has, and no candidate term goes back.
* A recording log has terms that were led, from where they were led, and between them empty ones.

A violation is ours where native members alone took part: they led, voted, held a quorum of what was committed, and
broke it. Where one of upstream's took part, the guarantee is upstream's, and so is the violation. A native member's
recording log is ours, except for terms that one of upstream's had recorded so, and said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.elections.world import Entry, Member, Term

OURS, UPSTREAMS = "ours", "upstream's"


def last_of(node: Member) -> tuple[int, int]:
    """The facts of a member's disk that the rule of votes compares: its log's last term, and its length."""
    return (node.disk.terms[-1].id, len(node.disk.entries)) if node.disk.terms else (-1, 0)


def would_vote(node: Member, candidate: Member) -> bool:
    """Whether a member votes for another, as their disks are: a native one that has nothing does so in any case."""
    return last_of(node) <= last_of(candidate) or not (node.is_java or node.disk.entries)


class Violation(AssertionError):
    """A forbidden event has happened.

    Args:
        text: what has happened.
        oracle: what it is called in a table.
        blame: whose rules let it happen.
    """

    def __init__(self, text: str, oracle: str, blame: str = OURS) -> None:
        super().__init__(text)
        self.oracle, self.blame = oracle, blame


@dataclass(slots=True)
class Oracle:
    """The observations of all members."""

    threshold: int
    committed: list[Entry] = field(default_factory=list)
    #: By position: whether native members alone committed the entry there, and in which term.
    is_native: list[bool] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    leaders: dict[int, Member] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    votes: dict[tuple[int, int], int] = field(default_factory=dict)
    #: Id and base of terms that a member of upstream's has recorded, and that began or ended elsewhere.
    wrong_terms: set[tuple[int, int]] = field(default_factory=set)
    #: What members of upstream's had, and have no more.
    taken_back: set[tuple[int, Entry]] = field(default_factory=set)
    #: Whether a power cut has taken what was said to be recorded; then only votes are held to anything.
    is_lossy: bool = False

    def acknowledge(self, entries: list[Entry], term_id: int, is_native: bool) -> None:
        """Take entries as committed in a term before the run."""
        self.is_native += [is_native] * (len(entries) - len(self.committed))
        self.terms += [term_id] * (len(entries) - len(self.committed))
        self.committed = list(entries)

    def check_applied(self, member: Member, index: int, entry: Entry) -> None:
        """All members apply the same."""
        if self.is_lossy:
            return
        if index == len(self.committed):
            self.committed.append(entry)
            leader = self.leaders.get(member.followed_term_id)
            holders = [
                node
                for node in member.cluster.nodes
                if not node.is_java and node.disk.entries[index : index + 1] == [entry]
            ]
            self.terms.append(member.followed_term_id)
            self.is_native.append(leader is not None and not leader.is_java and len(holders) >= self.threshold)
            if leader is not None and not leader.is_java and not member.is_java:
                self._check_held(member, index, leader)
        elif self.committed[index] != entry:
            blame = self._blame(index, member, member.followed_term_id)
            raise Violation(
                f"member {member.id} applies {entry} at {index}, others {self.committed[index]}", "applied", blame
            )

    def _check_held(self, member: Member, index: int, leader: Member) -> None:
        """An applied entry cannot be lost: no member without it can lead a newer term.

        That is asked of the disks alone, with the rule of votes, and with the votes that a candidate has. Members of
        upstream's that have the entry count as if they voted for nobody without it: they follow a leader of a term
        before their vote, and record a term late.
        """
        nodes = member.cluster.nodes
        without = [node for node in nodes if not self._has(node, index)]
        for candidate in without:
            term_id = candidate.disk.candidate_term_id
            is_asking = term_id > member.followed_term_id and self.votes.get((candidate.id, term_id)) == candidate.id
            voters = [
                node
                for node in nodes
                if (node in without or not node.is_java)
                and ((is_asking and self.votes.get((node.id, term_id)) == candidate.id) or would_vote(node, candidate))
            ]
            if not candidate.is_java and len(voters) >= self.threshold:
                raise Violation(
                    f"member {member.id} applies {member.disk.entries[index]} at {index} in term "
                    f"{member.followed_term_id} of member {leader.id}, and member {candidate.id} can lead without it, "
                    f"with the votes of {', '.join(str(node.id) for node in voters)}",
                    "held",
                    OURS if self.is_native[index] else UPSTREAMS,
                )

    def _has(self, node: Member, index: int) -> bool:
        """Whether a member would have an entry that is applied now after a crash; without a term nobody finds it.

        Upstream's members have what they ever had: they may have said so, and take it back by their own rules.
        """
        entry = self.committed[index]
        if node.disk.entries[index : index + 1] != [entry]:
            return (node.id, entry) in self.taken_back
        return node.is_java or bool(node.disk.terms)

    def note_lost(self, member: Member, entries: list[Entry]) -> None:
        """A member takes entries back, or cannot find them after a crash."""
        if member.is_java:
            self.taken_back.update((member.id, entry) for entry in entries)

    def check_leader(self, member: Member, term_id: int) -> None:
        """A term has one leader, and that has all that was committed before it."""
        first = self.leaders.setdefault(term_id, member)
        if first is not member:
            blame = UPSTREAMS if any(node.is_java for node in (first, member)) or self._has_java_vote(term_id) else OURS
            raise Violation(f"members {first.id} and {member.id} lead term {term_id}", "one leader", blame)
        self.bases[term_id] = len(member.disk.entries)
        self._check_has_committed(member, term_id)

    def _check_has_committed(self, member: Member, term_id: int) -> None:
        if self.is_lossy:
            return
        entries = member.disk.entries
        for index, entry in enumerate(self.committed):
            # One of an older term, late, has not and can commit nothing.
            if entries[index : index + 1] != [entry] and self.terms[index] < term_id:
                raise Violation(
                    f"member {member.id} leads term {term_id} without {entry} at {index}, which was committed",
                    "committed",
                    self._blame(index, member, term_id),
                )

    def check_truncation(self, member: Member, position: int) -> None:
        """No member takes back what it has applied."""
        self.note_lost(member, member.disk.entries[position:])
        if position < member.commit and not self.is_lossy:
            blame = self._blame(position, member, member.followed_term_id)
            raise Violation(
                f"member {member.id} truncates to {position}, with {member.commit} applied", "applied", blame
            )

    def check_vote(self, member: Member, term_id: int, candidate_id: int) -> None:
        """A member votes once in a term, for what its disk has."""
        blame = UPSTREAMS if member.is_java else OURS
        if self.votes.setdefault((member.id, term_id), candidate_id) != candidate_id:
            raise Violation(f"member {member.id} votes twice in term {term_id}", "votes", blame)
        if member.disk.candidate_term_id < term_id:
            raise Violation(f"member {member.id} votes in term {term_id}, and has not persisted it", "votes", blame)

    def check_terms(self, member: Member, term_id: int, terms: list[Term]) -> None:
        """A member records only true terms: that term, and those that it has changed for it."""
        if self.is_lossy:
            return
        for term in terms:
            base = self.bases.get(term.id)
            if term.end == term.base or (member.is_java and term.id == -1):
                continue  # upstream's records a term -1 for what it copies before the first
            if base is not None and self._is_base(member, term.base, base, term.id):
                if member.is_java and self._has_wrong_end(member, term):
                    self.wrong_terms.add((term.id, term.base))
                continue
            if member.is_java and term.id != term_id:
                self.wrong_terms.add((term.id, term.base))
                continue
            text = "which nobody has led" if base is None else f"which began at {base}"
            raise Violation(
                f"member {member.id} records {term}, {text}", "recording log", self._blame_term(member, term)
            )

    def _has_wrong_end(self, member: Member, term: Term) -> bool:
        """Whether a term ends behind its last entry, and no native member has said so before."""
        begin = max(term.base, self.bases[term.id])
        if term.end == -1 or all(entry[0] == term.id for entry in member.disk.entries[begin : term.end]):
            return False
        return not any(not node.is_java and term in node.disk.terms for node in member.cluster.nodes)

    def _blame_term(self, member: Member, term: Term) -> str:
        """Whose a term is that is not what happened: a native member records what a leader says of its own."""
        is_upstreams = member.is_java or (term.id, term.base) in self.wrong_terms
        return UPSTREAMS if is_upstreams else OURS

    def _is_base(self, member: Member, recorded: int, base: int, term_id: int) -> bool:
        """Whether a term may be recorded from there: what was copied of an unrecorded term lies between, or nothing."""
        return recorded <= base and all(entry[0] < term_id for entry in member.disk.entries[recorded:base])

    def check_end(self, nodes: list[Member]) -> None:
        """With all healed, logs and recording logs are those of the leader, and say what is in the log."""
        if self.is_lossy:
            return
        leader = max(nodes, key=lambda node: (node.leadership_term_id, len(node.disk.entries)))
        for node in nodes:
            blame = UPSTREAMS if node.is_java or leader.is_java or self._has_java_leader() else OURS
            common = min(len(node.disk.entries), len(leader.disk.entries))
            if node.disk.entries[:common] != leader.disk.entries[:common]:
                raise Violation(f"the logs of members {node.id} and {leader.id} differ", "logs", blame)
            for term, following in zip_longest(node.disk.terms, node.disk.terms[1:]):
                if term.end == term.base or (node.is_java and term.id == -1):
                    continue
                end = len(node.disk.entries) if term.end == -1 else term.end
                # A backup leaves terms out.
                last = term.id if following is None else following.id - 1
                for index in range(term.base, min(end, len(node.disk.entries))):
                    found = node.disk.entries[index][0]
                    if not term.id <= found <= last and not (found < term.id and index < self.bases.get(term.id, 0)):
                        raise Violation(
                            f"member {node.id} has recorded {term}, and {node.disk.entries[index]} at {index}",
                            "recording log",
                            self._blame_term(node, term),
                        )

    def blame_all(self) -> str:
        """Whose rules are in question where any member's may be."""
        return UPSTREAMS if self._has_java_leader() else OURS

    def _has_java_leader(self) -> bool:
        return any(leader.is_java for leader in self.leaders.values())

    def _has_java_vote(self, term_id: int) -> bool:
        leader = self.leaders.get(term_id)
        if leader is None:
            return True
        nodes = leader.cluster.nodes
        native = [node for node in nodes if not node.is_java and self.votes.get((node.id, term_id)) == leader.id]
        return len(native) < self.threshold

    def _blame(self, index: int, member: Member, term_id: int) -> str:
        """Whose rules let a member of that term break what was committed at a position."""
        leader = self.leaders.get(term_id)
        is_ours = (
            self.is_native[index]
            and not member.is_java
            and leader is not None
            and not leader.is_java
            and not self._has_java_vote(term_id)
        )
        return OURS if is_ours else UPSTREAMS
