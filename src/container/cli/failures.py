"""Reports why a program could not start: the user's traceback and a line on standard error, and an exit code."""

from __future__ import annotations

import sys

from container import not_built_error
from container.errors import ConfigurationError, ContainerError, MarkFileError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EXPECTED = (ContainerError, ImportError, OSError)
"""Errors that a start may raise: their texts say what to do, and a traceback would add nothing."""


def print_failure(program: str, error: BaseException) -> int:
    """Print why a program ends, and log the traceback at level DEBUG; the exit code: 2 for a wrong setting, else 1.

    The traceback of a user's code that failed at import or construction comes first, unless standard error has JSON.
    """
    # a start without an error needs none
    from container.common.error_texts import message_of, stack_text, type_name, user_stack_text
    from container.common.line_printer import print_line
    from container.common.log_events import log_failed_start
    from container.common.loggers import report
    from container.common.values import shown_path

    report("debug", "failed:\n%s", stack_text(error))
    if isinstance(error, ModuleNotFoundError):
        error = not_built_error(error) or error
    exit_code = EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILURE
    message = " ".join(message_of(error).split())
    of_file = error if isinstance(error, OSError) and error.filename is not None else None
    if of_file is not None:
        message = f"{shown_path(of_file.filename)[1:-1]}: {of_file.strerror}"
    cause = error.__cause__ if isinstance(error, MarkFileError) else of_file
    if isinstance(cause, PermissionError):
        message += ": start it as the owner of that file, or change the owner"
    if not log_failed_start(program, type_name(error).rpartition(".")[2], message, exit_code):
        if exit_code == EXIT_USAGE and error.__cause__ is not None:
            for line in user_stack_text(error.__cause__).splitlines():
                print_line(line, sys.stderr)
        print_line(f"{program}: error: {message}", sys.stderr)
    return exit_code


def print_interruption(program: str, error: KeyboardInterrupt) -> int:
    """Print that Ctrl-C ended a program, and log where at level DEBUG; the exit code, as a shell has it."""
    from container.common.error_texts import stack_text
    from container.common.line_printer import print_line
    from container.common.loggers import report

    report("debug", "interrupted:\n%s", stack_text(error))
    print_line(f"{program}: interrupted", sys.stderr)
    return EXIT_INTERRUPTED
