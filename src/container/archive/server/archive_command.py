"""The command ``aeron-cluster archive``: an archive beside a media driver, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from container.agent.agent_owner import run_until_ended
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.native_archive import Archive
from container.settings.archive_table import archive_settings_table
from container.settings.arguments import add_config, add_log_level, add_settings, path


def archive_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster archive``; its result has ``command``, to be called with it."""
    parser = make(
        prog=program,
        description="Run an archive next to a media driver, until Ctrl-C or SIGTERM. It serves the clients of Aeron "
        "Archive, a consensus module among them, and works on the directory of Java's archive.",
        epilog="`archive list`, `describe`, `verify`, `dump`, `purge` and `delete-snapshots` look into an archive or "
        "make it smaller: docs/operator-tools.md. Options override the environment variable in brackets, which "
        "overrides the file of --config.",
    )
    parser.add_argument(
        "--dir", dest="archive_dir", type=path, metavar="DIR", help="the same as --archive-dir [AERON_ARCHIVE_DIR]"
    )
    add_config(parser, "AERON_ARCHIVE_CONFIG_FILE")
    add_log_level(parser)
    add_settings(parser, archive_settings_table())
    parser.set_defaults(command=_run)
    return parser


def _run(options: argparse.Namespace) -> None:
    settings: dict[str, Any] = {name: getattr(options, name) for name in archive_settings_table()}
    run_until_ended(Archive, ArchiveContext(config_file=options.config, **settings))
