"""The unit of a cluster's timestamps, from its log or its snapshots."""

from __future__ import annotations

import hashlib
from pathlib import Path

from container.errors import RecordingError
from container.files.names import CATALOG_NAME, RECORDING_LOG_NAME
from container.recordings.member import PERMISSIVE, Member
from container.recordings.partition_plan import ALL_ROWS, Filters, plan
from container.recordings.partition_reader import read_batches
from container.recordings.remote import StoredDirectory
from container.recordings.views import wanted_columns

_NEW_TERM = frozenset([24])
_TERM_SEARCH_LENGTH = 65_536
_known: dict[tuple[object, ...], str] = {}
_KNOWN_MAX = 256


DEFAULT_TIME_UNIT = "MILLIS"
"""Aeron's."""


def time_unit(member: Member) -> str:
    """Return the unit of a cluster's time: ``MILLIS``, ``MICROS`` or ``NANOS``; the default when nothing says it."""
    return known_time_unit(member) or DEFAULT_TIME_UNIT


def known_time_unit(member: Member) -> str | None:
    """Return the unit of a cluster's time as a member's files have it; None when nothing that can be read says it.

    The message that opens a leadership term says it (NewLeadershipTermEvent), and so does each snapshot.
    """
    shipped = member.seen_manifest()
    if shipped is not None and shipped.time_unit is None:
        shipped = member.shipped()
    if shipped is not None and shipped.time_unit is not None:
        return shipped.time_unit
    key = _identity(member)
    if key not in _known:
        found = _found(member)
        if found is None:
            return None
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[key] = found
    return _known[key]


def _identity(member: Member) -> tuple[object, ...]:
    """A cluster keeps its unit; under the same paths there may be another one tomorrow, perhaps in the same inodes."""
    found: list[object] = [member.recording_id]
    for directory, name in ((member.archive, CATALOG_NAME), (member.cluster, RECORDING_LOG_NAME)):
        if isinstance(directory, StoredDirectory):
            state = directory.state(name)
            found += [str(directory), name, _digest(directory) if state is None and name == CATALOG_NAME else state]
        if not isinstance(directory, Path):
            continue
        file = Path(directory, name)
        try:
            status = file.stat()
        except OSError:
            found.append(str(file))
        else:
            found += [str(file), status.st_dev, status.st_ino, status.st_ctime_ns]
    return tuple(found)


def _digest(archive: StoredDirectory) -> bytes | None:
    """A hash of a catalog, used where no time shows yet whether it is the same."""
    try:
        return hashlib.sha256(archive.content(CATALOG_NAME)).digest()
    except (OSError, RecordingError):
        return None


def _found(member: Member) -> str | None:
    try:
        log = member.own_log(PERMISSIVE)
    except RecordingError:
        return _first(member, "snapshots", ALL_ROWS)
    start, end = log.log_range.start_position, log.log_range.recorded_position
    bases = [entry.term_base_log_position for entry in log.terms if start <= entry.term_base_log_position < end]
    for base in [*bases[-1:], *bases[:1], start]:
        near = Filters(
            begin_position=base,
            end_position=min(base + _TERM_SEARCH_LENGTH, end),
            is_border=True,
            template_ids=_NEW_TERM,
        )
        if found := _first(member, "messages", near):
            return found
    every = Filters(end_position=end, template_ids=_NEW_TERM)
    return _first(member, "snapshots", ALL_ROWS) or _first(member, "messages", every)


def _first(member: Member, view: str, filters: Filters) -> str | None:
    column = wanted_columns(view, ["time_unit"], member_column=False)
    try:
        for partition in plan([member], view, filters=filters, mode=PERMISSIVE):
            for batch in read_batches(partition, filters, batch_rows=1, columns=column):
                for value in batch.column(0).to_pylist():
                    if value is not None:
                        return str(value)
    except RecordingError:
        pass  # what cannot be read may still be said elsewhere
    return None
