"""The rules for a whole cluster, by the disks, counters and services of its members, without their code.

The log that is committed is kept here, byte for byte, from the moment at which some member says so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from container.testing.simulation.nodes.log import Log
from container.testing.simulation.nodes.recorded import Violation, frames_of

CONSENSUS_STREAM_ID = 108
ARCHIVE_STREAM_ID = 10
_REQUEST_VOTE, _VOTE = 51, 52
"""Templates of messages between members."""
_REQUEST = struct.Struct("<qqqi")
"""Term and end of the candidate's log, term that it wants to lead, candidate."""
_BALLOT = struct.Struct("<qqqiii")
"""Term of the ballot, term and end of the voter's log, candidate, voter, whether it is a yes."""
_REPLAY_REQUEST = 6
"""The template of a request to an archive."""
_REPLAY = struct.Struct("<qqqqq")
"""Control session, correlation, recording, position, length."""
SERVICE_STREAM_ID = 105
"""The stream from services to their consensus module."""
_SERVICE_ACK = 33
_ACK = struct.Struct("<qqqqi")
"""Position, time, number, what it is about, service."""
_FIELDS = 8
"""Where the fields of a message begin, behind its header."""
_MARKER, _CLIENT_SESSION, _CLUSTER_SESSION, _TIMER = 100, 102, 103, 104
"""Templates of records of a snapshot."""
_MARK_PLACE, _END_MARK = 28, 2


@dataclass
class Acks:
    """The acks of a service in one life of it and of its consensus module."""

    count: int = 0
    position: int = 0


@dataclass
class Snapshot:
    """A snapshot taken apart: records of the container's or of the consensus module's, and the service's state."""

    sessions: list[int] = field(default_factory=list)
    timers: dict[int, int] = field(default_factory=dict)
    position: int = -1
    """The place in the log that it names itself."""
    is_whole: bool = False
    state: list[bytes] = field(default_factory=list)
    """Messages of the service itself."""


def snapshot_of(messages: Iterable[bytes]) -> Snapshot:
    """Take apart the messages of a snapshot."""
    found = Snapshot()
    for each in messages:
        if found.is_whole:
            found.state.append(each)
            continue
        template_id = int.from_bytes(each[2:4], "little")
        if template_id == _MARKER:
            found.position = struct.unpack_from("<q", each, _FIELDS + 8)[0]
            found.is_whole = each[_FIELDS + _MARK_PLACE] == _END_MARK
        elif template_id in (_CLIENT_SESSION, _CLUSTER_SESSION):
            found.sessions.append(struct.unpack_from("<q", each, _FIELDS)[0])
        elif template_id == _TIMER:
            correlation_id, deadline = struct.unpack_from("<qq", each, _FIELDS)
            found.timers[correlation_id] = deadline
    return found


def check_recorded(who: str, position: int, length: int, written: bytes, forced: bytes | None) -> None:
    """A counter of an archive says that a recording has so many bytes up to a position: they are in its files.

    ``forced`` is what outlasts a cut of the power, None where nothing is promised of that.
    """
    if len(written) < length or not any(written[:4]):
        raise Violation("recorded", f"{who} says {position}, and its files have {len(written)} of the last {length}")
    if forced is not None and forced != written:
        raise Violation("recorded", f"{who} says {position}, and not all of the last {length} bytes are forced")


class Member(Protocol):
    """A member, as far as the history needs it."""

    member_id: int

    def log_bytes(self, begin: int, end: int, *, again: bool = False) -> bytes:
        """Read the log from its disk, from one position to another; fewer bytes where its files end.

        Set ``again`` to look for the recording again, as a start can have replaced it.
        """

    def log_begin(self) -> int:
        """Where its disk's log begins, as segments that nothing needs are deleted."""

    def voted_term(self) -> int:
        """The last term in which it has voted, of its disk; -1 for none."""


class History:
    """All that was committed, whoever said so.

    Args:
        members: how many are needed for a quorum is more than half of these.
        log: what is committed is taken into it.
    """

    reads_along: ClassVar[bool] = True
    """Whether what members send each other counts; without it votes are seen by what comes of them."""

    def __init__(self, members: int, log: Log) -> None:
        self.quorum = members // 2 + 1
        self.content = b""
        """All bytes that are committed."""
        self.frames = b""
        """The same, without the parts in which members may differ."""
        self.log = log
        """The same, as far as its last message is whole."""
        self.leaders: dict[int, int] = {}
        """Members by leadership term."""
        self.votes: dict[int, dict[int, int]] = {}
        """By voter and term, who got its vote."""
        self.requests: dict[tuple[int, int], tuple[int, int]] = {}
        """By term and candidate, the term and end of the log that it had when it asked for votes."""
        self.refusals = 0
        """Ballots of members whose logs were better than the candidate's."""

    @property
    def end(self) -> int:
        """Up to where the log is committed."""
        return len(self.content)

    def commit(self, member: Member, position: int, members: Sequence[Member]) -> None:
        """A member says that the log is committed up to a position: a quorum must have it, the member among them."""
        begin = self.end
        content = member.log_bytes(begin, position)
        if len(content) < position - begin:
            raise Violation(
                "append", f"m{member.member_id} commits {position}, and has recorded up to {begin + len(content)}"
            )
        same = frames_of(content)
        have = self._who_have(members, begin, position, same)
        if len(have) < self.quorum:
            raise Violation("quorum", f"m{member.member_id} commits {begin} to {position}, which {have} have recorded")
        self.content += content
        self.frames += same
        self.log.grow(self.content)

    def check_leader(self, member: Member, term_id: int) -> None:
        """A member leads: nobody else does in that term, and it has all that was committed."""
        known = self.leaders.get(term_id)
        if known == member.member_id:
            return
        if known is not None:
            raise Violation("leaders", f"m{known} and m{member.member_id} lead in term {term_id}")
        self.leaders[term_id] = member.member_id
        self.check_content(member, self.end, "leads")

    def check_content(self, member: Member, end: int, what: str) -> None:
        """The log of a member is what was committed, up to a position."""
        begin = min(member.log_begin(), end)
        content = self.frames[:begin] + frames_of(member.log_bytes(begin, end))
        if content != self.frames[:end]:
            at = next((at for at, byte in enumerate(content) if byte != self.frames[at]), len(content))
            raise Violation("committed", f"m{member.member_id} {what}; of {end} bytes committed it has but {at}")

    def on_ack(self, who: str, acks: Acks, message: bytes) -> None:
        """A service has sent something to its consensus module: acks have numbers without a gap, and never go back."""
        if int.from_bytes(message[2:4], "little") != _SERVICE_ACK:
            return
        position, _, number, relevant_id, _ = _ACK.unpack_from(message, _FIELDS)
        if number != acks.count:
            raise Violation("acks", f"{who} sends ack {number} at {position} after {acks.count} of them")
        if not acks.position <= position <= self.end:
            raise Violation("acks", f"{who} sends an ack at {position} after {acks.position}, of {self.end} committed")
        # The first one names the service's client; later ones what was recorded.
        if number > 0 <= relevant_id and position not in self.log.snapshots:
            raise Violation("acks", f"{who} names recording {relevant_id} at {position}: the log asks for no snapshot")
        acks.count, acks.position = number + 1, position

    def check_snapshot(self, who: str, position: int, service_id: int, messages: Sequence[bytes]) -> None:
        """A snapshot that counts is whole, and says what the log says up to there."""
        found = snapshot_of(messages)
        sessions = self.log.sessions_at.get(position)
        if sessions is None:
            return  # behind what is known to be final
        if not found.is_whole or found.position != position:
            raise Violation("snapshots", f"{who} has no whole snapshot of service {service_id} at {position}")
        if sorted(found.sessions) != sorted(sessions):
            raise Violation(
                "snapshots", f"{who} has sessions {found.sessions} at {position} of {service_id}, not {list(sessions)}"
            )
        self._check_content_of(found, who, service_id)

    def _check_content_of(self, found: Snapshot, who: str, service_id: int) -> None:
        """Look at what else a snapshot has that is whole."""

    @property
    def has_states(self) -> bool:
        """Whether services have applied what is not known to be committed yet."""
        return False

    def check_applied(self) -> None:
        """After a turn no service is ahead of what is committed."""

    def on_consensus_message(self, member: Member, message: bytes) -> None:
        """A member has sent something to another: it has one vote in a term, and keeps it before it gives it away.

        A candidate's vote is its own. A yes goes to nobody whose log is worse than the voter's, as both say they are.
        """
        template_id = int.from_bytes(message[2:4], "little")
        if not self.reads_along:
            return
        if template_id == _REQUEST_VOTE:
            log_term_id, log_position, term_id, candidate_id = _REQUEST.unpack_from(message, _FIELDS)
            self.requests[term_id, candidate_id] = log_term_id, log_position
            self._on_vote(member, term_id, candidate_id)
        elif template_id == _VOTE:
            term_id, log_term_id, log_position, candidate_id, _, is_yes = _BALLOT.unpack_from(message, _FIELDS)
            wanted = self.requests.get((term_id, candidate_id), (log_term_id, log_position))
            # A member without a log refuses nobody.
            is_better = log_position > 0 and (log_term_id, log_position) > wanted
            self.refusals += is_better
            if is_yes and is_better:
                raise Violation(
                    "votes",
                    f"m{member.member_id}, whose log ends at {log_position} of term {log_term_id}, votes in term "
                    f"{term_id} for m{candidate_id}, whose log ends at {wanted[1]} of term {wanted[0]}",
                )
            if is_yes:
                self._on_vote(member, term_id, candidate_id)

    def _on_vote(self, member: Member, term_id: int, candidate_id: int) -> None:
        votes = self.votes.setdefault(member.member_id, {})
        known = votes.get(term_id)
        if known == candidate_id:
            return
        if known is not None:
            raise Violation("votes", f"m{member.member_id} votes in term {term_id} for m{known} and m{candidate_id}")
        votes[term_id] = candidate_id
        self.check_vote(member, "sends a vote")

    def check_vote(self, member: Member, what: str) -> None:
        """A member's votes are on its disk."""
        given = max(self.votes.get(member.member_id, ()), default=-1)
        if given >= 0 and (stored := member.voted_term()) < given:
            raise Violation("votes", f"m{member.member_id} {what}; it has voted in term {given}, and kept {stored}")

    def on_archive_request(self, member: Member, recording_id: int, request: bytes, members: Sequence[Member]) -> None:
        """A follower in an election asks its archive for something: of the log it replays only what a quorum has.

        A new leader says how far that is before any counter shows it.
        """
        if not self.reads_along or int.from_bytes(request[2:4], "little") != _REPLAY_REQUEST:
            return
        _, _, wanted_id, position, length = _REPLAY.unpack_from(request, _FIELDS)
        end = position + length
        if wanted_id != recording_id or end <= self.end:
            return
        have = self._who_have(members, self.end, end, frames_of(member.log_bytes(self.end, end)))
        if len(have) < self.quorum:
            raise Violation("replays", f"m{member.member_id} replays {position} to {end}, which {have} have recorded")

    @staticmethod
    def _who_have(members: Sequence[Member], begin: int, end: int, same: bytes) -> list[int]:
        return [
            each.member_id
            for each in members
            if any(frames_of(each.log_bytes(begin, end, again=again)) == same for again in (False, True))
        ]

    @property
    def contested(self) -> int:
        """Terms for which more than one member has asked for votes."""
        terms = [term_id for term_id, _ in self.requests]
        return len(terms) - len(set(terms))

    def check_terms(self, who: str, terms: dict[int, int]) -> None:
        """A recording log has the terms of what is committed where they begin.

        A term whose leader has committed nothing may have an entry without content, on each member elsewhere.
        """
        for term_id, base in self.log.terms:
            if terms.get(term_id, base) != base:
                raise Violation("terms", f"{who} has term {term_id} from {terms[term_id]} on, and it begins at {base}")
