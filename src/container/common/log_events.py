"""The events of a member's life that are logged: their names, levels and texts, and a limit for each.

An event is a record of Python's `logging` with two more attributes: ``event`` (str, its name) and ``fields`` (dict of
str to int, float, str or bool). The text for people has the same fields, in the spelling of Aeron's texts. Names and
fields are listed in docs/logs.md and stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from container.common import interruptions
from container.common.loggers import prints_json, report

LIMIT_COUNT = 20
"""Records of one event of one source that are logged within :data:`LIMIT_S`; the next one says how many were left
out."""
LIMIT_S = 10.0
_WAIT_FIRST_S = 5
_WAIT_INTERVAL_S = 30

_NS_PER_S = 1_000_000_000


class LogEvent(NamedTuple):
    """An event: the level it is logged at, and its sentence."""

    level: str
    sentence: str


EVENTS: dict[str, LogEvent] = {
    "recovered": LogEvent("info", "recovered"),
    "log_joined": LogEvent("info", "joined the log"),
    "role_changed": LogEvent("info", "the role changed"),
    "term_began": LogEvent("info", "a leadership term began"),
    "state_changed": LogEvent("info", "the state changed"),
    "election_state": LogEvent("debug", "the election's state changed"),
    "snapshot_begun": LogEvent("info", "a snapshot begins"),
    "snapshot_taken": LogEvent("info", "a snapshot was taken"),
    "snapshot_failed": LogEvent("warning", "no snapshot was taken"),
    "standby_snapshot_copied": LogEvent("info", "a snapshot of a standby was copied"),
    "retention_applied": LogEvent("info", "what is no longer needed was deleted"),
    "retention_held": LogEvent("info", "not all that this member no longer needs can be deleted"),
    "backup_state": LogEvent("debug", "the state of the backup changed"),
    "backup_updated": LogEvent("info", "the copy has snapshots and terms up to a member's"),
    "backup_failed": LogEvent("warning", "a round of the backup failed"),
    "sessions": LogEvent("info", "sessions came or went"),
    "slow_callback": LogEvent("warning", "a callback was slow"),
}
"""Events that are logged through :func:`log_event`."""

# By source and event: begin of the time that the limit is for, logged in it, left out.
_counts: dict[tuple[str, str], tuple[float, int, int]] = {}


def log_event(
    source: str, event: str, *, monotonic: Callable[[], float] = time.monotonic, **fields: int | float | str
) -> None:
    """Log an event of :data:`EVENTS`. Never raise.

    Args:
        source: of whom it is reported: the name of a service, or what else runs.
        event: its name.
        monotonic: a clock for the limit, in seconds.
        fields: what is reported of it, in the order of the text.
    """
    try:
        key = source, event
        begin, count, left_out = _counts.get(key, (-LIMIT_S, 0, 0))
        now = monotonic()
        if now - begin >= LIMIT_S:
            begin, count = now, 0
        if count >= LIMIT_COUNT:
            _counts[key] = begin, count, left_out + 1
            return
        _counts[key] = begin, count + 1, 0
        if left_out > 0:
            fields["left_out"] = left_out
        known = EVENTS[event]
        report(
            known.level,
            "%s: %s: %s",
            source,
            known.sentence,
            fields_text(fields),
            event=event,
            fields={"source": source, **fields},
        )
    except BaseException as error:  # no memory: nothing that is logged may end a member
        interruptions.keep(error)


class WaitLog:
    """Logs the event ``waiting`` while a wait lasts: first after 5 seconds, then every 30 seconds.

    Args:
        source: who waits.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._begin_ns: int | None = None
        self._next_ns = 0

    def tick(self, what: str | None, now_ns: int) -> int:
        """Say what is waited for now, None for nothing, on a monotonic clock in nanoseconds. Never raise.

        Returns:
            When the wait is logged next if it lasts, on the same clock (ns): no call before that logs anything.
        """
        if what is None:
            self._begin_ns = None
        elif self._begin_ns is None:
            self._begin_ns, self._next_ns = now_ns, now_ns + _WAIT_FIRST_S * _NS_PER_S
        elif now_ns >= self._next_ns:
            self._next_ns = now_ns + _WAIT_INTERVAL_S * _NS_PER_S
            waited_s = (now_ns - self._begin_ns) // _NS_PER_S
            report(
                "warning",
                "%s: still waiting for %s after %d s",
                self._source,
                what,
                waited_s,
                event="waiting",
                fields={"source": self._source, "what": what, "waited_s": waited_s},
            )
        return self._next_ns


def log_started(source: str, text: str, **fields: str) -> None:
    """Log the event ``started``: a program is ready; ``fields`` are how it is reached. Never raise."""
    report("info", "%s", text, event="started", fields={"source": source, **fields})


def log_closing(source: str, signal: str) -> None:
    """Log the event ``closing``: a signal (its name) ends a program. Never raise."""
    report("info", "%s: closing %s", signal, source, event="closing", fields={"source": source, "signal": signal})


def log_ended(source: str, *, was_asked_for: bool, failure: tuple[str, str] | None = None) -> None:
    """Log the event ``ended``: why a program ended, and its exit code. Never raise.

    Args:
        source: what ended.
        was_asked_for: by a signal.
        failure: type and message of the exception that ended it; None where that was in order.
    """
    _log_left_out()
    if failure is not None:
        kind, message = failure
        fields = {"source": source, "reason": message, "error": kind, "exit_code": 1}
        report("error", "%s: ended by %s: %s: exitCode=1", source, kind, message, event="ended", fields=fields)
        return
    reason = "a signal" if was_asked_for else "the cluster"
    fields = {"source": source, "reason": reason, "exit_code": 0}
    report("info", "%s: ended: reason=%s exitCode=0", source, reason, event="ended", fields=fields)


def log_failed_start(program: str, error: str, message: str, exit_code: int) -> bool:
    """Log the event ``ended`` of a program that could not start, where standard error has lines of JSON. Never raise.

    Args:
        program: its name.
        error: the type of the exception.
        message: what to do about it.
        exit_code: what it is going to end with.

    Returns:
        False where standard error has text: then nothing is logged.
    """
    if not prints_json():
        return False
    fields = {"source": program, "reason": message, "error": error, "exit_code": exit_code}
    report("error", "%s: error: %s", program, message, event="ended", fields=fields)
    return True


def _log_left_out() -> None:
    for (source, event), (begin, count, left_out) in list(_counts.items()):
        if left_out > 0:
            _counts[source, event] = begin, count, 0
            fields = {"source": source, "left_out": left_out}
            report(EVENTS[event].level, "%s: %s: %d more left out", source, event, left_out, event=event, fields=fields)


def fields_text(fields: dict[str, int | float | str]) -> str:
    """``name=value`` for each field, with names as Aeron's texts have them: ``log_position`` is ``logPosition``."""
    return " ".join([f"{_camel(name)}={value}" for name, value in fields.items()])


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join([each.capitalize() for each in others])
