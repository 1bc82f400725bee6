"""Prints facts: as JSON, or as text for people. Each struct is shown by its fields, a few in a way of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

import msgspec

from container.operate.answers import plain
from container.operate.facts import Facts, Frame, Health, LogMessage, Process, StreamPosition, Version

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_OF_A_FILE = 10_000
"""The width of an output that is not a terminal: no line is ever broken there."""
_NONE = "-"
_MS_OF_2001 = 10**12
"""Milliseconds from 1970 to September 2001."""


def write_json(facts: Facts, *, is_one_line: bool) -> None:
    """Print facts as JSON on standard output: on one line, or indented."""
    encoded = msgspec.json.encode(facts)
    _write((encoded if is_one_line else msgspec.json.format(encoded, indent=2)).decode() + "\n")


def write_text(facts: Facts) -> None:
    """Print facts for people on standard output."""
    line = _LINES.get(type(facts))
    if line is not None:
        _write(line(facts) + "\n")
        return
    from rich.console import Console

    if sys.stdout.isatty():
        if isinstance(sys.stdout, TextIOWrapper):  # a terminal may know fewer characters than the name of a directory
            sys.stdout.reconfigure(errors="backslashreplace")
        _print(Console(highlight=False, markup=False, emoji=False), facts)
        return
    page = StringIO()
    _print(Console(file=page, width=_WIDTH_OF_A_FILE, highlight=False, markup=False, emoji=False), facts)
    _write("".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()))


def clear_screen() -> None:
    """Clear the terminal; nothing where there is none."""
    if sys.stdout.isatty():
        _write("\x1b[2J\x1b[H")


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()


# Facts on one line.


def _log_line(facts: LogMessage) -> str:
    parts: dict[str, object] = {
        "term": facts.leadership_term_id,
        "time": facts.timestamp,
        "session": facts.cluster_session_id,
        "correlation": facts.correlation_id,
        **facts.fields,
        "length": facts.length,
        "payload": facts.payload,
    }
    texts = [f"{name}={plain(str(value))}" for name, value in parts.items() if value is not None]
    mark = "" if facts.is_committed else " (not committed)"
    return f"{facts.log_position:>12} {facts.message:<24} {' '.join(texts)}{mark}"


def _frame_line(facts: Frame) -> str:
    payload = "" if facts.payload is None else f" {facts.payload}"
    return (
        f"recording={facts.recording_id} position={facts.position} {facts.type} length={facts.frame_length} "
        f"flags={facts.flags:#04x} term_id={facts.term_id} term_offset={facts.term_offset} "
        f"session={facts.session_id} stream={facts.stream_id} reserved={facts.reserved_value}{payload}"
    )


def _health_line(facts: Health) -> str:
    waited = f" after {facts.waited_ms} ms" if facts.waited_ms >= 1000 else ""
    answer = f"{facts.check}: {'yes' if facts.is_healthy else 'no'}{waited}"
    return answer + "".join(f"\n  {plain(reason)}" for reason in facts.reasons)


_LINES: dict[type[Facts], Callable[[Any], str]] = {
    Frame: _frame_line,
    Health: _health_line,
    LogMessage: _log_line,
    Process: lambda facts: str(facts.pid),
    Version: lambda facts: f"aeron-cluster {facts.version} (Aeron {facts.aeron}, Python {facts.python})",
}


# Facts as fields and tables.


def _print(console: Console, facts: Facts) -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    rest: list[tuple[str, Any]] = []
    for name, value in _fields(facts):
        if isinstance(value, Facts) or _is_list_of_facts(value):
            rest.append((name, value))
        else:
            grid.add_row(name, plain(_text(name, value)))
    if grid.row_count:
        console.print(grid)
    for name, value in rest:
        _print_part(console, name, value)


def _print_part(console: Console, name: str, value: Any) -> None:
    if isinstance(value, Facts):
        console.print(f"\n{name}", style="bold underline")
        _print(console, value)
        return
    console.print(f"\n{name} ({len(value)})", style="bold underline")
    if all(_is_flat(each) for each in value):
        console.print(_table(value))
        return
    for each in value:
        _print(console, each)
        console.print()


def _table(rows: list[Facts]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), pad_edge=False)
    names = [name for name, _ in _fields(rows[0])] if rows else []
    # A column without any value only takes room.
    names = [name for name in names if any(getattr(row, name) not in (None, "") for row in rows)]
    for name in names:
        is_number = all(isinstance(getattr(row, name), int) for row in rows)
        table.add_column(name, overflow="fold", justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(plain(_text(name, getattr(row, name))) for name in names))
    return table


def _fields(facts: Facts) -> Iterator[tuple[str, Any]]:
    for name in facts.__struct_fields__:
        yield name, getattr(facts, name)


def _is_list_of_facts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Facts)


def _is_flat(facts: Facts) -> bool:
    """Whether it fits a row of a table: no part has parts, except those that are one word."""
    return not any(
        isinstance(value, Facts) or (_is_list_of_facts(value) and not isinstance(value[0], StreamPosition))
        for _, value in _fields(facts)
    )


def _text(name: str, value: Any) -> str:
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _number_text(name, value)
    if isinstance(value, list):
        parts = (f"{each.name}={each.value}" if isinstance(each, StreamPosition) else str(each) for each in value)
        return ", ".join(parts) or _NONE
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items()) or _NONE
    return str(value)


def _number_text(name: str, value: int) -> str:
    """A number; a time as a date, and what a number alone does not say."""
    if name.endswith(("timestamp_ms", "first_ms", "last_ms", "query_ms")):
        return _moment(value)
    if name in ("current_time_ns", "time_of_last_append_ns"):
        return _moment(value // 1_000_000)
    if name == "timestamp":
        return _cluster_moment(value)
    return "0 (all)" if name == "snapshots_retained" and value == 0 else str(value)


def _cluster_moment(timestamp: int) -> str:
    """Cluster time as a date, from 2001 to 2286; files do not say its unit, but the number of digits does."""
    for divisor in (1, 1_000, 1_000_000):
        if _MS_OF_2001 <= timestamp // divisor < 10 * _MS_OF_2001:
            return _moment(timestamp // divisor)
    return str(timestamp)


def _moment(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)
