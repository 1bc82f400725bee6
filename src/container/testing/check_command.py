"""The command ``aeron-cluster check``: runs all checks on a service, prints a line for each, exits by the verdict."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from container.api import ClusteredService, TimeUnit
from container.common.error_texts import message_of
from container.common.object_path import load_object, search_current_directory
from container.common.values import counted, shown
from container.errors import ConfigurationError
from container.recordings import open_member
from container.testing.lives import GeneratedLife, RecordedLife
from container.testing.memory import checks
from container.testing.memory.check_findings import uncalled_methods, user_line
from container.testing.memory.environments import has_time_machine
from container.testing.memory.memory_member import MemoryMember, ServiceFactory

_FINDINGS = (
    checks.DivergenceError,
    checks.ForbiddenCallError,
    checks.HostilePayloadError,
    checks.MemoryGrowthError,
)
_SKIPPED = "skipped: "
"""Begins what a check returns that was not made, and the reason follows."""

_SIMULATION_FAILURE = "SimulationFailure"  # of a module that is imported where greenlet is installed
_MOST_PAYLOADS = 1_000


def check_parser(kind: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of the command; ``kind`` makes it, and its options have ``command``, the function to call with
    them."""
    parser = kind(
        prog=program,
        description="Find mistakes that make replicas of a service diverge or stop. Without --life or --recording, "
        "traffic is drawn from seeds. The exit status is 0 when every check passed, and 1 when one did not.",
    )
    parser.add_argument(
        "service", metavar="package.module:ServiceClass", help="the service; the current directory is searched as well"
    )
    traffic = parser.add_mutually_exclusive_group()
    traffic.add_argument(
        "--life",
        metavar="package.module:function",
        help="a function that takes a MemoryMember, and opens sessions and sends messages as your clients do",
    )
    traffic.add_argument("--recording", metavar="DIR", help="directory of a member: use its recorded traffic")
    parser.add_argument(
        "--payloads", metavar="FILE", type=Path, help="messages of your clients, one per line in hexadecimal"
    )
    parser.add_argument("--seeds", type=_count, default=5, metavar="N", help="number of random lives (default: 5)")
    parser.add_argument(
        "--events", type=_count, default=300, metavar="N", help="events in each random life (default: 300)"
    )
    parser.add_argument(
        "--most-messages",
        type=_count,
        default=10_000,
        metavar="N",
        help="use at most this many messages of a recording (default: 10000)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        action="append",
        default=[],
        dest="pythons",
        help="run the life on this interpreter too, and compare states; it needs this package (repeatable)",
    )
    parser.add_argument(
        "--memory-messages",
        type=_count,
        metavar="N",
        help="check the memory over this many messages, at 0.2 ms each, instead of 100 lives",
    )
    parser.add_argument(
        "--simulations",
        type=_count,
        default=100,
        metavar="N",
        help="clusters to simulate, with crashes, elections and lost networks, at 20 ms each (default: 100)",
    )
    parser.set_defaults(command=run_checks, log_level="error")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a number from 1 on")
    return int(text)


def run_checks(options: Any) -> None:
    """Run the checks that the options ask for.

    Raises:
        SystemExit: with 1, when a check failed; the report is printed before.
        ConfigurationError: the service, the life or a file cannot be loaded.
        RecordingError: the recording cannot be read.
    """
    search_current_directory()
    service = load_object(options.service, "service")
    if not callable(service):
        raise ConfigurationError(f"service={shown(options.service)}: must be a class, or a function that makes one")
    kind = _checked_kind(service)
    payloads = _payloads(options.payloads)
    lives = _lives(options, payloads)
    failed = 0
    for name, check in _checks(service, kind, options, lives, payloads):
        try:
            text = check()
            verdict = "ok"
            if text.startswith(_SKIPPED):
                verdict, text = "skipped", text.removeprefix(_SKIPPED)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a service that exits is a finding, as is what it raised
            failed += 1
            verdict, text = "FAILED", f"{type(error).__name__}: {_text_of(error)}{_place_of(error)}"
        print(f"{name:14} {verdict:7} {text}", flush=True)
    if failed:
        raise SystemExit(1)


def _checked_kind(service: ServiceFactory) -> type | None:
    """The class of the service; None when it cannot even start, which is a finding.

    An object that is not a service at all, and a method that is never called, are reported once, and not as findings of
    each check.
    """
    try:
        with MemoryMember(service) as member:
            kind = type(member.service)
    except ConfigurationError:
        raise
    except BaseException:
        return None
    if unused := uncalled_methods(kind):
        raise ConfigurationError(unused[0])
    return kind


def _text_of(error: BaseException) -> str:
    """Its message; that of a simulation is a report of many lines, which are indented."""
    return str(error).replace("\n", "\n  ") if type(error).__name__ == _SIMULATION_FAILURE else message_of(error)


def _place_of(error: BaseException) -> str:
    """The user's line that raised; nothing for a finding of a check."""
    is_finding = isinstance(error, _FINDINGS) or type(error).__name__ == _SIMULATION_FAILURE
    return "" if is_finding else user_line(error)


def _checks(
    service: ServiceFactory, kind: type | None, options: Any, lives: list[checks.Life], payloads: tuple[bytes, ...]
) -> Iterator[tuple[str, Callable[[], str]]]:
    def over_lives(check: Callable[[ServiceFactory, checks.Life], int | None], what: str) -> str:
        counts = [check(service, life) for life in lives]
        in_lives = counted(len(lives), "life", "lives")
        return f"{counted(sum(count or 0 for count in counts), what)} compared in {in_lives}" if what else in_lives

    def traffic() -> str:
        states = max(checks.count_states(service, life) for life in lives)
        if states > 1:
            return f"up to {states} different states in a life"
        if kind is not None and getattr(kind, "on_take_snapshot", None) is ClusteredService.on_take_snapshot:
            return f"{kind.__name__} has no on_take_snapshot, so the checks see no state: define it"
        if options.life is not None:
            return "NOTHING CHANGED THE STATE, so little was tested: have the life send what changes it"
        return "NOTHING CHANGED THE STATE, so little was tested: give --payloads, --life or --recording"

    def memory() -> str:
        if options.recording is None and (messages := options.memory_messages) is not None:
            growth = checks.check_memory(service, lives[0], messages=messages)
            return f"{counted(growth, 'byte')} more in the second half of {counted(messages, 'message')}"
        if options.life is None and options.recording is None:
            return f"{counted(checks.check_memory(service, lives[0]), 'byte')} more after 50 lives"
        if options.life is not None:
            return f"{_SKIPPED}a --life is repeated only for as many messages as --memory-messages N says"
        return f"{_SKIPPED}recorded traffic is not repeated: run this check without --recording"

    def environments() -> str:
        chosen: Sequence[checks.Environment] = checks.ENVIRONMENTS
        remark = ""
        if not has_time_machine():
            chosen = [environment for environment in chosen if environment.wall_clock is None]
            remark = '; the wall clock was left out: pip install "aeron-cluster-container[testing]"'
        count = checks.check_environments(service, lives[0], environments=chosen, pythons=options.pythons)
        return f"{counted(count, 'state')} compared{remark}"

    def simulations() -> str:
        try:
            from container.testing.simulation import simulate
        except ImportError:
            return f'{_SKIPPED}needs greenlet: pip install "aeron-cluster-container[testing]"'
        sent = payloads or (() if isinstance(lives[0], GeneratedLife) else _payloads_in(service, lives[0]))
        delivered = sum(
            simulate(service, seed=seed, payloads=sent, time_unit=TimeUnit.MILLIS).delivered
            for seed in range(1, options.simulations + 1)
        )
        return f"{counted(delivered, 'event')} delivered in {counted(options.simulations, 'cluster')}"

    yield "traffic", traffic
    yield "replays", partial(over_lives, checks.check_replays, "state")
    yield "restarts", partial(over_lives, checks.check_restarts, "event")
    yield "calls", partial(over_lives, checks.check_calls, "")
    yield "environments", environments
    yield "payloads", lambda: counted(checks.check_payloads(service, payloads), "hostile message")
    yield "memory", memory
    yield "simulations", simulations


def _payloads_in(service: ServiceFactory, life: checks.Life) -> tuple[bytes, ...]:
    """The payloads that clients send in a life."""
    with MemoryMember(service) as member:
        life(member)
        logged = [entry.decode() for entry in member.log]
    sent = [
        fields["payload"]
        for name, fields in logged
        if name == "SessionMessageHeader" and fields["cluster_session_id"] > 0
    ]
    return tuple(dict.fromkeys(sent))[:_MOST_PAYLOADS]


def _lives(options: Any, payloads: tuple[bytes, ...]) -> list[checks.Life]:
    if options.life is not None:
        life = load_object(options.life, "life")
        if not callable(life):
            raise ConfigurationError(f"life={shown(options.life)}: must be a function that takes a member")
        return [life]
    if options.recording is not None:
        open_member(options.recording).log()  # a mistake is reported once, and not by each check
        print(f"traffic is that of the first {options.most_messages} sessions and messages of {options.recording}")
        return [RecordedLife(options.recording, options.most_messages)]
    return [GeneratedLife(seed, options.events, payloads) for seed in range(1, options.seeds + 1)]


def _payloads(path: Path | None) -> tuple[bytes, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise ConfigurationError(f"payloads={shown(str(path))}: cannot be read: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(bytes.fromhex(line))
        except ValueError as error:
            raise ConfigurationError(
                f"payloads={shown(str(path))}: line {number} must be a message in hexadecimal: {error}"
            ) from None
    return tuple(payload for payload in found if payload)
