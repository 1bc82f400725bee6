"""The log of a cluster whichever member it is read from: who has it, who is read, and who takes over in its middle."""

from __future__ import annotations

import copy
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.recordings import LOG_VIEWS, Filters, Member, Partition, plan, read_partition
from container.recordings.commit import names_newest_term
from container.recordings.identity import LogIdentity, LogTerm, log_identity, term_from
from container.recordings.member import STRICT, Log
from container.recordings.partition_reader import check_partition
from container.spark.offsets import MemberOffset

_POSITION = "log_position"
_log = logging.getLogger(__name__)


class MemberLog:
    """A member's log as it is at one moment."""

    def __init__(self, member: Member, log: Log) -> None:
        """Take what :meth:`~container.recordings.Member.log` gave."""
        self.member = member
        self.log = log
        self.identity: LogIdentity = log_identity(member.archive, log.descriptor)
        self._bases = sorted(entry.term_base_log_position for entry in log.terms)
        self._terms: dict[int, LogTerm] = {}
        self._names_newest: bool | None = None

    @property
    def start_position(self) -> int:
        """Where it begins."""
        return self.log.log_range.start_position

    @property
    def recorded_position(self) -> int:
        """Up to where it is recorded."""
        return self.log.log_range.recorded_position

    @property
    def committed_position(self) -> int:
        """Up to where it is known to be committed."""
        return self.log.log_range.committed_position

    def known_to(self, position: int) -> MemberLog:
        """The same log, of which what is recorded up to a position is committed: another member shows it, or did."""
        found = self.log.log_range
        known = max(found.committed_position, min(position, found.recorded_position))
        one = copy.copy(self)
        one.log = replace(self.log, log_range=replace(found, committed_position=known))
        return one

    def term_before(self, position: int) -> LogTerm | None:
        """The leadership term of what ends at a position; None where the recording log has none, or lost its end."""
        before = bisect_left(self._bases, position)
        if before == 0 or (before == len(self._bases) and not self._is_named):
            return None
        base = self._bases[before - 1]
        if base not in self._terms:
            self._terms[base] = term_from(self.member.archive, self.log.descriptor, self.log.terms, base)
        return self._terms[base]

    @property
    def _is_named(self) -> bool:
        """Whether the recording log has the log's newest term; that of a running member or a shipped one does."""
        if self._names_newest is None:
            self._names_newest = self.log.has_counter or names_newest_term(self.member, self.log)
        return self._names_newest

    def has_to(self, position: int, term: LogTerm | None) -> bool:
        """Whether it is recorded to a position, and is up to there the log that has this term there."""
        own = self.term_before(position)
        return self.recorded_position >= position and own is not None and term is not None and own.is_that_of(term)

    def is_behind(self, offset: MemberOffset) -> bool:
        """Whether it continues a read that ended at an offset."""
        if offset.position <= 0 or self.has_to(offset.position, offset.term):
            return True
        if self.recorded_position < offset.position or (offset.term and self.term_before(offset.position)):
            return False
        # Without a recording log, here or where the offset was made.
        return self.identity.recording == offset.recording or self.committed_position >= offset.position


def refuse_two_logs(logs: Sequence[MemberLog]) -> None:
    """See that all members belong to one cluster.

    Raises:
        ConfigurationError: two of them begin with different leadership terms, or have different ones at a position up
            to which both are committed.
    """
    for first, one in combinations(logs, 2):
        names = first.identity.first_term, one.identity.first_term
        if None not in names and names[0] != names[1]:
            raise ConfigurationError(
                f"path names members of two clusters: the log in {first.member.archive_dir} is {first.identity}, and "
                f"the one in {one.member.archive_dir} is {one.identity}. Name those of one cluster, or set member=all"
            )
        both = min(first.committed_position, one.committed_position)
        terms = first.term_before(both), one.term_before(both)
        if terms[0] is not None and terms[1] is not None and not terms[0].is_that_of(terms[1]):
            raise ConfigurationError(
                f"the members that path names have different histories: at log position {both}, up to which both are "
                f"committed, the log in {first.member.archive_dir} has {terms[0]}, and the one in "
                f"{one.member.archive_dir} has {terms[1]}. Name members of one cluster; an audit shows where they part"
            )


class ClusterPartition(InputPartition):
    """The work of one task: a partition of the recordings, and its wanted rows."""

    def __init__(self, partition: Partition, filters: Filters, takeover: Takeover | None = None) -> None:
        super().__init__(partition)
        self.filters = filters
        self.takeover = takeover


@dataclass(frozen=True, slots=True)
class Takeover:
    """Other members with the rows of a partition: one of them can finish it when the first member fails."""

    members: tuple[Member, ...]
    end_position: int
    """Up to where they had it when the query was planned."""
    term: LogTerm | None
    """The term that it has there, by which a task knows that it is still the same log."""
    absent: tuple[str, ...]
    """Paths of members that could not be read then: one of them may have what is damaged elsewhere."""


def plan_partitions(
    member: Member,
    view: str,
    filters: Filters,
    mode: str,
    logs: Sequence[MemberLog] = (),
    absent: Sequence[str] = (),
    say: Callable[[str], None] = _log.warning,
) -> list[ClusterPartition]:
    """The partitions of a member.

    With the ``logs`` of several they are those of the first one of which they can be made, and each has the others
    that have the same rows; ``absent`` are the paths of those whose logs cannot be read now. They are planned as the
    logs were: one that has purged more than the first of them gives no partitions in its place.

    Raises:
        as :func:`container.recordings.plan` does, of the member, when they can be made of none.
    """
    begin = max(filters.begin_position or 0, logs[0].start_position if logs else 0)
    for one in logs if len(logs) + len(absent) > 1 else ():
        if view != "snapshots" and one.start_position > begin:
            continue  # Snapshots stay where the log was purged.
        try:
            found = plan([one.member], view, filters=filters, mode=STRICT, log=one.log)
        except RecordingError as error:
            say(f"{one.member.path} cannot be read, and another member is: {error}")
            continue
        others = [other for other in logs if other is not one]
        return [_with_others(replace(part, mode=mode), filters, one, others, tuple(absent)) for part in found]
    log = next((one.log for one in logs if one.member is member), None)
    found = plan([member], view, filters=filters, mode=mode, log=log)
    return [ClusterPartition(partition, filters) for partition in found]


def divided(logs: Sequence[MemberLog], every: Sequence[MemberLog]) -> list[tuple[int | None, Sequence[MemberLog]]]:
    """The logs to read and the position up to which, in the order of the log; ``None`` is its end.

    Positions that the first log has purged are read from any log that has them and agrees with the first one.
    """
    parts: list[tuple[int | None, Sequence[MemberLog]]] = [(None, logs)]
    while True:
        first = parts[0][1][0]
        start = first.start_position
        term = first.term_before(start)
        earlier = [one.known_to(start) for one in every if one.start_position < start and one.has_to(start, term)]
        if not earlier:
            return parts
        parts.insert(0, (start, sorted(earlier, key=lambda one: one.start_position)))


def _with_others(
    partition: Partition, filters: Filters, log: MemberLog, others: Sequence[MemberLog], absent: tuple[str, ...]
) -> ClusterPartition:
    takeover = None
    if partition.source == "log" and partition.view in LOG_VIEWS:
        end = partition.end_position
        if filters.end_position is not None:
            end = max(partition.begin_position, min(end, filters.end_position))
        term = log.term_before(end)
        members = tuple(other.member for other in others if other.has_to(end, term))
        if members or absent:
            takeover = Takeover(members, end, term, absent)
    return ClusterPartition(partition, filters, takeover)


def read_rows(task: ClusterPartition, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, with the columns and perhaps one more.

    If its member fails, even by damage, the next one that has the rows continues. Rows once handed out stay, so the
    objects of a shipped place are verified before they are read.

    Raises:
        RecordingUnavailableError: no member has all rows, and one that may have them cannot be read now.
        RecordingError: in mode strict, when no member has all rows: the error of the first.
    """
    partition, filters, takeover = task.value, task.filters, task.takeover
    options: dict[str, Any] = {"batch_rows": batch_rows}
    if takeover is None:
        yield from read_partition(partition, filters=filters, columns=columns, **options)
        return
    options["columns"] = [*columns, *({_POSITION} - {*columns})]
    done, absent = partition.begin_position, [*takeover.absent]
    for member in (None, *takeover.members):
        wanted = _from(filters, done, partition.begin_position, partition.end_position)
        try:
            for one in [replace(partition, mode=STRICT)] if member is None else _again(member, task, wanted, done):
                check_partition(one, wanted)
                for batch in read_partition(one, filters=wanted, **options):
                    yield batch
                    if batch.num_rows:
                        done = max(done, batch.column(_POSITION)[-1].as_py())
        except RecordingError as error:
            path = partition.member.path if member is None else member.path
            _log.warning("%s cannot be read from log position %d on, and another member is: %s", path, done, error)
            if member is not None and isinstance(error, RecordingUnavailableError):
                absent.append(path)
            continue
        return
    if absent and partition.mode != STRICT:
        raise RecordingUnavailableError(
            f"{partition.member.path} is damaged behind log position {done}, and another member may be whole there, "
            f"which cannot be read now: {', '.join(absent)}. Bring it back, or leave it out of path",
            file=partition.member.archive_dir,
            log_position=done,
        )
    wanted = _from(filters, done, partition.begin_position, partition.end_position)
    yield from read_partition(partition, filters=wanted, columns=columns, batch_rows=batch_rows)


def _from(filters: Filters, done: int, begin: int, end: int) -> Filters:
    """The rows of a partition behind those that were given."""
    if done == begin and filters.begin_position is not None and filters.begin_position >= begin:
        begun, is_border = filters.begin_position, filters.is_border
    else:
        begun, is_border = done, True
    ends = [end] if filters.end_position is None else [end, filters.end_position]
    return replace(filters, begin_position=begun, end_position=min(ends), is_border=is_border)


def _again(member: Member, task: ClusterPartition, wanted: Filters, done: int) -> list[Partition]:
    """The partitions of another member, if it still has the rows that are missing."""
    assert task.takeover is not None
    found = MemberLog(member, member.log())
    if not found.has_to(task.takeover.end_position, task.takeover.term) or found.start_position > done:
        raise RecordingUnavailableError(
            f"the log is not the one that the query was planned for, up to log position {task.takeover.end_position}",
            file=member.archive_dir,
        )
    log = found.known_to(task.value.committed_position).log
    return plan([member], task.value.view, filters=wanted, mode=STRICT, log=log)


def read_logs(members: Sequence[Member], say: Callable[[str], None]) -> list[MemberLog]:
    """The logs of the members that have one that can be read, the one that is committed furthest first, of such the
    one that begins first."""
    found = []
    for member in members:
        try:
            found.append(MemberLog(member, member.log()))
        except RecordingError as error:
            say(f"{member.path} cannot be read, and another member is: {error}")
    return sorted(found, key=lambda one: (-one.committed_position, one.start_position))
