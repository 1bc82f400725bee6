"""The command ``aeron-cluster check``: runs all checks on a service, prints a line for each, exits by the verdict."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from container.common.object_path import load_object, search_current_directory
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError
from container.testing import checks
from container.testing.lives import GeneratedLife, RecordedLife
from container.testing.memory_member import ServiceFactory


def check_parser(kind: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of the command; ``kind`` makes it, and ``command`` of its options is to be called with them."""
    parser = kind(
        prog=program,
        description="Find what would let replicas of a service diverge, or stop them. Without --life or --recording, "
        "traffic is drawn from seeds. The exit status is 0 when every check passed, and 1 when one did not.",
    )
    parser.add_argument(
        "service", metavar="package.module:ServiceClass", help="the service; the current directory is searched as well"
    )
    traffic = parser.add_mutually_exclusive_group()
    traffic.add_argument("--life", metavar="package.module:function", help="what clients do, as docs/testing.md says")
    traffic.add_argument("--recording", metavar="DIR", help="a member's directory: do what its clients did")
    parser.add_argument(
        "--payloads", metavar="FILE", type=Path, help="messages of your clients, one a line in hexadecimal"
    )
    parser.add_argument("--seeds", type=_count, default=5, metavar="N", help="lives to draw (default: 5)")
    parser.add_argument("--events", type=_count, default=300, metavar="N", help="events of each of them (default: 300)")
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
    """
    search_current_directory()
    service = load_object(options.service, "service")
    payloads = _payloads(options.payloads)
    failed = 0
    for name, check in _checks(service, options, payloads):
        try:
            print(f"{name:14} ok      {check()}", flush=True)
        except Exception as error:  # what the service raised in a life is a finding as well
            failed += 1
            print(f"{name:14} FAILED  {type(error).__name__}: {error}", flush=True)
    if failed:
        raise SystemExit(1)


def _checks(
    service: ServiceFactory, options: Any, payloads: tuple[bytes, ...]
) -> Iterator[tuple[str, Callable[[], str]]]:
    lives = _lives(options, payloads)

    def over_lives(check: Callable[[ServiceFactory, checks.Life], int | None], what: str) -> str:
        counts = [check(service, life) for life in lives]
        return f"{sum(count or 0 for count in counts)} {what} in {len(lives)} lives" if what else f"{len(lives)} lives"

    yield "replays", partial(over_lives, checks.check_replays, "states compared")
    yield "restarts", partial(over_lives, checks.check_restarts, "events compared")
    yield "calls", partial(over_lives, checks.check_calls, "")
    yield "environments", lambda: f"{checks.check_environments(service, lives[0])} states compared"
    yield "payloads", lambda: f"{checks.check_payloads(service, payloads)} hostile messages"
    if options.life is None and options.recording is None:
        yield "memory", lambda: f"{checks.check_memory(service, lives[0])} bytes more after 50 lives"


def _lives(options: Any, payloads: tuple[bytes, ...]) -> list[checks.Life]:
    if options.life is not None:
        return [load_object(options.life, "life")]
    if options.recording is not None:
        return [RecordedLife(options.recording)]
    return [GeneratedLife(seed, options.events, payloads) for seed in range(1, options.seeds + 1)]


def _payloads(path: Path | None) -> tuple[bytes, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="ascii").split()
        return tuple(bytes.fromhex(line) for line in lines)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"payloads={shown(str(path))}: must be a file of messages in hexadecimal: {error}"
        ) from None


__all__ = ["ContainerError", "check_parser", "run_checks"]
