"""The words for operators: what each takes, and how its facts are printed. A word loads what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from container.common.values import is_path, shown, whole_number
from container.errors import ConfigurationError, ContainerError

_EXIT_NO, _EXIT_UNKNOWN = 1, 3
_TIMEOUT_S = 30.0
_WATCH_S = 1.0
_DURATION = re.compile(r"(\d{1,12})(ms|s|m|h)?")
_UNITS_MS = {"ms": 1, None: 1000, "s": 1000, "m": 60_000, "h": 3_600_000}
_EPILOG = (
    "Exit codes: 0 done or yes, 1 no, refused or failed, 2 wrong usage, 3 the files do not say. "
    "`python -m pydoc container.operate.facts` describes each value that is printed, docs/operator-tools.md of the "
    "project each command."
)


class _OutputError(ContainerError):
    """Standard output cannot be written, as when a disk is full."""


class Word(NamedTuple):
    """A word of the command line."""

    help: str
    run: Callable[[argparse.Namespace], Any]
    """Returns an Answer, or yields the facts of each line."""
    add: Callable[[argparse.ArgumentParser], object] = lambda parser: None
    is_watched: bool = False
    """Whether to look again makes sense."""
    variables: tuple[str, ...] = ("AERON_CLUSTER_DIR",)
    """Environment variables that name the directory when none is given."""


def operator_parser(make: Callable[..., argparse.ArgumentParser], program: str, word: Word) -> argparse.ArgumentParser:
    """Return the parser of what follows a word; its result has ``command``, to be called with it."""
    parser = make(prog=program, description=f"{word.help[0].upper()}{word.help[1:]}.", epilog=_EPILOG)
    if word.variables:
        variables = " or ".join(word.variables)
        parser.add_argument("dir", nargs="?", type=_path, metavar="DIR", help=f"directory of the node [{variables}]")
    parser.add_argument(
        "--json", action="store_true", help="print JSON; its names and values keep their meaning in later versions"
    )
    if word.is_watched:
        parser.add_argument(
            *("--watch", "-w"),
            nargs="?",
            type=_interval,
            const=_WATCH_S,
            metavar="SECONDS",
            help=f"repeat at this interval in seconds (default: {_WATCH_S:g}), until Ctrl-C",
        )
    word.add(parser)
    parser.set_defaults(command=lambda options: run_word(word, options), log_level=None)
    return parser


def find_word(arguments: list[str]) -> tuple[str, Word, list[str]] | None:
    """Return the word with which arguments begin, of one or two parts, and what follows it; None for another's."""
    for count in (2, 1):
        name = " ".join(arguments[:count])
        if len(arguments) >= count and name in WORDS:
            return name, WORDS[name], arguments[count:]
    return None


def run_word(word: Word, options: argparse.Namespace) -> None:
    """Run a word and print its answer; raise SystemExit with its code unless that is 0."""
    if sys.stdout is None:  # closed by whoever wants the exit code alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
    _find_directory(word, options)
    code = _watch(word, options) if getattr(options, "watch", None) is not None else _run_once(word, options)
    if code:
        raise SystemExit(code)


def _run_once(word: Word, options: argparse.Namespace) -> int:
    from container.operate.answers import Answer, NoFactsError

    try:
        answer = word.run(options)
        if isinstance(answer, Answer):
            _print(answer.facts, options, is_one_line=False)
            return answer.exit_code
        for facts in answer:
            if not _print(facts, options, is_one_line=True):
                break
    except ConfigurationError:
        raise
    except KeyboardInterrupt:
        if not getattr(options, "follow", False):
            raise
    except NoFactsError as error:
        return _fail(error, _EXIT_UNKNOWN)
    except ContainerError as error:
        return _fail(error, _EXIT_NO)
    except (OSError, MemoryError) as error:
        return _fail(error, _EXIT_UNKNOWN)
    return 0


def _watch(word: Word, options: argparse.Namespace) -> int:
    """Look again and again until Ctrl-C; what cannot be read now may be there at the next look."""
    from container.operate.show import clear_screen

    try:
        while True:
            clear_screen()
            if not _watch_once(word, options):
                return 0
            time.sleep(options.watch)
    except KeyboardInterrupt:
        return 0
    except _OutputError as error:
        return _fail(error, _EXIT_NO)


def _watch_once(word: Word, options: argparse.Namespace) -> bool:
    """Whether somebody reads on."""
    try:
        return _print(word.run(options).facts, options, is_one_line=True)
    except (ConfigurationError, _OutputError):
        raise
    except (ContainerError, OSError, MemoryError) as error:
        _fail(error, _EXIT_UNKNOWN)
    return True


def _print(facts: Any, options: argparse.Namespace, *, is_one_line: bool) -> bool:
    """Print facts; return whether somebody reads on.

    Raises:
        _OutputError: standard output cannot be written, as when a disk is full.
    """
    from container.operate.show import write_json, write_text

    try:
        if options.json:
            write_json(facts, is_one_line=is_one_line)
        else:
            write_text(facts)
    except BrokenPipeError:
        # The reader has enough, as `head` has. Python's own output at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    except OSError as error:
        raise _OutputError(f"standard output cannot be written: {error.strerror or error}") from error
    return True


def _fail(error: BaseException, code: int) -> int:
    from container.common.error_texts import message_of
    from container.common.line_printer import print_line
    from container.operate.answers import plain

    if isinstance(error, OSError) and not isinstance(error, ContainerError):  # a TimedOutError is of both kinds
        from container.operate.places import unreadable

        error = unreadable(Path("a file"), error)
    text = "there is not enough memory" if isinstance(error, MemoryError) else message_of(error)
    print_line(f"aeron-cluster: {plain(' '.join(text.split()))}", sys.stderr)
    return code


def _find_directory(word: Word, options: argparse.Namespace) -> None:
    if word.variables and options.dir is None:
        from container.operate.places import directory_of_environment

        options.dir = directory_of_environment(word.variables)


def _confirmation(options: argparse.Namespace) -> Callable[[str], None]:
    """The function that asks whether to continue; it asks nothing with ``--yes``."""
    from container.operate.answers import RefusedError

    def confirm(what: str) -> None:
        if options.yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise RefusedError(f"this would {what}: there is no terminal to confirm on; pass --yes")
        sys.stderr.write(f"This will {what}. Continue? [y/N] ")
        sys.stderr.flush()
        try:
            answer = sys.stdin.readline().strip().lower()
        except UnicodeDecodeError:  # a key that the terminal sends in another encoding
            answer = ""
        if answer not in ("y", "yes"):
            raise RefusedError("nothing has changed")

    return confirm


# Arguments.


def _path(text: str) -> Path:
    if not text or not is_path(text):
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a path in UTF-8, without NUL")
    return Path(text)


def _number(text: str) -> int:
    value = whole_number(text.strip())
    if value is None or not -(2**63) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a whole number")
    return value


def _count(text: str) -> int:
    value = whole_number(text.strip())
    if value is None or not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a whole number from 0 on")
    return value


def _positive(text: str) -> int:
    value = whole_number(text.strip())
    if value is None or not 1 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a whole number from 1 on")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1_000_000_000:  # nor is NaN
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a number of seconds")
    return value


def _interval(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a number of seconds, more than 0")
    return value


def _delay_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a duration such as 500ms, 30s, 5m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=_TIMEOUT_S,
        metavar="SECONDS",
        help=f"maximum seconds to wait for the result (default: {_TIMEOUT_S:g})",
    )


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="change or delete files without asking")


def _add_validate(parser: argparse.ArgumentParser) -> None:
    _add_yes(parser)
    _add_timeout(parser)


def _add_services(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--services", type=_count, metavar="N", help="number of services (default: those of the latest snapshot)"
    )


def _add_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--service", type=_count, default=0, metavar="ID", help="the service's id (default: 0)")


def _add_delay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="delay_ms", type=_delay_ms, metavar="DURATION", help="ask again after this time, such as 30s"
    )


def _add_health(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        choices=("live", "ready", "leader"),
        default="ready",
        help="live: processes show signs of life; ready: and no election is in progress; leader: and it leads "
        "(default: ready)",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=0.0, metavar="SECONDS", help="maximum seconds to wait for it (default: 0)"
    )


def _add_counters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", type=_count, action="append", metavar="ID", help="only counters of this type")
    parser.add_argument("--label", metavar="TEXT", help="only counters with this text in their label")


def _add_recordings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recording", type=_count, action="append", metavar="ID", help="only this recording; may be repeated"
    )


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stream", type=_number, metavar="ID", help="only recordings of this stream")


def _add_checksum(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checksum",
        choices=("none", "crc32", "crc32c"),
        default="none",
        help="checksum to verify in each recorded frame (default: none)",
    )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_recordings(parser)
    _add_checksum(parser)
    parser.add_argument("--last-segment", action="store_true", help="read only the last segment file of each recording")


def _add_dump(parser: argparse.ArgumentParser) -> None:
    _add_recordings(parser)
    _add_checksum(parser)
    parser.add_argument(
        "--from", dest="begin", type=_count, metavar="POSITION", help="only frames at this position or later"
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="maximum number of frames of each recording")


def _add_delete_snapshots(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", type=_positive, required=True, metavar="N", help="number of newest snapshots to keep, 1 or more"
    )
    _add_yes(parser)
    _add_timeout(parser)


def _add_purge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--before",
        type=_count,
        required=True,
        metavar="POSITION",
        help="delete whole segments that end at this position or before",
    )
    parser.add_argument(
        "--recording", type=_count, metavar="ID", help="delete from this recording (default: the log's)"
    )
    _add_yes(parser)
    _add_timeout(parser)


def _add_log(parser: argparse.ArgumentParser) -> None:
    from container.operate.log_names import MESSAGES

    parser.add_argument(
        "--from", dest="begin", type=_count, metavar="POSITION", help="only messages that end after this position"
    )
    parser.add_argument(
        "--to", dest="end", type=_count, metavar="POSITION", help="only messages that end at this position or before"
    )
    parser.add_argument(
        "--message", choices=tuple(MESSAGES), action="append", help="only messages of this kind; may be repeated"
    )
    parser.add_argument("--session", type=_number, metavar="ID", help="only messages of this client session")
    parser.add_argument("--term", type=_count, metavar="ID", help="only messages of this leadership term")
    parser.add_argument("--committed", action="store_true", help="only messages that a majority certainly has")
    parser.add_argument("--payload", action="store_true", help="print payloads in hexadecimal digits")
    parser.add_argument("--limit", type=_count, metavar="N", help="maximum number of messages")
    parser.add_argument("--follow", "-f", action="store_true", help="follow the log as it is committed, until Ctrl-C")


# The function of each word.


def _describe(options: argparse.Namespace) -> Any:
    from container.operate.marks import describe

    return describe(options.dir)


def _pid(options: argparse.Namespace) -> Any:
    from container.operate.marks import pid

    return pid(options.dir)


def _recovery_plan(options: argparse.Namespace) -> Any:
    from container.operate.recording_logs import recovery_plan

    return recovery_plan(options.dir, options.services)


def _recording_log(options: argparse.Namespace) -> Any:
    from container.operate.recording_logs import show

    return show(options.dir)


def _sort(options: argparse.Namespace) -> Any:
    from container.operate.recording_logs import sort

    return sort(options.dir, _confirmation(options))


def _seed(options: argparse.Namespace) -> Any:
    from container.operate.recording_logs import seed

    return seed(options.dir, _confirmation(options))


def _validate(options: argparse.Namespace) -> Any:
    from container.operate.places import find_cluster_dir
    from container.operate.recording_logs import mark_of, validate

    mark = mark_of(find_cluster_dir(options.dir))
    if mark is not None and mark.state == "running":
        from container.operate.control import validate_running

        return validate_running(options.dir, options.timeout, _confirmation(options))
    return validate(options.dir, _confirmation(options))


def _invalidate(options: argparse.Namespace) -> Any:
    from container.operate.recording_logs import invalidate_latest_snapshot

    return invalidate_latest_snapshot(options.dir, _confirmation(options))


def _errors(options: argparse.Namespace) -> Any:
    from container.operate.node_errors import errors

    return errors(options.dir)


def _list_members(options: argparse.Namespace) -> Any:
    from container.operate.control import list_members

    return list_members(options.dir, options.timeout)


def _is_leader(options: argparse.Namespace) -> Any:
    from container.operate.status import is_leader

    return is_leader(options.dir)


def _backup_query_delay(options: argparse.Namespace) -> Any:
    from container.operate.control import backup_query_delay

    return backup_query_delay(options.dir, options.delay_ms)


def _module_snapshot(options: argparse.Namespace) -> Any:
    from container.operate.node_snapshots import describe_consensus_module

    return describe_consensus_module(options.dir)


def _service_snapshot(options: argparse.Namespace) -> Any:
    from container.operate.node_snapshots import describe_service

    return describe_service(options.dir, options.service)


def _act(word: str) -> Callable[[argparse.Namespace], Any]:
    def run(options: argparse.Namespace) -> Any:
        from container.operate.control import act

        return act(options.dir, word, options.timeout)

    return run


def _counters(options: argparse.Namespace) -> Any:
    from container.operate.driver_counters import counters

    return counters(options.dir, options.type, options.label)


def _streams(options: argparse.Namespace) -> Any:
    from container.operate.driver_streams import streams

    return streams(options.dir)


def _loss(options: argparse.Namespace) -> Any:
    from container.operate.driver_streams import loss

    return loss(options.dir)


def _backlog(options: argparse.Namespace) -> Any:
    from container.operate.driver_streams import backlog

    return backlog(options.dir)


def _status(options: argparse.Namespace) -> Any:
    from container.operate.status import status

    return status(options.dir)


def _health(options: argparse.Namespace) -> Any:
    from container.operate.status import health

    return health(options.dir, options.check, options.timeout)


def _archive_list(options: argparse.Namespace) -> Any:
    from container.operate.archives import show

    return show(options.dir, stream_id=options.stream)


def _archive_describe(options: argparse.Namespace) -> Any:
    from container.operate.archives import show

    return show(options.dir, recording_ids=options.recording)


def _archive_verify(options: argparse.Namespace) -> Any:
    from container.operate.archives import verify

    return verify(options.dir, options.recording, options.last_segment, options.checksum)


def _archive_dump(options: argparse.Namespace) -> Any:
    from container.operate.archives import dump

    return dump(options.dir, options.recording, options.begin, options.limit, options.checksum)


def _archive_delete_snapshots(options: argparse.Namespace) -> Any:
    from container.operate.deletions import delete_snapshots

    return delete_snapshots(options.dir, options.keep, options.timeout, _confirmation(options))


def _archive_purge(options: argparse.Namespace) -> Any:
    from container.operate.deletions import purge

    return purge(options.dir, options.before, options.recording, options.timeout, _confirmation(options))


def _log(options: argparse.Namespace) -> Iterator[Any]:
    from container.operate.log_names import MESSAGES
    from container.operate.logs import Wanted, read_log

    names = None if options.message is None else frozenset(MESSAGES[each] for each in options.message)
    wanted = Wanted(options.begin, options.end, names, options.session, options.term, options.committed)
    return read_log(options.dir, wanted, has_payload=options.payload, follows=options.follow, limit=options.limit)


def _version(options: argparse.Namespace) -> Any:
    import platform

    from container.operate.answers import Answer
    from container.operate.facts import Version
    from container.version import AERON_VERSION, VERSION

    return Answer(Version(version=VERSION, aeron=AERON_VERSION, python=platform.python_version()))


_DRIVER = ("AERON_CLUSTER_DIR", "AERON_DIR")
_ARCHIVE = ("AERON_ARCHIVE_DIR",)
_NODE_OR_ARCHIVE = ("AERON_CLUSTER_DIR", "AERON_ARCHIVE_DIR")

WORDS: dict[str, Word] = {
    "status": Word("show a node on one page", _status, is_watched=True),
    "health": Word("answer a probe: whether a node is live, ready or the leader", _health, _add_health),
    "describe": Word("show who owns a node's directory, and whether it is alive", _describe, is_watched=True),
    "pid": Word("print the process id of a node", _pid),
    "list-members": Word("ask a running node for the members of its cluster", _list_members, _add_timeout, True),
    "is-leader": Word("print whether a node leads its cluster, and exit with 0 if so", _is_leader, is_watched=True),
    "snapshot": Word("ask the leader for a snapshot of the cluster", _act("snapshot"), _add_timeout),
    "suspend": Word("ask the leader to accept no messages until `resume`", _act("suspend"), _add_timeout),
    "resume": Word("ask the leader to resume a suspended cluster", _act("resume"), _add_timeout),
    "shutdown": Word("ask the leader to end the cluster after a snapshot", _act("shutdown"), _add_timeout),
    "abort": Word("ask the leader to end the cluster without a snapshot", _act("abort"), _add_timeout),
    "recording-log": Word("show a node's terms and snapshots", _recording_log, is_watched=True),
    "recording-log sort": Word("sort the recording log of a stopped node", _sort, _add_yes),
    "recording-log seed": Word("make a stopped node start from its latest snapshot, without a log", _seed, _add_yes),
    "recording-log validate": Word(
        "invalidate snapshots that a node's archive does not have", _validate, _add_validate
    ),
    "recovery-plan": Word("show where a start would resume", _recovery_plan, _add_services),
    "invalidate-latest-snapshot": Word("let a stopped node start from the snapshot before", _invalidate, _add_yes),
    "describe-latest-consensus-module-snapshot": Word(
        "show sessions, timers and pending messages of the latest snapshot", _module_snapshot
    ),
    "describe-latest-service-snapshot": Word(
        "show what a service's part of the latest snapshot holds", _service_snapshot, _add_service
    ),
    "backup-query-delay": Word("show or set when a backup asks its cluster next", _backup_query_delay, _add_delay),
    "errors": Word(
        "show the error logs of all parts of a node, each in the order of first occurrence", _errors, is_watched=True
    ),
    "counters": Word("show the counters of a node's parts", _counters, _add_counters, True, _DRIVER),
    "streams": Word("show the positions of a media driver's streams", _streams, is_watched=True, variables=_DRIVER),
    "backlog": Word("show which of a media driver's streams fall behind", _backlog, is_watched=True, variables=_DRIVER),
    "loss": Word("show what a media driver had to ask for again", _loss, is_watched=True, variables=_DRIVER),
    "log": Word("print the messages of a cluster's log", _log, _add_log),
    "archive list": Word("list the recordings of an archive", _archive_list, _add_list, True, _ARCHIVE),
    "archive describe": Word("describe recordings of an archive", _archive_describe, _add_recordings, True, _ARCHIVE),
    "archive verify": Word("check recordings, and change nothing", _archive_verify, _add_verify, variables=_ARCHIVE),
    "archive dump": Word("print the frames of recordings", _archive_dump, _add_dump, variables=_ARCHIVE),
    "archive delete-snapshots": Word(
        "delete all snapshots of a node except the N newest",
        _archive_delete_snapshots,
        _add_delete_snapshots,
    ),
    "archive purge": Word(
        "delete the part of a recording before a position", _archive_purge, _add_purge, variables=_NODE_OR_ARCHIVE
    ),
    "--version": Word("print the version", _version, variables=()),
}
