"""The options of the data source ``aeron.cluster``: their names, their values, and the errors for wrong ones."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from container.common.quantities import SIZE_FACTORS
from container.common.values import is_path, shown, whole_number
from container.errors import ConfigurationError
from container.recordings import LOG_VIEWS, VIEWS
from container.recordings.commit import parse_committed
from container.recordings.member import MODES
from container.recordings.remote import StorageOptions, is_pattern, parse_storage_options

DEFAULT_BATCH_ROWS = 65_536
MAX_BATCH_ROWS = 1_048_576

_SIZE = re.compile(r"([0-9]+)\s*([kmg]?)", re.IGNORECASE | re.ASCII)
_MAX_SIZE = 2**63 - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NS_PER_MS = 1_000_000
_MAX_MS = _MAX_SIZE // _NS_PER_MS
# A smaller number would be one of seconds, or a date without hyphens: give a time in 1970 as a date.
_LEAST_MS = 365 * 24 * 3_600_000
_BELOW_MICROS = re.compile(r"(?<=[.,][0-9]{6})[0-9]+", re.ASCII)

EARLIEST, LATEST = "earliest", "latest"
ANY, ALL = "any", "all"


class Bound(msgspec.Struct, frozen=True):
    """A place in the logs of all members that a query names: one of the fields is not None."""

    name: str
    """The name of the option."""
    word: str | None = None
    """``earliest`` or ``latest``."""
    position: int | None = None
    """A log position of all members: messages that end at or before it lie before the place."""
    positions: dict[str, int] | None = None
    """The same by member: -2 for its beginning, -1 for its end."""
    timestamp_ns: int | None = None
    """Nanoseconds since 1970: messages with an earlier timestamp lie before it, wherever they are in the log."""

    @property
    def text(self) -> str:
        """The option's value."""
        if self.positions is not None:
            return msgspec.json.encode(self.positions).decode()
        if self.timestamp_ns is not None:
            return _time_text(self.timestamp_ns)
        return str(self.position if self.word is None else self.word)


class SourceOptions(msgspec.Struct, frozen=True):
    """The options of a query to the source. Made by :func:`parse_options`; the documented options are its fields."""

    paths: tuple[str, ...]
    """Directories of members: base, cluster or archive directories, or places to which they were shipped; paths, URLs
    and patterns of these."""
    archive_dirs: tuple[str, ...] = ()
    """Archive directories of the members, in the order of ``paths``; found beside them when empty."""
    member: str | int = ANY
    """The member to read, by its id; ``any`` for one log from any member; ``all`` for each."""
    storage: StorageOptions | None = None
    """Options that fsspec passes to the file systems of URLs."""
    view: str = "messages"
    """The view to read, one of :data:`container.recordings.VIEWS`."""
    mode: str = "strict"
    """The reaction to damage: ``strict`` fails the query, ``permissive`` returns a row for it."""
    decoder: str | None = None
    """``package.module:name`` of a function or type that decodes payloads."""
    committed_only: bool = False
    """Whether a batch leaves out messages that are recorded but not known to be committed; a stream always does."""
    committed: str | int | None = None
    """The rule for the committed part while no running member gives it; see
    :func:`container.recordings.open_member`."""
    columns: tuple[str, ...] = ()
    """The columns to read; all when empty."""
    batch_rows: int = DEFAULT_BATCH_ROWS
    """Maximum number of rows of an Arrow batch."""
    max_bytes_per_batch: int | None = None
    """Maximum bytes of log in one micro-batch of a stream, over all members."""
    max_rows_per_batch: int | None = None
    """Maximum rows in one micro-batch of a stream, over all members."""
    starting: Bound | None = None
    """Where reading begins; at the beginning of the log when it is None. A stream uses it only without a checkpoint."""
    ending: Bound | None = None
    """Where a batch ends; at the end of the log when it is None."""

    @property
    def is_one_log(self) -> bool:
        """Whether several members are named for one log, which any of them may supply. A pattern may match more of them
        at any time."""
        return self.member == ANY and (len(self.paths) > 1 or any(map(is_pattern, self.paths)))


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a query, checked; names are not sensitive to case, values are as Spark gives them.

    Raises:
        ConfigurationError: an option is missing, unknown or has a value that is not allowed.
    """
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigurationError(f"option {shown(name)}={shown(value)}: names and values must be strings")
    given = {name.lower(): value for name, value in options.items()}
    paths = _paths(given.pop("path", None), given.pop("paths", None))
    values: dict[str, Any] = {"paths": paths}
    for name, text in given.items():
        if name not in _NAMES:
            near = difflib.get_close_matches(name[:100], [*_NAMES, "path"], n=1)
            known = ", ".join(sorted(_PARSERS, key=str.lower))
            hint = f"did you mean {_NAMES.get(near[0], near[0])!r}?" if near else f"known options: path, {known}"
            raise ConfigurationError(f"option {shown(name)} is unknown; {hint}")
        field, parse = _PARSERS[_NAMES[name]]
        if field in values:
            raise ConfigurationError(f"{values[field].name} and {_NAMES[name]} contradict each other: give one of them")
        values[field] = parse(_NAMES[name], text)
    parsed = SourceOptions(**values)
    if parsed.archive_dirs and len(parsed.archive_dirs) != len(parsed.paths):
        raise ConfigurationError(
            f"archive_dir names {len(parsed.archive_dirs)} directories and path {len(parsed.paths)}; "
            "give one archive directory for each path, in the same order"
        )
    if parsed.max_rows_per_batch is not None and parsed.max_bytes_per_batch is not None:
        raise ConfigurationError("max_rows_per_batch and max_bytes_per_batch are two limits: give one of them")
    for bound in (parsed.starting, parsed.ending):
        if bound is not None and parsed.view not in LOG_VIEWS:
            raise ConfigurationError(
                f"{bound.name}: the view {parsed.view!r} is not of the log; it can be used with {', '.join(LOG_VIEWS)}"
            )
        if bound is not None and bound.timestamp_ns is not None and parsed.view == "frames":
            raise ConfigurationError(f"{bound.name}: frames are chosen by positions; messages have times")
    if parsed.starting is not None and parsed.ending is not None:
        _refuse_reversed(parsed.starting, parsed.ending)
    if parsed.committed_only and parsed.view not in LOG_VIEWS:
        raise ConfigurationError(
            f"committed_only: the view {parsed.view!r} is not of the log; it can be used with {', '.join(LOG_VIEWS)}"
        )
    return parsed


def _refuse_reversed(starting: Bound, ending: Bound) -> None:
    for field in ("position", "timestamp_ns"):
        first, last = getattr(starting, field), getattr(ending, field)
        if first is not None and last is not None and first > last:
            raise ConfigurationError(
                f"{starting.name}={starting.text} is behind {ending.name}={ending.text}: a batch would have no rows"
            )


def field_of(name: str) -> str:
    """The field of :class:`SourceOptions` that an option in lower case sets; the name itself if it sets none."""
    known = _NAMES.get(name)
    return name if known is None else _PARSERS[known][0]


def parse_size(name: str, text: str) -> int:
    """A number of bytes, with an optional suffix k, m or g.

    Raises:
        ConfigurationError: it is not a number, is not positive, or does not fit 64 bits.
    """
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    size = (whole_number(match[1]) or 0) * SIZE_FACTORS[match[2].lower()] if match else 0
    if not 0 < size <= _MAX_SIZE:
        raise ConfigurationError(
            f"{name}={shown(text)}: must be a positive number of bytes that fits 64 bits, such as 1048576, 1024k or 1m"
        )
    return size


def _paths(path: str | None, paths: str | None) -> tuple[str, ...]:
    """From ``path``, or from ``paths``, in which Spark passes the list of ``load([…])`` as JSON."""
    found = _json_list("paths", paths) if paths else ()
    if path is not None:
        found += _directories("path", path)
    if not found:
        raise ConfigurationError(
            "path is missing: give the base directory of a member, its cluster directory or its archive directory"
        )
    return found


def _directories(name: str, text: str) -> tuple[str, ...]:
    """Directories from a text: one, several with commas between them, or a list as JSON."""
    if text.lstrip().startswith("["):
        return _json_list(name, text)
    directories = tuple(part.strip() for part in text.split(","))
    if not all(directories):
        raise ConfigurationError(f"{name}={shown(text)}: an entry is empty")
    return _checked_directories(name, directories)


def _json_list(name: str, text: str) -> tuple[str, ...]:
    try:
        return _checked_directories(name, msgspec.json.decode(text, type=tuple[str, ...]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigurationError(f"{name}={shown(text)}: is not a JSON list of directories: {error}") from None


def _checked_directories(name: str, directories: tuple[str, ...]) -> tuple[str, ...]:
    for directory in directories:
        if not is_path(directory):
            raise ConfigurationError(f"{name}={shown(directory)}: must be a path in UTF-8, without NUL")
    return directories


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text not in allowed:
            raise ConfigurationError(f"{name}={shown(text)}: must be one of {', '.join(allowed)}")
        return text

    return parse


def _member(name: str, text: str) -> str | int:
    if text in (ANY, ALL):
        return text
    member_id = whole_number(text.strip())
    if member_id is None or not 0 <= member_id < 2**31:
        raise ConfigurationError(
            f"{name}={shown(text)}: must be any (one log, from whichever member has it), all (a log for each member), "
            "or the id of a member"
        )
    return member_id


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name}={shown(text)}: must be true or false")
    return text.lower() == "true"


def _rows_of_batch(name: str, text: str) -> int:
    count = whole_number(text.strip()) or 0
    if not 0 < count <= _MAX_SIZE:
        raise ConfigurationError(f"{name}={shown(text)}: must be a positive number of rows")
    return count


def _offsets(name: str, text: str) -> Bound:
    """``earliest``, ``latest``, or JSON such as ``{"0": 96, "1": -2}``, as Spark's source for Kafka has it."""
    if text in (EARLIEST, LATEST):
        return Bound(name, word=text)
    try:
        positions = msgspec.json.decode(text, type=dict[str, int])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigurationError(
            f"{name}={shown(text)}: must be earliest, latest, or log positions by member as JSON, such as "
            f'{{"0": 96}}: {error}'
        ) from None
    for member, position in positions.items():
        if not -2 <= position <= _MAX_SIZE:
            raise ConfigurationError(
                f"{name}: position {position} of member {shown(member)} must be -2 (earliest), -1 (latest) or more"
            )
    return Bound(name, positions=positions)


def _position(name: str, text: str) -> Bound:
    position = whole_number(text.strip())
    if position is None or not 0 <= position <= _MAX_SIZE:
        raise ConfigurationError(f"{name}={shown(text)}: must be a log position, which is 0 or more")
    return Bound(name, position=position)


def _timestamp(name: str, text: str) -> Bound:
    """Milliseconds since 1970, or a date or time in ISO 8601 to the nanosecond, in UTC unless it says otherwise."""
    number = whole_number(text.strip())
    if number is not None:
        return Bound(name, timestamp_ns=_milliseconds(name, text, number) * _NS_PER_MS)
    finer = _BELOW_MICROS.search(text)
    try:
        time = datetime.datetime.fromisoformat(text.strip())
        if finer is not None and len(finer[0]) > len("789"):
            raise ValueError("it is finer than nanoseconds")
    except ValueError as error:
        raise ConfigurationError(
            f"{name}={shown(text)}: must be milliseconds since 1970, or a time such as 2026-11-28T10:00:00Z, with up "
            f"to nine digits behind the second: {error}"
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    micros = (time - _EPOCH) // datetime.timedelta(microseconds=1)
    if not 0 <= micros < _MAX_MS * 1_000:
        raise ConfigurationError(f"{name}={shown(text)}: must lie between 1970 and 2262")
    # Python's times have microseconds, and drop anything finer.
    return Bound(name, timestamp_ns=micros * 1_000 + int(finer[0].ljust(3, "0") if finer is not None else 0))


def _milliseconds(name: str, text: str, number: int) -> int:
    """A number that is a time in milliseconds, and not one in another unit, or a date without its hyphens."""
    if number == 0 or _LEAST_MS <= number <= _MAX_MS:
        return number
    units = {"seconds": number * 1_000, "microseconds": number // 1_000, "nanoseconds": number // 1_000_000}
    meant = next((item for item in units.items() if _LEAST_MS <= item[1] <= _MAX_MS), None)
    hint = "write a time such as 2026-11-28T10:00:00Z"
    if meant is not None:
        unit, value = meant
        hint = f"in {unit} it would be {_time_text(value * _NS_PER_MS)}: write that, or {value}"
    raise ConfigurationError(
        f"{name}={shown(text)}: a number is milliseconds since 1970, and must lie between 1971 and 2262; {hint}"
    )


def _time_text(timestamp_ns: int) -> str:
    """Format a time as the options take it."""
    seconds, rest = divmod(timestamp_ns, 1_000_000_000)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{_EPOCH + datetime.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _row_count(name: str, text: str) -> int:
    count = whole_number(text.strip()) or 0
    if not 1 <= count <= MAX_BATCH_ROWS:
        raise ConfigurationError(f"{name}={shown(text)}: must be a number of rows from 1 to {MAX_BATCH_ROWS}")
    return count


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ConfigurationError(f"{name}={shown(text)}: a column's name is empty")
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"{name}={shown(text)}: {shown(twice)} is there twice; name each column once")
    return names


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise ConfigurationError(f"{name} is empty")
    return text.strip()


# By the option's name: the field, and the function that parses its text.
_PARSERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "archive_dir": ("archive_dirs", _directories),
    "member": ("member", _member),
    "storage_options": ("storage", parse_storage_options),
    "view": ("view", _one_of(VIEWS)),
    "mode": ("mode", _one_of(MODES)),
    "decoder": ("decoder", _text),
    "committed_only": ("committed_only", _flag),
    "committed": ("committed", parse_committed),
    "columns": ("columns", _names),
    "batch_rows": ("batch_rows", _row_count),
    "max_bytes_per_batch": ("max_bytes_per_batch", parse_size),
    "max_rows_per_batch": ("max_rows_per_batch", _rows_of_batch),
    "startingOffsets": ("starting", _offsets),
    "startingPosition": ("starting", _position),
    "startingTimestamp": ("starting", _timestamp),
    "endingOffsets": ("ending", _offsets),
    "endingPosition": ("ending", _position),
    "endingTimestamp": ("ending", _timestamp),
}

_NAMES = {name.lower(): name for name in _PARSERS}
"""The options' names by their lower-case form, in which Spark passes them."""
