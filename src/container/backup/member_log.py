"""Whether a recording is the log of the member that has named it, before anything is copied of it.

A copy of another recording is not a copy of the cluster, and no true answer can continue it. Three facts show a log:

- its recording is of the log's stream;
- it has not ended;
- each term opens at its base with a NewLeadershipTermEvent (24).

Upstream (ClusterBackupAgent.java) copies what is named.

Three cases stay open. Two clusters record the same stream into one archive, and in both a leader with the same id began
the same term at the same position. A log that was purged behind the base of its last term shows the
term and not its base, which is taken as the member names it. A term that a member of upstream's entered amid its log
is refused, as nothing opens it there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from container.backup.member_answer import MemberAnswer, MemberSnapshot
from container.codecs.messages import decode
from container.errors import ClusterError, CodecError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import NULL_POSITION, RecordingLog

_TERM_OF_MESSAGE = struct.Struct("<8xq")
"""Header and first field of every message of a log (schema 111): the term that it is of."""


@dataclass(frozen=True, slots=True)
class TermPlace:
    """A position at which a member's log shows a term: the next message is of that term."""

    leadership_term_id: int
    base: int
    leader_member_id: int | None
    """None where the member does not say it."""
    position: int
    """The base, or the beginning of the log behind it."""
    is_before: bool = False
    """Whether the log begins behind the term, with its snapshot: a later term is opened there instead."""

    @property
    def is_base(self) -> bool:
        """Whether the term is opened there."""
        return self.position == self.base


def named_log(answer: MemberAnswer) -> str:
    """The recording that a member has named, for errors."""
    return f"recording {answer.log_recording_id}, which member {answer.member.id} names as its log,"


def check_log_recording(answer: MemberAnswer, source: RecordingDescriptor, log_stream_id: int) -> None:
    """Raise ClusterError unless the recording can be a log that its member follows.

    Args:
        answer: of the member.
        source: the recording that it names.
        log_stream_id: of the cluster's log.
    """
    if source.stream_id != log_stream_id:
        raise ClusterError(
            f"{named_log(answer)} is of stream {source.stream_id}, and the log is of stream {log_stream_id} "
            "(log_stream_id): it is another recording, or log_stream_id is not the cluster's"
        )
    if source.stop_position != NULL_POSITION:
        raise ended(answer)


def ended(answer: MemberAnswer) -> ClusterError:
    """The error for a recording that has ended."""
    return ClusterError(f"{named_log(answer)} has ended: the log of a member that answers is recorded still")


def check_reach(answer: MemberAnswer, snapshots: tuple[MemberSnapshot, ...], end: int) -> None:
    """Raise ClusterError where a member names a position behind the end of its log."""
    position = max(answer.term_base_log_position, *(each.log_position for each in snapshots), 0)
    if end < position:
        raise ClusterError(f"member {answer.member.id} names position {position}, and its log goes to {end}")


def term_places(
    recording_log: RecordingLog,
    answer: MemberAnswer,
    snapshots: tuple[MemberSnapshot, ...],
    start: int,
    *,
    is_followed: bool,
) -> list[TermPlace]:
    """The places of a member's log that show the terms it has named.

    Args:
        recording_log: of the copy: what that has of the log that is followed need not be shown again.
        answer: of the member.
        snapshots: those that the copy needs of the member.
        start: where its log begins.
        is_followed: whether the log is being copied.
    """
    term_id, base = answer.leadership_term_id, answer.term_base_log_position
    places = [TermPlace(term_id, base, answer.leader_member_id, max(base, start))]
    for each in snapshots[-1:]:
        # A log that begins with the snapshot has no message of its term: a cluster was begun from that.
        if each.leadership_term_id != term_id and start < each.log_position:
            first = max(each.term_base_log_position, start)
            places.append(TermPlace(each.leadership_term_id, each.term_base_log_position, None, first))
        elif each.log_position == 0:
            places.append(TermPlace(each.leadership_term_id, 0, None, 0, is_before=True))
    return [each for each in places if not is_followed or each.is_before or not _has(recording_log, each)]


def _has(recording_log: RecordingLog, place: TermPlace) -> bool:
    known = recording_log.find_term_entry(place.leadership_term_id)
    return known is not None and known.term_base_log_position == place.base


def check_term(answer: MemberAnswer, place: TermPlace, message: bytes | None) -> None:
    """Raise ClusterError unless a message shows that the log has a term.

    Args:
        answer: of the member.
        place: of the term.
        message: the first one from that place on, or its beginning; None without one.
    """
    term_id, base, leader_id = place.leadership_term_id, place.base, place.leader_member_id
    if place.is_base:
        found, is_shown = _opening(message, place)
        expected = "a later one than" if place.is_before else "the begin of"
        expected = f"{expected} term {term_id} from {base}{_led_by(leader_id)}"
    else:
        of_term = None if message is None else _term_of(message)
        found, is_shown = f"a message of term {of_term}", of_term == term_id
        expected = f"one of term {term_id}"
    if not is_shown:
        raise ClusterError(
            f"{named_log(answer)} is another one: at {place.position} it has {found}, and not {expected}"
        )


def _opening(message: bytes | None, place: TermPlace) -> tuple[str, bool]:
    """Describe a message; also return whether it opens a term."""
    try:
        name, fields = decode("cluster", b"" if message is None else message)
    except CodecError:
        return "no message of a cluster", False
    if name != "NewLeadershipTermEvent":
        return f"a {name}", False
    found = fields["leadership_term_id"], fields["term_base_log_position"]
    leader_id = fields["leader_member_id"]
    if place.is_before:
        is_shown = found[0] > place.leadership_term_id and found[1] == place.base
    else:
        is_shown = found == (place.leadership_term_id, place.base) and place.leader_member_id in (None, leader_id)
    return f"the begin of term {found[0]} from {found[1]}{_led_by(leader_id)}", is_shown


def _led_by(leader_id: int | None) -> str:
    return "" if leader_id is None else f" under leader {leader_id}"


def _term_of(message: bytes) -> int | None:
    if len(message) < _TERM_OF_MESSAGE.size:
        return None
    found: int = _TERM_OF_MESSAGE.unpack_from(message)[0]
    return found
