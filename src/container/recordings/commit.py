"""Computes how far a log is committed, also when no member runs.

A running consensus module has a counter. A recording log knows closed terms and snapshots, and nothing of the term that
a stop or a kill left open. There the members decide together: what a majority has recorded is committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.common.values import shown, whole_number
from container.errors import ConfigurationError, RecordingError
from container.files.segments import segment_file_name
from container.recordings.log_decoder import LogDecoder
from container.recordings.remote import file_state
from container.recordings.term_message import TERM_TEMPLATE_ID, read_leadership_term_id, read_term_message

if TYPE_CHECKING:
    from container.files.recording_log import RecordingLogEntry
    from container.recordings.member import Log, Member

_READ_OK = 0
# Results of reading logs, with the state of the logs at that time: streams ask each second, also for stopped members.
_found: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}
_FOUND_MAX = 256
RECORDED, KNOWN = "recorded", "known"
COUNTER, GIVEN, QUORUM = "counter", "given", "quorum"

type Committed = str | int | None
"""``recorded``, ``known``, a log position, or ``None`` to find out."""


def parse_committed(name: str, value: str | int | None) -> Committed:
    """Return a setting that says what counts as committed.

    Raises:
        ConfigurationError: it is not ``recorded``, ``known``, or a log position.
    """
    if value is None or value in (RECORDED, KNOWN):
        return value
    position = whole_number(str(value))
    if position is None or position < 0:
        raise ConfigurationError(
            f"{name}={shown(value)}: must be {RECORDED} (all that is recorded), {KNOWN} (what closed terms, snapshots "
            "and counters show) or a log position"
        )
    return position


def member_key(member: Member) -> str:
    """The name of a member in the offsets of streams: its id, or its archive's directory where no file has an id.

    It does not depend on the order or the number of the directories that a query names.
    """
    return member.archive_dir if member.member_id is None or member.is_unnamed else str(member.member_id)


def with_others(members: Sequence[Member]) -> list[Member]:
    """Return the members of one cluster, each of which knows the others, so that they can form a quorum.

    Where some have an id in their files, one without is a copy and no vote. One that is missing may have had an id.

    Raises:
        ConfigurationError: a member is there twice: it would have two votes, and its rows would be there twice.
    """
    keys: dict[str, Member] = {}
    for member in members:
        other = keys.setdefault(key := member_key(member), member)
        if other is not member:
            raise ConfigurationError(
                f"path names member {key} twice: {other.path} and {member.path}; name each member once"
            )
    has_ids = any(member.member_id is not None for member in members)
    voting = [
        replace(member, is_voter=not has_ids or member.member_id is not None or member.is_missing, others=())
        for member in members
    ]
    return [replace(one, others=tuple(other for other in voting if other is not one)) for one in voting]


def resolve(member: Member, log: Log) -> tuple[int, str]:
    """Return up to where a member's log is committed, and what says so: one of the words of this module."""
    start, recorded, known = log.log_range.start_position, log.log_range.recorded_position, log.known_position
    if isinstance(member.committed, int):
        return min(recorded, max(start, member.committed)), GIVEN
    if log.has_counter:
        return known, COUNTER
    if member.committed is not None:
        return (recorded if member.committed == RECORDED else known), member.committed
    if member.others:
        return _of_cluster(member, log)
    return (recorded, RECORDED) if not log.is_running and _is_alone(member, log) else (known, KNOWN)


def _is_alone(member: Member, log: Log) -> bool:
    """Whether nothing in a log shows that its cluster has other members: none of these has ever led it."""
    if member.cluster_dir is None or log.failure is not None:
        return False  # The leader cannot be looked up.
    if not names_newest_term(member, log):
        return False  # The recording log has lost its end, and who led since then.
    places = {entry.term_base_log_position for entry in log.terms} | {log.log_range.start_position}
    leaders = {
        found.leader_member_id
        for place in places
        if (found := read_term_message(member.archive, log.descriptor, place)) is not None
    }
    own = leaders if member.member_id is None else {member.member_id}
    return len(leaders) == 1 and leaders == own


def names_newest_term(member: Member, log: Log, terms: Sequence[RecordingLogEntry] | None = None) -> bool:
    """Whether the newest term of which the log has a message is that of the recording log, or of other terms.

    Bounded: it looks at the first message of each Aeron term that has a file, from the end on, and then through one
    Aeron term.
    """
    by = log.terms if terms is None else terms
    return _once([(member, log)], by, lambda: _names_newest_term(member, log, by))


def _once[T](logs: Sequence[tuple[Member, Log]], by: object, find: Callable[[], T]) -> T:
    """The result of reading logs; from memory if the same logs were read before and have not changed."""

    def state() -> tuple[object, ...]:
        ends = ((one.archive, found.descriptor.recording_id, found.segment_positions[-1:]) for one, found in logs)
        return tuple(
            file_state(place, segment_file_name(number, *last)) if last else None for place, number, last in ends
        )

    key = tuple((one.archive_dir, one.storage) for one, _ in logs)
    # Not how far they are committed: that is what is found out with this.
    evidence = (state(), [_recorded(found) for _, found in logs], by)
    if (known := _found.get(key)) is not None and known[0] == evidence:
        value: T = known[1]
        return value
    value = find()
    if None not in evidence[0] and state() == evidence[0] and all(_can_be_read(*one) for one in logs):
        if len(_found) >= _FOUND_MAX:
            _found.clear()
        _found[key] = evidence, value
    return value


def _recorded(log: Log) -> tuple[object, ...]:
    found = log.log_range
    parts = found.start_position, found.recorded_position, log.known_position, log.segment_positions, log.terms
    return log.descriptor, *parts


def _can_be_read(member: Member, log: Log) -> bool:
    """Whether all files of a log can be opened: what cannot be read for a moment looks like what is not there."""
    archive, number = member.archive, log.descriptor.recording_id
    if not isinstance(archive, Path):
        return True  # A file that cannot be fetched is an error.
    return all(os.access(archive / segment_file_name(number, one), os.R_OK) for one in log.segment_positions)


def _names_newest_term(member: Member, log: Log, terms: Sequence[RecordingLogEntry]) -> bool:
    begin, end = log.log_range.start_position, log.log_range.recorded_position
    if not terms:
        return begin == end
    newest = max(terms, key=lambda entry: entry.leadership_term_id)
    begin = max(begin, newest.term_base_log_position)
    place = begin
    for one in _aeron_terms(log, begin, end):
        found = read_leadership_term_id(member.archive, log.descriptor, one)
        if found is not None:
            if found != newest.leadership_term_id:
                return False
            place = one
            break
    if place >= end:
        return True
    own = int(read_term_message(member.archive, log.descriptor, place) is not None)
    with closing(
        LogDecoder(
            member.archive,
            log.descriptor.layout(),
            {},
            batch_rows=2,
            begin=place,
            end=end,
            read_end=end,
            committed_position=end,
            template_ids={TERM_TEMPLATE_ID},
        )
    ) as decoder:
        while decoder.decode_messages() == _READ_OK and not decoder.is_full:
            pass
        return decoder.rows <= own


def _aeron_terms(log: Log, begin: int, end: int) -> Iterator[int]:
    """Where the Aeron terms between two positions begin that have a file, the last first."""
    term_length, segment_length = log.descriptor.term_buffer_length, log.descriptor.segment_file_length
    for segment in reversed(log.segment_positions):
        last = (min(end, segment + segment_length) - 1) & -term_length
        yield from range(last, max(begin, segment - 1), -term_length)


def _of_cluster(member: Member, log: Log) -> tuple[int, str]:
    """By the majority of all members that are named, or by the counter of one that runs."""
    logs = [(member, log), *((other, found) for other in member.others if (found := _log_of(other)) is not None)]
    voters = [(one, found) for one, found in logs if one.is_voter]
    count = sum(one.is_voter for one in (member, *member.others))
    known = max((found.known_position for _, found in voters), default=log.known_position)
    named = {id(found): found.has_counter or names_newest_term(one, found) for one, found in logs}
    whole = [(one, found) for one, found in voters if named[id(found)]]
    reference = max(whole or voters, key=_last_term, default=(member, log))
    cluster, basis = known, KNOWN
    if reference[1].terms and not any(found.has_counter or found.is_running for _, found in voters):
        agreed = sorted(
            (
                min(_agreement(one, found, *reference, is_named=named[id(found)]), _read_end(found))
                for one, found in voters
            ),
            reverse=True,
        )
        majority = count // 2 + 1
        cluster = max(known, agreed[majority - 1] if len(agreed) >= majority else 0)
        basis = QUORUM
    position = max(log.known_position, min(cluster, _agreement(member, log, *reference, is_named=named[id(log)])))
    return min(position, log.log_range.recorded_position), basis


def _read_end(log: Log) -> int:
    """Up to where a log is recorded for certain: damage that hides its end is not a vote for what follows."""
    return log.log_range.recorded_position if log.damaged_position is None else log.damaged_position


def _log_of(member: Member) -> Log | None:
    try:
        return member.own_log("permissive")
    except RecordingError:
        return None


def _last_term(voter: tuple[Member, Log]) -> tuple[int, int]:
    """The order of logs: that of a later term has all that is committed, and so has the longer one of the same."""
    _, log = voter
    last = max((entry.leadership_term_id for entry in log.terms), default=-1)
    return last, log.log_range.recorded_position


def _agreement(member: Member, log: Log, reference: Member, of: Log, *, is_named: bool) -> int:
    """Up to where a log has what the reference has: to where one of its terms does not begin as it does there."""
    logs = [(member, log), (reference, of)]
    return _once(logs, is_named, lambda: _find_agreement(member, log, reference, of, is_named=is_named))


def _find_agreement(member: Member, log: Log, reference: Member, of: Log, *, is_named: bool) -> int:
    start, others_start = log.log_range.start_position, of.log_range.start_position
    limit = min(log.log_range.recorded_position, of.log_range.recorded_position)
    proven = log.known_position
    terms = {entry.leadership_term_id: entry.term_base_log_position for entry in of.terms}
    last = max((entry.leadership_term_id for entry in log.terms), default=-1)
    if last < max(terms, default=-1) and last + 1 not in terms:
        limit = min(limit, log.known_position)  # Where the last term of this one ended nothing says.
    for base in sorted({*terms.values(), max(start, others_start)}):
        if not start <= base < limit:
            continue
        found = read_term_message(member.archive, log.descriptor, base)
        if base < others_start:
            # Purged there, and named by the recording log. Terms without a message have the base of the next one.
            is_same = found is not None and terms.get(found.leadership_term_id) == base
        else:
            expected = read_term_message(reference.archive, of.descriptor, base)
            is_same = expected is None or found == expected
        if not is_same:
            return base
        if found is not None:
            proven = max(proven, base)
    # Where the recording log has lost its end, a term may have begun that is not known here.
    return limit if is_named or names_newest_term(member, log, of.terms) else min(limit, proven)


def end_texts(member: Member, log: Log) -> dict[str, str]:
    """Return warnings about the end of a log, by topic; none where all is as it should be."""
    tail, loss = _tail_text(member, log), log.loss(member.archive)
    texts = {} if tail is None else {log.committed_by: tail}
    if loss is not None:
        texts["lost"] = f"the log of {name_of(member)} is not whole: {loss}"
    if log.torn_position is not None:
        texts["torn"] = (
            f"the log of {name_of(member)} ends at {log.log_range.recorded_position}, before a last frame up to "
            f"{log.torn_position} that is left out: nothing is in its last page, so perhaps it was not written to its "
            "end. The archive's own tool decides: ArchiveTool verify"
        )
    return texts


def name_of(member: Member) -> str:
    """Return what a member is called in a text."""
    return member.path if member.member_id is None else f"member {member.member_id} in {member.path}"


def _tail_text(member: Member, log: Log) -> str | None:
    """The warning about a log of which not all is known to be committed; ``None`` without one."""
    found = log.log_range
    if log.committed_by in (COUNTER, GIVEN) or found.recorded_position == log.known_position:
        return None
    text = f"the log of {name_of(member)} is recorded to {found.recorded_position} and known to be committed to "
    if log.committed_by == RECORDED:
        why = "as committed=recorded says" if member.committed == RECORDED else "as no other member ever led it"
        return (
            f"{text}{log.known_position}: all that is recorded counts as committed, {why}. If the cluster has other "
            "members, name their directories too, or set committed=known"
        )
    if found.committed_position == found.recorded_position:
        return None
    if log.committed_by == QUORUM:
        return (
            f"{text}{found.committed_position}, by the majority of the members that were named: what lies behind is "
            "left out, as an election may remove it"
        )
    return (
        f"{text}{found.committed_position}: what lies between is left out, as an election may remove it. Name the "
        "directories of all members, or set committed=recorded"
    )


def all_end_texts(members: Iterable[Member], mode: str) -> list[str]:
    """Return what :func:`end_texts` says of each member."""
    found: list[str] = []
    for member in members:
        try:
            found += end_texts(member, member.log(mode)).values()
        except RecordingError:
            continue  # Reading it raises the error.
    return found
