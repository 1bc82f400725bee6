"""The command ``aeron-cluster top``: which nodes it shows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from container.errors import ConfigurationError
from container.operate.node_arguments import INSTALL_HINT, add_directories, directories
from container.settings.arguments import seconds

_INTERVAL_S = 1.0


def top_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """Return the parser of what follows ``aeron-cluster top``; its result has ``command``, to be called with it."""
    parser = make(
        prog=program,
        description="Show nodes of this machine on a full screen, until q. Keys ask a cluster for a snapshot, suspend "
        "it and resume it, after a question.",
    )
    add_directories(parser)
    parser.add_argument(
        "--interval",
        type=seconds,
        default=_INTERVAL_S,
        metavar="SECONDS",
        help=f"time between two updates (default: {_INTERVAL_S:g})",
    )
    parser.set_defaults(command=_run, log_level=None)
    return parser


def _run(options: argparse.Namespace) -> None:
    paths = directories(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; `aeron-cluster status DIR --watch` prints to anything")
    try:
        from container.operate.top import run_top
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"top needs the package {error.name}: {INSTALL_HINT}") from error
    run_top(paths, options.interval)
