"""The command ``aeron-cluster archive``: an archive beside a media driver, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from container.archive.archive_context import ArchiveContext
from container.archive.native_archive import Archive
from container.common.error_texts import message_of, type_name
from container.common.loggers import report
from container.common.main_program import Ending, report_crashes
from container.errors import ConfigurationError
from container.settings.archive_table import INVOKER, archive_settings_table
from container.settings.arguments import add_settings, path

_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


def archive_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster archive``; its result has ``command``, to be called with it."""
    parser = make(
        prog=program,
        description="Run an archive beside a media driver, until Ctrl-C or SIGTERM. It serves the clients of Aeron "
        "Archive, a consensus module among them, and works on the directory of Java's archive.",
        epilog="Options override the environment variable in brackets, which overrides the TOML file of --config.",
    )
    parser.add_argument(
        "--dir", dest="archive_dir", type=path, metavar="DIR", help="the same as --archive-dir [AERON_ARCHIVE_DIR]"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with settings, by their names [AERON_ARCHIVE_CONFIG_FILE]"
    )
    parser.add_argument(
        "--log-level", choices=_LOG_LEVELS, default="info", help="what is logged to standard error (default: info)"
    )
    add_settings(parser, archive_settings_table())
    parser.set_defaults(command=_run)
    return parser


def _run(options: argparse.Namespace) -> None:
    settings: dict[str, Any] = {name: getattr(options, name) for name in archive_settings_table()}
    run_context(ArchiveContext(config_file=options.config, **settings))


def run_context(context: ArchiveContext) -> None:
    """Run the archive of a context until it is asked to end by Ctrl-C or SIGTERM: the whole of a main program.

    An end that was asked for returns: then everything is closed in order, and the mark file is free for the next start.

    Raises:
        SystemExit: with code 1 when it ended otherwise; the reason is in the log.
        ContainerError: it could not be made; see :meth:`~container.archive.native_archive.Archive.launch`.
        OSError: likewise.
    """
    if context.settings.threading_mode == INVOKER:
        raise ConfigurationError("threading_mode=INVOKER: the command waits for an archive with a thread of its own")
    report_crashes()
    with Ending(context) as end:
        try:
            archive = Archive(context, on_end=lambda: end.tell(None))
        except KeyboardInterrupt:
            report("info", "interrupted while starting")
            return
        archive.start()
        report("info", "%s is ready: %s", context.name, context.summary())
        caught = end.wait()
    # From here on a second signal has its usual effect, so that a disk which never answers can be got rid of.
    if caught is not None:
        report("info", "%s: closing %s", caught.name, context.name)
    archive.close()
    failure = archive.failure
    if failure is not None:
        report("error", "%s: ended by %s: %s", context.name, type_name(failure).rpartition(".")[2], message_of(failure))
        raise SystemExit(1)
    report("info", "%s: ended", context.name)
