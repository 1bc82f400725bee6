"""The command ``aeron-cluster``, also ``python -m container``; its first word says what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from container.cli.failures import EXPECTED, print_failure, print_interruption

PROGRAM = "aeron-cluster"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (without the program's name); return the exit code.

    0 for an end that was asked for, 1 when the container could not start or ended otherwise, 2 for wrong usage or
    settings, 130 for Ctrl-C where the command does not wait for it, as while it imports.
    """
    _escape_what_cannot_be_encoded()
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        if options.log_level is not None:  # words for operators log nothing
            from container.common.loggers import log_to_stderr

            log_to_stderr(options.log_level, getattr(options, "log_format", "text"))
        options.command(options)
    except KeyboardInterrupt as error:
        return print_interruption(PROGRAM, error)
    except EXPECTED as error:
        return print_failure(PROGRAM, error)
    return 0


def _escape_what_cannot_be_encoded() -> None:
    """Have standard output write what its encoding lacks as an escape, as standard error does: paths, payloads, help.

    The encoding is that of the terminal, which may be ASCII; a path may have bytes that no encoding has.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _parse(arguments: Sequence[str]) -> Any:
    """The options of a command, with ``log_level`` or None, and ``command``, the function to call with them."""
    from container.cli.command_line import parse  # compiled modules, which may not be built

    return parse(PROGRAM, list(arguments), _run)


def _run(options: Any) -> None:
    from container.common.object_path import search_current_directory
    from container.context import Context
    from container.operate.metrics_server import serve_metrics
    from container.run_service import run_context
    from container.settings.container_table import settings_table

    settings: dict[str, Any] = {name: getattr(options, name, None) for name in settings_table()}
    settings["service_class_name"] = options.service
    context = Context(config_file=options.config, **settings)
    search_current_directory()
    context.service = context.create_service()  # before the wait for the driver: a mistake is reported at once
    with serve_metrics(options.metrics_port, context.settings.cluster_dir or ""):
        run_context(context)


if __name__ == "__main__":
    sys.exit(main())
