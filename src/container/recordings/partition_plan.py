"""The plan of a view: which rows are wanted, and how the work is divided into partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from numbers import Integral
from pathlib import Path

from container.errors import ConfigurationError, RecordingError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import RecordingLogEntry
from container.recordings.commit import end_texts, names_newest_term
from container.recordings.first_message import FirstMessage, clock_change, first_message
from container.recordings.member import MODES, SNAPSHOT_STREAM_IDS, STRICT, Log, Member, tolerates
from container.recordings.message_reader import MessageReader
from container.recordings.remote import in_parallel
from container.recordings.views import LOG_VIEWS, view_of

_log = logging.getLogger(__name__)

SNAPSHOT_PARTITIONS_MAX = 32
_LEAST_DATE = 10**8  # what is less is of a clock that counts from its own begin; as seconds it is a day of 1973
_NULL_VALUE = -1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows of a view of the log are wanted; ``None`` for no limit.

    Positions are those where messages (or frames) end: what lies between ``begin_position`` and ``end_position``. A row
    that reports damage passes whatever its time, template and term would be, and has the position where the damage
    begins: at ``begin_position`` or behind it, and before ``end_position``. Parts of a log without a wanted time,
    judged by their first messages, are not read.

    A time chooses each message by its own timestamp, also where a new leader's clock is behind the old one's. A message
    without a timestamp, such as one of an extension, is in no range of times; a warning counts those left out.
    """

    begin_position: int | None = None
    """Only rows with ``log_position > begin_position``."""
    end_position: int | None = None
    """Only rows with ``log_position <= end_position``."""
    _: KW_ONLY
    is_border: bool = False
    """Whether ``begin_position``, if it is a multiple of 32, is known to be a place where a frame begins, so that
    nothing before it need be read. At other places a message's bytes might look like a frame."""
    begin_timestamp: int | None = None
    """Only rows with ``timestamp >= begin_timestamp``, in the cluster's unit; not for frames."""
    end_timestamp: int | None = None
    """Only rows with ``timestamp < end_timestamp``, in the cluster's unit; not for frames."""
    template_ids: frozenset[int] | None = None
    """Only rows with one of these template ids; not for frames."""
    leadership_term_ids: frozenset[int] | None = None
    """Only rows with one of these leadership terms."""

    def check(self, view: str) -> None:
        """Raise ConfigurationError when the view cannot apply a filter, or a bound is not a whole number."""
        for name in ("begin_position", "end_position", "begin_timestamp", "end_timestamp"):
            value = getattr(self, name)
            if value is None or (isinstance(value, Integral) and _INT64_MIN <= int(value) <= _INT64_MAX):
                continue
            unit = ", of a time in the cluster's unit, by default milliseconds" if "timestamp" in name else ""
            raise ConfigurationError(f"{name}={value!r}: must be a whole number of 64 bits{unit}")
        if view not in LOG_VIEWS and self != ALL_ROWS:
            raise ConfigurationError(f"view={view!r} takes no filters, got {self}")
        message_filters = (self.begin_timestamp, self.end_timestamp, self.template_ids)
        if view == "frames" and any(value is not None for value in message_filters):
            raise ConfigurationError(f"frames can be chosen by position and leadership term only, got {self}")


ALL_ROWS = Filters()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a service or of the consensus module, as the recording log or, without one, the catalog has it."""

    entry: RecordingLogEntry | None
    descriptor: RecordingDescriptor | None
    """Descriptor of its recording; ``None`` where this archive has none."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a view that can be read by itself, anywhere where the member's files can be read."""

    member: Member
    """The member whose files have the rows."""
    view: str
    """The view, one of :data:`~container.recordings.VIEWS`."""
    mode: str
    """The reaction to damage: ``strict`` raises, ``permissive`` returns a row for it."""
    source: str
    """Where its rows come from: ``log``, ``recording_log``, ``catalog``, ``snapshot``, or ``failure`` for none."""
    descriptor: RecordingDescriptor | None = None
    """The descriptor of the recording; ``None`` for a source other than ``log``."""
    begin_position: int = 0
    """Messages of the log that begin from here …"""
    end_position: int = 0
    """… up to here are its rows; both are places where a frame begins."""
    recorded_position: int = 0
    """Where the recording ended when the plan was made."""
    committed_position: int = 0
    """The end of the committed part of the log when the plan was made."""
    leadership_term_id: int | None = None
    """The term by the recording log; ``None`` where that is not known."""
    snapshots: tuple[Snapshot, ...] = ()
    """Those that are its rows, one after the other."""
    failure: RecordingError | None = None
    """The error that kept the plan from finding rows, or that names the missing part: it is the only row."""


def plan(
    members: Member | Sequence[Member],
    view: str,
    *,
    filters: Filters = ALL_ROWS,
    mode: str = STRICT,
    log: Log | None = None,
) -> list[Partition]:
    """Divide a view of one or several members into partitions, in the order of the log.

    Views of the log have a partition for each leadership term and segment file, so that they can be read in parallel;
    snapshots have at most 32 for each member, however many there are. On a running member the plan ends where its log
    was recorded when the plan was made. Each file is read once.

    Args:
        members: the members of the view.
        view: the name of the view.
        filters: the wanted rows.
        mode: the treatment of damage.
        log: a result of :meth:`~container.recordings.Member.log` for one member, to plan as of that moment.

    Raises:
        ConfigurationError: the view or mode is unknown, or the view cannot apply a filter.
        RecordingError: in mode strict: a catalog or recording log is damaged or cannot be read, or a log is not known.
            In mode permissive a partition takes the place of what could not be found; its row has the error.
    """
    view_of(view)
    filters.check(view)
    if mode not in MODES:
        raise ConfigurationError(f"mode={mode!r} is unknown, use one of {', '.join(MODES)}")
    several = [members] if isinstance(members, Member) else members
    if isinstance(several, str | Path) or not all(isinstance(one, Member) for one in several):
        raise ConfigurationError(f"members={members!r}: must be a Member or several, which open_member makes of a path")
    partitions = []
    for member in several:
        if view == "recordings":
            partitions.append(Partition(member, view, mode, "catalog"))
            continue
        if view in ("recording_log", "terms"):
            partitions.append(Partition(member, view, mode, "recording_log"))
        try:
            if view in LOG_VIEWS or view == "terms":
                partitions += _plan_log(member, member.log(mode) if log is None else log, view, filters, mode)
            elif view == "snapshots":
                partitions += _plan_snapshots(member, view, mode)
        except RecordingError as error:
            if not tolerates(mode, error):
                raise
            partitions.append(_failed(member, view, error, mode))
    return partitions


def _failed(member: Member, view: str, error: RecordingError, mode: str) -> Partition:
    return Partition(member, view, mode, "failure", failure=error)


def _plan_log(member: Member, log: Log, view: str, filters: Filters, mode: str) -> list[Partition]:
    descriptor, log_range = log.descriptor, log.log_range
    begin, end = log_range.start_position, log_range.recorded_position
    cuts = {begin: _NULL_VALUE, **_terms_of(member, log)}
    # Where files begin and end that are there: so what is missing between two of them is one partition.
    files = [place for first in log.segment_positions for place in (first, first + descriptor.segment_file_length)]
    borders = sorted({*cuts, *(place for place in files if begin < place < end), end})
    # The view of terms has the recording log's failure as a row already.
    partitions = [] if log.failure is None or view == "terms" else [_failed(member, view, log.failure, mode)]
    parts, term = [], None
    for lower, upper in pairwise(borders):
        term = cuts.get(lower, term)
        if _may_match(filters, lower, upper, term, max(cuts.values())):
            parts.append((lower, upper, term))
    is_timely = _timely(member, log, filters, [part[:2] for part in parts])
    for lower, upper, term in parts:
        if not is_timely(lower, upper):
            continue
        partitions.append(
            Partition(
                member,
                view,
                mode,
                "log",
                descriptor,
                lower,
                upper,
                end,
                log_range.committed_position,
                None if term == _NULL_VALUE else term,
            )
        )
    partitions += _end_of(member, log, view, filters, mode)
    return partitions


def _end_of(member: Member, log: Log, view: str, filters: Filters, mode: str) -> list[Partition]:
    """The partition in place of the missing end of a log, where that is wanted."""
    end = log.log_range.recorded_position
    if filters.end_position is not None and filters.end_position <= end:
        return []
    if (torn := end_texts(member, log).get("torn")) is not None:
        _log.warning("%s", torn)
    loss, begin = log.loss(member.archive), filters.begin_position
    if loss is None or log.lost_position is None or (begin is not None and begin >= log.lost_position):
        return []
    return [_failed(member, view, loss, mode)]


def _plan_snapshots(member: Member, view: str, mode: str) -> list[Partition]:
    """The entries of the recording log; without one, the recordings that look like snapshots."""
    descriptors = {descriptor.recording_id: descriptor for descriptor in member.recordings(mode)}
    failed = []
    try:
        entries = [entry for entry in member.recording_log(mode) if not entry.is_term]
    except RecordingError as error:
        if not tolerates(mode, error):
            raise
        entries, failed = [], [_failed(member, view, error, mode)]
    if not failed and (entries or member.cluster_dir is not None):
        found = [
            Snapshot(entry, descriptors.get(entry.recording_id) if entry.is_snapshot else None) for entry in entries
        ]
    else:
        found = [
            Snapshot(None, descriptor)
            for descriptor in descriptors.values()
            if descriptor.stream_id in SNAPSHOT_STREAM_IDS
        ]
    # Each partition reads the whole catalog, so their number is bounded: time stays in proportion to the snapshots.
    size = -(-len(found) // SNAPSHOT_PARTITIONS_MAX)
    return failed + [
        Partition(member, view, mode, "snapshot", snapshots=tuple(found[first : first + size]))
        for first in range(0, len(found), size or 1)
    ]


def _may_match(filters: Filters, lower: int, upper: int, term: int | None, newest: int) -> bool:
    """Whether a message that begins from ``lower`` up to ``upper`` can pass; it may end behind ``upper``.

    Behind the newest term of a recording log there may be later ones, which it has lost.
    """
    if filters.end_position is not None and lower >= filters.end_position:
        return False
    if filters.begin_position is not None and upper <= filters.begin_position:
        return False
    terms = filters.leadership_term_ids
    if terms is None or term is None or term == _NULL_VALUE or term in terms:
        return True
    return term == newest and any(wanted > newest for wanted in terms)


def _timely(member: Member, log: Log, filters: Filters, parts: Sequence[tuple[int, int]]) -> Callable[[int, int], bool]:
    """Whether a message of one of the parts, by their borders, can have one of the wanted times.

    The first messages of a part and of the next one say it, with room for clocks that are set. Another leader's clock
    says nothing: of the last part of a leadership term it is not known what it ends with. Read are also parts in which
    a term begins that the recording log does not have there, and those that a message without a time begins or ends.
    """
    first, last = filters.begin_timestamp, filters.end_timestamp
    if first is None and last is None:
        return lambda lower, upper: True
    archive, end_position = member.archive, log.log_range.recorded_position
    places = sorted({place for part in parts for place in part} - {end_position})
    found = in_parallel(archive, lambda place: first_message(archive, log.descriptor, place), places)
    firsts = dict(zip(places, found, strict=True))
    for name in ("begin_timestamp", "end_timestamp"):
        _doubt_unit(name, getattr(filters, name), [*firsts.values()])
    terms = {entry.term_base_log_position: entry.leadership_term_id for entry in log.terms}

    def ends_term(upper: int, term: int) -> bool:
        """Whether it is known that up to a border no term began, and that the one behind it is this one."""
        if upper != end_position:
            return terms.get(upper) == term
        return term == max(terms.values(), default=None) and (log.has_counter or names_newest_term(member, log))

    def is_timely(lower: int, upper: int) -> bool:
        begin = firsts[lower]
        behind = begin if upper == end_position else firsts[upper]
        if begin is None or behind is None:
            return True
        goes_on = upper != end_position and behind.leadership_term_id == begin.leadership_term_id
        if not goes_on and not ends_term(upper, behind.leadership_term_id):
            return True
        times = [begin.timestamp, behind.timestamp] if goes_on else [begin.timestamp]
        if last is not None and min(times) - clock_change(min(times)) >= last:
            return False
        return first is None or not goes_on or max(times) + clock_change(max(times)) >= first

    return is_timely


def _doubt_unit(name: str, bound: int | None, firsts: Sequence[FirstMessage | None]) -> None:
    """Say when a bound looks like a time of the log in another unit; a unit is a thousand of the next one."""
    time = next((first.timestamp for first in firsts if first is not None), 0)
    if bound is None or min(bound, time) < _LEAST_DATE:
        return
    for factor in (10**3, 10**6, 10**9):
        for meant in (bound * factor, bound // factor):
            if time // 2 < meant < time * 2:
                _log.warning(
                    "%s=%d looks like a time in another unit than the log's, which has timestamps such as %d: "
                    "did you mean %d?",
                    name,
                    bound,
                    time,
                    meant,
                )


def _terms_of(member: Member, log: Log) -> dict[int, int]:
    """Leadership terms by where they begin, as the recording log has them, where the log has a frame there.

    Where it has none, the term is known from the next Aeron term or file on that begins with one: what lies between
    cannot be read if that is damage, and the log is not divided where no frame begins.
    """
    begin, end = log.log_range.start_position, log.log_range.recorded_position
    term_length = log.descriptor.term_buffer_length
    bases: dict[int, int] = {}
    with closing(MessageReader(member.archive, **log.descriptor.layout())) as reader:
        for entry in sorted(log.terms, key=lambda entry: entry.leadership_term_id):
            base = max(entry.term_base_log_position, begin)
            files = (position for position in log.segment_positions if position > base)
            places = (base, (base // term_length + 1) * term_length, next(files, end))
            found = (place for place in places if place < end and (place == begin or reader.has_frame(place, end)))
            if (first := next(found, None)) is not None:
                bases = {place: term for place, term in bases.items() if place < first}
                bases[first] = entry.leadership_term_id
    return bases
