"""The command ``aeron-cluster replay``: runs a service over a member's log, and stops in a debugger where asked."""

from __future__ import annotations

import argparse
import pdb
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from container.api import Cluster, ClusteredService
from container.common.differences import NOTHING, shown_apart
from container.common.object_path import search_current_directory
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError
from container.recordings import open_member
from container.replay.diff import SHOWN, UNKNOWN, diff_segment
from container.replay.execution import (
    ERROR_KIND,
    STATE_HASH_KIND,
    ReplaySegment,
    TakenSnapshot,
    find_service,
    load_state,
    plan_replay,
    replay_segment,
)
from container.service.state_difference import state_difference

if TYPE_CHECKING:
    import pyarrow as pa

_PROGRESS_S = 1.0
_SHOWN_ERRORS = 20
# Callbacks that the log leads to; a stop is in the first one at or behind its position.
_OF_THE_LOG = (
    "on_new_leadership_term_event",
    "on_session_close",
    "on_session_message",
    "on_session_messages",
    "on_session_open",
    "on_take_snapshot",
    "on_timer_event",
)


def replay_parser(kind: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of the command; ``kind`` makes it, and its options have ``command``, the function to call with
    them."""
    parser = kind(
        prog=program,
        description="Run a service over the recorded log of a member, without a cluster: see what it does, whether it "
        "comes to the recorded states, and stop in Python's debugger at a log position. The exit status is 1 when the "
        "service failed, or its states or actions differ from the recorded ones.",
    )
    parser.add_argument("recording", metavar="DIR", help="the member's directory; it is only read")
    parser.add_argument(
        "service", metavar="package.module:ServiceClass", help="the service; the current directory is searched as well"
    )
    parser.add_argument(
        "--other", metavar="package.module:ServiceClass", help="run this service as well, and stop where the two differ"
    )
    parser.add_argument(
        "--ignore-state", action="store_true", help="compare the actions of the two, not the states in their snapshots"
    )
    parser.add_argument(
        "--begin", type=_position, metavar="POSITION", help="log position to start at: 0 or that of a recorded snapshot"
    )
    parser.add_argument(
        "--until",
        type=_position,
        metavar="POSITION",
        help="log position to stop at (default: the end of what is committed)",
    )
    parser.add_argument(
        "--break-at",
        type=_position,
        metavar="POSITION",
        help="stop in pdb in the first callback that ends there or later",
    )
    parser.add_argument("--archive-dir", metavar="DIR", help="where the member's archive is")
    parser.add_argument("--committed", metavar="WHAT", help="recorded, known, or a log position, as in `pipeline`")
    parser.add_argument(
        "--service-id",
        type=_position,
        default=0,
        metavar="ID",
        help="id of the service whose snapshots are used (default: 0)",
    )
    parser.add_argument(
        "--mode",
        choices=("strict", "permissive"),
        default="strict",
        help="strict: stop at an exception; permissive: continue after it",
    )
    parser.set_defaults(command=run_replay, log_level="warning")
    return parser


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a number from 0 on")
    return int(text)


def run_replay(options: Any) -> None:
    """Replay as the options say; print what the service did, and where its states are.

    Raises:
        ConfigurationError: an option is wrong, or a service cannot be found.
        RecordingError: the member's files are missing or damaged.
        ContainerError: the service failed, came to another state than was recorded, or differs from the other one.
    """
    search_current_directory()
    if options.ignore_state and options.other is None:
        raise ConfigurationError("--ignore-state: compares two services, so give --other as well")
    make = find_service(options.service)
    debuggers: list[Debugger] = []
    if options.break_at is not None:
        make = stopping(make, options.break_at, debuggers)
    member = open_member(options.recording, archive_dir=options.archive_dir, committed=options.committed)
    end = member.log().log_range.committed_position if options.until is None else options.until
    other = None if options.other is None else find_service(options.other)
    (segment,) = plan_replay(
        member,
        begin_position=options.begin,
        end_position=options.until,
        service_id=options.service_id,
        is_continuous=True,
    )
    given = {"mode": options.mode, "report_progress": _Progress(end)}
    taken: deque[TakenSnapshot] = deque(maxlen=1)
    try:
        if other is not None:
            batches = diff_segment(segment, make, other, ignore_state=options.ignore_state, **given)
            _compare(_rows(batches, debuggers), options)
        else:
            batches = replay_segment(segment, make, on_snapshot=taken.append, **given)
            _summarise(_rows(batches, debuggers), lambda: _state_difference(segment, make, taken))
    finally:
        if any(debugger.was_quit for debugger in debuggers):  # what the rest of the callback was to do is missing
            raise SystemExit("the replay was ended in the debugger")
    if options.break_at is not None and not debuggers:
        raise ContainerError(f"--break-at {options.break_at}: no callback ended there or later, up to {end}")


class Debugger(pdb.Pdb):
    """Python's debugger, which knows afterwards whether it was quit."""

    was_quit = False

    def set_quit(self) -> None:
        """Leave the callback."""
        self.was_quit = True
        super().set_quit()


def stopping(make: Callable[[], object], position: int, debuggers: list[Debugger]) -> Callable[[], object]:
    """Make services of ``make`` stop in pdb, once, in the first callback of the log at or behind ``position``.

    The debuggers are appended to ``debuggers``; one that is quit ends its service.

    Raises:
        ConfigurationError: the object made is not a :class:`~container.api.ClusteredService` in Python.
    """

    is_due = True

    def made() -> object:
        service = make()
        if not isinstance(service, ClusteredService):
            raise ConfigurationError(
                f"break-at={position}: {type(service).__qualname__} is not a ClusteredService in Python"
            )
        original: type[ClusteredService] = type(service)
        cluster: Cluster | None = None

        def on_start(self: ClusteredService, given: Cluster, snapshot_image: Any) -> None:
            nonlocal cluster
            cluster = given
            original.on_start(self, given, snapshot_image)

        def stops(name: str) -> Callable[..., None]:
            callback = getattr(original, name)

            def called(self: ClusteredService, *arguments: Any) -> None:
                nonlocal is_due
                if is_due and cluster is not None and cluster.log_position >= position:
                    is_due = False
                    debuggers.append(debugger := Debugger())
                    debugger.runcall(callback, self, *arguments)
                    if debugger.was_quit:
                        raise SystemExit("ended in the debugger")
                else:
                    callback(self, *arguments)

            return called

        callbacks = {name: stops(name) for name in _OF_THE_LOG if hasattr(original, name)}
        service.__class__ = type(original.__name__, (original,), {"__slots__": (), "on_start": on_start, **callbacks})
        return service

    return made


class _Progress:
    """A line a second on standard error that says how far a replay is."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._said = time.monotonic()

    def __call__(self, position: int) -> None:
        if (now := time.monotonic()) - self._said >= _PROGRESS_S:
            self._said = now
            print(f"log position {position} of {self._end}", file=sys.stderr, flush=True)


def _rows(batches: Iterator[pa.RecordBatch], debuggers: list[Debugger]) -> Iterator[dict[str, Any]]:
    """The rows of the batches; none once a debugger was left, as the rest of its callback is missing."""
    for batch in batches:
        if any(debugger.was_quit for debugger in debuggers):
            return
        yield from batch.to_pylist()


def _state_difference(segment: ReplaySegment, make: Callable[[], object], taken: deque[TakenSnapshot]) -> str:
    """Where the last state is not the recorded one; nothing when it is that, in another form.

    So it is when the service makes its own state of the recorded snapshot, and comes back from its own.
    """
    snapshot = taken[-1]
    recorded = next(one for one in segment.snapshots if one.log_position == snapshot.log_position)
    try:
        for start, words in ((recorded, "in the recorded snapshot"), (snapshot, "after a start from its own")):
            loaded = load_state(segment, make, start)
            if loaded != snapshot.state:
                return state_difference(
                    loaded, snapshot.state, run=f"{words}, as the service loads it", now="in the replay"
                )
    except ContainerError as error:
        return f"the service cannot load a snapshot of that position: {error}"
    return ""


def _summarise(rows: Iterator[dict[str, Any]], difference: Callable[[], str]) -> None:
    kinds: Counter[str] = Counter()
    agreed = failure = None
    for row in rows:
        kinds[row["kind"]] += 1
        if row["kind"] == ERROR_KIND:
            text = f"the service failed at log position {row['log_position']}: {row['error']}"
            failure = failure or text  # in mode strict the last row
            if kinds[ERROR_KIND] <= _SHOWN_ERRORS:
                print(text)
        if row["kind"] == STATE_HASH_KIND:
            recorded = row["recorded_state_hash"]
            verdict = "no snapshot is recorded" if recorded is None else "as recorded"
            if recorded not in (None, row["state_hash"]):
                if where := difference():
                    since = "the beginning" if agreed is None else f"log position {agreed}"
                    raise ContainerError(
                        f"the service's state at log position {row['log_position']} differs from the recorded state; "
                        f"it diverged after {since}: {where}"
                    )
                verdict = "as recorded, in another form"
            agreed = agreed if recorded is None else row["log_position"]
            print(f"state at log position {row['log_position']}: {row['state_hash']}, {verdict}")
    for kind, count in sorted(kinds.items()):
        print(f"{kind}: {count}")
    if failure is not None:
        raise ContainerError(failure)


def _compare(rows: Iterator[dict[str, Any]], options: Any) -> None:
    unknown = None
    for row in rows:
        if row["change"] != UNKNOWN:
            raise ContainerError(
                f"{options.other} differs from {options.service} from log position {row['log_position']} on: "
                f"{described(row, options.service, options.other)}"
            )
        unknown = unknown or row  # what the services do is compared to the end
    if unknown is not None:
        raise ContainerError(
            f"{options.other} does what {options.service} does, but their states cannot be compared, first at log "
            f"position {unknown['log_position']}: {unknown['state_difference']} (--ignore-state leaves states out)"
        )
    print(
        f"{options.other} does what {options.service} does{'; their states were not compared' * options.ignore_state}"
    )


def described(row: dict[str, Any], service: str, other: str) -> str:
    """Describe a difference of two services with these names: its kind, its client, and both values."""
    text = f"{row['kind']} {row['change']}"
    for name, words in (("cluster_session_id", "session"), ("correlation_id", "timer")):
        if row[name] is not None:
            text += f" of {words} {row[name]}"
    if row["occurrence"] > 0:
        text += f", number {row['occurrence']} from 0"
    if row["state_difference"] is not None:
        return f"{text}: {row['state_difference']}"
    for name in SHOWN:
        values = [NOTHING if row[column] is None else row[column] for column in (name, f"other_{name}")]
        if values != [NOTHING, NOTHING]:
            left, right = shown_apart(*values)
            text += f"; {name}: {left} of {service}, {right} of {other}"
    return text
